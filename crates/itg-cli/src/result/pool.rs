//! Delays of flows, added up from what receivers have measured.

use itg_session::DelayMeasure;
use itg_stats::delay::{Delay, Jitter};

/// Values of the delays of all flows that are kept one by one; then neighbours are put together.
const MOST_VALUES: usize = 1 << 20;

/// Delays of one flow or of several, each by its own clocks.
#[derive(Default)]
pub(super) struct Pool {
    count: u64,
    mean: f64,
    /// Sum of the squares of their distances from the mean.
    squares: f64,
    min: i64,
    max: i64,
    values: Vec<(i64, u64)>,
    pairs: u64,
    jitter_sum: f64,
    steps: Vec<(i64, u64)>,
}

impl Pool {
    pub(super) fn of(delays: &DelayMeasure, off_ns: i64) -> Self {
        let less = |ns: i64| ns.saturating_sub(off_ns);
        let (count, mean) = (delays.count as f64, less(delays.mean_ns) as f64);
        let pairs = delays.count.saturating_sub(1);
        let values = delays.values().into_iter().map(|(value, count)| (less(value), count));
        Self {
            count: delays.count,
            mean,
            squares: (delays.stddev_ns as f64).powi(2) * count,
            min: less(delays.min_ns),
            max: less(delays.max_ns),
            values: values.collect(),
            pairs,
            jitter_sum: delays.jitter_ns as f64 * pairs as f64,
            steps: delays.step_values(),
        }
    }

    pub(super) fn merge(&mut self, mut other: Self) {
        if self.count == 0 {
            *self = other;
            return;
        }
        // Source: Chan, Golub, LeVeque, 1983: pairwise sums of squares.
        let (here, there) = (self.count as f64, other.count as f64);
        let apart = other.mean - self.mean;
        self.mean += apart * there / (here + there);
        self.squares += other.squares + apart * apart * here * there / (here + there);
        self.count = self.count.saturating_add(other.count);
        (self.min, self.max) = (self.min.min(other.min), self.max.max(other.max));
        self.values.append(&mut other.values);
        thin(&mut self.values);
        self.pairs = self.pairs.saturating_add(other.pairs);
        self.jitter_sum += other.jitter_sum;
        self.steps.append(&mut other.steps);
        thin(&mut self.steps);
    }

    pub(super) fn sort(&mut self) {
        self.values.sort_unstable();
        self.steps.sort_unstable();
    }

    pub(super) fn delay(&self) -> Option<Delay> {
        let count = (self.count > 0).then_some(self.count as f64)?;
        let [p50, p90, p99, p999] = itg_session::quantiles(&self.values, [0.5, 0.9, 0.99, 0.999]);
        Some(Delay {
            min: self.min,
            mean: self.mean,
            max: self.max,
            stddev: (self.squares / count).sqrt(),
            p50,
            p90,
            p99,
            p999,
        })
    }

    pub(super) fn negative(&self) -> u64 {
        self.values.iter().filter(|(value, _)| *value < 0).map(|(_, count)| count).sum()
    }

    pub(super) fn jitter(&self) -> Option<Jitter> {
        let [p99] = itg_session::quantiles(&self.steps, [0.99]);
        let mean = if self.pairs == 0 { 0.0 } else { self.jitter_sum / self.pairs as f64 };
        (self.count > 0).then_some(Jitter { mean, rfc3550: None, p99 })
    }
}

/// Halves a list of values that has become long: neighbours become one.
fn thin(values: &mut Vec<(i64, u64)>) {
    if values.len() > MOST_VALUES {
        values.sort_unstable();
        let halved = values.chunks(2).map(|pair| (pair[0].0, pair.iter().map(|(_, n)| n).sum()));
        *values = halved.collect();
    }
}
