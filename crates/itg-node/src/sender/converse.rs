//! One session of a sender with a receiver, over its signalling connection.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use itg_core::text::from_peer;
use itg_engine::live::FlowLive;
use itg_session::{Message, ProbeStamps, SenderConfig, SenderInput, SenderOutput, SenderSession};
use itg_socket::clock;
use tokio::net::TcpStream;
use tokio::sync::mpsc;

use super::Report;
use super::asks::ArrivalAsk;
use super::telling::Telling;
use crate::control::{Channel, Incoming, sleep_until};
use crate::packet_keys::PacketKeys;
use crate::waiting::Waiting;

/// Longest time in which a receiver's signalling port must answer.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// A session that is served so much later than it was due has been kept from running: 2 s.
const STOOD_STILL_NS: u64 = 2_000_000_000;
/// Time after that in which a failure is taken for its consequence: 10 s.
const BLAMED_NS: u64 = 10_000_000_000;
/// Time for which a program that stood still listens before it concludes anything.
const CATCH_UP: Duration = Duration::from_secs(1);

impl From<Incoming> for SenderInput {
    fn from(heard: Incoming) -> Self {
        match heard {
            Incoming::Message(message) => Self::Message(message),
            Incoming::Garbage(error) => Self::Garbage(error),
            Incoming::Lost(why) => Self::Lost(why),
        }
    }
}

/// Standstill of this program that its session has shown: until when it was, and for how long.
#[derive(Clone, Copy, Default)]
struct Standstill(Option<(u64, u64)>);

impl Standstill {
    /// Looks at the time. A session is due several times a second: if it is seconds late, this program has not been
    /// running.
    fn look(&mut self, due_ns: Option<u64>) -> bool {
        let now = clock::machine_ns();
        let late_ns = due_ns.map_or(0, |due| now.saturating_sub(due));
        let stood = late_ns >= STOOD_STILL_NS;
        if stood {
            self.0 = Some((now, late_ns));
        }
        stood
    }

    /// A loss or refusal with the standstill, where it may be the cause.
    fn blamed(self, input: SenderInput) -> SenderInput {
        match self.0 {
            Some((until_ns, ns)) if clock::machine_ns() < until_ns + BLAMED_NS => blamed(input, ns),
            _ => input,
        }
    }
}

/// Adds to a loss or refusal that this program stood still for `ns` before: the receiver has left because
/// of that.
fn blamed(input: SenderInput, ns: u64) -> SenderInput {
    let why = match input {
        SenderInput::Lost(why) => why,
        SenderInput::Message(Message::Refuse { reason }) => {
            format!("the receiver refused: {}", from_peer(&reason))
        }
        other => return other,
    };
    let seconds = ns / 1_000_000_000;
    SenderInput::Lost(format!(
        "this program stood still for {seconds} s (stopped, or its host asleep), and then: {why}"
    ))
}

/// Receiver that has asked for the flows: the connection that it has made, and the sockets to which it comes.
pub(crate) struct Asker {
    pub(crate) channel: Channel,
    pub(crate) waiting: BTreeMap<u32, Waiting>,
}

/// Way to the receiver of a session.
pub(super) enum Way {
    /// A connection to its signalling address is to be made.
    Connect,
    /// It has made the connection.
    Connected(Box<Channel>),
}

/// Receiver of a session, and what is known of it.
pub(super) struct Conversation {
    /// Its place among the receivers.
    pub(super) index: usize,
    /// Its signalling address.
    pub(super) address: SocketAddr,
    pub(super) way: Way,
    /// Counters of its flows.
    pub(super) lives: BTreeMap<u32, Arc<FlowLive>>,
    /// Secret shared with it, when packets prove where they come from.
    pub(super) secret: Option<Arc<[u8]>>,
    /// Questions of those who watch the run.
    pub(super) asks: mpsc::UnboundedReceiver<ArrivalAsk>,
}

/// Derives the keys of the packets when a receiver has proved that it has the secret; a wrong proof is a refusal.
fn keyed(
    input: SenderInput,
    config: &SenderConfig,
    secret: Option<&[u8]>,
    take: impl FnOnce(PacketKeys),
) -> SenderInput {
    if let (SenderInput::Message(Message::Proved { nonce, proof }), Some(secret), Some(ours)) =
        (&input, secret, &config.prove)
    {
        let keys = PacketKeys::new(secret, &config.run, ours, nonce);
        if keys.receiver_proof() != *proof {
            let reason = "its secret is not that of --secret-file here".to_owned();
            return SenderInput::Message(Message::Refuse { reason });
        }
        take(keys);
    }
    input
}

