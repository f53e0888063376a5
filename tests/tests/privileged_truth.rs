//! A link whose rate and queue are known, and the report on it. Needs root.
#![allow(missing_docs, reason = "tests")]

use std::time::Duration;

use itg_tests::{Pair, Receiver, Running, json, not_run, program, temp_dir};
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(60);
/// Bits per second of the link, bytes of its queue, bytes it may send at once.
const RATE: u64 = 10_000_000;
const QUEUE: u64 = 60 << 10;
const BURST: u64 = 5 << 10;
/// Bytes of a packet on the link: payload, UDP, IPv4, Ethernet.
const FRAME: u64 = 1000 + 8 + 20 + 14;

#[test]
fn a_shaped_link_limits_rate_and_delay_and_does_not_mislead_the_clocks() {
    if not_run() {
        return;
    }
    let pair = Pair::new();
    pair.sender
        .tc(&format!("qdisc add dev link0 root tbf rate {RATE} burst {BURST} limit {QUEUE}"));
    let dir = temp_dir();
    let log = |name: &str| dir.path().join(name).to_str().expect("UTF-8").to_owned();
    let (ours, theirs) = (log("send.itg"), log("recv.itg"));
    let receiver =
        Receiver::run(pair.receiver.command(&program("itg-recv")).args(["-v", "--log", &theirs]));
    let args = ["10.77.0.2", "--rate", "12Mbps", "--size", "1000", "--duration", "4s"];
    let args = [&args[..], &["--log", &ours]].concat();
    let done = Running::start(pair.sender.command(&program("itg-send")).args(args));
    let done = done.finish(LIMIT).exits(0);
    drop(receiver.stop());
    let report = json(&[&ours, &theirs]);
    let flows = report["flows"].as_array().expect("a list");
    let flow = flows.iter().find(|flow| flow["side"] == "receiver").expect("the receiver's entry");
    let number = |key: &str| flow[key].as_u64().unwrap_or_else(|| panic!("{key} of {flow}"));

    // What is too much for the link is lost in it: not in the hosts.
    assert!(number("lost") > 300, "{done}");
    assert_eq!(number("lost") + number("packets"), number("sent_packets"), "{flow}");
    assert_eq!(number("host_buffer_errors"), 0, "{flow}");
    assert!(!flow["notices"].to_string().contains("dropped by the kernel"), "{flow}");

    // It never sends faster than it may.
    let most = RATE / 8 * number("duration_ns") / 1_000_000_000 + QUEUE + BURST;
    let carried = number("packets") * FRAME;
    assert!(carried <= most && carried * 2 > most, "{carried} bytes of at most {most}");

    // The queue is full most of the time, and a packet waits for all that is in it: 49 ms.
    let delay = |key: &str| flow["delay_ns"][key].as_u64().unwrap_or_else(|| panic!("{flow}"));
    let full = QUEUE * 8 * 1_000_000_000 / RATE;
    assert!(delay("p50") > full / 2, "median {} of a queue of {full} ns", delay("p50"));
    assert!(delay("min") < full / 4, "{flow}");

    // Only one direction is loaded, and the clocks are the same one: the estimate finds it.
    let clock = &flow["clock"];
    let number = |key: &str| clock[key].as_i64().unwrap_or_else(|| panic!("{key} of {clock}"));
    assert_eq!(clock["shared"], true, "{clock}");
    assert!(number("offset_ns").unsigned_abs() <= number("bound_ns").unsigned_abs(), "{clock}");
    let bound = number("bound_ns").unsigned_abs();
    assert!(bound < full / 2, "a bound of {bound} ns beside a queue of {full} ns: {clock}");
    assert_eq!(clock["steps"].as_array().map(Vec::len), Some(0), "{clock}");
    println!("round trip {} ns, bound {bound} ns", number("round_trip_ns"));
}

