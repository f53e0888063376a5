//! Frames of a device that are taken before its network stack: a filter that chooses them, and a socket
//! of AF_XDP for each queue of the device, that writes them into memory of this process.
//!
//! The device writes there by itself (zero copy) where it can, otherwise the kernel copies. Chunks of
//! memory go to the kernel in one ring and come back with frames in the other.
#![expect(
    clippy::cast_possible_truncation,
    reason = "chunks and lengths of small C structs, and memory of this process alone"
)]

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::Ordering;

use memmap2::{MmapOptions, MmapRaw};
use nix::ifaddrs::getifaddrs;
use socket2::{Domain, Socket, Type};

pub use super::datagram::{BrokenFrame, FrameDatagram};
use super::datagram::{destination, read};
use super::filter::{Filter, MOST_QUEUES, STAMP_LEN, XdpMode};
use super::frame::Mac;
use super::netlink::{Link, Netlink};
use super::umem::{Ring, bind_queue, register};
use crate::clock;
use crate::mmsg::BATCH;
use crate::socket::SocketError;
use crate::sys;

/// Bytes of a chunk: what Ethernet's usual frames fit in, or a page.
const CHUNK_LENS: [usize; 2] = [2048, 4096];
/// Room in front of each frame, which the kernel keeps for programs (XDP_PACKET_HEADROOM).
const HEADROOM: usize = 256;
/// Bytes around the IP packet of a frame: Ethernet and a tag.
const AROUND: usize = 18;
/// Chunks of a queue, at least and at most.
const CHUNKS: (usize, usize) = (64, 65_536);
/// Longest wait for a queue that is being freed: 10 s (on a busy machine), and between two looks 10 ms.
const FREED_WITHIN_NS: u64 = 10_000_000_000;
/// Longest wait for a program that is being detached. One that stays is another's, and is refused after that.
const DETACHED_WITHIN_NS: u64 = 300_000_000;
const FREED_LOOK_NS: u64 = 10_000_000;
/// Chunks of frames to send, of which there are none; the kernel wants the ring.
const UNUSED: u32 = 2;

/// Device whose frames are taken, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrameInputOptions {
    /// Name of the device.
    pub interface: String,
    /// Place of the filter in the kernel.
    pub mode: XdpMode,
    /// Memory for frames of each queue, in bytes.
    pub buffer: usize,
}

/// Returns the name of the device that has an address; `None` of an address of no device.
#[must_use]
pub fn device_of(ip: IpAddr) -> Option<String> {
    addresses().find(|(_, address)| *address == ip).map(|(name, _)| name)
}

/// Addresses of all devices, with their names.
fn addresses() -> impl Iterator<Item = (String, IpAddr)> {
    getifaddrs().into_iter().flatten().filter_map(|found| {
        let address = found.address?;
        let v4 = address.as_sockaddr_in().map(|v4| IpAddr::V4(v4.ip()));
        let ip = v4.or_else(|| address.as_sockaddr_in6().map(|v6| IpAddr::V6(v6.ip())))?;
        Some((found.interface_name, ip))
    })
}

/// The filter of a device, attached as long as this value lives.
#[derive(Debug)]
pub struct FrameInput {
    filter: Filter,
    link: Link,
    /// Place of the filter in the kernel.
    place: &'static str,
    queues: usize,
    zero_copy: bool,
}

/// A frame that has come, and the time of its arrival.
#[derive(Clone, Copy, Debug)]
pub struct Arrived<'a> {
    /// The datagram in it.
    pub datagram: Result<FrameDatagram<'a>, BrokenFrame>,
    /// Destination that it names, whatever else is wrong with it.
    pub to: Option<SocketAddr>,
    /// Time at which the kernel ran the filter on it, by CLOCK_MONOTONIC; `None` where the driver keeps none.
    pub arrived_ns: Option<u64>,
}

