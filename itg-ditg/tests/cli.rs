//! `ITGDec`, `ITGLog` and `ITGManager` at the command line; `ITGSend` and `ITGRecv` are tested end to end, in `tests/`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use itg_testkit::child::said;

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/itg-classic/tests/golden/dec").join(name)
}

fn itgdec(folder: &Path, args: &[&str]) -> (Option<i32>, String, String) {
    said(Command::new(env!("CARGO_BIN_EXE_ITGDec")).current_dir(folder).args(args))
}

fn unversioned(text: &str) -> String {
    text.lines().skip(2).map(|line| format!("{line}\n")).collect()
}

#[test]
fn itgdec_prints_and_writes_what_the_real_one_does() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = golden("multi3-recv.log");
    let log = log.to_str().expect("UTF-8");
    let (code, out, err) = itgdec(folder.path(), &[log]);
    let want = fs::read_to_string(golden("multi3-recv.summary.txt")).expect("readable");
    assert_eq!((code, unversioned(&out), err.as_str()), (Some(0), unversioned(&want), ""));
    assert!(out.starts_with("ITGDec version 2.8.1 "), "{out}");
    let (code, out, _) = itgdec(folder.path(), &[log, "-d", "200", "-l", "text"]);
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
        let (code, out, _) = itgdec(folder.path(), &args);
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
    let mut command = Command::new("/bin/sh");
    command
        .current_dir(folder.path())
        .args(limited)
        .arg(env!("CARGO_BIN_EXE_ITGDec"))
        .arg("receiver.log");
    let output = command.output().expect("runs");
    let out = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let line = out.lines().find(|line| line.starts_with("Total packets"));
    assert!(line.is_some_and(|line| line.ends_with(&PACKETS.to_string())), "{out}");
    // Looking through the sender's log for each record would take hours.
    let mut command = Command::new("timeout");
    command.current_dir(folder.path()).args(["300", env!("CARGO_BIN_EXE_ITGDec")]);
    let output =
        command.args(["receiver.log", "-r", "sender.log", "both.log"]).output().expect("runs");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let both = fs::metadata(folder.path().join("both.log")).expect("written");
    assert_eq!(both.len(), u64::from(PACKETS) * 144);
}

#[test]
fn itglog_takes_d_itgs_command_line() {
    for (args, words) in [
        (&["-h"][..], "--log-dir DIR"),
        (&["-Z"], "Unknow option : -Z"),
        (&["--log-dir"], "--log-dir names no directory"),
        (&["--log-dir", "/nonexistent"], "--log-dir /nonexistent: there is no such directory"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ITGLog"));
        let done = command.args(args).output().expect("it starts");
        let (out, err) = (&done.stdout, String::from_utf8_lossy(&done.stderr));
        let out = String::from_utf8_lossy(out);
        assert_eq!(done.status.code(), Some(1), "{args:?}: {err}");
        assert!(out.starts_with("ITGLog version 2.8.1 "), "{out}");
        assert!(out.contains(words) || err.contains(words), "no {words:?} in {out}{err}");
    }
}

#[test]
fn itgmanager_says_why_it_cannot_ask() {
    let long = "x".repeat(2000);
    for (args, words) in [
        (&["-h"][..], "ITGManager [HOST [OPTIONS OF ITGSend]]"),
        // No host answers at an address for documentation (RFC 5737).
        (&["192.0.2.1", "-z", "5"], "192.0.2.1:8998"),
        (&["no.such.host.invalid", "-z", "5"], "the daemon's host `no.such.host.invalid`"),
        (&["127.0.0.1", &long], "more than the 1457 it may have"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ITGManager"));
        let (code, out, err) = said(command.args(args).stdin(Stdio::null()));
        assert_eq!(code, Some(1), "{args:?}: {out}{err}");
        assert!(out.starts_with("ITGManager version 2.8.1 "), "{out}");
        assert!((out + &err).contains(words), "no {words:?} in its words: {err}");
    }
}

#[test]
fn one_file_is_each_program_by_the_name_it_is_called_with() {
    let folder = tempfile::tempdir().expect("a folder");
    for name in ["ITGDec", "ITGLog", "ITGManager", "ITGRecv", "ITGSend"] {
        let link = folder.path().join(name);
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_ITGManager"), &link).expect("a link");
        let (_, out, err) = said(Command::new(&link).arg("-h").current_dir(folder.path()));
        assert!(out.starts_with(&format!("{name} version 2.8.1 ")), "{name}: {out}{err}");
    }
    let renamed = folder.path().join("sender-2.8");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_ITGSend"), &renamed).expect("a link");
    let (_, out, err) = said(Command::new(&renamed).arg("-h").current_dir(folder.path()));
    assert!(out.starts_with("ITGSend version 2.8.1 "), "{out}{err}");
}
