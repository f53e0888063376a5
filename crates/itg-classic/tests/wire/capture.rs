//! Captures in the golden folder: just enough of pcap, Ethernet, IP, TCP and UDP.

use std::fs;
use std::path::PathBuf;

use etherparse::{SlicedPacket, TransportSlice};

/// One packet with something in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Packet {
    /// 6 TCP, 17 UDP, else ICMP.
    pub(crate) proto: u8,
    pub(crate) src: u16,
    pub(crate) dst: u16,
    pub(crate) bytes: Vec<u8>,
}

/// All packets of a capture that carry data.
pub(crate) fn read(name: &str) -> Vec<Packet> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/wire").join(name);
    let file = fs::read(&path).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_eq!(file[..4], [0xd4, 0xc3, 0xb2, 0xa1], "{name}: little-endian pcap");
    let mut packets = Vec::new();
    let mut rest = &file[24..];
    while !rest.is_empty() {
        let len = u32::from_le_bytes(rest[8..12].try_into().expect("four bytes")) as usize;
        let frame = &rest[16..16 + len];
        rest = &rest[16 + len..];
        let packet =
            SlicedPacket::from_ethernet(frame).unwrap_or_else(|error| panic!("{name}: {error}"));
        let (proto, src, dst, bytes) = match packet.transport {
            Some(TransportSlice::Tcp(tcp)) => {
                (6, tcp.source_port(), tcp.destination_port(), tcp.payload())
            }
            Some(TransportSlice::Udp(udp)) => {
                (17, udp.source_port(), udp.destination_port(), udp.payload())
            }
            _ => {
                let ip = packet.net.as_ref().and_then(|net| net.ip_payload_ref());
                let ip = ip.unwrap_or_else(|| panic!("{name}: no IP packet"));
                (ip.ip_number.0, 0, 0, ip.payload)
            }
        };
        if !bytes.is_empty() {
            packets.push(Packet { proto, src, dst, bytes: bytes.to_vec() });
        }
    }
    packets
}

/// Bytes of one side after the other, in order; true for the side that listens at the port.
pub(crate) type Chunks = Vec<(bool, Vec<u8>)>;

/// The TCP conversations with a port, as [`Chunks`].
pub(crate) fn conversations(name: &str, port: u16) -> Vec<Chunks> {
    let mut peers: Vec<(u16, Chunks)> = Vec::new();
    for packet in read(name).into_iter().filter(|packet| packet.proto == 6) {
        let peer = match (packet.src == port, packet.dst == port) {
            (true, _) => packet.dst,
            (_, true) => packet.src,
            _ => continue,
        };
        let chunk = (packet.src == port, packet.bytes);
        match peers.iter_mut().find(|(known, _)| *known == peer) {
            Some((_, chunks)) => chunks.push(chunk),
            None => peers.push((peer, vec![chunk])),
        }
    }
    peers.into_iter().map(|(_, chunks)| chunks).collect()
}