impl<'a> Arrived<'a> {
    /// Reads a frame that a device, by the kernel's number of it, has received at some time.
    #[must_use]
    #[inline]
    pub fn read(frame: &'a [u8], device: u32, arrived_ns: Option<u64>) -> Self {
        let datagram = read(frame, device);
        let to = match &datagram {
            Ok(datagram) => Some(datagram.to),
            Err(_) => destination(frame),
        };
        Self { datagram, to, arrived_ns }
    }
}

impl FrameInput {
    /// Attaches a filter to a device and opens a socket for each of its queues. Nothing is taken yet.
    ///
    /// # Errors
    /// Reason why not, and what to do. A program that is attached already is never replaced.
    pub fn open(options: &FrameInputOptions) -> Result<(Self, Vec<FrameQueue>), SocketError> {
        let what = format!("engine xdp: receiving on {}", options.interface);
        open(options, Filter::load).map_err(|why| SocketError::new(what, why))
    }

    /// Takes every frame of a device, its network stack none, with the times of their arrival or without: for
    /// measurements that compare with this what is done beyond it. [`FrameQueue::take_unread`] hands them over.
    ///
    /// # Errors
    /// Reason why not, and what to do.
    pub fn open_for_all(
        options: &FrameInputOptions,
        with_time: bool,
    ) -> Result<(Self, Vec<FrameQueue>), SocketError> {
        let what = format!("taking all frames of {}", options.interface);
        let load = |_, _| Filter::load_for_all(with_time);
        open(options, load).map_err(|why| SocketError::new(what, why))
    }

    /// Returns the addresses of the device that an address listened at stands for.
    fn addresses(&self, at: IpAddr) -> Vec<IpAddr> {
        let meant = |ip: &IpAddr| *ip == at || at.is_unspecified() && ip.is_ipv4() == at.is_ipv4();
        let here = addresses().filter(|(name, _)| *name == self.link.name).map(|(_, ip)| ip);
        here.filter(meant).collect()
    }

    /// Takes datagrams to a socket's address from now on, and returns the destinations that this means: those
    /// addresses of the device that it covers. What comes to others still comes to the socket.
    pub fn take(&self, socket: &Socket) -> Vec<SocketAddr> {
        let Some(at) = socket.local_addr().ok().and_then(|at| at.as_socket()) else {
            return Vec::new();
        };
        let mut taken = Vec::new();
        for ip in self.addresses(at.ip()) {
            let to = SocketAddr::new(ip, at.port());
            match self.filter.take(to) {
                Ok(()) => taken.push(to),
                Err(error) => {
                    tracing::warn!(%error, "packets to {to} come through their socket");
                }
            }
        }
        taken
    }

    /// Leaves datagrams to this destination to the network stack again.
    pub fn leave(&self, to: SocketAddr) {
        if let Err(error) = self.filter.leave(to) {
            tracing::debug!(%error, "frames to {to} were not taken");
        }
    }
}

impl fmt::Display for FrameInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { link, place, queues, .. } = self;
        let queues = if *queues == 1 { "1 queue".to_owned() } else { format!("{queues} queues") };
        let copies = if self.zero_copy { "zero copy" } else { "copy mode" };
        write!(f, "{}: {place} program, {queues}, {copies}", link.name)
    }
}

