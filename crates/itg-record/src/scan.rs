//! Finding blocks: one good block behind the other, and the bytes between them.
//!
//! If no good block starts at a byte, the next one is searched: the magic at any byte, with a header
//! that makes sense and a checksum that is right. Every byte is either in a block or in a gap.
//!
//! Costs: each byte is read once where the log is good. In a damaged log, false headers make the
//! search look at bytes again; after [`FALSE_BYTES_PER_BYTE`] times the length of the file it stops
//! and declares the rest a gap, so that the time is linear for any bytes whatever.

use std::ops::Range;

use itg_arena::{
    ClusterError, FLAG_CRC, FLAG_FLAT, HEADER_LEN, Header, KIND_RELOC, MAGIC, VERSION,
};

use crate::block::{Block, split_tag};
use crate::error::BlockError;
use crate::limits::{COLUMNS_SCHEMA, RUN_COLUMNS_SCHEMA};
use crate::record::RECORD_LEN;

/// Number of bytes of false blocks that the search may check for each byte of the file.
const FALSE_BYTES_PER_BYTE: u64 = 8;
/// Number of bytes of false blocks that it may check in any case.
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
    /// Offset of its first byte in the file.
    pub(crate) start: usize,
    /// Offset of the byte after its last one.
    pub(crate) end: usize,
    /// Appearance of its bytes.
    pub(crate) looks: Looks,
    /// Reason why no good block starts at its start, for the user.
    pub(crate) reason: String,
}

/// Appearance of bytes without a good block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Looks {
    /// The first bytes of a block, up to the end of the file: its writer has not finished it.
    Unfinished,
    /// Zeros up to the end of the file: space that has not been written to.
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
    /// Parts of the file, in order, that are known to be zeros.
    holes: Vec<Range<usize>>,
}

impl<'a> Scan<'a> {
    pub(crate) fn new(bytes: &'a [u8], holes: Vec<Range<usize>>) -> Self {
        let patience = FALSE_BYTES_PER_BYTE * bytes.len() as u64 + FALSE_BYTES_FREE;
        Self { bytes, pos: 0, found: None, patience, holes }
    }

    /// The parts of a range of the file that are in no hole.
    fn written(&self, range: Range<usize>) -> impl Iterator<Item = Range<usize>> + '_ {
        let first = self.holes.partition_point(|hole| hole.end <= range.start);
        let holes = &self.holes[first..];
        let starts = std::iter::once(range.start).chain(holes.iter().map(|hole| hole.end));
        let ends = holes.iter().map(|hole| hole.start).chain([range.end]);
        starts
            .zip(ends)
            .map(move |(start, end)| start.max(range.start)..end.min(range.end))
            .take_while(move |part| part.start < range.end)
            .filter(|part| part.start < part.end)
    }

    /// The next place at which a block may start. No byte of the magic is zero: it lies in no hole.
    fn magic_from(&self, from: usize) -> Option<usize> {
        self.written(from..self.bytes.len()).find_map(|part| {
            let start = part.start;
            let mut words = self.bytes[part].windows(MAGIC.len());
            words.position(|window| window == MAGIC).map(|distance| start + distance)
        })
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
            let Some(at) = self.magic_from(from) else { break self.bytes.len() };
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
        let mut written = self.written(start..self.pos);
        if written.all(|part| self.bytes[part].iter().all(|byte| *byte == 0)) {
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

/// Returns true if bytes that reach to the end of the file are the first ones of a block, as far as
/// can be told: a header, or as much of one as there is, that asks for more than there is.
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

/// Describes why no good block starts here; with the name that the header gives it, when there is one.
fn describe(bytes: &[u8], error: &BlockError) -> String {
    match Header::parse(bytes) {
        Ok(header) => {
            let (log_id, block_no) = split_tag(header.tag);
            format!("block {block_no} of log {log_id} (so says its header): {error}")
        }
        Err(_) => error.to_string(),
    }
}
