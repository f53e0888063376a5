//! Facts that logs do not tell are not known: no plot, verdict, total, promise or comparison has a figure for them.
#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]

use std::fs;
use std::path::Path;
use std::process::Command;

use assert_cmd::cargo::cargo_bin;
use itg_core::flow::{FlowSpec, Meter};
use itg_record::{FlowEnd, ReceivedPacket, Record, SentPacket, Side};
use itg_testkit::child::said;
use itg_testkit::logs::{EPOCH, Setup, TestLog, end, spec};
use serde_json::Value;
use tempfile::TempDir;

const MS: u64 = 1_000_000;

/// Exit code, stdout, stderr.
fn decode(dir: &Path, args: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(cargo_bin("itg-decode"));
    let (code, out, err) = said(command.args(args).current_dir(dir));
    (code.unwrap(), out, err)
}

fn json(dir: &Path, args: &[&str]) -> Value {
    let (code, out, err) = decode(dir, &[args, &["--format", "json"]].concat());
    assert_eq!(code, 0, "{args:?}: {err}");
    serde_json::from_str(&out).unwrap()
}

/// A flow of a packet a millisecond.
fn flow(id: u32, packets: u64) -> FlowSpec {
    spec(id, "constant(1ms)", "constant(64)", packets)
}

fn sent(flow: u32, seq: u64) -> Record {
    let at = seq * MS;
    Record::sent(SentPacket { flow, seq, size: 64, planned_ns: at, sent_ns: EPOCH + at + 900 })
}

fn received(flow: u32, seq: u64) -> ReceivedPacket {
    let at = EPOCH + seq * MS + 900;
    let (sent_ns, arrived_ns, read_ns) = (at, at + 50_000, at + 50_700);
    ReceivedPacket { flow, seq, size: 64, sent_ns, arrived_ns, read_ns, ttl: 64, tos: 0 }
}

fn counted(index: u32, sent: Option<u64>, received: Option<u64>) -> FlowEnd {
    let skipped_packets = sent.map(|_| 0);
    let received_unique = received;
    FlowEnd {
        sent_packets: sent,
        skipped_packets,
        received_packets: received,
        received_unique,
        ..end(index)
    }
}

/// A sender's log of flows, each with its packets.
fn sender(flows: &[(&FlowSpec, Vec<u64>)]) -> Vec<u8> {
    let mut log = TestLog::new(Side::Sender, "a");
    for (index, (spec, seqs)) in (0..).zip(flows) {
        log.flow(index, spec, ["a", "a"]);
        log.records(seqs.iter().map(|seq| sent(index, *seq)));
        log.end_flow(counted(index, Some(seqs.len() as u64), None));
    }
    log.finish()
}

/// A receiver's log of one flow of so many packets that were sent.
fn receiver(spec: &FlowSpec, seqs: &[u64], was_sent: u64) -> Vec<u8> {
    let mut log = TestLog::new(Side::Receiver, "a");
    log.flow(0, spec, ["a", "a"]);
    log.records(seqs.iter().map(|seq| Record::received(received(0, *seq))));
    log.end_flow(counted(0, Some(was_sent), Some(seqs.len() as u64)));
    log.finish()
}

/// All packets arrived; the disk was full for some, or took all.
#[test]
fn packets_without_a_record_are_in_no_plot_of_losses() {
    for (written, shown) in [(1000_u64, false), (700, false), (1000, true)] {
        let dir = TempDir::new().unwrap();
        let arrived: u64 = if shown { 900 } else { 1000 };
        let seqs = (0..arrived).filter(|seq| written == 1000 || !(300..600).contains(seq));
        let unwritten = 1000 - written;
        let mut log = TestLog::new(Side::Receiver, "a");
        log.flow(0, &flow(1, 1000), ["a", "a"]);
        log.records(seqs.map(|seq| Record::received(received(0, seq))));
        log.end_flow(FlowEnd {
            log_lost_records: unwritten,
            ..counted(0, Some(1000), Some(arrived))
        });
        fs::write(dir.path().join("r.itg"), log.finish_lacking(unwritten)).unwrap();
        let args = ["r.itg", "--svg", "plots"];
        let (code, _, err) = decode(dir.path(), &args);
        assert_eq!(code, 0, "{err}");
        for name in ["total-loss.csv", "flow1-0-loss.csv", "flow1-0-raster.csv"] {
            let there = dir.path().join("plots").join(name).exists();
            let names: Vec<_> = fs::read_dir(dir.path().join("plots")).unwrap().collect();
            assert_eq!(there, shown, "{written} {name}: {names:?}");
        }
    }
}

