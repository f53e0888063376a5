//! One data connection: finds packets in its bytes, and sends the bytes of round-trip flows back.
//!
//! Of a connection that has not named its flow no more is read than the [`NAME_LEN`] bytes that name it, and
//! nothing is sent back. One that names no flow that is known here is closed.

use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;

use itg_classic::send::HeaderKind;
use itg_classic::wire::StreamPackets;
use itg_core::flow::{Meter, Proto};
use itg_core::header::FRAME_LEN;
use itg_socket::{clock, reply};
use socket2::Socket;

use super::table::{Arrival, Table};
use super::{PacketFormat, Port};
use crate::frames::Frames;

/// Bytes that name the flow of a stream: the length of its first packet, and the handle in that packet.
const NAME_LEN: usize = FRAME_LEN as usize + 4;

pub(super) struct Stream {
    pub(super) socket: Socket,
    pub(super) from: Option<SocketAddr>,
    /// Number of the socket at which its packets are counted when they are of no flow.
    pub(super) listener: usize,
    framing: Framing,
    /// Slot and handle of the flow that the stream belongs to, once known.
    pub(super) owner: Option<(usize, u32)>,
    pub(super) opened_ns: u64,
    /// Instant from which on it has been known that its flow is over.
    pub(super) left_ns: Option<u64>,
    /// First bytes of a stream that has not named its flow yet: length and handle of its first packet.
    first: [u8; NAME_LEN],
    named: usize,
    /// Bytes to send back before more is read.
    pub(super) echo: Vec<u8>,
    pub(super) echoed: usize,
}

/// Framing of packets in the stream.
pub(super) enum Framing {
    Itg(Frames),
    Classic(StreamPackets),
}

impl Framing {
    /// Framing of a connection that was made at a port, and the flow that it is for, where the protocol tells
    /// it before the first packet; `None` if no flow waits for a connection.
    pub(super) fn at(
        port: Port,
        from: Option<SocketAddr>,
        table: &mut Table,
    ) -> Option<(Self, Option<(usize, u32)>)> {
        match port.format {
            PacketFormat::Itg => Some((Self::of(None), None)),
            PacketFormat::Classic => {
                let (owner, kind) = table.claim(port.id, from)?;
                Some((Self::of(Some(kind)), Some(owner)))
            }
        }
    }

    /// Framing of packets of ITG, or of D-ITG with these headers.
    pub(super) fn of(classic: Option<HeaderKind>) -> Self {
        classic.map_or_else(
            || Self::Itg(Frames::default()),
            |kind| Self::Classic(StreamPackets::new(kind)),
        )
    }

    const fn within_packet(&self) -> bool {
        match self {
            Self::Itg(frames) => frames.within_packet(),
            Self::Classic(packets) => packets.within_packet(),
        }
    }
}

/// Consequences of the packets that were read of a stream.
#[derive(Default)]
pub(super) struct StreamEvents {
    /// One belongs to no flow that is known here.
    pub(super) stranger: bool,
    /// The bytes are to be sent back.
    pub(super) send_back: bool,
}

pub(super) enum Flowing {
    Same,
    Reads,
    Writes,
}

impl Stream {
    pub(super) fn new(
        socket: Socket,
        from: Option<SocketAddr>,
        (framing, owner): (Framing, Option<(usize, u32)>),
    ) -> Self {
        let opened_ns = clock::monotonic_ns();
        let (first, named, echo) = ([0; NAME_LEN], 0, Vec::new());
        let (listener, echoed) = (usize::MAX, 0);
        let left_ns = None;
        Self {
            socket,
            from,
            listener,
            framing,
            owner,
            opened_ns,
            left_ns,
            first,
            named,
            echo,
            echoed,
        }
    }

