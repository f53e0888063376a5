//! The mean of a few independent measurements, and how far it may be from the truth.
//!
//! The interval is Student's: mean ± t(n − 1, 0.975) · s / √n, which covers the true mean with 95 %
//! confidence when the measurements are independent and about normal. Source: "Student" (W. S. Gosset),
//! *The probable error of a mean*, Biometrika 6 (1908); NIST/SEMATECH e-Handbook, 1.3.5.2.

use statrs::distribution::{ContinuousCDF as _, Normal, StudentsT};

/// A mean with its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mean95 {
    /// Number of values.
    pub n: usize,
    /// Their mean.
    pub mean: f64,
    /// Their standard deviation, with n − 1 below; `None` for one value.
    pub stddev: Option<f64>,
    /// Half the width of the interval; `None` for one value.
    pub half: Option<f64>,
    /// The smallest value.
    pub min: f64,
    /// The largest value.
    pub max: f64,
}

impl Mean95 {
    /// Of these values; `None` when there are none, or one of them is no finite number.
    #[must_use]
    pub fn of(values: &[f64]) -> Option<Self> {
        if values.is_empty() || !values.iter().all(|value| value.is_finite()) {
            return None;
        }
        let n = values.len();
        let mean = values.iter().map(|value| value / n as f64).sum::<f64>();
        let min = values.iter().copied().fold(f64::INFINITY, f64::min);
        let max = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let stddev = (n > 1).then(|| {
            let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
            (squares / (n - 1) as f64).sqrt()
        });
        let half = stddev.and_then(|s| Some(t_975(n - 1)? * s / (n as f64).sqrt()));
        Some(Self { n, mean, stddev, half, min, max })
    }

    /// The interval.
    #[must_use]
    pub fn interval(&self) -> Option<[f64; 2]> {
        self.half.map(|half| [self.mean - half, self.mean + half])
    }

    /// Half the width as a share of the mean's size; `None` without an interval, and where the mean is 0 but
    /// the values are not.
    #[must_use]
    pub fn relative(&self) -> Option<f64> {
        let half = self.half?;
        if half <= 0.0 {
            return Some(0.0);
        }
        Some(half / self.mean.abs()).filter(|share| share.is_finite())
    }
}

/// The 97.5 % quantile of Student's t with so many degrees of freedom; `None` for 0.
fn t_975(freedom: usize) -> Option<f64> {
    let distribution = StudentsT::new(0.0, 1.0, freedom as f64).ok()?;
    Some(distribution.inverse_cdf(0.975)).filter(|t| t.is_finite())
}

/// Factor by which the half widths of so many 95 % intervals grow for all of them together to cover with 95 %:
/// z(1 − 0.025 / count) / z(0.975), 1 for one interval.
///
/// Supposes that the figures are about normal, and nothing of how they depend on each other. Source: Bonferroni's
/// inequality; Dunn, *Multiple comparisons among means*, JASA 56 (1961).
#[must_use]
pub fn joint_factor(count: usize) -> f64 {
    let normal = Normal::standard();
    normal.inverse_cdf(1.0 - 0.025 / count.max(1) as f64) / normal.inverse_cdf(0.975)
}

#[cfg(test)]
mod tests {
    use rand::RngExt as _;

    use super::*;
    use crate::seed::RunSeed;

    #[test]
    fn joint_intervals_are_as_wide_as_tables_of_the_normal_distribution_say() {
        // z(0.975) = 1.959964, z(0.995) = 2.575829 for 5, z(0.9995) = 3.290527 for 50.
        for (count, want) in [(1, 1.0), (5, 2.575_829 / 1.959_964), (50, 3.290_527 / 1.959_964)] {
            assert!((joint_factor(count) - want).abs() < 1e-6, "{count}");
        }
    }

    #[test]
    fn the_quantile_is_that_of_the_tables() {
        // NIST/SEMATECH e-Handbook of Statistical Methods, 1.3.6.7.2, column 0.975.
        for (freedom, want) in [
            (1, 12.706),
            (2, 4.303),
            (3, 3.182),
            (4, 2.776),
            (5, 2.571),
            (9, 2.262),
            (10, 2.228),
            (29, 2.045),
            (30, 2.042),
            (100, 1.984),
        ] {
            let got = t_975(freedom).expect("a quantile");
            assert!((got - want).abs() < 6e-4, "{freedom}: {got}, {want} in the table");
        }
        assert_eq!(t_975(0), None);
    }

