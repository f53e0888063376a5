//! Options of a run: a program makes them of its command line, or by hand.

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::{Args, ValueEnum};
use itg_cli::{Gates, LoadArgs, Loaded, PacingArgs, WordArgs};
use itg_stats::gate::Gate;

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
    /// Gates, and the form of the report.
    #[command(flatten)]
    pub gates: GateOptions,
}

/// Gates of a command line, and the form in which the report is printed.
#[derive(Clone, Debug, Default, Args)]
pub struct GateOptions {
    /// Fail with exit code 99 (98: fidelity only) when this holds, besides the gates of the file: `delay.p99 > 20ms`,
    /// `total.loss > 0.1%`, `fidelity != pass`; may be given several times
    #[arg(long, value_name = "GATE")]
    pub fail_if: Vec<Gate>,
    /// A gate whose figure is not known does not fail
    #[arg(long)]
    pub allow_unknown: bool,
    /// Also write what the gates said as JUnit XML; without gates one test a flow: its fidelity (not with sweeps)
    #[arg(long, value_name = "FILE")]
    pub junit: Option<PathBuf>,
    /// Form of the report on stdout
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t)]
    pub format: ReportFormat,
}

/// Form of the report on stdout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ReportFormat {
    /// A table of the flows, and what a reader has to know beside it; with -v all details
    #[default]
    Text,
    /// One JSON object
    Json,
    /// A table in Markdown with what the gates found, for the summaries of CI systems
    Markdown,
}

impl GateOptions {
    /// The gates of an experiment and those of the command line.
    ///
    /// # Errors
    /// A text in the experiment that is no gate.
    pub(crate) fn with(&self, loaded: &Loaded) -> Result<Gates> {
        let mut gates = Gates { list: Vec::new(), allow_unknown: self.allow_unknown };
        gates.add(&loaded.experiment, &loaded.origin)?;
        gates.list.extend(self.fail_if.iter().cloned());
        Ok(gates)
    }

    /// Those of the command line as a setting of the manifest; none without any.
    pub(crate) fn setting(&self) -> Option<String> {
        let none = self.fail_if.is_empty() && !self.allow_unknown;
        let texts: Vec<_> = self.fail_if.iter().map(ToString::to_string).collect();
        let setting =
            || serde_json::json!({ "fail_if": texts, "allow_unknown": self.allow_unknown });
        (!none).then(|| setting().to_string())
    }

    /// Those of a manifest, as [`GateOptions::setting`] wrote them.
    ///
    /// # Errors
    /// A setting that is none.
    pub(crate) fn read(setting: &str) -> Result<Self> {
        #[derive(serde::Deserialize)]
        struct Kept {
            fail_if: Vec<String>,
            allow_unknown: bool,
        }
        if setting.is_empty() {
            return Ok(Self::default());
        }
        let Kept { fail_if, allow_unknown } = serde_json::from_str(setting)?;
        let fail_if = fail_if.iter().map(|text| Gate::parse(text)).collect::<Result<_, _>>()?;
        Ok(Self { fail_if, allow_unknown, ..Self::default() })
    }
}

/// Destinations of the results of a run.
#[derive(Clone, Debug, Default, Args)]
pub struct OutputOptions {
    /// New directory for logs, report and manifest [default: itg-out/NAME-DATE-TIME, with a number where that is taken]
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
    /// Sweeps: how often a run whose traffic failed (verdict `fail`) is repeated, with the same seed; what failed is kept
    /// beside it. A simulated one is not repeated: it would be the same [default: 2]
    #[arg(long, value_name = "N")]
    pub repeat_failed: Option<u32>,
    /// Sweeps: runs whose traffic failed are in the means, too
    #[arg(long)]
    pub with_failed: bool,
}

impl SweepOptions {
    /// Returns true if one of these options is given.
    pub(crate) const fn any(self) -> bool {
        let asked = self.resume || self.accept_change || self.in_order;
        asked || self.repeat_failed.is_some() || self.with_failed
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
        let live = !self.no_live && !words.quiet && itg_cli::drawing_columns().is_some();
        let print = self.events.as_deref() != Some(Path::new("-"));
        let events = Events::to(self.events.as_deref(), resume)?;
        let gates = GateOptions::default();
        Ok(Output { dir: PathBuf::new(), print, events, live, gates })
    }

    /// Files that this program is told to write, which may be among the results.
    pub(crate) fn own_files(&self) -> Vec<PathBuf> {
        self.events.iter().filter(|path| path.as_os_str() != "-").cloned().collect()
    }

    /// The directory of the run, or of the sweep, of this name.
    pub(crate) fn directory(&self, name: &str, started: jiff::Timestamp) -> PathBuf {
        self.out.clone().unwrap_or_else(|| {
            let time = started.strftime("%Y%m%d-%H%M%S");
            let base = format!("{}-{time}", crate::directory::file_name(name));
            let mut path = Path::new("itg-out").join(&base);
            // Simulations are over within a second.
            for count in 1_u64.. {
                if !path.exists() {
                    break;
                }
                path.set_file_name(format!("{base}-{count}"));
            }
            path
        })
    }
}
