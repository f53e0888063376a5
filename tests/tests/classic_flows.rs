//! `ITGSend` and `ITGRecv` against what breaks D-ITG's own. Named after the bugs of D-ITG (table in
//! `docs/d-itg.md`).
#![allow(missing_docs, reason = "tests")]

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use itg_classic::log::LogRecord;
use itg_classic::send::HeaderKind;
use itg_classic::wire::{OfferProto, PacketHeader, RecvLog, SenderMessage};
use itg_tests::{
    ClassicLogServer, ClassicReceiver, Output, Receiver, Running, classic_send, classic_sender,
    free_port, json, listens, not_run, open_files, own_address, program, temp_dir, wait_for,
};
use nix::sys::signal::Signal;
use socket2::{Domain, Protocol, Socket, Type};

const LIMIT: Duration = Duration::from_secs(90);

fn delays_ms(records: &[LogRecord]) -> impl Iterator<Item = f64> + '_ {
    records.iter().map(|record| record.delay() * 1e3)
}

fn bytes(records: &[LogRecord]) -> u64 {
    records.iter().map(|record| u64::from(record.size)).sum()
}

/// A receiver by hand, whose data port the caller reads: the conversation of one flow.
fn stand_in(data_port: u16) -> (String, JoinHandle<()>) {
    let signalling = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let port = signalling.local_addr().expect("bound").port().to_string();
    let talk = thread::spawn(move || {
        let (mut talk, _) = signalling.accept().expect("a sender");
        talk.set_read_timeout(Some(LIMIT)).expect("a time-out");
        talk.read_exact(&mut [0; 1]).expect("a greeting");
        talk.write_all(&[2]).expect("an answer");
        talk.read_exact(&mut [0; 27]).expect("an offer");
        let [high, low] = data_port.to_be_bytes();
        talk.write_all(&[5, 0, 0, 0, 1, high, low]).expect("an answer");
        talk.read_exact(&mut [0; 5]).expect("the end");
        talk.write_all(&[6, 0, 0, 0, 1]).expect("an answer");
        talk.read_exact(&mut [0; 1]).expect("a release");
        talk.write_all(&[7]).expect("an answer");
    });
    (port, talk)
}

#[test]
fn m1_the_mean_rate_is_kept() {
    let receiver = ClassicReceiver::start(&["-l", "r"]);
    for (rate, args) in [("1000", &["-poll"][..]), ("5000", &[]), ("20000", &["-c", "64"])] {
        let args = [&["-C", rate, "-t", "1000", "-l", "s"], args].concat();
        let want: usize = rate.parse().expect("a number");
        // A machine that stands still at the end of the time cannot make up for it.
        let mut sent = 0;
        let kept = (0..5).any(|_| {
            drop(receiver.send(&args).exits(0));
            sent = receiver.log("s").len();
            sent.abs_diff(want) <= want / 100
        });
        assert!(kept, "{sent} packets at -C {rate}");
    }
}

/// A receiver whose replies take longer than the inter-departure time.
#[test]
fn m2_round_trips_longer_than_the_gap_are_right() {
    const LATER: Duration = Duration::from_millis(120);
    let dir = temp_dir();
    let data = UdpSocket::bind("127.0.0.1:0").expect("loopback");
    let (port, talk) = stand_in(data.local_addr().expect("bound").port());
    data.set_read_timeout(Some(Duration::from_millis(5))).expect("a time-out");
    let echo = thread::spawn(move || {
        let mut waiting = Vec::new();
        let (mut buffer, mut answered) = ([0; 2048], 0);
        while answered < 20 {
            if let Ok((len, from)) = data.recv_from(&mut buffer) {
                waiting.push((Instant::now() + LATER, buffer[..len].to_vec(), from));
            }
            while waiting.first().is_some_and(|(due, ..)| *due <= Instant::now()) {
                let (_, packet, from) = waiting.remove(0);
                data.send_to(&packet, from).expect("loopback");
                answered += 1;
            }
        }
    });
    let log = dir.path().join("s");
    let args = ["-a", "127.0.0.1", "-Sdp", &port, "-m", "rttm", "-C", "50", "-z", "20", "-l", "s"];
    let done = classic_send(dir.path(), &args).exits(0);
    echo.join().expect("twenty packets");
    talk.join().expect("a conversation in order");
    let log = fs::read(log).expect("a log");
    let records: Vec<_> = itg_classic::log::records(&log).collect();
    assert_eq!(records.len(), 20);
    for rtt in delays_ms(&records) {
        // How long this machine takes by itself is not what is tested.
        let most = done.took.as_secs_f64() * 1e3;
        assert!((120.0..most).contains(&rtt), "a round trip of {rtt} ms in a run of {most} ms");
    }
}

