//! Clients outside the group: counts and instants of both cases, exactly once across fail-over, and what becomes of
//! a client whose answer is forgotten.

#![allow(clippy::print_stdout, reason = "a search says how much it has seen")]

use std::collections::{BTreeMap, BTreeSet};

use crate::casts;
use crate::casts::clients::{Operation, Shape, ask};
use itg_core::seed::RunSeed;
use itg_core::streams::below;
use itg_group::cast::service::Case;
use itg_group::cast::{Algorithm, Mutant, Planted, ServiceEvent};
use itg_process::{MS, SECOND, Slot};
use itg_sim::{Checker, Exit, Fault, Observation, ObservedEvent, World};

/// Times at which commands were applied, and at which they were answered.
fn served(world: &mut World) -> (Vec<u64>, Vec<u64>) {
    let (mut applied, mut answered) = (Vec::new(), Vec::new());
    for (at, _, event) in world.take_events() {
        match event.decode() {
            Some(ServiceEvent::Applied { .. }) => applied.push(at),
            Some(ServiceEvent::Answered { .. }) => answered.push(at),
            _ => {}
        }
    }
    (applied, answered)
}

#[test]
fn b_1_counts_and_instants_of_clients() {
    for n in 2..=8_u32 {
        for (algorithm, row) in Algorithm::ALL.into_iter().zip([
            (3 * n - 1, [2, 3], 2 * n, [2, 4]),
            (4 * n - 2, [3, 4], 3 * n - 1, [4, 4]),
            (5 * n - 3, [4, 5], 4 * n - 2, [4, 6]),
        ]) {
            let below = format!("{{ layer = \"{}\", members = {n} }}", algorithm.name());
            let network = "kind = \"steps\"";
            let (messages_a, first_last, messages_b, special_other) = row;
            let mut all = Shape::of(n, 1, Case::All).world(&below, network);
            all.keep_events();
            ask(&mut all, n, Operation::Add(1));
            assert_eq!(all.run(u64::MAX), Exit::Idle);
            let unicasts: u64 = all.networks().map(|(_, _, usage)| usage.frames).sum();
            assert_eq!(unicasts, u64::from(messages_a), "case A, {algorithm:?}, n {n}");
            let (applied, answered) = served(&mut all);
            let first: Vec<u64> = answered.iter().map(|at| at / SECOND).collect();
            assert_eq!(first, [first_last[0]], "case A, {algorithm:?}, n {n}: first answer");
            let last = applied.iter().max();
            assert_eq!(last.map(|at| at / SECOND + 1), Some(first_last[1]), "last answer");
            // The client picks its server by its own address and number.
            for contacted in 0..n {
                let clients = contacted + 1;
                let mut one = Shape::of(n, clients, Case::One).world(&below, network);
                one.keep_events();
                // Address n + c and the first request, 1: server (n + c + 1) mod n.
                let client = n + (contacted + n - 1) % n;
                if client >= n + clients {
                    continue;
                }
                ask(&mut one, client, Operation::Add(1));
                assert_eq!(one.run(u64::MAX), Exit::Idle);
                let unicasts: u64 = one.networks().map(|(_, _, usage)| usage.frames).sum();
                let what = format!("case B, {algorithm:?}, n {n}, server {contacted}");
                assert_eq!(unicasts, u64::from(messages_b), "{what}");
                let (_, answered) = served(&mut one);
                let at: Vec<u64> = answered.iter().map(|at| at / SECOND).collect();
                let want = special_other[usize::from(contacted != 0)];
                assert_eq!(at, [want], "{what}");
            }
        }
    }
}

/// Every command is applied once, everywhere at the same place; and answered, in the end.
#[derive(Default)]
struct Once {
    applied: BTreeMap<(u64, u64), u64>,
    here: BTreeSet<(u32, u64, u64)>,
    asked: BTreeSet<(u64, u64)>,
    answered: BTreeSet<(u64, u64)>,
    healed: bool,
}

impl Checker for Once {
    fn name(&self) -> &'static str {
        "exactly once"
    }

    fn see(&mut self, seen: &Observation<'_>) -> Result<(), String> {
        let slot = seen.slot.0;
        match seen.what {
            ObservedEvent::Started(_) => self.here.retain(|(at, ..)| *at != slot),
            ObservedEvent::Healed => self.healed = true,
            ObservedEvent::Event(event) => match event.decode() {
                Some(ServiceEvent::Applied { client, seq, position }) => {
                    if *self.applied.entry((client, seq)).or_insert(position) != position {
                        return Err(format!("request {seq} of {client:x} is applied twice"));
                    }
                    if !self.here.insert((slot, client, seq)) {
                        return Err(format!("server {slot} applies request {seq} twice"));
                    }
                }
                Some(ServiceEvent::Asked { client, seq }) => {
                    self.asked.insert((client, seq));
                }
                Some(ServiceEvent::Answered { client, seq, position }) => {
                    if self.applied.get(&(client, seq)) != Some(&position) {
                        return Err(format!("request {seq} is answered and was not applied"));
                    }
                    self.answered.insert((client, seq));
                }
                Some(ServiceEvent::Expired { client, seq }) => {
                    if !self.applied.contains_key(&(client, seq)) {
                        return Err(format!("request {seq} is expired and was not applied"));
                    }
                    self.answered.insert((client, seq));
                }
                _ => {}
            },
            _ => {}
        }
        Ok(())
    }

    fn converged(&self) -> bool {
        self.asked == self.answered
    }

    fn finish(&mut self) -> Result<(), String> {
        let lost = self.asked.difference(&self.answered).next();
        lost.filter(|_| self.healed).map_or(Ok(()), |lost| Err(format!("{lost:?} has no answer")))
    }
}

