//! Logging off the packet path: producers fill blocks in place, a writer thread seals them and
//! writes them to one file, or sends them to a log server, memory to memory.
//!
//! A block belongs to exactly one side at a time: the producer fills it, hands it over, and gets
//! an empty one back. What it does when no empty one is there, because the disk or the server is slow,
//! is [`OnFull`]: it waits, which shows as lateness or as drops at the socket; it takes further
//! memory first; or it leaves the block out. Waits and what is left out are counted. When the disk
//! fails, what is written stays good (a half-written block is cut off) and every record that comes
//! later is counted as lost.

mod file;
mod forward;
mod handed;
mod held;
mod info;
mod link;
mod named;
mod remote;
mod scan;
mod spool;
mod sync;
mod target;
#[cfg(test)]
mod tests;
mod throttle;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender, TrySendError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use itg_core::units::format_duration_ns;
use itg_record::{BlockBuf, LogInfo, Note, RECORD_LEN, Record};
use itg_session::logs::Transport;
use itg_socket::clock;

pub use self::file::write_hint;
pub use self::forward::{Forwarded, forward};
pub use self::handed::{HandedBlock, HandedTarget};
pub use self::info::log_info;
pub use self::link::BLOCK_BIT;
use self::link::NetEvent;
pub use self::named::{create_named, replace_named};
use self::remote::Remote;
pub use self::scan::{Found, scan};
pub use self::spool::unhex;
pub use self::sync::{Fsync, Syncer};
pub use self::target::prove;
pub use self::target::{LOG_PORT, LogServerTarget, LogUrl};
pub use self::throttle::Throttle;
use crate::classic::{self, ClassicTarget};

/// Between two notes on the clocks: 1 s.
const CLOCK_EVERY_NS: u64 = 1_000_000_000;
/// Records of a block that fits an Ethernet frame as one datagram: (1500 − 28 − 64) / 40.
const UDP_RECORDS: usize = 35;
/// Blocks on their way from all producers to the writer.
const QUEUE: usize = 16_384;
/// Blocks of one producer, so that small ones do not fill the queue before the memory: 4096.
const MOST_BLOCKS: usize = QUEUE / 4;
/// Notes that wait for the block in hand, at most.
const MOST_WITH_BLOCK: usize = 64;
/// Longest wait for an empty block; after it the block in hand is lost.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// Behaviour of a producer whose block is full while there is no empty one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnFull {
    /// It waits until the writer gives one back: nothing is lost, packets may be late.
    Wait,
    /// It takes further memory, up to [`LogLimits::pool_bytes`], then it waits.
    #[default]
    Grow,
    /// It leaves out the records of the block in hand, and counts them: packets are never late for it.
    Drop,
}

/// Limits of a log: size of its blocks, and memory for them.
#[derive(Clone, Copy, Debug)]
pub struct LogLimits {
    /// Records that a producer hands over at once, and of a block in a file or on TCP.
    pub block_records: usize,
    /// Records in a block on UDP, where a block is one datagram.
    pub datagram_records: usize,
    /// A block that is older is written though not full, in nanoseconds.
    pub flush_age_ns: u64,
    /// Behaviour of a producer without an empty block.
    pub on_full: OnFull,
    /// Memory for the blocks of one producer, in bytes; two blocks at least. With
    /// [`OnFull::Grow`] it is taken when it is needed, else from the beginning.
    pub pool_bytes: usize,
    /// For measurements: a log file takes no more bytes a second than this. Servers have a limit of
    /// their own.
    pub throttle_bytes_per_s: Option<u64>,
    /// Syncing of a log file. Servers have a setting of their own.
    pub fsync: Fsync,
}

impl Default for LogLimits {
    /// Blocks of 1024 records (UDP: 35, which fit an Ethernet frame), written after one second at the
    /// latest; growing to 64 MiB a producer.
    fn default() -> Self {
        Self {
            block_records: 1024,
            datagram_records: UDP_RECORDS,
            flush_age_ns: 1_000_000_000,
            on_full: OnFull::Grow,
            pool_bytes: 64 << 20,
            throttle_bytes_per_s: None,
            fsync: Fsync::Never,
        }
    }
}

