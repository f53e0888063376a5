//! Distances between the traffic sent and the requested distribution.
//!
//! The empirical distribution function of *n* values is within ε = √(ln(2/α) / 2n) of the true one
//! with probability 1 − α, for every distribution (Dvoretzky, Kiefer, Wolfowitz 1956; Massart 1990
//! for the constant). So a distance is judged less ε: a true generator is then blamed in at most α
//! of all runs, and a false one as soon as there are packets enough to tell. α is [`FALSE_ALARM`]
//! for each figure.

use serde::Serialize;

use crate::quantiles::Point;

/// Probability with which a true generator is blamed, for each figure that is judged.
pub const FALSE_ALARM: f64 = 1e-3;
/// Its two-sided quantile of the normal distribution.
pub const Z: f64 = 3.290_526_731;
/// Values that a cell of a chi-square test has to expect.
const CELL_MIN: f64 = 5.0;

/// ε of Dvoretzky, Kiefer, Wolfowitz and Massart for `n` values.
#[must_use]
pub fn band(n: u64) -> f64 {
    if n == 0 { 1.0 } else { ((2.0 / FALSE_ALARM).ln() / (2.0 * n as f64)).sqrt().min(1.0) }
}

/// Kolmogorov distance between a sample, in ascending points, and a distribution with a horizontal
/// tolerance τ: supₓ max(F(x − τ) − S(x), S(x) − F(x + τ), 0). Buckets of a histogram widen τ by
/// their own width.
///
/// `cdf` is P(X ≤ x) of the distribution.
#[must_use]
pub fn law_distance(sample: &[Point], tolerance: f64, cdf: impl Fn(f64) -> f64) -> f64 {
    let total = sample.iter().map(|point| point.count).sum::<u64>();
    let mut reached = 0;
    let mut largest = 0.0f64;
    for point in sample {
        let share = |count: u64| count as f64 / total as f64;
        // Just below the point, the sample has not grown yet; the distribution may jump at the
        // point itself.
        let below = cdf((point.low as f64 - tolerance).next_down()) - share(reached);
        reached += point.count;
        let above = share(reached) - cdf(point.high as f64 + tolerance);
        largest = largest.max(below).max(above);
    }
    largest
}

/// A chi-square test of whole numbers against a distribution.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ChiSquare {
    /// Σ (seen − expected)² / expected.
    pub statistic: f64,
    /// Cells less one; cells that expect fewer than 5 values are joined with their neighbours.
    pub degrees: u64,
    /// Value that true generators exceed with probability [`FALSE_ALARM`].
    pub critical: f64,
    /// Size of the effect beyond chance: √(max(0, statistic − critical) / n), as Cohen's w.
    pub effect: f64,
}

/// Tests `counts` (value and how many, ascending) against a distribution; `mass(a, b)` is the
/// probability of the whole numbers from a to b after rounding. `None` where there are fewer than
/// two cells.
#[must_use]
pub fn chi_square(
    counts: &[(u64, u64)],
    (least, greatest): (u64, u64),
    mass: impl Fn(u64, u64) -> f64,
) -> Option<ChiSquare> {
    const CELLS: u64 = 1 << 17;
    if greatest < least || greatest - least > CELLS {
        return None;
    }
    let total = counts.iter().map(|&(_, count)| count).sum::<u64>();
    let n = total as f64;
    let mut counts = counts.iter().peekable();
    let mut cells: Vec<(f64, f64)> = Vec::new();
    let (mut seen, mut expected) = (0u64, 0.0);
    for value in least..=greatest {
        // Values below the distribution go to its first cell.
        while let Some((_, count)) = counts.next_if(|(at, _)| *at <= value) {
            seen += count;
        }
        expected += n * mass(value, value);
        if expected >= CELL_MIN {
            cells.push((seen as f64, expected));
            (seen, expected) = (0, 0.0);
        }
    }
    seen += counts.map(|&(_, count)| count).sum::<u64>();
    // What is left over belongs to the last cell.
    let last = cells.last_mut()?;
    last.0 += seen as f64;
    last.1 += expected;
    let degrees = cells.len() as u64 - 1;
    if degrees == 0 {
        return None;
    }
    let statistic: f64 = cells.iter().map(|(seen, want)| (seen - want).powi(2) / want).sum();
    let critical = critical(degrees);
    let effect = ((statistic - critical).max(0.0) / n).sqrt();
    Some(ChiSquare { statistic, degrees, critical, effect })
}

/// The 1 − [`FALSE_ALARM`] quantile of χ² (Wilson and Hilferty, PNAS 17, 1931): 3 % high at one degree
/// of freedom, less than 1 % from four on.
fn critical(degrees: u64) -> f64 {
    const UPPER: f64 = 3.090_232_306;
    let k = degrees as f64;
    let ninth = 2.0 / (9.0 * k);
    k * (1.0 - ninth + UPPER * ninth.sqrt()).powi(3)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(values: &[i64]) -> Vec<Point> {
        let mut sorted = values.to_vec();
        sorted.sort_unstable();
        sorted.iter().map(|&v| Point { low: v, high: v, count: 1 }).collect()
    }

    #[test]
    fn distances_to_a_law() {
        let uniform = |x: f64| (x / 100.0).clamp(0.0, 1.0);
        let even: Vec<i64> = (0..100).collect();
        for (sample, tolerance, want) in [
            (points(&even), 0.0, 0.01),
            (points(&[0; 4]), 0.0, 1.0),
            (points(&[100; 4]), 0.0, 1.0),
            (points(&[50; 4]), 0.0, 0.5),
            (points(&[50; 4]), 10.0, 0.4),
        ] {
            let got = law_distance(&sample, tolerance, uniform);
            assert!((got - want).abs() < 1e-9, "{got} for {want}");
        }
        // A distribution that jumps is met exactly by a sample that jumps with it, and nearly by
        // one close by.
        let step = |x: f64| f64::from(u8::from(x >= 1_000.0));
        assert!(law_distance(&points(&[1_000; 5]), 0.0, step) < 1e-9);
        assert!(law_distance(&points(&[995, 1_004]), 5.0, step) < 1e-9);
        assert!((law_distance(&points(&[995, 1_004]), 3.0, step) - 0.5).abs() < 1e-9);
    }

    #[test]
    fn critical_values_are_those_of_the_tables() {
        for (degrees, want) in [(1, 10.828), (2, 13.816), (5, 20.515), (10, 29.588), (100, 149.449)]
        {
            let got = critical(degrees);
            assert!((got - want).abs() < 0.035 * want, "{degrees}: {got}, the table says {want}");
        }
    }

    #[test]
    fn chi_square_of_a_die() {
        let fair = |a: u64, b: u64| (b + 1 - a) as f64 / 6.0;
        let counts: Vec<_> = (1..=6).zip([95, 105, 98, 102, 100, 100]).collect();
        let test = chi_square(&counts, (1, 6), fair).expect("six cells");
        assert!((test.statistic - 0.58).abs() < 1e-9 && test.degrees == 5);
        assert!(test.effect < f64::MIN_POSITIVE);
        let loaded: Vec<_> = (1..=6).zip([50, 50, 50, 50, 50, 350]).collect();
        assert!(chi_square(&loaded, (1, 6), fair).expect("six cells").effect > 1.0);
        assert_eq!(chi_square(&[(3, 4)], (1, 6), fair), None, "too few to fill a second cell");
        assert_eq!(chi_square(&[], (0, u64::MAX), fair), None);
    }
}
