//! Our generator beside D-ITG, mgen, iperf3, sockperf and raw loops, in turns, as the kernel saw them.
//!
//! Rates are those of the kernel's counters in network namespaces without other traffic,
//! inter-departure times those of the kernel's stamps of departing packets (AF_PACKET); the reports
//! of the programs are not used. Sender and receiver have a processor each where there are two.

mod bars;
mod crowd;
mod flows;
mod frames;
mod gaps;
mod noise;
mod options;
mod rates;
mod raw;
mod raw_frames;
mod shards;
mod tools;
mod trial;

use anyhow::{Context as _, Result};
use itg_trials::{describe, print};

use self::bars::Book;
pub(crate) use self::options::PeersArgs;
use self::options::{Over, Table};
pub(crate) use self::raw::{RawArgs, run as raw};
use self::tools::Stage;
use crate::link::{Link, RECEIVER};
use crate::programs::{Location, Programs};

pub(crate) fn run(args: &PeersArgs) -> Result<()> {
    let programs = Programs::find()?;
    let laws = gaps::laws(&args.laws)?;
    let mut book = Book::new(describe("itg-bench"));
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
    let over_veth = [Table::Rates, Table::Bursts, Table::Frames];
    if args.over(Over::Veth) && over_veth.into_iter().any(|table| args.wants(table)) {
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
        if over == Over::Veth && args.wants(Table::Frames) {
            frames::run(args, stage, &mut book)?;
        }
    }
    let lo = stages.first().context("a place to measure")?;
    if args.wants(Table::Gaps) {
        gaps::run(args, lo, &laws, &mut book)?;
    }
    if args.wants(Table::Flows) {
        flows::run(args, lo, &mut book)?;
    }
    if args.wants(Table::Noise) {
        noise::run(args, lo, &mut book)?;
    }
    if args.wants(Table::Shards) {
        shards::run(args, lo, &mut book)?;
    }
    if args.wants(Table::Crowd) {
        crowd::run(args, lo, &mut book)?;
    }
    if args.wants(Table::Tcp) {
        rates::tcp(args, lo, &mut book)?;
    }
    book.finish(args.json.as_deref())
}
