//! Changes of a flow's rate while it runs.
//!
//! A flow's plan runs on a clock of its own. From each change on, that clock runs at another speed: what was
//! planned one second behind a change to twice the rate is due half a second behind it, pauses included.
//! Which packets there are, their numbers and their sizes do not change, and what was due before a change
//! stays where it was. So time and size of packet *k* are a pure function of (seed, flow, *k*, changes).

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

/// The factor that means: as asked for in the description.
pub const AS_ASKED_PPM: u32 = 1_000_000;
/// Factors that can be used: a thousandth to a thousand times the rate that was asked for.
pub const FACTORS_PPM: RangeInclusive<u32> = 1_000..=1_000_000_000;
/// Changes of one flow.
pub const MOST_CHANGES: usize = 64;

/// From an instant on, a flow runs at another rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RateChange {
    /// The instant, in nanoseconds from the start that planned times count from.
    pub at_ns: u64,
    /// Millionths of the rate that was asked for in the description, whatever changes came before.
    pub ppm: u32,
}

/// Fault of a list of changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RateChangeError {
    /// Too many.
    #[error("a flow's rate can be changed {MOST_CHANGES} times")]
    TooMany,
    /// Not one after the other.
    #[error("changes of a rate follow one after the other")]
    Order,
    /// A factor that cannot be used.
    #[error("a rate can be changed to 0.001 to 1000 times what was asked for")]
    Factor,
}

/// Checks that a list of changes can be followed.
///
/// # Errors
/// Too many, not in order, or by factors out of [`FACTORS_PPM`].
pub fn check(changes: &[RateChange]) -> Result<(), RateChangeError> {
    if changes.len() > MOST_CHANGES {
        return Err(RateChangeError::TooMany);
    }
    if !changes.is_sorted_by(|a, b| a.at_ns < b.at_ns) {
        return Err(RateChangeError::Order);
    }
    if changes.iter().any(|change| !FACTORS_PPM.contains(&change.ppm)) {
        return Err(RateChangeError::Factor);
    }
    Ok(())
}

/// The changes of a flow's rate as a clock: when what was planned for some time is due.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rates(Vec<Bend>);

/// From here on the clock of the plan runs at another speed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bend {
    due_ns: u64,
    planned_ns: u64,
    ppm: u32,
}

impl Bend {
    /// The time of the plan at a later instant, rounded up: what is planned before it is due before it.
    fn planned_at(self, due_ns: u64) -> u64 {
        let passed = u128::from(due_ns.saturating_sub(self.due_ns)) * u128::from(self.ppm);
        let planned = passed.div_ceil(u128::from(AS_ASKED_PPM));
        self.planned_ns.saturating_add(u64::try_from(planned).unwrap_or(u64::MAX))
    }

    fn due_at(self, planned_ns: u64) -> u64 {
        let passed = u128::from(planned_ns - self.planned_ns) * u128::from(AS_ASKED_PPM);
        let due = passed / u128::from(self.ppm);
        self.due_ns.saturating_add(u64::try_from(due).unwrap_or(u64::MAX))
    }
}

impl Rates {
    /// The clock of these changes, which [`check`] has found good.
    #[must_use]
    pub fn new(changes: &[RateChange]) -> Self {
        let mut bends: Vec<Bend> = Vec::with_capacity(changes.len());
        let mut last = Bend { due_ns: 0, planned_ns: 0, ppm: AS_ASKED_PPM };
        for &RateChange { at_ns, ppm } in changes {
            last = Bend { due_ns: at_ns, planned_ns: last.planned_at(at_ns), ppm };
            bends.push(last);
        }
        Self(bends)
    }

    /// Returns true if there are no changes.
    #[must_use]
    pub(crate) fn none(&self) -> bool {
        self.0.is_empty()
    }

    /// Instant at which a packet planned for this time is due; both in nanoseconds from the same
    /// start.
    #[must_use]
    pub fn due_at(&self, planned_ns: u64) -> u64 {
        let bend = self.0.iter().rev().find(|bend| bend.planned_ns <= planned_ns);
        bend.map_or(planned_ns, |bend| bend.due_at(planned_ns))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn time_runs_faster_and_slower() {
        let change = |at_ns, ppm| RateChange { at_ns, ppm };
        let rates =
            Rates::new(&[change(100, 2_000_000), change(200, 500_000), change(300, AS_ASKED_PPM)]);
        for (planned, due) in [
            (0, 0),
            (99, 99),
            (100, 100),
            (102, 101),
            (298, 199),
            (300, 200),
            (301, 202),
            (350, 300),
            (360, 310),
        ] {
            assert_eq!(rates.due_at(planned), due, "planned for {planned}");
        }
        assert_eq!(Rates::default().due_at(u64::MAX), u64::MAX);
        assert_eq!(rates.due_at(u64::MAX), u64::MAX - 50);
    }

    #[test]
    fn what_cannot_be_followed_is_refused() {
        let change = |at_ns, ppm| RateChange { at_ns, ppm };
        for (changes, want) in [
            (vec![], Ok(())),
            (vec![change(0, 1_000), change(1, 1_000_000_000)], Ok(())),
            (vec![change(5, 1_000), change(5, 2_000)], Err(RateChangeError::Order)),
            (vec![change(5, 999)], Err(RateChangeError::Factor)),
            (vec![change(5, 0)], Err(RateChangeError::Factor)),
            ((0..65).map(|at| change(at, 1_000)).collect(), Err(RateChangeError::TooMany)),
        ] {
            assert_eq!(check(&changes), want, "{changes:?}");
        }
    }

    proptest! {
        /// A change moves nothing that was due before it, and everything else behind it, in order.
        #[test]
        fn a_change_leaves_the_past_alone(
            gaps in prop::collection::vec((1u64..5_000_000, 1_000u32..20_000_000), 1..8),
            planned in prop::collection::vec(0u64..60_000_000, 2..60),
        ) {
            let mut at_ns = 0;
            let changes: Vec<RateChange> = gaps
                .into_iter()
                .map(|(gap, ppm)| {
                    at_ns += gap;
                    RateChange { at_ns, ppm }
                })
                .collect();
            check(&changes).expect("drawn so");
            let (last, before) = changes.split_last().expect("one at least");
            let (old, new) = (Rates::new(before), Rates::new(&changes));
            let mut planned = planned;
            planned.sort_unstable();
            for pair in planned.windows(2) {
                prop_assert!(new.due_at(pair[0]) <= new.due_at(pair[1]));
            }
            for planned in planned {
                let (was, is) = (old.due_at(planned), new.due_at(planned));
                if was < last.at_ns {
                    prop_assert_eq!(was, is);
                } else {
                    prop_assert!(is >= last.at_ns);
                }
            }
        }
    }
}
