//! Ethernet frames with UDP inside, written by the program: what the kernel's network stack would
//! have put before a datagram, headers prepared once a flow.
//!
//! Checksums are those of RFC 1071: sums in one's complement do not depend on the order of the bytes, so
//! they are summed in the order of this machine, four bytes at a time.
#![expect(
    clippy::cast_possible_truncation,
    reason = "lengths that fit an IP packet, and sums that are folded to 16 bits"
)]

use std::net::{IpAddr, SocketAddr};

use etherparse::{
    EtherType, Ethernet2Header, IpDscp, IpEcn, IpNumber, Ipv4Header, Ipv6Header, UdpHeader,
};

use crate::mmsg::Outgoing;

/// Ethernet, IPv4 and UDP: 14, 20 and 8 bytes; IPv6 takes 20 more.
pub(super) const ETHERNET_LEN: usize = 14;
pub(super) const V4_LEN: usize = 20;
pub(super) const V6_LEN: usize = 40;
pub(super) const UDP_LEN: usize = 8;
const LONGEST: usize = ETHERNET_LEN + V6_LEN + UDP_LEN;
/// Offsets of lengths and checksums from the start of the IP header (RFC 791, RFC 8200).
const V4_TOTAL: usize = 2;
const V4_SUM: usize = 10;
const V6_PAYLOAD: usize = 4;
/// The same from the start of the UDP header (RFC 768).
pub(super) const UDP_TOTAL: usize = 4;
pub(super) const UDP_SUM: usize = 6;

/// An Ethernet address.
pub(crate) type Mac = [u8; 6];

/// Headers that all packets of a flow have before their content.
#[derive(Clone, Debug)]
pub(crate) struct FrameHead {
    bytes: [u8; LONGEST],
    v6: bool,
    /// Of the IPv4 header without its length.
    ip_sum: u64,
    /// Of the pseudo-header and the UDP header without lengths.
    udp_sum: u64,
}

/// Addresses of the frames of a flow, and other header fields.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ends {
    /// Ethernet address of this host.
    pub from_mac: Mac,
    /// Ethernet address of the next hop.
    pub to_mac: Mac,
    /// Source.
    pub from: SocketAddr,
    /// Destination.
    pub to: SocketAddr,
    /// Time to live or hop limit.
    pub ttl: u8,
    /// Traffic class.
    pub tos: u8,
}

impl FrameHead {
    /// `None` when the addresses are not of one IP version.
    pub(crate) fn new(ends: &Ends) -> Option<Self> {
        // Lengths and checksums are written packet by packet.
        let (ether_type, ip, addresses, v6) = match (ends.from.ip(), ends.to.ip()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                let header = Ipv4Header {
                    dscp: IpDscp::try_new(ends.tos >> 2).ok()?,
                    ecn: IpEcn::try_new(ends.tos & 3).ok()?,
                    // Not to be fragmented, as the kernel sends what fits the link; so the
                    // identification may be anything (RFC 6864, 4.1).
                    dont_fragment: true,
                    time_to_live: ends.ttl,
                    protocol: IpNumber::UDP,
                    source: from.octets(),
                    destination: to.octets(),
                    ..Ipv4Header::default()
                };
                (EtherType::IPV4, header.to_bytes().to_vec(), 12..20, false)
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                let header = Ipv6Header {
                    traffic_class: ends.tos,
                    next_header: IpNumber::UDP,
                    hop_limit: ends.ttl,
                    source: from.octets(),
                    destination: to.octets(),
                    ..Ipv6Header::default()
                };
                (EtherType::IPV6, header.to_bytes().to_vec(), 8..40, true)
            }
            _ => return None,
        };
        let ethernet =
            Ethernet2Header { source: ends.from_mac, destination: ends.to_mac, ether_type };
        let (source_port, destination_port) = (ends.from.port(), ends.to.port());
        let udp = UdpHeader { source_port, destination_port, ..UdpHeader::default() }.to_bytes();
        let head = [&ethernet.to_bytes()[..], &ip, &udp].concat();
        let mut bytes = [0; LONGEST];
        bytes[..head.len()].copy_from_slice(&head);
        let ip_sum = sum(&ip);
        let udp_sum = sum(&ip[addresses]) + sum(&udp) + word(u16::from(IpNumber::UDP.0));
        Some(Self { bytes, v6, ip_sum, udp_sum })
    }

    const fn ip_len(&self) -> usize {
        if self.v6 { V6_LEN } else { V4_LEN }
    }

    /// Bytes of the frame of a packet.
    pub(crate) const fn frame_len(&self, packet: &Outgoing<'_>) -> usize {
        ETHERNET_LEN + self.ip_len() + UDP_LEN + packet.head.len() + packet.body.len()
    }

    /// Largest frame of a link whose IP packets have at most `mtu` bytes.
    pub(crate) const fn most(mtu: usize) -> usize {
        ETHERNET_LEN + mtu
    }

    /// Writes the frame of a packet to the first [`FrameHead::frame_len`] bytes of `out`.
    ///
    /// # Panics
    /// When there are fewer, or more than an IP packet may have.
    pub(crate) fn write(&self, packet: &Outgoing<'_>, out: &mut [u8]) {
        let before = ETHERNET_LEN + self.ip_len() + UDP_LEN;
        out[..before].copy_from_slice(&self.bytes[..before]);
        let (head, body) = (packet.head.len(), packet.body.len());
        out[before..before + head].copy_from_slice(packet.head);
        out[before + head..before + head + body].copy_from_slice(packet.body);
        let udp_len = u16::try_from(UDP_LEN + head + body).expect("fits an IP packet");
        // Words end where the first piece does, and what is summed has not been written just now; else as it lies.
        let content = if head.is_multiple_of(2) {
            sum(packet.head) + sum(packet.body)
        } else {
            sum(&out[before..before + head + body])
        };
        let ip = &mut out[ETHERNET_LEN..];
        if self.v6 {
            ip[V6_PAYLOAD..][..2].copy_from_slice(&udp_len.to_be_bytes());
        } else {
            let total = udp_len.checked_add(V4_LEN as u16).expect("fits an IP packet");
            ip[V4_TOTAL..][..2].copy_from_slice(&total.to_be_bytes());
            let checksum = !fold(self.ip_sum + word(total));
            ip[V4_SUM..][..2].copy_from_slice(&checksum.to_ne_bytes());
        }
        let udp = &mut ip[self.ip_len()..];
        udp[UDP_TOTAL..][..2].copy_from_slice(&udp_len.to_be_bytes());
        // The length stands in the header and in the pseudo-header. A sum of zero means that there is
        // none (RFC 768).
        let checksum = match !fold(self.udp_sum + 2 * word(udp_len) + content) {
            0 => u16::MAX,
            checksum => checksum,
        };
        udp[UDP_SUM..][..2].copy_from_slice(&checksum.to_ne_bytes());
    }
}

