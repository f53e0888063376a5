//! How many events a second the simulator handles on one core, and how much faster than time it is.
//!
//! `cargo bench -p itg-sim` prints a table; numbers are medians of five runs.

#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
#![allow(clippy::print_stdout, reason = "a benchmark prints its table")]

use std::time::Instant;

use itg_core::seed::RunSeed;
use itg_process::{Config, Ctx, Layer, MS, Message, Registry, SECOND, Slot, TimerId, farm};
use itg_sim::{Agenda, Class, Fault, World};

/// Sends a token to the next process whenever it gets one.
struct Ring;

impl Layer for Ring {
    fn on_start(&mut self, cx: &mut Ctx<'_>) {
        let next = Slot((cx.me().0 + 1) % cx.capacity());
        cx.down(Message::new(next, 1, ""));
    }

    fn deliver(&mut self, message: Message, cx: &mut Ctx<'_>) {
        let next = Slot((cx.me().0 + 1) % cx.capacity());
        cx.down(Message { dst: next.into(), ..message });
    }
}

/// A timer each millisecond.
struct Tick;

impl Layer for Tick {
    fn on_start(&mut self, cx: &mut Ctx<'_>) {
        cx.set_timer_after(MS);
    }

    fn timer(&mut self, _id: TimerId, cx: &mut Ctx<'_>) {
        cx.set_timer_after(MS);
    }
}

fn world(text: &str) -> World {
    let registry = farm::layers(Registry::new())
        .with("ring", |_| Ok(Box::new(Ring)))
        .with("tick", |_| Ok(Box::new(Tick)));
    let config = Config::parse(text, "bench").expect("well written");
    World::new(&config, &registry, RunSeed(1)).expect("known layers")
}

/// Median of five runs: events, virtual nanoseconds, seconds.
fn measure(mut run: impl FnMut() -> (u64, u64)) -> (u64, u64, f64) {
    let mut runs: Vec<_> = (0..5)
        .map(|_| {
            let start = Instant::now();
            let (events, virtual_ns) = run();
            (events, virtual_ns, start.elapsed().as_secs_f64())
        })
        .collect();
    runs.sort_by(|a, b| a.2.total_cmp(&b.2));
    runs[2]
}

fn show(name: &str, (events, virtual_ns, seconds): (u64, u64, f64)) {
    let rate = events as f64 / seconds / 1e6;
    let acceleration = virtual_ns as f64 / 1e9 / seconds;
    println!("{name:<44} {events:>10} {seconds:>8.3} {rate:>9.2} {acceleration:>12.0}");
}

fn main() {
    println!("{:<44} {:>10} {:>8} {:>9} {:>12}", "", "events", "s", "M/s", "× real time");
    let heap = || {
        let mut agenda = Agenda::default();
        (0..1000_u64).for_each(|k| agenda.push(k * 7919 % 1000, Class::World, k));
        for _ in 0..2_000_000 {
            if let Some((at, k)) = agenda.pop() {
                agenda.push(at + 1 + k * 7919 % 1000, Class::World, k);
            }
        }
        (2_000_000, 0)
    };
    show("heap alone, 1000 events wait", measure(heap));
    let layers = |processes: u32, network: &str, layer: &str| {
        format!(
            "processes = {processes}\n[[network]]\nname = \"main\"\n{network}\n[[process]]\nlayers = \
             [\"{layer}\"]"
        )
    };
    let run = |text: &str, until: u64| {
        let mut world = world(text);
        world.run(until);
        (world.counts().events, world.now())
    };
    let ticks = layers(100, "kind = \"fixed\"", "tick");
    show("timers, 100 processes", measure(|| run(&ticks, 10 * SECOND)));
    for (name, network) in [
        ("messages, fixed delay, 100 processes", "kind = \"fixed\""),
        ("messages, random delay, 100 processes", "kind = \"random\""),
        ("messages, switch, 100 processes", "kind = \"switch\""),
    ] {
        let text = layers(100, network, "ring");
        show(name, measure(|| run(&text, 10 * SECOND)));
    }
    let text = farm::configuration(5, 20_000, "kind = \"random\"");
    let with_faults = || {
        let mut world = world(&text);
        world.fault_at(SECOND, Fault::Crash(Slot(1)));
        world.fault_at(9 * SECOND, Fault::Recover(Slot(1)));
        world.run(100 * SECOND);
        (world.counts().events, world.now())
    };
    show("farm of 5 processes with a crash", measure(with_faults));
    let many = layers(10_000, "kind = \"random\"", "ring");
    show("messages, random delay, 10 000 processes", measure(|| run(&many, 100 * MS)));
}
