//! The trace hash: one number that tells two runs apart.
//!
//! Every word is mixed in with a multiplication and a rotation; order matters. It is no
//! cryptographic hash: two runs that differ give two numbers but for one chance in 2⁶⁴.

/// A hash under construction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceHash(u64);

impl Default for TraceHash {
    fn default() -> Self {
        Self(0x6974_675f_7369_6d31)
    }
}

impl TraceHash {
    /// Mixes in a word.
    pub const fn word(&mut self, word: u64) {
        let mixed = (self.0 ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed.rotate_left(29) ^ (mixed >> 32);
    }

    /// Mixes in bytes and their number.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.word(bytes.len() as u64);
        let (words, rest) = bytes.as_chunks::<8>();
        words.iter().for_each(|word| self.word(u64::from_le_bytes(*word)));
        if !rest.is_empty() {
            let mut word = [0; 8];
            word[..rest.len()].copy_from_slice(rest);
            self.word(u64::from_le_bytes(word));
        }
    }

    /// The number so far.
    #[must_use]
    pub const fn value(self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_length_and_content_matter() {
        let hash = |bytes: &[&[u8]]| {
            let mut hash = TraceHash::default();
            bytes.iter().for_each(|bytes| hash.bytes(bytes));
            hash.value()
        };
        let all = [hash(&[b"ab", b"c"]), hash(&[b"a", b"bc"]), hash(&[b"c", b"ab"]), hash(&[b""])];
        for (i, a) in all.iter().enumerate() {
            assert!(all[i + 1..].iter().all(|b| a != b), "{i}");
        }
        assert_eq!(hash(&[b"ab", b"c"]), all[0]);
    }
}
