//! Compacted logs: the same records in fewer bytes, and nothing that a hostile one can do.
#![allow(missing_docs, clippy::cast_possible_truncation, reason = "tests")]

mod common;

use common::{lively_records, log_of, read, sample_blocks};
use itg_arena::{HEADER_LEN, Header, seal_flat};
use itg_record::{
    BlockBuf, COLUMNS_SCHEMA, Cause, Item, Kind, LogReader, MAX_BLOCK_RECORDS,
    MAX_RECORDS_PER_BYTE, Record, SentPacket, compact, expand,
};
use proptest::prelude::*;

fn compacted(log: &[u8]) -> Vec<u8> {
    compact(log).collect::<Vec<_>>().concat()
}

fn expanded(log: &[u8]) -> Vec<u8> {
    expand(log).collect::<Vec<_>>().concat()
}

/// Schemas of the blocks of a sound log.
fn schemas(log: &[u8]) -> Vec<u64> {
    let mut rest = log;
    let mut schemas = Vec::new();
    while !rest.is_empty() {
        let header = Header::parse(rest).expect("a block");
        schemas.push(header.schema);
        rest = &rest[header.total_len as usize..];
    }
    schemas
}

/// Compacts and asserts that what is read is the same, and that the way back gives the same bytes.
fn round_trip(log: &[u8]) -> Vec<u8> {
    let small = compacted(log);
    assert!(small.len() <= log.len(), "longer than before");
    assert!(expanded(&small) == log, "not the bytes that went in");
    assert!(compacted(&small) == small, "compacted twice");
    let (before, after) = (read(log), read(&small));
    assert!(before.records == after.records && before.notes == after.notes);
    let causes = |damages: &[itg_record::Damage]| -> Vec<Cause> {
        damages.iter().map(|damage| damage.cause).collect()
    };
    assert_eq!(causes(&before.damages), causes(&after.damages), "{:?}", after.damages);
    small
}

fn bytes_per_record(records: &[Record], block_records: usize) -> f64 {
    let small = round_trip(&log_of(records, block_records));
    small.len() as f64 / records.len() as f64
}

#[test]
fn steady_flows_take_few_bytes_a_packet() {
    for (name, flows, block_records, at_most) in [
        ("one flow", 1, 1024, 7.0),
        ("one flow, small blocks", 1, 16, 16.0),
        ("eight flows by turns, two with random sizes", 8, 1024, 9.0),
        ("more flows than records in a block", 5000, 1024, 16.0),
    ] {
        let got = bytes_per_record(&lively_records(20_000, flows), block_records);
        assert!(got < at_most, "{name}: {got:.2} bytes a packet");
    }
    // All that a sender writes follows from its plan but for its lateness.
    let sent: Vec<_> = (0..20_000)
        .map(|k| {
            Record::sent(SentPacket {
                flow: 1,
                seq: k,
                size: 512,
                planned_ns: k * 100,
                sent_ns: k * 100 + k * k % 60,
            })
        })
        .collect();
    let got = bytes_per_record(&sent, 1024);
    assert!(got < 2.0, "{got:.2} bytes a packet");
}

#[test]
fn notes_numbers_and_the_end_stay_as_they_are() {
    let log = sample_blocks(9, "a").concat();
    let small = round_trip(&log);
    assert!(small.len() < log.len());
    let tags = |log: &[u8]| -> Vec<u64> {
        let at = LogReader::new(log).map(|item| match item {
            Item::Note { offset, .. } | Item::Records { offset, .. } => offset as usize,
            Item::Damage(damage) => panic!("{damage:?}"),
        });
        at.map(|at| Header::parse(&log[at..]).expect("a block").tag).collect()
    };
    assert_eq!(tags(&log), tags(&small));
    let mut rewrite = compact(&log);
    assert_eq!(rewrite.by_ref().count(), 8);
    assert_eq!((rewrite.records(), rewrite.next()), (common::SAMPLE_RECORDS as u64, None));
}

#[test]
fn what_would_not_be_shorter_stays_a_record_block() {
    let mut state = 1_u64;
    let mut any = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let noise: Vec<_> = (0..500)
        .map(|_| Record {
            flags: any() as u16 & 0xfff0,
            ttl: any() as u8,
            tos: any() as u8,
            delta: any() as u32,
            ..Record::sent(SentPacket {
                flow: any() as u32,
                seq: any(),
                size: any() as u32,
                planned_ns: any(),
                sent_ns: any(),
            })
        })
        .collect();
    let log = log_of(&noise, 3);
    assert!(round_trip(&log) == log);
    assert_eq!(compacted(&log_of(&[], 5)), log_of(&[], 5));
    let mut empty = BlockBuf::new(1).seal(1, 0).to_vec();
    assert_eq!(compacted(&empty), empty);
    empty.extend_from_slice(b"not a block");
    assert_eq!(compacted(&empty), empty);
}

