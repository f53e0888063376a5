//! The sender's and the receiver's programs: sessions, flows and logs, driven as `itg_node` and `itg_engine` do.

use std::collections::BTreeMap;

use itg_core::distribution::Distribution;
use itg_core::flow::{Flow, FlowSpec};
use itg_core::header::PacketHeader;
use itg_core::pacing::Pacer;
use itg_core::seed::RunSeed;
use itg_record::{ReceivedPacket, Record, SentPacket, Side};
use itg_session::logs::Transport;
use itg_session::logs::keep::Spool;
use itg_session::{
    Arrivals, ClockReading, EndCause, FlowCounts, FlowTotals, LogSummary, MAX_MESSAGE, Message,
    OpenReply, OpenedFlow, ReceiverConfig, ReceiverInput, ReceiverOutput, ReceiverSession,
    SenderConfig, SenderInput, SenderOutput, SenderSession, Timeouts, decode, encode,
};

use super::dice::{MS, SECOND};
use super::logs::{LogPlan, SimLog};
use super::net::Client;
use super::plan::{Host, Place};
use super::planted::Planted;
use super::world::{Event, World};

/// Time for datagrams that are still on their way.
const DRAIN: u64 = 200 * MS;
/// Files of a spool.
pub const SPOOL: &str = "spool";
const SPOOL_INDEX: &str = "spool.index.jsonl";

/// A flow that is sent.
#[derive(Debug)]
struct TxFlow {
    number: u32,
    handle: u32,
    index: u32,
    pacer: Pacer,
    started: Option<u64>,
    packets: u64,
    bytes: u64,
    failed: u64,
    ended: bool,
}

/// The sender's program, for one run.
#[derive(Debug)]
pub struct Sender {
    life: u64,
    pub session: SenderSession,
    pub connection: Option<usize>,
    log: usize,
    flows: Vec<TxFlow>,
    ends: BTreeMap<u32, FlowTotals>,
    connecting: bool,
    /// The system has made the connection: until then its own limit holds.
    pub connected: bool,
}

/// A flow that is received.
#[derive(Debug)]
struct RxFlow {
    session: usize,
    number: u32,
    index: u32,
    arrivals: Arrivals,
    ending: bool,
}

/// A session of the receiver.
#[derive(Debug)]
pub struct RxSession {
    pub machine: ReceiverSession,
    log: Option<usize>,
    closing: bool,
}

/// The receiver's program.
#[derive(Debug, Default)]
pub struct Receiver {
    pub sessions: BTreeMap<usize, RxSession>,
    flows: BTreeMap<u32, RxFlow>,
    handles: u32,
}

impl World {
    /// Begins a run: its log first, as the program does.
    pub fn begin_run(&mut self, run: u64) {
        if self.runs_left == 0 || self.sender.is_some() {
            return;
        }
        (self.runs_left, self.run) = (self.runs_left - 1, run);
        self.lives += 1;
        let log = self.open_log(Host::Sender);
        let specs: Vec<FlowSpec> = (1..=self.plan.flows).map(|id| self.spec(id)).collect();
        let flows = specs.iter().map(|spec| {
            let flow = Flow::resolve(spec.clone(), RunSeed(run)).expect("a flow");
            TxFlow {
                number: spec.id,
                handle: 0,
                index: index(log, spec.id),
                pacer: Pacer::new(&flow),
                started: None,
                packets: 0,
                bytes: 0,
                failed: 0,
                ended: false,
            }
        });
        let flows = flows.collect();
        let config = SenderConfig {
            run: format!("{run:032x}"),
            seed: run,
            program: "itg-send".to_owned(),
            host: "a".to_owned(),
            boot_id: "a".to_owned(),
            flows: specs,
            recv_log: None,
            prove: None,
            asked: false,
            burst: 3,
            timeouts: Timeouts::default(),
        };
        self.sender = Some(Sender {
            life: self.lives,
            session: SenderSession::new(config),
            connection: None,
            log,
            flows,
            ends: BTreeMap::new(),
            connecting: false,
            connected: false,
        });
        self.sender_goes_on();
    }

    fn spec(&self, id: u32) -> FlowSpec {
        let mut spec = FlowSpec::new(id);
        spec.idt = Distribution::Constant(self.plan.idt_ns as f64);
        spec.size = Distribution::Constant(f64::from(40 + 17 * id));
        spec.stop.packets = Some(self.plan.packets);
        spec
    }

