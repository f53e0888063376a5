//! The stack that users have (detector, broadcast, agreed membership, application) on disks with faults: any process
//! crashes and comes back, all of them at once, too, while casts and view changes go on.
//!
//! Each seed draws the size of the group, its network, its load, the kinds of faults and the instants of crashes.
//! Oracles see every event: views (V1–V12), order (TO1–TO5), deliveries (V2–V4), promises (P1–P8). Then everything
//! heals: all processes must be in one view and have delivered everything.
//!
//! Without arguments: a smoke sweep of each broadcast, seeds that failed once, and the planted faults, each until it is
//! found. `--seed S
//! [--algorithm A] [--mutant M] [--tail]` runs one seed, and prints its last events; `--seeds N [--from S]
//! [--algorithm A]` is a sweep, of all broadcasts without `--algorithm`; `--mutants N` prints the table of faults and
//! the seeds that it took to find them, and so does the word `mutant`.

#![allow(clippy::print_stdout, reason = "a program of its own: it prints what it finds")]

mod casts;
mod common;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};

use casts::order::Order;
use casts::promises::Promises;
use common::Watch;
use itg_core::seed::RunSeed;
use itg_core::streams::below;
use itg_group::cast::{self, CastEvent, Mutant, Planted};
use itg_group::check::Views;
use itg_group::membership::MembershipEvent;
use itg_group::{Rules, View, detector, membership};
use itg_process::{Config, LayerEvent as _, MS, Registry, SECOND, Slot};
use itg_sim::{DiskFault, Disks, Exit, Fault, Kind, Swarm, World};

/// Virtual time in which everything may fail, and in which it must heal.
const SAFETY: u64 = 4 * SECOND;
const LIVENESS: u64 = 120 * SECOND;
/// Seeds of the smoke sweep of each broadcast.
const SMOKE: u64 = 20;
/// Seeds that failed once, and the broadcast: each smoke run has them.
const FAILED_ONCE: [(u64, &str); 4] = [
    // Members that were let in and killed before they had a state; those that came back with a state did not know them.
    (0xb58, "log"),
    // The oracle of views: a member that made a view crashed after it had stored it, and before it could tell.
    (0x1e_bfe6, "log"),
    // Pieces of 64 bytes of a state of 2.6 MB.
    (0x1e_9c4a, "uniform-sequencer"),
    // A cut without what only others than its longest history kept: a member went on without it.
    (0x2d_d4aa, "uniform-sequencer"),
];
/// Seeds within which each planted fault must be found.
const MOST: u64 = 200;
/// Events that `--tail` prints.
const TAIL: usize = 300;

/// The broadcasts under test, as layers.
const ALGORITHMS: [&str; 3] = ["log", "uniform-sequencer", "uniform-skeen"];

/// Outcome of a seed.
struct Found {
    text: String,
    violation: Option<String>,
    events: u64,
    changes: u64,
    /// Everything healed, but a majority of the core had lost its disks.
    gone: bool,
    sometimes: BTreeMap<&'static str, u64>,
}

/// Situations that a sweep must have seen.
fn sometimes(algorithm: &str) -> Vec<&'static str> {
    let mut names = vec![
        CastEvent::JournalShortened.name(),
        MembershipEvent::SeveralChanges.name(),
        CastEvent::SnapshotInPieces.name(),
        "snapshot used",
    ];
    if algorithm == "log" {
        names.push(CastEvent::BackWithVote.name());
    }
    names
}

/// Draws of one seed.
struct Shape {
    rng: chacha20::ChaCha8Rng,
    n: u32,
}

