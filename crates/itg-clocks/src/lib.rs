//! Offset of the receiver's clock from the sender's, with an error bound, over time.
//!
//! A two-way probe leaves the sender at `sent` on its clock, reaches the receiver at `received` on the
//! receiver's, is answered at `replied` and comes back at `arrived`. Nothing arrives before it has left:
//!
//! > `replied` − `arrived` ≤ offset ≤ `received` − `sent`.
//!
//! That is all that is assumed of the network: each direction may be as slow, as loaded and as
//! unlike the other as it likes. Of the clocks it is assumed that their rates are at most 1000 ppm apart, and that
//! between two steps they run at steady rates for [`STEADY_NS`] before any instant or for as long behind it: a rate may
//! change at any time, also where a queue hides it. The lines that keep all inequalities of the probes on one side are a
//! polygon, and its extremes at an instant are the best that these can say. The estimate covers what either side allows
//! (never less than half the smallest round trip of each), as far as clocks can get from all other probes at 1000 ppm.
//! A clock was set where no line keeps all inequalities, or a monotonic clock says so: the sides are then fitted by
//! themselves, and between them the bound covers both and what may have been between them.
//!
//! Sources: envelope of the delays by linear programming: Moon, Skelly, Towsley, *Estimation and Removal of Clock
//! Skew from Network Delay Measurements*, INFOCOM 1999; both directions and clock adjustments: Paxson, *On
//! Calibrating Measurements of Packet Transit Times*, SIGMETRICS 1998; a bound of half the round trip: Cristian,
//! *Probabilistic clock synchronization*, Distributed Computing 3, 1989; the probe of smallest round trip among
//! several is kept where there are too many: the clock filter of NTP, RFC 5905, section 10.
//!
//! Costs: for each probe, cuts of two polygons of few corners by up to 96 probes; nothing that a peer or a log can say
//! makes it panic.

mod assemble;
mod fit;
mod model;
mod probe;
mod segment;
mod set;

pub use model::{ClockModel, Step};
pub use probe::{Probe, STEADY_NS};
pub use set::{Dated, Reading, SenderClock, SetClock};

use crate::segment::Trace;

/// Probes that are looked at; of more, the best of each group is.
const MOST_PROBES: usize = 8192;

/// Estimates the offset of the receiver's clock against the sender's from probes in any order; the same
/// probe may come twice (from the logs of both sides). `None` without a probe that makes sense, or when the clocks
/// were set more often than clocks are.
#[must_use]
pub fn estimate(probes: &[Probe]) -> Option<ClockModel> {
    let mut all = probes.to_vec();
    all.sort_unstable();
    all.dedup();
    let given = all.len();
    all.retain(|probe| probe.round_trip_ns().is_some());
    let refused = given - all.len();
    let group = all.len().div_ceil(MOST_PROBES).max(1);
    let best = all.chunks(group).filter_map(|group| group.iter().min_by_key(|p| p.round_trip_ns()));
    let trace = Trace::new(best.copied().collect(), refused);
    assemble::model(&trace)
}

/// The example of the README, compiled and run with the tests of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExample;
