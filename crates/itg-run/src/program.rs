//! A whole program of layers of one's own: `simulate`, `process`, `check` and `diff`, as `itg-cluster` has them.
//!
//! ```no_run
//! use std::process::ExitCode;
//!
//! use itg_process::Registry;
//! use itg_run::Parts;
//!
//! fn main() -> ExitCode {
//!     itg_run::program::main(&Parts::new("mine", Registry::new()))
//! }
//! ```

use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use itg_cli::WordArgs;

use crate::diff::{self, DiffArgs};
use crate::judge::{self, CheckArgs};
use crate::parts::Parts;
use crate::process::{self, ProcessArgs};
use crate::simulate::{self, SimulateArgs};

#[derive(Debug, Parser)]
#[command(about = "Run processes made of layers", arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    words: WordArgs,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run processes on simulated networks, in virtual time
    Simulate(SimulateArgs),
    /// Run processes on real networks, one on each host
    Process(ProcessArgs),
    /// Let the checkers of a configuration judge traces
    Check(CheckArgs),
    /// Compare two traces, such as a real one and its simulation
    Diff(DiffArgs),
}

/// Does what the command line says, and returns the exit code: 0 done, 1 the run failed or a checker objects, 2 the
/// request makes no sense, 3 a peer was not reachable.
#[must_use]
pub fn main(parts: &Parts) -> ExitCode {
    let mut matches = Cli::command().name(parts.program).get_matches();
    let cli = Cli::from_arg_matches_mut(&mut matches).unwrap_or_else(|error| error.exit());
    cli.words.start();
    let done = match cli.command {
        Command::Simulate(args) => simulate::run(&args, parts),
        Command::Process(args) => process::run(&args, parts, cli.words),
        Command::Check(args) => judge::run(&args, parts),
        Command::Diff(args) => diff::run(&args),
    };
    itg_cli::finish(parts.program, done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
