//! From one epoch to the next: suspicion, flush, cut, view; and the state that joiners get.

use std::collections::BTreeMap;
use std::mem;

use bytes::{BufMut as _, Bytes, BytesMut};
use itg_members::wire::{Put as _, Take};
use itg_members::{Changes, Id, Member, View, ViewChange};
use itg_process::{Action, Input, Time};

use super::history::History;
use super::message::{put_named, take_named};
use super::note::Note;
use super::{EpochMessage, Flush, Named, Out, Uniform};
use crate::cast::backlog::DeliveredRange;
use crate::cast::entry::MOST_PART;
use crate::cast::event::CastEvent;
use crate::cast::interface::{CastDelivery, CastRequest, code};

/// A view change that waits for what the core holds.
#[derive(Clone, Debug, Hash)]
pub(super) struct Collecting {
    since: Time,
    change: ViewChange,
    with: Bytes,
    flushes: BTreeMap<Member, Flush>,
    submitted: bool,
    /// The cut goes ahead of the change in so many entries of the log: number of the attempt, and of entries.
    parts: Option<(u64, u32)>,
}

/// A checkpoint that waits for the state of the user.
#[derive(Clone, Debug)]
pub(super) struct Begun {
    /// Position of the log, if that has asked, and of this broadcast.
    pub(super) log: Option<u64>,
    pub(super) position: u64,
    /// Messages that some member may lack: who takes the state over keeps them as this member does.
    pub(super) history: History,
    pub(super) seen: Vec<DeliveredRange>,
    /// For the journal: the view, what the state does not have of the epoch, and number of own records until then.
    pub(super) view: View,
    pub(super) present: Vec<Bytes>,
    pub(super) mark: usize,
    /// Parts of cuts that the log has delivered in this epoch.
    pub(super) parts: Parts,
}

/// Bytes of a cut in one entry of the log.
const PART_BYTES: usize = 1 << 20;
/// Most parts of a cut.
const MOST_PARTS: u32 = 4096;
/// First byte of what goes with a view change: the cut follows, or it came before in parts.
const WHOLE: u8 = 0;
const IN_PARTS: u8 = 1;

/// Parts of cuts that the log has delivered in this epoch: of the last attempt of each member that makes one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Parts {
    of: BTreeMap<Member, (u64, BTreeMap<u32, Bytes>)>,
}

impl Parts {
    fn add(&mut self, from: Member, attempt: u64, index: u32, bytes: Bytes) {
        let (known, parts) = self.of.entry(from).or_default();
        if attempt < *known || index >= MOST_PARTS || bytes.len() > PART_BYTES {
            return;
        }
        if attempt > *known {
            parts.clear();
            *known = attempt;
        }
        parts.insert(index, bytes);
    }

    fn count(&self, from: Member, attempt: u64) -> usize {
        self.of.get(&from).filter(|(of, _)| *of == attempt).map_or(0, |(_, parts)| parts.len())
    }

    /// All of an attempt, if this many are there.
    fn whole(&self, from: Member, attempt: u64, count: u32) -> Option<Bytes> {
        let (of, parts) = self.of.get(&from)?;
        let all = *of == attempt && parts.len() == count as usize;
        all.then(|| parts.values().flat_map(|part| part.iter().copied()).collect())
    }

    pub(super) fn put(&self, out: &mut BytesMut) {
        out.put_u32_le(u32::try_from(self.of.len()).unwrap_or(u32::MAX));
        for (from, (attempt, parts)) in &self.of {
            out.member(*from);
            out.put_u64_le(*attempt);
            out.put_u32_le(u32::try_from(parts.len()).unwrap_or(u32::MAX));
            for (index, part) in parts {
                out.put_u32_le(*index);
                out.blob(part);
            }
        }
    }

    pub(super) fn take(take: &mut Take) -> Option<Self> {
        let part = |take: &mut Take| Some((take.u32()?, take.blob(PART_BYTES)?));
        let of = take.list(24, |take| {
            let (from, attempt) = (take.member()?, take.u64()?);
            Some((from, (attempt, take.list(8, part)?.into_iter().collect())))
        })?;
        Some(Self { of: of.into_iter().collect() })
    }
}

