//! The receiving thread: reads data sockets in batches, recognises flows by their handle, logs every
//! packet with its kernel stamp, sends packets of round-trip flows back, and counts.
//!
//! It serves receivers (many flows on shared sockets) and, at the sender of round-trip flows, the
//! replies (one socket a flow). Other threads talk to it through a queue and an event descriptor.
//! While much arrives it naps between batches, 50 to 200 µs: the sender then does not pay for waking it.

mod classic;
mod closed;
mod command;
mod connection;
mod device;
mod itg;
mod origin;
mod stream;
mod table;
mod unwatched;

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use itg_core::flow::{Meter, Proto};
use itg_session::{Arrivals, FlowTotals};
use itg_socket::UdpErrors;
use itg_socket::clock;
use itg_socket::mmsg::{BATCH, RecvBatch};
use itg_socket::socket;
use itg_socket::sys;
use itg_socket::xdp::FrameQueue;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::eventfd::{EfdFlags, EventFd};
use socket2::Socket;

use self::closed::ClosedFlows;
pub use self::command::{ClassicRx, Command, Drain, PacketFormat, Port, RxEnded, RxFlow};
use self::connection::Connection;
use self::device::Device;
pub use self::origin::Origin;
use self::origin::{Awaited, Origins};
use self::stream::{Flowing, Framing, Stream};
use self::table::{Ending, Flow, HostLoss, LogSlot, Served, Table};
use crate::clock_pair::UnixClock;

/// Nap between batches while much arrives: 200 µs.
const NAP_NS: u64 = 200_000;
/// The same while joined datagrams arrive, twenty times as many: 50 µs.
const JOINED_NAP_NS: u64 = 50_000;
/// Batches that are read of one socket before others get their turn.
const BATCHES_A_ROUND: usize = 16;
/// Packets in one round from which on it naps: 40 000 a second. A sender of exact packets that has to wake
/// the receiver for some of them spends a fifth of its time on that.
const BUSY: usize = 8;
/// Bytes of a datagram that are read when none is to be sent back: IPv4 header with options (60),
/// ICMP header (8), ITG's header (20).
const SHORT_BUFFER: usize = 88;
/// The largest datagram, or joined ones.
const FULL_BUFFER: usize = 65_536;
/// Datagrams in a batch of full buffers.
const FULL_BATCH: usize = 32;
/// Bytes read from a stream at once.
const STREAM_BUFFER: usize = 256 << 10;
/// Connections on which nothing is known yet, at the same time.
const MAX_CONNECTIONS: usize = 16_384;
/// A connection that has not shown a packet for this long is closed: 30 s.
const NAMELESS_NS: u64 = 30_000_000_000;
/// A connection whose flow is over is closed after this long, though what was sent back may not have arrived: 15 s.
const LEFT_NS: u64 = 15_000_000_000;
/// Wake-up interval without traffic, in milliseconds.
const IDLE_MS: u8 = 100;
/// Wake-up interval while flows are being drained, in milliseconds.
const DRAIN_MS: u8 = 10;
const WAKE_TOKEN: u64 = u64::MAX;

/// The way to the receiving thread.
#[derive(Debug)]
pub struct RxHandle {
    /// As long as the flows that exist: a few commands each.
    commands: Sender<Command>,
    wake: Arc<EventFd>,
    foreign: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl RxHandle {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system's, in words where the caller shows them.
    pub fn start(name: &str) -> std::io::Result<Self> {
        let (commands, queue) = mpsc::channel();
        let wake = Arc::new(EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC)?);
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        epoll.add(&*wake, EpollEvent::new(EpollFlags::EPOLLIN, WAKE_TOKEN))?;
        let mut rx = Rx::new(epoll, Arc::clone(&wake), queue);
        let foreign = Arc::clone(&rx.table.foreign_total);
        let thread = thread::Builder::new().name(name.to_owned()).spawn(move || rx.run())?;
        Ok(Self { commands, wake, foreign, thread: Some(thread) })
    }

    /// Packets and connections so far that belonged to no flow.
    pub fn foreign(&self) -> u64 {
        self.foreign.load(Ordering::Relaxed)
    }

