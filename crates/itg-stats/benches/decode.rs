//! Decoding a million records: checking the blocks, adding up all metrics, making the report.
#![allow(missing_docs, reason = "criterion's macros make public functions")]

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use itg_core::flow::FlowSpec;
use itg_record::{BlockBuf, FlowInfo, LogBuilder, LogInfo, Note, Record, Side};
use itg_stats::{Analysis, Options};

const RECORDS: u64 = 1_000_000;

/// A log of one flow at constant gaps of 10 us: `record` says what was seen of packet k.
fn log(side: Side, record: impl Fn(u64) -> Option<Record>) -> Vec<u8> {
    let mut builder = LogBuilder::new(1);
    let mut bytes = builder.note(&Note::Log(LogInfo {
        schema: 1,
        side,
        program: "bench".to_owned(),
        version: String::new(),
        host: String::new(),
        os: String::new(),
        boot_id: "b".to_owned(),
        pid: 1,
        started_unix_ns: 0,
        run: String::new(),
        seed: None,
        settings: [].into(),
        block_records: 4096,
    }));
    let mut spec = FlowSpec::new(1);
    spec.idt = itg_core::law::Law::Constant(10_000.0);
    bytes.extend(builder.note(&Note::Flow(FlowInfo {
        changes: Vec::new(),
        index: 0,
        flow: 1,
        run: "r".to_owned(),
        seed: 1,
        spec,
        src: String::new(),
        dst: String::new(),
        epoch_unix_ns: 1_000_000_000,
        sender_boot_id: "b".to_owned(),
        receiver_boot_id: "b".to_owned(),
        notices: vec![],
    })));
    let mut block = BlockBuf::new(4096);
    for record in (0..RECORDS).filter_map(record) {
        if block.is_full() {
            bytes.extend(builder.seal(&mut block));
            block.clear();
        }
        block.push(&record);
    }
    bytes.extend(builder.seal(&mut block));
    bytes.extend(builder.end(0));
    bytes
}

fn decode(c: &mut Criterion) {
    let sent_at = |k: u64| 1_000_000_000 + k * 10_000 + k * k % 3_001;
    let sender = log(Side::Sender, |k| Some(Record::sent(0, k, 512, k * 10_000, sent_at(k))));
    let receiver = log(Side::Receiver, |k| {
        // One packet in 127 lost, delays that wander.
        let arrived = sent_at(k) + 20_000 + k * 7919 % 40_009;
        let record = Record::received(0, k, 512, sent_at(k), arrived, arrived + 900, 64, 0);
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

criterion_group!(benches, decode);
criterion_main!(benches);
