//! A receiver: answers senders on the signalling port, opens data sockets for their flows, and logs
//! what arrives, for as long as it runs and for many senders at once.

mod arrived;
mod asked_for;
pub(crate) mod asking;
mod classic;
mod contents;
mod frames;
mod given_up;
mod laws;
pub(crate) mod limits;
mod listeners;
mod log_name;
mod options;
mod origins;
mod ports;
mod reverse;
mod served;
mod session_log;
mod shards;
mod shared;
mod udp_errors;
mod watched;

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use itg_core::flow::{FlowSpec, Proto};
use itg_core::text::from_peer;
use itg_engine::log::{Log, LogOutcome, Producer};
use itg_engine::rx::{Command, PacketFormat, RxEnded};
use itg_record::FlowInfo;
use itg_session::{
    FlowCounts, FlowTotals, Message, OpenReply, OpenedFlow, ReceiverConfig, ReceiverInput,
    ReceiverOutput, ReceiverSession, Timeouts,
};
use itg_socket::UdpErrors;
use itg_socket::clock;
use itg_socket::host;
use itg_socket::socket::{SocketError, plain};
use itg_socket::sys;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use self::asked_for::{AskedFor, News};
pub use self::classic::VisitError;
use self::contents::Contents;
pub use self::options::{ClassicNews, ClassicReceiving, ReceiverOptions, SENDERS_PER_ADDRESS};
use self::origins::{foreign, origin_of};
use self::ports::{Asked, Opened, Sought, Taken};
use self::reverse::{Seat, Turn};
pub use self::served::{ServedFlow, ServedSession};
use self::session_log::SessionLog;
use self::shards::Shards;
pub use self::shared::ReceiverReading;
use self::shared::{COMMON_LOG, MAX_FLOWS, Shared, log_info};
use self::udp_errors::ErrorReadings;
use self::watched::WatchedSession;
pub use self::watched::{ReceiverWatch, WATCHED_MEASURES, WatchReading, WatchedFlow};
use crate::clock_probes::ProbeNotes;
use crate::connection_slots::{ConnectionSlot, ConnectionSlots, NoSlot, SlotLimits};
use crate::control::{Channel, Incoming, sleep_until};
use crate::frames::FrameRoom;
use crate::lock::lock;
use crate::packet_keys::{self, Nonce, PacketKeys};

/// Senders at the same time.
const MAX_SESSIONS: usize = 1024;

/// Totals of a receiver.
#[derive(Clone, Debug, Default)]
pub struct ReceiverOutcome {
    /// Senders that were served, refused ones included.
    pub sessions: u64,
    /// Packets that belonged to a flow.
    pub packets: u64,
    /// Packets and connections on data ports that belonged to none, or came from elsewhere than its sender:
    /// left out.
    pub foreign: u64,
    /// The common log.
    pub log: Option<LogOutcome>,
}

/// A receiver whose sockets are open.
#[derive(Debug)]
pub struct Receiver {
    listeners: Vec<TcpListener>,
    shared: Arc<Shared>,
}

/// Reason why a receiver cannot start.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// A socket, thread or directory that cannot be had.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// A log that cannot be written; it is named.
    #[error(transparent)]
    Log(io::Error),
}

impl Receiver {
    /// Opens the signalling port and the common log. Data ports are opened when flows come for them.
    ///
    /// # Errors
    /// A port that is taken, a log that cannot be written: named, with what can be done.
    pub fn bind(options: ReceiverOptions) -> Result<Self, BindError> {
        host::raise_open_files();
        let listeners = listeners::open(&options)?;
        Self::with(options, listeners)
    }

