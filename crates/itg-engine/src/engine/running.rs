//! A flow on its way: packets taken from its schedule, handed to the kernel, written down.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, IoSlice};
use std::os::fd::AsFd;

use itg_core::flow::Proto;
use itg_core::schedule::{Departure, Together};
use itg_core::transport::Transport;
use itg_record::{Record, SentPacket};
use itg_session::{EndCause, EndReason};
use itg_socket::errqueue::ErrorQueue;
use itg_socket::mmsg::{BATCH, FEW, Order, Outgoing};
use itg_socket::txtime::{AHEAD_NS, WAKE_AHEAD_NS};
use itg_socket::way::TxClock;
use itg_socket::wire::{Segments, Wire};

use super::{END_GRACE_NS, TxFlow};
use crate::departures::Sampler;
use crate::log::Producer;
use crate::traffic::{HEAD_LEN, IcmpHead, Share};

/// Cost of handing over a packet before it is known: 1 µs.
const FIRST_PACKET_NS: u64 = 1_000;

/// A flow that is sent.
pub(super) struct Running {
    pub(super) tx: TxFlow,
    /// Instant at which packets not yet sent are given up.
    pub(super) give_up_ns: u64,
    /// True without inter-departure times: packets leave as fast as the socket takes them, until
    /// the time is over.
    pub(super) unpaced: bool,
    /// Without inter-departure times: the time that handing over a packet takes, in nanoseconds.
    pub(super) packet_ns: u64,
    /// Packets taken from the schedule and not yet by the kernel.
    pub(super) pending: Vec<Departure>,
    /// The same as one piece, when they are a burst of equal packets; nothing is pending beside it.
    whole: Option<Together>,
    /// Bytes of the first pending packet that a stream has taken.
    pub(super) partial: usize,
    /// Stamp in the header of that packet.
    pub(super) partial_stamp_ns: u64,
    /// True once it has waited for the stamps of its last packets.
    pub(super) lingered: bool,
    /// Instant at which its last packet was due.
    pub(super) last_ns: u64,
    pub(super) packets: u64,
    pub(super) bytes: u64,
    pub(super) failed: u64,
    /// Number of them by the kernel's error.
    pub(super) refused_by: BTreeMap<i32, u64>,
    pub(super) last_error: Option<io::Error>,
    /// Number of the packet that was refused last where the kernel keeps times.
    refused_seq: Option<u64>,
    /// True from the moment when the socket, or the queue of the device, takes no more until the next turn.
    pub(super) refused: bool,
    /// Instant until which packets that were due had to wait for that.
    waited_until_ns: u64,
    /// Packets sent that had to.
    pub(super) waited: u64,
}

/// Instant at which packets are handed over, on both clocks, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Handing {
    pub(super) monotonic_ns: u64,
    pub(super) unix_ns: u64,
}

/// Reaction to a packet that the kernel refused.
pub(super) enum Refused {
    Again,
    Writable,
    Later,
    Ended(EndCause),
}

impl Running {
    pub(super) fn new(tx: TxFlow) -> Self {
        let unpaced = tx.traffic.unpaced();
        let grace_ns = if unpaced { 0 } else { END_GRACE_NS };
        let give_up_ns = tx
            .traffic
            .duration_ns()
            .map_or(u64::MAX, |length| tx.start.instant_ns(length).saturating_add(grace_ns));
        Self {
            tx,
            give_up_ns,
            unpaced,
            packet_ns: FIRST_PACKET_NS,
            pending: Vec::with_capacity(BATCH),
            whole: None,
            partial: 0,
            partial_stamp_ns: 0,
            lingered: false,
            last_ns: 0,
            packets: 0,
            bytes: 0,
            failed: 0,
            refused_by: BTreeMap::new(),
            last_error: None,
            refused_seq: None,
            refused: false,
            waited_until_ns: 0,
            waited: 0,
        }
    }

    /// The flow has its turn: what was due until now had to wait, if the path took no more.
    pub(super) const fn goes_on(&mut self, now_ns: u64) {
        if self.refused {
            (self.refused, self.waited_until_ns) = (false, now_ns);
        }
    }

    /// Returns true if its next packet is a datagram of UDP that the kernel sends at once.
    pub(super) fn sends_at_once(&self) -> bool {
        let udp = self.tx.traffic.proto() == Proto::Udp && !self.tx.traffic.burst();
        udp && self.tx.socket.kept.is_none() && self.unsent() == 0
    }

    /// Packets taken from the schedule and not yet by the kernel.
    pub(super) fn unsent(&self) -> usize {
        self.pending.len() + self.whole.map_or(0, |whole| whole.count)
    }

    /// The first of them.
    pub(super) fn first_unsent(&self) -> Option<&Departure> {
        self.whole.as_ref().map(|whole| &whole.first).or_else(|| self.pending.first())
    }

