//! `itg-cluster run` and `replay`: their arguments, and the world that they name.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Command, Parser};
use itg_agent::{Agents, AgentsOptions};
use itg_cli::{LoadArgs, PacingArgs, WordArgs, refuse};
#[cfg(feature = "mpi")]
use itg_run::mpi::MpiOptions;
use itg_run::replay::{Original, replay};
use itg_run::{Local, OutputOptions, RunOptions, RunRequest, Simulated, World, run};

/// Arguments of `run`.
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    load: LoadArgs,
    #[command(flatten)]
    world: WorldArgs,
    #[command(flatten)]
    options: RunOptions,
    #[command(flatten)]
    agents: AgentsOptions,
    #[cfg(feature = "mpi")]
    #[command(flatten)]
    job: MpiOptions,
}

/// World that the arguments name; none: agents, or that of the original run.
#[derive(Clone, Copy, Debug, Args)]
struct WorldArgs {
    /// All nodes on this host, receiver and log writer embedded
    #[arg(long, conflicts_with = "keys")]
    local: bool,
    /// In virtual time, through the network that [network] of the file describes
    #[arg(long, conflicts_with_all = ["local", "keys"])]
    sim: bool,
    /// One flow on each rank of an MPI job: mpirun -n N itg-cluster run FILE --mpi. Without [nodes] N is the number of
    /// flows, and one more for the log rank when [log] of the file says `server = "mpi"`; with [nodes] it is the number
    /// of flows, one more for each node that receives, and rank 0 for the logs
    #[cfg(feature = "mpi")]
    #[arg(long, conflicts_with_all = ["local", "sim", "keys"])]
    mpi: bool,
}

/// Options of the worlds.
struct WorldOptions {
    pacing: PacingArgs,
    agents: AgentsOptions,
    #[cfg(feature = "mpi")]
    job: MpiOptions,
}

/// Way to carry out an experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Local,
    Sim,
    Cluster,
    Mpi,
}

impl WorldArgs {
    /// The world, where one is named.
    const fn named(self) -> Option<Way> {
        #[cfg(feature = "mpi")]
        if self.mpi {
            return Some(Way::Mpi);
        }
        match (self.sim, self.local) {
            (true, _) => Some(Way::Sim),
            (_, true) => Some(Way::Local),
            _ => None,
        }
    }
}

impl Way {
    /// The world of this name, as manifests keep it.
    fn of(name: &str) -> Result<Self> {
        match name {
            "local" => Ok(Self::Local),
            "sim" => Ok(Self::Sim),
            "cluster" => Ok(Self::Cluster),
            "mpi" => Ok(Self::Mpi),
            _ => Err(refuse(format!(
                "the run was carried out in the world `{name}`, which this program does not know: give --local, --sim \
                 or --keys"
            ))),
        }
    }

    /// Returns true if this program has this world.
    const fn is_built(self) -> bool {
        cfg!(feature = "mpi") || !matches!(self, Self::Mpi)
    }

    /// Does something with this world.
    fn with(
        self,
        output: &OutputOptions,
        options: WorldOptions,
        work: impl FnOnce(&dyn World) -> Result<ExitCode>,
    ) -> Result<ExitCode> {
        let pacing = options.pacing;
        #[cfg(feature = "mpi")]
        if self != Self::Mpi && options.job.any() {
            return Err(refuse("--mpi-nodes and --mpi-interface are about the ranks of --mpi"));
        }
        match self {
            Self::Sim if output.events.is_some() => Err(refuse(
                "--events tells what happens while it happens, by the clock of this host; with --sim time is virtual \
                 and over in a moment: leave --events out, the logs and the report have all",
            )),
            Self::Sim => work(&Simulated),
            Self::Local => work(&Local { pacing }),
            Self::Cluster => work(&Agents { options: options.agents }),
            #[cfg(feature = "mpi")]
            Self::Mpi => itg_run::mpi::run(pacing, options.job, work),
            #[cfg(not(feature = "mpi"))]
            Self::Mpi => Err(refuse(
                "the run was carried out under MPI, and this program was built without the feature `mpi`: give \
                 --local, --sim or --keys",
            )),
        }
    }
}

