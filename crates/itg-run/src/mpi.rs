//! `mpirun -n N itg-cluster run FILE --mpi`: one flow on each rank, one report; a file that describes several
//! runs has them carried out one after the other by the same job.
//!
//! Rank 0 reads the file, tells the others, keeps the receivers and their log, and reports. With `[log]
//! server = "mpi"` it has no flow, but keeps the senders' log too: every other rank sends it its blocks
//! while it goes on generating (see `carry`). Without it each rank, 0 too, has a flow,
//! and there is no senders' log.

mod collect;
mod latest;
mod process;
mod rank_log;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};
use itg_cli::{
    Failure, Loaded, PacingArgs, Sending, Signals, WordArgs, account, draw_run, load_manifest,
    refuse, say, send_plan_observed,
};
use itg_core::streams::fnv1a;
use itg_engine::{HandedTarget, LogLimits, LogTarget};
use itg_experiment::{LOCAL, LOG_RANK, Manifest, Plan};
use itg_mpi::{Job, Launch};
use itg_node::Start;
use serde_json::{Value, json};
use tokio::sync::{oneshot, watch};

use crate::directory::{RECEIVER_LOG, SENDER_LOG};
use crate::events::{FlowState, NodeState, What};
use crate::figures;
use crate::receiver::receiver;
use crate::world::{Outcome, Output, Prepared, World, why};
use collect::Collector;
use latest::{Latest, Sharing};
use rank_log::Carrier;

pub(crate) use process::run as run_process;

/// From the moment at which all ranks are ready to the first packet: time to agree with the receivers.
const START_MARGIN_NS: i128 = 500_000_000;
/// Blocks on their way from the log's writer to the thread that talks to MPI.
const QUEUE: usize = 16;
/// Longest pause of the thread that talks to MPI.
const LONGEST_PAUSE: Duration = Duration::from_micros(400);
const SHORTEST_PAUSE: Duration = Duration::from_micros(10);
/// Between two looks whether rank 0 has another run.
const WAIT: Duration = Duration::from_millis(2);

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

/// Takes part in the job: rank 0 does what `lead` says with its ranks as the world, the others follow.
///
/// # Errors
/// The request or the job makes no sense, or a run leaves nothing to report.
pub fn run(
    pacing: PacingArgs,
    lead: impl FnOnce(&dyn World) -> Result<ExitCode>,
) -> Result<ExitCode> {
    let job = start()?;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let entered = runtime.enter();
    let signals = Signals::watch()?;
    let mut hosts = job.gather(fnv1a(itg_socket::host::name().as_bytes()).to_le_bytes());
    hosts.sort_unstable();
    hosts.dedup();
    let ranks = Ranks { job: &job, pacing, runtime: &runtime, signals, hosts: hosts.len() };
    let done = match job.rank() {
        0 => {
            let done = lead(&ranks);
            ranks.told(b"null".to_vec());
            done
        }
        _ => ranks.follow(),
    };
    drop(entered);
    done
}

/// The ranks of a job, seen from one of them.
struct Ranks<'a> {
    job: &'a Job,
    pacing: PacingArgs,
    runtime: &'a tokio::runtime::Runtime,
    signals: Signals,
    /// Number of hosts.
    hosts: usize,
}

/// A run as all ranks know it.
struct Agreed<'a> {
    loaded: &'a Loaded,
    run: String,
    /// Address of the receivers.
    receiver: SocketAddr,
    /// True if rank 0 wants to know what is sent.
    figures: bool,
}

/// At rank 0.
impl World for Ranks<'_> {
    fn name(&self) -> &'static str {
        "mpi"
    }

    fn options(&self) -> Vec<String> {
        self.pacing.words()
    }

    fn check(&self, loaded: &Loaded) -> Result<()> {
        loaded.plan.check_ends().map_err(refuse)?;
        let (flows, logs) = (loaded.plan.flows.len(), usize::from(has_log_rank(loaded)));
        let want = flows + logs;
        if want == self.job.size() as usize {
            return Ok(());
        }
        let log = if logs == 1 { " and a log rank" } else { "" };
        Err(refuse(format!(
            "{} has {flows} flows{log}: it needs {want} ranks and not {}: mpirun -n {want}",
            loaded.origin,
            self.job.size()
        )))
    }

    fn prepare<'a>(&'a self, loaded: &'a mut Loaded) -> Result<Box<dyn Prepared + 'a>> {
        self.check(loaded)?;
        Ok(Box::new(Led { ranks: self, loaded }))
    }
}

/// A run of the job, at rank 0.
struct Led<'a> {
    ranks: &'a Ranks<'a>,
    loaded: &'a Loaded,
}

impl Prepared for Led<'_> {
    fn loaded(&self) -> &Loaded {
        self.loaded
    }

    fn settings(&self) -> Vec<(&'static str, String)> {
        let job = self.ranks.job;
        vec![("mpi", job.library()), ("ranks", job.size().to_string())]
    }

    fn carry_out(
        self: Box<Self>,
        output: &Output,
        manifest: &Manifest,
        words: WordArgs,
    ) -> Result<Outcome> {
        let mut flows = self.loaded.plan.flows.iter();
        if !words.quiet && flows.any(|planned| planned.from != LOCAL || planned.to != LOCAL) {
            say(
                "--mpi: the launcher places the senders, and all receivers are at rank 0: nodes, `from` and \
                 `to` are not used",
            );
        }
        self.ranks.lead(self.loaded, output, manifest)
    }
}

