//! The log server for D-ITG's programs: what its clients can do to it. Named after the bugs of D-ITG's
//! own server (table in `docs/d-itg.md`).
#![allow(missing_docs, reason = "tests")]

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use itg_classic::log::{Address, LogRecord, Stamp, records};
use itg_classic::send::LogProto;
use itg_classic::wire::{LOG_REQUEST_LEN, LogRequest, UDP_RECORDS_MAX, block};
use itg_tests::{
    LogServer, Output, Tmpfs, clock_ticks, in_parallel, json, not_run, open_files, temp_dir,
    wait_for,
};
use tempfile::TempDir;

const LIMIT: Duration = Duration::from_secs(90);

/// `itg-log --classic` with a directory of its own.
struct Server {
    outer: TempDir,
    server: LogServer,
    at: SocketAddr,
}

impl Server {
    fn start(args: &[&str]) -> Self {
        let outer = temp_dir();
        let store = outer.path().join("store");
        fs::create_dir(&store).expect("writable");
        let (server, at) = started(&store, args);
        Self { outer, server, at }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.outer.path().join("store").join(name)
    }

    /// Waits for the account of a log, which is told when its client is done with.
    fn account(&self, name: &str) -> String {
        drop(self.server.running.line_with(&format!("{name}: "), LIMIT));
        self.server.running.line_with(" stored", LIMIT)
    }

    fn stop(self) -> Output {
        self.server.stop()
    }
}

fn started(store: &std::path::Path, args: &[&str]) -> (LogServer, SocketAddr) {
    let args = [&["--classic", "127.0.0.1:0"], args].concat();
    let server = LogServer::start(store, &args);
    let line = server.running.line_with("waiting for D-ITG's programs on ", LIMIT);
    let at = line.rsplit(' ').next().and_then(|at| at.parse().ok());
    (server, at.unwrap_or_else(|| panic!("no address in `{line}`")))
}

fn greeted(at: SocketAddr) -> TcpStream {
    let mut talk = TcpStream::connect(at).expect("the server listens");
    talk.set_read_timeout(Some(LIMIT)).expect("a time-out");
    let mut greeting = [0];
    talk.read_exact(&mut greeting).expect("a greeting");
    assert_eq!(greeting, [1]);
    talk
}

fn request(proto: LogProto, stop: bool, path: &[u8]) -> Vec<u8> {
    LogRequest { proto, stop, path: path.to_vec() }.encode()
}

/// A client whose log is open.
struct Client {
    talk: TcpStream,
    proto: LogProto,
    data: SocketAddr,
}

/// Asks for a log; `None` when the server hangs up.
fn ask(at: SocketAddr, proto: LogProto, path: &[u8]) -> Option<Client> {
    let mut talk = greeted(at);
    talk.write_all(&request(proto, false, path)).expect("the server reads");
    let mut port = [0; 4];
    talk.read_exact(&mut port).ok()?;
    let port = u16::try_from(u32::from_be_bytes(port)).expect("a port");
    assert!((9003..=10_002).contains(&port), "port {port}");
    Some(Client { talk, proto, data: SocketAddr::new(at.ip(), port) })
}

impl Client {
    fn stop(mut self) {
        self.talk.write_all(&request(self.proto, true, b"")).expect("the server reads");
    }

    fn udp(&self) -> UdpSocket {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("loopback");
        socket.connect(self.data).expect("loopback");
        socket
    }
}

/// Records of a flow with these numbers.
fn some(flow: u32, seqs: std::ops::Range<u32>) -> Vec<LogRecord> {
    seqs.map(|seq| LogRecord {
        flow,
        seq: seq + 1,
        src_port: 1,
        dst_port: 2,
        tx: Stamp::from_day(1000 + seq, 1),
        rx: Stamp::from_day(1000 + seq, 501),
        size: 100,
        src: Address::new(b"127.0.0.1"),
        dst: Address::new(b"127.0.0.1"),
    })
    .collect()
}

