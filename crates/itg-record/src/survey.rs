//! Checking the record blocks of a log before it is read, in any order and on any thread.
//!
//! A [`Survey`] hops from header to header and names the record blocks it passes; their bodies need
//! not be looked at for that. Each [`Candidate`] can then be checked by itself, and
//! [`crate::LogReader::with_checked`] takes those that are good at their word. Where no header starts
//! the survey ends: a damaged log is left to the reader, which checks what has not been checked.

use itg_arena::{HEADER_LEN, Header};

use crate::block::{Block, Body, MAX_BLOCK_LEN, is_plain};

/// The record blocks of a log, by their headers.
#[derive(Clone, Debug)]
pub struct Survey<'a> {
    bytes: &'a [u8],
    pos: usize,
}

/// What a header says is a record block.
#[derive(Clone, Copy, Debug)]
pub struct Candidate {
    start: usize,
    len: usize,
}

/// A record block that has been checked: where it starts.
#[derive(Clone, Copy, Debug)]
pub struct Checked(pub(crate) usize);

impl<'a> Survey<'a> {
    /// A survey of a whole file.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, pos: 0 }
    }
}

impl Iterator for Survey<'_> {
    type Item = Candidate;

    fn next(&mut self) -> Option<Candidate> {
        loop {
            let start = self.pos;
            let rest = self.bytes.get(start..)?;
            let header = Header::parse(rest).ok()?;
            let len = usize::try_from(header.total_len).ok()?;
            if len < HEADER_LEN || len > rest.len().min(MAX_BLOCK_LEN) {
                return None;
            }
            self.pos += len;
            if is_plain(header.schema) {
                return Some(Candidate { start, len });
            }
        }
    }
}

impl std::iter::FusedIterator for Survey<'_> {}

impl Candidate {
    /// Where it starts, and its length, in bytes.
    #[must_use]
    pub const fn place(&self) -> (usize, usize) {
        (self.start, self.len)
    }

    /// Checks it as a reader would; `bytes` are those of the whole file.
    #[must_use]
    pub fn check(&self, bytes: &[u8]) -> Option<Checked> {
        let block = Block::check(bytes.get(self.start..self.start + self.len)?).ok()?;
        matches!(block.body, Body::Records(_)).then_some(Checked(self.start))
    }
}