/// A word of a packet, for a sum.
pub(super) fn word(value: u16) -> u64 {
    u64::from(u16::from_ne_bytes(value.to_be_bytes()))
}

/// Sum of the bytes as words, an odd one at the end filled up with zero.
pub(super) fn sum(bytes: &[u8]) -> u64 {
    let (fours, rest) = bytes.as_chunks::<4>();
    let sum: u64 = fours.iter().map(|four| u64::from(u32::from_ne_bytes(*four))).sum();
    let mut last = [0; 4];
    last[..rest.len()].copy_from_slice(rest);
    sum + u64::from(u32::from_ne_bytes(last))
}

/// A sum as one word, with end-around carries.
pub(super) fn fold(mut sum: u64) -> u16 {
    while sum > 0xFFFF {
        sum = (sum & 0xFFFF) + (sum >> 16);
    }
    sum as u16
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Fields of a frame as read by the standards; shares nothing with the code above.
    #[derive(Debug, PartialEq)]
    struct Read {
        to_mac: Vec<u8>,
        from_mac: Vec<u8>,
        from: SocketAddr,
        to: SocketAddr,
        ttl: u8,
        tos: u8,
        content: Vec<u8>,
    }

    /// Sum of 16-bit words, most significant byte first, one by one (RFC 1071, 1).
    fn slow_sum(words: &[u8]) -> u16 {
        let mut sum = 0u32;
        for pair in words.chunks(2) {
            sum += u32::from(pair[0]) * 256 + pair.get(1).map_or(0, |low| u32::from(*low));
            if sum > 0xFFFF {
                sum -= 0xFFFF;
            }
        }
        u16::try_from(sum).expect("carried around")
    }

    fn read(frame: &[u8]) -> Result<Read, &'static str> {
        let u16_at = |at: usize| u16::from(frame[at]) << 8 | u16::from(frame[at + 1]);
        let (pseudo, ip_end, from, to, ttl, tos): (Vec<u8>, _, IpAddr, IpAddr, _, _) =
            match u16_at(12) {
                0x0800 => {
                    if frame[14] != 0x45 || slow_sum(&frame[14..34]) != 0xFFFF {
                        return Err("IPv4 header");
                    }
                    if usize::from(u16_at(16)) != frame.len() - 14 || u16_at(20) != 0x4000 {
                        return Err("IPv4 length or fragment");
                    }
                    let ip = |at: usize| -> IpAddr {
                        <[u8; 4]>::try_from(&frame[at..at + 4]).expect("four").into()
                    };
                    (frame[26..34].to_vec(), 34, ip(26), ip(30), frame[22], frame[15])
                }
                0x86DD => {
                    if frame[14] >> 4 != 6 || usize::from(u16_at(18)) != frame.len() - 54 {
                        return Err("IPv6 header");
                    }
                    let ip = |at: usize| -> IpAddr {
                        <[u8; 16]>::try_from(&frame[at..at + 16]).expect("sixteen").into()
                    };
                    let class = u8::try_from(u16_at(14) >> 4 & 0xFF).expect("eight bits");
                    if u16_at(14) & 0xF != 0 || u16_at(16) != 0 {
                        return Err("IPv6 flow label");
                    }
                    (frame[22..54].to_vec(), 54, ip(22), ip(38), frame[21], class)
                }
                _ => return Err("kind"),
            };
        let proto = if ip_end == 34 { frame[23] } else { frame[20] };
        let udp = &frame[ip_end..];
        if proto != 17 || usize::from(u16_at(ip_end + 4)) != udp.len() || u16_at(ip_end + 6) == 0 {
            return Err("UDP header");
        }
        let len = u32::try_from(udp.len()).expect("a datagram").to_be_bytes();
        let all = [&pseudo[..], &len, &[0, 0, 0, 17], udp].concat();
        if slow_sum(&all) != 0xFFFF {
            return Err("UDP checksum");
        }
        Ok(Read {
            to_mac: frame[..6].to_vec(),
            from_mac: frame[6..12].to_vec(),
            from: SocketAddr::new(from, u16_at(ip_end)),
            to: SocketAddr::new(to, u16_at(ip_end + 2)),
            ttl,
            tos,
            content: udp[8..].to_vec(),
        })
    }

    fn check(ends: &Ends, content: &[u8], cut: usize) -> Result<(), TestCaseError> {
        let head = FrameHead::new(ends).expect("one version");
        let (first, rest) = content.split_at(cut);
        let packet = Outgoing::new(first, rest);
        // What was there before does not matter.
        let mut frame = vec![0xA5; head.frame_len(&packet)];
        head.write(&packet, &mut frame);
        let want = Read {
            to_mac: ends.to_mac.to_vec(),
            from_mac: ends.from_mac.to_vec(),
            from: ends.from,
            to: ends.to,
            ttl: ends.ttl,
            tos: ends.tos,
            content: content.to_vec(),
        };
        prop_assert_eq!(read(&frame), Ok(want));
        Ok(())
    }

    fn addresses() -> impl Strategy<Value = (IpAddr, IpAddr)> {
        prop_oneof![
            any::<([u8; 4], [u8; 4])>().prop_map(|(a, b)| (a.into(), b.into())),
            any::<([u8; 16], [u8; 16])>().prop_map(|(a, b)| (a.into(), b.into())),
        ]
    }

    proptest! {
        #[test]
        fn a_reader_of_the_standards_finds_what_was_written(
            (from, to) in addresses(),
            ports: (u16, u16),
            macs: (Mac, Mac),
            ttl: u8,
            tos: u8,
            content in proptest::collection::vec(any::<u8>(), 0..1600),
            cut: prop::sample::Index,
        ) {
            let ends = Ends {
                from_mac: macs.0,
                to_mac: macs.1,
                from: SocketAddr::new(from, ports.0),
                to: SocketAddr::new(to, ports.1),
                ttl,
                tos,
            };
            check(&ends, &content, cut.index(content.len() + 1))?;
        }
    }

    #[test]
    fn a_sum_of_zero_is_written_as_all_ones() {
        let ends = Ends {
            from_mac: [0; 6],
            to_mac: [0; 6],
            from: "0.0.0.0:0".parse().expect("an address"),
            to: "0.0.0.0:0".parse().expect("an address"),
            ttl: 0,
            tos: 0,
        };
        // Protocol 17 and twice the length 10: the content makes it all ones.
        let content = (0xFFFF - 17 - 20_u16).to_be_bytes();
        let head = FrameHead::new(&ends).expect("one version");
        let packet = Outgoing::new(&content, &[]);
        let mut frame = vec![0; head.frame_len(&packet)];
        head.write(&packet, &mut frame);
        assert_eq!(frame[40..42], [0xFF, 0xFF]);
        assert!(read(&frame).is_ok());
    }

    #[test]
    fn versions_do_not_mix() {
        let ends = Ends {
            from_mac: [0; 6],
            to_mac: [0; 6],
            from: "10.0.0.1:1".parse().expect("an address"),
            to: "[fd00::1]:1".parse().expect("an address"),
            ttl: 64,
            tos: 0,
        };
        assert!(FrameHead::new(&ends).is_none());
    }
}
