//! Rejection from a table of equal-area columns, and draws from a table of probabilities.
//!
//! A column reaches from one point to the next and is as high as the density at its first point,
//! the higher one: a point drawn in it is taken when it lies below the density.

use super::generator::Generator;

/// Most points of a half table.
const HALF: usize = 60;
/// Points of a two-sided table; the last one is the right end.
const POINTS: usize = 121;
/// Exponents below this count as a density of 0.
const LOWEST: f64 = -40.0;

/// ln Γ(x) for x > 0, to about 1e-14. Lanczos' approximation with g = 7 and nine terms (Godfrey).
pub(super) fn ln_gamma(x: f64) -> f64 {
    const G: [f64; 9] = [
        0.999_999_999_999_809_9,
        676.520_368_121_885_1,
        -1_259.139_216_722_402_8,
        771.323_428_777_653_1,
        -176.615_029_162_140_6,
        12.507_343_278_686_905,
        -0.138_571_095_265_720_12,
        9.984_369_578_019_572e-6,
        1.505_632_735_149_311_6e-7,
    ];
    if x < 0.5 {
        // Γ(x) Γ(1 − x) = π / sin(πx)
        let pi = std::f64::consts::PI;
        return (pi / (pi * x).sin()).ln() - ln_gamma(1.0 - x);
    }
    let x = x - 1.0;
    let sum = G[1..].iter().zip(1..).fold(G[0], |sum, (g, i)| sum + g / (x + f64::from(i)));
    let t = x + 7.5;
    0.5 * (2.0 * std::f64::consts::PI).ln() + (x + 0.5) * t.ln() - t + sum.ln()
}

/// `exp(x)`, and 0 where D-ITG takes it for 0.
fn exp(x: f64) -> f64 {
    if x < LOWEST { 0.0 } else { x.exp() }
}

/// A density.
#[derive(Clone, Copy, Debug)]
pub(super) enum Density {
    /// Standard normal.
    Normal,
    /// Standard Cauchy.
    Cauchy,
    /// Gamma with shape `a` below 1, of the variable `x^a`; with ln Γ(a + 1).
    SmallGamma { a: f64, ln: f64 },
    /// Gamma with shape `a` above 1; with ln Γ(a).
    Gamma { a: f64, ln: f64 },
    /// Poisson with a mean above 8, at the whole number below.
    Poisson { mean: f64, ln: f64 },
}

impl Density {
    #[allow(clippy::approx_constant, reason = "the digits D-ITG has")]
    fn at(self, x: f64) -> f64 {
        match self {
            Self::Normal if x.abs() > 8.0 => 0.0,
            Self::Normal => 0.398_942_280 * (-x * x / 2.0).exp(),
            Self::Cauchy if x.abs() > 1e15 => 0.0,
            Self::Cauchy => 0.318_309_886_18 / (1.0 + x * x),
            Self::SmallGamma { a, ln } => exp(-x.powf(1.0 / a) - ln),
            Self::Gamma { .. } if x <= 0.0 => 0.0,
            Self::Gamma { a, ln } => exp((a - 1.0) * x.ln() - x - ln),
            Self::Poisson { .. } if x < 0.0 => 0.0,
            Self::Poisson { mean, ln } => {
                let k = x.floor();
                exp(k * ln - mean - ln_gamma(k + 1.0))
            }
        }
    }
}

/// A number below `count`, from a number below 1.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "below count")]
fn index(u: f64, count: usize) -> usize {
    ((u * count as f64) as usize).min(count - 1)
}

/// A density that falls from 0, perhaps mirrored.
#[derive(Clone, Debug)]
pub(super) struct Half {
    density: Density,
    mirrored: bool,
    points: Vec<(f64, f64)>,
}

impl Half {
    pub(super) fn new(density: Density, mirrored: bool) -> Self {
        let step = if mirrored { 0.01 } else { 0.02 };
        let mut points = Vec::with_capacity(HALF);
        let mut x = 0.0;
        loop {
            let f = density.at(x);
            points.push((x, f));
            if f <= 0.0 || points.len() == HALF {
                return Self { density, mirrored, points };
            }
            x += step / f;
        }
    }

