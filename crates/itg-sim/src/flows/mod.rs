//! The flows of an experiment through a simulated network, into ordinary logs.
//!
//! The schedules, and the rules for packets that are late, are those of real runs. UDP, ICMP, SCTP and
//! DCCP packets are datagrams; TCP follows a stated window model (see [`Window`]). What is sent goes
//! through one simulated network; each arrival becomes a record. Computation takes no time unless a
//! lateness is asked for, clocks are exact unless an error is. Virtual time begins at 2000-01-01 UTC.

mod ending;
mod log;
mod tcp;
mod uplink;

use std::collections::BTreeMap;
use std::io::{self, Write};

use chacha20::ChaCha8Rng;
use itg_core::end::EndCause;
use itg_core::flow::{Flow, Meter, Proto};
use itg_core::pacing::Pacer;
use itg_core::seed::RunSeed;
use itg_core::streams::{below, exponential_ns};
use itg_core::units::format_duration_ns;
use itg_process::{ConfigError, Params, SECOND, Slot, To};
use itg_record::{FlowInfo, Note, ReceivedPacket, Record, SentPacket, Side};

use crate::agenda::{Agenda, Class};
use crate::clock::Clock;
use crate::hash::TraceHash;
use crate::model::{Drop, Effect, Model, Packet, Usage};
use crate::networks;
use log::{Head, Log};
use tcp::Connection;
pub use tcp::Window;
pub use uplink::LogTransfer;
use uplink::Uplink;

/// Unix time at which virtual time begins: 2000-01-01 00:00 UTC, in nanoseconds.
pub const EPOCH_UNIX_NS: u64 = 946_684_800 * SECOND;
/// Bytes of IP and UDP (or ICMP, SCTP, DCCP: close to it) headers.
const DATAGRAM_HEADERS: u64 = 28;
/// Packets left out at the end of a flow that are counted at most.
const MOST_COUNTED: usize = 1_000_000;
/// Time for which TCP goes on after the end of the last flow, to deliver what it still holds.
const LINGER: u64 = 30 * SECOND;

/// A flow and the hosts it goes between.
#[derive(Debug)]
pub struct SimFlow<'a> {
    /// The flow.
    pub flow: &'a Flow,
    /// Number of the host that sends, from 0.
    pub from: u32,
    /// Number of the host that receives; another one.
    pub to: u32,
    /// Name of the flow, for the log.
    pub name: &'a str,
    /// Names of both hosts for the log.
    pub names: (&'a str, &'a str),
}

/// The simulated network, and what else is modelled when asked for.
#[derive(Debug)]
pub struct Network {
    model: Box<dyn Model>,
    window: Window,
    /// Mean of the lateness of senders, exponential, in nanoseconds.
    lateness: u64,
    /// Largest clock offset in nanoseconds and largest drift in millionths.
    clock_error: (u64, u64),
    /// Name and number of the host that logs travel to.
    log_server: Option<(String, u32)>,
}

impl Network {
    /// Reads a table such as `kind = "ethernet"`, `rate = "100Mbps"`: the parameters of the network and
    /// `tcp` (`cubic` or `reno`), `lateness`, `clock_offset`, `clock_drift_ppm`, `log_server` (the name of a
    /// host, which `number` knows).
    ///
    /// # Errors
    /// Unknown kinds and keys with the nearest name, wrong values.
    pub fn read(
        params: &mut Params,
        seed: RunSeed,
        hosts: u32,
        number: impl Fn(&str) -> Option<u32>,
    ) -> Result<Self, ConfigError> {
        let kind = params.text("kind")?;
        let kind = kind.ok_or_else(|| params.error("missing key `kind`"))?;
        let window = match params.text("tcp")?.as_deref() {
            None | Some("cubic") => Window::Cubic,
            Some("reno") => Window::Reno,
            Some(other) => {
                let text = format!("`{other}`: expected `cubic` or `reno`");
                return Err(params.error_at("tcp", text));
            }
        };
        let lateness = params.time_ns("lateness", 0)?;
        let drift = params.number("clock_drift_ppm", 0)?;
        if drift > 1000 {
            return Err(params.error_at("clock_drift_ppm", "expected 0 to 1000"));
        }
        let clock_error = (params.time_ns("clock_offset", 0)?, drift);
        let log_server = match params.text("log_server")? {
            None => None,
            Some(name) => match number(&name).filter(|host| *host < hosts) {
                Some(host) => Some((name, host)),
                None => {
                    let text = format!("`{name}` is no node of the experiment");
                    return Err(params.error_at("log_server", text));
                }
            },
        };
        let model = networks::network(&kind, params, seed, "traffic", hosts)?;
        Ok(Self { model, window, lateness, clock_error, log_server })
    }