/// Retries across crashes and snapshots.
fn retries(seed: u64, planted: Planted) -> Option<String> {
    let mut rng = RunSeed(seed).named("shape");
    let case = if seed.is_multiple_of(2) { Case::All } else { Case::One };
    let below_ = "{ layer = \"log\", members = 3, trace = true, rotate = \"30ms\", status = \"20ms\", retain = 2 }";
    let network = "kind = \"random\"\nmean = \"8ms\"\nloss = 0.1\nduplication = 0.1";
    let mut world = Shape { planted, seed, ..Shape::of(3, 2, case) }.world(below_, network);
    world.check(Once::default());
    world.check(casts::order::Order::of(3, false));
    let crashed = Slot(u32::try_from(below(&mut rng, 3)).expect("small"));
    let at = 100 * MS + below(&mut rng, SECOND);
    world.fault_at(at, Fault::Crash(crashed));
    world.fault_at(at + below(&mut rng, 400 * MS), Fault::Recover(crashed));
    for k in 0..30 {
        for client in [3, 4] {
            ask(&mut world, client, Operation::Add(k));
        }
        world.run(world.now() + below(&mut rng, 80 * MS));
    }
    world.run(world.now().max(2 * SECOND));
    world.heal(&[crashed]);
    let from = world.now();
    while world.violation().is_none() && !world.converged() && world.now() < from + 30 * SECOND {
        world.run(world.now() + 100 * MS);
    }
    world.finish().map(ToString::to_string)
}

#[test]
fn b_13_each_command_is_applied_once_across_fail_over() {
    for seed in 0..40 {
        assert_eq!(retries(seed, Planted::default()), None, "seed {seed}");
    }
}

#[test]
fn b_13_mutants_16_and_20_are_seen() {
    for mutant in [Mutant::RetryTwice, Mutant::SnapshotWithoutClients] {
        let found = (0..200).find_map(|seed| Some((seed, retries(seed, Planted::new(mutant))?)));
        let (seed, text) = found.expect("a violation");
        println!("| {mutant:?} | {} | {text} |", seed + 1);
        assert!(text.contains("twice") || text.contains("applied"), "{mutant:?}: {text}");
    }
}

/// A client gets no answer until others have asked so much that the servers have forgotten it; what the user of the
/// client learns of its two commands, and the violation if there is one.
fn forgotten(case: Case, planted: Planted) -> (Vec<ServiceEvent>, Option<String>) {
    let below_ = "{ layer = \"log\", members = 3, trace = true }";
    let shape = Shape { answers: 2, planted, ..Shape::of(3, 4, case) };
    let mut world = shape.world(below_, "kind = \"random\"\nmean = \"1ms\"");
    world.keep_events();
    world.check(Once::default());
    let (client, servers) = (Slot(3), [Slot(0), Slot(1), Slot(2)]);
    for server in servers {
        world.fault_at(0, Fault::Cut(server, client));
        world.fault_at(SECOND, Fault::Mend(server, client));
    }
    ask(&mut world, client.0, Operation::Add(1));
    world.run(50 * MS);
    for other in 4..7 {
        ask(&mut world, other, Operation::Add(1));
        world.run(world.now() + 100 * MS);
    }
    world.run(2 * SECOND);
    ask(&mut world, client.0, Operation::Add(1));
    world.run(3 * SECOND);
    let violation = world.finish().map(ToString::to_string);
    let told = world.take_events().into_iter().filter(|(_, slot, _)| *slot == client);
    let told = told.filter_map(|(_, _, event)| event.decode());
    let told = told.filter(|event| {
        matches!(event, ServiceEvent::Answered { .. } | ServiceEvent::Expired { .. })
    });
    (told.collect(), violation)
}

#[test]
fn b_18_a_client_that_was_forgotten_hears_of_it_and_goes_on() {
    for case in [Case::All, Case::One] {
        let (told, violation) = forgotten(case, Planted::default());
        assert_eq!(violation, None, "{case:?}");
        let [ServiceEvent::Expired { seq: 1, .. }, ServiceEvent::Answered { seq: 2, .. }] =
            told[..]
        else {
            panic!("{case:?}: {told:?}");
        };
    }
}

#[test]
fn b_18_mutant_47_is_seen() {
    for case in [Case::All, Case::One] {
        let (told, violation) = forgotten(case, Planted::new(Mutant::ExpiredApplied));
        let text = violation.expect("a violation");
        assert!(text.contains("twice"), "{case:?}: {text}, {told:?}");
    }
}
