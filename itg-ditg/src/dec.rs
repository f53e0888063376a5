//! `ITGDec`: decodes logs of D-ITG with D-ITG's own command line. What it computes is in
//! `itg_classic::dec`, where it differs in `docs/d-itg.md`.
#![allow(clippy::print_stderr, reason = "words go to stderr")]

use std::fs::File;
use std::io::{self, BufWriter, StdoutLock, Write};
use std::path::Path;
use std::process::ExitCode;

use itg_classic::dec::{ArgsError, DecError, HELP, Options, Outputs, decode, version_lines};
use itg_files::Bytes;

/// Files in the folder of the user, the standard output and words on stderr.
struct Files(BufWriter<StdoutLock<'static>>);

impl Outputs for Files {
    fn stdout(&mut self) -> &mut dyn Write {
        &mut self.0
    }

    fn create(&mut self, name: &str) -> io::Result<Box<dyn Write>> {
        Ok(Box::new(File::create(name)?))
    }

    fn notice(&mut self, text: &str) {
        eprintln!("ITGDec: {text}");
    }
}

/// Cause of an early end of the program.
enum Stop {
    /// A text for stdout and its cause for stderr.
    Said(String, Option<io::Error>),
    /// A log that has parts that were never written, or that was shortened while it was read.
    Shortened,
    /// The standard output is gone or full.
    Output(io::Error),
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

pub(crate) fn main() -> ExitCode {
    let mut files = Files(BufWriter::with_capacity(1 << 16, io::stdout().lock()));
    let stop = match run(&mut files) {
        Ok(()) => return ExitCode::SUCCESS,
        Err(stop) => stop,
    };
    match stop {
        Stop::Said(text, cause) => {
            if let Err(error) = writeln!(files.0, "{text}").and_then(|()| files.0.flush()) {
                eprintln!("error : {error}");
            }
            if let Some(cause) = cause {
                eprintln!("error : {cause}");
            }
        }
        // The reader has seen enough (`| head`).
        Stop::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => {
            return ExitCode::SUCCESS;
        }
        Stop::Shortened => {
            let words = "parts of a log were never written, or were cut off while it was read";
            eprintln!("error : {words}: the figures lack them");
        }
        Stop::Output(error) => eprintln!("error : cannot write: {error}"),
    }
    ExitCode::FAILURE
}

fn open(name: &str) -> Result<Bytes, Stop> {
    Bytes::open(Path::new(name), |words| eprintln!("ITGDec: {name}: {words}"))
        .map_err(|error| Stop::Said(format!("\n Error opening log file '{name}'"), Some(error)))
}

fn run(files: &mut Files) -> Result<(), Stop> {
    files.0.write_all(version_lines("ITGDec").as_bytes())?;
    let args: Vec<String> =
        std::env::args_os().skip(1).map(|arg| arg.to_string_lossy().into_owned()).collect();
    let options = Options::parse(&args).map_err(|error| match error {
        ArgsError::Help => Stop::Said(HELP.to_owned(), None),
        error => Stop::Said(error.to_string(), None),
    })?;
    for complaint in &options.complaints {
        writeln!(files.0, "{complaint}")?;
    }
    let log = open(&options.log)?;
    let sender = options.combine.as_ref().map(|(name, _)| open(name)).transpose()?;
    let logs = [Some(&log), sender.as_ref()];
    match decode(&options, log.written(), sender.as_ref().map(Bytes::written), files) {
        Ok(()) if logs.into_iter().flatten().all(|log| log.written().len() == log.len()) => Ok(()),
        Ok(()) => Err(Stop::Shortened),
        Err(DecError::Write(error)) => Err(Stop::Output(error)),
        Err(DecError::Create { name, source }) => {
            Err(Stop::Said(format!("Error opening file '{name}' for write"), Some(source)))
        }
        Err(error) => Err(Stop::Said(error.to_string(), None)),
    }
}
