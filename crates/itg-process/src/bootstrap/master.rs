//! The master's side: slot 0.

use std::collections::BTreeMap;

use crate::bootstrap::{Boot, Diagnosis, HostFacts, PROTOCOL, STEP_TIMEOUT, Step};
use crate::message::Time;

/// Way in which the master knows the other processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Members {
    /// It calls these hosts; entry *i* gets slot *i* + 1.
    Static(Vec<String>),
    /// So many call it; slots go by the order of arrival.
    Arrival(u32),
}

/// Number of processes that must come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Require {
    /// All.
    #[default]
    All,
    /// So many processes, the master included; the others start as failed.
    AtLeast(u32),
}

/// Settings of a master.
#[derive(Clone, Debug)]
pub struct MasterOptions {
    /// The others.
    pub members: Members,
    /// Number of processes that must come.
    pub require: Require,
    /// Nanoseconds for each step.
    pub step_timeout: u64,
    /// Hash of the program; others must have the same.
    pub build: u64,
    /// Hash of the types in the graph; others must have the same.
    pub schema: u64,
    /// Hash of the resolved configuration.
    pub config: u64,
    /// The experiment as bytes.
    pub graph: Vec<u8>,
    /// Incarnation of all processes.
    pub incarnation: u64,
    /// The run: a number that no other run has.
    pub run: u64,
    /// The master's own addresses.
    pub addresses: Vec<String>,
}

impl MasterOptions {
    /// Everything at its default but the members.
    #[must_use]
    pub const fn new(members: Members) -> Self {
        Self {
            members,
            require: Require::All,
            step_timeout: STEP_TIMEOUT,
            build: 0,
            schema: 0,
            config: 0,
            graph: Vec::new(),
            incarnation: 1,
            run: 0,
            addresses: Vec::new(),
        }
    }
}

/// Input to the master. A peer is a connection, numbered by the driver: for a static list, the slot
/// that was dialled; otherwise any number of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MasterInput {
    /// It starts.
    Begin,
    /// A message came.
    Message(u32, Boot),
    /// A connection broke, or could not be made.
    Gone(u32, String),
    /// Its time has come (see [`Master::deadline`]).
    Tick,
    /// The master's own stack is connected to all.
    OwnReady,
    /// The master's own stack is built.
    OwnInited,
}

/// Action that the master asks of its driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MasterAction {
    /// Connect to this host, as this peer.
    Dial(u32, String),
    /// Send a message.
    Send(u32, Boot),
    /// Close a connection.
    Close(u32),
    /// Connect the master to these slots: number and addresses.
    Connect(Vec<(u32, Vec<String>)>),
    /// Build the master's own stack.
    Init,
    /// Everything starts now; these slots are missing.
    Start {
        /// Slots that start as failed.
        missing: Vec<u32>,
    },
    /// It cannot be done; everything is torn down.
    Failed(Diagnosis),
}

#[derive(Debug)]
struct Member {
    peer: u32,
    slot: u32,
    step: Step,
    facts: HostFacts,
}

/// Answer that the master waits for from every process, step by step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Hello,
    Ready,
    Inited,
    Over,
}

/// The master.
#[derive(Debug)]
pub struct Master {
    options: MasterOptions,
    phase: Phase,
    /// By peer.
    members: BTreeMap<u32, Member>,
    missing: Vec<u32>,
    deadline: Time,
    own: bool,
}

impl Master {
    /// A master that has not begun.
    #[must_use]
    pub const fn new(options: MasterOptions) -> Self {
        Self {
            options,
            phase: Phase::Hello,
            members: BTreeMap::new(),
            missing: Vec::new(),
            deadline: Time::NEVER,
            own: false,
        }
    }

    /// Time at which it wants [`MasterInput::Tick`].
    #[must_use]
    pub const fn deadline(&self) -> Time {
        self.deadline
    }

    /// Takes one input and appends what is to be done.
    pub fn handle(&mut self, now: Time, input: MasterInput, out: &mut Vec<MasterAction>) {
        if self.phase == Phase::Over {
            return;
        }
        match input {
            MasterInput::Begin => {
                self.deadline = now.after(self.options.step_timeout);
                if let Members::Static(hosts) = &self.options.members {
                    for (slot, host) in (1..).zip(hosts) {
                        let facts = HostFacts { host: host.clone(), ..HostFacts::default() };
                        let member = Member { peer: slot, slot, step: Step::Hello, facts };
                        self.members.insert(slot, member);
                        out.push(MasterAction::Dial(slot, host.clone()));
                    }
                }
                self.advance(now, out);
            }
            MasterInput::Message(peer, message) => self.message(now, peer, message, out),
            MasterInput::Gone(peer, why) => self.lose(now, peer, &why, out),
            MasterInput::OwnReady if self.phase == Phase::Ready => {
                self.own = true;
                self.advance(now, out);
            }
            MasterInput::OwnInited if self.phase == Phase::Inited => {
                self.own = true;
                self.advance(now, out);
            }
            MasterInput::OwnReady | MasterInput::OwnInited => {}
            MasterInput::Tick if now >= self.deadline => self.time_out(now, out),
            MasterInput::Tick => {}
        }
    }

