//! Requests to all broadcasts and their deliveries: one interface, whatever the algorithm below.
//!
//! Within a stack of layers these are messages of the types 900 to 919, which no network carries: a
//! broadcast takes what comes from one as malformed.
//!
//! | type | way | what | body |
//! |---|---|---|---|
//! | 900 | down | cast | the message |
//! | 901 | down | change the view | length u32 of the change, change, what goes with it |
//! | 902 | down | join by way of a process | slot u32 |
//! | 904 | down | begin again as another member | slot u32, incarnation u64 |
//! | 903 | down | state at a checkpoint | position u64, state |
//! | 910 | up | ordered message | position u64, origin u32, incarnation u64, number u64, message |
//! | 911 | up | view | position u64, length u32 of the view, view, what went with the change |
//! | 912 | up | checkpoint | position u64 |
//! | 913 | up | install | position u64, length u32 of the view, view, state |
//! | 914 | up | busy | the message |
//! | 915 | up | excluded | number of the view u64 |
//! | 916 | up | restored | position u64 |
//! | 917 | up | expired | the command |

use std::any::Any;

use bytes::{BufMut as _, Bytes, BytesMut};
use itg_members::observers::RoundTrip;
use itg_members::wire::{Put as _, Take};
use itg_members::{Id, Member, View, ViewChange, ViewParts};
use itg_process::{Injected, Message, Slot};

use super::entry::MOST_PART;
use crate::codec::{read, write};

/// Request of the user of a broadcast.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CastRequest {
    /// Order this message.
    Cast(Bytes),
    /// Order this view change and what goes with it.
    Change(ViewChange, Bytes),
    /// The failure detector suspects this process.
    Suspect(Slot),
    /// It does not any more.
    Trust(Slot),
    /// The failure detector measures round trips to others: the longest takes so many nanoseconds.
    RoundTrip(u64),
    /// A process without a view: ask this one for the state.
    Join(Slot),
    /// This process begins again as this member, which no view has contained: everything is forgotten.
    Rejoin(Member),
    /// The state of the user at the position of [`CastDelivery::Checkpoint`].
    State(u64, Bytes),
}

/// Delivery of a broadcast to its user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CastDelivery {
    /// The next entry is this message.
    Message {
        /// Its position in the order, from 0; the same at all members.
        position: u64,
        /// Its name.
        id: Id,
        /// Its content.
        payload: Bytes,
    },
    /// The next entry is a view change: this view is in force behind it.
    View {
        /// Its position in the order.
        position: u64,
        /// The view.
        view: View,
        /// Bytes that went with the change.
        with: Bytes,
    },
    /// Another process needs the state of the user before this position: answer with
    /// [`CastRequest::State`].
    Checkpoint {
        /// The position.
        position: u64,
    },
    /// The state of the user is to be this one; the next entry has this position.
    Install {
        /// The position.
        position: u64,
        /// The view in force.
        view: View,
        /// The state.
        state: Bytes,
    },
    /// The window is full, or the message too long: it is not cast.
    Busy(Bytes),
    /// This process is not in the view of this number: its part is over.
    Excluded {
        /// Number of the view.
        view: u64,
    },
    /// To the user of a client: this command was applied once, and its answer is kept by no server any more.
    Expired(Bytes),
    /// Everything that the journal of this process holds has been delivered again; told once, after its start.
    Restored {
        /// The position behind it.
        position: u64,
    },
}

/// Type of a message to be cast.
pub const CAST: u32 = 900;
const CHANGE: u32 = 901;
const JOIN: u32 = 902;
const STATE: u32 = 903;
const REJOIN: u32 = 904;
const ORDERED: u32 = 910;
const VIEW: u32 = 911;
const CHECKPOINT: u32 = 912;
const INSTALL: u32 = 913;
const BUSY: u32 = 914;
const EXCLUDED: u32 = 915;
const RESTORED: u32 = 916;
const EXPIRED: u32 = 917;
/// Last of the types that no network carries.
pub(crate) const LOCAL_LAST: u32 = 919;

/// Bytes that ordered messages share: a user that keeps one of them keeps so much.
const ROOM: usize = 4096;
/// Longer ones get memory of their own.
const ALONE: usize = ROOM / 4;
/// Bytes before an ordered message: position, origin, incarnation, number.
const ORDERED_HEAD: usize = 28;

/// A member as one number, for traces and checkers.
#[must_use]
pub fn code(member: Member) -> u64 {
    u64::from(member.slot.0) << 32 | (member.incarnation & 0xffff_ffff)
}

impl CastRequest {
    /// As a message of a stack; what a detector says are calls, not messages.
    #[must_use]
    pub fn message(self) -> Option<Message> {
        let mut out = BytesMut::new();
        let (ty, body) = match self {
            Self::Cast(payload) => (CAST, payload),
            Self::Change(change, with) => {
                out.blob(&write(&change));
                out.put_slice(&with);
                (CHANGE, out.freeze())
            }
            Self::Join(slot) => {
                out.put_u32_le(slot.0);
                (JOIN, out.freeze())
            }
            Self::Rejoin(member) => {
                out.put_u32_le(member.slot.0);
                out.put_u64_le(member.incarnation);
                (REJOIN, out.freeze())
            }
            Self::State(position, state) => {
                out.put_u64_le(position);
                out.put_slice(&state);
                (STATE, out.freeze())
            }
            Self::Suspect(_) | Self::Trust(_) | Self::RoundTrip(_) => return None,
        };
        Some(Message::new(Slot(0), ty, body))
    }

