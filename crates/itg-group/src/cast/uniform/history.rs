//! Messages that an epoch has delivered, progress of each member in it, and casts of this member.

use std::collections::{BTreeMap, VecDeque};

use bytes::{BufMut as _, BytesMut};
use itg_members::wire::Take;
use itg_members::{Id, Member};
use itg_process::Slot;

use super::message::{Named, put_named, take_named};
use crate::cast::backlog::Backlog;
use crate::cast::entry::Entry;

/// Own messages that wait: this many bytes, and no message is longer.
const WINDOW_BYTES: usize = 128 << 10;
/// Messages delivered that some member may lack: beyond these bytes nothing is cast.
const HISTORY_BYTES: usize = 1 << 20;
/// Messages that are said again at a time, and bytes that fill a gap at a time.
pub(super) const AGAIN: usize = 64;
pub(super) const FILL_BYTES: usize = 64 << 10;
/// Bytes that a message in the history costs beside its own.
const OVERHEAD: usize = 64;

/// Messages delivered in an epoch that some member may lack. They are consecutive: `first` is the number of
/// the first one, and `bytes` is what all of them take.
#[derive(Clone, Debug, Default, Hash)]
pub(super) struct History {
    messages: VecDeque<Named>,
    first: u64,
    bytes: usize,
}

impl History {
    /// Number of the first message that is kept.
    pub(super) const fn first(&self) -> u64 {
        self.first
    }

    /// Messages delivered in the epoch.
    pub(super) fn done(&self) -> u64 {
        self.first + self.messages.len() as u64
    }

    /// Returns true if nothing more may be cast before members catch up.
    pub(super) const fn is_full(&self) -> bool {
        self.bytes > HISTORY_BYTES
    }

    /// The next message is delivered.
    pub(super) fn push(&mut self, named: Named) {
        self.bytes += named.1.len() + OVERHEAD;
        self.messages.push_back(named);
    }

    /// The same place in the epoch without the messages before it.
    pub(super) fn without_messages(&self) -> Self {
        Self { first: self.done(), ..Self::default() }
    }

    /// Writes what a member that takes a state over keeps: number of the first message, messages.
    pub(super) fn put(&self, out: &mut BytesMut) {
        out.put_u64_le(self.first);
        put_named(out, self.messages.iter());
    }

    /// Reads it.
    pub(super) fn take(take: &mut Take) -> Option<Self> {
        let mut history = Self { first: take.u64()?, ..Self::default() };
        let messages = take_named(take)?;
        history.first.checked_add(messages.len() as u64)?;
        messages.into_iter().for_each(|named| history.push(named));
        Some(history)
    }

    /// Forgets what all members have delivered.
    pub(super) fn forget_before(&mut self, number: u64) {
        while self.first < number {
            self.first += 1;
            if let Some((_, payload)) = self.messages.pop_front() {
                self.bytes -= payload.len() + OVERHEAD;
            }
        }
    }

    /// All messages that are kept.
    pub(super) fn messages(&self) -> impl Iterator<Item = &Named> {
        self.messages.iter()
    }

    /// The messages from a number on that go to a member at a time.
    pub(super) fn gap(&self, number: u64) -> Vec<Named> {
        let skip = usize::try_from(number - self.first).unwrap_or(usize::MAX);
        let mut bytes = 0;
        let fits = |named: &&Named| {
            bytes += named.1.len();
            bytes <= FILL_BYTES || bytes == named.1.len()
        };
        self.messages.iter().skip(skip).take(AGAIN).take_while(fits).cloned().collect()
    }
}

/// Number of messages that each member has delivered in an epoch, as it has told, and had told at the last tick.
#[derive(Clone, Debug, Default, Hash)]
pub(super) struct Progress {
    delivered: BTreeMap<Slot, u64>,
    before: BTreeMap<Slot, u64>,
}

impl Progress {
    /// A member tells its number; numbers only grow.
    pub(super) fn told(&mut self, slot: Slot, number: u64) {
        let known = self.delivered.entry(slot).or_insert(0);
        *known = (*known).max(number);
    }

    /// Number of a member; 0 before it has told one.
    pub(super) fn of(&self, slot: Slot) -> u64 {
        self.delivered.get(&slot).copied().unwrap_or(0)
    }

    /// Members that have not moved since the last tick and lack something of this history, with their numbers.
    pub(super) fn stalled(&mut self, history: &History) -> Vec<(Slot, u64)> {
        let wanted = history.first()..history.done();
        let same = |slot: &Slot, number: &u64| self.before.get(slot) == Some(number);
        let stalled = self.delivered.iter().filter(|(s, n)| same(s, n) && wanted.contains(n));
        let stalled = stalled.map(|(slot, number)| (*slot, *number)).collect();
        self.before.clone_from(&self.delivered);
        stalled
    }
}

/// Messages that this member has cast: the number of the next one, and the bytes of those that wait.
#[derive(Clone, Debug, Default, Hash)]
pub(super) struct Outbox {
    next: u64,
    bytes: usize,
}

impl Outbox {
    /// Name of the next message of so many bytes, if there is room for it.
    pub(super) fn next(&self, me: Member, bytes: usize) -> Option<Id> {
        (self.bytes + bytes <= WINDOW_BYTES).then_some(Id { origin: me, seq: self.next })
    }

    /// The next message is cast.
    pub(super) const fn cast(&mut self, bytes: usize) {
        self.next += 1;
        self.bytes += bytes;
    }

    /// All messages before this number have been cast.
    pub(super) fn cast_before(&mut self, number: u64) {
        self.next = self.next.max(number);
    }

    /// A message that waited is delivered.
    pub(super) const fn delivered(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_sub(bytes);
    }

    /// Counts anew what waits.
    pub(super) fn recount(&mut self, backlog: &Backlog, me: Member) {
        self.bytes = backlog.of(me).map(Entry::len).sum();
    }
}
