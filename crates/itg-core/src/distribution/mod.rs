//! Distributions of inter-departure times, packet sizes and ON/OFF periods.
//!
//! A [`Distribution`] is the requested distribution; [`Distribution::resolve`] checks it against its use and gives
//! a [`Resolved`] distribution that can be sampled at any packet number. All values are real
//! numbers of nanoseconds or bytes; a draw is rounded to a whole one when it is sampled.
//!
//! Distributions are written as `name(values)`, see [`Distribution::parse`]. Distribution functions are
//! those of statrs, draws those of rand_distr: two independent implementations, compared by the
//! tests. Moments are closed forms (N. L. Johnson, S. Kotz, N. Balakrishnan, *Continuous Univariate
//! Distributions*, 2nd edition, 1994/95), but for one integral of Student's distribution.

mod error;
mod moments;
mod parse;
mod resolve;
mod sample;
mod text;

use std::sync::Arc;

pub use error::DistributionError;
pub use resolve::{KEPT_SHARE_MIN, MAX_GAP_WITHOUT_MEAN, Resolved};
pub use text::{as_size, as_time};

/// Greatest value of a parameter, in nanoseconds (31 years) or bytes.
pub const VALUE_MAX: f64 = 1e18;
/// Deepest nesting of distributions within distributions.
pub const DEPTH_MAX: usize = 16;
/// Most entries of a `discrete` or `mix` distribution.
pub const ENTRIES_MAX: usize = 10_000;
/// Most values of an `empirical` table.
pub const TABLE_MAX: usize = 10_000_000;

/// Quantity that the values of a distribution are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Unit {
    /// Times, in nanoseconds.
    Time,
    /// Sizes, in bytes.
    Size,
}

/// A distribution of times (ns) or sizes (bytes).
///
/// Parameters that are values are between 0 and [`VALUE_MAX`]; shapes are plain numbers.
#[derive(Clone, Debug, PartialEq)]
pub enum Distribution {
    /// `constant(x)`: always `x`. Long runs of inter-departure times are exact: packet *k* is due
    /// at `k·x`, rounded.
    Constant(f64),
    /// `uniform(lo, hi)`: continuous between `lo` and `hi`.
    Uniform {
        /// Lower end.
        lo: f64,
        /// Upper end, above `lo`.
        hi: f64,
    },
    /// `exp(mean)`: `P(X > x) = e^(−x/mean)`.
    Exp {
        /// Mean, above 0.
        mean: f64,
    },
    /// `normal(mean, sd)`.
    Normal {
        /// Mean.
        mean: f64,
        /// Standard deviation, above 0.
        sd: f64,
    },
    /// `lognormal(median, sigma)`: `ln X` is normal with mean `ln median` and deviation `sigma`.
    LogNormal {
        /// Median, above 0.
        median: f64,
        /// Deviation of `ln X`, above 0 and at most 10.
        sigma: f64,
    },
    /// `pareto(shape, scale)`: `P(X > x) = (scale/x)^shape` for `x ≥ scale`; no finite mean for
    /// `shape ≤ 1`.
    Pareto {
        /// Shape, 0.05 to 10⁶.
        shape: f64,
        /// Smallest value, above 0.
        scale: f64,
    },
    /// `cauchy(location, scale)`: no mean.
    Cauchy {
        /// Median.
        location: f64,
        /// Half the distance between the quartiles, above 0.
        scale: f64,
    },
    /// `student(location, scale, nu)`: `location + scale·T` with Student's *T* of `nu` degrees of
    /// freedom; no mean for `nu ≤ 1`.
    Student {
        /// Median.
        location: f64,
        /// Scale, above 0.
        scale: f64,
        /// Degrees of freedom, 0.05 to 10⁶.
        nu: f64,
    },
    /// `gamma(shape, scale)`: mean `shape·scale`.
    Gamma {
        /// Shape, 0.05 to 10⁶.
        shape: f64,
        /// Scale, above 0.
        scale: f64,
    },
    /// `weibull(shape, scale)`: `P(X > x) = e^(−(x/scale)^shape)`.
    Weibull {
        /// Shape, 0.05 to 10⁶.
        shape: f64,
        /// Scale, above 0.
        scale: f64,
    },
    /// `poisson(mean, grain)`: `grain` times a Poisson number with mean `mean/grain`, at most 10⁶.
    Poisson {
        /// Mean, above 0.
        mean: f64,
        /// Step between values, above 0: when not written, the unit of `mean` (1 ms in
        /// `poisson(10ms)`) for times and one byte for sizes.
        grain: f64,
    },
    /// `discrete(value:weight, …)`: each value with a probability proportional to its weight.
    Discrete(Vec<(f64, f64)>),
    /// `mix(weight:distribution, …)`: one of the distributions, chosen with a probability proportional to
    /// its weight.
    Mix(Vec<(f64, Self)>),
    /// `empirical(FILE)`: any line of the file with equal probability.
    Empirical {
        /// Name of the file as it was written.
        name: String,
        /// Quantity that its values are.
        unit: Unit,
        /// The values in ascending order; `None` until [`Distribution::load`].
        table: Option<Arc<[f64]>>,
    },
    /// `trunc(distribution, lo, hi)`: the distribution on condition that `lo ≤ X ≤ hi` (drawn again until it
    /// holds).
    Trunc {
        /// The distribution that is truncated.
        distribution: Box<Self>,
        /// Smallest value; a whole number or −∞.
        lo: f64,
        /// Greatest value, above `lo`; a whole number or +∞.
        hi: f64,
    },
}

