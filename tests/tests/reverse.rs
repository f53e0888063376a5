//! Flows that the other side sends on request: by themselves, beside those of this side, and under load; and what a
//! receiver refuses to those who ask.
#![allow(missing_docs, reason = "tests")]

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{TcpListener, UdpSocket};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use itg_core::distribution::Distribution;
use itg_core::flow::{FlowSpec, OnOff};
use itg_session::{
    ClockReading, EndCause, FlowTotals, MAGIC, Message, OpenReply, OpenedFlow, VERSION, encode,
};
use itg_tests::{Peer, Receiver, json, send, sender, temp_dir};
use nix::sys::signal::Signal;
use serde_json::Value;

/// A receiver that sends to those who ask.
#[track_caller]
fn open(args: &[&str]) -> Receiver {
    Receiver::start(&[&["--allow-reverse"], args].concat())
}

fn report(out: &str) -> Value {
    serde_json::from_str(out).unwrap_or_else(|error| panic!("{error}: {out}"))
}

#[test]
fn the_other_side_sends_what_it_is_asked_for() {
    let receiver = open(&[]);
    let at = receiver.at();
    for (args, packets) in [
        (&["--idt", "exp(1ms)", "--packets", "500", "--flows", "2"][..], 500),
        (&["--rate", "2000pps", "--burst", "8", "--packets", "400"], 400),
        (&["--proto", "tcp", "--idt", "exp(1ms)", "--packets", "500"], 500),
    ] {
        let dir = temp_dir();
        let log = dir.path().join("r.itg");
        let log = log.to_str().expect("UTF-8");
        let own = [at.as_str(), "-R", "--json", "--seed", "7", "--size", "200", "--log", log];
        let done = send(&[&own, args].concat()).exits(0);
        let report = report(&done.out);
        let decoded = json(&[log]);
        for flow in report["flows"].as_array().expect("a list") {
            let what = format!("{args:?}: {flow}");
            assert_eq!(
                (&flow["side"], &flow["packets"]),
                (&"receiver".into(), &packets.into()),
                "{what}"
            );
            assert_eq!(
                (&flow["sent_packets"], &flow["lost"]),
                (&packets.into(), &0.into()),
                "{what}"
            );
            assert!(flow["delay_ns"]["p50"].is_number(), "{what}");
            assert!(flow["end"].is_null(), "{what}");
            let logged = decoded["flows"].as_array().expect("a list").iter();
            let logged =
                logged.clone().find(|entry| entry["flow"] == flow["flow"]).expect("logged");
            assert_eq!(
                (&logged["packets"], &logged["seed"]),
                (&packets.into(), &7.into()),
                "{logged}"
            );
        }
    }
    drop(receiver.stop());
}

#[test]
fn both_ways_at_once_have_a_row_each() {
    let receiver = open(&[]);
    let dir = temp_dir();
    let log = dir.path().join("b.itg");
    let name = log.to_str().expect("UTF-8");
    let args = ["--bidir", "--rate", "500pps", "--packets", "300", "--json", "--log", name];
    let done = send(&[&[receiver.at().as_str()], &args[..]].concat()).exits(0);
    let report = report(&done.out);
    let rows: Vec<_> = ["forward", "reverse"]
        .iter()
        .zip(report["flows"].as_array().expect("a list"))
        .map(|(name, flow)| (flow["name"] == **name, flow["packets"] == 300, flow["lost"] == 0))
        .collect();
    assert_eq!(rows, [(true, true, true); 2], "{report}");
    assert_eq!(report["total"]["packets"], 600, "{report}");
    let ways = report["groups"].as_array().expect("a total for each way");
    let ways: Vec<_> = ways.iter().map(|way| (&way["by"]["direction"], &way["packets"])).collect();
    assert_eq!(ways, [(&"from here".into(), &300.into()), (&"to here".into(), &300.into())]);
    for (log, side) in [(name.to_owned(), "sender"), (format!("{name}.reverse"), "receiver")] {
        let flow = json(&[&log])["flows"][0].clone();
        assert_eq!((&flow["side"], &flow["packets"]), (&side.into(), &300.into()), "{flow}");
    }
    drop(receiver.stop());
}

