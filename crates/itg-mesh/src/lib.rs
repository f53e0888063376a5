//! Processes made of layers on real networks: TCP, Unix sockets, UDP.
//!
//! A [`Node`] drives one [`Process`] of [`itg_process`]. One thread reads each connection (and one the
//! datagrams): it carries what comes into the process and sends what the process answers, so that a
//! request and its reply meet no other thread. A caretaker thread has what is left: timers, new
//! connections, and streams that were full.
//!
//! | network | what waits | when it is too much | a broken connection |
//! |---|---|---|---|
//! | `tcp`, `unix` | frames for each process, up to `queue` bytes | the message is refused, the layers are told | loses what is under way; the next message makes a new one, with growing pauses up to 1 s |
//! | `udp` | nothing | refused | – |
//!
//! Frames are those of [`itg_process::frame`]: length limited by `max_body`, CRC-32C. One that fails a
//! check closes its connection, or is dropped when it came as a datagram; both are counted. How
//! processes find each other: [`start_master`], [`start_slave`]; how one finds back that has gone and runs
//! again: [`come_back`]. A process that one task drives, over any byte stream: [`tasks`].

mod control;
mod datagram;
mod frame_reader;
mod housekeeping;
pub mod journal_files;
mod kinds;
mod listeners;
mod master;
mod mesh;
mod outbox;
mod peer;
mod rejoin;
mod shared;
mod slave;
mod stream;
pub mod tasks;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use itg_process::bootstrap::{BootError, Diagnosis, Ticket};
use itg_process::{ConfigError, Counters, Process, StopReason, Time};
use socket2::Socket;

use crate::housekeeping::care;
use crate::listeners::Listeners;
use crate::peer::hang_up;
use crate::shared::{Identity, Shared};
use crate::stream::LINGER;

pub use control::PROCESS_PORT;
pub use itg_process::Report;
use itg_socket::socket::SocketError;
pub use master::{MasterSetup, start_master};
pub use rejoin::{Persist, ReturnSetup, come_back};
pub use shared::{NetworkCounters, Watch};
pub use slave::{Meet, SlaveSetup, start_slave};

/// Time that a process that has stopped has for its last messages.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Reason that processes did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configuration is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A socket cannot be had.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// A host failed at a step.
    #[error(transparent)]
    Bootstrap(#[from] Diagnosis),
    /// The master sends something else than a configuration.
    #[error("the master's application: {0}")]
    Application(#[from] BootError),
    /// The hosts do not fit the number of processes.
    #[error("{0}")]
    Members(String),
    /// The ticket of the next incarnation cannot be written.
    #[error("cannot write the ticket: {0}")]
    Ticket(#[source] std::io::Error),
    /// The system refuses something.
    #[error("the system refuses: {0}")]
    System(#[from] std::io::Error),
}

/// A socket on which a master or a slave is called.
#[derive(Debug)]
pub struct Listener {
    socket: Socket,
    address: SocketAddr,
}

impl Listener {
    /// Listens; port 0 is any.
    ///
    /// # Errors
    /// The address cannot be had.
    pub fn bind(at: SocketAddr) -> Result<Self, SocketError> {
        let (socket, address) = listeners::listener(at)
            .map_err(|error| SocketError::io(format!("listening on {at}"), &error))?;
        Ok(Self { socket, address })
    }

    /// Address that it listens on.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }
}

/// A process that runs on real networks.
pub struct Node {
    shared: Arc<Shared>,
    missing: Vec<u32>,
    addresses: Vec<String>,
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Node").field("missing", &self.missing).finish_non_exhaustive()
    }
}

/// Reaches a process from other threads.
#[derive(Clone)]
pub struct Handle(Arc<Shared>);

impl std::fmt::Debug for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handle").finish_non_exhaustive()
    }
}

impl Handle {
    /// Lets the application do something with its process; `None` when there is no process (any more).
    pub fn with<R>(&self, act: impl FnOnce(&mut Process, Time) -> R) -> Option<R> {
        self.0.act(act)
    }

    /// Stops this process and, through it, all others.
    pub fn stop(&self, why: StopReason) {
        self.with(|process, now| process.stop(now, why));
    }
}

