//! Ends of flows, by their plan.

use std::collections::BTreeMap;

use itg_core::rate::{AS_ASKED_PPM, RateChange};
use itg_experiment::Plan;

/// A flow that cannot be sent is given up this long after its last packet was due.
pub(crate) const GIVE_UP_NS: u64 = 1_000_000_000;
/// Flows without a duration, which a changed rate may stretch without end, are waited for no longer than this.
const MOST_RECEIVING_NS: u64 = 24 * 3600 * 1_000_000_000;

/// Due times of the last packets of the flows of a plan as it was made, and the ends of their durations, in nanoseconds
/// from the start of the run.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "times are positive, and saturate"
)]
pub(crate) fn ends_of(plan: &Plan) -> BTreeMap<u32, (u64, Option<u64>)> {
    let estimate = plan.estimate();
    let last = estimate.flows.iter().map(|flow| flow.end_ns as u64);
    let ends = plan.flows.iter().zip(last).map(|(planned, last_ns)| {
        let spec = planned.flow.spec();
        let over_ns = spec.stop.duration_ns.map(|time| spec.start_ns.saturating_add(time));
        (spec.id, (last_ns, over_ns))
    });
    ends.collect()
}

/// Latest due time of the last packet of a flow, in nanoseconds from the start of the run: at the
/// slowest rate that it had it takes so much longer; its duration stays as it is.
pub(crate) fn latest_end_ns(last_ns: u64, over_ns: Option<u64>, changes: &[RateChange]) -> u64 {
    let slowest = changes.iter().map(|change| change.ppm).min().unwrap_or(AS_ASKED_PPM);
    let ppm = u64::from(slowest.clamp(1, AS_ASKED_PPM));
    let stretched_ns = u128::from(last_ns) * u128::from(AS_ASKED_PPM) / u128::from(ppm);
    let stretched_ns = u64::try_from(stretched_ns).unwrap_or(u64::MAX);
    over_ns.map_or(stretched_ns, |over_ns| stretched_ns.min(over_ns.max(last_ns)))
}

/// Time in which packets of a flow may come in, in nanoseconds from the start of the run.
pub(crate) fn received_ns(last_ns: u64, over_ns: Option<u64>, changes: &[RateChange]) -> u64 {
    let end_ns = latest_end_ns(last_ns, over_ns, changes);
    let bounded_ns = if over_ns.is_some() { end_ns } else { end_ns.min(MOST_RECEIVING_NS) };
    bounded_ns.saturating_add(GIVE_UP_NS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slower_flow_ends_later_but_no_later_than_its_duration() {
        let slow = [RateChange { at_ns: 5, ppm: 500_000 }, RateChange { at_ns: 9, ppm: 2_000_000 }];
        for (last, over, changes, want) in [
            (100, None, &[][..], 100),
            (100, None, &slow[..], 200),
            (100, Some(110), &slow[..], 110),
            (100, Some(500), &slow[..], 200),
            (100, Some(110), &slow[1..], 100),
            (u64::MAX, None, &slow[..], u64::MAX),
        ] {
            let got = latest_end_ns(last, over, changes);
            assert_eq!(got, want, "{last} {over:?} {changes:?}");
        }
    }

    #[test]
    fn what_is_received_ends_with_the_plan() {
        let slow = [RateChange { at_ns: 5, ppm: 1 }];
        for (last, over, changes, want) in [
            (100, None, &[][..], 100),
            (100, Some(110), &slow[..], 110),
            (MOST_RECEIVING_NS, None, &slow[..], MOST_RECEIVING_NS),
            (u64::MAX, None, &[][..], MOST_RECEIVING_NS),
            (3 * MOST_RECEIVING_NS, Some(3 * MOST_RECEIVING_NS), &[], 3 * MOST_RECEIVING_NS),
        ] {
            let got = received_ns(last, over, changes);
            assert_eq!(got, want + GIVE_UP_NS, "{last} {over:?} {changes:?}");
        }
    }
}