impl Ranks<'_> {
    /// Message of rank 0, once all ranks are here. Those that are early sleep until then.
    fn told(&self, said: Vec<u8>) -> Vec<u8> {
        self.job.barrier_while(|| thread::sleep(WAIT));
        self.job.broadcast(said)
    }

    /// The first rank that plans something else than rank 0; on all ranks the same.
    fn differs(&self, plan: Option<&Plan>) -> Option<usize> {
        let hash = plan.map_or(0, |plan| fnv1a(plan.hash_text().as_bytes()));
        let hashes = self.job.gather(hash.to_le_bytes());
        hashes.iter().position(|other| *other != hashes[0])
    }

    /// Takes part in all runs, until rank 0 has no more.
    fn follow(&self) -> Result<ExitCode> {
        let mut failed = None;
        loop {
            let said: Value = serde_json::from_slice(&self.told(Vec::new()))?;
            if said.is_null() {
                // Rank 0 says why, if it is not the end.
                return failed.map_or(Ok(ExitCode::SUCCESS), Err);
            }
            let text = |name: &str| said.get(name).and_then(Value::as_str).unwrap_or_default();
            let loaded = self.plan(&said);
            if self.differs(loaded.as_ref().ok().map(|loaded| &loaded.plan)).is_some() {
                failed = failed.or_else(|| loaded.err());
                continue;
            }
            let run = Agreed {
                loaded: &loaded?,
                run: text("run").to_owned(),
                receiver: text("receiver").parse()?,
                figures: said.get("figures") == Some(&Value::Bool(true)),
            };
            self.take_part(&run, None)?;
        }
    }

    /// Plans what rank 0 says.
    fn plan(&self, said: &Value) -> Result<Loaded> {
        let manifest = said.get("manifest").and_then(Value::as_str).context("no manifest")?;
        load_manifest(&Manifest::parse(manifest)?)
    }

    /// One run, at rank 0: opens the receiver, tells the others, and gathers what came of it.
    fn lead(&self, loaded: &Loaded, output: &Output, manifest: &Manifest) -> Result<Outcome> {
        let (job, out, events) = (self.job, &output.dir, &output.events);
        let ip: IpAddr = match self.hosts {
            1 => Ipv4Addr::LOCALHOST.into(),
            _ => itg_socket::resolve(&itg_socket::host::name(), 0)
                .map_err(|e| Failure::new(1, e))?
                .ip(),
        };
        let receiver = receiver(out, SocketAddr::new(ip, 0))?;
        let address = receiver.addresses().next().context("the receiver has no address")?;
        let log = has_log_rank(loaded).then(|| out.join(SENDER_LOG));
        let flows: Vec<_> =
            (0..job.size()).filter_map(|rank| Some((rank, flow_of(loaded, rank)?))).collect();
        let mut collector = Collector::new(log, flows.iter().copied().collect(), events.clone())?;
        let run = draw_run();
        let run = Agreed { loaded, run, receiver: address, figures: events.are_heard() };
        let names = (0..job.size()).map(name).collect();
        events.begin(What::run(&loaded.plan, "mpi", names));
        self.told(serde_json::to_vec(&json!({
            "manifest": manifest.to_json(), "run": run.run,
            "receiver": address.to_string(), "figures": run.figures,
        }))?);
        if let Some(other) = self.differs(Some(&loaded.plan)) {
            return Err(refuse(format!(
                "rank {other} plans something else than rank 0: do all hosts have the same version of this program?"
            )));
        }
        for rank in 0..job.size() {
            events.tell(What::Node { node: name(rank), state: NodeState::Ready, why: None });
        }
        for (rank, flow) in flows {
            let (state, owner) = (FlowState::Running, Some(name(rank)));
            events.tell(What::Flow { flow, state, owner, before: None });
        }
        let (end, ended) = watch::channel(None);
        let receiving = self.runtime.spawn(receiver.serve(ended));
        self.take_part(&run, Some(&mut collector))?;
        end.send(Some("the run is over".to_owned())).unwrap_or_default();
        let received = self.runtime.block_on(receiving).context("the receiver stopped on a bug")?;
        let collected = collector.finish();
        let receiver_errors = received.log.into_iter().filter_map(|log| log.error);
        let log_error = collected.log_error.clone().into_iter().chain(receiver_errors).next();
        let errors = log_error.iter().chain(&collected.failures).cloned();
        let stopped = self.signals.stop.borrow().clone();
        let interrupted = why(stopped, errors, collected.code);
        let mut logs = vec![out.join(RECEIVER_LOG)];
        let total = loaded.plan.flows.len();
        let mut accounts = vec![format!("{} of {total} flows:", collected.accounts.len())];
        accounts.extend(collected.accounts);
        let mut settings = BTreeMap::new();
        if let Some(line) = collected.log {
            logs.insert(0, out.join(SENDER_LOG));
            settings.insert("log".to_owned(), line.clone());
            accounts.push(line);
        }
        let world = format!("{} ranks on {} host(s), {}", job.size(), self.hosts, job.library());
        Ok(Outcome {
            logs,
            code: collected.code,
            interrupted,
            settings,
            heading: format!("MPI: {world}\n"),
            accounts,
            failures: collected.failures,
            log_error,
            ..Outcome::default()
        })
    }

    /// The part of this rank in a run that all have agreed on, from the common start to its end.
    fn take_part(&self, run: &Agreed<'_>, collector: Option<&mut Collector>) -> Result<()> {
        let Agreed { loaded, receiver, .. } = *run;
        let job = self.job;
        job.barrier();
        let now = jiff::Timestamp::now().as_nanosecond() + START_MARGIN_NS;
        let start = job.broadcast(u64::try_from(now).unwrap_or(0).to_le_bytes().to_vec());
        let start = start.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
        let start = start.map_or(Start::Soon, Start::NotBefore);
        let mine = flow_of(loaded, job.rank());
        let (to, blocks) = std::sync::mpsc::sync_channel(QUEUE);
        let log = (has_log_rank(loaded) && mine.is_some()).then(|| HandedTarget {
            place: name(0),
            log_id: job.rank(),
            to,
        });
        let mut carrier = Carrier::new(log.is_some().then_some(blocks));
        let latest = Latest::default();
        let sending = mine.map(|flow| {
            let sending = Sending {
                packet_secret: None,
                plan: &loaded.plan,
                program: ("itg-cluster", env!("CARGO_PKG_VERSION")),
                run: run.run.clone(),
                start,
                pacing: self.pacing.options(&loaded.experiment.pacing),
                log: log.map(|log| LogTarget::Handed(Box::new(log))),
                log_limits: LogLimits::default(),
                recv_log: None,
                progress: false,
                interval: None,
                settings: [("plan".to_owned(), loaded.plan.hash_text())].into(),
            };
            (flow, sending)
        });
        let told = run.figures.then(|| latest.clone());
        let (runtime, signals) = (self.runtime, &self.signals);
        thread::scope(|scope| {
            let sender = sending.map(|(flow, sending)| {
                scope.spawn(move || {
                    let sent = runtime.block_on(send(sending, flow, receiver, told, signals));
                    sent_in_words(&loaded.plan, sent)
                })
            });
            talk(job, &mut carrier, &latest, collector, sender)
        })
    }
}

