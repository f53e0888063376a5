//! Accounts that add up: flows with several owners, more arrived than sent, senders that stood still, delays below 0,
//! and tables of packets that others compute with.
#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]

use std::fs;
use std::ops::Range;
use std::path::PathBuf;
use std::process::Command;

use assert_cmd::cargo::cargo_bin;
use itg_core::flow::FlowSpec;
#[cfg(feature = "parquet")]
use itg_record::{ClockProbe, Note};
use itg_record::{FlowEnd, ReceivedPacket, Record, SentPacket, Side};
use itg_testkit::child::said;
use itg_testkit::logs::{EPOCH, TestLog, end, spec};
use serde_json::Value;
use tempfile::TempDir;

const MS: u64 = 1_000_000;

struct Dir(TempDir);

impl Dir {
    fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        fs::write(self.path(name), bytes).unwrap();
    }

    /// Exit code, stdout, stderr.
    fn decode(&self, args: &[&str]) -> (i32, String, String) {
        let mut command = Command::new(cargo_bin("itg-decode"));
        let (code, out, err) = said(command.args(args).current_dir(self.0.path()));
        (code.unwrap(), out, err)
    }

    fn json(&self, logs: &[&str]) -> Value {
        let (code, out, err) = self.decode(&[logs, &["--format", "json"]].concat());
        assert_eq!(code, 0, "{logs:?}: {err}");
        serde_json::from_str(&out).unwrap()
    }
}

/// A flow of 2400 packets that two owners sent, one behind the other.
const ALL: u64 = 2400;
const HANDED_OVER: u64 = 1165;
const OWNERS: [(&str, Range<u64>); 2] =
    [("10.0.0.1:4001", 0..HANDED_OVER), ("10.0.0.7:4007", HANDED_OVER..ALL)];

/// A stretch in the time of the second owner is lost, and nothing else.
fn is_lost(seq: u64) -> bool {
    (1200..1250).contains(&seq)
}

fn moved() -> FlowSpec {
    spec(2, "constant(1ms)", "constant(64)", ALL)
}

fn sent(index: u32, seq: u64) -> Record {
    Record::sent(SentPacket {
        flow: index,
        seq,
        size: 64,
        planned_ns: seq * MS,
        sent_ns: EPOCH + seq * MS + 900,
    })
}

fn received(index: u32, seq: u64) -> Record {
    let at = EPOCH + seq * MS + 900;
    Record::received(ReceivedPacket {
        flow: index,
        seq,
        size: 64,
        sent_ns: at,
        arrived_ns: at + 50_000,
        read_ns: at + 50_700,
        ttl: 64,
        tos: 0,
    })
}

fn counted(index: u32, sent: Option<u64>, received: Option<u64>) -> FlowEnd {
    FlowEnd {
        sent_packets: sent,
        skipped_packets: sent.map(|_| 0),
        received_packets: received,
        ..end(index)
    }
}

/// The log of an owner, whole or of one that was killed when it had written so much of it.
fn owner(number: usize, killed: bool) -> Vec<u8> {
    let (src, seqs) = OWNERS[number].clone();
    let mut log = TestLog::with_id(10 + u32::try_from(number).unwrap(), Side::Sender, "a");
    log.flow_of(0, &moved(), ["a", "a"], "c0ffee", src);
    let count = seqs.end - seqs.start;
    if killed {
        log.records(seqs.take(800).map(|seq| sent(0, seq)));
        return log.killed();
    }
    log.records(seqs.map(|seq| sent(0, seq)));
    log.end_flow(counted(0, Some(count), None));
    log.finish()
}

/// The receiver's log, which has the flow once for each owner; of an owner that was killed it knows
/// no count.
fn receiver(first_was_killed: bool) -> Vec<u8> {
    let mut log = TestLog::new(Side::Receiver, "a");
    for (index, (src, seqs)) in (0..).zip(OWNERS) {
        log.flow_of(index, &moved(), ["a", "a"], "c0ffee", src);
        let arrived: Vec<u64> = seqs.clone().filter(|&seq| !is_lost(seq)).collect();
        log.records(arrived.iter().map(|&seq| received(index, seq)));
        let count = Some(seqs.end - seqs.start).filter(|_| index > 0 || !first_was_killed);
        log.end_flow(counted(index, count, Some(arrived.len() as u64)));
    }
    log.finish()
}

/// The entry that the total counts.
fn counting(report: &Value) -> &Value {
    &report["flows"][0]
}

