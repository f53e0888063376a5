//! Quantiles of signed nanoseconds: exact while there are few, a histogram of three digits after.
//!
//! Up to [`EXACT_LIMIT`] values are kept as they are and sorted when asked. Beyond, they move to
//! buckets as those of an HDR histogram of three significant digits: whole numbers below 2048 each
//! have their own, larger ones share 1024 buckets a power of two, so that a bucket is at most one
//! part in a thousand wide. Quantile *q* of *n* values is the ⌈*q·n*⌉-th smallest (nearest rank);
//! from buckets it is the upper end of its bucket, never outside [min, max].
//!
//! The buckets are our own because five histograms are fed for each packet: finding a bucket is four
//! instructions and its counter two loads, counters have 32 bits, and only the stretches of 256 buckets that hold values are
//! in memory (some 40 kB for delays that spread over a factor of a thousand). Parts merge exactly:
//! the buckets of the whole are the sums of those of its parts, whatever the order.
//! Source: G. Tene, HdrHistogram (bucket layout).

use std::collections::BTreeMap;
use std::ops::Range;

use crate::narrow::Narrow;

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

/// Counts by the number of a bucket.
#[derive(Clone, Debug, Default)]
struct Buckets {
    /// By page, where its counters are among all of them, in pages and from 1; 0 for those that have none.
    places: Vec<u16>,
    counters: Vec<u32>,
    /// Number of times that a counter has gone through its 32 bits, by bucket.
    carries: BTreeMap<usize, u64>,
}

/// Buckets on both sides of 0: of the values from 0, and from [`NEGATIVE`] on of the magnitudes of those below.
#[derive(Clone, Debug)]
struct Signed(Buckets);

/// Offset from the bucket of a magnitude to that of a value below 0.
const NEGATIVE: usize = 1 << 16;
/// Pages on both sides of 0.
const PAGES: usize = 2 * NEGATIVE / PAGE;

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
            Some(buckets) => buckets.0.count(signed_bucket_of(value)),
            None if self.exact.len() < EXACT_LIMIT => self.exact.push(value),
            None => self.spill().0.count(signed_bucket_of(value)),
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
        } else {
            self.with_buckets(|buckets, few| {
                buckets.count_all(values, few, |&value| signed_bucket_of(value));
            });
        }
    }

    /// Takes some values near 0: the same as one by one, and sooner.
    pub fn add_narrow(&mut self, values: &Narrow) {
        let all = values.values();
        if all.is_empty() {
            return;
        }
        let (min, max) = (i64::from(values.ends().0), i64::from(values.ends().1));
        if self.count == 0 {
            (self.min, self.max) = (min, max);
        }
        self.count += all.len() as u64;
        (self.min, self.max) = (self.min.min(min), self.max.max(max));
        if self.buckets.is_none() && self.exact.len() + all.len() <= EXACT_LIMIT {
            self.exact.extend(all.iter().copied().map(i64::from));
        } else {
            self.with_buckets(|buckets, few| {
                if min < 0 {
                    buckets.count_all(all, few, |&value| {
                        narrow_bucket_of(value.unsigned_abs()) + sign_of(value) * NEGATIVE
                    });
                } else {
                    buckets.count_all(all, few, |&value| narrow_bucket_of(value.unsigned_abs()));
                }
            });
        }
    }

    /// Does something with the buckets; true stands for so few values, those to come among them, that no counter
    /// goes through its 32 bits.
    #[inline]
    fn with_buckets(&mut self, count: impl FnOnce(&mut Buckets, bool)) {
        let few = u32::try_from(self.count).is_ok();
        match &mut self.buckets {
            Some(buckets) if self.exact.is_empty() => count(&mut buckets.0, few),
            _ => count(&mut self.spill().0, few),
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
            buckets.0.merge(&more.0);
        }
        for &value in &other.exact {
            buckets.0.count(signed_bucket_of(value));
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
        let found = match &self.buckets {
            Some(buckets) => quantiles_of(buckets.points(), self.count, shares),
            None => quantiles_of(same(&self.sorted()), self.count, shares),
        };
        found.map(|q| q.clamp(self.min, self.max))
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
        // Two runs, which a stable sort joins as they are.
        points.sort_by_key(|point| point.high);
        let magnitude = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        let largest = magnitude(self.min.unsigned_abs().max(self.max.unsigned_abs()));
        quantiles_of(points, self.count, shares).map(|q| q.min(largest))
    }

    /// The values in ascending order, equal ones together.
    #[must_use]
    pub fn points(&self) -> Vec<Point> {
        let Some(buckets) = &self.buckets else { return same(&self.sorted()).collect() };
        let mut points = Vec::with_capacity(buckets.0.used());
        points.extend(buckets.points());
        points
    }

    /// The exact values, ascending.
    fn sorted(&self) -> Vec<i64> {
        let mut sorted = self.exact.clone();
        sorted.sort_unstable();
        sorted
    }

    /// Moves the exact values to buckets.
    #[cold]
    fn spill(&mut self) -> &mut Signed {
        let exact = std::mem::take(&mut self.exact);
        let buckets = self.buckets.get_or_insert_default();
        for value in exact {
            buckets.0.count(signed_bucket_of(value));
        }
        buckets
    }
}

