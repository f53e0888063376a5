//! Programs that run beside the test, with deadlines.

use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// The path of one of ITG's programs.
#[must_use]
pub fn program(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("the test's own path");
    let built = test.parent().and_then(Path::parent).expect("target/debug/deps/test");
    let path = built.join(name);
    assert!(
        path.is_file(),
        "{} is not built: run `cargo test --workspace`, or `cargo build -p {name}` first",
        path.display()
    );
    path
}

/// What a program has done.
#[derive(Debug)]
pub struct Output {
    /// The command, for messages.
    pub command: String,
    /// Exit code; `None` when a signal killed it.
    pub code: Option<i32>,
    /// The signal that killed it.
    pub signal: Option<i32>,
    /// All of stdout.
    pub out: String,
    /// All of stderr.
    pub err: String,
    /// From its start to its end.
    pub took: Duration,
}

impl Output {
    /// Asserts the exit code, showing all words when it is another one.
    #[track_caller]
    pub fn exits(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "exit code of {self}");
        self
    }

    /// Asserts that stderr says this.
    #[track_caller]
    pub fn says(self, words: &str) -> Self {
        assert!(self.err.contains(words), "stderr lacks {words:?}: {self}");
        self
    }

    /// Asserts that it took less than this.
    #[track_caller]
    pub fn within(self, limit: Duration) -> Self {
        assert!(self.took < limit, "took {:?}, more than {limit:?}: {self}", self.took);
        self
    }
}

impl std::fmt::Display for Output {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "`{}`: code {:?}, signal {:?}", self.command, self.code, self.signal)?;
        writeln!(f, "-- stdout\n{}-- stderr\n{}", self.out, self.err)
    }
}

/// What has come out of a pipe so far.
#[derive(Debug, Default)]
struct Words {
    bytes: Mutex<Vec<u8>>,
    more: Condvar,
}

impl Words {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes.lock().expect("reader")).into_owned()
    }
}

fn gather(mut pipe: impl Read + Send + 'static) -> (Arc<Words>, JoinHandle<()>) {
    let words = Arc::new(Words::default());
    let ours = Arc::clone(&words);
    let thread = thread::spawn(move || {
        let mut piece = [0; 65_536];
        while let Ok(got @ 1..) = pipe.read(&mut piece) {
            ours.bytes.lock().expect("reader").extend_from_slice(&piece[..got]);
            ours.more.notify_all();
        }
    });
    (words, thread)
}

/// A program that runs; killed and reaped when dropped.
#[derive(Debug)]
pub struct Running {
    command: String,
    child: Child,
    started: Instant,
    out: Arc<Words>,
    err: Arc<Words>,
    threads: Vec<JoinHandle<()>>,
}

impl Running {
    /// Starts a command with nothing on stdin.
    #[track_caller]
    #[must_use]
    pub fn start(command: &mut Command) -> Self {
        let words: Vec<_> =
            std::iter::once(command.get_program()).chain(command.get_args()).collect();
        let text = words.join(OsStr::new(" ")).to_string_lossy().into_owned();
        let started = Instant::now();
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start `{text}`: {error}"));
        let (out, out_thread) = gather(child.stdout.take().expect("stdout is piped"));
        let (err, err_thread) = gather(child.stderr.take().expect("stderr is piped"));
        let threads = vec![out_thread, err_thread];
        Self { command: text, child, started, out, err, threads }
    }

    /// Its process number.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.pid()).expect("a process number"));
        kill(pid, signal).unwrap_or_else(|error| panic!("{signal} to `{}`: {error}", self.command));
    }

    /// What it has said on stderr so far.
    #[must_use]
    pub fn err(&self) -> String {
        self.err.text()
    }

    /// Waits until a whole line on stderr contains these words, and returns the line.
    #[track_caller]
    #[must_use]
    pub fn line_with(&self, words: &str, limit: Duration) -> String {
        let deadline = Instant::now() + limit;
        let mut bytes = self.err.bytes.lock().expect("reader");
        loop {
            let text = String::from_utf8_lossy(&bytes);
            let mut lines = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
            if let Some(line) = lines.find(|line| line.contains(words)) {
                return line.trim_end().to_owned();
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let command = &self.command;
            assert!(!left.is_zero(), "`{command}` did not say {words:?} in {limit:?}:\n{text}");
            drop(text);
            bytes = self.err.more.wait_timeout(bytes, left).expect("reader").0;
        }
    }

    /// Whether it still runs.
    pub fn runs(&mut self) -> bool {
        self.ended().is_none()
    }

    fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("a child of this process")
    }

    /// Waits for its end; a program that takes longer is killed, and the test fails.
    #[track_caller]
    #[must_use]
    pub fn finish(mut self, limit: Duration) -> Output {
        let deadline = Instant::now() + limit;
        let status = loop {
            if let Some(status) = self.ended() {
                break status;
            }
            let (command, out, err) = (&self.command, self.out.text(), self.err.text());
            assert!(
                Instant::now() < deadline,
                "`{command}` did not end within {limit:?}\n-- stdout\n{out}-- stderr\n{err}"
            );
            thread::sleep(Duration::from_millis(2));
        };
        let took = self.started.elapsed();
        for thread in self.threads.drain(..) {
            thread.join().expect("reader");
        }
        Output {
            command: self.command.clone(),
            code: status.code(),
            signal: status.signal(),
            out: self.out.text(),
            err: self.err.text(),
            took,
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail only when it has ended and been reaped.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
