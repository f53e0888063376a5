//! From stretches to the model: knots with the smallest and largest offset, joined to one curve.

use std::ops::Range;

use super::fit::Lines;
use super::model::{ClockModel, Skew, Span, Step};
use super::probe::{JUMP_NS, MOST_PIECES, Probe, WANDER, WINDOW_NS};
use super::segment::{Base, Trace};

/// Knots over one window.
const KNOTS: u64 = 32;
/// Time beyond the first and last probe that the curve is laid out for: a day.
const BEYOND_NS: u64 = 86_400_000_000_000;

/// Bounds at one instant: offsets in nanoseconds beyond that of the piece's base.
#[derive(Clone, Copy, Debug)]
struct Knot {
    at: u64,
    low: f64,
    high: f64,
}

/// A stretch between two steps. It may hold somewhat beyond its knots: the exact time at which the
/// clock was set is not known.
#[derive(Debug)]
struct Piece {
    base: Base,
    knots: Vec<Knot>,
    skew: Skew,
    /// First and last probe, on the sender's clock.
    probed: (u64, u64),
}

/// The model of a trace; `None` without probes, or with too many steps.
pub(super) fn model(trace: &Trace) -> Option<ClockModel> {
    let mut trace = Trace::new(trace.probes.clone(), trace.refused);
    let stretches = trace.stretches();
    if stretches.is_empty() || stretches.len() > MOST_PIECES {
        return None;
    }
    let mut pieces = Vec::with_capacity(stretches.len());
    for (i, stretch) in stretches.iter().enumerate() {
        let before = i.checked_sub(1).map(|i| gap(&trace, &stretches[i], stretch));
        let after = stretches.get(i + 1).map(|next| gap(&trace, stretch, next));
        pieces.push(piece(
            &trace,
            stretch.clone(),
            before.unwrap_or(BEYOND_NS),
            after.unwrap_or(BEYOND_NS),
        ));
    }
    let longest =
        pieces.iter().max_by_key(|piece| piece.probed.1.saturating_sub(piece.probed.0))?;
    Some(ClockModel {
        spans: join(&pieces),
        steps: steps(&trace, &stretches, &pieces),
        skew: longest.skew,
        probes: trace.probes.len(),
        refused: trace.refused,
        round_trip_ns: trace.probes.iter().filter_map(Probe::round_trip_ns).min()?,
    })
}

/// Time between the end of one stretch and the start of the next, on a clock that is not set.
fn gap(trace: &Trace, before: &Range<usize>, after: &Range<usize>) -> u64 {
    let (last, first) = (&trace.probes[before.end - 1], &trace.probes[after.start]);
    let gone = last.sender_monotonic.saturating_add(last.arrived.saturating_sub(last.sent));
    first.sender_monotonic.saturating_sub(gone).min(BEYOND_NS)
}

fn piece(trace: &Trace, stretch: Range<usize>, before: u64, after: u64) -> Piece {
    let probes = &trace.probes[stretch.clone()];
    let (first, last) = (&probes[0], &probes[probes.len() - 1]);
    let base = Base::of(first);
    let probed = (first.sent, last.arrived.max(first.sent));
    let length = probed.1 - probed.0;
    let mut knots = Vec::new();
    let mut windows = Windows { trace, stretch, made: None };
    let mut lay = |at: u64, within: u64| knots.push(windows.knot(at, within, base));
    lay(probed.0.saturating_sub(before), probed.0);
    let steps = if length <= WINDOW_NS { KNOTS } else { length.div_ceil(WINDOW_NS / 8) };
    for step in 0..=steps {
        let way = u128::from(length) * u128::from(step) / u128::from(steps);
        let at = probed.0 + u64::try_from(way).unwrap_or(length);
        lay(at, at);
    }
    lay(probed.1.saturating_add(after), probed.1);
    knots.dedup_by_key(|knot| knot.at);
    let skew = windows.skew(length, &knots);
    Piece { base, knots, skew, probed }
}

