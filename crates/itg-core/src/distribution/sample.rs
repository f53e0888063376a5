//! Prepared samplers: everything that a draw needs is computed once, a draw allocates nothing.
//!
//! rand_distr draws the distributions that it has; constant inter-departure times, tables, mixtures
//! and truncation are here. A mixture chooses its component and draws from it within the words of
//! one attempt. A truncated distribution is drawn again from the words of the next attempt until
//! the value is inside (rejection: L. Devroye, *Non-Uniform Random Variate Generation*, 1986,
//! II.3).

use std::sync::Arc;

use rand::Rng;
use rand_distr::{
    Cauchy, Distribution as _, Exp, Gamma, LogNormal, Normal, Pareto, Poisson, StudentT, Uniform,
    Weibull,
};

use super::{Distribution, DistributionError};
use crate::seed::Stream;

/// Attempts that a packet has room for; see [`crate::seed`].
///
/// If at least 1/16 of the draws is kept, more attempts are needed once in 10²⁸ packets.
const ATTEMPTS_MAX: u32 = 1024;

/// A distribution ready to be drawn from.
#[derive(Clone, Debug)]
pub(super) enum Sampler {
    Constant(Constant),
    Uniform(Uniform<f64>),
    Exp(Exp<f64>),
    Normal(Normal<f64>),
    LogNormal(LogNormal<f64>),
    Pareto(Pareto<f64>),
    Cauchy(Cauchy<f64>),
    Student { location: f64, scale: f64, t: StudentT<f64> },
    Gamma(Gamma<f64>),
    Weibull(Weibull<f64>),
    Poisson { grain: f64, n: Poisson<f64> },
    Table(Arc<[f64]>),
    Discrete { values: Arc<[f64]>, cumulative: Arc<[f64]> },
    Mix { parts: Arc<[Self]>, cumulative: Arc<[f64]> },
    Trunc { inner: Arc<Self>, lo: f64, hi: f64 },
}

/// The place of one packet in its stream, and how often it has been drawn again.
struct Draw<'a> {
    stream: &'a mut Stream,
    k: u64,
    attempt: u32,
}

impl Sampler {
    /// Prepares a distribution whose parameters have been checked.
    pub(super) fn new(distribution: &Distribution) -> Result<Self, DistributionError> {
        Ok(match distribution {
            Distribution::Constant(x) => Self::Constant(Constant::new(*x)),
            Distribution::Uniform { lo, hi } => {
                Self::Uniform(ready(distribution, Uniform::new(*lo, *hi))?)
            }
            Distribution::Exp { mean } => Self::Exp(ready(distribution, Exp::new(1.0 / mean))?),
            Distribution::Normal { mean, sd } => {
                Self::Normal(ready(distribution, Normal::new(*mean, *sd))?)
            }
            Distribution::LogNormal { median, sigma } => {
                Self::LogNormal(ready(distribution, LogNormal::new(median.ln(), *sigma))?)
            }
            Distribution::Pareto { shape, scale } => {
                Self::Pareto(ready(distribution, Pareto::new(*scale, *shape))?)
            }
            Distribution::Cauchy { location, scale } => {
                Self::Cauchy(ready(distribution, Cauchy::new(*location, *scale))?)
            }
            Distribution::Student { location, scale, nu } => {
                let t = ready(distribution, StudentT::new(*nu))?;
                Self::Student { location: *location, scale: *scale, t }
            }
            Distribution::Gamma { shape, scale } => {
                Self::Gamma(ready(distribution, Gamma::new(*shape, *scale))?)
            }
            Distribution::Weibull { shape, scale } => {
                Self::Weibull(ready(distribution, Weibull::new(*scale, *shape))?)
            }
            Distribution::Poisson { mean, grain } => {
                Self::Poisson { grain: *grain, n: ready(distribution, Poisson::new(mean / grain))? }
            }
            Distribution::Empirical { table: Some(table), .. } => Self::Table(Arc::clone(table)),
            Distribution::Empirical { name, .. } => {
                return Err(DistributionError::NotLoaded { name: name.clone() });
            }
            Distribution::Discrete(entries) => Self::Discrete {
                values: entries.iter().map(|(x, _)| *x).collect(),
                cumulative: cumulative(entries.iter().map(|(_, w)| *w)),
            },
            Distribution::Mix(parts) => Self::Mix {
                parts: parts
                    .iter()
                    .map(|(_, distribution)| Self::new(distribution))
                    .collect::<Result<_, _>>()?,
                cumulative: cumulative(parts.iter().map(|(w, _)| *w)),
            },
            Distribution::Trunc { distribution, lo, hi } => {
                Self::Trunc { inner: Arc::new(Self::new(distribution)?), lo: *lo, hi: *hi }
            }
        })
    }

