//! Many seeds of one simulation.

use std::collections::BTreeMap;
use std::num::NonZero;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use anyhow::Result;
use itg_cli::{Failure, refuse, say};
use itg_core::seed::RunSeed;

use super::{Request, objection};

/// Failures that are printed with their commands.
const MOST_SHOWN: usize = 20;

/// Runs with `count` seeds from the first one on, some at once.
pub(super) fn run(
    request: &Request<'_>,
    RunSeed(first): RunSeed,
    (count, jobs): (u64, Option<usize>),
) -> Result<ExitCode> {
    if count == 0 || jobs == Some(0) {
        return Err(refuse("--seeds and --jobs: expected 1 or more"));
    }
    let checkers = request.parts.checkers(&request.config).map_err(refuse)?;
    if checkers.is_empty() {
        let file = request.args.file.display();
        return Err(refuse(format!(
            "{file} has no `check`: no run could fail; name checkers, such as check = [\"order\"]"
        )));
    }
    // What is wrong with the file is said once.
    request.world(RunSeed(first))?;
    let processors = || thread::available_parallelism().map_or(1, NonZero::get);
    let jobs = jobs.unwrap_or_else(processors);
    let next = AtomicU64::new(0);
    let failures = Mutex::new(BTreeMap::new());
    let faultless = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    if at >= count {
                        return;
                    }
                    let seed = first.wrapping_add(at);
                    let (failure, faults) = outcome(request, RunSeed(seed));
                    faultless.fetch_add(u64::from(faults == 0), Ordering::Relaxed);
                    if let Some(text) = failure {
                        let failures = failures.lock();
                        failures.unwrap_or_else(|held| held.into_inner()).insert(at, (seed, text));
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().unwrap_or_else(|held| held.into_inner());
    let mut text = String::new();
    for (seed, what) in failures.values().take(MOST_SHOWN) {
        text += &format!("seed {seed}: {what}\n  {}\n", request.command(RunSeed(*seed)));
    }
    if failures.len() > MOST_SHOWN {
        text += &format!("and {} more\n", failures.len() - MOST_SHOWN);
    }
    itg_cli::print(&text)?;
    let names: Vec<_> = checkers.iter().map(|checker| checker.name()).collect();
    say(format_args!("{count} seeds from {first} on, {jobs} at once, under {}", names.join(", ")));
    let faultless = faultless.into_inner();
    if request.args.faults && faultless > 0 {
        say(format_args!(
            "in {faultless} of them no fault took place: a run that is over soon wants a short --until, for two \
             thirds of which faults are drawn"
        ));
    }
    match failures.len() {
        0 => {
            itg_cli::print(&format!("{count} seeds, no objection\n"))?;
            Ok(ExitCode::SUCCESS)
        }
        failed => Err(Failure::new(1, format!("{failed} of {count} seeds fail")).into()),
    }
}

/// Failure of a run, if it failed (a layer that panics is one), and the number of faults that took place.
fn outcome(request: &Request<'_>, seed: RunSeed) -> (Option<String>, u64) {
    match catch_unwind(AssertUnwindSafe(|| objection(request, seed))) {
        Ok(Ok((found, faults))) => (found.map(|violation| violation.to_string()), faults),
        Ok(Err(error)) => (Some(format!("{error:#}")), 0),
        Err(_) => (Some("a layer or a checker panics, as said above".to_owned()), 0),
    }
}
