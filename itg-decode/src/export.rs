//! Files that are there whole or not at all: written beside their place, and put there when complete.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// A file while it is written; removed unless [`finish`](Self::finish) is called.
#[derive(Debug)]
pub(crate) struct Export {
    file: File,
    /// Path at which it is written, and path at which it belongs; `None` where it is written in
    /// place.
    moves: Option<(PathBuf, PathBuf)>,
}

impl Export {
    /// Begins a file that is to be at `path`. What is there and is no plain file (a device, a pipe) is
    /// written to as it is.
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        let there = fs::metadata(path).ok();
        if there.as_ref().is_some_and(|there| !there.is_file()) {
            return Ok(Self { file: File::create(path)?, moves: None });
        }
        // A link stays, and leads to the new file.
        let place = if there.is_some() { path.canonicalize()? } else { path.to_owned() };
        let mut scratch = place.as_os_str().to_owned();
        scratch.push(format!(".{}.part", std::process::id()));
        let scratch = PathBuf::from(scratch);
        let file = match File::options().write(true).create_new(true).open(&scratch) {
            Ok(file) => file,
            // A folder in which nothing new may be, and a file that may be written.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied && there.is_some() => {
                return Ok(Self { file: File::create(path)?, moves: None });
            }
            Err(error) => return Err(error),
        };
        let export = Self { file, moves: Some((scratch, place)) };
        if let Some(there) = there {
            export.file.set_permissions(there.permissions())?;
        }
        Ok(export)
    }

    /// Puts the file in its place.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        if let Some((scratch, place)) = self.moves.take() {
            fs::rename(&scratch, place).inspect_err(|_| {
                // It may be gone already.
                fs::remove_file(&scratch).unwrap_or_default();
            })?;
        }
        Ok(())
    }
}

impl Write for Export {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for Export {
    fn drop(&mut self) {
        if let Some((scratch, _)) = &self.moves {
            // It may be gone already.
            fs::remove_file(scratch).unwrap_or_default();
        }
    }
}