/// Opens a device with the filter that `load` makes of its address and of the length of its longest frames.
fn open(
    options: &FrameInputOptions,
    load: impl FnOnce(Mac, u16) -> io::Result<Filter>,
) -> Result<(FrameInput, Vec<FrameQueue>), String> {
    let name = options.interface.as_str();
    let device = nix::net::if_::if_nametoindex(name)
        .map_err(|_| format!("there is no interface `{name}`"))?;
    let netlink = Netlink::open().map_err(|error| explain(&error))?;
    let link = netlink.link(device)?;
    if !link.up {
        return Err(format!("{name} is down"));
    }
    let chunk_len = CHUNK_LENS.into_iter().find(|len| link.mtu + AROUND + HEADROOM <= *len);
    let chunk_len = chunk_len.unwrap_or(CHUNK_LENS[1]);
    let longest = (chunk_len - HEADROOM) as u16;
    let mut filter = load(link.mac, longest).map_err(|error| explain(&error))?;
    let attach = || filter.attach(device, options.mode);
    let place = when_free(DETACHED_WITHIN_NS, attach).map_err(|error| explain(&error))?;
    let chunks = (options.buffer / chunk_len).clamp(CHUNKS.0, CHUNKS.1);
    // The power of two that is not above it.
    let chunks = 1 << chunks.ilog2();
    let mut queues = Vec::new();
    for queue in 0..MOST_QUEUES {
        let open = || FrameQueue::open(device, queue, (chunks, chunk_len));
        match when_free(FREED_WITHIN_NS, open) {
            Ok(opened) => {
                filter.serve(queue, &opened.socket).map_err(|error| explain(&error))?;
                queues.push(opened);
            }
            // Behind the last one.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) && queue > 0 => break,
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                return Err(format!("another program uses queue {queue} in this way: {error}"));
            }
            Err(error) => return Err(explain(&error)),
        }
    }
    let zero_copy = queues.iter().all(|queue| queue.zero_copy);
    let queue_count = queues.len();
    Ok((FrameInput { filter, link, place, queues: queue_count, zero_copy }, queues))
}

/// Tries this again for a while where something else is there: the kernel frees what a program that has ended held a
/// little later.
fn when_free<T>(within_ns: u64, mut attempt: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let until_ns = clock::monotonic_ns() + within_ns;
    loop {
        match attempt() {
            Err(error)
                if matches!(error.raw_os_error(), Some(libc::EBUSY | libc::EEXIST))
                    && clock::monotonic_ns() < until_ns =>
            {
                clock::sleep_until(clock::monotonic_ns() + FREED_LOOK_NS);
            }
            done => return done,
        }
    }
}

/// Describes an error of receiving frames, with what to do.
fn explain(error: &io::Error) -> String {
    let hint = match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => {
            "this needs root, or CAP_NET_ADMIN, CAP_NET_RAW and CAP_BPF"
        }
        Some(libc::EBUSY | libc::EEXIST) => {
            "another XDP program is attached to this device (`ip link show` names it), and is never replaced"
        }
        Some(libc::EAFNOSUPPORT) => "this kernel has no AF_XDP (CONFIG_XDP_SOCKETS)",
        Some(libc::ENOSYS) => "this kernel has no eBPF",
        Some(libc::EOPNOTSUPP) => "this driver runs no XDP programs: --xdp-mode generic may",
        Some(libc::ENOBUFS | libc::ENOMEM) => {
            "memory for the frames of each queue must be had: a smaller --receive-buffer needs less"
        }
        _ => "this device or kernel does not hand over frames",
    };
    format!("{error}: {hint}; --engine socket works everywhere")
}

/// Frames of one queue of a device.
#[derive(Debug)]
pub struct FrameQueue {
    socket: Socket,
    memory: MmapRaw,
    arrived: Ring,
    free: Ring,
    device: u32,
    chunk_len: usize,
    zero_copy: bool,
    /// Number of the next frame.
    next: u32,
    /// Number of the next chunk that is given back.
    given: u32,
}