#[test]
fn m3_bursts_have_fresh_times_and_their_gaps() {
    let receiver = ClassicReceiver::start(&["-l", "r"]);
    drop(receiver.send(&["-C", "100", "-z", "60", "-B", "C", "200", "C", "200"]).exits(0));
    let records = receiver.log("r");
    assert_eq!(records.len(), 60);
    // Twenty packets a burst, 10 ms apart, a burst every 400 ms. A busy machine may be late.
    let late_ms = |record: &LogRecord| {
        let place = record.seq - 1;
        record.tx.seconds() * 1e3 - f64::from(place / 20 * 400 + place % 20 * 10)
    };
    let late: Vec<f64> = records.iter().map(late_ms).collect();
    let least = |of: &[f64]| of.iter().copied().fold(f64::INFINITY, f64::min);
    // Without its pause a burst would be 200 ms before its time, and with a stale time as well.
    assert!(least(&late[20..]) > least(&late[..20]) - 100.0, "a packet before its time: {late:?}");
    let times = records.iter().map(|record| record.tx.seconds());
    assert!(times.is_sorted_by(|before, behind| before < behind), "a stale time: {late:?}");
}

#[test]
fn m4_no_record_is_missing_at_the_end_of_a_flow() {
    let receiver = ClassicReceiver::start(&["-l", "r"]);
    let args = ["-T", "TCP", "-C", "40000", "-c", "200", "-z", "40003", "-l", "s"];
    drop(receiver.send(&args).exits(0));
    let (sent, received) = (receiver.log("s"), receiver.log("r"));
    assert_eq!((sent.len(), received.len()), (40_003, 40_003));
    assert_eq!(bytes(&sent), bytes(&received));
}

#[test]
fn m4_ctrl_c_leaves_whole_logs() {
    let receiver = ClassicReceiver::start(&["-l", "r", "-q", "1"]);
    let sending = receiver.sender(&["-C", "2000", "-t", "30000", "-l", "s", "-q", "400"]);
    wait_for("packets to come", LIMIT, || receiver.log("r").len() > 500);
    sending.signal(Signal::SIGINT);
    drop(sending.finish(LIMIT).exits(130));
    let (sent, received) = (receiver.log("s"), receiver.log("r"));
    assert_eq!(sent.len(), received.len());
    assert!(sent.iter().map(|record| record.seq).eq(1..=u32::try_from(sent.len()).expect("few")));
}

#[test]
fn m7_packets_of_a_headers_length_and_streams_without_headers_are_counted_whole() {
    let receiver = ClassicReceiver::start(&["-l", "r"]);
    drop(receiver.send(&["-T", "TCP", "-p", "1", "-c", "1", "-C", "500", "-z", "50"]).exits(0));
    let records = receiver.log("r");
    assert_eq!((records.len(), bytes(&records)), (50, 50 * 12));
    let receiver = ClassicReceiver::start(&["-l", "r"]);
    drop(receiver.send(&["-T", "TCP", "-p", "2", "-c", "100", "-C", "500", "-z", "50"]).exits(0));
    assert_eq!(bytes(&receiver.log("r")), 5000, "without headers the bytes are what there is");
    assert!(receiver.log("r").iter().all(|record| record.seq == 0));
}

#[test]
fn m8_s10_icmp_counts_each_packet_once_and_measures_round_trips() {
    if not_run() {
        return;
    }
    let receiver = ClassicReceiver::start(&["-l", "r"]);
    drop(receiver.send(&["-T", "ICMP", "-C", "200", "-z", "40", "-l", "s"]).exits(0));
    assert_eq!((receiver.log("s").len(), receiver.log("r").len()), (40, 40));
    let args = ["-T", "ICMP", "-m", "rttm", "-C", "200", "-z", "40", "-l", "s"];
    drop(receiver.send(&args).exits(0));
    assert_eq!(receiver.log("s").len(), 40, "replies");
}

/// Silence suppression makes packets smaller and nothing else, as with D-ITG.
#[test]
fn m12_vad_only_makes_packets_smaller() {
    let receiver = ClassicReceiver::start(&["-l", "r"]);
    let args = ["-z", "25", "VoIP", "-x", "G.711.2", "-h", "RTP", "-VAD"];
    drop(receiver.send(&args).exits(0));
    let records = receiver.log("r");
    assert_eq!((records.len(), bytes(&records)), (25, 25 * 116));
}

#[test]
fn s1_s7_the_flow_that_ends_first_ends_alone_and_hundreds_run_together() {
    let receiver = ClassicReceiver::start(&["-l", "r"]);
    let lines = ["-E 200 -t 900 -s 0.3", "-E 200 -t 300 -s 0.4", "-t 600 VoIP"];
    let done = receiver.send_script(&lines, &["-l", "s"]).exits(0);
    for flow in 1..=3 {
        assert!(done.out.contains(&format!("Finished sending packets of flow ID: {flow}")));
    }
    let count = |records: &[LogRecord]| {
        let mut flows: BTreeMap<u32, u32> = BTreeMap::new();
        records.iter().for_each(|record| *flows.entry(record.flow).or_default() += 1);
        flows
    };
    let (sent, received) = (count(&receiver.log("s")), count(&receiver.log("r")));
    assert_eq!((sent.len(), &sent), (3, &received), "{done}");
    let receiver = ClassicReceiver::start(&["-l", "r"]);
    let done = receiver.send_script(&["-C 100 -z 3 -c 64"; 450], &["-l", "s"]).exits(0);
    let received = count(&receiver.log("r"));
    assert_eq!((received.len(), received.values().sum::<u32>()), (450, 1350), "{done}");
}

