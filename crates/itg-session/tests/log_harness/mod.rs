//! Producers and a log server in virtual time: connections that are cut, datagrams that are lost,
//! doubled and overtaken, a disk that is slow, full or fails, a server that is killed and comes
//! back; and what must hold whatever happens, checked while it runs and at the end.
#![allow(
    unreachable_pub,
    missing_docs,
    clippy::cast_possible_truncation,
    clippy::float_cmp,
    reason = "test code: small numbers, and shares that are exactly 0 or not"
)]

mod check;
mod plan;
mod producer;
mod server;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use chacha20::ChaCha8Rng;
use itg_session::logs::{
    LogAccount, LogBook, LogFate, LogMessage, LogProducer, LogServerSession, ProducerInput,
    ServerInput, SessionId, Transport, decode, encode,
};
use rand::{RngExt, SeedableRng};

pub use check::check;
pub use plan::{BLOCK_BYTES, MS, OnFull, Outage, Plan, SECOND};

/// Something wrong with a program, put in on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// The server's driver says `Stored` before it has written.
    AckBeforeStore,
    /// The server's driver writes duplicates too.
    ForgetDedupe,
    /// More credit never reaches a producer.
    LoseCredit,
    /// A session is not told what other sessions have done for it.
    SwallowWake,
    /// A producer's driver frees buffers when they have been sent.
    ReleaseEarly,
    /// The server's `Left` says what the producer wants to hear.
    HideGaps,
    /// The server forgets after a restart what is in its files.
    ForgetFiles,
    /// The producer's machine misses its deadlines, once it is registered.
    DeafProducer,
}

#[derive(Clone, Debug)]
pub enum Frame {
    Message(Vec<u8>),
    Block(Block),
}

#[derive(Clone, Copy, Debug)]
pub struct Block {
    pub log_id: u32,
    pub block_no: u32,
    pub records: u32,
    pub intact: bool,
}

#[derive(Debug)]
enum Event {
    /// To the machine of a producer; if a connection is named, only while it has that one.
    Producer(usize, Option<u64>, ProducerInput),
    /// To a session of this incarnation of the server.
    Session(u64, SessionId, ServerInput),
    Accept(u64),
    FrameToServer(u64, Frame),
    FrameToProducer(u64, Vec<u8>),
    Datagram(usize, Frame),
    Written(u64),
    Produce(usize),
    Stop(usize),
    Kill(Outage),
    Start,
    Full(bool),
}

/// A connection; its session has the same number.
#[derive(Debug)]
struct Connection {
    producer: usize,
    /// Frames pass.
    alive: bool,
    /// Arrival of the last frame: TCP keeps the order.
    to_server: u64,
    to_producer: u64,
}

#[derive(Debug)]
struct Producer {
    machine: LogProducer,
    connection: Option<u64>,
    log_id: u32,
    /// Blocks in buffers, and in the spool: records of each.
    buffers: BTreeMap<u32, u32>,
    spool: BTreeMap<u32, u32>,
    /// Records of each block produced, and which of them were dropped.
    produced: Vec<u32>,
    dropped: BTreeSet<u32>,
    left: u32,
    waiting: bool,
    closed: bool,
    key: [u8; 16],
    end: Option<End>,
}

/// End of a producer: its instant, the outcome of its log, and the failure, if any.
pub type End = (u64, LogFate, Option<String>);

/// A write that has not reached the disk.
#[derive(Clone, Debug)]
struct Write {
    session: SessionId,
    run: String,
    log_id: u32,
    block_no: u32,
    records: u32,
}

/// State that survives a kill of the server.
#[derive(Debug, Default)]
pub struct Disk {
    /// The index: experiment, key, number.
    pub index: Vec<(String, [u8; 16], u32)>,
    /// Records by experiment, log and block.
    pub blocks: BTreeMap<(String, u32, u32), u32>,
    /// Numbers of the logs in the order of writing.
    pub order: Vec<u32>,
}

