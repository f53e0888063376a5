//! Which packets are made into lines at a time, and in which blocks they are.

use std::collections::{BTreeMap, BTreeSet};

use super::{Known, Packets, Range};

/// Records of a large flow that make up about one window: few, so that they stay in the processor's cache
/// from one step to the next.
const WINDOW_OF_FLOW: u64 = 1 << 13;
/// Records of each of several flows in a window, on average, from which on it pays to hand them on by themselves.
const WORTHWHILE: u64 = 1 << 10;
/// So many times the records that are enough for a window of several flows are too many.
const UNEVEN: u64 = 8;
/// Records of small flows that make up about one window.
const WINDOW_RECORDS: u64 = 1 << 17;
/// A flow of more records is windowed by sequence number.
pub(super) const LARGE: u64 = WINDOW_RECORDS / 4;

/// Blocks of a log that follow each other, by their places.
type Blocks = std::ops::Range<usize>;

/// Packets of a flow in a window.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slice {
    /// Place of the flow in the list of them.
    pub(super) flow: usize,
    /// Sequence numbers, both ends included.
    pub(super) first: u64,
    pub(super) last: u64,
}

impl Slice {
    /// All packets of a flow.
    const fn whole(flow: usize) -> Self {
        Self { flow, first: 0, last: u64::MAX }
    }
}

/// Packets whose lines are made at a time: a piece of the list, or one of each of several flows.
#[derive(Debug)]
pub(super) struct Window {
    pub(super) slices: Vec<Slice>,
    /// Logs, and blocks among which are all of the log that have packets of it. Of other logs all are looked at.
    pub(super) blocks: Vec<(usize, Blocks)>,
}

/// A block that has packets of a flow.
#[derive(Clone, Copy, Debug)]
struct Reach {
    /// Its place in the log.
    block: usize,
    /// The largest number in it and in those before it.
    most: u64,
    /// The smallest number in it and in those behind it.
    least: u64,
}

/// Reaches of blocks in the order of a log, each with the smallest and the largest number in it.
fn reach(blocks: impl Iterator<Item = (usize, u64, u64)>) -> Vec<Reach> {
    let mut most = 0;
    let up_to = |(block, least, last): (usize, u64, u64)| {
        most = last.max(most);
        Reach { block, most, least }
    };
    let mut reach: Vec<Reach> = blocks.map(up_to).collect();
    let mut least = u64::MAX;
    for reach in reach.iter_mut().rev() {
        least = reach.least.min(least);
        reach.least = least;
    }
    reach
}

/// Blocks among which are all that have numbers from `first` to `last`: no others, where numbers are in order.
fn among(reach: &[Reach], first: u64, last: u64) -> Blocks {
    let from = reach.partition_point(|reach| reach.most < first);
    let to = reach.partition_point(|reach| reach.least <= last);
    let blocks = reach.get(from..to).unwrap_or_default();
    let (Some(one), Some(other)) = (blocks.first(), blocks.last()) else { return 0..0 };
    one.block..other.block + 1
}

impl Packets<'_, '_> {
    /// The windows of all flows but these, in order.
    pub(super) fn plan(&self, without: &BTreeSet<usize>) -> Vec<Window> {
        let mut windows: Vec<Window> = Vec::new();
        let mut gathered = u64::MAX;
        for (at, (_, known)) in self.flows.iter().enumerate() {
            if without.contains(&at) {
                gathered = u64::MAX;
                continue;
            }
            if known.is_large() {
                windows.extend(self.cuts(at, known));
                gathered = u64::MAX;
                continue;
            }
            match windows.last_mut() {
                Some(window) if gathered.saturating_add(known.records) <= WINDOW_RECORDS => {
                    window.slices.push(Slice::whole(at));
                    gathered += known.records;
                }
                _ => {
                    windows.push(Window { slices: vec![Slice::whole(at)], blocks: Vec::new() });
                    gathered = known.records;
                }
            }
        }
        windows
    }

