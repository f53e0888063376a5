//! MPI as a launcher, as a network of layered processes and as the way of logs.
//!
//! MPI itself is linked only with the feature `link`, which needs its development files and libclang.
//! Without it there is what can be said without MPI: whether a launcher started this program, and the
//! account of a log rank, which is tested everywhere.
//!
//! | module | what |
//! |---|---|
//! | `launch` | rank and size as launchers tell them |
//! | `keep` | the account of a log rank: order and number of the blocks of each producer |
//! | `job` (`link`) | ranks of a job: broadcast, barrier, messages, sends that own their bytes |
//! | `network` (`link`) | a process of layers on each rank |
//!
//! One thread, the one that started MPI, talks to it (`MPI_THREAD_FUNNELED`). A buffer that is being
//! sent is owned by the send: it can neither be written to nor given back before `MPI_Test` says
//! that it is done.

#![cfg_attr(
    feature = "link",
    allow(unsafe_code, reason = "one place, where a send owns its bytes")
)]

mod launch;
mod rank_account;

#[cfg(feature = "link")]
mod job;
#[cfg(feature = "link")]
mod network;

pub use launch::Launch;
pub use rank_account::{Done, KeepError, Keeper};

#[cfg(feature = "link")]
pub use job::{InFlight, Job, JobError, Received, tag};
#[cfg(feature = "link")]
pub use network::{NetworkError, Traffic, run};

/// The example of the README, compiled and run with the tests of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExample;
