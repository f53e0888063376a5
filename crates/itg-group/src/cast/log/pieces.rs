//! Snapshots in pieces: a long one is fetched by who needs it, piece by piece.
//!
//! Who lacks a state asks for a snapshot. A short one comes in one message. Of a longer one the first piece comes, and
//! the receiver asks for each next one: one piece is on its way at a time, and the sender keeps nothing for the
//! receiver but the snapshot. A piece that does not come is asked for again; when that does not help, the sender is
//! taken for dead, what has come is dropped, and another member is asked.

use std::mem;

use bytes::{Bytes, BytesMut};
use itg_process::{Action, Slot, Time};

use super::chunks::Incoming;
use super::{Log, LogBody, Out, Snapshot};
use crate::cast::entry::{MOST_SNAPSHOT, Take};
use crate::cast::event::CastEvent;
use crate::cast::mutant::Mutant;
use crate::member::Member;

/// Times that a piece is asked for again.
const MOST_ASKED: u32 = 8;

impl Log {
    /// Hands a snapshot to a process, or the first piece of it.
    pub(super) fn hand_over(&mut self, to: Slot, snapshot: &Snapshot, out: &mut Out<Self>) {
        if snapshot.state.len() <= self.settings.piece_bytes / 2 {
            return self.tell(to, LogBody::Snapshot(Box::new(snapshot.clone())), out);
        }
        if snapshot.state.len() > MOST_SNAPSHOT {
            let bytes = snapshot.state.len() as u64;
            return out.push(Action::log(CastEvent::SnapshotTooLong { bytes }));
        }
        if self.outgoing.as_ref().is_none_or(|(k, _)| *k != snapshot.k) {
            self.outgoing = Some((snapshot.k, encoded(snapshot)));
        }
        self.piece_to(to, snapshot.k, 0, out);
    }

    fn piece_to(&mut self, to: Slot, k: u64, offset: u64, out: &mut Out<Self>) {
        let Some((_, bytes)) = self.outgoing.as_ref().filter(|(of, _)| *of == k) else { return };
        let from = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
        let end = bytes.len().min(from + self.settings.piece_bytes);
        let (piece, total, last) = (bytes.slice(from..end), bytes.len() as u64, end == bytes.len());
        self.tell(to, LogBody::Piece { k, total, offset, bytes: piece }, out);
        if last {
            // Should it be lost, it is made again.
            self.outgoing = None;
        }
    }

    /// MORE: the next piece, or the first one of the snapshot that is here now.
    pub(super) fn more(&mut self, from: Member, k: u64, offset: u64, out: &mut Out<Self>) {
        let kept = self.keep.snapshot().filter(|snapshot| snapshot.k == k);
        if self.outgoing.as_ref().is_none_or(|(of, _)| *of != k)
            && let Some(snapshot) = kept
        {
            self.outgoing = Some((k, encoded(snapshot)));
        }
        match &self.outgoing {
            Some((of, _)) if *of == k => self.piece_to(from.slot, k, offset, out),
            _ => self.pulled(from, super::JOINING, out),
        }
    }

    /// Returns true while a snapshot comes in pieces.
    pub(super) const fn fetches(&self) -> bool {
        self.incoming.is_some()
    }

    /// PIECE: the snapshot, when it is the last one.
    pub(super) fn piece(
        &mut self,
        now: Time,
        from: Slot,
        what: LogBody,
        out: &mut Out<Self>,
    ) -> Option<Snapshot> {
        let LogBody::Piece { k, total, offset, bytes } = what else { return None };
        let whole = usize::try_from(total).ok().filter(|total| *total <= 2 * MOST_SNAPSHOT)?;
        let known = |of: &Incoming| (of.from, of.k, of.total) == (from, k, total);
        if !self.incoming.as_ref().is_some_and(known) {
            // Of another sender, whose turn it is not; or the one that is fetched has a later snapshot by now.
            let other = self.incoming.as_ref().is_some_and(|of| of.from != from || of.k > k);
            if other || offset != 0 {
                return None;
            }
            self.incoming = Some(Incoming { from, k, total, at: now, ..Incoming::default() });
        }
        let incoming = self.incoming.as_mut()?;
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
            self.tell(from, LogBody::More { k, offset }, out);
            return None;
        }
        let bytes = mem::take(&mut self.incoming)?.bytes;
        out.push(Action::sometimes(CastEvent::SnapshotInPieces));
        let mut take = Take::new(bytes.into());
        let found = Snapshot::take(&mut take).and_then(|snapshot| take.end(snapshot));
        if found.is_none() {
            out.push(Action::log(CastEvent::UnreadableSnapshot));
        }
        found
    }

    /// Asks for a piece again that has not come, and gives a sender up that does not answer.
    pub(super) fn fetch_on(&mut self, now: Time, out: &mut Out<Self>) {
        let patience = self.settings.rotate;
        let Some(incoming) = self.incoming.as_mut().filter(|of| now.since(of.at) >= patience)
        else {
            return;
        };
        (incoming.at, incoming.asked) = (now, incoming.asked + 1);
        let (from, k, have) = (incoming.from, incoming.k, incoming.bytes.len() as u64);
        let total = incoming.total;
        if incoming.asked > MOST_ASKED {
            self.incoming = None;
            return out.push(Action::log(CastEvent::SnapshotGivenUp { from, have, total }));
        }
        out.push(Action::log(CastEvent::PieceAskedAgain { from, have, total }));
        self.tell(from, LogBody::More { k, offset: have }, out);
    }
}

fn encoded(snapshot: &Snapshot) -> Bytes {
    let mut bytes = BytesMut::with_capacity(snapshot.state.len() + 1024);
    snapshot.put(&mut bytes);
    bytes.freeze()
}
