//! What the sending thread sends: when the packets of a flow are due and what they carry, by ITG's
//! laws or by D-ITG's, and what they begin with, in ITG's form or in D-ITG's.

use std::sync::Arc;

use itg_core::flow::{Flow, Proto};
use itg_core::header::{FRAME_LEN, PacketHeader};
use itg_core::pacing::Pacer;
use itg_core::payload::Content;
use itg_core::schedule::Departure;

use crate::classic::{ClassicForm, ClassicPackets};
use crate::icmp;
use crate::orders::schedule_from;

/// Longest start of a packet, in front of what it carries: the length in a stream (4) and ITG's header
/// (20), or what ICMP puts before it (8) and ITG's header.
pub(crate) const HEAD_LEN: usize = 28;

/// The packets of a flow.
#[derive(Debug)]
pub(crate) struct Traffic {
    id: u32,
    proto: Proto,
    packets: Packets,
    form: Form,
}

/// When packets leave, how large they are, and what they carry.
#[derive(Debug)]
enum Packets {
    /// By ITG's laws.
    Itg(Box<ItgPackets>),
    /// As D-ITG draws them.
    Classic(Box<ClassicPackets>),
}

/// A flow of ITG with its place in the schedule.
#[derive(Debug)]
struct ItgPackets {
    flow: Flow,
    content: Arc<Content>,
    pacer: Pacer,
}

/// What packets begin with.
#[derive(Debug)]
enum Form {
    /// ITG's header, with the number that the receiver gave the flow.
    Itg { handle: u32 },
    /// D-ITG's header.
    Classic(ClassicForm),
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
    /// The packets of a flow that its receiver knows as `handle`, from the first one on that is due at
    /// `from_ns` (after the flow's start) or later.
    pub(crate) fn itg(flow: Flow, handle: u32, content: Arc<Content>, from_ns: u64) -> Self {
        Self::planned(flow, content, Form::Itg { handle }, from_ns)
    }

    /// The packets of a flow of ITG, for a receiver of D-ITG.
    pub(crate) fn itg_for_classic(flow: Flow, content: Arc<Content>, form: ClassicForm) -> Self {
        Self::planned(flow, content, Form::Classic(form), 0)
    }

    fn planned(flow: Flow, content: Arc<Content>, form: Form, from_ns: u64) -> Self {
        let pacer = Pacer::from(&flow, schedule_from(&flow, from_ns));
        let (id, proto) = (flow.spec().id, flow.spec().proto);
        let packets = Packets::Itg(Box::new(ItgPackets { flow, content, pacer }));
        Self { id, proto, packets, form }
    }

    /// The packets of a flow of D-ITG.
    pub(crate) fn classic(packets: ClassicPackets, proto: Proto, form: ClassicForm) -> Self {
        let packets = Packets::Classic(Box::new(packets));
        Self { id: form.flow, proto, packets, form: Form::Classic(form) }
    }

    /// Number of the flow.
    pub(crate) fn id(&self) -> u32 {
        self.id
    }

    pub(crate) fn proto(&self) -> Proto {
        self.proto
    }

    /// How long the flow may last, in nanoseconds.
    pub(crate) fn duration_ns(&self) -> Option<u64> {
        match &self.packets {
            Packets::Itg(itg) => itg.flow.spec().stop.duration_ns,
            Packets::Classic(classic) => classic.duration_ns(),
        }
    }

    /// Whether there are no gaps: as fast as the socket takes packets, until the time is over.
    pub(crate) fn unpaced(&self) -> bool {
        match &self.packets {
            Packets::Itg(itg) => itg.flow.idt().mean() <= 0.0,
            Packets::Classic(classic) => classic.unpaced(),
        }
    }

    /// The next packet that must leave at `now_ns` after the flow's start, if any.
    pub(crate) fn take(&mut self, now_ns: u64) -> Option<Departure> {
        match &mut self.packets {
            Packets::Itg(itg) => itg.pacer.take(now_ns),
            Packets::Classic(classic) => classic.take(now_ns),
        }
    }