#[test]
fn the_ends_of_all_owners_of_a_flow_are_summed() {
    let dir = Dir::new();
    dir.write("a.itg", &owner(0, false));
    dir.write("b.itg", &owner(1, false));
    dir.write("r.itg", &receiver(false));
    for (logs, basis) in [
        (vec!["a.itg", "b.itg", "r.itg"], "sender_log"),
        (vec!["r.itg", "b.itg", "a.itg"], "sender_log"),
        // The receiver has been told by each of them.
        (vec!["r.itg"], "sender_count"),
        (vec!["a.itg", "r.itg"], "sender_count"),
        (vec!["r.itg", "b.itg"], "sender_count"),
    ] {
        let report = dir.json(&logs);
        for metrics in [counting(&report), &report["total"]] {
            assert_eq!(metrics["sent_packets"], ALL, "{logs:?}: {metrics:#}");
            assert_eq!(metrics["packets"], ALL - 50, "{logs:?}");
            assert_eq!(metrics["lost"], 50, "{logs:?}");
            assert_eq!(metrics["lost_basis"], basis, "{logs:?}");
            assert_eq!(metrics["excess_packets"], 0, "{logs:?}");
        }
        let flow = counting(&report);
        let notices = flow["notices"].to_string();
        assert!(notices.contains("2 owners sent this flow: 10.0.0.1:4001 (1165 "), "{notices}");
        let end = flow["end"].as_str().unwrap();
        assert_eq!(end, "10.0.0.1:4001: all packets sent; 10.0.0.7:4007: all packets sent");
        assert_eq!(report["errors"].as_array().map(Vec::len), Some(0), "{report:#}");
        for (gate, code) in [("loss > 2%", 99), ("loss > 2.2%", 0), ("total.lost != 50", 0)] {
            let (got, _, err) = dir.decode(&[&logs[..], &["--fail-if", gate]].concat());
            assert_eq!(got, code, "{logs:?} {gate}: {err}");
        }
    }
    // The owners alone.
    let report = dir.json(&["a.itg", "b.itg"]);
    assert_eq!(counting(&report)["sent_packets"], ALL);
    assert_eq!(counting(&report)["lost"], Value::Null);
}

/// What an owner of which nothing arrived sent is no count of the flow.
#[test]
fn an_owner_of_which_nothing_arrived_has_sent() {
    let dir = Dir::new();
    dir.write("b.itg", &owner(1, false));
    let mut log = TestLog::new(Side::Receiver, "a");
    for (index, (src, seqs)) in (0_u32..).zip(OWNERS) {
        log.flow_of(index, &moved(), ["a", "a"], "c0ffee", src);
        let sent = seqs.end - seqs.start;
        let arrived = if index == 0 { sent } else { 0 };
        log.records(seqs.take(usize::try_from(arrived).unwrap()).map(|seq| received(index, seq)));
        log.end_flow(counted(index, Some(sent), Some(arrived)));
    }
    dir.write("r.itg", &log.finish());
    for logs in [vec!["b.itg", "r.itg"], vec!["r.itg"]] {
        let report = dir.json(&logs);
        let flow = counting(&report);
        let lost = ALL - HANDED_OVER;
        assert_eq!((&flow["sent_packets"], &flow["lost"]), (&ALL.into(), &lost.into()), "{logs:?}");
    }
}

#[test]
fn an_owner_that_did_not_tell_its_count_hides_no_loss() {
    let dir = Dir::new();
    dir.write("a.itg", &owner(0, true));
    dir.write("b.itg", &owner(1, false));
    dir.write("r.itg", &receiver(true));
    // With the log that breaks off, and without.
    for logs in [vec!["a.itg", "b.itg", "r.itg"], vec!["b.itg", "r.itg"], vec!["r.itg"]] {
        let report = dir.json(&logs);
        let flow = counting(&report);
        assert_eq!(flow["sent_packets"], Value::Null, "{logs:?}: {flow:#}");
        assert_eq!((&flow["lost"], &flow["lost_basis"]), (&Value::Null, &Value::Null));
        // What it left out is as unknown: a count of the others is none of the flow.
        let account = &flow["account"];
        assert_eq!((&flow["skipped_packets"], &account["left_out"]), (&Value::Null, &Value::Null));
        assert!(account["why"]["left_out"].is_string(), "{logs:?}: {account:#}");
        let notices = flow["notices"].to_string();
        let want = "how much each owner of this flow sent is not known, and so is the loss: up to the \
                    last arrival 50 packets are missing";
        assert!(notices.contains(want), "{notices}");
        let (code, _, err) = dir.decode(&[&logs[..], &["--fail-if", "loss > 2%"]].concat());
        assert_eq!(code, 99, "{logs:?}: {err}");
    }
}

