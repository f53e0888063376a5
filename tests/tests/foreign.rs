//! Limits of hosts without any secret against the flows and files of others at a receiver: with
//! clients of their own, and no forged address. These hosts are at other addresses of the loopback
//! interface.
#![allow(missing_docs, reason = "tests")]

use std::fs;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use itg_classic::send::{HeaderKind, LogProto};
use itg_classic::wire::{OfferProto, RecvLog, SenderMessage};
use itg_core::flow::{FlowSpec, Meter, Proto};
use itg_core::header::PacketKey;
use itg_session::{EndCause, FlowTotals, Message, OpenedFlow};
use itg_tests::{
    ClassicLogServer, ClassicReceiver, Peer, Receiver, Running, clock_ticks, decode as decode_log,
    json, now_ns, own_address, packet, packets, program, send, temp_dir,
};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::Signal;
use nix::sys::socket::{setsockopt, sockopt};
use socket2::{Domain, Protocol, Socket, Type};

const LIMIT: Duration = Duration::from_secs(90);
const STRANGER: &str = "127.0.0.9:0";

fn socket_at(address: &str, port: u16) -> UdpSocket {
    let socket = UdpSocket::bind(address).expect("loopback");
    socket.connect(("127.0.0.1", port)).expect("loopback");
    socket.set_read_timeout(Some(Duration::from_millis(300))).expect("a time-out");
    socket
}

fn connect_from(address: &str, port: u16) -> TcpStream {
    let from: SocketAddr = address.parse().expect("an address");
    let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP)).expect("a socket");
    socket.bind(&from.into()).expect("loopback");
    let to: SocketAddr = ([127, 0, 0, 1], port).into();
    socket.connect(&to.into()).expect("it listens");
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(LIMIT)).expect("a time-out");
    stream
}

#[test]
fn packets_of_strangers_are_counted_as_foreign_and_as_nothing_else() {
    let dir = temp_dir();
    let log = dir.path().join("r.itg");
    let receiver = Receiver::start(&["--log", log.to_str().expect("UTF-8")]);
    let (peer, OpenedFlow { port, handle, .. }) = Peer::start(&receiver, |_| ());
    let stranger = socket_at(STRANGER, port);
    // The right handle, as found by trying all, before the first packet and behind it.
    let hostile_ns = now_ns() - 10_000_000_000;
    let flood = |socket: &UdpSocket, first: u64| {
        for seq in first..first + 50 {
            socket.send(&packet(handle, seq, hostile_ns)).expect("sent");
        }
    };
    flood(&stranger, 0);
    let own = socket_at("127.0.0.1:0", port);
    for seq in 0..20 {
        own.send(&packet(handle, seq, now_ns())).expect("sent");
    }
    flood(&stranger, 5);
    // From the same host, but another program's: as from behind a translator of addresses that forgot the flow.
    flood(&socket_at("127.0.0.1:0", port), 10);
    let counts = peer.end(20);
    assert_eq!((counts.packets, counts.unique, counts.foreign), (20, 20, 100), "{counts:?}");
    let done = receiver.stop().says("20 packets received, 100 foreign ones left out");
    assert!(done.err.contains("--allow-source 127.0.0.9"), "{done}");
    let flow = json(&[&log])["flows"][0].clone();
    assert_eq!((&flow["packets"], &flow["foreign_packets"]), (&20.into(), &100.into()), "{flow}");
    let longest_ns = flow["delay_ns"]["max"].as_i64().expect("a delay");
    assert!(longest_ns < 9_000_000_000, "{flow}");
    let notices = flow["notices"].to_string();
    assert!(notices.contains("100 foreign packets"), "{flow}");
    assert!(notices.contains("50 packets came from another port"), "{flow}");
}

