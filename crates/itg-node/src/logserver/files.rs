//! The files of an experiment at a log server, `NAME.itg` and `NAME.index.jsonl`, and the thread that writes them:
//! [`RunFiles`] on a disk.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, IoSlice};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};

use itg_engine::log::{DiskFile, Fsync, Throttle, open_locked};
use itg_session::logs::keep::{OpenError, RunFiles};
use itg_session::logs::{Registration, RestoredLog, ServerInput};
use itg_socket::clock;
use tokio::sync::mpsc::UnboundedSender;

use super::shared::{SessionInput, Shared};

/// Rights of the files: the index holds the keys with which logs are continued.
const MODE: u32 = 0o640;
/// Time after which a full disk is tried again: 300 ms.
const RETRY_NS: u64 = 300_000_000;
/// Blocks in one write.
const MOST_AT_ONCE: usize = 64;

/// A block to be written.
pub(super) struct Block {
    pub(super) bytes: Vec<u8>,
    pub(super) records: u32,
    pub(super) block_no: u32,
    pub(super) tell: UnboundedSender<SessionInput>,
}

enum Job {
    Enrol(u32, Box<Registration>),
    Block(Block),
    /// The files may have been moved away: go on in those that have the names.
    Reopen,
    Close,
}

/// An experiment whose files are open.
#[derive(Debug)]
pub(super) struct Experiment {
    jobs: Sender<Job>,
    thread: JoinHandle<()>,
}

impl Experiment {
    /// Opens or creates the files of an experiment and says which logs are in them.
    pub(super) fn open(
        dir: &Path,
        stem: &str,
        shared: &Arc<Shared>,
    ) -> io::Result<(Self, Vec<RestoredLog>)> {
        let path = dir.join(format!("{stem}.itg"));
        let index_path = dir.join(format!("{stem}.index.jsonl"));
        let named = |path: &Path, error: &io::Error| {
            io::Error::new(error.kind(), format!("{}: {error}", path.display()))
        };
        let at_end = |path: &Path, file: io::Result<File>| {
            let file = file.and_then(|file| DiskFile::at_end(file, path));
            file.map_err(|error| named(path, &error))
        };
        // Who compresses the blocks, or serves the same directory, has them alone meanwhile.
        let file = at_end(&path, open_locked(&path, || open(&path)))?;
        let is_new = !index_path.exists();
        let index = at_end(&index_path, open(&index_path))?;
        let opened = RunFiles::open(file, index, shared.options.fsync);
        let (files, logs) = opened.map_err(|error| {
            if is_new {
                // Nothing stands in it.
                drop(std::fs::remove_file(&index_path));
            }
            match error {
                OpenError::Blocks(error) => named(&path, &error),
                OpenError::Index(error) => named(&index_path, &error),
            }
        })?;
        keep_keys(&index_path).map_err(|error| named(&index_path, &error))?;
        let (jobs, queue) = channel();
        let mut writer = Writer {
            files,
            path,
            index_path,
            throttle: shared.options.throttle_bytes_per_s.map(Throttle::new),
            shared: Arc::downgrade(shared),
        };
        let thread = thread::Builder::new()
            .name("itg-log-store".to_owned())
            .spawn(move || writer.run(&queue))?;
        Ok((Self { jobs, thread }, logs))
    }

    pub(super) fn enrol(&self, log_id: u32, who: &Registration) {
        self.ask(Job::Enrol(log_id, Box::new(who.clone())));
    }

    pub(super) fn store(&self, block: Block) {
        self.ask(Job::Block(block));
    }

    /// Goes on in the files that have the experiment's names, where the ones in use were moved away.
    pub(super) fn reopen(&self) {
        self.ask(Job::Reopen);
    }

    fn ask(&self, job: Job) {
        if self.jobs.send(job).is_err() {
            tracing::error!("the writer of an experiment stopped on a bug");
        }
    }

    /// Writes what is left and closes the files; waits for it.
    pub(super) fn close(self) {
        self.ask(Job::Close);
        if self.thread.join().is_err() {
            tracing::error!("the writer of an experiment stopped on a bug");
        }
    }
}

/// Opens a file of an experiment, whose name producers choose: one that is made now, or an ordinary one that
/// has no other name.
fn open(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        .mode(MODE)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path)
        .map_err(|error| match error.raw_os_error() {
            Some(libc::ELOOP) => not_ours(),
            _ => error,
        })?;
    let there = file.metadata()?;
    if !there.is_file() || there.nlink() != 1 {
        return Err(not_ours());
    }
    Ok(file)
}

/// Takes rights away from an index that an older release let everybody read: it has the keys of logs.
fn keep_keys(index: &Path) -> io::Result<()> {
    let mode = std::fs::metadata(index)?.mode() & 0o7777;
    if mode & !MODE == 0 {
        return Ok(());
    }
    std::fs::set_permissions(index, Permissions::from_mode(mode & MODE))
}

fn not_ours() -> io::Error {
    io::Error::new(io::ErrorKind::AlreadyExists, "is a link, or no file: it is left alone")
}

struct Writer {
    files: RunFiles<DiskFile>,
    path: PathBuf,
    index_path: PathBuf,
    shared: std::sync::Weak<Shared>,
    throttle: Option<Throttle>,
}

