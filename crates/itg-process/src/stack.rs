//! Stacks built by name: the registry of layers, and processes made from a configuration.

use std::collections::BTreeMap;
use std::sync::Arc;

use itg_core::seed::RunSeed;
use itg_core::text::{ConfigError, suggestion};

use crate::config::{Config, LayerEntry};
use crate::core::{Core, Node};
use crate::filters::{Multiplexer, TraceFilter};
use crate::journal::Journals;
use crate::layer::Layer;
use crate::message::{Slot, types};
use crate::network::Network;
use crate::params::Params;
use crate::process::Process;

/// Name of the layer that has several stacks above it.
const MULTIPLEXER: &str = "multiplexer";

/// Facts that a layer gets when it is built. It cannot send: nothing runs before the start.
#[derive(Debug)]
pub struct Build<'a> {
    /// Its parameters. Those that are not asked for are refused.
    pub params: &'a mut Params,
    /// Address of the process.
    pub me: Slot,
    /// Number of processes.
    pub n: u32,
    /// Incarnation of the process in its slot, from 1.
    pub incarnation: u64,
    /// The seed of the run.
    pub seed: RunSeed,
    /// Tables of the configuration that are for layers.
    pub config: &'a toml::Table,
    /// Records that the layers of this process have written before; `None` where nothing is kept.
    pub journals: Option<&'a Journals>,
}

type Make = dyn Fn(&mut Build<'_>) -> Result<Box<dyn Layer>, ConfigError> + Send + Sync;

/// The layers that a program knows, by name.
#[derive(Clone)]
pub struct Registry {
    makers: BTreeMap<&'static str, Arc<Make>>,
    traces_messages: bool,
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.makers.keys()).finish()
    }
}

impl Default for Registry {
    fn default() -> Self {
        Self::new()
    }
}

impl Registry {
    /// The layers that come with the runtime: `trace`, and `multiplexer`, which the configuration
    /// gives its branches.
    #[must_use]
    pub fn new() -> Self {
        Self { makers: BTreeMap::new(), traces_messages: false }
            .with("trace", |_| Ok(Box::new(TraceFilter)))
    }

    /// The same with one more layer; an older one of the same name is replaced.
    #[must_use]
    pub fn with<F>(mut self, name: &'static str, make: F) -> Self
    where
        F: Fn(&mut Build<'_>) -> Result<Box<dyn Layer>, ConfigError> + Send + Sync + 'static,
    {
        self.makers.insert(name, Arc::new(make));
        self
    }

    /// The same, whose processes report each message that they send and get ([`crate::Report::Trace`]).
    #[must_use]
    pub const fn tracing_messages(mut self) -> Self {
        self.traces_messages = true;
        self
    }

    /// The process of this slot, built but not started.
    ///
    /// # Errors
    /// Unknown layers and wrong parameters, with file, line and the nearest name.
    pub fn process(
        &self,
        config: &Config,
        place: &ProcessContext<'_>,
    ) -> Result<Process, ConfigError> {
        let mut stack =
            Stack { registry: self, config, place, nodes: Vec::new(), layers: Vec::new() };
        stack.add(config.layers_of(place.slot)?, None)?;
        let mut known = vec![types::APPLICATION, types::RUNTIME];
        for layer in &stack.layers {
            known.extend(layer.types().iter().cloned());
        }
        let Stack { nodes, layers, .. } = stack;
        let mut core = Core::new(
            place.slot,
            config.processes,
            place.incarnation,
            place.seed,
            Arc::clone(&config.application),
            Arc::clone(place.networks),
            nodes,
            known,
            Arc::clone(place.everybody),
        );
        core.keeps_journals = place.journals.is_some();
        core.trace = self.traces_messages;
        Ok(Process::new(core, layers, config.drain_timeout_ns))
    }

    /// All processes of a configuration, built but not started.
    ///
    /// # Errors
    /// As [`Registry::process`].
    pub fn processes(
        &self,
        config: &Config,
        seed: RunSeed,
        networks: &Arc<[Network]>,
    ) -> Result<Vec<Process>, ConfigError> {
        let everybody = everybody(config.processes);
        (0..config.processes)
            .map(|slot| {
                let slot = Slot(slot);
                let place = ProcessContext {
                    slot,
                    incarnation: 1,
                    seed,
                    networks,
                    everybody: &everybody,
                    journals: None,
                };
                self.process(config, &place)
            })
            .collect()
    }
}

/// All slots of a run.
#[must_use]
pub fn everybody(processes: u32) -> Arc<[Slot]> {
    (0..processes).map(Slot).collect()
}

/// Place of a process in its run.
#[derive(Clone, Copy, Debug)]
pub struct ProcessContext<'a> {
    /// Its address.
    pub slot: Slot,
    /// Incarnation of the process in its slot, from 1.
    pub incarnation: u64,
    /// The seed of the run.
    pub seed: RunSeed,
    /// The parallel networks.
    pub networks: &'a Arc<[Network]>,
    /// All slots, which are the view until a membership layer says otherwise.
    pub everybody: &'a Arc<[Slot]>,
    /// Records that its layers have written before; `None` where nothing is kept.
    pub journals: Option<&'a Journals>,
}

struct Stack<'a> {
    registry: &'a Registry,
    config: &'a Config,
    place: &'a ProcessContext<'a>,
    nodes: Vec<Node>,
    layers: Vec<Box<dyn Layer>>,
}

