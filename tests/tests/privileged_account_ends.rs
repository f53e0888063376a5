//! Accounts where a program is killed, a log is not whole, packets come twice or in another order, and where an experiment
//! or a program of D-ITG sends; against counters of both kernels. Needs root, and nft.
#![allow(missing_docs, reason = "tests")]

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use itg_tests::{
    Case, DATAGRAMS, Impairment, LONG, LogServer, NFT, Output, PLAIN, Pair, Receiver, Relay, Run,
    Running, Way, adds_up, experiments, free_port, json, leave_out, listens, not_run, program,
    table, temp_dir, wait_for,
};
use nix::sys::signal::Signal;
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(90);
const TCP: &str = "--proto tcp --rate 250pps --size 200 --packets 500";

fn report(done: &Output) -> Value {
    serde_json::from_str(&done.out).unwrap_or_else(|error| panic!("{error}: {done}"))
}

fn count(flow: &Value, part: &str) -> u64 {
    flow["account"][part].as_u64().unwrap_or_else(|| panic!("{part}: {:#}", flow["account"]))
}

fn kill_sender(run: &Run<'_>) {
    run.sending.signal(Signal::SIGKILL);
}

fn kill_receiver(run: &Run<'_>) {
    run.receiver.running.signal(Signal::SIGKILL);
}

/// True where a test is left out.
fn no_nft() -> bool {
    let missing = !not_run() && !Path::new(NFT).exists();
    if missing {
        leave_out(NFT);
    }
    missing || !nix::unistd::geteuid().is_root()
}

#[test]
fn what_nobody_tells_is_unknown() {
    const SENDER: Case =
        Case { args: LONG, code: None, event: Some(kill_sender), fails: true, ..PLAIN };
    const RECEIVER: Case = Case { code: Some(4), event: Some(kill_receiver), ..SENDER };
    const REVERSE: &str = "--reverse --rate 250pps --size 200 --packets 500";
    table(&[
        ("the sender is killed", SENDER),
        (
            "the sender is killed, and its log has some blocks",
            Case { args: "--rate 250pps --size 200 --packets 500 --log-block 16", ..SENDER },
        ),
        (
            "the receiver is killed, and its log has some blocks",
            Case { receiver: "--log-block 16", ..RECEIVER },
        ),
        ("the sender is killed, tcp", Case { args: TCP, ..SENDER }),
        (
            "the sender is killed, round trips",
            Case {
                args: "--meter rtt --rate 250pps --size 200 --packets 500",
                way: Way::RoundTrip,
                ..SENDER
            },
        ),
        (
            "the sender is killed, icmp",
            Case { args: "--proto icmp --rate 250pps --size 200 --packets 500", ..SENDER },
        ),
        ("the receiver is killed", RECEIVER),
        ("the receiver is killed, tcp", Case { args: TCP, ..RECEIVER }),
        (
            "the receiver is killed, icmp",
            Case { args: "--proto icmp --rate 250pps --size 200 --packets 500", ..RECEIVER },
        ),
        ("the sender is killed, reverse", Case { args: REVERSE, way: Way::Back, ..RECEIVER }),
        ("the receiver is killed, reverse", Case { args: REVERSE, way: Way::Back, ..SENDER }),
    ]);
}

#[test]
fn what_arrived_and_is_not_in_a_log_is_not_lost() {
    // Of 500 records some 200 find room.
    const THEIRS: Case =
        Case { disks: ["", "16k"], receiver: "--log-block 64", code: Some(1), ..PLAIN };
    table(&[
        ("a full disk of the receiver", THEIRS),
        (
            "a full disk of the receiver, tcp",
            Case { args: "--proto tcp --rate 500pps --size 200 --packets 500", ..THEIRS },
        ),
        ("a full disk of the receiver, and losses", Case { lose: ["", DATAGRAMS], ..THEIRS }),
        (
            "a full disk of the sender",
            Case {
                args: "--rate 500pps --size 200 --packets 500 --log-block 64",
                disks: ["16k", ""],
                code: Some(1),
                ..PLAIN
            },
        ),
        (
            "a full disk of the sender, tcp",
            Case {
                args: "--proto tcp --rate 500pps --size 200 --packets 500",
                disks: ["8k", ""],
                code: Some(1),
                ..PLAIN
            },
        ),
        (
            "a full disk at the end of round trips",
            Case {
                args: "--meter rtt --rate 500pps --size 200 --packets 500",
                way: Way::RoundTrip,
                disks: ["8k", ""],
                code: Some(1),
                ..PLAIN
            },
        ),
    ]);
}

