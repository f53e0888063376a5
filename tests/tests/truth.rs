//! Comparison of the report with what is known to have happened on the way.
#![allow(missing_docs, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::process::Command;
use std::thread;
use std::time::Duration;

use itg_testkit::child::{Output, said};
use itg_tests::{
    Impairment, Receiver, Relay, Traffic, accounts, free_port, in_parallel, json, packets, program,
    send, sender, temp_dir,
};
use nix::sys::signal::Signal;
use serde_json::Value;

/// The receiver's entry of the only flow.
fn at_receiver(report: &Value) -> &Value {
    let flows = report["flows"].as_array().expect("a list");
    flows.iter().find(|flow| flow["side"] == "receiver").expect("the receiver's entry")
}

/// A receiver on 127.0.0.1 whose data port is known beforehand.
fn receiver(args: &[&str]) -> (Receiver, u16) {
    // A program that takes the port in between makes the receiver fail, not the test lie.
    let free = free_port();
    let mut command = Command::new(program("itg-recv"));
    // Relays take the same ports at another address.
    let (listen, port) = (format!("127.0.0.1:{}", free_port()), free.to_string());
    command.args(["--listen", &listen, "--data-port", &port, "-v"]).args(args);
    (Receiver::run(&mut command), free)
}

/// Sends through a relay at another address of this host; its account, the reports of both logs and of the sender's
/// alone, and the arrivals.
fn relayed(
    impairment: Impairment,
    delay: Duration,
    args: &[&str],
) -> (Traffic, [Value; 2], BTreeMap<u64, Vec<u64>>) {
    let dir = temp_dir();
    let log = |name: &str| dir.path().join(name).to_str().expect("UTF-8").to_owned();
    let (ours, theirs) = (log("send.itg"), log("recv.itg"));
    let (receiver, data_port) = receiver(&["--log", &theirs]);
    let other = IpAddr::from([127, 0, 0, 2]);
    let data = SocketAddr::new(receiver.address.ip(), data_port);
    let relay = Relay::slow(other, data, impairment, delay);
    let agreements = Relay::start(other, receiver.address, Impairment::default());
    let done = send(&[&[agreements.address.to_string().as_str(), "--log", &ours], args].concat());
    // Of a flow that comes when it has been counted nothing arrived, as far as its sender was told.
    let told = delay < Duration::from_secs(1) || args.contains(&"--drain");
    let done = done.exits(if told { 0 } else { 4 });
    let traffic = relay.finish();
    drop(agreements);
    drop(receiver.stop());
    assert_eq!(accounts(&done.out)[0].sent, traffic.datagrams.len() as u64, "{done}");
    let mut arrivals = BTreeMap::<u64, Vec<_>>::new();
    for packet in packets(&[&ours, &theirs]) {
        let arrived = arrivals.entry(packet.seq).or_default();
        arrived.extend(packet.arrived);
    }
    (traffic, [json(&[&ours, &theirs]), json(&[&ours])], arrivals)
}

/// Patterns and files begin anew in every packet and are repeated within it.
#[test]
fn packets_carry_the_payload_that_was_asked_for() {
    let dir = temp_dir();
    let file = dir.path().join("payload");
    std::fs::write(&file, b"from a file ").expect("writable");
    let file = format!("file:{}", file.display());
    let clean = Impairment { seed: 7, ..Impairment::default() };
    let flow = ["--packets", "9", "--size", "60", "--seed", "3", "--payload"];
    for (payload, want) in [("pattern:00ff41", &b"\x00\xff\x41"[..]), (&file, b"from a file ")] {
        let (traffic, ..) = relayed(clean, Duration::ZERO, &[&flow[..], &[payload]].concat());
        let want: Vec<u8> = want.iter().copied().cycle().take(40).collect();
        assert_eq!(traffic.datagrams.len(), 9);
        for packet in &traffic.datagrams {
            assert_eq!(packet.head[20..], want, "{payload}, packet {}", packet.seq());
        }
    }
    let (random, ..) = relayed(clean, Duration::ZERO, &[&flow[..], &["random"]].concat());
    let content = itg_core::payload::Content::random(itg_core::seed::RunSeed(3));
    for packet in &random.datagrams {
        assert_eq!(packet.head[20..], *content.of(1, packet.seq(), 40), "packet {}", packet.seq());
    }
}

