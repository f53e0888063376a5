//! Snapshots in pieces: the receiver fetches a long one piece by piece.
//!
//! A process that lacks a state asks for a snapshot. A short one comes in one message. Of a longer one the first piece
//! comes, and the receiver asks for each next one: one piece is on its way at a time. The sender keeps the bytes for
//! some seconds after the last question. A checksum of the whole goes with each piece: a sender that was started again
//! may have another state of the same instance. A piece that does not come is asked for again; when that does not help,
//! or the whole takes too long, what has come is dropped and the fetch begins again: at the process that the user of
//! the log names then, or at a member that is ahead.

use std::mem;
use std::time::Duration;

use bytes::BytesMut;
use itg_core::streams::fnv1a;
use itg_members::Member;
use itg_members::wire::Take;
use itg_process::{Action, Slot, Time};

use super::chunks::{Incoming, Outgoing};
use super::{Log, LogBody, Out, Snapshot};
use crate::cast::entry::MOST_SNAPSHOT;
use crate::cast::event::CastEvent;
use crate::cast::mutant::Mutant;

/// Times that a piece is asked for again.
const MOST_ASKED: u32 = 8;
/// Time for a whole snapshot: so much, and so much for each of its bytes (1 MB/s).
const FETCH: Duration = Duration::from_secs(60);
const FETCH_BYTE_NS: u64 = 1000;
/// A snapshot of which no piece is asked for is kept for so many times the patience of a receiver with one piece.
const UNWANTED: u32 = 2 * MOST_ASKED;

impl Log {
    /// Hands a snapshot to a process, or the first piece of it.
    pub(super) fn hand_over(&mut self, to: Slot, snapshot: &Snapshot, out: &mut Out<Self>) {
        if snapshot.state.len() > self.settings.most_state {
            if !mem::replace(&mut self.transfer.too_long, true) {
                let bytes = snapshot.state.len() as u64;
                out.push(Action::log(CastEvent::SnapshotTooLong { bytes }));
            }
            return;
        }
        if snapshot.state.len() <= self.settings.piece_bytes / 2 {
            return self.tell(to, LogBody::Snapshot(Box::new(snapshot.clone())), out);
        }
        if self.transfer.outgoing.as_ref().is_none_or(|of| of.id.0 != snapshot.k) {
            self.transfer.outgoing = Some(encoded(snapshot));
        }
        self.piece_to(to, 0, out);
    }

    /// A piece of the snapshot that goes.
    fn piece_to(&mut self, to: Slot, offset: u64, out: &mut Out<Self>) {
        let Some(Outgoing { id: (k, sum), bytes, idle }) = &mut self.transfer.outgoing else {
            return;
        };
        if offset >= bytes.len() as u64 {
            return;
        }
        *idle = 0;
        let (k, sum) = (*k, *sum);
        let from = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
        let end = bytes.len().min(from + self.settings.piece_bytes);
        let (piece, total, last) = (bytes.slice(from..end), bytes.len() as u64, end == bytes.len());
        self.tell(to, LogBody::Piece { k, total, sum, offset, bytes: piece }, out);
        if last {
            // Should it be lost, it is made again.
            self.transfer.outgoing = None;
        }
    }

    /// MORE: the next piece, or the first one of the snapshot that is here now.
    pub(super) fn more(&mut self, from: Member, id: (u64, u64), offset: u64, out: &mut Out<Self>) {
        let serves = |of: &Outgoing| of.id == id;
        let kept = self.keep.snapshot().filter(|snapshot| snapshot.k == id.0);
        if !self.transfer.outgoing.as_ref().is_some_and(serves)
            && let Some(snapshot) = kept
        {
            self.transfer.outgoing = Some(encoded(snapshot));
        }
        if self.transfer.outgoing.as_ref().is_some_and(serves) {
            self.piece_to(from.slot, offset, out);
        } else {
            // Another state, perhaps of the same instance.
            self.pulled(from, super::JOINING, out);
        }
    }

    /// Drops a snapshot that nobody fetches any more.
    pub(super) fn release_unwanted(&mut self) {
        let (turn, most) = (self.settings.status, UNWANTED * self.settings.rotate);
        self.transfer.outgoing.take_if(|of| {
            of.idle += 1;
            turn.saturating_mul(of.idle) > most
        });
    }

