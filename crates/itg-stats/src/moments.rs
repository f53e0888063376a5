//! Count, extremes, mean and standard deviation of signed nanoseconds, exact enough for any span.
//!
//! The sum is an exact 128-bit integer; the variance follows Welford (Technometrics 4(3), 1962) on
//! differences to the first value, so that a clock offset of days costs no digits. Parts merge
//! after Chan, Golub and LeVeque (1979). The deviation is that of the population, as D-ITG prints
//! it.

/// Running moments of a list of values.
#[derive(Clone, Copy, Debug, Default)]
pub struct Moments {
    count: u64,
    min: i64,
    max: i64,
    sum: i128,
    /// The first value: the origin of `mean_shifted`.
    shift: i64,
    mean_shifted: f64,
    m2: f64,
}

impl Moments {
    /// Takes one value.
    pub fn add(&mut self, value: i64) {
        if self.count == 0 {
            (self.min, self.max, self.shift) = (value, value, value);
        }
        self.count += 1;
        self.min = self.min.min(value);
        self.max = self.max.max(value);
        self.sum += i128::from(value);
        let shifted = difference(value, self.shift);
        let step = shifted - self.mean_shifted;
        self.mean_shifted += step / self.count as f64;
        self.m2 += step * (shifted - self.mean_shifted);
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
        let (n, m) = (self.count as f64, other.count as f64);
        let step = difference(other.shift, self.shift) + other.mean_shifted - self.mean_shifted;
        self.mean_shifted += step * m / (n + m);
        self.m2 += other.m2 + step * step * n * m / (n + m);
        self.count += other.count;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        self.sum += other.sum;
    }

    /// How many values.
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

    /// Arithmetic mean; 0 when there is no value.
    #[must_use]
    pub fn mean(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum as f64 / self.count as f64 }
    }

    /// Standard deviation of the population; 0 when there is no value.
    #[must_use]
    pub fn stddev(&self) -> f64 {
        if self.count == 0 { 0.0 } else { (self.m2.max(0.0) / self.count as f64).sqrt() }
    }
}

fn difference(a: i64, b: i64) -> f64 {
    (i128::from(a) - i128::from(b)) as f64
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
