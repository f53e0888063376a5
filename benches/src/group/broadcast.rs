//! `itg-bench broadcast`: the closed system of the thesis, in which process *r* mod *n* casts in round
//! *r* and all deliver, over three transports; clients and servers; open load; and the bars of our own.

use anyhow::{Context as _, Result};
use clap::Args;
use itg_cli::print;
use itg_report::{Curve, Plot};
use itg_trials::Lines;

use super::common::{BenchArgs, claim, draw, say, us, wanted};
use super::processes::{ALGORITHMS, Group, configuration, in_process};
use super::{clients, crash, open, raw, storage};
use itg_run::load::LoadEvent;
use itg_run::trace::TraceEvent;

/// Messages of one cast are so many times (n − 1).
const STEPS: [f64; 3] = [2.0, 3.0, 4.0];
const TRANSPORTS: [&str; 3] = ["in process", "unix", "tcp"];
/// Bytes of a message, as in the thesis.
const SIZE: usize = 100;

/// Tables 4 to 6 of the thesis: milliseconds a broadcast of 100 bytes with n = 2, 4, 6 processes (Pentium-class
/// hosts on an Ethernet), by transport and algorithm.
const THESIS: [(&str, [[f64; 3]; 3]); 3] = [
    ("Socket", [[6.0, 7.0, 12.0], [10.0, 13.0, 22.0], [14.0, 22.0, 36.0]]),
    ("RMI", [[16.0, 19.0, 31.0], [28.0, 44.0, 68.0], [44.0, 79.0, 105.0]]),
    ("CORBA", [[14.0, 17.0, 28.0], [25.0, 37.0, 60.0], [36.0, 69.0, 98.0]]),
];

/// Times of one closed system, in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    mean: u64,
    p50: u64,
    p99: u64,
}

/// Arguments of `broadcast`.
#[derive(Debug, Args)]
pub(crate) struct BroadcastArgs {
    #[command(flatten)]
    pub(super) common: BenchArgs,
    /// Broadcasts of each closed system; all other trials follow from it [default: 3000, with --quick 500]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(10..=1_000_000))]
    rounds: Option<u64>,
    /// Processes of the groups under an open load, separated by commas [default: 3,5,8, with --quick 3]
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(2..=32))]
    groups: Vec<u32>,
    /// These parts alone, separated by commas
    #[arg(long, value_name = "PART", value_delimiter = ',')]
    only: Vec<Part>,
}

/// A part of the measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Part {
    /// The closed system of the thesis, Tables 4 to 6
    Closed,
    /// The closed system by the size of messages
    Sizes,
    /// Clients and servers, cases A and B
    Clients,
    /// Delay under an open load
    Open,
    /// Closed loop and messages a second against the bars
    Bars,
    /// Cost of a crash of the coordinator
    Crash,
    /// Delay of the ordered log with synced journals beside none
    Storage,
}

pub(crate) fn run(args: &BroadcastArgs) -> Result<()> {
    args.common.prepare()?;
    let (common, only) = (&args.common, |part| wanted(&args.only, &part));
    let rounds = args.rounds.unwrap_or(if common.quick { 500 } else { 3000 });
    let usual = usize::try_from(10 * rounds).unwrap_or(usize::MAX);
    let raw = Raw::measure(usual.min(20_000))?;
    print(&format!(
        "Round-trips of {SIZE} bytes with plain sockets between two threads (median): on one core TCP {:.1} µs, \
         Unix {:.1} µs; on two cores TCP {:.1} µs, Unix {:.1} µs\n",
        us(raw.one[1]),
        us(raw.one[0]),
        us(raw.two[1]),
        us(raw.two[0])
    ))?;
    if only(Part::Closed) {
        closed(common, rounds, raw.two)?;
    }
    if only(Part::Sizes) {
        sizes(common, rounds)?;
    }
    if only(Part::Clients) {
        clients::run(common, (rounds / 2).max(10))?;
    }
    if only(Part::Open) {
        open::run(common, &args.groups, rounds)?;
    }
    if only(Part::Bars) {
        bars(rounds, &raw)?;
    }
    if only(Part::Crash) {
        crash::run((rounds / 200).max(1))?;
    }
    if only(Part::Storage) {
        storage::run(rounds, SIZE)?;
    }
    Ok(())
}

