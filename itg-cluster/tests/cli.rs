//! `itg-cluster` as it is seen from a shell: help, version, and requests that make no sense.

use std::process::Command;

use itg_testkit::child::said;

fn run(args: &[&str]) -> (Option<i32>, String, String) {
    said(Command::new(env!("CARGO_BIN_EXE_itg-cluster")).args(args))
}

#[test]
fn help_and_version_go_to_stdout() {
    let (code, out, err) = run(&["--help"]);
    assert_eq!((code, err.as_str()), (Some(0), ""));
    assert!(out.contains("run") && out.contains("plan"), "{out}");
    let (code, out, _) = run(&["run", "--help"]);
    assert!(code == Some(0) && out.contains("--local") && out.contains("--out <DIR>"), "{out}");
    let (code, out, err) = run(&["--version"]);
    let version = concat!("itg-cluster ", env!("CARGO_PKG_VERSION"), "\n");
    assert_eq!((code, err.as_str()), (Some(0), ""));
    assert!(out.starts_with(&format!("{version}commit: ")), "{out}");
    assert!(out.contains("\ntarget: ") && out.contains("\nfeatures: "), "{out}");
    assert_eq!(run(&["-V"]).1, version);
}

#[test]
fn requests_that_make_no_sense_end_with_2_and_say_why() {
    for (args, words) in [
        (&[][..], "Usage"),
        (&["fly"], "fly"),
        (&["run"], "FILE"),
        (&["plan"], "FILE"),
        (&["plan", "/does/not/exist.toml"], "/does/not/exist.toml"),
        (&["process", "--return", "/does/not/exist"], "/does/not/exist"),
        (&["process", "--return", "Cargo.toml"], "itg-ticket-1"),
        (&["run", "/does/not/exist.toml", "--local"], "/does/not/exist.toml"),
        (&["plan", "x.toml", "--format", "xml"], "json"),
        (&["plan", "x.toml", "--seed", "lucky"], "lucky"),
        (&["run", "x.toml", "--local", "--duration", "10"], "unit"),
        (&["run", "x.toml", "--local", "-q", "-v"], "cannot be used with"),
    ] {
        let (code, out, err) = run(args);
        assert_eq!((code, out.as_str()), (Some(2), ""), "{args:?}: {err}");
        assert!(err.contains(words), "{args:?} does not say {words:?}: {err}");
        assert!(!err.contains("panicked"), "{args:?}: {err}");
    }
}
