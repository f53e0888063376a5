//! Logging off the packet path: producers fill blocks in place, a writer thread seals them and
//! writes them to one file, or sends them to a log server, memory to memory.
//!
//! A block belongs to exactly one side at a time: the producer fills it, hands it over, and gets
//! an empty one back. What it does when no empty one is there, because the disk or the server is slow,
//! is [`OnFull`]: it waits, which shows as lateness or as drops at the socket; it takes further
//! memory first; or it leaves the block out. Waits and what is left out are counted. When the disk
//! fails, what is written stays good (a half-written block is cut off) and every record that comes
//! later is counted as lost.

mod disk;
mod file;
mod forward;
mod handed;
mod info;
mod limits;
mod line;
mod link;
mod lock;
mod named;
pub(crate) mod place;
pub(crate) mod queue;
mod quota;
mod remote;
mod rotation;
mod spool;
mod target;
#[cfg(test)]
mod tests;
mod throttle;

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender, TrySendError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use itg_core::units::nanoseconds;
use itg_record::{BlockBuf, LogInfo, Note, Record};
use itg_session::logs::Transport;
pub use itg_session::logs::keep::{AppendError, BlockFile, Fsync};
use itg_socket::clock;

pub use self::disk::DiskFile;
use self::file::Start;
pub use self::file::write_hint;
pub(crate) use self::file::{LATER_LOST, MEANWHILE_LOST};
pub use self::forward::{Forwarded, forward};
pub use self::handed::{HandedBlock, HandedTarget};
pub use self::info::log_info;
use self::limits::QUEUE;
pub use self::limits::{LogLimits, OnFull};
pub use self::lock::{lock, open_locked};
pub use self::named::{create_named, open_named, replace_named};
pub(crate) use self::queue::Job;
pub use self::queue::{LogOutcome, Shared, fail, give, left_out};
pub(crate) use self::quota::LogRoom;
pub use self::quota::{LEAST_LOG_BYTES, LogQuota};
use self::remote::Remote;
pub use self::rotation::Rotation;
pub use self::target::prove;
pub use self::target::{LOG_PORT, LogServerTarget, LogUrl, MAY_SEND};
pub use self::throttle::Throttle;
use crate::classic::{self, ClassicTarget};

/// Notes that wait for the block in hand, at most.
const MOST_WITH_BLOCK: usize = 64;
/// Longest wait for an empty block; after it the block in hand is lost.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// Time until the full queue of the writer is looked at again.
const QUEUE_LOOK: Duration = Duration::from_millis(1);
/// Time in which a log server usually answers; then the user is told that it is waited for.
const SOON: Duration = Duration::from_secs(1);

/// Destination of a log.
#[derive(Clone, Debug)]
pub enum LogTarget {
    /// A file on this host. A log that is there is continued, and the file may be rotated.
    File(PathBuf),
    /// A file on this host. A complete log that is there is replaced when the first flow is open.
    Replace(PathBuf),
    /// A file on this host whose name a peer has chosen: what is there already is left alone.
    Named {
        /// Path of the file.
        path: PathBuf,
        /// Bound on its size.
        quota: LogQuota,
    },
    /// A log server.
    Server(Box<LogServerTarget>),
    /// A log in D-ITG's form.
    Classic(Box<ClassicTarget>),
    /// Another thread of this program, which carries the blocks away.
    Handed(Box<HandedTarget>),
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
    /// Opens or creates the file, or registers with the log server, and starts the writer.
    ///
    /// # Errors
    /// A path that cannot be written, or a server that cannot be reached or refuses: named.
    pub fn create(target: &LogTarget, mut info: LogInfo, limits: LogLimits) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let limits = match target {
            LogTarget::File(_)
            | LogTarget::Replace(_)
            | LogTarget::Named { .. }
            | LogTarget::Handed(_) => limits,
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
            LogTarget::File(path) | LogTarget::Replace(path) | LogTarget::Named { path, .. } => {
                let start = match target {
                    LogTarget::Named { quota, .. } => Start::Named(quota),
                    LogTarget::Replace(_) => Start::Beside,
                    _ => Start::Continued,
                };
                let writer = file::Writer::create((path, start), info, &shared, &limits)?;
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
                let mut answer = registered.recv_timeout(SOON);
                if answer == Err(RecvTimeoutError::Timeout) {
                    tracing::warn!(
                        "the log server at {} does not answer yet and is waited for: is itg-log running there?",
                        server.url()
                    );
                    // The machine's own deadlines end it.
                    answer = registered.recv().map_err(RecvTimeoutError::from);
                }
                match answer {
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
            flush_age_ns: nanoseconds(limits.flush_age),
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

    /// Goes on in the file that has the log's name, if the one in use was moved away; may wait for the writer.
    pub fn reopen(&self) {
        if self.jobs.send(Job::Reopen).is_err() {
            tracing::debug!("the log writer has ended");
        }
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
    flush_age_ns: u64,
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

    /// Hands over a block, and the notes that wait for it, that are older than the limit; call it now and then.
    pub fn tick(&mut self, now_ns: u64) {
        if !self.holds_nothing() && now_ns.saturating_sub(self.opened_ns) >= self.flush_age_ns {
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

    /// Adds a note that may wait for as long as a record: its writer is not woken for it alone. `now_ns` is that of
    /// [`Producer::push`].
    pub fn note_in_time(&mut self, note: Note, now_ns: u64) {
        if self.holds_nothing() {
            self.opened_ns = now_ns;
        }
        self.note_with_block(note);
        self.tick(now_ns);
    }

    fn holds_nothing(&self) -> bool {
        self.block.is_empty() && self.with_block.is_empty()
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
        let Err((block, why)) = self.pass(full) else { return };
        give(std::mem::replace(&mut self.block, block), &self.give_back);
        match self.limits.on_full {
            OnFull::Drop => self.leave_out(),
            OnFull::Wait | OnFull::Grow => self.lose(why),
        }
    }

    /// Passes a block to the writer, or tells why it cannot. Where notes fill the queue, as of thousands of flows at their
    /// ends, it waits for a place there, unless packets are not to wait.
    fn pass(&mut self, block: BlockBuf) -> Result<(), (BlockBuf, &'static str)> {
        let mut job = Job::Records(block, self.give_back.clone());
        let mut waited = Duration::ZERO;
        loop {
            let (refused, why) = match self.jobs.try_send(job) {
                Ok(()) => return Ok(()),
                Err(TrySendError::Full(job)) => (job, None),
                Err(TrySendError::Disconnected(job)) => (job, Some("the log writer has ended")),
            };
            self.stuck |= waited >= LONGEST_WAIT;
            let full = self.limits.on_full == OnFull::Drop || self.stuck;
            let full = full.then_some("too many blocks and notes wait for the disk");
            if let Some(why) = why.or(full)
                && let Job::Records(block, _) = refused
            {
                return Err((block, why));
            }
            if waited.is_zero() {
                self.shared.stalls.fetch_add(1, Ordering::Relaxed);
            }
            let since = clock::monotonic_ns();
            thread::sleep(QUEUE_LOOK);
            let slept_ns = clock::monotonic_ns().saturating_sub(since);
            self.shared.stalled_ns.fetch_add(slept_ns, Ordering::Relaxed);
            waited += Duration::from_nanos(slept_ns);
            job = refused;
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
