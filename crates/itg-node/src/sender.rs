//! A sender: agrees with receivers about flows, opens data sockets, sends, and gathers both sides'
//! accounts.
//!
//! One signalling session for each receiver, one sending thread for all flows, one receiving thread
//! for the replies of round-trip flows, one log.

mod arrivals;
mod asks;
mod converse;
mod flow_ends;
mod host_drops;
mod job;
mod outcome;
mod outlets;
mod telling;
mod unsent;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use itg_core::flow::{FlowSpec, Meter, Proto};
use itg_core::header::PacketKey;
use itg_core::rate::RateChange;
use itg_core::text::from_peer;
use itg_engine::clock_pair;
use itg_engine::departures;
use itg_engine::engine::{
    Engine, ScheduleStart, StopSignal, TxEnded, TxFlow, count_left_out, flow_end,
};
use itg_engine::log::{Log, Producer};
use itg_engine::pacing::{Level, PacingOptions, Prepared};
use itg_engine::rx::{Command, Drain, Origin, Port, RxEnded, RxFlow, RxHandle};
use itg_engine::tcp_watch::{self, TcpWatch};
use itg_engine::traffic::Traffic;
use itg_record::{FlowInfo, Note, Side};
use itg_session::{
    EndCause, OpenedFlow, ProbeStamps, SenderConfig, SenderInput, SenderOutput, SharedDrops,
    Timeouts,
};
use itg_socket::clock;
use itg_socket::host;
use itg_socket::socket::{self, DataSocket};
use itg_socket::sys;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

pub(crate) use self::arrivals::opening;
use self::arrivals::{Arrivals, Arrived};
use self::asks::ArrivalAsk;
pub use self::asks::{ArrivalAsker, ArrivalAsks, arrival_asks};
pub(crate) use self::converse::{Asker, connect};
use self::converse::{Conversation, Way, converse};
use self::flow_ends::FlowEnds;
pub use self::job::{SendFlow, SendJob};
pub use self::outcome::{FlowOutcome, PeerClock, SendOutcome};
use self::outlets::Outlets;
use self::unsent::unsent;
use crate::clock_probes::{ClockProbes, ProbeNotes};
use crate::orders::Start;
use crate::packet_keys::{self, PacketKeys};

/// From the last agreement to the first packet: time for the receivers' answers, 100 ms.
const START_MARGIN_NS: u64 = 100_000_000;
/// Time to prepare a flow between the last agreement and the first packet, on a slow host, 50 µs.
const FLOW_MARGIN_NS: u64 = 50_000;
/// A flow that goes on does so this much later, 2 ms: time to prepare the sending thread.
const RESUME_MARGIN_NS: u64 = 2_000_000;
/// Pings that compare the clocks, one after the other, before the run and behind it.
const CLOCK_BURST: u32 = 16;
/// Between two pings while packets flow: 250 ms.
const PING_EVERY_NS: u64 = 250_000_000;

/// Report of a session's task.
enum Report {
    Output(SenderOutput),
    /// The receiver's boot id.
    Welcomed(String),
    /// The receiver has the secret: the keys of the packets.
    Keyed(PacketKeys),
    /// The clocks were compared.
    Probed(ProbeStamps),
}

/// A session as the run sees it.
struct Peer {
    address: SocketAddr,
    inputs: mpsc::UnboundedSender<SenderInput>,
    asks: mpsc::UnboundedSender<ArrivalAsk>,
    stage: Stage,
    boot_id: String,
    /// Keys of its packets, when they prove where they come from.
    keys: Option<PacketKeys>,
    /// From `Welcome` on.
    probes: Option<ProbeNotes>,
    compared: ClockProbes,
    /// Reason for which its flows were told to end before their time.
    stopped: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Agreeing,
    Ready,
    Begun,
    Over,
}

