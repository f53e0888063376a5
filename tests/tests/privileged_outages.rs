//! Outages of the path between a sender and its receiver: the shorter ones cost packets, and no measurement. Needs root,
//! and nft.
#![allow(missing_docs, reason = "tests")]

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use itg_tests::{
    Cluster, NFT, Pair, Receiver, Running, accounts, flow_packets, in_parallel, leave_out, not_run,
    packets, program, temp_dir,
};
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(90);
/// Time that both sides' own work may take.
const MARGIN: Duration = Duration::from_secs(4);

/// A sender, its receiver, and the path between them.
struct Run {
    pair: Pair,
    receiver: Receiver,
    sender: Running,
    logs: [String; 2],
    began: Instant,
    _dir: tempfile::TempDir,
}

impl Run {
    /// Sends 200 packets a second for so long.
    fn start(duration: &str, patience: &str) -> Self {
        let (pair, dir) = (Pair::new(), temp_dir());
        let log = |name: &str| dir.path().join(name).to_str().expect("UTF-8").to_owned();
        let logs = [log("send.itg"), log("recv.itg")];
        let patience = ["--peer-timeout", patience];
        let words = ["-v", "--log", &logs[1]];
        let receiver =
            Receiver::run(pair.receiver.command(&program("itg-recv")).args(words).args(patience));
        let words = ["10.77.0.2", "--idt", "constant(5ms)", "--log", &logs[0], "--duration"];
        let mut sender = pair.sender.command(&program("itg-send"));
        let sender = Running::start(sender.args(words).arg(duration).args(patience).arg("-v"));
        drop(receiver.running.line_with(" flows", LIMIT));
        let began = Instant::now();
        thread::sleep(Duration::from_millis(900));
        Self { pair, receiver, sender, logs, began, _dir: dir }
    }

    /// Nothing comes through in either direction, and neither host is told so.
    fn cut(&self) {
        for host in [&self.pair.sender, &self.pair.receiver] {
            let chain = "{ type filter hook input priority 0; }";
            host.run(NFT, "add table inet cut");
            host.run(NFT, &format!("add chain inet cut in {chain}"));
            host.run(NFT, "add rule inet cut in drop");
        }
    }

    fn heal(&self) {
        for host in [&self.pair.sender, &self.pair.receiver] {
            host.run(NFT, "delete table inet cut");
        }
    }
}

#[test]
fn an_outage_of_the_path_costs_its_packets_and_no_more() {
    if not_run() {
        return;
    }
    if !Path::new(NFT).exists() {
        return leave_out(NFT);
    }
    in_parallel(
        &[("4 s", (4, "8s", 1600)), ("12 s", (12, "18s", 3600))],
        |&(outage, time, plan)| {
            let run = Run::start(time, "30s");
            run.cut();
            thread::sleep(Duration::from_secs(outage));
            run.heal();
            let done = run.sender.finish(LIMIT).exits(0);
            drop(run.receiver.stop());
            let account = &accounts(&done.out)[0];
            let received = account.received.expect("both accounts");
            assert_eq!(account.sent, plan, "{done}");
            let lost = plan - received;
            let most = outage * 200 + 400;
            assert!((outage * 200 - 20..most).contains(&lost), "{lost} lost: {done}");
            let joined = packets(&run.logs);
            let arrived = joined.iter().filter(|packet| packet.arrived.is_some()).count() as u64;
            assert_eq!((joined.len() as u64, arrived), (plan, received), "{done}");
        },
    );
}

/// The end of the plan bounds the wait for a silent receiver, whatever patience was asked for while packets flow.
#[test]
fn a_receiver_that_is_silent_at_the_end_is_waited_for_ten_seconds() {
    if not_run() {
        return;
    }
    if !Path::new(NFT).exists() {
        return leave_out(NFT);
    }
    let run = Run::start("3s", "60s");
    run.cut();
    let done = run.sender.finish(LIMIT).exits(4).says("it has not been heard of for ");
    let took = run.began.elapsed();
    drop(run.receiver.stop());
    assert_eq!(accounts(&done.out)[0].sent, 600, "{done}");
    assert!(took < Duration::from_secs(13) + MARGIN, "{took:?}: {done}");
}

#[test]
fn a_receiver_behind_a_cut_link_is_given_up() {
    if not_run() {
        return;
    }
    if !Path::new(NFT).exists() {
        return leave_out(NFT);
    }
    let run = Run::start("60s", "5s");
    run.pair.receiver.link(false);
    let done = run.sender.finish(LIMIT).exits(4).says("not been heard of for 5s");
    let account = &accounts(&done.out)[0];
    assert_eq!(packets(&run.logs[..1]).len() as u64, account.sent, "{done}");
    // The receiver gives the sender up, too, and serves the next one.
    drop(run.receiver.running.line_with("sender has not been heard of for 5s", LIMIT));
    run.pair.receiver.link(true);
    // Forgets that the receiver could not be found a moment ago.
    run.pair.sender.ip("neighbour flush dev link0");
    let words = ["10.77.0.2", "--packets", "3", "-v"];
    let mut next = run.pair.sender.command(&program("itg-send"));
    let done = Running::start(next.args(words)).finish(LIMIT).exits(0);
    assert!(done.out.contains("both sides agree"), "{done}");
    drop(run.receiver.stop());
}