    /// Asks for something; the thread gets to it within microseconds.
    pub fn ask(&self, command: Command) {
        if self.commands.send(command).is_ok()
            && let Err(error) = self.wake.write(1)
        {
            // Only when 2^64 − 2 wake-ups are pending: then it is awake.
            tracing::debug!(%error, "waking the receiving thread");
        }
    }

    /// Waits until the thread has done what it was asked for so far, five seconds at most. Packets of a
    /// flow may come as soon as its sender hears that it is awaited.
    pub fn catch_up(&self) {
        let (done, caught_up) = mpsc::sync_channel(1);
        // After the time-out the answer is not awaited any more.
        self.ask(Command::CaughtUp(Box::new(move || done.try_send(()).unwrap_or_default())));
        if caught_up.recv_timeout(Duration::from_secs(5)).is_err() {
            tracing::warn!("the receiving thread is behind: first packets of a flow may be lost");
        }
    }

    /// Takes a log away from the thread, with all that it was given; waits at most five seconds.
    pub fn close_log(&self, id: usize) {
        let (done, closed) = mpsc::sync_channel(1);
        let done = Box::new(move || {
            // After the time-out the answer is not awaited any more.
            done.try_send(()).unwrap_or_default();
        });
        self.ask(Command::CloseLog { id, done });
        if closed.recv_timeout(Duration::from_secs(5)).is_err() {
            tracing::error!("the receiving thread does not give its log back");
        }
    }
}

impl Drop for RxHandle {
    fn drop(&mut self) {
        self.ask(Command::Quit);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the receiving thread stopped on a bug");
        }
    }
}

enum Source {
    Datagrams(Port, Socket),
    Listener(Port, Socket),
    Stream(Box<Stream>),
    Connection(Box<Connection>),
    /// Frames of one queue of the device.
    Frames(FrameQueue),
}

struct Rx {
    epoll: Epoll,
    wake: Arc<EventFd>,
    queue: Receiver<Command>,
    table: Table,
    sources: Vec<Option<Source>>,
    /// Device whose frames are taken before its network stack.
    device: Option<Device>,
    /// True while frames are looked for after each nap: to be told of each of them costs their sender time.
    looking: bool,
    /// Places of the sockets that are read after each nap for the same reason, and not watched.
    unwatched: Vec<usize>,
    short: RecvBatch,
    full: Option<RecvBatch>,
    /// Joined datagrams were read in this round.
    joined: bool,
    stream_buffer: Box<[u8]>,
}

impl Rx {
    fn new(epoll: Epoll, wake: Arc<EventFd>, queue: Receiver<Command>) -> Self {
        Self {
            epoll,
            wake,
            queue,
            table: Table {
                flows: Vec::new(),
                closed: ClosedFlows::default(),
                classic: classic::Places::default(),
                logs: Vec::new(),
                unix: UnixClock::new(),
                allowed: Box::default(),
                awaited: Awaited::default(),
                foreign: BTreeMap::new(),
                foreign_total: Arc::default(),
                round_trips: 0,
                proofs: 0,
                checks: 0,
                draining: 0,
                connections: 0,
            },
            sources: Vec::new(),
            device: None,
            looking: false,
            unwatched: Vec::new(),
            short: RecvBatch::new(BATCH, SHORT_BUFFER),
            full: None,
            joined: false,
            stream_buffer: vec![0; STREAM_BUFFER].into_boxed_slice(),
        }
    }