    fn open_log(&mut self, host: Host) -> usize {
        let number = self.logs.len();
        let place = self.plan.places[host as usize];
        let side = if host == Host::Sender { Side::Sender } else { Side::Receiver };
        let transport = match place {
            Place::File => Transport::Tcp,
            Place::Server { transport, .. } => transport,
        };
        let file = matches!(place, Place::File);
        let plan = LogPlan {
            side,
            name: if file { format!("{side:?}-{number}.itg") } else { "experiment".to_owned() },
            key: [u8::try_from(number + 1).expect("few"); 16],
            transport,
            block_records: self.plan.block_records,
            most_blocks: self.plan.most_blocks,
            fsync: self.plan.fsync,
        };
        let disk = self.disks[host as usize].clone();
        let now = self.machine_ns(host);
        let log = match place {
            Place::File => {
                let file = disk.open(&plan.name);
                SimLog::file(plan, file, now, self.planted)
            }
            Place::Server { spools, .. } => {
                // A spool that holds something is refused, and the program goes on when it is sent.
                let free = disk.read(SPOOL).is_empty() && host == Host::Sender;
                let spool =
                    (spools && free).then(|| (disk.replace(SPOOL), disk.replace(SPOOL_INDEX)));
                SimLog::remote(plan, spool, now, self.planted)
            }
        };
        self.logs.push(log);
        self.with_log(number, |_| ());
        number
    }

    /// The log has come to its beginning or its end: its owner goes on.
    pub fn log_ended(&mut self, log: usize) {
        self.note(|| format!("log {log} ended"));
        self.check_log(log);
        let forwards = self.logs[log].forwards;
        if forwards {
            self.truth.forwards.remove(&log);
            let disk = &self.disks[Host::Sender as usize];
            if !self.logs[log].has_spooled() {
                disk.remove(SPOOL);
                disk.remove(SPOOL_INDEX);
            } else if self.logs[log].began_healed {
                self.broken("a spool was not sent on though nothing fails".to_owned());
            } else {
                self.forward_later(log);
            }
            return;
        }
        if self.logs[log].has_spooled() && self.log_host(log) == Host::Sender {
            self.forward_later(log);
        }
        let session = self.receiver.iter().flat_map(|receiver| &receiver.sessions);
        let session = session.filter(|(_, session)| session.log == Some(log));
        if let Some((&id, _)) = { session }.next() {
            self.log_closed(id, log);
        }
    }

    fn forward_later(&mut self, log: usize) {
        self.seen.insert("blocks were left in a spool");
        let heal = SECOND + self.plan.healed_ns() + SECOND;
        let at = if self.dice.half() { heal } else { self.now + self.dice.below(5 * SECOND) };
        let at = at.max(self.now + MS);
        self.truth.forwards.insert(log);
        self.at(at, Event::Forward(log));
    }

