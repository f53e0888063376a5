//! Reproductions of papers that no program needs.
//!
//! | module | what | source |
//! |---|---|---|
//! | `names` | the two layers of the thesis under its names | Hirt 1997/98 |
//! | `clusters` | clusters of objects that refer to each other | Courtrai et al. 2001 |
//! | `model` | expected durations of a view change | Varma et al. 2006 |
//! | `iso` | memory at the same address in every process | Courtrai et al. 2001 |
//!
//! Its tests hold algorithms and networks against tables of papers, too (`tests/metrics.rs`).

pub mod clusters;
pub mod iso;
pub mod model;
pub mod names;

/// The example of the README, compiled and run with the tests of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExample;
