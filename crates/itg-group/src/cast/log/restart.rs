//! A member of a log stores what it promises, and is the same member after a restart.

use std::sync::Arc;

use bytes::Bytes;
use itg_members::{Member, View};
use itg_process::{Action, Time};

use super::journal::{Record, member_of, numbered, whole_records};
use super::{Log, Out, Phase, Places, Settings, Snapshot};
use crate::cast::entry::{Body, Entry, Value};
use crate::cast::event::CastEvent;
use crate::cast::interface::{CastDelivery, code};
use crate::cast::mutant::Mutant;

impl Log {
    /// A member that keeps a journal: the one that `records` tell of, or a new one without any.
    #[must_use]
    pub fn with_journal(me: Member, view: View, settings: Settings, records: &[Bytes]) -> Self {
        let first = match (member_of(records, &view), records.first().and_then(Record::decode)) {
            (Some(_), Some(Record::Born(member))) => Some(member),
            _ => None,
        };
        let mut log = Self::new(first.unwrap_or(me), view, settings);
        log.journal.keep(if first.is_some() { records } else { &[] });
        log
    }

    /// Stores something before anything leaves that depends on it.
    pub(super) fn note(&mut self, record: &Record, out: &mut Out<Self>) {
        if self.journal.keeps() {
            out.extend(self.journal.write(Some(record)).into_iter().map(Action::Persist));
        }
    }

    /// Stores the vote that is about to be told.
    pub(super) fn note_adopted(&mut self, out: &mut Out<Self>) {
        if let Some(record) = self.vote() {
            self.note(&record, out);
        }
    }

    /// The estimate of the instance in progress, if it was adopted, with the entries that it names.
    fn vote(&self) -> Option<Record> {
        let value = Arc::clone(self.instance.estimate.as_ref()?);
        let named = value.entries.iter().filter(|entry| matches!(entry.body, Body::Held(_)));
        let held = named.filter_map(|entry| self.backlog.get(entry.id).cloned()).collect();
        let ts = self.instance.ts;
        (ts > 0).then(|| Record::Adopted { k: self.k, r: ts - 1, ts, value, held })
    }

    /// Stores what is decided, with the next promise.
    pub(super) fn note_decided(&mut self, value: &Arc<Value>, out: &mut Out<Self>) {
        if !self.journal.keeps() {
            return;
        }
        let own = self.instance.ts > 0
            && self.instance.estimate.as_ref().is_some_and(|own| Arc::ptr_eq(own, value));
        // What a user of the log stores of the next view stands behind it.
        let views = value.entries.iter().any(|entry| matches!(entry.body, Body::Change(..)));
        let value = (!own).then(|| Arc::clone(value));
        if self.journal.later(&Record::Decided { k: self.k, value }) || views {
            out.extend(self.journal.write(None).into_iter().map(Action::Persist));
        }
    }

    /// Own messages that wait to be ordered.
    fn own_casts(&self) -> impl Iterator<Item = Record> {
        self.backlog.of(self.me).map(|entry| Record::Cast(entry.clone()))
    }

    /// A snapshot of another member has taken the place of everything.
    pub(super) fn note_installed(&mut self, snapshot: Snapshot, out: &mut Out<Self>) {
        if self.journal.keeps() && !self.settings.planted.is(Mutant::StateNotStored) {
            let mut records = vec![Record::Born(self.me), Record::Snapshot(Box::new(snapshot))];
            records.extend(self.own_casts());
            out.push(Action::Persist(self.journal.replace(&records)));
        }
    }

    /// A snapshot of this member may take the place of what was before it.
    pub(super) fn shorten(&mut self, snapshot: &Snapshot, out: &mut Out<Self>) {
        let short = snapshot.state.len() <= self.settings.most_state;
        if !short {
            self.journal.put_off();
        }
        let fits = short && snapshot.view.contains(self.me);
        if !self.journal.take_long() || self.life != Phase::Member || !fits {
            return;
        }
        let later = (snapshot.k..self.k).map(|k| Some((k, self.keep.decision(k)?)));
        let Some(later) = later.collect::<Option<Vec<_>>>() else { return };
        let mut snapshot = snapshot.clone();
        if self.settings.planted.is(Mutant::SeenForgotten) {
            snapshot.seen.clear();
        }
        let mut records = vec![Record::Born(self.me), Record::Snapshot(Box::new(snapshot))];
        let decided = |(k, value)| Record::Decided { k, value: Some(value) };
        records.extend(later.into_iter().map(decided));
        if !self.settings.planted.is(Mutant::PromiseNotKept) {
            let (k, r) = (self.k, self.instance.r);
            records.extend((r > 0).then_some(Record::Entered { k, r }));
            records.extend(self.vote());
        }
        records.extend(self.own_casts());
        out.push(Action::sometimes(CastEvent::JournalShortened));
        out.push(Action::Persist(self.journal.replace(&records)));
    }

