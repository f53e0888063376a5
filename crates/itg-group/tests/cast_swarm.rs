//! Atomic broadcast under faults that each seed draws, with TO1–TO5 checked at every event.
//!
//! Without arguments: the smoke sweep, and every planted fault until it is found. `--seed S
//! [--mutant M] [--tail]` runs one seed, and prints its last events; `--seeds N [--from S] [--algorithm A]` a sweep;
//! `--mutants [N]` prints the table of faults and the seeds that it took to find them.

#![allow(clippy::print_stdout, reason = "a program of its own: it prints what it finds")]

mod casts;

use std::collections::BTreeMap;
use std::process::ExitCode;

use casts::order::Order;
use casts::world;
use itg_core::seed::RunSeed;
use itg_core::streams::below;
use itg_group::cast::{Mutant, Planted};
use itg_process::{MS, SECOND, Slot};
use itg_sim::{Exit, Fault, Kind, Swarm};

/// Virtual time in which everything may fail, and in which it must heal.
const SAFETY: u64 = 2 * SECOND;
const LIVENESS: u64 = 90 * SECOND;

/// Seeds of the smoke sweep.
const SMOKE: u64 = 100;
/// Situations that a sweep must have seen.
const SOMETIMES: [&str; 6] = [
    "snapshot used",
    "a batch of several",
    "a decision told with the next proposal",
    "an estimate that was adopted before",
    "decided in a round that was left",
    "a payload was missing",
];
/// Events that `--tail` prints.
const TAIL: usize = 300;

struct Found {
    text: String,
    violation: Option<String>,
    events: u64,
    delivered: u64,
    sometimes: BTreeMap<&'static str, u64>,
}

fn run(seed: u64, mutant: Option<Mutant>, tail: bool) -> Found {
    let seed_ = RunSeed(seed);
    let mut rng = seed_.named("shape");
    let n = 3 + u32::try_from(below(&mut rng, 5)).expect("small");
    let mean = 1 + below(&mut rng, 20);
    let rotate = [20, 60, 150][usize::try_from(below(&mut rng, 3)).expect("small")];
    let retain = [2, 64, 4096][usize::try_from(below(&mut rng, 3)).expect("small")];
    let (longest, inline) =
        [(100, 4096), (3000, 200)][usize::try_from(below(&mut rng, 2)).expect("small")];
    let pause = [4, 20, 100][usize::try_from(below(&mut rng, 3)).expect("small")];
    let network = format!("kind = \"random\"\nmean = \"{mean}ms\"");
    let layers = format!(
        "{{ layer = \"log\", trace = true, rotate = \"{rotate}ms\", retain = {retain}, inline_max = \
         {inline}, batch_msgs = 50 }}, \"rejoin\", {{ layer = \"chat\", until = \"2s\", pause = \"{pause}ms\", \
         longest = {longest} }}"
    );
    let planted = mutant.map_or_else(Planted::default, Planted::new);
    let mut world = world(n, &network, &layers, planted, seed);
    let swarm = Swarm::draw(seed_, n, SAFETY, &Kind::ALL, None, "log");
    // A minority may crash, and come back as others: the rest is a majority of every view.
    let first = u32::try_from(below(&mut rng, n.into())).expect("small");
    let crashes = move |slot: Slot| (slot.0 + n - first) % n < (n - 1) / 2;
    for (at, fault) in &swarm.faults {
        match fault {
            Fault::Crash(slot) | Fault::Recover(slot) if !crashes(*slot) => {}
            fault => world.fault_at(*at, fault.clone()),
        }
    }
    // Wrong suspicions, often.
    let often = [0, 3, 60][usize::try_from(below(&mut rng, 3)).expect("small")];
    for _ in 0..often {
        let at = below(&mut rng, SAFETY);
        let (who, whom) = (below(&mut rng, n.into()), below(&mut rng, n.into()));
        let [who, whom] = [who, whom].map(|slot| Slot(u32::try_from(slot).expect("small")));
        world.fault_at(at, Fault::Inject(who, "log", itg_process::Injected::Suspect(whom)));
    }
    world.check(Order::default());
    if tail {
        world.keep_events();
    }
    let mut exit = world.run(SAFETY);
    if exit == Exit::Until {
        world.heal(&(0..n).map(Slot).collect::<Vec<_>>());
        let from = world.now();
        // A little longer, so that what is said must be said again is seen to be said.
        exit = world.run(from + SECOND / 2);
        while exit == Exit::Until && !world.converged() && world.now() < from + LIVENESS {
            exit = world.run(world.now() + 500 * MS);
        }
    }
    let violation = world.finish().map(ToString::to_string);
    let events = world.take_events();
    for (at, slot, event) in &events[events.len().saturating_sub(TAIL)..] {
        println!("{at} {slot} {} {:?}", event.name, event.values);
    }
    let counts = world.counts();
    let text = format!(
        "seed {seed:#x}: {n} processes, mean {mean} ms, {swarm}, {often} suspicions; {exit:?} at {} ns, \
         {} events, hash {:016x}",
        world.now(),
        counts.events,
        world.hash()
    );
    Found {
        text,
        violation,
        events: counts.events,
        delivered: counts.delivered,
        sometimes: counts.sometimes.clone(),
    }
}