    /// The request that a message from above is.
    ///
    /// # Errors
    /// The message, when it is none.
    pub fn from_message(message: Message) -> Result<Self, Message> {
        if message.ty == CAST {
            return Ok(Self::Cast(message.body));
        }
        let mut take = Take::new(message.body.clone());
        let found = match message.ty {
            CHANGE => take.blob(MOST_PART).and_then(|change| {
                let change: ViewChange = read(&change)?;
                Some(Self::Change(change, take.rest()))
            }),
            JOIN => take.u32().map(|slot| Self::Join(Slot(slot))),
            REJOIN => take
                .u32()
                .zip(take.u64())
                .map(|(slot, life)| Self::Rejoin(Member::new(Slot(slot), life))),
            STATE => take.u64().map(|position| Self::State(position, take.rest())),
            _ => None,
        };
        found.ok_or(message)
    }

    /// The request that a call of a failure detector or of a simulation is.
    #[must_use]
    pub fn from_control(what: &dyn Any) -> Option<Self> {
        if let Some(RoundTrip(ns)) = what.downcast_ref() {
            return Some(Self::RoundTrip(*ns));
        }
        match what.downcast_ref::<Injected>()? {
            Injected::Suspect(slot) => Some(Self::Suspect(*slot)),
            Injected::Trust(slot) => Some(Self::Trust(*slot)),
            _ => None,
        }
    }
}

impl CastDelivery {
    /// As a message to the layer above.
    #[must_use]
    pub fn message(self, me: Slot) -> Message {
        self.message_in(me, None)
    }

    /// The same; short ordered messages share this room, which spares each of them memory of its own.
    pub(crate) fn message_in(self, me: Slot, room: Option<&mut BytesMut>) -> Message {
        let mut out = BytesMut::new();
        let ty = match self {
            Self::Message { position, id, payload } => {
                let mut head = [0; ORDERED_HEAD];
                head[..8].copy_from_slice(&position.to_le_bytes());
                head[8..12].copy_from_slice(&id.origin.slot.0.to_le_bytes());
                head[12..20].copy_from_slice(&id.origin.incarnation.to_le_bytes());
                head[20..].copy_from_slice(&id.seq.to_le_bytes());
                let len = ORDERED_HEAD + payload.len();
                let body = match room {
                    Some(room) if len <= ALONE => {
                        if room.capacity() < len {
                            room.reserve(ROOM);
                        }
                        room.put_slice(&head);
                        room.put_slice(&payload);
                        room.split().freeze()
                    }
                    _ => {
                        let mut body = Vec::with_capacity(len);
                        body.extend_from_slice(&head);
                        body.extend_from_slice(&payload);
                        body.into()
                    }
                };
                return Message { src: me, ..Message::new(me, ORDERED, body) };
            }
            Self::View { position, view, with } => {
                out.put_u64_le(position);
                out.blob(&write(&view.parts()));
                out.put_slice(&with);
                VIEW
            }
            Self::Checkpoint { position } => {
                out.put_u64_le(position);
                CHECKPOINT
            }
            Self::Install { position, view, state } => {
                out.put_u64_le(position);
                out.blob(&write(&view.parts()));
                out.put_slice(&state);
                INSTALL
            }
            Self::Busy(payload) => return Message { src: me, ..Message::new(me, BUSY, payload) },
            Self::Expired(command) => {
                return Message { src: me, ..Message::new(me, EXPIRED, command) };
            }
            Self::Excluded { view } => {
                out.put_u64_le(view);
                EXCLUDED
            }
            Self::Restored { position } => {
                out.put_u64_le(position);
                RESTORED
            }
        };
        Message { src: me, ..Message::new(me, ty, out.freeze()) }
    }

    /// Reads a message from the layer below.
    #[must_use]
    pub fn from_message(message: &Message) -> Option<Self> {
        Self::take(message.clone())
    }

    /// The same without a reference to its bytes that is left behind.
    #[must_use]
    pub fn take(message: Message) -> Option<Self> {
        let mut take = Take::new(message.body);
        let view = |take: &mut Take| {
            let parts: ViewParts = read(&take.blob(MOST_PART)?)?;
            View::try_from(parts).ok()
        };
        Some(match message.ty {
            ORDERED => {
                let (position, id) = (take.u64()?, take.id()?);
                Self::Message { position, id, payload: take.rest() }
            }
            VIEW => {
                let (position, view) = (take.u64()?, view(&mut take)?);
                Self::View { position, view, with: take.rest() }
            }
            CHECKPOINT => Self::Checkpoint { position: take.u64()? },
            INSTALL => {
                let (position, view) = (take.u64()?, view(&mut take)?);
                Self::Install { position, view, state: take.rest() }
            }
            BUSY => Self::Busy(take.rest()),
            EXPIRED => Self::Expired(take.rest()),
            EXCLUDED => Self::Excluded { view: take.u64()? },
            RESTORED => Self::Restored { position: take.u64()? },
            _ => return None,
        })
    }
}
