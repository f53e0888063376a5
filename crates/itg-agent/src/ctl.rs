//! `itg-cluster status` and `itg-cluster ctl`: from any terminal, by way of any agent.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::{Args, Subcommand};
use itg_cli::{Failure, refuse, say};
use itg_control::{Command, Replica, Stage};
use itg_core::units::Rate;
use itg_experiment::Experiment;

use crate::member::greet;
use crate::trust::{Line, Trust};
use crate::wire::{Call, NewRate, Reply, Status, ask, times, with_port};

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
    /// Number of the flow, or `all`
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

fn block<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(work)
}

/// Prints what a cluster does.
///
/// # Errors
/// No agent answers.
pub fn status(args: &StatusArgs) -> Result<ExitCode> {
    let (address, _, status) = block(args.whom.status())?;
    if args.json {
        itg_cli::print(&(serde_json::to_string_pretty(&status)? + "\n"))?;
    } else {
        itg_cli::print(&render(&address, &status))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn render(address: &str, status: &Status) -> String {
    let Some(run) = &status.run else { return format!("agent {address}: no experiment\n") };
    let mut text = format!("experiment {} (run {run}), as agent {address} knows it\n", status.name);
    let Some(replica) = &status.replica else {
        return text + "its state is not known yet\n";
    };
    let name = |slot: u32| {
        status.nodes.get(slot as usize).cloned().unwrap_or_else(|| "console".to_owned())
    };
    let members: Vec<String> = replica.members().keys().map(|slot| name(*slot)).collect();
    text += &format!("{:?}; view {}: {}\n", replica.phase(), status.view, members.join(", "));
    text += &flows(replica, &name);
    for mark in replica.marks() {
        text += &format!("mark: {mark}\n");
    }
    text
}

/// The flows, those that are alike in one line.
fn flows(replica: &Replica, name: &dyn Fn(u32) -> String) -> String {
    let mut text = String::from("flow      stage     owner       changes of owner  rate\n");
    for (word, flow) in replica.words().iter().zip(1_u32..) {
        let owner = word.owner().map_or_else(|| "nobody".to_owned(), name);
        let stage = match word.stage() {
            Stage::Waiting => "waiting",
            Stage::Running => "running",
            Stage::Handing => "handing",
            Stage::Stopped => "stopped",
            Stage::Finished => "finished",
        };
        let rate = replica.rates(flow).last().map_or(1.0, |change| times(change.ppm));
        let fence = word.fence();
        text += &format!("{flow:<9} {stage:<9} {owner:<11} {fence:<17} x{rate}\n");
    }
    text
}

/// Has a command ordered.
///
/// # Errors
/// No agent answers, or the command is void.
pub fn ctl(args: &CtlArgs) -> Result<ExitCode> {
    let flow = match args.flow.as_str() {
        "all" => None,
        text => Some(
            text.parse::<u32>()
                .map_err(|_| refuse(format!("flow `{text}`: expected a number or `all`")))?,
        ),
    };
    block(async {
        let (address, mut line, status) = args.whom.status().await?;
        let call = match (&args.what, flow) {
            (Change::Stop, flow) => Call::Command(Command::Stop { flow }),
            (Change::Rate { rate }, None) if !matches!(rate, NewRate::Times(_)) => {
                return Err(refuse(
                    "all flows together have no rate of their own: give a factor, as x0.5, or a flow's number",
                ));
            }
            (Change::Rate { rate }, flow) => Call::Rate { flow, rate: *rate },
            (Change::Mark { label }, None) => Call::Command(Command::Mark { label: label.clone() }),
            (Change::Mark { .. }, Some(_)) => {
                return Err(refuse("a remark belongs to no flow: give `all`"));
            }
            (Change::Move { .. }, None) => {
                return Err(refuse("one flow at a time can be moved: give its number"));
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
