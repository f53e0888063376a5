//! Past the network stack, as fast as can be: one flow over virtual Ethernet, beside raw loops of AF_XDP and ordinary
//! sockets.

use anyhow::{Context as _, Result};
use itg_record::{Item, LogReader};
use itg_trials::{Estimate, Lines, order, print, ratio, with_interval};

use super::bars::Book;
use super::options::PeersArgs;
use super::tools::{Distribution, Load, Stage, Tool};
use super::trial::{Ran, progress, trial};
use crate::observer::Counts;

/// Pairs of sender and receiver.
const TOOLS: [Tool; 8] = [
    Tool::Raw,
    Tool::RawFramesOut,
    Tool::RawFramesOutLog,
    Tool::RawFrames,
    Tool::RawFramesLog,
    Tool::Itg,
    Tool::ItgFramesOut,
    Tool::ItgFrames,
];
/// Bars: part of the rate of a raw loop, and share of the packets that may be lost.
const RAW_BAR: f64 = 0.95;
const LOSS_BAR: f64 = 0.001;
/// What is held against what.
const PAIRS: [(Tool, Tool); 4] = [
    (Tool::ItgFrames, Tool::RawFrames),
    (Tool::ItgFrames, Tool::RawFramesLog),
    (Tool::ItgFramesOut, Tool::RawFramesOut),
    (Tool::ItgFramesOut, Tool::RawFramesOutLog),
];

/// Trials of a pair.
#[derive(Default)]
struct Trials {
    /// Thousands of packets a second that were received.
    kpps: Vec<f64>,
    lost: Vec<f64>,
    /// Processor time a packet, in nanoseconds.
    sender_ns: Vec<f64>,
    receiver_ns: Vec<f64>,
}

impl Trials {
    fn push(&mut self, tool: Tool, ran: &Ran) -> Result<()> {
        let sent = packets(tool, ran, &ran.sender.out, "s.itg").context("the sender")?;
        let received = packets(tool, ran, &ran.receiver.out, "r.itg").context("the receiver")?;
        let arrived = if sent > 0.0 { received / sent } else { 0.0 };
        self.kpps.push(ran.course.rate(|counts: &Counts| counts.frames) * arrived / 1e3);
        self.lost.push(1.0 - arrived);
        self.sender_ns.push(ran.sender.cpu.as_secs_f64() * 1e9 / sent.max(1.0));
        self.receiver_ns.push(ran.receiver.cpu.as_secs_f64() * 1e9 / received.max(1.0));
        Ok(())
    }
}

/// Packets by the log of one side, or by what it says where it is a raw loop.
fn packets(tool: Tool, ran: &Ran, said: &str, log: &str) -> Result<f64> {
    if !tool.is_ours() {
        return said.trim().parse().with_context(|| format!("a number of packets: {said:?}"));
    }
    let log = std::fs::read(ran.logs.path().join(log)).context("the log")?;
    let records = LogReader::new(&log).map(|item| match item {
        Item::Records { records, .. } => records.count(),
        _ => 0,
    });
    Ok(records.sum::<usize>() as f64)
}

pub(super) fn run(args: &PeersArgs, stage: &Stage, book: &mut Book) -> Result<()> {
    for size in args.sizes() {
        let seconds = args.seconds(2);
        let distribution = Distribution::Constant;
        let load = Load { rate: None, distribution, size, seconds, flows: 1, tcp: false };
        let table = format!("frames, {}, {size} B", stage.name);
        let mut trials = [(); TOOLS.len()].map(|()| Trials::default());
        for round in 0..args.runs() {
            progress(&table, round, args.runs());
            for place in order(TOOLS.len(), round) {
                let tool = TOOLS[place];
                trials[place]
                    .push(tool, &trial(tool, &load, stage)?)
                    .with_context(|| format!("{}, {table}", tool.name()))?;
            }
        }
        show(&table, seconds, args.runs(), &trials, book);
        let of = |tool| TOOLS.iter().position(|&t| t == tool).map(|place| &trials[place]);
        for (ours, raw) in PAIRS {
            let (Some(got), Some(bound)) = (of(ours), of(raw)) else { continue };
            let part = ratio(&got.kpps, &bound.kpps);
            let (ours, raw) = (ours.name(), raw.name());
            let what = format!("{table}: {ours} >= {RAW_BAR} x {raw}: {}", with_interval(part, 2));
            book.bar(part.mid >= RAW_BAR, what);
        }
        if let Some(ours) = of(Tool::ItgFrames) {
            let loss = Estimate::of(&ours.lost).mid;
            let what = format!("{table}: less than 0.1 % lost: {:.3} %", 100.0 * loss);
            book.bar(loss < LOSS_BAR, what);
        }
        print("");
    }
    Ok(())
}

/// Prints a table of all pairs.
fn show(table: &str, seconds: u64, runs: usize, trials: &[Trials], book: &mut Book) {
    let mut lines = Lines::new([
        "",
        "kpps received",
        "lost %",
        "ns a packet, sender",
        "receiver",
        "of the raw AF_XDP loop",
    ]);
    let raw = TOOLS.iter().position(|&tool| tool == Tool::RawFrames);
    for (tool, of) in TOOLS.iter().zip(trials) {
        let mut figure = |name, values| book.figure(table, tool.name(), name, values);
        let rate = figure("kpps received", &of.kpps);
        let lost = figure("share lost", &of.lost).map(|share| 100.0 * share);
        let sender = figure("ns a packet, sender", &of.sender_ns);
        let receiver = figure("ns a packet, receiver", &of.receiver_ns);
        let part = raw.map(|raw| with_interval(ratio(&of.kpps, &trials[raw].kpps), 2));
        lines.row([
            tool.name().to_owned(),
            with_interval(rate, 0),
            with_interval(lost, 3),
            with_interval(sender, 0),
            with_interval(receiver, 0),
            part.unwrap_or_default(),
        ]);
    }
    print(format_args!("\n{table}, {seconds} s, {runs} trials in turns\n\n{lines}\n"));
}
