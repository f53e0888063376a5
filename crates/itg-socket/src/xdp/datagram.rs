//! UDP datagrams as they are found in Ethernet frames from outside: headers, lengths and checksums are
//! checked once, nothing is taken on trust.

use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};

use super::frame::{ETHERNET_LEN, UDP_LEN, UDP_SUM, UDP_TOTAL, V4_LEN, V6_LEN, fold, sum, word};

/// Types of frames: IPv4 and IPv6 (IANA).
const V4: u16 = 0x0800;
const V6: u16 = 0x86DD;
/// UDP among the protocols of IP (IANA).
const UDP: u8 = 17;
/// More fragments, and the offset of a fragment (RFC 791).
const FRAGMENT: u16 = 0x3FFF;

/// A datagram in a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameDatagram<'a> {
    /// Source; link-local addresses have the number of the device.
    pub from: SocketAddr,
    /// Destination.
    pub to: SocketAddr,
    /// Time to live or hop limit.
    pub ttl: u8,
    /// Traffic class.
    pub tos: u8,
    /// Content behind the header of UDP.
    pub content: &'a [u8],
}

/// Reason why a frame holds no datagram that the network stack would deliver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BrokenFrame {
    /// Other headers, or fewer bytes than these have.
    #[error("no UDP over IP, whole and without options")]
    Headers,
    /// A length that the frame does not have room for, or that has no room for its header.
    #[error("a length that cannot be")]
    Length,
    /// Bytes that are not those that were sent.
    #[error("a wrong checksum")]
    Checksum,
}

/// Returns the destination that a frame names, if it is UDP over IP at all.
pub(super) fn destination(frame: &[u8]) -> Option<SocketAddr> {
    let (ip, port) = match u16_at(frame, 12)? {
        V4 => (IpAddr::from(*frame.get(30..)?.first_chunk::<4>()?), u16_at(frame, 36)?),
        V6 => (IpAddr::from(*frame.get(38..)?.first_chunk::<16>()?), u16_at(frame, 56)?),
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

/// Reads the datagram of a frame that came through a device.
pub(super) fn read(frame: &[u8], device: u32) -> Result<FrameDatagram<'_>, BrokenFrame> {
    let kind = u16_at(frame, 12).ok_or(BrokenFrame::Headers)?;
    let ip = frame.get(ETHERNET_LEN..).ok_or(BrokenFrame::Headers)?;
    match kind {
        V4 => read_v4(ip, device),
        V6 => read_v6(ip, device),
        _ => Err(BrokenFrame::Headers),
    }
}

fn read_v4(ip: &[u8], device: u32) -> Result<FrameDatagram<'_>, BrokenFrame> {
    let header = ip.first_chunk::<V4_LEN>().ok_or(BrokenFrame::Headers)?;
    let [first, tos, total_high, total_low, _, _, part_high, part_low, ttl, protocol, ..] = *header;
    let part = u16::from_be_bytes([part_high, part_low]) & FRAGMENT;
    if (first, protocol, part) != (0x45, UDP, 0) {
        return Err(BrokenFrame::Headers);
    }
    if fold(sum(header)) != u16::MAX {
        return Err(BrokenFrame::Checksum);
    }
    let total = usize::from(u16::from_be_bytes([total_high, total_low]));
    let udp = ip.get(V4_LEN..total).ok_or(BrokenFrame::Length)?;
    let [.., a, b, c, d, e, f, g, h] = *header;
    let (from, to) = (IpAddr::from([a, b, c, d]), IpAddr::from([e, f, g, h]));
    read_udp(udp, &header[V4_LEN - 8..], (from, to), (ttl, tos), device)
}

