//! Which sequence numbers were seen: exact loss, loss bursts, duplicates and reordering in one
//! pass.
//!
//! Numbers seen are kept as bits in chunks of 512; a chunk whose bits are all set becomes part of a
//! run that costs two numbers however long it is. So memory grows with the holes, not with the
//! packets: a flow without loss costs a few hundred bytes, and a record with a hostile number costs
//! at most one chunk (about 100 bytes). Order and duplicates are those of arrival.
//!
//! Sources: RFC 7680 (loss), RFC 5560 (duplication), RFC 4737 section 3 (reordering).

use std::collections::BTreeMap;

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

/// How a sequence number came in.
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
}

/// The set of sequence numbers seen, with what their order of arrival tells.
#[derive(Clone, Debug, Default)]
pub struct SeqTracker {
    unique: u64,
    duplicated: u64,
    reordered: u64,
    max: Option<u64>,
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
    pub fn insert(&mut self, seq: u64) -> Arrival {
        if !self.set(seq) {
            self.duplicated += 1;
            return Arrival::Duplicate;
        }
        match self.max {
            Some(max) if seq < max => {
                self.reordered += 1;
                Arrival::Late
            }
            max => {
                self.max = Some(seq);
                Arrival::Ahead { skipped: max.map_or(seq, |max| seq - max - 1) }
            }
        }
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

    /// The largest number seen.
    #[must_use]
    pub const fn max(&self) -> Option<u64> {
        self.max
    }

    /// Whether a number was seen.
    #[must_use]
    pub fn contains(&self, seq: u64) -> bool {
        let (chunk, word, bit) = place(seq);
        match self.partial.get(&chunk) {
            Some(&slot) => self.slots[slot][word] & bit != 0,
            None => self.in_full(chunk),
        }
    }

    /// The runs of numbers seen, ascending.
    pub fn runs(&self) -> impl Iterator<Item = Run> + '_ {
        let mut pieces = self.pieces().peekable();
        std::iter::from_fn(move || {
            let mut run = pieces.next()?;
            while let Some(next) = pieces.next_if(|p| Some(p.first) == run.last.checked_add(1)) {
                run.last = next.last;
            }
            Some(run)
        })
    }

    /// What is missing of the numbers 0 to `end` − 1; the run at the end counts.
    #[must_use]
    pub fn missing_before(&self, end: u64) -> Loss {
        let mut loss = Loss::default();
        for hole in self.holes().take_while(|hole| hole.first < end) {
            loss.lost += hole.last.min(end - 1) - hole.first + 1;
            loss.bursts += 1;
        }
        loss
    }

    /// What is missing of the numbers in `sent`. Numbers that were never sent (skipped by the
    /// sender) neither count nor end a burst: only a sent number that arrived ends one.
    #[must_use]
    pub fn missing_of(&self, sent: &Self) -> Loss {
        let mut loss = Loss::default();
        let mut sent = sent.runs().peekable();
        let mut in_burst = false;
        for hole in self.holes() {
            while let Some(run) = sent.peek().copied() {
                // What was sent before the hole and is not in the one before has arrived.
                in_burst &= run.first >= hole.first;
                if run.first > hole.last {
                    break;
                }
                if run.last >= hole.first {
                    loss.lost += run.last.min(hole.last) - run.first.max(hole.first) + 1;
                    loss.bursts += u64::from(!in_burst);
                    in_burst = true;
                }
                if run.last > hole.last {
                    break;
                }
                sent.next();
            }
        }
        loss
    }

