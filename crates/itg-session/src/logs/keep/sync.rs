//! Syncing of log files: what a loss of power may take from them.
//!
//! Only writer threads sync; a thread that sends or receives packets never waits for it, but for a free
//! block when memory ends.

use std::fmt;
use std::io;
use std::str::FromStr;

use super::storage::Storage;

/// Longest time that written bytes wait with [`Fsync::Interval`]: 1 s.
const EVERY_NS: u64 = 1_000_000_000;

/// Instant at which written bytes are forced to the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fsync {
    /// Left to the system: a killed program loses nothing, a loss of power some last seconds.
    #[default]
    Never,
    /// Once a second, and at the end.
    Interval,
    /// Before a block counts as written, or is acknowledged.
    Block,
}

impl Fsync {
    const ALL: [Self; 3] = [Self::Never, Self::Interval, Self::Block];

    const fn name(self) -> &'static str {
        match self {
            Self::Never => "never",
            Self::Interval => "interval",
            Self::Block => "block",
        }
    }

    /// Makes a file that was just opened, its name and what stands in it, survive a loss of power.
    ///
    /// # Errors
    /// The system's.
    pub fn opened(self, file: &impl Storage) -> io::Result<()> {
        if self == Self::Never { Ok(()) } else { file.sync_name() }
    }
}

impl fmt::Display for Fsync {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Fsync {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|when| when.name() == text)
            .ok_or_else(|| "expected never, interval or block".to_owned())
    }
}

/// Syncs of one file.
#[derive(Debug)]
pub struct Syncer {
    when: Fsync,
    /// Instant by which the bytes written have to be synced; `None` when all are.
    due_ns: Option<u64>,
}

impl Syncer {
    /// A file of which everything is synced.
    #[must_use]
    pub const fn new(when: Fsync) -> Self {
        Self { when, due_ns: None }
    }

    /// Bytes were written at `now_ns`: `sync` is called if they may not wait.
    ///
    /// # Errors
    /// The system's: the bytes are not safe, and must be written again.
    pub fn written(
        &mut self,
        now_ns: u64,
        sync: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        match self.when {
            Fsync::Never => Ok(()),
            Fsync::Interval => {
                self.due_ns.get_or_insert_with(|| now_ns.saturating_add(EVERY_NS));
                Ok(())
            }
            Fsync::Block => sync(),
        }
    }

    /// Instant at which [`Self::settle`] has something to do.
    #[must_use]
    pub const fn due_ns(&self) -> Option<u64> {
        self.due_ns
    }

    /// Calls `sync` if bytes have waited long enough at `now_ns`; the end of a log is `u64::MAX`.
    ///
    /// # Errors
    /// The system's; it is not tried again before more is written.
    pub fn settle(&mut self, now_ns: u64, sync: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        match self.due_ns.take_if(|due| *due <= now_ns) {
            Some(_) => sync(),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn bytes_wait_as_long_as_was_said() {
        let second = EVERY_NS;
        // Bytes are written twice; the syncs after each instant, and after the end.
        for (when, want) in [
            (Fsync::Never, [0, 0, 0, 0, 0]),
            (Fsync::Interval, [0, 0, 1, 1, 2]),
            (Fsync::Block, [1, 2, 2, 3, 3]),
        ] {
            let syncs = Cell::new(0);
            let sync = || {
                syncs.set(syncs.get() + 1);
                Ok(())
            };
            let mut syncer = Syncer::new(when);
            let mut got = Vec::new();
            syncer.written(5, sync).expect("synced");
            got.push(syncs.get());
            syncer.written(second, sync).expect("synced");
            syncer.settle(second + 4, sync).expect("synced");
            got.push(syncs.get());
            syncer.settle(second + 5, sync).expect("synced");
            syncer.settle(3 * second, sync).expect("synced");
            got.push(syncs.get());
            syncer.written(3 * second, sync).expect("synced");
            got.push(syncs.get());
            syncer.settle(u64::MAX, sync).expect("synced");
            got.push(syncs.get());
            assert_eq!(got, want, "{when}");
        }
    }

    #[test]
    fn words_name_the_instants() {
        for when in Fsync::ALL {
            assert_eq!(when.to_string().parse(), Ok(when));
        }
        assert!("sometimes".parse::<Fsync>().is_err_and(|why| why.contains("never, interval")));
    }
}
