//! The account of a flow against counters that are not ours: what the kernel refused, and what a flow did not reach.
//! Needs root, and nft.
#![allow(missing_docs, reason = "tests")]

use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use itg_tests::{Namespace, Output, Pair, Receiver, Running, leave_out, not_run, program};
use nix::sys::signal::Signal;
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(90);
const NFT: &str = "/usr/sbin/nft";

/// Runs a program of the host, which must do what it is asked.
fn run(host: &Namespace, name: &str, words: &str) -> String {
    let done = host.command(Path::new(name)).args(words.split(' ')).output().expect("it starts");
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{name} {words}: {said}");
    String::from_utf8(done.stdout).expect("text")
}

/// A firewall of the sending host that refuses three of ten datagrams for the data port, and counts them.
fn refuse_some(host: &Namespace) {
    for rule in [
        "add table inet a",
        "add counter inet a refused",
        "add chain inet a out { type filter hook output priority 0; }",
        "add rule inet a out udp dport > 1023 numgen random mod 100 < 30 counter name refused drop",
    ] {
        run(host, NFT, rule);
    }
}

fn refused(host: &Namespace) -> u64 {
    let text = run(host, NFT, "-j list counter inet a refused");
    let json: Value = serde_json::from_str(&text).expect("JSON");
    let entries = json["nftables"].as_array().expect("a list");
    let count = entries.iter().find_map(|entry| entry["counter"]["packets"].as_u64());
    count.expect("a counter")
}

fn count(account: &Value, part: &str) -> u64 {
    account[part].as_u64().unwrap_or_else(|| panic!("{part}: {account:#}"))
}

/// A queue of the sending host that is too short: what it drops, it drops without an error.
#[test]
fn what_the_senders_own_queue_drops_is_not_told_as_the_networks() {
    if not_run() {
        return;
    }
    let dir = itg_tests::temp_dir();
    let log = dir.path().join("s.itg");
    let path = log.to_str().expect("UTF-8");
    let pair = Pair::new();
    let receiver = Receiver::run(&mut pair.receiver.command(&program("itg-recv")));
    let flow = ["--rate", "500pps", "--size", "1000", "--packets", "1000", "--log", path];
    let whole = &send(&pair, &flow, 0)["flows"][0];
    assert_eq!(whole["account"]["lost"]["sender_host"], 0, "{whole:#}");
    assert_eq!(decode(&[&log])[0]["account"]["lost"]["sender_host"], 0);
    // What the network loses is the network's where the host has lost nothing.
    if Path::new(NFT).exists() {
        for rule in [
            "add table netdev l",
            "add chain netdev l in { type filter hook ingress device link0 priority 0; }",
            "add rule netdev l in udp length > 900 numgen random mod 10 < 2 drop",
        ] {
            run(&pair.receiver, NFT, rule);
        }
        let lossy = &send(&pair, &flow, 0)["flows"][0];
        assert!(lossy["lost"].as_u64() > Some(50), "{lossy:#}");
        let decoded = &decode(&[&log])[0];
        adds_up(decoded);
        assert_eq!(decoded["account"]["lost"]["network"], decoded["lost"], "{decoded:#}");
        assert_eq!(decoded["account"]["lost"]["sender_host"], 0, "{decoded:#}");
        run(&pair.receiver, NFT, "delete table netdev l");
    }
    pair.sender.tc("qdisc add dev link0 root tbf rate 3mbit burst 4kb limit 8kb");
    let flow_now = &send(&pair, &flow, 0)["flows"][0];
    let lost = flow_now["lost"].as_u64().expect("known");
    assert!(lost > 100, "{flow_now:#}");
    for flow in [flow_now, &decode(&[&log])[0]] {
        adds_up(flow);
        let account = &flow["account"];
        assert_eq!(account["lost"]["unknown"], lost, "{account:#}");
        for place in ["sender_host", "network"] {
            assert_eq!(account["lost"][place], Value::Null, "{account:#}");
        }
        let why = account["why"]["lost.sender_host"].as_str().expect("a reason");
        assert!(why.starts_with("the sender's host dropped "), "{why}");
        let counted = why.split(' ').nth(4).and_then(|n| n.parse::<u64>().ok()).expect("a number");
        // The signalling may have lost some, too, and the kernel drops packets joined for TCP as one.
        assert!((lost..lost + 20).contains(&counted), "{counted} dropped, {lost} lost");
        assert!(flow["notices"].to_string().contains("tc -s qdisc"), "{flow:#}");
    }
    drop(receiver.stop());
}

