//! The three ordered broadcasts in their failure-free form: fixed sequencer, Skeen, Chandra–Toueg.
//!
//! They send exactly the messages of the papers; messages to oneself are free. Source: Défago, Schiper,
//! Urbán, ACM Computing Surveys 36(4), 2004.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use bytes::Bytes;
use itg_process::{
    Action, Adapter, ConfigError, Dest, Input, Layer, Machine, Message, Registry, Slot, Time,
    Wiring, types,
};

/// Which algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    Sequencer,
    Skeen,
    ChandraToueg,
}

pub const ALL: [Algorithm; 3] = [Algorithm::Sequencer, Algorithm::Skeen, Algorithm::ChandraToueg];

/// Origin and number of a broadcast.
type Id = (u64, u64);

/// What instances say to each other; the meaning of the last number depends on the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    Data(Id),
    /// Its number in the order.
    Order(Id, u64),
    /// Skeen: a timestamp for the sender.
    Stamp(Id, u64),
    Propose(Id),
    Ack(Id),
}

pub struct Broadcast {
    algorithm: Algorithm,
    me: Slot,
    n: u64,
    sent: u64,
    last: u64,
    clock: u64,
    got: BTreeSet<Id>,
    /// Skeen: own timestamps of broadcasts without a final number.
    pending: BTreeMap<Id, u64>,
    stamps: BTreeMap<Id, (u64, u64)>,
    acks: BTreeMap<Id, u64>,
    decided: BTreeSet<Id>,
    /// Number in the order to broadcast.
    order: BTreeMap<(u64, Id), ()>,
    next: u64,
}

/// The sequencer and the coordinator.
const LEADER: Slot = Slot(0);

impl Broadcast {
    fn new(algorithm: Algorithm, me: Slot, n: u32) -> Self {
        Self {
            algorithm,
            me,
            n: n.into(),
            sent: 0,
            last: 0,
            clock: 0,
            got: BTreeSet::new(),
            pending: BTreeMap::new(),
            stamps: BTreeMap::new(),
            acks: BTreeMap::new(),
            decided: BTreeSet::new(),
            order: BTreeMap::new(),
            next: 1,
        }
    }

    fn deliver_what_is_ready(&mut self, out: &mut Vec<Action<Self>>) {
        while let Some((&(number, id), ())) = self.order.first_key_value() {
            let ready = match self.algorithm {
                Algorithm::Skeen => {
                    self.pending.iter().all(|(&other, &ts)| (ts, other) > (number, id))
                }
                _ => number == self.next && self.got.contains(&id),
            };
            if !ready {
                return;
            }
            self.order.pop_first();
            self.next += 1;
            out.push(Action::Log("deliver", [id.0, id.1, number]));
            out.push(Action::Deliver(id));
        }
    }

    fn word(&mut self, src: Slot, word: Word, out: &mut Vec<Action<Self>>) {
        use Algorithm::{ChandraToueg, Sequencer, Skeen};
        match (self.algorithm, word) {
            (Sequencer, Word::Data(id)) => {
                self.got.insert(id);
                if self.me == LEADER {
                    self.last += 1;
                    out.push(Action::Send(Dest::All, Word::Order(id, self.last)));
                }
            }
            (Skeen, Word::Data(id)) => {
                self.clock += 1;
                self.pending.insert(id, self.clock);
                out.push(Action::Send(Dest::One(src), Word::Stamp(id, self.clock)));
            }
            (Skeen, Word::Stamp(id, ts)) => {
                let stamps = self.stamps.entry(id).or_default();
                *stamps = (stamps.0 + 1, stamps.1.max(ts));
                if stamps.0 == self.n {
                    out.push(Action::Send(Dest::All, Word::Order(id, stamps.1)));
                }
            }
            (Skeen, Word::Order(id, number)) => {
                self.clock = self.clock.max(number);
                self.pending.remove(&id);
                self.order.insert((number, id), ());
            }
            (ChandraToueg, Word::Data(id)) => {
                self.got.insert(id);
                if self.me == LEADER {
                    out.push(Action::Send(Dest::All, Word::Propose(id)));
                }
            }
            (ChandraToueg, Word::Propose(id)) => {
                out.push(Action::Send(Dest::One(src), Word::Ack(id)));
            }
            (ChandraToueg, Word::Ack(id)) => {
                let acks = self.acks.entry(id).or_default();
                *acks += 1;
                if *acks > self.n / 2 && self.decided.insert(id) {
                    self.last += 1;
                    out.push(Action::Send(Dest::All, Word::Order(id, self.last)));
                }
            }
            (_, Word::Order(id, number)) => {
                self.order.insert((number, id), ());
            }
            _ => {}
        }
        self.deliver_what_is_ready(out);
    }
}

