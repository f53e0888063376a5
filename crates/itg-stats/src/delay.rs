//! Delay and its variation, in order of arrival.
//!
//! Delay is *arrived − sent* (RFC 7679), signed: clocks that disagree make it negative, and such
//! values are counted and kept. Jitter is the mean of |Dᵢ − Dᵢ₋₁| over successive arrivals, as
//! D-ITG prints it (the absolute IP packet delay variation of RFC 3393 with successive arrivals
//! selected), beside the smoothed estimate of RFC 3550 section 6.4.1, J ← J + (|Dᵢ − Dᵢ₋₁| − J) /
//! 16. Duplicates and reordered packets take part like any other arrival. Constant cost a packet.

use itg_fidelity::narrow::{MOST, Narrow};
use serde::Serialize;

pub use itg_fidelity::samples::{SampleDistribution, signed_difference};

use crate::quantiles::Quantiles;

/// The delays of one flow, in order of arrival.
#[derive(Clone, Debug, Default)]
pub struct DelayStats {
    delay: SampleDistribution,
    negative: u64,
    /// Dᵢ − Dᵢ₋₁, signed.
    variation: Quantiles,
    /// Sum of their magnitudes.
    variation_sum: u128,
    rfc3550: f64,
    first: Option<i64>,
    last: Option<i64>,
}

/// Delay in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Delay {
    /// Smallest.
    pub min: i64,
    /// Arithmetic mean.
    pub mean: f64,
    /// Largest.
    pub max: i64,
    /// Standard deviation of the population.
    pub stddev: f64,
    /// Median.
    pub p50: i64,
    /// 90th percentile.
    pub p90: i64,
    /// 99th percentile.
    pub p99: i64,
    /// 99.9th percentile.
    pub p999: i64,
}

/// Delay variation in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Jitter {
    /// Mean of |Dᵢ − Dᵢ₋₁|; 0 when fewer than two delays are known.
    pub mean: f64,
    /// The estimate of RFC 3550 after the last packet; none over several flows, where a filter
    /// along one sequence of packets means nothing.
    pub rfc3550: Option<f64>,
    /// 99th percentile of |Dᵢ − Dᵢ₋₁|.
    pub p99: i64,
}

impl DelayStats {
    /// Takes the next delay in order of arrival; returns |Dᵢ − Dᵢ₋₁| when there is one before.
    #[inline]
    pub fn add(&mut self, delay_ns: i64) -> Option<u64> {
        let step = self.last.map(|last| {
            self.vary(delay_ns, last);
            delay_ns.abs_diff(last)
        });
        self.first = self.first.or(Some(delay_ns));
        self.last = Some(delay_ns);
        self.delay.add(delay_ns);
        self.negative += u64::from(delay_ns < 0);
        step
    }

    /// Takes the next delays in order of arrival: the same as one by one (the filter of RFC 3550 but
    /// for rounding), and sooner.
    pub fn add_all(&mut self, delays_ns: &[i64]) {
        let (mut steps, mut ways) = ([0; MOST], [0.0; MOST]);
        for delays in delays_ns.chunks(MOST) {
            // The first delay of all has no step.
            let from = usize::from(self.last.is_none());
            let mut last = self.last.unwrap_or(delays[0]);
            let mut far = last.wrapping_add(FAR).cast_unsigned();
            for (step, &delay) in steps.iter_mut().zip(delays) {
                far |= delay.wrapping_add(FAR).cast_unsigned();
                *step = delay.wrapping_sub(last);
                last = delay;
            }
            let steps = &mut steps[from..delays.len()];
            let ways = &mut ways[..steps.len()];
            let near = Narrow::of(steps).filter(|_| far < 2 * FAR.cast_unsigned());
            if let Some(near) = near {
                for (way, step) in ways.iter_mut().zip(near.values()) {
                    *way = f64::from(step.abs());
                }
                self.variation_sum += u128::from(near.magnitudes());
                self.variation.add_narrow(&near);
            } else {
                let mut last = self.last.unwrap_or(delays[0]);
                for ((step, way), &delay) in
                    steps.iter_mut().zip(ways.iter_mut()).zip(&delays[from..])
                {
                    let magnitude = delay.abs_diff(last);
                    self.variation_sum += u128::from(magnitude);
                    (*step, *way) = (delay.saturating_sub(last), magnitude as f64);
                    last = delay;
                }
                self.variation.add_all(steps);
            }
            let (quarters, rest) = ways.as_chunks();
            let mut filter = self.rfc3550;
            for [a, b, c, d] in quarters {
                // Four steps at once: each fades by 15/16 with each one behind it.
                let all = a * FADES[3] + b * FADES[2] + (c * FADES[1] + d);
                filter = filter * FADES[4] + all / 16.0;
            }
            self.rfc3550 = rest.iter().fold(filter, |filter, step| filter + (step - filter) / 16.0);
            self.first = self.first.or(Some(delays[0]));
            self.last = Some(last);
            self.delay.add_all(delays);
            self.negative += delays.iter().map(|delay| delay.cast_unsigned() >> 63).sum::<u64>();
        }
    }

