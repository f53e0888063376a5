//! Speed of the log: appending records in place, sealing included, reading them back, and the same
//! of compacted logs.

use std::hint::black_box;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use itg_core::distribution::Distribution;
use itg_core::flow::{Flow, FlowSpec};
use itg_core::header::PacketHeader;
use itg_core::pacing::Pacer;
use itg_core::schedule::Departure;
use itg_core::seed::RunSeed;
use itg_record::{
    BlockBuf, Item, LogBuilder, LogReader, ReceivedPacket, Record, SentPacket, compact,
};

const BLOCK_RECORDS: usize = 1600;
const RECORDS: u32 = 1_000_000;

fn record(k: u32) -> Record {
    let t = u64::from(k) * 1_000;
    Record::received(ReceivedPacket {
        flow: k % 64,
        seq: u64::from(k),
        size: 512,
        sent_ns: t,
        arrived_ns: t + 80_000,
        read_ns: t + 95_000,
        ttl: 64,
        tos: 0,
    })
}

/// As a receiver sees a constant rate: inter-arrival times and delays with the jitter of a real host.
fn jittery(k: u32) -> Record {
    let mut noise = u64::from(k).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    noise ^= noise >> 29;
    noise = noise.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let sent = 1_795_000_000_000_000_000 + u64::from(k) * 100_000 + noise % 400;
    let arrived = sent + 40_000 + (noise >> 16) % 900;
    let read = arrived + 4_500 + (noise >> 32) % 300 + u64::from(k.is_multiple_of(37)) * 11_000;
    Record::received(ReceivedPacket {
        flow: 1,
        seq: u64::from(k),
        size: 512,
        sent_ns: sent,
        arrived_ns: arrived,
        read_ns: read,
        ttl: 64,
        tos: 0,
    })
}

/// A log of a million records, without notes.
fn log(record: fn(u32) -> Record) -> Vec<u8> {
    let mut builder = LogBuilder::new(1);
    let mut buf = BlockBuf::new(BLOCK_RECORDS);
    let mut bytes = Vec::new();
    for k in 0..RECORDS {
        buf.push(&record(k));
        if buf.is_full() || k + 1 == RECORDS {
            bytes.extend_from_slice(builder.seal(&mut buf));
            buf.clear();
        }
    }
    bytes.extend_from_slice(&builder.end(0));
    bytes
}

fn append(c: &mut Criterion) {
    let mut group = c.benchmark_group("append");
    group.throughput(Throughput::Elements(u64::from(RECORDS)));
    group.bench_function("records in place, sealed in blocks of 1600", |b| {
        b.iter_batched_ref(
            || (LogBuilder::new(1), BlockBuf::new(BLOCK_RECORDS)),
            |(builder, buf)| {
                for k in 0..black_box(RECORDS) {
                    buf.push(&record(k));
                    if buf.is_full() {
                        black_box(builder.seal(buf));
                        buf.clear();
                    }
                }
            },
            BatchSize::LargeInput,
        );
    });
    group.finish();
}

fn read(c: &mut Criterion) {
    let mut group = c.benchmark_group("read");
    group.throughput(Throughput::Elements(u64::from(RECORDS)));
    let compacted = compact(&log(jittery)).collect::<Vec<_>>().concat();
    for (name, bytes) in [
        ("checked blocks, every record looked at", log(record)),
        ("the same, compacted", compacted),
    ] {
        group.bench_function(name, |b| {
            b.iter(|| {
                let mut sum = 0_u64;
                for item in LogReader::new(black_box(&bytes)) {
                    if let Item::Records { records, .. } = item {
                        sum += records.map(|r| r.b - r.a + u64::from(r.size) + r.seq).sum::<u64>();
                    }
                }
                sum
            });
        });
    }
    group.finish();
}

fn columns(c: &mut Criterion) {
    let mut group = c.benchmark_group("compact");
    group.sample_size(10);
    group.throughput(Throughput::Elements(u64::from(RECORDS)));
    for (name, record) in
        [("one flow, jittery", jittery as fn(u32) -> Record), ("64 flows", record)]
    {
        let bytes = log(record);
        group.bench_function(name, |b| {
            b.iter(|| compact(black_box(&bytes)).map(|piece| piece.len()).sum::<usize>());
        });
    }
    group.finish();
}

/// Measures the work of a sender for a packet beside the system call: its time and size from the plan, its
/// header, its record.
fn packet(c: &mut Criterion) {
    let mut group = c.benchmark_group("packet");
    group.throughput(Throughput::Elements(u64::from(RECORDS)));
    for (name, idt, burst) in [
        ("paced and logged, constant gaps", Distribution::Constant(1_000.0), None),
        ("paced and logged, exponential gaps", Distribution::Exp { mean: 1_000.0 }, None),
        ("paced and logged, bursts of 64", Distribution::Constant(1_000.0), Some(64)),
    ] {
        let mut spec = FlowSpec::new(1);
        (spec.idt, spec.burst) = (idt, burst);
        let flow = Flow::resolve(spec, RunSeed(1)).expect("a flow that can be run");
        group.bench_function(name, |b| {
            b.iter_batched_ref(
                || (LogBuilder::new(1), BlockBuf::new(BLOCK_RECORDS), Pacer::new(&flow)),
                |(builder, buf, pacer)| {
                    let mut head = [0; 20];
                    let mut batch = Vec::with_capacity(64);
                    let mut left = RECORDS as usize;
                    while left > 0 {
                        let now = pacer.next_ns().expect("endless") + 63_000;
                        batch.clear();
                        while batch.len() < left.min(64)
                            && let Some(packet) = pacer.take(now)
                        {
                            PacketHeader::write(7, packet.seq, now, packet.size, &mut head);
                            black_box(&head);
                            batch.push(packet);
                        }
                        left -= batch.len();
                        let together = |a: &Departure, b: &Departure| {
                            burst.is_some() && (a.due_ns, a.size) == (b.due_ns, b.size)
                        };
                        for run in batch.chunk_by(together) {
                            let Departure { seq, size, due_ns } = run[0];
                            buf.push_run(
                                &Record::sent(SentPacket {
                                    flow: 1,
                                    seq,
                                    size,
                                    planned_ns: due_ns,
                                    sent_ns: now,
                                }),
                                run.len(),
                            );
                            if buf.is_full() {
                                black_box(builder.seal(buf));
                                buf.clear();
                            }
                        }
                    }
                },
                BatchSize::LargeInput,
            );
        });
    }
    group.finish();
}

criterion_group!(benches, packet, append, read, columns);
criterion_main!(benches);