#[test]
fn losses_duplicates_and_overtaking_are_exactly_those_of_the_way() {
    let clean = Impairment { seed: 7, ..Impairment::default() };
    let ms = Duration::from_millis;
    in_parallel(
        &[
            ("nothing", (clean, ms(0))),
            ("loss", (Impairment { lost: 0.1, ..clean }, ms(0))),
            ("duplication", (Impairment { twice: 0.1, ..clean }, ms(0))),
            ("delay", (clean, ms(5))),
            ("all", (Impairment { lost: 0.05, twice: 0.05, late: 0.05, ..clean }, ms(3))),
        ],
        |&(impairment, delay)| {
            let args = ["--idt", "constant(2ms)", "--size", "100", "--packets", "700"];
            let (traffic, [report, alone], arrivals) = relayed(impairment, delay, &args);
            let flow = at_receiver(&report);
            let lost: BTreeSet<u64> =
                traffic.datagrams.iter().filter(|d| d.copies.is_empty()).map(|d| d.seq()).collect();
            let copies: usize = traffic.datagrams.iter().map(|d| d.copies.len()).sum();
            let arrived = traffic.datagrams.len() - lost.len();
            assert_eq!(flow["packets"], copies, "{flow}");
            assert_eq!(flow["lost"], lost.len(), "{flow}");
            assert_eq!(flow["duplicated"], copies - arrived, "{flow}");
            // The sender's log alone tells the same.
            for key in ["lost", "duplicated"] {
                assert_eq!(alone["flows"][0][key], flow[key], "{alone}");
            }
            let split = &flow["ledger"]["loss"];
            assert_eq!((&split["socket"], &split["network"]), (&0.into(), &lost.len().into()));
            let missing =
                arrivals.iter().filter(|(_, times)| times.is_empty()).map(|(&seq, _)| seq);
            assert_eq!(missing.collect::<BTreeSet<_>>(), lost, "which ones");
            let runs = lost.iter().filter(|&&seq| seq == 0 || !lost.contains(&(seq - 1))).count();
            assert_eq!(flow["loss_bursts"], runs, "{flow}");
            assert_eq!(flow["reordered"], overtaken(&traffic), "{flow}");
            if impairment.lost > 0.0 {
                assert!(lost.len() > 10, "{}", lost.len());
            }
            // The relay held each packet for a known time: the delay is not shorter.
            let mut beyond = Vec::new();
            for datagram in &traffic.datagrams {
                let times = &arrivals[&datagram.seq()];
                let (seq, sent) = (datagram.seq(), datagram.sent_ns());
                assert_eq!(times.len(), datagram.copies.len(), "{seq}");
                // Copies leave one right after the other, in the order in which they arrive.
                for (&arrived, &(before, after)) in times.iter().zip(&datagram.copies) {
                    let total = arrived - sent;
                    assert!(total >= before - sent, "{seq}: {total} < {}", before - sent);
                    assert!(u128::from(total) >= delay.as_nanos(), "{seq}");
                    beyond.push(arrived > after);
                }
            }
            // … and mostly over when the relay's system call is, which delivers on loopback.
            let late = beyond.iter().filter(|&&late| late).count();
            assert!(late * 2 < beyond.len(), "{late} of {}", beyond.len());
            let least = flow["delay_ns"]["min"].as_i64().expect("known");
            assert!(i128::from(least) >= delay.as_nanos().try_into().expect("small"));
            assert_eq!(flow["negative_delays"], 0);
        },
    );
}

/// First copies that left behind one of a larger number (RFC 4737).
fn overtaken(traffic: &Traffic) -> usize {
    let (mut seen, mut next, mut count) = (BTreeSet::new(), 0, 0);
    for &place in &traffic.order {
        let seq = traffic.datagrams[place].seq();
        if seen.insert(seq) {
            count += usize::from(seq < next);
            next = next.max(seq + 1);
        }
    }
    count
}

