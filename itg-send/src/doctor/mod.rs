//! `itg-send doctor`: measured limits of this host, in words that a run can be held to.

mod promise;
mod rates;

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::{Args, ValueEnum};
use itg_cli::{DOCTOR_SCHEMA, Failure, PacingArgs, WordArgs, refuse, say};
use itg_core::units::{format_bytes, format_duration_ns};
use itg_engine::pacing::{Level, PacingOptions, Prepared, calibrate};
use itg_experiment::PacingEntry;
use itg_socket::probe::{Costs, HostFacts, steal_ticks};
use itg_socket::{PacketEngine, rate_over_a_link};
use serde::Serialize;

use self::promise::{FREE_OF_LOSS, Promise};
use self::rates::{SIZE, Trial};

/// Time between measured wake-ups: 1 ms.
const WAKE_EVERY_NS: u64 = 1_000_000;
/// Rates whose precision is measured, in packets a second.
const RATES_PPS: [u32; 5] = [100, 1_000, 10_000, 50_000, 100_000];
/// Shares of the rate that is reached without pacing, tried until one is free of loss.
const STEPS: [f64; 7] = [1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4];

/// Arguments of `doctor`.
#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    pacing: PacingArgs,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Measure for 10 s instead of a minute: wider promises
    #[arg(long)]
    quick: bool,
    /// Write the JSON to this file as well
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Text
    Text,
    /// One JSON object
    Json,
}

/// Wake-ups of one level.
#[derive(Clone, Debug, Serialize)]
struct Wakes {
    level: &'static str,
    granted: String,
    p50_ns: u64,
    p99_ns: u64,
    max_ns: u64,
    cpu_share: f64,
}

/// Rate that an engine reaches over a link between two namespaces, or why that is not known.
#[derive(Clone, Debug, Serialize)]
struct EngineRate {
    engine: &'static str,
    pps: Option<f64>,
    why_not: Option<String>,
}

/// All that was found.
#[derive(Clone, Debug, Serialize)]
struct Findings {
    schema: u32,
    host: HostFacts,
    /// Share of the processors that the hypervisor gave to others meanwhile.
    steal: Option<f64>,
    costs: Costs,
    wake_ups: Vec<Wakes>,
    /// Waiting of the sending thread in the trials, and what was granted.
    pacing: String,
    packet_bytes: u32,
    engines: Vec<EngineRate>,
    trials: Vec<Trial>,
    promise: Promise,
}

pub(crate) fn run(args: &DoctorArgs, words: WordArgs) -> Result<ExitCode> {
    let options = args.pacing.options(&PacingEntry::default());
    if options.engine != PacketEngine::default() {
        return Err(refuse("doctor measures every engine: leave --engine out"));
    }
    if options.level == Some(Level::Txtime) || options.tx_stamps.is_some() {
        return Err(refuse(
            "doctor measures the sending thread over loopback, where no queue keeps times: leave --pacing \
             txtime and --tx-stamps out",
        ));
    }
    if options.sockets.is_some() {
        return Err(refuse("doctor measures flows with sockets of their own: leave --sockets out"));
    }
    let findings = examine(options, args.quick, words.quiet)?;
    let json = serde_json::to_string_pretty(&findings)? + "\n";
    if let Some(path) = &args.output {
        fs::write(path, &json)
            .map_err(|error| Failure::new(1, format!("{}: {error}", path.display())))?;
    }
    itg_cli::print(&match args.format {
        Format::Json => json,
        Format::Text => describe(&findings)?,
    })?;
    Ok(ExitCode::SUCCESS)
}

fn examine(options: PacingOptions, quick: bool, quiet: bool) -> Result<Findings> {
    let tell = |text: &str| {
        if !quiet {
            say(text);
        }
    };
    let before = steal_ticks();
    let (wakes, trials_a_rate, trial_ns) =
        if quick { (500, 4, 400_000_000) } else { (2_000, promise::TRIALS, 500_000_000) };
    tell("measuring wake-ups …");
    let wake_ups = Level::WAITS.iter().map(|&level| {
        let prepared = Prepared::new(level, options);
        let errors = calibrate(&prepared, WAKE_EVERY_NS, wakes);
        Wakes {
            level: level.name(),
            granted: prepared.describe(),
            p50_ns: errors.p50_ns,
            p99_ns: errors.p99_ns,
            max_ns: errors.max_ns,
            cpu_share: errors.cpu_share,
        }
    });
    let wake_ups = wake_ups.collect();
    let dir = tempfile::tempdir().context("a directory for the logs of the trials")?;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let trial = |rate_pps| runtime.block_on(rates::trial(rate_pps, trial_ns, options, dir.path()));
    let mut trials = Vec::new();
    for rate_pps in RATES_PPS {
        tell(&format!("measuring {rate_pps} packets/s …"));
        for _ in 0..trials_a_rate {
            trials.push(trial(rate_pps)?);
        }
    }
    tell("measuring engines …");
    let engines = PacketEngine::ALL.map(|engine| {
        let rate = rate_over_a_link(engine, SIZE as usize, trial_ns);
        EngineRate { engine: engine.name(), pps: rate.as_ref().ok().copied(), why_not: rate.err() }
    });
    let engines = engines.into();
    tell("measuring the highest rate …");
    let flat_out = trial(0)?;
    trials.push(flat_out);
    for step in STEPS {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate")]
        let rate_pps = (flat_out.arrived_pps * step) as u32;
        let reached = trial(rate_pps.max(1))?;
        trials.push(reached);
        if reached.lost < FREE_OF_LOSS {
            break;
        }
    }
    let steal = before.zip(steal_ticks()).map(|((stolen, all), (stolen_now, all_now))| {
        (stolen_now - stolen) as f64 / all_now.saturating_sub(all).max(1) as f64
    });
    Ok(Findings {
        schema: DOCTOR_SCHEMA,
        host: HostFacts::gather(),
        steal,
        costs: Costs::measure(),
        wake_ups,
        pacing: Prepared::new(options.level.unwrap_or_default(), options).describe(),
        packet_bytes: SIZE,
        engines,
        promise: Promise::of(&trials),
        trials,
    })
}

