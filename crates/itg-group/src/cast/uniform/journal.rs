//! Journal of a member of a uniform broadcast: its log's records, and what it has promised and delivered itself.
//!
//! | kind | record | when |
//! |---|---|---|
//! | 0 | a record of the log | when the log asks for it |
//! | 1 | `Base`: view, state as a joiner gets it | takes the place of what was before |
//! | 2 | `Message`: name, message | before this member says that it holds it; its own before others hear of them |
//! | 3 | `Order`: epoch u64, name, number u64 | before others hear that it is known |
//! | 4 | `Stamp`: epoch, name, timestamp u64 | before the collector hears it (Skeen) |
//! | 5 | `Fence`: epoch | before FLUSH leaves: nothing more is acknowledged in that epoch |
//! | 6 | `Delivered`: epoch, number u64, name, message (u8, message) | before the user and the others know |
//! | 7 | `Epoch`: view, what went with the change | the epoch begins |
//! | 8 | `Kept`: epoch, number, name, message | with a base: delivered before it, and some member may lack it |
//! | 9 | `Clock`: epoch, time u64 | with a base (Skeen) |
//! | 10, 11 | a piece of a base that is longer than 1 MiB, and the last one of it | |
//!
//! A member that comes back delivers what was delivered from the base on, and is where it was. Its log is brought
//! back by its own records, and tells only what these lack: a crash may have torn the write between the two.

use bytes::{BufMut as _, Bytes, BytesMut};
use itg_process::{Action, Input, JournalWrite, Machine as _, Time};

use super::cut::{Begun, parts_of_state};
use super::order::Orders;
use super::{Named, Out, Timer, Uniform};
use crate::cast::backlog::DeliveredRange;
use crate::cast::entry::{Entry, Id, MOST_PART, MOST_PAYLOAD, Put as _, Take};
use crate::cast::event::CastEvent;
use crate::cast::interface::{CastDelivery, code};
use crate::cast::log::{join, member_of, numbered, split};
use crate::cast::mutant::Mutant;
use crate::codec::{read, write};
use crate::member::{Member, View, ViewParts};

/// Kind of the records of the log, and kinds of pieces of records.
const OF_LOG: u8 = 0;
const PIECE: u8 = 10;
const LAST_PIECE: u8 = 11;

/// Record of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Note {
    Base(View, Bytes),
    Message(Id, Bytes),
    Order(u64, Id, u64),
    Stamp(u64, Id, u64),
    Fence(u64),
    Delivered(u64, u64, Id, Option<Bytes>),
    Epoch(View, Bytes),
    Kept(u64, u64, Id, Bytes),
    Clock(u64, u64),
}

impl Note {
    fn encode(&self) -> Bytes {
        let mut out = BytesMut::new();
        let numbered = |out: &mut BytesMut, kind, epoch: &u64, id: &Id, number: &u64| {
            out.put_u8(kind);
            out.put_u64_le(*epoch);
            out.id(*id);
            out.put_u64_le(*number);
        };
        let viewed = |out: &mut BytesMut, kind, view: &View, bytes: &Bytes| {
            out.put_u8(kind);
            out.blob(&write(&view.parts()));
            out.put_slice(bytes);
        };
        match self {
            Self::Base(view, state) => viewed(&mut out, 1, view, state),
            Self::Message(id, payload) => {
                out.put_u8(2);
                out.id(*id);
                out.blob(payload);
            }
            Self::Order(epoch, id, number) => numbered(&mut out, 3, epoch, id, number),
            Self::Stamp(epoch, id, ts) => numbered(&mut out, 4, epoch, id, ts),
            Self::Fence(epoch) => {
                out.put_u8(5);
                out.put_u64_le(*epoch);
            }
            Self::Delivered(epoch, number, id, payload) => {
                numbered(&mut out, 6, epoch, id, number);
                out.put_u8(payload.is_some().into());
                payload.iter().for_each(|payload| out.blob(payload));
            }
            Self::Epoch(view, with) => viewed(&mut out, 7, view, with),
            Self::Kept(epoch, number, id, payload) => {
                numbered(&mut out, 8, epoch, id, number);
                out.blob(payload);
            }
            Self::Clock(epoch, clock) => {
                out.put_u8(9);
                out.put_u64_le(*epoch);
                out.put_u64_le(*clock);
            }
        }
        out.freeze()
    }

