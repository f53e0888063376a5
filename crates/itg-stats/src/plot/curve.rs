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
