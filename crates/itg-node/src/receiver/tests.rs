//! A flow is answered when the receiving thread looks for its packets, not before.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::mpsc as std_mpsc;
use std::time::Duration;

use itg_classic::send::{App, HeaderKind};
use itg_classic::wire::{FlowOffer, NO_SERIAL, OfferProto, SenderMessage};
use itg_core::flow::{FlowSpec, Proto};
use itg_engine::rx::{Command, PacketFormat};
use itg_session::{MAGIC, Message, VERSION};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::ports::{Asked, Opened, Taken};
use super::shared::Shared;
use super::{Receiver, ReceiverOptions, ReceiverOutcome};
use crate::control::{Channel, Incoming};
use crate::lock::lock;

/// Time in which nothing may be heard. A receiver that does not wait answers within microseconds.
const SILENCE: Duration = Duration::from_millis(400);

/// A receiver whose receiving thread does nothing until it is let go.
struct HeldReceiver {
    address: SocketAddr,
    shared: Arc<Shared>,
    go: std_mpsc::Sender<()>,
    stop: watch::Sender<Option<String>>,
    serving: JoinHandle<ReceiverOutcome>,
}

impl HeldReceiver {
    fn start() -> Self {
        Self::after(|_| ())
    }

    /// The same after something has been done with the receiving thread that runs.
    fn after(before: impl FnOnce(&Shared)) -> Self {
        let anywhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let receiver = Receiver::bind(ReceiverOptions::new(anywhere)).expect("loopback");
        let address = receiver.addresses().next().expect("it listens");
        let shared = Arc::clone(&receiver.shared);
        before(&shared);
        let (go, held) = std_mpsc::channel::<()>();
        // Ends, too, when the test does.
        let hold = Box::new(move || held.recv().unwrap_or_default());
        receiver.shared.rx.first().ask(Command::CaughtUp(hold));
        let (stop, stopped) = watch::channel(None);
        let serving = tokio::spawn(receiver.serve(stopped));
        Self { address, shared, go, stop, serving }
    }

    /// A channel that a sender of one flow has opened.
    async fn greet(&self) -> Channel {
        let stream = TcpStream::connect(self.address).await.expect("it listens");
        let mut channel = Channel::new(stream, Duration::from_secs(5));
        let hello = Message::Hello {
            magic: MAGIC,
            version: VERSION,
            run: "0".repeat(32),
            seed: 1,
            program: "test".to_owned(),
            host: "here".to_owned(),
            boot_id: String::new(),
            flows: 1,
            recv_log: None,
        };
        channel.say(hello).await.expect("it takes messages");
        assert!(matches!(channel.hear().await, Incoming::Message(Message::Welcome { .. })));
        channel
    }

    async fn end(self) {
        self.stop.send(Some("the test ends".to_owned())).expect("it serves");
        drop(self.serving.await.expect("no panic"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flow_is_answered_when_its_packets_are_looked_for() {
    let held = HeldReceiver::start();
    let mut channel = held.greet().await;
    channel.say(Message::Open { flows: vec![FlowSpec::new(1)] }).await.expect("the same");
    assert!(timeout(SILENCE, channel.hear()).await.is_err(), "answered too early");
    held.go.send(()).expect("it waits");
    let Incoming::Message(Message::Opened { flows }) = channel.hear().await else {
        panic!("another answer");
    };
    assert!(flows[0].result.is_ok(), "{flows:?}");
    channel.close().await;
    held.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flow_of_d_itg_is_answered_when_its_packets_are_looked_for() {
    let held = HeldReceiver::start();
    let mut stream = TcpStream::connect(held.address).await.expect("it listens");
    let say = |message: SenderMessage| {
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        bytes
    };
    stream.write_all(&say(SenderMessage::Connect)).await.expect("an open channel");
    let mut answer = [0; 1];
    stream.read_exact(&mut answer).await.expect("an answer");
    let offer = SenderMessage::Offer(FlowOffer {
        flow: 1,
        proto: OfferProto::Udp,
        app: App::None,
        round_trip: false,
        tos: 0,
        header: HeaderKind::Standard,
        serial: NO_SERIAL,
        port: 0,
        address: Ipv4Addr::LOCALHOST.into(),
        passive: None,
    });
    stream.write_all(&say(offer)).await.expect("an open channel");
    let mut accepted = [0; 7];
    let early = timeout(SILENCE, stream.read_exact(&mut accepted)).await;
    assert!(early.is_err(), "answered too early");
    held.go.send(()).expect("it waits");
    stream.read_exact(&mut accepted).await.expect("an answer");
    assert_eq!(accepted[..5], [5, 0, 0, 0, 1]);
    drop(stream);
    held.end().await;
}

/// A sender right behind another: the data socket of the last flow has been given back, and the receiving
/// thread has not got to closing it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_port_is_free_when_the_receiving_thread_has_closed_it() {
    for proto in [Proto::Udp, Proto::Tcp] {
        let at = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
        let asked = Asked { proto, at, format: PacketFormat::Itg, joined: false };
        let mut data = None;
        let held = HeldReceiver::after(|shared| data = shared.data_port(asked, 0).ok());
        let data = data.expect("a port");
        let slot = lock(&held.shared.slots).take().expect("the first");
        let live = Arc::default();
        let socket = Taken::Shared(data.asked);
        held.shared.give_back(&Opened { slot, socket, live, udp_errors: None });
        let mut channel = held.greet().await;
        let mut spec = FlowSpec::new(1);
        (spec.proto, spec.socket.dest_port) = (proto, Some(data.port));
        channel.say(Message::Open { flows: vec![spec] }).await.expect("it takes messages");
        assert!(timeout(SILENCE, channel.hear()).await.is_err(), "{proto}: answered too early");
        held.go.send(()).expect("it waits");
        let Incoming::Message(Message::Opened { flows }) = channel.hear().await else {
            panic!("another answer");
        };
        assert!(matches!(&flows[0].result, Ok(flow) if flow.port == data.port), "{flows:?}");
        channel.close().await;
        held.end().await;
    }
}
