//! Common parts of the programs of ITG: loading experiments, sending plans, progress on terminals,
//! signals, messages on stderr, exit codes.
//!
//! Code that uses the network is behind the feature `net`, and what sends plans behind `send`, so that
//! programs that only read files, or only receive, do not build it.
//!
//! The programs stay thin: they parse their command line, call this crate and the ones below, and
//! choose an exit code.

mod failure;
mod gates;
mod help;
mod verbosity;
mod version;

#[cfg(feature = "net")]
mod intervals;
#[cfg(feature = "send")]
mod load;
#[cfg(feature = "net")]
mod log_args;
#[cfg(feature = "net")]
mod metrics;
#[cfg(feature = "send")]
mod pacing_args;
#[cfg(feature = "net")]
mod peer;
#[cfg(feature = "send")]
mod progress;
#[cfg(feature = "send")]
mod promise;
#[cfg(feature = "net")]
mod receiving;
#[cfg(feature = "net")]
mod result;
#[cfg(feature = "send")]
mod sending;
#[cfg(feature = "net")]
mod signals;
#[cfg(feature = "net")]
mod terminal;
mod text_file;
mod unreached;

pub use failure::{Failure, finish, refuse};
pub use gates::{Gates, Judged};
pub use help::{Help, command, parse};
pub use text_file::{read_file, read_text};
pub use unreached::{Unreached, unreached};
pub use verbosity::{WordArgs, print, say};
pub use version::version_text;

#[cfg(feature = "net")]
pub use {
    intervals::{IntervalArgs, IntervalCuts, IntervalLines, Intervals, ReceivedFlows},
    log_args::{LogArgs, RotationArgs, log_failure, parse_throttle, read_secret},
    metrics::{
        Classes, FlowFacts, FlowLabels, LATENESS_BOUNDS_NS, MOST_FLOWS, MetricsArgs, Program,
        ReceiverPage, serve_receiver, write_flows, write_lateness,
    },
    peer::PeerArgs,
    receiving::{Drawn, ReceiverView},
    result::{WAYS, exchanged, nothing_sent, received, result_text, sent},
    signals::{Signals, stop_on_letter},
    terminal::drawing_columns,
};

#[cfg(feature = "send")]
pub use {
    load::{
        Asked, LoadArgs, Loaded, draw_seed, load, load_any, load_case, load_manifest, load_text,
        load_within,
    },
    metrics::{SenderMetrics, SenderMetricsArgs},
    pacing_args::PacingArgs,
    progress::{Progress, Shown},
    promise::{DOCTOR_SCHEMA, promised},
    sending::{
        Contents, Sending, SendingResult, account, account_in_short, announce, choose_pacing,
        draw_run, send_plan, send_plan_observed,
    },
};

/// The example of the README, compiled and run with the tests of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExample;
