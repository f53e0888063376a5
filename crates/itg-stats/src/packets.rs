//! One line a packet, joined over the logs of both sides on (run, flow, sequence number).
//!
//! Each arrival is one line (a duplicate is a second one); a packet that never arrived has a line of
//! its own. In a flow that measures round trips the arrivals are the replies, when the sender's log is
//! given.
//!
//! The lines are made window by window, and windows are independent of each other: each has a stretch of sequence
//! numbers of one flow, or some small flows as a whole; where all lines are kept, a stretch of each of the large flows
//! that take turns in a log. Which blocks have numbers of a window is known from a first pass, so that a log of one flow
//! in order is read twice and no more. Memory holds some windows and some 50 bytes a block and flow; in logs of more than
//! [`FEW_FLOWS`] flows that is kept of the large ones only, after one more pass that finds them.

mod windows;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use itg_clocks::ClockModel;
use itg_core::flow::Meter;
use itg_record::{Kind, Record, Side, flag};
use serde::Serialize;

use crate::clocks::Clocks;
use crate::exec::{Executor, collect};
use crate::in_order::in_order;
use crate::logs::{Key, Log, Stored};
use crate::stats::delay_of;
use windows::{LARGE, Slice, Window};

/// In logs of more flows than this only large ones are windowed by sequence number.
const FEW_FLOWS: usize = 64;
/// Ranges of large flows that are kept at most, with one in each block: 32 MiB.
const MOST_RANGES: usize = 1 << 20;

/// Known fields of one packet. Times but `planned_ns` are Unix nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct PacketLine<'r> {
    /// Number of the flow.
    pub flow: u32,
    /// Sequence number, from 0.
    pub seq: u64,
    /// Size in bytes.
    pub size_bytes: u32,
    /// Planned, from the start of the flow; as the sender's log says.
    pub planned_ns: Option<u64>,
    /// Given to the kernel; as the sender's log says, else as the packet says.
    pub sent_ns: Option<u64>,
    /// Arrived.
    pub arrived_ns: Option<u64>,
    /// Read by the program that received it.
    pub read_ns: Option<u64>,
    /// Delay as in the report: arrived − sent, less what the receiver's clock was ahead, where that is known.
    pub delay_ns: Option<i64>,
    /// Run id; empty where nothing says it.
    pub run: &'r str,
}

/// A flow of a run, whichever side.
type Flow<'l> = (u32, &'l str);

/// Results of the first pass on a flow.
#[derive(Debug, Default)]
struct Known {
    /// Number of the log and index of the flow in it.
    sources: Vec<(usize, u32)>,
    /// Of each source, how far the receiver's clock is ahead, where that is known and not 0.
    clocks: Vec<Option<Arc<ClockModel>>>,
    round_trip: bool,
    sent: bool,
    echoed: bool,
    records: u64,
    /// True if the ranges of all its blocks are known.
    ranged: bool,
}

impl Known {
    /// Returns true if it is windowed by sequence number.
    const fn is_large(&self) -> bool {
        self.ranged && self.records > LARGE
    }

    /// Returns true if its arrivals are the replies at the sender.
    const fn lists_replies(&self) -> bool {
        self.round_trip && self.sent || self.echoed
    }
}

/// Packets of one flow in a block.
#[derive(Clone, Copy, Debug)]
struct Range {
    index: u32,
    sent: bool,
    echoed: bool,
    count: u64,
    min: u64,
    max: u64,
}

impl Range {
    /// Adds another stretch of the same flow.
    fn join(&mut self, other: &Self) {
        self.sent |= other.sent;
        self.echoed |= other.echoed;
        self.count += other.count;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }
}

/// All packets of the logs, ready to be listed.
#[derive(Debug)]
pub(crate) struct Packets<'l, 'a> {
    logs: &'l [Log<'a>],
    flows: Vec<(Flow<'l>, Known)>,
    /// By log and block.
    ranges: Vec<Vec<Vec<Range>>>,
}

