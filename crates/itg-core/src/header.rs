//! The bytes that ITG puts at the start of every packet.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 4 | handle: given by the receiver when the flow is opened |
//! | 4 | 8 | sequence number, from 0 |
//! | 12 | 8 | time of sending, Unix ns of the sender's clock; only in packets of 20 bytes and more |
//!
//! A packet whose time is beyond [`MAX_TIME_NS`] is no packet of ITG: no clock shows that time, and
//! delays computed from it would make every sum over flows meaningless.
//!
//! All fields are little-endian. On TCP each packet is preceded by its whole length (4 bytes,
//! counted in the length), so that it is found again in the stream.

use crate::units::MAX_TIME_NS;

/// Bytes of a header without the time: the smallest packet.
pub const MIN_LEN: u32 = 12;
/// Bytes of a header with the time.
pub const FULL_LEN: u32 = 20;
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
