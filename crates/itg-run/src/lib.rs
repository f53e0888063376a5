//! From a plan to its report, in any world: this host, virtual time, agents, the ranks of an MPI job.
//!
//! A [`World`] sends and receives, and hands over logs and accounts. [`carry_out`] has the steps that are the same in all
//! of them: gates, directory, manifest, report. [`run()`] carries out what a file describes, one run or a sweep of many.
//! [`Local`] and [`Simulated`] are here, as are the ranks of a job with the feature `mpi`; agents are in `itg-agent`.
//!
//! | module | what |
//! |---|---|
//! | `options` | what is to be run, and how: values that a program makes |
//! | `world` | what a world is |
//! | `steps` | the steps of one run |
//! | `run`, `sweep` | one run or many, and their directories |
//! | `local`, `sim`, `mpi` | worlds |
//! | `results`, `artifact`, `ro_crate`, `inventory` | files that follow from logs and manifest; hashes of all files |
//! | [`verify`] | a run's directory held against what the run left |
//! | [`mod@replay`] | a run done again from its manifest, and compared |
//! | `receiver` | a receiver within this program |
//! | [`events`], [`figures`], [`live`] | what happens while it happens: as lines of JSON, as counters, on a terminal |
//! | [`mod@plan`], [`diff`] | what a run will do; two runs compared |
//! | [`mod@process`], [`simulate`], [`judge`], [`layers`], [`load`], `ticket`, [`trace`] | processes made of layers, on real networks and in virtual time, and who judges them |
//! | [`program`], `parts`, `checkers` | a whole program of layers of one's own: what it knows by name |

mod artifact;
mod checkers;
pub mod diff;
mod directory;
pub mod events;
pub mod figures;
mod inventory;
pub mod judge;
pub mod layers;
pub mod live;
pub mod load;
mod local;
#[cfg(feature = "mpi")]
pub mod mpi;
mod options;
mod parts;
pub mod plan;
pub mod process;
pub mod program;
mod receiver;
pub mod replay;
mod results;
mod ro_crate;
mod run;
mod sim;
pub mod simulate;
mod steps;
mod sweep;
mod ticket;
pub mod trace;
mod trace_diff;
pub mod verify;
mod world;

pub use directory::{MANIFEST, RECEIVER_LOG, SENDER_LOG};
pub use local::Local;
pub use options::{GateOptions, OutputOptions, ReportFormat, RunOptions, RunRequest, SweepOptions};
pub use parts::{CheckerBuild, Parts};
pub use receiver::receiver_options;
pub use run::{run, take_up};
pub use sim::Simulated;
pub use steps::{Done, carry_out};
pub use world::{Outcome, Output, Prepared, World, why};

/// The example of the README, compiled and run with the tests of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExample;