    /// The clock of a host, and its offset from virtual time.
    fn clock(&self, rng: &mut ChaCha8Rng) -> (Clock, u64) {
        let (offset, drift) = self.clock_error;
        let ppm = i32::try_from(below(rng, 2 * drift + 1)).unwrap_or(0);
        let mut clock = Clock::default();
        clock.set(0, ppm - i32::try_from(drift).unwrap_or(0), 0);
        (clock, EPOCH_UNIX_NS - offset + below(rng, 2 * offset + 1))
    }

    /// Ways of the logs of all hosts, two each, to the log server.
    fn uplinks(&self, hosts: u32) -> Vec<Option<Uplink>> {
        let Some((_, server)) = self.log_server else { return Vec::new() };
        let way = |k| (k / 2 != server).then(|| Uplink::new(k / 2, server, self.window));
        (0..2 * hosts).map(way).collect()
    }

    /// Describes the network and what else is modelled, in one line.
    #[must_use]
    pub fn describe(&self, with_tcp: bool) -> String {
        let mut text = self.model.describe();
        if with_tcp {
            text += &format!("; TCP window: {}", self.window.name());
        }
        if self.lateness > 0 {
            text += &format!("; sender lateness exp({})", format_duration_ns(self.lateness));
        }
        let (offset, drift) = self.clock_error;
        if offset > 0 || drift > 0 {
            let offset = format_duration_ns(offset);
            text += &format!("; clocks within ±{offset} and ±{drift} ppm");
        }
        if let Some((name, _)) = &self.log_server {
            text += &format!("; logs travel to {name} over TCP, {}", self.window.name());
        }
        text
    }
}

/// Facts for the logs.
#[derive(Clone, Debug, Default)]
pub struct RunInfo {
    /// Name of the program.
    pub program: String,
    /// Its version.
    pub version: String,
    /// Run id in hexadecimal.
    pub run: String,
    /// Settings to be kept; `simulated` is added.
    pub settings: BTreeMap<String, String>,
}

/// Places of the logs of both sides.
pub struct Logs<'a> {
    /// Log of what was sent.
    pub sender: &'a mut dyn Write,
    /// Log of what arrived.
    pub receiver: &'a mut dyn Write,
}

/// Results of a simulation of flows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Events taken from the heap.
    pub events: u64,
    /// Virtual time at the end, in nanoseconds.
    pub virtual_ns: u64,
    /// Packets sent and received by applications.
    pub packets: (u64, u64),
    /// Usage of the network.
    pub usage: Usage,
    /// Packets that the network dropped, by reason.
    pub dropped: BTreeMap<Drop, u64>,
    /// Segments that TCP sent again.
    pub retransmissions: u64,
    /// Logs on their way to a log server.
    pub logs: LogTransfer,
    /// Hash of all arrivals.
    pub hash: u64,
}

