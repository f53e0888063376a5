//! One trial of one generator, and which of them are here.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};
use itg_cli::say;
use itg_testkit::child::{Output, Running};
use itg_trials::print;
use serde_json::Value;

use super::tools::{self, Load, Stage, Tool};
use crate::observer::{self, CounterSeries};
use crate::programs::{READY, memory};

/// Of these tools those that are here; says which are not.
pub(super) fn present(tools: &[Tool]) -> Vec<Tool> {
    let mut here = Vec::new();
    for &tool in tools {
        match tool.missing() {
            None => here.push(tool),
            Some(package) => {
                let name = tool.name();
                print(format_args!("NOT MEASURED: {name}: apt-get install {package}"));
            }
        }
    }
    here
}

/// Counters of the receiver during a trial, both programs as they ended, and the logs of the trial.
pub(super) struct Ran {
    pub(super) course: CounterSeries,
    pub(super) sender: Output,
    pub(super) receiver: Output,
    pub(super) logs: tempfile::TempDir,
}

/// One trial, under the eyes of the receiver's counters.
pub(super) fn trial(tool: Tool, load: &Load, stage: &Stage) -> Result<Ran> {
    let logs = tempfile::Builder::new().prefix("itg-bench-").tempdir_in(memory())?;
    let ready = tools::ready(tool, load, stage, logs.path())?;
    let observer = observer::counters(&stage.receiver)?;
    let sent = ready.send(load, stage);
    // What is in a socket's buffer is still read.
    std::thread::sleep(Duration::from_millis(20));
    let course = observer.stop()?;
    let sender = sent.with_context(|| format!("{} over {}", tool.name(), stage.name))?;
    let receiver = ready.end()?;
    Ok(Ran { course, sender, receiver, logs })
}

/// A sender of ours for a time, and the limit for its end.
pub(super) fn ours(
    stage: &Stage,
    receiver: &str,
    options: &[&str],
    seconds: u64,
) -> Result<(Running, Duration)> {
    let mut command = stage.sender.command(&stage.programs.path("itg-send"));
    command.arg(receiver).args(["-q", "--seed", tools::SEED]).args(options);
    command.args(["--duration", &format!("{seconds}s")]);
    Ok((Running::spawn(&mut command, tools::SENDER)?, READY + Duration::from_secs(seconds)))
}

/// Report of itg-decode on logs.
pub(super) fn report(stage: &Stage, logs: &[&Path]) -> Result<Value> {
    let mut command = Command::new(stage.programs.path("itg-decode"));
    command.args(logs).args(["--format", "json", "-q"]);
    let done = Running::spawn(&mut command, &[])?.wait(READY)?.ended_with(&[0])?;
    serde_json::from_str(&done.out).context("the report of itg-decode")
}

/// Tells on stderr what is measured now.
pub(super) fn progress(what: &str, round: usize, rounds: usize) {
    say(format_args!("itg-bench: {what}, round {} of {rounds}", round + 1));
}
