//! A set of block numbers as ranges.
//!
//! Costs: one map entry a range, so one for a log without gaps; logarithmic look-up. The number of
//! ranges is bounded: beyond it the lowest gap is given up, that is, its blocks are never wanted any
//! more and count as not stored.

use std::collections::BTreeMap;

/// Set of the stored blocks of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockSet {
    /// First and last of each range; there is a gap between any two.
    ranges: BTreeMap<u32, u32>,
    /// Numbers within the ranges.
    covered: u64,
    /// Those of them that are not stored: gaps that were given up.
    given_up: u64,
    max_ranges: usize,
}

impl BlockSet {
    /// The empty set, which will never have more than `max_ranges` (at least 1) ranges.
    #[must_use]
    pub fn new(max_ranges: usize) -> Self {
        let max_ranges = max_ranges.max(1);
        Self { ranges: BTreeMap::new(), covered: 0, given_up: 0, max_ranges }
    }

    /// Puts a number in; false if it was in already, or was given up.
    pub fn insert(&mut self, n: u32) -> bool {
        let before = self.ranges.range(..=n).next_back().map(|(&first, &last)| (first, last));
        if before.is_some_and(|(_, last)| n <= last) {
            return false;
        }
        self.covered += 1;
        let first = match before {
            Some((first, last)) if last.checked_add(1) == Some(n) => first,
            _ => n,
        };
        let after = n.checked_add(1).and_then(|next| self.ranges.remove(&next));
        self.ranges.insert(first, after.unwrap_or(n));
        if self.ranges.len() > self.max_ranges {
            self.give_up_lowest_gap();
        }
        true
    }

    /// Puts all numbers from `first` to `last` in.
    pub fn insert_range(&mut self, first: u32, last: u32) {
        if first > last {
            return;
        }
        let len = |first: u32, last: u32| u64::from(last - first) + 1;
        let (mut low, mut high) = (first, last);
        // Ranges that it touches become one with it.
        while let Some((&start, &end)) = self.ranges.range(..=high.saturating_add(1)).next_back() {
            if end.saturating_add(1) < low {
                break;
            }
            self.ranges.remove(&start);
            self.covered -= len(start, end);
            (low, high) = (low.min(start), high.max(end));
        }
        self.covered += len(low, high);
        self.ranges.insert(low, high);
        while self.ranges.len() > self.max_ranges {
            self.give_up_lowest_gap();
        }
    }

    /// The ranges, as first and last of each, in order.
    pub fn iter(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.ranges.iter().map(|(&first, &last)| (first, last))
    }

    fn give_up_lowest_gap(&mut self) {
        let (Some((first, last)), Some((second, end))) =
            (self.ranges.pop_first(), self.ranges.pop_first())
        else {
            return;
        };
        let gap = u64::from(second - last - 1);
        self.covered += gap;
        self.given_up += gap;
        self.ranges.insert(first, end);
    }

    /// A number that was given up is stored after all: it was being stored at that time.
    pub(super) const fn recover(&mut self) {
        self.given_up = self.given_up.saturating_sub(1);
    }

    /// Returns true if a number is in, or was given up.
    #[must_use]
    pub fn contains(&self, n: u32) -> bool {
        self.ranges.range(..=n).next_back().is_some_and(|(_, &last)| n <= last)
    }