#[test]
fn s2_s3_own_addresses_ports_and_interfaces_are_used() {
    let receiver = ClassicReceiver::start(&["-l", "r", "--allow-source", "127.0.0.7"]);
    let own = free_port();
    let own_text = own.to_string();
    let args = ["-sa", "127.0.0.7", "-sp", &own_text, "-Ssa", "127.0.0.8", "-C", "500", "-z", "20"];
    drop(receiver.send(&args).exits(0));
    let records = receiver.log("r");
    let from = |r: &LogRecord| (r.src.as_bytes() == b"127.0.0.7", r.src_port == u32::from(own));
    assert!(records.iter().all(|record| from(record) == (true, true)), "{records:?}");
    assert_eq!(records.len(), 20);
    drop(receiver.send(&["-Si", "lo", "-C", "500", "-z", "20"]).exits(0));
}

#[test]
fn s9_a_telnet_round_trip_ends() {
    let receiver = ClassicReceiver::start(&["-l", "r"]);
    let args = ["-m", "rttm", "-t", "1000", "-s", "0.6", "-l", "s", "Telnet"];
    let done = receiver.send(&args).exits(0);
    let (sent, received) = (receiver.log("s"), receiver.log("r"));
    assert!(received.len() > 20, "{done}");
    assert_eq!((sent.len(), bytes(&sent)), (received.len(), bytes(&received)));
}

#[test]
fn s11_s12_s14_failures_have_an_exit_code_and_words() {
    let mut receiver = ClassicReceiver::start(&[]);
    drop(receiver.send(&["-l", "/nonexistent/x"]).exits(1).says("/nonexistent/x"));
    // A port of the receiver that is taken.
    let taken = UdpSocket::bind("127.0.0.1:0").expect("loopback");
    let port = taken.local_addr().expect("bound").port().to_string();
    let done = receiver.send(&["-rp", &port, "-z", "5"]).exits(1);
    drop(done.says("the receiver cannot open its UDP socket"));
    receiver.serves();
    let nobody = free_port().to_string();
    drop(receiver.send(&["-Sdp", &nobody]).exits(1).says("no receiver at 127.0.0.1"));
    // The receiver dies while packets flow: what was sent stays logged.
    let sending = receiver.sender(&["-C", "200", "-t", "20000", "-l", "s"]);
    wait_for("packets to flow", LIMIT, || {
        fs::metadata(receiver.file("s")).is_ok_and(|log| log.len() > 144 * 100)
    });
    receiver.running.signal(Signal::SIGKILL);
    let done = sending.finish(LIMIT).exits(1).says("the receiver has gone");
    assert!(receiver.log("s").len() > 100, "{done}");
}

#[test]
fn s13_r13_a_full_disk_is_told() {
    let receiver = ClassicReceiver::start(&["-l", "/dev/full"]);
    let done = receiver.send(&["-C", "1000", "-z", "200", "-l", "/dev/full"]).exits(1);
    drop(done.says("No space left on device").says("200 records lost"));
    receiver.running.signal(Signal::SIGINT);
    let done = receiver.running.finish(LIMIT).exits(1);
    drop(done.says("No space left on device").says("200 records lost"));
}

/// Request of our sender for a log, to a receiver that refuses it: `len` bytes.
fn wish(args: &[&str], len: usize) -> Vec<u8> {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let port = listener.local_addr().expect("bound").port().to_string();
    let dir = temp_dir();
    let sending = classic_sender(dir.path(), &[&["-a", "127.0.0.1", "-Sdp", &port], args].concat());
    let (mut talk, _) = listener.accept().expect("a sender");
    talk.set_read_timeout(Some(LIMIT)).expect("a time-out");
    talk.read_exact(&mut [0; 1]).expect("a greeting");
    talk.write_all(&[2]).expect("an answer");
    let mut request = vec![0xFF; len];
    talk.read_exact(&mut request).expect("a wish for a log");
    talk.write_all(&[21]).expect("an answer");
    assert_eq!(talk.read(&mut [0; 8]).expect("a release"), 1);
    drop(sending.finish(LIMIT).exits(1).says("refuses to keep the log"));
    request
}

/// These bytes, and zeros up to a length.
fn filled(bytes: &[u8], len: usize) -> Vec<u8> {
    let mut filled = bytes.to_vec();
    filled.resize(len, 0);
    filled
}

#[test]
fn s16_nothing_of_the_programs_memory_leaves() {
    assert_eq!(wish(&["-x", "name"], 201), filled(b"\x13name", 201));
    let server = [12, 0, 0, 0, 2, 127, 9, 8, 7, 0, 0, 1];
    let want = filled(&[&server[..], b"name"].concat(), 212);
    assert_eq!(wish(&["-X", "127.9.8.7", "TCP", "-x", "name"], 212), want);
}

