//! Frames of a device that are taken before its network stack: their datagrams count as if they had come to
//! the sockets that they are for.
//!
//! Each port keeps its socket: packets back leave through it, and what the device does not hand over comes
//! to it as ever (fragments, packets of other devices, joined ones).

use std::collections::BTreeMap;
use std::net::SocketAddr;

use itg_core::flow::Proto;
use itg_socket::xdp::{Arrived, FrameInput};
use socket2::Socket;

use super::command::Port;
use super::table::{Message, Table, send_back};

/// Socket that a destination belongs to.
#[derive(Clone, Copy)]
struct Destination {
    /// Its number.
    id: usize,
    /// Its place among the sources.
    place: usize,
}

/// The device, and the destinations whose frames are taken.
pub(super) struct Device {
    input: FrameInput,
    destinations: BTreeMap<SocketAddr, Destination>,
    /// The one of the last frame: most often that of the next one.
    last: Option<(SocketAddr, usize)>,
}

impl Device {
    pub(super) const fn new(input: FrameInput) -> Self {
        Self { input, destinations: BTreeMap::new(), last: None }
    }

    /// Takes frames to a socket from now on; returns their destinations. Joined datagrams come to the socket
    /// alone: as frames they would be apart.
    pub(super) fn take(&self, port: Port, socket: &Socket) -> Vec<SocketAddr> {
        // A connected socket takes packets of one peer alone, which the device does not look at.
        let of_one_peer = port.owner.is_some() || socket.peer_addr().is_ok();
        if port.proto != Proto::Udp || port.joined || of_one_peer {
            return Vec::new();
        }
        let taken = self.input.take(socket);
        if taken.is_empty() {
            tracing::warn!(
                "{}: it has no address that is listened on, packets come through sockets",
                self.input
            );
        }
        taken
    }

    /// Has the datagrams to these destinations count at a socket.
    pub(super) fn serve(&mut self, taken: Vec<SocketAddr>, id: usize, place: usize) {
        self.destinations.extend(taken.into_iter().map(|to| (to, Destination { id, place })));
        self.last = None;
    }

    /// Returns true if frames to a socket are taken.
    pub(super) fn serves(&self, id: usize) -> bool {
        self.destinations.values().any(|destination| destination.id == id)
    }

    /// Takes frames to a socket no more.
    pub(super) fn leave(&mut self, id: usize) {
        self.last = None;
        self.destinations.retain(|to, destination| {
            let stays = destination.id != id;
            if !stays {
                self.input.leave(*to);
            }
            stays
        });
    }

    /// The place of the socket of a destination; `None` of one that has been closed meanwhile.
    #[inline]
    pub(super) fn place(&mut self, to: SocketAddr) -> Option<usize> {
        if let Some((last, place)) = self.last
            && last == to
        {
            return Some(place);
        }
        let place = self.destinations.get(&to)?.place;
        self.last = Some((to, place));
        Some(place)
    }
}

impl Table {
    /// Takes the packet of a frame for a socket; returns the number of packets.
    pub(super) fn frame(
        &mut self,
        frame: &Arrived<'_>,
        (port, socket): (Port, &Socket),
        now_ns: u64,
    ) -> usize {
        let datagram = match frame.datagram {
            Ok(datagram) => datagram,
            Err(why) => {
                tracing::debug!(%why, "a frame is left out");
                self.stranger(port.id, 1);
                return 0;
            }
        };
        let message = Message {
            bytes: datagram.content,
            len: datagram.content.len(),
            segment: 0,
            arrived_ns: frame.arrived_ns.map(|ns| self.unix.at(ns)),
            ttl: datagram.ttl,
            tos: datagram.tos,
            from: Some(datagram.from),
        };
        let back = (datagram.from, datagram.tos);
        let taken = self.message(&message, port, now_ns, |bytes, marks| {
            send_back(socket, bytes, back, marks);
        });
        taken.packets
    }
}
