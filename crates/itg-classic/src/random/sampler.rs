//! D-ITG's distributions, as they are drawn.

use super::generator::Generator;
use super::tables::{Alias, Density, Half, TwoSided, ln_gamma};
use crate::send::Distribution;

/// Entries of the table of a Poisson distribution with a small mean.
const SMALL_POISSON: usize = 40;

/// A distribution that can be drawn. Values are milliseconds or bytes, not rounded and possibly
/// negative.
#[derive(Clone, Debug)]
pub struct Sampler(Kind);

#[derive(Clone, Debug)]
enum Kind {
    Constant(f64),
    Uniform { lo: f64, span: f64 },
    Exponential(f64),
    Pareto { shape: f64, scale: f64 },
    Weibull { shape: f64, scale: f64 },
    Table { table: Half, location: f64, scale: f64 },
    Gamma(Gamma, f64),
    Poisson(Poisson),
    PoissonRate(Poisson),
    Student { gamma: Gamma, normal: Half, location: f64, scale: f64, nu: f64 },
    Discrete(Alias, Vec<f64>),
    Mix(Alias, Vec<Sampler>),
    Listed { values: Vec<f64>, next: usize },
}

/// Gamma with scale 1.
#[derive(Clone, Debug)]
enum Gamma {
    Small { table: Half, power: f64 },
    Exponential,
    Large(Box<TwoSided>),
}

impl Gamma {
    fn new(a: f64) -> Self {
        if a < 1.0 {
            let density = Density::SmallGamma { a, ln: ln_gamma(a + 1.0) };
            Self::Small { table: Half::new(density, false), power: 1.0 / a }
        } else if a > 1.0 {
            let density = Density::Gamma { a, ln: ln_gamma(a) };
            Self::Large(Box::new(TwoSided::new(density, a - 1.0)))
        } else {
            Self::Exponential
        }
    }

    fn draw(&self, generator: &mut Generator) -> f64 {
        match self {
            Self::Small { table, power } => table.draw(generator).powf(*power),
            Self::Exponential => exponential(generator),
            Self::Large(table) => table.draw(generator),
        }
    }
}

#[derive(Clone, Debug)]
enum Poisson {
    Small(Alias),
    Large(Box<TwoSided>),
}

impl Poisson {
    fn new(mean: f64) -> Self {
        if mean > 8.0 {
            let density = Density::Poisson { mean, ln: mean.ln() };
            return Self::Large(Box::new(TwoSided::new(density, mean)));
        }
        let mut probabilities = Vec::with_capacity(SMALL_POISSON);
        let mut p = (-mean).exp();
        for k in 0..SMALL_POISSON {
            probabilities.push(p);
            p *= mean / (k + 1) as f64;
        }
        Self::Small(Alias::new(&probabilities))
    }

    fn draw(&self, generator: &mut Generator) -> f64 {
        match self {
            Self::Small(alias) => alias.draw(generator) as f64,
            Self::Large(table) => table.draw(generator).floor(),
        }
    }
}

fn exponential(generator: &mut Generator) -> f64 {
    -(1.0 - generator.uniform()).ln()
}

impl Sampler {
    /// Prepares a distribution.
    #[must_use]
    pub fn new(distribution: &Distribution) -> Self {
        let table = |density, location, scale| Kind::Table {
            table: Half::new(density, true),
            location,
            scale,
        };
        Self(match *distribution {
            Distribution::Constant(value) => Kind::Constant(value),
            Distribution::Uniform { lo, hi } => Kind::Uniform { lo, span: hi - lo },
            Distribution::Exponential { mean } => Kind::Exponential(mean),
            Distribution::Pareto { shape, scale } => Kind::Pareto { shape, scale },
            Distribution::Weibull { shape, scale } => Kind::Weibull { shape, scale },
            Distribution::Normal { mean, sd } => table(Density::Normal, mean, sd),
            Distribution::Cauchy { location, scale } => table(Density::Cauchy, location, scale),
            Distribution::Gamma { shape, scale } => Kind::Gamma(Gamma::new(shape), scale),
            Distribution::Poisson { mean } => Kind::Poisson(Poisson::new(mean)),
            Distribution::PoissonRate { mean } => Kind::PoissonRate(Poisson::new(mean)),
            Distribution::Student { location, scale, nu } => Kind::Student {
                gamma: Gamma::new(nu / 2.0),
                normal: Half::new(Density::Normal, true),
                location,
                scale,
                nu,
            },
            Distribution::Discrete(ref entries) => {
                let (values, weights): (Vec<_>, Vec<_>) = entries.iter().copied().unzip();
                Kind::Discrete(Alias::new(&weights), values)
            }
            Distribution::Mix(ref parts) => {
                let weights: Vec<_> = parts.iter().map(|(weight, _)| *weight).collect();
                let distributions =
                    parts.iter().map(|(_, distribution)| Self::new(distribution)).collect();
                Kind::Mix(Alias::new(&weights), distributions)
            }
            Distribution::Listed { ref values, first } => {
                Kind::Listed { values: values.clone(), next: first }
            }
        })
    }

    /// Draws the next value.
    pub fn draw(&mut self, generator: &mut Generator) -> f64 {
        match &mut self.0 {
            Kind::Constant(value) => *value,
            Kind::Uniform { lo, span } => *lo + *span * generator.uniform(),
            Kind::Exponential(mean) => *mean * exponential(generator),
            Kind::Pareto { shape, scale } => *scale * generator.uniform().powf(-1.0 / *shape),
            Kind::Weibull { shape, scale } => {
                *scale * (-generator.uniform().ln()).powf(1.0 / *shape)
            }
            Kind::Table { table, location, scale } => *location + *scale * table.draw(generator),
            Kind::Gamma(gamma, scale) => *scale * gamma.draw(generator),
            Kind::Poisson(poisson) => poisson.draw(generator),
            Kind::PoissonRate(poisson) => 1000.0 / poisson.draw(generator),
            Kind::Student { gamma, normal, location, scale, nu } => {
                let g = gamma.draw(generator);
                let z = normal.draw(generator);
                *location + *scale * z * (*nu / (2.0 * g)).sqrt()
            }
            Kind::Discrete(alias, values) => values[alias.draw(generator)],
            Kind::Mix(alias, distributions) => distributions[alias.draw(generator)].draw(generator),
            Kind::Listed { values, next } => match values.get(*next % values.len().max(1)) {
                Some(value) => {
                    *next = (*next + 1) % values.len();
                    *value
                }
                None => 0.0,
            },
        }
    }
}
