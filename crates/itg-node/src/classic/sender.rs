//! A sender of D-ITG: signalling channels to receivers, one sending thread for all flows of the
//! process, one receiving thread for the replies of round-trip flows, one log.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, mpsc as std_mpsc};
use std::thread::{self, JoinHandle};

use itg_classic::send::{FlowArgs, SpecError};
use itg_classic::wire::{FlowOffer, FlowResult, RecvLog, SenderEnding};
use itg_core::flow::{Flow, FlowSpec, Meter, Proto};
use itg_core::payload::Content;
use itg_engine::clock_pair;
use itg_engine::engine::{Engine, ScheduleStart, StopSignal, TxEnded, TxFlow, flow_end};
use itg_engine::live::FlowLive;
use itg_engine::log::{Log, LogLimits, LogOutcome, LogTarget, Producer};
use itg_engine::pacing::Prepared;
use itg_engine::rx::{ClassicRx, Command, Drain, Origin, PacketFormat, Port, RxFlow, RxHandle};
use itg_engine::traffic::Traffic;
use itg_record::{DitgFlow, FlowInfo, LogInfo, Note};
use itg_session::{FlowCounts, FlowTotals};
use itg_socket::clock;
use itg_socket::host;
use itg_socket::socket::{self, DataSocket};
use itg_socket::wire::Sockets;
use tokio::sync::mpsc;

use super::channel::Mail;
use crate::lock::lock;
use itg_engine::classic::{ClassicContent, ClassicForm, ClassicPackets};

/// Time to wait for replies: until none has come for 15 s, as D-ITG does, and 600 s at most.
const REPLIES: Drain = Drain { quiet_ns: 15_000_000_000, limit_ns: 600_000_000_000 };
/// The log of the receiving thread.
const LOG: usize = 0;

/// A flow to send.
#[derive(Clone, Debug)]
pub struct ClassicFlow {
    /// Request that describes it to its receiver.
    pub offer: FlowOffer,
    /// Type of its ICMP messages.
    pub icmp_type: u8,
    /// The flow in ITG's terms, for its socket and for logs.
    pub spec: FlowSpec,
    /// Destination of its packets; the port is the one that the receiver names. `None` in passive mode.
    pub dest: Option<SocketAddr>,
    /// Its own address (`-sa`).
    pub source: Option<IpAddr>,
    /// Its packets.
    pub packets: ClassicSource,
    /// Counters that others may read while it runs.
    pub live: Arc<FlowLive>,
}

/// Source of the sizes, inter-departure times and contents of a flow's packets.
#[derive(Clone, Debug)]
pub enum ClassicSource {
    /// Drawn as D-ITG draws them.
    Ditg {
        /// Arguments of the command line, with the files that they name loaded.
        args: Box<FlowArgs>,
        /// Content of the packets.
        content: ClassicContent,
        /// Above 0 and below 1.
        seed: f64,
    },
    /// A flow of ITG.
    Itg {
        /// The flow.
        flow: Box<Flow>,
        /// Content of the packets.
        content: Arc<Content>,
    },
}

impl ClassicFlow {
    fn traffic(&self) -> Result<Traffic, SpecError> {
        let form = ClassicForm {
            flow: self.offer.flow,
            kind: self.offer.header,
            // D-ITG's SCTP messages carry their size, too.
            stream: self.spec.proto.properties().is_ordered,
            icmp_type: self.icmp_type,
        };
        Ok(match &self.packets {
            ClassicSource::Ditg { args, content, seed } => {
                let packets = ClassicPackets::new(args, *seed, content.clone(), form)?;
                Traffic::classic(packets, self.spec.proto, form)
            }
            ClassicSource::Itg { flow, content } => {
                Traffic::itg_for_classic((**flow).clone(), Arc::clone(content), form)
            }
        })
    }
}

/// Way in which the connection to the receiver of a channel is set up.
#[derive(Clone, Debug)]
pub enum ClassicWay {
    /// It listens.
    Connect {
        /// Address that it listens on.
        to: SocketAddr,
        /// From this address and port.
        from: Option<SocketAddr>,
        /// Through this interface.
        interface: Option<String>,
    },
    /// Passive mode: it connects to this address.
    Await(SocketAddr),
}

/// The flows to one receiver.
#[derive(Clone, Debug)]
pub struct ClassicChannel {
    /// Way in which its connection is set up.
    pub way: ClassicWay,
    /// Its log.
    pub log: Option<RecvLog>,
    /// The flows, in the order in which they are offered.
    pub flows: Vec<ClassicFlow>,
    /// Instant from which their delays count, in nanoseconds of CLOCK_MONOTONIC; `None`: from the connection on.
    pub since_ns: Option<u64>,
    /// True if, in passive mode, data may go to another address than the signalling came from.
    pub third_party: bool,
}

