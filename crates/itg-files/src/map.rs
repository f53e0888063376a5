//! A log file as bytes, mapped into memory rather than read.
//!
//! The one place of this crate with `unsafe`: a mapping is only as stable as the file behind it. Where
//! another program has shortened a file, or a disk fails, reading the mapping raises SIGBUS; the handler
//! here puts zeros in the place of what is gone, and the program says so in the end ([`Bytes::lost`]).
//! `docs/decisions/0019-shortened-logs.md` says why it is a handler. A file that is overwritten shows
//! whatever is there at the moment: every block is checked by its checksum when it is first read; what is
//! overwritten between that and a second reading (lists of packets) may go unnoticed. ITG's own programs
//! only ever append to a log.
#![allow(unsafe_code, reason = "mapping a file is unsafe by nature, see above")]

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::num::NonZero;
use std::ops::Range;
use std::os::fd::AsFd as _;
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Once, OnceLock};
use std::time::{Duration, Instant};

use memmap2::{Advice, Mmap, UncheckedAdvice};
use nix::errno::Errno;
use nix::libc::{O_NONBLOCK, c_int, c_void, siginfo_t};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use nix::unistd::{SysconfVar, Whence, lseek, sysconf};

/// Smallest page of any system; advice about larger ones is refused, or rounded by the kernel.
const PAGE: usize = 4096;

/// Bytes that the kernel brings in around a page that is touched (`fault_around_bytes`).
const AROUND: usize = 64 << 10;

/// Smallest part of a file that is told to have never been written: 1 MiB.
const HOLE: usize = 1 << 20;

/// Time after which something is said of a pipe that gives nothing.
const PATIENCE: Duration = Duration::from_millis(500);

/// Time between two looks at it, in milliseconds.
const REST_MS: u8 = 20;
const REST: Duration = Duration::from_millis(REST_MS as u64);

/// Maps a file that can be mapped, and reads one that cannot (a pipe).
#[derive(Debug)]
pub enum Bytes {
    /// A file.
    Mapped(Mapped),
    /// What a pipe gave, or was made of a file.
    Read(Vec<u8>),
}

/// A file in memory.
#[derive(Debug)]
pub struct Mapped {
    map: Mmap,
    file: File,
    region: &'static Region,
    /// Parts of the file that were never written, in order.
    holes: Vec<Range<usize>>,
}

impl Bytes {
    /// Opens a log: a file, or a pipe, which is read to its end. `say` hears of a pipe that lets wait.
    ///
    /// # Errors
    /// A file that cannot be read, a directory or device, a pipe into which nobody writes.
    pub fn open(path: &Path, say: impl Fn(&str)) -> io::Result<Self> {
        // Opening a pipe must not wait for somebody who writes to it.
        let file = OpenOptions::new().read(true).custom_flags(O_NONBLOCK).open(path)?;
        let data = file.metadata()?;
        let kind = data.file_type();
        if kind.is_fifo() {
            return drain(file, say).map(Self::Read);
        }
        if kind.is_dir() {
            return Err(io::Error::new(io::ErrorKind::IsADirectory, "it is a directory"));
        }
        if !kind.is_file() {
            let words = "it is neither a file nor a pipe";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, words));
        }
        if data.len() == 0 {
            return Ok(Self::Read(Vec::new()));
        }
        // SAFETY: the mapping is private to this program and never written. That no process shortens the
        // file meanwhile cannot be known; the handler, which is in place before the first byte is read,
        // then gives zeros.
        let map = unsafe { Mmap::map(&file) }?;
        let region = watch(&map);
        // Pages come one by one where headers are read, and all at once where records are: see
        // `come`. Where the kernel takes no advice, it is only slower.
        drop(map.advise(Advice::Random));
        let holes = holes(&file, map.len());
        Ok(Self::Mapped(Mapped { map, file, region, holes }))
    }

    /// Parts of at least 1 MiB that were never written, or are not there any more, in order.
    pub fn holes(&self) -> Vec<Range<usize>> {
        let Self::Mapped(Mapped { map, holes, .. }) = self else { return Vec::new() };
        let lost = self.lost().unwrap_or(map.len());
        let whole = holes.iter().filter(|hole| hole.start < lost);
        let whole = whole.map(|hole| hole.start..hole.end.min(lost));
        whole.chain((lost < map.len()).then_some(lost..map.len())).collect()
    }

    /// Bytes at the start that were written: up to the first hole.
    pub fn written(&self) -> &[u8] {
        let end = self.holes().first().map_or(self.len(), |hole| hole.start);
        &self[..end]
    }

    /// First byte that was not there any more when it was to be read; `None` while all is there.
    pub fn lost(&self) -> Option<usize> {
        let Self::Mapped(Mapped { map, file, region, .. }) = self else { return None };
        let touched = region.lost.load(Ordering::Relaxed);
        let now = file
            .metadata()
            .map_or(usize::MAX, |data| usize::try_from(data.len()).unwrap_or(usize::MAX));
        let there = now.min(touched);
        (there < map.len()).then_some(there)
    }
}

