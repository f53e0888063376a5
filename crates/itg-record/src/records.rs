//! The records of a checked block, and what it takes to get them again.
//!
//! Records of a record block are looked at where they lie; those of a column block are decoded into
//! memory of their own, one block at a time.

use std::borrow::Cow;

use zerocopy::{FromBytes, IntoBytes};

use crate::columns::{crc_of, decode, stored_crc};
use crate::error::{BlockError, ColumnsError};
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
    /// True if a record may stand for several packets.
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

    /// The records that have not been taken yet, where each stands for one packet; `None` where one may stand for
    /// several.
    #[must_use]
    pub fn rows(&self) -> Option<&[RawRecord]> {
        (!self.packed.runs).then(|| self.rest())
    }

    /// The records whose packets have not all been taken yet.
    pub(crate) fn rest(&self) -> &[RawRecord] {
        &self.raw[self.taken..]
    }

    /// Number of packets that have not been taken yet.
    #[must_use]
    pub fn len(&self) -> usize {
        let rows = self.rest();
        if !self.packed.runs {
            return rows.len();
        }
        let all: usize = rows.iter().map(RawRecord::packets).sum();
        all.saturating_sub(self.of_run)
    }

    /// Returns true if all packets have been taken.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rest().is_empty()
    }

    /// The next packet of records that may stand for several.
    fn next_of_run(&mut self) -> Option<Record> {
        loop {
            let row = self.raw.get(self.taken)?;
            let record = row.packet(self.of_run);
            self.of_run += 1;
            if self.of_run >= row.packets() {
                self.of_run = 0;
                self.taken += 1;
            }
            if record.is_some() {
                return record;
            }
        }
    }
}

impl<'a> PackedRecords<'a> {
    pub(crate) const fn of_plain(raw: &'a [RawRecord], runs: bool) -> Self {
        Self { packed: Packed::Plain(raw), runs }
    }

    pub(crate) const fn of_columns(body: &'a [u8], count: usize, runs: bool) -> Self {
        Self { packed: Packed::Columns { body, count }, runs }
    }

    /// Returns true if these are other records than those, as far as can be told without decoding them.
    pub(crate) fn surely_differs(&self, other: &Self) -> bool {
        match (self.packed, other.packed) {
            (Packed::Plain(one), Packed::Plain(two)) => one.as_bytes() != two.as_bytes(),
            (one, two) => one.len() != two.len(),
        }
    }

    /// The records; those of a column block are decoded anew. Where the file has been changed since they
    /// were checked, those that are none any more are left out.
    #[must_use]
    pub fn records(&self) -> Records<'a> {
        let raw = match self.packed {
            Packed::Plain(raw) => Cow::Borrowed(raw),
            Packed::Columns { body, count } => Cow::Owned(decode(body, count).unwrap_or_default()),
        };
        Records { raw, taken: 0, of_run: 0, packed: *self }
    }

    /// Returns the bytes of the file in which the records lie: the body of their block.
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

    /// Returns true if there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns true if a record may stand for several packets, as in burst mode.
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
        loop {
            let record = self.raw.get(self.taken)?.record();
            self.taken += 1;
            if record.is_some() {
                return record;
            }
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        // Fewer where the file has been changed since it was checked.
        (0, Some(self.len()))
    }

    /// All at once, without asking for each record where it lies.
    #[inline]
    fn fold<B, F: FnMut(B, Record) -> B>(self, init: B, mut f: F) -> B {
        if !self.packed.runs {
            return self.rest().iter().filter_map(RawRecord::record).fold(init, f);
        }
        let mut from = self.of_run;
        self.rest().iter().fold(init, |so_far, row| {
            (std::mem::take(&mut from)..row.packets())
                .filter_map(|k| row.packet(k))
                .fold(so_far, &mut f)
        })
    }
}

impl std::iter::FusedIterator for Records<'_> {}
