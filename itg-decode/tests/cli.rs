//! The program as users run it: formats, joins, damage, exit codes.
#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use assert_cmd::cargo::cargo_bin;
use itg_record::{ReceivedPacket, Record, SentPacket, Side};
use itg_testkit::logs::{EPOCH, TestLog, blocks, compacted, interleave, run_of_two_flows, spec};
use serde_json::Value;
use tempfile::TempDir;

/// A directory with the logs of a run of two flows.
struct Dir(TempDir);

/// Result of a run of the program: exit code, stdout, stderr.
struct Run {
    code: Option<i32>,
    out: String,
    err: String,
}

impl Dir {
    fn new() -> Self {
        let dir = Self(TempDir::new().unwrap());
        let [sender, receiver] = run_of_two_flows();
        dir.write("send.itg", &sender);
        dir.write("recv.itg", &receiver);
        dir
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        fs::write(self.path(name), bytes).unwrap();
    }

    fn decode(&self, args: &[&str]) -> Run {
        let done = Command::new(cargo_bin("itg-decode"))
            .args(args)
            .current_dir(self.0.path())
            .output()
            .unwrap();
        Run {
            code: done.status.code(),
            out: String::from_utf8(done.stdout).unwrap(),
            err: String::from_utf8(done.stderr).unwrap(),
        }
    }

    fn json(&self, args: &[&str]) -> Value {
        let run = self.decode(&[args, &["--format", "json"]].concat());
        assert_eq!(run.code, Some(0), "{}", run.err);
        serde_json::from_str(&run.out).unwrap()
    }
}

#[test]
fn text_and_json_are_as_they_were() {
    let dir = Dir::new();
    for (name, args) in [
        ("summary_both", vec!["send.itg", "recv.itg"]),
        ("summary_receiver_intervals", vec!["recv.itg", "--interval", "200ms", "--flow", "1"]),
        ("summary_sender", vec!["send.itg", "--flow", "2"]),
        ("text_both", vec!["send.itg", "recv.itg", "--format", "itgdec"]),
        (
            "text_receiver_intervals",
            vec!["recv.itg", "--interval", "200ms", "--flow", "1", "--format", "itgdec"],
        ),
        ("text_sender", vec!["send.itg", "--flow", "2", "--format", "itgdec"]),
        ("json_both", vec!["recv.itg", "send.itg", "--format", "json"]),
        ("json_receiver", vec!["recv.itg", "--format", "json", "--flow", "2"]),
        ("csv_both", vec!["recv.itg", "send.itg", "--format", "csv"]),
        ("csv_intervals", vec!["recv.itg", "--format", "csv", "--interval", "200ms"]),
        ("ndjson_both", vec!["recv.itg", "send.itg", "--format", "ndjson", "--interval", "500ms"]),
    ] {
        let run = dir.decode(&args);
        assert_eq!(run.code, Some(0), "{name}: {}", run.err);
        insta::assert_snapshot!(name, run.out);
    }
}

#[test]
fn json_has_the_keys_of_the_contract() {
    let report = Dir::new().json(&["recv.itg", "send.itg"]);
    assert_eq!(report["schema"], 1);
    assert!(report["manifest"].is_object() && report["total"].is_object());
    let flow = &report["flows"][0];
    for key in [
        "flow",
        "proto",
        "src",
        "dst",
        "side",
        "packets",
        "bytes",
        "duration_ns",
        "bitrate_bps",
        "packet_rate_pps",
        "lost",
        "duplicated",
        "reordered",
        "loss_bursts",
        "loss_burst_mean",
    ] {
        assert!(!flow[key].is_null(), "{key} is missing");
    }
    for (object, keys) in [
        ("delay_ns", vec!["min", "mean", "max", "stddev", "p50", "p90", "p99", "p999"]),
        ("delay_basis", vec!["kind", "uncertainty_ns"]),
        ("jitter_ns", vec!["mean", "rfc3550", "p99"]),
        ("lateness_ns", vec!["p50", "p99", "max"]),
        ("fidelity", vec!["verdict", "idt_ks", "size_ks"]),
    ] {
        for key in keys {
            assert!(!flow[object][key].is_null(), "{object}.{key} is missing");
        }
    }
    assert_eq!((&flow["side"], &flow["lost"]), (&"receiver".into(), &10.into()));
    assert_eq!(flow["fidelity"]["verdict"], "pass");
}

