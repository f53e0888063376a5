//! `itg-cluster verify DIR`: holds the files of a run against the hashes that it left, and against one another.
//!
//! Three lines of defence. Every file has the size and the SHA-256 that `ro-crate-metadata.json` gives, and no other file
//! is there. The experiment in the manifest gives the plan whose hash the manifest and the logs have. What follows from
//! logs and manifest (the report in all its forms, the appendix, `ro-crate-metadata.json` itself) is made again and is
//! the same. Hashes are no signature: whoever makes a whole run anew is not found out.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Result, anyhow};
use clap::Args;
use itg_cli::{Failure, load_manifest, print, refuse};
use itg_experiment::Manifest;
use itg_stats::Report;
use serde_json::Value;

use crate::artifact::{self, ARTIFACT};
use crate::directory::{DONE, MANIFEST, SWEEP};
use crate::inventory::{RunFile, list, read_text};
use crate::results::{Results, STORY, logs};
use crate::ro_crate::{self, ACTION, RO_CRATE, ROOT};
use crate::steps::gates;
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
}

/// Looks at the directory, and prints a line for each finding; exit code 1 when something is not as the run left it.
///
/// # Errors
/// The directory is not that of a run, or is not as the run left it.
pub fn run(args: &VerifyArgs) -> Result<ExitCode> {
    let (mut wrong, mut files, mut runs) = (0, 0, 0);
    for dir in runs_in(&args.dir)? {
        let found = look_at(&dir)?;
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
    let is_run =
        |dir: &PathBuf| [MANIFEST, RO_CRATE, DONE].iter().any(|name| dir.join(name).exists());
    if is_run(&dir.to_owned()) {
        return Ok(vec![dir.to_owned()]);
    }
    let mut runs = Vec::new();
    if dir.join(SWEEP).exists() {
        let below = |dir: &Path| -> Vec<PathBuf> {
            fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
        };
        runs = below(dir).iter().flat_map(|case| below(case)).filter(|dir| dir.is_dir()).collect();
        runs.sort();
    }
    match runs.is_empty() {
        true => Err(refuse(format!("{}: expected the directory of a run", dir.display()))),
        false => Ok(runs),
    }
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
    if let Ok(record) = read_text(dir, DONE) {
        found.files += 1;
        found
            .wrong
            .extend(contradicts(record.as_bytes(), &manifest).map(|why| format!("{DONE}: {why}")));
    }
    found.described(&text, &metadata, &ro_crate::metadata(&manifest, &listed));
    found.plan_and_results(dir, &manifest, &listed, &there);
    Ok(found)
}

/// Text and content of the file with the hashes.
fn read_crate(dir: &Path, found: &mut Findings) -> Option<(String, Value)> {
    let why = match read_text(dir, RO_CRATE) {
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
            self.wrong.extend(match there.get(path) {
                None => Some(format!("{path}: missing")),
                Some(file) if file.bytes != want.bytes => {
                    Some(format!("{path}: {} bytes, and the run left {}", file.bytes, want.bytes))
                }
                Some(file) if file.sha256 != want.sha256 => Some(format!(
                    "{path}: changed: SHA-256 {}, and the run left {}",
                    file.sha256, want.sha256
                )),
                Some(_) => None,
            });
        }
        for path in there.keys().filter(|path| !listed.contains_key(*path)) {
            self.wrong.push(format!("{path}: added: the run left no such file"));
        }
    }

    fn manifest(&mut self, dir: &Path) -> Option<Manifest> {
        let read = read_text(dir, MANIFEST).map_err(|error| error.to_string());
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
        let have = ro_crate::entities(metadata);
        let wanted = ro_crate::entities(want);
        for (id, entity) in &wanted {
            let same: Vec<_> = have.iter().filter(|(other, _)| other == id).collect();
            let [(_, found)] = same.as_slice() else {
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
        for (id, _) in have.iter().filter(|(id, _)| !wanted.iter().any(|(other, _)| other == id)) {
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
    ) {
        let here = env!("CARGO_PKG_VERSION");
        let planned = load_manifest(manifest).and_then(|loaded| Ok((gates(&loaded)?, loaded)));
        let (gates, loaded) = match planned {
            Ok(planned) => planned,
            Err(error) => {
                return self
                    .wrong
                    .push(format!("{MANIFEST}: its experiment cannot be planned: {error:#}"));
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
            return self.notes.push(format!(
                "the report is not made again: the run is of version {}, this is {here}",
                manifest.version
            ));
        }
        let mut report = None;
        if !logs(manifest).is_empty() {
            let story = read_text(dir, STORY).unwrap_or_default();
            // Files elsewhere, and links, are not read.
            let known =
                |name: &String| there.iter().any(|file| file.path == *name && file.is_regular());
            let results = match logs(manifest).iter().all(known) {
                true => Results::of(dir, manifest, &gates, &story),
                false => Err(anyhow!("it names logs that the run has not left")),
            };
            match results {
                Ok(results) => {
                    self.logs(&results.report, manifest);
                    for (name, text) in &results.files {
                        self.again(dir, name, text);
                    }
                    report = Some(results.report);
                }
                Err(error) => {
                    self.wrong.push(format!("the report cannot be made again: {error:#}"))
                }
            }
        }
        let others: Vec<_> = listed.iter().filter(|file| file.path != ARTIFACT).cloned().collect();
        self.again(dir, ARTIFACT, &artifact::text(manifest, &others, report.as_ref()));
    }

    /// Compares a file with its text made again.
    fn again(&mut self, dir: &Path, name: &str, text: &str) {
        let same = match read_text(dir, name) {
            Ok(found) => found == text,
            // That it is missing is a finding already.
            Err(error) => error.kind() == ErrorKind::NotFound,
        };
        if !same {
            self.wrong.push(format!("{name}: not what follows from the logs and the manifest"));
        }
    }

    /// Compares what logs say of themselves and of their run with the manifest.
    fn logs(&mut self, report: &Report, manifest: &Manifest) {
        // Damage that the run has left is in its report.
        self.notes.extend(report.damage.iter().map(ToString::to_string));
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
