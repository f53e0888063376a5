//! The bytes that ITG puts at the start of every packet.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 4 | handle: given by the receiver when the flow is opened |
//! | 4 | 8 | sequence number, from 0 |
//! | 12 | 8 | time of sending, Unix ns of the sender's clock; only in packets of 20 bytes and more |
//!
//! With a secret that sender and receiver share (`--auth`) a proof follows, in packets of 28 bytes and more, and there
//! are no shorter ones:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 20 | 8 | SipHash-2-4 of the 20 bytes before and the packet's length (4 bytes), under the flow's key |
//!
//! Source: Aumasson, Bernstein, *SipHash: a fast short-input PRF*, Indocrypt 2012. A packet that does not prove itself
//! is forged with a chance of 1 in 2^64.
//!
//! A packet whose time is beyond [`MAX_TIME_NS`] is no packet of ITG: no clock shows that time, and
//! delays computed from it would make every sum over flows meaningless.
//!
//! All fields are little-endian. On TCP each packet is preceded by its whole length (4 bytes,
//! counted in the length), so that it is found again in the stream.

use std::hash::Hasher as _;
#[expect(deprecated, reason = "what replaces it does not say which function it is")]
use std::hash::SipHasher;

use crate::units::MAX_TIME_NS;

/// Bytes of a header without the time: the smallest packet.
pub const MIN_LEN: u32 = 12;
/// Bytes of a header with the time.
pub const FULL_LEN: u32 = 20;
/// Bytes of a header with the time and a proof: the smallest packet of a flow whose packets prove themselves.
pub const PROVEN_LEN: u32 = FULL_LEN + 8;
/// Bytes of the length in front of a packet on TCP.
pub const FRAME_LEN: u32 = 4;
/// Largest packet on TCP, its length field included: 1 MiB.
pub const MAX_FRAME: u32 = 1 << 20;

/// Contents of a packet's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketHeader {
    /// Handle of the flow: the number that the receiver gave it.
    pub handle: u32,
    /// Sequence number, from 0.
    pub seq: u64,
    /// Unix time of sending in nanoseconds; `None` in packets too short to carry it.
    pub sent_ns: Option<u64>,
}

impl PacketHeader {
    /// Reads the header of a packet (without the length that TCP puts in front); `None` when the
    /// packet is shorter than any header, or its time is beyond [`MAX_TIME_NS`].
    #[must_use]
    pub fn parse(packet: &[u8]) -> Option<Self> {
        let (handle, rest) = packet.split_first_chunk()?;
        let (seq, rest) = rest.split_first_chunk()?;
        let sent_ns = rest.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
        if sent_ns.is_some_and(|ns| ns > MAX_TIME_NS) {
            return None;
        }
        Some(Self { handle: u32::from_le_bytes(*handle), seq: u64::from_le_bytes(*seq), sent_ns })
    }

    /// Writes the header of a packet of `packet_len` bytes to `out` and returns its length: 20, or
    /// 12 when the packet is too short for the time.
    pub fn write(
        handle: u32,
        seq: u64,
        sent_ns: u64,
        packet_len: u32,
        out: &mut [u8; 20],
    ) -> usize {
        out[..4].copy_from_slice(&handle.to_le_bytes());
        out[4..12].copy_from_slice(&seq.to_le_bytes());
        if packet_len < FULL_LEN {
            return MIN_LEN as usize;
        }
        out[12..].copy_from_slice(&sent_ns.to_le_bytes());
        FULL_LEN as usize
    }
}

/// Key of a flow whose packets prove that they come from its sender, and came through unchanged but for their payload.
#[derive(Clone)]
#[expect(deprecated, reason = "see above")]
pub struct PacketKey(SipHasher);

impl std::fmt::Debug for PacketKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PacketKey")
    }
}