#[test]
fn joined_datagrams_of_strangers_are_foreign_too() {
    let receiver = Receiver::start::<&str>(&[]);
    let burst = |spec: &mut FlowSpec| spec.burst = Some(16);
    let (peer, OpenedFlow { port, handle, .. }) = Peer::start(&receiver, burst);
    let (own, stranger) = (socket_at("127.0.0.1:0", port), socket_at(STRANGER, port));
    for (socket, first) in [(&stranger, 0), (&own, 0), (&stranger, 8), (&own, 16)] {
        // The kernel cuts them, and joins them again at the receiver.
        setsockopt(socket, sockopt::UdpGsoSegment, &100).expect("Linux has it");
        let sent_ns = now_ns();
        let burst: Vec<u8> =
            (first..first + 16).flat_map(|seq| packet(handle, seq, sent_ns)).collect();
        assert_eq!(socket.send(&burst).expect("sent"), 1600);
    }
    let counts = peer.end(32);
    assert_eq!((counts.packets, counts.unique, counts.foreign), (32, 32, 32), "{counts:?}");
    drop(receiver.stop());
}

/// A packet of 100 bytes with its proof.
fn proven(key: &PacketKey, handle: u32, seq: u64, sent_ns: u64) -> Vec<u8> {
    let mut bytes = packet(handle, seq, sent_ns);
    key.prove(100, bytes.first_chunk_mut().expect("100 bytes"));
    bytes
}

/// A receiver with a secret, and the file that has it.
fn with_secret(dir: &Path) -> (Receiver, String) {
    let file = dir.join("secret");
    itg_tests::write_secret(&file, "a secret\n");
    let file = file.display().to_string();
    (Receiver::start(&["--secret-file", &file]), file)
}

/// A host that forges the address and the port of a flow's sender, and knows its handle: its packets differ from the
/// sender's in nothing but the proof, so the sender's own socket stands for it here.
#[test]
fn forged_addresses_do_not_help_where_packets_prove_themselves() {
    let dir = temp_dir();
    let (receiver, _) = with_secret(dir.path());
    let mut peer = Peer::greet(&receiver, None);
    let key = peer.share(b"a secret");
    let (peer, OpenedFlow { port, handle, .. }) = peer.open(|_| ());
    let socket = socket_at("127.0.0.1:0", port);
    let forge = |bytes: &[u8]| assert_eq!(socket.send(bytes).expect("sent"), bytes.len());
    (0..10).for_each(|seq| forge(&packet(handle, seq, now_ns())));
    for seq in 0..20 {
        forge(&proven(&key, handle, seq, now_ns()));
    }
    (100..110).for_each(|seq| forge(&packet(handle, seq, now_ns())));
    // What was seen on the way, with another number, another time, cut short or made longer; and a guessed key.
    let seen = proven(&key, handle, 30, now_ns());
    for (at, bit) in [(4, 1), (12, 1), (19, 0x40), (20, 1), (27, 0x80)] {
        let mut changed = seen.clone();
        changed[at] ^= bit;
        forge(&changed);
    }
    forge(&seen[..99]);
    forge(&seen[..27]);
    forge(&[&seen[..], &[0]].concat());
    forge(&proven(&PacketKey::new([0; 16]), handle, 30, now_ns()));
    let counts = peer.end(20);
    assert_eq!((counts.packets, counts.unique, counts.foreign), (20, 20, 29), "{counts:?}");
    drop(receiver.stop().says("20 packets received, 29 foreign ones left out"));
}

/// The kernel joins what comes from one address, forged or not: each packet is judged by itself.
#[test]
fn forged_packets_among_joined_ones_are_told_apart() {
    let dir = temp_dir();
    let (receiver, _) = with_secret(dir.path());
    let mut peer = Peer::greet(&receiver, None);
    let key = peer.share(b"a secret");
    let (peer, OpenedFlow { port, handle, .. }) = peer.open(|spec| spec.burst = Some(16));
    let socket = socket_at("127.0.0.1:0", port);
    setsockopt(&socket, sockopt::UdpGsoSegment, &100).expect("Linux has it");
    for forged in [&[][..], &[0], &[15], &[4, 5, 9]] {
        let sent_ns = now_ns();
        let packets = (0..16_u64).map(|seq| match forged.contains(&seq) {
            true => packet(handle, seq, sent_ns),
            false => proven(&key, handle, seq, sent_ns),
        });
        let burst: Vec<u8> = packets.flatten().collect();
        assert_eq!(socket.send(&burst).expect("sent"), 1600);
    }
    let counts = peer.end(59);
    assert_eq!((counts.packets, counts.unique, counts.foreign), (59, 16, 5), "{counts:?}");
    drop(receiver.stop());
}

