//! Probabilities and moments of distributions.
//!
//! Everything follows from the partial moments `∫ (x − c)^n dF(x)`, n = 0, 1, 2, over an interval: a
//! truncated distribution is the same integral over a shorter interval, divided by its probability.
//! Each distribution is `location + scale·Z`, and [`standard`] has the closed forms for `Z`.

use statrs::distribution::{Cauchy, ContinuousCDF, Exp, Gamma, LogNormal, Normal, Pareto, Weibull};
use statrs::function::beta::beta_reg;
use statrs::function::gamma::{gamma_lr, gamma_ur, ln_gamma};

use super::Distribution;

/// Partial moments about a point: probability, first, second.
#[derive(Clone, Copy, Debug, Default)]
struct Partial {
    p: f64,
    m1: f64,
    m2: f64,
}

impl Partial {
    fn atom(weight: f64, x: f64) -> Self {
        Self { p: weight, m1: weight * x, m2: weight * x * x }
    }

    fn add(self, other: Self) -> Self {
        Self { p: self.p + other.p, m1: self.m1 + other.m1, m2: self.m2 + other.m2 }
    }

    fn times(self, factor: f64) -> Self {
        Self { p: self.p * factor, m1: self.m1 * factor, m2: self.m2 * factor }
    }
}

impl Distribution {
    /// The mean, in ns or bytes: infinite or NaN (undefined) for distributions without one, NaN for
    /// a table that has not been loaded.
    #[must_use]
    pub fn mean(&self) -> f64 {
        let all = self.partial(f64::NEG_INFINITY, f64::INFINITY, 0.0);
        let mean = all.m1 / all.p;
        if mean.is_nan() {
            return mean;
        }
        // The last bits may be wrong when little is left of a wide distribution.
        let (least, greatest) = self.support();
        mean.max(least).min(greatest)
    }

    /// The variance, in ns² or bytes²: infinite or NaN (undefined) for distributions without one.
    #[must_use]
    pub fn variance(&self) -> f64 {
        let mean = self.mean();
        if !mean.is_finite() {
            return mean;
        }
        let all = self.partial(f64::NEG_INFINITY, f64::INFINITY, mean);
        let rest = all.m1 / all.p;
        (all.m2 / all.p - rest * rest).max(0.0)
    }

    /// `P(X ≤ x)`, with `x` in ns or bytes; of the distribution before rounding to whole values.
    ///
    /// Costs a special function, or a pass over the entries of `discrete` and `mix`.
    #[must_use]
    pub fn cdf(&self, x: f64) -> f64 {
        self.mass(f64::NEG_INFINITY, x)
    }

    /// `P(a ≤ X ≤ b)`.
    pub(super) fn mass(&self, a: f64, b: f64) -> f64 {
        if a > b {
            return 0.0;
        }
        let between = |x: f64| a <= x && x <= b;
        match self {
            Self::Constant(x) => f64::from(u8::from(between(*x))),
            Self::Uniform { lo, hi } => {
                let at = |x: f64| ((x - lo) / (hi - lo)).clamp(0.0, 1.0);
                at(b) - at(a)
            }
            Self::Exp { mean } => span(Exp::new(1.0 / mean), a, b),
            Self::Normal { mean, sd } => span(Normal::new(*mean, *sd), a, b),
            Self::LogNormal { median, sigma } => span(LogNormal::new(median.ln(), *sigma), a, b),
            Self::Pareto { shape, scale } => span(Pareto::new(*scale, *shape), a, b),
            Self::Cauchy { location, scale } => span(Cauchy::new(*location, *scale), a, b),
            Self::Student { location, scale, nu } => {
                student_mass(*nu, (a - location) / scale, (b - location) / scale)
            }
            // In units of the scale, so that no power of it overflows.
            Self::Gamma { shape, scale } => span(Gamma::new(*shape, 1.0), a / scale, b / scale),
            Self::Weibull { shape, scale } => span(Weibull::new(*shape, 1.0), a / scale, b / scale),
            Self::Poisson { mean, grain } => {
                let (first, last) = grains(*grain, a, b);
                poisson(mean / grain, first, last)
            }
            Self::Discrete(entries) => {
                let all: f64 = entries.iter().map(|(_, w)| w).sum();
                let inside: f64 = entries.iter().filter(|(x, _)| between(*x)).map(|(_, w)| w).sum();
                inside / all
            }
            Self::Empirical { table: None, .. } => f64::NAN,
            Self::Empirical { table: Some(table), .. } => {
                let inside = entries_between(table, a, b).len();
                count(inside) / count(table.len())
            }
            Self::Mix(parts) => {
                let all: f64 = parts.iter().map(|(w, _)| w).sum();
                parts.iter().map(|(w, distribution)| w / all * distribution.mass(a, b)).sum()
            }
            Self::Trunc { distribution, lo, hi } => {
                distribution.mass(a.max(*lo), b.min(*hi)) / distribution.mass(*lo, *hi)
            }
        }
    }

