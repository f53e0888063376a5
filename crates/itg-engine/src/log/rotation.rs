//! Rotation of a log: when a part of it is complete, the name of that part, and which old parts are removed.
//!
//! The file in use has the log's own name. A complete part is called `NAME.1`, the next one `NAME.2`: no part changes
//! its name later, and none takes one that is there.

use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::lock::lock;
use super::place::rename_to_new;

/// First bytes of each log of ours.
const MAGIC: &[u8] = b"XPC1";

/// Rules of rotation; the default rotates nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rotation {
    /// Size from which on a part is complete, in bytes.
    pub bytes: Option<u64>,
    /// Time after which a part that holds records is complete.
    pub every: Option<Duration>,
    /// Complete parts that are kept, the latest ones; all of them when `None`.
    pub keep: Option<u32>,
}

/// Complete parts of a log by their numbers, in order.
fn parts(path: &Path) -> io::Result<Vec<(u32, PathBuf)>> {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
    let name = path.file_name().unwrap_or_default();
    let mut parts = Vec::new();
    for entry in fs::read_dir(dir.unwrap_or_else(|| Path::new(".")))? {
        let entry = entry?;
        if let Some(number) = number_of(&entry.file_name(), name) {
            parts.push((number, entry.path()));
        }
    }
    parts.sort_unstable();
    Ok(parts)
}

/// The number of a part, of the log of this name; a date (`NAME.20261129000000`) is none.
fn number_of(file: &OsStr, log: &OsStr) -> Option<u32> {
    let number = file.to_str()?.strip_prefix(log.to_str()?)?.strip_prefix('.')?;
    let plain = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    number.parse().ok().filter(|_| plain)
}

/// Moves the file of a complete part out of the way; returns its new name.
///
/// # Errors
/// The system's: the file has its name as before.
pub(super) fn move_away(path: &Path) -> io::Result<PathBuf> {
    let last = parts(path)?.last().map_or(0, |(number, _)| *number);
    let mut to = path.as_os_str().to_owned();
    to.push(format!(".{}", last.saturating_add(1)));
    let to = PathBuf::from(to);
    rename_to_new(path, &to).map(|()| to)
}

/// Returns true if a name is that of a log of ours which nobody uses; what a link leads to is none, and neither is a pipe,
/// which is not waited for.
fn is_old_log(part: &Path) -> bool {
    let open =
        OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(part);
    let Ok(mut file) = open else { return false };
    let mut head = [0; MAGIC.len()];
    file.metadata().is_ok_and(|there| there.is_file())
        && file.read_exact(&mut head).is_ok()
        && head == MAGIC
        && lock(&file).is_ok()
}

/// Removes complete parts of a log but for the last ones; files that are no logs, or are in use, stay and do not count.
///
/// # Errors
/// The system's, of the last file that could not be removed.
pub(super) fn remove_old(path: &Path, keep: u32) -> io::Result<()> {
    let mut parts: Vec<PathBuf> = parts(path)?.into_iter().map(|(_, part)| part).collect();
    parts.retain(|part| is_old_log(part));
    let old = parts.len().saturating_sub(usize::try_from(keep).unwrap_or(usize::MAX));
    let mut done = Ok(());
    for part in &parts[..old] {
        if let Err(error) = fs::remove_file(part) {
            done = Err(io::Error::new(error.kind(), format!("{}: {error}", part.display())));
        }
    }
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_have_numbers_behind_the_name() {
        for (file, want) in [
            ("r.itg.1", Some(1)),
            ("r.itg.007", Some(7)),
            ("r.itg", None),
            ("r.itg.", None),
            ("r.itg.1.gz", None),
            ("r.itg.20261129000000", None),
            ("r.itg.+1", None),
            ("other.itg.1", None),
        ] {
            assert_eq!(number_of(OsStr::new(file), OsStr::new("r.itg")), want, "{file}");
        }
    }

    #[test]
    fn a_complete_part_takes_no_name_that_is_there_and_only_old_logs_are_removed() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("r.itg");
        let name = |number: u32| dir.path().join(format!("r.itg.{number}"));
        fs::write(name(1), "notes of mine").expect("room");
        fs::write(name(2), "XPC1 log").expect("room");
        for number in 3..=5 {
            fs::write(&path, format!("XPC1 {number}")).expect("room");
            assert_eq!(move_away(&path).expect("moved"), name(number));
        }
        std::os::unix::fs::symlink("nowhere", name(6)).expect("a link");
        let made = std::process::Command::new("mkfifo").arg(name(7)).status();
        assert!(made.is_ok_and(|made| made.success()), "a pipe");
        remove_old(&path, 2).expect("removed");
        let left: Vec<_> = parts(&path).expect("read").into_iter().map(|(n, _)| n).collect();
        assert_eq!(left, [1, 4, 5, 6, 7]);
        assert_eq!(fs::read(name(1)).expect("there"), b"notes of mine");
    }
}
