//! A flow that was moved and came back to a node which it had left: that node's log is not the whole flow.
#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]

use std::fs;
use std::ops::Range;
use std::process::Command;

use assert_cmd::cargo::cargo_bin;
use itg_core::flow::FlowSpec;
use itg_record::{FlowEnd, ReceivedPacket, Record, SentPacket, Side};
use itg_testkit::child::said;
use itg_testkit::logs::{EPOCH, TestLog, end, spec};
use serde_json::Value;
use tempfile::TempDir;

const MS: u64 = 1_000_000;
const ALL: u64 = 2000;
/// Packets of the node before and behind those of the other one, which sends the middle.
const PARTS: [(&str, Range<u64>); 3] =
    [("10.0.0.1:4001", 0..500), ("10.0.0.7:4007", 500..1306), ("10.0.0.1:4002", 1306..ALL)];
/// The other node's clock is set wrong by this.
const AHEAD: u64 = 3_000 * MS;

fn flow() -> FlowSpec {
    spec(2, "constant(1ms)", "constant(64)", ALL)
}

fn sent(index: u32, seq: u64, ahead: u64) -> Record {
    let (planned_ns, sent_ns) = (seq * MS, EPOCH + seq * MS + 900 + ahead);
    Record::sent(SentPacket { flow: index, seq, size: 64, planned_ns, sent_ns })
}

/// The log of a sender with these parts, without packets of `absent`.
fn sender(id: u32, parts: &[usize], absent: Range<u64>) -> Vec<u8> {
    let mut log = TestLog::with_id(id, Side::Sender, "a");
    for (index, part) in (0..).zip(parts) {
        let (src, seqs) = PARTS[*part].clone();
        log.flow_of(index, &flow(), ["a", "a"], "c0ffee", src);
        let there: Vec<u64> = seqs.filter(|seq| !absent.contains(seq)).collect();
        log.records(there.iter().map(|&seq| sent(index, seq, 0)));
        let sent_packets = Some(there.len() as u64);
        log.end_flow(FlowEnd { sent_packets, skipped_packets: Some(0), ..end(index) });
    }
    log.finish()
}

/// The receiver's log: all that was sent, a connection for each part.
fn receiver(absent: &Range<u64>) -> Vec<u8> {
    let mut log = TestLog::new(Side::Receiver, "a");
    for (index, (src, seqs)) in (0..).zip(PARTS) {
        log.flow_of(index, &flow(), ["a", "a"], "c0ffee", src);
        let there: Vec<u64> = seqs.filter(|seq| !absent.contains(seq)).collect();
        log.records(there.iter().map(|&seq| {
            let at = EPOCH + seq * MS + 900;
            let (sent_ns, arrived_ns, read_ns) = (at, at + 50_000, at + 50_700);
            let (ttl, tos) = (64, 0);
            Record::received(ReceivedPacket {
                flow: index,
                seq,
                size: 64,
                sent_ns,
                arrived_ns,
                read_ns,
                ttl,
                tos,
            })
        }));
        let received_packets = Some(there.len() as u64);
        let sent_packets = received_packets;
        log.end_flow(FlowEnd { received_packets, sent_packets, ..end(index) });
    }
    log.finish()
}

/// The report of these logs.
fn report(dir: &TempDir, logs: &[&str]) -> Value {
    let mut command = Command::new(cargo_bin("itg-decode"));
    let args = [logs, &["--format", "json"]].concat();
    let (code, out, err) = said(command.args(args).current_dir(dir.path()));
    assert_eq!(code, Some(0), "{logs:?}: {err}");
    serde_json::from_str(&out).unwrap()
}

/// Notices that packets of the plan are not there.
fn absences(report: &Value) -> Vec<String> {
    let flows = report["flows"].as_array().unwrap().iter();
    let notices = flows.flat_map(|flow| flow["notices"].as_array().unwrap());
    let all = notices.chain(report["notices"].as_array().unwrap());
    let words = ["not there", "stood still", "no packet left"];
    let all = all.map(|notice| notice.as_str().unwrap().to_owned());
    all.filter(|notice| words.iter().any(|word| notice.contains(word))).collect()
}