/// Content of a simulated packet that is on its way.
#[derive(Clone, Copy, Debug)]
enum Cargo {
    /// A datagram: flow, number, size, when it was sent on the sender's clock; and whether it is on its
    /// way back.
    Datagram {
        flow: usize,
        seq: u64,
        size: u32,
        sent_ns: u64,
        back: bool,
    },
    Segment {
        flow: usize,
        from: u64,
        length: u64,
        back: bool,
    },
    Ack {
        flow: usize,
        ack: u64,
        back: bool,
    },
}

#[derive(Clone, Copy, Debug)]
enum Todo {
    Depart(usize),
    Network(u64),
    Arrive(usize),
    /// The retransmission timer of a flow, forth or back.
    Timer(usize, bool),
}

struct Sending<'a> {
    spec: &'a SimFlow<'a>,
    pacer: Pacer,
    start: u64,
    /// Virtual time at which it ends, whatever is left of its schedule.
    end: u64,
    index: u32,
    tcp: Option<Box<(Connection, Connection)>>,
    /// A packet that waits for room in the send buffer.
    blocked: Option<itg_core::schedule::Departure>,
    /// Virtual time until which packets that were due had to wait for that room, and how many had to.
    waited: (u64, u64),
    ended: Option<EndCause>,
    sent: (u64, u64),
    received: (u64, u64),
    /// A bit for each number that has arrived, and how many are set.
    seen: Vec<u64>,
    unique: u64,
}

impl<'a> Sending<'a> {
    /// A flow before its start.
    fn new(spec: &'a SimFlow<'a>, index: u32, window: Window) -> Self {
        let wish = spec.flow.spec();
        let start = wish.start_ns;
        let connection = || Connection::new(window);
        Self {
            spec,
            pacer: Pacer::new(spec.flow),
            start,
            end: wish.stop.duration_ns.map_or(u64::MAX, |length| start.saturating_add(length)),
            index,
            tcp: (wish.proto == Proto::Tcp).then(|| Box::new((connection(), connection()))),
            blocked: None,
            waited: (0, 0),
            ended: None,
            sent: (0, 0),
            received: (0, 0),
            seen: Vec::new(),
            unique: 0,
        }
    }

    /// Counts an arrival.
    fn arrived(&mut self, seq: u64, size: u32) {
        self.received = (self.received.0 + 1, self.received.1 + u64::from(size));
        let (word, bit) = (usize::try_from(seq / 64).unwrap_or(usize::MAX), 1 << (seq % 64));
        if word >= self.seen.len() {
            self.seen.resize(word + 1, 0);
        }
        self.unique += u64::from(self.seen[word] & bit == 0);
        self.seen[word] |= bit;
    }
}

struct Run<'a> {
    now: u64,
    agenda: Agenda<Todo>,
    network: Network,
    flows: Vec<Sending<'a>>,
    clocks: Vec<(Clock, u64)>,
    rng: ChaCha8Rng,
    cargo: Vec<Option<(Cargo, u32)>>,
    free: Vec<usize>,
    effects: Vec<Effect>,
    sender: Log<'a>,
    receiver: Log<'a>,
    hash: TraceHash,
    events: u64,
    dropped: BTreeMap<Drop, u64>,
    complete: Vec<tcp::Written>,
    /// Ways to the log server: of the sender and of the receiver of host *k* at 2 *k* and 2 *k* + 1. Their
    /// connections have the numbers behind those of the flows.
    uplinks: Vec<Option<Uplink>>,
    logs: LogTransfer,
    /// Flows that have not ended.
    open: usize,
}

