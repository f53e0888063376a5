//! The sending thread: all flows of a process on absolute deadlines.
//!
//! Flows wait in a heap by the time of their next packet. When one is due, everything it owes leaves
//! in batches of one system call; a socket that takes no more is watched until it does, and its
//! packets stay due. Flows without inter-departure times take turns in what is left (`unpaced.rs`).
//! Nothing here allocates, locks, or waits for anything but the clock and sockets.

mod account;
mod ends;
mod running;
mod unpaced;

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError};

use crate::lease::Lease;
use itg_core::flow::Proto;
use itg_core::rate::RateChange;
use itg_record::{ClockPair, DepartureTotals};
use itg_session::{EndCause, EndReason, FlowTotals};
use itg_socket::clock;
use itg_socket::errqueue::ErrorQueue;
use itg_socket::mmsg::{BATCH, FEW};
use itg_socket::socket::DataSocket;
use itg_socket::txtime::AHEAD_NS;
use itg_socket::wire::{Segments, Sockets, Wire};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags};
use nix::sys::time::TimeSpec;

pub use self::account::{count_left_out, flow_end};
use self::ends::Ends;
use self::running::{Handing, Refused, Running};
use self::unpaced::Unpaced;
use crate::clock_pair::UnixClock;
use crate::departures::Sampler;
use crate::due::DueQueue;
use crate::live::FlowLive;
use crate::log::Producer;
use crate::pacing::{Level, Prepared, Waiter};
use crate::traffic::{HEAD_LEN, Traffic};

/// Time after its end in which a flow may still send packets that were due before: 100 ms.
const END_GRACE_NS: u64 = 100_000_000;
/// Longest wait before the thread looks whether it should stop: 20 ms.
const STOP_CHECK_NS: u64 = 20_000_000;
/// A look may be late: it is left out when a packet is due so soon behind it, 1 ms.
const LOOK_SLACK_NS: u64 = 1_000_000;
/// Batches of one flow before others get their turn.
const BATCHES_A_TURN: usize = 4;
/// Pause after the kernel said that it has no memory for a packet (ENOBUFS): 1 ms.
const NO_BUFFERS_NS: u64 = 1_000_000;
/// Time before a packet at which caches are warmed for it: 3 µs.
const WARM_UP_NS: u64 = 3_000;
/// Shortest pause before a packet for which that is done: 20 µs.
const COLD_NS: u64 = 20_000;
/// Blocked sockets are looked at no more often than this: 20 µs.
const POLL_EVERY_NS: u64 = 20_000;

/// Time after its last packet that a flow waits for stamps of departures: 3 ms.
const LINGER_NS: u64 = 3_000_000;

/// Start of a schedule by CLOCK_MONOTONIC; below 0 where it lies before the boot of this host, whose flow another
/// one has sent until now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScheduleStart(pub i64);

impl ScheduleStart {
    /// The start at an instant of Unix time, by a reading of both clocks.
    #[must_use]
    pub const fn at_unix(unix_ns: u64, now: &ClockPair) -> Self {
        let ago_ns = now.unix_ns.wrapping_sub(unix_ns).cast_signed();
        Self(now.monotonic_ns.cast_signed().saturating_sub(ago_ns))
    }

    /// Instant so many nanoseconds after the start; 0 before the boot.
    #[must_use]
    pub fn instant_ns(self, offset_ns: u64) -> u64 {
        u64::try_from(self.0.saturating_add_unsigned(offset_ns)).unwrap_or(0)
    }

    /// Nanoseconds from the start to an instant; 0 before the start.
    #[must_use]
    pub const fn elapsed_ns(self, now_ns: u64) -> u64 {
        now_ns.saturating_add_signed(self.0.saturating_neg())
    }
}

/// A flow ready to send.
#[derive(Debug)]
pub struct TxFlow {
    /// Its packets.
    pub traffic: Traffic,
    /// Start of its schedule.
    pub start: ScheduleStart,
    /// The socket they leave through.
    pub socket: DataSocket,
    /// Its number in the log.
    pub log_index: u32,
    /// Sampler of its departures from this host, if requested.
    pub sampler: Option<Sampler>,
    /// Counters that others read while it runs.
    pub live: Arc<FlowLive>,
    /// Index of its group in the [`StopSignal`].
    pub group: usize,
}