impl Default for Signed {
    fn default() -> Self {
        Self(Buckets { places: vec![0; PAGES], ..Buckets::default() })
    }
}

impl Signed {
    /// The buckets that hold values, ascending.
    fn points(&self) -> impl Iterator<Item = Point> {
        let signed = |magnitude: u64| i64::try_from(magnitude).unwrap_or(i64::MAX);
        let below = self.0.counts_in(NEGATIVE / PAGE..PAGES).rev().map(move |(bucket, count)| {
            let (low, high) = bounds(bucket - NEGATIVE);
            Point { low: -signed(high), high: -signed(low), count }
        });
        let above = self.0.counts_in(0..NEGATIVE / PAGE).map(move |(bucket, count)| {
            let (low, high) = bounds(bucket);
            Point { low: signed(low), high: signed(high), count }
        });
        below.chain(above)
    }
}

/// Counts of small whole numbers, such as the sizes of packets in bytes. Numbers beyond
/// [`Counts::LIMIT`] are counted together as that one.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// The number that came first, and how often: most flows have packets of one size.
    first: (u32, u64),
    /// The others.
    others: Buckets,
}

impl Counts {
    /// Largest number that is counted by itself: the largest packet.
    pub const LIMIT: u32 = 1 << 20;

    /// Takes one number.
    #[inline]
    pub fn add(&mut self, number: u32) {
        self.add_many(number, 1);
    }

    /// Takes one number so many times.
    #[inline]
    pub fn add_many(&mut self, number: u32, times: u32) {
        let number = number.min(Self::LIMIT);
        if self.first.1 == 0 {
            self.first.0 = number;
        }
        if self.first.0 == number {
            self.first.1 += u64::from(times);
        } else {
            self.others.count_many(number as usize, times);
        }
    }

    /// Takes all numbers of `other`.
    pub fn merge(&mut self, other: &Self) {
        let (number, mut times) = other.first;
        while times > 0 {
            let some = u32::try_from(times).unwrap_or(u32::MAX);
            self.add_many(number, some);
            times -= u64::from(some);
        }
        self.others.merge(&other.others);
    }

    /// Numbers that came, ascending, and how often.
    #[must_use]
    pub fn list(&self) -> Vec<(u64, u64)> {
        let others = self.others.counts().map(|(number, count)| (number as u64, count));
        let mut list: Vec<_> = others.collect();
        let (number, times) = (u64::from(self.first.0), self.first.1);
        // The others of another part may have it, too.
        match list.binary_search_by_key(&number, |(number, _)| *number) {
            Ok(place) => list[place].1 += times,
            Err(place) if times > 0 => list.insert(place, (number, times)),
            Err(_) => {}
        }
        list
    }
}

impl Buckets {
    #[inline]
    fn count(&mut self, bucket: usize) {
        self.count_many(bucket, 1);
    }

    #[inline]
    fn count_many(&mut self, bucket: usize, more: u32) {
        let counter = match self.places.get(bucket / PAGE) {
            Some(&place) if place > 0 => {
                &mut self.counters[(usize::from(place) - 1) * PAGE + bucket % PAGE]
            }
            _ => &mut self.page(bucket / PAGE)[bucket % PAGE],
        };
        let (sum, over) = counter.overflowing_add(more);
        *counter = sum;
        if over {
            self.carry(bucket);
        }
    }

    /// Takes some values. With `few` no counter goes through its 32 bits. The places must be those of [`Signed`].
    #[inline]
    fn count_all<T>(&mut self, values: &[T], few: bool, bucket_of: impl Fn(&T) -> usize) {
        let mut rest = values;
        while few && !rest.is_empty() {
            let Some(places) = self.places.first_chunk::<PAGES>() else { break };
            let counters = self.counters.as_mut_slice();
            let missed = rest.iter().position(|value| {
                let bucket = bucket_of(value);
                // A page that is not there ends beyond the last counter.
                let page = usize::from(places[bucket / PAGE % PAGES]).wrapping_sub(1);
                let counter = counters.get_mut(page.wrapping_mul(PAGE).wrapping_add(bucket % PAGE));
                counter.map(|counter| *counter = counter.wrapping_add(1)).is_none()
            });
            let Some(missed) = missed else { return };
            self.count(bucket_of(&rest[missed]));
            rest = &rest[missed + 1..];
        }
        rest.iter().for_each(|value| self.count(bucket_of(value)));
    }

    #[cold]
    fn carry(&mut self, bucket: usize) {
        *self.carries.entry(bucket).or_default() += 1;
    }

