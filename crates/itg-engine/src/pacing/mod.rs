//! Pacing of the sending thread: the ladder of ways to wait for a deadline.
//!
//! Each level buys precision with processor time. `sleep` gives the thread up until the deadline and
//! takes the kernel's wake-up error (tens of µs). `hybrid` sleeps to a guard before the deadline and
//! spins the rest; the guard is learned from the wake-ups themselves. `spin` never sleeps. `txtime` leaves the
//! deadlines to the kernel (see [`itg_socket::txtime`]) and sleeps until some time before them.
//! Whatever the level, deadlines are absolute: an error moves one packet and no other.

mod calibrate;
mod host;
mod waiter;

use std::num::NonZeroU32;

pub use itg_core::pacing::Level;
use itg_socket::xdp::SendEngine;

pub use self::calibrate::{PrecisionError, WakeErrors, calibrate, choose};
pub use self::host::{Grant, Prepared};
pub use self::waiter::Waiter;

/// Requested settings of the sending thread: its way of waiting, and the departure of packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacingOptions {
    /// The level; chosen by calibration when only a precision is declared, `hybrid` otherwise.
    pub level: Option<Level>,
    /// Real-time priority (SCHED_FIFO) and locked memory.
    pub realtime: bool,
    /// Processor to stay on.
    pub cpu: Option<u16>,
    /// Declared precision: 99 % of the packets leave at most this late, in nanoseconds.
    pub max_error_p99_ns: Option<u64>,
    /// Engine through which packets leave.
    pub engine: SendEngine,
    /// Sample when packets leave this host, one of so many of each flow; with `txtime`, one of 16 unless
    /// told otherwise.
    pub tx_stamps: Option<NonZeroU32>,
}
