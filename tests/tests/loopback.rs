//! Real flows over loopback, and the logs of both sides joined.
#![allow(missing_docs, reason = "tests")]

use std::collections::BTreeMap;

use itg_tests::{Account, Receiver, accounts, in_parallel, json, lists, packets, send, temp_dir};
use serde_json::Value;

/// Packets of each flow.
const PACKETS: u64 = 400;

struct Case {
    listen: &'static str,
    proto: &'static str,
    meter: &'static str,
    flows: u32,
}

const fn case(v6: bool, proto: &'static str, meter: &'static str, flows: u32) -> Case {
    Case { listen: if v6 { "[::1]:0" } else { "127.0.0.1:0" }, proto, meter, flows }
}

#[test]
fn both_sides_agree_and_their_logs_join_without_a_leftover() {
    in_parallel(
        &[
            ("udp v4 owd", case(false, "udp", "owd", 1)),
            ("udp v4 owd, 8 flows", case(false, "udp", "owd", 8)),
            ("udp v4 rtt", case(false, "udp", "rtt", 1)),
            ("udp v6 owd", case(true, "udp", "owd", 1)),
            ("udp v6 rtt, 8 flows", case(true, "udp", "rtt", 8)),
            ("tcp v4 owd", case(false, "tcp", "owd", 1)),
            ("tcp v4 rtt, 8 flows", case(false, "tcp", "rtt", 8)),
            ("tcp v6 owd, 8 flows", case(true, "tcp", "owd", 8)),
            ("tcp v6 rtt", case(true, "tcp", "rtt", 1)),
        ],
        agree_and_join,
    );
}

fn agree_and_join(case: &Case) {
    let dir = temp_dir();
    let (ours, theirs) = (dir.path().join("send.itg"), dir.path().join("recv.itg"));
    let receiver = Receiver::listening(case.listen, &["--log".as_ref(), theirs.as_os_str()]);
    let at = receiver.at();
    let done = send(&[
        at.as_str(),
        "--proto",
        case.proto,
        "--meter",
        case.meter,
        "--flows",
        &case.flows.to_string(),
        "--packets",
        &PACKETS.to_string(),
        "--idt",
        if case.flows == 1 { "exp(2ms)" } else { "exp(4ms)" },
        "--size",
        "uniform(64,1400)",
        "--seed",
        "42",
        "--log",
        ours.to_str().expect("UTF-8"),
    ])
    .exits(0);
    let summary = receiver.stop();
    let all = PACKETS * u64::from(case.flows);
    assert!(
        summary.err.contains(&format!("served 1 senders, {all} packets received")),
        "{summary}"
    );

    let accounts = accounts(&done.out);
    assert_eq!(accounts.len(), case.flows as usize, "{done}");
    for account in &accounts {
        assert!(account.agreed && account.sent == PACKETS, "{}", account.line);
        let back = format!("{PACKETS} replies came back, 0 did not");
        assert_eq!(account.line.contains(&back), case.meter == "rtt", "{}", account.line);
    }

    // Every packet is in both logs, once, and with the same size.
    let joined = packets(&[&ours, &theirs]);
    for packet in &joined {
        let times = [packet.planned, packet.sent, packet.arrived, packet.read];
        assert!(times.iter().all(Option::is_some), "a leftover: {packet:?}");
        assert!(packet.read >= packet.arrived, "read before it arrived: {packet:?}");
    }
    let lists = lists(&joined);
    assert!(lists.keys().copied().eq(1..=case.flows), "{:?}", lists.keys());
    for (flow, list) in &lists {
        assert!(list.iter().map(|row| row.0).eq(0..PACKETS), "numbers of flow {flow}");
        assert!(list.is_sorted_by_key(|row| row.2), "planned times of flow {flow}");
        assert!(list.iter().all(|row| (64..=1400).contains(&row.1)), "sizes of flow {flow}");
        let bytes: u64 = list.iter().map(|row| row.1).sum();
        let account = &accounts[*flow as usize - 1];
        assert_eq!((account.flow, account.sent_bytes), (*flow, bytes), "{}", account.line);
    }
    let sizes = |log| -> BTreeMap<_, _> {
        packets(&[log]).iter().map(|packet| ((packet.flow, packet.seq), packet.size)).collect()
    };
    assert_eq!(sizes(&ours), sizes(&theirs));

    agree_in_the_report(case, &json(&[&ours, &theirs]), &accounts);
}

