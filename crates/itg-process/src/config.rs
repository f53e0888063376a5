//! The configuration of a run: number of processes, layers of each, networks between them.
//!
//! ```toml
//! processes = 5
//! seed = 42
//! [[network]]              # index 0, 1, … in this order; the first one carries the runtime's messages
//! name = "control"
//! kind = "random"
//! mean = "1ms"
//! [[process]]              # layers from the lowest to the highest
//! slot = 0
//! layers = ["failure-detector", { layer = "coordinator", tasks = 100 }]
//! [[process]]              # without slot or slots: all others
//! layers = ["heartbeat", "worker"]
//! [[fault]]                # for a simulation; `check = ["order"]` above the tables names checkers
//! at = "2s"
//! kind = "crash"
//! process = 1
//! [anything]               # passed to layers as it is
//! ```

use std::sync::Arc;

use itg_core::seed::RunSeed;
use itg_core::text::{ConfigError, Position, suggestion};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::message::{SECOND, Slot};
use crate::params::{Params, plain};

/// Largest number of processes.
pub const MAX_PROCESSES: u64 = 1 << 20;
/// Largest number of parallel networks.
const MAX_NETWORKS: usize = 256;
/// Deepest nesting of multiplexers.
const MAX_DEPTH: usize = 8;

/// Keys at the top of a configuration.
const KEYS: [&str; 8] =
    ["processes", "seed", "drain_timeout", "hosts", "check", "network", "process", "fault"];

/// A network as it was asked for.
#[derive(Clone, Debug)]
pub struct NetworkEntry {
    /// Its name.
    pub name: String,
    /// Kind of network.
    pub kind: String,
    /// The rest of its table; `name` and `kind` are taken.
    pub params: Params,
}

/// A layer as it was asked for.
#[derive(Clone, Debug)]
pub struct LayerEntry {
    /// Its name in the registry.
    pub name: String,
    /// Its parameters; `layer`, `types` and `branches` are taken.
    pub params: Params,
    /// For a multiplexer: types and layers of each branch.
    pub branches: Vec<(Vec<std::ops::RangeInclusive<u32>>, Vec<Self>)>,
}

/// A checker as it was asked for.
#[derive(Clone, Debug)]
pub struct CheckerEntry {
    /// Its name.
    pub name: String,
    /// Its parameters; `checker` is taken.
    pub params: Params,
}

/// Processes and their layers.
#[derive(Clone, Debug)]
struct ProcessEntry {
    /// First and last slot; `None` stands for all others.
    slots: Option<(u32, u32)>,
    layers: Vec<LayerEntry>,
}

/// A configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// Number of processes.
    pub processes: u32,
    /// The seed, when the file names one.
    pub seed: Option<RunSeed>,
    /// Machines to bootstrap; entry *i* hosts slot *i* + 1.
    pub hosts: Vec<String>,
    /// Nanoseconds that a stopping process waits for its layers and neighbours.
    pub drain_timeout_ns: u64,
    /// The networks between the processes.
    pub networks: Vec<NetworkEntry>,
    /// Checkers of what the processes promise.
    pub checkers: Vec<CheckerEntry>,
    /// Tables of faults, which a simulation puts in.
    pub faults: Vec<Params>,
    /// Everything else, for the layers.
    pub application: Arc<toml::Table>,
    entries: Vec<ProcessEntry>,
    origin: String,
}