impl Shape {
    fn below(&mut self, bound: u64) -> u64 {
        below(&mut self.rng, bound)
    }

    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[usize::try_from(self.below(of.len() as u64)).expect("small")]
    }

    fn slot(&mut self) -> Slot {
        Slot(u32::try_from(self.below(self.n.into())).expect("small"))
    }

    /// The stack of layers.
    fn layers(&mut self, algorithm: &str, seed: u64) -> String {
        let rotate = self.one(&[20, 60, 150]);
        let retain = self.one(&[2, 64, 4096]);
        let (longest, inline) = self.one(&[(100, 4096), (3000, 200)]);
        let pause = self.one(&[4, 20, 100]);
        let journal = [500, 20_000, 4_000_000][usize::try_from(seed % 3).expect("small")];
        let exclude = self.one(&[400, 1000, 3000]);
        // A piece takes a round trip, and cuts of long messages are megabytes.
        let short = if algorithm != "log" && longest > 100 { 2048 } else { 64 };
        let piece = self.one(&[short, 1 << 20]);
        format!(
            "{{ layer = \"detector\", exclude = \"{exclude}ms\", probe = \"{}ms\" }}, {{ layer = \"{algorithm}\", \
             trace = true, rotate = \"{rotate}ms\", retain = {retain}, inline_max = {inline}, batch_msgs = 50, \
             journal_bytes = {journal}, piece_bytes = {piece} }}, {{ layer = \"membership\", publish = false }}, {{ layer = \"chat\", \
             until = \"4s\", pause = \"{pause}ms\", longest = {longest}, \
             padding = 200 }}",
            exclude / 4,
        )
    }

    /// Disks, and crashes of any process: of some often, of all at once.
    fn disks(&mut self, world: &mut World, mutant: Option<Mutant>) {
        let sync_ns = self.one(&[MS / 10, 2 * MS, 20 * MS]);
        let is = |planted| mutant == Some(planted);
        let (early, unchecked) = (is(Mutant::EarlySend), is(Mutant::TornRecord));
        world.set_disks(Disks { sync_ns, early, unchecked });
        for _ in 0..self.one(&[0, 5, 40]) {
            let (who, at, down) = (self.slot(), self.below(SAFETY), 1 + self.below(200 * MS));
            world.fault_at(at, Fault::Crash(who));
            world.fault_at(at + down, Fault::Recover(who));
        }
        for _ in 0..self.below(4) {
            let (at, longest) = (self.below(SAFETY), 1 + self.below(400 * MS));
            for who in (0..self.n).map(Slot) {
                world.fault_at(at, Fault::Crash(who));
                world.fault_at(at + 1 + self.below(longest), Fault::Recover(who));
            }
        }
        // Some are away for so long that they are excluded.
        for _ in 0..self.below(3) {
            let (who, at, down) = (self.slot(), self.below(SAFETY / 2), self.below(3 * SECOND));
            world.fault_at(at, Fault::Crash(who));
            world.fault_at(at + SECOND + down, Fault::Recover(who));
        }
    }
}

/// A world of this stack, its faults, and what is told of it.
fn world(
    seed: u64,
    algorithm: &str,
    mutant: Option<Mutant>,
) -> (World, Arc<Mutex<Views>>, u32, String) {
    let mut shape = Shape { rng: RunSeed(seed).named("shape"), n: 0 };
    shape.n = 3 + u32::try_from(shape.below(5)).expect("small");
    let (n, mean) = (shape.n, 1 + shape.below(10));
    let layers = shape.layers(algorithm, seed);
    let text = format!(
        "processes = {n}\n[[network]]\nname = \"main\"\nkind = \"random\"\nmean = \"{mean}ms\"\n[[process]]\n\
         layers = [{layers}]\n"
    );
    let planted = mutant.map_or_else(Planted::default, Planted::new);
    let registry = casts::chat::layers(membership::layers(detector::layers(cast::layers(
        Registry::new(),
        planted,
    ))));
    let config = Config::parse(&text, "test.toml").expect("well written");
    let mut world = World::new(&config, &registry, RunSeed(seed)).expect("known layers");
    let kinds = Kind::ALL.into_iter().filter(|kind| *kind != Kind::Clocks);
    let kinds: Vec<_> = kinds.chain([Kind::Disk]).collect();
    let swarm = Swarm::draw(RunSeed(seed), n, SAFETY, &kinds, None, "detector");
    shape.disks(&mut world, mutant);
    world.set_buggify(swarm.buggify);
    // One process may lose its disk, and be another one afterwards.
    let lossy = shape.slot();
    for (at, fault) in &swarm.faults {
        match fault {
            Fault::Disk(slot, DiskFault::Lost) if *slot != lossy => {}
            fault => world.fault_at(*at, fault.clone()),
        }
    }
    let views = Arc::new(Mutex::new(Views::new(View::first(n, Rules::default()))));
    world.check(Watch(Arc::clone(&views), Arc::default()));
    world.check(Order::default());
    world.check(Promises::of(algorithm));
    (world, views, n, format!("{n} processes, mean {mean} ms, {swarm}"))
}

