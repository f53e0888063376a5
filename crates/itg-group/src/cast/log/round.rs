//! The rounds of one instance: estimates, proposal, votes, decision.
//!
//! "Phase 1" to "phase 4" at an arm are those of a round of the ◇S algorithm in Chandra, Toueg, JACM 43(2), 1996:
//! estimates to the coordinator, its proposal, the wait with ACK or NACK, and the count of the answers. "Ours" is
//! what the paper does not have.
//!
//! Rules that carry safety: an estimate is adopted before it is acknowledged; no member
//! acknowledges a round lower than one that it entered; a member that proposes in a round above 0
//! takes the value with the greatest time of a majority; one proposal in a round; the majority is
//! that of the core of the instance; the first coordinator follows from the decided value's author.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use itg_members::{Id, Member};
use itg_process::{Action, Slot, Time};

use super::journal::Record;
use super::{Log, LogBody, Out, Timer};
use crate::cast::entry::{Body, Entry, Value};
use crate::cast::event::CastEvent;
use crate::cast::mutant::Mutant;

/// Rounds that a coordinator keeps behind its own.
const MOST_ROUNDS: usize = 64;
/// Bytes of large payloads that one batch names.
const MOST_HELD: usize = 8 << 20;
/// Rounds ahead that are believed.
const MOST_AHEAD: u32 = 1 << 20;
/// Largest number of doublings of the time-out of a round.
const MOST_DOUBLINGS: u32 = 4;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Phase {
    #[default]
    Idle,
    Wait,
    Acked,
}

/// State of a round at its coordinator.
#[derive(Clone, Debug, Default, Hash)]
struct Round {
    estimates: BTreeMap<Member, (u32, Arc<Value>)>,
    proposed: Option<Arc<Value>>,
    acks: BTreeSet<Member>,
    aborted: bool,
}

/// The instance in progress.
#[derive(Clone, Debug, Default, Hash)]
pub(crate) struct Instance {
    pub(super) r: u32,
    /// The estimate, and one more than the round of its adoption; none stands for one's own batch.
    pub(super) estimate: Option<Arc<Value>>,
    pub(super) ts: u32,
    phase: Phase,
    rounds: BTreeMap<u32, Round>,
    /// A proposal of the present round that names payloads which are missing.
    late: Option<Arc<Value>>,
    /// True if everything has been sent again in this round.
    nudged: bool,
}

impl Instance {
    /// Returns true if nothing is to be decided yet.
    pub(super) fn is_idle(&self) -> bool {
        self.phase == Phase::Idle
    }
}

impl Log {
    pub(crate) fn coordinator(&self, r: u32) -> Member {
        let at = (self.base + r as usize) % self.places.core.len().max(1);
        self.places.core.get(at).copied().unwrap_or(self.me)
    }

    fn majority(&self) -> usize {
        match self.settings.planted.is(Mutant::HalfIsMajority) {
            true => (self.places.core.len() / 2).max(1),
            false => self.places.core.len() / 2 + 1,
        }
    }

    /// Messages that wait here, as a value.
    fn own_batch(&self) -> Arc<Value> {
        let settings = &self.settings;
        let mut held = 0;
        let (most, bytes) = (settings.batch_msgs, settings.batch_bytes);
        let name = |entry: &Entry| match &entry.body {
            Body::Message(payload) if payload.len() > settings.inline_max => {
                let len = u32::try_from(payload.len()).unwrap_or(u32::MAX);
                Entry { body: Body::Held(len), ..*entry }
            }
            _ => entry.clone(),
        };
        // Large payloads count for the batch with what they take on the wire: their names.
        let mut inline = 0;
        let fits = |entry: &&Entry| {
            if entry.len() > settings.inline_max {
                held += entry.len();
            } else {
                inline += entry.len();
            }
            held <= MOST_HELD && inline <= bytes
        };
        let waiting = self.backlog.batch(most, usize::MAX, None);
        let entries = waiting.into_iter().take_while(fits).map(name).collect();
        Arc::new(Value { author: self.me, entries })
    }

