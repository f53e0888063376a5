//! Checksums of the blocks of a log, by their numbers.
//!
//! Costs: four bytes a block as long as they come one after the other, a map entry for each that came ahead.

use std::collections::BTreeMap;

/// Checksum of each block that is stored or being stored.
#[derive(Clone, Debug, Default)]
pub(super) struct Checksums {
    /// Those of the first blocks, without a gap.
    dense: Vec<u32>,
    ahead: BTreeMap<u32, u32>,
}

impl Checksums {
    pub(super) fn get(&self, block_no: u32) -> Option<u32> {
        let dense = usize::try_from(block_no).ok().and_then(|at| self.dense.get(at));
        dense.or_else(|| self.ahead.get(&block_no)).copied()
    }

    /// Puts one in, unless the block has one.
    pub(super) fn insert(&mut self, block_no: u32, checksum: u32) {
        if self.get(block_no).is_some() {
            return;
        }
        self.ahead.insert(block_no, checksum);
        while let Some(next) = self.next_dense() {
            self.dense.push(next);
        }
    }

    fn next_dense(&mut self) -> Option<u32> {
        self.ahead.remove(&u32::try_from(self.dense.len()).ok()?)
    }

    /// Takes one out: the block could not be stored.
    pub(super) fn remove(&mut self, block_no: u32) {
        let Some(at) = usize::try_from(block_no).ok().filter(|&at| at < self.dense.len()) else {
            self.ahead.remove(&block_no);
            return;
        };
        let behind = self.dense.split_off(at);
        self.ahead.extend((block_no..).zip(behind).skip(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn they_agree_with_a_plain_map(steps in prop::collection::vec((0u32..24, any::<bool>()), 0..120)) {
            let (mut sums, mut plain) = (Checksums::default(), BTreeMap::new());
            for (at, (block_no, put)) in (0_u32..).zip(steps) {
                if put {
                    sums.insert(block_no, at);
                    plain.entry(block_no).or_insert(at);
                } else {
                    sums.remove(block_no);
                    plain.remove(&block_no);
                }
                for block_no in 0..24 {
                    prop_assert_eq!(sums.get(block_no), plain.get(&block_no).copied());
                }
            }
        }
    }
}
