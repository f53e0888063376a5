//! Trials: their order, their median and how sure it is. Pure.

/// The order in which `count` settings take their turn in a round: each round starts with another
/// one, and every second round goes backwards, so that drift of the machine meets all alike.
#[must_use]
pub fn order(count: usize, round: usize) -> Vec<usize> {
    let mut order: Vec<_> = (0..count).map(|i| (i + round / 2) % count.max(1)).collect();
    if round % 2 == 1 {
        order.reverse();
    }
    order
}

/// A median with its 95 % interval.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Estimate {
    /// Lower end of the interval.
    pub low: f64,
    /// The median.
    pub mid: f64,
    /// Upper end of the interval.
    pub high: f64,
}

impl Estimate {
    /// The median of some values, and the order statistics that hold the true median between them
    /// with a probability of at least 95 % (distribution-free). Fewer than 6 values cannot give
    /// that: then it is their range.
    #[must_use]
    pub fn of(values: &[f64]) -> Self {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let Some(last) = sorted.len().checked_sub(1) else { return Self::default() };
        let skip = skipped(sorted.len());
        Self { low: sorted[skip], mid: middle(&sorted), high: sorted[last - skip] }
    }

    /// Another unit.
    #[must_use]
    pub fn map(self, change: impl Fn(f64) -> f64) -> Self {
        Self { low: change(self.low), mid: change(self.mid), high: change(self.high) }
    }
}

/// The middle of sorted values.
fn middle(sorted: &[f64]) -> f64 {
    let half = sorted.len() / 2;
    match sorted.len() {
        0 => 0.0,
        n if n.is_multiple_of(2) => f64::midpoint(sorted[half - 1], sorted[half]),
        _ => sorted[half],
    }
}

/// Number of values at either end that may be left out: the largest k with
/// P(Binomial(n, 1/2) ≤ k − 1) ≤ 2.5 %, which is 0 for n < 6.
fn skipped(n: usize) -> usize {
    if n > 1000 {
        // The binomial distribution is as good as normal.
        return normally_skipped(n);
    }
    let mut term = 0.5_f64.powi(i32::try_from(n).unwrap_or(i32::MAX));
    let mut below = 0.0;
    let mut k = 0;
    while k < n / 2 {
        below += term;
        if below > 0.025 {
            break;
        }
        term *= (n - k) as f64 / (k + 1) as f64;
        k += 1;
    }
    // The value of rank k (from 1) bounds the interval.
    k.saturating_sub(1)
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and n / 2")]
fn normally_skipped(n: usize) -> usize {
    let n = n as f64;
    (n / 2.0 - 1.96 * n.sqrt() / 2.0).floor().max(0.0) as usize
}

/// The ratio of pairs of trials, each pair taken in the same round.
#[must_use]
pub fn ratio(of: &[f64], to: &[f64]) -> Estimate {
    // Nothing, were it in one trial, is no yardstick: no bound holds of what is not a number.
    let known = to.iter().all(|to| *to > 0.0);
    let part = |(of, to): (&f64, &f64)| if known { of / to } else { f64::NAN };
    let ratios: Vec<_> = of.iter().zip(to).map(part).collect();
    Estimate::of(&ratios)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_of_many_values_is_narrow_and_no_point() {
        for (n, least, most) in [(1_000, 466, 471), (1_001, 466, 471), (10_000, 4_900, 4_904)] {
            assert!((least..most).contains(&skipped(n)), "{n}: {}", skipped(n));
        }
    }

    #[test]
    fn a_peer_that_did_nothing_is_no_yardstick() {
        let got = ratio(&[5.0, 6.0, 7.0], &[5.0, 0.0, 6.0]).mid;
        assert!(!(got >= 0.9 || got <= 1.3), "{got}");
        assert_eq!(ratio(&[5.0, 6.0, 7.0], &[5.0, 6.0, 7.0]).mid.to_bits(), 1_f64.to_bits());
    }

    #[test]
    fn every_setting_has_one_turn_a_round_and_another_place_in_the_next() {
        for (count, round, want) in [
            (3, 0, vec![0, 1, 2]),
            (3, 1, vec![2, 1, 0]),
            (3, 2, vec![1, 2, 0]),
            (3, 3, vec![0, 2, 1]),
            (1, 5, vec![0]),
            (0, 1, vec![]),
        ] {
            assert_eq!(order(count, round), want, "{count} settings, round {round}");
        }
    }

    #[test]
    fn medians_and_intervals() {
        for (values, low, mid, high) in [
            (vec![], 0.0, 0.0, 0.0),
            (vec![4.0], 4.0, 4.0, 4.0),
            (vec![4.0, 1.0], 1.0, 2.5, 4.0),
            (vec![3.0, 1.0, 2.0, 5.0, 4.0], 1.0, 3.0, 5.0),
            // Tables of the sign test: ranks 1 and 6 of 6, 2 and 9 of 10, 6 and 15 of 20.
            ((1..=6).map(f64::from).collect(), 1.0, 3.5, 6.0),
            ((1..=10).map(f64::from).collect(), 2.0, 5.5, 9.0),
            ((1..=20).rev().map(f64::from).collect(), 6.0, 10.5, 15.0),
            ((1..=50).map(f64::from).collect(), 18.0, 25.5, 33.0),
        ] {
            let got = Estimate::of(&values);
            assert_eq!(got, Estimate { low, mid, high }, "values {values:?}");
        }
    }

    #[test]
    fn a_ratio_compares_trials_of_the_same_round() {
        // The machine became twice as slow in the second round; the ratio did not.
        let got = ratio(&[11.0, 22.0, 11.0], &[10.0, 20.0, 10.0]);
        assert!((got.low - 1.1).abs() < 1e-12 && (got.high - 1.1).abs() < 1e-12, "{got:?}");
    }
}