/// Tells the sending thread to end flows early, group by group.
#[derive(Debug)]
pub struct StopSignal {
    raised: AtomicU32,
    groups: Box<[AtomicBool]>,
    lease: Option<Arc<Lease>>,
}

impl StopSignal {
    /// Room for so many groups.
    pub fn new(groups: usize) -> Self {
        Self {
            raised: AtomicU32::new(0),
            groups: std::iter::repeat_with(|| AtomicBool::new(false)).take(groups).collect(),
            lease: None,
        }
    }

    /// The same for flows that may be sent only while this lease lasts.
    pub fn leased(self, lease: Option<Arc<Lease>>) -> Self {
        Self { lease, ..self }
    }

    /// Returns true if the lease is over at this time: no packet may leave.
    fn is_over(&self, now_ns: u64) -> bool {
        self.lease.as_ref().is_some_and(|lease| lease.is_over(now_ns))
    }

    /// A group whose flows have ended may be used by others.
    pub fn lower(&self, group: usize) {
        self.groups[group].store(false, Ordering::Release);
    }

    /// There are changes of rates to look at: they are within 20 ms.
    pub fn look(&self) {
        self.raised.fetch_add(1, Ordering::Release);
    }

    /// Ends all flows of a group within 20 ms.
    pub fn raise(&self, group: usize) {
        self.groups[group].store(true, Ordering::Release);
        self.raised.fetch_add(1, Ordering::Release);
    }
}

/// A flow that has sent its last packet.
#[derive(Debug)]
pub struct TxEnded {
    /// Place of the flow in the list that the engine was given.
    pub index: usize,
    /// Account of the packets sent.
    pub totals: FlowTotals,
    /// Account of the stamps of its departures.
    pub departures: Option<DepartureTotals>,
    /// Packets that were due before the end could not be sent and are not in the totals.
    pub behind: bool,
    /// Packets sent that were due while the socket, or the queue of the device, took no more.
    pub waited: u64,
    /// Packets that the kernel refused, by its error, as `EPERM`.
    pub refused_by: BTreeMap<String, u64>,
    /// Its socket, where closing it tells its receiver nothing: thousands of them take long to close, and other flows
    /// of the sending thread are due.
    pub socket: Option<DataSocket>,
}

/// Senders of datagrams, one for each kind of flow.
struct Ways {
    /// UDP, each packet at its own time.
    exact: Box<dyn Wire>,
    /// UDP in bursts.
    bursts: Segments,
    /// All other protocols.
    others: Sockets,
}

impl Ways {
    fn of(&mut self, traffic: &Traffic) -> &mut dyn Wire {
        match traffic.proto() {
            Proto::Udp if traffic.burst() => &mut self.bursts,
            Proto::Udp => &mut *self.exact,
            _ => &mut self.others,
        }
    }

    fn watched<'a>(&'a self, flow: &'a TxFlow) -> BorrowedFd<'a> {
        if flow.traffic.proto() == Proto::Udp && !flow.traffic.burst() {
            self.exact.watched(&flow.socket)
        } else {
            flow.socket.socket.as_fd()
        }
    }
}

/// Event that a flow waits for after its turn.
enum Next {
    At(u64),
    Turn(u64),
    Writable,
    Ended(EndReason, bool),
}

/// The sending thread's state.
pub struct Engine<F: FnMut(TxEnded)> {
    /// `None` where a flow has ended.
    flows: Vec<Option<Running>>,
    due: DueQueue,
    unpaced: Unpaced,
    blocked: Vec<usize>,
    next_poll_ns: u64,
    heads: Box<[[u8; HEAD_LEN]; BATCH]>,
    ways: Ways,
    errors: ErrorQueue,
    unix: UnixClock,
    pacing: Prepared,
    waiter: Waiter,
    log: Option<Producer>,
    stop: Arc<StopSignal>,
    stops_seen: u32,
    /// Changes of the rates of a group's flows.
    rates: Option<Receiver<(usize, Vec<RateChange>)>>,
    /// Flows that join later; the thread ends when the channel has no sender any more.
    joining: Option<Receiver<TxFlow>>,
    /// Places of flows that have ended.
    free: Vec<usize>,
    next_join_ns: u64,
    /// Ends that have not been reported.
    ends: Ends<TxEnded>,
    on_end: F,
    identifier: u16,
}

