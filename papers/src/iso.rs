//! Memory at the same address in every process, for clusters whose references are addresses.
//!
//! All nodes agree on a range of addresses, cut into slots of one size: the cluster number `rank` of
//! node `origin` lies at `base + (origin * ranks + rank) * cluster_size` everywhere. Every node
//! reserves the whole range at every candidate base it can ([`Offer`]), the nodes tell each other
//! which these are, and [`Offer::settle`] keeps the first that all have; there is no moment at which
//! another mapping could get in between. When there is none, relocatable clusters do, with a notice.
//!
//! Existing mappings are never replaced: everything is mapped with `MAP_FIXED_NOREPLACE`, and the
//! address that comes back is looked at, since kernels before 4.17 take the flag for a hint. A reserved
//! range costs address space and no memory. A [`Region`] is private or can be [frozen](Region::freeze)
//! and then read by other processes of the host: it is sealed by the kernel before any other process
//! gets it, so that no process can change what has been validated.
//!
//! Source: Expresso, clusters of the kind ISO.
#![allow(unsafe_code, reason = "mappings at addresses that are chosen here")]
#![expect(clippy::cast_possible_truncation, reason = "addresses and `usize` have 64 bits here")]

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bases to try, in this order: far from what loaders and allocators use with 47 bits of addresses,
/// then low enough for 39 bits.
pub const CANDIDATES: [u64; 6] = [
    0x2000_0000_0000,
    0x1000_0000_0000,
    0x3000_0000_0000,
    0x0400_0000_0000,
    0x0040_0000_0000,
    0x0020_0000_0000,
];

/// Cluster sizes are multiples of this many bytes: whole pages, whatever the page size.
pub const GRANULE: usize = 64 << 10;

/// Longest range of addresses: a quarter of what 47 bits give.
const RANGE_MAX: u64 = 1 << 45;

/// Division of a range into slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    origins: u32,
    ranks: u32,
    cluster_size: usize,
}

impl Layout {
    /// Slots for `origins` nodes with `ranks` clusters of `cluster_size` bytes each.
    ///
    /// # Errors
    /// [`IsoError::Layout`] if there is no slot, the size is not a multiple of [`GRANULE`], or the
    /// range is longer than 32 TiB.
    pub fn new(origins: u32, ranks: u32, cluster_size: usize) -> Result<Self, IsoError> {
        let len = (cluster_size as u64)
            .checked_mul(u64::from(origins))
            .and_then(|len| len.checked_mul(u64::from(ranks)));
        let fits = len.is_some_and(|len| len > 0 && len <= RANGE_MAX);
        if !fits || !cluster_size.is_multiple_of(GRANULE) {
            return Err(IsoError::Layout { origins, ranks, cluster_size });
        }
        Ok(Self { origins, ranks, cluster_size })
    }

    const fn slots(self) -> u64 {
        self.origins as u64 * self.ranks as u64
    }

    fn slot(self, origin: u32, rank: u32) -> Result<u64, IsoError> {
        if origin >= self.origins || rank >= self.ranks {
            return Err(IsoError::Slot { origin, rank });
        }
        Ok(u64::from(origin) * u64::from(self.ranks) + u64::from(rank))
    }
}

/// Memory at a fixed address that cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum IsoError {
    /// Numbers that make no range.
    #[error(
        "{origins} nodes with {ranks} clusters of {cluster_size} bytes: expected at least one of \
         each, a size that is a multiple of {GRANULE} bytes, and 32 TiB in all"
    )]
    Layout {
        /// Nodes asked for.
        origins: u32,
        /// Clusters of each.
        ranks: u32,
        /// Bytes of each.
        cluster_size: usize,
    },
    /// A cluster that the layout does not have.
    #[error("cluster {rank} of node {origin}: the layout has no such slot")]
    Slot {
        /// Node asked for.
        origin: u32,
        /// Number asked for.
        rank: u32,
    },
    /// A slot that is in use in this process.
    #[error("cluster {rank} of node {origin}: its memory is in use already")]
    Taken {
        /// Node asked for.
        origin: u32,
        /// Number asked for.
        rank: u32,
    },
    /// The kernel refused, or something else lies there.
    #[error("no memory of {len} bytes at address {address:#x}: {source}")]
    Map {
        /// Address asked for.
        address: u64,
        /// Bytes asked for.
        len: usize,
        /// Error of the kernel.
        source: io::Error,
    },
    /// Shared memory that could still be changed by others, or of another size.
    #[error(
        "shared memory of {len} bytes with seals {seals:#x}: expected {expected} bytes, sealed"
    )]
    NotSealed {
        /// Length of the file.
        len: u64,
        /// Its seals, see fcntl(2).
        seals: i32,
        /// Length of a cluster.
        expected: usize,
    },
    /// The kernel refused shared memory.
    #[error("no shared memory: {0}")]
    Share(#[source] io::Error),
}

