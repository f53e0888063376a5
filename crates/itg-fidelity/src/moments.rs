//! Count, extremes, mean and standard deviation of signed nanoseconds, exact enough for any span.
//!
//! The sums of the values and of their squares are exact 128-bit integers, the squares on
//! differences to the first value, so that a clock offset of days costs no digits, and parts merge
//! exactly. Squares of hostile differences (more than 2⁶³ ns) saturate: the deviation is then too
//! small, and finite. The deviation is that of the population, as D-ITG prints it.

use crate::narrow::Narrow;

/// Running moments of a list of values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moments {
    count: u64,
    min: i64,
    max: i64,
    /// The first value: the origin of the sums.
    origin: i64,
    /// Sum of the differences to the origin.
    sum: i128,
    /// Sum of their squares.
    squares: u128,
}

impl Moments {
    /// Takes one value.
    #[inline]
    pub fn add(&mut self, value: i64) {
        if self.count == 0 {
            (self.min, self.max, self.origin) = (value, value, value);
        }
        self.count += 1;
        self.min = self.min.min(value);
        self.max = self.max.max(value);
        // Close together, as they nearly always are, all of this is one multiplication.
        if let Some(moved) = value.checked_sub(self.origin) {
            self.sum += i128::from(moved);
            let square = u128::from(moved.unsigned_abs()) * u128::from(moved.unsigned_abs());
            self.squares = self.squares.saturating_add(square);
        } else {
            let moved = i128::from(value) - i128::from(self.origin);
            self.sum += moved;
            self.squares = self.squares.saturating_add(square_of(moved));
        }
    }

    /// Takes some values: the same as one by one, and sooner where they lie close together.
    pub fn add_all(&mut self, values: &[i64]) {
        /// Squares of differences up to this, so many of them, fit in 64 bits.
        const CLOSE: u64 = 1 << 27;
        const MANY: usize = 512;
        for values in values.chunks(MANY) {
            let origin = if self.count == 0 { values[0] } else { self.origin };
            let (mut min, mut max) = (values[0], values[0]);
            for &value in values {
                (min, max) = (min.min(value), max.max(value));
            }
            if min.abs_diff(origin).max(max.abs_diff(origin)) > CLOSE {
                values.iter().for_each(|&value| self.add(value));
                continue;
            }
            if self.count == 0 {
                (self.min, self.max, self.origin) = (min, max, origin);
            }
            (self.min, self.max) = (self.min.min(min), self.max.max(max));
            self.count += values.len() as u64;
            let (mut sum, mut squares) = (0i64, 0i64);
            for &value in values {
                let moved = value - origin;
                sum += moved;
                squares += moved * moved;
            }
            self.sum += i128::from(sum);
            self.squares = self.squares.saturating_add(u128::from(squares.unsigned_abs()));
        }
    }

    /// Takes some values near 0: the same as one by one, and sooner.
    pub fn add_narrow(&mut self, values: &Narrow) {
        /// Magnitude up to which squares of the origin, so many of them, fit in 127 bits.
        const NEAR: u64 = 1 << 58;
        let all = values.values();
        let Some(&first) = all.first() else { return };
        if self.count == 0 {
            self.origin = i64::from(first);
        } else if self.origin.unsigned_abs() > NEAR {
            return all.iter().for_each(|&value| self.add(i64::from(value)));
        }
        let (min, max) = (i64::from(values.ends().0), i64::from(values.ends().1));
        if self.count == 0 {
            (self.min, self.max) = (min, max);
        }
        (self.min, self.max) = (self.min.min(min), self.max.max(max));
        self.count += all.len() as u64;
        // Σ(x − o) and Σ(x − o)² from Σx and Σx².
        let (count, origin) = (all.len() as i128, i128::from(self.origin));
        let (sum, squares) = (i128::from(values.sums().0), i128::from(values.sums().1));
        self.sum += sum - count * origin;
        let moved = squares + origin * (count * origin - 2 * sum);
        self.squares = self.squares.saturating_add(moved.unsigned_abs());
    }

    /// Takes all values of `other`.
    pub fn merge(&mut self, other: &Self) {
        if other.count == 0 {
            return;
        }
        if self.count == 0 {
            *self = *other;
            return;
        }
        self.count += other.count;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        // Σ(x + δ) and Σ(x + δ)² from Σx and Σx², δ being the way between the origins.
        let way = i128::from(other.origin) - i128::from(self.origin);
        let moved = |times: i128| way.checked_mul(times);
        let count = i128::from(other.count);
        self.sum = self.sum.saturating_add(other.sum);
        self.sum = self.sum.saturating_add(moved(count).unwrap_or(i128::MAX));
        let cross = moved(2).and_then(|twice| twice.checked_mul(other.sum));
        let whole = moved(count).and_then(|sum| sum.checked_mul(way));
        let squares = cross
            .zip(whole)
            .and_then(|(cross, whole)| other.squares.checked_add_signed(cross.checked_add(whole)?));
        self.squares = self.squares.saturating_add(squares.unwrap_or(u128::MAX));
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

    /// Sum of the values.
    #[must_use]
    pub const fn sum(&self) -> i128 {
        self.sum.saturating_add((self.origin as i128).saturating_mul(self.count as i128))
    }

    /// Arithmetic mean; 0 when there is no value.
    #[must_use]
    pub fn mean(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum() as f64 / self.count as f64 }
    }

