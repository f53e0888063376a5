//! `itg-bench growth`: how cost grows with packets a second, flows, length of a log, producers of a log server and
//! hosts of a run, and where this machine ends.

use std::collections::BTreeMap;
use std::fs;
use std::net::UdpSocket;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Barrier, OnceLock};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, ensure};
use clap::{Args, ValueEnum};
use itg_engine::{Log, LogLimits, LogServerTarget, LogTarget, OnFull, log_info};
use itg_record::{Record, SentPacket, Side};
use itg_report::{Curve, Plot};
use itg_session::logs::{Role, Transport};
use itg_testkit::child::Running;
use itg_trials::{Claim, Estimate, Lines, order, print, with_interval};

use crate::agents::Agents;
use crate::arrivals::Arrivals;
use crate::decode;
use crate::made_logs::{self, LogContents};
use crate::programs::{Location, Programs, memory};
use crate::raw_links::most_by_least;

/// Packets a second of all flows together, where their number grows.
const RATE: u32 = 20_000;
/// Bytes of a packet.
const SIZE: u32 = 64;
/// Time for which producers push records: many turns of each of a thousand threads.
const PUSHING: Duration = Duration::from_secs(5);
/// Limits of the log server, beyond what is measured.
const LIMITS: [&str; 6] =
    ["--max-producers", "2000", "--max-experiments", "2000", "--max-per-address", "2000"];
/// Time of the traffic in a trial.
const LASTS: Duration = Duration::from_secs(3);
/// Time that a trial may take beyond its traffic.
const LIMIT: Duration = Duration::from_secs(120);
/// Least share of the plan that arrives before a machine has come to its end.
const WHOLE: f64 = 99.9;
/// Largest time from request to traffic of a run over hosts, in seconds.
const PATIENT: f64 = 5.0;
/// No producer stores more than so many times what another does.
const FAIR: f64 = 2.0;
/// Records that a log server stores of 100 producers, in millions a second.
const STORED: f64 = 20.0;
/// Cost of a packet of many flows, as a multiple of that of one.
const SENDER: f64 = 1.3;
/// Lateness at which many flows have come to their end, in microseconds.
const LATE_US: f64 = 1000.0;

/// Quantity that grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Series {
    /// Packets a second of one flow
    Rate,
    /// Flows of one sender, 20 000 packets a second together
    Flows,
    /// Records of a log that is decoded
    Log,
    /// Producers of one log server
    Producers,
    /// Agents of a run
    Hosts,
}

#[derive(Debug, Args)]
pub(crate) struct GrowthArgs {
    /// These only
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Series>,
    /// Trials of each point
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    trials: u32,
    /// Write a plot of each into this directory
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// A figure of a trial.
struct Figure {
    name: &'static str,
    digits: usize,
    /// True if it is a cost, which is drawn.
    cost: bool,
    value: f64,
}

impl Figure {
    const fn cost(name: &'static str, value: f64) -> Self {
        Self { name, digits: 0, cost: true, value }
    }

    const fn other(name: &'static str, digits: usize, value: f64) -> Self {
        Self { name, digits, cost: false, value }
    }
}

impl Series {
    /// Name of the quantity, and its points.
    const fn points(self) -> (&'static str, &'static [u64]) {
        match self {
            Self::Rate => ("packets a second", &[100, 1_000, 10_000, 100_000, 300_000, 1_000_000]),
            Self::Flows => ("flows", &[1, 10, 100, 1_000, 10_000]),
            Self::Log => ("records", &[1_000, 10_000, 100_000, 1_000_000, 10_000_000]),
            Self::Producers => ("producers", &[1, 10, 100, 1_000]),
            Self::Hosts => ("agents", &[2, 4, 8, 16, 32]),
        }
    }

    const fn title(self) -> &'static str {
        match self {
            Self::Rate => "Cost of a packet by the rate of one flow",
            Self::Flows => "Cost of a packet by the number of flows",
            Self::Log => "Cost of decoding a record by the length of the log",
            Self::Producers => "Cost of storing a record by the number of producers",
            Self::Hosts => "Time from request to traffic by the number of agents",
        }
    }