#[test]
fn a_log_server_that_dies_takes_records_and_no_packets() {
    let store = temp_dir();
    let server = LogServer::start(store.path(), &[""; 0]);
    let receiver =
        Receiver::start(&["-v", "--log-server", &server.url("tcp"), "--log-flush", "100ms"]);
    let at = receiver.at();
    let mut command = Command::new(program("itg-send"));
    command.args([&*at, "--json"]).args(LONG.split(' '));
    let sending = Running::start(&mut command);
    let has_records = || {
        let files = experiments(store.path());
        let long = |file: &_| std::fs::metadata(file).is_ok_and(|data| data.len() > 6000);
        files.first().is_some_and(long)
    };
    wait_for("records on the server", LIMIT, has_records);
    server.kill();
    let done = sending.finish(LIMIT);
    let live = report(&done)["flows"][0].clone();
    adds_up("live", &live);
    assert_eq!([count(&live, "sent"), count(&live, "arrived")], [500, 500], "{done}");
    // It would wait for its server to come back.
    receiver.running.signal(Signal::SIGKILL);
    drop(receiver.running.finish(LIMIT));
    let flow = json(&experiments(store.path()))["flows"][0].clone();
    adds_up("what is left at the server", &flow);
    assert!(flow["lost"].is_null(), "{flow:#}");
    assert_ne!(flow["fidelity"]["verdict"], "pass", "{flow:#}");
}

/// Packets over UDP that a relay loses, doubles and delays by its list.
#[test]
fn what_came_twice_or_late_arrived_once() {
    let dir = temp_dir();
    let path = |name: &str| dir.path().join(name).to_str().expect("UTF-8").to_owned();
    let (theirs, port) = (path("r.itg"), free_port().to_string());
    let mut command = Command::new(program("itg-recv"));
    command.args(["--listen", &format!("127.0.0.1:{}", free_port()), "--data-port", &port]);
    let receiver = Receiver::run(command.args(["-v", "--log", &theirs]));
    let other = IpAddr::from([127, 0, 0, 3]);
    let data = SocketAddr::new(receiver.address.ip(), port.parse().expect("a port"));
    let bad = Impairment { seed: 7, lost: 0.1, twice: 0.1, late: 0.1, ..Impairment::default() };
    let agreements = Relay::start(other, receiver.address, Impairment::default());
    for (k, meter) in ["owd", "rtt"].iter().enumerate() {
        let relay = Relay::start(other, data, bad);
        let ours = path(&format!("s{k}.itg"));
        let mut command = Command::new(program("itg-send"));
        command.args([&agreements.address.to_string(), "--json", "--log", &ours]);
        command.args(["--meter", meter]).args(PLAIN.args.split(' '));
        let done = Running::start(&mut command).finish(LIMIT).exits(0);
        let datagrams = relay.finish().datagrams;
        let arrived = datagrams.iter().filter(|datagram| !datagram.copies.is_empty()).count();
        let copies: usize = datagrams.iter().map(|datagram| datagram.copies.len()).sum();
        let logs = json(&[&ours]);
        for (view, flow) in [("live", &report(&done)["flows"][0]), ("its log", &logs["flows"][0])] {
            adds_up(view, flow);
            assert_eq!(count(flow, "sent"), datagrams.len() as u64, "{meter}, {view}: {done}");
            assert_eq!(count(flow, "arrived"), arrived as u64, "{meter}, {view}: {done}");
            let doubled = flow["account"]["duplicated"].as_u64();
            assert!(doubled.is_none_or(|n| n == (copies - arrived) as u64), "{meter}: {flow:#}");
        }
    }
    drop(receiver.stop());
    for flow in json(&[&theirs])["flows"].as_array().expect("a list") {
        adds_up("log of the receiver", flow);
    }
}