    /// Starts the receiving thread and the common log.
    fn with(mut options: ReceiverOptions, listeners: Vec<TcpListener>) -> Result<Self, BindError> {
        let failed = |what: &str, error: &io::Error| SocketError::new(what, error.to_string());
        let rx = Shards::start(options.shards).map_err(|e| failed("the receiving thread", &e))?;
        rx.allow(&options.allow_sources);
        if let Some(settings) = &options.frames {
            let frames = frames::open(settings, options.shards, &rx)?;
            options.settings.insert("frames".to_owned(), frames);
        }
        let mut log = None;
        if let Some(target) = &options.log {
            let info = log_info(&options);
            let created = Log::create(target, info, options.log_limits).map_err(BindError::Log)?;
            rx.log(COMMON_LOG, &created);
            log = Some(created);
        }
        if let Some(dir) = options.log_dir.as_ref().filter(|dir| !dir.is_dir()) {
            return Err(SocketError::new(
                format!("--log-dir {}", dir.display()),
                "there is no such directory: create it first",
            )
            .into());
        }
        let shared = Arc::new(Shared {
            options,
            boot_id: host::boot_id(),
            rx,
            sockets: Mutex::default(),
            frames: FrameRoom::default(),
            slots: Mutex::default(),
            log: Mutex::new(log),
            next_log: AtomicUsize::new(COMMON_LOG + 1),
            own_logs: Mutex::default(),
            classic_logs: Mutex::default(),
            packets: AtomicU64::new(0),
            running: Arc::default(),
            askers: Mutex::default(),
            told: OnceLock::new(),
            watched: OnceLock::new(),
        });
        Ok(Self { listeners, shared })
    }

    /// Returns the addresses that senders can connect to.
    pub fn addresses(&self) -> impl Iterator<Item = SocketAddr> + '_ {
        self.listeners.iter().filter_map(|listener| listener.local_addr().ok())
    }

    /// Describes how frames are taken from a device before its network stack; `None` where sockets alone are read.
    #[must_use]
    pub fn frames(&self) -> Option<&str> {
        self.shared.options.settings.get("frames").map(String::as_str)
    }

    /// The reason why flows that ask for no data port of their own could not be received now, as where another program
    /// has that port.
    pub fn data_port_trouble(&self) -> Option<SocketError> {
        let at = self.addresses().next()?;
        self.shared.data_port_trouble(at.ip())
    }

    /// Opens the common log anew by its name, if its file was moved away; returns false once it no longer serves. May
    /// wait for the log's writer.
    pub fn reopen_log(&self) -> impl Fn() -> bool + Send + Sync + 'static {
        let shared = Arc::downgrade(&self.shared);
        move || {
            let Some(shared) = shared.upgrade() else { return false };
            let log = lock(&shared.log);
            log.iter().for_each(Log::reopen);
            log.is_some()
        }
    }

    /// Reads what is being received, and what was received once it serves no more.
    pub fn watch(&self) -> impl Fn() -> ReceiverReading + Send + Sync + 'static {
        let running = Arc::clone(&self.shared.running);
        move || lock(&running).read()
    }

    /// Watches its flows one by one, from now on and as long as it serves.
    #[must_use]
    pub fn observe(&self) -> ReceiverWatch {
        ReceiverWatch::new(&self.shared)
    }

    /// Tells of each sender of ITG that has left; asked for once. What nobody reads in time is not told.
    #[must_use]
    pub fn tell_of_senders(&self) -> mpsc::Receiver<ServedSession> {
        let (told, tellings) = mpsc::channel(served::MOST_UNREAD);
        // A second one hears nothing.
        drop(self.shared.told.set(told));
        tellings
    }

    /// Serves until `stop` holds a reason (or, with `once`, until the first sender has left).
    pub async fn serve(self, stop: watch::Receiver<Option<String>>) -> ReceiverOutcome {
        let (accepted, mut connections) = mpsc::channel(16);
        let mut accepting = JoinSet::new();
        for listener in self.listeners {
            accepting.spawn(accept(listener, accepted.clone()));
        }
        let mut sessions = JoinSet::new();
        let per_address = self.shared.options.max_per_address;
        let places = ConnectionSlots::new(SlotLimits { total: MAX_SESSIONS, per_address });
        let mut stopped = stop.clone();
        let mut count = 0;
        loop {
            tokio::select! {
                Some((stream, peer)) = connections.recv() => {
                    count += 1;
                    let peer = plain(peer);
                    match places.take(peer.ip()) {
                        Ok(place) => {
                            let shared = Arc::clone(&self.shared);
                            sessions.spawn(serve_one(shared, stream, (peer, place), stop.clone()));
                        }
                        Err(why) => {
                            tracing::warn!("{peer} is turned away: {why}");
                            turn_away(&stream, why);
                        }
                    }
                }
                Some(_) = sessions.join_next() => {
                    if self.shared.options.once {
                        break;
                    }
                }
                reason = stopped.wait_for(Option::is_some) => {
                    if let Ok(reason) = reason {
                        tracing::info!("stopping: {}", reason.as_deref().unwrap_or_default());
                    }
                    break;
                }
            }
        }
        accepting.shutdown().await;
        // Sessions see the stop themselves; each ends by its deadlines.
        while sessions.join_next().await.is_some() {}
        Self { listeners: Vec::new(), shared: self.shared }.close(count).await
    }

    /// Closes the common log.
    async fn close(self, count: u64) -> ReceiverOutcome {
        let shared = self.shared;
        let closed = tokio::task::spawn_blocking(move || {
            shared.rx.close_log(COMMON_LOG);
            let log = lock(&shared.log).take().map(Log::close);
            let (packets, foreign) = (shared.packets.load(Ordering::Relaxed), shared.rx.foreign());
            ReceiverOutcome { sessions: 0, packets, foreign, log }
        });
        let outcome = closed.await.unwrap_or_default();
        ReceiverOutcome { sessions: count, ..outcome }
    }
}

