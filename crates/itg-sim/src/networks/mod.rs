//! Simulated networks by name.

mod crowd;
mod dcr;
mod delay;
mod ethernet;
mod fddi;
mod metric;

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
        other => {
            let text = format!("no simulated network `{other}`: {}", suggestion(other, KINDS));
            return Err(params.error_at("kind", text));
        }
    };
    params.finish()?;
    Ok(model)
}