    /// Moves what can be moved; an error ends the stream, silently when it just ended.
    pub(super) fn serve(
        &mut self,
        buffer: &mut [u8],
        table: &mut Table,
    ) -> Result<Flowing, Option<String>> {
        let was_writing = self.is_writing();
        if was_writing && !self.write_back()? {
            return Ok(Flowing::Same);
        }
        let again = if was_writing { Flowing::Reads } else { Flowing::Same };
        if self.owner.is_none() && !self.take_name(table)? {
            return Ok(again);
        }
        let Some(got) = self.read(buffer)? else { return Ok(again) };
        if self.owner.is_some_and(|owner| table.owned(owner).is_none()) {
            // Its packets are nobody else's. To close it now would take back what is on its way there.
            if self.has_sent_back() {
                return Ok(again);
            }
            tracing::info!("{} goes on behind the end of its flow: closed", self.name());
            return Err(None);
        }
        let now_ns = clock::monotonic_ns();
        let read_ns = table.unix.at(now_ns);
        let (from, ttl, tos) = (self.from, 0, 0);
        let arrival = Arrival { size: 0, arrived_ns: None, read_ns, ttl, tos, from };
        let (bytes, owner) = (&buffer[..got], &mut self.owner);
        let taken = match &mut self.framing {
            Framing::Itg(frames) => {
                let slot = owner.map(|(slot, _)| slot);
                table.itg_stream(frames, bytes, slot, &arrival, now_ns)
            }
            Framing::Classic(packets) => {
                table.classic_stream(packets, bytes, owner, &arrival, now_ns)
            }
        };
        let events = taken.map_err(|error| Some(format!("{}: {error}", self.name())))?;
        if events.stranger {
            table.stranger(self.listener, 1);
            return Err(Some(format!("{}: packets of no flow that is known here", self.name())));
        }
        if events.send_back || self.goes_back(table) {
            self.echo.extend_from_slice(&buffer[..got]);
            if !self.write_back()? {
                return Ok(if was_writing { Flowing::Same } else { Flowing::Writes });
            }
        }
        Ok(again)
    }

    /// Reads what has come; `None` when there is nothing yet.
    fn read(&self, buffer: &mut [u8]) -> Result<Option<usize>, Option<String>> {
        match (&self.socket).read(buffer) {
            Ok(0) if self.named > 0 || self.framing.within_packet() => {
                // A flow that is cut short ends so; what is missing shows in its counts.
                tracing::info!("{} ended within a packet", self.name());
                Err(None)
            }
            Ok(0) => Err(None),
            Ok(got) => Ok(Some(got)),
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
            {
                Ok(None)
            }
            Err(error) => Err(Some(format!("{}: {error}", self.name()))),
        }
    }

    /// Reads the bytes that name the flow of the stream, as far as they have come; returns true if
    /// they all have.
    fn take_name(&mut self, table: &mut Table) -> Result<bool, Option<String>> {
        let mut name = self.first;
        let Some(got) = self.read(&mut name[self.named..])? else { return Ok(false) };
        (self.first, self.named) = (name, self.named + got);
        if self.named < NAME_LEN {
            return Ok(false);
        }
        self.named = 0;
        if let Framing::Itg(frames) = &mut self.framing {
            // No packet is as short as that: only the length is judged.
            let judged = frames.take(&name, |_| {});
            judged.map_err(|error| Some(format!("{}: {error}", self.name())))?;
        }
        let [_, _, _, _, handle @ ..] = name;
        let handle = u32::from_le_bytes(handle);
        let slot = table.find(handle, Proto::Tcp, None);
        let Some(slot) = slot.filter(|slot| table.is_from(*slot, self.from, 1)) else {
            table.stranger(self.listener, 1);
            return Err(Some(format!("{}: packets of no flow that is known here", self.name())));
        };
        self.owner = Some((slot, handle));
        if self.goes_back(table) {
            let v6 = self.from.is_some_and(|from| from.is_ipv6());
            if let Some(marks) = table.marks_of(slot)
                && let Err(error) = reply::mark_connection(&self.socket, v6, marks)
            {
                tracing::debug!(%error, "what is sent back is not marked");
            }
            self.echo.extend_from_slice(&name);
        }
        Ok(true)
    }

    /// Returns true if the bytes of the stream are sent back.
    fn goes_back(&self, table: &mut Table) -> bool {
        let flow = self.owner.and_then(|owner| table.owned(owner));
        flow.is_some_and(|flow| flow.rx.meter == Meter::Rtt && flow.rx.replies.is_none())
    }

    /// Returns true while something waits to be sent back.
    pub(super) const fn is_writing(&self) -> bool {
        self.echoed < self.echo.len()
    }

    /// Returns true if packets of the stream have been sent back.
    pub(super) const fn has_sent_back(&self) -> bool {
        self.echo.capacity() > 0
    }

    /// Sends back what waits; returns true if all of it has gone.
    pub(super) fn write_back(&mut self) -> Result<bool, Option<String>> {
        while self.is_writing() {
            match (&self.socket).write(&self.echo[self.echoed..]) {
                Ok(sent) => self.echoed += sent,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(Some(format!("{}: {error}", self.name()))),
            }
        }
        self.echo.clear();
        self.echoed = 0;
        Ok(true)
    }

    pub(super) fn name(&self) -> String {
        self.from.map_or_else(
            || "a data connection".to_owned(),
            |from| format!("the data connection from {from}"),
        )
    }
}
