//! Other generators, as far as they are installed: D-ITG, mgen, iperf3.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use itg_testkit::child::Running;
use itg_testkit::host::has_socket;
use itg_trials::{Estimate, order, print};
use nix::sys::signal::Signal;
use serde_json::Value;

use super::plan::Plan;
use super::trial::Trial;
use crate::programs::{READY, installed};

/// Ports of others' programs; ITGLog cannot be told another one.
const CONTROL_PORT: u16 = 19_100;
const DATA_PORT: u16 = 19_101;
const ITGLOG_PORT: u16 = 9001;

/// A generator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Peer {
    ItgSend,
    /// Waits by polling the clock.
    ItgSendPolling,
    Mgen,
    Iperf3,
}

impl Peer {
    const ALL: [Self; 4] = [Self::ItgSend, Self::ItgSendPolling, Self::Mgen, Self::Iperf3];

    const fn name(self) -> &'static str {
        match self {
            Self::ItgSend => "ITGSend",
            Self::ItgSendPolling => "ITGSend -poll",
            Self::Mgen => "mgen",
            Self::Iperf3 => "iperf3",
        }
    }

    /// The programs that it needs.
    const fn programs(self) -> &'static [&'static str] {
        match self {
            Self::ItgSend | Self::ItgSendPolling => &["ITGSend", "ITGRecv", "ITGDec"],
            Self::Mgen => &["mgen"],
            Self::Iperf3 => &["iperf3"],
        }
    }
}

/// Requested values of one run.
struct Request<'a> {
    work: &'a Path,
    rate: u32,
    size: u32,
    seconds: f64,
}

impl Request<'_> {
    fn file(&self, name: &str) -> PathBuf {
        self.work.join(name)
    }

    fn limit(&self) -> Duration {
        Duration::from_secs_f64(self.seconds) + READY
    }
}

