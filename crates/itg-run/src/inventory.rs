//! Files of a run's directory, with their sizes and SHA-256.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read as _};
use std::path::{Component, Path, PathBuf};

use anyhow::{Context as _, Result};
use ring::digest::{Context, SHA256};

/// Says that a path is that of a link, a device or the like.
const NO_FILE: &str = "no regular file";
/// Says that a name leads out of the directory.
const ELSEWHERE: &str = "not a path below the directory of the run";
/// Longest manifest, record or list of hashes that is read, in bytes: some 100 000 files.
pub(crate) const LONGEST: u64 = 64 << 20;

/// File of a run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RunFile {
    /// Its path below the directory, with `/` between its parts.
    pub(crate) path: String,
    /// Its length in bytes.
    pub(crate) bytes: u64,
    /// Its SHA-256, 64 hexadecimal digits; `None` for a link, a device and the like, which are not read.
    pub(crate) sha256: Option<String>,
}

/// All files below a directory, in the order of their paths, but for those that `left_out` names by their paths.
///
/// # Errors
/// Something there cannot be read.
pub(crate) fn list(dir: &Path, left_out: &[&str]) -> Result<Vec<RunFile>> {
    let mut paths = Vec::new();
    below(dir, "", &mut paths)?;
    paths.retain(|path| !left_out.contains(&path.as_str()));
    paths.sort_unstable();
    paths.into_iter().map(|path| look_at(dir, path)).collect()
}

/// Paths of the files below a directory, each behind `prefix`.
fn below(dir: &Path, prefix: &str, paths: &mut Vec<String>) -> Result<()> {
    let context = || format!("cannot read directory {}", dir.display());
    for entry in fs::read_dir(dir).with_context(context)? {
        let entry = entry.with_context(context)?;
        let path = format!("{prefix}{}", entry.file_name().to_string_lossy());
        if entry.file_type().with_context(context)?.is_dir() {
            below(&entry.path(), &format!("{path}/"), paths)?;
        } else {
            paths.push(path);
        }
    }
    Ok(())
}

/// Path of a regular file below a directory: nothing on the way to it is a link, and nothing leads out.
///
/// # Errors
/// There is no such file.
pub(crate) fn regular(dir: &Path, name: &str) -> io::Result<PathBuf> {
    let not = |why| io::Error::new(ErrorKind::InvalidInput, why);
    let mut path = dir.to_owned();
    let mut parts = Path::new(name).components().peekable();
    while let Some(part) = parts.next() {
        let Component::Normal(part) = part else { return Err(not(ELSEWHERE)) };
        path.push(part);
        let found = fs::symlink_metadata(&path)?;
        let wanted = if parts.peek().is_some() { found.is_dir() } else { found.is_file() };
        if !wanted {
            return Err(not(NO_FILE));
        }
    }
    if path == dir { Err(not(NO_FILE)) } else { Ok(path) }
}

/// Content of a regular file below a directory, which has no more than `most` bytes.
///
/// # Errors
/// It cannot be read, is no text, is longer, or is a link or the like.
pub(crate) fn read_text(dir: &Path, name: &str, most: u64) -> io::Result<String> {
    let mut text = String::new();
    let read = File::open(regular(dir, name)?)?.take(most + 1).read_to_string(&mut text)?;
    match read as u64 > most {
        true => Err(io::Error::new(ErrorKind::InvalidData, format!("more than {most} bytes"))),
        false => Ok(text),
    }
}

fn look_at(dir: &Path, path: String) -> Result<RunFile> {
    let context = || format!("cannot read {}", dir.join(&path).display());
    // A directory may come from a stranger: links out of it are not followed.
    if !fs::symlink_metadata(dir.join(&path)).with_context(context)?.is_file() {
        return Ok(RunFile { path, bytes: 0, sha256: None });
    }
    let mut file = File::open(dir.join(&path)).with_context(context)?;
    let mut digest = Context::new(&SHA256);
    let (mut bytes, mut buffer) = (0, vec![0; 1 << 18]);
    loop {
        let got = file.read(&mut buffer).with_context(context)?;
        if got == 0 {
            break;
        }
        digest.update(&buffer[..got]);
        bytes += got as u64;
    }
    let sha256 = digest.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(RunFile { path, bytes, sha256: Some(sha256) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_listed_with_their_hashes_in_the_order_of_their_paths() {
        let dir = tempfile::tempdir().expect("a directory");
        fs::create_dir(dir.path().join("a")).expect("a directory");
        for (path, text) in [("b", "abc"), ("a/x", ""), ("c", "left out")] {
            fs::write(dir.path().join(path), text).expect("written");
        }
        std::os::unix::fs::symlink("/dev/zero", dir.path().join("link")).expect("a link");
        let file = |path: &str, bytes, sha256: Option<&str>| RunFile {
            path: path.to_owned(),
            bytes,
            sha256: sha256.map(str::to_owned),
        };
        // FIPS 180-2, appendix B.1, and the hash of nothing.
        let want = [
            file(
                "a/x",
                0,
                Some("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
            ),
            file("b", 3, Some("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad")),
            file("link", 0, None),
        ];
        assert_eq!(list(dir.path(), &["c"]).expect("readable"), want);
    }
}
