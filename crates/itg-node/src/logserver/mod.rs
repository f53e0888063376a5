//! A log server: takes the blocks of many producers over TCP and UDP, stores each exactly once, one
//! file an experiment, and says what is stored and what is missing.
//!
//! Every connection is a task that drives the state machine of [`itg_session::logs`]; every open
//! experiment has a writer thread. The memory for blocks on their way is bounded by the credit that the
//! [`LogBook`] gives; while the disk is full or slow there is none, and producers wait or spool.

mod connection;
mod datagrams;
mod files;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use itg_engine::log::Fsync;
use itg_session::logs::{LogAccount, LogBook, LogLimits, ServerInput, SessionId};
use itg_socket::socket::{SocketError, listen};
use tokio::net::TcpListener;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::watch;
use tokio::task::JoinSet;

use self::connection::Connection;
use self::files::Experiment;
use crate::connection_slots::{ConnectionSlots, SlotLimits};

/// Settings of a log server.
#[derive(Clone, Debug)]
pub struct LogServerOptions {
    /// Address that producers connect to; UDP blocks come to the same port.
    pub listen: SocketAddr,
    /// Directory of the experiments' files; nothing is written outside it.
    pub dir: PathBuf,
    /// Secret that producers must know.
    pub secret: Option<Vec<u8>>,
    /// Bounds on producers and memory.
    pub limits: LogLimits,
    /// Connections of one address at the same time.
    pub max_per_address: usize,
    /// For measurements: the file of an experiment takes no more bytes a second than this.
    pub throttle_bytes_per_s: Option<u64>,
    /// Syncing of the experiments' files; with [`Fsync::Block`] a block is acknowledged when it is safe from
    /// a loss of power.
    pub fsync: Fsync,
}

/// Totals of a log server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogServerOutcome {
    /// Connections that were served.
    pub connections: u64,
    /// Blocks that were stored.
    pub blocks: u64,
    /// Records in them.
    pub records: u64,
}

/// A log server whose sockets are open.
#[derive(Debug)]
pub struct LogServer {
    listener: TcpListener,
    shared: Arc<Shared>,
}

/// Event that others report to a session's task.
enum SessionInput {
    Input(ServerInput),
    /// A block came in a datagram.
    Datagram(Vec<u8>),
    /// The producer shows its data address.
    Bind(ServerInput, SocketAddr),
}

/// The way to a session's task.
#[derive(Debug)]
struct Listener {
    to: UnboundedSender<SessionInput>,
    /// Bytes of datagrams that wait for it.
    queued: Arc<AtomicU64>,
}

/// Connections that are served besides those of the producers that may be there: of producers that
/// register, come back, or are refused. One that has not registered gives way to a newer one.
const MORE_CONNECTIONS: usize = 64;
/// Bytes of datagrams that may wait for all sessions together, in equal parts: 64 MiB.
const MOST_QUEUED: u64 = 64 << 20;
/// Least number of these parts.
const LEAST_PARTS: u64 = 8;