impl LogLimits {
    /// Blocks of one producer, the one that is being filled included: at least 2.
    fn most_blocks(&self) -> usize {
        (self.pool_bytes / (self.block_records * RECORD_LEN)).clamp(2, MOST_BLOCKS)
    }
}

/// Requests to the writer.
pub(crate) enum Job {
    Records(BlockBuf, SyncSender<BlockBuf>),
    /// So many records were left out: they use up a block number.
    LeftOut(u32),
    Note(Box<Note>),
    /// Answer with the number of records lost so far.
    Settle(SyncSender<u64>),
    /// Something from the log server.
    Heard(NetEvent),
    /// All producers are gone.
    Close,
}

/// Destination of a log.
#[derive(Clone, Debug)]
pub enum LogTarget {
    /// A file on this host; an older one of that name is replaced.
    File(PathBuf),
    /// A file on this host whose name a peer has chosen: what is there already is left alone.
    Named(PathBuf),
    /// A log server.
    Server(Box<LogServerTarget>),
    /// A log in D-ITG's form.
    Classic(Box<ClassicTarget>),
    /// Another thread of this program, which carries the blocks away.
    Handed(Box<HandedTarget>),
}

/// Outcome of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogOutcome {
    /// Place of the log: a file, or a log server and the experiment there.
    pub place: String,
    /// Records stored there.
    pub records: u64,
    /// Records that could not be written, those left out included.
    pub lost_records: u64,
    /// Records that producers left out for want of room ([`OnFull::Drop`]).
    pub left_out_records: u64,
    /// Number of times that a producer had to wait for an empty block.
    pub stalls: u64,
    /// Sum of all these waits, in nanoseconds.
    pub stalled_ns: u64,
    /// Reason of the loss of records, and advice.
    pub error: Option<String>,
}

/// One line of words: where, how many records, and what disturbed the packets.
impl fmt::Display for LogOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "log {}: {} records", self.place, self.records)?;
        if self.left_out_records > 0 {
            write!(f, ", {} left out for want of room", self.left_out_records)?;
        }
        if self.stalls > 0 {
            let times =
                if self.stalls == 1 { "once".to_owned() } else { format!("{} times", self.stalls) };
            let unit = if self.stalled_ns < 1_000_000 { 1000 } else { 1_000_000 };
            let together = format_duration_ns(self.stalled_ns / unit * unit);
            write!(f, ", packets waited for it {times} ({together} together)")?;
        }
        Ok(())
    }
}

/// Counters that all threads of a log share.
#[derive(Debug, Default)]
pub struct Shared {
    lost_records: AtomicU64,
    left_out_records: AtomicU64,
    stalls: AtomicU64,
    stalled_ns: AtomicU64,
    error: Mutex<Option<String>>,
}

