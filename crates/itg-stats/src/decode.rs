//! Records to figures, in pieces that run side by side.
//!
//! A log is cut into as many stretches of blocks as there are threads, and each stretch is added up
//! by itself; then the parts of each flow are appended in the order of the log. That is exact when
//! every sequence number before the cut is smaller than every one behind it. So within the block at
//! which a log is cut, each flow has a cut of its own: the first place where that is so. Where a flow
//! has none (a duplicate or a late packet from far away), its parts do not fit and it is added up once
//! more, record by record.
//!
//! Parts are more than threads, so that no thread waits long for another one at the end.
//!
//! A log of many flows is not cut, since each part of each flow has histograms; its flows are dealt
//! out instead. Either way memory holds flows × threads at most, and not packets.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use itg_record::{Kind, RawRecord, Record, Side};

use crate::exec::{Executor, collect};
use crate::logs::{Log, Stored};
use crate::stats::{FlowStats, Lane, Setup};

/// Fewer records than this are not worth another thread.
const WORTHWHILE: u64 = 1 << 15;
/// Logs of more flows than this are dealt out by flow.
const FEW_FLOWS: usize = 16;
/// Records that are taken out of a block at once.
const SOME: usize = 256;
/// Parts for each thread, as far as the flows are few.
const PARTS_EACH: usize = 4;
/// Parts of flows of a log, each with histograms.
const PARTS_OF_FLOWS: usize = 32;
/// Blocks that a task looks through for the earliest packet.
const LOOK_BLOCKS: usize = 32;

/// A piece of work on one log.
#[derive(Debug)]
struct Piece {
    log: usize,
    lane: Lane,
    blocks: Range<usize>,
    /// Cuts of the first block and of the block behind the last one.
    from: Option<Cut>,
    to: Option<Cut>,
    /// Takes flows whose index leaves this remainder when divided by the other number.
    share: (u32, u32),
}

/// For each flow in a block, departures (`true`) or arrivals: number of its first records that
/// belong to the stretch before.
type Cut = BTreeMap<(u32, bool), usize>;

/// The figures of the flows of a log, by the flow's index in it. Each lies by itself: a node of the map has room for
/// many, and most logs of a directory have one flow.
pub(crate) type Decoded = BTreeMap<u32, Box<FlowStats>>;

/// Task of a pass: how to set up each flow of each log; `None` leaves the flow out.
pub(crate) struct Pass<'p, 'a> {
    pub(crate) logs: &'p [Log<'a>],
    pub(crate) setup: &'p (dyn Fn(usize, u32, Lane) -> Option<Setup> + Sync),
    pub(crate) executor: &'p dyn Executor,
}

impl Pass<'_, '_> {
    /// Adds up all logs. Flows of `planned` (log and index) get their departures computed again; with
    /// `arrivals` unset, nothing but that is done.
    pub(crate) fn run(&self, planned: &BTreeSet<(usize, u32)>, arrivals: bool) -> Vec<Decoded> {
        let mut pieces = Vec::new();
        for log in 0..self.logs.len() {
            // The longest first: they cannot be cut.
            pieces.extend(self.plan_pieces(log, planned));
        }
        if arrivals {
            (0..self.logs.len()).for_each(|log| pieces.extend(self.cut(log)));
        }
        let bytes =
            pieces.iter().flat_map(|piece| &self.logs[piece.log].blocks[piece.blocks.clone()]);
        self.executor.expect(bytes.map(|block| block.bytes().len() as u64).sum());
        let results = collect(self.executor, pieces.len(), |number| self.decode(&pieces[number]));
        let mut all: Vec<_> = self.logs.iter().map(|_| Decoded::new()).collect();
        let (mut plans, mut whole) = (Vec::new(), BTreeSet::new());
        for (piece, result) in pieces.iter().zip(results) {
            if piece.lane == Lane::Plan {
                plans.extend(result.into_iter().map(|(index, stats)| (piece.log, index, stats)));
                continue;
            }
            for (index, part) in result {
                let source = (piece.log, index);
                if whole.contains(&source) {
                    continue;
                }
                let stats = match all[piece.log].entry(index) {
                    Entry::Vacant(place) => {
                        place.insert(part);
                        continue;
                    }
                    Entry::Occupied(stats) => stats.into_mut(),
                };
                if !stats.append(*part)
                    && let Some(again) = self.one_by_one(&[source], Lane::Arrivals)
                {
                    **stats = again;
                    whole.insert(source);
                }
            }
        }
        for (log, index, plan) in plans {
            match all[log].entry(index) {
                Entry::Occupied(stats) => stats.into_mut().adopt_departures(*plan),
                Entry::Vacant(place) => {
                    place.insert(plan);
                }
            }
        }
        all
    }

