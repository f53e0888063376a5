//! Senders of D-ITG: their signalling beside ITG's own on the same port, and receivers that connect to
//! a sender in passive mode.

mod logs;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use itg_classic::send::{App, HeaderKind, THIRD_PARTY};
use itg_classic::wire::{
    FlowOffer, OPENING, OfferProto, ReceiverChannel, ReceiverConfig, ReceiverEnding, ReceiverInput,
    ReceiverOutput, Refusal,
};
use itg_core::distribution::{Distribution, Unit};
use itg_core::flow::{FlowSpec, Meter, Proto, SocketOptions};
use itg_engine::rx::{ClassicRx, Command, Origin, PacketFormat, Port, RxEnded};
use itg_record::{DitgFlow, FlowInfo};
use itg_session::FlowCounts;
use itg_socket::clock;
use itg_socket::socket::{self, SocketError};
use nix::unistd::geteuid;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout};

use self::logs::ChannelLog;
use super::options::{ClassicNews, ReceiverOptions};
use super::origins::foreign;
use super::ports::{Asked, Opened, Sought, Taken};
use super::shared::{MAX_FLOWS, Shared};
use super::{BindError, Receiver, ReceiverOutcome, displaced};
use crate::connection_slots::ConnectionSlot;
use crate::control::sleep_until;
use crate::lock::lock;

/// Silence after which a sender is asked whether it is there, as D-ITG's receiver does: 100 s.
const SILENCE_NS: u64 = 100_000_000_000;
/// Longest silence of a connection before its first byte.
const FIRST_BYTE: Duration = Duration::from_secs(10);
/// Longest time in which a peer must accept a message, or a connection.
const PATIENCE: Duration = Duration::from_secs(5);
/// After the first byte of D-ITG's protocol nothing follows until it is answered; a message of ITG's is
/// longer.
const MORE_BYTES: Duration = Duration::from_millis(20);

/// A sender that cannot be visited.
#[derive(Debug, thiserror::Error)]
pub enum VisitError {
    /// The receiver cannot start.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// No sender listens there.
    #[error("no passive sender at {0}: {1}; start ITGSend -H there first")]
    Unreachable(SocketAddr, String),
}

impl Receiver {
    /// Connects to a sender in passive mode, serves it once, and ends.
    ///
    /// # Errors
    /// A log that cannot be written, or no sender there.
    pub async fn visit(
        options: ReceiverOptions,
        sender: SocketAddr,
        stop: watch::Receiver<Option<String>>,
    ) -> Result<ReceiverOutcome, VisitError> {
        let unreachable = |why: String| VisitError::Unreachable(sender, why);
        let stream = match timeout(PATIENCE, TcpStream::connect(sender)).await {
            Ok(connected) => connected.map_err(|error| unreachable(error.to_string()))?,
            Err(_) => return Err(unreachable("no answer within 5 s".to_owned())),
        };
        let receiver = Self::with(options, Vec::new())?;
        let shared = Arc::clone(&receiver.shared);
        Session::new(shared, sender, stop, Some(sender)).run(stream, None).await;
        Ok(receiver.close(1).await)
    }
}

/// Returns true if a sender speaks D-ITG's protocol: its first byte is 1, and no more come.
pub(super) async fn speaks(stream: &TcpStream) -> bool {
    let mut bytes = [0; 8];
    let first = timeout(FIRST_BYTE, stream.peek(&mut bytes)).await;
    if !matches!(first, Ok(Ok(1..)) if bytes[0] == 1) {
        return false;
    }
    tokio::time::sleep(MORE_BYTES).await;
    // A message of ITG's begins with its length, of four bytes.
    matches!(timeout(PATIENCE, stream.peek(&mut bytes)).await, Ok(Ok(1)))
}

/// Waits for the end of the program.
async fn stopped(stop: &mut watch::Receiver<Option<String>>) {
    // An error is the end of the program too.
    drop(stop.wait_for(Option::is_some).await);
}

