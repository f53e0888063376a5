//! `itg-cluster`: plans and runs experiments.
//!
//! Data goes to stdout, words to stderr.

mod args;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use itg_agent::agent::{self, AgentArgs};
use itg_agent::ctl::{self, CtlArgs, StatusArgs};
use itg_agent::fetch::{self, FetchArgs};
use itg_agent::keys::{self, KeysArgs};
use itg_agent::worker;
use itg_cli::WordArgs;
use itg_run::{Parts, diff, judge, layers, live, plan, process, simulate, verify};

use crate::args::{ReplayArgs, RunArgs};

/// Plan and run experiments of the Internet traffic generator ITG.
///
/// Exit codes: 0 the plan was carried out, 1 the run failed or a kernel refused packets, 2 the request makes no sense,
/// 3 a peer was not reachable or refused, 4 a peer vanished, a flow did not reach the end of its plan, nothing of one
/// arrived, or nothing is known of more than 1 % of a plan (what was measured is kept), 98 and 99 a gate of the
/// experiment failed (98: only such on the fidelity), 129, 130 and 143 ended by SIGHUP, SIGINT and SIGTERM (after the
/// report).
#[derive(Debug, Parser)]
#[command(name = "itg-cluster", version, long_version = itg_cli::version!("mpi"), arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    words: WordArgs,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run an experiment file
    Run(RunArgs),
    /// Run an experiment again from the manifest of a run, and compare both
    Replay(ReplayArgs),
    /// Check the directory of a run: hashes of all files, plan, logs and report
    Verify(verify::VerifyArgs),
    /// Run processes made of layers on simulated networks, in virtual time
    Simulate(simulate::SimulateArgs),
    /// Compare two runs of an experiment, such as a real one and its simulation: what was planned for each
    /// packet, and what was measured; or two traces of processes
    Diff(diff::DiffArgs),
    /// Run processes made of layers on real networks, one on each host
    Process(process::ProcessArgs),
    /// Let the checkers of a configuration of layers judge traces of its processes
    Check(judge::CheckArgs),
    /// Serve this node: take part in experiments that consoles start
    Agent(AgentArgs),
    /// Make, renew and revoke the keys of a cluster
    Keys(KeysArgs),
    /// Show what a cluster does
    Status(StatusArgs),
    /// Fetch the logs of a run whose console is gone from its agents and make its report; without a run: list the runs
    Fetch(FetchArgs),
    /// Stop a flow of a running experiment, or hand it to another node
    Ctl(CtlArgs),
    /// Send flows for an agent, which starts this
    #[command(hide = true)]
    Worker,
    /// Show what an experiment file will send and log, and which requested values cannot be met
    Plan(plan::PlanArgs),
}

/// The program's command line, for man pages and completions.
#[must_use]
pub fn command() -> clap::Command {
    itg_cli::command::<Cli>(None)
}

/// Runs the program with the command line of this process.
#[must_use]
pub fn main() -> ExitCode {
    let cli = itg_cli::parse::<Cli>(None);
    cli.words.start();
    let parts = || Parts::new("itg-cluster", layers::registry());
    let done = match cli.command {
        Command::Run(args) => args.run(cli.words),
        Command::Replay(args) => args.run(cli.words),
        Command::Verify(args) => verify::run(&args),
        Command::Simulate(args) => simulate::run(&args, &parts()),
        Command::Diff(args) => diff::run(&args),
        Command::Process(args) => process::run(&args, &parts(), cli.words),
        Command::Check(args) => judge::run(&args, &parts()),
        Command::Agent(args) => agent::run(&args, cli.words),
        Command::Keys(args) => keys::keys(&args),
        Command::Status(args) => ctl::status(&args),
        Command::Fetch(args) => fetch::fetch(&args, cli.words),
        Command::Ctl(args) => ctl::ctl(&args),
        Command::Worker => worker::run(),
        Command::Plan(args) => plan::run(&args, cli.words),
    };
    live::settle();
    itg_cli::finish("itg-cluster", done)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_consistent() {
        super::Cli::command().debug_assert();
    }
}