fn command(seed: u64, mutant: Option<Mutant>) -> String {
    let mutant = mutant.map_or_else(String::new, |mutant| format!(" --mutant {mutant:?}"));
    format!("cargo test -p itg-group --test cast_swarm -- --seed {seed:#x}{mutant}")
}

fn one(seed: u64, mutant: Option<Mutant>, tail: bool) -> bool {
    let found = run(seed, mutant, tail);
    println!("{}", found.text);
    if let Some(violation) = &found.violation {
        println!("{violation}\nreplay: {}", command(seed, mutant));
    }
    found.violation.is_none()
}

fn sweep(from: u64, seeds: u64) -> bool {
    let (mut events, mut well, mut seen) = (0, true, BTreeMap::new());
    let mut messages = 0;
    for seed in from..from + seeds {
        let found = run(seed, None, false);
        events += found.events;
        messages += found.delivered;
        for (name, count) in found.sometimes {
            *seen.entry(name).or_insert(0) += count;
        }
        if let Some(violation) = found.violation {
            well = false;
            println!("{}\n{violation}\nreplay: {}", found.text, command(seed, None));
        }
    }
    for name in SOMETIMES {
        if seeds >= SMOKE && !seen.contains_key(name) {
            well = false;
            println!("never seen: {name}");
        }
    }
    println!("{seeds} seeds from {from}: {events} events, {messages} messages; seen {seen:?}");
    well
}

fn hunt(mutant: Mutant, most: u64) -> bool {
    for seed in 0..most {
        if let Some(violation) = run(seed, Some(mutant), false).violation {
            println!("| {mutant:?} | {} | {violation} |", seed + 1);
            return true;
        }
    }
    println!("| {mutant:?} | not in {most} | |");
    false
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let value = |key: &str| {
        words
            .iter()
            .position(|word| word == key)
            .and_then(|at| words.get(at + 1))
            .map(String::as_str)
    };
    let number = |key| value(key).and_then(|text| text.parse::<RunSeed>().ok()).map(|seed| seed.0);
    let name = value("--mutant");
    let mutant =
        Mutant::ALL.into_iter().find(|mutant| name.is_some_and(|n| n == format!("{mutant:?}")));
    let well = if words.iter().any(|word| word == "--list") {
        println!("smoke: test");
        true
    } else if let Some(seed) = number("--seed") {
        one(seed, mutant, words.iter().any(|word| word == "--tail"))
    } else if let Some(seeds) = number("--seeds") {
        sweep(number("--from").unwrap_or(0), seeds)
    } else if let (Some(mutant), most) = (mutant, number("--most").unwrap_or(1000)) {
        hunt(mutant, most)
    } else {
        sweep(0, SMOKE)
    };
    if well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
