//! Records of the journal of a uniform broadcast: its log's, and what a member has promised and delivered itself.
//!
//! | kind | record | when |
//! |---|---|---|
//! | 0 | a record of the log | when the log asks for it |
//! | 1 | `Base`: view, state as a joiner gets it | takes the place of what was before |
//! | 2 | `Message`: name, message | before this member says that it holds it; its own before others hear of them |
//! | 3 | `Order`: epoch u64, name, number u64 | before others hear that it is known |
//! | 4 | `Stamp`: epoch, name, timestamp u64 | before the collector hears it (Skeen) |
//! | 5 | `Fence`: epoch | before FLUSH leaves: nothing more is acknowledged in that epoch |
//! | 6 | `Delivered`: epoch, number u64, name, message (u8, message) | before the user and the others know |
//! | 7 | `Epoch`: view, what went with the change | the epoch begins |
//! | 8 | `Clock`: epoch, time u64 | with a base (Skeen) |
//! | 9, 10 | a piece of a base that is longer than 1 MiB, and the last one of it | |

use bytes::{BufMut as _, Bytes, BytesMut};
use itg_members::wire::{Put as _, Take};
use itg_members::{Id, View, ViewParts};
use itg_process::JournalWrite;

use crate::cast::entry::{MOST_PART, MOST_PAYLOAD};
use crate::cast::log::split;
use crate::codec::{read, write};

/// Kinds of the records of the log, of bases, and of pieces of records.
pub(super) const OF_LOG: u8 = 0;
pub(super) const BASE: u8 = 1;
pub(super) const PIECE: u8 = 9;
pub(super) const LAST_PIECE: u8 = 10;

/// Room for the fields of a record beside its message.
const ROOM: usize = 48;

/// Record of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Note {
    Base(View, Bytes),
    Message(Id, Bytes),
    Order(u64, Id, u64),
    Stamp(u64, Id, u64),
    Fence(u64),
    Delivered(u64, u64, Id, Option<Bytes>),
    Epoch(View, Bytes),
    Clock(u64, u64),
}

impl Note {
    /// Bytes of the message or state in it.
    fn payload_len(&self) -> usize {
        match self {
            Self::Base(_, bytes) | Self::Message(_, bytes) | Self::Epoch(_, bytes) => bytes.len(),
            Self::Delivered(.., bytes) => bytes.as_ref().map_or(0, Bytes::len),
            Self::Order(..) | Self::Stamp(..) | Self::Fence(_) | Self::Clock(..) => 0,
        }
    }

    pub(super) fn encode(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(ROOM + self.payload_len());
        let numbered = |out: &mut BytesMut, kind, epoch: &u64, id: &Id, number: &u64| {
            out.put_u8(kind);
            out.put_u64_le(*epoch);
            out.id(*id);
            out.put_u64_le(*number);
        };
        let viewed = |out: &mut BytesMut, kind, view: &View, bytes: &Bytes| {
            out.put_u8(kind);
            out.blob(&write(&view.parts()));
            out.put_slice(bytes);
        };
        match self {
            Self::Base(view, state) => viewed(&mut out, BASE, view, state),
            Self::Message(id, payload) => {
                out.put_u8(2);
                out.id(*id);
                out.blob(payload);
            }
            Self::Order(epoch, id, number) => numbered(&mut out, 3, epoch, id, number),
            Self::Stamp(epoch, id, ts) => numbered(&mut out, 4, epoch, id, ts),
            Self::Fence(epoch) => {
                out.put_u8(5);
                out.put_u64_le(*epoch);
            }
            Self::Delivered(epoch, number, id, payload) => {
                numbered(&mut out, 6, epoch, id, number);
                out.put_u8(payload.is_some().into());
                payload.iter().for_each(|payload| out.blob(payload));
            }
            Self::Epoch(view, with) => viewed(&mut out, 7, view, with),
            Self::Clock(epoch, clock) => {
                out.put_u8(8);
                out.put_u64_le(*epoch);
                out.put_u64_le(*clock);
            }
        }
        out.freeze()
    }

    pub(super) fn decode(bytes: &Bytes) -> Option<Self> {
        let mut take = Take::new(bytes.clone());
        let view = |take: &mut Take| {
            let parts: ViewParts = read(&take.blob(MOST_PART)?)?;
            View::try_from(parts).ok()
        };
        let numbered = |take: &mut Take| Some((take.u64()?, take.id()?, take.u64()?));
        let note = match take.u8()? {
            BASE => return Some(Self::Base(view(&mut take)?, take.rest())),
            2 => Self::Message(take.id()?, take.blob(MOST_PAYLOAD)?),
            3 => numbered(&mut take).map(|(epoch, id, number)| Self::Order(epoch, id, number))?,
            4 => numbered(&mut take).map(|(epoch, id, ts)| Self::Stamp(epoch, id, ts))?,
            5 => Self::Fence(take.u64()?),
            6 => {
                let (epoch, id, number) = numbered(&mut take)?;
                let is_some = take.flag()?;
                let payload = if is_some { Some(take.blob(MOST_PAYLOAD)?) } else { None };
                Self::Delivered(epoch, number, id, payload)
            }
            7 => return Some(Self::Epoch(view(&mut take)?, take.rest())),
            8 => Self::Clock(take.u64()?, take.u64()?),
            _ => return None,
        };
        take.end(note)
    }
}

/// Records of a base, in pieces if it is long.
pub(super) fn base(view: View, state: Bytes) -> Vec<Bytes> {
    split(Note::Base(view, state).encode(), PIECE, LAST_PIECE)
}

/// A record of the log as it stands in the journal.
pub(super) fn of_log(record: &Bytes) -> Bytes {
    let mut out = BytesMut::with_capacity(1 + record.len());
    out.put_u8(OF_LOG);
    out.put_slice(record);
    out.freeze()
}

/// Records of the log in a journal of a uniform broadcast.
pub(crate) fn records_of_log(records: &[Bytes]) -> Vec<Bytes> {
    let of_log = records.iter().filter(|record| record.first() == Some(&OF_LOG));
    of_log.map(|record| record.slice(1..)).collect()
}

/// The journal of a member: all of its records, which share their memory with those that are written.
#[derive(Clone, Debug, Default, Hash)]
pub(super) struct Memory {
    /// True if records are written.
    pub(super) keeps: bool,
    /// Records of the log, and own ones.
    pub(super) of_log: Vec<Bytes>,
    pub(super) own: Vec<Bytes>,
    /// Bytes of own records since the last base, and of what there was then.
    pub(super) bytes: usize,
    pub(super) base: usize,
}

impl Memory {
    pub(super) fn all(&self) -> JournalWrite {
        JournalWrite::Replace(self.of_log.iter().chain(&self.own).cloned().collect())
    }

    /// A base has taken the place of what was before it.
    pub(super) fn based(&mut self) {
        (self.bytes, self.base) = (0, self.own.iter().map(Bytes::len).sum());
    }

    pub(super) const fn keeps(&self) -> bool {
        self.keeps
    }
}