impl Config {
    /// Reads a configuration; `origin` is its name in messages.
    ///
    /// # Errors
    /// The first thing that is wrong, with file, line and key.
    pub fn parse(text: &str, origin: &str) -> Result<Self, ConfigError> {
        let reader = Reader { text, origin };
        let root = DeTable::parse(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            reader.error(at, format!("not TOML: {}", error.message().trim().replace('\n', ", ")))
        })?;
        let root = root.into_inner();
        let mut params = Params::of_spanned(&root, 0, text, "configuration", origin);
        let processes = params.number("processes", 1)?;
        if processes == 0 || processes > MAX_PROCESSES {
            let text = format!("{processes}: expected 1 to {MAX_PROCESSES}");
            return Err(params.error_at("processes", text));
        }
        let processes = u32::try_from(processes).unwrap_or(u32::MAX);
        let seed = params.has("seed").then(|| params.number("seed", 0)).transpose()?.map(RunSeed);
        let drain_timeout_ns = params.time_ns("drain_timeout", 2 * SECOND)?;
        let mut networks: Vec<NetworkEntry> = Vec::new();
        let mut entries = Vec::new();
        let mut application = toml::Table::new();
        let (mut hosts, mut checkers, mut faults) = (vec![], Vec::new(), Vec::new());
        for (key, value) in &root {
            let at = value.span().start;
            match (key.get_ref().as_ref(), value.get_ref()) {
                ("processes" | "seed" | "drain_timeout", _) => {}
                ("hosts", DeValue::Array(items)) => {
                    hosts = items.iter().map(|item| reader.host(item)).collect::<Result<_, _>>()?;
                }
                ("network", DeValue::Array(items)) => {
                    for item in items.iter() {
                        networks.push(reader.network(item, &networks)?);
                    }
                }
                ("process", DeValue::Array(items)) => {
                    for item in items.iter() {
                        entries.push(reader.process(item, processes)?);
                    }
                }
                ("check", DeValue::Array(items)) => {
                    for item in items.iter() {
                        checkers.push(reader.checker(item)?);
                    }
                }
                ("check", _) => {
                    return Err(reader.error(at, "`check`: expected checkers: [\"order\"]"));
                }
                ("fault", DeValue::Array(items)) => {
                    for item in items.iter() {
                        faults.push(reader.params(item, "[[fault]]".to_owned())?);
                    }
                }
                ("network" | "process" | "fault", _) => {
                    let text = format!("`{0}`: expected tables, each under its own [[{0}]]", key);
                    return Err(reader.error(at, text));
                }
                (_, DeValue::Table(_)) => {
                    application.insert(key.get_ref().to_string(), plain(value));
                }
                (name, _) => {
                    let hint = suggestion(name, KEYS);
                    return Err(reader.error(at, format!("unknown key `{name}`: {hint}")));
                }
            }
        }
        if networks.is_empty() || networks.len() > MAX_NETWORKS {
            let text = format!("{} networks: expected 1 to {MAX_NETWORKS}", networks.len());
            return Err(reader.error(0, text));
        }
        let application = Arc::new(application);
        let origin = origin.to_owned();
        Ok(Self {
            processes,
            seed,
            hosts,
            drain_timeout_ns,
            networks,
            checkers,
            faults,
            application,
            entries,
            origin,
        })
    }

    /// Makes all networks ones of this kind; parameters of the kinds that they were go.
    pub fn set_networks(&mut self, kind: &str) {
        for network in &mut self.networks {
            network.params = Params::empty(format!("network `{}`", network.name));
            kind.clone_into(&mut network.kind);
        }
    }

    /// The layers of a process, from the lowest.
    ///
    /// # Errors
    /// No `[[process]]` stands for this slot.
    pub fn layers_of(&self, slot: Slot) -> Result<&[LayerEntry], ConfigError> {
        let own = |entry: &&ProcessEntry| {
            entry.slots.is_some_and(|(first, last)| (first..=last).contains(&slot.0))
        };
        let found = self.entries.iter().find(own);
        let found = found.or_else(|| self.entries.iter().find(|entry| entry.slots.is_none()));
        found.map(|entry| entry.layers.as_slice()).ok_or_else(|| ConfigError {
            origin: self.origin.clone(),
            place: None,
            text: format!("process {slot} has no layers: no [[process]] stands for it"),
        })
    }
}

struct Reader<'a> {
    text: &'a str,
    origin: &'a str,
}

type Value<'a> = Spanned<DeValue<'a>>;