#[test]
fn senders_and_receivers_with_one_secret_agree_and_others_are_told_why_not() {
    let dir = temp_dir();
    let (receiver, secret) = with_secret(dir.path());
    let other = dir.path().join("other").display().to_string();
    itg_tests::write_secret(&other, "another secret");
    let at = receiver.at();
    let plain = [at.as_str(), "--packets", "30", "--idt", "constant(1ms)"];
    let auth = |file| [&plain[..], &["--auth", "--secret-file", file]].concat();
    let done = send(&plain).exits(0);
    assert!(done.out.contains("both sides agree on 30 packets"), "{done}");
    for more in [&[][..], &["--meter", "rtt"], &["--burst", "10"], &["--size", "28"]] {
        let done = send(&[&auth(&secret)[..], more].concat()).exits(0);
        assert!(done.out.contains("both sides agree on 30 packets"), "{more:?}: {done}");
    }
    let done = send(&auth(&other)).exits(3);
    assert!(done.err.contains("its secret is not that of --secret-file here"), "{done}");
    for (more, why) in [
        (["--size", "27"], "has 28 bytes at least"),
        (["--size", "exp(100)"], "trunc(exp(100), 28, 65507)"),
        (["--proto", "tcp"], "packets of UDP alone"),
    ] {
        let done = send(&[&auth(&secret)[..], &more].concat()).exits(2);
        assert!(done.err.contains(why), "{more:?}: {done}");
    }
    drop(receiver.stop());
    let receiver = Receiver::start::<&str>(&[]);
    let at = receiver.at();
    let done = send(&[&at, "--packets", "1", "--auth", "--secret-file", &secret]).exits(3);
    assert!(done.err.contains("start it with --secret-file FILE"), "{done}");
    drop(receiver.stop());
}

#[test]
fn a_round_trip_answers_its_sender_alone() {
    let receiver = Receiver::start::<&str>(&[]);
    let rtt = |spec: &mut FlowSpec| spec.meter = Meter::Rtt;
    let (peer, OpenedFlow { port, handle, .. }) = Peer::start(&receiver, rtt);
    let (own, stranger) = (socket_at("127.0.0.1:0", port), socket_at(STRANGER, port));
    let mut answer = [0; 200];
    for (seq, socket, answered) in
        [(0, &stranger, false), (0, &own, true), (1, &stranger, false), (1, &own, true)]
    {
        socket.send(&packet(handle, seq, now_ns())).expect("sent");
        assert_eq!(socket.recv(&mut answer).is_ok(), answered, "{:?}", socket.local_addr());
    }
    // Another one on the sender's host.
    let other = socket_at("127.0.0.1:0", port);
    other.send(&packet(handle, 2, now_ns())).expect("sent");
    assert!(other.recv(&mut answer).is_err());
    let counts = peer.end(2);
    assert_eq!((counts.packets, counts.foreign), (2, 2), "{counts:?}");
    drop(receiver.stop());
}

#[test]
fn another_source_is_agreed_allowed_or_refused() {
    let receiver = Receiver::start::<&str>(&[]);
    let at = receiver.at();
    let args = [at.as_str(), "--packets", "30", "--idt", "constant(1ms)", "--source"];
    for (source, meter, words) in [
        ("127.0.0.7", "owd", "both sides agree on 30 packets"),
        ("127.0.0.1", "rtt", "both sides agree on 30 packets"),
        ("127.0.0.7", "rtt", "--allow-source 127.0.0.7"),
    ] {
        let done = send(&[&args[..], &[source, "--meter", meter]].concat());
        assert!(format!("{}{}", done.out, done.err).contains(words), "{source} {meter}: {done}");
    }
    drop(receiver.stop());
    let receiver = Receiver::start(&["--allow-source", "127.0.0.7"]);
    let at = receiver.at();
    let args = [at.as_str(), "--packets", "30", "--idt", "constant(1ms)", "--source", "127.0.0.7"];
    let done = send(&[&args[..], &["--meter", "rtt"]].concat()).exits(0);
    assert!(done.out.contains("both sides agree on 30 packets"), "{done}");
    drop(receiver.stop());
}

