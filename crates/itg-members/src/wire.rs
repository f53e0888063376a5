//! Bytes of members and of names of messages: written into a buffer, and read from bytes that may be anything.
//!
//! A member is its slot u32 and its incarnation u64, a name the member and a number u64, bytes have their
//! length u32 before them. Little-endian.

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use itg_process::Slot;

use crate::member::{Id, Member};

/// Things of one list.
const MOST_OF_A_LIST: usize = 1 << 16;

/// Writes members, names, bytes.
pub trait Put {
    /// Writes a member, 12 bytes.
    fn member(&mut self, member: Member);
    /// Writes a name, 20 bytes.
    fn id(&mut self, id: Id);
    /// Writes bytes behind their length.
    fn blob(&mut self, bytes: &[u8]);
}

impl Put for BytesMut {
    #[inline]
    fn member(&mut self, member: Member) {
        self.put_u32_le(member.slot.0);
        self.put_u64_le(member.incarnation);
    }

    #[inline]
    fn id(&mut self, id: Id) {
        self.member(id.origin);
        self.put_u64_le(id.seq);
    }

    #[inline]
    fn blob(&mut self, bytes: &[u8]) {
        self.put_u32_le(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
        self.put_slice(bytes);
    }
}

/// Reads the same, and numbers; bytes that it gives share the buffer. Each reading is `None` when the bytes
/// that are left are no such thing.
#[derive(Debug)]
pub struct Take {
    left: Bytes,
}

impl Take {
    /// A reader of these bytes.
    #[must_use]
    pub const fn new(bytes: Bytes) -> Self {
        Self { left: bytes }
    }

    /// The next bytes, which are not taken.
    #[inline]
    #[must_use]
    pub fn peek<const N: usize>(&self) -> Option<[u8; N]> {
        self.left.first_chunk::<N>().copied()
    }

    /// Takes the next bytes.
    #[inline]
    pub fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let found = self.peek::<N>()?;
        self.left.advance(N);
        Some(found)
    }

    /// Takes a byte.
    #[inline]
    pub fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    /// Takes a number of 32 bits.
    #[inline]
    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    /// Takes a number of 64 bits.
    #[inline]
    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// Takes a byte that is 0 or 1.
    #[inline]
    pub fn flag(&mut self) -> Option<bool> {
        match self.u8()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    /// Takes a member.
    #[inline]
    pub fn member(&mut self) -> Option<Member> {
        Some(Member::new(Slot(self.u32()?), self.u64()?))
    }

    /// Takes a name.
    #[inline]
    pub fn id(&mut self) -> Option<Id> {
        Some(Id { origin: self.member()?, seq: self.u64()? })
    }

    /// Takes so many bytes.
    #[inline]
    pub fn bytes(&mut self, len: usize) -> Option<Bytes> {
        (len <= self.left.len()).then(|| self.left.split_to(len))
    }

    /// Takes bytes behind their length, which is at most this.
    #[inline]
    pub fn blob(&mut self, most: usize) -> Option<Bytes> {
        let len = self.u32()? as usize;
        if len > most { None } else { self.bytes(len) }
    }

    /// Takes as many things as the bytes say there are, when there can be as many in what is left: each has
    /// `least` bytes.
    pub fn list<T>(
        &mut self,
        least: usize,
        one: impl Fn(&mut Self) -> Option<T>,
    ) -> Option<Vec<T>> {
        self.list_of(MOST_OF_A_LIST, least, one)
    }

    /// Does the same with a limit of its own instead of 65 536 things.
    pub fn list_of<T>(
        &mut self,
        most: usize,
        least: usize,
        one: impl Fn(&mut Self) -> Option<T>,
    ) -> Option<Vec<T>> {
        let len = self.u32()? as usize;
        if len > most || len > self.left.len() / least {
            return None;
        }
        let mut list = Vec::with_capacity(len);
        for _ in 0..len {
            list.push(one(self)?);
        }
        Some(list)
    }

    /// Returns true if no bytes are left.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.left.is_empty()
    }

    /// The bytes that are left.
    #[must_use]
    pub fn rest(self) -> Bytes {
        self.left
    }

    /// What was found, if no bytes are left over.
    #[must_use]
    pub fn end<T>(self, found: T) -> Option<T> {
        self.left.is_empty().then_some(found)
    }
}
