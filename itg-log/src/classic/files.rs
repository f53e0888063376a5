//! The files of the logs: one directory, one file a name, shared by the clients that name it at the
//! same time.

use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use itg_classic::log::{RECORD_LEN, is_log};
use itg_classic::wire::log_file_name;
use itg_engine::log::{AppendError, BlockFile, DiskFile, Fsync};
use itg_engine::{continue_classic, open_named};

/// Names of our own server's files, which share the directory.
const OURS: [&str; 3] = [".itg", ".jsonl", ".sealing"];
/// Bytes that tell whether a file is a log of D-ITG.
const LOOKED_AT: usize = 16 * RECORD_LEN;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The logs of a server.
#[derive(Debug)]
pub(super) struct Files {
    dir: PathBuf,
    log_bytes: u64,
    replace: bool,
    open: Mutex<BTreeMap<String, Arc<Shelf>>>,
}

/// A log that one or more clients write.
#[derive(Debug)]
struct Shelf {
    /// The path that its first client sent.
    path: Vec<u8>,
    /// Clients that have not stopped.
    writers: AtomicUsize,
    log: Mutex<LogFile>,
}

#[derive(Debug)]
struct LogFile {
    file: BlockFile<DiskFile>,
    /// Of all its files together.
    bytes: u64,
    most_bytes: u64,
}

/// Reason for which records are not in the file.
#[derive(Debug)]
pub(super) enum StoreError {
    /// The disk is full: it may have room later.
    Full(io::Error),
    /// The log may not grow further, or the disk is broken.
    Never(String),
}

/// A client's hold on a log.
#[derive(Debug)]
pub(super) struct Hold {
    pub(super) name: String,
    shelf: Arc<Shelf>,
    /// Something the user should know.
    pub(super) notice: Option<String>,
}

impl Files {
    pub(super) fn new(dir: PathBuf, log_bytes: u64, replace: bool) -> Self {
        Self { dir, log_bytes, replace, open: Mutex::default() }
    }

    /// Opens the log of this path: a new file in our directory, called by its last part, unless another client
    /// has it open. What is there is left alone; where that is asked for, an older log makes room.
    /// `None`: the last records of clients that have stopped are still being taken, ask again.
    pub(super) fn open(&self, path: &[u8]) -> Result<Option<Hold>, String> {
        let shown = path.escape_ascii();
        let name = log_file_name(path)
            .filter(|name| !OURS.iter().any(|ending| name.ends_with(ending)))
            .ok_or_else(|| format!("`{shown}` is no name for a log"))?;
        let mut open = lock(&self.open);
        // A log that no client holds has been closed by its last one.
        open.retain(|_, shelf| Arc::strong_count(shelf) > 1);
        if let Some(shelf) = open.get(name) {
            if shelf.writers.load(Ordering::Relaxed) == 0 {
                return Ok(None);
            }
            shelf.writers.fetch_add(1, Ordering::Relaxed);
            let notice = (shelf.path != path).then(|| {
                let before = shelf.path.escape_ascii();
                format!("`{shown}` and `{before}` are both in the file {name}")
            });
            return Ok(Some(Hold { name: name.to_owned(), shelf: Arc::clone(shelf), notice }));
        }
        let place = self.dir.join(name);
        let file = if self.replace {
            itg_engine::replace_named(&place, LOOKED_AT, is_log)
        } else {
            itg_engine::create_named(&place)
        };
        let file = file.map_err(|error| match (error.kind(), self.replace) {
            (io::ErrorKind::AlreadyExists, false) => {
                format!("{name}: {error}, or start the server with --replace-logs")
            }
            _ => format!("{name}: {error}"),
        })?;
        let file = BlockFile::new(DiskFile::new(file, &place), 0, Fsync::Never);
        let log = Mutex::new(LogFile { file, bytes: 0, most_bytes: self.log_bytes });
        let shelf = Arc::new(Shelf { path: path.to_owned(), writers: AtomicUsize::new(1), log });
        open.insert(name.to_owned(), Arc::clone(&shelf));
        Ok(Some(Hold { name: name.to_owned(), shelf, notice: None }))
    }

    /// Opens those logs anew by their names whose files were moved away.
    pub(super) fn reopen(&self) {
        for shelf in lock(&self.open).values() {
            let LogFile { file, .. } = &mut *lock(&shelf.log);
            let path = file.file().path().to_owned();
            if !file.file().is_at(&path) {
                match continue_classic(&path, || open_named(&path)) {
                    Ok(opened) => *file = opened,
                    Err(error) => tracing::error!(
                        "log {}: it was moved away and could not be opened anew, and goes on where it is: {error}",
                        path.display()
                    ),
                }
            }
        }
    }
}

impl Hold {
    /// The client has stopped; what is on its way still comes.
    pub(super) fn stopped(&self) {
        self.shelf.writers.fetch_sub(1, Ordering::Relaxed);
    }

    /// Appends whole records: all of them, or none.
    pub(super) fn store(&self, records: &[u8]) -> Result<(), StoreError> {
        let LogFile { file, bytes, most_bytes } = &mut *lock(&self.shelf.log);
        let after = bytes.saturating_add(records.len() as u64);
        if after > *most_bytes {
            return Err(StoreError::Never(format!("the log may have {most_bytes} bytes at most")));
        }
        match file.append(0, &mut [IoSlice::new(records)]) {
            Ok(()) => {
                *bytes = after;
                Ok(())
            }
            Err(AppendError { error, .. }) => Err(match error.raw_os_error() {
                Some(libc::ENOSPC | libc::EDQUOT) => StoreError::Full(error),
                _ => StoreError::Never(error.to_string()),
            }),
        }
    }
}