    /// The windows of one flow, cut where blocks begin and end.
    fn cuts(&self, at: usize, known: &Known) -> Vec<Window> {
        let mut cuts: Vec<u64> = Vec::new();
        for &(log, index) in &known.sources {
            let ranges = self.ranges(log, index);
            cuts.extend(ranges.flat_map(|(_, range)| [range.min, range.max.saturating_add(1)]));
        }
        cuts.sort_unstable();
        cuts.dedup();
        let windows = usize::try_from(known.records / WINDOW_OF_FLOW).unwrap_or(usize::MAX).max(1);
        let step = cuts.len().div_ceil(windows).max(1);
        let firsts: Vec<u64> = cuts.into_iter().step_by(step).collect();
        let lasts = firsts.iter().skip(1).map(|next| next - 1).chain([u64::MAX]);
        let slices = firsts.iter().zip(lasts).map(|(&first, last)| Slice { flow: at, first, last });
        self.windows(slices.map(|slice| vec![slice]).collect())
    }

    /// Windows of large flows that take turns in a log, and which flows these are. The logs that have most of them come
    /// first.
    pub(super) fn joint(&self) -> (Vec<Window>, BTreeSet<usize>) {
        let mut logs: BTreeMap<usize, (u64, BTreeMap<u32, usize>)> = BTreeMap::new();
        let flows = self.flows.iter().enumerate();
        for (at, (_, known)) in flows.filter(|(_, (_, known))| known.is_large()) {
            for &(log, index) in &known.sources {
                let (records, flows) = logs.entry(log).or_default();
                *records += self.ranges(log, index).map(|(_, range)| range.count).sum::<u64>();
                flows.insert(index, at);
            }
        }
        let mut logs: Vec<_> = logs.into_iter().collect();
        logs.sort_by_key(|(_, (records, _))| std::cmp::Reverse(*records));
        let (mut windows, mut done) = (Vec::new(), BTreeSet::new());
        for (log, (_, mut flows)) in logs {
            flows.retain(|_, at| !done.contains(at));
            if flows.len() > 1 {
                let enough = WINDOW_OF_FLOW.max(flows.len() as u64 * WORTHWHILE);
                let slices = self.turns(log, &flows, enough);
                if self.largest(&slices) <= UNEVEN * enough {
                    windows.extend(self.windows(slices));
                    done.extend(flows.into_values());
                }
            }
        }
        (windows, done)
    }

    /// Records of the largest of these windows, about: where other logs have other numbers, or numbers are out of order,
    /// it may be far larger than the rest.
    fn largest(&self, windows: &[Vec<Slice>]) -> u64 {
        let mut firsts: BTreeMap<usize, Vec<(u64, usize)>> = BTreeMap::new();
        for (window, slices) in windows.iter().enumerate() {
            for slice in slices {
                firsts.entry(slice.flow).or_default().push((slice.first, window));
            }
        }
        let mut records = vec![0; windows.len()];
        for (flow, firsts) in firsts {
            for &(log, index) in &self.flows[flow].1.sources {
                for (_, range) in self.ranges(log, index) {
                    let slices = firsts.partition_point(|(first, _)| *first <= range.min);
                    let (_, window) = firsts[slices.saturating_sub(1)];
                    records[window] += range.count;
                }
            }
        }
        records.into_iter().max().unwrap_or(0)
    }

    /// The packets of a flow in each block of a log that has some, and the place of the block.
    fn ranges(&self, log: usize, index: u32) -> impl Iterator<Item = (usize, &Range)> {
        let blocks = self.ranges[log].iter().enumerate();
        blocks.filter_map(move |(block, ranges)| {
            let at = ranges.binary_search_by_key(&index, |range| range.index).ok()?;
            Some((block, &ranges[at]))
        })
    }

