//! Measurement of a flow's arrivals while it runs: times, delays and their variation in fixed memory.
//!
//! [`Measuring`] takes packets in order of arrival, [`FlowMeasure`] is what it comes to and travels to the
//! sender. Delay is arrived − sent by the two hosts' own clocks, jitter the mean of |Dᵢ − Dᵢ₋₁| over
//! successive arrivals, beside the filter of RFC 3550, section 6.4.1: the definitions of the decoder, which has every
//! packet. Percentiles are those of a histogram of distances from a base, so that they stay fine where two clocks
//! are hours apart: nearest rank, at most 0.8 % of the distance off.
//!
//! Costs: 25 kB a flow; a packet some ten nanoseconds, no allocation.

mod histogram;

use itg_core::units::MAX_TIME_NS;
use serde::{Deserialize, Serialize};

pub use histogram::{BUCKETS, Bucket};

use histogram::{Histogram, are_buckets, middle};

/// Largest distance between two times that clocks show, in nanoseconds.
const MAX_DELAY_NS: i64 = MAX_TIME_NS.cast_signed();

/// A flow's arrivals, as they are being measured.
#[derive(Clone, Debug)]
pub struct Measuring {
    base_ns: Option<i64>,
    first_unix_ns: u64,
    last_unix_ns: u64,
    count: u64,
    min_ns: i64,
    max_ns: i64,
    /// Of the distances from the base.
    sum: i128,
    squares: u128,
    last_ns: Option<i64>,
    steps_sum: u128,
    rfc3550: f64,
    above: Histogram,
    below: Histogram,
    steps: Histogram,
}

impl Default for Measuring {
    fn default() -> Self {
        Self::new()
    }
}

impl Measuring {
    /// A flow of which nothing has arrived.
    #[must_use]
    pub fn new() -> Self {
        Self {
            base_ns: None,
            first_unix_ns: u64::MAX,
            last_unix_ns: 0,
            count: 0,
            min_ns: i64::MAX,
            max_ns: i64::MIN,
            sum: 0,
            squares: 0,
            last_ns: None,
            steps_sum: 0,
            rfc3550: 0.0,
            above: Histogram::new(),
            below: Histogram::new(),
            steps: Histogram::new(),
        }
    }

    /// Sets the delay around which delays are told apart best: how far the receiver's clock is ahead, as far as it is
    /// known before the first packet. Without it, or after a packet, it is the first delay.
    pub fn expect_around(&mut self, delay_ns: i64) {
        if self.base_ns.is_none() {
            self.base_ns = Some(delay_ns.clamp(-MAX_DELAY_NS, MAX_DELAY_NS));
        }
    }

    /// Takes packets that arrived together and were sent together, 1 or more; `sent_ns` is `None` where they do not say
    /// when. Both in Unix nanoseconds.
    #[inline]
    pub fn arrived(&mut self, packets: u32, sent_ns: Option<u64>, arrived_ns: u64) {
        if arrived_ns > MAX_TIME_NS {
            return;
        }
        self.first_unix_ns = self.first_unix_ns.min(arrived_ns);
        self.last_unix_ns = self.last_unix_ns.max(arrived_ns);
        let Some(sent_ns) = sent_ns.filter(|&ns| ns != 0 && ns <= MAX_TIME_NS) else { return };
        // Both are at most 2^62.
        let delay = arrived_ns.cast_signed() - sent_ns.cast_signed();
        let base = *self.base_ns.get_or_insert(delay);
        let away = delay - base;
        self.count += u64::from(packets);
        (self.min_ns, self.max_ns) = (self.min_ns.min(delay), self.max_ns.max(delay));
        self.sum += i128::from(away) * i128::from(packets);
        let square = u128::from(away.unsigned_abs()) * u128::from(away.unsigned_abs());
        self.squares = self.squares.saturating_add(square.saturating_mul(u128::from(packets)));
        let side = if away < 0 { &mut self.below } else { &mut self.above };
        side.add(away.unsigned_abs(), packets);
        let mut same = packets;
        if let Some(last) = self.last_ns {
            let step = delay.abs_diff(last);
            self.steps_sum += u128::from(step);
            self.steps.add(step, 1);
            self.rfc3550 += (step as f64 - self.rfc3550) / 16.0;
        }
        // From one packet of those to the next there is no step.
        same -= 1;
        if same > 0 {
            self.steps.add(0, same);
            self.rfc3550 *= (15.0_f64 / 16.0).powi(same.try_into().unwrap_or(i32::MAX));
        }
        self.last_ns = Some(delay);
    }