impl Distribution {
    /// The name under which it is written.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Constant(_) => "constant",
            Self::Uniform { .. } => "uniform",
            Self::Exp { .. } => "exp",
            Self::Normal { .. } => "normal",
            Self::LogNormal { .. } => "lognormal",
            Self::Pareto { .. } => "pareto",
            Self::Cauchy { .. } => "cauchy",
            Self::Student { .. } => "student",
            Self::Gamma { .. } => "gamma",
            Self::Weibull { .. } => "weibull",
            Self::Poisson { .. } => "poisson",
            Self::Discrete(_) => "discrete",
            Self::Mix(_) => "mix",
            Self::Empirical { .. } => "empirical",
            Self::Trunc { .. } => "trunc",
        }
    }

    /// Names of the files that [`Distribution::load`] must be given, in the order of the text.
    #[must_use]
    pub fn files(&self) -> Vec<&str> {
        match self {
            Self::Empirical { name, .. } => vec![name],
            Self::Mix(parts) => {
                parts.iter().flat_map(|(_, distribution)| distribution.files()).collect()
            }
            Self::Trunc { distribution, .. } => distribution.files(),
            _ => Vec::new(),
        }
    }

    /// The least and the greatest possible value.
    pub(crate) fn support(&self) -> (f64, f64) {
        let span = |values: &mut dyn Iterator<Item = (f64, f64)>| {
            values.fold((f64::INFINITY, f64::NEG_INFINITY), |all, one| {
                (all.0.min(one.0), all.1.max(one.1))
            })
        };
        match self {
            Self::Constant(x) => (*x, *x),
            Self::Uniform { lo, hi } => (*lo, *hi),
            Self::Pareto { scale, .. } => (*scale, f64::INFINITY),
            Self::Normal { .. } | Self::Cauchy { .. } | Self::Student { .. } => {
                (f64::NEG_INFINITY, f64::INFINITY)
            }
            Self::Exp { .. }
            | Self::LogNormal { .. }
            | Self::Gamma { .. }
            | Self::Weibull { .. }
            | Self::Poisson { .. } => (0.0, f64::INFINITY),
            Self::Discrete(entries) => span(&mut entries.iter().map(|(x, _)| (*x, *x))),
            Self::Mix(parts) => {
                span(&mut parts.iter().map(|(_, distribution)| distribution.support()))
            }
            Self::Empirical { table, .. } => {
                span(&mut table.iter().flat_map(|t| t.iter()).map(|x| (*x, *x)))
            }
            Self::Trunc { distribution, lo, hi } => {
                let inner = distribution.support();
                (inner.0.max(*lo), inner.1.min(*hi))
            }
        }
    }

    /// Checks every parameter.
    pub(crate) fn check(&self, unit: Unit) -> Result<(), DistributionError> {
        let of = Parameters { distribution: self.name(), unit };
        match self {
            Self::Constant(x) => of.value("value", *x),
            Self::Uniform { lo, hi } => {
                of.value("lo", *lo)?;
                of.value("hi", *hi)?;
                if lo < hi {
                    Ok(())
                } else {
                    of.refuse("hi", text::value(*hi, unit), "must be above lo")
                }
            }
            Self::Exp { mean } => of.positive("mean", *mean),
            Self::Normal { mean, sd } => {
                of.value("mean", *mean).and_then(|()| of.positive("sd", *sd))
            }
            Self::LogNormal { median, sigma } => {
                of.positive("median", *median)?;
                if *sigma > 0.0 && *sigma <= 10.0 {
                    Ok(())
                } else {
                    of.refuse("sigma", sigma.to_string(), "must be a number above 0 and at most 10")
                }
            }
            Self::Cauchy { location, scale } => {
                of.value("location", *location).and_then(|()| of.positive("scale", *scale))
            }
            Self::Student { location, scale, nu } => {
                of.value("location", *location)?;
                of.positive("scale", *scale).and_then(|()| of.shape("nu", *nu))
            }
            Self::Pareto { shape: a, scale }
            | Self::Gamma { shape: a, scale }
            | Self::Weibull { shape: a, scale } => {
                of.shape("shape", *a).and_then(|()| of.positive("scale", *scale))
            }
            Self::Poisson { mean, grain } => {
                of.positive("mean", *mean)?;
                of.positive("grain", *grain)?;
                if mean / grain <= 1e6 {
                    Ok(())
                } else {
                    let rule = "must be at most 1000000 grains: use a larger grain, or normal";
                    of.refuse("mean", text::value(*mean, unit), rule)
                }
            }
            Self::Discrete(entries) => {
                check_weights(of.distribution, entries.iter().map(|(_, w)| *w))?;
                entries.iter().try_for_each(|(x, _)| of.value("value", *x))
            }
            Self::Mix(parts) => {
                check_weights(of.distribution, parts.iter().map(|(w, _)| *w))?;
                parts.iter().try_for_each(|(_, distribution)| distribution.check(unit))
            }
            Self::Empirical { unit: own, .. } if *own != unit => {
                of.refuse("values", format!("{own:?}").to_lowercase(), "are of the wrong kind here")
            }
            Self::Empirical { .. } => Ok(()),
            Self::Trunc { distribution: inner, lo, hi } => {
                of.whole("lo", *lo)?;
                of.whole("hi", *hi)?;
                if lo >= hi || lo.is_nan() || hi.is_nan() || *hi <= 0.0 || *lo == f64::INFINITY {
                    return of.refuse("hi", text::value(*hi, unit), "must be above lo and above 0");
                }
                inner.check(unit)
            }
        }
    }
}

