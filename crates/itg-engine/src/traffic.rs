//! Packets for the sending thread: their due times and payload, by ITG's distributions or by
//! D-ITG's, and their headers, in ITG's form or in D-ITG's.

use std::sync::Arc;

use crate::lease::schedule_from;
use itg_core::flow::{Flow, Proto};
use itg_core::header::{FRAME_LEN, FULL_LEN, PROVEN_LEN, PacketHeader, PacketKey};
use itg_core::pacing::Pacer;
use itg_core::payload::Content;
use itg_core::rate::RateChange;
use itg_core::schedule::{Departure, Together};
use itg_socket::icmp;

use crate::classic::{ClassicForm, ClassicPackets};

/// Longest start of a packet, in front of what it carries: the length in a stream (4) and ITG's header
/// (20), or what ICMP puts before it (8) and ITG's header, or ITG's header and a proof (8).
pub const HEAD_LEN: usize = 28;
const _: () = assert!(HEAD_LEN >= PROVEN_LEN as usize);

/// The packets of a flow.
#[derive(Debug)]
pub struct Traffic {
    id: u32,
    proto: Proto,
    burst: bool,
    packets: Packets,
    form: Form,
}

/// Source of the due times, sizes and payload of packets.
#[derive(Debug)]
enum Packets {
    /// By ITG's distributions.
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

/// Form of the headers of packets.
#[derive(Debug)]
enum Form {
    /// ITG's header, with the number that the receiver gave the flow.
    Itg { handle: u32, key: Option<PacketKey> },
    /// D-ITG's header.
    Classic(ClassicForm),
}

/// Header of a flow's ICMP messages.
#[derive(Clone, Copy, Debug)]
pub struct IcmpHead {
    /// True if messages are ICMPv6.
    pub v6: bool,
    /// Identifier of the echo messages.
    pub identifier: u16,
    /// True if the program computes the checksum.
    pub checksum: bool,
}

/// Source of packets.
trait Source {
    /// Due time of the next packet, in nanoseconds from the flow's start, whatever holds it up;
    /// `None` at the end.
    fn due_ns(&self) -> Option<u64>;
    /// The next packet that must leave at `now_ns` after the flow's start, or, of a flow of ITG, at most
    /// `ahead_ns` later, if any.
    fn take(&mut self, now_ns: u64, ahead_ns: u64) -> Option<Departure>;
}

impl Source for Pacer {
    fn due_ns(&self) -> Option<u64> {
        self.due_ns()
    }

    fn take(&mut self, now_ns: u64, ahead_ns: u64) -> Option<Departure> {
        self.take_ahead(now_ns, ahead_ns)
    }
}

impl Source for ClassicPackets {
    fn due_ns(&self) -> Option<u64> {
        self.next_ns()
    }

    fn take(&mut self, now_ns: u64, _ahead_ns: u64) -> Option<Departure> {
        self.take(now_ns)
    }
}

/// Conditions under which packets may leave together; all in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Share {
    /// Now, from the flow's start.
    pub now_ns: u64,
    /// Time before they are due at which packets are taken.
    pub ahead_ns: u64,
    /// None is taken that is due farther from the first one than this, however late they all are.
    pub tolerance_ns: u64,
    /// No more are taken than these, up to `BATCH` of the socket.
    pub most: usize,
}

fn gather(source: &mut impl Source, share: Share, pending: &mut Vec<Departure>) {
    while pending.len() < share.most {
        let first = pending.first().map(|departure| departure.due_ns);
        let due = source.due_ns();
        let far = |(due, first): (u64, u64)| due.saturating_sub(first) > share.tolerance_ns;
        if due.zip(first).is_some_and(far) {
            return;
        }
        match source.take(share.now_ns, share.ahead_ns) {
            Some(departure) => pending.push(departure),
            None => return,
        }
    }
}

