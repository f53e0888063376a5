//! Inter-departure times by stamps against the requested ones. Pure.

/// Observation of a run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct GapFigures {
    /// Relative error of the mean rate against the requested one.
    pub(crate) rate_error: f64,
    /// Median and 99th percentile of the errors of inter-departure times, in microseconds.
    pub(crate) gap_p50_us: f64,
    pub(crate) gap_p99_us: f64,
    /// CPU of the sender per wall time.
    pub(crate) cpu: f64,
}

impl GapFigures {
    /// Of stamps in nanoseconds of packets at a constant rate.
    pub(crate) fn of_rate(stamps: &[u64], rate: f64) -> Self {
        let gap = 1e9 / rate;
        let plan: Vec<_> = (0..stamps.len()).map(|i| i as f64 * gap).collect();
        Self::of_plan(stamps, &plan)
    }

    /// Of stamps in nanoseconds of packets that were planned at these times.
    pub(crate) fn of_plan(stamps: &[u64], plan: &[f64]) -> Self {
        let (&[first, .., last], &[begin, .., end]) = (stamps, plan) else {
            return Self { rate_error: -1.0, ..Self::default() };
        };
        let mut errors: Vec<f64> = stamps
            .windows(2)
            .zip(plan.windows(2))
            .map(|(seen, plan)| seen[1].saturating_sub(seen[0]) as f64 - (plan[1] - plan[0]))
            .map(|error| error.abs() / 1e3)
            .collect();
        errors.sort_by(f64::total_cmp);
        let at = |share: usize| errors[(errors.len() - 1) * share / 100];
        let span = last.saturating_sub(first).max(1) as f64;
        Self {
            rate_error: (end - begin) / span - 1.0,
            gap_p50_us: at(50),
            gap_p99_us: at(99),
            cpu: 0.0,
        }
    }
}

/// Greatest distance between the empirical distribution of some values and a given one (Kolmogorov
/// and Smirnov).
pub(crate) fn distance(values: &mut [f64], distribution: impl Fn(f64) -> f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let count = values.len() as f64;
    let mut most = 0.0_f64;
    for (i, &x) in values.iter().enumerate() {
        let expected = distribution(x);
        most = most.max(expected - i as f64 / count).max((i + 1) as f64 / count - expected);
    }
    most
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_are_judged_by_what_was_asked_for() {
        let even: Vec<u64> = (0..101).map(|i| i * 1_000_000).collect();
        let seen = GapFigures::of_rate(&even, 1000.0);
        assert!(seen.rate_error.abs() < 1e-9 && seen.gap_p99_us < 1e-9, "{seen:?}");
        let slow: Vec<u64> = (0..101).map(|i| i * 1_100_000).collect();
        let seen = GapFigures::of_rate(&slow, 1000.0);
        assert!((seen.rate_error + 1.0 / 11.0).abs() < 1e-9, "{seen:?}");
        assert!((seen.gap_p50_us - 100.0).abs() < 1e-9, "{seen:?}");
        assert!(GapFigures::of_rate(&[5], 1000.0).rate_error < -0.9);
        let seen = GapFigures::of_plan(&[100, 1_100, 4_100], &[0.0, 1_000.0, 3_000.0]);
        assert!((seen.gap_p50_us - 0.0).abs() < 1e-9 && seen.rate_error < -0.2, "{seen:?}");
    }

    #[test]
    fn the_distance_of_a_law_from_itself_is_half_a_step() {
        let mut even: Vec<f64> = (0..100).map(|i| (f64::from(i) + 0.5) / 100.0).collect();
        assert!((distance(&mut even, |x| x) - 0.005).abs() < 1e-9);
        let mut constant = vec![0.5; 100];
        assert!((distance(&mut constant, |x| x) - 0.5).abs() < 1e-9);
    }
}