/// A packet of D-ITG of flow 1.
fn classic_packet(seq: u32) -> Vec<u8> {
    let header = itg_classic::wire::PacketHeader { flow: 1, seq, seconds: 1, micros: 0 };
    let mut bytes = vec![0; 100];
    header.put(HeaderKind::Standard, false, 100, &mut bytes);
    bytes
}

/// A stranger that comes first with a flow of D-ITG on the usual port keeps no ordinary flow out.
#[test]
fn a_flow_of_d_itg_on_the_usual_port_refuses_no_other() {
    let data = itg_tests::free_port();
    let usual = data.to_string();
    let mut command = Command::new(program("itg-recv"));
    command.args(["--listen", "127.0.0.1:0", "--data-port", &usual]);
    let receiver = Running::start(&mut command);
    let dir = temp_dir();
    let line = receiver.line_with("waiting for senders on ", LIMIT);
    let at = line.split_once(" on ").and_then(|(_, rest)| rest.split_once(';')).expect("where").0;
    let (host, port) = at.rsplit_once(':').expect("a port");
    let args = ["-a", host, "-Sdp", port, "-rp", &usual, "-t", "60000", "-C", "100"];
    let first = itg_tests::classic_sender(dir.path(), &args);
    itg_tests::takes_datagrams(&receiver, data);
    let done = send(&[at, "--packets", "10"]).exits(0);
    assert!(done.out.contains("10"), "{done}");
    first.signal(Signal::SIGKILL);
    drop(first.finish(LIMIT));
}

#[test]
fn a_flow_of_d_itg_has_one_sender() {
    let receiver = ClassicReceiver::start(&["-l", "r"]);
    let mut peer = receiver.peer();
    peer.open(OfferProto::Udp, receiver.data);
    let stranger = socket_at(STRANGER, peer.port);
    let own = socket_at("127.0.0.1:0", peer.port);
    for seq in 1..=10 {
        stranger.send(&classic_packet(seq)).expect("sent");
        own.send(&classic_packet(seq)).expect("sent");
        stranger.send(&classic_packet(seq + 1000)).expect("sent");
    }
    peer.say(&SenderMessage::Ended(1));
    let [_, _, _, _, _] = peer.hear();
    assert_eq!(receiver.log("r").len(), 10);
    let done = receiver.stop();
    assert!(done.err.contains("20 foreign packets left out"), "{done}");
}

#[test]
fn connections_that_name_no_flow_are_closed_without_an_answer() {
    let receiver = Receiver::start::<&str>(&[]);
    let tcp = |spec: &mut FlowSpec| spec.proto = Proto::Tcp;
    let (mut peer, OpenedFlow { port, handle, .. }) = Peer::start(&receiver, tcp);
    // From elsewhere than any sender.
    assert_eq!(connect_from(STRANGER, port).read(&mut [0; 10]).expect("an end"), 0);
    let frame = |handle: u32, size: u32| {
        let mut bytes = size.to_le_bytes().to_vec();
        bytes.extend(packet(handle, 0, now_ns()));
        bytes
    };
    // A packet that never ends, of no flow; before its flow is known nothing is kept or sent back.
    for _ in 0..2 {
        let mut nameless = connect_from("127.0.0.1:0", port);
        drop(nameless.write_all(&frame(handle ^ 0x5555_0000, 1 << 20)));
        match nameless.read(&mut [0; 10]) {
            Ok(count) => assert_eq!(count, 0, "nothing is sent back"),
            Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
        }
        peer.ping();
    }
    // Half a name, and silence: no work, no answer.
    let mut half = connect_from("127.0.0.1:0", port);
    half.write_all(&[104, 0, 0, 0, 1, 2]).expect("it listens");
    let (before, began) = (clock_ticks(receiver.running.pid()), Instant::now());
    half.set_read_timeout(Some(Duration::from_secs(2))).expect("a time-out");
    assert!(half.read(&mut [0; 10]).is_err(), "no answer");
    peer.ping();
    let ticks = clock_ticks(receiver.running.pid()) - before;
    assert!(ticks < 60, "{ticks} ticks in {:?}", began.elapsed());
    // The flow is served as ever.
    let mut own = connect_from("127.0.0.1:0", port);
    for piece in frame(handle, 104).chunks(5) {
        own.write_all(piece).expect("it listens");
        own.flush().expect("it listens");
        sleep(Duration::from_millis(2));
    }
    let counts = peer.end(1);
    assert_eq!((counts.packets, counts.foreign), (1, 3), "{counts:?}");
    drop(receiver.stop());
}