/// Sends a run; ends when every flow is accounted for, or a while after `stop` holds a reason.
///
/// # Errors
/// A log that cannot be written, or threads that cannot be started. What goes wrong between the
/// hosts is part of the outcome.
pub async fn send(
    job: SendJob,
    stop: watch::Receiver<Option<String>>,
) -> std::io::Result<SendOutcome> {
    send_over(job, None, stop).await
}

/// Sends a run to the receiver that asks for it, or to those that the flows name.
pub(crate) async fn send_over(
    job: SendJob,
    asker: Option<Asker>,
    stop: watch::Receiver<Option<String>>,
) -> std::io::Result<SendOutcome> {
    host::raise_open_files();
    let mut log = None;
    if let Some(target) = job.log.clone() {
        let info = itg_engine::log::log_info(
            Side::Sender,
            &job.program,
            &job.version,
            job.run.clone(),
            Some(job.seed),
            job.settings.clone(),
        );
        let limits = job.log_limits;
        let created = tokio::task::spawn_blocking(move || Log::create(&target, info, limits));
        log = Some(created.await.map_err(std::io::Error::other)??);
    }
    let (reports, reported) = mpsc::unbounded_channel();
    let mut run = Run::new(job, log, asker, reports);
    // Beside its sessions' tasks: no other thread is woken for what they report, at the cost of the sending one.
    let mut driving = JoinSet::new();
    driving.spawn(async move { run.drive(reported, stop).await.map(|()| run) });
    let run = driving.join_next().await.expect("one task").map_err(std::io::Error::other)??;
    let Run { mut outcome, log, engine, replies, .. } = run;
    let counts = outcome.flows.iter_mut();
    outcome.shared_drops =
        SharedDrops::take(counts.filter_map(|flow| Some((flow.path?.1, flow.counts.as_mut()?))));
    let closing = tokio::task::spawn_blocking(move || {
        if let Some(engine) = engine {
            drop(engine.join());
        }
        drop(replies);
        log.map(Log::close)
    });
    let log = closing.await.map_err(std::io::Error::other)?;
    Ok(SendOutcome { log, ..outcome })
}

struct Run {
    job: SendJob,
    peers: Vec<Peer>,
    /// Index of the peer of each flow.
    peer_of: Vec<usize>,
    /// Place of each flow number.
    place_of: BTreeMap<u32, usize>,
    tasks: JoinSet<()>,
    log: Option<Log>,
    notes: Option<Producer>,
    opened: BTreeMap<usize, (OpenedFlow, DataSocket)>,
    outlets: Outlets,
    arrivals: Arrivals,
    arrived: Option<mpsc::UnboundedReceiver<Arrived>>,
    sent: mpsc::UnboundedSender<TxEnded>,
    ended: Option<mpsc::UnboundedReceiver<TxEnded>>,
    engine: Option<JoinHandle<()>>,
    /// Changes of rates, for the sending thread.
    rates: Option<std::sync::mpsc::Sender<(usize, Vec<RateChange>)>>,
    /// Descriptions of the flows in the log, where their rates may change.
    introduced: BTreeMap<usize, FlowInfo>,
    ends: FlowEnds,
    epoch: Option<(ScheduleStart, u64)>,
    stop_signal: Arc<StopSignal>,
    tcp: TcpWatch,
    replies: Option<RxHandle>,
    replied: mpsc::UnboundedSender<RxEnded>,
    answers: Option<mpsc::UnboundedReceiver<RxEnded>>,
    /// Round-trip flows whose replies are still being gathered.
    awaited: usize,
    outcome: SendOutcome,
}

/// Addresses of the receivers of flows, each once, and for each flow the place of its own.
fn receivers(flows: &[SendFlow]) -> (Vec<SocketAddr>, Vec<usize>) {
    let mut addresses: Vec<SocketAddr> = Vec::new();
    let mut peer_of = Vec::new();
    for flow in flows {
        let known = addresses.iter().position(|address| *address == flow.receiver);
        peer_of.push(known.unwrap_or_else(|| {
            addresses.push(flow.receiver);
            addresses.len() - 1
        }));
    }
    (addresses, peer_of)
}

