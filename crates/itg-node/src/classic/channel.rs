//! One signalling channel of a sender of D-ITG.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use itg_classic::wire::{
    FlowResult, Refusal, SenderChannel, SenderConfig, SenderEnding, SenderInput, SenderOutput,
};
use itg_core::flow::Proto;
use itg_engine::engine::count_left_out;
use itg_session::{EndCause, FlowCounts, FlowTotals};
use itg_socket::clock;
use itg_socket::socket::{self, DataSocket, SocketError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use super::sender::{
    ClassicChannel, ClassicEnding, ClassicFlow, ClassicOutcome, ClassicProgress, ClassicSender,
    ClassicSource, ClassicWay, GiveUp, Launched,
};
use crate::control::sleep_until;
use crate::waiting::{self, Awaited, Waiting};

/// Longest time in which a receiver must answer, in nanoseconds, as with D-ITG: 100 s.
const ANSWER_NS: u64 = 100_000_000_000;
/// Longest time in which it must accept a connection or a message: 5 s.
const PATIENCE: Duration = Duration::from_secs(5);

/// Longest time in which the receiver of passive mode must come, as with its answers: 100 s.
const COMING: Duration = Duration::from_secs(100);
/// Advice where somebody else came.
const ELSEWHERE: &str =
    "data goes only where the signalling went, or start ITGSend with --allow-third-party";

/// Time for the last packets of a flow to be read before the receiver is told of its end: D-ITG's logs
/// nothing that it reads later.
const SETTLE: Duration = Duration::from_millis(100);

/// Event that other threads and tasks report to a channel.
#[derive(Debug)]
pub(super) enum Mail {
    /// A flow has been sent; the flag says that packets were left out because the time was over. Then the packets that
    /// waited, and those refused, by the kernel's error.
    Sent(FlowTotals, bool, u64, BTreeMap<String, u64>),
    /// Its replies have been gathered.
    Replied(FlowCounts),
    /// The time for the last packets of a flow to be read is over.
    Settled(u32),
    /// Passive mode: the receiver of a flow has shown itself, or not.
    Met(u32, Result<DataSocket, SocketError>),
}

/// A channel while it runs.
struct Channel<'a> {
    sender: &'a ClassicSender,
    flows: BTreeMap<u32, &'a ClassicFlow>,
    launched: BTreeMap<u32, Launched>,
    /// Flows that are told to stop, and have not said yet what they sent.
    stopping: BTreeMap<u32, Launched>,
    waiting: BTreeMap<u32, Waiting>,
    outcomes: BTreeMap<u32, ClassicOutcome>,
    mail: mpsc::UnboundedSender<Mail>,
    give_up: GiveUp,
    interrupted: bool,
    peer: SocketAddr,
    third_party: bool,
    since_ns: u64,
}

impl ClassicSender {
    /// Runs the flows of one channel, until all are over or a while after `stop` holds a reason.
    pub async fn run(
        &self,
        channel: &ClassicChannel,
        mut stop: watch::Receiver<Option<String>>,
    ) -> ClassicEnding {
        let meeting = meet(&channel.way);
        let met = tokio::select! {
            met = meeting => met,
            _ = stop.wait_for(Option::is_some) => Err("interrupted".to_owned()),
        };
        let (mail, arriving) = mpsc::unbounded_channel();
        let mut running = Channel {
            sender: self,
            flows: channel.flows.iter().map(|flow| (flow.offer.flow, flow)).collect(),
            launched: BTreeMap::new(),
            stopping: BTreeMap::new(),
            waiting: BTreeMap::new(),
            outcomes: BTreeMap::new(),
            mail,
            give_up: GiveUp::default(),
            interrupted: false,
            peer: SocketAddr::from(([0, 0, 0, 0], 0)),
            third_party: channel.third_party,
            since_ns: channel.since_ns.unwrap_or_else(clock::monotonic_ns),
        };
        let ending = match met {
            Ok((stream, peer)) => {
                running.peer = peer;
                Ok(running.drive(stream, channel, arriving, stop).await)
            }
            Err(why) => Err(why),
        };
        running.give_up.now();
        ClassicEnding { ending, flows: running.outcomes.into_values().collect() }
    }
}