#[test]
fn round_trips_are_told_idle_and_under_load() {
    let receiver = open(&["--reverse-rate", "50Mbps"]);
    let args = [receiver.at(), "--under-load".to_owned(), "-t".to_owned(), "2".to_owned()];
    let done = send(&args).exits(0).says("holds it to 50Mbps: --reverse-rate");
    for (row, proto) in [("idle", "udp rtt"), ("loaded", "udp rtt"), ("up", "tcp"), ("down", "tcp")]
    {
        let found = done.out.lines().any(|line| line.contains(row) && line.contains(proto));
        assert!(found, "no row {row}: {done}");
    }
    assert!(done.out.contains("under load (p50; p90 "), "{done}");
    let total = done.out.lines().any(|line| line.starts_with("total "));
    assert!(!total, "two ways have no rate in common: {done}");
    let args = ["--bidir", "--rate", "200pps", "-t", "1", "--flows", "2", "--quiet"];
    let done = send(&[&[receiver.at().as_str()], &args[..]].concat()).exits(0);
    let totals = done.out.lines().filter_map(|line| line.strip_prefix("total ")?.get(..9));
    assert_eq!(totals.collect::<Vec<_>>(), ["from here", "to here  "], "{done}");
    drop(receiver.stop());
}

/// A rate that is the sender's own limit is no figure of the path, and says so.
#[test]
fn a_rate_that_is_the_senders_own_limit_is_marked() {
    let dir = temp_dir();
    let log = dir.path().join("back.itg").to_str().expect("UTF-8").to_owned();
    let receiver = open(&["--reverse-rate", "20Mbps"]);
    let at = receiver.at();
    let asked = ["--reverse", "--proto", "tcp", "-t", "3", "-J"];
    for (rate, want) in [("max", Value::from("pacing_rate")), ("5Mbps", Value::Null)] {
        let args = [&[at.as_str(), "--rate", rate, "--log", &log], &asked[..]].concat();
        let done = send(&args).exits(0);
        let live: Value = serde_json::from_str(&done.out).expect("JSON");
        for flow in [&live["flows"][0], &json(&[&log])["flows"][0]] {
            assert_eq!(flow["limited_by"], want, "{rate}: {flow}");
            let told = flow["notices"].to_string().contains("not the path's");
            assert_eq!(told, want.is_string(), "{rate}: {flow}");
        }
    }
    let done = send(&[&at, "--under-load", "-t", "3"]).exits(0);
    assert!(done.out.contains("what its sender holds it to"), "{done}");
    drop(receiver.stop());
}

#[test]
fn what_is_beyond_a_limit_is_refused_with_the_option_that_sets_it() {
    let receiver = open(&["--reverse-rate", "10Mbps", "--reverse-time", "20s"]);
    let at = receiver.at();
    for (args, want) in [
        (&["--rate", "11Mbps"][..], "--reverse-rate"),
        (&["--rate", "6Mbps", "--flows", "2"], "--reverse-rate"),
        (&["--rate", "max"], "--reverse-rate"),
        (&["--duration", "21s"], "--reverse-time"),
        (&["--rate", "1000pps", "--packets", "20100"], "--reverse-time"),
        (&["--idt", "trunc(trunc(trunc(exp(1ms),0,1s),0,1s),0,1s)"], "nested"),
        (&["--meter", "rtt"], "--meter rtt"),
        (&["--source", "127.0.0.1"], "--source"),
        (&["--payload", "file:/etc/hostname"], "--payload file"),
        (&["--proto", "icmp"], "UDP and TCP alone"),
    ] {
        let done = send(&[&[at.as_str(), "--reverse"], args].concat()).exits(3).says(want);
        assert!(!done.out.contains("packets/s"), "there is no table: {args:?}: {done}");
    }
    for (args, want) in [
        (&["--classic"][..], "--classic"),
        (&["--recv-log", "x"], "--recv-log"),
        (&["--pacing", "spin"], "--pacing"),
    ] {
        drop(send(&[&[at.as_str(), "--reverse"], args].concat()).exits(2).says(want));
    }
    drop(receiver.stop());
    let none = open(&["--reverse-max", "0"]);
    drop(send(&[none.at().as_str(), "-R"]).exits(3).says("--reverse-max"));
    drop(none.stop());
}

