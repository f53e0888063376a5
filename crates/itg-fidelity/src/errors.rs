//! Errors of inter-departure times, sent − planned: their mean magnitude and mean square.

use crate::narrow::Narrow;

/// Sums over the errors, which merge exactly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct GapErrors {
    count: u64,
    magnitudes: u128,
    squares: u128,
}

impl GapErrors {
    /// Takes one inter-departure time.
    #[inline]
    pub(crate) fn add(&mut self, planned: i64, sent: i64) {
        let magnitude = u128::from(sent.abs_diff(planned));
        self.count += 1;
        self.magnitudes = self.magnitudes.saturating_add(magnitude);
        self.squares = self.squares.saturating_add(magnitude.saturating_mul(magnitude));
    }

    /// Takes as many planned inter-departure times as actual ones; returns the largest of sent − planned.
    pub(crate) fn add_narrow(&mut self, planned: &Narrow, sent: &Narrow) -> i64 {
        let errors =
            || planned.values().iter().zip(sent.values()).map(|(planned, sent)| sent - planned);
        let largest = errors().fold(i32::MIN, i32::max);
        let mut sums = (0u64, 0u64);
        for error in errors() {
            let magnitude = u64::from(error.unsigned_abs());
            sums = (sums.0 + magnitude, sums.1 + magnitude * magnitude);
        }
        self.count += sent.values().len() as u64;
        self.magnitudes = self.magnitudes.saturating_add(u128::from(sums.0));
        self.squares = self.squares.saturating_add(u128::from(sums.1));
        i64::from(largest)
    }

    /// Takes those of another part.
    pub(crate) const fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.magnitudes = self.magnitudes.saturating_add(other.magnitudes);
        self.squares = self.squares.saturating_add(other.squares);
    }

    /// Number of errors.
    pub(crate) const fn count(&self) -> u64 {
        self.count
    }

    /// Mean magnitude in nanoseconds; 0 when there is none.
    pub(crate) fn mean_ns(&self) -> f64 {
        self.magnitudes as f64 / self.count.max(1) as f64
    }

    /// Root of the mean square in nanoseconds; 0 when there is none.
    pub(crate) fn rms_ns(&self) -> f64 {
        (self.squares as f64 / self.count.max(1) as f64).sqrt()
    }
}