/// Resident memory of a process, in KiB.
fn memory_kib(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a line");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

#[test]
fn a_crowd_that_names_no_flow_costs_next_to_nothing() {
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).expect("a limit");
    setrlimit(Resource::RLIMIT_NOFILE, most, most).expect("up to the hard limit");
    let receiver = Receiver::start::<&str>(&[]);
    let tcp = |spec: &mut FlowSpec| spec.proto = Proto::Tcp;
    let (mut peer, OpenedFlow { port, handle, .. }) = Peer::start(&receiver, tcp);
    let pid = receiver.running.pid();
    let before = memory_kib(pid);
    // From the address of the flow's sender: each might be the flow's.
    let mut crowd = Vec::new();
    for _ in 0..1500 {
        crowd.push(connect_from("127.0.0.1:0", port));
        peer.ping();
    }
    for stream in &mut crowd {
        stream.write_all(&[104, 0, 0, 0, 1, 2, 3]).expect("it listens");
        peer.ping();
    }
    sleep(Duration::from_millis(500));
    peer.ping();
    let ticks = clock_ticks(pid);
    sleep(Duration::from_secs(1));
    let (ticks, grown) = (clock_ticks(pid) - ticks, memory_kib(pid).saturating_sub(before));
    assert!(ticks < 30, "{ticks} ticks in a second");
    assert!(grown < 16 << 10, "{grown} KiB for connections that say nothing");
    peer.ping();
    // The rest of a name that is none, and much behind it: no answer, and the end.
    for stream in &mut crowd {
        drop(stream.write_all(&[7; 60_000]));
        peer.ping();
    }
    for stream in &mut crowd {
        match stream.read(&mut [0; 10]) {
            Ok(count) => assert_eq!(count, 0, "nothing is sent back"),
            Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
        }
        peer.ping();
    }
    let grown = memory_kib(pid).saturating_sub(before);
    assert!(grown < 16 << 10, "{grown} KiB for connections that are gone");
    let bytes = [&104_u32.to_le_bytes()[..], &packet(handle, 0, now_ns())].concat();
    let mut own = connect_from("127.0.0.1:0", port);
    own.write_all(&bytes).expect("it listens");
    let counts = peer.end(1);
    assert_eq!((counts.packets, counts.foreign), (1, 1500), "{counts:?}");
    drop(receiver.stop());
}

/// Text that clears a screen, sets its title, forges a line, turns the direction and is a formula.
const ACTIVE: &str =
    "=HYPERLINK(\"http://a\")\x1b[2J\x1b]0;owned\x07\u{9b}31m\r\nitg: all is well\u{202e}\x7f";

/// Asserts that nothing in a text acts on a terminal, and that no line of it is forged.
#[track_caller]
fn assert_harmless(name: &str, text: &str) {
    let active = |c: char| c.is_control() && c != '\n' && c != '\t' || c == '\u{202e}';
    assert!(!text.contains(active), "{name}: {text:?}");
    assert!(!text.contains("\nitg: all is well"), "{name}: {text:?}");
}