/// Parts in the state of a joiner.
pub(super) fn parts_of_state(state: &Bytes) -> Option<Parts> {
    get_state(state.clone()).map(|(.., parts, _)| parts)
}

impl Uniform {
    /// The first in succession that is not suspected here changes the view when there are
    /// suspicions; a member that is fenced for long asks for the next epoch.
    pub(super) fn change_if_wanted(&mut self, now: Time, out: &mut Out) {
        let patience = 4 * self.settings.rotate;
        if self.epoch.collecting.as_ref().is_some_and(|c| now - c.since < patience) {
            return;
        }
        // What was submitted is on its way: another attempt would stand behind it.
        if self.log.own_waiting() > 0 {
            return;
        }
        let suspects: Vec<Member> = self.suspected.iter().copied().collect();
        let first = self.view.succession().find(|member| !suspects.contains(member));
        let rank = self.view.succession().position(|member| member == self.me).unwrap_or(0);
        let turns = u32::try_from(2 + rank).unwrap_or(u32::MAX);
        let long = |since: Time| now - since >= turns * patience;
        let wanted = !suspects.is_empty() && first == Some(self.me);
        if !wanted && !self.epoch.fenced.is_some_and(long) && self.epoch.collecting.is_none() {
            return;
        }
        let (change, with) = match self.epoch.collecting.take() {
            // A change that was wanted and has not been made.
            Some(old) if suspects.is_empty() => (old.change, old.with),
            _ => {
                let changes = Changes::removal(suspects);
                (ViewChange { base: self.view.no(), changes, shape: None }, Bytes::new())
            }
        };
        self.start_collecting(now, change, with, out);
    }

    pub(super) fn start_collecting(
        &mut self,
        now: Time,
        change: ViewChange,
        with: Bytes,
        out: &mut Out,
    ) {
        let (flushes, submitted, parts) = (BTreeMap::new(), false, None);
        self.epoch.collecting =
            Some(Collecting { since: now, change, with, flushes, submitted, parts });
        self.tell_all(EpochMessage::Collect, out);
    }

    /// Another member changes the view: this one tells what it holds and acknowledges nothing more.
    pub(super) fn collect(&mut self, now: Time, from: Member, out: &mut Out) {
        if !self.is_core() {
            return;
        }
        if self.epoch.fenced.is_none() {
            self.epoch.fenced = Some(now);
            self.note(&Note::Fence(self.view.no()), out);
        }
        let waiting = self.backlog.batch(usize::MAX, usize::MAX, None);
        let waiting = waiting.into_iter().map(|entry| entry.id).collect::<Vec<_>>();
        let waiting = waiting.into_iter().filter_map(|id| Some((id, self.payload(id)?))).collect();
        let flush = Flush {
            first: self.epoch.history.first(),
            delivered: self.epoch.history.messages().cloned().collect(),
            orders: self.epoch.orders.numbers(),
            waiting,
        };
        self.tell(from.slot, EpochMessage::Flush(flush), out);
    }

    pub(super) fn flushed(&mut self, now: Time, from: Member, flush: Flush, out: &mut Out) {
        let majority = self.view.majority();
        let in_core = self.view.core().contains(&from);
        let Some(collecting) = self.epoch.collecting.as_mut().filter(|c| in_core && !c.submitted)
        else {
            return;
        };
        collecting.flushes.insert(from, flush);
        if collecting.flushes.len() < majority {
            return;
        }
        collecting.submitted = true;
        let (first, list) = cut(self.fast, collecting.flushes.values());
        // They are in the cut.
        collecting.flushes.clear();
        let mut bytes = BytesMut::new();
        bytes.put_u64_le(first);
        put_named(&mut bytes, &list);
        bytes.blob(&collecting.with);
        if bytes.len() <= PART_BYTES {
            let mut with = BytesMut::with_capacity(1 + bytes.len());
            with.put_u8(WHOLE);
            with.put_slice(&bytes);
            let change = CastRequest::Change(collecting.change.clone(), with.freeze());
            return self.with_log(now, Input::Request(change), out);
        }
        let bytes = bytes.freeze();
        let (attempt, count) = (self.log.next_seq() + 1, bytes.len().div_ceil(PART_BYTES));
        collecting.parts = Some((attempt, u32::try_from(count).unwrap_or(u32::MAX)));
        out.push(Action::sometimes(CastEvent::CutInParts));
        let epoch = self.view.no();
        for index in 0..count {
            let from = index * PART_BYTES;
            let part = bytes.slice(from..bytes.len().min(from + PART_BYTES));
            let mut entry = BytesMut::with_capacity(20 + part.len());
            entry.put_u64_le(epoch);
            entry.put_u64_le(attempt);
            entry.put_u32_le(u32::try_from(index).unwrap_or(u32::MAX));
            entry.put_slice(&part);
            self.with_log(now, Input::Request(CastRequest::Cast(entry.freeze())), out);
        }
    }