#[test]
fn more_arrived_than_sent_is_an_error_and_no_gate_passes_by_it() {
    let dir = Dir::new();
    // The sender of the rest of the flow is not known at all.
    let mut log = TestLog::new(Side::Receiver, "a");
    log.flow(0, &moved(), ["a", "a"]);
    log.records((0..ALL).filter(|&seq| !is_lost(seq)).map(|seq| received(0, seq)));
    log.end_flow(counted(0, Some(HANDED_OVER), Some(ALL - 50)));
    dir.write("r.itg", &log.finish());
    dir.write("a.itg", &owner(0, false));
    // A sender that knows what the receiver counted.
    let mut log = TestLog::new(Side::Sender, "a");
    log.flow(0, &moved(), ["a", "a"]);
    log.records((0..HANDED_OVER).map(|seq| sent(0, seq)));
    log.end_flow(counted(0, Some(HANDED_OVER), Some(ALL - 50)));
    dir.write("s.itg", &log.finish());
    let beyond = ALL - 50 - HANDED_OVER;
    let words = format!("flow 2: more packets arrived than were sent: {HANDED_OVER} sent, 2350 ");
    for logs in [vec!["r.itg"], vec!["a.itg", "r.itg"], vec!["s.itg"]] {
        let report = dir.json(&logs);
        for metrics in [counting(&report), &report["total"]] {
            assert_eq!(metrics["excess_packets"], beyond, "{logs:?}: {metrics:#}");
            for key in ["lost", "lost_basis", "loss_bursts", "loss_burst_mean", "loss_model"] {
                assert_eq!(metrics[key], Value::Null, "{logs:?}: {key}");
            }
        }
        let error = report["errors"][0].as_str().unwrap();
        assert!(error.starts_with(&words), "{logs:?}: {error}");
        let (_, text, _) = dir.decode(&logs);
        assert!(text.contains(&format!("\nError: {words}")), "{logs:?}: {text}");
        assert!(text.contains("flow 2: more packets arrived than were sent"), "{logs:?}: {text}");
        let (code, _, _) = dir.decode(&[&logs[..], &["--html", "r.html"]].concat());
        let page = fs::read_to_string(dir.path("r.html")).unwrap();
        assert!(code == 0 && page.contains(&words), "{logs:?}");
        let (_, lines, _) = dir.decode(&[&logs[..], &["--format", "ndjson"]].concat());
        assert!(lines.lines().next().unwrap().contains(&words), "{logs:?}");
        for gate in ["loss > 1%", "lost > 0", "total.loss > 1%", "flow.2.loss_bursts > 9"] {
            let (code, _, err) = dir.decode(&[&logs[..], &["--fail-if", gate]].concat());
            assert!(
                code == 99 && err.contains("cannot be judged"),
                "{logs:?} {gate}: {code} {err}"
            );
        }
    }
}

/// A flow of 1000 packets of which 8 were lost and 5 came twice, at a receiver whose log has the first 310 of them.
const FULL: u64 = 1000;

fn on_full_disk(says_its_count: bool) -> Vec<u8> {
    let mut log = TestLog::new(Side::Receiver, "a");
    log.flow(0, &spec(2, "constant(1ms)", "constant(64)", FULL), ["a", "a"]);
    log.records((0..310).map(|seq| received(0, seq)));
    if says_its_count {
        log.end_flow(FlowEnd {
            received_unique: Some(FULL - 8),
            log_lost_records: FULL - 3 - 310,
            ..counted(0, Some(FULL), Some(FULL - 3))
        });
    }
    log.finish_lacking(FULL - 3 - 310)
}

fn its_sender(was_told: bool) -> Vec<u8> {
    let mut log = TestLog::new(Side::Sender, "a");
    log.flow(0, &spec(2, "constant(1ms)", "constant(64)", FULL), ["a", "a"]);
    log.records((0..FULL).map(|seq| sent(0, seq)));
    let end = counted(0, Some(FULL), None);
    log.end_flow(end.clone());
    if was_told {
        let (all, unique) = (Some(FULL - 3), Some(FULL - 8));
        log.end_flow(FlowEnd { received_packets: all, received_unique: unique, ..end });
    }
    log.finish()
}

