//! The live view on a terminal: a pseudo-terminal that answers or does not, with and without keys
//! typed, and one that stands still.
#![allow(missing_docs, reason = "tests")]

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use itg_tests::program;
use nix::pty::{Winsize, openpty};
use nix::sys::termios::{FlowArg, LocalFlags, tcflow, tcgetattr};

/// A question for the place of the cursor, and an answer.
const QUESTION: &[u8] = b"\x1b[6n";
const ANSWER: &[u8] = b"\x1b[1;1R";
/// The view takes the screen, and gives it back.
const TAKEN: &str = "\x1b[?1049h";
const GIVEN_BACK: &str = "\x1b[?1049l";
/// Long enough for any run of these tests on any machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// The other side of the terminal.
#[derive(Clone, Copy, Default)]
struct Person {
    answers: bool,
    types: bool,
}

/// A run of an experiment on a terminal.
struct OnTerminal {
    child: Child,
    master: File,
    /// Kept open: at its last close what is still to be read is lost.
    slave: OwnedFd,
    seen: Arc<Mutex<Vec<u8>>>,
    over: Arc<AtomicBool>,
    out: PathBuf,
}

impl OnTerminal {
    fn start(dir: &Path, name: &str, seconds: u32, person: Person) -> Self {
        Self::on((dir, name), seconds, person, ("xterm", (24, 100)))
    }

    fn on(
        (dir, name): (&Path, &str),
        seconds: u32,
        person: Person,
        (term, (ws_row, ws_col)): (&str, (u16, u16)),
    ) -> Self {
        let file = dir.join(format!("{name}.toml"));
        let text = format!(
            "schema = 1\nname = '{name}'\nseed = 1\nduration = '{seconds}s'\n[[flow]]\nrate = '50pps'\nsize = 100\n"
        );
        std::fs::write(&file, text).expect("written");
        let out = dir.join(name);
        let size = Winsize { ws_row, ws_col, ws_xpixel: 0, ws_ypixel: 0 };
        let pty = openpty(Some(&size), None).expect("a pseudo-terminal");
        let end = || Stdio::from(pty.slave.try_clone().expect("a copy"));
        // The terminal is the controlling one of a session of its own, and the program is in its foreground.
        let child = Command::new("setsid")
            .arg("--ctty")
            .arg(program("itg-cluster"))
            .args(["run", "--local", "--out"])
            .arg(&out)
            .arg(&file)
            .env("TERM", term)
            .stdin(end())
            .stdout(end())
            .stderr(end())
            .spawn()
            .expect("setsid of util-linux");
        let master = File::from(pty.master);
        let (seen, over) = (Arc::default(), Arc::new(AtomicBool::new(false)));
        let run = Self { child, master, slave: pty.slave, seen, over, out };
        run.read(person.answers);
        if person.types {
            run.type_now_and_then();
        }
        run
    }

    fn read(&self, answers: bool) {
        let mut master = self.master.try_clone().expect("a copy");
        let seen = Arc::clone(&self.seen);
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            let mut questions = 0;
            while let Ok(count @ 1..) = master.read(&mut bytes) {
                let mut seen = seen.lock().expect("whole");
                seen.extend_from_slice(&bytes[..count]);
                let asked = seen.windows(QUESTION.len()).filter(|w| *w == QUESTION).count();
                drop(seen);
                if answers {
                    for _ in questions..asked {
                        master.write_all(ANSWER).expect("answered");
                    }
                }
                questions = asked;
            }
        });
    }

    /// Letters that mean nothing, an arrow, a key of the mouse.
    fn type_now_and_then(&self) {
        let mut master = self.master.try_clone().expect("a copy");
        let over = Arc::clone(&self.over);
        thread::spawn(move || {
            for keys in ["x", "\x1b[A", " ", "\x1b[M !!", "\r"].iter().cycle() {
                if over.load(Ordering::Relaxed) || master.write_all(keys.as_bytes()).is_err() {
                    return;
                }
                sleep(Duration::from_millis(50));
            }
        });
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.seen.lock().expect("whole")).into_owned()
    }

    #[track_caller]
    fn wait_for(&self, what: &str, is_there: impl Fn() -> bool) {
        let begun = Instant::now();
        while !is_there() {
            assert!(begun.elapsed() < PATIENCE, "no {what}: {}", self.text());
            sleep(Duration::from_millis(20));
        }
    }

    /// Waits for its end; its exit status, and all that was on the terminal.
    #[track_caller]
    fn end(mut self) -> (ExitStatus, String) {
        let begun = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("a child") {
                break status;
            }
            assert!(begun.elapsed() < PATIENCE, "it does not end: {}", self.text());
            sleep(Duration::from_millis(20));
        };
        self.over.store(true, Ordering::Relaxed);
        // What it has written is all there once its last words are.
        self.wait_for("last words", || self.text().contains("logs, report and manifest are in"));
        let modes = tcgetattr(&self.slave).expect("a terminal").local_flags;
        assert!(
            modes.contains(LocalFlags::ECHO | LocalFlags::ICANON),
            "keys are as before: {modes:?}"
        );
        assert!(self.out.join("report.html").exists(), "a report: {}", self.text());
        (status, self.text())
    }
}

