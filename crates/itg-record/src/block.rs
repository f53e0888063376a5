//! Blocks: flat clusters that hold records or one note, and the buffer in which records are placed.
//!
//! A buffer is allocated once; appending copies 40 bytes and sealing reads the block once for its
//! checksum. Checking a block is linear in its length and allocates nothing, but for a column block,
//! whose records are decoded into memory of their own.

use itg_arena::{Flat, HEADER_LEN, Header, flat_header, seal_flat};
use zerocopy::IntoBytes;

use crate::columns::may_hold;
use crate::error::{BlockError, ColumnsError};
use crate::limits::{
    COLUMNS_SCHEMA, MAX_BLOCK_LEN, MAX_BLOCK_RECORDS, NOTE_SCHEMA, RECORD_SCHEMA,
    RUN_COLUMNS_SCHEMA, RUN_SCHEMA,
};
use crate::record::{MAX_RUN, RECORD_LEN, RawRecord, Record};
use crate::records::Records;

/// The tag of a block: log id in the upper half, block number in the lower.
pub(crate) const fn tag(log_id: u32, block_no: u32) -> u64 {
    (log_id as u64) << 32 | block_no as u64
}

/// Log id and block number of a tag.
#[allow(clippy::cast_possible_truncation, reason = "the two halves")]
pub(crate) const fn split_tag(tag: u64) -> (u32, u32) {
    ((tag >> 32) as u32, tag as u32)
}

/// A buffer for one block of records: header space and room for a fixed number of records, never
/// reallocated.
#[derive(Debug)]
pub struct BlockBuf {
    /// Words, so that the block starts at a multiple of 8.
    words: Box<[u64]>,
    /// Bytes in use, header space included.
    used: usize,
    /// True if a record stands for several packets.
    runs: bool,
}

impl BlockBuf {
    /// An empty buffer for `capacity` records.
    ///
    /// # Panics
    /// If `capacity` is 0 or larger than [`MAX_BLOCK_RECORDS`].
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        assert!(
            (1..=MAX_BLOCK_RECORDS).contains(&capacity),
            "a block of {capacity} records: use 1 to {MAX_BLOCK_RECORDS}"
        );
        let words = vec![0; (HEADER_LEN + capacity * RECORD_LEN) / 8].into_boxed_slice();
        Self { words, used: HEADER_LEN, runs: false }
    }

    /// Appends a record.
    ///
    /// # Panics
    /// If the buffer is full: the caller seals and replaces it before.
    #[inline]
    pub fn push(&mut self, record: &Record) {
        self.push_run(record, 1);
    }

    /// Appends one record for `packets` packets whose numbers follow each other from the record's on and
    /// that have everything else in common.
    ///
    /// # Panics
    /// As [`BlockBuf::push`]; if `packets` is 0 or more than [`MAX_RUN`].
    #[inline]
    pub fn push_run(&mut self, record: &Record, packets: usize) {
        assert!((1..=MAX_RUN).contains(&packets), "a run of {packets}: use 1 to {MAX_RUN}");
        self.runs |= packets > 1;
        let end = self.used + RECORD_LEN;
        let Some(slot) = self.words.as_mut_bytes().get_mut(self.used..end) else {
            panic!("push into a full block: seal it first");
        };
        slot.copy_from_slice(record.raw_run(packets).as_bytes());
        self.used = end;
    }

    /// Records it has room for.
    #[must_use]
    pub fn capacity(&self) -> usize {
        (self.words.len() * 8 - HEADER_LEN) / RECORD_LEN
    }

    /// Records in it.
    #[must_use]
    pub const fn len(&self) -> usize {
        (self.used - HEADER_LEN) / RECORD_LEN
    }

    /// The records as they lie in it, [`RECORD_LEN`] bytes each.
    #[must_use]
    pub fn records(&self) -> &[u8] {
        &self.words.as_bytes()[HEADER_LEN..self.used]
    }

    /// The whole block as it was sealed last.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.words.as_bytes()[..self.used]
    }

    /// The records in it.
    pub fn iter(&self) -> impl Iterator<Item = Record> + '_ {
        self.records().as_chunks::<RECORD_LEN>().0.iter().flat_map(|bytes| {
            let row: &RawRecord = zerocopy::transmute_ref!(bytes);
            (0..row.packets()).filter_map(|k| row.packet(k))
        })
    }

    /// Returns true if there are no records in it.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.used == HEADER_LEN
    }

    /// Returns true if there is no room for another record.
    #[inline]
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.used == self.words.len() * 8
    }

    /// Forgets all records.
    pub const fn clear(&mut self) {
        self.used = HEADER_LEN;
        self.runs = false;
    }

    /// Writes the header over the header space and returns the block, ready to be written to a file
    /// or sent. The records stay until [`BlockBuf::clear`]; sealing twice gives the same bytes.
    #[allow(clippy::cast_possible_truncation, reason = "at most MAX_BLOCK_RECORDS, see new")]
    pub fn seal(&mut self, log_id: u32, block_no: u32) -> &[u8] {
        let objects = self.len() as u32;
        let schema = if self.runs { RUN_SCHEMA } else { RECORD_SCHEMA };
        let block = &mut self.words.as_mut_bytes()[..self.used];
        seal_flat(block, schema, objects, tag(log_id, block_no));
        block
    }
}