/// The flow and the number of each record of a file.
fn stored(file: &PathBuf) -> Vec<(u32, u32)> {
    let bytes = fs::read(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    assert_eq!(bytes.len() % 144, 0, "whole records");
    records(&bytes).map(|record| (record.flow, record.seq)).collect()
}

#[test]
fn g1_a_client_that_goes_or_names_what_cannot_be_written_ends_nothing() {
    let server = Server::start(&[]);
    for _ in 0..1000 {
        drop(TcpStream::connect(server.at).expect("the server listens"));
    }
    // Clients that have gone count until the server has seen it; beyond its limit it hangs up.
    wait_for("the server to have room again", LIMIT, || {
        let mut talk = TcpStream::connect(server.at).expect("the server listens");
        talk.set_read_timeout(Some(LIMIT)).expect("a time-out");
        talk.read_exact(&mut [0]).is_ok()
    });
    fs::create_dir(server.file("folder")).expect("writable");
    fs::write(server.file("notes.txt"), "what a user keeps here\n").expect("writable");
    symlink("/dev/null", server.file("link")).expect("writable");
    let long = [b'x'; 150];
    let names: Vec<&[u8]> = vec![
        b"",
        b"/",
        b"..",
        b"a/..",
        b".hidden",
        b"-flag",
        b"a\nb",
        b"a\xff",
        b"run.itg",
        b"run.index.jsonl",
        b"folder",
        b"notes.txt",
        b"link",
        &long,
    ];
    for name in names {
        assert!(ask(server.at, LogProto::Udp, name).is_none(), "{}", name.escape_ascii());
    }
    // The last part of a path is taken, nowhere else.
    for path in [&b"../../../tmp/up"[..], b"/etc/passwd", b"/nonexistent/folder/log"] {
        ask(server.at, LogProto::Tcp, path).expect("a name in the folder").stop();
    }
    wait_for("the logs to be there", LIMIT, || server.file("log").exists());
    let mut said: Vec<u8> = vec![9; LOG_REQUEST_LEN];
    for bytes in [said.clone(), vec![0; LOG_REQUEST_LEN], request(LogProto::Tcp, true, b"x")] {
        let mut talk = greeted(server.at);
        talk.write_all(&bytes).expect("the server reads");
        assert_eq!(talk.read(&mut said).expect("hung up"), 0, "no log is asked for");
    }
    let kept = fs::read_to_string(server.file("notes.txt")).expect("still there");
    assert_eq!(kept, "what a user keeps here\n");
    let mut inner: Vec<_> = fs::read_dir(server.outer.path().join("store"))
        .expect("readable")
        .map(|entry| entry.expect("readable").file_name().to_string_lossy().into_owned())
        .collect();
    inner.sort();
    assert_eq!(inner, ["folder", "link", "log", "notes.txt", "passwd", "up"]);
    assert_eq!(fs::read_dir(server.outer.path()).expect("readable").count(), 1);
    let client = ask(server.at, LogProto::Udp, b"after.log").expect("the server is there");
    client.udp().send(&block(&some(1, 0..10))).expect("loopback");
    client.stop();
    server.account("after.log");
    assert_eq!(stored(&server.file("after.log")).len(), 10);
    wait_for("connections to be closed", LIMIT, || open_files(server.server.running.pid()) < 40);
    server.stop().says("`.hidden` is no name for a log").says("choose another name");
}

#[test]
fn g2_what_is_on_its_way_at_the_end_is_taken_in_and_blocks_of_any_size() {
    let server = Server::start(&[]);
    let rows = [("udp", LogProto::Udp), ("tcp", LogProto::Tcp)];
    in_parallel(&rows, |proto| {
        let name = format!("{proto:?}.log");
        let client = ask(server.at, *proto, name.as_bytes()).expect("a log");
        if *proto == LogProto::Udp {
            let socket = client.udp();
            let most = u32::try_from(UDP_RECORDS_MAX).expect("small");
            for i in 0..20 {
                socket.send(&block(&some(1, i * most..(i + 1) * most))).expect("loopback");
            }
            // The signalling connection says so at once, and closes.
            client.stop();
            assert_eq!(stored_when(&server, &name, 20 * UDP_RECORDS_MAX), 20 * UDP_RECORDS_MAX);
        } else {
            let mut stream = TcpStream::connect(client.data).expect("it listens already");
            stream.write_all(&block(&some(1, 0..20_000))).expect("taken");
            client.stop();
            assert_eq!(stored_when(&server, &name, 20_000), 20_000);
        }
    });
    server.stop();
}

fn stored_when(server: &Server, name: &str, want: usize) -> usize {
    let len = || fs::read(server.file(name)).map_or(0, |bytes| bytes.len() / 144);
    let deadline = std::time::Instant::now() + LIMIT;
    while len() < want && std::time::Instant::now() < deadline {
        thread::sleep(Duration::from_millis(20));
    }
    len()
}

#[test]
fn g2_a_stream_that_ends_early_costs_no_processor_time_and_is_told() {
    let server = Server::start(&[]);
    let client = ask(server.at, LogProto::Tcp, b"torn.log").expect("a log");
    let mut stream = TcpStream::connect(client.data).expect("it listens already");
    let bytes = block(&some(1, 0..10));
    stream.write_all(&bytes[..bytes.len() - 44]).expect("taken");
    drop(stream);
    let before = clock_ticks(server.server.running.pid());
    thread::sleep(Duration::from_secs(1));
    let spent = clock_ticks(server.server.running.pid()) - before;
    assert!(spent < 20, "{spent} ticks in a second of waiting");
    client.stop();
    let account = server.account("torn.log");
    assert!(account.contains("9 records of "), "{account}");
    assert!(account.contains("100 bytes that are no whole record left out"), "{account}");
    assert_eq!(stored(&server.file("torn.log")).len(), 9);
    server.stop();
}

#[test]
fn g3_clients_at_the_same_time_get_their_own_logs() {
    let server = Server::start(&[]);
    let names: Vec<(String, u32)> = (1..=20).map(|i| (format!("log{i}"), i)).collect();
    let rows: Vec<(&str, u32)> = names.iter().map(|(name, i)| (name.as_str(), *i)).collect();
    in_parallel(&rows, |flow| {
        let name = format!("log{flow}");
        let client = ask(server.at, LogProto::Udp, name.as_bytes()).expect("a log");
        let socket = client.udp();
        for i in 0..10 {
            socket.send(&block(&some(*flow, i * 5..(i + 1) * 5))).expect("loopback");
        }
        client.stop();
        assert_eq!(stored_when(&server, &name, 50), 50);
        let want: Vec<_> = (1..=50).map(|seq| (*flow, seq)).collect();
        assert_eq!(stored(&server.file(&name)), want, "{name}");
    });
    server.stop();
}

#[test]
fn clients_of_one_name_share_a_log_and_the_next_one_begins_it_anew_where_it_may() {
    let server = Server::start(&["--replace-logs"]);
    let one = ask(server.at, LogProto::Udp, b"/tmp/shared.log").expect("a log");
    let other = ask(server.at, LogProto::Tcp, b"elsewhere/shared.log").expect("a log");
    one.udp().send(&block(&some(1, 0..7))).expect("loopback");
    let mut stream = TcpStream::connect(other.data).expect("it listens already");
    stream.write_all(&block(&some(2, 0..5))).expect("taken");
    drop(stream);
    one.stop();
    other.stop();
    assert_eq!(stored_when(&server, "shared.log", 12), 12);
    let report = json(&[server.file("shared.log")]);
    assert_eq!(report["flows"].as_array().map(Vec::len), Some(2), "{report}");
    // Asked for while the last records of the others may still be taken.
    let next = ask(server.at, LogProto::Udp, b"shared.log").expect("a log");
    next.udp().send(&block(&some(3, 0..3))).expect("loopback");
    next.stop();
    drop(server.server.running.line_with("3 records of ", LIMIT));
    assert_eq!(stored(&server.file("shared.log")), [(3, 1), (3, 2), (3, 3)]);
    server.stop().says("are both in the file shared.log");
}

#[test]
fn strangers_on_a_data_port_are_left_out_and_counted() {
    let server = Server::start(&[]);
    let client = ask(server.at, LogProto::Udp, b"mine.log").expect("a log");
    let mine = client.udp();
    mine.send(&block(&some(1, 0..2))).expect("loopback");
    let away = UdpSocket::bind("127.0.0.2:0").expect("loopback");
    away.send_to(&block(&some(9, 0..2)), client.data).expect("loopback");
    let beside = UdpSocket::bind("127.0.0.1:0").expect("loopback");
    beside.send_to(&block(&some(9, 0..2)), client.data).expect("loopback");
    // Half a record is no record, and does not join with the next datagram.
    mine.send(&block(&some(1, 2..3))[..100]).expect("loopback");
    mine.send(&block(&some(1, 3..4))).expect("loopback");
    client.stop();
    let account = server.account("mine.log");
    assert!(account.contains("2 strangers turned away"), "{account}");
    assert!(account.contains("100 bytes that are no whole record left out"), "{account}");
    assert_eq!(stored(&server.file("mine.log")), [(1, 1), (1, 2), (1, 4)]);
    server.stop();
}

#[test]
fn limits_are_named() {
    let server = Server::start(&["--max-producers", "2", "--max-log-size", "1000"]);
    let one = ask(server.at, LogProto::Udp, b"one.log").expect("a log");
    let two = ask(server.at, LogProto::Udp, b"two.log").expect("a log");
    let mut third = TcpStream::connect(server.at).expect("the server listens");
    assert_eq!(third.read(&mut [0]).unwrap_or(0), 0, "no greeting");
    drop(server.server.running.line_with("there are 2 connections already: the limit", LIMIT));
    let socket = one.udp();
    for seq in 0..10 {
        socket.send(&block(&some(1, seq..seq + 1))).expect("loopback");
    }
    one.stop();
    let account = server.account("one.log");
    assert!(account.contains("4 records lost; the log may have 1000 bytes at most"), "{account}");
    assert_eq!(stored(&server.file("one.log")).len(), 6);
    two.stop();
    server.stop();
}

#[test]
fn a_server_that_ends_takes_what_has_come() {
    let server = Server::start(&[]);
    let client = ask(server.at, LogProto::Tcp, b"end.log").expect("a log");
    let mut stream = TcpStream::connect(client.data).expect("it listens already");
    stream.write_all(&block(&some(1, 0..5000))).expect("taken");
    let file = server.file("end.log");
    let Server { outer: _outer, server, .. } = server;
    server.stop().says("end.log: 5000 records");
    assert_eq!(stored(&file).len(), 5000);
}

#[test]
fn s13_a_full_disk_makes_clients_wait_and_loses_nothing_over_tcp() {
    if not_run() {
        return;
    }
    let disk = Tmpfs::mount("2M");
    let store = disk.join("store");
    fs::create_dir(&store).expect("room for a directory");
    let filler = disk.join("filler");
    fs::write(&filler, vec![0; 1_900_000]).expect("room");
    let (server, at) = started(&store, &[]);
    let client = ask(at, LogProto::Tcp, b"full.log").expect("a log");
    let data = client.data;
    let sending = thread::spawn(move || {
        let mut stream = TcpStream::connect(data).expect("it listens already");
        stream.write_all(&block(&some(1, 0..10_000))).expect("taken in the end");
    });
    wait_for("the server to complain", LIMIT, || server.running.err().contains("free some space"));
    let held = fs::metadata(store.join("full.log")).expect("there").len();
    assert_eq!(held % 144, 0, "no half a record at {held}");
    fs::remove_file(&filler).expect("removable");
    sending.join().expect("sent");
    client.stop();
    drop(server.running.line_with("full.log: 10000 records", LIMIT));
    assert_eq!(stored(&store.join("full.log")).len(), 10_000);
    server.stop();
}
