//! The records of a checked block, and what it takes to get them again.
//!
//! Records of a record block are looked at where they lie; those of a column block are decoded into
//! memory of their own, one block at a time.

use std::borrow::Cow;

use zerocopy::{FromBytes, IntoBytes};

use crate::block::BlockError;
use crate::columns::{ColumnsError, crc_of, decode, stored_crc};
use crate::record::{RawRecord, Record};

/// The records of a checked block, packet by packet in the order in which they were written. A record
/// that stands for several packets comes once for each.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    raw: Cow<'a, [RawRecord]>,
    /// Records of which all packets have been taken.
    taken: usize,
    /// Packets taken of the next one.
    of_run: usize,
    packed: PackedRecords<'a>,
}

/// The records of a checked block as they lie in the file: a few words, whatever their number. The
/// way to keep the records of a whole log at hand without holding them in memory.
#[derive(Clone, Copy, Debug)]
pub struct PackedRecords<'a> {
    packed: Packed<'a>,
    /// Whether a record may stand for several packets.
    runs: bool,
}

#[derive(Clone, Copy, Debug)]
enum Packed<'a> {
    Plain(&'a [RawRecord]),
    Columns { body: &'a [u8], count: usize },
}

impl Packed<'_> {
    const fn len(&self) -> usize {
        match self {
            Self::Plain(raw) => raw.len(),
            Self::Columns { count, .. } => *count,
        }
    }
}

impl<'a> Records<'a> {
    /// No records.
    #[must_use]
    pub const fn none() -> Self {
        let packed = PackedRecords::of_plain(&[], false);
        Self { raw: Cow::Borrowed(&[]), taken: 0, of_run: 0, packed }
    }

    /// Checks the body of a record block, whose length is a multiple of a record's.
    pub(crate) fn plain(body: &'a [u8], runs: bool) -> Result<Self, BlockError> {
        let raw = <[RawRecord]>::ref_from_bytes(body).expect("the length was compared before");
        check_kinds(raw)?;
        Ok(PackedRecords { packed: Packed::Plain(raw), runs }.records())
    }

    /// Decodes and checks the body of a column block of `objects` records; returns their checksum too.
    pub(crate) fn columns(
        body: &'a [u8],
        objects: u32,
        runs: bool,
    ) -> Result<(Self, u32), BlockError> {
        let count = objects as usize;
        let raw = decode(body, count)?;
        let (stored, computed) = (stored_crc(body)?, crc_of(&raw));
        if stored != computed {
            return Err(ColumnsError::Crc { stored, computed }.into());
        }
        check_kinds(&raw)?;
        let packed = PackedRecords { packed: Packed::Columns { body, count }, runs };
        Ok((Self { raw: Cow::Owned(raw), taken: 0, of_run: 0, packed }, computed))
    }

    /// The bytes of the records whose packets have not all been taken yet, as they are in a record block.
    #[must_use]
    pub fn raw(&self) -> &[u8] {
        self.rest().as_bytes()
    }

    /// All records of the block as they lie in the file, taken ones too.
    #[must_use]
    pub const fn packed(&self) -> PackedRecords<'a> {
        self.packed
    }

    /// The records whose packets have not all been taken yet.
    pub(crate) fn rest(&self) -> &[RawRecord] {
        &self.raw[self.taken..]
    }

    /// The next packet of records that may stand for several.
    fn next_of_run(&mut self) -> Option<Record> {
        let row = self.raw.get(self.taken)?;
        let record = row.packet(self.of_run);
        self.of_run += 1;
        if self.of_run == row.packets() {
            self.of_run = 0;
            self.taken += 1;
        }
        Some(record)
    }
}

impl<'a> PackedRecords<'a> {
    pub(crate) const fn of_plain(raw: &'a [RawRecord], runs: bool) -> Self {
        Self { packed: Packed::Plain(raw), runs }
    }

    pub(crate) const fn of_columns(body: &'a [u8], count: usize, runs: bool) -> Self {
        Self { packed: Packed::Columns { body, count }, runs }
    }

    /// Whether these are other records than those, as far as can be told without decoding them.
    pub(crate) fn surely_differs(&self, other: &Self) -> bool {
        match (self.packed, other.packed) {
            (Packed::Plain(one), Packed::Plain(two)) => one.as_bytes() != two.as_bytes(),
            (one, two) => one.len() != two.len(),
        }
    }

    /// The records; those of a column block are decoded anew.
    ///
    /// # Panics
    /// If the bytes of a column block have changed since they were checked: never while they are
    /// memory of this program.
    #[must_use]
    pub fn records(&self) -> Records<'a> {
        let raw = match self.packed {
            Packed::Plain(raw) => Cow::Borrowed(raw),
            Packed::Columns { body, count } => {
                Cow::Owned(decode(body, count).expect("decoded before, when the block was checked"))
            }
        };
        Records { raw, taken: 0, of_run: 0, packed: *self }
    }

    /// Where the records lie in the file: the body of their block.
    #[must_use]
    pub fn bytes(&self) -> &'a [u8] {
        match self.packed {
            Packed::Plain(raw) => raw.as_bytes(),
            Packed::Columns { body, .. } => body,
        }
    }

    /// Number of records. Of packets there may be more: see [`PackedRecords::has_runs`].
    #[must_use]
    pub const fn len(&self) -> usize {
        self.packed.len()
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether a record may stand for several packets, as in burst mode.
    #[must_use]
    pub const fn has_runs(&self) -> bool {
        self.runs
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
        if self.packed.runs {
            return self.next_of_run();
        }
        let record = self.raw.get(self.taken)?.record();
        self.taken += 1;
        Some(record)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let rows = self.rest();
        let packets = match self.packed.runs {
            false => rows.len(),
            true => rows.iter().map(RawRecord::packets).sum::<usize>() - self.of_run,
        };
        (packets, Some(packets))
    }

    /// All at once, without asking for each record where it lies.
    #[inline]
    fn fold<B, F: FnMut(B, Record) -> B>(self, init: B, mut f: F) -> B {
        if !self.packed.runs {
            return self.rest().iter().map(RawRecord::record).fold(init, f);
        }
        let mut from = self.of_run;
        self.rest().iter().fold(init, |so_far, row| {
            (std::mem::take(&mut from)..row.packets())
                .fold(so_far, |so_far, k| f(so_far, row.packet(k)))
        })
    }
}

impl ExactSizeIterator for Records<'_> {}
impl std::iter::FusedIterator for Records<'_> {}