impl<'l, 'a> Packets<'l, 'a> {
    /// Takes stock of the records.
    pub(crate) fn new(
        logs: &'l [Log<'a>],
        clocks: &Clocks,
        executor: &dyn Executor,
        wants: impl Fn(&Log<'_>, u32, &Key) -> bool,
    ) -> Self {
        let mut flows: BTreeMap<Flow<'l>, Known> = BTreeMap::new();
        let mut ranges = Vec::new();
        for (number, log) in logs.iter().enumerate() {
            let large = large_flows(log, executor);
            let whole = |index: u32| large.as_ref().is_some_and(|large| !large.contains(&index));
            let side = log.side();
            let surveyed = by_group(log, executor, |blocks| {
                let mut rest: BTreeMap<u32, Range> = BTreeMap::new();
                let ranges = blocks.iter().map(|block| {
                    let mut ranges = survey(block);
                    ranges.retain(|range| {
                        if whole(range.index) {
                            let all = rest.entry(range.index);
                            all.and_modify(|all| all.join(range)).or_insert(*range);
                        }
                        !whole(range.index)
                    });
                    ranges
                });
                (ranges.collect::<Vec<_>>(), rest)
            });
            let (mut blocks, mut rest) = (Vec::new(), Vec::new());
            for (ranges, others) in surveyed {
                blocks.extend(ranges);
                rest.extend(others.into_values());
            }
            let mut indices: BTreeMap<u32, bool> = BTreeMap::new();
            for range in blocks.iter().flatten().chain(&rest) {
                let key = || log.key(range.index, side);
                let wanted =
                    *indices.entry(range.index).or_insert_with(|| wants(log, range.index, &key()));
                if !wanted {
                    continue;
                }
                let known = flows
                    .entry((key().flow, log.run(range.index)))
                    .or_insert_with(|| Known { ranged: true, ..Known::default() });
                if !known.sources.contains(&(number, range.index)) {
                    known.sources.push((number, range.index));
                    known.round_trip |= log.meter(range.index) == Meter::Rtt;
                    let info = log.flows.get(&range.index);
                    let model = info.and_then(|info| clocks.correcting(info, Side::Receiver));
                    known.clocks.push(model);
                }
                known.sent |= range.sent;
                known.echoed |= range.echoed;
                known.records += range.count;
                known.ranged &= !whole(range.index);
            }
            ranges.push(blocks);
        }
        Self { logs, flows: flows.into_iter().collect(), ranges }
    }