#[test]
fn texts_of_peers_do_nothing_to_terminals_and_spreadsheets() {
    let dir = temp_dir();
    let log = dir.path().join("r.itg");
    let receiver = Receiver::start(&["--log".as_ref(), log.as_os_str(), "-vv".as_ref()]);
    let mut peer = Peer::greet_as(&receiver, ACTIVE, None);
    let spec = FlowSpec::new(1).profile(ACTIVE.to_owned());
    peer.say(&Message::Open { flows: vec![spec] });
    assert!(matches!(peer.hear(), Message::Opened { .. }));
    peer.say(&Message::Start { epoch_unix_ns: now_ns() });
    assert!(matches!(peer.hear(), Message::Started));
    peer.say(&Message::FlowEnded(FlowTotals {
        flow: 1,
        packets: 0,
        bytes: 0,
        skipped: 0,
        failed: 0,
        next_seq: 0,
        reason: EndCause::Told(ACTIVE.to_owned()).into(),
    }));
    assert!(matches!(peer.hear(), Message::FlowCounted(_)));
    peer.say(&Message::Bye);
    assert!(matches!(peer.hear(), Message::ByeAck { .. }));
    let done = receiver.stop();
    assert_harmless("itg-recv", &done.err);
    assert!(done.err.contains("HYPERLINK"), "{done}");

    let log = log.to_str().expect("UTF-8");
    for format in ["text", "csv", "json", "ndjson", "octave"] {
        let done = decode_log(&[log, "--format", format]).exits(0);
        assert_harmless(format, &done.out);
        assert!(done.out.contains("HYPERLINK") || format == "octave", "{done}");
        if format == "csv" {
            assert!(done.out.contains(",\"'=HYPERLINK("), "{done}");
        }
    }
    let page = dir.path().join("page.html");
    drop(decode_log(&[log, "--html", page.to_str().expect("UTF-8")]).exits(0));
    let page = fs::read_to_string(page).expect("written");
    assert!(!page.contains(['\x1b', '\u{9b}', '\x7f']) && !page.contains("<a href=\"http://a"));
}

#[test]
fn reasons_of_receivers_do_nothing_to_terminals() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = listener.local_addr().expect("an address").to_string();
    let hostile = std::thread::spawn(move || {
        let (stream, _) = listener.accept().expect("a sender");
        let mut peer = Peer(stream);
        assert!(matches!(peer.hear(), Message::Hello { .. }));
        peer.say(&Message::Refuse { reason: ACTIVE.to_owned() });
    });
    let done = send(&[&at, "--packets", "5"]).exits(3);
    hostile.join().expect("it has refused");
    assert_harmless("itg-send", &done.err);
    assert_harmless("itg-send", &done.out);
    drop(done.says("HYPERLINK"));
}

#[test]
fn addresses_in_logs_of_d_itg_do_nothing_to_terminals() {
    let dir = temp_dir();
    let receiver = ClassicReceiver::start(&["--log-dir", "."]);
    drop(receiver.send(&["-z", "3", "-x", "log"]).exits(0));
    let mut bytes = fs::read(receiver.file("log")).expect("a log");
    drop(receiver.stop());
    // The source of every record: 46 bytes at 36.
    for record in bytes.chunks_mut(itg_classic::log::RECORD_LEN) {
        record[36..45].copy_from_slice(b"1\x1b[2J\r\n\x07.");
        record[45..82].fill(0);
    }
    let log = dir.path().join("forged");
    fs::write(&log, bytes).expect("writable");
    let mut command = Command::new(program("ITGDec"));
    let done = Running::start(command.arg(&log)).finish(LIMIT).exits(0);
    assert!(done.out.contains("From 1"), "{done}");
    assert_harmless("ITGDec", &done.out);
    let done = decode_log(&[log.to_str().expect("UTF-8")]);
    assert_harmless("itg-decode", &(done.out + &done.err));
}

/// Reason with which a receiver ends the session of a sender that says these.
fn refusal(receiver: &Receiver, spec: FlowSpec, then: &[Message]) -> String {
    let mut peer = Peer::greet(receiver, None);
    peer.say(&Message::Open { flows: vec![spec] });
    let mut then = then.iter();
    loop {
        match peer.hear() {
            Message::Refuse { reason } => return reason,
            _ => peer.say(then.next().expect("a refusal")),
        }
    }
}