/// Reads a pipe to its end.
fn drain(mut file: File, say: impl Fn(&str)) -> io::Result<Vec<u8>> {
    let (began, mut told) = (Instant::now(), false);
    let mut bytes = Vec::new();
    loop {
        // What has come stays, also when nothing more is there yet.
        let done = file.read_to_end(&mut bytes);
        let nobody = match done {
            Ok(_) if !bytes.is_empty() => return Ok(bytes),
            Ok(_) => true,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => false,
            Err(error) => return Err(error),
        };
        let late = began.elapsed() >= PATIENCE && bytes.is_empty();
        if late && nobody {
            let words = "it is a pipe into which nobody writes";
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, words));
        }
        if late && !told {
            say("it is a pipe from which nothing comes: waiting for whoever writes to it");
            told = true;
        }
        if nobody {
            // There is nothing to wait on: a pipe that nobody has open is at its end.
            std::thread::sleep(REST);
            continue;
        }
        let mut fds = [PollFd::new(file.as_fd(), PollFlags::POLLIN)];
        match poll(&mut fds, PollTimeout::from(REST_MS)) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Parts of a file that were never written, where its file system tells.
fn holes(file: &File, len: usize) -> Vec<Range<usize>> {
    let mut holes = Vec::new();
    let mut at = 0;
    let seek = |from: usize, to| {
        let from = i64::try_from(from).ok()?;
        lseek(file, from, to).ok().and_then(|at| usize::try_from(at).ok())
    };
    while at < len {
        let Some(start) = seek(at, Whence::SeekHole).filter(|start| *start < len) else { break };
        // No data up to the end is an error.
        let end = seek(start, Whence::SeekData).unwrap_or(len).min(len);
        if end - start >= HOLE {
            holes.push(start..end);
        }
        at = end.max(start + 1);
    }
    holes
}

/// A mapping that the handler knows. It stays in the list for ever: logs are few, and a handler may not
/// wait for a lock.
#[derive(Debug)]
struct Region {
    start: AtomicUsize,
    len: AtomicUsize,
    /// Bytes in front of the first one that could not be read.
    lost: AtomicUsize,
    next: *const Self,
}

// SAFETY: `next` is set once, before the region is shared, and leads to a region that lives for ever.
unsafe impl Sync for Region {}
// SAFETY: as above.
unsafe impl Send for Region {}

/// Bytes of a page of this system.
static PAGE_HERE: AtomicUsize = AtomicUsize::new(PAGE);
static REGIONS: AtomicPtr<Region> = AtomicPtr::new(std::ptr::null_mut());
/// Earlier action at SIGBUS.
static BEFORE: OnceLock<SigAction> = OnceLock::new();

/// Puts a mapping into the list of those whose lost parts read as zeros.
fn watch(map: &Mmap) -> &'static Region {
    static HANDLER: Once = Once::new();
    HANDLER.call_once(|| {
        let page = sysconf(SysconfVar::PAGE_SIZE).ok().flatten();
        let page = page.and_then(|page| usize::try_from(page).ok()).unwrap_or(PAGE);
        PAGE_HERE.store(page, Ordering::Relaxed);
        let flags = SaFlags::SA_SIGINFO | SaFlags::SA_ONSTACK;
        let action = SigAction::new(SigHandler::SigAction(on_bus), flags, SigSet::empty());
        // SAFETY: the handler does nothing but atomic loads and stores and system calls.
        if let Ok(before) = unsafe { sigaction(Signal::SIGBUS, &action) } {
            BEFORE.get_or_init(|| before);
        }
    });
    let mut next = REGIONS.load(Ordering::Acquire);
    let region = Box::into_raw(Box::new(Region {
        start: AtomicUsize::new(map.as_ptr().addr()),
        len: AtomicUsize::new(map.len()),
        lost: AtomicUsize::new(map.len()),
        next,
    }));
    while let Err(now) =
        REGIONS.compare_exchange_weak(next, region, Ordering::AcqRel, Ordering::Acquire)
    {
        next = now;
        // SAFETY: not shared yet.
        unsafe { (*region).next = now };
    }
    // SAFETY: it was made above, is never freed, and changes through its atomics alone from here on.
    unsafe { &*region }
}

