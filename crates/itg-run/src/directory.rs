//! The directory of a run: the names of its files, and what must not be in it before.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use itg_cli::{Failure, refuse};

/// Log of the senders, where one program keeps them all.
pub const SENDER_LOG: &str = "sender.itg";
/// Log of the receivers, where one program keeps them all.
pub const RECEIVER_LOG: &str = "receiver.itg";
/// Manifest: all that is needed to run the experiment again. A directory that has it holds a run.
pub const MANIFEST: &str = "manifest.json";

/// File that shows that a run of a sweep is done: written behind all others, so that it is not among those whose hashes
/// the run leaves.
pub(crate) const DONE: &str = "done.json";
/// File that shows that a directory is that of a sweep.
pub(crate) const SWEEP: &str = "sweep.json";

/// Creates the directory of a run; one that holds a run already is refused.
pub(crate) fn prepare(out: &Path) -> Result<()> {
    if out.join(MANIFEST).exists() {
        let out = out.display();
        return Err(refuse(format!("directory {out} holds a run already: choose another --out")));
    }
    fs::create_dir_all(out)
        .map_err(|error| Failure::new(1, format!("directory {}: {error}", out.display())).into())
}

/// Refuses a directory for results that holds a run, or files of another program; `own` may be there.
pub(crate) fn holds_nothing_else(out: &Path, own: &[PathBuf]) -> Result<()> {
    let entries = match fs::read_dir(out) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(refuse(format!("directory {}: {error}", out.display()))),
    };
    let shown = out.display();
    let own: Vec<PathBuf> = own.iter().filter_map(|path| path.canonicalize().ok()).collect();
    let mut foreign = Vec::new();
    for entry in entries {
        let path = entry.with_context(|| format!("directory {shown}"))?.path();
        if path.file_name().is_some_and(|name| name == MANIFEST) {
            return Err(refuse(format!(
                "directory {shown} holds a run already: choose another --out"
            )));
        }
        if !path.canonicalize().is_ok_and(|path| own.contains(&path)) {
            foreign.push(path);
        }
    }
    foreign.sort();
    foreign.first().map_or(Ok(()), |path| {
        Err(refuse(format!(
            "directory {shown} is not empty: {} is there and would be among the results, or replaced by them; \
             choose another --out",
            path.display()
        )))
    })
}

/// Returns true if a path that may not be there yet leads into a directory, whose path is canonical.
pub(crate) fn is_within(path: &Path, dir: &Path) -> bool {
    let Ok(path) = std::path::absolute(path) else { return false };
    let there = path.ancestors().find_map(|ancestor| ancestor.canonicalize().ok());
    there.is_some_and(|there| there.starts_with(dir))
}

/// Writes a file of the results.
pub(crate) fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// The name of an experiment as part of a file name.
pub(crate) fn file_name(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
    name.chars().map(plain).take(64).collect()
}
