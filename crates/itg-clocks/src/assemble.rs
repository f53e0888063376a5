//! From stretches to the model: knots with the smallest and largest offset, joined to one curve.

use std::ops::Range;

use crate::fit::{Lines, MOST_SKEW};
use crate::model::{ClockModel, Skew, Span, Step};
use crate::probe::{
    JUMP_NS, LEAST_NS, LONG_NS, MOST_IN_WINDOW, MOST_PIECES, Probe, SHARP_NS, STEADY_NS, WANDER,
    WINDOW_NS,
};
use crate::segment::{Base, Trace};

/// Time beyond the first and last probe that the curve is laid out for: a day.
const BEYOND_NS: u64 = 86_400_000_000_000;

/// Smallest and largest offset between two instants, straight in between: nanoseconds beyond that of the piece's base.
#[derive(Clone, Copy, Debug)]
struct Part {
    from: u64,
    to: u64,
    ends: [(f64, f64); 2],
}

/// Probes that a window has at least, if there are as many.
const SIDE: usize = 4;
/// Parts into which the time between two probes is cut.
const BENDS: u64 = 8;
/// Time between two probes that is not cut: 10 ms.
const SHORT_NS: u64 = 10_000_000;

/// A stretch between two steps. It may hold somewhat beyond its probes: the exact time at which the
/// clock was set is not known.
#[derive(Debug)]
struct Piece {
    base: Base,
    /// By time, without gaps between them.
    parts: Vec<Part>,
    skew: Skew,
    /// First and last probe, on the sender's clock.
    probed: (u64, u64),
}

/// The model of a trace; `None` without probes, or with too many steps.
pub(crate) fn model(trace: &Trace) -> Option<ClockModel> {
    let mut trace = Trace::new(trace.probes.clone(), trace.refused);
    let stretches = trace.stretches();
    if stretches.is_empty() || stretches.len() > MOST_PIECES {
        return None;
    }
    let mut pieces = Vec::with_capacity(stretches.len());
    for (i, stretch) in stretches.iter().enumerate() {
        let before = match i.checked_sub(1) {
            Some(i) => Between::inner(&trace.probes[stretches[i].end - 1..=stretch.start]),
            None => Between::outer(&trace.probes[..=stretch.start]),
        };
        let after = match stretches.get(i + 1) {
            Some(next) => Between::inner(&trace.probes[stretch.end - 1..=next.start]),
            None => Between::outer(&trace.probes[stretch.end - 1..]),
        };
        pieces.push(piece(&trace, stretch.clone(), before, after));
    }
    let longest =
        pieces.iter().max_by_key(|piece| piece.probed.1.saturating_sub(piece.probed.0))?;
    let model = ClockModel {
        spans: join(&pieces),
        steps: steps(&trace, &stretches, &pieces),
        skew: longest.skew,
        probes: trace.probes.len(),
        apart: 0,
        refused: trace.refused,
        unit_ns: trace.unit_ns(),
        round_trip_ns: trace.probes.iter().filter_map(Probe::round_trip_ns).min()?,
    };
    Some(model.look_apart(trace.probes.iter().map(|probe| probe.sent)))
}

/// Doubt between two stretches: a clock was set somewhere in it.
#[derive(Clone, Copy, Debug)]
struct Between {
    /// From the last probe of one to the first of the other, on a clock that is not set.
    length: u64,
    /// Smallest and largest growth of the offset since the first stretch that the monotonic clocks leave open, in
    /// nanoseconds.
    since: (f64, f64),
    /// The same until the second one.
    until: (f64, f64),
}

impl Between {
    /// From the last probe of a stretch to the first of the next one, whose ends are these.
    fn inner(probes: &[Probe]) -> Self {
        let (last, first) = (&probes[0], &probes[probes.len() - 1]);
        let length = first.sender_monotonic.saturating_sub(last.sender_monotonic).min(BEYOND_NS);
        let states = Self::states(probes);
        Self { length, since: from(states, last), until: from(states, first) }
    }

    /// Before the first stretch or behind the last one, whose end is one of the ends of these probes.
    fn outer(probes: &[Probe]) -> Self {
        let states = Self::states(probes);
        let (first, last) = (&probes[0], &probes[probes.len() - 1]);
        Self { length: BEYOND_NS, since: from(states, first), until: from(states, last) }
    }

    /// Smallest and largest difference of the two clocks, each against its monotonic one, over some probes.
    fn states(probes: &[Probe]) -> (i128, i128) {
        let of = |a: &Probe, b: &Probe| b.shifts()[1] - a.shifts()[0];
        // Between two probes either host's clock may have been set first.
        let pairs = probes.windows(2).flat_map(|pair| {
            let [a, b] = [&pair[0], &pair[1]];
            [of(a, a), of(a, b), of(b, a), of(b, b)]
        });
        let own = of(&probes[0], &probes[0]);
        pairs.fold((own, own), |(low, high), state| (low.min(state), high.max(state)))
    }
}

