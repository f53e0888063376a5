//! Directories of runs under that of an agent, and what they say of their logs.

use std::path::{Path, PathBuf};
use std::{fs, io};

/// File of a run's directory that says how its logs ended.
const STATE: &str = "state";

/// The directory of a run under that of an agent; a run is 32 digits of base 16.
pub(crate) fn run_dir(dir: &Path, run: &str) -> Option<PathBuf> {
    let plain = run.len() == 32 && run.bytes().all(|byte| byte.is_ascii_hexdigit());
    plain.then(|| dir.join(run))
}

/// End of the logs of a run, as its directory says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogState {
    /// They have not, or with their process.
    Open,
    /// They are complete.
    Closed,
    /// The agent has left the run before its end.
    Abandoned,
}

impl LogState {
    const ALL: [(Self, &str); 3] =
        [(Self::Open, "open\n"), (Self::Closed, "closed\n"), (Self::Abandoned, "abandoned\n")];

    /// State that a directory says; `None` without one.
    pub(crate) fn read(dir: &Path) -> Option<Self> {
        let text = fs::read_to_string(dir.join(STATE)).ok()?;
        Self::ALL.into_iter().find(|(_, word)| *word == text).map(|(kept, _)| kept)
    }

    pub(crate) fn write(self, dir: &Path) -> io::Result<()> {
        let word = Self::ALL.into_iter().find(|(kept, _)| *kept == self).map(|(_, word)| word);
        fs::write(dir.join(STATE), word.unwrap_or_default())
    }
}