    /// The slices of each window of flows that take turns in a log, given by their indices there.
    fn turns(&self, log: usize, flows: &BTreeMap<u32, usize>, enough: u64) -> Vec<Vec<Slice>> {
        // What comes next of each flow: the first number, and the one behind the last.
        let mut next: BTreeMap<usize, (u64, u64)> =
            flows.values().map(|&at| (at, (0, 0))).collect();
        let (mut windows, mut records) = (Vec::new(), 0);
        for range in
            self.ranges[log].iter().flat_map(|ranges| ranges.iter().map(Some).chain([None]))
        {
            let Some(range) = range else {
                // A block ends.
                if records >= enough {
                    let slices = next.iter_mut().filter_map(|(&flow, (first, end))| {
                        let slice = Slice { flow, first: *first, last: end.checked_sub(1)? };
                        (*first < *end).then(|| {
                            *first = *end;
                            slice
                        })
                    });
                    windows.push(slices.collect::<Vec<_>>());
                    records = 0;
                }
                continue;
            };
            if let Some((_, end)) = flows.get(&range.index).and_then(|at| next.get_mut(at)) {
                *end = range.max.saturating_add(1).max(*end);
                records += range.count;
            }
        }
        let rest = next.into_iter().map(|(flow, (first, _))| Slice { flow, first, last: u64::MAX });
        windows.push(rest.collect());
        windows.retain(|slices| !slices.is_empty());
        windows
    }

    /// Windows of these slices of large flows, each with the blocks that it looks at.
    fn windows(&self, slices: Vec<Vec<Slice>>) -> Vec<Window> {
        let mut reaches: BTreeMap<usize, Vec<(usize, Vec<Reach>)>> = BTreeMap::new();
        let mut window = |slices: Vec<Slice>| {
            let mut blocks: BTreeMap<usize, Blocks> = BTreeMap::new();
            for &Slice { flow, first, last } in &slices {
                let reaches = reaches.entry(flow).or_insert_with(|| {
                    let sources = self.flows[flow].1.sources.iter();
                    sources.map(|&(log, index)| (log, self.reach(log, index))).collect()
                });
                for (log, reach) in reaches {
                    let Blocks { start, end } = among(reach, first, last);
                    let all = blocks.entry(*log).or_insert(Blocks { start: usize::MAX, end: 0 });
                    if start < end {
                        *all = start.min(all.start)..end.max(all.end);
                    }
                }
            }
            Window { slices, blocks: blocks.into_iter().collect() }
        };
        slices.into_iter().map(&mut window).collect()
    }

    /// The blocks of a log that have packets of a flow.
    fn reach(&self, log: usize, index: u32) -> Vec<Reach> {
        reach(self.ranges(log, index).map(|(block, range)| (block, range.min, range.max)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_block_of_a_window_is_looked_at(
            blocks in prop::collection::vec((0..3_usize, 0..40_u64, 0..6_u64), 0..12),
            first in 0..45_u64,
            wide in 0..8_u64,
            in_order: bool,
        ) {
            let last = first + wide;
            let mut at = 0;
            let numbered = blocks.into_iter().map(|(skip, least, more)| {
                at += skip + 1;
                (at, least, least + more)
            });
            let mut blocks: Vec<_> = numbered.collect();
            if in_order {
                let mut ends: Vec<u64> = blocks.iter().flat_map(|b| [b.1, b.2]).collect();
                ends.sort_unstable();
                for (block, ends) in blocks.iter_mut().zip(ends.chunks(2)) {
                    (block.1, block.2) = (ends[0], ends[1]);
                }
            }
            let looked_at = among(&reach(blocks.iter().copied()), first, last);
            let its: Vec<_> = blocks.iter().filter(|b| b.1 <= last && first <= b.2).map(|b| b.0).collect();
            prop_assert!(its.iter().all(|block| looked_at.contains(block)));
            if in_order {
                let end = its.last().map_or(0, |block| block + 1);
                prop_assert_eq!(looked_at, its.first().copied().unwrap_or(0)..end);
            }
        }
    }
}
