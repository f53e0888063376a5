//! `itg-decode compare A B`: two runs side by side.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use itg_cli::{WordArgs, say};
use itg_compare::change::ChangeGate;
use itg_compare::{Resampling, compare};
use itg_core::text::visible_lines;
use itg_files::Bytes;
use itg_stats::gate::exit_code;
use itg_stats::report::damage_lines;
use itg_stats::{Analysis, Options, Report};

use crate::complaints::{PROGRAM, complain, complain_of_lost};
use crate::outputs::write;
use crate::work::Work;

/// Compare two runs, or a run and its simulation: flow by flow (joined by number) and in total.
///
/// Prints a line for each difference that an interval of 95 % confidence tells (circular block bootstrap over
/// time); with -v all figures. Exit codes: 1 when a log is damaged or cannot be read, 99 when a gate failed.
#[derive(Debug, Args)]
pub(crate) struct CompareArgs {
    /// The first run: a log file, or a directory with logs (*.itg).
    pub(crate) a: PathBuf,
    /// The second run.
    pub(crate) b: PathBuf,
    /// Output format.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Fail with exit code 99 when the interval of a change lies beyond this as a whole: `delay.p99 > +10%`,
    /// `total.bitrate < -1Mbps`, `flow.2.loss > +0.001`; a change that its interval does not settle is told and does
    /// not fail. May be given several times.
    #[arg(long, value_name = "GATE")]
    fail_if: Vec<ChangeGate>,
    /// A gate whose figure one of the runs does not know does not fail.
    #[arg(long)]
    allow_unknown: bool,
    /// Also write what the gates said as JUnit XML.
    #[arg(long, value_name = "FILE", requires = "fail_if")]
    junit: Option<PathBuf>,
    /// Also write one HTML page.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write to this file instead of stdout.
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Resamples of the bootstrap, 20 to 100000.
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u32).range(20..=100_000))]
    resamples: u32,
    /// Seed of the bootstrap.
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    seed: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// A line for each difference that its interval tells; with -v, or in a file, all figures.
    Text,
    /// A table in Markdown with what the gates found, for the summaries of CI systems.
    Markdown,
    /// One JSON object.
    Json,
}

/// Compares and prints; the exit code: 1 when a log was damaged, or what a gate says.
pub(crate) fn run(args: &CompareArgs, words: WordArgs) -> anyhow::Result<u8> {
    let [(a, sound_a), (b, sound_b)] = [decode(&args.a)?, decode(&args.b)?];
    let [a_name, b_name] = [&args.a, &args.b].map(|path| path.display().to_string());
    let resampling = Resampling { resamples: args.resamples, seed: args.seed };
    let comparison = compare((&a_name, &a), (&b_name, &b), resampling);
    let found: Vec<_> = args.fail_if.iter().map(|gate| gate.judge(&comparison)).collect();
    let text = match args.format {
        Format::Text if words.verbose == 0 && args.output.is_none() => comparison.to_lines(),
        Format::Text => comparison.to_text(),
        Format::Markdown => itg_compare::markdown::comparison(&comparison, &found),
        Format::Json => comparison.to_json() + "\n",
    };
    let text = visible_lines(&text);
    match &args.output {
        Some(path) => write(path, &text)?,
        None => std::io::Write::write_all(&mut std::io::stdout(), text.as_bytes())?,
    }
    if let Some(path) = &args.html {
        let command = itg_report::command(std::env::args());
        write(path, &itg_report::compare_page(&comparison, &a, &b, &command))?;
    }
    for outcome in found.iter().filter(|found| !words.quiet || !found.is_fine(args.allow_unknown)) {
        say(format_args!("{PROGRAM}: {outcome}"));
    }
    if let Some(path) = &args.junit {
        let took_ns = a.total.metrics.duration_ns.saturating_add(b.total.metrics.duration_ns);
        write(path, &itg_report::junit(&found, args.allow_unknown, took_ns))?;
    }
    let code = exit_code(&found, args.allow_unknown);
    Ok(code.unwrap_or_else(|| u8::from(!(sound_a && sound_b))))
}

/// The report of a run, and whether its logs are sound.
fn decode(path: &Path) -> anyhow::Result<(Report, bool)> {
    let files = logs(path)?;
    let mut analysis = Analysis::new(Options { plots: Some(usize::MAX), ..Options::default() });
    let work = Work::new(&files, 0, true);
    for (name, bytes) in &files {
        analysis.add_log_with(bytes, name, &work)?;
    }
    let report = analysis.finish_with(&work);
    analysis.not_closed().iter().for_each(complain);
    damage_lines(analysis.damage()).iter().for_each(complain);
    let lost = complain_of_lost(&files);
    Ok((report, analysis.damage().is_empty() && !lost))
}

fn logs(path: &Path) -> anyhow::Result<Vec<(String, Bytes)>> {
    let mut paths = Vec::new();
    if path.is_dir() {
        let entries =
            fs::read_dir(path).with_context(|| format!("{}: cannot be read", path.display()))?;
        for entry in entries {
            let file = entry?.path();
            if file.extension().is_some_and(|end| end == "itg") {
                paths.push(file);
            }
        }
        paths.sort();
        if paths.is_empty() {
            bail!("{}: a directory without logs (*.itg)", path.display());
        }
    } else {
        paths.push(path.to_owned());
    }
    let open = |path: PathBuf| {
        let name = path.display().to_string();
        let bytes = Bytes::open(&path, |words| complain(format_args!("{name}: {words}")))
            .with_context(|| format!("{name}: cannot be read"))?;
        Ok((name, bytes))
    };
    paths.into_iter().map(open).collect()
}