async fn accept(listener: TcpListener, accepted: mpsc::Sender<(TcpStream, SocketAddr)>) {
    loop {
        match listener.accept().await {
            Ok(connection) => {
                if accepted.send(connection).await.is_err() {
                    return;
                }
            }
            Err(error) => {
                tracing::warn!(%error, "a sender's connection was not accepted");
                tokio::time::sleep(clock::ns(100_000_000)).await;
            }
        }
    }
}

/// Serves a sender in its own protocol.
async fn serve_one(
    shared: Arc<Shared>,
    stream: TcpStream,
    (peer, place): (SocketAddr, ConnectionSlot),
    stop: watch::Receiver<Option<String>>,
) {
    let mut stopped = stop.clone();
    let classic = shared.options.classic.only
        || tokio::select! {
            speaks = classic::speaks(&stream) => speaks,
            // It has said nothing, so it is not known in which protocol it would be told.
            () = place.lost() => return,
            _ = stopped.wait_for(Option::is_some) => return,
        };
    if classic {
        classic::Session::new(shared, peer, stop, None).run(stream, Some(place)).await;
    } else {
        Session::new(shared, peer, stop).run(stream, place).await;
    }
}

/// Says that there is no place, if that can be said at once.
fn turn_away(stream: &TcpStream, why: NoSlot) {
    let refusal = Message::Refuse { reason: why.to_string() };
    if let Ok(bytes) = itg_session::encode(&refusal)
        && let Ok(len) = u32::try_from(bytes.len())
    {
        let frame = [&len.to_le_bytes()[..], &bytes].concat();
        // It may have gone; the connection ends in any case.
        stream.try_write(&frame).unwrap_or_default();
    }
}

/// Event that another thread tells a session of.
enum Telling {
    Input(ReceiverInput),
    /// A flow's packets are counted.
    Ended(RxEnded),
}

/// Waits until the connection has lost its place; one that this side made never does.
async fn displaced(place: Option<&ConnectionSlot>) {
    match place {
        Some(place) => place.lost().await,
        None => std::future::pending().await,
    }
}

/// The input that a telling stands for; an end may have a second one, which is told behind it.
fn input_of(
    telling: Telling,
    peer: SocketAddr,
    told: &mpsc::UnboundedSender<Telling>,
) -> ReceiverInput {
    let ended = match telling {
        Telling::Input(input) => return input,
        Telling::Ended(ended) => ended,
    };
    if ended.counts.foreign > 0 {
        tracing::warn!("{}", foreign(peer, &ended.counts, ended.stranger));
    }
    let measure = ended.measure();
    let counted = ReceiverInput::FlowCounted(ended.counts);
    let Some(measure) = measure else { return counted };
    // The receiving end is held by who asks.
    drop(told.send(Telling::Input(counted)));
    ReceiverInput::FlowMeasured(measure)
}