/// Settings of the session with a receiver of these flows.
fn config(job: &SendJob, flows: Vec<FlowSpec>) -> SenderConfig {
    let drain_ns = flows.iter().filter_map(|spec| spec.handling.drain_ns).max().unwrap_or(0);
    SenderConfig {
        run: job.run.clone(),
        seed: job.seed,
        program: format!("{} {}", job.program, job.version),
        host: host::name(),
        boot_id: host::boot_id(),
        flows,
        recv_log: job.recv_log.clone(),
        prove: job.packet_secret.is_some().then(packet_keys::nonce),
        burst: CLOCK_BURST,
        asked: false,
        timeouts: Timeouts::draining(drain_ns).patient(job.peer_timeout_ns).pinging(PING_EVERY_NS),
    }
}

impl Run {
    fn new(
        job: SendJob,
        log: Option<Log>,
        asker: Option<Asker>,
        reports: mpsc::UnboundedSender<(usize, Report)>,
    ) -> Self {
        let (addresses, peer_of) = receivers(&job.flows);
        let asked = asker.is_some();
        let (mut channel, waiting) = match asker {
            Some(asker) => (Some(Box::new(asker.channel)), asker.waiting),
            None => (None, BTreeMap::new()),
        };
        let mut tasks = JoinSet::new();
        let peers: Vec<_> = addresses
            .iter()
            .enumerate()
            .map(|(index, &address)| {
                let flows = specs_of(&job, &peer_of, index)
                    .map(|flow| socket::with_source(flow.flow.spec(), address));
                let config = SenderConfig { asked, ..config(&job, flows.collect()) };
                let (inputs, told) = mpsc::unbounded_channel();
                let (asks, asked) = mpsc::unbounded_channel();
                let lives = specs_of(&job, &peer_of, index)
                    .map(|flow| (flow.flow.spec().id, Arc::clone(&flow.live)))
                    .collect();
                let way = channel.take().map_or(Way::Connect, Way::Connected);
                let secret = job.packet_secret.clone();
                let with = Conversation { index, address, way, lives, secret, asks: asked };
                tasks.spawn(converse(with, config, told, reports.clone()));
                let (stage, boot_id) = (Stage::Agreeing, String::new());
                let (keys, probes, stopped) = (None, None, None);
                let compared = ClockProbes::default();
                Peer { address, inputs, asks, stage, boot_id, keys, probes, compared, stopped }
            })
            .collect();
        let outcome = SendOutcome {
            flows: job.flows.iter().map(FlowOutcome::nothing_yet).collect(),
            ..SendOutcome::default()
        };
        let place_of =
            job.flows.iter().enumerate().map(|(i, flow)| (flow.flow.spec().id, i)).collect();
        let outlets = Outlets::new(job.pacing.as_ref(), log.is_some());
        let (arrivals, arrived) = Arrivals::new(waiting);
        let (sent, ended) = mpsc::unbounded_channel();
        let (replied, answers) = mpsc::unbounded_channel();
        Self {
            notes: log.as_ref().map(Log::producer),
            stop_signal: Arc::new(
                StopSignal::new(job.flows.len())
                    .leased(job.orders.as_ref().map(|orders| Arc::clone(&orders.lease))),
            ),
            job,
            peers,
            peer_of,
            place_of,
            tasks,
            log,
            opened: BTreeMap::new(),
            outlets,
            arrivals,
            arrived: Some(arrived),
            sent,
            ended: Some(ended),
            engine: None,
            rates: None,
            introduced: BTreeMap::new(),
            ends: FlowEnds::default(),
            epoch: None,
            tcp: TcpWatch::default(),
            replies: None,
            replied,
            answers: Some(answers),
            awaited: 0,
            outcome,
        }
    }