/// Waits until a program listens on a TCP port, without touching it.
fn wait_for_port(port: u16) -> Result<()> {
    let deadline = Instant::now() + READY;
    while !listening(port) {
        ensure!(Instant::now() < deadline, "nobody listens on TCP port {port}");
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

fn listening(port: u16) -> bool {
    has_socket(std::process::id(), "tcp", port, Some("0A"))
}

/// The achieved rates of all generators that are installed, by the rate asked for.
pub(super) fn rates(plan: &Plan, size: u32) -> Result<Vec<(String, BTreeMap<u32, Estimate>)>> {
    let (there, missing): (Vec<Peer>, Vec<Peer>) =
        Peer::ALL.into_iter().partition(|peer| peer.programs().iter().all(|p| installed(p)));
    if !missing.is_empty() {
        let names: Vec<_> = missing.iter().map(|peer| peer.name()).collect();
        print(format_args!("not installed, so not beside us: {}", names.join(", ")));
    }
    let work = tempfile::tempdir().context("a directory for logs")?;
    let mut found: Vec<BTreeMap<u32, Vec<f64>>> = vec![BTreeMap::new(); there.len()];
    for round in 0..plan.trials {
        for index in order(there.len() * plan.first_rates.len(), round) {
            let (peer, rate) = (index % there.len(), plan.first_rates[index / there.len()]);
            // mgen and iperf3 count in whole seconds.
            let seconds = plan.seconds.max(1.0).round();
            let wish = Request { work: work.path(), rate, size, seconds };
            let got = match there[peer] {
                Peer::ItgSend => d_itg(&wish, &[]),
                Peer::ItgSendPolling => d_itg(&wish, &["-poll"]),
                Peer::Mgen => mgen(&wish),
                Peer::Iperf3 => iperf3(&wish),
            };
            match got {
                Ok(rate_got) => found[peer].entry(rate).or_default().push(rate_got),
                Err(error) => {
                    let name = there[peer].name();
                    print(format_args!("{name} at {rate} packets/s: left out: {error:#}"));
                }
            }
        }
    }
    let estimates = |rates: BTreeMap<u32, Vec<f64>>| {
        rates.into_iter().map(|(rate, values)| (rate, Estimate::of(&values))).collect()
    };
    let names = there.iter().map(|peer| peer.name().to_owned());
    Ok(names.zip(found.into_iter().map(estimates)).collect())
}

fn args_of_itgsend(wish: &Request<'_>) -> Command {
    let mut command = Command::new("ITGSend");
    command.current_dir(wish.work).args(["-a", "127.0.0.1"]);
    for (option, value) in [
        ("-Sdp", u64::from(CONTROL_PORT)),
        ("-rp", u64::from(DATA_PORT)),
        ("-C", u64::from(wish.rate)),
        ("-c", u64::from(wish.size)),
    ] {
        command.args([option, &value.to_string()]);
    }
    command.args(["-t", &format!("{:.0}", wish.seconds * 1e3)]);
    command
}

fn itgrecv(work: &Path) -> Result<Running> {
    let mut command = Command::new("ITGRecv");
    command.current_dir(work).args(["-Sp", &CONTROL_PORT.to_string()]);
    let receiver = Running::spawn(&mut command, &[])?;
    wait_for_port(CONTROL_PORT)?;
    Ok(receiver)
}

/// Packets in a log of D-ITG.
fn itgdec(log: &Path) -> Result<f64> {
    let done = Running::spawn(Command::new("ITGDec").arg(log), &[])?.wait(READY)?;
    total_packets(&done.out).with_context(|| format!("ITGDec {}: {}", log.display(), done.out))
}

/// The last `Total packets` of a summary, which is that of all flows.
fn total_packets(summary: &str) -> Option<f64> {
    let line = summary.lines().rev().find(|line| line.starts_with("Total packets"))?;
    line.split_once('=')?.1.trim().parse().ok()
}

fn d_itg(wish: &Request<'_>, args: &[&str]) -> Result<f64> {
    let receiver = itgrecv(wish.work)?;
    let log = wish.file("sender.log");
    let mut command = args_of_itgsend(wish);
    command.args(args).arg("-l").arg(&log);
    Running::spawn(&mut command, &[])?.wait(wish.limit())?.ended_with(&[0])?;
    receiver.stop(Signal::SIGINT, READY)?;
    Ok(itgdec(&log)? / wish.seconds)
}

fn mgen(wish: &Request<'_>) -> Result<f64> {
    let log = wish.file("mgen.txt");
    let flow = format!("ON 1 UDP DST 127.0.0.1/{DATA_PORT} PERIODIC [{} {}]", wish.rate, wish.size);
    let end = format!("{:.1} OFF 1", wish.seconds);
    let mut command = Command::new("mgen");
    command.args(["txlog", "output"]).arg(&log).args(["event", &flow, "event", &end]);
    Running::spawn(&mut command, &[])?.wait(wish.limit())?.ended_with(&[0])?;
    let text = fs::read_to_string(&log).context("the log of mgen")?;
    let sent = text.lines().filter(|line| line.contains(" SEND ")).count();
    Ok(sent as f64 / wish.seconds)
}

fn iperf3(wish: &Request<'_>) -> Result<f64> {
    let port = CONTROL_PORT.to_string();
    let mut server = Command::new("iperf3");
    let server = Running::spawn(server.args(["-s", "-1", "-p", &port]), &[])?;
    wait_for_port(CONTROL_PORT)?;
    let bits = u64::from(wish.rate) * u64::from(wish.size) * 8;
    let mut command = Command::new("iperf3");
    command.args(["-c", "127.0.0.1", "-p", &port, "-u", "-J", "-b", &bits.to_string()]);
    command.args(["-l", &wish.size.to_string(), "-t", &format!("{:.0}", wish.seconds)]);
    let done = Running::spawn(&mut command, &[])?.wait(wish.limit())?.ended_with(&[0])?;
    server.wait(READY)?;
    let report: Value = serde_json::from_str(&done.out).context("the report of iperf3")?;
    let sent = &report["end"]["sum_sent"];
    let packets = sent["packets"].as_f64().context("no packets in iperf3's report")?;
    Ok(packets / sent["seconds"].as_f64().unwrap_or(wish.seconds))
}

/// D-ITG's sender with its log server: by name and rate asked for.
pub(super) fn log_servers(
    plan: &Plan,
    size: u32,
    rates: &[u32],
) -> Result<BTreeMap<(String, u32), Vec<Trial>>> {
    let mut found = BTreeMap::new();
    if !["ITGSend", "ITGRecv", "ITGLog", "ITGDec"].iter().all(|program| installed(program)) {
        print("not installed, so not beside itg-log: ITGLog");
        return Ok(found);
    }
    if listening(ITGLOG_PORT) {
        print(format_args!("TCP port {ITGLOG_PORT} is taken, so ITGLog is not beside itg-log"));
        return Ok(found);
    }
    let work = tempfile::tempdir().context("a directory for logs")?;
    let transports = ["UDP", "TCP"];
    for round in 0..plan.trials {
        for index in order(rates.len() * transports.len(), round) {
            let transport = transports[index % transports.len()];
            let rate = rates[index / transports.len()];
            let seconds = plan.seconds.max(0.5);
            let wish = Request { work: work.path(), rate, size, seconds };
            match itglog(&wish, transport) {
                Ok(packets) => {
                    let key = (format!("ITGLog, {transport}"), rate);
                    let rate = f64::from(rate);
                    let trial = Trial::of(packets, seconds, seconds, rate, Duration::ZERO);
                    found.entry(key).or_insert_with(Vec::new).push(trial);
                }
                Err(error) => print(format_args!("ITGLog, {transport}, {rate}: {error:#}")),
            }
        }
    }
    Ok(found)
}

fn itglog(wish: &Request<'_>, transport: &str) -> Result<f64> {
    let mut command = Command::new("ITGLog");
    let server = Running::spawn(command.current_dir(wish.work), &[])?;
    wait_for_port(ITGLOG_PORT)?;
    let receiver = itgrecv(wish.work)?;
    let mut command = args_of_itgsend(wish);
    command.args(["-poll", "-L", "127.0.0.1", transport, "-l", "remote.log"]);
    Running::spawn(&mut command, &[])?.wait(wish.limit())?.ended_with(&[0])?;
    // ITGLog writes on after the sender has ended.
    std::thread::sleep(Duration::from_millis(300));
    receiver.stop(Signal::SIGINT, READY)?;
    server.stop(Signal::SIGINT, READY)?;
    itgdec(&wish.file("remote.log"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_of_several_flows_ends_with_their_total() {
        let text =
            "Total packets            =          6880\nx\nTotal packets            =   7000\n";
        assert_eq!(total_packets(text), Some(7000.0));
        assert_eq!(total_packets("nothing"), None);
    }
}
