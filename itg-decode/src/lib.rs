//! `itg-decode`: logs in, figures out. What the figures mean is in `docs/decode.md`.

mod args;
#[cfg(feature = "parquet")]
mod columns;
mod compare;
mod complaints;
mod ditg;
mod export;
mod flow_table;
mod format;
mod outputs;
mod packets;
mod print;
mod work;

use std::fmt::Display;
use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

use anyhow::Context;
use itg_cli::{Gates, finish, refuse, say};
use itg_files::Bytes;
use itg_files::ditg::understand;
use itg_stats::Analysis;
use itg_stats::report::damage_lines;

use crate::args::{Args, Command};
use crate::complaints::{PROGRAM, complain, complain_of_lost};
use crate::export::Export;
use crate::format::Format;
use crate::work::Work;

/// End of the names of files beside logs that hold none: of a log server, of a spool.
const INDEX: &str = ".index.jsonl";

/// The program's command line, for man pages and completions.
#[must_use]
pub fn command() -> clap::Command {
    itg_cli::command::<Args>(None)
}

/// Runs the program with the command line of this process.
#[must_use]
pub fn main() -> ExitCode {
    let args = itg_cli::parse::<Args>(None);
    args.words.start();
    let done = match &args.command {
        Some(Command::Compare(compare)) => compare::run(compare, args.words),
        None => run(&args),
    };
    match done {
        // The reader has seen enough (`| head`).
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        done => finish(PROGRAM, done.map(ExitCode::from)),
    }
}

/// Checks what the command line cannot check by itself; returns the gates.
fn check(args: &Args) -> anyhow::Result<Gates> {
    if args.format == Format::Parquet {
        if cfg!(not(feature = "parquet")) {
            return Err(refuse("this program was built without Parquet (feature `parquet`)"));
        }
        if args.output.is_none() {
            return Err(refuse("--format parquet writes no stream: name a file with --output"));
        }
        if !args.packets && args.interval.is_none() {
            return Err(refuse(
                "--format parquet holds packets or windows: add --packets or --interval",
            ));
        }
    }
    if args.format == Format::Flent && args.interval.is_none() {
        return Err(refuse("--format flent holds windows: add --interval, as flent's own 200ms"));
    }
    args.outputs.all_gates()
}

/// Decodes and prints; the exit code: 1 when a log was damaged or could not be read, or what a gate
/// says.
fn run(args: &Args) -> anyhow::Result<u8> {
    let quiet = args.words.quiet;
    if !quiet {
        say(format_args!("{PROGRAM} {} {args}", env!("CARGO_PKG_VERSION")));
    }
    let gates = check(args)?;
    let note = |what: &dyn Display| {
        if !quiet {
            say(format_args!("{PROGRAM}: note: {what}"));
        }
    };
    let mut sound = true;
    let mut files = Vec::new();
    for path in &args.logs {
        let name = path.display().to_string();
        if name.ends_with(INDEX) && args.logs.len() > 1 {
            note(&format_args!("{name}: an index of logs, and no log itself: left out"));
            continue;
        }
        match Bytes::open(path, |words| note(&format_args!("{name}: {words}"))) {
            Ok(bytes) => files.push((name, bytes)),
            Err(error) => {
                complain(format_args!("{name}: cannot be read: {error}"));
                sound = false;
            }
        }
    }
    understand(&mut files, args.asked(), |name, words| {
        complain(format_args!("{name}: {words}"));
        sound = false;
    });
    let work = Work::new(&files, args.threads, quiet);
    let mut analysis = Analysis::new(args.options());
    let mut taken = 0;
    for (name, bytes) in &files {
        match analysis.add_log_with(bytes, name, &work) {
            Ok(()) => taken += 1,
            Err(error) => {
                complain(error);
                sound = false;
            }
        }
    }
    if files.is_empty() && sound {
        complain("there is no log among these files");
    }
    if taken == 0 {
        complain_of_lost(&files);
        return Ok(1);
    }
    let gate = show(args, &gates, &analysis, &work, &note);
    work.finish();
    // Known when all records have been gone through.
    for what in analysis.not_closed() {
        note(what);
    }
    for damage in damage_lines(analysis.damage()) {
        complain(damage);
        sound = false;
    }
    sound &= !complain_of_lost(&files);
    match gate {
        // The reader has seen enough (`| head`).
        Err(error) if is_broken_pipe(&error) => Ok(u8::from(!sound)),
        gate => Ok(gate?.unwrap_or_else(|| u8::from(!sound))),
    }
}

/// Prints what was asked for; says what the gates say.
fn show(
    args: &Args,
    gates: &Gates,
    analysis: &Analysis<'_>,
    work: &Work<'_>,
    note: &dyn Fn(&dyn Display),
) -> anyhow::Result<Option<u8>> {
    let mut opened = Out::of(args)?;
    let mut out = opened.writer();
    let mut gate = None;
    if args.format == Format::Ditg {
        let runs = analysis.runs().len();
        anyhow::ensure!(runs <= 1, "--format ditg needs logs of one run, these hold {runs}");
        ditg::write(&analysis.packets(), &analysis.finish_with(work), &mut out)?;
    } else if args.packets {
        let runs = analysis.runs().len();
        if runs > 1 {
            note(&format_args!("the logs hold {runs} runs: flow numbers repeat, run after run"));
        }
        match &args.output {
            #[cfg(feature = "parquet")]
            Some(path) if args.format == Format::Parquet => {
                columns::packets(analysis, work, path)?;
            }
            _ => packets::print(analysis, args.format, work, &mut out)?,
        }
    } else {
        let mut report = analysis.finish_with(work);
        work.finish();
        args.outputs.add_manifest(&mut report)?;
        if report.flows.is_empty() {
            note(&"no flow to show: the logs hold none, or --flow and --filter leave none");
        }
        match &args.output {
            #[cfg(feature = "parquet")]
            Some(path) if args.format == Format::Parquet => columns::windows(&report, path)?,
            _ => {
                let details = args.words.verbose > 0;
                let found = gates.weigh(&report).outcomes;
                print::report(&report, args.format, details, &found, &mut out)?;
            }
        }
        gate = args.outputs.write(&report, gates, args.words.quiet)?;
    }
    opened.finish()?;
    Ok(gate)
}

/// Destination of the report, or of the packets.
enum Out {
    Stdout(BufWriter<io::Stdout>),
    File(BufWriter<Export>),
    /// Parquet writes its file by itself, see `columns`.
    Elsewhere(io::Sink),
}

impl Out {
    fn of(args: &Args) -> anyhow::Result<Self> {
        const BUFFER: usize = 1 << 18;
        Ok(match &args.output {
            None => Self::Stdout(BufWriter::with_capacity(BUFFER, io::stdout())),
            Some(_) if args.format == Format::Parquet => Self::Elsewhere(io::sink()),
            Some(path) => {
                let file = Export::create(path)
                    .with_context(|| format!("{}: cannot be written", path.display()))?;
                Self::File(BufWriter::with_capacity(BUFFER, file))
            }
        })
    }

    fn writer(&mut self) -> &mut (dyn Write + Send) {
        match self {
            Self::Stdout(out) => out,
            Self::File(out) => out,
            Self::Elsewhere(out) => out,
        }
    }

    /// Everything is written: a file is put in its place.
    fn finish(self) -> io::Result<()> {
        match self {
            Self::Stdout(mut out) => out.flush(),
            Self::File(out) => out.into_inner().map_err(io::IntoInnerError::into_error)?.finish(),
            Self::Elsewhere(_) => Ok(()),
        }
    }
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
