//! The verdict on a flow: was the traffic sent the traffic requested?
//!
//! [`Departures`] takes the packets of a flow, with their planned and actual times, and gives a
//! [`Fidelity`]. Below it are sketches of bounded memory that merge exactly: moments, quantiles,
//! autocorrelation. Pure: no clock, no files. `docs/decode.md` has definitions and sources.

pub mod autocorrelation;
pub mod distribution_test;
mod judge;
pub mod moments;
pub mod quantiles;
pub mod samples;
mod stall;

pub use judge::{
    Asked, CORRELATION_LIMIT, Cause, Departed, Departures, Distributions, Fidelity,
    GAP_TOLERANCE_NS, PASS_LIMIT, RATE_LIMIT, SKIPPED_LIMIT, Verdict, WARN_LIMIT, distance,
};
pub use stall::{STALL_GAPS, Stall};

/// The example of the README, compiled and run with the tests of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExample;
