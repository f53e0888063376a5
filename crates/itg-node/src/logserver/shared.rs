//! State that the connections of a log server share.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use itg_session::logs::{LogAccount, LogBook, ServerInput, SessionId};
use itg_socket::clock;
use tokio::sync::mpsc::UnboundedSender;

use super::counts::Counts;
use super::files::Experiment;
use super::options::LogServerOptions;
use crate::lock::lock;

/// Bytes of datagrams that may wait for all sessions together, in equal parts: 64 MiB.
const MOST_QUEUED: u64 = 64 << 20;
/// Least number of these parts.
const LEAST_PARTS: u64 = 8;
/// Longest wait for a file that somebody else has: 2 s. A producer that is refused then tries again.
const BUSY_NS: u64 = 2_000_000_000;
/// Interval between two looks at it: 10 ms.
const BUSY_LOOK_NS: u64 = 10_000_000;

/// Event that others report to a session's task.
pub(super) enum SessionInput {
    Input(ServerInput),
    /// A block came in a datagram.
    Datagram(Vec<u8>),
    /// The producer shows its data address.
    Bind(ServerInput, SocketAddr),
}

/// The way to a session's task.
#[derive(Debug)]
pub(super) struct Listener {
    pub(super) to: UnboundedSender<SessionInput>,
    /// Bytes of datagrams that wait for it.
    pub(super) queued: Arc<AtomicU64>,
}

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) options: LogServerOptions,
    pub(super) data_port: u16,
    pub(super) book: Mutex<LogBook>,
    pub(super) sessions: Mutex<BTreeMap<SessionId, Listener>>,
    /// Sessions by the token of their data address, and by the address.
    pub(super) tokens: Mutex<BTreeMap<u64, SessionId>>,
    pub(super) addresses: Mutex<BTreeMap<SocketAddr, SessionId>>,
    pub(super) experiments: Mutex<BTreeMap<String, Experiment>>,
    pub(super) accounts: UnboundedSender<LogAccount>,
    pub(super) stopping: AtomicBool,
    pub(super) counts: Counts,
}

impl Shared {
    pub(super) fn stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    pub(super) fn tell(&self, session: SessionId, told: SessionInput) {
        if let Some(listener) = lock(&self.sessions).get(&session) {
            // A session that has just ended needs to hear nothing more.
            drop(listener.to.send(told));
        }
    }

    /// Hands over a block that came in a datagram, unless too many wait for that session already.
    pub(super) fn tell_datagram(&self, session: SessionId, bytes: &[u8]) {
        let sessions = lock(&self.sessions);
        let Some(listener) = sessions.get(&session) else { return };
        let part = MOST_QUEUED / LEAST_PARTS.max(sessions.len() as u64);
        let len = bytes.len() as u64;
        // A block that is dropped here shows as missing in the log.
        if listener.queued.load(Ordering::Relaxed).saturating_add(len) <= part {
            listener.queued.fetch_add(len, Ordering::Relaxed);
            drop(listener.to.send(SessionInput::Datagram(bytes.to_vec())));
        }
    }

    pub(super) fn disk_full(&self) {
        lock(&self.book).disk_full();
    }

    pub(super) fn disk_free(&self) {
        let waiting = lock(&self.book).disk_free();
        for session in waiting {
            self.tell(session, SessionInput::Input(ServerInput::Woken));
        }
    }

    /// Opens the files of an experiment, unless they are open; may wait for those who have them, as its own writer
    /// that is closing them.
    pub(super) fn open(self: &Arc<Self>, run: &str) -> Result<(), String> {
        let until_ns = clock::monotonic_ns() + BUSY_NS;
        loop {
            match self.open_now(run) {
                Err(error)
                    if error.kind() == io::ErrorKind::ResourceBusy
                        && clock::monotonic_ns() < until_ns =>
                {
                    clock::sleep_until(clock::monotonic_ns() + BUSY_LOOK_NS);
                }
                opened => return opened.map_err(|error| error.to_string()),
            }
        }
    }

    fn open_now(self: &Arc<Self>, run: &str) -> io::Result<()> {
        let mut book = lock(&self.book);
        let mut experiments = lock(&self.experiments);
        if experiments.contains_key(run) {
            return Ok(());
        }
        let (experiment, logs) = Experiment::open(&self.options.dir, run, self)?;
        if !book.knows(run) {
            book.restore(run, logs);
        }
        experiments.insert(run.to_owned(), experiment);
        Ok(())
    }

    /// Closes the files of an experiment, unless a session uses it.
    pub(super) fn close(&self, run: &str) {
        let idle = {
            let mut book = lock(&self.book);
            if !book.forget(run) {
                return;
            }
            lock(&self.experiments).remove(run)
        };
        if let Some(experiment) = idle {
            experiment.close();
        }
    }
}
