//! The pacing ladder: how a sending thread waits for the time of a packet.

use std::fmt;
use std::str::FromStr;

/// Method of waiting for a deadline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Sleep until the deadline.
    Sleep,
    /// Sleep to shortly before the deadline, then spin.
    #[default]
    Hybrid,
    /// Spin: one processor for the sending thread alone.
    Spin,
    /// Hand packets over ahead, each with its time: the queueing discipline of the device keeps it.
    Txtime,
}

impl Level {
    /// All levels.
    pub const ALL: [Self; 4] = [Self::Sleep, Self::Hybrid, Self::Spin, Self::Txtime];
    /// Those at which the sending thread itself keeps the time, from the cheapest to the most precise.
    pub const WAITS: [Self; 3] = [Self::Sleep, Self::Hybrid, Self::Spin];

    /// Its name on the command line and in files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sleep => "sleep",
            Self::Hybrid => "hybrid",
            Self::Spin => "spin",
            Self::Txtime => "txtime",
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A text that names no level.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no pacing level: expected sleep, hybrid, spin or txtime")]
pub struct LevelError(String);

impl FromStr for Level {
    type Err = LevelError;

    fn from_str(text: &str) -> Result<Self, LevelError> {
        let found = Self::ALL.into_iter().find(|level| level.name() == text);
        found.ok_or_else(|| LevelError(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_have_names() {
        for level in Level::ALL {
            assert_eq!(level.name().parse(), Ok(level));
        }
        let error = "fast".parse::<Level>().expect_err("no such level");
        assert_eq!(
            error.to_string(),
            "`fast` is no pacing level: expected sleep, hybrid, spin or txtime"
        );
    }
}
