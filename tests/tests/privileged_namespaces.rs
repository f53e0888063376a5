//! Two hosts joined by a link; what both sides count is what a packet capture saw. Needs root.
#![allow(missing_docs, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::thread;
use std::time::Duration;

use itg_tests::{
    Account, Capture, CapturedPacket, Output, Pair, Receiver, Running, accounts, in_parallel, json,
    lists, not_run, packets, program, temp_dir,
};
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(90);

/// Starts `itg-send` on the sending host.
fn sender(pair: &Pair, args: &[&str]) -> Running {
    Running::start(pair.sender.command(&program("itg-send")).args(args).arg("-v"))
}

/// Starts `itg-recv` on the receiving host, on its usual ports.
fn receiver(pair: &Pair, log: &str) -> Receiver {
    Receiver::run(pair.receiver.command(&program("itg-recv")).args(["-v", "--log", log]))
}

/// A run, its capture and its logs.
struct Run {
    done: Output,
    accounts: Vec<Account>,
    seen: Vec<CapturedPacket>,
    report: Value,
}

/// Sends to a fresh receiver while everything on its link is captured.
fn run(pair: &Pair, args: &[&str]) -> Run {
    let dir = temp_dir();
    let log = |name: &str| dir.path().join(name).to_str().expect("UTF-8").to_owned();
    let (ours, theirs) = (log("send.itg"), log("recv.itg"));
    let receiver = receiver(pair, &theirs);
    let capture = Capture::start(&pair.receiver);
    let done = sender(pair, &[args, &["--log", &ours]].concat()).finish(LIMIT).exits(0);
    let seen = capture.end();
    drop(receiver.stop());
    let accounts = accounts(&done.out);
    let report = json(&[&ours, &theirs]);
    let joined = packets(&[&ours, &theirs]);
    let received: u64 = accounts.iter().filter_map(|account| account.received).sum();
    let arrived = joined.iter().filter(|packet| packet.arrived.is_some()).count() as u64;
    let rtt = args.windows(2).any(|two| two == ["--meter", "rtt"]);
    if !rtt {
        assert_eq!(arrived, received, "the logs against the account: {done}");
    }
    assert_eq!(lists(&joined).len(), accounts.len());
    Run { done, accounts, seen, report }
}

impl Run {
    /// All sides agree: nothing was lost.
    fn agreed(&self) {
        for account in &self.accounts {
            assert!(account.agreed, "{}\n{}", account.line, self.done);
        }
    }

    /// The flows of a protocol by source port, as the logs have it.
    fn ports(&self, proto: &str) -> BTreeMap<u16, &Account> {
        let flows = self.report["flows"].as_array().expect("a list");
        let mut ports = BTreeMap::new();
        for account in &self.accounts {
            let flow = flows.iter().find(|flow| flow["flow"] == account.flow).expect("in the logs");
            if flow["proto"] == proto {
                let src = flow["src"].as_str().expect("an address");
                let src: SocketAddr = src.parse().expect("with a port");
                ports.insert(src.port(), account);
            }
        }
        ports
    }
}

/// Packets and payload bytes of a flow, and its headers: handle and sequence number.
type Datagrams = (u64, u64, BTreeSet<(u32, u64)>);

/// Datagrams of a capture to this host, by source port.
fn datagrams(seen: &[CapturedPacket], to: IpAddr) -> BTreeMap<u16, Datagrams> {
    let mut flows = BTreeMap::<u16, Datagrams>::new();
    for packet in seen.iter().filter(|packet| packet.is_udp() && packet.dst == to) {
        let flow = flows.entry(packet.src_port).or_default();
        flow.0 += 1;
        flow.1 += packet.payload;
        flow.2.insert(packet.header);
    }
    flows
}

