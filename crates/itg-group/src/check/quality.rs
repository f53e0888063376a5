//! Quality of service of failure detectors, from their events (Chen, Toueg, Aguilera, 2002).

use std::collections::BTreeMap;

use itg_process::{Event, Slot};

use crate::detector::DetectorEvent;

/// Count, sum and extremes of times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// Number of times.
    pub count: u64,
    /// Their sum, in nanoseconds.
    pub sum_ns: u64,
    /// The longest.
    pub most_ns: u64,
}

impl Times {
    fn add(&mut self, ns: u64) {
        self.count += 1;
        self.sum_ns += ns;
        self.most_ns = self.most_ns.max(ns);
    }

    /// The mean, in nanoseconds; 0 of none.
    #[must_use]
    pub const fn mean_ns(&self) -> u64 {
        match self.sum_ns.checked_div(self.count) {
            Some(mean) => mean,
            None => 0,
        }
    }
}

/// Quality of the detectors of a run, at the level `rotate`.
#[derive(Clone, Debug, Default)]
pub struct Quality {
    down: BTreeMap<Slot, u64>,
    mistakes: BTreeMap<(Slot, Slot), u64>,
    /// From a crash to each observer's suspicion: `T_D`.
    pub detection: Times,
    /// From one mistake of an observer about a process to the next: `T_MR`.
    pub recurrence: Times,
    /// Time that mistakes last: `T_M`.
    pub duration: Times,
}

impl Quality {
    /// A process is gone, at this time.
    pub fn gone(&mut self, at: u64, slot: Slot) {
        self.down.insert(slot, at);
    }

    /// A process has started.
    pub fn started(&mut self, slot: Slot) {
        self.down.remove(&slot);
    }

    /// A process says something.
    pub fn see(&mut self, at: u64, slot: Slot, event: &Event) {
        match event.decode() {
            Some(DetectorEvent::Suspected { slot: about, .. }) => {
                if let Some(since) = self.down.get(&about) {
                    self.detection.add(at - since);
                } else if let Some(last) = self.mistakes.insert((slot, about), at) {
                    self.recurrence.add(at - last);
                }
            }
            Some(DetectorEvent::Trusted { slot: about, suspected_ns })
                if !self.down.contains_key(&about) =>
            {
                self.duration.add(suspected_ns);
            }
            _ => {}
        }
    }
}
