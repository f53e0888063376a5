//! A process: a stack of layers, its clock, its networks; driven from outside.
//!
//! Its world calls [`Process::start`], [`Process::deliver`] and [`Process::wake`] with the time, and then
//! [`Process::carry_out`] with its transport. It waits no longer than [`Process::next_wake`] says.
//!
//! Stopping: the first `STOP` wins. A process that stops tells its layers from the top down, lets them
//! drain, and floods `STOP` to its neighbours, again and again until it has heard from each of them or
//! the time to drain is over; then it says `BYE` and is gone. Neighbours are all processes when there
//! are at most 65, else two levels of a 4-ary tree around it: one dead process on the way does not
//! cut off the others. Process 0 is told at once by every process, so a group stops along the whole
//! tree.

use std::any::Any;
use std::collections::BTreeSet;
use std::sync::Arc;

use crate::core::{Call, Core, RUNTIME, TimerId};
use crate::counters::Counters;
use crate::journal::LayerWrite;
use crate::layer::{Ctx, Layer};
use crate::message::{BYE, Dest, MS, Message, STOP, Slot, Time};
use crate::output::{Output, StopReason};

/// Messages that may wait for the start of a process.
const MOST_HELD: usize = 65_536;
/// Nanoseconds between two `STOP`s to a neighbour that has not answered.
const STOP_AGAIN: u64 = 100 * MS;
/// Largest number of processes that are all neighbours of each other.
const SMALL: u32 = 65;
/// Arity of the tree along which larger groups stop.
const ARITY: u32 = 4;

#[derive(Debug)]
enum Phase {
    /// Built; what arrives is held.
    Waiting(Vec<Message>),
    Running,
    Stopping {
        why: StopReason,
        origin: Slot,
        deadline: Time,
        unheard: BTreeSet<Slot>,
    },
    Stopped(StopReason),
}

/// A process.
pub struct Process {
    core: Core,
    layers: Vec<Box<dyn Layer>>,
    phase: Phase,
    drain_timeout: u64,
}

impl std::fmt::Debug for Process {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<_> = self.core.nodes.iter().map(|node| &node.name).collect();
        f.debug_struct("Process").field("slot", &self.core.me).field("layers", &names).finish()
    }
}

impl Process {
    pub(crate) fn new(core: Core, layers: Vec<Box<dyn Layer>>, drain_timeout: u64) -> Self {
        Self { core, layers, phase: Phase::Waiting(Vec::new()), drain_timeout }
    }

    /// Switches the message trace.
    pub const fn trace(&mut self, on: bool) {
        self.core.trace = on;
    }

    /// Probability of each chance for rare but legal behaviour, in parts of a million.
    pub const fn set_buggify(&mut self, parts: u32) {
        self.core.buggify = parts;
    }

    /// Nanoseconds that a stopping process waits for its layers and neighbours.
    #[must_use]
    pub const fn drain_timeout(&self) -> u64 {
        self.drain_timeout
    }

    /// Its address.
    #[must_use]
    pub const fn slot(&self) -> Slot {
        self.core.me
    }

    /// Incarnation of this process in its slot.
    #[must_use]
    pub const fn incarnation(&self) -> u64 {
        self.core.incarnation
    }

    /// Number of its view; 0 before a membership layer sets one.
    #[must_use]
    pub const fn view_number(&self) -> u64 {
        self.core.view_no
    }

    /// Its counters.
    #[must_use]
    pub const fn counters(&self) -> Counters {
        self.core.counters
    }

    /// Names of the layers, from the lowest.
    pub fn layers(&self) -> impl Iterator<Item = &str> {
        self.core.nodes.iter().map(|node| &*node.name)
    }

    /// Names of the layers that take [`Injected::Suspect`](crate::Injected::Suspect).
    pub fn detectors(&self) -> impl Iterator<Item = &str> {
        let all = self.layers().zip(&self.layers);
        all.filter(|(_, layer)| layer.takes_suspicions()).map(|(name, _)| name)
    }

    /// Reason of its stop, once it has stopped.
    #[must_use]
    pub const fn stopped(&self) -> Option<StopReason> {
        match self.phase {
            Phase::Stopped(why) => Some(why),
            _ => None,
        }
    }

