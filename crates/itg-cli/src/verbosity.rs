//! Messages on stderr: `-q`, `-v`, `--timestamps`, and the environment variable `ITG_LOG` for developers. Data on stdout.

use std::fmt;
use std::io::{self, ErrorKind, Stderr, Write};
use std::os::unix::fs::FileTypeExt as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use anyhow::{Context as _, Result};
use clap::{ArgAction, Args};
use itg_core::text::visible_lines;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;

/// True if each line on stderr begins with its time.
static TIMESTAMPS: AtomicBool = AtomicBool::new(false);

/// Amount of messages of a program.
#[derive(Clone, Copy, Debug, Args)]
pub struct WordArgs {
    /// Say only what went wrong
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub quiet: bool,
    /// Say more; twice, say everything
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub verbose: u8,
    /// Begin each line on stderr with its time: ISO 8601, UTC, milliseconds
    #[arg(long, global = true)]
    pub timestamps: bool,
}

impl WordArgs {
    /// Sends the messages of all crates to stderr.
    pub fn start(self) {
        TIMESTAMPS.store(self.timestamps, Ordering::Relaxed);
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
        let lines = match (self.timestamps, self.verbose) {
            (true, _) => lines.with_timer(Milliseconds).boxed(),
            (false, 0 | 1) => lines.without_time().boxed(),
            (false, _) => lines.boxed(),
        };
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
    let text = line.to_string();
    let mut text = visible_lines(&text);
    if TIMESTAMPS.load(Ordering::Relaxed) {
        let now = utc(SystemTime::now());
        let stamped: Vec<_> = text.lines().map(|line| format!("{now} {line}")).collect();
        text = stamped.join("\n").into();
    }
    drop(writeln!(io::stderr(), "{text}"));
}

/// Times of the messages of all crates, as those of [`say`].
struct Milliseconds;

impl FormatTime for Milliseconds {
    fn format_time(&self, to: &mut Writer<'_>) -> fmt::Result {
        to.write_str(&utc(SystemTime::now()))
    }
}

/// A time in ISO 8601, UTC, with milliseconds: `2026-11-30T09:15:27.042Z`.
///
/// Days as a date by Howard Hinnant's `civil_from_days`, with years that begin in March.
fn utc(time: SystemTime) -> String {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let (day, second) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
    let days = day + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let from_march = (5 * of_year + 2) / 153;
    let date = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = year + era * 400 + u64::from(month <= 2);
    let (hour, minute) = (second / 3_600, second / 60 % 60);
    let (second, ms) = (second % 60, since.subsec_millis());
    format!("{year:04}-{month:02}-{date:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z")
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Against `date -u -d @SECONDS`.
    #[test]
    fn times_are_dates() {
        for (seconds, want) in [
            (0, "1970-01-01T00:00:00.042Z"),
            (951_782_399, "2000-02-28T23:59:59.042Z"),
            (951_782_400, "2000-02-29T00:00:00.042Z"),
            (951_868_800, "2000-03-01T00:00:00.042Z"),
            (1_798_761_599, "2026-12-31T23:59:59.042Z"),
            (4_107_542_400, "2100-03-01T00:00:00.042Z"),
        ] {
            let time = SystemTime::UNIX_EPOCH + Duration::from_millis(seconds * 1000 + 42);
            assert_eq!(utc(time), want);
        }
    }
}
