//! Logging off the packet path: producers fill blocks in place, a writer thread seals them and
//! writes them to one file.
//!
//! A block belongs to exactly one side at a time: the producer fills it, hands it over, and gets
//! an empty one back. When the disk is slow a producer takes further blocks, up to
//! [`LogLimits::pool_bytes`]; then it waits, which shows as lateness or as drops at the socket, both
//! reported. When the disk fails, what is written stays good (a half-written block is cut off) and
//! every record that comes later is counted as lost.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender, TrySendError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use itg_record::{BlockBuf, LogBuilder, LogInfo, Note, RECORD_LEN, Record};

use crate::clock;

/// Between two notes on the clocks.
const CLOCK_EVERY: Duration = Duration::from_secs(1);

/// How much a log may hold in memory.
#[derive(Clone, Copy, Debug)]
pub struct LogLimits {
    /// Records in a block.
    pub block_records: usize,
    /// A block that is older is written though not full, in nanoseconds.
    pub flush_age_ns: u64,
    /// Memory for the blocks of one producer, in bytes.
    pub pool_bytes: usize,
}

impl Default for LogLimits {
    /// Blocks of 1024 records, written after one second at the latest; 64 MiB a producer.
    fn default() -> Self {
        Self { block_records: 1024, flush_age_ns: 1_000_000_000, pool_bytes: 64 << 20 }
    }
}

enum Job {
    Records(BlockBuf, SyncSender<BlockBuf>),
    Note(Box<Note>),
    /// Answer with the number of records lost so far.
    Settle(SyncSender<u64>),
}

/// What became of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogOutcome {
    /// Where it is.
    pub file: PathBuf,
    /// Records in the file.
    pub records: u64,
    /// Records that could not be written.
    pub lost_records: u64,
    /// Why not, and what to do.
    pub error: Option<String>,
}

#[derive(Debug, Default)]
struct Shared {
    lost_records: AtomicU64,
    error: Mutex<Option<String>>,
}

/// A log file with its writer thread.
#[derive(Debug)]
pub struct Log {
    jobs: SyncSender<Job>,
    thread: JoinHandle<LogOutcome>,
    shared: Arc<Shared>,
    limits: LogLimits,
    path: PathBuf,
}

impl Log {
    /// Creates the file (an older one of that name is replaced) and starts its writer.
    ///
    /// # Errors
    /// A path that cannot be written, named.
    pub fn create(path: &Path, info: LogInfo, limits: LogLimits) -> io::Result<Self> {
        let named = |error: io::Error| {
            io::Error::new(error.kind(), format!("log {}: {error}", path.display()))
        };
        let file =
            OpenOptions::new().create(true).write(true).truncate(true).open(path).map_err(named)?;
        let shared = Arc::new(Shared::default());
        let (jobs, queue) = mpsc::sync_channel(4096);
        let mut writer = Writer {
            file,
            path: path.to_owned(),
            good_bytes: 0,
            builder: LogBuilder::new(0),
            records: 0,
            shared: Arc::clone(&shared),
            failed: false,
        };
        writer.note(&Note::Log(info));
        writer.note(&Note::Clock(clock::clock_pair()));
        if writer.failed {
            let why = writer.error().unwrap_or_default();
            return Err(io::Error::new(io::ErrorKind::StorageFull, why));
        }
        let thread = thread::Builder::new()
            .name("itg-log-writer".to_owned())
            .spawn(move || writer.run(&queue))
            .map_err(named)?;
        Ok(Self { jobs, thread, shared, limits, path: path.to_owned() })
    }

    /// A new producer of this log.
    #[must_use]
    pub fn producer(&self) -> Producer {
        let limits = self.limits;
        let block_bytes = limits.block_records * RECORD_LEN;
        let most_blocks = (limits.pool_bytes / block_bytes).max(2);
        let (give_back, free) = mpsc::sync_channel(most_blocks);
        Producer {
            block: BlockBuf::new(limits.block_records),
            opened_ns: 0,
            limits,
            blocks: 1,
            most_blocks,
            jobs: self.jobs.clone(),
            give_back,
            free,
            shared: Arc::clone(&self.shared),
        }
    }

    /// Why the log has failed, if it has.
    #[must_use]
    pub fn error(&self) -> Option<String> {
        self.shared.error.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Records that could not be written so far; blocks on their way are not counted yet.
    #[must_use]
    pub fn lost_records(&self) -> u64 {
        self.shared.lost_records.load(Ordering::Relaxed)
    }

    /// Asks the writer for the number of lost records; the answer comes when all that was handed over
    /// before has been written or lost.
    #[must_use]
    pub fn settle(&self) -> Receiver<u64> {
        let (answer, answered) = mpsc::sync_channel(1);
        if self.jobs.send(Job::Settle(answer)).is_err() {
            tracing::debug!("the log writer has ended");
        }
        answered
    }

    /// Where the log is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Ends the log once all its producers are gone; waits for the writer.
    #[must_use]
    pub fn close(self) -> LogOutcome {
        drop(self.jobs);
        self.thread.join().unwrap_or_else(|_| LogOutcome {
            file: self.path,
            records: 0,
            lost_records: self.shared.lost_records.load(Ordering::Relaxed),
            error: Some("the log writer stopped on a bug; the file may be incomplete".to_owned()),
        })
    }
}

/// One thread's way into a log.
#[derive(Debug)]
pub struct Producer {
    block: BlockBuf,
    opened_ns: u64,
    limits: LogLimits,
    blocks: usize,
    most_blocks: usize,
    jobs: SyncSender<Job>,
    give_back: SyncSender<BlockBuf>,
    free: Receiver<BlockBuf>,
    shared: Arc<Shared>,
}

impl Producer {
    /// Adds a record. `now_ns` is any clock that only goes forward; it decides the block's age.
    pub fn push(&mut self, record: &Record, now_ns: u64) {
        if self.block.is_empty() {
            self.opened_ns = now_ns;
        }
        self.block.push(record);
        if self.block.is_full() {
            self.flush();
        }
    }