/// Runs flows to their end.
///
/// Number and order of flows, seeds and network alone decide what is written: two runs write the same
/// bytes.
///
/// # Errors
/// The error of writing a log.
pub fn simulate(
    flows: &[SimFlow<'_>],
    hosts: u32,
    network: Network,
    seed: RunSeed,
    info: &RunInfo,
    logs: Logs<'_>,
) -> io::Result<Summary> {
    let with_tcp = flows.iter().any(|flow| flow.flow.spec().proto == Proto::Tcp);
    let mut settings = info.settings.clone();
    settings.insert("simulated".to_owned(), network.describe(with_tcp));
    let head = |side| Head {
        side,
        program: info.program.clone(),
        version: info.version.clone(),
        started_unix_ns: EPOCH_UNIX_NS,
        run: info.run.clone(),
        seed: seed.0,
        settings: settings.clone(),
    };
    let mut sender = Log::begin(logs.sender, head(Side::Sender))?;
    let mut receiver = Log::begin(logs.receiver, head(Side::Receiver))?;
    let mut rng = seed.named("flows");
    let clocks: Vec<_> = (0..hosts).map(|_| network.clock(&mut rng)).collect();
    let exact = network.clock_error == (0, 0);
    let mut sendings = Vec::with_capacity(flows.len());
    let mut agenda = Agenda::default();
    for (place, spec) in flows.iter().enumerate() {
        let wish = spec.flow.spec();
        let start = wish.start_ns;
        let boot = |host: u32| {
            if exact { "simulated".to_owned() } else { format!("simulated-{host}") }
        };
        let index = u32::try_from(place + 1).unwrap_or(u32::MAX);
        let (clock, epoch) = &clocks[spec.from as usize];
        let note = Note::Flow(FlowInfo {
            changes: Vec::new(),
            index,
            flow: wish.id,
            name: Some(spec.name.to_owned()),
            run: info.run.clone(),
            seed: seed.0,
            spec: wish.clone(),
            src: spec.names.0.to_owned(),
            dst: spec.names.1.to_owned(),
            epoch_unix_ns: epoch + clock.at(start),
            sender_boot_id: boot(spec.from),
            receiver_boot_id: boot(spec.to),
            notices: spec.flow.notices().collect(),
            ditg: None,
        });
        sender.note(&note)?;
        receiver.note(&note)?;
        let sending = Sending::new(spec, index, network.window);
        let first = start + sending.pacer.next_ns().unwrap_or(0);
        agenda.push(first, Class::World, Todo::Depart(place));
        sendings.push(sending);
    }
    let uplinks = network.uplinks(hosts);
    let mut run = Run {
        now: 0,
        agenda,
        network,
        flows: sendings,
        clocks,
        rng,
        cargo: Vec::new(),
        free: Vec::new(),
        effects: Vec::new(),
        sender,
        receiver,
        hash: TraceHash::default(),
        events: 0,
        dropped: BTreeMap::new(),
        complete: Vec::new(),
        uplinks,
        logs: LogTransfer::default(),
        open: flows.len(),
    };
    run.run()?;
    run.finish()
}

impl Run<'_> {
    fn run(&mut self) -> io::Result<()> {
        let mut last_end = 0;
        loop {
            let Some((at, todo)) = self.agenda.pop() else {
                // The last blocks leave when nothing else is left to happen.
                if self.close_logs() {
                    continue;
                }
                break;
            };
            if self.open > 0 {
                last_end = at;
            } else if at > last_end + LINGER {
                break;
            }
            self.now = at;
            self.events += 1;
            match todo {
                Todo::Depart(flow) => self.depart(flow)?,
                Todo::Network(token) => {
                    self.network.model.wake(at, token, &mut self.effects);
                    self.carry_out();
                }
                Todo::Arrive(cargo) => self.arrive(cargo)?,
                Todo::Timer(flow, back) => self.timer(flow, back),
            }
        }
        Ok(())
    }

    /// Unix time that the clock of a host shows now, in nanoseconds.
    fn unix(&self, host: u32) -> u64 {
        let (clock, epoch) = &self.clocks[host as usize];
        epoch + clock.at(self.now)
    }

    /// The sender of a flow wakes up: everything that is due leaves.
    fn depart(&mut self, at: usize) -> io::Result<()> {
        let now = self.now;
        loop {
            let flow = &mut self.flows[at];
            if flow.ended.is_some() || now >= flow.end {
                return self.end(at);
            }
            if flow.blocked.is_some() {
                flow.waited.0 = now;
            }
            let Some(packet) = flow.blocked.take().or_else(|| flow.pacer.take(now - flow.start))
            else {
                break;
            };
            let size = packet.size;
            if flow.tcp.as_ref().is_some_and(|tcp| !tcp.0.has_room(size.into())) {
                // An acknowledgement will make room.
                flow.blocked = Some(packet);
                return Ok(());
            }
            let (from, index) = (flow.spec.from, flow.index);
            flow.sent = (flow.sent.0 + 1, flow.sent.1 + u64::from(size));
            flow.waited.1 += u64::from(flow.start + packet.due_ns <= flow.waited.0);
            let sent_ns = self.unix(from);
            self.sender.record(&Record::sent(SentPacket {
                flow: index,
                seq: packet.seq,
                size,
                planned_ns: packet.due_ns,
                sent_ns,
            }))?;
            self.logged(from, Side::Sender);
            let flow = &mut self.flows[at];
            if let Some(tcp) = &mut flow.tcp {
                tcp.0.write(packet.seq, size, sent_ns);
                self.pump(at, false);
            } else {
                let cargo =
                    Cargo::Datagram { flow: at, seq: packet.seq, size, sent_ns, back: false };
                self.send(at, u64::from(size) + DATAGRAM_HEADERS, false, cargo);
            }
        }
        let flow = &self.flows[at];
        match flow.pacer.next_ns() {
            None => self.end(at),
            Some(next) => {
                let mut next = flow.start.saturating_add(next).max(now);
                if self.network.lateness > 0 {
                    next += exponential_ns(&mut self.rng, self.network.lateness);
                }
                let next = next.min(self.flows[at].end);
                self.agenda.push(next, Class::World, Todo::Depart(at));
                Ok(())
            }
        }
    }

    /// The TCP connection of a flow, forth or back, or of the connection to the log server.
    fn connection(&mut self, at: usize, back: bool) -> Option<&mut Connection> {
        let flows = self.flows.len();
        match self.flows.get_mut(at) {
            Some(flow) => {
                let tcp = flow.tcp.as_mut()?;
                Some(if back { &mut tcp.1 } else { &mut tcp.0 })
            }
            None => {
                let uplink = self.uplinks.get_mut(at - flows)?;
                uplink.as_mut().map(|uplink| &mut uplink.tcp)
            }
        }
    }

    /// A program of a host has logged a record.
    fn logged(&mut self, host: u32, side: Side) {
        let way = 2 * host as usize + usize::from(side == Side::Receiver);
        let (now, logs) = (self.now, &mut self.logs);
        if let Some(Some(uplink)) = self.uplinks.get_mut(way)
            && uplink.record(now, logs)
        {
            self.pump(self.flows.len() + way, false);
        }
    }

    /// Sends the blocks that are being filled; returns true if there were any.
    fn close_logs(&mut self) -> bool {
        let mut any = false;
        for way in 0..self.uplinks.len() {
            let (now, logs) = (self.now, &mut self.logs);
            if let Some(uplink) = &mut self.uplinks[way]
                && uplink.close(now, logs)
            {
                any = true;
                self.pump(self.flows.len() + way, false);
            }
        }
        any
    }

    /// Hands something to the network, forth or back.
    fn send(&mut self, at: usize, bytes: u64, back: bool, cargo: Cargo) {
        let (from, to) = match self.flows.get(at) {
            Some(flow) => (flow.spec.from, flow.spec.to),
            None => match self.uplinks.get(at - self.flows.len()) {
                Some(Some(uplink)) => (uplink.from, uplink.to),
                _ => return,
            },
        };
        let (src, to) = if back { (to, from) } else { (from, to) };
        let place = match self.free.pop() {
            Some(place) => {
                self.cargo[place] = Some((cargo, 1));
                place
            }
            None => {
                self.cargo.push(Some((cargo, 1)));
                self.cargo.len() - 1
            }
        };
        let to = To::One(Slot(to));
        let packet = Packet { id: place as u64, src: Slot(src), to, bytes, urgent: false };
        self.network.model.submit(self.now, packet, &mut self.effects);
        self.carry_out();
    }

    fn carry_out(&mut self) {
        let mut effects = std::mem::take(&mut self.effects);
        for effect in effects.drain(..) {
            match effect {
                Effect::Wake(token, at) => {
                    self.agenda.push(at, Class::World, Todo::Network(token));
                }
                Effect::Deliver(id, _, at) => {
                    let place = usize::try_from(id).unwrap_or(usize::MAX);
                    self.agenda.push(at, Class::World, Todo::Arrive(place));
                }
                Effect::Again(id, _, at) => {
                    let place = usize::try_from(id).unwrap_or(usize::MAX);
                    if let Some(Some((_, count))) = self.cargo.get_mut(place) {
                        *count += 1;
                        self.agenda.push(at, Class::World, Todo::Arrive(place));
                    }
                }
                Effect::Drop(id, _, why) => {
                    *self.dropped.entry(why).or_insert(0) += 1;
                    self.take(usize::try_from(id).unwrap_or(usize::MAX));
                }
            }
        }
        self.effects = effects;
    }

    fn take(&mut self, place: usize) -> Option<Cargo> {
        let found = self.cargo.get_mut(place)?;
        let (cargo, count) = found.as_mut()?;
        let cargo = *cargo;
        *count -= 1;
        if *count == 0 {
            *found = None;
            self.free.push(place);
        }
        Some(cargo)
    }

    fn arrive(&mut self, place: usize) -> io::Result<()> {
        let Some(cargo) = self.take(place) else { return Ok(()) };
        match cargo {
            Cargo::Datagram { flow, seq, size, sent_ns, back: false } => {
                let spec = self.flows[flow].spec;
                self.received(flow, seq, size, sent_ns)?;
                if spec.flow.spec().meter == Meter::Rtt {
                    let back = Cargo::Datagram { flow, seq, size, sent_ns, back: true };
                    self.send(flow, u64::from(size) + DATAGRAM_HEADERS, true, back);
                }
                Ok(())
            }
            Cargo::Datagram { flow, seq, size, sent_ns, back: true } => {
                self.echoed(flow, seq, size, sent_ns)
            }
            Cargo::Segment { flow, from, length, back } => {
                let mut complete = std::mem::take(&mut self.complete);
                let Some(connection) = self.connection(flow, back) else { return Ok(()) };
                let ack = connection.segment(from, length, &mut complete);
                for frame in complete.drain(..) {
                    self.frame(flow, frame, back)?;
                }
                self.complete = complete;
                self.send(flow, tcp::HEADERS, !back, Cargo::Ack { flow, ack, back });
                Ok(())
            }
            Cargo::Ack { flow, ack, back } => self.acknowledged(flow, ack, back),
        }
    }

    /// A packet of a TCP flow is complete at its receiver, or back at its sender.
    fn frame(&mut self, flow: usize, frame: tcp::Written, back: bool) -> io::Result<()> {
        let tcp::Written { seq, size, sent_ns, .. } = frame;
        if flow >= self.flows.len() {
            self.logs.stored += 1;
            return Ok(());
        }
        if back {
            return self.echoed(flow, seq, size, sent_ns);
        }
        self.received(flow, seq, size, sent_ns)?;
        if self.flows[flow].spec.flow.spec().meter == Meter::Rtt
            && let Some(tcp) = &mut self.flows[flow].tcp
        {
            tcp.1.write(seq, size, sent_ns);
            self.pump(flow, true);
        }
        Ok(())
    }

    fn acknowledged(&mut self, flow: usize, ack: u64, back: bool) -> io::Result<()> {
        let now = self.now;
        let Some(connection) = self.connection(flow, back) else { return Ok(()) };
        if let Some((from, length)) = connection.acknowledge(now, ack) {
            let cargo = Cargo::Segment { flow, from, length, back };
            self.send(flow, length + tcp::HEADERS, back, cargo);
        }
        self.arm(flow, back);
        self.pump(flow, back);
        match self.flows.get(flow) {
            Some(sending) if !back && sending.ended.is_none() && sending.blocked.is_some() => {
                self.depart(flow)
            }
            _ => Ok(()),
        }
    }

    /// Sends what the window allows.
    fn pump(&mut self, flow: usize, back: bool) {
        loop {
            let now = self.now;
            let Some(connection) = self.connection(flow, back) else { return };
            let Some((from, length)) = connection.poll(now) else { return };
            self.arm(flow, back);
            let cargo = Cargo::Segment { flow, from, length, back };
            self.send(flow, length + tcp::HEADERS, back, cargo);
        }
    }

    /// Enters the timer of a connection, unless the agenda has an earlier entry of it.
    fn arm(&mut self, flow: usize, back: bool) {
        let Some(connection) = self.connection(flow, back) else { return };
        if let Some(at) = connection.timer
            && connection.entered.is_none_or(|entered| at < entered)
        {
            connection.entered = Some(at);
            self.agenda.push(at, Class::Timer, Todo::Timer(flow, back));
        }
    }

    fn timer(&mut self, flow: usize, back: bool) {
        let now = self.now;
        let Some(connection) = self.connection(flow, back) else { return };
        // An entry that was replaced by an earlier one is stale.
        if connection.entered != Some(now) {
            return;
        }
        connection.entered = None;
        if connection.timer.is_some_and(|at| at <= now) && !connection.is_done() {
            connection.expire(now);
            self.pump(flow, back);
        }
        self.arm(flow, back);
    }

    fn received(&mut self, flow: usize, seq: u64, size: u32, sent_ns: u64) -> io::Result<()> {
        let now_unix = self.unix(self.flows[flow].spec.to);
        self.hash.word(self.now ^ (flow as u64) << 48);
        self.hash.word(seq);
        let sending = &mut self.flows[flow];
        sending.arrived(seq, size);
        if sending.spec.flow.spec().meter == Meter::Rtt {
            return Ok(());
        }
        let ttl = sending.spec.flow.spec().socket.ttl.unwrap_or(64);
        let tos = sending.spec.flow.spec().socket.tos.unwrap_or(0);
        let sent_ns = match sending.spec.flow.spec().proto {
            Proto::Tcp if size < 24 => 0,
            Proto::Tcp => sent_ns,
            _ if size < 20 => 0,
            _ => sent_ns,
        };
        let record = Record::received(ReceivedPacket {
            flow: sending.index,
            seq,
            size,
            sent_ns,
            arrived_ns: now_unix,
            read_ns: now_unix,
            ttl,
            tos,
        });
        let host = sending.spec.to;
        self.receiver.record(&record)?;
        self.logged(host, Side::Receiver);
        Ok(())
    }

    fn echoed(&mut self, flow: usize, seq: u64, size: u32, sent_ns: u64) -> io::Result<()> {
        let sending = &self.flows[flow];
        let now_unix = self.unix(sending.spec.from);
        let index = sending.index;
        self.hash.word(self.now ^ 1 << 63 ^ (flow as u64) << 48);
        let host = sending.spec.from;
        self.sender.record(&Record::echoed(ReceivedPacket {
            flow: index,
            seq,
            size,
            sent_ns,
            arrived_ns: now_unix,
            read_ns: now_unix,
            ttl: 64,
            tos: 0,
        }))?;
        self.logged(host, Side::Sender);
        Ok(())
    }
}
