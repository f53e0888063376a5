//! The programs that are tested.

use std::path::{Path, PathBuf};

/// The path of one of ITG's programs.
#[must_use]
pub fn program(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("the test's own path");
    let built = test.parent().and_then(Path::parent).expect("target/debug/deps/test");
    let path = built.join(name);
    assert!(
        path.is_file(),
        "{} is not built: run `cargo test --workspace`, or `cargo build --bin {name}` first",
        path.display()
    );
    path
}