impl Writer {
    fn run(&mut self, queue: &Receiver<Job>) {
        let mut batch = Vec::with_capacity(MOST_AT_ONCE);
        loop {
            let mut next = match self.files.due_ns() {
                None => queue.recv().ok(),
                Some(due) => {
                    let wait = clock::ns(due.saturating_sub(clock::monotonic_ns()));
                    match queue.recv_timeout(wait) {
                        Err(RecvTimeoutError::Timeout) => {
                            self.settle(clock::monotonic_ns());
                            continue;
                        }
                        got => got.ok(),
                    }
                }
            };
            if next.is_none() {
                return self.settle(u64::MAX);
            }
            while let Some(job) = next.take() {
                match job {
                    Job::Block(block) => batch.push(block),
                    Job::Enrol(log_id, who) => {
                        self.store(&mut batch);
                        let enrol = |writer: &mut Self| {
                            writer.files.enrol(clock::monotonic_ns(), log_id, &who)
                        };
                        if let Err(error) = self.retry(enrol) {
                            tracing::error!("{}: {error}", self.index_path.display());
                        }
                    }
                    Job::Reopen => {
                        self.store(&mut batch);
                        self.reopen();
                    }
                    Job::Close => {
                        self.store(&mut batch);
                        // A server that is started again, and not told by a signal, finds its logs by their names.
                        if !self.files.blocks().is_at(&self.path)
                            && self.files.has_open_logs().unwrap_or(false)
                        {
                            self.reopen();
                        }
                        return self.settle(u64::MAX);
                    }
                }
                if batch.len() < MOST_AT_ONCE {
                    next = queue.try_recv().ok();
                }
            }
            self.store(&mut batch);
            if self.files.due_ns().is_some_and(|due| due <= clock::monotonic_ns()) {
                self.settle(clock::monotonic_ns());
            }
        }
    }

    fn reopen(&mut self) {
        if self.files.blocks().is_at(&self.path) {
            return;
        }
        let done = self.go_on();
        let path = self.path.display();
        match done {
            Ok(()) => tracing::info!("{path}: opened anew"),
            Err(error) => tracing::error!(
                "{path}: it was moved away and could not be opened anew, and goes on where it is: {error}"
            ),
        }
    }

    fn go_on(&mut self) -> io::Result<()> {
        let Some(shared) = self.shared.upgrade() else { return Ok(()) };
        let empty = |path: &Path, file: File| match file.metadata()?.len() {
            0 => Ok(DiskFile::new(file, path)),
            _ => Err(io::Error::new(
                io::ErrorKind::AlreadyExists,
                format!("{}: another file has the name", path.display()),
            )),
        };
        let blocks = empty(&self.path, open_locked(&self.path, || open(&self.path))?)?;
        let index = if self.files.index().is_at(&self.index_path) {
            None
        } else {
            Some(empty(&self.index_path, open(&self.index_path)?)?)
        };
        let now_ns = clock::monotonic_ns();
        self.files.go_on(now_ns, blocks, index, shared.options.fsync).inspect_err(|_| {
            // It is empty, and nobody else has it.
            drop(std::fs::remove_file(&self.path));
        })
    }

    /// Syncs what has waited long enough.
    fn settle(&mut self, now_ns: u64) {
        let due = self.files.due_ns().is_some();
        let settled = self.files.settle(now_ns);
        if let Some(shared) = self.shared.upgrade() {
            match &settled {
                Ok(()) if due => shared.counts.synced(),
                Ok(()) => {}
                Err(_) => shared.counts.disk_error(),
            }
        }
        if let Err(error) = settled {
            let path = self.path.display();
            tracing::error!("{path}: {error}; a loss of power may take some of it");
        }
    }

    /// Writes a batch and answers for each of its blocks.
    fn store(&mut self, batch: &mut Vec<Block>) {
        if batch.is_empty() {
            return;
        }
        if let Some(throttle) = &mut self.throttle {
            throttle.wait(batch.iter().map(|block| block.bytes.len()).sum());
        }
        let done = self.retry(|writer| writer.append(batch));
        if let (Ok(()), Some(shared)) = (&done, self.shared.upgrade()) {
            shared.counts.stored(batch);
            if shared.options.fsync == Fsync::Block {
                shared.counts.synced();
            }
        }
        for Block { block_no, tell, .. } in batch.drain(..) {
            let input = match &done {
                Ok(()) => ServerInput::Stored { block_no },
                Err(error) => ServerInput::StoreFailed { block_no, reason: error.to_string() },
            };
            // The session keeps listening until all its blocks are settled.
            drop(tell.send(SessionInput::Input(input)));
        }
    }

    /// Tries again while the disk is full, and lets producers wait meanwhile.
    fn retry(&mut self, mut work: impl FnMut(&mut Self) -> io::Result<()>) -> io::Result<()> {
        let mut full = false;
        loop {
            let done = work(self);
            let shared = self.shared.upgrade();
            match (&done, shared) {
                (Err(error), Some(shared)) if is_full(error) && !shared.stopping() => {
                    if !full {
                        full = true;
                        shared.counts.disk_error();
                        tracing::error!(
                            "{}: {error}; producers wait: free some space",
                            self.path.display()
                        );
                        shared.disk_full();
                    }
                }
                (_, shared) => {
                    if let (Err(_), Some(shared)) = (&done, &shared) {
                        shared.counts.disk_error();
                    }
                    if let Some(shared) = shared.filter(|_| full) {
                        let path = self.path.display();
                        match &done {
                            Ok(()) => tracing::warn!("{path}: the disk has space again"),
                            Err(error) => tracing::error!(
                                "{path}: {error}: blocks that waited for the disk are not stored"
                            ),
                        }
                        shared.disk_free();
                    }
                    return done;
                }
            }
            // What comes meanwhile stays in the queue, which credit bounds.
            clock::sleep_until(clock::monotonic_ns() + RETRY_NS);
        }
    }

    fn append(&mut self, batch: &[Block]) -> io::Result<()> {
        let mut slices: Vec<_> = batch.iter().map(|block| IoSlice::new(&block.bytes)).collect();
        self.files.store(clock::monotonic_ns(), &mut slices)
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOSPC | libc::EDQUOT))
}