impl Traffic {
    /// The packets of a flow that its receiver knows as `handle`, from the first one on that is due at
    /// `from_ns` (after the flow's start) or later.
    pub fn itg(flow: Flow, handle: u32, content: Arc<Content>, from_ns: u64) -> Self {
        Self::planned(flow, content, Form::Itg { handle, key: None }, from_ns)
    }

    /// The same; datagrams prove with this key, if there is one, where they come from.
    #[must_use]
    pub fn proven(mut self, with: Option<PacketKey>) -> Self {
        if let Form::Itg { key, .. } = &mut self.form {
            *key = with;
        }
        self
    }

    /// The packets of a flow of ITG, for a receiver of D-ITG.
    pub fn itg_for_classic(flow: Flow, content: Arc<Content>, form: ClassicForm) -> Self {
        Self::planned(flow, content, Form::Classic(form), 0)
    }

    fn planned(flow: Flow, content: Arc<Content>, form: Form, from_ns: u64) -> Self {
        let pacer = Pacer::from(&flow, schedule_from(&flow, from_ns));
        let (id, proto, burst) = (flow.spec().id, flow.spec().proto, flow.spec().burst.is_some());
        let packets = Packets::Itg(Box::new(ItgPackets { flow, content, pacer }));
        Self { id, proto, burst, packets, form }
    }

    /// The packets of a flow of D-ITG.
    pub fn classic(packets: ClassicPackets, proto: Proto, form: ClassicForm) -> Self {
        let packets = Packets::Classic(Box::new(packets));
        Self { id: form.flow, proto, burst: false, packets, form: Form::Classic(form) }
    }

    /// Number of the flow.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Transport protocol.
    pub fn proto(&self) -> Proto {
        self.proto
    }

    /// Limit of the flow's length, in nanoseconds.
    pub fn duration_ns(&self) -> Option<u64> {
        match &self.packets {
            Packets::Itg(itg) => itg.flow.spec().stop.duration_ns,
            Packets::Classic(classic) => classic.duration_ns(),
        }
    }

    /// Returns true without inter-departure times: packets leave as fast as the socket takes them,
    /// until the time is over.
    pub fn unpaced(&self) -> bool {
        match &self.packets {
            Packets::Itg(itg) => itg.flow.idt().mean() <= 0.0,
            Packets::Classic(classic) => classic.unpaced(),
        }
    }

    /// Takes a whole burst of equal UDP packets that must leave now, where that is what comes
    /// next and nothing is pending. One that others may share a time with is taken apart.
    pub fn take_burst(&mut self, share: Share, pending: &mut Vec<Departure>) -> Option<Together> {
        let Packets::Itg(itg) = &mut self.packets else { return None };
        if !(self.burst && self.proto == Proto::Udp && pending.is_empty()) {
            return None;
        }
        let burst = itg.pacer.take_burst(share.now_ns, share.most)?;
        let company = |due_ns: u64| {
            due_ns <= share.now_ns.saturating_add(share.ahead_ns)
                && due_ns.saturating_sub(burst.first.due_ns) <= share.tolerance_ns
        };
        if burst.count < share.most && itg.pacer.due_ns().is_some_and(company) {
            pending.extend(burst.packets());
            return None;
        }
        Some(burst)
    }

    /// Takes packets that must leave now.
    pub fn gather(&mut self, share: Share, pending: &mut Vec<Departure>) {
        match &mut self.packets {
            Packets::Itg(itg) => gather(&mut itg.pacer, share, pending),
            Packets::Classic(classic) => gather(&mut **classic, share, pending),
        }
    }

    /// The next packet, where it has been drawn; those of D-ITG are drawn when they are due.
    pub fn peek(&self) -> Option<Departure> {
        match &self.packets {
            Packets::Itg(itg) => itg.pacer.peek(),
            Packets::Classic(_) => None,
        }
    }

