//! Values in nanoseconds: their moments and quantiles, and differences of instants.

use crate::moments::Moments;
use crate::quantiles::Quantiles;

/// Moments and quantiles of the same values.
#[derive(Clone, Debug, Default)]
pub struct SampleDistribution {
    moments: Moments,
    quantiles: Quantiles,
}

impl SampleDistribution {
    /// Takes one value in nanoseconds.
    #[inline]
    pub fn add(&mut self, value_ns: i64) {
        self.moments.add(value_ns);
        self.quantiles.add(value_ns);
    }

    /// Takes some values in nanoseconds: the same as one by one, and sooner.
    pub fn add_all(&mut self, values_ns: &[i64]) {
        self.moments.add_all(values_ns);
        self.quantiles.add_all(values_ns);
    }

    /// Takes all values of `other`.
    pub fn merge(&mut self, other: &Self) {
        self.moments.merge(&other.moments);
        self.quantiles.merge(&other.quantiles);
    }

    /// Count, extremes, mean and deviation.
    #[must_use]
    pub const fn moments(&self) -> &Moments {
        &self.moments
    }

    /// Quantiles.
    #[must_use]
    pub const fn quantiles(&self) -> &Quantiles {
        &self.quantiles
    }
}

/// Signed difference of two instants in nanoseconds, kept within 64 bits (292 years).
#[must_use]
#[inline]
pub const fn signed_difference(later: u64, earlier: u64) -> i64 {
    let difference = later.wrapping_sub(earlier).cast_signed();
    match later >= earlier {
        true if difference < 0 => i64::MAX,
        false if difference >= 0 => i64::MIN,
        _ => difference,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn differences_are_those_of_whole_numbers(later: u64, earlier: u64) {
            let whole = i128::from(later) - i128::from(earlier);
            let kept = whole.clamp(i64::MIN.into(), i64::MAX.into());
            prop_assert_eq!(i128::from(signed_difference(later, earlier)), kept);
        }
    }

    #[test]
    fn differences_are_signed_and_bounded() {
        for (later, earlier, want) in [
            (5, 3, 2),
            (3, 5, -2),
            (0, u64::MAX, i64::MIN),
            (u64::MAX, 0, i64::MAX),
            (1 << 63, 0, i64::MAX),
        ] {
            assert_eq!(signed_difference(later, earlier), want, "{later} - {earlier}");
        }
    }
}