    /// Variance of the distances, whose mean is this whole number and a fraction: the squares of distances of a mean
    /// that is large against their spread differ in their last digits alone, so they are subtracted as whole numbers.
    fn spread(&self, mean: i128) -> f64 {
        let count = i128::from(self.count);
        let rest = self.sum - mean * count;
        let exact = || {
            let around = mean.checked_mul(mean)?.checked_mul(count)?;
            let cross = mean.checked_mul(rest)?.checked_mul(2)?;
            i128::try_from(self.squares).ok()?.checked_sub(around)?.checked_sub(cross)
        };
        let (n, mean) = (self.count as f64, self.sum as f64 / self.count as f64);
        match exact() {
            Some(squares) => squares as f64 / n - (rest as f64 / n).powi(2),
            None => self.squares as f64 / n - mean * mean,
        }
    }

    /// The measurement so far; `reordered` packets came behind one with a larger number.
    #[must_use]
    pub fn finish(&self, flow: u32, reordered: u64) -> FlowMeasure {
        let any = self.first_unix_ns <= self.last_unix_ns;
        let delays = (self.count > 0).then(|| {
            let (base, count) = (self.base_ns.unwrap_or(0), i128::from(self.count));
            let mean = self.sum / count;
            let spread = self.spread(mean);
            let pairs = u128::from(self.count - 1).max(1);
            DelayMeasure {
                count: self.count,
                base_ns: base,
                min_ns: self.min_ns,
                max_ns: self.max_ns,
                mean_ns: base + i64::try_from(mean).unwrap_or(0),
                stddev_ns: nanoseconds(spread.max(0.0).sqrt()),
                jitter_ns: u64::try_from(self.steps_sum / pairs).unwrap_or(u64::MAX),
                rfc3550_ns: nanoseconds(self.rfc3550),
                above: self.above.buckets(),
                below: self.below.buckets(),
                steps: self.steps.buckets(),
            }
        });
        FlowMeasure {
            flow,
            first_unix_ns: if any { self.first_unix_ns } else { 0 },
            last_unix_ns: self.last_unix_ns,
            reordered,
            delays,
        }
    }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the cast saturates")]
fn nanoseconds(value: f64) -> u64 {
    value.round() as u64
}

/// A flow as its receiver measured it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowMeasure {
    /// Number of the flow.
    pub flow: u32,
    /// First arrival, Unix nanoseconds of the receiver's clock; 0 without one.
    pub first_unix_ns: u64,
    /// Last arrival; 0 without one.
    pub last_unix_ns: u64,
    /// Packets that arrived behind one with a larger number.
    pub reordered: u64,
    /// Delays; `None` when no packet said when it was sent.
    pub delays: Option<DelayMeasure>,
}

/// Delays of a flow in nanoseconds: arrived − sent by the two clocks as they were.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DelayMeasure {
    /// Number of delays.
    pub count: u64,
    /// Delay from which the distances of the histograms count.
    pub base_ns: i64,
    /// Smallest.
    pub min_ns: i64,
    /// Largest.
    pub max_ns: i64,
    /// Mean.
    pub mean_ns: i64,
    /// Standard deviation.
    pub stddev_ns: u64,
    /// Mean of |Dᵢ − Dᵢ₋₁|.
    pub jitter_ns: u64,
    /// The estimate of RFC 3550 after the last packet.
    pub rfc3550_ns: u64,
    /// Distances of delays from the base on.
    pub above: Vec<Bucket>,
    /// Distances of delays below the base.
    pub below: Vec<Bucket>,
    /// |Dᵢ − Dᵢ₋₁|.
    pub steps: Vec<Bucket>,
}

impl FlowMeasure {
    /// Returns true if a receiver may have measured this of so many packets.
    pub(crate) fn is_sound(&self, packets: u64) -> bool {
        self.first_unix_ns <= self.last_unix_ns
            && self.last_unix_ns <= MAX_TIME_NS
            && self.reordered <= packets
            && self.delays.as_ref().is_none_or(|delays| delays.is_sound(packets))
    }

    /// Time between the first and the last arrival, in nanoseconds.
    #[must_use]
    pub const fn duration_ns(&self) -> u64 {
        self.last_unix_ns.saturating_sub(self.first_unix_ns)
    }
}

