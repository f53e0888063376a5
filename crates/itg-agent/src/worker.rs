//! A process of its own that sends flows for an agent: should it die, the agent sees it at once and starts
//! another one, which goes on with the packets that are due then.
//!
//! Lines of JSON: the job and orders on stdin, news on stdout. When stdin ends the agent is gone, and the
//! worker stops.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, Write as _};
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use itg_cli::{Contents, PacingArgs, choose_pacing};
use itg_core::flow::FlowSpec;
use itg_core::rate::RateChange;
use itg_engine::pacing::PacingOptions;
use itg_engine::{FlowLive, Lease, LogTarget};
use itg_experiment::Plan;
use itg_node::{Orders, ReceiverOptions, SendFlow, SendJob, Start};
use itg_run::figures::{self, Figures};
use itg_run::receiver_options;
use itg_session::{EndCause, FlowTotals};
use serde::{Deserialize, Serialize};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};

use crate::description::Description;
use crate::run_dir::hold_workers;

/// Time for which the two ends of a flow may hear nothing of each other, 1 h: its lease says when it ends, and the group
/// knows which nodes are there. So packets that a cut path loses are counted.
const SIGNALLING_PATIENCE_NS: u64 = 3_600_000_000_000;
/// Time that a worker whose agent is gone may take to close its log.
const ALONE: Duration = Duration::from_secs(10);

/// Work of a worker.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Job {
    /// The experiment.
    pub(crate) description: Description,
    /// Numbers of the flows, and where their receivers are.
    pub(crate) flows: BTreeMap<u32, SocketAddr>,
    /// Changes of their rates so far; times count from the start of the run.
    pub(crate) changes: BTreeMap<u32, Vec<RateChange>>,
    /// Instant from which planned times count, on this host's clock.
    pub(crate) epoch_unix_ns: u64,
    /// Instant from which this worker may send (CLOCK_MONOTONIC); `None` if no other one has sent before.
    pub(crate) resume_ns: Option<u64>,
    /// Until when it may send (CLOCK_MONOTONIC).
    pub(crate) lease_ns: u64,
    /// One of how many packets is stamped when it leaves this host.
    pub(crate) tx_stamps: Option<NonZeroU32>,
    /// Properties of this host for its log, beside what the worker knows.
    pub(crate) settings: BTreeMap<String, String>,
    /// Log of what it sends.
    pub(crate) log: PathBuf,
}

/// Order to a worker that runs.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Order {
    /// It may send until then.
    Lease(u64),
    /// This flow ends now.
    Stop(u32),
    /// All changes of the rate of this flow; times count from the start of the run.
    Rate(u32, Vec<RateChange>),
}

/// Message of a worker.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum News {
    /// Figures of its flows so far.
    Figures(Figures),
    /// A flow has ended here: the number of its next packet, the reason, and whether that is its end.
    Ended {
        /// Number of the flow.
        flow: u32,
        /// Number of the packet behind the last one.
        next: u64,
        /// End reason.
        reason: String,
        /// True if its schedule is at the end.
        whole: bool,
    },
    /// Its log lacks what it has sent, and why.
    LogFailed(String),
}

/// Settings of the receiver of a node, which is as patient as its senders.
pub(crate) fn patient_receiver(log: PathBuf, listen: SocketAddr) -> ReceiverOptions {
    receiver_options(LogTarget::File(log), listen).peer_timeout_ns(SIGNALLING_PATIENCE_NS)
}

/// Runs as a worker.
///
/// # Errors
/// The agent gives no job that can be done.
pub fn run() -> Result<ExitCode> {
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).context("the job")?;
    let job: Job = serde_json::from_str(&line).context("the job")?;
    let dir = job.log.parent().context("the log has no directory")?;
    // Held to the end of the process.
    let _held = hold_workers(dir).context("the lock of the workers")?;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    runtime.block_on(work(job))?;
    // A thread waits for stdin, and would for ever.
    runtime.shutdown_background();
    Ok(ExitCode::SUCCESS)
}

fn tell(news: &News) -> Result<()> {
    let mut line = serde_json::to_string(news)?;
    line.push('\n');
    let mut out = std::io::stdout().lock();
    out.write_all(line.as_bytes())?;
    out.flush()?;
    Ok(())
}

/// Number of a flow and when it starts, in nanoseconds after the start of the run.
const fn start_of(spec: &FlowSpec) -> (u32, u64) {
    (spec.id, spec.start_ns)
}

/// Changes whose times count from the start of the run, with times from the start of the flow: of several
/// before that the last one counts.
fn from_start(changes: &[RateChange], start_ns: u64) -> Vec<RateChange> {
    let before = changes.iter().rposition(|change| change.at_ns <= start_ns).unwrap_or(0);
    let moved = |change: &RateChange| RateChange {
        at_ns: change.at_ns.saturating_sub(start_ns),
        ..*change
    };
    changes[before.min(changes.len())..].iter().map(moved).collect()
}

impl Job {
    /// The flows that this worker sends.
    fn flows_of(&self, plan: &Plan) -> Result<Vec<SendFlow>> {
        let mut contents = Contents::new(plan);
        let mut flows = Vec::new();
        for planned in &plan.flows {
            let id = planned.flow.spec().id;
            let Some(receiver) = self.flows.get(&id) else { continue };
            let live = Arc::new(FlowLive::default());
            let content = contents.of(&planned.flow.spec().payload)?;
            let mut flow = planned.flow.clone();
            if let Some(changes) = self.changes.get(&id) {
                flow = flow.with_changes(from_start(changes, flow.spec().start_ns))?;
            }
            let name = planned.name.clone();
            flows.push(SendFlow::new(flow, *receiver, content).name(name).live(live));
        }
        Ok(flows)
    }
}