    /// Number of processes, the master included.
    fn processes(&self) -> u32 {
        1 + match &self.options.members {
            Members::Static(hosts) => u32::try_from(hosts.len()).unwrap_or(u32::MAX),
            Members::Arrival(count) => *count,
        }
    }

    const fn waited_step(&self) -> Step {
        match self.phase {
            Phase::Hello => Step::Hello,
            Phase::Ready => Step::Ready,
            Phase::Inited | Phase::Over => Step::Inited,
        }
    }

    fn message(&mut self, now: Time, peer: u32, message: Boot, out: &mut Vec<MasterAction>) {
        if let Boot::Abort(mut diagnosis) = message {
            // Slaves know each other by slot, users know hosts.
            let slot = diagnosis.host.strip_prefix("slot ").and_then(|slot| slot.parse().ok());
            let named = self.members.values().find(|member| Some(member.slot) == slot);
            if let Some(member) = named {
                diagnosis.host.clone_from(&member.facts.host);
            }
            return self.fail(diagnosis, out);
        }
        match (self.phase, message) {
            (Phase::Hello, Boot::Hello { protocol, build, schema, facts }) => {
                let (own_build, own_schema) = (self.options.build, self.options.schema);
                let refusal = [
                    ("protocol version", u64::from(protocol), u64::from(PROTOCOL)),
                    ("build", build, own_build),
                    ("schema", schema, own_schema),
                ]
                .into_iter()
                .find(|(_, theirs, ours)| theirs != ours);
                if let Some((what, theirs, ours)) = refusal {
                    let reason =
                        format!("{what} {theirs:#x} there, {ours:#x} at the master: use the same");
                    let host = facts.host;
                    return self.fail(Diagnosis { host, step: Step::Hello, reason }, out);
                }
                self.greet(peer, facts, out);
            }
            (Phase::Ready, Boot::Ready) => self.reach(peer, Step::Ready),
            (Phase::Inited, Boot::Inited) => self.reach(peer, Step::Inited),
            (_, other) => {
                let reason = format!("unexpected message {other:?}").chars().take(200).collect();
                let host = self.host(peer);
                return self.fail(Diagnosis { host, step: self.waited_step(), reason }, out);
            }
        }
        self.advance(now, out);
    }

    fn greet(&mut self, peer: u32, facts: HostFacts, out: &mut Vec<MasterAction>) {
        if let Some(member) = self.members.get_mut(&peer) {
            let host = std::mem::take(&mut member.facts.host);
            // The name that the user gave is the one that the user knows.
            member.facts = HostFacts { host, ..facts };
            member.step = Step::Config;
        } else if matches!(self.options.members, Members::Arrival(count) if self.members.len() < count as usize)
        {
            let slot = u32::try_from(self.members.len()).unwrap_or(u32::MAX) + 1;
            self.members.insert(peer, Member { peer, slot, step: Step::Config, facts });
        } else {
            // One too many.
            out.push(MasterAction::Close(peer));
        }
    }

    fn reach(&mut self, peer: u32, step: Step) {
        if let Some(member) = self.members.get_mut(&peer) {
            member.step = step;
        }
    }

    fn host(&self, peer: u32) -> String {
        self.members
            .get(&peer)
            .map_or_else(|| format!("connection {peer}"), |m| m.facts.host.clone())
    }

    /// Goes on when every process that is waited for is there.
    fn advance(&mut self, now: Time, out: &mut Vec<MasterAction>) {
        let all = |step: Step| self.members.values().all(|member| member.step >= step);
        match self.phase {
            Phase::Hello => {
                let here = self.members.values().filter(|m| m.step >= Step::Config).count();
                let want = self.processes() as usize - 1 - self.missing.len();
                if here == want && all(Step::Config) {
                    self.configure(now, out);
                }
            }
            Phase::Ready if self.own && all(Step::Ready) => {
                self.phase = Phase::Inited;
                self.own = false;
                self.deadline = now.after(self.options.step_timeout);
                out.extend(self.members.keys().map(|peer| MasterAction::Send(*peer, Boot::Init)));
                out.push(MasterAction::Init);
            }
            Phase::Inited if self.own && all(Step::Inited) => {
                self.phase = Phase::Over;
                self.deadline = Time::NEVER;
                out.extend(self.members.keys().map(|peer| MasterAction::Send(*peer, Boot::Start)));
                out.push(MasterAction::Start { missing: self.missing.clone() });
            }
            Phase::Ready | Phase::Inited | Phase::Over => {}
        }
    }

