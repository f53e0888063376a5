//! A small log with every kind of block, and what its reader says about it.
#![allow(dead_code, reason = "each test uses its part")]

use std::collections::BTreeMap;

use itg_arena::Header;
use itg_core::flow::{FlowSpec, Meter, Stop};
use itg_record::{
    BlockBuf, ClockPair, Damage, FlowEnd, FlowInfo, Item, LOG_SCHEMA, LogBuilder, LogInfo,
    LogReader, Note, RECORD_SCHEMA, ReceivedPacket, Record, SentPacket, Side, flag,
};

/// Records in the sample log.
pub(crate) const SAMPLE_RECORDS: usize = 11;

fn log_info(host: &str) -> Note {
    Note::Log(LogInfo {
        schema: LOG_SCHEMA,
        side: Side::Sender,
        program: "itg-send".into(),
        version: "0.1.0".into(),
        host: host.into(),
        os: "Linux 6.18".into(),
        boot_id: "b007".into(),
        pid: 42,
        started_unix_ns: 1_795_000_000_000_000_000,
        run: "00c0ffee".into(),
        seed: Some(u64::MAX),
        settings: BTreeMap::from([("log.records".into(), "4".into())]),
        block_records: 4,
        part: None,
    })
}

fn flow_info() -> Note {
    let stop = Stop { packets: Some(11), ..Stop::default() };
    Note::Flow(FlowInfo {
        changes: Vec::new(),
        index: 0,
        flow: 1,
        name: None,
        run: "00c0ffee".into(),
        seed: u64::MAX,
        spec: FlowSpec::new(1).meter(Meter::Rtt).stop(stop),
        src: "[fe80::1%eth0]:40000".into(),
        dst: "[fe80::2%eth0]:9000".into(),
        epoch_unix_ns: 1_795_000_000_100_000_000,
        sender_boot_id: "b007".into(),
        receiver_boot_id: "b008".into(),
        notices: vec!["idt: \"exp(10ms)\" kept as asked — ¾".into()],
        ditg: None,
    })
}

/// The records of the sample log: sent ones and replies by turns.
pub(crate) fn sample_records() -> Vec<Record> {
    let epoch = 1_795_000_000_100_000_000;
    (0..SAMPLE_RECORDS as u64)
        .map(|k| {
            let (seq, planned) = (k / 2, k / 2 * 1_000_000);
            let sent = epoch + planned + 2_500;
            if k % 2 == 0 {
                return Record::sent(SentPacket {
                    flow: 0,
                    seq,
                    size: 512,
                    planned_ns: planned,
                    sent_ns: sent,
                });
            }
            let echoed = Record::echoed(ReceivedPacket {
                flow: 0,
                seq,
                size: 512,
                sent_ns: sent,
                arrived_ns: sent + 90_000,
                read_ns: sent + 90_000 + (k << 31),
                ttl: 64,
                tos: 46,
            });
            Record { flags: echoed.flags | flag::USER_STAMP, ..echoed }
        })
        .collect()
}

/// The blocks of the sample log: log, flow, 4 records, clock, 4 records, 3 records, flow end, end.
pub(crate) fn sample_blocks(log_id: u32, host: &str) -> Vec<Vec<u8>> {
    let mut builder = LogBuilder::new(log_id);
    let mut blocks = vec![builder.note(&log_info(host)), builder.note(&flow_info())];
    let mut buf = BlockBuf::new(4);
    for record in sample_records() {
        buf.push(&record);
        if buf.is_full() {
            blocks.push(builder.seal(&mut buf).to_vec());
            buf.clear();
            if blocks.len() == 3 {
                blocks.push(builder.note(&Note::Clock(ClockPair {
                    unix_ns: 1_795_000_001_000_000_000,
                    monotonic_ns: 900_000_000,
                    max_error_ns: Some(16_000_000),
                    synchronised: None,
                })));
            }
        }
    }
    blocks.push(builder.seal(&mut buf).to_vec());
    blocks.push(builder.note(&Note::FlowEnd(FlowEnd {
        sent_packets: Some(6),
        sent_bytes: Some(3072),
        skipped_packets: Some(0),
        received_packets: Some(5),
        received_bytes: Some(2560),
        ..FlowEnd::new(0, "limit of 6 packets reached")
    })));
    blocks.push(builder.end(0));
    blocks
}

