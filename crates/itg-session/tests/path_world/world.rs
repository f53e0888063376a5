//! The world: time, events, hosts with clocks and disks, and what happens when.

use std::collections::{BTreeMap, BTreeSet};

use itg_record::BLOCK_HEADER_LEN;
use itg_session::logs::{self, FrameHead, ProducerInput, ServerInput};
use itg_session::{LogSummary, ReceiverInput, SenderInput};

use super::check::Truth;
use super::dice::{Clock, Dice, MS, SECOND};
use super::disk::Disk;
use super::ends::{Receiver, Sender};
use super::logs::{SimLog, Way, Wish};
use super::net::{Client, Later, Net};
use super::plan::{Fault, Host, Plan};
use super::planted::Planted;
use super::server::Server;

/// Longest time from the end of all faults to the end of the world.
const LONGEST: u64 = 900 * SECOND;
/// Most events of a world.
const MOST_EVENTS: u64 = 400_000;
/// Time between two looks at blocks that have grown old.
const LOOK: u64 = 200 * MS;

/// Something that happens later.
#[derive(Clone, Debug)]
pub enum Event {
    Net(Later),
    Accept(usize),
    Connected(usize),
    Refused(usize),
    Packet(Vec<u8>),
    ToServer(usize, Vec<u8>),
    Opened { life: u64, connection: usize, opened: Result<(), String> },
    Woken { life: u64, connection: usize },
    Written { life: u64 },
    Armed { life: u64 },
    Pace { life: u64, flow: usize },
    Drained { handle: u32 },
    LogClosed { id: usize, summary: LogSummary },
    Look,
    Run(u64),
    Forward(usize),
    Fault(Fault),
}

/// A world.
pub struct World {
    pub plan: Plan,
    pub planted: Option<Planted>,
    pub now: u64,
    queue: BTreeMap<(u64, u64), Event>,
    pub events: u64,
    pub dice: Dice,
    pub net: Net,
    pub clocks: [Clock; 3],
    pub disks: [Disk; 3],
    pub logs: Vec<SimLog>,
    pub sender: Option<Sender>,
    pub receiver: Option<Receiver>,
    pub server: Option<Server>,
    /// Number of the next program that starts.
    pub lives: u64,
    pub runs_left: u64,
    pub run: u64,
    pub healed: bool,
    /// Writes that the log server has begun.
    pub writes: u64,
    /// Log whose datagram is being looked at.
    pub binding: Option<usize>,
    pub truth: Truth,
    /// Files of the log server that nobody has opened since it was killed.
    pub torn: BTreeSet<String>,
    pub violations: Vec<String>,
    pub seen: BTreeSet<&'static str>,
    /// The last lines, when they are kept.
    pub lines: Option<Vec<String>>,
}

impl World {
    pub fn new(seed: u64, planted: Option<Planted>, keep: bool) -> Self {
        let plan = Plan::draw(seed);
        let disk = |host: Host| {
            // The programs of the ends have their own ways of opening.
            let planted = planted.filter(|_| host == Host::Server);
            Disk::new(Dice::new(seed, &format!("disk {host:?}")), planted)
        };
        let net = Net {
            connections: Vec::new(),
            dice: Dice::new(seed, "net"),
            delay_ns: plan.delay_ns,
            loss: plan.loss,
            twice: plan.twice,
            breaks: plan.breaks,
            refused_until: 0,
        };
        let mut world = Self {
            clocks: plan.ppm.map(|ppm| Clock { ppm, offset_ns: 0 }),
            disks: Host::ALL.map(disk),
            net,
            planted,
            now: SECOND,
            queue: BTreeMap::new(),
            events: 0,
            dice: Dice::new(seed, "world"),
            logs: Vec::new(),
            sender: None,
            receiver: None,
            server: None,
            lives: 0,
            runs_left: plan.runs,
            run: 0,
            healed: false,
            writes: 0,
            binding: None,
            truth: Truth::default(),
            torn: BTreeSet::new(),
            violations: Vec::new(),
            seen: BTreeSet::new(),
            lines: keep.then(Vec::new),
            plan,
        };
        for (at, fault) in world.plan.faults.clone() {
            world.at(SECOND + at, Event::Fault(fault));
        }
        world.start(Host::Server);
        world.start(Host::Receiver);
        world.at(SECOND, Event::Run(0));
        world.at(SECOND, Event::Look);
        world
    }

