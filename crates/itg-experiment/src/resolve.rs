//! From the entries of a file to flows: profiles, defaults, rules between keys, tables of
//! distributions.
//!
//! Precedence: keys of the entry, then the profile, then the defaults. All problems of all entries
//! are collected.

use std::collections::BTreeMap;
use std::net::IpAddr;

use itg_core::distribution::{Distribution, Unit};
use itg_core::flow::{Flow, FlowError, FlowSpec, OnOff, Proto, SocketOptions, Stop};
use itg_core::profile::{self, Profile};
use itg_core::text::{ConfigError as Problem, Position, grouped};
use itg_core::units::{Rate, format_duration_ns};

use crate::canonical;
use crate::experiment::{Experiment, FlowEntry, LOG_RANK};
use crate::plan::{LOCAL, MAX_FLOWS, Plan, PlanInputs, PlannedFlow};
use crate::problem::PlanError;
use crate::values::SendRate;

/// Result of all entries.
pub(crate) struct Resolution {
    pub(crate) flows: Vec<PlannedFlow>,
    pub(crate) notices: Vec<String>,
    pub(crate) files: BTreeMap<String, String>,
    pub(crate) profiles: BTreeMap<String, String>,
}

impl Plan {
    /// Resolves an experiment. Explicit keys go before those of the profile, the profile before the
    /// defaults.
    ///
    /// # Errors
    /// Every reason for which the experiment cannot be done as asked, of all its flows, with the
    /// place in the file: keys that exclude each other, distributions that do not fit their
    /// protocol, unknown nodes, profiles and files, what is not in this version.
    pub fn resolve(experiment: &Experiment, inputs: PlanInputs<'_>) -> Result<Self, PlanError> {
        let seed = inputs.seed;
        let resolved = Resolver::new(experiment, inputs).run()?;
        let mut plan = Self {
            name: experiment.name.clone(),
            seed,
            hash: 0,
            flows: resolved.flows,
            notices: resolved.notices,
            files: resolved.files,
            profiles: resolved.profiles,
        };
        plan.hash = canonical::hash(&plan);
        Ok(plan)
    }
}

/// A port that is bound: node, protocol, source address, port.
type Binding = (String, Proto, Option<String>, u16);

pub(crate) struct Resolver<'e, 'i> {
    experiment: &'e Experiment,
    inputs: PlanInputs<'i>,
    run_ns: Option<u64>,
    next_id: u32,
    flows: Vec<PlannedFlow>,
    problems: Vec<Problem>,
    notices: Vec<String>,
    notes: Vec<(u32, String)>,
    /// Notes of the entry in hand, for each of its flows.
    entry_notes: Vec<String>,
    read: BTreeMap<String, Result<String, String>>,
    profiles: BTreeMap<String, String>,
    ports: BTreeMap<Binding, u32>,
}

impl<'e, 'i> Resolver<'e, 'i> {
    pub(crate) fn new(experiment: &'e Experiment, inputs: PlanInputs<'i>) -> Self {
        Self {
            experiment,
            run_ns: inputs.duration_ns.or_else(|| experiment.duration.map(|time| time.0)),
            inputs,
            next_id: 1,
            flows: Vec::new(),
            problems: Vec::new(),
            notices: Vec::new(),
            notes: Vec::new(),
            entry_notes: Vec::new(),
            read: BTreeMap::new(),
            profiles: BTreeMap::new(),
            ports: BTreeMap::new(),
        }
    }

    pub(crate) fn run(mut self) -> Result<Resolution, PlanError> {
        self.check_run();
        let counts = self.experiment.flows.iter().map(|entry| entry.count.unwrap_or(1));
        let all = counts.fold(0_u32, u32::saturating_add).min(MAX_FLOWS);
        self.flows.reserve_exact(all as usize);
        for entry in &self.experiment.flows {
            self.entry(entry);
        }
        if !self.problems.is_empty() {
            self.problems.sort_by_key(|problem| problem.place);
            return Err(PlanError { problems: self.problems });
        }
        self.notices.extend(grouped(&self.notes));
        let files = self.read.into_iter().filter_map(|(name, text)| Some((name, text.ok()?)));
        Ok(Resolution {
            flows: self.flows,
            notices: self.notices,
            files: files.collect(),
            profiles: self.profiles,
        })
    }

