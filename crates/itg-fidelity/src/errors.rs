//! Errors of inter-departure times, sent − planned: their mean magnitude and mean square.

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

    /// Takes at most 128 of them: the same as one by one, and sooner where the errors are small.
    pub(crate) fn add_all(&mut self, planned: &[i64], sent: &[i64]) {
        /// Squares of errors up to this, so many of them, fit in 64 bits.
        const SMALL: u64 = 1 << 28;
        debug_assert!(planned.len() <= 128, "sums of more squares may not fit");
        let errors = || planned.iter().zip(sent).map(|(planned, sent)| sent.abs_diff(*planned));
        if errors().fold(0, u64::max) >= SMALL {
            planned.iter().zip(sent).for_each(|(planned, sent)| self.add(*planned, *sent));
            return;
        }
        let sums = errors().fold((0u64, 0u64), |(magnitudes, squares), error| {
            (magnitudes + error, squares + error * error)
        });
        self.count += planned.len() as u64;
        self.magnitudes = self.magnitudes.saturating_add(u128::from(sums.0));
        self.squares = self.squares.saturating_add(u128::from(sums.1));
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
