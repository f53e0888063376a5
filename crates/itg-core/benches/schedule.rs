//! Cost of the next departure of a schedule, and of finding a packet by its number.
#![allow(missing_docs, reason = "criterion's macros make undocumented functions")]

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use itg_core::distribution::Distribution;
use itg_core::flow::{Flow, FlowSpec, OnOff};
use itg_core::schedule::Checkpoints;
use itg_core::seed::RunSeed;

fn flow(edit: impl FnOnce(&mut FlowSpec)) -> Flow {
    let mut spec = FlowSpec::new(1);
    edit(&mut spec);
    Flow::resolve(spec, RunSeed(42)).expect("a flow that can be run")
}

fn departures(c: &mut Criterion) {
    let mut group = c.benchmark_group("next_departure");
    let exp = |spec: &mut FlowSpec| spec.idt = Distribution::Exp { mean: 1e5 };
    let flows = [
        ("constant", flow(|_| {})),
        ("exp", flow(exp)),
        (
            "exp, uniform sizes",
            flow(|spec| {
                exp(spec);
                spec.size = Distribution::Uniform { lo: 64.0, hi: 1400.0 };
            }),
        ),
        (
            "exp, on-off",
            flow(|spec| {
                exp(spec);
                let (on, off) = (Distribution::Exp { mean: 1e7 }, Distribution::Exp { mean: 1e7 });
                spec.on_off = Some(OnOff { on, off });
            }),
        ),
    ];
    for (name, flow) in &flows {
        let mut schedule = flow.schedule();
        group.bench_function(*name, |b| b.iter(|| black_box(schedule.advance())));
    }
    group.finish();
    let mut checkpoints = Checkpoints::new(&flows[1].1);
    assert!(checkpoints.from(5_000_000).is_some());
    c.bench_function("packet 4 999 999 by number", |b| {
        b.iter(|| black_box(checkpoints.from(4_999_999)));
    });
}

criterion_group!(benches, departures);
criterion_main!(benches);
