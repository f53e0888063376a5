//! A receiver that takes frames before the network stack: the same packets and reports as through sockets,
//! everything else left to the kernel, nothing left behind. Needs root.
#![allow(missing_docs, reason = "tests")]

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::thread;
use std::time::Duration;

use itg_tests::{
    Namespace, Packet, Pair, Receiver, Running, accounts, decode, in_parallel, json, not_run,
    packets, program, temp_dir, wait_for,
};
use nix::sys::signal::Signal;
use serde_json::Value;
use socket2::{Domain, Protocol, Socket, Type};

const LIMIT: Duration = Duration::from_secs(60);
const MODES: [&str; 2] = ["native", "generic"];

/// Starts a receiver of the second host with these options.
fn receiver(pair: &Pair, options: &[&str]) -> Receiver {
    let mut command = pair.receiver.command(&program("itg-recv"));
    Receiver::run(command.args(["-v"]).args(options))
}

/// The options of one that takes frames.
fn taking(mode: &str) -> Vec<&str> {
    vec!["--engine", "xdp", "--interface", "link0", "--xdp-mode", mode]
}

fn sender(pair: &Pair, args: &[&str]) -> Running {
    let mut command = pair.sender.command(&program("itg-send"));
    Running::start(command.args(args).arg("-v"))
}

/// UDP datagrams that the network stack of a host has delivered, of both versions.
fn delivered(host: &Namespace) -> u64 {
    host.within(|| {
        let text = |name: &str| {
            std::fs::read_to_string(Path::new("/proc/thread-self/net").join(name))
                .expect("counters")
        };
        let v4 = text("snmp");
        let mut udp = v4.lines().filter_map(|line| line.strip_prefix("Udp: "));
        let (names, values) = (udp.next().expect("names"), udp.next().expect("values"));
        let place = names.split(' ').position(|name| name == "InDatagrams").expect("a column");
        let v4: u64 = values.split(' ').nth(place).expect("a value").parse().expect("a number");
        let v6 = text("snmp6");
        let v6 = v6.lines().find_map(|line| line.strip_prefix("Udp6InDatagrams")).expect("a line");
        v4 + v6.trim().parse::<u64>().expect("a number")
    })
}

/// A run as the receiver saw it.
struct Run {
    /// Flow, number and size of each packet.
    packets: Vec<(u32, u64, u64)>,
    report: Value,
    /// Datagrams that its network stack has delivered meanwhile.
    delivered: u64,
    /// Packets whose arrival is not the time of their reading.
    stamped: usize,
}

fn run(pair: &Pair, receiving: &[&str], sending: &[&str]) -> Run {
    let dir = temp_dir();
    let log = dir.path().join("recv.itg");
    let log = log.to_str().expect("UTF-8");
    let before = delivered(&pair.receiver);
    let running = receiver(pair, &[receiving, &["--log", log]].concat());
    let done = sender(pair, sending).finish(LIMIT).exits(0);
    let said = running.stop();
    let accounts = accounts(&done.out);
    assert!(
        !accounts.is_empty() && accounts.iter().all(|account| account.agreed),
        "{done}\n{said}"
    );
    let all = packets(&[log]);
    let stamped = all.iter().filter(|packet| packet.arrived != packet.read).count();
    let mut list: Vec<_> =
        all.iter().map(|&Packet { flow, seq, size, .. }| (flow, seq, size)).collect();
    list.sort_unstable();
    let delivered = delivered(&pair.receiver) - before;
    Run { packets: list, report: json(&[log]), delivered, stamped }
}

/// What a report says of each flow but its times, addresses and ports.
fn counted(report: &Value) -> Vec<(Vec<Value>, Vec<Value>)> {
    let names = ["flow", "proto", "packets", "bytes", "lost", "duplicated"];
    let told = |flow: &Value| {
        let notices = flow["notices"].as_array().expect("notices").iter();
        // A busy machine holds up the sender.
        let of_time =
            |text: &&Value| !text.as_str().is_some_and(|text| text.contains("stood still"));
        (names.map(|name| flow[name].clone()).to_vec(), notices.filter(of_time).cloned().collect())
    };
    report["flows"].as_array().expect("flows").iter().map(told).collect()
}

