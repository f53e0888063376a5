//! Logs are read as they were written.
#![allow(missing_docs, clippy::cast_possible_truncation, reason = "tests")]

mod common;

use itg_arena::{Flat, HEADER_LEN};
use itg_record::{
    BlockBuf, Item, Kind, LogBuilder, LogEnd, LogReader, MAX_BLOCK_LEN, MAX_BLOCK_RECORDS, Note,
    RECORD_LEN, RECORD_SCHEMA, Record, SentPacket, record_header,
};
use proptest::prelude::*;

fn any_record() -> impl Strategy<Value = Record> {
    let kind = prop_oneof![Just(Kind::Sent), Just(Kind::Received), Just(Kind::Echoed)];
    let times = (any::<u64>(), any::<u64>(), any::<u64>(), any::<u32>());
    (any::<u32>(), any::<u32>(), kind, times, any::<u16>(), any::<u8>(), any::<u8>()).prop_map(
        |(flow, size, kind, (seq, a, b, delta), flags, ttl, tos)| {
            let flags = flags & 0xe070;
            Record { flow, size, seq, kind, a, b, delta, flags, ttl, tos }
        },
    )
}

proptest! {
    #[test]
    fn records_survive_the_log_whatever_the_block(
        records in prop::collection::vec(any_record(), 0..100),
        capacity in 1_usize..40, log_id: u32, lost: u64,
    ) {
        let mut builder = LogBuilder::new(log_id);
        let mut buf = BlockBuf::new(capacity);
        let mut bytes = Vec::new();
        for record in &records {
            buf.push(record);
            if buf.is_full() {
                bytes.extend_from_slice(builder.seal(&mut buf));
                buf.clear();
            }
        }
        if !buf.is_empty() {
            bytes.extend_from_slice(builder.seal(&mut buf));
        }
        bytes.extend_from_slice(&builder.end(lost));
        let contents = common::read(&bytes);
        prop_assert_eq!(contents.damages, vec![]);
        let back: Vec<_> = contents.records.into_iter().map(|(_, record)| record).collect();
        prop_assert_eq!(&back, &records);
        let blocks = records.len().div_ceil(capacity) as u64 + 1;
        let end = LogEnd { blocks, records: records.len() as u64, lost_records: lost, continued: false };
        prop_assert_eq!(contents.notes, vec![(0, Note::End(end))]);
    }
}

#[test]
fn a_buffer_fills_seals_and_clears() {
    let mut buf = BlockBuf::new(2);
    assert_eq!((buf.capacity(), buf.len(), buf.is_empty(), buf.is_full()), (2, 0, true, false));
    buf.push(&Record::sent(SentPacket { flow: 1, seq: 2, size: 3, planned_ns: 4, sent_ns: 5 }));
    assert_eq!((buf.len(), buf.is_empty(), buf.is_full()), (1, false, false));
    let part = buf.seal(0xa, 0xb).to_vec();
    buf.push(&Record::sent(SentPacket { flow: 1, seq: 3, size: 3, planned_ns: 4, sent_ns: 5 }));
    assert!(buf.is_full());
    let full = buf.seal(0xa, 0xc);
    let (flat, len) = Flat::check(full, 1 << 10).expect("good");
    assert_eq!((flat.schema(), flat.objects(), len), (RECORD_SCHEMA, 2, 64 + 80));
    assert_eq!(flat.tag(), 0xa_0000_000c);
    assert_eq!(part[HEADER_LEN..], full[HEADER_LEN..HEADER_LEN + RECORD_LEN]);
    assert!(full.as_ptr().addr().is_multiple_of(8));
    buf.clear();
    assert!(buf.is_empty());
    assert_eq!(buf.seal(0, 0).len(), HEADER_LEN, "an empty block is a header");
}

#[test]
fn the_largest_block_is_read() {
    let mut buf = BlockBuf::new(MAX_BLOCK_RECORDS);
    for k in 0..MAX_BLOCK_RECORDS {
        buf.push(&Record::sent(SentPacket {
            flow: 0,
            seq: k as u64,
            size: 64,
            planned_ns: 0,
            sent_ns: 0,
        }));
    }
    let mut builder = LogBuilder::new(0);
    let mut bytes = builder.seal(&mut buf).to_vec();
    assert!(bytes.len() <= MAX_BLOCK_LEN && MAX_BLOCK_LEN - bytes.len() < RECORD_LEN);
    bytes.extend_from_slice(&builder.end(0));
    assert_eq!((builder.blocks(), builder.records()), (2, MAX_BLOCK_RECORDS as u64));
    let items: Vec<_> = LogReader::new(&bytes).collect();
    assert!(
        matches!(&items[0], Item::Records { records, .. } if records.len() == MAX_BLOCK_RECORDS)
    );
    assert!(matches!(&items[1], Item::Note { .. }));
    assert_eq!(items.len(), 2);
}

#[test]
#[should_panic(expected = "push into a full block: seal it first")]
fn pushing_into_a_full_block_is_a_bug() {
    let mut buf = BlockBuf::new(1);
    buf.push(&Record::sent(SentPacket { flow: 1, seq: 2, size: 3, planned_ns: 4, sent_ns: 5 }));
    buf.push(&Record::sent(SentPacket { flow: 1, seq: 2, size: 3, planned_ns: 4, sent_ns: 5 }));
}

#[test]
#[should_panic(expected = "a block of 0 records: use 1 to 419428")]
fn a_block_without_room_is_a_bug() {
    drop(BlockBuf::new(0));
}

#[test]
fn notes_read_as_people_expect() {
    let blocks = common::sample_blocks(1, "a");
    let json = std::str::from_utf8(&blocks[3][HEADER_LEN..]).expect("text");
    let want = r#"{"note":"clock","unix_ns":1795000001000000000,"monotonic_ns":900000000,"max_error_ns":16000000,"synchronised":null}"#;
    assert_eq!(json.trim_end(), want);
    assert!(blocks.iter().all(|block| block.len().is_multiple_of(8)));
}

#[test]
fn a_header_elsewhere_is_the_header_in_place() {
    for count in [1, 2, 35] {
        let mut buf = BlockBuf::new(40);
        (0..count).for_each(|seq| {
            buf.push(&Record::sent(SentPacket {
                flow: 1,
                seq,
                size: 100,
                planned_ns: seq,
                sent_ns: seq,
            }))
        });
        let block = [&record_header(buf.records(), 3, 77)[..], buf.records()].concat();
        assert_eq!(block, buf.seal(3, 77), "{count} records");
    }
}