    /// Takes packets that are due, as many as may share a time, and `most` at most. Bursts are due together.
    pub(super) fn gather(&mut self, now_ns: u64, tolerance_ns: u64, most: usize) {
        if self.whole.is_some() {
            return;
        }
        let start = self.tx.start;
        // Of packets whose times the kernel keeps, all that are due soon: each has its own.
        let (tolerance_ns, until_ns) = match self.tx.socket.kept {
            None => (tolerance_ns, now_ns),
            Some(_) => (u64::MAX, now_ns.saturating_add(AHEAD_NS)),
        };
        let now_ns = now_ns.max(start.instant_ns(0));
        let Some(ahead_ns) = until_ns.checked_sub(now_ns) else { return };
        let share = Share { now_ns: start.elapsed_ns(now_ns), ahead_ns, tolerance_ns, most };
        let one_by_one = self.tx.sampler.is_some() || self.tx.socket.kept.is_some();
        if !one_by_one {
            self.whole = self.tx.traffic.take_burst(share, &mut self.pending);
        }
        if self.whole.is_none() {
            self.tx.traffic.gather(share, &mut self.pending);
        }
    }

    /// Pending packets as one piece, where they are equal packets of bursts.
    fn together(&self) -> Option<Together> {
        let (&first, count) = (self.pending.first()?, self.pending.len());
        let alike = self.tx.traffic.burst()
            && self.tx.traffic.proto() == Proto::Udp
            && self.tx.sampler.is_none()
            && (first.seq..)
                .zip(&self.pending)
                .all(|(seq, p)| (p.seq, p.size) == (seq, first.size));
        alike.then_some(Together { first, count })
    }

    /// Sends equal packets of bursts as one message; `None` where that is not what is unsent.
    pub(super) fn send_together(
        &mut self,
        wire: &mut Segments,
        stamp_ns: u64,
    ) -> Option<io::Result<usize>> {
        let together = self.whole.or_else(|| self.together())?;
        let (count, size) = (together.count, together.first.size as usize);
        let bytes = wire.room(count, size);
        let written = bytes.is_some_and(|bytes| self.tx.traffic.put(together, stamp_ns, bytes));
        let sent = if written { wire.send_room(&self.tx.socket, count, size) } else { None };
        // What the socket has no room for stays in one piece.
        let stays = match &sent {
            Some(Ok(_)) => true,
            Some(Err(error)) => error.kind() == ErrorKind::WouldBlock,
            None => false,
        };
        if !stays && let Some(whole) = self.whole.take() {
            self.pending.extend(whole.packets());
        }
        sent
    }

    /// Lateness of a packet, in nanoseconds.
    pub(super) fn late_ns(&self, departure: &Departure, now_ns: u64) -> u64 {
        self.tx.start.elapsed_ns(now_ns).saturating_sub(departure.due_ns)
    }

    /// Time from handing a packet to the kernel until it is to leave, in nanoseconds: 0 unless the
    /// kernel keeps that time.
    fn ahead_ns(&self, departure: &Departure, handing: Handing) -> u64 {
        let due_ns = self.tx.start.instant_ns(departure.due_ns);
        let kept = self.tx.socket.kept.as_ref();
        kept.map_or(0, |kept| kept.ahead_ns(due_ns, handing.monotonic_ns))
    }

    /// Instant at which the thread turns to a packet that is due so long after the flow's start.
    pub(super) fn wake_ns(&self, due_ns: u64) -> u64 {
        let due_ns = self.tx.start.instant_ns(due_ns);
        if self.tx.socket.kept.is_some() { due_ns.saturating_sub(WAKE_AHEAD_NS) } else { due_ns }
    }

    /// Reads the stamps of departures.
    pub(super) fn read(&mut self, errors: &mut ErrorQueue, now_ns: u64) {
        if let Some(sampler) = &mut self.tx.sampler {
            sampler.read(self.tx.socket.socket.as_fd(), errors, now_ns);
        }
    }

    /// Returns true if stamps of its last packets may still come; at most once.
    pub(super) fn lingers(&mut self) -> bool {
        let waits = self.tx.sampler.as_ref().is_some_and(Sampler::is_waiting);
        waits && !std::mem::replace(&mut self.lingered, true)
    }

    /// Notes which of the pending packets will be stamped, the first `count` of which the kernel took.
    pub(super) fn sample(&mut self, count: usize, handing: Handing, errors: &mut ErrorQueue) {
        let Some(sampler) = &mut self.tx.sampler else { return };
        let (sent, rest) = self.pending.split_at(count);
        sampler.passed(count);
        for departure in sent {
            if sampler.wants(departure.seq) {
                sampler.handed(departure.seq, departure.due_ns, handing.unix_ns);
            }
        }
        if rest.first().is_some_and(|departure| sampler.wants(departure.seq)) {
            sampler.refused(self.tx.socket.socket.as_fd(), errors, handing.monotonic_ns);
        }
    }