    async fn drive(
        &mut self,
        mut reported: mpsc::UnboundedReceiver<(usize, Report)>,
        mut stop: watch::Receiver<Option<String>>,
    ) -> std::io::Result<()> {
        let mut ended = self.ended.take().expect("driven once");
        let mut answers = self.answers.take().expect("driven once");
        let mut arrived = self.arrived.take().expect("driven once");
        let (_unused, mut stops) = mpsc::unbounded_channel();
        let (_idle, mut rates) = mpsc::unbounded_channel();
        let (_silent, mut asks) = mpsc::unbounded_channel();
        if let Some(orders) = &mut self.job.orders {
            std::mem::swap(&mut stops, &mut orders.stops);
            std::mem::swap(&mut rates, &mut orders.rates);
        }
        if let Some(asked) = self.job.arrival_asks.take() {
            asks = asked.0;
        }
        let mut stopping = false;
        let mut looks = tokio::time::interval(clock::ns(tcp_watch::EVERY_NS));
        looks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        while self.awaited > 0 || self.peers.iter().any(|peer| peer.stage != Stage::Over) {
            tokio::select! {
                Some((peer, report)) = reported.recv() => self.on_report(peer, report)?,
                Some(end) = ended.recv() => self.on_end(end).await,
                Some(met) = arrived.recv() => self.on_arrived(met)?,
                Some(flow) = stops.recv() => {
                    if let Some(place) = self.place_of.get(&flow) {
                        self.stop_signal.raise(*place);
                    }
                }
                Some((flow, changes)) = rates.recv() => self.change_rate(flow, changes),
                // A session that has ended drops the question, which answers it.
                Some(ask) = asks.recv() => self.peers.iter().for_each(|peer| drop(peer.asks.send(ask.clone()))),
                Some(ended) = answers.recv() => {
                    self.awaited -= 1;
                    let flow = &mut self.outcome.flows[self.place_of[&ended.counts.flow]];
                    flow.reply_measure = ended.measure();
                    flow.replies = Some(ended.counts);
                }
                _ = looks.tick(), if self.engine.is_some() && self.is_looked_at() => {
                    if let Some(notes) = &mut self.notes {
                        self.tcp.look(notes);
                        if let Some(samples) = self.outlets.samples() {
                            samples.look(notes);
                        }
                    }
                }
                reason = asked_to_stop(&mut stop), if !stopping => {
                    stopping = true;
                    for peer in &self.peers {
                        tell(peer, SenderInput::Stop { reason: reason.clone() });
                    }
                    if let Some(rx) = &self.replies {
                        (0..self.job.flows.len()).for_each(|slot| rx.ask(Command::Hasten { slot }));
                    }
                    self.outcome.interrupted = Some(reason);
                }
            }
        }
        while self.tasks.join_next().await.is_some() {}
        let here = host::boot_id();
        self.outcome.clocks.extend(self.peers.iter_mut().map(|peer| PeerClock {
            receiver: Some(peer.address),
            shared: !here.is_empty() && peer.boot_id == here,
            probes: std::mem::take(&mut peer.compared),
        }));
        if let Some(mut log) = self.notes.take() {
            self.peers.iter_mut().filter_map(|peer| peer.probes.as_mut()).for_each(|probes| {
                probes.finish(&mut log);
            });
        }
        Ok(())
    }