impl PacketKey {
    /// The key of these bytes.
    #[must_use]
    #[expect(deprecated, reason = "see above")]
    pub fn new(key: [u8; 16]) -> Self {
        let half = |at| u64::from_le_bytes(std::array::from_fn(|i| key[at + i]));
        Self(SipHasher::new_with_keys(half(0), half(8)))
    }

    fn proof(&self, header: &[u8; FULL_LEN as usize], packet_len: u32) -> [u8; 8] {
        let mut text = [0; FULL_LEN as usize + 4];
        text[..FULL_LEN as usize].copy_from_slice(header);
        text[FULL_LEN as usize..].copy_from_slice(&packet_len.to_le_bytes());
        let mut hasher = self.0.clone();
        hasher.write(&text);
        hasher.finish().to_le_bytes()
    }

    /// Writes the proof of a packet of `packet_len` bytes behind its header, which is there already.
    pub fn prove(&self, packet_len: u32, head: &mut [u8; PROVEN_LEN as usize]) {
        let header = std::array::from_fn(|at| head[at]);
        head[FULL_LEN as usize..].copy_from_slice(&self.proof(&header, packet_len));
    }

    /// Returns true if a packet of `packet_len` bytes, of which these are the first, proves itself.
    #[must_use]
    pub fn holds(&self, packet: &[u8], packet_len: u32) -> bool {
        let Some((header, rest)) = packet.split_first_chunk::<{ FULL_LEN as usize }>() else {
            return false;
        };
        // Two numbers: the comparison takes as long wherever they differ.
        rest.first_chunk().is_some_and(|proof| {
            u64::from_le_bytes(*proof) == u64::from_le_bytes(self.proof(header, packet_len))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_packets_carry_no_time() {
        for (len, want) in [(12, None), (19, None), (20, Some(7)), (1472, Some(7))] {
            let mut packet = vec![0; 1472];
            let mut head = [0; 20];
            let used = PacketHeader::write(3, u64::MAX, 7, len, &mut head);
            packet[..used].copy_from_slice(&head[..used]);
            let got = PacketHeader::parse(&packet[..len as usize]).expect("long enough");
            assert_eq!(got, PacketHeader { handle: 3, seq: u64::MAX, sent_ns: want }, "len {len}");
        }
        assert_eq!(PacketHeader::parse(&[0; 11]), None);
    }

    /// The example of the paper, Appendix A; and a key is two numbers, the lower one first.
    #[test]
    fn proofs_are_siphash_2_4() {
        let key = PacketKey::new([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]);
        let mut hasher = key.0;
        hasher.write(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14]);
        assert_eq!(hasher.finish(), 0xa129_ca61_49be_45e5);
    }

    #[test]
    fn what_is_changed_proves_nothing() {
        let key = PacketKey::new([7; 16]);
        let mut head = [0; 28];
        let header = head.first_chunk_mut().expect("28 bytes");
        PacketHeader::write(3, 4, 5, 100, header);
        key.prove(100, &mut head);
        let mut packet = [9; 100];
        packet[..28].copy_from_slice(&head);
        assert!(key.holds(&packet, 100) && key.holds(&packet[..28], 100));
        assert!(!key.holds(&packet, 99), "the length is proven");
        assert!(!key.holds(&packet[..27], 100), "half a proof");
        assert!(!PacketKey::new([8; 16]).holds(&packet, 100), "another key");
        for bit in 0..28 * 8 {
            packet[bit / 8] ^= 1 << (bit % 8);
            assert!(!key.holds(&packet, 100), "bit {bit}");
            packet[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn times_that_no_clock_shows_are_refused() {
        let times = [(0, true), (MAX_TIME_NS, true), (MAX_TIME_NS + 1, false), (u64::MAX, false)];
        for (sent_ns, good) in times {
            let mut head = [0; 20];
            PacketHeader::write(3, 4, sent_ns, 20, &mut head);
            assert_eq!(PacketHeader::parse(&head).is_some(), good, "{sent_ns}");
        }
    }
}
