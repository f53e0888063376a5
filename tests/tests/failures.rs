//! Peers, files and requests that fail: each run ends in time, with the right exit code and a
//! sentence that helps.
#![allow(missing_docs, reason = "tests")]

use std::fs;
use std::net::{TcpListener, UdpSocket};
use std::path::Path;
use std::thread;
use std::time::Duration;

use itg_tests::{
    Output, Receiver, accounts, decode, in_parallel, json, packets, send, sender, temp_dir,
    wait_for,
};
use nix::sys::signal::Signal;

/// Time in which a program ends by itself, on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

/// A flow that lasts long enough to be disturbed.
const LONG: [&str; 6] = ["--idt", "constant(2ms)", "--size", "200", "--duration", "20s"];

fn path(dir: &tempfile::TempDir, name: &str) -> String {
    dir.path().join(name).to_str().expect("UTF-8").to_owned()
}

fn size(log: &str) -> u64 {
    fs::metadata(log).map_or(0, |log| log.len())
}

/// Returns true if a log that is being written has records, beside its notes.
fn has_records(log: &str) -> bool {
    size(log) > 0 && json(&[log])["manifest"]["logs"][0]["records"].as_u64() > Some(0)
}

/// Records of a log, decoded without damage, as (records in the report, lines of packets).
#[track_caller]
fn records(log: &str) -> (u64, usize) {
    let report = json(&[log]);
    let records = report["manifest"]["logs"][0]["records"].as_u64().expect("a count");
    (records, packets(&[log]).len())
}

/// One sentence without a panic, a debug value or a list of causes.
#[track_caller]
fn helps(done: &Output) {
    let err = &done.err;
    for ugly in ["panicked", "RUST_BACKTRACE", "Os {", "Custom {", "Err(", "Some(", "\x1b["] {
        assert!(!err.contains(ugly), "{ugly:?} in the words: {done}");
    }
    assert!(!err.trim().is_empty(), "no word: {done}");
}

#[test]
fn an_absent_receiver_ends_with_3() {
    // A port that was free a moment ago, and an address without a host (RFC 5737).
    let free = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = free.local_addr().expect("an address").port();
    drop(free);
    in_parallel(
        &[
            ("v4", format!("127.0.0.1:{port}")),
            ("v6", format!("[::1]:{port}")),
            ("nobody", "192.0.2.1".to_owned()),
        ],
        |address| {
            let done = send(&[address.as_str(), "--packets", "3"]).exits(3).within(LIMIT);
            let done = done.says("no receiver at ").says("start itg-recv there");
            helps(&done);
        },
    );
    let done = send(&["no-such-host.invalid", "--packets", "3"]);
    helps(&done.exits(2).says("no-such-host.invalid"));
    helps(&send(&["fe80::1", "--packets", "3"]).exits(2).says("fe80::1%eth0"));
}

#[test]
fn a_receiver_for_one_sender_ends_with_it() {
    let receiver = Receiver::start(&["--once"]);
    let done = send(&[&receiver.at(), "--packets", "5"]).exits(0);
    assert!(accounts(&done.out)[0].agreed, "{done}");
    let done = receiver.running.finish(LIMIT).exits(0);
    assert!(done.err.contains("served 1 senders, 5 packets received"), "{done}");
}

#[test]
fn a_port_that_is_taken_is_refused() {
    let mut receiver = Receiver::start::<&str>(&[]);
    let udp = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let tcp = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = |address: std::io::Result<std::net::SocketAddr>| {
        address.expect("an address").port().to_string()
    };
    for (proto, port) in [("udp", port(udp.local_addr())), ("tcp", port(tcp.local_addr()))] {
        let args = [&receiver.at(), "--proto", proto, "--dest-port", &port, "--packets", "3"];
        let done = send(&args).exits(3).within(LIMIT);
        assert!(done.out.contains("not sent"), "{done}");
        helps(&done.says(&port).says("choose another port"));
    }
    receiver.serves();

    let taken = receiver.at();
    let done = itg_tests::Running::start(
        std::process::Command::new(itg_tests::program("itg-recv")).args(["--listen", &taken]),
    )
    .finish(LIMIT)
    .exits(2)
    .says(&taken)
    .says("another receiver runs there");
    helps(&done);
}

