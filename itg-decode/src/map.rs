//! A log file as bytes, mapped into memory rather than read.
//!
//! The one place of this program with `unsafe`: a mapping is only as stable as the file behind it.
//! A log that another program shortens while it is decoded ends this program with SIGBUS, and one
//! that is overwritten shows whatever is there at the moment; every block is checked by its
//! checksum, so that the latter is reported as damage. ITG's own programs only ever append to a
//! log. Decode a copy where this is a concern.
#![allow(unsafe_code, reason = "mapping a file is unsafe by nature, see above")]

use std::fs::File;
use std::io;
use std::path::Path;

use memmap2::Mmap;

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
            return unsafe { Mmap::map(&file) }.map(Self::Mapped);
        }
        let mut bytes = Vec::new();
        io::Read::read_to_end(&mut file, &mut bytes)?;
        Ok(Self::Read(bytes))
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
