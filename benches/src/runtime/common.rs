//! Two processes of this program, one on each side of a trial.

use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::ValueEnum;
use itg_testkit::child::Running;

use crate::machine::cpus;

/// Time that a trial may take beyond its measured time.
pub(crate) const MARGIN: Duration = Duration::from_secs(20);

/// Measurement on a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Work {
    /// Requests and replies of one byte, or empty messages
    TcpRr,
    /// The same with datagrams
    UdpRr,
    /// Writes of 8192 bytes, or messages of so many
    TcpStream,
}

impl Work {
    /// With its bar, in percent of plain sockets, and what Neko attained.
    pub(crate) const ALL: [(Self, &'static str, f64, f64); 3] = [
        (Self::TcpRr, "TCP_RR.1 [trans/s]", 95.0, 89.0),
        (Self::UdpRr, "UDP_RR.1 [trans/s]", 92.0, 53.0),
        (Self::TcpStream, "TCP_STREAM.8k [kB/s]", 95.0, 58.0),
    ];
}

/// Two processes of this program with these arguments, a processor each if there are two: the first one says
/// where it listens, the second is told to call there (`--call`).
pub(crate) fn pair(words: &[&str]) -> Result<[Running; 2]> {
    let program = std::env::current_exe().context("this program")?;
    let (one, other) = if cpus() > 1 { (vec![1], vec![0]) } else { (vec![], vec![]) };
    let first = Running::spawn(Command::new(&program).args(words), &one)?;
    let at = first.after("listening on ", MARGIN)?;
    let second = Running::spawn(Command::new(&program).args(words).args(["--call", &at]), &other)?;
    Ok([first, second])
}

pub(crate) fn said(address: SocketAddr) {
    itg_cli::say(format_args!("listening on {address}"));
}
