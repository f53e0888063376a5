//! Journal of a member of a uniform broadcast: when it is written, and its return with it.
//!
//! A member that comes back delivers what was delivered from the base on, and is where it was. Its log is brought
//! back by its own records, and tells only what these lack: a crash may have torn the write between the two.

use bytes::Bytes;
use itg_members::{Member, View};
use itg_process::{Action, Input, JournalWrite, Machine as _, Time};

use super::cut::{Begun, parts_of_state};
use super::note::{BASE, LAST_PIECE, Memory, Note, OF_LOG, PIECE, base, of_log, records_of_log};
use super::order::Orders;
use super::{MOST_GROWTH, Out, Timer, Uniform};
use crate::cast::event::CastEvent;
use crate::cast::interface::{CastDelivery, code};
use crate::cast::log::{join, member_of, numbered};
use crate::cast::mutant::Mutant;

impl Uniform {
    /// A member that keeps a journal: the one that `records` tell of, or a new one without any.
    #[must_use]
    pub fn with_journal(
        fast: super::Fast,
        me: Member,
        view: View,
        settings: super::Settings,
        records: &[Bytes],
    ) -> Self {
        let found = records_of_log(records);
        let known = member_of(&found, &view);
        let log_settings = super::Settings { trace: false, ..super::limited(settings) };
        let log = super::Log::with_journal(me, view.clone(), log_settings, &found);
        let member = known.map_or(me, |(member, _)| member);
        let mut uniform = Self::new(fast, member, view, settings);
        uniform.log = log;
        // A name under which nothing was promised yet begins without those of the names before it.
        let is_member = known.is_some_and(|(_, is_member)| is_member);
        let own = records.iter().filter(|r| is_member && r.first() != Some(&OF_LOG));
        let of_log = records.iter().filter(|r| known.is_some() && r.first() == Some(&OF_LOG));
        let (of_log, own) = (of_log.cloned().collect(), own.cloned().collect());
        uniform.memory = Memory { keeps: true, of_log, own, ..Memory::default() };
        uniform
    }

    /// Stores something before anything leaves that depends on it.
    pub(super) fn note(&mut self, note: &Note, out: &mut Out) {
        if !self.memory.keeps || self.forgets(note) {
            return;
        }
        let record = note.encode();
        self.memory.bytes += record.len();
        self.memory.own.push(record.clone());
        out.push(Action::Persist(JournalWrite::Append(record)));
    }

    /// Planted faults: what is not stored.
    fn forgets(&self, note: &Note) -> bool {
        let is = |mutant| self.settings.planted.is(mutant);
        match note {
            Note::Order(..) => is(Mutant::OrderNotStored),
            Note::Stamp(..) => is(Mutant::StampNotStored),
            Note::Fence(_) => is(Mutant::FenceNotStored),
            Note::Message(id, _) => {
                is(Mutant::OwnCastNotStored) && id.origin == self.me
                    || is(Mutant::HeldNotStored) && id.origin != self.me
            }
            _ => false,
        }
    }

    /// A write of the log to its journal, which is a part of this one.
    pub(super) fn note_of_log(&mut self, write: JournalWrite, out: &mut Out) {
        match write {
            JournalWrite::Append(record) => {
                let record = of_log(&record);
                self.memory.of_log.push(record.clone());
                out.push(Action::Persist(JournalWrite::Append(record)));
            }
            JournalWrite::Replace(records) => {
                self.memory.of_log = records.iter().map(of_log).collect();
                out.push(Action::Persist(self.memory.all()));
            }
        }
    }

    /// Everything of the present epoch that a state does not have.
    fn present(&self) -> Vec<Bytes> {
        let epoch = self.view.no();
        let planted = self.settings.planted;
        let waiting = self.backlog.batch(usize::MAX, usize::MAX, None).into_iter();
        let waiting =
            waiting.filter_map(|entry| Some(Note::Message(entry.id, self.payload(entry.id)?)));
        let fence = (self.epoch.fenced.is_some() && !planted.is(Mutant::FenceDropped))
            .then_some(Note::Fence(epoch));
        let orders = self.epoch.orders.notes(epoch);
        let orders = orders.into_iter().filter(|_| !planted.is(Mutant::OrdersDropped));
        let notes = waiting.chain(orders).chain(fence);
        notes.map(|note| note.encode()).collect()
    }