#[test]
fn every_packet_arrives_once_with_the_report_of_sockets() {
    if not_run() {
        return;
    }
    let cases = [
        ("v4, 1", ("10.77.0.2", "1")),
        ("v6, 1", ("fd77::2", "1")),
        ("link-local", ("fe80::2%link0", "1")),
        ("v4, 64", ("10.77.0.2", "64")),
        ("v6, 64", ("fd77::2", "64")),
    ];
    in_parallel(&cases, |&(to, flows)| {
        let count = if flows == "1" { 2_000 } else { 100 };
        let packets = count.to_string();
        let idt = if flows == "1" { "exp(1ms)" } else { "exp(10ms)" };
        let options = ["--seed", "5", "--idt", idt, "--size", "uniform(20,1400)"];
        let sending = [&[to, "--flows", flows, "--packets", &packets], &options[..]].concat();
        let mut want = None;
        for engine in ["socket", "xdp"] {
            let sending = [&sending[..], &["--engine", engine]].concat();
            let pair = Pair::new();
            let sockets = run(&pair, &[], &sending);
            let all = count * flows.parse::<u64>().expect("a number");
            assert_eq!((sockets.packets.len() as u64, sockets.delivered), (all, all));
            let want = want.get_or_insert_with(|| sockets.packets.clone());
            for mode in MODES {
                let frames = run(&pair, &taking(mode), &sending);
                let what = format!("{mode}, sent with {engine}");
                assert!(frames.packets == *want, "{what}: other packets");
                let [ours, theirs] = [&frames.report, &sockets.report].map(counted);
                assert!(ours == theirs, "{what}: {:?} {:?}", ours.first(), theirs.first());
                assert_eq!(frames.delivered, 0, "{what}: none went through the stack");
                // Two reads of a clock may agree.
                assert!(frames.stamped as u64 > all * 9 / 10, "{what}: {}", frames.stamped);
            }
        }
    });
}

#[test]
fn round_trips_bursts_and_proofs_work_as_ever() {
    if not_run() {
        return;
    }
    in_parallel(&[("native", "native"), ("generic", "generic")], |&mode| {
        let pair = Pair::new();
        let dir = temp_dir();
        let secret = dir.path().join("secret");
        itg_tests::write_secret(&secret, "a secret of some length\n");
        let secret = secret.to_str().expect("UTF-8");
        let receiver = receiver(&pair, &[&taking(mode)[..], &["--secret-file", secret]].concat());
        for to in ["10.77.0.2", "fd77::2"] {
            for (args, through_stack) in [
                (&["--meter", "rtt", "--idt", "exp(2ms)", "--packets", "200"][..], 0),
                (&["--auth", "--secret-file", secret, "--idt", "exp(1ms)", "--packets", "300"], 0),
                // Several at once, and larger than the link: the stack joins them again.
                (&["--burst", "16", "--idt", "constant(2ms)", "--packets", "320"], 320),
                (&["--size", "3000", "--idt", "constant(1ms)", "--packets", "100"], 100),
                (&["--proto", "icmp", "--idt", "constant(2ms)", "--packets", "50"], 0),
                (&["--proto", "tcp", "--idt", "constant(2ms)", "--packets", "50"], 0),
            ] {
                let before = delivered(&pair.receiver);
                let done = sender(&pair, &[&[to], args].concat()).finish(LIMIT).exits(0);
                let account = accounts(&done.out).remove(0);
                assert!(account.agreed, "{args:?}: {done}\n{}", receiver.running.err());
                if args.contains(&"rtt") {
                    assert!(account.line.contains("200 replies came back"), "{done}");
                }
                let went = delivered(&pair.receiver) - before;
                // Bursts may arrive joined.
                let as_ever = if through_stack == 0 { went == 0 } else { went > 0 };
                assert!(
                    as_ever && went <= through_stack,
                    "{args:?}: {went} went through the stack"
                );
            }
        }
        drop(receiver.stop());
    });
}

