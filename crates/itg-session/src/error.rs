//! Failures of a session, at the sender.

use std::fmt;

/// Phase that a session has reached, at the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// The signalling connection is being made.
    Connect,
    /// `Hello` has been sent.
    Greet,
    /// Flows are being opened at the receiver.
    Open,
    /// The driver opens its data sockets.
    Arm,
    /// `Start` has been sent.
    Start,
    /// Packets flow, and are counted when a flow has ended.
    Run,
    /// `Bye` has been sent.
    Leave,
}

impl Phase {
    /// Returns true if packets may have been sent: results up to here are worth keeping.
    #[must_use]
    pub fn has_begun(self) -> bool {
        self >= Self::Run
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Connect => "connecting",
            Self::Greet => "greeting",
            Self::Open => "opening flows",
            Self::Arm => "opening data sockets",
            Self::Start => "starting",
            Self::Run => "running",
            Self::Leave => "taking leave",
        })
    }
}

/// Kind of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The receiver cannot be reached or said no.
    Refused,
    /// The receiver was there and is gone.
    Vanished,
    /// The receiver broke the rules, or is no receiver of ITG.
    Protocol,
    /// The receiver is there and did not do its part in time, or this side did not.
    Timeout,
    /// The receiver speaks another version.
    Version,
    /// This side was asked to stop before packets flowed.
    Interrupted,
}

/// Failure of a session.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text} (while {phase})")]
pub struct SessionError {
    /// Phase that the session had reached.
    pub phase: Phase,
    /// Kind of the failure.
    pub kind: ErrorKind,
    /// Description of the failure, and advice, without the phase.
    pub text: String,
}

impl SessionError {
    /// The exit code of the command-line contract: 3 peer not reachable or refused, 4 peer vanished
    /// and a partial result was kept, 130 interrupted before packets flowed (after SIGTERM the
    /// program says 143 instead).
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self.kind {
            ErrorKind::Interrupted => 130,
            _ if self.phase.has_begun() => 4,
            _ => 3,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_follow_kind_and_phase() {
        for (phase, kind, code) in [
            (Phase::Connect, ErrorKind::Refused, 3),
            (Phase::Greet, ErrorKind::Version, 3),
            (Phase::Start, ErrorKind::Vanished, 3),
            (Phase::Run, ErrorKind::Vanished, 4),
            (Phase::Run, ErrorKind::Refused, 4),
            (Phase::Leave, ErrorKind::Timeout, 4),
            (Phase::Arm, ErrorKind::Interrupted, 130),
        ] {
            let error = SessionError { phase, kind, text: "x".to_owned() };
            assert_eq!(error.exit_code(), code, "{error:?}");
        }
    }

    #[test]
    fn the_text_names_the_phase() {
        let error = SessionError {
            phase: Phase::Run,
            kind: ErrorKind::Vanished,
            text: "the receiver has been silent for 5s".to_owned(),
        };
        assert_eq!(error.to_string(), "the receiver has been silent for 5s (while running)");
    }
}
