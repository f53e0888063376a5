//! A log server: takes the blocks of many producers over TCP and UDP, stores each exactly once, one
//! file an experiment, and says what is stored and what is missing.
//!
//! Every connection is a task that drives the state machine of [`itg_session::logs`]; every open
//! experiment has a writer thread. The memory for blocks on their way is bounded by the credit that the
//! [`LogBook`] gives; while the disk is full or slow there is none, and producers wait or spool.

mod connection;
mod counts;
mod datagrams;
mod files;
mod line;
mod options;
mod shared;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use itg_session::logs::{LogAccount, LogBook, SessionId};
use itg_socket::socket::{SocketError, listen};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::watch;
use tokio::task::JoinSet;

use self::connection::Connection;
use self::counts::Counts;
pub use self::counts::LogServerReading;
use self::files::Experiment;
pub use self::options::LogServerOptions;
use self::shared::Shared;
use crate::connection_slots::{ConnectionSlot, ConnectionSlots, SlotLimits};
use crate::lock::lock;

/// Totals of a log server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogServerOutcome {
    /// Connections that were served.
    pub connections: u64,
    /// Blocks that were stored.
    pub blocks: u64,
    /// Records in them.
    pub records: u64,
    /// Blocks that were not taken, since their log or experiment is full or there was no memory for them.
    pub refused_blocks: u64,
}

/// A log server whose sockets are open.
#[derive(Debug)]
pub struct LogServer {
    listener: TcpListener,
    shared: Arc<Shared>,
}

/// Connections that are served besides those of the producers that may be there: of producers that
/// register, come back, or are refused. One that has not registered gives way to a newer one.
const MORE_CONNECTIONS: usize = 64;
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
            data_port: if options.keys.is_none() { at.port() } else { 0 },
            book: Mutex::new(LogBook::new(options.limits)),
            options,
            sessions: Mutex::default(),
            tokens: Mutex::default(),
            addresses: Mutex::default(),
            experiments: Mutex::default(),
            accounts,
            stopping: AtomicBool::new(false),
            counts: Counts::default(),
        });
        if shared.options.keys.is_none() {
            datagrams::start(at, &shared).map_err(fail)?;
        }
        Ok(Self { listener, shared })
    }

    /// Returns the address that producers can connect to.
    ///
    /// # Errors
    /// The system's.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Opens the files of experiments anew by their names, where they were moved away; returns false once it no longer
    /// serves.
    pub fn reopen_logs(&self) -> impl Fn() -> bool + Send + Sync + 'static {
        let shared = Arc::downgrade(&self.shared);
        move || {
            let shared = shared.upgrade();
            shared
                .map(|shared| lock(&shared.experiments).values().for_each(Experiment::reopen))
                .is_some()
        }
    }

    /// Reads what the server has done so far, as long as it serves; `None` afterwards.
    pub fn watch(&self) -> impl Fn() -> Option<LogServerReading> + Send + Sync + 'static {
        let shared = Arc::downgrade(&self.shared);
        move || Some(shared.upgrade()?.read())
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
                            shared.counts.connected();
                            let serving = serve_one(
                                Arc::clone(&shared),
                                (stream, peer, count),
                                place,
                                stop.clone(),
                            );
                            connections.spawn(serving);
                        }
                        Err(why) => {
                            tracing::warn!("{peer} is turned away: {why}");
                            shared.counts.refused();
                            if shared.options.keys.is_none() {
                                connection::turn_away(&stream, why);
                            }
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
        let LogServerReading { blocks, records, refused_blocks, .. } = shared.read();
        LogServerOutcome { connections: count, blocks, records, refused_blocks }
    }
}

/// Serves a producer, once it has proved who it is where that is asked for.
async fn serve_one(
    shared: Arc<Shared>,
    (stream, peer, id): (TcpStream, SocketAddr, SessionId),
    place: ConnectionSlot,
    mut stop: watch::Receiver<Option<String>>,
) {
    let opened = tokio::select! {
        // A plain connection is open at once, and is told why it has to give way.
        biased;
        opened = line::open(stream, shared.options.keys.as_ref()) => opened,
        () = place.lost() => Err("too many connect: the oldest gives way".to_owned()),
        _ = connection::reason_of(&mut stop) => return,
    };
    match opened {
        Ok(line) => Connection::new(id, shared, peer).run(line, place, stop).await,
        Err(why) => {
            tracing::warn!("{peer} is turned away: {why}");
            shared.counts.refused();
        }
    }
}
