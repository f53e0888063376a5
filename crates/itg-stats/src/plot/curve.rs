//! Lists of values made short enough to draw.

use crate::quantiles::Point;
use crate::sequence::Run;

/// Most points that [`thin`] keeps.
pub const MOST_POINTS: usize = 1_024;

/// At most about [`MOST_POINTS`] of the ascending `points`, neighbours joined.
///
/// Joined are values that agree in their leading bits, counted from the smallest value; so both the
/// body and the tail keep their shape, and a joined point spans at most a fixed share of its
/// distance from the smallest value (1/512 at first, more only when that is not enough).
#[must_use]
pub fn thin(points: &[Point]) -> Vec<Point> {
    let Some(origin) = points.first().map(|point| point.low) else { return Vec::new() };
    let mut kept = points.to_vec();
    for bits in (0..=9).rev() {
        if kept.len() <= MOST_POINTS {
            break;
        }
        let class = |point: &Point| {
            let far = point.low.abs_diff(origin);
            let drop = (63 - (far | 1).leading_zeros()).saturating_sub(bits);
            (drop, far >> drop)
        };
        kept = kept
            .chunk_by(|a, b| class(a) == class(b))
            .map(|same| Point {
                low: same[0].low,
                high: same[same.len() - 1].high,
                count: same.iter().map(|point| point.count).sum(),
            })
            .collect();
    }
    kept
}

/// The values without their signs, ascending.
#[must_use]
pub fn magnitudes(points: &[Point]) -> Vec<Point> {
    let mut all: Vec<Point> = points
        .iter()
        .map(|point| {
            let ends = (point.low.saturating_abs(), point.high.saturating_abs());
            Point { low: ends.0.min(ends.1), high: ends.0.max(ends.1), count: point.count }
        })
        .collect();
    all.sort_unstable_by_key(|point| (point.high, point.low));
    let mut joined: Vec<Point> = Vec::with_capacity(all.len());
    for point in all {
        match joined.last_mut() {
            Some(last) if point.low <= last.high => {
                last.low = last.low.min(point.low);
                last.high = point.high;
                last.count += point.count;
            }
            _ => joined.push(point),
        }
    }
    joined
}

/// Share of the values at or below each point: (value, share), ascending; the value is the upper
/// end of the point.
#[must_use]
pub fn distribution(points: &[Point]) -> Vec<(i64, f64)> {
    let total = points.iter().map(|point| point.count).sum::<u64>().max(1) as f64;
    let mut below = 0;
    points
        .iter()
        .map(|point| {
            below += point.count;
            (point.high, below as f64 / total)
        })
        .collect()
}

/// The values at `n` + 1 shares 0, 1/n … 1 (nearest rank, upper end); empty without values.
#[must_use]
pub fn quantiles(points: &[Point], n: u64) -> Vec<i64> {
    let total: u64 = points.iter().map(|point| point.count).sum();
    if total == 0 || n == 0 {
        return Vec::new();
    }
    let mut points = points.iter();
    let (mut reached, mut value) = (0, 0);
    (0..=n)
        .map(|k| {
            let rank = (u128::from(total) * u128::from(k)).div_ceil(u128::from(n)).max(1);
            while u128::from(reached) < rank {
                let Some(point) = points.next() else { break };
                reached += point.count;
                value = point.high;
            }
            value
        })
        .collect()
}

