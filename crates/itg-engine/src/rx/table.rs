//! The table of flows: finds the flow of a packet, counts, logs, introduces and retires flows.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use itg_core::flow::{Meter, Proto};
use itg_core::header::PacketHeader;
use itg_core::payload_check::PayloadCheck;
use itg_record::{FlowEnd, FlowInfo, Note, ReceivedPacket, Record, flag};
use itg_session::{Arrivals, FlowCounts, FlowMeasure, FlowTotals, MoreCounts};
use itg_socket::UdpErrors;
use itg_socket::clock;
use itg_socket::icmp;
use itg_socket::mmsg::RecvBatch;
use itg_socket::reply::{self, ReplyMarks};
use itg_socket::socket::{icmp_type, plain};
use socket2::Socket;

use super::classic::Places;
use super::closed::{Closed, ClosedFlows, Naming};
use super::origin::{Awaited, Origins, Sender};
use super::{Drain, PacketFormat, Port, RxEnded, RxFlow};
use crate::clock_pair::UnixClock;
use crate::live::FlowLive;
use crate::log::Producer;

/// Step of this host's clock that leaves the times of replies as they are, in nanoseconds.
const CLOCK_SET_NS: u64 = 1_000_000_000;

pub(super) struct Flow {
    pub(super) rx: RxFlow,
    pub(super) arrivals: Arrivals,
    /// Records of its packets for its log: one for those of a burst.
    pub(super) records: u64,
    pub(super) last_ns: u64,
    /// Instant at which it was opened.
    pub(super) since_ns: u64,
    pub(super) introduced: bool,
    pub(super) drops_before: u32,
    pub(super) foreign_before: u64,
    pub(super) stream_over: bool,
    /// Sources of its packets.
    pub(super) origins: Origins,
    /// Packets that came from another port of its sender's address; none have where there is nothing.
    pub(super) rebound: Option<Box<Arrivals>>,
    /// True once a data connection has been taken for it.
    pub(super) connected: bool,
    pub(super) ending: Option<Ending>,
}

impl Flow {
    /// Counts of what has arrived of it and of what was lost within this host.
    pub(super) fn counts(&self, lost: &HostLoss) -> FlowCounts {
        FlowCounts {
            flow: self.rx.flow,
            packets: self.arrivals.packets(),
            bytes: self.arrivals.bytes(),
            unique: self.arrivals.unique(),
            socket_drops: lost.socket_drops,
            foreign: lost.foreign,
            log_lost_records: 0,
            more: MoreCounts {
                missing: Some(self.arrivals.missing()),
                checksum_drops: lost.checksum_drops,
                corrupted: self.rx.check.as_ref().and_then(PayloadCheck::corrupted),
                rebound: self.rebound(),
            },
        }
    }
}

impl Flow {
    /// Different packets that came from another port of its sender's address; D-ITG's name no flow for sure.
    pub(super) fn rebound(&self) -> Option<u64> {
        let count = self.rebound.as_ref().map_or(0, |rebound| rebound.unique());
        self.rx.classic.is_none().then_some(count)
    }
}

pub(super) struct Ending {
    pub(super) totals: Option<FlowTotals>,
    pub(super) drain: Drain,
    pub(super) since_ns: u64,
    pub(super) udp_errors: Option<UdpErrors>,
    pub(super) done: Box<dyn FnOnce(RxEnded) + Send>,
}

pub(super) struct LogSlot {
    pub(super) producer: Producer,
    /// The next index of a flow in the log.
    pub(super) indices: Arc<AtomicU32>,
}

/// Packets of a flow's time that were lost within this host, or were not its own.
#[derive(Default)]
pub(super) struct HostLoss {
    /// At the flow's socket, since it was full.
    pub(super) socket_drops: Option<u64>,
    /// There, since their checksum was wrong.
    pub(super) checksum_drops: Option<u64>,
    /// At all sockets.
    pub(super) udp_errors: Option<UdpErrors>,
    /// Foreign packets at the flow's socket: of no flow, or not from the sender of the flow that
    /// they name.
    pub(super) foreign: u64,
}

