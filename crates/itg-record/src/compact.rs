//! Making a log smaller, and the way back.
//!
//! [`compact`] goes over a log block by block and turns record blocks into column blocks, under the
//! same log id and number. Everything else, notes and damage among it, stays as it is, byte for byte;
//! so does a block that would not become shorter. [`expand`] turns column blocks back into the record
//! blocks they were made of: `expand(compact(log))` is `log`, also when it is damaged or still being
//! written. Both hold one block in memory, whatever the length of the log.

use std::borrow::Cow;

use itg_arena::{HEADER_LEN, seal_flat};
use zerocopy::IntoBytes;

use crate::block::{Block, Body, tag};
use crate::columns::encode;
use crate::limits::{COLUMNS_SCHEMA, RECORD_SCHEMA, RUN_COLUMNS_SCHEMA, RUN_SCHEMA};
use crate::scan::{Piece, Scan};

/// A log that is rewritten: an iterator over its bytes, piece by piece, in order. Pieces that have
/// not changed are borrowed from the input.
#[derive(Debug)]
pub struct Rewrite<'a> {
    scan: Scan<'a>,
    to_columns: bool,
    blocks: u64,
    records: u64,
}

/// The log with its records in column blocks.
///
/// ```
/// # use itg_record::{BlockBuf, LogBuilder, Record, compact, expand, SentPacket};
/// let mut builder = LogBuilder::new(1);
/// let mut buf = BlockBuf::new(100);
/// (0..100).for_each(|k| buf.push(&Record::sent(SentPacket { flow: 0, seq: k, size: 512, planned_ns: k * 1_000, sent_ns: k * 1_000 + 55 })));
/// let log = [builder.seal(&mut buf).to_vec(), builder.end(0)].concat();
/// let small: Vec<u8> = compact(&log).flat_map(|piece| piece.into_owned()).collect();
/// assert!(small.len() < log.len() / 8);
/// let again: Vec<u8> = expand(&small).flat_map(|piece| piece.into_owned()).collect();
/// assert_eq!(again, log);
/// ```
#[must_use]
pub fn compact(log: &[u8]) -> Rewrite<'_> {
    Rewrite { scan: Scan::new(log, Vec::new()), to_columns: true, blocks: 0, records: 0 }
}

/// The log with its records in record blocks: what it was before [`compact`].
#[must_use]
pub fn expand(log: &[u8]) -> Rewrite<'_> {
    Rewrite { scan: Scan::new(log, Vec::new()), to_columns: false, blocks: 0, records: 0 }
}

impl Rewrite<'_> {
    /// Blocks so far, changed or not; none in what is no log.
    #[must_use]
    pub const fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Records in the blocks so far, changed or not.
    #[must_use]
    pub const fn records(&self) -> u64 {
        self.records
    }
}

/// The block in its other form, when it has one.
fn rewrite(block: &Block<'_>, to_columns: bool) -> Option<Vec<u8>> {
    let Body::Records(records) = &block.body else { return None };
    let tag = tag(block.log_id, block.block_no);
    match block.schema {
        RECORD_SCHEMA if to_columns => encode(records.rest(), COLUMNS_SCHEMA, block.crc, tag),
        RUN_SCHEMA if to_columns => encode(records.rest(), RUN_COLUMNS_SCHEMA, block.crc, tag),
        schema @ (COLUMNS_SCHEMA | RUN_COLUMNS_SCHEMA) if !to_columns => {
            let plain_schema = if schema == COLUMNS_SCHEMA { RECORD_SCHEMA } else { RUN_SCHEMA };
            let records = records.rest();
            let mut plain = vec![0; HEADER_LEN];
            plain.extend_from_slice(records.as_bytes());
            let objects = u32::try_from(records.len()).expect("at most MAX_BLOCK_RECORDS");
            seal_flat(&mut plain, plain_schema, objects, tag);
            Some(plain)
        }
        _ => None,
    }
}

impl<'a> Iterator for Rewrite<'a> {
    type Item = Cow<'a, [u8]>;

    fn next(&mut self) -> Option<Cow<'a, [u8]>> {
        let bytes = self.scan.bytes();
        Some(match self.scan.next()? {
            Piece::Gap(gap) => Cow::Borrowed(&bytes[gap.start..gap.end]),
            Piece::Block(start, block) => {
                self.blocks += 1;
                if let Body::Records(records) = &block.body {
                    self.records += records.packed().len() as u64;
                }
                match rewrite(&block, self.to_columns) {
                    Some(rewritten) => Cow::Owned(rewritten),
                    None => Cow::Borrowed(&bytes[start..start + block.len]),
                }
            }
        })
    }
}

impl std::iter::FusedIterator for Rewrite<'_> {}
