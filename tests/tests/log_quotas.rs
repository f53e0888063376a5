//! Hosts without any secret that want to fill a receiver's disk with logs: limits of one log, and of all of them
//! together. Their flows go on, and what is not written is counted and told to both sides.
#![allow(missing_docs, reason = "tests")]

use std::fs;
use std::net::UdpSocket;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use itg_core::flow::FlowSpec;
use itg_session::{LogSummary, Message, OpenedFlow};
use itg_tests::{
    ClassicReceiver, Peer, Receiver, accounts, decode, now_ns, packet, send, sender, temp_dir,
    wait_for,
};

const LIMIT: Duration = Duration::from_secs(90);

/// Sends packets to a receiver that keeps their log under this name: how many came, and what it says about the
/// log; or why it refuses.
fn flood(receiver: &Receiver, name: &str, count: u64) -> Result<(u64, LogSummary), String> {
    let mut peer = Peer::greet(receiver, Some(name));
    peer.say(&Message::Open { flows: vec![FlowSpec::new(1)] });
    let Message::Opened { mut flows } = peer.hear() else { panic!("not opened") };
    let OpenedFlow { port, handle, .. } = flows.remove(0).result?;
    peer.say(&Message::Start { epoch_unix_ns: now_ns() });
    assert!(matches!(peer.hear(), Message::Started));
    let socket = UdpSocket::bind("127.0.0.1:0").expect("loopback");
    for seq in 0..count {
        socket.send_to(&packet(handle, seq, now_ns()), ("127.0.0.1", port)).expect("sent");
        // The receiver's buffer holds these; the log is what must not.
        if seq % 1000 == 999 {
            peer.ping();
            sleep(Duration::from_millis(20));
        }
    }
    let (counts, log) = peer.leave(count);
    Ok((counts.packets, log.expect("it keeps a log")))
}

/// Bytes of the files in a directory.
fn bytes_in(dir: &Path) -> u64 {
    let entries = fs::read_dir(dir).expect("readable");
    entries.map(|entry| entry.expect("there").metadata().expect("there").len()).sum()
}

#[test]
fn a_log_that_a_peer_names_ends_at_its_limit_and_its_flow_goes_on() {
    let dir = temp_dir();
    let logs = dir.path().to_str().expect("UTF-8");
    let mut receiver = Receiver::start(&["--log-dir", logs, "--max-log-size", "200k"]);
    let (arrived, log) = flood(&receiver, "big.itg", 20_000).expect("a log");
    assert_eq!(log.records + log.lost_records, arrived, "an exact account: {log:?}");
    assert!(log.records > 0 && log.lost_records > 10_000, "{log:?}");
    assert!(log.error.as_ref().is_some_and(|why| why.contains("--max-log-size")), "{log:?}");
    let path = dir.path().join("big.itg");
    assert!(fs::metadata(&path).expect("there").len() <= 200_000);
    // What was written is good, and the log itself says what is not in it.
    let path = path.to_str().expect("UTF-8");
    let done = decode(&[path, "--packets", "--format", "csv"]);
    assert_eq!(done.out.lines().count() as u64, 1 + log.records, "{}", done.err);
    let report = decode(&[path, "--format", "json"]).exits(1);
    let report: serde_json::Value = serde_json::from_str(&report.out).expect("JSON");
    let manifest = report["manifest"]["logs"][0].clone();
    assert_eq!(manifest["lost_records"], log.lost_records, "{manifest}");

    // A sender of ours says it, and ends with 1; the next one is served.
    let at = receiver.at();
    let flow = ["--packets", "8000", "--idt", "constant(50us)", "--size", "64"];
    let done = send(&[&[at.as_str(), "--recv-log", "own.itg"], &flow[..]].concat());
    let done = done.exits(1).says("own.itg").says("--max-log-size").says("records lost");
    assert_eq!(accounts(&done.out)[0].sent, 8000, "{done}");
    receiver.serves();
    let said = receiver.stop();
    for name in ["big.itg", "own.itg"] {
        let line = said.err.lines().find(|line| line.contains(name));
        let line = line.unwrap_or_else(|| panic!("nothing about {name}: {said}"));
        assert!(line.contains("--max-log-size"), "{line}");
    }
}

#[test]
fn all_logs_that_peers_name_together_have_a_limit() {
    let dir = temp_dir();
    let logs = dir.path().to_str().expect("UTF-8");
    fs::write(dir.path().join("there"), vec![0; 300_000]).expect("room");
    let mut receiver = Receiver::start(&["--log-dir", logs, "--max-log-bytes", "600k"]);
    let (mut ended, mut refused) = (0, 0);
    for name in 0..8 {
        let told = match flood(&receiver, &format!("{name}.itg"), 3000) {
            Err(why) => {
                refused += 1;
                Some(why)
            }
            Ok((arrived, log)) => {
                assert_eq!(log.records + log.lost_records, arrived, "{log:?}");
                assert_eq!(log.lost_records > 0, log.error.is_some(), "{log:?}");
                ended += u64::from(log.error.is_some());
                log.error
            }
        };
        assert!(told.as_ref().is_none_or(|why| why.contains("--max-log-bytes")), "{told:?}");
        assert!(bytes_in(dir.path()) <= 600_000, "{}", bytes_in(dir.path()));
    }
    assert!(ended > 0 && refused > 0, "{ended} ended, {refused} refused");
    receiver.serves();
    // What the user removes makes room again.
    fs::remove_file(dir.path().join("there")).expect("there");
    let at = receiver.at();
    let mut tries = 0;
    wait_for("room", LIMIT, || {
        tries += 1;
        let name = format!("again-{tries}.itg");
        let done = sender(&[at.as_str(), "--packets", "5", "--recv-log", &name]).finish(LIMIT);
        assert!(done.code == Some(0) || done.err.contains("--max-log-bytes"), "{done}");
        sleep(Duration::from_millis(500));
        done.code == Some(0)
    });
    drop(receiver.stop());
}

#[test]
fn logs_that_peers_of_d_itg_name_have_limits_too() {
    let receiver = ClassicReceiver::start(&["--log-dir", ".", "--max-log-size", "20k"]);
    drop(receiver.send(&["-z", "500", "-C", "5000", "-x", "log"]).exits(0));
    let kept = receiver.log("log").len();
    assert!(kept > 0 && kept < 500, "{kept} records");
    let path = receiver.file("log");
    assert!(fs::metadata(&path).expect("there").len() <= 20_000);
    let report = decode(&[path.to_str().expect("UTF-8"), "--format", "json"]);
    assert!(report.out.contains("\"packets\""), "{report}");
    drop(receiver.stop().says("--max-log-size").says("records lost"));
}

#[test]
fn limits_that_no_log_fits_in_are_refused() {
    for args in [&["--log-dir", ".", "--max-log-size", "100"][..], &["--max-log-bytes", "1G"]] {
        let mut command = std::process::Command::new(itg_tests::program("itg-recv"));
        let done = itg_tests::Running::start(command.args(args)).finish(LIMIT).exits(2);
        assert!(done.err.contains("--max-log-") || done.err.contains("--log-dir"), "{done}");
    }
    let mut command = std::process::Command::new(itg_tests::program("ITGRecv"));
    let small = ["--log-dir", ".", "--max-log-size", "100"];
    let done = itg_tests::Running::start(command.args(small)).finish(LIMIT).exits(1);
    assert!(done.err.contains("--max-log-size"), "{done}");
}