    /// All records of one flow, each log in its own order: packets sent by their numbers, since owners' clocks differ,
    /// and arrivals by their times.
    pub(crate) fn one_by_one(&self, sources: &[(usize, u32)], lane: Lane) -> Option<FlowStats> {
        let (log, index) = *sources.first()?;
        let mut stats = FlowStats::new((self.setup)(log, index, lane)?);
        for sent in [true, false] {
            let all = sources.iter().map(|&(log, index)| {
                let wanted = move |r: &Record| r.flow == index && (r.kind == Kind::Sent) == sent;
                let all = self.logs[log].blocks.iter().flat_map(|block| block.records());
                let mut records = all.filter(wanted);
                (records.next(), records)
            });
            let mut all: Vec<_> = all.collect();
            loop {
                let heads =
                    all.iter().enumerate().filter_map(|(at, (head, _))| Some((at, (*head)?)));
                let next = heads.min_by_key(|(_, head)| if sent { head.seq } else { head.b });
                let Some((at, record)) = next else { break };
                stats.add(&record);
                all[at].0 = all[at].1.next();
            }
        }
        Some(stats)
    }

    /// The pieces that compute plans again: whole logs, flows dealt out.
    fn plan_pieces(&self, log: usize, planned: &BTreeSet<(usize, u32)>) -> Vec<Piece> {
        let flows = planned.iter().filter(|(at, _)| *at == log).count();
        let shares = u32::try_from(flows.min(self.executor.threads())).unwrap_or(1);
        let blocks = 0..self.logs[log].blocks.len();
        let piece = |share| Piece {
            log,
            lane: Lane::Plan,
            blocks: blocks.clone(),
            from: None,
            to: None,
            share: (share, shares),
        };
        (0..shares).map(piece).collect()
    }

    /// The pieces of one log.
    fn cut(&self, number: usize) -> Vec<Piece> {
        let log = &self.logs[number];
        let records = log.record_count();
        let threads = self.executor.threads();
        let few = (PARTS_OF_FLOWS / log.flows.len().max(1)).clamp(threads, PARTS_EACH * threads);
        let parts = if threads > 1 { few as u64 } else { 1 };
        let parts = parts.min(records / WORTHWHILE).max(1);
        let piece = |blocks, from, to, share| Piece {
            log: number,
            lane: Lane::Arrivals,
            blocks,
            from,
            to,
            share,
        };
        if parts > 1 && log.flows.len() > FEW_FLOWS {
            let shares = u32::try_from(threads).unwrap_or(1);
            let blocks = 0..log.blocks.len();
            return (0..shares)
                .map(|share| piece(blocks.clone(), None, None, (share, shares)))
                .collect();
        }
        let mut pieces = Vec::new();
        let (mut start, mut from, mut counted) = (0, None, 0);
        for (at, block) in log.blocks.iter().enumerate() {
            let due = records * (pieces.len() as u64 + 1) / parts;
            if counted >= due && at > start && (pieces.len() as u64) + 1 < parts {
                let cut = clean_cut(block);
                pieces.push(piece(start..at, from, Some(cut.clone()), (0, 1)));
                (start, from) = (at, Some(cut));
            }
            counted += block.len() as u64;
        }
        pieces.push(piece(start..log.blocks.len(), from, None, (0, 1)));
        pieces
    }