    /// Count of the numbers that are in, without those that were given up.
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.covered - self.given_up
    }

    /// Returns true if nothing is in.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of ranges.
    #[must_use]
    pub fn ranges(&self) -> usize {
        self.ranges.len()
    }

    /// The gaps below `end`, as first and last: the lowest `most` of them, and the number of blocks
    /// missing below `end` besides these, including those that were given up.
    #[must_use]
    pub fn missing(&self, end: u32, most: usize) -> (Vec<(u32, u32)>, u64) {
        let (mut gaps, mut left_out, mut next) = (Vec::new(), self.given_up, 0u32);
        let mut gap = |first: u32, last: u32| {
            if gaps.len() < most {
                gaps.push((first, last));
            } else {
                left_out += u64::from(last - first) + 1;
            }
        };
        for (&first, &last) in self.ranges.range(..end) {
            if first > next {
                gap(next, first - 1);
            }
            next = last.saturating_add(1);
        }
        if next < end {
            gap(next, end - 1);
        }
        (gaps, left_out)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_ends_of_the_numbers_are_no_special_case() {
        let mut set = BlockSet::new(8);
        assert!(set.insert(u32::MAX) && set.insert(0) && !set.insert(u32::MAX));
        assert_eq!(set.missing(u32::MAX, 3), (vec![(1, u32::MAX - 1)], 0));
        assert!(set.insert(u32::MAX - 1));
        assert_eq!((set.ranges(), set.len()), (2, 3));
    }

    #[test]
    fn too_many_gaps_are_given_up_from_below() {
        let mut set = BlockSet::new(2);
        assert!(set.insert(1) && set.insert(4) && set.insert(9));
        assert_eq!((set.ranges(), set.len()), (2, 3));
        assert!(set.contains(2) && !set.insert(3), "given up");
        // 0 and 5..=8 are known gaps, 2 and 3 were given up
        assert_eq!(set.missing(11, 9), (vec![(0, 0), (5, 8), (10, 10)], 2));
        assert_eq!(set.missing(11, 1), (vec![(0, 0)], 2 + 4 + 1));
        assert_eq!(11 - set.len(), 1 + 4 + 1 + 2);
    }

    #[test]
    fn what_was_given_up_while_it_was_being_stored_counts_in_the_end() {
        let mut set = BlockSet::new(1);
        assert!(set.insert(0) && set.insert(2) && !set.insert(1));
        set.recover();
        assert_eq!((set.len(), set.missing(3, 9)), (3, (vec![], 0)));
    }

    #[test]
    fn a_range_may_be_all_numbers() {
        let mut set = BlockSet::new(8);
        set.insert_range(3, 1);
        assert!(set.is_empty());
        set.insert_range(0, u32::MAX);
        set.insert_range(u32::MAX, u32::MAX);
        assert_eq!((set.ranges(), set.len()), (1, 1 << 32));
    }

    proptest! {
        #[test]
        fn it_agrees_with_a_plain_set(
            numbers in prop::collection::vec(0u32..60, 0..80),
            probe in 0u32..64,
            most in 0usize..6,
        ) {
            let mut set = BlockSet::new(100);
            let mut plain = BTreeSet::new();
            for n in numbers {
                prop_assert_eq!(set.insert(n), plain.insert(n));
            }
            prop_assert_eq!(set.len(), plain.len() as u64);
            prop_assert_eq!(set.is_empty(), plain.is_empty());
            prop_assert_eq!(set.contains(probe), plain.contains(&probe));
            let (gaps, left_out) = set.missing(probe, most);
            let listed: Vec<u32> = gaps.iter().flat_map(|&(first, last)| first..=last).collect();
            let missing: Vec<u32> = (0..probe).filter(|n| !plain.contains(n)).collect();
            prop_assert!(gaps.len() <= most);
            prop_assert_eq!(&listed[..], &missing[..listed.len()]);
            prop_assert_eq!(left_out, (missing.len() - listed.len()) as u64);
        }

        #[test]
        fn ranges_are_put_in_as_their_numbers_would_be(
            parts in prop::collection::vec((0u32..60, 0u32..8, any::<bool>()), 0..30),
        ) {
            let (mut set, mut twin) = (BlockSet::new(100), BlockSet::new(100));
            for (first, more, at_once) in parts {
                if at_once {
                    set.insert_range(first, first + more);
                } else {
                    (first..=first + more).for_each(|n| { set.insert(n); });
                }
                (first..=first + more).for_each(|n| { twin.insert(n); });
                prop_assert_eq!(&set, &twin);
            }
        }

        #[test]
        fn stored_and_missing_add_up_whatever_is_given_up(
            numbers in prop::collection::vec(0u32..200, 0..150),
            max_ranges in 1usize..6,
        ) {
            let mut set = BlockSet::new(max_ranges);
            let taken = numbers.iter().filter(|&&n| set.insert(n)).count();
            prop_assert_eq!(set.len(), taken as u64);
            prop_assert!(set.ranges() <= max_ranges);
            let (gaps, left_out) = set.missing(200, 100);
            let listed: u64 = gaps.iter().map(|&(a, b)| u64::from(b - a) + 1).sum();
            prop_assert_eq!(set.len() + listed + left_out, 200);
        }
    }
}