    /// A later program sends on what is in the spool of a log.
    pub fn forward(&mut self, log: usize) {
        self.truth.forwards.remove(&log);
        // A lock on the file tells that a program uses it.
        let used = |log: &SimLog| log.uses_spool && !log.dead && !log.is_over();
        if self.logs.iter().any(used) {
            return self.forward_later(log);
        }
        let disk = self.disks[Host::Sender as usize].clone();
        let opened = Spool::open(disk.open(SPOOL), disk.open(SPOOL_INDEX));
        let (spool, rest) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                // Nobody knows any more whose blocks these are: the program says so, and leaves them.
                if !self.truth.unsafe_hosts.contains(&(Host::Sender as usize)) {
                    self.broken(format!("a spool cannot be opened: {error:?}"));
                }
                disk.remove(SPOOL);
                return disk.remove(SPOOL_INDEX);
            }
        };
        if rest.log.spool.is_empty() {
            disk.remove(SPOOL);
            return disk.remove(SPOOL_INDEX);
        }
        self.seen.insert("a spool was sent on");
        let by_key = |log: &SimLog| log.plan.key == rest.who.key && !log.forwards;
        let origin = self.logs.iter().position(by_key).unwrap_or(log);
        let plan = self.logs[origin].plan.clone();
        let number = self.logs.len();
        let now = self.machine_ns(Host::Sender);
        self.logs.push(SimLog::forward(plan, spool, rest, now, self.planted));
        self.logs[number].began_healed = self.healed;
        self.truth.forwarded.insert(number, origin);
        self.with_log(number, |_| ());
    }

    /// The sender connects when its log is ready, and is over when its session and its log are.
    pub fn sender_goes_on(&mut self) {
        let Some(sender) = &self.sender else { return };
        let log = &self.logs[sender.log];
        if !sender.connecting {
            if !log.is_settled() {
                return;
            }
            if log.is_over() {
                // The program fails before the run begins.
                self.seen.insert("a log could not be opened");
                return self.end_sender();
            }
            let connection = self.connect(Client::Sender);
            if let Some(sender) = &mut self.sender {
                (sender.connecting, sender.connection) = (true, Some(connection));
            }
        } else if sender.session.is_over() && sender.flows.iter().all(|flow| flow.ended) {
            let log = sender.log;
            self.with_log(log, SimLog::close);
            if self.logs[log].is_over() {
                self.end_sender();
            }
        }
    }

    fn end_sender(&mut self) {
        self.sender = None;
        let at = self.now + self.dice.below(SECOND);
        self.at(at, Event::Run(self.run + 1));
    }

    pub fn kill_sender(&mut self, power: bool) {
        let Some(sender) = self.sender.take() else { return };
        self.seen.insert("the sender was killed");
        let log = sender.log;
        self.logs[log].dead = true;
        let spooled = self.logs[log].has_spooled();
        if power {
            self.disks[Host::Sender as usize].lose_power();
            self.lost_power(Host::Sender);
        }
        self.drop_connections(|client| client == Client::Sender, false, power);
        self.drop_connections(|client| client == Client::Log(log), false, power);
        if spooled {
            self.forward_later(log);
        }
        let at = self.now + self.dice.between(SECOND, 5 * SECOND);
        self.at(at, Event::Run(self.run + 1));
    }

    pub fn stop_sender(&mut self) {
        if self.sender.as_ref().is_some_and(|sender| sender.connecting) {
            self.seen.insert("the sender was stopped");
            self.tell_sender(SenderInput::Stop { reason: "interrupted".to_owned() });
        }
    }

    pub fn frames_at_sender(&mut self, connection: usize) {
        while self.sender.as_ref().is_some_and(|sender| sender.connection == Some(connection)) {
            let Some(message) = self.signal(connection, 1) else { return };
            match message {
                Ok(message) => self.tell_sender(SenderInput::Message(message)),
                Err(error) => self.tell_sender(SenderInput::Garbage(error)),
            }
        }
    }

    /// The next message of the signalling channel that has come whole.
    fn signal(
        &mut self,
        connection: usize,
        end: usize,
    ) -> Option<Result<Message, itg_session::CodecError>> {
        let buffer = &mut self.net.connections[connection].arrived[end];
        let len = u32::from_le_bytes(*buffer.first_chunk()?) as usize;
        if len > MAX_MESSAGE {
            buffer.clear();
            return Some(Err(itg_session::CodecError::TooLong));
        }
        if buffer.len() < 4 + len {
            return None;
        }
        let bytes: Vec<u8> = buffer.drain(..4 + len).skip(4).collect();
        Some(decode(&bytes))
    }

    fn say(&mut self, connection: usize, to_server: bool, mut message: Message, host: Host) {
        let clock = self.clocks[host as usize];
        let now =
            ClockReading { unix_ns: clock.unix(self.now), monotonic_ns: clock.monotonic(self.now) };
        message.stamp(now.unix_ns, now);
        let bytes = encode(&message).expect("fits");
        let len = u32::try_from(bytes.len()).expect("small").to_le_bytes();
        let frame = [&len[..], &bytes].concat();
        let later = self.net.write(connection, to_server, &frame, self.now);
        self.later(later);
    }

    pub fn tell_sender(&mut self, input: SenderInput) {
        let now = self.machine_ns(Host::Sender);
        let mut out = Vec::new();
        self.note(|| format!("sender <- {input:?}"));
        let Some(sender) = &mut self.sender else { return };
        sender.session.handle(now, input, &mut out);
        for output in out {
            self.act_sender(output);
        }
        self.sender_goes_on();
    }

    fn act_sender(&mut self, output: SenderOutput) {
        self.note(|| format!("sender    -> {output:?}"));
        let Some(sender) = &mut self.sender else { return };
        let (life, connection) = (sender.life, sender.connection);
        match output {
            SenderOutput::Send(message) => {
                if let Some(connection) = connection {
                    self.say(connection, true, message, Host::Sender);
                }
            }
            SenderOutput::Ready { flows, refused } => {
                for OpenedFlow { flow, handle, .. } in flows {
                    if let Some(tx) = sender.flows.iter_mut().find(|tx| tx.number == flow) {
                        tx.handle = handle;
                    }
                }
                for (number, _) in refused {
                    sender.flows.retain(|tx| tx.number != number);
                }
                self.at(self.now + MS, Event::Armed { life });
            }
            SenderOutput::Begin => {
                let now = self.now;
                sender.flows.iter_mut().for_each(|flow| flow.started = Some(now));
                let flows = sender.flows.len();
                for flow in 0..flows {
                    self.at(now, Event::Pace { life, flow });
                }
            }
            SenderOutput::StopFlows { .. } => {
                let flows = sender.flows.len();
                for flow in 0..flows {
                    self.end_flow(flow, EndCause::Interrupted);
                }
            }
            SenderOutput::Counted { totals, counts } => self.check_counted(&totals, counts),
            SenderOutput::Failed(error) => {
                self.seen.insert("a session failed");
                if self.plan.calm {
                    self.broken(format!("a session fails in peace: {error}"));
                }
                self.leave_sender();
            }
            SenderOutput::Done => {
                self.seen.insert("a session was done");
                self.check_done();
                self.leave_sender();
            }
            SenderOutput::LogStored(summary) => self.truth.summaries.push(summary),
            SenderOutput::Measured(_) | SenderOutput::Clock { .. } => {}
        }
    }

    fn leave_sender(&mut self) {
        let Some(sender) = &mut self.sender else { return };
        sender.flows.iter_mut().for_each(|flow| flow.ended = true);
        if let Some(connection) = sender.connection.take() {
            let later = self.net.close(connection, false, self.now);
            self.later(later);
        }
    }

    pub fn armed(&mut self, life: u64) {
        if self.sender.as_ref().is_some_and(|sender| sender.life == life) {
            let epoch_unix_ns = self.clocks[Host::Sender as usize].unix(self.now);
            self.tell_sender(SenderInput::Armed { epoch_unix_ns });
        }
    }

    /// Packets of a flow that are due.
    pub fn pace(&mut self, life: u64, flow: usize) {
        let Some(mut sender) = self.sender.take_if(|sender| sender.life == life) else { return };
        let log = sender.log;
        let going = sender.flows.get_mut(flow).filter(|tx| !tx.ended);
        let next = going.map(|tx| self.send_due(tx, log));
        self.sender = Some(sender);
        match next {
            Some(Some(at)) => self.at(at, Event::Pace { life, flow }),
            Some(None) => self.end_flow(flow, EndCause::ScheduleDone),
            None => {}
        }
    }

    /// Sends what is due of a flow; when the next packet is.
    fn send_due(&mut self, tx: &mut TxFlow, log: usize) -> Option<u64> {
        let started = tx.started?;
        while let Some(departure) = tx.pacer.take(self.now - started) {
            if self.dice.happens(self.plan.refused) {
                tx.failed += 1;
                continue;
            }
            let mut packet = vec![0; departure.size as usize];
            let mut head = [0; 20];
            let sent_ns = self.clocks[Host::Sender as usize].unix(self.now);
            let len =
                PacketHeader::write(tx.handle, departure.seq, sent_ns, departure.size, &mut head);
            packet[..len].copy_from_slice(&head[..len]);
            (tx.packets, tx.bytes) = (tx.packets + 1, tx.bytes + u64::from(departure.size));
            self.truth.packet(tx.handle, departure.seq);
            let arrivals = self.net.datagram(self.now);
            self.truth.copies(tx.handle, departure.seq, arrivals.len());
            for at in arrivals {
                self.at(at, Event::Packet(packet.clone()));
            }
            let record = Record::sent(SentPacket {
                flow: tx.index,
                seq: departure.seq,
                size: departure.size,
                planned_ns: departure.due_ns,
                sent_ns,
            });
            self.with_log(log, |log| log.push(&record));
        }
        tx.pacer.next_ns().map(|at| started + at)
    }

    fn end_flow(&mut self, flow: usize, cause: EndCause) {
        let Some(sender) = &mut self.sender else { return };
        let Some(tx) = sender.flows.get_mut(flow).filter(|tx| !tx.ended) else { return };
        tx.ended = true;
        let totals = FlowTotals {
            flow: tx.number,
            packets: tx.packets,
            bytes: tx.bytes,
            skipped: tx.pacer.skipped(),
            failed: tx.failed,
            next_seq: tx.pacer.next_seq(),
            reason: cause.into(),
        };
        self.truth.handles.insert((self.run, totals.flow), tx.handle);
        sender.ends.insert(tx.number, totals.clone());
        self.tell_sender(SenderInput::FlowEnded(totals));
    }
}

