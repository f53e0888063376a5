//! `mpirun -n N itg-cluster run FILE --mpi`: one flow on each rank, one report; a file that describes several
//! runs has them carried out one after the other by the same job.
//!
//! Rank 0 reads the file, tells the others, and reports. With nodes it keeps the logs and does nothing else: each
//! node that receives has a rank for that (see `placement`). Without nodes it has the receivers and their log, too.
//! With `[log] server = "mpi"` it keeps the senders' log: every other rank sends it its blocks while it goes on
//! generating (see `rank_log`). Without nodes and log each rank, 0 too, has a flow, and there is no senders' log.

mod collect;
mod latest;
mod listen;
mod options;
mod placement;
mod process;
mod rank_log;
mod store;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};
use itg_cli::{
    Failure, Loaded, PacingArgs, Sending, Signals, WordArgs, account, draw_run, load_manifest,
    refuse, say, send_plan_observed,
};
use itg_core::streams::fnv1a;
use itg_engine::{HandedBlock, HandedTarget, LogLimits, LogOutcome, LogTarget};
use itg_experiment::{LOCAL, Manifest, Plan};
use itg_mpi::{Job, Launch};
use itg_node::{Receiver, ReceiverOutcome, Start};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;

use crate::directory::{RECEIVER_LOG, SENDER_LOG};
use crate::events::{FlowState, NodeState, What};
use crate::figures;
use crate::receiver::receiver_options;
use crate::world::{Outcome, Output, Prepared, World, why};
use collect::{Collected, Collector};
use latest::{Latest, Sharing};
use listen::RankAddresses;
use placement::{Hosts, Placement, ReceiverRank};
use rank_log::Carrier;
use store::RankLog;

pub use options::{Interface, MpiOptions, NodeRanks};
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
    options: MpiOptions,
    lead: impl FnOnce(&dyn World) -> Result<ExitCode>,
) -> Result<ExitCode> {
    let job = start()?;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let entered = runtime.enter();
    let signals = Signals::watch()?;
    let hosts = Hosts::of(&share(&job, &{
        use itg_socket::host;
        // What reaches another program over loopback shares its kernel and its network.
        (host::name(), format!("{} {}", host::boot_id(), host::network_id()))
    })?);
    let ranks = Ranks { job: &job, pacing, options, runtime: &runtime, signals, hosts };
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

/// Words of every rank, on each rank.
fn share<T: Serialize + DeserializeOwned>(job: &Job, own: &T) -> Result<Vec<T>> {
    let all = job.gather_bytes(&serde_json::to_vec(own)?).into_iter();
    all.map(|bytes| serde_json::from_slice(&bytes).context("a rank says what is no answer"))
        .collect()
}

/// The ranks of a job, seen from one of them.
struct Ranks<'a> {
    job: &'a Job,
    pacing: PacingArgs,
    options: MpiOptions,
    runtime: &'a tokio::runtime::Runtime,
    signals: Signals,
    hosts: Hosts,
}

/// A run as all ranks know it.
struct Agreed<'a> {
    loaded: &'a Loaded,
    run: String,
    placement: Placement,
    /// True if rank 0 wants to know what is sent.
    figures: bool,
}

/// Receivers of a run, seen from a rank.
struct Opened {
    own: Option<Receiving>,
    /// Address of each, by its rank.
    addresses: BTreeMap<u32, SocketAddr>,
}

/// The receiver of a rank that all others know.
struct Receiving {
    receiver: Receiver,
    /// Its log, where rank 0 gets it.
    blocks: Option<std::sync::mpsc::Receiver<HandedBlock>>,
}