impl DelayMeasure {
    fn is_sound(&self, packets: u64) -> bool {
        let times = [self.base_ns, self.min_ns, self.max_ns, self.mean_ns];
        let spreads = [self.stddev_ns, self.jitter_ns, self.rfc3550_ns];
        let (above, below) = (&self.above, &self.below);
        let counted = |buckets: &[Bucket]| buckets.iter().map(|b| u64::from(b.1)).sum::<u64>();
        (1..=packets).contains(&self.count)
            && times.iter().all(|ns| (-MAX_DELAY_NS..=MAX_DELAY_NS).contains(ns))
            && spreads.iter().all(|&ns| ns <= 2 * MAX_TIME_NS)
            && self.min_ns <= self.mean_ns
            && self.mean_ns <= self.max_ns
            && are_buckets(above, self.count)
            && are_buckets(below, self.count)
            && (1..=self.count).contains(&(counted(above) + counted(below)))
            && are_buckets(&self.steps, self.count - 1)
    }

    /// The delays in ascending order, as values and how many each stands for.
    #[must_use]
    pub fn values(&self) -> Vec<(i64, u64)> {
        let at = |distance: u64, sign: i64| {
            let distance = i64::try_from(distance).unwrap_or(i64::MAX);
            let value = self.base_ns.saturating_add(sign * distance);
            value.clamp(self.min_ns, self.max_ns.max(self.min_ns))
        };
        let below = self.below.iter().rev().map(|&(b, n)| (at(middle(b), -1), u64::from(n)));
        let above = self.above.iter().map(|&(b, n)| (at(middle(b), 1), u64::from(n)));
        below.chain(above).collect()
    }

    /// The steps from delay to delay, as [`values`](Self::values).
    #[must_use]
    pub fn step_values(&self) -> Vec<(i64, u64)> {
        let at = |bucket: u16| i64::try_from(middle(bucket)).unwrap_or(i64::MAX);
        self.steps.iter().map(|&(bucket, count)| (at(bucket), u64::from(count))).collect()
    }
}

