//! Messages between the members of a log, and their bytes.
//!
//! | type | message | fields behind the sender (slot u32, incarnation u64) |
//! |---|---|---|
//! | 1410 | `Data` | entries |
//! | 1411 | `Est` | instance u64, round u32, time u32, value |
//! | 1412 | `Prop` | instance, round, round in which the instance before was decided (u8, u32), value |
//! | 1413 | `Ack` | instance, round, whether it is said again u8 |
//! | 1414 | `Nack` | instance, round |
//! | 1415 | `Abort` | instance, round |
//! | 1416 | `Done` | instance, round: what was proposed there is decided |
//! | 1417 | `Dec` | first instance, number of values u32, values |
//! | 1418 | `Pull` | first instance that is missing |
//! | 1419 | `Want` | instance, identifiers |
//! | 1420 | `Status` | next instance, smallest of the subtree, smallest of all |
//! | 1421 | `Snapshot` | instance, position, author (u8, member), view, delivered numbers, state |
//! | 1422 | `Gone` | number of a view without the receiver |
//! | 1423 | `Piece` | instance, length of the snapshot u64, its checksum u64 (FNV-1a), offset u64, bytes |
//! | 1424 | `More` | instance, checksum of the snapshot u64, offset of the piece that is asked for u64 |
//!
//! An entry is: origin (slot u32, incarnation u64), number u64, Lamport time u64, kind u8 (0 message, 1
//! held, 2 view change), length u32 and bytes. Little-endian.

use std::sync::Arc;

use bytes::{BufMut as _, Bytes, BytesMut};

use crate::cast::backlog::DeliveredRange;
use crate::cast::entry::{Entry, MOST_PART, MOST_SNAPSHOT, PutEntry as _, TakeEntry as _, Value};
use crate::codec::{read, write};
use itg_members::wire::{Put as _, Take};
use itg_members::{Id, Member, View, ViewParts};

/// A message of a log.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LogMessage {
    /// Sender and its incarnation.
    pub from: Member,
    /// Content.
    pub what: LogBody,
}

/// Content of a message between members of a log.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum LogBody {
    /// These messages are to be ordered.
    Data(Arc<Vec<Entry>>),
    /// Phase 1: what a member holds, for the coordinator of this round.
    Est {
        /// The instance.
        k: u64,
        /// The round.
        r: u32,
        /// One more than the round in which it was adopted; 0 for an own one.
        ts: u32,
        /// The estimate.
        value: Arc<Value>,
    },
    /// Phase 2: the proposal of a round.
    Prop {
        /// The instance.
        k: u64,
        /// The round.
        r: u32,
        /// The instance before was decided with what the sender proposed in this round.
        before: Option<u32>,
        /// The proposal.
        value: Arc<Value>,
    },
    /// Phase 3: adopted.
    Ack {
        /// The instance.
        k: u64,
        /// The round.
        r: u32,
        /// True if it has been sent before.
        again: bool,
    },
    /// Phase 3: the coordinator is suspected.
    Nack {
        /// The instance.
        k: u64,
        /// The round.
        r: u32,
    },
    /// The coordinator of this round has been suspected: members that wait may go on.
    Abort {
        /// The instance.
        k: u64,
        /// The round.
        r: u32,
    },
    /// Decided: what the sender proposed in this round.
    Done {
        /// The instance.
        k: u64,
        /// The round.
        r: u32,
    },
    /// Decided: these values, from instance `k` on.
    Dec {
        /// The first instance.
        k: u64,
        /// The values of it and the next ones.
        values: Vec<Arc<Value>>,
    },
    /// Tell me the decisions from here on; [`super::JOINING`] asks for a snapshot.
    Pull {
        /// The first instance that is missing.
        k: u64,
    },
    /// Tell me these messages, which were proposed by name.
    Want {
        /// The instance that needs them.
        k: u64,
        /// Their names.
        ids: Vec<Id>,
    },
    /// Progress of members.
    Status {
        /// The sender's next instance.
        k: u64,
        /// The smallest one of its subtree.
        low: u64,
        /// The smallest one of all members that it knows of.
        stable: u64,
    },
    /// The state before an instance.
    Snapshot(Box<Snapshot>),
    /// The sender's view of this number is without the receiver.
    Gone {
        /// Number of the view.
        view: u64,
    },
    /// A piece of a snapshot that is too long for one message.
    Piece {
        /// The instance of the snapshot.
        k: u64,
        /// Bytes of the snapshot.
        total: u64,
        /// Checksum of all of them: another state of the same instance has another one.
        sum: u64,
        /// Bytes before this piece.
        offset: u64,
        /// The piece.
        bytes: Bytes,
    },
    /// Tell me the piece of this snapshot that begins here.
    More {
        /// The instance of the snapshot.
        k: u64,
        /// Its checksum.
        sum: u64,
        /// Bytes that the sender has.
        offset: u64,
    },
}

