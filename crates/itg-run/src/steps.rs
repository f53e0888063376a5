//! The steps of one run, the same in all worlds: from a plan to its report.

use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};

use anyhow::Result;
use itg_cli::{Failure, Gates, Loaded, Unreached, WordArgs, announce, print, say, unreached};
use itg_experiment::Manifest;
use itg_stats::Report;
use itg_stats::fidelity::{Cause, Verdict};
use itg_stats::report::Metrics;

use crate::artifact::{self, ARTIFACT};
use crate::directory::{DONE, MANIFEST, prepare, write};
use crate::inventory::list;
use crate::live;
use crate::options::ReportFormat;
use crate::results::{
    COMMAND, ENDED, EXIT_CODE, GATES, HEADING, INTERRUPTED, LOGS, OPTIONS, Results, STORY,
};
use crate::ro_crate::{self, RO_CRATE};
use crate::world::{Outcome, Output, World, host_settings};

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
    let gates = output.gates.with(loaded)?;
    gates.check(&loaded.plan)?;
    let run = world.prepare(loaded)?;
    // 2. A directory that holds no other run.
    prepare(out)?;
    // 3. The plan, in words and in the manifest.
    if !words.quiet {
        announce(&run.loaded().plan, words, |_| run.receiver());
    }
    let begun = run.begun().cloned();
    let mut manifest = begun.unwrap_or_else(|| manifest(run.loaded(), started, world));
    if let Some(gates) = output.gates.setting() {
        manifest = manifest.setting(GATES, gates);
    }
    for (key, value) in run.settings() {
        manifest = manifest.setting(key, value);
    }
    if run.writes_manifest_first() {
        write(&out.join(MANIFEST), &manifest.to_json())?;
    }
    // 4. The world sends and receives.
    let mut outcome = run.carry_out(output, &manifest, words)?;
    output.events.end(outcome.interrupted.clone());
    // 5. The outcome, in the manifest.
    let mut manifest = outcome_of(manifest, &outcome, out);
    write(&out.join(MANIFEST), &manifest.to_json())?;
    let story = outcome.story.as_deref().unwrap_or_default();
    if !story.is_empty() {
        write(&out.join(STORY), story)?;
    }
    if outcome.logs.is_empty() {
        seal(out, &manifest, None)?;
        return Err(
            Failure::new(4, "no node has given its logs: there is nothing to report").into()
        );
    }
    // 6. From the logs to the report, in all its forms, and to the hashes of all files.
    let results = Results::of(out, &manifest, &gates, story)?;
    let short = short_of_plan(&results.report);
    if outcome.code == 0 && outcome.interrupted.is_none() && short != 0 {
        outcome.code = short;
        manifest = manifest.setting(EXIT_CODE, short.to_string());
        write(&out.join(MANIFEST), &manifest.to_json())?;
    }
    let closed = match world.is_deterministic() {
        true => Vec::new(),
        false => closed_ports(&results.report),
    };
    if outcome.code == 0 && outcome.interrupted.is_none() && !closed.is_empty() {
        outcome.code = 4;
        manifest = manifest.setting(EXIT_CODE, "4");
        write(&out.join(MANIFEST), &manifest.to_json())?;
    }
    outcome.failures.extend(closed);
    for (name, text) in &results.files {
        write(&out.join(name), text)?;
    }
    seal(out, &manifest, Some(&results.report))?;
    conclude(output, &results, &gates, words)?;
    // 7. Failures and accounts.
    tell(&outcome, output, words);
    if let Some(error) = outcome.log_error {
        return Err(Failure::new(1, error).into());
    }
    // 8. A run that failed by itself says so first.
    let code = results.judged.code.filter(|_| outcome.code == 0).unwrap_or(outcome.code);
    Ok(Done { code, report: results.report })
}

/// Exit code of a run whose flows were not carried out as planned: 4 where one did not reach the end of its plan, or where
/// nothing is known of more than 1 % of it, 1 where a sender's kernel refused packets, else 0. What the user ended is no
/// failure.
pub(crate) fn short_of_plan(report: &Report) -> u8 {
    let figures = || report.flows.iter().map(|flow| &flow.metrics);
    // The verdict has left out what the user ended.
    let cut_off = |metrics: &Metrics| {
        metrics.account.not_reached > Some(0)
            && metrics.fidelity.causes.contains(&Cause::Incomplete)
    };
    match () {
        () if figures().any(|metrics| cut_off(metrics) || is_in_the_dark(metrics)) => 4,
        () => u8::from(figures().any(|metrics| metrics.account.refused > Some(0))),
    }
}

/// Returns true if nothing is known of more than 1 % of a flow's plan: a sender was killed, or its log is not there.
fn is_in_the_dark(metrics: &Metrics) -> bool {
    let account = &metrics.account;
    let (Some(planned), None) = (account.planned, account.not_reached) else { return false };
    // What arrived was sent, whoever has told it.
    let sent = account.sent.max(account.arrived).unwrap_or(0).max(metrics.packets);
    let told = [sent, account.refused.unwrap_or(0), account.left_out.unwrap_or(0)];
    let told = told.into_iter().fold(0, u64::saturating_add);
    metrics.fidelity.verdict == Verdict::Unknown && planned.saturating_sub(told) > planned / 100
}