#[test]
fn a_receiver_that_is_killed_leaves_a_partial_result() {
    in_parallel(&[("udp", "udp"), ("tcp", "tcp")], |proto| {
        let dir = temp_dir();
        let log = path(&dir, "send.itg");
        let theirs = path(&dir, "recv.itg");
        let receiver = Receiver::start(&["-v", "--log", &theirs]);
        let running = receiver.begin(&[&["--proto", proto, "--log", &log], &LONG[..]].concat());
        wait_for("packets in its log", LIMIT, || has_records(&theirs));
        receiver.running.signal(Signal::SIGKILL);
        let done = running.finish(LIMIT).exits(4).within(LIMIT);
        helps(&done);
        let account = &accounts(&done.out)[0];
        assert!(account.sent > 100 && account.received.is_none(), "{done}");
        assert_eq!(records(&log), (account.sent, account.sent.try_into().expect("few")), "{done}");
        let report = json(&[&log]);
        assert_eq!(report["manifest"]["logs"][0]["complete"], true, "{done}");
        // Why the flow ended is what became of the receiver, in the words and in the log: whichever of a
        // stream and the signalling connection broke first.
        let end = report["flows"][0]["end"].as_str().expect("an end").to_owned();
        let gone = ["the connection to the receiver is gone", "the connection broke"];
        assert!(gone.iter().any(|why| end.contains(why)), "{end}");
        assert!(account.line.contains(&end), "{end:?} in {}", account.line);
        // What the receiver's log lacks may have arrived: the report says so.
        let both = json(&[&log, &theirs]);
        let flows = both["flows"].as_array().expect("a list");
        let theirs_of = flows.iter().find(|flow| flow["side"] == "receiver").expect("both sides");
        let words = "breaks off before the flow ends: packets that arrived behind its last record";
        assert!(theirs_of["notices"].to_string().contains(words), "{theirs_of}");
        // The receiver wrote what was older than a second; all that is there can be read.
        let done = decode(&[theirs.as_str(), "--packets", "--format", "csv"]);
        assert!(done.out.lines().count() > 100, "{done}");
    });
}

#[test]
fn a_receiver_that_falls_silent_is_given_up() {
    let dir = temp_dir();
    let log = path(&dir, "send.itg");
    let mut receiver = Receiver::start(&["-v"]);
    let running = receiver.begin(&[&["--log", &log, "--peer-timeout", "5s"], &LONG[..]].concat());
    thread::sleep(Duration::from_millis(700));
    receiver.running.signal(Signal::SIGSTOP);
    let done = running.finish(LIMIT).exits(4).says("not been heard of for 5s");
    receiver.running.signal(Signal::SIGCONT);
    helps(&done);
    let account = &accounts(&done.out)[0];
    assert_eq!(records(&log).0, account.sent, "{done}");
    let end = json(&[&log])["flows"][0]["end"].to_string();
    assert!(end.contains("the receiver has not been heard of for 5s"), "{end}");
    receiver.serves();
}

#[test]
fn a_sender_that_stood_still_blames_itself() {
    let dir = temp_dir();
    let (ours, theirs) = (path(&dir, "send.itg"), path(&dir, "recv.itg"));
    let receiver = Receiver::start(&["-v", "--log", &theirs, "--peer-timeout", "5s"]);
    let running = receiver.begin(&[&["--log", &ours], &LONG[..]].concat());
    thread::sleep(Duration::from_millis(700));
    running.signal(Signal::SIGSTOP);
    // The receiver gives up a sender that has been silent for so long.
    drop(receiver.running.line_with("not been heard of for 5s", LIMIT));
    thread::sleep(Duration::from_secs(1));
    running.signal(Signal::SIGCONT);
    let done = running.finish(LIMIT).exits(4).says("this program stood still for ");
    helps(&done);
    let account = &accounts(&done.out)[0];
    assert!(account.line.contains("this program stood still for "), "{}", account.line);
    drop(receiver.stop());
    // Each side's log says what that side saw.
    let report = json(&[&ours, &theirs]);
    for (side, words) in [
        ("sender", "this program stood still for "),
        ("receiver", "the sender has not been heard of for 5s"),
    ] {
        let flows = report["flows"].as_array().expect("a list");
        let flow = flows.iter().find(|flow| flow["side"] == side).expect("both sides");
        assert!(flow["end"].to_string().contains(words), "{side}: {flow}");
    }
}

