//! `itg-decode`: logs in, figures out. What the figures mean is in `docs/decode.md`.

mod args;
mod map;
mod packets;
mod print;
mod work;

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

use anyhow::Context;
use clap::Parser;
use itg_stats::Analysis;

use crate::args::Args;
use crate::map::Bytes;
use crate::work::Work;

fn main() -> ExitCode {
    let args = Args::parse();
    let level = match (args.quiet, args.verbose) {
        (true, _) => tracing::Level::ERROR,
        (_, true) => tracing::Level::DEBUG,
        _ => tracing::Level::INFO,
    };
    tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(io::stderr)
        .without_time()
        .with_target(false)
        .with_ansi(false)
        .init();
    tracing::info!("itg-decode {} {args}", env!("CARGO_PKG_VERSION"));
    match run(&args) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        // Whoever reads has seen enough (`| head`).
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Decodes and prints; false when a log was damaged or could not be read.
fn run(args: &Args) -> anyhow::Result<bool> {
    let mut sound = true;
    let mut files = Vec::new();
    for path in &args.logs {
        match Bytes::open(path) {
            Ok(bytes) => files.push((path.display().to_string(), bytes)),
            Err(error) => {
                tracing::error!("{}: cannot be read: {error}", path.display());
                sound = false;
            }
        }
    }
    let work = Work::new(&files, args.threads, args.quiet);
    let mut analysis = Analysis::new(args.options());
    let mut taken = 0;
    for (name, bytes) in &files {
        match analysis.add_log_with(bytes, name, &work) {
            Ok(()) => taken += 1,
            Err(error) => {
                tracing::error!("{error}");
                sound = false;
            }
        }
    }
    if taken == 0 {
        return Ok(false);
    }
    for note in analysis.not_closed() {
        tracing::warn!("{note}");
    }
    for damage in analysis.damage() {
        tracing::error!("{damage}");
        sound = false;
    }
    let mut out = output(args)?;
    if args.packets {
        let runs = analysis.runs().len();
        if runs > 1 {
            tracing::warn!("the logs hold {runs} runs: flow numbers repeat, run after run");
        }
        let lines = packets::print(&analysis, args.format, &work, &mut out)?;
        work.finish();
        tracing::debug!("{lines} lines");
    } else {
        let report = analysis.finish_with(&work);
        work.finish();
        if report.flows.is_empty() {
            tracing::warn!("no flow to show: the logs hold none, or --flow names none of theirs");
        }
        print::report(&report, args.format, &mut out)?;
    }
    out.flush()?;
    Ok(sound)
}

fn output(args: &Args) -> anyhow::Result<Box<dyn Write>> {
    const BUFFER: usize = 1 << 18;
    Ok(match &args.output {
        None => Box::new(BufWriter::with_capacity(BUFFER, io::stdout().lock())),
        Some(path) => {
            let file = File::create(path)
                .with_context(|| format!("{}: cannot be written", path.display()))?;
            Box::new(BufWriter::with_capacity(BUFFER, file))
        }
    })
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        let io = cause.downcast_ref::<io::Error>().map(io::Error::kind);
        let json = cause.downcast_ref::<serde_json::Error>().and_then(|e| e.io_error_kind());
        let csv = cause.downcast_ref::<csv::Error>().and_then(|error| match error.kind() {
            csv::ErrorKind::Io(error) => Some(error.kind()),
            _ => None,
        });
        [io, json, csv].into_iter().flatten().any(|kind| kind == io::ErrorKind::BrokenPipe)
    })
}
