//! `itg-cluster bench`: group communication on this host, beside the figures of the papers.
//!
//! Real processes over Unix and TCP sockets (each is this program again, `itg-cluster process`), and stacks
//! in one address space; the raw transports are measured in the same run, so that ratios hold on any machine.

mod broadcast;
mod clients;
mod common;
mod contention;
mod crash;
mod group;
mod membership;
mod open;
mod phases;
mod raw;
mod table;

use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::Subcommand;
use itg_cli::print;

pub use self::broadcast::BroadcastArgs;
pub use self::membership::MembershipArgs;

/// Subject of the measurement.
#[derive(Debug, Subcommand)]
pub enum Bench {
    /// Ordered broadcast: the closed-system and client/server measurements of the thesis (Tables 4 to 6), delay
    /// under an open load, how many messages a second, and what a crash of the coordinator costs
    Broadcast(BroadcastArgs),
    /// Membership: how long a view change takes (Figures 4 to 8), in simulation and between processes
    Membership(MembershipArgs),
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

/// Description of the machine for the report, with the date.
fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let model = model.map_or("unknown processor", |(_, model)| model.trim());
    let today = jiff::Timestamp::now().strftime("%Y-%m-%d");
    format!("{cores} cores, {model}, {}, {today}", itg_socket::host::os())
}
