//! The contention model: a latency that grows with the number of nodes that talk.
//!
//! `L(n) = L0` up to `n0` nodes, then `L0 + g·(n − n0)`; the slope g is steeper for a parent with two
//! children than for pairs, and steeper again for four. L0, n0 and the slopes are fitted to a
//! measurement of these three patterns ([`fit`]). Two readings of what n is in a view change:
//!
//! - [`Contention::together`] puts L(N, a) of all N nodes in the place of the base model's L, so that
//!   `Ts = 2·L(N, a)·(H − 1) + Ocp·H`, as if everybody talked all the time;
//! - [`Contention::by_level`] counts who talks while a level is told, and acknowledges: the nodes of the
//!   level and their parents. `Ts = Σ 2·L(talkers of the level, a) + Ocp·H`.
//!
//! Source: Varma et al., *Scalable, fault tolerant membership for MPI tasks on HPC systems*, ICS 2006,
//! Figures 7 and 8; the second reading is ours.

use itg_process::Time;

use itg_members::Arity;

/// A latency that grows with the number of nodes that talk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contention {
    /// Latency of one hop while few talk (L0), in nanoseconds.
    pub latency: u64,
    /// Number of nodes that may talk without disturbing each other (n0).
    pub free: u32,
    /// Latency that each further node adds (g), in nanoseconds.
    pub slope: u64,
}

impl Contention {
    /// Latency of one hop while so many nodes talk, in nanoseconds; the greatest number there is when it
    /// does not fit.
    #[must_use]
    pub const fn latency(self, talking: u32) -> u64 {
        let more = talking.saturating_sub(self.free) as u64;
        self.latency.saturating_add(self.slope.saturating_mul(more))
    }

    /// `Ts` of a view of `n` nodes when all of them are taken to talk at once; `compute` is Ocp in
    /// nanoseconds.
    #[must_use]
    pub fn together(self, n: u32, arity: Arity, compute: u64) -> Time {
        let height = u64::from(arity.height(n));
        let hops = self.latency(n).saturating_mul(2 * height.saturating_sub(1));
        Time(hops.saturating_add(compute.saturating_mul(height)))
    }

    /// `Ts` of a view of `n` nodes when those of one level and their parents talk at once; `compute` is
    /// Ocp in nanoseconds.
    ///
    /// Exact for full trees on the simulated network `crowd`; in others, leaves above the last level
    /// acknowledge while it is told.
    #[must_use]
    pub fn by_level(self, n: u32, arity: Arity, compute: u64) -> Time {
        let height = arity.height(n);
        let mut sum = compute.saturating_mul(height.into());
        for level in 1..height {
            // The start of the level behind the last one may be beyond 32 bits.
            let end = if level + 1 < height { arity.level_start(level + 1) } else { n };
            let here = end - arity.level_start(level);
            let talking = here + here.div_ceil(arity.get());
            sum = sum.saturating_add(self.latency(talking).saturating_mul(2));
        }
        Time(sum)
    }
}

/// Latencies of one pattern: groups of a parent and its children, all talking at once.
#[derive(Clone, Debug, PartialEq)]
pub struct Pattern {
    /// Children of each parent: 1 for pairs.
    pub children: u32,
    /// Number of nodes that talk, and the latency of one hop in nanoseconds.
    pub points: Vec<(u32, f64)>,
}

/// Parameters of the model that come nearest to a measurement, and how near.
#[derive(Clone, Debug, PartialEq)]
pub struct Fit {
    /// L0 in nanoseconds.
    pub latency: f64,
    /// n0.
    pub free: u32,
    /// Children of each parent, and the slope g in nanoseconds a node; never negative.
    pub slopes: Vec<(u32, f64)>,
    /// Root of the mean square of what the model is off, in parts of the measured values.
    pub rms: f64,
    /// The most that it is off, in parts of the measured value.
    pub worst: f64,
}

impl Fit {
    /// The model for a tree of this arity: the slope of the pattern with as many children, else of the
    /// one with the next fewer, else of the first.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "not negative")]
    pub fn of(&self, arity: u32) -> Contention {
        let fewer = self.slopes.iter().filter(|(children, _)| *children <= arity);
        let found = fewer.max_by_key(|(children, _)| *children).or_else(|| self.slopes.first());
        let slope = found.map_or(0.0, |(_, slope)| *slope).round() as u64;
        Contention { latency: self.latency.round() as u64, free: self.free, slope }
    }