/// States as growth since that of a probe, in nanoseconds.
fn from(states: (i128, i128), probe: &Probe) -> (f64, f64) {
    let own = probe.shifts()[1] - probe.shifts()[0];
    ((states.0 - own) as f64, (states.1 - own) as f64)
}

fn piece(trace: &Trace, stretch: Range<usize>, before: Between, after: Between) -> Piece {
    let probes = &trace.probes[stretch];
    let windows = Windows::of(trace, probes);
    let (first, last) = (&probes[0], &probes[probes.len() - 1]);
    let base = Base::of(first);
    let probed = (first.sent, last.arrived.max(first.sent));
    let mut parts = Vec::with_capacity(probes.len() + 1);
    let mut lay = |from: u64, to: u64, next: usize, (low, high): (f64, f64)| {
        if from >= to {
            return;
        }
        let range = |at| windows.range(at, next, base);
        let cuts = windows.cuts(from, to, next);
        for pair in cuts.windows(2) {
            let ends = [pair[0], pair[1]].map(range).map(|ends| (ends.0 + low, ends.1 + high));
            parts.push(Part { from: pair[0], to: pair[1], ends });
        }
    };
    lay(first.sent.saturating_sub(before.length), first.sent, 0, before.until);
    for (i, pair) in probes.windows(2).enumerate() {
        lay(pair[0].sent, pair[1].sent, i + 1, (0.0, 0.0));
    }
    let end = last.sent.saturating_add(after.length).max(last.sent + 1);
    lay(last.sent, end, probes.len(), after.since);
    let skew = skew(trace, &windows);
    Piece { base, parts, skew, probed }
}

/// The lines through the probes right before and right after each probe.
struct Windows<'t> {
    probes: &'t [Probe],
    /// Of each probe, the lines through it and those before it.
    before: Vec<Window>,
    /// Of each probe, the lines through it and those behind it.
    after: Vec<Window>,
    hull: Hull,
}

/// Lines that explain probes next to each other, and the shortest round trip of these.
struct Window {
    base: Base,
    lines: Lines,
    round_trip_ns: u64,
    /// Round trip that four in five of them do not exceed.
    usual_trip_ns: u64,
}

impl Window {
    /// From probes in the order of their distance to the instants that it is for. Those from a contradiction on are
    /// left out, and half of those that are nearer: where it began cannot be told.
    fn of<'p>(trace: &Trace, nearest: impl Iterator<Item = &'p Probe> + Clone) -> Option<Self> {
        let mut take = MOST_IN_WINDOW;
        loop {
            let mut probes = nearest.clone().take(take);
            let first = probes.next()?;
            let base = Base::of(first);
            let mut lines = Lines::of(trace.cut(base, first));
            let bad = probes.position(|probe| !lines.cut(trace.cut(base, probe)));
            if let Some(bad) = bad {
                take = (bad + 1).div_ceil(2);
                continue;
            }
            let trips = nearest.take(take).filter_map(Probe::round_trip_ns);
            let mut trips: Vec<u64> = trips.collect();
            trips.sort_unstable();
            let (round_trip_ns, usual_trip_ns) = (*trips.first()?, trips[trips.len() * 4 / 5]);
            return Some(Self { base, lines, round_trip_ns, usual_trip_ns });
        }
    }
}

impl<'t> Windows<'t> {
    fn of(trace: &Trace, probes: &'t [Probe]) -> Self {
        let count = probes.len();
        let within = |at: usize, here: &[&'t Probe], beyond: &[&'t Probe], least_ns: u64| {
            let span = |probe: &Probe| probe.sent.abs_diff(probes[at].sent);
            let kept = here.iter().take(MOST_IN_WINDOW).enumerate();
            let kept = kept.take_while(|(i, probe)| *i < SIDE || span(probe) <= STEADY_NS);
            let mut kept: Vec<&Probe> = kept.map(|(_, probe)| *probe).collect();
            let far = kept.iter().map(|probe| span(probe)).max().unwrap_or(0);
            for probe in beyond {
                if kept.len() >= SIDE && far + span(probe) > least_ns {
                    break;
                }
                kept.push(probe);
            }
            Window::of(trace, kept.into_iter())
        };
        // At the ends there is too little at one side. Much of the other is used where it would show a change of rate.
        let window = |at: usize, here: &[&'t Probe], beyond: &[&'t Probe]| {
            let long = within(at, here, beyond, LONG_NS)?;
            if long.usual_trip_ns <= SHARP_NS {
                Some(long)
            } else {
                within(at, here, beyond, LEAST_NS)
            }
        };
        let all: Vec<&Probe> = probes.iter().collect();
        let back: Vec<&Probe> = probes.iter().rev().collect();
        let before =
            (0..count).filter_map(|i| window(i, &back[count - 1 - i..], &all[i + 1..])).collect();
        let after = (0..count).filter_map(|i| window(i, &all[i..], &back[count - i..])).collect();
        Self { probes, before, after, hull: Hull::of(trace, probes) }
    }

