//! Counts of nanoseconds in a fixed number of buckets: no allocation after it was made, a few instructions a value.
//!
//! Whole numbers below 64 have a bucket each, larger ones share 64 buckets a power of two: a bucket is at most a
//! 64th of its values wide, and its middle at most 0.8 % off. Values from 2³⁸ ns (275 s) on share the last one.
//! Source: G. Tene, HdrHistogram (layout of the buckets).

/// Buckets a power of two, and numbers that have a bucket each.
const SHARED: u64 = 64;
/// Binary digits of [`SHARED`].
const DIGITS: u32 = SHARED.trailing_zeros();
/// Values from here on share the last bucket, in nanoseconds.
const CEILING_NS: u64 = 1 << 38;

/// Number of buckets.
pub const BUCKETS: usize = (38 - DIGITS as usize + 1) << DIGITS;

/// A bucket and the number of values in it.
pub type Bucket = (u16, u32);

/// Counts by bucket. Where a counter is full, all of them are halved: shares stay what they were.
#[derive(Clone, Debug)]
pub(super) struct Histogram(Box<[u32; BUCKETS]>);

impl Histogram {
    /// A histogram without values.
    pub(super) fn new() -> Self {
        let zeros = vec![0_u32; BUCKETS].into_boxed_slice();
        Self(zeros.try_into().expect("as many as asked for"))
    }

    /// Takes a value so many times.
    #[inline]
    pub(super) fn add(&mut self, value: u64, times: u32) {
        let counter = &mut self.0[place(value)];
        match counter.checked_add(times) {
            Some(sum) => *counter = sum,
            None => self.halve(value, times),
        }
    }

    #[cold]
    fn halve(&mut self, value: u64, times: u32) {
        self.0.iter_mut().for_each(|counter| *counter /= 2);
        let counter = &mut self.0[place(value)];
        *counter = counter.saturating_add(times / 2);
    }

    /// The buckets that hold something, in order.
    pub(super) fn buckets(&self) -> Vec<Bucket> {
        let held = |(place, &count): (usize, &u32)| {
            (count > 0).then(|| (u16::try_from(place).unwrap_or(u16::MAX), count))
        };
        self.0.iter().enumerate().filter_map(held).collect()
    }
}

/// The bucket of a value.
#[inline]
fn place(value: u64) -> usize {
    let value = value.min(CEILING_NS - 1);
    let shift = (u64::BITS - value.leading_zeros()).saturating_sub(DIGITS + 1);
    #[expect(clippy::cast_possible_truncation, reason = "at most 2111")]
    let place = (u64::from(shift) * SHARED + (value >> shift)) as usize;
    place
}

/// The middle of the values of a bucket.
pub(super) fn middle(place: u16) -> u64 {
    let place = u64::from(place);
    // A number beyond the last bucket does no harm.
    let shift = (place / SHARED).saturating_sub(1).min(u64::from(u32::BITS) - 1);
    let low = (place - shift * SHARED) << shift;
    low + ((1 << shift) - 1) / 2
}

/// Returns true if these may be the buckets of so many values: each once, in order, none empty.
pub(super) fn are_buckets(buckets: &[Bucket], values: u64) -> bool {
    let ascend = buckets.windows(2).all(|pair| pair[0].0 < pair[1].0);
    let exist = buckets.last().is_none_or(|last| usize::from(last.0) < BUCKETS);
    let sum: u64 = buckets.iter().map(|&(_, count)| u64::from(count)).sum();
    ascend && exist && buckets.iter().all(|bucket| bucket.1 > 0) && sum <= values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_within_a_64th_of_the_middle_of_their_bucket() {
        let mut value = 0_u64;
        let mut last = 0;
        while value < CEILING_NS {
            let at = place(value);
            assert!(at < BUCKETS && at >= last, "{value}");
            last = at;
            let middle = middle(u16::try_from(at).expect("few"));
            assert!(value.abs_diff(middle) <= value / 128 + 1, "{value}: {middle}");
            assert_eq!(place(middle), at, "{value}");
            value += value / 300 + 1;
        }
        assert_eq!(place(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn full_counters_are_halved() {
        let mut histogram = Histogram::new();
        histogram.add(7, u32::MAX - 1);
        histogram.add(9, 1_000_000);
        histogram.add(7, 10);
        assert_eq!(histogram.buckets(), [(7, u32::MAX / 2 + 5), (9, 500_000)]);
    }

    #[test]
    fn what_no_histogram_gives_is_not_taken() {
        let last = u16::try_from(BUCKETS).expect("few");
        for (buckets, values, good) in [
            (&[][..], 0, true),
            (&[(0, 1), (last - 1, 2)], 3, true),
            (&[(0, 1), (last - 1, 2)], 2, false),
            (&[(1, 1), (1, 2)], 9, false),
            (&[(2, 1), (1, 2)], 9, false),
            (&[(2, 0)], 9, false),
            (&[(last, 1)], 9, false),
        ] {
            assert_eq!(are_buckets(buckets, values), good, "{buckets:?}");
        }
    }
}
