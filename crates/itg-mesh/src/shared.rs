//! State that the threads of a process share: the process itself, its networks, and a bell for the caretaker.
//!
//! The thread that reads a message carries it into the process and sends out what the process
//! answers, so that a reply leaves on the thread that the request came on. One lock holds it all:
//! layers run one at a time.

use std::collections::BTreeMap;
use std::io::IoSlice;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use chacha20::ChaCha8Rng;
use itg_core::seed::RunSeed;
use itg_core::streams;
use itg_process::bootstrap::{Boot, Diagnosis, Terms};
use itg_process::frame::Frame;
use itg_process::{
    Injected, Message, NetId, Outgoing, Process, Report, Slot, StopReason, Time, Transport,
};
use itg_socket::clock;
use nix::sys::eventfd::{EfdFlags, EventFd};
use socket2::Socket;

use crate::kinds::{Kind, Wanted};
use crate::listeners::{Address, Listeners};
use crate::outbox::{TOGETHER, joined};
use crate::peer::{Connection, Peer, Written, hang_up};
use crate::stream;

/// Callback for the reports of a process.
pub type Watch = Box<dyn FnMut(Report) + Send>;

/// Counters of one network of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NetworkCounters {
    /// Frames handed to the kernel or to a queue, multicasts once for each destination.
    pub sent: u64,
    /// Frames that came and were whole.
    pub received: u64,
    /// Messages refused: the queue of their destination was full, or it cannot be reached.
    pub refused: u64,
    /// Datagrams lost on purpose (`loss`).
    pub lost: u64,
    /// Datagrams that the kernel would not take.
    pub unsent: u64,
    /// Frames that failed a check, or named another sender than theirs.
    pub damaged: u64,
    /// Datagrams and connections of processes that do not take part.
    pub strangers: u64,
    /// Connections made or accepted.
    pub connections: u64,
    /// Connections that ended while the process ran.
    pub broken: u64,
}

/// Identity of a process in its run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Identity {
    pub(crate) me: Slot,
    pub(crate) processes: u32,
    pub(crate) incarnation: u64,
    pub(crate) run: u64,
}

/// Message of the networks to the bootstrap.
#[derive(Debug)]
pub(crate) enum News {
    Linked {
        slot: u32,
        incarnation: u64,
        net: u8,
    },
    Unreachable {
        slot: u32,
        why: String,
    },
    /// This process has been replaced by a later incarnation, or its own number was too low.
    Stale {
        incarnation: u64,
    },
}

/// One network.
pub(crate) struct Net {
    pub(crate) wanted: Wanted,
    pub(crate) peers: Vec<Peer>,
    pub(crate) counters: NetworkCounters,
    dice: ChaCha8Rng,
}

pub(crate) struct State {
    pub(crate) process: Option<Process>,
    pub(crate) identity: Option<Identity>,
    /// Conditions that a process that returns must agree to.
    terms: Option<Arc<Terms>>,
    /// Addresses of all processes, by slot.
    addresses: Vec<Vec<Address>>,
    /// The highest incarnation that each slot was named when it asked.
    promised: BTreeMap<u32, u64>,
    pub(crate) nets: Vec<Net>,
    pub(crate) datagrams: Option<Arc<Socket>>,
    pub(crate) news: Option<Sender<News>>,
    pub(crate) stopped: Option<StopReason>,
    pub(crate) lines: usize,
    /// Until when the caretaker sleeps.
    caretaker_due: Time,
    watch: Option<Watch>,
    next_line: u64,
    /// Network and slot of the processes that have something to be written.
    dirty: Vec<(u8, u32)>,
    /// Messages that were taken and cannot leave.
    unsent: Vec<Message>,
    threads: Vec<JoinHandle<()>>,
}

