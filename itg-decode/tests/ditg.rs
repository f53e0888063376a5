//! Logs of D-ITG at the command line: itg-decode reads and writes them.

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
    // What its logs do not say is not made up.
    for key in ["seed", "proto", "meter", "profile", "sent_packets", "marks"] {
        assert!(report["flows"][0][key].is_null(), "{key}: {}", report["flows"][0]);
    }
    let (code, _, err) =
        run("itg-decode", folder.path(), &[log, "--format", "ditg", "-o", "back.log"]);
    assert_eq!(code, Some(0), "{err}");
    let want = fs::read(golden("udp-owdm-recv.log")).expect("readable");
    assert!(fs::read(folder.path().join("back.log")).expect("written") == want);
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

fn decoded(folder: &Path, args: &[&str]) -> serde_json::Value {
    let (code, out, err) = run("itg-decode", folder, &[args, &["--format", "json"]].concat());
    assert_eq!(code, Some(0), "{args:?}: {err}");
    serde_json::from_str(&out).expect("JSON")
}

fn path(name: &str) -> String {
    golden(name).to_str().expect("UTF-8").to_owned()
}

#[test]
fn both_logs_of_a_round_trip_have_their_sides() {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, packets) in [("udp-rttm", 150), ("tcp-rttm", 60)] {
        let [send, recv] = ["send", "recv"].map(|side| path(&format!("{name}-{side}.log")));
        for logs in [[&send, &recv], [&recv, &send]] {
            let report = decoded(folder.path(), &[logs[0], logs[1]]);
            let flows = report["flows"].as_array().expect("a list");
            assert_eq!(flows.len(), 2, "{name}");
            // The replies count, and nothing is averaged with the way there.
            assert_eq!(
                (&report["total"]["flows"], &report["total"]["packets"]),
                (&1.into(), &packets.into())
            );
            let of =
                |side: &str| flows.iter().find(|flow| flow["side"] == side).expect("both sides");
            assert_eq!(of("sender")["meter"], "rtt", "{name}");
            let mean =
                |flow: &serde_json::Value| flow["delay_ns"]["mean"].as_f64().expect("a delay");
            assert!(mean(of("sender")) > mean(of("receiver")), "{name}");
            assert_eq!(report["total"]["delay_ns"], of("sender")["delay_ns"], "{name}");
            let (_, out, _) = run(
                "itg-decode",
                folder.path(),
                &[logs[0], logs[1], "--packets", "--format", "csv"],
            );
            assert_eq!(out.lines().count(), packets + 1, "{name}: each packet once");
        }
        // Alone, the sender's log does not tell: it is asked for.
        let alone = &decoded(folder.path(), &[&send])["flows"][0];
        assert_eq!(
            (&alone["meter"], &alone["proto"]),
            (&serde_json::Value::Null, &serde_json::Value::Null)
        );
        let told = &decoded(folder.path(), &[&send, "--as", "rtt,tcp"])["flows"][0];
        let said = ["side", "meter", "proto"].map(|key| told[key].as_str().expect("known"));
        assert_eq!(said, ["sender", "rtt", "tcp"], "{name}");
        assert_eq!(told["delay_ns"], alone["delay_ns"], "{name}");
    }
}

#[test]
fn what_a_log_does_not_say_is_not_made_up() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = path("tcp-owdm-recv.log");
    let (_, text, _) = run("itg-decode", folder.path(), &[&log, "--format", "itgdec"]);
    assert!(text.contains("(unknown protocol)") && !text.contains("UDP"), "{text}");
    let report = decoded(folder.path(), &[&log]);
    assert!(!report.to_string().contains("have not been read"), "{report:#}");
    let asked = &decoded(folder.path(), &[&log, "--as", "tcp,owd"])["flows"][0];
    assert_eq!((&asked["proto"], &asked["meter"]), (&"tcp".into(), &"owd".into()));
    let filtered = decoded(folder.path(), &[&log, "--filter", "proto == udp"]);
    assert_eq!(filtered["total"]["flows"], 0, "an unknown protocol is not UDP");
}

