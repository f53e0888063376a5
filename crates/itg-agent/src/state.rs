//! Memory of an agent through a restart: the number of its last start, the run that it takes part in, and the
//! journals of its part of the group.
//!
//! | below its `--state` | what |
//! |---|---|
//! | `start` | number of the last start of a member of a run, in decimal |
//! | `starts` | Unix times of the last starts that took a run up again, in seconds |
//! | `RUN/run.json` | the call by which it joined; a run without it does not count |
//! | `RUN/LAYER.journal` | journals ([`itg_mesh::journal_files`]) |
//!
//! A number is written, synced and renamed before it is used, so it is used once, whatever clocks say. Everything is
//! readable by its owner alone.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use itg_mesh::journal_files::{JournalFiles, make_private_dir};
use itg_process::Journals;
use serde::{Deserialize, Serialize};

use crate::restless;
use crate::run_dir::run_dir;
use crate::wire::{Join, PROTOCOL};

/// File of the number of the last start.
const START: &str = "start";
/// File of a run.
const RUN: &str = "run.json";
/// File of the times of the last starts.
const STARTS: &str = "starts";
/// Agents that were killed or stopped let go of their directory within this time.
const LOCKED: Duration = Duration::from_secs(11);
/// Time between two attempts to take the directory.
const AGAIN: Duration = Duration::from_millis(20);
/// Longest description of a run: that of 4096 members has less than 1 MiB.
const MOST_BYTES: u64 = 8 << 20;

/// The directory of an agent's state, which is this process's alone as long as this lives.
#[derive(Debug)]
pub(crate) struct State {
    dir: PathBuf,
    /// The directory, locked.
    handle: File,
    /// The number of the last start.
    start: Mutex<u64>,
}

/// A run that is taken part in, as it is kept.
#[derive(Debug, Serialize, Deserialize)]
struct KeptRun {
    /// Version of what members say, and so of what their journals hold.
    protocol: u32,
    /// Version of the program.
    version: String,
    /// Directory and host that it belongs to: a copy is another member, which would send the same packets once more.
    home: String,
    join: Join,
}

impl State {
    /// Opens the directory, which is made if it is not there.
    ///
    /// # Errors
    /// The system's; another agent has it.
    pub(crate) fn open(dir: &Path) -> Result<Self> {
        Self::open_within(dir, LOCKED)
    }