    fn decode(bytes: &Bytes) -> Option<Self> {
        let mut take = Take::new(bytes.clone());
        let view = |take: &mut Take| {
            let parts: ViewParts = read(&take.blob(MOST_PART)?)?;
            View::try_from(parts).ok()
        };
        let numbered = |take: &mut Take| Some((take.u64()?, take.id()?, take.u64()?));
        let note = match take.u8()? {
            1 => return Some(Self::Base(view(&mut take)?, take.rest())),
            2 => Self::Message(take.id()?, take.blob(MOST_PAYLOAD)?),
            3 => numbered(&mut take).map(|(epoch, id, number)| Self::Order(epoch, id, number))?,
            4 => numbered(&mut take).map(|(epoch, id, ts)| Self::Stamp(epoch, id, ts))?,
            5 => Self::Fence(take.u64()?),
            6 => {
                let (epoch, id, number) = numbered(&mut take)?;
                let is_some = take.flag()?;
                let payload = if is_some { Some(take.blob(MOST_PAYLOAD)?) } else { None };
                Self::Delivered(epoch, number, id, payload)
            }
            7 => return Some(Self::Epoch(view(&mut take)?, take.rest())),
            8 => {
                let (epoch, id, number) = numbered(&mut take)?;
                Self::Kept(epoch, number, id, take.blob(MOST_PAYLOAD)?)
            }
            9 => Self::Clock(take.u64()?, take.u64()?),
            _ => return None,
        };
        take.end(note)
    }
}

/// Records of a base, in pieces if it is long.
fn base(view: View, state: Bytes) -> Vec<Bytes> {
    split(Note::Base(view, state).encode(), PIECE, LAST_PIECE)
}

/// A record of the log as it stands in the journal.
fn of_log(record: &Bytes) -> Bytes {
    let mut out = BytesMut::with_capacity(1 + record.len());
    out.put_u8(OF_LOG);
    out.put_slice(record);
    out.freeze()
}

/// Records of the log in a journal of a uniform broadcast.
pub(crate) fn records_of_log(records: &[Bytes]) -> Vec<Bytes> {
    let of_log = records.iter().filter(|record| record.first() == Some(&OF_LOG));
    of_log.map(|record| record.slice(1..)).collect()
}

/// The journal of a member: all of its records, which share their memory with those that are written.
#[derive(Debug, Default)]
pub(super) struct Memory {
    /// True if records are written.
    keeps: bool,
    /// Records of the log, and own ones.
    of_log: Vec<Bytes>,
    own: Vec<Bytes>,
    /// Bytes of own records since the last base, and of what there was then.
    bytes: usize,
    base: usize,
}

impl Memory {
    fn all(&self) -> JournalWrite {
        JournalWrite::Replace(self.of_log.iter().chain(&self.own).cloned().collect())
    }

    /// A base has taken the place of what was before it.
    fn based(&mut self) {
        (self.bytes, self.base) = (0, self.own.iter().map(Bytes::len).sum());
    }