/// The state of a log before an instance, and that of its user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    pub(crate) k: u64,
    pub(crate) position: u64,
    pub(crate) author: Option<Member>,
    pub(crate) view: View,
    pub(crate) seen: Vec<DeliveredRange>,
    pub(crate) state: Bytes,
}

impl std::hash::Hash for Snapshot {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        (self.k, self.position, self.author, self.view.digest(), &self.seen).hash(state);
        self.state.hash(state);
    }
}

/// Type of the first kind of message.
pub(crate) const FIRST: u32 = 1410;
/// Type of the last one.
pub(crate) const LAST: u32 = 1424;
/// Decisions in one message.
const MOST_VALUES: usize = 1024;

impl LogMessage {
    /// Type and bytes.
    #[must_use]
    pub fn encode(&self) -> (u32, Bytes) {
        let mut out = BytesMut::with_capacity(64 + self.what.room());
        out.member(self.from);
        let instance = |out: &mut BytesMut, k: u64, r: u32| {
            out.put_u64_le(k);
            out.put_u32_le(r);
        };
        let kind = match &self.what {
            LogBody::Data(entries) => {
                out.entries(entries);
                0
            }
            LogBody::Est { k, r, ts, value } => {
                instance(&mut out, *k, *r);
                out.put_u32_le(*ts);
                out.value(value);
                1
            }
            LogBody::Prop { k, r, before, value } => {
                instance(&mut out, *k, *r);
                out.put_u8(before.is_some().into());
                out.put_u32_le(before.unwrap_or(0));
                out.value(value);
                2
            }
            LogBody::Ack { k, r, again } => {
                instance(&mut out, *k, *r);
                out.put_u8((*again).into());
                3
            }
            LogBody::Nack { k, r } | LogBody::Abort { k, r } | LogBody::Done { k, r } => {
                instance(&mut out, *k, *r);
                match &self.what {
                    LogBody::Nack { .. } => 4,
                    LogBody::Abort { .. } => 5,
                    _ => 6,
                }
            }
            LogBody::Dec { k, values } => {
                out.put_u64_le(*k);
                out.put_u32_le(u32::try_from(values.len()).unwrap_or(u32::MAX));
                values.iter().for_each(|value| out.value(value));
                7
            }
            LogBody::Pull { k } => {
                out.put_u64_le(*k);
                8
            }
            LogBody::Want { k, ids } => {
                out.put_u64_le(*k);
                out.put_u32_le(u32::try_from(ids.len()).unwrap_or(u32::MAX));
                ids.iter().for_each(|id| out.id(*id));
                9
            }
            LogBody::Status { k, low, stable } => {
                [k, low, stable].into_iter().for_each(|number| out.put_u64_le(*number));
                10
            }
            LogBody::Snapshot(snapshot) => {
                snapshot.put(&mut out);
                11
            }
            LogBody::Gone { view } => {
                out.put_u64_le(*view);
                12
            }
            LogBody::Piece { k, total, sum, offset, bytes } => {
                [k, total, sum, offset].into_iter().for_each(|number| out.put_u64_le(*number));
                out.blob(bytes);
                13
            }
            LogBody::More { k, sum, offset } => {
                [k, sum, offset].into_iter().for_each(|number| out.put_u64_le(*number));
                14
            }
        };
        (FIRST + kind, out.freeze())
    }

