//! `itg-bench cluster`: cost of a cluster for a flow, and accuracy of a common start.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use itg_record::{Item, Kind, LogReader, Note};
use itg_testkit::child::Running;
use itg_trials::{Claim, Estimate, Lines, order, print, ratio, with_interval};

use crate::agents::{Agents, logs};
use crate::programs::{Location, Programs};

/// Agents of the measurement of rates; one of them sends, one receives.
const AGENTS: usize = 8;
/// Bytes of a packet.
const SIZE: u32 = 512;
/// A flow sent by an agent has at least this part of the rate that itg-send alone reaches.
const BAR: f64 = 0.95;
/// Agents of the common start.
const STARTERS: usize = 32;
/// Upper bound of the lateness of first packets, in milliseconds.
const START_BAR_MS: f64 = 1.0;
/// Time that a trial may take beyond its packets.
const LIMIT: Duration = Duration::from_secs(60);

#[derive(Debug, Args)]
pub(crate) struct ClusterArgs {
    /// Trials of each
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    trials: u32,
    /// Length of a trial
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=60))]
    seconds: u64,
}

pub(crate) fn run(args: &ClusterArgs) -> Result<()> {
    rates(args)?;
    start()
}

/// Packets of a receiver's log, and how long they took to arrive, in thousands a second.
fn kpps(log: &Path) -> Result<f64> {
    let bytes = fs::read(log).with_context(|| format!("log {}", log.display()))?;
    let (mut packets, mut first, mut last) = (0u64, u64::MAX, 0);
    for item in LogReader::new(&bytes) {
        if let Item::Records { records, .. } = item {
            for record in records.filter(|record| record.kind == Kind::Received) {
                packets += 1;
                (first, last) = (first.min(record.b), last.max(record.b));
            }
        }
    }
    ensure!(last > first, "{}: no packets", log.display());
    Ok(packets as f64 / ((last - first) as f64 / 1e9) / 1e3)
}

fn rates(args: &ClusterArgs) -> Result<()> {
    let programs = Programs::find()?;
    let agents = Agents::new(AGENTS, false)?;
    let seconds = format!("{}s", args.seconds);
    let limit = LIMIT + Duration::from_secs(args.seconds);
    let alone = |round: usize| -> Result<f64> {
        let log = agents.path(&format!("alone-{round}.itg"));
        let receiver = programs.receiver(
            &Location::Here,
            "127.0.0.1",
            &["--log".to_owned(), log.display().to_string()],
            &[],
        )?;
        let mut send = Command::new(programs.path("itg-send"));
        send.arg(&receiver.address).args(["--idt", "constant(0s)", "--duration", &seconds, "-q"]);
        send.args(["--size", &format!("constant({SIZE})"), "--log"]);
        send.arg(agents.path(&format!("alone-sent-{round}.itg")));
        drop(Running::spawn(&mut send, &[])?.wait(limit)?.ended_with(&[0])?);
        drop(receiver.stop()?);
        let rate = kpps(&log)?;
        fs::remove_file(log)?;
        fs::remove_file(agents.path(&format!("alone-sent-{round}.itg")))?;
        Ok(rate)
    };
    let within = |round: usize| -> Result<f64> {
        let out = agents.path(&format!("out-{round}"));
        let flow = format!(
            "[[flow]]\nfrom = \"{}\"\nto = \"{}\"\nidt = \"constant(0s)\"\nsize = \"constant({SIZE})\"\n\
             duration = \"{seconds}\"\n",
            Agents::name(0),
            Agents::name(1)
        );
        drop(agents.run(&flow, &out, &[])?.wait(limit)?.ended_with(&[0])?);
        let mut found = logs(&out.join(Agents::name(1)))?;
        let log = found.pop().context("a receiver's log")?;
        let rate = kpps(&log)?;
        fs::remove_dir_all(out)?;
        // Agents keep their own logs: millions of packets each time.
        for node in 0..AGENTS {
            for run in fs::read_dir(agents.path(&format!("agent-{node}")))?.flatten() {
                fs::remove_dir_all(run.path())?;
            }
        }
        Ok(rate)
    };
    let mut found = [const { Vec::new() }; 2];
    for round in 0..args.trials as usize {
        for which in order(2, round) {
            found[which].push(if which == 0 { alone(round)? } else { within(round)? });
        }
    }
    let mut lines = Lines::new(["one UDP flow flat out", "kpps received"]);
    for (what, rates) in
        ["itg-send and itg-recv", "8 agents, one sends to another"].iter().zip(&found)
    {
        lines.row([(*what).to_owned(), with_interval(Estimate::of(rates), 0)]);
    }
    print(format_args!("\n{SIZE} bytes, {seconds}, {} trials in turns\n\n{lines}\n", args.trials));
    let part = ratio(&found[1], &found[0]);
    print(Claim::new(
        part.mid >= BAR,
        &format!("agents reach {} of the rate alone, >= {BAR}", with_interval(part, 3)),
    ));
    Ok(())
}

/// Lateness of the first packet of each flow of a sender's log, in milliseconds; below 0 where it left early.
fn lateness(log: &Path) -> Result<Vec<f64>> {
    let bytes = fs::read(log)?;
    let mut epochs = BTreeMap::new();
    let mut late = Vec::new();
    for item in LogReader::new(&bytes) {
        match item {
            Item::Note { note: Note::Flow(info), .. } => {
                epochs.insert(info.index, info.epoch_unix_ns);
            }
            Item::Records { records, .. } => {
                for record in records.filter(|r| r.kind == Kind::Sent && r.seq == 0) {
                    let epoch = epochs.get(&record.flow).context("a flow's note")?;
                    late.push(record.b.wrapping_sub(epoch + record.a).cast_signed() as f64 / 1e6);
                }
            }
            _ => {}
        }
    }
    Ok(late)
}

fn start() -> Result<()> {
    let agents = Agents::new(STARTERS, false)?;
    let flows: String = (0..STARTERS)
        .map(|node| {
            format!(
                "[[flow]]\nfrom = \"{}\"\nto = \"{}\"\nidt = \"constant(10ms)\"\nduration = \"1s\"\n",
                Agents::name(node),
                Agents::name((node + 1) % STARTERS)
            )
        })
        .collect();
    let out = agents.path("start");
    drop(agents.run(&flows, &out, &[])?.wait(LIMIT)?.ended_with(&[0])?);
    let mut late = Vec::new();
    for node in 0..STARTERS {
        for log in logs(&out.join(Agents::name(node)))? {
            if log.file_name().is_some_and(|name| name.to_string_lossy().starts_with("sender")) {
                late.extend(lateness(&log)?);
            }
        }
    }
    ensure!(late.len() == STARTERS, "{} of {STARTERS} flows have a first packet", late.len());
    late.sort_by(f64::total_cmp);
    let (median, worst) = (late[late.len() / 2], late[late.len() - 1]);
    print(format_args!(
        "\nCommon start of {STARTERS} agents on one clock: first packets {median:.3} ms late at the median, {worst:.3} ms at \
         most, {:.3} ms apart\n",
        worst - late[0]
    ));
    print(Claim::new(
        worst <= START_BAR_MS,
        &format!("first packets at most {START_BAR_MS} ms late"),
    ));
    Ok(())
}