    /// Unit of its costs.
    const fn unit(self) -> &'static str {
        match self {
            Self::Rate | Self::Flows | Self::Log | Self::Producers => "ns",
            Self::Hosts => "ms",
        }
    }

    /// Returns true if the figures are those of a machine that keeps up.
    fn keeps_up(self, figures: &[f64]) -> bool {
        match self {
            Self::Rate => figures[2] >= WHOLE,
            Self::Flows => figures[2] >= WHOLE && figures[3] <= LATE_US,
            // Longer logs take longer: no end but that of the disk.
            Self::Log => true,
            Self::Producers => figures[1] <= FAIR,
            Self::Hosts => figures[0] <= PATIENT * 1e3,
        }
    }

    /// Goals, each with true if the medians at its point reach it.
    fn goals(self, at: &BTreeMap<u64, Vec<f64>>) -> Vec<(bool, String)> {
        match self {
            Self::Flows => {
                let (one, many) = (&at[&1], &at[&10_000]);
                let (times, late_us) = (many[0] / one[0], many[3]);
                vec![
                    (
                        late_us <= LATE_US,
                        format!("10 000 flows, late p99: {late_us:.1} <= {LATE_US} us"),
                    ),
                    (
                        times <= SENDER,
                        format!("10 000 flows, sender: {times:.2} <= {SENDER} x one flow"),
                    ),
                ]
            }
            Self::Producers => {
                let (fair, rate) = (at[&100][1], at[&100][2]);
                vec![
                    (rate >= STORED, format!("100 producers: {rate:.1} >= {STORED} M records/s")),
                    (fair <= FAIR, format!("100 producers, most / least: {fair:.2} <= {FAIR}")),
                ]
            }
            Self::Rate | Self::Log | Self::Hosts => Vec::new(),
        }
    }

    fn trial(self, programs: &Programs, x: u64) -> Result<Vec<Figure>> {
        match self {
            Self::Rate => traffic(programs, x as f64, 1, "hybrid"),
            // A sender that spins takes all of its processor, whatever a packet costs.
            Self::Flows => traffic(programs, f64::from(RATE), x, "sleep"),
            Self::Log => decoded(programs, x),
            Self::Producers => produced(programs, x),
            Self::Hosts => hosts(x),
        }
    }
}

pub(crate) fn run(args: &GrowthArgs) -> Result<()> {
    let programs =
        Programs::with(&["itg-send", "itg-recv", "itg-log", "itg-decode", "itg-cluster"])?;
    if let Some(dir) = &args.out {
        fs::create_dir_all(dir).with_context(|| dir.display().to_string())?;
    }
    for &series in Series::value_variants() {
        if args.only.is_empty() || args.only.contains(&series) {
            grow(series, args, &programs)?;
        }
    }
    Ok(())
}

fn grow(series: Series, args: &GrowthArgs, programs: &Programs) -> Result<()> {
    let (along, points) = series.points();
    let mut found: Vec<Vec<Vec<Figure>>> = points.iter().map(|_| Vec::new()).collect();
    for round in 0..args.trials as usize {
        for place in order(points.len(), round) {
            itg_cli::say(format_args!("itg-bench: {} {along}, round {}", points[place], round + 1));
            found[place].push(series.trial(programs, points[place])?);
        }
    }
    let names: Vec<_> = found[0][0].iter().map(|figure| figure.name).collect();
    let mut lines = Lines::new(std::iter::once(along).chain(names.iter().copied()));
    let mut curves: BTreeMap<usize, Vec<(f64, f64)>> = BTreeMap::new();
    let mut ends = None;
    let mut at = BTreeMap::new();
    for (&x, trials) in points.iter().zip(&found) {
        let mut row = vec![x.to_string()];
        let mut medians = Vec::new();
        for (place, figure) in trials[0].iter().enumerate() {
            let values: Vec<_> = trials.iter().map(|trial| trial[place].value).collect();
            let estimate = Estimate::of(&values);
            row.push(with_interval(estimate, figure.digits));
            medians.push(estimate.mid);
            if figure.cost {
                curves.entry(place).or_default().push((x as f64, estimate.mid));
            }
        }
        if ends.is_none() && !series.keeps_up(&medians) {
            ends = Some(x);
        }
        at.insert(x, medians);
        lines.row(row);
    }
    print(format_args!("\n{}, {} trials in turns\n\n{lines}\n", series.title(), args.trials));
    let last = points.last().copied().unwrap_or_default();
    print(match ends {
        None => format!("This machine keeps up to {last} {along}, the most that were tried."),
        Some(x) => format!("This machine has come to its end at {x} {along}."),
    });
    for (good, what) in series.goals(&at) {
        print(Claim::new(good, &what));
    }
    let Some(dir) = &args.out else { return Ok(()) };
    let lines = curves.into_iter().map(|(place, points)| {
        let name = names.get(place).copied().unwrap_or_default();
        Curve { name: name.to_owned(), points }
    });
    let plot = Plot {
        title: series.title().to_owned(),
        x: along.to_owned(),
        x_log: true,
        y: series.unit().to_owned(),
        lines: lines.collect(),
    };
    let name = series.to_possible_value().map(|value| value.get_name().to_owned());
    let path = dir.join(format!("growth-{}.svg", name.unwrap_or_default()));
    fs::write(&path, plot.svg()).with_context(|| path.display().to_string())
}