    /// Instants between two probes at which the curve may bend, with both ends.
    fn cuts(&self, from: u64, to: u64, next: usize) -> Vec<u64> {
        let length = to.saturating_sub(from);
        let mut cuts = vec![from];
        if next > 0 && next < self.probes.len() && length > SHORT_NS {
            cuts.extend((1..BENDS).map(|i| from + length / BENDS * i));
        }
        cuts.push(to);
        cuts.dedup();
        cuts
    }

    /// Smallest and largest offset at an instant between the probe `next` and the one before it, in nanoseconds beyond
    /// `base`: what the lines on either side allow.
    fn range(&self, at: u64, next: usize, base: Base) -> (f64, f64) {
        let last = next.checked_sub(1);
        // What was under way may have stamps from both sides of a step.
        let home = last.and_then(|last| {
            let left = self.probes[last].sent;
            (0..last).rev().take(MOST_IN_WINDOW).find(|&i| self.probes[i].arrived <= left)
        });
        let before = [last, home].into_iter().flatten().filter_map(|i| self.before.get(i));
        let windows = before.chain(self.after.get(next));
        let wander = self.wander(at, next);
        let ranges = windows.map(|window| {
            let (low, high) = window.lines.at(window.base.seconds(at));
            let half = ((high - low) / 2.0).max(window.round_trip_ns as f64 / 2.0) + wander;
            let middle = (low + high) / 2.0 + difference_of(window.base.offset, base.offset);
            (middle - half, middle + half)
        });
        let lines = ranges.reduce(wider).unwrap_or_default();
        let hull = self.hull.at(at, next, base);
        let both = (lines.0.max(hull.0), lines.1.min(hull.1));
        if both.0 <= both.1 { both } else { lines }
    }

    /// Addition to a bound for the distance to the nearest probe, in nanoseconds.
    fn wander(&self, at: u64, next: usize) -> f64 {
        let near = [next.checked_sub(1), Some(next)].into_iter().flatten();
        let far = near.filter_map(|i| self.probes.get(i)).map(|probe| probe.sent.abs_diff(at));
        let far = far.min().unwrap_or(0);
        let alone = far.saturating_sub(STEADY_NS) as f64 / 1e9 * MOST_SKEW;
        far as f64 / 1e9 * WANDER + alone
    }
}

/// Smallest and largest offset of clocks that go apart by no more than clocks can, whatever their rates do meanwhile.
struct Hull {
    base: Base,
    /// Of each probe, the instant from which the limits count and the offset there, from the probes up to it.
    past: Vec<[(u64, f64); 2]>,
    /// The same from the probes behind it.
    future: Vec<[(u64, f64); 2]>,
}

impl Hull {
    fn of(trace: &Trace, probes: &[Probe]) -> Self {
        let base = Base::of(&probes[0]);
        let limits: Vec<[(u64, f64); 2]> = probes
            .iter()
            .map(|probe| {
                let cut = trace.cut(base, probe);
                [(probe.arrived, cut.least - 1.0), (probe.sent, cut.most + 1.0)]
            })
            .collect();
        let past = Self::scan(limits.iter());
        let mut future = Self::scan(limits.iter().rev());
        future.reverse();
        Self { base, past, future }
    }

    fn scan<'l>(limits: impl Iterator<Item = &'l [(u64, f64); 2]>) -> Vec<[(u64, f64); 2]> {
        let mut tightest: Option<[(u64, f64); 2]> = None;
        limits
            .map(|&[low, high]| {
                let now = tightest.map_or([low, high], |[least, most]| {
                    let worst = |a: u64, b: u64| a.abs_diff(b) as f64 / 1e9 * MOST_SKEW;
                    let keep_low = least.1 - worst(least.0, low.0) > low.1;
                    let keep_high = most.1 + worst(most.0, high.0) < high.1;
                    [if keep_low { least } else { low }, if keep_high { most } else { high }]
                });
                tightest = Some(now);
                now
            })
            .collect()
    }

    fn at(&self, at: u64, next: usize, base: Base) -> (f64, f64) {
        let moved = difference_of(self.base.offset, base.offset);
        let last = next.checked_sub(1).and_then(|i| self.past.get(i));
        let sides = last.into_iter().chain(self.future.get(next));
        sides.fold((f64::NEG_INFINITY, f64::INFINITY), |(low, high), [least, most]| {
            let worst = |from: u64| from.abs_diff(at) as f64 / 1e9 * MOST_SKEW;
            let (a, b) = (least.1 - worst(least.0), most.1 + worst(most.0));
            (low.max(a + moved), high.min(b + moved))
        })
    }
}