/// Bytes of the streams of a capture to this port, by source port: from SYN to FIN.
fn streams(seen: &[CapturedPacket], to: IpAddr, port: u16) -> BTreeMap<u16, u64> {
    const FIN: u8 = 1;
    const SYN: u8 = 2;
    let mut flows = BTreeMap::<u16, (Option<u32>, Option<u32>)>::new();
    let data =
        |packet: &&CapturedPacket| packet.is_tcp() && packet.dst == to && packet.dst_port == port;
    for packet in seen.iter().filter(data) {
        let flow = flows.entry(packet.src_port).or_default();
        let (seq, flags) = packet.tcp;
        if flags & SYN != 0 {
            flow.0 = Some(seq.wrapping_add(1));
        }
        if flags & FIN != 0 {
            flow.1 = Some(seq.wrapping_add(u32::try_from(packet.payload).expect("a segment")));
        }
    }
    let length = |(port, (first, end)): (u16, (Option<u32>, Option<u32>))| {
        let (first, end) = (first.expect("a SYN"), end.expect("a FIN"));
        (port, u64::from(end.wrapping_sub(first)))
    };
    flows.into_iter().map(length).collect()
}

struct Case {
    to: &'static str,
    proto: &'static str,
    meter: &'static str,
}

const fn case(to: &'static str, proto: &'static str, meter: &'static str) -> Case {
    Case { to, proto, meter }
}

#[test]
fn both_sides_agree_with_a_capture() {
    if not_run() {
        return;
    }
    in_parallel(
        &[
            ("udp v4", case("10.77.0.2", "udp", "owd")),
            ("udp v6", case("fd77::2", "udp", "owd")),
            ("udp v6 link-local", case("fe80::2%link0", "udp", "owd")),
            ("udp v4 rtt", case("10.77.0.2", "udp", "rtt")),
            ("tcp v4", case("10.77.0.2", "tcp", "owd")),
            ("tcp v6", case("fd77::2", "tcp", "owd")),
            ("tcp v6 link-local rtt", case("fe80::2%link0", "tcp", "rtt")),
            ("icmp v4", case("10.77.0.2", "icmp", "owd")),
            ("icmp v4 rtt", case("10.77.0.2", "icmp", "rtt")),
            ("icmp v6", case("fd77::2", "icmp", "owd")),
            ("icmp v6 link-local rtt", case("fe80::2%link0", "icmp", "rtt")),
        ],
        agrees_with_a_capture,
    );
}

fn agrees_with_a_capture(case: &Case) {
    let pair = Pair::new();
    let args = [case.to, "--proto", case.proto, "--meter", case.meter, "--flows", "3"];
    let distributions = ["--idt", "exp(5ms)", "--size", "uniform(64,1400)", "--packets", "150"];
    let run = run(&pair, &[&args[..], &distributions].concat());
    run.agreed();
    assert_eq!(run.accounts.len(), 3, "{}", run.done);
    let ip = case.to.split('%').next().expect("never empty");
    let to: IpAddr = ip.parse().expect("an address");
    let bytes: BTreeSet<u64> = run.accounts.iter().map(|account| account.sent_bytes).collect();
    match case.proto {
        "udp" => {
            let ports = run.ports("udp");
            let captured = datagrams(&run.seen, to);
            assert!(captured.keys().eq(ports.keys()), "{ports:?}");
            for (port, (count, length, headers)) in captured {
                let account = ports[&port];
                assert_eq!((count, length), (account.sent, account.sent_bytes), "{}", account.line);
                let handles: BTreeSet<u32> = headers.iter().map(|header| header.0).collect();
                assert_eq!(handles.len(), 1, "one handle a flow");
                assert!(headers.iter().map(|header| header.1).eq(0..account.sent));
            }
        }
        "tcp" => {
            let ports = run.ports("tcp");
            let captured = streams(&run.seen, to, 8999);
            assert!(captured.keys().eq(ports.keys()), "{ports:?} {captured:?}");
            for (port, length) in captured {
                let account = ports[&port];
                assert_eq!(length, account.sent_bytes, "{}", account.line);
            }
        }
        _ => {
            let mut captured = BTreeMap::<u32, (u64, u64)>::new();
            for echo in run.seen.iter().filter(|packet| packet.is_echo() && packet.dst == to) {
                let flow = captured.entry(echo.header.0).or_default();
                flow.0 += 1;
                flow.1 += echo.payload;
            }
            assert!(captured.values().all(|flow| flow.0 == 150), "{captured:?}");
            let lengths: BTreeSet<u64> = captured.values().map(|flow| flow.1).collect();
            assert_eq!(lengths, bytes);
        }
    }
}

