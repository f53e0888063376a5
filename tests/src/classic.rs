//! `ITGRecv` and `ITGSend` as tests use them, and peers of D-ITG's protocol that misbehave.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use itg_classic::log::{LogRecord, records};
use itg_classic::send::{App, HeaderKind};
use itg_classic::wire::{FlowOffer, NO_SERIAL, OfferProto, SenderMessage};
use itg_testkit::child::{Output, Running};
use itg_testkit::host::{free_port, temp_dir};
use nix::sys::signal::Signal;
use tempfile::TempDir;

use crate::ditg::listens;
use crate::log_server::LogServer;
use crate::program::program;

/// Time that a program may take on a busy machine.
const LIMIT: Duration = Duration::from_secs(90);

/// An `ITGRecv` in a directory of its own.
#[derive(Debug)]
pub struct ClassicReceiver {
    /// The program.
    pub running: Running,
    /// Its signalling port.
    pub port: u16,
    /// A port for data.
    pub data: u16,
    dir: TempDir,
}

impl ClassicReceiver {
    /// Starts ours.
    #[track_caller]
    #[must_use]
    pub fn start(args: &[&str]) -> Self {
        Self::of(&program("ITGRecv"), args)
    }

    /// Starts this one.
    #[track_caller]
    #[must_use]
    pub fn of(program: &Path, args: &[&str]) -> Self {
        let (dir, port, data) = (temp_dir(), free_port(), free_port());
        let mut command = Command::new(program);
        command.current_dir(dir.path()).args(["-Sp", &port.to_string()]).args(args);
        let running = Running::start(&mut command);
        listens(&running, port);
        Self { running, port, data, dir }
    }

    /// A file in its directory.
    #[must_use]
    pub fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The records of a log in its directory; none before the log is there.
    #[track_caller]
    #[must_use]
    pub fn log(&self, name: &str) -> Vec<LogRecord> {
        let path = self.file(name);
        match std::fs::read(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
            Err(error) => panic!("{}: {error}", path.display()),
            Ok(bytes) => records(&bytes).collect(),
        }
    }

    /// Starts our sender to it, in its directory; `-rp` is its data port unless given again.
    #[track_caller]
    #[must_use]
    pub fn sender(&self, args: &[&str]) -> Running {
        let (port, data) = (self.port.to_string(), self.data.to_string());
        let own = ["-a", "127.0.0.1", "-Sdp", &port, "-rp", &data];
        classic_sender(self.dir.path(), &[&own, args].concat())
    }

    /// Runs our sender to its end.
    #[track_caller]
    #[must_use]
    pub fn send(&self, args: &[&str]) -> Output {
        self.sender(args).finish(LIMIT)
    }

    /// Runs our sender with a script whose lines are completed with addresses and ports.
    #[track_caller]
    #[must_use]
    pub fn send_script(&self, lines: &[&str], args: &[&str]) -> Output {
        let own = format!("-a 127.0.0.1 -Sdp {} -rp {}", self.port, self.data);
        let script: String = lines.iter().map(|line| format!("{own} {line}\n")).collect();
        std::fs::write(self.file("script"), script).expect("writable");
        classic_send(self.dir.path(), &[&["script"], args].concat())
    }

    /// Asserts that it serves a sender, whatever has happened before.
    #[track_caller]
    pub fn serves(&mut self) {
        assert!(self.running.runs(), "the receiver has ended:\n{}", self.running.err());
        let done = self.send(&["-C", "1000", "-z", "5"]).exits(0);
        assert!(done.out.contains("Finished sending packets of flow ID: 1"), "{done}");
    }

    /// Ends it with SIGINT.
    #[track_caller]
    pub fn stop(self) -> Output {
        self.running.signal(Signal::SIGINT);
        self.running.finish(LIMIT).exits(0)
    }

    /// A sender that says what it likes.
    #[track_caller]
    #[must_use]
    pub fn peer(&self) -> ClassicPeer {
        ClassicPeer::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, self.port)))
    }
}

/// Starts our `ITGSend` in this directory.
#[track_caller]
#[must_use]
pub fn classic_sender(dir: &Path, args: &[&str]) -> Running {
    Running::start(Command::new(program("ITGSend")).current_dir(dir).args(args))
}

