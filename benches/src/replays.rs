//! Judgement of `itg-cluster replay`: honest replays of short runs on this host, which are to be equal within
//! intervals, and replays with something changed, of which none may be.
//!
//! Changes of the experiment are planted in the manifest, its plan's hash mended, since another plan is refused at once
//! (which is tried, too); changes of the network in the manifest of a simulation, whose plan knows none; changes of the
//! host by busy loops beside the replay, and by stopping it for a while.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;
use itg_cli::say;
use itg_testkit::child::{Output, Running};
use itg_trials::{Claim, Lines, cpus, print, share};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::programs::{Programs, memory};

/// Share of honest replays that are to be equal.
const BAR: f64 = 0.95;
/// Honest replays of one original.
const OF_ONE: u64 = 10;
/// Time that a run may take.
const LIMIT: Duration = Duration::from_secs(120);

const EXPERIMENT: &str = r#"schema = 1
name = "replays"
seed = 7
duration = "2s"
[[flow]]
name = "call"
idt = "exp(2ms)"
size = "uniform(100,900)"
[[flow]]
name = "bulk"
rate = "1000pps"
size = 500
[network]
kind = "fixed"
delay = "5ms"
jitter = "1ms"
"#;

/// Change of the experiment's text, or of the network's.
type Edit = (&'static str, &'static str, &'static str);

/// Changes of the experiment: they give another plan.
const PLANS: [Edit; 10] = [
    ("another distribution, uniform", "exp(2ms)", "uniform(1ms,3ms)"),
    ("another distribution, gamma of the same mean", "exp(2ms)", "gamma(2,1ms)"),
    ("5 % more packets", "1000pps", "1050pps"),
    ("4 % longer packets", "size = 500", "size = 520"),
    ("another distribution of sizes", "uniform(100,900)", "uniform(150,850)"),
    ("a dropped flow", "[[flow]]\nname = \"bulk\"\nrate = \"1000pps\"\nsize = 500\n", ""),
    ("one more flow", "[network]", "[[flow]]\nrate = \"10pps\"\nsize = 100\n[network]"),
    ("TCP for UDP", "name = \"bulk\"", "name = \"bulk\"\nproto = \"tcp\""),
    ("a shorter run", "duration = \"2s\"", "duration = \"1800ms\""),
    ("a flow that starts later", "name = \"bulk\"", "name = \"bulk\"\nstart = \"100ms\""),
];
/// Changes of the simulated network.
const NETWORKS: [Edit; 7] = [
    ("a link of 3 Mbit/s", "kind = \"fixed\"", "kind = \"fixed\"\nrate = \"3Mbps\""),
    ("a longer link", "delay = \"5ms\"", "delay = \"6ms\""),
    ("three times the jitter", "jitter = \"1ms\"", "jitter = \"3ms\""),
    ("2 % loss", "kind = \"fixed\"", "kind = \"fixed\"\nloss = 0.02"),
    ("5 % of the packets twice", "kind = \"fixed\"", "kind = \"fixed\"\nduplication = 0.05"),
    ("another network", "kind = \"fixed\"\ndelay = \"5ms\"\njitter = \"1ms\"", "kind = \"switch\""),
    ("late senders", "kind = \"fixed\"", "kind = \"fixed\"\nlateness = \"2ms\""),
];

/// Options of `replays`.
#[derive(Debug, Args)]
pub(crate) struct ReplaysArgs {
    /// Honest replays
    #[arg(long, value_name = "N", default_value_t = 100)]
    honest: u64,
}

/// Something beside a replay on this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Beside {
    Nothing,
    /// Busy loops, four for each processor.
    BusyLoops,
    /// The replay is stopped for half a second.
    Stop,
}

/// Outcome of a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Equal,
    Different,
    Refused,
}

/// Runs and replays in a directory.
struct Bench {
    programs: Programs,
    dir: tempfile::TempDir,
    runs: usize,
}

impl Bench {
    /// A new place for a run.
    fn place(&mut self) -> PathBuf {
        self.runs += 1;
        self.dir.path().join(self.runs.to_string())
    }

    fn command(&self, words: &[&str], paths: &[&Path]) -> Command {
        let mut command = Command::new(self.programs.path("itg-cluster"));
        command.args(words).args(paths);
        command
    }

    fn run(&mut self, world: &str) -> Result<PathBuf> {
        let (file, out) = (self.dir.path().join("x.toml"), self.place());
        fs::write(&file, EXPERIMENT)?;
        let mut command = self.command(&["-q", "run", world, "--out"], &[&out, &file]);
        Running::spawn(&mut command, &[])?.wait(LIMIT)?.ended_with(&[0])?;
        Ok(out)
    }

