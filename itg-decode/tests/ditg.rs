//! Logs of D-ITG at the command line: ITGDec, and itg-decode reading and writing them.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

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

/// A log of so many packets of one flow.
fn long_log(file: &Path, packets: u32) {
    let golden = fs::read(golden("udp-owdm-recv.log")).expect("readable");
    let mut log = Vec::new();
    for seq in 1..=packets {
        let at = log.len();
        log.extend_from_slice(&golden[..144]);
        log[at + 4..at + 8].copy_from_slice(&seq.to_le_bytes());
    }
    fs::write(file, log).expect("writable");
}

#[test]
fn d4_memory_does_not_grow_with_the_log_and_combining_is_not_quadratic() {
    const PACKETS: u32 = 400_000;
    let folder = tempfile::tempdir().expect("a folder");
    for name in ["sender.log", "receiver.log"] {
        long_log(&folder.path().join(name), PACKETS);
    }
    // 58 MB of records in 16 MB of memory, the mapped file aside.
    let limited = ["-c", "ulimit -d 16384 && exec \"$@\"", "sh"];
    let itgdec = assert_cmd::cargo::cargo_bin("ITGDec");
    let mut command = Command::new("/bin/sh");
    command.current_dir(folder.path()).args(limited).arg(&itgdec).arg("receiver.log");
    let output = command.output().expect("runs");
    let out = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let line = out.lines().find(|line| line.starts_with("Total packets"));
    assert!(line.is_some_and(|line| line.ends_with(&PACKETS.to_string())), "{out}");
    // Looking through the sender's log for each record would take hours.
    let mut command = Command::cargo_bin("ITGDec").expect("built");
    command.current_dir(folder.path()).args(["receiver.log", "-r", "sender.log", "both.log"]);
    let output = command.timeout(Duration::from_secs(300)).output().expect("runs");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let both = fs::metadata(folder.path().join("both.log")).expect("written");
    assert_eq!(both.len(), u64::from(PACKETS) * 144);
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

#[test]
fn what_cannot_be_written_is_not_there_and_what_was_there_stays() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = golden("udp-owdm-recv.log");
    let log = log.to_str().expect("UTF-8");
    // No file may have more than 512 or 1024 bytes, and writing more is an error.
    let full = "trap '' XFSZ; ulimit -f 1; exec \"$@\"";
    let program = assert_cmd::cargo::cargo_bin("itg-decode");
    for args in [
        &["--format", "ditg", "-o", "out"][..],
        &["--packets", "--format", "csv", "-o", "out"],
        &["--packets", "--format", "octave", "-o", "out"],
        &["--packets", "--format", "parquet", "-o", "out"],
        &["--format", "json", "-o", "out"],
        &["--html", "out"],
        &["--junit", "out", "--format", "json", "-o", "out"],
    ] {
        for before in [None, Some("before")] {
            let out = folder.path().join("out");
            if let Some(text) = before {
                fs::write(&out, text).expect("writable");
            }
            let mut command = Command::new("/bin/sh");
            command.current_dir(folder.path()).args(["-c", full, "sh"]);
            let done = command.arg(&program).arg(log).args(args).output().expect("runs");
            let err = String::from_utf8_lossy(&done.stderr);
            assert_eq!(done.status.code(), Some(1), "{args:?}: {err}");
            let there = fs::read_to_string(&out).ok();
            assert_eq!(there.as_deref(), before, "{args:?}");
            let files = fs::read_dir(folder.path()).expect("readable").count();
            assert_eq!(files, usize::from(before.is_some()), "{args:?} left something");
            if before.is_some() {
                fs::remove_file(&out).expect("there");
            }
        }
    }
    // A file that can be written replaces what was there; a link stays one.
    let target = folder.path().join("target");
    fs::write(&target, "before").expect("writable");
    std::os::unix::fs::symlink(&target, folder.path().join("link")).expect("a link");
    let (code, _, err) = run("itg-decode", folder.path(), &[log, "--format", "ditg", "-o", "link"]);
    assert_eq!(code, Some(0), "{err}");
    assert!(folder.path().join("link").is_symlink());
    assert_eq!(fs::metadata(&target).expect("there").len() % 144, 0);
}
