//! A receiver of several threads: does it lose packets, what does it reach here, and what would it where each thread
//! has a processor?

use anyhow::{Context as _, Result, ensure};
use itg_core::seed::RunSeed;
use itg_core::streams::unit;
use itg_trials::{Estimate, Lines, order, print, ratio, with_interval};

use super::bars::Book;
use super::options::PeersArgs;
use super::tools::Stage;
use super::trial::{ours, progress, report};
use crate::programs::memory;

/// Threads of the receiver.
const SHARDS: [u32; 4] = [1, 2, 4, 8];
const FLOWS: u32 = 16;
const SIZE: u32 = 64;
/// Packets a second of each flow where nothing may be lost.
const PACED: &str = "2000pps";
/// Packets that wait in a socket's buffer, in the simulation: 212 992 bytes, each packet 768 of them.
const WAITING: f64 = 277.0;
/// Packets a thread that the simulation draws.
const DRAWN: u32 = 200_000;
/// Share of them that may be lost.
const LOST: f64 = 0.001;

/// What came of the packets of one trial.
#[derive(Clone, Copy, Debug)]
struct Trial {
    arrived: f64,
    lost: f64,
    /// Packets received a second while they were sent.
    kpps: f64,
    /// Processor time of the receiver a packet.
    cpu_ns: f64,
}

pub(super) fn run(args: &PeersArgs, stage: &Stage, book: &mut Book) -> Result<()> {
    let seconds = args.seconds(2);
    let table = format!("{FLOWS} flows to a receiver of several threads");
    let mut flat_out: Vec<Vec<Trial>> = vec![Vec::new(); SHARDS.len()];
    let mut paced = flat_out.clone();
    for round in 0..args.runs() {
        progress(&table, round, args.runs());
        for place in order(SHARDS.len(), round) {
            flat_out[place].push(trial(stage, SHARDS[place], &["--rate", "max"], seconds)?);
            paced[place].push(trial(stage, SHARDS[place], &["--rate", PACED], seconds)?);
        }
    }
    let all = |trials: &[Trial], of: fn(&Trial) -> f64| trials.iter().map(of).collect::<Vec<_>>();
    let service_ns = Estimate::of(&all(&flat_out[0], |trial| trial.cpu_ns)).mid;
    let kpps_of_one = all(&flat_out[0], |trial| trial.kpps);
    let mut lines = Lines::new([
        "threads",
        "kpps received, flat out",
        "of one thread",
        "ns of processor a packet",
        "lost of the paced",
        "kpps, simulated",
    ]);
    for ((shards, flat_out), paced) in SHARDS.iter().zip(&flat_out).zip(&paced) {
        let row = shards.to_string();
        let kpps = all(flat_out, |trial| trial.kpps);
        let cpu = all(flat_out, |trial| trial.cpu_ns);
        let lost = all(paced, |trial| trial.lost);
        let rate = book.figure(&table, &row, "kpps received", &kpps);
        lines.row([
            row.clone(),
            with_interval(rate, 0),
            with_interval(ratio(&kpps, &kpps_of_one), 2),
            with_interval(book.figure(&table, &row, "ns of processor a packet", &cpu), 0),
            with_interval(book.figure(&table, &row, "lost of the paced", &lost), 0),
            format!("{:.0}", simulated_kpps(*shards, service_ns)),
        ]);
    }
    print(format_args!(
        "\n{table}, {SIZE} B, flat out and at {PACED} each; {seconds} s, {} trials in turns; simulated: a processor for \
         each thread, {service_ns:.0} ns a packet, random arrivals\n\n{lines}\n",
        args.runs()
    ));
    for (shards, paced) in SHARDS.iter().zip(&paced) {
        let (lost, all) = paced.iter().fold((0.0, 0.0), |(lost, all), trial| {
            (lost + trial.lost, all + trial.arrived + trial.lost)
        });
        book.bar(lost == 0.0, format!("{table}: {shards}: {lost:.0} of {all:.0} lost, 0 wanted"));
    }
    Ok(())
}

fn trial(stage: &Stage, shards: u32, rate: &[&str], seconds: u64) -> Result<Trial> {
    let work = tempfile::Builder::new().prefix("itg-bench-").tempdir_in(memory())?;
    let [sent, arrived] = ["s.itg", "r.itg"].map(|name| work.path().join(name));
    let options = ["--shards", &shards.to_string(), "--log"].map(str::to_owned);
    let options: Vec<_> = options.into_iter().chain([arrived.display().to_string()]).collect();
    let receiver = stage.programs.receiver(&stage.receiver, stage.address, &options, &[])?;
    let (flows, size, log) = (FLOWS.to_string(), SIZE.to_string(), sent.display().to_string());
    let options = [rate, &["--flows", &flows, "--size", &size, "--log", &log]].concat();
    let (sender, limit) = ours(stage, &receiver.address, &options, seconds)?;
    sender.wait(limit)?.ended_with(&[0])?;
    let done = receiver.stop()?.ended_with(&[130])?;
    let report = report(stage, &[&sent, &arrived])?;
    let total = |figure: &'static str| report["total"][figure].as_f64().context(figure);
    let (sent, packets, lost) = (total("sent_packets")?, total("packets")?, total("lost")?);
    let arrived = packets - total("duplicated")?;
    ensure!((arrived + lost - sent).abs() < 0.5, "{sent} sent, {arrived} arrived, {lost} lost");
    Ok(Trial {
        arrived,
        lost,
        kpps: total("packet_rate_pps")? / 1e3,
        cpu_ns: done.cpu.as_secs_f64() * 1e9 / arrived,
    })
}

/// Thousands of packets a second of all flows that so many threads take without loss, each with its processor and its
/// socket buffer: random arrivals (a Poisson process), constant work.
fn simulated_kpps(shards: u32, service_ns: f64) -> f64 {
    let busiest = FLOWS.div_ceil(shards);
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..12 {
        let load = f64::midpoint(low, high);
        if lost_share(load, shards) <= LOST { low = load } else { high = load }
    }
    low * 1e6 / service_ns * f64::from(FLOWS) / f64::from(busiest)
}

/// Share of its packets that a thread loses which is busy for this part of its time. Times are those of a packet's work.
fn lost_share(load: f64, seed: u32) -> f64 {
    let mut stream = RunSeed(u64::from(seed)).named("shards");
    let (mut now, mut idle_at, mut lost) = (0.0_f64, 0.0_f64, 0_u32);
    for _ in 0..DRAWN {
        now -= unit(&mut stream).ln() / load;
        if idle_at - now > WAITING {
            lost += 1;
        } else {
            idle_at = idle_at.max(now) + 1.0;
        }
    }
    f64::from(lost) / f64::from(DRAWN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_with_processors_of_their_own_take_as_many_times_more() {
        // The queue is long beside the work of a packet: nearly all of a processor can be used.
        let one = simulated_kpps(1, 1000.0);
        assert!((950.0..1000.0).contains(&one), "{one}");
        let eight = simulated_kpps(8, 1000.0);
        assert!((7.8..8.2).contains(&(eight / one)), "{eight}");
        assert!(lost_share(1.2, 1) > 0.1 && lost_share(0.5, 1) == 0.0);
    }
}
