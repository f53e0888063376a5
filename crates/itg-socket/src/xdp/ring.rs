//! An AF_XDP socket that only sends, in copy mode: frames in memory shared with the kernel, handed to
//! the device past the network stack and its queues (Documentation/networking/af_xdp.rst).
//!
//! Frames lie in equal chunks; descriptors go to the kernel in one ring, chunks come back in another.
//! In copy mode the kernel takes descriptors only within our own system calls, one after the other, and
//! says through the result what became of the last one. So each call of [`XdpSocket::send`] ends with every
//! frame either taken by the device or withdrawn.
#![expect(
    clippy::cast_possible_truncation,
    reason = "chunks and lengths of small C structs, and memory of this process alone"
)]

use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::Ordering;

use memmap2::{MmapMut, MmapOptions};
use socket2::{Domain, Socket, Type};

use super::frame::FrameHead;
use super::umem::{Ring, bind_queue, register};
use crate::mmsg::{BATCH, Outgoing};
use crate::sys;

/// Chunks, and places in each ring: a power of two, some milliseconds of packets.
const CHUNKS: u32 = 2048;
/// Bytes of a chunk, and so of the longest frame: a page, as large as they may be.
const CHUNK_LEN: usize = 4096;
/// Frames that one system call may take; the kernel's own limit is 32 (linux/if_xdp.h, from 6.17 on).
pub(super) const XDP_MAX_TX_SKB_BUDGET: i32 = 9;
/// No chunk: the kernel passes over a descriptor with this address.
const WITHDRAWN: u64 = u64::MAX;

/// Result of a hand-over of frames.
#[derive(Debug, Default)]
struct Handed {
    /// Number of frames that the device took, from the first on.
    taken: usize,
    /// Reason why the next one was not taken, if anything is known.
    why: Option<io::Error>,
}

/// A device's socket.
#[derive(Debug)]
pub(crate) struct XdpSocket {
    socket: Socket,
    memory: MmapMut,
    sending: Ring,
    done: Ring,
    /// Addresses of chunks that are ours.
    free: Vec<u64>,
    /// Frames a system call, at most.
    batch: usize,
    /// Number of the next descriptor.
    next: u32,
    /// Descriptors before it that the kernel has still to pass over.
    withdrawn: usize,
    /// True once others may have had the kernel look at the ring since the last call: polls do.
    polled: Cell<bool>,
}

