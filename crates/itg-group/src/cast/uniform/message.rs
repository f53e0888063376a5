//! Messages between the members of a uniform broadcast, and their bytes.
//!
//! | type | message | fields behind the sender and the epoch (u64) |
//! |---|---|---|
//! | 1430 | `Data` | name, message |
//! | 1431 | `Order` | name, number: Sequencer's number, Skeen's final number |
//! | 1432 | `Held` | number: all orders up to it are held, with their messages (Sequencer) |
//! | 1433 | `Stable` | number: a majority holds all orders up to it (Sequencer) |
//! | 1434 | `Stamp` | name, timestamp (Skeen) |
//! | 1435 | `HeldOne` | name: its final number is held, with its message (Skeen) |
//! | 1436 | `StableOne` | name: a majority holds its final number (Skeen) |
//! | 1437 | `Collect` | – : the receiver is asked for what it holds |
//! | 1438 | `Flush` | number of the first message kept, messages delivered from there, orders, messages that wait |
//! | 1439 | `Progress` | messages delivered in the epoch |
//! | 1440 | `Fill` | number of the first, messages |
//! | 1441 | `StableOnes` | names and final numbers that a majority holds, said again (Skeen) |

use bytes::{BufMut as _, Bytes, BytesMut};

use crate::cast::entry::{MOST_NAMED, MOST_PAYLOAD};
use crate::cast::log;
use itg_members::wire::{Put as _, Take};
use itg_members::{Id, Member};

/// A message with its name.
pub type Named = (Id, Bytes);

/// A message of a uniform broadcast.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum UniformMessage {
    /// Of the log that decides views and cuts.
    Log(log::LogMessage),
    /// Of an epoch: the number of the view.
    Fast {
        /// Sender.
        from: Member,
        /// Epoch of the message.
        epoch: u64,
        /// Content.
        what: EpochMessage,
    },
}

/// Content of a message within an epoch.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum EpochMessage {
    /// A message.
    Data(Id, Bytes),
    /// Its number.
    Order(Id, u64),
    /// All orders up to here are held.
    Held(u64),
    /// A majority holds all orders up to here.
    Stable(u64),
    /// A timestamp for the collector.
    Stamp(Id, u64),
    /// The final number of this message is held.
    HeldOne(Id),
    /// A majority holds it.
    StableOne(Id),
    /// Tell me what you hold, and acknowledge nothing more.
    Collect,
    /// Messages and orders that a member holds.
    Flush(Flush),
    /// Messages delivered in this epoch.
    Progress(u64),
    /// Messages that all members may deliver, from this number of the epoch on.
    Fill(u64, Vec<Named>),
    /// Messages with their final numbers, which a majority holds: said again, and not answered.
    StableOnes(Vec<(Id, u64)>),
}

/// Messages and orders of an epoch that a member holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Flush {
    /// Number of the first message in `delivered`, within the epoch.
    pub first: u64,
    /// Messages delivered, from `first` on.
    pub delivered: Vec<Named>,
    /// Numbers that are known of messages not delivered.
    pub orders: Vec<(Id, u64)>,
    /// Messages that wait.
    pub waiting: Vec<Named>,
}

/// Type of the first kind of message, and of the last.
pub(crate) const FIRST: u32 = 1430;
pub(crate) const LAST: u32 = 1441;
const LEAST_NAMED: usize = 24;
/// Bytes of a name and a number.
const NUMBERED: usize = 28;

/// Writes messages with their names.
pub(crate) fn put_named<'a>(
    out: &mut BytesMut,
    list: impl IntoIterator<Item = &'a Named, IntoIter: ExactSizeIterator>,
) {
    let list = list.into_iter();
    out.put_u32_le(u32::try_from(list.len()).unwrap_or(u32::MAX));
    for (id, payload) in list {
        out.id(*id);
        out.blob(payload);
    }
}

/// Reads them.
pub(crate) fn take_named(take: &mut Take) -> Option<Vec<Named>> {
    take.list_of(MOST_NAMED, LEAST_NAMED, |take| Some((take.id()?, take.blob(MOST_PAYLOAD)?)))
}