impl Drop for OnTerminal {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if !matches!(self.child.try_wait(), Ok(Some(_))) {
            self.child.kill().expect("killed");
            self.child.wait().expect("reaped");
        }
    }
}

#[test]
fn a_run_that_outlasts_forty_draws_ends_with_its_report_on_any_terminal() {
    let dir = tempfile::tempdir().expect("a directory");
    let people = [(false, false), (false, true), (true, false), (true, true)];
    thread::scope(|scope| {
        for (place, (answers, types)) in people.into_iter().enumerate() {
            let dir = dir.path();
            scope.spawn(move || {
                let person = Person { answers, types };
                let run = OnTerminal::start(dir, &format!("run-{place}"), 25, person);
                let (status, text) = run.end();
                let who = format!("answers {answers}, types {types}: {text}");
                assert_eq!(status.code(), Some(0), "{who}");
                assert!(!text.contains("\x1b[6n"), "the terminal is asked for its cursor: {who}");
                let (view, rest) = text.split_once(GIVEN_BACK).expect("the terminal is given back");
                assert!(view.contains(TAKEN) && view.contains("\x1b[?25l"), "{who}");
                // The 40th draw draws everything anew, and others follow.
                let (_, anew) = view.split_once("\x1b[2J").expect("drawn anew");
                assert!(anew.contains("missing"), "{who}");
                assert!(
                    anew.matches("\x1b[?25l").count() >= 2,
                    "each draw hides the cursor: {who}"
                );
                assert!(rest.contains("  fidelity"), "the report: {who}");
            });
        }
    });
}

#[test]
fn q_stops_the_run_and_the_report_comes() {
    let dir = tempfile::tempdir().expect("a directory");
    let run = OnTerminal::start(dir.path(), "quit", 100, Person::default());
    run.wait_for("figures", || run.text().contains("packets/s"));
    (&run.master).write_all(b"q").expect("typed");
    let (status, text) = run.end();
    assert_eq!(status.code(), Some(130), "{text}");
    assert!(
        text.split_once(GIVEN_BACK).is_some_and(|(_, rest)| rest.contains("  fidelity")),
        "{text}"
    );
}

#[test]
fn a_terminal_that_cannot_draw_gets_lines_alone() {
    let dir = tempfile::tempdir().expect("a directory");
    for (name, term) in [("dumb", ("dumb", (24, 100))), ("sizeless", ("xterm", (0, 0)))] {
        let run = OnTerminal::on((dir.path(), name), 2, Person::default(), term);
        let (status, text) = run.end();
        assert_eq!(status.code(), Some(0), "{name}: {text}");
        assert!(!text.contains('\x1b'), "{name}: {text}");
        assert!(text.contains("both sides agree"), "the words of any file: {name}: {text}");
    }
}

#[test]
fn numbers_are_whole_on_a_narrow_terminal() {
    let dir = tempfile::tempdir().expect("a directory");
    let run = OnTerminal::on((dir.path(), "narrow"), 4, Person::default(), ("xterm", (24, 50)));
    let (status, text) = run.end();
    assert_eq!(status.code(), Some(0), "{text}");
    let (view, _) = text.split_once(GIVEN_BACK).expect("the terminal is given back");
    // The path has no room, the largest lateness has, under its name.
    assert!(view.contains("late max") && !view.contains("local > local"), "{view}");
    assert!(view.contains("kbit/s"), "the rate is whole: {view}");
}

#[test]
fn a_terminal_that_stands_still_does_not_hold_up_the_run() {
    let dir = tempfile::tempdir().expect("a directory");
    let run = OnTerminal::start(dir.path(), "frozen", 6, Person::default());
    run.wait_for("view", || run.text().contains(TAKEN));
    tcflow(&run.slave, FlowArg::TCOOFF).expect("stopped");
    run.wait_for("report", || run.out.join("report.html").exists());
    assert!(!run.text().contains(GIVEN_BACK), "{}", run.text());
    tcflow(&run.slave, FlowArg::TCOON).expect("goes on");
    let (status, text) = run.end();
    assert_eq!(status.code(), Some(0), "{text}");
    let (_, rest) = text.split_once(GIVEN_BACK).expect("the terminal is given back");
    assert!(rest.contains("  fidelity"), "the report stands behind the view: {text}");
}
