//! One data connection: finds packets in its bytes, and sends the bytes of round-trip flows back.

use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;

use itg_classic::send::HeaderKind;
use itg_classic::wire::StreamPackets;
use itg_core::flow::{Meter, Proto};
use socket2::Socket;

use super::table::{Arrival, Table};
use crate::clock;
use crate::frames::Frames;

pub(super) struct Stream {
    pub(super) socket: Socket,
    pub(super) from: Option<SocketAddr>,
    pub(super) framing: Framing,
    /// Slot and handle of the flow that the stream belongs to, once known.
    pub(super) owner: Option<(usize, u32)>,
    pub(super) opened_ns: u64,
    /// Bytes to send back before more is read.
    pub(super) echo: Vec<u8>,
    pub(super) echoed: usize,
}

/// How packets are found in the stream.
pub(super) enum Framing {
    Itg(Frames),
    Classic(StreamPackets),
}

impl Framing {
    const fn within_packet(&self) -> bool {
        match self {
            Self::Itg(frames) => frames.within_packet(),
            Self::Classic(packets) => packets.within_packet(),
        }
    }
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
        owner: Option<(usize, u32)>,
        classic: Option<HeaderKind>,
    ) -> Self {
        let opened_ns = clock::monotonic_ns();
        let framing = classic.map_or_else(
            || Framing::Itg(Frames::default()),
            |kind| Framing::Classic(StreamPackets::new(kind)),
        );
        Self { socket, from, framing, owner, opened_ns, echo: Vec::new(), echoed: 0 }
    }

    /// A stream of packets of D-ITG with these headers.
    pub(super) fn classic(self, owner: (usize, u32), kind: HeaderKind) -> Self {
        let framing = Framing::Classic(StreamPackets::new(kind));
        Self { owner: Some(owner), framing, ..self }
    }

    /// Moves what can be moved; an error ends the stream, silently when it just ended.
    pub(super) fn serve(
        &mut self,
        buffer: &mut [u8],
        table: &mut Table,
    ) -> Result<Flowing, Option<String>> {
        let was_writing = self.echoed < self.echo.len();
        if was_writing && !self.write_back()? {
            return Ok(Flowing::Same);
        }
        let got = match (&self.socket).read(buffer) {
            Ok(0) if self.framing.within_packet() => {
                // A flow that is cut short ends so; what is missing shows in its counts.
                tracing::info!("{} ended within a packet", self.name());
                return Err(None);
            }
            Ok(0) => return Err(None),
            Ok(got) => got,
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
            {
                return Ok(if was_writing { Flowing::Reads } else { Flowing::Same });
            }
            Err(error) => return Err(Some(format!("{}: {error}", self.name()))),
        };
        let now_ns = clock::monotonic_ns();
        let read_ns = table.unix.at(now_ns);
        let (from, owner) = (self.from, &mut self.owner);
        let mut stranger = false;
        let mut send_back = false;
        let (ttl, tos) = (0, 0);
        let result = match &mut self.framing {
            Framing::Itg(frames) => frames
                .take(&buffer[..got], |size, header| {
                    let arrival = Arrival { size, arrived_ns: None, read_ns, ttl, tos, from };
                    match table.find(&header, Proto::Tcp, owner.map(|(slot, _)| slot)) {
                        Some(slot) => {
                            *owner = Some((slot, header.handle));
                            send_back |= table.arrived(slot, &header, &arrival, 1, now_ns);
                        }
                        None => stranger = true,
                    }
                })
                .map_err(|error| error.to_string()),
            Framing::Classic(packets) => {
                let mut bytes = &buffer[..got];
                loop {
                    match packets.next(&mut bytes) {
                        Ok(None) => break Ok(()),
                        Ok(Some(packet)) => {
                            let size = packet.size;
                            let arrival =
                                Arrival { size, arrived_ns: None, read_ns, ttl, tos, from };
                            match table.classic_stream(packet, owner, &arrival) {
                                Some((slot, header)) => {
                                    send_back |= table.arrived(slot, &header, &arrival, 1, now_ns);
                                }
                                None => stranger = true,
                            }
                        }
                        Err(error) => break Err(error.to_string()),
                    }
                }
            }
        };
        result.map_err(|error| Some(format!("{}: {error}", self.name())))?;
        if stranger {
            table.foreign += 1;
            return Err(Some(format!("{}: packets of no flow that is known here", self.name())));
        }
        // Whether bytes go back is known with the first whole packet; the start of it then goes too.
        let back = send_back
            || self
                .owner
                .and_then(|owner| table.owned(owner))
                .is_some_and(|flow| flow.rx.meter == Meter::Rtt && flow.rx.replies.is_none());
        if back || self.owner.is_none() {
            self.echo.extend_from_slice(&buffer[..got]);
        }
        if back && !self.write_back()? {
            return Ok(if was_writing { Flowing::Same } else { Flowing::Writes });
        }
        if !back && self.owner.is_some() {
            self.echo.clear();
        }
        Ok(if was_writing { Flowing::Reads } else { Flowing::Same })
    }

    /// Sends back what waits; whether all of it has gone.
    pub(super) fn write_back(&mut self) -> Result<bool, Option<String>> {
        while self.echoed < self.echo.len() {
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