/// Agreement of the processes of a run on its networks.
pub(crate) struct Agreed<'a> {
    /// This process.
    pub(crate) identity: Identity,
    /// The networks.
    pub(crate) wanted: &'a [Wanted],
    /// Addresses of the others, by slot.
    pub(crate) addresses: &'a [Vec<Address>],
    /// Seed of the run.
    pub(crate) seed: RunSeed,
    /// Words of the bootstrap for those who come back.
    pub(crate) terms: Terms,
}

pub(crate) struct Shared {
    state: Mutex<State>,
    /// Something changed that a thread may wait for.
    pub(crate) changed: Condvar,
    bell: EventFd,
    rung: AtomicBool,
    pub(crate) closing: AtomicBool,
    /// Connections whose process is not known yet.
    pub(crate) unknown: AtomicUsize,
}

/// A stream that is full: network, slot, connection.
pub(crate) type Full = (u8, u32, Arc<Socket>);

/// The time of the process.
pub(crate) fn now() -> Time {
    Time(clock::machine_ns())
}

impl Shared {
    pub(crate) fn new(watch: Option<Watch>) -> std::io::Result<Arc<Self>> {
        let state = State {
            process: None,
            identity: None,
            terms: None,
            addresses: Vec::new(),
            promised: BTreeMap::new(),
            nets: Vec::new(),
            datagrams: None,
            news: None,
            stopped: None,
            lines: 0,
            caretaker_due: Time::ZERO,
            watch,
            next_line: 0,
            dirty: Vec::new(),
            unsent: Vec::new(),
            threads: Vec::new(),
        };
        let flags = EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC;
        Ok(Arc::new(Self {
            state: Mutex::new(state),
            changed: Condvar::new(),
            bell: EventFd::from_flags(flags)?,
            rung: AtomicBool::new(false),
            closing: AtomicBool::new(false),
            unknown: AtomicUsize::new(0),
        }))
    }

