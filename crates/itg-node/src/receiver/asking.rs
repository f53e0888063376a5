//! The other side of a flow that was asked for: connects to a receiver, has it send, and receives here.
//!
//! The way of packets is opened from here, too, through whatever translates addresses: connections of TCP are made from
//! here, and datagrams go first to the port from which those of the flow will come.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use itg_core::flow::FlowSpec;
use itg_core::header::MIN_LEN;
use itg_core::text::from_peer;
use itg_engine::rx::{Command, Origin, Port};
use itg_session::{
    Difference, ErrorKind, FlowTotals, OpenedFlow, Phase, ReceiverInput, SenderConfig,
    SessionError, Timeouts, TurnInput, TurnOutput, TurnSession,
};
use itg_socket::clock;
use itg_socket::host;
use itg_socket::socket::{self, Towards};
use itg_socket::sys;
use socket2::Socket;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use super::asked_for::{AskedFor, Reached, is_cut};
use super::ports::{Opened, Sought, Taken};
use super::{Receiver, ReceiverOptions, ReceiverOutcome, ServedSession, Session, input_of};
use crate::control::{Channel, Incoming, sleep_until};
use crate::lock::lock;
use crate::receiver::BindError;
use crate::sender::{connect, opening};

/// Datagrams that open the way of a flow at most, and the time between two of them: until the flows start.
const OPENINGS: u32 = 25;
const BETWEEN_OPENINGS: Duration = Duration::from_millis(200);
/// Longest time for counting what a sender that is gone has sent.
const GATHERING: Duration = Duration::from_secs(5);

/// Outcome of flows that were asked for.
#[derive(Debug)]
pub struct AskOutcome {
    /// Outcome of each flow.
    pub session: ServedSession,
    /// Changes that the sender has made to the flows, a sentence each.
    pub notices: Vec<String>,
    /// Reason why it failed.
    pub failure: Option<SessionError>,
    /// Totals, and the log.
    pub receiver: ReceiverOutcome,
}

impl AskOutcome {
    /// The exit code of this part of a run: that of the failure, 4 where a flow ended early since something went, or 1
    /// where packets were refused by the sender's kernel, or did not arrive with the bytes they were sent with.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        let corrupt = self.session.flows.values().any(|flow| {
            let both = flow.totals.as_ref().zip(flow.counts.as_ref());
            both.is_some_and(|(totals, counts)| Difference::between(totals, counts).is_corrupt())
        });
        let totals = || self.session.flows.values().filter_map(|flow| flow.totals.as_ref());
        match &self.failure {
            Some(failure) => failure.exit_code(),
            None if totals().any(|totals| totals.reason.is_cut_off()) => 4,
            None => u8::from(corrupt || totals().any(|totals| totals.failed > 0)),
        }
    }
}

impl Receiver {
    /// A receiver that listens nowhere: for [`ask`](Self::ask).
    ///
    /// # Errors
    /// A log that cannot be written.
    pub fn asking(options: ReceiverOptions) -> Result<Self, BindError> {
        host::raise_open_files();
        Self::with(options, Vec::new())
    }

    /// Asks the receiver at `from` to send flows of a run here, receives them, and ends.
    pub async fn ask(
        self,
        from: SocketAddr,
        (run, seed, flows): (&str, u64, Vec<FlowSpec>),
        stop: watch::Receiver<Option<String>>,
    ) -> AskOutcome {
        let options = &self.shared.options;
        let config = SenderConfig {
            run: run.to_owned(),
            seed,
            program: format!("{} {}", options.program, options.version),
            host: host::name(),
            boot_id: self.shared.boot_id.clone(),
            flows,
            recv_log: None,
            prove: None,
            burst: 0,
            asked: false,
            timeouts: Timeouts::default().patient(options.peer_timeout_ns),
        };
        let mut session = Session::new(Arc::clone(&self.shared), from, stop.clone());
        session.asked = Some(AskedFor::new(run, seed, &config.flows));
        let (notices, failure) = match turn(from, config, stop).await {
            Err(error) => (Vec::new(), Some(error)),
            Ok((mut channel, notices)) => {
                session.converse(&mut channel, None, None).await;
                channel.close().await;
                session.gather().await;
                (notices, session.shortfall())
            }
        };
        let Session { mut served, .. } = session;
        served.finish();
        AskOutcome { session: served, notices, failure, receiver: self.close(1).await }
    }
}