#[test]
fn the_largest_block_is_compacted_and_padded_to_one_bit_a_record() {
    let same = vec![
        Record::sent(SentPacket { flow: 1, seq: 2, size: 3, planned_ns: 4, sent_ns: 5 });
        MAX_BLOCK_RECORDS
    ];
    let small = round_trip(&log_of(&same, MAX_BLOCK_RECORDS));
    let header = Header::parse(&small).expect("a block");
    assert_eq!(header.objects as usize, MAX_BLOCK_RECORDS);
    let most = MAX_BLOCK_RECORDS / MAX_RECORDS_PER_BYTE;
    assert!((most..most + 10).contains(&(header.total_len as usize)), "{}", header.total_len);
}

#[test]
fn a_block_and_its_column_block_are_the_same_block() {
    let blocks = sample_blocks(1, "a");
    let plain = &blocks[2];
    let columns = compacted(plain);
    assert_eq!((schemas(&columns), Header::parse(plain).is_ok()), (vec![COLUMNS_SCHEMA], true));
    let renumbered = |block: &[u8]| {
        let mut copy = block.to_vec();
        copy[56] = 9;
        copy
    };
    let rows = [
        (columns.clone(), "block 2 of log 1 once more: left out"),
        (renumbered(&columns), "block 9 of log 1 has the records of the block at byte 1000"),
        (renumbered(plain), "block 9 of log 1 has the records of the block at byte 1000"),
    ];
    for first in [plain, &columns] {
        for (second, reason) in &rows {
            let start: usize = blocks[..2].iter().map(Vec::len).sum();
            let file = [&blocks[..2].concat(), first, second, &blocks[3..].concat()]
                .map(|b| &b[..])
                .concat();
            let got = read(&file);
            assert_eq!(got.records.len(), common::SAMPLE_RECORDS);
            let reason = reason.replace("1000", &start.to_string());
            assert!(got.damages[0].reason.starts_with(&reason), "{:?}", got.damages);
        }
    }
}

/// A column block with this in its body, behind the checksum of one record `sent(0, 0, 0, 0, 0)`.
fn block(objects: u32, columns: u32, stored: u32, data: &[u8]) -> Vec<u8> {
    let mut buf = BlockBuf::new(1);
    buf.push(&Record::sent(SentPacket { flow: 0, seq: 0, size: 0, planned_ns: 0, sent_ns: 0 }));
    let crc = Header::parse(buf.seal(0, 0)).expect("a block").crc;
    let mut block = vec![0; HEADER_LEN];
    [crc, columns, stored].iter().for_each(|word| block.extend_from_slice(&word.to_le_bytes()));
    block.extend_from_slice(data);
    block.resize(block.len().next_multiple_of(8), 0);
    seal_flat(&mut block, COLUMNS_SCHEMA, objects, 0);
    block
}

/// The columns of that record: nine times method, centre, width and exceptions; flags are 1.
const ONE: [[u8; 4]; 9] = {
    let mut columns = [[0; 4]; 9];
    columns[0][1] = 2;
    columns
};