    /// Numbers of own entries in what this process proposes, ascending: those whose content is in it.
    pub(super) fn proposed_own(&self) -> Vec<u64> {
        let round = self.instance.rounds.get(&self.instance.r);
        let proposed = round.and_then(|round| round.proposed.as_ref());
        let entries = proposed.into_iter().flat_map(|value| &value.entries);
        let own = entries.filter(|e| e.id.origin == self.me && !matches!(e.body, Body::Held(_)));
        let mut own: Vec<u64> = own.map(|entry| entry.id.seq).collect();
        own.sort_unstable();
        own
    }

    /// Begins an instance when something waits to be ordered; returns true if it did.
    pub(super) fn start(&mut self, now: Time, out: &mut Out<Self>) -> bool {
        let idle = self.instance.phase == Phase::Idle;
        if !idle || self.backlog.waiting() == 0 || !self.is_core() {
            return false;
        }
        self.enter(0, now, out);
        true
    }

    fn arm(&mut self, now: Time, out: &mut Out<Self>) {
        let patience = self.settings.rotate * (1 << self.instance.r.min(MOST_DOUBLINGS));
        out.push(Action::SetTimer(Timer::Round, now + patience));
    }

    /// Enters a round; goes on to the next one while the coordinator is suspected. Phase 1: the estimate and its
    /// time go to the coordinator. Ours: round 0 has no estimates, its coordinator proposes at once.
    pub(super) fn enter(&mut self, r: u32, now: Time, out: &mut Out<Self>) {
        let k = self.k;
        let (mut r, mut tried) = (r, 0);
        loop {
            self.instance.r = r;
            self.instance.phase = Phase::Wait;
            self.instance.nudged = false;
            self.instance.late = None;
            let c = self.coordinator(r);
            if r == 0 {
                if c == self.me {
                    let value = self.own_batch();
                    self.propose(0, value, out);
                }
            } else {
                let (value, ts) = self.estimate();
                self.tell(c.slot, LogBody::Est { k, r, ts, value }, out);
            }
            tried += 1;
            if !self.suspected.contains(&c.slot) || c == self.me || tried > self.places.core.len() {
                break;
            }
            // Phase 3, second case: the coordinator is suspected.
            self.tell(c.slot, LogBody::Nack { k, r }, out);
            r += 1;
        }
        if r > 0 {
            self.note(&Record::Entered { k, r }, out);
        }
        self.arm(now, out);
    }

    fn estimate(&self) -> (Arc<Value>, u32) {
        match &self.instance.estimate {
            Some(value) => (Arc::clone(value), self.instance.ts),
            None => (self.own_batch(), 0),
        }
    }

    /// Phase 2, its end: the proposal of the round. Ours: the last decision travels with it.
    fn propose(&mut self, r: u32, value: Arc<Value>, out: &mut Out<Self>) {
        self.instance.rounds.entry(r).or_default().proposed = Some(Arc::clone(&value));
        let told = self.announce.filter(|(k, _)| k + 1 == self.k);
        if told.is_some() {
            out.push(Action::sometimes(CastEvent::DecisionWithProposal));
            self.announce = None;
        }
        let before = told.map(|(_, r)| r);
        self.tell_core(LogBody::Prop { k: self.k, r, before, value }, out);
    }

    /// A message about an instance.
    pub(super) fn of_instance(
        &mut self,
        now: Time,
        from: Member,
        k: u64,
        what: LogBody,
        out: &mut Out<Self>,
    ) {
        if k < self.k {
            // Late votes for what all have been told need no answer.
            let silent = matches!(what, LogBody::Ack { again: false, .. } | LogBody::Done { .. })
                || matches!(what, LogBody::Abort { .. })
                || from == self.me;
            if !silent {
                self.pulled(from, k, out);
            }
            return;
        }
        if k > self.k {
            if let LogBody::Prop { k, r, before, value } = what
                && k == self.k + 1
            {
                self.ahead = Some((k, from, r, value));
                if before.is_some_and(|r| self.decided_in(now, from, r, out)) {
                    return;
                }
            }
            return self.behind(from, k, out);
        }
        if !self.places.core.contains(&from) {
            return;
        }
        if what.round().is_some_and(|r| r > self.instance.r.saturating_add(MOST_AHEAD)) {
            return;
        }
        match what {
            LogBody::Est { r, ts, value, .. } => self.estimated(now, from, r, (ts, value), out),
            LogBody::Prop { r, value, .. } => self.proposal(now, from, r, value, out),
            LogBody::Ack { r, .. } => self.acknowledged(now, from, r, out),
            LogBody::Nack { r, .. } => self.refused(r, out),
            LogBody::Abort { r, .. } if r >= self.instance.r && self.is_core() => {
                self.enter(r + 1, now, out);
            }
            LogBody::Done { r, .. } if !self.decided_in(now, from, r, out) => {
                self.behind(from, self.k + 1, out);
            }
            _ => {}
        }
    }