#[test]
fn packets_that_could_not_be_logged_are_not_lost() {
    let dir = Dir::new();
    dir.write("s.itg", &its_sender(true));
    dir.write("untold.itg", &its_sender(false));
    dir.write("r.itg", &on_full_disk(true));
    dir.write("mute.itg", &on_full_disk(false));
    for logs in [
        vec!["s.itg"],
        vec!["r.itg"],
        vec!["s.itg", "r.itg"],
        vec!["untold.itg", "r.itg"],
        vec!["s.itg", "mute.itg"],
    ] {
        let report = dir.json(&logs);
        for metrics in [counting(&report), &report["total"]] {
            assert_eq!(metrics["lost"], 8, "{logs:?}: {metrics:#}");
            assert_eq!(metrics["lost_basis"], "receiver_count", "{logs:?}");
            assert_eq!(metrics["excess_packets"], 0, "{logs:?}");
            assert_eq!(metrics["loss_bursts"], Value::Null, "{logs:?}");
            assert_eq!(metrics["ledger"]["loss"]["network"], Value::Null, "{logs:?}");
        }
        assert_eq!(report["errors"].as_array().map(Vec::len), Some(0), "{report:#}");
        for (gate, code) in [("loss > 1%", 0), ("loss > 0.7%", 99), ("lost != 8", 0)] {
            let (got, _, err) = dir.decode(&[&logs[..], &["--fail-if", gate]].concat());
            assert_eq!(got, code, "{logs:?} {gate}: {err}");
        }
        let (_, text, _) = dir.decode(&logs);
        assert!(
            logs == ["s.itg"] || text.contains("687 packets arrived but are not in the log"),
            "{text}"
        );
    }
    let report = dir.json(&["s.itg"]);
    assert_eq!(counting(&report)["duplicated"], 5);
    // Nobody has counted what arrived.
    for logs in [vec!["mute.itg"], vec!["untold.itg", "mute.itg"], vec!["untold.itg"]] {
        let report = dir.json(&logs);
        assert_eq!(counting(&report)["lost"], Value::Null, "{logs:?}");
        assert_eq!(report["total"]["lost"], Value::Null, "{logs:?}");
        for gate in ["loss > 90%", "total.lost > 999"] {
            let (code, _, err) = dir.decode(&[&logs[..], &["--fail-if", gate]].concat());
            assert!(
                code == 99 && err.contains("cannot be judged"),
                "{logs:?} {gate}: {code} {err}"
            );
        }
    }
}

#[test]
fn a_receiver_that_was_killed_knows_no_loss_behind_its_last_record() {
    let dir = Dir::new();
    let mut log = TestLog::new(Side::Receiver, "a");
    log.flow(0, &spec(2, "constant(1ms)", "constant(64)", FULL), ["a", "a"]);
    log.records((0..310).map(|seq| received(0, seq)));
    dir.write("r.itg", &log.killed());
    for (name, was_told, lost) in
        [("s.itg", true, Value::from(8)), ("untold.itg", false, Value::Null)]
    {
        dir.write(name, &its_sender(was_told));
        assert_eq!(counting(&dir.json(&[name, "r.itg"]))["lost"], lost, "{name}");
    }
    let (code, _, err) = dir.decode(&["untold.itg", "r.itg", "--fail-if", "loss > 90%"]);
    assert!(code == 99 && err.contains("cannot be judged"), "{code} {err}");
    // Nor does its log alone.
    let flow = &dir.json(&["r.itg"])["flows"][0];
    assert_eq!((&flow["lost"], &flow["lost_basis"]), (&Value::Null, &Value::Null));
    let notices = flow["notices"].to_string();
    assert!(notices.contains("up to the last arrival 0 packets are missing"), "{notices}");
}

