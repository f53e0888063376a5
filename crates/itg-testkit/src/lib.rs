//! Helpers that tests and measurements share: children with deadlines, made logs, services of the host,
//! published schemas.
//!
//! No program and no library imports it; tests do (`dev-dependencies`), and `itg-bench`, which measures.
#![allow(clippy::missing_panics_doc, reason = "in tests everything that goes wrong panics")]

pub mod child;
pub mod distortions;
pub mod host;
pub mod logs;
pub mod published;

/// The example of the README, compiled and run with the tests of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExample;
