//! Exit codes: what went wrong decides the number that scripts see.

use std::fmt;
use std::process::ExitCode;

use crate::verbosity::say;

/// A failure with the exit code of the command-line contract: 1 the run failed, 2 the request
/// makes no sense, 3 a peer was not reachable or refused, 4 a peer vanished.
#[derive(Debug)]
pub struct Failure {
    code: u8,
    text: String,
}

impl Failure {
    /// A failure with this exit code; the text says what was wrong and what to do.
    #[must_use]
    pub fn new(code: u8, text: impl fmt::Display) -> Self {
        Self { code, text: text.to_string() }
    }

    /// Its exit code.
    #[must_use]
    pub const fn code(&self) -> u8 {
        self.code
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Failure {}

/// A request that makes no sense: exit code 2.
pub fn refuse(reason: impl fmt::Display) -> anyhow::Error {
    Failure::new(2, reason).into()
}

/// Prints a failure as `program: text` and turns it into the exit code: that of the [`Failure`]
/// within it, or 1.
pub fn finish(program: &str, result: anyhow::Result<ExitCode>) -> ExitCode {
    result.unwrap_or_else(|error| {
        say(format_args!("{program}: {error:#}"));
        ExitCode::from(error.downcast_ref::<Failure>().map_or(1, |failure| failure.code))
    })
}
