//! Decoding a million records: checking the blocks, adding up all metrics, making the report.
#![allow(missing_docs, reason = "criterion's macros make public functions")]

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use itg_record::{ReceivedPacket, Record, SentPacket, Side};
use itg_stats::{Analysis, Options};
use itg_testkit::logs::{EPOCH, Setup, TestLog, spec};

const RECORDS: u64 = 1_000_000;

/// A log of one flow at constant inter-departure times of 10 us: `record` says what was seen of
/// packet k.
fn log(side: Side, record: impl Fn(u64) -> Option<Record>) -> Vec<u8> {
    let mut log = TestLog::of(Setup { block_records: 4096, ..Setup::new(side, "b") });
    log.flow(0, &spec(1, "constant(10us)", "constant(512)", RECORDS), ["b", "b"]);
    log.records((0..RECORDS).filter_map(record));
    log.finish()
}

fn decode(c: &mut Criterion) {
    let sent_at = |k: u64| EPOCH + k * 10_000 + k * k % 3_001;
    let sender = log(Side::Sender, |k| {
        Some(Record::sent(SentPacket {
            flow: 0,
            seq: k,
            size: 512,
            planned_ns: k * 10_000,
            sent_ns: sent_at(k),
        }))
    });
    let receiver = log(Side::Receiver, |k| {
        // One packet in 127 lost, delays that wander.
        let arrived = sent_at(k) + 20_000 + k * 7919 % 40_009;
        let record = Record::received(ReceivedPacket {
            flow: 0,
            seq: k,
            size: 512,
            sent_ns: sent_at(k),
            arrived_ns: arrived,
            read_ns: arrived + 900,
            ttl: 64,
            tos: 0,
        });
        (k % 127 != 5).then_some(record)
    });
    let mut group = c.benchmark_group("decode");
    group.sample_size(20);
    for (name, logs) in [
        ("sender", vec![&sender]),
        ("receiver", vec![&receiver]),
        ("both", vec![&sender, &receiver]),
    ] {
        group.throughput(Throughput::Elements(RECORDS * logs.len() as u64));
        group.bench_function(name, |b| {
            b.iter(|| {
                let mut analysis = Analysis::new(Options::default());
                for log in &logs {
                    analysis.add_log(black_box(log), name).expect("a good log");
                }
                analysis.finish()
            });
        });
    }
    group.finish();
}

/// The report's text of many flows: the time of each flow is the same, however many there are.
fn text(c: &mut Criterion) {
    let mut group = c.benchmark_group("text");
    group.sample_size(10);
    for flows in [1_000, 4_000, 16_000] {
        let [mut sender, mut receiver] =
            [Side::Sender, Side::Receiver].map(|side| TestLog::of(Setup::new(side, "b")));
        for index in 0..flows {
            let spec = spec(index + 1, "constant(10us)", "constant(512)", 1);
            sender.flow(index, &spec, ["b", "b"]);
            receiver.flow(index, &spec, ["b", "b"]);
        }
        let mut analysis = Analysis::new(Options::default());
        let logs = [sender.finish(), receiver.finish()];
        for log in &logs {
            analysis.add_log(log, "many").expect("a good log");
        }
        let report = analysis.finish();
        group.throughput(Throughput::Elements(flows.into()));
        group.bench_function(flows.to_string(), |b| {
            b.iter(|| itg_stats::text::render(black_box(&report)));
        });
    }
    group.finish();
}

criterion_group!(benches, decode, text);
criterion_main!(benches);
