//! Numbering the blocks of a log as they are written.
//!
//! The builder holds three numbers and no buffer: what it returns goes to a file or a socket in the
//! order in which it was returned.

use itg_arena::{HEADER_LEN, seal_flat};

use crate::block::{BlockBuf, tag};
use crate::limits::{MAX_BLOCK_LEN, NOTE_SCHEMA};
use crate::note::{LogEnd, Note};

/// A note as a block, ready to be written.
///
/// # Panics
/// If the note is larger than a block may be (16 MiB): texts in notes are short.
#[must_use]
pub fn note_block(note: &Note, log_id: u32, block_no: u32) -> Vec<u8> {
    fitting_note_block(note, log_id, block_no).expect("a note is not so long")
}

/// As [`note_block`]; nothing if the note is longer than a block may be.
#[must_use]
pub fn fitting_note_block(note: &Note, log_id: u32, block_no: u32) -> Option<Vec<u8>> {
    let mut block = vec![0; HEADER_LEN];
    serde_json::to_writer(&mut block, note).ok()?;
    block.resize(block.len().next_multiple_of(8), b' ');
    if block.len() > MAX_BLOCK_LEN {
        return None;
    }
    seal_flat(&mut block, NOTE_SCHEMA, 1, tag(log_id, block_no));
    Some(block)
}

/// Numbers the blocks of one log and counts what is in them.
#[derive(Debug)]
pub struct LogBuilder {
    log_id: u32,
    blocks: u32,
    records: u64,
}

impl LogBuilder {
    /// A log without blocks. The first one should be [`Note::Log`].
    #[must_use]
    pub const fn new(log_id: u32) -> Self {
        Self { log_id, blocks: 0, records: 0 }
    }

    /// The next block: a note.
    ///
    /// # Panics
    /// As [`note_block`]; after 2³² blocks.
    pub fn note(&mut self, note: &Note) -> Vec<u8> {
        let block_no = self.take_number();
        note_block(note, self.log_id, block_no)
    }

    /// The next block: these records. The caller clears the buffer when the block is written.
    ///
    /// # Panics
    /// After 2³² blocks.
    pub fn seal<'b>(&mut self, buf: &'b mut BlockBuf) -> &'b [u8] {
        let block_no = self.take_number();
        self.records += buf.len() as u64;
        buf.seal(self.log_id, block_no)
    }

    /// The next block is left out: its number is used up, so that the gap shows.
    ///
    /// # Panics
    /// After 2³² blocks.
    pub fn skip(&mut self) {
        self.take_number();
    }

    /// A block of so many records was not written after all: its number is used up.
    pub const fn unwritten(&mut self, records: u64) {
        self.records = self.records.saturating_sub(records);
    }

    /// The last block: the totals. `lost_records` is how many records could not be written.
    ///
    /// # Panics
    /// After 2³² blocks.
    pub fn end(&mut self, lost_records: u64) -> Vec<u8> {
        self.end_part(lost_records, false)
    }

    /// The last block of a file, which may be continued in another one.
    ///
    /// # Panics
    /// After 2³² blocks.
    pub fn end_part(&mut self, lost_records: u64, continued: bool) -> Vec<u8> {
        let (blocks, records) = (self.blocks() + 1, self.records);
        self.note(&Note::End(LogEnd { blocks, records, lost_records, continued }))
    }

    /// Takes back the number of a note that was not written: the next block gets it.
    pub const fn take_back(&mut self) {
        self.blocks = self.blocks.saturating_sub(1);
    }

    /// Blocks so far.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        u64::from(self.blocks)
    }

    /// Records so far.
    #[must_use]
    pub const fn records(&self) -> u64 {
        self.records
    }

    fn take_number(&mut self) -> u32 {
        let block_no = self.blocks;
        self.blocks = block_no.checked_add(1).expect("fewer than 2^32 blocks in a log");
        block_no
    }
}
