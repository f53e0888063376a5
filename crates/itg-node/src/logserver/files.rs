//! The files of an experiment at a log server: one append-only file of blocks, `NAME.itg`, and an
//! index of the logs in it, `NAME.index.jsonl`, a JSON object a line.
//!
//! A block is acknowledged when it has been handed to the kernel, so a killed server loses none of
//! them; with [`Fsync::Block`] when it is on the disk. After a crash the file is scanned; an incomplete block at its end is cut off.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, IoSlice, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};

use itg_engine::log::{Found, Syncer, Throttle, scan, unhex};
use itg_session::logs::{Registration, RestoredLog, Role, ServerInput};
use itg_socket::clock;
use serde_json::{Value, json};
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
    pub(super) block_no: u32,
    pub(super) tell: UnboundedSender<SessionInput>,
}

enum Job {
    Enrol(String),
    Block(Block),
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
        let mut file = open(&path).map_err(|error| named(&path, &error))?;
        let index = open(&index_path).map_err(|error| named(&index_path, &error))?;
        let (good_bytes, blocks) = scan(&file).map_err(|error| named(&path, &error))?;
        // What is cut off below must be ours: an index tells of each log before its first block.
        let len = |file: &File| file.metadata().map(|there| there.len());
        if good_bytes == 0 && len(&file)? > 0 && len(&index)? == 0 {
            let other = io::Error::new(io::ErrorKind::AlreadyExists, "is there already and no log");
            return Err(named(&path, &other));
        }
        file.set_len(good_bytes)
            .and_then(|()| file.seek(SeekFrom::Start(good_bytes)))
            .map_err(|error| named(&path, &error))?;
        let fsync = shared.options.fsync;
        // What an earlier server has acknowledged may wait in the system's memory.
        fsync.opened(&file, &path).map_err(|error| named(&path, &error))?;
        fsync.opened(&index, &index_path).map_err(|error| named(&index_path, &error))?;
        let text = io::read_to_string(&index).map_err(|e| named(&index_path, &e))?;
        let logs = restored(&text, blocks);
        let (jobs, queue) = channel();
        let mut writer = Writer {
            file,
            path,
            good_bytes,
            index,
            index_path,
            throttle: shared.options.throttle_bytes_per_s.map(Throttle::new),
            shared: Arc::downgrade(shared),
            syncers: [Syncer::new(fsync), Syncer::new(fsync)],
        };
        let thread = thread::Builder::new()
            .name("itg-log-store".to_owned())
            .spawn(move || writer.run(&queue))?;
        Ok((Self { jobs, thread }, logs))
    }

    pub(super) fn enrol(&self, log_id: u32, who: &Registration) {
        let role = match who.role {
            Role::Sender => "sender",
            Role::Receiver => "receiver",
        };
        let key: String = who.key.iter().map(|byte| format!("{byte:02x}")).collect();
        let line = json!({
            "log_id": log_id, "key": key, "run": who.run, "host": who.host,
            "program": who.program, "role": role,
        });
        self.ask(Job::Enrol(format!("{line}\n")));
    }

    pub(super) fn store(&self, block: Block) {
        self.ask(Job::Block(block));
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
    let mode = there.mode() & 0o7777;
    if mode & !MODE != 0 {
        // An older release let everybody read the keys of logs.
        file.set_permissions(Permissions::from_mode(mode & MODE))?;
    }
    Ok(file)
}

fn not_ours() -> io::Error {
    io::Error::new(io::ErrorKind::AlreadyExists, "is a link, or no file: it is left alone")
}

/// The logs of an index, with the blocks that were found.
fn restored(index: &str, blocks: Vec<Found>) -> Vec<RestoredLog> {
    let mut by_log = BTreeMap::<u32, (Vec<_>, u64)>::new();
    for Found { facts, .. } in blocks {
        let (list, bytes) = by_log.entry(facts.log_id).or_default();
        list.push((facts.block_no, facts.records, facts.checksum));
        *bytes += facts.len as u64;
    }
    let mut logs = Vec::new();
    for line in index.lines() {
        // A line that was cut off by a crash belongs to a log without blocks.
        let Ok(entry) = serde_json::from_str::<Value>(line) else { continue };
        let log_id = entry["log_id"].as_u64().and_then(|id| u32::try_from(id).ok());
        let key = entry["key"].as_str().and_then(unhex);
        if let (Some(log_id), Some(key)) = (log_id, key) {
            let (blocks, bytes) = by_log.remove(&log_id).unwrap_or_default();
            logs.push(RestoredLog { key, log_id, blocks, bytes });
        }
    }
    logs
}