fn read_v6(ip: &[u8], device: u32) -> Result<FrameDatagram<'_>, BrokenFrame> {
    let header = ip.first_chunk::<V6_LEN>().ok_or(BrokenFrame::Headers)?;
    let [first, second, _, _, len_high, len_low, next, ttl, ..] = *header;
    if (first >> 4, next) != (6, UDP) {
        return Err(BrokenFrame::Headers);
    }
    let len = usize::from(u16::from_be_bytes([len_high, len_low]));
    let udp = ip.get(V6_LEN..V6_LEN + len).ok_or(BrokenFrame::Length)?;
    let (addresses, tos) = (&header[8..], first << 4 | second >> 4);
    let at = |from: usize| addresses.get(from..).and_then(|rest| rest.first_chunk::<16>());
    let (Some(from), Some(to)) = (at(0), at(16)) else { return Err(BrokenFrame::Headers) };
    read_udp(udp, addresses, (IpAddr::from(*from), IpAddr::from(*to)), (ttl, tos), device)
}

/// Reads a datagram behind the header of IP, whose addresses as bytes are `addresses`.
fn read_udp<'a>(
    udp: &'a [u8],
    addresses: &[u8],
    (from, to): (IpAddr, IpAddr),
    (ttl, tos): (u8, u8),
    device: u32,
) -> Result<FrameDatagram<'a>, BrokenFrame> {
    let port = |at: usize| u16_at(udp, at).ok_or(BrokenFrame::Length);
    let (from_port, to_port, len) = (port(0)?, port(2)?, port(UDP_TOTAL)?);
    // What is behind the datagram is filling.
    let udp = udp.get(..usize::from(len)).ok_or(BrokenFrame::Length)?;
    let content = udp.get(UDP_LEN..).ok_or(BrokenFrame::Length)?;
    let told = udp.get(UDP_SUM..).and_then(|rest| rest.first_chunk::<2>());
    let told = told.map(|bytes| u16::from_ne_bytes(*bytes)).ok_or(BrokenFrame::Length)?;
    let pseudo = sum(addresses) + word(u16::from(UDP)) + word(len);
    let holds = match told {
        // None was made, which only IPv4 allows (RFC 768; RFC 8200, 8.1).
        0 => from.is_ipv4(),
        // The kernel of this machine leaves the rest to the device, and a virtual one to nobody.
        told if told == fold(pseudo) => true,
        _ => fold(pseudo + sum(udp)) == u16::MAX,
    };
    if !holds {
        return Err(BrokenFrame::Checksum);
    }
    let from = match from {
        IpAddr::V6(ip) if ip.is_unicast_link_local() => scoped(ip, from_port, device),
        _ => SocketAddr::new(from, from_port),
    };
    Ok(FrameDatagram { from, to: SocketAddr::new(to, to_port), ttl, tos, content })
}