/// Round-trips over Unix and TCP sockets in nanoseconds, both ends on one core and on two.
#[derive(Clone, Copy, Debug)]
struct Raw {
    one: [u64; 2],
    two: [u64; 2],
}

impl Raw {
    fn measure(trips: usize) -> Result<Self> {
        let of = |cores| Ok([raw::unix(SIZE, trips, cores)?, raw::tcp(SIZE, trips, cores)?]);
        let (first, second) = raw::two_cores()?;
        let two: Result<_> = of((first, second));
        let one: Result<_> = of((first, first));
        Ok(Self { one: one?, two: two? })
    }
}

/// Compares the ordered log with the values required of it.
fn bars(rounds: u64, raw: &Raw) -> Result<()> {
    print("\nBars\n\n")?;
    let three = closed_system("tcp", 3, "log", rounds, SIZE)?;
    // All processes inherit where this thread may run.
    let core = raw::two_cores()?.0;
    let alone = raw::on_core(core, || closed_system("tcp", 3, "log", rounds, SIZE))??;
    for (cell, raw, cores) in [(three, raw.two[1], "all cores"), (alone, raw.one[1], "one core")] {
        let ratio = us(cell.p50) / us(raw);
        let what = format!(
            "ordered log, n = 3, TCP, closed loop, {cores}: p50 {:.1} µs (p99 {:.1} µs) to a raw round-trip of {:.1} \
             µs",
            us(cell.p50),
            us(cell.p99),
            us(raw)
        );
        claim(&what, ratio, "round-trips", ratio <= 6.0, "at most 6")?;
    }
    let messages = 300 * rounds;
    for (transport, bar) in [("in process", 1e6), ("unix", 1e5), ("tcp", 1e5)] {
        let (rate, of_processor) = flood(transport, 3, messages)?;
        let mut what =
            format!("ordered log, n = 3, {transport}: messages of {SIZE} bytes, batched");
        if let Some(rate) = of_processor {
            what += &format!(" ({rate:.0} a second of processor time)");
        }
        let asked = format!("at least {bar:.0}");
        claim(&what, rate, "messages/s", rate >= bar, &asked)?;
    }
    Ok(())
}

/// One closed system.
fn closed_system(
    transport: &str,
    n: u32,
    algorithm: &str,
    rounds: u64,
    size: usize,
) -> Result<Cell> {
    let layers =
        format!("\"{algorithm}\", {{ layer = \"rounds\", rounds = {rounds}, size = {size} }}");
    if transport == TRANSPORTS[0] {
        let (_, took) = in_process(&configuration("inproc", n, &layers, None))?;
        // Time stands still while one address space runs: the mean is all there is.
        let mean = took.ns / (rounds + 100);
        return Ok(Cell { mean, p50: mean, p99: mean });
    }
    let events = Group::start(&configuration(transport, n, &layers, None), n)?.finish()?;
    let (count, total) = result(&events).with_context(|| format!("{algorithm}: no result"))?;
    let times = events.iter().find_map(|(_, seen)| match seen.decode()? {
        LoadEvent::Times { p50, p99, .. } => Some((p50, p99)),
        LoadEvent::Result { .. } => None,
    });
    let (p50, p99) = times.with_context(|| format!("{algorithm}: no result times"))?;
    Ok(Cell { mean: total / count.max(1), p50, p99 })
}

/// Count and nanoseconds of the first result among these events.
fn result(events: &[(u32, TraceEvent)]) -> Option<(u64, u64)> {
    events.iter().find_map(|(_, seen)| match seen.decode()? {
        LoadEvent::Result { count, ns, .. } => Some((count, ns)),
        LoadEvent::Times { .. } => None,
    })
}

/// Messages a second when all processes cast as fast as they can, and a second of processor time when they
/// share a thread.
fn flood(transport: &str, n: u32, messages: u64) -> Result<(f64, Option<f64>)> {
    let layers = format!("\"log\", {{ layer = \"flood\", messages = {messages}, size = {SIZE} }}");
    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    let rate = |took: u64| messages as f64 * 1e9 / took.max(1) as f64;
    let took = if transport == TRANSPORTS[0] {
        let took = in_process(&configuration("inproc", n, &layers, None))?.1;
        return Ok((rate(took.ns), Some(rate(took.processor_ns))));
    } else {
        let events = Group::start(&configuration(transport, n, &layers, None), n)?.finish()?;
        result(&events).context("no result of the flood")?.1
    };
    Ok((rate(took), None))
}

