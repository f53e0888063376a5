//! Directories of runs under that of an agent, and what they say of their logs.

use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

use itg_socket::host::boot_id;

/// File of a run's directory that says how its logs ended.
const STATE: &str = "state";
/// File of a run's directory that has its description, as the console sent it.
pub(crate) const DESCRIPTION: &str = "description.json";
/// File of a run's directory that its workers hold locked as long as they run; its text is the boot of their host.
const WORKERS: &str = "workers";
/// Time between two looks whether workers have ended.
const LOOK: Duration = Duration::from_millis(5);
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

/// Makes the file that workers hold locked.
pub(crate) fn prepare_workers(dir: &Path) -> io::Result<()> {
    fs::write(dir.join(WORKERS), boot_id())
}

/// Holds the lock of the workers of a run until the file is dropped: an agent that is started again sees that one runs.
/// `None` where the agent could not make the file, and expects none.
pub(crate) fn hold_workers(dir: &Path) -> io::Result<Option<fs::File>> {
    match fs::File::open(dir.join(WORKERS)) {
        Ok(file) => file.lock_shared().map(|()| Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns true if no worker of a run is there any more, of an agent that ran since this host was started; waits so
/// long for their end.
pub(crate) async fn workers_are_gone(dir: &Path, limit: Duration) -> bool {
    let path = dir.join(WORKERS);
    let Ok(file) = fs::File::open(&path) else { return false };
    if !fs::read_to_string(path).is_ok_and(|text| text == boot_id()) {
        return false;
    }
    let locked = async {
        while file.try_lock().is_err() {
            tokio::time::sleep(LOOK).await;
        }
    };
    tokio::time::timeout(limit, locked).await.is_ok()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_worker_that_runs_is_seen() {
        let dir = tempfile::tempdir().expect("a directory");
        let gone = || workers_are_gone(dir.path(), Duration::from_millis(20));
        assert!(!gone().await && hold_workers(dir.path()).expect("no file").is_none());
        prepare_workers(dir.path()).expect("written");
        let (first, second) = (hold_workers(dir.path()), hold_workers(dir.path()));
        assert!(!gone().await);
        drop(first);
        assert!(!gone().await);
        drop(second);
        assert!(gone().await);
        // Those of another boot tell nothing of its clock.
        fs::write(dir.path().join(WORKERS), "another").expect("written");
        assert!(!gone().await);
    }
}
