//! Agreement of the verdict on fidelity with an independent observer.
//!
//! Real runs over loopback, each judged twice: by `itg-decode` from the sender's log, and from the kernel's stamps of
//! the packets as they leave, against the plan that follows from the seed. Half of the runs have a busy loop beside
//! them for each processor.

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use itg_cli::say;
use itg_core::distribution::{Distribution, Unit};
use itg_core::flow::{Flow, FlowSpec};
use itg_core::header::PacketHeader;
use itg_core::seed::RunSeed;
use itg_fidelity::{Asked, Departed, Departures, Distributions, Verdict};
use itg_testkit::child::Running;
use itg_trials::{Claim, Lines, print};

use crate::observer;
use crate::programs::{Location, Programs, READY, memory};

/// Share of the runs in which both verdicts are to be the same.
const BAR: f64 = 0.95;
/// Payload bytes.
const SIZE: u32 = 100;
/// Least packets of a run, where its rate has as many in 10 s.
const PACKETS: u64 = 2000;
const RATES: [u64; 5] = [100, 1_000, 5_000, 20_000, 50_000];

/// Options of `observed`.
#[derive(Debug, Args)]
pub(crate) struct ObservedArgs {
    /// Runs, half of them beside busy loops
    #[arg(long, value_name = "N", default_value_t = 200)]
    runs: usize,
    /// Seconds of a run; slow flows take up to 10
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=60))]
    seconds: u64,
}

/// Traffic of a run.
#[derive(Clone, Debug)]
struct Setting {
    idt: String,
    rate: u64,
    seed: u64,
    seconds: u64,
    loaded: bool,
}

impl Setting {
    /// The settings of these many runs: all distributions, rates and loads in turn.
    fn all(runs: usize, seconds: u64) -> impl Iterator<Item = Self> {
        (0..runs as u64).map(move |run| {
            let rate = RATES[(run / 2) as usize % RATES.len()];
            let mean = 1e9 / rate as f64;
            let idt = match run / 10 % 4 {
                0 => format!("constant({mean:.0}ns)"),
                1 => format!("exp({mean:.0}ns)"),
                2 => format!("uniform({:.0}ns,{:.0}ns)", mean / 2.0, mean * 1.5),
                _ => format!("gamma(2,{:.0}ns)", mean / 2.0),
            };
            let seconds = seconds.max((PACKETS / rate).min(10));
            Self { idt, rate, seed: run + 1, seconds, loaded: run % 2 == 1 }
        })
    }

    fn spec(&self) -> Result<FlowSpec> {
        Ok(FlowSpec::new(1)
            .idt(Distribution::parse(&self.idt, Unit::Time)?)
            .size(Distribution::parse(&format!("constant({SIZE})"), Unit::Size)?)
            .packets(self.rate * self.seconds))
    }
}

pub(crate) fn run(args: &ObservedArgs) -> Result<()> {
    observer::may_capture().context("capturing packets as they leave (root or CAP_NET_RAW)")?;
    let programs = Programs::find()?;
    let mut counts: BTreeMap<(bool, &str, &str), usize> = BTreeMap::new();
    for (run, setting) in Setting::all(args.runs, args.seconds).enumerate() {
        let beside = if setting.loaded { "busy" } else { "alone" };
        say(format_args!("itg-bench: run {} of {}, {}, {beside}", run + 1, args.runs, setting.idt));
        let (ours, theirs) = judged(&programs, &setting).with_context(|| setting.idt.clone())?;
        if ours != theirs {
            let Setting { idt, rate, seed, .. } = &setting;
            print(format_args!(
                "{idt}, {rate} packets/s, seed {seed}, {beside}: log {ours}, observer {theirs}"
            ));
        }
        *counts.entry((setting.loaded, ours, theirs)).or_default() += 1;
    }
    let mut lines = Lines::new(["verdict from the log", "from the observer", "alone", "busy"]);
    let pairs: std::collections::BTreeSet<_> = counts.keys().map(|(_, a, b)| (*a, *b)).collect();
    let of = |loaded, (a, b)| counts.get(&(loaded, a, b)).copied().unwrap_or(0);
    for pair in &pairs {
        let cells = [false, true].map(|loaded| of(loaded, *pair).to_string());
        lines.row([pair.0.to_owned(), pair.1.to_owned()].into_iter().chain(cells));
    }
    print(format_args!("\n{lines}\n"));
    let both = |pair: (&'static str, &'static str)| of(false, pair) + of(true, pair);
    let same: usize = pairs.iter().filter(|(a, b)| a == b).map(|pair| both(*pair)).sum();
    let share = same as f64 / args.runs.max(1) as f64;
    print(Claim::new(
        share >= BAR,
        &format!("same verdict in {same} of {}, {BAR} asked for", args.runs),
    ));
    let blind = both((Verdict::Pass.name(), Verdict::Fail.name()));
    print(Claim::new(
        blind == 0,
        &format!("pass where the observer says fail: {blind}, none may be"),
    ));
    Ok(())
}