/// One sender's connection.
struct Session {
    shared: Arc<Shared>,
    peer: SocketAddr,
    stop: watch::Receiver<Option<String>>,
    machine: ReceiverSession,
    /// Queue of events from other threads, its sending end.
    told: mpsc::UnboundedSender<Telling>,
    tellings: mpsc::UnboundedReceiver<Telling>,
    flows: BTreeMap<u32, Opened>,
    /// The flow from which on the sender is told next what has arrived.
    told_next: u32,
    run: String,
    seed: u64,
    boot_id: String,
    /// Keys of its packets, when they prove where they come from.
    keys: Option<PacketKeys>,
    served: ServedSession,
    watched: WatchedSession,
    /// Flows that the peer has asked for.
    turn: Option<Turn>,
    /// Run that was asked of the peer, where this side has made the connection.
    asked: Option<AskedFor>,
    /// Reason of the end.
    ended: String,
    log: SessionLog,
    /// Notes of this sender's clock probes, and the log that they go to.
    probes: Option<(ProbeNotes, Producer)>,
    /// Records of its packets that were meant for its log.
    records: Arc<AtomicU64>,
    /// Records that the common log had lost before this session.
    lost_before: u64,
    udp_errors: ErrorReadings,
    contents: Contents,
}

impl Session {
    fn new(shared: Arc<Shared>, peer: SocketAddr, stop: watch::Receiver<Option<String>>) -> Self {
        let (told, tellings) = mpsc::unbounded_channel();
        let config = ReceiverConfig {
            program: format!("{} {}", shared.options.program, shared.options.version),
            host: host::name(),
            boot_id: shared.boot_id.clone(),
            max_flows: u32::try_from(MAX_FLOWS).expect("65 536 fits"),
            secret: shared.options.packet_secret.is_some(),
            turns: shared.options.reverse.is_some(),
            timeouts: Timeouts::default().patient(shared.options.peer_timeout_ns),
        };
        Self {
            machine: ReceiverSession::new(config, clock::machine_ns()),
            served: ServedSession::new(peer),
            watched: WatchedSession::new(&shared),
            shared,
            peer,
            stop,
            told,
            tellings,
            flows: BTreeMap::new(),
            told_next: 0,
            run: String::new(),
            seed: 0,
            boot_id: String::new(),
            keys: None,
            turn: None,
            asked: None,
            ended: String::new(),
            log: SessionLog::None,
            probes: None,
            records: Arc::default(),
            lost_before: 0,
            udp_errors: ErrorReadings::default(),
            contents: Contents::default(),
        }
    }

    async fn run(mut self, stream: TcpStream, place: ConnectionSlot) {
        let local = stream.local_addr().ok().map(plain);
        let patience = clock::ns(self.shared.options.peer_timeout_ns);
        let mut channel = Channel::of_stranger(stream, patience, &self.shared.frames);
        self.converse(&mut channel, local, Some(&place)).await;
        match self.turn.take() {
            Some(turn) => turn.send(channel, self.stop).await,
            None => channel.close().await,
        }
        self.served.finish();
        if let Some(told) = self.shared.told.get().filter(|_| !self.served.flows.is_empty())
            && told.try_send(self.served).is_err()
        {
            tracing::info!("nobody reads what became of the flows of sender {}", self.peer);
        }
    }

