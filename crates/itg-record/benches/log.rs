//! Speed of the log: appending records in place, sealing included, and reading them back.

use std::hint::black_box;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use itg_record::{BlockBuf, Item, LogBuilder, LogReader, Record};

const BLOCK_RECORDS: usize = 1600;
const RECORDS: u32 = 1_000_000;

fn record(k: u32) -> Record {
    let t = u64::from(k) * 1_000;
    Record::received(k % 64, u64::from(k), 512, t, t + 80_000, t + 95_000, 64, 0)
}

/// A log of a million records, without notes.
fn log() -> Vec<u8> {
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
    let bytes = log();
    let mut group = c.benchmark_group("read");
    group.throughput(Throughput::Elements(u64::from(RECORDS)));
    group.bench_function("checked blocks, every record looked at", |b| {
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
    group.finish();
}

criterion_group!(benches, append, read);
criterion_main!(benches);