impl Machine for Broadcast {
    type Request = ();
    type Delivery = Id;
    type Message = Word;
    type Timer = ();

    fn handle(&mut self, _now: Time, input: Input<Self>, out: &mut Vec<Action<Self>>) {
        match input {
            Input::Request(()) => {
                let id = (self.me.0.into(), self.sent);
                self.sent += 1;
                out.push(Action::Send(Dest::All, Word::Data(id)));
            }
            Input::Message(src, word) => self.word(src, word, out),
            Input::Start | Input::Timer(()) => {}
        }
    }
}

/// Types 1400 to 1404, bodies of three numbers.
struct Wires;

const TYPES: [RangeInclusive<u32>; 1] = [types::BROADCAST];
/// A request from above: broadcast something.
pub const REQUEST: u32 = 1;
/// A delivery to above.
pub const DELIVERY: u32 = 2;

impl Wiring<Broadcast> for Wires {
    fn types(&self) -> &[RangeInclusive<u32>] {
        &TYPES
    }

    fn encode(&self, word: &Word) -> (u32, Bytes) {
        let (ty, id, number) = match *word {
            Word::Data(id) => (1400, id, 0),
            Word::Order(id, number) => (1401, id, number),
            Word::Stamp(id, ts) => (1402, id, ts),
            Word::Propose(id) => (1403, id, 0),
            Word::Ack(id) => (1404, id, 0),
        };
        (ty, [id.0, id.1, number].map(u64::to_le_bytes).concat().into())
    }

    fn decode(&self, ty: u32, body: &Bytes) -> Option<Word> {
        let number = |k: usize| -> Option<u64> {
            Some(u64::from_le_bytes(body.get(8 * k..8 * k + 8)?.try_into().ok()?))
        };
        let (id, last) = ((number(0)?, number(1)?), number(2)?);
        match ty {
            1400 => Some(Word::Data(id)),
            1401 => Some(Word::Order(id, last)),
            1402 => Some(Word::Stamp(id, last)),
            1403 => Some(Word::Propose(id)),
            1404 => Some(Word::Ack(id)),
            _ => None,
        }
    }

    fn request(&self, message: Message) -> Result<(), Message> {
        if message.ty == REQUEST { Ok(()) } else { Err(message) }
    }

    fn delivery(&mut self, me: Slot, id: Id) -> Message {
        Message::new(me, DELIVERY, [id.0, id.1].map(u64::to_le_bytes).concat())
    }
}

/// The registry with the layers `sequencer`, `skeen` and `chandra-toueg`.
pub fn layers(registry: Registry) -> Registry {
    let make = |algorithm| {
        move |build: &mut itg_process::Build<'_>| -> Result<Box<dyn Layer>, ConfigError> {
            let machine = Broadcast::new(algorithm, build.me, build.n);
            Ok(Box::new(Adapter::new(machine, Wires)))
        }
    };
    registry
        .with("sequencer", make(Algorithm::Sequencer))
        .with("skeen", make(Algorithm::Skeen))
        .with("chandra-toueg", make(Algorithm::ChandraToueg))
}

impl Algorithm {
    pub fn name(self) -> &'static str {
        match self {
            Self::Sequencer => "sequencer",
            Self::Skeen => "skeen",
            Self::ChandraToueg => "chandra-toueg",
        }
    }
}
