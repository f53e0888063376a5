//! A log in outline: where its blocks lie, by their headers, when it is as its writer left it.
//!
//! A reader that reads all records anyway can check each block when it comes to it, in any order and in
//! parallel, and touches the file once. It must know beforehand that nothing is to be said about the log
//! as a whole: every byte lies in a block, the blocks of each log count from 0 without a gap, the
//! first is its description, the last its end, whose totals agree, no two blocks hold the same records,
//! and nothing follows. Such a log has an [`Outline`]; any other is left to [`LogReader`](crate::LogReader),
//! which finds every good block and accounts for everything else. So does one whose [`UncheckedRecords`]
//! turn out not to be as they were written: an outline is a promise about headers and notes alone.
//!
//! Costs: a look at each header, the notes, some 80 bytes of memory a block.

use std::collections::BTreeMap;

use itg_arena::{HEADER_LEN, Header};
use zerocopy::FromBytes;

use crate::block::{Block, Body, is_plain, split_tag};
use crate::columns::{is_columns, may_hold, stored_crc};
use crate::error::BlockError;
use crate::limits::{MAX_BLOCK_LEN, RUN_COLUMNS_SCHEMA, RUN_SCHEMA};
use crate::note::Note;
use crate::record::RawRecord;
use crate::records::{PackedRecords, Records};

/// Least number of bytes that are gone through between two reports of progress: 4 MiB.
const STRETCH: usize = 4 << 20;

/// The blocks of a file that holds whole logs and nothing else.
#[derive(Debug)]
pub struct Outline<'a>(Vec<Outlined<'a>>);

/// A block of an [`Outline`].
#[derive(Debug)]
pub enum Outlined<'a> {
    /// A note, which has been checked.
    Note {
        /// Number of the log in this file, from 0 in the order of appearance.
        log: u32,
        /// The note.
        note: Box<Note>,
    },
    /// Records, which have not.
    Records {
        /// Number of the log in this file, from 0.
        log: u32,
        /// Number of the block in its log.
        block_no: u32,
        /// The records.
        records: UncheckedRecords<'a>,
    },
}

/// The records of a block whose header alone has been looked at.
#[derive(Clone, Copy, Debug)]
pub struct UncheckedRecords<'a> {
    block: &'a [u8],
    packed: PackedRecords<'a>,
}

impl<'a> UncheckedRecords<'a> {
    /// Checks the block as a reader of the log would and hands out its records: those of a column block
    /// are decoded for both at once.
    ///
    /// # Errors
    /// A block that is not as it was written.
    pub fn check(&self) -> Result<Records<'a>, BlockError> {
        match Block::check(self.block)?.body {
            Body::Records(records) => Ok(records),
            // A header does not change between two looks, unless a program writes to the file.
            Body::Note(_) => Err(BlockError::Schema { got: Header::parse(self.block)?.schema }),
        }
    }

    /// The records as they lie in the file: to be used when they have been [checked](Self::check).
    #[must_use]
    pub const fn packed(&self) -> PackedRecords<'a> {
        self.packed
    }
}

/// State of a log while its blocks are gone through.
#[derive(Debug, Default)]
struct LogProgress {
    number: u32,
    blocks: u64,
    records: u64,
    ended: bool,
    /// Checksum and place in the list of each block of records, to find equal ones.
    contents: Vec<(u32, usize)>,
}

impl<'a> Outline<'a> {
    /// The outline of a whole file; `None` when there is anything to say about it as a whole. `seen` hears
    /// of each stretch of the file, some megabytes long or its last one, that has been gone through.
    pub fn of(bytes: &'a [u8], mut seen: impl FnMut(&'a [u8])) -> Option<Self> {
        let mut blocks = Vec::new();
        let mut logs: BTreeMap<u32, LogProgress> = BTreeMap::new();
        let (mut pos, mut from) = (0, 0);
        while pos < bytes.len() {
            if pos - from >= STRETCH {
                seen(&bytes[from..pos]);
                from = pos;
            }
            let rest = &bytes[pos..];
            let header = Header::parse(rest).ok()?;
            let len = usize::try_from(header.total_len).ok().filter(|len| *len <= MAX_BLOCK_LEN)?;
            let block = rest.get(..len).filter(|block| block.len() > HEADER_LEN)?;
            pos += len;
            let (log_id, block_no) = split_tag(header.tag);
            if block_no == 0 && logs.contains_key(&log_id) {
                return None;
            }
            let number = u32::try_from(logs.len()).ok()?;
            let log = logs
                .entry(log_id)
                .or_insert_with(|| LogProgress { number, ..LogProgress::default() });
            if log.ended || u64::from(block_no) != log.blocks {
                return None;
            }
            log.blocks += 1;
            if is_plain(header.schema) || is_columns(header.schema) {
                let (records, crc) = unchecked(&header, block)?;
                log.records += records.packed.len() as u64;
                log.contents.push((crc, blocks.len()));
                blocks.push(Outlined::Records { log: log.number, block_no, records });
                if block_no == 0 {
                    return None;
                }
                continue;
            }
            let Body::Note(json) = Block::check(block).ok()?.body else { return None };
            let note: Note = serde_json::from_slice(json).ok()?;
            if matches!(note, Note::Log(_)) != (block_no == 0) {
                return None;
            }
            if let Note::End(end) = &note {
                log.ended = (end.blocks, end.records) == (log.blocks, log.records);
                if !log.ended {
                    return None;
                }
            }
            blocks.push(Outlined::Note { log: log.number, note: Box::new(note) });
        }
        seen(&bytes[from..]);
        let whole = !logs.is_empty() && logs.values().all(|log| log.ended);
        let outline = Self(blocks);
        let once = logs.into_values().all(|log| outline.are_different(log.contents));
        (whole && once).then_some(outline)
    }

    /// The blocks, in the order of the file.
    #[must_use]
    pub fn blocks(self) -> Vec<Outlined<'a>> {
        self.0
    }

    /// Returns true if no two blocks hold the same records, and false where that cannot be told without
    /// decoding them.
    fn are_different(&self, mut contents: Vec<(u32, usize)>) -> bool {
        let records = |place: usize| match &self.0[place] {
            Outlined::Records { records, .. } => Some(records.packed),
            Outlined::Note { .. } => None,
        };
        contents.sort_unstable();
        contents.chunk_by(|a, b| a.0 == b.0).all(|alike| {
            alike.iter().enumerate().all(|(at, (_, one))| {
                alike[..at].iter().all(|(_, other)| {
                    records(*one).zip(records(*other)).is_some_and(|(a, b)| a.surely_differs(&b))
                })
            })
        })
    }
}

/// The records of a block by its header, and the checksum that they have if they are as they were
/// written.
fn unchecked<'a>(header: &Header, block: &'a [u8]) -> Option<(UncheckedRecords<'a>, u32)> {
    let body = &block[HEADER_LEN..];
    let schema = header.schema;
    if is_columns(schema) {
        let count = usize::try_from(header.objects).ok()?;
        if !may_hold(schema, header.objects, header.total_len) {
            return None;
        }
        let packed = PackedRecords::of_columns(body, count, schema == RUN_COLUMNS_SCHEMA);
        return Some((UncheckedRecords { block, packed }, stored_crc(body).ok()?));
    }
    let raw = <[RawRecord]>::ref_from_bytes(body).ok()?;
    if raw.len() as u64 != u64::from(header.objects) {
        return None;
    }
    let packed = PackedRecords::of_plain(raw, schema == RUN_SCHEMA);
    Some((UncheckedRecords { block, packed }, header.crc))
}
