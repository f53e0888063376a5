//! `itg-cluster verify DIR`: holds the files of a run against the hashes that it left, and against one another.
//!
//! Three checks. Every file has the size and the SHA-256 that `ro-crate-metadata.json` gives, and no other file
//! is there. The experiment in the manifest gives the plan whose hash the manifest and the logs have. What follows from
//! logs and manifest (the report in all its forms, the appendix, `ro-crate-metadata.json` itself) is made again and is
//! the same. Hashes are no signature: whoever makes a whole run anew is not found out.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result, anyhow, bail};
use clap::Args;
use itg_cli::{Failure, Gates, load_manifest, print, refuse};
use itg_experiment::Manifest;
use itg_stats::Report;
use itg_stats::report::damage_lines;
use serde_json::{Map, Value};

use crate::artifact::{self, ARTIFACT};
use crate::directory::{DONE, MANIFEST, SWEEP};
use crate::inventory::{LONGEST, RunFile, list, read_text};
use crate::options::GateOptions;
use crate::results::{GATES, Results, STORY, logs, setting};
use crate::ro_crate::{self, ACTION, RO_CRATE, ROOT};
use crate::sweep::check::Check;
use crate::sweep::contradicts;

/// Arguments of `verify`.
#[derive(Debug, Args)]
pub struct VerifyArgs {
    /// Directory of a run, or of a sweep with all its runs
    pub dir: PathBuf,
}

/// Result of looking at a directory.
#[derive(Debug, Default)]
struct Findings {
    /// Contradictions, a sentence each.
    wrong: Vec<String>,
    /// Differences that are no fault, a sentence each.
    notes: Vec<String>,
    /// Number of files that were looked at.
    files: usize,
    /// The report, where it was made again.
    report: Option<Report>,
}

/// Looks at the directory, and prints a line for each finding; exit code 1 when something is not as the run left it.
///
/// # Errors
/// The directory is not that of a run, or is not as the run left it.
pub fn run(args: &VerifyArgs) -> Result<ExitCode> {
    let (mut wrong, mut files, mut runs) = (0, 0, 0);
    let dirs = runs_in(&args.dir)?;
    let mut sweep = match dirs.as_slice() {
        [dir] if *dir == args.dir => None,
        _ => Check::read(&args.dir).map_err(|error| {
            Failure::new(1, format!("{}: {SWEEP}: {error:#}", args.dir.display()))
        })?,
    };
    for dir in dirs {
        let mut found = look_at(&dir)?;
        if let Some(sweep) = &mut sweep {
            found.wrong.extend(sweep.run(&dir, found.report.as_ref()));
        }
        let shown = dir.display();
        for line in &found.wrong {
            print(&format!("{shown}: {line}\n"))?;
        }
        for line in &found.notes {
            print(&format!("{shown}: note: {line}\n"))?;
        }
        wrong += found.wrong.len();
        files += found.files;
        runs += 1;
    }
    let shown = args.dir.display();
    if let Some(missing) = sweep.and_then(|sweep| sweep.missing()) {
        print(&format!("{shown}: {missing}\n"))?;
        wrong += 1;
    }
    if wrong > 0 {
        return Err(
            Failure::new(1, format!("{shown} is not as it was left: {wrong} findings")).into()
        );
    }
    let runs = if runs == 1 { String::new() } else { format!(" of {runs} runs") };
    print(&format!(
        "{shown}: {files} files{runs}, as they were left; logs, manifest, plan and report agree\n"
    ))?;
    Ok(ExitCode::SUCCESS)
}

/// The directory itself, or the runs of a sweep in it.
fn runs_in(dir: &Path) -> Result<Vec<PathBuf>> {
    if [MANIFEST, RO_CRATE, DONE].iter().any(|name| dir.join(name).symlink_metadata().is_ok()) {
        return Ok(vec![dir.to_owned()]);
    }
    let mut runs = Vec::new();
    if dir.join(SWEEP).exists() {
        // Links are not followed: a directory may come from a stranger.
        let below = |dir: &Path| -> Vec<PathBuf> {
            let entries = fs::read_dir(dir).into_iter().flatten().flatten();
            let directories =
                entries.filter(|entry| entry.file_type().is_ok_and(|what| what.is_dir()));
            directories.map(|entry| entry.path()).collect()
        };
        runs = below(dir).iter().flat_map(|case| below(case)).collect();
        runs.sort();
    }
    match runs.is_empty() {
        true => Err(refuse(format!("{}: expected the directory of a run", dir.display()))),
        false => Ok(runs),
    }
}

/// Returns true for the name of a report.
fn is_report(name: &str) -> bool {
    ["report.txt", "report.json", "report.html"].contains(&name)
}

