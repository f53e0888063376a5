//! From one epoch to the next: suspicion, flush, cut, view; and the state that joiners get.

use std::collections::BTreeMap;

use bytes::{BufMut as _, Bytes, BytesMut};
use itg_process::{Action, Input, Time};

use super::message::{put_named, take_named};
use super::{EpochMessage, Flush, Named, Out, Uniform};
use crate::cast::backlog::DeliveredRange;
use crate::cast::entry::{Entry, Id, MOST_PART, Put as _, Take};
use crate::cast::event::CastEvent;
use crate::cast::interface::{CastDelivery, CastRequest, code};
use crate::member::{Member, View, ViewChange};
use crate::roster::Changes;

/// A view change that waits for what the core holds.
#[derive(Debug)]
pub(super) struct Collecting {
    since: Time,
    change: ViewChange,
    with: Bytes,
    flushes: BTreeMap<Member, Flush>,
    submitted: bool,
}

/// A checkpoint that waits for the state of the user.
#[derive(Debug)]
pub(super) struct Begun {
    /// Position of the log, and of this broadcast.
    log: u64,
    position: u64,
    done: u64,
    seen: Vec<DeliveredRange>,
}

impl Uniform {
    /// The first in succession that is not suspected here changes the view when there are
    /// suspicions; a member that is fenced for long asks for the next epoch.
    pub(super) fn change_if_wanted(&mut self, now: Time, out: &mut Out) {
        let patience = 4 * self.settings.rotate;
        if self.collecting.as_ref().is_some_and(|c| now.since(c.since) < patience) {
            return;
        }
        let suspects: Vec<Member> = self.suspected.iter().copied().collect();
        let first = self.view.succession().find(|member| !suspects.contains(member));
        let rank = self.view.succession().position(|member| member == self.me).unwrap_or(0) as u64;
        let long = |since: Time| now.since(since) >= (2 + rank) * patience;
        let wanted = !suspects.is_empty() && first == Some(self.me);
        if !wanted && !self.fenced.is_some_and(long) && self.collecting.is_none() {
            return;
        }
        let (change, with) = match self.collecting.take() {
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
        let (flushes, submitted) = (BTreeMap::new(), false);
        self.collecting = Some(Collecting { since: now, change, with, flushes, submitted });
        self.tell_all(EpochMessage::Collect, out);
    }

    /// Another member changes the view: this one tells what it holds and acknowledges nothing more.
    pub(super) fn collect(&mut self, now: Time, from: Member, out: &mut Out) {
        if !self.is_core() {
            return;
        }
        self.fenced.get_or_insert(now);
        let waiting = self.backlog.batch(usize::MAX, usize::MAX, None);
        let waiting = waiting.into_iter().map(|entry| entry.id).collect::<Vec<_>>();
        let waiting = waiting.into_iter().filter_map(|id| Some((id, self.payload(id)?))).collect();
        let flush = Flush {
            first: self.first,
            delivered: self.history.iter().cloned().collect(),
            orders: self.orders.numbers(),
            waiting,
        };
        self.tell(from.slot, EpochMessage::Flush(flush), out);
    }

    pub(super) fn flushed(&mut self, now: Time, from: Member, flush: Flush, out: &mut Out) {
        let majority = self.view.majority();
        let in_core = self.view.core().contains(&from);
        let Some(collecting) = self.collecting.as_mut().filter(|c| in_core && !c.submitted) else {
            return;
        };
        collecting.flushes.insert(from, flush);
        if collecting.flushes.len() < majority {
            return;
        }
        collecting.submitted = true;
        let (first, list) = cut(self.fast, collecting.flushes.values());
        let mut bytes = BytesMut::new();
        bytes.put_u64_le(first);
        put_named(&mut bytes, &list);
        bytes.blob(&collecting.with);
        let change = CastRequest::Change(collecting.change.clone(), bytes.freeze());
        self.with_log(now, Input::Request(change), out);
    }

    /// Handles a delivery of the log.
    pub(super) fn told_by_log(&mut self, now: Time, tell: CastDelivery, out: &mut Out) {
        match tell {
            CastDelivery::View { view, with, .. } => self.next_epoch(now, view, with, out),
            CastDelivery::Checkpoint { position } => {
                let (log, done, seen) = (position, self.done(), self.backlog.seen());
                self.begun = Some(Begun { log, position: self.position, done, seen });
                out.push(Action::Deliver(CastDelivery::Checkpoint { position: self.position }));
            }
            CastDelivery::Install { view, state, .. } => {
                if self.install(view, state, out).is_none() {
                    out.push(Action::log(CastEvent::UnreadableSnapshot));
                }
            }
            CastDelivery::Excluded { view } => {
                self.gone = true;
                out.push(Action::log(CastEvent::Excluded { view, member: code(self.me) }));
                out.push(Action::Deliver(CastDelivery::Excluded { view }));
                out.push(Action::CancelTimer(super::Timer::Tick));
            }
            // A change that found no room is wanted again with the next tick.
            CastDelivery::Busy(_)
            | CastDelivery::Message { .. }
            | CastDelivery::Restored { .. } => {}
        }
    }

    /// The cut is delivered in the old epoch, then the new one begins.
    fn next_epoch(&mut self, now: Time, view: View, with: Bytes, out: &mut Out) {
        let mut take = Take::new(with);
        let parts = take.u64().zip(take_named(&mut take));
        let with = take.blob(MOST_PART).unwrap_or_default();
        if let Some((first, list)) = parts {
            self.fill(first, list, out);
        }
        self.backlog.retain(|origin| view.contains(origin));
        self.view = view.clone();
        self.begin_epoch();
        let position = self.position;
        self.position += 1;
        let (no, digest) = (view.no(), view.digest());
        out.push(Action::log(CastEvent::View { no, digest, position }));
        out.push(Action::Deliver(CastDelivery::View { position, view, with }));
        self.own_bytes = self.backlog.of(self.me).map(Entry::len).sum();
        for (id, payload) in self.own_waiting() {
            self.tell_all(EpochMessage::Data(id, payload), out);
        }
        self.change_if_wanted(now, out);
    }

    /// The state of the user at a checkpoint.
    pub(super) fn state(&mut self, now: Time, position: u64, state: &Bytes, out: &mut Out) {
        let Some(begun) = self.begun.take_if(|begun| begun.position == position) else { return };
        let mut bytes = BytesMut::new();
        bytes.put_u64_le(begun.position);
        bytes.put_u64_le(begun.done);
        bytes.put_u32_le(u32::try_from(begun.seen.len()).unwrap_or(u32::MAX));
        for seen in &begun.seen {
            seen.put(&mut bytes);
        }
        bytes.put_slice(state);
        let ask = CastRequest::State(begun.log, bytes.freeze());
        self.with_log(now, Input::Request(ask), out);
    }

    fn install(&mut self, view: View, state: Bytes, out: &mut Out) -> Option<()> {
        let mut take = Take::new(state);
        let (position, done) = (take.u64()?, take.u64()?);
        let seen = take.list(24, DeliveredRange::take)?;
        let state = take.rest();
        if view.no() == self.view.no() && self.view.contains(self.me) {
            // Only the log was behind. Within an epoch this member must not forget what it has stamped and
            // acknowledged; what it lacks the others keep until it has it.
            return Some(());
        }
        self.view = view.clone();
        self.backlog.install(&seen);
        self.backlog.retain(|origin| view.contains(origin));
        self.begin_epoch();
        (self.first, self.position) = (done, position);
        out.push(Action::log(CastEvent::Install { position, view: view.no(), instance: 0 }));
        out.push(Action::Deliver(CastDelivery::Install { position, view, state }));
        Some(())
    }
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
    use itg_process::Slot;

    use super::super::Fast;
    use super::*;

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
}
