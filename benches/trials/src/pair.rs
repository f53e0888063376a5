//! Two processes of this program, one on each side of a trial.

use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};
use itg_testkit::child::Running;

use crate::machine::cpus;

/// Time that a trial may take beyond its measured time.
pub const MARGIN: Duration = Duration::from_secs(20);

/// Two processes of this program with these arguments, a processor each if there are two: the first one says
/// where it listens, the second is told to call there (`--call`).
///
/// # Errors
/// One of them did not start, or the first one did not say where it listens in time.
pub fn pair(words: &[&str]) -> Result<[Running; 2]> {
    let program = std::env::current_exe().context("this program")?;
    let (one, other) = if cpus() > 1 { (vec![1], vec![0]) } else { (vec![], vec![]) };
    let first = Running::spawn(Command::new(&program).args(words), &one)?;
    let at = first.after("listening on ", MARGIN)?;
    let second = Running::spawn(Command::new(&program).args(words).args(["--call", &at]), &other)?;
    Ok([first, second])
}

/// Says where this process listens, for [`pair`].
pub fn said(address: SocketAddr) {
    itg_cli::say(format_args!("listening on {address}"));
}