/// Ports to open for flows of which nothing arrived.
pub(crate) fn closed_ports(report: &Report) -> Vec<String> {
    unreached(report.flows.iter().filter_map(|flow| {
        let account = &flow.metrics.account;
        let nothing = account.sent > Some(0) && account.arrived == Some(0);
        let lost = &account.lost;
        let came = [lost.socket, lost.checksum, lost.too_late, flow.foreign_packets];
        let unreached = Unreached {
            flow: flow.flow,
            proto: flow.proto?.parse().ok()?,
            to: flow.dst.parse().ok()?,
        };
        (nothing && came.iter().all(|came| came.is_none_or(|n| n == 0))).then_some(unreached)
    }))
}

/// The manifest of a run that begins.
fn manifest(loaded: &Loaded, started: jiff::Timestamp, world: &dyn World) -> Manifest {
    let unix_ns = u64::try_from(started.as_nanosecond()).unwrap_or(0);
    let manifest = Manifest::new(&loaded.plan, &loaded.origin, &loaded.text, loaded.duration_ns)
        .started(unix_ns)
        .setting("world", world.name())
        .setting(OPTIONS, world.options().join(" "))
        .setting(COMMAND, itg_report::command(std::env::args()));
    let host = host_settings().into_iter();
    host.fold(manifest, |manifest, (key, value)| manifest.setting(key, value))
}

/// The manifest of a run that has ended.
fn outcome_of(mut manifest: Manifest, outcome: &Outcome, out: &Path) -> Manifest {
    let ended = jiff::Timestamp::now().as_nanosecond();
    let below = |path: &PathBuf| path.strip_prefix(out).unwrap_or(path).display().to_string();
    let logs: Vec<String> = outcome.logs.iter().map(below).collect();
    for (key, value) in &outcome.settings {
        manifest = manifest.setting(key, value.clone());
    }
    if let Some(why) = &outcome.interrupted {
        manifest = manifest.setting(INTERRUPTED, why);
    }
    if !outcome.heading.is_empty() {
        manifest = manifest.setting(HEADING, outcome.heading.trim_end());
    }
    // A run whose logs lack records has failed, whatever its world says.
    let code = if outcome.log_error.is_some() { 1 } else { outcome.code };
    manifest
        .setting(LOGS, serde_json::Value::from(logs).to_string())
        .setting(ENDED, ended.to_string())
        .setting(EXIT_CODE, code.to_string())
}

/// Writes the appendix, and last of all files the hashes of all others.
fn seal(out: &Path, manifest: &Manifest, report: Option<&Report>) -> Result<()> {
    let files = list(out, &[ARTIFACT, RO_CRATE, DONE])?;
    write(&out.join(ARTIFACT), &artifact::text(manifest, &files, report))?;
    let files = list(out, &[RO_CRATE, DONE])?;
    write(&out.join(RO_CRATE), &ro_crate::text(manifest, &files))
}

/// Prints the report, and says what the gates make of it.
///
/// All files are written before the first word: a terminal may keep words waiting.
fn conclude(output: &Output, results: &Results, gates: &Gates, words: WordArgs) -> Result<()> {
    let found = &results.judged.outcomes;
    let markdown = || itg_stats::markdown::report(&results.report, found);
    let printed = match output.gates.format {
        ReportFormat::Text if words.verbose > 0 => results.long().to_owned(),
        ReportFormat::Text => results.short.clone(),
        ReportFormat::Json => results.json().to_owned(),
        ReportFormat::Markdown => markdown(),
    };
    if let Some(path) = &output.gates.junit {
        let took_ns = results.report.total.metrics.duration_ns;
        let text = match found.is_empty() {
            true => itg_report::junit_of_fidelity(&results.report),
            false => itg_report::junit(found, gates.allow_unknown, took_ns),
        };
        write(path, &text)?;
    }
    let on_terminal = std::io::stdout().is_terminal();
    if output.print && !on_terminal {
        print(&printed)?;
    }
    live::settle();
    if output.print && on_terminal {
        print(&printed)?;
    }
    gates.tell(&results.judged, "itg-cluster", words.quiet);
    Ok(())
}

/// Says failures and accounts, and where the results are.
fn tell(outcome: &Outcome, output: &Output, words: WordArgs) {
    for failure in &outcome.failures {
        say(format_args!("itg-cluster: {failure}"));
    }
    if !words.quiet {
        let short = words.verbose == 0 && !outcome.accounts_in_short.is_empty();
        let accounts = if short { &outcome.accounts_in_short } else { &outcome.accounts };
        accounts.iter().for_each(|account| say(account.trim_end()));
        say(format_args!("logs, report and manifest are in {}", output.dir.display()));
    }
}