/// Ranges that this process holds until all nodes have agreed on one.
#[derive(Debug)]
pub struct Offer {
    spaces: Vec<Space>,
    refused: Vec<IsoError>,
}

/// Outcome of the negotiation.
#[derive(Debug)]
pub enum Agreement {
    /// All nodes hold this range.
    Fixed(Space),
    /// No range is free on all nodes: clusters have to be relocatable.
    Relocatable {
        /// Text for the user.
        notice: String,
    },
}

impl Offer {
    /// Reserves the range at every one of `candidates` where it is free.
    #[must_use]
    pub fn reserve(layout: Layout, candidates: &[u64]) -> Self {
        let mut offer = Self { spaces: Vec::new(), refused: Vec::new() };
        for &base in candidates {
            match Space::reserve(base, layout) {
                Ok(space) => offer.spaces.push(space),
                Err(error) => offer.refused.push(error),
            }
        }
        offer
    }

    /// The bases at which the range is held, in the order of the candidates: what to tell the others.
    #[must_use]
    pub fn bases(&self) -> Vec<u64> {
        self.spaces.iter().map(Space::base).collect()
    }

    /// Keeps the first range whose base is in the lists of all `others` and gives the rest back. Nodes
    /// with the same candidates come to the same result.
    #[must_use]
    pub fn settle(self, others: &[Vec<u64>]) -> Agreement {
        let common = |space: &Space| others.iter().all(|bases| bases.contains(&space.base()));
        let here = self.spaces.len();
        if let Some(space) = self.spaces.into_iter().find(common) {
            return Agreement::Fixed(space);
        }
        let why = match self.refused.first() {
            Some(error) if here == 0 => {
                format!("none is free here, the first one because: {error}")
            }
            _ => format!("{here} are free here, none of them on all other nodes"),
        };
        Agreement::Relocatable {
            notice: format!(
                "no range of addresses for clusters at fixed addresses ({why}): \
                 relocatable clusters are used"
            ),
        }
    }
}

/// A reserved range. Its memory is had slot by slot.
#[derive(Clone, Debug)]
pub struct Space {
    range: Arc<Range>,
}

#[derive(Debug)]
struct Range {
    base: u64,
    layout: Layout,
    /// Slots that are not reserved and free.
    slots: Mutex<BTreeMap<u64, Slot>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slot {
    /// Belongs to a region.
    Taken,
    /// Something else lies there now; not ours to unmap.
    Lost,
}

impl Space {
    /// Reserves the range at `base`, without memory and without access.
    ///
    /// # Errors
    /// [`IsoError::Map`] if something lies there or the kernel does not give so many addresses.
    pub fn reserve(base: u64, layout: Layout) -> Result<Self, IsoError> {
        let len = bytes(layout.slots(), layout);
        map(base, len, Access::None, None)?;
        let range = Range { base, layout, slots: Mutex::default() };
        Ok(Self { range: Arc::new(range) })
    }

    /// First address.
    #[must_use]
    pub fn base(&self) -> u64 {
        self.range.base
    }

    /// Memory for a cluster of this process: zeros.
    ///
    /// # Errors
    /// [`IsoError::Slot`], [`IsoError::Taken`], [`IsoError::Map`].
    pub fn region(&self, origin: u32, rank: u32) -> Result<Region, IsoError> {
        let claim = self.claim(origin, rank)?;
        protect(claim.address(), claim.len(), libc::PROT_READ | libc::PROT_WRITE)?;
        Ok(Region { claim, file: None })
    }

    /// Memory for a cluster that is to be shared with other processes of this host: zeros.
    ///
    /// # Errors
    /// As [`region`](Self::region), and [`IsoError::Share`].
    pub fn shared_region(&self, origin: u32, rank: u32) -> Result<Region, IsoError> {
        let claim = self.claim(origin, rank)?;
        let file = memory_file(claim.len()).map_err(IsoError::Share)?;
        claim.replace(Access::ReadWrite, &file)?;
        Ok(Region { claim, file: Some(file) })
    }

