//! Ways of a flow's packets past the sending thread or the kernel's network stack: keepers of their
//! times, paths of their frames.

use std::fmt;
use std::sync::atomic::AtomicU32;

use nix::time::ClockId;

use crate::clock;
use crate::xdp::frame::FrameHead;

/// `etf` drops what it is given behind its time, and packets need time to get there: they are told to leave at least
/// so long after their hand-over, 0.3 ms.
pub(crate) const ETF_AHEAD_NS: u64 = 300_000;

/// A clock that a queueing discipline keeps times by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TxClock {
    /// That of `fq`.
    Monotonic,
    /// That of `etf`.
    Tai,
}

impl TxClock {
    pub(crate) const ALL: [Self; 2] = [Self::Monotonic, Self::Tai];

    pub(crate) const fn number(self) -> i32 {
        match self {
            Self::Monotonic => libc::CLOCK_MONOTONIC,
            Self::Tai => libc::CLOCK_TAI,
        }
    }

    /// Returns what has to be added to a reading of CLOCK_MONOTONIC now, in nanoseconds, modulo 2⁶⁴.
    pub fn offset_ns(self) -> u64 {
        match self {
            Self::Monotonic => 0,
            Self::Tai => clock::read(ClockId::CLOCK_TAI).wrapping_sub(clock::monotonic_ns()),
        }
    }
}

impl fmt::Display for TxClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Monotonic => "CLOCK_MONOTONIC",
            Self::Tai => "CLOCK_TAI",
        })
    }
}

/// Keeper of the times of a flow's packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimedBy {
    /// The clock that times are told by.
    pub clock: TxClock,
    /// Its description for the user: queueing discipline, device and clock.
    pub by: String,
}

impl TimedBy {
    /// Returns the time, in nanoseconds, after its hand-over at `now_ns` at which a packet is told to leave that
    /// is due at `due_ns` (CLOCK_MONOTONIC).
    pub fn ahead_ns(&self, due_ns: u64, now_ns: u64) -> u64 {
        let least_ns = match self.clock {
            TxClock::Monotonic => 0,
            TxClock::Tai => ETF_AHEAD_NS,
        };
        due_ns.saturating_sub(now_ns).max(least_ns)
    }
}

/// Header of a flow's frames, and the device that they go to.
#[derive(Debug)]
pub struct FramePath {
    /// Place of its device.
    pub(crate) device: usize,
    pub(crate) head: FrameHead,
    /// Longest frame.
    pub(crate) most: usize,
    /// Batches sent.
    pub(crate) sends: AtomicU32,
}