/// Costs and accounts of flows.
struct Flows {
    sender: Duration,
    receiver: Duration,
    packets: f64,
    share: f64,
    late_us: f64,
}

/// Cost of a packet of flows of this rate together, and what the sender takes beside packets, to begin and end flows:
/// of two runs, the longer one differs from the other by its packets alone.
fn traffic(programs: &Programs, rate: f64, flows: u64, pacing: &str) -> Result<Vec<Figure>> {
    let sent = |lasts: Duration| sent(programs, rate, flows, pacing, lasts);
    let (short, long) = (sent(LASTS)?, sent(2 * LASTS)?);
    let packets = long.packets - short.packets;
    ensure!(packets > 0.0, "the longer run has no more packets");
    let cost = |long: Duration, short: Duration| {
        (long.as_secs_f64() - short.as_secs_f64()) * 1e9 / packets
    };
    let sender_ns = cost(long.sender, short.sender);
    let (raw_short, raw_long) = (raw_cpu(flows, rate, LASTS)?, raw_cpu(flows, rate, 2 * LASTS)?);
    let raw_ns =
        (raw_long.as_secs_f64() - raw_short.as_secs_f64()) * 1e9 / (rate * LASTS.as_secs_f64());
    let rest_s = short.sender.as_secs_f64() - sender_ns / 1e9 * short.packets;
    Ok(vec![
        Figure::cost("sender, ns of processor a packet", sender_ns),
        Figure::cost("receiver, ns of processor a packet", cost(long.receiver, short.receiver)),
        Figure::other("arrived, % of the plan", 2, 100.0 * long.share),
        Figure::other("late p99, us", 1, long.late_us),
        Figure::other("sender, s of processor beside packets", 2, rest_s),
        Figure::other("raw loop that sleeps, ns of processor a packet", 0, raw_ns),
    ])
}

/// Processor time of a raw loop that sleeps until packets of so many sockets are due; what it sends is thrown away.
fn raw_cpu(flows: u64, rate: f64, lasts: Duration) -> Result<Duration> {
    let sink = UdpSocket::bind("127.0.0.1:0")?;
    sink.set_read_timeout(Some(Duration::from_millis(100)))?;
    let to = sink.local_addr()?.to_string();
    let over = AtomicBool::new(false);
    let mut command = Command::new(std::env::current_exe().context("the path of this program")?);
    command.args(["raw-loop", "sleep", "--to", &to, "--flows", &flows.to_string()]);
    command.args(["--rate", &(rate / flows as f64).to_string(), "--size", &SIZE.to_string()]);
    command.args(["--seconds", &lasts.as_secs().to_string()]);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut bytes = [0; 2048];
            while !over.load(Ordering::Relaxed) {
                // A pause is no error.
                sink.recv(&mut bytes).unwrap_or_default();
            }
        });
        let done = Running::spawn(&mut command, &[]).and_then(|loop_| loop_.wait(lasts + LIMIT));
        over.store(true, Ordering::Relaxed);
        Ok(done?.ended_with(&[0])?.cpu)
    })
}