/// Reads names with numbers.
fn take_numbered(take: &mut Take) -> Option<Vec<(Id, u64)>> {
    take.list_of(MOST_NAMED, NUMBERED, |take| Some((take.id()?, take.u64()?)))
}

impl UniformMessage {
    /// Type and bytes.
    #[must_use]
    pub fn encode(&self) -> (u32, Bytes) {
        let (from, epoch, what) = match self {
            Self::Log(say) => return say.encode(),
            Self::Fast { from, epoch, what } => (from, epoch, what),
        };
        let payload = match what {
            EpochMessage::Data(_, payload) => payload.len(),
            EpochMessage::StableOnes(list) => NUMBERED * list.len(),
            _ => 0,
        };
        let mut out = BytesMut::with_capacity(64 + payload);
        out.member(*from);
        out.put_u64_le(*epoch);
        let numbered = |out: &mut BytesMut, id: &Id, number: &u64| {
            out.id(*id);
            out.put_u64_le(*number);
        };
        let kind = match what {
            EpochMessage::Data(id, payload) => {
                out.id(*id);
                out.blob(payload);
                0
            }
            EpochMessage::Order(id, number) => {
                numbered(&mut out, id, number);
                1
            }
            EpochMessage::Held(number) => {
                out.put_u64_le(*number);
                2
            }
            EpochMessage::Stable(number) => {
                out.put_u64_le(*number);
                3
            }
            EpochMessage::Stamp(id, ts) => {
                numbered(&mut out, id, ts);
                4
            }
            EpochMessage::HeldOne(id) => {
                out.id(*id);
                5
            }
            EpochMessage::StableOne(id) => {
                out.id(*id);
                6
            }
            EpochMessage::Collect => 7,
            EpochMessage::Flush(flush) => {
                out.put_u64_le(flush.first);
                put_named(&mut out, &flush.delivered);
                out.put_u32_le(u32::try_from(flush.orders.len()).unwrap_or(u32::MAX));
                flush.orders.iter().for_each(|(id, number)| numbered(&mut out, id, number));
                put_named(&mut out, &flush.waiting);
                8
            }
            EpochMessage::Progress(number) => {
                out.put_u64_le(*number);
                9
            }
            EpochMessage::Fill(first, list) => {
                out.put_u64_le(*first);
                put_named(&mut out, list);
                10
            }
            EpochMessage::StableOnes(list) => {
                out.put_u32_le(u32::try_from(list.len()).unwrap_or(u32::MAX));
                list.iter().for_each(|(id, number)| numbered(&mut out, id, number));
                11
            }
        };
        (FIRST + kind, out.freeze())
    }

    /// The message that these bytes of this type are.
    #[must_use]
    pub fn decode(ty: u32, body: &Bytes) -> Option<Self> {
        if (log::FIRST..=log::LAST).contains(&ty) {
            return log::LogMessage::decode(ty, body).map(Self::Log);
        }
        let mut take = Take::new(body.clone());
        let (from, epoch) = (take.member()?, take.u64()?);
        let what = match ty.checked_sub(FIRST)? {
            0 => EpochMessage::Data(take.id()?, take.blob(MOST_PAYLOAD)?),
            1 => EpochMessage::Order(take.id()?, take.u64()?),
            2 => EpochMessage::Held(take.u64()?),
            3 => EpochMessage::Stable(take.u64()?),
            4 => EpochMessage::Stamp(take.id()?, take.u64()?),
            5 => EpochMessage::HeldOne(take.id()?),
            6 => EpochMessage::StableOne(take.id()?),
            7 => EpochMessage::Collect,
            8 => EpochMessage::Flush(Flush {
                first: take.u64()?,
                delivered: take_named(&mut take)?,
                orders: take_numbered(&mut take)?,
                waiting: take_named(&mut take)?,
            }),
            9 => EpochMessage::Progress(take.u64()?),
            10 => EpochMessage::Fill(take.u64()?, take_named(&mut take)?),
            11 => EpochMessage::StableOnes(take_numbered(&mut take)?),
            _ => return None,
        };
        take.end(Self::Fast { from, epoch, what })
    }
}
