//! Runs that the directory of a sweep must have, as its `sweep.json` says, and what their records must say: for
//! `verify`.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, Result, anyhow};
use itg_core::seed::RunSeed;
use itg_experiment::sweep::{Done, Next, Sweep, run_seed};
use itg_stats::Report;
use itg_stats::gate::Figure;

use super::{ASIDE, Marker, SCHEMA, SweepFile, case_dir, figures, file_hash};
use crate::directory::{DONE, SWEEP};
use crate::inventory::{LONGEST, read_text};

/// Largest difference of two figures that are the same, as a share: a decimal may be read one bit off.
const SAME: f64 = 1e-12;

/// Check of a sweep's runs, one after the other.
pub(crate) struct Check {
    sweep: Sweep,
    seed: RunSeed,
    figures: Vec<Figure>,
    /// Place of each case by its directory.
    cases: BTreeMap<String, usize>,
    done: BTreeMap<(usize, u32), Done>,
    /// Time of the runs that were repeated.
    repeated_ns: u64,
    /// True if runs whose traffic failed count.
    with_failed: bool,
}

impl Check {
    /// Reads the sweep of a directory; none where there is none.
    ///
    /// # Errors
    /// Its file is not that of a sweep.
    pub(crate) fn read(dir: &Path) -> Result<Option<Self>> {
        if dir.join(SWEEP).symlink_metadata().is_err() {
            return Ok(None);
        }
        let text = read_text(dir, SWEEP, LONGEST)?;
        let kept: SweepFile = serde_json::from_str(&text).context("not the file of a sweep")?;
        if kept.schema != SCHEMA {
            return Err(anyhow!("it has schema {}, not {SCHEMA}", kept.schema));
        }
        let mut sweep = Sweep::read(&kept.experiment, &kept.origin)?
            .context("its experiment has no [matrix] and no [sweep]")?;
        sweep.settings.in_order |= kept.in_order;
        let cases = sweep.cases.iter().enumerate().map(|(place, case)| (case_dir(case), place));
        let (cases, figures) = (cases.collect(), figures(&sweep)?);
        let (seed, with_failed) = (RunSeed(kept.seed), kept.with_failed);
        let done = BTreeMap::new();
        Ok(Some(Self { seed, sweep, figures, cases, done, repeated_ns: 0, with_failed }))
    }

    /// Contradictions between the sweep and the record of one of its runs, a sentence each; `report` is that of the
    /// run's logs, where it was made again.
    pub(crate) fn run(&mut self, dir: &Path, report: Option<&Report>) -> Vec<String> {
        let Some((case, repetition, repeated)) = self.place(dir) else {
            return vec![format!("a run that {SWEEP} does not ask for")];
        };
        let record = read_text(dir, DONE, LONGEST).map_err(|error| error.to_string());
        let marker = record
            .and_then(|text| serde_json::from_str::<Marker>(&text).map_err(|e| e.to_string()));
        let marker = match marker {
            Ok(marker) => marker,
            Err(error) => return vec![format!("{DONE}: {error}")],
        };
        let asked = &self.sweep.cases[case];
        let seed = run_seed(self.seed, asked, repetition);
        let mut wrong = Vec::new();
        let mut same = |what: &str, have: &str, want: &str| {
            if have != want {
                wrong.push(format!("{DONE}: of {what} `{have}`, and {SWEEP} wants `{want}` here"));
            }
        };
        same("the case", &marker.case, &asked.label);
        same("repetition", &marker.repetition.to_string(), &repetition.to_string());
        same("seed", &marker.seed.to_string(), &seed.0.to_string());
        same("the experiment", &marker.file, &file_hash(&asked.text));
        let verdict = report.map(|report| report.total.metrics.fidelity.verdict.name());
        if let Some((have, want)) = marker.verdict.as_deref().zip(verdict).filter(|(a, b)| a != b) {
            wrong.push(format!("{DONE}: verdict `{have}`, and the logs give `{want}`"));
        }
        if repeated && !marker.failed() {
            wrong.push(format!("{DONE}: set aside, although its traffic has not failed"));
        }
        for figure in &self.figures {
            let name = figure.name();
            let Some(have) = marker.figures.get(name) else {
                wrong.push(format!("{DONE}: it has no `{name}`"));
                continue;
            };
            if let Some(want) = report.map(|report| figure.of(report))
                && !are_same(*have, want)
            {
                let text = |value: Option<f64>| {
                    value.map_or_else(|| "none".to_owned(), |value| figure.text(value))
                };
                let (have, want) = (text(*have), text(want));
                wrong.push(format!("{DONE}: {name} {have}, and the logs give {want}"));
            }
        }
        if repeated {
            self.repeated_ns = self.repeated_ns.saturating_add(marker.elapsed_ns);
        } else {
            self.done.insert((case, repetition), marker.done(self.with_failed));
        }
        wrong
    }

    /// The case and the repetition of a run's directory; true if it was set aside, and the run repeated.
    fn place(&self, dir: &Path) -> Option<(usize, u32, bool)> {
        let name = |dir: &Path| dir.file_name()?.to_str().map(str::to_owned);
        let (case, own) = (name(dir.parent()?)?, name(dir)?);
        let (own, number) = own.split_once(ASIDE).map_or((&*own, None), |(a, b)| (a, Some(b)));
        let plain = |text: &str| text.parse::<u32>().ok().filter(|n| n.to_string() == text);
        let repetition = plain(own)?;
        let (_, most) = self.sweep.repetitions();
        let asked = (1..=most).contains(&repetition) && number.is_none_or(|n| plain(n).is_some());
        Some((*self.cases.get(&case)?, repetition, number.is_some())).filter(|_| asked)
    }

    /// The first run that is not there although the sweep asks for it, as a sentence.
    pub(crate) fn missing(&self) -> Option<String> {
        match self.sweep.next(self.seed, &self.done, self.repeated_ns) {
            Next::Finished | Next::OutOfTime => None,
            Next::Run { case, repetition } => Some(format!(
                "{}/{repetition}: missing: the run was removed, or the sweep has not come to its end",
                case_dir(&self.sweep.cases[case])
            )),
        }
    }
}

fn are_same(a: Option<f64>, b: Option<f64>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => (a - b).abs() <= SAME * a.abs().max(b.abs()),
        (a, b) => a.is_none() && b.is_none(),
    }
}