impl Stack<'_> {
    fn add(
        &mut self,
        entries: &[LayerEntry],
        mut below: Option<(usize, usize)>,
    ) -> Result<(), ConfigError> {
        for (i, entry) in entries.iter().enumerate() {
            let layer = self.make(entry)?;
            let at = self.nodes.len();
            if let Some((below, _)) = below {
                self.nodes[below].above.push(at);
            }
            // Two layers of one name get different streams, and can be told apart.
            let same = self.nodes.iter().filter(|node| node.name.starts_with(&entry.name)).count();
            let name = match same {
                0 => entry.name.clone(),
                _ => format!("{}-{}", entry.name, same + 1),
            };
            self.nodes.push(Node { name: name.into(), below, above: Vec::new() });
            self.layers.push(layer);
            if !entry.branches.is_empty() && i + 1 < entries.len() {
                let text = "layers above a multiplexer stand in its branches";
                return Err(entries[i + 1].params.error(text));
            }
            for (branch, (_, layers)) in entry.branches.iter().enumerate() {
                if layers.is_empty() {
                    return Err(entry.params.error(format!("branch {branch} has no layers")));
                }
                self.add(layers, Some((at, branch)))?;
            }
            below = Some((at, 0));
        }
        Ok(())
    }

    fn make(&self, entry: &LayerEntry) -> Result<Box<dyn Layer>, ConfigError> {
        let mut params = entry.params.clone();
        if entry.name == MULTIPLEXER {
            if entry.branches.is_empty() {
                return Err(params.error("missing key `branches`"));
            }
            params.finish()?;
            let types = entry.branches.iter().map(|(types, _)| types.clone()).collect();
            return Ok(Box::new(Multiplexer::new(types)));
        }
        let Some(make) = self.registry.makers.get(entry.name.as_str()) else {
            let names = self.registry.makers.keys().copied().chain([MULTIPLEXER]);
            let hint = suggestion(&entry.name, names);
            return Err(params.error(format!("unknown layer: {hint}")));
        };
        if !entry.branches.is_empty() {
            return Err(params.error("only a multiplexer has branches"));
        }
        let mut build = Build {
            params: &mut params,
            me: self.place.slot,
            n: self.config.processes,
            incarnation: self.place.incarnation,
            seed: self.place.seed,
            config: &self.config.application,
            journals: self.place.journals,
        };
        let layer = make(&mut build)?;
        params.finish()?;
        Ok(layer)
    }
}