    /// Takes the delays of a later part of the same flow, the step between the two included.
    ///
    /// The filter of RFC 3550 is linear in its state, so it merges exactly: the state before fades
    /// by 15/16 with each step of the later part.
    pub fn append(&mut self, later: &Self) {
        let (Some(first), Some(_)) = (later.first, later.last) else { return };
        if let Some(last) = self.last {
            self.vary(first, last);
        }
        self.rfc3550 = later.rfc3550 + self.rfc3550 * fade(later.variation.count());
        self.first = self.first.or(later.first);
        self.last = later.last;
        self.pool(later);
    }

    /// Takes the delays of another flow: no step between the two, no filter over both.
    pub fn pool(&mut self, other: &Self) {
        self.delay.merge(&other.delay);
        self.negative += other.negative;
        self.variation.merge(&other.variation);
        self.variation_sum += other.variation_sum;
    }

    #[inline]
    fn vary(&mut self, delay_ns: i64, last_ns: i64) {
        self.variation.add(delay_ns.saturating_sub(last_ns));
        let step = delay_ns.abs_diff(last_ns);
        self.variation_sum += u128::from(step);
        self.rfc3550 += (step as f64 - self.rfc3550) / 16.0;
    }

    /// |Dᵢ − Dᵢ₋₁| from the last delay here to the first one of a later part; `None` when one of the
    /// two parts has none.
    #[must_use]
    pub fn step_to(&self, later: &Self) -> Option<u64> {
        self.last.zip(later.first).map(|(last, first)| first.abs_diff(last))
    }

    /// The delays in nanoseconds.
    #[must_use]
    pub const fn values(&self) -> &Quantiles {
        self.delay.quantiles()
    }

    /// The delays.
    #[must_use]
    pub const fn distribution(&self) -> &SampleDistribution {
        &self.delay
    }

    /// Dᵢ − Dᵢ₋₁, signed.
    #[must_use]
    pub const fn variation(&self) -> &Quantiles {
        &self.variation
    }

    /// Mean of |Dᵢ − Dᵢ₋₁| in nanoseconds; 0 when there is none.
    #[must_use]
    pub fn variation_mean(&self) -> f64 {
        let pairs = self.variation.count();
        if pairs == 0 { 0.0 } else { self.variation_sum as f64 / pairs as f64 }
    }

    /// Number of known delays.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.delay.moments().count()
    }

    /// Number of delays below 0.
    #[must_use]
    pub const fn negative(&self) -> u64 {
        self.negative
    }

    /// The delays in figures; `None` when none is known.
    #[must_use]
    pub fn delay(&self) -> Option<Delay> {
        let moments = self.delay.moments();
        (moments.count() > 0).then(|| {
            let [p50, p90, p99, p999] = self.delay.quantiles().at([0.5, 0.9, 0.99, 0.999]);
            Delay {
                min: moments.min(),
                mean: moments.mean(),
                max: moments.max(),
                stddev: moments.stddev(),
                p50,
                p90,
                p99,
                p999,
            }
        })
    }

    /// Their variation; `None` when no delay is known.
    #[must_use]
    pub fn jitter(&self) -> Option<Jitter> {
        let mean = self.variation_mean();
        let [p99] = self.variation.magnitudes_at([0.99]);
        (self.count() > 0).then_some(Jitter { mean, rfc3550: self.last.map(|_| self.rfc3550), p99 })
    }
}

