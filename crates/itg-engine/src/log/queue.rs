//! Jobs on their way from the producers of a log to its writer, and the counters that both share.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::sync::{Mutex, PoisonError};

use itg_core::units::format_duration_ns;
use itg_record::{BlockBuf, Note};
use itg_session::logs::{LogCodecError, LogMessage};
use itg_socket::clock;

use super::line::Line;
use crate::clock_pair;

/// Between two notes on the clocks: 1 s.
pub(crate) const CLOCK_EVERY_NS: u64 = 1_000_000_000;

/// Events that the threads of a connection report to the writer; the number names the connection.
pub(crate) enum NetEvent {
    Connected(u64, Line),
    Heard(u64, Result<LogMessage, LogCodecError>),
    Lost(u64, String),
}

/// Requests to the writer.
pub(crate) enum Job {
    Records(BlockBuf, SyncSender<BlockBuf>),
    /// So many records were left out: they use up a block number.
    LeftOut(u32),
    Note(Box<Note>),
    /// Answer with the number of records lost so far.
    Settle(SyncSender<u64>),
    /// The log's file may have been moved away: go on in the one that has its name.
    Reopen,
    /// Something from the log server.
    Heard(NetEvent),
    /// All producers are gone.
    Close,
}

/// Writer of a log that hears nothing from a network.
pub(crate) trait Sink {
    fn records(&mut self, block: BlockBuf, give_back: SyncSender<BlockBuf>);
    /// Records were left out: a block number is used up.
    fn left_out(&mut self);
    fn note(&mut self, note: &Note);
    /// Looks at the time, whenever the clocks have been noted.
    fn settle(&mut self, _now_ns: u64) {}
    /// Opens the log anew by its name, where it has one.
    fn reopen(&mut self) {}
}

/// Takes what producers hand over until they are gone. The clocks are noted from an instant on, now and then, and last.
pub(crate) fn take(
    sink: &mut impl Sink,
    queue: &Receiver<Job>,
    shared: &Shared,
    mut next_clock_ns: u64,
) {
    loop {
        match queue.recv_timeout(clock::ns(CLOCK_EVERY_NS)) {
            Ok(Job::Records(block, give_back)) => sink.records(block, give_back),
            Ok(Job::LeftOut(_)) => sink.left_out(),
            Ok(Job::Note(note)) => sink.note(&note),
            Ok(Job::Settle(answer)) => shared.answer(&answer),
            Ok(Job::Reopen) => sink.reopen(),
            Ok(Job::Heard(_)) | Err(RecvTimeoutError::Timeout) => {}
            Ok(Job::Close) | Err(RecvTimeoutError::Disconnected) => break,
        }
        let now = clock::monotonic_ns();
        if now >= next_clock_ns {
            next_clock_ns = now + CLOCK_EVERY_NS;
            sink.note(&Note::Clock(clock_pair::clock_pair()));
            sink.settle(now);
        }
    }
    sink.note(&Note::Clock(clock_pair::clock_pair()));
}

/// Outcome of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogOutcome {
    /// Place of the log: a file, or a log server and the experiment there.
    pub place: String,
    /// False if the log was to begin with the first flow, and there was none: what was there is as it was.
    pub begun: bool,
    /// Records stored there.
    pub records: u64,
    /// Records that could not be written, those left out included.
    pub lost_records: u64,
    /// Records that producers left out for want of room ([`OnFull::Drop`](super::OnFull::Drop)).
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
        if !self.begun {
            return write!(f, "log {}: not begun, since no flow was open", self.place);
        }
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
    pub(super) left_out_records: AtomicU64,
    pub(super) stalls: AtomicU64,
    pub(super) stalled_ns: AtomicU64,
    error: Mutex<Option<String>>,
}

impl Shared {
    pub(super) fn error(&self) -> Option<String> {
        self.error.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn lost(&self) -> u64 {
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
            begun: true,
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
