//! `mpirun -n N itg-cluster run FILE --mpi`: one flow on each rank, one report.
//!
//! Rank 0 reads the file, tells the others, keeps the receivers and their log, and reports. With `[log]
//! server = "mpi"` it has no flow, but keeps the senders' log too: every other rank sends it its blocks
//! while it goes on generating, from two buffers (see [`carry`]). Without it each rank, 0 too, has a flow,
//! and there is no senders' log.

mod carry;
mod collect;
mod process;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};
use itg_cli::{
    Failure, Gates, LoadArgs, Loaded, Sending, Signals, WordArgs, account, announce, draw_run,
    load_text, refuse, say, send_plan,
};
use itg_core::streams::fnv1a;
use itg_experiment::{LOG_RANK, Manifest, Seed};
use itg_mpi::{Job, Launch};
use itg_net::{HandedTarget, LogTarget, Receiver, Start};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::events::Events;
use crate::run::{
    MANIFEST, Place, RECEIVER_LOG, RunArgs, SENDER_LOG, conclude, decode, directory, gates,
    prepare, receiver, write,
};
use carry::{Carrier, two_buffers};
use collect::{Collected, Collector};

pub(crate) use process::run as run_process;

/// From the moment at which all ranks are ready to the first packet: time to agree with the receivers.
const START_MARGIN_NS: i128 = 500_000_000;
/// Blocks on their way from the log's writer to the thread that talks to MPI.
const QUEUE: usize = 16;
/// Longest pause of the thread that talks to MPI.
const LONGEST_PAUSE: Duration = Duration::from_micros(400);
const SHORTEST_PAUSE: Duration = Duration::from_micros(10);

/// The job of this program, or why there is none.
fn start() -> Result<Job> {
    let launch = Launch::of(|name| std::env::var(name).ok());
    if launch.is_none() {
        return Err(refuse(
            "--mpi: no MPI launcher started this program: mpirun -n N itg-cluster … --mpi",
        ));
    }
    let job = Job::start().map_err(|error| Failure::new(1, error))?;
    if launch.is_some_and(|launch| launch.size != job.size()) {
        return Err(Failure::new(
            1,
            format!(
                "the launcher started other programs than this one's MPI ({}) knows: use the mpirun of \
                 that MPI",
                job.library()
            ),
        )
        .into());
    }
    Ok(job)
}

/// What rank 0 has before the start.
struct Root {
    loaded: Loaded,
    out: PathBuf,
    gates: Gates,
    manifest: Manifest,
    receiver: Receiver,
    address: SocketAddr,
    run: String,
    collector: Collector,
}

