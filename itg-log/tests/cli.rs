//! The command line of `itg-log`: help, version, and requests that make no sense.
#![allow(missing_docs, reason = "a test")]

use std::process::{Command, Output};

fn run(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_itg-log")).args(args).output().expect("it starts")
}

#[test]
fn help_and_version_go_to_stdout() {
    for (args, words) in
        [(["--help"], "Store the logs of many senders"), (["--version"], "itg-log 0.")]
    {
        let done = run(&args);
        assert_eq!(done.status.code(), Some(0));
        assert!(String::from_utf8_lossy(&done.stdout).contains(words), "{args:?}");
    }
}

#[test]
fn requests_that_make_no_sense_end_with_2_and_a_sentence() {
    for (args, words) in [
        (&["--dir", "/proc/nonexistent"][..], "--dir /proc/nonexistent: "),
        (&[], "--dir DIR"),
        (&["--dir", "/tmp", "--listen", "127.0.0.1:x"], "`x` is not a port"),
        (&["--dir", "/tmp", "--memory", "lots"], "lots"),
        (&["--dir", "/tmp", "--classic", "127.0.0.1:x"], "`x` is not a port"),
        (&["--dir", "/tmp", "--secret-file", "/nonexistent"], "secret file /nonexistent"),
    ] {
        let done = run(args);
        let err = String::from_utf8_lossy(&done.stderr);
        assert_eq!(done.status.code(), Some(2), "{args:?}: {err}");
        assert!(err.contains(words), "no {words:?} in {err}");
        assert!(done.stdout.is_empty(), "{args:?}");
    }
}

#[test]
fn the_directory_is_made() {
    let parent = std::env::temp_dir().join(format!("itg-log-cli-{}", std::process::id()));
    let dir = parent.join("logs").display().to_string();
    // An address for documentation (RFC 5737), so that it ends by itself.
    let done = run(&["--dir", &dir, "--listen", "203.0.113.1:9003"]);
    assert_eq!(done.status.code(), Some(2), "{}", String::from_utf8_lossy(&done.stderr));
    std::fs::remove_dir(&dir).expect("it is there, and empty");
    std::fs::remove_dir(&parent).expect("the temporary directory");
}
