//! The verdict on a flow: was the traffic sent the traffic requested?
//!
//! [`Departures`] takes the packets of a flow, with their planned and actual times, and gives a
//! [`Fidelity`]. Below it are sketches that merge exactly: moments, quantiles, autocorrelation, and
//! the set of the sequence numbers seen. Pure: no clock, no files. `docs/decode.md` has definitions
//! and sources.

pub mod autocorrelation;
mod departures;
pub mod distribution_test;
mod errors;
mod judge;
mod law;
pub mod moments;
pub mod narrow;
pub mod promise;
pub mod quantiles;
pub mod samples;
mod scales;
pub mod sequence;
mod stall;
mod verdict;

pub use departures::{Departed, Departures};
pub use judge::{
    Asked, Distributions, LATE_LIMITS, PASS_LIMIT, RATE_LIMIT, RESOLUTION_LIMIT, SHORT_STALL_GAPS,
    SKIPPED_LIMIT, STALL_SHARE, WARN_LIMIT, distance,
};
pub use law::{CORRELATION_LIMIT, LAW_LIMITS};
pub use stall::{STALL_GAPS, Stall};
pub use verdict::{Cause, Fidelity, ScaleDistance, Tally, Verdict};

/// The example of the README, compiled and run with the tests of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExample;
