//! Test of the promise of `itg-send doctor`: one examination, then many runs at the rate that it
//! promised.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use itg_cli::say;
use itg_testkit::child::Running;
use itg_trials::{Claim, Estimate, print, with_interval};
use serde_json::Value;

use crate::programs::{Location, Programs, READY, memory};

/// Share of the runs in which the promise has to hold.
const BAR: f64 = 0.95;
/// Time that the examination may take.
const PATIENCE: Duration = Duration::from_secs(600);

/// Options of `doctor`.
#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Runs after the examination
    #[arg(long, default_value_t = 40)]
    runs: usize,
    /// Length of a run in seconds
    #[arg(long, default_value_t = 1)]
    seconds: u64,
    /// Let doctor measure for seconds and not for a minute
    #[arg(long)]
    quick: bool,
}

/// Promise of doctor: rate in packets a second, and lateness that 99 % of the packets do not
/// exceed.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Promised {
    rate_pps: u64,
    late_p99_ns: u64,
}

impl Promised {
    /// The highest rate of a report that is exact, as its text says it; the last one when none is.
    fn of(report: &Value) -> Result<Self> {
        let all = report["promise"]["precision"].as_array().context("no promise")?;
        let read = |entry: &Value| {
            let rate_pps = entry["rate_pps"].as_u64()?;
            Some(Self { rate_pps, late_p99_ns: entry["late_p99_ns"].as_u64()? })
        };
        let all: Vec<_> = all.iter().filter_map(read).collect();
        let exact = all.iter().rev().find(|promised| promised.late_p99_ns <= 20_000);
        exact.or_else(|| all.first()).copied().context("doctor promised nothing")
    }
}

pub(crate) fn run(args: &DoctorArgs) -> Result<()> {
    let programs = Programs::find()?;
    let mut command = Command::new(programs.path("itg-send"));
    command.args(["doctor", "--format", "json", "-q"]);
    if args.quick {
        command.arg("--quick");
    }
    say("itg-bench: itg-send doctor examines this host");
    let done = Running::spawn(&mut command, &[])?.wait(PATIENCE)?.ended_with(&[0])?;
    let report: Value = serde_json::from_str(&done.out).context("the report of doctor")?;
    let promised = Promised::of(&report)?;
    let bound_us = promised.late_p99_ns as f64 / 1e3;
    print(format_args!(
        "promise: {} packets/s, 99 % late by at most {bound_us} µs",
        promised.rate_pps
    ));
    let dir = tempfile::Builder::new().prefix("itg-bench-").tempdir_in(memory())?;
    let [sent, received] = ["s.itg", "r.itg"].map(|name| dir.path().join(name));
    let log = ["--log".to_owned(), received.display().to_string()];
    let mut late = Vec::with_capacity(args.runs);
    for run in 0..args.runs.max(1) {
        say(format_args!("itg-bench: run {} of {}", run + 1, args.runs));
        let receiver = programs.receiver(&Location::Here, "127.0.0.1", &log, &[])?;
        let mut command = Command::new(programs.path("itg-send"));
        command.args([&receiver.address, "-q", "--seed", "1", "--size", "constant(512)"]);
        command.args(["--rate", &format!("{}pps", promised.rate_pps)]);
        command.args(["--duration", &format!("{}s", args.seconds)]).arg("--log").arg(&sent);
        let limit = READY + Duration::from_secs(args.seconds);
        Running::spawn(&mut command, &[])?.wait(limit)?.ended_with(&[0])?;
        receiver.stop()?.ended_with(&[130])?;
        let decoded = programs.decode(&sent)?;
        ensure!(decoded.packets > 0.0, "nothing was sent");
        late.push(decoded.late_us.context("no lateness in the report")?);
    }
    let kept = late.iter().filter(|late| **late <= bound_us).count();
    print(format_args!(
        "{} runs of {} s: late by {} µs at p99",
        late.len(),
        args.seconds,
        with_interval(Estimate::of(&late), 1)
    ));
    let good = kept as f64 >= BAR * late.len() as f64;
    print(Claim::new(good, &format!("kept in {kept} of {} runs, {BAR} asked for", late.len())));
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_promise_is_the_one_that_the_text_says() {
        let entry = |rate, late| json!({"rate_pps": rate, "late_p99_ns": late});
        let report = |all: &[Value]| json!({"promise": {"precision": all}});
        let all = [entry(1_000, 3_400), entry(50_000, 13_000), entry(100_000, 130_000)];
        let want = Promised { rate_pps: 50_000, late_p99_ns: 13_000 };
        assert_eq!(Promised::of(&report(&all)).expect("a promise"), want);
        let want = Promised { rate_pps: 100_000, late_p99_ns: 130_000 };
        assert_eq!(Promised::of(&report(&all[2..])).expect("a promise"), want);
        assert!(Promised::of(&report(&[])).is_err());
    }
}
