//! The simulator: processes on simulated networks, faults, checkers; one thread, one heap, one seed.

mod disk;
mod fault;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use itg_core::seed::RunSeed;
use itg_process::{
    Config, ConfigError, Event, LayerEvent, LayerWrite, Level, Message, Network, Outgoing, Process,
    ProcessContext, Registry, Report, Slot, StopReason, Stored, Time, To, Transport, everybody,
};

use self::disk::Disk;
pub use self::disk::Disks;
use self::fault::is_recovery;
use crate::agenda::{Agenda, Class};
use crate::check::{Checker, Observation, ObservedEvent, Violation};
use crate::clock::Clock;
use crate::faults::{Fault, Hop, PacketOutcome, Weather};
use crate::hash::TraceHash;
use crate::model::{Drop, Effect, Model, Packet, Usage};
use crate::networks::{NetworkBuild, Networks};
use crate::pcapng::Pcapng;

/// Jobs that wait for a paused or slow process; more are dropped.
const BACKLOG: usize = 100_000;

/// Reason for which a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// All processes have stopped, or are gone for good; not if all have crashed: [`World::heal`] brings them back.
    Stopped,
    /// Nothing is left to happen.
    Idle,
    /// The time was over.
    Until,
    /// A checker has found something.
    Violated,
}

/// Event that waits for its time.
#[derive(Debug)]
enum Todo {
    Deliver {
        letter: usize,
        to: Slot,
    },
    Network {
        net: u8,
        token: u64,
    },
    Wake(Slot),
    Resume(Slot),
    Fault(Box<Fault>),
    /// Time at which writes of a process may be durable.
    Synced(Slot),
}

/// A message on its way.
#[derive(Debug)]
struct Letter {
    message: Message,
    /// Number of the sending, over all processes.
    seq: u64,
    sent: u64,
    /// Deliveries that are still to come.
    pending: u32,
}

/// Call that waits for a process that is paused or slow.
#[derive(Debug)]
enum Job {
    Deliver(usize),
    Wake,
}

struct Host {
    process: Option<Process>,
    incarnation: u64,
    /// Incarnation of the ticket on its disk, and of the one that it has replaced.
    tickets: (u64, u64),
    clock: Clock,
    /// The wake-up that counts; others are stale.
    wake_at: Option<u64>,
    free_at: u64,
    cost: u64,
    refuses_until: u64,
    backlog: VecDeque<Job>,
    resuming: bool,
    /// Its journals; none in a world without storage.
    disk: Option<Disk>,
    /// True once it has started for the first time.
    booted: bool,
    /// It is down because it has crashed.
    crashed: bool,
    /// It is down because it has done its work.
    finished: bool,
}

/// Counters of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Events taken from the heap.
    pub events: u64,
    /// Messages of layers handed to networks, multicasts once.
    pub sent: u64,
    /// Messages of layers delivered to processes.
    pub delivered: u64,
    /// Messages of layers that did not arrive, by reason.
    pub dropped: BTreeMap<Drop, u64>,
    /// Faults carried out.
    pub faults: u64,
    /// Occurrences of each situation, by name.
    pub sometimes: BTreeMap<&'static str, u64>,
}

impl Counts {
    /// Number of times that this situation occurred.
    pub fn occurrences(&self, situation: impl LayerEvent) -> u64 {
        self.sometimes.get(situation.name()).copied().unwrap_or(0)
    }
}

/// Processes in virtual time.
pub struct World {
    seed: RunSeed,
    now: u64,
    agenda: Agenda<Todo>,
    hosts: Vec<Host>,
    models: Vec<Box<dyn Model>>,
    networks: Arc<[Network]>,
    letters: Vec<Option<Letter>>,
    free: Vec<usize>,
    weather: Weather,
    config: Config,
    registry: Registry,
    everybody: Arc<[Slot]>,
    checkers: Vec<Box<dyn Checker>>,
    violation: Option<Violation>,
    hash: TraceHash,
    counts: Counts,
    letters_sent: u64,
    events: Option<Vec<(u64, Slot, Event)>>,
    capture: Option<Pcapng>,
    recoveries: u64,
    buggify: u32,
    effects: Vec<Effect>,
    batch: Vec<(usize, Slot)>,
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("World")
            .field("now", &self.now)
            .field("hosts", &self.hosts.len())
            .finish_non_exhaustive()
    }
}

