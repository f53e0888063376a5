//! Messages by origin: which are waiting to be ordered, and which have been delivered.
//!
//! One ring for each origin, from its first message that has not been delivered: lookups take constant
//! time, and what has been delivered is forgotten as soon as nothing before it is missing. A ring is no
//! longer than the window of its origin.

use std::collections::VecDeque;

use bytes::{BufMut as _, BytesMut};
use itg_members::wire::{Put as _, Take};
use itg_members::{Id, Member};
use itg_process::Time;

use super::entry::Entry;

/// A message of an origin.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum EntryState {
    /// It has not come.
    Missing,
    /// It waits, since then.
    Waiting(Entry, Time),
    /// It has been delivered; something before it has not.
    Delivered,
}

#[derive(Clone, Debug, Default, Hash)]
struct Origin {
    /// All before it have been delivered.
    next: u64,
    places: VecDeque<EntryState>,
}

impl Origin {
    /// A place for a number within the window.
    fn open(&mut self, seq: u64, window: u64) -> Option<&mut EntryState> {
        let at = seq.checked_sub(self.next).filter(|at| *at < window)?;
        let at = usize::try_from(at).ok()?;
        while self.places.len() <= at {
            self.places.push_back(EntryState::Missing);
        }
        self.places.get_mut(at)
    }
}

/// Messages of an origin that have been delivered: all before number `next`, and these beyond it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct DeliveredRange {
    pub(crate) origin: Member,
    pub(crate) next: u64,
    pub(crate) beyond: Vec<u64>,
}

impl DeliveredRange {
    pub(crate) fn put(&self, out: &mut BytesMut) {
        out.member(self.origin);
        out.put_u64_le(self.next);
        out.put_u32_le(u32::try_from(self.beyond.len()).unwrap_or(u32::MAX));
        self.beyond.iter().for_each(|seq| out.put_u64_le(*seq));
    }

    pub(crate) fn take(take: &mut Take) -> Option<Self> {
        let (origin, next) = (take.member()?, take.u64()?);
        Some(Self { origin, next, beyond: take.list(8, Take::u64)? })
    }
}

/// Outcome of the delivery of an identifier.
#[derive(Debug)]
pub(crate) enum Novelty {
    /// It is new; this is what was waiting under it.
    Fresh(Option<Entry>),
    /// It has been delivered before, or is beyond the window.
    Void,
}

/// Messages by origin.
#[derive(Clone, Debug, Hash)]
pub(crate) struct Backlog {
    /// By member.
    origins: Vec<(Member, Origin)>,
    waiting: usize,
    window: u64,
}

impl Backlog {
    pub(crate) const fn new(window: u64) -> Self {
        Self { origins: Vec::new(), waiting: 0, window }
    }

    /// Messages that wait, of all origins.
    pub(crate) const fn waiting(&self) -> usize {
        self.waiting
    }

    fn origin(&self, member: Member) -> Option<&Origin> {
        let at = self.origins.binary_search_by_key(&member, |(member, _)| *member).ok()?;
        self.origins.get(at).map(|(_, origin)| origin)
    }

    fn origin_mut(&mut self, member: Member) -> &mut Origin {
        let found = self.origins.binary_search_by_key(&member, |(member, _)| *member);
        let at = found.unwrap_or_else(|at| {
            self.origins.insert(at, (member, Origin::default()));
            at
        });
        &mut self.origins[at].1
    }

    /// Returns true if a message of this number fits into the window of its origin.
    pub(crate) fn has_room(&self, id: Id) -> bool {
        let next = self.origin(id.origin).map_or(0, |origin| origin.next);
        id.seq < next.saturating_add(self.window)
    }

    fn place(&self, id: Id) -> Option<&EntryState> {
        let origin = self.origin(id.origin)?;
        let at = id.seq.checked_sub(origin.next)?;
        origin.places.get(usize::try_from(at).ok()?)
    }

    /// The entry that waits under this name.
    pub(crate) fn get(&self, id: Id) -> Option<&Entry> {
        match self.place(id)? {
            EntryState::Waiting(entry, _) => Some(entry),
            EntryState::Missing | EntryState::Delivered => None,
        }
    }

    /// Returns true if a message has been delivered.
    pub(crate) fn is_delivered(&self, id: Id) -> bool {
        let next = self.origin(id.origin).map_or(0, |origin| origin.next);
        id.seq < next || matches!(self.place(id), Some(EntryState::Delivered))
    }