/// Parameters of a distribution, each with the range of its values.
#[derive(Clone, Copy)]
struct Parameters {
    distribution: &'static str,
    unit: Unit,
}

impl Parameters {
    fn refuse(
        self,
        name: &'static str,
        value: String,
        rule: &'static str,
    ) -> Result<(), DistributionError> {
        Err(DistributionError::Parameter { distribution: self.distribution, name, value, rule })
    }

    /// A time or a size.
    fn value(self, name: &'static str, x: f64) -> Result<(), DistributionError> {
        match x {
            x if (0.0..=VALUE_MAX).contains(&x) => Ok(()),
            x if x < 0.0 => self.refuse(name, text::value(x, self.unit), "must not be negative"),
            _ => {
                let rule = "must be at most 1e18 ns (31 years) or bytes";
                self.refuse(name, text::value(x, self.unit), rule)
            }
        }
    }

    fn positive(self, name: &'static str, x: f64) -> Result<(), DistributionError> {
        self.value(name, x)?;
        if x > 0.0 {
            Ok(())
        } else {
            self.refuse(name, text::value(x, self.unit), "must be above 0")
        }
    }

    /// A number without a unit.
    fn shape(self, name: &'static str, x: f64) -> Result<(), DistributionError> {
        match x {
            x if (0.05..=1e6).contains(&x) => Ok(()),
            _ => self.refuse(name, x.to_string(), "must be a number from 0.05 to 1000000"),
        }
    }

    /// A limit of values.
    fn whole(self, name: &'static str, x: f64) -> Result<(), DistributionError> {
        if x.is_infinite() || x.fract() == 0.0 {
            return Ok(());
        }
        self.refuse(name, text::value(x, self.unit), "must be a whole number of ns or bytes")
    }
}

fn check_weights(
    distribution: &'static str,
    weights: impl ExactSizeIterator<Item = f64>,
) -> Result<(), DistributionError> {
    if weights.len() == 0 || weights.len() > ENTRIES_MAX {
        return Err(DistributionError::Entries { distribution, got: weights.len() });
    }
    for weight in weights {
        if !(weight > 0.0 && weight <= 1e15) {
            return Err(DistributionError::Parameter {
                distribution,
                name: "weight",
                value: weight.to_string(),
                rule: "must be a number above 0 and at most 1e15",
            });
        }
    }
    Ok(())
}
