//! Objects: what references lead to. Eight bytes of header, then a plain value, or, for arrays and
//! strings, the number of elements or bytes as `u64` and then these.
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 2 | number of the type in its schema |
//! | 2 | 2 | flags, 0 |
//! | 4 | 4 | size in units of 8 bytes, this header included |
//! | 8 | | contents, filled up with zeros to a multiple of 8 |

use zerocopy::TryFromBytes;

use crate::clusters::bits::{Bits, Marker};
use crate::clusters::plain::{Plain, find_fault_in_array};
use crate::clusters::reference::{Kind, Ref};
use crate::clusters::refusal::{Fault, Reason};
use crate::clusters::table::{Name, Shape, Table, Type};

/// Bytes of an object header.
pub(crate) const OBJECT_HEADER_LEN: usize = 8;

/// The header of an object.
#[derive(Debug)]
pub struct ObjectHeader {
    pub(crate) id: u16,
    pub(crate) flags: u16,
    pub(crate) units: u32,
}

impl ObjectHeader {
    /// The header at the start of `bytes`.
    #[inline]
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let word = u64::from_le_bytes(*bytes.first_chunk()?);
        #[expect(clippy::cast_possible_truncation, reason = "the pieces of a word")]
        Some(Self { id: word as u16, flags: (word >> 16) as u16, units: (word >> 32) as u32 })
    }

    #[inline]
    pub(crate) fn emit(&self) -> [u8; OBJECT_HEADER_LEN] {
        let word = u64::from(self.id) | u64::from(self.flags) << 16 | u64::from(self.units) << 32;
        word.to_le_bytes()
    }
}

/// Something a reference can lead to: a plain value, an array, a string.
pub trait Object<S, K: Kind>: 'static {
    /// Its name.
    const NAME: Name;
    /// Layout of its bytes, for the type table.
    const SHAPE: Shape;

    /// Bytes of its contents, as far as they say themselves; none when that cannot be.
    #[doc(hidden)]
    fn measure(contents: &[u8]) -> Option<usize>;

    /// The object in `contents`, which are as long as `measure` says; none when it is no value.
    #[doc(hidden)]
    fn view(contents: &[u8]) -> Option<&Self>;

    /// Returns true if everything in an object of the right length is as declared; `contents` may
    /// have filling behind what `measure` says.
    #[doc(hidden)]
    fn is_good(contents: &[u8], refs: &Refs<'_, K>) -> bool;

    /// Reason why [`is_good`](Self::is_good) is false; none when it is true.
    #[doc(hidden)]
    fn fault(contents: &[u8], refs: &Refs<'_, K>) -> Option<Fault>;

    /// The header of all objects of this type, when they have the same size.
    #[doc(hidden)]
    fn header(id: u16) -> Option<ObjectHeader>;

    /// Marks the objects of type `id` that follow each other from `offset` on, as far as their
    /// headers are the one that all have.
    #[doc(hidden)]
    #[inline]
    fn mark_run(id: u16, bytes: &[u8], run: &mut Run<'_>) {
        if let Some(header) = Self::header(id) {
            let (step, header) = (header.units as usize * 8, header.emit());
            let mut marker = Marker::new(&mut run.starts[usize::from(id)]);
            while let Some(first) =
                bytes.get(run.offset..run.offset + step).and_then(<[u8]>::first_chunk)
                && *first == header
            {
                marker.insert(run.offset / 8);
                run.found += 1;
                run.offset += step;
            }
        }
    }

    /// Checks the contents of the objects of type `id` that follow each other from `offset` on, where
    /// there is one; returns the offset behind them, or the offset of one that is not good.
    #[doc(hidden)]
    #[inline]
    fn check_run(
        id: u16,
        bytes: &[u8],
        mut offset: usize,
        refs: &Refs<'_, K>,
    ) -> Result<usize, (usize, Fault)> {
        let (step, header) = match Self::header(id) {
            Some(header) => (header.units as usize * 8, header.emit()),
            None => match ObjectHeader::read(&bytes[offset..]) {
                Some(header) => (header.units as usize * 8, header.emit()),
                None => return Ok(bytes.len()),
            },
        };
        while let Some((first, contents)) =
            bytes.get(offset..offset + step).and_then(<[u8]>::split_first_chunk)
            && *first == header
        {
            if !Self::is_good(contents, refs) {
                let none = || Fault::no_value(contents);
                return Err((offset, Self::fault(contents, refs).unwrap_or_else(none)));
            }
            offset += step;
        }
        Ok(offset)
    }
}

/// Progress of the first pass over a cluster.
#[derive(Debug)]
pub struct Run<'a> {
    pub(crate) starts: &'a mut [Bits],
    pub(crate) offset: usize,
    pub(crate) found: u64,
}