    /// When [`Traffic::take`] will next have a packet; `None` at the end.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        match &self.packets {
            Packets::Itg(itg) => itg.pacer.next_ns(),
            Packets::Classic(classic) => classic.next_ns(),
        }
    }

    /// When the next packet is due, whatever holds it up; `None` at the end.
    pub(crate) fn due_ns(&self) -> Option<u64> {
        match &self.packets {
            Packets::Itg(itg) => itg.pacer.due_ns(),
            Packets::Classic(classic) => classic.next_ns(),
        }
    }

    /// Whether packets leave in bursts.
    pub(crate) fn burst(&self) -> bool {
        matches!(&self.packets, Packets::Itg(itg) if itg.flow.spec().burst.is_some())
    }

    /// Number of the packet after the last one taken or skipped.
    pub(crate) fn next_seq(&self) -> u64 {
        match &self.packets {
            Packets::Itg(itg) => itg.pacer.next_seq(),
            Packets::Classic(classic) => classic.next_seq(),
        }
    }

    /// Packets left out because they were late.
    pub(crate) fn skipped(&self) -> u64 {
        match &self.packets {
            Packets::Itg(itg) => itg.pacer.skipped(),
            Packets::Classic(_) => 0,
        }
    }

    /// What a packet carries behind a header of `used` bytes.
    fn carried(&self, packet: &Departure, used: usize) -> &[u8] {
        match &self.packets {
            Packets::Itg(itg) => itg.content.of(self.id, packet.seq, packet.size as usize - used),
            Packets::Classic(classic) => classic.carried(packet, used),
        }
    }

    /// Writes the start of a datagram to `head`; returns it, and what the packet carries.
    pub(crate) fn datagram<'a>(
        &'a self,
        packet: &Departure,
        stamp_ns: u64,
        head: &'a mut [u8; HEAD_LEN],
    ) -> (&'a [u8], &'a [u8]) {
        let used = match &self.form {
            Form::Itg { handle } => {
                let header = head.first_chunk_mut().expect("a head is longer than a header");
                PacketHeader::write(*handle, packet.seq, stamp_ns, packet.size, header)
            }
            Form::Classic(form) => form.header(packet, stamp_ns, head),
        };
        (&head[..used], self.carried(packet, used))
    }

    /// The same as an ICMP message.
    pub(crate) fn message<'a>(
        &'a self,
        packet: &Departure,
        stamp_ns: u64,
        icmp: IcmpHead,
        head: &'a mut [u8; HEAD_LEN],
    ) -> (&'a [u8], &'a [u8]) {
        match &self.form {
            Form::Itg { handle } => {
                let (front, header) =
                    head.split_first_chunk_mut::<{ icmp::HEADER_LEN }>().expect("28 bytes");
                let header = header.first_chunk_mut().expect("28 bytes");
                let used = PacketHeader::write(*handle, packet.seq, stamp_ns, packet.size, header);
                let body = self.carried(packet, used);
                let over = icmp.checksum.then_some([&header[..used], body]);
                // Only the low bits of the sequence number fit an echo header.
                let sequence = (packet.seq & 0xFFFF) as u16;
                icmp::write_request(front, icmp.v6, icmp.identifier, sequence, over);
                (&head[..icmp::HEADER_LEN + used], body)
            }
            Form::Classic(form) => {
                let front = icmp::classic_header_len(icmp.v6);
                let used = form.header(packet, stamp_ns, &mut head[front..]);
                let body = self.carried(packet, used);
                icmp::write_classic(&mut head[..front + used], icmp.v6, form.icmp_type, body);
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
        let used = match &self.form {
            Form::Itg { handle } => {
                let (frame, header) = head.split_at_mut(FRAME);
                frame.copy_from_slice(&packet.size.to_le_bytes());
                let header = header.first_chunk_mut().expect("28 bytes");
                let len = packet.size - FRAME_LEN;
                FRAME + PacketHeader::write(*handle, packet.seq, stamp_ns, len, header)
            }
            Form::Classic(form) => form.header(packet, stamp_ns, head),
        };
        (&head[..used], self.carried(packet, used))
    }
}