/// Runs this rank's part of the experiment.
pub(crate) fn run(args: &RunArgs, words: WordArgs) -> Result<ExitCode> {
    let job = start()?;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let entered = runtime.enter();
    let signals = Signals::watch()?;
    let mut hosts = job.gather(fnv1a(itg_net::host::name().as_bytes()).to_le_bytes());
    hosts.sort_unstable();
    hosts.dedup();
    let root = match job.rank() {
        0 => Some(Root::prepare(args, &job, hosts.len(), words)),
        _ => None,
    };
    let said = match &root {
        None => Vec::new(),
        Some(Ok(root)) => serde_json::to_vec(&json!({
            "text": root.loaded.text, "seed": root.loaded.plan.seed.0, "run": root.run,
            "receiver": root.address.to_string(),
        }))?,
        Some(Err(_)) => b"null".to_vec(),
    };
    let said: Value = serde_json::from_slice(&job.broadcast(said))?;
    let root = root.transpose()?;
    if said.is_null() {
        // Rank 0 says why.
        return Ok(ExitCode::SUCCESS);
    }
    let part = root.as_ref().map_or_else(|| Part::of(args, &said).map(Some), |_| Ok(None));
    let plan = match (&root, &part) {
        (Some(root), _) => Some(&root.loaded),
        (None, Ok(part)) => part.as_ref().map(|part| &part.loaded),
        (None, Err(_)) => None,
    };
    let hash = plan.map_or(0, |loaded| fnv1a(loaded.plan.hash_text().as_bytes()));
    let hashes = job.gather(hash.to_le_bytes());
    if let Some(other) = hashes.iter().position(|other| *other != hashes[0]) {
        part?;
        if root.is_none() {
            return Ok(ExitCode::SUCCESS);
        }
        let why = format!(
            "rank {other} plans something else than rank 0: do all hosts have the same files and the same \
             version of this program?"
        );
        return Err(refuse(why));
    }
    let part = part?;
    let loaded = plan_of(root.as_ref(), part.as_ref())?;
    let text = |name: &str| said.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (run_id, address) = (text("run"), text("receiver").parse::<SocketAddr>()?);
    job.barrier();
    let now = jiff::Timestamp::now().as_nanosecond() + START_MARGIN_NS;
    let start = job.broadcast(u64::try_from(now).unwrap_or(0).to_le_bytes().to_vec());
    let start = start.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
    let start = start.map_or(Start::Soon, Start::NotBefore);

    let logged = has_log_rank(loaded);
    let mine = flow_of(loaded, job.rank());
    let (end, ended) = watch::channel(None);
    let mut collector = None;
    let mut reporting = None;
    if let Some(Root { receiver, out, loaded, gates, manifest, collector: own, .. }) = root {
        collector = Some(own);
        reporting = Some((tokio::spawn(receiver.serve(ended)), out, loaded, gates, manifest));
    }
    let loaded = match (&reporting, &part) {
        (Some((_, _, loaded, _, _)), _) => loaded,
        (None, part) => plan_of(None, part.as_ref())?,
    };
    let (to, blocks) = std::sync::mpsc::sync_channel(QUEUE);
    let log = (logged && mine.is_some()).then(|| HandedTarget {
        place: "rank 0".to_owned(),
        log_id: job.rank(),
        to,
    });
    let mut carrier = Carrier::new(log.is_some().then_some(blocks));
    let sending = mine.map(|flow| {
        let sending = Sending {
            plan: &loaded.plan,
            program: ("itg-cluster", env!("CARGO_PKG_VERSION")),
            run: run_id,
            start,
            pacing: args.pacing.options(&loaded.experiment.pacing),
            log: log.map(|log| LogTarget::Handed(Box::new(log))),
            log_limits: two_buffers(),
            recv_log: None,
            progress: false,
            settings: [("plan".to_owned(), loaded.plan.hash_text())].into(),
        };
        (flow, sending)
    });
    let handle = runtime.handle().clone();
    let done = thread::scope(|scope| {
        let sender = sending.map(|(flow, sending)| {
            let signals = &signals;
            scope.spawn(move || {
                let receiver = |planned: &itg_experiment::PlannedFlow| {
                    (planned.flow.spec().id == flow).then_some(address)
                };
                let sent = handle.block_on(send_plan(sending, receiver, signals));
                sent_in_words(&loaded.plan, sent)
            })
        });
        talk(&job, &mut carrier, collector.as_mut(), sender)
    });
    done?;
    end.send(Some("the run is over".to_owned())).unwrap_or_default();
    let code = match (reporting, collector) {
        (Some((receiving, out, loaded, gates, manifest)), Some(collector)) => {
            let received = runtime.block_on(receiving).context("the receiver stopped on a bug")?;
            let collected = collector.finish();
            let library = job.library();
            let world = format!("{} ranks on {} host(s), {library}", job.size(), hosts.len());
            let report = Reporting { out, loaded, gates, manifest, world, words };
            report.conclude(collected, received.log.into_iter().filter_map(|log| log.error))
        }
        _ => Ok(ExitCode::SUCCESS),
    };
    drop(entered);
    job.barrier();
    code
}