    /// The state; `None` after a layer has panicked: then nothing more is done with it.
    pub(crate) fn lock(&self) -> Option<MutexGuard<'_, State>> {
        self.state.lock().ok()
    }

    /// Waits until something has changed, at most this long.
    pub(crate) fn wait<'a>(
        &self,
        state: MutexGuard<'a, State>,
        limit: Duration,
    ) -> Option<MutexGuard<'a, State>> {
        self.changed.wait_timeout(state, limit).ok().map(|(state, _)| state)
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Relaxed)
    }

    /// Wakes the caretaker.
    pub(crate) fn ring(&self) {
        if !self.rung.swap(true, Ordering::AcqRel)
            && let Err(error) = self.bell.write(1)
        {
            tracing::debug!(%error, "the caretaker's bell");
        }
    }

    pub(crate) const fn bell(&self) -> &EventFd {
        &self.bell
    }

    pub(crate) fn silence_bell(&self) {
        self.rung.store(false, Ordering::Release);
        // An empty one was not rung.
        self.bell.read().unwrap_or_default();
    }

    /// Puts a thread under the wings of this process.
    pub(crate) fn spawn(
        self: &Arc<Self>,
        state: &mut State,
        name: &str,
        work: impl FnOnce(Arc<Self>) + Send + 'static,
    ) -> bool {
        state.threads.retain(|thread| !thread.is_finished());
        let shared = Arc::clone(self);
        match std::thread::Builder::new().name(name.to_owned()).spawn(move || work(shared)) {
            Ok(thread) => {
                state.threads.push(thread);
                true
            }
            Err(error) => {
                tracing::warn!(%error, "no thread for a connection");
                false
            }
        }
    }

    pub(crate) fn take_threads(&self) -> Vec<JoinHandle<()>> {
        // Threads are joined also after a panic of one of them.
        let mut state = self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        std::mem::take(&mut state.threads)
    }

    /// Sets the callback for events and the message trace.
    pub(crate) fn watch(&self, watch: Option<Watch>) {
        if let Some(mut state) = self.lock() {
            state.watch = watch;
        }
    }

    /// The networks of the run, and where the others are, by slot.
    pub(crate) fn install(
        &self,
        agreed: Agreed<'_>,
        listeners: &mut Listeners,
    ) -> std::io::Result<()> {
        let Agreed { identity, wanted, addresses, seed, terms } = agreed;
        let Some(mut state) = self.lock() else { return Ok(()) };
        let mut nets = Vec::new();
        for (number, &wanted) in wanted.iter().enumerate() {
            let mut peers = Vec::new();
            for slot in 0..identity.processes as usize {
                let mut peer = Peer::new(wanted.queue);
                let its = addresses.get(slot).map_or(&[][..], Vec::as_slice);
                if let Some(address) = its.iter().find(|address| address.kind == wanted.kind) {
                    peer.locate(address)?;
                }
                peers.push(peer);
            }
            let dice = seed.named(&format!("process {} network {number} loss", identity.me));
            nets.push(Net { wanted, peers, counters: NetworkCounters::default(), dice });
        }
        state.nets = nets;
        if wanted.iter().any(|wanted| wanted.kind == Kind::Udp) {
            state.datagrams = listeners.udp.take().map(Arc::new);
        }
        state.identity = Some(identity);
        state.terms = Some(Arc::new(terms));
        state.addresses = addresses.to_vec();
        state.addresses.resize_with(identity.processes as usize, Vec::new);
        state.addresses[identity.me.index()].clone_from(&listeners.addresses);
        self.changed.notify_all();
        Ok(())
    }

    /// Lets the process do something, and does what it wants done.
    pub(crate) fn act<R>(self: &Arc<Self>, act: impl FnOnce(&mut Process, Time) -> R) -> Option<R> {
        let mut state = self.lock()?;
        let done = act(state.process.as_mut()?, now());
        self.carry_out(&mut state);
        Some(done)
    }

    /// Delivers what has come from one sender on one network.
    pub(crate) fn deliver(self: &Arc<Self>, net: u8, slot: u32, frames: &mut Vec<Frame>) -> bool {
        let Some(mut guard) = self.lock() else { return false };
        let state = &mut *guard;
        let Some(network) = state.nets.get_mut(usize::from(net)) else { return false };
        let Some(peer) = network.peers.get_mut(slot as usize) else { return false };
        let now = now();
        let mut good = true;
        for frame in frames.drain(..) {
            let Frame { message, incarnation, .. } = frame;
            if message.src != Slot(slot) || message.net != NetId(net) {
                network.counters.damaged += 1;
                good = false;
            } else if peer.hears(incarnation)
                && let Some(process) = &mut state.process
            {
                network.counters.received += 1;
                process.deliver(now, message);
            }
        }
        self.carry_out(state);
        good
    }

    /// Fires timers that are due and does what the process wants done.
    pub(crate) fn carry_out(self: &Arc<Self>, state: &mut State) {
        let now = now();
        // No process but in the bootstrap, or when another incarnation has its place.
        let mut process = state.process.take();
        let mut edge = Edge { shared: self, state };
        match &mut process {
            Some(process) => {
                process.wake(now);
                process.carry_out(now, &mut edge);
            }
            None => drop(edge.flush(now)),
        }
        let due = process.as_ref().and_then(Process::next_wake).unwrap_or(Time::NEVER);
        state.process = process;
        if due < state.caretaker_due {
            state.caretaker_due = due;
            self.ring();
        }
    }

    fn flush(self: &Arc<Self>, state: &mut State, net: u8, slot: u32, now: Time) {
        let peer = &mut state.nets[usize::from(net)].peers[slot as usize];
        let was_blocked = peer.blocked;
        match peer.flush() {
            Written::All => {}
            Written::Blocked if was_blocked => {}
            Written::Blocked => self.ring(),
            Written::NoLine if peer.dialing => {}
            Written::NoLine => self.dial(state, net, slot, now),
        }
    }

    /// Connects to a process, on a thread that then reads the connection.
    pub(crate) fn dial(self: &Arc<Self>, state: &mut State, net: u8, slot: u32, now: Time) {
        let peer = &mut state.nets[usize::from(net)].peers[slot as usize];
        if peer.address.is_some() && peer.is_reachable(now) {
            peer.dialing = true;
            let name = format!("to {slot} net {net}");
            if self.spawn(state, &name, move |shared| stream::dial(&shared, net, slot)) {
                return;
            }
        }
        self.give_up(state, net, slot, now);
    }

    /// Another incarnation of a slot has begun, perhaps elsewhere: the older ones are heard no
    /// more, and what waits for them is refused.
    pub(crate) fn begin_incarnation(
        &self,
        state: &mut State,
        slot: u32,
        incarnation: u64,
        addresses: &[String],
        from: Option<IpAddr>,
    ) {
        let addresses: Vec<_> =
            addresses.iter().filter_map(|text| Address::parse(text, from)).collect();
        for net in 0..state.nets.len() {
            let network = &mut state.nets[net];
            let peer = &mut network.peers[slot as usize];
            peer.begin_incarnation(incarnation);
            if let Some(address) = addresses.iter().find(|at| at.kind == network.wanted.kind)
                && let Err(error) = peer.locate(address)
            {
                tracing::warn!(%error, slot, "the new address of a process");
            }
            state.refuse_waiting(u8::try_from(net).unwrap_or(u8::MAX), slot);
        }
        state.addresses[slot as usize] = addresses;
    }

    /// A process cannot be reached: what waits for it is refused.
    pub(crate) fn give_up(&self, state: &mut State, net: u8, slot: u32, now: Time) {
        let peer = &mut state.nets[usize::from(net)].peers[slot as usize];
        if !peer.lines().is_empty() {
            // It was not reached, but has reached us.
            peer.dialing = false;
            state.dirty.push((net, slot));
            return;
        }
        peer.failed(now);
        state.refuse_waiting(net, slot);
    }

    /// A connection stands; its number, unless it is not wanted.
    pub(crate) fn linked(
        self: &Arc<Self>,
        net: u8,
        slot: u32,
        incarnation: u64,
        socket: &Arc<Socket>,
    ) -> Option<u64> {
        let mut state = self.lock()?;
        // A thread that closes hangs up the connections that it finds: none comes after that.
        if self.is_closing() {
            return None;
        }
        let id = state.next_line;
        state.next_line += 1;
        let network = state.nets.get_mut(usize::from(net))?;
        let peer = network.peers.get_mut(slot as usize)?;
        peer.dialing = false;
        if !peer.add(Connection { id, incarnation, socket: Arc::clone(socket) }) {
            network.counters.strangers += 1;
            return None;
        }
        network.counters.connections += 1;
        state.lines += 1;
        if let Some(news) = &state.news {
            // No thread listens any more once the bootstrap is over.
            news.send(News::Linked { slot, incarnation, net }).unwrap_or_default();
        }
        state.dirty.push((net, slot));
        self.carry_out(&mut state);
        Some(id)
    }

    /// A connection has ended.
    pub(crate) fn unlinked(self: &Arc<Self>, net: u8, slot: u32, id: u64) {
        let Some(mut state) = self.lock() else { return };
        state.lines -= 1;
        self.changed.notify_all();
        let closed = self.is_closing() || state.stopped.is_some();
        let network = &mut state.nets[usize::from(net)];
        network.counters.broken += u64::from(!closed);
        let peer = &mut network.peers[slot as usize];
        peer.remove(id);
        if !closed {
            state.dirty.push((net, slot));
            self.carry_out(&mut state);
            let peer = &mut state.nets[usize::from(net)].peers[slot as usize];
            if peer.lines().is_empty() && !peer.dialing {
                // Whether it is still there is worth knowing at once.
                self.dial(&mut state, net, slot, now());
                self.carry_out(&mut state);
            }
        }
    }

    /// Things that the caretaker waits for: its next timer, and streams that are full.
    pub(crate) fn watched(&self) -> Option<(Time, Vec<Full>)> {
        let mut state = self.lock()?;
        let due = state.process.as_ref().and_then(Process::next_wake).unwrap_or(Time::NEVER);
        state.caretaker_due = due;
        let mut full = Vec::new();
        for (net, network) in (0..).zip(&state.nets) {
            for (slot, peer) in (0..).zip(&network.peers).filter(|(_, peer)| peer.blocked) {
                full.extend(peer.line().map(|line| (net, slot, Arc::clone(line))));
            }
        }
        Some((due, full))
    }

    /// These streams take more; timers may be due.
    pub(crate) fn tend(self: &Arc<Self>, ready: &[(u8, u32)]) {
        if let Some(mut state) = self.lock() {
            state.dirty.extend_from_slice(ready);
            self.carry_out(&mut state);
        }
    }

    /// Returns true if everything that was to be written has been.
    pub(crate) fn is_flushed(&self) -> bool {
        let Some(state) = self.lock() else { return true };
        let peers = state.nets.iter().flat_map(|net| &net.peers);
        peers.into_iter().all(|peer| peer.outbox.is_empty())
    }

    /// All connections, with what to do to each.
    pub(crate) fn each_line(&self, act: impl Fn(&Socket)) {
        let Some(state) = self.lock() else { return };
        for peer in state.nets.iter().flat_map(|net| &net.peers) {
            peer.lines().iter().for_each(|line| act(&line.socket));
        }
    }

    /// A datagram socket that is read no more.
    pub(crate) fn close_datagrams(&self) {
        if let Some(socket) = self.lock().and_then(|state| state.datagrams.clone()) {
            hang_up(&socket);
        }
    }

    /// Counters of the networks, by number.
    pub(crate) fn counters(&self) -> BTreeMap<u8, NetworkCounters> {
        let Some(state) = self.lock() else { return BTreeMap::new() };
        (0..).zip(&state.nets).map(|(number, net)| (number, net.counters.clone())).collect()
    }
}

