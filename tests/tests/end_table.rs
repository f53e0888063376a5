//! The table and the JSON at the end of a run, from what the receiver measured: the figures of the decoder, which has
//! every packet.
#![allow(missing_docs, reason = "tests")]

use std::fs;
use std::time::Duration;

use itg_tests::{LogServer, Receiver, decode, free_port, json, send, temp_dir, wait_for};
use nix::sys::signal::Signal;
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
        "src",
        "dst",
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
fn a_reverse_flow_comes_from_where_its_packets_come_from() {
    for proto in ["udp", "tcp"] {
        let dir = temp_dir();
        let log = dir.path().join("here.itg").to_str().expect("UTF-8").to_owned();
        let receiver = Receiver::start(&["--allow-reverse"]);
        let at = receiver.at();
        let run = [&at, "--reverse", "--json", "--proto", proto, "--packets", "100", "--log", &log];
        let measured: Value = serde_json::from_str(&send(&run).exits(0).out).expect("one object");
        let (here, there) = (of_side(&measured, 1, "receiver"), json(&[&log]));
        let decoded = of_side(&there, 1, "receiver");
        for end in ["src", "dst"] {
            assert_eq!(here[end], decoded[end], "{proto}: {here}");
        }
        assert_ne!(here["src"].as_str(), Some(at.as_str()), "{proto}: the port of the signalling");
    }
}

#[test]
fn both_programs_end_with_a_table_and_with_what_is_wrong() {
    let receiver = Receiver::start::<&str>(&[]);
    let at = receiver.at();
    let run = ["--quiet", "--idt", "constant(1ms)", "--packets", "1000"];
    let done = send(&[&[at.as_str()], &run[..]].concat()).exits(0);
    // A busy machine may have stalled it.
    let lines = done.out.lines().filter(|line| !line.contains("the sender was up to "));
    let lines: Vec<&str> = lines.collect();
    let head: Vec<&str> = lines[0].split_whitespace().collect();
    assert!(head.starts_with(&["flow"]) && head.ends_with(&["jitter", "fidelity"]), "{done}");
    let row: Vec<&str> = lines[1].split_whitespace().collect();
    assert!(row.contains(&"1000") && row.contains(&"0") && row.ends_with(&["unknown"]), "{done}");
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
    assert!(lines[2].split_whitespace().any(|word| word == "1000"), "{told}");
}

/// Time that a program may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// The number in front of a word.
#[track_caller]
fn number_before(text: &str, word: &str) -> u64 {
    let (before, _) = text.rsplit_once(word).unwrap_or_else(|| panic!("no {word:?} in {text}"));
    let digits = before.rsplit(' ').next().and_then(|digits| digits.parse().ok());
    digits.unwrap_or_else(|| panic!("no number before {word:?} in {text}"))
}

/// A flow whose sender is killed, or whose receiver is ended, is told of with all that had arrived.
#[test]
fn a_flow_that_is_cut_short_keeps_its_figures() {
    for (proto, kills, form) in [
        ("udp", true, "--json"),
        ("udp", true, "--once"),
        ("udp", false, "--once"),
        ("tcp", false, "--json"),
        ("tcp", false, "--once"),
    ] {
        let dir = temp_dir();
        let log = dir.path().join("recv.itg");
        let receiver = Receiver::start(&["-v", form, "--log", log.to_str().expect("UTF-8")]);
        let flow = ["--proto", proto, "--idt", "constant(1ms)", "--duration", "90s"];
        let running = receiver.begin(&flow);
        let written = || fs::metadata(&log).is_ok_and(|kind| kind.len() > 20_000);
        wait_for("hundreds of records", PATIENCE, written);
        let done = if kills {
            running.signal(Signal::SIGKILL);
            if form == "--once" {
                receiver.running.finish(PATIENCE).exits(0)
            } else {
                drop(receiver.running.line_with("connection to the sender is gone", PATIENCE));
                receiver.stop()
            }
        } else {
            receiver.stop()
        };
        drop(running);
        let records = number_before(&done.err, " records");
        assert!(records > 400, "{proto}: {done}");
        assert_eq!(number_before(&done.err, " packets received"), records, "{proto}: {done}");
        if proto == "tcp" {
            assert!(!done.err.contains("foreign"), "nobody else has sent anything: {done}");
        }
        let notice = match kills {
            true => "cut short (the connection to the sender is gone: ",
            false => "cut short (the receiver is being shut down: ",
        };
        if form == "--json" {
            let told: Value = serde_json::from_str(&done.out).expect("one object a sender");
            let entry = of_side(&told, 1, "receiver");
            assert_eq!(entry["packets"], records, "{proto}: {entry}");
            assert_eq!((&entry["lost"], &entry["sent_packets"]), (&Value::Null, &Value::Null));
            for known in [&entry["delay_ns"]["p50"], &entry["jitter_ns"]["mean"]] {
                assert!(known.is_number(), "{proto}: {entry}");
            }
            let said = entry["notices"][0].as_str().expect("a reason");
            assert!(said.starts_with(notice), "{proto}: {said}");
        } else {
            let row = done.out.lines().nth(2).expect("a row");
            let row: Vec<&str> = row.split_whitespace().collect();
            assert_eq!(row[2], records.to_string(), "{proto}: {done}");
            let unknown = row.iter().filter(|word| **word == "-").count();
            assert_eq!((row[5], unknown), ("-", 1), "all but the loss is known: {done}");
            assert!(done.out.contains(&format!("flow 1: {notice}")), "{proto}: {done}");
        }
    }
}