impl FrameQueue {
    fn open(device: u32, queue: u32, (chunks, chunk_len): (usize, usize)) -> io::Result<Self> {
        let socket = Socket::new(Domain::from(libc::AF_XDP), Type::RAW, None)?;
        let memory = MmapOptions::new().len(chunks * chunk_len).populate().map_anon()?;
        let memory = MmapRaw::from(memory);
        register(&socket, memory.as_ptr() as u64, memory.len() as u64, chunk_len as u32)?;
        let places = chunks as u32;
        for (ring, places) in [
            (libc::XDP_UMEM_FILL_RING, places),
            (libc::XDP_UMEM_COMPLETION_RING, UNUSED),
            (libc::XDP_RX_RING, places),
        ] {
            sys::set_bytes(&socket, libc::SOL_XDP, ring, &[places])?;
        }
        let offsets = sys::xdp_offsets(&socket)?;
        let at = libc::XDP_PGOFF_RX_RING.unsigned_abs();
        let arrived = Ring::map(&socket, offsets.rx, size_of::<libc::xdp_desc>(), places, at)?;
        let at = libc::XDP_UMEM_PGOFF_FILL_RING;
        let free = Ring::map(&socket, offsets.fr, size_of::<u64>(), places, at)?;
        for chunk in 0..places {
            // SAFETY: the ring is of addresses and has a place for each chunk; the kernel reads it after
            // the producer's counter has passed it.
            unsafe { free.item::<u64>(chunk).write(u64::from(chunk) * chunk_len as u64) };
        }
        free.producer().store(places, Ordering::Release);
        // The kernel chooses zero copy where the device has it.
        bind_queue(&socket, device, queue, libc::XDP_USE_NEED_WAKEUP)?;
        let zero_copy = sys::xdp_zero_copy(&socket);
        let (next, given) = (0, places);
        Ok(Self { socket, memory, arrived, free, device, chunk_len, zero_copy, next, given })
    }

    /// Frames that one call of [`FrameQueue::take`] hands over at most.
    pub const BATCH: usize = BATCH;

    /// Hands over what has come, without waiting, one after the other, and returns how many there were.
    pub fn take(&mut self, mut each: impl FnMut(Arrived<'_>)) -> usize {
        let device = self.device;
        self.take_unread(|frame, arrived_ns| each(Arrived::read(frame, device, arrived_ns)))
    }

    /// The same of frames as they came, with the times of their arrival where these are kept.
    #[inline]
    pub fn take_unread(&mut self, mut each: impl FnMut(&[u8], Option<u64>)) -> usize {
        // Acquire: descriptors and frames are there before the counter says so.
        let there = self.arrived.producer().load(Ordering::Acquire).wrapping_sub(self.next);
        let count = (there as usize).min(Self::BATCH);
        for i in 0..count {
            let at = self.next.wrapping_add(i as u32);
            // SAFETY: the ring is of descriptors; the kernel has written this one and leaves it alone until
            // the consumer's counter has passed it.
            let descriptor = unsafe { self.arrived.item::<libc::xdp_desc>(at).read() };
            let start = usize::try_from(descriptor.addr).unwrap_or(usize::MAX);
            let len = descriptor.len as usize;
            if start.checked_add(len).is_some_and(|end| end <= self.memory.len()) {
                self.hand_over(start, len, &mut each);
            }
            let chunk = descriptor.addr / self.chunk_len as u64 * self.chunk_len as u64;
            // SAFETY: the ring is of addresses and has a place for each chunk; those that are out are fewer.
            unsafe { self.free.item::<u64>(self.given.wrapping_add(i as u32)).write(chunk) };
        }
        self.next = self.next.wrapping_add(count as u32);
        self.given = self.given.wrapping_add(count as u32);
        self.arrived.consumer().store(self.next, Ordering::Release);
        self.free.producer().store(self.given, Ordering::Release);
        if self.free.needs_wakeup() {
            // The device waits for chunks. An error has no remedy here: what is dropped is counted.
            self.socket.recv_with_flags(&mut [], libc::MSG_DONTWAIT).unwrap_or_default();
        }
        count
    }

    /// Hands over the frame in these bytes of the memory, which the kernel has written.
    fn hand_over(&self, start: usize, len: usize, each: &mut impl FnMut(&[u8], Option<u64>)) {
        let mut arrived_ns = 0;
        if let Some(before) = start.checked_sub(STAMP_LEN) {
            // SAFETY: the bytes in front of the frame lie in its chunk, which is ours until it is given back;
            // zeros there mean that no time was written when the chunk comes back.
            unsafe {
                let stamp = self.memory.as_mut_ptr().add(before).cast::<[u8; STAMP_LEN]>();
                arrived_ns = u64::from_ne_bytes(stamp.read());
                stamp.write([0; STAMP_LEN]);
            }
        }
        // SAFETY: the bytes are within the memory, as the caller has checked, and the kernel leaves the chunk
        // alone until it is given back, which is after this call.
        let frame = unsafe { std::slice::from_raw_parts(self.memory.as_ptr().add(start), len) };
        each(frame, (arrived_ns != 0).then_some(arrived_ns));
    }

    /// Returns the number of frames that were dropped for want of memory since the socket was opened, modulo 2^32.
    pub fn drops(&self) -> Option<u32> {
        let counted = sys::xdp_statistics(&self.socket).ok()?;
        Some(counted.rx_dropped.wrapping_add(counted.rx_ring_full) as u32)
    }
}

impl AsFd for FrameQueue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use nix::sched::{CloneFlags, unshare};
    use proptest::prelude::*;
    use proptest::test_runner::{Config, TestRunner};