/// Number of a flow in a log: no two logs of a world share one.
fn index(log: usize, flow: u32) -> u32 {
    u32::try_from(log).expect("few") * 16 + flow
}

impl World {
    pub fn accept_sender(&mut self, connection: usize) {
        let now = self.machine_ns(Host::Receiver);
        let config = ReceiverConfig {
            program: "itg-recv".to_owned(),
            host: "b".to_owned(),
            boot_id: "b".to_owned(),
            max_flows: 16,
            secret: false,
            turns: false,
            timeouts: Timeouts::default(),
        };
        if let Some(receiver) = &mut self.receiver {
            let machine = ReceiverSession::new(config, now);
            receiver.sessions.insert(connection, RxSession { machine, log: None, closing: false });
        }
    }

    pub fn frames_at_receiver(&mut self, connection: usize) {
        while self
            .receiver
            .as_ref()
            .is_some_and(|receiver| receiver.sessions.contains_key(&connection))
        {
            let Some(message) = self.signal(connection, 0) else { return };
            let input = message.map_or_else(ReceiverInput::Garbage, ReceiverInput::Message);
            self.tell_receiver(connection, input);
        }
    }

    pub fn tell_receiver(&mut self, id: usize, input: ReceiverInput) {
        let now = self.machine_ns(Host::Receiver);
        self.note(|| format!("receiver {id} <- {input:?}"));
        let Some(receiver) = &mut self.receiver else { return };
        let Some(session) = receiver.sessions.get_mut(&id) else { return };
        let mut out = Vec::new();
        session.machine.handle(now, input, &mut out);
        for output in out {
            self.act_receiver(id, output);
        }
        self.tidy_receiver(id);
    }