/// The requests to a log server, and the records that go there.
#[test]
fn s16_nothing_of_the_programs_memory_goes_to_a_log_server() {
    let host = own_address();
    let listener = TcpListener::bind((host, 9001)).expect("an address of our own");
    let data = UdpSocket::bind((host, 0)).expect("an address of our own");
    data.set_read_timeout(Some(LIMIT)).expect("a time-out");
    let port = u32::from(data.local_addr().expect("bound").port());
    // The sender's log and the receiver's.
    let clients = thread::spawn(move || {
        let talks = [(); 2].map(|()| {
            let (mut talk, _) = listener.accept().expect("a client");
            talk.set_read_timeout(Some(LIMIT)).expect("a time-out");
            talk.write_all(&[1]).expect("a client");
            let mut request = vec![0xFF; 204];
            talk.read_exact(&mut request).expect("a request");
            talk.write_all(&port.to_be_bytes()).expect("a client");
            (talk, request)
        });
        talks.map(|(mut talk, request)| {
            let mut stop = vec![0xFF; 204];
            talk.read_exact(&mut stop).expect("the end");
            (request, stop)
        })
    });
    let receiver = ClassicReceiver::start(&["--trust-peers"]);
    let host = host.to_string();
    let logs = ["-L", &host, "UDP", "-l", "log", "-X", &host, "UDP", "-x", "log"];
    drop(receiver.send(&[&["-C", "1000", "-z", "10"], &logs[..]].concat()).exits(0));
    for (request, stop) in clients.join().expect("two clients") {
        assert_eq!(request, filled(b"\x02\0\0\0log", 204));
        assert_eq!(stop, filled(&[2, 1], 204));
    }
    let (mut block, mut seen) = (vec![0xFF; 65_536], 0);
    while seen < 20 {
        let len = data.recv(&mut block).expect("records");
        for record in block[..len].chunks(144) {
            for address in [&record[36..82], &record[82..128]] {
                assert_eq!(address, filled(b"127.0.0.1", 46));
            }
            assert_eq!(record[128..], [0; 16]);
            seen += 1;
        }
    }
}

#[test]
fn s16_nothing_of_the_programs_memory_stands_in_icmp() {
    if not_run() {
        return;
    }
    let mut seen = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::ICMPV4)).expect("root");
    seen.set_read_timeout(Some(LIMIT)).expect("a time-out");
    let (receiver, own) = (ClassicReceiver::start(&[]), own_address());
    let args = ["-T", "ICMP", "-sa", &own.to_string(), "-C", "500", "-z", "10"];
    drop(receiver.send(&args).exits(0));
    let (mut packet, mut ours) = ([0xFF; 2048], 0);
    while ours < 10 {
        let len = seen.read(&mut packet).expect("echo requests");
        let (ip, icmp) = packet[..len].split_at(20);
        if ip[12..16] == own.octets() && icmp[0] == 8 {
            assert_eq!((icmp[1], &icmp[4..8]), (0, &[0; 4][..]), "identifier and number");
            ours += 1;
        }
    }
}

#[test]
fn r1_an_ending_channel_leaves_the_others_alone() {
    let receiver = ClassicReceiver::start(&["-l", "r"]);
    drop(receiver.send(&["-C", "100", "-z", "5"]).exits(0));
    let (a, b) = (free_port().to_string(), free_port().to_string());
    let first = receiver.sender(&["-rp", &a, "-C", "100", "-t", "300"]);
    let second = receiver.sender(&["-rp", &b, "-C", "100", "-z", "100"]);
    drop(first.finish(LIMIT).exits(0));
    drop(second.finish(LIMIT).exits(0));
    let last: u32 = b.parse().expect("a port");
    let of_second = receiver.log("r").iter().filter(|record| record.dst_port == last).count();
    assert_eq!(of_second, 100);
}

#[test]
fn r2_ten_thousand_channels_in_a_row_leave_nothing_behind() {
    let mut receiver = ClassicReceiver::start(&[]);
    receiver.serves();
    let before = open_files(receiver.running.pid());
    for _ in 0..10_000 {
        let mut peer = receiver.peer();
        peer.send(&[1]);
        assert_eq!(peer.hear(), [2]);
        peer.send(&[11]);
        assert_eq!(peer.hear(), [7]);
    }
    receiver.serves();
    wait_for("descriptors to be closed", LIMIT, || {
        open_files(receiver.running.pid()) <= before + 2
    });
}

#[test]
fn r3_a_log_is_its_channels_alone() {
    let mut receiver = ClassicReceiver::start(&["--trust-peers"]);
    drop(receiver.send(&["-C", "1000", "-z", "100", "-x", "first"]).exits(0));
    drop(receiver.send(&["-C", "1000", "-z", "100"]).exits(0));
    assert_eq!(receiver.log("first").len(), 100);
    receiver.serves();
}

