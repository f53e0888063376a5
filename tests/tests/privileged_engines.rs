//! The engine beyond sockets: what it puts on a link is what sockets would, and what it cannot do it
//! refuses in words. Needs root.
#![allow(missing_docs, reason = "tests")]

use std::net::IpAddr;
use std::process::Command;
use std::thread;
use std::time::Duration;

use itg_tests::{
    Account, Capture, CapturedPacket, Output, Pair, Receiver, Running, accounts, in_parallel,
    not_run, packets, program, temp_dir,
};

const LIMIT: Duration = Duration::from_secs(60);

/// A run with its capture; the logs have been joined.
struct Run {
    done: Output,
    accounts: Vec<Account>,
    seen: Vec<CapturedPacket>,
}

/// Sends with an engine to a fresh receiver while the link is captured, `meanwhile` something happens.
fn run(pair: &Pair, engine: &str, args: &[&str], meanwhile: impl FnOnce()) -> Run {
    run_to(0, pair, engine, args, meanwhile)
}

/// The same of a run that ends with this code: 1 where the kernel refused packets.
fn run_to(code: i32, pair: &Pair, engine: &str, args: &[&str], meanwhile: impl FnOnce()) -> Run {
    let dir = temp_dir();
    let log = |name: &str| dir.path().join(name).to_str().expect("UTF-8").to_owned();
    let (ours, theirs) = (log("send.itg"), log("recv.itg"));
    let mut command = pair.receiver.command(&program("itg-recv"));
    let receiver = Receiver::run(command.args(["-v", "--log", &theirs]));
    let capture = Capture::start(&pair.receiver);
    let mut command = pair.sender.command(&program("itg-send"));
    let running =
        Running::start(command.args(args).args(["-v", "--engine", engine, "--log", &ours]));
    drop(receiver.running.line_with(" flows", LIMIT));
    meanwhile();
    let done = running.finish(LIMIT).exits(code);
    let seen = capture.end();
    drop(receiver.stop());
    let accounts = accounts(&done.out);
    let joined = packets(&[&ours, &theirs]);
    let sent: u64 = accounts.iter().map(|account| account.sent).sum();
    let received: u64 = accounts.iter().filter_map(|account| account.received).sum();
    assert!(joined.iter().all(|packet| packet.sent.is_some()), "a record without its twin: {done}");
    let arrived = joined.iter().filter(|packet| packet.arrived.is_some()).count() as u64;
    assert_eq!((joined.len() as u64, arrived), (sent, received), "{done}");
    let log = std::fs::read(&ours).expect("the sender's log");
    let setting = format!("\"engine\":\"{engine}\"");
    let told = log.windows(setting.len()).any(|bytes| bytes == setting.as_bytes());
    assert!(told, "the engine is in the log: {done}");
    Run { done, accounts, seen }
}

impl Run {
    /// Datagrams to an address, as far as they do not depend on the run.
    fn datagrams(&self, to: IpAddr) -> Vec<(u64, u64, u64, u8, u8, IpAddr, u16)> {
        let ours = self.seen.iter().filter(|packet| packet.is_udp() && packet.dst == to);
        let mut list: Vec<_> = ours
            .map(|p| (p.header.1, p.payload, p.content, p.ttl, p.tos, p.src, p.dst_port))
            .collect();
        list.sort_unstable();
        list
    }
}

#[test]
fn frames_are_those_that_sockets_send() {
    if not_run() {
        return;
    }
    in_parallel(&[("v4", "10.77.0.2"), ("v6", "fd77::2"), ("link-local", "fe80::2%link0")], |to| {
        let pair = Pair::new();
        let distributions = ["--idt", "exp(2ms)", "--size", "uniform(64,1400)", "--packets", "150"];
        let options = ["--ttl", "17", "--dscp", "EF", "--ecn", "ect0", "--flows", "3"];
        let args = [&[*to, "--seed", "77"], &distributions[..], &options[..]].concat();
        let ip: IpAddr = to.split('%').next().expect("never empty").parse().expect("an address");
        let [sockets, frames] = ["socket", "xdp"].map(|engine| {
            let run = run(&pair, engine, &args, || {});
            assert!(run.accounts.iter().all(|account| account.agreed), "{}", run.done);
            assert_eq!(run.accounts.len(), 3, "{}", run.done);
            run.datagrams(ip)
        });
        assert_eq!(sockets.len(), 450);
        assert_eq!(frames, sockets);
        assert!(frames.iter().all(|packet| (packet.3, packet.4) == (17, 46 << 2 | 2)));
    });
}