/// End of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Reason of its stop; `None` when it was ended while it ran, or after a layer panicked.
    pub reason: Option<StopReason>,
    /// Its counters.
    pub counters: Counters,
    /// Counters of its networks, in the order of the configuration.
    pub networks: BTreeMap<u8, NetworkCounters>,
}

impl Node {
    /// Opens the listeners; no process runs behind them yet.
    fn open(listeners: &mut Listeners, watch: Option<Watch>) -> std::io::Result<Self> {
        let shared = Shared::new(watch)?;
        let (tcp, unix) = (listeners.tcp.take(), listeners.unix.take());
        if let Some(mut state) = shared.lock() {
            shared.spawn(&mut state, "caretaker", move |shared| care(&shared, tcp, unix));
        }
        let addresses = listeners.addresses.iter().map(ToString::to_string).collect();
        Ok(Self { shared, missing: Vec::new(), addresses })
    }

    /// Puts the process in; what comes is held until it starts.
    fn admit(&self, process: Option<Process>) {
        if let Some(mut state) = self.shared.lock() {
            state.process = process;
            if let Some(socket) = state.datagrams.clone() {
                self.shared.spawn(&mut state, "datagrams", move |shared| {
                    datagram::read(&shared, &socket);
                });
            }
        }
    }

    /// Starts the process.
    fn start(&mut self, missing: Vec<u32>) {
        self.missing = missing;
        self.shared.act(|process, now| process.start(now));
    }

    /// Slots that did not come to the start.
    #[must_use]
    pub fn missing(&self) -> &[u32] {
        &self.missing
    }

    /// Handle by which other threads reach it.
    #[must_use]
    pub fn handle(&self) -> Handle {
        Handle(Arc::clone(&self.shared))
    }

    /// Addresses at which other processes reach it.
    #[must_use]
    pub fn addresses(&self) -> &[String] {
        &self.addresses
    }

    /// Ticket with which this process returns to the run when it has gone and runs again (see
    /// [`come_back`]), with the addresses of the others as they are now.
    #[must_use]
    pub fn ticket(&self) -> Option<Ticket> {
        let state = self.shared.lock()?;
        let Identity { me, incarnation, run, .. } = state.identity?;
        Some(Ticket { run, slot: me.0, incarnation, addresses: state.all_addresses() })
    }

    /// Ends all connections as if the network had: what is under way on them is lost.
    pub fn break_connections(&self) {
        self.shared.each_line(hang_up);
    }

    /// Waits until the process has stopped, at most this long; why it has.
    #[must_use]
    pub fn wait(&self, limit: Duration) -> Option<StopReason> {
        let deadline = Instant::now() + limit;
        let mut state = self.shared.lock()?;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if state.stopped.is_some() || left.is_zero() {
                return state.stopped;
            }
            state = self.shared.wait(state, left)?;
        }
    }

    /// Ends the process: sends what waits (for a second at most when it has stopped), closes all
    /// connections and waits for all threads.
    #[must_use]
    pub fn finish(self) -> Ended {
        let shared = &self.shared;
        let reason = shared.lock().and_then(|state| state.stopped);
        let deadline = Instant::now() + LAST_WORDS;
        while reason.is_some() && !shared.is_flushed() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(2));
        }
        // The other side reads the last words before it sees the end.
        shared.each_line(|socket| {
            if let Err(error) = socket.shutdown(std::net::Shutdown::Write) {
                tracing::trace!(%error, "a connection that has ended");
            }
        });
        let deadline = Instant::now() + LINGER;
        while let Some(state) = shared.lock()
            && state.lines > 0
            && Instant::now() < deadline
        {
            drop(shared.wait(state, deadline.saturating_duration_since(Instant::now())));
        }
        let counters =
            shared.lock().and_then(|state| state.process.as_ref().map(Process::counters));
        let networks = shared.counters();
        drop(self);
        Ended { reason, counters: counters.unwrap_or_default(), networks }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.shared.closing.store(true, Ordering::Relaxed);
        self.shared.ring();
        self.shared.each_line(hang_up);
        self.shared.close_datagrams();
        for thread in self.shared.take_threads() {
            // One that has panicked has said so.
            thread.join().unwrap_or_default();
        }
    }
}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExample;