    /// EST at the coordinator of the round. Phase 2: a majority of estimates, of which the one with the greatest
    /// time is proposed.
    fn estimated(
        &mut self,
        now: Time,
        from: Member,
        r: u32,
        estimate: (u32, Arc<Value>),
        out: &mut Out<Self>,
    ) {
        let k = self.k;
        if self.coordinator(r) != self.me || r == 0 {
            return;
        }
        if r < self.instance.r {
            // The sender has fallen behind.
            let r = self.instance.r - 1;
            return self.tell(from.slot, LogBody::Abort { k, r }, out);
        }
        if r > self.instance.r {
            // A member in a lower round follows, so that a round gathers a majority.
            self.tell_peers(LogBody::Abort { k, r: r - 1 }, out);
            self.enter(r, now, out);
        }
        let majority = self.majority();
        let round = self.instance.rounds.entry(r).or_default();
        round.estimates.insert(from, estimate);
        let twice = self.settings.planted.is(Mutant::SecondProposal);
        if round.estimates.len() >= majority && (round.proposed.is_none() || twice) {
            // The greatest time binds; among own batches the fullest does most.
            let best = |(ts, value): &&(u32, Arc<Value>)| (*ts, value.entries.len());
            let any = self.settings.planted.is(Mutant::AnyEstimate);
            let found = match any || (twice && round.proposed.is_some()) {
                true => round.estimates.values().min_by_key(best),
                false => round.estimates.values().max_by_key(best),
            };
            let Some((ts, value)) = found else { return };
            if *ts > 0 {
                out.push(Action::sometimes(CastEvent::AdoptedBefore));
            }
            let value = Arc::clone(value);
            self.propose(r, value, out);
        }
        while self.instance.rounds.len() > MOST_ROUNDS {
            self.instance.rounds.pop_first();
        }
    }

    /// PROP: adopt, then acknowledge (phase 3, first case). Ours: a proposal of a later round is followed, one of a
    /// round that was left is answered with ABORT, and payloads that it only names are fetched before.
    pub(super) fn proposal(
        &mut self,
        now: Time,
        from: Member,
        r: u32,
        value: Arc<Value>,
        out: &mut Out<Self>,
    ) {
        let k = self.k;
        let planted = self.settings.planted;
        let lower = r < self.instance.r && !planted.is(Mutant::AckLowerRound);
        if from != self.coordinator(r) || !self.is_core() {
            return;
        }
        if lower {
            let r = self.instance.r - 1;
            return self.tell(from.slot, LogBody::Abort { k, r }, out);
        }
        if r == self.instance.r && self.instance.ts == r + 1 {
            return self.tell(from.slot, LogBody::Ack { k, r, again: true }, out);
        }
        if planted.is(Mutant::CoreTooEarly) {
            self.change_core_early(&value);
        }
        if self.instance.phase == Phase::Idle || r > self.instance.r {
            self.instance.r = r;
            self.instance.nudged = false;
            self.arm(now, out);
        }
        self.instance.phase = Phase::Wait;
        let missing = self.missing(&value);
        if !missing.is_empty() && !planted.is(Mutant::NotHeld) {
            self.instance.late = Some(value);
            out.push(Action::sometimes(CastEvent::PayloadMissing));
            return self.tell_peers(LogBody::Want { k, ids: missing }, out);
        }
        self.adopt(now, r, value, out);
    }

