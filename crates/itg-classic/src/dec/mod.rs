//! `ITGDec`: D-ITG's decoder, its options, its figures and its files, byte for byte.
//!
//! The figures are D-ITG's, oddities included (`docs/d-itg.md` says which); `itg-decode` opens the
//! same logs and computes ours. Two things differ on purpose: names of files that come from a log
//! cannot leave the folder, and a table of windows that would have more than [`CELLS_MAX`] cells is
//! refused.
//!
//! Cost: the log is walked once a product; besides, memory grows with the number of flows, of
//! windows that hold packets, and with `-r`, `-s` and `-t` with the number of records.

mod args;
mod figures;
mod files;
mod output;
mod summary;
mod windows;

pub use args::{ArgsError, Flows, HELP, Options, Windows};
pub use figures::{Figures, FlowFigures, FlowKey};
pub use output::{CELLS_MAX, DecError, Outputs};

use crate::log::{LogRecord, TextLog, records};

/// The first two lines of every program of D-ITG, with our name in the place of its revision.
#[must_use]
pub fn version_lines(program: &str) -> String {
    let version = env!("CARGO_PKG_VERSION");
    format!(
        "{program} version 2.8.1 (ITG {version})\n\
         Compile-time options: sctp dccp bursty multiport\n"
    )
}

/// The records to decode.
enum Input<'a> {
    Binary(&'a [u8]),
    Read(Vec<LogRecord>),
}

impl Input<'_> {
    fn records(&self) -> Box<dyn Iterator<Item = LogRecord> + '_> {
        match self {
            Self::Binary(bytes) => Box::new(records(bytes)),
            Self::Read(records) => Box::new(records.iter().copied()),
        }
    }
}

/// Decodes `log` as `options` say; `sender_log` is the log named by `-r`.
///
/// # Errors
/// Faults of writing, and requests that cannot be met.
pub fn decode(
    options: &Options,
    log: &[u8],
    sender_log: Option<&[u8]>,
    out: &mut dyn Outputs,
) -> Result<(), DecError> {
    let mut input = if options.text {
        let mut read = Vec::new();
        for line in TextLog::new(log) {
            match line {
                Ok(record) => read.push(record),
                Err(error) => {
                    writeln!(out.stdout(), "\n Error reading input file")?;
                    out.notice(&error.to_string());
                }
            }
        }
        Input::Read(read)
    } else {
        Input::Binary(log)
    };
    if let (Some((_, name)), Some(sender_log)) = (&options.combine, sender_log) {
        let combined = files::combine(input.records(), sender_log)?;
        files::write_log(name, &combined, out)?;
        input = Input::Read(combined);
    }
    files::each_record(options, input.records(), out)?;
    let figures = Figures::of(input.records(), options.flows);
    if let Some(suffix) = &options.split {
        files::split(suffix, input.records(), options.flows, out)?;
    }
    windows::write(options, &figures, || input.records(), out)?;
    if figures.flows.is_empty() {
        writeln!(out.stdout(), "Empty log file")?;
    }
    if options.summary {
        let text = summary::render(&figures);
        out.stdout().write_all(&text)?;
    }
    if figures.looks_past_midnight() {
        out.notice(
            "times of this log seem to pass midnight, which its format cannot tell: delays and \
             total time are off by a day, as with D-ITG; itg-decode puts them right",
        );
    }
    Ok(out.stdout().flush()?)
}
