//! One run of an experiment file, or all that it describes.

use std::process::ExitCode;

use anyhow::Result;
use itg_cli::{Asked, Loaded, WordArgs, load_any, load_manifest, refuse};
use itg_experiment::Manifest;

use crate::directory::holds_nothing_else;
use crate::options::{GateOptions, OutputOptions, RunRequest};
use crate::results::{GATES, setting};
use crate::steps::carry_out;
use crate::sweep;
use crate::world::{Output, World};

/// Carries out the run that the file describes, or all of them; the exit code that they ask for.
///
/// # Errors
/// The request makes no sense, or a run leaves nothing to report.
pub fn run(world: &dyn World, request: &RunRequest, words: WordArgs) -> Result<ExitCode> {
    let mut loaded = match load_any(&request.load)? {
        Asked::One(loaded) => loaded,
        Asked::Sweep(sweep, text) => return sweep::run(world, request, &sweep, &text, words),
    };
    if request.options.sweep.any() {
        return Err(refuse("--resume and its like are for files with [matrix] or [sweep]"));
    }
    let options = &request.options;
    one(world, &mut loaded, &options.output, options.gates.clone(), words)
}

/// Makes the report of a run that began elsewhere with this manifest: the world has its logs. Without gates of the command
/// line those that it began with hold.
///
/// # Errors
/// As of [`run`].
pub fn take_up(
    world: &dyn World,
    manifest: &Manifest,
    output: &OutputOptions,
    gates: GateOptions,
    words: WordArgs,
) -> Result<ExitCode> {
    let mut loaded = load_manifest(manifest)?;
    let gates = match gates.setting() {
        Some(_) => gates,
        None => GateOptions {
            junit: gates.junit,
            format: gates.format,
            ..GateOptions::read(setting(manifest, GATES))?
        },
    };
    one(world, &mut loaded, output, gates, words)
}

/// Carries out one run.
fn one(
    world: &dyn World,
    loaded: &mut Loaded,
    options: &OutputOptions,
    gates: GateOptions,
    words: WordArgs,
) -> Result<ExitCode> {
    let dir = options.directory(&loaded.plan.name, jiff::Timestamp::now());
    world.check(loaded)?;
    holds_nothing_else(&dir, &options.own_files())?;
    let output = Output { dir, gates, ..options.open(false, words)? };
    let done = carry_out(world, loaded, &output, words)?;
    Ok(ExitCode::from(done.code))
}
