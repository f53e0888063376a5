//! Captures in the golden folder: just enough of pcap, Ethernet, IP, TCP and UDP.

use std::fs;
use std::path::PathBuf;

/// One packet with something in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Packet {
    /// 6 TCP, 17 UDP, else ICMP.
    pub(crate) proto: u8,
    pub(crate) src: u16,
    pub(crate) dst: u16,
    pub(crate) bytes: Vec<u8>,
}

fn be16(bytes: &[u8]) -> u16 {
    u16::from_be_bytes([bytes[0], bytes[1]])
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
        let ip = &frame[14..];
        let (proto, body) = match be16(&frame[12..]) {
            0x0800 => {
                let head = usize::from(ip[0] & 15) * 4;
                (ip[9], &ip[head..usize::from(be16(&ip[2..]))])
            }
            0x86dd => (ip[6], &ip[40..40 + usize::from(be16(&ip[4..]))]),
            other => panic!("{name}: Ethernet type {other:#x}"),
        };
        let (src, dst, bytes) = match proto {
            6 => (be16(body), be16(&body[2..]), &body[usize::from(body[12] >> 4) * 4..]),
            17 => (be16(body), be16(&body[2..]), &body[8..]),
            _ => (0, 0, body),
        };
        if !bytes.is_empty() {
            packets.push(Packet { proto, src, dst, bytes: bytes.to_vec() });
        }
    }
    packets
}

/// Whether one side speaks, and what it says; in order.
pub(crate) type Chunks = Vec<(bool, Vec<u8>)>;

/// The TCP conversations with a port: for each, whether the side at that port speaks, and what.
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
