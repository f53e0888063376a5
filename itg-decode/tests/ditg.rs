//! Logs of D-ITG at the command line: ITGDec, and itg-decode reading and writing them.

use std::fs;
use std::path::{Path, PathBuf};

use assert_cmd::Command;

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/itg-classic/tests/golden/dec").join(name)
}

fn run(program: &str, folder: &Path, args: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::cargo_bin(program).expect("built");
    let output = command.current_dir(folder).args(args).output().expect("runs");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

fn unversioned(text: &str) -> String {
    text.lines().skip(2).map(|line| format!("{line}\n")).collect()
}

#[test]
fn itgdec_prints_and_writes_what_the_real_one_does() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = golden("multi3-recv.log");
    let log = log.to_str().expect("UTF-8");
    let (code, out, err) = run("ITGDec", folder.path(), &[log]);
    let want = fs::read_to_string(golden("multi3-recv.summary.txt")).expect("readable");
    assert_eq!((code, unversioned(&out), err.as_str()), (Some(0), unversioned(&want), ""));
    assert!(out.starts_with("ITGDec version 2.8.1 "), "{out}");
    let (code, out, _) = run("ITGDec", folder.path(), &[log, "-d", "200", "-l", "text"]);
    assert_eq!((code, unversioned(&out)), (Some(0), String::new()));
    for (name, want) in [("delay.dat", "multi3-recv.delay200.dat"), ("text", "multi3-recv.txt")] {
        let got = fs::read(folder.path().join(name)).expect("written");
        assert!(got == fs::read(golden(want)).expect("readable"), "{name}");
    }
}

#[test]
fn itgdec_refuses_with_1() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = golden("edge-single.log");
    let log = log.to_str().expect("UTF-8");
    for (args, text) in [
        (vec![], "Missing filename!!!"),
        (vec!["-h"], "-c MS [FILE]"),
        (vec![log, "-Z"], "Invalid option!!"),
        (vec!["nothing.log"], "Error opening log file 'nothing.log'"),
        (vec![log, "-l", "no/such/folder"], "Error opening file 'no/such/folder' for write"),
        (vec![log, "-r", "nothing.log"], "Error opening log file 'nothing.log'"),
    ] {
        let (code, out, _) = run("ITGDec", folder.path(), &args);
        assert_eq!(code, Some(1), "{args:?}");
        assert!(out.contains(text), "{args:?}: {out}");
    }
}

#[test]
fn itg_decode_reads_and_writes_logs_of_d_itg() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = golden("udp-owdm-recv.log");
    let log = log.to_str().expect("UTF-8");
    let (code, out, err) = run("itg-decode", folder.path(), &[log, "--format", "json"]);
    assert_eq!(code, Some(0), "{err}");
    let report: serde_json::Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!(report["flows"][0]["packets"], 200);
    assert_eq!(report["flows"][0]["fidelity"]["verdict"], "unknown");
    let (code, _, err) =
        run("itg-decode", folder.path(), &[log, "--format", "ditg", "-o", "back.log"]);
    assert_eq!(code, Some(0), "{err}");
    let want = fs::read_to_string(golden("udp-owdm-recv.summary.txt")).expect("readable");
    let (_, out, _) = run("ITGDec", folder.path(), &["back.log"]);
    assert_eq!(unversioned(&out), unversioned(&want));
}
