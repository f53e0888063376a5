//! State of all logs of a log server, shared by its sessions: number and writer of each log, and
//! which of its blocks are stored or being stored; and the memory for blocks ([`LogLimits`]).
//!
//! It is rebuilt from the files after a restart ([`LogBook::restore`]). Nothing in it grows with what
//! a producer says beyond the limits: logs and experiments are counted, names are cut, sets of blocks have
//! bounded numbers of ranges, and blocks that are being stored are within the budget.

use std::collections::BTreeMap;

use itg_core::units::format_bytes;

use super::blocks::BlockSet;
use super::checksums::Checksums;
use super::credit::Credit;
use super::message::Registration;

/// Number of a session of a server, drawn by its driver, never used twice.
pub type SessionId = u64;

/// Limits of a log server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogLimits {
    /// Producers at the same time. Default 256.
    pub producers: usize,
    /// Experiments with producers at the same time. Default 64.
    pub experiments: usize,
    /// Logs in one experiment. Default 4096.
    pub logs: usize,
    /// Largest block, in bytes with its header. Default 1 MiB.
    pub block_bytes: u32,
    /// Memory for blocks that are on their way or being stored, in bytes. Half of it is kept so that each
    /// producer always may have two blocks on the way. Default 256 MiB.
    pub budget_bytes: u64,
    /// Most bytes of that for one producer, besides its two blocks. Default 16 MiB.
    pub producer_bytes: u64,
    /// Most bytes of one log on disk. Default: no limit.
    pub log_bytes: u64,
    /// Most bytes of all logs of one experiment on disk. Default: no limit.
    pub experiment_bytes: u64,
    /// Ranges of stored blocks that are told apart in one log; when a log has more gaps, the lowest
    /// ones are given up. More than any producer's window. Default 65536.
    pub ranges: usize,
}

impl Default for LogLimits {
    fn default() -> Self {
        Self {
            producers: 256,
            experiments: 64,
            logs: 4096,
            block_bytes: 1 << 20,
            budget_bytes: 256 << 20,
            producer_bytes: 16 << 20,
            log_bytes: u64::MAX,
            experiment_bytes: u64::MAX,
            ranges: 1 << 16,
        }
    }
}

/// A log as it was found in the files of an experiment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestoredLog {
    /// Identity of the log, from the index.
    pub key: [u8; 16],
    /// Its number, from the index.
    pub log_id: u32,
    /// The blocks of it that are in the file, as they stand there: number, records and checksum of each.
    pub blocks: Vec<(u32, u32, u32)>,
    /// Bytes that they take there.
    pub bytes: u64,
    /// Blocks of it that are in earlier files of the experiment, as first and last of each range, and the records in
    /// them.
    pub earlier: (Vec<(u32, u32)>, u64),
}

/// A log.
#[derive(Clone, Debug)]
struct Log {
    stored: BlockSet,
    records: u64,
    /// Bytes that its blocks take on disk, those being stored included.
    bytes: u64,
    /// Blocks that are being stored, with their records and bytes: within the server's budget.
    pending: BTreeMap<u32, (u32, u32)>,
    /// Of the blocks that are stored or being stored.
    checksums: Checksums,
    /// Numbers under which other contents came.
    conflicts: BlockSet,
    /// Records in these.
    conflicting_records: u64,
    /// The session that may add to it.
    owner: Option<SessionId>,
}

impl Log {
    fn new(ranges: usize) -> Self {
        Self {
            stored: BlockSet::new(ranges),
            records: 0,
            bytes: 0,
            pending: BTreeMap::new(),
            checksums: Checksums::default(),
            conflicts: BlockSet::new(ranges),
            conflicting_records: 0,
            owner: None,
        }
    }
}

/// An experiment.
#[derive(Clone, Debug, Default)]
struct Run {
    keys: BTreeMap<[u8; 16], u32>,
    logs: BTreeMap<u32, Log>,
    /// Bytes that its logs take on disk.
    bytes: u64,
    /// Sessions that use it.
    sessions: usize,
}

