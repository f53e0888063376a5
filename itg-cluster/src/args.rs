//! `itg-cluster run`: its arguments, and the world that they name.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use itg_agent::{Agents, AgentsOptions};
use itg_cli::{LoadArgs, WordArgs, refuse};
use itg_run::{Local, RunOptions, RunRequest, Simulated, World, run};

/// Arguments of `run`.
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    load: LoadArgs,
    /// All nodes on this host, receiver and log writer embedded
    #[arg(long, conflicts_with = "keys")]
    local: bool,
    /// In virtual time, through the network that [network] of the file describes
    #[arg(long, conflicts_with_all = ["local", "keys"])]
    sim: bool,
    /// One flow on each rank of an MPI job: mpirun -n N itg-cluster run FILE --mpi, N being the number of
    /// flows, and one more for the log rank when [log] of the file says `server = "mpi"`
    #[cfg(feature = "mpi")]
    #[arg(long, conflicts_with_all = ["local", "sim", "keys"])]
    mpi: bool,
    #[command(flatten)]
    options: RunOptions,
    #[command(flatten)]
    agents: AgentsOptions,
}

impl RunArgs {
    /// Runs the experiment in the world that these arguments name.
    pub(crate) fn run(self, words: WordArgs) -> Result<ExitCode> {
        if self.sim && self.options.events.is_some() {
            return Err(refuse(
                "--events tells what happens while it happens, by the clock of this host; with --sim time is virtual \
                 and over in a moment: leave --events out, the logs and the report have all",
            ));
        }
        let pacing = self.options.pacing;
        let ways = format!("{pacing:?}, {}", self.agents.ways());
        let request = RunRequest { load: self.load, options: self.options, ways };
        #[cfg(feature = "mpi")]
        if self.mpi {
            return itg_run::mpi::run(&request, words);
        }
        let world: Box<dyn World> = match (self.sim, self.local) {
            (true, _) => Box::new(Simulated),
            (_, true) => Box::new(Local { pacing }),
            _ => Box::new(Agents { options: self.agents }),
        };
        run(&*world, &request, words)
    }
}
