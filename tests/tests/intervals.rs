//! Lines for intervals: windows that begin with the first packet and have all packets, of all programs and ways.
#![allow(missing_docs, reason = "tests")]

use std::net::{IpAddr, SocketAddr};
use std::process::Command;

use itg_tests::{
    Impairment, IntervalLine, Receiver, Relay, Traffic, free_port, interval_lines, program, send,
};
use serde_json::Value;

/// Asserts that windows follow one another from the first packet on, and that each rate is that of its window.
#[track_caller]
fn in_order(lines: &[&IntervalLine]) {
    let mut until_ms = 0;
    for line in lines {
        assert_eq!(line.since_ms, until_ms, "{}", line.text);
        until_ms = line.until_ms;
    }
}

/// Packets and bytes of all lines.
fn sum(lines: &[&IntervalLine], of: fn(&IntervalLine) -> Option<(u64, u64)>) -> (u64, u64) {
    let add = |sum: (u64, u64), more: (u64, u64)| (sum.0 + more.0, sum.1 + more.1);
    lines.iter().filter_map(|line| of(line)).fold((0, 0), add)
}

fn of_way<'a>(lines: &'a [IntervalLine], way: &str) -> Vec<&'a IntervalLine> {
    lines.iter().filter(|line| line.way == way).collect()
}

#[track_caller]
fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value}"))
}

/// The other lines are those of the receiver.
#[test]
fn lines_add_up_to_the_table() {
    let receiver = Receiver::start(&["--interval", "200ms"]);
    let at = receiver.at();
    let mut tables = Vec::new();
    for (args, lossy) in [
        (&["--idt", "exp(1ms)", "--packets", "700", "--size", "uniform(64,900)"][..], true),
        (&["--rate", "2000pps", "--burst", "8", "--packets", "1200"], true),
        (&["--rate", "500pps", "--packets", "300", "--flows", "3", "--stagger", "300ms"], true),
        (&["--proto", "tcp", "--rate", "8Mbps", "--size", "1000", "--packets", "600"], false),
        (&["--meter", "rtt", "--idt", "constant(1ms)", "--packets", "700"], true),
        // Shorter than an interval, and a single packet.
        (&["--rate", "1000pps", "--packets", "90"], true),
        (&["--packets", "1", "--size", "100"], true),
    ] {
        let own = [at.as_str(), "--interval", "200ms", "--json"];
        let done = send(&[&own, args].concat()).exits(0);
        let report: Value = serde_json::from_str(&done.out).expect("one object");
        let total = &report["total"];
        let lines = interval_lines(&done.err);
        let lines = of_way(&lines, "");
        let want = (number(&total["packets"]), number(&total["bytes"]));
        assert_eq!(sum(&lines, |line| line.sent), want, "{args:?}: {done}");
        assert_eq!(sum(&lines, |line| line.received), want, "{args:?}: {done}");
        in_order(&lines);
        for line in &lines {
            assert_eq!(line.lost, lossy.then_some(0), "{args:?}: {}", line.text);
        }
        let last = lines.last().expect("a line");
        assert_eq!(last.away.unwrap_or(0), 0, "{args:?}: {}", last.text);
        tables.push(number(&total["packets"]));
    }
    // The receiver tells of all packets of a sender before its table.
    let out = receiver.stop().out;
    let told: Vec<u64> = out
        .split("sender ")
        .map(|text| {
            let lines = interval_lines(text);
            let lines: Vec<_> = lines.iter().collect();
            in_order(&lines);
            sum(&lines, |line| line.received).0
        })
        .collect();
    assert_eq!(told[..tables.len()], tables, "{out}");
}

#[test]
fn the_first_window_begins_with_the_first_packet() {
    let receiver = Receiver::start(&["--allow-reverse", "--interval", "500ms"]);
    let at = receiver.at();
    for way in [&[][..], &["--reverse"], &["--bidir"]] {
        let flow = ["--rate", "1000pps", "--duration", "700ms", "--interval", "500ms"];
        let done = send(&[&[at.as_str()], way, &flow].concat()).exits(0);
        let lines = interval_lines(&done.out);
        let firsts: Vec<_> = lines.iter().filter(|line| line.since_ms == 0).collect();
        assert_eq!(firsts.len(), if way == ["--bidir"] { 2 } else { 1 }, "{done}");
        for line in firsts {
            begins_with_the_first_packet(line);
        }
    }
    let out = receiver.stop().out;
    let lines = interval_lines(&out);
    let firsts: Vec<_> = lines.iter().filter(|line| line.since_ms == 0).collect();
    assert_eq!(firsts.len(), 2, "one for each sender: {out}");
    for line in firsts {
        begins_with_the_first_packet(line);
    }
}

/// Asserts that a line of a flow of 1000 packets/s has those of its window: a window that begins 0.1 s before has fewer.
#[track_caller]
fn begins_with_the_first_packet(line: &IntervalLine) {
    let (packets, bytes) = line.received.expect("told");
    let late = 0.09;
    assert!(packets as f64 > (line.seconds() - late) * 1000.0, "{}", line.text);
    let (bps, bits) = (line.bps.expect("a rate"), bytes as f64 * 8.0);
    // A receiver knows both by one clock, but for what is rounded; the clock of a sender's line is that of answers.
    let share = if line.sent.is_some() { 0.3 } else { 0.01 };
    let want = bits / line.seconds();
    assert!((bps - want).abs() < want * share, "{bps} and {want}: {}", line.text);
}

