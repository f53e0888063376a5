//! The bytes of a small log, pinned: logs of today are read by the programs of tomorrow.
#![allow(missing_docs, clippy::cast_possible_truncation, reason = "tests")]

mod common;

use itg_arena::Header;
use itg_record::{COLUMNS_SCHEMA, NOTE_SCHEMA, RECORD_SCHEMA, expand};

const GOLDEN: &[u8] = include_bytes!("golden/small-log.bin");
/// The same before flows had a burst, a congestion control and a pacing rate.
const BEFORE_BURSTS: &[u8] = include_bytes!("golden/small-log-before-bursts.bin");
/// The log of `the_column_blocks_read_as_what_was_written`, compacted by the first version.
const COLUMNS: &[u8] = include_bytes!("golden/columns-log.bin");

#[test]
fn the_small_log_has_not_changed() {
    let now = common::sample_blocks(7, "golden").concat();
    if now == GOLDEN {
        return;
    }
    let first = now.iter().zip(GOLDEN).position(|(a, b)| a != b).unwrap_or(GOLDEN.len());
    let new = concat!(env!("CARGO_TARGET_TMPDIR"), "/small-log.bin");
    std::fs::write(new, &now).expect("writable");
    let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/small-log.bin");
    panic!(
        "the small log is written differently from byte {first} on: {} bytes, {} before.\n\
         Programs that are out there cannot read it. When that is meant, raise the version of what \
         has changed (docs/formats.md, Versions), keep the old file under another name with a test \
         that reads it, and accept the new bytes:\n  cp {new} {golden}",
        now.len(),
        GOLDEN.len()
    );
}

#[test]
fn the_small_log_reads_as_what_was_written() {
    let contents = common::read(GOLDEN);
    assert_eq!(contents, common::read(&common::sample_blocks(7, "golden").concat()));
    assert_eq!(contents.damages, []);
    assert_eq!(contents.notes.len(), 5);
    let records: Vec<_> = contents.records.into_iter().map(|(_, record)| record).collect();
    assert_eq!(records, common::sample_records());
}

#[test]
fn a_small_log_without_the_newer_members_reads_the_same() {
    assert_eq!(common::read(BEFORE_BURSTS), common::read(GOLDEN));
}

/// Column blocks are pinned as they are read. A writer may choose other methods for the same records.
#[test]
fn the_column_blocks_read_as_what_was_written() {
    let contents = common::read(COLUMNS);
    assert_eq!(contents.damages, []);
    let records: Vec<_> = contents.records.into_iter().map(|(_, record)| record).collect();
    let mut want = common::lively_records(600, 1);
    want.extend(common::lively_records(600, 5));
    assert_eq!(records, want);
    assert_eq!(expand(COLUMNS).collect::<Vec<_>>().concat(), common::log_of(&want, 300));
    let schema = |at: usize| Header::parse(&COLUMNS[at..]).expect("a block").schema;
    assert_eq!(schema(0), COLUMNS_SCHEMA);
}

#[test]
fn the_schemas_have_not_changed() {
    let want = (0x2c54_97a0_dce0_e86e, 0x4e8b_19c3_45a5_0bc3, 0x14bd_a965_ec09_4276);
    assert_eq!((RECORD_SCHEMA, NOTE_SCHEMA, COLUMNS_SCHEMA), want);
}
