//! The best that anybody could say of the offset from the probes of a case.
//!
//! An oracle is told when each clock stepped, how its rate changed and the unit of its stamps, all but the offset and
//! the mean rate between two steps. What is left to know is a straight line; each probe says that it lies below one
//! point and above another. The lines that keep all of these are the feasible region of the linear programme of Moon,
//! Skelly and Towsley (INFOCOM 1999) with both directions at once, and nobody who has these probes can tell which of
//! them is true: half of what they leave open at an instant is the smallest bound that always holds. With one probe it
//! is half the round trip (Cristian 1989). No estimate that is not told as much can do better.

use crate::world::{Jump, World};

/// Clocks are not apart by more than this: ns per second.
const MOST_SKEW: f64 = 1e6;

/// The straight lines that the probes between two steps leave open.
pub(super) struct Best {
    from: f64,
    to: f64,
    /// True second, ns.
    above: Vec<(f64, f64)>,
    below: Vec<(f64, f64)>,
    slopes: (f64, f64),
}

impl Best {
    /// One for each time between steps that has probes.
    pub(super) fn all(world: &World) -> Vec<Self> {
        let hosts = &world.setting.hosts;
        let mut cuts: Vec<f64> = hosts.iter().flat_map(|h| &h.jumps).map(|j: &Jump| j.at).collect();
        cuts.extend([f64::NEG_INFINITY, f64::INFINITY]);
        cuts.sort_by(f64::total_cmp);
        cuts.windows(2).filter_map(|pair| Self::between(world, pair[0], pair[1])).collect()
    }

    fn between(world: &World, from: f64, to: f64) -> Option<Self> {
        let (mut above, mut below) = (Vec::new(), Vec::new());
        let [a, b] = world.setting.hosts.each_ref().map(|host| host.tick_ns.max(1.0));
        let curve = |at: f64| world.setting.hosts[1].gain(at) - world.setting.hosts[0].gain(at);
        for timed in &world.probes {
            let [left, came, answered, back] = timed.times;
            let probe = &timed.probe;
            let difference =
                |x: u64, y: u64| (i128::from(x) - i128::from(y) - world.epochs_apart()) as f64;
            // Of a probe that was under way at a step, one half may have stamps from one side of it.
            if left >= from && came < to {
                above.push((left, difference(probe.received, probe.sent) + b - curve(left)));
            }
            if answered >= from && back < to {
                below.push((back, difference(probe.replied, probe.arrived) - a - curve(back)));
            }
        }
        if above.is_empty() || below.is_empty() {
            return None;
        }
        let mut best = Self { from, to, above, below, slopes: (-MOST_SKEW, MOST_SKEW) };
        let top = highest(-MOST_SKEW, MOST_SKEW, |slope| best.room(slope));
        if best.room(top) < 0.0 {
            return None;
        }
        best.slopes = (best.edge(-MOST_SKEW, top), best.edge(MOST_SKEW, top));
        Some(best)
    }

    /// Distance between the ends of what a slope leaves open.
    fn room(&self, slope: f64) -> f64 {
        self.ceiling(slope) - self.floor(slope)
    }

    /// The slope nearest to `outside` that leaves something open; `inside` does.
    fn edge(&self, mut outside: f64, mut inside: f64) -> f64 {
        if self.room(outside) >= 0.0 {
            return outside;
        }
        for _ in 0..50 {
            let middle = f64::midpoint(outside, inside);
            if self.room(middle) >= 0.0 { inside = middle } else { outside = middle }
        }
        inside
    }

    pub(super) fn holds(&self, at: f64) -> bool {
        (self.from..self.to).contains(&at)
    }

    fn ceiling(&self, slope: f64) -> f64 {
        self.above.iter().map(|&(t, v)| v - slope * t).fold(f64::INFINITY, f64::min)
    }

    fn floor(&self, slope: f64) -> f64 {
        self.below.iter().map(|&(t, v)| v - slope * t).fold(f64::NEG_INFINITY, f64::max)
    }

    /// Half the distance between the largest and the smallest possible offset at a true time, ns.
    pub(super) fn half_at(&self, at: f64) -> f64 {
        let (low, high) = self.slopes;
        let most = |slope: f64| self.ceiling(slope) + slope * at;
        let least = |slope: f64| -(self.floor(slope) + slope * at);
        f64::midpoint(most(highest(low, high, most)), least(highest(low, high, least)))
    }
}

/// Argument at which a concave function is largest.
fn highest(mut low: f64, mut high: f64, value: impl Fn(f64) -> f64) -> f64 {
    for _ in 0..60 {
        let (a, b) = (low + (high - low) / 3.0, high - (high - low) / 3.0);
        if value(a) < value(b) { low = a } else { high = b }
    }
    f64::midpoint(low, high)
}
