//! Random streams: one run seed, one stream for each purpose of each flow, random access within it.
//!
//! The generator is ChaCha8 (D. J. Bernstein, *ChaCha, a variant of Salsa20*, 2008, with 8 rounds): a
//! counter-based generator whose output is defined by its specification, the same on every
//! machine. Its three inputs are used as follows.
//!
//! | input | value |
//! |---|---|
//! | key, 32 bytes | run seed as 8 bytes little-endian, then the 24 ASCII bytes `ITG run seed, version 1.` |
//! | stream (nonce), 64 bits | flow id · 256 + purpose number |
//! | position, 32-bit words | 64 · k + 2⁵⁸ · attempt |
//!
//! So packet *k* of a flow owns 64 words of each of its streams, and whatever is drawn for it is a
//! pure function of (run seed, flow id, purpose, *k*): alone, in order or backwards. One more flow
//! changes no other. A draw that is rejected is repeated from the words of the next attempt; there is
//! room for 2⁵² packets and 1024 attempts. The first 16 words of a packet cost one ChaCha8 block,
//! some 40 ns; further words, and those of later attempts, one refill of the generator (four blocks).

mod block;

use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;

use chacha20::ChaCha8Rng;
use rand::{Rng as _, SeedableRng, TryRng};
use serde::{Deserialize, Serialize};

use self::block::Blocks;

const KEY_TEXT: &[u8; 24] = b"ITG run seed, version 1.";
/// Words that each packet owns.
const PACKET_WORDS: u128 = 64;
/// Blocks of 16 words that each packet owns.
const PACKET_BLOCKS: u64 = 4;
/// Words between two attempts for the same packet, as a power of two.
const ATTEMPT_SHIFT: u32 = 58;

/// The seed of a whole run, from which every random choice derives.
///
/// Written in decimal, read in decimal or as `0x…`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RunSeed(pub u64);

/// Use of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Purpose {
    /// Inter-departure times (stream number 0).
    Idt,
    /// Packet sizes (1).
    Size,
    /// Lengths of ON periods (2).
    On,
    /// Lengths of OFF periods (3).
    Off,
    /// Bytes of the payload (4).
    Content,
}

impl Purpose {
    const fn number(self) -> u64 {
        match self {
            Self::Idt => 0,
            Self::Size => 1,
            Self::On => 2,
            Self::Off => 3,
            Self::Content => 4,
        }
    }
}

impl RunSeed {
    /// The stream of a flow for a purpose, at its first position.
    #[must_use]
    pub fn stream(self, flow: u32, purpose: Purpose) -> Stream {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&self.0.to_le_bytes());
        key[8..].copy_from_slice(KEY_TEXT);
        let mut rng = ChaCha8Rng::from_seed(key);
        rng.set_stream((u64::from(flow) << 8) | purpose.number());
        let blocks = Blocks::new(&key, rng.get_stream());
        Stream { rng, blocks, k: 0, words: [0; block::WORDS], place: NextWord::Rng }
    }
}

impl fmt::Display for RunSeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A text that is no seed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("seed `{0}` is not a whole number from 0 to {max}, in decimal or as 0x…", max = u64::MAX)]
pub struct SeedError(String);

impl FromStr for RunSeed {
    type Err = SeedError;

    fn from_str(text: &str) -> Result<Self, SeedError> {
        let hex = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
        let digits = hex.unwrap_or(text);
        let value = u64::from_str_radix(digits, if hex.is_some() { 16 } else { 10 });
        match value {
            Ok(seed) if !digits.starts_with('+') => Ok(Self(seed)),
            _ => Err(SeedError(text.to_owned())),
        }
    }
}

/// A stream of random words in which every packet has its own place: a generator that can be placed.
pub struct Stream {
    /// Generator; its position is that of the stream unless `place` says otherwise.
    rng: ChaCha8Rng,
    blocks: Blocks,
    /// The packet whose words are read, and the first of them.
    k: u64,
    words: [u32; block::WORDS],
    place: NextWord,
}

/// Source of the next word of a stream.
#[derive(Clone, Copy)]
enum NextWord {
    /// The generator's next.
    Rng,
    /// This one of the packet's first words.
    Word(usize),
}

