//! D-ITG's random numbers, draw for draw: with `-s SEED` its sizes and inter-departure times come
//! out again.
//!
//! One [`Generator`] serves a whole process there, and packet size, inter-departure time and the
//! periods of `-B` are drawn from it in the order in which they are needed;
//! [`crate::send::Departures`] keeps that order. Observed on the real sender; the golden sequences
//! in `tests/golden/random.txt` are reproduced.

mod generator;
mod sampler;
mod tables;

pub use generator::{Generator, SeedError};
pub use sampler::Sampler;