impl<S, K: Kind, T: Plain<S, K>> Object<S, K> for T {
    const NAME: Name = T::NAME;
    const SHAPE: Shape = T::SHAPE;

    #[inline]
    fn measure(_: &[u8]) -> Option<usize> {
        const { assert!(size_of::<T>() > 0 && align_of::<T>() <= 8, "an object needs 1 byte") };
        Some(size_of::<T>())
    }

    #[inline]
    fn view(contents: &[u8]) -> Option<&Self> {
        T::try_ref_from_bytes(contents).ok()
    }

    #[inline]
    fn is_good(contents: &[u8], refs: &Refs<'_, K>) -> bool {
        match contents.get(..size_of::<T>()).map(T::try_ref_from_bytes) {
            Some(Ok(value)) => value.is_good(refs),
            _ => false,
        }
    }

    fn fault(contents: &[u8], refs: &Refs<'_, K>) -> Option<Fault> {
        let contents = contents.get(..size_of::<T>())?;
        match T::try_ref_from_bytes(contents) {
            Ok(value) => value.check(refs).err(),
            Err(_) => Some(T::find_fault(contents)),
        }
    }

    #[inline]
    fn header(id: u16) -> Option<ObjectHeader> {
        let units = OBJECT_HEADER_LEN + size_of::<T>();
        #[expect(clippy::cast_possible_truncation, reason = "no plain value is 32 GiB long")]
        Some(ObjectHeader { id, flags: 0, units: units.div_ceil(8) as u32 })
    }
}

/// Bytes in front of the elements of an array and the bytes of a string: their number.
pub(crate) const COUNT_LEN: usize = 8;

#[inline]
fn count_of(contents: &[u8]) -> Option<usize> {
    usize::try_from(u64::from_le_bytes(*contents.first_chunk()?)).ok()
}

impl<S, K: Kind, T: Plain<S, K>> Object<S, K> for [T] {
    const NAME: Name = Name::Array(&T::NAME);
    const SHAPE: Shape = Shape::Array(&T::SHAPE);

    #[inline]
    fn measure(contents: &[u8]) -> Option<usize> {
        const { assert!(size_of::<T>() > 0 && align_of::<T>() <= 8, "an element needs 1 byte") };
        count_of(contents)?.checked_mul(size_of::<T>())?.checked_add(COUNT_LEN)
    }

    #[inline]
    fn view(contents: &[u8]) -> Option<&Self> {
        <[T]>::try_ref_from_bytes(contents.get(COUNT_LEN..)?).ok()
    }

    #[inline]
    fn is_good(contents: &[u8], refs: &Refs<'_, K>) -> bool {
        let view = cut::<S, K, Self>(contents).and_then(<Self as Object<S, K>>::view);
        view.is_some_and(|values| {
            values.iter().fold(true, |good, value| good & value.is_good(refs))
        })
    }

    fn fault(contents: &[u8], refs: &Refs<'_, K>) -> Option<Fault> {
        let elements = cut::<S, K, Self>(contents)?.get(COUNT_LEN..)?;
        let Ok(values) = <[T]>::try_ref_from_bytes(elements) else {
            return Some(find_fault_in_array::<S, K, T>(elements).inside(COUNT_LEN));
        };
        values.iter().enumerate().find_map(|(index, value)| {
            let fault = value.check(refs).err()?;
            Some(fault.inside(COUNT_LEN + index * size_of::<T>()))
        })
    }

    #[inline]
    fn header(_: u16) -> Option<ObjectHeader> {
        None
    }
}

impl<S, K: Kind> Object<S, K> for str {
    const NAME: Name = Name::Plain("str");
    const SHAPE: Shape = Shape::Primitive("str");

    #[inline]
    fn measure(contents: &[u8]) -> Option<usize> {
        count_of(contents)?.checked_add(COUNT_LEN)
    }

    #[inline]
    fn view(contents: &[u8]) -> Option<&Self> {
        Self::from_utf8(contents.get(COUNT_LEN..)?).ok()
    }

    #[inline]
    fn is_good(contents: &[u8], _: &Refs<'_, K>) -> bool {
        cut::<S, K, Self>(contents).and_then(<Self as Object<S, K>>::view).is_some()
    }