/// A length of time to three digits.
fn about(ns: u64) -> String {
    let step = 10u64.pow(ns.max(1).ilog10().saturating_sub(2));
    format_duration_ns(ns.div_ceil(step) * step)
}

fn describe(found: &Findings) -> Result<String> {
    let mut text = String::new();
    let host = &found.host;
    let known = |fact: &Option<String>| fact.clone().unwrap_or_else(|| "unknown".to_owned());
    let has = |fact: bool| if fact { "yes" } else { "no" };
    let bytes =
        |n: Option<usize>| n.map_or_else(|| "unknown".to_owned(), |n| format_bytes(n as u64));
    writeln!(
        text,
        "host       {}, {}, {} processors, governor {}, {} of the time taken by the hypervisor",
        host.host,
        host.os,
        host.processors,
        known(&host.governor),
        found.steal.map_or_else(|| "unknown share".to_owned(), |s| format!("{:.2} %", 100.0 * s)),
    )?;
    let sync = match host.clock_synchronised {
        Some(true) => "synchronised",
        Some(false) => "not synchronised",
        None => "synchronisation unknown",
    };
    writeln!(
        text,
        "clock      {}, {sync}; reading it costs {:.0} ns, a system call {:.0} ns",
        known(&host.clock_source),
        found.costs.clock_ns,
        found.costs.system_call_ns
    )?;
    writeln!(
        text,
        "sockets    receive buffer {}, send buffer {}; kernel stamps on arrivals: {}, on departures: {}; \
         UDP segmentation: {}, coalescing: {}",
        bytes(host.receive_buffer_bytes),
        bytes(host.send_buffer_bytes),
        has(host.receive_stamps),
        has(host.transmit_stamps),
        has(host.udp_segmentation),
        has(host.udp_coalescing),
    )?;
    writeln!(text, "wake-ups   level         p50         p99         max  processor")?;
    for wakes in &found.wake_ups {
        let [p50, p99, max] = [wakes.p50_ns, wakes.p99_ns, wakes.max_ns].map(about);
        let cpu = 100.0 * wakes.cpu_share;
        writeln!(text, "           {:<8} {p50:>8} {p99:>11} {max:>11} {cpu:>8.1} %", wakes.level)?;
    }
    writeln!(text, "engines    UDP, {SIZE} bytes, a link between two namespaces, no logs")?;
    for rate in &found.engines {
        let reached = match (rate.pps, &rate.why_not) {
            (Some(pps), _) => format!("{:.0} kpps", pps / 1e3),
            (None, why) => format!("not measured: {}", why.as_deref().unwrap_or("unknown")),
        };
        writeln!(text, "           {:<8} {reached}", rate.engine)?;
    }
    writeln!(
        text,
        "rates      UDP, {} bytes, loopback, both sides logging every packet",
        found.packet_bytes
    )?;
    writeln!(text, "           asked pps  arrived pps     lost   late by (p99)")?;
    for trial in &found.trials {
        let asked = match trial.asked_pps {
            0 => "all".to_owned(),
            rate => rate.to_string(),
        };
        // Without a plan there is nothing to be late for.
        let late = match trial.asked_pps {
            0 => "-".to_owned(),
            _ => about(trial.lateness_p99_ns),
        };
        writeln!(
            text,
            "           {asked:>9} {:>12.0} {:>6.2} % {late:>15}",
            trial.arrived_pps,
            100.0 * trial.lost
        )?;
    }
    writeln!(text, "promise    {}", found.promise)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::about;

    #[test]
    fn times_are_told_to_three_digits() {
        for (ns, want) in [(0, "0s"), (999, "999ns"), (39_192, "39.2us"), (3_643_822, "3.65ms")] {
            assert_eq!(about(ns), want);
        }
    }
}