    fn on_report(&mut self, index: usize, report: Report) -> std::io::Result<()> {
        let output = match report {
            Report::Welcomed(boot_id) => {
                let (peer, run) = (&mut self.peers[index], self.job.run.clone());
                peer.probes = Some(ProbeNotes::new(run, host::boot_id(), boot_id.clone()));
                peer.boot_id = boot_id;
                return Ok(());
            }
            Report::Keyed(keys) => {
                self.peers[index].keys = Some(keys);
                return Ok(());
            }
            Report::Probed(stamps) => {
                self.peers[index].compared.take(stamps);
                if let (Some(probes), Some(log)) = (&mut self.peers[index].probes, &mut self.notes)
                {
                    probes.take(stamps, log);
                }
                return Ok(());
            }
            Report::Output(output) => output,
        };
        match output {
            // What the session's own task has written or passed on.
            SenderOutput::Send(_) | SenderOutput::Clock { .. } => {}
            SenderOutput::Ready { flows, refused } => {
                for (flow, reason) in refused {
                    let place = self.place_of[&flow];
                    self.outcome.flows[place].refused = Some(from_peer(&reason));
                }
                if !self.arrivals.is_empty() {
                    self.await_receiver(index, flows);
                    return Ok(());
                }
                for flow in flows {
                    self.open(index, flow)?;
                }
                self.ready(index);
            }
            SenderOutput::Begin => {
                self.peers[index].stage = Stage::Begun;
                self.start_when_begun()?;
            }
            SenderOutput::StopFlows { reason } => {
                self.peers[index].stopped.get_or_insert(reason);
                self.stop_flows_to(index);
            }
            SenderOutput::Measured(measure) => {
                let place = self.place_of[&measure.flow];
                self.outcome.flows[place].measure = Some(measure);
            }
            SenderOutput::Counted { totals, counts } => {
                let place = self.place_of[&totals.flow];
                let host_drops = self.outlets.host_drops(totals.flow);
                if let (Some(counts), Some(notes)) = (&counts, &mut self.notes) {
                    self.ends.counted(place, counts, host_drops, notes);
                }
                let flow = &mut self.outcome.flows[place];
                flow.host_drops = host_drops;
                flow.lateness_max_ns = self.job.flows[place].live.read().lateness_max_ns;
                (flow.totals, flow.counts) = (Some(totals), counts);
            }
            SenderOutput::LogStored(summary) => {
                self.outcome.remote_logs.push((self.peers[index].address, summary));
            }
            SenderOutput::Failed(error) => {
                self.outcome.failures.push((self.peers[index].address, error));
                self.over(index)?;
            }
            SenderOutput::Done => self.over(index)?,
        }
        Ok(())
    }

    /// True if something is looked at now and then while packets flow.
    fn is_looked_at(&self) -> bool {
        self.outlets.samples().is_some() || !self.tcp.is_empty()
    }

    /// A flow goes on at another rate: the sending thread follows, the log tells.
    fn change_rate(&mut self, flow: u32, changes: Vec<RateChange>) {
        let Some(&place) = self.place_of.get(&flow) else { return };
        match self.job.flows[place].flow.with_changes(changes.clone()) {
            Ok(changed) => self.job.flows[place].flow = changed,
            Err(error) => {
                tracing::error!("a change of its rate is not followed: {error}");
                return;
            }
        }
        if let (Some(notes), Some(info)) = (&mut self.notes, self.introduced.get_mut(&place)) {
            info.changes.clone_from(&changes);
            notes.note(Note::Flow(info.clone()));
        }
        if let Some(rates) = &self.rates
            && rates.send((place, changes)).is_ok()
        {
            self.stop_signal.look();
        }
    }

    /// Ends the flows to a peer.
    fn stop_flows_to(&self, peer: usize) {
        for (place, _) in self.peer_of.iter().enumerate().filter(|(_, of)| **of == peer) {
            self.stop_signal.raise(place);
        }
    }

    /// A peer's data sockets are open.
    fn ready(&mut self, index: usize) {
        self.peers[index].stage = Stage::Ready;
        self.arm_when_agreed();
    }

    fn over(&mut self, index: usize) -> std::io::Result<()> {
        self.arrivals.give_up();
        self.peers[index].stage = Stage::Over;
        self.stop_flows_to(index);
        self.arm_when_agreed();
        self.start_when_begun()
    }

    /// Opens the data socket of a flow that its receiver awaits.
    fn open(&mut self, index: usize, opened: OpenedFlow) -> std::io::Result<()> {
        let place = self.place_of[&opened.flow];
        let flow = &self.job.flows[place];
        let spec = flow.flow.spec();
        let target = SocketAddr::new(flow.receiver.ip(), opened.port);
        let target = match (target, flow.receiver) {
            // A link-local receiver is reached through the same interface.
            (SocketAddr::V6(mut to), SocketAddr::V6(receiver)) => {
                to.set_scope_id(receiver.scope_id());
                SocketAddr::V6(to)
            }
            _ => target,
        };
        let outlets = &mut self.outlets;
        let data = tokio::task::block_in_place(|| outlets.open(spec, target));
        self.take(index, opened, data)
    }

