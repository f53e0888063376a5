//! The file of a log on this host, and what becomes of one that is there already.
//!
//! A file that is there is continued behind its last whole block ([`continued`]), or it makes room when the first flow
//! is open ([`Beside`]): until then the new log has a name of its own, and the old one is as it was. Either way it is
//! locked, and what is no complete log is left alone.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use itg_record::{LogTail, find_blocks};
use itg_session::logs::keep::Storage as _;

use super::disk::DiskFile;
use super::lock::{BUSY, is_at, lock, open_locked};
use super::named::MODE;

/// Mark of the name of a log that has not begun.
const SCRATCH: &str = ".new-";

/// A file that blocks are added to.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) file: DiskFile,
    /// Its length: what is added comes behind.
    pub(crate) bytes: u64,
    /// Number of the next log in it.
    pub(crate) log_id: u32,
    /// It is a pipe or a device, which keeps nothing.
    pub(crate) is_special: bool,
}

impl Opened {
    pub(crate) const fn empty(file: DiskFile) -> Self {
        Self { file, bytes: 0, log_id: 0, is_special: false }
    }
}

/// An error about a file that is left alone, with words for its user.
pub(crate) fn refused(why: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::AlreadyExists, why.into())
}

/// A pipe or a device holds nothing that could be lost: it is written to as it is.
fn special(path: &Path) -> io::Result<Option<Opened>> {
    match fs::metadata(path) {
        Ok(there) if !there.is_file() => {
            let file = OpenOptions::new().write(true).open(path)?;
            Ok(Some(Opened { is_special: true, ..Opened::empty(DiskFile::new(file, path)) }))
        }
        _ => Ok(None),
    }
}

pub(crate) fn open_or_create(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.create(true).truncate(false).read(true).write(true).mode(MODE).open(path)
}

/// Opens a log to go on behind what is in it, or makes a new file. A block that is torn at its end is cut off.
///
/// # Errors
/// A file that is no log, or that another program uses; the system's.
pub(crate) fn continued(path: &Path) -> io::Result<Opened> {
    if let Some(opened) = special(path)? {
        return Ok(opened);
    }
    let file = open_locked(path, || open_or_create(path))?;
    let mut file = DiskFile::at_end(file, path)?;
    let bytes = file.bytes()?;
    if bytes == 0 {
        return Ok(Opened::empty(file));
    }
    of_no_server(path)?;
    let Some(tail) = file.view(LogTail::of)? else {
        return Err(refused("it is no log of ITG, and is left alone: choose another name"));
    };
    let mut end = bytes;
    if tail.is_torn {
        file.cut(tail.good_bytes)?;
        end = tail.good_bytes;
    }
    Ok(Opened { bytes: end, log_id: tail.last_log.wrapping_add(1), ..Opened::empty(file) })
}

/// Refuses a file beside which a log server has an index.
fn of_no_server(path: &Path) -> io::Result<()> {
    match path.with_extension("index.jsonl").is_file() {
        true => Err(refused(
            "it belongs to a log server, as the index beside it says, and is left alone: choose another name",
        )),
        false => Ok(()),
    }
}

/// The file of a log that has not got its name yet.
#[derive(Debug)]
pub(crate) struct Beside {
    /// Its present name.
    scratch: PathBuf,
    /// The name that it is to get, all links followed.
    place: PathBuf,
    /// The file that makes room, locked.
    old: Option<File>,
}

