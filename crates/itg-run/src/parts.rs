//! What a program of layers knows by name: layers, simulated networks, checkers.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use itg_process::{Config, ConfigError, Params, Registry, suggestion};
use itg_sim::{Checker, NetworkBuild, Networks};

use crate::checkers;

/// Facts that a checker gets when it is built.
#[derive(Debug)]
pub struct CheckerBuild<'a> {
    /// Its parameters. Those that are not asked for are refused.
    pub params: &'a mut Params,
    /// Number of processes.
    pub n: u32,
}

type MakeChecker =
    dyn Fn(&mut CheckerBuild<'_>) -> Result<Box<dyn Checker>, ConfigError> + Send + Sync;

/// A program, and what it knows by name. [`crate::program::main`] makes a whole program of it.
#[derive(Clone)]
pub struct Parts {
    pub(crate) program: &'static str,
    pub(crate) layers: Registry,
    pub(crate) networks: Networks,
    checkers: BTreeMap<&'static str, Arc<MakeChecker>>,
}

impl fmt::Debug for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parts")
            .field("program", &self.program)
            .field("layers", &self.layers)
            .field("networks", &self.networks)
            .field("checkers", &self.checkers.keys())
            .finish()
    }
}

impl Parts {
    /// A program of this name with these layers (those of [`crate::layers::registry`], one's own, or both), all
    /// simulated networks, and the checkers `order` and `views`.
    #[must_use]
    pub fn new(program: &'static str, layers: Registry) -> Self {
        let parts =
            Self { program, layers, networks: Networks::default(), checkers: BTreeMap::new() };
        parts.with_checker("order", checkers::order).with_checker("views", checkers::views)
    }

    /// The same with one more checker, which `check` of a configuration names.
    #[must_use]
    pub fn with_checker<F>(mut self, name: &'static str, make: F) -> Self
    where
        F: Fn(&mut CheckerBuild<'_>) -> Result<Box<dyn Checker>, ConfigError>
            + Send
            + Sync
            + 'static,
    {
        self.checkers.insert(name, Arc::new(make));
        self
    }

    /// The same with one more kind of simulated networks.
    #[must_use]
    pub fn with_network<F>(mut self, kind: &'static str, make: F) -> Self
    where
        F: Fn(&mut NetworkBuild<'_>) -> Result<Box<dyn itg_sim::Model>, ConfigError>
            + Send
            + Sync
            + 'static,
    {
        self.networks = self.networks.with(kind, make);
        self
    }

    /// The checkers that a configuration names.
    ///
    /// # Errors
    /// Unknown checkers and wrong parameters, with file, line and the nearest name.
    pub fn checkers(&self, config: &Config) -> Result<Vec<Box<dyn Checker>>, ConfigError> {
        let built = config.checkers.iter().map(|entry| {
            let mut params = entry.params.clone();
            let Some(make) = self.checkers.get(entry.name.as_str()) else {
                let hint = suggestion(&entry.name, self.checkers.keys().copied());
                return Err(params.error(format_args!("unknown checker: {hint}")));
            };
            let checker = make(&mut CheckerBuild { params: &mut params, n: config.processes })?;
            params.finish()?;
            Ok(checker)
        });
        built.collect()
    }
}