    /// The log has delivered a part of a cut. Behind the last one of its own the member that makes it submits the
    /// change, so that the parts come before it at every member.
    fn part(&mut self, now: Time, from: Member, payload: Bytes, out: &mut Out) {
        let mut take = Take::new(payload);
        let (Some(epoch), Some(attempt), Some(index)) = (take.u64(), take.u64(), take.u32()) else {
            return;
        };
        if epoch != self.view.no() {
            return;
        }
        self.epoch.parts.add(from, attempt, index, take.rest());
        // Who makes the cut is at work: the others are patient.
        self.epoch.fenced = self.epoch.fenced.map(|_| now);
        let me = self.me;
        let Some(collecting) = self.epoch.collecting.as_mut().filter(|_| from == me) else {
            return;
        };
        // Of an earlier attempt, too: the log is slow, not stuck.
        collecting.since = now;
        let Some((own, count)) = collecting.parts.filter(|(own, _)| *own == attempt) else {
            return;
        };
        if self.epoch.parts.count(me, own) == count as usize {
            collecting.parts = None;
            let mut with = BytesMut::new();
            with.put_u8(IN_PARTS);
            with.member(me);
            with.put_u64_le(own);
            with.put_u32_le(count);
            let change = CastRequest::Change(collecting.change.clone(), with.freeze());
            self.with_log(now, Input::Request(change), out);
        }
    }

    /// The cut that goes with a view change: number of its first message, messages, what the user gave.
    fn read_cut(&self, with: Bytes) -> Option<(u64, Vec<Named>, Bytes)> {
        let mut take = Take::new(self.cut_of(with)?);
        let cut = (take.u64()?, take_named(&mut take)?, take.blob(MOST_PART)?);
        take.end(cut)
    }

    /// This member cannot go on as who it is: it leaves the group, and may begin again under another name.
    pub(super) fn give_up(&mut self, now: Time, out: &mut Out) {
        let mut inner = Vec::new();
        let view = self.log.view().no();
        self.log.leave(view, &mut inner);
        for action in inner {
            self.of_log(now, action, out);
        }
    }

    /// The bytes of the cut that goes with a view change.
    fn cut_of(&self, with: Bytes) -> Option<Bytes> {
        let mut take = Take::new(with);
        match take.u8()? {
            WHOLE => Some(take.rest()),
            IN_PARTS => {
                let (from, attempt, count) = (take.member()?, take.u64()?, take.u32()?);
                self.epoch.parts.whole(from, attempt, count)
            }
            _ => None,
        }
    }

    /// Handles a delivery of the log.
    pub(super) fn told_by_log(&mut self, now: Time, tell: CastDelivery, out: &mut Out) {
        if self.gone {
            return;
        }
        match tell {
            CastDelivery::View { view, with, .. } => self.next_epoch(now, view, with, out),
            CastDelivery::Checkpoint { position } => self.begin_checkpoint(Some(position), out),
            CastDelivery::Message { id, payload, .. } => self.part(now, id.origin, payload, out),
            CastDelivery::Install { view, state, .. } => {
                if self.install(view, state, out).is_none() {
                    out.push(Action::log(CastEvent::UnreadableSnapshot));
                    self.give_up(now, out);
                }
            }
            CastDelivery::Excluded { view } => {
                self.gone = true;
                out.push(Action::log(CastEvent::Excluded { view, member: code(self.me) }));
                out.push(Action::Deliver(CastDelivery::Excluded { view }));
                out.push(Action::CancelTimer(super::Timer::Tick));
            }
            // A change that found no room is wanted again with the next tick.
            CastDelivery::Busy(_) | CastDelivery::Expired(_) | CastDelivery::Restored { .. } => {}
        }
    }