/// The thread that talks to MPI, until this rank's part is over.
fn talk(
    job: &Job,
    carrier: &mut Carrier,
    mut collector: Option<&mut Collector>,
    mut sender: Option<thread::ScopedJoinHandle<'_, Value>>,
) -> Result<()> {
    let mut pause = SHORTEST_PAUSE;
    let mut result = None;
    loop {
        let mut busy = carrier.step(job);
        if let Some(collector) = collector.as_deref_mut() {
            busy |= collector.step(job);
        }
        if carrier.is_over()
            && let Some(ended) = sender.take_if(|sender| sender.is_finished())
        {
            let bug = |_| json!({ "code": 1, "failures": ["the sending thread stopped on a bug"] });
            let value = ended.join().unwrap_or_else(bug);
            match collector.as_deref_mut() {
                Some(collector) => collector.result(0, value),
                None => {
                    let bytes = serde_json::to_vec(&value)?;
                    result = Some(job.send(0, itg_mpi::tag::RESULT, bytes));
                }
            }
        }
        result = result.and_then(|result| result.test().err());
        let collected = collector.as_deref().is_none_or(Collector::is_over);
        if sender.is_none() && result.is_none() && collected && carrier.is_over() {
            return Ok(());
        }
        pause = if busy { SHORTEST_PAUSE } else { (pause * 2).min(LONGEST_PAUSE) };
        if !busy {
            thread::sleep(pause);
        }
    }
}

/// What a rank tells rank 0 of its flow.
fn sent_in_words(plan: &itg_experiment::Plan, sent: Result<itg_cli::SendingResult>) -> Value {
    match sent {
        Err(error) => {
            let code = error.downcast_ref::<Failure>().map_or(1, Failure::code);
            json!({ "code": code, "failures": [format!("{error:#}")] })
        }
        Ok(sent) => {
            let failures = sent.outcome.failures.iter().map(|(_, error)| error.to_string());
            let failures: Vec<_> = failures.collect();
            let log = sent.outcome.log.as_ref().map(|log| {
                json!({
                    "lost_records": log.lost_records, "stalls": log.stalls,
                    "stalled_ns": log.stalled_ns, "error": log.error,
                })
            });
            let account = account(plan, &sent.outcome);
            json!({ "code": sent.code, "failures": failures, "account": account, "log": log })
        }
    }
}

/// Whether one rank keeps the senders' log.
fn has_log_rank(loaded: &Loaded) -> bool {
    loaded.experiment.log.server.as_deref() == Some(LOG_RANK)
}

/// Number of the flow of a rank.
fn flow_of(loaded: &Loaded, rank: u32) -> Option<u32> {
    let place = (rank as usize).checked_sub(usize::from(has_log_rank(loaded)))?;
    loaded.plan.flows.get(place).map(|planned| planned.flow.spec().id)
}

fn plan_of<'a>(root: Option<&'a Root>, part: Option<&'a Part>) -> Result<&'a Loaded> {
    let own = root.map(|root| &root.loaded);
    own.or_else(|| part.map(|part| &part.loaded)).context("a rank without a plan")
}

/// What the other ranks have.
struct Part {
    loaded: Loaded,
}

impl Part {
    /// Plans what rank 0 says.
    fn of(args: &RunArgs, said: &Value) -> Result<Self> {
        let text = said.get("text").and_then(Value::as_str).context("no experiment")?;
        let seed = said.get("seed").and_then(Value::as_u64).context("no seed")?;
        let load = LoadArgs {
            file: args.load.file.clone(),
            seed: Some(Seed(itg_core::seed::RunSeed(seed))),
            duration: args.load.duration,
            profiles: args.load.profiles.clone(),
        };
        Ok(Self { loaded: load_text(&load, text.to_owned(), None)? })
    }
}

