//! `itg-cluster run FILE --sim`: the whole experiment in virtual time, through the network that the
//! file describes in `[network]`, ending in the ordinary report.

use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

use anyhow::{Context as _, Result};
use itg_cli::{Loaded, WordArgs, refuse, say};
use itg_core::flow::Proto;
use itg_experiment::Manifest;
use itg_process::Params;
use itg_sim::flows::{Logs, Network, RunInfo, SimFlow, Summary, simulate};

use crate::directory::{RECEIVER_LOG, SENDER_LOG};
use crate::world::{Outcome, Output, Prepared, World};

/// Text that is printed when the file has no `[network]`.
const NO_NETWORK: &str = "--sim needs a simulated network in the experiment file, such as:\n\
                          [network]\nkind = \"switch\"\nrate = \"100Mbps\"";

/// Virtual time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Simulated;

impl World for Simulated {
    fn name(&self) -> &'static str {
        "sim"
    }

    fn is_deterministic(&self) -> bool {
        true
    }

    fn prepare<'a>(&'a self, loaded: &'a mut Loaded) -> Result<Box<dyn Prepared + 'a>> {
        Ok(Box::new(Simulation::new(loaded)?))
    }
}

/// The experiment, its network read and its hosts numbered.
struct Simulation<'a> {
    loaded: &'a Loaded,
    network: Network,
    hosts: Vec<String>,
    /// Sender and receiver of each flow.
    ends: Vec<(u32, u32)>,
    /// Description of the model, in one line.
    model: String,
}

impl<'a> Simulation<'a> {
    /// Reads the network; what is wrong with it is a request that makes no sense.
    fn new(loaded: &'a mut Loaded) -> Result<Self> {
        // Notices of the planner for runs without it.
        loaded.plan.notices.retain(|notice| !notice.starts_with("[network]"));
        let mut hosts: Vec<String> = Vec::new();
        let mut number = |name: &str| {
            let found = hosts.iter().position(|host| host == name);
            let at = found.unwrap_or_else(|| {
                hosts.push(name.to_owned());
                hosts.len() - 1
            });
            u32::try_from(at).unwrap_or(u32::MAX)
        };
        let ends = loaded.plan.flows.iter().map(|planned| {
            let from = number(&planned.from);
            // A flow from a host to itself goes to a second host, so that there is a network.
            let to = match planned.to == planned.from {
                true => number(&format!("{} (receiver)", planned.to)),
                false => number(&planned.to),
            };
            (from, to)
        });
        let ends: Vec<_> = ends.collect();
        let Some(table) = &loaded.experiment.network else { return Err(refuse(NO_NETWORK)) };
        // The log server may have a host of its own.
        if let Some(server) = table.get("log_server").and_then(|name| name.as_str()) {
            number(server);
        }
        let place = loaded.experiment.places.key("network");
        let mut params = Params::of_table(table, "[network]", &loaded.origin, place);
        let count = u32::try_from(hosts.len()).unwrap_or(u32::MAX);
        let number = |name: &str| {
            let at = hosts.iter().position(|host| host == name);
            at.and_then(|at| u32::try_from(at).ok())
        };
        let network =
            Network::read(&mut params, loaded.plan.seed, count, number).map_err(refuse)?;
        let tcp = loaded.plan.flows.iter().any(|planned| planned.flow.spec().proto == Proto::Tcp);
        let model = network.describe(tcp);
        Ok(Self { loaded, network, hosts, ends, model })
    }
}

impl Prepared for Simulation<'_> {
    fn loaded(&self) -> &Loaded {
        self.loaded
    }

    fn settings(&self) -> Vec<(&'static str, String)> {
        vec![("simulated", self.model.clone())]
    }

    fn carry_out(
        self: Box<Self>,
        output: &Output,
        _manifest: &Manifest,
        words: WordArgs,
    ) -> Result<Outcome> {
        let Self { loaded, network, hosts, ends, model } = *self;
        let (out, plan) = (&output.dir, &loaded.plan);
        if !words.quiet {
            say(format_args!("simulated: {model}"));
        }
        let flows: Vec<_> = plan
            .flows
            .iter()
            .zip(&ends)
            .map(|(planned, &(from, to))| {
                let name = |host: u32| hosts[host as usize].as_str();
                SimFlow {
                    flow: &planned.flow,
                    from,
                    to,
                    name: &planned.name,
                    names: (name(from), name(to)),
                }
            })
            .collect();
        let mut info = RunInfo {
            program: "itg-cluster".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            run: plan.hash_text(),
            ..RunInfo::default()
        };
        info.settings.insert("plan".to_owned(), plan.hash_text());
        let mut sender = create(&out.join(SENDER_LOG))?;
        let mut receiver = create(&out.join(RECEIVER_LOG))?;
        let count = u32::try_from(hosts.len()).unwrap_or(u32::MAX);
        let started = jiff::Timestamp::now();
        let logs = Logs { sender: &mut sender, receiver: &mut receiver };
        let summary = simulate(&flows, count, network, plan.seed, &info, logs)
            .with_context(|| format!("logs in {}", out.display()))?;
        let elapsed = jiff::Timestamp::now().duration_since(started).as_secs_f64();
        if !words.quiet {
            say(account(&summary, elapsed));
        }
        Ok(Outcome {
            logs: vec![out.join(SENDER_LOG), out.join(RECEIVER_LOG)],
            heading: format!("Simulated: {model}\n"),
            ..Outcome::default()
        })
    }
}

/// Speed and sums of a simulation, in words.
#[expect(clippy::cast_precision_loss, reason = "for people, rounded")]
fn account(summary: &Summary, elapsed_s: f64) -> String {
    let seconds = summary.virtual_ns as f64 / 1e9;
    let elapsed = elapsed_s.max(1e-6);
    let dropped: u64 = summary.dropped.values().sum();
    let logs = match summary.logs.blocks {
        0 => String::new(),
        blocks => format!(
            "; {} of {blocks} log blocks stored, {} bytes waited at most",
            summary.logs.stored, summary.logs.waiting_most
        ),
    };
    format!(
        "simulated {seconds:.1} s in {elapsed:.2} s ({:.0} x real time), {} events ({:.2} M/s); {} \
         packets sent, {} received, {dropped} dropped by the network, {} segments sent again{logs}; hash {:016x}",
        seconds / elapsed,
        summary.events,
        summary.events as f64 / elapsed / 1e6,
        summary.packets.0,
        summary.packets.1,
        summary.retransmissions,
        summary.hash,
    )
}

fn create(path: &Path) -> Result<BufWriter<File>> {
    let file = File::create(path).with_context(|| format!("log {}", path.display()))?;
    Ok(BufWriter::with_capacity(1 << 18, file))
}