    /// Slots, addresses and the experiment to every process that is there.
    fn configure(&mut self, now: Time, out: &mut Vec<MasterAction>) {
        let mut addresses = vec![Vec::new(); self.processes() as usize];
        addresses[0].clone_from(&self.options.addresses);
        for member in self.members.values() {
            addresses[member.slot as usize].clone_from(&member.facts.addresses);
        }
        for member in self.members.values() {
            let config = Boot::Config {
                slot: member.slot,
                processes: self.processes(),
                incarnation: self.options.incarnation,
                addresses: addresses.clone(),
                config: self.options.config,
                run: self.options.run,
            };
            out.push(MasterAction::Send(member.peer, config));
            let graph = Boot::Graph(self.options.graph.clone());
            out.push(MasterAction::Send(member.peer, graph));
        }
        // Round 0 of the mesh is the master's: it connects to all higher slots.
        let mut others: Vec<_> =
            self.members.values().map(|m| (m.slot, m.facts.addresses.clone())).collect();
        others.sort_unstable();
        out.push(MasterAction::Connect(others));
        self.phase = Phase::Ready;
        self.own = false;
        self.deadline = now.after(self.options.step_timeout);
        self.advance(now, out);
    }

    /// Returns true if the policy allows `more` processes to be missing.
    fn can_miss(&self, more: usize) -> bool {
        match self.options.require {
            Require::All => false,
            // Once the addresses are out, every process relies on every other.
            Require::AtLeast(least) => {
                let left = self.processes() as usize - self.missing.len();
                self.phase == Phase::Hello && left - more.min(left) >= least as usize
            }
        }
    }

    fn lose(&mut self, now: Time, peer: u32, why: &str, out: &mut Vec<MasterAction>) {
        let Some(member) = self.members.get(&peer) else { return };
        let step = self.waited_step().max(member.step.min(Step::Inited));
        let (host, slot) = (member.facts.host.clone(), member.slot);
        let fixed = matches!(self.options.members, Members::Static(_));
        if !fixed && self.phase == Phase::Hello {
            // Its slot is given to the next one that calls.
            self.members.remove(&peer);
            // Slots stay in the order of arrival: a process that came later moves up.
            for member in self.members.values_mut().filter(|member| member.slot > slot) {
                member.slot -= 1;
            }
            return;
        }
        if self.can_miss(1) {
            self.members.remove(&peer);
            self.missing.push(slot);
            return self.advance(now, out);
        }
        self.fail(Diagnosis { host, step, reason: why.to_owned() }, out);
    }

    fn time_out(&mut self, now: Time, out: &mut Vec<MasterAction>) {
        let step = self.waited_step();
        let reached = |member: &Member| match self.phase {
            Phase::Hello => member.step >= Step::Config,
            Phase::Ready => member.step >= Step::Ready,
            Phase::Inited | Phase::Over => member.step >= Step::Inited,
        };
        let silent: Vec<(u32, u32, String)> = self
            .members
            .values()
            .filter(|member| !reached(member))
            .map(|member| (member.peer, member.slot, member.facts.host.clone()))
            .collect();
        let known = self.members.len() + self.missing.len() + 1;
        let unknown = self.processes() as usize - known.min(self.processes() as usize);
        if self.can_miss(silent.len() + unknown) {
            for (peer, slot, _) in silent {
                self.members.remove(&peer);
                self.missing.push(slot);
                out.push(MasterAction::Close(peer));
            }
            let last = self.processes();
            self.missing.extend(last - u32::try_from(unknown).unwrap_or(0)..last);
            self.deadline = Time::NEVER;
            return self.advance(now, out);
        }
        let host = match silent.first() {
            Some((_, _, host)) => host.clone(),
            None if unknown > 0 => format!("slot {}", known),
            None => "master".to_owned(),
        };
        let limit = itg_core::units::format_duration_ns(self.options.step_timeout);
        let more = (silent.len() + unknown).saturating_sub(1);
        let more = if more > 0 { format!(", and {more} more hosts") } else { String::new() };
        let reason = format!("nothing came within {limit}{more}");
        self.fail(Diagnosis { host, step, reason }, out);
    }

    fn fail(&mut self, diagnosis: Diagnosis, out: &mut Vec<MasterAction>) {
        self.phase = Phase::Over;
        self.deadline = Time::NEVER;
        for peer in self.members.keys() {
            out.push(MasterAction::Send(*peer, Boot::Abort(diagnosis.clone())));
            out.push(MasterAction::Close(*peer));
        }
        out.push(MasterAction::Failed(diagnosis));
    }
}
