//! Set of the sequence numbers seen: exact loss, loss periods, duplicates and reordering in one
//! pass.
//!
//! Numbers seen are kept as bits in chunks of 512; a chunk whose bits are all set becomes part of a
//! run that costs two numbers however long it is. So memory grows with the holes, not with the
//! packets: a flow without loss costs a few hundred bytes, and a record with a hostile number costs
//! at most one chunk (about 100 bytes). Order and duplicates are those of arrival.
//!
//! The numbers at the upper end that came without a gap, nearly always all of the latest ones, are
//! not even bits but two numbers, so that a packet in order costs a comparison.
//!
//! Sources: RFC 7680 (loss), RFC 5560 (duplication), RFC 4737 (reordering: section 3; its extent:
//! section 4.2.1; runs free of it: section 4.5).

use std::collections::{BTreeMap, VecDeque};

const WORDS: usize = 8;
const CHUNK: u64 = 64 * WORDS as u64;

/// A stretch of consecutive sequence numbers, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// First number of the stretch.
    pub first: u64,
    /// Last number of the stretch.
    pub last: u64,
}

/// Arrival of a sequence number, compared with those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// The largest number so far; `skipped` numbers between it and the largest one before (or 0)
    /// are missing at this moment.
    Ahead {
        /// Numbers newly missing.
        skipped: u64,
    },
    /// New, but a larger number came before it: reordered (RFC 4737).
    Late,
    /// Seen before (RFC 5560).
    Duplicate,
}

/// Missing packets and how they cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loss {
    /// Packets missing.
    pub lost: u64,
    /// Runs of consecutive missing packets.
    pub bursts: u64,
    /// Longest of them.
    pub longest: u64,
    /// Packets that arrived and have a next one.
    pub from_good: u64,
    /// Those whose next one is missing.
    pub good_to_bad: u64,
    /// Packets that are missing and have a next one.
    pub from_bad: u64,
    /// Those whose next one arrived.
    pub bad_to_good: u64,
    /// Length of the run that the last packet is in, 0 where that arrived; `None` where it is not known.
    pub at_end: Option<u64>,
}

impl Loss {
    /// Adds the losses of another flow.
    pub fn add(&mut self, other: &Self) {
        self.lost = self.lost.saturating_add(other.lost);
        self.bursts = self.bursts.saturating_add(other.bursts);
        self.longest = self.longest.max(other.longest);
        self.from_good = self.from_good.saturating_add(other.from_good);
        self.good_to_bad = self.good_to_bad.saturating_add(other.good_to_bad);
        self.from_bad = self.from_bad.saturating_add(other.from_bad);
        self.bad_to_good = self.bad_to_good.saturating_add(other.bad_to_good);
    }

    /// Fills in the changes from one packet to the next, given how many packets there are, whether the first of them
    /// is missing, and how many at the end.
    const fn follow(mut self, packets: u64, first: bool, at_end: u64) -> Self {
        self.at_end = Some(at_end);
        let last = at_end > 0;
        if packets > 1 {
            self.from_bad = self.lost - last as u64;
            self.from_good = packets - self.lost - !last as u64;
            self.good_to_bad = self.bursts - first as u64;
            self.bad_to_good = self.bursts - last as u64;
        }
        self
    }
}

/// Extent of reordering (RFC 4737), in packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Disorder {
    /// Sum of the reordering extents: how many packets before a reordered one the first packet with a
    /// larger number had arrived (section 4.2.1).
    pub extent_sum: u64,
    /// Largest of them.
    pub extent_max: u64,
    /// Stretches of new packets in order that a reordered packet ended (section 4.5).
    pub free_runs: u64,
    /// Packets in them.
    pub free_packets: u64,
    /// Packets in order since the last reordered one.
    pub in_order: u64,
}

/// Start of a stretch of largest numbers without a missing one.
#[derive(Clone, Copy, Debug)]
struct High {
    seq: u64,
    /// Place among the arrivals, from 0.
    at: u64,
}

/// Gaps that are remembered for the extent of reordering. A packet that fills an older one has the
/// extent to the oldest one remembered.
const HIGHS: usize = 8_192;