    /// Partial moments about `c` over `a ≤ x ≤ b`.
    fn partial(&self, a: f64, b: f64, c: f64) -> Partial {
        if a > b {
            return Partial::default();
        }
        let between = |x: f64| a <= x && x <= b;
        let (location, scale) = match self {
            Self::Constant(x) if between(*x) => return Partial::atom(1.0, x - c),
            Self::Constant(_) => return Partial::default(),
            Self::Discrete(entries) => {
                let all: f64 = entries.iter().map(|(_, w)| w).sum();
                let inside = entries.iter().filter(|(x, _)| between(*x));
                let atoms = inside.map(|(x, w)| Partial::atom(*w, x - c));
                return atoms.fold(Partial::default(), Partial::add).times(1.0 / all);
            }
            Self::Empirical { table: None, .. } => {
                return Partial { p: f64::NAN, m1: f64::NAN, m2: f64::NAN };
            }
            Self::Empirical { table: Some(table), .. } => {
                let atoms = entries_between(table, a, b).iter().map(|x| Partial::atom(1.0, x - c));
                let sum = atoms.fold(Partial::default(), Partial::add);
                return sum.times(1.0 / count(table.len()));
            }
            Self::Mix(parts) => {
                let all: f64 = parts.iter().map(|(w, _)| w).sum();
                let parts = parts
                    .iter()
                    .map(|(w, distribution)| distribution.partial(a, b, c).times(w / all));
                return parts.fold(Partial::default(), Partial::add);
            }
            Self::Trunc { distribution, lo, hi } => {
                let inside = distribution.partial(a.max(*lo), b.min(*hi), c);
                return inside.times(1.0 / distribution.mass(*lo, *hi));
            }
            Self::Uniform { lo, hi } => (*lo, hi - lo),
            Self::Exp { mean } => (0.0, *mean),
            Self::Normal { mean, sd } => (*mean, *sd),
            Self::LogNormal { median, .. } => (0.0, *median),
            Self::Cauchy { location, scale } | Self::Student { location, scale, .. } => {
                (*location, *scale)
            }
            Self::Pareto { scale, .. }
            | Self::Gamma { scale, .. }
            | Self::Weibull { scale, .. } => (0.0, *scale),
            Self::Poisson { grain, .. } => (0.0, *grain),
        };
        let p = self.mass(a, b);
        let (z1, z2) = standard(self, (a - location) / scale, (b - location) / scale, p);
        let d = location - c;
        let m1 = d * p + scale * z1;
        // An infinite second moment must not meet the infinity of the first with another sign.
        let m2 = if z2.is_infinite() {
            f64::INFINITY
        } else {
            d * d * p + 2.0 * d * scale * z1 + scale * scale * z2
        };
        Partial { p, m1, m2 }
    }
}