    /// Starts all layers, the lowest first. What arrived before is delivered now.
    pub fn start(&mut self, now: Time) {
        let Phase::Waiting(held) = &mut self.phase else { return };
        let held = std::mem::take(held);
        self.phase = Phase::Running;
        self.core.out.push_back(Output::Started);
        for layer in 0..self.layers.len() {
            self.core.push(layer, 0, Call::Start);
        }
        self.go(now);
        for message in held {
            self.deliver(now, message);
        }
    }

    /// A message has come from a network.
    pub fn deliver(&mut self, now: Time, message: Message) {
        match &mut self.phase {
            Phase::Waiting(held) if held.len() < MOST_HELD => held.push(message),
            Phase::Waiting(_) => self.core.counters.before_start += 1,
            Phase::Stopped(_) => {}
            Phase::Running | Phase::Stopping { .. } => {
                if message.is_of_the_runtime() {
                    self.told_to_stop(now, &message);
                } else {
                    self.core.deliver(message);
                }
                self.go(now);
            }
        }
    }

    /// A network would not take a message.
    pub fn refuse(&mut self, now: Time, message: Message) {
        self.core.counters.refused += 1;
        if !self.layers.is_empty() && matches!(self.phase, Phase::Running | Phase::Stopping { .. })
        {
            self.core.push(0, 0, Call::Refused(message));
            self.go(now);
        }
    }

    /// The application sends a message from above the highest layer of the first branch.
    pub fn send(&mut self, now: Time, message: Message) {
        if matches!(self.phase, Phase::Running) {
            let mut top = 0;
            while let Some(&above) = self.core.nodes.get(top).and_then(|node| node.above.first()) {
                top = above;
            }
            match self.layers.is_empty() {
                true => self.core.transmit(message),
                false => self.core.push(top, 0, Call::Send(message)),
            }
            self.go(now);
        }
    }

    /// Says something to a layer that is no message.
    pub fn control(&mut self, now: Time, layer: &str, what: Box<dyn Any + Send>) {
        if matches!(self.phase, Phase::Running | Phase::Stopping { .. }) {
            Ctx { core: &mut self.core, layer: 0, branch: 0 }.call(layer, what);
            self.go(now);
        }
    }

    /// Stops this process and, through it, all others.
    pub fn stop(&mut self, now: Time, why: StopReason) {
        self.core.ask_stop(why, self.core.me);
        self.go(now);
    }

    /// Fires the timers that are due.
    pub fn wake(&mut self, now: Time) {
        // Only timers that are due now: what they set for now fires too, but after all of these.
        self.core.now = self.core.now.max(now);
        while let Some((&(at, id), &layer)) = self.core.timers.first_key_value() {
            if at > self.core.now {
                break;
            }
            self.core.timers.remove(&(at, id));
            if layer == RUNTIME {
                self.flood();
            } else {
                self.core.push(layer, 0, Call::Timer(TimerId { at, id }));
            }
            self.go(now);
        }
    }

    /// Time at which the next timer is due, if there is one.
    #[must_use]
    pub fn next_wake(&self) -> Option<Time> {
        if self.core.closed {
            return None;
        }
        self.core.timers.first_key_value().map(|(&(at, _), _)| at)
    }

    /// The next thing that the driver has to do, in order.
    pub(crate) fn poll(&mut self) -> Option<Output> {
        self.core.out.pop_front()
    }

    /// Writes to journals that come before everything else.
    pub(crate) fn take_writes(&mut self) -> Vec<LayerWrite> {
        std::mem::take(&mut self.core.writes)
    }

    /// Runs calls until none is left.
    fn go(&mut self, now: Time) {
        self.core.now = self.core.now.max(now);
        loop {
            while let Some((layer, branch, call)) = self.core.calls.pop_front() {
                // A stack without layers has none to call.
                if let Some(at) = self.layers.get_mut(layer) {
                    run(&mut **at, call, &mut Ctx { core: &mut self.core, layer, branch });
                }
            }
            match (self.core.stop.take(), &self.phase) {
                (Some((why, origin)), Phase::Running | Phase::Waiting(_)) => {
                    self.begin_stop(why, origin);
                }
                _ => break,
            }
        }
        self.try_finish();
    }