/// A ping, by hand: RFC 792.
fn ping(to: Ipv4Addr) {
    let socket = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::ICMPV4)).expect("root");
    socket.set_read_timeout(Some(Duration::from_secs(20))).expect("a socket");
    // Echo, code 0, the sum, identifier 0x4954, number 1.
    let sum = !(0x0800_u16 + 0x4954 + 1);
    let [high, low] = sum.to_be_bytes();
    let echo = [8, 0, high, low, 0x49, 0x54, 0, 1];
    socket.send_to(&echo, &std::net::SocketAddr::from((to, 0)).into()).expect("sent");
    let mut answer = [0; 100];
    loop {
        let got = (&socket).read(&mut answer).expect("an answer within 20 s");
        // Behind the IP header; raw sockets see all of them.
        if got == 28 && answer[20] == 0 && answer[24..26] == [0x49, 0x54] {
            return;
        }
    }
}

#[test]
fn others_go_on_as_ever_while_it_runs() {
    if not_run() {
        return;
    }
    in_parallel(&[("native", "native"), ("generic", "generic")], |&mode| {
        let pair = Pair::new();
        let receiver = receiver(&pair, &taking(mode));
        let args = ["10.77.0.2", "--engine", "xdp", "--idt", "constant(200us)", "--duration", "3s"];
        let flow = sender(&pair, &args);
        drop(receiver.running.line_with(" flows", LIMIT));
        // The neighbours are asked for once more.
        pair.receiver.ip("neighbour flush all");
        let (listener, foreign) = pair.receiver.within(|| {
            let listener = TcpListener::bind("10.77.0.2:7000").expect("a free port");
            (listener, UdpSocket::bind("10.77.0.2:7000").expect("a free port"))
        });
        foreign.set_read_timeout(Some(LIMIT)).expect("a socket");
        pair.sender.within(|| {
            ping(Ipv4Addr::new(10, 77, 0, 2));
            let socket = UdpSocket::bind("10.77.0.1:0").expect("a free port");
            // As one frame, and in fragments.
            for len in [100, 4000] {
                socket.send_to(&vec![9; len], "10.77.0.2:7000").expect("sent");
            }
            let echoing = thread::spawn(move || {
                let (mut stream, _) = listener.accept().expect("a connection");
                let mut bytes = vec![0; 100_000];
                stream.read_exact(&mut bytes).expect("all of it");
                stream.write_all(&bytes).expect("written");
            });
            let mut stream = TcpStream::connect("10.77.0.2:7000").expect("a listener");
            stream.write_all(&[5; 100_000]).expect("written");
            let mut back = Vec::new();
            stream.read_to_end(&mut back).expect("all of it");
            assert_eq!(back, vec![5; 100_000]);
            echoing.join().expect("echoed");
        });
        for len in [100, 4000] {
            let mut bytes = [0; 5000];
            assert_eq!(foreign.recv(&mut bytes).expect("a datagram"), len);
        }
        let done = flow.finish(LIMIT).exits(0);
        let account = accounts(&done.out).remove(0);
        assert!(account.agreed && account.sent > 10_000, "{done}");
        drop(receiver.stop());
    });
}

fn has_program(host: &Namespace) -> bool {
    let show = host.command(Path::new("ip")).args(["link", "show", "link0"]).output().expect("ip");
    String::from_utf8_lossy(&show.stdout).contains("xdp")
}