/// `∫ z dF` and `∫ z² dF` over `a ≤ z ≤ b` for the standard form of a distribution, where
/// `p = ∫ dF`.
fn standard(distribution: &Distribution, a: f64, b: f64, p: f64) -> (f64, f64) {
    match distribution {
        Distribution::Uniform { .. } => {
            let (a, b) = (a.clamp(0.0, 1.0), b.clamp(0.0, 1.0));
            ((b * b - a * a) / 2.0, (b * b * b - a * a * a) / 3.0)
        }
        Distribution::Exp { .. } => {
            // −d/dz of (z + 1)e^−z and (z² + 2z + 2)e^−z
            let first = |z: f64| if z.is_infinite() { 0.0 } else { (z + 1.0) * (-z).exp() };
            let second =
                |z: f64| if z.is_infinite() { 0.0 } else { (z * (z + 2.0) + 2.0) * (-z).exp() };
            let (a, b) = (a.max(0.0), b.max(0.0));
            (first(a) - first(b), second(a) - second(b))
        }
        Distribution::Normal { .. } => {
            let density = |z: f64| (-z * z / 2.0).exp() / std::f64::consts::TAU.sqrt();
            let edge = |z: f64| if z.is_infinite() { 0.0 } else { z * density(z) };
            (density(a) - density(b), p + edge(a) - edge(b))
        }
        Distribution::LogNormal { sigma, .. } => {
            let normal = Normal::standard();
            let moment = |n: f64| {
                let at = |z: f64| normal.cdf(z.max(0.0).ln() / sigma - n * sigma);
                (n * n * sigma * sigma / 2.0).exp() * (at(b) - at(a))
            };
            (moment(1.0), moment(2.0))
        }
        Distribution::Pareto { shape, .. } if b > 1.0 => {
            let (a, l) = (a.max(1.0), (b / a.max(1.0)).ln());
            let moment = |n: f64| {
                let q = n - shape;
                // ∫ shape·z^(q−1) dz = shape·a^q·(e^(ql) − 1)/q, which is shape·l for q = 0
                shape * a.powf(q) * if q == 0.0 { l } else { (q * l).exp_m1() / q }
            };
            (moment(1.0), moment(2.0))
        }
        Distribution::Pareto { .. } => (0.0, 0.0),
        Distribution::Cauchy { .. } => {
            let square = |z: f64| 1.0 + z * z;
            let first = (square(b) / square(a)).ln() / std::f64::consts::TAU;
            (first, (b - a) / std::f64::consts::PI - p)
        }
        Distribution::Student { nu, .. } => student(*nu, a, b, p),
        Distribution::Gamma { shape, .. } => {
            let moment = |k: f64| lower_gamma(k, b) - lower_gamma(k, a);
            (shape * moment(shape + 1.0), shape * (shape + 1.0) * moment(shape + 2.0))
        }
        Distribution::Weibull { shape, .. } => {
            // Z^shape is exponential
            let (a, b) = (a.max(0.0).powf(*shape), b.max(0.0).powf(*shape));
            let moment = |n: f64| {
                let k = 1.0 + n / shape;
                ln_gamma(k).exp() * (lower_gamma(k, b) - lower_gamma(k, a))
            };
            (moment(1.0), moment(2.0))
        }
        Distribution::Poisson { mean, grain } => {
            // E[N; A ≤ N ≤ B] = λP(A − 1 ≤ N ≤ B − 1), E[N(N − 1); …] = λ²P(A − 2 ≤ N ≤ B − 2)
            let lambda = mean / grain;
            let (first, last) = grains(1.0, a, b);
            let z1 = lambda * poisson(lambda, first - 1.0, last - 1.0);
            (z1, lambda * lambda * poisson(lambda, first - 2.0, last - 2.0) + z1)
        }
        Distribution::Constant(_)
        | Distribution::Discrete(_)
        | Distribution::Empirical { .. }
        | Distribution::Mix(_)
        | Distribution::Trunc { .. } => {
            unreachable!("distributions of atoms and parts have no standard form")
        }
    }
}

/// `P(a ≤ T ≤ b)` of Student's distribution, from the middle or from the tail, whichever is more
/// exact (statrs itself knows only the tail and loses half the digits near the median).
fn student_mass(nu: f64, a: f64, b: f64) -> f64 {
    let square = |z: f64| (z * z).min(f64::MAX / 4.0);
    // between 0 and |z|, and beyond |z|
    let inner = |z: f64| beta_reg(0.5, nu / 2.0, square(z) / (nu + square(z))) / 2.0;
    let outer = |z: f64| beta_reg(nu / 2.0, 0.5, nu / (nu + square(z))) / 2.0;
    if a <= 0.0 && b >= 0.0 {
        return inner(a) + inner(b);
    }
    let (near, far) = (a.abs().min(b.abs()), a.abs().max(b.abs()));
    if near > 1.0 { outer(near) - outer(far) } else { inner(far) - inner(near) }
}