    /// Makes something of the lines of each window, on any thread, and hands it on in order: by flow, run
    /// and sequence number, then by arrival. Stops at the first error of `each`.
    pub(crate) fn for_each<T: Send, E: Send>(
        &self,
        executor: &dyn Executor,
        make: &(dyn Fn(&[PacketLine<'l>]) -> T + Sync),
        each: &mut (dyn FnMut(T) -> Result<(), E> + Send),
    ) -> Result<(), E> {
        let windows = self.plan(&BTreeSet::new());
        self.expect(executor);
        let make = |own: &mut Lines<'l>, at: usize| {
            let Lines { sides, lines } = own;
            self.fill(&windows[at], executor, sides);
            self.lines(&windows[at].slices, sides, lines);
            make(lines)
        };
        in_order(executor, windows.len(), &make, each)
    }

    /// Makes something of the lines of each piece, on any thread, and returns all of it in the same order. A log is gone
    /// through once for all large flows in it, where [`Packets::for_each`] does it for each.
    pub(crate) fn collect<T: Send>(
        &self,
        executor: &dyn Executor,
        make: &(dyn Fn(&[PacketLine<'l>]) -> T + Sync),
    ) -> Vec<T> {
        let (mut windows, in_turns) = self.joint();
        let joint = windows.len();
        windows.extend(self.plan(&in_turns));
        self.expect(executor);
        let make = |own: &mut Lines<'l>, at: usize| -> Vec<(usize, T)> {
            let Lines { sides, lines } = own;
            let slices = &windows[at].slices;
            self.fill(&windows[at], executor, sides);
            let pieces = if at < joint { 1 } else { slices.len() };
            let mut made = Vec::new();
            for (slices, sides) in slices.chunks(pieces).zip(sides.chunks_mut(pieces)) {
                self.lines(slices, sides, lines);
                if !lines.is_empty() {
                    made.push((slices[0].flow, make(lines)));
                }
            }
            made
        };
        let mut all = Vec::new();
        let mut append = |mut made: Vec<(usize, T)>| {
            all.append(&mut made);
            Ok::<(), std::convert::Infallible>(())
        };
        let Ok(()) = in_order(executor, windows.len(), &make, &mut append);
        // Pieces of one flow are in their order.
        all.sort_by_key(|&(flow, _)| flow);
        all.into_iter().map(|(_, made)| made).collect()
    }

    /// All logs will be passed, once where nothing takes turns.
    fn expect(&self, executor: &dyn Executor) {
        let blocks = self.logs.iter().flat_map(|log| &log.blocks);
        executor.expect(blocks.map(|block| block.bytes().len() as u64).sum());
    }

    /// Takes the records of a window: of each slice into the sides at its place.
    fn fill(&self, window: &Window, executor: &dyn Executor, sides: &mut Vec<Sides>) {
        let slices = &window.slices;
        sides.resize_with(sides.len().max(slices.len()), Sides::default);
        // Which slice an index of a log belongs to, and which source of the flow it is.
        let mut targets: BTreeMap<usize, BTreeMap<u32, Target>> = BTreeMap::new();
        for (at, slice) in slices.iter().enumerate() {
            let known = &self.flows[slice.flow].1;
            let replies = known.lists_replies();
            for (source, &(log, index)) in (0..).zip(&known.sources) {
                let target = Target { at, source, replies, first: slice.first, last: slice.last };
                targets.entry(log).or_default().insert(index, target);
            }
        }
        let ranged = slices.iter().all(|slice| self.flows[slice.flow].1.ranged);
        for (&log, targets) in &targets {
            let inside = |range: &Range| {
                let target = targets.get(&range.index);
                target.is_some_and(|target| range.min <= target.last && target.first <= range.max)
            };
            let blocks = &self.logs[log].blocks;
            let known = window.blocks.iter().find(|(of, _)| *of == log);
            let looked_at = known.map_or(0..blocks.len(), |(_, blocks)| blocks.clone());
            let wanted = |at: &usize| !ranged || self.ranges[log][*at].iter().any(inside);
            for (stretch, bytes) in self.logs[log].stretches(looked_at.filter(wanted)) {
                executor.coming(bytes);
                for block in &blocks[stretch] {
                    gather(block, targets, sides);
                }
                executor.leaving(bytes);
                executor.passed(bytes);
            }
        }
    }

    /// Makes lines of the records of these slices.
    fn lines(&self, slices: &[Slice], sides: &mut [Sides], lines: &mut Vec<PacketLine<'l>>) {
        lines.clear();
        for (slice, sides) in slices.iter().zip(sides) {
            let (flow, known) = &self.flows[slice.flow];
            let clocks = if known.lists_replies() { &[][..] } else { &known.clocks };
            sides.drain(*flow, clocks, lines);
        }
    }
}

/// A pass over the blocks of a log, some that lie side by side at a time.
fn by_group<'a, T: Send>(
    log: &Log<'a>,
    executor: &dyn Executor,
    task: impl Fn(&[Stored<'a>]) -> T + Sync,
) -> Vec<T> {
    let groups = log.stretches(0..log.blocks.len());
    executor.expect(groups.iter().map(|(_, bytes)| bytes.len() as u64).sum());
    collect(executor, groups.len(), |at| {
        let (blocks, bytes) = &groups[at];
        executor.coming(bytes);
        let found = task(&log.blocks[blocks.clone()]);
        executor.leaving(bytes);
        executor.passed(bytes);
        found
    })
}

/// In a log of many flows those of more records than a window, as far as their ranges fit; `None` in a log
/// of few.
fn large_flows(log: &Log<'_>, executor: &dyn Executor) -> Option<BTreeSet<u32>> {
    if log.flows.len() <= FEW_FLOWS {
        return None;
    }
    let counted = by_group(log, executor, |blocks| {
        let mut counts: BTreeMap<u32, u64> = BTreeMap::new();
        for range in blocks.iter().flat_map(survey) {
            *counts.entry(range.index).or_default() += range.count;
        }
        counts
    });
    let mut counts: BTreeMap<u32, u64> = BTreeMap::new();
    for (index, count) in counted.into_iter().flatten() {
        *counts.entry(index).or_default() += count;
    }
    let mut large: Vec<(u64, u32)> =
        counts.into_iter().map(|(index, count)| (count, index)).collect();
    large.retain(|(count, _)| *count > LARGE);
    large.sort_unstable();
    large.reverse();
    large.truncate(MOST_RANGES / log.blocks.len().max(1));
    Some(large.into_iter().map(|(_, index)| index).collect())
}

/// Ranges of each flow in a block, by its index.
fn survey(block: &Stored<'_>) -> Vec<Range> {
    let mut found: Vec<Range> = Vec::new();
    let mut places: BTreeMap<u32, usize> = BTreeMap::new();
    let mut at = usize::MAX;
    block.records().for_each(|record| {
        if found.get(at).is_none_or(|range| range.index != record.flow) {
            at = *places.entry(record.flow).or_insert(found.len());
            if at == found.len() {
                let (index, min, max) = (record.flow, u64::MAX, 0);
                found.push(Range { index, sent: false, echoed: false, count: 0, min, max });
            }
        }
        let range = &mut found[at];
        range.count += 1;
        range.min = range.min.min(record.seq);
        range.max = range.max.max(record.seq);
        range.sent |= record.kind == Kind::Sent;
        range.echoed |= record.kind == Kind::Echoed;
    });
    found.sort_unstable_by_key(|range| range.index);
    found
}

/// The slice that an index of a log belongs to.
#[derive(Clone, Copy, Debug)]
struct Target {
    /// Its place in the window.
    at: usize,
    /// Number of the source among those of its flow.
    source: u32,
    /// True if the arrivals of its flow are the replies at the sender.
    replies: bool,
    first: u64,
    last: u64,
}

/// Puts the records of a block that belong to a window where they belong.
fn gather(block: &Stored<'_>, targets: &BTreeMap<u32, Target>, sides: &mut [Sides]) {
    let mut current: Option<(u32, Option<Target>)> = None;
    block.records().for_each(|mut record| {
        let target = match current {
            Some((index, target)) if index == record.flow => target,
            _ => {
                let target = targets.get(&record.flow).copied();
                current = Some((record.flow, target));
                target
            }
        };
        let Some(target) =
            target.filter(|target| (target.first..=target.last).contains(&record.seq))
        else {
            return;
        };
        let side = &mut sides[target.at];
        record.flow = target.source;
        match record.kind {
            Kind::Sent => side.sent.push(record),
            Kind::Received if !target.replies => side.arrived.push(record),
            Kind::Echoed if target.replies => side.arrived.push(record),
            Kind::Received | Kind::Echoed => {}
        }
    });
}

/// Room for the lines of a window and what they are made of.
#[derive(Debug, Default)]
struct Lines<'l> {
    sides: Vec<Sides>,
    lines: Vec<PacketLine<'l>>,
}

/// The records of a flow in a window; each has the number of its source in the place of the flow's.
#[derive(Debug, Default)]
struct Sides {
    sent: Vec<Record>,
    arrived: Vec<Record>,
}

impl Sides {
    /// Makes lines of them and leaves none.
    fn drain<'l>(
        &mut self,
        flow: Flow<'l>,
        clocks: &[Option<Arc<ClockModel>>],
        lines: &mut Vec<PacketLine<'l>>,
    ) {
        let (mut source, mut near) = (0, 0);
        let mut arrival = |record: &Record| {
            if record.flow != source {
                (source, near) = (record.flow, 0);
            }
            let clock = clocks.get(source as usize).and_then(Option::as_deref);
            let delay_ns = delay_of(record, clock, &mut near);
            PacketLine { delay_ns, ..PacketLine::arrival(flow, record) }
        };
        lines.reserve(self.sent.len().max(self.arrived.len()));
        for records in [&mut self.arrived, &mut self.sent] {
            // Mostly they are, and a sort takes memory before it looks.
            if !records.is_sorted_by_key(|record| (record.seq, record.b)) {
                records.sort_by_key(|record| (record.seq, record.b));
            }
        }
        let mut arrived = self.arrived.drain(..).peekable();
        for sent in self.sent.drain(..) {
            while let Some(stray) = arrived.next_if(|record| record.seq < sent.seq) {
                lines.push(arrival(&stray));
            }
            let line = PacketLine::departure(flow, &sent);
            let before = lines.len();
            while let Some(record) = arrived.next_if(|record| record.seq == sent.seq) {
                let PacketLine { planned_ns, sent_ns, .. } = line;
                lines.push(PacketLine { planned_ns, sent_ns, ..arrival(&record) });
            }
            if lines.len() == before {
                lines.push(line);
            }
        }
        lines.extend(arrived.map(|record| arrival(&record)));
    }
}

impl<'r> PacketLine<'r> {
    fn departure((flow, run): Flow<'r>, record: &Record) -> Self {
        Self {
            flow,
            seq: record.seq,
            size_bytes: record.size,
            planned_ns: (record.flags & flag::UNPLANNED == 0).then_some(record.a),
            sent_ns: Some(record.b),
            arrived_ns: None,
            read_ns: None,
            delay_ns: None,
            run,
        }
    }

    fn arrival((flow, run): Flow<'r>, record: &Record) -> Self {
        let read = record.b.checked_add(u64::from(record.delta));
        Self {
            flow,
            seq: record.seq,
            size_bytes: record.size,
            planned_ns: None,
            sent_ns: (record.a != 0).then_some(record.a),
            arrived_ns: Some(record.b),
            read_ns: read.filter(|_| record.flags & flag::DELTA_SATURATED == 0),
            delay_ns: None,
            run,
        }
    }
}
