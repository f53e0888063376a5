//! Simulated traffic as a capture file that network analysers read.
//!
//! The file is pcapng (IETF draft-ietf-opsawg-pcapng) with nanosecond times and raw IP packets. Host
//! *k* has the address 10.0.0.1 + *k* (in the last three bytes), networks are ports 9000 + number;
//! messages are UDP datagrams whose payload is the frame of the runtime.

use bytes::BytesMut;
use etherparse::{IpNumber, Ipv4Header, UdpHeader};
use itg_process::{Message, Slot, frame};

/// Raw IP packets.
const LINK_TYPE_RAW: u16 = 101;
/// Largest UDP payload.
const MOST: usize = 65_535 - 28;

/// A capture under construction.
#[derive(Clone, Debug)]
pub struct Pcapng {
    bytes: Vec<u8>,
}

impl Default for Pcapng {
    fn default() -> Self {
        Self::new()
    }
}

impl Pcapng {
    /// An empty capture: section header and one interface.
    #[must_use]
    pub fn new() -> Self {
        let mut file = Self { bytes: Vec::new() };
        let mut section = Vec::new();
        section.extend(0x1a2b_3c4d_u32.to_le_bytes());
        section.extend([1, 0, 0, 0]);
        section.extend(u64::MAX.to_le_bytes());
        file.block(0x0a0d_0d0a, &section);
        let mut interface = Vec::new();
        interface.extend(LINK_TYPE_RAW.to_le_bytes());
        interface.extend([0; 2]);
        interface.extend(0_u32.to_le_bytes());
        // Times in nanoseconds (if_tsresol 9), then the end of the options.
        interface.extend([9, 0, 1, 0, 9, 0, 0, 0, 0, 0, 0, 0]);
        file.block(1, &interface);
        file
    }

    /// Adds a message that arrives at a host at this time, in nanoseconds.
    pub fn message(&mut self, at: u64, message: &Message, to: Slot) {
        let mut payload = BytesMut::new();
        frame::encode(message, 0, 0, &mut payload);
        let port = 9000 + u16::from(message.net.0);
        self.datagram(at, message.src, to, port, &payload);
    }

    /// Adds a UDP datagram; a payload beyond 65 507 bytes is cut.
    pub fn datagram(&mut self, at: u64, from: Slot, to: Slot, port: u16, payload: &[u8]) {
        let payload = &payload[..payload.len().min(MOST)];
        // No UDP checksum (RFC 768).
        let length = u16::try_from(payload.len() + UdpHeader::LEN).unwrap_or(u16::MAX);
        let udp = UdpHeader { source_port: port, destination_port: port, length, checksum: 0 };
        let mut ip = Ipv4Header {
            total_len: length.saturating_add(20),
            dont_fragment: false,
            time_to_live: 64,
            protocol: IpNumber::UDP,
            source: address(from),
            destination: address(to),
            ..Ipv4Header::default()
        };
        ip.header_checksum = ip.calc_header_checksum();
        let ip = [&ip.to_bytes()[..], &udp.to_bytes(), payload].concat();
        let captured = u32::try_from(ip.len()).unwrap_or(u32::MAX).to_le_bytes();
        let mut body = vec![0; 4];
        body.extend(u32::try_from(at >> 32).unwrap_or(0).to_le_bytes());
        body.extend(u32::try_from(at & 0xffff_ffff).unwrap_or(0).to_le_bytes());
        body.extend(captured);
        body.extend(captured);
        body.extend(ip);
        self.block(6, &body);
    }

    /// The file.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    fn block(&mut self, kind: u32, body: &[u8]) {
        let padded = body.len().next_multiple_of(4);
        let length = u32::try_from(padded + 12).unwrap_or(u32::MAX).to_le_bytes();
        self.bytes.extend(kind.to_le_bytes());
        self.bytes.extend(length);
        self.bytes.extend(body);
        self.bytes.resize(self.bytes.len() + padded - body.len(), 0);
        self.bytes.extend(length);
    }
}

/// 10.0.0.1 and up.
fn address(slot: Slot) -> [u8; 4] {
    (0x0a00_0001_u32.wrapping_add(slot.0 & 0x00ff_ffff)).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_of_a_capture_stay_the_same() {
        let mut file = Pcapng::new();
        file.datagram(0x1_0000_0002, Slot(0), Slot(255), 9001, b"abc");
        file.datagram(7, Slot(3), Slot(1), 9000, &[9; 70_000]);
        let bytes = file.into_bytes();
        assert_eq!((bytes.len(), crc32c::crc32c(&bytes)), (65_692, 0x675b_4c38));
    }

    #[test]
    fn blocks_and_addresses_are_where_readers_look_for_them() {
        let mut file = Pcapng::new();
        file.datagram(0x1_0000_0002, Slot(0), Slot(255), 9001, b"abc");
        let bytes = file.into_bytes();
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"));
        let mut at = 0;
        let mut kinds = Vec::new();
        while at < bytes.len() {
            let length = word(at + 4) as usize;
            kinds.push((word(at), at));
            assert_eq!(word(at + length - 4) as usize, length, "length again at the end");
            at += length;
        }
        let [(0x0a0d_0d0a, 0), (1, _), (6, packet)] = kinds[..] else { panic!("{kinds:?}") };
        assert_eq!((word(packet + 12), word(packet + 16), word(packet + 20)), (1, 2, 31));
        let ip = &bytes[packet + 28..packet + 28 + 31];
        assert_eq!((&ip[12..16], &ip[16..20]), (&[10, 0, 0, 1][..], &[10, 0, 1, 0][..]));
        let (header, _) = Ipv4Header::from_slice(ip).expect("a header");
        assert_eq!(header.header_checksum, header.calc_header_checksum());
        assert_eq!(&ip[28..], b"abc");
    }
}
