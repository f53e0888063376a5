//! The first words of a packet, by themselves.
//!
//! Most draws take one or two words of the 64 that a packet owns, and a generator that is placed
//! anew for each packet computes all of them at the first one. One block costs a fifth of that. The
//! words are those of [`chacha20::ChaCha8Rng`], bit for bit; draws that need more words use that
//! generator.
//!
//! Source: D. J. Bernstein, *ChaCha, a variant of Salsa20*, 2008, section 3, with 8 rounds.

/// Words in a block.
pub(super) const WORDS: usize = 16;
/// `expand 32-byte k`, as words.
const CONSTANTS: [u32; 4] = [0x6170_7865, 0x3320_646e, 0x7962_2d32, 0x6b20_6574];

/// State that the generator of a key and a stream computes its blocks from.
#[derive(Clone, Copy)]
pub(super) struct Blocks([u32; WORDS]);

impl Blocks {
    pub(super) fn new(key: &[u8; 32], stream: u64) -> Self {
        let mut start = [0; WORDS];
        start[..4].copy_from_slice(&CONSTANTS);
        for (word, bytes) in start[4..12].iter_mut().zip(key.as_chunks().0) {
            *word = u32::from_le_bytes(*bytes);
        }
        [start[14], start[15]] = halves(stream);
        Self(start)
    }

    /// The words of block `number`.
    pub(super) fn words(&mut self, number: u64) -> [u32; WORDS] {
        [self.0[12], self.0[13]] = halves(number);
        let mut x = self.0;
        for _ in 0..4 {
            quarter_round(&mut x, 0, 4, 8, 12);
            quarter_round(&mut x, 1, 5, 9, 13);
            quarter_round(&mut x, 2, 6, 10, 14);
            quarter_round(&mut x, 3, 7, 11, 15);
            quarter_round(&mut x, 0, 5, 10, 15);
            quarter_round(&mut x, 1, 6, 11, 12);
            quarter_round(&mut x, 2, 7, 8, 13);
            quarter_round(&mut x, 3, 4, 9, 14);
        }
        std::array::from_fn(|i| x[i].wrapping_add(self.0[i]))
    }
}

/// The low and the high half.
const fn halves(x: u64) -> [u32; 2] {
    #[expect(clippy::cast_possible_truncation, reason = "halves")]
    let halves = [x as u32, (x >> 32) as u32];
    halves
}

#[inline(always)]
const fn quarter_round(x: &mut [u32; WORDS], a: usize, b: usize, c: usize, d: usize) {
    x[a] = x[a].wrapping_add(x[b]);
    x[d] = (x[d] ^ x[a]).rotate_left(16);
    x[c] = x[c].wrapping_add(x[d]);
    x[b] = (x[b] ^ x[c]).rotate_left(12);
    x[a] = x[a].wrapping_add(x[b]);
    x[d] = (x[d] ^ x[a]).rotate_left(8);
    x[c] = x[c].wrapping_add(x[d]);
    x[b] = (x[b] ^ x[c]).rotate_left(7);
}