#[test]
fn a_sender_that_was_stalled_says_so() {
    for form in ["--json", "--quiet"] {
        let receiver = Receiver::start(&["-v"]);
        let flow = [form, "--rate", "20M", "--duration", "3s"];
        let running = receiver.begin(&flow);
        std::thread::sleep(Duration::from_millis(800));
        running.signal(Signal::SIGSTOP);
        std::thread::sleep(Duration::from_millis(600));
        running.signal(Signal::SIGCONT);
        let done = running.finish(PATIENCE).exits(0);
        let said =
            "late and then sent what was due at once: loss and delay are not the path's alone";
        assert!(done.out.contains("the sender was up to ") && done.out.contains(said), "{done}");
        receiver.stop();
    }
}

/// The sender measures round trips, the receiver the way there: under words of their own.
#[test]
fn each_side_names_the_delay_that_it_measured() {
    let receiver = Receiver::start::<&str>(&[]);
    let run = [&receiver.at(), "--quiet", "--meter", "rtt", "--packets", "100"];
    let done = send(&run).exits(0);
    assert!(done.out.contains("udp rtt"), "{done}");
    let told = receiver.stop().out;
    assert!(told.contains("udp one-way") && !told.contains("rtt"), "{told}");
}

/// Who has a log elsewhere is told where, and the decoder has the verdict there, whatever lies beside the log.
#[test]
fn a_log_at_a_server_has_the_verdict() {
    let dir = temp_dir();
    let server = LogServer::start::<&str>(dir.path(), &[]);
    let receiver = Receiver::start::<&str>(&[]);
    let (at, url) = (receiver.at(), server.url("tcp"));
    let run = ["--packets", "300", "--log-server", &url, "--log-name", "monday"];
    let done = send(&[&[at.as_str()], &run[..]].concat()).exits(0);
    let said = format!(
        "Fidelity: not judged here: the sender's log is {url}, experiment monday; itg-decode of it has the verdict"
    );
    assert!(done.out.contains(&said) && !done.out.contains("--log FILE"), "{done}");
    receiver.stop();
    server.stop();
    let files = fs::read_dir(dir.path()).expect("readable").map(|entry| entry.expect("one").path());
    let mut files: Vec<_> = files.collect();
    files.sort();
    assert!(files.len() > 1, "the log and its index: {files:?}");
    let decoded = decode(&files).exits(0);
    assert!(decoded.err.contains("monday.index.jsonl: an index of logs"), "{decoded}");
    assert!(decoded.out.lines().nth(1).is_some_and(|row| row.contains("300")), "{decoded}");
    assert_eq!(decode(&files[..1]).code, Some(1), "alone it is what was meant to be a log");
}

#[test]
fn a_run_that_fails_before_its_first_packet_has_no_table() {
    let receiver = Receiver::start::<&str>(&[]);
    let (at, nobody) = (receiver.at(), format!("127.0.0.1:{}", free_port()));
    for (to, args, why) in [
        (&nobody, &[][..], "the receiver cannot be reached"),
        (&at, &["--recv-log", "x"], "start it with --log-dir DIR"),
        (&at, &["--reverse"], "start itg-recv there with --allow-reverse"),
        (&at, &["--under-load"], "start itg-recv there with --allow-reverse"),
    ] {
        let run = [&[to.as_str(), "--quiet", "--duration", "1s"], args].concat();
        let done = send(&run).exits(3);
        assert_eq!(done.out, "", "nothing was sent: {done}");
        assert_eq!(done.err.matches(why).count(), 1, "{done}");
        let done = send(&[&run[..], &["--json"]].concat()).exits(3);
        let report: Value = serde_json::from_str(&done.out).expect("one object");
        for flow in report["flows"].as_array().expect("a list") {
            assert_eq!(
                (&flow["packets"], &flow["sent_packets"], &flow["lost"]),
                (&Value::from(0), &Value::from(0), &Value::from(0)),
                "{flow}"
            );
            let account = &flow["account"];
            assert_eq!(account["not_reached"], account["planned"], "{account}");
            assert!(account["why"]["not_reached"].is_string(), "{account}");
        }
    }
    drop(receiver.stop());
}