impl HostLoss {
    /// Drops at the flow's socket, by the errors of all sockets in its time.
    pub(super) fn of(drops: Option<u64>, errors: Option<UdpErrors>, foreign: u64) -> Self {
        let by_reason = drops.zip(errors).map(|(drops, errors)| errors.of_socket(drops));
        Self {
            socket_drops: by_reason.map_or(drops, |split| split.map(|split| split.full)),
            checksum_drops: by_reason.flatten().map(|split| split.checksum),
            udp_errors: errors,
            foreign,
        }
    }
}

/// Facts about the arrival of one packet.
#[derive(Clone, Copy)]
pub(super) struct Arrival {
    pub(super) size: u32,
    pub(super) arrived_ns: Option<u64>,
    pub(super) read_ns: u64,
    pub(super) ttl: u8,
    pub(super) tos: u8,
    pub(super) from: Option<SocketAddr>,
}

/// A datagram or a message of a connection, perhaps only its first bytes.
#[derive(Clone, Copy)]
pub(super) struct Message<'a> {
    pub(super) bytes: &'a [u8],
    /// Its whole length.
    pub(super) len: usize,
    /// See [`itg_socket::mmsg::Datagram::segment`].
    pub(super) segment: usize,
    pub(super) arrived_ns: Option<u64>,
    pub(super) ttl: u8,
    pub(super) tos: u8,
    pub(super) from: Option<SocketAddr>,
}

/// The packets of a message that belong to a flow.
pub(super) struct Recognised {
    pub(super) packets: usize,
    /// Slot and handle of the flow of the last one.
    pub(super) owner: Option<(usize, u32)>,
}

/// State that a packet may change.
pub(super) struct Table {
    pub(super) flows: Vec<Option<Flow>>,
    pub(super) closed: ClosedFlows,
    pub(super) classic: Places,
    pub(super) logs: Vec<Option<LogSlot>>,
    pub(super) unix: UnixClock,
    /// Addresses from which packets of any flow may come.
    pub(super) allowed: Box<[IpAddr]>,
    pub(super) awaited: Awaited,
    /// Packets and connections of no flow, by the socket where they came.
    pub(super) foreign: BTreeMap<usize, u64>,
    /// All of them.
    pub(super) foreign_total: Arc<AtomicU64>,
    pub(super) round_trips: usize,
    pub(super) draining: usize,
    /// Flows whose packets prove where they come from.
    pub(super) proofs: usize,
    /// Flows whose payloads are compared.
    pub(super) checks: usize,
    pub(super) connections: usize,
}

pub(super) enum Served {
    Some { datagrams: usize, packets: usize },
    Over,
}

impl Served {
    pub(super) const NOTHING: Self = Self::Some { datagrams: 0, packets: 0 };
}

/// Packets at the start of a message.
pub(super) struct Decoded {
    /// Slot of their flow, and the header of the first of them in ITG's terms; `None` if they belong to no flow.
    pub(super) flow: Option<(usize, PacketHeader)>,
    pub(super) count: usize,
    /// Length of each in bytes.
    pub(super) size: u32,
    /// Bytes of the message that they take, of those that are here.
    pub(super) taken: usize,
}

/// The message within one of ICMP; `None` for those of other programs.
fn within_icmp<'a>(message: Message<'a>, port: Port, with_ip: bool) -> Option<Message<'a>> {
    let replies = port.owner.is_some();
    let found = match port.format {
        PacketFormat::Itg => {
            let wanted = match (replies, port.v6) {
                (true, false) => icmp_type::ECHO_REPLY_V4,
                (true, true) => icmp_type::ECHO_REPLY_V6,
                (false, false) => icmp_type::ECHO_V4,
                (false, true) => icmp_type::ECHO_V6,
            };
            icmp::packet(message.bytes, with_ip, wanted)
        }
        PacketFormat::Classic => icmp::classic_packet(message.bytes, port.v6, replies),
    }?;
    let (ttl, tos) = if with_ip { (found.ttl, found.tos) } else { (message.ttl, message.tos) };
    let len = message.len.saturating_sub(found.overhead);
    Some(Message { bytes: found.packet, len, ttl, tos, ..message })
}

