//! The plan of a flow, computed again from its description: what a packet should have been.
//!
//! Time and size of packet *k* are a pure function of (seed, flow, *k*), so a log that holds only
//! what arrived still knows what was planned. The plan is walked forward once; the last [`WINDOW`]
//! packets stay at hand for arrivals out of order. A record with a hostile sequence number cannot
//! make it walk for ever: a walk may use [`FREE_STEPS`] steps, and [`STEPS_EACH`] more for each
//! packet asked about. What lies beyond is not known.

use std::collections::VecDeque;

use itg_core::flow::{Flow, FlowError, FlowSpec};
use itg_core::schedule::{Departure, Schedule};
use itg_core::seed::RunSeed;

/// Packets kept behind the furthest one, for arrivals out of order.
pub const WINDOW: usize = 4096;
/// Packets the plan may walk over without being asked about them.
pub const FREE_STEPS: u64 = 1 << 22;
/// Further packets it may walk over for each one it is asked about.
pub const STEPS_EACH: u64 = 64;

/// The planned departures of one flow, asked for by sequence number.
#[derive(Clone, Debug)]
pub struct Plan {
    schedule: Schedule,
    recent: VecDeque<Departure>,
    steps: u64,
}

impl Plan {
    /// The plan of a flow.
    ///
    /// # Errors
    /// A description that cannot be run, such as an empirical distribution whose table is not in
    /// the log.
    pub fn new(spec: &FlowSpec, seed: u64) -> Result<Self, FlowError> {
        let schedule = Flow::resolve(spec.clone(), RunSeed(seed))?.schedule();
        Ok(Self { schedule, recent: VecDeque::new(), steps: FREE_STEPS })
    }

    /// Planned departure of packet `seq`; `None` when the flow ends before it, when it lies too far
    /// back, or too far ahead.
    pub fn at(&mut self, seq: u64) -> Option<Departure> {
        self.steps = self.steps.saturating_add(STEPS_EACH);
        let reached = self.recent.back().map_or(0, |last| last.seq + 1);
        if seq >= reached {
            let ahead = seq - reached;
            if ahead >= self.steps {
                return None;
            }
            let steps = ahead + 1;
            self.steps -= steps;
            for _ in 0..steps {
                let departure = self.schedule.advance()?;
                if self.recent.len() == WINDOW {
                    self.recent.pop_front();
                }
                self.recent.push_back(departure);
            }
            return self.recent.back().copied();
        }
        let oldest = self.recent.front()?.seq;
        let place = usize::try_from(seq.checked_sub(oldest)?).ok()?;
        self.recent.get(place).copied()
    }
}

#[cfg(test)]
mod tests {
    use itg_core::distribution::{Distribution, Unit};
    use itg_core::flow::Stop;
    use proptest::prelude::*;

    use super::*;

    fn spec() -> FlowSpec {
        FlowSpec::new(1)
            .idt(Distribution::parse("exp(1ms)", Unit::Time).expect("a distribution"))
            .size(Distribution::parse("uniform(100,1400)", Unit::Size).expect("a distribution"))
            .packets(20_000)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn agrees_with_the_list(asked in prop::collection::vec(0u64..20_100, 1..200)) {
            let flow = Flow::resolve(spec(), RunSeed(7)).expect("runs");
            let list: Vec<_> = flow.schedule().collect();
            let mut plan = Plan::new(&spec(), 7).expect("runs");
            let mut furthest = 0;
            for seq in asked {
                furthest = seq.min(19_999).max(furthest);
                let got = plan.at(seq);
                match list.get(usize::try_from(seq).expect("small")) {
                    Some(want) if seq + (WINDOW as u64) > furthest => {
                        prop_assert_eq!(got, Some(*want));
                    }
                    _ => prop_assert_eq!(got, None),
                }
            }
        }
    }

    #[test]
    fn hostile_numbers_cost_a_bounded_walk() {
        let endless = spec().stop(Stop::default());
        let mut plan = Plan::new(&endless, 7).expect("runs");
        for seq in [u64::MAX, 1 << 40, FREE_STEPS * 2] {
            assert_eq!(plan.at(seq), None, "seq {seq}");
        }
        assert_eq!(plan.at(3).map(|d| d.seq), Some(3));
    }
}
