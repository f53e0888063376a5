//! State that the sessions of a receiver share.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize};

use itg_engine::log::Log;
use itg_record::{LogInfo, Side};

use super::options::ReceiverOptions;
use super::ports::Sockets;
use super::shards::Shards;

/// Flows at the same time, of all senders together.
pub(super) const MAX_FLOWS: usize = 65_536;
/// The log that all senders share; the others are those that senders have asked for.
pub(super) const COMMON_LOG: usize = 0;

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) options: ReceiverOptions,
    pub(super) boot_id: String,
    pub(super) rx: Shards,
    pub(super) sockets: Mutex<Sockets>,
    pub(super) slots: Mutex<Slots>,
    /// The common log is given back at the end.
    pub(super) log: Mutex<Option<Log>>,
    pub(super) next_log: AtomicUsize,
    /// Logs that are being written for senders that asked for them.
    pub(super) own_logs: Mutex<BTreeSet<String>>,
    pub(super) classic_logs: Mutex<ClassicLogs>,
    pub(super) packets: AtomicU64,
}

/// The logs that senders of D-ITG have asked for, by name; senders that ask for the same file at the
/// same time share it, as with D-ITG.
#[derive(Debug, Default)]
pub(super) struct ClassicLogs(pub(super) BTreeMap<String, SharedLog>);

#[derive(Debug)]
pub(super) struct SharedLog {
    pub(super) id: usize,
    pub(super) log: Log,
    pub(super) users: usize,
}

/// Places in the table of flows.
#[derive(Debug, Default)]
pub(super) struct Slots {
    pub(super) free: Vec<usize>,
    pub(super) next: usize,
}

impl Slots {
    pub(super) fn take(&mut self) -> Option<usize> {
        self.free.pop().or_else(|| {
            (self.next < MAX_FLOWS).then(|| {
                self.next += 1;
                self.next - 1
            })
        })
    }
}

pub(super) fn log_info(options: &ReceiverOptions) -> LogInfo {
    itg_engine::log::log_info(
        Side::Receiver,
        &options.program,
        &options.version,
        String::new(),
        None,
        options.settings.clone(),
    )
}