#[test]
fn packets_are_joined_sorted_and_empty_where_unknown() {
    let dir = Dir::new();
    let lines = |args: &[&str]| -> Vec<Vec<String>> {
        let run = dir.decode(&[args, &["--packets", "--format", "csv"]].concat());
        assert_eq!(run.code, Some(0), "{}", run.err);
        let mut lines = run.out.lines();
        let head = "flow,seq,size_bytes,planned_ns,sent_ns,arrived_ns,read_ns";
        assert_eq!(lines.next(), Some(head), "one run needs no column for it");
        lines.map(|line| line.split(',').map(str::to_owned).collect()).collect()
    };
    let both = lines(&["recv.itg", "send.itg"]);
    let duplicates = (0..70).filter(|k| k % 7 != 3 && k % 10 == 0).count();
    assert_eq!(both.len(), 70 + duplicates + 90);
    let key =
        |line: &Vec<String>| (line[0].parse::<u32>().unwrap(), line[1].parse::<u64>().unwrap());
    assert!(both.is_sorted_by_key(key));
    let lost = both.iter().find(|line| key(line) == (1, 3)).unwrap();
    assert_eq!(&lost[2..], ["100", "30000000", &(EPOCH + 30_001_111).to_string(), "", ""]);
    assert!(both.iter().filter(|l| key(l) != (1, 3) && l[6].is_empty()).count() == 9);
    let alone = lines(&["recv.itg", "--flow", "2"]);
    assert_eq!(alone.len(), 90);
    assert!(alone.iter().all(|line| line[3].is_empty() && !line[4].is_empty()));
    let sent = lines(&["send.itg", "--flow", "2", "--flow", "1"]);
    assert_eq!(sent.len(), 160);
    assert!(sent.iter().all(|line| !line[3].is_empty() && line[5].is_empty()));

    let ndjson = dir.decode(&["send.itg", "--packets", "--format", "ndjson"]).out;
    let first: Value = serde_json::from_str(ndjson.lines().next().unwrap()).unwrap();
    assert_eq!((&first["planned_ns"], &first["read_ns"]), (&0.into(), &Value::Null));
    let json: Value =
        serde_json::from_str(&dir.decode(&["send.itg", "--packets", "--format", "json"]).out)
            .unwrap();
    assert_eq!(json.as_array().unwrap().len(), 160);
    let text = dir.decode(&["send.itg", "--packets"]).out;
    assert_eq!(text.lines().count(), 161);
    // Columns are as wide as their heads; behind them stands the run.
    let width = |line: &str| line.rfind(' ').unwrap();
    assert!(text.lines().all(|line| width(line) == width(text.lines().next().unwrap())));
}

#[test]
fn round_trips_are_counted_at_the_sender() {
    let dir = Dir::new();
    let mut spec = spec(4, "constant(1ms)", "constant(64)", 5);
    spec.meter = itg_core::flow::Meter::Rtt;
    let mut log = TestLog::new(Side::Sender, "boot-a");
    log.flow(0, &spec, ["boot-a", "boot-b"]);
    let sent = |k: u64| EPOCH + k * 1_000_000;
    log.records((0..5).map(|k| {
        Record::sent(SentPacket {
            flow: 0,
            seq: k,
            size: 64,
            planned_ns: k * 1_000_000,
            sent_ns: sent(k),
        })
    }));
    log.records((0..4).map(|k| {
        Record::echoed(ReceivedPacket {
            flow: 0,
            seq: k,
            size: 64,
            sent_ns: sent(k),
            arrived_ns: sent(k) + 250_000,
            read_ns: sent(k) + 250_500,
            ttl: 64,
            tos: 0,
        })
    }));
    dir.write("rtt.itg", &log.finish());
    let report = dir.json(&["rtt.itg"]);
    let flow = &report["flows"][0];
    assert_eq!(
        (&flow["packets"], &flow["lost"], &flow["side"]),
        (&4.into(), &1.into(), &"sender".into())
    );
    assert_eq!(flow["delay_ns"]["p50"], 250_000);
    assert_eq!(
        flow["delay_basis"],
        serde_json::json!({"kind": "absolute", "uncertainty_ns": 1000})
    );
    let mixed = dir.json(&["rtt.itg", "recv.itg"]);
    assert!(mixed["total"]["delay_ns"].is_null());
    assert!(mixed["notices"].to_string().contains("some flows measure one way"));
}