impl Shared {
    fn error(&self) -> Option<String> {
        self.error.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn lost(&self) -> u64 {
        self.lost_records.load(Ordering::Relaxed)
    }

    /// Counts records that are lost.
    pub(crate) fn lose(&self, records: u64) {
        self.lost_records.fetch_add(records, Ordering::Relaxed);
    }

    fn left_out(&self) -> u64 {
        self.left_out_records.load(Ordering::Relaxed)
    }

    /// Outcome of the log at `place`, with the counts of its producers.
    pub fn outcome(&self, place: String, records: u64) -> LogOutcome {
        LogOutcome {
            place,
            records,
            lost_records: self.lost(),
            left_out_records: self.left_out(),
            stalls: self.stalls.load(Ordering::Relaxed),
            stalled_ns: self.stalled_ns.load(Ordering::Relaxed),
            error: self.error(),
        }
    }

    /// Answers a request for the number of lost records.
    pub(crate) fn answer(&self, asked: &SyncSender<u64>) {
        // The thread that asked may have gone.
        asked.try_send(self.lost()).unwrap_or_default();
    }
}

/// Gives an empty block back; when its producer is gone the block is dropped.
pub fn give(mut block: BlockBuf, to: &SyncSender<BlockBuf>) {
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
    /// Creates the file (an older one of that name is replaced, unless a peer has chosen the name)
    /// or registers with the log server, and starts the writer.
    ///
    /// # Errors
    /// A path that cannot be written, or a server that cannot be reached or refuses: named.
    pub fn create(target: &LogTarget, mut info: LogInfo, limits: LogLimits) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let limits = match target {
            LogTarget::File(_) | LogTarget::Named(_) | LogTarget::Handed(_) => limits,
            LogTarget::Server(server) => server.limits(limits),
            LogTarget::Classic(classic) => {
                LogLimits { block_records: classic.block_records(), ..limits }
            }
        };
        let stored = match target {
            LogTarget::Server(server) if server.transport == Transport::Udp => {
                limits.datagram_records
            }
            _ => limits.block_records,
        };
        info.block_records = u32::try_from(stored).unwrap_or(u32::MAX);
        let (jobs, queue) = mpsc::sync_channel(QUEUE);
        let thread = thread::Builder::new().name("itg-log-writer".to_owned());
        let (place, thread) = match target {
            LogTarget::File(path) | LogTarget::Named(path) => {
                let named = matches!(target, LogTarget::Named(_));
                let writer = file::Writer::create(
                    (path, named),
                    info,
                    &shared,
                    (limits.throttle_bytes_per_s.map(Throttle::new), limits.fsync),
                )?;
                let place = path.display().to_string();
                (place, thread.spawn(move || writer.run(&queue))?)
            }
            LogTarget::Classic(classic) => {
                let writer = classic::Writer::create(classic, &shared)?;
                (classic.to_string(), thread.spawn(move || writer.run(&queue))?)
            }
            LogTarget::Handed(target) => {
                let (place, target) = (target.place.clone(), target.clone());
                let shared = Arc::clone(&shared);
                let write = move || handed::Writer::create(&target, info, &shared).run(&queue);
                (place, thread.spawn(write)?)
            }
            LogTarget::Server(server) => {
                let (ready, registered) = mpsc::sync_channel(1);
                let events = jobs.clone();
                let remote = Remote::new(server, &shared, limits, events)?;
                let thread = thread.spawn(move || remote.run(&queue, info, &ready))?;
                match registered.recv() {
                    Ok(Ok(())) => {}
                    Ok(Err(why)) => return Err(io::Error::new(io::ErrorKind::NotConnected, why)),
                    Err(_) => return Err(io::Error::other("the log writer stopped on a bug")),
                }
                (server.to_string(), thread)
            }
        };
        Ok(Self { jobs, thread, shared, limits, place })
    }

    /// A new producer of this log.
    #[must_use]
    pub fn producer(&self) -> Producer {
        let limits = self.limits;
        let most_blocks = limits.most_blocks();
        let (give_back, free) = mpsc::sync_channel(most_blocks);
        let blocks = if limits.on_full == OnFull::Grow { 2 } else { most_blocks };
        for _ in 1..blocks {
            give(BlockBuf::new(limits.block_records), &give_back);
        }
        Producer {
            block: BlockBuf::new(limits.block_records),
            opened_ns: 0,
            limits,
            blocks,
            most_blocks,
            with_block: Vec::new(),
            untold: 0,
            missing: BTreeMap::new(),
            stuck: false,
            jobs: self.jobs.clone(),
            give_back,
            free,
            shared: Arc::clone(&self.shared),
        }
    }

    /// Reason of the log's failure, if it has failed.
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

