//! Options of a run: a program makes them of its command line, or by hand.

use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Args;
use itg_cli::{LoadArgs, PacingArgs, WordArgs};

use crate::events::Events;
use crate::world::Output;

/// Options of a run, whichever world carries it out.
#[derive(Clone, Debug, Default, Args)]
pub struct RunOptions {
    /// Destinations of the results.
    #[command(flatten)]
    pub output: OutputOptions,
    /// Options about pacing.
    #[command(flatten)]
    pub pacing: PacingArgs,
    /// Options about sweeps.
    #[command(flatten)]
    pub sweep: SweepOptions,
}

/// Destinations of the results of a run.
#[derive(Clone, Debug, Default, Args)]
pub struct OutputOptions {
    /// New directory for logs, report and manifest [default: itg-out/NAME-DATE-TIME]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Events as they happen: one JSON object a line to this file; `-`: to stdout, instead of the report
    #[arg(long, value_name = "FILE")]
    pub events: Option<PathBuf>,
    /// No live view, although stderr is a terminal
    #[arg(long)]
    pub no_live: bool,
}

/// Options that matter for files with `[matrix]` or `[sweep]`.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct SweepOptions {
    /// Sweeps: go on where the sweep in --out was interrupted
    #[arg(long, requires = "out")]
    pub resume: bool,
    /// Sweeps: go on although the file has changed; runs that it does not change are kept, others done again
    #[arg(long, requires = "resume")]
    pub accept_change: bool,
    /// Sweeps: the cases of each round in the order of the file, not in a random one
    #[arg(long)]
    pub in_order: bool,
}

impl SweepOptions {
    /// Returns true if one of these options is given.
    pub(crate) const fn any(self) -> bool {
        self.resume || self.accept_change || self.in_order
    }
}

/// Experiment to run, and options of the run.
#[derive(Clone, Debug)]
pub struct RunRequest {
    /// The experiment.
    pub load: LoadArgs,
    /// Options of the run.
    pub options: RunOptions,
}

impl OutputOptions {
    /// Opens the destinations of the results, but for the directory; `resume`: events go behind those that are there.
    pub(crate) fn open(&self, resume: bool, words: WordArgs) -> Result<Output> {
        let live = !self.no_live && !words.quiet && std::io::stderr().is_terminal();
        let print = self.events.as_deref() != Some(Path::new("-"));
        let events = Events::to(self.events.as_deref(), resume)?;
        Ok(Output { dir: PathBuf::new(), print, events, live })
    }

    /// Files that this program is told to write, which may be among the results.
    pub(crate) fn own_files(&self) -> Vec<PathBuf> {
        self.events.iter().filter(|path| path.as_os_str() != "-").cloned().collect()
    }

    /// The directory of the run, or of the sweep, of this name.
    pub(crate) fn directory(&self, name: &str, started: jiff::Timestamp) -> PathBuf {
        self.out.clone().unwrap_or_else(|| {
            let time = started.strftime("%Y%m%d-%H%M%S");
            Path::new("itg-out").join(format!("{}-{time}", crate::directory::file_name(name)))
        })
    }
}