/// State of a block, which tells what to do with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Offer {
    /// Store it.
    New,
    /// It is being stored.
    Pending,
    /// It is stored.
    Stored,
}

/// Size of a block in records and bytes, and its checksum, as it says itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct BlockContent {
    pub(super) records: u32,
    pub(super) bytes: u32,
    pub(super) checksum: u32,
}

/// Reason of the refusal of a producer; true if it may try again later.
pub(super) type Refusal = (String, bool);

/// A producer that was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Enrolled {
    pub(super) log_id: u32,
    pub(super) is_new: bool,
    /// The session that wrote the log so far and does not know yet that it is over.
    pub(super) previous: Option<SessionId>,
}

/// State of a log that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogState {
    /// Blocks stored.
    pub blocks: u64,
    /// Records in them.
    pub records: u64,
    /// Blocks that are being stored.
    pub pending: usize,
    /// Blocks that came with other contents than those under their numbers.
    pub conflicting_blocks: u64,
    /// Records in them.
    pub conflicting_records: u64,
}

/// The words for an experiment that may not grow.
fn experiment_is_full(run: &str, most: u64) -> String {
    let most = format_bytes(most);
    format!("experiment `{run}` is full: this log server takes {most} of each experiment")
}

/// State of all logs of a log server.
#[derive(Clone, Debug)]
pub struct LogBook {
    limits: LogLimits,
    runs: BTreeMap<String, Run>,
    pub(super) credit: Credit,
}

impl LogBook {
    /// An empty book.
    #[must_use]
    pub const fn new(limits: LogLimits) -> Self {
        let credit = Credit::new(limits.budget_bytes, limits.producer_bytes);
        Self { limits, runs: BTreeMap::new(), credit }
    }

    /// The limits.
    #[must_use]
    pub const fn limits(&self) -> &LogLimits {
        &self.limits
    }

    /// Puts in what the files of an experiment say; nothing happens when the book knows it already.
    /// `run` is the name from [`ServerOutput::Open`](super::ServerOutput::Open). Forgets another
    /// experiment, which no session uses, when there would be too many.
    pub fn restore(&mut self, run: &str, logs: impl IntoIterator<Item = RestoredLog>) {
        if self.knows(run) || self.room_for(run).is_err() {
            return;
        }
        if self.runs.len() >= self.limits.experiments {
            let unused = self.runs.iter().find(|(_, run)| run.sessions == 0);
            if let Some(name) = unused.map(|(name, _)| name.clone()) {
                self.runs.remove(&name);
            }
        }
        let mut restored = Run::default();
        for log in logs {
            let mut state = Log::new(self.limits.ranges);
            state.bytes = log.bytes;
            state.records = log.earlier.1;
            log.earlier.0.iter().for_each(|&(first, last)| state.stored.insert_range(first, last));
            restored.bytes = restored.bytes.saturating_add(log.bytes);
            for (block_no, records, checksum) in log.blocks {
                if state.stored.insert(block_no) {
                    state.records = state.records.saturating_add(u64::from(records));
                    state.checksums.insert(block_no, checksum);
                }
            }
            restored.keys.insert(log.key, log.log_id);
            restored.logs.insert(log.log_id, state);
        }
        self.runs.insert(run.to_owned(), restored);
    }

    /// Returns true if the book knows an experiment.
    #[must_use]
    pub fn knows(&self, run: &str) -> bool {
        self.runs.contains_key(run)
    }

    /// Forgets an experiment, unless a session uses it; returns true if it is forgotten.
    pub fn forget(&mut self, run: &str) -> bool {
        let unused = self.runs.get(run).is_some_and(|run| run.sessions == 0);
        unused && self.runs.remove(run).is_some()
    }