    fn problem(&mut self, place: Option<Position>, text: impl Into<String>) {
        let origin = self.experiment.origin.clone();
        self.problems.push(Problem { origin, place, text: text.into() });
    }

    fn check_run(&mut self) {
        let experiment = self.experiment;
        let place = |key| experiment.places.key(key);
        if experiment.flows.is_empty() {
            self.problem(None, "no flow: add at least one [[flow]]");
        }
        if self.run_ns == Some(0) {
            self.problem(place("duration"), "a run of duration 0 sends nothing");
            self.run_ns = None;
        }
        if experiment.log.server.as_deref() == Some(LOG_RANK) {
            self.notices.push(
                "[log] server = \"mpi\": with --mpi rank 0 keeps the senders' log, too; elsewhere logs are \
                 written next to the report"
                    .to_owned(),
            );
        } else if let Some(server) = &experiment.log.server {
            if ["tcp://", "udp://", "tls://"].iter().any(|scheme| server.starts_with(scheme)) {
                self.notices.push(format!(
                    "[log] server = \"{server}\" takes the logs of `itg-send run`; `itg-cluster run` writes them \
                     next to its report"
                ));
            } else {
                let text = format!(
                    "log server `{server}`: write tcp://HOST:PORT, udp://HOST:PORT, tls://HOST:PORT, or mpi"
                );
                self.problem(place("log"), text);
            }
        }
        if experiment.network.is_some() {
            self.notices.push(
                "[network] describes a simulated network: it is used only with --sim, and ignored \
                 here"
                    .to_owned(),
            );
        }
    }

    /// Resolves one entry: as many flows as it counts.
    fn entry(&mut self, entry: &FlowEntry) {
        let (first, count) = (self.next_id, entry.count.unwrap_or(1));
        let count_place = entry.places.key("count");
        if count == 0 {
            return self.problem(count_place, format!("flow {first}: a count of 0 is no flow"));
        }
        let Some(next_id) = first.checked_add(count).filter(|next| *next <= MAX_FLOWS + 1) else {
            let text = format!("flow {first}: {count} more flows exceed the limit of {MAX_FLOWS}");
            return self.problem(count_place, text);
        };
        self.next_id = next_id;
        let problems = self.problems.len();
        self.entry_notes.clear();
        let from = self.node(entry, first, "from", entry.from.as_deref());
        let to = self.node(entry, first, "to", entry.to.as_deref());
        let spec = self.spec(entry, first);
        self.bind(entry, &spec, &from, count);
        if entry.stagger.is_some() && count == 1 {
            let text = format!(
                "flow {first}: stagger spreads the starts of several flows: give a count, or use start"
            );
            self.problem(entry.places.key("stagger"), text);
        }
        let name = entry.name.clone().unwrap_or_else(|| default_name(&spec));
        for id in first..next_id {
            let mut spec = spec.clone();
            spec.id = id;
            self.stagger(entry, &mut spec, (id - first, count));
            let flow = match Flow::resolve(spec, self.inputs.seed) {
                Ok(flow) => flow,
                // The flows of an entry are equal: what is wrong with one is wrong with all.
                Err(error) => return self.flow_error(entry, &error),
            };
            if self.problems.len() > problems {
                return;
            }
            self.notes.extend(self.entry_notes.iter().map(|text| (id, text.clone())));
            let own = format!("flow {id}: ");
            let notices: Vec<_> = flow.notices().collect();
            self.notes.extend(notices.into_iter().map(|notice| {
                let text = notice.strip_prefix(&own).unwrap_or(&notice);
                (id, text.to_owned())
            }));
            let name = if count == 1 { name.clone() } else { format!("{name}-{}", id - first + 1) };
            self.flows.push(PlannedFlow { flow, from: from.clone(), to: to.clone(), name });
        }
    }

    /// Moves the start of one of the flows of an entry to its share of the time over which they are spread.
    fn stagger(&mut self, entry: &FlowEntry, spec: &mut FlowSpec, (place, count): (u32, u32)) {
        let Some(over) = entry.stagger else { return };
        let after = u128::from(over.0) * u128::from(place) / u128::from(count.max(1));
        spec.start_ns = spec.start_ns.saturating_add(u64::try_from(after).unwrap_or(u64::MAX));
        let Some(run_ns) = self.run_ns else { return };
        let left = run_ns.saturating_sub(spec.start_ns);
        if left == 0 {
            let (start, run) = (format_duration_ns(spec.start_ns), format_duration_ns(run_ns));
            let text = format!("flow {}: starts at {start}, but the run ends at {run}", spec.id);
            return self.problem(entry.places.key("stagger"), text);
        }
        spec.stop.duration_ns = spec.stop.duration_ns.map(|own| own.min(left));
    }

