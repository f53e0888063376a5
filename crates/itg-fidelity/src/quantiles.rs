//! Quantiles of signed nanoseconds: exact while there are few, a histogram of three digits after.
//!
//! Up to [`EXACT_LIMIT`] values are kept as they are and sorted when asked. Beyond, they move to
//! buckets as those of an HDR histogram of three significant digits: whole numbers below 2048 each
//! have their own, larger ones share 1024 buckets a power of two, so that a bucket is at most one
//! part in a thousand wide. Quantile *q* of *n* values is the ⌈*q·n*⌉-th smallest (nearest rank);
//! from buckets it is the upper end of its bucket, never outside [min, max].
//!
//! The buckets are our own because five of them are fed for each packet: finding one is four
//! instructions, counters have 32 bits, and only the stretches of 256 buckets that hold values are
//! in memory (some 40 kB for delays that spread over a factor of a thousand). Parts merge exactly:
//! the buckets of the whole are the sums of those of its parts, whatever the order.
//! Source: G. Tene, HdrHistogram (bucket layout).

use std::collections::BTreeMap;

/// Values kept exactly before buckets take over.
pub const EXACT_LIMIT: usize = 4_096;

/// Buckets in a page.
const PAGE: usize = 256;

/// Equal or nearly equal values: `count` of them between `low` and `high`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    /// Smallest value it may stand for.
    pub low: i64,
    /// Largest value it may stand for.
    pub high: i64,
    /// Number of values.
    pub count: u64,
}

/// A list of values that answers for its quantiles.
#[derive(Clone, Debug, Default)]
pub struct Quantiles {
    count: u64,
    min: i64,
    max: i64,
    exact: Vec<i64>,
    buckets: Option<Box<Signed>>,
}

/// Buckets on both sides of 0: of the values from 0, and of the magnitudes of those below.
#[derive(Clone, Debug, Default)]
struct Signed([Buckets; 2]);

/// Counts of magnitudes.
#[derive(Clone, Debug, Default)]
struct Buckets {
    pages: Vec<Option<Box<[u32; PAGE]>>>,
    /// Number of times that a counter has gone through its 32 bits, by bucket.
    carries: BTreeMap<usize, u64>,
}

impl Quantiles {
    /// Takes one value.
    #[inline]
    pub fn add(&mut self, value: i64) {
        if self.count == 0 {
            (self.min, self.max) = (value, value);
        }
        self.count += 1;
        self.min = self.min.min(value);
        self.max = self.max.max(value);
        match &mut self.buckets {
            Some(buckets) => buckets.side(value).add_one(value.unsigned_abs()),
            None if self.exact.len() < EXACT_LIMIT => self.exact.push(value),
            None => self.spill().side(value).add_one(value.unsigned_abs()),
        }
    }

    /// Takes some values: the same as one by one, and sooner.
    pub fn add_all(&mut self, values: &[i64]) {
        let Some(&first) = values.first() else { return };
        if self.count == 0 {
            (self.min, self.max) = (first, first);
        }
        self.count += values.len() as u64;
        let (mut min, mut max) = (self.min, self.max);
        for &value in values {
            (min, max) = (min.min(value), max.max(value));
        }
        (self.min, self.max) = (min, max);
        if self.buckets.is_none() && self.exact.len() + values.len() <= EXACT_LIMIT {
            self.exact.extend_from_slice(values);
        } else if self.exact.is_empty()
            && let Some(buckets) = &mut self.buckets
        {
            buckets.add_all(values);
        } else {
            self.spill().add_all(values);
        }
    }

    /// Takes all values of `other`.
    pub fn merge(&mut self, other: &Self) {
        if other.count == 0 {
            return;
        }
        if self.count == 0 {
            self.clone_from(other);
            return;
        }
        self.count += other.count;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        let fits = self.exact.len() + other.exact.len() <= EXACT_LIMIT;
        if self.buckets.is_none() && other.buckets.is_none() && fits {
            self.exact.extend_from_slice(&other.exact);
            return;
        }
        let buckets = self.spill();
        if let Some(more) = &other.buckets {
            buckets.0.iter_mut().zip(&more.0).for_each(|(side, more)| side.merge(more));
        }
        for &value in &other.exact {
            buckets.side(value).add_one(value.unsigned_abs());
        }
    }

