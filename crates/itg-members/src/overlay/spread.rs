//! Down: chunks along the edges of the tree, away from their origin.

use std::collections::{BTreeMap, BTreeSet};

use bytes::{Bytes, BytesMut};
use itg_core::streams::fnv1a;
use itg_process::{Action, Slot, Time};

use super::message::Offer;
use super::{Out, Overlay, OverlayBody, OverlayDelivery, OverlayEvent, refuse};
use crate::member::{Id, Member, View};

/// Things that are kept.
const MOST_BLOBS: usize = 4096;
/// Numbers of one origin that are remembered behind a gap.
const MOST_BEYOND: usize = 1 << 16;
/// Questions without an answer after which another neighbour is asked.
const PATIENCE: u32 = 3;

/// Offers that have been here, by origin: all numbers before one, and some beyond it.
#[derive(Debug)]
pub(super) struct Had {
    origins: BTreeMap<Member, (u64, BTreeSet<u64>)>,
}

impl Had {
    pub(super) const fn new() -> Self {
        Self { origins: BTreeMap::new() }
    }

    fn has(&self, id: Id) -> bool {
        let origin = self.origins.get(&id.origin);
        origin.is_some_and(|(next, beyond)| id.seq < *next || beyond.contains(&id.seq))
    }

    fn add(&mut self, id: Id) {
        let (next, beyond) = self.origins.entry(id.origin).or_default();
        if id.seq >= *next {
            beyond.insert(id.seq);
        }
        if beyond.len() > MOST_BEYOND {
            // Gaps from before this process joined.
            *next = beyond.first().copied().unwrap_or(*next);
        }
        while beyond.remove(next) {
            *next += 1;
        }
    }
}

/// A neighbour that this member serves.
#[derive(Clone, Copy, Debug, Default)]
struct Served {
    /// It has answered; it has everything.
    heard: bool,
    has: bool,
    /// Chunks before these are sent, and wanted.
    sent: u32,
    granted: u32,
}

/// Something that is spread.
#[derive(Debug)]
pub(super) struct Blob {
    len: u32,
    chunk: u32,
    digest: u64,
    lasting: bool,
    /// Chunks without a gap, and some beyond it.
    chunks: Vec<Bytes>,
    early: BTreeMap<u32, Bytes>,
    total: u32,
    /// Neighbours that offer it; the first is asked. Then the end of the chunks asked for, and
    /// questions in vain.
    providers: Vec<Slot>,
    asked: u32,
    tries: u32,
    progress: Time,
    served: BTreeMap<Slot, Served>,
    /// Children that have it, and all below them.
    below: BTreeSet<Slot>,
    /// All members of this view have it; the user has been told so of some view.
    everywhere: bool,
    told: bool,
}

impl Blob {
    fn new(offer: &Offer, now: Time) -> Self {
        Self {
            len: offer.len,
            chunk: offer.chunk,
            digest: offer.digest,
            lasting: offer.lasting,
            chunks: Vec::new(),
            early: BTreeMap::new(),
            // Nothing is one empty chunk.
            total: offer.len.div_ceil(offer.chunk).max(1),
            providers: Vec::new(),
            asked: 0,
            tries: 0,
            progress: now,
            served: BTreeMap::new(),
            below: BTreeSet::new(),
            everywhere: false,
            told: false,
        }
    }

    fn next(&self) -> u32 {
        u32::try_from(self.chunks.len()).unwrap_or(u32::MAX)
    }

    fn is_whole(&self) -> bool {
        self.next() == self.total
    }

    /// Bytes of the chunk of this number.
    fn size(&self, number: u32) -> usize {
        if number + 1 < self.total {
            return self.chunk as usize;
        }
        (self.len - self.chunk * (self.total - 1)) as usize
    }

    fn offer(&self, id: Id, first: bool) -> Offer {
        let all = (first && self.total == 1).then(|| self.chunks.first().cloned()).flatten();
        let Self { len, chunk, digest, lasting, .. } = *self;
        Offer { id, len, chunk, digest, lasting, all }
    }

    /// Returns true if nothing is left to do in the view in force.
    fn is_done(&self) -> bool {
        self.everywhere && self.served.values().all(|served| served.has)
    }
}

