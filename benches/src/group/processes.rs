//! Groups of real processes on this host: each is this program again, with a trace.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use itg_process::bootstrap::Ticket;
use itg_process::{Config, Inproc, ProcessContext, Slot, Time, everybody};
use itg_socket::clock::monotonic_ns;
use nix::sys::signal::{Signal, kill};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;
use tempfile::TempDir;

use itg_run::layers;
use itg_run::trace::{self, TraceEvent};

/// Messages that wait for one process of one address space at most.
const IN_PROCESS_INBOX: usize = 1 << 20;
/// The failure-free forms of the thesis, by the number of their steps, and the ordered log.
pub(crate) const ALGORITHMS: [&str; 4] = ["sequencer", "skeen", "chandra-toueg", "log"];
/// Time that processes may take to start, or to end.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// A configuration: processes that all have the same layers but those from `first` on.
pub(crate) fn configuration(
    network: &str,
    processes: u32,
    layers: &str,
    others: Option<(u32, &str)>,
) -> String {
    let mut text = format!(
        "processes = {processes}\ndrain_timeout = \"500ms\"\n[[network]]\nname = \"main\"\nkind = \
         \"{network}\"\n"
    );
    if let Some((first, layers)) = others {
        let last = processes - 1;
        text += &format!("[[process]]\nslots = [{first}, {last}]\nlayers = [{layers}]\n");
    }
    text + &format!("[[process]]\nlayers = [{layers}]\n")
}

/// A process and its trace.
#[derive(Debug)]
struct TracedProcess {
    child: Child,
    trace: PathBuf,
    /// True if it was killed here.
    killed: bool,
}

/// Processes that run; killed and reaped when dropped.
#[derive(Debug)]
pub(crate) struct Group {
    dir: TempDir,
    processes: Vec<TracedProcess>,
}

impl Group {
    /// Starts so many processes of this configuration and waits until all of them run.
    pub(crate) fn start(configuration: &str, processes: u32) -> Result<Self> {
        let dir = tempfile::tempdir().context("a directory")?;
        let file = dir.path().join("run.toml");
        std::fs::write(&file, configuration).context("the configuration")?;
        let mut group = Self { dir, processes: Vec::new() };
        let ticket = group.ticket_path();
        let words = ["--listen", "127.0.0.1:0", "--seed", "1", "--ticket"];
        let first: Vec<_> = [file.as_path()]
            .into_iter()
            .map(Path::as_os_str)
            .chain(words.iter().map(std::ffi::OsStr::new))
            .chain([ticket.as_os_str()])
            .collect();
        let said = group.spawn(&first, Stdio::piped())?;
        let mut reader = BufReader::new(said.context("its words")?);
        let mut line = String::new();
        let at = loop {
            line.clear();
            if reader.read_line(&mut line)? == 0 {
                bail!("process 0 did not start");
            }
            if let Some((_, at)) = line.trim().split_once("listening on ") {
                break at.to_owned();
            }
        };
        // What it says later must not fill the pipe.
        std::thread::spawn(move || std::io::copy(&mut reader, &mut std::io::stderr()));
        for _ in 1..processes {
            group.spawn(&["--quiet", "--join", &at].map(std::ffi::OsStr::new), Stdio::inherit())?;
        }
        group.until("all processes run", |group| {
            Ok((0..processes).all(|slot| group.latest(slot).is_some()))
        })?;
        Ok(group)
    }

    fn ticket_path(&self) -> PathBuf {
        self.dir.path().join("ticket")
    }

    fn spawn(
        &mut self,
        words: &[&std::ffi::OsStr],
        errors: Stdio,
    ) -> Result<Option<std::process::ChildStderr>> {
        let trace = self.dir.path().join(format!("trace-{}.ndjson", self.processes.len()));
        let mut child = Command::new(std::env::current_exe().context("this program")?)
            .arg("process")
            .args(words)
            .arg("--trace")
            .arg(&trace)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(errors)
            .spawn()
            .context("starting a process")?;
        let said = child.stderr.take();
        self.processes.push(TracedProcess { child, trace, killed: false });
        Ok(said)
    }