#[test]
fn a_total_passes_only_when_all_flows_were_judged() {
    let dir = TempDir::new().unwrap();
    let (one, other) = (flow(1, 1000), flow(2, 1000));
    for (name, packets, verdict) in [("all.itg", 1000, "pass"), ("one.itg", 0, "unknown")] {
        let log = sender(&[(&one, (0..1000).collect()), (&other, (0..packets).collect())]);
        fs::write(dir.path().join(name), log).unwrap();
        let report = json(dir.path(), &[name]);
        let fidelity = &report["total"]["fidelity"];
        assert_eq!(fidelity["verdict"], verdict, "{fidelity:#}");
        let (code, _, err) = decode(dir.path(), &[name, "--fail-if", "total.fidelity != pass"]);
        assert_eq!(code, if verdict == "pass" { 0 } else { 98 }, "{err}");
        if verdict == "unknown" {
            assert!(fidelity["reasons"][0] == "1 of 2 flows could not be judged", "{fidelity:#}");
        }
    }
}

/// Packets left out are told with the end of a flow; a sender that was killed has only the holes.
#[test]
fn packets_that_a_killed_sender_left_out_are_judged() {
    let dir = TempDir::new().unwrap();
    let mut log = TestLog::new(Side::Sender, "a");
    log.flow(0, &flow(1, 1000), ["a", "a"]);
    log.records((0..1000).filter(|seq| !(300..350).contains(seq)).map(|seq| sent(0, seq)));
    fs::write(dir.path().join("s.itg"), log.killed()).unwrap();
    let fidelity = &json(dir.path(), &["s.itg"])["total"]["fidelity"];
    assert_eq!(fidelity["verdict"], "fail", "{fidelity:#}");
    assert!(fidelity["causes"].to_string().contains("dropped_packets"), "{fidelity:#}");
}

#[test]
fn a_total_has_no_sum_of_some_flows() {
    let dir = TempDir::new().unwrap();
    let (one, other) = (flow(1, 1000), flow(2, 1000));
    let all: Vec<u64> = (0..1000).collect();
    fs::write(dir.path().join("s.itg"), sender(&[(&one, all.clone()), (&other, all.clone())]))
        .unwrap();
    fs::write(dir.path().join("r.itg"), receiver(&one, &all[..500], 1000)).unwrap();
    let report = json(dir.path(), &["s.itg", "r.itg", "--interval", "100ms"]);
    let total = &report["total"];
    // What arrived of flow 2 is in no log.
    for figure in ["lost", "duplicated", "reordered", "goodput_bps"] {
        assert_eq!(total[figure], Value::Null, "{figure}: {total:#}");
    }
    assert_eq!(report["intervals"]["total"][0]["lost"], Value::Null, "{}", report["intervals"]);
    let (_, text, _) = decode(dir.path(), &["s.itg", "r.itg", "-v"]);
    assert!(text.contains("Bytes sent or received   = "), "{text}");
    let report = json(dir.path(), &["r.itg"]);
    assert_eq!(report["total"]["reordered"], 0);
    assert!(report["total"]["goodput_bps"].is_f64());
}