    /// Asks a process for decisions from here on, or for a snapshot: it may answer with pieces.
    pub(super) fn pull(&mut self, to: Slot, k: u64, out: &mut Out<Self>) {
        self.transfer.asked.insert(to);
        self.tell(to, LogBody::Pull { k }, out);
    }

    /// Returns true while pieces come, so that this process need not be asked for decisions: when they do not come, it
    /// may still have these.
    pub(super) fn waits_for(&self, other: Slot) -> bool {
        self.transfer.incoming.as_ref().is_some_and(|of| of.asked == 0 || of.from == other)
    }

    /// Returns true while a snapshot comes in pieces.
    pub(super) const fn fetches(&self) -> bool {
        self.transfer.incoming.is_some()
    }

    /// PIECE: the snapshot, when it is the last one.
    pub(super) fn piece(
        &mut self,
        now: Time,
        from: Slot,
        what: LogBody,
        out: &mut Out<Self>,
    ) -> Option<Snapshot> {
        let LogBody::Piece { k, total, sum, offset, bytes } = what else { return None };
        if !self.transfer.asked.contains(&from) || (self.is_member() && k <= self.k) {
            return None;
        }
        let whole = usize::try_from(total).ok().filter(|total| *total <= 2 * MOST_SNAPSHOT)?;
        let known = |of: &Incoming| (of.from, of.k, of.total, of.sum) == (from, k, total, sum);
        if !self.transfer.incoming.as_ref().is_some_and(known) {
            // Of another sender, whose turn it is not; or the one that is fetched has a later snapshot by now.
            let other =
                self.transfer.incoming.as_ref().is_some_and(|of| of.from != from || of.k > k);
            if other || offset != 0 {
                return None;
            }
            self.transfer.incoming =
                Some(Incoming { from, k, total, sum, at: now, since: now, ..Incoming::default() });
        }
        let incoming = self.transfer.incoming.as_mut()?;
        let unchecked = self.settings.planted.is(Mutant::AnyPiece);
        if (offset != incoming.bytes.len() as u64 && !unchecked)
            || bytes.is_empty()
            || incoming.bytes.len() + bytes.len() > whole
        {
            return None;
        }
        incoming.bytes.extend_from_slice(&bytes);
        (incoming.at, incoming.asked) = (now, 0);
        if incoming.bytes.len() < whole {
            let offset = incoming.bytes.len() as u64;
            self.tell(from, LogBody::More { k, sum, offset }, out);
            return None;
        }
        let bytes = mem::take(&mut self.transfer.incoming)?.bytes;
        out.push(Action::sometimes(CastEvent::SnapshotInPieces));
        let is_whole = fnv1a(&bytes) == sum;
        let mut take = Take::new(bytes.into());
        let found = (is_whole || unchecked).then(|| Snapshot::take(&mut take)).flatten();
        let found = found.and_then(|snapshot| take.end(snapshot));
        if found.is_none() {
            out.push(Action::log(CastEvent::UnreadableSnapshot));
        }
        found
    }

    /// Asks for a piece again that has not come, and gives a sender up that does not answer.
    pub(super) fn fetch_on(&mut self, now: Time, out: &mut Out<Self>) {
        if self.is_member() {
            // Decisions have made it useless.
            self.transfer.incoming.take_if(|of| of.k <= self.k);
        }
        let patience = self.settings.rotate;
        let late = |of: &Incoming| {
            let bytes = Duration::from_nanos(of.total.saturating_mul(FETCH_BYTE_NS));
            now - of.since > FETCH + bytes
        };
        let Some(incoming) =
            self.transfer.incoming.as_mut().filter(|of| now - of.at >= patience || late(of))
        else {
            return;
        };
        (incoming.at, incoming.asked) = (now, incoming.asked + 1);
        let (from, k, have) = (incoming.from, incoming.k, incoming.bytes.len() as u64);
        let (total, sum) = (incoming.total, incoming.sum);
        if incoming.asked > MOST_ASKED || late(incoming) {
            self.transfer.incoming = None;
            return out.push(Action::log(CastEvent::SnapshotGivenUp { from, have, total }));
        }
        out.push(Action::log(CastEvent::PieceAskedAgain { from, have, total }));
        self.tell(from, LogBody::More { k, sum, offset: have }, out);
    }
}