    /// A place for a number within the window.
    fn open(&mut self, id: Id) -> Option<&mut EntryState> {
        let window = self.window;
        self.origin_mut(id.origin).open(id.seq, window)
    }

    /// Lets an entry wait; returns true if it is new and within the window.
    pub(crate) fn put(&mut self, entry: Entry, now: Time) -> bool {
        match self.open(entry.id) {
            Some(place @ EntryState::Missing) => {
                *place = EntryState::Waiting(entry, now);
                self.waiting += 1;
                true
            }
            _ => false,
        }
    }

    /// Notes that a message is delivered.
    pub(crate) fn deliver(&mut self, id: Id) -> Novelty {
        let window = self.window;
        let origin = self.origin_mut(id.origin);
        let Some(place) = origin.open(id.seq, window) else { return Novelty::Void };
        let found = match std::mem::replace(place, EntryState::Delivered) {
            EntryState::Delivered => return Novelty::Void,
            EntryState::Missing => None,
            EntryState::Waiting(entry, _) => Some(entry),
        };
        while matches!(origin.places.front(), Some(EntryState::Delivered)) {
            origin.places.pop_front();
            origin.next += 1;
        }
        self.waiting -= usize::from(found.is_some());
        Novelty::Fresh(found)
    }

    fn entries(&self) -> impl Iterator<Item = (&Entry, Time)> {
        self.origins.iter().flat_map(|(_, origin)| &origin.places).filter_map(|place| match place {
            EntryState::Waiting(entry, since) => Some((entry, *since)),
            EntryState::Missing | EntryState::Delivered => None,
        })
    }

    /// Entries of one origin that wait, by number.
    pub(crate) fn of(&self, origin: Member) -> impl Iterator<Item = &Entry> {
        let places = self.origin(origin).into_iter().flat_map(|origin| &origin.places);
        places.filter_map(|place| match place {
            EntryState::Waiting(entry, _) => Some(entry),
            EntryState::Missing | EntryState::Delivered => None,
        })
    }

    /// Time since which the oldest waiting message has waited, of this origin or of all.
    pub(crate) fn oldest(&self, origin: Option<Member>) -> Option<Time> {
        let of = |(entry, since): (&Entry, Time)| {
            origin.is_none_or(|origin| origin == entry.id.origin).then_some(since)
        };
        self.entries().filter_map(of).min()
    }

    /// Waiting entries by Lamport time and name, as far as these limits go; one entry fits always.
    pub(crate) fn batch(&self, most: usize, most_bytes: usize, of: Option<Member>) -> Vec<&Entry> {
        let of = |entry: &&Entry| of.is_none_or(|origin| origin == entry.id.origin);
        let mut found: Vec<_> = self.entries().map(|(entry, _)| entry).filter(of).collect();
        // Each origin's are in order: the sort merges as many runs as there are origins.
        found.sort_by_key(|entry| entry.key());
        found.truncate(most);
        let mut bytes = 0_usize;
        let fits = found.iter().take_while(|entry| {
            bytes = bytes.saturating_add(entry.len());
            bytes <= most_bytes
        });
        let fits = fits.count().max(1);
        found.truncate(fits);
        found
    }

    /// Forgets all origins but those that stay.
    pub(crate) fn retain(&mut self, stays: impl Fn(Member) -> bool) {
        self.origins.retain(|(origin, _)| stays(*origin));
        self.waiting = self.entries().count();
    }

    /// Messages that have been delivered, by origin.
    pub(crate) fn seen(&self) -> Vec<DeliveredRange> {
        let seen = |&(member, ref origin): &(Member, Origin)| {
            let delivered = (origin.next..).zip(&origin.places);
            let beyond = delivered.filter(|(_, place)| **place == EntryState::Delivered);
            let beyond = beyond.map(|(seq, _)| seq).collect();
            DeliveredRange { origin: member, next: origin.next, beyond }
        };
        self.origins.iter().map(seen).collect()
    }

    /// Takes over what was delivered elsewhere; the other messages that wait here go on waiting.
    pub(crate) fn install(&mut self, seen: &[DeliveredRange]) {
        let old = std::mem::take(&mut self.origins);
        self.waiting = 0;
        for seen in seen {
            self.origin_mut(seen.origin).next = seen.next;
            for &seq in &seen.beyond {
                if let Some(place) = self.open(Id { origin: seen.origin, seq }) {
                    *place = EntryState::Delivered;
                }
            }
        }
        for place in old.into_iter().flat_map(|(_, origin)| origin.places) {
            if let EntryState::Waiting(entry, since) = place {
                self.put(entry, since);
            }
        }
    }
}
