//! Time of one draw of each distribution, by random access with packet numbers going up; and of the
//! places themselves.

#![allow(missing_docs, reason = "made by the macros of criterion")]

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use itg_core::distribution::{Distribution, Unit};
use itg_core::seed::{Purpose, RunSeed};
use rand::Rng as _;

const LAWS: [&str; 16] = [
    "constant(1.7857142857142857s)",
    "uniform(2ms, 7ms)",
    "exp(10ms)",
    "normal(50ms, 5ms)",
    "lognormal(10ms, 0.5)",
    "pareto(1.5, 2ms)",
    "cauchy(20ms, 1ms)",
    "student(40ms, 1ms, 0.7)",
    "gamma(4.5, 2ms)",
    "weibull(0.7, 10ms)",
    "poisson(3ms)",
    "poisson(500ms)",
    "discrete(1ms:5, 2ms:3, 3ms:2)",
    "mix(0.6:exp(4.29ms), 0.4:constant(10.75ms))",
    "empirical(table)",
    "trunc(exp(10ms), 5ms, 30ms)",
];

fn draws(c: &mut Criterion) {
    let mut group = c.benchmark_group("draw");
    for text in LAWS {
        let mut distribution = Distribution::parse(text, Unit::Time).expect("a distribution");
        distribution.load("table", "unit: us\n1\n2\n3\n5\n8\n13\n21\n34").expect("a table");
        let distribution = distribution.resolve(Unit::Time, 0.0, f64::INFINITY).expect("usable");
        let mut stream = RunSeed(42).stream(1, Purpose::Idt);
        let mut k = 0;
        group.bench_function(text, |b| {
            b.iter(|| {
                k += 1;
                distribution.sample(&mut stream, black_box(k))
            });
        });
    }
    group.finish();
    let mut stream = RunSeed(42).stream(1, Purpose::Idt);
    let mut k = 0;
    c.bench_function("place", |b| {
        b.iter(|| {
            k += 1;
            stream.at(black_box(k), 0).next_u64()
        });
    });
}

criterion_group!(benches, draws);
criterion_main!(benches);
