//! AF_XDP without an engine around it: frames that the caller writes, handed to the kernel in batches, over and
//! over. Measurements compare with it what [`super::ring`] does beyond that: what it shares with it is the
//! mapping of rings alone.
#![expect(
    clippy::cast_possible_truncation,
    reason = "chunks and lengths of small C structs, and memory of this process alone"
)]

use std::io::{self, ErrorKind};
use std::net::IpAddr;
use std::sync::atomic::Ordering;

use memmap2::{MmapMut, MmapOptions};
use socket2::{Domain, Socket, Type};

use super::netlink::Netlink;
use super::ring::XDP_MAX_TX_SKB_BUDGET;
use super::umem::{Ring, bind_queue, register};
use crate::mmsg::BATCH;
use crate::sys;

/// Chunks, and places in each ring.
const CHUNKS: u32 = 2048;
/// Bytes of a chunk.
const CHUNK_LEN: usize = 2048;
/// Calls in which the kernel takes nothing before that is an error.
const MOST_CALLS: usize = 1_000_000;

/// Way of frames to the next hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EthernetPath {
    /// The kernel's number of the device.
    pub device: u32,
    /// Ethernet address of the device.
    pub source: [u8; 6],
    /// Ethernet address of the next hop.
    pub destination: [u8; 6],
}

impl EthernetPath {
    /// Finds the way from an address of this host to another one. May wait for the neighbour, three seconds.
    ///
    /// # Errors
    /// Reason why there is none.
    pub fn find(from: IpAddr, to: IpAddr) -> Result<Self, String> {
        let netlink = Netlink::open().map_err(|error| error.to_string())?;
        let route = netlink.route(from, to, None)?;
        let source = netlink.link(route.device)?.mac;
        let destination = netlink.neighbour(route.device, route.next_hop)?;
        Ok(Self { device: route.device, source, destination })
    }
}

/// A socket of AF_XDP on the first queue of a device, in copy mode.
#[derive(Debug)]
pub struct RawSender {
    socket: Socket,
    memory: MmapMut,
    sending: Ring,
    done: Ring,
    /// Addresses of chunks that are ours.
    free: Vec<u64>,
    /// Number of the next descriptor.
    next: u32,
}

impl RawSender {
    /// Opens a device by the kernel's number of it.
    ///
    /// # Errors
    /// The kernel's.
    pub fn open(device: u32) -> io::Result<Self> {
        let socket = Socket::new(Domain::from(libc::AF_XDP), Type::RAW, None)?;
        let memory = MmapOptions::new().len(CHUNKS as usize * CHUNK_LEN).populate().map_anon()?;
        register(&socket, memory.as_ptr() as u64, memory.len() as u64, CHUNK_LEN as u32)?;
        for ring in [libc::XDP_UMEM_FILL_RING, libc::XDP_UMEM_COMPLETION_RING, libc::XDP_TX_RING] {
            sys::set_bytes(&socket, libc::SOL_XDP, ring, &[CHUNKS])?;
        }
        let budget = [BATCH as u32];
        if let Err(error) = sys::set_bytes(&socket, libc::SOL_XDP, XDP_MAX_TX_SKB_BUDGET, &budget) {
            tracing::debug!(%error, "as many frames a system call as the kernel likes");
        }
        crate::socket::enlarge(&socket, false);
        let offsets = sys::xdp_offsets(&socket)?;
        let at = libc::XDP_PGOFF_TX_RING.unsigned_abs();
        let sending = Ring::map(&socket, offsets.tx, size_of::<libc::xdp_desc>(), CHUNKS, at)?;
        let at = libc::XDP_UMEM_PGOFF_COMPLETION_RING;
        let done = Ring::map(&socket, offsets.cr, size_of::<u64>(), CHUNKS, at)?;
        bind_queue(&socket, device, 0, libc::XDP_COPY | libc::XDP_USE_NEED_WAKEUP)?;
        let free = (0..u64::from(CHUNKS)).map(|chunk| chunk * CHUNK_LEN as u64).collect();
        Ok(Self { socket, memory, sending, done, free, next: 0 })
    }

    /// Sends a batch of 64 frames, or as many as there is memory for: `write` puts each into a chunk and returns
    /// its length. Returns the number that the device took when it has left none.
    ///
    /// # Errors
    /// The kernel's, or a device that takes nothing for long.
    ///
    /// # Panics
    /// When `write` returns more than the chunk has.
    pub fn send(&mut self, mut write: impl FnMut(&mut [u8]) -> usize) -> io::Result<usize> {
        self.reclaim();
        let mut count = 0;
        while count < BATCH
            && let Some(address) = self.free.pop()
        {
            let chunk = &mut self.memory[address as usize..][..CHUNK_LEN];
            let len = write(chunk);
            assert!(len <= CHUNK_LEN, "{len} bytes were written to a chunk of {CHUNK_LEN}");
            let at = self.next.wrapping_add(count as u32);
            let descriptor = libc::xdp_desc { addr: address, len: len as u32, options: 0 };
            // SAFETY: the ring is of descriptors and has a place for each chunk; the kernel reads this place only
            // after the producer's counter has passed it.
            unsafe { self.sending.item::<libc::xdp_desc>(at).write(descriptor) };
            count += 1;
        }
        self.next = self.next.wrapping_add(count as u32);
        // Frames and descriptors are written before the kernel sees that they are there.
        self.sending.producer().store(self.next, Ordering::Release);
        let mut dropped = 0;
        for _ in 0..MOST_CALLS {
            match self.socket.send_with_flags(&[], libc::MSG_DONTWAIT) {
                // The ring is empty.
                Ok(_) => return Ok(count - dropped),
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) => dropped += 1,
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                Err(error) => return Err(error),
            }
        }
        Err(ErrorKind::TimedOut.into())
    }

    /// Takes back the chunks of frames that have left.
    fn reclaim(&mut self) {
        let mut at = self.done.consumer().load(Ordering::Relaxed);
        // Acquire: the addresses are there before the counter says so.
        let to = self.done.producer().load(Ordering::Acquire);
        while at != to {
            // SAFETY: the ring is of addresses; the kernel has written this one and leaves it alone until the
            // consumer's counter has passed it.
            self.free.push(unsafe { self.done.item::<u64>(at).read() });
            at = at.wrapping_add(1);
        }
        self.done.consumer().store(to, Ordering::Release);
    }
}
