//! What the sending thread sends: when the packets of a flow are due, what they begin with and what
//! they carry, in ITG's own form or in D-ITG's.

use std::sync::Arc;

use itg_core::flow::{Flow, Proto};
use itg_core::header::{FRAME_LEN, PacketHeader};
use itg_core::pacing::Pacer;
use itg_core::payload::Content;
use itg_core::schedule::Departure;

use crate::classic::ClassicTraffic;
use crate::icmp;

/// Longest start of a packet, in front of what it carries: the length in a stream (4) and ITG's header
/// (20), or what ICMP puts before it (8) and ITG's header.
pub(crate) const HEAD_LEN: usize = 28;

/// The packets of a flow.
#[derive(Debug)]
pub(crate) enum Traffic {
    /// ITG's.
    Itg(Box<ItgTraffic>),
    /// D-ITG's.
    Classic(Box<ClassicTraffic>),
}

/// A flow of ITG with its place in the schedule.
#[derive(Debug)]
pub(crate) struct ItgTraffic {
    flow: Flow,
    handle: u32,
    content: Arc<Content>,
    pacer: Pacer,
}

/// How a flow's ICMP messages begin.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IcmpHead {
    pub(crate) v6: bool,
    pub(crate) identifier: u16,
    /// Whether the program computes the checksum.
    pub(crate) checksum: bool,
}

impl Traffic {
    /// The packets of a flow that its receiver knows as `handle`.
    pub(crate) fn itg(flow: Flow, handle: u32, content: Arc<Content>) -> Self {
        let pacer = Pacer::new(&flow);
        Self::Itg(Box::new(ItgTraffic { flow, handle, content, pacer }))
    }

    /// Number of the flow.
    pub(crate) fn id(&self) -> u32 {
        match self {
            Self::Itg(itg) => itg.flow.spec().id,
            Self::Classic(classic) => classic.id(),
        }
    }

    pub(crate) fn proto(&self) -> Proto {
        match self {
            Self::Itg(itg) => itg.flow.spec().proto,
            Self::Classic(classic) => classic.proto(),
        }
    }

    /// How long the flow may last, in nanoseconds.
    pub(crate) fn duration_ns(&self) -> Option<u64> {
        match self {
            Self::Itg(itg) => itg.flow.spec().stop.duration_ns,
            Self::Classic(classic) => classic.duration_ns(),
        }
    }

    /// Whether there are no gaps: as fast as the socket takes packets, until the time is over.
    pub(crate) fn unpaced(&self) -> bool {
        match self {
            Self::Itg(itg) => itg.flow.idt().mean() <= 0.0,
            Self::Classic(classic) => classic.unpaced(),
        }
    }

    /// The next packet that must leave at `now_ns` after the flow's start, if any.
    pub(crate) fn take(&mut self, now_ns: u64) -> Option<Departure> {
        match self {
            Self::Itg(itg) => itg.pacer.take(now_ns),
            Self::Classic(classic) => classic.take(now_ns),
        }
    }

    /// When [`Traffic::take`] will next have a packet; `None` at the end.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        match self {
            Self::Itg(itg) => itg.pacer.next_ns(),
            Self::Classic(classic) => classic.next_ns(),
        }
    }

    /// When the next packet is due, whatever holds it up; `None` at the end.
    pub(crate) fn due_ns(&self) -> Option<u64> {
        match self {
            Self::Itg(itg) => itg.pacer.due_ns(),
            Self::Classic(classic) => classic.next_ns(),
        }
    }

    /// Whether packets leave in bursts.
    pub(crate) fn burst(&self) -> bool {
        matches!(self, Self::Itg(itg) if itg.flow.spec().burst.is_some())
    }

    /// Number of the packet after the last one taken or skipped.
    pub(crate) fn next_seq(&self) -> u64 {
        match self {
            Self::Itg(itg) => itg.pacer.next_seq(),
            Self::Classic(classic) => classic.next_seq(),
        }
    }

    /// Packets left out because they were late.
    pub(crate) fn skipped(&self) -> u64 {
        match self {
            Self::Itg(itg) => itg.pacer.skipped(),
            Self::Classic(_) => 0,
        }
    }

    /// Writes the start of a datagram to `head`; returns it, and what the packet carries.
    pub(crate) fn datagram<'a>(
        &'a self,
        packet: &Departure,
        stamp_ns: u64,
        head: &'a mut [u8; HEAD_LEN],
    ) -> (&'a [u8], &'a [u8]) {
        match self {
            Self::Itg(itg) => {
                let header = head.first_chunk_mut().expect("a head is longer than a header");
                let used = itg.header(packet, packet.size, stamp_ns, header);
                (&head[..used], itg.carried(packet, used))
            }
            Self::Classic(classic) => {
                let used = classic.header(packet, stamp_ns, head);
                (&head[..used], classic.carried(packet, used))
            }
        }
    }

    /// The same as an ICMP message.
    pub(crate) fn message<'a>(
        &'a self,
        packet: &Departure,
        stamp_ns: u64,
        icmp: IcmpHead,
        head: &'a mut [u8; HEAD_LEN],
    ) -> (&'a [u8], &'a [u8]) {
        match self {
            Self::Itg(itg) => {
                let (front, header) =
                    head.split_first_chunk_mut::<{ icmp::HEADER_LEN }>().expect("28 bytes");
                let header = header.first_chunk_mut().expect("28 bytes");
                let used = itg.header(packet, packet.size, stamp_ns, header);
                let body = itg.carried(packet, used);
                let over = icmp.checksum.then_some([&header[..used], body]);
                // Only the low bits of the sequence number fit an echo header.
                let sequence = (packet.seq & 0xFFFF) as u16;
                icmp::write_request(front, icmp.v6, icmp.identifier, sequence, over);
                (&head[..icmp::HEADER_LEN + used], body)
            }
            Self::Classic(classic) => {
                let front = icmp::classic_header_len(icmp.v6);
                let used = classic.header(packet, stamp_ns, &mut head[front..]);
                let body = classic.carried(packet, used);
                icmp::write_classic(&mut head[..front + used], icmp.v6, classic.icmp_type(), body);
                (&head[..front + used], body)
            }
        }
    }

    /// Writes the start of a packet in a stream; returns it, and what the packet carries.
    pub(crate) fn framed<'a>(
        &'a self,
        packet: &Departure,
        stamp_ns: u64,
        head: &'a mut [u8; HEAD_LEN],
    ) -> (&'a [u8], &'a [u8]) {
        const FRAME: usize = FRAME_LEN as usize;
        match self {
            Self::Itg(itg) => {
                let (frame, header) = head.split_at_mut(FRAME);
                frame.copy_from_slice(&packet.size.to_le_bytes());
                let header = header.first_chunk_mut().expect("28 bytes");
                let used = FRAME + itg.header(packet, packet.size - FRAME_LEN, stamp_ns, header);
                (&head[..used], itg.carried(packet, used))
            }
            Self::Classic(classic) => {
                let used = classic.header(packet, stamp_ns, head);
                (&head[..used], classic.carried(packet, used))
            }
        }
    }
}

impl ItgTraffic {
    fn header(&self, packet: &Departure, len: u32, stamp_ns: u64, out: &mut [u8; 20]) -> usize {
        PacketHeader::write(self.handle, packet.seq, stamp_ns, len, out)
    }

    fn carried(&self, packet: &Departure, used: usize) -> &[u8] {
        self.content.of(self.flow.spec().id, packet.seq, packet.size as usize - used)
    }
}