    /// Standard deviation of the population; 0 when there is no value.
    #[must_use]
    pub fn stddev(&self) -> f64 {
        self.variance().sqrt()
    }

    /// Variance of the population; 0 when there is no value.
    #[must_use]
    pub fn variance(&self) -> f64 {
        if self.count == 0 {
            return 0.0;
        }
        let count = i128::from(self.count);
        // Σ(x − m)² = Σx² − m·(2·Σx − m·n), m being a whole number next to the mean.
        let near = self.sum / count;
        let rest = |near: i128| {
            let twice = self.sum.checked_mul(2)?.checked_sub(near.checked_mul(count)?)?;
            i128::try_from(self.squares).ok()?.checked_sub(near.checked_mul(twice)?)
        };
        let n = self.count as f64;
        match rest(near) {
            Some(about_near) => {
                let off = (self.sum - near * count) as f64 / n;
                (about_near as f64 / n - off * off).max(0.0)
            }
            None => {
                let mean = self.sum as f64 / n;
                (self.squares as f64 / n - mean * mean).max(0.0)
            }
        }
    }
}

fn square_of(value: i128) -> u128 {
    value.unsigned_abs().saturating_mul(value.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn moments(values: &[i64]) -> Moments {
        let mut moments = Moments::default();
        values.iter().for_each(|&v| moments.add(v));
        moments
    }

    /// Two passes over exact integers.
    fn twin(values: &[i64]) -> (f64, f64) {
        let n = values.len() as i128;
        let sum: i128 = values.iter().map(|&v| i128::from(v)).sum();
        // n² times the variance, exactly: n·Σx² − (Σx)², on values moved to the first one.
        let origin = i128::from(values[0]);
        let moved = |v: &i64| i128::from(*v) - origin;
        let (s1, s2) = values
            .iter()
            .fold((0i128, 0i128), |(s1, s2), v| (s1 + moved(v), s2 + moved(v) * moved(v)));
        (sum as f64 / n as f64, ((n * s2 - s1 * s1) as f64).sqrt() / n as f64)
    }

    fn values() -> impl Strategy<Value = Vec<i64>> {
        // Delays under a clock offset of up to 30 years, spread over up to 24 hours.
        (-1_000_000_000_000_000_000i64..1_000_000_000_000_000_000, 1i64..86_400_000_000_000)
            .prop_flat_map(|(offset, spread)| {
                prop::collection::vec((0..spread).prop_map(move |v| offset + v), 1..200)
            })
    }

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() <= 1e-9 * a.abs().max(b.abs()).max(1.0)
    }

    proptest! {
        #[test]
        fn agree_with_two_passes(values in values()) {
            let (mean, stddev) = twin(&values);
            let got = moments(&values);
            prop_assert!(close(got.mean(), mean), "mean {} {}", got.mean(), mean);
            prop_assert!(close(got.stddev(), stddev), "stddev {} {}", got.stddev(), stddev);
            prop_assert_eq!(Some(got.min()), values.iter().copied().min());
            prop_assert_eq!(Some(got.max()), values.iter().copied().max());
        }

        #[test]
        fn some_values_at_once_are_the_same_as_one_by_one(
            far in values(),
            near in prop::collection::vec(-200_000_000i64..200_000_000, 1..1_200),
        ) {
            for values in [&near[..], &far, &[&far[..], &near].concat(), &[&near[..], &far].concat()] {
                let singly = moments(values);
                let mut at_once = Moments::default();
                at_once.add_all(&[]);
                at_once.add_all(&values[..values.len() / 3]);
                for values in values[values.len() / 3..].chunks(100) {
                    match Narrow::of(values) {
                        Some(narrow) => at_once.add_narrow(&narrow),
                        None => at_once.add_all(values),
                    }
                }
                prop_assert_eq!(at_once, singly);
            }
        }

        #[test]
        fn merge_in_any_cut(values in values(), cut in 0usize..200) {
            let cut = cut.min(values.len());
            let mut merged = moments(&values[..cut]);
            merged.merge(&moments(&values[cut..]));
            let whole = moments(&values);
            prop_assert_eq!(merged.count(), whole.count());
            prop_assert!(close(merged.mean(), whole.mean()));
            prop_assert!(close(merged.stddev(), whole.stddev()));
            prop_assert_eq!((merged.min(), merged.max()), (whole.min(), whole.max()));
        }
    }

    #[test]
    fn nothing_is_not_a_number() {
        let none = Moments::default();
        assert_eq!((none.count(), none.min(), none.max()), (0, 0, 0));
        assert!(none.mean().abs() < f64::MIN_POSITIVE && none.stddev().abs() < f64::MIN_POSITIVE);
        let far = moments(&[i64::MIN, i64::MAX, i64::MIN, i64::MAX]);
        assert!(close(far.mean(), -0.5) && far.stddev().is_finite());
    }
}
