//! Offset of the receiver's clock from the sender's, with an error bound, over time.
//!
//! A two-way probe leaves the sender at `sent` on its clock, reaches the receiver at `received` on the
//! receiver's, is answered at `replied` and comes back at `arrived`. Nothing arrives before it has left:
//!
//! > `replied` − `arrived` ≤ offset ≤ `received` − `sent`.
//!
//! That is all that is assumed of the network: each direction may be as slow, as loaded and as
//! unlike the other as it likes. Of the clocks it is assumed that between two steps they run at steady rates
//! over [`WINDOW_NS`]. Then the lines that keep all inequalities of a window are a polygon, and its extremes at
//! an instant are the best that these probes can say: the estimate is their middle, the bound half their distance
//! (never less than half the smallest round trip). Where no line keeps all of them, a clock was set or changed its
//! rate; the sides are then fitted by themselves, and between them the bound covers both.
//!
//! Sources: envelope of the delays by linear programming: Moon, Skelly, Towsley, *Estimation and Removal of Clock
//! Skew from Network Delay Measurements*, INFOCOM 1999; both directions and clock adjustments: Paxson, *On
//! Calibrating Measurements of Packet Transit Times*, SIGMETRICS 1998; a bound of half the round trip: Cristian,
//! *Probabilistic clock synchronization*, Distributed Computing 3, 1989; the probe of smallest round trip among
//! several is kept where there are too many: the clock filter of NTP, RFC 5905, section 10.
//!
//! Costs: a few cuts of a polygon of few corners for each probe and window; nothing that a peer or a log can say
//! makes it panic.

mod assemble;
mod fit;
mod model;
mod segment;

pub use model::{ClockModel, Step};

use segment::Trace;

/// Time for which two clocks are taken to run at steady rates: 64 s.
pub const WINDOW_NS: u64 = 64_000_000_000;
/// Clocks are not as steady as that: for each second to the nearest probe the bound grows by 100 ns.
const WANDER: f64 = 100.0;
/// A change of the real-time clock against the monotonic one that is taken for a step: 10 µs.
const JUMP_NS: u64 = 10_000;
/// Probes that are looked at; of more, the best of each group is.
const MOST_PROBES: usize = 8192;
/// Stretches beyond which clocks are not clocks.
const MOST_PIECES: usize = 128;
/// A probe that took longer is of no use: an hour.
const LONGEST_NS: u64 = 3_600_000_000_000;

/// The stamps of one probe and its answer, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Probe {
    /// `CLOCK_MONOTONIC` of the sender when the probe left: the order of the probes, and where the sender's
    /// clock was set.
    pub sender_monotonic: u64,
    /// The probe left, Unix time of the sender.
    pub sent: u64,
    /// The probe came, Unix time of the receiver.
    pub received: u64,
    /// The answer left, Unix time of the receiver.
    pub replied: u64,
    /// The answer came, Unix time of the sender.
    pub arrived: u64,
    /// `CLOCK_MONOTONIC` of the receiver when the answer left.
    pub receiver_monotonic: u64,
}

impl Probe {
    /// Time on the way, there and back together; `None` when the stamps contradict each other: a
    /// clock was set meanwhile, or a stamp is false.
    #[must_use]
    pub fn round_trip_ns(&self) -> Option<u64> {
        let away = self.arrived.checked_sub(self.sent).filter(|&ns| ns <= LONGEST_NS)?;
        let there = self.replied.checked_sub(self.received)?;
        let apart = |a: u64, b: u64| a.abs_diff(b) < 1 << 62;
        (apart(self.received, self.sent) && apart(self.replied, self.arrived)).then_some(())?;
        away.checked_sub(there)
    }

    /// Unix time − monotonic time of both hosts: only setting a clock changes it.
    const fn shifts(&self) -> [i128; 2] {
        [
            self.sent as i128 - self.sender_monotonic as i128,
            self.replied as i128 - self.receiver_monotonic as i128,
        ]
    }
}

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
