//! Reliable broadcast: what one correct process delivers, all correct processes deliver; in no order.
//!
//! | mode | relayed by | delivered | messages |
//! |---|---|---|---|
//! | eager | all, on first receipt, to all but origin and self | at once | (n − 1)² |
//! | lazy | all, what an origin cast that is suspected | at once | n − 1 in good runs |
//! | uniform | all, to all, the origin too | when a majority is known to have it | n (n − 1) |
//!
//! Validity, agreement and integrity hold for reliable links and any crashes (uniform: of a
//! minority); lazy mode needs a detector that suspects every process that crashes, and relays the
//! last messages of each origin, as many as its window. Source: Hadzilacos, Toueg, *A modular
//! approach to fault-tolerant broadcasts*, 1994; lazy and uniform: Guerraoui, Rodrigues,
//! *Introduction to reliable distributed programming*, 2006, 3.3 and 3.4.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use bytes::{BufMut as _, Bytes, BytesMut};
use itg_members::wire::{Put as _, Take};
use itg_members::{Id, Member};
use itg_process::{Action, Dest, Input, Machine, Slot, Time};

use super::backlog::{Backlog, Novelty};
use super::entry::{Body, Entry, MOST_PAYLOAD};
use super::event::CastEvent;
use super::interface::{CastDelivery, CastRequest, code};

/// Effort of a process so that all have what one has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Relays everything.
    Eager,
    /// Relays the messages of suspected origins.
    Lazy,
    /// Relays everything, and delivers what a majority has.
    Uniform,
}

/// Type of the only message: name, then the message.
pub(crate) const DATA: u32 = 1450;

/// A message with its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Data(pub Id, pub Bytes);

impl Data {
    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(20 + self.1.len());
        out.id(self.0);
        out.put_slice(&self.1);
        out.freeze()
    }

    /// The message that these bytes are.
    #[must_use]
    pub fn decode(body: &Bytes) -> Option<Self> {
        let mut take = Take::new(body.clone());
        let id = take.id()?;
        let payload = take.rest();
        (payload.len() <= MOST_PAYLOAD).then_some(Self(id, payload))
    }
}

/// A process that casts and delivers.
#[derive(Debug)]
pub struct Reliable {
    mode: Mode,
    me: Member,
    members: u32,
    others: Arc<[Slot]>,
    next_seq: u64,
    delivered: u64,
    window: usize,
    backlog: Backlog,
    /// Uniform: processes known to have each message that is not delivered.
    having: BTreeMap<Id, BTreeSet<Slot>>,
    /// Lazy: the last messages of each origin; the processes that are suspected.
    last: BTreeMap<Member, VecDeque<(Id, Bytes)>>,
    suspected: BTreeSet<Slot>,
}

type Out = Vec<Action<Reliable>>;

impl Reliable {
    /// One of `members` processes.
    #[must_use]
    pub fn new(mode: Mode, me: Member, members: u32, window: u64) -> Self {
        let others = (0..members).map(Slot).filter(|slot| *slot != me.slot).collect();
        Self {
            mode,
            me,
            members,
            others,
            next_seq: 0,
            delivered: 0,
            window: usize::try_from(window).unwrap_or(usize::MAX),
            backlog: Backlog::new(window),
            having: BTreeMap::new(),
            last: BTreeMap::new(),
            suspected: BTreeSet::new(),
        }
    }

    fn relay(&self, id: Id, payload: &Bytes, out: &mut Out) {
        // The origin has it; in uniform mode it wants to know that others have it.
        let wants = |slot: &Slot| *slot != id.origin.slot || self.mode == Mode::Uniform;
        let to: Arc<[Slot]> = self.others.iter().copied().filter(wants).collect();
        if !to.is_empty() {
            out.push(Action::Send(Dest::Many(to), Data(id, payload.clone())));
        }
    }

    fn deliver(&mut self, id: Id, payload: Bytes, out: &mut Out) {
        let Novelty::Fresh(_) = self.backlog.deliver(id) else { return };
        self.having.remove(&id);
        let position = self.delivered;
        self.delivered += 1;
        let (origin, seq) = (code(id.origin), id.seq);
        out.push(Action::log(CastEvent::ReliableDeliver { origin, seq }));
        out.push(Action::Deliver(CastDelivery::Message { position, id, payload }));
    }

    fn data(&mut self, now: Time, src: Slot, id: Id, payload: Bytes, out: &mut Out) {
        if self.backlog.is_delivered(id) || id.origin.slot.0 >= self.members {
            return;
        }
        let entry = Entry { id, lamport: 0, body: Body::Message(payload.clone()) };
        let fresh = self.backlog.put(entry, now);
        if fresh && id.origin != self.me {
            match self.mode {
                Mode::Eager | Mode::Uniform => self.relay(id, &payload, out),
                Mode::Lazy if self.suspected.contains(&id.origin.slot) => {
                    self.relay(id, &payload, out);
                }
                Mode::Lazy => {}
            }
        }
        match self.mode {
            Mode::Eager => self.deliver(id, payload, out),
            Mode::Lazy => {
                let last = self.last.entry(id.origin).or_default();
                last.push_back((id, payload.clone()));
                if last.len() > self.window {
                    last.pop_front();
                }
                self.deliver(id, payload, out);
            }
            Mode::Uniform => {
                if self.backlog.get(id).is_none() {
                    return;
                }
                let having = self.having.entry(id).or_default();
                having.extend([self.me.slot, src, id.origin.slot]);
                if having.len() > self.members as usize / 2 {
                    self.deliver(id, payload, out);
                }
            }
        }
    }
}

impl Machine for Reliable {
    type Request = CastRequest;
    type Delivery = CastDelivery;
    type Message = Data;
    type Timer = ();

    fn handle(&mut self, now: Time, input: Input<Self>, out: &mut Out) {
        match input {
            Input::Request(CastRequest::Cast(payload)) => {
                let id = Id { origin: self.me, seq: self.next_seq };
                if payload.len() > MOST_PAYLOAD || !self.backlog.has_room(id) {
                    return out.push(Action::Deliver(CastDelivery::Busy(payload)));
                }
                self.next_seq += 1;
                let (origin, seq) = (code(self.me), id.seq);
                out.push(Action::log(CastEvent::ReliableCast { origin, seq }));
                if !self.others.is_empty() {
                    let to = Dest::Many(Arc::clone(&self.others));
                    out.push(Action::Send(to, Data(id, payload.clone())));
                }
                self.data(now, self.me.slot, id, payload, out);
            }
            Input::Request(CastRequest::Suspect(slot)) => {
                if self.suspected.insert(slot) && self.mode == Mode::Lazy {
                    let of = |member: &&Member| member.slot == slot;
                    let origins: Vec<Member> = self.last.keys().filter(of).copied().collect();
                    for (id, payload) in origins.iter().filter_map(|o| self.last.get(o)).flatten() {
                        self.relay(*id, payload, out);
                    }
                }
            }
            Input::Request(CastRequest::Trust(slot)) => {
                self.suspected.remove(&slot);
            }
            Input::Message(src, Data(id, payload)) => self.data(now, src, id, payload, out),
            Input::Start | Input::Timer(()) | Input::Request(_) => {}
        }
    }
}