#[test]
fn damage_is_accounted_for_and_the_rest_is_decoded() {
    let dir = Dir::new();
    let receiver = fs::read(dir.path("recv.itg")).unwrap();
    let mut flipped = receiver.clone();
    let middle = flipped.len() / 2;
    flipped[middle] ^= 4;
    dir.write("flipped.itg", &flipped);
    let mut small = compacted(&receiver);
    let middle = small.len() / 2;
    small[middle] ^= 4;
    dir.write("small.itg", &small);
    // Cut off, and not at the end of the file.
    dir.write("torn.itg", &[&receiver[..receiver.len() - 100], &receiver].concat());
    for name in ["flipped.itg", "small.itg", "torn.itg"] {
        let run = dir.decode(&[name, "--format", "json"]);
        assert_eq!(run.code, Some(1), "{name}: {}", run.err);
        assert!(
            run.err.contains(&format!("{name}: ")) && run.err.contains(" bytes at byte "),
            "{}",
            run.err
        );
        let report: Value = serde_json::from_str(&run.out).unwrap();
        assert_eq!(report["flows"].as_array().unwrap().len(), 2);
        let damage = &report["damage"][0];
        assert!(damage["len"].as_u64().unwrap() > 0 && damage["log"] == name, "{damage}");
        assert!(report["notices"].to_string().contains("a log is damaged"));
        let text = dir.decode(&[name]);
        assert_eq!(text.code, Some(1));
        assert!(text.out.contains("Damage: "), "{}", text.out);
    }
}

#[test]
fn a_log_that_is_not_closed_is_decoded_with_a_note() {
    let dir = Dir::new();
    let receiver = fs::read(dir.path("recv.itg")).unwrap();
    let last = blocks(&receiver).last().unwrap().len();
    let whole = dir.json(&["recv.itg"]);
    let unfinished = "bytes at byte ";
    for (name, cut, torn) in
        [("whole-blocks.itg", last, false), ("half-a-block.itg", last / 2, true)]
    {
        dir.write(name, &receiver[..receiver.len() - cut]);
        let run = dir.decode(&[name, "--format", "json"]);
        assert_eq!(run.code, Some(0), "{name}: {}", run.err);
        let note = "log 2 is not closed: it has no end note after block ";
        assert!(
            run.err.contains(note) && run.err.contains("or its writer was killed"),
            "{}",
            run.err
        );
        assert_eq!(run.err.contains(unfinished), torn, "{}", run.err);
        let report: Value = serde_json::from_str(&run.out).unwrap();
        assert_eq!((&report["flows"], &report["total"]), (&whole["flows"], &whole["total"]));
        assert_eq!(report["damage"], Value::Array(vec![]));
        assert_eq!(report["manifest"]["logs"][0]["complete"], false);
        assert!(report["notices"].to_string().contains(note));
        let text = dir.decode(&[name, "-q"]);
        assert_eq!((text.code, text.err.as_str()), (Some(0), ""), "{}", text.err);
        assert!(text.out.contains(&format!("Note: {name}: ")), "{}", text.out);
    }
    // While it grows, it is read at any time.
    let mut packets = 0;
    for len in (0..=receiver.len()).step_by(701) {
        dir.write("live.itg", &receiver[..len]);
        let run = dir.decode(&["live.itg", "--packets", "--format", "csv"]);
        assert_eq!(run.code, Some(i32::from(len < blocks(&receiver)[0].len())), "{}", run.err);
        let lines = run.out.lines().count();
        assert!(lines >= packets, "{lines} lines of {len} bytes, {packets} before");
        packets = lines;
    }
    assert!(packets > 100);
}

#[test]
fn compacted_logs_and_logs_in_one_file_give_the_same_report() {
    let dir = Dir::new();
    let [sender, receiver] = ["send.itg", "recv.itg"].map(|name| fs::read(dir.path(name)).unwrap());
    let forms: [&[&str]; 4] = [
        &["--format", "json"],
        &["--format", "csv", "--interval", "100ms"],
        &["--packets", "--format", "csv"],
        &[],
    ];
    let want = forms.map(|form| dir.decode(&[&["send.itg", "recv.itg"], form].concat()));
    dir.write("send.itg", &compacted(&sender));
    dir.write("recv.itg", &compacted(&receiver));
    dir.write("server.itg", &interleave(&[&sender, &receiver]));
    for (form, want) in forms.iter().zip(want) {
        let got = dir.decode(&[&["send.itg", "recv.itg"], *form].concat());
        assert_eq!((got.code, &got.out), (Some(0), &want.out), "{}", got.err);
        let got = dir.decode(&[&["server.itg"], *form].concat());
        let unnamed = want.out.replace("send.itg", "server.itg").replace("recv.itg", "server.itg");
        assert_eq!((got.code, got.out), (Some(0), unnamed), "{}", got.err);
    }
}

