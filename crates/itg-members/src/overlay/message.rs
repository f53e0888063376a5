//! Messages between members of an overlay, and those within a stack, up and down; their bytes.
//!
//! | type | message | fields behind the sender's view u64 |
//! |---|---|---|
//! | 1340 | `Offer` | id, length u32, chunk u32, digest u64, lasting u8, number of the first chunk's bytes u32, they |
//! | 1341 | `Want` | id, next chunk u32, end of the window u32, whether said again u8 |
//! | 1342 | `Chunk` | id, number u32, bytes |
//! | 1343 | `Gone` | id |
//! | 1344 | `Complete` | id |
//! | 1345 | `Everywhere` | id |
//! | 1346 | `Sum` | topic u32, round u64, members u32, bytes |
//!
//! Within a stack, over no network:
//!
//! | type | way | what | body |
//! |---|---|---|---|
//! | 930 | down | spread | lasting u8, bytes |
//! | 931 | down | drop | id |
//! | 932 | down | contribute | topic u32, bytes |
//! | 940 | up | spread | id, bytes |
//! | 941 | up | everywhere | id |
//! | 942 | up | gathered | topic u32, members in it u32, members u32, bytes |
//! | 943 | up | refused | bytes |
//!
//! An id is: origin (slot u32, incarnation u64), number u64. Little-endian.

use bytes::{BufMut as _, Bytes, BytesMut};
use itg_process::{Message, Slot};

use crate::member::{Id, View};
use crate::wire::{Put as _, Take};

/// First and last type of these messages on a wire.
pub(crate) const FIRST: u32 = 1340;
pub(crate) const LAST: u32 = 1346;
/// Types within a stack, which no network carries.
pub(crate) const LOCAL_FIRST: u32 = 930;
pub(crate) const LOCAL_LAST: u32 = 949;
const SPREAD: u32 = 930;
const DROP: u32 = 931;
const CONTRIBUTE: u32 = 932;
const SPREAD_TO: u32 = 940;
const EVERYWHERE: u32 = 941;
const GATHERED: u32 = 942;
const REFUSED: u32 = 943;

/// Request of the user of an overlay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OverlayRequest {
    /// This view is in force: a call of the membership to the layer `overlay`.
    View(View),
    /// The longest round trip to others takes so many nanoseconds.
    RoundTrip(u64),
    /// All members are to get these bytes.
    Spread {
        /// True if members that join later get them too, until they are dropped.
        lasting: bool,
        /// The bytes.
        bytes: Bytes,
    },
    /// Something lasting is not to be kept here any more.
    Drop(Id),
    /// Contribution of this process to a topic from now on.
    Contribute(u32, Bytes),
}

/// Event that an overlay reports to its user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OverlayDelivery {
    /// Bytes that another member spreads, or this process itself: once at each member.
    Spread {
        /// Their name.
        id: Id,
        /// The bytes.
        bytes: Bytes,
    },
    /// All members of a view have it.
    Everywhere(Id),
    /// At the root: merged contributions of members, in each period.
    Gathered {
        /// Topic.
        topic: u32,
        /// Number of members in it.
        count: u32,
        /// Number of members of the view.
        of: u32,
        /// Merged contributions.
        bytes: Bytes,
    },
    /// These bytes are not spread: there is no view, or they are too many.
    Refused(Bytes),
}

/// Something that is spread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Its name.
    pub id: Id,
    /// Its bytes.
    pub len: u32,
    /// Bytes of a chunk.
    pub chunk: u32,
    /// FNV-1a of its bytes.
    pub digest: u64,
    /// True if it is kept for members that join.
    pub lasting: bool,
    /// All of it, when it is one chunk and offered for the first time.
    pub all: Option<Bytes>,
}

/// Content of a message between members of an overlay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OverlayBody {
    /// This is here, or comes.
    Offer(Offer),
    /// The receiver of an offer wants chunks, or has all.
    Want {
        /// Name of the offer.
        id: Id,
        /// The first chunk that it lacks.
        next: u32,
        /// It takes chunks before this one.
        most: u32,
        /// True if chunks behind `next` have been asked for and did not come.
        again: bool,
    },
    /// A chunk.
    Chunk {
        /// Name of the offer.
        id: Id,
        /// Number of the chunk, from 0.
        number: u32,
        /// Its bytes.
        bytes: Bytes,
    },
    /// It is not here any more.
    Gone {
        /// Its name.
        id: Id,
    },
    /// The sender and all below it have it.
    Complete {
        /// Its name.
        id: Id,
    },
    /// All members have it.
    Everywhere {
        /// Its name.
        id: Id,
    },
    /// Contribution of the sender and all below it.
    Sum(Sum),
}

