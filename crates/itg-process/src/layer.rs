//! Layers, and what they may do.
//!
//! A layer is called when a message comes from above or from below, when one of its timers is due, and
//! when the process starts and stops. It answers through [`Ctx`] and is a deterministic function of
//! the calls it gets: no clock but [`Ctx::now`], no randomness but [`Ctx::rng`], no threads, no waiting.
//! What it passes up or down is queued and runs after it returns, first in first out, so no layer is
//! ever called while it is running.
//! Source: Urbán, Défago, Schiper, *Neko: a single environment to simulate and prototype distributed
//! algorithms*, JISE 18(6), 2002; queued dispatch instead of direct calls is ours.

use std::any::Any;
use std::ops::RangeInclusive;

use chacha20::ChaCha8Rng;
use itg_core::streams;

use crate::core::{Call, Core, TimerId};
use crate::event::{Event, LayerEvent, Level};
use crate::journal::{JournalWrite, LayerWrite};
use crate::message::{Message, NetId, Slot, Time};
use crate::network::{Network, network};
use crate::output::StopReason;

/// A part of a process.
#[allow(unused_variables, reason = "what a layer does not care about passes through")]
pub trait Layer: Send {
    /// The whole application starts.
    fn on_start(&mut self, cx: &mut Ctx<'_>) {}

    /// The layer above sends a message. By default it passes through.
    fn send(&mut self, message: Message, cx: &mut Ctx<'_>) {
        cx.down(message);
    }

    /// The layer below delivers a message. By default it passes through.
    fn deliver(&mut self, message: Message, cx: &mut Ctx<'_>) {
        cx.up(message);
    }

    /// A timer of this layer is due.
    fn timer(&mut self, id: TimerId, cx: &mut Ctx<'_>) {}

    /// A network would not take a message (its queue is full). By default the layer above is told.
    fn refused(&mut self, message: Message, cx: &mut Ctx<'_>) {
        cx.refuse_up(message);
    }

    /// Another layer of this process, or the driver, has something to say that is no message.
    fn control(&mut self, what: &dyn Any, cx: &mut Ctx<'_>) {}

    /// The process stops. Last messages may still be sent.
    fn on_stop(&mut self, why: StopReason, cx: &mut Ctx<'_>) {}

    /// Returns true if this layer has nothing left that must go out before the process ends.
    fn drained(&self) -> bool {
        true
    }

    /// Returns true if it takes [`Injected::Suspect`](crate::Injected::Suspect) by [`Layer::control`], as failure
    /// detectors do. It counts each that it takes:
    /// `cx.sometimes(`[`RuntimeEvent::SuspicionTaken`](crate::RuntimeEvent::SuspicionTaken)`)`.
    fn takes_suspicions(&self) -> bool {
        false
    }

    /// Types of messages that it understands, besides those of applications.
    fn types(&self) -> &[RangeInclusive<u32>] {
        &[]
    }
}

/// Context of a call to a layer: its view of the process, and the actions that it may take.
#[derive(Debug)]
pub struct Ctx<'a> {
    pub(crate) core: &'a mut Core,
    pub(crate) layer: usize,
    pub(crate) branch: usize,
}

impl Ctx<'_> {
    /// The time, on this process's monotonic clock.
    #[must_use]
    pub const fn now(&self) -> Time {
        self.core.now
    }

    /// Address of this process.
    #[must_use]
    pub const fn me(&self) -> Slot {
        self.core.me
    }

    /// Number of processes in the view; all processes before there are views.
    #[must_use]
    pub fn n(&self) -> u32 {
        u32::try_from(self.core.view.len()).unwrap_or(u32::MAX)
    }

    /// Number of slots: every process has a smaller address.
    #[must_use]
    pub const fn capacity(&self) -> u32 {
        self.core.capacity
    }

    /// The view in force, in ascending order.
    #[must_use]
    pub fn view(&self) -> &[Slot] {
        &self.core.view
    }

    /// Sets the view: for membership layers. `slots` are sorted and each is counted once.
    pub fn set_view(&mut self, number: u64, slots: &[Slot]) {
        let mut view = slots.to_vec();
        view.sort_unstable();
        view.dedup();
        self.core.capacity = self.core.capacity.max(view.last().map_or(0, |slot| slot.0 + 1));
        self.core.view = view.into();
        self.core.view_no = number;
    }

    /// Incarnation of this process in its slot, from 1.
    #[must_use]
    pub const fn incarnation(&self) -> u64 {
        self.core.incarnation
    }

    /// The tables of the configuration that are not about processes and networks.
    #[must_use]
    pub fn config(&self) -> &toml::Table {
        &self.core.config
    }

    /// The parallel networks of this process.
    #[must_use]
    pub fn networks(&self) -> &[Network] {
        &self.core.networks
    }

    /// The network of this name.
    #[must_use]
    pub fn network(&self, name: &str) -> Option<NetId> {
        network(&self.core.networks, name)
    }

    /// The random stream of this layer: it depends on the seed, the slot and the layer's name alone.
    pub fn rng(&mut self) -> &mut ChaCha8Rng {
        self.core.rng(self.layer)
    }

    /// Delivers a message to the layer above; above a multiplexer, to the first one.
    pub fn up(&mut self, message: Message) {
        self.up_to(0, message);
    }

    /// Delivers a message to the layer above in this branch.
    pub fn up_to(&mut self, branch: usize, message: Message) {
        match self.core.nodes[self.layer].above.get(branch) {
            Some(&above) => self.core.push(above, 0, Call::Deliver(message)),
            None => self.core.counters.unclaimed += 1,
        }
    }

    /// Sends a message to the layer below; below the lowest one, to the network.
    pub fn down(&mut self, message: Message) {
        match self.core.nodes[self.layer].below {
            Some((below, branch)) => self.core.push(below, branch, Call::Send(message)),
            None => self.core.transmit(message),
        }
    }

    /// Tells the layers above that a network would not take their message.
    pub fn refuse_up(&mut self, message: Message) {
        let above = self.core.nodes[self.layer].above.clone();
        for above in above {
            self.core.push(above, 0, Call::Refused(message.clone()));
        }
    }

    /// For a multiplexer: the branch that the message came from that it was asked to send.
    #[must_use]
    pub const fn branch(&self) -> usize {
        self.branch
    }

    /// Asks for [`Layer::timer`] at this time, or at once when it has passed.
    pub fn set_timer(&mut self, at: Time) -> TimerId {
        self.core.set_timer(self.layer, at)
    }

    /// Asks for [`Layer::timer`] after this many nanoseconds.
    pub fn set_timer_after(&mut self, ns: u64) -> TimerId {
        self.set_timer(self.core.now.after(ns))
    }

    /// Takes a timer back; one that has fired is gone already.
    pub fn cancel(&mut self, timer: TimerId) {
        self.core.timers.remove(&(timer.at, timer.id));
    }

    /// Writes to the journal of this layer: nothing that the process asks for in this step or later
    /// leaves before it is durable. Worlds without storage forget it.
    pub fn persist(&mut self, write: JournalWrite) {
        if self.core.keeps_journals {
            let layer = self.core.nodes[self.layer].name.to_string();
            self.core.writes.push(LayerWrite { layer, write });
        }
    }

    /// Logs an event, for traces and checkers.
    pub fn log(&mut self, level: Level, event: impl LayerEvent) {
        self.core.event(self.layer, Event::new(level, event));
    }

    /// Hands over an event that was logged already, by a part of this layer.
    pub(crate) fn pass(&mut self, event: Event) {
        self.core.event(self.layer, event);
    }

    /// Counts a situation that a sweep over many seeds wants to see at least once.
    pub fn sometimes(&mut self, situation: impl LayerEvent) {
        self.log(Level::Sometimes, situation);
    }

    /// Returns true if the layer should do something rare but legal here, such as firing early or
    /// sending to fewer than all: never on real networks, at times in a simulation that wants it.
    pub fn buggify(&mut self, situation: impl LayerEvent) -> bool {
        let parts = self.core.buggify;
        let yes = parts > 0 && streams::happens(self.core.rng(self.layer), parts);
        if yes {
            self.sometimes(situation);
        }
        yes
    }

    /// Calls another layer of this process, which understands it or not.
    pub fn call(&mut self, layer: &str, what: Box<dyn Any + Send>) {
        match self.core.nodes.iter().position(|node| &*node.name == layer) {
            Some(at) => self.core.push(at, 0, Call::Control(what)),
            None => self.core.counters.no_such_layer += 1,
        }
    }

    /// Stops all processes.
    pub fn shutdown(&mut self, why: StopReason) {
        self.core.ask_stop(why, self.core.me);
    }
}
