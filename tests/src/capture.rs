//! A packet capture that shares no code with ITG: an AF_PACKET socket in a network namespace.

use std::io::{ErrorKind, Read};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

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
pub struct Seen {
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

impl Seen {
    /// Whether it is a UDP datagram.
    #[must_use]
    pub const fn is_udp(&self) -> bool {
        self.proto == UDP
    }

    /// Whether it is a TCP segment.
    #[must_use]
    pub const fn is_tcp(&self) -> bool {
        self.proto == TCP
    }

    /// Whether it is an ICMP echo request, of either version.
    #[must_use]
    pub const fn is_echo(&self) -> bool {
        matches!((self.proto, self.src_port), (ICMP_V4, 8) | (ICMP_V6, 128))
    }
}

/// A capture that runs on a thread of its own.
#[derive(Debug)]
pub struct Capture {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Vec<Seen>>>,
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
    pub fn end(mut self) -> Vec<Seen> {
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
fn watch(mut socket: &Socket, stop: &AtomicBool) -> Vec<Seen> {
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

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2).map(|two| u16::from_be_bytes([two[0], two[1]]))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let four = bytes.get(at..at + 4)?.first_chunk::<4>()?;
    Some(u32::from_be_bytes(*four))
}

/// An Ethernet frame with IPv4 (RFC 791) or IPv6 (RFC 8200, no extension headers) inside.
fn dissect(frame: &[u8]) -> Option<Seen> {
    let ip = frame.get(14..)?;
    let (proto, src, dst, ttl, tos, header_len, total) = match u16_at(frame, 12)? {
        0x0800 => {
            let at = |from: usize| ip.get(from..from + 4)?.first_chunk::<4>().copied();
            let (src, dst) = (IpAddr::from(at(12)?), IpAddr::from(at(16)?));
            let len = usize::from(ip[0] & 15) * 4;
            (ip[9], src, dst, ip[8], ip[1], len, u64::from(u16_at(ip, 2)?))
        }
        0x86DD => {
            let at = |from: usize| ip.get(from..from + 16)?.first_chunk::<16>().copied();
            let (src, dst) = (IpAddr::from(at(8)?), IpAddr::from(at(24)?));
            let tos = u8::try_from(u16_at(ip, 0)? >> 4 & 0xFF).ok()?;
            (ip[6], src, dst, ip[7], tos, 40, 40 + u64::from(u16_at(ip, 4)?))
        }
        _ => return None,
    };
    let inner = ip.get(header_len..)?;
    let inner_len = match proto {
        UDP | ICMP_V4 | ICMP_V6 => 8,
        TCP => usize::from(inner.get(12)? >> 4) * 4,
        _ => return None,
    };
    let (src_port, dst_port) = match proto {
        UDP | TCP => (u16_at(inner, 0)?, u16_at(inner, 2)?),
        _ => (u16::from(*inner.first()?), u16_at(inner, 4)?),
    };
    let tcp = if proto == TCP { (u32_at(inner, 4)?, *inner.get(13)?) } else { (0, 0) };
    let body = inner.get(inner_len..)?;
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
    let payload = total - (header_len + inner_len) as u64;
    Some(Seen { proto, src, dst, ttl, tos, src_port, dst_port, payload, header, content, tcp })
}