#[test]
fn r4_a_log_at_a_server_is_its_channels_alone() {
    let mut receiver = ClassicReceiver::start(&["--trust-peers"]);
    let server = ClassicLogServer::start();
    let run = |proto: &str, name: &str| {
        let args = ["-C", "2000", "-z", "100", "-X", &server.host, proto, "-x", name];
        drop(receiver.send(&args).exits(0));
    };
    run("TCP", "first");
    drop(receiver.send(&["-C", "2000", "-z", "120"]).exits(0));
    run("UDP", "second");
    receiver.serves();
    assert_eq!((server.log("first").len(), server.log("second").len()), (100, 100));
}

#[test]
fn r5_the_receivers_own_log_and_one_at_a_server_are_two() {
    let receiver = ClassicReceiver::start(&["-l", "own", "--allow-log-servers"]);
    let server = ClassicLogServer::start();
    let run = |packets: &str, args: &[&str]| {
        let flow = ["-C", "2000", "-c", "100", "-z", packets];
        drop(receiver.send(&[&flow, args].concat()).exits(0));
    };
    run("60", &[]);
    run("100", &["-X", &server.host, "TCP", "-x", "far"]);
    run("40", &[]);
    for (log, packets) in [(receiver.log("own"), 100), (server.log("far"), 100)] {
        assert_eq!((log.len(), bytes(&log)), (packets, packets as u64 * 100));
        let good = |record: &LogRecord| record.is_good() && record.src.as_bytes() == b"127.0.0.1";
        assert!(log.iter().all(good), "{log:?}");
    }
    let numbers: Vec<_> = receiver.log("own").iter().map(|record| record.seq).collect();
    assert!(numbers.into_iter().eq((1..=60).chain(1..=40)), "the flows without a server");
}

#[test]
fn r6_r9_strange_messages_and_silent_ends_end_one_channel() {
    let mut receiver = ClassicReceiver::start(&["-l", "r"]);
    for kind in 23..=255 {
        let mut peer = receiver.peer();
        peer.send(&[1]);
        assert_eq!(peer.hear(), [2]);
        peer.send(&[kind]);
        assert!(peer.is_closed(), "message {kind}");
    }
    let dying = receiver.sender(&["-C", "200", "-t", "20000"]);
    wait_for("packets to come", LIMIT, || !receiver.log("r").is_empty());
    dying.signal(Signal::SIGKILL);
    drop(dying);
    receiver.serves();
}

#[test]
fn r7_r12_peers_cannot_write_where_they_like() {
    let mut receiver = ClassicReceiver::start(&["--trust-peers"]);
    fs::write(receiver.file("mine"), "not a log").expect("writable");
    for path in ["mine", "..", ".profile", "a\nb", "/", ""] {
        let mut peer = receiver.peer();
        peer.send(&[1]);
        assert_eq!(peer.hear(), [2]);
        peer.say(&SenderMessage::Log(RecvLog::File { path: path.as_bytes().to_vec() }));
        assert_eq!(peer.hear(), [21], "{path:?}");
        peer.send(&[11]);
    }
    assert_eq!(fs::read(receiver.file("mine")).expect("still there"), b"not a log");
    drop(receiver.send(&["-z", "5", "-x", "/nonexistent/../../etc/f"]).exits(0));
    assert_eq!(receiver.log("f").len(), 5);
    receiver.serves();
}

#[test]
fn r7_an_absent_log_server_and_rare_transports_end_nothing() {
    let mut receiver = ClassicReceiver::start(&["--trust-peers"]);
    let nobody = own_address().to_string();
    for proto in ["UDP", "TCP"] {
        let done = receiver.send(&["-z", "5", "-X", &nobody, proto]).exits(1);
        drop(done.says("refuses to keep the log"));
    }
    for proto in [OfferProto::Sctp, OfferProto::Dccp] {
        let mut peer = receiver.peer();
        // Some kernels have them.
        let answer = peer.offer(proto, free_port());
        assert!([5, 15].contains(&answer), "answer {answer} to {proto:?}");
        peer.send(&[17, 0, 0, 0, 1, 11]);
        assert_eq!(peer.hear(), [7]);
    }
    receiver.serves();
}

#[test]
fn r8_an_oversized_length_ends_one_connection() {
    let mut receiver = ClassicReceiver::start(&["-l", "r"]);
    let mut peer = receiver.peer();
    peer.open(OfferProto::Tcp, receiver.data);
    let mut data = TcpStream::connect((Ipv4Addr::LOCALHOST, receiver.data)).expect("listens");
    let mut head = [0; 20];
    let header = PacketHeader { flow: 1, seq: 1, seconds: 5, micros: 5 };
    assert_eq!(header.put(HeaderKind::Standard, true, 400_000, &mut head), 20);
    data.write_all(&head).expect("an open connection");
    data.set_read_timeout(Some(LIMIT)).expect("a time-out");
    assert!(matches!(data.read(&mut [0]), Ok(0) | Err(_)), "the connection is closed");
    assert_eq!(peer.hear(), [22, 0, 0, 0, 1], "and the sender is told");
    peer.send(&[11]);
    assert_eq!(peer.hear(), [7]);
    receiver.serves();
}