    /// Reads the replies of a round-trip flow on a second descriptor of its socket.
    fn await_replies(
        &mut self,
        place: usize,
        opened: OpenedFlow,
        data: &DataSocket,
    ) -> std::io::Result<()> {
        if self.replies.is_none() {
            let rx = RxHandle::start("itg-replies")?;
            if let Some(log) = &self.log {
                rx.ask(Command::Log { id: 0, producer: log.producer(), indices: Arc::default() });
            }
            self.replies = Some(rx);
        }
        let Some(rx) = &self.replies else { return Ok(()) };
        let flow = &self.job.flows[place];
        let spec = flow.flow.spec();
        let socket = data.socket.try_clone()?;
        rx.ask(Command::Flow(Box::new(RxFlow {
            slot: place,
            handle: opened.handle,
            flow: opened.flow,
            proto: spec.proto,
            meter: Meter::Rtt,
            drain_ns: spec.handling.drain_ns,
            origin: Origin::peer(data.remote),
            live: Arc::clone(&flow.live),
            log: self.log.is_some().then_some(0),
            introduction: None,
            socket: None,
            replies: Some(log_index(place)),
            receive_buffer: None,
            measuring: Some(Box::default()),
            classic: None,
            key: self.key_of(place),
            check: None,
            marks: None,
        })));
        let v6 = data.remote.is_ipv6();
        rx.ask(match spec.proto {
            proto if proto.properties().is_stream => {
                let owner = (place, opened.handle);
                Command::Stream { socket, from: data.remote, owner, classic: None }
            }
            proto => {
                if let Err(error) = socket::ask_for_stamps(&socket) {
                    tracing::debug!(%error, "no kernel stamps for replies");
                }
                let owner = Some(place);
                let port = Port { owner, ..Port::new(place, proto, v6) };
                Command::Datagrams(port, socket)
            }
        });
        Ok(())
    }

    /// Key of a flow whose packets prove where they come from.
    fn key_of(&self, place: usize) -> Option<PacketKey> {
        let keys = self.peers[self.peer_of[place]].keys.as_ref()?;
        Some(keys.of(self.job.flows[place].flow.spec().id))
    }

    /// Chooses the instant of the start once every receiver has agreed or refused.
    fn arm_when_agreed(&mut self) {
        if self.epoch.is_some() || self.peers.iter().any(|peer| peer.stage == Stage::Agreeing) {
            return;
        }
        let pair = clock_pair::clock_pair();
        let soon = pair.unix_ns + START_MARGIN_NS + self.opened.len() as u64 * FLOW_MARGIN_NS;
        let unix_ns = match self.job.start {
            Start::At(unix_ns) => unix_ns,
            Start::Soon => soon,
            Start::NotBefore(unix_ns) => unix_ns.max(soon),
        };
        let epoch = (ScheduleStart::at_unix(unix_ns, &pair), unix_ns);
        self.epoch = Some(epoch);
        for peer in self.peers.iter().filter(|peer| peer.stage == Stage::Ready) {
            tell(peer, SenderInput::Armed { epoch_unix_ns: epoch.1 });
        }
    }