/// Runs our `ITGSend` in this directory to its end.
#[track_caller]
#[must_use]
pub fn classic_send(dir: &Path, args: &[&str]) -> Output {
    classic_sender(dir, args).finish(LIMIT)
}

/// A signalling channel by hand.
#[derive(Debug)]
pub struct ClassicPeer {
    stream: TcpStream,
    /// The port that the receiver named last.
    pub port: u16,
}

impl ClassicPeer {
    /// Connects to a receiver.
    #[track_caller]
    #[must_use]
    pub fn connect(to: SocketAddr) -> Self {
        let stream = TcpStream::connect(to).expect("the receiver listens");
        stream.set_read_timeout(Some(Duration::from_secs(90))).expect("a time-out");
        Self { stream, port: 0 }
    }

    /// Says a message.
    #[track_caller]
    pub fn say(&mut self, message: &SenderMessage) {
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        self.stream.write_all(&bytes).expect("an open channel");
    }

    /// Sends bytes; the channel may be closed already.
    pub fn send(&mut self, bytes: &[u8]) {
        drop(self.stream.write_all(bytes));
    }

    /// The next so many bytes.
    #[track_caller]
    #[must_use]
    pub fn hear<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        self.stream.read_exact(&mut bytes).expect("an answer");
        bytes
    }

    /// Returns true if the other side has closed.
    #[must_use]
    pub fn is_closed(&mut self) -> bool {
        matches!(self.stream.read(&mut [0]), Ok(0) | Err(_))
    }

    /// Greets, and offers a flow to this port of 127.0.0.1, which must be accepted.
    #[track_caller]
    pub fn open(&mut self, proto: OfferProto, port: u16) {
        assert_eq!(self.offer(proto, port), 5, "accepted");
    }

    /// Greets, and offers a flow to this port of 127.0.0.1; the first byte of the answer.
    #[track_caller]
    pub fn offer(&mut self, proto: OfferProto, port: u16) -> u8 {
        self.say(&SenderMessage::Connect);
        assert_eq!(self.hear(), [2]);
        self.say(&SenderMessage::Offer(FlowOffer {
            flow: 1,
            proto,
            app: App::None,
            round_trip: false,
            tos: 0,
            header: HeaderKind::Standard,
            serial: NO_SERIAL,
            port,
            address: Ipv4Addr::LOCALHOST.into(),
            passive: None,
        }));
        let [kind, ..] = self.hear::<5>();
        if kind == 5 {
            self.port = u16::from_be_bytes(self.hear());
        }
        kind
    }
}

/// `itg-log --classic` at D-ITG's port of a loopback address of its own.
#[derive(Debug)]
pub struct ClassicLogServer {
    /// Its address.
    pub host: String,
    server: LogServer,
    dir: TempDir,
}

impl ClassicLogServer {
    /// Starts one.
    #[track_caller]
    #[must_use]
    pub fn start() -> Self {
        let (dir, host) = (temp_dir(), own_address().to_string());
        let server = LogServer::start(dir.path(), &["--classic", &format!("{host}:9001")]);
        drop(server.running.line_with("waiting for D-ITG's programs on ", LIMIT));
        Self { host, server, dir }
    }

    /// Waits until a client has ended a log with so many records.
    #[track_caller]
    pub fn ended(&self, name: &str, records: usize) {
        drop(self.server.running.line_with(&format!("{name}: {records} records of "), LIMIT));
    }

    /// The records of a log, once its clients have ended it.
    #[track_caller]
    #[must_use]
    pub fn log(&self, name: &str) -> Vec<LogRecord> {
        drop(self.server.running.line_with(&format!("{name}: "), LIMIT));
        let bytes = std::fs::read(self.dir.path().join(name)).expect("a log");
        records(&bytes).collect()
    }
}

/// A loopback address that no other test has: log servers of D-ITG have one port.
#[must_use]
pub fn own_address() -> Ipv4Addr {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    let [.., b, c] = std::process::id().to_be_bytes();
    // Never 127.0.0.x, which others use.
    Ipv4Addr::new(127, b.max(1), c, NEXT.fetch_add(1, Ordering::Relaxed))
}