#[test]
fn a_stream_that_is_cut_short_is_no_fault() {
    in_parallel(&[("one way", "owd"), ("round trips", "rtt")], |meter| {
        let dir = temp_dir();
        let (ours, theirs) = (path(&dir, "send.itg"), path(&dir, "recv.itg"));
        let receiver = Receiver::start(&["-v", "--log", &theirs]);
        let packets = ["--idt", "constant(0s)", "--size", "60000", "--duration", "20s"];
        let args = ["--proto", "tcp", "--meter", meter, "--log", &ours];
        let running = receiver.begin(&[&args[..], &packets].concat());
        thread::sleep(Duration::from_millis(800));
        running.signal(Signal::SIGINT);
        let sent = running.finish(LIMIT).exits(130);
        let received = receiver.stop();
        for done in [&sent, &received] {
            for line in
                done.err.lines().filter(|line| line.contains("ERROR") || line.contains("WARN"))
            {
                // What an ordinary user may not do.
                assert!(line.contains("/dev/cpu_dma_latency"), "{line:?} in {done}");
            }
        }
        let report = json(&[&ours, &theirs]);
        for flow in report["flows"].as_array().expect("a list") {
            assert!(flow["end"].to_string().contains("interrupted by SIGINT"), "{flow}");
        }
        assert_eq!(report["damage"].as_array().map(Vec::len), Some(0), "{report}");
    });
}

#[test]
fn a_sender_that_is_killed_is_forgotten() {
    let dir = temp_dir();
    let (ours, theirs) = (path(&dir, "send.itg"), path(&dir, "recv.itg"));
    let mut receiver = Receiver::start(&["--log", &theirs, "-v"]);
    let running = receiver.begin(&[&["--log", &ours], &LONG[..]].concat());
    wait_for("packets in both logs", LIMIT, || size(&ours) > 45_000 && size(&theirs) > 45_000);
    running.signal(Signal::SIGKILL);
    drop(running.finish(LIMIT));
    let line = receiver.running.line_with("connection to the sender is gone", LIMIT);
    assert!(line.contains("127.0.0.1"), "{line}");
    receiver.serves();
    drop(receiver.stop());
    // The sender had no time to write its last block and the end of the log.
    let done = decode(&[ours.as_str(), "--packets", "--format", "csv"]);
    assert!(done.out.lines().count() > 500, "{done}");
    let report = json(&[&theirs]);
    let flows = report["flows"].as_array().expect("a list");
    let mut counts: Vec<_> = flows.iter().filter_map(|flow| flow["packets"].as_u64()).collect();
    counts.sort_unstable();
    let [5, killed] = counts[..] else { panic!("the killed sender's flow and the next: {report}") };
    assert!(killed > 500, "{report}");
}