    /// Serves a peer to the end of its session.
    async fn converse(
        &mut self,
        channel: &mut Channel,
        local: Option<SocketAddr>,
        place: Option<&ConnectionSlot>,
    ) {
        let mut stopping = false;
        let told_by = self.told.clone();
        let mut out = Vec::new();
        while !self.machine.is_over() {
            let mut reached = None;
            let input = tokio::select! {
                // What has come in goes before a time-out.
                biased;
                heard = channel.hear() => match heard {
                    Incoming::Message(message) => ReceiverInput::Message(message),
                    Incoming::Garbage(error) => ReceiverInput::Garbage(error),
                    Incoming::Lost(why) => ReceiverInput::Lost(why),
                },
                Some(told) = self.tellings.recv() => input_of(told, self.peer, &told_by),
                news = asked_for::news(self.asked.as_mut()) => match news {
                    News::Reached(flow) => {
                        reached = Some(*flow);
                        // Too early does no harm.
                        ReceiverInput::Timer
                    }
                    News::Overdue(reason) => ReceiverInput::Halt(reason),
                },
                () = sleep_until(self.machine.deadline()) => ReceiverInput::Timer,
                () = displaced(place) => ReceiverInput::Displaced,
                stop = self.stop.wait_for(Option::is_some), if !stopping => {
                    stopping = true;
                    let reason = stop.ok().and_then(|reason| reason.clone());
                    let reason = reason.unwrap_or_else(|| "the receiver ends".to_owned());
                    match self.asked {
                        Some(_) => ReceiverInput::Halt(reason),
                        None => ReceiverInput::Shutdown(reason),
                    }
                }
            };
            if let Some(flow) = reached {
                self.arrive(flow);
            }
            let message = matches!(input, ReceiverInput::Message(_));
            self.udp_errors.in_hand(message.then(|| channel.reads()));
            self.note(&input, place);
            self.machine.handle(clock::machine_ns(), input, &mut out);
            let mut lost = None;
            for output in out.drain(..) {
                match output {
                    ReceiverOutput::Send(mut message) => {
                        if let Message::Pong { arrived, .. } = &mut message {
                            arrived.extend(self.arrivals());
                        }
                        if lost.is_none() {
                            lost = channel.say(message).await.err();
                        }
                    }
                    ReceiverOutput::Prove { nonce } => {
                        if let Some(proved) = self.prove(&nonce) {
                            lost = channel.say(proved).await.err();
                        }
                    }
                    other => self.act(other, local).await,
                }
            }
            if let Some(why) = lost {
                self.machine.handle(clock::machine_ns(), ReceiverInput::Lost(why), &mut out);
                for output in std::mem::take(&mut out) {
                    if !matches!(output, ReceiverOutput::Send(_)) {
                        self.act(output, local).await;
                    }
                }
            }
        }
    }

    /// Takes from what comes in what is for the account of the session, its pages and its log.
    fn note(&mut self, input: &ReceiverInput, place: Option<&ConnectionSlot>) {
        match input {
            ReceiverInput::FlowOpened(OpenReply { result: Ok(_), .. })
            | ReceiverInput::Turned(Ok(_)) => {
                place.into_iter().for_each(ConnectionSlot::settle);
            }
            ReceiverInput::FlowMeasured(measure) => {
                self.served.measured(measure);
                self.watched.measured(measure);
            }
            ReceiverInput::FlowCounted(counts) => self.release(counts),
            ReceiverInput::Message(Message::Ping { previous: Some(stamps), .. }) => {
                self.served.clock.take(*stamps);
                self.watched.probed(*stamps);
                if let Some((probes, log)) = &mut self.probes {
                    probes.take(*stamps, log);
                }
            }
            _ => {}
        }
    }

    async fn act(&mut self, output: ReceiverOutput, local: Option<SocketAddr>) {
        match output {
            ReceiverOutput::Send(_) | ReceiverOutput::Prove { .. } => {}
            accepted @ ReceiverOutput::Accept { .. } => self.on_accept(accepted),
            ReceiverOutput::Open(spec) => {
                if self.asked.is_some() {
                    return self.come_to(&spec);
                }
                let flow = spec.id;
                let result = self.open(*spec, local);
                self.answer(flow, result);
            }
            ReceiverOutput::Turn { flows } => {
                let seat = Seat::wait_for(&self.shared, self.peer.ip()).await;
                let (run, ends) = ((self.run.as_str(), self.seed), (self.peer, local));
                let prepare = || Turn::prepare(&self.shared, seat?, run, flows, ends);
                let turned = tokio::task::block_in_place(prepare).map(|(turn, notices)| {
                    self.turn = Some(turn);
                    notices
                });
                self.tell(ReceiverInput::Turned(turned));
            }
            ReceiverOutput::Start { epoch_unix_ns } => {
                self.asked.iter().for_each(AskedFor::begin);
                let ahead_ns = self.served.ahead_ns();
                for opened in self.flows.values() {
                    let slot = opened.slot;
                    let start = Command::Start { slot, epoch_unix_ns, ahead_ns };
                    self.shared.thread_of(opened).ask(start);
                }
            }
            ReceiverOutput::End { totals } => {
                let errors = self.udp_errors.get(sys::udp_errors);
                if let Some(opened) = self.flows.get(&totals.flow) {
                    self.served.ended(&totals);
                    self.watched.ended(&totals);
                    self.end(opened, Some(totals), errors);
                }
            }
            ReceiverOutput::Abandon { reason } => {
                self.turn = None;
                match self.asked {
                    Some(_) => self.end_unended(),
                    None => self.abandon(&reason).await,
                }
            }
            ReceiverOutput::CloseLog => {
                if let Some((mut probes, mut log)) = self.probes.take() {
                    probes.finish(&mut log);
                }
                let log = std::mem::replace(&mut self.log, SessionLog::None);
                let records = self.records.load(Ordering::Relaxed);
                let summary = log.close(&self.shared, (records, self.lost_before)).await;
                self.tell(ReceiverInput::LogClosed(summary));
            }
            ReceiverOutput::Disconnect { reason } => {
                tracing::info!("sender {}: {reason}", self.peer);
                self.ended = reason;
            }
        }
    }