    /// The cluster that another process of this host has [frozen](Region::freeze).
    ///
    /// # Errors
    /// [`IsoError::NotSealed`] for memory that a process could still change, else as
    /// [`shared_region`](Self::shared_region).
    pub fn open(&self, origin: u32, rank: u32, file: OwnedFd) -> Result<Frozen, IsoError> {
        let file = File::from(file);
        let claim = self.claim(origin, rank)?;
        let len = file.metadata().map_err(IsoError::Share)?.len();
        let seals = seals_of(&file).map_err(IsoError::Share)?;
        if seals & SEALS != SEALS || len != claim.len() as u64 {
            return Err(IsoError::NotSealed { len, seals, expected: claim.len() });
        }
        claim.replace(Access::Read, &file)?;
        Ok(Frozen { claim, file })
    }

    fn claim(&self, origin: u32, rank: u32) -> Result<Claim, IsoError> {
        let slot = self.range.layout.slot(origin, rank)?;
        let mut slots = self.range.slots();
        if slots.contains_key(&slot) {
            return Err(IsoError::Taken { origin, rank });
        }
        slots.insert(slot, Slot::Taken);
        Ok(Claim { range: Arc::clone(&self.range), slot })
    }
}

impl Range {
    fn slots(&self) -> MutexGuard<'_, BTreeMap<u64, Slot>> {
        // The map is whole after every change.
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn address(&self, slot: u64) -> u64 {
        self.base + slot * self.layout.cluster_size as u64
    }
}

impl Drop for Range {
    fn drop(&mut self) {
        // Regions keep the range alive: what is left here is reserved, but for what was lost.
        let lost: Vec<u64> = self.slots().keys().copied().collect();
        let mut start = 0;
        for end in lost.into_iter().chain([self.layout.slots()]) {
            if end > start {
                unmap(self.address(start), bytes(end - start, self.layout));
            }
            start = end + 1;
        }
    }
}

/// One slot, held by one region only. Reserved again, and free, when dropped.
#[derive(Debug)]
struct Claim {
    range: Arc<Range>,
    slot: u64,
}

impl Claim {
    fn address(&self) -> u64 {
        self.range.address(self.slot)
    }

    fn len(&self) -> usize {
        self.range.layout.cluster_size
    }

    /// Maps a file where the reservation was. Should another thread get a mapping of its own there
    /// in between, it stays, and the slot is lost.
    fn replace(&self, access: Access, file: &File) -> Result<(), IsoError> {
        unmap(self.address(), self.len());
        match map(self.address(), self.len(), access, Some(file)) {
            Ok(()) => Ok(()),
            Err(error) => {
                self.reserve_again();
                Err(error)
            }
        }
    }

    /// Reserves the slot, where nothing is mapped.
    fn reserve_again(&self) {
        if map(self.address(), self.len(), Access::None, None).is_err() {
            self.range.slots().insert(self.slot, Slot::Lost);
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if self.range.slots().get(&self.slot) == Some(&Slot::Taken) {
            unmap(self.address(), self.len());
            self.reserve_again();
            self.range.slots().retain(|&slot, state| slot != self.slot || *state == Slot::Lost);
        }
    }
}

/// Memory for one cluster, at its address, for reading and writing.
#[derive(Debug)]
pub struct Region {
    claim: Claim,
    file: Option<File>,
}

impl Region {
    /// Its first address.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.claim.address()
    }

    /// Ends all writing, for ever and everywhere, and makes the region ready for other processes.
    ///
    /// # Errors
    /// [`IsoError::Share`] for a region that was not made to be shared, or when the kernel refuses.
    pub fn freeze(self) -> Result<Frozen, IsoError> {
        let Self { claim, file } = self;
        let Some(file) = file else {
            return Err(IsoError::Share(io::Error::other("the region is private")));
        };
        // The seal is refused while a writable mapping exists.
        unmap(claim.address(), claim.len());
        let sealed = seal(&file);
        if let Err(error) = map(claim.address(), claim.len(), Access::Read, Some(&file)) {
            claim.reserve_again();
            return Err(error);
        }
        sealed.map_err(IsoError::Share)?;
        Ok(Frozen { claim, file })
    }
}

impl AsRef<[u8]> for Region {
    fn as_ref(&self) -> &[u8] {
        let start = ptr::with_exposed_provenance(self.address() as usize);
        // SAFETY: the claim's whole slot is mapped readable for as long as the region lives, there is
        // no other claim on it, and the file behind a shared one is not given away before it is
        // sealed. Memory of the kernel's is initialised.
        unsafe { std::slice::from_raw_parts(start, self.claim.len()) }
    }
}

impl AsMut<[u8]> for Region {
    fn as_mut(&mut self) -> &mut [u8] {
        let start = ptr::with_exposed_provenance_mut(self.address() as usize);
        // SAFETY: as above; it is mapped writable, too, and the region is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(start, self.claim.len()) }
    }
}

/// A cluster that cannot be changed any more, at its address; several processes read one copy.
#[derive(Debug)]
pub struct Frozen {
    claim: Claim,
    file: File,
}

impl Frozen {
    /// Its first address.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.claim.address()
    }

