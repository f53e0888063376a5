//! A log server and its producers with bad networks, dead programs and their own limits: what is
//! stored and what is reported missing is what was produced.
#![allow(missing_docs, reason = "tests")]

use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use itg_tests::{
    Impairment, LogServer, Output, Receiver, Relay, Running, accounts, decode, experiments,
    free_port, in_parallel, json, lists, packets, program, send, stored, temp_dir, wait_for,
};
use nix::sys::signal::Signal;

const LIMIT: Duration = Duration::from_secs(60);
/// Address of the tests' relays; servers are at 127.0.0.1.
const HERE: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));

/// Account of a producer of its log: records stored, produced, and missing or left out.
#[track_caller]
fn said(done: &Output) -> (u64, u64, u64) {
    let line = done.err.lines().find(|line| line.contains(" records stored"));
    let line = line.unwrap_or_else(|| panic!("no account of the log: {done}"));
    let number = |end: &str| {
        let before = line.split(end).next().filter(|before| before.len() < line.len());
        before.and_then(|before| before.rsplit([' ', ',']).next()?.parse().ok())
    };
    let (stored, all) = (number(" of "), number(" records stored"));
    let gone = number(" missing").unwrap_or(0) + number(" dropped for want of room").unwrap_or(0);
    (stored.expect("stored"), all.expect("produced"), gone)
}

/// Sends 10 000 packets in two seconds, with the log going here.
fn send_10_000(receiver: &Receiver, log: &[&str]) -> Running {
    send_packets("10000", receiver, log)
}

/// Sends so many packets, 5000 a second.
fn send_packets(count: &str, receiver: &Receiver, log: &[&str]) -> Running {
    let flow = ["--idt", "constant(200us)", "--size", "64", "--packets", count];
    receiver.begin(&[&flow[..], log].concat())
}

/// `itg-log forward` of this spool.
fn forward(spool: &Path, url: &str) -> Running {
    let mut command = Command::new(program("itg-log"));
    Running::start(command.arg("forward").arg(spool).args(["--to", url]))
}

#[test]
fn l_1_udp_loss_doubles_and_overtaking_add_up() {
    let rows = [
        (
            "all at once",
            Impairment { seed: 1, lost: 0.05, twice: 0.05, late: 0.1, ..Impairment::default() },
        ),
        (
            "overtaking and doubles only",
            Impairment { seed: 2, lost: 0.0, twice: 0.1, late: 0.2, ..Impairment::default() },
        ),
    ];
    in_parallel(&rows, |impairment| {
        let store = temp_dir();
        let server = LogServer::start(store.path(), &[""; 0]);
        let relay = Relay::start(HERE, server.address, *impairment);
        let receiver = Receiver::start(&["-v"]);
        let url = format!("udp://{}", relay.address);
        let done = send_10_000(&receiver, &["--log-server", &url]).finish(LIMIT);
        assert!(accounts(&done.out)[0].agreed, "{done}");
        receiver.stop();
        let told = server.stop();
        let files = experiments(store.path());
        let (there, _) = stored(&files);
        let decoded = decode(&[files[0].as_os_str()]);
        let relayed = relay.relayed();
        assert!(relayed.twice > 0 && relayed.late > 0, "{relayed:?}");
        assert!(told.err.contains(&format!("stored {there} records")), "{told}");
        assert!(decoded.err.contains("out of order"), "{decoded}");
        if relayed.lost == 0 {
            assert_eq!(there, 10_000, "{done}");
            // Out of order is no damage, and the decoder puts it right.
            decoded.exits(0);
            let seqs: Vec<u64> = lists(&packets(&files))[&1].iter().map(|p| p.0).collect();
            assert!(seqs.iter().copied().eq(0..10_000), "every packet once");
        } else {
            let (stored, all, gone) = said(&done);
            assert_eq!((stored, all, stored + gone), (there, 10_000, 10_000), "{done}");
            let decoded = decoded.exits(1);
            assert!(decoded.err.contains("missing"), "{decoded}");
        }
    });
}