    pub fn at(&mut self, time: u64, event: Event) {
        self.events += 1;
        self.queue.insert((time.max(self.now), self.events), event);
    }

    pub fn later(&mut self, later: Vec<(u64, Later)>) {
        for (at, later) in later {
            self.at(at, Event::Net(later));
        }
    }

    pub fn broken(&mut self, what: String) {
        self.note(|| format!("BROKEN {what}"));
        self.violations.push(what);
    }

    pub fn note(&mut self, line: impl FnOnce() -> String) {
        let now = self.now;
        if let Some(lines) = &mut self.lines {
            lines.push(format!("{:>12.6} {}", now as f64 / 1e9, line()));
        }
    }

    /// Time of the clock of a host that only goes forward.
    pub fn host_ns(&self, host: Host) -> u64 {
        self.clocks[host as usize].monotonic(self.now)
    }

    /// Time that machines are given.
    pub fn machine_ns(&self, host: Host) -> u64 {
        match self.planted {
            Some(Planted::SteppedClock) => self.clocks[host as usize].unix(self.now),
            _ => self.host_ns(host),
        }
    }

    fn instant(&self, host: Host, machine_ns: u64) -> u64 {
        let clock = self.clocks[host as usize];
        match self.planted {
            Some(Planted::SteppedClock) => {
                let ahead = machine_ns.saturating_sub(clock.unix(self.now));
                self.now + ahead
            }
            _ => clock.instant(machine_ns),
        }
    }

    pub fn log_host(&self, log: usize) -> Host {
        match self.logs[log].plan.side {
            itg_record::Side::Sender => Host::Sender,
            itg_record::Side::Receiver => Host::Receiver,
        }
    }

    /// Runs until nothing more can happen, or too much.
    pub fn run(&mut self) {
        let end = SECOND + self.plan.healed_ns() + LONGEST;
        while self.violations.is_empty() {
            let timer = self.next_timer();
            let event = self.queue.keys().next().map(|&(at, _)| at);
            let over = self.is_over();
            let Some(next) = [event, timer.map(|(at, _)| at)].into_iter().flatten().min() else {
                break;
            };
            if (over && self.healed) || next > end || self.events > MOST_EVENTS {
                break;
            }
            self.now = self.now.max(next);
            if event.is_some_and(|at| at <= self.now) {
                let (_, event) = self.queue.pop_first().expect("just seen");
                self.happen(event);
            } else if let Some((_, who)) = timer {
                self.events += 1;
                self.serve(who);
            }
            self.check_deadlines();
        }
        if self.violations.is_empty() && !self.is_over() {
            let left = self.left();
            self.broken(format!("the world does not come to its end: {left}"));
        }
        self.check_end();
    }

    fn left(&self) -> String {
        let logs: Vec<usize> = (0..self.logs.len()).filter(|&log| !self.is_done(log)).collect();
        let (sender, receiver) = (self.sender.is_some(), &self.receiver);
        let sessions = receiver.as_ref().map_or(0, |receiver| receiver.sessions.len());
        let server = self.server.as_ref().map_or(0, |server| server.sessions.len());
        format!(
            "sender {sender}, {sessions} sessions of the receiver, {server} of the log server, logs {logs:?}, {} runs \
             left, after {} events",
            self.runs_left, self.events
        )
    }

    pub fn is_done(&self, log: usize) -> bool {
        self.logs[log].dead || self.logs[log].is_over()
    }

