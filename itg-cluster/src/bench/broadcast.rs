//! `itg-cluster bench broadcast`: the closed system of the thesis, in which process *r* mod *n* casts in round
//! *r* and everybody delivers, over three transports; throughput; and the bars of our own.

use anyhow::{Context as _, Result};

use super::group::{Group, configuration, in_process};
use super::plot::{Line, Plot, Scale};
use super::table::Table;
use super::{BenchArgs, clients, crash, raw, us, verdict};
use crate::load::{RESULT, TIMES};
use crate::print;

/// The failure-free forms of the thesis, by the number of their steps, and the ordered log.
pub(crate) const ALGORITHMS: [&str; 4] = ["sequencer", "skeen", "chandra-toueg", "log"];
/// Messages of one cast are so many times (n − 1).
const STEPS: [f64; 3] = [2.0, 3.0, 4.0];
const TRANSPORTS: [&str; 3] = ["in process", "unix", "tcp"];
/// Bytes of a message, as in the thesis.
const SIZE: usize = 100;

/// Tables 4 to 6 of the thesis: milliseconds a broadcast of 100 bytes with n = 2, 4, 6 processes (Pentium-class
/// hosts on an Ethernet, 2002), by transport and algorithm.
const THESIS: [(&str, [[f64; 3]; 3]); 3] = [
    ("Socket", [[6.0, 7.0, 12.0], [10.0, 13.0, 22.0], [14.0, 22.0, 36.0]]),
    ("RMI", [[16.0, 19.0, 31.0], [28.0, 44.0, 68.0], [44.0, 79.0, 105.0]]),
    ("CORBA", [[14.0, 17.0, 28.0], [25.0, 37.0, 60.0], [36.0, 69.0, 98.0]]),
];

/// What one closed system gave, in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    mean: u64,
    p50: u64,
    p99: u64,
}

pub(crate) fn run(args: &BenchArgs) -> Result<()> {
    let rounds = if args.quick { 500 } else { 3000 };
    let trips = if args.quick { 5000 } else { 20_000 };
    let (tcp, unix) = (raw::tcp(SIZE, trips)?, raw::unix(SIZE, trips)?);
    print(&format!(
        "Round-trips of {SIZE} bytes with plain sockets between two threads (median): TCP {:.1} µs, \
         Unix {:.1} µs\n",
        us(tcp),
        us(unix)
    ))?;
    closed(args, rounds, [unix, tcp])?;
    sizes(args, rounds)?;
    clients::run(args)?;
    let three = closed_system("tcp", 3, "log", rounds, SIZE)?;
    // The transport may have become slower or faster meanwhile.
    let tcp = tcp.midpoint(raw::tcp(SIZE, trips)?);
    print("\nBars\n\n")?;
    let ratio = us(three.p50) / us(tcp);
    let what = format!(
        "ordered log, n = 3, TCP, closed loop: p50 {:.1} µs (p99 {:.1} µs) to a raw round-trip of {:.1} µs",
        us(three.p50),
        us(three.p99),
        us(tcp)
    );
    verdict(&what, ratio, "round-trips", ratio <= 6.0, "at most 6")?;
    let messages = if args.quick { 100_000 } else { 1_000_000 };
    for (transport, bar) in [("in process", 1e6), ("unix", 1e5), ("tcp", 1e5)] {
        let rate = flood(transport, 3, messages)?;
        let what = format!("ordered log, n = 3, {transport}: messages of {SIZE} bytes, batched");
        let asked = format!("at least {bar:.0}");
        verdict(&what, rate, "messages/s", rate >= bar, &asked)?;
    }
    crash::run(args)
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
        let mean = took / (rounds + 100);
        return Ok(Cell { mean, p50: mean, p99: mean });
    }
    let events = Group::start(&configuration(transport, n, &layers, None), n)?.finish()?;
    let find = |name: &str| {
        let found = events.iter().find(|(_, seen)| seen.event == name);
        found.map(|(_, seen)| seen.values).with_context(|| format!("{algorithm}: no {name}"))
    };
    let ([count, total, _], [p50, _, p99]) = (find(RESULT)?, find(TIMES)?);
    Ok(Cell { mean: total / count.max(1), p50, p99 })
}

/// Messages a second when all processes cast as fast as they can.
fn flood(transport: &str, n: u32, messages: u64) -> Result<f64> {
    let layers = format!("\"log\", {{ layer = \"flood\", messages = {messages}, size = {SIZE} }}");
    let took = if transport == TRANSPORTS[0] {
        in_process(&configuration("inproc", n, &layers, None))?.1
    } else {
        let events = Group::start(&configuration(transport, n, &layers, None), n)?.finish()?;
        let found = events.iter().find(|(_, seen)| seen.event == RESULT);
        found.context("no result of the flood")?.1.values[1]
    };
    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    Ok(messages as f64 * 1e9 / took as f64)
}

