//! Finding blocks: one good block behind the other, and the bytes between them.
//!
//! Where no good block starts the next one is searched: the magic at any byte, with a header that
//! makes sense and a checksum that is right. Every byte is either in a block or in a gap.
//!
//! Costs: each byte is read once where the log is good. In a damaged log, false headers make the
//! search look at bytes again; after [`FALSE_BYTES_PER_BYTE`] times the length of the file it stops
//! and declares the rest a gap, so that the time is linear for any bytes whatever.

use itg_arena::{
    ClusterError, FLAG_CRC, FLAG_FLAT, HEADER_LEN, Header, KIND_RELOC, MAGIC, VERSION,
};

use crate::block::{Block, BlockError, split_tag};
use crate::columns::{COLUMNS_SCHEMA, RUN_COLUMNS_SCHEMA};
use crate::record::RECORD_LEN;

/// How many bytes of false blocks the search may check for each byte of the file.
const FALSE_BYTES_PER_BYTE: u64 = 8;
/// And how many in any case.
const FALSE_BYTES_FREE: u64 = 64 << 20;

/// A piece of a log file.
#[derive(Debug)]
pub(crate) enum Piece<'a> {
    /// A good block, and where it starts.
    Block(usize, Block<'a>),
    /// Bytes that are in no good block, up to the next one or the end of the file.
    Gap(Gap),
}

/// Bytes that are in no good block.
#[derive(Debug)]
pub(crate) struct Gap {
    /// Where it starts.
    pub(crate) start: usize,
    /// Where it ends.
    pub(crate) end: usize,
    /// What it looks like.
    pub(crate) looks: Looks,
    /// Why no good block starts at its start, for people.
    pub(crate) reason: String,
}

/// What bytes without a good block look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Looks {
    /// The first bytes of a block, up to the end of the file: its writer has not finished it.
    Unfinished,
    /// Zeros up to the end of the file: space that nobody has written to.
    Unwritten,
    /// Anything else.
    Damaged,
}

/// An iterator over the pieces of a log file.
#[derive(Debug)]
pub(crate) struct Scan<'a> {
    bytes: &'a [u8],
    pos: usize,
    /// The good block at `pos`, when a search has found it.
    found: Option<Block<'a>>,
    /// Bytes of false blocks that the search may still check.
    patience: u64,
}

impl<'a> Scan<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        let patience = FALSE_BYTES_PER_BYTE * bytes.len() as u64 + FALSE_BYTES_FREE;
        Self { bytes, pos: 0, found: None, patience }
    }

    /// The whole file.
    pub(crate) const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Leaves out everything up to the next good block.
    fn skip(&mut self, error: &BlockError) -> Gap {
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
        let mut looks = Looks::Damaged;
        if left_out.iter().all(|byte| *byte == 0) {
            "zero bytes: space that was never written".clone_into(&mut reason);
            looks = Looks::Unwritten;
        } else if self.found.is_none() && is_unfinished(left_out, error) {
            reason = format!("unfinished block: {reason}");
            looks = Looks::Unfinished;
        }
        if self.found.is_some() {
            looks = Looks::Damaged;
        }
        Gap { start, end: self.pos, looks, reason }
    }

    /// Takes the cost of a false block at `at` off the patience, when its body was read.
    fn spend(&mut self, at: usize, error: &BlockError) {
        let body_was_read = match error {
            BlockError::Cluster(ClusterError::Crc { .. }) | BlockError::Kind { .. } => true,
            BlockError::Columns(error) => !error.is_about_header(),
            _ => false,
        };
        if body_was_read && let Ok(header) = Header::parse(&self.bytes[at..]) {
            let decoded = match (header.schema, error) {
                (
                    COLUMNS_SCHEMA | RUN_COLUMNS_SCHEMA,
                    BlockError::Columns(_) | BlockError::Kind { .. },
                ) => u64::from(header.objects) * RECORD_LEN as u64,
                _ => 0,
            };
            self.patience = self.patience.saturating_sub(header.total_len + decoded);
        }
    }
}

impl<'a> Iterator for Scan<'a> {
    type Item = Piece<'a>;

    fn next(&mut self) -> Option<Piece<'a>> {
        if self.pos == self.bytes.len() {
            return None;
        }
        let block = match self.found.take() {
            Some(block) => Ok(block),
            None => Block::check(&self.bytes[self.pos..]),
        };
        Some(match block {
            Ok(block) => {
                let start = self.pos;
                self.pos += block.len;
                Piece::Block(start, block)
            }
            Err(error) => Piece::Gap(self.skip(&error)),
        })
    }
}

/// Whether bytes that reach to the end of the file are the first ones of a block, as far as can be
/// told: a header, or as much of one as there is, that asks for more than there is.
fn is_unfinished(bytes: &[u8], error: &BlockError) -> bool {
    match error {
        BlockError::Cluster(ClusterError::CutOff { .. }) => true,
        BlockError::Cluster(ClusterError::Short { .. }) => {
            let [low, high] = VERSION.to_le_bytes();
            let start = [low, high, KIND_RELOC, FLAG_CRC | FLAG_FLAT];
            let start = MAGIC.into_iter().chain(start);
            bytes.len() < HEADER_LEN && bytes.iter().zip(start).all(|(got, want)| *got == want)
        }
        _ => false,
    }
}

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