#[test]
fn what_is_no_log_gets_one_sentence() {
    let dir = Dir::new();
    dir.write("empty.itg", b"");
    dir.write("notes.txt", b"These are my notes about the experiment of last week.\n");
    dir.write("copy.itg", &fs::read(dir.path("recv.itg")).unwrap());
    for (args, code, sentence) in [
        (vec!["empty.itg"], 1, "empty.itg: the file is empty: expected a log of ITG"),
        (vec!["notes.txt"], 1, "notes.txt: not a log of ITG: no good block in 54 bytes ("),
        (vec!["absent.itg"], 1, "absent.itg: cannot be read: No such file or directory"),
        (vec!["recv.itg", "copy.itg"], 1, "copy.itg: the same log as recv.itg: give each log once"),
        (vec!["recv.itg", "--interval", "0"], 2, "a window needs a length above 0"),
        (vec!["recv.itg", "--interval", "5"], 2, "--interval"),
        (vec!["recv.itg", "--packets", "--interval", "1s"], 2, "cannot be used with"),
        (
            vec!["recv.itg", "--format", "xml"],
            2,
            "[possible values: text, itgdec, markdown, json, ndjson, csv, parquet, octave, flent, ditg]",
        ),
        (vec!["recv.itg", "--output", "no/such/dir"], 1, "no/such/dir: cannot be written"),
        (vec![], 2, "LOG"),
    ] {
        let run = dir.decode(&args);
        assert_eq!(run.code, Some(code), "{args:?}: {}", run.err);
        assert!(run.err.contains(sentence), "{args:?}: {}", run.err);
    }
    // One that differs behind its start alone is no copy.
    let mut other = fs::read(dir.path("recv.itg")).unwrap();
    *other.last_mut().unwrap() ^= 1;
    dir.write("other.itg", &other);
    let run = dir.decode(&["recv.itg", "other.itg"]);
    assert!(other.len() > 4096 && !run.err.contains("the same log"), "{}", run.err);
    // What is good beside it is decoded all the same.
    let run = dir.decode(&["empty.itg", "recv.itg", "--format", "json"]);
    let report: Value = serde_json::from_str(&run.out).unwrap();
    assert_eq!((run.code, report["flows"].as_array().unwrap().len()), (Some(1), 2));
}

#[test]
fn words_go_to_stderr_and_quiet_means_quiet() {
    let dir = Dir::new();
    let run = dir.decode(&["recv.itg", "--interval", "1s", "--flow", "2"]);
    assert!(
        run.err
            .contains("format=text interval=1s packets=false flows=2 output=stdout log=recv.itg"),
        "{}",
        run.err
    );
    let quiet = dir.decode(&["recv.itg", "-q", "--output", "out.json", "--format", "json"]);
    assert_eq!((quiet.code, quiet.out.as_str(), quiet.err.as_str()), (Some(0), "", ""));
    let report: Value = serde_json::from_slice(&fs::read(dir.path("out.json")).unwrap()).unwrap();
    assert_eq!(report["total"]["flows"], 2);
    let none = dir.decode(&["recv.itg", "--flow", "77"]);
    assert_eq!(none.code, Some(0));
    assert!(none.err.contains("no flow to show"), "{}", none.err);
}

#[test]
fn a_reader_that_leaves_ends_the_program_quietly() {
    let dir = Dir::new();
    let mut log = TestLog::new(Side::Sender, "boot-a");
    log.flow(0, &spec(1, "constant(1us)", "constant(64)", 100_000), ["boot-a", "boot-a"]);
    log.records((0..100_000).map(|k| {
        Record::sent(SentPacket {
            flow: 0,
            seq: k,
            size: 64,
            planned_ns: k * 1_000,
            sent_ns: EPOCH + k * 1_000,
        })
    }));
    dir.write("long.itg", &log.finish());
    for format in ["csv", "text", "json", "ndjson"] {
        let mut child = Command::new(cargo_bin("itg-decode"))
            .args(["long.itg", "--packets", "-q", "--format", format])
            .current_dir(dir.0.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut first = vec![0; 64];
        let mut reader = BufReader::with_capacity(64, child.stdout.take().unwrap());
        first.truncate(reader.fill_buf().unwrap().len());
        drop(reader);
        let done = child.wait_with_output().unwrap();
        assert_eq!(done.status.code(), Some(0), "{format}");
        assert!(done.stderr.is_empty(), "{format}: {}", String::from_utf8_lossy(&done.stderr));
    }
}