    /// The cut is delivered in the old epoch, then the new one begins.
    fn next_epoch(&mut self, now: Time, view: View, with: Bytes, out: &mut Out) {
        let Some((first, list, with)) = self.read_cut(with) else {
            // The log is in the next view: without the cut there is no way there.
            out.push(Action::log(CastEvent::UnreadableCut { view: view.no() }));
            return self.give_up(now, out);
        };
        if first > self.done() {
            // Those that made the cut keep what some member may lack: it is not a cut of theirs.
            let (view, delivered) = (view.no(), self.done());
            out.push(Action::log(CastEvent::CutTooLate { view, first, delivered }));
            return self.give_up(now, out);
        }
        self.fill(first, list, out);
        self.note(&Note::Epoch(view.clone(), with.clone()), out);
        self.enter_epoch(view, with, out);
        self.outbox.recount(&self.backlog, self.me);
        for (id, payload) in self.own_waiting() {
            self.tell_all(EpochMessage::Data(id, payload), out);
        }
        self.change_if_wanted(now, out);
    }

    /// The epoch of a view begins, and the user is told.
    pub(super) fn enter_epoch(&mut self, view: View, with: Bytes, out: &mut Out) {
        self.backlog.retain(|origin| view.contains(origin));
        self.view = view.clone();
        self.begin_epoch();
        let position = self.position;
        self.position += 1;
        let (no, digest) = (view.no(), view.digest());
        out.push(Action::log(CastEvent::View { no, digest, position }));
        out.push(Action::Deliver(CastDelivery::View { position, view, with }));
    }

    /// The state of the user at a checkpoint.
    pub(super) fn state(&mut self, now: Time, position: u64, state: &Bytes, out: &mut Out) {
        let Some(begun) = self.begun.take_if(|begun| begun.position == position) else { return };
        let (log, bytes) = (begun.log, put_state(&begun, state));
        if bytes.len() <= self.settings.most_state {
            self.rebase(begun, bytes.clone(), out);
        } else {
            // The journal grows as much again before the next attempt.
            self.memory.bytes = 0;
            if !mem::replace(&mut self.too_long, true) {
                let bytes = bytes.len() as u64;
                out.push(Action::log(CastEvent::SnapshotTooLong { bytes }));
            }
        }
        if let Some(log) = log {
            self.with_log(now, Input::Request(CastRequest::State(log, bytes)), out);
        }
    }

    fn install(&mut self, view: View, state: Bytes, out: &mut Out) -> Option<()> {
        if view.no() == self.view.no() && self.view.contains(self.me) {
            // Only the log was behind. Within an epoch this member must not forget what it has stamped and
            // acknowledged; what it lacks the others keep until it has it.
            self.epoch.parts = parts_of_state(&state)?;
            return Some(());
        }
        get_state(state.clone())?;
        self.view = view;
        self.take_state(&state, out)?;
        self.note_installed(state, out);
        Some(())
    }

    /// Takes over the state of a joiner, or of the journal, in the view in force; `None` if it cannot be read.
    pub(super) fn take_state(&mut self, state: &Bytes, out: &mut Out) -> Option<()> {
        let (position, history, seen, parts, state) = get_state(state.clone())?;
        let view = self.view.clone();
        self.backlog.install(&seen);
        self.backlog.retain(|origin| view.contains(origin));
        self.begin_epoch();
        self.begun = None;
        self.epoch.parts = parts;
        self.epoch.history = history;
        self.position = position;
        out.push(Action::log(CastEvent::Install { position, view: view.no(), instance: 0 }));
        out.push(Action::Deliver(CastDelivery::Install { position, view, state }));
        Some(())
    }
}

/// State for joiners and journals: position, messages of the epoch that some member may lack, messages delivered, parts
/// of cuts, the user's.
fn put_state(begun: &Begun, state: &Bytes) -> Bytes {
    let mut bytes = BytesMut::new();
    bytes.put_u64_le(begun.position);
    begun.history.put(&mut bytes);
    bytes.put_u32_le(u32::try_from(begun.seen.len()).unwrap_or(u32::MAX));
    for seen in &begun.seen {
        seen.put(&mut bytes);
    }
    begun.parts.put(&mut bytes);
    bytes.put_slice(state);
    bytes.freeze()
}

