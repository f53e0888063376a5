//! The report for people: plots as SVG, and one HTML page that needs nothing but a browser.
//!
//! Pure: a [`Report`](itg_stats::Report) goes in, text comes out. What the page and the plots show is in
//! `docs/decode.md`.

mod flent;
mod html;
mod junit;
mod svg;

pub use flent::flent;
pub use html::{Around, FLOWS_DRAWN, command, compare_page, page, sweep_page};
pub use junit::{junit, junit_of_fidelity};
pub use svg::{Chart, Curve, Plot, of_flow, of_sweep, of_total, printable};

/// The example of the README, compiled and run with the tests of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExample;