    /// A session is over when its machine and its log are.
    fn tidy_receiver(&mut self, id: usize) {
        let Some(receiver) = &mut self.receiver else { return };
        let Some(session) = receiver.sessions.get(&id) else { return };
        let logged = session.log.is_none_or(|log| self.logs[log].is_over());
        if session.machine.is_over() && logged {
            receiver.sessions.remove(&id);
        }
    }

    fn act_receiver(&mut self, id: usize, output: ReceiverOutput) {
        self.note(|| format!("receiver {id}    -> {output:?}"));
        match output {
            ReceiverOutput::Send(message) => self.say(id, false, message, Host::Receiver),
            ReceiverOutput::Accept { .. } => {
                let log = self.open_log(Host::Receiver);
                if let Some(session) = self.rx_session(id) {
                    session.log = Some(log);
                }
            }
            ReceiverOutput::Open(spec) => {
                let log = self.rx_session(id).and_then(|session| session.log).unwrap_or_default();
                let Some(receiver) = &mut self.receiver else { return };
                receiver.handles += 1;
                // No handle comes twice, not even after a restart.
                let handle = u32::try_from(self.lives).expect("few") * 4096 + receiver.handles;
                let (arrivals, ending) = (Arrivals::default(), false);
                let (number, index) = (spec.id, index(log, spec.id));
                receiver
                    .flows
                    .insert(handle, RxFlow { session: id, number, index, arrivals, ending });
                let opened = OpenedFlow { flow: number, handle, port: 8999 };
                let reply = OpenReply { flow: number, result: Ok(opened) };
                self.tell_receiver(id, ReceiverInput::FlowOpened(reply));
            }
            ReceiverOutput::End { totals } => {
                let flows = self.receiver.iter_mut().flat_map(|receiver| &mut receiver.flows);
                let mut of = flows.filter(|(_, flow)| {
                    flow.session == id && flow.number == totals.flow && !flow.ending
                });
                if let Some((&handle, flow)) = of.next() {
                    flow.ending = true;
                    let all = flow.arrivals.unique() >= totals.packets;
                    let at = self.now + if all { 0 } else { DRAIN };
                    self.at(at, Event::Drained { handle });
                }
            }
            ReceiverOutput::Abandon { .. } => {
                self.seen.insert("flows were given up");
                if let Some(receiver) = &mut self.receiver {
                    receiver.flows.retain(|_, flow| flow.session != id);
                }
            }
            ReceiverOutput::CloseLog => {
                let Some(session) = self.rx_session(id) else { return };
                session.closing = true;
                if let Some(log) = session.log {
                    self.with_log(log, SimLog::close);
                    if self.logs[log].is_over() {
                        self.log_closed(id, log);
                    }
                }
            }
            ReceiverOutput::Disconnect { .. } => {
                let later = self.net.close(id, true, self.now);
                self.later(later);
            }
            ReceiverOutput::Start { .. }
            | ReceiverOutput::Prove { .. }
            | ReceiverOutput::Turn { .. } => {}
        }
    }