#[test]
fn a_file_with_64_flows_agrees_with_a_capture() {
    if not_run() {
        return;
    }
    in_parallel(&[("v4", "10.77.0.2"), ("v6", "[fd77::2]")], |address| {
        let pair = Pair::new();
        let dir = temp_dir();
        let file = dir.path().join("many.toml");
        let text = format!(
            "schema = 1\nname = \"many\"\nseed = 42\n[nodes]\na = {{ address = \"10.77.0.1\" }}\n\
             b = {{ address = \"{address}\" }}\n\
             [[flow]]\nfrom = \"a\"\nto = \"b\"\nidt = \"exp(20ms)\"\nsize = \"uniform(64,1400)\"\n\
             count = 32\npackets = 40\n\
             [[flow]]\nfrom = \"a\"\nto = \"b\"\nproto = \"tcp\"\nidt = \"exp(20ms)\"\n\
             size = \"uniform(100,1000)\"\ncount = 16\npackets = 40\n\
             [[flow]]\nfrom = \"a\"\nto = \"b\"\nproto = \"icmp\"\nidt = \"exp(20ms)\"\n\
             size = 100\ncount = 16\npackets = 40\n"
        );
        fs::write(&file, text).expect("a file");
        let run = run(&pair, &["run", file.to_str().expect("UTF-8")]);
        run.agreed();
        assert_eq!(run.accounts.len(), 64, "{}", run.done);
        assert!(run.done.out.contains("total: 2560 packets"), "{}", run.done);
        let to: IpAddr = address.trim_matches(['[', ']']).parse().expect("an address");
        let ports = run.ports("udp");
        let udp = datagrams(&run.seen, to);
        assert_eq!(udp.len(), 32);
        for (port, (count, length, headers)) in udp {
            let account = ports[&port];
            assert!(account.flow <= 32, "{}", account.line);
            assert_eq!((count, length), (account.sent, account.sent_bytes), "{}", account.line);
            assert_eq!(headers.len(), 40);
        }
        let ports = run.ports("tcp");
        let tcp = streams(&run.seen, to, 8999);
        assert_eq!(tcp.len(), 16);
        for (port, length) in tcp {
            let account = ports[&port];
            assert_eq!(length, account.sent_bytes, "{}", account.line);
        }
        let echoes = run.seen.iter().filter(|packet| packet.is_echo() && packet.dst == to);
        let headers: BTreeSet<_> = echoes.clone().map(|packet| packet.header).collect();
        assert_eq!((echoes.count(), headers.len()), (640, 640));
    });
}