/// Figures of one flow: what was sent in one run, what arrived in the other.
#[test]
fn runs_that_are_seen_from_different_sides_are_compared_in_what_they_share() {
    for (meter, shares_loss) in [(Meter::Owd, true), (Meter::Rtt, false)] {
        let dir = TempDir::new().unwrap();
        let mut spec = flow(1, 4000);
        spec.meter = meter;
        let most: Vec<u64> = (0..4000).filter(|seq| seq % 5 != 0).collect();
        let mut own = TestLog::new(Side::Sender, "a");
        own.flow(0, &spec, ["a", "a"]);
        own.records((0..4000).map(|seq| sent(0, seq)));
        let end = counted(0, Some(4000), None);
        own.end_flow(FlowEnd { received_packets: Some(3200), received_unique: Some(3200), ..end });
        fs::write(dir.path().join("s.itg"), own.finish()).unwrap();
        fs::write(dir.path().join("r.itg"), receiver(&spec, &most, 4000)).unwrap();
        let (code, out, err) =
            decode(dir.path(), &["compare", "r.itg", "s.itg", "--format", "json"]);
        assert_eq!(code, 0, "{err}");
        let comparison: Value = serde_json::from_str(&out).unwrap();
        for pairing in [&comparison["flows"][0], &comparison["total"]] {
            for figure in pairing["figures"].as_array().unwrap() {
                let known = !figure["difference"].is_null();
                let metric = figure["metric"].as_str().unwrap();
                let same = metric == "lateness.p99" || metric == "loss" && shares_loss;
                assert!(!known || same, "{meter:?} {metric}: {figure:#}");
            }
        }
        let notices = comparison["notices"].to_string();
        assert!(notices.contains("seen by its receiver in A and by its sender in B"), "{notices}");
        let gate = ["compare", "r.itg", "s.itg", "--fail-if", "bitrate < -5%"];
        let (code, _, err) = decode(dir.path(), &gate);
        assert!(code == 99 && err.contains("cannot be judged"), "{code}: {err}");
    }
}

/// Half of the replies were lost: the promise is for what was sent.
#[test]
fn the_promise_of_a_host_is_for_the_packets_that_it_sent() {
    let dir = TempDir::new().unwrap();
    let settings =
        [("pacing", "hybrid"), ("promise", "500:100,1000:5000"), ("promise_pacing", "hybrid")];
    let mut log = TestLog::of(Setup { settings: &settings, ..Setup::new(Side::Sender, "a") });
    let mut spec = flow(1, 1001);
    spec.meter = Meter::Rtt;
    log.flow(0, &spec, ["a", "a"]);
    log.records((0..=1000).map(|seq| sent(0, seq)));
    let replies = (0..=1000).filter(|seq| seq % 2 == 0);
    log.records(replies.map(|seq| Record::echoed(received(0, seq))));
    log.end_flow(counted(0, Some(1001), None));
    fs::write(dir.path().join("s.itg"), log.finish()).unwrap();
    let promise = &json(dir.path(), &["s.itg"])["promises"][0];
    assert!((promise["rate_pps"].as_f64().unwrap() - 1000.0).abs() < 0.1, "{promise:#}");
}

/// A flow that was moved to a host whose clock was not compared with the receiver's.
#[test]
fn delays_of_a_flow_are_as_sure_as_those_of_its_least_sure_sender() {
    let dir = TempDir::new().unwrap();
    let spec = flow(1, 1000);
    for (other, kind) in [("b", "relative"), ("a", "absolute")] {
        let mut log = TestLog::new(Side::Receiver, "a");
        for (index, src, boot_id, seqs) in
            [(0, "10.0.0.1:4001", "a", 0..500), (1, "10.0.0.7:4007", other, 500..1000)]
        {
            log.flow_of(index, &spec, [boot_id, "a"], "c0ffee", src);
            log.records(seqs.map(|seq| Record::received(received(index, seq))));
            log.end_flow(counted(index, Some(500), Some(500)));
        }
        fs::write(dir.path().join("r.itg"), log.finish()).unwrap();
        let report = json(dir.path(), &["r.itg"]);
        assert_eq!(report["flows"][0]["delay_basis"]["kind"], kind, "{report:#}");
        assert_eq!(report["total"]["delay_basis"]["kind"], kind);
    }
}
