//! MPI as a network of layered processes: each rank drives the process of its slot.
//!
//! Reliable, in order for each pair, nothing twice; multicasts are sends one by one in ascending order. All
//! parallel networks share the communicator; the frame says which one it is. A message is refused when
//! more than [`QUEUE`] bytes wait for its receiver. The bootstrap is the launcher's: `MPI_Init` has found
//! all ranks, the configuration is broadcast, and a barrier stands before the start.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use itg_core::seed::RunSeed;
use itg_process::{
    Config, ConfigError, Contract, Counters, Network, Outgoing, ProcessContext, Registry, Report,
    Slot, StopReason, Time, Transport, everybody, frame, suggestion,
};

use crate::job::{InFlight, Job, tag};

/// Bytes that may wait for one process: 4 MiB, or one message.
const QUEUE: usize = 4 << 20;
/// Longest pause between two looks at MPI; the first one is [`SHORTEST`], and doubles while nothing comes.
const LONGEST: Duration = Duration::from_micros(500);
const SHORTEST: Duration = Duration::from_micros(10);

/// Reason for which there is no process.
#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    /// The configuration is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The launcher started another number.
    #[error("the configuration has {want} processes, the job {got} ranks: mpirun -n {want}")]
    Ranks {
        /// Processes.
        want: u32,
        /// Ranks.
        got: u32,
    },
}

/// Counters of the networks of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Frames sent.
    pub sent: u64,
    /// Frames received.
    pub received: u64,
    /// Messages refused for want of room.
    pub refused: u64,
    /// Frames that failed a check.
    pub damaged: u64,
}

struct Waiting {
    to: u32,
    len: usize,
    send: InFlight<Bytes>,
}

/// Runs the process of this rank until it stops; then waits for all others.
///
/// `asked` is looked at often and stops all processes; `report` gets what the process reports on itself.
///
/// # Errors
/// A configuration that is wrong or for another number of ranks: the same error on every rank.
pub fn run(
    job: &Job,
    (config, registry, seed): (&Config, &Registry, RunSeed),
    mut asked: impl FnMut() -> Option<StopReason>,
    report: impl FnMut(Report),
) -> Result<(StopReason, Counters, Traffic), NetworkError> {
    let networks = networks(config)?;
    if config.processes != job.size() {
        return Err(NetworkError::Ranks { want: config.processes, got: job.size() });
    }
    let (slot, everybody) = (Slot(job.rank()), everybody(config.processes));
    let place = ProcessContext {
        slot,
        incarnation: 1,
        seed,
        networks: &networks,
        everybody: &everybody,
        journals: None,
    };
    let process = registry.process(config, &place);
    // One rank with a wrong stack must not leave the others in the barrier.
    let wrong = job.gather([u8::from(process.is_err())]);
    let mut process = match process {
        Ok(_) if wrong.contains(&[1]) => {
            // Another rank has the reason; this one says which.
            let at = wrong.iter().position(|wrong| *wrong == [1]).unwrap_or_default();
            let at = Slot(u32::try_from(at).unwrap_or(u32::MAX));
            registry.process(config, &ProcessContext { slot: at, ..place })?
        }
        process => process?,
    };
    job.barrier();
    let started = Instant::now();
    let now = || Time(u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX));
    let mut end = Ranked { job, report, waiting: VecDeque::new(), traffic: Traffic::default() };
    process.start(now());
    let mut pause = SHORTEST;
    let mut told = false;
    let reason = loop {
        process.carry_out(now(), &mut end);
        if let Some(reason) = process.stopped() {
            break reason;
        }
        let mut busy = false;
        while let Some(received) = job.receive() {
            busy = true;
            let bytes = Bytes::from(received.bytes);
            match frame::decode(&bytes, slot, frame::MAX_BODY) {
                Ok(Some((frame, len))) if len == bytes.len() => {
                    end.traffic.received += 1;
                    process.deliver(now(), frame.message);
                }
                _ => end.traffic.damaged += 1,
            }
        }
        if process.next_wake().is_some_and(|due| due <= now()) {
            busy = true;
            process.wake(now());
        }
        if !told && let Some(why) = asked() {
            (told, busy) = (true, true);
            process.stop(now(), why);
        }
        end.look();
        pause = if busy { SHORTEST } else { (pause * 2).min(LONGEST) };
        if !busy {
            let due = process.next_wake().map_or(u64::MAX, |due| due.since(now()));
            std::thread::sleep(pause.min(Duration::from_nanos(due)));
        }
    };
    // Messages that still come are taken, so that the sends of the other ranks end.
    while !end.waiting.is_empty() {
        end.look();
        end.discard();
    }
    job.barrier_while(|| end.discard());
    Ok((reason, process.counters(), end.traffic))
}

/// Networks of a configuration, with what each promises under MPI.
fn networks(config: &Config) -> Result<Arc<[Network]>, ConfigError> {
    let mut networks = Vec::new();
    for entry in &config.networks {
        let params = entry.params.clone();
        if entry.kind != "mpi" {
            let hint = suggestion(&entry.kind, ["mpi"]);
            return Err(params.error(format!("no network `{}` under MPI: {hint}", entry.kind)));
        }
        params.finish()?;
        networks.push(Network { name: entry.name.clone(), contract: Contract::STREAM });
    }
    Ok(networks.into())
}

struct Ranked<'a, R> {
    job: &'a Job,
    report: R,
    waiting: VecDeque<Waiting>,
    traffic: Traffic,
}

impl<R: FnMut(Report)> Transport for Ranked<'_, R> {
    fn send(&mut self, _now: Time, message: &Outgoing, to: Slot) -> bool {
        let waiting = self.waiting.iter().filter(|waiting| waiting.to == to.0);
        let queued: usize = waiting.map(|waiting| waiting.len).sum();
        let len = message.message.body.len();
        if to.0 >= self.job.size() || (queued > 0 && queued + len > QUEUE) {
            self.traffic.refused += 1;
            return false;
        }
        let bytes = message.frame();
        self.traffic.sent += 1;
        let len = bytes.len();
        if let Err(send) = self.job.send(to.0, tag::FRAME, bytes).test() {
            self.waiting.push_back(Waiting { to: to.0, len, send });
        }
        true
    }

    fn report(&mut self, report: Report) {
        (self.report)(report);
    }
}

impl<R> Ranked<'_, R> {
    /// Forgets the sends that are done.
    fn look(&mut self) {
        for _ in 0..self.waiting.len() {
            let Some(Waiting { to, len, send }) = self.waiting.pop_front() else { return };
            if let Err(send) = send.test() {
                self.waiting.push_back(Waiting { to, len, send });
            }
        }
    }

    /// Takes what comes and does nothing with it.
    fn discard(&mut self) {
        match self.job.receive() {
            Some(_) => self.traffic.received += 1,
            None => std::thread::sleep(SHORTEST),
        }
    }
}
