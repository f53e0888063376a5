//! Reading a log: every good block, and an exact account of everything else.
//!
//! The reader goes from block to block. Where none starts it searches the next one: the magic at any
//! byte, with a header that makes sense and a checksum that is right. Every byte of the file is
//! either in a block that is handed out or in a [`Damage`]; block numbers that are missing, repeated
//! or out of order are damages too, without bytes when there are none to point at.
//!
//! A log without an end is no damaged log: it is still being written, or its writer was killed. What
//! is there is handed out, and the missing end has a [`Cause`] of its own. Neither is one whose blocks
//! overtook each other on their way to the file: they are handed out as they stand, with their numbers.
//!
//! Costs: time linear in the length of the file, whatever is in it. Nothing is copied but the notes,
//! and the records of column blocks, which are decoded one block at a time.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::account::{Account, Placing};
use crate::block::{Block, Body};
use crate::note::Note;
use crate::records::Records;
use crate::scan::{Gap, Looks, Piece, Scan};

/// Something in a log that is not as it was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Damage {
    /// Position in the file, in bytes from its start.
    pub offset: u64,
    /// Number of bytes that are left out; 0 when it is about blocks that are absent, out of order or
    /// contradict each other.
    pub len: u64,
    /// Cause, which tells real damage from a log without an end and from blocks out of order.
    pub cause: Cause,
    /// Description of what is wrong, for the user.
    pub reason: String,
}

/// Cause of a [`Damage`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// Bytes or blocks that were written are not there, or not as they were written.
    Damaged,
    /// The log has no end yet: it is still being written, or its writer was killed. What was written
    /// before is all there.
    NotClosed,
    /// Blocks stand behind later ones, as they came by UDP or out of a spool. All are there that are
    /// not told to be missing.
    OutOfOrder,
}

/// Contents of a good block.
#[allow(clippy::large_enum_variant, reason = "one at a time")]
enum Content<'a> {
    Note(Note),
    Records(Records<'a>),
}

/// Item that a log reader finds.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "one for each block, handed over once")]
pub enum Item<'a> {
    /// A note.
    Note {
        /// Start of its block, in bytes from the start of the file.
        offset: u64,
        /// Number of the log in this file, from 0 in the order of appearance: several logs may have
        /// been put together in one file. A flow index has a meaning within its log only.
        log: u32,
        /// The note.
        note: Note,
    },
    /// Records.
    Records {
        /// Start of their block, in bytes from the start of the file.
        offset: u64,
        /// Number of the log in this file, from 0.
        log: u32,
        /// Number of the block in its log.
        block_no: u32,
        /// The records.
        records: Records<'a>,
    },
    /// Something that is not as it was written.
    Damage(Damage),
}

/// An iterator over the contents of a log file.
///
/// Items come in the order of the file. What is wrong with a log as a whole (missing blocks, no end,
/// totals that do not agree) is told when its end is known: at the end of the file or where another
/// log of the same id starts.
#[derive(Debug)]
pub struct LogReader<'a> {
    scan: Scan<'a>,
    /// Logs by their id.
    open: BTreeMap<u32, Account>,
    /// Logs so far.
    logs: u32,
    pending: VecDeque<Item<'a>>,
    finished: bool,
}

impl<'a> LogReader<'a> {
    /// A reader of a whole file.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self::sparse(bytes, Vec::new())
    }

    /// A reader of a file with holes, in order: parts that hold nothing but zeros because they were never
    /// written. They are told like other zeros, but not read, however long they are.
    #[must_use]
    pub fn sparse(bytes: &'a [u8], holes: Vec<Range<usize>>) -> Self {
        Self {
            scan: Scan::new(bytes, holes),
            open: BTreeMap::new(),
            logs: 0,
            pending: VecDeque::new(),
            finished: false,
        }
    }

    fn damage(&mut self, offset: u64, len: u64, reason: String) {
        let cause = Cause::Damaged;
        self.pending.push_back(Item::Damage(Damage { offset, len, cause, reason }));
    }

    /// Hands out bytes that are in no good block.
    fn leave_out(&mut self, gap: Gap) {
        let Gap { start, end, looks, reason } = gap;
        let going_on = match looks {
            Looks::Unfinished => true,
            // Space in front of the writer, when there is one.
            Looks::Unwritten => self.open.values().any(|log| !log.is_closed()),
            Looks::Damaged => false,
        };
        let cause = if going_on { Cause::NotClosed } else { Cause::Damaged };
        let (offset, len) = (start as u64, (end - start) as u64);
        self.pending.push_back(Item::Damage(Damage { offset, len, cause, reason }));
    }

    /// Hands out a good block.
    fn take(&mut self, block: Block<'a>, offset: u64) {
        let (log_id, block_no, len) = (block.log_id, block.block_no, block.len as u64);
        let content = match &block.body {
            Body::Records(records) => Ok(Content::Records(records.clone())),
            Body::Note(json) => serde_json::from_slice(json).map(Content::Note),
        };
        let note = match &content {
            Ok(Content::Note(note)) => Some(note),
            _ => None,
        };
        if !self.open.contains_key(&log_id) {
            self.open_log(log_id);
        }
        match self.open[&log_id].judge(&block, note, self.scan.bytes()) {
            Placing::Keep(None) => {}
            Placing::Keep(Some(remark)) => self.damage(offset, 0, remark),
            Placing::NewLog => self.open_log(log_id),
            Placing::Repeated(reason) => {
                let account = self.open.get_mut(&log_id).expect("opened above");
                account.enter_number(&block, offset);
                return self.damage(offset, len, reason);
            }
        }
        let account = self.open.get_mut(&log_id).expect("opened above");
        account.enter(&block, note, offset);
        let log = account.log;
        self.pending.push_back(match content {
            Ok(Content::Records(records)) => Item::Records { offset, log, block_no, records },
            Ok(Content::Note(note)) => Item::Note { offset, log, note },
            Err(error) => Item::Damage(Damage {
                offset,
                len,
                cause: Cause::Damaged,
                reason: format!("note block {block_no} of log {log_id} is not understood: {error}"),
            }),
        });
    }

    /// Starts the account of a log, after finishing that of an earlier one with the same id.
    fn open_log(&mut self, log_id: u32) {
        let account = Account::new(self.logs, log_id);
        self.logs += 1;
        if let Some(before) = self.open.insert(log_id, account) {
            self.pending.extend(before.finish().into_iter().map(Item::Damage));
        }
    }

    /// Says what is wrong with the logs as wholes.
    fn finish(&mut self) {
        if self.scan.bytes().is_empty() {
            self.damage(0, 0, "the log is empty".to_owned());
        }
        let mut logs: Vec<_> = std::mem::take(&mut self.open).into_values().collect();
        logs.sort_by_key(|account| account.log);
        self.pending.extend(logs.iter().flat_map(Account::finish).map(Item::Damage));
        self.finished = true;
    }
}

impl<'a> Iterator for LogReader<'a> {
    type Item = Item<'a>;

    fn next(&mut self) -> Option<Item<'a>> {
        loop {
            if let Some(item) = self.pending.pop_front() {
                return Some(item);
            }
            if self.finished {
                return None;
            }
            match self.scan.next() {
                Some(Piece::Block(start, block)) => self.take(block, start as u64),
                Some(Piece::Gap(gap)) => self.leave_out(gap),
                None => self.finish(),
            }
        }
    }
}

impl std::iter::FusedIterator for LogReader<'_> {}