    /// Number of values.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// Smallest value; 0 when there is none.
    #[must_use]
    pub const fn min(&self) -> i64 {
        self.min
    }

    /// Largest value; 0 when there is none.
    #[must_use]
    pub const fn max(&self) -> i64 {
        self.max
    }

    /// The quantiles at the given shares, which must ascend; 0 each when there is no value.
    #[must_use]
    pub fn at<const N: usize>(&self, shares: [f64; N]) -> [i64; N] {
        quantiles_of(&self.points(), self.count, shares).map(|q| q.clamp(self.min, self.max))
    }

    /// The quantiles of the magnitudes of the values, as [`Quantiles::at`].
    #[must_use]
    pub fn magnitudes_at<const N: usize>(&self, shares: [f64; N]) -> [i64; N] {
        let mut points = self.points();
        for point in &mut points {
            if point.high < 0 {
                let magnitude = |value: i64| value.checked_neg().unwrap_or(i64::MAX);
                (point.low, point.high) = (magnitude(point.high), magnitude(point.low));
            }
        }
        points.sort_unstable_by_key(|point| point.high);
        let magnitude = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        let largest = magnitude(self.min.unsigned_abs().max(self.max.unsigned_abs()));
        quantiles_of(&points, self.count, shares).map(|q| q.min(largest))
    }

    /// The values in ascending order, equal ones together.
    #[must_use]
    pub fn points(&self) -> Vec<Point> {
        if let Some(buckets) = &self.buckets {
            return buckets.points();
        }
        let mut sorted = self.exact.clone();
        sorted.sort_unstable();
        sorted
            .chunk_by(|a, b| a == b)
            .map(|same| Point { low: same[0], high: same[0], count: same.len() as u64 })
            .collect()
    }

    /// Moves the exact values to buckets.
    #[cold]
    fn spill(&mut self) -> &mut Signed {
        let exact = std::mem::take(&mut self.exact);
        let buckets = self.buckets.get_or_insert_default();
        for value in exact {
            buckets.side(value).add_one(value.unsigned_abs());
        }
        buckets
    }
}

impl Signed {
    #[inline]
    fn side(&mut self, value: i64) -> &mut Buckets {
        &mut self.0[usize::from(value < 0)]
    }

    /// Takes some values. Signs follow no pattern where values vary about 0, so nothing is decided by
    /// them but where to count.
    fn add_all(&mut self, values: &[i64]) {
        let mut rest = values.iter();
        while let Some(&missed) = {
            let mut pages = self.0.each_mut().map(|side| side.pages.as_mut_slice());
            rest.find(|&&value| {
                let bucket = bucket_of(value.unsigned_abs());
                let page = pages[usize::from(value < 0)].get_mut(bucket / PAGE);
                let Some(Some(page)) = page else { return true };
                let counter = &mut page[bucket % PAGE];
                match counter.checked_add(1) {
                    Some(more) => *counter = more,
                    None => return true,
                }
                false
            })
        } {
            self.side(missed).add_one(missed.unsigned_abs());
        }
    }

    fn points(&self) -> Vec<Point> {
        let signed = |magnitude: u64| i64::try_from(magnitude).unwrap_or(i64::MAX);
        let [positive, negative] = &self.0;
        let negative = negative.counts().map(|(bucket, count)| {
            let (low, high) = bounds(bucket);
            Point { low: -signed(high), high: -signed(low), count }
        });
        let mut points: Vec<_> = negative.collect();
        points.reverse();
        points.extend(positive.counts().map(|(bucket, count)| {
            let (low, high) = bounds(bucket);
            Point { low: signed(low), high: signed(high), count }
        }));
        points
    }
}

