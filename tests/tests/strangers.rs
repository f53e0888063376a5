//! Foreign input on the ports of a receiver: foreign packets, garbage, half-open peers, many
//! senders and many runs.
#![allow(missing_docs, reason = "tests")]

use std::io::{Read as _, Write as _};
use std::net::{TcpStream, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use itg_core::flow::FlowSpec;
use itg_session::{MAGIC, Message, OpenReply, OpenedFlow, decode, encode};
use itg_tests::{
    Receiver, accounts, clock_ticks, free_port, in_parallel, open_files, packets, send, sender,
    temp_dir, wait_for,
};

/// A message as it goes over the wire.
fn frame(message: &Message) -> Vec<u8> {
    let bytes = encode(message).expect("a short message");
    let mut frame = u32::try_from(bytes.len()).expect("short").to_le_bytes().to_vec();
    frame.extend(bytes);
    frame
}

fn hello(version: u16, flows: u32) -> Message {
    Message::Hello {
        magic: MAGIC,
        version,
        run: "0123456789abcdef0123456789abcdef".to_owned(),
        seed: 1,
        program: "a stranger".to_owned(),
        host: "elsewhere".to_owned(),
        boot_id: String::new(),
        flows,
        recv_log: None,
    }
}

fn connect(receiver: &Receiver) -> TcpStream {
    let stream = TcpStream::connect(receiver.address).expect("the receiver listens");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a time-out");
    stream
}

/// All that the receiver says until it hangs up.
fn rest(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    // A reset is an end, too.
    drop(stream.read_to_end(&mut bytes));
    bytes
}

/// The messages in what the receiver said.
fn messages(mut bytes: &[u8]) -> Vec<Message> {
    let mut all = Vec::new();
    while let Some((len, tail)) = bytes.split_first_chunk::<4>() {
        let (body, tail) = tail.split_at(u32::from_le_bytes(*len) as usize);
        all.push(decode(body).expect("a message"));
        bytes = tail;
    }
    all
}

/// The reason of the refusal with which the receiver hangs up.
#[track_caller]
fn refusal(stream: &mut TcpStream) -> String {
    let said = messages(&rest(stream));
    match said.last() {
        Some(Message::Refuse { reason }) => reason.clone(),
        other => panic!("no refusal but {other:?}"),
    }
}

#[test]
fn garbage_on_the_signalling_port_is_refused_and_the_next_sender_served() {
    let mut receiver = Receiver::start(&["-v"]);
    // Bytes that look like anything; the generator is Knuth's MMIX one.
    let mut state = 42u64;
    let noise: Vec<u8> = std::iter::repeat_with(|| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    })
    .take(10_000)
    .collect();
    let http = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec();
    let huge = u32::MAX.to_le_bytes().to_vec();
    let many = frame(&hello(1, u32::MAX));
    let mut twice = frame(&hello(1, 1));
    twice.extend(frame(&hello(1, 1)));
    let mut short = frame(&hello(1, 1));
    short[0] -= 1;
    short.pop();
    let mut wrong_magic = frame(&hello(1, 1));
    wrong_magic[8] = b'X';
    let rows = [
        ("wrong version", (frame(&hello(2, 1)), "version 2")),
        ("wrong magic", (wrong_magic, "check host and port")),
        ("noise", (noise, "")),
        ("HTTP", (http, "check host and port")),
        ("huge length", (huge, "check host and port")),
        ("empty message", (vec![0; 4], "cannot be understood")),
        ("cut message", (short, "cannot be understood")),
        ("too many flows", (many, "flows are announced")),
        ("no flow", (frame(&hello(1, 0)), "no flow")),
        ("two greetings", (twice, "second Hello")),
        ("leave before greeting", (frame(&Message::Bye), "before Hello")),
    ];
    in_parallel(&rows, |(bytes, words)| {
        let mut stream = connect(&receiver);
        // The receiver may hang up in the middle of it.
        drop(stream.write_all(bytes));
        if words.is_empty() {
            drop(rest(&mut stream));
        } else {
            let reason = refusal(&mut stream);
            assert!(reason.contains(words), "{reason}");
        }
    });
    receiver.serves();
}