/// Event while flows are sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClassicProgress {
    /// A flow sends.
    Started(u32),
    /// A flow is over.
    Finished(u32),
    /// Something that the user should know of a flow.
    Notice(u32, String),
}

/// Outcome of a flow.
#[derive(Clone, Debug)]
pub struct ClassicOutcome {
    /// Its number.
    pub flow: u32,
    /// End of the flow: done, refused, failed or unanswered.
    pub result: FlowResult,
    /// The sender's account, if it ran.
    pub totals: Option<FlowTotals>,
    /// Replies of a round-trip flow.
    pub replies: Option<FlowCounts>,
    /// Reason why it did not run.
    pub why: Option<String>,
}

/// Outcome of a channel.
#[derive(Clone, Debug)]
pub struct ClassicEnding {
    /// End of its session; the reason if it was never connected.
    pub ending: Result<SenderEnding, String>,
    /// Its flows.
    pub flows: Vec<ClassicOutcome>,
}

/// Settings of a sender, needed before its first flow.
#[derive(Debug)]
pub struct ClassicSending {
    /// Log of what is sent.
    pub log: Option<LogTarget>,
    /// Description of the program that logs, for logs in ITG's form.
    pub info: LogInfo,
    /// Block sizes of the log, and bound of the memory that it may hold.
    pub log_limits: LogLimits,
    /// Way in which the sending thread waits, with what the host grants for it.
    pub pacing: Prepared,
    /// Most flows at a time.
    pub flows_max: usize,
    /// Channel for the events.
    pub progress: mpsc::UnboundedSender<ClassicProgress>,
}

/// A sender, with its threads.
#[derive(Debug)]
pub struct ClassicSender {
    pub(super) shared: Arc<Shared>,
    joining: std_mpsc::Sender<TxFlow>,
    engine: JoinHandle<()>,
    log: Option<Log>,
}

/// State that all channels share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) stop: Arc<StopSignal>,
    /// By flow: queue for its end in the sending thread, and the flow's place.
    mail: Mutex<BTreeMap<u32, (mpsc::UnboundedSender<Mail>, usize)>>,
    notes: Mutex<Option<Producer>>,
    /// True if the log records how flows ended: logs in D-ITG's form do not.
    notes_ends: bool,
    replies: Mutex<Option<RxHandle>>,
    places: Mutex<ConnectionSlots>,
    next_index: AtomicU32,
    pub(super) progress: mpsc::UnboundedSender<ClassicProgress>,
    reply_log: Mutex<Option<Producer>>,
    run: String,
    boot_id: String,
}

/// Places of flows that run at the same time.
#[derive(Debug)]
struct ConnectionSlots {
    free: Vec<usize>,
    /// Number of users of each place: the sending thread, and the flow's channel.
    held: BTreeMap<usize, u8>,
    next: usize,
    most: usize,
}

/// A flow that has its data socket.
#[derive(Debug)]
pub(super) struct Launched {
    pub(super) place: usize,
    pub(super) log_index: u32,
    pub(super) round_trip: bool,
    stream: bool,
}

impl ClassicSender {
    /// Opens the log and starts the sending thread.
    ///
    /// # Errors
    /// A log that cannot be written, or a log server that does not answer: named.
    pub fn start(sending: ClassicSending) -> io::Result<Self> {
        host::raise_open_files();
        let run = sending.info.run.clone();
        let log = match &sending.log {
            Some(target) => Some(Log::create(target, sending.info, sending.log_limits)?),
            None => None,
        };
        let stop = Arc::new(StopSignal::new(sending.flows_max));
        let shared = Arc::new(Shared {
            stop: Arc::clone(&stop),
            mail: Mutex::default(),
            notes: Mutex::new(log.as_ref().map(Log::producer)),
            notes_ends: !matches!(sending.log, Some(LogTarget::Classic(_))),
            replies: Mutex::default(),
            places: Mutex::new(ConnectionSlots {
                free: Vec::new(),
                held: BTreeMap::new(),
                next: 0,
                most: sending.flows_max,
            }),
            next_index: AtomicU32::new(1),
            progress: sending.progress,
            reply_log: Mutex::new(log.as_ref().map(Log::producer)),
            run,
            boot_id: host::boot_id(),
        });
        let (joining, joined) = std_mpsc::channel();
        let producer = log.as_ref().map(Log::producer);
        let (pacing, told) = (sending.pacing, Arc::clone(&shared));
        let engine = thread::Builder::new().name("itg-send".to_owned()).spawn(move || {
            let exact = Box::new(Sockets);
            Engine::new(Vec::new(), exact, pacing, producer, stop, |end: TxEnded| {
                let TxEnded { totals, behind, waited, refused_by, .. } = end;
                told.post(totals.flow, Mail::Sent(totals, behind, waited, refused_by));
            })
            .joined(joined)
            .run();
        })?;
        Ok(Self { shared, joining, engine, log })
    }