#[test]
fn an_account_that_its_own_log_contradicts_is_an_error() {
    let dir = Dir::new();
    for (name, side, end) in [
        ("r.itg", Side::Receiver, counted(0, Some(100), Some(90))),
        ("s.itg", Side::Sender, counted(0, Some(90), Some(90))),
    ] {
        let mut log = TestLog::new(side, "a");
        log.flow(0, &spec(2, "constant(1ms)", "constant(64)", 100), ["a", "a"]);
        log.records(
            (0..100).map(|seq| if name == "r.itg" { received(0, seq) } else { sent(0, seq) }),
        );
        log.end_flow(end);
        dir.write(name, &log.finish());
        let report = dir.json(&[name]);
        let side = if name == "r.itg" { "receiver" } else { "sender" };
        let words = format!(
            "flow 2: the {side}'s log has 100 packets, and its own account 90: the loss is not known"
        );
        assert_eq!(report["errors"], serde_json::json!([words]), "{name}");
        assert_eq!(counting(&report)["lost"], Value::Null, "{name}");
        let (_, text, _) = dir.decode(&[name]);
        assert!(text.contains(&format!("\nError: {words}")), "{name}: {text}");
        let (code, _, err) = dir.decode(&[name, "--fail-if", "loss > 50%"]);
        assert!(code == 99 && err.contains("cannot be judged"), "{name}: {code} {err}");
    }
}

#[test]
fn what_a_socket_dropped_of_others_makes_the_network_no_better() {
    let dir = Dir::new();
    let mut log = TestLog::new(Side::Receiver, "a");
    log.flow(0, &spec(2, "constant(1ms)", "constant(64)", 100), ["a", "a"]);
    log.records((2..100).map(|seq| received(0, seq)));
    log.end_flow(FlowEnd { socket_drops: Some(4), ..counted(0, Some(100), Some(98)) });
    dir.write("r.itg", &log.finish());
    let report = dir.json(&["r.itg"]);
    for metrics in [counting(&report), &report["total"]] {
        let split = &metrics["ledger"]["loss"];
        assert_eq!((&metrics["lost"], &split["socket"]), (&2.into(), &4.into()), "{metrics:#}");
        assert_eq!(split["network"], Value::Null, "{metrics:#}");
    }
}

/// A flow whose sender was moved: of its second part it is not known how many the socket dropped.
#[test]
fn drops_of_one_part_of_a_flow_are_not_those_of_all() {
    let dir = Dir::new();
    let mut log = TestLog::new(Side::Receiver, "a");
    for (index, seqs, drops) in [(0, 0..50, Some(0)), (1, 60..100, None)] {
        let spec = spec(1, "constant(1ms)", "constant(64)", 100);
        log.flow_of(index, &spec, ["a", "a"], "a", "10.0.0.1:4001");
        let count = seqs.end - seqs.start;
        log.records(seqs.map(|seq| received(index, seq)));
        log.end_flow(FlowEnd { socket_drops: drops, ..counted(index, Some(50), Some(count)) });
    }
    dir.write("r.itg", &log.finish());
    let report = dir.json(&["r.itg"]);
    for metrics in [counting(&report), &report["total"]] {
        let split = &metrics["ledger"]["loss"];
        assert_eq!(metrics["lost"], 10, "{metrics:#}");
        assert_eq!((&split["socket"], &split["network"]), (&Value::Null, &Value::Null));
    }
}

/// Flows of one socket, each told of its 4 drops: 2 of them lose 1 and 3 packets together, the last one 4 behind them.
#[test]
fn drops_at_a_socket_of_several_flows_are_counted_once_or_not_known() {
    let dir = Dir::new();
    let report = |name: &str, runs: [&str; 2], flows: &[(u32, Range<u64>, u64)]| {
        let mut log = TestLog::new(Side::Receiver, "a");
        for ((index, seqs, lost), run) in flows.iter().zip(runs) {
            let spec = spec(index + 1, "constant(1ms)", "constant(64)", 1000);
            log.flow_of(*index, &spec, ["a", "a"], run, "10.0.0.1:4001");
            let count = seqs.end - seqs.start;
            log.records(seqs.clone().map(|seq| received(*index, seq)));
            let end = counted(*index, Some(count + lost), Some(count));
            log.end_flow(FlowEnd { socket_drops: Some(4), ..end });
        }
        dir.write(name, &log.finish());
        dir.json(&[name])
    };
    let split = |metrics: &Value| {
        let split = &metrics["ledger"]["loss"];
        (metrics["lost"].clone(), split["socket"].clone(), split["network"].clone())
    };
    let null = Value::Null;
    let together = report("together.itg", ["a", "b"], &[(0, 0..100, 1), (1, 50..150, 3)]);
    assert_eq!(split(&together["total"]), (4.into(), null.clone(), null.clone()));
    for (flow, lost) in [(0, 1), (1, 3)] {
        assert_eq!(split(&together["flows"][flow]), (lost.into(), null.clone(), null.clone()));
    }
    let notices = together["flows"][0]["notices"].to_string();
    assert!(
        notices.contains(
            "4 packets were dropped by the kernel at the socket, of this flow or of others"
        )
    );
    // All flows of a run are opened before its start.
    let behind = report("behind.itg", ["a", "a"], &[(0, 0..100, 4), (1, 200..300, 5)]);
    assert_eq!(split(&behind["total"]), (9.into(), null.clone(), null));
    let apart = report("apart.itg", ["a", "b"], &[(0, 0..100, 4), (1, 200..300, 5)]);
    assert_eq!(split(&apart["total"]), (9.into(), 8.into(), 1.into()));
    assert_eq!(split(&apart["flows"][1]), (5.into(), 4.into(), 1.into()));
}

