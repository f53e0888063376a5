//! Code that the tests of the simulator share.
#![allow(dead_code, reason = "not every test uses everything")]
#![allow(unreachable_pub, reason = "a module of each test")]

pub mod link;

use itg_core::seed::RunSeed;
use itg_process::{Config, Params, Registry};
use itg_sim::{Effect, Model, World, networks};

/// A model of this kind with these parameters, written as TOML.
pub fn model(kind: &str, params: &str, hosts: u32, seed: u64) -> Box<dyn Model> {
    let table: toml::Table = params.parse().expect("TOML");
    let mut params = Params::of_table(&table, "network", "", None);
    networks::network(kind, &mut params, RunSeed(seed), "test", hosts).expect("a network")
}

/// Processes of a configuration in virtual time.
pub fn world(text: &str, registry: &Registry, seed: u64) -> World {
    let config = Config::parse(text, "test.toml").expect("well written");
    World::new(&config, registry, RunSeed(seed)).expect("known layers and networks")
}

/// A model alone, with its agenda.
pub struct Bench {
    pub model: Box<dyn Model>,
    pub agenda: itg_sim::Agenda<Effect>,
    pub effects: Vec<Effect>,
    /// Number, receiver, time of each delivery, as they come; `None` is dropped.
    pub arrivals: Vec<(u64, u32, Option<u64>)>,
}

impl Bench {
    pub fn new(model: Box<dyn Model>) -> Self {
        Self {
            model,
            agenda: itg_sim::Agenda::default(),
            effects: Vec::new(),
            arrivals: Vec::new(),
        }
    }

    fn take(&mut self, now: u64) {
        for effect in std::mem::take(&mut self.effects) {
            match effect {
                Effect::Wake(_, at) => self.agenda.push(at, itg_sim::Class::World, effect),
                Effect::Deliver(id, to, at) | Effect::Again(id, to, at) => {
                    assert!(at >= now, "packet {id} arrives before it was sent");
                    self.arrivals.push((id, to.0, Some(at)));
                }
                Effect::Drop(id, to, _) => self.arrivals.push((id, to.0, None)),
            }
        }
    }

    /// Lets the model work until this time.
    pub fn run_to(&mut self, until: u64) {
        while let Some((at, _)) = self.agenda.peek()
            && at <= until
        {
            if let Some((at, Effect::Wake(token, _))) = self.agenda.pop() {
                self.model.wake(at, token, &mut self.effects);
                self.take(at);
            }
        }
    }

    /// One packet.
    pub fn send(&mut self, now: u64, id: u64, src: u32, to: u32, bytes: u64) {
        self.run_to(now);
        let (src, to) = (itg_process::Slot(src), itg_process::To::One(itg_process::Slot(to)));
        let packet = itg_sim::Packet { id, src, to, bytes, urgent: false };
        self.model.submit(now, packet, &mut self.effects);
        self.take(now);
    }

    /// Arrival of a packet.
    pub fn arrival(&self, id: u64) -> Option<u64> {
        self.arrivals.iter().find(|(found, ..)| *found == id).and_then(|found| found.2)
    }
}