/// Nobody is sent anything by a receiver whose user has not said so, and who asks is told what to say.
#[test]
fn a_receiver_sends_nothing_unless_it_is_told_to() {
    let closed = Receiver::start::<&str>(&[]);
    for way in ["--reverse", "--bidir", "--under-load"] {
        drop(send(&[closed.at().as_str(), way, "-t", "2"]).exits(3).says("--allow-reverse"));
    }
    // One that asks nevertheless, whatever the receiver offers.
    let mut peer = Peer::greet(&closed, None);
    peer.say(&Message::Turn { flows: vec![FlowSpec::new(1)] });
    let Message::Refuse { reason } = peer.hear() else { panic!("no refusal") };
    assert!(reason.contains("--allow-reverse"), "{reason}");
    drop(closed.stop());
}

/// A mean that keeps the limit, made of a burst and a pause that comes too late: with this seed.
#[test]
fn a_flow_that_leaves_faster_than_its_mean_is_ended() {
    let receiver = open(&["--reverse-rate", "1Mbps"]);
    let idt = "mix(0.99999:constant(20us),0.00001:constant(1000s))";
    let at = receiver.at();
    let shape = ["--idt", idt, "--size", "1000", "--seed", "1"];
    let args = [&[at.as_str(), "-R", "--json", "-t", "60"], &shape[..]].concat();
    let done = send(&args).within(Duration::from_secs(30)).exits(4);
    let report = report(&done.out);
    let flow = &report["flows"][0];
    assert!(flow["end"].as_str().is_some_and(|end| end.contains("--reverse-rate")), "{done}");
    drop(receiver.stop());
}

#[test]
fn an_interrupted_request_keeps_what_has_arrived() {
    let receiver = open(&[]);
    let words = ["-R", "--json", "--rate", "1000pps", "-t", "60", "-i", "100ms"];
    let running = sender(&[&[receiver.at().as_str()], &words[..]].concat());
    // At least 25 packets in one interval.
    drop(running.line_with(" Mbit/s", Duration::from_secs(60)));
    let done = running.stop(Signal::SIGINT, Duration::from_secs(60)).expect("it ends").exits(130);
    let flow = report(&done.out)["flows"][0].clone();
    assert_eq!(flow["end"], "interrupted by SIGINT", "{done}");
    assert!(flow["packets"].as_u64().is_some_and(|packets| packets > 10), "{done}");
    assert_eq!(flow["packets"], flow["sent_packets"], "{done}");
    drop(receiver.stop());
}

/// Asks by hand for a flow, and hands out the port at which its sender waits.
fn ask(receiver: &Receiver) -> (Peer, u16) {
    let (peer, ports) = ask_for(receiver, 1);
    (peer, ports[0])
}

/// Asks by hand for so many flows, and hands out the ports at which their sender waits.
fn ask_for(receiver: &Receiver, flows: u32) -> (Peer, Vec<u16>) {
    let mut peer = Peer::announce(receiver, ("a peer", flows), None);
    let spec = |id| {
        let mut spec = FlowSpec::new(id);
        spec.stop.duration_ns = Some(1_000_000_000);
        spec.idt = Distribution::Exp { mean: 1e8 };
        spec
    };
    peer.say(&Message::Turn { flows: (1..=flows).map(spec).collect() });
    assert!(matches!(peer.hear(), Message::Turned { .. }));
    let Message::Hello { run, .. } = peer.hear() else { panic!("no greeting") };
    peer.say(&Message::Welcome {
        magic: MAGIC,
        version: VERSION,
        program: run,
        host: String::new(),
        boot_id: String::new(),
        control_timeout_ns: 60_000_000_000,
    });
    loop {
        match peer.hear() {
            Message::Ping { .. } => {}
            Message::Open { flows } => {
                let port = |spec: &FlowSpec| spec.socket.source_port.expect("a port");
                return (peer, flows.iter().map(port).collect());
            }
            other => panic!("{} came", other.name()),
        }
    }
}