/// Sends a flow; what it has sent so far goes to `told`, if that is wanted.
async fn send(
    sending: Sending<'_>,
    flow: u32,
    receiver: SocketAddr,
    told: Option<Latest>,
    signals: &Signals,
) -> Result<itg_cli::SendingResult> {
    let (over, is_over) = oneshot::channel();
    let mut following = None;
    let sent = send_plan_observed(
        sending,
        |planned| (planned.flow.spec().id == flow).then_some(receiver),
        signals,
        |lives| {
            following = told.map(|told| {
                tokio::spawn(figures::follow(lives, is_over, move |now| told.put(now.clone())))
            });
        },
    )
    .await;
    over.send(()).unwrap_or_default();
    if let Some(following) = following {
        following.await.context("the figures stopped on a bug")?;
    }
    sent
}

/// The thread that talks to MPI, until this rank's part is over.
fn talk(
    job: &Job,
    carrier: &mut Carrier,
    latest: &Latest,
    mut collector: Option<&mut Collector>,
    mut sender: Option<thread::ScopedJoinHandle<'_, Value>>,
) -> Result<()> {
    let mut pause = SHORTEST_PAUSE;
    let mut result = None;
    let mut sharing = Sharing::default();
    loop {
        // What its flow has sent to its end is told before what became of it.
        let finished = sender.as_ref().is_some_and(thread::ScopedJoinHandle::is_finished);
        let mut busy = carrier.step(job);
        match collector.as_deref_mut() {
            None => busy |= sharing.step(job, latest),
            Some(collector) => {
                busy |= collector.step(job);
                if let Some(figures) = latest.take() {
                    collector.figures(0, figures);
                }
            }
        }
        if finished
            && carrier.is_over()
            && sharing.is_over(latest)
            && let Some(ended) = sender.take()
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

/// Result of a rank for its flow, as it tells rank 0.
fn sent_in_words(plan: &Plan, sent: Result<itg_cli::SendingResult>) -> Value {
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

/// A rank as events name it.
fn name(rank: u32) -> String {
    format!("rank {rank}")
}

/// Returns true if one rank keeps the senders' log.
fn has_log_rank(loaded: &Loaded) -> bool {
    loaded.experiment.log.server.as_deref() == Some(LOG_RANK)
}

/// Number of the flow of a rank.
fn flow_of(loaded: &Loaded, rank: u32) -> Option<u32> {
    let place = (rank as usize).checked_sub(usize::from(has_log_rank(loaded)))?;
    loaded.plan.flows.get(place).map(|planned| planned.flow.spec().id)
}