    use super::super::filter::PASS;
    use super::super::frame::{Ends, FrameHead};
    use super::super::raw::RawSender;
    use super::*;
    use crate::mmsg::Outgoing;

    const REDIRECT: u32 = 4;
    const PORT: u16 = 8999;
    const HERE: Mac = [2, 0, 0, 0, 0, 2];

    /// Runs in a network namespace with a device of 10.77.9.2 and fd77:9::2; not without root.
    fn with_device(work: impl FnOnce() + Send) {
        if !nix::unistd::geteuid().is_root() {
            assert!(std::env::var_os("CI").is_none(), "CI must run this as root");
            println!("NOT TESTED: network devices are made by root");
            return;
        }
        std::thread::scope(|scope| {
            let inside = || {
                unshare(CloneFlags::CLONE_NEWNET).expect("root");
                for line in [
                    "link add xdp0 address 02:00:00:00:00:02 type veth peer name xdp1",
                    "address add 10.77.9.2/24 dev xdp0",
                    "address add fd77:9::2/64 dev xdp0 nodad",
                    "link set xdp0 up",
                    "link set xdp1 up",
                ] {
                    let done = Command::new("ip").args(line.split(' ')).status().expect("iproute2");
                    assert!(done.success(), "ip {line}");
                }
                work();
            };
            scope.spawn(inside).join().expect("as told above");
        });
    }

    fn options(mode: XdpMode) -> FrameInputOptions {
        FrameInputOptions { interface: "xdp0".to_owned(), mode, buffer: 1 << 20 }
    }

    fn frame(to_mac: Mac, to: &str, len: usize) -> Vec<u8> {
        let to: SocketAddr = to.parse().expect("an address");
        let from = if to.is_ipv4() { "10.77.9.1:5" } else { "[fd77:9::1]:5" };
        let from = from.parse().expect("an address");
        let ends = Ends { from_mac: [2, 0, 0, 0, 0, 1], to_mac, from, to, ttl: 64, tos: 0 };
        let content = vec![7; len];
        let packet = Outgoing::new(&content, &[]);
        let head = FrameHead::new(&ends).expect("one version");
        let mut frame = vec![0; head.frame_len(&packet)];
        head.write(&packet, &mut frame);
        frame
    }

    fn with(frame: &[u8], changes: &[(usize, u8)]) -> Vec<u8> {
        let mut frame = frame.to_vec();
        for (at, byte) in changes {
            frame[*at] = *byte;
        }
        frame
    }

