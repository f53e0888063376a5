//! The three classical broadcasts in their failure-free form: fixed sequencer, Skeen, Chandra–Toueg.
//!
//! They send exactly the messages of the papers, 2, 3 and 4 times (n − 1) for a broadcast: nothing
//! is batched or carried along, messages to oneself are free. Assumes reliable links and no
//! crashes; the uniform forms are for crashes.
//!
//! | | steps of the special process | of the others | messages |
//! |---|---|---|---|
//! | Sequencer | 1 (the sequencer) | 2 | 2 (n − 1) |
//! | Skeen | 2 (the sender) | 3 | 3 (n − 1) |
//! | Chandra–Toueg | 3 (the coordinator; 2 if it casts) | 4 (3 if it casts) | 4 (n − 1) |
//!
//! Source: Défago, Schiper, Urbán, ACM Computing Surveys 36(4), 2004; the thesis runs a consensus on
//! each message's time, which orders nothing among instances: here instances are numbered and decide
//! batches of names. Skeen: ties are broken by name, and a final number raises the receiver's clock.
//!
//! A process beyond the members is a client (case A): it casts, and delivers nothing. Its collector
//! in Skeen's algorithm is a member, so that its crash blocks no other.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::{BufMut as _, Bytes, BytesMut};
use itg_members::wire::{Put as _, Take};
use itg_members::{Id, Member};
use itg_process::{Action, Dest, Input, Machine, Slot, Time};

use super::entry::MOST_PAYLOAD;
use super::event::CastEvent;
use super::interface::{CastDelivery, CastRequest, code};
use super::mutant::{Mutant, Planted};

/// Algorithm of a broadcast.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Algorithm {
    /// A fixed process numbers the messages.
    Sequencer,
    /// The sender takes the greatest of all members' timestamps.
    Skeen,
    /// Consensus with a fixed coordinator.
    ChandraToueg,
}

impl Algorithm {
    /// All of them, by the number of their steps.
    pub const ALL: [Self; 3] = [Self::Sequencer, Self::Skeen, Self::ChandraToueg];

    /// The name of its layer.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sequencer => "sequencer",
            Self::Skeen => "skeen",
            Self::ChandraToueg => "chandra-toueg",
        }
    }
}

/// Message between the members.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Word {
    /// A message.
    Data(Id, Bytes),
    /// Sequencer: its number. Skeen: its final number.
    Order(Id, u64),
    /// Skeen: a timestamp for the collector.
    Stamp(Id, u64),
    /// Chandra–Toueg: the proposal of an instance.
    Propose(u64, Vec<Id>),
    /// A vote for it.
    Ack(u64),
    /// It is decided.
    Decide(u64, Vec<Id>),
}

/// Type of the first kind of message, and of the last.
pub(crate) const FIRST: u32 = 1400;
pub(crate) const LAST: u32 = 1405;

impl Word {
    /// Type and bytes: `Data` 1400, `Order` 1401, `Stamp` 1402 (name, then message or number),
    /// `Propose` 1403, `Ack` 1404, `Decide` 1405 (instance, then number of names and names).
    #[must_use]
    pub fn encode(&self) -> (u32, Bytes) {
        let mut out = BytesMut::new();
        let ids = |out: &mut BytesMut, k: u64, ids: &[Id]| {
            out.put_u64_le(k);
            out.put_u32_le(u32::try_from(ids.len()).unwrap_or(u32::MAX));
            ids.iter().for_each(|id| out.id(*id));
        };
        let kind = match self {
            Self::Data(id, payload) => {
                out.id(*id);
                out.blob(payload);
                0
            }
            Self::Order(id, number) => {
                out.id(*id);
                out.put_u64_le(*number);
                1
            }
            Self::Stamp(id, ts) => {
                out.id(*id);
                out.put_u64_le(*ts);
                2
            }
            Self::Propose(k, batch) => {
                ids(&mut out, *k, batch);
                3
            }
            Self::Ack(k) => {
                out.put_u64_le(*k);
                4
            }
            Self::Decide(k, batch) => {
                ids(&mut out, *k, batch);
                5
            }
        };
        (FIRST + kind, out.freeze())
    }

