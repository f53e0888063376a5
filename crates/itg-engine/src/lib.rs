//! The packet path of a real host: the sending thread, the receiving thread, pacing, and the writers
//! of logs behind them.
//!
//! Each process has one thread for sending and one for receiving (more with shards), which wait for
//! nothing but the clock and their sockets: no allocation, no lock, no async runtime. Blocks of
//! records go to a writer thread, and from there to a file or a log server.

pub mod classic;
pub mod clock_pair;
pub mod departures;
mod due;
pub mod engine;
mod frames;
pub mod lease;
pub mod live;
pub mod log;
pub mod pacing;
pub mod rx;
pub mod tcp_watch;
pub mod traffic;

pub use classic::{ClassicContent, ClassicPlace, ClassicTarget, continue_classic};
pub use lease::Lease;
pub use live::{
    ArrivalReading, FlowLive, FlowReading, LATENESS_BOUNDS_NS, LatenessClasses, ToldArrivals,
};
pub use log::{
    Forwarded, Fsync, HandedBlock, HandedTarget, LEAST_LOG_BYTES, LOG_PORT, Log, LogLimits,
    LogOutcome, LogQuota, LogServerTarget, LogTarget, LogUrl, OnFull, Producer, Rotation,
    create_named, forward, log_info, open_locked, open_named, replace_named,
};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExample;