/// Has the roles exchanged; the connection, and what the peer says about the flows.
async fn turn(
    from: SocketAddr,
    config: SenderConfig,
    mut stop: watch::Receiver<Option<String>>,
) -> Result<(Channel, Vec<String>), SessionError> {
    let patience = clock::ns(config.timeouts.silence_ns);
    let mut machine = TurnSession::new(config);
    let (mut channel, mut input) = match connect(from, patience).await {
        Ok(channel) => (Some(channel), TurnInput::Connected),
        Err(why) => (None, TurnInput::Lost(why)),
    };
    let mut out = Vec::new();
    loop {
        machine.handle(clock::machine_ns(), input, &mut out);
        let mut lost = None;
        for output in out.drain(..) {
            match (output, &mut channel) {
                (TurnOutput::Failed(error), _) => return Err(error),
                (TurnOutput::Turned { notices }, open) => {
                    if let Some(channel) = open.take() {
                        return Ok((channel, notices));
                    }
                }
                (TurnOutput::Send(message), Some(channel)) => {
                    lost = channel.say(message).await.err();
                }
                (TurnOutput::Send(_), None) => {}
            }
        }
        input = match (lost, &mut channel) {
            (Some(why), _) => TurnInput::Lost(why),
            (None, Some(channel)) => tokio::select! {
                biased;
                heard = channel.hear() => match heard {
                    Incoming::Message(message) => TurnInput::Message(message),
                    Incoming::Garbage(error) => TurnInput::Garbage(error),
                    Incoming::Lost(why) => TurnInput::Lost(why),
                },
                () = sleep_until(machine.deadline()) => TurnInput::Timer,
                reason = stop.wait_for(Option::is_some) => {
                    let reason = reason.ok().and_then(|reason| reason.clone());
                    TurnInput::Stop(reason.unwrap_or_else(|| "the program ends".to_owned()))
                }
            },
            (None, None) => TurnInput::Lost("there is no connection".to_owned()),
        };
    }
}

impl Session {
    /// The failure of a run of which not every flow has gone to the end of its schedule and been counted.
    fn shortfall(&self) -> Option<SessionError> {
        let asked = self.asked.as_ref()?;
        let flows = &self.served.flows;
        let text = asked.flows.values().find_map(|spec| self.short_of(asked, spec))?;
        let accounted = |id: &u32| {
            flows.get(id).is_some_and(|flow| flow.totals.is_some() && flow.counts.is_some())
        };
        let stopped = self.stop.borrow().is_some();
        if stopped && asked.flows.keys().all(accounted) {
            return None;
        }
        let sent = |totals: &Option<FlowTotals>| totals.as_ref().is_none_or(|t| t.packets > 0);
        let began =
            asked.begun.load(Ordering::Relaxed) && flows.values().any(|flow| sent(&flow.totals));
        let (phase, kind) = match (stopped, began) {
            (true, _) => (Phase::Run, ErrorKind::Interrupted),
            (false, true) => (Phase::Run, ErrorKind::Vanished),
            (false, false) => (Phase::Open, ErrorKind::Refused),
        };
        Some(SessionError { phase, kind, text })
    }

    /// The reason why a flow that was asked for is not whole, if it is not.
    fn short_of(&self, asked: &AskedFor, spec: &FlowSpec) -> Option<String> {
        let flow = self.served.flows.get(&spec.id);
        let Some(flow) = flow else {
            return Some(asked.failed.clone().unwrap_or_else(|| self.ended.clone()));
        };
        let (Some(totals), Some(_)) = (&flow.totals, &flow.counts) else {
            return Some(self.ended.clone());
        };
        if !totals.reason.is_told_whole() {
            return Some(format!("flow {}: {}", spec.id, from_peer(&totals.reason.to_string())));
        }
        is_cut(spec, totals).then(|| {
            format!(
                "flow {} ended before all of it was sent: --reverse-time of itg-recv there",
                spec.id
            )
        })
    }

    /// Has flows counted whose sender has not told their end: what has arrived of them is kept.
    pub(super) fn end_unended(&self) {
        let flows = &self.served.flows;
        let told = |id: &u32| flows.get(id).is_some_and(|flow| flow.totals.is_some());
        let errors = sys::udp_errors();
        for (_, opened) in self.flows.iter().filter(|(id, _)| !told(id)) {
            self.end(opened, None, errors);
        }
    }

    /// Waits, for a time, until all flows are counted.
    async fn gather(&mut self) {
        self.asked.iter().for_each(AskedFor::begin);
        let (until, told) = (Instant::now() + GATHERING, self.told.clone());
        while !self.flows.is_empty() {
            let Ok(Some(telling)) = timeout_at(until, self.tellings.recv()).await else { break };
            match input_of(telling, self.peer, &told) {
                ReceiverInput::FlowMeasured(measure) => self.served.measured(&measure),
                ReceiverInput::FlowCounted(counts) => self.release(&counts),
                _ => {}
            }
        }
        self.abandon("it was not counted in time").await;
    }