    /// Latency that the model gives to so many nodes in the pattern of this place, in nanoseconds.
    #[must_use]
    pub fn latency(&self, pattern: usize, talking: u32) -> f64 {
        let slope = self.slopes.get(pattern).map_or(0.0, |(_, slope)| *slope);
        slope.mul_add(beyond(talking, self.free), self.latency)
    }
}

fn beyond(talking: u32, free: u32) -> f64 {
    f64::from(talking.saturating_sub(free))
}

/// Fits the model to measured patterns: all have L0 and n0 in common, and each has a slope.
///
/// Least squares of the relative error. For a given n0 the model is linear and solved directly; every n0
/// from 1 to the greatest number of nodes measured is tried, and the smallest of equals is taken. A slope
/// that would be negative is 0. `None` if nothing was measured, if a value is not positive, or if no n0
/// leaves a positive L0.
#[must_use]
pub fn fit(patterns: &[Pattern]) -> Option<Fit> {
    let points = || patterns.iter().flat_map(|pattern| &pattern.points);
    if !points().all(|(_, y)| y.is_finite() && *y > 0.0) {
        return None;
    }
    let most = points().map(|(n, _)| *n).max()?;
    let mut best: Option<Fit> = None;
    for free in 1..=most.min(MOST_NODES) {
        if let Some(fit) = with_free(patterns, free)
            && best.as_ref().is_none_or(|best| fit.rms < best.rms)
        {
            best = Some(fit);
        }
    }
    best
}

/// Nodes of a measurement at most.
const MOST_NODES: u32 = 1 << 16;

/// The best fit with this n0. With weights 1/y² the slope of a pattern is g = (Σwby − L0·Σwb) / Σwb², where
/// b is the number of nodes beyond n0; put into the equation of L0 this gives L0 from sums of all patterns.
fn with_free(patterns: &[Pattern], free: u32) -> Option<Fit> {
    let sums: Vec<[f64; 5]> = patterns.iter().map(|pattern| weighted(pattern, free)).collect();
    let mut rises: Vec<bool> = sums.iter().map(|[_, _, _, bb, _]| *bb > 0.0).collect();
    // Each turn but the last makes one more pattern flat.
    for _ in 0..=patterns.len() {
        let (mut above, mut below) = (0.0, 0.0);
        for ([w, y, b, bb, by], rises) in sums.iter().zip(&rises) {
            let (without_y, without_w) =
                if *rises { (b * by / bb, b * b / bb) } else { (0.0, 0.0) };
            above += y - without_y;
            below += w - without_w;
        }
        let latency = above / below;
        if !latency.is_finite() || latency <= 0.0 {
            return None;
        }
        let slopes: Vec<f64> = sums
            .iter()
            .zip(&rises)
            .map(|([_, _, b, bb, by], rises)| if *rises { (by - latency * b) / bb } else { 0.0 })
            .collect();
        if let Some(falls) = slopes.iter().position(|slope| *slope < 0.0) {
            rises[falls] = false;
            continue;
        }
        let slopes = patterns.iter().map(|pattern| pattern.children).zip(slopes).collect();
        let mut fit = Fit { latency, free, slopes, rms: 0.0, worst: 0.0 };
        let (mut count, mut squares) = (0.0, 0.0);
        for (at, pattern) in patterns.iter().enumerate() {
            for (n, y) in &pattern.points {
                let off = (fit.latency(at, *n) - y) / y;
                count += 1.0;
                squares += off * off;
                fit.worst = fit.worst.max(off.abs());
            }
        }
        fit.rms = (squares / count).sqrt();
        return Some(fit);
    }
    None
}

