//! Plain values: what the objects of a cluster are made of.
//!
//! Integers, floating-point numbers, `bool`, enums without fields, references, arrays of fixed
//! length, and structs of these, the last made with [`object!`](crate::object). Which bit patterns
//! are values is zerocopy's business ([`TryFromBytes`]); bounds, references and the type table are
//! ours. A value is stored field by field into zeros, so that the gaps between fields are always 0.

use zerocopy::{Immutable, KnownLayout, TryFromBytes};

use crate::clusters::object::{Member, Refs};
use crate::clusters::reference::{Kind, Ref};
use crate::clusters::refusal::Fault;
use crate::clusters::table::{Name, Shape};

/// A value of fixed size in clusters of the schema `S`.
///
/// Implemented by [`object!`](crate::object) for the program's own types.
pub trait Plain<S, K: Kind>: TryFromBytes + KnownLayout + Immutable + Copy + 'static {
    /// Its name, for references to it.
    const NAME: Name;
    /// Layout of its bytes, for the type table.
    const SHAPE: Shape;

    /// Writes it into `out`, which has its size and is zero; gaps stay zero.
    fn store(&self, out: &mut [u8]);

    /// Returns true if bounds and references are as declared. Called for every value that comes
    /// from outside: without branches that depend on the value.
    fn is_good(&self, refs: &Refs<'_, K>) -> bool;

    /// The same as [`is_good`](Self::is_good), in words.
    ///
    /// # Errors
    /// The first field that is not as declared.
    fn check(&self, refs: &Refs<'_, K>) -> Result<(), Fault>;

    /// First fault in `bytes`, which are no value of this type, with its place.
    #[doc(hidden)]
    fn find_fault(bytes: &[u8]) -> Fault {
        Fault::no_value(bytes)
    }
}

macro_rules! primitive {
    ($($type:ident)*) => {$(
        impl<S, K: Kind> Plain<S, K> for $type {
            const NAME: Name = Name::Plain(stringify!($type));
            const SHAPE: Shape = Shape::Primitive(stringify!($type));

            #[inline]
            fn store(&self, out: &mut [u8]) {
                out.copy_from_slice(zerocopy::IntoBytes::as_bytes(self));
            }

            #[inline]
            fn is_good(&self, _: &Refs<'_, K>) -> bool {
                true
            }

            fn check(&self, _: &Refs<'_, K>) -> Result<(), Fault> {
                Ok(())
            }
        }
    )*};
}
primitive!(u8 u16 u32 u64 i8 i16 i32 i64 f32 f64 bool);

impl<S, K: Kind, T: Member<S, K> + ?Sized> Plain<S, K> for Ref<T, K>
where
    T: 'static,
{
    const NAME: Name = Name::Ref(&T::NAME);
    const SHAPE: Shape = Shape::Ref(T::NAME);

    #[inline]
    fn store(&self, out: &mut [u8]) {
        out.copy_from_slice(zerocopy::IntoBytes::as_bytes(&self.word));
    }

    #[inline]
    fn is_good(&self, refs: &Refs<'_, K>) -> bool {
        refs.find(*self, T::ID).is_some()
    }

    fn check(&self, refs: &Refs<'_, K>) -> Result<(), Fault> {
        match refs.find(*self, T::ID) {
            Some(_) => Ok(()),
            None => Err(refs.fault(*self, T::NAME)),
        }
    }
}

impl<S, K: Kind, T: Plain<S, K>, const N: usize> Plain<S, K> for [T; N] {
    const NAME: Name = Name::Fixed(&T::NAME, N);
    const SHAPE: Shape = Shape::Fixed(&T::SHAPE, N);

    #[inline]
    fn store(&self, out: &mut [u8]) {
        for (element, out) in self.iter().zip(out.chunks_exact_mut(size_of::<T>())) {
            element.store(out);
        }
    }

    #[inline]
    fn is_good(&self, refs: &Refs<'_, K>) -> bool {
        self.iter().fold(true, |good, element| good & element.is_good(refs))
    }

    fn check(&self, refs: &Refs<'_, K>) -> Result<(), Fault> {
        for (index, element) in self.iter().enumerate() {
            if let Err(fault) = element.check(refs) {
                return Err(fault.inside(index * size_of::<T>()));
            }
        }
        Ok(())
    }

    fn find_fault(bytes: &[u8]) -> Fault {
        find_fault_in_array::<S, K, T>(bytes)
    }
}

/// The first element that is no value, in bytes that hold elements of type `T`.
pub(crate) fn find_fault_in_array<S, K: Kind, T: Plain<S, K>>(bytes: &[u8]) -> Fault {
    let size = size_of::<T>();
    let bad =
        bytes.chunks_exact(size).enumerate().find(|(_, b)| T::try_read_from_bytes(b).is_err());
    let (index, bytes) = bad.unwrap_or((0, &[]));
    T::find_fault(bytes).inside(index * size)
}