#[test]
fn experiments_have_the_account_of_what_was_refused() {
    if no_nft() {
        return;
    }
    let (pair, dir) = (Pair::new(), temp_dir());
    pair.sender.count();
    pair.sender.refuse(DATAGRAMS);
    let receiver = Receiver::run(pair.receiver.command(&program("itg-recv")).arg("-v"));
    let file = dir.path().join("e.toml");
    let experiment = |to: &str| {
        let text = format!(
            "schema = 1\nname = 'refused'\nseed = 3\n[nodes]\na = {{ address = '10.77.0.1' }}\n\
             b = {{ address = '{to}' }}\n[[flow]]\nfrom = 'a'\nto = 'b'\nidt = 'constant(2ms)'\n\
             size = '200'\npackets = 300\ncount = 2\n"
        );
        std::fs::write(&file, text).expect("written");
    };
    let run = |name: &str, words: &[&str]| {
        let mut command = pair.sender.command(&program(name));
        Running::start(command.arg("run").arg(&file).args(words)).finish(LIMIT)
    };
    let judge = |done: &Output, refused: u64| {
        let report = report(done);
        let flows = report["flows"].as_array().expect("a list");
        let flows: Vec<_> = flows.iter().filter(|flow| flow["side"] == "receiver").collect();
        assert_eq!(flows.len(), 2, "{done}");
        flows.iter().for_each(|flow| adds_up("experiment", flow));
        let sum = |part: &str| flows.iter().map(|flow| count(flow, part)).sum::<u64>();
        assert_eq!([sum("planned"), sum("refused")], [600, refused], "{done}");
        assert_eq!(sum("sent"), 600 - refused, "{done}");
        for flow in flows.into_iter().filter(|flow| count(flow, "refused") > 3) {
            assert_eq!(flow["fidelity"]["verdict"], "fail", "{done}");
        }
    };
    experiment("10.77.0.2");
    let done = run("itg-send", &["--json"]).exits(1);
    let before = pair.sender.counted("refused");
    judge(&done, before);
    drop(receiver.stop());
    // All of it on one host.
    experiment("10.77.0.1");
    let out = dir.path().join("out").display().to_string();
    let done = run("itg-cluster", &["--local", "--out", &out, "--format", "json"]).exits(1);
    judge(&done, pair.sender.counted("refused") - before);
}

/// D-ITG's programs keep its exit codes.
#[test]
fn programs_of_d_itg_tell_what_was_refused() {
    if no_nft() {
        return;
    }
    let (pair, dir) = (Pair::new(), temp_dir());
    pair.sender.count();
    pair.sender.refuse(DATAGRAMS);
    let mut command = pair.receiver.command(&program("ITGRecv"));
    let receiver = Running::start(command.current_dir(dir.path()));
    listens(&receiver, 9000);
    let mut before = 0;
    for (name, words) in [
        ("ITGSend", "-a 10.77.0.2 -C 500 -c 200 -z 300"),
        ("ITGSend", "-a 10.77.0.2 -m rttm -C 500 -c 200 -z 300"),
        ("itg-send", "--classic 10.77.0.2 --rate 500pps --size 200 --packets 300"),
    ] {
        let mut command = pair.sender.command(&program(name));
        command.current_dir(dir.path()).args(words.split(' '));
        let done = Running::start(&mut command).finish(LIMIT).exits(0);
        let refused = pair.sender.counted("refused") - before;
        before += refused;
        assert_eq!(refused, 30, "{done}");
        let words = "flow 1: 30 of 300 packets were refused by the kernel (EPERM)";
        drop(done.says(&format!("{name}: {words}")));
    }
    receiver.signal(Signal::SIGINT);
    drop(receiver.finish(LIMIT));
}
