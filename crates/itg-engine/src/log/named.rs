//! Files whose names a peer chooses.
//!
//! A peer must not reach anything that is there already: not another's log, not what a link leads to, not a pipe
//! that waits for a reader. So such a file is made, or there is none.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use super::lock::{lock, open_locked};
use super::place::refused;

/// Rights of a log: its owner writes, its group reads.
pub(super) const MODE: u32 = 0o640;

/// Makes a file whose name a peer has chosen; what is there already is left alone.
///
/// # Errors
/// There is something of that name, or the system's.
pub fn create_named(path: &Path) -> io::Result<File> {
    let made = OpenOptions::new()
        .create_new(true)
        .read(true)
        .write(true)
        .mode(MODE)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path);
    let made = made.map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => refused(
            "there is something of that name already, and it is not replaced: choose another name",
        ),
        _ => error,
    })?;
    // Nobody else knows it yet.
    lock(&made)?;
    Ok(made)
}

/// Opens an ordinary file whose name a peer has chosen, or makes it, to go on behind what is there.
///
/// # Errors
/// There is something else of that name; the system's.
pub fn open_named(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        .mode(MODE)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(refused("it is no ordinary file")) }
}

/// As [`create_named`], but an ordinary file makes room when it is empty or its first bytes, at most `len`,
/// are `good`, and no program writes it. A process that reads the old one keeps it.
///
/// # Errors
/// As [`create_named`]; another program uses what is there.
pub fn replace_named(path: &Path, len: usize, good: impl Fn(&[u8]) -> bool) -> io::Result<File> {
    let open = || {
        OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)
    };
    // Held until the new one has its own lock.
    let old = match open_locked(path, open) {
        Err(error) if error.kind() == io::ErrorKind::ResourceBusy => return Err(error),
        old => old.ok(),
    };
    if let Some(old) = &old
        && old.metadata()?.is_file()
    {
        let mut head = Vec::new();
        old.take(len as u64).read_to_end(&mut head)?;
        if head.is_empty() || good(&head) {
            fs::remove_file(path)?;
        }
    }
    create_named(path)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn what_is_there_is_left_alone() {
        let dir = tempfile::tempdir().expect("a directory");
        let at = |name: &str| dir.path().join(name);
        fs::write(at("precious"), "precious").expect("writable");
        symlink(at("precious"), at("link")).expect("a link");
        symlink(at("nowhere"), at("dangling")).expect("a link");
        fs::hard_link(at("precious"), at("hard")).expect("a link");
        fs::create_dir(at("folder")).expect("writable");
        let made = std::process::Command::new("mkfifo").arg(at("pipe")).status();
        assert!(made.is_ok_and(|made| made.success()), "a pipe");
        for name in ["precious", "link", "dangling", "hard", "folder", "pipe"] {
            let error = create_named(&at(name)).expect_err(name);
            assert_eq!(error.kind(), io::ErrorKind::AlreadyExists, "{name}: {error}");
            assert!(error.to_string().contains("choose another name"), "{name}: {error}");
            let error = replace_named(&at(name), 8, |head| head == b"old").expect_err(name);
            assert_eq!(error.kind(), io::ErrorKind::AlreadyExists, "{name}: {error}");
        }
        assert_eq!(fs::read(at("precious")).expect("there"), b"precious");
        assert!(!at("nowhere").exists());
        let mut file = create_named(&at("new")).expect("nothing of that name");
        file.write_all(b"x").expect("writable");
        let mode = file.metadata().expect("open").permissions().mode();
        assert_eq!(mode & 0o7777 & !0o640, 0, "{mode:o}");
    }

    #[test]
    fn a_file_of_the_right_kind_is_replaced_where_that_is_asked_for() {
        let dir = tempfile::tempdir().expect("a directory");
        let at = |name: &str| dir.path().join(name);
        fs::write(at("log"), "old").expect("writable");
        fs::hard_link(at("log"), at("other")).expect("a link");
        drop(replace_named(&at("log"), 8, |head| head == b"old").expect("replaced"));
        assert_eq!(fs::read(at("log")).expect("there"), b"");
        assert_eq!(fs::read(at("other")).expect("there"), b"old", "its old content is not touched");
    }
}