#[test]
fn l_4_a_cut_connection_is_resumed_and_datagrams_of_the_outage_are_accounted() {
    in_parallel(&[("tcp", "tcp"), ("udp", "udp")], |transport| {
        let store = temp_dir();
        let server = LogServer::start(store.path(), &[""; 0]);
        let relay = Relay::start(HERE, server.address, Impairment::default());
        let receiver = Receiver::start(&["-v"]);
        let url = format!("{transport}://{}", relay.address);
        let sender = send_packets("30000", &receiver, &["--log-server", &url]);
        for _ in 0..2 {
            thread::sleep(Duration::from_millis(400));
            relay.cut();
            thread::sleep(Duration::from_millis(300));
            relay.heal();
        }
        let done = sender.finish(LIMIT);
        assert_eq!(accounts(&done.out)[0].sent, 30_000, "{done}");
        receiver.stop();
        server.stop();
        let files = experiments(store.path());
        let (there, _) = stored(&files);
        if *transport == "tcp" {
            assert_eq!(there, 30_000, "{done}");
            let report = json(&files);
            assert_eq!(report["damage"].as_array().map(Vec::len), Some(0), "{report}");
        } else if there < 30_000 {
            let (stored, all, gone) = said(&done);
            assert_eq!((stored, all, stored + gone), (there, 30_000, 30_000), "{done}");
        }
    });
}

#[test]
fn l_4_the_spool_of_a_killed_sender_is_forwarded_exactly_once() {
    let (store, dir) = (temp_dir(), temp_dir());
    let server = LogServer::start(store.path(), &[""; 0]);
    let (address, url) = (server.address.to_string(), server.url("tcp"));
    let spool = dir.path().join("spool.itg");
    let index = dir.path().join("spool.itg.index.jsonl");
    let receiver = Receiver::start(&["-v"]);
    // Two blocks of memory: whatever the server does not take goes to the spool after a second.
    let sender = receiver.begin(&[
        "--idt",
        "constant(200us)",
        "--duration",
        "30s",
        "--log-server",
        &url,
        "--log-spool",
        spool.to_str().expect("UTF-8"),
        "--log-block",
        "100",
        "--log-full",
        "wait",
        "--log-memory",
        "16k",
    ]);
    let grown = |file: &Path, bytes: u64| fs::metadata(file).is_ok_and(|data| data.len() > bytes);
    wait_for("records on the server", LIMIT, || {
        experiments(store.path()).first().is_some_and(|file| grown(file, 50_000))
    });
    server.kill();
    wait_for("a spool", LIMIT, || grown(&spool, 100_000));
    let busy = forward(&spool, &url).finish(LIMIT).exits(1);
    assert!(busy.err.contains("another program is using it"), "{busy}");
    sender.signal(Signal::SIGKILL);
    drop(sender.finish(LIMIT));
    drop(receiver);

    // No server: nothing happens to the spool.
    let away = forward(&spool, &url).finish(LIMIT).exits(1);
    assert!(away.err.contains("no log server at"), "{away}");
    let (blocks, lines) = (fs::read(&spool).expect("there"), fs::read(&index).expect("there"));
    let file = experiments(store.path()).remove(0);
    let held =
        decode(&[spool.as_os_str(), "--packets".as_ref(), "--format".as_ref(), "csv".as_ref()]);
    let in_spool = held.out.lines().count() as u64 - 1;
    let last = held.out.lines().last().and_then(|line| line.split(',').nth(1)?.parse::<u64>().ok());
    let last = last.expect("a sequence number");
    assert!(in_spool > 1_000, "{in_spool}");

    let server = LogServer::listening(&address, store.path(), &[""; 0]);
    // Killed on the way, and begun anew.
    let cut_short = forward(&spool, &url);
    thread::sleep(Duration::from_millis(5));
    cut_short.signal(Signal::SIGKILL);
    drop(cut_short.finish(LIMIT));
    // It may have been quick.
    if !spool.exists() || fs::metadata(&spool).is_ok_and(|data| data.len() == 0) {
        fs::write(&spool, &blocks).expect("writable");
        fs::write(&index, &lines).expect("writable");
    }
    let first = forward(&spool, &url).finish(LIMIT).exits(0);
    assert!(first.err.contains(&format!("{in_spool} records in")), "{first}");
    assert!(!spool.exists() && !index.exists(), "an empty spool is removed");
    // Once more with the same spool, as if its blocks had not been stored.
    fs::write(&spool, blocks).expect("writable");
    fs::write(&index, lines).expect("writable");
    forward(&spool, &url).finish(LIMIT).exits(0);
    server.stop();

    let after = decode(&[file.as_os_str()]).exits(0);
    assert!(after.err.contains("its writer was killed"), "{after}");
    let all = lists(&packets(&[&file]));
    let seqs: Vec<u64> = all[&1].iter().map(|packet| packet.0).collect();
    assert!(seqs.iter().copied().eq(0..=last), "up to {last}, each once");
}

