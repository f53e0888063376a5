//! State that the sessions of a receiver share.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex, OnceLock};

use itg_engine::live::FlowLive;
use itg_engine::log::Log;
use itg_record::{LogInfo, Side};
use tokio::sync::mpsc;

use super::options::ReceiverOptions;
use super::ports::Sockets;
use super::served::ServedSession;
use super::shards::Shards;
use super::watched::Watched;
use crate::frames::FrameRoom;

/// Flows at the same time, of all senders together.
pub(super) const MAX_FLOWS: usize = 65_536;
/// The log that all senders share; the others are those that senders have asked for.
pub(super) const COMMON_LOG: usize = 0;

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) options: ReceiverOptions,
    pub(super) boot_id: String,
    pub(super) rx: Shards,
    /// Room for long messages of all sessions.
    pub(super) frames: FrameRoom,
    pub(super) sockets: Mutex<Sockets>,
    pub(super) slots: Mutex<Slots>,
    /// The common log is given back at the end.
    pub(super) log: Mutex<Option<Log>>,
    pub(super) next_log: AtomicUsize,
    /// Logs that are being written for senders that asked for them.
    pub(super) own_logs: Mutex<BTreeSet<String>>,
    pub(super) classic_logs: Mutex<ClassicLogs>,
    pub(super) packets: AtomicU64,
    /// Counters of what is being received.
    pub(super) running: Arc<Mutex<Running>>,
    /// Addresses that are being sent the flows that they have asked for.
    pub(super) askers: Mutex<BTreeSet<IpAddr>>,
    /// Listener to be told of senders that have left.
    pub(super) told: OnceLock<mpsc::Sender<ServedSession>>,
    /// Flows as those who watch see them, from when somebody does.
    pub(super) watched: OnceLock<Mutex<Watched>>,
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

/// Counters of the flows that run, by slot, and the sums of those that have ended.
#[derive(Debug, Default)]
pub(super) struct Running {
    flows: BTreeMap<usize, Arc<FlowLive>>,
    /// Sums of those that have ended. `first_ns` is of those since no flow ran.
    ended: ReceiverReading,
}

/// Counts of a receiver so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiverReading {
    /// Flows that run.
    pub flows: usize,
    /// Packets of all flows, of those that have ended, too.
    pub packets: u64,
    /// Bytes of these packets.
    pub bytes: u64,
    /// Sequence numbers below the largest one of their flow of which no packet has arrived: lost, late, or never sent.
    pub missing: u64,
    /// Packets that arrived behind one of their flow with a larger number.
    pub reordered: u64,
    /// Number of the times, up to this one, at which a flow began while no other one ran.
    pub period: u64,
    /// Instant of the first packet since then, in nanoseconds of CLOCK_MONOTONIC; 0 before it.
    pub first_ns: u64,
    /// Instant of the last packet.
    pub last_ns: u64,
}

impl ReceiverReading {
    fn add(&mut self, live: &FlowLive) {
        let reading = live.read();
        self.packets += reading.received_packets;
        self.bytes += reading.received_bytes;
        self.missing = self.missing.saturating_add(reading.received_missing);
        self.reordered += reading.received_reordered;
        let first_ns = [self.first_ns, reading.received_first_ns].into_iter().filter(|ns| *ns > 0);
        self.first_ns = first_ns.min().unwrap_or(0);
        self.last_ns = self.last_ns.max(reading.received_last_ns);
    }
}

impl Running {
    pub(super) fn begin(&mut self, slot: usize, live: &Arc<FlowLive>) {
        if self.flows.is_empty() {
            self.ended.period += 1;
            self.ended.first_ns = 0;
        }
        self.flows.insert(slot, Arc::clone(live));
    }

    pub(super) fn end(&mut self, slot: usize) {
        if let Some(live) = self.flows.remove(&slot) {
            self.ended.add(&live);
        }
    }

    pub(super) fn read(&self) -> ReceiverReading {
        let mut sum = ReceiverReading { flows: self.flows.len(), ..self.ended };
        self.flows.values().for_each(|live| sum.add(live));
        sum
    }
}

/// Places in the table of flows.
#[derive(Debug, Default)]
pub(super) struct Slots {
    free: BTreeSet<usize>,
    next: usize,
}

impl Slots {
    /// Takes the first free place.
    pub(super) fn take(&mut self) -> Option<usize> {
        self.free.pop_first().or_else(|| {
            (self.next < MAX_FLOWS).then(|| {
                self.next += 1;
                self.next - 1
            })
        })
    }

    /// Gives a place back.
    pub(super) fn give_back(&mut self, slot: usize) {
        self.free.insert(slot);
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Only flows in the first places are measured: places that were given back are taken again first.
    #[test]
    fn the_lowest_free_place_is_taken() {
        let mut slots = Slots::default();
        let taken: Vec<_> = (0..5).map(|_| slots.take()).collect();
        assert_eq!(taken, [0, 1, 2, 3, 4].map(Some));
        for slot in [3, 1, 4] {
            slots.give_back(slot);
        }
        assert_eq!([(); 4].map(|()| slots.take()), [1, 3, 4, 5].map(Some));
        slots.next = MAX_FLOWS;
        assert_eq!(slots.take(), None);
    }
}
