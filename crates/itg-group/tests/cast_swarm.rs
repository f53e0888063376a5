//! Atomic broadcast under faults that each seed draws, with TO1–TO5 checked at every event.
//!
//! Some faults need the right moment: `directed` runs cut the group and exclude, or cut it and restart,
//! at instants that belong together. The algorithm `journal` is the log on disks with faults, where any process
//! crashes and comes back, all of them at once, too.
//!
//! Without arguments: the smoke sweep, and some planted faults until they are found. `--seed S
//! [--algorithm A] [--mutant M] [--tail]` runs one seed, and prints its last events; `--seeds N
//! [--from S] [--algorithm A]` is a sweep, of all four without `--algorithm`; `--directed N [--from S]` is a
//! sweep of directed runs; `--mutants N` prints the table of faults and the seeds that it took to find them, and so
//! does the word `mutant`.

#![allow(clippy::print_stdout, reason = "a program of its own: it prints what it finds")]

mod casts;

use std::collections::BTreeMap;
use std::process::ExitCode;

use casts::chat::ChatEvent;
use casts::order::Order;
use casts::world;
use itg_core::seed::RunSeed;
use itg_core::streams::below;
use itg_group::cast::{CastEvent, CastRequest, Mutant, Planted};
use itg_group::{Changes, Member, ViewChange};
use itg_process::{Event, Injected, LayerEvent as _, MS, SECOND, Slot};
use itg_sim::{DiskFault, Disks, Exit, Fault, Kind, Swarm, World};

/// Virtual time in which everything may fail, and in which it must heal.
const SAFETY: u64 = 2 * SECOND;
const LIVENESS: u64 = 90 * SECOND;

/// Seeds of the smoke sweep.
const SMOKE: u64 = 60;
/// Seeds of larger sweeps that have found something: a member whose log was behind took a snapshot in the middle of
/// an epoch, and with it forgot the numbers that it held; a cut was put together from a flush that had become older
/// than what others kept, and what lay between was left out; of many numbers only the lowest were said again, and
/// the one that all waited for was not among them.
const FOUND: [(u64, &str); 4] = [
    (0x10_caaa, ALGORITHMS[2]),
    (0x3d_1b66, ALGORITHMS[1]),
    (0x3d_1574, ALGORITHMS[1]),
    (0x3d_2722, ALGORITHMS[2]),
];
/// Situations that a sweep must have seen.
fn sometimes() -> [&'static str; 6] {
    [
        ChatEvent::SnapshotUsed.name(),
        CastEvent::BatchOfSeveral.name(),
        CastEvent::DecisionWithProposal.name(),
        CastEvent::AdoptedBefore.name(),
        CastEvent::DecidedInLeftRound.name(),
        CastEvent::PayloadMissing.name(),
    ]
}
/// Events that `--tail` prints.
const TAIL: usize = 300;

struct Found {
    text: String,
    violation: Option<String>,
    events: u64,
    delivered: u64,
    sometimes: BTreeMap<&'static str, u64>,
}

/// Name of the directed runs, which are of the log.
const DIRECTED: &str = "directed";

/// The broadcasts under test, as layers.
const ALGORITHMS: [&str; 4] = ["log", "uniform-sequencer", "uniform-skeen", JOURNAL];
/// Name of the runs of the log on disks.
const JOURNAL: &str = "journal";

/// Disks, and crashes of any process: of some often, of all at once.
fn disks(world: &mut World, (seed, n): (u64, u32), mutant: Option<Mutant>) {
    let mut rng = RunSeed(seed).named("disks");
    let mut pick = |bound: u64| below(&mut rng, bound);
    let sync_ns = [MS / 10, 2 * MS, 20 * MS][usize::try_from(pick(3)).expect("small")];
    let (early, unchecked) =
        (mutant == Some(Mutant::EarlySend), mutant == Some(Mutant::TornRecord));
    world.set_disks(Disks { sync_ns, early, unchecked });
    let slot = |number: u64| Slot(u32::try_from(number).expect("small"));
    for _ in 0..[0, 5, 40][usize::try_from(pick(3)).expect("small")] {
        let (who, at, down) = (slot(pick(n.into())), pick(SAFETY), 1 + pick(200 * MS));
        world.fault_at(at, Fault::Crash(who));
        world.fault_at(at + down, Fault::Recover(who));
    }
    for _ in 0..pick(4) {
        let (at, longest) = (pick(SAFETY), 1 + pick(400 * MS));
        for who in 0..n {
            world.fault_at(at, Fault::Crash(Slot(who)));
            world.fault_at(at + 1 + pick(longest), Fault::Recover(Slot(who)));
        }
    }
}

