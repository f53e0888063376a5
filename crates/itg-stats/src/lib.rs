//! Metrics over log records: streaming, mergeable, and tested against slow obvious twins.
//!
//! [`Analysis`] takes the bytes of log files and makes a [`Report`], which prints as JSON
//! ([`Report::to_json`]) and as text ([`text::render`]). Below it, [`FlowStats`] adds up the
//! records of one flow at one side: loss ([`sequence`]), delay and jitter ([`delay`]), throughput
//! ([`stats`]), lateness and the fidelity verdict ([`fidelity`]), the course over time
//! ([`series`]).
//!
//! One pass; memory is bounded by flows, histograms and holes in the sequence numbers, not by
//! packets (but for [`Analysis::packets`], which lists them). Definitions, formulas and their
//! sources are in `docs/decode.md`.

mod analysis;
mod clocks;
mod decode;
pub mod delay;
pub mod departures;
pub mod exec;
pub mod figures;
pub mod filter;
pub mod gate;
mod in_order;
pub mod kind;
mod logs;
mod losses;
pub mod markdown;
mod marks;
pub mod metric;
pub mod packet_account;
mod packets;
pub mod plan;
pub mod plot;
pub mod promise;
pub mod report;
pub mod series;
pub mod stats;
pub mod sum;
pub mod summary;
pub mod tcp;
pub mod text;
mod total;
mod volume;

pub use itg_fidelity::{
    self as fidelity, autocorrelation, distribution_test, moments, quantiles, sequence,
};

pub use analysis::{Analysis, MAX_ROWS, Options, PacketFlow};
pub use logs::LogError;
pub use marks::MarksReport;
pub use packets::PacketLine;
pub use report::Report;
pub use stats::FlowStats;

/// The example of the README, compiled and run with the tests of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExample;
