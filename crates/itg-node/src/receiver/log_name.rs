//! The names of logs that senders ask for.

use std::path::{Component, Path, PathBuf};

/// A log that a sender has asked for by name: a plain file name within the directory.
pub(super) fn log_path(dir: &Path, name: &str) -> Result<PathBuf, String> {
    let mut parts = Path::new(name).components();
    match (parts.next(), parts.next()) {
        (Some(Component::Normal(file)), None)
            if !name.ends_with('/') && name.len() <= 200 && !name.contains(char::is_control) =>
        {
            Ok(dir.join(file))
        }
        _ => Err(format!(
            "log name `{}`: give a plain file name; the receiver chooses the directory",
            name.escape_debug()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logs_stay_in_their_directory() {
        let dir = Path::new("logs");
        assert_eq!(log_path(dir, "a.itg"), Ok(dir.join("a.itg")));
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
            &"x".repeat(201),
        ] {
            let error = log_path(dir, name).expect_err(name);
            assert!(error.contains("give a plain file name"), "{error}");
        }
    }
}