    #[test]
    fn the_program_takes_what_is_ours_and_passes_the_rest() {
        with_device(|| {
            let (input, queues) = FrameInput::open(&options(XdpMode::Auto)).expect("a device");
            assert!(!queues.is_empty());
            let verdict = |frame: &[u8]| input.filter.judge(frame).expect("run by the kernel").0;
            let (v4, v6) = ("10.77.9.2:8999", "[fd77:9::2]:8999");
            let (four, six) = (frame(HERE, v4, 100), frame(HERE, v6, 100));
            assert_eq!(verdict(&four), PASS.unsigned_abs(), "nothing is listened on yet");
            let [at, _] = [v4, v6].map(|to| input.filter.take(to.parse().expect("an address")));
            at.expect("there is room");
            let vlan = [&four[..12], &[0x81, 0, 0, 5], &four[12..]].concat();
            let ours = |frame: &[u8]| (verdict(frame) == REDIRECT, frame.len());
            for (what, frame, want) in [
                ("IPv4", four.clone(), true),
                ("IPv6", six.clone(), true),
                ("no content", frame(HERE, v4, 0), true),
                ("the largest", frame(HERE, v4, 1792 - 42), true),
                ("larger than a chunk", frame(HERE, v4, 1793 - 42), false),
                ("another port", frame(HERE, "10.77.9.2:8998", 100), false),
                ("another address", frame(HERE, "10.77.9.3:8999", 100), false),
                ("another port, IPv6", frame(HERE, "[fd77:9::2]:8998", 100), false),
                ("another address, IPv6", frame(HERE, "[fd77:9::3]:8999", 100), false),
                ("another host", frame([2, 0, 0, 0, 0, 3], v4, 100), false),
                ("another vendor", frame([6, 0, 0, 0, 0, 2], v4, 100), false),
                ("all hosts", frame([0xFF; 6], v4, 100), false),
                ("a VLAN", vlan, false),
                ("ARP", with(&four, &[(13, 6)]), false),
                ("options", with(&four, &[(14, 0x46)]), false),
                ("version 5", with(&four, &[(14, 0x55)]), false),
                ("not to be cut", with(&four, &[(20, 0x40)]), true),
                ("the first fragment", with(&four, &[(20, 0x20)]), false),
                ("a later fragment", with(&four, &[(20, 0), (21, 1)]), false),
                ("TCP", with(&four, &[(23, 6)]), false),
                ("ICMP", with(&four, &[(23, 1)]), false),
                ("IPv6 of version 4", with(&six, &[(14, 0x40)]), false),
                ("a traffic class", with(&six, &[(14, 0x6F), (15, 0xF1)]), true),
                ("options, IPv6", with(&six, &[(20, 0)]), false),
                ("a fragment, IPv6", with(&six, &[(20, 44)]), false),
                ("ND", with(&six, &[(20, 58)]), false),
                ("TCP, IPv6", with(&six, &[(20, 6)]), false),
                ("cut within UDP", four[..41].to_vec(), false),
                ("cut within UDP, IPv6", six[..61].to_vec(), false),
                ("headers alone", four[..42].to_vec(), true),
            ] {
                assert_eq!(ours(&frame).0, want, "{what}");
            }
            let (_, behind) = input.filter.judge(&four).expect("run by the kernel");
            let (stamp, behind) = behind.split_at(STAMP_LEN);
            let stamp = u64::from_ne_bytes(stamp.try_into().expect("eight bytes"));
            assert!(clock::monotonic_ns().abs_diff(stamp) < 1_000_000_000, "{stamp}");
            assert_eq!(behind, four, "a frame is handed over as it came");
            input.leave(v4.parse().expect("an address"));
            assert!(!ours(&four).0, "left again");
            assert!(ours(&six).0);
        });
    }

