//! The appendix of a run for readers of a paper, in Markdown: what was run, where, and how to check and repeat it.

use itg_experiment::Manifest;
use itg_stats::Report;
use serde_json::Value;

use crate::inventory::RunFile;
use crate::results::{COMMAND, EXIT_CODE, INTERRUPTED, setting};
use crate::ro_crate::{about, ended, utc};

/// The file, in the directory of a run.
pub(crate) const ARTIFACT: &str = "ARTIFACT.md";

/// Facts of the manifest's settings that the appendix names, with the words for them.
const FACTS: [(&str, &str); 9] = [
    ("world", "world"),
    ("simulated", "simulated network"),
    ("nodes", "nodes"),
    ("options", "options of the world"),
    ("host", "host"),
    ("os", "kernel"),
    ("processors", "processors"),
    ("governor", "frequency governor"),
    ("qdisc", "queueing disciplines"),
];

/// Text as code within a line or a cell of a table.
fn code(text: &str) -> String {
    let plain = |c: char| match c {
        '`' => '\'',
        '|' => '/',
        c if c.is_control() => ' ',
        c => c,
    };
    format!("`{}`", text.chars().map(plain).collect::<String>())
}

fn row(name: &str, value: &str) -> String {
    if value.is_empty() { String::new() } else { format!("| {name} | {} |\n", code(value)) }
}

/// The appendix of a run; `files` are those that it has besides, `report` is its report, if it has one.
pub(crate) fn text(manifest: &Manifest, files: &[RunFile], report: Option<&Report>) -> String {
    let mut text = format!("# Artifact appendix: run of {}\n\n## What was run\n\n", manifest.name);
    text += "| what | value |\n|---|---|\n";
    text += &row("experiment", &manifest.name);
    text += &row("file", &manifest.origin);
    text += &row("command", setting(manifest, COMMAND));
    text += &row("seed", &manifest.seed.to_string());
    text += &row("plan", &manifest.plan);
    text += &row("program", &format!("itg-cluster {}", manifest.version));
    text += &row("started", &utc(manifest.started_unix_ns));
    text += &row("ended", &utc(ended(manifest)));
    text += &row("exit code", setting(manifest, EXIT_CODE));
    text += &row("did not end well", setting(manifest, INTERRUPTED));
    for (key, name) in FACTS {
        text += &row(name, setting(manifest, key));
    }
    let logs = report.and_then(|report| report.manifest.get("logs")).and_then(Value::as_array);
    if let Some(logs) = logs.filter(|logs| !logs.is_empty()) {
        text += "\n## Logs\n\n| log | host | kernel | version | records |\n|---|---|---|---|---|\n";
        for log in logs {
            let word = |key: &str| code(log.get(key).and_then(Value::as_str).unwrap_or("unknown"));
            let records = log.get("records").and_then(Value::as_u64);
            let records =
                records.map_or_else(|| "unknown".to_owned(), |records| records.to_string());
            text += &format!(
                "| {} | {} | {} | {} | {records} |\n",
                word("name"),
                word("host"),
                word("os"),
                word("version")
            );
        }
    }
    text += "\n## Files\n\n| file | bytes | what |\n|---|---|---|\n";
    for file in files {
        let (_, what) = about(&file.path);
        text += &format!("| {} | {} | {what} |\n", code(&file.path), file.bytes);
    }
    text += "\nTheir SHA-256 are in `ro-crate-metadata.json`, which describes this directory as a Process Run Crate.\n\
             \n## Check, repeat, decode\n\nIn this directory, with the program of the version above:\n\n```sh\n\
             itg-cluster verify .                 # every file is as the run left it, and they agree\n\
             itg-cluster replay . --out ../again  # the same plan again, and a comparison of both runs\n\
             itg-decode";
    for log in crate::results::logs(manifest).unwrap_or_default() {
        text += &format!(" {}", itg_report::command(std::iter::once(log)));
    }
    text += "\n```\n";
    text
}