#[derive(Debug)]
struct Shared {
    options: LogServerOptions,
    data_port: u16,
    book: Mutex<LogBook>,
    sessions: Mutex<BTreeMap<SessionId, Listener>>,
    /// Sessions by the token of their data address, and by the address.
    tokens: Mutex<BTreeMap<u64, SessionId>>,
    addresses: Mutex<BTreeMap<SocketAddr, SessionId>>,
    experiments: Mutex<BTreeMap<String, Experiment>>,
    accounts: UnboundedSender<LogAccount>,
    stopping: AtomicBool,
    blocks: AtomicU64,
    records: AtomicU64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl LogServer {
    /// Opens the sockets. Accounts of logs whose producers have left go to `accounts`.
    ///
    /// # Errors
    /// A port that is taken, a directory that is not there: named, with what can be done.
    pub fn bind(
        options: LogServerOptions,
        accounts: UnboundedSender<LogAccount>,
    ) -> Result<Self, SocketError> {
        if !options.dir.is_dir() {
            return Err(SocketError::new(
                format!("--dir {}", options.dir.display()),
                "there is no such directory: create it first",
            ));
        }
        let what = format!("listening for producers on {}", options.listen);
        let fail = |error: std::io::Error| {
            let hint = match error.raw_os_error() {
                Some(libc::EADDRINUSE) => {
                    ": another program uses the port; choose one with --listen"
                }
                _ => "",
            };
            SocketError::new(what.clone(), format!("{error}{hint}"))
        };
        let listener = listen(options.listen).and_then(TcpListener::from_std).map_err(fail)?;
        let at = listener.local_addr().map_err(fail)?;
        let shared = Arc::new(Shared {
            data_port: at.port(),
            book: Mutex::new(LogBook::new(options.limits)),
            options,
            sessions: Mutex::default(),
            tokens: Mutex::default(),
            addresses: Mutex::default(),
            experiments: Mutex::default(),
            accounts,
            stopping: AtomicBool::new(false),
            blocks: AtomicU64::new(0),
            records: AtomicU64::new(0),
        });
        datagrams::start(at, &shared).map_err(fail)?;
        Ok(Self { listener, shared })
    }

    /// Returns the address that producers can connect to.
    ///
    /// # Errors
    /// The system's.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `stop` holds a reason; then stores what has come, and ends.
    pub async fn serve(self, stop: watch::Receiver<Option<String>>) -> LogServerOutcome {
        let shared = self.shared;
        let places = ConnectionSlots::new(SlotLimits {
            total: shared.options.limits.producers.saturating_add(MORE_CONNECTIONS),
            per_address: shared.options.max_per_address,
        });
        let mut connections = JoinSet::new();
        let mut stopped = stop.clone();
        let mut count = 0;
        loop {
            tokio::select! {
                accepted = self.listener.accept() => match accepted {
                    Ok((stream, peer)) => match places.take(peer.ip()) {
                        Ok(place) => {
                            count += 1;
                            let connection = Connection::new(count, Arc::clone(&shared), peer);
                            connections.spawn(connection.run(stream, place, stop.clone()));
                        }
                        Err(why) => {
                            tracing::warn!("{peer} is turned away: {why}");
                            connection::turn_away(&stream, why);
                        }
                    },
                    Err(error) => {
                        tracing::warn!(%error, "a producer's connection was not accepted");
                        tokio::time::sleep(itg_socket::clock::ns(100_000_000)).await;
                    }
                },
                Some(_) = connections.join_next() => {}
                _ = connection::reason_of(&mut stopped) => break,
            }
        }
        shared.stopping.store(true, Ordering::Release);
        while connections.join_next().await.is_some() {}
        let experiments = std::mem::take(&mut *lock(&shared.experiments));
        let closing = tokio::task::spawn_blocking(move || {
            experiments.into_values().for_each(Experiment::close);
        });
        if closing.await.is_err() {
            tracing::error!("closing the files failed on a bug");
        }
        LogServerOutcome {
            connections: count,
            blocks: shared.blocks.load(Ordering::Relaxed),
            records: shared.records.load(Ordering::Relaxed),
        }
    }
}

impl Shared {
    fn stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    fn tell(&self, session: SessionId, told: SessionInput) {
        if let Some(listener) = lock(&self.sessions).get(&session) {
            // A session that has just ended needs to hear nothing more.
            drop(listener.to.send(told));
        }
    }

    /// Hands over a block that came in a datagram, unless too many wait for that session already.
    fn tell_datagram(&self, session: SessionId, bytes: &[u8]) {
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

    fn disk_full(&self) {
        lock(&self.book).disk_full();
    }

    fn disk_free(&self) {
        let waiting = lock(&self.book).disk_free();
        for session in waiting {
            self.tell(session, SessionInput::Input(ServerInput::Woken));
        }
    }

    /// Opens the files of an experiment, unless they are open.
    fn open(self: &Arc<Self>, run: &str) -> Result<(), String> {
        let mut book = lock(&self.book);
        let mut experiments = lock(&self.experiments);
        if experiments.contains_key(run) {
            return Ok(());
        }
        let (experiment, logs) =
            Experiment::open(&self.options.dir, run, self).map_err(|error| error.to_string())?;
        if !book.knows(run) {
            book.restore(run, logs);
        }
        experiments.insert(run.to_owned(), experiment);
        Ok(())
    }

    /// Closes the files of an experiment, unless a session uses it.
    fn close(&self, run: &str) {
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