/// The set of sequence numbers seen, with what their order of arrival tells.
#[derive(Clone, Debug, Default)]
pub struct SeqTracker {
    unique: u64,
    duplicated: u64,
    reordered: u64,
    disorder: Disorder,
    min: Option<u64>,
    /// First number of the stretch at the upper end, which is not in the chunks. It ends with `max`.
    tail: u64,
    max: Option<u64>,
    /// Numbers that were the first ones behind a gap when they came, ascending.
    highs: VecDeque<High>,
    /// Runs of full chunks: first chunk -> last chunk, never adjacent.
    full: BTreeMap<u64, u64>,
    /// Chunks with holes: chunk -> place in `slots`.
    partial: BTreeMap<u64, usize>,
    slots: Vec<[u64; WORDS]>,
    free: Vec<usize>,
    /// The partial chunk used last.
    hot: Option<(u64, usize)>,
}

impl SeqTracker {
    /// An empty set.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the next number in order of arrival.
    #[inline]
    pub fn insert(&mut self, seq: u64) -> Arrival {
        if let Some(max) = self.max
            && max.checked_add(1) == Some(seq)
        {
            self.max = Some(seq);
            self.unique += 1;
            self.disorder.in_order += 1;
            return Arrival::Ahead { skipped: 0 };
        }
        self.insert_elsewhere(seq)
    }

    /// Takes so many numbers in order, the first of which must be [`SeqTracker::next`].
    #[inline]
    pub fn advance(&mut self, count: u64) {
        debug_assert!(self.next().is_some() || count == 0, "there is a number to follow");
        self.max = self.max.map(|max| max + count);
        self.unique += count;
        self.disorder.in_order += count;
    }

    /// The number that follows the largest one; `None` when there is none.
    #[inline]
    pub fn next(&self) -> Option<u64> {
        self.max?.checked_add(1)
    }

    /// Takes a number that does not follow the largest one.
    fn insert_elsewhere(&mut self, seq: u64) -> Arrival {
        let at = self.unique + self.duplicated;
        match self.max {
            Some(max) if seq <= max => {
                if seq >= self.tail || !self.set(seq) {
                    self.duplicated += 1;
                    return Arrival::Duplicate;
                }
                self.unique += 1;
                self.min = self.min.min(Some(seq));
                self.disorder(seq, at);
                Arrival::Late
            }
            max => {
                if let Some(max) = max {
                    self.set_all(Run { first: self.tail, last: max });
                }
                if self.highs.len() == HIGHS {
                    self.highs.pop_front();
                }
                self.highs.push_back(High { seq, at });
                self.tail = seq;
                self.max = Some(seq);
                self.min = self.min.or(self.max);
                self.unique += 1;
                self.disorder.in_order += 1;
                Arrival::Ahead { skipped: max.map_or(seq, |max| seq - max - 1) }
            }
        }
    }

    /// Notes that a new number came late, as arrival number `at`.
    fn disorder(&mut self, seq: u64, at: u64) {
        self.reordered += 1;
        // The first larger number is the one behind the gap that this one was missing from.
        let behind = self.highs.partition_point(|high| high.seq <= seq);
        let extent = self.highs.get(behind).map_or(0, |high| at - high.at);
        let d = &mut self.disorder;
        d.extent_sum = d.extent_sum.saturating_add(extent);
        d.extent_max = d.extent_max.max(extent);
        if d.in_order > 0 {
            d.free_runs += 1;
            d.free_packets += d.in_order;
            d.in_order = 0;
        }
    }

