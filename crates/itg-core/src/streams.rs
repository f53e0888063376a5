//! Random streams by name: what is not a flow draws from here.
//!
//! The generator is that of [`crate::seed`] under another key, so no named stream shares words with a
//! stream of a flow.
//!
//! | input | value |
//! |---|---|
//! | key, 32 bytes | run seed as 8 bytes little-endian, then the 24 ASCII bytes `ITG named stream, ver. 1` |
//! | stream (nonce), 64 bits | FNV-1a of the name |
//!
//! A stream depends on the seed and on its own name alone: one more component shifts no other.

use chacha20::ChaCha8Rng;
use rand::{Rng as _, SeedableRng as _};

use crate::seed::RunSeed;

const KEY_TEXT: &[u8; 24] = b"ITG named stream, ver. 1";

impl RunSeed {
    /// The random stream of this name, from its beginning.
    #[must_use]
    pub fn named(self, name: &str) -> ChaCha8Rng {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&self.0.to_le_bytes());
        key[8..].copy_from_slice(KEY_TEXT);
        let mut rng = ChaCha8Rng::from_seed(key);
        rng.set_stream(fnv1a(name.as_bytes()));
        rng
    }
}

/// FNV-1a, 64 bits (Fowler, Noll, Vo; RFC 9923).
#[must_use]
pub fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// A number from 0 to below `bound` (0 when `bound` is 0), all equally likely but for one part in
/// 2⁶⁴ / `bound`.
#[must_use]
pub fn below(rng: &mut ChaCha8Rng, bound: u64) -> u64 {
    let wide = u128::from(rng.next_u64()) * u128::from(bound);
    u64::try_from(wide >> 64).unwrap_or(0)
}

/// Returns true with a probability of `parts` in a million.
#[must_use]
pub fn happens(rng: &mut ChaCha8Rng, parts: u32) -> bool {
    parts > 0 && below(rng, 1_000_000) < u64::from(parts)
}

/// A number above 0 and at most 1, in steps of 2⁻⁵³.
#[must_use]
#[allow(clippy::cast_precision_loss, reason = "53 bits fit")]
pub fn unit(rng: &mut ChaCha8Rng) -> f64 {
    ((rng.next_u64() >> 11) + 1) as f64 / (1_u64 << 53) as f64
}

/// An exponentially distributed number of nanoseconds with this mean, rounded down.
#[must_use]
#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "at most 37 means, above zero; the conversion saturates"
)]
pub fn exponential_ns(rng: &mut ChaCha8Rng, mean_ns: u64) -> u64 {
    (-unit(rng).ln() * mean_ns as f64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_seeds_make_streams() {
        let first = |seed, name| RunSeed(seed).named(name).next_u64();
        let all = [first(1, "loss"), first(2, "loss"), first(1, "delay"), first(1, "")];
        for (i, a) in all.iter().enumerate() {
            assert!(all[i + 1..].iter().all(|b| a != b), "stream {i} is another's");
        }
        assert_eq!(first(1, "loss"), all[0]);
        assert_eq!(fnv1a(b"a"), 0xaf63_dc4c_8601_ec8c);
    }

    #[test]
    fn draws_have_their_means() {
        let mut rng = RunSeed(7).named("test");
        let n = 200_000;
        let mean = |sum: u64| sum as f64 / f64::from(n);
        let hits = (0..n).filter(|_| happens(&mut rng, 250_000)).count() as u64;
        assert!((mean(hits) - 0.25).abs() < 0.005, "{}", mean(hits));
        let sum = (0..n).map(|_| below(&mut rng, 11)).sum();
        assert!((mean(sum) - 5.0).abs() < 0.04, "{}", mean(sum));
        let sum = (0..n).map(|_| exponential_ns(&mut rng, 1000)).sum();
        assert!((mean(sum) - 999.5).abs() < 10.0, "{}", mean(sum));
        assert!(!happens(&mut rng, 0) && happens(&mut rng, 1_000_000));
        assert_eq!(below(&mut rng, 0), 0);
    }
}