struct World<'a> {
    plan: &'a Plan,
    bug: Option<Bug>,
    rng: ChaCha8Rng,
    now: u64,
    queue: BTreeMap<(u64, u64), Event>,
    events: u64,
    frames: usize,
    connections: Vec<Connection>,
    producers: Vec<Producer>,
    /// Incarnation of the server; odd: it is there.
    life: u64,
    book: LogBook,
    sessions: BTreeMap<SessionId, LogServerSession>,
    writes: VecDeque<Write>,
    writing: bool,
    disk_full: bool,
    disk: Disk,
    /// Datagrams from these producers are taken by these sessions.
    authorised: BTreeMap<usize, SessionId>,
    trace: Trace,
}

/// Record of a simulated experiment.
#[derive(Debug, Default)]
pub struct Trace {
    pub broken: Vec<String>,
    pub lines: VecDeque<String>,
    pub frames: usize,
    pub accounts: Vec<LogAccount>,
    pub ends: Vec<Option<End>>,
    pub disk: Disk,
    /// Named situations that came up.
    pub seen: BTreeSet<&'static str>,
}

/// Lets an experiment run until all producers have ended and the server is idle.
pub fn run(plan: &Plan, bug: Option<Bug>) -> Trace {
    let mut world = World {
        plan,
        bug,
        rng: ChaCha8Rng::seed_from_u64(!plan.seed),
        now: 0,
        queue: BTreeMap::new(),
        events: 0,
        frames: 0,
        connections: Vec::new(),
        producers: Vec::new(),
        life: 1,
        book: LogBook::new(plan.limits),
        sessions: BTreeMap::new(),
        writes: VecDeque::new(),
        writing: false,
        disk_full: false,
        disk: Disk::default(),
        authorised: BTreeMap::new(),
        trace: Trace::default(),
    };
    for number in 0..plan.producers.len() {
        world.add_producer(number);
    }
    for &outage in &plan.outages {
        world.at(outage.at, Event::Kill(outage));
    }
    for &(from, until) in &plan.full {
        world.at(from, Event::Full(true));
        world.at(until, Event::Full(false));
    }
    world.live();
    world.conclude()
}