    /// Takes the numbers of a later part of the same sequence, when all of them are larger than these:
    /// then everything comes out as if they had arrived one by one. Otherwise says false and leaves all
    /// as it was: the order inside a part is not kept.
    pub fn append(&mut self, later: &Self) -> bool {
        if !self.is_below(later) {
            return false;
        }
        let Some((min, max)) = later.min.zip(later.max) else { return true };
        let before = self.unique + self.duplicated;
        let joins = self.max.is_some_and(|max| max + 1 == min);
        let mut runs = later.runs().peekable();
        if let Some(max) = self.max
            && !joins
        {
            self.set_all(Run { first: self.tail, last: max });
        }
        while let Some(run) = runs.next() {
            let first = if joins && run.first == min { self.tail } else { run.first };
            if runs.peek().is_some() {
                self.set_all(Run { first, ..run });
            } else {
                self.tail = first;
            }
        }
        for (k, high) in later.highs.iter().enumerate() {
            if k == 0 && joins && high.seq == min {
                continue;
            }
            if self.highs.len() == HIGHS {
                self.highs.pop_front();
            }
            self.highs.push_back(High { at: before + high.at, ..*high });
        }
        self.max = Some(max);
        self.min = self.min.or(Some(min));
        self.unique += later.unique;
        self.duplicated += later.duplicated;
        self.reordered += later.reordered;
        let (d, more) = (&mut self.disorder, &later.disorder);
        d.extent_sum = d.extent_sum.saturating_add(more.extent_sum);
        d.extent_max = d.extent_max.max(more.extent_max);
        if more.free_runs > 0 {
            // What came in order before belongs to the first run of the later part.
            d.free_runs += more.free_runs;
            d.free_packets += d.in_order + more.free_packets;
            d.in_order = more.in_order;
        } else {
            d.in_order += more.in_order;
        }
        true
    }

    /// Returns true if all numbers of a later part are larger than all of these.
    #[must_use]
    pub fn is_below(&self, later: &Self) -> bool {
        self.max.zip(later.min).is_none_or(|(max, min)| max < min)
    }

    /// Different numbers seen.
    #[must_use]
    pub const fn unique(&self) -> u64 {
        self.unique
    }

    /// Arrivals of numbers that had been seen before.
    #[must_use]
    pub const fn duplicated(&self) -> u64 {
        self.duplicated
    }

    /// First arrivals after a larger number.
    #[must_use]
    pub const fn reordered(&self) -> u64 {
        self.reordered
    }

    /// Extent of reordering of the numbers seen.
    #[must_use]
    pub const fn disorder_figures(&self) -> &Disorder {
        &self.disorder
    }

    /// The smallest number seen.
    #[must_use]
    pub const fn min(&self) -> Option<u64> {
        self.min
    }

    /// The largest number seen.
    #[must_use]
    pub const fn max(&self) -> Option<u64> {
        self.max
    }

    /// Returns true if a number was seen.
    #[must_use]
    pub fn contains(&self, seq: u64) -> bool {
        if self.max.is_some_and(|max| (self.tail..=max).contains(&seq)) {
            return true;
        }
        let (chunk, word, bit) = place(seq);
        match self.partial.get(&chunk) {
            Some(&slot) => self.slots[slot][word] & bit != 0,
            None => self.in_full(chunk),
        }
    }

