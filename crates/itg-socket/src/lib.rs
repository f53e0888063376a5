//! System calls for traffic: sockets and their options, batches, kernel stamps, clocks, AF_XDP, `SO_TXTIME`.
//!
//! The unsafe code of the programs is here, each piece with its reason; beside this crate only one
//! place in `itg-mpi` and the memory map of `itg-files` have some. Nothing here knows of agreements, logs
//! or records, and nothing waits for a runtime.
#![allow(unsafe_code, reason = "system calls that no well-kept crate wraps the way we need them")]

pub mod clock;
mod connecting;
pub mod errqueue;
pub mod host;
pub mod icmp;
mod mapped;
pub mod mmsg;
pub mod probe;
pub mod reply;
mod silence;
pub mod socket;
pub mod sys;
pub mod txtime;
pub mod way;
pub mod wire;
pub mod xdp;

pub use mapped::{MappedFile, first_hole};
pub use silence::{end_when_silent, without_probes};
pub use socket::{SocketError, can_share, enlarge, listen, open_at, path_mtu, plain, resolve};
pub use sys::{UdpErrors, socket_drops};
pub use xdp::{PacketEngine, PacketEngineError, rate_over_a_link};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExample;