    /// Waits until this holds.
    pub(crate) fn until(
        &mut self,
        what: &str,
        holds: impl Fn(&Self) -> Result<bool>,
    ) -> Result<()> {
        let deadline = Instant::now() + LIMIT;
        while !holds(self)? {
            for process in self.processes.iter_mut().filter(|process| !process.killed) {
                if let Some(status) = process.child.try_wait()?
                    && !status.success()
                {
                    bail!("waiting until {what}: a process ended with {status}");
                }
            }
            if Instant::now() > deadline {
                bail!("waited {LIMIT:?} in vain until {what}");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// The latest incarnation of a slot that has not been killed, and its number among all
    /// incarnations.
    fn latest(&self, slot: u32) -> Option<usize> {
        let of = |process: &TracedProcess| {
            trace::read(&process.trace).ok()?.first().map(|event| event.process)
        };
        self.processes.iter().rposition(|process| !process.killed && of(process) == Some(slot))
    }

    fn pid(&self, slot: u32) -> Result<Pid> {
        let latest = self.latest(slot).with_context(|| format!("no process {slot}"))?;
        Ok(Pid::from_raw(i32::try_from(self.processes[latest].child.id())?))
    }

    /// Kills a process, or sends it another signal; when, on the monotonic clock.
    pub(crate) fn signal(&mut self, slot: u32, signal: Signal) -> Result<u64> {
        let pid = self.pid(slot)?;
        let latest = self.latest(slot);
        let at = monotonic_ns();
        kill(pid, signal)?;
        if let (Some(latest), Signal::SIGKILL) = (latest, signal) {
            self.processes[latest].killed = true;
            self.processes[latest].child.wait()?;
        }
        Ok(at)
    }

    /// A process that was killed runs again.
    pub(crate) fn come_back(&mut self, slot: u32) -> Result<()> {
        let ticket = std::fs::read_to_string(self.ticket_path()).context("the ticket")?;
        let ticket = Ticket { slot, ..ticket.parse()? };
        let path = self.dir.path().join(format!("ticket-{slot}"));
        std::fs::write(&path, ticket.to_string())?;
        let words = ["--quiet", "--return"].map(std::ffi::OsStr::new);
        self.spawn(&[words[0], words[1], path.as_os_str()], Stdio::inherit())?;
        Ok(())
    }

    /// Events of all incarnations so far, with their slots.
    pub(crate) fn events(&self) -> Result<Vec<(u32, TraceEvent)>> {
        let mut all = Vec::new();
        for process in &self.processes {
            let read = trace::read(&process.trace)?;
            all.extend(read.into_iter().map(|seen| (seen.process, seen)));
        }
        all.sort_by_key(|(_, seen)| seen.at_ns);
        Ok(all)
    }

    /// Waits until all processes have ended by themselves.
    pub(crate) fn finish(mut self) -> Result<Vec<(u32, TraceEvent)>> {
        let deadline = Instant::now() + LIMIT;
        for process in self.processes.iter_mut().filter(|process| !process.killed) {
            loop {
                match process.child.try_wait()? {
                    Some(status) if status.success() => break,
                    Some(status) => bail!("a process ended with {status}"),
                    None if Instant::now() > deadline => bail!("a process did not end"),
                    None => std::thread::sleep(Duration::from_millis(2)),
                }
            }
        }
        self.events()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for process in &mut self.processes {
            // Both fail only for one that has ended and been reaped.
            drop(process.child.kill());
            drop(process.child.wait());
        }
    }
}

/// Nanoseconds that a run in one address space took: by the clock, and of processor time, which the load of the
/// host touches less.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Took {
    pub(crate) ns: u64,
    pub(crate) processor_ns: u64,
}

fn processor_ns() -> Result<u64> {
    let time = Duration::from(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)?);
    Ok(u64::try_from(time.as_nanos())?)
}

/// Runs a configuration in one address space, on one thread, until all processes have stopped: events, and
/// how long that took.
pub(crate) fn in_process(configuration: &str) -> Result<(Vec<(Slot, itg_process::Event)>, Took)> {
    let config = Config::parse(configuration, "bench")?;
    let registry = layers::registry();
    let slots = everybody(config.processes);
    let networks: std::sync::Arc<[_]> = std::sync::Arc::from([itg_process::Network {
        name: "main".to_owned(),
        contract: itg_process::Contract::INPROC,
    }]);
    let mut processes = Vec::new();
    for slot in slots.iter() {
        let seed = itg_core::seed::RunSeed(1);
        let place = ProcessContext {
            slot: *slot,
            incarnation: 1,
            seed,
            networks: &networks,
            everybody: &slots,
            journals: None,
        };
        processes.push(registry.process(&config, &place)?);
    }
    let (begin, used) = (monotonic_ns(), processor_ns()?);
    let mut world = Inproc::start(processes, IN_PROCESS_INBOX, Time(begin));
    while !world.stopped() {
        let now = Time(monotonic_ns());
        world.run(now);
        if monotonic_ns() - begin > 1_000_000_000 * LIMIT.as_secs() {
            bail!("the processes did not stop");
        }
    }
    let took = Took { ns: monotonic_ns() - begin, processor_ns: processor_ns()? - used };
    Ok((world.take_events(), took))
}