/// Event that other threads report to a session.
enum SessionInput {
    /// A flow has ended: its counts, and the source of packets that named it and were not its sender's.
    Ended(FlowCounts, Option<SocketAddr>),
    Broken(u32),
}

/// A sender of D-ITG.
pub(super) struct Session {
    shared: Arc<Shared>,
    peer: SocketAddr,
    local: Option<SocketAddr>,
    /// This side has connected to a passive sender.
    passive: bool,
    stop: watch::Receiver<Option<String>>,
    machine: ReceiverChannel,
    told: mpsc::UnboundedSender<SessionInput>,
    tellings: mpsc::UnboundedReceiver<SessionInput>,
    flows: BTreeMap<u32, (Opened, Proto, u16)>,
    log: ChannelLog,
    run: String,
}

impl Session {
    pub(super) fn new(
        shared: Arc<Shared>,
        peer: SocketAddr,
        stop: watch::Receiver<Option<String>>,
        visited: Option<SocketAddr>,
    ) -> Self {
        let (told, tellings) = mpsc::unbounded_channel();
        let passive = visited.is_some();
        let config = ReceiverConfig { passive, flows_max: MAX_FLOWS, silence_ns: SILENCE_NS };
        Self {
            machine: ReceiverChannel::new(config, clock::machine_ns()),
            log: if lock(&shared.log).is_some() { ChannelLog::Common } else { ChannelLog::None },
            run: format!("d-itg {peer}"),
            shared,
            peer,
            local: None,
            passive,
            stop,
            told,
            tellings,
            flows: BTreeMap::new(),
        }
    }