/// Skew over a stretch: from the lines through all of it where that is short, else from its two ends.
fn skew(trace: &Trace, windows: &Windows<'_>) -> Skew {
    let probes = windows.probes;
    let Some(last) = probes.last() else { return Skew::default() };
    let of = |range: Range<usize>| trace.lines_of(&probes[range]);
    let count = probes.len();
    if last.sent.saturating_sub(probes[0].sent) <= WINDOW_NS {
        let (low, high) = of(0..count).1.slopes();
        if low <= high {
            return Skew { ppm: (low + high) / 2e3, bound_ppm: (high - low) / 2e3 };
        }
    }
    let head = probes.partition_point(|probe| probe.sent < probes[0].sent + WINDOW_NS).max(1);
    let tail = probes.partition_point(|probe| probe.sent + WINDOW_NS < last.sent).min(count - 1);
    let ends = [(0..head, probes[0].sent, 0), (tail..count, last.sent, count)];
    let base = Base::of(&probes[0]);
    let [a, b] = ends.map(|(range, at, next)| {
        let (own, lines) = of(range);
        let (low, high) = lines.at(own.seconds(at));
        if low > high {
            // No line goes through all of them: what the nearest ones leave open.
            return windows.range(at, next, base);
        }
        let moved = difference_of(own.offset, base.offset);
        (low + moved, high + moved)
    });
    let seconds = (last.sent - probes[0].sent).max(1) as f64 / 1e9;
    Skew {
        ppm: (b.0 + b.1 - a.0 - a.1) / 2e3 / seconds,
        bound_ppm: (b.1 - b.0 + a.1 - a.0) / 2e3 / seconds,
    }
}

fn difference_of(a: i64, b: i64) -> f64 {
    (i128::from(a) - i128::from(b)) as f64
}

impl Piece {
    /// Smallest and largest offset at the ends of a time within one part, in nanoseconds beyond `base`; `None` where
    /// the piece does not hold.
    fn over(&self, from: u64, to: u64, base: Base) -> Option<[(f64, f64); 2]> {
        let part = self.parts.get(self.parts.partition_point(|part| part.to <= from))?;
        if from < part.from || to > part.to {
            return None;
        }
        let moved = difference_of(self.base.offset, base.offset);
        let length = (part.to - part.from) as f64;
        Some([from, to].map(|at| {
            let share = (at - part.from) as f64 / length;
            let between = |a: f64, b: f64| a + (b - a) * share + moved;
            let [a, b] = part.ends;
            (between(a.0, b.0), between(a.1, b.1))
        }))
    }
}

fn wider(x: (f64, f64), y: (f64, f64)) -> (f64, f64) {
    (x.0.min(y.0), x.1.max(y.1))
}

/// One curve from all pieces. Where two may hold, it covers both; where none does (the sender's clock jumped over
/// it), it leads from one to the other.
fn join(pieces: &[Piece]) -> Vec<Span> {
    let mut times: Vec<u64> = pieces
        .iter()
        .flat_map(|piece| piece.parts.iter().flat_map(|part| [part.from, part.to]))
        .collect();
    times.sort_unstable();
    times.dedup();
    let mut spans: Vec<Span> = Vec::with_capacity(times.len());
    for pair in times.windows(2) {
        let mut found: Option<(Base, [(f64, f64); 2])> = None;
        for piece in pieces {
            let base = found.map_or(piece.base, |(base, _)| base);
            let Some([a, b]) = piece.over(pair[0], pair[1], base) else { continue };
            let ends = found.map_or([a, b], |(_, ends)| [wider(ends[0], a), wider(ends[1], b)]);
            found = Some((base, ends));
        }
        match (found, spans.last()) {
            (Some((base, ends)), _) => {
                spans.push(Span::between(pair[0], pair[1], base.offset, ends));
            }
            (None, Some(before)) => spans.push(before.prolonged(pair[0])),
            (None, None) => {}
        }
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
            let [Some([a, _]), Some([b, _])] =
                [0, 1].map(|side: usize| sides[side].over(at, at, base))
            else {
                continue;
            };
            if a.0 <= b.1 && b.0 <= a.1 {
                continue;
            }
            crate::model::whole((b.0 + b.1 - a.0 - a.1) / 2.0)
        };
        steps.push(Step { from_unix_ns, until_unix_ns, by_ns });
    }
    steps
}