#[test]
fn l_5_a_producer_without_room_leaves_blocks_out_or_waits_and_both_are_counted() {
    let rows = [("drop", "drop"), ("wait", "wait")];
    in_parallel(&rows, |policy| {
        let store = temp_dir();
        let server = LogServer::start(store.path(), &[""; 0]);
        let relay = Relay::start(HERE, server.address, Impairment::default());
        let receiver = Receiver::start(&["-v"]);
        let url = format!("tcp://{}", relay.address);
        let log = ["--log-server", &url, "--log-full", policy, "--log-block", "50"];
        let sender = send_packets("30000", &receiver, &log);
        thread::sleep(Duration::from_millis(500));
        relay.cut();
        thread::sleep(Duration::from_millis(500));
        relay.heal();
        let done = sender.finish(LIMIT);
        assert_eq!(accounts(&done.out)[0].sent, 30_000, "{done}");
        receiver.stop();
        let told = server.stop();
        let files = experiments(store.path());
        let there = stored(&files).0;
        if *policy == "wait" {
            assert_eq!(there, 30_000, "{done}");
            assert!(done.err.contains("packets waited for it"), "{done}");
        } else {
            let (stored, all, gone) = said(&done);
            assert_eq!((stored, all, stored + gone), (there, 30_000, 30_000), "{done}");
            assert!(gone >= 1_000, "half a second is 50 blocks: {done}");
            assert!(done.err.contains(&format!("{gone} left out for want of room")), "{done}");
            assert!(told.err.contains("left out by the producer"), "{told}");
        }
    });
}

#[test]
fn l_5_limits_of_the_server_are_named_and_nothing_is_stored_beyond_them() {
    let limits = [
        ("one log", ("--max-log-size", "takes 100kB of each log")),
        ("one experiment", ("--max-experiment-size", "takes 100kB of each experiment")),
    ];
    in_parallel(&limits, |(option, words)| {
        let store = temp_dir();
        let server = LogServer::start(store.path(), &[option, "100k"]);
        let receiver = Receiver::start(&["-v"]);
        let log = ["--log-server", &server.url("tcp"), "--log-block", "100"];
        let done = send_10_000(&receiver, &log).finish(LIMIT).exits(1).says(words);
        assert!(accounts(&done.out)[0].agreed, "the packets are none the worse: {done}");
        receiver.stop();
        server.stop();
        let files = experiments(store.path());
        let size = fs::metadata(&files[0]).expect("there").len();
        assert!((90_000..=100_000).contains(&size), "{size}");
        // What was acknowledged is there, and the rest is counted as lost.
        let line = done.err.lines().find(|line| line.starts_with("log tcp://")).expect("a summary");
        let told = line.rsplit(' ').nth(1).and_then(|word| word.parse::<u64>().ok());
        let told = told.unwrap_or_else(|| panic!("no count in {line:?}"));
        assert!(told <= stored(&files).0, "{done}");
        assert!(done.err.contains(&format!("({} records lost)", 10_000 - told)), "{done}");
    });
    let store = temp_dir();
    let server = LogServer::start(store.path(), &["--max-producers", "1"]);
    let (receiver, other) = (Receiver::start(&["-v"]), Receiver::start(&["-v"]));
    let sender = send_10_000(&receiver, &["--log-server", &server.url("tcp")]);
    let late = ["--packets", "1", "--log-server", &server.url("tcp"), &other.at()];
    // It tries again until there is room.
    send(&late).exits(0);
    sender.finish(LIMIT).exits(0);
    server.stop().says("stored 10001 records");
}

/// Nobody is left to wonder why nothing happens.
#[test]
fn a_log_server_that_is_away_is_waited_for_aloud() {
    let receiver = Receiver::start::<&str>(&[]);
    let url = format!("tcp://127.0.0.1:{}", free_port());
    let done = send(&[&receiver.at(), "--packets", "3", "--log-server", &url]);
    let said = format!(
        "the log server at {url} does not answer yet and is waited for: is itg-log running there?"
    );
    let done = done.exits(3).says(&said).says("no log server at 127.0.0.1").within(LIMIT);
    assert!(!done.err.contains("panicked"), "{done}");
}
