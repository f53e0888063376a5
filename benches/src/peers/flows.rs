//! Many flows: lateness of their packets, and cost against one flow.

use anyhow::{Context as _, Result};
use itg_trials::{Lines, order, print, ratio, with_interval};

use super::bars::Book;
use super::options::PeersArgs;
use super::tools::{Distribution, Load, SPREAD_MS, Stage, Tool};
use super::trial::{progress, trial};
use crate::arrivals::Arrivals;
use crate::observer::Counts;

/// Flows, and packets a second of each.
const MANY: u32 = 10_000;
const EACH: f64 = 20.0;
const SIZE: usize = 64;
/// Sockets of the raw loop beside that with one for each flow.
const SOME: u32 = 10;
/// Bars: median lateness and its 99th percentile in microseconds, share of the packets, part of one flow's rate.
const LATE_BAR_US: f64 = 50.0;
const LATE_P99_BAR_US: f64 = 1000.0;
const RATE_BAR: f64 = 0.99;
const FEW_BAR: f64 = 0.9;
/// Figures of many flows, each with its digits.
const FIGURES: [(&str, usize); 4] =
    [("kpps received", 1), ("late p50 us", 1), ("late p99 us", 1), ("share of the plan", 4)];
/// Flows that are compared with one.
const FEW: u32 = 64;

pub(super) fn run(args: &PeersArgs, stage: &Stage, book: &mut Book) -> Result<()> {
    many(args, stage, book)?;
    few(args, stage, book)
}

fn many(args: &PeersArgs, stage: &Stage, book: &mut Book) -> Result<()> {
    let seconds = args.seconds(3);
    let distribution = Distribution::Exponential;
    let load =
        Load { rate: Some(EACH), distribution, size: SIZE, seconds, flows: MANY, tcp: false };
    let table = format!(
        "{MANY} flows of {EACH} packets/s, exponential gaps, starts spread over {SPREAD_MS} ms"
    );
    // Raw loops have a plan of their own.
    let on_time = Load { distribution: Distribution::Constant, ..load };
    let flat_out = Load { rate: None, ..on_time };
    let through_some = Load { flows: SOME, ..flat_out };
    let tools = [Tool::Itg, Tool::ItgSockets];
    let mut figures = tools.map(|_| [const { Vec::new() }; FIGURES.len()]);
    let [mut raw, mut raw_some, mut raw_p99] = [const { Vec::new() }; 3];
    for round in 0..args.runs() {
        progress(&table, round, args.runs());
        for (load, raw) in [(&through_some, &mut raw_some), (&flat_out, &mut raw)] {
            let ran = trial(Tool::Raw, load, stage)?;
            raw.push(ran.course.rate(|counts: &Counts| counts.read) / 1e3);
        }
        raw_p99.push(raw_lateness(&trial(Tool::RawSpin, &on_time, stage)?.sender.out)?);
        for place in order(tools.len(), round) {
            let values = of_many(tools[place], &load, stage)?;
            figures[place].iter_mut().zip(values).for_each(|(all, value)| all.push(value));
        }
    }
    let mut lines = Lines::new(std::iter::once("").chain(FIGURES.map(|(figure, _)| figure)));
    let mut bars = Vec::new();
    for (tool, figures) in tools.iter().zip(&figures) {
        let row = tool.name();
        let estimates: Vec<_> = (FIGURES.iter().zip(figures))
            .map(|((figure, _), values)| book.figure(&table, row, figure, values))
            .collect();
        let cells = estimates.iter().zip(FIGURES);
        let cells = cells.map(|(estimate, (_, digits))| with_interval(*estimate, digits));
        lines.row(std::iter::once(row.to_owned()).chain(cells));
        bars.push((row, estimates[1].mid, estimates[2].mid, estimates[3].mid));
    }
    print(format_args!(
        "\n{table}, {seconds} s, {} trials in turns; late: the kernel's stamp on arrival against the plan\n\n{lines}\n",
        args.runs()
    ));
    let most = book.figure(&table, "raw loop", "kpps received", &raw);
    let most_some = book.figure(&table, "raw loop, few sockets", "kpps received", &raw_some);
    print(format_args!(
        "A raw loop that sends a packet through each of {MANY} sockets in turn: {} kpackets/s flat out, {} through \
         {SOME}: a packet takes it {} times as long; at the times of such flows, without logs, its calls are late by \
         {} µs at p99.\n",
        with_interval(most, 0),
        with_interval(most_some, 0),
        with_interval(ratio(&raw_some, &raw), 2),
        with_interval(book.figure(&table, "raw loop on time", "late p99 us", &raw_p99), 1)
    ));
    for (row, late, late_p99, share) in bars {
        let table = format!("{row}, {table}");
        let what = format!("{table}: late by {late:.1} µs at p50, < {LATE_BAR_US}");
        book.bar(late < LATE_BAR_US, what);
        let what = format!("{table}: late by {late_p99:.1} µs at p99, <= {LATE_P99_BAR_US}");
        book.bar(late_p99 <= LATE_P99_BAR_US, what);
        book.bar(share > RATE_BAR, format!("{table}: {:.2} % of the plan arrived", 100.0 * share));
    }
    Ok(())
}

/// Figures of a trial of many flows: thousands of packets received a second, lateness at p50 and p99 in microseconds,
/// and the share of the plan that arrived.
fn of_many(tool: Tool, load: &Load, stage: &Stage) -> Result<[f64; FIGURES.len()]> {
    let ran = trial(tool, load, stage)?;
    let log = std::fs::read(ran.logs.path().join("r.itg")).context("the receiver's log")?;
    let arrivals = Arrivals::of(&[&log], u64::from(load.flows))?;
    let kpps = ran.course.rate(|counts: &Counts| counts.read) / 1e3;
    Ok([kpps, arrivals.late_us(50), arrivals.late_us(99), arrivals.share()])
}

/// Lateness of a raw loop's packets at p99 in microseconds, as it prints it.
pub(super) fn raw_lateness(words: &str) -> Result<f64> {
    let line = words.lines().find_map(|line| line.strip_prefix("late "));
    let p99_ns = line.and_then(|line| line.split(' ').next_back()).context("no lateness")?;
    Ok(p99_ns.parse::<f64>()? / 1e3)
}

fn few(args: &PeersArgs, stage: &Stage, book: &mut Book) -> Result<()> {
    let seconds = args.seconds(2);
    let table = format!("{FEW} flows against one, flat out");
    let counts = [1, FEW];
    let mut kpps = [const { Vec::new() }; 2];
    for round in 0..args.runs() {
        progress(&table, round, args.runs());
        for place in order(counts.len(), round) {
            let flows = counts[place];
            let load = Load {
                rate: None,
                distribution: Distribution::Constant,
                size: SIZE,
                seconds,
                flows,
                tcp: false,
            };
            let ran = trial(Tool::Itg, &load, stage)?;
            kpps[place].push(ran.course.rate(|counts: &Counts| counts.read) / 1e3);
        }
    }
    let mut lines = Lines::new(["flows", "kpps received"]);
    for (flows, kpps) in counts.iter().zip(&kpps) {
        let rate = book.figure(&table, &flows.to_string(), "kpps received", kpps);
        lines.row([flows.to_string(), with_interval(rate, 0)]);
    }
    print(format_args!("\n{table}, {seconds} s, {} trials in turns\n\n{lines}\n", args.runs()));
    let got = ratio(&kpps[1], &kpps[0]);
    let what = format!("{table}: >= {FEW_BAR}: {}", with_interval(got, 2));
    book.bar(got.mid >= FEW_BAR, what);
    Ok(())
}
