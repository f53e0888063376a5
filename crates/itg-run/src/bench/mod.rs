//! `itg-cluster bench`: group communication on this host, beside the figures of the papers.
//!
//! Real processes over Unix and TCP sockets (each is this program again, `itg-cluster process`), and stacks
//! in one address space; the raw transports are measured in the same run, so that ratios hold on any machine.

mod broadcast;
mod clients;
mod contention;
mod crash;
mod group;
mod membership;
mod open;
mod raw;
mod table;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::{Args, Subcommand};
use itg_cli::print;
use itg_report::Plot;

/// Subject of the measurement.
#[derive(Debug, Subcommand)]
pub enum Bench {
    /// Ordered broadcast: the closed-system and client/server measurements of the thesis (Tables 4 to 6), delay
    /// under an open load, how many messages a second, and what a crash of the coordinator costs
    Broadcast(BroadcastArgs),
    /// Membership: how long a view change takes (Figures 4 to 8), in simulation and between processes
    Membership(MembershipArgs),
}

/// Arguments of both.
#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    /// Fewer and shorter trials, for a first look
    #[arg(long)]
    quick: bool,
    /// Directory for the plots (SVG) [default: none are written]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Arguments of `broadcast`.
#[derive(Debug, Args)]
pub struct BroadcastArgs {
    #[command(flatten)]
    common: BenchArgs,
    /// Broadcasts of each closed system; all other trials follow from it [default: 3000, with --quick 500]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(10..=1_000_000))]
    rounds: Option<u64>,
    /// Processes of the groups under an open load, separated by commas [default: 3,5,8, with --quick 3]
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(2..=32))]
    groups: Vec<u32>,
    /// These parts alone, separated by commas
    #[arg(long, value_name = "PART", value_delimiter = ',')]
    only: Vec<broadcast::Part>,
}

/// Arguments of `membership`.
#[derive(Debug, Args)]
pub struct MembershipArgs {
    #[command(flatten)]
    common: BenchArgs,
    /// Processes that are killed, one after the other [default: 40, with --quick 5]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    trials: Option<u32>,
    /// Processes of which they are
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(4..=256))]
    processes: u32,
    /// These parts alone, separated by commas
    #[arg(long, value_name = "PART", value_delimiter = ',')]
    only: Vec<membership::Part>,
}

/// Measures and prints.
///
/// # Errors
/// A measurement fails.
pub fn run(bench: &Bench) -> Result<ExitCode> {
    let common = match bench {
        Bench::Broadcast(args) => &args.common,
        Bench::Membership(args) => &args.common,
    };
    if let Some(dir) = &common.out {
        std::fs::create_dir_all(dir).with_context(|| format!("directory {}", dir.display()))?;
    }
    print(&format!("{}\n", machine()))?;
    match bench {
        Bench::Broadcast(args) => broadcast::run(args)?,
        Bench::Membership(args) => membership::run(args)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes the plot `NAME.svg`, if plots are wanted.
fn draw(args: &BenchArgs, name: &str, plot: &Plot) -> Result<()> {
    let Some(dir) = &args.out else { return Ok(()) };
    let path = dir.join(format!("{name}.svg"));
    std::fs::write(&path, plot.svg()).with_context(|| format!("writing {}", path.display()))
}

/// Returns true if a part is wanted: all are when none is named.
fn wanted<P: PartialEq>(only: &[P], part: &P) -> bool {
    only.is_empty() || only.contains(part)
}

/// Description of the machine for the report, with the date.
fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let model = model.map_or("unknown processor", |(_, model)| model.trim());
    let today = jiff::Timestamp::now().strftime("%Y-%m-%d");
    format!("{cores} cores, {model}, {}, {today}", itg_socket::host::os())
}

/// `PASS` or `MISS`, with what was asked for.
fn verdict(what: &str, value: f64, unit: &str, good: bool, bar: &str) -> Result<()> {
    let word = if good { "PASS" } else { "MISS" };
    print(&format!("{word}  {what}: {value:.1} {unit} (asked: {bar})\n"))
}

/// Nanoseconds as microseconds.
#[expect(clippy::cast_precision_loss, reason = "for people")]
fn us(ns: u64) -> f64 {
    ns as f64 / 1000.0
}

/// The value at this part of 100 of some values.
fn percentile(values: &mut [u64], percent: usize) -> u64 {
    values.sort_unstable();
    let at = (values.len() * percent / 100).min(values.len().saturating_sub(1));
    values.get(at).copied().unwrap_or(0)
}
