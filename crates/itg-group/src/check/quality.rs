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

#[cfg(test)]
mod tests {
    use super::*;
    use itg_process::Level;

    #[test]
    fn times_by_hand() {
        let mut quality = Quality::default();
        let (one, slot) = (Slot(1), Slot(2));
        let suspected = Event::new(Level::Info, DetectorEvent::Suspected { slot, silent_ns: 0 });
        let trusted =
            |suspected_ns| Event::new(Level::Info, DetectorEvent::Trusted { slot, suspected_ns });
        quality.see(100, one, &suspected);
        quality.see(130, one, &trusted(30));
        quality.see(600, one, &suspected);
        quality.see(610, one, &trusted(10));
        quality.gone(700, slot);
        quality.see(750, one, &suspected);
        quality.see(790, Slot(3), &suspected);
        assert_eq!(quality.detection, Times { count: 2, sum_ns: 140, most_ns: 90 });
        assert_eq!(quality.detection.mean_ns(), 70);
        assert_eq!((quality.recurrence.count, quality.recurrence.mean_ns()), (1, 500));
        assert_eq!((quality.duration.count, quality.duration.mean_ns()), (2, 20));
    }
}
