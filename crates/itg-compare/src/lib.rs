//! Runs compared: two reports side by side ([`compare()`]), with gates on the change ([`change`]) and a judgement of
//! agreement ([`agreement`]); many runs of one experiment beside each other ([`sweep`]).
//!
//! Flows are joined by their number. For each and for the total: the figures of A and B, B − A,
//! (B − A) / |A|, and an interval that covers the difference with 95 % confidence as far as the
//! course within each run tells (`bootstrap.rs`). For the delays as a whole two effect sizes, both of
//! the histograms: the Kolmogorov–Smirnov distance, and Cliff's delta P(B > A) − P(B < A).
//!
//! Sources: Cliff, *Psychological Bulletin* 114 (1993) for delta; Romano et al. (2006) for its
//! words, below 0.147 negligible, 0.33 small, 0.474 medium, else large.

pub mod agreement;
mod bootstrap;
pub mod change;
mod compare;
mod comparison;
mod figures;
pub mod markdown;
pub mod sweep;
mod text;

pub use compare::{compare, effect, other_plan};
pub use comparison::{COMPARISON_SCHEMA, Comparison, Difference, Effect, Pairing, Resampling};

/// The example of the README, compiled and run with the tests of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExample;