/// Datagrams from another address, with another number, or of another program: none of them has the flow sent there.
#[test]
fn packets_go_nowhere_but_to_the_host_that_asked() {
    let receiver = open(&[]);
    let right = [&b"ITGW"[..], &77_u32.to_le_bytes()].concat();
    for (from, bytes) in [
        ("127.0.0.9:0", right),
        ("127.0.0.1:0", [&b"ITGW"[..], &78_u32.to_le_bytes()].concat()),
        ("127.0.0.1:0", b"hello".to_vec()),
    ] {
        let (mut peer, port) = ask(&receiver);
        let socket = UdpSocket::bind(from).expect("loopback");
        socket.set_read_timeout(Some(Duration::from_millis(500))).expect("a time-out");
        socket.connect(("127.0.0.1", port)).expect("loopback");
        assert_eq!(socket.send(&bytes).expect("sent"), bytes.len());
        let opened =
            OpenedFlow { flow: 1, handle: 77, port: socket.local_addr().expect("bound").port() };
        peer.say(&Message::Opened { flows: vec![OpenReply { flow: 1, result: Ok(opened) }] });
        let got = socket.recv(&mut [0; 2000]).map_err(|error| error.kind());
        assert!(
            matches!(got, Err(ErrorKind::WouldBlock | ErrorKind::ConnectionRefused)),
            "{from} {bytes:?}: {got:?}"
        );
    }
    drop(receiver.stop());
}

/// Datagrams with which a receiver would come to its flows never do: neither the place of the asker nor the receiver is
/// held until each flow has been waited for.
#[test]
fn who_asks_and_does_not_come_holds_nothing_up() {
    let receiver = open(&[]);
    let opened = |flow| OpenReply { flow, result: Ok(OpenedFlow { flow, handle: flow, port: 9 }) };
    let wait = || {
        let (mut peer, ports) = ask_for(&receiver, 64);
        assert_eq!(ports.len(), 64);
        peer.say(&Message::Opened { flows: (1..=64).map(opened).collect() });
        peer
    };
    drop(wait());
    // There is one place for an address: this one gets it when the other has left.
    let peer = wait();
    drop(receiver.stop());
    drop(peer);
}

#[test]
fn who_asks_and_leaves_is_sent_nothing() {
    let receiver = open(&[]);
    let mut peer = Peer::greet(&receiver, None);
    let mut both = Vec::new();
    for message in [Message::Turn { flows: vec![FlowSpec::new(1)] }, Message::Bye] {
        let bytes = encode(&message).expect("short");
        both.extend(u32::try_from(bytes.len()).expect("short").to_le_bytes());
        both.extend(bytes);
    }
    peer.0.write_all(&both).expect("it listens");
    assert!(matches!(peer.hear(), Message::Refuse { .. }));
    assert_eq!(peer.0.read(&mut [0; 10]).expect("closed"), 0, "nothing follows");
    drop(receiver.stop());
}

/// A flow that costs its sender hours is refused at once, and the receiver ends when it is told to.
#[test]
fn distributions_of_strangers_cost_nothing() {
    let receiver = open(&[]);
    let rare = Distribution::Mix(vec![
        (1e12, Distribution::Constant(1.0)),
        (1.0, Distribution::Constant(1e18)),
    ]);
    let leaf = Distribution::Mix(vec![(1.0, Distribution::Exp { mean: 1e6 }); 1000]);
    let deep = (0..14).fold(leaf, |inner, _| Distribution::Trunc {
        distribution: Box::new(inner),
        lo: 0.0,
        hi: 1e9,
    });
    let mut walk = FlowSpec::new(1);
    walk.idt = Distribution::Constant(1e11);
    walk.on_off = Some(OnOff { on: rare, off: Distribution::Constant(0.0) });
    let mut nested = FlowSpec::new(1);
    nested.idt = deep;
    for spec in [walk, nested] {
        let mut peer = Peer::greet(&receiver, None);
        peer.say(&Message::Turn { flows: vec![spec] });
        let Message::Refuse { reason } = peer.hear() else { panic!("it is admitted") };
        assert!(reason.contains("a receiver sends no flow"), "{reason}");
    }
    drop(receiver.stop());
}