/// Connects to a receiver, or waits for one.
async fn meet(way: &ClassicWay) -> Result<(TcpStream, SocketAddr), String> {
    let (stream, peer) = match way {
        ClassicWay::Connect { to, from, interface } => {
            let connecting = async {
                let socket = if to.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
                if let Some(name) = interface {
                    socket.bind_device(Some(name.as_bytes()))?;
                }
                if let Some(from) = from {
                    socket.set_reuseaddr(true)?;
                    socket.bind(*from)?;
                }
                socket.connect(*to).await
            };
            let stream = match timeout(PATIENCE, connecting).await {
                Ok(connected) => connected.map_err(|error| error.to_string()),
                Err(_) => Err("no answer within 5 s".to_owned()),
            };
            let hint = "start ITGRecv or itg-recv there, or check address and port";
            (stream.map_err(|why| format!("no receiver at {to}: {why}; {hint}"))?, *to)
        }
        ClassicWay::Await(at) => {
            let fail = |error: io::Error| format!("waiting for a receiver on {at}: {error}");
            let listener = itg_socket::listen(*at).and_then(TcpListener::from_std).map_err(fail)?;
            let (stream, peer) = listener.accept().await.map_err(fail)?;
            (stream, socket::plain(peer))
        }
    };
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "TCP_NODELAY on a signalling connection");
    }
    Ok((stream, peer))
}

/// Waits for the request to stop; for ever if it has been seen before.
async fn stopped(stop: &mut watch::Receiver<Option<String>>, seen: bool) {
    if seen {
        std::future::pending::<()>().await;
    }
    // An error is the end of the program too.
    drop(stop.wait_for(Option::is_some).await);
}

