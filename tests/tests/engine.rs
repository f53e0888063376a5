//! The packet engine under test: bursts, batches, too much to send, connections watched.
#![allow(missing_docs, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Command;
use std::thread;
use std::time::Duration;

use itg_tests::{
    Receiver, Running, accounts, decode, free_port, json, packets, program, send, temp_dir,
};
use nix::sys::signal::Signal;
use serde_json::Value;

#[test]
fn every_packet_of_a_burst_is_accounted_for_with_one_record_a_burst() {
    const PACKETS: u64 = 20_000;
    const BURST: u64 = 25;
    let dir = temp_dir();
    let log = |name: &str| dir.path().join(name).to_str().expect("UTF-8").to_owned();
    let (ours, theirs) = (log("send.itg"), log("recv.itg"));
    let receiver = Receiver::start(&["--log", &theirs]);
    // A quarter of the bursts ends with a shorter packet: those are records of their own.
    let count = PACKETS.to_string();
    let burst = BURST.to_string();
    let done = send(&[
        &receiver.at(),
        "--burst",
        &burst,
        "--idt",
        "exp(20us)",
        "--size",
        "300",
        "--packets",
        &count,
        "--seed",
        "7",
        "--log",
        &ours,
    ])
    .exits(0);
    drop(receiver.stop());
    let account = accounts(&done.out).remove(0);
    assert!(account.agreed && account.sent == PACKETS, "{}", account.line);

    let all = packets(&[&ours, &theirs]);
    assert!(all.iter().map(|packet| packet.seq).eq(0..PACKETS), "each number once, in both logs");
    let mut stamps = BTreeSet::new();
    for burst in all.chunks(usize::try_from(BURST).expect("small")) {
        let planned: BTreeSet<_> = burst.iter().map(|packet| packet.planned).collect();
        let sent: BTreeSet<_> = burst.iter().map(|packet| packet.sent).collect();
        assert_eq!((planned.len(), sent.len()), (1, 1), "due and sent together: {burst:?}");
        stamps.extend(burst.iter().map(|packet| packet.arrived.expect("arrived")));
    }
    // Loopback hands bursts over as they left.
    assert_eq!(stamps.len() as u64, PACKETS / BURST);
    for path in [&ours, &theirs] {
        let len = fs::metadata(path).expect("a log").len();
        assert!(len < 40 * PACKETS / BURST + 20_000, "{path} takes {len} bytes");
    }

    let report = json(&[&ours, &theirs]);
    for flow in report["flows"].as_array().expect("a list") {
        assert_eq!(flow["fidelity"]["burst"], BURST, "{flow}");
        assert_eq!((&flow["packets"], &flow["lost"]), (&PACKETS.into(), &0.into()), "{flow}");
    }
    let text = decode(&[ours.as_str(), &theirs, "--format", "itgdec"]).exits(0).out;
    assert!(text.contains("(burst mode, 25 packets at a time)"), "{text}");
    assert!(done.err.contains("burst 25"), "{done}");
    // The sender tells what lies in the receiver's log.
    let told = done.err.lines().find_map(|line| {
        let (_, words) = line.split_once(&format!("log {theirs} on "))?;
        words.strip_suffix(" records")?.rsplit(' ').next()?.parse::<u64>().ok()
    });
    let records = PACKETS / BURST..=2 * PACKETS / BURST;
    assert!(told.is_some_and(|told| records.contains(&told)), "{told:?} in {done}");
}

#[test]
fn packets_in_bursts_and_one_by_one_share_no_port() {
    let receiver = Receiver::start(&["-v"]);
    let at = receiver.at();
    let free = free_port();
    let port = free.to_string();
    let running = receiver.begin(&["--dest-port", &port, "--rate", "100pps", "--duration", "60s"]);
    itg_tests::takes_datagrams(&receiver.running, free);
    let done = send(&[&at, "--dest-port", &port, "--burst", "8", "--packets", "8"]).exits(3);
    let words = "flows whose packets leave one by one use that port; give those whose packets leave \
                 in bursts another --dest-port";
    assert!(done.err.contains(words), "{done}");
    running.signal(Signal::SIGINT);
    drop(running.finish(Duration::from_secs(60)).exits(130));
}