impl<F: FnMut(TxEnded)> Engine<F> {
    /// An engine with these flows; `exact` is how UDP packets leave that do not leave in bursts.
    pub fn new(
        flows: Vec<TxFlow>,
        exact: Box<dyn Wire>,
        pacing: Prepared,
        log: Option<Producer>,
        stop: Arc<StopSignal>,
        on_end: F,
    ) -> Self {
        let mut engine = Self {
            blocked: Vec::with_capacity(flows.len()),
            flows: Vec::with_capacity(flows.len()),
            ends: Ends::with_capacity(flows.len()),
            due: DueQueue::with_capacity(flows.len()),
            unpaced: Unpaced::with_capacity(flows.len()),
            next_poll_ns: 0,
            heads: Box::new([[0; HEAD_LEN]; BATCH]),
            ways: Ways { exact, bursts: Segments::default(), others: Sockets },
            errors: ErrorQueue::new(),
            unix: UnixClock::new(),
            waiter: Waiter::new(pacing.level()),
            pacing,
            log,
            stop,
            stops_seen: 0,
            rates: None,
            joining: None,
            free: Vec::new(),
            next_join_ns: 0,
            on_end,
            // The low half of the process number, as ping does.
            identifier: (std::process::id() & 0xFFFF) as u16,
        };
        flows.into_iter().for_each(|flow| engine.add(flow));
        engine
    }

    /// The same, with flows that come through a channel; its thread ends when the channel has no sender any more.
    pub fn joined(self, joining: Receiver<TxFlow>) -> Self {
        Self { joining: Some(joining), ..self }
    }

    /// The same, with changes of rates that come through a channel; [`StopSignal::look`] tells of them.
    pub fn changing(self, rates: Receiver<(usize, Vec<RateChange>)>) -> Self {
        Self { rates: Some(rates), ..self }
    }

    fn add(&mut self, tx: TxFlow) {
        let index = self.free.pop().unwrap_or(self.flows.len());
        let flow = Running::new(tx);
        self.due.push(flow.wake_ns(0), index);
        let flow = Some(flow);
        match self.flows.get_mut(index) {
            Some(place) => *place = flow,
            None => self.flows.push(flow),
        }
        // Room for every flow to be blocked, or to end.
        self.blocked.reserve(self.flows.len() - self.blocked.len());
        self.unpaced.reserve(self.flows.len());
        self.free.reserve(self.flows.len() - self.free.len());
        self.ends.reserve(self.flows.len());
    }

    /// Returns true if no flow is sent.
    fn is_idle(&self) -> bool {
        self.due.is_empty() && self.unpaced.is_empty() && self.blocked.is_empty()
    }

    /// Reports flows that have ended: few at a time while others are sent.
    fn report(&mut self, now_ns: u64) {
        if self.is_idle() {
            self.ends.take_all().for_each(&mut self.on_end);
        } else {
            self.ends.take(now_ns).for_each(&mut self.on_end);
        }
    }

    /// Takes in flows that have come; waits for the first one when there is nothing else to do.
    fn join(&mut self, now_ns: u64) {
        let Some(joining) = &self.joining else { return };
        let idle = self.is_idle();
        if !idle && now_ns < self.next_join_ns {
            return;
        }
        self.next_join_ns = now_ns + STOP_CHECK_NS;
        let came = if idle {
            if let Some(log) = &mut self.log {
                log.flush();
            }
            joining.recv().map_err(|_| TryRecvError::Disconnected)
        } else {
            joining.try_recv()
        };
        match came {
            Ok(flow) => {
                self.add(flow);
                // Others may wait behind it, and it may have been told to stop already.
                self.next_join_ns = 0;
                self.stops_seen = self.stops_seen.wrapping_sub(1);
            }
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => self.joining = None,
        }
    }

    /// Sends until every flow has ended or has been told to stop.
    pub fn run(&mut self) {
        let mut turn = self.pacing.enter();
        self.join(clock::monotonic_ns());
        while !self.is_idle() {
            let stops = self.stop.raised.load(Ordering::Acquire);
            if stops != self.stops_seen {
                self.stops_seen = stops;
                // Somebody waits for the ends of a group that is stopped.
                self.ends.take_all().for_each(&mut self.on_end);
                self.end_stopped();
                self.change_rates();
            }
            let now = self.wait();
            // What the kernel is given ahead of its time must leave in time.
            let ahead_ns = if self.pacing.level() == Level::Txtime { AHEAD_NS } else { 0 };
            if self.stop.is_over(now + ahead_ns) {
                self.end_all(&EndCause::LeaseOver);
                break;
            }
            if let Some(index) = self.take(now) {
                let next = self.turn(index, now);
                self.place(index, next);
            }
            // After the packet: it takes some microseconds to wake a thread.
            if turn.is_due(now) {
                turn.look(&self.pacing, self.waiter.take_slept_ns(), now);
            }
            if let Some(log) = &mut self.log {
                log.tick(now);
            }
            self.report(now);
            self.join(now);
        }
        self.ends.take_all().for_each(&mut self.on_end);
        self.log = None;
    }