impl Overlay {
    pub(super) fn spread(&mut self, now: Time, lasting: bool, bytes: Bytes, out: &mut Out) {
        let me = self.view.as_ref().and_then(|view| view.at(self.me));
        let (Some(origin), Ok(len)) = (me, u32::try_from(bytes.len())) else {
            return refuse(bytes, out);
        };
        if !self.room(bytes.len()) {
            return refuse(bytes, out);
        }
        if self.last.is_none_or(|last| last.origin != origin) {
            // Another incarnation.
            self.last = Some(Id { origin, seq: 0 });
        } else if let Some(last) = &mut self.last {
            last.seq += 1;
        }
        let Some(id) = self.last else { return };
        let chunk = u32::try_from(self.settings.chunk).unwrap_or(u32::MAX);
        let digest = fnv1a(&bytes);
        let offer = Offer { id, len, chunk, digest, lasting, all: None };
        let mut blob = Blob::new(&offer, now);
        self.bytes += bytes.len();
        let cut = |n: u32| {
            let at = n as usize * chunk as usize;
            bytes.slice(at..at + blob.size(n))
        };
        blob.chunks = (0..blob.total).map(cut).collect();
        self.blobs.insert(id, blob);
        self.whole(now, id, bytes, out);
    }

    fn room(&self, len: usize) -> bool {
        self.bytes + len <= self.settings.most && self.blobs.len() < MOST_BLOBS
    }

    fn remove(&mut self, id: Id) {
        if let Some(blob) = self.blobs.remove(&id) {
            self.bytes -= blob.len as usize;
        }
    }

    /// Ends the keeping of something lasting: it goes as soon as all members have it.
    pub(super) fn forget(&mut self, id: Id) {
        match self.blobs.get_mut(&id) {
            Some(blob) if blob.everywhere => self.remove(id),
            Some(blob) => blob.lasting = false,
            None => {}
        }
    }

    /// Everything of it is here.
    fn whole(&mut self, now: Time, id: Id, bytes: Bytes, out: &mut Out) {
        self.had.add(id);
        out.push(Action::Deliver(OverlayDelivery::Spread { id, bytes }));
        let Some(blob) = self.blobs.get(&id) else { return };
        let total = blob.total;
        for provider in blob.providers.clone() {
            self.tell(
                provider,
                OverlayBody::Want { id, next: total, most: total, again: false },
                out,
            );
        }
        self.offer_around(now, id, true, out);
        self.complete_if_so(id, out);
    }

    /// Offers something to the neighbours that do not offer it themselves and do not know of it.
    fn offer_around(&mut self, now: Time, id: Id, first: bool, out: &mut Out) {
        let Some(blob) = self.blobs.get(&id) else { return };
        // A single chunk travels with the offer: it must be here.
        let ready = blob.total > 1 || blob.is_whole();
        let unknown =
            |slot: &Slot| !blob.served.contains_key(slot) && !blob.providers.contains(slot);
        let new: Vec<Slot> = self.neighbours().filter(unknown).filter(|_| ready).collect();
        let offer = blob.offer(id, first);
        for slot in new {
            self.tell(slot, OverlayBody::Offer(offer.clone()), out);
            if let Some(blob) = self.blobs.get_mut(&id) {
                blob.served.insert(slot, Served::default());
            }
        }
        self.retry_soon(now, out);
    }

    pub(super) fn offered(&mut self, now: Time, from: Slot, offer: Offer, out: &mut Out) {
        let id = offer.id;
        if self.had.has(id) {
            let total = offer.len.div_ceil(offer.chunk).max(1);
            if let Some(served) = self.blobs.get_mut(&id).and_then(|b| b.served.get_mut(&from)) {
                // Each has offered it to the other.
                served.heard = true;
            }
            let what = OverlayBody::Want { id, next: total, most: total, again: false };
            self.tell(from, what, out);
            if !self.blobs.contains_key(&id) {
                // It was forgotten here because all had it.
                self.tell(from, OverlayBody::Everywhere { id }, out);
            }
            return;
        }
        if !self.blobs.contains_key(&id) {
            let len = offer.len as usize;
            if !self.room(len) {
                out.push(Action::log(OverlayEvent::NoRoomForSpread { bytes: len as u64 }));
                return;
            }
            self.bytes += len;
            self.blobs.insert(id, Blob::new(&offer, now));
        }
        let Some(blob) = self.blobs.get_mut(&id) else { return };
        let fits = (offer.len, offer.chunk, offer.digest) == (blob.len, blob.chunk, blob.digest);
        if !fits {
            return;
        }
        if !blob.providers.contains(&from) {
            blob.providers.push(from);
        }
        blob.served.remove(&from);
        let first = blob.providers.len() == 1;
        if let Some(bytes) = offer.all {
            return self.chunk(now, from, id, (0, bytes), out);
        }
        if first {
            self.want(id, false, out);
        }
        self.offer_around(now, id, true, out);
    }