#[test]
fn peers_that_say_too_little_are_given_up_and_hold_up_nobody() {
    let mut receiver = Receiver::start(&["-v"]);
    let before = open_files(receiver.running.pid());
    let began = Instant::now();
    let mut half_open: Vec<TcpStream> = (0..20).map(|_| connect(&receiver)).collect();
    let mut greeted = connect(&receiver);
    greeted.write_all(&frame(&hello(1, 1))).expect("it listens");
    thread::scope(|scope| {
        // One byte of a greeting at a time, forever.
        let slow = scope.spawn(|| {
            let mut stream = connect(&receiver);
            stream.set_read_timeout(Some(Duration::from_millis(200))).expect("a time-out");
            for byte in frame(&hello(1, 1)).iter().cycle() {
                if stream.write_all(&[*byte]).is_err() {
                    return;
                }
                match stream.read(&mut [0; 1024]) {
                    Ok(0) => return,
                    Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return,
                    _ => {}
                }
                assert!(began.elapsed() < Duration::from_secs(60), "it may go on for ever");
            }
        });
        // No greeting is so long.
        let half = scope.spawn(|| {
            let mut stream = connect(&receiver);
            let mut bytes = 1_000_000u32.to_le_bytes().to_vec();
            bytes.resize(1000, 0);
            stream.write_all(&bytes).expect("it listens");
            refusal(&mut stream)
        });
        // Meanwhile others are served.
        let done = send(&[&receiver.at(), "--packets", "5"]).exits(0);
        assert!(done.out.contains("both sides agree"), "{done}");
        for stream in &mut half_open {
            assert_eq!(refusal(stream), "no Hello came within 5s");
        }
        slow.join().expect("the slow one is cut off");
        let why = half.join().expect("the long one is cut off");
        assert!(why.contains("longer than any of its kind"), "{why}");
    });
    // A peer that has greeted gets its welcome, and is given up after a silence, without a word.
    assert!(matches!(messages(&rest(&mut greeted))[..], [Message::Welcome { .. }, ..]));
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
    drop((half_open, greeted));
    receiver.serves();
    wait_for("all connections closed", Duration::from_secs(60), || {
        open_files(receiver.running.pid()) <= before
    });
}

#[test]
fn strays_on_data_ports_are_no_packets_of_a_flow() {
    let dir = temp_dir();
    let log = dir.path().join("recv.itg");
    let receiver = Receiver::start(&["--log".as_ref(), log.as_os_str(), "-v".as_ref()]);
    // The data port is known from a first session that stays open.
    let mut stream = connect(&receiver);
    stream.write_all(&frame(&hello(1, 1))).expect("it listens");
    stream.write_all(&frame(&Message::Open { flows: vec![FlowSpec::new(1)] })).expect("it listens");
    let mut read = || {
        let mut len = [0; 4];
        stream.read_exact(&mut len).expect("a message");
        let mut body = vec![0; u32::from_le_bytes(len) as usize];
        stream.read_exact(&mut body).expect("a message");
        decode(&body).expect("a message")
    };
    assert!(matches!(read(), Message::Welcome { .. }));
    let Message::Opened { flows } = read() else { panic!("not opened") };
    let [OpenReply { result: Ok(OpenedFlow { port, handle, .. }), .. }] = flows[..] else {
        panic!("not opened: {flows:?}")
    };
    let stray = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let to = ("127.0.0.1", port);
    for bytes in [&b""[..], b"x", b"hello, world", &[0; 12], &[255; 1400], &[7; 60_000]] {
        stray.send_to(bytes, to).expect("sent");
    }
    // The right slot, but the noise in the upper half of the handle is wrong.
    let mut close = (handle ^ 0x5555_0000).to_le_bytes().to_vec();
    close.resize(100, 0);
    stray.send_to(&close, to).expect("sent");
    let at = receiver.at();
    let done = send(&[at.as_str(), "--packets", "50", "--idt", "constant(1ms)"]).exits(0);
    assert!(accounts(&done.out)[0].agreed, "{done}");
    drop(stream);
    let summary = receiver.stop();
    assert!(summary.err.contains("served 2 senders, 50 packets received"), "{summary}");
    assert_eq!(packets(&[&log]).len(), 50);
}

