//! Splits probes at steps and changes of rate: into stretches that straight lines explain.

use std::ops::Range;

use itg_core::units::signed_difference;

use crate::fit::{Cut, Lines};
use crate::probe::{JUMP_NS, Probe, WINDOW_NS};

/// Probes that a window has at least, if there are as many.
const FEWEST: usize = 8;
/// Probes that must agree with each other against one for that one to be left out.
const WITNESSES: usize = 3;

/// Largest unit of a clock: 10 ms, a tick of the slowest kernels.
const LARGEST_UNIT_NS: u64 = 10_000_000;

/// Probes in order, without those that make no sense.
#[derive(Debug)]
pub(crate) struct Trace {
    pub(crate) probes: Vec<Probe>,
    /// Number of probes left out for their stamps.
    pub(crate) refused: usize,
    /// Units of the stamps of sender and receiver, in nanoseconds.
    units_ns: [u64; 2],
}

/// An instant of the sender's clock and an offset, from which small numbers count.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Base {
    pub(crate) at: u64,
    pub(crate) offset: i64,
}

impl Base {
    pub(crate) fn of(probe: &Probe) -> Self {
        Self { at: probe.sent, offset: signed_difference(probe.received, probe.sent) }
    }

    pub(crate) fn seconds(self, at: u64) -> f64 {
        signed_difference(at, self.at) as f64 / 1e9
    }

    pub(crate) fn cut(self, probe: &Probe) -> Cut {
        let offset = |receiver: u64, sender: u64| {
            (i128::from(receiver) - i128::from(sender) - i128::from(self.offset)) as f64
        };
        Cut {
            left: self.seconds(probe.sent),
            most: offset(probe.received, probe.sent),
            came: self.seconds(probe.arrived),
            least: offset(probe.replied, probe.arrived),
        }
    }
}

impl Trace {
    pub(crate) fn new(probes: Vec<Probe>, refused: usize) -> Self {
        let units_ns = [
            unit(probes.iter().flat_map(|probe| [probe.sent, probe.arrived])),
            unit(probes.iter().flat_map(|probe| [probe.received, probe.replied])),
        ];
        Self { probes, refused, units_ns }
    }

    /// The larger unit of the stamps of both sides, in nanoseconds.
    pub(crate) fn unit_ns(&self) -> u64 {
        self.units_ns[0].max(self.units_ns[1])
    }

    /// A probe against a base. Stamps are cut off to whole units: a clock showed up to one more.
    pub(crate) fn cut(&self, base: Base, probe: &Probe) -> Cut {
        let cut = base.cut(probe);
        let [sender, receiver] = self.units_ns.map(|unit| unit as f64);
        Cut { most: cut.most + receiver, least: cut.least - sender, ..cut }
    }

    /// The lines that explain a range of probes; none when there are none.
    pub(crate) fn lines(&self, range: Range<usize>) -> (Base, Lines) {
        self.lines_of(&self.probes[range])
    }

    /// The lines that explain some probes.
    pub(crate) fn lines_of(&self, probes: &[Probe]) -> (Base, Lines) {
        let base = Base::of(&probes[0]);
        let mut lines = Lines::of(self.cut(base, &probes[0]));
        for probe in &probes[1..] {
            if !lines.cut(self.cut(base, probe)) {
                break;
            }
        }
        (base, lines)
    }