/// A firewall lets signalling through, and no data: it is named what to open.
#[test]
fn a_closed_data_port_is_named() {
    if not_run() {
        return;
    }
    if !Path::new(NFT).exists() {
        return leave_out(NFT);
    }
    let rows = [
        ("udp", (4, "nothing of flow 1 arrived at 10.77.0.2: let UDP to port 8999 through")),
        ("tcp", (3, "connecting tcp to 10.77.0.2:8999: timed out: let TCP to port 8999 through")),
        ("icmp", (4, "nothing of flow 1 arrived at 10.77.0.2: let ICMP echo through")),
    ];
    in_parallel(&rows.map(|(proto, row)| (proto, (proto, row))), |&(proto, (code, words))| {
        let pair = Pair::new();
        let receiver = Receiver::run(pair.receiver.command(&program("itg-recv")).arg("-v"));
        pair.receiver.run(NFT, "add table inet cut");
        let chain = "{ type filter hook input priority 0; }";
        pair.receiver.run(NFT, &format!("add chain inet cut in {chain}"));
        for data in ["udp dport 8999", "tcp dport 8999", "icmp type echo-request"] {
            pair.receiver.run(NFT, &format!("add rule inet cut in {data} drop"));
        }
        let mut sender = pair.sender.command(&program("itg-send"));
        sender.args(["10.77.0.2", "--proto", proto, "--packets", "20", "--idt", "constant(5ms)"]);
        let done = Running::start(&mut sender).finish(LIMIT).exits(code);
        let said = done.out.clone() + &done.err;
        assert!(said.contains(words) && said.contains("docs/ports.md"), "{done}");
        drop(receiver.stop());
    });
}

#[test]
fn a_run_of_agents_names_what_to_open() {
    if not_run() {
        return;
    }
    if !Path::new(NFT).exists() {
        return leave_out(NFT);
    }
    let cluster = Cluster::apart(2);
    let host = &cluster.switch.as_ref().expect("hosts").hosts[1];
    host.run(NFT, "add table inet cut");
    host.run(NFT, "add chain inet cut in { type filter hook input priority 0; }");
    host.run(NFT, "add rule inet cut in udp length > 150 drop");
    let flow = |from, to| {
        format!(
            "[[flow]]\nfrom = \"{from}\"\nto = \"{to}\"\nidt = \"constant(5ms)\"\npackets = 100\n"
        )
    };
    let done = cluster.run(&(flow("a", "b") + &flow("b", "a")), &[]).finish(LIMIT).exits(4);
    let told: Vec<&str> = done.err.lines().filter(|line| line.contains("nothing of")).collect();
    let want = "nothing of flow 1 arrived at 10.78.0.2: let UDP to port ";
    assert!(told.len() == 1 && told[0].contains(want), "{done}");
    let manifest = std::fs::read_to_string(cluster.path("out").join("manifest.json"));
    let manifest: Value = serde_json::from_str(&manifest.expect("written")).expect("JSON");
    assert_eq!(manifest["settings"]["exit_code"], "4", "{done}");
}

/// The console's path to a node is bad while it fetches the logs: a connection that breaks is followed by another one,
/// which goes on where it broke.
#[test]
fn logs_come_over_a_path_that_is_slow_loses_or_is_cut() {
    if not_run() {
        return;
    }
    if !Path::new(NFT).exists() {
        return leave_out(NFT);
    }
    let rows = [
        ("slow", ("limit rate over 25 kbytes/second burst 20 kbytes drop", None)),
        ("30 % lost", ("numgen random mod 10 < 3 drop", None)),
        ("cut off", ("quota over 150 kbytes drop", Some(14))),
    ];
    in_parallel(&rows, |(bad, seconds)| {
        let cluster = Cluster::apart(2);
        let middle = &cluster.switch.as_ref().expect("hosts").middle;
        // What is short, as the members' own messages, comes through.
        middle.run(NFT, "add table inet cut");
        middle.run(NFT, "add chain inet cut in { type filter hook input priority 0; }");
        let long = "ip saddr 10.78.0.1 tcp sport 9020 meta length > 600";
        middle.run(NFT, &format!("add rule inet cut in {long} {bad}"));
        let flow =
            "[[flow]]\nfrom = \"a\"\nto = \"b\"\nidt = \"constant(200us)\"\npackets = 10000\n";
        let run = cluster.run(flow, &[]);
        if let Some(seconds) = seconds {
            thread::sleep(Duration::from_secs(*seconds));
            middle.run(NFT, "flush table inet cut");
        }
        let done = run.finish(LIMIT).exits(0);
        let report = cluster.report();
        for side in ["sender", "receiver"] {
            assert_eq!(flow_packets(&report, 1, side), 10_000, "{side}: {done}");
        }
    });
}
