//! State that a process keeps of another one on one network.

use std::io::IoSlice;
use std::net::{Shutdown, SocketAddr};
use std::sync::Arc;

use itg_process::{MS, SECOND, Time};
use socket2::{SockAddr, Socket};

use crate::listeners::Address;
use crate::outbox::{Flushed, Outbox};

/// Nanoseconds before the next attempt to connect, after the first failure and at most.
const BACKOFF: (u64, u64) = (20 * MS, SECOND);
/// Connections from one process that are read at a time.
const MOST_LINES: usize = 4;

/// A connection.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) id: u64,
    pub(crate) incarnation: u64,
    pub(crate) socket: Arc<Socket>,
}

/// Result of writing to another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    /// It has left, or nothing was there.
    All,
    /// The rest waits until the stream takes it.
    Blocked,
    /// There is no connection, and what waits needs one.
    NoLine,
}

/// The other process.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) address: Option<SockAddr>,
    pub(crate) ip: Option<SocketAddr>,
    pub(crate) outbox: Outbox,
    /// Connections that are read; the first one is written to.
    lines: Vec<Connection>,
    pub(crate) dialing: bool,
    not_before: Time,
    backoff: u64,
    /// The highest that was heard of.
    incarnation: u64,
    /// True while the caretaker waits until the stream takes more.
    pub(crate) blocked: bool,
    /// True while it is on the list of those to be written to.
    pub(crate) dirty: bool,
}

impl Peer {
    pub(crate) const fn new(queue: usize) -> Self {
        Self {
            address: None,
            ip: None,
            outbox: Outbox::new(queue),
            lines: Vec::new(),
            dialing: false,
            not_before: Time::ZERO,
            backoff: BACKOFF.0,
            incarnation: 0,
            blocked: false,
            dirty: false,
        }
    }

    /// Sets its address.
    ///
    /// # Errors
    /// A name that is too long for the system.
    pub(crate) fn locate(&mut self, address: &Address) -> std::io::Result<()> {
        self.address = Some(address.socket_address()?);
        self.ip = address.ip();
        Ok(())
    }

    pub(crate) fn line(&self) -> Option<&Arc<Socket>> {
        self.lines.first().map(|line| &line.socket)
    }

    pub(crate) fn lines(&self) -> &[Connection] {
        &self.lines
    }

    /// Returns true if a message may wait for it: there is a connection, or there can be one.
    pub(crate) fn is_reachable(&self, now: Time) -> bool {
        !self.lines.is_empty() || self.dialing || (self.address.is_some() && now >= self.not_before)
    }

    /// Returns true if messages of this incarnation count, and notes the highest one.
    pub(crate) fn hears(&mut self, incarnation: u64) -> bool {
        let counts = incarnation >= self.incarnation;
        self.incarnation = self.incarnation.max(incarnation);
        counts
    }

    /// The incarnation that counts.
    pub(crate) const fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// A new incarnation begins: connections of the older ones end, and it can be connected to at
    /// once. What waits was for the one before.
    pub(crate) fn begin_incarnation(&mut self, incarnation: u64) {
        self.incarnation = self.incarnation.max(incarnation);
        for line in std::mem::take(&mut self.lines) {
            hang_up(&line.socket);
        }
        self.blocked = false;
        (self.backoff, self.not_before) = (BACKOFF.0, Time::ZERO);
    }

    /// A connection stands; lines of older incarnations end. `false` when there are too many, or it is
    /// from an older one itself.
    pub(crate) fn add(&mut self, line: Connection) -> bool {
        if !self.hears(line.incarnation) {
            return false;
        }
        let newest = self.incarnation;
        let mut first_goes = false;
        let mut at = 0;
        self.lines.retain(|old| {
            let stays = old.incarnation == newest;
            first_goes |= at == 0 && !stays;
            at += 1;
            if !stays {
                hang_up(&old.socket);
            }
            stays
        });
        if first_goes {
            self.outbox.restart();
        }
        if self.lines.len() >= MOST_LINES {
            return false;
        }
        self.lines.push(line);
        (self.backoff, self.not_before) = (BACKOFF.0, Time::ZERO);
        true
    }

    /// A connection has ended.
    pub(crate) fn remove(&mut self, id: u64) {
        if self.lines.first().is_some_and(|line| line.id == id) {
            self.outbox.restart();
            self.blocked = false;
        }
        self.lines.retain(|line| line.id != id);
    }

    /// It could not be reached.
    pub(crate) fn failed(&mut self, now: Time) {
        self.dialing = false;
        self.not_before = now.after(self.backoff);
        self.backoff = (2 * self.backoff).min(BACKOFF.1);
    }

    /// Writes what waits.
    pub(crate) fn flush(&mut self) -> Written {
        self.dirty = false;
        loop {
            if self.outbox.is_empty() {
                self.blocked = false;
                return Written::All;
            }
            let Some(line) = self.lines.first() else { return Written::NoLine };
            let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
            let write = |slices: &[IoSlice<'_>]| match slices {
                [one] => line.socket.send_with_flags(one, flags),
                many => line.socket.send_vectored_with_flags(many, flags),
            };
            match self.outbox.flush(write) {
                Ok(Flushed::All) => {}
                Ok(Flushed::Blocked) => {
                    self.blocked = true;
                    return Written::Blocked;
                }
                Err(error) => {
                    tracing::debug!(%error, "writing to a process");
                    // The thread that reads it sees the end, too.
                    hang_up(&line.socket);
                    self.remove(self.lines[0].id);
                }
            }
        }
    }
}

/// Ends a connection; one that has ended already is no news.
pub(crate) fn hang_up(socket: &Socket) {
    if let Err(error) = socket.shutdown(Shutdown::Both) {
        tracing::trace!(%error, "a connection that has ended");
    }
}
