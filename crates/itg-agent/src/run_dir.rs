//! Directories of runs under that of an agent, and what they say of their logs.

use std::path::{Path, PathBuf};
use std::{fs, io};

/// File of a run's directory that says how its logs ended.
const STATE: &str = "state";
/// File of a run's directory that has its description, as the console sent it.
pub(crate) const DESCRIPTION: &str = "description.json";
/// Most runs of an agent that are looked at for a list: the newest ones.
const MOST_LISTED: usize = 1000;

/// The directory of a run under that of an agent; a run is 32 digits of base 16.
pub(crate) fn run_dir(dir: &Path, run: &str) -> Option<PathBuf> {
    let plain = run.len() == 32 && run.bytes().all(|byte| byte.is_ascii_hexdigit());
    plain.then(|| dir.join(run))
}

/// Keeps the description of a run in its directory, so that its report can be made without its console.
pub(crate) fn keep_description(dir: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = dir.join(DESCRIPTION).with_added_extension("new");
    fs::write(&new, bytes)?;
    fs::rename(new, dir.join(DESCRIPTION))
}

/// Runs under the directory of an agent and their directories, the newest ones first.
pub(crate) fn kept_runs(dir: &Path) -> io::Result<Vec<(String, PathBuf)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir)? {
        let Ok(run) = entry?.file_name().into_string() else { continue };
        let Some(path) = run_dir(dir, &run) else { continue };
        // Its time is that of the last file that came into it.
        if let Ok(time) = fs::metadata(&path).and_then(|facts| facts.modified()) {
            found.push((time, run, path));
        }
    }
    found.sort_by(|a, b| b.cmp(a));
    found.truncate(MOST_LISTED);
    Ok(found.into_iter().map(|(_, run, path)| (run, path)).collect())
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
