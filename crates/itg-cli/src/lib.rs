//! Common parts of the programs of ITG: loading experiments, sending plans, progress on terminals,
//! signals, messages on stderr, exit codes.
//!
//! Code that uses the network is behind the feature `net`, so that a program that only reads files
//! does not build it.
//!
//! The programs stay thin: they parse their command line, call this crate and the ones below, and
//! choose an exit code.

mod failure;
mod gates;
mod generate;
mod help;
mod verbosity;
mod version;

#[cfg(feature = "net")]
mod intervals;
#[cfg(feature = "net")]
mod load;
#[cfg(feature = "net")]
mod log_args;
#[cfg(feature = "net")]
mod pacing_args;
#[cfg(feature = "net")]
mod progress;
#[cfg(feature = "net")]
mod promise;
#[cfg(feature = "net")]
mod result;
#[cfg(feature = "net")]
mod sending;
#[cfg(feature = "net")]
mod signals;

pub use failure::{Failure, finish, refuse};
pub use gates::{Gates, Judged};
pub use generate::parse;
pub use help::Help;
pub use verbosity::{WordArgs, print, say};
pub use version::version_text;

#[cfg(feature = "net")]
pub use {
    intervals::{Counted, IntervalArgs, IntervalLines, Intervals},
    load::{
        Asked, LoadArgs, Loaded, draw_seed, load, load_any, load_case, load_manifest, load_text,
        load_within,
    },
    log_args::{LogArgs, parse_throttle, read_secret},
    pacing_args::PacingArgs,
    progress::{Progress, Shown},
    promise::{DOCTOR_SCHEMA, promised},
    result::{exchanged, received, sent},
    sending::{
        Contents, Sending, SendingResult, account, announce, choose_pacing, draw_run, log_failure,
        send_plan, send_plan_observed,
    },
    signals::{Signals, stop_on_letter},
};

/// The example of the README, compiled and run with the tests of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExample;