/// Flows of this rate together, logged on both sides.
fn sent(
    programs: &Programs,
    rate: f64,
    flows: u64,
    pacing: &str,
    lasts: Duration,
) -> Result<Flows> {
    let work = tempfile::Builder::new().prefix("itg-bench-").tempdir_in(memory())?;
    let [sent, arrived] = ["s.itg", "r.itg"].map(|name| work.path().join(name));
    let log = ["--log".to_owned(), arrived.display().to_string()];
    let receiver = programs.receiver(&Location::Here, "127.0.0.1", &log, &[])?;
    let each = rate / flows as f64;
    let mut send = Command::new(programs.path("itg-send"));
    send.arg(&receiver.address).args(["--rate", &format!("{each}pps"), "--json"]);
    send.args(["--size", &SIZE.to_string(), "--flows", &flows.to_string(), "--pacing", pacing]);
    send.args(["--duration", &format!("{}s", lasts.as_secs()), "--log"]).arg(&sent);
    if flows > 1 {
        // One after the other, within the time between two packets of a flow.
        send.args(["--stagger", &format!("{:.0}us", (1e6 / each).min(1e6))]);
    }
    let done = Running::spawn(&mut send, &[])?.wait(lasts + LIMIT)?.ended_with(&[0, 4])?;
    let received = receiver.stop()?;
    let report: serde_json::Value = serde_json::from_str(&done.out).context("a report")?;
    let packets = report["total"]["packets"].as_f64().context("packets")?;
    ensure!(packets > 0.0, "no packet arrived");
    let late_us = programs.decode(&sent)?.late_us.unwrap_or(f64::NAN);
    let log = fs::read(&arrived).context("the receiver's log")?;
    let share = Arrivals::of(&[log], flows)?.share();
    Ok(Flows { sender: done.cpu, receiver: received.cpu, packets, share, late_us })
}

/// A log of so many records, decoded.
fn decoded(programs: &Programs, records: u64) -> Result<Vec<Figure>> {
    let work = tempfile::Builder::new().prefix("itg-bench-").tempdir_in(memory())?;
    let [run, idt, size] = ["c0ffee", "exp(10us)", "constant(512)"].map(str::to_owned);
    let wish = LogContents { run, packets: records, flows: 1, idt, size };
    let made = made_logs::write(work.path(), &wish)?;
    let program = programs.path("itg-decode");
    let (took, peak_mib) =
        decode::measure(&[program.as_os_str(), "-q".as_ref(), made.receiver.as_os_str()])?;
    Ok(vec![
        Figure::cost("ns a record", took.as_secs_f64() * 1e9 / made.arrived as f64),
        Figure::other("peak MiB", 1, peak_mib),
        Figure::other("s", 3, took.as_secs_f64()),
    ])
}

