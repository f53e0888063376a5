//! The slave's side: every slot but 0.

use std::collections::BTreeSet;

use crate::bootstrap::{Boot, Diagnosis, HostFacts, PROTOCOL, STEP_TIMEOUT, Step};
use crate::message::Time;

/// Settings of a slave.
#[derive(Clone, Debug)]
pub struct SlaveOptions {
    /// Nanoseconds for each step.
    pub step_timeout: u64,
    /// Hash of the program.
    pub build: u64,
    /// Hash of the types in the graph.
    pub schema: u64,
    /// This host.
    pub facts: HostFacts,
}

impl SlaveOptions {
    /// Everything at its default but the host.
    #[must_use]
    pub const fn new(facts: HostFacts) -> Self {
        Self { step_timeout: STEP_TIMEOUT, build: 0, schema: 0, facts }
    }
}

/// Input to a slave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SlaveInput {
    /// It is connected to the master.
    Begin,
    /// The master says something.
    Message(Boot),
    /// Another slave has connected and named itself, or was connected to and has answered.
    Meshed {
        /// Its slot.
        slot: u32,
        /// Its incarnation.
        incarnation: u64,
    },
    /// A slave that it should connect to cannot be reached.
    Unreachable(u32, String),
    /// The connection to the master broke.
    MasterGone(String),
    /// The stack is built.
    Inited,
    /// The stack cannot be built.
    CannotInit(String),
    /// Its time has come (see [`Slave::deadline`]).
    Tick,
}

/// Action that a slave asks of its driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SlaveAction {
    /// Say something to the master.
    Send(Boot),
    /// Connect to these slots (number and addresses), and say [`Boot::Mesh`] to them.
    Connect(Vec<(u32, Vec<String>)>),
    /// Build the stack, from this experiment, as this slot of so many processes.
    Init {
        /// Its slot.
        slot: u32,
        /// Number of processes.
        processes: u32,
        /// Its incarnation.
        incarnation: u64,
        /// The experiment.
        graph: Vec<u8>,
    },
    /// The stack starts now.
    Start,
    /// It cannot be done; everything is torn down.
    Failed(Diagnosis),
}

/// Slot, number of processes, incarnation.
type Mine = (u32, u32, u64);

/// The slave.
#[derive(Debug)]
pub struct Slave {
    options: SlaveOptions,
    /// Step that it waits for.
    step: Step,
    over: bool,
    deadline: Time,
    mine: Mine,
    addresses: Vec<Vec<String>>,
    graph: Vec<u8>,
    /// Slots that are not connected yet.
    missing: BTreeSet<u32>,
    /// Slots that connected before it knew its own.
    early: BTreeSet<u32>,
}

impl Slave {
    /// A slave that has not begun.
    #[must_use]
    pub const fn new(options: SlaveOptions) -> Self {
        Self {
            options,
            step: Step::Hello,
            over: false,
            deadline: Time::NEVER,
            mine: (0, 0, 0),
            addresses: Vec::new(),
            graph: Vec::new(),
            missing: BTreeSet::new(),
            early: BTreeSet::new(),
        }
    }

    /// Time at which it wants [`SlaveInput::Tick`].
    #[must_use]
    pub const fn deadline(&self) -> Time {
        self.deadline
    }

