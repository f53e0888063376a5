//! Packets that are sent back, marked like those that came: with the DSCP that a datagram arrived with (as RFC 5357,
//! section 4.2, has it), or that its flow asks for on a connection, and with the hop limit that its flow asks for.
//!
//! A datagram's marks go with it in the one system call that sends it; a connection is marked once.

use std::io;
use std::mem;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd};

use libc::{cmsghdr, iovec, msghdr};
use socket2::{SockAddr, Socket};

use crate::socket::set_class;

/// Bits of the traffic class byte that are the DSCP; the others are ECN's, which a reply does not copy.
const DSCP: u8 = 0xFC;

/// Marks of the packets of a flow that are sent back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplyMarks {
    /// Traffic class byte that the flow asks for.
    pub tos: u8,
    /// Time to live or hop limit that it asks for; the host's when `None`.
    pub ttl: Option<u8>,
}

/// A control message of one int, as the kernel wants it.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct IntMessage {
    len: usize,
    level: i32,
    kind: i32,
    value: i32,
}

const _: () = assert!(size_of::<IntMessage>() == size_of::<cmsghdr>() + 8);

impl IntMessage {
    fn new(level: i32, kind: i32, value: u8) -> Self {
        // Without the filling behind the int.
        Self { len: size_of::<cmsghdr>() + size_of::<i32>(), level, kind, value: value.into() }
    }
}

/// Sends a datagram back with the DSCP of `arrived_tos`, the traffic class byte that it came with.
///
/// # Errors
/// The kernel's.
pub fn send_back(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    to: SocketAddr,
    arrived_tos: u8,
    marks: ReplyMarks,
) -> io::Result<()> {
    let (level, class, hops) = if to.is_ipv4() {
        (libc::IPPROTO_IP, libc::IP_TOS, libc::IP_TTL)
    } else {
        (libc::IPPROTO_IPV6, libc::IPV6_TCLASS, libc::IPV6_HOPLIMIT)
    };
    let mut control = [
        IntMessage::new(level, class, arrived_tos & DSCP),
        IntMessage::new(level, hops, marks.ttl.unwrap_or(0)),
    ];
    let count = 1 + usize::from(marks.ttl.is_some());
    let to = SockAddr::from(to);
    let mut iov = iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    // SAFETY: msghdr is a C struct of integers and pointers; all-zero is a valid (empty) value.
    let mut header: msghdr = unsafe { mem::zeroed() };
    header.msg_name = to.as_ptr().cast_mut().cast();
    header.msg_namelen = to.len();
    header.msg_iov = &raw mut iov;
    header.msg_iovlen = 1;
    header.msg_control = control.as_mut_ptr().cast();
    header.msg_controllen = count * size_of::<IntMessage>();
    // SAFETY: every pointer in the header leads to a value of this function that is as long as stated, and the kernel
    // only reads them.
    let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const header, libc::MSG_NOSIGNAL) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Marks all that is sent back on a connection.
///
/// # Errors
/// The kernel's.
pub fn mark_connection(socket: &Socket, v6: bool, marks: ReplyMarks) -> io::Result<()> {
    set_class(socket, v6, marks.tos & DSCP)?;
    match marks.ttl {
        Some(ttl) if v6 => socket.set_unicast_hops_v6(u32::from(ttl)),
        Some(ttl) => socket.set_ttl_v4(u32::from(ttl)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::os::fd::AsFd;

    use super::*;
    use crate::mmsg::RecvBatch;
    use crate::socket::ask_for_stamps;

    #[test]
    fn a_connection_is_marked_as_its_flow_asks() {
        for (domain, v6) in [(socket2::Domain::IPV4, false), (socket2::Domain::IPV6, true)] {
            let socket = Socket::new(domain, socket2::Type::STREAM, None).expect("a socket");
            mark_connection(&socket, v6, ReplyMarks { tos: 0xBB, ttl: Some(9) }).expect("marked");
            let (class, hops) = if v6 {
                (socket.tclass_v6(), socket.unicast_hops_v6())
            } else {
                (socket.tos_v4(), socket.ttl_v4())
            };
            assert_eq!((class.ok(), hops.ok()), (Some(0xB8), Some(9)), "v6: {v6}");
        }
    }

    #[test]
    fn a_datagram_goes_back_with_its_dscp_and_the_flows_hop_limit() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let to = UdpSocket::bind(address).expect("loopback");
            ask_for_stamps(&to).expect("stamps");
            let from = UdpSocket::bind(address).expect("loopback");
            let there = to.local_addr().expect("bound");
            for (arrived, ttl) in [(0xB8, Some(9)), (0xBB, None), (0, Some(255))] {
                let marks = ReplyMarks { tos: 0, ttl };
                send_back(from.as_fd(), b"back", there, arrived, marks).expect("sent");
                let mut batch = RecvBatch::new(4, 64);
                assert_eq!(batch.recv(to.as_fd()).expect("arrived"), 1);
                let datagram = batch.get(0);
                assert_eq!(datagram.bytes, b"back");
                let want = (arrived & DSCP, ttl.unwrap_or(64));
                assert_eq!((datagram.tos, datagram.ttl), want, "{address}");
            }
        }
    }
}
