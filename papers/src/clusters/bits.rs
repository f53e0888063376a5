//! Starts of the objects of a cluster: for every type of the schema one bit for every 8 bytes.
//!
//! A reference is then checked with a single test, whatever it refers to. Null is place 0, which is
//! marked for every type: null needs no test of its own.

/// The starts of the objects of one type; a set of small numbers with 0 always in it.
#[derive(Clone, Debug)]
pub(crate) struct Bits {
    words: Vec<u64>,
}

impl Bits {
    /// Only 0.
    pub(crate) fn empty() -> Self {
        Self { words: vec![1] }
    }

    /// Makes room for the numbers below `count`, all at once.
    #[cold]
    pub(crate) fn reserve(&mut self, count: usize) {
        let words = count.div_ceil(64);
        if words > self.words.len() {
            // A new one comes as zeros from the system.
            let mut grown = vec![0; words];
            grown[..self.words.len()].copy_from_slice(&self.words);
            self.words = grown;
        }
    }

    #[inline]
    pub(crate) fn insert(&mut self, number: usize) {
        let word = number / 64;
        if word >= self.words.len() {
            self.words.resize((word + 1).next_power_of_two(), 0);
        }
        self.words[word] |= 1 << (number % 64);
    }

    #[inline]
    pub(crate) fn contains(&self, number: usize) -> bool {
        match self.words.get(number / 64) {
            Some(word) => word >> (number % 64) & 1 == 1,
            None => false,
        }
    }

    /// The numbers of the set but 0, ascending.
    pub(crate) fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        let numbers = self.words.iter().enumerate().flat_map(|(index, &word)| {
            std::iter::successors((word != 0).then_some(word), |&rest| {
                let rest = rest & (rest - 1);
                (rest != 0).then_some(rest)
            })
            .map(move |rest| index * 64 + rest.trailing_zeros() as usize)
        });
        numbers.skip(1)
    }
}

/// Inserts ascending numbers, for which there is room, one word of the set at a time.
#[derive(Debug)]
pub(crate) struct Marker<'a> {
    words: &'a mut [u64],
    index: usize,
    word: u64,
}

impl<'a> Marker<'a> {
    #[inline]
    pub(crate) fn new(bits: &'a mut Bits) -> Self {
        Self { words: &mut bits.words, index: 0, word: 0 }
    }

    #[inline]
    pub(crate) fn insert(&mut self, number: usize) {
        if number / 64 != self.index {
            self.flush();
            self.index = number / 64;
        }
        self.word |= 1 << (number % 64);
    }

    #[inline]
    fn flush(&mut self) {
        if let Some(word) = self.words.get_mut(self.index) {
            *word |= self.word;
        }
        self.word = 0;
    }
}

impl Drop for Marker<'_> {
    fn drop(&mut self) {
        self.flush();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn behaves_like_a_sorted_set(numbers in prop::collection::btree_set(1_usize..300, 0..80)) {
            let mut bits = Bits::empty();
            bits.reserve(100);
            numbers.iter().for_each(|&number| bits.insert(number));
            let got: BTreeSet<_> = bits.iter().collect();
            prop_assert_eq!(&got, &numbers);
            prop_assert!(bits.contains(0));
            for number in 1..400 {
                prop_assert_eq!(bits.contains(number), numbers.contains(&number));
            }
            let mut marked = Bits::empty();
            marked.reserve(300);
            let mut marker = Marker::new(&mut marked);
            numbers.iter().for_each(|&number| marker.insert(number));
            drop(marker);
            prop_assert_eq!(marked.iter().collect::<BTreeSet<_>>(), numbers);
        }
    }
}
