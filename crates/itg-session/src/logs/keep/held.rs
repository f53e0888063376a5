//! Blocks that are kept until a log server has them.

use std::ops::Range;
use std::sync::Arc;

use itg_record::{BLOCK_HEADER_LEN, BlockBuf, RECORD_LEN};

/// Offset of the log's number in the header of a block, in bytes.
const LOG_ID_AT: usize = 60;

/// The way of a buffer back to the producer that fills it.
pub trait GiveBack {
    /// Gives a buffer back.
    fn give(&self, block: BlockBuf);
}

/// A producer's buffer, which it gets back when the last datagram is done with it.
#[derive(Debug)]
pub struct Lent<G: GiveBack> {
    block: Option<BlockBuf>,
    give_back: G,
}

impl<G: GiveBack> Lent<G> {
    /// A buffer in use.
    pub const fn new(block: BlockBuf, give_back: G) -> Self {
        Self { block: Some(block), give_back }
    }

    /// The bytes of its records.
    pub fn records(&self) -> &[u8] {
        self.block.as_ref().map_or(&[], BlockBuf::records)
    }
}

impl<G: GiveBack> Drop for Lent<G> {
    fn drop(&mut self) {
        if let Some(block) = self.block.take() {
            self.give_back.give(block);
        }
    }
}

/// A block that the server may not have yet.
#[derive(Debug)]
pub enum UnconfirmedBlock<G: GiveBack> {
    /// A producer's buffer.
    Records(BlockBuf, G),
    /// Some records of a producer's buffer, where they lie, and the header that goes before them.
    Datagram {
        /// The header.
        head: [u8; BLOCK_HEADER_LEN],
        /// The buffer.
        lent: Arc<Lent<G>>,
        /// Place of the records in it, in bytes.
        at: Range<usize>,
    },
    /// A note.
    Note(Vec<u8>),
}

impl<G: GiveBack> UnconfirmedBlock<G> {
    /// The whole block in two pieces, labelled with the log's number.
    pub fn pieces(&mut self, log_id: u32, block_no: u32) -> [&[u8]; 2] {
        match self {
            Self::Records(block, _) => [block.seal(log_id, block_no), &[]],
            Self::Datagram { head, lent, at } => {
                label(head, log_id);
                [head, &lent.records()[at.clone()]]
            }
            Self::Note(bytes) => {
                label(bytes, log_id);
                [bytes, &[]]
            }
        }
    }

    /// Returns the number of its records.
    pub fn records(&self) -> u64 {
        match self {
            Self::Records(block, _) => block.len() as u64,
            Self::Datagram { at, .. } => (at.len() / RECORD_LEN) as u64,
            Self::Note(_) => 0,
        }
    }

    /// Gives its buffer back.
    pub fn release(self) {
        if let Self::Records(block, give_back) = self {
            give_back.give(block);
        }
    }
}

/// Writes a log's number into the header of a block, which the checksum does not cover.
pub(super) fn label(block: &mut [u8], log_id: u32) {
    block[LOG_ID_AT..LOG_ID_AT + 4].copy_from_slice(&log_id.to_le_bytes());
}