    fn is_over(&self) -> bool {
        self.runs_left == 0
            && self.sender.is_none()
            && self.receiver.as_ref().is_none_or(|receiver| receiver.sessions.is_empty())
            && self.server.as_ref().is_none_or(|server| server.sessions.is_empty())
            && (0..self.logs.len()).all(|log| self.is_done(log))
            && self.truth.forwards.is_empty()
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Net(Later::Bytes { connection, at_server, bytes }) => {
                self.arrive(connection, at_server, &bytes);
            }
            Event::Net(Later::Gone { connection, at_server }) => self.gone(connection, at_server),
            Event::Accept(connection) => match self.net.connections[connection].client {
                _ if !self.net.connections[connection].alive => {}
                Client::Sender => self.accept_sender(connection),
                Client::Log(_) => self.accept_log(connection),
            },
            Event::Connected(connection) => self.connected(connection),
            Event::Refused(connection) => self.gone(connection, false),
            Event::Packet(bytes) => self.packet(&bytes),
            Event::ToServer(log, bytes) => self.datagram_at_server(log, bytes),
            Event::Opened { life, connection, opened } if self.server_lives(life) => {
                self.tell_server(connection, ServerInput::Opened(opened), None);
            }
            Event::Woken { life, connection } if self.server_lives(life) => {
                self.tell_server(connection, ServerInput::Woken, None);
            }
            Event::Written { life } if self.server_lives(life) => self.written(),
            Event::Opened { .. } | Event::Woken { .. } | Event::Written { .. } => {}
            Event::Armed { life } => self.armed(life),
            Event::Pace { life, flow } => self.pace(life, flow),
            Event::Drained { handle } => self.drained(handle),
            Event::LogClosed { id, summary } => {
                self.tell_receiver(id, ReceiverInput::LogClosed(Some(summary)));
            }
            Event::Look => {
                for log in 0..self.logs.len() {
                    if !self.is_done(log) {
                        self.with_log(log, SimLog::flush);
                    }
                }
                self.sender_goes_on();
                self.at(self.now + LOOK, Event::Look);
            }
            Event::Run(run) => self.begin_run(run),
            Event::Forward(log) => self.forward(log),
            Event::Fault(fault) => self.fault(fault),
        }
    }

    fn server_lives(&self, life: u64) -> bool {
        self.server.as_ref().is_some_and(|server| server.life == life)
    }

    fn fault(&mut self, fault: Fault) {
        self.note(|| format!("fault {fault:?}"));
        match fault {
            Fault::Kill { host: Host::Server, power } => self.kill_server(power),
            Fault::Kill { host: Host::Receiver, power } => self.kill_receiver(power),
            Fault::Kill { host: Host::Sender, power } => self.kill_sender(power),
            Fault::Start(host) => self.start(host),
            Fault::ShutDown => self.shut_down_server(),
            Fault::Full(host, full) => self.disks[host as usize].set_full(full),
            Fault::Step(host, by) => {
                self.seen.insert("a clock was set");
                self.clocks[host as usize].offset_ns += by;
            }
            Fault::Sever => {
                for connection in 0..self.net.connections.len() {
                    let later = self.net.sever(connection, self.now);
                    self.later(later);
                }
            }
            Fault::Refuse(until) => self.net.refused_until = SECOND + until,
            Fault::Stop => self.stop_sender(),
            Fault::Heal => {
                self.net.heal();
                self.plan.damage = 0;
                self.plan.refused = 0;
                self.disks.iter().for_each(|disk| disk.set_full(false));
                self.start(Host::Server);
                self.start(Host::Receiver);
                self.healed = true;
            }
        }
    }

    /// Starts the program of a host, if it does not run.
    fn start(&mut self, host: Host) {
        self.lives += 1;
        match host {
            Host::Server => {
                let life = self.lives;
                self.server.get_or_insert_with(|| Server::new(life));
            }
            Host::Receiver => {
                self.receiver.get_or_insert_with(Receiver::default);
            }
            Host::Sender => {}
        }
    }

    /// Connections of a program that is gone: the other ends learn of it, unless its host is gone, too.
    pub fn drop_connections(
        &mut self,
        of: impl Fn(Client) -> bool,
        at_server: bool,
        silently: bool,
    ) {
        for connection in 0..self.net.connections.len() {
            if !of(self.net.connections[connection].client) {
                continue;
            }
            let later = self.net.close(connection, at_server, self.now);
            if !silently {
                self.later(later);
            }
        }
    }

    fn arrive(&mut self, connection: usize, at_server: bool, bytes: &[u8]) {
        let line = &mut self.net.connections[connection];
        if line.over[usize::from(!at_server)] {
            return;
        }
        line.arrived[usize::from(!at_server)].extend_from_slice(bytes);
        match (line.client, at_server) {
            (Client::Sender, true) => self.frames_at_receiver(connection),
            (Client::Sender, false) => self.frames_at_sender(connection),
            (Client::Log(_), true) => self.frames_at_server(connection),
            (Client::Log(log), false) => self.frames_at_log(log, connection),
        }
    }

    fn gone(&mut self, connection: usize, at_server: bool) {
        let line = &mut self.net.connections[connection];
        if std::mem::replace(&mut line.over[usize::from(!at_server)], true) {
            return;
        }
        line.alive = false;
        let why = "the connection is gone".to_owned();
        match (line.client, at_server) {
            (Client::Sender, true) => self.tell_receiver(connection, ReceiverInput::Lost(why)),
            (Client::Sender, false) => {
                let current = self.sender.as_ref().and_then(|sender| sender.connection);
                if current == Some(connection) {
                    self.tell_sender(SenderInput::Lost(why));
                }
            }
            (Client::Log(_), true) => self.tell_server(connection, ServerInput::Lost(why), None),
            (Client::Log(log), false) if self.logs[log].connection == Some(connection) => {
                self.logs[log].connection = None;
                self.with_log(log, |log| log.feed(ProducerInput::Lost(why)));
            }
            (Client::Log(_), false) => {}
        }
    }

    /// Begins to connect; the answer comes later.
    pub fn connect(&mut self, client: Client) -> usize {
        let connection = self.net.connect(client, self.now);
        let up = match client {
            Client::Sender => self.receiver.is_some(),
            Client::Log(_) => self.server.as_ref().is_some_and(|server| !server.is_stopping()),
        };
        if !up || self.now < self.net.refused_until {
            self.net.connections[connection].alive = false;
            let at = self.net.arrival(connection, false, self.now);
            self.at(at, Event::Refused(connection));
            return connection;
        }
        let at = self.net.arrival(connection, true, self.now);
        self.at(at, Event::Accept(connection));
        let back = self.net.arrival(connection, false, at);
        self.at(back, Event::Connected(connection));
        connection
    }

    fn connected(&mut self, connection: usize) {
        if self.net.connections[connection].over[1] {
            return;
        }
        match self.net.connections[connection].client {
            Client::Sender => {
                if let Some(sender) = &mut self.sender {
                    sender.connected = true;
                }
                self.tell_sender(SenderInput::Connected);
            }
            Client::Log(log) if self.logs[log].connection == Some(connection) => {
                self.with_log(log, |log| log.feed(ProducerInput::Connected));
            }
            Client::Log(_) => {}
        }
    }

    fn frames_at_log(&mut self, log: usize, connection: usize) {
        while self.logs[log].connection == Some(connection) {
            let buffer = &mut self.net.connections[connection].arrived[1];
            let Some(head) = buffer.first_chunk().copied() else { return };
            let input = match FrameHead::parse(head, 0) {
                Err(error) => ProducerInput::Garbage(error),
                Ok(head) => {
                    let end = 4 + head.len as usize;
                    if buffer.len() < end {
                        return;
                    }
                    let bytes: Vec<u8> = buffer.drain(..end).skip(4).collect();
                    logs::decode(&bytes).map_or_else(ProducerInput::Garbage, ProducerInput::Message)
                }
            };
            self.with_log(log, |log| log.feed(input));
        }
    }

    /// Gives a log its turn, and does what it wishes.
    pub fn with_log<R>(&mut self, log: usize, turn: impl FnOnce(&mut SimLog) -> R) -> Option<R> {
        if self.logs[log].dead {
            return None;
        }
        let host = self.log_host(log);
        self.logs[log].now.set(self.machine_ns(host));
        let was_over = self.logs[log].is_over();
        let done = turn(&mut self.logs[log]);
        let wishes = match &mut self.logs[log].way {
            Way::Remote(remote) => std::mem::take(&mut remote.link().wishes),
            Way::File(_) => Vec::new(),
        };
        for wish in wishes {
            self.wish(log, wish);
        }
        if !was_over && self.logs[log].is_over() {
            self.log_ended(log);
        }
        Some(done)
    }

    fn wish(&mut self, log: usize, wish: Wish) {
        match wish {
            Wish::Connect => self.logs[log].connection = Some(self.connect(Client::Log(log))),
            Wish::HangUp => {
                if let Some(connection) = self.logs[log].connection.take() {
                    let later = self.net.close(connection, false, self.now);
                    self.later(later);
                }
            }
            Wish::Write(bytes) => {
                if let Some(connection) = self.logs[log].connection {
                    self.truth.sent(log, Some(connection), &bytes[4..]);
                    let later = self.net.write(connection, true, &bytes, self.now);
                    self.later(later);
                }
            }
            Wish::Datagram(bytes) => {
                self.truth.sent(log, None, &bytes);
                for at in self.net.datagram(self.now) {
                    let mut bytes = bytes.clone();
                    // Of the header only UDP's own checksum covers the label.
                    if self.dice.happens(self.plan.damage) && bytes.len() > BLOCK_HEADER_LEN {
                        let body = bytes.len() - BLOCK_HEADER_LEN;
                        let place = BLOCK_HEADER_LEN + self.dice.upto(body - 1);
                        bytes[place] ^= 1 << self.dice.below(8);
                    }
                    self.at(at, Event::ToServer(log, bytes));
                }
            }
        }
    }
}