    /// Starts the sending thread once every receiver that agreed has confirmed the start.
    fn start_when_begun(&mut self) -> std::io::Result<()> {
        let waiting = |peer: &Peer| matches!(peer.stage, Stage::Agreeing | Stage::Ready);
        if self.engine.is_some() || self.peers.iter().any(waiting) {
            return Ok(());
        }
        let Some((epoch, epoch_unix_ns)) = self.epoch else { return Ok(()) };
        // What is due now has no time left to be prepared.
        let soon = clock::monotonic_ns() + RESUME_MARGIN_NS;
        let resume_ns = self.job.orders.as_ref().and_then(|orders| orders.resume_ns);
        let resume_ns = resume_ns.map(|at| at.max(soon));
        let boot_id = host::boot_id();
        let mut flows = Vec::with_capacity(self.opened.len());
        for (place, (opened, socket)) in std::mem::take(&mut self.opened) {
            if self.peers[self.peer_of[place]].stage != Stage::Begun {
                continue;
            }
            self.introduce(place, &socket, epoch_unix_ns, &boot_id);
            self.outcome.flows[place].begun = true;
            let flow = &self.job.flows[place];
            let start = ScheduleStart(epoch.0.saturating_add_unsigned(flow.flow.spec().start_ns));
            let sampler = self.outlets.sampler(flow.flow.spec(), &socket, log_index(place));
            flows.push(TxFlow {
                traffic: Traffic::itg(
                    flow.flow.clone(),
                    opened.handle,
                    Arc::clone(&flow.content),
                    resume_ns.map_or(0, |resume| start.elapsed_ns(resume)),
                )
                .proven(self.key_of(place)),
                start,
                socket,
                log_index: log_index(place),
                sampler,
                live: Arc::clone(&flow.live),
                group: place,
            });
        }
        self.send(flows)
    }

    /// Describes a flow in the log before its first packet.
    fn introduce(&mut self, place: usize, socket: &DataSocket, epoch_unix_ns: u64, boot_id: &str) {
        let Some(notes) = &mut self.notes else { return };
        let flow = &self.job.flows[place];
        let spec = flow.flow.spec();
        let held = socket.kept.as_ref().map(|kept| {
            format!("the times of packets are kept by {}, not by the sending thread", kept.by)
        });
        let info = FlowInfo {
            changes: spec.changes.clone(),
            index: log_index(place),
            flow: spec.id,
            name: Some(flow.name.clone()),
            run: self.job.run.clone(),
            seed: self.job.seed,
            spec: spec.clone(),
            src: socket.local.to_string(),
            dst: socket.remote.to_string(),
            epoch_unix_ns: epoch_unix_ns + spec.start_ns,
            sender_boot_id: boot_id.to_owned(),
            receiver_boot_id: self.peers[self.peer_of[place]].boot_id.clone(),
            notices: flow.flow.notices().chain(held).collect(),
            ditg: None,
        };
        if self.job.orders.is_some() {
            self.introduced.insert(place, info.clone());
        }
        notes.note(Note::Flow(info));
        if spec.proto == Proto::Tcp {
            self.tcp.add(log_index(place), &socket.socket);
        }
    }

    /// Starts the thread that sends these flows.
    fn send(&mut self, flows: Vec<TxFlow>) -> std::io::Result<()> {
        let places: Vec<usize> =
            flows.iter().map(|flow| self.place_of[&flow.traffic.id()]).collect();
        self.tell_of_unsent(&places);
        let log = self.log.as_ref().map(Log::producer);
        let pacing = self.job.pacing.take();
        let pacing =
            pacing.unwrap_or_else(|| Prepared::new(Level::default(), PacingOptions::default()));
        let stop = Arc::clone(&self.stop_signal);
        let sent = self.sent.clone();
        let exact = self.outlets.take_exact();
        let (rates, changes) = std::sync::mpsc::channel();
        self.rates = Some(rates);
        let engine = thread::Builder::new().name("itg-send".to_owned()).spawn(move || {
            Engine::new(flows, exact, pacing, log, stop, |mut end| {
                end.index = places[end.index];
                // The run outlives its sending thread.
                drop(sent.send(end));
            })
            .changing(changes)
            .run();
        })?;
        self.engine = Some(engine);
        // What is started before, the sending thread and the log's, keeps the priority that it has.
        if self.job.giving_way {
            sys::give_way();
        }
        Ok(())
    }