impl Table {
    /// Reads one batch of datagrams.
    pub(super) fn datagrams(
        &mut self,
        socket: &Socket,
        batch: &mut RecvBatch,
        port: Port,
    ) -> Served {
        let Port { proto, v6, .. } = port;
        let count = match batch.recv(socket.as_fd()) {
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Served::NOTHING,
            // What a reply socket hears of unreachable peers; the sender counts it already.
            Err(error) => {
                tracing::debug!(%error, "reading packets");
                return Served::NOTHING;
            }
        };
        let now_ns = clock::monotonic_ns();
        let mut packets = 0;
        for i in 0..count {
            let datagram = batch.get(i);
            let mut message = Message {
                bytes: datagram.bytes,
                len: datagram.len,
                segment: datagram.segment,
                arrived_ns: datagram.arrived_ns,
                ttl: datagram.ttl,
                tos: datagram.tos,
                from: datagram.source.map(plain),
            };
            if proto == Proto::Icmp {
                // A ping socket delivers the message without the IP header.
                let with_ip = !v6 && socket.r#type().is_ok_and(|t| t == socket2::Type::RAW);
                let Some(inner) = within_icmp(message, port, with_ip) else { continue };
                message = inner;
            }
            let taken = self.message(&message, port, now_ns, |bytes, marks| {
                // The address family of the answer is the question's: the same socket sends it.
                if let Some(from) = datagram.source.filter(|_| proto != Proto::Icmp) {
                    send_back(socket, bytes, (from, datagram.tos), marks);
                }
            });
            packets += taken.packets;
        }
        Served::Some { datagrams: count, packets }
    }

    /// Takes the packets of one message, mostly a single one; calls `back` with what must be sent back and its marks.
    pub(super) fn message(
        &mut self,
        message: &Message<'_>,
        port: Port,
        now_ns: u64,
        mut back: impl FnMut(&[u8], Option<ReplyMarks>),
    ) -> Recognised {
        let Message { bytes, arrived_ns, ttl, tos, from, .. } = *message;
        let read_ns = self.unix.at(now_ns);
        let mut recognised = Recognised { packets: 0, owner: None };
        let mut rest = bytes;
        if bytes.is_empty() {
            self.stranger(port.id, 1);
        }
        while !rest.is_empty() {
            let Decoded { flow, count, size, taken } = match port.format {
                PacketFormat::Itg => self.itg_packets(rest, message, port),
                PacketFormat::Classic => self.classic_packet(rest, message, port, read_ns),
            };
            rest = &rest[taken..];
            let Some((slot, header)) = flow else {
                // Raw ICMP sockets see the echoes of all programs.
                if port.proto != Proto::Icmp {
                    self.stranger(port.id, count);
                }
                continue;
            };
            recognised.packets += count;
            recognised.owner = Some((slot, header.handle));
            let arrival = Arrival { size, arrived_ns, read_ns, ttl, tos, from };
            if self.arrived(slot, &header, &arrival, count, now_ns) {
                back(bytes, self.marks_of(slot));
            }
        }
        recognised
    }

    /// Marks of what is sent back of the flow of a slot.
    pub(super) fn marks_of(&self, slot: usize) -> Option<ReplyMarks> {
        self.flows.get(slot).and_then(Option::as_ref).and_then(|flow| flow.rx.marks)
    }

    /// The comparison of payloads of the flow of a slot.
    pub(super) fn check_of(&mut self, slot: usize) -> Option<&mut PayloadCheck> {
        self.flows.get_mut(slot)?.as_mut()?.rx.check.as_mut()
    }

    /// Returns true if messages there are read to their ends: they may be sent back, or are compared.
    pub(super) const fn reads_whole(&self, port: Port) -> bool {
        (self.round_trips > 0 || self.checks > 0) && port.owner.is_none()
    }

    /// The flow of a slot, if it is still the one with this handle.
    pub(super) fn owned(&mut self, (slot, handle): (usize, u32)) -> Option<&mut Flow> {
        self.flows.get_mut(slot)?.as_mut().filter(|flow| flow.rx.handle == handle)
    }