#[test]
fn the_clocks_of_one_host_are_found_equal_within_the_bound() {
    let dir = temp_dir();
    let log = |name: &str| dir.path().join(name).to_str().expect("UTF-8").to_owned();
    let (ours, theirs) = (log("send.itg"), log("recv.itg"));
    let receiver = Receiver::start(&["--log", &theirs]);
    let done =
        send(&[&receiver.at(), "--log", &ours, "--idt", "constant(10ms)", "--duration", "2s"]);
    drop(done.exits(0));
    drop(receiver.stop());
    for logs in [vec![&ours, &theirs], vec![&ours], vec![&theirs]] {
        let report = json(&logs);
        let flow = &report["flows"][0];
        let clock = &flow["clock"];
        let number = |key: &str| clock[key].as_i64().unwrap_or_else(|| panic!("{key} of {clock}"));
        assert_eq!(clock["shared"], true, "{flow}");
        // 16 before and four a second; those behind are so close to each other that the best stands for them.
        assert!(number("probes") > 16, "{clock}");
        assert!(number("offset_ns").unsigned_abs() <= number("bound_ns").unsigned_abs(), "{clock}");
        assert!(number("bound_ns") >= number("round_trip_ns") / 2, "{clock}");
        let skew = |key: &str| clock[key].as_f64().unwrap_or_else(|| panic!("{key} of {clock}"));
        assert!(skew("skew_ppm").abs() <= skew("skew_bound_ppm"), "{clock}");
        assert_eq!(clock["steps"], Value::Array(Vec::new()), "{clock}");
        println!("round trip {} ns, bound {} ns", number("round_trip_ns"), number("bound_ns"));
    }
}

/// Packets that wait in the socket's buffer while the receiver stands still are neither lost nor
/// late: they have the kernel's stamps.
#[test]
fn a_receiver_that_stands_still_for_two_seconds_loses_nothing_that_its_buffer_holds() {
    let dir = temp_dir();
    let log = |name: &str| dir.path().join(name).to_str().expect("UTF-8").to_owned();
    let (ours, theirs) = (log("send.itg"), log("recv.itg"));
    let (receiver, _) = receiver(&["--log", &theirs]);
    let at = receiver.at();
    let args = [&at, "--rate", "100pps", "--size", "64", "--packets", "400", "--log", &ours];
    let running = sender(&args);
    drop(receiver.running.line_with(" flows", Duration::from_secs(90)));
    thread::sleep(Duration::from_millis(600));
    receiver.running.signal(Signal::SIGSTOP);
    thread::sleep(Duration::from_secs(2));
    receiver.running.signal(Signal::SIGCONT);
    let done = running.finish(Duration::from_secs(60)).exits(0);
    drop(receiver.stop());
    let account = accounts(&done.out).remove(0);
    assert!(account.agreed && account.sent == 400, "{done}");
    let report = json(&[&ours, &theirs]);
    let flow = at_receiver(&report);
    assert_eq!((&flow["packets"], &flow["lost"]), (&400.into(), &0.into()), "{flow}");
    let max = |figures: &Value| figures["max"].as_i64().expect("a time");
    assert!(max(&flow["delay_ns"]) < 1_000_000_000, "waiting in the host counted as delay: {flow}");
    let read = max(&flow["ledger"]["stack_ns"]);
    assert!(read > 1_000_000_000, "the report does not tell how long packets waited: {flow}");
}

/// Words of a sender with these options, and the report of the receiving side: the receiver, which has this buffer, is
/// stopped for a second meanwhile.
fn stopped_for_a_second(buffer: &str, options: &[&str]) -> (Output, Value) {
    let dir = temp_dir();
    let log = |name: &str| dir.path().join(name).to_str().expect("UTF-8").to_owned();
    let (ours, theirs) = (log("send.itg"), log("recv.itg"));
    let (receiver, _) = receiver(&["--log", &theirs, "--receive-buffer", buffer]);
    let args = ["--rate", "40kpps", "--size", "200", "--duration", "3s", "--log", ours.as_str()];
    let running = sender(&[&[receiver.at().as_str()], &args[..], options].concat());
    drop(receiver.running.line_with(" flows", Duration::from_secs(90)));
    thread::sleep(Duration::from_millis(800));
    receiver.running.signal(Signal::SIGSTOP);
    thread::sleep(Duration::from_secs(1));
    receiver.running.signal(Signal::SIGCONT);
    let done = running.finish(Duration::from_secs(60)).exits(0);
    drop(receiver.stop());
    let flow = at_receiver(&json(&[&ours, &theirs])).clone();
    let lost = flow["lost"].as_u64();
    assert!(lost > Some(100), "the receiver was not slow enough: {done}");
    (done, flow)
}