/// The networks, as the process reaches them while it is driven.
struct Edge<'a> {
    shared: &'a Arc<Shared>,
    state: &'a mut State,
}

impl Transport for Edge<'_> {
    fn send(&mut self, now: Time, message: &Outgoing, to: Slot) -> bool {
        let State { nets, datagrams, dirty, .. } = &mut *self.state;
        let Some(net) = nets.get_mut(usize::from(message.message.net.0)) else { return true };
        let taken = net.take(to, message, datagrams.as_deref(), dirty, now);
        net.counters.refused += u64::from(!taken);
        taken
    }

    fn flush(&mut self, now: Time) -> Vec<Message> {
        while let Some((net, slot)) = self.state.dirty.pop() {
            self.shared.flush(self.state, net, slot, now);
        }
        std::mem::take(&mut self.state.unsent)
    }

    fn report(&mut self, report: Report) {
        if let Report::Stopped(why) = report {
            self.state.stopped = Some(why);
            self.shared.changed.notify_all();
        } else if let Some(watch) = &mut self.state.watch {
            watch(report);
        }
    }
}

/// The layer that hears which processes do not run any more.
const DETECTOR: &str = "detector";

impl State {
    /// Its host refuses a connection to a process that had one: the failure detector is told.
    pub(crate) fn refused(&mut self, net: u8, slot: u32, incarnation: u64) {
        let peer = &self.nets[usize::from(net)].peers[slot as usize];
        // Not when it is there again, or was never there.
        let gone = incarnation > 0 && peer.incarnation() == incarnation && peer.lines().is_empty();
        if let Some(process) = &mut self.process
            && gone
            && process.layers().any(|layer| layer == DETECTOR)
        {
            process.control(now(), DETECTOR, Box::new(Injected::Refused(Slot(slot))));
        }
    }