#[test]
fn packets_that_nobody_sent_are_an_error_even_where_counts_agree() {
    let dir = Dir::new();
    let spec = spec(3, "constant(1ms)", "constant(64)", 100);
    let mut sender = TestLog::new(Side::Sender, "a");
    sender.flow(0, &spec, ["a", "a"]);
    sender.records((0..100).map(|seq| sent(0, seq)));
    sender.end_flow(counted(0, Some(100), None));
    dir.write("s.itg", &sender.finish());
    let mut receiver = TestLog::new(Side::Receiver, "a");
    receiver.flow(0, &spec, ["a", "a"]);
    receiver.records((5..105).map(|seq| received(0, seq)));
    receiver.end_flow(counted(0, Some(100), Some(100)));
    dir.write("r.itg", &receiver.finish());
    let report = dir.json(&["s.itg", "r.itg"]);
    assert_eq!(
        (&counting(&report)["excess_packets"], &counting(&report)["lost"]),
        (&5.into(), &Value::Null)
    );
    let error = report["errors"][0].as_str().unwrap();
    assert!(
        error.starts_with("flow 3: 5 packets arrived that none of the logs of its senders has"),
        "{error}"
    );
}

/// A flow that stood still behind packet 500, and then sent what had been due at once; or left it out.
fn stalled(id: u32, length_ms: u64, leaves_out: bool) -> Vec<u8> {
    let mut log = TestLog::new(Side::Sender, "a");
    log.flow(0, &spec(id, "constant(1ms)", "constant(64)", 1000), ["a", "a"]);
    let until = 501 + length_ms;
    let at = |seq: u64| if (501..until).contains(&seq) { until * MS + seq } else { seq * MS };
    let left = (0..1000).filter(|seq| !leaves_out || !(501..until).contains(seq));
    let records: Vec<_> = left
        .map(|seq| {
            Record::sent(SentPacket {
                flow: 0,
                seq,
                size: 64,
                planned_ns: seq * MS,
                sent_ns: EPOCH + at(seq),
            })
        })
        .collect();
    let count = records.len() as u64;
    log.records(records);
    log.end_flow(counted(0, Some(count), None));
    log.finish()
}

#[test]
fn a_sender_that_stood_still_is_told_of() {
    let dir = Dir::new();
    for (name, length_ms, leaves_out, want) in [
        ("short", 99, false, None),
        ("long", 108, false, Some("the sender stood still for 108ms behind packet 500: 108 mean ")),
        (
            "out",
            120,
            true,
            Some("the sender's log has no packet for 121ms behind packet 500: 121 "),
        ),
    ] {
        dir.write(name, &stalled(4, length_ms, leaves_out));
        let (_, text, _) = dir.decode(&[name]);
        let report = dir.json(&[name]);
        let notices = counting(&report)["notices"].to_string();
        let total = report["notices"].to_string();
        drop(dir.decode(&[name, "--html", "r.html"]));
        let page = fs::read_to_string(dir.path("r.html")).unwrap().replace("&#39;", "'");
        match want {
            None => assert!(!text.contains("\nNote: the sender"), "{text}"),
            Some(want) => {
                assert!(text.contains(&format!(": {want}")), "{name}: {text}");
                assert!(notices.contains(want), "{name}: {notices}");
                assert!(page.contains(want), "{name}");
                assert!(total.contains("(flow 4)"), "{name}: {total}");
            }
        }
    }
}

