//! Reading a log: every good block, and an exact account of everything else.
//!
//! The reader goes from block to block. Where none starts it searches the next one: the magic at any
//! byte, with a header that makes sense and a checksum that is right. Every byte of the file is
//! either in a block that is handed out or in a [`Damage`]; block numbers that are missing, repeated
//! or out of order are damages too, without bytes when there are none to point at.
//!
//! Costs: each byte is read once where the log is good. In a damaged log, false headers make the
//! reader look at bytes again; after [`FALSE_BYTES_PER_BYTE`] times the length of the file it stops
//! searching and declares the rest damaged, so that the time is linear for any bytes whatever. Nothing
//! is copied but the notes.

use std::collections::{BTreeMap, VecDeque};

use itg_arena::{ClusterError, Header, MAGIC};
use serde::{Deserialize, Serialize};

use crate::account::{Account, Verdict};
use crate::block::{Block, BlockError, Body, Records, split_tag};
use crate::note::Note;

/// How many bytes of false blocks the search may check for each byte of the file.
const FALSE_BYTES_PER_BYTE: u64 = 8;
/// And how many in any case.
const FALSE_BYTES_FREE: u64 = 64 << 20;

/// Something in a log that is not as it was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Damage {
    /// Where in the file, in bytes.
    pub offset: u64,
    /// How many bytes are left out; 0 when the damage is about blocks that are absent, out of order
    /// or contradict each other.
    pub len: u64,
    /// What is wrong, for people.
    pub reason: String,
}

/// What a good block holds.
#[allow(clippy::large_enum_variant, reason = "one at a time")]
enum Content<'a> {
    Note(Note),
    Records(Records<'a>),
}

/// What a log reader finds.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "one for each block, handed over once")]
pub enum Item<'a> {
    /// A note.
    Note {
        /// Where its block starts, in bytes.
        offset: u64,
        /// Number of the log in this file, from 0 in the order of appearance: several logs may have
        /// been put together in one file. A flow index has a meaning within its log only.
        log: u32,
        /// The note.
        note: Note,
    },
    /// Records.
    Records {
        /// Where their block starts, in bytes.
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
    bytes: &'a [u8],
    pos: usize,
    /// The good block at `pos`, when a search has found it.
    found: Option<Block<'a>>,
    /// Logs by their id.
    open: BTreeMap<u32, Account>,
    /// Logs so far.
    logs: u32,
    pending: VecDeque<Item<'a>>,
    /// Bytes of false blocks that the search may still check.
    patience: u64,
    finished: bool,
}

impl<'a> LogReader<'a> {
    /// A reader of a whole file.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        let patience = FALSE_BYTES_PER_BYTE * bytes.len() as u64 + FALSE_BYTES_FREE;
        Self {
            bytes,
            pos: 0,
            found: None,
            open: BTreeMap::new(),
            logs: 0,
            pending: VecDeque::new(),
            patience,
            finished: false,
        }
    }

    fn damage(&mut self, offset: u64, len: u64, reason: String) {
        self.pending.push_back(Item::Damage(Damage { offset, len, reason }));
    }

    /// Reads what is at `pos`, which is before the end of the file.
    fn step(&mut self) {
        let block = match self.found.take() {
            Some(block) => Ok(block),
            None => Block::check(&self.bytes[self.pos..]),
        };
        match block {
            Ok(block) => {
                let offset = self.pos as u64;
                self.pos += block.len;
                self.take(block, offset);
            }
            Err(error) => self.skip(&error),
        }
    }

    /// Leaves out everything up to the next good block.
    fn skip(&mut self, error: &BlockError) {
        let start = self.pos;
        self.spend(start, error);
        let mut reason = describe(&self.bytes[start..], error);
        let mut from = start + 1;
        self.pos = loop {
            let next = self
                .bytes
                .get(from..)
                .and_then(|rest| rest.windows(MAGIC.len()).position(|window| window == MAGIC));
            let Some(at) = next.map(|distance| from + distance) else {
                break self.bytes.len();
            };
            if self.patience == 0 {
                reason += "; the search for blocks behind it was given up: too many false ones";
                break self.bytes.len();
            }
            match Block::check(&self.bytes[at..]) {
                Ok(block) => {
                    self.found = Some(block);
                    break at;
                }
                Err(error) => self.spend(at, &error),
            }
            from = at + 1;
        };
        let left_out = &self.bytes[start..self.pos];
        if left_out.iter().all(|byte| *byte == 0) {
            "zero bytes: space that was never written".clone_into(&mut reason);
        }
        self.damage(start as u64, left_out.len() as u64, reason);
    }

    /// Takes the cost of a false block at `at` off the patience, when its body was read.
    fn spend(&mut self, at: usize, error: &BlockError) {
        let body_was_read = matches!(
            error,
            BlockError::Cluster(ClusterError::Crc { .. }) | BlockError::Kind { .. }
        );
        if body_was_read && let Ok(header) = Header::parse(&self.bytes[at..]) {
            self.patience = self.patience.saturating_sub(header.total_len);
        }
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
        match self.open[&log_id].judge(&block, note, self.bytes) {
            Verdict::Keep(None) => {}
            Verdict::Keep(Some(remark)) => self.damage(offset, 0, remark),
            Verdict::NewLog => self.open_log(log_id),
            Verdict::Repeated(reason) => {
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
        if self.bytes.is_empty() {
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
            if self.pos < self.bytes.len() { self.step() } else { self.finish() }
        }
    }
}

impl std::iter::FusedIterator for LogReader<'_> {}

/// Why no good block starts here; with the name that the header gives it, when there is a header.
fn describe(bytes: &[u8], error: &BlockError) -> String {
    match Header::parse(bytes) {
        Ok(header) => {
            let (log_id, block_no) = split_tag(header.tag);
            format!("block {block_no} of log {log_id} (so says its header): {error}")
        }
        Err(_) => error.to_string(),
    }
}
