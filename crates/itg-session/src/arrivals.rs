//! Packets of a flow as their receiver counts them: all of them, different ones, and those out of order.
//!
//! The last packets are remembered at the cost of a bit each.

/// Account of the packets that have arrived of a flow.
#[derive(Clone, Debug)]
pub struct Arrivals {
    window: Window,
    packets: u64,
    bytes: u64,
    unique: u64,
    reordered: u64,
}

impl Default for Arrivals {
    fn default() -> Self {
        Self { window: Window::new(), packets: 0, bytes: 0, unique: 0, reordered: 0 }
    }
}

impl Arrivals {
    /// Counts so many packets of one size in bytes: the one with this sequence number and those behind it.
    #[inline]
    pub fn count(&mut self, seq: u64, packets: usize, size: u32) {
        let packets = packets as u64;
        self.packets += packets;
        self.bytes += packets * u64::from(size);
        for k in 0..packets {
            let seq = seq.wrapping_add(k);
            if self.window.note(seq) {
                self.unique += 1;
                self.reordered += u64::from(self.window.is_behind(seq));
            }
        }
    }

    /// Packets, duplicates included.
    #[must_use]
    pub const fn packets(&self) -> u64 {
        self.packets
    }

    /// Bytes of these packets.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Different sequence numbers among them.
    #[must_use]
    pub const fn unique(&self) -> u64 {
        self.unique
    }

    /// Sequence numbers below the largest one of which no packet has arrived.
    #[must_use]
    pub const fn missing(&self) -> u64 {
        self.window.end.saturating_sub(self.unique)
    }

    /// Packets behind one with a larger number, duplicates aside.
    #[must_use]
    pub const fn reordered(&self) -> u64 {
        self.reordered
    }
}

/// Sequence numbers looked back: a copy that comes later than this counts as a packet of its own
/// (the decoder, which sees the whole log, is exact).
const LOOK_BACK: u64 = 4096;
const WORDS: usize = (LOOK_BACK / 64) as usize;

/// A sliding window over sequence numbers, as IPsec's anti-replay window (RFC 4303, 3.4.3).
#[derive(Clone, Debug)]
struct Window {
    seen: Box<[u64; WORDS]>,
    /// Sequence number after the highest seen.
    end: u64,
}

impl Window {
    /// A window that has seen nothing.
    fn new() -> Self {
        Self { seen: Box::new([0; WORDS]), end: 0 }
    }

    /// Notes a sequence number; returns true if it was new.
    #[inline]
    fn note(&mut self, seq: u64) -> bool {
        if seq >= self.end {
            if seq - self.end >= LOOK_BACK {
                self.seen.fill(0);
            } else {
                for passed in self.end..seq {
                    self.put(passed, false);
                }
            }
            self.end = seq.saturating_add(1);
            self.put(seq, true);
            return true;
        }
        if self.end - seq > LOOK_BACK {
            return true;
        }
        let known = self.seen[Self::word(seq)] >> (seq % 64) & 1 == 1;
        self.put(seq, true);
        !known
    }

    /// Returns true if a larger sequence number has been seen.
    const fn is_behind(&self, seq: u64) -> bool {
        seq.saturating_add(1) < self.end
    }

    fn word(seq: u64) -> usize {
        usize::try_from(seq % LOOK_BACK / 64).expect("less than the number of words")
    }

    fn put(&mut self, seq: u64, value: bool) {
        let word = &mut self.seen[Self::word(seq)];
        *word = *word & !(1 << (seq % 64)) | u64::from(value) << (seq % 64);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn agrees_with_a_set_within_its_reach() {
        let mut state = 1u64;
        let mut window = Window::new();
        let mut seen = BTreeSet::new();
        let mut top = 0u64;
        for step in 0..50_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let seq = match state >> 61 {
                0 => top.saturating_sub(state >> 40 & 4095),
                1 => top + (state >> 50 & 127),
                _ => top + 1,
            };
            top = top.max(seq);
            assert_eq!(window.note(seq), seen.insert(seq), "step {step}, packet {seq} of {top}");
        }
    }

    #[test]
    fn each_figure_follows_the_packets() {
        let mut arrivals = Arrivals::default();
        // (number, packets, size) and then: packets, bytes, different ones, missing, reordered.
        for ((seq, packets, size), want) in [
            ((0, 0, 100), [0, 0, 0, 0, 0]),
            ((0, 1, 100), [1, 100, 1, 0, 0]),
            ((3, 1, 20), [2, 120, 2, 2, 0]),
            ((1, 1, 20), [3, 140, 3, 1, 1]),
            ((1, 1, 20), [4, 160, 3, 1, 1]),
            ((4, 3, 1000), [7, 3160, 6, 1, 1]),
            ((6, 1, 1000), [8, 4160, 6, 1, 1]),
            ((2, 1, 1), [9, 4161, 7, 0, 2]),
            ((1, 7, 10), [16, 4231, 8, 0, 2]),
            // At the edge of what is remembered, and beyond.
            ((4103, 1, 0), [17, 4231, 9, 4095, 2]),
            ((8, 1, 0), [18, 4231, 10, 4094, 3]),
            ((8, 1, 0), [19, 4231, 10, 4094, 3]),
            ((7, 1, 0), [20, 4231, 11, 4093, 4]),
            ((8199, 1, 0), [21, 4231, 12, 8188, 4]),
            ((4103, 1, 0), [22, 4231, 13, 8187, 5]),
            ((4104, 1, 0), [23, 4231, 14, 8186, 6]),
            ((u64::MAX, 1, 0), [24, 4231, 15, u64::MAX - 15, 6]),
        ] {
            arrivals.count(seq, packets, size);
            let (bytes, missing) = (arrivals.bytes(), arrivals.missing());
            let reordered = arrivals.reordered();
            assert_eq!(
                [arrivals.packets(), bytes, arrivals.unique(), missing, reordered],
                want,
                "{seq}"
            );
        }
    }

    #[test]
    fn hostile_numbers_do_no_harm() {
        let mut window = Window::new();
        for seq in [u64::MAX, 0, u64::MAX - 1, 1 << 63, u64::MAX] {
            window.note(seq);
        }
    }
}
