//! Our generator beside D-ITG, mgen, iperf3, sockperf and raw loops, in turns, as the kernel saw them.
//!
//! Rates are those of the kernel's counters in network namespaces without other traffic,
//! inter-departure times those of the kernel's stamps of departing packets (AF_PACKET); the reports
//! of the programs are not used. Sender and receiver have a processor each where there are two.

mod bars;
mod flows;
mod gaps;
mod observer;
mod rates;
mod raw;
mod tools;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::{Args, ValueEnum};
use itg_cli::say;

use self::bars::Book;
use self::observer::CounterSeries;
pub(crate) use self::raw::{RawArgs, run as raw};
use self::tools::{Load, Stage, Tool};
use crate::link::{Link, RECEIVER};
use crate::programs::{Location, Programs, memory};
use crate::{machine, print};

/// Table of results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Table {
    /// One flow, as fast as can be, each packet by itself
    Rates,
    /// The same in bursts that the kernel cuts and joins
    Bursts,
    /// Accuracy of inter-departure times
    Gaps,
    /// 10 000 flows, and 64 against one
    Flows,
    /// TCP in bulk
    Tcp,
}

/// Interface between sender and receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Over {
    /// Loopback
    Lo,
    /// A pair of virtual interfaces between two namespaces
    Veth,
}

/// Options of `peers`.
#[derive(Debug, Args)]
pub(crate) struct PeersArgs {
    /// These tables only
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Table>,
    /// Over these interfaces only
    #[arg(long, value_enum, value_delimiter = ',')]
    over: Vec<Over>,
    /// Payload bytes of packets, for rates and bursts
    #[arg(long, value_delimiter = ',', default_value = "64,512,1472")]
    sizes: Vec<usize>,
    /// Packets a second, for inter-departure times
    #[arg(long, value_delimiter = ',', default_value = "100,1000,10000,100000")]
    rates: Vec<u32>,
    /// Distributions of inter-departure times: constant, exponential, pareto, uniform
    #[arg(long, value_delimiter = ',', default_value = "constant,exponential,pareto,uniform")]
    laws: Vec<String>,
    /// Trials of each setting
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// Length of a trial in seconds
    #[arg(long)]
    seconds: Option<u64>,
    /// A look: three trials of one size over loopback, inter-departure times at two rates
    #[arg(long)]
    quick: bool,
    /// Write the figures to this file as JSON
    #[arg(long)]
    json: Option<PathBuf>,
}

impl PeersArgs {
    fn wants(&self, table: Table) -> bool {
        self.only.is_empty() || self.only.contains(&table)
    }

    fn runs(&self) -> usize {
        if self.quick { self.runs.min(3) } else { self.runs.max(1) }
    }

    fn sizes(&self) -> Vec<usize> {
        if self.quick { self.sizes.iter().copied().take(1).collect() } else { self.sizes.clone() }
    }

    fn seconds(&self, usual: u64) -> u64 {
        self.seconds.unwrap_or(if self.quick { 1 } else { usual }).max(1)
    }

    fn over(&self, over: Over) -> bool {
        (self.over.is_empty() || self.over.contains(&over)) && !(self.quick && over == Over::Veth)
    }
}

pub(crate) fn run(args: &PeersArgs) -> Result<()> {
    let programs = Programs::find()?;
    let laws = gaps::laws(&args.laws)?;
    let mut book = Book::new(machine::describe());
    // Each namespace is deleted at the end of this function.
    let mut links = Vec::new();
    let mut stages = Vec::new();
    let mut stage = |name, link: Result<Link>, address, stages: &mut Vec<Stage>| match link {
        Ok(link) => {
            let (sender, receiver) = link.places();
            links.push(link);
            stages.push(Stage { name, sender, receiver, address, programs: programs.clone() });
        }
        Err(why) => print(format_args!("NOT MEASURED: {name}: {why:#}")),
    };
    // Inter-departure times, flows and TCP are measured over loopback.
    stage("lo", Link::loopback(), "127.0.0.1", &mut stages);
    if args.over(Over::Veth) && (args.wants(Table::Rates) || args.wants(Table::Bursts)) {
        stage("veth", Link::new(), RECEIVER, &mut stages);
    }
    if stages.is_empty() {
        print("on this host's own loopback interface: what others send counts as well");
        let here = || Location::Here;
        let (sender, receiver) = (here(), here());
        stages.push(Stage { name: "lo", sender, receiver, address: "127.0.0.1", programs });
    }
    for stage in &stages {
        let over = if stage.name == "lo" { Over::Lo } else { Over::Veth };
        if args.over(over) {
            for (table, bursts) in [(Table::Rates, false), (Table::Bursts, true)] {
                if args.wants(table) {
                    rates::run(args, stage, bursts, &mut book)?;
                }
            }
        }
    }
    let lo = stages.first().context("a place to measure")?;
    if args.wants(Table::Gaps) {
        gaps::run(args, lo, &laws, &mut book)?;
    }
    if args.wants(Table::Flows) {
        flows::run(args, lo, &mut book)?;
    }
    if args.wants(Table::Tcp) {
        rates::tcp(args, lo, &mut book)?;
    }
    book.finish(args.json.as_deref())
}

/// Of these tools those that are here; says which are not.
fn present(tools: &[Tool]) -> Vec<Tool> {
    let mut here = Vec::new();
    for &tool in tools {
        match tool.missing() {
            None => here.push(tool),
            Some(package) => {
                let name = tool.name();
                print(format_args!("NOT MEASURED: {name}: apt-get install {package}"));
            }
        }
    }
    here
}

/// Counters of the receiver during a trial, and the logs of the trial.
struct Ran {
    course: CounterSeries,
    logs: tempfile::TempDir,
}

/// One trial, under the eyes of the receiver's counters.
fn trial(tool: Tool, load: &Load, stage: &Stage) -> Result<Ran> {
    let logs = tempfile::Builder::new().prefix("itg-bench-").tempdir_in(memory())?;
    let ready = tools::ready(tool, load, stage, logs.path())?;
    let observer = observer::counters(&stage.receiver)?;
    let sent = ready.send(load, stage);
    // What is in a socket's buffer is still read.
    std::thread::sleep(Duration::from_millis(20));
    let course = observer.stop()?;
    sent.with_context(|| format!("{} over {}", tool.name(), stage.name))?;
    ready.end()?;
    Ok(Ran { course, logs })
}

/// Tells on stderr what is measured now.
fn progress(what: &str, round: usize, rounds: usize) {
    say(format_args!("itg-bench: {what}, round {} of {rounds}", round + 1));
}