#[test]
fn an_address_has_one_place() {
    let receiver = open(&[]);
    let at = receiver.at();
    let first =
        sender(&[at.as_str(), "-R", "--json", "--rate", "100pps", "-t", "60", "-i", "100ms"]);
    drop(first.line_with(" s: 1 flow, 1", Duration::from_secs(60)));
    drop(send(&[at.as_str(), "-R"]).exits(3).says("your address already"));
    drop(first.stop(Signal::SIGINT, Duration::from_secs(60)).expect("it ends"));
    drop(receiver.stop());
}

/// The sender of what was asked for is killed, or told to end: what has arrived is kept, and the exit code tells.
#[test]
fn what_has_arrived_is_kept_when_its_sender_ends() {
    for (signal, end) in [(Signal::SIGKILL, None), (Signal::SIGTERM, Some("SIGTERM"))] {
        let receiver = open(&[]);
        let words = ["-R", "--json", "--rate", "1000pps", "-t", "60", "-i", "100ms"];
        let running = sender(&[&[receiver.at().as_str()], &words[..]].concat());
        // At least 25 packets in one interval.
        drop(running.line_with(" Mbit/s", Duration::from_secs(60)));
        receiver.running.signal(signal);
        let done = running.finish(Duration::from_secs(60)).exits(4);
        let flow = report(&done.out)["flows"][0].clone();
        assert!(flow["packets"].as_u64().is_some_and(|packets| packets > 10), "{done}");
        assert!(flow["delay_ns"]["p50"].is_number(), "{done}");
        match end {
            None => assert!(flow["lost"].is_null() && flow["sent_packets"].is_null(), "{done}"),
            Some(end) => assert!(flow["end"].as_str().is_some_and(|e| e.contains(end)), "{done}"),
        }
        drop(receiver.running.finish(Duration::from_secs(90)));
    }
}

/// Plays the part of a receiver that has been asked to send, by hand, until it has been told which flows are open;
/// `change` what it says that it sends.
fn asked(
    change: impl FnOnce(&mut u64, &mut FlowSpec) + Send + 'static,
    then: impl FnOnce(&mut Peer, &OpenReply) + Send + 'static,
) -> (String, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let at = listener.local_addr().expect("bound").to_string();
    let playing = thread::spawn(move || {
        let (stream, _) = listener.accept().expect("an asker");
        stream.set_read_timeout(Some(Duration::from_secs(90))).expect("a time-out");
        let mut peer = Peer(stream);
        let Message::Hello { run, mut seed, .. } = peer.hear() else { panic!("no greeting") };
        peer.say(&Message::Welcome {
            magic: MAGIC,
            version: VERSION,
            program: "x 0.1.0+turns".to_owned(),
            host: String::new(),
            boot_id: String::new(),
            control_timeout_ns: 60_000_000_000,
        });
        let Message::Turn { mut flows } = peer.hear() else { panic!("no flows are asked for") };
        peer.say(&Message::Turned { notices: Vec::new() });
        change(&mut seed, &mut flows[0]);
        peer.say(&Message::Hello {
            magic: MAGIC,
            version: VERSION,
            run,
            seed,
            program: "x 0.1.0".to_owned(),
            host: String::new(),
            boot_id: String::new(),
            flows: 1,
            recv_log: None,
        });
        assert!(matches!(peer.hear(), Message::Welcome { .. }));
        peer.say(&Message::Open { flows });
        let Message::Opened { flows } = peer.hear() else { panic!("no answer") };
        then(&mut peer, &flows[0]);
    });
    (at, playing)
}