fn run(seed: u64, algorithm: &'static str, mutant: Option<Mutant>, tail: bool) -> Found {
    let (mut world, views, n, text) = world(seed, algorithm, mutant);
    if tail {
        world.keep_events();
    }
    let mut exit = world.run(SAFETY);
    let all = |views: &Arc<Mutex<Views>>| {
        let views = views.lock().expect("one thread");
        views.agreed().is_ok_and(|view| view.len() == n)
    };
    if matches!(exit, Exit::Until | Exit::Idle) {
        world.heal(&(0..n).map(Slot).collect::<Vec<_>>());
        let from = world.now();
        exit = world.run(from + SECOND / 2);
        while exit == Exit::Until
            && !(world.converged() && all(&views))
            && world.now() < from + LIVENESS
        {
            exit = world.run(world.now() + 500 * MS);
        }
    }
    let gone = views.lock().expect("one thread").majority_is_gone();
    // Nothing is demanded of a group that has forgotten itself, but for safety.
    let mut violation = world.violation().map(ToString::to_string);
    if violation.is_none() && !gone {
        violation = world.finish().map(ToString::to_string);
        let missing = format!("not all of the {n} processes are in the view");
        violation = violation.or_else(|| (!all(&views)).then_some(missing));
    }
    let events = world.take_events();
    let events: Vec<_> = events
        .into_iter()
        .filter(|(.., event)| {
            event.name != CastEvent::Kept { decisions: 0, waiting: 0, instance: 0 }.name()
        })
        .collect();
    for (at, slot, event) in &events[events.len().saturating_sub(TAIL)..] {
        println!("{at} {slot} {} {:?}", event.name, event.values);
    }
    let counts = world.counts();
    let (at, hash, changes) =
        (world.now(), world.hash(), views.lock().expect("one thread").changes());
    Found {
        text: format!(
            "seed {seed:#x}: {algorithm}, {text}; {exit:?} at {at} ns, {changes} view changes, {} events, hash \
             {hash:016x}",
            counts.events
        ),
        violation,
        events: counts.events,
        changes,
        gone,
        sometimes: counts.sometimes.clone(),
    }
}

fn command(seed: u64, algorithm: &str, mutant: Option<Mutant>) -> String {
    let mutant = mutant.map_or_else(String::new, |mutant| format!(" --mutant {mutant:?}"));
    format!(
        "cargo test -p itg-group --test group_swarm -- --seed {seed:#x} --algorithm {algorithm}{mutant}"
    )
}

fn one(seed: u64, algorithm: &'static str, mutant: Option<Mutant>, tail: bool) -> bool {
    let found = run(seed, algorithm, mutant, tail);
    println!("{}", found.text);
    if let Some(violation) = &found.violation {
        println!("{violation}\nreplay: {}", command(seed, algorithm, mutant));
    }
    found.violation.is_none()
}

