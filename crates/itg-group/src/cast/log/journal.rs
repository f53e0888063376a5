//! Journal of a member of a log, and its return with that after a crash: the same member, which keeps what it
//! has promised. Without a journal a process that comes back is a new member.
//!
//! | kind | record | when |
//! |---|---|---|
//! | 0 | `Born`: member | it begins under this name; everything before is forgotten but for what was decided |
//! | 1 | `Snapshot` | the state before an instance, where it takes the place of what was before |
//! | 2 | `Decided`: instance u64, value (u8, value) | delivered; without a value it is the estimate of the member |
//! | 3 | `Adopted`: instance, round u32, time u32, value, entries that it names | before ACK leaves |
//! | 4 | `Entered`: instance, round | before the estimate for a round above 0 leaves |
//! | 5 | `Cast`: entry | before others hear of it: a name never stands for two contents |
//! | 6, 7 | a piece of a record that is longer than 1 MiB, and the last one of it | with a snapshot |
//!
//! That is all: what was proposed by a coordinator was adopted by it or belongs to a round that it has entered,
//! and a member that is back takes part in later rounds only. Decisions may be lost (a majority of stored votes
//! decides the same again), so they are written with the next promise.

use std::sync::Arc;

use bytes::{BufMut as _, Bytes, BytesMut};
use itg_members::wire::{Put as _, Take};
use itg_members::{Member, View};
use itg_process::JournalWrite;

use super::chunks::{join, split};
use super::message::Snapshot;
use crate::cast::backlog::DeliveredRange;
use crate::cast::entry::{Entry, PutEntry as _, TakeEntry as _, Value};

/// Kinds of pieces of records.
const PIECE: u8 = 6;
const LAST_PIECE: u8 = 7;
/// Bytes of decisions that wait for the next promise.
const MOST_LATE: usize = 64 << 10;

/// Room for the fields of a record beside its entries.
const ROOM: usize = 32;

/// Record of a journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Record {
    Born(Member),
    Snapshot(Box<Snapshot>),
    Decided { k: u64, value: Option<Arc<Value>> },
    Adopted { k: u64, r: u32, ts: u32, value: Arc<Value>, held: Vec<Entry> },
    Entered { k: u64, r: u32 },
    Cast(Entry),
}

impl Record {
    /// Bytes that it takes, or a little more; that of a snapshot is not asked for.
    fn room(&self) -> usize {
        let of_all = |entries: &[Entry]| entries.iter().map(Entry::encoded_len).sum::<usize>();
        let of_value = |value: &Arc<Value>| ROOM + of_all(&value.entries);
        match self {
            Self::Decided { value, .. } => ROOM + value.as_ref().map_or(0, of_value),
            Self::Adopted { value, held, .. } => ROOM + of_value(value) + of_all(held),
            Self::Cast(entry) => ROOM + entry.encoded_len(),
            Self::Born(_) | Self::Snapshot(_) | Self::Entered { .. } => ROOM,
        }
    }

    fn encode(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(self.room());
        match self {
            Self::Born(member) => {
                out.put_u8(0);
                out.member(*member);
            }
            Self::Snapshot(snapshot) => {
                out.put_u8(1);
                snapshot.put(&mut out);
            }
            Self::Decided { k, value } => {
                out.put_u8(2);
                out.put_u64_le(*k);
                out.put_u8(value.is_some().into());
                value.iter().for_each(|value| out.value(value));
            }
            Self::Adopted { k, r, ts, value, held } => {
                out.put_u8(3);
                out.put_u64_le(*k);
                out.put_u32_le(*r);
                out.put_u32_le(*ts);
                out.value(value);
                out.entries(held);
            }
            Self::Entered { k, r } => {
                out.put_u8(4);
                out.put_u64_le(*k);
                out.put_u32_le(*r);
            }
            Self::Cast(entry) => {
                out.put_u8(5);
                out.entry(entry);
            }
        }
        out.freeze()
    }

    pub(super) fn decode(bytes: &Bytes) -> Option<Self> {
        let mut take = Take::new(bytes.clone());
        let record = match take.u8()? {
            0 => Self::Born(take.member()?),
            1 => Self::Snapshot(Box::new(Snapshot::take(&mut take)?)),
            2 => {
                let (k, is_some) = (take.u64()?, take.flag()?);
                let value = if is_some { Some(take.value()?) } else { None };
                Self::Decided { k, value }
            }
            3 => Self::Adopted {
                k: take.u64()?,
                r: take.u32()?,
                ts: take.u32()?,
                value: take.value()?,
                held: take.entries()?,
            },
            4 => Self::Entered { k: take.u64()?, r: take.u32()? },
            5 => Self::Cast(take.entry()?),
            _ => return None,
        };
        take.end(record)
    }
}