#[test]
fn what_a_receiver_too_slow_loses_is_lost_in_the_host() {
    in_parallel(
        &[("stopped for a second", "1MiB"), ("stopped, with a small buffer", "16KiB")],
        |buffer| {
            let (done, flow) = stopped_for_a_second(buffer, &[]);
            let number =
                |key: &str| flow[key].as_u64().unwrap_or_else(|| panic!("{key} of {flow}"));
            let lost = number("lost");
            // Loopback loses nothing: every loss is a datagram that found the buffer full.
            let words = format!("{lost} packets dropped by the receiver's full socket buffer");
            assert!(accounts(&done.out)[0].line.contains(&words), "{words:?} in {done}");
            let notices = flow["notices"].to_string();
            assert!(notices.contains(&format!("{lost} packets were dropped by the kernel")));
            assert!(number("host_buffer_errors") >= lost, "{flow}");
            assert!(notices.contains("net.core.rmem_max"), "what grants a larger one: {notices}");
            let split = &flow["ledger"]["loss"];
            assert_eq!((&split["socket"], &split["network"]), (&lost.into(), &0.into()), "{flow}");
            assert!(number("receive_buffer_bytes") > 0, "{flow}");
        },
    );
}

#[test]
fn datagrams_of_a_burst_that_are_dropped_are_not_told_as_packets() {
    let (done, flow) = stopped_for_a_second("64KiB", &["--burst", "16"]);
    assert!(flow["host_buffer_errors"].as_u64() > Some(0), "{flow}");
    // How many packets each of those had is known to nobody.
    let words = format!("{} packets lost in the network or at the receiver", flow["lost"]);
    assert!(accounts(&done.out)[0].line.contains(&words), "{words:?} in {done}");
    let split = &flow["ledger"]["loss"];
    assert_eq!((&split["socket"], &split["network"]), (&Value::Null, &Value::Null), "{flow}");
}

/// The receiver usually counts a flow after a second without a packet.
#[test]
fn packets_that_come_late_behind_the_end_are_waited_for_where_that_is_asked_for() {
    let clean = Impairment { seed: 7, ..Impairment::default() };
    let flow = ["--packets", "20", "--idt", "constant(10ms)"];
    for (drain, lost) in [(&[][..], 20), (&["--drain", "8s"], 0)] {
        let args = [&flow[..], drain].concat();
        let (_, [both, _], _) = relayed(clean, Duration::from_secs(3), &args);
        assert_eq!(at_receiver(&both)["lost"], lost, "{drain:?}");
    }
    let (code, _, err) =
        said(Command::new(program("itg-send")).args(["127.0.0.1", "--drain", "16s"]));
    assert!(code == Some(2) && err.contains("15s at most"), "{err}");
}

/// Loss at the very end of a flow, which no later packet shows, is told as such by each side and from each log.
#[test]
fn losses_at_the_very_end_are_named() {
    let dir = temp_dir();
    let log = |name: &str| dir.path().join(name).to_str().expect("UTF-8").to_owned();
    let (ours, theirs) = (log("send.itg"), log("recv.itg"));
    let (receiver, data_port) = receiver(&["--log", &theirs]);
    let (here, other) = (receiver.address.ip(), IpAddr::from([127, 0, 0, 2]));
    let cut = Impairment { seed: 7, lost_behind: Some(80), ..Impairment::default() };
    let relay = Relay::start(other, SocketAddr::new(here, data_port), cut);
    let agreements = Relay::start(other, receiver.address, Impairment::default());
    let at = agreements.address.to_string();
    let done = send(&[&at, "--rate", "200pps", "--packets", "100", "--log", &ours]).exits(0);
    drop((relay.finish(), agreements));
    let words = "the last 20 packets that were sent did not arrive";
    assert!(done.out.contains(words), "{done}");
    let served = receiver.stop();
    assert!(served.out.contains(words), "{served}");
    for logs in [vec![&ours, &theirs], vec![&theirs]] {
        let report = json(&logs);
        let flow = at_receiver(&report);
        assert_eq!((&flow["lost"], &flow["lost_at_end"]), (&20.into(), &20.into()), "{flow}");
        assert!(flow["notices"].to_string().contains(words), "{flow}");
    }
    // What the sender alone was told is how many, and not which.
    assert_eq!(json(&[&ours])["flows"][0]["lost_at_end"], Value::Null);
}