/// Σw, Σwy, Σwb, Σwb², Σwby of a pattern.
fn weighted(pattern: &Pattern, free: u32) -> [f64; 5] {
    let mut sums = [0.0; 5];
    for (n, y) in &pattern.points {
        let (w, b) = (1.0 / (y * y), beyond(*n, free));
        for (sum, term) in sums.iter_mut().zip([1.0, *y, b, b * b, b * y]) {
            *sum += w * term;
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::model::Constants;

    /// The paper's latency and n0, with slopes as in its Figure 7: steeper for more children.
    const SLOPES: [(u32, u64); 3] = [(1, 2_000), (2, 5_000), (4, 9_000)];

    fn tcp(slope: u64) -> Contention {
        Contention { latency: Constants::TCP.latency, free: 12, slope }
    }

    fn arity(a: u32) -> Arity {
        a.try_into().expect("an arity")
    }

    #[test]
    fn latency_is_flat_then_linear_and_bounded() {
        let model = tcp(5_000);
        for (talking, want) in [(0, 118_000), (12, 118_000), (13, 123_000), (112, 618_000)] {
            assert_eq!(model.latency(talking), want, "{talking} nodes");
        }
        let huge = Contention { latency: u64::MAX - 1, free: 0, slope: u64::MAX };
        assert_eq!(huge.latency(u32::MAX), u64::MAX);
        assert_eq!(huge.together(9, arity(2), u64::MAX).0, u64::MAX);
        assert_eq!(huge.by_level(9, arity(2), u64::MAX).0, u64::MAX);
        for a in [2, 4, 8, 16] {
            let (all, level) =
                (model.together(u32::MAX, arity(a), 0), model.by_level(u32::MAX, arity(a), 0));
            assert!(level < all && level.0 > u64::from(u32::MAX) * 5_000, "arity {a}: {level:?}");
        }
    }

    /// Reference: walks every node, counts those that talk by name, and adds hop by hop.
    fn walked(model: Contention, n: u32, arity: Arity, compute: u64) -> (u64, u64) {
        let one = |talking: usize| {
            (0..talking).skip(model.free as usize).fold(model.latency, |sum, _| sum + model.slope)
        };
        let (mut levels, mut together, mut by_level) = (1, 0, 0);
        loop {
            let mut talking = BTreeSet::new();
            for node in (0..n).filter(|node| arity.path(*node).len() == levels) {
                talking.insert(node);
                talking.extend(arity.parent(node));
            }
            if talking.is_empty() {
                break;
            }
            levels += 1;
            together += 2 * one(n as usize);
            by_level += 2 * one(talking.len());
        }
        let computed = compute * levels as u64;
        (together + computed, by_level + computed)
    }

    #[test]
    fn both_readings_agree_with_walking_the_tree() {
        for (a, slope) in [(2, 5_000), (4, 9_000), (8, 12_345)] {
            for n in 1..=300 {
                let (model, a) = (tcp(slope), arity(a));
                let got = (model.together(n, a, 2_000).0, model.by_level(n, a, 2_000).0);
                assert_eq!(got, walked(model, n, a, 2_000), "{n} nodes, arity {a}");
            }
        }
    }

    /// Without a slope both are the base model.
    #[test]
    fn without_contention_it_is_the_base_model() {
        for a in [2, 4, 8, 16] {
            for n in 1..=1024 {
                let (model, a) = (tcp(0), arity(a));
                let base = Constants::TCP.base(a.height(n));
                assert_eq!(model.together(n, a, Constants::TCP.compute), base, "{n}, {a}");
                assert_eq!(model.by_level(n, a, Constants::TCP.compute), base, "{n}, {a}");
            }
        }
    }

    /// The shapes of Figure 8: all talk at once.
    #[test]
    fn ts_rises_linearly_between_powers_of_two_and_the_base_model_lies_far_below() {
        let compute = Constants::TCP.compute;
        for (slope, times) in [(2_000, 2), (5_000, 5)] {
            let ts = |n| tcp(slope).together(n, arity(2), compute).0;
            for power in 4..10 {
                let levels = u64::from(arity(2).height(1 << power)) - 1;
                for n in 1 << power..(2 << power) - 1 {
                    assert_eq!(ts(n + 1) - ts(n), 2 * levels * slope, "{n} nodes");
                }
            }
            for n in [127, 511, 1023] {
                let base = Constants::TCP.base(arity(2).height(n)).0;
                assert!(ts(n) > times * base, "{n} nodes: {} against {base}", ts(n));
            }
        }
    }

    /// The same when those of one level and their parents talk: flat while few are on the last level, then
    /// linear.
    #[test]
    fn ts_by_level_bends_once_between_powers_of_two() {
        let compute = Constants::TCP.compute;
        let ts = |n| tcp(5_000).by_level(n, arity(2), compute).0;
        for power in 4..10 {
            // In steps of two: a parent talks with its first child and with its second.
            let level = (1 << power..(2 << power) - 2).step_by(2);
            let mut steps: Vec<_> = level.map(|n| ts(n + 2) - ts(n)).collect();
            assert!(steps.is_sorted() && steps[0] == 0, "{steps:?}");
            steps.dedup();
            assert!(steps.len() <= 3 && steps.last() == Some(&30_000), "{steps:?}");
        }
        for n in [127, 511, 1023] {
            let base = Constants::TCP.base(arity(2).height(n)).0;
            assert!(2 * ts(n) > 3 * base, "{n} nodes: {} against {base}", ts(n));
        }
    }

    fn measured(latency: f64, free: u32, noise: f64) -> Vec<Pattern> {
        let mut state = 1_u32;
        let mut wobble = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            1.0 + noise * (f64::from(state >> 8) / f64::from(1 << 23) - 1.0)
        };
        let mut pattern = |(children, slope): (u32, u64)| {
            let sizes = (1..=8).map(|groups| groups * 2 * (children + 1));
            let points = sizes.map(|n| {
                let more = f64::from(n.saturating_sub(free));
                (
                    n,
                    f64::from(u32::try_from(slope).expect("small")).mul_add(more, latency)
                        * wobble(),
                )
            });
            Pattern { children, points: points.collect() }
        };
        SLOPES.into_iter().map(&mut pattern).collect()
    }

    #[test]
    fn a_fit_finds_what_the_values_were_made_from() {
        for free in [1, 2, 7, 12, 15] {
            let fit = fit(&measured(118_000.0, free, 0.0)).expect("a fit");
            assert_eq!(fit.free, free);
            assert!((fit.latency - 118_000.0).abs() < 1e-3 && fit.worst < 1e-9, "{fit:?}");
            for (found, (children, slope)) in fit.slopes.iter().zip(SLOPES) {
                let wanted = f64::from(u32::try_from(slope).expect("small"));
                assert!(found.0 == children && (found.1 - wanted).abs() < 1e-3, "{fit:?}");
            }
            for (arity, slope) in [(1, 2_000), (2, 5_000), (4, 9_000), (8, 9_000)] {
                assert_eq!(fit.of(arity), Contention { latency: 118_000, free, slope });
            }
        }
    }

    /// Reference: no parameters on a grid around what was found fit better.
    #[test]
    fn nothing_nearby_fits_better() {
        let patterns = measured(118_000.0, 9, 0.2);
        let best = fit(&patterns).expect("a fit");
        assert!((0.01..0.2).contains(&best.rms) && best.worst >= best.rms, "{best:?}");
        let rms = |latency: f64, free: u32, factors: [f64; 3]| {
            let (mut count, mut sum) = (0.0, 0.0);
            for (at, pattern) in patterns.iter().enumerate() {
                for (n, y) in &pattern.points {
                    let more = f64::from((*n).max(free) - free);
                    let off = (latency + best.slopes[at].1 * factors[at] * more) / y - 1.0;
                    (count, sum) = (count + 1.0, sum + off * off);
                }
            }
            f64::sqrt(sum / count)
        };
        let near = [0.9, 0.99, 1.0, 1.01, 1.1];
        assert!((rms(best.latency, best.free, [1.0; 3]) - best.rms).abs() < 1e-12);
        for latency in near.map(|x| x * best.latency) {
            for free in best.free.saturating_sub(3)..=best.free + 3 {
                for a in near {
                    for b in near {
                        for c in near {
                            let other = rms(latency, free, [a, b, c]);
                            assert!(other >= best.rms - 1e-12, "{latency} {free} {a} {b} {c}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn what_cannot_be_fitted_is_refused_and_what_falls_is_flat() {
        let one = |points: &[(u32, f64)]| Pattern { children: 1, points: points.to_vec() };
        for points in [&[][..], &[(2, 0.0)], &[(2, -1.0)], &[(2, f64::NAN)], &[(2, f64::INFINITY)]]
        {
            assert_eq!(fit(&[one(points)]), None, "{points:?}");
        }
        assert_eq!(fit(&[]), None);
        let fit = fit(&[one(&[(2, 100.0), (4, 90.0), (6, 80.0)])]).expect("a fit");
        assert!(fit.slopes == [(1, 0.0)] && (80.0..100.0).contains(&fit.latency), "{fit:?}");
    }
}