/// Packets of a flow of a run, of which the clock of the receiver is behind.
fn behind(run: &str, id: u32, by_ns: u64) -> TestLog {
    let mut log = TestLog::with_id(id, Side::Receiver, "b");
    log.flow_of(0, &spec(1, "constant(1ms)", "constant(64)", 10), ["a", "b"], run, "10.0.0.1:4001");
    let at = |seq: u64| EPOCH + seq * MS;
    log.records((0..10).map(|seq| {
        Record::received(ReceivedPacket {
            flow: 0,
            seq,
            size: 64,
            sent_ns: at(seq),
            arrived_ns: at(seq) - by_ns - seq,
            read_ns: at(seq) - by_ns,
            ttl: 64,
            tos: 0,
        })
    }));
    log
}

#[test]
fn a_delay_below_0_is_never_printed_without_a_word() {
    let dir = Dir::new();
    dir.write("r.itg", &behind("c0ffee", 1, 5_000_000).finish());
    let want = "10 delays are below 0, the smallest -5000009ns: the clocks of sender and receiver disagree";
    let (_, text, _) = dir.decode(&["r.itg"]);
    assert!(text.contains(&format!(": {want}\n")), "{text}");
    let report = dir.json(&["r.itg"]);
    assert!(counting(&report)["notices"].to_string().contains(want), "{report:#}");
    let total = "delays are below 0 in 1 flow, the smallest -5000009ns (flow 1)";
    assert!(report["notices"].to_string().contains(total), "{report:#}");
    drop(dir.decode(&["r.itg", "--html", "r.html"]));
    let page = fs::read_to_string(dir.path("r.html")).unwrap();
    assert!(page.contains(want) && page.contains(total), "the page");
}

#[test]
fn packets_of_several_runs_say_which_run_they_are_of() {
    let dir = Dir::new();
    let runs = ["aaaa01", "bbbb02"];
    let logs: Vec<Vec<u8>> =
        runs.iter().zip(1..).map(|(run, id)| behind(run, id, 7 * MS).finish()).collect();
    dir.write("r.itg", &logs.concat());
    let (_, csv, err) = dir.decode(&["r.itg", "--packets", "--format", "csv"]);
    let mut lines = csv.lines();
    let head = "flow,seq,size_bytes,planned_ns,sent_ns,arrived_ns,read_ns,run";
    assert_eq!(lines.next(), Some(head), "{err}");
    let found: Vec<&str> = lines.map(|line| line.rsplit_once(',').unwrap().1).collect();
    assert_eq!(found, [[runs[0]; 10], [runs[1]; 10]].concat());
    let (_, lines, _) = dir.decode(&["r.itg", "--packets", "--format", "ndjson"]);
    let last: Value = serde_json::from_str(lines.lines().last().unwrap()).unwrap();
    assert_eq!(last["run"], runs[1]);
    let (_, text, _) = dir.decode(&["r.itg", "--packets"]);
    assert!(text.lines().nth(1).unwrap().ends_with(" aaaa01"), "{text}");
}

#[cfg(feature = "parquet")]
#[test]
fn numbers_in_parquet_are_signed_and_their_differences_are_too() {
    use parquet::basic::{LogicalType, Type};
    use parquet::file::reader::{FileReader as _, SerializedFileReader};
    use parquet::record::RowAccessor as _;

    let dir = Dir::new();
    dir.write("r.itg", &behind("c0ffee", 1, 5_000_000).finish());
    for args in [vec!["--packets"], vec!["--interval", "2ms"]] {
        let more = ["--format", "parquet", "-o", "t.parquet"];
        let (code, _, err) = dir.decode(&[&["r.itg"], &args[..], &more].concat());
        assert_eq!(code, 0, "{err}");
        let table = SerializedFileReader::new(fs::File::open(dir.path("t.parquet")).unwrap());
        let table = table.unwrap();
        let columns = table.metadata().file_metadata().schema_descr().columns();
        for column in columns {
            let signed = match column.physical_type() {
                // An integer without a logical type is signed.
                Type::INT64 => column.logical_type_ref().is_none(),
                Type::BYTE_ARRAY => column.logical_type_ref() == Some(&LogicalType::String),
                Type::DOUBLE | Type::BOOLEAN => true,
                _ => false,
            };
            assert!(signed, "{args:?}: {column:?}");
        }
        let at = |name: &str| columns.iter().position(|column| column.name() == name).unwrap();
        if args[0] == "--interval" {
            continue;
        }
        let rows: Vec<_> = table.get_row_iter(None).unwrap().map(Result::unwrap).collect();
        assert_eq!(rows.len(), 10);
        for (n, row) in rows.iter().enumerate() {
            let time = |name| row.get_long(at(name)).unwrap();
            let delay = time("arrived_ns") - time("sent_ns");
            assert_eq!(delay, -5_000_000 - i64::try_from(n).unwrap());
            assert_eq!(row.get_string(at("run")).unwrap(), "c0ffee");
        }
    }
}