    fn run(&mut self) {
        clock::sharpen_timers();
        let mut events = [EpollEvent::empty(); 256];
        let (mut next_tick_ns, mut next_sweep_ns) = (0, 0);
        let mut busy = false;
        loop {
            let timeout = if busy {
                let nap_ns = if self.joined { JOINED_NAP_NS } else { NAP_NS };
                clock::sleep_until(clock::monotonic_ns() + nap_ns);
                EpollTimeout::ZERO
            } else if self.table.draining > 0 {
                EpollTimeout::from(DRAIN_MS)
            } else {
                EpollTimeout::from(IDLE_MS)
            };
            let ready = match self.epoll.wait(&mut events, timeout) {
                Ok(count) => count,
                Err(nix::errno::Errno::EINTR) => 0,
                Err(error) => {
                    tracing::error!(%error, "waiting for packets");
                    0
                }
            };
            self.joined = false;
            let mut got = self.serve_unwatched();
            for event in &events[..ready] {
                if event.data() == WAKE_TOKEN {
                    if !self.commands() {
                        return;
                    }
                } else {
                    let place = usize::try_from(event.data()).unwrap_or(usize::MAX);
                    let packets = self.serve(place);
                    if packets >= BUSY && self.table.round_trips == 0 {
                        self.unwatch(place);
                    }
                    got += packets;
                }
            }
            if self.looking {
                got += self.serve_device();
            }
            busy = got >= BUSY && self.table.round_trips == 0;
            self.look_for_frames(busy);
            if !busy {
                self.watch_all();
            }
            let now = clock::monotonic_ns();
            if now >= next_tick_ns {
                next_tick_ns = now + 5_000_000;
                self.tick(now);
            }
            if now >= next_sweep_ns {
                next_sweep_ns = now + 1_000_000_000;
                self.sweep(now);
            }
        }
    }

    /// Closes connections that belong to no flow: not yet after a while, or no more.
    fn sweep(&mut self, now_ns: u64) {
        for place in 0..self.sources.len() {
            let (owner, opened_ns, proto, from, left_ns, back) = match &mut self.sources[place] {
                Some(Source::Stream(stream)) => {
                    let back = stream.has_sent_back();
                    let Stream { owner, opened_ns, from, left_ns, .. } = &mut **stream;
                    (*owner, *opened_ns, Proto::Tcp, *from, left_ns, back)
                }
                // Replies come when they come: their socket is closed by its number.
                Some(Source::Connection(connection)) if connection.port.owner.is_none() => {
                    let back = connection.is_writing();
                    let Connection { owner, opened_ns, port, from, left_ns, .. } =
                        &mut **connection;
                    (*owner, *opened_ns, port.proto, *from, left_ns, back)
                }
                _ => continue,
            };
            let idle = match owner {
                Some(owner) if self.table.owned(owner).is_some() => false,
                // What was received may still be on its way back.
                Some(_) => {
                    let since_ns = *left_ns.get_or_insert(now_ns);
                    !back || now_ns.saturating_sub(since_ns) > LEFT_NS
                }
                // A flow that starts late names itself late.
                None => {
                    let awaited = from.is_some_and(|from| self.table.awaits(proto, from));
                    !awaited && now_ns.saturating_sub(opened_ns) > NAMELESS_NS
                }
            };
            if idle {
                self.remove(place);
            }
        }
    }

    fn tick(&mut self, now_ns: u64) {
        for log in self.table.logs.iter_mut().flatten() {
            log.producer.tick(now_ns);
        }
        if self.table.draining == 0 {
            return;
        }
        for slot in 0..self.table.flows.len() {
            let Some(flow) = &self.table.flows[slot] else { continue };
            let Some(ending) = &flow.ending else { continue };
            let quiet_since = flow.last_ns.max(ending.since_ns);
            let over = ending
                .totals
                .as_ref()
                .is_some_and(|totals| flow.arrivals.unique() >= totals.packets)
                || flow.stream_over
                || now_ns.saturating_sub(quiet_since) >= ending.drain.quiet_ns
                || now_ns.saturating_sub(ending.since_ns) >= ending.drain.limit_ns;
            if over {
                self.finish(slot);
            }
        }
    }

    /// Answers an ended flow with its counts.
    fn finish(&mut self, slot: usize) {
        let Some(mut flow) = self.table.flows[slot].take() else { return };
        let Some(ending) = flow.ending.take() else { return };
        self.table.draining -= 1;
        let totals = ending.totals.as_ref();
        let reason = totals.map_or_else(
            || "the sender has ended it".to_owned(),
            |totals| totals.reason.to_string(),
        );
        let ended = self.count(flow, totals, ending.udp_errors, reason);
        (ending.done)(ended);
    }