#[test]
fn socket_options_are_seen_on_the_link() {
    if not_run() {
        return;
    }
    let to_v4 = ["10.77.0.2", "--ttl", "17", "--dscp", "EF"];
    let to_v6 = ["fd77::2", "--ttl", "17", "--dscp", "EF"];
    in_parallel(
        &[
            ("udp v4", (to_v4, "udp")),
            ("udp v6", (to_v6, "udp")),
            ("tcp v4", (to_v4, "tcp")),
            ("tcp v6", (to_v6, "tcp")),
            ("icmp v4", (to_v4, "icmp")),
            ("icmp v6", (to_v6, "icmp")),
        ],
        |(args, proto)| {
            let pair = Pair::new();
            let mut more = vec!["--proto", proto, "--packets", "20", "--interface", "link0"];
            let v6 = args[0].contains(':');
            let source = if v6 { "fd77::1" } else { "10.77.0.11" };
            more.extend(["--source", source]);
            if *proto != "icmp" {
                more.extend(["--source-port", "40404", "--dest-port", "5005"]);
            }
            if *proto == "udp" {
                more.extend(["--ecn", "ect0"]);
            }
            let run = run(&pair, &[&args[..], &more].concat());
            run.agreed();
            let to: IpAddr = args[0].parse().expect("an address");
            let ours = |packet: &&CapturedPacket| {
                packet.dst == to
                    && match *proto {
                        "udp" => packet.is_udp(),
                        // The kernel answers by itself, with its own time to live, once the socket is gone.
                        "tcp" => packet.is_tcp() && packet.dst_port == 5005 && packet.payload > 0,
                        _ => packet.is_echo(),
                    }
            };
            let sent: Vec<_> = run.seen.iter().filter(ours).collect();
            assert!(sent.len() >= if *proto == "tcp" { 1 } else { 20 }, "{sent:?}");
            for packet in sent {
                assert_eq!(packet.ttl, 17, "{packet:?}");
                assert_eq!(packet.tos >> 2, 46, "EF: {packet:?}");
                assert_eq!(packet.tos & 3, if *proto == "udp" { 2 } else { 0 }, "{packet:?}");
                assert_eq!(packet.src, source.parse::<IpAddr>().expect("an address"));
                if *proto != "icmp" {
                    assert_eq!((packet.src_port, packet.dst_port), (40404, 5005));
                }
            }
        },
    );
}

#[test]
fn wishes_that_the_host_cannot_meet_are_refused() {
    if not_run() {
        return;
    }
    let pair = Pair::new();
    let dir = temp_dir();
    let receiver = receiver(&pair, dir.path().join("recv.itg").to_str().expect("UTF-8"));
    for (args, words) in [
        (["--interface", "nope0"], "nope0"),
        (["--source", "10.99.0.1"], "10.99.0.1"),
        (["--source", "fd77::1"], "IP version"),
    ] {
        let done = sender(&pair, &[&["10.77.0.2", "--packets", "3"], &args[..]].concat());
        let done = done.finish(LIMIT).within(Duration::from_secs(15));
        assert!(matches!(done.code, Some(1..=3)), "{done}");
        assert!(format!("{}{}", done.out, done.err).contains(words), "{done}");
    }
    drop(sender(&pair, &["fe80::2", "--packets", "3"]).finish(LIMIT).exits(2).says("%eth0"));
    let done = sender(&pair, &["10.77.0.2", "--packets", "3"]).finish(LIMIT).exits(0);
    assert!(done.out.contains("both sides agree"), "{done}");
    drop(receiver.stop());
}

#[test]
fn losses_are_what_the_link_lost() {
    if not_run() {
        return;
    }
    in_parallel(&[("v4", "10.77.0.2"), ("v6", "fd77::2")], |to| {
        let pair = Pair::new();
        pair.sender.tc("qdisc add dev link0 root tbf rate 1mbit burst 4kb limit 8kb");
        let args = [to, "--rate", "3Mbps", "--size", "500", "--packets", "800"];
        let run = run(&pair, &args);
        let account = &run.accounts[0];
        let to: IpAddr = to.parse().expect("an address");
        let captured: u64 = datagrams(&run.seen, to).values().map(|flow| flow.0).sum();
        let lost = account.sent - captured;
        assert!(lost > 100, "the link is too narrow: {}", account.line);
        assert_eq!(account.received, Some(captured), "{}", account.line);
        let words = format!("{lost} packets lost in the network");
        assert!(account.line.contains(&words), "{}", account.line);
        let flows = run.report["flows"].as_array().expect("a list");
        let flow = flows.iter().find(|flow| flow["side"] == "receiver").expect("the receiver's");
        assert_eq!(flow["lost"], lost, "{flow}");
        assert_eq!(flow["packets"], captured, "{flow}");
        assert!(flow["loss_bursts"].as_u64() > Some(0), "{flow}");
    });
}

