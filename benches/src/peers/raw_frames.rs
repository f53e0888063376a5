//! Raw loops of AF_XDP: what a host can do past its network stack with no generator around it.
//!
//! One frame, headers and all, that is copied and handed over 64 at a time; at the other end a program that takes
//! every frame without a look at it, and a ring that is read between naps. With a log both do what ours do with each
//! packet: the sender writes ITG's header and a content of its own, sums them up, and keeps a record; the receiver
//! takes the time of arrival, checks the sum, reads the header and keeps a record.

use std::net::{IpAddr, SocketAddr, SocketAddrV4, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use etherparse::PacketBuilder;
use itg_core::header::PacketHeader;
use itg_core::payload::Content;
use itg_core::seed::RunSeed;
use itg_socket::clock;
use itg_socket::xdp::{
    EthernetPath, FrameInput, FrameInputOptions, FrameQueue, RawSender, XdpMode, device_of,
};

use super::raw::{HEAD, PATIENCE, RawArgs, RecordFile, SILENCE, connected};

/// Offsets in a frame of Ethernet, IPv4 and UDP: addresses, the header of UDP, ports and sum in it, content.
const ADDRESSES: usize = 26;
const UDP: usize = 34;
const PORT: usize = 36;
const SUM: usize = 40;
const CONTENT: usize = 42;
/// Number of UDP among the protocols of IP (IANA).
const PROTOCOL: u16 = 17;
/// Memory for frames of each queue in bytes, as much as itg-recv asks for.
const FRAME_BUFFER: usize = 8 << 20;
/// Pause of the receiver when there was less than a batch.
const NAP: Duration = Duration::from_micros(150);

/// Sum of the bytes as words of this machine (RFC 1071).
fn sum(bytes: &[u8]) -> u64 {
    let (fours, rest) = bytes.as_chunks::<4>();
    let mut last = [0; 4];
    last[..rest.len()].copy_from_slice(rest);
    let sum: u64 = fours.iter().map(|four| u64::from(u32::from_ne_bytes(*four))).sum();
    sum + u64::from(u32::from_ne_bytes(last))
}

fn fold(mut sum: u64) -> u16 {
    while let Some(over) = std::num::NonZeroU64::new(sum >> 16) {
        sum = (sum & 0xFFFF) + over.get();
    }
    u16::try_from(sum).unwrap_or(u16::MAX)
}

/// Sum of what stands before the header of UDP for its checksum.
fn pseudo(frame: &[u8]) -> u64 {
    let length = u16::try_from(frame.len() - UDP).unwrap_or(u16::MAX);
    let word = |value: u16| u64::from(u16::from_ne_bytes(value.to_be_bytes()));
    sum(&frame[ADDRESSES..UDP]) + word(PROTOCOL) + word(length)
}

/// The frame of a packet of this size, with a right checksum.
fn frame(
    path: &EthernetPath,
    from: SocketAddrV4,
    to: SocketAddrV4,
    size: usize,
) -> Result<Vec<u8>> {
    let builder = PacketBuilder::ethernet2(path.source, path.destination)
        .ipv4(from.ip().octets(), to.ip().octets(), 64)
        .udp(from.port(), to.port());
    let mut frame = Vec::new();
    builder.write(&mut frame, &vec![7; size])?;
    Ok(frame)
}

/// Sends, and returns the number of packets that the device took.
pub(super) fn send(args: &RawArgs, to: SocketAddr) -> Result<u64> {
    // The port is ours as long as the socket is there.
    let socket = connected(to)?;
    let (SocketAddr::V4(from), SocketAddr::V4(to)) = (socket.local_addr()?, to) else {
        bail!("the loop of frames knows IPv4 only");
    };
    let path = EthernetPath::find(IpAddr::V4(*from.ip()), IpAddr::V4(*to.ip()))
        .map_err(|why| anyhow!(why))?;
    let mut frame = frame(&path, from, to, args.size)?;
    let mut sender = RawSender::open(path.device).context("AF_XDP")?;
    let (length, begin) = (Duration::from_secs(args.seconds), Instant::now());
    let mut sent = 0;
    let Some(log) = &args.log else {
        while begin.elapsed() < length {
            sent += sender.send(|chunk| {
                chunk[..frame.len()].copy_from_slice(&frame);
                frame.len()
            })? as u64;
        }
        return Ok(sent);
    };
    ensure!(args.size >= HEAD, "a packet has at least {HEAD} bytes");
    let mut log = RecordFile::create(log)?;
    let content = Content::random(RunSeed(1));
    let size = u32::try_from(args.size)?;
    frame[SUM..CONTENT].fill(0);
    let pseudo = pseudo(&frame);
    let (heads, mut seq) = (&frame[..CONTENT], 0);
    while begin.elapsed() < length {
        let now_ns = clock::unix_ns();
        sent += sender.send(|chunk| {
            let chunk = &mut chunk[..CONTENT + args.size];
            chunk[..CONTENT].copy_from_slice(heads);
            let mut head = [0; HEAD];
            PacketHeader::write(1, seq, now_ns, size, &mut head);
            chunk[CONTENT..CONTENT + HEAD].copy_from_slice(&head);
            chunk[CONTENT + HEAD..].copy_from_slice(content.of(1, seq, args.size - HEAD));
            let checksum = match !fold(pseudo + sum(&chunk[UDP..])) {
                0 => u16::MAX,
                checksum => checksum,
            };
            chunk[SUM..CONTENT].copy_from_slice(&checksum.to_ne_bytes());
            log.push([1, seq, u64::from(size), now_ns, now_ns]);
            seq += 1;
            chunk.len()
        })? as u64;
        log.write_piece()?;
    }
    log.finish()?;
    Ok(sent)
}

/// What the receiver has taken.
struct Received {
    port: [u8; 2],
    packets: u64,
    log: Option<RecordFile>,
}

impl Received {
    /// Takes a frame; those of others are the kernel's, to its neighbours.
    #[inline]
    fn take(&mut self, frame: &[u8], arrived_ns: Option<u64>) {
        if frame.get(PORT..PORT + 2) != Some(&self.port) {
            return;
        }
        let Some(log) = &mut self.log else {
            self.packets += 1;
            return;
        };
        if frame.len() < CONTENT || fold(pseudo(frame) + sum(&frame[UDP..])) != u16::MAX {
            return;
        }
        if let Some(header) = PacketHeader::parse(&frame[CONTENT..]) {
            let size = (frame.len() - CONTENT) as u64;
            let sent_ns = header.sent_ns.unwrap_or(0);
            let arrived_ns = arrived_ns.unwrap_or(0);
            log.push([header.handle.into(), header.seq, size, sent_ns, arrived_ns]);
            self.packets += 1;
        }
    }
}

/// Receives until nothing comes, and returns the number of packets.
pub(super) fn receive(args: &RawArgs, at: SocketAddr) -> Result<u64> {
    let interface = device_of(at.ip()).with_context(|| format!("no device has {}", at.ip()))?;
    let options = FrameInputOptions { interface, mode: XdpMode::Auto, buffer: FRAME_BUFFER };
    let (_input, mut queues) = FrameInput::open_for_all(&options, args.log.is_some())?;
    let log = args.log.as_deref().map(RecordFile::create).transpose()?;
    let mut received = Received { port: at.port().to_be_bytes(), packets: 0, log };
    // Those who wait for this side see that it is ready.
    let _socket = UdpSocket::bind(at)?;
    let (mut last, mut patience) = (Instant::now(), PATIENCE);
    loop {
        let (before, mut most) = (received.packets, 0);
        for queue in &mut queues {
            most =
                most.max(queue.take_unread(|frame, arrived_ns| received.take(frame, arrived_ns)));
        }
        if received.packets > before {
            (last, patience) = (Instant::now(), SILENCE);
        } else if last.elapsed() > patience {
            break;
        }
        if let Some(log) = &mut received.log {
            log.write_piece()?;
        }
        if most < FrameQueue::BATCH {
            thread::sleep(NAP);
        }
    }
    received.log.map_or(Ok(()), RecordFile::finish)?;
    Ok(received.packets)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_those_of_another_writer() {
        let path = EthernetPath { device: 1, source: [2; 6], destination: [4; 6] };
        let at = |text: &str| text.parse().expect("an address");
        for size in [0, 1, 20, 63, 64, 1472] {
            let frame = frame(&path, at("10.78.0.1:4000"), at("10.78.0.2:8999"), size);
            let mut frame = frame.expect("a frame");
            assert_eq!(frame.len(), CONTENT + size);
            assert_eq!(frame[PORT..PORT + 2], 8999_u16.to_be_bytes());
            assert_eq!(fold(pseudo(&frame) + sum(&frame[UDP..])), u16::MAX, "{size} bytes");
            let told = [frame[SUM], frame[SUM + 1]];
            frame[SUM..CONTENT].fill(0);
            let ours = !fold(pseudo(&frame) + sum(&frame[UDP..]));
            assert_eq!(ours.to_ne_bytes(), told, "{size} bytes");
        }
    }
}