    /// The rule as it reads; shares nothing with the program.
    fn is_ours(frame: &[u8]) -> bool {
        use etherparse::{NetSlice, SlicedPacket, TransportSlice};
        if frame.len() > 1792 || frame.get(..6) != Some(&HERE) {
            return false;
        }
        let Ok(packet) = SlicedPacket::from_ethernet(frame) else { return false };
        let Some(TransportSlice::Udp(udp)) = packet.transport else { return false };
        let plain = match &packet.net {
            Some(NetSlice::Ipv4(ip)) => {
                ip.header().options().is_empty() && ip.header().destination() == [10, 77, 9, 2]
            }
            Some(NetSlice::Ipv6(ip)) => {
                let to: std::net::Ipv6Addr = "fd77:9::2".parse().expect("an address");
                ip.extensions().is_empty() && ip.header().destination_addr() == to
            }
            _ => false,
        };
        plain && packet.link_exts.is_empty() && udp.destination_port() == PORT
    }

    #[test]
    fn the_program_agrees_with_another_reader_on_damaged_frames() {
        with_device(|| {
            let (input, _queues) = FrameInput::open(&options(XdpMode::Auto)).expect("a device");
            for to in ["10.77.9.2:8999", "[fd77:9::2]:8999"] {
                input.filter.take(to.parse().expect("an address")).expect("there is room");
            }
            let damage = proptest::collection::vec((0..62_usize, any::<u8>()), 0..3);
            let mut runner = TestRunner::new(Config::with_cases(2_000));
            let tried = runner.run(&(any::<bool>(), damage), |(v6, damage)| {
                let to = if v6 { "[fd77:9::2]:8999" } else { "10.77.9.2:8999" };
                let frame = with(&frame(HERE, to, 30), &damage);
                let (verdict, _) = input.filter.judge(&frame).expect("run by the kernel");
                // Lengths within the packet are for who reads it: the other reader wants them right.
                if is_ours(&frame) {
                    prop_assert_eq!(verdict, REDIRECT);
                } else if verdict == REDIRECT {
                    let to: SocketAddr = to.parse().expect("an address");
                    prop_assert_eq!(destination(&frame), Some(to));
                    prop_assert_eq!(&frame[..6], &HERE);
                }
                Ok(())
            });
            tried.expect("both agree");
        });
    }

    #[test]
    fn a_queue_without_socket_passes_everything() {
        with_device(|| {
            let filter = Filter::load(HERE, 1792).expect("root");
            filter.take("10.77.9.2:8999".parse().expect("an address")).expect("there is room");
            let (verdict, _) = filter.judge(&frame(HERE, "10.77.9.2:8999", 9)).expect("run");
            assert_eq!(verdict, PASS.unsigned_abs());
        });
    }

    #[test]
    fn a_device_with_a_program_is_left_alone() {
        with_device(|| {
            for mode in XdpMode::ALL {
                let first = FrameInput::open(&options(mode)).expect("a device");
                assert!(first.0.to_string().starts_with("xdp0: "), "{}", first.0);
                for other in XdpMode::ALL {
                    let error = FrameInput::open(&options(other)).expect_err("one is there");
                    let error = error.to_string();
                    assert!(error.contains("never replaced"), "{mode}, {other}: {error}");
                }
            }
            let error = FrameInput::open(&FrameInputOptions {
                interface: "lo".to_owned(),
                ..options(XdpMode::Auto)
            });
            let error = error.expect_err("no Ethernet").to_string();
            assert!(error.contains("lo is not an Ethernet device"), "{error}");
        });
    }

    #[test]
    fn a_program_that_is_being_detached_is_waited_for() {
        with_device(|| {
            let first = FrameInput::open(&options(XdpMode::Auto)).expect("a device");
            std::thread::scope(|scope| {
                scope.spawn(move || {
                    clock::sleep_until(clock::monotonic_ns() + 100_000_000);
                    drop(first);
                });
                FrameInput::open(&options(XdpMode::Auto)).expect("it is free soon");
            });
        });
    }