    pub(super) fn draw(&self, generator: &mut Generator) -> f64 {
        let columns = self.points.len() - 1;
        loop {
            let mut u = generator.uniform();
            let minus = self.mirrored && u > 0.5;
            if minus {
                u = 1.0 - u;
            }
            let j = index(if self.mirrored { 2.0 * u } else { u }, columns);
            let ((from, f), (to, next)) = (self.points[j], self.points[j + 1]);
            let x = from + (to - from) * generator.uniform();
            let y = f * generator.uniform();
            if y < next || y < self.density.at(x) {
                return if minus { -x } else { x };
            }
        }
    }
}

/// A density with a mode: it falls to both sides.
#[derive(Clone, Debug)]
pub(super) struct TwoSided {
    density: Density,
    points: [(f64, f64); POINTS],
    /// Index at which the left side starts, at the mode again.
    left: usize,
    /// Number of columns.
    columns: usize,
}

impl TwoSided {
    pub(super) fn new(density: Density, mode: f64) -> Self {
        let mut points = [(0.0, 0.0); POINTS];
        let side = |points: &mut [(f64, f64); POINTS], from: usize, step: f64| {
            let (mut x, mut at) = (mode, from);
            loop {
                let f = density.at(x);
                points[at] = (x, f);
                if f <= 0.0 || at == POINTS - 2 {
                    return at;
                }
                x += step / f;
                at += 1;
            }
        };
        let left = side(&mut points, 0, 0.01);
        points[POINTS - 1] = (points[left].0, 0.0);
        let columns = side(&mut points, left, -0.01);
        Self { density, points, left, columns }
    }

    pub(super) fn draw(&self, generator: &mut Generator) -> f64 {
        loop {
            let j = index(generator.uniform(), self.columns);
            let neighbour = if j + 1 == self.left { POINTS - 1 } else { j + 1 };
            let ((from, f), (to, next)) = (self.points[j], self.points[neighbour]);
            let x = from + (to - from) * generator.uniform();
            let y = f * generator.uniform();
            if y < next || y < self.density.at(x) {
                return x;
            }
        }
    }
}

/// One of `n` things with given probabilities: Walker's alias method, built in D-ITG's way.
#[derive(Clone, Debug)]
pub(super) struct Alias {
    other: Vec<usize>,
    share: Vec<f64>,
}

impl Alias {
    pub(super) fn new(probabilities: &[f64]) -> Self {
        let n = probabilities.len();
        let mut other: Vec<Option<usize>> = vec![None; n];
        let mut share = vec![0.0; n];
        for _ in 0..n {
            let mut least = (0, f64::INFINITY);
            let mut greatest = (0, f64::NEG_INFINITY);
            for i in (0..n).filter(|&i| other[i].is_none()) {
                let rest = probabilities[i] - share[i];
                // Of equal ones the last counts.
                if rest <= least.1 {
                    least = (i, rest);
                }
                if rest >= greatest.1 {
                    greatest = (i, rest);
                }
            }
            other[least.0] = Some(greatest.0);
            let gap = 1.0 / n as f64 - least.1;
            share[greatest.0] += gap;
            share[least.0] = n as f64 * gap;
        }
        Self { other: other.into_iter().map(Option::unwrap_or_default).collect(), share }
    }

    pub(super) fn draw(&self, generator: &mut Generator) -> usize {
        let j = index(generator.uniform(), self.other.len());
        if generator.uniform() < self.share[j] { self.other[j] } else { j }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ln_gamma_is_that_of_factorials() {
        let mut factorial = 0.0;
        for n in 1..100 {
            assert!((ln_gamma(f64::from(n)) - factorial).abs() < 1e-12 * (1.0 + factorial));
            factorial += f64::from(n).ln();
        }
        assert!((ln_gamma(0.5) - std::f64::consts::PI.sqrt().ln()).abs() < 1e-13);
        assert!((ln_gamma(0.25) - 1.288_022_524_698_077).abs() < 1e-13);
    }

    #[test]
    fn alias_keeps_probabilities() {
        let probabilities = [0.5, 0.25, 0.15, 0.1];
        let alias = Alias::new(&probabilities);
        let mut generator = Generator::new(0.3).expect("a good seed");
        let mut counts = [0; 4];
        for _ in 0..40_000 {
            counts[alias.draw(&mut generator)] += 1;
        }
        for (count, probability) in counts.into_iter().zip(probabilities) {
            assert!((f64::from(count) / 40_000.0 - probability).abs() < 0.01, "{counts:?}");
        }
    }
}
