//! Quantiles of signed nanoseconds: exact while there are few, a histogram of three digits after.
//!
//! Up to [`EXACT_LIMIT`] values are kept as they are and sorted when asked. Beyond, they move to
//! two HDR histograms (values ≥ 0, and the magnitudes of the negative ones) of three significant
//! digits: whole numbers below 2048 exactly, larger ones to one part in a thousand. At most about
//! 0.4 MB each, whatever the number of values. Quantile *q* of *n* values is the ⌈*q·n*⌉-th
//! smallest (nearest rank); from a histogram it is the upper end of its bucket, never outside [min,
//! max].

use hdrhistogram::Histogram;

/// Values kept exactly before a histogram takes over.
pub const EXACT_LIMIT: usize = 16_384;

const DIGITS: u8 = 3;

/// Equal or nearly equal values: `count` of them between `low` and `high`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    /// Smallest value it may stand for.
    pub low: i64,
    /// Largest value it may stand for.
    pub high: i64,
    /// How many values.
    pub count: u64,
}

/// A list of values that answers for its quantiles.
#[derive(Clone, Debug, Default)]
pub struct Quantiles {
    count: u64,
    min: i64,
    max: i64,
    exact: Vec<i64>,
    histograms: Option<Box<Histograms>>,
}

#[derive(Clone, Debug)]
struct Histograms {
    positive: Histogram<u64>,
    /// Magnitudes of the values below 0; created with the first one.
    negative: Option<Histogram<u64>>,
}

impl Quantiles {
    /// Takes one value.
    pub fn add(&mut self, value: i64) {
        if self.count == 0 {
            (self.min, self.max) = (value, value);
        }
        self.count += 1;
        self.min = self.min.min(value);
        self.max = self.max.max(value);
        match &mut self.histograms {
            Some(histograms) => histograms.add(value, 1),
            None if self.exact.len() < EXACT_LIMIT => self.exact.push(value),
            None => {
                self.spill().add(value, 1);
            }
        }
    }

    /// Takes all values of `other`.
    pub fn merge(&mut self, other: &Self) {
        if other.count == 0 {
            return;
        }
        if self.count == 0 {
            *self = other.clone();
            return;
        }
        self.count += other.count;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        let fits = self.exact.len() + other.exact.len() <= EXACT_LIMIT;
        if self.histograms.is_none() && other.histograms.is_none() && fits {
            self.exact.extend_from_slice(&other.exact);
            return;
        }
        let points = other.points();
        let histograms = self.spill();
        for point in points {
            histograms.add(point.high, point.count);
        }
    }

    /// How many values.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// The quantiles at the given shares, which must ascend; 0 each when there is no value.
    #[must_use]
    pub fn at<const N: usize>(&self, shares: [f64; N]) -> [i64; N] {
        debug_assert!(shares.is_sorted(), "shares ascend");
        let mut found = [self.max; N];
        let points = self.points();
        let mut points = points.iter();
        let mut reached = 0;
        let mut value = self.max;
        for (found, share) in found.iter_mut().zip(shares) {
            let rank = rank(share, self.count);
            while reached < rank {
                let Some(point) = points.next() else { break };
                reached += point.count;
                value = point.high;
            }
            *found = value.clamp(self.min, self.max);
        }
        found
    }

    /// The values in ascending order, equal ones together.
    #[must_use]
    pub fn points(&self) -> Vec<Point> {
        if let Some(histograms) = &self.histograms {
            return histograms.points();
        }
        let mut sorted = self.exact.clone();
        sorted.sort_unstable();
        sorted
            .chunk_by(|a, b| a == b)
            .map(|same| Point { low: same[0], high: same[0], count: same.len() as u64 })
            .collect()
    }

    /// Moves the exact values to histograms.
    fn spill(&mut self) -> &mut Histograms {
        let exact = std::mem::take(&mut self.exact);
        let histograms = self
            .histograms
            .get_or_insert_with(|| Box::new(Histograms { positive: histogram(), negative: None }));
        for value in exact {
            histograms.add(value, 1);
        }
        histograms
    }
}

impl Histograms {
    fn add(&mut self, value: i64, count: u64) {
        let histogram = if value < 0 {
            self.negative.get_or_insert_with(histogram)
        } else {
            &mut self.positive
        };
        // The histogram grows by itself: every magnitude of 64 bits has a bucket.
        let recorded = histogram.record_n(value.unsigned_abs(), count);
        debug_assert!(recorded.is_ok(), "{value} has no bucket");
    }