    /// Counts a flow that is over, and writes the last word on it into its log.
    fn count(
        &mut self,
        mut flow: Flow,
        totals: Option<&FlowTotals>,
        udp_errors: Option<UdpErrors>,
        reason: String,
    ) -> RxEnded {
        // The kernel counts in 32 bits, and joined packets once: how many those were is not known.
        let since = self.drops(flow.rx.socket).map(|now| now.wrapping_sub(flow.drops_before));
        let known = since.filter(|&since| since == 0 || !self.takes_joined(flow.rx.socket));
        let foreign = self.table.foreign_since(&flow);
        let lost = HostLoss::of(known.map(u64::from), udp_errors, foreign);
        let mut counts = flow.counts(&lost);
        let stranger = flow.origins.stranger();
        let (measuring, reordered) = (flow.rx.measuring.take(), flow.arrivals.reordered());
        let records = flow.records;
        counts.log_lost_records = self.table.retire(flow, totals, lost, reason);
        RxEnded { counts, stranger, measuring, reordered, records }
    }

    fn drops(&self, socket: Option<usize>) -> Option<u32> {
        let wanted = socket?;
        let drops = self.sources.iter().flatten().find_map(|source| match source {
            Source::Datagrams(port, socket) if port.id == wanted => sys::socket_drops(socket),
            _ => None,
        })?;
        let of_device = self.device.as_ref().filter(|device| device.serves(wanted));
        Some(of_device.map_or(0, |_| self.frames_dropped()).wrapping_add(drops))
    }

    /// True if packets come joined to this socket.
    fn takes_joined(&self, socket: Option<usize>) -> bool {
        self.sources.iter().flatten().any(|source| match source {
            Source::Datagrams(port, _) => socket == Some(port.id) && port.joined,
            _ => false,
        })
    }

    /// Frames that the queues of the device had no room for, modulo 2^32.
    fn frames_dropped(&self) -> u32 {
        let of_queue = |source: &Source| match source {
            Source::Frames(queue) => queue.drops(),
            _ => None,
        };
        self.sources.iter().flatten().filter_map(of_queue).fold(0, u32::wrapping_add)
    }

    /// Does what other threads ask; `false` when asked to end.
    fn commands(&mut self) -> bool {
        // Reading resets the event; an earlier round may have done so already.
        self.wake.read().unwrap_or_default();
        while let Ok(command) = self.queue.try_recv() {
            match command {
                Command::Quit => {
                    self.table.close_log(None);
                    return false;
                }
                Command::Datagrams(port, socket) => self.read_datagrams(port, socket),
                Command::Frames(input, queues) => {
                    self.device = Some(Device::new(*input));
                    for queue in queues {
                        self.add(Source::Frames(queue));
                    }
                }
                Command::Listener(port, socket) => {
                    self.table.foreign.insert(port.id, 0);
                    self.add(Source::Listener(port, socket));
                }
                Command::Stream { socket, from, owner, classic } => {
                    let stream =
                        Stream::new(socket, Some(from), (Framing::of(classic), Some(owner)));
                    self.table.connections += 1;
                    // This side made the connection: nothing else would name its other end.
                    self.table.is_from(owner.0, Some(from), 1);
                    self.add(Source::Stream(Box::new(stream)));
                }
                Command::Allow(addresses) => self.table.allowed = addresses,
                Command::Flow(rx) => self.open(*rx),
                Command::Start { slot, epoch_unix_ns, ahead_ns } => {
                    self.table.start(slot, epoch_unix_ns, ahead_ns);
                }
                Command::End { slot, totals, drain, udp_errors, done } => {
                    if let Some(flow) = self.table.flows.get_mut(slot).and_then(Option::as_mut) {
                        let since_ns = clock::monotonic_ns();
                        let drain =
                            drain.unwrap_or_else(|| Drain::usual(&flow.rx, totals.is_some()));
                        let ending = Ending { totals, drain, since_ns, udp_errors, done };
                        flow.ending = Some(ending);
                        self.table.draining += 1;
                    }
                }
                Command::Hasten { slot } => {
                    let flow = self.table.flows.get_mut(slot).and_then(Option::as_mut);
                    if let Some(ending) = flow.and_then(|flow| flow.ending.as_mut()) {
                        ending.drain = Drain::INTERRUPTED;
                    }
                }
                Command::Abandon { slot, reason, done } => {
                    let flow = self.table.flows.get_mut(slot).and_then(Option::take);
                    done(flow.map(|flow| {
                        self.table.draining -= usize::from(flow.ending.is_some());
                        self.count(flow, None, None, reason)
                    }));
                }
                Command::CloseSocket { id, done } => {
                    self.close(id);
                    done();
                }
                Command::Log { id, producer, indices } => {
                    let logs = &mut self.table.logs;
                    if logs.len() <= id {
                        logs.resize_with(id + 1, || None);
                    }
                    logs[id] = Some(LogSlot { producer, indices });
                }
                Command::CloseLog { id, done } => {
                    self.table.close_log(Some(id));
                    done();
                }
                Command::Measure { slot, live, done } => done(self.table.measure(slot, &live)),
                Command::CaughtUp(done) => done(),
            }
        }
        true
    }

