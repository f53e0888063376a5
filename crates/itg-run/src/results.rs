//! Files that follow from the logs and the manifest of a run: the report in all its forms. A run writes them, and
//! `verify` makes them again.

use std::fs;
use std::path::{Component, Path};

use anyhow::{Context as _, Result, bail};
use itg_cli::{Gates, Judged};
use itg_experiment::Manifest;
use itg_report::{Around, FLOWS_DRAWN};
use itg_stats::{Analysis, Options, Report, summary};

use crate::inventory::regular;

/// File with what happened in a run, in its directory.
pub(crate) const STORY: &str = "events.txt";
/// Setting: paths of the logs below the directory, in the order in which they are decoded, as a JSON list.
pub(crate) const LOGS: &str = "logs";
/// Setting: the command line.
pub(crate) const COMMAND: &str = "command";
/// Setting: options of the world, as words of a command line.
pub(crate) const OPTIONS: &str = "options";
/// Setting: gates of the command line, as JSON.
pub(crate) const GATES: &str = "gates";
/// Setting: first line of the report's text.
pub(crate) const HEADING: &str = "heading";
/// Setting: end of the traffic, Unix time in nanoseconds.
pub(crate) const ENDED: &str = "ended_unix_ns";
/// Setting: exit code of the run, those of gates left out.
pub(crate) const EXIT_CODE: &str = "exit_code";
/// Setting: reason that the run did not end well.
pub(crate) const INTERRUPTED: &str = "interrupted";

/// Setting of a manifest; empty where it has none.
pub(crate) fn setting<'a>(manifest: &'a Manifest, key: &str) -> &'a str {
    manifest.settings.get(key).map_or("", String::as_str)
}

/// Paths of the logs below the directory, as the manifest names them; none where it names none.
///
/// # Errors
/// It has no list of paths, or one that leads out of the directory: it may come from a stranger.
pub(crate) fn logs(manifest: &Manifest) -> Result<Vec<String>> {
    let text = match setting(manifest, LOGS) {
        "" => "[]",
        text => text,
    };
    let names: Vec<String> = serde_json::from_str(text)
        .with_context(|| format!("its setting `{LOGS}` is no list of paths"))?;
    let below = |name: &&String| {
        let mut parts = Path::new(name).components();
        !name.is_empty() && parts.all(|part| matches!(part, Component::Normal(_)))
    };
    match names.iter().find(|name| !below(name)) {
        Some(name) => bail!("it names the log `{name}`, which is not below its directory"),
        None => Ok(names),
    }
}

/// Decodes the logs of a run into its report, with plots of so many flows.
///
/// # Errors
/// A log cannot be read, or is none.
pub(crate) fn decode(dir: &Path, manifest: &Manifest, plots: usize) -> Result<Report> {
    let mut logs = Vec::new();
    for name in self::logs(manifest)? {
        let context = || format!("log {}", dir.join(&name).display());
        let path = regular(dir, &name).with_context(context)?;
        let bytes = fs::read(path).with_context(context)?;
        logs.push((name, bytes));
    }
    let mut analysis = Analysis::new(Options { plots: Some(plots), ..Options::default() });
    for (name, bytes) in &logs {
        analysis.add_log(bytes, name)?;
    }
    let mut report = analysis.finish();
    if let Ok(serde_json::Value::Object(facts)) = serde_json::from_str(&manifest.to_json()) {
        report.manifest.extend(facts);
    }
    Ok(report)
}

/// Report of a run with all that its files say.
pub(crate) struct Results {
    /// The report.
    pub(crate) report: Report,
    /// Outcome of the gates.
    pub(crate) judged: Judged,
    /// The report as text: a table and what one has to know.
    pub(crate) short: String,
    /// Names and contents of the files.
    pub(crate) files: Vec<(&'static str, String)>,
}

impl Results {
    /// Decodes the logs in a directory; `story` is the content of [`STORY`].
    ///
    /// # Errors
    /// A log cannot be read, or is none.
    pub(crate) fn of(dir: &Path, manifest: &Manifest, gates: &Gates, story: &str) -> Result<Self> {
        let report = decode(dir, manifest, FLOWS_DRAWN)?;
        let heading = match setting(manifest, HEADING) {
            "" => String::new(),
            heading => format!("{heading}\n"),
        };
        let short = format!("{heading}{}{story}", summary::render(&report));
        let table = summary::render_all(&report);
        let long = format!("{heading}{table}{story}\n{}", itg_stats::text::render(&report));
        let judged = gates.weigh(&report);
        let mut files = vec![("report.txt", long), ("report.json", report.to_json() + "\n")];
        if let Some(plots) = &report.plots {
            let command = setting(manifest, COMMAND);
            let around = Around {
                plots,
                gates: &judged.outcomes,
                allow_unknown: gates.allow_unknown,
                command,
            };
            files.push(("report.html", itg_report::page(&report, &around)));
        }
        Ok(Self { report, judged, short, files })
    }

    /// The report as JSON.
    pub(crate) fn json(&self) -> &str {
        &self.files[1].1
    }

    /// The report as text with all figures.
    pub(crate) fn long(&self) -> &str {
        &self.files[0].1
    }
}
