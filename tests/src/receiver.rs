//! `itg-recv` and `itg-send` as tests use them.

use std::ffi::OsStr;
use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use itg_testkit::child::{Output, Running};
use nix::sys::signal::Signal;

use crate::program::program;

/// Time that a receiver may take to be ready, on a busy machine.
const READY: Duration = Duration::from_secs(90);
/// Time that a sender of a short run may take.
const SENT: Duration = Duration::from_secs(90);

/// A receiver that waits for senders.
#[derive(Debug)]
pub struct Receiver {
    /// The program.
    pub running: Running,
    /// Address that senders connect to (the first one, when there are several).
    pub address: SocketAddr,
}

impl Receiver {
    /// Starts one on free ports of 127.0.0.1.
    #[track_caller]
    #[must_use]
    pub fn start<A: AsRef<OsStr>>(args: &[A]) -> Self {
        Self::listening("127.0.0.1:0", args)
    }

    /// Starts one that listens here; data ports are free ones.
    #[track_caller]
    #[must_use]
    pub fn listening<A: AsRef<OsStr>>(listen: &str, args: &[A]) -> Self {
        let mut command = Command::new(program("itg-recv"));
        Self::run(command.args(["--listen", listen, "--data-port", "0"]).args(args))
    }

    /// Starts this command and waits until it says where it listens.
    #[track_caller]
    #[must_use]
    pub fn run(command: &mut Command) -> Self {
        let running = Running::start(command);
        let line = running.line_with("waiting for senders on ", READY);
        let (_, rest) = line.split_once("waiting for senders on ").expect("just found");
        let address = rest.split([' ', ';']).next().and_then(|word| word.parse().ok());
        let address = address.unwrap_or_else(|| panic!("no address in {line:?}"));
        Self { running, address }
    }

    /// The address as an argument of `itg-send`.
    #[must_use]
    pub fn at(&self) -> String {
        self.address.to_string()
    }

    /// Starts a sender to it (these are the further arguments) and waits until it has begun. Works once,
    /// on a receiver that was started with `-v`.
    #[track_caller]
    #[must_use]
    pub fn begin(&self, args: &[&str]) -> Running {
        let at = self.at();
        let running = sender(&[&[at.as_str()], args].concat());
        drop(self.running.line_with(" flows", READY));
        running
    }

    /// Ends it with SIGINT and waits for its summary.
    #[track_caller]
    pub fn stop(self) -> Output {
        self.running.signal(Signal::SIGINT);
        self.running.finish(READY).exits(130)
    }

    /// Asserts that it serves a sender, whatever has happened before.
    #[track_caller]
    pub fn serves(&mut self) {
        let words = self.running.err();
        assert!(self.running.runs(), "the receiver has ended:\n{words}");
        let done = send(&[&self.at(), "--packets", "5", "--idt", "constant(1ms)"]).exits(0);
        assert!(done.out.contains("both sides agree on 5 packets"), "{done}");
    }
}

/// Starts a sender; unless it is told to be quiet or to say more, it tells the accounts of all flows.
#[track_caller]
#[must_use]
pub fn sender<A: AsRef<OsStr>>(args: &[A]) -> Running {
    let mut command = Command::new(program("itg-send"));
    let words = ["-q", "--quiet", "-v", "-vv", "--verbose"];
    command.args(args);
    if !args.is_empty() && !args.iter().any(|arg| words.iter().any(|word| arg.as_ref() == *word)) {
        // The words on stderr are those of a sender without -v.
        command.arg("-v").env("ITG_LOG", "warn");
    }
    Running::start(&mut command)
}

/// Runs a sender to its end.
#[track_caller]
#[must_use]
pub fn send<A: AsRef<OsStr>>(args: &[A]) -> Output {
    sender(args).finish(SENT)
}
