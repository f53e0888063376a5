//! The names of logs that senders ask for.

use std::path::{Path, PathBuf};

use itg_core::text::from_peer;

/// Longest name, in bytes.
const LONGEST: usize = 100;

/// A log that a sender has asked for by name, within the directory: a plain file name that is no option, no hidden
/// file, and shows on any terminal as it is.
pub(super) fn log_path(dir: &Path, name: &str) -> Result<PathBuf, String> {
    let plain = name.len() <= LONGEST
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c));
    if plain {
        return Ok(dir.join(name));
    }
    Err(format!(
        "log name `{}`: give a plain file name of at most {LONGEST} letters, digits, `.`, `_`, `-`, first a letter or a \
         digit; the receiver chooses the directory",
        from_peer(name)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logs_stay_in_their_directory_and_have_plain_names() {
        let (dir, long) = (Path::new("logs"), "x".repeat(LONGEST));
        for name in ["a.itg", "2026-11-30_a.itg", "0", &long] {
            assert_eq!(log_path(dir, name), Ok(dir.join(name)));
        }
        for name in [
            "",
            ".",
            "..",
            "/etc/passwd",
            "../x",
            "a/b",
            "a/",
            "./a/../../b",
            "a\nb",
            "-rf",
            ".bashrc",
            "a\u{202e}gti",
            "é",
            "a b",
            &format!("{long}x"),
            &"x".repeat(100_000),
        ] {
            let error = log_path(dir, name).expect_err(name);
            assert!(error.contains("give a plain file name") && error.len() < 500, "{error}");
        }
    }
}