    fn points(&self) -> Vec<Point> {
        let signed = |magnitude: u64| i64::try_from(magnitude).unwrap_or(i64::MAX);
        let mut points = Vec::new();
        if let Some(negative) = &self.negative {
            points.extend(negative.iter_recorded().map(|step| Point {
                low: -signed(negative.highest_equivalent(step.value_iterated_to())),
                high: -signed(negative.lowest_equivalent(step.value_iterated_to())),
                count: step.count_at_value(),
            }));
            points.reverse();
        }
        points.extend(self.positive.iter_recorded().map(|step| Point {
            low: signed(self.positive.lowest_equivalent(step.value_iterated_to())),
            high: signed(self.positive.highest_equivalent(step.value_iterated_to())),
            count: step.count_at_value(),
        }));
        points
    }
}

fn histogram() -> Histogram<u64> {
    // 3 is within the range of digits that the histogram knows, so this cannot fail.
    Histogram::new(DIGITS).unwrap_or_else(|error| unreachable!("three digits: {error}"))
}

/// Nearest rank: ⌈share · count⌉, at least 1.
fn rank(share: f64, count: u64) -> u64 {
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a share of a count is between 0 and that count"
    )]
    let rank = (share * count as f64 - 1e-9).ceil() as u64;
    rank.clamp(1, count.max(1))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SHARES: [f64; 6] = [0.0, 0.5, 0.9, 0.99, 0.999, 1.0];

    fn quantiles(values: &[i64]) -> Quantiles {
        let mut all = Quantiles::default();
        values.iter().for_each(|&v| all.add(v));
        all
    }

    /// Sort and count.
    fn twin(values: &[i64]) -> [i64; 6] {
        let mut sorted = values.to_vec();
        sorted.sort_unstable();
        SHARES.map(|share| {
            let wanted = share * sorted.len() as f64 - 1e-9;
            let at = (0..sorted.len()).find(|&i| (i + 1) as f64 >= wanted);
            sorted[at.expect("some rank reaches every share")]
        })
    }

    fn near(got: i64, want: i64) -> bool {
        (got - want).abs() as f64 <= 1e-3 * want.abs() as f64
    }

    proptest! {
        #[test]
        fn few_values_are_exact(values in prop::collection::vec(any::<i64>(), 1..300)) {
            prop_assert_eq!(quantiles(&values).at(SHARES), twin(&values));
        }

        #[test]
        fn histograms_are_good_to_three_digits(
            values in prop::collection::vec(-5_000_000_000i64..86_400_000_000_000, 1..300),
        ) {
            let mut all = quantiles(&values);
            all.spill();
            for (got, want) in all.at(SHARES).into_iter().zip(twin(&values)) {
                prop_assert!(near(got, want), "got {got}, want {want}");
            }
            prop_assert_eq!(all.points().iter().map(|p| p.count).sum::<u64>(), values.len() as u64);
            prop_assert!(all.points().is_sorted_by_key(|p| (p.low, p.high)));
        }

        #[test]
        fn merged_parts_are_the_whole(
            a in prop::collection::vec(-1_000_000i64..1_000_000, 0..100),
            b in prop::collection::vec(-1_000_000i64..1_000_000, 0..100),
            spilled: (bool, bool),
        ) {
            let (mut left, mut right) = (quantiles(&a), quantiles(&b));
            if spilled.0 { left.spill(); }
            if spilled.1 { right.spill(); }
            left.merge(&right);
            let all = [a, b].concat();
            prop_assert_eq!(left.count(), all.len() as u64);
            if !all.is_empty() {
                for (got, want) in left.at(SHARES).into_iter().zip(twin(&all)) {
                    prop_assert!((got - want).abs() as f64 <= 2e-3 * want.abs() as f64 + 1.0);
                }
            }
        }
    }

    #[test]
    fn many_values_spill_and_extremes_stay_exact() {
        let values: Vec<i64> = (0..40_000).map(|k| k * 1_000 - 7_777_777).collect();
        let all = quantiles(&values);
        assert!(all.histograms.is_some() && all.exact.is_empty());
        let [first, .., last] = all.at(SHARES);
        assert!(near(first, values[0]));
        assert_eq!(last, values[39_999]);
        assert_eq!(Quantiles::default().at([0.5]), [0]);
    }

    #[test]
    fn the_widest_values_have_buckets() {
        let mut all = quantiles(&[i64::MIN, i64::MAX, 0, -1]);
        all.spill();
        assert_eq!(all.count(), 4);
        assert_eq!(all.at([1.0]), [i64::MAX]);
        assert_eq!(all.points().iter().map(|p| p.count).sum::<u64>(), 4);
    }
}
