//! Reliable broadcast: exact counts, and validity, agreement, integrity at every event under crashes in
//! the middle of a cast.

use std::collections::{BTreeMap, BTreeSet};

use crate::casts::world;
use itg_core::seed::RunSeed;
use itg_core::streams::below;
use itg_group::cast::{CastEvent, CastRequest, Planted};
use itg_process::{Injected, MS, SECOND, Slot};
use itg_sim::{Checker, Exit, Fault, Observation, ObservedEvent, World};

const MODES: [&str; 3] = ["reliable-eager", "reliable-lazy", "reliable-uniform"];

fn cast(world: &mut World, at: u32) {
    let message = CastRequest::Cast("m".into()).message().expect("a message");
    world.with(Slot(at), |process, now| process.send(now, message));
}

#[test]
fn counts_are_those_of_the_table() {
    for n in 2..=8_u32 {
        for (mode, want) in MODES.into_iter().zip([(n - 1) * (n - 1), n - 1, n * (n - 1)]) {
            for sender in [0, n - 1] {
                let layers = format!("\"{mode}\"");
                let mut world = world(n, "kind = \"messages\"", &layers, Planted::default(), 1);
                world.keep_events();
                cast(&mut world, sender);
                assert_eq!(world.run(u64::MAX), Exit::Idle);
                let unicasts: u64 = world.networks().map(|(_, _, usage)| usage.frames).sum();
                assert_eq!(unicasts, u64::from(want), "{mode}, n {n}");
                let events = world.take_events().into_iter();
                let events = events.filter_map(|(.., event)| event.decode());
                let delivered = events
                    .filter(|event| matches!(event, CastEvent::ReliableDeliver { .. }))
                    .count();
                assert_eq!(delivered, n as usize, "{mode}, n {n}");
            }
        }
    }
}

#[derive(Default)]
struct Reliably {
    uniform: bool,
    cast: BTreeSet<(u64, u64)>,
    delivered: BTreeMap<u32, BTreeSet<(u64, u64)>>,
    dead: BTreeSet<u32>,
}

impl Checker for Reliably {
    fn name(&self) -> &'static str {
        "reliable broadcast"
    }

    fn see(&mut self, seen: &Observation<'_>) -> Result<(), String> {
        let slot = seen.slot.0;
        match seen.what {
            ObservedEvent::Started(_) => {
                self.delivered.insert(slot, BTreeSet::new());
            }
            ObservedEvent::Crashed => {
                self.dead.insert(slot);
            }
            ObservedEvent::Event(event) => match event.decode() {
                Some(CastEvent::ReliableCast { origin, seq }) => {
                    self.cast.insert((origin, seq));
                }
                Some(CastEvent::ReliableDeliver { origin, seq }) => {
                    let id = (origin, seq);
                    if !self.cast.contains(&id) {
                        return Err(format!("integrity: {id:?} was never cast"));
                    }
                    if !self.delivered.entry(slot).or_default().insert(id) {
                        return Err(format!("integrity: process {slot} delivers {id:?} twice"));
                    }
                }
                _ => {}
            },
            _ => {}
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<(), String> {
        let correct = |slot: &u32| !self.dead.contains(slot);
        for (slot, have) in &self.delivered {
            // Uniform: what anybody has delivered; else what a correct process has.
            if !correct(slot) && !self.uniform {
                continue;
            }
            for (other, theirs) in self.delivered.iter().filter(|(other, _)| correct(other)) {
                if let Some(id) = have.difference(theirs).next() {
                    return Err(format!("agreement: {slot} has {id:?}, {other} has not"));
                }
            }
        }
        let origin = |(code, _): &(u64, u64)| u32::try_from(code >> 32).expect("a slot");
        for id in self.cast.iter().filter(|id| correct(&origin(id))) {
            if !self.delivered.get(&origin(id)).is_some_and(|own| own.contains(id)) {
                return Err(format!("validity: {id:?} is not delivered by its origin"));
            }
        }
        Ok(())
    }
}

/// An origin casts while some of its links are cut, and dies; `suspected` by the others.
fn crash_while_casting(mode: &str, seed: u64, suspected: bool) -> Option<String> {
    let mut rng = RunSeed(seed).named("shape");
    let n = 3 + u32::try_from(below(&mut rng, 4)).expect("small");
    let layers = format!("{{ layer = \"{mode}\" }}");
    let mut world =
        world(n, "kind = \"random\"\nmean = \"2ms\"", &layers, Planted::default(), seed);
    let name = MODES.into_iter().find(|name| *name == mode).expect("a mode");
    world.check(Reliably { uniform: mode.ends_with("uniform"), ..Reliably::default() });
    let origin = u32::try_from(below(&mut rng, n.into())).expect("small");
    // What is sent in the last moment reaches some.
    for to in (0..n).filter(|to| *to != origin) {
        if below(&mut rng, 2) == 0 {
            world.fault_at(MS, Fault::Cut(Slot(origin), Slot(to)));
        }
    }
    world.fault_at(4 * MS, Fault::Crash(Slot(origin)));
    world.run(3 * MS);
    cast(&mut world, origin);
    cast(&mut world, (origin + 1) % n);
    if suspected {
        for who in (0..n).filter(|who| *who != origin) {
            let at = 5 * MS + below(&mut rng, 20 * MS);
            let suspect = Injected::Suspect(Slot(origin));
            world.fault_at(at, Fault::Inject(Slot(who), name, suspect));
        }
    }
    world.run(SECOND);
    world.finish().map(ToString::to_string)
}

#[test]
fn all_or_none_of_the_correct_deliver() {
    for mode in MODES {
        for seed in 0..200 {
            assert_eq!(crash_while_casting(mode, seed, true), None, "{mode}, seed {seed}");
        }
    }
}

#[test]
fn without_a_detector_the_lazy_mode_loses_agreement() {
    let found = (0..200).find_map(|seed| crash_while_casting("reliable-lazy", seed, false));
    assert!(found.expect("a violation").contains("agreement"));
}
