//! Times by class, for the histograms of Prometheus: counts of values up to fixed bounds, which never go back.

pub use itg_engine::LATENESS_BOUNDS_NS;
use itg_session::DelayMeasure;

/// Bounds of the classes of delays and their variation, in nanoseconds: 1, 2 and 5 of each power of ten from 1 µs
/// to 10 s. One more class has no bound.
pub(super) const BOUNDS_NS: [u64; 22] = {
    let mut bounds = [0; 22];
    let (mut k, mut power) = (0, 1_000);
    while k < bounds.len() {
        bounds[k] = power * [1, 2, 5][k % 3];
        if k % 3 == 2 {
            power *= 10;
        }
        k += 1;
    }
    bounds
};

/// Numbers of values up to each bound, the last one of all values, and their sum.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Classes {
    /// Numbers of values.
    pub up_to: [u64; BOUNDS_NS.len() + 1],
    /// Sum in seconds.
    pub sum_s: f64,
}

impl Classes {
    /// Delays, less what the clocks are apart.
    pub(super) fn of_delays(delays: &DelayMeasure, off_ns: i64) -> Self {
        let mean_ns = delays.mean_ns.saturating_sub(off_ns) as f64;
        Self::of(&delays.values(), off_ns, delays.count, mean_ns)
    }

    /// Steps from delay to delay.
    pub(super) fn of_steps(delays: &DelayMeasure) -> Self {
        let steps = delays.count.saturating_sub(1);
        Self::of(&delays.step_values(), 0, steps, delays.jitter_ns as f64)
    }

    /// `values` may stand for more than their number says: shares of `count`, then.
    fn of(values: &[(i64, u64)], off_ns: i64, count: u64, mean_ns: f64) -> Self {
        let counted: u64 = values.iter().map(|(_, n)| n).sum();
        let mut classes = Self { sum_s: mean_ns * count as f64 / 1e9, ..Self::default() };
        let mut rest = values.iter().peekable();
        let mut sum = 0_u64;
        for (up_to, bound) in classes.up_to.iter_mut().zip(BOUNDS_NS) {
            let bound = i64::try_from(bound).unwrap_or(i64::MAX);
            while let Some((_, n)) = rest.next_if(|(ns, _)| ns.saturating_sub(off_ns) <= bound) {
                sum += n;
            }
            let share = u128::from(sum) * u128::from(count) / u128::from(counted.max(1));
            *up_to = u64::try_from(share).unwrap_or(count);
        }
        classes.up_to[BOUNDS_NS.len()] = count;
        classes
    }

    /// The same, but nowhere less than before.
    pub(super) fn at_least(mut self, before: &Self) -> Self {
        for (mine, theirs) in self.up_to.iter_mut().zip(&before.up_to) {
            *mine = (*mine).max(*theirs);
        }
        self.sum_s = self.sum_s.max(before.sum_s);
        self
    }
}

#[cfg(test)]
mod tests {
    use itg_session::Measuring;

    use super::*;

    const SENT: u64 = 1_800_000_000_000_000_000;

    fn measured(delays: &[u64]) -> DelayMeasure {
        let mut measuring = Measuring::new();
        delays.iter().for_each(|ns| measuring.arrived(1, Some(SENT), SENT + ns));
        measuring.finish(1, 0).delays.expect("delays")
    }

    #[test]
    fn bounds_are_from_a_microsecond_to_ten_seconds() {
        assert_eq!((BOUNDS_NS[0], BOUNDS_NS[4], BOUNDS_NS[21]), (1_000, 20_000, 10_000_000_000));
        assert!(BOUNDS_NS.is_sorted() && LATENESS_BOUNDS_NS.is_sorted());
    }

    #[test]
    fn delays_are_counted_up_to_their_bounds() {
        // 5 ms apart: 0.5 us, 1.5 us, 30 us, 30 us, 20 s.
        let apart = 5_000_000;
        let delays = [500, 1_500, 30_000, 30_000, 20_000_000_000].map(|ns| ns + apart);
        let delays = measured(&delays);
        let got = Classes::of_delays(&delays, 5_000_000);
        for (bound, want) in [(0, 1), (1, 2), (4, 2), (5, 4), (21, 4), (22, 5)] {
            assert_eq!(got.up_to[bound], want, "{bound}: {got:?}");
        }
        assert!((got.sum_s - 20.000_062).abs() < 1e-6, "{got:?}");
        let steps = Classes::of_steps(&delays);
        // 1 us, 28.5 us, 0, and nearly 20 s.
        assert_eq!((steps.up_to[1], steps.up_to[5], steps.up_to[22]), (2, 3, 4), "{steps:?}");
    }

    #[test]
    fn halved_counters_are_shares_and_nothing_goes_back() {
        let mut delays = measured(&[1_500; 10]);
        let before = Classes::of_delays(&delays, 0);
        delays.above[0].1 = 5;
        let after = Classes::of_delays(&delays, 0).at_least(&before);
        assert_eq!((after.up_to[0], after.up_to[1], after.up_to[22]), (0, 10, 10));
        // The clocks turn out to be further apart.
        let moved = Classes::of_delays(&delays, -3_000).at_least(&after);
        assert_eq!(moved.up_to, after.up_to);
    }
}
