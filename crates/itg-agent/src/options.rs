//! Options of a run over agents.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use anyhow::Result;
use clap::builder::PossibleValue;
use clap::{Args, ValueEnum};
use itg_control::{Failover, Orphan};
use itg_experiment::TimeSpan;

/// Options of a run over agents.
#[derive(Clone, Debug, Args)]
pub struct AgentsOptions {
    /// Over agents: directory of the cluster's keys
    #[arg(long, value_name = "DIR")]
    pub keys: Option<PathBuf>,
    /// Over agents: how many nodes must be there, `all` or a number; the flows of the others are moved
    #[arg(long, value_name = "all|N", default_value = "all", value_parser = require, requires = "keys")]
    pub require: Require,
    /// Over agents: what becomes of flows when this program is gone, or a node cannot reach the others
    #[arg(long, value_name = "WHAT", value_enum, default_value_t, requires = "keys")]
    pub orphan: OrphanArg,
    /// Over agents: time without this program after which all flows stop and logs are closed
    #[arg(long, value_name = "T", default_value = "1h", value_parser = orphan_after, requires = "keys")]
    pub orphan_after: TimeSpan,
    /// Over agents: what becomes of the flows of a node that is gone
    #[arg(long, value_name = "WHAT", value_enum, default_value_t, requires = "keys")]
    pub failover: FailoverArg,
    /// Over agents: how long a node may send without news from the others
    #[arg(long, value_name = "T", default_value = "2s", value_parser = lease, requires = "keys")]
    pub lease: TimeSpan,
}

impl Default for AgentsOptions {
    fn default() -> Self {
        Self {
            keys: None,
            require: Require::All,
            orphan: OrphanArg::default(),
            orphan_after: TimeSpan(3_600_000_000_000),
            failover: FailoverArg::default(),
            lease: TimeSpan(2_000_000_000),
        }
    }
}

impl AgentsOptions {
    /// The options that decide how a run is carried out, all but the keys, as words of a command line.
    #[must_use]
    pub fn words(&self) -> Vec<String> {
        let require = match self.require {
            Require::All => "all".to_owned(),
            Require::AtLeast(number) => number.to_string(),
        };
        let name = |value: Option<PossibleValue>| {
            value.map(|value| value.get_name().to_owned()).unwrap_or_default()
        };
        vec![
            format!("--require={require}"),
            format!("--orphan={}", name(self.orphan.to_possible_value())),
            format!("--orphan-after={}ns", self.orphan_after.0),
            format!("--failover={}", name(self.failover.to_possible_value())),
            format!("--lease={}ns", self.lease.0),
        ]
    }
}

/// Number of nodes that must be there.
#[derive(Clone, Copy, Debug)]
pub enum Require {
    /// Every one.
    All,
    /// At least so many; others count as failed.
    AtLeast(usize),
}

/// Reads `all` or a number.
fn require(text: &str) -> Result<Require, String> {
    match text.parse() {
        _ if text == "all" => Ok(Require::All),
        Ok(0) | Err(_) => Err(format!("`{text}`: expected `all` or a number of nodes")),
        Ok(number) => Ok(Require::AtLeast(number)),
    }
}

/// The words for [`Orphan`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum OrphanArg {
    /// They stop: when this program is gone, or at the end of the lease
    Stop,
    /// They stand still while the others cannot be reached, a minute at most: then their nodes leave the run; this
    /// program is not missed
    #[default]
    Pause,
    /// They go on to their end; after a partition, two nodes may send the same flow
    Finish,
}

impl From<OrphanArg> for Orphan {
    fn from(arg: OrphanArg) -> Self {
        match arg {
            OrphanArg::Stop => Self::Stop,
            OrphanArg::Pause => Self::Pause,
            OrphanArg::Finish => Self::Finish,
        }
    }
}

/// The words for [`Failover`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum FailoverArg {
    /// Another node sends them on
    #[default]
    Move,
    /// They wait until the node is back
    Wait,
}

impl From<FailoverArg> for Failover {
    fn from(arg: FailoverArg) -> Self {
        match arg {
            FailoverArg::Move => Self::Move,
            FailoverArg::Wait => Self::Wait,
        }
    }
}

fn lease(text: &str) -> Result<TimeSpan, String> {
    within(text, 100_000_000..=60_000_000_000, "expected 100ms to 60s")
}

fn orphan_after(text: &str) -> Result<TimeSpan, String> {
    within(text, 1_000_000_000..=2_592_000_000_000_000, "expected 1s to 720h")
}

fn within(text: &str, range: RangeInclusive<u64>, expected: &str) -> Result<TimeSpan, String> {
    let time: TimeSpan =
        text.parse().map_err(|error: itg_experiment::ValueError| error.to_string())?;
    if range.contains(&time.0) { Ok(time) } else { Err(expected.to_owned()) }
}
