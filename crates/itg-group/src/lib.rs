//! Group communication: members, and the order of events, agreed by all, while hosts crash, stall,
//! vanish and return.
//!
//! | module | what |
//! |---|---|
//! | `detector` | processes that have been silent for too long |
//! | `membership` | views and their changes |
//! | `cast` | atomic broadcast: the ordered log and its classical relatives |
//! | `check` | properties that must hold, whatever happens |
//!
//! Everything is a state machine: input and time in, actions out ([`itg_process::Machine`]). Members, views, their
//! tree and what runs along it are in [`itg_members`].

pub mod cast;
pub mod check;
mod codec;
pub mod detector;
pub mod membership;

// What requests and deliveries speak of.
pub use itg_members::observers::RoundTrip;
pub use itg_members::{Changes, Id, Member, Rules, View, ViewChange};

/// The example of the README, compiled and run with the tests of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExample;