/// Contribution of some members to a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sum {
    /// Topic.
    pub topic: u32,
    /// Number of the round; it increases.
    pub round: u64,
    /// Number of members in it.
    pub count: u32,
    /// Merged contributions.
    pub bytes: Bytes,
}

/// A message of an overlay, and the view of its sender.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OverlayMessage {
    /// Number of the view.
    pub view: u64,
    /// Content.
    pub what: OverlayBody,
}

impl OverlayMessage {
    /// Type and bytes.
    #[must_use]
    pub fn encode(&self) -> (u32, Bytes) {
        let mut out = BytesMut::with_capacity(64 + self.what.bytes());
        out.put_u64_le(self.view);
        let place = match &self.what {
            OverlayBody::Offer(offer) => {
                out.id(offer.id);
                out.put_u32_le(offer.len);
                out.put_u32_le(offer.chunk);
                out.put_u64_le(offer.digest);
                out.put_u8(u8::from(offer.lasting));
                out.put_u8(u8::from(offer.all.is_some()));
                out.put_slice(offer.all.as_deref().unwrap_or_default());
                0
            }
            OverlayBody::Want { id, next, most, again } => {
                out.id(*id);
                out.put_u32_le(*next);
                out.put_u32_le(*most);
                out.put_u8(u8::from(*again));
                1
            }
            OverlayBody::Chunk { id, number, bytes } => {
                out.id(*id);
                out.put_u32_le(*number);
                out.put_slice(bytes);
                2
            }
            OverlayBody::Gone { id } => {
                out.id(*id);
                3
            }
            OverlayBody::Complete { id } => {
                out.id(*id);
                4
            }
            OverlayBody::Everywhere { id } => {
                out.id(*id);
                5
            }
            OverlayBody::Sum(sum) => {
                out.put_u32_le(sum.topic);
                out.put_u64_le(sum.round);
                out.put_u32_le(sum.count);
                out.put_slice(&sum.bytes);
                6
            }
        };
        (FIRST + place, out.freeze())
    }

    /// The message that these bytes of this type are; `None` when they are none.
    #[must_use]
    pub fn decode(ty: u32, body: &Bytes) -> Option<Self> {
        let mut take = Take::new(body.clone());
        let view = take.u64()?;
        let what = match ty.checked_sub(FIRST)? {
            0 => {
                let (id, len, chunk) = (take.id()?, take.u32()?, take.u32()?);
                let (digest, lasting, all) = (take.u64()?, take.flag()?, take.flag()?);
                let rest = take.rest();
                let fits = if all { rest.len() == len as usize } else { rest.is_empty() };
                if !fits || chunk == 0 {
                    return None;
                }
                let all = all.then_some(rest);
                return Some(Self {
                    view,
                    what: OverlayBody::Offer(Offer { id, len, chunk, digest, lasting, all }),
                });
            }
            1 => {
                let (id, next, most, again) = (take.id()?, take.u32()?, take.u32()?, take.flag()?);
                OverlayBody::Want { id, next, most, again }
            }
            2 => {
                let (id, number) = (take.id()?, take.u32()?);
                let what = OverlayBody::Chunk { id, number, bytes: take.rest() };
                return Some(Self { view, what });
            }
            3 => OverlayBody::Gone { id: take.id()? },
            4 => OverlayBody::Complete { id: take.id()? },
            5 => OverlayBody::Everywhere { id: take.id()? },
            6 => {
                let (topic, round, count) = (take.u32()?, take.u64()?, take.u32()?);
                let what = OverlayBody::Sum(Sum { topic, round, count, bytes: take.rest() });
                return Some(Self { view, what });
            }
            _ => return None,
        };
        take.end(Self { view, what })
    }
}

impl OverlayBody {
    const fn bytes(&self) -> usize {
        match self {
            Self::Offer(Offer { all: Some(bytes), .. })
            | Self::Chunk { bytes, .. }
            | Self::Sum(Sum { bytes, .. }) => bytes.len(),
            _ => 0,
        }
    }
}