/// At rank 0.
impl World for Ranks<'_> {
    fn name(&self) -> &'static str {
        "mpi"
    }

    fn options(&self) -> Vec<String> {
        let mut words = self.pacing.words();
        words.extend(self.options.words());
        words
    }

    fn check(&self, loaded: &Loaded) -> Result<()> {
        loaded.plan.check_ends().map_err(refuse)?;
        self.place(loaded).map(drop)
    }

    fn prepare<'a>(&'a self, loaded: &'a mut Loaded) -> Result<Box<dyn Prepared + 'a>> {
        self.check(loaded)?;
        let placement = self.place(loaded)?;
        let addresses = self.addresses(&placement)?;
        Ok(Box::new(Led { ranks: self, loaded, placement, addresses }))
    }
}

/// A run of the job, at rank 0.
struct Led<'a> {
    ranks: &'a Ranks<'a>,
    loaded: &'a Loaded,
    placement: Placement,
    /// Address of each receiver.
    addresses: Vec<IpAddr>,
}

impl Prepared for Led<'_> {
    fn loaded(&self) -> &Loaded {
        self.loaded
    }

    fn settings(&self) -> Vec<(&'static str, String)> {
        let job = self.ranks.job;
        let mut settings = vec![("mpi", job.library()), ("ranks", job.size().to_string())];
        settings.extend(self.placement.words(&self.ranks.hosts).map(|words| ("placement", words)));
        settings
    }

    fn carry_out(
        self: Box<Self>,
        output: &Output,
        manifest: &Manifest,
        words: WordArgs,
    ) -> Result<Outcome> {
        let mut flows = self.loaded.plan.flows.iter();
        match self.placement.words(&self.ranks.hosts) {
            _ if words.quiet => {}
            Some(roles) => {
                say(roles);
                for (receiver, ip) in self.placement.receivers.iter().zip(&self.addresses) {
                    say(format_args!("rank {} receives at {ip}", receiver.rank));
                }
            }
            None if flows.any(|planned| planned.from != LOCAL || planned.to != LOCAL) => say(
                "--mpi: the launcher places the senders, and all receivers are at rank 0: without [nodes] or \
                 --mpi-nodes, `from` and `to` are not used",
            ),
            None => {}
        }
        let Self { ranks, loaded, placement, addresses } = *self;
        ranks.lead(loaded, (placement, &addresses), output, manifest)
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

    /// Roles of the ranks.
    fn place(&self, loaded: &Loaded) -> Result<Placement> {
        Placement::of(loaded, &self.hosts, &self.options).map_err(refuse)
    }

    /// At rank 0: the address of each receiver, as its rank finds it.
    fn addresses(&self, placement: &Placement) -> Result<Vec<IpAddr>> {
        self.told(serde_json::to_vec(&json!({ "receivers": placement.receivers }))?);
        let found = share(self.job, &RankAddresses::find(&placement.receivers, 0))?;
        listen::judge(placement, &self.hosts, &found).map_err(refuse)
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
            if let Some(receivers) = said.get("receivers") {
                // What this rank does not understand it has no address for, which rank 0 says.
                let receivers: Vec<ReceiverRank> =
                    serde_json::from_value(receivers.clone()).unwrap_or_default();
                share(self.job, &RankAddresses::find(&receivers, self.job.rank()))?;
                continue;
            }
            let planned = planned(&said);
            if self.differs(planned.as_ref().ok().map(|(loaded, ..)| &loaded.plan)).is_some() {
                failed = failed.or_else(|| planned.err());
                continue;
            }
            let (loaded, placement, addresses) = planned?;
            let run = said.get("run").and_then(Value::as_str).unwrap_or_default().to_owned();
            let figures = said.get("figures") == Some(&Value::Bool(true));
            let run = Agreed { loaded: &loaded, run, placement, figures };
            // What any rank lacks all know, and rank 0 says.
            if let Ok(opened) = self.open(&run.placement, &addresses, None)? {
                self.take_part(&run, &opened.addresses, opened.own, None)?;
            }
        }
    }

    /// Opens the receiver of this rank, if it has one: with the addresses of all, or the first failure, on all ranks
    /// the same. The log goes to rank 0, or at rank 0 to a file in `out`.
    fn open(
        &self,
        placement: &Placement,
        addresses: &[IpAddr],
        out: Option<&Path>,
    ) -> Result<Result<Opened, String>> {
        let rank = self.job.rank();
        let mut own = placement.receivers.iter().zip(addresses);
        let own = own.find(|(receiver, _)| receiver.rank == rank).map(|(_, ip)| {
            let (log, blocks) = match out {
                Some(out) => (LogTarget::File(out.join(RECEIVER_LOG)), None),
                None => {
                    let (to, blocks) = std::sync::mpsc::sync_channel(QUEUE);
                    let target = HandedTarget { place: name(0), log_id: rank, to };
                    (LogTarget::Handed(Box::new(target)), Some(blocks))
                }
            };
            let options = receiver_options(log, SocketAddr::new(*ip, 0));
            let receiver = Receiver::bind(options).map_err(|error| error.to_string())?;
            let address = receiver.addresses().next().ok_or("the receiver has no address")?;
            Ok::<_, String>((Receiving { receiver, blocks }, address))
        });
        let said = own.as_ref().map(|own| own.as_ref().map(|(_, at)| *at).map_err(Clone::clone));
        let mut all = BTreeMap::new();
        for (rank, said) in (0_u32..).zip(share(self.job, &said)?) {
            match said {
                None => {}
                Some(Ok(at)) => drop(all.insert(rank, at)),
                Some(Err::<SocketAddr, String>(why)) => {
                    return Ok(Err(format!("rank {rank} (host {}): {why}", self.hosts.name(rank))));
                }
            }
        }
        let own = own.and_then(Result::ok).map(|(receiving, _)| receiving);
        Ok(Ok(Opened { own, addresses: all }))
    }

    /// One run, at rank 0: tells the others, and gathers what came of it.
    fn lead(
        &self,
        loaded: &Loaded,
        (placement, addresses): (Placement, &[IpAddr]),
        output: &Output,
        manifest: &Manifest,
    ) -> Result<Outcome> {
        let (job, out, events) = (self.job, &output.dir, &output.events);
        let run = Agreed { loaded, run: draw_run(), placement, figures: events.are_heard() };
        let placement = &run.placement;
        let senders: BTreeMap<_, _> =
            placement.flows.iter().map(|flow| (flow.from, flow.flow)).collect();
        let receivers: BTreeSet<_> = match placement.receiver_log() {
            true => placement.receivers.iter().map(|receiver| receiver.rank).collect(),
            false => BTreeSet::new(),
        };
        let log = |wanted: bool, name: &str| wanted.then(|| RankLog::create(out.join(name)));
        let sender_log = log(placement.sender_log, SENDER_LOG).transpose()?;
        let receiver_log = log(placement.receiver_log(), RECEIVER_LOG).transpose()?;
        let mut collector = Collector::new(
            (senders.clone(), sender_log),
            (receivers, receiver_log),
            events.clone(),
        );
        let names = (0..job.size()).map(name).collect();
        events.begin(What::run(&loaded.plan, "mpi", names));
        self.told(serde_json::to_vec(&json!({
            "manifest": manifest.to_json(), "run": run.run, "figures": run.figures,
            "placement": placement, "addresses": addresses,
        }))?);
        if let Some(other) = self.differs(Some(&loaded.plan)) {
            return Err(refuse(format!(
                "rank {other} plans something else than rank 0: do all hosts have the same version of this program?"
            )));
        }
        let opened = self.open(placement, addresses, Some(out))?;
        let Opened { own, addresses } = opened.map_err(|why| Failure::new(1, why))?;
        for rank in 0..job.size() {
            events.tell(What::Node { node: name(rank), state: NodeState::Ready, why: None });
        }
        for (rank, flow) in senders {
            let (state, owner) = (FlowState::Running, Some(name(rank)));
            events.tell(What::Flow { flow, state, owner, before: None });
        }
        let (end, ended) = watch::channel(None);
        let receiving = own.map(|own| self.runtime.spawn(own.receiver.serve(ended)));
        self.take_part(&run, &addresses, None, Some(&mut collector))?;
        end.send(Some("the run is over".to_owned())).unwrap_or_default();
        let mut own_log = None;
        if let Some(receiving) = receiving {
            let received = self.runtime.block_on(receiving);
            own_log = received.context("the receiver stopped on a bug")?.log;
        }
        Ok(self.outcome(&run, out, collector.finish(), own_log))
    }

    /// Outcome of a run, at rank 0.
    fn outcome(
        &self,
        run: &Agreed<'_>,
        out: &Path,
        collected: Collected,
        own_log: Option<LogOutcome>,
    ) -> Outcome {
        let job = self.job;
        let receiver_errors = own_log.into_iter().filter_map(|log| log.error);
        let log_error = collected.log_error.clone().into_iter().chain(receiver_errors).next();
        let errors = log_error.iter().chain(&collected.failures).cloned();
        let stopped = self.signals.stop.borrow().clone();
        let interrupted = why(stopped, errors, collected.code);
        let mut logs = vec![out.join(RECEIVER_LOG)];
        let total = run.loaded.plan.flows.len();
        let mut accounts = vec![format!("{} of {total} flows:", collected.accounts.len())];
        accounts.extend(collected.accounts);
        let mut settings = BTreeMap::new();
        if run.placement.sender_log {
            logs.insert(0, out.join(SENDER_LOG));
        }
        for (key, line) in [("log", collected.sender_log), ("receiver log", collected.receiver_log)]
        {
            settings.extend(line.clone().map(|line| (key.to_owned(), line)));
            accounts.extend(line);
        }
        let world =
            format!("{} ranks on {} host(s), {}", job.size(), self.hosts.count(), job.library());
        Outcome {
            logs,
            code: collected.code,
            interrupted,
            settings,
            heading: format!("MPI: {world}\n"),
            accounts,
            failures: collected.failures,
            log_error,
            ..Outcome::default()
        }
    }

    /// The part of this rank in a run that all have agreed on, from the common start to its end.
    fn take_part(
        &self,
        run: &Agreed<'_>,
        addresses: &BTreeMap<u32, SocketAddr>,
        receiving: Option<Receiving>,
        collector: Option<&mut Collector>,
    ) -> Result<()> {
        let Agreed { loaded, placement, .. } = run;
        let job = self.job;
        job.barrier();
        let now = jiff::Timestamp::now().as_nanosecond() + START_MARGIN_NS;
        let start = job.broadcast(u64::try_from(now).unwrap_or(0).to_le_bytes().to_vec());
        let start = start.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
        let start = start.map_or(Start::Soon, Start::NotBefore);
        let mine =
            placement.sends(job.rank()).and_then(|own| Some((own.flow, *addresses.get(&own.to)?)));
        let (to, blocks) = std::sync::mpsc::sync_channel(QUEUE);
        let log = (placement.sender_log && mine.is_some()).then(|| HandedTarget {
            place: name(0),
            log_id: job.rank(),
            to,
        });
        let mut blocks = log.is_some().then_some(blocks);
        let mut serving = receiving.map(|Receiving { receiver, blocks: own }| {
            blocks = own;
            let (end, ended) = watch::channel(None);
            Serving { end, receiver: Some(self.runtime.spawn(receiver.serve(ended))), over: false }
        });
        let mut carrier = Carrier::new(blocks);
        let latest = Latest::default();
        let sending = mine.map(|(flow, receiver)| {
            let sending = Sending {
                packet_secret: None,
                giving_way: false,
                peer_timeout_ns: None,
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
            (flow, receiver, sending)
        });
        let told = run.figures.then(|| latest.clone());
        let (runtime, signals) = (self.runtime, &self.signals);
        thread::scope(|scope| {
            let sender = sending.map(|(flow, receiver, sending)| {
                scope.spawn(move || {
                    let sent = runtime.block_on(send(sending, flow, receiver, told, signals));
                    sent_in_words(&loaded.plan, sent)
                })
            });
            talk(self, (&mut carrier, &latest), collector, sender, serving.as_mut())
        })
    }
}

