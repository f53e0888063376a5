//! `itg-cluster status` and `itg-cluster ctl`: from any terminal, by way of any agent.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::{Args, Subcommand};
use itg_cli::{Failure, refuse, say};
use itg_control::Command;
use itg_core::units::Rate;
use itg_experiment::Experiment;

use crate::member::greet;
use crate::status::StatusReport;
use crate::trust::{Line, Trust};
use crate::wire::{Call, NewRate, Reply, Status, ask, with_port};

/// Agent to ask.
#[derive(Debug, Args)]
pub(crate) struct Whom {
    /// The agent to ask, HOST[:PORT], or an experiment file whose nodes are asked in turn
    #[arg(long, value_name = "AGENT|FILE")]
    at: String,
    /// Directory of the cluster's keys
    #[arg(long, value_name = "DIR")]
    keys: PathBuf,
}

/// Arguments of `status`.
#[derive(Debug, Args)]
pub struct StatusArgs {
    #[command(flatten)]
    whom: Whom,
    /// One JSON object instead of a table
    #[arg(long)]
    json: bool,
}

/// Arguments of `ctl`.
#[derive(Debug, Args)]
pub struct CtlArgs {
    #[command(flatten)]
    whom: Whom,
    /// Name or number of the flow, or `all`
    flow: String,
    #[command(subcommand)]
    what: Change,
}

/// Action on a flow.
#[derive(Debug, Subcommand)]
enum Change {
    /// End it now
    Stop,
    /// Have it go on at another rate, a lease and half a second from now: as `2Mbps`, `500pps`, or `x0.5` of what the
    /// experiment asks for
    Rate {
        /// The rate; for `all` flows a factor
        #[arg(value_parser = new_rate)]
        rate: NewRate,
    },
    /// Put a remark into the report (flow `all`)
    Mark {
        /// Text of the remark
        label: String,
    },
    /// Have another node send it
    Move {
        /// Name of that node
        node: String,
    },
}

/// Reads `2Mbps`, `500pps`, `x0.5`; a bare number with a prefix, as `2M`, is in bits per second.
fn new_rate(text: &str) -> Result<NewRate, String> {
    if let Some(times) = text.strip_prefix('x') {
        let times: f64 =
            times.parse().map_err(|_| format!("`{text}`: expected a factor, as x0.5"))?;
        let rate = NewRate::Times(times);
        // A factor needs no means.
        if rate.ppm((f64::NAN, f64::NAN)).is_none() {
            return Err(format!("`{text}`: expected a factor of 0.001 to 1000"));
        }
        return Ok(rate);
    }
    let bits = if text.ends_with(['k', 'M', 'G']) { format!("{text}bps") } else { text.to_owned() };
    match bits.parse::<Rate>().map_err(|error| error.to_string())? {
        Rate::Bits(bits) => Ok(NewRate::Bits(bits.0)),
        Rate::Packets(packets) => Ok(NewRate::Packets(packets)),
    }
}

/// The addresses that a text stands for.
fn addresses(at: &str) -> Result<Vec<String>> {
    if let Ok(text) = fs::read_to_string(at) {
        let experiment = Experiment::parse(&text, at).map_err(refuse)?;
        return Ok(experiment.nodes.values().map(|node| with_port(&node.address)).collect());
    }
    Ok(vec![with_port(at)])
}

impl Whom {
    /// Directory of the keys.
    pub(crate) fn keys(&self) -> &Path {
        &self.keys
    }

    /// The agents to ask.
    pub(crate) fn addresses(&self) -> Result<Vec<String>> {
        addresses(&self.at)
    }

    /// A connection to the first agent that answers.
    async fn reach(&self) -> Result<(String, Line)> {
        let trust = Trust::load(&self.keys)?;
        let mut last = None;
        for address in addresses(&self.at)? {
            match trust.connect(&address).await {
                Ok(mut line) => {
                    greet(&mut line)
                        .await
                        .map_err(|error| Failure::new(3, format!("agent {address}: {error:#}")))?;
                    return Ok((address, line));
                }
                Err(error) => last = Some(Failure::new(3, format!("agent {address}: {error}"))),
            }
        }
        Err(last.map_or_else(|| refuse(format!("{}: no nodes", self.at)), Into::into))
    }

    async fn status(&self) -> Result<(String, Line, Status)> {
        let (address, mut line) = self.reach().await?;
        let Reply::Status(status) = ask(&mut line, &Call::Status).await? else {
            bail!("no status");
        };
        Ok((address, line, *status))
    }
}

pub(crate) fn block<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(work)
}

