//! `itg-cluster fetch RUN`: the logs that agents keep of a run whose console is gone, and the report of them.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use clap::Args;
use itg_cli::{Failure, Loaded, WordArgs, refuse, say};
use itg_control::Command;
use itg_core::text::visible;
use itg_experiment::Manifest;
use itg_run::{GateOptions, Outcome, Output, OutputOptions, Prepared, World, take_up};
use itg_trust::plain;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::collect::{self, Patience, Source};
use crate::ctl::{Whom, block};
use crate::description::Description;
use crate::finding::call;
use crate::run_dir::DESCRIPTION;
use crate::trust::Trust;
use crate::wire::{Call, KeptRun, Logs, Reply, with_port};

/// Time that nodes may take to close their logs once the run is told to end.
const ENDING: Duration = Duration::from_secs(20);
/// Time in which a node that is not reached may come back.
const BACK: Duration = Duration::from_secs(3);
/// Time for all attempts to fetch the logs of a node of which no byte has come.
const FETCHING: Duration = Duration::from_secs(30);
/// Longest description of a run.
const MOST_DESCRIBED: usize = 64 << 20;

/// Arguments of `fetch`.
#[derive(Debug, Args)]
pub struct FetchArgs {
    /// Identifier of the run; without one the runs whose logs the agents keep are listed
    run: Option<String>,
    #[command(flatten)]
    whom: Whom,
    /// New directory for logs, report and manifest [default: itg-out/NAME-DATE-TIME]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    #[command(flatten)]
    gates: GateOptions,
}

/// Fetches the logs of a run from its agents and makes its report, as its console would have; or lists the runs.
///
/// # Errors
/// No agent answers or knows the run, or its flows are not over.
pub fn fetch(args: &FetchArgs, words: WordArgs) -> Result<ExitCode> {
    let trust = Trust::load(args.whom.keys())?;
    let asked = args.whom.addresses()?;
    let Some(run) = &args.run else {
        itg_cli::print(&block(list(&trust, &asked))?)?;
        return Ok(ExitCode::SUCCESS);
    };
    let description = block(described(&trust, &asked, run))?;
    if description.run != *run {
        bail!("the description is of another run, {}", description.run);
    }
    let nodes = block(closed(&trust, run, addresses(&description)?))?;
    let fetched = Fetched { trust, run: run.clone(), nodes, manifest: description.manifest };
    let output = OutputOptions { out: args.out.clone(), events: None, no_live: true };
    take_up(&fetched, &fetched.manifest, &output, args.gates.clone(), words)
}

/// Agents of the nodes of a run, by the nodes' names.
fn addresses(description: &Description) -> Result<Vec<(String, String)>> {
    let (experiment, _) = description.plan()?;
    let address = |name: &String| {
        // An agent tells it, and it is the name of a directory here.
        if !plain(name) {
            bail!("node `{}`: no name of a node", visible(name));
        }
        let entry = experiment.nodes.get(name).with_context(|| format!("no node `{name}`"))?;
        Ok((name.clone(), with_port(&entry.address)))
    };
    description.nodes.iter().map(address).collect()
}

/// A table of the runs that these agents keep.
async fn list(trust: &Trust, asked: &[String]) -> Result<String> {
    let mut runs: BTreeMap<(u64, String), (KeptRun, usize)> = BTreeMap::new();
    let mut failed = None;
    let mut answered = 0;
    for address in asked {
        match call(trust, address, Call::Runs).await {
            Ok(Reply::Runs(kept)) => {
                answered += 1;
                for one in kept {
                    let key = (one.started_unix_ns, one.run.clone());
                    let entry = runs.entry(key).or_insert_with(|| (one.clone(), 0));
                    entry.1 += 1;
                    // The least final state is that of the run.
                    if one.state == Logs::Open {
                        entry.0.state = Logs::Open;
                    }
                }
            }
            Ok(_) => failed = Some(format!("agent {address}: no list of runs")),
            Err(error) => failed = Some(format!("agent {address}: {error:#}")),
        }
    }
    if let Some(failed) = failed {
        if answered == 0 {
            return Err(Failure::new(3, failed).into());
        }
        say(format_args!("itg-cluster: {failed}"));
    }
    let mut text =
        format!("{:<32}  {:<20}  {:<9}  {:>6}  experiment\n", "run", "started", "logs", "agents");
    for (one, agents) in runs.values().rev() {
        let state = match one.state {
            Logs::Open => "open",
            Logs::Drained => "drained",
            Logs::Closed => "closed",
            Logs::Abandoned => "abandoned",
            Logs::Unknown => "unknown",
        };
        let started = i128::from(one.started_unix_ns);
        let started = jiff::Timestamp::from_nanosecond(started).unwrap_or_default();
        let name = visible(&one.name);
        text += &format!(
            "{:<32}  {:<20}  {state:<9}  {agents:>6}  {name}\n",
            one.run,
            started.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
        );
    }
    Ok(text)
}