impl XdpSocket {
    /// Opens a socket on one of the device's transmit queues that no other socket uses in this way.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn open(device: u32) -> io::Result<Self> {
        let socket = Socket::new(Domain::from(libc::AF_XDP), Type::RAW, None)?;
        let memory = MmapOptions::new().len(CHUNKS as usize * CHUNK_LEN).populate().map_anon()?;
        register(&socket, memory.as_ptr() as u64, memory.len() as u64, CHUNK_LEN as u32)?;
        for ring in [libc::XDP_UMEM_FILL_RING, libc::XDP_UMEM_COMPLETION_RING, libc::XDP_TX_RING] {
            sys::set_bytes(&socket, libc::SOL_XDP, ring, &[CHUNKS])?;
        }
        let budget = [BATCH as u32];
        let asked = sys::set_bytes(&socket, libc::SOL_XDP, XDP_MAX_TX_SKB_BUDGET, &budget);
        let batch = match asked {
            Ok(()) => BATCH,
            // Kernels without it (before 6.17) do not tell how many frames of a call that failed have left.
            Err(error) => {
                tracing::debug!(%error, "one frame a system call");
                1
            }
        };
        crate::socket::enlarge(&socket, false);
        let offsets = sys::xdp_offsets(&socket)?;
        let sending = Ring::map(
            &socket,
            offsets.tx,
            size_of::<libc::xdp_desc>(),
            CHUNKS,
            libc::XDP_PGOFF_TX_RING.unsigned_abs(),
        )?;
        let at = libc::XDP_UMEM_PGOFF_COMPLETION_RING;
        let done = Ring::map(&socket, offsets.cr, size_of::<u64>(), CHUNKS, at)?;
        bind(&socket, device)?;
        let free = (0..u64::from(CHUNKS)).map(|chunk| chunk * CHUNK_LEN as u64).collect();
        let (next, withdrawn, polled) = (0, 0, Cell::new(false));
        let mut this = Self { socket, memory, sending, done, free, batch, next, withdrawn, polled };
        this.prove()?;
        Ok(this)
    }

    /// Checks that the kernel takes what is in the ring: it accepts queues that only receive, too, and then
    /// takes nothing. Tried with a descriptor that it passes over.
    fn prove(&mut self) -> io::Result<()> {
        self.describe(0, libc::xdp_desc { addr: WITHDRAWN, len: 0, options: 0 });
        self.sending.producer().store(1, Ordering::Release);
        // Some kernels tell what a call has taken in the next one only.
        for _ in 0..2 {
            self.socket.send_with_flags(&[], libc::MSG_DONTWAIT)?;
        }
        self.next = self.sending.consumer().load(Ordering::Acquire);
        if self.next == 1 { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::EBUSY)) }
    }

    /// Longest frame.
    pub(crate) const fn most() -> usize {
        CHUNK_LEN
    }

    /// The descriptor that becomes writable when there is room.
    pub(crate) fn watched(&self) -> BorrowedFd<'_> {
        self.polled.set(true);
        self.socket.as_fd()
    }

    /// Sends packets behind these headers, as many as the device takes, at least one.
    ///
    /// # Errors
    /// Reason why the first one was not taken. `WouldBlock`: all chunks are with the device.
    pub(crate) fn send(&mut self, head: &FrameHead, packets: &[Outgoing<'_>]) -> io::Result<usize> {
        self.reclaim();
        let count = packets.len().min(self.free.len()).min(self.batch);
        if self.withdrawn <= count && !self.polled.get() {
            // The kernel has not looked at them since: these frames take their places.
            self.next = self.next.wrapping_sub(self.withdrawn as u32);
            self.withdrawn = 0;
        }
        self.settle()?;
        self.polled.set(false);
        let mut chunks = [WITHDRAWN; BATCH];
        for (i, (packet, chunk)) in packets.iter().zip(&mut chunks).take(count).enumerate() {
            let Some(address) = self.free.pop() else { break };
            *chunk = address;
            let len = head.frame_len(packet);
            // The address counts chunks of our own memory.
            head.write(packet, &mut self.memory[address as usize..][..len]);
            let at = self.next.wrapping_add(i as u32);
            self.describe(at, libc::xdp_desc { addr: address, len: len as u32, options: 0 });
        }
        let end = self.next.wrapping_add(count as u32);
        // The frames and descriptors are written before the kernel sees that they are there.
        self.sending.producer().store(end, Ordering::Release);
        let handed = self.hand_over(count);
        self.next = end;
        if handed.taken > 0 {
            return Ok(handed.taken);
        }
        Err(handed.why.unwrap_or_else(|| io::ErrorKind::WouldBlock.into()))
    }

    fn describe(&self, at: u32, descriptor: libc::xdp_desc) {
        // SAFETY: the ring is of descriptors; the kernel reads this place only within a call of ours, after
        // the producer's counter has passed it.
        unsafe { self.sending.item::<libc::xdp_desc>(at).write(descriptor) };
    }

    /// Has the kernel take the last `count` descriptors and withdraws those that it does not.
    fn hand_over(&mut self, count: usize) -> Handed {
        let mut taken = 0;
        loop {
            let result = self.socket.send_with_flags(&[], libc::MSG_DONTWAIT);
            // The kernel counts frames up to the last one that has left, and one that was dropped
            // behind it; before any has left it counts nothing new.
            let counted = self.sending.consumer().load(Ordering::Acquire);
            let counted = counted.wrapping_sub(self.next).cast_signed().max(0).unsigned_abs();
            let progress = counted as usize > taken;
            let Err(error) = result else {
                // Nothing is left in the ring.
                return Handed { taken: count, why: None };
            };
            if error.raw_os_error() == Some(libc::EBUSY) {
                // The device dropped a frame. Its chunk comes back like that of one that has left.
                taken = if progress { counted as usize - 1 } else { taken };
                self.withdraw(taken + 1, count);
                let why = "the device dropped it: no link, or its queue is full";
                let why = io::Error::new(io::ErrorKind::ResourceBusy, why);
                return Handed { taken, why: Some(why) };
            }
            taken = taken.max(counted as usize);
            // More than one call may take, or the device has no room.
            let again =
                matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted);
            if !(again && progress) {
                self.withdraw(taken, count);
                return Handed { taken, why: Some(error) };
            }
        }
    }

    /// Takes descriptors back that the kernel has not read: it will pass over them.
    fn withdraw(&mut self, from: usize, to: usize) {
        for i in from..to {
            let at = self.next.wrapping_add(i as u32);
            // SAFETY: as in `describe`; what is read was written there by `send`.
            let was = unsafe { self.sending.item::<libc::xdp_desc>(at).read() };
            self.describe(at, libc::xdp_desc { addr: WITHDRAWN, len: 0, options: 0 });
            self.free.push(was.addr);
            self.withdrawn += 1;
        }
    }

    /// Has the kernel pass over what was withdrawn: one descriptor a call, or all of them.
    fn settle(&mut self) -> io::Result<()> {
        while self.withdrawn > 0 {
            self.socket.send_with_flags(&[], libc::MSG_DONTWAIT)?;
            self.withdrawn -= 1;
        }
        Ok(())
    }

    /// Takes back the chunks of frames that have left.
    fn reclaim(&mut self) {
        let from = self.done.consumer().load(Ordering::Relaxed);
        // Acquire: the addresses are there before the counter says so.
        let to = self.done.producer().load(Ordering::Acquire);
        let mut at = from;
        while at != to {
            // SAFETY: the ring is of addresses; the kernel has written this one and leaves it alone until
            // the consumer's counter has passed it.
            let address = unsafe { self.done.item::<u64>(at).read() };
            // Some kernels give back what was withdrawn, too; it is free already.
            if address != WITHDRAWN {
                self.free.push(address);
            }
            at = at.wrapping_add(1);
        }
        self.done.consumer().store(to, Ordering::Release);
    }
}