/// Tables 4 to 6.
fn closed(args: &BenchArgs, rounds: u64, raw: [u64; 2]) -> Result<()> {
    print(&format!(
        "\nClosed system, {rounds} rounds, messages of {SIZE} bytes: µs a broadcast (p50 in brackets; \
         in process: mean alone)\n\n"
    ))?;
    let mut table =
        Lines::new(["n, transport", "Sequencer", "Skeen", "Chandra-Toueg", "CT/Seq.", "log"]);
    let sizes = [2_u32, 4, 6, 8];
    let mut cells = Vec::new();
    for n in sizes {
        for transport in TRANSPORTS {
            let mut row = vec![format!("{n}, {transport}")];
            let mut of = Vec::new();
            for algorithm in ALGORITHMS {
                let cell = closed_system(transport, n, algorithm, rounds, SIZE)?;
                of.push(us(cell.mean));
                row.push(if transport == TRANSPORTS[0] {
                    format!("{:.2}", us(cell.mean))
                } else {
                    format!("{:.1} ({:.1})", us(cell.mean), us(cell.p50))
                });
            }
            row.insert(4, format!("{:.2}", of[2] / of[0]));
            table.row(row);
            cells.push(of);
        }
    }
    print(&format!("{table}\n"))?;
    print("\nThe thesis (Tables 4 to 6, hosts of its time): ms a broadcast\n\n")?;
    let mut table = Lines::new(["n, transport", "Sequencer", "Skeen", "Chandra-Toueg", "CT/Seq."]);
    for (at, n) in sizes.iter().enumerate().take(3) {
        for (transport, values) in THESIS {
            let [sequencer, skeen, ct] = values[at];
            let cells = [sequencer, skeen, ct].map(|ms| format!("{ms:.0}"));
            let ratio = format!("{:.2}", ct / sequencer);
            let row = std::iter::once(format!("{n}, {transport}")).chain(cells).chain([ratio]);
            table.row(row);
        }
    }
    print(&format!("{table}\n"))?;
    shapes(&cells)?;
    estimates(&cells, raw)?;
    let mut lines = Vec::new();
    for (at, algorithm) in ALGORITHMS.iter().enumerate() {
        for (which, transport) in TRANSPORTS.iter().enumerate().skip(1) {
            let points = (0..sizes.len()).map(|n| (f64::from(sizes[n]), cells[3 * n + which][at]));
            let name = format!("{algorithm}, {transport}");
            lines.push(Curve { name, points: points.collect() });
        }
    }
    let plot = Plot {
        title: "Ordered broadcast, closed system, 100 bytes".to_owned(),
        x: "processes".to_owned(),
        y: "µs a broadcast".to_owned(),
        lines,
        ..Plot::default()
    };
    draw(args, "broadcast-closed", &plot)
}

/// The thesis's estimate T = s (n − 1) T_tx + T_overhead from half a raw round-trip, the overhead being half
/// the time of two processes (its method 2).
fn estimates(cells: &[Vec<f64>], raw: [u64; 2]) -> Result<()> {
    let mut parts = Vec::new();
    for (which, raw) in raw.into_iter().enumerate() {
        let half = us(raw) / 2.0;
        for (at, steps) in STEPS.iter().enumerate() {
            for (row, n) in [(1, 4.0), (2, 6.0), (3, 8.0)] {
                let overhead = cells[1 + which][at] / 2.0;
                let estimate = steps * (n - 1.0) * half + overhead;
                parts.push(cells[3 * row + 1 + which][at] / estimate);
            }
        }
    }
    let (least, most) = parts.iter().fold((f64::MAX, 0.0_f64), |(a, b), x| (a.min(*x), b.max(*x)));
    say(
        least >= 1.0 / 1.5 && most <= 1.5,
        &format!(
            "the thesis's formula (method 2) is within a factor of 1.5, n = 4, 6, 8: measured/estimated {least:.2} \
             to {most:.2}"
        ),
    )
}

