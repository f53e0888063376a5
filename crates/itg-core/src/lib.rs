//! The traffic model of ITG, without I/O: quantities with units, seeds, distributions, application
//! profiles, flows, schedules, pacing rules, the packet header; and the confidence of a mean.
//!
//! A flow is two seeded random processes, inter-departure time and packet size. Time and size of
//! packet *k* are a pure function of (run seed, flow id, *k*).

pub mod confidence;
pub mod distribution;
pub mod end;
pub mod flow;
pub mod header;
pub mod pacing;
pub mod payload;
pub mod payload_check;
pub mod profile;
pub mod rate;
pub mod schedule;
pub mod seed;
pub mod settings;
pub mod streams;
pub mod text;
pub mod transport;
pub mod units;

/// The example of the README, compiled and run with the tests of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExample;
