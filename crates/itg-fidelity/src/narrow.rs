//! Few values that lie near 0: what several metrics need of them, computed once for all.
//!
//! Inter-departure times, delays and lateness are mostly below a tenth of a second. Then 32 bits hold each of them
//! and 64 bits the sums of their squares, processors take several at once, and a bucket is found with short words.

/// Most values that are taken at once.
pub const MOST: usize = 128;

/// Values are between −this and this, which is left out: 134 ms in nanoseconds. So many squares fit in 63 bits.
const LIMIT: i64 = 1 << 27;

/// At least one value and at most [`MOST`], all near 0.
#[derive(Clone, Copy, Debug)]
pub struct Narrow {
    values: [i32; MOST],
    len: usize,
    min: i32,
    max: i32,
    sum: i64,
    squares: u64,
}

impl Narrow {
    /// The values in nanoseconds; `None` where there is none, there are too many, or one is far from 0.
    #[inline]
    #[must_use]
    pub fn of(values_ns: &[i64]) -> Option<Self> {
        let mut narrow =
            Self { values: [0; MOST], len: values_ns.len(), min: 0, max: 0, sum: 0, squares: 0 };
        let values = narrow.values.get_mut(..values_ns.len())?;
        let (mut outside, mut sum) = (0, 0i64);
        for (value, &wide) in values.iter_mut().zip(values_ns) {
            outside |= wide.wrapping_add(LIMIT).cast_unsigned();
            sum = sum.wrapping_add(wide);
            #[allow(clippy::cast_possible_truncation, reason = "not used where it does not fit")]
            let short = wide as i32;
            *value = short;
        }
        if outside >= (2 * LIMIT).cast_unsigned() {
            return None;
        }
        let first = *values.first()?;
        let (mut min, mut max, mut squares) = (first, first, 0);
        for &value in values.iter() {
            (min, max) = (min.min(value), max.max(value));
        }
        for value in values.iter() {
            let magnitude = u64::from(value.unsigned_abs());
            squares += magnitude * magnitude;
        }
        (narrow.min, narrow.max, narrow.sum, narrow.squares) = (min, max, sum, squares);
        Some(narrow)
    }

    /// The values.
    #[inline]
    #[must_use]
    pub fn values(&self) -> &[i32] {
        &self.values[..self.len.min(MOST)]
    }

    /// Smallest and largest one.
    #[inline]
    #[must_use]
    pub const fn ends(&self) -> (i32, i32) {
        (self.min, self.max)
    }

    /// Their sum, and that of their squares.
    #[inline]
    #[must_use]
    pub const fn sums(&self) -> (i64, u64) {
        (self.sum, self.squares)
    }

    /// Sum of their magnitudes.
    #[must_use]
    pub fn magnitudes(&self) -> u64 {
        self.values().iter().map(|value| u64::from(value.unsigned_abs())).sum()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn sums_and_ends_are_those_of_the_values(
            values in prop::collection::vec(-LIMIT..LIMIT, 1..=MOST),
        ) {
            let narrow = Narrow::of(&values).expect("near 0");
            let all = || values.iter().copied();
            let squares: u64 = all().map(|value| value.unsigned_abs().pow(2)).sum();
            prop_assert_eq!(narrow.sums(), (all().sum(), squares));
            prop_assert_eq!(narrow.magnitudes(), all().map(i64::unsigned_abs).sum::<u64>());
            prop_assert!(narrow.values().iter().copied().map(i64::from).eq(all()));
            let ends = narrow.ends();
            prop_assert_eq!(Some(i64::from(ends.0)), all().min());
            prop_assert_eq!(Some(i64::from(ends.1)), all().max());
        }

        #[test]
        fn one_far_value_is_enough(
            values in prop::collection::vec(-LIMIT..LIMIT, 0..MOST - 1), far: i64, at: prop::sample::Index,
        ) {
            prop_assume!(!(-LIMIT..LIMIT).contains(&far));
            let mut values = values;
            values.insert(at.index(values.len() + 1), far);
            prop_assert!(Narrow::of(&values).is_none());
        }
    }

    #[test]
    fn as_many_as_fit_and_not_one_more() {
        for (values, good) in [
            (vec![], false),
            (vec![-LIMIT; MOST], true),
            (vec![0; MOST + 1], false),
            (vec![LIMIT], false),
            (vec![i64::MIN], false),
            (vec![i64::MAX], false),
            (vec![1 << 32], false),
        ] {
            assert_eq!(Narrow::of(&values).is_some(), good, "{values:?}");
        }
        assert_eq!(Narrow::of(&[-LIMIT; MOST]).map(|all| all.sums().1), Some(1 << 61));
    }
}