    /// Takes one input and appends what is to be done.
    pub fn handle(&mut self, now: Time, input: SlaveInput, out: &mut Vec<SlaveAction>) {
        if self.over {
            return;
        }
        match (input, self.step) {
            (SlaveInput::Begin, Step::Hello) => {
                out.push(SlaveAction::Send(Boot::Hello {
                    protocol: PROTOCOL,
                    build: self.options.build,
                    schema: self.options.schema,
                    facts: self.options.facts.clone(),
                }));
                // The master waits for all others before it answers.
                self.wait(now, Step::Config, 2);
            }
            (SlaveInput::Message(Boot::Abort(diagnosis)), _) => self.fail(diagnosis, out),
            (
                SlaveInput::Message(Boot::Config {
                    slot, processes, incarnation, addresses, ..
                }),
                Step::Config,
            ) => {
                self.mine = (slot, processes, incarnation);
                self.addresses = addresses;
                self.wait(now, Step::Graph, 1);
            }
            (SlaveInput::Message(Boot::Graph(graph)), Step::Graph) => {
                self.graph = graph;
                self.mesh(now, out);
            }
            (SlaveInput::Meshed { slot, .. }, Step::Hello | Step::Config | Step::Graph) => {
                self.early.insert(slot);
            }
            (SlaveInput::Meshed { slot, .. }, Step::Mesh) => {
                self.missing.remove(&slot);
                self.when_meshed(now, out);
            }
            (SlaveInput::Message(Boot::Init), Step::Init) => {
                let (slot, processes, incarnation) = self.mine;
                let graph = std::mem::take(&mut self.graph);
                out.push(SlaveAction::Init { slot, processes, incarnation, graph });
                self.wait(now, Step::Inited, 1);
            }
            (SlaveInput::Inited, Step::Inited) => {
                out.push(SlaveAction::Send(Boot::Inited));
                self.wait(now, Step::Start, 2);
            }
            (SlaveInput::Message(Boot::Start), Step::Start) => {
                self.over = true;
                self.deadline = Time::NEVER;
                out.push(SlaveAction::Start);
            }
            (SlaveInput::Tick, step) if now >= self.deadline => self.overdue(step, out),
            (SlaveInput::Unreachable(slot, reason), step) => {
                self.tell(Diagnosis { host: format!("slot {slot}"), step, reason }, out);
            }
            (SlaveInput::MasterGone(reason), step) => {
                self.fail(Diagnosis { host: "master".to_owned(), step, reason }, out);
            }
            (SlaveInput::CannotInit(reason), step) => {
                let host = self.options.facts.host.clone();
                self.tell(Diagnosis { host, step, reason }, out);
            }
            (SlaveInput::Message(message), step) => {
                let reason = format!("unexpected message {message:?}").chars().take(200).collect();
                self.tell(Diagnosis { host: "master".to_owned(), step, reason }, out);
            }
            (
                SlaveInput::Begin
                | SlaveInput::Meshed { .. }
                | SlaveInput::Inited
                | SlaveInput::Tick,
                _,
            ) => {}
        }
    }

    /// Tells whom it has waited for in vain.
    fn overdue(&mut self, step: Step, out: &mut Vec<SlaveAction>) {
        let host = match self.missing.first() {
            Some(slot) if step == Step::Mesh => format!("slot {slot}"),
            _ => "master".to_owned(),
        };
        let limit = self.options.step_timeout;
        let limit = if step == Step::Mesh { limit / 2 } else { limit };
        let limit = itg_core::units::format_duration_ns(limit);
        let reason = format!("nothing came within {limit}");
        self.tell(Diagnosis { host, step, reason }, out);
    }

    fn wait(&mut self, now: Time, step: Step, times: u64) {
        self.step = step;
        self.deadline = now.after(self.options.step_timeout.saturating_mul(times));
    }

    /// Connects to all higher slots and waits for all lower ones.
    fn mesh(&mut self, now: Time, out: &mut Vec<SlaveAction>) {
        let (me, ..) = self.mine;
        let others = (0..).zip(&self.addresses).filter(|(slot, _)| *slot != me);
        // The master is there; slots without an address are missing.
        let others: Vec<_> = others.filter(|(slot, at)| *slot == 0 || !at.is_empty()).collect();
        self.missing = others.iter().map(|(slot, _)| *slot).collect();
        for slot in std::mem::take(&mut self.early) {
            self.missing.remove(&slot);
        }
        let higher = others.into_iter().filter(|(slot, _)| *slot > me);
        out.push(SlaveAction::Connect(higher.map(|(slot, at)| (slot, at.clone())).collect()));
        self.wait(now, Step::Mesh, 1);
        // A process that misses a neighbour says so before the master misses all of them.
        self.deadline = now.after(self.options.step_timeout / 2);
        self.when_meshed(now, out);
    }

    fn when_meshed(&mut self, now: Time, out: &mut Vec<SlaveAction>) {
        if self.missing.is_empty() {
            out.push(SlaveAction::Send(Boot::Ready));
            self.wait(now, Step::Init, 2);
        }
    }

    /// Tells the master, too.
    fn tell(&mut self, diagnosis: Diagnosis, out: &mut Vec<SlaveAction>) {
        out.push(SlaveAction::Send(Boot::Abort(diagnosis.clone())));
        self.fail(diagnosis, out);
    }

    fn fail(&mut self, diagnosis: Diagnosis, out: &mut Vec<SlaveAction>) {
        self.over = true;
        self.deadline = Time::NEVER;
        out.push(SlaveAction::Failed(diagnosis));
    }
}
