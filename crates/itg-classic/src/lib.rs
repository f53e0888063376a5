//! D-ITG 2.8.1 as a pure crate: what its programs accept, send, write and print, so that old scripts,
//! old logs and installed peers keep working.
//!
//! Written from observations of the real programs (`docs/d-itg.md`), not from their source. Nothing
//! here touches a file, a socket or a clock: bytes, times and arguments are passed in.
//!
//! - [`log`]: binary and text logs.
//! - [`dec`]: `ITGDec`, its options, figures and files, byte for byte.
//! - [`random`]: its random numbers, draw for draw.
//! - [`send`]: `ITGSend`, its command lines and scripts, and the packets of a flow.
//! - [`recv`]: the command lines of `ITGRecv`, `ITGLog` and `ITGManager`.
//! - [`wire`]: messages and state machines.

pub mod dec;
pub mod log;
mod number;
pub mod random;
pub mod recv;
pub mod send;
pub mod wire;

/// The example of the README, compiled and run with the tests of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExample;