    /// The slot of the flow that packets with this handle belong to.
    pub(super) fn find(&self, handle: u32, proto: Proto, owner: Option<usize>) -> Option<usize> {
        let slot = owner.unwrap_or((handle & 0xFFFF) as usize);
        let flow = self.flows.get(slot)?.as_ref()?;
        (flow.rx.handle == handle && flow.rx.proto == proto).then_some(slot)
    }

    /// Returns true if packets that name the flow of a slot come from its sender; if not, their
    /// source is remembered at the flow. The first ones set the source that all others must have.
    #[inline]
    pub(super) fn is_from(
        &mut self,
        slot: usize,
        from: Option<SocketAddr>,
        packets: usize,
    ) -> bool {
        let Some(flow) = self.flows.get_mut(slot).and_then(Option::as_mut) else { return false };
        match flow.origins.judge(from, &self.allowed) {
            Sender::Known => true,
            Sender::New => {
                self.awaited.came(&flow.rx, &mut flow.origins, from);
                from.into_iter().for_each(|from| flow.rx.live.came_from(from));
                true
            }
            Sender::Rebound | Sender::Stranger => {
                flow.origins.remember(from);
                // Packets of no flow are not counted there: others' echoes come, too.
                if flow.rx.proto == Proto::Icmp {
                    let socket = flow.rx.socket.unwrap_or(usize::MAX);
                    self.stranger(socket, packets);
                }
                false
            }
        }
    }

    /// Takes packets that [`Table::is_from`] has refused; returns true if they came from another port of their sender's
    /// address.
    #[cold]
    pub(super) fn is_rebound(&mut self, slot: usize, came: &Naming<'_>) -> bool {
        let Some(flow) = self.flows.get_mut(slot).and_then(Option::as_mut) else { return false };
        let its = flow.origins.judge(came.from, &self.allowed) == Sender::Rebound;
        if its {
            let rebound = flow.rebound.get_or_insert_default();
            rebound.count(came.header.seq, came.packets, came.size);
        }
        its
    }

    /// Returns true if a connection from there may belong to a flow.
    pub(super) fn awaits(&self, proto: Proto, from: SocketAddr) -> bool {
        self.awaited.from(proto, from.ip()) || self.allowed.contains(&from.ip())
    }

    /// Counts packets, or a connection, of no flow at a socket.
    #[cold]
    pub(super) fn stranger(&mut self, socket: usize, count: usize) {
        let count = count as u64;
        if let Some(foreign) = self.foreign.get_mut(&socket) {
            *foreign += count;
        }
        self.foreign_total.fetch_add(count, Ordering::Relaxed);
    }

    /// Foreign packets that have come to a flow's socket in its time.
    pub(super) fn foreign_since(&self, flow: &Flow) -> u64 {
        self.foreign_at(flow.rx.socket).saturating_sub(flow.foreign_before)
    }

    /// Packets of no flow that have come to a socket.
    pub(super) fn foreign_at(&self, socket: Option<usize>) -> u64 {
        socket.and_then(|socket| self.foreign.get(&socket)).copied().unwrap_or(0)
    }