/// Tells the agent of flows that end while others go on; their numbers, when the run is over.
async fn tell_ends(mut endings: mpsc::UnboundedReceiver<FlowTotals>) -> BTreeSet<u32> {
    let mut told = BTreeSet::new();
    while let Some(totals) = endings.recv().await {
        told.insert(totals.flow);
        let (flow, next, reason) = (totals.flow, totals.next_seq, totals.reason);
        let whole = reason.is_whole();
        let reason = reason.to_string();
        if let Err(error) = tell(&News::Ended { flow, next, reason, whole }) {
            tracing::debug!(%error, "the agent does not listen");
        }
    }
    told
}

async fn work(job: Job) -> Result<()> {
    // Its agent ends it, and gets these signals, too: from a terminal, or when its service is stopped.
    let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
    let _caught = kinds.map(signal).into_iter().collect::<Result<Vec<_>, _>>()?;
    let (experiment, plan) = job.description.plan()?;
    let lease = Arc::new(Lease::until(job.lease_ns));
    let (stop, stops) = mpsc::unbounded_channel();
    let (rate, rates) = mpsc::unbounded_channel();
    let starts: BTreeMap<u32, u64> =
        plan.flows.iter().map(|flow| start_of(flow.flow.spec())).collect();
    let (ends, endings) = mpsc::unbounded_channel();
    let (end, ended) = watch::channel(None);
    let orders_lease = Arc::clone(&lease);
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines() {
            let Ok(line) = line else { break };
            match serde_json::from_str(&line) {
                Ok(Order::Lease(until)) => orders_lease.renew(until),
                Ok(Order::Stop(flow)) => {
                    // The run may be over.
                    stop.send(flow).unwrap_or_default();
                }
                Ok(Order::Rate(flow, changes)) => {
                    let start_ns = starts.get(&flow).copied().unwrap_or(0);
                    // The run may be over.
                    drop(rate.send((flow, from_start(&changes, start_ns))));
                }
                Err(error) => tracing::error!(%error, "an order that makes no sense"),
            }
        }
        orders_lease.renew(0);
        drop(end.send(Some("the agent is gone".to_owned())));
        // Nobody is left to end a worker that hangs.
        std::thread::sleep(ALONE);
        std::process::exit(1);
    });
    let flows = job.flows_of(&plan)?;
    let lives = flows.iter().map(|flow| (flow.flow().spec().id, flow.counters())).collect();
    let mut settings = job.settings;
    settings.insert("plan".to_owned(), plan.hash_text());
    let pacing = PacingArgs::default().options(&experiment.pacing);
    let pacing = PacingOptions { tx_stamps: job.tx_stamps, ..pacing };
    let pacing = choose_pacing(pacing, &mut settings)?;
    let send = SendJob::new(plan.seed, flows)
        .run(job.description.run.clone())
        .start(Start::At(job.epoch_unix_ns))
        .pacing(pacing)
        .log(LogTarget::File(job.log))
        .program("itg-cluster", env!("CARGO_PKG_VERSION"))
        .settings(settings)
        .peer_timeout_ns(SIGNALLING_PATIENCE_NS)
        .orders(Orders { resume_ns: job.resume_ns, lease, stops, rates, ends });
    let telling = tokio::spawn(tell_ends(endings));
    let (over, is_over) = tokio::sync::oneshot::channel();
    let following = tokio::spawn(figures::follow(lives, is_over, |figures| {
        if let Err(error) = tell(&News::Figures(figures.clone())) {
            tracing::debug!(%error, "the agent does not listen");
        }
    }));
    let outcome = itg_node::send(send, ended).await;
    over.send(()).unwrap_or_default();
    following.await?;
    let outcome = outcome?;
    // The run has ended: nothing tells of an end any more.
    let told = telling.await?;
    if let Some(error) = outcome.log.as_ref().and_then(|log| log.error.as_ref()) {
        tell(&News::LogFailed(error.to_string()))?;
    }
    for flow in outcome.flows.iter().filter(|flow| !told.contains(&flow.flow)) {
        let (next, reason) = match (&flow.totals, &flow.refused) {
            (_, Some(why)) => (0, EndCause::Refused(why.clone()).into()),
            (Some(totals), None) => (totals.next_seq, totals.reason.clone()),
            (None, None) => {
                let receiver = job.flows.get(&flow.flow);
                let failed = outcome.failures.iter().find(|(at, _)| Some(at) == receiver);
                let why = failed.map(|(_, error)| error.to_string());
                (0, why.map_or(EndCause::NotAgreed, EndCause::Refused).into())
            }
        };
        let (whole, reason) = (reason.is_whole(), reason.to_string());
        tell(&News::Ended { flow: flow.flow, next, reason, whole })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_count_from_the_start_of_the_flow() {
        let changes = |list: &[(u64, u32)]| -> Vec<RateChange> {
            list.iter().map(|&(at_ns, ppm)| RateChange { at_ns, ppm }).collect()
        };
        for (given, start_ns, want) in [
            (vec![], 5, vec![]),
            (vec![(10, 2), (20, 3)], 0, vec![(10, 2), (20, 3)]),
            (vec![(10, 2), (20, 3)], 15, vec![(0, 2), (5, 3)]),
            (vec![(10, 2), (20, 3)], 20, vec![(0, 3)]),
            (vec![(10, 2), (20, 3)], 50, vec![(0, 3)]),
        ] {
            assert_eq!(
                from_start(&changes(&given), start_ns),
                changes(&want),
                "{given:?} {start_ns}"
            );
        }
    }
}