    fn rx_session(&mut self, id: usize) -> Option<&mut RxSession> {
        self.receiver.as_mut()?.sessions.get_mut(&id)
    }

    /// A log of the receiver has come to its end: the sender is told.
    fn log_closed(&mut self, id: usize, log: usize) {
        let closing = self.rx_session(id).is_some_and(|session| session.closing);
        let Some(ending) = self.logs[log].ending.clone().filter(|_| closing) else {
            return self.tidy_receiver(id);
        };
        if let Some(session) = self.rx_session(id) {
            session.closing = false;
        }
        let summary = LogSummary {
            file: self.logs[log].plan.name.clone(),
            records: ending.records,
            lost_records: ending.lost_records,
            error: ending.reason,
        };
        self.at(self.now, Event::LogClosed { id, summary });
    }

    pub fn packet(&mut self, packet: &[u8]) {
        let Some(header) = PacketHeader::parse(packet) else {
            return self.broken("a packet without a header".to_owned());
        };
        let read_ns = self.clocks[Host::Receiver as usize].unix(self.now);
        let flow = self.receiver.as_mut().and_then(|rx| rx.flows.get_mut(&header.handle));
        let Some(flow) = flow else {
            return self.truth.strayed(header.handle, header.seq);
        };
        let size = u32::try_from(packet.len()).expect("small");
        match self.planted {
            Some(Planted::DuplicateCounted) => {
                flow.arrivals.count(header.seq + (flow.arrivals.packets() << 32), 1, size);
            }
            _ => flow.arrivals.count(header.seq, 1, size),
        }
        self.truth.delivered(header.handle, header.seq);
        let record = Record::received(ReceivedPacket {
            flow: flow.index,
            seq: header.seq,
            size,
            sent_ns: header.sent_ns.unwrap_or(0),
            arrived_ns: read_ns,
            read_ns,
            ttl: 64,
            tos: 0,
        });
        let session = flow.session;
        let log = self.rx_session(session).and_then(|session| session.log);
        if let Some(log) = log {
            self.with_log(log, |log| log.push(&record));
        }
    }

    /// A flow has been waited for long enough: it is counted.
    pub fn drained(&mut self, handle: u32) {
        let Some(receiver) = &mut self.receiver else { return };
        let Some(flow) = receiver.flows.remove(&handle) else { return };
        let log = receiver.sessions.get(&flow.session).and_then(|session| session.log);
        let counts = FlowCounts {
            flow: flow.number,
            packets: flow.arrivals.packets(),
            bytes: flow.arrivals.bytes(),
            unique: flow.arrivals.unique(),
            socket_drops: None,
            foreign: 0,
            log_lost_records: log.map_or(0, |log| self.logs[log].left_out),
            more: Default::default(),
        };
        self.check_counts(handle, &counts);
        self.tell_receiver(flow.session, ReceiverInput::FlowCounted(counts));
    }

    pub fn kill_receiver(&mut self, power: bool) {
        let Some(receiver) = self.receiver.take() else { return };
        self.seen.insert("the receiver was killed");
        if power {
            self.disks[Host::Receiver as usize].lose_power();
            self.lost_power(Host::Receiver);
        }
        self.drop_connections(|client| client == Client::Sender, true, power);
        for log in receiver.sessions.values().filter_map(|session| session.log) {
            self.logs[log].dead = true;
            self.drop_connections(|client| client == Client::Log(log), false, power);
        }
    }
}