/// Puts zeros in the place of what a file has lost.
extern "C" fn on_bus(_signal: c_int, info: *mut siginfo_t, _context: *mut c_void) {
    // SAFETY: the kernel gives a valid one, as SA_SIGINFO asks for.
    let at = unsafe { (*info).si_addr() }.addr();
    let mut region = REGIONS.load(Ordering::Acquire).cast_const();
    // SAFETY: regions live for ever.
    while let Some(this) = unsafe { region.as_ref() } {
        let start = this.start.load(Ordering::Relaxed);
        let len = this.len.load(Ordering::Relaxed);
        if at >= start && at - start < len {
            let page = PAGE_HERE.load(Ordering::Relaxed);
            let from = at - at % page;
            this.lost.fetch_min(from - start, Ordering::Relaxed);
            if let (Some(from), Some(bytes)) =
                (NonZero::new(from), NonZero::new(start + len - from))
            {
                let flags = MapFlags::MAP_PRIVATE | MapFlags::MAP_FIXED | MapFlags::MAP_NORESERVE;
                // SAFETY: these pages are a part of a mapping of this program whose bytes are gone. They
                // are read only, before and after.
                let done =
                    unsafe { mmap_anonymous(Some(from), bytes, ProtFlags::PROT_READ, flags) };
                if done.is_ok() {
                    return;
                }
            }
        }
        region = this.next;
    }
    // Not of a log: as if there were no handler. What raised the signal raises it again.
    if let Some(before) = BEFORE.get() {
        // SAFETY: what was in place before. There is nothing to do where it fails.
        let _restored = unsafe { sigaction(Signal::SIGBUS, before) };
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // What is mapped at this place next is none of the handler's business.
        self.region.len.store(0, Ordering::Relaxed);
    }
}

impl Bytes {
    /// Brings a part of the file into memory, all of its pages at once. Says whether `part` is one.
    pub fn come(&self, part: &[u8]) -> bool {
        let Self::Mapped(Mapped { map, .. }) = self else { return false };
        let range = map.as_ptr_range();
        if !range.contains(&part.as_ptr()) {
            return false;
        }
        let start = part.as_ptr().addr() - range.start.addr();
        let from = start / PAGE * PAGE;
        // It is advice: where the kernel does not take it, pages come one by one.
        drop(map.advise_range(Advice::PopulateRead, from, start + part.len() - from));
        true
    }

    /// Lets go of the memory of a part of the file that has been read; it comes back from the file when
    /// it is read again. Says whether `part` is one.
    pub fn let_go(&self, part: &[u8]) -> bool {
        let Self::Mapped(Mapped { map, .. }) = self else { return false };
        let range = map.as_ptr_range();
        if !range.contains(&part.as_ptr()) {
            return false;
        }
        let start = part.as_ptr().addr() - range.start.addr();
        // Pages at the ends that others still read come back at once.
        // The kernel has brought some in before the start again, around the first one of this part.
        let from = start.saturating_sub(AROUND) / PAGE * PAGE;
        let to = (start + part.len()).next_multiple_of(PAGE);
        let to = to.min(map.len());
        if from < to {
            // SAFETY: the mapping is shared with the file and never written, so a page that is dropped
            // reads the same when it is touched again.
            let advised =
                unsafe { map.unchecked_advise_range(UncheckedAdvice::DontNeed, from, to - from) };
            // It is advice: where the kernel does not take it, memory stays in use.
            drop(advised);
        }
        true
    }
}

impl std::ops::Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Mapped(Mapped { map, .. }) => map,
            Self::Read(bytes) => bytes,
        }
    }
}