    /// Takes in a sender's greeting.
    fn on_accept(&mut self, accepted: ReceiverOutput) {
        let ReceiverOutput::Accept { run, seed, program, host, boot_id, flows, recv_log } =
            accepted
        else {
            return;
        };
        tracing::info!(
            "sender {} ({}, {}): run {run}, {flows} flows",
            self.peer,
            from_peer(&host),
            from_peer(&program)
        );
        let here = &self.shared.boot_id;
        let shared_clock = !here.is_empty() && *here == boot_id;
        self.served.greet(&run, &host, shared_clock);
        self.watched.greet(shared_clock);
        (self.run, self.seed, self.boot_id) = (run, seed, boot_id);
        self.log = SessionLog::choose(&self.shared, &self.run, recv_log);
        self.lost_before = lock(&self.shared.log).as_ref().map_or(0, Log::lost_records);
        let notes = match &self.log {
            SessionLog::Common => lock(&self.shared.log).as_ref().map(Log::producer),
            SessionLog::Own(_, log) => Some(log.producer()),
            SessionLog::None | SessionLog::Impossible(_) => None,
        };
        let (here, there) = (self.shared.boot_id.clone(), self.boot_id.clone());
        self.probes = notes.map(|log| (ProbeNotes::new(self.run.clone(), there, here), log));
    }

    fn tell(&self, input: ReceiverInput) {
        // The receiving end is a field of this same value.
        drop(self.told.send(Telling::Input(input)));
    }

    /// Derives the keys of this session's packets; the answer to the sender.
    fn prove(&mut self, sender: &Nonce) -> Option<Message> {
        let secret = self.shared.options.packet_secret.as_deref()?;
        let nonce = packet_keys::nonce();
        let keys = PacketKeys::new(secret, &self.run, sender, &nonce);
        let proof = keys.receiver_proof();
        self.keys = Some(keys);
        Some(Message::Proved { nonce, proof })
    }

    /// Answers for a flow that is open, or cannot be opened.
    fn answer(&self, flow: u32, result: Result<OpenedFlow, String>) {
        let reply = ReceiverInput::FlowOpened(OpenReply { flow, result });
        match self.flows.get(&flow) {
            // Packets come as soon as the sender hears that they are awaited.
            Some(opened) => {
                let told = self.told.clone();
                let caught_up = Box::new(move || drop(told.send(Telling::Input(reply))));
                self.shared.thread_of(opened).ask(Command::CaughtUp(caught_up));
            }
            None => self.tell(reply),
        }
    }