    /// Sends pending packets as datagrams; returns the number that the kernel took.
    pub(super) fn send_datagrams(
        &self,
        wire: &mut dyn Wire,
        heads: &mut [[u8; HEAD_LEN]; BATCH],
        handing: Handing,
        identifier: u16,
    ) -> io::Result<usize> {
        if self.pending.len() <= FEW {
            self.send_up_to::<FEW>(wire, heads, handing, identifier)
        } else {
            self.send_up_to::<BATCH>(wire, heads, handing, identifier)
        }
    }

    /// The same with room for `MOST` packets: with little of it little is prepared.
    fn send_up_to<const MOST: usize>(
        &self,
        wire: &mut dyn Wire,
        heads: &mut [[u8; HEAD_LEN]; BATCH],
        handing: Handing,
        identifier: u16,
    ) -> io::Result<usize> {
        let Self { tx, pending, .. } = self;
        let kept_by = tx.socket.kept.as_ref().map(|kept| kept.clock);
        let offset_ns = kept_by.map_or(0, TxClock::offset_ns);
        let icmp = (tx.traffic.proto() == Proto::Icmp).then(|| IcmpHead {
            v6: tx.socket.remote.is_ipv6(),
            identifier,
            checksum: tx.socket.raw_v4,
        });
        let mut packets = [Outgoing::new(&[], &[]); MOST];
        for ((packet, head), departure) in packets.iter_mut().zip(heads).zip(pending) {
            let ahead_ns = self.ahead_ns(departure, handing);
            // Instant of departure, as far as it is known.
            let stamp_ns = handing.unix_ns + ahead_ns;
            let (head, body) = match icmp {
                None => tx.traffic.datagram(departure, stamp_ns, head),
                Some(icmp) => tx.traffic.message(departure, stamp_ns, icmp, head),
            };
            *packet = Outgoing::new(head, body);
            let leave_ns = handing.monotonic_ns.wrapping_add(ahead_ns).wrapping_add(offset_ns);
            packet.order = Order {
                at_ns: kept_by.map_or(0, |_| leave_ns),
                stamp: tx.sampler.as_ref().is_some_and(|sampler| sampler.wants(departure.seq)),
            };
        }
        wire.send(&tx.socket, &packets[..pending.len()])
    }

    /// Writes pending packets into a stream; returns the number that went in whole.
    pub(super) fn send_stream(
        &mut self,
        heads: &mut [[u8; HEAD_LEN]; BATCH],
        stamp_ns: u64,
    ) -> io::Result<usize> {
        let mut slices = [IoSlice::new(&[]); 2 * BATCH];
        for (i, (head, departure)) in heads.iter_mut().zip(&self.pending).enumerate() {
            let started = i == 0 && self.partial > 0;
            let stamp_ns = if started { self.partial_stamp_ns } else { stamp_ns };
            let (head, body) = self.tx.traffic.framed(departure, stamp_ns, head);
            let skip = if started { self.partial } else { 0 };
            slices[2 * i] = IoSlice::new(&head[skip.min(head.len())..]);
            slices[2 * i + 1] = IoSlice::new(&body[skip.saturating_sub(head.len())..]);
        }
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        let slices = &slices[..2 * self.pending.len()];
        let taken = self.tx.socket.socket.send_vectored_with_flags(slices, flags)?;
        let mut rest = self.partial + taken;
        let mut whole = 0;
        while let Some(departure) = self.pending.get(whole)
            && rest >= departure.size as usize
        {
            rest -= departure.size as usize;
            whole += 1;
        }
        if rest > 0 && (whole > 0 || self.partial == 0) {
            self.partial_stamp_ns = stamp_ns;
        }
        self.partial = rest;
        Ok(whole)
    }

    /// Record of a packet that has been handed over.
    fn record(&self, departure: &Departure, handing: Handing) -> Record {
        let &Departure { seq, size, due_ns: planned_ns } = departure;
        let (flow, ahead_ns) = (self.tx.log_index, self.ahead_ns(departure, handing));
        let sent_ns = handing.unix_ns + ahead_ns;
        let packet = SentPacket { flow, seq, size, planned_ns, sent_ns };
        if ahead_ns == 0 { Record::sent(packet) } else { Record::held(packet, ahead_ns) }
    }

    /// Returns true if the packet was due while the path took no more.
    fn has_waited(&self, departure: &Departure) -> bool {
        self.tx.start.instant_ns(departure.due_ns) <= self.waited_until_ns
    }

