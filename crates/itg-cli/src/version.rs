//! Version of a program in full: its release, the commit that it was built from, what it was built for and with.

use std::env::consts::{ARCH, OS};

/// The text of `--version` in the program whose crate this stands in. The commit is that of the variable `ITG_COMMIT`
/// at build time; of all crates, those of the programs alone are built again when it changes.
#[macro_export]
macro_rules! version {
    ($($feature:literal),*) => {{
        static TEXT: std::sync::OnceLock<String> = std::sync::OnceLock::new();
        let features: &[(&str, bool)] = &[$(($feature, cfg!(feature = $feature))),*];
        let (release, commit) = (env!("CARGO_PKG_VERSION"), option_env!("ITG_COMMIT"));
        TEXT.get_or_init(|| $crate::version_text(release, commit, features)).as_str()
    }};
}

/// The text of `--version`, behind the name of the program.
#[must_use]
pub fn version_text(release: &str, commit: Option<&str>, features: &[(&str, bool)]) -> String {
    let environment = match () {
        () if cfg!(target_env = "gnu") => "-gnu",
        () if cfg!(target_env = "musl") => "-musl",
        () => "",
    };
    let enabled: Vec<_> =
        features.iter().filter(|(_, enabled)| *enabled).map(|(name, _)| *name).collect();
    let enabled = if enabled.is_empty() { "none".to_owned() } else { enabled.join(", ") };
    let commit = commit.filter(|commit| !commit.is_empty()).unwrap_or("not told (ITG_COMMIT)");
    format!("{release}\ncommit: {commit}\ntarget: {ARCH}-{OS}{environment}\nfeatures: {enabled}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_says_what_it_was_built_from() {
        let text = version_text("0.1.0", Some("c0ffee"), &[("mpi", true), ("parquet", false)]);
        assert!(text.starts_with("0.1.0\ncommit: c0ffee\ntarget: "), "{text}");
        assert!(text.ends_with("\nfeatures: mpi"), "{text}");
        let text = version_text("0.1.0", None, &[]);
        assert!(text.contains("commit: not told") && text.ends_with("features: none"), "{text}");
    }
}