    /// Phase 3, first case: the estimate is the proposal, its time is the round (here one more, 0
    /// is none), and ACK goes to the coordinator. Ours: a member that suspects it enters the next
    /// round although it has acknowledged.
    fn adopt(&mut self, now: Time, r: u32, value: Arc<Value>, out: &mut Out<Self>) {
        let k = self.k;
        self.instance.r = self.instance.r.max(r);
        self.instance.late = None;
        self.instance.phase = Phase::Acked;
        if self.settings.trace {
            let digest = value.digest();
            out.push(Action::log(CastEvent::Adopted { instance: k, round: r, digest }));
        }
        if !self.settings.planted.is(Mutant::AckWithoutAdopting) {
            self.instance.estimate = Some(value);
            self.instance.ts = r + 1;
            self.note_adopted(out);
        }
        let c = self.coordinator(r);
        self.tell(c.slot, LogBody::Ack { k, r, again: false }, out);
        if self.suspected.contains(&c.slot) && c != self.me {
            self.enter(r + 1, now, out);
        }
    }

    /// The names in a value whose payloads are not here.
    fn missing(&self, value: &Value) -> Vec<Id> {
        let held = |entry: &&Entry| matches!(entry.body, Body::Held(_));
        let named = value.entries.iter().filter(held).map(|entry| entry.id);
        let here = |id: &Id| self.backlog.get(*id).is_some() || self.backlog.is_delivered(*id);
        named.filter(|id| !here(id)).collect()
    }

    /// A proposal waited for payloads: perhaps they are here now.
    pub(super) fn complete_late(&mut self, now: Time, out: &mut Out<Self>) {
        if let Some(value) = self.instance.late.take() {
            if self.missing(&value).is_empty() {
                self.adopt(now, self.instance.r, value, out);
            } else {
                self.instance.late = Some(value);
            }
        }
    }

    /// ACK at the coordinator. Phase 4: a majority of ACK decides. Ours: a NACK among them does not end the count, and
    /// a round that was left is counted on.
    fn acknowledged(&mut self, now: Time, from: Member, r: u32, out: &mut Out<Self>) {
        let majority = self.majority();
        let Some(round) = self.instance.rounds.get_mut(&r) else { return };
        let Some(value) = round.proposed.clone() else { return };
        round.acks.insert(from);
        if r < self.instance.r && round.acks.len() >= majority {
            out.push(Action::sometimes(CastEvent::DecidedInLeftRound));
        }
        let decided = round.acks.len() >= majority;
        // What is decided is told to others: its payloads must be here first.
        if decided && self.missing(&value).is_empty() {
            self.announce = Some((self.k, r));
            if self.settings.trace {
                let (instance, digest) = (self.k, value.digest());
                out.push(Action::log(CastEvent::Majority { instance, round: r, digest }));
            }
            self.decide(now, self.me, value, out);
        }
    }

    /// NACK at the coordinator. Phase 4 of the paper gives the round up; ours: ABORT frees the
    /// members that wait or have acknowledged.
    fn refused(&mut self, r: u32, out: &mut Out<Self>) {
        if self.coordinator(r) != self.me || r < self.instance.r {
            return;
        }
        let round = self.instance.rounds.entry(r).or_default();
        if !round.aborted {
            round.aborted = true;
            self.tell_core(LogBody::Abort { k: self.k, r }, out);
        }
        while self.instance.rounds.len() > MOST_ROUNDS {
            self.instance.rounds.pop_first();
        }
    }

    /// `from` says that what it proposed in this round is decided; returns true if that value is
    /// known here.
    fn decided_in(&mut self, now: Time, from: Member, r: u32, out: &mut Out<Self>) -> bool {
        let known = self.instance.ts == r + 1 && self.coordinator(r) == from;
        if let (true, Some(value)) = (known, self.instance.estimate.clone()) {
            self.decide(now, from, value, out);
            return true;
        }
        false
    }

    /// The value of the instance in progress is decided, as this member announces.
    fn decide(&mut self, now: Time, announcer: Member, value: Arc<Value>, out: &mut Out<Self>) {
        let resolved = self.resolve(value);
        self.keep.decide(self.k, resolved);
        self.deliver(now, out);
        self.mistake_announcer(announcer);
    }