#[test]
fn flat_out_and_back_again() {
    if not_run() {
        return;
    }
    in_parallel(
        &[
            ("v4", ["10.77.0.2", "--idt", "constant(0s)", "--packets", "20000"]),
            ("v4 rtt", ["10.77.0.2", "--idt", "exp(2ms)", "--meter", "rtt"]),
            ("v6 rtt", ["fd77::2", "--idt", "exp(2ms)", "--meter", "rtt"]),
        ],
        |args| {
            let pair = Pair::new();
            let rtt = args.contains(&"rtt");
            let end: &[&str] = if rtt { &["--packets", "200"] } else { &["--size", "64"] };
            let run = run(&pair, "xdp", &[&args[..], end].concat(), || {});
            let account = &run.accounts[0];
            assert_eq!(account.sent, if rtt { 200 } else { 20_000 }, "{}", run.done);
            if rtt {
                assert!(account.line.contains("200 replies came back"), "{}", run.done);
            }
        },
    );
}

#[test]
fn a_cut_link_costs_packets_that_are_counted() {
    if not_run() {
        return;
    }
    in_parallel(&[("at the sender", true), ("at the receiver", false)], |&at_sender| {
        let pair = Pair::new();
        let end = if at_sender { &pair.sender } else { &pair.receiver };
        let cut = || {
            thread::sleep(Duration::from_millis(900));
            end.ip("link set link0 down");
            thread::sleep(Duration::from_millis(600));
            end.ip("link set link0 up");
        };
        let args = ["10.77.0.2", "--idt", "constant(5ms)", "--packets", "1000"];
        let run = run_to(1, &pair, "xdp", &args, cut);
        let account = &run.accounts[0];
        let captured = run.datagrams("10.77.0.2".parse().expect("an address"));
        assert_eq!(account.received, Some(captured.len() as u64), "{}", run.done);
        // Nothing that had waited leaves later, nothing leaves twice.
        assert_eq!(captured.len() as u64, account.sent, "{}", run.done);
        let failed = 1000 - account.sent;
        assert!((1..900).contains(&failed), "{}", run.done);
        let words = format!("{failed} packets not taken by the sender's kernel");
        assert!(account.line.contains(&words), "{}", account.line);
        assert_eq!(captured.last().map(|packet| packet.0), Some(999), "it goes on with the link");
    });
}

#[test]
fn what_does_not_fit_the_link_is_not_sent_and_counted() {
    if not_run() {
        return;
    }
    let pair = Pair::new();
    let args = ["10.77.0.2", "--idt", "constant(1ms)", "--size", "uniform(1400,1530)"];
    let run = run_to(1, &pair, "xdp", &[&args[..], &["--packets", "400"]].concat(), || {});
    let account = &run.accounts[0];
    let captured = run.datagrams("10.77.0.2".parse().expect("an address"));
    // A link of 1500 bytes has room for 1472 behind the headers of IPv4 and UDP.
    assert!(captured.iter().any(|packet| packet.1 > 1450), "{}", run.done);
    assert!(captured.iter().all(|packet| packet.1 <= 1472), "{}", run.done);
    assert_eq!(captured.len() as u64, account.sent, "{}", run.done);
    assert!((1..400).contains(&account.sent), "{}", run.done);
    assert!(run.done.out.contains("Message too long"), "{}", run.done);
}

#[test]
fn what_it_cannot_do_is_refused_in_words() {
    if not_run() {
        return;
    }
    let pair = Pair::new();
    let start = |to: &str, args: &[&str]| {
        let mut command = pair.sender.command(&program("itg-send"));
        let args = [&[to, "--engine", "xdp", "--packets", "3"], args].concat();
        Running::start(command.args(args)).finish(LIMIT)
    };
    drop(start("10.77.0.2", &["--proto", "tcp"]).exits(2).says("UDP only"));
    drop(start("10.77.0.2", &["--burst", "8"]).exits(2).says("not in bursts"));
    let mut command = pair.sender.command(&program("itg-recv"));
    let receiver = Receiver::run(&mut command);
    for to in ["127.0.0.1", "10.77.0.11", "::1"] {
        let done = start(to, &[]).exits(3);
        assert!(done.out.contains("is this host itself"), "{done}");
    }
    drop(receiver.stop());
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set", "-net_raw", "--inh-caps", "-net_raw"]);
    command.arg(program("itg-send")).args(["127.0.0.1", "--engine", "xdp"]);
    drop(Running::start(&mut command).finish(LIMIT).exits(1).says("CAP_NET_RAW"));
}