impl Root {
    /// Reads the experiment, looks whether the job fits it, and opens the receiver.
    fn prepare(args: &RunArgs, job: &Job, hosts: usize, words: WordArgs) -> Result<Self> {
        let loaded = itg_cli::load(&args.load)?;
        loaded.plan.check_ends().map_err(refuse)?;
        let (flows, logs) = (loaded.plan.flows.len(), usize::from(has_log_rank(&loaded)));
        let want = flows + logs;
        if want != job.size() as usize {
            let log = if logs == 1 { " and a log rank" } else { "" };
            return Err(refuse(format!(
                "{} has {flows} flows{log}: it needs {want} ranks and not {}: mpirun -n {want}",
                loaded.origin,
                job.size()
            )));
        }
        let gates = gates(&loaded)?;
        let started = jiff::Timestamp::now();
        let out = directory(args, &loaded.plan.name, started);
        prepare(&out)?;
        if !words.quiet {
            announce(&loaded.plan);
        }
        let unix_ns = u64::try_from(started.as_nanosecond()).unwrap_or(0);
        let manifest =
            Manifest::new(&loaded.plan, &loaded.origin, &loaded.text, loaded.duration_ns)
                .started(unix_ns)
                .setting("host", itg_net::host::name())
                .setting("os", itg_net::host::os())
                .setting("world", "mpi")
                .setting("mpi", job.library())
                .setting("ranks", job.size().to_string());
        write(&out.join(MANIFEST), &manifest.to_json())?;
        let ip: IpAddr = match hosts {
            1 => Ipv4Addr::LOCALHOST.into(),
            _ => itg_net::resolve(&itg_net::host::name(), 0).map_err(|e| Failure::new(1, e))?.ip(),
        };
        let receiver = receiver(&out, SocketAddr::new(ip, 0))?;
        let address = receiver.addresses().next().context("the receiver has no address")?;
        let log = has_log_rank(&loaded).then(|| out.join(SENDER_LOG));
        let collector = Collector::new(log, flows)?;
        let run = draw_run();
        Ok(Self { loaded, out, gates, manifest, receiver, address, run, collector })
    }
}

/// The end of a run at rank 0.
struct Reporting {
    out: PathBuf,
    loaded: Loaded,
    gates: Gates,
    manifest: Manifest,
    world: String,
    words: WordArgs,
}

impl Reporting {
    fn conclude(
        self,
        collected: Collected,
        receiver_errors: impl Iterator<Item = String>,
    ) -> Result<ExitCode> {
        let Self { out, loaded, gates, mut manifest, world, words } = self;
        let place = Place { out, print: true, events: Events::default(), live: false };
        let out = &place.out;
        manifest = manifest.setting("exit_code", collected.code.to_string());
        let mut names = vec![RECEIVER_LOG];
        if let Some(line) = &collected.log {
            names.insert(0, SENDER_LOG);
            manifest = manifest.setting("log", line.clone());
        }
        write(&out.join(MANIFEST), &manifest.to_json())?;
        let logs: Vec<_> = names.iter().map(|name| out.join(name)).collect();
        let report = decode(&logs, &manifest)?;
        let text = format!("MPI: {world}\n{}", itg_stats::text::render(&report));
        let gate = conclude(&place, &report, &text, &gates, words)?;
        for failure in &collected.failures {
            say(format_args!("itg-cluster: {failure}"));
        }
        if !words.quiet {
            let total = loaded.plan.flows.len();
            say(format_args!("{} of {total} flows:", collected.accounts.len()));
            collected.accounts.iter().for_each(|account| say(account.trim_end()));
            if let Some(line) = &collected.log {
                say(line);
            }
            say(format_args!("logs, report and manifest are in {}", out.display()));
        }
        if let Some(error) = collected.log_error.into_iter().chain(receiver_errors).next() {
            return Err(Failure::new(1, error).into());
        }
        Ok(ExitCode::from(gate.filter(|_| collected.code == 0).unwrap_or(collected.code)))
    }
}