    /// The density of t, added up by Simpson's rule: an independent way to the same probability. The
    /// constant follows from Γ(x + 1) = x Γ(x), Γ(1) = 1, Γ(1/2) = √π.
    fn covered(freedom: u32, t: f64) -> f64 {
        let gamma_of_halves = |halves: u32| {
            let (mut at, mut product) = (f64::from(halves) / 2.0, 1.0);
            while at > 1.0 {
                at -= 1.0;
                product *= at;
            }
            if at < 0.75 { product * std::f64::consts::PI.sqrt() } else { product }
        };
        let v = f64::from(freedom);
        let front = gamma_of_halves(freedom + 1)
            / gamma_of_halves(freedom)
            / (v * std::f64::consts::PI).sqrt();
        let density = |x: f64| front * (1.0 + x * x / v).powf(-(v + 1.0) / 2.0);
        let steps = 20_000;
        let width = t / f64::from(steps);
        let sum: f64 = (0..=steps)
            .map(|k| {
                let weight = match k {
                    0 => 1.0,
                    k if k == steps => 1.0,
                    k if k % 2 == 1 => 4.0,
                    _ => 2.0,
                };
                weight * density(f64::from(k) * width)
            })
            .sum();
        2.0 * sum * width / 3.0
    }

    #[test]
    fn the_density_between_the_quantiles_is_95_percent() {
        for freedom in [1, 2, 3, 4, 7, 12, 29, 49] {
            let t = t_975(freedom as usize).expect("a quantile");
            let share = covered(freedom, t);
            assert!((share - 0.95).abs() < 1e-6, "{freedom}: {share}");
        }
    }

    #[test]
    fn a_worked_example() {
        // 4, 5, 6: s = 1, t(2) = 4.3027, half = 4.3027 / √3.
        let mean = Mean95::of(&[4.0, 5.0, 6.0]).expect("a mean");
        assert!((mean.mean - 5.0).abs() < 1e-12);
        assert!((mean.stddev.expect("s") - 1.0).abs() < 1e-12);
        assert!((mean.half.expect("half") - 4.302_652_73 / 3f64.sqrt()).abs() < 1e-6);
        assert!((mean.relative().expect("relative") - 0.496_827).abs() < 1e-5);
        assert_eq!((mean.n, mean.min, mean.max), (3, 4.0, 6.0));
    }

    #[test]
    fn what_cannot_be_told_is_not() {
        assert_eq!(Mean95::of(&[]), None);
        assert_eq!(Mean95::of(&[1.0, f64::NAN]), None);
        let one = Mean95::of(&[3.0]).expect("a mean");
        assert_eq!(
            (one.stddev, one.half, one.interval(), one.relative()),
            (None, None, None, None)
        );
        let same = Mean95::of(&[0.0; 4]).expect("a mean");
        assert_eq!((same.half, same.relative()), (Some(0.0), Some(0.0)));
        let around_zero = Mean95::of(&[-1.0, 1.0]).expect("a mean");
        assert_eq!(around_zero.relative(), None, "a share of 0 says nothing");
    }

    #[test]
    fn intervals_cover_the_truth_as_often_as_they_say() {
        let mut rng = RunSeed(11).named("coverage");
        let trials = 4000;
        let normal = rand_distr::Normal::new(10.0, 3.0).expect("a distribution");
        let covered = (0..trials)
            .filter(|_| {
                let values: Vec<f64> = (0..5).map(|_| rng.sample(normal)).collect();
                let [low, high] = Mean95::of(&values).and_then(|m| m.interval()).expect("known");
                (low..=high).contains(&10.0)
            })
            .count();
        // Four standard deviations of a binomial share around 95 %.
        let share = covered as f64 / f64::from(trials);
        assert!((share - 0.95).abs() < 0.014, "{share}");
    }
}