/// The receiver's clock is 5 ms behind, and known to be so.
#[cfg(feature = "parquet")]
fn compared(run: &str) -> Vec<u8> {
    let mut log = behind(run, 1, 5 * MS - 50_000);
    for n in 0..20u64 {
        let sent = EPOCH + n * MS;
        let seen = sent + 40_000 - 5 * MS;
        log.note(&Note::Probe(ClockProbe {
            run: run.to_owned(),
            sender_boot_id: "a".to_owned(),
            receiver_boot_id: "b".to_owned(),
            sent_unix_ns: sent,
            sent_monotonic_ns: sent - EPOCH / 2,
            received_unix_ns: seen,
            replied_unix_ns: seen + 1_000,
            replied_monotonic_ns: seen + 1_000 - EPOCH / 2,
            arrived_unix_ns: sent + 81_000,
        }));
    }
    log.finish()
}

#[cfg(feature = "parquet")]
#[test]
fn packets_in_parquet_say_what_they_are_of_and_have_the_delays_of_the_report() {
    use parquet::file::reader::{FileReader as _, SerializedFileReader};
    use parquet::record::RowAccessor as _;

    let dir = Dir::new();
    dir.write("compared.itg", &compared("c0ffee"));
    dir.write("apart.itg", &behind("c0ffee", 1, 5 * MS - 50_000).finish());
    for (log, bound_is_known) in [("compared.itg", true), ("apart.itg", false)] {
        let flow = &dir.json(&[log])["flows"][0];
        let more = [log, "--packets", "--format", "parquet", "-o", "t.parquet"];
        assert_eq!(dir.decode(&more).0, 0);
        let file = fs::File::open(dir.path("t.parquet")).unwrap();
        let table = SerializedFileReader::new(file).unwrap();
        let metadata = table.metadata().file_metadata();
        let columns = metadata.schema_descr().columns();
        let metadata = metadata.key_value_metadata().unwrap();
        let of = |key: &str| {
            let found =
                metadata.iter().find(|pair| pair.key == key).unwrap_or_else(|| panic!("{key}"));
            found.value.clone().unwrap()
        };
        let bound = flow["clock"]["bound_ns"].as_u64();
        assert_eq!(bound.is_some(), bound_is_known, "{flow:#}");
        let told = ["itg.schema", "itg.run", "itg.seed"].map(of);
        assert_eq!(
            told,
            ["3".to_owned(), "[\"c0ffee\"]".to_owned(), format!("[{}]", flow["seed"])],
            "{log}"
        );
        match bound {
            // From the first packet sent to the last; the report dates them by their arrivals.
            Some(bound) => {
                let [told]: [u64; 1] = serde_json::from_str(&of("itg.clock_bound_ns")).unwrap();
                assert!(told.abs_diff(bound) < bound / 100, "{told} and {bound}");
            }
            None => assert_eq!(of("itg.clock_bound_ns"), "[null]"),
        }
        let names: Vec<_> = columns.iter().map(|column| column.name()).collect();
        assert_eq!(
            names.join(" "),
            "run node flow name proto src dst seq size_bytes planned_ns sent_ns arrived_ns read_ns delay_ns"
        );
        let at = |name: &str| names.iter().position(|column| *column == name).unwrap();
        let mut delays = Vec::new();
        for row in table.get_row_iter(None).unwrap().map(Result::unwrap) {
            for (name, want) in [
                ("name", "1"),
                ("proto", "udp"),
                ("src", "10.0.0.1:4001"),
                ("dst", "10.0.0.2:8999"),
            ] {
                assert_eq!(row.get_string(at(name)).unwrap(), want);
            }
            delays.push(row.get_long(at("delay_ns")).unwrap());
        }
        let told = ["min", "max"].map(|key| flow["delay_ns"][key].as_i64());
        assert_eq!(told, [delays.iter().min().copied(), delays.iter().max().copied()], "{log}");
        // Without a known offset they are negative, and stay so.
        assert_eq!(delays.iter().all(|&ns| ns < 0), !bound_is_known, "{log}: {delays:?}");
    }
}