#[test]
fn garbage_on_a_tcp_data_port_ends_that_connection_only() {
    let receiver = Receiver::start(&["-v"]);
    let port = free_port();
    let (at, dest) = (receiver.at(), port.to_string());
    let args = ["--proto", "tcp", "--dest-port", &dest, "--packets", "3000"];
    let args = [&[at.as_str()], &args[..], &["--idt", "constant(2ms)"]].concat();
    let running = sender(&args);
    let stranger = || TcpStream::connect(("127.0.0.1", port));
    wait_for("the data port to open", Duration::from_secs(60), || stranger().is_ok());
    let mut garbage = stranger().expect("it listens");
    drop(garbage.write_all(b"GET / HTTP/1.1\r\n\r\n"));
    garbage.set_read_timeout(Some(Duration::from_secs(60))).expect("a time-out");
    assert_eq!(rest(&mut garbage).len(), 0, "no answer, and the end");
    // Says nothing, and stays.
    let silent = stranger().expect("it listens");
    let done = running.finish(Duration::from_secs(60)).exits(0);
    assert!(accounts(&done.out)[0].agreed, "{done}");
    drop(silent);
}

#[test]
fn fifty_senders_at_once_are_served_by_one_receiver() {
    let dir = temp_dir();
    let log = dir.path().join("recv.itg");
    let receiver = Receiver::start(&["--log".as_ref(), log.as_os_str()]);
    let at = receiver.at();
    let args = |number: usize| {
        let proto = if number.is_multiple_of(2) { "udp" } else { "tcp" };
        [&at, "--proto", proto, "--idt", "constant(10ms)", "--packets", "40", "--size", "100"]
            .map(str::to_owned)
    };
    let running: Vec<_> = (0..50).map(|number| sender(&args(number))).collect();
    for one in running {
        let done = one.finish(Duration::from_secs(60)).exits(0);
        assert!(accounts(&done.out)[0].agreed, "{done}");
    }
    let summary = receiver.stop();
    assert!(summary.err.contains("served 50 senders, 2000 packets received"), "{summary}");
    assert_eq!(packets(&[&log]).len(), 2000);
}

#[test]
fn two_hundred_runs_leave_nothing_open() {
    let receiver = Receiver::start::<&str>(&[]);
    let (at, pid) = (receiver.at(), receiver.running.pid());
    let run = |number: usize| {
        let proto = if number.is_multiple_of(2) { "udp" } else { "tcp" };
        let done = send(&[&at, "--proto", proto, "--packets", "2", "--idt", "constant(1ms)"]);
        assert!(done.out.contains("both sides agree on 2 packets"), "{done}");
        drop(done.exits(0));
    };
    run(0);
    run(1);
    thread::sleep(Duration::from_millis(200));
    let before = open_files(pid);
    let lanes: Vec<_> = (0..4).map(|lane| (["a", "b", "c", "d"][lane], lane)).collect();
    in_parallel(&lanes, |&lane| (0..50).for_each(|number| run(lane + number)));
    // The sweep for connections without a flow runs each second.
    wait_for("descriptors to be closed", Duration::from_secs(60), || open_files(pid) <= before);
    let resting = clock_ticks(pid);
    thread::sleep(Duration::from_secs(1));
    let used = clock_ticks(pid) - resting;
    assert!(used < 20, "a receiver at rest used {used} ticks of CPU time in a second");
    drop(receiver.stop());
}