impl Reader<'_> {
    fn error(&self, at: usize, text: impl Into<String>) -> ConfigError {
        let place = Some(Position::of(self.text, at));
        ConfigError { origin: self.origin.to_owned(), place, text: text.into() }
    }

    fn params(&self, value: &Value<'_>, what: String) -> Result<Params, ConfigError> {
        let DeValue::Table(table) = value.get_ref() else {
            return Err(self.error(value.span().start, format!("{what}: expected a table")));
        };
        Ok(Params::of_spanned(table, value.span().start, self.text, what, self.origin))
    }

    fn host(&self, value: &Value<'_>) -> Result<String, ConfigError> {
        match value.get_ref() {
            DeValue::String(host) => Ok(host.to_string()),
            _ => Err(self.error(value.span().start, "hosts: expected texts")),
        }
    }

    /// A network whose name none of the others has.
    fn network(
        &self,
        value: &Value<'_>,
        others: &[NetworkEntry],
    ) -> Result<NetworkEntry, ConfigError> {
        let mut params = self.params(value, "[[network]]".to_owned())?;
        let need = |params: &mut Params, key| {
            let found = params.text(key)?;
            found.ok_or_else(|| params.error(format_args!("missing key `{key}`")))
        };
        let name = need(&mut params, "name")?;
        let kind = need(&mut params, "kind")?;
        if others.iter().any(|other| other.name == name) {
            let text = format!("network `{name}` is there twice");
            return Err(self.error(value.span().start, text));
        }
        Ok(NetworkEntry { name, kind, params })
    }

    fn process(&self, value: &Value<'_>, processes: u32) -> Result<ProcessEntry, ConfigError> {
        let mut params = self.params(value, "[[process]]".to_owned())?;
        let slots = match (params.value("slot"), params.value("slots")) {
            (None, None) => None,
            (Some(_), Some(_)) => {
                return Err(params.error("`slot` and `slots` exclude each other"));
            }
            (Some(_), None) => {
                let slot = params.number("slot", 0)?;
                Some((slot, slot))
            }
            (None, Some(range)) => {
                let range = range.as_array().map(Vec::as_slice);
                let number = |value: &toml::Value| u64::try_from(value.as_integer()?).ok();
                match range {
                    Some([first, last]) => number(first).zip(number(last)),
                    _ => None,
                }
                .filter(|(first, last)| first <= last)
                .ok_or_else(|| {
                    let text = "expected the first and the last slot: [1, 4]";
                    params.error_at("slots", text)
                })
                .map(Some)?
            }
        };
        let slots = match slots {
            None => None,
            Some((first, last)) => {
                let inside = |slot| u32::try_from(slot).ok().filter(|slot| *slot < processes);
                let found = inside(first).zip(inside(last));
                let text = format_args!("slots go from 0 to {}", processes - 1);
                let key = if params.has("slot") { "slot" } else { "slots" };
                Some(found.ok_or_else(|| params.error_at(key, text))?)
            }
        };
        params.has("layers");
        params.finish()?;
        let layers = match value.get_ref().get("layers") {
            Some(layers) => self.layers(layers, 0)?,
            None => return Err(params.error("missing key `layers`")),
        };
        Ok(ProcessEntry { slots, layers })
    }

    fn layers(&self, value: &Value<'_>, depth: usize) -> Result<Vec<LayerEntry>, ConfigError> {
        let at = value.span().start;
        if depth > MAX_DEPTH {
            return Err(self.error(at, "multiplexers above multiplexers: too deep"));
        }
        let DeValue::Array(items) = value.get_ref() else {
            let text = "`layers`: expected layers from the lowest: [\"heartbeat\", \"worker\"]";
            return Err(self.error(at, text));
        };
        items.iter().map(|item| self.layer(item, depth)).collect()
    }

    /// A name alone, or a table in which a key has the name.
    fn named(&self, value: &Value<'_>, key: &'static str) -> Result<(String, Params), ConfigError> {
        let at = value.span().start;
        match value.get_ref() {
            DeValue::String(name) => {
                let what = format!("{key} `{name}`");
                let params = Params::of_spanned(&DeTable::new(), at, self.text, what, self.origin);
                Ok((name.to_string(), params))
            }
            DeValue::Table(_) => {
                let Some(DeValue::String(name)) = value.get_ref().get(key).map(Spanned::get_ref)
                else {
                    let text = format!("a {key} needs its name: {{ {key} = \"…\" }}");
                    return Err(self.error(at, text));
                };
                let mut params = self.params(value, format!("{key} `{name}`"))?;
                params.has(key);
                Ok((name.to_string(), params))
            }
            _ => Err(self.error(at, format!("a {key} is a name, or {{ {key} = \"name\", … }}"))),
        }
    }

    fn checker(&self, value: &Value<'_>) -> Result<CheckerEntry, ConfigError> {
        self.named(value, "checker").map(|(name, params)| CheckerEntry { name, params })
    }

    fn layer(&self, value: &Value<'_>, depth: usize) -> Result<LayerEntry, ConfigError> {
        let (name, mut params) = self.named(value, "layer")?;
        let mut branches = Vec::new();
        let found = value.get_ref().get("branches").map(Spanned::get_ref);
        if let Some(DeValue::Array(items)) = found {
            params.has("branches");
            for item in items.iter() {
                branches.push(self.branch(item, depth)?);
            }
        }
        Ok(LayerEntry { name, params, branches })
    }

    #[allow(clippy::type_complexity, reason = "types and layers of a branch")]
    fn branch(
        &self,
        value: &Value<'_>,
        depth: usize,
    ) -> Result<(Vec<std::ops::RangeInclusive<u32>>, Vec<LayerEntry>), ConfigError> {
        let mut params = self.params(value, "branch".to_owned())?;
        let number = |value: &toml::Value| u32::try_from(value.as_integer()?).ok();
        let types = match params.value("types") {
            Some(toml::Value::Array(ends)) if ends.len() == 2 => {
                number(&ends[0]).zip(number(&ends[1])).map(|(first, last)| first..=last)
            }
            _ => None,
        };
        let text = "expected the first and the last type: types = [0, 99]";
        let types = types.ok_or_else(|| params.error_at("types", text))?;
        params.has("layers");
        params.finish()?;
        let layers = match value.get_ref().get("layers") {
            Some(layers) => self.layers(layers, depth + 1)?,
            None => return Err(params.error("missing key `layers`")),
        };
        Ok((vec![types], layers))
    }
}
