//! Packets of ITG: which flow they belong to, whether they prove it, and how many come in one piece.

use itg_core::flow::Proto;
use itg_core::header::PacketHeader;
use itg_core::payload_check::PayloadCheck;
use itg_record::MAX_RUN;

use super::Port;
use super::closed::Naming;
use super::stream::StreamEvents;
use super::table::{Arrival, Decoded, Message, Table};
use crate::frames::{Frames, Passing};

/// Packets of one flow with successive numbers that have everything else in common.
struct Run {
    header: PacketHeader,
    size: usize,
    packets: usize,
}

/// The packets at the start of joined datagrams of `segment` bytes each, the last one possibly shorter,
/// and the bytes they take; `None` when the first is no packet.
fn run_of(joined: &[u8], segment: usize) -> (Option<Run>, usize) {
    let mut parts = joined.chunks(segment);
    let Some(first) = parts.next() else { return (None, joined.len()) };
    let Some(header) = PacketHeader::parse(first) else { return (None, first.len()) };
    let follows = |packets: usize, part: &[u8]| {
        let seq = header.seq.wrapping_add(packets as u64);
        part.len() == first.len()
            && PacketHeader::parse(part) == Some(PacketHeader { seq, ..header })
    };
    let mut packets = 1;
    while packets < MAX_RUN && parts.next().is_some_and(|part| follows(packets, part)) {
        packets += 1;
    }
    (Some(Run { header, size: first.len(), packets }), packets * first.len())
}

impl Table {
    /// The packets at the start of a message: one, or a run of a burst.
    #[inline]
    pub(super) fn itg_packets(
        &mut self,
        rest: &[u8],
        message: &Message<'_>,
        port: Port,
    ) -> Decoded {
        let (mut run, mut taken) = match message.segment {
            0 => (None, rest.len()),
            segment => run_of(rest, segment),
        };
        if let Some(run) = run.as_mut().filter(|_| self.proofs > 0) {
            taken = self.shorten_to_proven(run, rest);
        }
        // Only the first bytes of a packet may be here.
        let size = run.as_ref().map_or(message.len, |run| run.size);
        let size = u32::try_from(size).unwrap_or(u32::MAX);
        let count = run.as_ref().map_or(1, |run| run.packets);
        let header = match run {
            Some(run) => Some(run.header),
            None => PacketHeader::parse(&rest[..taken]),
        };
        // Packets of a flow that do not count for it.
        let mut its = false;
        let flow = header.and_then(|header| {
            let (proto, from, packets) = (port.proto, message.from, count);
            let came = || Naming { header, proto, bytes: &rest[..taken], size, packets, from };
            let Some(slot) = self.find(header.handle, proto, port.owner) else {
                its = port.owner.is_none() && self.closed.take(&came(), &self.allowed);
                return None;
            };
            if !self.proves(slot, &rest[..taken], size) {
                return None;
            }
            if self.is_from(slot, from, count) {
                return Some((slot, header));
            }
            its = self.is_rebound(slot, &came());
            None
        });
        if self.checks > 0
            && let Some((slot, header)) = &flow
            && let Some(check) = self.check_of(*slot)
        {
            check.packets(header.seq, count, size as usize, &rest[..taken]);
        }
        // Those that are too late, or came another way, are nobody else's.
        Decoded { flow, count: if its { 0 } else { count }, size, taken }
    }

    /// Takes the packets in the next bytes of a stream.
    pub(super) fn itg_stream(
        &mut self,
        frames: &mut Frames,
        bytes: &[u8],
        owner: Option<usize>,
        arrival: &Arrival,
        now_ns: u64,
    ) -> Result<StreamEvents, String> {
        let mut events = StreamEvents::default();
        let taken = frames.take(bytes, |passing| match passing {
            Passing::Bytes { .. } if self.checks == 0 => {}
            Passing::Bytes { size, header, left, bytes } => {
                let slot = self.find(header.handle, Proto::Tcp, owner);
                if let Some(check) = slot.and_then(|slot| self.check_of(slot)) {
                    check.piece(header.seq, size, left, bytes);
                }
            }
            Passing::Packet { size, header } => match self.find(header.handle, Proto::Tcp, owner) {
                Some(slot) => {
                    let arrival = Arrival { size, ..*arrival };
                    self.check_of(slot).into_iter().for_each(PayloadCheck::passed);
                    events.send_back |= self.arrived(slot, &header, &arrival, 1, now_ns);
                }
                None => events.stranger = true,
            },
        });
        taken.map(|()| events).map_err(|error| error.to_string())
    }

    /// Returns true if a packet of the flow of a slot, the first one here, proves where it comes from, or need not.
    #[inline]
    fn proves(&self, slot: usize, packet: &[u8], len: u32) -> bool {
        let key = self.flows.get(slot).and_then(Option::as_ref).and_then(|f| f.rx.key.as_ref());
        key.is_none_or(|key| key.holds(packet, len))
    }

    /// Shortens a run to the packets at its start that prove themselves alike; returns the bytes that they take.
    fn shorten_to_proven(&self, run: &mut Run, joined: &[u8]) -> usize {
        let slot = (run.header.handle & 0xFFFF) as usize;
        let len = u32::try_from(run.size).unwrap_or(u32::MAX);
        let mut packets = joined.chunks(run.size.max(1)).take(run.packets);
        if packets.next().is_some_and(|first| self.proves(slot, first, len)) {
            run.packets = 1 + packets.take_while(|packet| self.proves(slot, packet, len)).count();
        } else {
            run.packets = 1;
        }
        run.packets * run.size
    }
}
