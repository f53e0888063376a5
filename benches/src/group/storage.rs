//! `itg-bench broadcast --only storage`: delay of the ordered log with journals that are synced, beside none.
//!
//! Three processes, driven and connected as those of agents are, cast in turn and wait for all deliveries. A process
//! that keeps a journal writes what it promises and decides, and syncs it, before it answers. The sync itself is
//! measured in the same place, so that the rest is ours.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, Result, ensure};
use itg_cli::print;
use itg_mesh::journal_files::JournalFiles;
use itg_mesh::tasks::{Queues, carry, drive};
use itg_process::{
    Config, Contract, Event, Journals, Network, Process, ProcessContext, Report, Slot, everybody,
};
use itg_run::layers;
use itg_socket::clock::monotonic_ns;
use itg_trials::{Estimate, Lines, with_interval};
use tokio::net::UnixStream;
use tokio::sync::mpsc::channel;

use super::common::{percentile, us};
use super::processes::{LIMIT, configuration};
use crate::programs::memory;
use itg_run::load::LoadEvent;

/// Processes of the group.
const PROCESSES: u32 = 3;
/// Trials of each kind, in turns.
const TRIALS: usize = 5;
/// Frames that wait for one process.
const QUEUE: usize = 4096;
/// Bytes of a raw write: about those of the entry of one message.
const ENTRY: usize = 200;

/// Delays of one trial, in nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Delays {
    p50: u64,
    p99: u64,
}

/// Prints the table: without journals, with journals in memory and on the disk of this directory.
pub(super) fn run(rounds: u64, size: usize) -> Result<()> {
    print(
        "\nOrdered log with journals, n = 3, closed loop over Unix sockets, tasks as agents have them\n\n",
    )?;
    let here = std::env::current_dir().context("this directory")?;
    let places = [("none", None), ("in memory", Some(memory())), ("on disk, synced", Some(here))];
    let mut found = [const { Vec::new() }; 3];
    let mut syncs = [const { Vec::new() }; 3];
    for _ in 0..TRIALS {
        for (at, (_, place)) in places.iter().enumerate() {
            let dir = place.as_deref().map(tempfile::tempdir_in).transpose()?;
            let dir = dir.as_ref().map(tempfile::TempDir::path);
            found[at].push(trial(rounds, size, dir)?);
            if let Some(dir) = dir {
                syncs[at].push(raw_sync(dir, rounds)?);
            }
        }
    }
    let mut table =
        Lines::new(["journal", "p50 µs", "p99 µs", "to none", "raw write and sync, p50 µs"]);
    let base: Vec<_> = found[0].iter().map(|delays: &Delays| us(delays.p50)).collect();
    for (at, (name, _)) in places.iter().enumerate() {
        let [p50, p99] = [|of: &Delays| us(of.p50), |of: &Delays| us(of.p99)]
            .map(|part| found[at].iter().map(part).collect::<Vec<_>>());
        let ratios: Vec<_> = p50.iter().zip(&base).map(|(with, without)| with / without).collect();
        let sync = if syncs[at].is_empty() {
            "-".to_owned()
        } else {
            with_interval(Estimate::of(&syncs[at]), 1)
        };
        table.row([
            (*name).to_owned(),
            with_interval(Estimate::of(&p50), 1),
            with_interval(Estimate::of(&p99), 1),
            with_interval(Estimate::of(&ratios), 2),
            sync,
        ]);
    }
    print(&format!("{table}\n"))
}

/// Median of appending an entry and syncing it, in microseconds.
fn raw_sync(dir: &Path, times: u64) -> Result<f64> {
    let path = dir.join("raw");
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    let mut took = Vec::new();
    for _ in 0..times.min(1000) {
        let begin = monotonic_ns();
        file.write_all(&[7; ENTRY])?;
        file.sync_data()?;
        took.push(monotonic_ns() - begin);
    }
    Ok(us(percentile(&mut took, 50)))
}

/// The closed system once; with a directory each process keeps its journals there.
fn trial(rounds: u64, size: usize, dir: Option<&Path>) -> Result<Delays> {
    let layers = format!("\"log\", {{ layer = \"rounds\", rounds = {rounds}, size = {size} }}");
    let config = Config::parse(&configuration("unix", PROCESSES, &layers, None), "bench")?;
    let mut members = Vec::new();
    for slot in everybody(PROCESSES).iter() {
        let kept = dir.map(|dir| JournalFiles::open(&dir.join(slot.0.to_string()))).transpose()?;
        let (files, journals) = kept.unzip();
        members.push((process(&config, *slot, journals.as_ref())?, files));
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let events = runtime.block_on(exchange(members))?;
    let times = events.iter().find_map(|event| match event.decode()? {
        LoadEvent::Times { p50, p99, .. } => Some(Delays { p50, p99 }),
        LoadEvent::Result { .. } => None,
    });
    times.context("no times")
}

/// A process of this configuration, with what its journals hold.
fn process(config: &Config, slot: Slot, journals: Option<&Journals>) -> Result<Process> {
    let networks: Arc<[Network]> =
        Arc::from([Network { name: "main".to_owned(), contract: Contract::STREAM }]);
    let place = ProcessContext {
        slot,
        incarnation: 1,
        seed: itg_core::seed::RunSeed(1),
        networks: &networks,
        everybody: &everybody(config.processes),
        journals,
    };
    Ok(layers::registry().process(config, &place)?)
}

/// Connects the processes and drives them until all have stopped: their events.
async fn exchange(members: Vec<(Process, Option<JournalFiles>)>) -> Result<Vec<Event>> {
    let events = Arc::new(Mutex::new(Vec::new()));
    let (mut driven, mut inboxes) = (Vec::new(), Vec::new());
    for (process, files) in members {
        let (inbox, taken) = channel(QUEUE);
        let noted = Arc::clone(&events);
        let queues = Queues::new(Box::new(move |note| {
            if let Report::Event { event, .. } = note {
                noted.lock().unwrap_or_else(PoisonError::into_inner).push(event);
            }
        }));
        let queues = match files {
            Some(files) => queues.keep(files),
            None => queues,
        };
        inboxes.push((process.slot(), inbox));
        driven.push((process, taken, queues));
    }
    for a in 0..driven.len() {
        for b in 0..a {
            let (near, far) = UnixStream::pair()?;
            for (me, peer, stream) in [(a, b, near), (b, a, far)] {
                let ((me_slot, inbox), (peer_slot, _)) = (inboxes[me].clone(), &inboxes[peer]);
                let (queue, frames) = channel(QUEUE);
                driven[me].2.connect(*peer_slot, 0, queue);
                let both = (me_slot, *peer_slot);
                tokio::spawn(async move { carry(stream, both, frames, &inbox).await });
            }
        }
    }
    drop(inboxes);
    let tasks: Vec<_> = driven
        .into_iter()
        .map(|(process, inbox, queues)| tokio::spawn(drive(process, inbox, queues)))
        .collect();
    for task in tasks {
        let stopped = tokio::time::timeout(LIMIT, task).await.context("it did not stop")??;
        ensure!(stopped.is_some(), "a process stopped without a reason");
    }
    Ok(std::mem::take(&mut *events.lock().unwrap_or_else(PoisonError::into_inner)))
}
