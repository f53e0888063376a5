//! Words on stderr: `-q`, `-v`, and the environment variable `ITG_LOG` for those who look inside.

use std::fmt;
use std::io::{IsTerminal as _, Write as _};

use clap::{ArgAction, Args};
use tracing_subscriber::EnvFilter;

/// How much a program says.
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
    /// Sends the words of all crates to stderr.
    pub fn start(self) {
        let level = match (self.quiet, self.verbose) {
            (true, _) => "error",
            (false, 0) => "warn",
            (false, 1) => "info",
            (false, 2) => "debug",
            (false, _) => "trace",
        };
        let filter = EnvFilter::try_from_env("ITG_LOG").unwrap_or_else(|_| EnvFilter::new(level));
        tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_writer(std::io::stderr)
            .with_ansi(std::io::stderr().is_terminal())
            .without_time()
            .with_target(false)
            .init();
    }
}

/// Writes a line to stderr. When stderr is gone nobody is left to be told.
pub fn say(line: impl fmt::Display) {
    drop(writeln!(std::io::stderr(), "{line}"));
}