/// Panics unless the known parts of an account add up.
fn adds_up(flow: &Value) {
    let account = &flow["account"];
    let of = |part: &str| count(account, part);
    let parts = of("sent") + of("refused") + of("left_out") + of("not_reached");
    assert_eq!(of("planned"), parts, "{account:#}");
    if let (Some(arrived), Some(lost)) = (account["arrived"].as_u64(), flow["lost"].as_u64()) {
        assert_eq!(of("sent"), arrived + lost, "{account:#}");
        let places = account["lost"].as_object().expect("an object").values();
        assert_eq!(places.filter_map(Value::as_u64).sum::<u64>(), lost, "{account:#}");
    }
}

/// Sends, and gives the report of the program's end.
fn send(pair: &Pair, args: &[&str], code: i32) -> Value {
    let mut command = pair.sender.command(&program("itg-send"));
    command.args(["10.77.0.2", "--json"]).args(args);
    let done = Running::start(&mut command).finish(LIMIT).exits(code);
    serde_json::from_str(&done.out).unwrap_or_else(|error| panic!("{error}: {done}"))
}

/// Entries of the logs.
fn decode(logs: &[&Path]) -> Vec<Value> {
    let mut command = std::process::Command::new(program("itg-decode"));
    let done = Running::start(command.args(logs).args(["--format", "json"])).finish(LIMIT).exits(0);
    let report: Value = serde_json::from_str(&done.out).expect("one object");
    report["flows"].as_array().expect("a list").clone()
}

fn has_cause(flow: &Value) -> bool {
    let causes = flow["fidelity"]["causes"].as_array().expect("a list");
    causes.contains(&"incomplete".into())
}

#[test]
fn what_the_senders_kernel_refused_is_in_each_account() {
    if not_run() {
        return;
    }
    if !Path::new(NFT).exists() {
        return leave_out(NFT);
    }
    let dir = itg_tests::temp_dir();
    let (ours, theirs) = (dir.path().join("s.itg"), dir.path().join("r.itg"));
    let text = |path: &Path| path.to_str().expect("UTF-8").to_owned();
    let pair = Pair::new();
    let receiver = Receiver::run(pair.receiver.command(&program("itg-recv")).args([
        "-v",
        "--log",
        &text(&theirs),
    ]));
    refuse_some(&pair.sender);
    let log = text(&ours);
    let mut before = 0;
    for way in [&["--log", &log][..], &["--meter", "rtt"], &["--burst", "4"]] {
        let flow = ["--rate", "1000pps", "--size", "200", "--packets", "1000", "--seed", "7"];
        let report = send(&pair, &[&flow[..], way].concat(), 1);
        let flow = &report["flows"][0];
        adds_up(flow);
        let now = refused(&pair.sender);
        let account = &flow["account"];
        // The kernel drops joined packets of a burst as one.
        if !way.contains(&"--burst") {
            assert_eq!(count(account, "refused"), now - before, "{way:?}: {account:#}");
            assert_eq!(account["refused_by"]["EPERM"], account["refused"], "{account:#}");
        }
        assert!(count(account, "refused") > 0, "{way:?}: {account:#}");
        assert_eq!(count(account, "planned"), 1000, "{way:?}: {account:#}");
        assert_eq!(flow["fidelity"]["verdict"], "fail", "{way:?}: {flow:#}");
        assert!(has_cause(flow), "{flow:#}");
        before = now;
    }
    drop(receiver.stop());
    let flows = [&[ours.as_path()][..], &[theirs.as_path()], &[ours.as_path(), theirs.as_path()]];
    for flow in flows.iter().flat_map(|logs| decode(logs)) {
        adds_up(&flow);
        assert_eq!(count(&flow["account"], "planned"), 1000, "{flow:#}");
        assert!(count(&flow["account"], "refused") > 0, "{flow:#}");
        assert_eq!(flow["fidelity"]["verdict"], "fail", "{flow:#}");
    }
}