/// Largest difference of the due times of packets that left together, in nanoseconds, when the
/// sender had been stopped for a while and had ten thousand packets to catch up with.
fn farthest_apart(more: &[&str]) -> u64 {
    let dir = temp_dir();
    let log = dir.path().join("send.itg");
    let receiver = Receiver::start(&["-v"]);
    let path = log.to_str().expect("UTF-8");
    let args = ["--idt", "exp(20us)", "--size", "100", "--packets", "150000", "--log", path];
    let running = receiver.begin(&[&args[..], more].concat());
    thread::sleep(Duration::from_millis(400));
    running.signal(Signal::SIGSTOP);
    thread::sleep(Duration::from_millis(200));
    running.signal(Signal::SIGCONT);
    drop(running.finish(Duration::from_secs(60)).exits(0));
    let mut batches: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for packet in packets(&[&log]) {
        let (planned, sent) = packet.planned.zip(packet.sent).expect("both known");
        batches.entry(sent).or_default().push(planned);
    }
    let apart = |batch: &Vec<u64>| batch.last().zip(batch.first()).map_or(0, |(a, b)| a - b);
    assert!(batches.values().any(|batch| batch.len() > 1), "nothing was joined");
    batches.values().map(apart).max().expect("packets")
}

#[test]
fn a_batch_joins_no_packets_that_are_due_farther_apart_than_the_tolerance() {
    let usual = farthest_apart(&[]);
    assert!(usual <= 20_000, "packets {usual} ns apart left together");
    // The declared precision is the tolerance: batches are as long as they may be.
    let declared = farthest_apart(&["--max-error", "50ms"]);
    assert!((20_001..=50_000_000).contains(&declared), "packets {declared} ns apart at most");
}

#[test]
fn departures_of_sampled_packets_are_in_the_log_and_the_report() {
    let dir = temp_dir();
    let log = |name: &str| dir.path().join(name).to_str().expect("UTF-8").to_owned();
    let (ours, theirs) = (log("send.itg"), log("recv.itg"));
    let receiver = Receiver::start(&["--log", &theirs]);
    let distributions = ["--idt", "exp(200us)", "--packets", "3000", "--flows", "2", "--seed", "5"];
    let args = ["--tx-stamps", "4", "--log", &ours];
    let done = send(&[&[receiver.at().as_str()], &distributions[..], &args].concat()).exits(0);
    drop(receiver.stop());
    assert!(accounts(&done.out).iter().all(|account| account.agreed), "{done}");
    for logs in [&[ours.as_str()][..], &[&ours, &theirs]] {
        let report = json(logs);
        for flow in report["flows"].as_array().expect("a list") {
            let departures = &flow["departures"];
            assert_eq!(departures["every"], 4, "{flow}");
            assert_eq!(departures["asked"], 750, "{flow}");
            let missing = departures["missing"].as_u64().expect("a count");
            let way = &flow["ledger"]["departure_ns"];
            assert_eq!(way["count"], 750 - missing, "{flow}");
            // Loopback queues nothing and drops nothing: what is missing the kernel had no room for.
            assert!(missing < 75, "{flow}");
            let [min, p50, max] = ["min", "p50", "max"].map(|key| way[key].as_i64().expect("ns"));
            assert!(min <= p50 && p50 <= max, "{flow}");
            assert_eq!(departures["lateness_ns"]["count"], way["count"], "{flow}");
            // It left before it arrived.
            if let Some(network) = flow["ledger"]["network_ns"]["max"].as_i64() {
                assert!(min <= network, "{flow}");
            }
        }
        let total = report["total"]["ledger"]["departure_ns"]["count"].as_u64();
        assert!(total > Some(1_300), "both flows: {}", report["total"]["ledger"]);
    }
    let text = decode(&[ours.as_str(), "-v"]).exits(0).out;
    assert!(text.contains("Send stack, median") && text.contains("Send stack, 99th"), "{text}");
}

