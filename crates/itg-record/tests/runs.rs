//! Records that stand for several packets: what burst mode writes.
#![allow(missing_docs, clippy::cast_possible_truncation, reason = "tests")]

mod common;

use common::{log_of, read};
use itg_arena::{Header, seal_flat};
use itg_record::{
    BlockBuf, BlockError, BlockFacts, Item, LogBuilder, LogReader, MAX_RUN, RECORD_LEN,
    RECORD_SCHEMA, RUN_COLUMNS_SCHEMA, RUN_SCHEMA, ReceivedPacket, Record, SentPacket, compact,
    expand, record_header,
};
use proptest::prelude::*;

/// Runs of these lengths, one behind the other.
fn runs(lengths: &[usize]) -> Vec<(Record, usize)> {
    let mut seq = 0;
    let run = |&packets: &usize| {
        let record = Record::received(ReceivedPacket {
            flow: 3,
            seq,
            size: 700,
            sent_ns: 1_000 + seq,
            arrived_ns: 5_000 + seq,
            read_ns: 5_900 + seq,
            ttl: 64,
            tos: 0xb8,
        });
        seq += packets as u64;
        (record, packets)
    };
    lengths.iter().map(run).collect()
}

/// The packets that runs stand for.
fn packets(runs: &[(Record, usize)]) -> Vec<Record> {
    let all = runs.iter().flat_map(|&(record, packets)| {
        (0..packets as u64).map(move |k| Record { seq: record.seq + k, ..record })
    });
    all.collect()
}

fn block_of(runs: &[(Record, usize)]) -> BlockBuf {
    let mut buf = BlockBuf::new(runs.len().max(1));
    runs.iter().for_each(|(record, packets)| buf.push_run(record, *packets));
    buf
}

fn schema(block: &[u8]) -> u64 {
    Header::parse(block).expect("a block").schema
}

fn whole<'a>(pieces: impl Iterator<Item = std::borrow::Cow<'a, [u8]>>) -> Vec<u8> {
    pieces.collect::<Vec<_>>().concat()
}

#[test]
fn the_bytes_of_a_run_are_pinned() {
    let mut buf = block_of(&[(
        Record::sent(SentPacket { flow: 1, seq: 2, size: 3, planned_ns: 4, sent_ns: 5 }),
        64,
    )]);
    assert_eq!(buf.records()[36..38], [0x81, 0x1f]);
    assert_eq!(schema(buf.seal(1, 1)), RUN_SCHEMA);
    assert_eq!(RUN_SCHEMA, 0x45f7_8fd4_d220_a524);
    assert_eq!(RUN_COLUMNS_SCHEMA, 0xc504_f6db_6913_c5f0);
    // A block of single packets is of version 1, whatever was in its buffer before.
    buf.clear();
    buf.push(&Record::sent(SentPacket { flow: 1, seq: 2, size: 3, planned_ns: 4, sent_ns: 5 }));
    assert_eq!(schema(buf.seal(1, 1)), RECORD_SCHEMA);
}

proptest! {
    #[test]
    fn every_packet_of_every_run_comes_out_once(
        lengths in prop::collection::vec(1usize..=MAX_RUN, 1..60), taken in 0usize..500,
    ) {
        let runs = runs(&lengths);
        let want = packets(&runs);
        let mut builder = LogBuilder::new(3);
        let mut buf = block_of(&runs);
        let block = builder.seal(&mut buf).to_vec();
        let log = [block.clone(), builder.end(0)].concat();
        let got: Vec<_> = read(&log).records.into_iter().map(|(_, record)| record).collect();
        prop_assert_eq!(&got, &want);
        prop_assert_eq!(read(&log).damages, []);

        // One by one, the rest at once, and counted: the same.
        let Some(Item::Records { mut records, .. }) = LogReader::new(&log).next() else {
            panic!("a record block");
        };
        let taken = taken.min(want.len());
        let first: Vec<_> = records.by_ref().take(taken).collect();
        prop_assert_eq!(records.len(), want.len() - taken);
        let mut rest = Vec::new();
        records.for_each(|record| rest.push(record));
        prop_assert_eq!(&[first, rest].concat(), &want);

        // Through columns and back.
        let small = whole(compact(&log));
        prop_assert_eq!(&whole(expand(&small)), &log);
        let got: Vec<_> = read(&small).records.into_iter().map(|(_, record)| record).collect();
        prop_assert_eq!(&got, &want);
        // Records that lie elsewhere get the header of what they are.
        let header = record_header(&block[64..], 3, 0);
        prop_assert_eq!(&header[..], &block[..64]);
        let facts = BlockFacts::check_plain(&block).expect("a block");
        prop_assert_eq!(facts.records as usize, lengths.len());
    }
}

#[test]
fn a_run_of_columns_has_at_most_a_record_a_byte_and_is_refused_where_only_records_are_taken() {
    let same = vec![
        (
            Record::sent(SentPacket { flow: 1, seq: 2, size: 3, planned_ns: 4, sent_ns: 5 }),
            MAX_RUN
        );
        5000
    ];
    let mut block = block_of(&same).seal(3, 0).to_vec();
    let small = whole(compact(&block));
    assert_eq!(schema(&small), RUN_COLUMNS_SCHEMA);
    assert!(small.len() >= 5000, "{}", small.len());
    assert_eq!(read(&small).records.len(), 5000 * MAX_RUN);
    assert!(matches!(BlockFacts::check_plain(&small), Err(BlockError::Packed)));
    // Eight records a byte, as columns of version 1 may have.
    let mut thin = small[..64 + 640].to_vec();
    seal_flat(&mut thin, RUN_COLUMNS_SCHEMA, 5000, 0);
    assert_eq!(read(&thin).records.len(), 0);
    // The same bytes as version 1: as many packets as records.
    let objects = (block.len() - 64) / RECORD_LEN;
    seal_flat(&mut block, RECORD_SCHEMA, objects as u32, 3 << 32);
    assert_eq!(read(&block).records.len(), 5000);
}

#[test]
fn a_run_beyond_the_last_number_does_no_harm() {
    let log = block_of(&[(
        Record::sent(SentPacket { flow: 1, seq: u64::MAX, size: 3, planned_ns: 4, sent_ns: 5 }),
        3,
    )])
    .seal(3, 0)
    .to_vec();
    let seqs: Vec<_> = read(&log).records.iter().map(|(_, record)| record.seq).collect();
    assert_eq!(seqs, [u64::MAX, 0, 1]);
}

#[test]
#[should_panic(expected = "a run of 65: use 1 to 64")]
fn longer_runs_are_a_mistake() {
    block_of(&[(
        Record::sent(SentPacket { flow: 1, seq: 2, size: 3, planned_ns: 4, sent_ns: 5 }),
        MAX_RUN + 1,
    )]);
}

#[test]
fn logs_without_runs_are_what_they_were() {
    let plain = runs(&[1; 40]);
    let mut builder = LogBuilder::new(3);
    let mut buf = block_of(&plain);
    let log = [builder.seal(&mut buf).to_vec(), builder.end(0)].concat();
    assert_eq!(log, log_of(&packets(&plain), 40));
}
