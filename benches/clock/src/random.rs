//! Draws of the cases, from the project's named streams.

use itg_core::seed::RunSeed;
use itg_core::streams::unit;

/// A stream of numbers.
pub(super) struct Random(Box<dyn FnMut() -> f64>);

impl Random {
    /// The stream of a case.
    pub(super) fn of(seed: u64, kind: &str, case: u64) -> Self {
        let mut stream = RunSeed(seed).named(&format!("clock {kind} {case}"));
        Self(Box::new(move || unit(&mut stream)))
    }

    pub(super) fn unit(&mut self) -> f64 {
        (self.0)()
    }

    pub(super) fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit()
    }

    /// Uniform in the logarithm.
    pub(super) fn scale(&mut self, low: f64, high: f64) -> f64 {
        self.between(low.ln(), high.ln()).exp()
    }

    pub(super) fn happens(&mut self, share: f64) -> bool {
        self.unit() <= share
    }

    pub(super) fn sign(&mut self) -> f64 {
        if self.happens(0.5) { -1.0 } else { 1.0 }
    }

    pub(super) fn exponential(&mut self, mean: f64) -> f64 {
        -mean * self.unit().ln()
    }

    /// A whole number below `bound`.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "small and positive"
    )]
    pub(super) fn below(&mut self, bound: usize) -> usize {
        ((self.unit() * bound as f64) as usize).min(bound - 1)
    }
}