#[test]
fn times_that_no_queue_keeps_are_refused_in_words() {
    let receiver = Receiver::start::<&str>(&[]);
    let at = receiver.at();
    let done = send(&[&at, "--pacing", "txtime", "--packets", "3"]).exits(3);
    assert!(done.out.contains("`noqueue` of lo does not keep the times of packets"), "{done}");
    let rows: [(&[&str], &str); 8] = [
        (&["--proto", "tcp"], "it sends UDP only, not tcp"),
        (&["--meter", "rtt"], "departures of round trips are not stamped"),
        (&["--burst", "4"], "packets of a burst"),
        (&["--max-burst", "4"], "max-burst means nothing"),
        (&["--engine", "xdp"], "leave one out"),
        (&["--max-error", "1ms"], "leave it out"),
        (&["--classic"], "leave them out"),
        (&["--tx-stamps", "4"], "add --log"),
    ];
    for (args, words) in rows {
        let base = ["--pacing", "txtime", "--packets", "3"];
        drop(send(&[&[at.as_str()], &base[..], args].concat()).exits(2).says(words));
    }
}

#[test]
fn more_than_the_host_can_send_ends_with_the_truth() {
    let dir = temp_dir();
    let log = dir.path().join("send.itg");
    let path = log.to_str().expect("UTF-8");
    let receiver = Receiver::start::<&str>(&[]);
    let args = ["--rate", "20Mpps", "--size", "64", "--duration", "400ms", "--log", path];
    let at = receiver.at();
    let once = |_| accounts(&send(&[&[at.as_str()], &args[..]].concat()).exits(0).out).remove(0);
    // A machine that stands still for all of this time sends nothing, and there is nothing to judge.
    let account = (0..5).map(once).find(|account| account.sent > 0).expect("packets");
    assert!(account.line.contains("this host or the path is too slow"), "{}", account.line);
    let report = json(&[&log]);
    let flow = &report["flows"][0];
    let number = |key: &str| flow[key].as_u64().unwrap_or_else(|| panic!("{key} of {flow}"));
    // Every packet of the plan was sent or is told to be left out.
    assert_eq!(number("packets") + number("skipped_packets"), 8_000_000, "{flow}");
    assert_eq!(flow["fidelity"]["verdict"], "fail", "{flow}");
    assert!(flow["fidelity"]["causes"].to_string().contains("late_sender"), "{flow}");
    drop(decode(&[path, "--fail-if", "fidelity != pass"]).exits(98));
    drop(decode(&[path, "--fail-if", "skipped_packets > 0"]).exits(99));
}

#[test]
fn a_tcp_flow_has_its_congestion_control_its_pace_and_its_course_in_the_log() {
    let dir = temp_dir();
    let log = dir.path().join("send.itg");
    let path = log.to_str().expect("UTF-8");
    let receiver = Receiver::start::<&str>(&[]);
    let at = receiver.at();
    let args = [at.as_str(), "--proto", "tcp", "--idt", "constant(0s)", "--size", "16Ki"];
    let paced =
        ["--congestion", "reno", "--pacing-rate", "80Mbps", "--duration", "4s", "--log", path];
    drop(send(&[&args[..], &paced].concat()).exits(0));
    let report = json(&[&log]);
    let flow = &report["flows"][0];
    let series = flow["tcp"]["series"].as_array().expect("a series");
    assert!(series.len() >= 3, "{flow}");
    // What the peer has acknowledged left at the pace; what was written may be megabytes ahead of it in the socket.
    let number = |point: &Value, key: &str| point[key].as_f64().expect("a number");
    let (first, last) = (&series[0], &series[series.len() - 1]);
    let acked = number(last, "acked_bytes") - number(first, "acked_bytes");
    let rate = 8e9 * acked / (number(last, "unix_ns") - number(first, "unix_ns"));
    assert!((8e6..160e6).contains(&rate), "{rate} bit/s: {series:?}");
    let acked = last["acked_bytes"].as_u64().expect("a count");
    let sent = flow["bytes"].as_u64().expect("a count");
    assert!(acked > 0 && acked <= sent + 1, "{acked} of {sent} bytes acknowledged");
    assert!(last["cwnd_bytes"].as_u64() > Some(0) && last["rtt_ns"].as_u64() > Some(0), "{last}");
    assert_eq!(flow["congestion_control"], "reno", "{flow}");
    let refused =
        send(&[&args[..], &["--congestion", "nosuch", "--packets", "1"]].concat()).exits(3);
    let words = format!("{}{}", refused.out, refused.err);
    assert!(words.contains("congestion control `nosuch`"), "{refused}");
    drop(send(&[&at, "--congestion", "reno", "--packets", "1"]).exits(2).says("is about TCP"));
}

