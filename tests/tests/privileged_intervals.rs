//! Lines for intervals over a link that is narrower than what is sent. Needs root.
#![allow(missing_docs, reason = "tests")]

use std::time::Duration;

use itg_tests::{Pair, Receiver, Running, in_parallel, interval_lines, not_run, program};
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(90);

/// What lies in the buffers of sockets has neither arrived nor been lost: the rate is that of the link.
#[test]
fn the_rate_of_tcp_is_that_of_what_arrives() {
    if not_run() {
        return;
    }
    let cases = [("one way", &[][..]), ("both ways", &["--bidir"])];
    in_parallel(&cases, |way| {
        let pair = Pair::new();
        for host in [&pair.sender, &pair.receiver] {
            host.tc("qdisc add dev link0 root tbf rate 20mbit burst 32kb limit 400kb");
        }
        let receiver = Receiver::run(
            pair.receiver.command(&program("itg-recv")).args(["-v", "--allow-reverse"]),
        );
        let flow = ["--proto", "tcp", "--rate", "max", "--size", "1400", "--duration", "3s"];
        let mut command = pair.sender.command(&program("itg-send"));
        command.arg("10.77.0.2").args(*way).args(flow).args(["--json", "--interval", "500ms"]);
        let done = Running::start(&mut command).finish(LIMIT).exits(0);
        let report: Value = serde_json::from_str(&done.out).expect("one object");
        let lines = interval_lines(&done.err);
        let ours: Vec<_> = lines.iter().filter(|line| line.sent.is_some()).collect();
        assert!(ours.len() >= 5, "{done}");
        for line in &lines {
            // More where a process was kept from reading; what goes into buffers is several times that.
            assert!(line.bps.is_none_or(|bps| bps < 30e6), "{}", line.text);
            assert!(line.lost.is_none() && !line.text.contains("missing"), "{}", line.text);
        }
        assert!(ours.iter().any(|line| line.away > Some(0)), "{done}");
        let packets: u64 = lines.iter().filter_map(|line| line.received).map(|told| told.0).sum();
        assert_eq!(report["total"]["packets"], packets, "{done}");
        drop(receiver.stop());
    });
}

/// A link that drops what it has no room for: each window tells the loss of its packets.
#[test]
fn what_a_narrow_link_drops_is_the_loss_of_its_window() {
    if not_run() {
        return;
    }
    let pair = Pair::new();
    pair.sender.tc("qdisc add dev link0 root tbf rate 1mbit burst 4kb limit 8kb");
    let receiver = Receiver::run(pair.receiver.command(&program("itg-recv")).arg("-v"));
    let flow = ["--rate", "3Mbps", "--size", "500", "--packets", "1600"];
    let mut command = pair.sender.command(&program("itg-send"));
    command.arg("10.77.0.2").args(flow).args(["--json", "--interval", "500ms"]);
    let done = Running::start(&mut command).finish(LIMIT).exits(0);
    let report: Value = serde_json::from_str(&done.out).expect("one object");
    let lines = interval_lines(&done.err);
    let lost: u64 = lines.iter().filter_map(|line| line.lost).sum();
    assert_eq!(report["total"]["lost"], lost, "{done}");
    for line in &lines {
        // The link may drop the question to the receiver, too: then the next line tells of both windows.
        let told = line.received.is_some();
        assert_eq!((line.lost.is_some(), line.text.contains("arrivals unknown")), (told, !told));
        assert!(!told || line.bps.is_none_or(|bps| bps < 2e6), "{}", line.text);
    }
    let (mut sent, mut known) = (0, 0);
    for line in &lines {
        sent += line.sent.expect("told").0;
        let Some(((received, _), lost)) = line.received.zip(line.lost) else { continue };
        known += received + lost;
        assert_eq!(known + line.away.unwrap_or(0), sent, "{}", line.text);
        // Two of three, but for what the queue and its bucket take first.
        let share = 100 * lost / (received + lost).max(1);
        assert!(received + lost < 50 || (40..80).contains(&share), "{}", line.text);
    }
    assert_eq!(sent, 1600, "{done}");
    drop(receiver.stop());
}