    /// Draws the next packets if need be: to be called when nothing waits for it.
    pub fn look_ahead(&mut self) {
        match &mut self.packets {
            Packets::Itg(itg) => itg.pacer.look_ahead(),
            // Draws one packet at a time.
            Packets::Classic(_) => {}
        }
    }

    /// Instant at which the next packet may be taken, in nanoseconds from the flow's start; `None`
    /// at the end.
    pub fn next_ns(&self) -> Option<u64> {
        match &self.packets {
            Packets::Itg(itg) => itg.pacer.next_ns(),
            Packets::Classic(classic) => classic.next_ns(),
        }
    }

    /// Follows other changes of the rate from now on; D-ITG's flows have none.
    pub fn change_rates(&mut self, changes: &[RateChange]) {
        if let Packets::Itg(itg) = &mut self.packets {
            itg.pacer.change_rates(changes);
        }
    }

    /// Returns true if the flow's length in time alone leaves it without another packet.
    pub fn ends_by_time(&self) -> bool {
        matches!(&self.packets, Packets::Itg(itg) if itg.pacer.ends_by_time())
    }

    /// Returns true if packets leave in bursts.
    pub fn burst(&self) -> bool {
        self.burst
    }

    /// Number of the packet after the last one taken or skipped.
    pub fn next_seq(&self) -> u64 {
        match &self.packets {
            Packets::Itg(itg) => itg.pacer.next_seq(),
            Packets::Classic(classic) => classic.next_seq(),
        }
    }

    /// Packets left out because they were late.
    pub fn skipped(&self) -> u64 {
        match &self.packets {
            Packets::Itg(itg) => itg.pacer.skipped(),
            Packets::Classic(_) => 0,
        }
    }

    /// Payload of a packet behind a header of `used` bytes.
    fn carried(&self, packet: &Departure, used: usize) -> &[u8] {
        match &self.packets {
            Packets::Itg(itg) => itg.content.of(self.id, packet.seq, packet.size as usize - used),
            Packets::Classic(classic) => classic.carried(packet, used),
        }
    }