    pub(super) const fn keeps(&self) -> bool {
        self.keeps
    }
}

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
        let log_settings = super::Settings { trace: false, ..settings };
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

    /// Everything of the present epoch that a base does not have.
    fn present(&self) -> Vec<Bytes> {
        let epoch = self.view.no();
        let planted = self.settings.planted;
        let kept = (self.first..).zip(&self.history);
        let kept = kept.map(|(number, (id, m))| Note::Kept(epoch, number, *id, m.clone()));
        let kept = kept.filter(|_| !planted.is(Mutant::HistoryNotKept));
        let waiting = self.backlog.batch(usize::MAX, usize::MAX, None).into_iter();
        let waiting =
            waiting.filter_map(|entry| Some(Note::Message(entry.id, self.payload(entry.id)?)));
        let fence = (self.fenced.is_some() && !planted.is(Mutant::FenceDropped))
            .then_some(Note::Fence(epoch));
        let orders = self.orders.notes(epoch);
        let orders = orders.into_iter().filter(|_| !planted.is(Mutant::OrdersDropped));
        let notes = kept.chain(waiting).chain(orders).chain(fence);
        notes.map(|note| note.encode()).collect()
    }

    /// Asks the user for its state when the journal has become long.
    pub(super) fn shorten_if_long(&mut self, out: &mut Out) {
        if self.memory.keeps
            && self.memory.bytes > self.settings.journal_bytes
            && self.begun.is_none()
        {
            self.begin_checkpoint(None, out);
        }
    }

    /// A checkpoint for the log, or for the journal alone.
    pub(super) fn begin_checkpoint(&mut self, log: Option<u64>, out: &mut Out) {
        let (done, seen) = (self.done(), self.backlog.seen());
        let present = if self.memory.keeps { self.present() } else { Vec::new() };
        let (view, mark) = (self.view.clone(), self.memory.own.len());
        let parts = self.parts.clone();
        let position = self.position;
        self.begun = Some(Begun { log, position, done, seen, view, present, mark, parts });
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
        out.push(Action::SetTimer(Timer::Tick, now.after(self.settings.status)));
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
        for note in join(&own, PIECE, LAST_PIECE).iter().filter_map(Note::decode) {
            self.again(note, now, out);
        }
        self.orders.count_on(self.first + self.history.len() as u64);
        self.next_seq = self.next_seq.max(numbered(&self.backlog.seen(), self.me));
        self.own_bytes = self.backlog.of(self.me).map(Entry::len).sum();
        self.memory.bytes = own.iter().map(Bytes::len).sum();
        self.memory.keeps = true;
        out.push(Action::Deliver(CastDelivery::Restored { position: self.position }));
        self.catch_up(now, told, out);
    }

    /// What the log's records tell beyond this member's own: a crash came between the two.
    fn catch_up(&mut self, now: Time, told: Vec<CastDelivery>, out: &mut Out) {
        for tell in told {
            let newer = |view: &View| view.no() > self.view.no() || !self.view.contains(self.me);
            let fits = match &tell {
                CastDelivery::View { view, .. } => newer(view) && self.view.contains(self.me),
                CastDelivery::Install { view, .. } if !view.contains(self.me) => false,
                CastDelivery::Install { view, state, .. } => {
                    if !newer(view) {
                        self.parts = parts_of_state(state).unwrap_or_default();
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

    /// One record, in its turn.
    fn again(&mut self, note: Note, now: Time, out: &mut Out) {
        let epoch = self.view.no();
        match note {
            Note::Base(view, state) => {
                self.view = view;
                self.take_state(&state, out);
            }
            Note::Message(id, payload) => {
                if id.origin == self.me {
                    self.next_seq = self.next_seq.max(id.seq + 1);
                    if self.settings.trace {
                        // The crash may have come before it could be told.
                        let (origin, seq) = (code(self.me), id.seq);
                        out.push(Action::log(CastEvent::Cast { origin, seq }));
                    }
                }
                self.take_in(id, payload, now);
            }
            Note::Order(of, id, number) if of == epoch && !self.backlog.is_delivered(id) => {
                self.orders.know(id, number);
            }
            Note::Stamp(of, id, ts) if of == epoch && !self.backlog.is_delivered(id) => {
                self.orders.stamped(id, ts);
            }
            Note::Clock(of, clock) if of == epoch => self.orders.clock_is(clock),
            Note::Fence(of) if of == epoch => self.fenced = Some(now),
            Note::Delivered(of, number, id, payload) if of == epoch && number == self.done() => {
                if let Some(payload) = payload.or_else(|| self.payload(id)) {
                    self.deliver(id, payload, out);
                }
            }
            Note::Kept(of, number, id, payload) if of == epoch => {
                self.kept(number, (id, payload));
            }
            Note::Epoch(view, with) => self.enter_epoch(view, with, out),
            Note::Order(..)
            | Note::Stamp(..)
            | Note::Clock(..)
            | Note::Fence(_)
            | Note::Delivered(..)
            | Note::Kept(..) => {}
        }
    }

    /// A message that was delivered before the base, and that some member may lack.
    fn kept(&mut self, number: u64, named: Named) {
        if self.history.is_empty() {
            self.first = number;
        }
        if number == self.done() {
            self.history_bytes += named.1.len() + 64;
            self.history.push_back(named);
        }
    }
}

impl Orders {
    /// What is known of numbers, as records.
    fn notes(&self, epoch: u64) -> Vec<Note> {
        let numbers = self.numbers().into_iter();
        let numbers = numbers.map(|(id, number)| Note::Order(epoch, id, number));
        let stamps = self.pending_stamps().map(|(id, ts)| Note::Stamp(epoch, id, ts));
        let clock = Note::Clock(epoch, self.clock_now());
        [clock].into_iter().chain(numbers).chain(stamps).collect()
    }
}

/// State for joiners and journals: position, messages delivered in the epoch and before, parts of cuts, the user's.
pub(super) fn put_state(begun: &Begun, state: &Bytes) -> Bytes {
    let mut bytes = BytesMut::new();
    bytes.put_u64_le(begun.position);
    bytes.put_u64_le(begun.done);
    bytes.put_u32_le(u32::try_from(begun.seen.len()).unwrap_or(u32::MAX));
    for seen in &begun.seen {
        seen.put(&mut bytes);
    }
    begun.parts.put(&mut bytes);
    bytes.put_slice(state);
    bytes.freeze()
}

/// The same, read.
pub(super) fn get_state(
    bytes: Bytes,
) -> Option<(u64, u64, Vec<DeliveredRange>, super::cut::Parts, Bytes)> {
    let mut take = Take::new(bytes);
    let (position, done) = (take.u64()?, take.u64()?);
    let seen = take.list(24, DeliveredRange::take)?;
    let parts = super::cut::Parts::take(&mut take)?;
    Some((position, done, seen, parts, take.rest()))
}