/// Drives one session over its signalling connection.
pub(super) async fn converse(
    Conversation { index, address, way, lives, secret, asks }: Conversation,
    config: SenderConfig,
    mut told: mpsc::UnboundedReceiver<SenderInput>,
    reports: mpsc::UnboundedSender<(usize, Report)>,
) {
    let report = |report| drop(reports.send((index, report)));
    let mut machine = SenderSession::new(config.clone());
    let (mut channel, first) = match way {
        Way::Connected(channel) => (Some(*channel), SenderInput::Connected),
        Way::Connect => match connect(address, clock::ns(config.timeouts.silence_ns)).await {
            Ok(channel) => (Some(channel), SenderInput::Connected),
            Err(why) => (None, SenderInput::Lost(why)),
        },
    };
    let mut input = first;
    let mut out = Vec::new();
    // The receiver gets the stamps of each probe with the next one, for its own log.
    let mut probed = None;
    let mut standstill = Standstill::default();
    let mut telling = Telling::new(index, lives, asks);
    loop {
        input = keyed(input, &config, secret.as_deref(), |keys| report(Report::Keyed(keys)));
        if let SenderInput::Message(message) = &input {
            if let Message::Welcome { boot_id, .. } = message {
                report(Report::Welcomed(boot_id.clone()));
            }
            telling.heard(message);
        }
        input = standstill.blamed(input);
        machine.handle(clock::machine_ns(), input, &mut out);
        // The receiver answers for some flows at a time.
        for _ in 1..telling.rounds() {
            machine.handle(clock::machine_ns(), SenderInput::AskArrivals, &mut out);
        }
        let due_ns = machine.deadline();
        let mut lost = None;
        for output in out.drain(..) {
            match output {
                SenderOutput::Send(mut message) => {
                    if let Message::Ping { n, previous, .. } = &mut message {
                        *previous = probed.take();
                        telling.asked(*n);
                    }
                    if let Some(channel) = &mut channel
                        && lost.is_none()
                    {
                        lost = channel.say(message).await.err();
                    }
                }
                SenderOutput::Clock { ping_sent, received_unix_ns, replied } => {
                    let arrived_unix_ns = channel.as_ref().map_or(0, Channel::heard_unix_ns);
                    let stamps =
                        ProbeStamps { sent: ping_sent, received_unix_ns, replied, arrived_unix_ns };
                    probed = Some(stamps);
                    report(Report::Probed(stamps));
                }
                other => report(Report::Output(other)),
            }
        }
        telling.all_asked();
        if machine.is_over() {
            break;
        }
        input = match lost {
            Some(why) => SenderInput::Lost(why),
            None => next(machine.deadline(), channel.as_mut(), (&mut told, &mut telling)).await,
        };
        // What the receiver has said meanwhile goes before the conclusion that it was silent.
        if standstill.look(due_ns)
            && let (SenderInput::Timer, Some(channel)) = (&input, &mut channel)
            && let Ok(heard) = tokio::time::timeout(CATCH_UP, channel.hear()).await
        {
            input = heard.into();
        }
        if matches!(input, SenderInput::Lost(_)) {
            channel = None;
        }
    }
    if let Some(channel) = channel {
        channel.close().await;
    }
}

/// Next input: what comes in, is told or asked, or the time. What has come in goes before a time-out.
async fn next(
    deadline: Option<u64>,
    channel: Option<&mut Channel>,
    (told, telling): (&mut mpsc::UnboundedReceiver<SenderInput>, &mut Telling),
) -> SenderInput {
    let hear = async {
        match channel {
            Some(channel) => channel.hear().await.into(),
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        heard = hear => heard,
        Some(input) = told.recv() => input,
        () = telling.next_ask() => SenderInput::AskArrivals,
        () = sleep_until(deadline) => SenderInput::Timer,
    }
}

/// Connects to the signalling port of a receiver, which may be silent for `patience` later.
pub(crate) async fn connect(address: SocketAddr, patience: Duration) -> Result<Channel, String> {
    match tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect(address)).await {
        Ok(Ok(stream)) => Ok(Channel::new(stream, patience)),
        Ok(Err(error)) => Err(unreachable(address, &error.to_string())),
        Err(_) => {
            let why = format!("no answer within {} s", CONNECT_TIMEOUT.as_secs());
            Err(unreachable(address, &why))
        }
    }
}

fn unreachable(address: SocketAddr, why: &str) -> String {
    format!("no receiver at {address}: {why}; start itg-recv there or check address and port")
}
