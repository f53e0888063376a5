//! Numbers of messages within an epoch: given, held, stable, delivered.

use std::collections::{BTreeMap, BTreeSet};

use itg_members::{Id, Member};
use itg_process::{Action, Slot};

use super::history::AGAIN;
use super::note::Note;
use super::{EpochMessage, Fast, Out, Uniform};
use crate::cast::event::CastEvent;
use crate::cast::mutant::Mutant;

/// Known orders of an epoch.
#[derive(Clone, Debug, Default, Hash)]
pub(super) struct Orders {
    /// Known numbers of messages that are not delivered, both ways.
    numbers: BTreeMap<Id, u64>,
    order: BTreeSet<(u64, Id)>,
    /// Sequencer: the last number given; all orders up to `held` are held; number held by each
    /// member.
    last: u64,
    held: u64,
    holders: BTreeMap<Member, u64>,
    /// A majority of the core holds all orders up to here.
    pub(super) stable: u64,
    /// Skeen: the clock; own timestamps of messages without a number; stamps collected; holders of
    /// each number; numbers that a majority holds.
    clock: u64,
    pending: BTreeMap<Id, u64>,
    stamps: BTreeMap<Id, BTreeMap<Member, u64>>,
    holding: BTreeMap<Id, BTreeSet<Member>>,
    stable_ones: BTreeSet<Id>,
    /// The last one of those that has been said again.
    said: Option<(u64, Id)>,
}

impl Orders {
    pub(super) fn forget(&mut self, id: Id) {
        if let Some(number) = self.numbers.remove(&id) {
            self.order.remove(&(number, id));
        }
        self.pending.remove(&id);
        self.stamps.remove(&id);
        self.holding.remove(&id);
        self.stable_ones.remove(&id);
    }

    pub(super) fn stable_one(&mut self, id: Id) {
        if self.numbers.contains_key(&id) {
            self.stable_ones.insert(id);
        }
    }

    /// Skeen: returns true if a majority holds the number of a message.
    pub(super) fn is_stable(&self, id: Id) -> bool {
        self.stable_ones.contains(&id)
    }

    /// Skeen: returns true if a member has told that it holds an own message with its number.
    fn holds(&self, id: Id, member: Member) -> bool {
        self.holding.get(&id).is_some_and(|holding| holding.contains(&member))
    }

    /// A number of a message.
    pub(super) fn know(&mut self, id: Id, number: u64) {
        self.pending.remove(&id);
        self.numbers.insert(id, number);
        self.order.insert((number, id));
        self.clock = self.clock.max(number);
    }

    /// Skeen: the own timestamp of a message.
    pub(super) fn stamped(&mut self, id: Id, ts: u64) {
        self.clock_is(ts);
        if !self.numbers.contains_key(&id) {
            self.pending.insert(id, ts);
        }
    }

    /// Skeen: the clock has been so far.
    pub(super) fn clock_is(&mut self, clock: u64) {
        self.clock = self.clock.max(clock);
    }

    /// Skeen: the clock.
    pub(super) const fn clock_now(&self) -> u64 {
        self.clock
    }

    /// Skeen: own timestamps of messages without a number.
    pub(super) fn pending_stamps(&self) -> impl Iterator<Item = (Id, u64)> {
        self.pending.iter().map(|(id, ts)| (*id, *ts))
    }

    /// Sequencer: numbers go on behind those that were given, of which so many are delivered.
    pub(super) fn count_on(&mut self, done: u64) {
        let known = self.order.last().map_or(0, |(number, _)| *number);
        self.last = self.last.max(known).max(done);
    }

    /// The numbers that are known.
    pub(super) fn numbers(&self) -> Vec<(Id, u64)> {
        self.numbers.iter().map(|(id, number)| (*id, *number)).collect()
    }
}

impl Uniform {
    /// A message has come, perhaps again.
    pub(super) fn data(&mut self, id: Id, out: &mut Out) {
        match self.fast {
            Fast::Sequencer => {
                if self.leader() == self.me.slot && !self.epoch.orders.numbers.contains_key(&id) {
                    self.epoch.orders.last += 1;
                    let number = self.epoch.orders.last;
                    self.note(&Note::Order(self.view.no(), id, number), out);
                    self.tell_all(EpochMessage::Order(id, number), out);
                    self.epoch.orders.numbers.insert(id, number);
                    self.epoch.orders.order.insert((number, id));
                }
                self.hold(out);
            }
            Fast::Skeen => {
                if self.epoch.orders.numbers.contains_key(&id) {
                    return self.hold_one(id, out);
                }
                let (orders, epoch) = (&mut self.epoch.orders, self.view.no());
                let (fresh, known) = (orders.clock + 1, orders.pending.contains_key(&id));
                let ts = *orders.pending.entry(id).or_insert(fresh);
                orders.clock = orders.clock.max(ts);
                if !known {
                    self.note(&Note::Stamp(epoch, id, ts), out);
                }
                self.tell(id.origin.slot, EpochMessage::Stamp(id, ts), out);
            }
        }
    }

