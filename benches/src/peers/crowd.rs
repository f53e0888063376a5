//! More flows than a host has ports: they share sockets, and two receivers have half of them each.

use std::time::Duration;

use anyhow::{Context as _, Result};
use itg_testkit::child::Running;
use itg_trials::{Lines, print, with_interval};

use super::bars::Book;
use super::flows::raw_lateness;
use super::options::PeersArgs;
use super::tools::{Distribution, Load, RECEIVER, SEED, SENDER, Stage, Tool};
use super::trial::{progress, trial};
use crate::arrivals::Arrivals;
use crate::programs::memory;

/// Flows of one packet a second.
const FLOWS: u32 = 100_000;
/// A receiver takes 65 536 flows.
const RECEIVERS: u32 = 2;
const SOCKETS: u32 = 64;
const SIZE: usize = 64;
/// Time that the programs may take to agree on all flows and to account for them.
const AGREED: Duration = Duration::from_secs(300);
/// Bars: 99th percentile of lateness in microseconds, share of the packets.
const LATE_P99_BAR_US: f64 = 1000.0;
const SHARE_BAR: f64 = 0.999;

pub(super) fn run(args: &PeersArgs, stage: &Stage, book: &mut Book) -> Result<()> {
    let seconds = args.seconds(5);
    let table =
        format!("{FLOWS} flows of a packet/s through {SOCKETS} sockets, starts spread over 1 s");
    // All of them together send at even times, as one flow of their rate does.
    let on_time = Load {
        rate: Some(f64::from(FLOWS)),
        distribution: Distribution::Constant,
        size: SIZE,
        seconds,
        flows: 1,
        tcp: false,
    };
    let [mut p50, mut p99, mut kept, mut raw] = [const { Vec::new() }; 4];
    for round in 0..args.runs() {
        progress(&table, round, args.runs());
        raw.push(raw_lateness(&trial(Tool::RawSpin, &on_time, stage)?.sender.out)?);
        let arrivals = arrivals(stage, seconds)?;
        p50.push(arrivals.late_us(50));
        p99.push(arrivals.late_us(99));
        kept.push(arrivals.share());
    }
    let mut lines = Lines::new(["", "arrived late by, p50 µs", "p99 µs", "share of the plan"]);
    let row = "itg-send --sockets";
    let [late, late_p99, share] =
        [("late p50 us", &p50), ("late p99 us", &p99), ("share of the plan", &kept)]
            .map(|(figure, values)| book.figure(&table, row, figure, values));
    let cells = [(late, 1), (late_p99, 1), (share, 4)];
    let cells = cells.map(|(estimate, digits)| with_interval(estimate, digits));
    lines.row(std::iter::once(row.to_owned()).chain(cells));
    print(format_args!(
        "\n{table}, {seconds} s, {} trials in turns\n\n{lines}\n\nA raw loop that spins and sends as many packets, at \
         even times and without logs: its calls are late by {} µs at p99.\n",
        args.runs(),
        with_interval(book.figure(&table, "raw loop on time", "late p99 us", &raw), 1)
    ));
    let (late_p99, share) = (late_p99.mid, share.mid);
    let what = format!("{table}: late by {late_p99:.1} µs at p99, <= {LATE_P99_BAR_US}");
    book.bar(late_p99 <= LATE_P99_BAR_US, what);
    book.bar(share >= SHARE_BAR, format!("{table}: {:.2} % of the plan arrived", 100.0 * share));
    Ok(())
}

/// Packets of a trial at both receivers.
fn arrivals(stage: &Stage, seconds: u64) -> Result<Arrivals> {
    let work = tempfile::Builder::new().prefix("itg-bench-").tempdir_in(memory())?;
    let mut experiment = format!(
        "schema = 1\nname = 'crowd'\nseed = {SEED}\n[nodes]\nsender = {{ address = '{}' }}\n",
        stage.address
    );
    let (mut receivers, mut logs, mut flows) = (Vec::new(), Vec::new(), String::new());
    for number in 0..RECEIVERS {
        let log = work.path().join(format!("r{number}.itg"));
        let options = ["--receive-buffer", "64MiB", "--log"].map(str::to_owned);
        let options: Vec<_> = options.into_iter().chain([log.display().to_string()]).collect();
        let receiver =
            stage.programs.receiver(&stage.receiver, stage.address, &options, RECEIVER)?;
        experiment += &format!("r{number} = {{ address = '{}' }}\n", receiver.address);
        flows += &format!(
            "[[flow]]\nfrom = 'sender'\nto = 'r{number}'\ncount = {}\nrate = '1pps'\nsize = {SIZE}\n\
             stagger = '1s'\nduration = '{seconds}s'\n",
            FLOWS / RECEIVERS
        );
        receivers.push(receiver);
        logs.push(log);
    }
    let file = work.path().join("crowd.toml");
    std::fs::write(&file, experiment + &flows)?;
    let mut command = stage.sender.command(&stage.programs.path("itg-send"));
    command.arg("run").arg(&file).args(["--node", "sender", "-q"]);
    command.args(["--sockets", &SOCKETS.to_string()]);
    let sender = Running::spawn(&mut command, SENDER)?;
    sender.wait(AGREED + Duration::from_secs(seconds))?.ended_with(&[0])?;
    for receiver in receivers {
        receiver.stop()?.ended_with(&[130])?;
    }
    let logs: Result<Vec<_>> =
        logs.iter().map(|log| std::fs::read(log).context("a receiver's log")).collect();
    Arrivals::of(&logs?, u64::from(FLOWS))
}