/// A receiver's log of ITG of the flow in D-ITG's fixture of this name, as on 3 March 2025; packet 7 is lost.
fn native_receiver(of: &str) -> Vec<u8> {
    native_log(of, "d-itg 127.0.0.1:38948", 0)
}

/// The same of a run so many nanoseconds later.
fn native_log(of: &str, run: &str, later_ns: u64) -> Vec<u8> {
    use itg_core::flow::FlowSpec;
    use itg_record::{DitgFlow, FlowInfo, Note, ReceivedPacket, Record, Side};
    use itg_testkit::logs::TestLog;

    const MIDNIGHT: u64 = 1_740_960_000_000_000_000;
    let bytes = fs::read(golden(of)).expect("readable");
    let records: Vec<_> = itg_classic::log::records(&bytes).collect();
    let first = records.first().expect("records");
    let mut log = TestLog::new(Side::Receiver, "b");
    log.note(&Note::Flow(FlowInfo {
        index: 0,
        flow: first.flow,
        name: None,
        run: run.to_owned(),
        seed: 0,
        spec: FlowSpec::new(first.flow),
        src: format!("127.0.0.1:{}", first.src_port),
        dst: format!("127.0.0.1:{}", first.dst_port),
        epoch_unix_ns: 0,
        sender_boot_id: String::new(),
        receiver_boot_id: "b".to_owned(),
        notices: Vec::new(),
        ditg: Some(DitgFlow::KNOWN),
        changes: Vec::new(),
    }));
    for record in records.iter().filter(|record| record.seq != 7) {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a time of day")]
        let sent = MIDNIGHT + later_ns + (record.tx.seconds() * 1e6).round() as u64 * 1000;
        log.records([Record::received(ReceivedPacket {
            flow: 0,
            seq: u64::from(record.seq) - 1,
            size: record.size,
            sent_ns: sent,
            arrived_ns: sent + 50_000,
            read_ns: sent + 60_000,
            ttl: 64,
            tos: 0,
        })]);
    }
    log.finish()
}

#[test]
fn a_senders_log_of_d_itg_joins_a_native_log_of_the_same_flow() {
    let folder = tempfile::tempdir().expect("a folder");
    let send = path("udp-owdm-send.log");
    fs::write(folder.path().join("r.itg"), native_receiver("udp-owdm-send.log")).expect("writable");
    for logs in [[&*send, "r.itg"], ["r.itg", &*send]] {
        let report = decoded(folder.path(), &logs);
        let flows = report["flows"].as_array().expect("a list");
        assert_eq!(flows.len(), 2, "{report:#}");
        assert!(flows.iter().all(|flow| flow["run"] == "d-itg 127.0.0.1:38948"), "{report:#}");
        let total = &report["total"];
        assert_eq!(
            (&total["flows"], &total["sent_packets"]),
            (&1.into(), &200.into()),
            "{total:#}"
        );
        assert_eq!((&total["lost"], &total["lost_basis"]), (&1.into(), &"sender_log".into()));
        assert_eq!(total["unmatched"], serde_json::json!({ "flows": 0, "packets": 0 }));
        // A run of seconds, not of 55 years.
        assert!(total["duration_ns"].as_u64().expect("a time") < 60_000_000_000, "{total:#}");
        assert!(total["bitrate_bps"].as_f64().expect("a rate") > 1_000.0, "{total:#}");
    }
}

#[test]
fn a_log_that_fits_flows_of_two_runs_says_which_one_it_is_taken_for() {
    let folder = tempfile::tempdir().expect("a folder");
    let send = path("udp-owdm-send.log");
    let monday = native_receiver("udp-owdm-send.log");
    fs::write(folder.path().join("r.itg"), &monday).expect("writable");
    let alone = decoded(folder.path(), &[&*send, "r.itg"]);
    assert!(!alone["flows"].to_string().contains("runs fit"), "{alone:#}");
    fs::write(
        folder.path().join("s.itg"),
        native_log("udp-owdm-send.log", "tuesday", 86_400_000_000_000),
    )
    .expect("writable");
    let report = decoded(folder.path(), &[&*send, "r.itg", "s.itg"]);
    assert!(report["flows"].to_string().contains("flows of 2 runs fit"), "{report:#}");
}