#[test]
fn signals_drain_and_report() {
    let rows = [
        ("SIGINT to the sender", (true, Signal::SIGINT, 130)),
        ("SIGTERM to the sender", (true, Signal::SIGTERM, 143)),
        ("SIGINT to the receiver", (false, Signal::SIGINT, 130)),
        ("SIGTERM to the receiver", (false, Signal::SIGTERM, 143)),
    ];
    in_parallel(&rows, |&(to_sender, signal, code)| {
        let dir = temp_dir();
        let (ours, theirs) = (path(&dir, "send.itg"), path(&dir, "recv.itg"));
        let receiver = Receiver::start(&["--log", &theirs, "-v"]);
        let running = receiver.begin(&[&["--log", &ours], &LONG[..]].concat());
        wait_for("packets in both logs", LIMIT, || has_records(&ours) && has_records(&theirs));
        let (sent, received) = if to_sender {
            running.signal(signal);
            let sent = running.finish(LIMIT).exits(code);
            receiver.running.signal(Signal::SIGTERM);
            (sent, receiver.running.finish(LIMIT).exits(143))
        } else {
            receiver.running.signal(signal);
            let received = receiver.running.finish(LIMIT).exits(code);
            (running.finish(LIMIT).exits(4).says("shut down"), received)
        };
        helps(&sent);
        let account = &accounts(&sent.out)[0];
        assert!(account.sent > 50, "{sent}");
        assert_eq!(account.agreed, to_sender, "{sent}");
        assert!(received.err.contains("served 1 senders"), "{received}");
        assert_eq!(records(&ours).0, account.sent, "{sent}");
        let (arrived, lines) = records(&theirs);
        assert_eq!(arrived, lines as u64);
        if to_sender {
            assert_eq!(arrived, account.sent, "{received}");
            assert!(received.err.contains(&format!("{arrived} packets received")), "{received}");
        } else {
            assert!(arrived > 50 && arrived <= account.sent, "{arrived}: {sent}");
        }
        for log in [&ours, &theirs] {
            let report = json(&[log]);
            assert_eq!(report["manifest"]["logs"][0]["complete"], true, "{log}");
        }
    });
}

#[test]
fn a_signal_before_the_first_packet_ends_at_once() {
    let receiver = Receiver::start(&["-v"]);
    let running = receiver.begin(&["--start-after", "600s", "--packets", "1"]);
    running.signal(Signal::SIGINT);
    let done = running.finish(LIMIT).exits(130);
    // It may come before the receiver has agreed to the start.
    assert!(["0 packets", "not sent"].iter().any(|words| done.out.contains(words)), "{done}");
    // While a receiver does not answer, only the program itself can be interrupted.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let running = sender(&[silent.local_addr().expect("an address").to_string()]);
    let waiting = silent.accept().expect("the sender connects");
    running.signal(Signal::SIGTERM);
    helps(&running.finish(LIMIT).exits(143));
    drop(waiting);
}

#[test]
fn what_is_no_receiver_is_recognised() {
    // Accepts and says nothing; or answers in another protocol; or hangs up.
    let rows = [
        ("silence", (Some(""), "5s")),
        ("HTTP", (Some("HTTP/1.1 400 Bad Request\r\n\r\n"), "check host and port")),
        ("hangs up", (None, "closed")),
    ];
    in_parallel(&rows, |(answer, words)| {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let at = listener.local_addr().expect("an address").to_string();
        let running = sender(&[at.as_str(), "--packets", "3"]);
        let (mut stream, _) = listener.accept().expect("the sender connects");
        match answer {
            Some(text) => {
                std::io::Write::write_all(&mut stream, text.as_bytes()).expect("it listens");
            }
            None => drop(stream.shutdown(std::net::Shutdown::Both)),
        }
        let done = running.finish(LIMIT).exits(3).says(words);
        helps(&done);
    });
}

#[test]
fn logs_that_cannot_be_written_are_named() {
    let dir = temp_dir();
    let missing = path(&dir, "missing/send.itg");
    let folder = dir.path().to_str().expect("UTF-8").to_owned();
    let receiver = Receiver::start::<&str>(&[]);
    for log in [missing.as_str(), &folder, "/proc/itg.log"] {
        let done = send(&[&receiver.at(), "--packets", "3", "--log", log]).within(LIMIT);
        assert_eq!(done.code, Some(1), "the run failed: {done}");
        assert_eq!(done.out, "", "nothing was sent: {done}");
        helps(&done.says(log));
        let mut command = std::process::Command::new(itg_tests::program("itg-recv"));
        command.args(["--listen", "127.0.0.1:0", "--log", log]);
        let done = itg_tests::Running::start(&mut command).finish(LIMIT);
        assert_eq!(done.code, Some(1), "a log could not be written: {done}");
        helps(&done.says(log));
    }
}

