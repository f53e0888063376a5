//! Any bytes as an Ethernet frame that a device has received: refused, or a datagram that another reader finds there,
//! too; what that one finds whole, plain and with right sums is not refused.
#![no_main]

use std::net::{IpAddr, SocketAddr};

use etherparse::{NetSlice, SlicedPacket, TransportSlice, checksum::Sum16BitWords};
use itg_socket::xdp::Arrived;
use libfuzzer_sys::fuzz_target;

/// What the other reader finds.
struct Other<'a> {
    ends: [(IpAddr, u16); 2],
    ttl: u8,
    tos: u8,
    content: &'a [u8],
    /// All sums are right, or left out where they may be.
    sums: bool,
    /// The sum of UDP is that of the pseudo-header alone, which leaves the rest to the device.
    partial: bool,
}

/// Reads UDP over IP without options, VLANs or fragments; lengths of zero that stand for others are no lengths.
fn other(frame: &[u8]) -> Option<Other<'_>> {
    let packet = SlicedPacket::from_ethernet(frame).ok()?;
    let Some(TransportSlice::Udp(udp)) = packet.transport else { return None };
    if !packet.link_exts.is_empty() || udp.length() == 0 {
        return None;
    }
    let (header, content, told) = (udp.to_header(), udp.payload(), udp.checksum());
    let ports = [udp.source_port(), udp.destination_port()];
    // A sum is written from its first byte on; zero stands for none.
    let pseudo = |ip: &[u8]| {
        let sum = ip
            .chunks_exact(4)
            .fold(Sum16BitWords::new(), |mut sum, four| sum.add_4bytes(four.try_into().unwrap()));
        let sum = sum.add_2bytes([0, 17]).add_2bytes(udp.length().to_be_bytes());
        !sum.ones_complement().to_be()
    };
    match packet.net? {
        NetSlice::Ipv4(ip) => {
            let (ip, exts) = (ip.header(), ip.extensions());
            if !ip.options().is_empty() || exts.auth.is_some() {
                return None;
            }
            let ends = [ip.source_addr().into(), ip.destination_addr().into()];
            let right = header.calc_checksum_ipv4(&ip.to_header(), content).ok()?;
            // The other reader's own sum leaves out the bit that nobody uses.
            let head = slow_sum(&[ip.slice()]) == u16::MAX;
            let partial = told == pseudo(&[ip.source(), ip.destination()].concat());
            Some(Other {
                ends: [(ends[0], ports[0]), (ends[1], ports[1])],
                ttl: ip.ttl(),
                tos: ip.dcp().value() << 2 | ip.ecn().value(),
                content,
                sums: head && (told == 0 || told == right),
                partial: head && partial,
            })
        }
        NetSlice::Ipv6(ip) => {
            if !ip.extensions().is_empty() || ip.header().payload_length() == 0 {
                return None;
            }
            let ip = ip.header();
            let ends = [ip.source_addr().into(), ip.destination_addr().into()];
            let right = header.calc_checksum_ipv6(&ip.to_header(), content).ok()?;
            let partial = told == pseudo(&[ip.source(), ip.destination()].concat());
            Some(Other {
                ends: [(ends[0], ports[0]), (ends[1], ports[1])],
                ttl: ip.hop_limit(),
                tos: ip.traffic_class(),
                content,
                sums: told == right,
                partial: partial && told != 0,
            })
        }
        NetSlice::Arp(_) => None,
    }
}

fn check(frame: &[u8]) {
    let end = |at: SocketAddr| (at.ip(), at.port());
    let arrived = Arrived::read(frame, 7, None);
    let other = other(frame);
    match arrived.datagram {
        Ok(datagram) => {
            let other = other.expect("another reader finds a datagram, too");
            assert_eq!([end(datagram.from), end(datagram.to)], other.ends);
            assert_eq!((datagram.ttl, datagram.tos), (other.ttl, other.tos));
            assert_eq!(datagram.content, other.content);
            assert!(other.sums || other.partial, "a wrong sum is accepted");
            assert_eq!(arrived.to, Some(datagram.to));
        }
        Err(why) => assert!(!other.is_some_and(|other| other.sums), "refused as {why}"),
    }
}

/// The same frame with right sums, which are nothing a fuzzer guesses.
fn mended(frame: &[u8]) -> Option<Vec<u8>> {
    let mut mended = frame.to_vec();
    let v6 = match frame.get(12..14)? {
        [0x08, 0x00] => false,
        [0x86, 0xDD] => true,
        _ => return None,
    };
    let (addresses, udp) = if v6 { (22..54, 54) } else { (26..34, 34) };
    if !v6 {
        mended.get_mut(24..26)?.fill(0);
        let sum = slow_sum(&[mended.get(14..34)?]);
        mended[24..26].copy_from_slice(&(!sum).to_be_bytes());
    }
    let len = usize::from(u16::from_be_bytes(frame.get(udp + 4..udp + 6)?.try_into().ok()?));
    mended.get_mut(udp + 6..udp + 8)?.fill(0);
    let told = (len as u16).to_be_bytes();
    let parts = [mended.get(addresses)?, &[0, 17], &told, mended.get(udp..udp.checked_add(len)?)?];
    let sum = match !slow_sum(&parts) {
        0 => 0xFFFF,
        sum => sum,
    };
    mended[udp + 6..udp + 8].copy_from_slice(&sum.to_be_bytes());
    Some(mended)
}

/// Sum of words, most significant byte first, of which only the last part may have an odd one (RFC 1071, 1).
fn slow_sum(parts: &[&[u8]]) -> u16 {
    let mut sum = 0_u64;
    for pair in parts.iter().flat_map(|part| part.chunks(2)) {
        sum += u64::from(pair[0]) << 8 | pair.get(1).map_or(0, |low| u64::from(*low));
    }
    while sum > 0xFFFF {
        sum = (sum & 0xFFFF) + (sum >> 16);
    }
    sum as u16
}

fuzz_target!(|frame: &[u8]| {
    check(frame);
    if let Some(mended) = mended(frame) {
        check(&mended);
    }
});
