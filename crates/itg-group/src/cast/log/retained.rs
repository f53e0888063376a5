//! State that is kept for others: decisions for members that are behind, snapshots for those that
//! are too far behind or come new; and how it is collected.
//!
//! Every member tells its neighbours in the tree how far it is, and the smallest number of its
//! subtree; so the root learns which decisions all members have. A member that hears of a later
//! instance asks for the decisions that it misses: nothing is repeated unless it is asked for.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use itg_members::{Id, Member, View};
use itg_process::{Action, Dest, Slot, Time};

use super::pace::Progress;
use super::{JOINING, Log, LogBody, LogMessage, Out, Snapshot, Timer};
use crate::cast::entry::{Entry, Value};
use crate::cast::event::CastEvent;
use crate::cast::interface::CastDelivery;
use crate::cast::mutant::Mutant;

/// Bytes and number of the decisions that answer one question.
const ANSWER_BYTES: usize = 1 << 20;
const ANSWER: usize = 256;
/// Decisions ahead of the instance in progress that are taken in.
const MOST_AHEAD: u64 = 1024;

/// Decisions by instance.
pub(super) type Past = BTreeMap<u64, Arc<Value>>;

/// Decisions and snapshots.
#[derive(Clone, Debug, Default, Hash)]
pub(super) struct Keep {
    decisions: Past,
    bytes: usize,
    /// The smallest next instance of each child's subtree.
    lows: BTreeMap<Member, u64>,
    /// All members have the decisions before this one.
    stable: u64,
    /// The instance that was asked for, until something is heard or time passes.
    asked_for: Option<u64>,
    /// Time at which a learner last heard from its parent; number of times it has asked the core
    /// instead.
    parent_heard: Time,
    asked_core: usize,
    /// The furthest instance heard of, and the process that told it.
    furthest: Option<(u64, Slot)>,
    /// Processes that wait for a snapshot.
    waiting: BTreeSet<Slot>,
    /// A snapshot that waits for the state of the user.
    begun: Option<Snapshot>,
    snapshot: Option<Snapshot>,
}

pub(super) fn size(value: &Value) -> usize {
    value.entries.iter().map(|entry| entry.len() + 64).sum()
}

impl Keep {
    pub(super) fn len(&self) -> usize {
        self.decisions.len()
    }

    pub(super) fn decision(&self, k: u64) -> Option<Arc<Value>> {
        self.decisions.get(&k).map(Arc::clone)
    }

    pub(super) fn decide(&mut self, k: u64, value: Arc<Value>) {
        self.bytes += size(&value);
        if let Some(old) = self.decisions.insert(k, value) {
            self.bytes -= size(&old);
        }
    }

    /// Returns true if nobody waits for a snapshot, and nobody is known to be ahead of instance `k`.
    pub(super) fn is_at_rest(&self, k: u64) -> bool {
        let ahead = self.furthest.is_some_and(|(furthest, _)| furthest > k);
        !ahead && self.waiting.is_empty() && self.begun.is_none()
    }

    pub(super) fn view_changed(&mut self, view: &View) {
        self.lows.retain(|member, _| view.contains(*member));
        self.waiting.retain(|slot| view.at(*slot).is_some());
    }

    /// All decisions up to this instance; nothing is left.
    pub(super) fn take_decisions(&mut self, k: u64) -> Past {
        let mut decisions = std::mem::take(self).decisions;
        decisions.retain(|at, _| *at <= k);
        decisions
    }

    pub(super) const fn snapshot(&self) -> Option<&Snapshot> {
        self.snapshot.as_ref()
    }

    fn drop_first(&mut self) {
        if let Some((_, value)) = self.decisions.pop_first() {
            self.bytes -= size(&value);
        }
    }
}

/// Decisions from `k` on and before `end`, as many as one answer holds; one fits always.
fn answer(decisions: &Past, k: u64, end: u64) -> Vec<Arc<Value>> {
    let mut bytes = 0;
    let fits = |(at, value): &(usize, &Arc<Value>)| {
        bytes += size(value);
        *at == 0 || bytes <= ANSWER_BYTES
    };
    let from_k = decisions.range(k..end.max(k)).map(|(_, value)| value);
    let few = from_k.take(ANSWER).enumerate().take_while(fits);
    few.map(|(_, value)| Arc::clone(value)).collect()
}

impl Log {
    /// Out of the group: answers a member of the core that is behind what was decided before that.
    /// Perhaps no other process that is left knows it, least of all when this process put the
    /// majority together that excluded it. Learners have it from the core, which is the first to
    /// know of a view.
    pub(super) fn remember(&self, say: &LogMessage, out: &mut Out<Self>) {
        let k = say.what.instance().filter(|k| self.past.contains_key(k));
        if let Some(k) = k
            && self.places.core.contains(&say.from)
            && !matches!(say.what, LogBody::Dec { .. })
        {
            out.push(Action::sometimes(CastEvent::ExcludedTells));
            let values = answer(&self.past, k, JOINING);
            let what = LogBody::Dec { k, values };
            out.push(Action::Send(Dest::One(say.from.slot), LogMessage { from: self.me, what }));
        }
    }

