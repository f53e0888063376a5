//! Events of layers as types: with names and numbers for whoever stores and prints them, with variants and
//! fields for whoever logs and reads them.
//!
//! A layer defines its events by [`layer_events!`](crate::layer_events), which is where their names stand,
//! logs them by [`Ctx::log`](crate::Ctx::log), and others read them by [`Event::decode`]. A trace holds
//! name and values; [`LayerEvent::decode`] makes the event of them again.

use crate::message::Slot;

/// Importance of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// A situation that a sweep over many seeds wants to see at least once.
    Sometimes,
    /// Facts for checkers and traces.
    Info,
    /// Something is odd.
    Warning,
    /// Something is wrong.
    Error,
}

/// Event that a layer logs, for traces and for the checkers of a simulation: one of a set that
/// [`layer_events!`](crate::layer_events) defines, with its name and its fields as numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Importance of the event.
    pub level: Level,
    /// Name of the event.
    pub name: &'static str,
    /// Its fields.
    pub values: [u64; 3],
}

/// Set of events that layers log. [`layer_events!`](crate::layer_events) defines one.
///
/// The name tells the events of a stack apart: two sets that meet in one stack share a name for the same
/// thing only.
pub trait LayerEvent: Sized {
    /// Names of all events of the set.
    const NAMES: &'static [&'static str];

    /// Name and values of this event.
    fn encode(self) -> (&'static str, [u64; 3]);

    /// Event of this set with this name and these values; `None` if there is none.
    fn decode(name: &str, values: [u64; 3]) -> Option<Self>;

    /// Name of this event.
    fn name(self) -> &'static str {
        self.encode().0
    }
}

/// Field of an event: one of its three numbers.
pub trait EventValue: Sized {
    /// Number that stands for the field.
    fn into_number(self) -> u64;

    /// Field that this number stands for; `None` if it stands for none.
    fn from_number(number: u64) -> Option<Self>;
}

impl EventValue for u64 {
    fn into_number(self) -> u64 {
        self
    }

    fn from_number(number: u64) -> Option<Self> {
        Some(number)
    }
}

impl EventValue for u32 {
    fn into_number(self) -> u64 {
        self.into()
    }

    fn from_number(number: u64) -> Option<Self> {
        number.try_into().ok()
    }
}

impl EventValue for Slot {
    fn into_number(self) -> u64 {
        self.0.into()
    }

    fn from_number(number: u64) -> Option<Self> {
        u32::from_number(number).map(Self)
    }
}

impl EventValue for bool {
    fn into_number(self) -> u64 {
        self.into()
    }

    fn from_number(number: u64) -> Option<Self> {
        match number {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }
}

impl Event {
    /// Event of a set, as drivers and checkers get it.
    pub fn new(level: Level, event: impl LayerEvent) -> Self {
        let (name, values) = event.encode();
        Self { level, name, values }
    }

