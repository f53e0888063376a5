//! Answers to clients under faults that each seed draws: they are those of one register, and each comes while its
//! command is under way (linearizability, judged for each whole history by `itg_group::check::linearize`).
//!
//! Three servers, four clients. Servers crash (one of them without a journal; with journals any, all at once, too), the
//! links between all processes lose, repeat, delay and part, clients crash in the middle of a command. Servers keep
//! the answers of two clients only, snapshots take the place of what was decided all the time.

#![allow(clippy::print_stdout, reason = "a search says how much it has seen")]

use std::collections::BTreeMap;

use crate::casts::clients::{Linear, Shape};
use itg_core::seed::RunSeed;
use itg_core::streams::below;
use itg_group::cast::service::Case;
use itg_group::cast::{Mutant, Planted, ServiceEvent};
use itg_process::{Injected, LayerEvent as _, MS, SECOND, Slot};
use itg_sim::{DiskFault, Disks, Exit, Fault, Kind, Swarm, World};

const SERVERS: u32 = 3;
const CLIENTS: u32 = 4;
/// Virtual time in which everything may fail, and in which it must heal.
const SAFETY: u64 = 2 * SECOND;
const LIVENESS: u64 = 90 * SECOND;
/// The log on disks.
const JOURNAL: &str = "journal";
const ALGORITHMS: [&str; 4] = ["log", "uniform-sequencer", "uniform-skeen", JOURNAL];

fn slot(number: u64) -> Slot {
    Slot(u32::try_from(number).expect("small"))
}

/// Crashes, disks and suspicions of a seed, beside those of its swarm.
fn faults(world: &mut World, seed: u64, algorithm: &'static str) {
    let stored = algorithm == JOURNAL;
    let layer = if stored { "log" } else { algorithm };
    let mut rng = RunSeed(seed).named("faults");
    let n = SERVERS + CLIENTS;
    let uniform = layer != "log";
    let mortal = slot(below(&mut rng, SERVERS.into()));
    let kinds = Kind::ALL.into_iter().filter(|kind| *kind != Kind::Suspicion);
    let kinds: Vec<_> = kinds.chain(stored.then_some(Kind::Disk)).collect();
    let mut detect = |world: &mut World, at: u64, gone: Slot| {
        for who in (0..SERVERS).map(Slot).filter(|who| *who != gone) {
            let late = 50 * MS + below(&mut rng, 100 * MS);
            world.fault_at(at + late, Fault::Inject(who, layer, Injected::Suspect(gone)));
        }
    };
    for (at, fault) in Swarm::draw(RunSeed(seed), n, SAFETY, &kinds, None, "").faults {
        match fault {
            Fault::Crash(who) | Fault::Recover(who)
                if !stored && who.0 < SERVERS && who != mortal => {}
            Fault::Disk(who, DiskFault::Lost) if who != mortal => {}
            Fault::Crash(who) if who.0 < SERVERS && uniform => {
                world.fault_at(at, Fault::Crash(who));
                detect(world, at, who);
            }
            fault => world.fault_at(at, fault),
        }
    }
    let mut rng = RunSeed(seed).named("more faults");
    let at = below(&mut rng, SAFETY);
    world.fault_at(at, Fault::Crash(mortal));
    world.fault_at(at + 1 + below(&mut rng, 400 * MS), Fault::Recover(mortal));
    if uniform {
        detect(world, at, mortal);
    } else {
        for _ in 0..below(&mut rng, 20) {
            let suspect = Injected::Suspect(slot(below(&mut rng, SERVERS.into())));
            let who = slot(below(&mut rng, SERVERS.into()));
            world.fault_at(below(&mut rng, SAFETY), Fault::Inject(who, layer, suspect));
        }
    }
    if stored {
        let at = below(&mut rng, SAFETY);
        for who in (0..SERVERS).map(Slot) {
            world.fault_at(at, Fault::Crash(who));
            world.fault_at(at + 1 + below(&mut rng, 200 * MS), Fault::Recover(who));
        }
    }
}

/// One seed: the violation, and how often there was what a sweep must have seen.
fn run(
    seed: u64,
    algorithm: &'static str,
    planted: Planted,
    seen: &mut BTreeMap<&'static str, u64>,
) -> Option<String> {
    let layer = if algorithm == JOURNAL { "log" } else { algorithm };
    let below_ = format!(
        "{{ layer = \"{layer}\", members = {SERVERS}, rotate = \"30ms\", status = \"20ms\", retain = 2, \
         journal_bytes = 2000 }}"
    );
    let case = if seed.is_multiple_of(2) { Case::All } else { Case::One };
    let shape =
        Shape { answers: 2, until: SAFETY, planted, seed, ..Shape::of(SERVERS, CLIENTS, case) };
    let mut world = shape.world(&below_, "kind = \"random\"\nmean = \"4ms\"");
    world.check(Linear::default());
    if algorithm == JOURNAL {
        world.set_disks(Disks { sync_ns: MS, early: false, unchecked: false });
    }
    faults(&mut world, seed, algorithm);
    let mut exit = world.run(SAFETY);
    if matches!(exit, Exit::Until | Exit::Idle) {
        world.heal(&(0..SERVERS + CLIENTS).map(Slot).collect::<Vec<_>>());
        let from = world.now();
        exit = world.run(from + SECOND / 2);
        while exit == Exit::Until && !world.converged() && world.now() < from + LIVENESS {
            exit = world.run(world.now() + 500 * MS);
        }
    }
    for (name, count) in &world.counts().sometimes {
        *seen.entry(name).or_insert(0) += count;
    }
    world.finish().map(|violation| format!("{algorithm}, seed {seed}, {exit:?}: {violation}"))
}

/// Sweeps these seeds of all broadcasts.
fn sweep(seeds: std::ops::Range<u64>) {
    for algorithm in ALGORITHMS {
        let mut seen = BTreeMap::new();
        for seed in seeds.clone() {
            assert_eq!(run(seed, algorithm, Planted::default(), &mut seen), None);
        }
        println!("{algorithm}: {seeds:?}: no violation; {seen:?}");
        for event in [
            ServiceEvent::AnsweredFromTable,
            ServiceEvent::RefusedAsExpired,
            ServiceEvent::OrderedTwice,
            ServiceEvent::AskedAgain,
        ] {
            assert!(seen.contains_key(event.name()), "{algorithm}: never seen: {}", event.name());
        }
    }
}

#[test]
fn b_19_answers_are_those_of_one_register() {
    sweep(0..40);
}

#[test]
#[ignore = "minutes"]
fn b_19_answers_are_those_of_one_register_in_full() {
    sweep(1000..2000);
}

#[test]
fn b_19_planted_faults_are_seen_in_the_answers_alone() {
    for (mutant, most) in [
        (Mutant::RetryTwice, 20),
        (Mutant::SnapshotWithoutClients, 100),
        (Mutant::ExpiredApplied, 100),
        (Mutant::StaleRead, 20),
    ] {
        let planted = Planted::new(mutant);
        let found = (0..most)
            .find_map(|seed| Some((seed, run(seed, "log", planted, &mut BTreeMap::new())?)));
        let (seed, text) = found.unwrap_or_else(|| panic!("{mutant:?}: not in {most} seeds"));
        println!("| {mutant:?} | {} | {text} |", seed + 1);
        assert!(text.contains("not linearizable"), "{mutant:?}: {text}");
    }
}