/// Bytes of the header of a block.
pub const BLOCK_HEADER_LEN: usize = HEADER_LEN;

/// The header of a block of records that lie elsewhere (see [`BlockBuf::records`]): header and records,
/// one behind the other, are the block.
///
/// # Panics
/// If these are no whole records, or more than [`MAX_BLOCK_RECORDS`].
#[must_use]
pub fn record_header(records: &[u8], log_id: u32, block_no: u32) -> [u8; BLOCK_HEADER_LEN] {
    let count = records.len() / RECORD_LEN;
    assert!(records.len().is_multiple_of(RECORD_LEN), "{} bytes: no records", records.len());
    assert!(count <= MAX_BLOCK_RECORDS, "a block of {count} records");
    let objects = u32::try_from(count).expect("just looked at");
    let runs = records.as_chunks::<RECORD_LEN>().0.iter().any(|bytes| {
        let row: &RawRecord = zerocopy::transmute_ref!(bytes);
        row.packets() > 1
    });
    let schema = if runs { RUN_SCHEMA } else { RECORD_SCHEMA };
    flat_header(records, schema, objects, tag(log_id, block_no))
}

/// Returns true if a block of this schema holds records as they are.
pub(crate) const fn is_plain(schema: u64) -> bool {
    matches!(schema, RECORD_SCHEMA | RUN_SCHEMA)
}

/// A checked block, by what it holds.
#[derive(Debug)]
pub(crate) enum Body<'a> {
    /// Records.
    Records(Records<'a>),
    /// The JSON text of a note, with its padding.
    Note(&'a [u8]),
}

/// A checked block.
#[derive(Debug)]
pub(crate) struct Block<'a> {
    /// Schema in its header.
    pub(crate) schema: u64,
    pub(crate) log_id: u32,
    pub(crate) block_no: u32,
    /// CRC-32C of the note, or of the records as they lie in a record block: equal for a record block
    /// and the column block made of it.
    pub(crate) crc: u32,
    /// Length in bytes, header included.
    pub(crate) len: usize,
    pub(crate) body: Body<'a>,
}

impl<'a> Block<'a> {
    /// Checks the block at the start of `bytes`, which may be longer. The body is looked at last, so
    /// that a header that contradicts itself costs nothing.
    pub(crate) fn check(bytes: &'a [u8]) -> Result<Self, BlockError> {
        let header = Header::parse(bytes)?;
        let (objects, body) = (header.objects, header.total_len - HEADER_LEN as u64);
        match header.schema {
            RECORD_SCHEMA | RUN_SCHEMA if u64::from(objects) * RECORD_LEN as u64 != body => {
                return Err(BlockError::Count { objects, body });
            }
            schema @ (COLUMNS_SCHEMA | RUN_COLUMNS_SCHEMA)
                if !may_hold(schema, objects, header.total_len) =>
            {
                return Err(ColumnsError::Count { objects, len: header.total_len }.into());
            }
            NOTE_SCHEMA if objects != 1 => return Err(BlockError::NoteCount { objects }),
            RECORD_SCHEMA | RUN_SCHEMA | COLUMNS_SCHEMA | RUN_COLUMNS_SCHEMA | NOTE_SCHEMA => {}
            got => return Err(BlockError::Schema { got }),
        }
        let (flat, len) = Flat::check(bytes, MAX_BLOCK_LEN)?;
        if !flat.has_crc() {
            return Err(BlockError::NoCrc);
        }
        let (body, crc) = match header.schema {
            NOTE_SCHEMA => (Body::Note(flat.body()), header.crc),
            RECORD_SCHEMA => (Body::Records(Records::plain(flat.body(), false)?), header.crc),
            RUN_SCHEMA => (Body::Records(Records::plain(flat.body(), true)?), header.crc),
            schema => {
                let runs = schema == RUN_COLUMNS_SCHEMA;
                let (records, crc) = Records::columns(flat.body(), objects, runs)?;
                (Body::Records(records), crc)
            }
        };
        let (log_id, block_no) = split_tag(header.tag);
        Ok(Self { schema: header.schema, log_id, block_no, crc, len, body })
    }
}