#[test]
fn r14_the_receiver_may_choose_the_port() {
    let receiver = ClassicReceiver::start(&["-l", "r"]);
    let lines = ["-rp 0 -C 500 -z 50", "-rp 0 -C 500 -z 50", "-rp 0 -T TCP -C 500 -z 50"];
    drop(receiver.send_script(&lines, &[]).exits(0));
    assert_eq!(receiver.log("r").len(), 150);
}

/// Ports that the receiver chose and explicit ones in one table: the same port again, and the one with
/// its bytes swapped.
#[test]
fn r14_chosen_and_explicit_ports_live_side_by_side() {
    let mut receiver = ClassicReceiver::start(&["-l", "r"]);
    let mut first = receiver.peer();
    assert_eq!(first.offer(OfferProto::Udp, 0), 5, "accepted");
    let chosen = first.port;
    let swapped = chosen.swap_bytes();
    let is_free = swapped > 1023 && UdpSocket::bind((Ipv4Addr::LOCALHOST, swapped)).is_ok();
    let swapped = if is_free { swapped } else { free_port() };
    let (same, swapped) = (chosen.to_string(), swapped.to_string());
    let lines = ["-rp 0 -C 500 -z 50", "-C 500 -z 40"].map(str::to_owned);
    let more = [&same, &swapped].map(|port| format!("-rp {port} -C 500 -z 30"));
    let lines: Vec<String> = lines.into_iter().chain(more).collect();
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    drop(receiver.send_script(&lines, &[]).exits(0));
    let records = receiver.log("r");
    let count = |flow| records.iter().filter(|record| record.flow == flow).count();
    assert_eq!([1, 2, 3, 4].map(count), [50, 40, 30, 30]);
    first.say(&SenderMessage::Ended(1));
    assert_eq!(first.hear(), [6, 0, 0, 0, 1], "the first flow is still its own");
    receiver.serves();
}

/// Packets of ITG's flows and D-ITG's cannot be told apart on one port: the sender that comes
/// second is refused, in words that say why.
#[test]
fn flows_of_both_protocols_do_not_share_a_port() {
    let receiver = Receiver::start(&["-v"]);
    let port = receiver.address.port().to_string();
    for native_first in [true, false] {
        let data = free_port().to_string();
        let (at, dir) = (receiver.at(), temp_dir());
        let own = [&at, "--dest-port", &data, "--packets", "20000", "--idt", "1ms"];
        let old = ["-a", "127.0.0.1", "-Sdp", &port, "-rp", &data, "-C", "1000", "-t", "20000"];
        let (first, second) = if native_first {
            let first = itg_tests::sender(&own);
            drop(receiver.running.line_with(" flows", LIMIT));
            takes(&receiver, &data);
            (first, classic_send(dir.path(), &old).exits(1).says("cannot open its UDP socket"))
        } else {
            let first = classic_sender(dir.path(), &old);
            takes(&receiver, &data);
            (first, itg_tests::send(&own).exits(3).says("flows in D-ITG's protocol use that port"))
        };
        assert!(second.err.contains("port") || second.err.contains("socket"), "{second}");
        if native_first {
            drop(receiver.running.line_with("flows in ITG's own protocol use that port", LIMIT));
        }
        first.signal(Signal::SIGINT);
        drop(first.finish(LIMIT).exits(130));
    }
    drop(receiver.stop());
}

fn takes(receiver: &Receiver, port: &str) {
    itg_tests::takes_datagrams(&receiver.running, port.parse().expect("a port"));
}

/// Packets of a flow, header and all, as they come to 127.0.0.1.
fn arrived(dir: &Path, transport: &str, size: usize, args: &[&str]) -> Vec<Vec<u8>> {
    let size_text = size.to_string();
    let own = ["-T", transport, "-c", &size_text];
    arrived_from(transport, size, |port| {
        let to = ["-a", "127.0.0.1", "-Sdp", port];
        classic_send(dir, &[&to[..], &own, args].concat())
    })
}

/// The same of any sender to a signalling port.
fn arrived_from(transport: &str, size: usize, send: impl FnOnce(&str) -> Output) -> Vec<Vec<u8>> {
    let udp = UdpSocket::bind("127.0.0.1:0").expect("loopback");
    udp.set_read_timeout(Some(LIMIT)).expect("a time-out");
    let tcp = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let at = if transport == "UDP" { udp.local_addr() } else { tcp.local_addr() };
    let (port, talk) = stand_in(at.expect("bound").port());
    drop(send(&port).exits(0));
    talk.join().expect("a conversation in order");
    if transport == "UDP" {
        let packet = || {
            let mut packet = vec![0; 2048];
            let len = udp.recv(&mut packet).expect("packets");
            packet.truncate(len);
            packet
        };
        return (0..4).map(|_| packet()).collect();
    }
    let mut all = Vec::new();
    let (mut data, _) = tcp.accept().expect("a connection");
    data.read_to_end(&mut all).expect("the end of it");
    all.chunks(size).map(<[u8]>::to_vec).collect()
}