    /// Another member is ahead: asks for what is missing, once for each instance.
    pub(super) fn behind(&mut self, from: Member, k: u64, out: &mut Out<Self>) {
        if self.keep.furthest.is_none_or(|(furthest, _)| k > furthest) {
            self.keep.furthest = Some((k, from.slot));
        }
        if self.keep.asked_for != Some(self.k) && from != self.me && !self.waits_for(from.slot) {
            self.keep.asked_for = Some(self.k);
            self.pull(from.slot, self.k, out);
        }
    }

    /// DEC: decisions from instance `k` on.
    pub(super) fn decisions(
        &mut self,
        now: Time,
        from: Member,
        k: u64,
        values: Vec<Arc<Value>>,
        out: &mut Out<Self>,
    ) {
        for (k, value) in (k..).zip(values) {
            let near = (self.k..self.k.saturating_add(MOST_AHEAD)).contains(&k);
            if near && self.keep.decision(k).is_none() {
                self.keep.decide(k, value);
            }
        }
        self.deliver(now, out);
        if k > self.k {
            self.behind(from, k, out);
        }
        if let Some((furthest, slot)) = self.keep.furthest
            && let Some(member) = self.view.at(slot)
            && furthest > self.k
        {
            self.behind(member, furthest, out);
        }
    }

    /// PULL: decisions from `k` on, or a snapshot when they have been collected.
    pub(super) fn pulled(&mut self, from: Member, k: u64, out: &mut Out<Self>) {
        let first = self.keep.decisions.first_key_value().map_or(self.k, |(k, _)| *k);
        if k == JOINING || k < first {
            return self.give_snapshot(from.slot, first, out);
        }
        let values = answer(&self.keep.decisions, k, self.k);
        if !values.is_empty() {
            self.tell(from.slot, LogBody::Dec { k, values }, out);
        }
    }

    fn give_snapshot(&mut self, to: Slot, first: u64, out: &mut Out<Self>) {
        match &self.keep.snapshot {
            // The decisions behind it are here.
            Some(snapshot) if snapshot.k >= first && snapshot.view.at(to) == self.view.at(to) => {
                let snapshot = snapshot.clone();
                self.hand_over(to, &snapshot, out);
            }
            _ => {
                self.keep.waiting.insert(to);
                self.checkpoint(out);
            }
        }
    }

    /// Begins a snapshot when a process waits for one: it is taken between two instances.
    pub(super) fn checkpoint(&mut self, out: &mut Out<Self>) {
        if (self.keep.waiting.is_empty() && !self.journal.wants_snapshot())
            || self.keep.begun.is_some()
        {
            return;
        }
        self.keep.begun = Some(Snapshot {
            k: self.k,
            position: self.position,
            author: self.author,
            view: self.view.clone(),
            seen: self.backlog.seen(),
            state: Bytes::new(),
        });
        out.push(Action::Deliver(CastDelivery::Checkpoint { position: self.position }));
    }

    /// The state of the user at a checkpoint.
    pub(super) fn state(&mut self, position: u64, state: Bytes, out: &mut Out<Self>) {
        let Some(begun) = self.keep.begun.take_if(|begun| begun.position == position) else {
            return;
        };
        let snapshot = Snapshot { state, ..begun };
        for slot in std::mem::take(&mut self.keep.waiting) {
            // A process that came after the checkpoint waits for the next one.
            if snapshot.view.at(slot) == self.view.at(slot) {
                self.hand_over(slot, &snapshot, out);
            } else {
                self.keep.waiting.insert(slot);
            }
        }
        self.shorten(&snapshot, out);
        self.keep.snapshot = Some(snapshot);
        self.checkpoint(out);
    }

    /// Takes over a later state.
    pub(super) fn install(&mut self, now: Time, snapshot: Snapshot, out: &mut Out<Self>) {
        let fresh = self.position == 0 && self.k == 0;
        if snapshot.k < self.k || (snapshot.k == self.k && !fresh) {
            return;
        }
        if !snapshot.view.contains(self.me) {
            return self.leave(snapshot.view.no(), out);
        }
        let stored = snapshot.clone();
        let Snapshot { k, position, author, view, seen, state } = snapshot;
        (self.k, self.position, self.author) = (k, position, author);
        self.view = view.clone();
        self.backlog.install(&seen);
        self.instance = super::round::Instance::default();
        self.transfer.installed();
        self.ahead = None;
        self.announce = None;
        self.keep.begun = None;
        self.keep.snapshot = None;
        while self.keep.decisions.first_key_value().is_some_and(|(at, _)| *at < k) {
            self.keep.drop_first();
        }
        self.view_changed();
        self.outbox.set_waiting(self.backlog.of(self.me).count());
        self.note_installed(stored, out);
        out.push(Action::CancelTimer(Timer::Round));
        out.push(Action::log(CastEvent::Install { position, view: view.no(), instance: k }));
        out.push(Action::Deliver(CastDelivery::Install { position, view, state }));
        self.deliver(now, out);
    }