    /// Replays a run, with something beside it; what stdout and stderr have said comes with the outcome.
    fn replay(&mut self, original: &Path, beside: Beside) -> Result<(Outcome, Output)> {
        let out = self.place();
        let mut command = self.command(&["-q", "replay", "--out"], &[&out, original]);
        let stop = AtomicBool::new(false);
        let said = std::thread::scope(|scope| -> Result<_> {
            let loops = if beside == Beside::BusyLoops { 4 * cpus() } else { 0 };
            for _ in 0..loops {
                scope.spawn(|| {
                    while !stop.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                });
            }
            let said = Running::spawn(&mut command, &[]).and_then(|replay| {
                if beside == Beside::Stop {
                    std::thread::sleep(Duration::from_millis(1200));
                    replay.signal(Signal::SIGSTOP);
                    std::thread::sleep(Duration::from_millis(500));
                    replay.signal(Signal::SIGCONT);
                }
                replay.wait(LIMIT)
            });
            stop.store(true, Ordering::Relaxed);
            said
        })?;
        fs::remove_dir_all(&out).unwrap_or_default();
        let last = said.out.lines().last().unwrap_or_default();
        // A replay that ends otherwise may have the code of one that differs, and says nothing of it.
        let outcome = match (said.code, last.split(' ').next()) {
            (Some(0), _) => Outcome::Equal,
            (Some(1), Some("different")) => Outcome::Different,
            (Some(2), _) => Outcome::Refused,
            (code, _) => bail!("a replay ended with {code:?}: {}{}", said.out, said.err),
        };
        Ok((outcome, said))
    }

    /// Replays a run whose manifest was changed; the hash of its plan is mended where the plan is another one.
    fn changed(&mut self, original: &Path, change: impl Fn(&mut Value)) -> Result<Outcome> {
        let file = original.join("manifest.json");
        let text = fs::read_to_string(&file)?;
        let mut manifest: Value = serde_json::from_str(&text)?;
        change(&mut manifest);
        fs::write(&file, manifest.to_string())?;
        let (mut outcome, said) = self.replay(original, Beside::Nothing)?;
        if outcome == Outcome::Refused {
            let plan = said.err.split("gives plan ").nth(1).and_then(|rest| rest.split(',').next());
            manifest["plan"] = json!(plan.with_context(|| said.err.clone())?);
            fs::write(&file, manifest.to_string())?;
            (outcome, _) = self.replay(original, Beside::Nothing)?;
        }
        fs::write(&file, text)?;
        Ok(outcome)
    }
}

/// An edit as a change of the manifest.
fn edit(from: &str, to: &str) -> impl Fn(&mut Value) {
    let (from, to) = (from.to_owned(), to.to_owned());
    move |manifest| {
        let text = manifest["experiment"].as_str().unwrap_or_default();
        assert!(text.contains(&from), "{from} is in the experiment");
        manifest["experiment"] = json!(text.replacen(&from, &to, 1));
    }
}

pub(crate) fn run(args: &ReplaysArgs) -> Result<()> {
    ensure!(args.honest > 0, "no honest replay");
    let dir = tempfile::Builder::new().prefix("itg-bench-").tempdir_in(memory())?;
    let mut bench = Bench { programs: Programs::with(&["itg-cluster"])?, dir, runs: 0 };
    let mut equal = 0;
    let mut original = PathBuf::new();
    for number in 0..args.honest {
        if number % OF_ONE == 0 {
            original = bench.run("--local")?;
        }
        let (outcome, said) = bench.replay(&original, Beside::Nothing)?;
        equal += u64::from(outcome == Outcome::Equal);
        say(format_args!("itg-bench: honest replay {}: {outcome:?}", number + 1));
        let judged = said.out.lines().filter(|line| line.contains(": different: "));
        judged.for_each(|line| say(format_args!("  {line}")));
    }
    let mut lines = Lines::new(["change", "world", "outcome"]);
    let mut planted = Vec::new();
    let mut add = |change: &str, world: &str, outcome: Outcome| {
        say(format_args!("itg-bench: {change}: {outcome:?}"));
        lines.row([change.to_owned(), world.to_owned(), format!("{outcome:?}").to_lowercase()]);
        planted.push(outcome);
    };
    add("another seed", "local", bench.changed(&original, |manifest| manifest["seed"] = json!(8))?);
    for (change, from, to) in PLANS {
        add(change, "local", bench.changed(&original, edit(from, to))?);
    }
    for (change, beside) in [
        ("a busy host: 4 loops for each processor", Beside::BusyLoops),
        ("a host that stands still for 0.5 s", Beside::Stop),
    ] {
        add(change, "local", bench.replay(&original, beside)?.0);
    }
    let simulated = bench.run("--sim")?;
    for (change, from, to) in NETWORKS {
        add(change, "sim", bench.changed(&simulated, edit(from, to))?);
    }
    print(format_args!("{lines}\n"));
    let all = args.honest;
    let good = equal as f64 >= BAR * all as f64;
    let words = format!("honest replays that are equal: {equal} of {all}, {} %", share(equal, all));
    print(Claim::new(good, &format!("{words}, {BAR} asked for")));
    let wrong = planted.iter().filter(|outcome| **outcome == Outcome::Equal).count() as u64;
    let all = planted.len() as u64;
    let words =
        format!("planted changes that are equal: {wrong} of {all}, {} %", share(wrong, all));
    print(Claim::new(wrong == 0, &format!("{words}, none may be")));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_of_texts_that_the_experiment_has() {
        for (change, from, to) in PLANS.into_iter().chain(NETWORKS) {
            let mut manifest = json!({ "experiment": EXPERIMENT });
            edit(from, to)(&mut manifest);
            assert_ne!(manifest["experiment"], EXPERIMENT, "{change}");
        }
    }
}