/// The lines around an instant, kept while the probes around it are the same.
struct Windows<'t> {
    trace: &'t Trace,
    stretch: Range<usize>,
    made: Option<(Range<usize>, Base, Lines, u64)>,
}

impl Windows<'_> {
    /// Bounds at `at` from the probes around `within`, in nanoseconds beyond `base`.
    fn knot(&mut self, at: u64, within: u64, base: Base) -> Knot {
        let range = self.around(within, WINDOW_NS);
        if self.made.as_ref().is_none_or(|made| made.0 != range) {
            let mut width = WINDOW_NS;
            let mut fitted = range.clone();
            let (mut own, mut lines) = self.trace.lines(fitted.clone());
            while lines.is_empty() && fitted.len() > 1 {
                width /= 2;
                let nearest = self.around(within, width);
                fitted = if width > 0 { nearest } else { fitted.start..fitted.start + 1 };
                (own, lines) = self.trace.lines(fitted.clone());
            }
            let trips = self.trace.probes[fitted].iter().filter_map(Probe::round_trip_ns);
            self.made = Some((range, own, lines, trips.min().unwrap_or(0)));
        }
        let Some((_, own, lines, round_trip)) = &self.made else { unreachable!("just made") };
        let (low, high) = lines.at(own.seconds(at));
        let half = ((high - low) / 2.0).max(*round_trip as f64 / 2.0) + self.wander(at);
        let middle = (low + high) / 2.0 + difference_of(own.offset, base.offset);
        Knot { at, low: middle - half, high: middle + half }
    }

    /// The probes within half of `width` of an instant; where the stretch ends sooner, as much more at the other side.
    fn around(&self, at: u64, width: u64) -> Range<usize> {
        let probes = &self.trace.probes[self.stretch.clone()];
        let (first, last) = (probes[0].sent, probes[probes.len() - 1].sent);
        let from = at.saturating_sub(width / 2).min(last.saturating_sub(width)).max(first);
        let to = from.saturating_add(width);
        let begin = probes.partition_point(|probe| probe.sent < from).min(probes.len() - 1);
        let end = probes.partition_point(|probe| probe.sent <= to);
        // An instant far from all probes has the nearest ones.
        let (begin, end) = if width == WINDOW_NS {
            let here = probes.partition_point(|probe| probe.sent < at);
            (begin.min(here.saturating_sub(4)), end.max((here + 4).min(probes.len())))
        } else {
            (begin, end)
        };
        self.stretch.start + begin..self.stretch.start + end.max(begin + 1)
    }

    /// Addition to a bound for the distance to the nearest probe, in nanoseconds.
    fn wander(&self, at: u64) -> f64 {
        let probes = &self.trace.probes[self.stretch.clone()];
        let next = probes.partition_point(|probe| probe.sent < at);
        let near = [next.checked_sub(1), Some(next)].into_iter().flatten();
        let far = near.filter_map(|i| probes.get(i)).map(|probe| probe.sent.abs_diff(at)).min();
        far.unwrap_or(0) as f64 / 1e9 * WANDER
    }

    fn skew(&self, length: u64, knots: &[Knot]) -> Skew {
        if length <= WINDOW_NS
            && let Some((_, _, lines, _)) = &self.made
        {
            let (low, high) = lines.slopes();
            return Skew { ppm: (low + high) / 2e3, bound_ppm: (high - low) / 2e3 };
        }
        // The first and the last knot lie beyond the probes.
        let inner = knots.get(1..knots.len().saturating_sub(1)).unwrap_or_default();
        let (Some(first), Some(last)) = (inner.first(), inner.last()) else {
            return Skew::default();
        };
        let seconds = (last.at - first.at).max(1) as f64 / 1e9;
        let (rise, doubt) = (
            last.low + last.high - first.low - first.high,
            last.high - last.low + first.high - first.low,
        );
        Skew { ppm: rise / 2e3 / seconds, bound_ppm: doubt / 2e3 / seconds }
    }
}