    /// Hands over a block that is older than the limit; call it now and then.
    pub fn tick(&mut self, now_ns: u64) {
        if !self.block.is_empty()
            && now_ns.saturating_sub(self.opened_ns) >= self.limits.flush_age_ns
        {
            self.flush();
        }
    }

    /// Adds a note behind the records so far.
    pub fn note(&mut self, note: Note) {
        self.flush();
        if self.jobs.send(Job::Note(Box::new(note))).is_err() {
            tracing::debug!("a note came after the end of the log");
        }
    }

    /// Hands over the block in hand.
    pub fn flush(&mut self) {
        if self.block.is_empty() {
            return;
        }
        let next = match self.free.try_recv() {
            Ok(block) => block,
            Err(_) if self.blocks < self.most_blocks => {
                self.blocks += 1;
                BlockBuf::new(self.limits.block_records)
            }
            // The writer returns each block after a write, failed or not: this ends.
            Err(_) => match self.free.recv_timeout(Duration::from_secs(60)) {
                Ok(block) => block,
                Err(_) => return self.lose("the disk took no block for 60 s"),
            },
        };
        let full = std::mem::replace(&mut self.block, next);
        let job = Job::Records(full, self.give_back.clone());
        if let Err(error) = self.jobs.try_send(job) {
            let (job, why) = match error {
                TrySendError::Full(job) => (job, "too many blocks wait for the disk"),
                TrySendError::Disconnected(job) => (job, "the log writer has ended"),
            };
            if let Job::Records(block, _) = job {
                self.block = block;
            }
            self.lose(why);
        }
    }