    /// Takes out the flow whose turn it is: one that is due, or else one without inter-departure times.
    fn take(&mut self, now_ns: u64) -> Option<usize> {
        if let Some((due, index)) = self.due.peek()
            && due <= now_ns
            && !self.unpaced.is_starved(now_ns)
        {
            self.due.pop();
            return Some(index);
        }
        let index = self.unpaced.peek().filter(|index| self.fits(*index, now_ns))?;
        self.unpaced.pop();
        Some(index)
    }

    /// Returns true if a packet of this flow without inter-departure times can leave before the next one is due.
    fn fits(&self, index: usize, now_ns: u64) -> bool {
        let packet_ns = self.flows[index].as_ref().map_or(0, |flow| flow.packet_ns);
        self.unpaced.most(now_ns, self.due.next_ns(), packet_ns) > 0
    }

    fn place(&mut self, index: usize, next: Next) {
        match next {
            Next::At(at) => self.due.push(at, index),
            Next::Turn(now_ns) => self.unpaced.push(now_ns, index),
            Next::Writable => self.blocked.push(index),
            Next::Ended(reason, behind) => self.end(index, reason, behind),
        }
    }

    /// Ends the flows of the groups that have been told to stop.
    fn end_stopped(&mut self) {
        for index in 0..self.flows.len() {
            let Some(flow) = &self.flows[index] else { continue };
            if self.stop.groups[flow.tx.group].load(Ordering::Acquire) {
                self.end(index, EndCause::Interrupted.into(), false);
            }
        }
        let flows = &self.flows;
        self.due.retain(|index| flows[index].is_some());
        self.unpaced.retain(|index| flows[index].is_some());
        self.blocked.retain(|index| flows[*index].is_some());
    }

    /// Follows changes of rates: flows that wait for their next packet may wait for another time.
    fn change_rates(&mut self) {
        while let Some((group, changes)) =
            self.rates.as_ref().and_then(|rates| rates.try_recv().ok())
        {
            let flows = &self.flows;
            let others = |index: usize| flows[index].as_ref().is_none_or(|f| f.tx.group != group);
            self.due.retain(others);
            for (index, place) in self.flows.iter_mut().enumerate() {
                let Some(flow) = place.as_mut().filter(|flow| flow.tx.group == group) else {
                    continue;
                };
                flow.tx.traffic.change_rates(&changes);
                if !self.blocked.contains(&index) && !self.unpaced.contains(index) {
                    // At the end of its schedule, or with packets that have been taken, it is its turn.
                    let next = flow.tx.traffic.next_ns().filter(|_| flow.unsent() == 0);
                    self.due.push(next.map_or(0, |next| flow.wake_ns(next)), index);
                }
            }
        }
    }

    /// Ends all flows: nothing may leave any more.
    fn end_all(&mut self, cause: &EndCause) {
        for index in 0..self.flows.len() {
            self.end(index, cause.clone().into(), false);
        }
        self.due.clear();
        self.unpaced.clear();
        self.blocked.clear();
    }

    fn end(&mut self, index: usize, reason: EndReason, behind: bool) {
        let Some(mut flow) = self.flows[index].take() else { return };
        self.free.push(index);
        flow.tx.live.end();
        if flow.tx.traffic.proto().properties().is_stream {
            // Fails when the peer is gone, which the reason says already.
            drop(flow.tx.socket.socket.shutdown(std::net::Shutdown::Write));
        }
        let socket = flow.tx.socket.socket.as_fd();
        let sampler = flow.tx.sampler.take();
        let departures = sampler.map(|sampler| sampler.finish(socket, &mut self.errors));
        let unsent = flow.unsent() as u64;
        let totals = FlowTotals {
            flow: flow.tx.traffic.id(),
            packets: flow.packets,
            bytes: flow.bytes,
            skipped: flow.tx.traffic.skipped() + if behind { unsent } else { 0 },
            failed: flow.failed,
            next_seq: flow.tx.traffic.next_seq() - if behind { 0 } else { unsent },
            reason,
        };
        let Running { tx, waited, refused_by, .. } = flow;
        let named = |(errno, count)| (format!("{:?}", Errno::from_raw(errno)), count);
        let refused_by = refused_by.into_iter().map(named).collect();
        // One of a connection is closed before its end is reported.
        let connected = tx.traffic.proto().properties().is_connected;
        let socket = Some(tx.socket).filter(|_| !connected);
        let told = matches!(totals.reason.cause, EndCause::Interrupted | EndCause::LeaseOver);
        let ended = TxEnded { index, totals, departures, behind, waited, refused_by, socket };
        if told {
            // Somebody waits for it.
            (self.on_end)(ended);
        } else {
            self.ends.push(ended);
        }
    }

