//! Clients outside the group: counts and instants of both cases, and exactly once across fail-over.

#![allow(clippy::print_stdout, reason = "a search says how much it has seen")]

mod casts;

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use casts::registry;
use itg_core::seed::RunSeed;
use itg_core::streams::{below, fnv1a};
use itg_group::Member;
use itg_group::cast::service::{Case, Client, Replicated, Server};
use itg_group::cast::{Algorithm, CastRequest, Mutant, Planted, ServiceEvent};
use itg_process::{Config, Layer, MS, SECOND, Slot};
use itg_sim::{Checker, Exit, Fault, Observation, ObservedEvent, World};

/// A number that each command changes.
#[derive(Default)]
struct Register(u64);

impl Replicated for Register {
    fn apply(&mut self, client: Member, command: &Bytes) -> Bytes {
        let text = [&self.0.to_le_bytes()[..], &client.slot.0.to_le_bytes(), command].concat();
        self.0 = fnv1a(&text);
        self.0.to_le_bytes().to_vec().into()
    }

    fn save(&self) -> Bytes {
        self.0.to_le_bytes().to_vec().into()
    }

    fn load(&mut self, state: &Bytes) {
        self.0 = u64::from_le_bytes(*state.first_chunk().expect("a number"));
    }
}

/// Servers first, then clients; the stack below both.
fn world(
    servers: u32,
    clients: u32,
    below: &str,
    network: &str,
    case: Case,
    planted: Planted,
    seed: u64,
) -> World {
    let n = servers + clients;
    let direct = !below.contains("log");
    let text = format!(
        "processes = {n}\n[[network]]\nname = \"main\"\n{network}\n[[process]]\nslots = [0, {}]\nlayers = \
         [{below}, {{ layer = \"rejoin\", members = {servers} }}, \"server\"]\n[[process]]\nlayers = [{}\"client\"]",
        servers - 1,
        if direct { format!("{below}, ") } else { String::new() }
    );
    let registry = registry(planted)
        .with("server", move |_| {
            Ok(Box::new(Server::new(Box::<Register>::default(), servers, planted))
                as Box<dyn Layer>)
        })
        .with("client", move |_| Ok(Box::new(Client::new(case, servers, 60 * MS, direct))));
    let config = Config::parse(&text, "test.toml").expect("well written");
    World::new(&config, &registry, RunSeed(seed)).expect("known layers and networks")
}

fn command(world: &mut World, client: u32, text: &str) {
    let message = CastRequest::Cast(text.to_owned().into()).message().expect("a message");
    world.with(Slot(client), |process, now| process.send(now, message));
}

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
            let mut all = world(n, 1, &below, network, Case::All, Planted::default(), 1);
            all.keep_events();
            command(&mut all, n, "do");
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
                let mut one = world(n, clients, &below, network, Case::One, Planted::default(), 1);
                one.keep_events();
                // Address n + c and the first request, 1: server (n + c + 1) mod n.
                let client = n + (contacted + n - 1) % n;
                if client >= n + clients {
                    continue;
                }
                command(&mut one, client, "do");
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
    let mut world = world(3, 2, below_, network, case, planted, seed);
    world.check(Once::default());
    world.check(casts::order::Order::of(3, false));
    let crashed = Slot(u32::try_from(below(&mut rng, 3)).expect("small"));
    let at = 100 * MS + below(&mut rng, SECOND);
    world.fault_at(at, Fault::Crash(crashed));
    world.fault_at(at + below(&mut rng, 400 * MS), Fault::Recover(crashed));
    for k in 0..30 {
        for client in [3, 4] {
            command(&mut world, client, &format!("{k}"));
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
