//! A file to which whole pieces are only ever added.

use std::fmt;
use std::io::{self, IoSlice};

use super::storage::Storage;
use super::sync::{Fsync, Syncer};

/// A file of whole pieces: blocks of a log, lines of an index.
#[derive(Debug)]
pub struct BlockFile<F> {
    file: F,
    good_bytes: u64,
    syncer: Syncer,
    /// Something stands behind the whole pieces that could not be cut off yet.
    uncut: bool,
}

/// Failure to add a piece: none of it counts.
#[derive(Debug)]
pub struct AppendError {
    /// Error of the write, or of the sync behind it.
    pub error: io::Error,
    /// Error of cutting off what was written of it, or of the sync behind that, if it failed, too.
    pub uncut: Option<io::Error>,
}

impl fmt::Display for AppendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

/// The same error once more.
fn same(error: &io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(number) => io::Error::from_raw_os_error(number),
        None => io::Error::new(error.kind(), error.to_string()),
    }
}

impl<F: Storage> BlockFile<F> {
    /// A file whose first `good_bytes` are whole pieces; nothing is behind them.
    pub const fn new(file: F, good_bytes: u64, fsync: Fsync) -> Self {
        Self { file, good_bytes, syncer: Syncer::new(fsync), uncut: false }
    }

    /// The file.
    pub const fn file(&self) -> &F {
        &self.file
    }

    /// Returns its length in bytes.
    pub const fn good_bytes(&self) -> u64 {
        self.good_bytes
    }

    /// Adds pieces at `now_ns`, all of them or none: what was written of them is cut off.
    ///
    /// # Errors
    /// The system's.
    pub fn append(&mut self, now_ns: u64, pieces: &mut [IoSlice<'_>]) -> Result<(), AppendError> {
        let bytes: u64 = pieces.iter().map(|piece| piece.len() as u64).sum();
        let file = &mut self.file;
        if self.uncut {
            let cut = file.cut(self.good_bytes);
            cut.map_err(|error| AppendError { uncut: Some(same(&error)), error })?;
            self.uncut = false;
        }
        let written =
            file.append(pieces).and_then(|()| self.syncer.written(now_ns, || file.sync()));
        match written {
            Ok(()) => {
                self.good_bytes += bytes;
                Ok(())
            }
            Err(error) => {
                let cut = self.file.cut(self.good_bytes);
                // What is told as missing must not come back with a loss of power.
                let file = &self.file;
                let cut = cut.and_then(|()| self.syncer.written(now_ns, || file.sync()));
                self.uncut = cut.is_err();
                Err(AppendError { error, uncut: cut.err() })
            }
        }
    }

    /// Removes all pieces.
    ///
    /// # Errors
    /// The system's: they are still there.
    pub fn clear(&mut self) -> io::Result<()> {
        self.file.cut(0)?;
        (self.good_bytes, self.uncut) = (0, false);
        Ok(())
    }

    /// Instant at which [`Self::settle`] has something to do.
    pub const fn due_ns(&self) -> Option<u64> {
        self.syncer.due_ns()
    }

    /// Syncs what has waited long enough at `now_ns`; the end of a log is `u64::MAX`.
    ///
    /// # Errors
    /// The system's.
    pub fn settle(&mut self, now_ns: u64) -> io::Result<()> {
        let file = &self.file;
        self.syncer.settle(now_ns, || file.sync())
    }
}
