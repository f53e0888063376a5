//! The bytes of a small log, pinned: logs of today are read by the programs of tomorrow.
#![allow(missing_docs, clippy::cast_possible_truncation, reason = "tests")]

mod common;

use itg_record::{NOTE_SCHEMA, RECORD_SCHEMA};

const GOLDEN: &[u8] = include_bytes!("golden/small-log.bin");

#[test]
fn the_small_log_has_not_changed() {
    let now = common::sample_blocks(7, "golden").concat();
    let first = now.iter().zip(GOLDEN).position(|(a, b)| a != b);
    assert_eq!(first, None, "differs from byte {first:?} on");
    assert_eq!(now.len(), GOLDEN.len());
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
fn the_schemas_have_not_changed() {
    let want = (0x2c54_97a0_dce0_e86e, 0x4e8b_19c3_45a5_0bc3);
    assert_eq!((RECORD_SCHEMA, NOTE_SCHEMA), want);
}

/// Run it with `--ignored` when the format changes on purpose, together with the schema's version.
#[test]
#[ignore = "writes the golden file"]
fn write_the_small_log() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/small-log.bin");
    std::fs::write(path, common::sample_blocks(7, "golden").concat()).expect("writable");
}