fn sweep(from: u64, seeds: u64, algorithm: &'static str) -> bool {
    let (mut events, mut changes, mut gone, mut bad) = (0, 0, 0, 0_u64);
    let mut seen = BTreeMap::new();
    for seed in from..from + seeds {
        let found = run(seed, algorithm, None, false);
        events += found.events;
        changes += found.changes;
        gone += u64::from(found.gone);
        for (name, count) in found.sometimes {
            *seen.entry(name).or_insert(0) += count;
        }
        if let Some(violation) = found.violation {
            bad += 1;
            println!("{}\n{violation}\nreplay: {}", found.text, command(seed, algorithm, None));
        }
    }
    for name in sometimes(algorithm) {
        if seeds >= SMOKE && !seen.contains_key(name) {
            bad += 1;
            println!("never seen: {name}");
        }
    }
    println!(
        "{algorithm}: {seeds} seeds from {from}: {bad} violations, {events} events, {changes} view changes, {gone} \
         ended without a majority of the core; seen {seen:?}"
    );
    bad == 0 && gone <= seeds / 20
}

/// Broadcasts in which a fault is looked for; none if it is of another test.
const fn homes(mutant: Mutant) -> &'static [&'static str] {
    match mutant {
        Mutant::VoteNotReplayed
        | Mutant::StateNotStored
        | Mutant::CastNotStored
        | Mutant::SeenForgotten
        | Mutant::DecisionNotReplayed => &["log"],
        Mutant::StampNotStored => &["uniform-skeen"],
        Mutant::FenceNotStored => &["uniform-sequencer", "uniform-skeen"],
        Mutant::OrderNotStored
        | Mutant::OwnCastNotStored
        | Mutant::HeldNotStored
        | Mutant::HistoryNotKept
        | Mutant::FenceDropped
        | Mutant::OrdersDropped => &["uniform-sequencer"],
        _ => &[],
    }
}

fn hunt(mutant: Mutant, algorithm: &'static str, most: u64) -> bool {
    for seed in 0..most {
        if let Some(violation) = run(seed, algorithm, Some(mutant), false).violation {
            println!("| {mutant:?} | {algorithm} | {} | {violation} |", seed + 1);
            return true;
        }
    }
    println!("| {mutant:?} | {algorithm} | not in {most} | |");
    false
}

fn hunts(most: u64) -> bool {
    println!("| fault | broadcast | seeds | found as |\n|---|---|---|---|");
    let hunted = Mutant::ALL.into_iter().flat_map(|m| homes(m).iter().map(move |home| (m, *home)));
    let found: Vec<bool> = hunted.map(|(mutant, home)| hunt(mutant, home, most)).collect();
    found.into_iter().all(|found| found)
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let value = |key: &str| {
        let at = words.iter().position(|word| word == key)?;
        words.get(at + 1).map(String::as_str)
    };
    let number = |key| value(key).and_then(|text| text.parse::<RunSeed>().ok()).map(|seed| seed.0);
    let has = |key: &str| words.iter().any(|word| word == key);
    let named = |mutant: &Mutant| value("--mutant").is_some_and(|n| n == format!("{mutant:?}"));
    let mutant = Mutant::ALL.into_iter().find(named);
    let algorithm = ALGORITHMS.into_iter().find(|name| value("--algorithm") == Some(name));
    let well = if has("--list") {
        println!("smoke: test");
        true
    } else if let Some(seed) = number("--seed") {
        one(seed, algorithm.unwrap_or(ALGORITHMS[0]), mutant, has("--tail"))
    } else if let Some(seeds) = number("--seeds") {
        let from = number("--from").unwrap_or(0);
        let algorithms = algorithm.map_or_else(|| ALGORITHMS.to_vec(), |one| vec![one]);
        let swept: Vec<bool> = algorithms.into_iter().map(|one| sweep(from, seeds, one)).collect();
        swept.into_iter().all(|well| well)
    } else if has("--mutants") || has("mutant") {
        // The word selects the tests of faults of all programs.
        hunts(number("--mutants").unwrap_or(MOST))
    } else {
        let swept = ALGORITHMS.map(|algorithm| sweep(0, SMOKE, algorithm));
        let again = FAILED_ONCE.map(|(seed, algorithm)| one(seed, algorithm, None, false));
        hunts(MOST) && swept.into_iter().chain(again).all(|well| well)
    };
    if well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
