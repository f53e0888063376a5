//! Values of a comparison: two runs, the flows of both, their figures.

use serde::Serialize;

/// Value of [`Comparison::schema`].
pub const COMPARISON_SCHEMA: u32 = 1;

/// Number of resamples, and the seed of their choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Resampling {
    /// Number of resamples of each run, at least 20 for an interval.
    pub resamples: u32,
    /// Seed of their choice.
    pub seed: u64,
}

impl Default for Resampling {
    fn default() -> Self {
        Self { resamples: 500, seed: 1 }
    }
}

/// Two runs side by side.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// Version of this layout: [`COMPARISON_SCHEMA`].
    pub schema: u32,
    /// Name of the first run.
    pub a: String,
    /// Name of the second run.
    pub b: String,
    /// Resampling that the intervals come from.
    pub resampling: Resampling,
    /// All flows together.
    pub total: Pairing,
    /// Flows of both runs, by number.
    pub flows: Vec<Pairing>,
    /// Numbers of flows that only A has.
    pub only_a: Vec<u32>,
    /// Numbers of flows that only B has.
    pub only_b: Vec<u32>,
    /// Runs whose traffic failed (verdict `fail`): `a`, `b` or both. Gates cannot be judged then.
    pub failed: Vec<&'static str>,
    /// Notices for a reader of the figures.
    pub notices: Vec<String>,
}

/// A flow of both runs, or the totals.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Pairing {
    /// Number of the flow; `None` for the total.
    pub flow: Option<u32>,
    /// The figures.
    pub figures: Vec<Difference>,
    /// The delays as a whole; `None` when one run knows none.
    pub delay: Option<Effect>,
}

/// One figure of both runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Difference {
    /// Its name, as gates use it.
    pub metric: &'static str,
    /// Unit of the values: `ns`, `bit/s`, `packets/s`, `1`.
    pub unit: &'static str,
    /// In A.
    pub a: Option<f64>,
    /// In B.
    pub b: Option<f64>,
    /// B − A.
    pub difference: Option<f64>,
    /// (B − A) / |A|; `None` where A is 0.
    pub relative: Option<f64>,
    /// 95 % interval of B − A; `None` where it cannot be told.
    pub interval: Option<[f64; 2]>,
    /// True if the interval leaves 0 out; `None` without an interval.
    pub clear: Option<bool>,
}

/// Distance of two distributions.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Effect {
    /// Largest distance of the two distribution functions, 0 to 1.
    pub ks: f64,
    /// Cliff's delta: P(B > A) − P(B < A), −1 to 1.
    pub cliffs_delta: f64,
    /// Name of its size: `negligible`, `small`, `medium`, `large`.
    pub magnitude: &'static str,
}

impl Comparison {
    /// As one JSON object over several lines.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self)
            .unwrap_or_else(|error| unreachable!("comparison: {error}"))
    }
}