    /// Reports flows that are not sent to the orders' giver at once, for others may be sent for long.
    fn tell_of_unsent(&self, sent: &[usize]) {
        let Some(orders) = &self.job.orders else { return };
        for (place, flow) in self.job.flows.iter().enumerate() {
            if sent.contains(&place) {
                continue;
            }
            let address = self.peers[self.peer_of[place]].address;
            let failed = self.outcome.failures.iter().find(|(at, _)| *at == address);
            let refused = self.outcome.flows[place].refused.clone();
            let cause = refused
                .or_else(|| failed.map(|(_, error)| error.to_string()))
                .map_or(EndCause::NotAgreed, EndCause::Refused);
            // The receiving end may be closed.
            drop(orders.ends.send(unsent(flow.flow.spec().id, cause)));
        }
    }

    /// A flow has sent its last packet: tells the receiver, the log, and the reader of replies.
    async fn on_end(&mut self, end: TxEnded) {
        let place = end.index;
        let mut totals = end.totals;
        self.outcome.flows[place].refused_by.clone_from(&end.refused_by);
        let hurry = self.outcome.interrupted.is_some()
            || matches!(totals.reason.cause, EndCause::Interrupted | EndCause::LeaseOver);
        if totals.reason.cause == EndCause::Interrupted
            && let Some(why) = &self.peers[self.peer_of[place]].stopped
        {
            totals.reason.cause = EndCause::SessionOver(why.clone());
        }
        if let Some(departures) = &end.departures
            && self.outlets.samples().is_none()
        {
            totals.reason.remarks.extend(departures::remarks(departures));
        }
        let flow = self.job.flows[place].flow.clone();
        if end.behind {
            let (planned, mut counted) = (flow.clone(), totals.clone());
            let counting = tokio::task::spawn_blocking(move || {
                count_left_out(&planned, &mut counted);
                counted
            });
            totals = counting.await.unwrap_or(totals);
        }
        if let Some(notes) = &mut self.notes {
            self.tcp.end(log_index(place), notes);
            if let Some((samples, totals)) = self.outlets.samples().zip(end.departures) {
                samples.end(log_index(place), totals, notes);
            }
            let note = flow_end(log_index(place), &totals, end.waited, &end.refused_by);
            self.ends.tell(place, note, notes);
        }
        if let Some(rx) = self.replies.as_ref().filter(|_| flow.spec().meter == Meter::Rtt) {
            let replied = self.replied.clone();
            let done = Box::new(move |ended| drop(replied.send(ended)));
            let drain = hurry.then_some(Drain::INTERRUPTED);
            let (slot, totals) = (place, Some(totals.clone()));
            rx.ask(Command::End { slot, totals, drain, udp_errors: None, done });
            self.awaited += 1;
        }
        if let Some(orders) = &self.job.orders {
            // The receiving end may be closed.
            drop(orders.ends.send(totals.clone()));
        }
        tell(&self.peers[self.peer_of[place]], SenderInput::FlowEnded(totals));
    }
}

/// The flows that go to one peer.
fn specs_of<'a>(
    job: &'a SendJob,
    peer_of: &'a [usize],
    peer: usize,
) -> impl Iterator<Item = &'a SendFlow> {
    job.flows.iter().zip(peer_of).filter(move |(_, of)| **of == peer).map(|(flow, _)| flow)
}

/// Waits until the run shall end; the reason.
async fn asked_to_stop(stop: &mut watch::Receiver<Option<String>>) -> String {
    let reason = stop.wait_for(Option::is_some).await.ok().and_then(|reason| reason.clone());
    reason.unwrap_or_else(|| "the program ends".to_owned())
}

/// The number of a flow in the sender's log: its place, from 1.
fn log_index(place: usize) -> u32 {
    u32::try_from(place + 1).unwrap_or(u32::MAX)
}

fn tell(peer: &Peer, input: SenderInput) {
    // A session that has ended needs to hear nothing more.
    drop(peer.inputs.send(input));
}