/// So many producers of one experiment, each with its own connection, that push for the same time.
fn produced(programs: &Programs, producers: u64) -> Result<Vec<Figure>> {
    let work = tempfile::Builder::new().prefix("itg-bench-").tempdir_in(memory())?;
    let server = programs.log_server(work.path(), &LIMITS, &[])?;
    let target = LogTarget::Server(Box::new(LogServerTarget {
        transport: Transport::Tcp,
        address: server.address.parse().context("the server's address")?,
        run: "growth".to_owned(),
        role: Role::Sender,
        secret: None,
        keys: None,
        spool: None,
    }));
    // Who is ahead of the server waits, so that each has what the server gives it.
    let limits = LogLimits { on_full: OnFull::Wait, pool_bytes: 1 << 20, ..LogLimits::default() };
    let ready = Barrier::new(usize::try_from(producers)?);
    // The same instant for all.
    let ends = OnceLock::new();
    let one = || -> Result<(u64, f64)> {
        let info =
            log_info(Side::Sender, "itg-bench", "0", "00".to_owned(), Some(1), BTreeMap::new());
        let log = Log::create(&target, info, limits);
        ready.wait();
        let (log, started) = (log?, Instant::now());
        let ends = *ends.get_or_init(|| started + PUSHING);
        let mut records = log.producer();
        let mut pushed = 0;
        while Instant::now() < ends {
            for seq in pushed..pushed + 1024 {
                let due_ns = seq * 1000;
                let (planned_ns, sent_ns) = (due_ns, due_ns + 77);
                let packet = SentPacket { flow: 1, seq, size: 512, planned_ns, sent_ns };
                records.push(&Record::sent(packet), due_ns);
            }
            pushed += 1024;
        }
        drop(records);
        let outcome = log.close();
        let stored = outcome.records;
        ensure!(stored == pushed, "{stored} of {pushed} records stored: {:?}", outcome.error);
        Ok((stored, started.elapsed().as_secs_f64()))
    };
    let ended: Result<Vec<_>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..producers).map(|_| scope.spawn(one)).collect();
        let ended = threads.into_iter().map(|thread| thread.join());
        ended.map(|stored| stored.map_err(|_| anyhow!("a producer panicked"))?).collect()
    });
    let ended = ended?;
    let stopped = server.stop()?;
    let links = ended.len();
    let stored = || ended.iter().map(|(stored, _)| *stored as f64);
    let took = ended.iter().map(|(_, seconds)| *seconds).fold(0.0, f64::max);
    let (most, least) = (stored().fold(0.0, f64::max), stored().fold(f64::MAX, f64::min));
    let records: f64 = stored().sum();
    Ok(vec![
        Figure::cost("server, ns of processor a record", stopped.cpu.as_secs_f64() * 1e9 / records),
        Figure::other("most / least of a producer", 2, most / least),
        Figure::other("M records/s, all", 2, records / took / 1e6),
        // As many writers, whose bytes are thrown away.
        Figure::other("raw links, most / least", 2, most_by_least(links, PUSHING)?),
    ])
}

/// A run of a second over so many agents, a flow from each to the next.
fn hosts(count: u64) -> Result<Vec<Figure>> {
    let count = usize::try_from(count)?;
    let agents = Agents::new(count, false)?;
    let flows: String = (0..count)
        .map(|node| {
            let (from, to) = (Agents::name(node), Agents::name((node + 1) % count));
            format!("[[flow]]\nfrom = \"{from}\"\nto = \"{to}\"\nidt = \"constant(10ms)\"\nduration = \"1s\"\n")
        })
        .collect();
    let out = agents.path("out");
    let done = agents.run(&flows, &out, &["-q"])?.wait(LIMIT)?.ended_with(&[0])?;
    let beyond = done.took.saturating_sub(Duration::from_secs(1)).as_secs_f64();
    Ok(vec![
        Figure::cost("ms beside the traffic", beyond * 1e3),
        Figure::other("console, ms of processor", 0, done.cpu.as_secs_f64() * 1e3),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_ends_where_packets_are_missing_or_late() {
        assert!(Series::Rate.keeps_up(&[900.0, 800.0, 99.95, 12.0]));
        assert!(!Series::Rate.keeps_up(&[900.0, 800.0, 98.0, 12.0]));
        assert!(!Series::Flows.keeps_up(&[900.0, 800.0, 100.0, 2000.0]));
        assert!(!Series::Producers.keeps_up(&[50.0, 2.5, 20.0]));
        assert!(!Series::Hosts.keeps_up(&[7000.0, 100.0]));
    }

    #[test]
    fn goals_are_those_of_one_point() {
        let at = BTreeMap::from([(1, vec![100.0; 4]), (10_000, vec![131.0, 9.0, 100.0, 1000.0])]);
        let good: Vec<_> = Series::Flows.goals(&at).iter().map(|goal| goal.0).collect();
        assert_eq!(good, [true, false]);
        let at = BTreeMap::from([(100, vec![40.0, 1.9, 19.9])]);
        let good: Vec<_> = Series::Producers.goals(&at).iter().map(|goal| goal.0).collect();
        assert_eq!(good, [false, true]);
    }

    #[test]
    fn points_of_a_series_grow() {
        for series in Series::value_variants() {
            assert!(series.points().1.is_sorted(), "{series:?}");
        }
    }
}