/// Counts of small whole numbers, such as the sizes of packets in bytes. Numbers beyond
/// [`Counts::LIMIT`] are counted together as that one.
#[derive(Clone, Debug, Default)]
pub struct Counts(Buckets);

impl Counts {
    /// Largest number that is counted by itself: the largest packet.
    pub const LIMIT: usize = 1 << 20;

    /// Takes one number.
    #[inline]
    pub fn add(&mut self, number: u32) {
        self.0.count(usize::try_from(number).unwrap_or(usize::MAX).min(Self::LIMIT));
    }

    /// Takes all numbers of `other`.
    pub fn merge(&mut self, other: &Self) {
        self.0.merge(&other.0);
    }

    /// Numbers that came, ascending, and how often.
    #[must_use]
    pub fn list(&self) -> Vec<(u64, u64)> {
        self.0.counts().map(|(number, count)| (number as u64, count)).collect()
    }
}

impl Buckets {
    #[inline]
    fn add_one(&mut self, magnitude: u64) {
        self.count(bucket_of(magnitude));
    }

    #[inline]
    fn count(&mut self, bucket: usize) {
        if let Some(Some(page)) = self.pages.get_mut(bucket / PAGE) {
            let counter = &mut page[bucket % PAGE];
            *counter = counter.wrapping_add(1);
            if *counter != 0 {
                return;
            }
            *self.carries.entry(bucket).or_default() += 1;
        } else {
            self.page(bucket / PAGE)[bucket % PAGE] = 1;
        }
    }

    /// A page, made when it does not exist.
    #[cold]
    fn page(&mut self, number: usize) -> &mut [u32; PAGE] {
        if self.pages.len() <= number {
            self.pages.resize_with(number + 1, || None);
        }
        self.pages[number].get_or_insert_with(|| Box::new([0; PAGE]))
    }

    fn merge(&mut self, other: &Self) {
        for (number, page) in other.pages.iter().enumerate() {
            let Some(page) = page else { continue };
            let mut carried = Vec::new();
            for (at, (counter, &more)) in self.page(number).iter_mut().zip(page.iter()).enumerate()
            {
                let (sum, over) = counter.overflowing_add(more);
                *counter = sum;
                if over {
                    carried.push(number * PAGE + at);
                }
            }
            for bucket in carried {
                *self.carries.entry(bucket).or_default() += 1;
            }
        }
        for (&bucket, &carries) in &other.carries {
            *self.carries.entry(bucket).or_default() += carries;
        }
    }

    /// The buckets that hold values, ascending, and how many each.
    fn counts(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        let pages = self.pages.iter().enumerate();
        let pages = pages.filter_map(|(number, page)| page.as_ref().map(|page| (number, page)));
        pages.flat_map(move |(number, page)| {
            page.iter().enumerate().filter_map(move |(at, &low)| {
                let bucket = number * PAGE + at;
                let carries = self.carries.get(&bucket).map_or(0, |&carries| carries << 32);
                let count = carries + u64::from(low);
                (count > 0).then_some((bucket, count))
            })
        })
    }
}

/// The bucket of a magnitude: itself below 2048, then 1024 for each power of two.
#[inline]
#[allow(clippy::cast_possible_truncation, reason = "at most 2048 above 53 times 1024")]
const fn bucket_of(magnitude: u64) -> usize {
    let shift = 53 - (magnitude | 1024).leading_zeros() as usize;
    shift * 1024 + (magnitude >> shift) as usize
}

/// The smallest and the largest magnitude in a bucket.
const fn bounds(bucket: usize) -> (u64, u64) {
    if bucket < 2048 {
        return (bucket as u64, bucket as u64);
    }
    let shift = bucket / 1024 - 1;
    let low = (1024 + bucket as u64 % 1024) << shift;
    (low, low + ((1 << shift) - 1))
}

