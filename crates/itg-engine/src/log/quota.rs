//! Bound on the logs that peers name: on each of them, and on all files of their directory together.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use itg_core::units::format_bytes;
use itg_socket::clock;

/// Least bytes that a file counts for, as it takes of a disk: nobody fills a directory with empty files.
pub const LEAST_LOG_BYTES: u64 = 4096;
/// Bytes of a log that are kept for its last note, which tells of lost records.
const END_BYTES: u64 = 512;
/// Interval after which the files of the directory are counted again when a log is made, in nanoseconds: what
/// somebody has removed makes room.
const COUNT_EVERY_NS: u64 = 10_000_000_000;

/// Bound on the logs that peers name; clones share it. The default bounds nothing.
#[derive(Clone, Debug, Default)]
pub struct LogQuota(Option<Arc<Ledger>>);

#[derive(Debug)]
struct Ledger {
    dir: PathBuf,
    log_bytes: u64,
    total_bytes: u64,
    account: Mutex<Account>,
}

/// Bytes of the directory's files.
#[derive(Debug, Default)]
struct Account {
    counted_ns: Option<u64>,
    /// Files that are not written to.
    closed: u64,
    /// Logs that are written now, by the number of their file: one that was replaced has its name no more.
    open: BTreeMap<u64, u64>,
}

/// Room that a log has taken of a quota; what it did not need is given back when it is dropped.
#[derive(Debug)]
pub(crate) struct LogRoom {
    ledger: Option<Arc<Ledger>>,
    path: PathBuf,
    file: u64,
    written: u64,
}

/// Bytes that a file of this length counts for.
const fn charge(bytes: u64) -> u64 {
    if bytes < LEAST_LOG_BYTES { LEAST_LOG_BYTES } else { bytes }
}

impl LogQuota {
    /// Bound for the logs in a directory: on one of them, and on all files there together.
    #[must_use]
    pub fn new(dir: &Path, log_bytes: Option<u64>, total_bytes: Option<u64>) -> Self {
        let bounded = log_bytes.is_some() || total_bytes.is_some();
        Self(bounded.then(|| {
            let (log_bytes, total_bytes) =
                (log_bytes.unwrap_or(u64::MAX), total_bytes.unwrap_or(u64::MAX));
            Arc::new(Ledger {
                dir: dir.to_owned(),
                log_bytes,
                total_bytes,
                account: Mutex::default(),
            })
        }))
    }

    /// Makes a log, if there is room for one.
    ///
    /// # Errors
    /// There is no room, or it cannot be made.
    pub(crate) fn create(
        &self,
        path: &Path,
        create: impl FnOnce() -> io::Result<File>,
    ) -> io::Result<(File, LogRoom)> {
        let mut room = LogRoom { ledger: None, path: path.to_owned(), file: 0, written: 0 };
        let Some(ledger) = &self.0 else { return Ok((create()?, room)) };
        let mut account = ledger.account();
        ledger.count(&mut account)?;
        if account.total().saturating_add(LEAST_LOG_BYTES) > ledger.total_bytes {
            return Err(io::Error::new(io::ErrorKind::QuotaExceeded, ledger.no_room()));
        }
        let replaced = closed(path, &account);
        let file = create()?;
        account.closed = account.closed.saturating_sub(replaced);
        room.file = file.metadata()?.ino();
        account.open.insert(room.file, LEAST_LOG_BYTES);
        room.ledger = Some(Arc::clone(ledger));
        Ok((file, room))
    }
}

/// Bytes that a file counts for which is not written to.
fn closed(path: &Path, account: &Account) -> u64 {
    let there = fs::symlink_metadata(path).ok().filter(fs::Metadata::is_file);
    let there = there.filter(|there| !account.open.contains_key(&there.ino()));
    there.map_or(0, |there| charge(there.len()))
}

impl Ledger {
    fn account(&self) -> MutexGuard<'_, Account> {
        self.account.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts the files of the directory, unless that was done just now.
    fn count(&self, account: &mut Account) -> io::Result<()> {
        let now_ns = clock::monotonic_ns();
        let recent = |then: u64| now_ns.saturating_sub(then) < COUNT_EVERY_NS;
        if self.total_bytes == u64::MAX || account.counted_ns.is_some_and(recent) {
            return Ok(());
        }
        let mut sum = 0u64;
        for entry in fs::read_dir(&self.dir)? {
            sum = sum.saturating_add(closed(&entry?.path(), account));
        }
        (account.closed, account.counted_ns) = (sum, Some(now_ns));
        Ok(())
    }