/// The rest of a file is followed by zeros, and then it begins anew.
#[test]
fn payload_comes_from_a_file_piece_by_piece() {
    let dir = temp_dir();
    let file: Vec<u8> = (1..=250).collect();
    fs::write(dir.path().join("payload"), &file).expect("writable");
    let rest = filled(&file[200..], 100);
    let pieces = [&file[..100], &file[100..200], &rest, &file[..100]];
    for (transport, kind, header) in
        [("UDP", "0", 16), ("UDP", "1", 8), ("UDP", "2", 0), ("TCP", "0", 20), ("TCP", "1", 12)]
    {
        let args = ["-C", "1000", "-z", "4", "-p", kind, "-Fp", "payload"];
        let packets = arrived(dir.path(), transport, header + 100, &args);
        let carried: Vec<_> = packets.iter().map(|packet| &packet[header..]).collect();
        assert_eq!(carried, pieces, "{transport} -p {kind}");
    }
}

/// `itg-send --classic`: ITG's payload behind D-ITG's header.
#[test]
fn itg_send_carries_its_payload_behind_the_old_header() {
    let dir = temp_dir();
    let file = dir.path().join("payload");
    fs::write(&file, b"from a file ").expect("writable");
    let file = format!("file:{}", file.display());
    for (transport, header) in [("UDP", 16), ("TCP", 20)] {
        for (payload, want) in [("pattern:00ff41", &b"\x00\xff\x41"[..]), (&file, b"from a file ")]
        {
            let (proto, size) = (transport.to_ascii_lowercase(), header + 50);
            let size_text = size.to_string();
            let args = ["--classic", "--packets", "4", "--payload", payload, "--size", &size_text];
            let packets = arrived_from(transport, size, |port| {
                let at = format!("127.0.0.1:{port}");
                itg_tests::send(&[&args[..], &["--proto", &proto, &at]].concat())
            });
            let want: Vec<u8> = want.iter().copied().cycle().take(50).collect();
            assert_eq!(packets.len(), 4, "{transport}");
            for (place, packet) in packets.iter().enumerate() {
                let head = PacketHeader::parse(HeaderKind::Standard, packet).expect("a header");
                assert_eq!((head.flow as usize, head.seq as usize), (1, place + 1), "{transport}");
                assert_eq!(packet[header..], want, "{transport} {payload}");
            }
        }
    }
}

/// A receiver that dies: what was sent is told, and in the log.
#[test]
fn itg_send_tells_what_it_sent_to_a_receiver_that_died() {
    let dir = temp_dir();
    for proto in ["udp", "tcp"] {
        let receiver = ClassicReceiver::start(&["-l", "r", "-q", "1"]);
        let (at, data) = (format!("127.0.0.1:{}", receiver.port), receiver.data.to_string());
        let log = dir.path().join(proto);
        let log = log.to_str().expect("UTF-8");
        let flow = ["--proto", proto, "--rate", "500pps", "--duration", "60s", "--log", log];
        let to = ["--classic", "--dest-port", &data, &at];
        let sending = itg_tests::sender(&[&flow[..], &to].concat());
        wait_for("packets to come", LIMIT, || receiver.log("r").len() > 50);
        receiver.running.signal(Signal::SIGKILL);
        let done = sending.finish(LIMIT).exits(4).says("the receiver has gone");
        let packets = json(&[log])["flows"][0]["packets"].as_u64().expect("a number");
        assert!(packets > 50, "{done}");
        assert!(done.out.contains(&format!("sent {packets} packets")), "{done}");
        assert!(done.out.contains("ended: "), "{done}");
    }
}

/// A sender that could not run for a while makes up for it, or with `-j 0` does not.
#[test]
fn without_a_kept_rate_nothing_is_made_up_for() {
    let [kept, given_up] = ["1", "0"].map(|kept| {
        thread::spawn(move || {
            let receiver = ClassicReceiver::start(&["-l", "r", "-q", "1"]);
            let sending = receiver.sender(&["-C", "100", "-t", "5000", "-j", kept]);
            wait_for("packets to come", LIMIT, || receiver.log("r").len() >= 10);
            sending.signal(Signal::SIGSTOP);
            thread::sleep(Duration::from_millis(400));
            sending.signal(Signal::SIGCONT);
            drop(sending.finish(LIMIT).exits(0));
            receiver.log("r").len()
        })
    });
    let packets = kept.join().expect("a run");
    assert!((470..=500).contains(&packets), "{packets} packets");
    let packets = given_up.join().expect("a run");
    assert!((10..=461).contains(&packets), "{packets} packets");
}

