//! `ITGSend` and `ITGRecv` against what breaks D-ITG's own. Named after the bugs of D-ITG (table in
//! `docs/d-itg.md`).
#![allow(missing_docs, reason = "tests")]

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use itg_classic::log::LogRecord;
use itg_classic::send::HeaderKind;
use itg_classic::wire::{OfferProto, PacketHeader, RecvLog, SenderMessage};
use itg_tests::{
    ClassicReceiver, Receiver, classic_send, free_port, json, not_run, open_files, temp_dir,
    wait_for,
};
use nix::sys::signal::Signal;

fn delays_ms(records: &[LogRecord]) -> impl Iterator<Item = f64> + '_ {
    records.iter().map(|record| record.delay() * 1e3)
}

fn bytes(records: &[LogRecord]) -> u64 {
    records.iter().map(|record| u64::from(record.size)).sum()
}

#[test]
fn m1_the_mean_rate_is_kept() {
    let receiver = ClassicReceiver::start(&["-l", "r"]);
    for (rate, args) in [("1000", &["-poll"][..]), ("5000", &[]), ("20000", &["-c", "64"])] {
        let args = [&["-C", rate, "-t", "1000", "-l", "s"], args].concat();
        let done = receiver.send(&args).exits(0);
        let sent = receiver.log("s").len();
        let want: usize = rate.parse().expect("a number");
        assert!(sent.abs_diff(want) <= want / 100, "{sent} packets at -C {rate}: {done}");
    }
}

