//! The command line.

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;
use std::sync::LazyLock;

use clap::builder::PossibleValue;
use clap::{Parser, Subcommand, ValueEnum};
use itg_cli::WordArgs;
use itg_core::flow::{Meter, Proto};
use itg_core::units::{format_duration_ns, parse_duration_ns};
use itg_files::ditg::Asked;
use itg_stats::filter::Filter;
use itg_stats::report::GroupBy;

use crate::compare::CompareArgs;
use crate::format::Format;
use crate::outputs::OutputArgs;

/// Decode logs of ITG into delay, jitter, loss and throughput.
///
/// Logs of a sender and of a receiver given together are joined on run and flow: the receiver's
/// figures then know what was sent, how late and how faithfully. Data goes to stdout (or FILE),
/// words go to stderr. A damaged log is decoded as far as it is good; the damage is listed, and the
/// exit code is 1. A log that is not closed (still being written, or its writer was killed) is decoded
/// up to where it ends, with a note. Compacted logs and logs of D-ITG are read like others.
///
/// Exit codes: 0 done, 1 a log is damaged or cannot be read, 2 the request makes no sense, 98 a gate
/// on the fidelity failed, 99 another gate failed.
#[derive(Debug, Parser)]
#[command(
    name = "itg-decode",
    version,
    long_version = itg_cli::version!("parquet"),
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true
)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    /// Log files.
    #[arg(required = true, value_name = "LOG")]
    pub(crate) logs: Vec<PathBuf>,
    /// Output format.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
    /// Add figures over time in windows of this length, with a unit (100ms, 1s).
    #[arg(long, value_name = "T", value_parser = interval)]
    pub(crate) interval: Option<Interval>,
    /// Print one line a packet instead of the summary.
    #[arg(long, conflicts_with = "interval")]
    pub(crate) packets: bool,
    /// Decode this flow only; may be given several times.
    #[arg(long = "flow", value_name = "N")]
    pub(crate) flows: Vec<u32>,
    /// Decode these flows only: comparisons (==, !=, <, <=, >, >=, ~ for "contains") of flow, name, proto,
    /// src, dst, profile, side and run, with &&, ||, ! and parentheses, such as 'proto == udp && flow < 5'.
    #[arg(long, value_name = "EXPR")]
    pub(crate) filter: Option<Filter>,
    /// Add the figures of all flows that have these in common: proto, src, dst (hosts, without ports),
    /// profile.
    #[arg(long, value_name = "KEYS", value_delimiter = ',', conflicts_with = "packets")]
    pub(crate) by: Vec<By>,
    /// What logs of D-ITG do not say: their transport, and whether their delays are one-way
    /// (owd) or of round trips (rtt: the log is that of their sender, unless its receiver's is given too).
    #[arg(long = "as", value_enum, value_name = "WHAT", value_delimiter = ',')]
    pub(crate) log_is: Vec<As>,
    /// Write to this file instead of stdout.
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Without the sender's log, compute the plan of so many packets of each flow again, for lateness and
    /// fidelity (1048576).
    #[arg(long, value_name = "N")]
    pub(crate) plan_packets: Option<u64>,
    /// Decode on this many threads; 0 takes one for each processor. The figures do not depend on it.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) threads: usize,
    #[command(flatten)]
    pub(crate) outputs: OutputArgs,
    #[command(flatten)]
    pub(crate) words: WordArgs,
}

/// Commands other than decoding.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Compare(CompareArgs),
}

/// Property of the flows of a log of D-ITG.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum As {
    Proto(Proto),
    Meter(Meter),
}

impl ValueEnum for As {
    fn value_variants<'a>() -> &'a [Self] {
        static ALL: LazyLock<Vec<As>> = LazyLock::new(|| {
            let meters = [Meter::Owd, Meter::Rtt].map(As::Meter);
            Proto::ALL.map(As::Proto).into_iter().chain(meters).collect()
        });
        &ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(match self {
            Self::Proto(proto) => PossibleValue::new(proto.name()),
            Self::Meter(Meter::Owd) => PossibleValue::new("owd").help("One-way delays"),
            Self::Meter(Meter::Rtt) => PossibleValue::new("rtt").help("Round trips"),
        })
    }
}

impl As {
    pub(crate) const fn proto(self) -> Option<Proto> {
        match self {
            Self::Proto(proto) => Some(proto),
            Self::Meter(_) => None,
        }
    }

    pub(crate) const fn meter(self) -> Option<Meter> {
        match self {
            Self::Meter(meter) => Some(meter),
            Self::Proto(_) => None,
        }
    }
}

/// Property to group flows by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum By {
    /// Transport protocol.
    Proto,
    /// Source address, without the port.
    Src,
    /// Destination address, without the port.
    Dst,
    /// Application profile.
    Profile,
}

impl From<By> for GroupBy {
    fn from(by: By) -> Self {
        match by {
            By::Proto => Self::Proto,
            By::Src => Self::Src,
            By::Dst => Self::Dst,
            By::Profile => Self::Profile,
        }
    }
}

/// A length of time above 0, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Interval(pub(crate) u64);

fn interval(text: &str) -> Result<Interval, String> {
    match parse_duration_ns(text) {
        Ok(0) => Err("a window needs a length above 0, such as 100ms or 1s".to_owned()),
        Ok(ns) => Ok(Interval(ns)),
        Err(error) => Err(error.to_string()),
    }
}

impl Args {
    /// Facts that logs of D-ITG do not tell.
    pub(crate) fn asked(&self) -> Asked {
        Asked {
            proto: self.log_is.iter().find_map(|one| one.proto()),
            meter: self.log_is.iter().find_map(|one| one.meter()),
        }
    }

    pub(crate) fn options(&self) -> itg_stats::Options {
        itg_stats::Options {
            interval_ns: self.interval.map(|interval| interval.0),
            flows: self.flows.iter().copied().collect(),
            filter: self.filter.clone(),
            plan_packets: self.plan_packets,
            by: self.by.iter().map(|&by| by.into()).collect(),
            plots: self.outputs.plots(),
        }
    }
}

/// The settings in force, for the first line on stderr.
impl fmt::Display for Args {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let format = self.format.to_possible_value();
        write!(f, "format={}", format.as_ref().map_or("text", |value| value.get_name()))?;
        let interval = self.interval.map_or_else(|| "none".to_owned(), |i| format_duration_ns(i.0));
        write!(f, " interval={interval} packets={}", self.packets)?;
        let flows: BTreeSet<_> = self.flows.iter().map(u32::to_string).collect();
        let flows: Vec<_> = flows.into_iter().collect();
        let flows = if flows.is_empty() { "all".to_owned() } else { flows.join(",") };
        write!(f, " flows={flows}")?;
        if let Some(filter) = &self.filter {
            write!(f, " filter={filter:?}", filter = filter.to_string())?;
        }
        if !self.by.is_empty() {
            let by: Vec<_> = self.by.iter().map(|&by| GroupBy::from(by).name()).collect();
            write!(f, " by={}", by.join(","))?;
        }
        if !self.log_is.is_empty() {
            let names = self.log_is.iter().filter_map(As::to_possible_value);
            let names: Vec<_> = names.map(|value| value.get_name().to_owned()).collect();
            write!(f, " as={}", names.join(","))?;
        }
        f.write_str(" output=")?;
        match &self.output {
            Some(path) => write!(f, "{}", path.display())?,
            None => f.write_str("stdout")?,
        }
        for gate in &self.outputs.fail_if {
            write!(f, " fail-if=`{gate}`")?;
        }
        for log in &self.logs {
            write!(f, " log={}", log.display())?;
        }
        Ok(())
    }
}
