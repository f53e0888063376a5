//! Requested settings of the sending thread.

use std::num::NonZeroU32;
use std::time::Duration;

pub use itg_core::pacing::Level;
use itg_socket::xdp::PacketEngine;

/// Requested settings of the sending thread: its way of waiting, and the departure of packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacingOptions {
    /// The level; chosen by calibration when only a precision is declared, `hybrid` otherwise.
    pub level: Option<Level>,
    /// Real-time priority (SCHED_FIFO) and locked memory.
    pub realtime: bool,
    /// Processor to stay on.
    pub cpu: Option<u16>,
    /// Declared precision: 99 % of the packets leave at most this late.
    pub max_error_p99: Option<Duration>,
    /// Engine through which packets leave.
    pub engine: PacketEngine,
    /// Sample when packets leave this host, one of so many of each flow; with `txtime`, one of 16 unless
    /// told otherwise.
    pub tx_stamps: Option<NonZeroU32>,
    /// Number of sockets that one-way flows of UDP to one destination share; each has its own unless told otherwise.
    pub sockets: Option<NonZeroU32>,
}