impl OverlayRequest {
    /// As a message of a stack; views are calls, not messages.
    #[must_use]
    pub fn message(self) -> Option<Message> {
        let mut out = BytesMut::new();
        let ty = match self {
            Self::View(_) | Self::RoundTrip(_) => return None,
            Self::Spread { lasting, bytes } => {
                out.put_u8(u8::from(lasting));
                out.put_slice(&bytes);
                SPREAD
            }
            Self::Drop(id) => {
                out.id(id);
                DROP
            }
            Self::Contribute(topic, bytes) => {
                out.put_u32_le(topic);
                out.put_slice(&bytes);
                CONTRIBUTE
            }
        };
        Some(Message::new(Slot(0), ty, out.freeze()))
    }

    /// The request that a message from above is.
    ///
    /// # Errors
    /// The message, when it is none.
    pub fn from_message(message: Message) -> Result<Self, Message> {
        let mut take = Take::new(message.body.clone());
        let found = match message.ty {
            SPREAD => take.flag().map(|lasting| Self::Spread { lasting, bytes: take.rest() }),
            DROP => take.id().map(Self::Drop),
            CONTRIBUTE => take.u32().map(|topic| Self::Contribute(topic, take.rest())),
            _ => None,
        };
        found.ok_or(message)
    }
}

impl OverlayDelivery {
    /// As a message to the layer above.
    #[must_use]
    pub fn message(self, me: Slot) -> Message {
        let mut out = BytesMut::new();
        let ty = match self {
            Self::Spread { id, bytes } => {
                out.reserve(20 + bytes.len());
                out.id(id);
                out.put_slice(&bytes);
                SPREAD_TO
            }
            Self::Everywhere(id) => {
                out.id(id);
                EVERYWHERE
            }
            Self::Gathered { topic, count, of, bytes } => {
                out.put_u32_le(topic);
                out.put_u32_le(count);
                out.put_u32_le(of);
                out.put_slice(&bytes);
                GATHERED
            }
            Self::Refused(bytes) => {
                return Message { src: me, ..Message::new(me, REFUSED, bytes) };
            }
        };
        Message { src: me, ..Message::new(me, ty, out.freeze()) }
    }

    /// Reads a message from the layer below.
    #[must_use]
    pub fn from_message(message: &Message) -> Option<Self> {
        let mut take = Take::new(message.body.clone());
        Some(match message.ty {
            SPREAD_TO => Self::Spread { id: take.id()?, bytes: take.rest() },
            EVERYWHERE => Self::Everywhere(take.id()?),
            GATHERED => {
                let (topic, count, of) = (take.u32()?, take.u32()?, take.u32()?);
                Self::Gathered { topic, count, of, bytes: take.rest() }
            }
            REFUSED => Self::Refused(take.rest()),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::member::Member;

    #[test]
    fn bytes_there_and_back() {
        let id = Id { origin: Member::new(Slot(3), 65_537), seq: 9 };
        let all = Bytes::from_static(b"all");
        let offer = |all| Offer { id, len: 3, chunk: 16, digest: 5, lasting: true, all };
        for what in [
            OverlayBody::Offer(offer(None)),
            OverlayBody::Offer(offer(Some(all.clone()))),
            OverlayBody::Want { id, next: 1, most: 17, again: true },
            OverlayBody::Chunk { id, number: 4, bytes: all.clone() },
            OverlayBody::Gone { id },
            OverlayBody::Complete { id },
            OverlayBody::Everywhere { id },
            OverlayBody::Sum(Sum { topic: 1, round: 2, count: 3, bytes: all.clone() }),
        ] {
            let say = OverlayMessage { view: 7, what };
            let (ty, bytes) = say.encode();
            assert_eq!(OverlayMessage::decode(ty, &bytes).as_ref(), Some(&say), "{say:?}");
            let short = bytes.slice(..bytes.len().min(20));
            assert_eq!(OverlayMessage::decode(ty, &short), None, "{say:?} cut short");
        }
        for ask in [
            OverlayRequest::Spread { lasting: true, bytes: all.clone() },
            OverlayRequest::Drop(id),
            OverlayRequest::Contribute(4, all.clone()),
        ] {
            let message = ask.clone().message().expect("a message");
            assert_eq!(OverlayRequest::from_message(message), Ok(ask));
        }
        for tell in [
            OverlayDelivery::Spread { id, bytes: all.clone() },
            OverlayDelivery::Everywhere(id),
            OverlayDelivery::Gathered { topic: 1, count: 2, of: 3, bytes: all.clone() },
            OverlayDelivery::Refused(all),
        ] {
            assert_eq!(OverlayDelivery::from_message(&tell.clone().message(Slot(1))), Some(tell));
        }
    }
}
