//! Losses of windows add up to the flow's: what the sender's kernel refused or the sender left out is no loss.
#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]

use std::fs;
use std::path::Path;
use std::process::Command;

use assert_cmd::cargo::cargo_bin;
use itg_core::flow::{FlowSpec, Meter};
use itg_record::{FlowEnd, Kind, ReceivedPacket, Record, SentPacket, Side};
use itg_testkit::child::said;
use itg_testkit::logs::{EPOCH, TestLog, end, spec};
use serde_json::{Value, json};
use tempfile::TempDir;

const MS: u64 = 1_000_000;
const PLANNED: u64 = 1000;

/// Three of ten packets are refused, all at the end of each ten.
fn refused(seq: u64) -> bool {
    seq % 10 >= 7
}

/// Of those that were sent, some in the middle and the last three do not arrive.
fn lost(seq: u64) -> bool {
    (420..431).contains(&seq) || seq >= 994
}

fn at(seq: u64) -> u64 {
    EPOCH + seq * MS
}

fn sent(seq: u64) -> Record {
    let (planned_ns, sent_ns) = (seq * MS, at(seq));
    Record::sent(SentPacket { flow: 0, seq, size: 64, planned_ns, sent_ns })
}

fn received(seq: u64, late_ns: u64) -> Record {
    let arrived_ns = at(seq) + 50_000 + late_ns;
    Record::received(ReceivedPacket {
        flow: 0,
        seq,
        size: 64,
        sent_ns: at(seq),
        arrived_ns,
        read_ns: arrived_ns + 700,
        ttl: 64,
        tos: 0,
    })
}

fn echoed(seq: u64) -> Record {
    Record { kind: Kind::Echoed, ..received(seq, 0) }
}

/// The ends of the flow at its sender and its receiver.
fn ends(lost: u64) -> [FlowEnd; 2] {
    let sent = PLANNED - (0..PLANNED).filter(|&seq| refused(seq)).count() as u64;
    let counted = FlowEnd {
        sent_packets: Some(sent),
        skipped_packets: Some(0),
        refused_packets: Some(PLANNED - sent),
        refused_by: [("EPERM".to_owned(), PLANNED - sent)].into(),
        ..end(0)
    };
    let received = Some(sent - lost);
    let arrived =
        FlowEnd { received_packets: received, received_unique: received, ..counted.clone() };
    [counted, arrived]
}

fn log(side: Side, spec: &FlowSpec, records: Vec<Record>, end: FlowEnd) -> Vec<u8> {
    let mut log = TestLog::new(side, "a");
    log.flow(0, spec, ["a", "a"]);
    log.records(records);
    log.end_flow(end);
    log.finish()
}

/// Writes both logs of a flow of which these packets are lost; one that arrives is late by two windows.
fn write(dir: &Path, is_lost: fn(u64) -> bool) {
    let flow = spec(1, "constant(1ms)", "constant(64)", PLANNED);
    let handed = || (0..PLANNED).filter(|&seq| !refused(seq));
    let [counted, arrived] = ends(handed().filter(|&seq| is_lost(seq)).count() as u64);
    let there = handed().filter(|&seq| !is_lost(seq));
    let late = |seq: u64| if seq == 205 { 230 * MS } else { 0 };
    let mut records: Vec<_> = there.map(|seq| received(seq, late(seq))).collect();
    records.sort_by_key(|record| record.b);
    fs::write(dir.join("s.itg"), log(Side::Sender, &flow, handed().map(sent).collect(), counted))
        .unwrap();
    fs::write(dir.join("r.itg"), log(Side::Receiver, &flow, records, arrived)).unwrap();
}

fn decode(dir: &Path, args: &[&str]) -> String {
    let mut command = Command::new(cargo_bin("itg-decode"));
    let (code, out, err) = said(command.args(args).args(["--interval", "100ms"]).current_dir(dir));
    assert_eq!(code, Some(0), "{args:?}: {err}");
    out
}

fn report(dir: &Path, logs: &[&str]) -> Value {
    serde_json::from_str(&decode(dir, &[logs, &["--format", "json"]].concat())).unwrap()
}

fn of_side<'a>(flows: &'a Value, side: &str) -> &'a Value {
    flows.as_array().unwrap().iter().find(|flow| flow["side"] == side).unwrap()
}

fn losses(windows: &Value) -> Vec<Value> {
    windows.as_array().unwrap().iter().map(|row| row["lost"].clone()).collect()
}