    /// Place of the log, in words.
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
        let (place, shared) = (self.place, self.shared);
        self.thread.join().unwrap_or_else(|_| LogOutcome {
            error: Some("the log writer stopped on a bug; the file may be incomplete".to_owned()),
            ..shared.outcome(place, 0)
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
    /// Notes that go with the block in hand, before it.
    with_block: Vec<Note>,
    /// Records left out that the writer has not been told of.
    untold: u32,
    /// Records left out or lost here, by the index of their flow.
    missing: BTreeMap<u32, u64>,
    /// No block came back within the longest wait: the next ones are not waited for.
    stuck: bool,
    jobs: SyncSender<Job>,
    give_back: SyncSender<BlockBuf>,
    free: Receiver<BlockBuf>,
    shared: Arc<Shared>,
}

impl Producer {
    /// Adds a record. `now_ns` is any clock that only goes forward; it decides the block's age.
    pub fn push(&mut self, record: &Record, now_ns: u64) {
        self.push_run(record, 1, now_ns);
    }

    /// Adds one record for `packets` packets, 1 to [`itg_record::MAX_RUN`], whose numbers follow each
    /// other from the record's on and that have everything else in common.
    pub fn push_run(&mut self, record: &Record, packets: usize, now_ns: u64) {
        if self.block.is_empty() {
            self.opened_ns = now_ns;
        }
        self.block.push_run(record, packets);
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

    /// Adds a note before the records of the block in hand, and hands it over with them: its writer is not woken now,
    /// when the first packets of many flows arrive at once.
    pub fn note_with_block(&mut self, note: Note) {
        self.with_block.push(note);
        if self.with_block.len() >= MOST_WITH_BLOCK {
            self.tell_notes();
        }
    }

    /// Hands over the notes that wait for the block in hand.
    fn tell_notes(&mut self) {
        for note in self.with_block.drain(..) {
            if self.jobs.send(Job::Note(Box::new(note))).is_err() {
                tracing::debug!("a note came after the end of the log");
            }
        }
    }

    /// Adds a note behind the records so far.
    pub fn note(&mut self, note: Note) {
        self.flush();
        self.tell_left_out();
        if self.jobs.send(Job::Note(Box::new(note))).is_err() {
            tracing::debug!("a note came after the end of the log");
        }
    }

    /// Hands over the block in hand.
    pub fn flush(&mut self) {
        self.tell_notes();
        if self.block.is_empty() {
            return;
        }
        let next = match self.free.try_recv() {
            Ok(block) => block,
            Err(_) if self.blocks < self.most_blocks => {
                self.blocks += 1;
                BlockBuf::new(self.limits.block_records)
            }
            Err(_) if self.limits.on_full == OnFull::Drop => return self.leave_out(),
            Err(_) => match self.wait() {
                Some(block) => block,
                None => return self.lose("no block was written for 60 s"),
            },
        };
        self.stuck = false;
        self.tell_left_out();
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

    /// Waits for an empty block. The writer returns each one when it is written, or cannot be.
    fn wait(&mut self) -> Option<BlockBuf> {
        if self.stuck {
            return None;
        }
        let since = clock::monotonic_ns();
        let block = self.free.recv_timeout(LONGEST_WAIT);
        let waited = clock::monotonic_ns().saturating_sub(since);
        self.shared.stalls.fetch_add(1, Ordering::Relaxed);
        self.shared.stalled_ns.fetch_add(waited, Ordering::Relaxed);
        self.stuck = block.is_err();
        block.ok()
    }

    /// Hands over the block in hand and says how many records of a flow were left out or lost on the way to
    /// the writer. What the writer itself cannot write is known for the log only.
    pub fn missing_of(&mut self, index: u32) -> u64 {
        self.flush();
        self.missing.get(&index).copied().unwrap_or(0)
    }

    /// Leaves out the records in hand.
    fn leave_out(&mut self) {
        self.count_missing();
        let records = self.block.len();
        self.shared.lose(records as u64);
        self.shared.left_out_records.fetch_add(records as u64, Ordering::Relaxed);
        self.untold = self.untold.saturating_add(u32::try_from(records).unwrap_or(u32::MAX));
        self.block.clear();
    }

    /// Tells the writer how much was left out since the block before, so that the gap shows there.
    fn tell_left_out(&mut self) {
        if self.untold > 0 && self.jobs.try_send(Job::LeftOut(self.untold)).is_ok() {
            self.untold = 0;
        }
    }

    fn count_missing(&mut self) {
        for record in self.block.iter() {
            *self.missing.entry(record.flow).or_default() += 1;
        }
    }

    fn lose(&mut self, why: &str) {
        self.count_missing();
        let lost = self.block.len() as u64;
        self.shared.lose(lost);
        fail(&self.shared, why.to_owned());
        self.block.clear();
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        self.flush();
        self.tell_left_out();
    }
}

/// In words, that producers left records out, if they did.
pub fn left_out(shared: &Shared) -> Option<String> {
    let records = shared.left_out();
    (records > 0).then(|| {
        format!(
            "{records} records were left out for want of room: allow more memory, or to wait for it"
        )
    })
}

/// Notes the first failure of a log.
pub fn fail(shared: &Shared, why: String) {
    let mut error = shared.error.lock().unwrap_or_else(PoisonError::into_inner);
    if error.is_none() {
        tracing::error!("{why}");
        *error = Some(why);
    }
}
