//! The files of the repository, for the tests that hold them to its rules.

use std::fs;
use std::path::{Path, PathBuf};

/// The root of the repository.
#[must_use]
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ is in the root").to_owned()
}

/// Its files, but for hidden folders other than `.ci` and for what builds and runs leave behind.
#[must_use]
pub fn files() -> Vec<PathBuf> {
    let (mut folders, mut found) = (vec![root()], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("readable").map(|entry| entry.expect("readable"))
        {
            let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
            let hidden = name.starts_with('.') && name != ".ci";
            if !path.is_dir() {
                found.push(path);
            } else if !hidden && !["target", "itg-out", "itg.data"].contains(&name.as_str()) {
                folders.push(path);
            }
        }
    }
    found
}