/// The shapes of the thesis's tables.
fn shapes(cells: &[Vec<f64>]) -> Result<()> {
    let sockets: Vec<_> = cells.iter().enumerate().filter(|(at, _)| at % 3 > 0).collect();
    let ordered = sockets.iter().filter(|(_, of)| of[0] < of[1] && of[1] < of[2]).count();
    let ratios = sockets.iter().filter(|(_, of)| (1.9..=2.8).contains(&(of[2] / of[0]))).count();
    let rows = cells.len() / 3;
    let by_transport = (0..rows)
        .flat_map(|n| (0..3).map(move |at| (3 * n, at)))
        .filter(|(n, at)| {
            cells[*n][*at] < cells[n + 1][*at] && cells[n + 1][*at] < cells[n + 2][*at]
        })
        .count();
    let fits = (0..3).map(|at| {
        let n = [2.0, 4.0, 6.0, 8.0].into_iter();
        let points: Vec<_> = n.zip(cells.iter().skip(2).step_by(3).map(|of| of[at])).collect();
        linear(&points)
    });
    let fit = fits.fold(1.0, f64::min);
    let (over, all) = (sockets.len(), 3 * rows);
    print("\n")?;
    for (count, of, what) in [
        (ordered, over, "Sequencer < Skeen < Chandra-Toueg, in each cell over sockets"),
        (ratios, over, "Chandra-Toueg/Sequencer within 1.9 to 2.8, in each cell over sockets"),
        (by_transport, all, "in process < Unix < TCP, for each algorithm and n"),
    ] {
        say(count == of, &format!("{what}: in {count} of {of}"))?;
    }
    say(fit >= 0.95, &format!("time linear in n over TCP, R² >= 0.95: at least {fit:.3}"))
}

/// R² of the straight line through these points.
fn linear(points: &[(f64, f64)]) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a handful of points")]
    let count = points.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (x, y) = (mean(|point| point.0), mean(|point| point.1));
    let sum = |of: &dyn Fn(f64, f64) -> f64| -> f64 {
        points.iter().map(|point| of(point.0 - x, point.1 - y)).sum()
    };
    let (xx, yy, xy) = (sum(&|x, _| x * x), sum(&|_, y| y * y), sum(&|x, y| x * y));
    if xx * yy > 0.0 { xy * xy / (xx * yy) } else { 0.0 }
}

/// Time against the size of messages.
fn sizes(args: &BenchArgs, rounds: u64) -> Result<()> {
    print("\nBy the size of messages, n = 4, TCP: µs a broadcast\n\n")?;
    let mut table = Lines::new(["bytes", "Sequencer", "Skeen", "Chandra-Toueg", "log"]);
    let mut lines: Vec<Curve> = ALGORITHMS
        .iter()
        .map(|name| Curve { name: (*name).to_owned(), points: Vec::new() })
        .collect();
    for size in [8_u32, 100, 1000, 10_000] {
        let mut row = vec![size.to_string()];
        for (algorithm, line) in ALGORITHMS.iter().zip(&mut lines) {
            let cell = closed_system("tcp", 4, algorithm, (rounds / 3).max(10), size as usize)?;
            line.points.push((f64::from(size), us(cell.mean)));
            row.push(format!("{:.1}", us(cell.mean)));
        }
        table.row(row);
    }
    print(&format!("{table}\n"))?;
    let plot = Plot {
        title: "Ordered broadcast by the size of messages, n = 4, TCP".to_owned(),
        x: "bytes".to_owned(),
        x_log: true,
        y: "µs a broadcast".to_owned(),
        lines,
    };
    draw(args, "broadcast-sizes", &plot)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_fits_itself_and_noise_does_not() {
        let line = [(2.0, 5.0), (4.0, 9.0), (6.0, 13.0), (8.0, 17.0)];
        assert!((linear(&line) - 1.0).abs() < 1e-12);
        let bent = [(2.0, 5.0), (4.0, 30.0), (6.0, 2.0), (8.0, 17.0)];
        assert!(linear(&bent) < 0.1, "{}", linear(&bent));
        assert!(linear(&[(1.0, 2.0), (3.0, 2.0)]).abs() < 1e-12, "no variation to explain");
    }
}