/// Numbers of `wanted` that are not in `seen`; both ascend and neither overlaps itself.
pub fn absent<'a>(
    wanted: impl Iterator<Item = Run> + 'a,
    seen: impl Iterator<Item = Run> + 'a,
) -> impl Iterator<Item = Run> + 'a {
    let mut wanted = wanted.peekable();
    let mut seen = seen.peekable();
    let mut rest: Option<Run> = None;
    std::iter::from_fn(move || {
        loop {
            let run = match rest.take() {
                Some(run) => run,
                None => wanted.next()?,
            };
            while seen.next_if(|other| other.last < run.first).is_some() {}
            let Some(other) = seen.peek().filter(|other| other.first <= run.last) else {
                return Some(run);
            };
            if other.last < run.last {
                rest = Some(Run { first: other.last + 1, last: run.last });
            }
            if other.first > run.first {
                return Some(Run { first: run.first, last: other.first - 1 });
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn points(values: &[i64]) -> Vec<Point> {
        let mut sorted = values.to_vec();
        sorted.sort_unstable();
        sorted.iter().map(|&v| Point { low: v, high: v, count: 1 }).collect()
    }

    fn runs(set: &[bool]) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::new();
        for at in (0..set.len()).filter(|&at| set[at]) {
            let at = at as u64;
            match runs.last_mut() {
                Some(run) if run.last + 1 == at => run.last = at,
                _ => runs.push(Run { first: at, last: at }),
            }
        }
        runs
    }

    proptest! {
        #[test]
        fn thin_lists_keep_count_order_and_ends(
            values in prop::collection::vec(-1_000_000_000_000i64..1_000_000_000_000, 1..5000),
        ) {
            let all = points(&values);
            let kept = thin(&all);
            prop_assert!(kept.len() <= MOST_POINTS.max(64));
            prop_assert_eq!(kept.iter().map(|p| p.count).sum::<u64>(), values.len() as u64);
            prop_assert!(kept.windows(2).all(|p| p[0].high <= p[1].low));
            prop_assert_eq!(kept[0].low, all[0].low);
            prop_assert_eq!(kept[kept.len() - 1].high, all[all.len() - 1].high);
            let origin = all[0].low;
            for point in &kept {
                let (width, far) = (point.high - point.low, point.low - origin);
                prop_assert!(width as f64 <= far as f64 / 16.0 + 1.0, "{point:?}");
            }
        }

        #[test]
        fn quantiles_are_ranks(values in prop::collection::vec(-50i64..50, 1..60), n in 1u64..40) {
            let mut sorted = values.clone();
            sorted.sort_unstable();
            let got = quantiles(&points(&values), n);
            prop_assert_eq!(got.len() as u64, n + 1);
            for (k, got) in (0u64..).zip(got) {
                let rank = (sorted.len() as u64 * k).div_ceil(n).max(1);
                prop_assert_eq!(got, sorted[usize::try_from(rank - 1).unwrap()]);
            }
        }

        #[test]
        fn absent_agrees_with_sets(sets in prop::collection::vec(any::<(bool, bool)>(), 0..200)) {
            let (wanted, seen): (Vec<_>, Vec<_>) = sets.into_iter().unzip();
            let missing: Vec<_> = wanted.iter().zip(&seen).map(|(w, s)| *w && !*s).collect();
            let got: Vec<_> =
                absent(runs(&wanted).into_iter(), runs(&seen).into_iter()).collect();
            // Two stretches side by side may come apart where a stretch of `wanted` ends.
            let mut flat = vec![false; wanted.len()];
            for run in &got {
                for at in run.first..=run.last {
                    flat[usize::try_from(at).unwrap()] = true;
                }
            }
            prop_assert_eq!(flat, missing);
            prop_assert!(got.windows(2).all(|r| r[0].last < r[1].first));
        }
    }

    #[test]
    fn magnitudes_fold_at_zero() {
        let got = magnitudes(&points(&[-3, -1, 0, 1, 2, 3, 3]));
        let want = [(0, 1), (1, 2), (2, 1), (3, 3)];
        assert_eq!(got.iter().map(|p| (p.low, p.count)).collect::<Vec<_>>(), want);
        assert_eq!(magnitudes(&points(&[i64::MIN]))[0].high, i64::MAX);
    }

    #[test]
    fn distribution_ends_at_one() {
        assert_eq!(
            distribution(&points(&[3, 1, 1, 7])),
            [(1, 0.25), (1, 0.5), (3, 0.75), (7, 1.0)]
        );
        assert!(distribution(&[]).is_empty() && quantiles(&[], 4).is_empty());
    }
}