/// The description of a run, from the first of these agents that has it.
async fn described(trust: &Trust, asked: &[String], run: &str) -> Result<Description> {
    let mut failed = refuse("no agents to ask");
    for address in asked {
        let got = async {
            let mut bytes = Vec::new();
            loop {
                let (run, name, offset) =
                    (run.to_owned(), DESCRIPTION.to_owned(), bytes.len() as u64);
                let Reply::Bytes(more) =
                    call(trust, address, Call::Fetch { run, name, offset }).await?
                else {
                    bail!("no bytes");
                };
                if more.is_empty() {
                    return Description::read(&bytes);
                }
                bytes.extend(more);
                if bytes.len() > MOST_DESCRIBED {
                    bail!("a description of more than {MOST_DESCRIBED} bytes");
                }
            }
        };
        match got.await {
            Ok(description) => return Ok(description),
            Err(error) => {
                let text = format!(
                    "agent {address}: the description of run {run}: {error:#}; `itg-cluster fetch` without a run \
                     lists those that it keeps"
                );
                failed = Failure::new(3, text).into();
            }
        }
    }
    Err(failed)
}

/// Ends a run whose flows are over and which no console ends. Gives the nodes back.
async fn closed(
    trust: &Trust,
    run: &str,
    nodes: Vec<(String, String)>,
) -> Result<Vec<(String, String)>> {
    let mut open = None;
    for (name, address) in &nodes {
        if let Ok(Reply::Files { state: Logs::Open | Logs::Drained, .. }) =
            call(trust, address, Call::List(run.to_owned())).await
        {
            open = Some((name, address));
            break;
        }
    }
    let Some((name, address)) = open else { return Ok(nodes) };
    for (command, whole) in [(Command::Drain, false), (Command::End, true)] {
        let Reply::Ordered(done) = call(trust, address, Call::Command(command)).await? else {
            bail!("no answer");
        };
        if let Err(why) = done {
            let text = format!(
                "node {name}: the run is not ended: {why}; `itg-cluster ctl all stop` ends its flows"
            );
            return Err(Failure::new(1, text).into());
        }
        wait(trust, run, &nodes, whole).await;
    }
    Ok(nodes)
}

/// Waits for all nodes at once to send nothing any more, or to close their logs; what a node says against it stands in the
/// reports of its logs.
async fn wait(trust: &Trust, run: &str, nodes: &[(String, String)], closed: bool) {
    let until = Instant::now() + ENDING;
    let mut waiting = JoinSet::new();
    for (_, address) in nodes {
        let mut source = Source::new(trust.clone(), address.clone(), run.to_owned());
        let (patience, address) = (Patience { until, back: BACK }, address.clone());
        waiting.spawn(async move {
            let done = collect::wait(&mut source, closed, patience).await;
            if let Err(error) = done {
                tracing::debug!("{address}: {error:#}");
            }
        });
    }
    while waiting.join_next().await.is_some() {}
}

/// A run whose logs its agents have.
struct Fetched {
    trust: Trust,
    run: String,
    /// Names of the nodes, and the addresses of their agents.
    nodes: Vec<(String, String)>,
    manifest: Manifest,
}

