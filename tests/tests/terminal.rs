//! The receiver on a terminal: flows while they run, results when they have ended, and a terminal that takes nothing.

use std::fs::File;
use std::io::Read as _;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use itg_tests::{program, send};
use nix::pty::{Winsize, openpty};
use nix::sys::signal::{Signal, kill};
use nix::sys::termios::{FlowArg, tcflow};
use nix::unistd::Pid;

/// Long enough for any run of these tests on any machine.
const PATIENCE: Duration = Duration::from_secs(90);
/// A draw takes the lines of the one before away.
const AWAY: &str = "F\x1b[J";

struct OnTerminal {
    child: Child,
    slave: File,
    seen: Arc<Mutex<Vec<u8>>>,
}

impl OnTerminal {
    fn start(term: &str) -> Self {
        Self::sized(term, (24, 80))
    }

    fn sized(term: &str, (ws_row, ws_col): (u16, u16)) -> Self {
        let size = Winsize { ws_row, ws_col, ws_xpixel: 0, ws_ypixel: 0 };
        let pty = openpty(Some(&size), None).expect("a pseudo-terminal");
        let slave = File::from(pty.slave);
        let end = || Stdio::from(slave.try_clone().expect("a copy"));
        let child = Command::new(program("itg-recv"))
            .args(["--listen", "127.0.0.1:0", "--data-port", "0"])
            .env("TERM", term)
            .stdin(Stdio::null())
            .stdout(end())
            .stderr(end())
            .spawn()
            .expect("itg-recv");
        let seen = Arc::<Mutex<Vec<u8>>>::default();
        let (mut master, kept) = (File::from(pty.master), Arc::clone(&seen));
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = master.read(&mut bytes) {
                kept.lock().expect("whole").extend_from_slice(&bytes[..count]);
            }
        });
        Self { child, slave, seen }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.seen.lock().expect("whole")).into_owned()
    }

    #[track_caller]
    fn wait_for(&self, what: &str, is_there: impl Fn(&str) -> bool) -> String {
        let begun = Instant::now();
        loop {
            let text = self.text();
            if is_there(&text) {
                return text;
            }
            assert!(begun.elapsed() < PATIENCE, "no {what}: {text}");
            sleep(Duration::from_millis(20));
        }
    }

    /// Where it listens.
    fn at(&self) -> String {
        let text = self.wait_for("address", |text| text.contains("; end with"));
        let (_, rest) = text.split_once("waiting for senders on ").expect("just found");
        rest.split([' ', ';']).next().expect("an address").to_owned()
    }

    fn interrupt(&self) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).expect("a process"));
        kill(pid, Signal::SIGINT).expect("interrupted");
    }

    #[track_caller]
    fn exit_code(&mut self) -> Option<i32> {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("a child") {
                return status.code();
            }
            assert!(begun.elapsed() < PATIENCE, "it does not end: {}", self.text());
            sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for OnTerminal {
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(Some(_))) {
            self.child.kill().expect("killed");
            self.child.wait().expect("reaped");
        }
    }
}

#[test]
fn a_terminal_shows_what_is_received_and_then_the_result() {
    let mut receiver = OnTerminal::start("xterm");
    let at = receiver.at();
    send(&[&at, "--rate", "500pps", "--size", "250", "-t", "4"]).exits(0);
    let text = receiver.wait_for("result", |text| text.contains("fidelity"));
    // Four whole seconds have three draws at least that see a second with all of its packets.
    let drawn: Vec<_> =
        text.lines().filter(|line| line.contains("127.0.0.1  udp") && line.contains('█')).collect();
    assert!(drawn.len() >= 3, "{text}");
    let rates = drawn.iter().filter_map(|line| line.split_whitespace().nth(4)?.parse().ok());
    assert!(rates.clone().any(|rate: f64| (rate - 500.0).abs() < 50.0), "{drawn:?}");
    assert!(text.contains("p99 ms") && text.contains(AWAY), "{text}");
    for line in &drawn {
        let line = line.trim_end().split('\x1b').next().expect("a part");
        assert!(line.chars().count() <= 80, "no column is cut: {line}");
    }
    receiver.interrupt();
    assert_eq!(receiver.exit_code(), Some(130));
    let text = receiver.wait_for("last words", |text| text.contains("served 1 senders"));
    let (_, rest) = text.rsplit_once("fidelity").expect("the result");
    assert!(!rest.contains("p99 ms"), "nothing is drawn any more: {rest}");
}

#[test]
fn a_terminal_that_cannot_draw_gets_lines_alone() {
    // One without any size is that of `script` in a pipe.
    for (term, size) in [("dumb", (24, 80)), ("xterm", (0, 0))] {
        let mut receiver = OnTerminal::sized(term, size);
        send(&[&receiver.at(), "--rate", "100pps", "-t", "2"]).exits(0);
        let text = receiver.wait_for("result", |text| text.contains("fidelity"));
        assert!(!text.contains('\x1b'), "{term} {size:?}: {text}");
        receiver.interrupt();
        assert_eq!(receiver.exit_code(), Some(130));
    }
}

#[test]
fn a_terminal_that_stands_still_holds_nothing_up() {
    let mut receiver = OnTerminal::start("xterm");
    let at = receiver.at();
    tcflow(&receiver.slave, FlowArg::TCOOFF).expect("output stands still");
    for _ in 0..2 {
        let done = send(&[&at, "--rate", "500pps", "-t", "2", "-v"]).exits(0);
        assert!(done.out.contains("both sides agree"), "{done}");
    }
    receiver.interrupt();
    // The words at its end wait for the terminal, as those of any program do.
    sleep(Duration::from_secs(1));
    tcflow(&receiver.slave, FlowArg::TCOON).expect("output goes on");
    receiver.wait_for("last words", |text| text.contains("served 2 senders"));
    assert_eq!(receiver.exit_code(), Some(130));
}

/// As a lost ssh connection does it: the terminal is gone, and its programs get SIGHUP.
#[test]
fn programs_whose_terminal_is_gone_end_in_order() {
    let dir = itg_tests::temp_dir();
    let log = dir.path().join("s.itg");
    let receiver = itg_tests::Receiver::start(&["-v"]);
    let pty = openpty(None, None).expect("a pseudo-terminal");
    let slave = File::from(pty.slave);
    let end = || Stdio::from(slave.try_clone().expect("a copy"));
    let mut child = Command::new(program("itg-send"))
        .args([receiver.at().as_str(), "--duration", "60s", "--log"])
        .arg(&log)
        .stdin(end())
        .stdout(end())
        .stderr(end())
        .spawn()
        .expect("itg-send");
    drop(slave);
    drop(receiver.running.line_with(" flows", PATIENCE));
    sleep(Duration::from_millis(500));
    drop(pty.master);
    // It is not the one of its session here, so that nobody else tells it.
    let pid = Pid::from_raw(i32::try_from(child.id()).expect("a number"));
    kill(pid, Signal::SIGHUP).expect("it runs");
    let ended = child.wait().expect("ours");
    assert_eq!(ended.code(), Some(129), "{ended}");
    let whole = itg_tests::decode(&[&log]).exits(0);
    assert!(whole.out.contains("interrupted by SIGHUP"), "{whole}");
    receiver.stop();
}