    fn flow_error(&mut self, entry: &FlowEntry, error: &FlowError) {
        let key = match error {
            FlowError::Law { what: "on" | "off", .. } => "on_off",
            FlowError::Law { what, .. } => what,
            FlowError::Setting { .. } => "",
        };
        self.problem(entry.places.key(key), error.to_string());
    }

    /// The node that a key names; without [nodes] any name will do.
    fn node(&mut self, entry: &FlowEntry, id: u32, key: &str, name: Option<&str>) -> String {
        let nodes = &self.experiment.nodes;
        match name {
            _ if nodes.is_empty() => {}
            Some(name) if nodes.contains_key(name) => {}
            Some(name) => {
                let hint = itg_core::text::suggestion(name, nodes.keys().map(String::as_str));
                let text = format!("flow {id}: {key}: `{name}` is not in [nodes]: {hint}");
                self.problem(entry.places.key(key), text);
            }
            None => {
                let names: Vec<_> = nodes.keys().map(|name| format!("`{name}`")).collect();
                let names = names.join(", ");
                let text = format!("flow {id}: `{key}` is missing: name one of the nodes {names}");
                self.problem(entry.places.head, text);
            }
        }
        name.unwrap_or(LOCAL).to_owned()
    }

    /// A port at one node serves one flow.
    fn bind(&mut self, entry: &FlowEntry, spec: &FlowSpec, from: &str, count: u32) {
        let id = spec.id;
        let Some(port) = spec.socket.source_port.filter(|port| *port != 0) else { return };
        let place = entry.places.key("source_port");
        if count > 1 {
            let text = format!(
                "flow {id}: source_port {port} serves one flow, not {count}: leave it out, or give \
                 each flow its own entry"
            );
            self.problem(place, text);
        }
        let binding = (from.to_owned(), spec.proto, spec.socket.source.clone(), port);
        if let Some(other) = self.ports.insert(binding, id) {
            let text = format!("flow {id}: source_port {port} is taken by flow {other}");
            self.problem(place, text);
        }
    }

    /// The requested values of an entry. Where a part of it is wrong the default stands in, so that
    /// the other parts are checked too.
    fn spec(&mut self, entry: &FlowEntry, id: u32) -> FlowSpec {
        let mut spec = FlowSpec::new(id);
        self.apply_profile(entry, &mut spec);
        if let Some([on, off]) = entry.on_off.clone() {
            spec.on_off = Some(OnOff { on: on.0, off: off.0 });
        }
        if let Some(idt) = &entry.idt {
            spec.idt = idt.0.clone();
        }
        if let Some(size) = &entry.size {
            spec.size = size.0.clone();
        }
        self.load_tables(entry, &mut spec);
        self.limit_sizes(entry, &mut spec);
        self.apply_rate(entry, &mut spec);
        spec.start_ns = entry.start.map_or(0, |time| time.0);
        spec.stop = Stop {
            duration_ns: self.duration(entry, id, spec.start_ns),
            packets: entry.packets.map(|count| count.0),
            bytes: entry.bytes.map(|count| count.0),
        };
        spec.meter = entry.meter.map(|meter| meter.0).unwrap_or_default();
        spec.payload = entry.payload.clone().map(|payload| payload.0).unwrap_or_default();
        spec.late = entry.late.map(|late| late.0).unwrap_or_default();
        spec.max_burst = entry.max_burst;
        spec.burst = entry.burst;
        spec.handling = entry.handling();
        spec.shape = entry.shape();
        self.apply_socket(entry, &mut spec);
        spec
    }