    /// Asks the user for its state when the journal has become long. One with a large state becomes as long again: it
    /// is not written anew all the time.
    pub(super) fn shorten_if_long(&mut self, out: &mut Out) {
        if self.memory.keeps
            && self.memory.bytes > self.settings.journal_bytes
            && self.memory.bytes > self.memory.base.min(MOST_GROWTH)
            && self.begun.is_none()
        {
            self.begin_checkpoint(None, out);
        }
    }

    /// A checkpoint for the log, or for the journal alone.
    pub(super) fn begin_checkpoint(&mut self, log: Option<u64>, out: &mut Out) {
        let seen = self.backlog.seen();
        let forgets = self.settings.planted.is(Mutant::HistoryNotKept);
        let history = &self.epoch.history;
        let history = if forgets { history.without_messages() } else { history.clone() };
        let present = if self.memory.keeps { self.present() } else { Vec::new() };
        let (view, mark) = (self.view.clone(), self.memory.own.len());
        let parts = self.epoch.parts.clone();
        let position = self.position;
        self.begun = Some(Begun { log, position, history, seen, view, present, mark, parts });
        out.push(Action::Deliver(CastDelivery::Checkpoint { position }));
    }

    /// The state at a checkpoint takes the place of what was before it.
    pub(super) fn rebase(&mut self, begun: Begun, state: Bytes, out: &mut Out) {
        if !self.memory.keeps {
            return;
        }
        let later = self.memory.own.split_off(begun.mark.min(self.memory.own.len()));
        let mut own = base(begun.view, state);
        own.extend(begun.present);
        own.extend(later);
        self.memory.own = own;
        self.memory.based();
        out.push(Action::sometimes(CastEvent::JournalShortened));
        out.push(Action::Persist(self.memory.all()));
    }

    /// The state of another member has taken the place of everything.
    pub(super) fn note_installed(&mut self, state: Bytes, out: &mut Out) {
        if self.memory.keeps {
            self.memory.own = base(self.view.clone(), state);
            let present = self.present();
            self.memory.own.extend(present);
            self.memory.based();
            out.push(Action::Persist(self.memory.all()));
        }
    }

    /// This process begins again under another name: what was promised under the one before is no promise any more.
    pub(super) fn begin_again(&mut self, now: Time, member: Member, out: &mut Out) {
        let rejoin = crate::cast::CastRequest::Rejoin(member);
        self.with_log(now, Input::Request(rejoin), out);
        let mut new = Self::new(self.fast, member, self.view.clone(), self.settings);
        // The log knows what its incarnation before has decided.
        std::mem::swap(&mut new.log, &mut self.log);
        std::mem::swap(&mut new.memory, &mut self.memory);
        *self = new;
        // The exclusion has ended it.
        out.push(Action::SetTimer(Timer::Tick, now + self.settings.status));
        if self.memory.keeps {
            self.memory.own.clear();
            self.memory.bytes = 0;
            out.push(Action::Persist(self.memory.all()));
        }
    }

    /// The start of a member with a journal: it delivers again what was delivered, and goes on.
    pub(super) fn come_back(&mut self, now: Time, out: &mut Out) {
        let back = !self.memory.of_log.is_empty();
        let own = self.memory.own.clone();
        let mut of_log = Vec::new();
        self.log.handle(now, Input::Start, &mut of_log);
        let mut told = Vec::new();
        for action in of_log {
            match action {
                Action::Deliver(tell) => told.push(tell),
                other => self.of_log(now, other, out),
            }
        }
        if !back {
            return;
        }
        self.memory.keeps = false;
        if self.settings.trace {
            let (member, counts) = (code(self.me), self.view.contains(self.me) || !own.is_empty());
            out.push(Action::log(CastEvent::Back { member, counts }));
        }
        for record in join(&own, PIECE, LAST_PIECE) {
            match Note::decode(&record) {
                Some(note) => self.again(note, now, out),
                None if record.first() == Some(&BASE) => self.lost_base(now, out),
                None => {}
            }
        }
        self.epoch.orders.count_on(self.done());
        self.outbox.cast_before(numbered(&self.backlog.seen(), self.me));
        self.outbox.recount(&self.backlog, self.me);
        self.memory.bytes = own.iter().map(Bytes::len).sum();
        self.memory.keeps = true;
        if self.gone {
            return;
        }
        out.push(Action::Deliver(CastDelivery::Restored { position: self.position }));
        self.catch_up(now, told, out);
    }

