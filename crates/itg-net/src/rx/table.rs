//! The table of flows: finds the flow of a packet, counts, logs, introduces and retires flows.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use itg_core::flow::{Meter, Proto};
use itg_core::header::PacketHeader;
use itg_record::{FlowEnd, FlowInfo, MAX_RUN, Note, Record, flag};
use itg_session::{FlowCounts, FlowTotals};
use socket2::Socket;

use super::classic::Places;
use super::{Drain, Port, RxFlow};
use crate::clock::{self, UnixClock};
use crate::icmp;
use crate::log::Producer;
use crate::mmsg::RecvBatch;
use crate::socket::{icmp_type, plain};
use crate::window::Window;

pub(super) struct Flow {
    pub(super) rx: RxFlow,
    pub(super) window: Window,
    pub(super) packets: u64,
    pub(super) bytes: u64,
    pub(super) unique: u64,
    pub(super) last_ns: u64,
    pub(super) introduced: bool,
    pub(super) drops_before: u32,
    pub(super) foreign_before: u64,
    pub(super) stream_over: bool,
    /// Where its packets come from, of D-ITG's flows: learned from the first one.
    pub(super) source: Option<SocketAddr>,
    /// Whether a data connection has been taken for it.
    pub(super) connected: bool,
    pub(super) ending: Option<Ending>,
}

pub(super) struct Ending {
    pub(super) totals: Option<FlowTotals>,
    pub(super) drain: Drain,
    pub(super) since_ns: u64,
    pub(super) buffer_errors: Option<u64>,
    pub(super) done: Box<dyn FnOnce(FlowCounts) + Send>,
}

pub(super) struct LogSlot {
    pub(super) producer: Producer,
    /// The next index of a flow in the log.
    pub(super) indices: Arc<AtomicU32>,
}

/// Packets of a flow's time that were lost within this host.
#[derive(Default)]
pub(super) struct HostLoss {
    /// At the flow's socket.
    pub(super) socket_drops: Option<u64>,
    /// At all sockets.
    pub(super) buffer_errors: Option<u64>,
}

/// What was told about one packet.
pub(super) struct Arrival {
    pub(super) size: u32,
    pub(super) arrived_ns: Option<u64>,
    pub(super) read_ns: u64,
    pub(super) ttl: u8,
    pub(super) tos: u8,
    pub(super) from: Option<SocketAddr>,
}

/// What a packet may change.
pub(super) struct Table {
    pub(super) flows: Vec<Option<Flow>>,
    pub(super) classic: Places,
    pub(super) logs: Vec<Option<LogSlot>>,
    pub(super) unix: UnixClock,
    pub(super) foreign: u64,
    pub(super) round_trips: usize,
    pub(super) draining: usize,
    pub(super) connections: usize,
}

pub(super) enum Served {
    Some { datagrams: usize, packets: usize },
    Over,
}