/// Tables 4 to 6.
fn closed(args: &BenchArgs, rounds: u64, raw: [u64; 2]) -> Result<()> {
    print(&format!(
        "\nClosed system, {rounds} rounds, messages of {SIZE} bytes: µs a broadcast (p50 in brackets; \
         in process: mean alone)\n\n"
    ))?;
    let mut table =
        Table::new(&["n, transport", "Sequencer", "Skeen", "Chandra-Toueg", "CT/Seq.", "log"]);
    let sizes = [2, 4, 6];
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
    print(&table.to_string())?;
    print("\nThe thesis (Tables 4 to 6, hosts of its time): ms a broadcast\n\n")?;
    let mut table = Table::new(&["n, transport", "Sequencer", "Skeen", "Chandra-Toueg", "CT/Seq."]);
    for (at, n) in sizes.iter().enumerate() {
        for (transport, values) in THESIS {
            let [sequencer, skeen, ct] = values[at];
            let cells = [sequencer, skeen, ct].map(|ms| format!("{ms:.0}"));
            let ratio = format!("{:.2}", ct / sequencer);
            let row = std::iter::once(format!("{n}, {transport}")).chain(cells).chain([ratio]);
            table.row(row.collect());
        }
    }
    print(&table.to_string())?;
    estimates(&cells, raw)?;
    shapes(&cells)?;
    if let Some(dir) = &args.out {
        let mut lines = Vec::new();
        for (at, algorithm) in ALGORITHMS.iter().enumerate() {
            for (which, transport) in TRANSPORTS.iter().enumerate().skip(1) {
                let points = (0..3).map(|n| (f64::from(sizes[n]), cells[3 * n + which][at]));
                let name = format!("{algorithm}, {transport}");
                lines.push(Line { name, points: points.collect() });
            }
        }
        let plot = Plot {
            name: "broadcast-closed".to_owned(),
            title: "Ordered broadcast, closed system, 100 bytes".to_owned(),
            x: ("processes".to_owned(), Scale::Linear),
            y: "µs a broadcast".to_owned(),
            lines,
        };
        plot.write(dir)?;
    }
    Ok(())
}

/// The thesis's estimate T = s (n − 1) T_tx + T_overhead from half a raw round-trip, the overhead being half
/// the time of two processes (its method 2).
fn estimates(cells: &[Vec<f64>], raw: [u64; 2]) -> Result<()> {
    print("\nMeasured to estimated by the thesis's formula (method 2): ")?;
    let mut parts = Vec::new();
    for (which, raw) in raw.into_iter().enumerate() {
        let half = us(raw) / 2.0;
        for (at, steps) in STEPS.iter().enumerate() {
            for (row, n) in [(1, 4.0), (2, 6.0)] {
                let overhead = cells[1 + which][at] / 2.0;
                let estimate = steps * (n - 1.0) * half + overhead;
                parts.push(cells[3 * row + 1 + which][at] / estimate);
            }
        }
    }
    let (least, most) = parts.iter().fold((f64::MAX, 0.0_f64), |(a, b), x| (a.min(*x), b.max(*x)));
    print(&format!("{least:.2} to {most:.2} over the cells of n = 4 and 6\n"))
}

/// The shapes of the thesis's tables.
fn shapes(cells: &[Vec<f64>]) -> Result<()> {
    let sockets: Vec<_> = cells.iter().enumerate().filter(|(at, _)| at % 3 > 0).collect();
    let ordered = sockets.iter().filter(|(_, of)| of[0] < of[1] && of[1] < of[2]).count();
    let ratios = sockets.iter().filter(|(_, of)| (1.9..=2.8).contains(&(of[2] / of[0]))).count();
    let by_transport = (0..3)
        .flat_map(|n| (0..3).map(move |at| (3 * n, at)))
        .filter(|(n, at)| {
            cells[*n][*at] < cells[n + 1][*at] && cells[n + 1][*at] < cells[n + 2][*at]
        })
        .count();
    print(&format!(
        "Shapes of the thesis: Sequencer < Skeen < Chandra-Toueg in {ordered} of {} cells over sockets; \
         CT/Sequencer within 1.9 to 2.8 in {ratios}; in process < Unix < TCP in {by_transport} of 9\n",
        sockets.len()
    ))
}

/// Time against the size of messages.
fn sizes(args: &BenchArgs, rounds: u64) -> Result<()> {
    print("\nBy the size of messages, n = 4, TCP: µs a broadcast\n\n")?;
    let mut table = Table::new(&["bytes", "Sequencer", "Skeen", "Chandra-Toueg", "log"]);
    let mut lines: Vec<Line> = ALGORITHMS
        .iter()
        .map(|name| Line { name: (*name).to_owned(), points: Vec::new() })
        .collect();
    for size in [8_u32, 100, 1000, 10_000] {
        let mut row = vec![size.to_string()];
        for (algorithm, line) in ALGORITHMS.iter().zip(&mut lines) {
            let cell = closed_system("tcp", 4, algorithm, rounds / 3, size as usize)?;
            line.points.push((f64::from(size), us(cell.mean)));
            row.push(format!("{:.1}", us(cell.mean)));
        }
        table.row(row);
    }
    print(&table.to_string())?;
    if let Some(dir) = &args.out {
        let plot = Plot {
            name: "broadcast-sizes".to_owned(),
            title: "Ordered broadcast by the size of messages, n = 4, TCP".to_owned(),
            x: ("bytes".to_owned(), Scale::Log),
            y: "µs a broadcast".to_owned(),
            lines,
        };
        plot.write(dir)?;
    }
    Ok(())
}