impl Clone for Stream {
    fn clone(&self) -> Self {
        let mut rng = ChaCha8Rng::from_seed(self.rng.get_seed());
        rng.set_stream(self.rng.get_stream());
        rng.set_word_pos(self.rng.get_word_pos());
        Self { rng, ..*self }
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream").field("number", &self.rng.get_stream()).finish_non_exhaustive()
    }
}

impl Stream {
    /// The generator, placed where the words of packet `k` and redraw `attempt` begin.
    ///
    /// `k` below 2⁵² and `attempt` below 1024 never share words.
    #[inline]
    pub fn at(&mut self, k: u64, attempt: u32) -> &mut Self {
        if attempt == 0 {
            self.k = k;
            self.words = self.blocks.words(k.wrapping_mul(PACKET_BLOCKS));
            self.place = NextWord::Word(0);
        } else {
            self.seek(k, attempt, 0);
        }
        self
    }

    /// The first `count` words from here on, if all of them are in the packet's first block.
    #[inline]
    fn take<const COUNT: usize>(&mut self) -> Option<[u32; COUNT]> {
        let NextWord::Word(next) = self.place else { return None };
        if next + COUNT > block::WORDS {
            self.seek(self.k, 0, next);
            return None;
        }
        self.place = NextWord::Word(next + COUNT);
        Some(std::array::from_fn(|i| self.words[next + i]))
    }

    /// Goes on at a word of a packet with the generator.
    #[cold]
    fn seek(&mut self, k: u64, attempt: u32, word: usize) {
        let first = PACKET_WORDS * u128::from(k) + (u128::from(attempt) << ATTEMPT_SHIFT);
        self.rng.set_word_pos(first + word as u128);
        self.place = NextWord::Rng;
    }
}

impl TryRng for Stream {
    type Error = Infallible;

