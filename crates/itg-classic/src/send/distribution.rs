//! Distributions as D-ITG means them, and as the rest of ITG writes them.

use itg_core::distribution::{Distribution as CoreDistribution, Unit};

/// A distribution of inter-departure times or periods (milliseconds) or sizes (bytes).
#[derive(Clone, Debug, PartialEq)]
pub enum Distribution {
    /// Always this value.
    Constant(f64),
    /// Continuous between `lo` and `hi`.
    Uniform {
        /// Lower end.
        lo: f64,
        /// Upper end.
        hi: f64,
    },
    /// Exponential.
    Exponential {
        /// Mean.
        mean: f64,
    },
    /// `scale · u^(−1/shape)`.
    Pareto {
        /// Shape.
        shape: f64,
        /// Smallest value.
        scale: f64,
    },
    /// `scale · (ln 1/u)^(1/shape)`.
    Weibull {
        /// Shape: the second parameter of `-W`.
        shape: f64,
        /// Scale: the first parameter of `-W`.
        scale: f64,
    },
    /// Normal.
    Normal {
        /// Mean.
        mean: f64,
        /// Standard deviation.
        sd: f64,
    },
    /// Cauchy.
    Cauchy {
        /// Median.
        location: f64,
        /// Scale.
        scale: f64,
    },
    /// Gamma.
    Gamma {
        /// Shape.
        shape: f64,
        /// Scale.
        scale: f64,
    },
    /// Poisson: the number itself.
    Poisson {
        /// Mean.
        mean: f64,
    },
    /// 1000 / K for a Poisson number K: the inter-departure time of `-O`. Infinite for K = 0.
    PoissonRate {
        /// Mean of K.
        mean: f64,
    },
    /// `location + scale · T` for Student's T.
    Student {
        /// Median.
        location: f64,
        /// Scale.
        scale: f64,
        /// Degrees of freedom.
        nu: f64,
    },
    /// A value with its probability, each.
    Discrete(Vec<(f64, f64)>),
    /// A distribution with its probability, each.
    Mix(Vec<(f64, Self)>),
    /// The values of a file one after the other, and again from the start.
    Listed {
        /// The values.
        values: Vec<f64>,
        /// Index of the first one.
        first: usize,
    },
}

/// Distance from the mean of a Poisson number that the table of [`Distribution::PoissonRate`] covers, in
/// standard deviations.
const POISSON_REACH: f64 = 8.0;

impl Distribution {
    /// The distribution in ITG's terms: nanoseconds or bytes. Values below 0 and infinite
    /// inter-departure times, which D-ITG has, are for ITG to condition or refuse.
    #[must_use]
    pub fn to_core(&self, unit: Unit) -> CoreDistribution {
        let per = match unit {
            Unit::Time => 1e6,
            Unit::Size => 1.0,
        };
        match *self {
            Self::Constant(value) => CoreDistribution::Constant(value * per),
            Self::Uniform { lo, hi } if lo < hi => {
                CoreDistribution::Uniform { lo: lo * per, hi: hi * per }
            }
            Self::Uniform { lo, .. } => CoreDistribution::Constant(lo * per),
            Self::Exponential { mean } => CoreDistribution::Exp { mean: mean * per },
            Self::Pareto { shape, scale } => CoreDistribution::Pareto { shape, scale: scale * per },
            Self::Weibull { shape, scale } => {
                CoreDistribution::Weibull { shape, scale: scale * per }
            }
            Self::Normal { mean, sd } if sd > 0.0 => {
                CoreDistribution::Normal { mean: mean * per, sd: sd * per }
            }
            Self::Normal { mean, .. } => CoreDistribution::Constant(mean * per),
            Self::Cauchy { location, scale } => {
                CoreDistribution::Cauchy { location: location * per, scale: scale * per }
            }
            Self::Gamma { shape, scale } => CoreDistribution::Gamma { shape, scale: scale * per },
            Self::Poisson { mean } if mean > 0.0 => {
                CoreDistribution::Poisson { mean: mean * per, grain: per }
            }
            Self::Poisson { .. } => CoreDistribution::Constant(0.0),
            Self::PoissonRate { mean } => poisson_rate(mean, per),
            Self::Student { location, scale, nu } => {
                CoreDistribution::Student { location: location * per, scale: scale * per, nu }
            }
            Self::Discrete(ref entries) => CoreDistribution::Discrete(
                entries.iter().map(|(value, p)| (value * per, *p)).collect(),
            ),
            Self::Mix(ref parts) => CoreDistribution::Mix(
                parts.iter().map(|(p, distribution)| (*p, distribution.to_core(unit))).collect(),
            ),
            Self::Listed { ref values, .. } => {
                let mut table: Vec<f64> = values.iter().map(|value| value * per).collect();
                table.sort_by(f64::total_cmp);
                let name = "D-ITG file".to_owned();
                CoreDistribution::Empirical { name, unit, table: Some(table.into()) }
            }
        }
    }
}

/// `1000 / K` on condition that K > 0, as a table of its likely values.
fn poisson_rate(mean: f64, per: f64) -> CoreDistribution {
    let reach = POISSON_REACH * mean.sqrt() + 10.0;
    let (from, to) = ((mean - reach).max(1.0).floor(), (mean + reach).ceil());
    if to - from > itg_core::distribution::ENTRIES_MAX as f64 - 2.0 {
        // So many packets a second that the distribution is as narrow as a constant.
        return CoreDistribution::Constant(1000.0 / mean * per);
    }
    let (mut entries, mut k) = (Vec::new(), from);
    // Weights relative to the greatest one, by p(k+1) = p(k) · mean / (k+1), in logarithms.
    let peak = mean.floor().max(1.0);
    let mut log = {
        let mut log = 0.0;
        let mut at = peak;
        while at > from {
            log -= (mean / at).ln();
            at -= 1.0;
        }
        log
    };
    while k <= to {
        let weight = log.exp();
        if weight > 1e-18 {
            entries.push((1000.0 / k * per, weight));
        }
        k += 1.0;
        log += (mean / k).ln();
    }
    CoreDistribution::Discrete(entries)
}
