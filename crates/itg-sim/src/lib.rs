//! Virtual time: the processes of `itg-process` on simulated networks, and flows through them.
//!
//! One thread, one event heap ordered by time and order of creation, times in whole nanoseconds, one
//! seed from which every random stream derives by name. Two runs of one configuration and seed do
//! exactly the same, which the trace hash shows.
//!
//! | module | what |
//! |---|---|
//! | `agenda` | the event heap |
//! | `model`, `networks` | interface of simulated networks; Ethernet, switch, FDDI, CSMA-DCR, delays, metrics |
//! | `world` | processes in virtual time |
//! | `faults`, `clock`, `swarm` | faults, clocks that are wrong, and the choice of both by seed |
//! | `fault_table` | faults that a configuration names |
//! | `check` | oracles that see all processes |
//! | `hash`, `pcapng` | the trace hash, captures for network analysers |
//! | `flows` | the traffic of an experiment through a simulated network, into ordinary logs |

mod agenda;
mod check;
mod clock;
mod fault_table;
mod faults;
pub mod flows;
mod hash;
mod model;
pub mod networks;
mod pcapng;
mod swarm;
mod world;

pub use agenda::{Agenda, Class};
pub use check::{Checker, Observation, ObservedEvent, Violation};
pub use clock::Clock;
pub use fault_table::faults_of;
pub use faults::{DiskFault, Fault, LinkFaults};
pub use hash::TraceHash;
pub use itg_process::Injected;
pub use model::{Drop, Effect, Model, Packet, Usage, transmission_ns};
pub use networks::{NetworkBuild, Networks};
pub use pcapng::Pcapng;
pub use swarm::{Kind, Swarm};
pub use world::{Counts, Disks, Exit, World};

/// The example of the README, compiled and run with the tests of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExample;