    /// Counts and logs packets: the one with this header and those behind it in its run, `packets` in
    /// all. Whether it must be sent back.
    pub(super) fn arrived(
        &mut self,
        slot: usize,
        header: &PacketHeader,
        arrival: &Arrival,
        packets: usize,
        now_ns: u64,
    ) -> bool {
        let Some(flow) = self.flows.get_mut(slot).and_then(Option::as_mut) else { return false };
        let bytes = packets as u64 * u64::from(arrival.size);
        flow.arrivals.count(header.seq, packets, arrival.size);
        flow.last_ns = now_ns;
        flow.rx.live.received(packets as u64, bytes, &flow.arrivals, now_ns);
        let stamp = arrival.arrived_ns.unwrap_or(arrival.read_ns);
        // The two stamps are from clocks read at different places; the read cannot come first.
        let read_ns = arrival.read_ns.max(stamp);
        // A reply carries the time that we gave to its packet, whatever its sender wrote over it.
        let may_be = |sent_ns: &u64| {
            let age_ns = now_ns.saturating_sub(flow.since_ns).saturating_add(CLOCK_SET_NS);
            let since = stamp.saturating_sub(age_ns);
            (since..=stamp.saturating_add(CLOCK_SET_NS)).contains(sent_ns)
        };
        let sent_ns = header.sent_ns.filter(|ns| flow.rx.replies.is_none() || may_be(ns));
        if let Some(measuring) = &mut flow.rx.measuring {
            measuring.arrived(u32::try_from(packets).unwrap_or(u32::MAX), sent_ns, stamp);
        }
        let (size, sent_ns) = (arrival.size, sent_ns.unwrap_or(0));
        if let Some(log) = flow.rx.log.and_then(|id| self.logs.get_mut(id)).and_then(Option::as_mut)
        {
            let (seq, ttl, tos) = (header.seq, arrival.ttl, arrival.tos);
            let mut record = match (flow.rx.replies, &mut flow.rx.introduction) {
                (Some(index), _) => Record::echoed(ReceivedPacket {
                    flow: index,
                    seq,
                    size,
                    sent_ns,
                    arrived_ns: stamp,
                    read_ns,
                    ttl,
                    tos,
                }),
                (None, Some(info)) => {
                    if !flow.introduced {
                        introduce(log, info, arrival.from);
                        flow.introduced = true;
                    }
                    Record::received(ReceivedPacket {
                        flow: info.index,
                        seq,
                        size,
                        sent_ns,
                        arrived_ns: stamp,
                        read_ns,
                        ttl,
                        tos,
                    })
                }
                (None, None) => return false,
            };
            if arrival.arrived_ns.is_none() {
                record.flags |= flag::USER_STAMP;
            }
            log.producer.push_run(&record, packets, now_ns);
            flow.records += 1;
        }
        flow.rx.meter == Meter::Rtt && flow.rx.replies.is_none()
    }

    pub(super) fn start(&mut self, slot: usize, epoch_unix_ns: u64, ahead_ns: Option<i64>) {
        let Some(flow) = self.flows.get_mut(slot).and_then(Option::as_mut) else { return };
        if let Some(info) = &mut flow.rx.introduction {
            info.epoch_unix_ns = epoch_unix_ns.saturating_add(info.spec.start_ns);
        }
        if let (Some(measuring), Some(ahead_ns)) = (&mut flow.rx.measuring, ahead_ns) {
            measuring.expect_around(ahead_ns);
        }
    }

    /// The measure so far of the flow that has these counters.
    pub(super) fn measure(&self, slot: usize, live: &Arc<FlowLive>) -> Option<Box<FlowMeasure>> {
        let flow = self.flows.get(slot)?.as_ref()?;
        let measuring = flow.rx.measuring.as_ref().filter(|_| Arc::ptr_eq(&flow.rx.live, live))?;
        Some(Box::new(measuring.finish(flow.rx.flow, flow.arrivals.reordered())))
    }

    /// Writes the last word on a flow into its log; returns the number of its records that are not
    /// in there.
    pub(super) fn retire(
        &mut self,
        mut flow: Flow,
        totals: Option<&FlowTotals>,
        lost: HostLoss,
        reason: String,
    ) -> u64 {
        let mut log_lost_records = 0;
        self.round_trips -= usize::from(flow.rx.meter == Meter::Rtt || flow.rx.replies.is_some());
        self.proofs -= usize::from(flow.rx.key.is_some());
        self.checks -= usize::from(flow.rx.check.is_some());
        self.classic.close(&flow.rx);
        self.awaited.came(&flow.rx, &mut flow.origins, None);
        self.awaited.tidy();
        flow.rx.live.end();
        let (mut told, rebound) = (None, flow.rebound());
        if let Some(info) = &mut flow.rx.introduction
            && let Some(log) =
                flow.rx.log.and_then(|id| self.logs.get_mut(id)).and_then(Option::as_mut)
        {
            if !flow.introduced {
                introduce(log, info, None);
            }
            log_lost_records = log.producer.missing_of(info.index);
            let end = FlowEnd {
                sent_packets: totals.map(|t| t.packets),
                sent_bytes: totals.map(|t| t.bytes),
                skipped_packets: totals.map(|t| t.skipped),
                refused_packets: totals.map(|t| t.failed),
                received_packets: Some(flow.arrivals.packets()),
                received_unique: Some(flow.arrivals.unique()),
                received_bytes: Some(flow.arrivals.bytes()),
                corrupted_packets: flow.rx.check.as_ref().and_then(PayloadCheck::corrupted),
                log_lost_records,
                socket_drops: lost.socket_drops,
                checksum_drops: lost.checksum_drops,
                buffer_errors: lost.udp_errors.map(|errors| errors.full),
                checksum_errors: lost.udp_errors.map(|errors| errors.checksum).filter(|n| *n > 0),
                receive_buffer: flow.rx.receive_buffer,
                foreign_packets: Some(lost.foreign),
                rebound,
                ..FlowEnd::new(info.index, reason)
            };
            log.producer.note(Note::FlowEnd(end.clone()));
            told = flow.rx.log.map(|log| (log, end));
        }
        if flow.rx.replies.is_none() && flow.rx.classic.is_none() {
            self.keep(flow, told);
        }
        log_lost_records
    }