    fn no_room(&self) -> String {
        let (dir, most) = (self.dir.display(), format_bytes(self.total_bytes));
        format!(
            "the logs in {dir} have as much together as the receiver takes, {most} (--max-log-bytes)"
        )
    }
}

impl Account {
    fn total(&self) -> u64 {
        self.open.values().fold(self.closed, |sum, bytes| sum.saturating_add(*bytes))
    }
}

impl LogRoom {
    /// Takes room for bytes that are going to be written.
    ///
    /// # Errors
    /// There is none; the text names the limit.
    pub(crate) fn take(&mut self, bytes: usize) -> Result<(), String> {
        let Some(ledger) = &self.ledger else { return Ok(()) };
        let after = self.written.saturating_add(bytes as u64);
        let charged = charge(after.saturating_add(END_BYTES));
        if charged > ledger.log_bytes {
            let most = format_bytes(ledger.log_bytes);
            return Err(format!(
                "it is full: the receiver takes {most} of each log that a sender asks for (--max-log-size)"
            ));
        }
        let mut account = ledger.account();
        let before = account.open.get(&self.file).copied().unwrap_or(0);
        if account.total().saturating_sub(before).saturating_add(charged) > ledger.total_bytes {
            return Err(ledger.no_room());
        }
        account.open.insert(self.file, charged);
        self.written = after;
        Ok(())
    }
}

impl Drop for LogRoom {
    fn drop(&mut self) {
        let Some(ledger) = &self.ledger else { return };
        let mut account = ledger.account();
        account.open.remove(&self.file);
        let there = fs::symlink_metadata(&self.path).is_ok_and(|there| there.ino() == self.file);
        let bytes = if there { closed(&self.path, &account) } else { 0 };
        account.closed = account.closed.saturating_add(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(quota: &LogQuota, path: &Path) -> io::Result<LogRoom> {
        quota.create(path, || File::create_new(path)).map(|(_, room)| room)
    }

    #[test]
    fn one_log_and_all_of_them_have_their_limits() {
        let dir = tempfile::tempdir().expect("a directory");
        let at = |name: &str| dir.path().join(name);
        fs::write(at("there"), [0; 10_000]).expect("room");
        let quota = LogQuota::new(dir.path(), Some(20_000), Some(40_000));
        let mut first = made(&quota, &at("first")).expect("room");
        let why = first.take(19_999).expect_err("its end has no room");
        assert!(why.contains("--max-log-size"), "{why}");
        first.take(19_000).expect("room");
        // 10 000 are there, 19 512 are taken: 10 488 are left.
        let mut second = made(&quota, &at("second")).expect("room");
        let why = second.take(10_000).expect_err("no room");
        assert!(why.contains("--max-log-bytes"), "{why}");
        second.take(7_000).expect("room");
        let full = made(&quota, &at("third")).expect_err("less than the least log");
        assert_eq!(full.kind(), io::ErrorKind::QuotaExceeded);
        assert!(!at("third").exists(), "no file of a log that is refused");
        // A log that ends counts for what it has on the disk.
        drop(first);
        let mut third = made(&quota, &at("third")).expect("room");
        third.take(10_000).expect("room");
        let taken = made(&quota, &at("there")).expect_err("there is a file");
        assert_eq!(taken.kind(), io::ErrorKind::AlreadyExists);
    }

    #[test]
    fn empty_files_fill_a_directory_too() {
        let dir = tempfile::tempdir().expect("a directory");
        let quota = LogQuota::new(dir.path(), None, Some(10 * LEAST_LOG_BYTES));
        let mut count = 0;
        while count < 100 && made(&quota, &dir.path().join(count.to_string())).is_ok() {
            count += 1;
        }
        assert_eq!(count, 10);
    }

    #[test]
    fn a_log_that_is_replaced_while_it_is_written_counts_once() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("log");
        let quota = LogQuota::new(dir.path(), None, Some(30_000));
        // Its writer has it open.
        let (file, mut old) = quota.create(&path, || File::create_new(&path)).expect("room");
        old.take(9_000).expect("room");
        fs::write(&path, [0; 9_000]).expect("room");
        fs::remove_file(&path).expect("there");
        let mut new = made(&quota, &path).expect("room");
        new.take(9_000).expect("room");
        fs::write(&path, [0; 9_000]).expect("room");
        // The old one's file holds its room until its writer is done.
        let mut third = made(&quota, &dir.path().join("third")).expect("room");
        third.take(12_000).expect_err("both logs have their room");
        drop((file, old));
        third.take(12_000).expect("the old one's room");
        drop(new);
        third.take(10_000).expect_err("the new one's file is there");
        drop(third);
    }
}