impl World {
    /// Builds the networks and processes of a configuration; they start at time 0.
    ///
    /// # Errors
    /// Unknown networks and layers and wrong parameters, with file, line and the nearest name.
    pub fn new(config: &Config, registry: &Registry, seed: RunSeed) -> Result<Self, ConfigError> {
        Self::with_networks(config, registry, &Networks::default(), seed)
    }

    /// The same with networks of one's own.
    ///
    /// # Errors
    /// As [`World::new`].
    pub fn with_networks(
        config: &Config,
        registry: &Registry,
        own: &Networks,
        seed: RunSeed,
    ) -> Result<Self, ConfigError> {
        let mut models = Vec::new();
        let mut described: Vec<Network> = Vec::new();
        for entry in &config.networks {
            let mut params = entry.params.clone();
            let (params, name, hosts) = (&mut params, entry.name.as_str(), config.processes);
            let model = own.make(&entry.kind, &mut NetworkBuild { params, seed, name, hosts })?;
            described.push(Network { name: entry.name.clone(), contract: model.contract() });
            models.push(model);
        }
        let rngs = config.networks.iter().map(|net| seed.named(&format!("faults {}", net.name)));
        let weather = Weather::new(rngs);
        let everybody = everybody(config.processes);
        let host = |_| Host {
            process: None,
            incarnation: 0,
            tickets: (1, 1),
            clock: Clock::default(),
            wake_at: None,
            free_at: 0,
            cost: 0,
            refuses_until: 0,
            backlog: VecDeque::new(),
            resuming: false,
            disk: None,
            booted: false,
            crashed: false,
            finished: false,
        };
        let mut world = Self {
            seed,
            now: 0,
            agenda: Agenda::default(),
            hosts: (0..config.processes).map(host).collect(),
            models,
            networks: described.into(),
            letters: Vec::new(),
            free: Vec::new(),
            weather,
            config: config.clone(),
            registry: registry.clone(),
            everybody,
            checkers: Vec::new(),
            violation: None,
            hash: TraceHash::default(),
            counts: Counts::default(),
            letters_sent: 0,
            events: None,
            capture: None,
            recoveries: 0,
            buggify: 0,
            effects: Vec::new(),
            batch: Vec::new(),
        };
        for slot in 0..config.processes {
            world.hosts[slot as usize].process = Some(world.build(Slot(slot), 1)?);
        }
        Ok(world)
    }

    /// Adds a checker; it sees everything from now on.
    pub fn check(&mut self, checker: impl Checker + 'static) {
        self.checkers.push(Box::new(checker));
    }

    /// Keeps all events of layers, for [`World::take_events`].
    pub fn keep_events(&mut self) {
        self.events = Some(Vec::new());
    }

    /// Keeps all messages that arrive, for [`World::take_capture`].
    pub fn keep_capture(&mut self) {
        self.capture = Some(Pcapng::new());
    }

    /// Lets layers do rare but legal things, each chance with so many parts in a million.
    pub fn set_buggify(&mut self, parts: u32) {
        self.buggify = parts;
        for process in self.hosts.iter_mut().filter_map(|host| host.process.as_mut()) {
            process.set_buggify(parts);
        }
    }

    /// Enters a fault.
    pub fn fault_at(&mut self, at: u64, fault: Fault) {
        self.recoveries += u64::from(is_recovery(&fault));
        self.agenda.push(at, Class::World, Todo::Fault(Box::new(fault)));
    }

    /// Starts all processes; called by the first run.
    fn start(&mut self) {
        for slot in 0..self.hosts.len() {
            if self.hosts[slot].incarnation == 0 && self.hosts[slot].process.is_some() {
                self.hosts[slot].incarnation = 1;
                self.begin(slot);
            }
        }
    }

    /// Runs until everything has stopped, nothing is left, a checker objects, or virtual time `until`
    /// (in nanoseconds) has come; events of that time are not run. May be called again.
    pub fn run(&mut self, until: u64) -> Exit {
        self.run_while(until, |_| true)
    }