#[test]
fn what_a_flow_did_not_reach_is_in_each_account() {
    if not_run() {
        return;
    }
    let pair = Pair::new();
    let flow = ["--rate", "500pps", "--size", "200", "--packets", "1500"];
    let begin = |args: &[&str]| {
        let mut command = pair.sender.command(&program("itg-send"));
        Running::start(command.args(["10.77.0.2", "--json"]).args(flow).args(args))
    };
    let told = |done: &Output| -> Value {
        let report: Value =
            serde_json::from_str(&done.out).unwrap_or_else(|e| panic!("{e}: {done}"));
        report["flows"][0].clone()
    };
    let start = || Receiver::run(pair.receiver.command(&program("itg-recv")).args(["-v"]));
    let half = Duration::from_millis(1500);

    // The link goes down for a while: the kernel has no route, and says so.
    let receiver = start();
    let sending = begin(&["--proto", "udp"]);
    sleep(half / 2);
    pair.sender.link(false);
    sleep(half / 2);
    pair.sender.link(true);
    let flow = told(&sending.finish(LIMIT).exits(1));
    adds_up(&flow);
    assert!(count(&flow["account"], "refused") > 100, "{flow:#}");
    assert_eq!(flow["fidelity"]["verdict"], "fail", "{flow:#}");

    // A connection is reset in the middle.
    let sending = begin(&["--proto", "tcp"]);
    sleep(half);
    run(&pair.sender, "ss", "-K dst 10.77.0.2 dport = 8999");
    let flow = told(&sending.finish(LIMIT).exits(4));
    adds_up(&flow);
    assert!(count(&flow["account"], "not_reached") > 300, "{flow:#}");
    assert_eq!(flow["fidelity"]["verdict"], "fail", "{flow:#}");
    // What was in its buffers is neither the network's nor the socket's.
    assert_eq!(flow["account"]["lost"]["receiver_gone"], flow["lost"], "{flow:#}");

    // An interrupt is the user's wish, and changes no verdict.
    let sending = begin(&[]);
    sleep(half);
    sending.signal(Signal::SIGINT);
    let flow = told(&sending.finish(LIMIT).exits(130));
    adds_up(&flow);
    assert!(count(&flow["account"], "not_reached") > 300, "{flow:#}");
    assert_eq!(flow["account"]["why"]["not_reached"], "interrupted by SIGINT", "{flow:#}");
    assert_ne!(flow["fidelity"]["verdict"], "fail", "{flow:#}");

    // The receiver is killed.
    let sending = begin(&[]);
    sleep(half);
    receiver.running.signal(Signal::SIGKILL);
    let flow = told(&sending.finish(LIMIT).exits(4));
    let account = &flow["account"];
    let parts = ["sent", "refused", "left_out", "not_reached"].map(|part| count(account, part));
    assert_eq!(parts.iter().sum::<u64>(), 1500, "{account:#}");
    assert!(parts[3] > 300 && flow["lost"].is_null(), "{flow:#}");
    assert_eq!(flow["fidelity"]["verdict"], "fail", "{flow:#}");
}