    /// Writes the start of a datagram to `head`; returns it, and what the packet carries.
    ///
    /// # Panics
    /// Panics when `head` is shorter than [`HEAD_LEN`], or the flow has no such packets.
    pub fn datagram<'a>(
        &'a self,
        packet: &Departure,
        stamp_ns: u64,
        head: &'a mut [u8; HEAD_LEN],
    ) -> (&'a [u8], &'a [u8]) {
        let used = match &self.form {
            Form::Itg { handle, key } => {
                let header = head.first_chunk_mut().expect("a head is longer than a header");
                let used = PacketHeader::write(*handle, packet.seq, stamp_ns, packet.size, header);
                match key {
                    None => used,
                    Some(key) => {
                        key.prove(packet.size, head);
                        PROVEN_LEN as usize
                    }
                }
            }
            Form::Classic(form) => form.header(packet, stamp_ns, head),
        };
        (&head[..used], self.carried(packet, used))
    }

    /// Writes the datagrams of a burst one behind the other; `false` when they are of another form, and where they do not
    /// fill `bytes`.
    pub fn put(&self, burst: Together, stamp_ns: u64, bytes: &mut [u8]) -> bool {
        let Together { first, count } = burst;
        let (Packets::Itg(itg), Form::Itg { handle, key: None }) = (&self.packets, &self.form)
        else {
            return false;
        };
        let size = first.size as usize;
        if size < FULL_LEN as usize || Some(bytes.len()) != size.checked_mul(count) {
            return false;
        }
        for (seq, place) in (first.seq..).zip(bytes.chunks_exact_mut(size)) {
            let Some((head, body)) = place.split_first_chunk_mut() else { return false };
            PacketHeader::write(*handle, seq, stamp_ns, first.size, head);
            body.copy_from_slice(itg.content.of(self.id, seq, body.len()));
        }
        true
    }

    /// As [`Traffic::datagram`], an ICMP message.
    ///
    /// # Panics
    /// Panics when `head` is shorter than [`HEAD_LEN`], or the flow has no such packets.
    pub fn message<'a>(
        &'a self,
        packet: &Departure,
        stamp_ns: u64,
        icmp: IcmpHead,
        head: &'a mut [u8; HEAD_LEN],
    ) -> (&'a [u8], &'a [u8]) {
        match &self.form {
            Form::Itg { handle, .. } => {
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
    ///
    /// # Panics
    /// Panics when `head` is shorter than [`HEAD_LEN`], or the flow has no such packets.
    pub fn framed<'a>(
        &'a self,
        packet: &Departure,
        stamp_ns: u64,
        head: &'a mut [u8; HEAD_LEN],
    ) -> (&'a [u8], &'a [u8]) {
        const FRAME: usize = FRAME_LEN as usize;
        let used = match &self.form {
            Form::Itg { handle, .. } => {
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

#[cfg(test)]
mod tests {
    use itg_core::distribution::Distribution;
    use itg_core::flow::FlowSpec;
    use itg_core::seed::RunSeed;
    use itg_socket::mmsg::BATCH;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn datagrams_put_together_are_those_sent_one_by_one(
            size in 12u32..=512, count in 1usize..=64, handle: u32, stamp_ns: u64, skip in 0usize..100,
        ) {
            let mut spec = FlowSpec::new(7);
            spec.size = Distribution::Constant(f64::from(size));
            let flow = Flow::resolve(spec, RunSeed(3)).expect("a flow that can be run");
            let packets: Vec<_> = flow.schedule().skip(skip).take(count).collect();
            let content = Arc::new(Content::random(RunSeed(3)));
            let traffic = Traffic::itg(flow, handle, content, 0);
            let mut bytes = vec![0; count * size as usize];
            let burst = Together { first: packets[0], count };
            let whole = traffic.put(burst, stamp_ns, &mut bytes);
            prop_assert_eq!(whole, size >= 20, "shorter ones carry no time");
            let mut want = Vec::new();
            for packet in &packets {
                let mut head = [0; HEAD_LEN];
                let (head, body) = traffic.datagram(packet, stamp_ns, &mut head);
                want.extend_from_slice(head);
                want.extend_from_slice(body);
            }
            prop_assert!(!whole || bytes == want);
        }
    }

    /// A flow of bursts, and what is taken of it at once: a whole burst, or so many packets one by one.
    fn taken(burst: u32, idt: Distribution, tolerance_ns: u64) -> (Option<usize>, usize) {
        let mut spec = FlowSpec::new(7);
        (spec.idt, spec.size) = (idt, Distribution::Constant(64.0));
        spec.burst = Some(burst);
        let flow = Flow::resolve(spec, RunSeed(3)).expect("a flow that can be run");
        let mut traffic = Traffic::itg(flow, 1, Arc::new(Content::random(RunSeed(3))), 0);
        let share = Share { now_ns: 1_000_000, ahead_ns: 0, tolerance_ns, most: BATCH };
        let mut pending = Vec::new();
        let whole = traffic.take_burst(share, &mut pending);
        if whole.is_none() {
            traffic.gather(share, &mut pending);
        }
        (whole.map(|whole| whole.count), pending.len())
    }

    #[test]
    fn a_burst_stays_whole_unless_others_leave_with_it() {
        let constant = Distribution::Constant;
        for (burst, idt, tolerance_ns, want) in [
            (64, constant(0.0), 0, (Some(64), 0)),
            (8, constant(1000.0), 0, (Some(8), 0)),
            (8, constant(0.0), 0, (None, 64)),
            (8, constant(1000.0), 20_000, (None, 24)),
            (8, Distribution::Exp { mean: 1e3 }, 0, (None, 8)),
        ] {
            assert_eq!(
                taken(burst, idt.clone(), tolerance_ns),
                want,
                "{burst} {idt:?} {tolerance_ns}"
            );
        }
    }
}