fn leave(peer: &mut Peer) {
    peer.say(&Message::Bye);
    assert!(matches!(peer.hear(), Message::ByeAck { .. }));
}

#[test]
fn a_sender_that_sends_something_else_is_not_believed() {
    let not_asked_for = |peer: &mut Peer, reply: &OpenReply| {
        assert!(reply.result.as_ref().is_err_and(|why| why.contains("not asked for")), "{reply:?}");
        leave(peer);
    };
    let changes: [fn(&mut u64, &mut FlowSpec); 3] = [
        |seed, spec| (*seed, spec.socket.source_port) = (*seed ^ 1, Some(9)),
        |_, spec| (spec.id, spec.socket.source_port) = (7, Some(9)),
        |_, spec| spec.socket.source_port = None,
    ];
    for change in changes {
        let (at, playing) = asked(change, not_asked_for);
        drop(send(&[at.as_str(), "-R", "-t", "1"]).exits(3).says("not asked for"));
        playing.join().expect("the peer");
    }
}

/// A connection that is refused, and datagrams that did not reach their sender.
#[test]
fn data_that_does_not_get_through_is_told() {
    let closed = TcpListener::bind("127.0.0.1:0").expect("loopback").local_addr().expect("bound");
    let change = move |_: &mut u64, spec: &mut FlowSpec| {
        spec.socket.source_port = Some(closed.port());
    };
    let (at, playing) = asked(change, |peer, reply| {
        assert!(reply.result.is_err(), "{reply:?}");
        leave(peer);
    });
    drop(send(&[at.as_str(), "-R", "--proto", "tcp", "-t", "1"]).exits(3).says("refused"));
    playing.join().expect("the peer");
    let socket = UdpSocket::bind("127.0.0.1:0").expect("loopback");
    let port = socket.local_addr().expect("bound").port();
    let change = move |_: &mut u64, spec: &mut FlowSpec| spec.socket.source_port = Some(port);
    let (at, playing) = asked(change, |peer, reply| {
        assert!(reply.result.is_ok(), "{reply:?}");
        peer.say(&Message::Start { epoch_unix_ns: 1 });
        assert!(matches!(peer.hear(), Message::Started));
        peer.say(&Message::FlowEnded(FlowTotals {
            flow: 1,
            packets: 0,
            bytes: 0,
            skipped: 0,
            failed: 0,
            next_seq: 0,
            reason: EndCause::Told("it does not come".to_owned()).into(),
        }));
        assert!(matches!(peer.hear(), Message::FlowCounted(_)));
        leave(peer);
    });
    drop(send(&[at.as_str(), "-R", "-t", "1"]).exits(3).says("it does not come"));
    playing.join().expect("the peer");
    drop(socket);
}

/// A sender that goes on after it has been told to end is left.
#[test]
fn a_sender_that_does_not_end_is_left() {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("loopback");
    let port = socket.local_addr().expect("bound").port();
    let change = move |_: &mut u64, spec: &mut FlowSpec| spec.socket.source_port = Some(port);
    let (at, playing) = asked(change, |peer, _| {
        peer.say(&Message::Start { epoch_unix_ns: 1 });
        let ping = Message::Ping { n: 0, sent: ClockReading::default(), previous: None };
        while !matches!(peer.hear(), Message::Halt { .. }) {
            thread::sleep(Duration::from_millis(200));
            peer.say(&ping);
        }
        // It shows that it is alive until the other side has closed the connection.
        let bytes = encode(&ping).expect("short");
        let len = u32::try_from(bytes.len()).expect("short").to_le_bytes();
        let frame = [&len[..], &bytes].concat();
        while peer.0.write_all(&frame).is_ok() {
            thread::sleep(Duration::from_millis(200));
        }
    });
    let running = sender(&[at.as_str(), "-R", "--json", "-t", "60", "-i", "100ms"]);
    drop(running.line_with("1 flow, no packet has arrived yet", Duration::from_secs(60)));
    drop(running.stop(Signal::SIGINT, Duration::from_secs(60)).expect("it ends").exits(130));
    playing.join().expect("the peer");
    drop(socket);
}
