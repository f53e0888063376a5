//! The plan: every flow of an experiment with its settings resolved, its distributions checked
//! against its protocol, and a hash that tells two plans apart.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use itg_core::flow::{Flow, Proto};
use itg_core::seed::RunSeed;
use itg_core::text::{ConfigError, flow_numbers};

use crate::problem::PlanError;

/// Name of the node of flows that name none: this host.
pub const LOCAL: &str = "local";

/// Largest number of flows in one plan.
pub const MAX_FLOWS: u32 = 100_000;

/// Inputs of a plan besides the experiment.
pub struct PlanInputs<'a> {
    /// The run seed in force: given on the command line, or in the file, or drawn.
    pub seed: RunSeed,
    /// Replaces the experiment's duration, in nanoseconds.
    pub duration_ns: Option<u64>,
    /// Profiles (name, TOML text) that go before the built-in ones.
    pub profiles: BTreeMap<String, String>,
    /// Sizes that the packets of a protocol may have, where they are fewer than ITG's own packets have.
    pub sizes: Option<fn(Proto) -> RangeInclusive<u32>>,
    /// Reads a file that the experiment names (table of a distribution, profile); asked once for each name.
    /// An error is a sentence that names the file.
    pub files: &'a mut dyn FnMut(&str) -> Result<String, String>,
}

impl<'a> PlanInputs<'a> {
    /// The inputs of an experiment that is run as it is written.
    pub fn new(seed: RunSeed, files: &'a mut dyn FnMut(&str) -> Result<String, String>) -> Self {
        Self { seed, duration_ns: None, profiles: BTreeMap::new(), sizes: None, files }
    }
}

/// An experiment that can be done.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Name of the experiment.
    pub name: String,
    /// The seed that all flows derive from.
    pub seed: RunSeed,
    /// FNV-1a of the canonical text of the plan: seed, flows with all their settings, tables of
    /// their distributions. Equal plans have equal hashes, on every machine.
    pub hash: u64,
    /// The flows; flow *k* has number *k* + 1.
    pub flows: Vec<PlannedFlow>,
    /// Decisions made for the user, one sentence each.
    pub notices: Vec<String>,
    /// The files that were read, by the names that the experiment uses.
    pub files: BTreeMap<String, String>,
    /// The texts of the profiles that were used, by the names that the experiment uses.
    pub profiles: BTreeMap<String, String>,
}

/// A flow of a plan.
#[derive(Clone, Debug)]
pub struct PlannedFlow {
    /// The flow, ready to be run.
    pub flow: Flow,
    /// The node that sends.
    pub from: String,
    /// The node that receives.
    pub to: String,
    /// Its name in reports: as given, or the profile, or the protocol; with a number when the entry
    /// stands for several.
    pub name: String,
}

impl Plan {
    /// The hash as it is written in reports: 16 hexadecimal digits.
    #[must_use]
    pub fn hash_text(&self) -> String {
        format!("{:016x}", self.hash)
    }

    /// Refuses flows that never end; a plan of them can be looked at, but not run to its end.
    ///
    /// # Errors
    /// One problem for all flows without any limit.
    pub fn check_ends(&self) -> Result<(), PlanError> {
        let endless: Vec<u32> = self
            .flows
            .iter()
            .map(|planned| planned.flow.spec())
            .filter(|spec| spec.stop == Default::default())
            .map(|spec| spec.id)
            .collect();
        if endless.is_empty() {
            return Ok(());
        }
        let text = format!(
            "{}: no end: give the experiment a `duration`, or the flow `duration`, `packets` or \
             `bytes`",
            flow_numbers(&endless)
        );
        Err(PlanError { problems: vec![ConfigError { origin: String::new(), place: None, text }] })
    }
}