fn look_at(dir: &Path) -> Result<Findings> {
    let mut found = Findings::default();
    let Some((text, metadata)) = read_crate(dir, &mut found) else { return Ok(found) };
    let listed = ro_crate::files(&metadata).unwrap_or_else(|error| {
        found.wrong.push(format!("{RO_CRATE}: {error}"));
        Vec::new()
    });
    let there = list(dir, &[RO_CRATE, DONE])?;
    found.files = there.len() + 1;
    found.hashes(&listed, &there);
    let Some(manifest) = found.manifest(dir) else { return Ok(found) };
    found.record(dir, &manifest);
    found.described(&text, &metadata, &ro_crate::metadata(&manifest, &listed));
    found.report = found.plan_and_results(dir, &manifest, &listed, &there);
    Ok(found)
}

/// Text and content of the file with the hashes.
fn read_crate(dir: &Path, found: &mut Findings) -> Option<(String, Value)> {
    let why = match read_text(dir, RO_CRATE, LONGEST) {
        Ok(text) => match serde_json::from_str(&text) {
            Ok(metadata) => return Some((text, metadata)),
            Err(error) => format!("{RO_CRATE}: not JSON: {error}"),
        },
        Err(error) => {
            format!("{RO_CRATE}: {error}: the run has not come to its end, or the file was removed")
        }
    };
    found.wrong.push(why);
    None
}

impl Findings {
    /// Compares the files that are listed with those that are there.
    fn hashes(&mut self, listed: &[RunFile], there: &[RunFile]) {
        let by_path = |files: &[RunFile]| -> BTreeMap<String, RunFile> {
            files.iter().map(|file| (file.path.clone(), file.clone())).collect()
        };
        let (listed, there) = (by_path(listed), by_path(there));
        for (path, want) in &listed {
            let hash = |file: &RunFile| file.sha256.clone().unwrap_or_else(|| "none".to_owned());
            self.wrong.extend(match there.get(path) {
                None => Some(format!("{path}: missing")),
                // Reported in the loop below.
                Some(file) if file.sha256.is_none() => None,
                Some(file) if file.bytes != want.bytes => {
                    Some(format!("{path}: {} bytes, and the run left {}", file.bytes, want.bytes))
                }
                Some(file) if file.sha256 != want.sha256 => Some(format!(
                    "{path}: changed: SHA-256 {}, and the run left {}",
                    hash(file),
                    hash(want)
                )),
                Some(_) => None,
            });
        }
        for (path, file) in &there {
            if file.bytes == 0 && path.ends_with(".itg") {
                self.wrong.push(format!("{path}: an empty file, and no log: it was not fetched"));
            }
            if file.sha256.is_none() {
                self.wrong.push(format!("{path}: a link, a device or the like: it is not opened"));
            } else if !listed.contains_key(path) {
                self.wrong.push(format!("{path}: added: the run left no such file"));
            }
        }
    }

    /// Compares the record of a run of a sweep with the manifest.
    fn record(&mut self, dir: &Path, manifest: &Manifest) {
        let why = match read_text(dir, DONE, LONGEST) {
            Err(error) if error.kind() == ErrorKind::NotFound => return,
            Err(error) => Some(error.to_string()),
            Ok(record) => contradicts(record.as_bytes(), manifest),
        };
        self.files += 1;
        self.wrong.extend(why.map(|why| format!("{DONE}: {why}")));
    }

    fn manifest(&mut self, dir: &Path) -> Option<Manifest> {
        let read = read_text(dir, MANIFEST, LONGEST).map_err(|error| error.to_string());
        let parsed =
            read.and_then(|text| Manifest::parse(&text).map_err(|error| error.to_string()));
        parsed.map_err(|error| self.wrong.push(format!("{MANIFEST}: {error}"))).ok()
    }

    /// Compares the description of the run with the one that follows from its manifest. Licence, authors and the like
    /// are for those who publish the run.
    fn described(&mut self, text: &str, metadata: &Value, want: &Value) {
        let (wrong, notes) = (self.wrong.len(), self.notes.len());
        if metadata.get("@context") != want.get("@context") {
            self.wrong.push(format!("{RO_CRATE}: its @context is not what the run wrote"));
        }
        let mut have: BTreeMap<&str, Vec<&Map<String, Value>>> = BTreeMap::new();
        for (id, entity) in ro_crate::entities(metadata) {
            have.entry(id).or_default().push(entity);
        }
        let wanted: BTreeMap<_, _> = ro_crate::entities(want).into_iter().collect();
        for (id, entity) in &wanted {
            let same = have.get(id).map_or(&[][..], Vec::as_slice);
            let [found] = same else {
                self.wrong.push(format!("{RO_CRATE}: {} entries for `{id}`, not 1", same.len()));
                continue;
            };
            for key in entity.keys().chain(found.keys().filter(|key| !entity.contains_key(*key))) {
                if entity.get(key) == found.get(key) {
                    continue;
                }
                let line = format!("{RO_CRATE}: `{key}` of `{id}` is not what the run wrote");
                let fixed = ["@type", "conformsTo", "hasPart", "mentions"].contains(&key.as_str());
                let theirs = (*id == ROOT && !fixed) || (*id == ACTION && key == "agent");
                if theirs { self.notes.push(line) } else { self.wrong.push(line) }
            }
        }
        for id in have.keys().filter(|id| !wanted.contains_key(*id)) {
            self.notes.push(format!("{RO_CRATE}: entry `{id}` was added"));
        }
        if text != format!("{want:#}\n") && (wrong, notes) == (self.wrong.len(), self.notes.len()) {
            self.wrong.push(format!("{RO_CRATE}: changed: it says the same in other bytes"));
        }
    }

