//! Logging off the packet path: producers fill blocks in place, a writer thread seals them and
//! writes them to one file, or sends them to a log server, memory to memory.
//!
//! A block belongs to exactly one side at a time: the producer fills it, hands it over, and gets
//! an empty one back. When the disk is slow a producer takes further blocks, up to
//! [`LogLimits::pool_bytes`]; then it waits, which shows as lateness or as drops at the socket, both
//! reported. When the disk fails, what is written stays good (a half-written block is cut off) and
//! every record that comes later is counted as lost.

mod file;
mod remote;
mod spool;
#[cfg(test)]
mod tests;

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender, TrySendError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use itg_record::{BlockBuf, LogInfo, Note, RECORD_LEN, Record};

pub(crate) use self::remote::{BLOCK_BIT, prove};
pub use self::remote::{LOG_PORT, LogServerTarget, LogUrl};
use self::remote::{NetEvent, Remote};

/// Between two notes on the clocks: 1 s.
const CLOCK_EVERY_NS: u64 = 1_000_000_000;

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
    /// Something from the log server.
    Heard(NetEvent),
    /// All producers are gone.
    Close,
}

/// Where a log goes.
#[derive(Clone, Debug)]
pub enum LogTarget {
    /// A file on this host.
    File(PathBuf),
    /// A log server.
    Server(Box<LogServerTarget>),
}

/// What became of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogOutcome {
    /// Where it is: a file, or a log server and the experiment there.
    pub place: String,
    /// Records stored there.
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

impl Shared {
    fn error(&self) -> Option<String> {
        self.error.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn lost(&self) -> u64 {
        self.lost_records.load(Ordering::Relaxed)
    }

    fn lose(&self, records: u64) {
        self.lost_records.fetch_add(records, Ordering::Relaxed);
    }

    fn answer(&self, asked: &SyncSender<u64>) {
        // Who asked may have gone.
        asked.try_send(self.lost()).unwrap_or_default();
    }
}

/// Gives an empty block back; when its producer is gone nobody needs it.
fn give(mut block: BlockBuf, to: &SyncSender<BlockBuf>) {
    block.clear();
    drop(to.try_send(block));
}

/// A log with its writer thread.
#[derive(Debug)]
pub struct Log {
    jobs: SyncSender<Job>,
    thread: JoinHandle<LogOutcome>,
    shared: Arc<Shared>,
    limits: LogLimits,
    place: String,
}

impl Log {
    /// Creates the file (an older one of that name is replaced) or registers with the log server, and
    /// starts the writer.
    ///
    /// # Errors
    /// A path that cannot be written, or a server that cannot be reached or refuses: named.
    pub fn create(target: &LogTarget, info: LogInfo, limits: LogLimits) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let (jobs, queue) = mpsc::sync_channel(16_384);
        let thread = thread::Builder::new().name("itg-log-writer".to_owned());
        let (place, limits, thread) = match target {
            LogTarget::File(path) => {
                let writer = file::Writer::create(path, info, &shared)?;
                let place = path.display().to_string();
                (place, limits, thread.spawn(move || writer.run(&queue))?)
            }
            LogTarget::Server(server) => {
                let limits = server.limits(limits);
                let (ready, registered) = mpsc::sync_channel(1);
                let events = jobs.clone();
                let remote = Remote::new(server, &shared, limits, events)?;
                let thread = thread.spawn(move || remote.run(&queue, info, &ready))?;
                match registered.recv() {
                    Ok(Ok(())) => {}
                    Ok(Err(why)) => return Err(io::Error::new(io::ErrorKind::NotConnected, why)),
                    Err(_) => return Err(io::Error::other("the log writer stopped on a bug")),
                }
                (server.to_string(), limits, thread)
            }
        };
        Ok(Self { jobs, thread, shared, limits, place })
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
        self.shared.error()
    }

    /// Records that could not be written so far; blocks on their way are not counted yet.
    #[must_use]
    pub fn lost_records(&self) -> u64 {
        self.shared.lost()
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
    pub fn place(&self) -> &str {
        &self.place
    }

    /// Ends the log once all its producers are gone; waits for the writer.
    #[must_use]
    pub fn close(self) -> LogOutcome {
        if self.jobs.send(Job::Close).is_err() {
            tracing::debug!("the log writer has ended");
        }
        self.thread.join().unwrap_or_else(|_| LogOutcome {
            place: self.place,
            records: 0,
            lost_records: self.shared.lost(),
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
        self.shared.lose(lost);
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
