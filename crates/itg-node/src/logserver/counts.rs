//! Counts of a log server, which others may read while it runs.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use itg_session::logs::LogAccount;
use itg_socket::clock;

use super::files::Block;
use super::shared::Shared;
use crate::lock::lock;

/// Logs that lack blocks and are remembered one by one; of more, the sum is kept.
const MOST_LOGS: usize = 4096;

/// Counts of a log server so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogServerReading {
    /// Producers that are there.
    pub producers: usize,
    /// Connections that were served.
    pub connections: u64,
    /// Connections that were turned away, and producers that were refused.
    pub refused: u64,
    /// Blocks that were stored.
    pub blocks: u64,
    /// Records in these.
    pub records: u64,
    /// Bytes of the blocks that were stored.
    pub bytes: u64,
    /// Blocks that were not taken, since their log or experiment is full or there was no memory for them.
    pub refused_blocks: u64,
    /// Blocks that logs lack whose producers have left.
    pub missing_blocks: u64,
    /// Blocks that came with other contents than those that were stored before, in these logs.
    pub conflicting_blocks: u64,
    /// Memory for blocks on their way, in bytes.
    pub outstanding_bytes: u64,
    /// Writes and syncs that failed; a disk that stays full counts once.
    pub disk_errors: u64,
    /// Last time that blocks were synced, in Unix nanoseconds.
    pub synced_unix_ns: Option<u64>,
}

#[derive(Debug, Default)]
pub(super) struct Counts {
    connections: AtomicU64,
    refused: AtomicU64,
    refused_blocks: AtomicU64,
    blocks: AtomicU64,
    records: AtomicU64,
    bytes: AtomicU64,
    disk_errors: AtomicU64,
    synced_unix_ns: AtomicU64,
    logs: Mutex<Logs>,
}

/// Missing and conflicting blocks by log, as its last account says.
#[derive(Debug, Default)]
struct Logs {
    by_log: BTreeMap<(String, u32), (u64, u64)>,
    others: (u64, u64),
}

impl Logs {
    fn account(&mut self, log: (String, u32), blocks: (u64, u64)) {
        if blocks == (0, 0) {
            self.by_log.remove(&log);
            return;
        }
        self.by_log.insert(log, blocks);
        if self.by_log.len() > MOST_LOGS
            && let Some((_, (missing, conflicting))) = self.by_log.pop_first()
        {
            self.others = (self.others.0 + missing, self.others.1 + conflicting);
        }
    }

    fn sum(&self) -> (u64, u64) {
        let all = self.by_log.values();
        all.fold(self.others, |sum, log| (sum.0 + log.0, sum.1 + log.1))
    }
}

impl Counts {
    pub(super) fn connected(&self) {
        self.connections.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn refused_block(&self) {
        self.refused_blocks.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn stored(&self, blocks: &[Block]) {
        let records = blocks.iter().map(|block| u64::from(block.records)).sum();
        let bytes = blocks.iter().map(|block| block.bytes.len() as u64).sum();
        for (count, more) in
            [(&self.blocks, blocks.len() as u64), (&self.records, records), (&self.bytes, bytes)]
        {
            count.fetch_add(more, Ordering::Relaxed);
        }
    }

    pub(super) fn disk_error(&self) {
        self.disk_errors.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn synced(&self) {
        self.synced_unix_ns.store(clock::unix_ns(), Ordering::Relaxed);
    }

    pub(super) fn account(&self, account: &LogAccount) {
        let blocks = (account.missing_blocks, account.conflicting_blocks);
        lock(&self.logs).account((account.run.clone(), account.log_id), blocks);
    }
}

impl Shared {
    pub(super) fn read(&self) -> LogServerReading {
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let (producers, outstanding_bytes) = {
            let book = lock(&self.book);
            (book.producers(), book.outstanding_bytes())
        };
        let (missing_blocks, conflicting_blocks) = lock(&self.counts.logs).sum();
        let synced = get(&self.counts.synced_unix_ns);
        LogServerReading {
            producers,
            connections: get(&self.counts.connections),
            refused: get(&self.counts.refused),
            blocks: get(&self.counts.blocks),
            records: get(&self.counts.records),
            refused_blocks: get(&self.counts.refused_blocks),
            bytes: get(&self.counts.bytes),
            missing_blocks,
            conflicting_blocks,
            outstanding_bytes,
            disk_errors: get(&self.counts.disk_errors),
            synced_unix_ns: (synced > 0).then_some(synced),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_blocks_are_those_of_the_last_account_of_each_log() {
        let mut logs = Logs::default();
        let log = |id| ("run".to_owned(), id);
        logs.account(log(1), (5, 0));
        logs.account(log(2), (2, 1));
        assert_eq!(logs.sum(), (7, 1));
        logs.account(log(1), (3, 0));
        assert_eq!(logs.sum(), (5, 1), "its producer came back and brought two");
        logs.account(log(1), (0, 0));
        assert_eq!(logs.sum(), (2, 1));
        for id in 10..2 * u32::try_from(MOST_LOGS).expect("few") {
            logs.account(log(id), (1, 0));
        }
        assert!(logs.by_log.len() <= MOST_LOGS);
        assert_eq!(logs.sum().0, 2 + 2 * MOST_LOGS as u64 - 10);
    }
}