    /// The message that these bytes of this type are.
    #[must_use]
    pub fn decode(ty: u32, body: &Bytes) -> Option<Self> {
        let mut take = Take::new(body.clone());
        let word = match ty.checked_sub(FIRST)? {
            0 => Self::Data(take.id()?, take.blob(MOST_PAYLOAD)?),
            1 => Self::Order(take.id()?, take.u64()?),
            2 => Self::Stamp(take.id()?, take.u64()?),
            3 => Self::Propose(take.u64()?, take.list(20, Take::id)?),
            4 => Self::Ack(take.u64()?),
            5 => Self::Decide(take.u64()?, take.list(20, Take::id)?),
            _ => return None,
        };
        take.end(word)
    }
}

/// The sequencer, and the coordinator.
const LEADER: Slot = Slot(0);
/// Messages of all origins that may wait: what comes beyond is dropped, and said to be.
const MOST_WAITING: usize = 1 << 16;
/// Names in one proposal.
const BATCH: usize = 1024;

/// A member, or a client, of one of the three broadcasts.
#[derive(Clone, Debug)]
pub struct Thesis {
    algorithm: Algorithm,
    me: Member,
    /// Number of members: slots from 0.
    members: u32,
    window: u64,
    planted: Planted,
    /// All members but this process, if it is one.
    others: Arc<[Slot]>,
    next_seq: u64,
    /// Own messages that are not delivered.
    own: u64,
    position: u64,
    /// Messages by name that are not delivered.
    got: BTreeMap<Id, Bytes>,
    /// Names in the order of delivery: by number, and by name among equals.
    order: BTreeMap<(u64, Id), ()>,
    /// Numbers given, or instances begun; the next one to be delivered.
    last: u64,
    next: u64,
    /// Skeen: the clock, own timestamps of messages without a final number, timestamps collected.
    clock: u64,
    pending: BTreeMap<Id, u64>,
    stamps: BTreeMap<Id, (u32, u64)>,
    /// Chandra–Toueg: names that are in no instance; the proposal under way and its votes; decisions.
    fresh: BTreeSet<Id>,
    named: BTreeSet<Id>,
    proposal: Option<(Vec<Id>, u32)>,
    decided: BTreeMap<u64, Vec<Id>>,
}

type Out = Vec<Action<Thesis>>;

impl Thesis {
    /// A process of a group of `members`; beyond these it is a client.
    #[must_use]
    pub fn new(
        algorithm: Algorithm,
        me: Member,
        members: u32,
        window: u64,
        planted: Planted,
    ) -> Self {
        let others = (0..members).map(Slot).filter(|slot| *slot != me.slot).collect();
        Self {
            algorithm,
            me,
            members,
            window,
            planted,
            others,
            next_seq: 0,
            own: 0,
            position: 0,
            got: BTreeMap::new(),
            order: BTreeMap::new(),
            last: 0,
            next: 1,
            clock: 0,
            pending: BTreeMap::new(),
            stamps: BTreeMap::new(),
            fresh: BTreeSet::new(),
            named: BTreeSet::new(),
            proposal: None,
            decided: BTreeMap::new(),
        }
    }

    fn is_member(&self) -> bool {
        self.me.slot.0 < self.members
    }

    /// Process that collects the timestamps of a message.
    fn collector(&self, id: Id) -> Slot {
        if id.origin.slot.0 < self.members {
            return id.origin.slot;
        }
        let at = (u64::from(id.origin.slot.0) + id.seq) % u64::from(self.members.max(1));
        Slot(u32::try_from(at).unwrap_or(0))
    }