/// Differences of delays between −this and this, which is left out, fit in 64 bits.
const FAR: i64 = 1 << 62;
/// (15/16)ⁿ for n up to 4.
const FADES: [f64; 5] = [1.0, 15.0 / 16.0, 225.0 / 256.0, 3_375.0 / 4_096.0, 50_625.0 / 65_536.0];

/// (15/16)ⁿ.
fn fade(steps: u64) -> f64 {
    i32::try_from(steps).map_or(0.0, |n| (15.0f64 / 16.0).powi(n))
}

/// Uncertainty stated for a delay whose two times come from one clock, in nanoseconds: the clock is
/// read shortly before the kernel takes a packet. An assumption of 1 µs, not a measurement of the
/// host.
pub const SAME_CLOCK_UNCERTAINTY_NS: u64 = 1_000;

/// Basis of a delay: the meaning of its zero, and its uncertainty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DelayBasis {
    /// Absolute or relative.
    pub kind: BasisKind,
    /// Largest error of an absolute delay, in nanoseconds.
    pub uncertainty_ns: Option<u64>,
}

/// Kind of delays: values with a meaning of their own, or differences only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum BasisKind {
    /// Both times come from one clock, or from two whose offset is known well enough.
    Absolute,
    /// The times come from two clocks: only differences between delays mean something.
    Relative,
}

impl DelayBasis {
    /// Both times come from one clock.
    pub const ONE_CLOCK: Self =
        Self { kind: BasisKind::Absolute, uncertainty_ns: Some(SAME_CLOCK_UNCERTAINTY_NS) };
    /// The times come from two clocks whose difference is not known.
    pub const TWO_CLOCKS: Self = Self { kind: BasisKind::Relative, uncertainty_ns: None };

    /// Two clocks whose offset has been taken off within a bound, for delays with this median.
    ///
    /// Absolute when the bound is at most 3/2 of the median. No narrower rule would do: the bound is half a round trip
    /// at least, which is what the delay itself comes to when both directions are alike.
    #[must_use]
    pub const fn corrected(bound_ns: u64, median_ns: i64) -> Self {
        let uncertainty_ns = bound_ns.saturating_add(SAME_CLOCK_UNCERTAINTY_NS);
        let median = if median_ns > 0 { median_ns.unsigned_abs() } else { 0 };
        if uncertainty_ns.saturating_mul(2) <= median.saturating_mul(3) {
            Self { kind: BasisKind::Absolute, uncertainty_ns: Some(uncertainty_ns) }
        } else {
            Self::TWO_CLOCKS
        }
    }

    /// The same of arrivals that no kernel stamped, as those of a byte stream: the program's time of reading ends the
    /// delay, and how much later that is has no bound.
    #[must_use]
    pub const fn by_reading(self) -> Self {
        Self { uncertainty_ns: None, ..self }
    }

    /// The basis of delays of both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        match (self.kind, other.kind) {
            (BasisKind::Absolute, BasisKind::Absolute) => {
                let bounds = self.uncertainty_ns.zip(other.uncertainty_ns);
                let uncertainty_ns = bounds.map(|(a, b)| a.max(b));
                Self { kind: BasisKind::Absolute, uncertainty_ns }
            }
            _ => Self::TWO_CLOCKS,
        }
    }
}

/// Lateness in nanoseconds: sent − (start of the flow + planned).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Lateness {
    /// Median.
    pub p50: i64,
    /// 99th percentile.
    pub p99: i64,
    /// Largest.
    pub max: i64,
}
