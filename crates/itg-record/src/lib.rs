//! Contents of packet logs, and their layout in bytes.
//!
//! A [`Record`] of 40 bytes per packet and side (in burst mode per run of packets that shared their
//! times) is written in place into a [`BlockBuf`]; a full buffer is sealed and leaves as a *block*, a
//! flat cluster of `itg-arena`. A log file is a sequence of blocks and nothing else: record blocks, and
//! [`Note`] blocks that describe the log, its flows and its clocks in JSON. [`LogBuilder`] numbers the
//! blocks, [`LogReader`] finds them again, and accounts for every byte and every block number of a
//! damaged file. [`compact`] turns the record blocks of a log into column blocks, which hold the same
//! records in a fraction of the bytes; [`expand`] turns them back. The reader hands out the records of
//! both.
//!
//! This crate works on byte slices: files and threads belong to its users. The byte tables are in
//! `docs/formats.md`. Source: D-ITG's binary logs for what is recorded; the layout is ours.

mod account;
mod block;
mod build;
mod columns;
mod compact;
mod error;
mod facts;
mod find;
mod frames;
mod limits;
mod note;
mod outline;
mod read;
mod record;
mod records;
mod scan;

pub use block::{BLOCK_HEADER_LEN, BlockBuf, record_header};
pub use build::{LogBuilder, fitting_note_block, note_block};
pub use compact::{Rewrite, compact, expand};
pub use error::{BlockError, ColumnsError};
pub use facts::BlockFacts;
pub use find::{FoundBlock, LogTail, find_blocks};
pub use limits::{
    COLUMNS_SCHEMA, MAX_BLOCK_LEN, MAX_BLOCK_RECORDS, MAX_RECORDS_PER_BYTE, NOTE_SCHEMA,
    RECORD_SCHEMA, RUN_COLUMNS_SCHEMA, RUN_SCHEMA,
};
pub use note::{
    ClockPair, ClockProbe, DepartureSample, DepartureTotals, Departures, DitgFlow, FlowEnd,
    FlowInfo, LOG_SCHEMA, LogEnd, LogInfo, LogPart, Note, Side, TcpSample,
};
pub use outline::{Outline, Outlined, UncheckedRecords};
pub use read::{Cause, Damage, Item, LogReader};
pub use record::{Kind, MAX_RUN, RECORD_LEN, RawRecord, ReceivedPacket, Record, SentPacket, flag};
pub use records::{PackedRecords, Records};

/// The example of the README, compiled and run with the tests of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExample;