    /// This process begins again under another name: it forgets everything but what was decided.
    pub(super) fn begin_again(&mut self, member: Member, out: &mut Out<Self>) {
        if self.life == Phase::Member {
            self.past = self.keep.take_decisions(self.k);
        }
        let (past, core) = (std::mem::take(&mut self.past), Arc::clone(&self.places.core));
        let journal = std::mem::take(&mut self.journal);
        let new = Self::new(member, self.view.clone(), self.settings);
        // The core that voted on what is past.
        let places = Places { core, ..new.places };
        *self = Self { past, places, journal, ..new };
        self.note(&Record::Born(member), out);
    }

    /// The start of a member with a journal: it delivers again what was decided, and goes on.
    pub(super) fn come_back(&mut self, now: Time, out: &mut Out<Self>) {
        if !self.journal.keeps() {
            return;
        }
        let found = whole_records(&self.journal.take_found());
        if found.is_empty() {
            self.journal.go_on(0);
            return out.push(Action::Persist(self.journal.replace(&[Record::Born(self.me)])));
        }
        if self.settings.trace {
            let (member, counts) = (member_of(&found, &self.view), self.view.contains(self.me));
            let member = code(member.map_or(self.me, |(member, _)| member));
            out.push(Action::log(CastEvent::Back { member, counts }));
        }
        for record in found.iter().skip(1).filter_map(Record::decode) {
            self.again(record, now, out);
        }
        // Own messages that were decided behind the last snapshot stand in no record of their own.
        self.outbox.cast_before(numbered(&self.backlog.seen(), self.me));
        self.journal.go_on(found.iter().map(Bytes::len).sum());
        // What was said then has been said, or is asked for.
        out.retain(|action| !matches!(action, Action::Send(..)));
        self.local.clear();
        out.push(Action::Deliver(CastDelivery::Restored { position: self.position }));
        let voted = self.instance.r > 0 || self.instance.estimate.is_some();
        if voted && self.life == Phase::Member && self.is_core() {
            out.push(Action::sometimes(CastEvent::BackWithVote));
            if self.settings.planted.is(Mutant::RoundForgotten) {
                self.instance.r = 0;
            } else {
                self.enter(self.instance.r + 1, now, out);
            }
        }
    }

    /// Lets an entry wait that waited before.
    fn wait_again(&mut self, entry: Entry, now: Time) {
        self.clock = self.clock.max(entry.lamport);
        self.wait(entry, now);
    }

    /// One record, in its turn.
    fn again(&mut self, record: Record, now: Time, out: &mut Out<Self>) {
        let planted = self.settings.planted;
        match record {
            Record::Adopted { .. } if planted.is(Mutant::VoteNotReplayed) => {}
            Record::Decided { value: None, .. } if planted.is(Mutant::DecisionNotReplayed) => {}
            Record::Born(member) => self.begin_again(member, out),
            Record::Snapshot(snapshot) => {
                self.life = Phase::Member;
                self.past.clear();
                self.outbox.cast_before(numbered(&snapshot.seen, self.me));
                self.install(now, *snapshot, out);
            }
            Record::Decided { k, value } if k == self.k && self.life == Phase::Member => {
                let Some(value) = value.or_else(|| self.instance.estimate.clone()) else { return };
                self.keep.decide(k, self.resolve(value));
                self.deliver(now, out);
            }
            Record::Adopted { k, r, ts, value, held } if k == self.k => {
                held.into_iter().for_each(|entry| self.wait_again(entry, now));
                let forgotten = self.settings.planted.is(Mutant::TimeNotStored);
                self.instance.ts = if forgotten { 0 } else { ts };
                self.instance.estimate = Some(value);
                self.instance.r = self.instance.r.max(r);
            }
            Record::Entered { k, r } if k == self.k => {
                self.instance.r = self.instance.r.max(r);
            }
            Record::Cast(entry) if entry.id.origin == self.me => {
                self.outbox.cast_before(entry.id.seq + 1);
                if self.settings.trace && matches!(entry.body, Body::Message(_)) {
                    // The crash may have come before it could be told.
                    let (origin, seq) = (code(self.me), entry.id.seq);
                    out.push(Action::log(CastEvent::Cast { origin, seq }));
                }
                self.wait_again(entry, now);
            }
            // Of an instance that is not known here: a journal is read in order.
            Record::Decided { .. }
            | Record::Adopted { .. }
            | Record::Entered { .. }
            | Record::Cast(_) => {}
        }
    }
}