#[test]
fn the_receiver_chooses_where_logs_go() {
    let dir = temp_dir();
    let logs = dir.path().join("logs");
    fs::create_dir(&logs).expect("a directory");
    fs::write(dir.path().join("x"), "precious").expect("a file");
    let mut receiver = Receiver::start(&["--log-dir", logs.to_str().expect("UTF-8")]);
    let at = receiver.at();
    for name in ["../x", "/etc/itg-x", "a/../../x", "..", ".", "", "sub/x"] {
        let done = send(&[at.as_str(), "--packets", "3", "--recv-log", name]).exits(3);
        helps(&done.says("plain file name"));
    }
    assert_eq!(fs::read(dir.path().join("x")).expect("still there"), b"precious");
    assert!(!Path::new("/etc/itg-x").exists());
    assert_eq!(fs::read_dir(&logs).expect("a directory").count(), 0, "nothing was created");
    receiver.serves();
    let done = send(&[at.as_str(), "--packets", "30", "--recv-log", "good.itg"]).exits(0);
    assert!(done.err.contains("good.itg") && done.err.contains("30 records"), "{done}");
    assert_eq!(packets(&[logs.join("good.itg")]).len(), 30);

    // A log that is being written is not given to another producer.
    let args = ["--packets", "500", "--idt", "constant(4ms)", "--recv-log", "shared.itg"];
    let first = sender(&[&[at.as_str()], &args[..]].concat());
    wait_for("the log", LIMIT, || logs.join("shared.itg").exists());
    let done = send(&[at.as_str(), "--packets", "3", "--recv-log", "shared.itg"]).exits(3);
    helps(&done.says("choose another name"));
    let done = first.finish(LIMIT).exits(0).says("500 records");
    assert_eq!(packets(&[logs.join("shared.itg")]).len(), 500, "{done}");
    // When it has been closed, it stays as it is.
    let done = send(&[at.as_str(), "--packets", "3", "--recv-log", "shared.itg"]).exits(3);
    helps(&done.says("choose another name"));
    assert_eq!(packets(&[logs.join("shared.itg")]).len(), 500);

    let keeps_none = Receiver::start::<&str>(&[]);
    let done = send(&[&keeps_none.at(), "--packets", "3", "--recv-log", "x.itg"]).exits(3);
    helps(&done.says("--log-dir"));
}

#[test]
fn requests_that_make_no_sense_reach_nobody() {
    let dir = temp_dir();
    let unknown = path(&dir, "unknown.toml");
    let text = "schema = 1\nname = \"x\"\nduration = \"1s\"\n[[flow]]\nprotocol = \"udp\"\n";
    fs::write(&unknown, text).expect("a file");
    let receiver = Receiver::start(&["-v"]);
    let at = receiver.at();
    for (args, words) in [
        (&[at.as_str(), "--profile", "voip-g7111"][..], "voip-g711"),
        (&[&at, "--idt", "constant(10)"], "unit"),
        (&[&at, "--idt", "exponential(10ms)"], "exp"),
        (&[&at, "--duration", "10 parsecs"], "parsecs"),
        (&[&at, "--size", "5"], "12"),
        (&[&at, "--size", "constant(70000)"], "65507"),
        (&[&at, "--rate", "10"], "unit"),
        (&[&at, "--ttl", "0"], "time to live"),
        (&[&at, "--dscp", "64"], "63"),
        (&[&at, "--proto", "quic"], "udp, tcp, icmp, sctp or dccp"),
        (&[&at, "--payload", "file:/does/not/exist"], "/does/not/exist"),
        (&["run", &unknown], "proto"),
        (&["run", "/does/not/exist.toml"], "/does/not/exist.toml"),
    ] {
        let done = send(args).exits(2).within(LIMIT).says(words);
        assert_eq!(done.out, "", "data: {done}");
        helps(&done);
    }
    let summary = receiver.stop();
    assert!(summary.err.contains("served 0 senders"), "{summary}");
}

