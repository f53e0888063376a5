//! The steps of one run, the same in all worlds: from a plan to its report.

use std::fs;
use std::io::IsTerminal as _;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use itg_cli::{Failure, Gates, Loaded, WordArgs, announce, print, say};
use itg_experiment::Manifest;
use itg_report::{Around, FLOWS_DRAWN};
use itg_stats::{Analysis, Options, Report};

use crate::directory::{MANIFEST, prepare, write};
use crate::live;
use crate::world::{Outcome, Output, World};

/// File with what happened in a run, in its directory.
const STORY: &str = "events.txt";

/// Run that has come to its end.
#[derive(Debug)]
pub struct Done {
    /// Exit code that it asks for.
    pub code: u8,
    /// Report of the run.
    pub report: Report,
}

/// Carries out one run.
///
/// # Errors
/// The request makes no sense, or the run leaves nothing to report.
pub fn carry_out(
    world: &dyn World,
    loaded: &mut Loaded,
    output: &Output,
    words: WordArgs,
) -> Result<Done> {
    let done = in_order(world, loaded, output, words);
    if let Err(error) = &done {
        output.events.end(Some(format!("{error:#}")));
    }
    done
}

fn in_order(
    world: &dyn World,
    loaded: &mut Loaded,
    output: &Output,
    words: WordArgs,
) -> Result<Done> {
    let started = jiff::Timestamp::now();
    let out = &output.dir;
    // 1. Errors of the request, before anything is written.
    let gates = gates(loaded)?;
    let run = world.prepare(loaded)?;
    // 2. A directory that holds no other run.
    prepare(out)?;
    // 3. The plan, in words and in the manifest.
    if !words.quiet {
        announce(&run.loaded().plan);
    }
    let mut manifest = manifest(run.loaded(), started, world.name());
    for (key, value) in run.settings() {
        manifest = manifest.setting(key, value);
    }
    if run.writes_manifest_first() {
        write(&out.join(MANIFEST), &manifest.to_json())?;
    }
    // 4. The world sends and receives.
    let outcome = run.carry_out(output, &manifest, words)?;
    output.events.end(outcome.interrupted.clone());
    // 5. The outcome, in the manifest.
    for (key, value) in &outcome.settings {
        manifest = manifest.setting(key, value.clone());
    }
    manifest = manifest.setting("exit_code", outcome.code.to_string());
    write(&out.join(MANIFEST), &manifest.to_json())?;
    if let Some(story) = &outcome.story {
        write(&out.join(STORY), story)?;
    }
    if outcome.logs.is_empty() {
        return Err(
            Failure::new(4, "no node has given its logs: there is nothing to report").into()
        );
    }
    // 6. From the logs to the report, in all its forms.
    let report = decode(&outcome.logs, &manifest)?;
    let story = outcome.story.as_deref().unwrap_or_default();
    let short = format!("{}{}{story}", outcome.heading, itg_stats::summary::render(&report));
    let long = format!("{short}\n{}", itg_stats::text::render(&report));
    let printed = if words.verbose > 0 { &long } else { &short };
    let gate = conclude(output, &report, [printed, &long], &gates, words)?;
    // 7. Failures and accounts.
    tell(&outcome, output, words);
    if let Some(error) = outcome.log_error {
        return Err(Failure::new(1, error).into());
    }
    // 8. A run that failed by itself says so first.
    let code = gate.filter(|_| outcome.code == 0).unwrap_or(outcome.code);
    Ok(Done { code, report })
}

/// The manifest of a run that begins.
fn manifest(loaded: &Loaded, started: jiff::Timestamp, world: &str) -> Manifest {
    let unix_ns = u64::try_from(started.as_nanosecond()).unwrap_or(0);
    Manifest::new(&loaded.plan, &loaded.origin, &loaded.text, loaded.duration_ns)
        .started(unix_ns)
        .setting("world", world)
}

/// The gates of an experiment.
fn gates(loaded: &Loaded) -> Result<Gates> {
    let mut gates = Gates::default();
    gates.add(&loaded.experiment, &loaded.origin)?;
    Ok(gates)
}

/// Decodes the logs of a run into its report.
fn decode(paths: &[PathBuf], manifest: &Manifest) -> Result<Report> {
    let mut logs = Vec::new();
    for path in paths {
        let bytes = fs::read(path).with_context(|| format!("log {}", path.display()))?;
        logs.push((path.display().to_string(), bytes));
    }
    let mut analysis = Analysis::new(Options { plots: Some(FLOWS_DRAWN), ..Options::default() });
    for (name, bytes) in &logs {
        analysis.add_log(bytes, name)?;
    }
    let mut report = analysis.finish();
    if let Ok(serde_json::Value::Object(facts)) = serde_json::from_str(&manifest.to_json()) {
        report.manifest.extend(facts);
    }
    Ok(report)
}

/// Writes the report in all its forms, of the two texts the first to stdout; what the gates make of it.
///
/// All files are written before the first word: a terminal may keep words waiting.
fn conclude(
    output: &Output,
    report: &Report,
    [printed, long]: [&str; 2],
    gates: &Gates,
    words: WordArgs,
) -> Result<Option<u8>> {
    let out = &output.dir;
    write(&out.join("report.txt"), long)?;
    write(&out.join("report.json"), &(report.to_json() + "\n"))?;
    let judged = gates.weigh(report);
    if let Some(plots) = &report.plots {
        let command = itg_report::command(std::env::args());
        let around = Around { plots, gates: &judged.outcomes, command: &command };
        write(&out.join("report.html"), &itg_report::page(report, &around))?;
    }
    let on_terminal = std::io::stdout().is_terminal();
    if output.print && !on_terminal {
        print(printed)?;
    }
    live::settle();
    if output.print && on_terminal {
        print(printed)?;
    }
    gates.tell(&judged, "itg-cluster", words.quiet);
    Ok(judged.code)
}

/// Says failures and accounts, and where the results are.
fn tell(outcome: &Outcome, output: &Output, words: WordArgs) {
    for failure in &outcome.failures {
        say(format_args!("itg-cluster: {failure}"));
    }
    if !words.quiet {
        outcome.accounts.iter().for_each(|account| say(account.trim_end()));
        say(format_args!("logs, report and manifest are in {}", output.dir.display()));
    }
}