    /// A page, made when it does not exist.
    #[cold]
    fn page(&mut self, number: usize) -> &mut [u32] {
        if self.places.len() <= number {
            self.places.resize(number + 1, 0);
        }
        if self.places[number] == 0 {
            self.counters.reserve_exact(PAGE);
            self.counters.resize(self.counters.len() + PAGE, 0);
            let pages = self.counters.len() / PAGE;
            self.places[number] = u16::try_from(pages).expect("fewer pages than that");
        }
        let start = (usize::from(self.places[number]) - 1) * PAGE;
        &mut self.counters[start..start + PAGE]
    }

    fn merge(&mut self, other: &Self) {
        for (number, page) in other.pages() {
            let mut carried = Vec::new();
            for (at, (counter, &more)) in self.page(number).iter_mut().zip(page.iter()).enumerate()
            {
                let (sum, over) = counter.overflowing_add(more);
                *counter = sum;
                if over {
                    carried.push(number * PAGE + at);
                }
            }
            carried.into_iter().for_each(|bucket| self.carry(bucket));
        }
        for (&bucket, &carries) in &other.carries {
            *self.carries.entry(bucket).or_default() += carries;
        }
    }

    /// Counters that hold values, nearly.
    fn used(&self) -> usize {
        self.counters.iter().filter(|counter| **counter > 0).count()
    }

    /// The pages of these numbers that exist, ascending.
    fn pages_in(&self, numbers: Range<usize>) -> impl DoubleEndedIterator<Item = (usize, &[u32])> {
        numbers.filter_map(move |number| {
            let place = usize::from(self.places[number]).checked_sub(1)?;
            Some((number, &self.counters[place * PAGE..(place + 1) * PAGE]))
        })
    }

    /// The buckets in these pages that hold values, ascending, and how many each.
    fn counts_in(&self, pages: Range<usize>) -> impl DoubleEndedIterator<Item = (usize, u64)> {
        self.pages_in(pages).flat_map(move |(number, page)| {
            page.iter().enumerate().filter_map(move |(at, &low)| {
                let bucket = number * PAGE + at;
                let carries = self.carries.get(&bucket).map_or(0, |&carries| carries << 32);
                let count = carries + u64::from(low);
                (count > 0).then_some((bucket, count))
            })
        })
    }

    fn pages(&self) -> impl Iterator<Item = (usize, &[u32])> {
        self.pages_in(0..self.places.len())
    }

    fn counts(&self) -> impl Iterator<Item = (usize, u64)> {
        self.counts_in(0..self.places.len())
    }
}

/// The bucket of a value on its side of 0.
#[inline]
fn signed_bucket_of(value: i64) -> usize {
    bucket_of(value.unsigned_abs()) + if value < 0 { NEGATIVE } else { 0 }
}

/// 1 for a value below 0, else 0.
#[inline]
const fn sign_of(value: i32) -> usize {
    (value.cast_unsigned() >> 31) as usize
}

/// As [`bucket_of`], of a magnitude in 32 bits.
#[inline]
const fn narrow_bucket_of(magnitude: u32) -> usize {
    let shift = 21 - (magnitude | 1024).leading_zeros();
    (shift * 1024 + (magnitude >> shift)) as usize
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

/// Points of ascending values, equal ones together.
fn same(values: &[i64]) -> impl Iterator<Item = Point> {
    let same = values.chunk_by(|a, b| a == b);
    same.map(|same| Point { low: same[0], high: same[0], count: same.len() as u64 })
}

/// The quantiles of `count` values in ascending points; 0 each when there is none.
fn quantiles_of<const N: usize>(
    points: impl IntoIterator<Item = Point>,
    count: u64,
    shares: [f64; N],
) -> [i64; N] {
    debug_assert!(shares.is_sorted(), "shares ascend");
    let mut points = points.into_iter();
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
                match Narrow::of(now).filter(|_| run % 2 == 0) {
                    Some(narrow) => at_once.add_narrow(&narrow),
                    None => at_once.add_all(now),
                }
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
            for magnitude in [low, high] {
                if let Ok(magnitude) = u32::try_from(magnitude) {
                    assert_eq!(narrow_bucket_of(magnitude), bucket, "{magnitude}");
                }
            }
            assert!(high - low <= low / 1024, "bucket {bucket} is too wide");
            next = high.wrapping_add(1);
        }
        assert_eq!(next, 0, "the last one ends with the largest number");
    }

    #[test]
    fn counters_carry_beyond_32_bits() {
        let mut buckets = Buckets::default();
        buckets.count(7);
        buckets.page(0)[7] = u32::MAX;
        buckets.count(7);
        buckets.count(7);
        let mut twice = buckets.clone();
        twice.page(0)[7] = u32::MAX;
        twice.merge(&buckets);
        // Not before all values are too many for a counter are they looked at one by one.
        let mut at_once = quantiles(&[0; EXACT_LIMIT + 1]);
        at_once.spill().0.page(0)[7] = u32::MAX;
        at_once.count = u32::MAX.into();
        at_once.add_all(&[7]);
        at_once.add_narrow(&Narrow::of(&[7, 7]).expect("near 0"));
        let seven = at_once.points().into_iter().find(|point| point.low == 7);
        assert_eq!(seven.map(|point| point.count), Some((1 << 32) + 2));
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