    /// Adds up one piece.
    fn decode(&self, piece: &Piece) -> Decoded {
        let log = &self.logs[piece.log];
        let mut flows = Flows { list: Vec::new(), places: Vec::new(), far: BTreeMap::new() };
        let (share, shares) = piece.share;
        let mine = |index: u32| shares <= 1 || index % shares == share;
        let open = |index: u32| {
            if mine(index) { (self.setup)(piece.log, index, piece.lane) } else { None }
        };
        for (blocks, bytes) in log.stretches(piece.blocks.clone()) {
            self.executor.coming(bytes);
            for at in blocks {
                match &piece.from {
                    Some(cut) if at == piece.blocks.start => {
                        flows.add_part(&log.blocks[at], cut, true, open);
                    }
                    _ => flows.add_block(&log.blocks[at], open),
                }
            }
            self.executor.leaving(bytes);
            self.executor.passed(bytes);
            let described = || log.flows.keys().copied().filter(|&index| mine(index));
            if piece.lane == Lane::Plan && flows.plans_are_done(described()) {
                break;
            }
        }
        if let Some(cut) = &piece.to {
            flows.add_part(&log.blocks[piece.blocks.end], cut, false, open);
        }
        let ended = |(index, stats): (u32, Option<Box<FlowStats>>)| {
            let mut stats = stats?;
            stats.end_plan();
            Some((index, stats))
        };
        flows.list.into_iter().filter_map(ended).collect()
    }
}

/// The flows of a piece, found by their index in the log.
struct Flows {
    list: Vec<(u32, Option<Box<FlowStats>>)>,
    /// Place in the list by index, plus 1; 0 where there is none yet.
    places: Vec<u32>,
    /// The same for indices beyond [`NEAR`].
    far: BTreeMap<u32, usize>,
}

/// Indices that are looked up in a table.
const NEAR: u32 = 1 << 16;

impl Flows {
    /// Adds the records of a block, where each stands for one packet as they lie in it.
    fn add_block(&mut self, block: &Stored<'_>, open: impl Fn(u32) -> Option<Setup>) {
        let records = block.records();
        match records.rows() {
            Some(rows) => rows.chunks(SOME).for_each(|some| self.take(some, &open)),
            None => self.add(records, open),
        }
    }

    fn add(&mut self, records: impl Iterator<Item = Record>, open: impl Fn(u32) -> Option<Setup>) {
        let mut some: Vec<RawRecord> = Vec::with_capacity(SOME);
        records.for_each(|record| {
            some.push(record.raw());
            if some.len() == SOME {
                self.take(&some, &open);
                some.clear();
            }
        });
        self.take(&some, &open);
    }

    /// Takes some records; those of the same flow that follow each other together.
    fn take(&mut self, some: &[RawRecord], open: &impl Fn(u32) -> Option<Setup>) {
        for run in some.chunk_by(|a, b| a.flow() == b.flow()) {
            let place = self.place(run[0].flow(), open);
            if let (_, Some(stats)) = &mut self.list[place] {
                stats.add_rows(run);
            }
        }
    }

    /// Returns true if the plans of these flows have been computed again as far as they will be.
    fn plans_are_done(&self, mut flows: impl Iterator<Item = u32>) -> bool {
        flows.all(|index| {
            let found = self.find(index).map(|place| &self.list[place].1);
            found.is_some_and(|stats| stats.as_ref().is_none_or(|stats| stats.plan_is_done()))
        })
    }

