//! Memory that an AF_XDP socket shares with the kernel: chunks of frames, and the rings that say whose
//! they are (Documentation/networking/af_xdp.rst).
#![expect(
    clippy::cast_possible_truncation,
    reason = "lengths of small C structs, and places in memory of this process"
)]

use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU32, Ordering};

use memmap2::{MmapOptions, MmapRaw};
use socket2::{SockAddr, SockAddrStorage, Socket};

use crate::sys;

/// A ring shared with the kernel: two counters that run on, flags, and places for items.
#[derive(Debug)]
pub(super) struct Ring {
    map: MmapRaw,
    producer: usize,
    consumer: usize,
    flags: usize,
    items: usize,
    /// Number of places, a power of two.
    places: u32,
}

impl Ring {
    /// Maps a ring that was asked for with so many places, a power of two.
    pub(super) fn map(
        socket: &Socket,
        offsets: libc::xdp_ring_offset,
        item_len: usize,
        places: u32,
        at: u64,
    ) -> io::Result<Self> {
        let [producer, consumer, flags, items] =
            [offsets.producer, offsets.consumer, offsets.flags, offsets.desc]
                .map(|offset| usize::try_from(offset).unwrap_or(usize::MAX));
        let len = items.saturating_add(places as usize * item_len);
        let map = MmapOptions::new().offset(at).len(len).populate().map_raw(socket.as_raw_fd())?;
        let counter = |at: usize| at.is_multiple_of(4) && at.saturating_add(4) <= len;
        let counters = [producer, consumer, flags].into_iter().all(counter);
        if !(counters && items.is_multiple_of(8) && places.is_power_of_two()) {
            return Err(io::Error::other("the kernel's rings lie where none can be"));
        }
        Ok(Self { map, producer, consumer, flags, items, places })
    }

    fn counter(&self, at: usize) -> &AtomicU32 {
        // SAFETY: `at` is aligned and within the mapping, as checked when it was made, and the mapping
        // lives as long as `self`. Both sides access the counters atomically.
        unsafe { AtomicU32::from_ptr(self.map.as_mut_ptr().add(at).cast()) }
    }

    pub(super) fn producer(&self) -> &AtomicU32 {
        self.counter(self.producer)
    }

    pub(super) fn consumer(&self) -> &AtomicU32 {
        self.counter(self.consumer)
    }

    /// Returns true if the kernel works on this ring only when it is called.
    pub(super) fn needs_wakeup(&self) -> bool {
        self.counter(self.flags).load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }

    /// Place of item `index`, where items are `T`s.
    pub(super) fn item<T>(&self, index: u32) -> *mut T {
        let place = (index & (self.places - 1)) as usize;
        // SAFETY: the mapping has room for that many items of the size it was made with.
        unsafe { self.map.as_mut_ptr().add(self.items).cast::<T>().add(place) }
    }
}

/// Shares memory with the kernel: the chunks of a socket.
pub(super) fn register(socket: &Socket, address: u64, len: u64, chunk: u32) -> io::Result<()> {
    let [address, len] = [address, len].map(halves);
    // struct xdp_umem_reg: address and length (64 bits each), length of a chunk, room in front, flags.
    let register = [address[0], address[1], len[0], len[1], chunk, 0, 0, 0];
    sys::set_bytes(socket, libc::SOL_XDP, libc::XDP_UMEM_REG, &register)
}

/// Binds a socket to a queue of a device.
pub(super) fn bind_queue(socket: &Socket, device: u32, queue: u32, flags: u16) -> io::Result<()> {
    let address = libc::sockaddr_xdp {
        sxdp_family: libc::AF_XDP as u16,
        sxdp_flags: flags,
        sxdp_ifindex: device,
        sxdp_queue_id: queue,
        sxdp_shared_umem_fd: 0,
    };
    let mut storage = SockAddrStorage::zeroed();
    // SAFETY: sockaddr_xdp is plain integers and fits a socket address; family and length are right.
    let address = unsafe {
        *storage.view_as::<libc::sockaddr_xdp>() = address;
        SockAddr::new(storage, size_of::<libc::sockaddr_xdp>() as u32)
    };
    socket.bind(&address)
}

fn halves(value: u64) -> [u32; 2] {
    let [a, b, c, d, e, f, g, h] = value.to_ne_bytes();
    [u32::from_ne_bytes([a, b, c, d]), u32::from_ne_bytes([e, f, g, h])]
}
