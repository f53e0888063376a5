//! Schemas of the blocks of a log, and the most that a block holds.

use itg_arena::{HEADER_LEN, schema_hash};

use crate::record::RECORD_LEN;

/// Largest block in bytes, its header included: 16 MiB.
pub const MAX_BLOCK_LEN: usize = 16 << 20;
/// Largest number of records in a block.
pub const MAX_BLOCK_RECORDS: usize = (MAX_BLOCK_LEN - HEADER_LEN) / RECORD_LEN;

/// Schema of a record block: objects are records of 40 bytes.
pub const RECORD_SCHEMA: u64 = schema_hash(
    "itg.record.1 flow:u32 size:u32 seq:u64 a:u64 b:u64 delta:u32 flags:u16 ttl:u8 tos:u8",
);

/// Schema of a record block some of whose records stand for several packets: bits 7 to 12 of `flags`
/// are how many, less one. Their numbers follow each other from `seq` on, all else they have in common.
pub const RUN_SCHEMA: u64 = schema_hash(
    "itg.record.2 flow:u32 size:u32 seq:u64 a:u64 b:u64 delta:u32 flags:u16 ttl:u8 tos:u8 run:flags[7..13]",
);

/// Schema of a note block: one object, a JSON document padded with spaces to a multiple of 8 bytes.
pub const NOTE_SCHEMA: u64 = schema_hash("itg.note.1 json:utf8");

/// Schema of a column block: objects are the records that come out of it.
pub const COLUMNS_SCHEMA: u64 = schema_hash(
    "itg.columns.1 crc:u32 columns:u32 stored:u32 rows:flags,flow,size,seq,a,b,delta,ttl,tos",
);

/// Schema of a column block made of a record block of version 2: records that stand for several packets.
pub const RUN_COLUMNS_SCHEMA: u64 = schema_hash(
    "itg.columns.2 crc:u32 columns:u32 stored:u32 rows:flags,flow,size,seq,a,b,delta,ttl,tos run:flags[7..13]",
);

/// Largest number of records for each byte of a column block, header included. The writer pads with
/// zeros; the reader refuses more, so that a small file cannot keep it busy for long.
pub const MAX_RECORDS_PER_BYTE: usize = 8;