    /// Takes back what waits for a process: the layers are told when the process is driven next.
    fn refuse_waiting(&mut self, net: u8, slot: u32) {
        let Self { nets, unsent, identity, .. } = self;
        let network = &mut nets[usize::from(net)];
        let src = identity.map_or(Slot(0), |identity| identity.me);
        for (ty, body) in network.peers[slot as usize].outbox.take() {
            network.counters.refused += 1;
            let message = Message::new(Slot(slot), ty, body).on(NetId(net));
            unsent.push(Message { src, ..message });
        }
    }

    /// A later incarnation has this process's place: it does nothing any more, and stops no other process.
    pub(crate) fn end_replaced(&mut self, newer: u64) {
        if self.process.take().is_some() && self.stopped.is_none() {
            tracing::warn!(newer, "another incarnation of this process has taken its place");
            self.stopped = Some(StopReason::Failed);
        }
    }

    /// Addresses of this process.
    pub(crate) fn own_addresses(&self) -> Vec<String> {
        let own = self.identity.and_then(|identity| self.addresses.get(identity.me.index()));
        own.into_iter().flatten().map(ToString::to_string).collect()
    }

    /// Addresses of all processes, by slot.
    pub(crate) fn all_addresses(&self) -> Vec<Vec<String>> {
        self.addresses.iter().map(|its| its.iter().map(ToString::to_string).collect()).collect()
    }

