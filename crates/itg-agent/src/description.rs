//! Description of an experiment that every node gets: the file as it was written with everything it
//! names, and the addresses of the nodes. Each node makes the same plan of it; its hash shows that.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, bail};
use itg_control::Route;
use itg_core::seed::RunSeed;
use itg_experiment::{Experiment, Manifest, Plan, PlanInputs};
use serde::{Deserialize, Serialize};

/// A description as it travels.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Description {
    /// The run.
    pub(crate) run: String,
    /// The manifest.
    pub(crate) manifest: Manifest,
    /// Names of the nodes by slot.
    pub(crate) nodes: Vec<String>,
    /// Addresses of their receivers, by slot.
    pub(crate) receivers: Vec<String>,
}

impl Description {
    /// As bytes.
    pub(crate) fn to_bytes(&self) -> Result<Vec<u8>> {
        serde_json::to_vec(self).context("description of the experiment")
    }

    /// From bytes.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self> {
        serde_json::from_slice(bytes).context("description of the experiment")
    }

    /// The plan of it, which must be that of the sender of this description.
    pub(crate) fn plan(&self) -> Result<(Experiment, Plan)> {
        let manifest = &self.manifest;
        let experiment = Experiment::parse(&manifest.experiment, &manifest.origin)?;
        let mut files = |name: &str| {
            manifest.files.get(name).cloned().ok_or_else(|| format!("no file `{name}` was sent"))
        };
        let inputs = PlanInputs {
            duration_ns: manifest.duration_ns,
            profiles: manifest.profiles.clone(),
            ..PlanInputs::new(RunSeed(manifest.seed), &mut files)
        };
        let plan = Plan::resolve(&experiment, inputs)?;
        if plan.hash_text() != manifest.plan {
            let (here, there) = (plan.hash_text(), &manifest.plan);
            bail!("the plan has hash {here} here and {there} at the console: versions differ");
        }
        Ok((experiment, plan))
    }

    /// The ways of its flows, by slots.
    pub(crate) fn routes(&self, plan: &Plan) -> Result<Vec<Route>> {
        let slots: BTreeMap<&str, u32> = self.nodes.iter().map(String::as_str).zip(0..).collect();
        let slot = |name: &str| {
            slots.get(name).copied().with_context(|| format!("node `{name}` has no address"))
        };
        plan.flows
            .iter()
            .map(|flow| {
                let start_ns = flow.flow.spec().start_ns;
                Ok(Route { from: slot(&flow.from)?, to: slot(&flow.to)?, start_ns })
            })
            .collect()
    }
}
