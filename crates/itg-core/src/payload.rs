//! Contents of packets behind their header.
//!
//! Random content is not drawn packet by packet: a pool is drawn once from the run seed, and packet
//! *k* of a flow carries a stretch of it whose place depends on (flow, *k*) only. So the content of
//! every packet is a pure function of (run seed, flow, *k*, size), costs nothing on the packet
//! path, and can be sent without a copy.

use rand::Rng;

use crate::header::MAX_FRAME;
use crate::seed::{Purpose, RunSeed};

/// Places at which a packet's content may start: 64 KiB, in steps of 8.
const SPREAD: usize = 1 << 16;

/// The bytes that packets of one kind carry.
#[derive(Clone, Debug)]
pub struct Content {
    bytes: Box<[u8]>,
    /// Mask of a start place: all of 16 bits but the last three, or none.
    places: usize,
}

impl Content {
    /// Content drawn from the run seed, shared by all flows of a run.
    #[must_use]
    pub fn random(seed: RunSeed) -> Self {
        let mut bytes = vec![0; MAX_FRAME as usize + SPREAD].into_boxed_slice();
        seed.stream(0, Purpose::Content).at(0, 0).fill_bytes(&mut bytes);
        Self { bytes, places: (SPREAD - 1) & !7 }
    }

    /// The same bytes in every packet, repeated when the packet is longer.
    ///
    /// # Panics
    /// When `pattern` is empty, which [`crate::flow::Flow::resolve`] refuses.
    #[must_use]
    pub fn repeated(pattern: &[u8]) -> Self {
        assert!(!pattern.is_empty(), "a payload pattern has at least one byte");
        let bytes = pattern.iter().copied().cycle().take(MAX_FRAME as usize).collect();
        Self { bytes, places: 0 }
    }

    /// `len` bytes for packet `seq` of a flow, at most 1 MiB.
    ///
    /// # Panics
    /// When `len` is larger than any packet may be.
    #[must_use]
    #[inline]
    pub fn of(&self, flow: u32, seq: u64, len: usize) -> &[u8] {
        // Fibonacci hashing (Knuth, TAOCP vol. 3, 6.4): successive packets start far apart.
        let mixed = (u64::from(flow) << 40 ^ seq).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 48;
        let start = usize::try_from(mixed).expect("16 bits") & self.places;
        &self.bytes[start..start + len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_content_depends_on_seed_flow_and_packet_only() {
        let (a, same, other) =
            (Content::random(RunSeed(1)), Content::random(RunSeed(1)), Content::random(RunSeed(2)));
        assert_eq!(a.of(3, 9, 1472), same.of(3, 9, 1472));
        assert_ne!(a.of(3, 9, 1472), other.of(3, 9, 1472));
        assert_ne!(a.of(3, 9, 1472), a.of(3, 10, 1472));
        assert_ne!(a.of(3, 9, 1472), a.of(4, 9, 1472));
        assert_eq!(a.of(u32::MAX, u64::MAX, MAX_FRAME as usize).len(), MAX_FRAME as usize);
    }

    #[test]
    fn a_pattern_is_repeated() {
        assert_eq!(Content::repeated(b"ab").of(1, 5, 5), b"ababa");
    }
}