#[test]
fn protocols_that_the_kernel_lacks_are_refused_with_a_reason() {
    let mut receiver = Receiver::start::<&str>(&[]);
    for proto in ["sctp", "dccp"] {
        let has = fs::read_to_string("/proc/net/protocols").expect("Linux");
        if has.lines().any(|line| line.to_lowercase().starts_with(proto)) {
            continue;
        }
        let done = send(&[&receiver.at(), "--proto", proto, "--packets", "3"]);
        // A kernel may load the module on demand.
        if done.code == Some(0) {
            continue;
        }
        let done = done.exits(3).within(LIMIT);
        let words = format!("{}{}", done.out, done.err);
        assert!(words.contains(&format!("has no {proto}")), "{done}");
        assert!(words.contains("use udp or tcp"), "{done}");
    }
    receiver.serves();
}

#[test]
fn damaged_logs_are_decoded_as_far_as_they_are_good() {
    let dir = temp_dir();
    let log = path(&dir, "send.itg");
    let receiver = Receiver::start::<&str>(&[]);
    let args = ["--packets", "5000", "--idt", "constant(50us)", "--size", "64", "--log", &log];
    drop(send(&[&[receiver.at().as_str()], &args[..]].concat()).exits(0));
    let bytes = fs::read(&log).expect("the log");
    let whole = packets(&[&log]);
    assert_eq!(whole.len(), 5000);

    let write = |name: &str, bytes: &[u8]| {
        fs::write(dir.path().join(name), bytes).expect("a file");
        path(&dir, name)
    };
    let lines = |done: &Output| done.out.lines().count().saturating_sub(1);
    let cut = write("cut.itg", &bytes[..bytes.len() * 2 / 3]);
    // As a killed writer leaves it: good up to there, and said so.
    let done = decode(&[cut.as_str(), "--packets", "--format", "csv"]).exits(0);
    assert!((2000..5000).contains(&lines(&done)), "{} lines: {}", lines(&done), done.err);
    helps(&done.says("cut.itg"));

    let mut flipped = bytes.clone();
    flipped[bytes.len() / 2] ^= 1;
    let flipped = write("flipped.itg", &flipped);
    let done = decode(&[flipped.as_str(), "--packets", "--format", "csv"]).exits(1);
    assert!((5000 - 1024..5000).contains(&lines(&done)), "one block is lost: {}", done.err);
    helps(&done.says("flipped.itg"));

    let empty = write("empty.itg", b"");
    let text = write("text.itg", b"This is a text, and by no means a log of ITG.\n");
    let zeros = write("zeros.itg", &[0; 100_000]);
    let gone = path(&dir, "gone.itg");
    for name in [empty, text, zeros, gone] {
        let done = decode(&[&name]).exits(1).says(&name);
        helps(&done);
    }
    // A sound log beside a bad one is still decoded.
    let text = path(&dir, "text.itg");
    let done = decode(&[&log, &text, "--packets", "--format", "csv"]).exits(1);
    assert_eq!(lines(&done), 5000, "{}", done.err);
}

#[test]
fn a_run_with_no_one_to_read_its_words_still_ends() {
    let receiver = Receiver::start::<&str>(&[]);
    let mut command = std::process::Command::new(itg_tests::program("itg-send"));
    command.args([&receiver.at(), "--packets", "3"]);
    command.stdin(std::process::Stdio::null());
    command.stdout(fs::OpenOptions::new().write(true).open("/dev/full").expect("Linux"));
    let mut child = command.stderr(std::process::Stdio::null()).spawn().expect("itg-send");
    wait_for("the end of the sender", LIMIT, || child.try_wait().expect("a child").is_some());
    let status = child.wait().expect("a child");
    assert_eq!(status.code(), Some(1), "its account could not be written");
}

/// An experiment without `run`, a rate with half a unit: the words name what was meant.
#[test]
fn near_misses_are_answered_with_what_was_meant() {
    let dir = temp_dir();
    let file = path(&dir, "two.toml");
    fs::write(&file, "schema = 1\nname = 'two'\n[[flow]]\nto = 'b'\n").expect("written");
    send(&[&file]).exits(2).says(&format!("did you mean `itg-send run {file}`?"));
    send(&["127.0.0.1", "--rate", "10Mb"]).exits(2).says("such as 10Mbps, 10M or 100kpps");
}