    /// The same, with another time to wait for who has it.
    fn open_within(dir: &Path, limit: Duration) -> Result<Self> {
        let context = || format!("state {}", dir.display());
        if let Some(above) = dir.parent() {
            fs::DirBuilder::new()
                .recursive(true)
                .mode(0o755)
                .create(above)
                .with_context(context)?;
        }
        make_private_dir(dir).with_context(context)?;
        let handle = File::open(dir).with_context(context)?;
        let deadline = std::time::Instant::now() + limit;
        loop {
            match handle.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) if std::time::Instant::now() < deadline => {
                    std::thread::sleep(AGAIN);
                }
                Err(TryLockError::WouldBlock) => {
                    bail!("state {}: another agent has it: give --state or --dir", dir.display());
                }
                Err(TryLockError::Error(error)) => return Err(error).with_context(context),
            }
        }
        let start = match fs::read_to_string(dir.join(START)) {
            Ok(text) => text.trim().parse().with_context(|| {
                format!("{}: expected the number of a start", dir.join(START).display())
            })?,
            Err(error) if error.kind() == ErrorKind::NotFound => 0,
            Err(error) => return Err(error).with_context(context),
        };
        Ok(Self { dir: dir.to_owned(), handle, start: Mutex::new(start) })
    }

    /// Grants the number of a start, at least this one: no other start of this agent has it.
    pub(crate) fn grant(&self, least: u64) -> Result<u64> {
        let mut last = self.start.lock().unwrap_or_else(PoisonError::into_inner);
        let start = last.saturating_add(1).max(least);
        write_lasting(&self.dir, &self.handle, START, format!("{start}\n").as_bytes())?;
        *last = start;
        Ok(start)
    }

    /// Notes a start that takes a run up again, at this Unix time in seconds; true if there were several within a short
    /// time.
    pub(crate) fn starts_again(&self, now_s: u64) -> Result<bool> {
        let before = fs::read_to_string(self.dir.join(STARTS)).unwrap_or_default();
        let mut times: Vec<u64> =
            before.split_whitespace().filter_map(|time| time.parse().ok()).collect();
        times.push(now_s);
        let last = times.split_off(times.len().saturating_sub(restless::STARTS));
        let text: String = last.iter().map(|time| format!("{time}\n")).collect();
        write_lasting(&self.dir, &self.handle, STARTS, text.as_bytes())?;
        Ok(last.len() == restless::STARTS && now_s.abs_diff(last[0]) < restless::WITHIN_S)
    }

    /// Returns true if a run is kept.
    pub(crate) fn has(&self, run: &str) -> bool {
        run_dir(&self.dir, run).is_some_and(|dir| dir.join(RUN).exists())
    }

    /// The run that this agent took part in when its process ended, if there is one; remains of others are removed.
    ///
    /// # Errors
    /// The system's: what cannot be read now is kept.
    pub(crate) fn found(&self) -> Result<Option<Join>> {
        let mut found = None;
        let context = || format!("state {}", self.dir.display());
        for entry in fs::read_dir(&self.dir).with_context(context)? {
            let Ok(run) = entry.with_context(context)?.file_name().into_string() else { continue };
            // Nothing else is touched.
            let Some(dir) = run_dir(&self.dir, &run) else { continue };
            match read_run(&dir, &self.home().with_context(context)?) {
                Ok(join) if join.run == run && found.is_none() => found = Some(join),
                Ok(_) => self.forget(&run),
                Err(error) if is_systems(&error) => return Err(error),
                Err(error) => {
                    tracing::warn!("a run is not taken up again: {error:#}");
                    self.forget(&run);
                }
            }
        }
        Ok(found)
    }

    /// Keeps the run that this agent is about to take part in; opens its journals.
    pub(crate) fn keep(&self, join: &Join) -> Result<(JournalFiles, Journals)> {
        let dir = run_dir(&self.dir, &join.run).context("the name of the run makes no sense")?;
        let context = || format!("state {}", dir.display());
        make_private_dir(&dir).with_context(context)?;
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let home = self.home().with_context(context)?;
        let run = KeptRun { protocol: PROTOCOL, version, home, join: join.clone() };
        let handle = File::open(&dir).with_context(context)?;
        write_lasting(&dir, &handle, RUN, &serde_json::to_vec(&run)?)?;
        JournalFiles::open(&dir).with_context(context)
    }

    /// Identity of the directory and of this host, which a copy or a restored backup does not have.
    fn home(&self) -> std::io::Result<String> {
        let host = fs::read_to_string("/etc/machine-id").unwrap_or_default();
        Ok(format!("{} {}", self.handle.metadata()?.ino(), host.trim()))
    }

    /// Forgets a run: its file first, without which the rest does not count.
    pub(crate) fn forget(&self, run: &str) {
        let Some(dir) = run_dir(&self.dir, run) else { return };
        let removed = match fs::remove_file(dir.join(RUN)) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => File::open(&dir).and_then(|handle| handle.sync_all()),
        };
        let removed = removed.and_then(|()| fs::remove_dir_all(&dir));
        if let Err(error) = removed
            && error.kind() != ErrorKind::NotFound
        {
            tracing::error!("state {}: {error}", dir.display());
        }
    }
}

/// Returns true if a run could not be read, or taken up, for a reason that may pass: it says nothing about the run.
pub(crate) fn is_systems(error: &anyhow::Error) -> bool {
    let kind = error.downcast_ref::<std::io::Error>().map(std::io::Error::kind);
    kind.is_some_and(|kind| kind != ErrorKind::NotFound) && !is_damage(error)
}

/// Returns true if what was kept of a run is damaged for good: another start would find the same.
fn is_damage(error: &anyhow::Error) -> bool {
    let kind = error.downcast_ref::<std::io::Error>().map(std::io::Error::kind);
    matches!(kind, Some(ErrorKind::InvalidData | ErrorKind::NotADirectory))
}

