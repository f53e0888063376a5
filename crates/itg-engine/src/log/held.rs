//! Blocks that are kept until a log server has them.

use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use itg_record::{BLOCK_HEADER_LEN, BlockBuf, RECORD_LEN};

use super::queue::give;

/// Offset of the log's number in the header of a block, in bytes.
const LOG_ID_AT: usize = 60;

/// A producer's buffer, which it gets back when the last datagram is done with it.
pub(super) struct Lent {
    pub(super) block: Option<BlockBuf>,
    pub(super) give_back: SyncSender<BlockBuf>,
}

impl Lent {
    pub(super) fn records(&self) -> &[u8] {
        self.block.as_ref().map_or(&[], BlockBuf::records)
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(block) = self.block.take() {
            give(block, &self.give_back);
        }
    }
}

/// A block that the server may not have yet.
pub(super) enum UnconfirmedBlock {
    Records(BlockBuf, SyncSender<BlockBuf>),
    /// Some records of a producer's buffer, where they lie, and the header that goes before them.
    Datagram {
        head: [u8; BLOCK_HEADER_LEN],
        lent: Arc<Lent>,
        at: Range<usize>,
    },
    Note(Vec<u8>),
}

impl UnconfirmedBlock {
    /// The whole block in two pieces, labelled with the log's number.
    pub(super) fn pieces(&mut self, log_id: u32, block_no: u32) -> [&[u8]; 2] {
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

    pub(super) fn records(&self) -> u64 {
        match self {
            Self::Records(block, _) => block.len() as u64,
            Self::Datagram { at, .. } => (at.len() / RECORD_LEN) as u64,
            Self::Note(_) => 0,
        }
    }

    pub(super) fn release(self) {
        if let Self::Records(block, give_back) = self {
            give(block, &give_back);
        }
    }
}

/// Writes a log's number into the header of a block, which the checksum does not cover.
pub(super) fn label(block: &mut [u8], log_id: u32) {
    block[LOG_ID_AT..LOG_ID_AT + 4].copy_from_slice(&log_id.to_le_bytes());
}