    #[inline]
    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        Ok(match self.take() {
            Some([word]) => word,
            None => self.rng.next_u32(),
        })
    }

    #[inline]
    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        Ok(match self.take() {
            Some([low, high]) => u64::from(high) << 32 | u64::from(low),
            None => self.rng.next_u64(),
        })
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
        if let NextWord::Word(next) = self.place {
            self.seek(self.k, 0, next);
        }
        self.rng.fill_bytes(bytes);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn seeds_are_read_and_written() {
        for (text, want) in [
            ("42", Some(42)),
            ("0x2a", Some(42)),
            ("0X2A", Some(42)),
            ("18446744073709551615", Some(u64::MAX)),
            ("+1", None),
            ("0x+1", None),
            ("-1", None),
            ("", None),
            ("0x", None),
            ("18446744073709551616", None),
        ] {
            assert_eq!(text.parse::<RunSeed>().ok(), want.map(RunSeed), "input {text:?}");
        }
        assert_eq!(
            "dice".parse::<RunSeed>().map_err(|e| e.to_string()),
            Err("seed `dice` is not a whole number from 0 to 18446744073709551615, in decimal or \
                 as 0x…"
                .to_owned())
        );
        assert_eq!(RunSeed(42).to_string(), "42");
    }

    /// The first words of some streams, which no later version may change; computed with another
    /// program after the table above and the definition of ChaCha.
    #[test]
    fn words_are_pinned() {
        let words = |seed, flow, purpose, k, attempt| {
            let mut stream = RunSeed(seed).stream(flow, purpose);
            let rng = stream.at(k, attempt);
            [(); 8].map(|()| rng.next_u32())
        };
        let rows: [(_, [u32; 8]); 5] = [
            (
                words(42, 1, Purpose::Idt, 0, 0),
                [
                    0x7620_5ce5,
                    0xd3ba_2042,
                    0x3f30_00fa,
                    0x3233_9bf3,
                    0x0e91_2254,
                    0xd760_7134,
                    0x090e_a94c,
                    0x1d23_02a1,
                ],
            ),
            (
                words(42, 1, Purpose::Size, 0, 0),
                [
                    0xd71b_a190,
                    0x8481_4c0d,
                    0xb6f2_f64e,
                    0xfe36_4196,
                    0xe018_a135,
                    0x7e06_41dc,
                    0x8529_a4cf,
                    0xeaff_4719,
                ],
            ),
            (
                words(42, 2, Purpose::Idt, 0, 0),
                [
                    0xc9d6_f4db,
                    0x68cd_3ca6,
                    0x1499_7848,
                    0x0945_3f77,
                    0xaa64_e66a,
                    0xfd2a_3b88,
                    0x3765_cda2,
                    0xd370_af23,
                ],
            ),
            (
                words(42, 1, Purpose::Idt, 1, 0),
                [
                    0x48b4_76b8,
                    0x9d3e_3ee3,
                    0x81b3_fe46,
                    0xa382_ab21,
                    0x0cc6_8cea,
                    0x36dc_daff,
                    0x3cad_d5d8,
                    0x00b1_cc73,
                ],
            ),
            (
                words(42, 1, Purpose::Idt, 0, 1),
                [
                    0x1b27_3c72,
                    0x651d_87ca,
                    0x3099_d615,
                    0x50b7_0f5e,
                    0x7965_ec16,
                    0x98e8_3ec6,
                    0x9658_1452,
                    0x7dfa_1dfd,
                ],
            ),
        ];
        for (i, (got, want)) in rows.into_iter().enumerate() {
            assert_eq!(got, want, "row {i}: {got:#010x?}");
        }
    }

    #[test]
    fn places_do_not_depend_on_the_way() {
        let mut stream = RunSeed(7).stream(3, Purpose::Content);
        let in_order: Vec<_> = (0..100).map(|k| stream.at(k, 0).next_u64()).collect();
        let copy = &mut stream.clone();
        let backwards: Vec<_> = (0..100).rev().map(|k| copy.at(k, 0).next_u64()).collect();
        assert!(in_order.iter().eq(backwards.iter().rev()));
        // A packet owns 64 words: reading on leads to the next packet.
        let rng = stream.at(0, 0);
        let skipped: Vec<_> = (0..33).map(|_| rng.next_u64()).collect();
        assert_eq!((skipped[0], skipped[32]), (in_order[0], in_order[1]));
        // The last places are still different ones.
        let last = stream.at((1 << 52) - 1, 1023).next_u64();
        assert_ne!(last, stream.at((1 << 52) - 1, 0).next_u64());
    }

    #[test]
    fn a_copy_goes_on_at_the_same_place() {
        let mut stream = RunSeed(7).stream(3, Purpose::Size);
        for words in [0, 1, 15, 16, 17, 63, 64, 65] {
            let rng = stream.at(9, 0);
            (0..words).for_each(|_| {
                rng.next_u32();
            });
            let mut copy = stream.clone();
            assert_eq!(stream.next_u32(), copy.next_u32(), "after {words} words");
        }
    }

    proptest! {
        /// The dumb twin: the generator of the crate, placed anew for each packet.
        #[test]
        fn first_words_are_those_of_the_generator(
            seed: u64,
            flow: u32,
            places in prop::collection::vec(
                (prop_oneof![0u64..40, any::<u64>().prop_map(|k| k >> 12)], 0u32..3), 1..40,
            ),
            widths in prop::collection::vec(0usize..3, 1..20),
        ) {
            let mut stream = RunSeed(seed).stream(flow, Purpose::Size);
            let mut twin = ChaCha8Rng::from_seed(stream.rng.get_seed());
            twin.set_stream(stream.rng.get_stream());
            for (k, attempt) in places {
                stream.at(k, attempt);
                let first = PACKET_WORDS * u128::from(k) + (u128::from(attempt) << ATTEMPT_SHIFT);
                twin.set_word_pos(first);
                for width in &widths {
                    match width {
                        0 => prop_assert_eq!(stream.next_u32(), twin.next_u32()),
                        1 => prop_assert_eq!(stream.next_u64(), twin.next_u64()),
                        _ => {
                            let mut bytes = [[0; 13]; 2];
                            stream.fill_bytes(&mut bytes[0]);
                            twin.fill_bytes(&mut bytes[1]);
                            prop_assert_eq!(bytes[0], bytes[1]);
                        }
                    }
                }
            }
        }
    }
}
