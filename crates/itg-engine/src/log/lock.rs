//! The lock on the file of a log: who writes, rewrites, replaces or removes it has it alone.
//!
//! It is the system's advisory lock (`flock`), which ends with its process, however that ends. Where a file system has
//! none, there is none.

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// Attempts to open a file that others replace at the same time.
const MOST_TRIES: usize = 8;
/// Words for a file that another program has locked.
pub(super) const BUSY: &str =
    "another program is using it: wait until it has ended, or choose another name";

/// Opens a file with `open` and locks it for this process, until the file is closed.
///
/// # Errors
/// [`io::ErrorKind::ResourceBusy`]: another program has it; the error of `open`.
pub fn open_locked(path: &Path, open: impl Fn() -> io::Result<File>) -> io::Result<File> {
    for _ in 0..MOST_TRIES {
        let file = open()?;
        lock(&file)?;
        // Somebody may have put another file in its place before the lock was there.
        if is_at(&file, path) {
            return Ok(file);
        }
    }
    Err(io::Error::new(io::ErrorKind::ResourceBusy, BUSY))
}

/// Locks a file for this process.
///
/// # Errors
/// [`io::ErrorKind::ResourceBusy`]: another program has it.
pub fn lock(file: &File) -> io::Result<()> {
    match file.try_lock() {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => Err(io::Error::new(io::ErrorKind::ResourceBusy, BUSY)),
        Err(TryLockError::Error(error)) => {
            tracing::debug!(%error, "this file system has no locks");
            Ok(())
        }
    }
}

/// Returns true if this path leads to this file.
pub(super) fn is_at(file: &File, path: &Path) -> bool {
    let (Ok(here), Ok(there)) = (file.metadata(), fs::metadata(path)) else { return false };
    (here.dev(), here.ino()) == (there.dev(), there.ino())
}