#[test]
fn times_that_no_clock_shows_are_refused_and_spoil_no_total() {
    let dir = temp_dir();
    let log = dir.path().join("r.itg");
    let mut receiver = Receiver::start(&["--log".as_ref(), log.as_os_str()]);
    let spec = FlowSpec::new(1);
    let late = spec.clone().start_ns(u64::MAX - 3);
    assert!(refusal(&receiver, late, &[]).contains("146 years"));
    let patient = spec.clone().drain_ns(u64::MAX - 3);
    assert!(refusal(&receiver, patient, &[]).contains("15 s for late packets"));
    let start = Message::Start { epoch_unix_ns: u64::MAX - 5 };
    assert!(refusal(&receiver, spec.clone(), &[start]).contains("beyond the year 2116"));
    let counts = FlowTotals {
        flow: 1,
        packets: u64::MAX,
        bytes: 0,
        skipped: 0,
        failed: 0,
        next_seq: 0,
        reason: EndCause::ScheduleDone.into(),
    };
    let start = Message::Start { epoch_unix_ns: now_ns() };
    let reason = refusal(&receiver, spec, &[start, Message::FlowEnded(counts)]);
    assert!(reason.contains("counts that no sender reaches"), "{reason}");

    // Packets: the first is no packet of ITG, the others are of a sender whose clock is off.
    let (peer, OpenedFlow { port, handle, .. }) = Peer::start(&receiver, |_| {});
    let own = socket_at("127.0.0.1:0", port);
    for (seq, sent_ns) in [(0, u64::MAX - 9), (1, 5), (2, 1 << 62)] {
        own.send(&packet(handle, seq, sent_ns)).expect("sent");
    }
    sleep(Duration::from_millis(100));
    let counts = peer.end(2);
    assert_eq!((counts.packets, counts.foreign), (2, 1), "{counts:?}");
    let tcp = |spec: &mut FlowSpec| spec.proto = Proto::Tcp;
    let (peer, OpenedFlow { port, handle, .. }) = Peer::start(&receiver, tcp);
    let mut own = connect_from("127.0.0.1:0", port);
    let bytes = [&104_u32.to_le_bytes()[..], &packet(handle, 0, u64::MAX - 9)].concat();
    own.write_all(&bytes).expect("it listens");
    drop(own.read(&mut [0; 10]));
    assert_eq!(peer.end(0).packets, 0);
    receiver.serves();
    drop(receiver.stop());

    let report = json(&[&log]);
    let (total, notices) = (&report["total"], report["notices"].to_string());
    let delay = |key: &str| total["delay_ns"][key].as_i64().expect("a delay");
    let day = 86_400_000_000_000;
    assert!(delay("min") > -day && delay("max") < day, "{total}");
    assert!(notices.contains("the total leaves out delays and lateness of flow 1"), "{notices}");
}

#[test]
fn logs_that_peers_name_are_new_files() {
    let dir = temp_dir();
    let at = |name: &str| dir.path().join(name);
    fs::write(at("outside"), "precious").expect("writable");
    fs::create_dir(at("logs")).expect("writable");
    symlink(at("outside"), at("logs/link.itg")).expect("a link");
    fs::write(at("logs/there.itg"), "precious").expect("writable");
    let pipe = at("logs/pipe.itg");
    let made = Command::new("mkfifo").arg(&pipe).status();
    assert!(made.is_ok_and(|made| made.success()), "a pipe");
    let own = at("logs/own.itg");
    let (logs, own) = (at("logs"), own.to_str().expect("UTF-8").to_owned());
    let logs = logs.to_str().expect("UTF-8");
    let mut receiver = Receiver::start(&["--log-dir", logs, "--log", own.as_str()]);
    receiver.serves();
    let address = receiver.at();
    for name in ["link.itg", "there.itg", "own.itg", "pipe.itg"] {
        let done = send(&[&address, "--packets", "3", "--recv-log", name]).exits(3);
        drop(done.says("choose another name"));
    }
    drop(send(&[&address, "--packets", "3", "--recv-log", "new.itg"]).exits(0));
    receiver.serves();
    drop(receiver.stop());
    assert_eq!(fs::read(at("outside")).expect("there"), b"precious");
    assert_eq!(fs::read(at("logs/there.itg")).expect("there"), b"precious");
    assert_eq!(packets(&[own]).len(), 10, "the receiver's own log is whole");
    let mode = std::os::unix::fs::PermissionsExt::mode(
        &fs::metadata(at("logs/new.itg")).expect("there").permissions(),
    );
    assert_eq!(mode & 0o137, 0, "{mode:o}");
}