    /// Waits for the next deadline or a blocked socket, whichever comes first; returns the time.
    fn wait(&mut self) -> u64 {
        let now = clock::monotonic_ns();
        let next = self.due.next_ns();
        let until = match self.unpaced.peek() {
            Some(index) if self.fits(index, now) => now,
            _ => next.min(now + STOP_CHECK_NS),
        };
        if self.blocked.is_empty() {
            // The end of a sleep is spun for packets only: many threads that look would keep each other from sending.
            return match until {
                _ if until <= now => now,
                _ if until.saturating_add(LOOK_SLACK_NS) < next => self.waiter.doze_until(until),
                _ if next - now > COLD_NS => {
                    let before = self.waiter.wait_before(next, WARM_UP_NS);
                    // One that is woken later has no time for it.
                    if before.saturating_add(WARM_UP_NS / 2) < next {
                        self.warm_up(before);
                    }
                    self.waiter.wait_until(next)
                }
                _ => self.waiter.wait_until(next),
            };
        }
        if now < self.next_poll_ns && until <= now {
            return now;
        }
        let guard_ns = self.waiter.guard_ns();
        self.poll(until.saturating_sub(now.saturating_add(guard_ns)));
        let asleep_since = now;
        let mut now = clock::monotonic_ns();
        self.waiter.slept(now - asleep_since);
        self.next_poll_ns = now + POLL_EVERY_NS;
        // A socket that has become writable is due at once; otherwise the rest is spun.
        if self.due.peek().is_some_and(|(due, _)| due == next)
            && until.saturating_sub(now) <= guard_ns
        {
            now = self.waiter.wait_until(until);
        }
        now
    }

    /// Prepares the datagram that is due next, and sends none: what has not been used for a millisecond is not in the
    /// processor's caches any more.
    fn warm_up(&mut self, now_ns: u64) {
        let flow = self.due.peek().and_then(|(_, index)| self.flows[index].as_ref());
        let Some(flow) = flow.filter(|flow| flow.sends_at_once()) else { return };
        let Some(departure) = flow.tx.traffic.peek() else { return };
        let unix_ns = self.unix.at(now_ns);
        std::hint::black_box(flow.tx.traffic.datagram(&departure, unix_ns, &mut self.heads[0]));
        self.ways.of(&flow.tx.traffic).warm_up(&flow.tx.socket);
    }

