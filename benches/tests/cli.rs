//! The command line of `itg-bench`: wrong requests end with 2 and the right words.
#![allow(missing_docs, reason = "tests")]

use std::process::{Command, Output};

fn bench(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_itg-bench")).args(args).output().expect("it starts")
}

#[test]
fn wrong_requests_are_told_apart_from_failures() {
    for (args, word) in [
        (&[][..], "Usage"),
        (&["unknown"], "unrecognized subcommand"),
        (&["chaos", "--seconds", "soon"], "--seconds"),
        (&["peers", "--only", "luck"], "luck"),
        (&["mpi", "--rates", "0,fast"], "fast"),
    ] {
        let out = bench(args);
        let words = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(2), "{args:?}: {words}");
        assert!(words.contains(word), "{args:?}: {words}");
    }
}
