//! `itg-log` as tests use it.

use std::ffi::OsStr;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use itg_testkit::child::{Output, Running};
use itg_testkit::host::free_port;
use nix::sys::signal::Signal;

use crate::decode::decode;
use crate::program::program;

/// Time that a server may take to be ready, on a busy machine.
const READY: Duration = Duration::from_secs(90);

/// A log server that waits for producers.
#[derive(Debug)]
pub struct LogServer {
    /// The program.
    pub running: Running,
    /// Address that producers connect to.
    pub address: SocketAddr,
}

impl LogServer {
    /// Starts one on a port of 127.0.0.1 that is free over TCP and UDP, and that no connection of others takes while
    /// the server is away; it writes into this directory.
    #[track_caller]
    #[must_use]
    pub fn start<A: AsRef<OsStr>>(dir: &Path, args: &[A]) -> Self {
        Self::listening(&format!("127.0.0.1:{}", free_port()), dir, args)
    }

    /// Starts one that listens here.
    #[track_caller]
    #[must_use]
    pub fn listening<A: AsRef<OsStr>>(listen: &str, dir: &Path, args: &[A]) -> Self {
        let mut command = Command::new(program("itg-log"));
        command.args(["--listen", listen, "--dir"]).arg(dir).args(args);
        Self::run(&mut command)
    }

    /// Starts this command and waits until it says where it listens.
    #[track_caller]
    #[must_use]
    pub fn run(command: &mut Command) -> Self {
        let running = Running::start(command);
        let line = running.line_with("waiting for producers on ", READY);
        let (_, rest) = line.split_once("waiting for producers on ").expect("just found");
        let address = rest.split([' ', ';']).next().and_then(|word| word.parse().ok());
        let address = address.unwrap_or_else(|| panic!("no address in {line:?}"));
        Self { running, address }
    }

    /// Its URL for blocks over this transport.
    #[must_use]
    pub fn url(&self, transport: &str) -> String {
        format!("{transport}://{}", self.address)
    }

    /// Ends it as Ctrl-C does.
    #[track_caller]
    pub fn stop(self) -> Output {
        self.running.signal(Signal::SIGINT);
        self.running.finish(READY).exits(130)
    }

    /// Ends it without warning.
    #[track_caller]
    pub fn kill(self) {
        self.running.signal(Signal::SIGKILL);
        let _killed = self.running.finish(READY);
    }
}

/// Packets in these files, by the sender's and by the receiver's account, damaged or not.
#[track_caller]
#[must_use]
pub fn stored<P: AsRef<Path>>(files: &[P]) -> (u64, u64) {
    let mut args: Vec<&OsStr> = files.iter().map(|file| file.as_ref().as_os_str()).collect();
    args.extend(["--format", "json"].map(OsStr::new));
    let done = decode(&args);
    let report: serde_json::Value =
        serde_json::from_str(&done.out).unwrap_or_else(|error| panic!("{error}: {done}"));
    let count = |side: &str| {
        let flows = report["flows"].as_array().expect("flows");
        flows
            .iter()
            .filter(|flow| flow["side"] == side)
            .map(|flow| flow["packets"].as_u64().expect("a count"))
            .sum()
    };
    (count("sender"), count("receiver"))
}

/// The experiments' files in a directory.
#[must_use]
pub fn experiments(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).expect("readable").map(|entry| entry.expect("readable").path());
    let mut files: Vec<_> =
        entries.filter(|path| path.extension().is_some_and(|end| end == "itg")).collect();
    files.sort();
    files
}