    /// Goes to the socket at which the sender of a flow waits; [`arrive`](Self::arrive) follows. What was asked for
    /// counts, whatever the sender says of the flow, but for the rate to which it holds it.
    pub(super) fn come_to(&mut self, told: &FlowSpec) {
        let Some(asked) = &self.asked else { return };
        let wanted = asked.flows.get(&told.id).filter(|wanted| {
            wanted.proto == told.proto && (&asked.run, asked.seed) == (&self.run, self.seed)
        });
        let (Some(wanted), Some(port)) = (wanted, told.socket.source_port) else {
            return self.not_reached(told.id, "this flow was not asked for".to_owned());
        };
        let mut spec = wanted.clone();
        spec.socket.source_port = Some(port);
        spec.socket.pacing_rate = told.socket.pacing_rate;
        let mut remote = socket::plain(self.peer);
        remote.set_port(port);
        let reach = asked.reach.clone();
        tokio::task::spawn_blocking(move || {
            let port = spec.socket.dest_port.unwrap_or(0);
            let towards =
                Towards { local: None, port, interface: None, tos: 0, mss: spec.shape.mss };
            let data = socket::open_towards(spec.proto, remote, &towards);
            // A session that has ended needs no socket.
            drop(reach.send((spec, data.map_err(|error| error.to_string()))));
        });
    }

    /// Goes on with a flow whose socket has come to its sender.
    pub(super) fn arrive(&mut self, (spec, data): Reached) {
        match data.and_then(|data| self.receive_from(&spec, data)) {
            Ok(opened) => self.answer(spec.id, Ok(opened)),
            Err(why) => self.not_reached(spec.id, why),
        }
    }

    fn not_reached(&mut self, flow: u32, why: String) {
        if let Some(asked) = &mut self.asked {
            asked.failed.get_or_insert_with(|| why.clone());
        }
        self.answer(flow, Err(why));
    }

    /// Sends the datagram that opens the way of a flow until the flows start: one of them may get lost.
    fn open_way(&self, data: &Socket, handle: u32) {
        let Some(asked) = &self.asked else { return };
        let begun = Arc::clone(&asked.begun);
        let again = match data.try_clone() {
            Ok(again) => again,
            Err(error) => return tracing::warn!(%error, "the way of a flow is not opened"),
        };
        tokio::spawn(async move {
            for _ in 0..OPENINGS {
                if begun.load(Ordering::Relaxed) {
                    return;
                }
                if let Err(error) = again.send(&opening(handle)) {
                    tracing::info!(%error, "opening the way of a flow");
                }
                tokio::time::sleep(BETWEEN_OPENINGS).await;
            }
        });
    }

    /// Looks for the packets of a flow at the socket that has come to its sender.
    fn receive_from(&mut self, spec: &FlowSpec, data: Socket) -> Result<OpenedFlow, String> {
        let flow = spec.id;
        let log = self.log.number()?;
        let mut remote = socket::plain(self.peer);
        remote.set_port(spec.socket.source_port.unwrap_or(0));
        if spec.burst.is_some()
            && let Err(error) = socket::join(&data)
        {
            tracing::warn!(%error, "the kernel does not join packets of bursts: they arrive one by one");
        }
        let local = data.local_addr().ok().and_then(|address| address.as_socket());
        let local = local.map_or(remote, socket::plain);
        let datagrams = !spec.proto.properties().is_connected;
        let granted = data.recv_buffer_size().ok().and_then(|bytes| u64::try_from(bytes).ok());
        let slot = lock(&self.shared.slots).take().ok_or("as many flows as can be served")?;
        let id = self.shared.own_port();
        let (handle, live) = self.shared.look_for(Sought {
            slot,
            spread: false,
            spec,
            origin: Origin::peer(self.peer),
            log,
            introduction: self.introduction(spec, local),
            socket: id,
            receive_buffer: granted.filter(|_| datagrams),
            measured: true,
            classic: None,
            key: None,
            check: None,
        });
        let thread = self.shared.rx.first();
        if datagrams {
            self.open_way(&data, handle);
            let joined = spec.burst.is_some();
            let v6 = remote.is_ipv6();
            thread.ask(Command::Datagrams(Port { joined, ..Port::new(id, spec.proto, v6) }, data));
        } else {
            let owner = (slot, handle);
            thread.ask(Command::Stream { socket: data, from: remote, owner, classic: None });
        }
        self.served.opened(spec, local);
        let udp_errors = datagrams.then(sys::udp_errors).flatten();
        self.flows.insert(flow, Opened { slot, socket: Taken::Own(id), live, udp_errors });
        Ok(OpenedFlow { flow, handle, port: local.port() })
    }
}

const _: () = assert!(MIN_LEN > 8, "a datagram that opens a way is no packet of a flow");