fn difference_of(a: i64, b: i64) -> f64 {
    (i128::from(a) - i128::from(b)) as f64
}

impl Piece {
    /// Smallest and largest offset at an instant, in nanoseconds beyond `base`; `None` where the piece
    /// does not hold.
    fn at(&self, at: u64, base: Base) -> Option<(f64, f64)> {
        let after = self.knots.partition_point(|knot| knot.at < at);
        let next = self.knots.get(after)?;
        let before = match after.checked_sub(1) {
            Some(i) => self.knots[i],
            None if next.at == at => *next,
            None => return None,
        };
        let share = match next.at - before.at {
            0 => 0.0,
            length => (at - before.at) as f64 / length as f64,
        };
        let moved = difference_of(self.base.offset, base.offset);
        let between = |a: f64, b: f64| a + (b - a) * share + moved;
        Some((between(before.low, next.low), between(before.high, next.high)))
    }
}

/// One curve from all pieces. Where two may hold, it covers both; where none does (the sender's clock jumped over
/// it), it leads from one to the other.
fn join(pieces: &[Piece]) -> Vec<Span> {
    let mut times: Vec<u64> =
        pieces.iter().flat_map(|piece| piece.knots.iter().map(|knot| knot.at)).collect();
    times.sort_unstable();
    times.dedup();
    let mut spans: Vec<Span> = Vec::with_capacity(times.len());
    for pair in times.windows(2) {
        let mut found: Option<(Base, [(f64, f64); 2])> = None;
        for piece in pieces {
            let base = found.map_or(piece.base, |(base, _)| base);
            let (Some(a), Some(b)) = (piece.at(pair[0], base), piece.at(pair[1], base)) else {
                continue;
            };
            let wider = |x: (f64, f64), y: (f64, f64)| (x.0.min(y.0), x.1.max(y.1));
            let ends = found.map_or([a, b], |(_, ends)| [wider(ends[0], a), wider(ends[1], b)]);
            found = Some((base, ends));
        }
        match (found, spans.last()) {
            (Some((base, ends)), _) => {
                spans.push(Span::between(pair[0], pair[1], base.offset, ends));
            }
            (None, Some(before)) => spans.push(before.prolonged(pair[0], pair[1])),
            (None, None) => {}
        }
    }
    if let ([], Some(knot)) = (&spans[..], pieces.first().and_then(|p| p.knots.first())) {
        let only = (knot.low, knot.high);
        spans.push(Span::between(knot.at, knot.at, pieces[0].base.offset, [only, only]));
    }
    spans
}

/// Steps of the clocks: those that the monotonic clocks show, else the difference of the two sides
/// when it is more than their bounds.
fn steps(trace: &Trace, stretches: &[Range<usize>], pieces: &[Piece]) -> Vec<Step> {
    let mut steps = Vec::new();
    for (pair, sides) in stretches.windows(2).zip(pieces.windows(2)) {
        let (last, first) = (&trace.probes[pair[0].end - 1], &trace.probes[pair[1].start]);
        let (before, after) = (last.shifts(), first.shifts());
        let [sender, receiver] = [0, 1].map(|host| after[host] - before[host]);
        let (from_unix_ns, until_unix_ns) = (last.arrived, first.sent);
        let set = [sender, receiver].iter().any(|by| by.unsigned_abs() > u128::from(JUMP_NS));
        let by_ns = if set {
            i64::try_from(receiver - sender).unwrap_or(i64::MAX)
        } else {
            // Both sides at the same instant, between the two.
            let at = last.arrived.midpoint(first.sent.max(last.arrived));
            let base = sides[0].base;
            let (Some(a), Some(b)) = (sides[0].at(at, base), sides[1].at(at, base)) else {
                continue;
            };
            if a.0 <= b.1 && b.0 <= a.1 {
                continue;
            }
            super::model::whole((b.0 + b.1 - a.0 - a.1) / 2.0)
        };
        steps.push(Step { from_unix_ns, until_unix_ns, by_ns });
    }
    steps
}