/// A machine with a deadline.
#[derive(Clone, Copy, Debug)]
enum Who {
    Sender,
    Receiver(usize),
    Server(usize),
    Files,
    Log(usize),
}

impl World {
    fn next_timer(&self) -> Option<(u64, Who)> {
        let deaf = |planted| self.planted == Some(planted);
        let mut timers: Vec<(u64, Who)> = Vec::new();
        let mut add = |host: Host, at: Option<u64>, who: Who| {
            timers.extend(at.map(|at| (self.instant(host, at), who)));
        };
        if let Some(sender) = self.sender.as_ref().filter(|_| !deaf(Planted::DeafSender)) {
            let waits = sender.connection.is_some() && !sender.session.is_over();
            add(Host::Sender, sender.session.deadline().filter(|_| waits), Who::Sender);
        }
        for (&id, session) in self.receiver.iter().flat_map(|receiver| &receiver.sessions) {
            let at = session.machine.deadline().filter(|_| !deaf(Planted::DeafReceiver));
            add(Host::Receiver, at, Who::Receiver(id));
        }
        for (&id, session) in self.server.iter().flat_map(|server| &server.sessions) {
            add(Host::Server, session.deadline(), Who::Server(id));
        }
        for (id, log) in self.logs.iter().enumerate() {
            let at = log.deadline().filter(|_| !deaf(Planted::DeafProducer));
            add(self.log_host(id), at, Who::Log(id));
        }
        let files = self.server.as_ref().and_then(Server::settles_at);
        // On the clock that files are written by.
        timers.extend(files.map(|at| (self.clocks[Host::Server as usize].instant(at), Who::Files)));
        timers.into_iter().min_by_key(|(at, _)| *at)
    }