    /// Logs and counts the first `count` unsent packets as sent.
    pub(super) fn account(
        &mut self,
        count: usize,
        handing: Handing,
        now_ns: u64,
        log: Option<&mut Producer>,
    ) {
        let (bytes, waited, last) = match self.whole {
            Some(whole) => self.account_whole(&whole, handing, now_ns, log),
            None => self.account_pending(count, handing, now_ns, log),
        };
        self.waited += waited;
        if let Some(last) = last {
            self.tx.live.sent_at(now_ns);
            self.tx.live.left_out(self.tx.traffic.skipped() + self.failed);
            self.last_ns = self.tx.start.instant_ns(last.due_ns);
        }
        self.packets += count as u64;
        self.bytes += bytes;
        self.whole = None;
        self.pending.drain(..count.min(self.pending.len()));
    }

    /// Logs a burst that has been sent, and returns its bytes, how many of its packets had waited, and the last of them.
    fn account_whole(
        &self,
        whole: &Together,
        handing: Handing,
        now_ns: u64,
        log: Option<&mut Producer>,
    ) -> (u64, u64, Option<Departure>) {
        let Together { first, count } = *whole;
        if let Some(log) = log {
            log.push_run(&self.record(&first, handing), count, now_ns);
        }
        let packets = count as u64;
        let bytes = packets * u64::from(first.size);
        self.tx.live.sent_together(packets, bytes, self.late_ns(&first, now_ns));
        (bytes, if self.has_waited(&first) { packets } else { 0 }, Some(first))
    }

    /// The same of the first `count` pending packets.
    fn account_pending(
        &self,
        count: usize,
        handing: Handing,
        now_ns: u64,
        log: Option<&mut Producer>,
    ) -> (u64, u64, Option<Departure>) {
        let sent = &self.pending[..count];
        let bytes = sent.iter().map(|departure| u64::from(departure.size)).sum();
        if let Some(log) = log {
            // In burst mode, packets that differ in their number alone share a record.
            let burst = self.tx.traffic.burst();
            let together = |a: &Departure, b: &Departure| {
                burst && a.seq + 1 == b.seq && (a.due_ns, a.size) == (b.due_ns, b.size)
            };
            for run in sent.chunk_by(together) {
                log.push_run(&self.record(&run[0], handing), run.len(), now_ns);
            }
        }
        if !sent.is_empty() {
            self.tx.live.sent(bytes, sent.iter().map(|departure| self.late_ns(departure, now_ns)));
        }
        // They are in the order of their times.
        let waited = sent.partition_point(|departure| self.has_waited(departure));
        (bytes, waited as u64, sent.last().copied())
    }

    /// Decides about an error of the first pending packet.
    pub(super) fn refuse(&mut self, error: io::Error) -> Refused {
        let Transport { is_stream: stream, is_connected, .. } =
            self.tx.traffic.proto().properties();
        match error.raw_os_error() {
            _ if error.kind() == ErrorKind::WouldBlock => return Refused::Writable,
            Some(libc::EINTR) => return Refused::Again,
            Some(libc::ENOBUFS | libc::ENOMEM) => return Refused::Later,
            // An ICMP message about an earlier packet; this one was not tried.
            Some(libc::ECONNREFUSED) if !stream => {}
            _ if stream => {
                return Refused::Ended(EndCause::ConnectionBroke(error.to_string()));
            }
            Some(libc::EPIPE | libc::ECONNRESET | libc::ENOTCONN | libc::ESHUTDOWN)
                if is_connected =>
            {
                return Refused::Ended(EndCause::ConnectionBroke(error.to_string()));
            }
            _ => {
                let seq = self.pending.first().map(|packet| packet.seq);
                // Sockets of kept times are told of every ICMP message: only the second refusal is the packet's own.
                if self.tx.socket.kept.is_none() || self.refused_seq == seq {
                    self.pending.remove(0);
                    self.failed += 1;
                    let errno = error.raw_os_error().unwrap_or(0);
                    *self.refused_by.entry(errno).or_default() += 1;
                }
                self.refused_seq = seq;
            }
        }
        if self.last_error.is_none() {
            let flow = self.tx.traffic.id();
            tracing::warn!(flow, to = %self.tx.socket.remote, %error, "a packet was refused");
        }
        self.last_error = Some(error);
        Refused::Again
    }

    /// End reason of a flow whose schedule is at its end.
    pub(super) fn ending(&self, wire: &dyn Wire) -> EndReason {
        let refusal =
            self.last_error.as_ref().map(|error| format!("the last refusal said: {error}"));
        let remarks = wire.remark().map(str::to_owned).into_iter().chain(refusal).collect();
        EndReason { cause: EndCause::ScheduleDone, remarks }
    }
}