    fn apply_profile(&mut self, entry: &FlowEntry, spec: &mut FlowSpec) {
        let id = spec.id;
        if let Some(proto) = entry.proto {
            spec.proto = proto.0;
        }
        let Some(written) = &entry.profile else { return };
        let profile = match self.profile(written) {
            Ok(profile) => profile,
            Err(text) => {
                let place = entry.places.key("profile");
                return self.problem(place, format!("flow {id}: {text}"));
            }
        };
        let transport = profile.transport.unwrap_or(Proto::Udp);
        let replaced: Vec<_> = [
            ("proto", entry.proto.is_some_and(|proto| proto.0 != transport)),
            ("idt", entry.idt.is_some()),
            ("rate", entry.rate.is_some()),
            ("size", entry.size.is_some()),
            ("on_off", entry.on_off.is_some() && profile.on_off.is_some()),
        ]
        .into_iter()
        .filter_map(|(key, replaced)| replaced.then_some(key))
        .collect();
        if !replaced.is_empty() {
            let text = format!("the flow's {} go before profile {written}", replaced.join(", "));
            self.entry_notes.push(text);
        }
        if entry.proto.is_none() {
            spec.proto = transport;
        }
        spec.profile = Some(written.clone());
        spec.idt = profile.idt;
        spec.size = profile.size;
        spec.on_off = profile.on_off;
    }

    /// Reads `NAME`, `NAME:key=value,…` or the same with a file for the name.
    fn profile(&mut self, written: &str) -> Result<Profile, String> {
        let (name, params) = profile::split_spec(written).map_err(|e| e.to_string())?;
        let text = if let Some(text) = self.inputs.profiles.get(name) {
            text.clone()
        } else if name.ends_with(".toml") || name.contains('/') {
            self.file(name)?
        } else if let Some(text) = profile::builtin(name) {
            text.to_owned()
        } else {
            return Err(profile::unknown(name).to_string());
        };
        let profile = Profile::parse(&text, &params).map_err(|e| e.to_string())?;
        self.profiles.insert(name.to_owned(), text);
        Ok(profile)
    }

    fn file(&mut self, name: &str) -> Result<String, String> {
        if !self.read.contains_key(name) {
            let text = (self.inputs.files)(name);
            self.read.insert(name.to_owned(), text);
        }
        self.read[name].clone()
    }

    /// Gives empirical distributions their tables.
    fn load_tables(&mut self, entry: &FlowEntry, spec: &mut FlowSpec) {
        let id = spec.id;
        let periods = spec.on_off.iter_mut().flat_map(|p| [&mut p.on, &mut p.off]);
        let periods = periods.map(|distribution| ("on_off", distribution));
        let distributions = [("idt", &mut spec.idt), ("size", &mut spec.size)];
        for (key, distribution) in distributions.into_iter().chain(periods) {
            let names: Vec<String> = distribution.files().into_iter().map(str::to_owned).collect();
            for name in names {
                let loaded = self.file(&name).and_then(|text| {
                    distribution.load(&name, &text).map_err(|error| error.to_string())
                });
                if let Err(text) = loaded {
                    self.problem(entry.places.key(key), format!("flow {id}: {key}: {text}"));
                    *distribution = if key == "size" {
                        Distribution::Constant(512.0)
                    } else {
                        Distribution::Constant(1e6)
                    };
                    break;
                }
            }
        }
    }

    /// Puts other limits of packet sizes than the protocol's into the distribution itself, where
    /// every reader of the plan and of logs finds them.
    fn limit_sizes(&mut self, entry: &FlowEntry, spec: &mut FlowSpec) {
        let Some(sizes) = self.inputs.sizes else { return };
        let (lo, hi) = sizes(spec.proto).into_inner();
        match spec.size.resolve(Unit::Size, lo.into(), hi.into()) {
            Ok(size) => {
                self.entry_notes.extend(size.notice().map(|notice| format!("size: {notice}")));
                spec.size = size.distribution().clone();
            }
            Err(error) => {
                let text = format!("flow {}: size: {error}", spec.id);
                self.problem(entry.places.key("size"), text);
            }
        }
    }