#[test]
fn bursts_that_their_socket_has_no_room_for_wait_and_arrive() {
    const PACKETS: u64 = 20_000;
    if not_run() {
        return;
    }
    // Whole bursts, parts of bursts, and what the kernel cuts where it lies.
    let cases = [
        ("64 of 400 B", ["64", "400", "20mbit"]),
        ("24 of 400 B", ["24", "400", "20mbit"]),
        ("64 of 1400 B", ["64", "1400", "60mbit"]),
    ];
    in_parallel(&cases, |[burst, size, link]| {
        let pair = Pair::new();
        // What waits there fills the socket's buffer.
        pair.sender.tc(&format!("qdisc add dev link0 root tbf rate {link} burst 64kb limit 20mb"));
        let count = PACKETS.to_string();
        let args = ["10.77.0.2", "--burst", burst, "--rate", "25000pps", "--size", size];
        let run = run(&pair, &[&args[..], &["--packets", &count]].concat());
        run.agreed();
        assert_eq!(run.accounts[0].sent, PACKETS, "{}", run.accounts[0].line);
        let waited = "packets had to wait because the queue of the socket or the device was full";
        assert!(run.done.out.contains(waited), "{}", run.done);
    });
}

#[test]
fn what_comes_back_on_a_slow_way_is_waited_for() {
    if not_run() {
        return;
    }
    // More than the receiver's socket has room for; a reply every half second.
    let cases = [("TCP", ["tcp", "100", "200kbit"]), ("UDP", ["udp", "5", "16kbit"])];
    in_parallel(&cases, |[proto, count, link]| {
        let pair = Pair::new();
        pair.receiver
            .tc(&format!("qdisc add dev link0 root tbf rate {link} burst 1600 limit 400kb"));
        let args = ["10.77.0.2", "--proto", proto, "--meter", "rtt", "--idt", "constant(10ms)"];
        let run = run(&pair, &[&args[..], &["--size", "1000", "--packets", count]].concat());
        let words = format!("{count} replies came back, 0 did not");
        assert!(run.accounts[0].line.contains(&words), "{}", run.done);
    });
}

#[test]
fn a_link_that_is_cut_for_a_while_costs_packets_and_not_the_run() {
    if not_run() {
        return;
    }
    in_parallel(&[("at the sender", true), ("at the receiver", false)], |&at_sender| {
        let pair = Pair::new();
        let dir = temp_dir();
        let log = |name: &str| dir.path().join(name).to_str().expect("UTF-8").to_owned();
        let (ours, theirs) = (log("send.itg"), log("recv.itg"));
        let receiver = receiver(&pair, &theirs);
        let capture = Capture::start(&pair.receiver);
        let args = ["10.77.0.2", "--idt", "constant(5ms)", "--packets", "1000", "--log", &ours];
        let running = sender(&pair, &args);
        drop(receiver.running.line_with(" flows", LIMIT));
        thread::sleep(Duration::from_millis(900));
        let end = if at_sender { &pair.sender } else { &pair.receiver };
        end.ip("link set link0 down");
        thread::sleep(Duration::from_millis(600));
        end.ip("link set link0 up");
        let done = running.finish(LIMIT).exits(i32::from(at_sender));
        let captured: u64 = datagrams(&capture.end(), "10.77.0.2".parse().expect("an address"))
            .values()
            .map(|flow| flow.0)
            .sum();
        drop(receiver.stop());
        let account = &accounts(&done.out)[0];
        assert_eq!(account.received, Some(captured), "{done}");
        assert!((100..1000).contains(&captured), "{captured}: {done}");
        let failed = 1000 - account.sent;
        if failed > 0 {
            let words = format!("{failed} packets not taken by the sender's kernel");
            assert!(account.line.contains(&words), "{}", account.line);
        }
        let joined = packets(&[&ours, &theirs]);
        let arrived = joined.iter().filter(|packet| packet.arrived.is_some()).count() as u64;
        assert_eq!((joined.len() as u64, arrived), (account.sent, captured), "{done}");
        let last = joined.iter().rfind(|packet| packet.arrived.is_some()).map(|packet| packet.seq);
        assert_eq!(last, Some(999), "the flow goes on when the link does");
    });
}