impl Channel<'_> {
    async fn drive(
        &mut self,
        mut stream: TcpStream,
        channel: &ClassicChannel,
        mut arriving: mpsc::UnboundedReceiver<Mail>,
        mut stop: watch::Receiver<Option<String>>,
    ) -> SenderEnding {
        let config = SenderConfig {
            log: channel.log.clone(),
            offers: channel.flows.iter().map(|flow| flow.offer).collect(),
            answer_ns: ANSWER_NS,
        };
        let mut machine = SenderChannel::new(config);
        let (mut out, mut buffer) = (Vec::new(), [0; 4096]);
        machine.handle(clock::machine_ns(), SenderInput::Connected, &mut out);
        loop {
            let mut at = 0;
            // What is done may have an answer that asks for more.
            while at < out.len() {
                let output = std::mem::replace(&mut out[at], SenderOutput::Send(Vec::new()));
                at += 1;
                match output {
                    SenderOutput::Send(bytes) => {
                        let sent = timeout(PATIENCE, stream.write_all(&bytes)).await;
                        if !matches!(sent, Ok(Ok(()))) {
                            machine.handle(clock::machine_ns(), SenderInput::Lost, &mut out);
                        }
                    }
                    SenderOutput::Close(ending) => {
                        self.end_all(&mut arriving).await;
                        // Fails when the receiver has closed already.
                        stream.shutdown().await.unwrap_or_default();
                        return ending;
                    }
                    other => {
                        if let Some(answer) = self.act(other) {
                            machine.handle(clock::machine_ns(), answer, &mut out);
                        }
                    }
                }
            }
            out.clear();
            let input = tokio::select! {
                biased;
                read = stream.read(&mut buffer) => match read {
                    Ok(count @ 1..) => SenderInput::Bytes(&buffer[..count]),
                    Ok(_) | Err(_) => SenderInput::Lost,
                },
                Some(mail) = arriving.recv() => match self.open_mail(mail) {
                    Some(input) => input,
                    None => continue,
                },
                () = sleep_until(machine.deadline()) => SenderInput::Timer,
                () = stopped(&mut stop, self.interrupted) => {
                    self.interrupt();
                    continue;
                }
            };
            machine.handle(clock::machine_ns(), input, &mut out);
        }
    }

    /// Ends the flows early; they end in order.
    fn interrupt(&mut self) {
        self.interrupted = true;
        self.give_up.now();
        for flow in self.launched.values() {
            self.sender.shared.stop.raise(flow.place);
        }
    }

    /// Stops what still runs, and hears what was sent.
    async fn end_all(&mut self, arriving: &mut mpsc::UnboundedReceiver<Mail>) {
        let running: Vec<u32> = self.launched.keys().copied().collect();
        running.into_iter().for_each(|flow| self.halt(flow));
        let all = async {
            while !self.stopping.is_empty()
                && let Some(mail) = arriving.recv().await
            {
                // The machine is over: it needs to hear nothing more.
                let _nothing = self.open_mail(mail);
            }
        };
        if timeout(PATIENCE, all).await.is_err() {
            tracing::warn!("the sending thread does not tell what it has sent");
        }
    }

    /// Stops a flow, if it runs.
    fn halt(&mut self, id: u32) {
        if let Some(flow) = self.launched.remove(&id) {
            self.sender.shared.stop.raise(flow.place);
            self.sender.shared.leave(&flow);
            if self.outcomes.get(&id).is_none_or(|outcome| outcome.totals.is_none()) {
                self.stopping.insert(id, flow);
            }
        }
    }

    fn act(&mut self, output: SenderOutput) -> Option<SenderInput<'static>> {
        match output {
            SenderOutput::Send(_) | SenderOutput::Close(_) => None,
            SenderOutput::Open(flow) => Some(match self.open(flow) {
                Ok(()) => SenderInput::Ready(flow),
                Err(why) => self.failed(flow, why),
            }),
            SenderOutput::Start { flow, port } => match self.waiting.remove(&flow) {
                Some(waiting) => {
                    let (mail, give_up) = (self.mail.clone(), self.give_up.clone());
                    let only = (!self.third_party).then(|| self.peer.ip());
                    tokio::task::spawn_blocking(move || {
                        let met = waiting.meet(&Awaited {
                            only,
                            opening: None,
                            until: Instant::now() + COMING,
                            give_up: &|| give_up.is_asked(),
                            advice: ELSEWHERE,
                        });
                        // A channel that has ended needs no socket.
                        drop(mail.send(Mail::Met(flow, met)));
                    });
                    None
                }
                None => self.start(flow, port).err().map(|why| self.failed(flow, why)),
            },
            SenderOutput::Finished { flow, result } => {
                self.finished(flow, result);
                None
            }
        }
    }

    fn failed(&mut self, flow: u32, why: String) -> SenderInput<'static> {
        self.tell(ClassicProgress::Notice(flow, why.clone()));
        self.outcome(flow).why = Some(why);
        SenderInput::Failed(flow)
    }

    fn tell(&self, progress: ClassicProgress) {
        // The receiving end may be closed.
        drop(self.sender.shared.progress.send(progress));
    }

    fn outcome(&mut self, flow: u32) -> &mut ClassicOutcome {
        self.outcomes.entry(flow).or_insert_with(|| ClassicOutcome {
            flow,
            result: FlowResult::Failed,
            totals: None,
            replies: None,
            why: None,
        })
    }

    /// Opens the data socket of a flow that its receiver awaits, and sends.
    fn start(&mut self, id: u32, port: u16) -> Result<(), String> {
        let flow = *self.flows.get(&id).ok_or("no such flow")?;
        let mut target = flow.dest.ok_or("a flow in passive mode has no destination")?;
        target.set_port(if port == 0 { flow.offer.port } else { port });
        let data = tokio::task::block_in_place(|| socket::open_sender(&flow.spec, target));
        self.launch(flow, data.map_err(|error| error.to_string())?)
    }

    fn launch(&mut self, flow: &ClassicFlow, data: DataSocket) -> Result<(), String> {
        let launched = self.sender.launch(flow, data, self.since_ns, self.mail.clone())?;
        if self.interrupted {
            self.sender.shared.stop.raise(launched.place);
        }
        self.launched.insert(flow.offer.flow, launched);
        Ok(())
    }

    /// Passive mode: opens the data socket of a flow, to which its receiver will come.
    fn open(&mut self, id: u32) -> Result<(), String> {
        let flow = *self.flows.get(&id).ok_or("no such flow")?;
        if !matches!(flow.spec.proto, Proto::Udp | Proto::Tcp) {
            return Err("passive mode carries UDP and TCP only".to_owned());
        }
        let any = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
        let at = SocketAddr::new(flow.source.unwrap_or(any), flow.offer.port);
        let waiting = waiting::open(&flow.spec, at);
        self.waiting.insert(id, waiting.map_err(|error| error.to_string())?);
        Ok(())
    }

    fn open_mail(&mut self, mail: Mail) -> Option<SenderInput<'static>> {
        match mail {
            Mail::Met(id, met) => {
                let flow = *self.flows.get(&id)?;
                let launched =
                    met.map_err(|error| error.to_string()).and_then(|data| self.launch(flow, data));
                launched.err().map(|why| self.failed(id, why))
            }
            Mail::Sent(mut totals, behind, waited, refused_by) => {
                let id = totals.flow;
                if behind {
                    if let Some(ClassicSource::Itg { flow, .. }) =
                        self.flows.get(&id).map(|flow| &flow.packets)
                    {
                        tokio::task::block_in_place(|| count_left_out(flow, &mut totals));
                    }
                    let words = totals.reason.to_string();
                    self.tell(ClassicProgress::Notice(id, words));
                }
                let stopped = self.stopping.remove(&id);
                if stopped.is_some()
                    && totals.reason.cause == EndCause::Interrupted
                    && !self.interrupted
                {
                    totals.reason.cause = EndCause::ReceiverBrokeOff;
                }
                if totals.failed > 0 {
                    self.tell(ClassicProgress::Notice(id, refused_words(&totals, &refused_by)));
                }
                self.outcome(id).totals = Some(totals.clone());
                if let Some(stopped) = stopped {
                    self.sender.shared.conclude(&stopped, &totals, waited, &refused_by);
                    return None;
                }
                let launched = self.launched.get(&id)?;
                self.sender.shared.conclude(launched, &totals, waited, &refused_by);
                if launched.round_trip {
                    let mail = self.mail.clone();
                    self.sender.shared.gather(launched, totals, self.interrupted, mail);
                } else {
                    self.sent(id);
                }
                None
            }
            Mail::Replied(counts) => {
                let id = counts.flow;
                self.outcome(id).replies = Some(counts);
                self.sent(id);
                None
            }
            Mail::Settled(id) => Some(SenderInput::Ended(id)),
        }
    }

    /// The data socket of a flow is closed.
    fn sent(&mut self, id: u32) {
        let Some(launched) = self.launched.remove(&id) else { return };
        self.sender.shared.leave(&launched);
        let mail = self.mail.clone();
        tokio::spawn(async move {
            tokio::time::sleep(SETTLE).await;
            // The channel may have ended.
            drop(mail.send(Mail::Settled(id)));
        });
    }

    fn finished(&mut self, id: u32, result: FlowResult) {
        self.halt(id);
        self.outcome(id).result = result;
        let notice = match result {
            FlowResult::Done | FlowResult::Failed => None,
            FlowResult::Refused(Refusal::Bind) => {
                let transport = self.flows.get(&id).map(|flow| flow.spec.proto);
                let transport = transport.map_or("", Proto::name).to_ascii_uppercase();
                Some(format!("the receiver cannot open its {transport} socket for this flow"))
            }
            FlowResult::Refused(Refusal::Rights) => {
                Some("the receiver may not receive ICMP: it needs root".to_owned())
            }
            FlowResult::Refused(Refusal::Data) => {
                Some("the receiver says that the data connection broke".to_owned())
            }
            FlowResult::Unanswered => {
                Some("the receiver does not answer the end of this flow".to_owned())
            }
        };
        if let Some(notice) = notice {
            self.tell(ClassicProgress::Notice(id, notice.clone()));
            self.outcome(id).why.get_or_insert(notice);
        }
        self.tell(ClassicProgress::Finished(id));
    }
}

/// Packets that the kernel refused, by its errors.
fn refused_words(totals: &FlowTotals, by: &BTreeMap<String, u64>) -> String {
    let errors: Vec<_> = match by.len() {
        1 => by.keys().cloned().collect(),
        _ => by.iter().map(|(error, count)| format!("{count} {error}")).collect(),
    };
    let (refused, of) = (totals.failed, totals.packets.saturating_add(totals.failed));
    format!("{refused} of {of} packets were refused by the kernel ({})", errors.join(", "))
}
