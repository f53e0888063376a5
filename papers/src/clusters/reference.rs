//! References between the objects of a cluster: inert numbers, of one of two kinds.
//!
//! *Relocatable*: the offset from the first byte of the cluster, in units of 8 bytes, in 32 bits; a
//! cluster reaches 32 GiB and may lie anywhere. *Fixed address*: the address itself, in 64 bits; the
//! cluster lies at the address that was agreed upon. 0 is null in both: no object lies in the header.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use itg_arena::{KIND_ISO, KIND_RELOC};

mod sealed {
    #[expect(unnameable_types, reason = "nobody else is to make a kind of references")]
    pub trait Sealed {}
    impl Sealed for super::Reloc {}
    impl Sealed for super::Iso {}
}

/// Kind of the references of a cluster: [`Reloc`] or [`Iso`].
pub trait Kind: sealed::Sealed + Copy + Eq + Ord + Hash + fmt::Debug + 'static {
    /// A reference as it lies in memory.
    type Word: Copy
        + Default
        + Ord
        + Hash
        + Into<u64>
        + FromBytes
        + IntoBytes
        + KnownLayout
        + Immutable
        + 'static;
    /// The kind's number in the header.
    const NUMBER: u8;
    /// The kind's name in type tables.
    const NAME: &'static str;
    /// Longest cluster in bytes.
    const REACH: u64;

    /// The reference to the object at `offset` bytes in a cluster at address `base`.
    #[doc(hidden)]
    fn word(offset: usize, base: u64) -> Self::Word;

    /// The place a reference leads to, in units of 8 bytes from the start of the cluster: the inverse
    /// of `word`; 0 for null and for nothing else. A number that no cluster reaches when it leads to
    /// no multiple of 8 there. Null is as frequent as not in many graphs: no branch for it.
    #[doc(hidden)]
    fn units(word: Self::Word, base: u64) -> usize;
}

/// References are offsets: the cluster is valid wherever it lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reloc {}

/// References are addresses: the cluster lies at the address that all nodes have agreed upon.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Iso {}

impl Kind for Reloc {
    type Word = u32;
    const NUMBER: u8 = KIND_RELOC;
    const NAME: &'static str = "relocatable";
    const REACH: u64 = 8 << 32;

    #[inline]
    fn word(offset: usize, _: u64) -> u32 {
        u32::try_from(offset / 8).expect("no cluster is longer than its reach")
    }

    #[inline]
    fn units(word: u32, _: u64) -> usize {
        word as usize
    }
}

impl Kind for Iso {
    type Word = u64;
    const NUMBER: u8 = KIND_ISO;
    const NAME: &'static str = "fixed-address";
    const REACH: u64 = 8 << 32;

    #[inline]
    fn word(offset: usize, base: u64) -> u64 {
        base + offset as u64
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "usize has 64 bits, see lib.rs")]
    fn units(word: u64, base: u64) -> usize {
        // An address below the base becomes a number that no cluster reaches, and so does one that is
        // not a multiple of 8 off: its low bits become the highest ones.
        let units = word.wrapping_sub(base).rotate_right(3) as usize;
        let units = if units == 0 { usize::MAX } else { units };
        if word == 0 { 0 } else { units }
    }
}

/// A reference to a `T` in a cluster: a number, and nothing can be done with it without the cluster.
///
/// `T` is a type made with [`object!`](crate::object), a `str`, or an array `[E]`. A reference is
/// good for the cluster it comes from only.
#[derive(FromBytes, KnownLayout, Immutable)]
#[repr(transparent)]
pub struct Ref<T: ?Sized, K: Kind = Reloc> {
    pub(crate) word: K::Word,
    target: PhantomData<fn(&T)>,
}

impl<T: ?Sized, K: Kind> Ref<T, K> {
    /// The reference to nothing.
    #[must_use]
    pub fn null() -> Self {
        Self::from_word(K::Word::default())
    }

    /// Returns true if the reference is null.
    #[inline]
    #[must_use]
    pub fn is_null(self) -> bool {
        self.number() == 0
    }

    /// The number it is: an offset in units of 8 bytes, or an address. It leads to the header of the
    /// object; the fields are 8 bytes behind.
    #[inline]
    #[must_use]
    pub fn number(self) -> u64 {
        self.word.into()
    }

    #[inline]
    pub(crate) const fn from_word(word: K::Word) -> Self {
        Self { word, target: PhantomData }
    }
}

// Derives would ask the same of `T`.
impl<T: ?Sized, K: Kind> Clone for Ref<T, K> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}
impl<T: ?Sized, K: Kind> Copy for Ref<T, K> {}
impl<T: ?Sized, K: Kind> Default for Ref<T, K> {
    fn default() -> Self {
        Self::null()
    }
}
impl<T: ?Sized, K: Kind> PartialEq for Ref<T, K> {
    fn eq(&self, other: &Self) -> bool {
        self.word == other.word
    }
}
impl<T: ?Sized, K: Kind> Eq for Ref<T, K> {}
impl<T: ?Sized, K: Kind> PartialOrd for Ref<T, K> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl<T: ?Sized, K: Kind> Ord for Ref<T, K> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.word.cmp(&other.word)
    }
}
impl<T: ?Sized, K: Kind> Hash for Ref<T, K> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.word.hash(state);
    }
}
impl<T: ?Sized, K: Kind> fmt::Debug for Ref<T, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_null() { f.write_str("null") } else { write!(f, "@{:#x}", self.number()) }
    }
}

/// Identity of a cluster of fixed address: its address, origin and rank. All 0 for relocatable
/// clusters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FixedAddress {
    /// Address of the first byte, a multiple of 8.
    pub base: u64,
    /// Slot of the node that makes it.
    pub origin: u32,
    /// Number among the clusters of its origin.
    pub rank: u32,
}