    /// Waits at most `timeout_ns` for blocked sockets and makes the writable ones due.
    fn poll(&mut self, timeout_ns: u64) {
        const MOST: usize = 256;
        let first = self.blocked.len().saturating_sub(MOST);
        let watched = &self.blocked[first..];
        let (flows, ways) = (&self.flows, &self.ways);
        let mut ready = [false; MOST];
        {
            // Places beyond the last watched flow repeat it and are not polled.
            let last = watched.len() - 1;
            let mut fds: [PollFd<'_>; MOST] = std::array::from_fn(|i| {
                let flow = flows[watched[i.min(last)]].as_ref();
                let flow = &flow.expect("a flow that waits has not ended").tx;
                PollFd::new(ways.watched(flow), PollFlags::POLLOUT)
            });
            let fds = &mut fds[..watched.len()];
            let nanos = i64::try_from(timeout_ns).unwrap_or(i64::MAX);
            let timeout = TimeSpec::new(nanos / 1_000_000_000, nanos % 1_000_000_000);
            // An interrupted wait is tried again by the caller.
            if nix::poll::ppoll(fds, Some(timeout), None).is_ok_and(|count| count > 0) {
                for (ready, fd) in ready.iter_mut().zip(fds) {
                    *ready = fd.any().unwrap_or(true);
                }
            }
        }
        let now = clock::monotonic_ns();
        let mut place = 0;
        let (due, unpaced) = (&mut self.due, &mut self.unpaced);
        self.blocked.retain(|&index| {
            let position = place;
            place += 1;
            let woken = position >= first && ready[position - first]
                || flows[index].as_ref().is_none_or(|flow| now >= flow.give_up_ns);
            if woken && flows[index].as_ref().is_some_and(|flow| flow.unpaced) {
                unpaced.push(now, index);
            } else if woken {
                due.push(now, index);
            }
            !woken
        });
    }

    /// Sends what a flow owes.
    fn turn(&mut self, index: usize, now_ns: u64) -> Next {
        let flow = self.flows[index].as_mut().expect("a flow that is due has not ended");
        let mut now_ns = now_ns;
        let mut few = true;
        flow.goes_on(now_ns);
        for _ in 0..BATCHES_A_TURN {
            if flow.tx.sampler.as_ref().is_some_and(Sampler::is_due) {
                flow.read(&mut self.errors, now_ns);
            }
            let most = match flow.unpaced {
                true => self.unpaced.most(now_ns, self.due.next_ns(), flow.packet_ns),
                false => BATCH,
            };
            if most == 0 {
                break;
            }
            flow.gather(now_ns, self.pacing.tolerance_ns(), most);
            few &= flow.unsent() <= FEW;
            let Some(first) = flow.first_unsent() else { break };
            if now_ns >= flow.give_up_ns {
                if flow.unpaced {
                    return Next::Ended(flow.ending(self.ways.of(&flow.tx.traffic)), false);
                }
                let late_ms = flow.late_ns(first, now_ns) / 1_000_000;
                return Next::Ended(EndCause::TooSlow { late_ms }.into(), true);
            }
            let monotonic_ns = clock::monotonic_ns();
            let handing = Handing { monotonic_ns, unix_ns: self.unix.at(monotonic_ns) };
            let stream = flow.tx.traffic.proto().properties().is_stream;
            let sent = match stream {
                true => flow.send_stream(&mut self.heads, handing.unix_ns),
                _ if let Some(sent) =
                    flow.send_together(&mut self.ways.bursts, handing.unix_ns) =>
                {
                    sent
                }
                _ => {
                    let wire = self.ways.of(&flow.tx.traffic);
                    flow.send_datagrams(wire, &mut self.heads, handing, self.identifier)
                }
            };
            let handed = *sent.as_ref().unwrap_or(&0);
            flow.sample(handed, handing, &mut self.errors);
            match sent {
                Ok(count) => {
                    let short = count < flow.unsent();
                    flow.account(count, handing, now_ns, self.log.as_mut());
                    if short && stream {
                        flow.refused = true;
                        return Next::Writable;
                    }
                }
                Err(error) => match flow.refuse(error) {
                    Refused::Again => {}
                    Refused::Writable => {
                        // Unread stamps would pass for an error each time the socket is looked at.
                        flow.read(&mut self.errors, now_ns);
                        flow.refused = true;
                        return Next::Writable;
                    }
                    Refused::Later => {
                        flow.refused = true;
                        return Next::At(now_ns + NO_BUFFERS_NS);
                    }
                    Refused::Ended(cause) => return Next::Ended(cause.into(), false),
                },
            }
            now_ns = clock::monotonic_ns();
            if flow.unpaced {
                flow.packet_ns = unpaced::learn(flow.packet_ns, now_ns - monotonic_ns, handed);
            }
        }
        if flow.unpaced {
            self.unpaced.served(now_ns);
        }
        if few && flow.unsent() == 0 {
            flow.tx.traffic.look_ahead();
        }
        self.after(index, now_ns)
    }

    /// Event that a flow waits for after it has sent what it owed.
    fn after(&mut self, index: usize, now_ns: u64) -> Next {
        let flow = self.flows[index].as_mut().expect("it has had its turn");
        let next_ns = flow.tx.traffic.next_ns().map(|next| flow.wake_ns(next));
        match next_ns {
            _ if flow.unsent() > 0 && !flow.unpaced => Next::At(now_ns),
            // Whoever has no times waits behind all others.
            _ if flow.unpaced && (flow.unsent() > 0 || next_ns.is_some_and(|ns| ns <= now_ns)) => {
                Next::Turn(now_ns)
            }
            Some(next) => Next::At(next),
            // Another change of its rate may give it packets again.
            None if self.stop.lease.is_some()
                && flow.tx.traffic.ends_by_time()
                && now_ns < flow.give_up_ns - END_GRACE_NS =>
            {
                Next::At(flow.give_up_ns - END_GRACE_NS)
            }
            None if flow.lingers() => Next::At(now_ns.max(flow.last_ns) + LINGER_NS),
            None => Next::Ended(flow.ending(self.ways.of(&flow.tx.traffic)), false),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Mutex;

    use itg_core::distribution::Distribution;
    use itg_core::flow::{Flow, FlowSpec};
    use itg_core::payload::Content;
    use itg_core::seed::RunSeed;
    use itg_socket::mmsg::Outgoing;
    use itg_socket::socket::open_sender;

    use super::*;
    use crate::pacing::PacingOptions;

    /// Records the number of packets of each call, and a 0 for each warm-up.
    #[derive(Debug)]
    struct RecordingWire(Arc<Mutex<Vec<usize>>>);

    impl Wire for RecordingWire {
        fn send(&mut self, _: &DataSocket, packets: &[Outgoing<'_>]) -> io::Result<usize> {
            self.0.lock().expect("one thread").push(packets.len());
            Ok(packets.len())
        }

        fn warm_up(&mut self, _: &DataSocket) {
            self.0.lock().expect("one thread").push(0);
        }
    }

    /// Calls and warm-ups for 50 packets with this time between them.
    fn calls(idt_ns: f64, level: Level) -> Vec<usize> {
        let to = std::net::UdpSocket::bind("127.0.0.1:0").expect("loopback");
        let mut spec = FlowSpec::new(1);
        spec.idt = Distribution::Constant(idt_ns);
        spec.stop.packets = Some(50);
        let socket = open_sender(&spec, to.local_addr().expect("bound")).expect("loopback");
        let flow = Flow::resolve(spec, RunSeed(1)).expect("a flow");
        let tx = TxFlow {
            traffic: Traffic::itg(flow, 1, Arc::new(Content::random(RunSeed(1))), 0),
            start: ScheduleStart(clock::monotonic_ns().cast_signed()),
            socket,
            log_index: 1,
            sampler: None,
            live: Arc::new(FlowLive::default()),
            group: 0,
        };
        let calls = Arc::new(Mutex::new(Vec::new()));
        let wire = Box::new(RecordingWire(Arc::clone(&calls)));
        let stop = Arc::new(StopSignal::new(1));
        let pacing = Prepared::new(level, PacingOptions::default());
        Engine::new(vec![tx], wire, pacing, None, stop, drop).run();
        let calls = calls.lock().expect("one thread");
        calls.clone()
    }

    #[test]
    fn caches_are_warmed_once_for_a_packet_after_a_pause_and_nothing_is_sent_then() {
        let after_pauses = calls(2e6, Level::Spin);
        assert_eq!(after_pauses.iter().sum::<usize>(), 50, "{after_pauses:?}");
        assert!(after_pauses.contains(&0), "{after_pauses:?}");
        assert!(!after_pauses.windows(2).any(|pair| pair == [0, 0]), "{after_pauses:?}");
        // Without a pause, or for one that sleeps until its time, there is no time for it.
        for (idt_ns, level) in [(10e3, Level::Spin), (2e6, Level::Sleep)] {
            let without = calls(idt_ns, level);
            assert_eq!(without.iter().sum::<usize>(), 50, "{without:?}");
            assert!(!without.contains(&0), "{without:?}");
        }
    }

    #[test]
    fn a_schedule_may_have_begun_before_this_host_was_booted() {
        let second = 1_000_000_000;
        let unix_ns = 1_800_000_000 * second;
        let (max_error_ns, synchronised) = (None, None);
        let now = ClockPair { unix_ns, monotonic_ns: 20 * second, max_error_ns, synchronised };
        let start = ScheduleStart::at_unix(unix_ns - 300 * second, &now);
        assert_eq!(start.elapsed_ns(now.monotonic_ns), 300 * second);
        assert_eq!((start.instant_ns(0), start.instant_ns(290 * second)), (0, 10 * second));
        let later = ScheduleStart::at_unix(unix_ns + second, &now);
        assert_eq!((later.instant_ns(0), later.elapsed_ns(now.monotonic_ns)), (21 * second, 0));
    }
}