/// Prints what a cluster does.
///
/// # Errors
/// No agent answers.
pub fn status(args: &StatusArgs) -> Result<ExitCode> {
    let (address, _, status) = block(args.whom.status())?;
    let report = StatusReport::new(&address, &status);
    itg_cli::print(&if args.json { report.to_json() } else { report.to_text() })?;
    Ok(ExitCode::SUCCESS)
}

/// The number of the flow that a text names, of those with these names in order; `None`: all. A name goes before a number.
fn flow_of(text: &str, names: &[String]) -> Result<Option<u32>, String> {
    if text == "all" {
        return Ok(None);
    }
    let named: Vec<u32> =
        names.iter().zip(1..).filter(|(name, _)| *name == text).map(|(_, flow)| flow).collect();
    match (&named[..], text.parse()) {
        ([flow], _) => Ok(Some(*flow)),
        ([], Ok(flow)) => Ok(Some(flow)),
        ([], Err(_)) => {
            let hint = itg_process::suggestion(text, names.iter().map(String::as_str));
            Err(format!("flow `{text}`: expected its name, its number or `all`: {hint}"))
        }
        (several, _) => {
            let numbers: Vec<_> = several.iter().map(u32::to_string).collect();
            Err(format!(
                "flow `{text}`: flows {} have that name: give a number",
                numbers.join(", ")
            ))
        }
    }
}

/// Has a command ordered.
///
/// # Errors
/// No agent answers, or the command is void.
pub fn ctl(args: &CtlArgs) -> Result<ExitCode> {
    block(async {
        let (address, mut line, status) = args.whom.status().await?;
        let flow = flow_of(&args.flow, &status.flows).map_err(refuse)?;
        let call = match (&args.what, flow) {
            (Change::Stop, flow) => Call::Command(Command::Stop { flow }),
            (Change::Rate { rate }, None) if !matches!(rate, NewRate::Times(_)) => {
                return Err(refuse(
                    "all flows together have no rate of their own: give a factor, as x0.5, or a flow",
                ));
            }
            (Change::Rate { rate }, flow) => Call::Rate { flow, rate: *rate },
            (Change::Mark { label }, None) => Call::Command(Command::Mark { label: label.clone() }),
            (Change::Mark { .. }, Some(_)) => {
                return Err(refuse("a remark belongs to no flow: give `all`"));
            }
            (Change::Move { .. }, None) => {
                return Err(refuse("one flow at a time can be moved: name it"));
            }
            (Change::Move { node }, Some(flow)) => {
                let nodes = status.nodes.iter().map(String::as_str);
                let Some(to) = nodes.clone().zip(0..).find(|(name, _)| name == node) else {
                    let hint = itg_process::suggestion(node, nodes);
                    return Err(refuse(format!("node `{node}`: {hint}")));
                };
                Call::Command(Command::Reassign { flow, to: to.1 })
            }
        };
        let Reply::Ordered(done) = ask(&mut line, &call).await? else {
            bail!("no answer");
        };
        match done {
            Ok(position) => {
                say(format_args!("done: entry {position} of the log, by agent {address}"))
            }
            Err(why) => return Err(Failure::new(1, why).into()),
        }
        Ok(ExitCode::SUCCESS)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_are_named() {
        let names = ["call", "bulk", "bulk", "9"].map(str::to_owned);
        for (text, want) in [
            ("all", Ok(None)),
            ("call", Ok(Some(1))),
            ("2", Ok(Some(2))),
            ("9", Ok(Some(4))),
            ("bulk", Err("flow `bulk`: flows 2, 3 have that name: give a number")),
            (
                "cal",
                Err("flow `cal`: expected its name, its number or `all`: did you mean `call`?"),
            ),
        ] {
            assert_eq!(flow_of(text, &names), want.map_err(str::to_owned), "{text}");
        }
    }

    #[test]
    fn rates_are_read() {
        for (text, want) in [
            ("2M", Ok(NewRate::Bits(2_000_000))),
            ("2Mbps", Ok(NewRate::Bits(2_000_000))),
            ("500pps", Ok(NewRate::Packets(500.0))),
            ("x0.5", Ok(NewRate::Times(0.5))),
            ("xx", Err("`xx`: expected a factor, as x0.5".to_owned())),
            ("xNaN", Err("`xNaN`: expected a factor of 0.001 to 1000".to_owned())),
            ("xinf", Err("`xinf`: expected a factor of 0.001 to 1000".to_owned())),
            ("x0", Err("`x0`: expected a factor of 0.001 to 1000".to_owned())),
            ("x1001", Err("`x1001`: expected a factor of 0.001 to 1000".to_owned())),
        ] {
            assert_eq!(new_rate(text), want, "{text}");
        }
        assert!(new_rate("often").is_err() && new_rate("0bps").is_err());
    }
}
