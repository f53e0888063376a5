//! A packet capture that shares no code with ITG: an AF_PACKET socket in a network namespace.

use std::io::{ErrorKind, Read};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use etherparse::{LaxNetSlice, LaxSlicedPacket, TransportSlice};
use nix::sys::socket::{setsockopt, sockopt};
use socket2::{Domain, Protocol, Socket, Type};

use crate::namespace::Namespace;

/// ETH_P_ALL (linux/if_ether.h), in network byte order as packet(7) wants it.
const ETH_P_ALL: i32 = (3u16.to_be()) as i32;
/// Bytes of a frame that are looked at.
const SNAP: usize = 2048;
/// IP protocol numbers (IANA).
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMP_V4: u8 = 1;
const ICMP_V6: u8 = 58;

/// A packet as it was seen on the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CapturedPacket {
    /// IP protocol number.
    pub proto: u8,
    /// From where.
    pub src: IpAddr,
    /// To where.
    pub dst: IpAddr,
    /// Time to live or hop limit.
    pub ttl: u8,
    /// Traffic class: DSCP in the upper six bits.
    pub tos: u8,
    /// Source port, or the type of an ICMP message.
    pub src_port: u16,
    /// Destination port, or the identifier of an ICMP echo.
    pub dst_port: u16,
    /// Bytes behind the header of UDP, TCP or ICMP echo.
    pub payload: u64,
    /// The first bytes of the payload as ITG's header: handle and sequence number.
    pub header: (u32, u64),
    /// A number that stands for what comes behind ITG's header: other bytes, most probably another number.
    pub content: u64,
    /// TCP: sequence number and flags.
    pub tcp: (u32, u8),
}

impl CapturedPacket {
    /// Returns true for a UDP datagram.
    #[must_use]
    pub const fn is_udp(&self) -> bool {
        self.proto == UDP
    }

    /// Returns true for a TCP segment.
    #[must_use]
    pub const fn is_tcp(&self) -> bool {
        self.proto == TCP
    }

    /// Returns true for an ICMP echo request, of either version.
    #[must_use]
    pub const fn is_echo(&self) -> bool {
        matches!((self.proto, self.src_port), (ICMP_V4, 8) | (ICMP_V6, 128))
    }
}

/// A capture that runs on a thread of its own.
#[derive(Debug)]
pub struct Capture {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Vec<CapturedPacket>>>,
}

impl Capture {
    /// Starts to capture all IP packets, in and out, in a namespace.
    #[must_use]
    pub fn start(host: &Namespace) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let (ready, is_ready) = mpsc::channel();
        thread::scope(|scope| {
            // The socket belongs to the namespace of the thread that opened it.
            let opened = scope.spawn(|| {
                host.enter();
                open()
            });
            ready.send(opened.join().expect("a packet socket")).expect("same thread");
        });
        let socket = is_ready.recv().expect("just sent");
        let thread = thread::spawn(move || watch(&socket, &stopped));
        Self { stop, thread: Some(thread) }
    }

    /// Ends the capture; what was seen in the order in which it was seen.
    #[must_use]
    pub fn end(mut self) -> Vec<CapturedPacket> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().expect("ended once").join().expect("the capture's thread")
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn open() -> Socket {
    let socket = Socket::new(Domain::PACKET, Type::RAW, Some(Protocol::from(ETH_P_ALL)))
        .expect("root may capture");
    setsockopt(&socket, sockopt::RcvBufForce, &(64 << 20)).expect("root may have a large buffer");
    socket.set_read_timeout(Some(Duration::from_millis(100))).expect("a time-out");
    socket
}

/// Reads until told to stop and nothing more has come for 100 ms.
fn watch(mut socket: &Socket, stop: &AtomicBool) -> Vec<CapturedPacket> {
    let mut seen = Vec::new();
    let mut frame = [0; SNAP];
    loop {
        match socket.read(&mut frame) {
            Ok(got) => seen.extend(dissect(&frame[..got])),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                if stop.load(Ordering::Relaxed) {
                    return seen;
                }
            }
            // The link goes down under the capture: it goes on when the link does.
            Err(_) => thread::sleep(Duration::from_millis(1)),
        }
    }
}

/// An Ethernet frame with IPv4 (RFC 791) or IPv6 (RFC 8200) inside; its end may be cut off.
fn dissect(frame: &[u8]) -> Option<CapturedPacket> {
    let packet = LaxSlicedPacket::from_ethernet(frame).ok()?;
    let (src, dst, ttl, tos, len) = match packet.net.as_ref()? {
        LaxNetSlice::Ipv4(ip) => {
            let header = ip.header();
            let (src, dst) = (header.source_addr().into(), header.destination_addr().into());
            let tos = header.dcp().value() << 2 | header.ecn().value();
            (src, dst, header.ttl(), tos, header.payload_len().ok()?)
        }
        LaxNetSlice::Ipv6(ip) => {
            let header = ip.header();
            let (src, dst) = (header.source_addr().into(), header.destination_addr().into());
            (src, dst, header.hop_limit(), header.traffic_class(), header.payload_length())
        }
        LaxNetSlice::Arp(_) => return None,
    };
    let identifier = |bytes: [u8; 4]| u16::from_be_bytes([bytes[0], bytes[1]]);
    let (proto, src_port, dst_port, head, body, tcp) = match packet.transport? {
        TransportSlice::Udp(udp) => {
            (UDP, udp.source_port(), udp.destination_port(), 8, udp.payload(), (0, 0))
        }
        TransportSlice::Tcp(tcp) => {
            let seen = (tcp.sequence_number(), tcp.header_slice()[13]);
            let head = tcp.header_slice().len();
            (TCP, tcp.source_port(), tcp.destination_port(), head, tcp.payload(), seen)
        }
        TransportSlice::Icmpv4(icmp) => {
            let identifier = identifier(icmp.bytes5to8());
            (ICMP_V4, icmp.type_u8().into(), identifier, 8, icmp.payload(), (0, 0))
        }
        TransportSlice::Icmpv6(icmp) => {
            let identifier = identifier(icmp.bytes5to8());
            (ICMP_V6, icmp.type_u8().into(), identifier, 8, icmp.payload(), (0, 0))
        }
        _ => return None,
    };
    let header = body.first_chunk::<12>().map_or((0, 0), |head| {
        let (handle, seq) = head.split_first_chunk::<4>().expect("12 bytes");
        let seq = seq.first_chunk::<8>().expect("8 bytes");
        (u32::from_le_bytes(*handle), u64::from_le_bytes(*seq))
    });
    // FNV-1a.
    let content =
        body.get(20..).unwrap_or_default().iter().fold(0xCBF2_9CE4_8422_2325, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01B3)
        });
    let payload = u64::from(len) - head as u64;
    Some(CapturedPacket {
        proto,
        src,
        dst,
        ttl,
        tos,
        src_port,
        dst_port,
        payload,
        header,
        content,
        tcp,
    })
}