    /// Takes the numbers of `other` as if they had arrived after all of these.
    ///
    /// Loss and duplicates come out exact. Reordering is exact when the numbers of the two do not
    /// overlap; where they do, it is an estimate, since the order inside `other` is not kept.
    pub fn merge(&mut self, other: &Self) {
        let reordered = self.reordered;
        for run in other.runs() {
            for seq in run.first..=run.last {
                self.insert(seq);
            }
        }
        let across = self.reordered - reordered;
        self.reordered = reordered + across.max(other.reordered);
        self.duplicated += other.duplicated;
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
        self.unique += 1;
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
        let last = self.full.remove(&(chunk + 1)).unwrap_or(chunk);
        match self.full.range_mut(..chunk).next_back() {
            Some((_, before)) if *before + 1 == chunk => *before = last,
            _ => {
                self.full.insert(chunk, last);
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
            let len = (!(left >> first)).trailing_zeros().min(64 - first);
            return Some((word as u64 * 64 + u64::from(first), u64::from(len)));
        }
        word += 1;
        mask = u64::MAX;
    }
    None
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    /// The obvious twin: sets and lists.
    fn twin(seqs: &[u64]) -> (BTreeSet<u64>, u64, u64) {
        let mut seen = BTreeSet::new();
        let (mut duplicated, mut reordered) = (0, 0);
        for &seq in seqs {
            let late = seen.last().is_some_and(|&max| seq < max);
            if !seen.insert(seq) {
                duplicated += 1;
            } else if late {
                reordered += 1;
            }
        }
        (seen, duplicated, reordered)
    }

    fn twin_loss(sent: impl Iterator<Item = u64>, got: &BTreeSet<u64>) -> Loss {
        let mut loss = Loss::default();
        let mut inside = false;
        for seq in sent {
            let missing = !got.contains(&seq);
            loss.lost += u64::from(missing);
            loss.bursts += u64::from(missing && !inside);
            inside = missing;
        }
        loss
    }

    fn tracker(seqs: &[u64]) -> SeqTracker {
        let mut tracker = SeqTracker::new();
        for &seq in seqs {
            tracker.insert(seq);
        }
        tracker
    }

    /// Mostly ascending numbers with losses, duplicates and reordering over several chunks.
    fn arrivals() -> impl Strategy<Value = Vec<u64>> {
        let walk = prop::collection::vec((1u64..4, 0u64..9), 0..1500).prop_map(|steps| {
            let mut at = 0u64;
            steps
                .into_iter()
                .map(|(step, back)| {
                    at += step.saturating_sub(1).max(u64::from(step > 1));
                    at += u64::from(step == 1);
                    if back == 8 { at.saturating_sub(20) } else { at - 1 }
                })
                .collect::<Vec<_>>()
        });
        let dense = (0u64..2000, any::<u64>()).prop_map(|(n, salt)| {
            (0..n).filter(|k| k.wrapping_mul(salt | 1) >> 58 != 0).collect::<Vec<_>>()
        });
        let wild = prop::collection::vec(
            prop_oneof![0u64..50, 500u64..530, Just(u64::MAX), Just(u64::MAX - 1), any::<u64>()],
            0..60,
        );
        prop_oneof![walk, dense, wild]
    }

    proptest! {
        #[test]
        fn agrees_with_a_set(seqs in arrivals()) {
            let tracker = tracker(&seqs);
            let (seen, duplicated, reordered) = twin(&seqs);
            prop_assert_eq!(tracker.unique(), seen.len() as u64);
            prop_assert_eq!(tracker.duplicated(), duplicated);
            prop_assert_eq!(tracker.reordered(), reordered);
            prop_assert_eq!(tracker.max(), seen.last().copied());
            let mut listed = Vec::new();
            let mut before = None;
            for run in tracker.runs() {
                prop_assert!(before.is_none_or(|last| run.first > last + 1), "runs touch");
                before = Some(run.last);
                listed.extend(run.first..=run.last);
            }
            prop_assert_eq!(listed, seen.iter().copied().collect::<Vec<_>>());
            prop_assert!(seqs.iter().all(|&seq| tracker.contains(seq)));
            prop_assert_eq!(tracker.contains(77), seen.contains(&77));
        }

        #[test]
        fn losses_agree_with_a_walk(got in arrivals(), sent in arrivals(), end in 0u64..3000) {
            let seen = twin(&got).0;
            let tracked = tracker(&got);
            prop_assert_eq!(tracked.missing_before(end), twin_loss(0..end, &seen));
            let all = twin(&sent).0;
            prop_assert_eq!(
                tracked.missing_of(&tracker(&sent)),
                twin_loss(all.iter().copied(), &seen)
            );
        }

        #[test]
        fn merged_parts_are_the_whole(a in arrivals(), b in arrivals()) {
            let whole = tracker(&[a.clone(), b.clone()].concat());
            let mut merged = tracker(&a);
            merged.merge(&tracker(&b));
            prop_assert_eq!(merged.unique(), whole.unique());
            prop_assert_eq!(merged.duplicated(), whole.duplicated());
            prop_assert!(merged.runs().eq(whole.runs()));
            if a.iter().max() < b.iter().min() {
                prop_assert_eq!(merged.reordered(), whole.reordered());
            }
        }
    }

    #[test]
    fn arrivals_are_named() {
        let mut tracker = SeqTracker::new();
        for (seq, want) in [
            (2, Arrival::Ahead { skipped: 2 }),
            (3, Arrival::Ahead { skipped: 0 }),
            (0, Arrival::Late),
            (3, Arrival::Duplicate),
            (7, Arrival::Ahead { skipped: 3 }),
            (u64::MAX, Arrival::Ahead { skipped: u64::MAX - 8 }),
            (u64::MAX, Arrival::Duplicate),
        ] {
            assert_eq!(tracker.insert(seq), want, "seq {seq}");
        }
    }

    #[test]
    fn memory_grows_with_holes_not_with_packets() {
        let mut tracker = SeqTracker::new();
        for seq in 0..1_000_000 {
            tracker.insert(seq);
        }
        assert_eq!((tracker.full.len(), tracker.slots.len()), (1, 1));
        for seq in (0..100).map(|k| k * 1_000_003 + (1 << 40)) {
            tracker.insert(seq);
        }
        assert!(tracker.slots.len() <= 101, "one chunk for each far number");
        assert_eq!(tracker.missing_before(1_000_001), Loss { lost: 1, bursts: 1 });
    }
}
