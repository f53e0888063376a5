//! ICMP echo messages (RFC 792, RFC 4443): ITG's packet follows the eight bytes of the ICMP header.

use crate::socket::icmp_type;

/// Bytes of an ICMP echo header.
pub const HEADER_LEN: usize = 8;

/// Writes the header of an echo request. `checksum_over` are the bytes behind the header, given when
/// the program has to compute the checksum (raw IPv4 sockets); otherwise the kernel does.
pub fn write_request(
    out: &mut [u8; HEADER_LEN],
    v6: bool,
    identifier: u16,
    sequence: u16,
    checksum_over: Option<[&[u8]; 2]>,
) {
    out[0] = if v6 { icmp_type::ECHO_V6 } else { icmp_type::ECHO_V4 };
    out[1..4].fill(0);
    out[4..6].copy_from_slice(&identifier.to_be_bytes());
    out[6..8].copy_from_slice(&sequence.to_be_bytes());
    if let Some([head, body]) = checksum_over {
        let sum = checksum(&[out, head, body]);
        out[2..4].copy_from_slice(&sum.to_be_bytes());
    }
}

/// The Internet checksum (RFC 1071) of the pieces in a row; only the last may have an odd length.
fn checksum(pieces: &[&[u8]]) -> u16 {
    let mut sum = 0u64;
    for piece in pieces {
        let (words, rest) = piece.as_chunks::<4>();
        sum += words.iter().map(|word| u64::from(u32::from_be_bytes(*word))).sum::<u64>();
        let mut last = [0; 4];
        last[..rest.len()].copy_from_slice(rest);
        sum += u64::from(u32::from_be_bytes(last));
    }
    while sum > 0xFFFF {
        sum = (sum >> 16) + (sum & 0xFFFF);
    }
    !u16::try_from(sum).expect("folded to 16 bits")
}

/// Bytes in front of a packet of D-ITG: with version 6 its data begins where identifier and sequence
/// number would be.
pub const fn classic_header_len(v6: bool) -> usize {
    if v6 { 4 } else { HEADER_LEN }
}

/// Writes type, code and checksum (version 4; the kernel adds that of version 6) of D-ITG's message,
/// whose first bytes are `front`, header and all, and whose rest is `body`.
pub fn write_classic(front: &mut [u8], v6: bool, icmp_type: u8, body: &[u8]) {
    front[..classic_header_len(v6)].fill(0);
    front[0] = icmp_type;
    if !v6 {
        let sum = checksum(&[front, body]);
        front[2..4].copy_from_slice(&sum.to_be_bytes());
    }
}

/// D-ITG's packet within what a raw socket delivers: any message but the replies of kernels, or only
/// these.
pub fn classic_packet(message: &[u8], v6: bool, replies: bool) -> Option<Found<'_>> {
    let reply = if v6 { icmp_type::ECHO_REPLY_V6 } else { icmp_type::ECHO_REPLY_V4 };
    let (ip_len, ttl, tos) = if v6 {
        (0, 0, 0)
    } else {
        (usize::from(*message.first()? & 0x0F) * 4, *message.get(8)?, *message.get(1)?)
    };
    let icmp = message.get(ip_len..)?;
    if (*icmp.first()? == reply) != replies {
        return None;
    }
    let len = classic_header_len(v6);
    Some(Found { packet: icmp.get(len..)?, ttl, tos, overhead: ip_len + len })
}

/// ITG's packet within what a raw socket delivers: behind the IPv4 header (version 4 only) and the
/// ICMP header. `None` when the message is cut short or of another type than asked for.
pub fn packet(message: &[u8], with_ip_header: bool, wanted_type: u8) -> Option<Found<'_>> {
    let (ip_len, ttl, tos) = if with_ip_header {
        let first = *message.first()?;
        let len = usize::from(first & 0x0F) * 4;
        (len, message.get(8).copied()?, message.get(1).copied()?)
    } else {
        (0, 0, 0)
    };
    let icmp = message.get(ip_len..)?;
    if *icmp.first()? != wanted_type {
        return None;
    }
    Some(Found { packet: icmp.get(HEADER_LEN..)?, ttl, tos, overhead: ip_len + HEADER_LEN })
}

/// A packet found within an ICMP message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found<'a> {
    /// ITG's packet behind the ICMP header.
    pub packet: &'a [u8],
    /// Time to live, or hop limit, as it arrived.
    pub ttl: u8,
    /// Traffic class as it arrived.
    pub tos: u8,
    /// Bytes before the packet.
    pub overhead: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checksummed_message_sums_to_zero() {
        for len in [12, 13, 14, 15, 1472] {
            let head = [1; 12];
            let body = vec![0xAB; len - 12];
            let mut header = [0; 8];
            write_request(&mut header, false, 0x1234, 7, Some([&head, &body]));
            assert_eq!(checksum(&[&header, &head, &body]), 0, "length {len}");
        }
    }

    #[test]
    fn packets_are_found_or_refused() {
        let mut message = vec![0x46, 0x20, 0, 0, 0, 0, 0, 0, 63];
        message.resize(24, 0);
        message.extend([8, 0, 0, 0, 0, 0, 0, 0, b'x']);
        let want = Found { packet: b"x", ttl: 63, tos: 0x20, overhead: 32 };
        assert_eq!(packet(&message, true, 8), Some(want));
        assert_eq!(packet(&message, true, 0), None, "another type");
        for len in 0..message.len() - 1 {
            assert_eq!(packet(&message[..len], true, 8), None, "cut to {len}");
        }
    }
}