/// The same, read.
fn get_state(bytes: Bytes) -> Option<(u64, History, Vec<DeliveredRange>, Parts, Bytes)> {
    let mut take = Take::new(bytes);
    let (position, history) = (take.u64()?, History::take(&mut take)?);
    let seen = take.list(24, DeliveredRange::take)?;
    let parts = Parts::take(&mut take)?;
    Some((position, history, seen, parts, take.rest()))
}

/// The end of an epoch: from the first message that the member with most deliveries still keeps,
/// everything that was or may have been delivered, then what waits.
fn cut<'a>(
    fast: super::Fast,
    flushes: impl Iterator<Item = &'a Flush> + Clone,
) -> (u64, Vec<Named>) {
    // The longest of the delivered sequences: of two one is a prefix of the other. What is not kept in front of it all
    // members of the view have, also those whose flush is older.
    let end = |flush: &&Flush| flush.first + flush.delivered.len() as u64;
    let Some(longest) = flushes.clone().max_by_key(end) else { return (0, Vec::new()) };
    let first = longest.first;
    let mut list = longest.delivered.clone();
    let delivered: std::collections::BTreeSet<Id> = list.iter().map(|(id, _)| *id).collect();
    let mut payloads: BTreeMap<Id, &Bytes> = BTreeMap::new();
    let mut numbers: BTreeMap<Id, u64> = BTreeMap::new();
    for flush in flushes {
        payloads.extend(flush.waiting.iter().map(|(id, payload)| (*id, payload)));
        numbers.extend(flush.orders.iter().copied());
    }
    payloads.retain(|id, _| !delivered.contains(id));
    let mut ordered: Vec<(u64, Id)> = numbers.into_iter().map(|(id, n)| (n, id)).collect();
    ordered.sort_unstable();
    let end = first + list.len() as u64;
    let mut next = end;
    for (number, id) in ordered {
        // An older flush has numbers of messages that all have delivered since.
        let old = fast == super::Fast::Sequencer && number <= end;
        if old || delivered.contains(&id) {
            payloads.remove(&id);
            continue;
        }
        next += 1;
        if fast == super::Fast::Sequencer && number != next {
            // Behind a gap nothing is stable: it waits like the rest.
            break;
        }
        // A message that no member of a majority has was not acknowledged by one.
        let Some(payload) = payloads.remove(&id) else {
            if fast == super::Fast::Sequencer {
                break;
            }
            continue;
        };
        list.push((id, payload.clone()));
    }
    list.extend(payloads.into_iter().map(|(id, payload)| (id, payload.clone())));
    (first, list)
}

#[cfg(test)]
mod tests {
    use itg_process::{MS, Machine as _, Slot};

    use super::super::{Fast, Settings, UniformMessage};
    use super::*;
    use itg_members::Rules;

    /// The message with this number in the order of the epoch.
    fn named(number: u64) -> Named {
        let origin = Member::new(Slot((number % 3) as u32), 1);
        (Id { origin, seq: number / 3 }, Bytes::from(vec![7; 8]))
    }

    /// Flush of a member that has delivered the messages behind `first` up to `done`, and holds
    /// those up to `held` in order.
    fn flush(first: u64, done: u64, held: u64) -> Flush {
        Flush {
            first,
            delivered: (first + 1..=done).map(named).collect(),
            orders: (done + 1..=held).map(|number| (named(number).0, number)).collect(),
            waiting: (done + 1..=held).map(named).collect(),
        }
    }

