//! Clock models of flows: one for each pair of hosts in a run, by their boot ids.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use itg_clocks::{ClockModel, Probe, Reading, SenderClock, SetClock, estimate};
use itg_record::{ClockProbe, FlowInfo, Side};

use crate::logs::Log;
use crate::report::ClockReport;
use crate::stats::Volume;

/// Run, boot id of the sender, boot id of the receiver.
type Pair = [String; 3];

/// The clock models of all logs.
#[derive(Debug, Default)]
pub(crate) struct Clocks {
    models: BTreeMap<Pair, Arc<ClockModel>>,
    /// Clocks of senders that were set, by run and boot id.
    set: BTreeMap<[String; 2], Arc<SetClock>>,
}

impl Clocks {
    /// Estimates from the probes in the logs of either side, or both.
    pub(crate) fn of(logs: &[Log<'_>]) -> Self {
        let mut probes: BTreeMap<Pair, Vec<Probe>> = BTreeMap::new();
        for note in logs.iter().flat_map(|log| &log.probes) {
            let ClockProbe { run, sender_boot_id, receiver_boot_id, .. } = note;
            // Hosts without a boot id cannot be told apart.
            if !sender_boot_id.is_empty() && !receiver_boot_id.is_empty() {
                let pair = [run, sender_boot_id, receiver_boot_id].map(String::clone);
                probes.entry(pair).or_default().push(probe(note));
            }
        }
        let model = |(pair, probes): (Pair, Vec<Probe>)| Some((pair, Arc::new(estimate(&probes)?)));
        Self { models: probes.into_iter().filter_map(model).collect(), set: set_clocks(logs) }
    }

    /// The clock of the sender of a flow that a log describes, where it was set.
    pub(crate) fn sender(&self, log: &Log<'_>, index: u32) -> Option<SenderClock> {
        let info = log.flows.get(&index)?;
        let set = self.set.get(&[info.run.clone(), info.sender_boot_id.clone()])?;
        Some(SenderClock::new(set, log.opened.get(&index).copied()))
    }

    fn get(&self, info: &FlowInfo) -> Option<&Arc<ClockModel>> {
        let FlowInfo { run, sender_boot_id, receiver_boot_id, .. } = info;
        self.models.get(&[run, sender_boot_id, receiver_boot_id].map(String::clone))
    }

    /// Returns true if both ends of a flow have the same clock: that of one boot of a host, unless probes contradict it.
    /// Virtual machines that were started from one snapshot have its boot id.
    pub(crate) fn is_one(&self, info: &FlowInfo) -> bool {
        let FlowInfo { sender_boot_id, receiver_boot_id, .. } = info;
        let same = !sender_boot_id.is_empty() && sender_boot_id == receiver_boot_id;
        same && self.get(info).is_none_or(|model| !model.are_two())
    }

    /// The model that corrects one-way delays of a flow at a side.
    pub(crate) fn correcting(&self, info: &FlowInfo, side: Side) -> Option<Arc<ClockModel>> {
        let corrects = side == Side::Receiver && !self.is_one(info);
        self.get(info).filter(|_| corrects).cloned()
    }

    /// Report on the clocks of a flow whose packets at a side these are.
    pub(crate) fn report(
        &self,
        info: &FlowInfo,
        volume: &Volume,
        side: Side,
    ) -> Option<ClockReport> {
        let model = self.get(info)?;
        // What a receiver dates by its own clock, by the sender's.
        let at_sender = |unix_ns: u64| {
            let mut sent = unix_ns;
            for _ in 0..3 {
                sent = unix_ns.saturating_add_signed(model.offset_at(sent).saturating_neg());
            }
            sent
        };
        let seen = volume.first_unix_ns.zip(volume.last_unix_ns);
        let (from, until) = match (seen, side) {
            (None, _) => (info.epoch_unix_ns, info.epoch_unix_ns),
            (Some(seen), Side::Sender) => seen,
            (Some((first, last)), Side::Receiver) => (at_sender(first), at_sender(last)),
        };
        Some(ClockReport::new(model, self.is_one(info), from.min(until), until.max(from)))
    }
}

/// Clocks that were set, by the looks at them in logs of senders and by probes.
fn set_clocks(logs: &[Log<'_>]) -> BTreeMap<[String; 2], Arc<SetClock>> {
    let mut readings: BTreeMap<[String; 2], Vec<Reading>> = BTreeMap::new();
    for log in logs {
        for note in &log.probes {
            let of = [&note.run, &note.sender_boot_id].map(String::clone);
            let (monotonic_ns, unix_ns) = (note.sent_monotonic_ns, note.sent_unix_ns);
            readings.entry(of).or_default().push(Reading { monotonic_ns, unix_ns });
        }
        let Some(sender) = log.info.as_ref().filter(|info| info.side == Side::Sender) else {
            continue;
        };
        let runs: BTreeSet<_> = log.flows.values().map(|info| &info.run).collect();
        for run in runs {
            let of = [run, &sender.boot_id].map(String::clone);
            readings.entry(of).or_default().extend(&log.clocks);
        }
    }
    // Hosts without a boot id cannot be told apart.
    readings.retain(|[_, boot_id], _| !boot_id.is_empty());
    let set = |(of, readings)| Some((of, Arc::new(SetClock::of(readings)?)));
    readings.into_iter().filter_map(set).collect()
}

fn probe(note: &ClockProbe) -> Probe {
    Probe {
        sender_monotonic: note.sent_monotonic_ns,
        sent: note.sent_unix_ns,
        received: note.received_unix_ns,
        replied: note.replied_unix_ns,
        arrived: note.arrived_unix_ns,
        receiver_monotonic: note.replied_monotonic_ns,
    }
}
