//! From an experiment file to a plan: what was asked for ([`Experiment`]), what will be done
//! ([`Plan`]), what it will cost ([`Estimate`]), and what to keep so that it can be done again
//! ([`Manifest`]).
//!
//! Pure: the text of every file is passed in. Errors name the file, the line and the nearest word
//! that would have been understood; all errors are reported, not only the first.
//!
//! ```
//! use itg_experiment::{Experiment, Plan, PlanInputs};
//! use itg_core::seed::RunSeed;
//!
//! let text = r#"
//!     schema = 1
//!     name = "two-minutes-of-telephony"
//!     duration = "2min"
//!     [[flow]]
//!     profile = "voip-g711"
//! "#;
//! let experiment = Experiment::parse(text, "phone.toml")?;
//! let mut files = |name: &str| Err(format!("no file `{name}` here"));
//! let plan = Plan::resolve(&experiment, PlanInputs::new(RunSeed(42), &mut files))?;
//! assert_eq!(plan.estimate().flows[0].packets, 12_000.0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod canonical;
mod estimate;
mod experiment;
mod manifest;
mod numbers;
mod plan;
mod problem;
mod read;
mod render;
mod resolve;
mod schema;
pub mod sweep;
mod values;
mod warnings;

pub use estimate::{Estimate, FlowEstimate, LOG_BYTES_PER_RECORD, Method, Total, WALK_LIMIT};
pub use experiment::{
    Experiment, FlowEntry, GatesEntry, LOG_RANK, LogEntry, NodeEntry, PacingEntry, SCHEMA,
    SweepEntry,
};
pub use itg_core::text::{ConfigError as Problem, Position};
pub use manifest::{MANIFEST_SCHEMA, Manifest, ManifestError};
pub use plan::{LOCAL, MAX_FLOWS, Plan, PlanInputs, PlannedFlow};
pub use problem::{ExperimentError, PlanError, Positions};
pub use values::{
    ByteCount, Count, Dscp, Ecn, FlowRate, LateRule, MeterKind, PacingLevel, PayloadKind,
    ProtoName, Seed, SendRate, SizeDistribution, TimeDistribution, TimeSpan, ValueError,
};
pub use warnings::PathMtu;

/// The example of the README, compiled and run with the tests of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExample;