    /// Takes what the log's records tell beyond this member's own: a crash came between the two.
    fn catch_up(&mut self, now: Time, told: Vec<CastDelivery>, out: &mut Out) {
        for tell in told {
            let newer = |view: &View| view.no() > self.view.no() || !self.view.contains(self.me);
            let fits = match &tell {
                CastDelivery::View { view, .. } => newer(view) && self.view.contains(self.me),
                CastDelivery::Install { view, .. } if !view.contains(self.me) => false,
                CastDelivery::Install { view, state, .. } => {
                    if !newer(view) {
                        self.epoch.parts = parts_of_state(state).unwrap_or_default();
                    }
                    newer(view)
                }
                CastDelivery::Excluded { .. } => self.log.is_gone(),
                CastDelivery::Message { .. } => true,
                _ => false,
            };
            if fits {
                self.told_by_log(now, tell, out);
            }
        }
    }

    /// Takes one record, in its turn.
    fn again(&mut self, note: Note, now: Time, out: &mut Out) {
        if self.gone {
            return;
        }
        let epoch = self.view.no();
        match note {
            Note::Base(view, state) => {
                self.view = view;
                if self.take_state(&state, out).is_none() {
                    self.lost_base(now, out);
                }
            }
            Note::Message(id, payload) => {
                if id.origin == self.me {
                    self.outbox.cast_before(id.seq + 1);
                    if self.settings.trace {
                        // The crash may have come before it could be told.
                        let (origin, seq) = (code(self.me), id.seq);
                        out.push(Action::log(CastEvent::Cast { origin, seq }));
                    }
                }
                self.take_in(id, payload, now);
            }
            Note::Order(of, id, number) if of == epoch && !self.backlog.is_delivered(id) => {
                self.epoch.orders.know(id, number);
            }
            Note::Stamp(of, id, ts) if of == epoch && !self.backlog.is_delivered(id) => {
                self.epoch.orders.stamped(id, ts);
            }
            Note::Clock(of, clock) if of == epoch => self.epoch.orders.clock_is(clock),
            Note::Fence(of) if of == epoch => self.epoch.fenced = Some(now),
            Note::Delivered(of, number, id, payload) if of == epoch && number == self.done() => {
                if let Some(payload) = payload.or_else(|| self.payload(id)) {
                    self.deliver(id, payload, out);
                }
            }
            Note::Epoch(view, with) => self.enter_epoch(view, with, out),
            Note::Order(..)
            | Note::Stamp(..)
            | Note::Clock(..)
            | Note::Fence(_)
            | Note::Delivered(..) => {}
        }
    }

    /// The journal has a base that cannot be read: what was promised behind it cannot be kept.
    fn lost_base(&mut self, now: Time, out: &mut Out) {
        out.push(Action::log(CastEvent::UnreadableSnapshot));
        self.give_up(now, out);
    }
}

impl Orders {
    /// Numbers and timestamps that are known, as records.
    fn notes(&self, epoch: u64) -> Vec<Note> {
        let numbers = self.numbers().into_iter();
        let numbers = numbers.map(|(id, number)| Note::Order(epoch, id, number));
        let stamps = self.pending_stamps().map(|(id, ts)| Note::Stamp(epoch, id, ts));
        let clock = Note::Clock(epoch, self.clock_now());
        [clock].into_iter().chain(numbers).chain(stamps).collect()
    }
}