    /// Asks the provider for what is missing.
    fn want(&mut self, id: Id, again: bool, out: &mut Out) {
        let window = self.settings.window;
        let Some(blob) = self.blobs.get_mut(&id) else { return };
        let Some(&provider) = blob.providers.first() else { return };
        let next = blob.next();
        let most = blob.total.min(next.saturating_add(window));
        blob.asked = most;
        self.tell(provider, OverlayBody::Want { id, next, most, again }, out);
    }

    pub(super) fn chunk(
        &mut self,
        now: Time,
        from: Slot,
        id: Id,
        (number, bytes): (u32, Bytes),
        out: &mut Out,
    ) {
        let window = self.settings.window;
        let Some(blob) = self.blobs.get_mut(&id) else { return };
        let next = blob.next();
        let wanted = (next..blob.total.min(next.saturating_add(window))).contains(&number);
        if !wanted || bytes.len() != blob.size(number) || !blob.providers.contains(&from) {
            return;
        }
        blob.early.insert(number, bytes);
        while let Some(bytes) = blob.early.remove(&blob.next()) {
            blob.chunks.push(bytes);
        }
        if blob.next() == next {
            return;
        }
        (blob.progress, blob.tries) = (now, 0);
        let whole = blob.is_whole();
        if whole {
            let mut all = BytesMut::with_capacity(blob.len as usize);
            blob.chunks.iter().for_each(|chunk| all.extend_from_slice(chunk));
            let all = all.freeze();
            if fnv1a(&all) != blob.digest {
                // Any other neighbour that has it may give it.
                let (seq, bytes) = (id.seq, blob.len);
                out.push(Action::log(OverlayEvent::Damaged { seq, bytes }));
                blob.chunks.clear();
                blob.providers.rotate_left(1);
                return self.want(id, true, out);
            }
            // One copy for all that are served, and not the frames that it came in.
            let size = blob.chunk as usize;
            blob.chunks = (0..all.len().max(1))
                .step_by(size)
                .map(|at| all.slice(at..all.len().min(at + size)))
                .collect();
            self.whole(now, id, all, out);
        } else if blob.asked - blob.next() <= window / 2 {
            self.want(id, false, out);
        }
        self.serve(id, out);
    }

    /// Sends what is here and wanted.
    fn serve(&mut self, id: Id, out: &mut Out) {
        let view = self.view_no();
        let Some(blob) = self.blobs.get_mut(&id) else { return };
        let next = blob.next();
        for (&slot, served) in &mut blob.served {
            while served.sent < served.granted.min(next) {
                let number = served.sent;
                let bytes = blob.chunks[number as usize].clone();
                let what = OverlayBody::Chunk { id, number, bytes };
                out.push(Action::Send(slot.into(), super::OverlayMessage { view, what }));
                served.sent += 1;
            }
        }
    }

    pub(super) fn wanted(
        &mut self,
        now: Time,
        from: Slot,
        id: Id,
        (next, most, again): (u32, u32, bool),
        out: &mut Out,
    ) {
        let neighbour = self.neighbours().any(|slot| slot == from);
        let Some(blob) = self.blobs.get_mut(&id) else {
            return self.tell(from, OverlayBody::Gone { id }, out);
        };
        if next >= blob.total {
            if let Some(served) = blob.served.get_mut(&from) {
                *served = Served { heard: true, has: true, ..*served };
            }
            return;
        }
        // A process that is no neighbour in this view has been one, and is served until it has all.
        if !neighbour && blob.served.len() > 64 {
            return;
        }
        let served = blob.served.entry(from).or_default();
        served.heard = true;
        served.sent = if again { next } else { served.sent.max(next) };
        served.granted = most;
        self.serve(id, out);
        self.retry_soon(now, out);
    }

    /// A neighbour has dropped what it offered.
    pub(super) fn provider_gone(&mut self, from: Slot, id: Id, out: &mut Out) {
        let Some(blob) = self.blobs.get_mut(&id) else { return };
        let first = blob.providers.first() == Some(&from);
        blob.providers.retain(|slot| *slot != from);
        if blob.is_whole() {
            return;
        }
        if blob.providers.is_empty() {
            // All members had it before this process was one of them.
            out.push(Action::sometimes(OverlayEvent::ForgottenBeforeJoiner));
            self.remove(id);
        } else if first {
            self.want(id, true, out);
        }
    }