    /// A value with its payloads in it, as far as they are here: others may ask for them later.
    pub(super) fn resolve(&self, value: Arc<Value>) -> Arc<Value> {
        if !value.entries.iter().any(|entry| matches!(entry.body, Body::Held(_))) {
            return value;
        }
        let full = |entry: &Entry| self.backlog.get(entry.id).unwrap_or(entry).clone();
        Arc::new(Value { author: value.author, entries: value.entries.iter().map(full).collect() })
    }

    /// Tells the core what was decided here, when no proposal has told it.
    pub(super) fn announce(&mut self, out: &mut Out<Self>) {
        if let Some((k, r)) = self.announce.take() {
            self.tell_peers(LogBody::Done { k, r }, out);
        }
    }

    /// The failure detector suspects a process.
    pub(super) fn suspect(&mut self, now: Time, slot: Slot, out: &mut Out<Self>) {
        if slot == self.me.slot || self.view.at(slot).is_none() {
            return;
        }
        self.suspected.insert(slot);
        let waits = self.instance.phase != Phase::Idle && self.is_core();
        if waits && self.coordinator(self.instance.r).slot == slot {
            self.rotate(now, out);
        }
    }

    fn rotate(&mut self, now: Time, out: &mut Out<Self>) {
        let (k, r) = (self.k, self.instance.r);
        if self.instance.phase == Phase::Wait {
            let c = self.coordinator(r);
            self.tell(c.slot, LogBody::Nack { k, r }, out);
        }
        self.enter(r + 1, now, out);
    }

    /// The round takes long: say again what may have been lost; the second time, the coordinator is
    /// taken for dead.
    pub(super) fn slow(&mut self, now: Time, out: &mut Out<Self>) {
        let (k, r) = (self.k, self.instance.r);
        if self.instance.phase == Phase::Idle || !self.is_core() {
            return;
        }
        let c = self.coordinator(r);
        if self.instance.nudged && c != self.me {
            return self.rotate(now, out);
        }
        self.instance.nudged = true;
        match self.instance.phase {
            Phase::Acked => self.tell(c.slot, LogBody::Ack { k, r, again: true }, out),
            // The others may have missed that this round is the one to be in.
            Phase::Wait if r > 0 && c == self.me => {
                self.tell_peers(LogBody::Abort { k, r: r - 1 }, out);
            }
            Phase::Wait if r > 0 => {
                let (value, ts) = self.estimate();
                self.tell(c.slot, LogBody::Est { k, r, ts, value }, out);
            }
            Phase::Wait | Phase::Idle => {}
        }
        if self.instance.phase == Phase::Wait {
            // The coordinator may not know that there is something to order.
            let entries = self.backlog.batch(self.settings.batch_msgs, MOST_HELD, None);
            let entries: Vec<Entry> = entries.into_iter().cloned().collect();
            if !entries.is_empty() {
                self.tell_peers(LogBody::Data(Arc::new(entries)), out);
            }
            if let Some(value) = &self.instance.late {
                let ids = self.missing(value);
                self.tell_peers(LogBody::Want { k, ids }, out);
            }
        }
        if let Some(round) = self.instance.rounds.get(&r)
            && let Some(value) = round.proposed.clone()
        {
            let silent = |member: &&Member| !round.acks.contains(member);
            let silent: Vec<Slot> =
                self.places.core.iter().filter(silent).map(|m| m.slot).collect();
            for slot in silent {
                let value = Arc::clone(&value);
                self.tell(slot, LogBody::Prop { k, r, before: None, value }, out);
            }
        }
        self.arm(now, out);
    }

    /// Fault 6: view changes count from their proposal on.
    fn change_core_early(&mut self, value: &Value) {
        for entry in &value.entries {
            if let Body::Change(change, _) = &entry.body
                && let Some(view) = self.view.next(change, Some(value.author))
            {
                self.places.core = view.core().into();
            }
        }
    }

    /// Fault 26: the next coordinator is the member that announced.
    fn mistake_announcer(&mut self, announcer: Member) {
        if self.settings.planted.is(Mutant::Announcer)
            && let Some(at) = self.places.core.iter().position(|member| *member == announcer)
        {
            self.base = at;
        }
    }
}