    fn tell_all(&mut self, word: Word, out: &mut Out) {
        if !self.others.is_empty() {
            out.push(Action::Send(Dest::Many(Arc::clone(&self.others)), word.clone()));
        }
        if self.is_member() {
            self.word(self.me.slot, word, out);
        }
    }

    fn tell_one(&mut self, to: Slot, word: Word, out: &mut Out) {
        if to == self.me.slot {
            self.word(to, word, out);
        } else {
            out.push(Action::Send(Dest::One(to), word));
        }
    }

    fn cast(&mut self, payload: Bytes, out: &mut Out) {
        if (self.is_member() && self.own >= self.window) || payload.len() > MOST_PAYLOAD {
            return out.push(Action::Deliver(CastDelivery::Busy(payload)));
        }
        let id = Id { origin: self.me, seq: self.next_seq };
        self.next_seq += 1;
        self.own += u64::from(self.is_member());
        self.clock += 1;
        out.push(Action::log(CastEvent::Cast { origin: code(self.me), seq: id.seq }));
        self.tell_all(Word::Data(id, payload), out);
    }

    /// Steps are those of the table above, counted from the cast.
    fn word(&mut self, src: Slot, word: Word, out: &mut Out) {
        match (self.algorithm, word) {
            // Step 1 of all three: the message goes to all.
            (_, Word::Data(..)) if self.got.len() >= MOST_WAITING => {
                let waiting = self.got.len() as u64;
                out.push(Action::log(CastEvent::TooManyWait { waiting }));
            }
            (algorithm, Word::Data(id, payload)) => {
                self.got.insert(id, payload);
                match algorithm {
                    // Sequencer, step 2: its number to all.
                    Algorithm::Sequencer if self.me.slot == LEADER => {
                        self.last += 1;
                        self.tell_all(Word::Order(id, self.last), out);
                    }
                    // Skeen, step 2: a timestamp to the collector; the message is pending until it has a number.
                    Algorithm::Skeen => {
                        self.clock += 1;
                        self.pending.insert(id, self.clock);
                        self.tell_one(self.collector(id), Word::Stamp(id, self.clock), out);
                    }
                    // Chandra–Toueg, step 2: the coordinator proposes. Its first round needs no estimates.
                    Algorithm::ChandraToueg if !self.named.contains(&id) => {
                        self.fresh.insert(id);
                        self.propose(out);
                    }
                    Algorithm::Sequencer | Algorithm::ChandraToueg => {}
                }
            }
            // Skeen, step 3: the greatest timestamp of all is the number, to all.
            (Algorithm::Skeen, Word::Stamp(id, ts)) => {
                let stamps = self.stamps.entry(id).or_default();
                *stamps = (stamps.0 + 1, stamps.1.max(ts));
                if stamps.0 == self.members {
                    let (_, number) = self.stamps.remove(&id).unwrap_or_default();
                    self.tell_all(Word::Order(id, number), out);
                }
            }
            // Skeen, after step 3: the clock is not below the number, or a later message could get a smaller one.
            (Algorithm::Skeen, Word::Order(id, number)) => {
                if !self.planted.is(Mutant::NoMaxRule) {
                    self.clock = self.clock.max(number);
                }
                self.pending.remove(&id);
                self.order.insert((number, id), ());
            }
            // Sequencer, after step 2: delivered in the order of the numbers.
            (Algorithm::Sequencer, Word::Order(id, number)) => {
                self.order.insert((number, id), ());
            }
            // Chandra–Toueg, step 3 (phase 3 of the paper): there are no suspicions, so the answer
            // is ACK.
            (Algorithm::ChandraToueg, Word::Propose(k, _)) => {
                self.tell_one(src, Word::Ack(k), out);
            }
            // Chandra–Toueg, step 4 (phase 4): a majority of ACK decides, and the decision goes to all.
            (Algorithm::ChandraToueg, Word::Ack(k)) if k == self.last => {
                let majority = self.members / 2 + 1;
                let Some((_, votes)) = &mut self.proposal else { return };
                *votes += 1;
                if *votes >= majority
                    && let Some((batch, _)) = self.proposal.take()
                {
                    self.tell_all(Word::Decide(k, batch), out);
                }
            }
            // Chandra–Toueg, after step 4: instances are delivered one after the other.
            (Algorithm::ChandraToueg, Word::Decide(k, batch)) => {
                for id in &batch {
                    self.fresh.remove(id);
                    if !self.got.contains_key(id) {
                        self.named.insert(*id);
                    }
                }
                self.decided.insert(k, batch);
            }
            _ => {}
        }
        self.deliver_what_is_ready(out);
    }