/// A translator of addresses that forgets a flow gives it another port: its packets are the flow's, and do not count.
#[test]
fn what_comes_from_another_port_of_the_sender_is_told_as_that() {
    if not_run() {
        return;
    }
    if !Path::new(NFT).exists() {
        return leave_out(NFT);
    }
    let dir = itg_tests::temp_dir();
    let paths = ["s.itg", "r.itg"].map(|name| dir.path().join(name));
    let log = paths[0].to_str().expect("UTF-8");
    let pair = Pair::new();
    for rule in [
        "add table ip m",
        "add chain ip m out { type filter hook postrouting priority 300; }",
        "add counter ip m moved",
    ] {
        run(&pair.sender, NFT, rule);
    }
    let mut command = pair.receiver.command(&program("itg-recv"));
    let receiver = Receiver::run(command.arg("--log").arg(&paths[1]));
    let mut command = pair.sender.command(&program("itg-send"));
    let flow = ["--rate", "500pps", "--size", "200", "--packets", "1000", "--log", log];
    let sending = Running::start(command.args(["10.77.0.2", "--json"]).args(flow));
    sleep(Duration::from_millis(1200));
    let rule = "udp length 208 counter name moved udp sport set 40009";
    run(&pair.sender, NFT, &format!("add rule ip m out {rule}"));
    let done = sending.finish(LIMIT).exits(0);
    drop(receiver.stop());
    let json: Value =
        serde_json::from_str(&run(&pair.sender, NFT, "-j list counter ip m moved")).expect("JSON");
    let entries = json["nftables"].as_array().expect("a list");
    let moved = entries.iter().find_map(|entry| entry["counter"]["packets"].as_u64());
    let moved = moved.filter(|count| *count > 100).expect("some have moved");
    let live: Value = serde_json::from_str(&done.out).expect("one object");
    let [sent, got] = [[paths[0].as_path()], [&paths[1]]].map(|logs| decode(&logs).remove(0));
    for flow in [&live["flows"][0], &sent, &got, &decode(&paths.each_ref().map(|p| p.as_path()))[0]]
    {
        adds_up(flow);
        let lost = &flow["account"]["lost"];
        assert_eq!((&lost["rebound"], &lost["network"]), (&moved.into(), &0.into()), "{flow:#}");
        assert!(flow["foreign_packets"].as_u64().is_none_or(|n| n == 0), "{flow:#}");
        assert!(flow["notices"].to_string().contains("another port"), "{flow:#}");
    }
}

#[test]
fn a_plan_that_was_carried_out_adds_up_and_one_without_a_number_has_none() {
    if not_run() {
        return;
    }
    let pair = Pair::new();
    let receiver = Receiver::run(pair.receiver.command(&program("itg-recv")).args(["-v"]));
    for (args, planned) in [
        (&["--rate", "1000pps", "--packets", "500"][..], Some(500)),
        (&["--idt", "exp(1ms)", "--duration", "500ms"], None),
        (&["--idt", "exp(1ms)", "--duration", "500ms", "--on-off", "exp(50ms),exp(50ms)"], None),
        (&["--rate", "1000pps", "--packets", "300", "--meter", "rtt"], Some(300)),
        (&["--proto", "tcp", "--rate", "max", "--bytes", "1MB", "--size", "1000"], Some(1000)),
    ] {
        let report = send(&pair, args, 0);
        let flow = &report["flows"][0];
        adds_up(flow);
        let account = &flow["account"];
        let of = |part: &str| count(account, part);
        assert_eq!((of("refused"), of("not_reached")), (0, 0), "{args:?}: {account:#}");
        assert_eq!(of("planned"), of("sent") + of("left_out"), "{args:?}: {account:#}");
        assert!(planned.is_none_or(|planned| of("planned") == planned), "{args:?}: {account:#}");
    }
    let report = send(&pair, &["--rate", "max", "--duration", "300ms", "--proto", "tcp"], 0);
    let account = &report["flows"][0]["account"];
    assert!(account["planned"].is_null(), "{account:#}");
    let why = account["why"]["planned"].as_str().expect("a reason");
    assert!(why.contains("as fast as possible"), "{why}");
    drop(receiver.stop());
}