/// Records of a journal, those in pieces put together.
pub(super) fn whole_records(records: &[Bytes]) -> Vec<Bytes> {
    join(records, PIECE, LAST_PIECE)
}

/// Member that a journal makes of a process, and true if it is in a view: `None` if the journal is empty or not
/// of this program.
pub(crate) fn member_of(records: &[Bytes], first: &View) -> Option<(Member, bool)> {
    let mut found = None;
    for bytes in &whole_records(records) {
        found = match (Record::decode(bytes)?, found) {
            (Record::Born(member), None) => Some((member, first.contains(member))),
            (Record::Born(member), Some(_)) => Some((member, false)),
            (Record::Snapshot(_), Some((member, _))) => Some((member, true)),
            (_, found) => found,
        };
        found?;
    }
    found
}

/// The journal of a log.
#[derive(Clone, Debug, Default, Hash)]
pub(super) struct Journal {
    /// True if records are written.
    keeps: bool,
    /// Records of the time before this start; until then.
    found: Vec<Bytes>,
    /// Records that are written with the next one.
    late: Vec<Bytes>,
    late_bytes: usize,
    /// Bytes since it was made shorter, and of what it was then.
    bytes: usize,
    base: usize,
    /// It is to be made shorter.
    long: bool,
}

impl Journal {
    /// Looks at how long it is. One with a large state becomes as long again: it is not written anew all the time.
    pub(super) const fn grown(&mut self, most: usize) {
        self.long = self.keeps && self.bytes > most && self.bytes > self.base;
    }

    pub(super) const fn wants_snapshot(&self) -> bool {
        self.long
    }

    /// True if records are written.
    pub(super) const fn keeps(&self) -> bool {
        self.keeps
    }

    /// Begins to keep records, behind these.
    pub(super) fn keep(&mut self, found: &[Bytes]) {
        self.keeps = true;
        self.found = found.to_vec();
    }

    /// Takes the records of the time before this start; what they lead to is not written again until
    /// [`Journal::go_on`].
    pub(super) fn take_found(&mut self) -> Vec<Bytes> {
        self.keeps = false;
        std::mem::take(&mut self.found)
    }

    /// Goes on behind so many bytes.
    pub(super) const fn go_on(&mut self, bytes: usize) {
        (self.keeps, self.bytes) = (true, bytes);
    }

    /// Lets it grow as much again before it is made shorter: now it cannot be.
    pub(super) const fn put_off(&mut self) {
        (self.bytes, self.long) = (0, false);
    }

    /// Returns true, once, if it has become too long.
    pub(super) const fn take_long(&mut self) -> bool {
        std::mem::replace(&mut self.long, false)
    }

    /// Notes something that may wait for the next promise; returns true when much waits.
    pub(super) fn later(&mut self, record: &Record) -> bool {
        let bytes = record.encode();
        self.late_bytes += bytes.len();
        self.late.push(bytes);
        self.late_bytes > MOST_LATE
    }

    /// Writes for what has waited, and for this record.
    pub(super) fn write(&mut self, record: Option<&Record>) -> Vec<JournalWrite> {
        let records = std::mem::take(&mut self.late).into_iter().chain(record.map(Record::encode));
        let records: Vec<Bytes> = records.collect();
        self.late_bytes = 0;
        self.bytes += records.iter().map(Bytes::len).sum::<usize>();
        records.into_iter().map(JournalWrite::Append).collect()
    }

    /// The write that puts these records in the place of all.
    pub(super) fn replace(&mut self, records: &[Record]) -> JournalWrite {
        self.late.clear();
        (self.late_bytes, self.bytes, self.long) = (0, 0, false);
        let records: Vec<Bytes> = records.iter().map(Record::encode).collect();
        self.base = records.iter().map(Bytes::len).sum();
        let pieces = records.into_iter().flat_map(|record| split(record, PIECE, LAST_PIECE));
        JournalWrite::Replace(pieces.collect())
    }
}

/// Number after the last message of a member that was delivered.
pub(crate) fn numbered(seen: &[DeliveredRange], member: Member) -> u64 {
    let seen = seen.iter().filter(|seen| seen.origin == member);
    let next =
        |seen: &DeliveredRange| seen.beyond.iter().map(|seq| seq + 1).fold(seen.next, u64::max);
    seen.map(next).max().unwrap_or(0)
}