    pub(super) async fn run(mut self, mut stream: TcpStream, place: Option<ConnectionSlot>) {
        self.local = stream.local_addr().ok().map(socket::plain);
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "TCP_NODELAY on a signalling connection");
        }
        tracing::info!("sender {} speaks D-ITG's protocol", self.peer);
        let first_until = Instant::now() + FIRST_BYTE;
        let mut buffer = [0; 4096];
        let (mut out, mut heard, mut over) = (Vec::new(), false, false);
        while !over {
            let got;
            let input = tokio::select! {
                biased;
                read = stream.read(&mut buffer) => match read {
                    Ok(count @ 1..) => {
                        (got, heard) = (count, true);
                        ReceiverInput::Bytes(&buffer[..got])
                    }
                    Ok(_) | Err(_) => ReceiverInput::Lost,
                },
                Some(told) = self.tellings.recv() => match told {
                    SessionInput::Ended(counts, stranger) => self.ended(&counts, stranger).await,
                    SessionInput::Broken(flow) => ReceiverInput::DataLost(flow),
                },
                () = tokio::time::sleep_until(first_until), if !heard => ReceiverInput::Lost,
                () = sleep_until(self.machine.deadline()) => ReceiverInput::Timer,
                () = stopped(&mut self.stop) => ReceiverInput::Lost,
                () = displaced(place.as_ref()) => ReceiverInput::Lost,
            };
            self.machine.handle(clock::machine_ns(), input, &mut out);
            // What is done may have an answer that asks for more.
            let mut at = 0;
            while at < out.len() {
                let output = std::mem::replace(&mut out[at], ReceiverOutput::CloseLog);
                at += 1;
                match output {
                    ReceiverOutput::Send(bytes) => {
                        let sent = timeout(PATIENCE, stream.write_all(&bytes)).await;
                        if !matches!(sent, Ok(Ok(()))) {
                            self.machine.handle(clock::machine_ns(), ReceiverInput::Lost, &mut out);
                        }
                    }
                    ReceiverOutput::Close(ending) => {
                        over = true;
                        self.say_ending(ending);
                    }
                    other => {
                        if let Some(answer) = self.act(other).await {
                            self.machine.handle(clock::machine_ns(), answer, &mut out);
                        }
                    }
                }
            }
            out.clear();
            if let Some(place) = place.as_ref().filter(|_| !self.flows.is_empty()) {
                place.settle();
            }
        }
        // Fails when the sender has closed already.
        stream.shutdown().await.unwrap_or_default();
    }

    fn say_ending(&self, ending: ReceiverEnding) {
        let why = match ending {
            ReceiverEnding::Done => return,
            ReceiverEnding::Lost => "has gone without a word".to_owned(),
            ReceiverEnding::Silent => "was silent for too long".to_owned(),
            ReceiverEnding::Confused(error) => format!("is no sender of D-ITG: {error}"),
            ReceiverEnding::Flooded => "sent too far ahead".to_owned(),
        };
        self.news(ClassicNews::Notice(format!("sender {} {why}", self.peer)));
    }

    fn news(&self, news: ClassicNews) {
        match &self.shared.options.classic.news {
            // The receiving end may be closed.
            Some(told) => drop(told.send(news)),
            None => {
                if let ClassicNews::Notice(text) = news {
                    tracing::warn!("{text}");
                }
            }
        }
    }

    async fn act(&mut self, output: ReceiverOutput) -> Option<ReceiverInput<'static>> {
        match output {
            ReceiverOutput::Send(_) | ReceiverOutput::Close(_) => None,
            ReceiverOutput::OpenLog(wish) => {
                let opened = self.open_log(&wish).await;
                if let Err(why) = &opened {
                    let text = format!("sender {}: no log is kept for it: {why}", self.peer);
                    self.news(ClassicNews::Notice(text));
                }
                Some(ReceiverInput::LogOpened(opened.is_ok()))
            }
            // Its socket is opened when the sender is ready.
            ReceiverOutput::OpenFlow(offer) if offer.passive.is_some() => {
                Some(ReceiverInput::FlowOpened(Ok(0)))
            }
            ReceiverOutput::OpenFlow(offer) => {
                let opened = tokio::task::block_in_place(|| self.open(&offer));
                Some(ReceiverInput::FlowOpened(opened))
            }
            ReceiverOutput::Connect(offer) => {
                let connected = tokio::task::block_in_place(|| self.connect(&offer));
                connected.err().map(|why| {
                    let text = format!("sender {}, flow {}: {why}", self.peer, offer.flow);
                    self.news(ClassicNews::Notice(text));
                    ReceiverInput::DataLost(offer.flow)
                })
            }
            ReceiverOutput::EndFlow(flow) => {
                let Some((opened, ..)) = self.flows.get(&flow) else {
                    return Some(ReceiverInput::FlowEnded(flow));
                };
                let told = self.told.clone();
                self.shared.rx.first().ask(Command::End {
                    slot: opened.slot,
                    totals: None,
                    drain: None,
                    udp_errors: None,
                    done: Box::new(move |ended| {
                        drop(told.send(SessionInput::Ended(ended.counts, ended.stranger)));
                    }),
                });
                None
            }
            ReceiverOutput::DropFlow(flow) => {
                if let Some((opened, ..)) = self.flows.remove(&flow) {
                    self.abandon(opened);
                }
                None
            }
            ReceiverOutput::CloseLog => {
                self.close_log().await;
                None
            }
        }
    }

    /// A flow has been counted: gives back what it used, once its records are written.
    async fn ended(
        &mut self,
        counts: &FlowCounts,
        stranger: Option<SocketAddr>,
    ) -> ReceiverInput<'static> {
        if counts.foreign > 0 {
            self.news(ClassicNews::Notice(foreign(self.peer, counts, stranger)));
        }
        self.shared.packets.fetch_add(counts.packets, Ordering::Relaxed);
        if let Some((opened, proto, port)) = self.flows.remove(&counts.flow) {
            self.shared.give_back(&opened);
            self.news(ClassicNews::Finished { proto, port });
        }
        self.settle_log().await;
        ReceiverInput::FlowEnded(counts.flow)
    }

    fn abandon(&self, opened: Opened) {
        let shared = Arc::downgrade(&self.shared);
        let slot = opened.slot;
        // The slot is free only when the receiving thread has forgotten the flow.
        let done = Box::new(move |ended: Option<RxEnded>| {
            if let Some(shared) = shared.upgrade() {
                let packets = ended.map_or(0, |ended| ended.counts.packets);
                shared.packets.fetch_add(packets, Ordering::Relaxed);
                shared.give_back(&opened);
            }
        });
        let reason = "the sender has gone".to_owned();
        self.shared.rx.first().ask(Command::Abandon { slot, reason, done });
    }

    /// Opens the data socket of a flow; the port, or why not.
    fn open(&mut self, offer: &FlowOffer) -> Result<u16, Refusal> {
        let proto = proto(offer.proto);
        let ip = self.shared.options.classic.bind.unwrap_or(offer.address);
        let port = if proto.properties().has_ports { offer.port } else { 0 };
        let mut at = SocketAddr::new(ip, port);
        if let (SocketAddr::V6(v6), Some(SocketAddr::V6(local))) = (&mut at, self.local)
            && v6.ip().is_unicast_link_local()
        {
            v6.set_scope_id(local.scope_id());
        }
        let refuse = |why: &dyn std::fmt::Display| {
            let text = format!("sender {}, flow {}: {why}", self.peer, offer.flow);
            self.news(ClassicNews::Notice(text));
            if proto == Proto::Icmp && !geteuid().is_root() {
                Refusal::Rights
            } else {
                Refusal::Bind
            }
        };
        let slot = lock(&self.shared.slots).take();
        let slot = slot.ok_or_else(|| refuse(&"as many flows as can be served"))?;
        let asked = Asked { proto, at, format: PacketFormat::Classic, joined: false };
        let data = match self.shared.data_port(asked, offer.tos) {
            Ok(data) => data,
            Err(error) => {
                lock(&self.shared.slots).give_back(slot);
                return Err(refuse(&error));
            }
        };
        let asked = data.asked;
        let port = if proto.properties().has_ports { data.port } else { offer.port };
        let to = SocketAddr::new(ip, port);
        let origin = Origin::peer(self.peer);
        let (opened, _) = self.flow(offer, slot, data.id, (origin, to), data.receive_buffer);
        self.shared.rx.first().catch_up();
        let opened = Opened { socket: Taken::Shared(asked), ..opened };
        self.flows.insert(offer.flow, (opened, proto, port));
        self.news(ClassicNews::Listening { proto, port });
        Ok(port)
    }

    /// Passive mode: opens this side of a flow towards its sender.
    fn connect(&mut self, offer: &FlowOffer) -> Result<(), SocketError> {
        let proto = proto(offer.proto);
        let passive = offer.passive.filter(|_| self.passive);
        let passive = passive
            .ok_or_else(|| SocketError::new("passive mode", "the sender is not in passive mode"))?;
        let options = &self.shared.options;
        let mut remote = self.peer;
        if passive.source_given {
            remote.set_ip(offer.address);
        }
        let mut remote = socket::plain(remote);
        remote.set_port(offer.port);
        if !options.classic.third_party && remote.ip() != socket::plain(self.peer).ip() {
            return Err(SocketError::new(
                "passive mode",
                format!(
                    "the sender wants its data connection to go to {}: it goes only where the \
                     signalling went, unless ITGRecv is started with {THIRD_PARTY}",
                    remote.ip()
                ),
            ));
        }
        let bind = socket::Towards {
            local: options.classic.bind,
            port: passive.recv_port,
            interface: options.classic.interface.as_deref(),
            tos: offer.tos,
            mss: None,
        };
        let data = socket::open_towards(proto, remote, &bind)?;
        let local = data.local_addr().ok().and_then(|address| address.as_socket());
        let local = local.map_or(remote, socket::plain);
        if proto == Proto::Udp {
            for _ in 0..options.classic.opening {
                data.send(&OPENING).map_err(|error| {
                    SocketError::io(format!("opening the way to {remote}"), &error)
                })?;
            }
        }
        let slot = lock(&self.shared.slots)
            .take()
            .ok_or_else(|| SocketError::new("a further flow", "as many flows as can be served"))?;
        let id = self.shared.own_port();
        // Both sides have agreed on where it is, and the socket is connected to there.
        let origin = Origin { data: Some(remote.ip()), ..Origin::peer(self.peer) };
        let (opened, handle) = self.flow(offer, slot, id, (origin, local), None);
        self.shared.rx.first().ask(if proto.properties().is_stream {
            let (owner, classic) = ((slot, handle), Some(offer.header));
            Command::Stream { socket: data, from: remote, owner, classic }
        } else {
            let v6 = remote.is_ipv6();
            Command::Datagrams(
                Port { format: PacketFormat::Classic, ..Port::new(id, proto, v6) },
                data,
            )
        });
        self.flows.insert(offer.flow, (opened, proto, local.port()));
        self.news(ClassicNews::Listening { proto, port: local.port() });
        Ok(())
    }

    /// Tells the receiving thread of a flow, whose packets come from one address to another.
    fn flow(
        &self,
        offer: &FlowOffer,
        slot: usize,
        port: usize,
        (origin, to): (Origin, SocketAddr),
        receive_buffer: Option<u64>,
    ) -> (Opened, u32) {
        let (log, spec) = (self.log.id(), described(offer));
        let (told, flow) = (self.told.clone(), offer.flow);
        let (handle, live) = self.shared.look_for(Sought {
            slot,
            spread: false,
            spec: &spec,
            origin,
            log,
            introduction: log.map(|_| Box::new(self.introduction(offer, spec.clone(), to))),
            socket: port,
            receive_buffer,
            measured: false,
            classic: Some(ClassicRx {
                port,
                kind: offer.header,
                broken: Some(Box::new(move || drop(told.send(SessionInput::Broken(flow))))),
            }),
            key: None,
            check: None,
        });
        (Opened { slot, socket: Taken::Own(port), live, udp_errors: None }, handle)
    }

    /// Returns the description of a flow for a log.
    fn introduction(&self, offer: &FlowOffer, spec: FlowSpec, to: SocketAddr) -> FlowInfo {
        let mut notices = vec!["from a sender of D-ITG, which does not tell its plan".to_owned()];
        if offer.header == HeaderKind::None {
            notices.push(itg_classic::log::UNNUMBERED.to_owned());
        }
        FlowInfo {
            changes: Vec::new(),
            index: 0,
            flow: offer.flow,
            name: None,
            run: self.run.clone(),
            seed: 0,
            src: SocketAddr::new(self.peer.ip(), 0).to_string(),
            dst: to.to_string(),
            epoch_unix_ns: 0,
            sender_boot_id: String::new(),
            receiver_boot_id: self.shared.boot_id.clone(),
            notices,
            ditg: Some(DitgFlow::KNOWN),
            spec,
        }
    }
}

fn proto(offered: OfferProto) -> Proto {
    match offered {
        OfferProto::Tcp => Proto::Tcp,
        OfferProto::Udp => Proto::Udp,
        OfferProto::Icmp => Proto::Icmp,
        OfferProto::Sctp => Proto::Sctp,
        OfferProto::Dccp => Proto::Dccp,
    }
}

/// Describes a flow that a sender of D-ITG offers, as far as it is known.
fn described(offer: &FlowOffer) -> FlowSpec {
    // Distributions that are not known: no plan is computed from them.
    let unknown = |unit| Distribution::Empirical { name: "D-ITG".to_owned(), unit, table: None };
    FlowSpec::new(offer.flow)
        .proto(proto(offer.proto))
        .profile((offer.app == App::Telnet).then(|| "telnet".to_owned()))
        .idt(unknown(Unit::Time))
        .size(unknown(Unit::Size))
        .meter(if offer.round_trip { Meter::Rtt } else { Meter::Owd })
        .socket(SocketOptions { tos: Some(offer.tos), ..SocketOptions::default() })
}
