//! Power of the verdict on fidelity: how often sound traffic is not passed, and planted distortions are.
//!
//! Made packets, no programs: each cell of a table is so many seeds of one flow, judged as a log would be.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context as _, Result};
use clap::Args;
use itg_core::distribution::{Distribution, Unit};
use itg_core::flow::FlowSpec;
use itg_core::profile::{Profile, builtin_names};
use itg_fidelity::{Asked, Departures, Distributions, Verdict};
use itg_testkit::distortions::{Distortion, made};
use itg_trials::{Lines, print, share};

/// Packets of the flows of a table.
const LENGTHS: [u64; 6] = [10, 100, 1_000, 10_000, 100_000, 1_000_000];
/// Most seeds of a cell.
const SEEDS: u64 = 10_000;

/// Options of `fidelity`.
#[derive(Debug, Args)]
pub(crate) struct FidelityArgs {
    /// Packets that are judged for each cell: fewer seeds of longer flows
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    packets: u64,
    /// Share of the mean inter-departure time that distortions amount to
    #[arg(long, value_name = "SHARE", default_value_t = 0.1)]
    share: f64,
    /// Write the tables into this file, too
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// A flow of the tables, without its length.
struct Subject {
    name: String,
    spec: FlowSpec,
}

/// A count of flows that did not pass, of all that were judged.
#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    seeds: u64,
    not_passed: u64,
}

impl Cell {
    /// Share that did not pass, with its interval of 95 % (Wilson) in percent.
    fn text(self) -> String {
        if self.seeds == 0 {
            return "–".to_owned();
        }
        share(self.not_passed, self.seeds)
    }
}

pub(crate) fn run(args: &FidelityArgs) -> Result<()> {
    let mut page = String::new();
    let rates: [u64; 6] = [10, 100, 1_000, 10_000, 100_000, 1_000_000];
    writeln!(
        page,
        "Sound traffic, jitter 1 % of the mean inter-departure time: flows not passed in percent.\n"
    )?;
    let mut subjects = Vec::new();
    for rate in rates {
        subjects.extend(distributions(rate)?);
    }
    subjects.extend(profiles()?);
    page.push_str(&table(&subjects, &[Distortion::None], args)?);
    writeln!(
        page,
        "\nDistortions of {} of the mean inter-departure time, 1000 packets/s: flows not passed in percent.\n",
        args.share
    )?;
    let mut subjects = distributions(1_000)?;
    subjects.extend(profiles()?);
    page.push_str(&table(&subjects, &Distortion::PLANTED, args)?);
    print(&page);
    if let Some(path) = &args.out {
        std::fs::write(path, &page).with_context(|| path.display().to_string())?;
    }
    Ok(())
}

/// Each distribution with this mean rate, or, where it has no mean, this median.
fn distributions(rate: u64) -> Result<Vec<Subject>> {
    let mean = 1e9 / rate as f64;
    let at = |share: f64| format!("{:.0}ns", share * mean);
    let list = [
        format!("constant({})", at(1.0)),
        format!("uniform({},{})", at(0.5), at(1.5)),
        format!("exp({})", at(1.0)),
        format!("normal({},{})", at(1.0), at(0.2)),
        format!("lognormal({},0.6)", at(0.835)),
        format!("pareto(2.5,{})", at(0.6)),
        format!("cauchy({},{})", at(1.0), at(0.1)),
        format!("student({},{},3)", at(1.0), at(0.2)),
        format!("gamma(2,{})", at(0.5)),
        format!("weibull(1.5,{})", at(1.108)),
        format!("poisson({},{})", at(1.0), at(0.1)),
        format!("discrete({}:1,{}:2,{}:1)", at(0.5), at(1.0), at(1.5)),
        format!("mix(1:constant({}),1:exp({}))", at(1.0), at(1.0)),
        format!("trunc(exp({}),{},{})", at(1.0), at(0.1), at(4.0)),
    ];
    list.into_iter()
        .map(|idt| {
            let spec = FlowSpec::new(1)
                .idt(Distribution::parse(&idt, Unit::Time)?)
                .size(Distribution::parse("uniform(100,1400)", Unit::Size)?);
            Ok(Subject { name: idt, spec })
        })
        .collect()
}

fn profiles() -> Result<Vec<Subject>> {
    builtin_names()
        .map(|name| {
            let Profile { idt, size, on_off, .. } = Profile::from_spec(name)?;
            let spec = FlowSpec::new(1).idt(idt).size(size).on_off(on_off);
            Ok(Subject { name: name.to_owned(), spec })
        })
        .collect()
}

/// A row for each flow and distortion, a column for each length.
fn table(subjects: &[Subject], distortions: &[Distortion], args: &FidelityArgs) -> Result<String> {
    let rows: Vec<_> =
        subjects.iter().flat_map(|s| distortions.iter().map(move |d| (s, *d))).collect();
    let cells: Vec<_> = rows.iter().flat_map(|row| LENGTHS.map(|length| (*row, length))).collect();
    let results = Mutex::new(vec![Cell::default(); cells.len()]);
    let next = AtomicUsize::new(0);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| -> Result<()> {
        let worker = || -> Result<()> {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let Some(&((subject, distortion), length)) = cells.get(number) else {
                    return Ok(());
                };
                let cell = judged(subject, distortion, length, args)?;
                if let Ok(mut results) = results.lock() {
                    results[number] = cell;
                }
            }
        };
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().try_for_each(|worker| {
            worker.join().map_err(|_| anyhow::anyhow!("a thread stopped on a bug"))?
        })
    })?;
    let results = results.into_inner().unwrap_or_default();
    let header = ["flow", "distortion"].map(str::to_owned).into_iter();
    let mut lines = Lines::new(header.chain(LENGTHS.map(|length| format!("{length} packets"))));
    for ((subject, distortion), cells) in rows.iter().zip(results.chunks(LENGTHS.len())) {
        let names = [subject.name.clone(), format!("{distortion:?}")];
        lines.row(names.into_iter().chain(cells.iter().map(|cell| cell.text())));
    }
    Ok(format!("{lines}\n"))
}

fn judged(
    subject: &Subject,
    distortion: Distortion,
    length: u64,
    args: &FidelityArgs,
) -> Result<Cell> {
    let spec = subject.spec.clone().packets(length);
    let distributions = Distributions::new(&spec, 1)?;
    let mut cell = Cell::default();
    for seed in 0..(args.packets / length).clamp(1, SEEDS) {
        let Some(packets) = made(&spec, seed, distortion, args.share) else { break };
        let mut departures = Departures::default();
        let planned: Vec<_> = packets.iter().map(|packet| packet.planned_ns).collect();
        let sent: Vec<_> = packets.iter().map(|packet| packet.sent_ns).collect();
        departures.add_in_order(0, &planned, &sent, Some(0));
        for packet in &packets {
            departures.count(packet.size);
            departures.add_size(packet.size, packet.planned_size);
        }
        let asked = Asked { distributions: Some(&distributions), ..Asked::default() };
        cell.seeds += 1;
        cell.not_passed += u64::from(departures.judge(&asked).verdict != Verdict::Pass);
    }
    Ok(cell)
}