struct Writer {
    file: File,
    path: PathBuf,
    good_bytes: u64,
    index: File,
    index_path: PathBuf,
    shared: std::sync::Weak<Shared>,
    throttle: Option<Throttle>,
    /// Of the file and of the index.
    syncers: [Syncer; 2],
}

impl Writer {
    fn run(&mut self, queue: &Receiver<Job>) {
        if let Err(error) = self.index.seek(SeekFrom::End(0)) {
            tracing::error!("{}: {error}", self.index_path.display());
        }
        let mut batch = Vec::with_capacity(MOST_AT_ONCE);
        loop {
            let mut next = match self.due_ns() {
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
                    Job::Enrol(line) => {
                        self.store(&mut batch);
                        if let Err(error) = self.retry(|writer| writer.enrol(&line)) {
                            tracing::error!("{}: {error}", self.index_path.display());
                        }
                    }
                    Job::Close => {
                        self.store(&mut batch);
                        return self.settle(u64::MAX);
                    }
                }
                if batch.len() < MOST_AT_ONCE {
                    next = queue.try_recv().ok();
                }
            }
            self.store(&mut batch);
            if self.due_ns().is_some_and(|due| due <= clock::monotonic_ns()) {
                self.settle(clock::monotonic_ns());
            }
        }
    }

    /// Instant at which the files have to be synced, if they have.
    fn due_ns(&self) -> Option<u64> {
        self.syncers.iter().filter_map(Syncer::due_ns).min()
    }

    /// Syncs what has waited long enough.
    fn settle(&mut self, now_ns: u64) {
        let files = [(&self.file, &self.path), (&self.index, &self.index_path)];
        for (syncer, (file, path)) in self.syncers.iter_mut().zip(files) {
            if let Err(error) = syncer.settle(now_ns, || file.sync_data()) {
                let path = path.display();
                tracing::error!("{path}: {error}; a loss of power may take some of it");
            }
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
                        tracing::error!(
                            "{}: {error}; producers wait: free some space",
                            self.path.display()
                        );
                        shared.disk_full();
                    }
                }
                (_, shared) => {
                    if let Some(shared) = shared.filter(|_| full) {
                        tracing::warn!("{}: the disk has space again", self.path.display());
                        shared.disk_free();
                    }
                    return done;
                }
            }
            // What comes meanwhile stays in the queue, which credit bounds.
            clock::sleep_until(clock::monotonic_ns() + RETRY_NS);
        }
    }

    fn enrol(&mut self, line: &str) -> io::Result<()> {
        let at = self.index.stream_position()?;
        let index = &mut self.index;
        let written = index
            .write_all(line.as_bytes())
            .and_then(|()| self.syncers[1].written(clock::monotonic_ns(), || index.sync_data()));
        written.inspect_err(|_| {
            // Leaves no half a line; a crash may, which reading tolerates.
            drop(index.set_len(at).and_then(|()| index.seek(SeekFrom::Start(at))));
        })
    }

    fn append(&mut self, batch: &[Block]) -> io::Result<()> {
        let done = self.write(batch).and_then(|()| {
            let file = &self.file;
            self.syncers[0].written(clock::monotonic_ns(), || file.sync_data())
        });
        if done.is_err() {
            self.file.set_len(self.good_bytes)?;
            self.file.seek(SeekFrom::Start(self.good_bytes))?;
            return done;
        }
        self.good_bytes += batch.iter().map(|block| block.bytes.len() as u64).sum::<u64>();
        Ok(())
    }

    fn write(&mut self, batch: &[Block]) -> io::Result<()> {
        let mut slices: Vec<_> = batch.iter().map(|block| IoSlice::new(&block.bytes)).collect();
        let mut rest = &mut slices[..];
        while !rest.is_empty() {
            match self.file.write_vectored(rest) {
                Ok(count) => IoSlice::advance_slices(&mut rest, count),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOSPC | libc::EDQUOT))
}