/// Plans what rank 0 says: with the roles of the ranks, and the address of each receiver.
fn planned(said: &Value) -> Result<(Loaded, Placement, Vec<IpAddr>)> {
    let manifest = said.get("manifest").and_then(Value::as_str).context("no manifest")?;
    let loaded = load_manifest(&Manifest::parse(manifest)?)?;
    let placement = serde_json::from_value(said["placement"].clone()).context("no roles")?;
    let addresses = serde_json::from_value(said["addresses"].clone()).context("no addresses")?;
    Ok((loaded, placement, addresses))
}

/// A receiver that serves, at another rank than 0.
struct Serving {
    end: watch::Sender<Option<String>>,
    receiver: Option<JoinHandle<ReceiverOutcome>>,
    /// True once rank 0 has said that all flows are over.
    over: bool,
}

impl Serving {
    /// Ends it when rank 0 says that all flows are over.
    fn listen(&mut self, job: &Job) -> bool {
        let Some(received) = job.receive() else { return false };
        match received.tag {
            itg_mpi::tag::END => {
                self.over = true;
                self.end.send(Some("the run is over".to_owned())).unwrap_or_default();
            }
            other => {
                tracing::warn!("rank {} sent something of kind {other}: left out", received.from)
            }
        }
        true
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
    ranks: &Ranks<'_>,
    (carrier, latest): (&mut Carrier, &Latest),
    mut collector: Option<&mut Collector>,
    mut sender: Option<thread::ScopedJoinHandle<'_, Value>>,
    mut serving: Option<&mut Serving>,
) -> Result<()> {
    let job = ranks.job;
    let mut pause = SHORTEST_PAUSE;
    let mut result = None;
    let mut sharing = Sharing::default();
    let bug =
        |thread: &str| json!({ "code": 1, "failures": [format!("the {thread} stopped on a bug")] });
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
        if let Some(serving) = serving.as_deref_mut() {
            busy |= serving.listen(job);
            // All blocks of its log are on their way when it has ended.
            if let Some(ended) = serving.receiver.take_if(|receiver| receiver.is_finished()) {
                carrier.close();
                let received = ranks
                    .runtime
                    .block_on(ended)
                    .map_or_else(|_| bug("receiver"), received_in_words);
                result = Some(job.send(0, itg_mpi::tag::RESULT, serde_json::to_vec(&received)?));
            }
        }
        if finished
            && carrier.is_over()
            && sharing.is_over(latest)
            && let Some(ended) = sender.take()
        {
            let value = ended.join().unwrap_or_else(|_| bug("sending thread"));
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
        let served =
            serving.as_deref().is_none_or(|serving| serving.over && serving.receiver.is_none());
        if sender.is_none() && served && result.is_none() && collected && carrier.is_over() {
            return Ok(());
        }
        pause = if busy { SHORTEST_PAUSE } else { (pause * 2).min(LONGEST_PAUSE) };
        if !busy {
            thread::sleep(pause);
        }
    }
}

/// Account of a log, as a rank tells it rank 0.
fn log_in_words(log: &LogOutcome) -> Value {
    json!({
        "lost_records": log.lost_records, "stalls": log.stalls,
        "stalled_ns": log.stalled_ns, "error": log.error,
    })
}

/// Result of a rank for its receiver.
fn received_in_words(received: ReceiverOutcome) -> Value {
    json!({ "code": 0, "log": received.log.as_ref().map(log_in_words) })
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
            let log = sent.outcome.log.as_ref().map(log_in_words);
            let account = account(plan, &sent.outcome);
            json!({ "code": sent.code, "failures": failures, "account": account, "log": log })
        }
    }
}

/// A rank as events name it.
fn name(rank: u32) -> String {
    format!("rank {rank}")
}