fn read_run(dir: &Path, here: &str) -> Result<Join> {
    let path = dir.join(RUN);
    let context = || path.display().to_string();
    let length = fs::symlink_metadata(&path).with_context(context)?.len();
    if length > MOST_BYTES {
        bail!("{}: {length} bytes: {MOST_BYTES} at most", path.display());
    }
    let bytes = fs::read(&path).with_context(context)?;
    let KeptRun { protocol, version, home, join } =
        serde_json::from_slice(&bytes).with_context(context)?;
    if (protocol, version.as_str()) != (PROTOCOL, env!("CARGO_PKG_VERSION")) {
        bail!("{}: it is of version {version} of this program", path.display());
    }
    if home != here {
        bail!(
            "{}: it is a copy of the state of another agent, which may take part still",
            path.display()
        );
    }
    Ok(join)
}

/// Writes a file in one step that lasts: the old one or the new one is there, also after a loss of power.
fn write_lasting(dir: &Path, handle: &File, name: &str, bytes: &[u8]) -> Result<()> {
    let (path, fresh) = (dir.join(name), dir.join(format!("{name}.new")));
    let context = || format!("cannot write {}", path.display());
    // One that was not finished; the directory is locked.
    if fs::symlink_metadata(&fresh).is_ok_and(|facts| facts.is_file()) {
        fs::remove_file(&fresh).with_context(context)?;
    }
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .custom_flags(nix::libc::O_NOFOLLOW)
        .open(&fresh)
        .with_context(context)?;
    file.write_all(bytes).and_then(|()| file.sync_all()).with_context(context)?;
    fs::rename(&fresh, &path).and_then(|()| handle.sync_all()).with_context(context)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use bytes::Bytes;
    use itg_process::{JournalWrite, LayerWrite, Stored};

    use super::*;
    use crate::wire::Warrant;

    fn join(digit: char) -> Join {
        Join {
            run: digit.to_string().repeat(32),
            start: 1,
            slot: 0,
            from: 2,
            addresses: vec!["10.0.0.1:9020".to_owned(), "10.0.0.2:9020".to_owned(), String::new()],
            offset_ns: -5,
            uncertainty_ns: 7,
            begin: true,
            warrant: Warrant::default(),
        }
    }

    /// A clock that is set back, or ahead, gives no number twice.
    #[test]
    fn the_number_of_a_start_is_granted_once() {
        let above = tempfile::tempdir().expect("a directory");
        let dir = above.path().join("state");
        let mut last = 0;
        for clock in [2, 1000, 5, 0, 1_700_000_000_000, 900, 2] {
            let state = State::open(&dir).expect("state");
            let start = state.grant(clock).expect("granted");
            assert!(start > last && start >= clock, "{start} after {last}");
            last = start;
        }
        // A number that cannot be written is not used, and one that cannot be read is not guessed.
        fs::write(dir.join(START), "many").expect("written");
        assert!(State::open(&dir).is_err());
    }

    #[test]
    fn one_agent_has_the_state_and_nobody_else_reads_it() {
        let above = tempfile::tempdir().expect("a directory");
        let dir = above.path().join("a/state");
        let state = State::open(&dir).expect("state");
        let _start = state.grant(0).expect("granted");
        let mode = |path: &Path| fs::metadata(path).expect("facts").permissions().mode() & 0o777;
        assert_eq!((mode(&dir), mode(&dir.join(START))), (0o700, 0o600));
        let other = State::open_within(&dir, AGAIN).map(drop).map_err(|error| error.to_string());
        assert!(other.is_err_and(|why| why.contains("another agent has it")));
        // What a link leads to is not overwritten.
        let diary = above.path().join("diary");
        fs::write(&diary, "dear diary").expect("written");
        symlink(&diary, dir.join("start.new")).expect("linked");
        assert!(state.grant(0).is_err());
        assert_eq!(fs::read_to_string(&diary).expect("text"), "dear diary");
    }

    #[test]
    fn a_run_is_found_again_until_it_is_forgotten() {
        let above = tempfile::tempdir().expect("a directory");
        let dir = above.path().join("state");
        let state = State::open(&dir).expect("state");
        assert!(state.found().expect("read").is_none());
        let (mut files, journals) = state.keep(&join('a')).expect("kept");
        assert_eq!(journals, Journals::default());
        let write = JournalWrite::Append(Bytes::from_static(b"vote"));
        let write = LayerWrite { layer: "log".to_owned(), write };
        assert_eq!(files.persist(vec![write]), Stored::Durable);
        drop((files, state));
        let state = State::open(&dir).expect("state");
        let found = state.found().expect("read").expect("a run");
        assert_eq!((found.run, found.addresses), (join('a').run, join('a').addresses));
        let (_, journals) = state.keep(&join('a')).expect("kept");
        assert_eq!(journals.of("log").len(), 1);
        // One that was being forgotten when the process ended.
        fs::create_dir(dir.join("b".repeat(32))).expect("made");
        assert_eq!(state.found().expect("read").map(|join| join.run), Some(join('a').run));
        state.forget(&join('a').run);
        assert!(state.found().expect("read").is_none());
        assert_eq!(fs::read_dir(&dir).expect("entries").count(), 0, "all is gone");
        // One of another version.
        drop(state.keep(&join('c')).expect("kept"));
        let path = dir.join("c".repeat(32)).join(RUN);
        let text = fs::read_to_string(&path).expect("text");
        let older = text.replace(env!("CARGO_PKG_VERSION"), "0.0.1");
        assert_ne!(text, older);
        fs::write(&path, older).expect("written");
        assert!(state.found().expect("read").is_none());
    }

    /// A copied directory (a cloned machine, a restored backup) is not the member that the original is.
    #[test]
    fn a_copy_takes_no_run_up_again() {
        let above = tempfile::tempdir().expect("a directory");
        let (dir, copy) = (above.path().join("state"), above.path().join("copy"));
        let state = State::open(&dir).expect("state");
        drop(state.keep(&join('a')).expect("kept"));
        let copied = std::process::Command::new("cp").arg("-a").arg(&dir).arg(&copy).status();
        assert!(copied.expect("cp").success());
        let other = State::open(&copy).expect("state");
        assert!(other.found().expect("read").is_none());
        assert!(!other.has(&join('a').run), "it is forgotten there");
        drop(state);
        // One that was moved is the same.
        let moved = above.path().join("moved");
        fs::rename(&dir, &moved).expect("moved");
        let state = State::open(&moved).expect("state");
        assert_eq!(state.found().expect("read").map(|join| join.run), Some(join('a').run));
    }

    /// Starts that take a run up again are counted, whatever came before.
    #[test]
    fn three_starts_within_a_minute_are_too_many() {
        let above = tempfile::tempdir().expect("a directory");
        let state = State::open(&above.path().join("state")).expect("state");
        let times = [1000, 1030, 1059, 1090, 1200, 1210, 1259, 1259];
        let told = times.map(|at| state.starts_again(at).expect("written"));
        assert_eq!(told, [false, false, true, false, false, false, true, true]);
    }

    /// A file that cannot be read says nothing about the run: its promises stay.
    #[test]
    fn an_error_of_the_system_forgets_no_run() {
        let above = tempfile::tempdir().expect("a directory");
        let state = State::open(&above.path().join("state")).expect("state");
        drop(state.keep(&join('a')).expect("kept"));
        let dir = above.path().join("state").join(join('a').run);
        // A directory in its place cannot be read as a file: EISDIR.
        fs::rename(dir.join(RUN), dir.join("aside")).expect("moved");
        fs::create_dir(dir.join(RUN)).expect("made");
        assert!(state.found().is_err());
        fs::remove_dir(dir.join(RUN)).expect("removed");
        fs::rename(dir.join("aside"), dir.join(RUN)).expect("moved back");
        assert_eq!(state.found().expect("read").map(|join| join.run), Some(join('a').run));
    }
}