impl RunArgs {
    /// Runs the experiment in the world that these arguments name.
    pub(crate) fn run(self, words: WordArgs) -> Result<ExitCode> {
        let way = self.world.named().unwrap_or(Way::Cluster);
        let (output, pacing) = (self.options.output.clone(), self.options.pacing);
        let request = RunRequest { load: self.load, options: self.options };
        let options = WorldOptions {
            pacing,
            agents: self.agents,
            #[cfg(feature = "mpi")]
            job: self.job,
        };
        way.with(&output, options, |world| run(world, &request, words))
    }
}

/// Arguments of `replay`. Those that are not given are those of the original run, all but keys and destinations.
///
/// Same plan or nothing: a manifest whose experiment gives another plan is refused. What differs between then and now
/// (version, host, kernel, options) is told on stderr; stdout gets a judgement a line: `equal`, `different` or `not
/// known`. Exit code 1 when the two runs are not equal within intervals.
#[derive(Debug, Args)]
pub(crate) struct ReplayArgs {
    /// Directory of a run, or its manifest.json
    from: PathBuf,
    #[command(flatten)]
    world: WorldArgs,
    #[command(flatten)]
    output: OutputOptions,
    #[command(flatten)]
    pacing: PacingArgs,
    #[command(flatten)]
    agents: AgentsOptions,
    #[cfg(feature = "mpi")]
    #[command(flatten)]
    job: MpiOptions,
}

/// A command line of `replay` behind the options of the original run, which it replaces one by one.
#[derive(Debug, Parser)]
#[command(no_binary_name = true, args_override_self = true)]
struct ReplayLine {
    #[command(flatten)]
    args: ReplayArgs,
    #[command(flatten)]
    words: WordArgs,
}

impl ReplayArgs {
    /// Does the run again, in the world of the original unless these arguments name one.
    pub(crate) fn run(self, words: WordArgs) -> Result<ExitCode> {
        let original = Original::read(&self.from)?;
        let theirs = Way::of(original.world());
        let keys = self.agents.keys.as_ref();
        let named = self.world.named().or_else(|| keys.map(|_| Way::Cluster));
        let way = named.map_or(theirs, Ok)?;
        let complete = way != Way::Cluster || self.agents.keys.is_some();
        let args = match Way::of(original.world()) {
            Ok(theirs) if theirs == way && complete && way.is_built() => {
                self.over(original.options(), std::env::args())?
            }
            _ => self,
        };
        let options = WorldOptions {
            pacing: args.pacing,
            agents: args.agents,
            #[cfg(feature = "mpi")]
            job: args.job,
        };
        way.with(&args.output, options, |world| replay(world, &original, &args.output, words))
    }

    /// These arguments over the options of the original run.
    fn over(self, theirs: Vec<String>, line: impl Iterator<Item = String>) -> Result<Self> {
        let ours = line.skip_while(|word| word != "replay").skip(1);
        let parsed = ReplayLine::try_parse_from(carried_over(theirs)?.into_iter().chain(ours));
        let parsed = parsed.map_err(|error| {
            refuse(format!("the options of the original run do not fit those given here: {error}"))
        })?;
        Ok(parsed.args)
    }
}

/// Options of the original run, if all of them are such as manifests keep: about pacing, agents and ranks, without the
/// keys.
/// A manifest may come from a stranger, who is not to name files that are written here.
fn carried_over(words: Vec<String>) -> Result<Vec<String>> {
    let known = AgentsOptions::augment_args(PacingArgs::augment_args(Command::new("options")));
    #[cfg(feature = "mpi")]
    let known = MpiOptions::augment_args(known);
    let names: Vec<_> = known.get_arguments().filter_map(clap::Arg::get_long).collect();
    for word in &words {
        let name = word.strip_prefix("--").and_then(|word| word.split('=').next());
        if !name.is_some_and(|name| name != "keys" && names.contains(&name)) {
            return Err(refuse(format!(
                "the manifest has the option `{word}`, which no run leaves there: expected options about pacing, \
                 agents or ranks; --local, --sim and the like leave all of them out"
            )));
        }
    }
    Ok(words)
}
