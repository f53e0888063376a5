//! Payloads as they arrived, compared with what the flow's description gives (`itg-recv --check-payload`).
//!
//! It costs that packets are read whole, and a comparison of all their bytes.

use std::sync::Arc;

use crate::header::{FRAME_LEN, FULL_LEN, MIN_LEN, PROVEN_LEN};
use crate::payload::Content;

/// Payload that packets of a flow should have.
#[derive(Clone, Debug)]
pub enum Expected {
    /// Drawn from the seed.
    Seeded(Arc<Content>),
    /// These bytes, repeated.
    Pattern(Vec<u8>),
}

/// Comparison of a flow's payloads.
#[derive(Clone, Debug)]
pub struct PayloadCheck {
    expected: Expected,
    flow: u32,
    /// True if its packets have a proof behind their headers.
    proven: bool,
    corrupted: u64,
    /// True if some could not be compared.
    unread: bool,
    /// True if the packet that is passing in a stream has other bytes.
    differs: bool,
}

impl PayloadCheck {
    /// The comparison of a flow, by its number.
    #[must_use]
    pub const fn new(expected: Expected, flow: u32, proven: bool) -> Self {
        Self { expected, flow, proven, corrupted: 0, unread: false, differs: false }
    }

    /// Packets with other bytes; `None` where some could not be compared.
    #[must_use]
    pub fn corrupted(&self) -> Option<u64> {
        (!self.unread).then_some(self.corrupted)
    }

    /// Compares packets of this size with successive numbers, which lie one behind the other.
    pub fn packets(&mut self, seq: u64, packets: usize, size: usize, bytes: &[u8]) {
        let head = match size {
            _ if self.proven => PROVEN_LEN,
            0..20 => MIN_LEN,
            20.. => FULL_LEN,
        } as usize;
        for k in 0..packets {
            match bytes.get(k * size + head..(k + 1) * size) {
                Some(payload) => {
                    let seq = seq.wrapping_add(k as u64);
                    self.corrupted += u64::from(!self.holds(seq, payload.len(), 0, payload));
                }
                None => self.unread = true,
            }
        }
    }

    /// Compares the next bytes of a packet of a stream: its last ones are `left` bytes behind the first of these.
    pub fn piece(&mut self, seq: u64, size: u32, left: usize, bytes: &[u8]) {
        let head = FRAME_LEN + if size - FRAME_LEN < FULL_LEN { MIN_LEN } else { FULL_LEN };
        let len = (size - head) as usize;
        self.differs |= !self.holds(seq, len, len - left, bytes);
    }

    /// The packet that was passing is over.
    pub fn passed(&mut self) {
        self.corrupted += u64::from(std::mem::take(&mut self.differs));
    }

    /// Returns true if these bytes are those of a payload of `len` bytes from this place on.
    fn holds(&self, seq: u64, len: usize, at: usize, bytes: &[u8]) -> bool {
        match &self.expected {
            Expected::Seeded(content) => {
                content.of(self.flow, seq, len)[at..at + bytes.len()] == *bytes
            }
            Expected::Pattern(pattern) => {
                bytes.iter().eq(pattern.iter().cycle().skip(at % pattern.len()).take(bytes.len()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seed::RunSeed;

    fn checks() -> [PayloadCheck; 2] {
        let seeded = Expected::Seeded(Arc::new(Content::random(RunSeed(3))));
        [seeded, Expected::Pattern(b"abc".to_vec())].map(|e| PayloadCheck::new(e, 7, false))
    }

    fn payload(check: &PayloadCheck, seq: u64, len: usize) -> Vec<u8> {
        match &check.expected {
            Expected::Seeded(content) => content.of(7, seq, len).to_vec(),
            Expected::Pattern(pattern) => pattern.iter().copied().cycle().take(len).collect(),
        }
    }

    #[test]
    fn datagrams_with_another_byte_are_counted() {
        for mut check in checks() {
            for (size, head) in [(12, 12), (19, 12), (20, 20), (1000, 20)] {
                let packet = |seq| [vec![0; head], payload(&check, seq, size - head)].concat();
                let mut bytes = [packet(4), packet(5), packet(6)].concat();
                let before = check.corrupted;
                check.packets(4, 3, size, &bytes);
                assert_eq!(check.corrupted, before, "size {size}");
                if size > head {
                    bytes[2 * size - 1] ^= 1;
                    check.packets(4, 3, size, &bytes);
                    assert_eq!(check.corrupted, before + 1, "size {size}");
                }
            }
            assert!(check.corrupted().is_some());
            check.packets(4, 1, 1000, &[0; 88]);
            assert_eq!(check.corrupted(), None, "what is not here is not compared");
        }
    }
}