    /// However old the flushes are, what all do not have already comes once and in order.
    #[test]
    fn a_cut_has_no_gap_and_loses_nothing_that_may_be_stable() {
        for fast in [Fast::Sequencer, Fast::Skeen] {
            for (a, b) in [
                (flush(0, 0, 9), flush(0, 5, 9)),
                (flush(3, 7, 12), flush(5, 9, 14)),
                // The first one is older than what all have delivered and none keeps.
                (flush(70, 77, 140), flush(86, 176, 200)),
                (flush(70, 77, 240), flush(86, 176, 200)),
                (flush(70, 77, 80), flush(86, 86, 90)),
            ] {
                let (first, list) = cut(fast, [&a, &b].into_iter());
                let done = a.first.max(b.first);
                assert_eq!(first, done, "{fast:?}");
                // In Skeen's form what all have may stand in it: it counts for none.
                let old = |id: &Id| (1..=done).any(|number| named(number).0 == *id);
                let fresh: Vec<Id> =
                    list.into_iter().map(|(id, _)| id).filter(|id| !old(id)).collect();
                let held = [&a, &b].map(|flush| flush.waiting.len() as u64);
                let last = (a.first + a.delivered.len() as u64 + held[0])
                    .max(b.first + b.delivered.len() as u64 + held[1]);
                let want: Vec<Id> = (done + 1..=last).map(|number| named(number).0).collect();
                assert_eq!(fresh, want, "{fast:?} {first}");
            }
        }
    }

    /// Member 0 of three, in the first view.
    fn member(settings: Settings) -> Uniform {
        let view = View::first(3, Rules::default());
        Uniform::new(Fast::Sequencer, Member::new(Slot(0), 1), view, settings)
    }

    /// The log's word that the view without member 2 is in force, with this cut.
    fn next_view(uniform: &mut Uniform, with: BytesMut) -> Vec<Action<Uniform>> {
        let changes = Changes::removal([Member::new(Slot(2), 1)]);
        let change = ViewChange { base: 1, changes, shape: None };
        let view = uniform.view.next(&change, None).expect("a view");
        let tell = CastDelivery::View { position: 0, view, with: with.freeze() };
        let mut out = Vec::new();
        uniform.told_by_log(Time(1), tell, &mut out);
        out
    }

    /// More messages than an entry of the log may have names: they are delivered, and then the epoch begins.
    #[test]
    fn a_cut_of_many_messages_is_delivered() {
        let mut uniform = member(Settings { window: 1 << 20, ..Settings::default() });
        let mut with = BytesMut::new();
        with.put_u8(WHOLE);
        with.put_u64_le(0);
        put_named(&mut with, &(0..70_000).map(named).collect::<Vec<_>>());
        with.blob(b"mine");
        let out = next_view(&mut uniform, with);
        let delivered = out
            .iter()
            .filter(|action| matches!(action, Action::Deliver(CastDelivery::Message { .. })));
        assert_eq!(delivered.count(), 70_000);
        assert_eq!((uniform.view.no(), uniform.gone), (2, false));
    }

    /// A member that takes a state over keeps what another one may lack, as the giver does: no cut begins behind that.
    #[test]
    fn a_state_has_what_some_member_may_lack() {
        let (mut giver, mut taker) = (member(Settings::default()), member(Settings::default()));
        let mut out = Vec::new();
        for (id, payload) in (1..=9).map(named) {
            giver.deliver(id, payload, &mut out);
        }
        giver.epoch.history.forget_before(3);
        giver.begin_checkpoint(Some(1), &mut out);
        let begun = giver.begun.take().expect("a checkpoint");
        let state = put_state(&begun, &Bytes::from_static(b"mine"));
        taker.take_state(&state, &mut out).expect("a state");
        assert_eq!((taker.epoch.history.first(), taker.done()), (3, 9));
        assert!(taker.epoch.history.messages().eq(giver.epoch.history.messages()));
    }

    /// A member that cannot read the state that it joins with leaves: others count on it.
    #[test]
    fn a_member_that_cannot_read_a_state_leaves() {
        let mut uniform = member(Settings::default());
        let change = ViewChange { base: 1, changes: Changes::removal([]), shape: None };
        let view = uniform.view.next(&change, None).expect("a view");
        let state = Bytes::from_static(b"short");
        let tell = CastDelivery::Install { position: 1, view, state };
        let mut out = Vec::new();
        uniform.told_by_log(Time(1), tell, &mut out);
        let told = out.iter().filter(|action| matches!(action, Action::Deliver(_)));
        let told: Vec<_> = told.collect();
        assert!(matches!(told[..], [Action::Deliver(CastDelivery::Excluded { .. })]));
        assert!(uniform.gone);
    }