/// A receiver whose replies take longer than the gap between packets.
#[test]
fn m2_round_trips_longer_than_the_gap_are_right() {
    const LATER: Duration = Duration::from_millis(120);
    let dir = temp_dir();
    let signalling = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let data = UdpSocket::bind("127.0.0.1:0").expect("loopback");
    let (port, data_port) =
        (signalling.local_addr().expect("bound").port(), data.local_addr().expect("bound").port());
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
    let talk = thread::spawn(move || {
        let (mut talk, _) = signalling.accept().expect("a sender");
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
    let (port, log) = (port.to_string(), dir.path().join("s"));
    let args = ["-a", "127.0.0.1", "-Sdp", &port, "-m", "rttm", "-C", "50", "-z", "20", "-l", "s"];
    drop(classic_send(dir.path(), &args).exits(0));
    echo.join().expect("twenty packets");
    talk.join().expect("a conversation in order");
    let log = fs::read(log).expect("a log");
    let records: Vec<_> = itg_classic::log::records(&log).collect();
    assert_eq!(records.len(), 20);
    for rtt in delays_ms(&records) {
        assert!((120.0..400.0).contains(&rtt), "a round trip of {rtt} ms");
    }
}

#[test]
fn m3_bursts_have_fresh_times_and_their_gaps() {
    let receiver = ClassicReceiver::start(&["-l", "r"]);
    drop(receiver.send(&["-C", "100", "-t", "1200", "-B", "C", "200", "C", "200"]).exits(0));
    let records = receiver.log("r");
    assert!(records.len() >= 55, "{} packets", records.len());
    let mut gaps = records.windows(2).map(|pair| pair[1].tx.seconds() - pair[0].tx.seconds());
    assert_eq!(gaps.clone().filter(|gap| *gap > 0.15).count(), 2, "pauses");
    assert!(gaps.all(|gap| gap > 0.004), "two packets at once");
    assert!(delays_ms(&records).all(|ms| ms.abs() < 150.0), "a stale time");
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
    drop(receiver.send(&args).exits(0).within(Duration::from_secs(10)));
    assert_eq!(receiver.log("s").len(), 40, "replies");
}

#[test]
fn s1_s7_the_flow_that_ends_first_ends_alone_and_hundreds_run_together() {
    let receiver = ClassicReceiver::start(&["-l", "r"]);
    let lines = ["-E 200 -t 1200 -s 0.3", "-E 200 -t 300 -s 0.4", "-t 600 VoIP"];
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
    let receiver = ClassicReceiver::start(&["-l", "r"]);
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
    let done = receiver.send(&args).exits(0).within(Duration::from_secs(10));
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
    drop(done.says("the receiver cannot open a socket"));
    receiver.serves();
    let nobody = free_port().to_string();
    drop(receiver.send(&["-Sdp", &nobody]).exits(1).says("no receiver at 127.0.0.1"));
    // The receiver dies while packets flow: what was sent stays logged.
    let sending = receiver.sender(&["-C", "200", "-t", "20000", "-l", "s"]);
    wait_for("packets to flow", Duration::from_secs(20), || {
        fs::metadata(receiver.file("s")).is_ok_and(|log| log.len() > 144 * 100)
    });
    receiver.running.signal(Signal::SIGKILL);
    let done = sending.finish(Duration::from_secs(20)).exits(1).says("the receiver has gone");
    assert!(receiver.log("s").len() > 100, "{done}");
}

#[test]
fn s13_r13_a_full_disk_is_told() {
    let receiver = ClassicReceiver::start(&["-l", "/dev/full"]);
    let done = receiver.send(&["-C", "1000", "-z", "200", "-l", "/dev/full"]).exits(1);
    drop(done.says("No space left on device").says("200 records lost"));
    receiver.running.signal(Signal::SIGINT);
    let done = receiver.running.finish(Duration::from_secs(20)).exits(1);
    drop(done.says("No space left on device").says("200 records lost"));
}

#[test]
fn s16_nothing_of_the_programs_memory_leaves() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let port = listener.local_addr().expect("bound").port().to_string();
    let sending = thread::spawn(move || {
        let dir = temp_dir();
        classic_send(dir.path(), &["-a", "127.0.0.1", "-Sdp", &port, "-x", "name"]).exits(1)
    });
    let (mut talk, _) = listener.accept().expect("a sender");
    talk.read_exact(&mut [0; 1]).expect("a greeting");
    talk.write_all(&[2]).expect("an answer");
    let mut request = [0xFF; 201];
    talk.read_exact(&mut request).expect("a wish for a log");
    assert_eq!(&request[..5], b"\x13name");
    assert!(request[5..].iter().all(|&b| b == 0));
    talk.write_all(&[21]).expect("an answer");
    assert_eq!(talk.read(&mut [0; 8]).expect("a release"), 1);
    drop(sending.join().expect("a sender").says("refuses to keep the log"));
}

#[test]
fn r1_an_ending_channel_leaves_the_others_alone() {
    let receiver = ClassicReceiver::start(&["-l", "r"]);
    drop(receiver.send(&["-C", "100", "-z", "5"]).exits(0));
    let (a, b) = (free_port().to_string(), free_port().to_string());
    let first = receiver.sender(&["-rp", &a, "-C", "100", "-t", "700"]);
    let second = receiver.sender(&["-rp", &b, "-C", "100", "-t", "2000"]);
    drop(first.finish(Duration::from_secs(20)).exits(0));
    drop(second.finish(Duration::from_secs(20)).exits(0));
    let last: u32 = b.parse().expect("a port");
    let of_second = receiver.log("r").iter().filter(|record| record.dst_port == last).count();
    assert_eq!(of_second, 200);
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
    wait_for("descriptors to be closed", Duration::from_secs(20), || {
        open_files(receiver.running.pid()) <= before + 2
    });
}

#[test]
fn r3_a_log_is_its_channels_alone() {
    let mut receiver = ClassicReceiver::start(&[]);
    drop(receiver.send(&["-C", "1000", "-z", "100", "-x", "first"]).exits(0));
    drop(receiver.send(&["-C", "1000", "-z", "100"]).exits(0));
    assert_eq!(receiver.log("first").len(), 100);
    receiver.serves();
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
    wait_for("packets to come", Duration::from_secs(20), || !receiver.log("r").is_empty());
    dying.signal(Signal::SIGKILL);
    drop(dying);
    receiver.serves();
}

#[test]
fn r7_r12_peers_cannot_write_where_they_like() {
    let mut receiver = ClassicReceiver::start(&[]);
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
fn r8_an_oversized_length_ends_one_connection() {
    let mut receiver = ClassicReceiver::start(&["-l", "r"]);
    let mut peer = receiver.peer();
    peer.open(OfferProto::Tcp, receiver.data);
    let mut data = TcpStream::connect((Ipv4Addr::LOCALHOST, receiver.data)).expect("listens");
    let mut head = [0; 20];
    let header = PacketHeader { flow: 1, seq: 1, seconds: 5, micros: 5 };
    assert_eq!(header.put(HeaderKind::Standard, true, 400_000, &mut head), 20);
    data.write_all(&head).expect("an open connection");
    data.set_read_timeout(Some(Duration::from_secs(20))).expect("a time-out");
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