    fn lose(&mut self, why: &str) {
        let lost = self.block.len() as u64;
        self.shared.lost_records.fetch_add(lost, Ordering::Relaxed);
        fail(&self.shared, why.to_owned());
        self.block.clear();
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        self.flush();
    }
}

fn fail(shared: &Shared, why: String) {
    let mut error = shared.error.lock().unwrap_or_else(PoisonError::into_inner);
    if error.is_none() {
        tracing::error!("{why}");
        *error = Some(why);
    }
}

struct Writer {
    file: File,
    path: PathBuf,
    good_bytes: u64,
    builder: LogBuilder,
    records: u64,
    shared: Arc<Shared>,
    failed: bool,
}

impl Writer {
    fn run(mut self, queue: &Receiver<Job>) -> LogOutcome {
        let mut next_clock_ns = clock::monotonic_ns();
        loop {
            match queue.recv_timeout(CLOCK_EVERY) {
                Ok(Job::Records(mut block, give_back)) => {
                    self.block(&mut block);
                    block.clear();
                    // The producer may be gone already: then nobody needs the block.
                    drop(give_back.try_send(block));
                }
                Ok(Job::Note(note)) => self.note(&note),
                Ok(Job::Settle(answer)) => {
                    // Who asked may have gone.
                    let lost = self.shared.lost_records.load(Ordering::Relaxed);
                    answer.try_send(lost).unwrap_or_default();
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            let now = clock::monotonic_ns();
            if now >= next_clock_ns {
                next_clock_ns = now + clock_every_ns();
                self.note(&Note::Clock(clock::clock_pair()));
            }
        }
        self.note(&Note::Clock(clock::clock_pair()));
        let lost_records = self.shared.lost_records.load(Ordering::Relaxed);
        if !self.failed {
            let end = self.builder.end(lost_records);
            self.write(&end);
        }
        if let Err(error) = self.file.sync_data() {
            // Pipes and the like cannot be synchronised, and need not be.
            tracing::debug!(%error, "log is not synchronised to disk");
        }
        LogOutcome { error: self.error(), file: self.path, records: self.records, lost_records }
    }

    fn error(&self) -> Option<String> {
        self.shared.error.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn block(&mut self, block: &mut BlockBuf) {
        let count = block.len() as u64;
        if !self.failed {
            let sealed = self.builder.seal(block);
            Self::append(&mut self.file, &self.path, &mut self.good_bytes, sealed).unwrap_or_else(
                |why| {
                    self.failed = true;
                    fail(&self.shared, why);
                },
            );
        }
        if self.failed {
            self.shared.lost_records.fetch_add(count, Ordering::Relaxed);
        } else {
            self.records += count;
        }
    }

    fn note(&mut self, note: &Note) {
        if !self.failed {
            let bytes = self.builder.note(note);
            self.write(&bytes);
        }
    }

    fn write(&mut self, bytes: &[u8]) {
        if let Err(why) = Self::append(&mut self.file, &self.path, &mut self.good_bytes, bytes) {
            self.failed = true;
            fail(&self.shared, why);
        }
    }

    /// Writes one block, or cuts off what was written of it.
    fn append(file: &mut File, path: &Path, good: &mut u64, bytes: &[u8]) -> Result<(), String> {
        let Err(error) = file.write_all(bytes) else {
            *good += bytes.len() as u64;
            return Ok(());
        };
        let hint = match error.raw_os_error() {
            Some(libc::ENOSPC) => "; free some space or log to another disk",
            Some(libc::EFBIG) => "; the file size limit is reached",
            _ => "",
        };
        let cut = file.set_len(*good).and_then(|()| file.seek(io::SeekFrom::Start(*good)));
        let kept = match cut {
            Ok(_) => "what was written before stays good",
            Err(_) => "its last block is incomplete",
        };
        Err(format!(
            "log {}: {error}{hint}; {kept}, later records are counted as lost",
            path.display()
        ))
    }
}

fn clock_every_ns() -> u64 {
    u64::try_from(CLOCK_EVERY.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use itg_record::{Item, LogReader, Side};

    use super::*;

    fn info() -> LogInfo {
        crate::host::log_info(
            Side::Sender,
            "test",
            "0",
            "00".to_owned(),
            Some(1),
            std::collections::BTreeMap::new(),
        )
    }

    fn fill(producer: &mut Producer, flow: u32, count: u64) {
        for seq in 0..count {
            producer.push(&Record::sent(flow, seq, 100, seq, seq), seq);
        }
    }

    fn records(bytes: &[u8]) -> Vec<Record> {
        let mut records = Vec::new();
        for item in LogReader::new(bytes) {
            match item {
                Item::Records { records: block, .. } => records.extend(block),
                Item::Damage(damage) => panic!("{damage:?}"),
                Item::Note { .. } => {}
            }
        }
        records
    }

    #[test]
    fn what_several_producers_push_is_in_the_file() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("log");
        let log = Log::create(&path, info(), LogLimits::default()).expect("writable");
        let threads: Vec<_> = (1..4)
            .map(|flow| {
                let mut producer = log.producer();
                thread::spawn(move || fill(&mut producer, flow, 10_000))
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
        let outcome = log.close();
        assert_eq!((outcome.records, outcome.lost_records, outcome.error), (30_000, 0, None));
        let records = records(&std::fs::read(&path).expect("written"));
        for flow in 1..4 {
            let seqs: Vec<_> = records.iter().filter(|r| r.flow == flow).map(|r| r.seq).collect();
            assert_eq!(seqs, (0..10_000).collect::<Vec<_>>(), "flow {flow}");
        }
    }

    #[test]
    fn a_small_pool_makes_the_producer_wait_and_loses_nothing() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("log");
        let limits = LogLimits { block_records: 2, pool_bytes: 1, ..LogLimits::default() };
        let log = Log::create(&path, info(), limits).expect("writable");
        let mut producer = log.producer();
        fill(&mut producer, 1, 5_000);
        drop(producer);
        assert_eq!(log.close().records, 5_000);
        assert_eq!(records(&std::fs::read(&path).expect("written")).len(), 5_000);
    }

    #[test]
    fn a_full_disk_and_a_bad_path_are_named() {
        let error = Log::create(Path::new("/dev/full"), info(), LogLimits::default());
        let error = error.expect_err("always full").to_string();
        assert!(error.contains("log /dev/full: No space left"), "{error}");
        assert!(error.contains("free some space or log to another disk"), "{error}");
        let error = Log::create(Path::new("/nonexistent/log"), info(), LogLimits::default());
        let error = error.expect_err("no such directory").to_string();
        assert!(error.starts_with("log /nonexistent/log: No such file"), "{error}");
    }

    #[test]
    fn records_after_a_failure_are_counted_as_lost() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("log");
        let (jobs, queue) = mpsc::sync_channel(16);
        // A file that was opened for reading only refuses every write.
        std::fs::write(&path, []).expect("writable");
        let shared = Arc::new(Shared::default());
        let writer = Writer {
            file: File::open(&path).expect("readable"),
            path: path.clone(),
            good_bytes: 0,
            builder: LogBuilder::new(0),
            records: 0,
            shared: Arc::clone(&shared),
            failed: false,
        };
        let thread = thread::spawn(move || writer.run(&queue));
        let log = Log { jobs, thread, shared, limits: LogLimits::default(), path };
        let mut producer = log.producer();
        fill(&mut producer, 1, 2_500);
        drop(producer);
        let outcome = log.close();
        assert_eq!((outcome.records, outcome.lost_records), (0, 2_500));
        assert!(outcome.error.is_some_and(|why| why.contains("later records are counted as lost")));
    }
}
