//! A sender's part of the signalling, by hand: for what no sender of ours does.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, SystemTime};

use itg_core::flow::FlowSpec;
use itg_core::header::PacketKey;
use itg_session::{
    ClockReading, EndCause, FlowCounts, FlowTotals, LogSummary, MAGIC, Message, OpenedFlow,
    VERSION, decode, encode,
};
use ring::hmac;

use crate::receiver::Receiver;

/// Longest wait for an answer.
const LIMIT: Duration = Duration::from_secs(90);
const RUN: &str = "0123456789abcdef0123456789abcdef";

/// A sender's signalling, by hand.
#[derive(Debug)]
pub struct Peer(pub TcpStream);

impl Peer {
    /// Greets a receiver; asks for a log of this name.
    #[track_caller]
    #[must_use]
    pub fn greet(receiver: &Receiver, recv_log: Option<&str>) -> Self {
        Self::greet_as(receiver, "a peer", recv_log)
    }

    /// Greets under the name of this program.
    #[track_caller]
    #[must_use]
    pub fn greet_as(receiver: &Receiver, program: &str, recv_log: Option<&str>) -> Self {
        Self::announce(receiver, (program, 1), recv_log)
    }

    /// Greets under the name of this program and announces so many flows.
    #[track_caller]
    #[must_use]
    pub fn announce(
        receiver: &Receiver,
        (program, flows): (&str, u32),
        recv_log: Option<&str>,
    ) -> Self {
        let stream = TcpStream::connect(receiver.address).expect("the receiver listens");
        stream.set_read_timeout(Some(LIMIT)).expect("a time-out");
        let mut peer = Self(stream);
        peer.say(&Message::Hello {
            magic: MAGIC,
            version: VERSION,
            run: RUN.to_owned(),
            seed: 1,
            program: program.to_owned(),
            host: "here".to_owned(),
            boot_id: String::new(),
            flows,
            recv_log: recv_log.map(str::to_owned),
        });
        assert!(matches!(peer.hear(), Message::Welcome { .. }));
        peer
    }

    /// Greets, opens a flow and starts it.
    #[track_caller]
    #[must_use]
    pub fn start(receiver: &Receiver, edit: impl FnOnce(&mut FlowSpec)) -> (Self, OpenedFlow) {
        Self::greet(receiver, None).open(edit)
    }

    /// Opens a flow and starts it.
    #[track_caller]
    #[must_use]
    pub fn open(mut self, edit: impl FnOnce(&mut FlowSpec)) -> (Self, OpenedFlow) {
        let mut spec = FlowSpec::new(1);
        edit(&mut spec);
        self.say(&Message::Open { flows: vec![spec] });
        let Message::Opened { mut flows } = self.hear() else { panic!("not opened") };
        let opened = flows.remove(0).result.expect("opened");
        self.say(&Message::Start { epoch_unix_ns: now_ns() });
        assert!(matches!(self.hear(), Message::Started));
        (self, opened)
    }

    /// Agrees on keys of packets with a receiver that has the secret; the key of flow 1.
    #[track_caller]
    #[must_use]
    pub fn share(&mut self, secret: &[u8]) -> PacketKey {
        let hmac = |key: &[u8], text: &[u8]| -> [u8; 32] {
            let key = hmac::Key::new(hmac::HMAC_SHA256, key);
            hmac::sign(&key, text).as_ref().try_into().expect("32 bytes")
        };
        self.say(&Message::Prove { nonce: [7; 32] });
        let Message::Proved { nonce, proof } = self.hear() else { panic!("not proved") };
        let text = [&b"itg packets 1\0"[..], RUN.as_bytes(), b"\0", &[7; 32], &nonce].concat();
        let session = hmac(secret, &text);
        assert_eq!(proof, hmac(&session, b"receiver"));
        PacketKey::new(hmac(&session, b"flow\x01\0\0\0")[..16].try_into().expect("16 bytes"))
    }

    /// Says this.
    #[track_caller]
    pub fn say(&mut self, message: &Message) {
        let bytes = encode(message).expect("a short message");
        let mut frame = u32::try_from(bytes.len()).expect("short").to_le_bytes().to_vec();
        frame.extend(bytes);
        self.0.write_all(&frame).expect("it listens");
    }

    /// The next message of the receiver.
    #[track_caller]
    #[must_use]
    pub fn hear(&mut self) -> Message {
        let mut len = [0; 4];
        self.0.read_exact(&mut len).expect("a message");
        let mut body = vec![0; u32::from_le_bytes(len) as usize];
        self.0.read_exact(&mut body).expect("a message");
        decode(&body).expect("a message")
    }

    /// Shows that it is alive, as a sender does each second: a receiver gives up who is silent for 5 s.
    #[track_caller]
    pub fn ping(&mut self) {
        self.say(&Message::Ping { n: 0, sent: ClockReading::default(), previous: None });
        assert!(matches!(self.hear(), Message::Pong { .. }));
    }

    /// Ends the flow, of which so many packets of 100 bytes were sent, and leaves.
    #[track_caller]
    #[must_use]
    pub fn end(self, packets: u64) -> FlowCounts {
        self.leave(packets).0
    }

    /// The same; returns what the receiver says about the log, too.
    #[track_caller]
    #[must_use]
    pub fn leave(mut self, packets: u64) -> (FlowCounts, Option<LogSummary>) {
        self.say(&Message::FlowEnded(FlowTotals {
            flow: 1,
            packets,
            bytes: packets * 100,
            skipped: 0,
            failed: 0,
            next_seq: packets,
            reason: EndCause::Told("the test ends".to_owned()).into(),
        }));
        let Message::FlowCounted(counts) = self.hear() else { panic!("not counted") };
        self.say(&Message::Bye);
        let Message::ByeAck { log } = self.hear() else { panic!("no leave is taken") };
        (counts, log)
    }
}

/// Unix time, in nanoseconds.
#[must_use]
pub fn now_ns() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
    u64::try_from(now.as_nanos()).expect("before 2554")
}

/// A packet of 100 bytes.
#[must_use]
pub fn packet(handle: u32, seq: u64, sent_ns: u64) -> Vec<u8> {
    let mut bytes = handle.to_le_bytes().to_vec();
    bytes.extend(seq.to_le_bytes());
    bytes.extend(sent_ns.to_le_bytes());
    bytes.resize(100, 0);
    bytes
}
