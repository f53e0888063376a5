//! Child processes: started, heard, ended within a deadline, reaped, with their CPU time.
//!
//! Measurements take the functions that return a `Result`, tests those that panic with the words of the child.

use std::ffi::OsStr;
use std::fmt;
use std::io::{self, Read};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::host::has_socket;

/// Time that a child may take until it listens, on a busy machine.
const READY: Duration = Duration::from_secs(90);
/// Time between two looks whether a child has ended.
const LOOK: Duration = Duration::from_millis(3);
/// Time that the last words of a child may take.
const LAST_WORDS: Duration = Duration::from_secs(60);
/// The same where a grandchild may keep the pipes open.
const SHORTLY: Duration = Duration::from_secs(2);

/// Output that came out of a pipe so far.
#[derive(Debug, Default)]
struct Words {
    bytes: Mutex<Vec<u8>>,
    /// True when no more comes: written while `bytes` is locked.
    over: AtomicBool,
    more: Condvar,
}

impl Words {
    fn text(&self) -> String {
        String::from_utf8_lossy(&lock(&self.bytes)).into_owned()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn gather(mut pipe: impl Read + Send + 'static) -> (Arc<Words>, JoinHandle<()>) {
    let words = Arc::new(Words::default());
    let ours = Arc::clone(&words);
    let thread = thread::spawn(move || {
        let mut piece = [0; 65_536];
        while let Ok(got @ 1..) = pipe.read(&mut piece) {
            lock(&ours.bytes).extend_from_slice(&piece[..got]);
            ours.more.notify_all();
        }
        let bytes = lock(&ours.bytes);
        ours.over.store(true, Ordering::Relaxed);
        drop(bytes);
        ours.more.notify_all();
    });
    (words, thread)
}

/// Starts a command. A program that a test has just copied is busy while another thread starts its own child:
/// that child has the copy open for writing until it runs its program.
fn start(command: &mut Command) -> io::Result<Child> {
    let deadline = Instant::now() + SHORTLY;
    loop {
        match command.spawn() {
            Err(error)
                if error.kind() == io::ErrorKind::ExecutableFileBusy
                    && Instant::now() < deadline =>
            {
                thread::sleep(LOOK);
            }
            started => return started,
        }
    }
}

/// Runs a command to its end: exit code, stdout and stderr.
#[track_caller]
#[must_use]
pub fn said(command: &mut Command) -> (Option<i32>, String, String) {
    let done = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (done.status.code(), text(done.stdout), text(done.stderr))
}

/// Processes that a process has started, by any of its threads; none of one that is gone.
#[must_use]
pub fn children(parent: u32) -> Vec<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{parent}/task")).into_iter().flatten().flatten();
    let read = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("children"));
    let text: Vec<String> = tasks.filter_map(|task| read(task).ok()).collect();
    text.join(" ").split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

/// Result of a child that has ended.
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
    /// User and system time of the process and of the children that it has reaped, if no other child of this process
    /// was reaped meanwhile.
    pub cpu: Duration,
}

impl Output {
    /// Asserts the exit code, showing all words when it is another one.
    #[track_caller]
    pub fn exits(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "exit code of {self}");
        self
    }

    /// Passes on a child that ended with one of these codes.
    ///
    /// # Errors
    /// Another code: the error has all words.
    pub fn ended_with(self, codes: &[i32]) -> Result<Self> {
        let right = self.code.is_some_and(|code| codes.contains(&code));
        ensure!(right, "`{}` ended with {:?}:\n{}{}", self.command, self.code, self.out, self.err);
        Ok(self)
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

impl fmt::Display for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "`{}`: code {:?}, signal {:?}", self.command, self.code, self.signal)?;
        writeln!(f, "-- stdout\n{}-- stderr\n{}", self.out, self.err)
    }
}

/// A child whose output nobody reads here; killed and reaped when dropped.
#[derive(Debug)]
pub struct Kept(pub Child);