/// Receiver's answer to a stranger of D-ITG's protocol who wants a log kept.
fn answer_to(receiver: &ClassicReceiver, wanted: &RecvLog) -> u8 {
    let mut peer = receiver.peer();
    peer.send(&[1]);
    assert_eq!(peer.hear(), [2]);
    peer.say(&SenderMessage::Log(wanted.clone()));
    let [answer] = peer.hear();
    answer
}

#[test]
fn itgrecv_writes_no_files_and_connects_nowhere_for_strangers() {
    let file = RecvLog::File { path: b"/tmp/planted".to_vec() };
    let path = b"planted".to_vec();
    let at = |address| RecvLog::Server { address, proto: LogProto::Tcp, path: path.clone() };
    let trap = TcpListener::bind((own_address(), itg_classic::wire::PORT_LOG)).expect("a port");
    trap.set_nonblocking(true).expect("a socket");
    let trapped = at(trap.local_addr().expect("bound").ip());
    let server = ClassicLogServer::start();
    let kept = at(server.host.parse().expect("an address"));
    for (args, files, servers) in [
        (&[][..], false, false),
        (&["--log-dir", "."], true, false),
        (&["--allow-log-servers"], false, true),
    ] {
        let receiver = ClassicReceiver::start(args);
        let answer = answer_to(&receiver, &file);
        assert_eq!(answer, if files { 18 } else { 21 }, "a file, with {args:?}");
        assert_eq!(receiver.file("planted").exists(), files, "with {args:?}");
        if servers {
            assert_eq!(answer_to(&receiver, &kept), 13, "a server, with {args:?}");
        } else {
            // The answer comes after whatever is done for it.
            assert_eq!(answer_to(&receiver, &trapped), 21, "a server, with {args:?}");
            assert!(trap.accept().is_err(), "it has connected, with {args:?}");
        }
        let said = receiver.stop().says("--trust-peers");
        assert_ne!(said.err.contains("--log-dir DIR"), files, "with {args:?}: {said}");
        assert_ne!(said.err.contains("--allow-log-servers"), servers, "with {args:?}: {said}");
    }
}

#[test]
fn logs_that_peers_of_d_itg_name_are_new_files() {
    let refused = |receiver: &ClassicReceiver, name: &str| {
        answer_to(receiver, &RecvLog::File { path: name.as_bytes().to_vec() }) == 21
    };
    let receiver = ClassicReceiver::start(&["--log-dir", "."]);
    drop(receiver.send(&["-z", "5", "-x", "log"]).exits(0));
    symlink(receiver.file("log"), receiver.file("link")).expect("a link");
    assert!(refused(&receiver, "log") && refused(&receiver, "link"));
    assert_eq!(receiver.log("log").len(), 5);
    drop(receiver.stop().says("--replace-logs"));
    let receiver = ClassicReceiver::start(&["--log-dir", ".", "--replace-logs"]);
    for packets in ["5", "7"] {
        drop(receiver.send(&["-z", packets, "-x", "log"]).exits(0));
    }
    assert_eq!(receiver.log("log").len(), 7);
    symlink(receiver.file("log"), receiver.file("link")).expect("a link");
    assert!(refused(&receiver, "link"));
    drop(receiver.stop());

    let receiver = ClassicReceiver::start(&["--allow-log-servers"]);
    let server = ClassicLogServer::start();
    let args = ["-X", &server.host, "TCP", "-x", "far", "-z"];
    drop(receiver.send(&[&args[..], &["5"]].concat()).exits(0));
    server.ended("far", 5);
    let first = server.log("far");
    drop(receiver.send(&[&args[..], &["7"]].concat()).exits(1));
    assert_eq!((first.len(), server.log("far").len()), (5, 5));
    drop(receiver.stop());
}
