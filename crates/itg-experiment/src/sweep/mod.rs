//! Sweeps: one file that describes many runs.
//!
//! `[matrix]` has variables with their values; each combination is a *case*, an ordinary experiment.
//! `[sweep]` says how often each case is run. A run is a case and a repetition, counted from 1. Its seed
//! follows from the seed of the file and these two ([`run_seed`]), so that one more case, value or
//! repetition changes no other run. What is run next follows from the file, the seed and the runs that are
//! done ([`Sweep::next`]): a program that knows these goes on where another stopped.

mod expand;
mod order;
mod until;

use std::collections::{BTreeMap, BTreeSet};

use itg_core::seed::RunSeed;
use rand::Rng as _;
use toml::de::DeTable;

use crate::experiment::{Experiment, SweepEntry};
use crate::problem::ExperimentError;
use crate::read::{self, File, SEVERAL};
use crate::schema;

pub use expand::MAX_CASES;
pub use order::{Done, Next};
pub use until::{LEAST, Until, UntilError};

/// The most runs of a case with `repeat_until`, unless `max_repetitions` is given.
const MOST: u32 = 30;

/// A file that describes several runs.
#[derive(Clone, Debug)]
pub struct Sweep {
    /// Name of the experiment.
    pub name: String,
    /// Seed of the file.
    pub seed: Option<RunSeed>,
    /// Names of the variables, in the order of the file.
    pub variables: Vec<String>,
    /// The cases, in the order of the file; at least one.
    pub cases: Vec<Case>,
    /// Settings of the runs.
    pub settings: SweepEntry,
    /// The rule that says when a case has been run often enough.
    pub until: Option<Until>,
}

/// An ordinary experiment of a sweep.
#[derive(Clone, Debug)]
pub struct Case {
    /// For people: `rate=10M size=64`; empty when there are no variables.
    pub label: String,
    /// Its values for people, by variable; one that it does not set is left out.
    pub values: BTreeMap<String, String>,
    /// Text that distinguishes it from all others: `NAME=VALUE` in TOML, a line for each variable,
    /// in the order of names.
    pub key: String,
    /// Experiment of the case; places are those of the file of the sweep.
    pub experiment: Experiment,
    /// The experiment as a file of its own.
    pub text: String,
}

impl Sweep {
    /// Reads a file that describes several runs; `None` when it describes one.
    ///
    /// # Errors
    /// Everything that is wrong with the text, as of [`Experiment::parse`]: with `[matrix]`, with `[sweep]`,
    /// or with one of the cases.
    pub fn read(text: &str, origin: &str) -> Result<Option<Self>, ExperimentError> {
        let file = File { text, origin };
        let mut root = file.document()?;
        let several: DeTable<'_> = root
            .iter()
            .filter(|(key, _)| SEVERAL.contains(&key.get_ref().as_ref()))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        if several.is_empty() {
            return Ok(None);
        }
        // The tables of the sweep by themselves, with what every file has.
        let mut head = several.clone();
        let common = |key: &str| ["schema", "name"].contains(&key);
        head.extend(
            root.iter()
                .filter(|(key, _)| common(key.get_ref()))
                .map(|(key, value)| (key.clone(), value.clone())),
        );
        let head = read::typed(head, file)?;
        for key in SEVERAL {
            root.remove(key);
        }
        let settings = head.sweep.unwrap_or_default();
        let until = check(&settings, &several, file)?;

        let none = DeTable::default();
        let matrix = several.get("matrix").and_then(|matrix| matrix.get_ref().as_table());
        let refuse = |problems| ExperimentError { problems };
        let cases = expand::cases(matrix.unwrap_or(&none), file).map_err(refuse)?;
        let mut variables: Vec<String> = Vec::new();
        for setting in cases.iter().flatten() {
            if !variables.contains(&setting.name) {
                variables.push(setting.name.clone());
            }
        }
        let references = expand::references(&root);
        let unknown: Vec<_> = references
            .iter()
            .filter(|(name, _)| !variables.contains(name))
            .map(|(name, at)| {
                let hint = itg_core::text::suggestion(name, variables.iter().map(String::as_str));
                file.problem(Some(*at), format!("`${{{name}}}` is no variable of [matrix]: {hint}"))
            })
            .collect();
        if !unknown.is_empty() {
            return Err(refuse(unknown));
        }
        let referred: BTreeSet<String> = references.into_iter().map(|(name, _)| name).collect();
        let mut read = Vec::new();
        for settings in &cases {
            let label = expand::label(settings);
            let case = expand::put(&root, settings, &referred, file)
                .map_err(refuse)
                .and_then(|table| Ok((expand::text_of(&table), read::typed(table, file)?)));
            let (text, experiment) = case.map_err(|mut error| {
                if let Some(last) = error.problems.last_mut().filter(|_| !label.is_empty()) {
                    last.text += &format!(" (in the case {label})");
                }
                error
            })?;
            let values = settings.iter().map(|s| (s.name.clone(), s.text())).collect();
            let key = expand::canonical(settings);
            read.push(Case { label, values, key, experiment, text });
        }
        let (name, seed) = match read.first() {
            Some(case) => (head.name, case.experiment.seed.map(|seed| seed.0)),
            None => (head.name, None),
        };
        Ok(Some(Self { name, seed, variables, cases: read, settings, until }))
    }