    /// A log of an experiment.
    #[must_use]
    pub fn log(&self, run: &str, log_id: u32) -> Option<LogState> {
        let log = self.runs.get(run)?.logs.get(&log_id)?;
        let (blocks, pending) = (log.stored.len(), log.pending.len());
        Some(LogState {
            blocks,
            records: log.records,
            pending,
            conflicting_blocks: log.conflicts.len(),
            conflicting_records: log.conflicting_records,
        })
    }

    /// Producers that are there.
    #[must_use]
    pub fn producers(&self) -> usize {
        self.credit.seats()
    }

    /// Memory that blocks on their way or being stored may need at most, in bytes.
    #[must_use]
    pub fn outstanding_bytes(&self) -> u64 {
        self.credit.outstanding_bytes()
    }

    /// The disk is full: no producer gets more credit. The driver keeps what it could not write and
    /// tries again.
    pub const fn disk_full(&mut self) {
        self.credit.freeze();
    }

    /// The disk has room again. The driver says [`ServerInput::Woken`](super::ServerInput::Woken) to
    /// these sessions.
    #[must_use]
    pub fn disk_free(&mut self) -> Vec<SessionId> {
        let mut woken = Vec::new();
        self.credit.thaw(&mut woken);
        woken.sort_unstable();
        woken.dedup();
        woken
    }

    /// Checks that an experiment is there, or that another one may come.
    pub(super) fn room_for(&self, run: &str) -> Result<(), Refusal> {
        let most = self.limits.experiments;
        if self.knows(run) || self.runs.values().filter(|run| run.sessions > 0).count() < most {
            return Ok(());
        }
        Err((format!("the log server has producers of {most} experiments: its limit"), true))
    }

    /// Takes a producer: finds its log or begins a new one, and gives it a seat.
    pub(super) fn enrol(
        &mut self,
        id: SessionId,
        run: &str,
        who: &Registration,
        in_advance: bool,
        woken: &mut Vec<SessionId>,
    ) -> Result<Enrolled, Refusal> {
        let limits = self.limits;
        if self.credit.seats() >= limits.producers {
            let n = limits.producers;
            return Err((format!("the log server has {n} producers already: its limit"), true));
        }
        let Some(state) = self.runs.get_mut(run) else {
            return Err((format!("experiment `{run}` is not open at the log server"), true));
        };
        let known = state.keys.get(&who.key).copied();
        if known.is_none() && state.logs.len() >= limits.logs {
            let n = limits.logs;
            return Err((format!("experiment `{run}` has {n} logs already: the limit"), false));
        }
        if state.bytes >= limits.experiment_bytes {
            return Err((experiment_is_full(run, limits.experiment_bytes), false));
        }
        let highest = state.logs.keys().next_back().copied();
        let next = highest.map_or(Some(1), |id| id.checked_add(1));
        let Some(log_id) = known.or(next) else {
            return Err((format!("experiment `{run}` has no more numbers for logs"), false));
        };
        if !self.credit.join(id, u64::from(who.block_bytes), in_advance, woken) {
            let text = "the log server has no memory for another producer: give it more, or use \
                        smaller blocks";
            return Err((text.to_owned(), true));
        }
        state.sessions += 1;
        state.keys.insert(who.key, log_id);
        let log = state.logs.entry(log_id).or_insert_with(|| Log::new(limits.ranges));
        let previous = log.owner.replace(id);
        Ok(Enrolled { log_id, is_new: known.is_none(), previous })
    }

    /// A session is over and all its blocks are settled. Whether it was the last one of its
    /// experiment.
    pub(super) fn vacate(
        &mut self,
        id: SessionId,
        run: &str,
        log_id: u32,
        woken: &mut Vec<SessionId>,
    ) -> bool {
        self.credit.leave(id, woken);
        let Some(run) = self.runs.get_mut(run) else { return false };
        if let Some(log) = run.logs.get_mut(&log_id) {
            log.owner.take_if(|owner| *owner == id);
        }
        run.sessions = run.sessions.saturating_sub(1);
        run.sessions == 0
    }

