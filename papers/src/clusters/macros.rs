//! The two macros that make a program's types into objects of clusters.
//!
//! They are `macro_rules!` and not derives of a crate of their own: what is hard about plain types
//! (which bit patterns are values, views without copies) is zerocopy's; what is left is a list of
//! fields with their offsets and bounds, and a list of types with their numbers.

/// Makes a plain struct or an enum without fields that clusters can hold.
///
/// A struct may hold integers, floating-point numbers, `bool`, enums, references
/// ([`Ref`](crate::clusters::Ref)), other plain structs, and arrays of these. `where` gives a number bounds,
/// which are checked whenever a value enters a cluster. Gaps between fields are allowed; they are
/// zero in every cluster. A type with references that is to be used in clusters of both kinds takes
/// the kind as parameter, which has to be called `K`.
///
/// ```
/// # use itg_papers::clusters::{Ref, object};
/// object! {
///     /// What drives a car.
///     pub enum Fuel: u8 { Petrol = 0, Diesel = 1, Current = 2 }
/// }
/// object! {
///     /// A motor.
///     pub struct Engine {
///         /// In kW.
///         pub power: u32 where 1..=2000,
///         pub fuel: Fuel,
///     }
/// }
/// object! {
///     pub struct Car<K> { pub year: u32, pub engine: Ref<Engine, K>, pub name: Ref<str, K> }
/// }
/// ```
#[macro_export]
macro_rules! object {
    ($(#[$meta:meta])* $vis:vis enum $name:ident: $repr:ident {
        $($(#[$variant_meta:meta])* $variant:ident = $value:literal),+ $(,)?
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[derive($crate::clusters::zerocopy::TryFromBytes, $crate::clusters::zerocopy::KnownLayout)]
        #[derive($crate::clusters::zerocopy::Immutable)]
        #[zerocopy(crate = "itg_papers::clusters::zerocopy")]
        #[repr($repr)]
        $vis enum $name { $($(#[$variant_meta])* $variant = $value),+ }

        impl<S, K: $crate::clusters::Kind> $crate::clusters::Plain<S, K> for $name {
            const NAME: $crate::clusters::Name = $crate::clusters::Name::Plain(stringify!($name));
            const SHAPE: $crate::clusters::Shape = $crate::clusters::Shape::Enum {
                name: stringify!($name),
                repr: stringify!($repr),
                variants: &[$((stringify!($variant), $value)),+],
            };

            #[inline]
            fn store(&self, out: &mut [u8]) {
                out.copy_from_slice(&(*self as $repr).to_le_bytes());
            }

            #[inline]
            fn is_good(&self, _: &$crate::clusters::Refs<'_, K>) -> bool {
                true
            }

            fn check(&self, _: &$crate::clusters::Refs<'_, K>) -> Result<(), $crate::clusters::Fault> {
                Ok(())
            }
        }
    };
    ($(#[$meta:meta])* $vis:vis struct $name:ident<K> { $($fields:tt)* }) => {
        $crate::object! {
            @struct [<K: $crate::clusters::Kind>] [<K>] [$(#[$meta])*] [$vis] $name { $($fields)* }
        }
    };
    ($(#[$meta:meta])* $vis:vis struct $name:ident { $($fields:tt)* }) => {
        $crate::object! { @struct [] [] [$(#[$meta])*] [$vis] $name { $($fields)* } }
    };
    (@struct [$($declared:tt)*] [$($used:tt)*] [$($meta:tt)*] [$vis:vis] $name:ident {
        $(
            $(#[$field_meta:meta])* $field_vis:vis $field:ident: $type:ty $(where $range:expr)?
        ),+ $(,)?
    }) => {
        $($meta)*
        #[derive(Clone, Copy, Debug, PartialEq)]
        #[derive($crate::clusters::zerocopy::TryFromBytes, $crate::clusters::zerocopy::KnownLayout)]
        #[derive($crate::clusters::zerocopy::Immutable)]
        #[zerocopy(crate = "itg_papers::clusters::zerocopy")]
        #[repr(C)]
        $vis struct $name $($declared)* { $($(#[$field_meta])* $field_vis $field: $type),+ }

        impl<S, K: $crate::clusters::Kind> $crate::clusters::Plain<S, K> for $name $($used)*
        where
            $($type: $crate::clusters::Plain<S, K>,)+
        {
            const NAME: $crate::clusters::Name = $crate::clusters::Name::Plain(stringify!($name));
            const SHAPE: $crate::clusters::Shape = $crate::clusters::Shape::Struct {
                name: stringify!($name),
                size: size_of::<Self>(),
                align: align_of::<Self>(),
                fields: &[$($crate::clusters::Field {
                    name: stringify!($field),
                    offset: ::core::mem::offset_of!(Self, $field),
                    shape: <$type as $crate::clusters::Plain<S, K>>::SHAPE,
                    bound: $crate::object!(@bound $type $(, $range)?),
                }),+],
            };

            #[inline]
            fn store(&self, out: &mut [u8]) {
                let out = &mut out[..size_of::<Self>()];
                $({
                    let from = ::core::mem::offset_of!(Self, $field);
                    let out = &mut out[from..from + size_of::<$type>()];
                    <$type as $crate::clusters::Plain<S, K>>::store(&self.$field, out);
                })+
            }

            #[inline]
            fn is_good(&self, refs: &$crate::clusters::Refs<'_, K>) -> bool {
                true $(
                    & <$type as $crate::clusters::Plain<S, K>>::is_good(&self.$field, refs)
                    $(& <::core::ops::RangeInclusive<$type>>::contains(&$range, &self.$field))?
                )+
            }

            fn check(&self, refs: &$crate::clusters::Refs<'_, K>) -> Result<(), $crate::clusters::Fault> {
                $(
                    let offset = ::core::mem::offset_of!(Self, $field);
                    if let Err(fault) = <$type as $crate::clusters::Plain<S, K>>::check(&self.$field, refs) {
                        return Err(fault.in_field(offset, stringify!($field)));
                    }
                    $(
                        if !<::core::ops::RangeInclusive<$type>>::contains(&$range, &self.$field) {
                            return Err($crate::clusters::Fault::range().in_field(offset, stringify!($field)));
                        }
                    )?
                )+
                Ok(())
            }

            fn find_fault(bytes: &[u8]) -> $crate::clusters::Fault {
                $({
                    let from = ::core::mem::offset_of!(Self, $field);
                    let bytes = &bytes[from..from + size_of::<$type>()];
                    if <$type as $crate::clusters::zerocopy::TryFromBytes>::try_read_from_bytes(bytes).is_err() {
                        return <$type as $crate::clusters::Plain<S, K>>::find_fault(bytes)
                            .in_field(from, stringify!($field));
                    }
                })+
                $crate::clusters::Fault::no_value(bytes)
            }
        }
    };
    (@bound $type:ty) => { None };
    (@bound $type:ty, $range:expr) => {{
        const RANGE: ::core::ops::RangeInclusive<$type> = $range;
        Some($crate::clusters::Bound {
            integer: (*RANGE.start() as i128, *RANGE.end() as i128),
            float: (*RANGE.start() as f64, *RANGE.end() as f64),
        })
    }};
}

/// Makes a schema: the types whose objects a cluster may hold, and which of them may be its root.
///
/// The types get their numbers in the order of the list, so that a schema is changed by changing its
/// name. `K` stands for the kind of references.
///
/// ```
/// # use itg_papers::clusters::{Ref, object, schema};
/// # object! { pub struct Engine { pub power: u32 } }
/// # object! { pub struct Car<K> { pub year: u32, pub engine: Ref<Engine, K> } }
/// schema! {
///     /// Cars with their engines.
///     pub struct Cars = "example.cars.1";
///     roots: Car<K>;
///     others: Engine, [Ref<Car<K>, K>], str;
/// }
/// ```
#[macro_export]
macro_rules! schema {
    ($(#[$meta:meta])* $vis:vis struct $name:ident = $text:literal;
        roots: $($root:ty),+ $(,)?;
        $(others: $($other:ty),+ $(,)?;)?
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        $vis enum $name {}

        impl<K: $crate::clusters::Kind> $crate::clusters::Schema<K> for $name {
            const NAME: &'static str = $text;
            const TYPES: &'static [$crate::clusters::Type] = &[
                $($crate::schema!(@type K $root, true),)+
                $($($crate::schema!(@type K $other, false),)+)?
            ];

            #[inline]
            fn measure(id: u16, contents: &[u8]) -> Option<usize> {
                $crate::schema!(@of_type id, K, measure(contents), [$($root),+ $($(, $other)+)?]);
                None
            }

            #[inline]
            fn mark_run(id: u16, bytes: &[u8], run: &mut $crate::clusters::Run<'_>) {
                $crate::schema!(
                    @of_type id, K, mark_run(id, bytes, run), [$($root),+ $($(, $other)+)?]
                );
            }

            #[inline]
            fn check_run(
                id: u16,
                bytes: &[u8],
                offset: usize,
                refs: &$crate::clusters::Refs<'_, K>,
            ) -> Result<usize, (usize, $crate::clusters::Fault)> {
                $crate::schema!(
                    @of_type id, K, check_run(id, bytes, offset, refs), [$($root),+ $($(, $other)+)?]
                );
                Ok(bytes.len())
            }
        }

        $(impl<K: $crate::clusters::Kind> $crate::clusters::Root<$name, K> for $root {})+
        $crate::schema!(@ids $name 0, $($root,)+ $($($other,)+)?);
    };
    (@of_type $id:ident, $kind:ident, $method:ident $args:tt, [$($type:ty),+]) => {
        $(if $id == <$type as $crate::clusters::Member<Self, $kind>>::ID {
            return $crate::schema!(@call $type, $kind, $method $args);
        })+
    };
    (@call $type:ty, $kind:ident, $method:ident ($($arg:expr),+)) => {
        <$type as $crate::clusters::Object<Self, $kind>>::$method($($arg),+)
    };
    (@type $kind:ident $type:ty, $root:literal) => {
        $crate::clusters::Type {
            name: <$type as $crate::clusters::Object<Self, $kind>>::NAME,
            shape: <$type as $crate::clusters::Object<Self, $kind>>::SHAPE,
            root: $root,
        }
    };
    (@ids $name:ident $id:expr,) => {};
    (@ids $name:ident $id:expr, $type:ty, $($rest:tt)*) => {
        impl<K: $crate::clusters::Kind> $crate::clusters::Member<$name, K> for $type {
            const ID: u16 = $id;
        }
        $crate::schema!(@ids $name $id + 1, $($rest)*);
    };
}