impl World<'_> {
    fn at(&mut self, time: u64, event: Event) {
        self.events += 1;
        self.queue.insert((time, self.events), event);
    }

    fn is_up(&self) -> bool {
        self.life % 2 == 1
    }

    fn broken(&mut self, what: impl Into<String>) {
        let at = self.now as f64 / 1e9;
        self.trace.broken.push(format!("{at:.6} s: {}", what.into()));
    }

    fn note(&mut self, what: &dyn std::fmt::Debug, who: &str, number: u64) {
        if self.trace.lines.len() > 300 {
            self.trace.lines.pop_front();
        }
        let at = self.now as f64 / 1e9;
        self.trace.lines.push_back(format!("{at:>12.6} s  {who} {number} {what:?}"));
    }

    fn live(&mut self) {
        let horizon = self.plan.horizon();
        loop {
            let event = self.queue.keys().next().map(|&(time, _)| time);
            let hears = |p: &Producer| self.bug != Some(Bug::DeafProducer) || p.log_id == 0;
            let producers = self.producers.iter().enumerate().filter(|(_, p)| hears(p));
            let producer =
                producers.filter_map(|(i, p)| p.machine.deadline().map(|at| (at, i))).min();
            let session =
                self.sessions.iter().filter_map(|(&id, s)| s.deadline().map(|at| (at, id))).min();
            let next = [event, producer.map(|(at, _)| at), session.map(|(at, _)| at)];
            let Some(next) = next.into_iter().flatten().min() else { return };
            if next > horizon || self.trace.broken.len() > 3 {
                return;
            }
            self.now = self.now.max(next);
            if event == Some(next) {
                let (_, event) = self.queue.pop_first().expect("just seen");
                self.deliver(event);
            } else if let Some((_, number)) = producer.filter(|&(at, _)| at == next) {
                self.tell_producer(number, ProducerInput::Timer);
                if self.producers[number].machine.deadline().is_some_and(|at| at <= self.now) {
                    return self.broken("a producer's deadline does not move on");
                }
            } else if let Some((_, id)) = session {
                self.tell_session(id, ServerInput::Timer);
                let deadline = self.sessions.get(&id).and_then(LogServerSession::deadline);
                if deadline.is_some_and(|at| at <= self.now) {
                    return self.broken("a session's deadline does not move on");
                }
            }
        }
    }

    fn deliver(&mut self, event: Event) {
        match event {
            Event::Producer(number, connection, input) => {
                if connection.is_none() || self.producers[number].connection == connection {
                    self.tell_producer(number, input);
                }
            }
            Event::Session(life, id, input) => {
                if life == self.life {
                    self.tell_session(id, input);
                }
            }
            Event::Accept(connection) => self.accept(connection),
            Event::FrameToServer(connection, frame) => self.arrive(connection, frame),
            Event::FrameToProducer(connection, bytes) => {
                let number = self.connections[connection as usize].producer;
                if self.producers[number].connection == Some(connection) {
                    let message = decode(&bytes).expect("what was encoded can be decoded");
                    self.tell_producer(number, ProducerInput::Message(message));
                }
            }
            Event::Datagram(number, frame) => self.arrive_datagram(number, frame),
            Event::Written(life) => self.written(life),
            Event::Produce(number) => self.produce(number),
            Event::Stop(number) => self.close(number),
            Event::Kill(outage) => self.kill(outage),
            Event::Start => self.start(),
            Event::Full(full) => self.set_full(full),
        }
    }

    /// Puts a frame on a connection, in order; the connection may die of it.
    fn transmit(&mut self, connection: u64, frame: Frame, to_server: bool) {
        if !self.connections[connection as usize].alive {
            return;
        }
        let number = self.frames;
        self.frames += 1;
        let dies = self.plan.cut > 0.0 && self.rng.random_bool(self.plan.cut);
        if dies || self.plan.cut_at == Some(number) {
            self.trace.seen.insert("a connection was cut");
            let (one, other) = (self.rng.random_bool(0.8), self.rng.random_bool(0.8));
            return self.cut(connection, one, other);
        }
        let time = self.arrival(connection, to_server);
        match frame {
            Frame::Message(bytes) if !to_server => {
                self.at(time, Event::FrameToProducer(connection, bytes));
            }
            frame => self.at(time, Event::FrameToServer(connection, frame)),
        }
    }

    fn arrival(&mut self, connection: u64, to_server: bool) -> u64 {
        let delay = self.rng.random_range(0..=self.plan.delay_ns);
        let connection = &mut self.connections[connection as usize];
        let last = if to_server { &mut connection.to_server } else { &mut connection.to_producer };
        *last = (*last).max(self.now + delay);
        *last
    }

    /// A connection dies; its ends may learn of it, behind what is on its way.
    fn cut(&mut self, connection: u64, producer_learns: bool, server_learns: bool) {
        if !std::mem::replace(&mut self.connections[connection as usize].alive, false) {
            return;
        }
        let number = self.connections[connection as usize].producer;
        let why = || "connection reset by peer".to_owned();
        if producer_learns {
            let time = self.arrival(connection, false);
            let lost = ProducerInput::Lost(why());
            self.at(time, Event::Producer(number, Some(connection), lost));
        }
        if server_learns {
            let time = self.arrival(connection, true);
            self.at(time, Event::Session(self.life, connection, ServerInput::Lost(why())));
        }
    }

    fn conclude(mut self) -> Trace {
        self.check_idle();
        self.trace.frames = self.frames;
        self.trace.ends = self.producers.iter().map(|p| p.end.clone()).collect();
        let mut broken = std::mem::take(&mut self.trace.broken);
        for (number, producer) in self.producers.iter().enumerate() {
            check::check_producer(&self, number, producer, &mut broken);
        }
        self.trace.broken = broken;
        self.trace.disk = self.disk;
        self.trace
    }

    /// Checks that a server without producers uses no memory.
    fn check_idle(&mut self) {
        if self.producers.iter().any(|p| p.end.is_none()) || !self.is_up() {
            return;
        }
        let (producers, bytes) = (self.book.producers(), self.book.outstanding_bytes());
        if (producers, bytes) != (0, 0) {
            self.broken(format!("{producers} producers and {bytes} bytes are left at the server"));
        }
    }
}

/// A keyed hash, good enough for a simulation.
pub fn keyed_hash(secret: &str, text: &[u8]) -> [u8; 32] {
    let mut hash = [0u8; 32];
    for (i, byte) in secret.bytes().chain(text.iter().copied()).enumerate() {
        hash[i % 32] = hash[i % 32].wrapping_mul(31).wrapping_add(byte);
    }
    hash
}
