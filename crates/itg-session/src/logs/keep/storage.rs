//! Files as logs need them.

use std::io::{self, IoSlice};

/// A file that grows at its end.
pub trait Storage {
    /// Returns its length in bytes.
    ///
    /// # Errors
    /// The system's.
    fn bytes(&self) -> io::Result<u64>;

    /// Looks at all that is in it.
    ///
    /// # Errors
    /// The system's.
    fn view<R>(&self, look: impl FnOnce(&[u8]) -> R) -> io::Result<R>;

    /// Reads bytes from an offset on.
    ///
    /// # Errors
    /// The system's; fewer bytes than asked for.
    fn read_at(&self, at: u64, bytes: &mut [u8]) -> io::Result<()>;

    /// Writes these pieces one behind the other at its end.
    ///
    /// # Errors
    /// The system's: some of the bytes may be there.
    fn append(&mut self, pieces: &mut [IoSlice<'_>]) -> io::Result<()>;

    /// Cuts off what is behind its first `len` bytes, which are there; the next bytes go there.
    ///
    /// # Errors
    /// The system's.
    fn cut(&mut self, len: u64) -> io::Result<()>;

    /// Makes what was written survive a loss of power.
    ///
    /// # Errors
    /// The system's.
    fn sync(&self) -> io::Result<()>;

    /// Makes its name and all that is in it survive a loss of power.
    ///
    /// # Errors
    /// The system's.
    fn sync_name(&self) -> io::Result<()>;
}