impl Beside {
    /// Makes a file beside `path`, if what is there may make room: nothing, an empty file, or one that `may_go`.
    ///
    /// # Errors
    /// What is there is left alone, with the reason of `may_go`, or because another program uses it; the system's.
    pub(crate) fn create(
        path: &Path,
        may_go: impl FnOnce(&[u8]) -> Result<(), &'static str>,
    ) -> io::Result<(Opened, Option<Self>)> {
        if let Some(opened) = special(path)? {
            return Ok((opened, None));
        }
        let place = match fs::symlink_metadata(path) {
            Ok(there) if there.is_symlink() => fs::canonicalize(path)
                .map_err(|_| refused("it is a link that leads nowhere: choose another name"))?,
            _ => path.to_owned(),
        };
        // Who may not write to it may not replace it either.
        let open = || OpenOptions::new().read(true).write(true).open(&place);
        let old = match open_locked(&place, open) {
            Ok(old) => Some(old),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let mut options = OpenOptions::new();
        options.create_new(true).read(true).write(true).mode(MODE);
        let mut mode = None;
        if let Some(old) = &old {
            mode = Some(old.metadata()?.mode() & 0o7777);
            let there = DiskFile::new(old.try_clone()?, &place);
            if there.bytes()? > 0 {
                of_no_server(&place)?;
                let verdict = there.view(may_go)?;
                verdict.map_err(|why| {
                    refused(format!("{why}, and is left alone: choose another name"))
                })?;
            }
        }
        let scratch = scratch_of(&place);
        let file = options.open(&scratch)?;
        let beside = Self { scratch, place, old };
        lock(&file)?;
        if beside.others()? {
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, BUSY));
        }
        // From here on the file is removed when it does not get its name.
        if let Some(mode) = mode {
            file.set_permissions(Permissions::from_mode(mode))?;
        }
        let file = DiskFile::new(file, &beside.place);
        Ok((Opened::empty(file), Some(beside)))
    }

    /// Returns true if another program is about to write a log of this name; what killed ones left is removed.
    fn others(&self) -> io::Result<bool> {
        let dir = self.place.parent().filter(|dir| !dir.as_os_str().is_empty());
        let mut begin = self.place.file_name().unwrap_or_default().to_owned();
        begin.push(SCRATCH);
        let begin = begin.to_string_lossy().into_owned();
        for entry in fs::read_dir(dir.unwrap_or_else(|| Path::new(".")))? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if self.scratch.file_name() == path.file_name() || !name.starts_with(&begin) {
                continue;
            }
            let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
            let open = OpenOptions::new().read(true).custom_flags(flags).open(&path);
            let Ok(file) = open else { continue };
            if lock(&file).is_err() {
                return Ok(true);
            }
            // Its program was killed before its first flow, unless it has records.
            let blocks = DiskFile::new(file, &path).view(|bytes| find_blocks(bytes).1);
            if blocks.is_ok_and(|blocks| blocks.iter().all(|block| block.facts.records == 0)) {
                drop(fs::remove_file(&path));
            }
        }
        Ok(false)
    }

    /// Gives the file its name.
    ///
    /// # Errors
    /// Somebody has put another file there meanwhile, or the system's: it keeps the name that it has, which the text
    /// comes with it.
    pub(crate) fn take_name(mut self) -> Result<(), (String, PathBuf)> {
        let (scratch, place) = (std::mem::take(&mut self.scratch), &self.place);
        let named = match &self.old {
            Some(old) if is_at(old, place) => fs::rename(&scratch, place),
            // It was removed, or there was none.
            _ => rename_to_new(&scratch, place),
        };
        named.map_err(|error| {
            let why = match error.kind() {
                io::ErrorKind::AlreadyExists => {
                    "another program has made a file of that name meanwhile".to_owned()
                }
                _ => error.to_string(),
            };
            (format!("{why}; the log of this run is in {}", scratch.display()), scratch)
        })
    }
}

/// Gives a file a name that nothing has.
///
/// # Errors
/// There is something of that name; the system's.
pub(crate) fn rename_to_new(from: &Path, to: &Path) -> io::Result<()> {
    match fs::hard_link(from, to) {
        Ok(()) => fs::remove_file(from),
        // A file system without such links.
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists && !fs::exists(to)? => {
            fs::rename(from, to)
        }
        Err(error) => Err(error),
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        if !self.scratch.as_os_str().is_empty()
            && let Err(error) = fs::remove_file(&self.scratch)
        {
            tracing::debug!(%error, "the file of a log that did not begin was not removed");
        }
    }
}

/// A name beside a file that nobody else takes.
fn scratch_of(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    let number = itg_socket::host::random_u64();
    name.push(format!("{SCRATCH}{}-{number:x}", std::process::id()));
    name.into()
}

/// Decides whether a log of ours may make room for a new one: it must have its end.
pub(crate) fn may_go(bytes: &[u8]) -> Result<(), &'static str> {
    match LogTail::of(bytes) {
        None => Err("it is no log of ITG"),
        Some(tail) if !tail.has_end => Err(
            "it is a log without its end, as a killed program leaves it (`itg-decode` reads it)",
        ),
        Some(_) => Ok(()),
    }
}
