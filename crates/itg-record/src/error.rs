//! Reasons why bytes are no block of a log.

use itg_arena::ClusterError;

use crate::limits::{MAX_BLOCK_RECORDS, MAX_RECORDS_PER_BYTE};
use crate::record::RECORD_LEN;

/// Bytes that are no block of a log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BlockError {
    /// The cluster around it is damaged.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// A cluster without a checksum.
    #[error("the block has no checksum: every block of a log has one")]
    NoCrc,
    /// A cluster of something else, or of another version.
    #[error("schema {got:#018x} is no record, column or note block of this version")]
    Schema {
        /// Schema in the header.
        got: u64,
    },
    /// The number of records does not match the length.
    #[error("the block says {objects} records of {RECORD_LEN} bytes, its body has {body} bytes")]
    Count {
        /// Number of records in the header.
        objects: u32,
        /// Bytes of the body.
        body: u64,
    },
    /// A column block that does not say what its records are.
    #[error(transparent)]
    Columns(#[from] ColumnsError),
    /// A column block where only blocks of records and notes are taken.
    #[error("a column block: only blocks of records and of notes are taken here")]
    Packed,
    /// A note block with another number of documents than one.
    #[error("the note block says {objects} documents: expected 1")]
    NoteCount {
        /// Number of documents in the header.
        objects: u32,
    },
    /// A record of a kind that does not exist.
    #[error(
        "record {index} of the block has kind {got}: expected 1 (sent), 2 (received) or 3 (echoed)"
    )]
    Kind {
        /// Number of the record in its block, from 0.
        index: usize,
        /// Kind found.
        got: u16,
    },
    /// A record with a time that no clock shows, in a block that comes from a producer.
    #[error("record {index} of the block has a time beyond the year 2116")]
    Time {
        /// Number of the record in its block, from 0.
        index: usize,
    },
}

/// A column block that does not say what its records are.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ColumnsError {
    /// More records than the bytes may stand for.
    #[error(
        "the block says {objects} records in {len} bytes: at most {MAX_RECORDS_PER_BYTE} a byte, \
         and {MAX_BLOCK_RECORDS} in all"
    )]
    Count {
        /// Number of records in the header.
        objects: u32,
        /// Length of the block in bytes.
        len: u64,
    },
    /// The bytes end before the columns do.
    #[error("the columns are cut off")]
    CutOff,
    /// Lengths of the columns that contradict each other.
    #[error("columns of {columns} bytes in {stored} stored ones: impossible")]
    Lengths {
        /// Length of the columns in bytes.
        columns: u32,
        /// Length of what is stored of them in bytes.
        stored: u32,
    },
    /// Compressed bytes that are none.
    #[error("the columns are not LZ4: {0}")]
    Lz4(String),
    /// A method that does not exist, or not for its column.
    #[error("method {got:#04x} does not exist for its column")]
    Method {
        /// Byte found.
        got: u8,
    },
    /// A frame wider than a number.
    #[error("a frame of {got} bits: at most 64")]
    Width {
        /// Width found in bits.
        got: usize,
    },
    /// Exceptions out of order or beyond their frame.
    #[error("exceptions that do not fit their frame")]
    Exceptions,
    /// A number that is longer than 64 bits.
    #[error("a number of more than 64 bits")]
    Varint,
    /// A value that its field has no room for.
    #[error("a value does not fit its field")]
    Value,
    /// Bytes behind the columns.
    #[error("bytes behind the columns that are not 0")]
    Rest,
    /// Records other than those that were written.
    #[error("checksum of the records: the block says {stored:#010x}, they have {computed:#010x}")]
    Crc {
        /// CRC-32C in the block.
        stored: u32,
        /// CRC-32C of the records as they came out.
        computed: u32,
    },
}

impl ColumnsError {
    /// Returns true if the header alone shows it, so that the body has not been looked at.
    pub(crate) const fn is_about_header(&self) -> bool {
        matches!(self, Self::Count { .. })
    }
}
