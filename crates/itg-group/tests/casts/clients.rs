//! Clients of a replicated register: `caller`, above the layer `client`, asks one operation at a time; the checker
//! [`Linear`] judges all answers together.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use itg_core::seed::RunSeed;
use itg_core::streams::below;
use itg_group::Member;
use itg_group::cast::service::{Case, Client, Replicated, Server};
use itg_group::cast::{CastDelivery, CastRequest, Planted};
use itg_group::check::{Call, Sequential, linearize};
use itg_process::{Config, Ctx, Layer, Level, MS, Message, TimerId, layer_events};
use itg_sim::{Checker, Observation, ObservedEvent, World};

layer_events! {
    /// What the user of a client does and learns. `kind` and the two numbers are those of [`Operation`].
    pub enum CallerEvent {
        /// Operation that is asked for.
        Called { kind: u64, first: u64, second: u64 } = "called",
        /// Answer to it: a number, if it has one.
        Returned { some: bool, value: u64 } = "returned",
        /// It was applied, and nobody knows the answer any more.
        ReturnedExpired = "returned as expired",
    }
}

/// Operation on a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Answers with the value.
    Read,
    /// Answers nothing.
    Write(u64),
    /// Answers with the new value.
    Add(u64),
    /// Writes the second number if the first one is the value; answers 1 then, else 0.
    Swap(u64, u64),
}

impl Operation {
    const fn parts(self) -> [u64; 3] {
        match self {
            Self::Read => [0, 0, 0],
            Self::Write(value) => [1, value, 0],
            Self::Add(value) => [2, value, 0],
            Self::Swap(from, to) => [3, from, to],
        }
    }

    const fn of([kind, first, second]: [u64; 3]) -> Self {
        match kind {
            0 => Self::Read,
            1 => Self::Write(first),
            2 => Self::Add(first),
            _ => Self::Swap(first, second),
        }
    }

    fn bytes(self) -> Bytes {
        self.parts().iter().flat_map(|part| part.to_le_bytes()).collect()
    }

    fn read(bytes: &Bytes) -> Self {
        let part = |at: usize| u64::from_le_bytes(*bytes[8 * at..].first_chunk().expect("a part"));
        Self::of([part(0), part(1), part(2)])
    }
}

/// The register: what the servers replicate, and what their answers are held against.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Register(u64);

impl Register {
    fn act(&mut self, operation: Operation) -> Option<u64> {
        match operation {
            Operation::Read => Some(self.0),
            Operation::Write(value) => {
                self.0 = value;
                None
            }
            Operation::Add(value) => {
                self.0 = self.0.wrapping_add(value);
                Some(self.0)
            }
            Operation::Swap(from, to) => {
                let fits = self.0 == from;
                self.0 = if fits { to } else { self.0 };
                Some(fits.into())
            }
        }
    }
}

impl Replicated for Register {
    fn apply(&mut self, _client: Member, command: &Bytes) -> Bytes {
        let answer = self.act(Operation::read(command));
        answer.map_or_else(Bytes::new, |value| value.to_le_bytes().to_vec().into())
    }

    fn save(&self) -> Bytes {
        self.0.to_le_bytes().to_vec().into()
    }

    fn load(&mut self, state: &Bytes) {
        self.0 = u64::from_le_bytes(*state.first_chunk().expect("a number"));
    }
}

impl Sequential for Register {
    type Operation = Operation;
    type Answer = Option<u64>;

    fn step(&self, operation: &Operation, answer: Option<&Option<u64>>) -> Option<Self> {
        let mut next = self.clone();
        let found = next.act(*operation);
        answer.is_none_or(|answer| *answer == found).then_some(next)
    }
}

/// Asks, waits for the answer, pauses, and asks again.
struct Caller {
    until: u64,
    pause: u64,
    calls: u64,
}

impl Caller {
    fn pause(&self, cx: &mut Ctx<'_>) {
        let pause = 1 + below(cx.rng(), 2 * self.pause);
        cx.set_timer_after(pause);
    }

    /// Writes are told apart by who makes them.
    fn draw(&mut self, cx: &mut Ctx<'_>) -> Operation {
        self.calls += 1;
        let mine = u64::from(cx.me().0) << 32 | cx.incarnation() << 16 | self.calls;
        match below(cx.rng(), 10) {
            0..4 => Operation::Read,
            4..6 => Operation::Write(mine << 8),
            6..9 => Operation::Add(1),
            _ => Operation::Swap(below(cx.rng(), 3), mine << 8),
        }
    }
}

impl Layer for Caller {
    fn on_start(&mut self, cx: &mut Ctx<'_>) {
        self.pause(cx);
    }

    fn timer(&mut self, _id: TimerId, cx: &mut Ctx<'_>) {
        if cx.now().0 < self.until {
            let operation = self.draw(cx);
            let [kind, first, second] = operation.parts();
            cx.log(Level::Info, CallerEvent::Called { kind, first, second });
            let ask = CastRequest::Cast(operation.bytes()).message();
            cx.down(ask.expect("a message"));
        }
    }