    /// The runs of numbers seen, ascending.
    pub fn runs(&self) -> impl Iterator<Item = Run> + '_ {
        let tail = self.max.map(|last| Run { first: self.tail, last });
        let mut pieces = self.pieces().chain(tail).peekable();
        std::iter::from_fn(move || {
            let mut run = pieces.next()?;
            while let Some(next) = pieces.next_if(|p| Some(p.first) == run.last.checked_add(1)) {
                run.last = next.last;
            }
            Some(run)
        })
    }

    /// Loss among the numbers 0 to `end` − 1; the run at the end counts.
    #[must_use]
    pub fn missing_before(&self, end: u64) -> Loss {
        let (mut loss, mut at_end) = (Loss::default(), 0);
        for hole in self.holes().take_while(|hole| hole.first < end) {
            let len = hole.last.min(end - 1) - hole.first + 1;
            loss.lost += len;
            loss.bursts += 1;
            loss.longest = loss.longest.max(len);
            at_end = if hole.last >= end - 1 { len } else { 0 };
        }
        loss.follow(end, end > 0 && !self.contains(0), at_end)
    }

    /// Loss among the numbers in `sent`. Numbers that were never sent (skipped by the sender)
    /// neither count nor end a loss period: only a sent number that arrived ends one.
    #[must_use]
    pub fn missing_of(&self, sent: &Self) -> Loss {
        let mut loss = Loss { at_end: Some(0), ..Loss::default() };
        let ends = sent.min.zip(sent.max);
        let packets = sent.unique;
        let mut sent = sent.runs().peekable();
        let (mut in_burst, mut burst) = (false, 0);
        for hole in self.holes() {
            while let Some(run) = sent.peek().copied() {
                // What was sent before the hole and is not in the one before has arrived.
                in_burst &= run.first >= hole.first;
                if run.first > hole.last {
                    break;
                }
                if run.last >= hole.first {
                    let len = run.last.min(hole.last) - run.first.max(hole.first) + 1;
                    loss.lost += len;
                    loss.bursts += u64::from(!in_burst);
                    burst = if in_burst { burst + len } else { len };
                    loss.longest = loss.longest.max(burst);
                    in_burst = true;
                }
                if run.last > hole.last {
                    break;
                }
                sent.next();
            }
        }
        let missing = |seq: u64| !self.contains(seq);
        ends.map_or(loss, |(first, last)| {
            loss.follow(packets, missing(first), if missing(last) { burst } else { 0 })
        })
    }

    /// Sets all bits of a stretch above every number that is set.
    fn set_all(&mut self, run: Run) {
        let (first, last) = (run.first / CHUNK, run.last / CHUNK);
        if first == last {
            return self.set_within(run);
        }
        self.set_within(Run { first: run.first, last: first * CHUNK + (CHUNK - 1) });
        self.set_within(Run { first: last * CHUNK, last: run.last });
        if last - first > 1 {
            self.add_full(first + 1, last - 1);
        }
    }

    /// Sets the bits of a stretch within one chunk.
    fn set_within(&mut self, run: Run) {
        let chunk = run.first / CHUNK;
        let Some(slot) = self.open(chunk) else { return };
        let bits = &mut self.slots[slot];
        let (first, last) = (run.first % CHUNK, run.last % CHUNK);
        for (word, bits) in (0u64..).zip(bits.iter_mut()) {
            let (from, to) = (first.max(word * 64), last.min(word * 64 + 63));
            if from <= to {
                *bits |= u64::MAX >> (63 - (to - from)) << (from % 64);
            }
        }
        if bits.iter().all(|&w| w == u64::MAX) {
            self.close(chunk, slot);
        }
    }

    /// Sets a bit; false when it was set.
    fn set(&mut self, seq: u64) -> bool {
        let (chunk, word, bit) = place(seq);
        let slot = match self.hot {
            Some((hot, slot)) if hot == chunk => slot,
            _ => match self.open(chunk) {
                Some(slot) => slot,
                None => return false,
            },
        };
        let bits = &mut self.slots[slot];
        if bits[word] & bit != 0 {
            return false;
        }
        bits[word] |= bit;
        if bits[word] == u64::MAX && bits.iter().all(|&w| w == u64::MAX) {
            self.close(chunk, slot);
        }
        true
    }

    /// The slot of a chunk with holes; `None` when the chunk has none.
    fn open(&mut self, chunk: u64) -> Option<usize> {
        let slot = match self.partial.get(&chunk) {
            Some(&slot) => slot,
            None if self.in_full(chunk) => return None,
            None => {
                let slot = self.free.pop().unwrap_or_else(|| {
                    self.slots.push([0; WORDS]);
                    self.slots.len() - 1
                });
                self.partial.insert(chunk, slot);
                slot
            }
        };
        self.hot = Some((chunk, slot));
        Some(slot)
    }

    /// Turns a chunk without holes into part of a run.
    fn close(&mut self, chunk: u64, slot: usize) {
        self.partial.remove(&chunk);
        self.slots[slot] = [0; WORDS];
        self.free.push(slot);
        self.hot = None;
        self.add_full(chunk, chunk);
    }

    /// Enters a stretch of full chunks, none of which was full.
    fn add_full(&mut self, first: u64, last: u64) {
        let last = self.full.remove(&(last + 1)).unwrap_or(last);
        match self.full.range_mut(..first).next_back() {
            Some((_, before)) if *before + 1 == first => *before = last,
            _ => {
                self.full.insert(first, last);
            }
        }
    }

    fn in_full(&self, chunk: u64) -> bool {
        self.full.range(..=chunk).next_back().is_some_and(|(_, &last)| chunk <= last)
    }

    /// The stretches that were not seen, ascending; the last one reaches to the largest number.
    fn holes(&self) -> impl Iterator<Item = Run> + '_ {
        let mut runs = self.runs();
        let mut next = Some(0);
        std::iter::from_fn(move || {
            loop {
                let first = next?;
                let Some(run) = runs.next() else {
                    next = None;
                    return Some(Run { first, last: u64::MAX });
                };
                next = run.last.checked_add(1);
                if run.first > first {
                    return Some(Run { first, last: run.first - 1 });
                }
            }
        })
    }

    /// Runs in ascending order, not yet joined where one ends and the next begins.
    fn pieces(&self) -> impl Iterator<Item = Run> + '_ {
        let mut full = self.full.iter().peekable();
        let mut partial = self.partial.iter().peekable();
        let mut chunk: Option<(u64, &[u64; WORDS], u64)> = None;
        std::iter::from_fn(move || {
            loop {
                if let Some((base, bits, from)) = &mut chunk {
                    if let Some((first, len)) = ones(bits, *from) {
                        *from = first + len;
                        return Some(Run { first: *base + first, last: *base + first + (len - 1) });
                    }
                    chunk = None;
                }
                let full_is_next = match (full.peek(), partial.peek()) {
                    (None, None) => return None,
                    (Some(f), Some(p)) => f.0 < p.0,
                    (f, _) => f.is_some(),
                };
                if full_is_next {
                    let (first, last) = full.next()?;
                    return Some(Run { first: first * CHUNK, last: last * CHUNK + (CHUNK - 1) });
                }
                let (number, &slot) = partial.next()?;
                chunk = Some((number * CHUNK, &self.slots[slot], 0));
            }
        })
    }
}