#[test]
fn what_was_refused_is_lost_in_no_window() {
    let dir = TempDir::new().unwrap();
    write(dir.path(), lost);
    let report = report(dir.path(), &["s.itg", "r.itg"]);
    let flow = of_side(&report["flows"], "receiver");
    assert_eq!((&flow["lost"], &flow["account"]["refused"]), (&11.into(), &300.into()), "{flow:#}");
    // 420 to 426 and 430, found missing when a later one came; 994 to 996 at the end.
    let want: Vec<Value> = [0, 0, 0, 0, 8, 0, 0, 0, 0, 3].map(Value::from).into();
    let course = of_side(&report["intervals"]["flows"], "receiver");
    assert_eq!(losses(&course["windows"]), want);
    assert_eq!(losses(&report["intervals"]["total"]), want);
    assert_eq!(course.get("lost_why"), None, "{course}");

    let csv = decode(dir.path(), &["s.itg", "r.itg", "--format", "csv"]);
    let rows = csv.split("\n\n").last().unwrap();
    let told = rows.lines().filter(|line| line.contains(",receiver,"));
    let last: Vec<_> = told.map(|line| line.rsplit(',').next().unwrap().to_owned()).collect();
    assert_eq!(last, want.iter().map(Value::to_string).collect::<Vec<_>>(), "{csv}");
}

#[test]
fn windows_do_not_guess_which_of_the_missing_numbers_were_sent() {
    let dir = TempDir::new().unwrap();
    write(dir.path(), lost);
    let one = report(dir.path(), &["r.itg"]);
    assert_eq!(one["flows"][0]["lost"], 11, "{one:#}");
    let course = &one["intervals"]["flows"][0];
    assert!(losses(&course["windows"]).iter().all(Value::is_null), "{course}");
    assert!(losses(&one["intervals"]["total"]).iter().all(Value::is_null), "{one}");
    let why = course["lost_why"].as_str().expect("a reason");
    assert!(why.contains("which of the missing"), "{why}");
    let text = decode(dir.path(), &["r.itg"]);
    assert!(text.contains(why), "{text}");

    // Where nothing was lost, no window has lost anything, whatever is missing.
    write(dir.path(), |_| false);
    for logs in [&["r.itg"][..], &["s.itg", "r.itg"]] {
        let none = report(dir.path(), logs);
        assert_eq!(none["total"]["lost"], 0, "{none:#}");
        assert_eq!(losses(&none["intervals"]["total"]), vec![json!(0); 10], "{logs:?}");
    }
}

#[test]
fn round_trips_have_windows_of_their_account() {
    let dir = TempDir::new().unwrap();
    let flow = spec(1, "constant(1ms)", "constant(64)", PLANNED).meter(Meter::Rtt);
    let handed = || (0..PLANNED).filter(|&seq| !refused(seq));
    let replies = handed().filter(|&seq| !lost(seq)).map(echoed);
    let records = handed().map(sent).chain(replies).collect();
    let [counted, arrived] = ends(5);
    fs::write(dir.path().join("s.itg"), log(Side::Sender, &flow, records, counted)).unwrap();
    // A receiver only sends them back: it counts them, and has none in its log.
    let receiver = log(Side::Receiver, &flow, Vec::new(), arrived);
    fs::write(dir.path().join("r.itg"), receiver).unwrap();
    let want: Vec<Value> = [0, 0, 0, 0, 8, 0, 0, 0, 0, 3].map(Value::from).into();
    for logs in [&["s.itg"][..], &["s.itg", "r.itg"]] {
        let report = report(dir.path(), logs);
        let flow = of_side(&report["flows"], "sender");
        assert_eq!(
            (&flow["lost"], &flow["account"]["arrived"]),
            (&11.into(), &689.into()),
            "{flow:#}"
        );
        assert_eq!(losses(&report["intervals"]["total"]), want, "{logs:?}");
    }
}

/// Of a flow of which nothing arrived there is no window that its losses belong to.
#[test]
fn losses_of_a_flow_that_never_arrived_have_no_time() {
    let dir = TempDir::new().unwrap();
    write(dir.path(), |_| true);
    let report = report(dir.path(), &["s.itg", "r.itg"]);
    assert_eq!(report["total"]["lost"], 700, "{report:#}");
    let course = &report["intervals"];
    assert!(losses(&course["total"]).iter().all(Value::is_null), "{course}");
    let why = of_side(&course["flows"], "receiver")["lost_why"].as_str().expect("a reason");
    assert!(why.contains("nothing arrived"), "{why}");
}