    /// Reads datagrams of a socket from now on, and the frames to it.
    fn read_datagrams(&mut self, port: Port, socket: Socket) {
        self.table.foreign.insert(port.id, 0);
        if port.joined {
            self.full.get_or_insert_with(|| RecvBatch::new(FULL_BATCH, FULL_BUFFER));
        }
        if port.proto.properties().is_connected {
            let from = socket.peer_addr().ok().and_then(|at| socket::peer_of(&at));
            self.connect(Connection::new(port, socket, from));
            return;
        }
        let frames = self.device.as_ref().map(|device| device.take(port, &socket));
        let place = self.add(Source::Datagrams(port, socket));
        if let (Some(device), Some(place)) = (&mut self.device, place) {
            device.serve(frames.unwrap_or_default(), port.id, place);
        }
    }

    /// Closes what has this number.
    fn close(&mut self, id: usize) {
        self.table.foreign.remove(&id);
        if let Some(device) = &mut self.device {
            device.leave(id);
        }
        for place in 0..self.sources.len() {
            let its = match &self.sources[place] {
                Some(Source::Datagrams(port, _) | Source::Listener(port, _)) => port.id,
                // What was accepted at a listener has its number, and is closed once nothing waits to be sent back.
                Some(Source::Connection(connection)) if !connection.is_writing() => {
                    connection.port.id
                }
                Some(Source::Connection(_) | Source::Stream(_) | Source::Frames(_)) | None => {
                    continue;
                }
            };
            if its == id {
                self.remove(place);
            }
        }
    }

    fn open(&mut self, rx: RxFlow) {
        let round_trip = rx.meter == Meter::Rtt && rx.replies.is_none();
        if round_trip || rx.check.is_some() {
            self.full.get_or_insert_with(|| RecvBatch::new(FULL_BATCH, FULL_BUFFER));
        }
        // Replies must not wait for a nap either.
        self.table.round_trips += usize::from(round_trip || rx.replies.is_some());
        self.table.checks += usize::from(rx.check.is_some());
        self.table.proofs += usize::from(rx.key.is_some());
        let slot = rx.slot;
        if self.table.flows.len() <= slot {
            self.table.flows.resize_with(slot + 1, || None);
        }
        let drops_before = self.drops(rx.socket).unwrap_or(0);
        self.table.forget(slot);
        self.table.classic.open(&rx);
        self.table.awaited.open(&rx);
        self.table.flows[slot] = Some(Flow {
            foreign_before: self.table.foreign_at(rx.socket),
            origins: Origins::new(rx.origin),
            rx,
            arrivals: Arrivals::default(),
            records: 0,
            last_ns: 0,
            since_ns: clock::monotonic_ns(),
            introduced: false,
            drops_before,
            stream_over: false,
            rebound: None,
            connected: false,
            ending: None,
        });
    }