    /// The value of every packet, if it is the same for all.
    pub(super) fn steady(&self) -> Option<u64> {
        match self {
            Self::Constant(Constant { whole, fraction: 0, .. }) => Some(*whole),
            _ => None,
        }
    }

    /// The value of packet `k`, a pure function of the stream and `k`.
    #[inline]
    pub(super) fn sample(&self, stream: &mut Stream, k: u64) -> u64 {
        if let Self::Constant(constant) = self {
            return constant.gap(k);
        }
        stream.at(k, 0);
        let x = self.draw(&mut Draw { stream, k, attempt: 0 });
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "rounded; what is beyond 64 bits becomes the greatest value"
        )]
        let whole = x.round() as u64;
        whole
    }

    fn draw(&self, place: &mut Draw<'_>) -> f64 {
        let rng = &mut *place.stream;
        match self {
            Self::Constant(constant) => constant.x,
            Self::Uniform(distribution) => distribution.sample(rng),
            Self::Exp(distribution) => distribution.sample(rng),
            Self::Normal(distribution) => distribution.sample(rng),
            Self::LogNormal(distribution) => distribution.sample(rng),
            Self::Pareto(distribution) => distribution.sample(rng),
            Self::Cauchy(distribution) => distribution.sample(rng),
            Self::Student { location, scale, t } => location + scale * t.sample(rng),
            Self::Gamma(distribution) => distribution.sample(rng),
            Self::Weibull(distribution) => distribution.sample(rng),
            Self::Poisson { grain, n } => grain * n.sample(rng),
            Self::Table(table) => table[below(rng.next_u64(), table.len())],
            Self::Discrete { values, cumulative } => values[choose(rng.next_u64(), cumulative)],
            Self::Mix { parts, cumulative } => {
                parts[choose(rng.next_u64(), cumulative)].draw(place)
            }
            Self::Trunc { inner, lo, hi } => loop {
                let x = inner.draw(place);
                if *lo <= x && x <= *hi {
                    return x;
                }
                place.again();
            },
        }
    }
}

impl Draw<'_> {
    fn again(&mut self) {
        self.attempt += 1;
        assert!(self.attempt < ATTEMPTS_MAX, "no value within the bounds in {ATTEMPTS_MAX} draws");
        self.stream.at(self.k, self.attempt);
    }
}

fn ready<T, E: std::fmt::Display>(
    distribution: &Distribution,
    made: Result<T, E>,
) -> Result<T, DistributionError> {
    made.map_err(|error| DistributionError::Parameter {
        distribution: distribution.name(),
        name: "parameters",
        value: error.to_string(),
        rule: "(refused by the sampler)",
    })
}

/// A whole number below `n` from 64 random bits (multiply and shift; the bias is below n/2⁶⁴).
fn below(bits: u64, n: usize) -> usize {
    #[allow(clippy::cast_possible_truncation, reason = "the product is below n")]
    let index = ((u128::from(bits) * n as u128) >> 64) as usize;
    index
}

/// Upper ends of the entries' shares of `0..1`.
fn cumulative(weights: impl Iterator<Item = f64>) -> Arc<[f64]> {
    let mut sum = 0.0;
    let mut ends: Vec<f64> = weights
        .map(|weight| {
            sum += weight;
            sum
        })
        .collect();
    ends.iter_mut().for_each(|end| *end /= sum);
    ends.into()
}

/// The entry whose share holds the number made of the upper 53 bits.
fn choose(bits: u64, cumulative: &[f64]) -> usize {
    let u = (bits >> 11) as f64 * (1.0 / (1_u64 << 53) as f64);
    cumulative.partition_point(|end| *end <= u).min(cumulative.len() - 1)
}

/// Inter-departure times of constant length: the sum of the first *k* is `k·x`, rounded, so that no
/// drift builds up.
#[derive(Clone, Copy, Debug)]
pub(super) struct Constant {
    x: f64,
    whole: u64,
    /// The rest in units of 2⁻⁶⁴.
    fraction: u64,
}

impl Constant {
    fn new(x: f64) -> Self {
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "x is from 0 to 1e18, its fraction below 1"
        )]
        let (whole, fraction) = (x.trunc() as u64, (x.fract() * 2_f64.powi(64)) as u64);
        Self { x, whole, fraction }
    }

    /// `round((k + 1)·x) − round(k·x)`.
    #[inline]
    fn gap(self, k: u64) -> u64 {
        if self.fraction == 0 {
            return self.whole;
        }
        let rounded = |k: u128| (k * u128::from(self.fraction) + (1 << 63)) >> 64;
        let k = u128::from(k);
        let step = rounded(k + 1) - rounded(k);
        self.whole + u64::from(step > 0)
    }
}