    fn begin_stop(&mut self, why: StopReason, origin: Slot) {
        let deadline = self.core.now.after(self.drain_timeout);
        let unheard = neighbours(self.core.me, self.core.capacity);
        let far_from_root = self.core.me != Slot(0) && !unheard.contains(&Slot(0));
        self.phase = Phase::Stopping { why, origin, deadline, unheard };
        if far_from_root {
            // Process 0 is told at once; its answer is not waited for.
            self.core.transmit(Message::new(Slot(0), STOP, stop_body(why, origin)));
        }
        for layer in (0..self.layers.len()).rev() {
            self.core.push(layer, 0, Call::Stop(why));
        }
        self.flood();
    }

    /// `STOP` to all neighbours that have not been heard.
    fn flood(&mut self) {
        let Phase::Stopping { why, origin, deadline, unheard } = &self.phase else { return };
        let next = self.core.now.after(STOP_AGAIN).min(*deadline);
        if !unheard.is_empty() {
            let slots: Arc<[Slot]> = unheard.iter().copied().collect();
            let body = stop_body(*why, *origin);
            self.core.transmit(Message::new(Dest::Many(slots), STOP, body));
        }
        self.core.set_timer(RUNTIME, next);
    }

    fn told_to_stop(&mut self, now: Time, message: &Message) {
        self.core.now = self.core.now.max(now);
        let why = message.body.first().map_or(StopReason::Interrupted, |&code| reason(code));
        let origin = message.body.get(1..5).and_then(|bytes| bytes.try_into().ok());
        let origin = origin.map_or(message.src, |bytes| Slot(u32::from_le_bytes(bytes)));
        if matches!(self.phase, Phase::Running) {
            if message.ty == BYE {
                return;
            }
            self.begin_stop(why, origin);
        }
        if let Phase::Stopping { unheard, .. } = &mut self.phase {
            unheard.remove(&message.src);
        }
    }

    fn try_finish(&mut self) {
        let Phase::Stopping { why, deadline, unheard, .. } = &self.phase else { return };
        let drained = self.layers.iter().all(|layer| layer.drained());
        if (drained && unheard.is_empty()) || self.core.now >= *deadline {
            let why = *why;
            let slots: Arc<[Slot]> =
                neighbours(self.core.me, self.core.capacity).into_iter().collect();
            self.core.transmit(Message::new(Dest::Many(slots), BYE, vec![code(why)]));
            self.core.closed = true;
            self.core.timers.clear();
            self.core.out.push_back(Output::Stopped(why));
            self.phase = Phase::Stopped(why);
        }
    }
}

/// Calls a layer.
fn run(layer: &mut dyn Layer, call: Call, cx: &mut Ctx<'_>) {
    match call {
        Call::Start => layer.on_start(cx),
        Call::Send(message) => layer.send(message, cx),
        Call::Deliver(message) => layer.deliver(message, cx),
        Call::Refused(message) => layer.refused(message, cx),
        Call::Timer(id) => layer.timer(id, cx),
        Call::Control(what) => layer.control(&*what, cx),
        Call::Stop(why) => layer.on_stop(why, cx),
    }
}

/// The processes that a stopping process tells.
fn neighbours(me: Slot, n: u32) -> BTreeSet<Slot> {
    let all = |range: std::ops::Range<u32>| range.filter(|slot| *slot != me.0).map(Slot).collect();
    if n <= SMALL {
        return all(0..n);
    }
    let parent = |slot: u32| slot.saturating_sub(1) / ARITY;
    let children = |slot: u32| {
        let first = slot.saturating_mul(ARITY).saturating_add(1);
        first.min(n)..first.saturating_add(ARITY).min(n)
    };
    let mut found: BTreeSet<Slot> = all(children(me.0));
    for child in children(me.0) {
        found.extend(children(child).map(Slot));
    }
    found.extend([parent(me.0), parent(parent(me.0))].map(Slot));
    found.remove(&me);
    found
}

fn stop_body(why: StopReason, origin: Slot) -> Vec<u8> {
    let mut body = vec![code(why)];
    body.extend(origin.0.to_le_bytes());
    body
}

const fn code(why: StopReason) -> u8 {
    match why {
        StopReason::Finished => 0,
        StopReason::Failed => 1,
        StopReason::Interrupted => 2,
    }
}

const fn reason(code: u8) -> StopReason {
    match code {
        0 => StopReason::Finished,
        1 => StopReason::Failed,
        _ => StopReason::Interrupted,
    }
}