    /// Event of a set; `None` if this one belongs to another set.
    #[must_use]
    pub fn decode<E: LayerEvent>(&self) -> Option<E> {
        E::decode(self.name, self.values)
    }
}

/// Values of an event with at most three fields; those without a field are 0.
#[doc(hidden)]
#[must_use]
pub fn event_values<const FIELDS: usize>(fields: [u64; FIELDS]) -> [u64; 3] {
    const { assert!(FIELDS <= 3, "an event has three numbers at most") };
    let mut values = [0; 3];
    values[..FIELDS].copy_from_slice(&fields);
    values
}

/// Defines a set of events that layers log: an enum whose variants have at most three fields, each with the
/// name that traces show.
///
/// Fields are [`EventValue`]s. The enum is a [`LayerEvent`].
///
/// ```
/// use itg_process::{Event, Level, Slot, layer_events};
///
/// layer_events! {
///     /// Events of the layer `ping`.
///     pub enum PingEvent {
///         /// Echo of a message.
///         Echo { from: Slot, after_ns: u64 } = "echo",
///         /// Lack of an echo.
///         Silence = "silence",
///     }
/// }
///
/// let event = Event::new(Level::Info, PingEvent::Echo { from: Slot(2), after_ns: 70_000 });
/// assert_eq!((event.name, event.values), ("echo", [2, 70_000, 0]));
/// assert!(matches!(event.decode(), Some(PingEvent::Echo { from: Slot(2), .. })));
/// ```
#[macro_export]
macro_rules! layer_events {
    (
        $(#[$set_attribute:meta])*
        $visibility:vis enum $set:ident {
            $(
                $(#[$attribute:meta])*
                $event:ident $({ $( $field:ident : $type:ty ),+ $(,)? })? = $name:literal
            ),+ $(,)?
        }
    ) => {
        $(#[$set_attribute])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        $visibility enum $set {
            $(
                $(#[$attribute])*
                $event $({
                    $(
                        #[allow(missing_docs, reason = "the event's documentation speaks of it")]
                        $field: $type
                    ),+
                })?
            ),+
        }

        impl $crate::LayerEvent for $set {
            const NAMES: &'static [&'static str] = &[$($name),+];

            fn encode(self) -> (&'static str, [u64; 3]) {
                match self {
                    $(
                        Self::$event $({ $($field),+ })? => (
                            $name,
                            $crate::event_values([$($($crate::EventValue::into_number($field)),+)?]),
                        )
                    ),+
                }
            }

            fn decode(name: &str, values: [u64; 3]) -> ::core::option::Option<Self> {
                #[allow(unused_mut, unused_variables, reason = "a set may have no fields")]
                let mut values = values.into_iter();
                ::core::option::Option::Some(match name {
                    $(
                        $name => Self::$event $({
                            $($field: $crate::EventValue::from_number(values.next()?)?),+
                        })?,
                    )+
                    _ => return ::core::option::Option::None,
                })
            }
        }
    };
}

layer_events! {
    /// Events of the runtime and of the layers that come with it.
    pub enum RuntimeEvent {
        /// Message dropped, as its layer cannot read it.
        MalformedMessage { ty: u32 } = "malformed message",
        /// Message dropped, as an active layer has too many that it has not taken.
        InboxFull { ty: u32 } = "inbox full",
        /// Message of a type of another branch, which a multiplexer has dropped.
        NotOfBranch { ty: u32 } = "not a type of this branch",
        /// Message dropped, as a multiplexer has no branch for it.
        NoBranch { ty: u32 } = "no branch for this type",
        /// Message of a type that no layer of the process declares, which is dropped; said once for each type.
        UndeclaredType { ty: u32, from: Slot } = "no layer declares this type",
        /// Message on its way down through a filter at this place of the stack.
        Down { place: u64, ty: u32, len: u64 } = "down",
        /// Message on its way up.
        Up { place: u64, ty: u32, len: u64 } = "up",
        /// [`Injected::Suspect`](crate::Injected::Suspect) that a layer has taken.
        SuspicionTaken = "suspicion taken",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    layer_events! {
        /// Fields of all kinds.
        enum Kinds {
            /// Three of them.
            Three { slot: Slot, count: u32, yes: bool } = "three",
            /// One.
            One { ns: u64 } = "one",
            /// None.
            Nothing = "nothing",
        }
    }

    #[test]
    fn an_event_comes_back_from_name_and_values() {
        let rows = [
            (Kinds::Three { slot: Slot(4), count: 7, yes: true }, "three", [4, 7, 1]),
            (Kinds::One { ns: u64::MAX }, "one", [u64::MAX, 0, 0]),
            (Kinds::Nothing, "nothing", [0; 3]),
        ];
        assert_eq!(Kinds::NAMES, rows.map(|(_, name, _)| name));
        for (event, name, values) in rows {
            let logged = Event::new(Level::Info, event);
            assert_eq!((logged.level, logged.name, logged.values), (Level::Info, name, values));
            assert_eq!(logged.decode(), Some(event));
        }
    }

    #[test]
    fn what_is_none_of_the_set_is_not_read() {
        let beyond = u64::from(u32::MAX) + 1;
        for (name, values) in [
            ("four", [0; 3]),
            ("", [0; 3]),
            ("three", [beyond, 7, 1]),
            ("three", [4, beyond, 1]),
            ("three", [4, 7, 2]),
        ] {
            assert_eq!(Kinds::decode(name, values), None, "{name} {values:?}");
        }
    }
}
