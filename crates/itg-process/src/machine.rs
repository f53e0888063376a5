//! From an algorithm to a layer.
//!
//! An algorithm is a plain state machine with its own types; a [`Wiring`] says which bytes its messages
//! are, which messages from above are its requests, and what its deliveries look like. [`Adapter`]
//! makes a layer of both.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::ops::RangeInclusive;

use bytes::Bytes;

use crate::core::TimerId;
use crate::event::{Event, LayerEvent, Level, RuntimeEvent};
use crate::journal::JournalWrite;
use crate::layer::{Ctx, Layer};
use crate::message::{Dest, Message, NetId, Slot, Time};

/// An algorithm: input and time in, outputs out. It reads no clock, draws from no generator but its own
/// seeded one, and touches no network.
pub trait Machine {
    /// Requests of the algorithm's user.
    type Request;
    /// Deliveries of the algorithm to its user.
    type Delivery;
    /// Messages between its instances.
    type Message;
    /// Names of its timers: setting one again moves it.
    type Timer: Copy + Ord + Debug;

    /// Takes one input at time `now` and appends what is to be done.
    fn handle(&mut self, now: Time, input: Input<Self>, out: &mut Vec<Action<Self>>);
}

/// Input to a machine.
pub enum Input<M: Machine + ?Sized> {
    /// It starts.
    Start,
    /// Its user asks for something.
    Request(M::Request),
    /// Another instance, or itself, says something.
    Message(Slot, M::Message),
    /// A timer is due.
    Timer(M::Timer),
}

/// Action that a machine asks for.
pub enum Action<M: Machine + ?Sized> {
    /// Say something to other instances.
    Send(Dest, M::Message),
    /// Tell the user.
    Deliver(M::Delivery),
    /// Ask for a timer at this time.
    SetTimer(M::Timer, Time),
    /// Take a timer back.
    CancelTimer(M::Timer),
    /// Log an event, for traces and checkers.
    Log(Event),
    /// Write to the journal, before anything else that is asked for.
    Persist(JournalWrite),
}

impl<M: Machine + ?Sized> Action<M> {
    /// Logs this event.
    pub fn log(event: impl LayerEvent) -> Self {
        Self::Log(Event::new(Level::Info, event))
    }

    /// Counts a situation that a sweep over many seeds wants to see at least once.
    pub fn sometimes(situation: impl LayerEvent) -> Self {
        Self::Log(Event::new(Level::Sometimes, situation))
    }
}

/// Conversion of a machine's types into messages and back.
pub trait Wiring<M: Machine>: Send {
    /// The types of its messages.
    fn types(&self) -> &[RangeInclusive<u32>];
    /// The network that carries them.
    fn net(&self) -> NetId {
        NetId(0)
    }
    /// Type and bytes of a message.
    fn encode(&self, message: &M::Message) -> (u32, Bytes);
    /// The message that these bytes are; `None` is counted and dropped.
    fn decode(&self, ty: u32, body: &Bytes) -> Option<M::Message>;
    /// The request that a message from above is.
    ///
    /// # Errors
    /// The message, when it is none: it passes through.
    fn request(&self, message: Message) -> Result<M::Request, Message>;
    /// The message that a delivery becomes on its way up.
    fn delivery(&mut self, me: Slot, delivery: M::Delivery) -> Message;
    /// The request that another layer or the driver makes by [`Layer::control`], if it is one.
    fn control(&self, _what: &dyn Any) -> Option<M::Request> {
        None
    }
    /// Hands a delivery over: up as a message, unless the wiring knows better.
    fn hand_over(&mut self, delivery: M::Delivery, cx: &mut Ctx<'_>) {
        let message = self.delivery(cx.me(), delivery);
        cx.up(message);
    }
}

/// A machine as a layer.
pub struct Adapter<M: Machine, W> {
    machine: M,
    wiring: W,
    timers: BTreeMap<M::Timer, TimerId>,
    due: BTreeMap<TimerId, M::Timer>,
    out: Vec<Action<M>>,
}

impl<M: Machine, W: Wiring<M>> Adapter<M, W> {
    /// A layer of this machine.
    pub const fn new(machine: M, wiring: W) -> Self {
        Self { machine, wiring, timers: BTreeMap::new(), due: BTreeMap::new(), out: Vec::new() }
    }

    fn step(&mut self, input: Input<M>, cx: &mut Ctx<'_>) {
        self.machine.handle(cx.now(), input, &mut self.out);
        let mut out = std::mem::take(&mut self.out);
        for action in out.drain(..) {
            match action {
                Action::Send(dst, message) => {
                    let (ty, body) = self.wiring.encode(&message);
                    cx.down(Message::new(dst, ty, body).on(self.wiring.net()));
                }
                Action::Deliver(delivery) => self.wiring.hand_over(delivery, cx),
                Action::SetTimer(timer, at) => {
                    self.forget(timer, cx);
                    let id = cx.set_timer(at);
                    self.timers.insert(timer, id);
                    self.due.insert(id, timer);
                }
                Action::CancelTimer(timer) => self.forget(timer, cx),
                Action::Log(event) => cx.pass(event),
                Action::Persist(write) => cx.persist(write),
            }
        }
        self.out = out;
    }

    fn forget(&mut self, timer: M::Timer, cx: &mut Ctx<'_>) {
        if let Some(id) = self.timers.remove(&timer) {
            self.due.remove(&id);
            cx.cancel(id);
        }
    }
}

impl<M, W> Debug for Adapter<M, W>
where
    M: Machine,
{
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Adapter").field("timers", &self.timers).finish_non_exhaustive()
    }
}

impl<M, W> Layer for Adapter<M, W>
where
    M: Machine + Send,
    W: Wiring<M>,
    M::Timer: Send,
    M::Message: Send,
    M::Delivery: Send,
    M::Request: Send,
{
    fn on_start(&mut self, cx: &mut Ctx<'_>) {
        self.step(Input::Start, cx);
    }

    fn send(&mut self, message: Message, cx: &mut Ctx<'_>) {
        match self.wiring.request(message) {
            Ok(request) => self.step(Input::Request(request), cx),
            Err(message) => cx.down(message),
        }
    }

    fn deliver(&mut self, message: Message, cx: &mut Ctx<'_>) {
        if !self.wiring.types().iter().any(|range| range.contains(&message.ty)) {
            return cx.up(message);
        }
        match self.wiring.decode(message.ty, &message.body) {
            Some(content) => self.step(Input::Message(message.src, content), cx),
            None => cx.log(Level::Warning, RuntimeEvent::MalformedMessage { ty: message.ty }),
        }
    }

    fn timer(&mut self, id: TimerId, cx: &mut Ctx<'_>) {
        if let Some(timer) = self.due.remove(&id) {
            self.timers.remove(&timer);
            self.step(Input::Timer(timer), cx);
        }
    }

    fn control(&mut self, what: &dyn Any, cx: &mut Ctx<'_>) {
        if let Some(request) = self.wiring.control(what) {
            self.step(Input::Request(request), cx);
        }
    }

    fn types(&self) -> &[RangeInclusive<u32>] {
        self.wiring.types()
    }
}
