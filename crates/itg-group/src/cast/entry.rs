//! Content of the order: entries, the values that instances decide, and the bytes of both.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use itg_core::streams::fnv1a;
use itg_members::wire::{Put as _, Take};
use itg_members::{Id, MAX_SLOTS, Member, ViewChange};
use itg_process::Slot;

use super::interface::code;

use crate::codec::{read, write};

/// Longest payload of one message: 4 MiB.
pub const MOST_PAYLOAD: usize = 4 << 20;
/// Bytes of a view change, and of what goes with it.
pub(crate) const MOST_PART: usize = 12 << 20;
/// Bytes of a snapshot: 100 MiB.
pub(crate) const MOST_SNAPSHOT: usize = 100 << 20;
/// Messages of a cut, or of what a member tells before one: of all members of the greatest group, with full windows.
/// The bytes of a message are the narrower limit.
pub(crate) const MOST_NAMED: usize = (MAX_SLOTS as usize) << 10;
/// Shortest entry on a wire: identifier, Lamport time, kind, length.
const LEAST_ENTRY: usize = 20 + 8 + 1 + 4;

/// Content of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// A message.
    Message(Bytes),
    /// A message of so many bytes that travels by itself: a member that votes for the entry holds
    /// it.
    Held(u32),
    /// A change of the view, and what goes with it.
    Change(Arc<ViewChange>, Bytes),
}

impl Hash for Body {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self {
            Self::Message(payload) => (0, payload).hash(state),
            Self::Held(len) => (1, len).hash(state),
            Self::Change(change, with) => (2, change.base, with).hash(state),
        }
    }
}

/// Something to be ordered.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Entry {
    /// Its name.
    pub id: Id,
    /// Lamport time of its cast: the order within a batch.
    pub lamport: u64,
    /// Its content.
    pub body: Body,
}

impl Entry {
    /// Bytes of its content.
    #[must_use]
    pub fn len(&self) -> usize {
        match &self.body {
            Body::Message(payload) | Body::Change(_, payload) => payload.len(),
            Body::Held(len) => *len as usize,
        }
    }

    /// Bytes that it takes in a message or a record, or a little less if it is a change of the view.
    pub(crate) fn encoded_len(&self) -> usize {
        LEAST_ENTRY + if matches!(self.body, Body::Held(_)) { 0 } else { self.len() }
    }

    /// Returns true if its content is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes on a wire, but for what a view change takes.
    pub(crate) fn wire_len(&self) -> usize {
        match &self.body {
            Body::Held(_) => LEAST_ENTRY,
            _ => LEAST_ENTRY + self.len(),
        }
    }

    pub(crate) const fn key(&self) -> (u64, Id) {
        (self.lamport, self.id)
    }
}

/// Decision of an instance: entries in their order, and the member that put them together.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Value {
    /// Member that put it together: the first coordinator of the next instance.
    pub author: Member,
    /// The entries.
    pub entries: Vec<Entry>,
}

impl Value {
    /// A number that tells values apart, for checkers.
    pub(crate) fn digest(&self) -> u64 {
        let mut names = Vec::with_capacity(28 * (self.entries.len() + 1));
        names.extend(code(self.author).to_le_bytes());
        for entry in &self.entries {
            names.extend(code(entry.id.origin).to_le_bytes());
            names.extend(entry.id.seq.to_le_bytes());
        }
        fnv1a(&names)
    }
}

/// Writes entries.
pub(crate) trait PutEntry {
    fn entry(&mut self, entry: &Entry);
    fn entries(&mut self, entries: &[Entry]);
    fn value(&mut self, value: &Value);
}

fn count(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

impl PutEntry for BytesMut {
    fn entry(&mut self, entry: &Entry) {
        let (kind, len) = match &entry.body {
            Body::Message(payload) => (0, count(payload.len())),
            Body::Held(len) => (1, *len),
            Body::Change(..) => (2, 0),
        };
        let mut head = [0; LEAST_ENTRY];
        head[..4].copy_from_slice(&entry.id.origin.slot.0.to_le_bytes());
        head[4..12].copy_from_slice(&entry.id.origin.incarnation.to_le_bytes());
        head[12..20].copy_from_slice(&entry.id.seq.to_le_bytes());
        head[20..28].copy_from_slice(&entry.lamport.to_le_bytes());
        head[28] = kind;
        head[29..].copy_from_slice(&len.to_le_bytes());
        match &entry.body {
            Body::Message(payload) => {
                self.put_slice(&head);
                self.put_slice(payload);
            }
            Body::Held(_) => self.put_slice(&head),
            Body::Change(change, with) => {
                self.put_slice(&head[..29]);
                self.blob(&write(&**change));
                self.blob(with);
            }
        }
    }

    fn entries(&mut self, entries: &[Entry]) {
        self.put_u32_le(count(entries.len()));
        for entry in entries {
            self.entry(entry);
        }
    }

    fn value(&mut self, value: &Value) {
        self.member(value.author);
        self.entries(&value.entries);
    }
}

/// Reads the same from bytes that may be anything; payloads share the buffer.
pub(crate) trait TakeEntry: Sized {
    fn entry(&mut self) -> Option<Entry>;
    fn entries(&mut self) -> Option<Vec<Entry>>;
    fn value(&mut self) -> Option<Arc<Value>>;
}

impl TakeEntry for Take {
    fn entry(&mut self) -> Option<Entry> {
        let head = self.peek::<LEAST_ENTRY>()?;
        let u32_at =
            |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let u64_at = |at: usize| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
        let id = Id { origin: Member::new(Slot(u32_at(0)), u64_at(4)), seq: u64_at(12) };
        let (lamport, len) = (u64_at(20), u32_at(29));
        let body = match head[28] {
            0 => {
                let len = Some(len as usize).filter(|len| *len <= MOST_PAYLOAD)?;
                let mut whole = self.bytes(LEAST_ENTRY + len)?;
                whole.advance(LEAST_ENTRY);
                Body::Message(whole)
            }
            1 => {
                self.array::<LEAST_ENTRY>()?;
                (len as usize <= MOST_PAYLOAD).then_some(Body::Held(len))?
            }
            2 => {
                // Its length is that of what follows.
                self.array::<{ LEAST_ENTRY - 4 }>()?;
                let change: ViewChange = read(&self.blob(MOST_PART)?)?;
                let sound = change.changes.is_sound();
                Body::Change(Arc::new(sound.then_some(change)?), self.blob(MOST_PART)?)
            }
            _ => return None,
        };
        Some(Entry { id, lamport, body })
    }

    fn entries(&mut self) -> Option<Vec<Entry>> {
        self.list(LEAST_ENTRY, Self::entry)
    }

    fn value(&mut self) -> Option<Arc<Value>> {
        Some(Arc::new(Value { author: self.member()?, entries: self.entries()? }))
    }
}
