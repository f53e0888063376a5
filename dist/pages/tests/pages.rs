//! The pages of all programs, as they are packed.
#![allow(missing_docs, reason = "tests")]

use std::fs;
use std::path::Path;
use std::process::Command;

/// Returns true if it could write below this directory.
fn write_pages(dir: &Path) -> bool {
    let status = Command::new(env!("CARGO_BIN_EXE_itg-pages")).arg(dir).status();
    status.expect("itg-pages").success()
}

#[test]
fn every_option_is_explained_and_completed() {
    let dir = tempfile::tempdir().expect("a directory");
    assert!(write_pages(dir.path()));
    let text = |name: &str| fs::read_to_string(dir.path().join(name)).expect(name);
    // Options that `-h` shows, and options that it leaves out.
    for (program, command, options) in [
        ("itg-send", "", ["--rate", "--dscp"]),
        ("itg-recv", "", ["--listen", "--metrics"]),
        ("itg-log", "", ["--listen", "--metrics"]),
        ("itg-decode", "", ["--format", "--plan-packets"]),
        ("itg-cluster", "-run", ["--out", "--lease"]),
        ("itg-cluster", "-agent", ["--listen", "--leave-after"]),
    ] {
        let name = format!("man/{program}{command}.1");
        let page = text(&name);
        for option in options {
            assert!(page.contains(&option.replace('-', "\\-")), "{name}: no {option}");
            for shell in ["bash", "zsh"] {
                let completed = text(&format!("{program}.{shell}"));
                assert!(completed.contains(option), "{program}, {shell}: no {option}");
            }
            let completed = text(&format!("{program}.fish"));
            assert!(completed.contains(&format!("-l {}", &option[2..])), "{program}: no {option}");
        }
        assert!(!page.contains("commit: "), "{name}: what is known of one build alone");
    }
}

#[test]
fn what_cannot_be_written_is_an_error() {
    assert!(!write_pages(Path::new("/proc/nowhere")));
}