/// An address that is valid on one link only.
const fn scoped(ip: Ipv6Addr, port: u16, device: u32) -> SocketAddr {
    SocketAddr::V6(SocketAddrV6::new(ip, port, 0, device))
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::frame::{Ends, FrameHead};
    use super::*;
    use crate::mmsg::Outgoing;

    const DEVICE: u32 = 7;

    fn ends(from: &str, to: &str) -> Ends {
        let at = |text: &str| text.parse().expect("an address");
        let [from_mac, to_mac] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];
        Ends { from_mac, to_mac, from: at(from), to: at(to), ttl: 17, tos: 0xBA }
    }

    fn frame(ends: &Ends, content: &[u8]) -> Vec<u8> {
        let head = FrameHead::new(ends).expect("one version");
        let packet = Outgoing::new(content, &[]);
        let mut frame = vec![0; head.frame_len(&packet)];
        head.write(&packet, &mut frame);
        frame
    }

    const ADDRESSES: [(&str, &str); 2] =
        [("10.0.0.1:4000", "10.0.0.2:8999"), ("[fd00::1]:4000", "[fd00::2]:8999")];

    #[test]
    fn a_datagram_is_read_as_it_was_written() {
        for (from, to) in ADDRESSES {
            let ends = ends(from, to);
            let mut bytes = frame(&ends, b"content");
            let want = FrameDatagram {
                from: ends.from,
                to: ends.to,
                ttl: 17,
                tos: 0xBA,
                content: b"content",
            };
            assert_eq!(read(&bytes, DEVICE), Ok(want), "{to}");
            assert_eq!(destination(&bytes), Some(ends.to));
            // Short frames are filled up to 60 bytes.
            bytes.extend([0; 20]);
            assert_eq!(read(&bytes, DEVICE), Ok(want), "{to}");
        }
        let bytes = frame(&ends("[fe80::1]:1", "[fe80::2]:2"), b"");
        let from = read(&bytes, DEVICE).expect("a datagram").from;
        assert_eq!(from.to_string(), "[fe80::1%7]:1");
    }

    #[test]
    fn sums_that_are_left_out_or_left_to_the_device_count() {
        for (from, to) in ADDRESSES {
            let ends = ends(from, to);
            let mut bytes = frame(&ends, b"content");
            let at = bytes.len() - 7 - 2;
            bytes[at..at + 2].fill(0);
            let want = if ends.to.is_ipv4() { None } else { Some(BrokenFrame::Checksum) };
            assert_eq!(read(&bytes, DEVICE).err(), want, "no sum, {to}");
            let addresses = if ends.to.is_ipv4() { &bytes[26..34] } else { &bytes[22..54] };
            let pseudo = fold(sum(addresses) + word(17) + word(15));
            bytes[at..at + 2].copy_from_slice(&pseudo.to_ne_bytes());
            assert!(read(&bytes, DEVICE).is_ok(), "the sum of the pseudo-header alone, {to}");
            bytes[at] ^= 1;
            assert_eq!(read(&bytes, DEVICE), Err(BrokenFrame::Checksum), "{to}");
        }
    }

    #[test]
    fn lengths_that_cannot_be_are_told() {
        for (from, to) in ADDRESSES {
            let ends = ends(from, to);
            let whole = frame(&ends, b"content");
            for len in 0..whole.len() {
                assert!(read(&whole[..len], DEVICE).is_err(), "{len} bytes of {}", whole.len());
            }
            let udp = whole.len() - 15;
            for len in [0, 7, 16, u16::MAX] {
                let mut bytes = whole.clone();
                bytes[udp + 4..udp + 6].copy_from_slice(&len.to_be_bytes());
                assert_eq!(read(&bytes, DEVICE), Err(BrokenFrame::Length), "{len}, {to}");
            }
        }
    }

    proptest! {
        #[test]
        fn bytes_from_outside_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let whole = read(&bytes, DEVICE).map(|datagram| datagram.content.len());
            prop_assert!(whole.is_err() || destination(&bytes).is_some());
        }

        /// Content that is accepted of a damaged frame is what was sent: sums of 16 bits find one wrong bit.
        #[test]
        fn a_damaged_frame_is_no_other_datagram(
            version in 0..2_usize,
            content in proptest::collection::vec(any::<u8>(), 0..100),
            bit in 0..240 * 8_usize,
        ) {
            let (from, to) = ADDRESSES[version];
            let ends = ends(from, to);
            let mut bytes = frame(&ends, &content);
            let ethernet = ETHERNET_LEN * 8;
            let bit = ethernet + bit % (bytes.len() * 8 - ethernet);
            bytes[bit / 8] ^= 1 << (bit % 8);
            // One sum in 65 536 is by chance that of the pseudo-header, which says nothing of the rest.
            let (addresses, udp) = if version == 0 { (26..34, 34) } else { (22..54, 54) };
            let len = u16_at(&bytes, udp + UDP_TOTAL).expect("a whole header");
            let pseudo = fold(sum(&bytes[addresses]) + word(17) + word(len)).to_ne_bytes();
            prop_assume!(bytes[udp + UDP_SUM..][..2] != pseudo);
            if let Ok(got) = read(&bytes, DEVICE) {
                prop_assert_eq!((got.from, got.to), (ends.from, ends.to));
                prop_assert_eq!(got.content, &content[..]);
            }
        }
    }
}