#[test]
fn a_tcp_flow_has_the_largest_segment_that_was_asked_for_both_ways() {
    let receiver = Receiver::start(&["--allow-reverse"]);
    let at = receiver.at();
    for way in [&[][..], &["--reverse"]] {
        let args = ["--proto", "tcp", "--mss", "500", "--size", "2000", "--duration", "2s"];
        let mut command = Command::new(program("itg-send"));
        let sending = Running::start(command.arg(&at).args(args).args(way));
        // The kernel's own words on connections of this host; 12 bytes of 500 are the option with times.
        let found = (0..30).any(|_| {
            thread::sleep(Duration::from_millis(50));
            let seen = Command::new("ss").arg("-tni").output().expect("iproute2");
            String::from_utf8_lossy(&seen.stdout).contains(" mss:488 ")
        });
        drop(sending.finish(Duration::from_secs(30)).exits(0));
        assert!(found, "{way:?}: no connection has the segments");
    }
    drop(send(&[&at, "--mss", "500", "--packets", "1"]).exits(2).says("is about TCP"));
    let small = ["--mss", "50", "--proto", "tcp", "--packets", "1"];
    drop(send(&[&[at.as_str()], &small[..]].concat()).exits(2).says("expected 88 to 32767"));
    // An experiment with it has another plan; one without keeps its hash.
    let seed = |args: &[&str]| {
        let fixed = ["--proto", "tcp", "--seed", "1", "--packets", "3"];
        let told = send(&[&[at.as_str()], &fixed[..], args].concat()).exits(0).err;
        told.split_once("plan ").map(|(_, hash)| hash[..16].to_owned()).expect("its hash")
    };
    assert_ne!(seed(&[]), seed(&["--mss", "500"]));
    drop(receiver.stop());
}

#[test]
fn flows_are_spread_over_receiving_threads_and_counted_as_ever() {
    let dir = temp_dir();
    let log = |name: &str| dir.path().join(name).to_str().expect("UTF-8").to_owned();
    let (ours, theirs) = (log("send.itg"), log("recv.itg"));
    let receiver = Receiver::start(&["--shards", "3", "--log", &theirs]);
    for (burst, proto) in [(None, "udp"), (Some("8"), "udp"), (None, "tcp")] {
        let mut args = vec!["--proto", proto, "--flows", "7", "--packets", "300", "--log", &ours];
        args.extend(["--idt", "exp(500us)"]);
        args.extend(burst.iter().flat_map(|n| ["--burst", n]));
        let at = receiver.at();
        let done = send(&[&[at.as_str()], &args[..]].concat()).exits(0);
        let accounts = accounts(&done.out);
        assert_eq!(accounts.len(), 7, "{done}");
        assert!(accounts.iter().all(|account| account.agreed), "{done}");
    }
    drop(receiver.stop());
    let report = json(&[&theirs]);
    let flows = report["flows"].as_array().expect("a list");
    assert_eq!(flows.len(), 21, "{report}");
    for flow in flows {
        assert_eq!((&flow["packets"], &flow["lost"]), (&300.into(), &0.into()), "{flow}");
    }
    assert_eq!(report["damage"], serde_json::json!([]));
}
