//! Log files as programs read them: mapped into memory, decoded by all processors, packets as columns.
//!
//! [`Bytes`] is a file, [`Threads`] runs the tasks of an analysis over files, [`ditg`] reads logs of D-ITG as ours,
//! [`columns`] makes columns of packets, [`arrow`] holds them as Arrow arrays. What is in a log, and what its figures mean, is the business of
//! `itg-record` and `itg-stats`.

#[cfg(feature = "arrow")]
pub mod arrow;
#[cfg(feature = "columns")]
pub mod columns;
#[cfg(feature = "decode")]
pub mod ditg;
mod map;
#[cfg(feature = "decode")]
mod threads;

pub use map::{Bytes, Mapped};
#[cfg(feature = "decode")]
pub use threads::Threads;

/// The example of the README, compiled and run with the tests of the documentation.
#[cfg(all(doctest, feature = "arrow", feature = "decode"))]
#[doc = include_str!("../README.md")]
struct ReadmeExample;
