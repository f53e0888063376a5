//! Addresses, destinations, messages, times.

use std::fmt;
use std::ops::{Add, Sub};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use itg_core::units::nanoseconds;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// A point of a process's monotonic clock, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub u64);

impl Time {
    /// The beginning.
    pub const ZERO: Self = Self(0);
    /// Later than everything.
    pub const NEVER: Self = Self(u64::MAX);

    /// This many nanoseconds later; at most [`Time::NEVER`].
    #[must_use]
    pub const fn after(self, ns: u64) -> Self {
        Self(self.0.saturating_add(ns))
    }

    /// Nanoseconds since an earlier time; 0 when it is not earlier.
    #[must_use]
    pub const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// So much later; at most [`Time::NEVER`].
impl Add<Duration> for Time {
    type Output = Self;

    fn add(self, time: Duration) -> Self {
        self.after(nanoseconds(time))
    }
}

/// Time since an earlier point; none when it is not earlier.
impl Sub for Time {
    type Output = Duration;

    fn sub(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.since(earlier))
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09}", self.0 / 1_000_000_000, self.0 % 1_000_000_000)
    }
}

/// Nanoseconds of a microsecond.
pub const US: u64 = 1_000;
/// Nanoseconds of a millisecond.
pub const MS: u64 = 1_000_000;
/// Nanoseconds of a second.
pub const SECOND: u64 = 1_000_000_000;

/// Address of a process: a small number, from 0. There is no hierarchy of addresses.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Slot(pub u32);

impl Slot {
    /// The slot as an index.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One of the parallel networks of a process, by its place in the configuration, from 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NetId(pub u8);

/// Ranges of message types. What a layer sends has types of its own range.
pub mod types {
    use std::ops::RangeInclusive;

    /// Applications.
    pub const APPLICATION: RangeInclusive<u32> = 0..=999;
    /// Bootstrap and shutdown.
    pub const RUNTIME: RangeInclusive<u32> = 1000..=1099;
    /// Links.
    pub const LINK: RangeInclusive<u32> = 1100..=1199;
    /// Failure detectors.
    pub const DETECTOR: RangeInclusive<u32> = 1200..=1299;
    /// Membership.
    pub const MEMBERSHIP: RangeInclusive<u32> = 1300..=1399;
    /// Consensus and ordered broadcast.
    pub const BROADCAST: RangeInclusive<u32> = 1400..=1499;
    /// Logs.
    pub const LOG: RangeInclusive<u32> = 1500..=1599;
    /// Control of experiments.
    pub const CONTROL: RangeInclusive<u32> = 1600..=1699;
}

/// Destination of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Dest {
    /// One process.
    One(Slot),
    /// These processes; once each, whatever the order and the repetitions.
    Many(Arc<[Slot]>),
    /// Every process.
    All,
    /// Every process but the sender.
    AllButMe,
    /// The members of the current view, which a membership layer sets; all processes before that.
    View,
}

impl From<Slot> for Dest {
    fn from(slot: Slot) -> Self {
        Self::One(slot)
    }
}

/// A message between two processes, or between two layers of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The process that sent it.
    pub src: Slot,
    /// Destination.
    pub dst: Dest,
    /// Parallel network that carries it.
    pub net: NetId,
    /// Type of the message: see [`types`].
    pub ty: u32,
    /// Its content; cheap to clone.
    pub body: Bytes,
}

/// Type of the message that stops a process.
pub const STOP: u32 = 1010;
/// Type of the last message of a process.
pub const BYE: u32 = 1011;

impl Message {
    /// True for the runtime's own messages, about the end of the processes: no layer sees them, and no counter of
    /// messages has them.
    #[must_use]
    pub const fn is_of_the_runtime(&self) -> bool {
        matches!(self.ty, STOP | BYE)
    }

    /// A message on network 0. The runtime fills in the sender.
    #[must_use]
    pub fn new(dst: impl Into<Dest>, ty: u32, body: impl Into<Bytes>) -> Self {
        Self { src: Slot(0), dst: dst.into(), net: NetId(0), ty, body: body.into() }
    }

    /// A message whose content is this value, as bincode has it. [`Message::content`] reads it.
    ///
    /// # Panics
    /// If the value is none that bincode can write, such as one of unknown length.
    #[must_use]
    pub fn of(dst: impl Into<Dest>, ty: u32, content: &impl Serialize) -> Self {
        let body = bincode::serde::encode_to_vec(content, bincode::config::standard());
        Self::new(dst, ty, body.expect("a value that bincode can write"))
    }

    /// The value that is the content; `None` if the content is no such value, or more.
    #[must_use]
    pub fn content<T: DeserializeOwned>(&self) -> Option<T> {
        let config = bincode::config::standard().with_limit::<{ crate::frame::MAX_BODY }>();
        let (value, used) = bincode::serde::decode_from_slice(&self.body, config).ok()?;
        (used == self.body.len()).then_some(value)
    }

    /// The same on another network.
    #[must_use]
    pub fn on(mut self, net: NetId) -> Self {
        self.net = net;
        self
    }

    /// Bytes of its frame on a wire (see [`crate::frame`]).
    #[must_use]
    pub fn wire_len(&self) -> u64 {
        (crate::frame::HEADER_LEN + self.body.len()) as u64
    }
}

/// The processes that a network carries a message to: in ascending order, without the sender.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum To {
    /// One.
    One(Slot),
    /// Several, or none.
    Many(Arc<[Slot]>),
}

impl To {
    /// The processes.
    #[must_use]
    pub fn slots(&self) -> &[Slot] {
        match self {
            Self::One(slot) => std::slice::from_ref(slot),
            Self::Many(slots) => slots,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_and_lengths_of_time() {
        let (second, hour) = (Duration::from_secs(1), Duration::from_secs(3600));
        for (at, wait, want) in [
            (Time(5), Duration::from_nanos(7), Time(12)),
            (Time::ZERO, second, Time(SECOND)),
            (Time::NEVER, second, Time::NEVER),
            (Time(1), Duration::MAX, Time::NEVER),
        ] {
            assert_eq!(at + wait, want, "{at} + {wait:?}");
        }
        assert_eq!((Time(SECOND) + hour) - Time(SECOND), hour);
        assert_eq!(Time(3) - Time(4), Duration::ZERO);
    }
}