    /// The message that these bytes of this type are.
    #[must_use]
    pub fn decode(ty: u32, body: &Bytes) -> Option<Self> {
        let mut take = Take::new(body.clone());
        let from = take.member()?;
        let what = match ty.checked_sub(FIRST)? {
            0 => LogBody::Data(Arc::new(take.entries()?)),
            1 => LogBody::Est {
                k: take.u64()?,
                r: take.u32()?,
                ts: take.u32()?,
                value: take.value()?,
            },
            2 => {
                let (k, r) = (take.u64()?, take.u32()?);
                let (is_some, before) = (take.flag()?, take.u32()?);
                LogBody::Prop { k, r, before: is_some.then_some(before), value: take.value()? }
            }
            3 => LogBody::Ack { k: take.u64()?, r: take.u32()?, again: take.flag()? },
            4 => LogBody::Nack { k: take.u64()?, r: take.u32()? },
            5 => LogBody::Abort { k: take.u64()?, r: take.u32()? },
            6 => LogBody::Done { k: take.u64()?, r: take.u32()? },
            7 => LogBody::Dec { k: take.u64()?, values: take.list(16, Take::value)? },
            8 => LogBody::Pull { k: take.u64()? },
            9 => LogBody::Want { k: take.u64()?, ids: take.list(20, Take::id)? },
            10 => LogBody::Status { k: take.u64()?, low: take.u64()?, stable: take.u64()? },
            11 => LogBody::Snapshot(Box::new(Snapshot::take(&mut take)?)),
            12 => LogBody::Gone { view: take.u64()? },
            13 => LogBody::Piece {
                k: take.u64()?,
                total: take.u64()?,
                sum: take.u64()?,
                offset: take.u64()?,
                bytes: take.blob(MOST_PART)?,
            },
            14 => LogBody::More { k: take.u64()?, sum: take.u64()?, offset: take.u64()? },
            _ => return None,
        };
        let few = !matches!(&what, LogBody::Dec { values, .. } if values.len() > MOST_VALUES);
        take.end(few.then_some(Self { from, what })?)
    }
}

impl LogBody {
    /// Bytes of the entries that it carries, about.
    fn room(&self) -> usize {
        let of = |entries: &[Entry]| entries.iter().map(Entry::wire_len).sum::<usize>();
        match self {
            Self::Data(entries) => of(entries),
            Self::Est { value, .. } | Self::Prop { value, .. } => of(&value.entries),
            Self::Dec { values, .. } => values.iter().map(|value| of(&value.entries)).sum(),
            Self::Snapshot(snapshot) => snapshot.state.len(),
            Self::Piece { bytes, .. } => bytes.len(),
            _ => 0,
        }
    }
}

impl Snapshot {
    pub(super) fn put(&self, out: &mut BytesMut) {
        out.put_u64_le(self.k);
        out.put_u64_le(self.position);
        out.put_u8(self.author.is_some().into());
        out.member(self.author.unwrap_or_default());
        out.blob(&write(&self.view.parts()));
        out.put_u32_le(u32::try_from(self.seen.len()).unwrap_or(u32::MAX));
        self.seen.iter().for_each(|seen| seen.put(out));
        out.blob(&self.state);
    }

    pub(super) fn take(take: &mut Take) -> Option<Self> {
        let (k, position) = (take.u64()?, take.u64()?);
        let (is_some, author) = (take.flag()?, take.member()?);
        let parts: ViewParts = read(&take.blob(MOST_PART)?)?;
        let view = View::try_from(parts).ok()?;
        let seen = take.list(24, DeliveredRange::take)?;
        let state = take.blob(MOST_SNAPSHOT)?;
        Some(Self { k, position, author: is_some.then_some(author), view, seen, state })
    }
}