/// Runs with faults, and then in peace until all have what they should have.
fn run_and_heal(world: &mut World, n: u32) -> Exit {
    let mut exit = world.run(SAFETY);
    if matches!(exit, Exit::Until | Exit::Idle) {
        world.heal(&(0..n).map(Slot).collect::<Vec<_>>());
        let from = world.now();
        // A little longer, so that what is said must be said again is seen to be said.
        exit = world.run(from + SECOND / 2);
        while exit == Exit::Until && !world.converged() && world.now() < from + LIVENESS {
            exit = world.run(world.now() + 500 * MS);
        }
    }
    exit
}

/// Prints the last events.
fn print_tail(events: &[(u64, Slot, Event)]) {
    for (at, slot, event) in &events[events.len().saturating_sub(TAIL)..] {
        println!("{at} {slot} {} {:?}", event.name, event.values);
    }
}

fn run(seed: u64, algorithm: &'static str, mutant: Option<Mutant>, tail: bool) -> Found {
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
    let stored = algorithm == JOURNAL;
    let layer = if stored { "log" } else { algorithm };
    let journal_bytes = [500, 20_000, 4_000_000][usize::try_from(seed % 3).expect("small")];
    let layers = format!(
        "{{ layer = \"{layer}\", trace = true, rotate = \"{rotate}ms\", retain = {retain}, inline_max = \
         {inline}, batch_msgs = 50, journal_bytes = {journal_bytes} }}, \"rejoin\", {{ layer = \"chat\", until = \"2s\", pause = \"{pause}ms\", \
         longest = {longest} }}"
    );
    let planted = mutant.map_or_else(Planted::default, Planted::new);
    let mut world = world(n, &network, &layers, planted, seed);
    // The uniform forms exclude suspects: a process that is suspected wrongly counts as crashed.
    let uniform = layer != "log";
    let disk = stored.then_some(Kind::Disk);
    let kinds = Kind::ALL.into_iter().filter(|kind| !uniform || *kind != Kind::Suspicion);
    let kinds: Vec<_> = kinds.chain(disk).collect();
    let swarm = Swarm::draw(seed_, n, SAFETY, &kinds, None, layer);
    if stored {
        disks(&mut world, (seed, n), mutant);
    }
    // A minority may crash without a journal, or lose it, and come back as others: the rest is a majority of every
    // view.
    let first = u32::try_from(below(&mut rng, n.into())).expect("small");
    let crashes = move |slot: Slot| (slot.0 + n - first) % n < (n - 1) / 2;
    for (at, fault) in &swarm.faults {
        match fault {
            Fault::Crash(slot) | Fault::Recover(slot) if !stored && !crashes(*slot) => {}
            Fault::Disk(slot, DiskFault::Lost) if !crashes(*slot) => {}
            fault => world.fault_at(*at, fault.clone()),
        }
        if let Fault::Crash(slot) = fault
            && uniform
            && crashes(*slot)
        {
            // The detector of all others.
            for who in (0..n).map(Slot).filter(|who| who != slot) {
                let late = 50 * MS + below(&mut rng, 100 * MS);
                world.fault_at(*at + late, Fault::Inject(who, layer, Injected::Suspect(*slot)));
            }
        }
    }
    // Wrong suspicions, often.
    let often = [0, 3, 60][usize::try_from(below(&mut rng, 3)).expect("small")];
    for _ in 0..often {
        let at = below(&mut rng, SAFETY);
        let (who, whom) = (below(&mut rng, n.into()), below(&mut rng, n.into()));
        let [who, whom] = [who, whom].map(|slot| Slot(u32::try_from(slot).expect("small")));
        if !uniform || crashes(whom) {
            world.fault_at(at, Fault::Inject(who, layer, Injected::Suspect(whom)));
        }
    }
    world.check(Order::default());
    if tail {
        world.keep_events();
    }
    let exit = run_and_heal(&mut world, n);
    let violation = world.finish().map(ToString::to_string);
    print_tail(&world.take_events());
    let counts = world.counts();
    let text = format!(
        "seed {seed:#x}: {algorithm}, {n} processes, mean {mean} ms, {swarm}, {often} suspicions; {exit:?} at {} ns, \
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

/// Faults that belong together: a part of the group that is no majority excludes members of the
/// other part while the two are apart; and members come back, without what they knew, at the
/// instant when those that know what they voted for are cut off.
fn directed(seed: u64, mutant: Option<Mutant>) -> Option<String> {
    let mut rng = RunSeed(seed).named("directed");
    let mut pick = |bound: u64| below(&mut rng, bound);
    let n = [3_u32, 5][usize::try_from(pick(2)).expect("small")];
    let rotate = 20 + pick(60);
    let network = format!("kind = \"random\"\nmean = \"{}ms\"", 1 + pick(4));
    let layers = format!(
        "{{ layer = \"log\", trace = true, rotate = \"{rotate}ms\" }}, \"rejoin\", {{ layer = \"chat\", \
         until = \"2s\", pause = \"10ms\", longest = 100 }}"
    );
    let planted = mutant.map_or_else(Planted::default, Planted::new);
    let mut world = world(n, &network, &layers, planted, seed);
    world.check(Order::default());
    let excludes = n == 5 && pick(2) == 0;
    // A random order of the slots: the first ones are the smaller part.
    let mut slots: Vec<u32> = (0..n).collect();
    for at in (1..slots.len()).rev() {
        let other = usize::try_from(pick(at as u64 + 1)).expect("small");
        slots.swap(at, other);
    }
    let few = (n as usize - 1) / 2;
    let apart = |part: &[u32]| (0..n).map(|slot| u8::from(part.contains(&slot))).collect();
    let mut at = 100 * MS + pick(200 * MS);
    if excludes {
        world.fault_at(at, Fault::Partition(apart(&slots[..few])));
        world.run(at + pick(3 * MS));
        let gone = slots[n as usize - 2..].iter().map(|slot| Member::new(Slot(*slot), 1));
        let change = ViewChange { base: 1, changes: Changes::removal(gone), shape: None };
        let ask = CastRequest::Change(change, bytes::Bytes::new()).message().expect("a message");
        world.with(Slot(slots[0]), |process, now| process.send(now, ask));
        world.fault_at(at + 300 * MS + pick(500 * MS), Fault::Partition(Vec::new()));
    } else {
        // No more than a minority forgets.
        for _ in 0..few {
            // Part of those that will be left misses what the rest decides, then the rest is cut
            // off and the processes in both parts have forgotten.
            let (late, back, know) = (&slots[..few], slots[few], &slots[few + 1..]);
            world.fault_at(at, Fault::Partition(apart(late)));
            at += 20 * MS + pick(100 * MS);
            world.fault_at(at, Fault::Crash(Slot(back)));
            world.fault_at(at, Fault::Partition(apart(know)));
            world.fault_at(at + MS, Fault::Recover(Slot(back)));
            at += 300 * MS + pick(300 * MS);
            world.fault_at(at, Fault::Partition(Vec::new()));
            at += 100 * MS + pick(100 * MS);
            slots.rotate_left(1);
        }
    }
    let mut exit = world.run(SAFETY);
    if exit == Exit::Until {
        world.heal(&[]);
        let from = world.now();
        exit = world.run(from + SECOND / 2);
        while exit == Exit::Until && !world.converged() && world.now() < from + LIVENESS {
            exit = world.run(world.now() + 500 * MS);
        }
    }
    world.finish().map(ToString::to_string)
}

/// Directed runs of these seeds without a fault.
fn directed_sweep(from: u64, seeds: u64) -> bool {
    let bad = (from..from + seeds).find_map(|seed| Some((seed, directed(seed, None)?)));
    match &bad {
        None => println!("directed: {seeds} seeds from {from}: no violation"),
        Some((seed, violation)) => println!("directed, seed {seed}: {violation}"),
    }
    bad.is_none()
}

fn command(seed: u64, algorithm: &str, mutant: Option<Mutant>) -> String {
    let mutant = mutant.map_or_else(String::new, |mutant| format!(" --mutant {mutant:?}"));
    format!(
        "cargo test -p itg-group --test cast_swarm -- --seed {seed:#x} --algorithm {algorithm}{mutant}"
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
    let (mut events, mut well, mut seen) = (0, true, BTreeMap::new());
    let mut messages = 0;
    for seed in from..from + seeds {
        let found = run(seed, algorithm, None, false);
        events += found.events;
        messages += found.delivered;
        for (name, count) in found.sometimes {
            *seen.entry(name).or_insert(0) += count;
        }
        if let Some(violation) = found.violation {
            well = false;
            println!("{}\n{violation}\nreplay: {}", found.text, command(seed, algorithm, None));
        }
    }
    let with_disks = [CastEvent::JournalShortened.name(), CastEvent::BackWithVote.name()];
    let names = match algorithm {
        "log" => sometimes().to_vec(),
        JOURNAL => [&sometimes()[..], &with_disks].concat(),
        _ => Vec::new(),
    };
    for name in names {
        if seeds >= SMOKE && !seen.contains_key(name) {
            well = false;
            println!("never seen: {name}");
        }
    }
    println!(
        "{algorithm}: {seeds} seeds from {from}: {events} events, {messages} messages; seen {seen:?}"
    );
    well
}

/// In which broadcast a fault is looked for.
fn home(mutant: Mutant) -> Option<&'static str> {
    match mutant {
        Mutant::NoFence | Mutant::BeforeStable => Some("uniform-sequencer"),
        Mutant::NoMaxRule => Some("uniform-skeen"),
        Mutant::CoreTooEarly | Mutant::IncarnationIgnored => Some(DIRECTED),
        Mutant::TimeNotStored
        | Mutant::PromiseNotKept
        | Mutant::RoundForgotten
        | Mutant::EarlySend
        | Mutant::TornRecord => Some(JOURNAL),
        // These are found by tests of their own.
        Mutant::NoTieBreak
        | Mutant::NoBaseCheck
        | Mutant::RetryTwice
        | Mutant::SnapshotWithoutClients
        | Mutant::GcIgnoresOne
        | Mutant::OrderNotStored
        | Mutant::StampNotStored
        | Mutant::FenceNotStored
        | Mutant::OwnCastNotStored
        | Mutant::HeldNotStored
        | Mutant::HistoryNotKept
        | Mutant::FenceDropped
        | Mutant::OrdersDropped
        | Mutant::AnyPiece
        | Mutant::VoteNotReplayed
        | Mutant::StateNotStored
        | Mutant::CastNotStored
        | Mutant::SeenForgotten
        | Mutant::DecisionNotReplayed
        | Mutant::ExpiredApplied
        | Mutant::StaleRead => None,
        _ => Some("log"),
    }
}

fn hunt(mutant: Mutant, algorithm: &'static str, most: u64) -> bool {
    for seed in 0..most {
        let violation = match algorithm {
            DIRECTED => directed(seed, Some(mutant)),
            _ => run(seed, algorithm, Some(mutant), false).violation,
        };
        if let Some(violation) = violation {
            println!("| {mutant:?} | {algorithm} | {} | {violation} |", seed + 1);
            return true;
        }
    }
    println!("| {mutant:?} | {algorithm} | not in {most} | |");
    false
}

/// Faults that the smoke run must find, within this many seeds.
const SURE: [(Mutant, u64); 11] = [
    (Mutant::TimeNotStored, 200),
    (Mutant::PromiseNotKept, 200),
    (Mutant::RoundForgotten, 200),
    (Mutant::EarlySend, 200),
    (Mutant::TornRecord, 200),
    (Mutant::CoreTooEarly, 100),
    (Mutant::IncarnationIgnored, 100),
    (Mutant::HalfIsMajority, 60),
    (Mutant::AckWithoutAdopting, 60),
    (Mutant::AnyEstimate, 200),
    (Mutant::BeforeStable, 200),
];

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
    } else if let Some(seeds) = number("--directed") {
        directed_sweep(number("--from").unwrap_or(0), seeds)
    } else if has("--mutants") || has("mutant") {
        // The word selects the tests of faults of all programs.
        let most = number("--mutants").unwrap_or(400);
        println!("| fault | broadcast | seeds | found as |\n|---|---|---|---|");
        let hunted = Mutant::ALL.into_iter().filter_map(|mutant| Some((mutant, home(mutant)?)));
        let found: Vec<bool> = hunted.map(|(mutant, home)| hunt(mutant, home, most)).collect();
        found.into_iter().all(|found| found)
    } else {
        let swept =
            [(ALGORITHMS[0], SMOKE), (ALGORITHMS[1], 40), (ALGORITHMS[2], 40), (JOURNAL, SMOKE)];
        let swept = swept.map(|(algorithm, seeds)| sweep(0, seeds, algorithm));
        let found = SURE.map(|(mutant, most)| hunt(mutant, home(mutant).unwrap_or("log"), most));
        let directed = directed_sweep(0, 60);
        let found_once = FOUND.map(|(seed, algorithm)| one(seed, algorithm, None, false));
        directed
            && found_once.into_iter().all(|well| well)
            && swept.into_iter().chain(found).all(|well| well)
    };
    if well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