    /// Ends the threads once every channel has ended; what became of the log.
    #[must_use]
    pub fn close(self) -> Option<LogOutcome> {
        drop(self.joining);
        if self.engine.join().is_err() {
            tracing::error!("the sending thread stopped on a bug");
        }
        drop(lock(&self.shared.replies).take());
        drop(lock(&self.shared.notes).take());
        drop(lock(&self.shared.reply_log).take());
        self.log.map(Log::close)
    }

    /// Hands a flow with its data socket to the sending thread.
    pub(super) fn launch(
        &self,
        flow: &ClassicFlow,
        data: DataSocket,
        since_ns: u64,
        mail: mpsc::UnboundedSender<Mail>,
    ) -> Result<Launched, String> {
        let id = flow.offer.flow;
        let traffic = flow.traffic().map_err(|error| error.to_string())?;
        let place = lock(&self.shared.places).take().ok_or("as many flows run as can be served")?;
        let log_index = self.shared.next_index.fetch_add(1, Ordering::Relaxed);
        let now = clock_pair::clock_pair();
        let start_ns = (since_ns + flow.spec.start_ns).max(now.monotonic_ns);
        self.shared.introduce(flow, &data, log_index, now.unix_ns + (start_ns - now.monotonic_ns));
        let live = Arc::clone(&flow.live);
        let round_trip = flow.offer.round_trip;
        let stream = flow.spec.proto == Proto::Tcp;
        if round_trip {
            self.shared.await_replies(flow, place, log_index, &data, &live).map_err(|error| {
                self.shared.release(place, 2);
                format!("replies cannot be read: {error}")
            })?;
        }
        lock(&self.shared.mail).insert(id, (mail, place));
        let tx = TxFlow {
            traffic,
            start: ScheduleStart(start_ns.cast_signed()),
            socket: data,
            log_index,
            sampler: None,
            live,
            group: place,
        };
        if self.joining.send(tx).is_err() {
            lock(&self.shared.mail).remove(&id);
            self.shared.release(place, 2);
            return Err("the sending thread has ended".to_owned());
        }
        let progress = self.shared.progress.clone();
        tokio::spawn(async move {
            let left_ns = start_ns.saturating_sub(clock::monotonic_ns());
            tokio::time::sleep(clock::ns(left_ns)).await;
            drop(progress.send(ClassicProgress::Started(id)));
        });
        Ok(Launched { place, log_index, round_trip, stream })
    }
}

impl ConnectionSlots {
    fn take(&mut self) -> Option<usize> {
        let place = self.free.pop().or_else(|| {
            (self.next < self.most).then(|| {
                self.next += 1;
                self.next - 1
            })
        })?;
        self.held.insert(place, 2);
        Some(place)
    }
}

impl Shared {
    fn post(&self, flow: u32, mail: Mail) {
        if let Some((to, place)) = lock(&self.mail).remove(&flow) {
            // A channel that has ended needs to hear nothing more.
            drop(to.send(mail));
            self.release(place, 1);
        }
    }

    /// So many users of a place need it no more; the last one leaves it to another flow.
    fn release(&self, place: usize, users: u8) {
        let mut places = lock(&self.places);
        let left = places.held.get(&place).map_or(0, |held| held.saturating_sub(users));
        if left > 0 {
            places.held.insert(place, left);
        } else if places.held.remove(&place).is_some() {
            self.stop.lower(place);
            places.free.push(place);
        }
    }

    /// Describes a flow in the log.
    fn introduce(&self, flow: &ClassicFlow, data: &DataSocket, index: u32, epoch_unix_ns: u64) {
        let (src, dst) = ends(flow, data);
        // Of D-ITG's flows the plan is not in the log.
        let (seed, epoch_unix_ns, notices) = match &flow.packets {
            ClassicSource::Ditg { .. } => (0, 0, Vec::new()),
            ClassicSource::Itg { flow, .. } => {
                (flow.seed().0, epoch_unix_ns, flow.notices().collect())
            }
        };
        if let Some(notes) = &mut *lock(&self.notes) {
            notes.note(Note::Flow(FlowInfo {
                changes: Vec::new(),
                index,
                flow: flow.offer.flow,
                name: None,
                run: self.run.clone(),
                seed,
                spec: flow.spec.clone(),
                src: src.to_string(),
                dst: dst.to_string(),
                epoch_unix_ns,
                sender_boot_id: self.boot_id.clone(),
                receiver_boot_id: String::new(),
                notices,
                ditg: matches!(flow.packets, ClassicSource::Ditg { .. }).then_some(DitgFlow::KNOWN),
            }));
        }
    }

