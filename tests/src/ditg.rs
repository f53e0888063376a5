//! D-ITG's own programs, the other side of tests.

use std::path::{Path, PathBuf};
use std::time::Duration;

use itg_testkit::child::Running;
use itg_testkit::host::{has_socket, leave_out, not_run, wait_for};

/// Directory of Debian's package of D-ITG.
const FOLDER: &str = "/usr/bin";

/// The path of one of D-ITG's programs.
#[must_use]
pub fn real(name: &str) -> PathBuf {
    Path::new(FOLDER).join(name)
}

/// Returns true if a test that needs root and D-ITG is left out.
#[must_use]
#[track_caller]
pub fn not_run_without_d_itg() -> bool {
    if not_run() {
        return true;
    }
    if ["ITGSend", "ITGRecv", "ITGLog", "ITGDec"].iter().all(|name| real(name).is_file()) {
        return false;
    }
    leave_out("D-ITG's programs (apt-get install d-itg)");
    true
}

/// Waits until a program listens on this TCP port, of its own network namespace.
#[track_caller]
pub fn listens(running: &Running, port: u16) {
    let what = format!("port {port} to be open");
    wait_for(&what, Duration::from_secs(90), || is_listening(running, port));
}

/// Returns true if a program listens on this TCP port, of its own network namespace.
#[must_use]
pub fn is_listening(running: &Running, port: u16) -> bool {
    has_socket(running.pid(), "tcp", port, Some("0A"))
}

/// Waits until this UDP port is open in the program's network namespace.
#[track_caller]
pub fn takes_datagrams(running: &Running, port: u16) {
    let what = format!("UDP port {port} to be open");
    wait_for(&what, Duration::from_secs(90), || has_socket(running.pid(), "udp", port, None));
}

/// Output of `ITGDec` for a log, without its two lines of version.
#[track_caller]
#[must_use]
pub fn itgdec(program: &Path, log: &Path) -> String {
    let mut command = std::process::Command::new(program);
    let done = Running::start(command.arg(log)).finish(Duration::from_secs(90)).exits(0);
    done.out.lines().skip(2).map(|line| format!("{line}\n")).collect()
}
