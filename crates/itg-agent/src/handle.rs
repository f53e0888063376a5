//! The work of a run as others in its agent see it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use itg_cli::FlowLabels;
use itg_control::{Command, ControlRequest, Replica};
use itg_run::figures::Figures;
use tokio::sync::{broadcast, watch};

use crate::member::Member;
use crate::wire::Logs;

/// Snapshot of the work for the agent's answers and its status page.
#[derive(Default)]
pub(crate) struct WorkSnapshot {
    pub(crate) name: String,
    pub(crate) nodes: Vec<String>,
    /// Names of the flows by number, from 1.
    pub(crate) names: Vec<String>,
    /// Labels of the flows by number, for their lines on the page.
    pub(crate) labels: BTreeMap<u32, FlowLabels>,
    /// Means of the flows as asked for: packets per second, and bytes of a packet.
    pub(crate) means: BTreeMap<u32, (f64, f64)>,
    pub(crate) view: u64,
    /// Number of commands and views that the group has agreed on, as far as this node knows.
    pub(crate) ordered: u64,
    /// The run has been started.
    pub(crate) begun: bool,
    /// Workers that run.
    pub(crate) workers: usize,
    /// No worker runs, and none will.
    pub(crate) drained: bool,
    /// All logs are closed.
    pub(crate) closed: bool,
    /// Slots of the view.
    pub(crate) slots: Vec<u32>,
    /// Error in writing a log, if there was one.
    pub(crate) trouble: Option<String>,
    /// Until when it may send (CLOCK_MONOTONIC); 0 without a lease.
    pub(crate) lease_ns: u64,
    /// Instant until which flows come to it although members are gone (Unix time of this host); 0
    /// when they end with the others.
    pub(crate) receives_until_ns: u64,
    /// Figures of each worker; at 0 the sum of those that have ended.
    pub(crate) figures: BTreeMap<u64, Figures>,
}

impl WorkSnapshot {
    /// State of the logs.
    pub(crate) const fn logs(&self) -> Logs {
        match (self.closed, self.drained) {
            (true, _) => Logs::Closed,
            (false, true) => Logs::Drained,
            (false, false) => Logs::Open,
        }
    }

    /// A worker has ended: what it has sent stays.
    pub(crate) fn fold(&mut self, worker: u64) {
        if let Some(last) = self.figures.remove(&worker) {
            self.figures.entry(0).or_default().add(&last);
        }
    }
}

/// End of a node's part in a run before the run is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leaving {
    /// For good, and why.
    Abandoned(&'static str),
    /// With the agent, which goes on with it when it is started again.
    Stopped,
}

/// The work of a run, as its agent sees it.
#[derive(Clone)]
pub(crate) struct Handle {
    pub(crate) member: Member,
    pub(crate) seen: Arc<Mutex<WorkSnapshot>>,
    pub(crate) applied: broadcast::Sender<(u32, u64, Command, Option<String>)>,
    pub(crate) replica: watch::Receiver<Option<Replica>>,
    /// End of the part in the run; `None` as long as it goes on.
    pub(crate) left: Arc<watch::Sender<Option<Leaving>>>,
}

impl Handle {
    pub(crate) fn seen(&self) -> MutexGuard<'_, WorkSnapshot> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the work at once: no packet leaves any more, and logs are closed. The first reason counts.
    pub(crate) fn leave(&self, how: Leaving) {
        self.left.send_if_modified(|left| left.is_none() && left.replace(how).is_none());
    }

    /// Figures of the flows that this node has sent.
    pub(crate) fn figures(&self) -> Figures {
        let mut sum = Figures::default();
        self.seen().figures.values().for_each(|worker| sum.add(worker));
        sum
    }

    /// The state, as this member knows it now.
    pub(crate) async fn look(&self) -> Option<Replica> {
        let mut replica = self.replica.clone();
        replica.mark_unchanged();
        self.member.ask(ControlRequest::Look).await;
        let waiting = tokio::time::timeout(Duration::from_secs(2), replica.changed());
        if !matches!(waiting.await, Ok(Ok(()))) {
            return None;
        }
        replica.borrow().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_workers_that_have_ended_are_kept_in_one_place() {
        let mut seen = WorkSnapshot::default();
        for worker in 1..=100 {
            let mut figures = Figures::default();
            figures.flows.entry(1).or_default().sent_packets = 10;
            seen.figures.insert(worker, figures);
            seen.fold(worker);
        }
        assert_eq!(seen.figures.len(), 1);
        assert_eq!(seen.figures[&0].total().sent_packets, 1000);
    }
}