    /// As [`World::run`], and no longer than a condition holds, which is asked after every event.
    pub fn run_while(&mut self, until: u64, mut go_on: impl FnMut(&Self) -> bool) -> Exit {
        self.start();
        loop {
            if self.violation.is_some() {
                return Exit::Violated;
            }
            if self.all_stopped() {
                return Exit::Stopped;
            }
            match self.agenda.peek() {
                None => return Exit::Idle,
                Some((at, _)) if at >= until => {
                    self.now = self.now.max(until);
                    return Exit::Until;
                }
                Some(_) => self.step(),
            }
            if !go_on(self) {
                return Exit::Until;
            }
        }
    }

    /// Ends the faults: links are fair, no process is paused or slow, and the processes that are
    /// down and among these come back, unless they have finished.
    pub fn heal(&mut self, core: &[Slot]) {
        self.weather.clear();
        for at in 0..self.hosts.len() {
            self.hosts[at].cost = 0;
            self.hosts[at].refuses_until = 0;
            self.heal_disk(at);
            self.hosts[at].free_at = self.now;
            self.resume(at);
        }
        for slot in core {
            if self.hosts.get(slot.index()).is_some_and(|host| host.finished) {
                continue;
            }
            self.carry_out_fault(Fault::Recover(*slot));
        }
        self.faults_are_over();
    }

    /// Tells the checkers that no further fault comes; those in force stay.
    pub fn faults_are_over(&mut self) {
        self.see(Slot(0), &ObservedEvent::Healed);
    }

    /// Returns true if all checkers have seen what must happen after the faults.
    #[must_use]
    pub fn converged(&self) -> bool {
        self.checkers.iter().all(|checker| checker.converged())
    }

    /// Lets the checkers draw their conclusions; what they had found before stays.
    pub fn finish(&mut self) -> Option<&Violation> {
        for checker in &mut self.checkers {
            if self.violation.is_none()
                && let Err(text) = checker.finish()
            {
                let checker = checker.name();
                self.violation = Some(Violation { checker, text, at: self.now, slot: Slot(0) });
            }
        }
        self.violation.as_ref()
    }

    /// First violation that a checker has found.
    #[must_use]
    pub const fn violation(&self) -> Option<&Violation> {
        self.violation.as_ref()
    }

    /// The virtual time in nanoseconds.
    #[must_use]
    pub const fn now(&self) -> u64 {
        self.now
    }

    /// The hash of everything that has happened.
    #[must_use]
    pub const fn hash(&self) -> u64 {
        self.hash.value()
    }

    /// Counters so far.
    #[must_use]
    pub const fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Name, description and usage of each network.
    pub fn networks(&self) -> impl Iterator<Item = (&Network, String, Usage)> {
        let models = self.models.iter().map(|model| (model.describe(), model.usage()));
        self.networks.iter().zip(models).map(|(net, (text, usage))| (net, text, usage))
    }

    /// A process, when it is up.
    #[must_use]
    pub fn process(&self, slot: Slot) -> Option<&Process> {
        self.hosts.get(slot.index())?.process.as_ref()
    }

