//! Messages on stderr: `-q`, `-v`, and the environment variable `ITG_LOG` for developers. Data on stdout.

use std::fmt;
use std::io::{self, ErrorKind, Stderr, Write};
use std::os::unix::fs::FileTypeExt as _;

use anyhow::{Context as _, Result};
use clap::{ArgAction, Args};
use itg_core::text::visible_lines;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;

/// Amount of messages of a program.
#[derive(Clone, Copy, Debug, Args)]
pub struct WordArgs {
    /// Say only what went wrong
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub quiet: bool,
    /// Say more; twice, say everything
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub verbose: u8,
}

impl WordArgs {
    /// Sends the messages of all crates to stderr.
    pub fn start(self) {
        let level = match (self.quiet, self.verbose) {
            (true, _) => LevelFilter::ERROR,
            (false, 0) => LevelFilter::WARN,
            (false, 1) => LevelFilter::INFO,
            (false, 2) => LevelFilter::DEBUG,
            (false, _) => LevelFilter::TRACE,
        };
        let asked = std::env::var("ITG_LOG").ok().and_then(|text| text.parse::<Targets>().ok());
        let lines = tracing_subscriber::fmt::layer()
            .with_writer(|| Visible(io::stderr()))
            .with_ansi(false)
            .with_target(false);
        // Times are for those who look for the cause of something.
        let lines = if self.verbose < 2 { lines.without_time().boxed() } else { lines.boxed() };
        let filter = asked.unwrap_or_else(|| Targets::new().with_default(level));
        tracing_subscriber::registry().with(lines).with(filter).init();
    }
}

/// Stderr for lines in which texts of peers may be: they do nothing to the terminal. Lines come whole.
struct Visible(Stderr);

impl Write for Visible {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write_all(visible_lines(&String::from_utf8_lossy(bytes)).as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Writes a line to stderr; what a text of a peer or a file in it would do to the terminal is shown. An
/// error is ignored: there is no other place for messages.
pub fn say(line: impl fmt::Display) {
    drop(writeln!(io::stderr(), "{}", visible_lines(&line.to_string())));
}

/// Returns true if stdout leads to a device, as a terminal is, also to one that was hung up.
fn is_on_terminal() -> bool {
    let out = std::fs::metadata("/proc/self/fd/1");
    out.is_ok_and(|out| out.file_type().is_char_device())
}

/// Writes data to stdout, where texts of peers in it do nothing to a terminal; a reader that has seen enough (`… | head`)
/// and a terminal that is gone are no failures.
///
/// # Errors
/// Stdout takes nothing.
pub fn print(text: &str) -> Result<()> {
    match io::stdout().write_all(visible_lines(text).as_bytes()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        Err(error) if error.raw_os_error() == Some(libc::EIO) && is_on_terminal() => Ok(()),
        done => done.context("cannot write to stdout"),
    }
}