    /// The least and the most runs of each case.
    #[must_use]
    pub fn repetitions(&self) -> (u32, u32) {
        let least = self.settings.repetitions;
        match self.until {
            None => (least.unwrap_or(1), least.unwrap_or(1)),
            Some(_) => {
                let least = least.unwrap_or(LEAST);
                (least, self.settings.max_repetitions.unwrap_or_else(|| MOST.max(least)))
            }
        }
    }
}

/// The seed of a run: the first 53 bits of the ChaCha8 stream of `seed` that has the name
/// `sweep REPETITION KEY`, so that any reader of TOML or JSON keeps it.
#[must_use]
pub fn run_seed(seed: RunSeed, case: &Case, repetition: u32) -> RunSeed {
    RunSeed(seed.named(&format!("sweep {repetition} {}", case.key)).next_u64() >> 11)
}

/// Returns true if a file may have this key at its top.
fn top_level(key: &str) -> bool {
    let schema = schema::published();
    schema["properties"].as_object().is_some_and(|keys| keys.contains_key(key))
}

/// Checks that the settings of `[sweep]` make sense together.
fn check(
    settings: &SweepEntry,
    several: &DeTable<'_>,
    file: File<'_>,
) -> Result<Option<Until>, ExperimentError> {
    let place = |key: &str| {
        let table = several.get("sweep")?.get_ref().as_table()?;
        Some(table.get(key)?.span().start)
    };
    let refuse = |key: &str, text: String| {
        let problems = vec![file.problem(place(key), format!("`{key}` in [sweep]: {text}"))];
        Err(ExperimentError { problems })
    };
    let until = settings.repeat_until.as_deref().map(Until::parse).transpose();
    let until = match until {
        Ok(until) => until,
        Err(error) => return refuse("repeat_until", error.to_string()),
    };
    let (repetitions, most) = (settings.repetitions, settings.max_repetitions);
    for (key, value) in [("repetitions", repetitions), ("max_repetitions", most)] {
        if let Some(value) = value.filter(|value| !(1..=10_000).contains(value)) {
            return refuse(key, format!("{value} is not from 1 to 10000"));
        }
    }
    match (&until, repetitions, most) {
        (None, _, Some(_)) => {
            refuse("max_repetitions", "it goes with `repeat_until`; use `repetitions`".to_owned())
        }
        (Some(_), Some(few), _) if few < LEAST => refuse(
            "repetitions",
            format!("with `repeat_until` it is the least number, and at least {LEAST}"),
        ),
        (Some(_), few, Some(most)) if most < few.unwrap_or(LEAST) => refuse(
            "max_repetitions",
            format!("{most} is less than the least number, {}", few.unwrap_or(LEAST)),
        ),
        _ => Ok(until),
    }
}
