//! `itg-decode`: logs in, figures out. What the figures mean is in `docs/decode.md`.

mod args;
#[cfg(feature = "parquet")]
mod columns;
mod compare;
mod ditg;
mod html;
mod map;
mod outputs;
mod packets;
mod print;
mod svg;
mod work;

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

use anyhow::Context;
use clap::Parser;
use itg_stats::Analysis;
use itg_stats::gate::Gate;

use crate::args::{Args, Command, Format};
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
    let done = if let Some(Command::Compare(args)) = &args.command {
        compare::run(args).map(|sound| u8::from(!sound))
    } else {
        tracing::info!("itg-decode {} {args}", env!("CARGO_PKG_VERSION"));
        match check(&args) {
            Ok(gates) => run(&args, gates),
            Err(error) => {
                tracing::error!("{error:#}");
                Ok(2)
            }
        }
    };
    match done {
        Ok(code) => ExitCode::from(code),
        // Whoever reads has seen enough (`| head`).
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// What the command line cannot say by itself.
fn check(args: &Args) -> anyhow::Result<(Vec<Gate>, bool)> {
    if args.format == Format::Parquet {
        if cfg!(not(feature = "parquet")) {
            anyhow::bail!("this program was built without Parquet (feature `parquet`)");
        }
        if args.output.is_none() {
            anyhow::bail!("--format parquet writes no stream: name a file with --output");
        }
        if !args.packets && args.interval.is_none() {
            anyhow::bail!("--format parquet holds packets or windows: add --packets or --interval");
        }
    }
    args.outputs.all_gates()
}

/// Decodes and prints; the exit code: 1 when a log was damaged or could not be read, or what a gate
/// says.
fn run(args: &Args, gates: (Vec<Gate>, bool)) -> anyhow::Result<u8> {
    let mut sound = true;
    let mut files = Vec::new();
    for path in &args.logs {
        match Bytes::open(path) {
            Ok(bytes) => files.push((path.display().to_string(), ditg::understood(bytes))),
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
        return Ok(1);
    }
    for note in analysis.not_closed() {
        tracing::warn!("{note}");
    }
    for damage in analysis.damage() {
        tracing::error!("{damage}");
        sound = false;
    }
    let mut out = output(args)?;
    let mut gate = None;
    if args.format == Format::Ditg {
        let runs = analysis.runs().len();
        anyhow::ensure!(runs <= 1, "--format ditg needs logs of one run, these hold {runs}");
        ditg::write(&analysis.packets(), &analysis.finish_with(&work), &mut out)?;
        work.finish();
    } else if args.packets {
        let runs = analysis.runs().len();
        if runs > 1 {
            tracing::warn!("the logs hold {runs} runs: flow numbers repeat, run after run");
        }
        match &args.output {
            #[cfg(feature = "parquet")]
            Some(path) if args.format == Format::Parquet => {
                columns::packets(&analysis, &work, path)?;
            }
            _ => {
                let lines = packets::print(&analysis, args.format, &work, &mut out)?;
                tracing::debug!("{lines} lines");
            }
        }
        work.finish();
    } else {
        let mut report = analysis.finish_with(&work);
        work.finish();
        args.outputs.add_manifest(&mut report)?;
        if report.flows.is_empty() {
            tracing::warn!("no flow to show: the logs hold none, or --flow names none of theirs");
        }
        match &args.output {
            #[cfg(feature = "parquet")]
            Some(path) if args.format == Format::Parquet => columns::windows(&report, path)?,
            _ => print::report(&report, args.format, &mut out)?,
        }
        gate = args.outputs.write(&report, gates)?;
    }
    out.flush()?;
    Ok(gate.unwrap_or_else(|| u8::from(!sound)))
}

fn output(args: &Args) -> anyhow::Result<Box<dyn Write>> {
    const BUFFER: usize = 1 << 18;
    Ok(match &args.output {
        None => Box::new(BufWriter::with_capacity(BUFFER, io::stdout().lock())),
        // Written by itself, see `columns`.
        Some(_) if args.format == Format::Parquet => Box::new(io::sink()),
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