impl World for Fetched {
    fn name(&self) -> &'static str {
        "cluster"
    }

    fn prepare<'a>(&'a self, loaded: &'a mut Loaded) -> Result<Box<dyn Prepared + 'a>> {
        Ok(Box::new(Fetching { fetched: self, loaded }))
    }
}

/// The fetch of its logs.
struct Fetching<'a> {
    fetched: &'a Fetched,
    loaded: &'a Loaded,
}

impl Prepared for Fetching<'_> {
    fn loaded(&self) -> &Loaded {
        self.loaded
    }

    fn begun(&self) -> Option<&Manifest> {
        Some(&self.fetched.manifest)
    }

    fn settings(&self) -> Vec<(&'static str, String)> {
        vec![("fetched", self.fetched.run.clone())]
    }

    fn writes_manifest_first(&self) -> bool {
        false
    }

    fn carry_out(self: Box<Self>, output: &Output, _: &Manifest, _: WordArgs) -> Result<Outcome> {
        block(self.fetched.carry_out(output))
    }
}

impl Fetched {
    /// Fetches the logs of all nodes, side by side.
    async fn carry_out(&self, output: &Output) -> Result<Outcome> {
        let mut fetching = JoinSet::new();
        for (place, (name, address)) in self.nodes.iter().cloned().enumerate() {
            let mut source = Source::new(self.trust.clone(), address, self.run.clone());
            let dir = output.dir.join(&name);
            fetching.spawn(async move {
                let now = Instant::now();
                let patience = Patience { until: now, back: BACK };
                let whole = collect::wait(&mut source, true, patience).await;
                let until = if whole.is_ok() { now + FETCHING } else { now };
                let logs = collect::fetch(&mut source, &dir, until).await;
                (place, name, whole, logs)
            });
        }
        let mut all = Vec::new();
        while let Some(done) = fetching.join_next().await {
            all.push(done?);
        }
        all.sort_by_key(|(place, ..)| *place);
        let (mut logs, mut failures) = (Vec::new(), Vec::new());
        let mut story =
            format!("\nEvents\n  the logs of run {} were fetched from its agents\n", self.run);
        for (_, name, whole, found) in all {
            let wrong = match (whole, found) {
                (whole, Ok(found)) => {
                    story += &format!("  node {name}: {} logs\n", found.len());
                    logs.extend(found);
                    whole.err().map(|error| anyhow!("its logs are not complete: {error:#}"))
                }
                (_, Err(error)) => Some(error),
            };
            if let Some(error) = wrong {
                let text = format!("logs of node {name}: {error:#}");
                story += &format!("  {text}\n");
                failures.push(text);
            }
        }
        let code = u8::from(!failures.is_empty()) * 4;
        let interrupted = failures.first().cloned();
        Ok(Outcome { logs, code, interrupted, failures, story: Some(story), ..Outcome::default() })
    }
}

#[cfg(test)]
mod tests {
    use itg_core::seed::RunSeed;
    use itg_experiment::{Experiment, Plan, PlanInputs};

    use super::*;

    /// A description comes from an agent: its nodes name directories here, and nothing outside of them.
    #[test]
    fn nodes_have_plain_names() {
        for (name, good) in [("c", true), ("../c", false), ("/tmp/c", false), ("a/b", false)] {
            let text = format!(
                "schema = 1\nname = \"n\"\n[nodes]\na = {{ address = \"10.0.0.1\" }}\n\
                 b = {{ address = \"10.0.0.2\" }}\n\"{name}\" = {{ address = \"10.0.0.3\" }}\n\
                 [[flow]]\nfrom = \"a\"\nto = \"b\"\npackets = 1\n"
            );
            let experiment = Experiment::parse(&text, "test").expect("an experiment");
            let mut files = |name: &str| Err::<String, String>(format!("no file {name}"));
            let plan = Plan::resolve(&experiment, PlanInputs::new(RunSeed(1), &mut files));
            let manifest = Manifest::new(&plan.expect("a plan"), "test", &text, None);
            let nodes = ["a", "b", name].map(str::to_owned).to_vec();
            let description =
                Description { run: "0".repeat(32), manifest, nodes, receivers: Vec::new() };
            assert_eq!(addresses(&description).is_ok(), good, "{name}");
        }
    }
}
