//! From trials to what a later run on this host can be held to.

use std::collections::BTreeMap;
use std::fmt;

use itg_core::units::format_duration_ns;
use serde::Serialize;

use super::rates::Trial;

/// A rate counts as reached when less than this share is lost.
pub(super) const FREE_OF_LOSS: f64 = 0.001;

/// Trials of each rate. A later run exceeds the worst of *n* alike with a probability of 1 / (*n* + 1),
/// whatever the distribution: with 20 in less than one of 20.
pub(super) const TRIALS: usize = 20;
/// The promise is this many times what the worst trial showed: the machine is not always as quiet.
const MARGIN: f64 = 2.0;
/// No promise is finer than this: 2 µs.
const FINEST_NS: u64 = 2_000;
/// Lateness within which a packet is exact, for 99 % of the packets: 20 µs.
const EXACT_NS: u64 = 20_000;

/// Lateness that 99 % of the packets do not exceed at a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Precision {
    pub(super) rate_pps: u32,
    pub(super) late_p99_ns: u64,
}

/// Promise of this host.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Promise {
    /// Precision by rate.
    pub(super) precision: Vec<Precision>,
    /// Highest rate that was kept and arrived without loss, in packets a second.
    pub(super) rate_pps: Option<u32>,
}

impl Promise {
    pub(super) fn of(trials: &[Trial]) -> Self {
        let mut worst: BTreeMap<u32, (u64, usize)> = BTreeMap::new();
        for trial in trials.iter().filter(|trial| trial.asked_pps > 0) {
            let (late_ns, count) = worst.entry(trial.asked_pps).or_default();
            *late_ns = trial.lateness_p99_ns.max(*late_ns);
            *count += 1;
        }
        // A rate that was tried once was tried for its loss.
        let repeated = worst.iter().filter(|(_, (_, count))| *count > 1);
        let precision = repeated.map(|(&rate_pps, &(late_ns, _))| Precision {
            rate_pps,
            late_p99_ns: round_up((late_ns as f64 * MARGIN).max(FINEST_NS as f64)),
        });
        let whole = |trial: &&Trial| {
            let asked_pps = f64::from(trial.asked_pps);
            asked_pps > 0.0 && trial.lost < FREE_OF_LOSS && trial.arrived_pps > 0.99 * asked_pps
        };
        Self {
            precision: precision.collect(),
            rate_pps: trials.iter().filter(whole).map(|trial| trial.asked_pps).max(),
        }
    }

    /// The highest rate that is exact, with its precision.
    fn exact(&self) -> Option<&Precision> {
        self.precision.iter().rev().find(|precision| precision.late_p99_ns <= EXACT_NS)
    }
}

/// To two digits.
fn round_up(ns: f64) -> u64 {
    let step = 10f64.powf((ns.max(1.0).log10().floor() - 1.0).max(0.0));
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a length of time")]
    let rounded = ((ns / step).ceil() * step) as u64;
    rounded
}

impl fmt::Display for Promise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.exact() {
            Some(Precision { rate_pps, late_p99_ns }) => {
                let late = format_duration_ns(*late_p99_ns);
                write!(f, "{} kpps exact to {late} at p99", f64::from(*rate_pps) / 1e3)?;
            }
            None => write!(f, "no rate is exact to {} at p99 here", format_duration_ns(EXACT_NS))?,
        }
        match self.rate_pps {
            Some(rate_pps) => write!(f, ", {} kpps in all", rate_pps / 1_000),
            None => f.write_str(", and every rate that was tried lost packets"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trial(asked_pps: u32, lateness_p99_ns: u64, lost: f64) -> Trial {
        Trial { asked_pps, arrived_pps: f64::from(asked_pps), lost, lateness_p99_ns }
    }

    #[test]
    fn the_worst_trial_makes_the_promise() {
        let promise = Promise::of(&[
            trial(1_000, 900, 0.0),
            trial(1_000, 1_700, 0.0),
            trial(50_000, 6_120, 0.0),
            trial(50_000, 100, 0.0),
            trial(100_000, 60_000, 0.0),
            trial(100_000, 61_000, 0.0),
            trial(0, 0, 0.1),
            Trial { arrived_pps: 390_000.0, ..trial(410_000, 900, 0.0) },
            trial(400_000, 900, 0.02),
            trial(360_000, 900, 0.000_5),
        ]);
        let precision: Vec<_> =
            promise.precision.iter().map(|p| (p.rate_pps, p.late_p99_ns)).collect();
        assert_eq!(precision, [(1_000, 3_400), (50_000, 13_000), (100_000, 130_000)]);
        assert_eq!(promise.to_string(), "50 kpps exact to 13us at p99, 360 kpps in all");
    }

    #[test]
    fn a_host_that_can_do_nothing_is_told_so() {
        let promise = Promise::of(&[trial(100, 50_000, 0.5), trial(100, 50_000, 0.5)]);
        assert_eq!(
            promise.to_string(),
            "no rate is exact to 20us at p99 here, and every rate that was tried lost packets"
        );
    }

    #[test]
    fn rounding() {
        for (ns, want) in
            [(1.0, 1), (99.0, 99), (101.0, 110), (12_345.0, 13_000), (13_000.0, 13_000)]
        {
            assert_eq!(round_up(ns), want, "{ns}");
        }
    }
}