    /// Plans the experiment again, makes the files that follow from the logs again, and compares.
    fn plan_and_results(
        &mut self,
        dir: &Path,
        manifest: &Manifest,
        listed: &[RunFile],
        there: &[RunFile],
    ) -> Option<Report> {
        let here = env!("CARGO_PKG_VERSION");
        let planned = load_manifest(manifest).and_then(|loaded| {
            let gates = GateOptions::read(setting(manifest, GATES))?.with(&loaded)?;
            Ok((gates, loaded))
        });
        let (gates, loaded) = match planned {
            Ok(planned) => planned,
            Err(error) => {
                self.wrong.push(format!("{MANIFEST}: its experiment cannot be planned: {error:#}"));
                return None;
            }
        };
        let plan = loaded.plan.hash_text();
        if plan != manifest.plan {
            self.wrong.push(format!(
                "{MANIFEST}: its experiment and its seed give plan {plan}, and it says {}",
                manifest.plan
            ));
        }
        if manifest.version != here {
            self.notes.push(format!(
                "the report is not made again: the run is of version {}, this is {here}",
                manifest.version
            ));
            return None;
        }
        let report = self.results(dir, manifest, &gates, there);
        let others: Vec<_> = listed.iter().filter(|file| file.path != ARTIFACT).cloned().collect();
        self.again(dir, ARTIFACT, &artifact::text(manifest, &others, report.as_ref()));
        report
    }

    /// Makes the files that follow from the logs again, and compares; the report.
    fn results(
        &mut self,
        dir: &Path,
        manifest: &Manifest,
        gates: &Gates,
        there: &[RunFile],
    ) -> Option<Report> {
        let made = logs(manifest).and_then(|names| {
            let known = |name: &String| there.iter().any(|file| file.path == *name);
            if names.is_empty() {
                // A run without logs has no report.
                let of_logs = |path: &str| {
                    path.ends_with(".itg") || path.rsplit('/').next().is_some_and(is_report)
                };
                return match there.iter().find(|file| of_logs(&file.path)) {
                    Some(file) => Err(anyhow!("it names no logs, and {} is there", file.path)),
                    None => Ok(None),
                };
            }
            if !names.iter().all(known) {
                bail!("it names logs that the run has not left");
            }
            let story = match read_text(dir, STORY, LONGEST) {
                Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
                story => story.context(STORY)?,
            };
            Results::of(dir, manifest, gates, &story).map(Some)
        });
        let results = made
            .map_err(|error| self.wrong.push(format!("the report cannot be made again: {error:#}")))
            .ok()
            .flatten()?;
        self.logs(&results.report, manifest);
        for (name, text) in &results.files {
            self.again(dir, name, text);
        }
        Some(results.report)
    }

    /// Compares a file with its text made again.
    fn again(&mut self, dir: &Path, name: &str, text: &str) {
        match read_text(dir, name, text.len() as u64) {
            Ok(found) if found == text => {}
            Err(error) if error.kind() == ErrorKind::NotFound => {
                self.wrong
                    .push(format!("{name}: removed: it follows from the logs and the manifest"));
            }
            _ => {
                self.wrong.push(format!("{name}: not what follows from the logs and the manifest"));
            }
        }
    }

    /// Compares what logs say of themselves and of their run with the manifest.
    fn logs(&mut self, report: &Report, manifest: &Manifest) {
        // Damage that the run has left is in its report.
        self.notes.extend(damage_lines(&report.damage));
        let logs = report.manifest.get("logs").and_then(Value::as_array);
        for log in logs.into_iter().flatten() {
            let name = log.get("name").and_then(Value::as_str).unwrap_or("a log");
            let seed = log.get("seed").and_then(Value::as_u64);
            if let Some(seed) = seed.filter(|seed| *seed != manifest.seed) {
                self.wrong.push(format!(
                    "{name}: of seed {seed}, and the manifest says {}",
                    manifest.seed
                ));
            }
            let plan = log.pointer("/settings/plan").and_then(Value::as_str);
            if let Some(plan) = plan.filter(|plan| *plan != manifest.plan) {
                self.wrong.push(format!(
                    "{name}: of plan {plan}, and the manifest says {}",
                    manifest.plan
                ));
            }
        }
    }
}