/// One run: the verdict from its log and the one from the observer's stamps.
fn judged(programs: &Programs, setting: &Setting) -> Result<(&'static str, &'static str)> {
    let dir = tempfile::Builder::new().prefix("itg-bench-").tempdir_in(memory())?;
    let log = dir.path().join("s.itg");
    let port = free_port()?;
    let mut command = Command::new(programs.path("itg-recv"));
    command.args(["--listen", "127.0.0.1:0", "--data-port", &port.to_string()]);
    let receiver = Running::spawn(&mut command, &[])?;
    let line = receiver.after("waiting for senders on ", READY)?;
    let address = line.split([' ', ';']).next().unwrap_or_default();
    let observer = observer::departures_of(&Location::Here, port, |payload, sent_ns| {
        PacketHeader::parse(payload).map(|header| (header.seq, sent_ns))
    })?;
    let mut command = Command::new(programs.path("itg-send"));
    command.args([address, "-q", "--seed", &setting.seed.to_string(), "--idt", &setting.idt]);
    command.args(["--size", &format!("constant({SIZE})"), "--log"]).arg(&log);
    command.args(["--packets", &(setting.rate * setting.seconds).to_string()]);
    let stop = AtomicBool::new(false);
    let sent = std::thread::scope(|scope| -> Result<_> {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            if setting.loaded {
                scope.spawn(|| {
                    while !stop.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                });
            }
        }
        let limit = READY + Duration::from_secs(10 * setting.seconds);
        let sent = Running::spawn(&mut command, &[]).and_then(|sender| sender.wait(limit));
        stop.store(true, Ordering::Relaxed);
        sent
    })?;
    let stamps = observer.stop()?;
    receiver.stop(nix::sys::signal::Signal::SIGINT, READY)?;
    // 1: packets were lost on their way, which is not what is judged here.
    sent.ended_with(&[0, 1])?;
    let mut command = Command::new(programs.path("itg-decode"));
    command.arg(&log).args(["--format", "json", "-q"]);
    let done = Running::spawn(&mut command, &[])?.wait(READY)?.ended_with(&[0, 1])?;
    let report: serde_json::Value = serde_json::from_str(&done.out).context("the report")?;
    let said = report["flows"][0]["fidelity"]["verdict"].as_str().context("no verdict")?;
    let ours = Verdict::ALL.into_iter().map(Verdict::name).find(|name| *name == said);
    Ok((ours.context("an unknown verdict")?, by_observer(setting, &stamps)?.name()))
}

/// A port that is free now.
fn free_port() -> Result<u16> {
    Ok(std::net::UdpSocket::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// The verdict from numbers of packets and the stamps of their departures, against the plan of the seed.
fn by_observer(setting: &Setting, stamps: &[(u64, u64)]) -> Result<Verdict> {
    let spec = setting.spec()?;
    let flow = Flow::resolve(spec.clone(), RunSeed(setting.seed))?;
    let plan: Vec<_> = flow.schedule().map(|packet| (packet.due_ns, packet.size)).collect();
    let seen = stamps.len();
    ensure!(seen as f64 > 0.99 * plan.len() as f64, "{seen} of {} packets were seen", plan.len());
    let mut packets = Vec::with_capacity(seen);
    let mut departures = Departures::default();
    for &(seq, sent_ns) in stamps {
        let at = usize::try_from(seq).ok().and_then(|seq| plan.get(seq));
        let &(planned_ns, size) = at.context("a packet beyond the plan")?;
        packets.push(Departed { seq, planned_ns, sent_ns });
        departures.count(size);
        departures.add_size(size, size);
    }
    // The start of the flow is known to the sender alone: here the most punctual packet is on time.
    let start = packets.iter().map(|packet| packet.sent_ns.saturating_sub(packet.planned_ns)).min();
    packets.iter().for_each(|packet| departures.add(*packet, start));
    let distributions = Distributions::new(&spec, setting.seed)?;
    let asked = Asked { distributions: Some(&distributions), ..Asked::default() };
    Ok(departures.judge(&asked).verdict)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_observer_of_the_plan_passes_and_one_of_pairs_does_not() {
        for setting in Setting::all(40, 1) {
            let flow = Flow::resolve(setting.spec().expect("valid"), RunSeed(setting.seed));
            let due: Vec<_> = flow
                .expect("valid")
                .schedule()
                .map(|packet| packet.due_ns + 1_000_000_000_000)
                .collect();
            let stamps: Vec<_> = (0..).zip(due.iter().copied()).collect();
            assert_eq!(by_observer(&setting, &stamps).expect("seen"), Verdict::Pass, "{setting:?}");
            let pairs: Vec<_> =
                (0..).zip(due.iter().enumerate().map(|(at, _)| due[at / 2 * 2])).collect();
            assert_eq!(by_observer(&setting, &pairs).expect("seen"), Verdict::Fail, "{setting:?}");
        }
    }
}
