//! All straight lines that a set of two-way probes leaves possible.
//!
//! A line `a + b·τ` is a point (a, b); each half of a probe cuts the plane of such points in two. What
//! is left is a convex polygon, cut smaller by each probe: the feasible region of the linear programme
//! of Moon, Skelly and Towsley (INFOCOM 1999), with both directions at once. Its corners give the
//! largest and the smallest offset at any instant. A cut costs one look at each corner; there are few.

/// Clocks that differ by more than this in rate (1000 ppm) are no clocks: two that are slewed against
/// each other at the kernel's limit of 500 ppm each come to it. In ns per second.
pub(crate) const MOST_SKEW: f64 = 1e6;
/// A stamp is cut off to whole nanoseconds.
const ROUNDING_NS: f64 = 1.0;

/// One probe against a base: seconds since an instant of the sender's clock, nanoseconds of offset
/// beyond a whole number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cut {
    /// Instant at which the probe left; then the offset was at most `most`.
    pub(crate) left: f64,
    /// Received − sent.
    pub(crate) most: f64,
    /// Instant at which the answer came; then the offset was at least `least`.
    pub(crate) came: f64,
    /// Answered − arrived.
    pub(crate) least: f64,
}

/// A polygon of lines: corners (offset at 0 in ns, slope in ns per second) in order around it.
#[derive(Clone, Debug)]
pub(crate) struct Lines {
    corners: Vec<(f64, f64)>,
    spare: Vec<(f64, f64)>,
}

impl Lines {
    /// The lines that one probe allows. It should have been sent near the base.
    pub(crate) fn of(cut: Cut) -> Self {
        let room = MOST_SKEW * (cut.came.abs() + cut.left.abs()) + 2.0 * ROUNDING_NS;
        let (low, high) = (cut.least - room, cut.most + room);
        let corners =
            vec![(low, -MOST_SKEW), (high, -MOST_SKEW), (high, MOST_SKEW), (low, MOST_SKEW)];
        let mut lines = Self { corners, spare: Vec::new() };
        lines.cut(cut);
        lines
    }

    /// Keeps the lines that this probe allows as well; whether there are any.
    pub(crate) fn cut(&mut self, cut: Cut) -> bool {
        self.keep(|(a, b)| cut.most + ROUNDING_NS - (a + b * cut.left));
        self.keep(|(a, b)| a + b * cut.came - (cut.least - ROUNDING_NS));
        !self.is_empty()
    }

    /// Returns true if this probe leaves some of these lines.
    pub(crate) fn allow(&self, cut: Cut) -> bool {
        self.clone().cut(cut)
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.corners.is_empty()
    }

    /// Smallest and largest offset at this many seconds.
    pub(crate) fn at(&self, seconds: f64) -> (f64, f64) {
        range(self.corners.iter().map(|&(a, b)| a + b * seconds))
    }

    /// Smallest and largest slope.
    pub(crate) fn slopes(&self) -> (f64, f64) {
        range(self.corners.iter().map(|&(_, b)| b))
    }

    /// Cuts the polygon along a line: what is left is where `side` is not negative
    /// (Sutherland and Hodgman, CACM 17(1), 1974).
    fn keep(&mut self, side: impl Fn((f64, f64)) -> f64) {
        self.spare.clear();
        let Some(&last) = self.corners.last() else { return };
        let (mut before, mut before_side) = (last, side(last));
        for &corner in &self.corners {
            let corner_side = side(corner);
            if (before_side >= 0.0) != (corner_side >= 0.0) {
                let share = before_side / (before_side - corner_side);
                let between = |from: f64, to: f64| from + (to - from) * share;
                self.spare.push((between(before.0, corner.0), between(before.1, corner.1)));
            }
            if corner_side >= 0.0 {
                self.spare.push(corner);
            }
            (before, before_side) = (corner, corner_side);
        }
        std::mem::swap(&mut self.corners, &mut self.spare);
    }
}

fn range(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Every line through two of the constraints that keeps all of them, at `t`.
    fn by_pairs(cuts: &[Cut], t: f64) -> Option<(f64, f64)> {
        // (a + b·x) · sign <= limit · sign
        let mut limits: Vec<(f64, f64, f64)> = Vec::new();
        for cut in cuts {
            limits.push((cut.left, cut.most + ROUNDING_NS, 1.0));
            limits.push((cut.came, cut.least - ROUNDING_NS, -1.0));
        }
        let mut lines = Vec::new();
        for (i, &(x, y, _)) in limits.iter().enumerate() {
            for b in [-MOST_SKEW, MOST_SKEW] {
                lines.push((y - b * x, b));
            }
            for &(x2, y2, _) in &limits[..i] {
                let b = (y2 - y) / (x2 - x);
                lines.push((y - b * x, b));
            }
        }
        let keeps = |&(a, b): &(f64, f64)| {
            b.abs() <= MOST_SKEW + 1e-3
                && limits.iter().all(|&(x, y, sign)| (a + b * x - y) * sign <= 1e-3)
        };
        let values: Vec<f64> = lines.into_iter().filter(keeps).map(|(a, b)| a + b * t).collect();
        (!values.is_empty()).then(|| range(values.into_iter()))
    }

    proptest! {
        #[test]
        fn the_polygon_is_what_all_pairs_of_constraints_leave(
            probes in prop::collection::vec(
                (0u32..20_000, 0.0f64..300_000.0, 0.0f64..300_000.0), 1..9),
            (a, b) in (-1e6f64..1e6, -2e5f64..2e5),
            lie in prop::option::of(-200_000.0f64..200_000.0),
            t in -5.0f64..25.0,
        ) {
            let mut cuts: Vec<Cut> = probes.iter().enumerate().map(|(i, &(ms, there, back))| {
                // Instants that do not repeat, so that no two constraints stand in one place.
                let left = f64::from(ms) / 1e3 + i as f64 * 1e-5;
                let came = left + (there + back) / 1e9 + 1e-6;
                Cut {
                    left,
                    most: a + b * left + there,
                    came,
                    least: a + b * came - back,
                }
            }).collect();
            if let (Some(lie), Some(last)) = (lie, cuts.last_mut()) {
                last.most += lie;
                last.least += lie;
            }
            let base = cuts[0].left;
            for cut in &mut cuts {
                cut.left -= base;
                cut.came -= base;
            }
            let mut lines = Lines::of(cuts[0]);
            for &cut in &cuts {
                lines.cut(cut);
            }
            match by_pairs(&cuts, t) {
                None => prop_assert!(lines.is_empty()),
                Some((low, high)) if lines.is_empty() => prop_assert!(high - low < 1.0),
                Some(want) => {
                    let got = lines.at(t);
                    prop_assert!((got.0 - want.0).abs() < 0.1, "{got:?} {want:?}");
                    prop_assert!((got.1 - want.1).abs() < 0.1, "{got:?} {want:?}");
                }
            }
        }
    }
}