    /// Adds the records of a block that lie before (`after` = false) or behind its cut.
    fn add_part(
        &mut self,
        block: &Stored<'_>,
        cut: &Cut,
        after: bool,
        open: impl Fn(u32) -> Option<Setup>,
    ) {
        let mut seen: Cut = Cut::new();
        let records = block.records().filter(|record| {
            let key = (record.flow, record.kind == Kind::Sent);
            let count = seen.entry(key).or_default();
            *count += 1;
            let before = *count <= cut.get(&key).copied().unwrap_or(0);
            before != after
        });
        self.add(records, open);
    }

    #[inline]
    fn place(&mut self, index: u32, open: &impl Fn(u32) -> Option<Setup>) -> usize {
        self.find(index).unwrap_or_else(|| self.open(index, open(index)))
    }

    #[inline]
    fn find(&self, index: u32) -> Option<usize> {
        match usize::try_from(index) {
            Ok(at) if index < NEAR => {
                let place = self.places.get(at).filter(|&&place| place > 0)?;
                usize::try_from(place - 1).ok()
            }
            _ => self.far.get(&index).copied(),
        }
    }

    #[cold]
    fn open(&mut self, index: u32, setup: Option<Setup>) -> usize {
        let place = self.list.len();
        self.list.push((index, setup.map(FlowStats::new).map(Box::new)));
        match (usize::try_from(index), u32::try_from(place + 1)) {
            (Ok(at), Ok(next)) if index < NEAR => {
                if self.places.len() <= at {
                    self.places.resize(at + 1, 0);
                }
                self.places[at] = next;
            }
            _ => {
                self.far.insert(index, place);
            }
        }
        place
    }
}

/// For each flow of a block, the first place where all numbers before it are smaller than all behind
/// it; none of its records where there is no such place.
fn clean_cut(block: &Stored<'_>) -> Cut {
    let mut numbers: BTreeMap<(u32, bool), Vec<u64>> = BTreeMap::new();
    for record in block.records() {
        numbers.entry((record.flow, record.kind == Kind::Sent)).or_default().push(record.seq);
    }
    numbers.into_iter().map(|(key, seqs)| (key, cut_of(&seqs))).collect()
}

fn cut_of(seqs: &[u64]) -> usize {
    let mut least_behind = vec![u64::MAX; seqs.len() + 1];
    for (at, &seq) in seqs.iter().enumerate().rev() {
        least_behind[at] = seq.min(least_behind[at + 1]);
    }
    let mut most = None;
    // Some way into the block, so that packets from shortly before it have come.
    let from = seqs.len() / 2;
    let mut found = 0;
    for at in 0..seqs.len() {
        let clean = most.is_some_and(|most| most < least_behind[at]);
        if clean {
            found = at;
            if at >= from {
                break;
            }
        }
        most = most.max(Some(seqs[at]));
    }
    found
}

/// Earliest time of the records that `counts` names.
pub(crate) fn earliest(
    logs: &[Log<'_>],
    executor: &dyn Executor,
    counts: &(dyn Fn(usize, Side, &Record) -> bool + Sync),
) -> Option<u64> {
    let mut pieces = Vec::new();
    for (number, log) in logs.iter().enumerate() {
        let side = log.side();
        pieces.extend(log.blocks.chunks(LOOK_BLOCKS).map(|blocks| (number, side, blocks)));
    }
    let bytes = |blocks: &[Stored<'_>]| -> u64 {
        blocks.iter().map(|block| block.bytes().len() as u64).sum()
    };
    executor.expect(pieces.iter().map(|(.., blocks)| bytes(blocks)).sum());
    let found = collect(executor, pieces.len(), |number| {
        let (log, side, blocks) = pieces[number];
        let mut first = None;
        for block in blocks {
            executor.coming(block.bytes());
            block.records().for_each(|record| {
                if first.is_none_or(|first| record.b < first) && counts(log, side, &record) {
                    first = Some(record.b);
                }
            });
            executor.leaving(block.bytes());
            executor.passed(block.bytes());
        }
        first
    });
    found.into_iter().flatten().min()
}