    /// The coordinator begins the next instance when none is under way.
    fn propose(&mut self, out: &mut Out) {
        if self.me.slot != LEADER || self.proposal.is_some() || self.fresh.is_empty() {
            return;
        }
        let batch: Vec<Id> = self.fresh.iter().take(BATCH).copied().collect();
        batch.iter().for_each(|id| {
            self.fresh.remove(id);
        });
        self.last += 1;
        self.proposal = Some((batch.clone(), 0));
        self.tell_all(Word::Propose(self.last, batch), out);
    }

    fn deliver_what_is_ready(&mut self, out: &mut Out) {
        match self.algorithm {
            Algorithm::Sequencer => {
                while let Some((&(number, id), ())) = self.order.first_key_value()
                    && number == self.next
                    && let Some(payload) = self.got.remove(&id)
                {
                    self.order.pop_first();
                    self.next += 1;
                    self.deliver(id, payload, out);
                }
            }
            Algorithm::Skeen => {
                while let Some((&(number, id), ())) = self.order.first_key_value() {
                    let ties = !self.planted.is(Mutant::NoTieBreak);
                    let before = |other: &Id, ts: u64| match ties {
                        true => (ts, *other) < (number, id),
                        false => ts < number,
                    };
                    let waits = self.pending.iter().any(|(other, ts)| before(other, *ts));
                    if waits || !self.got.contains_key(&id) {
                        return;
                    }
                    self.order.pop_first();
                    let payload = self.got.remove(&id).unwrap_or_default();
                    self.deliver(id, payload, out);
                }
            }
            Algorithm::ChandraToueg => {
                while let Some(batch) = self.decided.get(&self.next)
                    && batch.iter().all(|id| self.got.contains_key(id))
                {
                    let batch = self.decided.remove(&self.next).unwrap_or_default();
                    self.next += 1;
                    for id in batch {
                        self.named.remove(&id);
                        let payload = self.got.remove(&id).unwrap_or_default();
                        self.deliver(id, payload, out);
                    }
                    self.propose(out);
                }
            }
        }
    }

    fn deliver(&mut self, id: Id, payload: Bytes, out: &mut Out) {
        self.own -= u64::from(id.origin == self.me);
        let position = self.position;
        self.position += 1;
        let (origin, seq) = (code(id.origin), id.seq);
        out.push(Action::log(CastEvent::Deliver { origin, seq, position }));
        out.push(Action::Deliver(CastDelivery::Message { position, id, payload }));
    }
}

impl Machine for Thesis {
    type Request = CastRequest;
    type Delivery = CastDelivery;
    type Message = Word;
    type Timer = ();

    fn handle(&mut self, _now: Time, input: Input<Self>, out: &mut Out) {
        match input {
            Input::Request(CastRequest::Cast(payload)) => self.cast(payload, out),
            // Membership is fixed.
            Input::Request(CastRequest::Change(_, with)) => {
                out.push(Action::Deliver(CastDelivery::Busy(with)))
            }
            Input::Message(src, word) if self.is_member() => self.word(src, word, out),
            Input::Message(..) | Input::Request(_) | Input::Start | Input::Timer(()) => {}
        }
    }
}
