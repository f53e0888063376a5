//! From the name of an experiment file to its plan: reads the file, what it names, and the profiles
//! that go before the built-in ones; draws a seed when none is given.

use std::collections::BTreeMap;
use std::fs;
use std::ops::RangeInclusive;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use clap::Args;
use itg_core::flow::Proto;
use itg_core::seed::RunSeed;
use itg_experiment::sweep::{Case, Sweep};
use itg_experiment::{Experiment, Manifest, Plan, PlanInputs, Seed, TimeSpan};

use crate::failure::refuse;
use crate::text_file::read_text;

/// The experiment and what replaces parts of it.
#[derive(Clone, Debug, Args)]
pub struct LoadArgs {
    /// Experiment file (TOML)
    pub file: PathBuf,
    /// Run seed; replaces the file's [default: the file's, or drawn and printed]
    #[arg(long, value_name = "N")]
    pub seed: Option<Seed>,
    /// End of the run, such as 20s; replaces the file's duration
    #[arg(long, value_name = "T")]
    pub duration: Option<TimeSpan>,
    /// Directory of profiles (NAME.toml) that go before the built-in ones
    #[arg(long, help_heading = "Traffic", value_name = "DIR")]
    pub profiles: Option<PathBuf>,
}

/// An experiment, ready to be run.
#[derive(Debug)]
pub struct Loaded {
    /// The text of the file.
    pub text: String,
    /// Its name as it was given.
    pub origin: String,
    /// The experiment, as parsed.
    pub experiment: Experiment,
    /// Plan that the experiment resolves to.
    pub plan: Plan,
    /// The duration from the command line, in nanoseconds.
    pub duration_ns: Option<u64>,
}

/// Reads and plans an experiment; everything that is wrong with it is a failure with exit
/// code 2.
///
/// # Errors
/// The fault of the request.
pub fn load(args: &LoadArgs) -> Result<Loaded> {
    load_within(args, None)
}

/// The same with other limits of packet sizes than ITG's.
///
/// # Errors
/// As of [`load`].
pub fn load_within(
    args: &LoadArgs,
    sizes: Option<fn(Proto) -> RangeInclusive<u32>>,
) -> Result<Loaded> {
    let origin = args.file.display().to_string();
    let text = read_text(&args.file)
        .map_err(|error| refuse(format!("cannot read experiment file `{origin}`: {error}")))?;
    load_text(args, text, sizes)
}

/// As [`load_within`], from the text of the file.
///
/// # Errors
/// The fault of the request.
pub fn load_text(
    args: &LoadArgs,
    text: String,
    sizes: Option<fn(Proto) -> RangeInclusive<u32>>,
) -> Result<Loaded> {
    let origin = args.file.display().to_string();
    let experiment = Experiment::parse(&text, &origin).map_err(refuse)?;
    planned(args, text, experiment, sizes)
}

/// Content of an experiment file.
#[derive(Debug)]
pub enum Asked {
    /// One run.
    One(Box<Loaded>),
    /// Several; the text of the file comes with them.
    Sweep(Box<Sweep>, String),
}

/// Reads an experiment file of one run, and plans it, or of several.
///
/// # Errors
/// The fault of the request.
pub fn load_any(args: &LoadArgs) -> Result<Asked> {
    let origin = args.file.display().to_string();
    let text = read_text(&args.file)
        .map_err(|error| refuse(format!("cannot read experiment file `{origin}`: {error}")))?;
    match Sweep::read(&text, &origin).map_err(refuse)? {
        Some(sweep) => Ok(Asked::Sweep(Box::new(sweep), text)),
        None => load_text(args, text, None).map(|loaded| Asked::One(Box::new(loaded))),
    }
}

/// Plans a case of a sweep with the seed of one of its runs.
///
/// # Errors
/// The fault of the request.
pub fn load_case(args: &LoadArgs, case: &Case, seed: RunSeed) -> Result<Loaded> {
    let args = LoadArgs { seed: Some(Seed(seed)), ..args.clone() };
    planned(&args, case.text.clone(), case.experiment.clone(), None)
}

/// Plans the experiment of a manifest again, of what the manifest holds and nothing else. Whether its hash is that of the
/// manifest is for the caller to see.
///
/// # Errors
/// Its experiment cannot be planned.
pub fn load_manifest(manifest: &Manifest) -> Result<Loaded> {
    let origin = manifest.origin.clone();
    let experiment = Experiment::parse(&manifest.experiment, &origin).map_err(refuse)?;
    let mut files = |name: &str| {
        manifest
            .files
            .get(name)
            .cloned()
            .ok_or_else(|| format!("the manifest has no file `{name}`"))
    };
    let inputs = PlanInputs {
        duration_ns: manifest.duration_ns,
        profiles: manifest.profiles.clone(),
        ..PlanInputs::new(RunSeed(manifest.seed), &mut files)
    };
    let plan = Plan::resolve(&experiment, inputs).map_err(refuse)?;
    let (text, duration_ns) = (manifest.experiment.clone(), manifest.duration_ns);
    Ok(Loaded { text, origin, experiment, plan, duration_ns })
}

fn planned(
    args: &LoadArgs,
    text: String,
    experiment: Experiment,
    sizes: Option<fn(Proto) -> RangeInclusive<u32>>,
) -> Result<Loaded> {
    let origin = args.file.display().to_string();
    let seed = args.seed.or(experiment.seed).map_or_else(draw_seed, |seed| seed.0);
    let duration_ns = args.duration.map(|time| time.0);
    let base = args.file.parent().unwrap_or_else(|| Path::new(""));
    let mut files = |name: &str| {
        let path = base.join(name);
        read_text(&path).map_err(|error| format!("cannot read `{}`: {error}", path.display()))
    };
    let profiles = match &args.profiles {
        Some(dir) => read_profiles(dir).map_err(|error| refuse(format!("{error:#}")))?,
        None => BTreeMap::new(),
    };
    let inputs = PlanInputs { duration_ns, profiles, sizes, ..PlanInputs::new(seed, &mut files) };
    let plan = Plan::resolve(&experiment, inputs).map_err(refuse)?;
    Ok(Loaded { text, origin, experiment, plan, duration_ns })
}

fn read_profiles(dir: &Path) -> Result<BTreeMap<String, String>> {
    let context = || format!("cannot read directory of profiles `{}`", dir.display());
    let mut profiles = BTreeMap::new();
    for entry in fs::read_dir(dir).with_context(context)? {
        let path = entry.with_context(context)?.path();
        if path.extension().is_none_or(|extension| extension != "toml") {
            continue;
        }
        let Some(name) = path.file_stem().and_then(|stem| stem.to_str()) else { continue };
        let text = read_text(&path)
            .with_context(|| format!("cannot read profile `{}`", path.display()))?;
        profiles.insert(name.to_owned(), text);
    }
    Ok(profiles)
}

/// A fresh seed below 2⁵³, so that it survives any JSON reader and fits a TOML integer.
#[must_use]
pub fn draw_seed() -> RunSeed {
    RunSeed(itg_socket::host::random_u64() >> 11)
}