#[test]
fn packets_bytes_and_time_end_flows() {
    let receiver = ClassicReceiver::start(&["-l", "r"]);
    let lines = [
        "-C 500 -z 7",
        // The packet that crosses the limit is sent.
        "-C 500 -c 100 -k 1",
        "-C 500 -c 100 -k 1 -z 9",
        "-C 100 -z 1000 -t 300",
        "-T TCP -C 500 -c 100 -k 1 -t 10000",
    ];
    let done = receiver.send_script(&lines, &["-l", "s"]).exits(0);
    for log in ["s", "r"] {
        let mut counts = [0; 5];
        receiver.log(log).iter().for_each(|record| counts[record.flow as usize - 1] += 1);
        // A machine that stands still at the end of a time leaves out what it could not send within it.
        assert!((1..=30).contains(&counts[3]), "{log}: {counts:?}: {done}");
        counts[3] = 30;
        assert_eq!(counts, [7, 11, 9, 30, 11], "{log}: {done}");
    }
}

/// The log of a receiver in passive mode names both ends of a connection.
#[test]
fn ports_of_a_stream_in_passive_mode_are_logged() {
    let (dir, port) = (temp_dir(), free_port());
    let (signalling, sp, rp) = (port.to_string(), free_port(), free_port());
    let (sp_text, rp_text) = (sp.to_string(), rp.to_string());
    let args = ["-H", "-Ssp", &signalling, "-sp", &sp_text, "-rp", &rp_text, "-T", "TCP"];
    let sending = classic_sender(dir.path(), &[&args[..], &["-C", "500", "-z", "20"]].concat());
    listens(&sending, port);
    let mut command = std::process::Command::new(program("ITGRecv"));
    command.current_dir(dir.path()).args(["-H", "127.0.0.1", "-Sp", &signalling]);
    let receiving = Running::start(command.args(["-l", "r"]));
    drop(sending.finish(LIMIT).exits(0));
    drop(receiving.finish(LIMIT).exits(0));
    let log = fs::read(dir.path().join("r")).expect("a log");
    let records: Vec<_> = itg_classic::log::records(&log).collect();
    assert_eq!(records.len(), 20);
    for record in records {
        let ports = (record.src_port, record.dst_port);
        assert_eq!(ports, (u32::from(sp), u32::from(rp)), "{record:?}");
    }
}

/// The datagrams with which a receiver in passive mode opens the way are no packets.
#[test]
fn opening_datagrams_of_passive_mode_are_not_counted() {
    let (dir, port) = (temp_dir(), free_port());
    let (signalling, sp) = (port.to_string(), free_port().to_string());
    let rp = free_port().to_string();
    let args = ["-H", "-Ssp", &signalling, "-sp", &sp, "-rp", &rp, "-m", "rttm"];
    let flow = ["-C", "500", "-z", "20", "-c", "100", "-l", "s"];
    let sending = classic_sender(dir.path(), &[&args[..], &flow].concat());
    listens(&sending, port);
    let mut command = std::process::Command::new(program("ITGRecv"));
    command.current_dir(dir.path()).args(["-H", "127.0.0.1", "-Sp", &signalling]);
    let receiving = Running::start(command.args(["-n", "3", "-l", "r"]));
    drop(sending.finish(LIMIT).exits(0));
    drop(receiving.finish(LIMIT).exits(0));
    for name in ["s", "r"] {
        let log = fs::read(dir.path().join(name)).expect("a log");
        let records: Vec<_> = itg_classic::log::records(&log).collect();
        assert_eq!((records.len(), bytes(&records)), (20, 2000), "{name}");
        assert!(records.iter().all(|record| record.flow == 1), "{name}");
    }
}

#[test]
fn itg_recv_serves_both_protocols_on_one_port() {
    let dir = temp_dir();
    let log = dir.path().join("r.itg");
    let logs = dir.path().join("logs");
    fs::create_dir(&logs).expect("writable");
    let (log, logs) = (log.to_str().expect("utf-8"), logs.to_str().expect("utf-8"));
    let mut receiver = Receiver::start(&["--log", log, "--log-dir", logs]);
    receiver.serves();
    let (port, data) = (receiver.address.port().to_string(), free_port().to_string());
    let args = ["-a", "127.0.0.1", "-Sdp", &port, "-rp", &data, "-C", "500", "-c", "100", "-z"];
    drop(classic_send(dir.path(), &[&args[..], &["100", "-T", "UDP"]].concat()).exits(0));
    drop(classic_send(dir.path(), &[&args[..], &["90", "-T", "TCP"]].concat()).exits(0));
    drop(classic_send(dir.path(), &[&args[..], &["80", "-x", "own"]].concat()).exits(0));
    receiver.serves();
    drop(receiver.stop());
    let report = json(&[log]);
    let flows = report["flows"].as_array().expect("a list");
    let packets: u64 = flows.iter().map(|flow| flow["packets"].as_u64().expect("a number")).sum();
    assert_eq!(packets, 5 + 100 + 90 + 5, "{report}");
    let own = json(&[format!("{logs}/own")]);
    assert_eq!(own["flows"][0]["packets"], 80, "{own}");
}