/// The report of both logs says what the accounts say.
fn agree_in_the_report(case: &Case, report: &Value, accounts: &[Account]) {
    numbers_are_numbers(report, "");
    has_the_keys_of_the_contract(report);
    assert_eq!(report["damage"], Value::Array(vec![]), "{}", report["damage"]);
    let counted = if case.meter == "rtt" { "sender" } else { "receiver" };
    let flows = report["flows"].as_array().expect("a list");
    for (number, account) in (1u32..).zip(accounts) {
        let flow = flows.iter().find(|flow| flow["flow"] == number && flow["side"] == counted);
        let flow = flow.unwrap_or_else(|| panic!("no flow {number} at the {counted}"));
        assert_eq!(flow["packets"], PACKETS, "flow {number}");
        assert_eq!(flow["bytes"], account.sent_bytes, "flow {number}");
        assert_eq!(flow["proto"], case.proto);
        assert_eq!(flow["meter"], case.meter);
        for key in ["lost", "duplicated"] {
            assert_eq!(flow[key], 0, "{key} of flow {number}");
        }
        assert_eq!(flow["delay_basis"]["kind"], "absolute");
        let port = |key: &str| {
            let address = flow[key].as_str().expect("an address");
            address.parse::<std::net::SocketAddr>().expect("with a port").port()
        };
        assert!(port("src") > 0 && port("dst") > 0, "{} {}", flow["src"], flow["dst"]);
    }
    assert_eq!(report["total"]["packets"], PACKETS * u64::from(case.flows));
    let bytes: u64 = accounts.iter().map(|account| account.sent_bytes).sum();
    assert_eq!(report["total"]["bytes"], bytes);
}

#[test]
fn replies_carry_the_marks_of_the_packets() {
    in_parallel(&[("udp v4", "127.0.0.1:0"), ("udp v6", "[::1]:0")], |listen| {
        let dir = temp_dir();
        let log = dir.path().join("send.itg");
        let receiver = Receiver::listening(listen, &[] as &[&str]);
        let marked = [
            "--dscp",
            "EF",
            "--ttl",
            "9",
            "--meter",
            "rtt",
            "--packets",
            "200",
            "--idt",
            "constant(1ms)",
        ];
        let done = send(
            &[&[receiver.at().as_str(), "--log", log.to_str().expect("UTF-8")], &marked[..]]
                .concat(),
        );
        drop(done.exits(0));
        drop(receiver.stop());
        let report = json(&[&log]);
        let marks = &report["flows"][0]["marks"];
        assert_eq!(
            (&marks["sent_dscp"], &marks["sent_hop_limit"]),
            (&46.into(), &9.into()),
            "{marks}"
        );
        let packets = report["flows"][0]["packets"].clone();
        assert_eq!(marks["dscp"], serde_json::json!({ "46": packets }), "{marks}");
        assert_eq!(marks["hop_limit"], serde_json::json!({ "9": packets }), "{marks}");
        assert_eq!(marks["ce_packets"], 0, "{marks}");
    });
}

/// Strings that would be NaN or infinite numbers in disguise do not exist.
fn numbers_are_numbers(value: &Value, path: &str) {
    match value {
        Value::Object(map) => {
            map.iter()
                .for_each(|(key, value)| numbers_are_numbers(value, &format!("{path}.{key}")));
        }
        Value::Array(list) => list.iter().for_each(|value| numbers_are_numbers(value, path)),
        Value::String(text) => {
            let text = text.to_lowercase();
            assert!(!["nan", "inf", "-inf", "infinity"].contains(&text.as_str()), "{path}: {text}");
        }
        Value::Number(number) => {
            assert!(number.as_f64().is_some_and(f64::is_finite), "{path}: {number}");
        }
        Value::Null | Value::Bool(_) => {}
    }
}

fn has_the_keys_of_the_contract(report: &Value) {
    assert_eq!(report["schema"], 1);
    assert!(report["manifest"].is_object() && report["total"].is_object());
    let number = ["packets", "bytes", "duration_ns", "bitrate_bps", "packet_rate_pps"];
    let order = ["lost", "duplicated", "reordered", "loss_bursts", "loss_burst_mean"];
    for flow in report["flows"].as_array().expect("a list") {
        for key in ["flow", "proto", "src", "dst", "side"].iter().chain(&number) {
            assert!(!flow[key].is_null(), "{key} of {flow}");
        }
        for key in
            order.iter().chain(&["delay_ns", "delay_basis", "jitter_ns", "lateness_ns", "fidelity"])
        {
            assert!(flow.get(key).is_some(), "{key} of {flow}");
        }
        // What the sender of a one-way flow cannot know is null there.
        if flow["side"] == "sender" && flow["meter"] == "owd" {
            continue;
        }
        for key in order {
            assert!(!flow[key].is_null(), "{key} of {flow}");
        }
        for (key, inner) in [
            ("delay_ns", &["min", "mean", "max", "stddev", "p50", "p90", "p99", "p999"][..]),
            ("delay_basis", &["kind", "uncertainty_ns"]),
            ("jitter_ns", &["mean", "rfc3550", "p99"]),
            ("lateness_ns", &["p50", "p99", "max"]),
            ("fidelity", &["verdict", "idt_ks", "size_ks"]),
        ] {
            for inner in inner {
                // How late a program reads a stream has no bound.
                let unbounded = flow["proto"] == "tcp" && *inner == "uncertainty_ns";
                assert_eq!(flow[key][inner].is_null(), unbounded, "{key}.{inner} of {flow}");
            }
        }
    }
}