#[test]
fn hostile_blocks_are_refused_with_a_reason() {
    let one = ONE.concat();
    let with = |column: usize, bytes: [u8; 4]| {
        let mut columns = ONE;
        columns[column] = bytes;
        block(1, 36, 36, &columns.concat())
    };
    let bomb = lz4_flex::block::compress(&[0; 5000]);
    let rows: Vec<(&str, Vec<u8>, &str)> = vec![
        ("good", block(1, 36, 36, &one), ""),
        (
            "more records than bytes may stand for",
            block(MAX_RECORDS_PER_BYTE as u32 * 112 + 1, 36, 36, &one),
            "the block says 897 records in 112 bytes: at most 8 a byte, and 419428 in all",
        ),
        (
            "more records than a block may have",
            block(419_429, 36, 36, &[0; 60_000]),
            "the block says 419429 records in 60080 bytes: at most 8 a byte, and 419428 in all",
        ),
        ("fewer records", block(0, 36, 36, &one), "bytes behind the columns that are not 0"),
        ("more records", block(200, 36, 36, &one), "the columns are cut off"),
        ("no body", block(1, 0, 0, &[]), "the columns are cut off"),
        ("shorter than it says", block(1, 99, 99, &one), "the columns are cut off"),
        (
            "stored longer than it is",
            block(1, 35, 36, &one),
            "columns of 35 bytes in 36 stored ones: impossible",
        ),
        (
            "too much from too little",
            block(1, 10_000_000, 36, &one),
            "columns of 10000000 bytes in 36 stored ones: impossible",
        ),
        (
            "more than a block",
            block(1, u32::MAX, 1 << 24, &[7; 1 << 20]),
            "columns of 4294967295 bytes in 16777216 stored ones: impossible",
        ),
        ("a length other than it has", block(1, 5001, bomb.len() as u32, &bomb), "impossible"),
        ("more than its length", block(1, 4999, bomb.len() as u32, &bomb), "not LZ4"),
        ("bytes that are not LZ4", block(1, 37, 36, &[0xf0; 36]), "the columns are not LZ4: "),
        ("a bomb of zeros", block(1, 5000, bomb.len() as u32, &bomb), "behind the columns"),
        (
            "something behind it",
            block(1, 36, 36, &[&one[..], &[0, 9]].concat()),
            "bytes behind the columns that are not 0",
        ),
        ("no such method", with(3, [5, 0, 0, 0]), "method 0x05 does not exist for its column"),
        ("streams of flags", with(0, [3, 2, 0, 0]), "method 0x03 does not exist for its column"),
        ("streams of flows", with(1, [4, 0, 0, 0]), "method 0x04 does not exist for its column"),
        ("size from flow", with(2, [0x10, 0, 0, 0]), "method 0x10 does not exist for its column"),
        ("a frame of 65 bits", with(3, [0, 0, 65, 0]), "a frame of 65 bits: at most 64"),
        ("a TTL below 0", with(7, [0, 1, 0, 0]), "a value does not fit its field"),
        ("a time of reading before 0", with(6, [0x10, 1, 0, 0]), "a value does not fit its field"),
        ("another value", with(2, [0, 2, 0, 0]), "checksum of the records: the block says 0x"),
    ];
    for (name, bytes, reason) in rows {
        let items: Vec<_> = LogReader::new(&bytes).collect();
        match &items[0] {
            Item::Records { records, .. } => {
                assert!(reason.is_empty() && records.len() == 1, "{name}")
            }
            Item::Damage(damage) => {
                assert!(!reason.is_empty() && damage.reason.contains(reason), "{name}: {damage:?}");
                assert_eq!((damage.cause, damage.len), (Cause::Damaged, bytes.len() as u64));
            }
            Item::Note { .. } => panic!("{name}"),
        }
    }
    // A record of no kind, with its right checksum.
    let mut raw = [0; 104];
    raw[100] = 4;
    seal_flat(&mut raw, 0, 0, 0);
    let mut columns = ONE;
    columns[0] = [0, 8, 0, 0];
    let mut bytes = block(1, 36, 36, &columns.concat());
    bytes[64..68].copy_from_slice(&raw[52..56]);
    seal_flat(&mut bytes, COLUMNS_SCHEMA, 1, 0);
    let Some(Item::Damage(damage)) = LogReader::new(&bytes).next() else { panic!("accepted") };
    assert!(damage.reason.ends_with("has kind 4: expected 1 (sent), 2 (received) or 3 (echoed)"));
}

/// Records as they come, or as they should not.
fn any_records() -> impl Strategy<Value = Vec<Record>> {
    let kind = prop_oneof![Just(Kind::Sent), Just(Kind::Received), Just(Kind::Echoed)];
    let small = prop_oneof![3 => 0..4_u64, 1 => any::<u64>()];
    let (seq, a, b, delta) = (small.clone(), small.clone(), small.clone(), small.clone());
    let row = (small.clone(), small, kind, (seq, a, b, delta), any::<u16>(), any::<u8>());
    let any_row = row.prop_map(|(flow, size, kind, (seq, a, b, delta), flags, tos)| Record {
        flow: flow as u32,
        size: size as u32,
        kind,
        seq,
        a,
        b,
        delta: delta as u32,
        flags: flags & 0xe070,
        ttl: tos / 3,
        tos,
    });
    let lively = (1..400_u64, 1..30_u64).prop_map(|(count, flows)| lively_records(count, flows));
    let mixed = (prop::collection::vec(any_row, 1..300), lively.clone()).prop_map(|(mut a, b)| {
        a.truncate(b.len());
        a.into_iter().zip(b).flat_map(|(a, b)| [b, b, b, a]).collect()
    });
    prop_oneof![lively, mixed]
}

proptest! {
    #[test]
    fn every_log_comes_back_to_the_byte(records in any_records(), block_records in 1..500_usize) {
        round_trip(&log_of(&records, block_records));
    }

    #[test]
    fn damaged_logs_come_back_too(
        records in any_records(),
        block_records in 20..200_usize,
        cut in any::<prop::sample::Index>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
    ) {
        let mut log = log_of(&records, block_records);
        log.truncate(cut.index(log.len()).max(1));
        changes.iter().for_each(|(at, value)| *at.get_mut(&mut log) = *value);
        round_trip(&log);
    }

    #[test]
    fn a_changed_compacted_log_invents_nothing(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let written = lively_records(700, 3);
        let mut small = compacted(&log_of(&written, 100));
        let before = small.clone();
        changes.iter().for_each(|(at, value)| *at.get_mut(&mut small) = *value);
        let got = read(&small);
        prop_assert!(small == before || !got.damages.is_empty());
        prop_assert!(got.records.len() >= 700 - 100 * changes.len());
        prop_assert!(got.records.iter().all(|(_, record)| written.contains(record)));
    }

    #[test]
    fn any_body_is_refused_or_holds_records(
        objects in 0..3000_u32, columns in 0..300_u32, data in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        for stored in [columns, data.len() as u32] {
            read(&block(objects, columns, stored, &data));
        }
    }
}