const fn place(seq: u64) -> (u64, usize, u64) {
    (seq / CHUNK, (seq % CHUNK / 64) as usize, 1 << (seq % 64))
}

/// The next set bits of one word at or after bit `from`: first bit and how many.
fn ones(bits: &[u64; WORDS], from: u64) -> Option<(u64, u64)> {
    let mut word = usize::try_from(from / 64).ok()?;
    let mut mask = u64::MAX << (from % 64);
    while word < WORDS {
        let left = bits[word] & mask;
        if left != 0 {
            let first = left.trailing_zeros();
            let len = (!(left >> first)).trailing_zeros();
            return Some((word as u64 * 64 + u64::from(first), u64::from(len)));
        }
        word += 1;
        mask = u64::MAX;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_grows_with_holes_not_with_packets() {
        let mut tracker = SeqTracker::new();
        for seq in 0..1_000_000 {
            tracker.insert(seq);
        }
        assert_eq!((tracker.full.len(), tracker.slots.len()), (0, 0));
        tracker.insert(1_000_001);
        assert_eq!((tracker.full.len(), tracker.slots.len()), (1, 1));
        for seq in (0..100).map(|k| k * 1_000_003 + (1 << 40)) {
            tracker.insert(seq);
        }
        assert!(tracker.slots.len() <= 101, "one chunk for each far number");
        let loss = tracker.missing_before(1_000_002);
        assert_eq!((loss.lost, loss.bursts, loss.longest), (1, 1, 1));
        // Chunks that are filled in any order leave one run.
        let mut tracker = SeqTracker::new();
        [1, 5, 3, 4, 2].iter().flat_map(|c| (c * CHUNK..(c + 1) * CHUNK).rev()).for_each(|seq| {
            tracker.insert(seq);
        });
        tracker.insert(1 << 40);
        assert_eq!((tracker.full.len(), tracker.slots.len() - tracker.free.len()), (1, 0));
    }
}