#[test]
fn nothing_is_left_behind_and_nothing_is_replaced() {
    if not_run() {
        return;
    }
    let pair = Pair::new();
    for mode in MODES {
        let first = receiver(&pair, &taking(mode));
        assert!(has_program(&pair.receiver), "{mode}");
        for other in MODES {
            let mut command = pair.receiver.command(&program("itg-recv"));
            let listen = ["--listen", "[::]:9100", "--data-port", "8998"];
            command.args(taking(other)).args(listen);
            drop(Running::start(&mut command).finish(LIMIT).exits(2).says("never replaced"));
        }
        assert!(has_program(&pair.receiver), "{mode}: the first one's");
        let done = sender(&pair, &["10.77.0.2", "--packets", "50"]).finish(LIMIT).exits(0);
        assert!(accounts(&done.out)[0].agreed, "{done}");
        first.running.signal(Signal::SIGKILL);
        drop(first.running.finish(LIMIT));
        wait_for("the program goes with its process", LIMIT, || !has_program(&pair.receiver));
    }
    // And the next one starts.
    drop(receiver(&pair, &taking("native")).stop());
    assert!(!has_program(&pair.receiver));
}

#[test]
fn what_cannot_be_is_refused_in_words() {
    if not_run() {
        return;
    }
    let pair = Pair::new();
    let start = |args: &[&str]| {
        let mut command = pair.receiver.command(&program("itg-recv"));
        Running::start(command.args(args)).finish(LIMIT)
    };
    let xdp = ["--engine", "xdp"];
    drop(start(&xdp).exits(2).says("name it with --interface"));
    drop(start(&["--interface", "link0"]).exits(2).says("are for --engine xdp"));
    for (interface, words) in [("none0", "no interface `none0`"), ("lo", "not an Ethernet device")]
    {
        drop(start(&[&xdp[..], &["--interface", interface]].concat()).exits(2).says(words));
    }
    let shards = [&xdp[..], &["--interface", "link0", "--shards", "2"]].concat();
    drop(start(&shards).exits(2).says("leave out --shards"));
    pair.receiver.ip("link set link0 down");
    drop(start(&[&xdp[..], &["--interface", "link0"]].concat()).exits(2).says("link0 is down"));
    pair.receiver.ip("link set link0 up");
    let mut command = pair.receiver.command(Path::new("setpriv"));
    let less = "-net_raw,-net_admin,-bpf,-sys_admin";
    command.args(["--bounding-set", less, "--inh-caps", less]).arg(program("itg-recv"));
    command.args(xdp).args(["--interface", "link0"]);
    drop(Running::start(&mut command).finish(LIMIT).exits(2).says("CAP_NET_ADMIN"));
    // The device of the address that it listens at needs no name.
    let mut command = pair.receiver.command(&program("itg-recv"));
    let receiver = Receiver::run(command.args(xdp).args(["--listen", "10.77.0.2"]));
    assert!(has_program(&pair.receiver));
    drop(receiver.stop());
}

#[test]
fn frames_without_room_are_counted() {
    if not_run() {
        return;
    }
    in_parallel(&[("native", "native"), ("generic", "generic")], |&mode| {
        let pair = Pair::new();
        let dir = temp_dir();
        let log = dir.path().join("recv.itg");
        let log = log.to_str().expect("UTF-8");
        // Room for 64 frames.
        let options = [&taking(mode)[..], &["--receive-buffer", "128Ki", "--log", log]].concat();
        let receiver = receiver(&pair, &options);
        let flow = sender(&pair, &["10.77.0.2", "--idt", "constant(1ms)", "--packets", "3000"]);
        drop(receiver.running.line_with(" flows", LIMIT));
        thread::sleep(Duration::from_millis(500));
        receiver.running.signal(Signal::SIGSTOP);
        thread::sleep(Duration::from_millis(700));
        receiver.running.signal(Signal::SIGCONT);
        let done = flow.finish(LIMIT).exits(0);
        drop(receiver.stop());
        let account = accounts(&done.out).remove(0);
        let lost = account.sent - account.received.expect("counted");
        assert!((100..1500).contains(&lost), "{done}");
        let report = decode(&[log]).exits(0);
        let words = format!("{lost} packets were dropped by the kernel at the socket");
        assert!(report.out.contains(&words), "{words}: {report}");
    });
}