    /// The stretches that clocks with steady rates explain, in order. Probes between two of them may belong to
    /// either. Leaves out single probes that their neighbours agree to be wrong.
    pub(crate) fn stretches(&mut self) -> Vec<Range<usize>> {
        let mut stretches = Vec::new();
        let mut first = 0;
        while first < self.probes.len() {
            let unset = self.unset_until(first);
            // A probe that was under way when a clock was set has stamps from both sides of the step.
            let mut begin = first + usize::from(self.set_before(first)[1]);
            let mut end = unset - usize::from(self.set_before(unset)[0]);
            let left_out = unset - end;
            if begin < end {
                while let Some(bad) = self.contradiction(begin, &mut end) {
                    // How far back the line reaches that explains what follows.
                    let follows = self.explained_from(bad, end);
                    let (base, mut lines) = self.lines(bad..follows);
                    let mut reach = bad;
                    while reach > begin + 1 && lines.cut(self.cut(base, &self.probes[reach - 1])) {
                        reach -= 1;
                    }
                    stretches.push(begin..reach);
                    begin = bad;
                }
                stretches.push(begin..end);
            }
            first = end + left_out;
        }
        stretches
    }

    /// The first probe behind `first` before which a clock was set, as the monotonic clocks tell.
    fn unset_until(&self, first: usize) -> usize {
        let all = self.probes.len();
        (first + 1..all).find(|&at| self.set_before(at) != [false; 2]).unwrap_or(all)
    }

    /// For sender and receiver, true if its clock was set since the probe before this one.
    fn set_before(&self, at: usize) -> [bool; 2] {
        let (Some(before), Some(after)) = (at.checked_sub(1), self.probes.get(at)) else {
            return [false; 2];
        };
        let (before, after) = (self.probes[before].shifts(), after.shifts());
        [0, 1].map(|host| (after[host] - before[host]).unsigned_abs() > u128::from(JUMP_NS))
    }

    /// The first probe that no line through those of the window before it explains. Single liars are taken
    /// out on the way, which brings `end` nearer.
    fn contradiction(&mut self, begin: usize, end: &mut usize) -> Option<usize> {
        let mut start = begin;
        let (mut base, mut lines) = self.lines(begin..begin + 1);
        let mut at = begin + 1;
        while at < *end {
            if self.probes[at].sent.saturating_sub(self.probes[start].sent) > WINDOW_NS {
                let recent = self.probes[at].sent - WINDOW_NS / 2;
                let behind = self.probes[start..at].partition_point(|probe| probe.sent < recent);
                let next = (start + behind).min(at.saturating_sub(FEWEST)).max(start);
                if next > start {
                    start = next;
                    (base, lines) = self.lines(start..at);
                }
            }
            let cut = self.cut(base, &self.probes[at]);
            if lines.allow(cut) {
                lines.cut(cut);
                at += 1;
            } else if self.is_liar(at, *end, base, &lines) {
                self.probes.remove(at);
                self.refused += 1;
                *end -= 1;
            } else {
                return Some(at);
            }
        }
        None
    }

    /// Returns true if the probes that follow this one agree with those before it and not with it.
    fn is_liar(&self, at: usize, end: usize, base: Base, lines: &Lines) -> bool {
        let Some(next) = self.probes[..end].get(at + 1..at + 1 + WITNESSES) else { return false };
        let mut with_those_before = lines.clone();
        let own = Base::of(&self.probes[at]);
        let mut with_it = Lines::of(self.cut(own, &self.probes[at]));
        let (mut before, mut it) = (true, true);
        for probe in next {
            before &= with_those_before.cut(self.cut(base, probe));
            it &= with_it.cut(self.cut(own, probe));
        }
        before && !it
    }

    /// The end of the probes from `from` on that lines explain together, within half a window.
    fn explained_from(&self, from: usize, end: usize) -> usize {
        let until = self.probes[from].sent.saturating_add(WINDOW_NS / 2);
        let (base, mut lines) = self.lines(from..from + 1);
        let mut to = from + 1;
        while to < end
            && self.probes[to].sent <= until
            && lines.cut(self.cut(base, &self.probes[to]))
        {
            to += 1;
        }
        to
    }
}

/// Unit of stamps, in nanoseconds: the largest number that divides all of them. Some clocks tick.
fn unit(stamps: impl Iterator<Item = u64>) -> u64 {
    stamps.fold(0, gcd).clamp(1, LARGEST_UNIT_NS)
}

const fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}