    /// A number has come, perhaps again.
    pub(super) fn order(&mut self, id: Id, number: u64, out: &mut Out) {
        if self.learn(id, number, out) {
            match self.fast {
                Fast::Sequencer => self.hold(out),
                Fast::Skeen => self.hold_one(id, out),
            }
        }
    }

    /// Stores a number, if it is of a message that waits for one.
    pub(super) fn learn(&mut self, id: Id, number: u64, out: &mut Out) -> bool {
        if self.backlog.is_delivered(id) || !self.view.contains(id.origin) {
            return false;
        }
        if self.epoch.orders.numbers.get(&id) != Some(&number) {
            self.note(&Note::Order(self.view.no(), id, number), out);
        }
        self.epoch.orders.pending.remove(&id);
        self.epoch.orders.numbers.insert(id, number);
        self.epoch.orders.order.insert((number, id));
        if self.fast == Fast::Skeen && !self.settings.planted.is(Mutant::NoMaxRule) {
            self.epoch.orders.clock = self.epoch.orders.clock.max(number);
        }
        true
    }

    fn fence(&self) -> bool {
        self.epoch.fenced.is_some() && !self.settings.planted.is(Mutant::NoFence)
    }

    /// Sequencer: acknowledges all orders that are held without a gap, with their messages.
    fn hold(&mut self, out: &mut Out) {
        let before = self.epoch.orders.held;
        self.epoch.orders.held = before.max(self.done());
        loop {
            let next = self.epoch.orders.held + 1;
            let found = self.epoch.orders.order.range((next, Id::FIRST)..).next().copied();
            match found {
                Some((number, id)) if number == next && self.backlog.get(id).is_some() => {
                    self.epoch.orders.held = next;
                }
                _ => break,
            }
        }
        if self.epoch.orders.held > before && self.is_core() && !self.fence() {
            let (leader, held) = (self.leader(), self.epoch.orders.held);
            self.tell(leader, EpochMessage::Held(held), out);
        }
    }

    /// Skeen: acknowledges a final number whose message is here.
    fn hold_one(&mut self, id: Id, out: &mut Out) {
        if self.is_core() && !self.fence() && self.backlog.get(id).is_some() {
            self.tell(id.origin.slot, EpochMessage::HeldOne(id), out);
        }
    }

    /// Sequencer: a member holds all orders up to a number.
    pub(super) fn held(&mut self, from: Member, number: u64, out: &mut Out) {
        if self.leader() != self.me.slot || !self.view.core().contains(&from) {
            return;
        }
        let known = self.epoch.orders.holders.entry(from).or_insert(0);
        *known = (*known).max(number);
        let mut held: Vec<u64> = self.epoch.orders.holders.values().copied().collect();
        held.sort_unstable_by(|a, b| b.cmp(a));
        if let Some(&stable) = held.get(self.view.majority() - 1)
            && stable > self.epoch.orders.stable
        {
            self.tell_all(EpochMessage::Stable(stable), out);
            self.epoch.orders.stable = stable;
        }
    }

    /// Skeen: a timestamp at the collector.
    pub(super) fn stamp(&mut self, from: Member, id: Id, ts: u64, out: &mut Out) {
        if id.origin != self.me || self.backlog.get(id).is_none() {
            return;
        }
        if let Some(&number) = self.epoch.orders.numbers.get(&id) {
            return self.tell(from.slot, EpochMessage::Order(id, number), out);
        }
        let stamps = self.epoch.orders.stamps.entry(id).or_default();
        stamps.insert(from, ts);
        if stamps.len() == self.view.len() as usize {
            let number = stamps.values().copied().max().unwrap_or(0);
            self.epoch.orders.stamps.remove(&id);
            self.tell_all(EpochMessage::Order(id, number), out);
        }
    }

    /// Skeen: a member holds a final number.
    pub(super) fn held_one(&mut self, from: Member, id: Id, out: &mut Out) {
        let known = self.epoch.orders.numbers.contains_key(&id);
        if id.origin != self.me || !known || !self.view.core().contains(&from) {
            return;
        }
        let holding = self.epoch.orders.holding.entry(id).or_default();
        holding.insert(from);
        if holding.len() >= self.view.majority() && !self.epoch.orders.stable_ones.contains(&id) {
            self.epoch.orders.stable_ones.insert(id);
            self.tell_others(EpochMessage::StableOne(id), out);
        }
    }

