//! Values in nanoseconds: their moments and quantiles, and differences of instants.

pub use itg_core::units::signed_difference;

use crate::moments::Moments;
use crate::narrow::{MOST, Narrow};
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
        for values_ns in values_ns.chunks(MOST) {
            if let Some(narrow) = Narrow::of(values_ns) {
                self.add_narrow(&narrow);
            } else {
                self.moments.add_all(values_ns);
                self.quantiles.add_all(values_ns);
            }
        }
    }

    /// Takes some values in nanoseconds.
    #[inline]
    pub fn add_narrow(&mut self, values_ns: &Narrow) {
        self.moments.add_narrow(values_ns);
        self.quantiles.add_narrow(values_ns);
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