    /// Prepares sockets and the table entry of a flow.
    fn open(&mut self, spec: FlowSpec, local: Option<SocketAddr>) -> Result<OpenedFlow, String> {
        let log = self.log.number()?;
        if self.keys.is_some() && spec.proto != Proto::Udp {
            return Err("packets of UDP alone prove where they come from".to_owned());
        }
        let origin = origin_of(self.peer, &spec, &self.shared.options.allow_sources)?;
        let v6 = self.peer.is_ipv6();
        let listen = self.shared.options.listen.ip();
        let ip = match (listen.is_unspecified(), v6) {
            (true, false) => Ipv4Addr::UNSPECIFIED.into(),
            (true, true) => Ipv6Addr::UNSPECIFIED.into(),
            (false, _) => listen,
        };
        let port = match spec.proto.properties().has_ports {
            false => 0,
            // Flows in burst mode have a port of their own, whichever is free.
            _ if spec.burst.is_some() => spec.socket.dest_port.unwrap_or(0),
            _ => spec.socket.dest_port.unwrap_or(self.shared.options.data_port),
        };
        let slot = lock(&self.shared.slots)
            .take()
            .ok_or("this receiver has as many flows as it can serve: try later")?;
        let at = SocketAddr::new(ip, port);
        let joined = spec.burst.is_some();
        let mut asked = Asked { proto: spec.proto, at, format: PacketFormat::Itg, joined };
        if spec.socket.dest_port.is_none() && self.shared.has_other_flows(asked) {
            // Whoever came first with another protocol keeps nobody out: any free port will do.
            asked.at.set_port(0);
        }
        let data = match self.shared.data_port(asked, 0) {
            Ok(data) => data,
            Err(error) => {
                lock(&self.shared.slots).give_back(slot);
                return Err(error.to_string());
            }
        };
        let flow = spec.id;
        let to = local.map_or(ip, |address| address.ip());
        let introduction = self.introduction(&spec, SocketAddr::new(to, data.port));
        let checked = self.shared.options.check_payload;
        let check = checked.then(|| self.contents.check(&spec, self.seed, self.keys.is_some()));
        let check = check.flatten();
        let (handle, live) = self.shared.look_for(Sought {
            slot,
            spread: data.asked.spreads(),
            spec: &spec,
            origin,
            log,
            introduction,
            socket: data.id,
            receive_buffer: data.receive_buffer,
            measured: true,
            classic: None,
            key: self.keys.as_ref().map(|keys| keys.of(flow)),
            check,
        });
        // Only datagrams find full buffers.
        let errors = &mut self.udp_errors;
        let udp_errors = data.receive_buffer.and_then(|_| errors.get(sys::udp_errors));
        let socket = Taken::Shared(data.asked);
        // Where nobody asks for it, nothing is kept.
        if self.shared.told.get().is_some() {
            self.served.opened(&spec, SocketAddr::new(to, data.port));
        }
        let opened = Opened { slot, socket, live, udp_errors };
        let ends = (self.peer.ip(), SocketAddr::new(to, data.port));
        self.watched.opened((&self.run, &spec), ends, &opened, &self.served.clock);
        self.flows.insert(flow, opened);
        Ok(OpenedFlow { flow, handle, port: data.port })
    }

    /// The description of a flow for a log, if there is one.
    fn introduction(&self, spec: &FlowSpec, to: SocketAddr) -> Option<Box<FlowInfo>> {
        if matches!(self.log, SessionLog::None) {
            return None;
        }
        Some(Box::new(FlowInfo {
            changes: Vec::new(),
            index: 0,
            flow: spec.id,
            name: None,
            run: self.run.clone(),
            seed: self.seed,
            src: SocketAddr::new(self.peer.ip(), 0).to_string(),
            dst: to.to_string(),
            epoch_unix_ns: 0,
            sender_boot_id: self.boot_id.clone(),
            receiver_boot_id: self.shared.boot_id.clone(),
            notices: Vec::new(),
            spec: spec.clone(),
            ditg: None,
        }))
    }

    /// Has a flow drained and counted, with the host's count of full receive buffers at its end.
    fn end(&self, opened: &Opened, totals: Option<FlowTotals>, errors: Option<UdpErrors>) {
        let (told, records) = (self.told.clone(), Arc::clone(&self.records));
        // The receiving thread goes on with its sockets at once.
        let done = Box::new(move |ended: RxEnded| {
            records.fetch_add(ended.records, Ordering::Relaxed);
            drop(told.send(Telling::Ended(ended)));
        });
        let (slot, before) = (opened.slot, opened.udp_errors);
        let udp_errors = errors.zip(before).map(|(now, before)| now.since(before));
        let thread = self.shared.thread_of(opened);
        thread.ask(Command::End { slot, totals, drain: None, udp_errors, done });
    }

    /// Gives back what a counted flow used.
    fn release(&mut self, counts: &FlowCounts) {
        self.add(counts);
        self.watched.counted(counts);
        if let Some(opened) = self.flows.remove(&counts.flow) {
            self.shared.give_back(&opened);
        }
    }

    /// Adds the packets of a flow to the accounts of the session and of the receiver.
    fn add(&mut self, counts: &FlowCounts) {
        let from = self.flows.get(&counts.flow).and_then(|opened| opened.live.source());
        self.served.counted(counts, from);
        self.shared.packets.fetch_add(counts.packets, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