    fn add(&mut self, source: Source) -> Option<usize> {
        let place = self.sources.iter().position(Option::is_none).unwrap_or_else(|| {
            self.sources.push(None);
            self.sources.len() - 1
        });
        let event = EpollEvent::new(EpollFlags::EPOLLIN, place as u64);
        match self.epoll.add(source.fd(), event) {
            Ok(()) => {
                self.sources[place] = Some(source);
                Some(place)
            }
            Err(error) => {
                tracing::error!(%error, "a socket cannot be watched");
                None
            }
        }
    }

    fn remove(&mut self, place: usize) {
        if let Some(source) = self.sources[place].take() {
            let watched = !self.unwatched.contains(&place);
            self.unwatched.retain(|&other| other != place);
            if watched && let Err(error) = self.epoll.delete(source.fd()) {
                tracing::debug!(%error, "a socket was not watched");
            }
            let owner = match source {
                Source::Stream(stream) => stream.owner,
                Source::Connection(connection) => connection.owner,
                Source::Datagrams(..) | Source::Listener(..) | Source::Frames(_) => return,
            };
            self.table.connections = self.table.connections.saturating_sub(1);
            if let Some(flow) = owner.and_then(|owner| self.table.owned(owner)) {
                flow.stream_over = true;
            }
        }
    }