/// Packets of a flow that has been counted are its own, told as too late, and no foreign ones of who is still there.
#[test]
fn packets_that_come_too_late_are_told() {
    let dir = temp_dir();
    let theirs = dir.path().join("recv.itg").to_str().expect("UTF-8").to_owned();
    let (receiver, data_port) = receiver(&["--log", &theirs]);
    let (here, other) = (receiver.address.ip(), IpAddr::from([127, 0, 0, 2]));
    let data = SocketAddr::new(here, data_port);
    let relay = Relay::slow(other, data, Impairment::default(), Duration::from_secs(2));
    let agreements = Relay::start(other, receiver.address, Impairment::default());
    // It keeps the port open.
    let beside = sender(&[&receiver.at(), "--rate", "50pps", "--duration", "6s"]);
    drop(receiver.running.line_with(" flows", Duration::from_secs(90)));
    let late = ["--rate", "100pps", "--packets", "20", "--drain", "100ms"];
    drop(send(&[&[agreements.address.to_string().as_str()], &late[..]].concat()).exits(4));
    drop(beside.finish(Duration::from_secs(60)).exits(0));
    drop((relay.finish(), agreements));
    let served = receiver.stop();
    assert!(served.err.contains("20 packets came when it had been counted"), "{served}");
    let report = json(&[&theirs]);
    let flows = report["flows"].as_array().expect("a list");
    let of = |sent: u64| flows.iter().find(|flow| flow["sent_packets"] == sent).expect("a flow");
    let (late, beside) = (of(20), of(300));
    let lost = &late["account"]["lost"];
    assert_eq!((&lost["too_late"], &lost["network"]), (&20.into(), &0.into()), "{late}");
    assert!(late["notices"].to_string().contains("--drain waits longer"), "{late}");
    assert_eq!((&beside["foreign_packets"], &beside["lost"]), (&0.into(), &0.into()), "{beside}");
    assert_eq!(beside["account"]["lost"]["too_late"], 0, "{beside}");
}

/// Bytes that are changed on the way, with a checksum that is right again, are seen where payloads are compared.
#[test]
fn payloads_that_were_changed_are_counted() {
    let dir = temp_dir();
    let theirs = dir.path().join("recv.itg").to_str().expect("UTF-8").to_owned();
    let (receiver, data_port) = receiver(&["--log", &theirs, "--check-payload"]);
    let (here, other) = (receiver.address.ip(), IpAddr::from([127, 0, 0, 2]));
    let bad = Impairment { seed: 7, changed: 0.1, ..Impairment::default() };
    let relay = Relay::start(other, SocketAddr::new(here, data_port), bad);
    let agreements = Relay::start(other, receiver.address, Impairment::default());
    let (far, near) = (agreements.address.to_string(), receiver.at());
    let mixed = ["--rate", "500pps", "--size", "uniform(24,900)"];
    let told = |at: &str, args: &[&str]| -> Value {
        let done = send(&[&[at, "--packets", "200", "-J"], args].concat()).exits(0);
        serde_json::from_str::<Value>(&done.out).expect("JSON")["flows"][0].take()
    };
    let mut changed = 0;
    for payload in ["random", "pattern:00ff41"] {
        let flow = told(&far, &[&mixed[..], &["--payload", payload]].concat());
        let so_far = relay.relayed().changed;
        let account = &flow["account"];
        assert!(so_far > changed, "the relay did nothing");
        assert_eq!(account["corrupted"], so_far - changed, "{payload}: {flow}");
        assert_eq!((&account["arrived"], &flow["lost"]), (&200.into(), &0.into()), "{flow}");
        assert!(flow["notices"].to_string().contains("another payload"), "{flow}");
        changed = so_far;
    }
    for args in [
        &["--proto", "tcp"][..],
        &["--burst", "8", "--rate", "max", "--size", "900"],
        &["--proto", "tcp", "--payload", "pattern:00ff41", "--size", "uniform(24,9000)"],
    ] {
        assert_eq!(told(&near, args)["account"]["corrupted"], 0, "{args:?}");
    }
    let file = dir.path().join("payload");
    std::fs::write(&file, b"from a file ").expect("writable");
    // The table is that of the replies, which are not compared.
    assert_eq!(told(&near, &["--meter", "rtt"])["account"]["corrupted"], Value::Null);
    let unknown = told(&near, &["--payload", &format!("file:{}", file.display())]);
    assert_eq!(unknown["account"]["corrupted"], Value::Null, "nobody knows the file: {unknown}");
    assert!(unknown["account"]["why"]["corrupted"].is_string(), "{unknown}");
    drop((relay.finish(), agreements));
    drop(receiver.stop());
    let report = json(&[&theirs]);
    let flows = report["flows"].as_array().expect("a list");
    let counts = flows.iter().filter_map(|flow| flow["account"]["corrupted"].as_u64());
    assert_eq!(counts.sum::<u64>(), changed, "{report}");
    assert_eq!(report["total"]["account"]["corrupted"], Value::Null, "one flow's is not known");
}