/// Student's distribution: density `c·(1 + z²/ν)^(−(ν+1)/2)`.
fn student(nu: f64, a: f64, b: f64, p: f64) -> (f64, f64) {
    let density_0 = (ln_gamma(nu.midpoint(1.0)) - ln_gamma(nu / 2.0)).exp()
        / (nu * std::f64::consts::PI).sqrt();
    let q = (1.0 - nu) / 2.0;
    // ∫ z(1 + z²/ν)^(q−1) dz = (ν/2)·(u^q − 1)/q with u = 1 + z²/ν
    let first = |z: f64| {
        let log_u = (z * z / nu).ln_1p();
        nu / 2.0 * if q == 0.0 { log_u } else { (q * log_u).exp_m1() / q }
    };
    let z1 = density_0 * (first(b) - first(a));
    let unbounded = a.is_infinite() || b.is_infinite();
    let z2 = if nu <= 2.0 && unbounded {
        f64::INFINITY
    } else if unbounded || nu > 3.0 {
        // z² = ν(u − 1), and u times the density is a multiple of the density for ν − 2
        let less = nu - 2.0;
        let shrink = (less / nu).sqrt();
        let inner = student_mass(less, a * shrink, b * shrink);
        nu * ((nu - 1.0) / less * inner - p)
    } else {
        // z = √ν·sinh t: smooth, and short even for the longest tail
        let root = nu.sqrt();
        let integrand = |t: f64| t.sinh().powi(2) * t.cosh().powf(-nu);
        density_0 * nu * root * simpson(integrand, (a / root).asinh(), (b / root).asinh())
    };
    (z1, z2)
}

/// Simpson's rule in steps of at most 1/100.
fn simpson(f: impl Fn(f64) -> f64, a: f64, b: f64) -> f64 {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most 10^5")]
    let pairs = ((b - a) * 50.0).ceil().clamp(1.0, 1e5) as u32;
    let h = (b - a) / f64::from(2 * pairs);
    let at = |i: u32| f(a + h * f64::from(i));
    let sum: f64 = (0..pairs).map(|i| at(2 * i) + 4.0 * at(2 * i + 1) + at(2 * i + 2)).sum();
    sum * h / 3.0
}

/// `P(a ≤ X ≤ b)` of a continuous distribution; from the upper tail where that is more exact.
fn span<D: ContinuousCDF<f64, f64>, E>(distribution: Result<D, E>, a: f64, b: f64) -> f64 {
    let Ok(distribution) = distribution else { return f64::NAN };
    let below = |x: f64| match x {
        f64::INFINITY => 1.0,
        f64::NEG_INFINITY => 0.0,
        x => distribution.cdf(x),
    };
    let above = |x: f64| match x {
        f64::INFINITY => 0.0,
        f64::NEG_INFINITY => 1.0,
        x => distribution.sf(x),
    };
    let (low, high) = (below(a), above(b));
    if low > 0.5 { above(a) - high } else { below(b) - low }
}

/// The least and the greatest whole number of grains in `a..=b`.
fn grains(grain: f64, a: f64, b: f64) -> (f64, f64) {
    ((a / grain).ceil(), (b / grain).floor())
}

/// `P(first ≤ N ≤ last)` of a Poisson number with mean `lambda`.
fn poisson(lambda: f64, first: f64, last: f64) -> f64 {
    let below = |n: f64| match n {
        n if n < 0.0 => 0.0,
        f64::INFINITY => 1.0,
        n => gamma_ur(n + 1.0, lambda),
    };
    let above = |n: f64| match n {
        n if n < 0.0 => 1.0,
        f64::INFINITY => 0.0,
        n => gamma_lr(n + 1.0, lambda),
    };
    if first > last {
        0.0
    } else if first > lambda {
        above(first - 1.0) - above(last)
    } else {
        below(last) - below(first - 1.0)
    }
}

/// Regularised lower incomplete gamma function for any `x`.
fn lower_gamma(k: f64, x: f64) -> f64 {
    if x <= 0.0 {
        0.0
    } else if x.is_infinite() {
        1.0
    } else {
        gamma_lr(k, x)
    }
}

fn entries_between(sorted: &[f64], a: f64, b: f64) -> &[f64] {
    let first = sorted.partition_point(|x| *x < a);
    let last = sorted.partition_point(|x| *x <= b);
    &sorted[first..last.max(first)]
}

fn count(n: usize) -> f64 {
    n as f64
}