    /// Notes the end of a flow in the log.
    pub(super) fn conclude(
        &self,
        flow: &Launched,
        totals: &FlowTotals,
        waited: u64,
        refused_by: &BTreeMap<String, u64>,
    ) {
        if let Some(notes) = lock(&self.notes).as_mut().filter(|_| self.notes_ends) {
            notes.note(Note::FlowEnd(flow_end(flow.log_index, totals, waited, refused_by)));
        }
    }

    /// Reads the replies of a round-trip flow on a second descriptor of its socket.
    fn await_replies(
        &self,
        flow: &ClassicFlow,
        place: usize,
        log_index: u32,
        data: &DataSocket,
        live: &Arc<FlowLive>,
    ) -> io::Result<()> {
        let mut replies = lock(&self.replies);
        if replies.is_none() {
            let rx = RxHandle::start("itg-replies")?;
            if let Some(producer) = lock(&self.reply_log).take() {
                rx.ask(Command::Log { id: LOG, producer, indices: Arc::default() });
            }
            *replies = Some(rx);
        }
        let Some(rx) = &*replies else { return Ok(()) };
        // A place is taken again while a connection of the flow that left it may still be open.
        let handle = log_index;
        let socket = data.socket.try_clone()?;
        let (proto, kind) = (flow.spec.proto, flow.offer.header);
        rx.ask(Command::Flow(Box::new(RxFlow {
            slot: place,
            handle,
            flow: flow.offer.flow,
            proto,
            meter: Meter::Rtt,
            drain_ns: None,
            origin: Origin::peer(data.remote),
            live: Arc::clone(live),
            log: Some(LOG),
            introduction: None,
            socket: None,
            replies: Some(log_index),
            receive_buffer: None,
            measuring: None,
            classic: Some(ClassicRx { port: place, kind, broken: None }),
            key: None,
            check: None,
            marks: None,
        })));
        rx.ask(if proto.properties().is_stream {
            let (from, owner) = (data.remote, (place, handle));
            Command::Stream { socket, from, owner, classic: Some(kind) }
        } else {
            if let Err(error) = socket::ask_for_stamps(&socket) {
                tracing::debug!(%error, "no kernel stamps for replies");
            }
            let v6 = data.remote.is_ipv6();
            let owner = Some(place);
            let port = Port { owner, format: PacketFormat::Classic, ..Port::new(place, proto, v6) };
            Command::Datagrams(port, socket)
        });
        Ok(())
    }

    /// Waits for what is still to come back of a flow that was sent.
    pub(super) fn gather(
        &self,
        flow: &Launched,
        totals: FlowTotals,
        hurry: bool,
        mail: mpsc::UnboundedSender<Mail>,
    ) {
        let replies = lock(&self.replies);
        let Some(rx) = &*replies else { return };
        rx.ask(Command::End {
            slot: flow.place,
            totals: Some(totals),
            drain: Some(if hurry { Drain::INTERRUPTED } else { REPLIES }),
            udp_errors: None,
            done: Box::new(move |ended| drop(mail.send(Mail::Replied(ended.counts)))),
        });
    }

    /// Gives back what a flow used.
    pub(super) fn leave(&self, flow: &Launched) {
        if flow.round_trip
            && !flow.stream
            && let Some(rx) = &*lock(&self.replies)
        {
            rx.ask(Command::CloseSocket { id: flow.place, done: Box::new(|| ()) });
        }
        self.release(flow.place, 1);
    }
}

/// The two ends of a flow as logs name them: ICMP has no ports, D-ITG puts others there.
fn ends(flow: &ClassicFlow, data: &DataSocket) -> (SocketAddr, SocketAddr) {
    let (mut src, mut dst) = (data.local, data.remote);
    if flow.spec.proto == Proto::Icmp {
        src.set_port(if dst.is_ipv4() { 1 } else { 58 });
        dst.set_port(flow.offer.port);
    }
    (src, dst)
}

/// Tells threads that wait for a peer to give up.
#[derive(Clone, Debug, Default)]
pub(super) struct GiveUp(Arc<AtomicBool>);

impl GiveUp {
    pub(super) fn now(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
