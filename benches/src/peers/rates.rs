//! As fast as can be: datagrams one by one or in bursts, and TCP in bulk.

use anyhow::Result;
use itg_trials::{Estimate, Lines, order, print, ratio, with_interval};

use super::bars::Book;
use super::options::PeersArgs;
use super::raw::joined;
use super::tools::{Distribution, Load, Stage, Tool};
use super::trial::{present, progress, trial};
use crate::observer::Counts;

/// Parts:
/// of the raw loop's rate, of D-ITG's, of iperf3's.
const RAW_BAR: f64 = 0.9;
const DITG_BAR: f64 = 2.0;
const TCP_BAR: f64 = 0.95;
/// Share of the packets that may be lost.
const LOSS_BAR: f64 = 0.001;

/// Exact mode, or bursts.
pub(super) fn run(args: &PeersArgs, stage: &Stage, bursts: bool, book: &mut Book) -> Result<()> {
    let tools = present(if bursts {
        &[Tool::RawSegments, Tool::RawSegmentsLog, Tool::Iperf, Tool::ItgBurst]
    } else {
        &[
            Tool::Raw,
            Tool::RawLog,
            Tool::DitgPoll,
            Tool::Mgen,
            Tool::Iperf,
            Tool::Sockperf,
            Tool::Itg,
            Tool::ItgAuth,
        ]
    });
    if bursts {
        print("Debian's iperf3 has no --gsro: it sends its packets one by one");
    }
    for size in args.sizes() {
        let seconds = args.seconds(2);
        let load = Load {
            rate: None,
            distribution: Distribution::Constant,
            size,
            seconds,
            flows: 1,
            tcp: false,
        };
        let mode = if bursts { "bursts" } else { "exact" };
        let table = format!("{mode}, {}, {size} B", stage.name);
        let mut kpps = vec![Vec::new(); tools.len()];
        let mut lost = vec![Vec::new(); tools.len()];
        for round in 0..args.runs() {
            progress(&table, round, args.runs());
            for place in order(tools.len(), round) {
                let ran = trial(tools[place], &load, stage)?;
                // Only the parts of joined datagrams can be counted, where they arrive.
                let cut = bursts && tools[place] != Tool::Iperf;
                let share = ran.course.lost(if cut { joined(size) as u64 } else { 1 });
                let rate = if cut {
                    ran.course.rate(|counts: &Counts| counts.arrived) * (1.0 - share)
                } else {
                    ran.course.rate(|counts: &Counts| counts.read)
                };
                kpps[place].push(rate / 1e3);
                lost[place].push(share);
            }
        }
        let at = |tool| tools.iter().position(|&t| t == tool);
        let raw = at(if bursts { Tool::RawSegments } else { Tool::Raw });
        let ditg = at(Tool::DitgPoll);
        let mut lines = Lines::new(["", "kpps received", "lost %", "of the raw loop", "x D-ITG"]);
        for (place, tool) in tools.iter().enumerate() {
            let to = |other: Option<usize>| match other {
                Some(other) => with_interval(ratio(&kpps[place], &kpps[other]), 2),
                None => "-".to_owned(),
            };
            let rate = book.figure(&table, tool.name(), "kpps received", &kpps[place]);
            let loss = book.figure(&table, tool.name(), "share lost", &lost[place]);
            let loss = with_interval(loss.map(|share| 100.0 * share), 2);
            lines.row([tool.name().to_owned(), with_interval(rate, 0), loss, to(raw), to(ditg)]);
        }
        print(format_args!("\n{table}, {seconds} s, {} trials in turns\n\n{lines}\n", args.runs()));
        judge(&table, bursts, &tools, &kpps, &lost, book);
        print("");
    }
    Ok(())
}

/// Holds ours against the raw loops and D-ITG.
fn judge(
    table: &str,
    bursts: bool,
    tools: &[Tool],
    kpps: &[Vec<f64>],
    lost: &[Vec<f64>],
    book: &mut Book,
) {
    let at = |tool| tools.iter().position(|&t| t == tool);
    let ours = at(if bursts { Tool::ItgBurst } else { Tool::Itg });
    let raw = at(if bursts { Tool::RawSegments } else { Tool::Raw });
    let (Some(ours), Some(raw)) = (ours, raw) else { return };
    let got = ratio(&kpps[ours], &kpps[raw]);
    book.bar(
        got.mid >= RAW_BAR,
        format!("{table}: >= {RAW_BAR} x the raw loop: {}", with_interval(got, 2)),
    );
    if let Some(same) = at(Tool::RawSegmentsLog) {
        let part = with_interval(ratio(&kpps[ours], &kpps[same]), 2);
        print(format_args!("{table}: {part} x the raw loop with headers, contents and records"));
    }
    let loss = Estimate::of(&lost[ours]).mid;
    book.bar(loss < LOSS_BAR, format!("{table}: less than 0.1 % lost: {:.3} %", 100.0 * loss));
    if let Some(ditg) = at(Tool::DitgPoll) {
        let got = ratio(&kpps[ours], &kpps[ditg]);
        let what = format!("{table}: >= {DITG_BAR} x D-ITG: {}", with_interval(got, 2));
        book.bar(got.mid >= DITG_BAR, what);
    }
}

/// TCP in bulk, beside iperf3.
pub(super) fn tcp(args: &PeersArgs, stage: &Stage, book: &mut Book) -> Result<()> {
    let tools = present(&[Tool::Iperf, Tool::Itg]);
    let seconds = args.seconds(3);
    let size = 128 << 10;
    let load = Load {
        rate: None,
        distribution: Distribution::Constant,
        size,
        seconds,
        flows: 1,
        tcp: true,
    };
    let mut gbps = vec![Vec::new(); tools.len()];
    for round in 0..args.runs() {
        progress("TCP", round, args.runs());
        for place in order(tools.len(), round) {
            let ran = trial(tools[place], &load, stage)?;
            gbps[place].push(ran.course.rate(|counts: &Counts| counts.octets) * 8.0 / 1e9);
        }
    }
    let table = "TCP in bulk, lo";
    let mut lines = Lines::new(["", "Gbit/s", "x iperf3"]);
    let iperf = tools.iter().position(|&tool| tool == Tool::Iperf);
    for (place, tool) in tools.iter().enumerate() {
        let rate = book.figure(table, tool.name(), "Gbit/s", &gbps[place]);
        let to = iperf.map_or_else(
            || "-".to_owned(),
            |iperf| with_interval(ratio(&gbps[place], &gbps[iperf]), 2),
        );
        lines.row([tool.name().to_owned(), with_interval(rate, 1), to]);
    }
    print(format_args!("\n{table}, {seconds} s, {} trials in turns\n\n{lines}\n", args.runs()));
    if let Some(iperf) = iperf {
        let got = ratio(&gbps[tools.len() - 1], &gbps[iperf]);
        let what = format!("TCP: >= {TCP_BAR} x iperf3: {}", with_interval(got, 2));
        book.bar(got.mid >= TCP_BAR, what);
    }
    Ok(())
}