fn encoded(snapshot: &Snapshot) -> Outgoing {
    let mut bytes = BytesMut::with_capacity(snapshot.state.len() + 1024);
    snapshot.put(&mut bytes);
    let bytes = bytes.freeze();
    Outgoing { id: (snapshot.k, fnv1a(&bytes)), bytes, idle: 0 }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use itg_process::{Dest, Input, MS, Machine as _};

    use super::super::{LogMessage, Settings};
    use super::*;
    use crate::cast::interface::{CastDelivery, CastRequest};
    use itg_members::{Changes, Rules, View, ViewChange};

    const JOINER: Member = Member::new(Slot(2), 2);
    /// Bytes of the state of the tests' user.
    const LONG: usize = 3000;

    /// The view that has let the joiner in.
    fn view() -> View {
        let changes = Changes::new([Member::new(Slot(2), 1)], [JOINER]);
        let change = ViewChange { base: 1, changes, shape: None };
        View::first(3, Rules::default()).next(&change, None).expect("a view")
    }

    fn settings() -> Settings {
        Settings { piece_bytes: 1000, ..Settings::default() }
    }

    /// A member of the group whose user has this state; each of its starts makes a checkpoint of its own.
    struct Contact {
        log: Log,
        state: u8,
    }

    impl Contact {
        fn new(state: u8) -> Self {
            Self { log: Log::new(Member::new(Slot(0), 1), view(), settings()), state }
        }

        /// Its answers to the joiner.
        fn hears(&mut self, now: Time, what: LogBody) -> Vec<LogBody> {
            let say = LogMessage { from: JOINER, what };
            let mut inputs = vec![Input::Message(JOINER.slot, say)];
            let mut said = Vec::new();
            while let Some(input) = inputs.pop() {
                let mut out = Vec::new();
                self.log.handle(now, input, &mut out);
                for action in out {
                    match action {
                        Action::Send(Dest::One(Slot(2)), say) => said.push(say.what),
                        Action::Deliver(CastDelivery::Checkpoint { position }) => {
                            let state = vec![self.state; LONG].into();
                            inputs.push(Input::Request(CastRequest::State(position, state)));
                        }
                        _ => {}
                    }
                }
            }
            said
        }
    }

    fn joiner() -> Log {
        Log::new(JOINER, View::first(3, Rules::default()), settings())
    }

    /// Words of the joiner, and the state that it takes over.
    fn step(joiner: &mut Log, now: Time, input: Input<Log>) -> (Vec<LogBody>, Option<Bytes>) {
        let (mut out, mut said, mut state) = (Vec::new(), Vec::new(), None);
        joiner.handle(now, input, &mut out);
        for action in out {
            match action {
                Action::Send(Dest::One(Slot(0)), say) => said.push(say.what),
                Action::Deliver(CastDelivery::Install { state: found, .. }) => state = Some(found),
                _ => {}
            }
        }
        (said, state)
    }

    fn from_contact(what: LogBody) -> Input<Log> {
        Input::Message(Slot(0), LogMessage { from: Member::new(Slot(0), 1), what })
    }

    /// The sender is killed in the middle and comes back: its next checkpoint is of the same instance, and the state
    /// is another one of the same length.
    #[test]
    fn states_of_one_instance_are_not_mixed() {
        let (mut joiner, mut now) = (joiner(), Time(MS));
        let mut contact = Contact::new(1);
        let (mut asked, _) = step(&mut joiner, now, Input::Request(CastRequest::Join(Slot(0))));
        let mut installed = None;
        for turn in 0..40 {
            if turn == 2 {
                contact = Contact::new(2);
            }
            now = now.after(50 * MS);
            let answers: Vec<LogBody> =
                asked.drain(..).flat_map(|what| contact.hears(now, what)).collect();
            for what in answers {
                let (said, state) = step(&mut joiner, now, from_contact(what));
                asked.extend(said);
                installed = installed.or(state);
            }
            let (said, _) = step(&mut joiner, now, Input::Timer(super::super::Timer::Status));
            asked.extend(said);
        }
        assert!(installed == Some(Bytes::from(vec![2; LONG])), "a mix, or nothing");
    }

    /// The first piece of the contact's state.
    fn first_piece(contact: &mut Contact) -> LogBody {
        let mut said = contact.hears(Time(MS), LogBody::Pull { k: super::super::JOINING });
        let piece = said.pop().expect("an answer");
        assert!(matches!(piece, LogBody::Piece { offset: 0, .. }), "{piece:?}");
        piece
    }

    #[test]
    fn a_piece_that_nobody_asked_for_starts_no_fetch() {
        let piece = |k: u64| {
            let (total, sum, offset, bytes) = (5000, 1, 0, Bytes::from_static(&[7; 1000]));
            LogBody::Piece { k, total, sum, offset, bytes }
        };
        let now = Time(MS);
        let mut member = Log::new(Member::new(Slot(1), 1), view(), settings());
        let (said, _) = step(&mut member, now, from_contact(piece(9)));
        assert!(said.is_empty() && !member.fetches(), "{said:?}");
        // It is behind, and asks.
        let status = LogBody::Status { k: 9, low: 0, stable: 0 };
        let (said, _) = step(&mut member, now, from_contact(status));
        assert_eq!(said, [LogBody::Pull { k: 0 }]);
        let (said, _) = step(&mut member, now, from_contact(piece(0)));
        assert!(said.is_empty() && !member.fetches(), "of what it has: {said:?}");
        let (said, _) = step(&mut member, now, from_contact(piece(9)));
        assert_eq!(said, [LogBody::More { k: 9, sum: 1, offset: 1000 }]);
    }

    /// Each piece comes in time, and all of them never.
    #[test]
    fn a_fetch_that_takes_too_long_begins_again() {
        let (mut joiner, mut now) = (joiner(), Time(MS));
        step(&mut joiner, now, Input::Request(CastRequest::Join(Slot(0))));
        let mut pulls = 0;
        for offset in 0..2000 {
            let (total, bytes) = (1 << 20, Bytes::from_static(&[7]));
            let what = LogBody::Piece { k: 9, total, sum: 1, offset, bytes };
            step(&mut joiner, now, from_contact(what));
            now = now.after(50 * MS);
            let (said, _) = step(&mut joiner, now, Input::Timer(super::super::Timer::Status));
            pulls += said.iter().filter(|what| matches!(what, LogBody::Pull { .. })).count();
        }
        assert!(pulls > 0);
    }

    #[test]
    fn a_snapshot_that_nobody_fetches_is_released() {
        let mut contact = Contact::new(1);
        let LogBody::Piece { k, total, sum, .. } = first_piece(&mut contact) else { return };
        let tick = |contact: &mut Contact| {
            let timer = Input::Timer(super::super::Timer::Status);
            contact.log.handle(Time(MS), timer, &mut Vec::new());
        };
        for _ in 0..40 {
            tick(&mut contact);
        }
        assert!(contact.log.transfer.outgoing.is_some(), "a receiver is patient, too");
        for _ in 0..40 {
            tick(&mut contact);
        }
        assert!(contact.log.transfer.outgoing.is_none());
        // It is made again for a receiver that was only slow; behind its end there is nothing.
        let said = contact.hears(Time(MS), LogBody::More { k, sum, offset: 1000 });
        assert!(matches!(said[..], [LogBody::Piece { offset: 1000, .. }]), "{said:?}");
        assert_eq!(contact.hears(Time(MS), LogBody::More { k, sum, offset: total }), []);
    }

    #[test]
    fn a_state_that_is_too_long_is_told_once() {
        let mut contact = Contact::new(1);
        contact.log.settings.most_state = LONG - 1;
        contact.hears(Time(MS), LogBody::Pull { k: super::super::JOINING });
        let mut told = 0;
        for _ in 0..3 {
            let what = LogBody::Pull { k: super::super::JOINING };
            let mut out = Vec::new();
            let say = LogMessage { from: JOINER, what };
            contact.log.handle(Time(MS), Input::Message(JOINER.slot, say), &mut out);
            told += out.iter().filter(|action| matches!(action, Action::Log(_))).count();
        }
        assert!(contact.log.transfer.too_long);
        assert_eq!(told, 0, "it was told before");
    }
}