impl Kept {
    /// Waits for its end: its exit code, `None` after a signal.
    #[track_caller]
    pub fn code(&mut self, limit: Duration) -> Option<i32> {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(status) = self.0.try_wait().expect("a child of this process") {
                return status.code();
            }
            assert!(Instant::now() < deadline, "child {} runs after {limit:?}", self.0.id());
            thread::sleep(LOOK);
        }
    }

    /// Sends it a signal.
    ///
    /// # Errors
    /// A process that is gone.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        Ok(kill(Pid::from_raw(i32::try_from(self.0.id())?), signal)?)
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        // Both fail only when it has ended and been reaped.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// A child that runs; killed and reaped when dropped.
#[derive(Debug)]
pub struct Running {
    command: String,
    child: Kept,
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
        match Self::spawn(command, &[]) {
            Ok(running) => running,
            Err(error) => panic!("{error:#}"),
        }
    }

    /// The same; on these processors, if any are named.
    ///
    /// # Errors
    /// A command that cannot be started.
    pub fn spawn(command: &mut Command, cpus: &[usize]) -> Result<Self> {
        let words: Vec<_> =
            std::iter::once(command.get_program()).chain(command.get_args()).collect();
        let text = words.join(OsStr::new(" ")).to_string_lossy().into_owned();
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let started = Instant::now();
        let child = on(cpus, || start(command).with_context(|| format!("starting `{text}`")))?;
        let mut child = Kept(child);
        let (out, out_thread) = gather(child.0.stdout.take().context("stdout is piped")?);
        let (err, err_thread) = gather(child.0.stderr.take().context("stderr is piped")?);
        let threads = vec![out_thread, err_thread];
        Ok(Self { command: text, child, started, out, err, threads })
    }

    /// Its process number.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.0.id()
    }

    /// Sends it a signal.
    #[track_caller]
    pub fn signal(&self, signal: Signal) {
        let sent = self.child.signal(signal);
        sent.unwrap_or_else(|error| panic!("{signal} to `{}`: {error}", self.command));
    }

    /// Its stderr so far.
    #[must_use]
    pub fn err(&self) -> String {
        self.err.text()
    }

    /// Returns true while it runs.
    pub fn runs(&mut self) -> bool {
        self.child.0.try_wait().expect("a child of this process").is_none()
    }

    /// Waits until a whole line on stderr contains these words, and returns the line.
    #[track_caller]
    #[must_use]
    pub fn line_with(&self, words: &str, limit: Duration) -> String {
        match self.line(words, limit) {
            Ok(line) => line,
            Err(error) => panic!("{error}"),
        }
    }

    /// The same; returns what follows the words.
    ///
    /// # Errors
    /// Words that do not come in time.
    pub fn after(&self, words: &str, limit: Duration) -> Result<String> {
        let line = self.line(words, limit)?;
        Ok(line.split_once(words).map(|(_, rest)| rest.to_owned()).unwrap_or_default())
    }

    fn line(&self, words: &str, limit: Duration) -> Result<String> {
        let deadline = Instant::now() + limit;
        let mut bytes = lock(&self.err.bytes);
        loop {
            let text = String::from_utf8_lossy(&bytes);
            let mut lines = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
            if let Some(line) = lines.find(|line| line.contains(words)) {
                return Ok(line.trim_end().to_owned());
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let command = &self.command;
            ensure!(!left.is_zero(), "`{command}` did not say {words:?} in {limit:?}:\n{text}");
            let over = self.err.over.load(Ordering::Relaxed);
            ensure!(!over, "`{command}` ended and did not say {words:?}:\n{text}");
            drop(text);
            let waited = self.err.more.wait_timeout(bytes, left);
            bytes = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Waits until it, or another process in its place on the network, listens on a port of UDP or
    /// TCP: without sending anything there, which some would count.
    ///
    /// # Errors
    /// A port that is not open in time.
    pub fn wait_for_port(&self, port: u16) -> Result<()> {
        let deadline = Instant::now() + READY;
        let open = |table, state| has_socket(self.pid(), table, port, Some(state));
        // States: 0A listening, 07 unconnected.
        while !open("tcp", "0A") && !open("udp", "07") {
            let late = Instant::now() >= deadline;
            ensure!(!late, "`{}` does not listen on port {port}:\n{}", self.command, self.err());
            thread::sleep(LOOK);
        }
        Ok(())
    }

    /// Waits for its end; a child that takes longer is killed, and the test fails.
    #[track_caller]
    #[must_use]
    pub fn finish(self, limit: Duration) -> Output {
        match self.end(limit, LAST_WORDS) {
            Ok(output) => output,
            Err(error) => panic!("{error}"),
        }
    }

    /// The same; what grandchildren say that live longer is not waited for.
    ///
    /// # Errors
    /// A child that does not end in time.
    pub fn wait(self, limit: Duration) -> Result<Output> {
        self.end(limit, SHORTLY)
    }

    /// Sends a signal and [waits](Self::wait) for its end.
    ///
    /// # Errors
    /// A child that is gone, or does not end in time.
    pub fn stop(self, signal: Signal, limit: Duration) -> Result<Output> {
        self.child.signal(signal)?;
        self.wait(limit)
    }

    fn end(mut self, limit: Duration, last_words: Duration) -> Result<Output> {
        let deadline = Instant::now() + limit;
        let (status, cpu) = loop {
            // The system counts a child when it is reaped, which is here and by one thread only.
            let before = reaped()?;
            if let Some(status) = self.child.0.try_wait()? {
                break (status, reaped()?.saturating_sub(before));
            }
            if Instant::now() >= deadline {
                let (command, out, err) = (&self.command, self.out.text(), self.err.text());
                bail!("`{command}` did not end within {limit:?}\n-- stdout\n{out}-- stderr\n{err}");
            }
            thread::sleep(LOOK);
        };
        let took = self.started.elapsed();
        let deadline = Instant::now() + last_words;
        while Instant::now() < deadline && self.threads.iter().any(|thread| !thread.is_finished()) {
            thread::sleep(LOOK);
        }
        Ok(Output {
            command: self.command.clone(),
            code: status.code(),
            signal: status.signal(),
            out: self.out.text(),
            err: self.err.text(),
            took,
            cpu,
        })
    }
}

/// CPU time of all children that have been reaped.
fn reaped() -> Result<Duration> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let micros = [usage.user_time(), usage.system_time()]
        .iter()
        .map(|time| time.tv_sec() * 1_000_000 + time.tv_usec())
        .sum::<i64>();
    Ok(Duration::from_micros(micros.unsigned_abs()))
}

/// Runs this on some processors only, as far as they exist; what it starts stays there.
fn on<T>(cpus: &[usize], work: impl FnOnce() -> Result<T>) -> Result<T> {
    let this = Pid::from_raw(0);
    let before = sched_getaffinity(this)?;
    let mut chosen = CpuSet::new();
    let mut any = false;
    for &cpu in cpus {
        if before.is_set(cpu).unwrap_or(false) {
            chosen.set(cpu)?;
            any = true;
        }
    }
    if any {
        sched_setaffinity(this, &chosen)?;
    }
    let done = work();
    sched_setaffinity(this, &before)?;
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(20);

    fn shell(script: &str) -> Running {
        Running::start(Command::new("sh").args(["-c", script]))
    }

    #[test]
    fn a_child_is_heard_and_reaped_with_its_cpu_time() {
        let child = shell("echo ready at 5 >&2; i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done");
        assert_eq!(child.line_with("ready", LIMIT), "ready at 5");
        assert_eq!(child.after("ready at ", LIMIT).expect("said"), "5");
        let done = child.finish(LIMIT).exits(0);
        assert!(done.cpu > Duration::ZERO);
    }

    #[test]
    fn a_child_that_does_not_end_is_killed() {
        let limit = Duration::from_millis(50);
        let error = shell("sleep 60").wait(limit).expect_err("too long").to_string();
        assert!(error.contains("did not end within 50ms"), "{error}");
        let done = shell("exec sleep 60").stop(Signal::SIGTERM, LIMIT).expect("ends");
        assert_eq!((done.code, done.signal), (None, Some(15)));
    }

    #[test]
    fn another_exit_code_shows_the_words() {
        let done = shell("echo why >&2; exit 3").wait(LIMIT).expect("ends");
        assert!(done.ended_with(&[0, 1]).expect_err("3").to_string().contains("why"));
    }

    #[test]
    fn a_child_that_has_ended_is_not_waited_for() {
        let began = Instant::now();
        let error = shell("echo no >&2").after("yes", READY).expect_err("never").to_string();
        assert!(error.contains("ended and did not say \"yes\":\nno"), "{error}");
        assert!(began.elapsed() < READY / 3);
        assert_eq!(shell("echo yes it says >&2").after("yes ", READY).expect("said"), "it says");
    }
}