    /// Another view: other neighbours.
    pub(super) fn spread_on(&mut self, now: Time, old: Option<&View>, out: &mut Out) {
        let Some(view) = self.view.clone() else { return };
        // A process in another incarnation knows nothing of the one before.
        let stays = |slot: Slot| {
            let before = old.and_then(|old| old.at(slot));
            let now = view.at(slot);
            now.is_some() && (before.is_none() || before == now)
        };
        let neighbours: BTreeSet<Slot> = self.neighbours().collect();
        let ids: Vec<Id> = self.blobs.keys().copied().collect();
        for id in ids {
            let Some(blob) = self.blobs.get_mut(&id) else { continue };
            blob.below.clear();
            blob.everywhere = false;
            blob.served.retain(|slot, _| neighbours.contains(slot) && stays(*slot));
            let provider = blob.providers.first().copied();
            blob.providers.retain(|slot| stays(*slot));
            let whole = blob.is_whole();
            if whole {
                // All neighbours are to know, wherever it came from.
                blob.providers.clear();
            } else if blob.providers.first().copied() != provider {
                self.want(id, true, out);
            }
            self.offer_around(now, id, false, out);
            if whole {
                self.complete_if_so(id, out);
            }
        }
    }

    /// Tells the parent when this member and all below it have something.
    fn complete_if_so(&mut self, id: Id, out: &mut Out) {
        let Some(blob) = self.blobs.get(&id) else { return };
        let all = self.children.iter().all(|child| blob.below.contains(child));
        if !blob.is_whole() || !all || blob.everywhere {
            return;
        }
        match self.parent {
            Some(parent) => self.tell(parent, OverlayBody::Complete { id }, out),
            None => self.everywhere(id, out),
        }
    }

    pub(super) fn complete_below(&mut self, from: Slot, id: Id, out: &mut Out) {
        match self.blobs.get_mut(&id) {
            Some(blob) if !blob.everywhere => {
                blob.below.insert(from);
                self.complete_if_so(id, out);
            }
            None if !self.had.has(id) => {}
            // It was forgotten here because all have it.
            _ => self.tell(from, OverlayBody::Everywhere { id }, out),
        }
    }

    /// All members of the view have it.
    pub(super) fn everywhere(&mut self, id: Id, out: &mut Out) {
        let open = |blob: &&mut Blob| !blob.everywhere && blob.is_whole();
        let Some(blob) = self.blobs.get_mut(&id).filter(open) else { return };
        let first = !blob.told;
        (blob.everywhere, blob.told) = (true, true);
        for served in blob.served.values_mut() {
            (served.heard, served.has) = (true, true);
        }
        let lasting = blob.lasting;
        for child in self.children.clone() {
            self.tell(child, OverlayBody::Everywhere { id }, out);
        }
        if first {
            out.push(Action::Deliver(OverlayDelivery::Everywhere(id)));
        }
        if !lasting {
            self.remove(id);
        }
    }

    /// Says again what may have been lost, while something is to be done.
    pub(super) fn again(&mut self, now: Time, out: &mut Out) {
        self.retrying = false;
        let ids: Vec<Id> = self.blobs.keys().copied().collect();
        let mut busy = false;
        for id in ids {
            let Some(blob) = self.blobs.get_mut(&id) else { continue };
            if blob.is_whole() && blob.is_done() {
                continue;
            }
            busy = true;
            let waited = now - blob.progress;
            let origin_is_in = self.view.as_ref().is_some_and(|view| view.contains(id.origin));
            if !blob.is_whole() && !origin_is_in && waited >= self.settings.give_up {
                let (seq, chunks) = (id.seq, blob.next());
                out.push(Action::log(OverlayEvent::OnlyAPart { seq, chunks }));
                self.remove(id);
                continue;
            }
            if !blob.is_whole() && waited >= self.settings.retry {
                blob.tries += 1;
                if blob.tries > PATIENCE && blob.providers.len() > 1 {
                    blob.providers.rotate_left(1);
                    blob.tries = 0;
                }
                self.want(id, true, out);
            }
            let Some(blob) = self.blobs.get(&id) else { continue };
            let offer = blob.offer(id, false);
            let silent = blob.served.iter().filter(|(_, served)| !served.heard);
            let silent: Vec<Slot> = silent.map(|(slot, _)| *slot).collect();
            for slot in silent {
                self.tell(slot, OverlayBody::Offer(offer.clone()), out);
            }
            self.complete_if_so(id, out);
        }
        if busy {
            self.retry_soon(now, out);
        }
    }
}
