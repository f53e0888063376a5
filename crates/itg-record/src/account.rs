//! Account of a log: the blocks that have been seen, and what must be said about the others.
//!
//! One account per log. It remembers number, checksum and place of every block (some 64 bytes
//! each, and a block takes at least 64), so that a late block is told from a repeated one, a
//! missing one is named exactly, and no record is handed out twice, whatever its block calls itself.

use std::collections::BTreeMap;

use zerocopy::IntoBytes;

use crate::block::{Block, Body};
use crate::note::{LogEnd, LogInfo, Note};
use crate::read::{Cause, Damage};

/// Checksum and place of a block.
#[derive(Debug)]
struct BlockMark {
    crc: u32,
    offset: u64,
}

/// Facts known of one log.
#[derive(Debug)]
pub(crate) struct Account {
    /// Number of the log in its file, from 0.
    pub(crate) log: u32,
    log_id: u32,
    seen: BTreeMap<u32, BlockMark>,
    /// Offset of each block with records, and the number of these, by their checksum.
    contents: BTreeMap<u32, (u64, usize)>,
    /// Number of the block read last.
    last: u32,
    /// End of the block read last, in bytes from the start of the file.
    tail: u64,
    /// Blocks that stand behind a later one.
    displaced: u64,
    /// The first of them: its number, the number before it, and its place.
    first_displaced: Option<(u32, u32, u64)>,
    records: u64,
    /// The number behind those of blocks in earlier files, and the records in these.
    earlier: (u64, u64),
    end: Option<LogEnd>,
}

/// Place of a block.
pub(crate) enum Placing {
    /// It belongs to the log; with a remark when something about its number is odd.
    Keep(Option<String>),
    /// It has been read before, and is left out for this reason.
    Repeated(String),
    /// It belongs to another log that has the same id and starts here.
    NewLog,
}

impl Account {
    pub(crate) const fn new(log: u32, log_id: u32) -> Self {
        Self {
            log,
            log_id,
            seen: BTreeMap::new(),
            contents: BTreeMap::new(),
            last: 0,
            tail: 0,
            displaced: 0,
            first_displaced: None,
            records: 0,
            earlier: (0, 0),
            end: None,
        }
    }

    /// Compares number and content of a block with those before it in the file.
    pub(crate) fn judge(&self, block: &Block<'_>, note: Option<&Note>, file: &[u8]) -> Placing {
        let (no, log_id) = (block.block_no, self.log_id);
        let first = no == 0 && matches!(note, Some(Note::Log(_)));
        let again = self.twin(block, file).map(|offset| {
            Placing::Repeated(format!(
                "block {no} of log {log_id} has the records of the block at byte {offset}: left out"
            ))
        });
        match self.seen.get(&no) {
            Some(seen) if seen.crc == block.crc => {
                Placing::Repeated(format!("block {no} of log {log_id} once more: left out"))
            }
            Some(_) if first || self.end.is_some() => Placing::NewLog,
            _ if let Some(again) = again => again,
            Some(seen) => Placing::Keep(Some(format!(
                "a second block {no} of log {log_id}, other than the one at byte {}: one of the \
                 numbers is wrong, both blocks are used",
                seen.offset
            ))),
            None if first && self.end.is_some() => Placing::NewLog,
            None => Placing::Keep(None),
        }
    }

    /// Returns the offset of a block in which the same records have been read before.
    fn twin(&self, block: &Block<'_>, file: &[u8]) -> Option<u64> {
        let Body::Records(records) = &block.body else {
            return None;
        };
        let &(offset, count) = self.contents.get(&block.crc)?;
        if count != records.packed().len() {
            return None;
        }
        let before = Block::check(&file[usize::try_from(offset).ok()?..]).ok()?;
        let Body::Records(before) = &before.body else { return None };
        (before.rest().as_bytes() == records.rest().as_bytes()).then_some(offset)
    }

    /// Enters the number of a block.
    pub(crate) fn enter_number(&mut self, block: &Block<'_>, offset: u64) {
        self.seen.entry(block.block_no).or_insert(BlockMark { crc: block.crc, offset });
        self.last = block.block_no;
        self.tail = offset + block.len as u64;
    }

    /// Enters a block that is handed out.
    pub(crate) fn enter(&mut self, block: &Block<'_>, note: Option<&Note>, offset: u64) {
        let no = block.block_no;
        if no < self.last && !self.seen.contains_key(&no) {
            self.displaced += 1;
            self.first_displaced.get_or_insert((no, self.last, offset));
        }
        self.enter_number(block, offset);
        if let Body::Records(records) = &block.body
            && !records.packed().is_empty()
        {
            let rows = records.packed().len();
            self.records += rows as u64;
            self.contents.entry(block.crc).or_insert((offset, rows));
        }
        match note {
            Some(Note::End(end)) => self.end = Some(*end),
            Some(Note::Log(LogInfo { part: Some(part), .. })) => {
                let last = part.blocks.iter().map(|(_, last)| u64::from(*last) + 1).max();
                self.earlier = (last.unwrap_or(0), part.records);
            }
            _ => {}
        }
    }

    /// Returns true if its end has been read.
    pub(crate) const fn is_closed(&self) -> bool {
        self.end.is_some()
    }

    /// Everything that is wrong with the log as a whole.
    pub(crate) fn finish(&self) -> Vec<Damage> {
        let id = self.log_id;
        let mut found = Vec::new();
        if let Some((no, before, offset)) = self.first_displaced {
            let others = match self.displaced - 1 {
                0 => String::new(),
                1 => ", and another one like it".to_owned(),
                n => format!(", and {n} others like it"),
            };
            let reason = format!(
                "block {no} of log {id} stands after block {before}{others}: out of order, as blocks \
                 may come by UDP; their numbers tell their order"
            );
            found.push(Damage { offset, len: 0, cause: Cause::OutOfOrder, reason });
        }
        let mut say = |offset, reason| {
            found.push(Damage { offset, len: 0, cause: Cause::Damaged, reason });
        };
        // What earlier files lack is told of them.
        let mut next = self.earlier.0;
        let blocks = self.end.map_or(u64::MAX, |end| end.blocks);
        for (&no, seen) in &self.seen {
            let no = u64::from(no);
            if no >= blocks {
                say(seen.offset, format!("block {no} of log {id} lies beyond its {blocks} blocks"));
                continue;
            }
            if let Some(what) = missing(next, no) {
                say(seen.offset, format!("{what} of log {id} missing"));
            }
            next = next.max(no + 1);
        }
        match self.end {
            None => {
                let reason = format!(
                    "log {id} is not closed: it has no end note after block {}; it is still being \
                     written, or its writer was killed",
                    self.last
                );
                found.push(Damage { offset: self.tail, len: 0, cause: Cause::NotClosed, reason });
            }
            Some(end) => {
                if let Some(what) = missing(next, blocks) {
                    say(self.tail, format!("{what} of log {id} missing"));
                }
                // The end of a part tells of its own records.
                let earlier = if end.continued { 0 } else { self.earlier.1 };
                let records = self.records.saturating_add(earlier);
                if end.records != records {
                    let reason = format!(
                        "log {id} holds {records} records, its end note counts {}",
                        end.records
                    );
                    say(self.tail, reason);
                }
            }
        }
        found
    }
}

/// The words for the blocks from `from` to before `to`, unless there are none.
fn missing(from: u64, to: u64) -> Option<String> {
    match to.saturating_sub(from) {
        0 => None,
        1 => Some(format!("block {from}")),
        count => Some(format!("blocks {from} to {} ({count} blocks)", to - 1)),
    }
}
