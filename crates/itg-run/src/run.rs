//! One run of an experiment file, or all that it describes.

use std::process::ExitCode;

use anyhow::Result;
use itg_cli::{Asked, WordArgs, load_any, refuse};

use crate::directory::holds_nothing_else;
use crate::options::RunRequest;
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
    let dir = request.options.output.directory(&loaded.plan.name, jiff::Timestamp::now());
    world.check(&loaded)?;
    holds_nothing_else(&dir, &request.options.output.own_files())?;
    let gates = request.options.gates.clone();
    let output = Output { dir, gates, ..request.options.output.open(false, words)? };
    let done = carry_out(world, &mut loaded, &output, words)?;
    Ok(ExitCode::from(done.code))
}