/// Binds to the first transmit queue that is free: each can have one such socket.
fn bind(socket: &Socket, device: u32) -> io::Result<()> {
    let mut queue = 0;
    loop {
        match bind_queue(socket, device, queue, libc::XDP_COPY | libc::XDP_USE_NEED_WAKEUP) {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => queue += 1,
            // Behind the last queue: all are taken.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) && queue > 0 => {
                return Err(io::Error::from_raw_os_error(libc::EBUSY));
            }
            done => return done,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    use nix::sched::{CloneFlags, unshare};

    use super::super::frame::Ends;
    use super::super::{FrameInput, FrameInputOptions, XdpMode};
    use super::*;
    use crate::clock;

    /// Runs in a network namespace with these devices, which are up; not without root.
    fn with_devices(add: &'static str, work: impl FnOnce() + Send + 'static) {
        if !nix::unistd::geteuid().is_root() {
            assert!(std::env::var_os("CI").is_none(), "CI must run this as root");
            println!("NOT TESTED: network devices are made by root");
            return;
        }
        let tried = std::thread::spawn(move || {
            unshare(CloneFlags::CLONE_NEWNET).expect("root");
            [add, "link set xdp0 up", "link set xdp1 up"].into_iter().for_each(ip);
            work();
        });
        tried.join().expect("as told above");
    }

    fn ip(line: &str) {
        let done = Command::new("ip").args(line.split(' ')).status().expect("iproute2");
        assert!(done.success(), "ip {line}");
    }

    fn open() -> io::Result<XdpSocket> {
        XdpSocket::open(nix::net::if_::if_nametoindex("xdp0").expect("made just now"))
    }

    /// The device has four queues to receive and one to send: the kernel lets a socket have the second queue,
    /// through which nothing can leave.
    #[test]
    fn a_queue_that_only_receives_is_found_out() {
        with_devices("link add xdp0 numrxqueues 4 numtxqueues 1 type veth peer name xdp1", || {
            let first = open().expect("a queue that sends");
            let second = open().map(drop).map_err(|error| error.raw_os_error());
            assert_eq!(second, Err(Some(libc::EBUSY)), "nothing leaves through the second queue");
            drop(first);
        });
    }

    /// A device without a link drops the first frame of a batch, and the others are withdrawn. Those that are sent
    /// next arrive, once and in order, and nothing else, whether or not a poll had the kernel look meanwhile; the
    /// places of what was withdrawn are taken where they can be, which saves a system call each.
    #[test]
    fn what_was_withdrawn_makes_room_for_what_comes_next() {
        with_devices("link add xdp0 type veth peer name xdp1", || {
            let interface = "xdp1".to_owned();
            let options = FrameInputOptions { interface, mode: XdpMode::Generic, buffer: 1 << 22 };
            let (_input, mut queues) = FrameInput::open_for_all(&options, false).expect("a device");
            let mut socket = open().expect("a queue that sends");
            let at = |text: &str| text.parse().expect("an address");
            let (from, to) = (at("10.77.9.1:1"), at("10.77.9.2:2"));
            let macs = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];
            let ends = Ends { from_mac: macs[0], to_mac: macs[1], from, to, ttl: 64, tos: 0 };
            let head = FrameHead::new(&ends).expect("one version");
            let contents: Vec<_> = (0..1_000_u32).map(u32::to_be_bytes).collect();
            let packets: Vec<_> = contents.iter().map(|bytes| Outgoing::new(bytes, &[])).collect();
            let (mut first, mut want) = (0, Vec::new());
            for round in 0..12 {
                let lost = &packets[first..][..socket.batch];
                ip("link set xdp1 down");
                let error = socket.send(&head, lost).expect_err("no link");
                assert_eq!(error.kind(), io::ErrorKind::ResourceBusy, "{error}");
                assert_eq!(socket.withdrawn, socket.batch - 1);
                first += socket.batch / 2;
                ip("link set xdp1 up");
                // Fewer than were withdrawn, a poll before, or neither.
                let count = if round % 3 == 0 { socket.batch.div_ceil(4) } else { socket.batch };
                if round % 3 == 1 {
                    let mut fds = [PollFd::new(socket.watched(), PollFlags::POLLOUT)];
                    poll(&mut fds, PollTimeout::ZERO).expect("a socket");
                }
                let (before, withdrawn) = (socket.next, socket.withdrawn as u32);
                let sent = socket.send(&head, &packets[first..][..count]).expect("a link again");
                assert_eq!((sent, socket.withdrawn), (count, 0), "round {round}");
                let taken = if round % 3 == 2 { withdrawn } else { 0 };
                let new = socket.next.wrapping_sub(before);
                assert_eq!(new, sent as u32 - taken, "places in round {round}");
                want.extend_from_slice(&contents[first..first + sent]);
                first = (first + sent) % 500;
            }
            let (mut got, until) = (Vec::new(), clock::monotonic_ns() + 10_000_000_000);
            while got.len() < want.len() && clock::monotonic_ns() < until {
                queues[0].take(|frame| {
                    if let Ok(datagram) = frame.datagram
                        && datagram.to == to
                    {
                        got.push(<[u8; 4]>::try_from(datagram.content).expect("four bytes"));
                    }
                });
            }
            queues[0].take(|frame| assert_ne!(frame.to, Some(to), "more than were sent"));
            assert_eq!(got, want);
        });
    }
}
