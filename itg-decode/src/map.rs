//! A log file as bytes, mapped into memory rather than read.
//!
//! The one place of this program with `unsafe`: a mapping is only as stable as the file behind it.
//! A log that another program shortens while it is decoded ends this program with SIGBUS, and one
//! that is overwritten shows whatever is there at the moment. Every block is checked by its
//! checksum when it is first read; what is overwritten between that and a second reading (lists of
//! packets) may go unnoticed. ITG's own programs only ever append to a log. Decode a copy where
//! this is a concern.
#![allow(unsafe_code, reason = "mapping a file is unsafe by nature, see above")]

use std::fs::File;
use std::io;
use std::path::Path;

use memmap2::{Advice, Mmap, UncheckedAdvice};

/// Smallest page of any system; advice about larger ones is refused, or rounded by the kernel.
const PAGE: usize = 4096;

/// Bytes that the kernel brings in around a page that is touched (`fault_around_bytes`).
const AROUND: usize = 64 << 10;

/// Maps a file that can be mapped, and reads one that cannot (a pipe).
pub(crate) enum Bytes {
    Mapped(Mmap),
    Read(Vec<u8>),
}

impl Bytes {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let mut file = File::open(path)?;
        let data = file.metadata()?;
        if data.is_file() && data.len() > 0 {
            // SAFETY: the mapping is private to this program and never written. That nobody
            // shortens the file meanwhile cannot be known; the module's text says what happens
            // then.
            let map = unsafe { Mmap::map(&file) }?;
            // Pages come one by one where headers are read, and all at once where records are: see
            // `come`. Where the kernel takes no advice, it is only slower.
            drop(map.advise(Advice::Random));
            return Ok(Self::Mapped(map));
        }
        let mut bytes = Vec::new();
        io::Read::read_to_end(&mut file, &mut bytes)?;
        Ok(Self::Read(bytes))
    }
}

impl Bytes {
    /// Brings a part of the file into memory, all of its pages at once. Says whether `part` is one.
    pub(crate) fn come(&self, part: &[u8]) -> bool {
        let Self::Mapped(map) = self else { return false };
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
    pub(crate) fn let_go(&self, part: &[u8]) -> bool {
        let Self::Mapped(map) = self else { return false };
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
            Self::Mapped(map) => map,
            Self::Read(bytes) => bytes,
        }
    }
}