    fn serve(&mut self, who: Who) {
        match who {
            Who::Sender => self.tell_sender(SenderInput::Timer),
            Who::Receiver(id) => self.tell_receiver(id, ReceiverInput::Timer),
            Who::Server(id) => self.tell_server(id, ServerInput::Timer, None),
            Who::Files => {
                let now = self.host_ns(Host::Server);
                if let Some(server) = &mut self.server {
                    server.settle(now);
                }
            }
            Who::Log(log) => {
                self.with_log(log, |log| {
                    log.settle();
                    log.feed(ProducerInput::Timer);
                });
            }
        }
    }

    /// No machine waits without a deadline.
    fn check_deadlines(&mut self) {
        let mut idle: Vec<&str> = Vec::new();
        if let Some(sender) = &self.sender
            && sender.connected
            && !sender.session.is_over()
            && sender.session.deadline().is_none()
        {
            idle.push("the sender");
        }
        for session in self.receiver.iter().flat_map(|receiver| receiver.sessions.values()) {
            if !session.machine.is_over() && session.machine.deadline().is_none() {
                idle.push("the receiver");
            }
        }
        for session in self.server.iter().flat_map(|server| server.sessions.values()) {
            if !session.is_over() && session.deadline().is_none() {
                idle.push("a session of the log server");
            }
        }
        for log in &self.logs {
            // A producer that no server will ever take waits for its owner, and for nobody else.
            if log.is_remote()
                && !log.dead
                && !log.is_over()
                && log.deadline().is_none()
                && log.is_closed()
            {
                idle.push("a producer");
            }
        }
        if let Some(who) = idle.first() {
            self.broken(format!("{who} waits without a deadline"));
        }
    }
}
