//! Child processes: started, heard, ended within a deadline, reaped, with their CPU time.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::programs::READY;

/// How often a child is asked whether it has ended.
const LOOK: Duration = Duration::from_millis(3);

/// What came out of a pipe so far.
#[derive(Debug, Default)]
struct Words {
    bytes: Mutex<Vec<u8>>,
    more: Condvar,
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
    });
    (words, thread)
}

/// A child that runs; killed and reaped when dropped.
#[derive(Debug)]
pub(crate) struct Running {
    command: String,
    child: Child,
    out: Arc<Words>,
    err: Arc<Words>,
    threads: Vec<JoinHandle<()>>,
}

/// A child that has ended.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) command: String,
    /// Exit code; `None` after a signal.
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
    /// User and system time of the process and of the children that it has reaped.
    pub(crate) cpu: Duration,
}

impl Done {
    /// Passes on a child that ended with one of these codes.
    pub(crate) fn exits(self, codes: &[i32]) -> Result<Self> {
        let right = self.code.is_some_and(|code| codes.contains(&code));
        ensure!(right, "`{}` ended with {:?}:\n{}{}", self.command, self.code, self.out, self.err);
        Ok(self)
    }
}

impl Running {
    /// Starts a command with nothing on stdin; on these processors, if any are named.
    pub(crate) fn start(command: &mut Command, cpus: &[usize]) -> Result<Self> {
        let words: Vec<_> = std::iter::once(command.get_program())
            .chain(command.get_args())
            .map(|word| word.to_string_lossy())
            .collect();
        let text = words.join(" ");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = on(cpus, || command.spawn().with_context(|| format!("starting `{text}`")))?;
        let (out, out_thread) = gather(child.stdout.take().context("stdout is piped")?);
        let (err, err_thread) = gather(child.stderr.take().context("stderr is piped")?);
        Ok(Self { command: text, child, out, err, threads: vec![out_thread, err_thread] })
    }

    /// Waits until a line on stderr contains these words, and returns what follows them.
    pub(crate) fn line_with(&self, words: &str, limit: Duration) -> Result<String> {
        let deadline = Instant::now() + limit;
        let mut bytes = lock(&self.err.bytes);
        loop {
            let text = String::from_utf8_lossy(&bytes).into_owned();
            let mut lines = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
            if let Some((_, rest)) = lines.find_map(|line| line.split_once(words)) {
                return Ok(rest.trim_end().to_owned());
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let command = &self.command;
            ensure!(!left.is_zero(), "`{command}` did not say {words:?} in {limit:?}:\n{text}");
            bytes = self
                .err
                .more
                .wait_timeout(bytes, left.min(Duration::from_millis(100)))
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }

    /// Waits until it, or somebody in its place on the network, listens on a port of UDP or TCP: without
    /// saying anything there, which some would count.
    pub(crate) fn wait_for_port(&self, port: u16) -> Result<()> {
        let wanted = format!(":{port:04X} ");
        let deadline = Instant::now() + READY;
        loop {
            // States: 0A listening, 07 unconnected.
            for (table, state) in
                [("tcp", " 0A "), ("tcp6", " 0A "), ("udp", " 07 "), ("udp6", " 07 ")]
            {
                let path = format!("/proc/{}/net/{table}", self.child.id());
                let text = std::fs::read_to_string(path).unwrap_or_default();
                if text.lines().any(|line| line.contains(&wanted) && line.contains(state)) {
                    return Ok(());
                }
            }
            let err = String::from_utf8_lossy(&lock(&self.err.bytes)).into_owned();
            ensure!(
                Instant::now() < deadline,
                "`{}` does not listen on port {port}:\n{err}",
                self.command
            );
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits for its end; one that takes longer is killed, which is a failure.
    pub(crate) fn finish(mut self, limit: Duration) -> Result<Done> {
        let deadline = Instant::now() + limit;
        let (status, cpu) = loop {
            // The system counts a child when it is reaped, which is here and by one thread only.
            let before = reaped()?;
            if let Some(status) = self.child.try_wait()? {
                break (status, reaped()?.saturating_sub(before));
            }
            if Instant::now() >= deadline {
                let err = String::from_utf8_lossy(&lock(&self.err.bytes)).into_owned();
                bail!("`{}` did not end within {limit:?}:\n{err}", self.command);
            }
            thread::sleep(LOOK);
        };
        // A grandchild may keep the pipes open: what it says is not waited for.
        let readers = Instant::now() + Duration::from_secs(2);
        while Instant::now() < readers && self.threads.iter().any(|thread| !thread.is_finished()) {
            thread::sleep(LOOK);
        }
        let text = |words: &Words| String::from_utf8_lossy(&lock(&words.bytes)).into_owned();
        Ok(Done {
            command: self.command.clone(),
            code: status.code(),
            out: text(&self.out),
            err: text(&self.err),
            cpu,
        })
    }

    /// Sends a signal and waits for its end.
    pub(crate) fn stop(self, signal: Signal, limit: Duration) -> Result<Done> {
        kill(Pid::from_raw(i32::try_from(self.child.id())?), signal)?;
        self.finish(limit)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail only when it has ended and been reaped.
        drop(self.child.kill());
        drop(self.child.wait());
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
        Running::start(Command::new("sh").args(["-c", script]), &[]).expect("a shell")
    }

    #[test]
    fn a_child_is_heard_and_reaped_with_its_cpu_time() {
        let child = shell("echo ready at 5 >&2; i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done");
        assert_eq!(child.line_with("ready at ", LIMIT).expect("said"), "5");
        let done = child.finish(LIMIT).expect("ends").exits(&[0]).expect("well");
        assert!(done.cpu > Duration::ZERO);
    }

    #[test]
    fn a_child_that_does_not_end_is_killed() {
        let limit = Duration::from_millis(50);
        let error = shell("sleep 60").finish(limit).expect_err("too long").to_string();
        assert!(error.contains("did not end within 50ms"), "{error}");
        let done = shell("exec sleep 60").stop(Signal::SIGTERM, LIMIT).expect("ends");
        assert_eq!(done.code, None);
    }

    #[test]
    fn another_exit_code_shows_the_words() {
        let done = shell("echo why >&2; exit 3").finish(LIMIT).expect("ends");
        assert!(done.exits(&[0, 1]).expect_err("3").to_string().contains("why"));
    }
}
