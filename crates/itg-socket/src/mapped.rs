//! A file in memory, for reading.

use std::fs::File;
use std::io;
use std::ops::{Deref, Range};

use nix::unistd::{Whence, lseek};

/// A file mapped for reading.
#[derive(Debug)]
pub struct MappedFile(memmap2::Mmap);

impl MappedFile {
    /// Maps a file that belongs to this program, which writes to it only after the map is gone.
    ///
    /// Should another program shorten the file meanwhile, reading ends this process with a signal.
    ///
    /// # Errors
    /// The system's.
    pub fn open(file: &File) -> io::Result<Self> {
        // SAFETY: the bytes stay as they are as long as nothing else writes to the file, as documented.
        unsafe { memmap2::Mmap::map(file) }.map(Self)
    }
}

/// The first part of a file, of at least so many bytes, that was never written; `None` where there is none or
/// the file system does not tell.
#[must_use]
pub fn first_hole(file: &File, least: u64) -> Option<Range<u64>> {
    let len = i64::try_from(file.metadata().ok()?.len()).ok()?;
    let mut at = 0;
    while at < len {
        let start = lseek(file, at, Whence::SeekHole).ok().filter(|start| *start < len)?;
        // No data up to the end is an error.
        let end = lseek(file, start, Whence::SeekData).unwrap_or(len).min(len);
        if end - start >= i64::try_from(least).unwrap_or(i64::MAX) {
            return Some(u64::try_from(start).ok()?..u64::try_from(end).ok()?);
        }
        at = end.max(start + 1);
    }
    None
}

impl Deref for MappedFile {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}
