//! `itg-cluster`: plans and runs experiments.
//!
//! Data goes to stdout, words to stderr.

mod bench;
mod cluster;
mod diff;
mod events;
mod layers;
mod live;
mod load;
#[cfg(feature = "mpi")]
mod mpi;
mod plan;
mod process;
mod run;
mod sim;
mod simulate;
mod sweep;
mod trace;

use std::io::{ErrorKind, Write as _};
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::{Parser, Subcommand};
use itg_cli::WordArgs;

use crate::cluster::agent::{self, AgentArgs};
use crate::cluster::ctl::{self, CtlArgs, StatusArgs};
use crate::cluster::trust::{self, KeysArgs};
use crate::cluster::worker;

/// Plan and run experiments of the Internet traffic generator ITG.
///
/// Exit codes: 0 done, 1 the run failed, 2 the request makes no sense, 3 a peer was not reachable or
/// refused, 4 a peer vanished (what was measured is kept), 98 and 99 a gate of the experiment failed
/// (98: only such on the fidelity), 130 and 143 ended by SIGINT and SIGTERM (after the report).
#[derive(Debug, Parser)]
#[command(name = "itg-cluster", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    words: WordArgs,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run an experiment file
    Run(run::RunArgs),
    /// Run processes made of layers on simulated networks, in virtual time
    Simulate(simulate::SimulateArgs),
    /// Compare two runs of an experiment, such as a real one and its simulation: what was planned for each
    /// packet, and what was measured
    Diff(diff::DiffArgs),
    /// Run processes made of layers on real networks, one on each host
    Process(process::ProcessArgs),
    /// Serve this node: take part in experiments that consoles start
    Agent(AgentArgs),
    /// Make the keys of a new cluster
    Keys(KeysArgs),
    /// Show what a cluster does
    Status(StatusArgs),
    /// Stop a flow of a running experiment, or hand it to another node
    Ctl(CtlArgs),
    /// Send flows for an agent, which starts this
    #[command(hide = true)]
    Worker,
    /// Measure group communication on this host beside the published figures
    #[command(subcommand)]
    Bench(bench::Bench),
    /// Show what an experiment file will send and log, and which wishes cannot be met
    Plan(plan::PlanArgs),
}

fn main() -> ExitCode {
    let cli = itg_cli::parse::<Cli>();
    cli.words.start();
    let done = match cli.command {
        Command::Run(args) => run::run(&args, cli.words),
        Command::Simulate(args) => simulate::run(&args),
        Command::Diff(args) => diff::run(&args),
        Command::Process(args) => process::run(&args, cli.words),
        Command::Agent(args) => agent::run(&args, cli.words),
        Command::Keys(args) => trust::keys(&args),
        Command::Status(args) => ctl::status(&args),
        Command::Ctl(args) => ctl::ctl(&args),
        Command::Worker => worker::run(),
        Command::Bench(args) => bench::run(&args),
        Command::Plan(args) => plan::run(&args),
    };
    itg_cli::finish("itg-cluster", done)
}

/// Writes data to stdout; a reader that has seen enough (`… | head`) is no failure.
fn print(text: &str) -> Result<()> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        done => done.context("cannot write to stdout"),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_consistent() {
        super::Cli::command().debug_assert();
    }
}
