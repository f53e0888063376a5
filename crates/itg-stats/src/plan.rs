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