    /// Reads what has arrived at one source; returns the number of packets.
    fn serve(&mut self, place: usize) -> usize {
        let Some(source) = self.sources.get_mut(place).and_then(Option::as_mut) else { return 0 };
        match source {
            Source::Datagrams(port, socket) => {
                let port = *port;
                self.joined |= port.joined;
                let whole = port.joined || self.table.reads_whole(port);
                let batch = match &mut self.full {
                    Some(full) if whole => full,
                    _ => &mut self.short,
                };
                let mut total = 0;
                for _ in 0..BATCHES_A_ROUND {
                    match self.table.datagrams(socket, batch, port) {
                        Served::Some { datagrams, packets } => {
                            total += packets;
                            if datagrams < batch.capacity() {
                                break;
                            }
                        }
                        Served::Over => {
                            self.remove(place);
                            break;
                        }
                    }
                }
                total
            }
            Source::Listener(port, socket) => {
                let port = *port;
                let accepted = socket.accept();
                match accepted {
                    Ok((socket, address)) => {
                        self.accepted(socket, socket::peer_of(&address), port);
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    Err(error) => tracing::warn!(%error, "a data connection was not accepted"),
                }
                0
            }
            Source::Connection(_) => self.serve_connection(place),
            Source::Frames(_) => self.serve_frames(place),
            Source::Stream(stream) => {
                let outcome = stream.serve(&mut self.stream_buffer, &mut self.table);
                match outcome {
                    Ok(Flowing::Reads) => self.watch(place, EpollFlags::EPOLLIN),
                    Ok(Flowing::Writes) => self.watch(place, EpollFlags::EPOLLOUT),
                    Ok(Flowing::Same) => {}
                    Err(why) => {
                        if let Some(why) = why {
                            tracing::warn!("{why}");
                            let owner = stream.owner;
                            if let Some(flow) = owner.and_then(|owner| self.table.owned(owner))
                                && let Some(classic) = &mut flow.rx.classic
                                && let Some(broken) = classic.broken.take()
                            {
                                broken();
                            }
                        }
                        self.remove(place);
                    }
                }
                0
            }
        }
    }

    /// Reads frames of one queue of the device; returns the number of packets.
    fn serve_frames(&mut self, place: usize) -> usize {
        let (Some(device), Some(source)) = (&mut self.device, self.sources[place].take()) else {
            return 0;
        };
        let mut total = 0;
        // Replies leave through the sockets, which stay where they are.
        let Source::Frames(mut queue) = source else { return 0 };
        for _ in 0..BATCHES_A_ROUND {
            let (mut now_ns, sources, table) = (0, &self.sources, &mut self.table);
            let taken = queue.take(|frame| {
                if now_ns == 0 {
                    now_ns = clock::monotonic_ns();
                }
                let Some(place) = frame.to.and_then(|to| device.place(to)) else { return };
                if let Some(Some(Source::Datagrams(port, socket))) = sources.get(place) {
                    total += table.frame(&frame, (*port, socket), now_ns);
                }
            });
            if taken < FrameQueue::BATCH {
                break;
            }
        }
        self.sources[place] = Some(Source::Frames(queue));
        total
    }

    /// Reads what has arrived at a connection that keeps the boundaries of messages; returns the number of packets.
    fn serve_connection(&mut self, place: usize) -> usize {
        let Some(Source::Connection(connection)) = &mut self.sources[place] else { return 0 };
        let batch = match &mut self.full {
            Some(full) if connection.wants_whole(&self.table) => full,
            _ => &mut self.short,
        };
        let (mut total, mut flags) = (0, None);
        for _ in 0..BATCHES_A_ROUND {
            let (served, flowing) = connection.serve(batch, &mut self.table);
            match flowing {
                Flowing::Reads => flags = Some(EpollFlags::EPOLLIN),
                Flowing::Writes => flags = Some(EpollFlags::EPOLLOUT),
                Flowing::Same => {}
            }
            match served {
                Served::Some { datagrams, packets } => {
                    total += packets;
                    if datagrams < batch.capacity() {
                        break;
                    }
                }
                Served::Over => {
                    self.remove(place);
                    return total;
                }
            }
        }
        if let Some(flags) = flags {
            self.watch(place, flags);
        }
        total
    }

    fn watch(&self, place: usize, flags: EpollFlags) {
        if let Some(source) = &self.sources[place]
            && let Err(error) =
                self.epoll.modify(source.fd(), &mut EpollEvent::new(flags, place as u64))
        {
            tracing::error!(%error, "a connection cannot be watched");
        }
    }

    fn accepted(&mut self, socket: Socket, from: Option<SocketAddr>, port: Port) {
        if self.table.connections >= MAX_CONNECTIONS {
            tracing::warn!(?from, "too many data connections: refused");
            return;
        }
        if let Err(error) = socket.set_nonblocking(true) {
            tracing::warn!(%error, "a data connection cannot be used");
            return;
        }
        if !from.is_some_and(|from| self.table.awaits(port.proto, from)) {
            self.table.stranger(port.id, 1);
            tracing::debug!(?from, "a data connection from where none is awaited: closed");
            return;
        }
        if port.proto.properties().is_stream {
            if let Err(error) = socket.set_tcp_nodelay(true) {
                tracing::debug!(%error, "TCP_NODELAY");
            }
            let Some(framing) = Framing::at(port, from, &mut self.table) else {
                self.table.stranger(port.id, 1);
                tracing::warn!(?from, "a data connection of no flow that is known here");
                return;
            };
            let mut stream = Stream::new(socket, from, framing);
            stream.listener = port.id;
            self.table.connections += 1;
            self.add(Source::Stream(Box::new(stream)));
        } else {
            if port.proto == Proto::Sctp
                && let Err(error) = socket::send_at_once(&socket)
            {
                tracing::debug!(%error, "SCTP_NODELAY");
            }
            if let Err(error) = socket::ask_for_stamps(&socket) {
                tracing::debug!(%error, "no kernel stamps of a data connection");
            }
            let v6 = from.is_some_and(|a| a.is_ipv6());
            self.connect(Connection::new(Port { v6, ..port }, socket, from));
        }
    }

    /// Reads a connection that keeps the boundaries of messages.
    fn connect(&mut self, connection: Connection) {
        if connection.port.proto == Proto::Sctp {
            self.full.get_or_insert_with(|| RecvBatch::new(FULL_BATCH, FULL_BUFFER));
        }
        self.table.connections += 1;
        self.add(Source::Connection(Box::new(connection)));
    }
}

impl Source {
    fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Datagrams(_, socket) | Self::Listener(_, socket) => socket.as_fd(),
            Self::Stream(stream) => stream.socket.as_fd(),
            Self::Connection(connection) => connection.socket.as_fd(),
            Self::Frames(queue) => queue.as_fd(),
        }
    }
}
