//! One block by itself, as it comes to a log server: checked whole, and told in a few numbers.

use itg_arena::Header;

use crate::block::{Block, Body};
use crate::columns::is_columns;
use crate::error::BlockError;
use crate::note::Note;

/// Facts of a checked block: its log, number, records and length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockFacts {
    /// Number of its log.
    pub log_id: u32,
    /// Its number in its log.
    pub block_no: u32,
    /// Records in it; 0 for a note.
    pub records: u32,
    /// Its length in bytes, header included.
    pub len: usize,
    /// CRC-32C of the note, or of the records as they lie in a record block.
    pub checksum: u32,
}

impl BlockFacts {
    /// As [`BlockFacts::check`] for what producers of logs may send: blocks of records and of notes, whose
    /// times a clock can show. Column blocks are refused by their header, so that nothing is unpacked for
    /// an unknown producer.
    ///
    /// # Errors
    /// [`BlockError::Packed`]; [`BlockError::Time`]; as [`BlockFacts::check`].
    pub fn check_plain(bytes: &[u8]) -> Result<Self, BlockError> {
        if is_columns(Header::parse(bytes)?.schema) {
            return Err(BlockError::Packed);
        }
        let block = Block::check(bytes)?;
        if let Body::Records(records) = &block.body
            && let Some(index) = records
                .rest()
                .iter()
                .position(|row| !row.record().is_some_and(|r| r.has_good_times()))
        {
            return Err(BlockError::Time { index });
        }
        Ok(Self::of(&block))
    }

    /// Checks the block at the start of `bytes`: header, checksum, contents.
    ///
    /// # Errors
    /// Bytes that are no block of a log, or a damaged one.
    pub fn check(bytes: &[u8]) -> Result<Self, BlockError> {
        Ok(Self::of(&Block::check(bytes)?))
    }

    /// The note in the block at the start of `bytes`; `None` where there is another block, or a note that is not
    /// understood.
    #[must_use]
    pub fn note(bytes: &[u8]) -> Option<Note> {
        match Block::check(bytes).ok()?.body {
            Body::Note(json) => serde_json::from_slice(json).ok(),
            Body::Records(_) => None,
        }
    }

    fn of(block: &Block<'_>) -> Self {
        let records = match &block.body {
            Body::Note(_) => 0,
            Body::Records(records) => u32::try_from(records.packed().len()).unwrap_or(u32::MAX),
        };
        Self {
            log_id: block.log_id,
            block_no: block.block_no,
            records,
            len: block.len,
            checksum: block.crc,
        }
    }
}