    fn get(&self, run: &str, log_id: u32) -> Option<&Log> {
        self.runs.get(run)?.logs.get(&log_id)
    }

    /// The session that may add to a log.
    pub(super) fn owner(&self, run: &str, log_id: u32) -> Option<SessionId> {
        self.get(run, log_id)?.owner
    }

    /// Looks up the state of a block.
    pub(super) fn look_up(&self, run: &str, log_id: u32, block_no: u32) -> Offer {
        match self.get(run, log_id) {
            Some(log) if log.pending.contains_key(&block_no) => Offer::Pending,
            Some(log) if log.stored.contains(block_no) => Offer::Stored,
            _ => Offer::New,
        }
    }

    /// Compares a block that came again with what is stored under its number; false if that is something
    /// else, which is counted.
    pub(super) fn is_same(
        &mut self,
        run: &str,
        log_id: u32,
        block_no: u32,
        content: BlockContent,
    ) -> bool {
        let log = self.runs.get_mut(run).and_then(|run| run.logs.get_mut(&log_id));
        let Some(log) = log else { return true };
        // A number that was given up has no content.
        if log.checksums.get(block_no).is_none_or(|checksum| checksum == content.checksum) {
            return true;
        }
        if log.conflicts.insert(block_no) {
            log.conflicting_records += u64::from(content.records);
        }
        false
    }

    /// Checks that so many more bytes of a log may be stored on disk; the error names the limit.
    pub(super) fn may_grow(&self, run: &str, log_id: u32, bytes: u32) -> Result<(), String> {
        let Some(state) = self.runs.get(run) else { return Ok(()) };
        let (most, bytes) = (self.limits.log_bytes, u64::from(bytes));
        if state.logs.get(&log_id).is_some_and(|log| log.bytes.saturating_add(bytes) > most) {
            let most = format_bytes(most);
            return Err(format!(
                "log {log_id} of experiment `{run}` is full: this log server takes {most} of each log"
            ));
        }
        if state.bytes.saturating_add(bytes) > self.limits.experiment_bytes {
            return Err(experiment_is_full(run, self.limits.experiment_bytes));
        }
        Ok(())
    }

    /// A block is going to be stored.
    pub(super) fn begin(&mut self, run: &str, log_id: u32, block_no: u32, content: BlockContent) {
        let Some(state) = self.runs.get_mut(run) else { return };
        let BlockContent { records, bytes, checksum } = content;
        if let Some(log) = state.logs.get_mut(&log_id) {
            log.pending.insert(block_no, (records, bytes));
            log.checksums.insert(block_no, checksum);
            log.bytes = log.bytes.saturating_add(u64::from(bytes));
            state.bytes = state.bytes.saturating_add(u64::from(bytes));
        }
    }

    /// A block that was going to be stored is, or is not.
    pub(super) fn end(&mut self, run: &str, log_id: u32, block_no: u32, stored: bool) {
        let Some(state) = self.runs.get_mut(run) else { return };
        let Some(log) = state.logs.get_mut(&log_id) else { return };
        let Some((records, bytes)) = log.pending.remove(&block_no) else { return };
        if !stored {
            log.checksums.remove(block_no);
            log.bytes = log.bytes.saturating_sub(u64::from(bytes));
            state.bytes = state.bytes.saturating_sub(u64::from(bytes));
        } else {
            log.records = log.records.saturating_add(u64::from(records));
            if !log.stored.insert(block_no) {
                log.stored.recover();
            }
        }
    }

    /// Missing blocks of a log below `end`: at most `most` ranges, and the number of blocks
    /// besides.
    pub(super) fn missing(
        &self,
        run: &str,
        log_id: u32,
        end: u32,
        most: usize,
    ) -> (Vec<(u32, u32)>, u64) {
        self.get(run, log_id).map_or((Vec::new(), 0), |log| log.stored.missing(end, most))
    }
}