/// The quantiles of `count` values in ascending points; 0 each when there is none.
fn quantiles_of<const N: usize>(points: &[Point], count: u64, shares: [f64; N]) -> [i64; N] {
    debug_assert!(shares.is_sorted(), "shares ascend");
    let mut points = points.iter();
    let (mut reached, mut value) = (0, 0);
    shares.map(|share| {
        let rank = rank(share, count);
        while reached < rank {
            let Some(point) = points.next() else { break };
            reached += point.count;
            value = point.high;
        }
        value
    })
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
        fn magnitudes_are_those_of_the_values(
            values in prop::collection::vec(-1_000_000_000i64..2_000_000_000, 1..300), spilled: bool,
        ) {
            let mut all = quantiles(&values);
            if spilled { all.spill(); }
            let magnitudes: Vec<_> = values.iter().map(|v| v.abs()).collect();
            for (got, want) in all.magnitudes_at(SHARES).into_iter().zip(twin(&magnitudes)) {
                let good = if spilled { near(got, want) } else { got == want };
                prop_assert!(good, "got {}, want {}", got, want);
            }
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
        fn some_values_at_once_are_the_same_as_one_by_one(
            values in prop::collection::vec(-3_000i64..200_000, 1..600),
            runs in prop::collection::vec(1usize..300, 1..20),
            before in prop_oneof![Just(0usize), 3_500usize..4_500],
        ) {
            let before: Vec<i64> = (0..before).map(|k| k as i64 * 7 - 9_000).collect();
            let (mut singly, mut at_once) = (quantiles(&before), quantiles(&before));
            values.iter().for_each(|&value| singly.add(value));
            let (mut rest, mut runs) = (&values[..], runs.iter().cycle());
            while let Some(&run) = runs.next().filter(|_| !rest.is_empty()) {
                let (now, later) = rest.split_at(run.min(rest.len()));
                at_once.add_all(now);
                rest = later;
            }
            prop_assert_eq!(at_once.points(), singly.points());
            prop_assert_eq!(at_once.at(SHARES), singly.at(SHARES));
            prop_assert_eq!((at_once.count(), at_once.min()), (singly.count(), singly.min()));
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
        assert!(all.buckets.is_some() && all.exact.is_empty());
        let [first, .., last] = all.at(SHARES);
        assert!(near(first, values[0]));
        assert_eq!(last, values[39_999]);
        assert_eq!(Quantiles::default().at([0.5]), [0]);
    }

    #[test]
    fn buckets_cover_every_magnitude_without_gaps() {
        let mut next = 0;
        for bucket in 0..=bucket_of(u64::MAX) {
            let (low, high) = bounds(bucket);
            assert_eq!(low, next, "bucket {bucket}");
            assert!(bucket_of(low) == bucket && bucket_of(high) == bucket, "bucket {bucket}");
            assert!(high - low <= low / 1024, "bucket {bucket} is too wide");
            next = high.wrapping_add(1);
        }
        assert_eq!(next, 0, "the last one ends with the largest number");
    }

    #[test]
    fn counters_carry_beyond_32_bits() {
        let mut buckets = Buckets::default();
        buckets.add_one(7);
        buckets.page(0)[7] = u32::MAX;
        buckets.add_one(7);
        buckets.add_one(7);
        let mut twice = buckets.clone();
        twice.page(0)[7] = u32::MAX;
        twice.merge(&buckets);
        let mut at_once = Signed::default();
        at_once.side(0).add_one(7);
        at_once.side(0).page(0)[7] = u32::MAX;
        at_once.add_all(&[7, 7]);
        assert_eq!(at_once.0[0].counts().collect::<Vec<_>>(), [(7, (1 << 32) + 1)]);
        assert_eq!(buckets.counts().collect::<Vec<_>>(), [(7, (1 << 32) + 1)]);
        let want = (1u64 << 32) + u64::from(u32::MAX) + (1 << 32) + 1;
        assert_eq!(twice.counts().collect::<Vec<_>>(), [(7, want)]);
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
