//! One connection whose messages keep their boundaries, SCTP or DCCP: puts messages together that come in pieces, and
//! sends those of round-trip flows back.
//!
//! DCCP hands over a packet as UDP does a datagram: what does not fit the buffer is gone. SCTP keeps it for the next
//! read, and may hand over the start of a message before its end has arrived (partial delivery, RFC 6458); the last
//! piece is marked with `MSG_EOR`. So every byte of an SCTP message must be read.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::os::fd::AsFd as _;

use itg_core::flow::Proto;
use itg_socket::clock;
use itg_socket::mmsg::{Datagram, RecvBatch};
use itg_socket::reply;
use socket2::Socket;

use super::stream::Flowing;
use super::table::{Message, Served, Table};
use super::{FULL_BUFFER, Port};

pub(super) struct Connection {
    pub(super) port: Port,
    pub(super) socket: Socket,
    pub(super) from: Option<SocketAddr>,
    pub(super) opened_ns: u64,
    /// Instant from which on it has been known that its flow is over.
    pub(super) left_ns: Option<u64>,
    /// Slot and handle of the flow that it belongs to, once known.
    pub(super) owner: Option<(usize, u32)>,
    begun: Begun,
    back: Backlog,
    /// True once what is sent back has its marks.
    marked: bool,
}

/// The message whose end is still to come.
#[derive(Default)]
struct Begun {
    /// Its first bytes, not more than the longest packet has.
    bytes: Vec<u8>,
    len: usize,
}

impl Begun {
    /// Appends a piece.
    fn push(&mut self, piece: &Datagram<'_>) {
        let room = FULL_BUFFER.saturating_sub(self.bytes.len());
        self.bytes.extend_from_slice(&piece.bytes[..piece.bytes.len().min(room)]);
        self.len += piece.len;
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.len = 0;
    }
}

/// Messages to send back before more is read.
#[derive(Default)]
struct Backlog {
    /// One behind the other.
    bytes: Vec<u8>,
    /// Length of each one, in bytes.
    lens: VecDeque<usize>,
    /// Bytes of those that have gone.
    sent: usize,
}

impl Backlog {
    const fn is_empty(&self) -> bool {
        self.sent == self.bytes.len()
    }

    /// Sends a message back, now or behind those that wait.
    fn push(&mut self, socket: &Socket, message: &[u8]) {
        if self.is_empty() && offer(socket, message) {
            return;
        }
        self.bytes.extend_from_slice(message);
        self.lens.push_back(message.len());
    }

    /// Sends what waits; returns true if all of it has gone.
    fn write(&mut self, socket: &Socket) -> bool {
        while let Some(&len) = self.lens.front() {
            if !offer(socket, &self.bytes[self.sent..][..len]) {
                return false;
            }
            self.sent += len;
            self.lens.pop_front();
        }
        self.bytes.clear();
        self.sent = 0;
        true
    }
}

/// Sends a message; `false` when there is no room for it yet.
fn offer(socket: &Socket, message: &[u8]) -> bool {
    match socket.send_with_flags(message, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) {
        Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
        // A broken connection ends with the next read.
        Err(error) => tracing::debug!(%error, "a packet was not sent back"),
        Ok(_) => {}
    }
    true
}

impl Connection {
    pub(super) fn new(port: Port, socket: Socket, from: Option<SocketAddr>) -> Self {
        let opened_ns = clock::monotonic_ns();
        let (begun, back) = (Begun::default(), Backlog::default());
        let (owner, left_ns) = (None, None);
        Self { port, socket, from, opened_ns, left_ns, owner, begun, back, marked: false }
    }

    /// Returns true if whole messages must be read, not only their first bytes.
    pub(super) fn wants_whole(&self, table: &Table) -> bool {
        self.port.proto == Proto::Sctp || table.reads_whole(self.port)
    }

    /// Returns true while something waits to be sent back.
    pub(super) const fn is_writing(&self) -> bool {
        !self.back.is_empty()
    }

    /// Sends back what waits: to be called when the connection can be written. Returns true if all
    /// has gone, so that more is to be read.
    pub(super) fn write_back(&mut self) -> bool {
        self.back.write(&self.socket)
    }

    /// Reads one batch of messages, and says what to wait for.
    pub(super) fn serve(&mut self, batch: &mut RecvBatch, table: &mut Table) -> (Served, Flowing) {
        let was_writing = self.is_writing();
        if was_writing && !self.write_back() {
            return (Served::NOTHING, Flowing::Same);
        }
        let served = self.read(batch, table);
        let flowing = match (was_writing, self.back.is_empty()) {
            (false, false) => Flowing::Writes,
            (true, true) => Flowing::Reads,
            _ => Flowing::Same,
        };
        (served, flowing)
    }

    fn read(&mut self, batch: &mut RecvBatch, table: &mut Table) -> Served {
        let count = match batch.recv(self.socket.as_fd()) {
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Served::NOTHING,
            Err(_) => return self.over(table),
        };
        let now_ns = clock::monotonic_ns();
        let mut packets = 0;
        for i in 0..count {
            let piece = batch.get(i);
            if piece.len == 0 {
                return self.over(table);
            }
            let whole = self.port.proto != Proto::Sctp || piece.ends_message;
            let (bytes, len) = match (whole, self.begun.len) {
                (true, 0) => (piece.bytes, piece.len),
                _ => {
                    self.begun.push(&piece);
                    (&*self.begun.bytes, self.begun.len)
                }
            };
            if !whole {
                continue;
            }
            if self.owner.is_some_and(|owner| table.owned(owner).is_none()) {
                // Behind the end of its flow.
                self.begun.clear();
                continue;
            }
            let message = Message {
                bytes,
                len,
                segment: 0,
                arrived_ns: piece.arrived_ns,
                ttl: piece.ttl,
                tos: piece.tos,
                from: self.from,
            };
            let (socket, back, marked) = (&self.socket, &mut self.back, &mut self.marked);
            let v6 = self.port.v6;
            let taken = table.message(&message, self.port, now_ns, |bytes, marks| {
                if let Some(marks) = marks.filter(|_| !std::mem::replace(marked, true))
                    && let Err(error) = reply::mark_connection(socket, v6, marks)
                {
                    tracing::debug!(%error, "what is sent back is not marked");
                }
                back.push(socket, bytes);
            });
            packets += taken.packets;
            self.owner = taken.owner.or(self.owner);
            self.begun.clear();
        }
        Served::Some { datagrams: count, packets }
    }

    /// The end of the connection; a message that is cut off by it is no packet.
    fn over(&mut self, table: &mut Table) -> Served {
        if self.begun.len > 0 {
            let (from, bytes) = (self.from, self.begun.len);
            tracing::warn!(?from, bytes, "a data connection ended within a message");
            table.stranger(self.port.id, 1);
        }
        Served::Over
    }
}