impl Served {
    const NOTHING: Self = Self::Some { datagrams: 0, packets: 0 };
}

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
    /// Reads one batch of datagrams.
    pub(super) fn datagrams(
        &mut self,
        socket: &Socket,
        batch: &mut RecvBatch,
        port: Port,
    ) -> Served {
        let Port { proto, v6, owner, .. } = port;
        let count = match batch.recv(socket.as_fd()) {
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Served::NOTHING,
            // What a reply socket hears of unreachable peers; the sender counts it already.
            Err(error) if matches!(proto, Proto::Udp | Proto::Icmp) => {
                tracing::debug!(%error, "reading packets");
                return Served::NOTHING;
            }
            Err(_) => return Served::Over,
        };
        let now_ns = clock::monotonic_ns();
        let read_ns = self.unix.at(now_ns);
        let mut packets = 0;
        for i in 0..count {
            let datagram = batch.get(i);
            if datagram.len == 0 && matches!(proto, Proto::Sctp | Proto::Dccp) {
                return Served::Over;
            }
            let (mut bytes, mut len, mut ttl, mut tos) =
                (datagram.bytes, datagram.len, datagram.ttl, datagram.tos);
            if proto == Proto::Icmp {
                let wanted = match (owner.is_some(), v6) {
                    (true, false) => icmp_type::ECHO_REPLY_V4,
                    (true, true) => icmp_type::ECHO_REPLY_V6,
                    (false, false) => icmp_type::ECHO_V4,
                    (false, true) => icmp_type::ECHO_V6,
                };
                // A ping socket delivers the message without the IP header.
                let with_ip = !v6 && socket.r#type().is_ok_and(|t| t == socket2::Type::RAW);
                let found = if port.classic {
                    icmp::classic_packet(bytes, v6, owner.is_some())
                } else {
                    icmp::packet(bytes, with_ip, wanted)
                };
                let Some(found) = found else { continue };
                bytes = found.packet;
                len = len.saturating_sub(found.overhead);
                if with_ip {
                    (ttl, tos) = (found.ttl, found.tos);
                }
            }
            let (arrived_ns, from) = (datagram.arrived_ns, datagram.source.map(plain));
            let mut arrival = Arrival { size: 0, arrived_ns, read_ns, ttl, tos, from };
            let mut rest = bytes;
            self.foreign += u64::from(bytes.is_empty());
            while !rest.is_empty() {
                let (run, taken) = match datagram.segment {
                    0 => (None, rest.len()),
                    segment => run_of(rest, segment),
                };
                // Only the first bytes of a packet may be here.
                let size = run.as_ref().map_or(len, |run| run.size);
                arrival.size = u32::try_from(size).unwrap_or(u32::MAX);
                let count = run.as_ref().map_or(1, |run| run.packets);
                let found = if port.classic {
                    self.classic_packet(rest, port, &arrival)
                } else {
                    let header = match run {
                        Some(run) => Some(run.header),
                        None => PacketHeader::parse(&rest[..taken]),
                    };
                    header.and_then(|header| Some((self.find(&header, proto, owner)?, header)))
                };
                rest = &rest[taken..];
                let Some((slot, header)) = found else {
                    // Raw ICMP sockets see everybody's echoes.
                    self.foreign += u64::from(proto != Proto::Icmp);
                    continue;
                };
                packets += count;
                // The address family of the answer is the question's: the same socket sends it.
                if self.arrived(slot, &header, &arrival, count, now_ns)
                    && proto != Proto::Icmp
                    && let Some(from) = datagram.source
                    && let Err(error) = socket.send_to(bytes, &from.into())
                {
                    tracing::debug!(%error, "a packet was not sent back");
                }
            }
        }
        Served::Some { datagrams: count, packets }
    }

    /// The flow of a slot, if it is still the one with this handle.
    pub(super) fn owned(&mut self, (slot, handle): (usize, u32)) -> Option<&mut Flow> {
        self.flows.get_mut(slot)?.as_mut().filter(|flow| flow.rx.handle == handle)
    }

    /// The slot of the flow that a packet belongs to.
    pub(super) fn find(
        &self,
        header: &PacketHeader,
        proto: Proto,
        owner: Option<usize>,
    ) -> Option<usize> {
        let slot = owner.unwrap_or((header.handle & 0xFFFF) as usize);
        let flow = self.flows.get(slot)?.as_ref()?;
        (flow.rx.handle == header.handle && flow.rx.proto == proto).then_some(slot)
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
        flow.packets += packets as u64;
        flow.bytes += bytes;
        for k in 0..packets as u64 {
            flow.unique += u64::from(flow.window.note(header.seq.wrapping_add(k)));
        }
        flow.last_ns = now_ns;
        flow.rx.live.received(packets as u64, bytes);
        let stamp = arrival.arrived_ns.unwrap_or(arrival.read_ns);
        // The two stamps are from clocks read at different places; the read cannot come first.
        let read_ns = arrival.read_ns.max(stamp);
        let (size, sent_ns) = (arrival.size, header.sent_ns.unwrap_or(0));
        if let Some(log) = flow.rx.log.and_then(|id| self.logs.get_mut(id)).and_then(Option::as_mut)
        {
            let (seq, ttl, tos) = (header.seq, arrival.ttl, arrival.tos);
            let mut record = match (flow.rx.replies, &mut flow.rx.introduction) {
                (Some(index), _) => {
                    Record::echoed(index, seq, size, sent_ns, stamp, read_ns, ttl, tos)
                }
                (None, Some(info)) => {
                    if !flow.introduced {
                        introduce(log, info, arrival.from);
                        flow.introduced = true;
                    }
                    Record::received(info.index, seq, size, sent_ns, stamp, read_ns, ttl, tos)
                }
                (None, None) => return false,
            };
            if arrival.arrived_ns.is_none() {
                record.flags |= flag::USER_STAMP;
            }
            log.producer.push_run(&record, packets, now_ns);
        }
        flow.rx.meter == Meter::Rtt
            && flow.rx.replies.is_none()
            && match &flow.rx.classic {
                None => arrival.from.is_none_or(|from| from.ip() == flow.rx.peer),
                // Signalling may take another way; packets go back to where the first one came from.
                Some(_) => arrival.from == flow.source,
            }
    }

    pub(super) fn start(&mut self, slot: usize, epoch_unix_ns: u64) {
        if let Some(flow) = self.flows.get_mut(slot).and_then(Option::as_mut)
            && let Some(info) = &mut flow.rx.introduction
        {
            info.epoch_unix_ns = epoch_unix_ns + info.spec.start_ns;
        }
    }

    /// Writes the last word on a flow into its log; how many of its records are not in there.
    pub(super) fn retire(
        &mut self,
        mut flow: Flow,
        totals: Option<&FlowTotals>,
        lost: HostLoss,
        reason: &str,
    ) -> u64 {
        let mut log_lost_records = 0;
        self.round_trips -= usize::from(flow.rx.meter == Meter::Rtt || flow.rx.replies.is_some());
        self.classic.close(&flow.rx);
        flow.rx.live.end();
        if let Some(info) = &mut flow.rx.introduction
            && let Some(log) =
                flow.rx.log.and_then(|id| self.logs.get_mut(id)).and_then(Option::as_mut)
        {
            if !flow.introduced {
                introduce(log, info, None);
            }
            log_lost_records = log.producer.missing_of(info.index);
            log.producer.note(Note::FlowEnd(FlowEnd {
                index: info.index,
                sent_packets: totals.map(|t| t.packets),
                sent_bytes: totals.map(|t| t.bytes),
                skipped_packets: totals.map(|t| t.skipped),
                received_packets: Some(flow.packets),
                received_bytes: Some(flow.bytes),
                log_lost_records,
                socket_drops: lost.socket_drops,
                buffer_errors: lost.buffer_errors,
                receive_buffer: flow.rx.receive_buffer,
                reason: reason.to_owned(),
            }));
        }
        log_lost_records
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
