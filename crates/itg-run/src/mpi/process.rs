//! `mpirun -n N itg-cluster process FILE --mpi`: a process of layers on each rank.

use std::fs;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::Result;
use itg_cli::{Failure, Signals, WordArgs, refuse, say};
use itg_experiment::Seed;
use itg_mpi::{NetworkError, Traffic};
use itg_process::{Config, Counters, Registry, Report, StopReason};
use serde_json::{Value, json};

use crate::process::ProcessArgs;
use crate::trace::Trace;

/// Runs the process of this rank; rank 0 reads the file and prints what it has counted.
pub(crate) fn run(
    file: &std::path::Path,
    args: &ProcessArgs,
    registry: &Registry,
    words: WordArgs,
) -> Result<ExitCode> {
    let job = super::start()?;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let signals = runtime.block_on(async { Signals::watch() })?;
    let origin = file.display().to_string();
    let mut trace = None;
    let read = match job.rank() {
        0 => Some(read(&origin, args.seed).and_then(|read| {
            trace = args.trace.as_deref().map(Trace::create).transpose()?;
            Ok(read)
        })),
        _ => None,
    };
    let said = match &read {
        None => Vec::new(),
        Some(Ok((text, seed))) => serde_json::to_vec(&json!({ "text": text, "seed": seed }))?,
        Some(Err(_)) => b"null".to_vec(),
    };
    let said: Value = serde_json::from_slice(&job.broadcast(said))?;
    let root = read.transpose()?.is_some();
    let (Some(text), Some(seed)) =
        (said.get("text").and_then(Value::as_str), said.get("seed").and_then(Value::as_u64))
    else {
        return Ok(ExitCode::SUCCESS);
    };
    let mut config = Config::parse(text, &origin).map_err(refuse)?;
    config.set_networks("mpi");
    if root && !words.quiet {
        say(format_args!("seed {seed}, {} ranks, {}", job.size(), job.library()));
        crate::process::tell_left_out(&config);
    }
    if let (None, Some(path)) = (&trace, &args.trace) {
        // Rank 0 has made the file; on another host it is another one.
        trace = Some(Trace::append(path)?);
    }
    let deadline =
        args.until.map(|until| Instant::now() + std::time::Duration::from_nanos(until.0));
    let asked = || {
        let over = deadline.is_some_and(|deadline| Instant::now() >= deadline);
        (over || signals.stop.borrow().is_some()).then_some(StopReason::Interrupted)
    };
    let done =
        itg_mpi::run(&job, (&config, registry, itg_core::seed::RunSeed(seed)), asked, |report| {
            if let (true, Report::Event { at, event, .. }) = (args.events && root, &report) {
                // A reader that has gone does not stop the processes.
                itg_cli::print(&format!("{at} {} {:?}\n", event.name, event.values))
                    .unwrap_or_default();
            }
            if let Some(trace) = &mut trace {
                trace.report(&report);
            }
        });
    let (reason, counters, traffic) = match done {
        Ok(done) => done,
        // Every rank has the same reason; one says it.
        Err(_) if !root => return Ok(ExitCode::SUCCESS),
        Err(error @ (NetworkError::Config(_) | NetworkError::Ranks { .. })) => {
            return Err(refuse(error));
        }
    };
    if root {
        print_counters(reason, &counters, &traffic)?;
    }
    if root && !config.checkers.is_empty() {
        say(crate::judge::NOT_JUDGED);
    }
    match (signals.exit_code(), reason) {
        (Some(code), _) if root => Ok(ExitCode::from(code)),
        (_, StopReason::Failed) if root => Err(Failure::new(1, "the application failed").into()),
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// Prints what rank 0 has counted.
fn print_counters(reason: StopReason, counters: &Counters, traffic: &Traffic) -> Result<()> {
    let why = match reason {
        StopReason::Finished => "finished",
        StopReason::Interrupted => "interrupted",
        StopReason::Failed => "failed",
    };
    itg_cli::print(&format!(
        "{why}: {} messages sent, {} delivered, {} refused, {} of no layer\nmpi: {} frames sent, {} \
         received, {} refused, {} damaged\n",
        counters.sent,
        counters.delivered,
        counters.refused,
        counters.unknown_type + counters.unclaimed,
        traffic.sent,
        traffic.received,
        traffic.refused,
        traffic.damaged,
    ))
}

/// The configuration, once it is known to be one, and the seed.
fn read(origin: &str, given: Option<Seed>) -> Result<(String, u64)> {
    let text = fs::read_to_string(origin)
        .map_err(|error| refuse(format!("cannot read configuration `{origin}`: {error}")))?;
    let config = Config::parse(&text, origin).map_err(refuse)?;
    let seed = given.map(|seed| seed.0).or(config.seed).unwrap_or_else(itg_cli::draw_seed);
    Ok((text, seed.0))
}
