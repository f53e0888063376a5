//! Rank 0: stores the blocks of all senders' logs in one file and gathers what became of the flows.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use itg_core::units::format_duration_ns;
use itg_mpi::{Job, Keeper, tag};
use serde_json::Value;

use crate::events::{Events, FlowState, What};
use crate::figures::Figures;

/// Between two lines with the figures of all ranks.
const EVERY: Duration = Duration::from_secs(1);

/// Collection of what the ranks have sent to rank 0.
pub(super) struct Collector {
    log: Option<(PathBuf, BufWriter<File>)>,
    keeper: Keeper,
    /// Flows by rank.
    flows: BTreeMap<u32, u32>,
    events: Events,
    /// Figures of each rank so far.
    figures: BTreeMap<u32, Figures>,
    /// True if some of these have not been told yet; below it the instant when some were told last.
    untold: bool,
    told: Instant,
    results: BTreeMap<u32, Value>,
    error: Option<String>,
    stored_records_lost: bool,
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
    pub(super) log: Option<String>,
    /// Reason that the senders' log is not whole.
    pub(super) log_error: Option<String>,
}

impl Collector {
    /// For these flows, by rank; the senders' log goes to this file.
    pub(super) fn new(
        log: Option<PathBuf>,
        flows: BTreeMap<u32, u32>,
        events: Events,
    ) -> Result<Self> {
        let open = |path: PathBuf| -> Result<_> {
            let file = File::create(&path).with_context(|| format!("log {}", path.display()))?;
            Ok((path, BufWriter::with_capacity(1 << 18, file)))
        };
        let log = log.map(open).transpose()?;
        let (keeper, results) = (Keeper::default(), BTreeMap::new());
        Ok(Self {
            log,
            keeper,
            flows,
            events,
            figures: BTreeMap::new(),
            untold: false,
            told: Instant::now(),
            results,
            error: None,
            stored_records_lost: false,
        })
    }

    /// Takes what has come; whether there was anything.
    pub(super) fn step(&mut self, job: &Job) -> bool {
        if self.untold && self.told.elapsed() >= EVERY {
            self.tell();
        }
        let Some(received) = job.receive() else { return false };
        let from = received.from;
        match received.tag {
            tag::BLOCK => match self.keeper.block(from, &received.bytes) {
                Ok(()) => self.store(&received.bytes),
                Err(why) => self.fail(why.to_string()),
            },
            tag::DONE => {
                if let Err(why) = self.keeper.done(from, &received.bytes) {
                    self.fail(why.to_string());
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

    /// Takes the outcome of the flow of a rank.
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

    /// Returns true if every rank has ended its flow, and its log.
    pub(super) fn is_over(&self) -> bool {
        let flows = self.flows.len();
        let logs = if self.log.is_some() { flows } else { 0 };
        self.results.len() >= flows && self.keeper.ended() >= logs
    }

    /// The account of all.
    pub(super) fn finish(mut self) -> Collected {
        if self.untold {
            self.tell();
        }
        if let Some((path, file)) = &mut self.log
            && let Err(error) = file.flush()
        {
            let why = format!("log {}: {error}", path.display());
            self.fail(why);
        }
        let numbers = |key: &str| -> u64 {
            let values = self.results.values();
            values.filter_map(|value| value.get("log")?.get(key)?.as_u64()).sum()
        };
        let (lost, stalls, stalled_ns) =
            (numbers("lost_records"), numbers("stalls"), numbers("stalled_ns"));
        let log = self.log.as_ref().map(|(path, _)| {
            let (said, came) = self.keeper.totals();
            let state = if self.stored_records_lost { "came" } else { "stored" };
            format!(
                "log {}: {} records in {} blocks {state} of {} in {} sent by {} ranks, {lost} lost before; \
                 packets waited for it {stalls} times ({} together)",
                path.display(),
                came.records,
                came.blocks,
                said.records,
                said.blocks,
                self.flows.len(),
                format_duration_ns(stalled_ns / 1000 * 1000),
            )
        });
        let mut collected = Collected {
            code: 0,
            failures: Vec::new(),
            accounts: Vec::new(),
            log,
            log_error: self.error,
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
        if lost > 0 && collected.log_error.is_none() {
            collected.log_error = Some(format!("{lost} records of the senders' log are lost"));
        }
        collected
    }

    fn store(&mut self, block: &[u8]) {
        let Some((path, file)) = &mut self.log else { return };
        if self.stored_records_lost {
            return;
        }
        if let Err(error) = file.write_all(block) {
            let why = format!("log {}: {error}; blocks that come later are lost", path.display());
            self.stored_records_lost = true;
            self.fail(why);
        }
    }

    fn fail(&mut self, why: String) {
        tracing::error!("{why}");
        self.error.get_or_insert(why);
    }
}