/// Records as a receiver or a round-trip sender writes them: `flows` flows by turns, steady
/// inter-departure times, delays that wander, some long ones, some packets lost.
pub(crate) fn lively_records(count: u64, flows: u64) -> Vec<Record> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut noise = |below: u64| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    (0..count)
        .map(|k| {
            let (flow, seq) = ((k % flows) as u32, k / flows + k / 97);
            let size = if flow % 3 == 2 { 64 + noise(1400) as u32 } else { 512 + flow };
            let sent = 1_795_000_000_000_000_000 + k * 100_000 + noise(400);
            let slow = if noise(200) == 0 { noise(3_000_000) } else { 0 };
            let arrived = sent + 40_000 + noise(900) + slow;
            let read = arrived + 4_500 + noise(300) + noise(40) / 39 * 11_000;
            if flow % 4 == 3 && noise(2) == 0 {
                return Record::sent(SentPacket {
                    flow,
                    seq,
                    size,
                    planned_ns: k * 100_000,
                    sent_ns: sent,
                });
            }
            let record = Record::received(ReceivedPacket {
                flow,
                seq,
                size,
                sent_ns: sent,
                arrived_ns: arrived,
                read_ns: read,
                ttl: 64,
                tos: 0xb8,
            });
            let stamp = if noise(50) == 0 { flag::USER_STAMP } else { 0 };
            Record { flags: record.flags | stamp, ..record }
        })
        .collect()
}

/// A log of these records, with nothing else but its end.
pub(crate) fn log_of(records: &[Record], block_records: usize) -> Vec<u8> {
    let mut builder = LogBuilder::new(3);
    let mut buf = BlockBuf::new(block_records);
    let mut bytes = Vec::new();
    for block in records.chunks(block_records) {
        buf.clear();
        block.iter().for_each(|record| buf.push(record));
        bytes.extend_from_slice(builder.seal(&mut buf));
    }
    bytes.extend_from_slice(&builder.end(0));
    bytes
}

/// Contents that a reader found.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Contents {
    /// Log number and note.
    pub(crate) notes: Vec<(u32, Note)>,
    /// Log number and record.
    pub(crate) records: Vec<(u32, Record)>,
    /// Damages.
    pub(crate) damages: Vec<Damage>,
}

/// Reads everything and asserts that every byte is accounted for exactly once.
pub(crate) fn read(bytes: &[u8]) -> Contents {
    let mut contents = Contents::default();
    let mut spans = Vec::new();
    for item in LogReader::new(bytes) {
        let (offset, len) = match item {
            Item::Note { offset, log, note } => {
                contents.notes.push((log, note));
                (offset, block_len(bytes, offset))
            }
            Item::Records { offset, log, records, .. } => {
                let len = block_len(bytes, offset);
                let packed = records.packed();
                assert_eq!(records.raw().len(), packed.len() * 40);
                assert!(packed.len() == records.len() || packed.has_runs());
                assert_eq!(records.packed().records().raw(), records.raw());
                if Header::parse(&bytes[offset as usize..]).expect("good").schema == RECORD_SCHEMA {
                    assert_eq!(64 + records.raw().len(), len as usize);
                }
                contents.records.extend(records.map(|record| (log, record)));
                (offset, len)
            }
            Item::Damage(damage) => {
                let span = (damage.offset, damage.len);
                contents.damages.push(damage);
                span
            }
        };
        spans.push((offset, len));
    }
    spans.sort_unstable();
    let mut end = 0;
    for (offset, len) in spans.into_iter().filter(|span| span.1 > 0) {
        assert_eq!(offset, end, "bytes from {end} on are in no item, or in two");
        end = offset + len;
    }
    assert_eq!(end, bytes.len() as u64, "the last bytes are in no item");
    contents
}

fn block_len(bytes: &[u8], offset: u64) -> u64 {
    Header::parse(&bytes[offset as usize..]).expect("a good block starts here").total_len
}