#[test]
fn both_ways_have_lines_that_add_up() {
    let receiver = Receiver::start(&["--allow-reverse"]);
    let at = receiver.at();
    for (proto, way) in [("udp", "--bidir"), ("tcp", "--bidir"), ("udp", "-R"), ("tcp", "-R")] {
        let flow = ["--rate", "2Mbps", "--size", "500", "--packets", "300"];
        let own = [at.as_str(), way, "--proto", proto, "--json", "--interval", "200ms"];
        let done = send(&[&own[..], &flow].concat()).exits(0);
        let report: Value = serde_json::from_str(&done.out).expect("one object");
        let lines = interval_lines(&done.err);
        let totals = match report["groups"].as_array() {
            Some(groups) => groups
                .iter()
                .map(|group| (group["by"]["direction"].as_str().expect("a way"), group))
                .collect(),
            None => vec![("", &report["total"])],
        };
        assert_eq!(totals.len(), if way == "-R" { 1 } else { 2 }, "{report}");
        for (way, total) in totals {
            let lines = of_way(&lines, way);
            let want = (number(&total["packets"]), number(&total["bytes"]));
            assert_eq!(sum(&lines, |line| line.received), want, "{proto} {way}: {done}");
            assert!(lines.len() >= 2, "{proto} {way}: {done}");
            in_order(&lines);
        }
    }
    drop(receiver.stop());
}

#[test]
fn round_trips_beside_two_ways_have_lines_of_their_own() {
    let receiver = Receiver::start(&["--allow-reverse", "--reverse-rate", "20Mbps"]);
    let at = receiver.at();
    let args = [&at, "--under-load", "-t", "1", "--json", "--interval", "300ms"];
    let done = send(&args).exits(0);
    let report: Value = serde_json::from_str(&done.out).expect("one object");
    let lines = interval_lines(&done.err);
    let flows = report["flows"].as_array().expect("a list");
    let of = |names: &[&str]| -> u64 {
        let named = flows.iter().filter(|flow| names.iter().any(|name| flow["name"] == **name));
        named.map(|flow| number(&flow["packets"])).sum()
    };
    for (way, names) in
        [("round trips", &["idle", "loaded"][..]), ("from here", &["up"]), ("to here", &["down"])]
    {
        let told = sum(&of_way(&lines, way), |line| line.received).0;
        assert_eq!(told, of(names), "{way}: {done}");
    }
    drop(receiver.stop());
}

/// Sends through a relay; its account, the report, and the lines of the sender.
fn relayed(impairment: Impairment, args: &[&str]) -> (Traffic, Value, Vec<IntervalLine>) {
    let port = free_port();
    let mut command = Command::new(program("itg-recv"));
    let (listen, data) = (format!("127.0.0.1:{}", free_port()), port.to_string());
    command.args(["--listen", &listen, "--data-port", &data]);
    let receiver = Receiver::run(&mut command);
    let other = IpAddr::from([127, 0, 0, 2]);
    let relay = Relay::start(other, SocketAddr::new(receiver.address.ip(), port), impairment);
    let agreements = Relay::start(other, receiver.address, Impairment::default());
    let to = agreements.address.to_string();
    let own = [to.as_str(), "--interval", "200ms", "--json"];
    let done = send(&[&own, args].concat()).exits(0);
    let traffic = relay.finish();
    drop(agreements);
    drop(receiver.stop());
    let report = serde_json::from_str(&done.out).expect("one object");
    (traffic, report, interval_lines(&done.err))
}

#[test]
fn the_loss_of_a_window_is_that_of_its_packets() {
    let impairment = Impairment { seed: 11, lost: 0.1, ..Impairment::default() };
    let flow = ["--rate", "1000pps", "--size", "200", "--packets", "1100"];
    let (traffic, report, lines) = relayed(impairment, &flow);
    let total = &report["total"];
    let lines: Vec<_> = lines.iter().collect();
    assert!(lines.len() > 2, "{lines:?}");
    in_order(&lines);
    let (mut sent, mut received, mut lost) = (0, 0, 0);
    for line in &lines {
        sent += line.sent.expect("told").0;
        received += line.received.expect("told").0;
        lost += line.lost.unwrap_or_else(|| panic!("unknown: {}", line.text));
        // The packets of which this account is: those behind them are on their way.
        let known = usize::try_from(received + lost).expect("few");
        let dropped = traffic.datagrams[..known].iter().filter(|passed| passed.copies.is_empty());
        assert_eq!(lost, dropped.count() as u64, "{}", line.text);
        let away = line.away.unwrap_or(0);
        assert_eq!(received + lost + away, sent, "{}", line.text);
    }
    assert!(lost > 50, "{lines:?}");
    assert_eq!((&total["lost"], &total["packets"]), (&lost.into(), &received.into()), "{total}");
    assert_eq!(sent, 1100);
}

#[test]
fn copies_are_counted_and_late_packets_are_not_lost() {
    let impairment = Impairment { seed: 12, twice: 0.1, late: 0.2, ..Impairment::default() };
    let flow = ["--rate", "1000pps", "--size", "200", "--packets", "900"];
    let (traffic, report, lines) = relayed(impairment, &flow);
    let lines: Vec<_> = lines.iter().collect();
    let copies: usize = traffic.datagrams.iter().map(|passed| passed.copies.len()).sum();
    let told = sum(&lines, |line| line.received).0;
    assert_eq!((told, &report["total"]["packets"]), (copies as u64, &told.into()), "{lines:?}");
    assert_eq!(report["total"]["lost"], 0, "{report}");
    for line in &lines {
        let known = !line.text.contains("loss unknown");
        assert_eq!(line.lost, known.then_some(0), "{}", line.text);
    }
    assert!(lines.iter().any(|line| line.lost.is_none()), "{lines:?}");
}