    fn fault(contents: &[u8], _: &Refs<'_, K>) -> Option<Fault> {
        let text = cut::<S, K, Self>(contents)?.get(COUNT_LEN..)?;
        let error = Self::from_utf8(text).err()?;
        Some(Fault::new(Reason::Utf8).inside(COUNT_LEN + error.valid_up_to()))
    }

    #[inline]
    fn header(_: u16) -> Option<ObjectHeader> {
        None
    }
}

/// An object type of the schema `S`. Implemented by [`schema!`](crate::schema).
pub trait Member<S, K: Kind>: Object<S, K> {
    /// Its number in the schema.
    const ID: u16;
}

/// A type that may be the root of a cluster. Implemented by [`schema!`](crate::schema).
pub trait Root<S, K: Kind>: Member<S, K> {}

/// A list of object types. Implemented by [`schema!`](crate::schema).
pub trait Schema<K: Kind>: Sized + 'static {
    /// Name and version, such as `itg.experiment.1`.
    const NAME: &'static str;
    /// The types; their place is their number.
    const TYPES: &'static [Type];
    /// The type table.
    const TABLE: Table = Table::of(Self::NAME, K::NAME, Self::TYPES);
    /// The hash in the header of its clusters.
    const HASH: u64 = Self::TABLE.hash();

    /// The text of the type table, which nodes exchange when their hashes differ:
    /// [`compare_tables`](crate::clusters::compare_tables).
    #[must_use]
    fn table() -> &'static str {
        const { &Self::TABLE }.text()
    }

    /// Bytes of the contents of an object of type `id`, see [`Object::measure`].
    #[doc(hidden)]
    fn measure(id: u16, contents: &[u8]) -> Option<usize>;

    /// See [`Object::mark_run`].
    #[doc(hidden)]
    fn mark_run(id: u16, bytes: &[u8], run: &mut Run<'_>);

    /// See [`Object::check_run`].
    #[doc(hidden)]
    fn check_run(
        id: u16,
        bytes: &[u8],
        offset: usize,
        refs: &Refs<'_, K>,
    ) -> Result<usize, (usize, Fault)>;
}

/// Data that a reference is checked against: the starts of the objects of the cluster.
#[derive(Debug)]
pub struct Refs<'a, K: Kind> {
    /// By type.
    starts: &'a [Bits],
    base: u64,
    /// Length of the cluster in bytes.
    len: usize,
    types: &'static [Type],
    kind: std::marker::PhantomData<K>,
}

impl<'a, K: Kind> Refs<'a, K> {
    #[inline]
    pub(crate) fn new<S: Schema<K>>(starts: &'a [Bits], base: u64, len: usize) -> Self {
        Self { starts, base, len, types: S::TYPES, kind: std::marker::PhantomData }
    }

    /// Offset in bytes of the object that a reference leads to, when it is one of type `id`; 0 for
    /// null.
    #[inline]
    pub(crate) fn find<T: ?Sized>(&self, reference: Ref<T, K>, id: u16) -> Option<usize> {
        let units = K::units(reference.word, self.base);
        let good = self.starts.get(usize::from(id)).is_some_and(|starts| starts.contains(units));
        good.then(|| units * 8)
    }

    /// Reason why `find` finds no object.
    #[cold]
    pub(crate) fn fault<T: ?Sized>(&self, reference: Ref<T, K>, expected: Name) -> Fault {
        let number = reference.number();
        let units = K::units(reference.word, self.base);
        if number == self.base {
            return Fault::new(Reason::NoObject { number });
        }
        if units > usize::MAX / 8 && !number.wrapping_sub(self.base).is_multiple_of(8) {
            return Fault::new(Reason::Unaligned { number });
        }
        if units >= self.len / 8 {
            return Fault::new(Reason::Outside { number });
        }
        match self.starts.iter().zip(self.types).find(|(starts, _)| starts.contains(units)) {
            Some((_, found)) => Fault::new(Reason::Target { number, got: found.name, expected }),
            None => Fault::new(Reason::NoObject { number }),
        }
    }
}

/// `contents` without the filling behind what is said of their length.
#[inline]
fn cut<S, K: Kind, T: Object<S, K> + ?Sized>(contents: &[u8]) -> Option<&[u8]> {
    contents.get(..T::measure(contents)?)
}

/// The bytes from `offset` of an object behind its header that are its contents.
#[inline]
pub(crate) fn contents<S, K: Kind, T: Object<S, K> + ?Sized>(
    bytes: &[u8],
    offset: usize,
) -> Option<&[u8]> {
    cut::<S, K, T>(bytes.get(offset + OBJECT_HEADER_LEN..)?)
}