    /// Turns a rate into a constant inter-departure time: mean size in bits over the rate, or one
    /// over the rate.
    fn apply_rate(&mut self, entry: &FlowEntry, spec: &mut FlowSpec) {
        let Some(rate) = entry.rate else { return };
        let id = spec.id;
        let place = entry.places.key("rate");
        if entry.idt.is_some() {
            let text = format!("flow {id}: `rate` and `idt` exclude each other: leave one out");
            return self.problem(place, text);
        }
        let gap_ns = match rate {
            SendRate::Max => 0.0,
            SendRate::Mean(Rate::Packets(per_second)) => 1e9 / per_second,
            SendRate::Mean(Rate::Bits(bits)) => {
                let (lo, hi) = (spec.proto.min_size(), spec.proto.max_size());
                match spec.size.resolve(Unit::Size, lo.into(), hi.into()) {
                    #[expect(clippy::cast_precision_loss, reason = "a rate has few digits")]
                    Ok(size) => size.mean() * 8e9 / bits.0 as f64,
                    // Reported with the flow.
                    Err(_) => return,
                }
            }
        };
        if !gap_ns.is_finite() {
            let text = format!("flow {id}: a rate of 0 sends nothing: leave the flow out");
            return self.problem(place, text);
        }
        if spec.on_off.is_some() {
            let text = "the rate holds during ON periods; over a long time it is that share less";
            self.entry_notes.push(text.to_owned());
        }
        spec.idt = Distribution::Constant(gap_ns);
    }

    /// The flow's duration, within that of the run.
    fn duration(&mut self, entry: &FlowEntry, id: u32, start_ns: u64) -> Option<u64> {
        let own = entry.duration.map(|time| time.0);
        if own == Some(0) {
            let text = format!("flow {id}: a duration of 0 sends nothing: leave the flow out");
            self.problem(entry.places.key("duration"), text);
        }
        let Some(run_ns) = self.run_ns else { return own };
        let Some(left) = run_ns.checked_sub(start_ns).filter(|left| *left > 0) else {
            let (start, run) = (format_duration_ns(start_ns), format_duration_ns(run_ns));
            let text = format!("flow {id}: starts at {start}, but the run ends at {run}");
            self.problem(entry.places.key("start"), text);
            return own;
        };
        if let Some(own) = own.filter(|own| *own > left) {
            let (own, left) = (format_duration_ns(own), format_duration_ns(left));
            let run = format_duration_ns(run_ns);
            let text = format!("duration {own} is cut to {left}: the run ends at {run}");
            self.entry_notes.push(text);
        }
        Some(own.unwrap_or(left).min(left))
    }

    fn apply_socket(&mut self, entry: &FlowEntry, spec: &mut FlowSpec) {
        let id = spec.id;
        if spec.proto == Proto::Icmp {
            for (key, port) in [("source_port", entry.source_port), ("dest_port", entry.dest_port)]
            {
                if port.is_some() {
                    let text = format!("flow {id}: {key}: ICMP has no ports: leave it out");
                    self.problem(entry.places.key(key), text);
                }
            }
        }
        if entry.nagle.is_some() && spec.proto != Proto::Tcp {
            let text = format!("flow {id}: nagle is a setting of TCP: leave it out");
            self.problem(entry.places.key("nagle"), text);
        }
        if let Some(source) = &entry.source {
            let address = source.split_once('%').map_or(source.as_str(), |(address, _)| address);
            if address.parse::<IpAddr>().is_err() {
                let text = format!(
                    "flow {id}: source `{source}` is not an IP address: expected one such as \
                     10.0.0.4, 2001:db8::4 or fe80::1%eth0"
                );
                self.problem(entry.places.key("source"), text);
            }
        }
        let pacing_rate = match entry.pacing_rate.map(|rate| rate.0) {
            Some(Rate::Bits(bits)) => Some(bits.0),
            Some(Rate::Packets(_)) => {
                let text = format!(
                    "flow {id}: the kernel paces TCP by bits: give `pacing_rate` as \"10Mbps\""
                );
                self.problem(entry.places.key("pacing_rate"), text);
                None
            }
            None => None,
        };
        let tos = |dscp: u8, ecn: u8| dscp << 2 | ecn;
        spec.socket = SocketOptions {
            source: entry.source.clone(),
            source_port: entry.source_port,
            dest_port: entry.dest_port,
            interface: entry.interface.clone(),
            ttl: entry.ttl,
            tos: match (entry.dscp, entry.ecn) {
                (None, None) => None,
                (dscp, ecn) => Some(tos(dscp.map_or(0, |d| d.0), ecn.map_or(0, |e| e.0))),
            },
            nagle: entry.nagle.unwrap_or(false),
            congestion: entry.congestion.clone(),
            pacing_rate,
        };
    }
}

/// The profile without its parameters, or the protocol.
fn default_name(spec: &FlowSpec) -> String {
    let profile = spec.profile.as_deref().and_then(|name| name.split(':').next());
    profile.unwrap_or_else(|| spec.proto.name()).to_owned()
}