    /// The file to hand to other processes, which [open](Space::open) it.
    #[must_use]
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl AsRef<[u8]> for Frozen {
    fn as_ref(&self) -> &[u8] {
        let start = ptr::with_exposed_provenance(self.address() as usize);
        // SAFETY: the claim's whole slot is mapped readable for as long as this lives, and the seals
        // of the file, which were looked at, keep everybody from writing to it or shortening it.
        unsafe { std::slice::from_raw_parts(start, self.claim.len()) }
    }
}

/// No writing, no shortening, no growing, and no other seals.
const SEALS: i32 = libc::F_SEAL_WRITE | libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;

fn memory_file(len: usize) -> io::Result<File> {
    // SAFETY: the name is a C string and the flags exist.
    let fd = unsafe {
        libc::memfd_create(c"itg-cluster".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING)
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made it, and it has no other owner.
    let file = unsafe { File::from_raw_fd(fd) };
    file.set_len(len as u64)?;
    Ok(file)
}

fn seal(file: &File) -> io::Result<()> {
    // SAFETY: the descriptor is open, the argument is an integer.
    let result = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, SEALS) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn seals_of(file: &File) -> io::Result<i32> {
    // SAFETY: the descriptor is open, the command takes no argument.
    let seals = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) };
    if seals >= 0 { Ok(seals) } else { Err(io::Error::last_os_error()) }
}

fn bytes(slots: u64, layout: Layout) -> usize {
    usize::try_from(slots).expect("64 bits") * layout.cluster_size
}

#[derive(Clone, Copy)]
enum Access {
    None,
    Read,
    ReadWrite,
}

/// Maps memory, or a file, at exactly this address, where nothing may be.
fn map(address: u64, len: usize, access: Access, file: Option<&File>) -> Result<(), IsoError> {
    let fail = |source| IsoError::Map { address, len, source };
    let (protection, sharing) = match access {
        Access::None => (libc::PROT_NONE, libc::MAP_PRIVATE | libc::MAP_NORESERVE),
        // Private: kernels before 6.7 refuse shared mappings of sealed files. The pages are shared
        // all the same, since there is no writer.
        Access::Read => (libc::PROT_READ, libc::MAP_PRIVATE),
        Access::ReadWrite => (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED),
    };
    let anonymous = if file.is_none() { libc::MAP_ANONYMOUS } else { 0 };
    let wanted = ptr::with_exposed_provenance_mut(address as usize);
    // SAFETY: with MAP_FIXED_NOREPLACE no existing mapping is touched, so that no memory that
    // is in use changes; a file descriptor that is given is open.
    let got = unsafe {
        libc::mmap(
            wanted,
            len,
            protection,
            sharing | anonymous | libc::MAP_FIXED_NOREPLACE,
            file.map_or(-1, AsRawFd::as_raw_fd),
            0,
        )
    };
    if got == libc::MAP_FAILED {
        return Err(fail(io::Error::last_os_error()));
    }
    if got.expose_provenance() as u64 != address {
        // A kernel that does not know the flag has put it somewhere else.
        unmap(got.expose_provenance() as u64, len);
        return Err(fail(io::Error::from(io::ErrorKind::AddrInUse)));
    }
    Ok(())
}

/// Gives back a mapping of our own.
fn unmap(address: u64, len: usize) {
    // SAFETY: callers pass ranges that `map` has given them and that nothing borrows any more:
    // slices of a region borrow the region, and it is gone or about to be mapped anew.
    let result = unsafe { libc::munmap(ptr::with_exposed_provenance_mut(address as usize), len) };
    debug_assert_eq!(result, 0, "{}", io::Error::last_os_error());
}

fn protect(address: u64, len: usize, protection: i32) -> Result<(), IsoError> {
    // SAFETY: the range is a reservation of our own, from which nothing is borrowed.
    let result = unsafe {
        libc::mprotect(ptr::with_exposed_provenance_mut(address as usize), len, protection)
    };
    if result == 0 {
        return Ok(());
    }
    Err(IsoError::Map { address, len, source: io::Error::last_os_error() })
}