    /// A process runs again and asks for its place.
    pub(crate) fn receive(&mut self, asks: &Boot) -> Result<[Boot; 2], Diagnosis> {
        let Some(terms) = self.terms.clone() else {
            return Err(stream::not_running("the run has not begun here"));
        };
        let slot = terms.admit(asks)?;
        if self.stopped.is_some() {
            return Err(stream::not_running("the run is over here"));
        }
        let heard = self.nets.iter().map(|net| net.peers[slot as usize].incarnation()).max();
        let promised = self.promised.entry(slot).or_default();
        *promised = heard.unwrap_or(0).max(*promised).max(1) + 1;
        let incarnation = *promised;
        Ok(terms.place(slot, incarnation, self.all_addresses()))
    }
}

impl Net {
    /// Takes a message for one process; `false` refuses it.
    fn take(
        &mut self,
        slot: Slot,
        outgoing: &Outgoing,
        datagrams: Option<&Socket>,
        dirty: &mut Vec<(u8, u32)>,
        now: Time,
    ) -> bool {
        let (message, head) = (&outgoing.message, outgoing.head());
        let Some(peer) = self.peers.get_mut(slot.index()) else { return false };
        if self.wanted.kind == Kind::Udp {
            let (Some(address), Some(socket)) = (&peer.address, datagrams) else { return false };
            if self.wanted.loss > 0 && streams::happens(&mut self.dice, self.wanted.loss) {
                self.counters.lost += 1;
                return true;
            }
            let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
            let mut together = [0; TOGETHER];
            let sent = match joined(head, &message.body, &mut together) {
                Some(bytes) => socket.send_to_with_flags(bytes, address, flags),
                None => {
                    let parts = [IoSlice::new(head), IoSlice::new(&message.body)];
                    socket.send_to_vectored_with_flags(&parts, address, flags)
                }
            };
            match sent {
                Ok(_) => self.counters.sent += 1,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return false,
                Err(error) => {
                    tracing::debug!(%error, %slot, "a datagram");
                    self.counters.unsent += 1;
                }
            }
            return true;
        }
        if !peer.outbox.has_room(message.body.len()) {
            peer.flush();
        }
        if !peer.is_reachable(now) || !peer.outbox.has_room(message.body.len()) {
            return false;
        }
        peer.outbox.push(*head, message.body.clone(), message.ty);
        self.counters.sent += 1;
        if !peer.dirty {
            peer.dirty = true;
            dirty.push((message.net.0, slot.0));
        }
        true
    }
}
