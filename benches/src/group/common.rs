//! Arguments, plots, claims and figures that the measurements share.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use clap::Args;
use itg_cli::print;
use itg_report::Plot;
use itg_trials::Claim;

/// Arguments of both.
#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    /// Fewer and shorter trials, for a first look
    #[arg(long)]
    pub(crate) quick: bool,
    /// Directory for the plots (SVG) [default: none are written]
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
}

impl BenchArgs {
    /// Makes the directory for the plots, if they are wanted.
    pub(crate) fn prepare(&self) -> Result<()> {
        let Some(dir) = &self.out else { return Ok(()) };
        std::fs::create_dir_all(dir).with_context(|| format!("directory {}", dir.display()))
    }
}

/// Writes the plot `NAME.svg`, if plots are wanted.
pub(crate) fn draw(args: &BenchArgs, name: &str, plot: &Plot) -> Result<()> {
    let Some(dir) = &args.out else { return Ok(()) };
    let path = dir.join(format!("{name}.svg"));
    std::fs::write(&path, plot.svg()).with_context(|| format!("writing {}", path.display()))
}

/// Returns true if a part is wanted: all are when none is named.
pub(crate) fn wanted<P: PartialEq>(only: &[P], part: &P) -> bool {
    only.is_empty() || only.contains(part)
}

/// Prints whether a value is what was asked for.
pub(crate) fn claim(what: &str, value: f64, unit: &str, holds: bool, bar: &str) -> Result<()> {
    say(holds, &format!("{what}: {value:.1} {unit} (asked: {bar})"))
}

/// Prints a claim.
pub(crate) fn say(holds: bool, what: &str) -> Result<()> {
    print(&format!("{}\n", Claim::new(holds, what)))
}

/// Nanoseconds as microseconds.
#[expect(clippy::cast_precision_loss, reason = "for people")]
pub(crate) fn us(ns: u64) -> f64 {
    ns as f64 / 1000.0
}

/// The value at this part of 100 of some values.
pub(crate) fn percentile(values: &mut [u64], percent: usize) -> u64 {
    values.sort_unstable();
    let at = (values.len() * percent / 100).min(values.len().saturating_sub(1));
    values.get(at).copied().unwrap_or(0)
}
