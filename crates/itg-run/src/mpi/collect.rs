//! Rank 0: stores the blocks of the ranks' logs and gathers what became of the flows and the receivers.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use itg_mpi::{InFlight, Job, tag};
use serde_json::Value;

use super::store::RankLog;
use crate::events::{Events, FlowState, What};
use crate::figures::Figures;

/// Between two lines with the figures of all ranks.
const EVERY: Duration = Duration::from_secs(1);

/// Collection of what the ranks have sent to rank 0.
pub(super) struct Collector {
    /// Flows by rank.
    flows: BTreeMap<u32, u32>,
    sender_log: Option<RankLog>,
    /// Ranks that receive and tell of it here.
    receivers: BTreeSet<u32>,
    receiver_log: Option<RankLog>,
    /// To the receivers, once all flows have ended.
    ends: Option<Vec<InFlight<[u8; 1]>>>,
    events: Events,
    /// Figures of each rank so far.
    figures: BTreeMap<u32, Figures>,
    /// True if some of these have not been told yet; below it the instant when some were told last.
    untold: bool,
    told: Instant,
    results: BTreeMap<u32, Value>,
}

/// Outcome of the run.
pub(super) struct Collected {
    /// The worst exit code.
    pub(super) code: u8,
    /// Failures, with the rank.
    pub(super) failures: Vec<String>,
    /// The accounts of the flows.
    pub(super) accounts: Vec<String>,
    /// The conservation line of the senders' log, when there is one.
    pub(super) sender_log: Option<String>,
    /// That of the receivers' log, when it comes from other ranks.
    pub(super) receiver_log: Option<String>,
    /// Reason that a log is not whole.
    pub(super) log_error: Option<String>,
}

impl Collector {
    /// Of the flows by rank with their log, and of the receiving ranks with theirs.
    pub(super) fn new(
        (flows, sender_log): (BTreeMap<u32, u32>, Option<RankLog>),
        (receivers, receiver_log): (BTreeSet<u32>, Option<RankLog>),
        events: Events,
    ) -> Self {
        Self {
            flows,
            sender_log,
            receivers,
            receiver_log,
            ends: None,
            events,
            figures: BTreeMap::new(),
            untold: false,
            told: Instant::now(),
            results: BTreeMap::new(),
        }
    }

    /// Takes what has come; whether there was anything.
    pub(super) fn step(&mut self, job: &Job) -> bool {
        if self.untold && self.told.elapsed() >= EVERY {
            self.tell();
        }
        self.end_receivers(job);
        let Some(received) = job.receive() else { return false };
        let from = received.from;
        match received.tag {
            tag::BLOCK | tag::DONE => {
                let receives = self.receivers.contains(&from);
                let log = if receives { &mut self.receiver_log } else { &mut self.sender_log };
                match (log, received.tag) {
                    (Some(log), tag::BLOCK) => log.block(from, &received.bytes),
                    (Some(log), _) => log.done(from, &received.bytes),
                    (None, _) => tracing::warn!("rank {from} sent of a log that is none: left out"),
                }
            }
            tag::RESULT => {
                let value = serde_json::from_slice(&received.bytes).unwrap_or(Value::Null);
                self.result(from, value);
            }
            tag::FIGURES => match Figures::read(&received.bytes) {
                Some(figures) => self.figures(from, figures),
                None => tracing::warn!("rank {from} sent figures that are none: left out"),
            },
            other => tracing::warn!("rank {from} sent something of kind {other}: left out"),
        }
        true
    }

    /// Tells the receivers that all flows have ended, once.
    fn end_receivers(&mut self, job: &Job) {
        if self.ends.is_none() && self.flows.keys().all(|rank| self.results.contains_key(rank)) {
            let ends = self.receivers.iter().map(|rank| job.send(*rank, tag::END, [0]));
            self.ends = Some(ends.collect());
        }
        if let Some(ends) = self.ends.as_mut().filter(|ends| !ends.is_empty()) {
            *ends = ends.drain(..).filter_map(|end| end.test().err()).collect();
        }
    }

    /// Takes the outcome of the flow, or of the receiver, of a rank.
    pub(super) fn result(&mut self, from: u32, value: Value) {
        if let Some(&flow) = self.flows.get(&from) {
            let well = value.get("code").and_then(Value::as_u64) == Some(0);
            let state = if well { FlowState::Finished } else { FlowState::Stopped };
            let owner = Some(super::name(from));
            self.events.tell(What::Flow { flow, state, owner, before: None });
        }
        self.results.insert(from, value);
    }

    /// Takes the figures of a rank so far.
    pub(super) fn figures(&mut self, from: u32, figures: Figures) {
        self.figures.insert(from, figures);
        self.untold = true;
    }

    /// Tells what all have sent so far.
    fn tell(&mut self) {
        let mut sum = Figures::default();
        self.figures.values().for_each(|figures| sum.add(figures));
        self.events.statistics(&sum);
        (self.untold, self.told) = (false, Instant::now());
    }

    /// Returns true if every rank has ended its part, and its log.
    pub(super) fn is_over(&self) -> bool {
        let ended =
            |log: &Option<RankLog>, ranks| log.as_ref().is_none_or(|log| log.ended() >= ranks);
        self.results.len() >= self.flows.len() + self.receivers.len()
            && self.ends.as_ref().is_some_and(Vec::is_empty)
            && ended(&self.sender_log, self.flows.len())
            && ended(&self.receiver_log, self.receivers.len())
    }

    /// The account of all.
    pub(super) fn finish(mut self) -> Collected {
        if self.untold {
            self.tell();
        }
        let mut log_error = None;
        let results = &self.results;
        let mut finish = |log: Option<RankLog>, ranks: &mut dyn Iterator<Item = &u32>| {
            let (line, error) = log?.finish(ranks.filter_map(|rank| results.get(rank)));
            log_error = log_error.take().or(error);
            Some(line)
        };
        let sender_log = finish(self.sender_log.take(), &mut self.flows.keys());
        let receiver_log = finish(self.receiver_log.take(), &mut self.receivers.iter());
        let mut collected = Collected {
            code: 0,
            failures: Vec::new(),
            accounts: Vec::new(),
            sender_log,
            receiver_log,
            log_error,
        };
        for (rank, value) in &self.results {
            let code = value.get("code").and_then(Value::as_u64).unwrap_or(1);
            collected.code = collected.code.max(u8::try_from(code).unwrap_or(1));
            let failures = value.get("failures").and_then(Value::as_array).into_iter().flatten();
            let error = value.get("log").and_then(|log| log.get("error"));
            for failure in failures.chain(error).filter_map(Value::as_str) {
                collected.failures.push(format!("rank {rank}: {failure}"));
            }
            if let Some(account) = value.get("account").and_then(Value::as_str) {
                collected.accounts.push(account.to_owned());
            }
        }
        collected
    }
}
