//! Clocks of simulated hosts: virtual time, a little wrong.

/// A clock that runs a little too fast or too slow, from some point on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clock {
    since: u64,
    shows: u64,
    /// Millionths by which it is too fast.
    ppm: i32,
}

impl Clock {
    /// Value that the clock shows at virtual time `now`, in nanoseconds.
    #[must_use]
    pub fn at(&self, now: u64) -> u64 {
        if self.ppm == 0 {
            return self.shows.saturating_add(now.saturating_sub(self.since));
        }
        let passed = i128::from(now.saturating_sub(self.since));
        let local = passed + passed * i128::from(self.ppm) / 1_000_000;
        self.shows.saturating_add(u64::try_from(local).unwrap_or(0))
    }

    /// The first time at which it shows at least `local`.
    #[must_use]
    pub fn when(&self, local: u64) -> u64 {
        if self.ppm == 0 {
            return self.since.saturating_add(local.saturating_sub(self.shows));
        }
        let passed = i128::from(local.saturating_sub(self.shows));
        let rate = 1_000_000 + i128::from(self.ppm);
        let guess = passed * 1_000_000 / rate;
        let mut at = self.since.saturating_add(u64::try_from(guess).unwrap_or(u64::MAX));
        // Two roundings: the first time is a few nanoseconds around the guess.
        while at > self.since && self.at(at - 1) >= local {
            at -= 1;
        }
        while self.at(at) < local && at < u64::MAX {
            at += 1;
        }
        at
    }

    /// From now on it goes this much too fast, and it jumps ahead now. At most ±500 000 millionths.
    pub fn set(&mut self, now: u64, ppm: i32, jump: u64) {
        let shows = self.at(now).saturating_add(jump);
        *self = Self { since: now, shows, ppm: ppm.clamp(-500_000, 500_000) };
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_time_is_found_again(
            start in 0u64..1 << 50, ppm in -1000i32..1000, jump in 0u64..1 << 40, local in 0u64..1 << 51,
        ) {
            let mut clock = Clock::default();
            clock.set(start, ppm, jump);
            let at = clock.when(local);
            prop_assert!(clock.at(at) >= local);
            prop_assert!(at <= start || clock.at(at - 1) < local, "not the first time");
        }
    }

    #[test]
    fn drift_and_jump() {
        let mut clock = Clock::default();
        assert_eq!((clock.at(5), clock.when(5)), (5, 5));
        clock.set(1_000_000, 500, 10);
        assert_eq!(clock.at(1_000_000), 1_000_010);
        assert_eq!(clock.at(2_000_000), 2_000_510);
        assert_eq!(clock.when(2_000_510), 2_000_000);
    }
}