    /// Keeps a flow that has been counted, for packets that come too late.
    fn keep(&mut self, flow: Flow, told: Option<(usize, FlowEnd)>) {
        let RxFlow { slot, handle, proto, flow: number, key, .. } = flow.rx;
        let Flow { origins, arrivals, .. } = flow;
        let counted = arrivals.unique();
        let closed = Closed { handle, proto, flow: number, key, origins, arrivals, counted, told };
        let forgotten = self.closed.keep(slot, closed);
        self.tell_again(forgotten);
    }

    /// Forgets the counted flow of a slot, which gets another one.
    pub(super) fn forget(&mut self, slot: usize) {
        let forgotten = self.closed.forget(slot);
        self.tell_again(forgotten);
    }

    /// Forgets the counted flows of a log, and the log, or all of them.
    pub(super) fn close_log(&mut self, id: Option<usize>) {
        let forgotten = self.closed.forget_all(id);
        self.tell_again(forgotten);
        if let Some(log) = id.and_then(|id| self.logs.get_mut(id)) {
            *log = None;
        }
    }

    /// Tells the ends of flows again that got packets too late.
    fn tell_again(&mut self, forgotten: impl IntoIterator<Item = Closed>) {
        let (mut flows, mut packets) = (Vec::new(), 0_u64);
        for closed in forgotten.into_iter().filter(|closed| closed.too_late() > 0) {
            let count = closed.too_late();
            flows.push(closed.flow);
            packets = packets.saturating_add(count);
            if let Some((id, end)) = closed.told
                && let Some(Some(log)) = self.logs.get_mut(id)
            {
                log.producer.note(Note::FlowEnd(FlowEnd { too_late: Some(count), ..end }));
            }
        }
        let Some(&flow) = flows.first() else { return };
        let more = flows.len() - 1;
        let more = if more == 0 { String::new() } else { format!(" and {more} others") };
        tracing::warn!(
            "flow {flow}{more}: {packets} packets came when it had been counted, and are told as lost: --drain waits longer"
        );
    }
}

/// Sends a packet back to where it came from, with that traffic class.
pub(super) fn send_back(
    socket: &Socket,
    bytes: &[u8],
    (from, tos): (SocketAddr, u8),
    marks: Option<ReplyMarks>,
) {
    let sent = match marks {
        Some(marks) => reply::send_back(socket.as_fd(), bytes, from, tos, marks),
        None => socket.send_to(bytes, &from.into()).map(drop),
    };
    if let Err(error) = sent {
        tracing::debug!(%error, "a packet was not sent back");
    }
}

/// Describes a flow in the log, before its first record.
fn introduce(log: &mut LogSlot, info: &mut FlowInfo, from: Option<SocketAddr>) {
    info.index = log.indices.fetch_add(1, Ordering::Relaxed);
    if let Some(from) = from {
        info.src = from.to_string();
    }
    log.producer.note_with_block(Note::Flow(info.clone()));
}