    #[test]
    fn frames_come_with_the_time_of_their_arrival() {
        for mode in [XdpMode::Native, XdpMode::Generic] {
            with_device(|| {
                let (input, mut queues) = FrameInput::open(&options(mode)).expect("a device");
                let to: SocketAddr = "10.77.9.2:8999".parse().expect("an address");
                input.filter.take(to).expect("there is room");
                let wire = Socket::new(Domain::PACKET, Type::RAW, None).expect("root");
                let device = nix::net::if_::if_nametoindex("xdp1").expect("made just now");
                bind_packet(&wire, device);
                let mut got = 0;
                let before = clock::monotonic_ns();
                // More often than there are chunks: each comes back.
                for round in 0..2_000_usize {
                    let sent = frame(HERE, "10.77.9.2:8999", round % 1400);
                    wire.send(&sent).expect("room on the wire");
                    let until = clock::monotonic_ns() + 5_000_000_000;
                    while got <= round && clock::monotonic_ns() < until {
                        for queue in &mut queues {
                            got += queue.take(|frame| {
                                let now = clock::monotonic_ns();
                                let at = frame.arrived_ns.expect("a time");
                                assert!((before..=now).contains(&at), "{before} {at} {now}");
                                let datagram = frame.datagram.expect("not damaged");
                                assert_eq!(datagram.content, vec![7; round % 1400]);
                                assert_eq!((datagram.to, datagram.ttl), (to, 64));
                            });
                        }
                    }
                    assert_eq!(got, round + 1, "{mode}");
                }
                assert!(queues.iter().all(|queue| queue.drops() == Some(0)));
            });
        }
    }

    #[test]
    fn all_frames_of_a_raw_sender_come_to_a_raw_receiver() {
        for with_time in [true, false] {
            with_device(|| {
                let options = options(XdpMode::Auto);
                let (_input, mut queues) =
                    FrameInput::open_for_all(&options, with_time).expect("a device");
                let device = nix::net::if_::if_nametoindex("xdp1").expect("made just now");
                let mut sender = RawSender::open(device).expect("a queue");
                // Neither to this device nor of a protocol that anybody knows, and more than there are chunks.
                let frame =
                    |number: usize| [&[0x77; 14][..], &number.to_ne_bytes(), &[5; 60]].concat();
                let (mut written, mut taken, mut got, mut next) = (0, 0, 0, 0);
                while written < 10_000 {
                    let handed = sender.send(|chunk| {
                        let frame = frame(written);
                        written += 1;
                        chunk[..frame.len()].copy_from_slice(&frame);
                        frame.len()
                    });
                    taken += handed.expect("a link");
                    let until = clock::monotonic_ns() + 10_000_000_000;
                    while got < taken && clock::monotonic_ns() < until {
                        queues[0].take_unread(|bytes, arrived_ns| {
                            // The kernel itself sends some to its neighbours.
                            let Some(rest) = bytes.strip_prefix(&[0x77; 14]) else { return };
                            let number =
                                usize::from_ne_bytes(*rest.first_chunk().expect("8 bytes"));
                            assert!(number >= next, "{number} behind {next}");
                            assert_eq!(bytes, frame(number));
                            assert_eq!(arrived_ns.is_some(), with_time, "frame {number}");
                            (got, next) = (got + 1, number + 1);
                        });
                    }
                    assert_eq!(got, taken, "of {written} frames");
                }
            });
        }
    }

    fn bind_packet(socket: &Socket, device: u32) {
        use nix::sys::socket::{LinkAddr, SockaddrLike, bind};
        let address = libc::sockaddr_ll {
            sll_family: libc::AF_PACKET as u16,
            sll_protocol: 0,
            sll_ifindex: device.cast_signed(),
            sll_hatype: 0,
            sll_pkttype: 0,
            sll_halen: 0,
            sll_addr: [0; 8],
        };
        // SAFETY: a whole sockaddr_ll, whose length is told.
        let address = unsafe {
            LinkAddr::from_raw(
                (&raw const address).cast(),
                Some(size_of::<libc::sockaddr_ll>() as u32),
            )
        };
        bind(std::os::fd::AsRawFd::as_raw_fd(socket), &address.expect("AF_PACKET")).expect("root");
    }
}