/// A firewall at the receiver writes another time into half of the replies.
#[test]
fn a_reply_with_a_forged_time_has_no_round_trip_time() {
    let nft = std::path::Path::new("/usr/sbin/nft");
    if not_run() {
        return;
    }
    if !nft.exists() {
        return itg_tests::leave_out("nft");
    }
    for byte in ["0x00", "0xff"] {
        let pair = Pair::new();
        // Byte 17 of the payload: bits 40 to 47 of the time of sending, steps of 18 minutes.
        let set = format!("udp sport 8999 numgen inc mod 2 == 0 @th,200,8 set {byte}");
        for rule in [
            "add table inet a".to_owned(),
            "add chain inet a out { type filter hook output priority 0; }".to_owned(),
            format!("add rule inet a out {set}"),
        ] {
            let done = pair.receiver.command(nft).args(rule.split(' ')).status();
            assert!(done.is_ok_and(|status| status.success()), "{rule}");
        }
        let receiver = Receiver::run(&mut pair.receiver.command(&program("itg-recv")));
        let dir = temp_dir();
        let log = dir.path().join("send.itg").to_str().expect("UTF-8").to_owned();
        let args = ["10.77.0.2", "--json", "--log", &log, "--meter", "rtt", "--rate", "500pps"];
        let args = args.into_iter().chain(["--packets", "500"]);
        let done = Running::start(pair.sender.command(&program("itg-send")).args(args));
        let done = done.finish(LIMIT).exits(0);
        drop(receiver.stop());
        let measured: Value = serde_json::from_str(&done.out).expect("one object");
        let decoded = json(&[&log]);
        for report in [&measured, &decoded] {
            let flow = &report["flows"][0];
            assert_eq!(flow["packets"], 500, "{flow}");
            assert_eq!(flow["negative_delays"], 0, "{flow}");
            let max = flow["delay_ns"]["max"].as_i64().unwrap_or_else(|| panic!("{flow}"));
            assert!(max < 10_000_000_000, "{byte}: {max} ns, {flow}");
        }
        assert_eq!(decoded["flows"][0]["delay_percentiles_ns"]["count"], 250, "{byte}: {decoded}");
    }
}

/// A firewall in front of the receiver drops a tenth, and datagrams with a wrong checksum come to the flow's port: they
/// found no full buffer.
#[test]
fn a_wrong_checksum_is_no_full_buffer() {
    let nft = std::path::Path::new("/usr/sbin/nft");
    if not_run() {
        return;
    }
    if !nft.exists() {
        return itg_tests::leave_out("nft");
    }
    let pair = Pair::new();
    for rule in [
        "add table inet a",
        "add chain inet a in { type filter hook input priority 0; }",
        "add rule inet a in udp dport 8999 udp length > 100 numgen inc mod 10 == 0 drop",
    ] {
        let done = pair.receiver.command(nft).args(rule.split(' ')).status();
        assert!(done.is_ok_and(|status| status.success()), "{rule}");
    }
    let dir = temp_dir();
    let log = dir.path().join("recv.itg").to_str().expect("UTF-8").to_owned();
    let receiver =
        Receiver::run(pair.receiver.command(&program("itg-recv")).args(["-v", "--log", &log]));
    let args = ["10.77.0.2", "--rate", "1000pps", "--size", "200", "--packets", "2000"];
    let sending = Running::start(pair.sender.command(&program("itg-send")).args(args));
    std::thread::sleep(Duration::from_millis(700));
    // A veth link takes every checksum for right; loopback does not.
    pair.receiver.within(|| {
        use nix::sys::socket::{
            AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrIn, sendto, socket,
        };
        let raw = socket(AddressFamily::Inet, SockType::Raw, SockFlag::empty(), SockProtocol::Udp);
        let raw = raw.expect("a raw socket");
        let to = SockaddrIn::new(127, 0, 0, 1, 0);
        // Ports 4000 and 8999, length 20, checksum 1, 12 bytes of zeros.
        let mut datagram = vec![0x0f, 0xa0, 0x23, 0x27, 0, 20, 0, 1];
        datagram.extend([0; 12]);
        for _ in 0..60 {
            use std::os::fd::AsRawFd as _;
            sendto(raw.as_raw_fd(), &datagram, &to, MsgFlags::empty()).expect("sent");
        }
    });
    drop(sending.finish(LIMIT).exits(0));
    drop(receiver.stop());
    let report = json(&[&log]);
    let flow = &report["flows"][0];
    let lost = &flow["account"]["lost"];
    assert_eq!(flow["lost"], 200, "{flow}");
    // The kernel tells whose they were until 6.17.
    if lost["checksum"] == 60 {
        assert_eq!((&lost["socket"], &lost["network"]), (&0.into(), &140.into()), "{lost}");
    } else {
        assert_eq!((&lost["network"], &lost["unknown"]), (&Value::Null, &200.into()), "{lost}");
        let notices = flow["notices"].to_string();
        assert!(notices.contains("60 datagrams with a wrong checksum"), "{notices}");
    }
}