    /// WANT: messages that were proposed by name.
    pub(super) fn wanted(&mut self, from: Member, k: u64, ids: &[Id], out: &mut Out<Self>) {
        if k < self.k {
            return self.pulled(from, k, out);
        }
        let here: Vec<Entry> = ids.iter().filter_map(|id| self.backlog.get(*id).cloned()).collect();
        for entry in here {
            self.tell(from.slot, LogBody::Data(Arc::new(vec![entry])), out);
        }
    }

    /// STATUS of a neighbour.
    pub(super) fn status(
        &mut self,
        now: Time,
        from: Member,
        k: u64,
        (low, stable): (u64, u64),
        out: &mut Out<Self>,
    ) {
        self.keep.lows.insert(from, low);
        if stable > self.keep.stable {
            self.keep.stable = stable;
            self.trim(out);
        }
        let tree = self.view.tree();
        let parent = tree.parent(self.me.slot) == Some(from.slot);
        if parent && !self.is_core() {
            self.keep.parent_heard = now;
        }
        if k > self.k {
            self.behind(from, k, out);
        } else if k < self.k && self.is_core() && !self.places.peers.contains(&from.slot) {
            // A learner whose parent does not speak: it may be of an earlier view.
            let near = parent || tree.parent(from.slot) == Some(self.me.slot);
            if !near {
                let (k, stable) = (self.k, self.keep.stable);
                self.tell(from.slot, LogBody::Status { k, low: k, stable }, out);
            }
        }
    }

    /// The smallest instance in progress of this member and those below it.
    fn low(&self) -> u64 {
        let mut children = self.view.tree().children(self.me.slot);
        if self.settings.planted.is(Mutant::GcIgnoresOne) {
            children.pop();
        }
        let low = |slot: &Slot| {
            let member = self.view.at(*slot);
            member.and_then(|member| self.keep.lows.get(&member)).copied().unwrap_or(0)
        };
        children.iter().map(low).min().unwrap_or(u64::MAX).min(self.k)
    }

    /// Progress of this member.
    pub(super) fn progress(&self) -> Progress {
        (self.view.no(), self.k, self.low(), self.keep.stable)
    }

    /// Tells the neighbours how far this member is.
    pub(super) fn tell_status(&mut self, now: Time, out: &mut Out<Self>) {
        self.keep.asked_for = None;
        self.untold = 0;
        if self.settings.trace {
            out.push(Action::log(CastEvent::Kept {
                decisions: self.keep.len() as u64,
                waiting: self.backlog.waiting() as u64,
                instance: self.k,
            }));
        }
        let tree = self.view.tree();
        let parent = tree.parent(self.me.slot);
        let mut to: BTreeSet<Slot> = tree.children(self.me.slot).into_iter().collect();
        to.extend(parent);
        let low = self.low();
        if parent.is_none() {
            self.keep.stable = self.keep.stable.max(low);
            self.trim(out);
        }
        self.paced(now, out);
        let late = |since: Time| now - since >= self.settings.rotate;
        if self.is_core() {
            to.extend(self.places.peers.iter().copied());
        } else if late(self.keep.parent_heard) && !self.places.peers.is_empty() {
            // The parent may have to join first, perhaps by way of this very member.
            out.push(Action::sometimes(CastEvent::LearnerAsksCore));
            to.insert(self.places.peers[self.keep.asked_core % self.places.peers.len()]);
            self.keep.asked_core += 1;
        }
        let (k, stable) = (self.k, self.keep.stable);
        if !to.is_empty() {
            let what = LogBody::Status { k, low, stable };
            let to = Dest::Many(to.into_iter().collect());
            out.push(Action::Send(to, LogMessage { from: self.me, what }));
        }
    }

    /// A member sends again what it has cast and what has long not been decided: nobody else may have it. Who is told
    /// of a message may be started again before it is ordered; who casts one may be before it is told.
    pub(super) fn tell_own_again(&mut self, now: Time, out: &mut Out<Self>) {
        let Some(oldest) = self.backlog.oldest(Some(self.me)) else { return };
        if self.outbox.repeat_is_due(oldest, now, self.settings.rotate) {
            let own = self.backlog.batch(self.settings.batch_msgs, ANSWER_BYTES, Some(self.me));
            let entries = own.into_iter().cloned().collect();
            self.tell_peers(LogBody::Data(Arc::new(entries)), out);
        }
    }

    /// Drops decisions that all members have, and the oldest ones beyond what may be kept.
    pub(super) fn trim(&mut self, out: &mut Out<Self>) {
        let settings = self.settings;
        while let Some((&first, _)) = self.keep.decisions.first_key_value()
            && first < self.k
        {
            let over = self.keep.len() > settings.retain || self.keep.bytes > settings.retain_bytes;
            if first >= self.keep.stable && !over {
                return;
            }
            if settings.trace {
                let too_many = first >= self.keep.stable;
                out.push(Action::log(CastEvent::Collect { first, too_many, instance: self.k }));
            }
            self.keep.drop_first();
        }
    }
}