    /// A member that lacks messages in front of the cut may not go on behind it as if it had them.
    #[test]
    fn a_member_that_a_cut_leaves_behind_leaves() {
        let mut uniform = member(Settings::default());
        let mut with = BytesMut::new();
        with.put_u8(WHOLE);
        with.put_u64_le(3);
        put_named(&mut with, &[named(4)]);
        with.blob(b"mine");
        let out = next_view(&mut uniform, with);
        let told = out.iter().filter(|action| matches!(action, Action::Deliver(_)));
        let told: Vec<_> = told.collect();
        assert!(
            matches!(told[..], [Action::Deliver(CastDelivery::Excluded { .. })]),
            "{}",
            told.len()
        );
        assert!(uniform.gone);
    }

    /// The log goes on to a view that this member cannot follow it to: it leaves, and does not stay where it was.
    #[test]
    fn a_member_without_the_cut_leaves() {
        let mut short = BytesMut::new();
        short.put_u8(WHOLE);
        short.put_u64_le(0);
        put_named(&mut short, &[named(1)]);
        let mut parts = BytesMut::new();
        parts.put_u8(IN_PARTS);
        parts.member(Member::new(Slot(1), 1));
        parts.put_u64_le(7);
        parts.put_u32_le(2);
        for with in [short, parts] {
            let mut uniform = member(Settings::default());
            let out = next_view(&mut uniform, with);
            let told = |tell: fn(&CastDelivery) -> bool| {
                out.iter().any(|action| matches!(action, Action::Deliver(found) if tell(found)))
            };
            assert!(told(|tell| matches!(tell, CastDelivery::Excluded { .. })));
            assert!(!told(|tell| matches!(tell, CastDelivery::Message { .. })));
            assert!(uniform.gone && uniform.log.is_gone());
        }
    }

    /// Parts that the log orders slowly: until then they are not submitted once more.
    #[test]
    fn attempts_do_not_pile_up() {
        let mut uniform = member(Settings::default());
        let mut out = Vec::new();
        let gone = Input::Request(CastRequest::Suspect(Slot(2)));
        uniform.handle(Time(1), gone, &mut out);
        let long = |number| (named(number).0, Bytes::from(vec![7; 128 << 10]));
        let waiting = (0..20).map(long).collect();
        let flush = Flush { waiting, ..Flush::default() };
        let what = EpochMessage::Flush(flush);
        let say = UniformMessage::Fast { from: Member::new(Slot(1), 1), epoch: 1, what };
        uniform.handle(Time(2), Input::Message(Slot(1), say), &mut out);
        assert_eq!(uniform.log.own_waiting(), 3, "parts");
        let mut out = Vec::new();
        for turn in 1..100 {
            let tick = Input::Timer(super::super::Timer::Tick);
            uniform.handle(Time(turn * 50 * MS), tick, &mut out);
        }
        let again = |action: &Action<Uniform>| {
            let Action::Send(_, UniformMessage::Fast { what, .. }) = action else { return false };
            matches!(what, EpochMessage::Collect)
        };
        assert!(!out.iter().any(again));
        assert_eq!(uniform.log.own_waiting(), 3);
        // A part that is ordered shows that the log goes on, whichever attempt it is of.
        let (me, now) = (uniform.me, Time(60 * 1000 * MS));
        let mut part = BytesMut::new();
        part.put_u64_le(1);
        part.put_u64_le(0);
        part.put_u32_le(0);
        uniform.part(now, me, part.freeze(), &mut out);
        assert_eq!(uniform.epoch.collecting.map(|collecting| collecting.since), Some(now));
    }

    /// Parts that are taken in can be read again.
    #[test]
    fn parts_that_are_too_long_are_refused() {
        let (mut parts, from) = (Parts::default(), Member::new(Slot(1), 1));
        parts.add(from, 1, 0, Bytes::from(vec![7; PART_BYTES + 1]));
        parts.add(from, 1, 1, Bytes::from(vec![7; PART_BYTES]));
        assert_eq!(parts.count(from, 1), 1);
        let mut bytes = BytesMut::new();
        parts.put(&mut bytes);
        assert_eq!(Parts::take(&mut Take::new(bytes.freeze())), Some(parts));
    }
}
