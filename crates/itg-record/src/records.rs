//! The records of a checked block, and what it takes to get them again.
//!
//! Records of a record block are looked at where they lie; those of a column block are decoded into
//! memory of their own, one block at a time.

use std::borrow::Cow;

use zerocopy::{FromBytes, IntoBytes};

use crate::block::BlockError;
use crate::columns::{ColumnsError, crc_of, decode, stored_crc};
use crate::record::{RawRecord, Record};

/// The records of a checked block, in the order in which they were written.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    raw: Cow<'a, [RawRecord]>,
    /// Records taken so far.
    taken: usize,
    packed: PackedRecords<'a>,
}

/// The records of a checked block as they lie in the file: a few words, whatever their number. The
/// way to keep the records of a whole log at hand without holding them in memory.
#[derive(Clone, Copy, Debug)]
pub struct PackedRecords<'a>(Packed<'a>);

#[derive(Clone, Copy, Debug)]
enum Packed<'a> {
    Plain(&'a [RawRecord]),
    Columns { body: &'a [u8], count: usize },
}

impl<'a> Records<'a> {
    /// Checks the body of a record block, whose length is a multiple of a record's.
    pub(crate) fn plain(body: &'a [u8]) -> Result<Self, BlockError> {
        let raw = <[RawRecord]>::ref_from_bytes(body).expect("the length was compared before");
        check_kinds(raw)?;
        Ok(PackedRecords(Packed::Plain(raw)).records())
    }

    /// The records of a body whose kinds are known to be right.
    pub(crate) fn trusted(body: &'a [u8]) -> Option<Self> {
        let raw = <[RawRecord]>::ref_from_bytes(body).ok()?;
        Some(PackedRecords(Packed::Plain(raw)).records())
    }

    /// Decodes and checks the body of a column block of `objects` records; returns their checksum too.
    pub(crate) fn columns(body: &'a [u8], objects: u32) -> Result<(Self, u32), BlockError> {
        let count = objects as usize;
        let raw = decode(body, count)?;
        let (stored, computed) = (stored_crc(body)?, crc_of(&raw));
        if stored != computed {
            return Err(ColumnsError::Crc { stored, computed }.into());
        }
        check_kinds(&raw)?;
        let packed = PackedRecords(Packed::Columns { body, count });
        Ok((Self { raw: Cow::Owned(raw), taken: 0, packed }, computed))
    }

    /// The bytes of the records that have not been taken yet, as they are in a record block.
    #[must_use]
    pub fn raw(&self) -> &[u8] {
        self.rest().as_bytes()
    }

    /// All records of the block as they lie in the file, taken ones too.
    #[must_use]
    pub const fn packed(&self) -> PackedRecords<'a> {
        self.packed
    }

    /// The records that have not been taken yet.
    pub(crate) fn rest(&self) -> &[RawRecord] {
        &self.raw[self.taken..]
    }
}

impl<'a> PackedRecords<'a> {
    /// The records; those of a column block are decoded anew.
    ///
    /// # Panics
    /// If the bytes of a column block have changed since they were checked: never while they are
    /// memory of this program.
    #[must_use]
    pub fn records(&self) -> Records<'a> {
        let raw = match self.0 {
            Packed::Plain(raw) => Cow::Borrowed(raw),
            Packed::Columns { body, count } => {
                Cow::Owned(decode(body, count).expect("decoded before, when the block was checked"))
            }
        };
        Records { raw, taken: 0, packed: *self }
    }

    /// Where the records lie in the file: the body of their block.
    #[must_use]
    pub fn bytes(&self) -> &'a [u8] {
        match self.0 {
            Packed::Plain(raw) => raw.as_bytes(),
            Packed::Columns { body, .. } => body,
        }
    }

    /// Number of records.
    #[must_use]
    pub const fn len(&self) -> usize {
        match self.0 {
            Packed::Plain(raw) => raw.len(),
            Packed::Columns { count, .. } => count,
        }
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Looks for a record of a kind that does not exist.
fn check_kinds(raw: &[RawRecord]) -> Result<(), BlockError> {
    let bad = raw.iter().enumerate().find_map(|(i, r)| r.bad_kind().map(|got| (i, got)));
    match bad {
        Some((index, got)) => Err(BlockError::Kind { index, got }),
        None => Ok(()),
    }
}

impl Iterator for Records<'_> {
    type Item = Record;

    #[inline]
    fn next(&mut self) -> Option<Record> {
        let record = self.raw.get(self.taken)?.record();
        self.taken += 1;
        Some(record)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let len = self.rest().len();
        (len, Some(len))
    }

    /// All at once, without asking for each record where it lies.
    #[inline]
    fn fold<B, F: FnMut(B, Record) -> B>(self, init: B, f: F) -> B {
        self.rest().iter().map(RawRecord::record).fold(init, f)
    }
}

impl ExactSizeIterator for Records<'_> {}
impl std::iter::FusedIterator for Records<'_> {}
