//! Simulated networks by name.

mod crowd;
mod dcr;
mod delay;
mod ethernet;
mod fddi;
mod metric;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use itg_core::seed::RunSeed;
use itg_process::{ConfigError, Params, suggestion};

pub use dcr::{Probe, Search, worst_overhead};
pub use fddi::{Fddi, Rotations};

use crate::model::Model;

/// The kinds of networks that there are.
pub const KINDS: [&str; 11] = [
    "ethernet",
    "switch",
    "fddi",
    "dcr",
    "random",
    "fixed",
    "matrix",
    "steps",
    "messages",
    "contention",
    "crowd",
];

/// Facts that a simulated network gets when it is built.
#[derive(Debug)]
pub struct NetworkBuild<'a> {
    /// Its parameters. Those that are not asked for are refused.
    pub params: &'a mut Params,
    /// The seed of the run.
    pub seed: RunSeed,
    /// Its name in the configuration.
    pub name: &'a str,
    /// Number of hosts.
    pub hosts: u32,
}

type Make = dyn Fn(&mut NetworkBuild<'_>) -> Result<Box<dyn Model>, ConfigError> + Send + Sync;

/// The simulated networks that a program knows, by kind: those of [`KINDS`], and its own.
#[derive(Clone, Default)]
pub struct Networks(BTreeMap<&'static str, Arc<Make>>);

impl fmt::Debug for Networks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(KINDS.iter().chain(self.0.keys())).finish()
    }
}

impl Networks {
    /// The same with one more kind; an older one of the same name is replaced.
    #[must_use]
    pub fn with<F>(mut self, kind: &'static str, make: F) -> Self
    where
        F: Fn(&mut NetworkBuild<'_>) -> Result<Box<dyn Model>, ConfigError> + Send + Sync + 'static,
    {
        self.0.insert(kind, Arc::new(make));
        self
    }

    /// A network of this kind.
    ///
    /// # Errors
    /// As [`network`].
    pub(crate) fn make(
        &self,
        kind: &str,
        build: &mut NetworkBuild<'_>,
    ) -> Result<Box<dyn Model>, ConfigError> {
        if let Some(make) = self.0.get(kind.strip_prefix("sim:").unwrap_or(kind)) {
            let model = make(build)?;
            build.params.finish()?;
            return Ok(model);
        }
        let NetworkBuild { seed, name, hosts, .. } = *build;
        network(kind, build.params, seed, name, hosts)
    }
}

/// A network of this kind, `sim:` in front or not, with these parameters; parameters that it does not
/// know are refused.
///
/// # Errors
/// Unknown kinds and parameters, with the nearest name.
pub fn network(
    kind: &str,
    params: &mut Params,
    seed: RunSeed,
    name: &str,
    hosts: u32,
) -> Result<Box<dyn Model>, ConfigError> {
    let kind = kind.strip_prefix("sim:").unwrap_or(kind);
    let model: Box<dyn Model> = match kind {
        "ethernet" => Box::new(ethernet::Bus::new(params, hosts)?),
        "switch" => Box::new(ethernet::Switch::new(params, hosts)?),
        "fddi" => Box::new(Fddi::new(params, hosts)?),
        "dcr" => Box::new(dcr::Dcr::new(params, hosts)?),
        "random" | "fixed" | "matrix" => {
            Box::new(delay::Delay::new(kind, params, seed, name, hosts)?)
        }
        "steps" | "messages" => Box::new(metric::Steps::new(params)?),
        "crowd" => Box::new(crowd::Crowd::new(params, hosts)?),
        "contention" => Box::new(metric::Contention::new(params, hosts)?),
        "tcp" | "unix" | "udp" | "mpi" => {
            let text = format!(
                "`{kind}` is a real network: a simulation takes another one in its place, such as --network fixed"
            );
            return Err(params.error_at("kind", text));
        }
        other => {
            let text = format!("no simulated network `{other}`: {}", suggestion(other, KINDS));
            return Err(params.error_at("kind", text));
        }
    };
    params.finish()?;
    Ok(model)
}
