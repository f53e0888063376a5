//! The table and the JSON at the end of a run, from what the receiver measured: the figures of the decoder, which has
//! every packet.
#![allow(missing_docs, reason = "tests")]

use itg_tests::{Receiver, json, send, temp_dir};
use serde_json::Value;

/// Asserts that two figures differ by no more than a share of the second and some nanoseconds.
#[track_caller]
fn close(name: &str, measured: &Value, decoded: &Value, share: f64, ns: f64) {
    let number = |value: &Value| value.as_f64().unwrap_or_else(|| panic!("{name}: {value}"));
    let (measured, decoded) = (number(measured), number(decoded));
    let most = decoded.abs() * share + ns;
    assert!((measured - decoded).abs() <= most, "{name}: {measured} measured, {decoded} decoded");
}

/// Distance between the largest delay and the smallest, with a nanosecond to round.
fn spread_ns(delay: &Value) -> f64 {
    delay["max"].as_f64().expect("known") - delay["min"].as_f64().expect("known") + 1.0
}

/// Asserts that an entry made from measures says what the entry made from logs says.
#[track_caller]
fn agree(measured: &Value, decoded: &Value) {
    for key in [
        "flow",
        "proto",
        "side",
        "meter",
        "run",
        "packets",
        "bytes",
        "duration_ns",
        "bitrate_bps",
        "packet_rate_pps",
        "sent_packets",
        "lost",
        "duplicated",
        "reordered",
        "delay_basis",
        "negative_delays",
    ] {
        assert_eq!(measured[key], decoded[key], "{key}: {measured} {decoded}");
    }
    let (ours, theirs) = (&measured["delay_ns"], &decoded["delay_ns"]);
    assert_eq!((&ours["min"], &ours["max"]), (&theirs["min"], &theirs["max"]));
    close("mean", &ours["mean"], &theirs["mean"], 0.0, 1.0);
    close("stddev", &ours["stddev"], &theirs["stddev"], 1e-3, 2.0);
    // Percentiles are as fine as their distance from the base, which may be the first delay.
    for key in ["p50", "p90", "p99", "p999"] {
        close(key, &ours[key], &theirs[key], 0.01, 0.01 * spread_ns(theirs));
    }
    let (ours, theirs) = (&measured["jitter_ns"], &decoded["jitter_ns"]);
    close("jitter", &ours["mean"], &theirs["mean"], 0.0, 1.0);
    close("rfc3550", &ours["rfc3550"], &theirs["rfc3550"], 1e-6, 1.0);
    close("jitter p99", &ours["p99"], &theirs["p99"], 0.01, 1.0);
}

#[track_caller]
fn of_side<'a>(report: &'a Value, flow: u64, side: &str) -> &'a Value {
    let flows = report["flows"].as_array().expect("a list");
    let found = flows.iter().find(|entry| entry["flow"] == flow && entry["side"] == side);
    found.unwrap_or_else(|| panic!("flow {flow} of the {side} in {report}"))
}

#[test]
fn what_is_measured_is_what_the_logs_tell() {
    let flows: [(&[&str], &str, &[u64]); 4] = [
        (&["--idt", "exp(1ms)", "--packets", "3000", "--flows", "2"], "receiver", &[1, 2]),
        (&["--rate", "2000pps", "--burst", "8", "--packets", "4000"], "receiver", &[1]),
        (&["--proto", "tcp", "--idt", "exp(1ms)", "--packets", "2000"], "receiver", &[1]),
        (&["--meter", "rtt", "--idt", "exp(1ms)", "--packets", "2000"], "sender", &[1]),
    ];
    for (args, side, numbers) in flows {
        let dir = temp_dir();
        let log = |name: &str| dir.path().join(name).to_str().expect("UTF-8").to_owned();
        let (ours, theirs) = (log("send.itg"), log("recv.itg"));
        let receiver = Receiver::start(&["--json", "--log", &theirs]);
        let at = receiver.at();
        let own = [at.as_str(), "--json", "--size", "200", "--log", &ours];
        let done = send(&[&own, args].concat()).exits(0);
        let measured: Value = serde_json::from_str(&done.out).expect("one object");
        let received = receiver.stop();
        let decoded = json(&[&ours, &theirs]);
        for &number in numbers {
            let entry = of_side(&measured, number, side);
            agree(entry, of_side(&decoded, number, side));
            assert!(entry["fidelity"]["gap_ns"].is_number(), "judged by the sender's log: {entry}");
        }
        let total = &measured["total"];
        assert_eq!(total["flows"], numbers.len() as u64, "{total}");
        assert_eq!(total["packets"], decoded["total"]["packets"], "{total}");
        close(
            "total p99",
            &total["delay_ns"]["p99"],
            &decoded["total"]["delay_ns"]["p99"],
            0.01,
            0.01 * spread_ns(&decoded["total"]["delay_ns"]),
        );
        // The receiver tells the same of what arrived there.
        let told: Value = serde_json::from_str(&received.out).expect("one object a sender");
        for &number in numbers {
            agree(of_side(&told, number, "receiver"), of_side(&decoded, number, "receiver"));
        }
    }
}

#[test]
fn both_programs_end_with_a_table_and_with_what_is_wrong() {
    let receiver = Receiver::start::<&str>(&[]);
    let at = receiver.at();
    let run = ["--quiet", "--idt", "constant(1ms)", "--packets", "500"];
    let done = send(&[&[at.as_str()], &run[..]].concat()).exits(0);
    let lines: Vec<&str> = done.out.lines().collect();
    let head: Vec<&str> = lines[0].split_whitespace().collect();
    assert!(head.starts_with(&["flow"]) && head.ends_with(&["jitter", "fidelity"]), "{done}");
    let row: Vec<&str> = lines[1].split_whitespace().collect();
    assert!(row.contains(&"500") && row.contains(&"0") && row.ends_with(&["unknown"]), "{done}");
    assert!(!row.contains(&"-"), "every figure is known: {done}");
    assert!(lines[2].starts_with("Fidelity: not judged without the sender's log"), "{done}");
    assert_eq!(lines.len(), 3, "nothing is wrong: {done}");
    let told = receiver.stop().out;
    let lines: Vec<&str> = told.lines().collect();
    assert!(lines[0].starts_with("sender 127.0.0.1:"), "{told}");
    assert!(
        lines[1].split_whitespace().eq(head.into_iter().filter(|word| *word != "name")),
        "{told}"
    );
    assert!(lines[2].split_whitespace().any(|word| word == "500"), "{told}");
}