/// The values at the given shares of a list in ascending order, by nearest rank; 0 each of an empty one.
#[must_use]
pub fn quantiles<const N: usize>(values: &[(i64, u64)], shares: [f64; N]) -> [i64; N] {
    let total: u64 = values.iter().map(|(_, count)| count).sum();
    shares.map(|share| {
        let rank = (share * total as f64 - 1e-9).ceil().max(1.0);
        let mut before = 0_u64;
        let reached = values.iter().find(|(_, count)| {
            before += count;
            before as f64 >= rank
        });
        reached.or_else(|| values.last()).map_or(0, |(value, _)| *value)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SENT: u64 = 1_800_000_000_000_000_000;

    fn measured(delays: &[i64], base: Option<i64>) -> FlowMeasure {
        let mut measuring = Measuring::new();
        if let Some(base) = base {
            measuring.expect_around(base);
        }
        for delay in delays {
            measuring.arrived(1, Some(SENT), SENT.saturating_add_signed(*delay));
        }
        measuring.finish(1, 0)
    }

    proptest! {
        #[test]
        fn figures_are_those_of_the_delays(
            ahead in -4_000_000_000_000_i64..4_000_000_000_000,
            mut delays in prop::collection::vec(0_i64..200_000_000_000, 1..200),
        ) {
            delays.iter_mut().for_each(|delay| *delay += ahead);
            let steps: Vec<u64> = delays.windows(2).map(|d| d[1].abs_diff(d[0])).collect();
            let filter = steps.iter().fold(0.0, |j, &step| j + (step as f64 - j) / 16.0);
            let got = measured(&delays, Some(ahead));
            prop_assert!(got.is_sound(delays.len() as u64));
            let got = got.delays.expect("delays");
            let mean = delays.iter().map(|&d| i128::from(d)).sum::<i128>() / delays.len() as i128;
            prop_assert!((i128::from(got.mean_ns) - mean).abs() <= 1);
            // Around the first one, then once more around what is left of their mean: no digits are lost.
            let away = delays.iter().map(|&d| (d - delays[0]) as f64);
            let n = delays.len() as f64;
            let centre = away.clone().sum::<f64>() / n;
            let stddev = (away.map(|d| (d - centre).powi(2)).sum::<f64>() / n).sqrt();
            prop_assert!((got.stddev_ns as f64 - stddev).abs() <= 1.0 + stddev * 1e-9, "{stddev}");
            let pairs = steps.len().max(1) as u64;
            prop_assert_eq!(got.jitter_ns, steps.iter().sum::<u64>() / pairs);
            prop_assert!((got.rfc3550_ns as f64 - filter).abs() <= 1.0);
            delays.sort_unstable();
            prop_assert_eq!((got.min_ns, got.max_ns), (delays[0], delays[delays.len() - 1]));
            let shares = [0.01, 0.5, 0.9, 0.99, 1.0];
            for (got, share) in quantiles(&got.values(), shares).into_iter().zip(shares) {
                let least = share * delays.len() as f64 - 1e-9;
                let want = delays[(0_usize..).find(|&i| (i + 1) as f64 >= least).expect("a rank")];
                prop_assert!((got - want).abs() <= (want - ahead) / 128 + 1, "{got} {want}");
            }
        }

        #[test]
        fn packets_together_are_the_same_as_one_by_one(
            runs in prop::collection::vec((1_u32..64, 0_i64..1_000_000), 1..20),
        ) {
            let mut together = Measuring::new();
            for &(packets, delay) in &runs {
                together.arrived(packets, Some(SENT), SENT.saturating_add_signed(delay));
            }
            let singly: Vec<i64> = runs
                .iter()
                .flat_map(|&(packets, delay)| std::iter::repeat_n(delay, packets as usize))
                .collect();
            let (got, mut want) = (together.finish(1, 0), measured(&singly, None));
            let filters = [&got, &want].map(|flow| flow.delays.as_ref().map_or(0, |d| d.rfc3550_ns));
            prop_assert!(filters[0].abs_diff(filters[1]) <= 1);
            if let Some(delays) = &mut want.delays {
                delays.rfc3550_ns = filters[0];
            }
            prop_assert_eq!(got, want);
        }
    }

    #[test]
    fn a_spread_that_is_small_against_the_mean_is_told() {
        // 50 ms and half a nanosecond on the average.
        let delays: Vec<i64> =
            (0..1000).map(|k| 50_000_000 + 2 * (k % 500) - 498 + k % 2).collect();
        let got = measured(&delays, Some(0)).delays.expect("delays");
        let mean = delays.iter().sum::<i64>() as f64 / 1000.0;
        let squares: f64 = delays.iter().map(|&d| (d as f64 - mean).powi(2)).sum();
        assert_eq!(got.stddev_ns, nanoseconds((squares / 1000.0).sqrt()));
    }

    #[test]
    fn times_that_no_clock_shows_do_no_harm() {
        let mut measuring = Measuring::new();
        measuring.expect_around(i64::MIN);
        for (sent, arrived) in [
            (Some(0), 5),
            (None, 7),
            (Some(u64::MAX), 6),
            (Some(3), u64::MAX),
            (Some(MAX_TIME_NS), 0),
            (Some(1), MAX_TIME_NS),
        ] {
            measuring.arrived(64, sent, arrived);
        }
        let got = measuring.finish(1, 0);
        assert_eq!((got.first_unix_ns, got.last_unix_ns), (0, MAX_TIME_NS));
        assert!(got.is_sound(6 * 64), "{got:?}");
        assert_eq!(Measuring::new().finish(1, 0).duration_ns(), 0);
        assert!(Measuring::new().finish(1, 0).is_sound(0));
    }

    #[test]
    fn what_no_receiver_measures_is_not_sound() {
        let good = measured(&[1_000, 2_000, 1_500], Some(0));
        assert!(good.is_sound(3));
        assert!(!good.is_sound(2), "more delays than packets");
        let bad = |edit: fn(&mut FlowMeasure, &mut DelayMeasure)| {
            let (mut flow, mut delays) = (good.clone(), good.delays.clone().expect("delays"));
            edit(&mut flow, &mut delays);
            flow.delays = Some(delays);
            assert!(!flow.is_sound(3), "{flow:?}");
        };
        bad(|flow, _| flow.first_unix_ns = flow.last_unix_ns + 1);
        bad(|flow, _| flow.last_unix_ns = u64::MAX);
        bad(|flow, _| flow.reordered = 4);
        bad(|_, delays| delays.count = 0);
        bad(|_, delays| delays.min_ns = i64::MIN);
        bad(|_, delays| delays.mean_ns = delays.max_ns + 1);
        bad(|_, delays| delays.stddev_ns = u64::MAX);
        bad(|_, delays| delays.above.clear());
        bad(|_, delays| delays.above.reverse());
        bad(|_, delays| delays.below = vec![(u16::MAX, 1)]);
        bad(|_, delays| delays.steps = vec![(0, 3)]);
    }
}