    /// The events kept since the last call: time, process, event.
    pub fn take_events(&mut self) -> Vec<(u64, Slot, Event)> {
        self.events.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// The messages kept, as a pcapng file.
    pub fn take_capture(&mut self) -> Option<Vec<u8>> {
        self.capture.take().map(Pcapng::into_bytes)
    }

    /// Lets the application of a process do something from outside, at the present time.
    pub fn with(&mut self, slot: Slot, act: impl FnOnce(&mut Process, Time)) {
        self.start();
        let at = slot.index();
        let now = Time(self.hosts[at].clock.at(self.now));
        if let Some(process) = &mut self.hosts[at].process {
            act(process, now);
            self.after(at);
        }
    }

    fn build(&mut self, slot: Slot, incarnation: u64) -> Result<Process, ConfigError> {
        let journals = self.journals(slot);
        let journals = journals.as_ref();
        let (networks, everybody) = (&self.networks, &self.everybody);
        let seed = self.seed;
        let place = ProcessContext { slot, incarnation, seed, networks, everybody, journals };
        let mut process = self.registry.process(&self.config, &place)?;
        process.set_buggify(self.buggify);
        Ok(process)
    }

    fn all_stopped(&self) -> bool {
        self.recoveries == 0
            && self.hosts.iter().all(|host| host.process.is_none())
            && self.hosts.iter().all(|host| host.incarnation > 0)
            // Those that have all crashed wait for somebody to heal them.
            && !self.hosts.iter().all(|host| host.crashed)
    }

    fn step(&mut self) {
        let Some((at, todo)) = self.agenda.pop() else { return };
        self.now = at;
        self.counts.events += 1;
        match todo {
            Todo::Deliver { letter, to } => self.deliveries(letter, to),
            Todo::Network { net, token } => {
                self.models[usize::from(net)].wake(at, token, &mut self.effects);
                self.effects(usize::from(net), true);
            }
            Todo::Wake(slot) => {
                let host = &mut self.hosts[slot.index()];
                if host.wake_at == Some(at) {
                    host.wake_at = None;
                    self.work(slot.index(), Job::Wake);
                }
            }
            Todo::Synced(slot) => self.synced(slot),
            Todo::Resume(slot) => {
                self.hosts[slot.index()].resuming = false;
                self.resume(slot.index());
            }
            Todo::Fault(fault) => {
                self.recoveries -= u64::from(is_recovery(&fault));
                self.carry_out_fault(*fault);
            }
        }
    }

    /// Delivers all messages of an instant that follow each other in the heap: to each process in the
    /// order of network, sender and sending.
    fn deliveries(&mut self, letter: usize, to: Slot) {
        let mut batch = std::mem::take(&mut self.batch);
        batch.push((letter, to));
        while let Some((at, Todo::Deliver { .. })) = self.agenda.peek()
            && at == self.now
        {
            if let Some((_, Todo::Deliver { letter, to })) = self.agenda.pop() {
                self.counts.events += 1;
                batch.push((letter, to));
            }
        }
        if batch.len() > 1 {
            batch.sort_by_key(|(letter, to)| {
                let letter = self.letters[*letter].as_ref();
                letter.map(|l| (*to, l.message.net, l.message.src, l.seq))
            });
        }
        for (letter, to) in batch.drain(..) {
            self.arrive(letter, to);
        }
        self.batch = batch;
    }

    fn arrive(&mut self, letter: usize, to: Slot) {
        let Some(found) = &self.letters[letter] else { return };
        let (src, sent) = (found.message.src, found.sent);
        if let Some(why) = self.weather.stops(src, to, sent) {
            return self.lose(letter, why);
        }
        if self.hosts.get(to.index()).is_none_or(|host| host.process.is_none()) {
            return self.lose(letter, Drop::Down);
        }
        self.work(to.index(), Job::Deliver(letter));
    }

    /// Lets a process work, now or when it can.
    fn work(&mut self, at: usize, job: Job) {
        let host = &mut self.hosts[at];
        if host.free_at <= self.now && host.backlog.is_empty() {
            return self.do_job(at, job);
        }
        if host.backlog.len() < BACKLOG {
            host.backlog.push_back(job);
        } else if let Job::Deliver(letter) = job {
            self.lose(letter, Drop::Queue);
        }
        self.resume(at);
    }

    /// Does the calls that wait, as far as time allows.
    fn resume(&mut self, at: usize) {
        loop {
            let host = &mut self.hosts[at];
            if host.backlog.is_empty() {
                return;
            }
            if host.free_at > self.now {
                if !host.resuming {
                    host.resuming = true;
                    let slot = Slot(u32::try_from(at).unwrap_or(u32::MAX));
                    self.agenda.push(host.free_at, Class::World, Todo::Resume(slot));
                }
                return;
            }
            if let Some(job) = host.backlog.pop_front() {
                self.do_job(at, job);
            }
        }
    }

    fn do_job(&mut self, at: usize, job: Job) {
        let slot = Slot(u32::try_from(at).unwrap_or(u32::MAX));
        let local = Time(self.hosts[at].clock.at(self.now));
        match job {
            Job::Deliver(letter) => {
                let Some(message) = self.open(letter, slot) else { return };
                self.counts.delivered += u64::from(!message.is_of_the_runtime());
                self.hash.word(self.now);
                self.hash.word(u64::from(slot.0) << 32 | u64::from(message.src.0));
                self.hash.word(u64::from(message.ty));
                self.hash.bytes(&message.body);
                if let Some(capture) = &mut self.capture {
                    capture.message(self.now, &message, slot);
                }
                self.see(slot, &ObservedEvent::Arrived(&message));
                if let Some(process) = &mut self.hosts[at].process {
                    process.deliver(local, message);
                }
            }
            Job::Wake => {
                self.hash.word(self.now ^ u64::from(slot.0) << 48);
                if let Some(process) = &mut self.hosts[at].process {
                    process.wake(local);
                }
            }
        }
        let host = &mut self.hosts[at];
        host.free_at = host.free_at.max(self.now + host.cost);
        self.after(at);
    }

    /// Takes a message out for one of its receivers.
    fn open(&mut self, letter: usize, to: Slot) -> Option<Message> {
        let found = self.letters[letter].as_mut()?;
        found.pending -= 1;
        let dst = itg_process::Dest::One(to);
        if found.pending > 0 {
            return Some(Message { dst, ..found.message.clone() });
        }
        self.free.push(letter);
        self.letters[letter].take().map(|letter| Message { dst, ..letter.message })
    }

    fn lose(&mut self, letter: usize, why: Drop) {
        self.hash.word(self.now ^ (why as u64) << 56);
        let Some(found) = self.letters[letter].as_mut() else { return };
        if !found.message.is_of_the_runtime() {
            *self.counts.dropped.entry(why).or_insert(0) += 1;
        }
        found.pending -= 1;
        if found.pending == 0 {
            self.letters[letter] = None;
            self.free.push(letter);
        }
    }

    /// Carries out what a process asked for, and sets its next wake-up.
    fn after(&mut self, at: usize) {
        if self.waits_for_disk(at) {
            return;
        }
        let slot = Slot(u32::try_from(at).unwrap_or(u32::MAX));
        let now = Time(self.hosts[at].clock.at(self.now));
        let Some(mut process) = self.hosts[at].process.take() else { return };
        process.carry_out(now, &mut Edge { world: self, slot });
        let next = process.next_wake();
        match process.stopped() {
            Some(why) => return self.stopped(at, why),
            None => self.hosts[at].process = Some(process),
        }
        let host = &mut self.hosts[at];
        let next = next.map(|local| host.clock.when(local.0).max(self.now));
        if let Some(next) = next
            && host.wake_at.is_none_or(|old| next < old)
        {
            host.wake_at = Some(next);
            self.agenda.push(next, Class::Timer, Todo::Wake(slot));
        }
    }

    fn stopped(&mut self, at: usize, why: StopReason) {
        let slot = Slot(u32::try_from(at).unwrap_or(u32::MAX));
        self.hash.word(self.now ^ 0x5354_4f50);
        self.hosts[at].finished = why == StopReason::Finished;
        self.see(slot, &ObservedEvent::Stopped(why));
        // Its last messages are sent before this: nothing of it is left.
        self.gone(at);
    }

    fn gone(&mut self, at: usize) {
        let host = &mut self.hosts[at];
        host.process = None;
        host.wake_at = None;
        for job in std::mem::take(&mut host.backlog) {
            if let Job::Deliver(letter) = job {
                self.lose(letter, Drop::Down);
            }
        }
    }

    fn event(&mut self, slot: Slot, layer: &str, event: &Event) {
        if event.level == Level::Sometimes {
            *self.counts.sometimes.entry(event.name).or_insert(0) += 1;
            return;
        }
        self.hash.bytes(event.name.as_bytes());
        event.values.iter().for_each(|value| self.hash.word(*value));
        if let Some(events) = &mut self.events {
            events.push((self.now, slot, *event));
        }
        self.see_layer(slot, layer, &ObservedEvent::Event(event));
    }

    fn see(&mut self, slot: Slot, what: &ObservedEvent<'_>) {
        self.see_layer(slot, "", what);
    }

    fn see_layer(&mut self, slot: Slot, layer: &str, what: &ObservedEvent<'_>) {
        for checker in &mut self.checkers {
            let seen = Observation { at: self.now, slot, layer, what: what.clone() };
            if let Err(text) = checker.see(&seen)
                && self.violation.is_none()
            {
                let checker = checker.name();
                self.violation = Some(Violation { checker, text, at: self.now, slot });
            }
        }
    }

    fn transmit(&mut self, message: Message, to: To) {
        let net = usize::from(message.net.0);
        let (src, bytes, urgent) = (message.src, message.wire_len(), message.ty >= 1000);
        let count = u32::try_from(to.slots().len()).unwrap_or(u32::MAX);
        self.counts.sent += u64::from(!message.is_of_the_runtime());
        let letter = Letter { message, seq: self.letters_sent, sent: self.now, pending: count };
        self.letters_sent += 1;
        let id = match self.free.pop() {
            Some(id) => {
                self.letters[id] = Some(letter);
                id
            }
            None => {
                self.letters.push(Some(letter));
                self.letters.len() - 1
            }
        };
        let packet = Packet { id: id as u64, src, to, bytes, urgent };
        self.models[net].submit(self.now, packet, &mut self.effects);
        self.effects(net, false);
    }

    /// Carries out what a network asked for. What it delivers at the present instant when it was `woken`
    /// is delivered at once: the order is that in which the network's own events were created.
    fn effects(&mut self, net: usize, woken: bool) {
        let mut effects = std::mem::take(&mut self.effects);
        for effect in effects.drain(..) {
            match effect {
                Effect::Wake(token, at) => {
                    let net = u8::try_from(net).unwrap_or(u8::MAX);
                    self.agenda.push(at, Class::World, Todo::Network { net, token });
                }
                Effect::Drop(id, _, why) => self.lose(index(id), why),
                Effect::Deliver(id, to, at) => self.deliver_at(net, index(id), to, at, woken),
                Effect::Again(id, to, at) => {
                    if let Some(letter) = &mut self.letters[index(id)] {
                        letter.pending += 1;
                        self.deliver_at(net, index(id), to, at, false);
                    }
                }
            }
        }
        self.effects = effects;
    }

    fn deliver_at(&mut self, net: usize, letter: usize, to: Slot, at: u64, at_once: bool) {
        let Some(found) = &mut self.letters[letter] else { return };
        let (from, bytes) = (found.message.src, found.message.wire_len());
        let times = match self.weather.fate(self.now, Hop { net, from, to, bytes }, at) {
            PacketOutcome::Lost(why) => return self.lose(letter, why),
            PacketOutcome::Arrives(at) => [Some(at), None],
            PacketOutcome::Twice(at, again) => {
                found.pending += 1;
                [Some(at), Some(again)]
            }
        };
        if at_once && times == [Some(self.now), None] {
            return self.arrive(letter, to);
        }
        for at in times.into_iter().flatten() {
            self.agenda.push(at, Class::World, Todo::Deliver { letter, to });
        }
    }

    fn begin(&mut self, at: usize) {
        let slot = Slot(u32::try_from(at).unwrap_or(u32::MAX));
        self.see(slot, &ObservedEvent::Started(self.hosts[at].incarnation));
        let local = Time(self.hosts[at].clock.at(self.now));
        if let Some(process) = &mut self.hosts[at].process {
            process.start(local);
        }
        self.after(at);
        self.hosts[at].booted = true;
    }

    fn recover(&mut self, slot: Slot, incarnation: u64) {
        let at = slot.index();
        if self.hosts.get(at).is_none_or(|host| host.process.is_some()) {
            return;
        }
        // The same configuration has been built before.
        if let Ok(process) = self.build(slot, incarnation) {
            let host = &mut self.hosts[at];
            host.process = Some(process);
            host.incarnation = incarnation;
            host.tickets = (incarnation, host.tickets.0);
            host.free_at = self.now;
            (host.crashed, host.finished) = (false, false);
            self.begin(at);
        }
    }
}

/// The networks of the world, as one process reaches them while it is driven.
struct Edge<'a> {
    world: &'a mut World,
    slot: Slot,
}

impl Transport for Edge<'_> {
    fn send(&mut self, now: Time, message: &Outgoing, to: Slot) -> bool {
        self.multicast(now, message, &To::One(to)).is_empty()
    }

    fn multicast(&mut self, _now: Time, message: &Outgoing, to: &To) -> Vec<Slot> {
        if self.world.hosts[self.slot.index()].refuses_until > self.world.now {
            return to.slots().to_vec();
        }
        self.world.transmit(message.message.clone(), to.clone());
        Vec::new()
    }

    fn persist(&mut self, _now: Time, writes: Vec<LayerWrite>) -> Stored {
        self.world.persist(self.slot, writes)
    }

    fn report(&mut self, report: Report) {
        match report {
            Report::Event { layer, event, .. } => self.world.event(self.slot, &layer, &event),
            Report::Trace(trace) => self.world.see(self.slot, &ObservedEvent::Message(&trace)),
            Report::Started { .. } | Report::Stopped(_) => {}
        }
    }
}

/// The index of a letter, from the number that networks know it by.
fn index(id: u64) -> usize {
    usize::try_from(id).unwrap_or(usize::MAX)
}