#[test]
fn what_another_node_sent_meanwhile_is_no_pause_of_the_sender() {
    let dir = TempDir::new().unwrap();
    let write = |name: &str, bytes: Vec<u8>| fs::write(dir.path().join(name), bytes).unwrap();
    write("a.itg", sender(1, &[0, 2], 0..0));
    write("a1.itg", sender(2, &[0], 0..0));
    write("a2.itg", sender(3, &[2], 0..0));
    write("b.itg", sender(4, &[1], 0..0));
    write("r.itg", receiver(&(0..0)));
    for logs in [
        &["a.itg", "b.itg", "r.itg"][..],
        &["b.itg", "a.itg", "r.itg"],
        &["a1.itg", "a2.itg", "b.itg", "r.itg"],
        &["r.itg", "a2.itg", "b.itg", "a1.itg"],
        &["a.itg", "b.itg"],
        // The other node's log is not given.
        &["a.itg", "r.itg"],
        &["a1.itg", "a2.itg", "r.itg"],
        &["a.itg"],
    ] {
        let report = report(&dir, logs);
        assert_eq!(absences(&report), Vec::<String>::new(), "{logs:?}");
        let metrics = &report["flows"][0];
        assert_ne!(metrics["fidelity"]["verdict"], "fail", "{logs:?}: {metrics:#}");
        if logs.len() > 2 {
            assert_eq!(metrics["fidelity"]["verdict"], "pass", "{logs:?}: {metrics:#}");
            assert_eq!(metrics["sent_packets"], ALL, "{logs:?}");
        }
    }
}

#[test]
fn what_nobody_sent_between_two_stays_told() {
    let dir = TempDir::new().unwrap();
    let write = |name: &str, bytes: Vec<u8>| fs::write(dir.path().join(name), bytes).unwrap();
    let absent = 700..1400;
    write("a.itg", sender(1, &[0, 2], absent.clone()));
    write("b.itg", sender(4, &[1], absent.clone()));
    write("r.itg", receiver(&absent));
    for logs in [["a.itg", "b.itg", "r.itg"], ["r.itg", "b.itg", "a.itg"]] {
        let told = absences(&report(&dir, &logs));
        let want = "the sender's log has no packet for 701ms behind packet 699: 701 mean inter-departure \
                    times of 1ms, 700 packets of the plan are not there";
        assert!(told.iter().any(|notice| notice == want), "{logs:?}: {told:?}");
    }
}

/// A clock that is set wrong says nothing of the order in which two nodes sent.
#[test]
fn the_numbers_and_not_the_clocks_of_two_nodes_order_what_they_sent() {
    let dir = TempDir::new().unwrap();
    let mut log = TestLog::with_id(4, Side::Sender, "b");
    let (src, seqs) = PARTS[1].clone();
    log.flow_of(0, &flow(), ["b", "a"], "c0ffee", src);
    log.records(seqs.map(|seq| sent(0, seq, AHEAD)));
    log.end_flow(FlowEnd { sent_packets: Some(806), skipped_packets: Some(0), ..end(0) });
    fs::write(dir.path().join("b.itg"), log.finish()).unwrap();
    fs::write(dir.path().join("a.itg"), sender(1, &[0, 2], 0..0)).unwrap();
    for logs in [["a.itg", "b.itg"], ["b.itg", "a.itg"]] {
        let told = absences(&report(&dir, &logs));
        assert!(!told.iter().any(|notice| notice.contains("not there")), "{logs:?}: {told:?}");
    }
}

#[test]
fn flows_and_packets_of_one_side_are_two_counts() {
    let dir = TempDir::new().unwrap();
    let mut log = TestLog::new(Side::Sender, "a");
    log.flow(0, &spec(7, "constant(1ms)", "constant(64)", 50), ["a", "a"]);
    log.records((0..50).map(|seq| sent(0, seq, 0)));
    log.end_flow(FlowEnd { sent_packets: Some(50), skipped_packets: Some(0), ..end(0) });
    fs::write(dir.path().join("s.itg"), log.finish()).unwrap();
    fs::write(dir.path().join("r.itg"), receiver(&(0..0))).unwrap();
    let mut command = Command::new(cargo_bin("itg-decode"));
    let (code, out, err) = said(command.args(["s.itg", "r.itg"]).current_dir(dir.path()));
    assert_eq!(code, Some(0), "{err}");
    assert!(out.contains("flows with a log at one side only: 2\n"), "{out}");
    assert!(!out.contains("0 packets were found"), "{out}");
}
