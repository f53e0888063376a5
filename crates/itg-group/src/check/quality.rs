//! Quality of service of failure detectors, from their events (Chen, Toueg, Aguilera, 2002).

use std::collections::BTreeMap;

use itg_process::{Event, Slot};

/// Count, sum and extremes of times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// How many.
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

/// What detectors have done, at the level `rotate`.
#[derive(Clone, Debug, Default)]
pub struct Quality {
    down: BTreeMap<Slot, u64>,
    mistakes: BTreeMap<(Slot, Slot), u64>,
    /// From a crash to each observer's suspicion: `T_D`.
    pub detection: Times,
    /// From one mistake of an observer about a process to the next: `T_MR`.
    pub recurrence: Times,
    /// How long mistakes last: `T_M`.
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
        let Ok(about) = u32::try_from(event.values[0]).map(Slot) else { return };
        match event.name {
            "suspected" => {
                if let Some(since) = self.down.get(&about) {
                    self.detection.add(at - since);
                } else if let Some(last) = self.mistakes.insert((slot, about), at) {
                    self.recurrence.add(at - last);
                }
            }
            "trusted" if !self.down.contains_key(&about) => self.duration.add(event.values[1]),
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
        let event = |name, about, ns| Event { level: Level::Info, name, values: [about, ns, 0] };
        let one = Slot(1);
        quality.see(100, one, &event("suspected", 2, 0));
        quality.see(130, one, &event("trusted", 2, 30));
        quality.see(600, one, &event("suspected", 2, 0));
        quality.see(610, one, &event("trusted", 2, 10));
        quality.gone(700, Slot(2));
        quality.see(750, one, &event("suspected", 2, 0));
        quality.see(790, Slot(3), &event("suspected", 2, 0));
        assert_eq!(quality.detection, Times { count: 2, sum_ns: 140, most_ns: 90 });
        assert_eq!(quality.detection.mean_ns(), 70);
        assert_eq!((quality.recurrence.count, quality.recurrence.mean_ns()), (1, 500));
        assert_eq!((quality.duration.count, quality.duration.mean_ns()), (2, 20));
    }
}