    pub(super) fn deliver_what_is_ready(&mut self, out: &mut Out) {
        let early = self.settings.planted.is(Mutant::BeforeStable);
        while let Some(&(number, id)) = self.epoch.orders.order.first() {
            let ready = match self.fast {
                Fast::Sequencer => {
                    number == self.done() + 1 && (number <= self.epoch.orders.stable || early)
                }
                Fast::Skeen => {
                    let before = |(other, ts): (&Id, &u64)| (*ts, *other) < (number, id);
                    let stable = self.epoch.orders.stable_ones.contains(&id) || early;
                    stable && !self.epoch.orders.pending.iter().any(before)
                }
            };
            let Some(payload) = self.payload(id).filter(|_| ready) else { return };
            self.deliver(id, payload, out);
        }
    }

    /// Returns true if nobody but this member sends an own message again. The sequencer does it with those
    /// that it has numbered; a message of Skeen's that a majority holds with its number needs no other copy.
    pub(super) fn is_mine_to_repeat(&self, id: Id) -> bool {
        match self.fast {
            Fast::Sequencer => !self.epoch.orders.numbers.contains_key(&id),
            Fast::Skeen => !self.epoch.orders.is_stable(id),
        }
    }

    /// Members that have not told that they have an own message, as far as its order waits for them.
    pub(super) fn lacking(&self, id: Id) -> Vec<Slot> {
        match (self.fast, self.epoch.orders.numbers.contains_key(&id)) {
            (Fast::Sequencer, known) => [self.leader()].into_iter().filter(|_| !known).collect(),
            (Fast::Skeen, false) => {
                let stamps = self.epoch.orders.stamps.get(&id);
                let has = |slot: &Slot| self.view.at(*slot).and_then(|m| stamps?.get(&m)).is_some();
                self.view.slots().filter(|slot| !has(slot)).collect()
            }
            (Fast::Skeen, true) => {
                let core =
                    self.view.core().iter().filter(|member| !self.epoch.orders.holds(id, **member));
                core.map(|member| member.slot).collect()
            }
        }
    }

    /// Sequencer: the other members, and the number up to which each has told that it holds all.
    fn known_of_others(&self) -> Vec<(Slot, u64)> {
        let known = |slot: &Slot| {
            let held =
                self.view.at(*slot).and_then(|member| self.epoch.orders.holders.get(&member));
            let done = self.epoch.progress.of(*slot);
            (*slot, held.copied().unwrap_or(0).max(done))
        };
        self.epoch.others.iter().map(known).collect()
    }

    /// Sends again what may have been lost within the epoch, to those that have not told that they have it.
    pub(super) fn say_again(&mut self, out: &mut Out) {
        match self.fast {
            Fast::Sequencer => {
                if self.leader() == self.me.slot {
                    let open: Vec<_> =
                        self.epoch.orders.order.iter().take(AGAIN).copied().collect();
                    let known = self.known_of_others();
                    for (number, id) in open {
                        let to = known.iter().filter(|(_, known)| *known < number);
                        let to: Vec<Slot> = to.map(|(slot, _)| *slot).collect();
                        self.tell_some(&to, EpochMessage::Order(id, number), out);
                        if let Some(payload) = self.payload(id) {
                            self.tell_some(&to, EpochMessage::Data(id, payload), out);
                        }
                    }
                } else if self.epoch.orders.held > self.done() && self.is_core() && !self.fence() {
                    let (leader, held): (Slot, u64) = (self.leader(), self.epoch.orders.held);
                    self.tell(leader, EpochMessage::Held(held), out);
                }
                if self.leader() == self.me.slot && self.epoch.orders.stable > 0 {
                    self.tell_others(EpochMessage::Stable(self.epoch.orders.stable), out);
                }
            }
            Fast::Skeen => {
                // Numbers that a majority may not hold yet, and in turns those that it does: any
                // that a member lacks may hold up all that have greater ones.
                let own = |(_, id): &&(u64, Id)| id.origin == self.me;
                let own = self.epoch.orders.order.iter().filter(own).copied();
                let (mut stable, open): (Vec<_>, Vec<_>) =
                    own.partition(|(_, id)| self.epoch.orders.is_stable(*id));
                let next = stable.partition_point(|one| Some(*one) <= self.epoch.orders.said);
                stable.rotate_left(next);
                stable.truncate(AGAIN);
                self.epoch.orders.said = stable.last().copied();
                for (number, id) in open.into_iter().take(AGAIN) {
                    let holds = |slot: Slot| {
                        self.view.at(slot).is_some_and(|member| self.epoch.orders.holds(id, member))
                    };
                    let to = self.epoch.others.iter().copied().filter(|slot| !holds(*slot));
                    let to: Vec<Slot> = to.collect();
                    self.tell_some(&to, EpochMessage::Order(id, number), out);
                }
                if !stable.is_empty() {
                    let stable = stable.into_iter().map(|(number, id)| (id, number)).collect();
                    self.tell_others(EpochMessage::StableOnes(stable), out);
                }
            }
        }
        if self.epoch.orders.order.len() > AGAIN {
            out.push(Action::sometimes(CastEvent::ManyOrdersOpen));
        }
    }
}