    fn deliver(&mut self, message: Message, cx: &mut Ctx<'_>) {
        match CastDelivery::from_message(&message) {
            Some(CastDelivery::Message { payload, .. }) => {
                let value = payload.first_chunk().map(|value| u64::from_le_bytes(*value));
                let some = value.is_some();
                let value = value.unwrap_or_default();
                cx.log(Level::Info, CallerEvent::Returned { some, value });
                self.pause(cx);
            }
            Some(CastDelivery::Expired(_)) => {
                cx.log(Level::Info, CallerEvent::ReturnedExpired);
                self.pause(cx);
            }
            _ => {}
        }
    }
}

/// The answers are those of one register; a client that lives is answered in the end.
#[derive(Default)]
pub struct Linear {
    history: Vec<Call<Operation, Option<u64>>>,
    /// Call under way, by process.
    open: BTreeMap<u32, usize>,
}

impl Linear {
    fn returned(&mut self, slot: u32, at: u64, answer: Option<Option<u64>>) -> Result<(), String> {
        let open = self.open.remove(&slot).ok_or("an answer that nobody waits for")?;
        (self.history[open].returned, self.history[open].answer) = (Some(at), answer);
        Ok(())
    }
}

impl Checker for Linear {
    fn name(&self) -> &'static str {
        "linear"
    }

    fn see(&mut self, seen: &Observation<'_>) -> Result<(), String> {
        let (slot, at) = (seen.slot.0, seen.at);
        match seen.what {
            ObservedEvent::Started(_) | ObservedEvent::Crashed => {
                self.open.remove(&slot);
            }
            ObservedEvent::Event(event) => match event.decode() {
                Some(CallerEvent::Called { kind, first, second }) => {
                    self.open.insert(slot, self.history.len());
                    let operation = Operation::of([kind, first, second]);
                    let (client, called) = (slot.into(), at);
                    let (returned, answer) = (None, None);
                    self.history.push(Call { client, called, operation, returned, answer });
                }
                Some(CallerEvent::Returned { some, value }) => {
                    return self.returned(slot, at, Some(some.then_some(value)));
                }
                Some(CallerEvent::ReturnedExpired) => return self.returned(slot, at, None),
                None => {}
            },
            _ => {}
        }
        Ok(())
    }

    fn converged(&self) -> bool {
        self.open.is_empty()
    }

    fn finish(&mut self) -> Result<(), String> {
        if let Some((slot, _)) = self.open.first_key_value() {
            return Err(format!("client {slot} has no answer"));
        }
        linearize(&Register::default(), &self.history).map(drop)
    }
}

/// Servers and clients of one run.
#[derive(Clone)]
pub struct Shape {
    pub servers: u32,
    pub clients: u32,
    pub case: Case,
    /// Clients whose last answers are kept.
    pub answers: usize,
    /// Until when the clients ask; 0: they do not ask by themselves.
    pub until: u64,
    pub planted: Planted,
    pub seed: u64,
}

impl Shape {
    pub fn of(servers: u32, clients: u32, case: Case) -> Self {
        let planted = Planted::default();
        Self { servers, clients, case, answers: 65_536, until: 0, planted, seed: 1 }
    }

    /// Servers first, above these layers, then clients.
    pub fn world(&self, below: &str, network: &str) -> World {
        let Self { servers, clients, case, answers, until, planted, seed } = self.clone();
        let n = servers + clients;
        let direct = !below.contains("log") && !below.contains("uniform");
        let text = format!(
            "processes = {n}\n[[network]]\nname = \"main\"\n{network}\n[[process]]\nslots = [0, {}]\n\
             layers = [{below}, {{ layer = \"rejoin\", members = {servers} }}, \"server\"]\n[[process]]\n\
             layers = [{}\"client\"{}]",
            servers - 1,
            if direct { format!("{below}, ") } else { String::new() },
            if until > 0 { ", \"caller\"" } else { "" },
        );
        let registry = super::registry(planted)
            .with("server", move |_| {
                let server = Server::new(Box::<Register>::default(), servers, planted);
                Ok(Box::new(server.keeping(answers)) as Box<dyn Layer>)
            })
            .with("client", move |_| {
                Ok(Box::new(Client::new(case, servers, Duration::from_millis(60), direct)))
            })
            .with("caller", move |_| Ok(Box::new(Caller { until, pause: 15 * MS, calls: 0 })));
        let config = Config::parse(&text, "test.toml").expect("well written");
        World::new(&config, &registry, RunSeed(seed)).expect("known layers and networks")
    }
}

/// The user of a client asks for an operation.
pub fn ask(world: &mut World, client: u32, operation: Operation) {
    let message = CastRequest::Cast(operation.bytes()).message().expect("a message");
    world.with(itg_process::Slot(client), |process, now| process.send(now, message));
}
