//! Logs on a log server: over TCP and UDP, through a crash of the server, without it, with a secret.

use std::fs;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use itg_tests::{
    LogServer, Packet, Receiver, accounts, decode, experiments, in_parallel, lists, packets, send,
    stored, temp_dir, wait_for,
};

const LIMIT: Duration = Duration::from_secs(60);

/// The 99th percentile of the lateness of the packets that were sent in these times (Unix, ns), in
/// microseconds; the earliest packet of all is on time.
fn lateness_p99_us(all: &[Packet], from: u64, to: u64) -> u64 {
    let late = |packet: &Packet| packet.sent.expect("sent") - packet.planned.expect("planned");
    let first = all.iter().map(late).min().expect("packets");
    let chosen = all.iter().filter(|packet| (from..to).contains(&packet.sent.expect("sent")));
    let mut lates: Vec<u64> = chosen.map(|packet| late(packet) - first).collect();
    lates.sort_unstable();
    lates[lates.len() * 99 / 100] / 1000
}

fn unix_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    u64::try_from(since.as_nanos()).expect("before 2554")
}

#[test]
fn l_1_and_l_2_the_same_packets_are_in_a_file_and_on_a_server_over_tcp_and_udp() {
    let dir = temp_dir();
    let flow =
        ["--idt", "exp(1ms)", "--size", "uniform(64,1400)", "--packets", "800", "--seed", "7"];
    let local = [dir.path().join("s.itg"), dir.path().join("r.itg")];
    let receiver = Receiver::start(&["--log", local[1].to_str().expect("UTF-8")]);
    let at = receiver.at();
    let log = local[0].to_str().expect("UTF-8");
    send(&[&[at.as_str(), "--log", log][..], &flow].concat()).exits(0);
    receiver.stop();
    let want = lists(&packets(&local));
    assert_eq!(want[&1].len(), 800);

    in_parallel(&[("tcp", "tcp"), ("udp", "udp")], |transport| {
        let store = temp_dir();
        let server = LogServer::start(store.path(), &[""; 0]);
        let receiver = Receiver::start(&["--allow-log-servers"]);
        let (at, url) = (receiver.at(), server.url(transport));
        let logs = ["--log-server", url.as_str(), "--recv-log-server", url.as_str()];
        let done = send(&[&[at.as_str()][..], &logs, &flow].concat()).exits(0);
        assert!(accounts(&done.out)[0].agreed, "{done}");
        receiver.stop();
        server.stop().says("stored 1600 records");
        let files = experiments(store.path());
        assert_eq!(files.len(), 1, "both sides are one experiment: {files:?}");
        assert_eq!(lists(&packets(&files)), want, "{transport}");
    });
}

#[test]
fn an_experiment_has_the_name_that_people_choose() {
    let store = temp_dir();
    let server = LogServer::start(store.path(), &[""; 0]);
    let receiver = Receiver::start(&["--allow-log-servers"]);
    let (at, url) = (receiver.at(), server.url("tcp"));
    let logs = ["--log-server", url.as_str(), "--recv-log-server", url.as_str()];
    let flow = ["--packets", "50", "--log-name", "monday-1"];
    drop(send(&[&[at.as_str()][..], &logs, &flow].concat()).exits(0));
    for name in ["../monday", ".monday", ""] {
        let flow = ["--packets", "5", "--log-name", name];
        drop(send(&[&[at.as_str()][..], &logs, &flow].concat()).exits(2).says("log name"));
    }
    drop(send(&[at.as_str(), "--log-name", "x"]).exits(2).says("--log-server"));
    receiver.stop();
    server.stop().says("stored 100 records");
    let names: Vec<_> = experiments(store.path());
    assert_eq!(names, [store.path().join("monday-1.itg")], "both sides are in it");
}

#[test]
fn l_4_a_killed_server_costs_nothing_over_tcp_and_only_the_outage_over_udp() {
    in_parallel(&[("tcp", "tcp"), ("udp", "udp")], |transport| {
        let store = temp_dir();
        let server = LogServer::start(store.path(), &[""; 0]);
        let address = server.address.to_string();
        let url = server.url(transport);
        let receiver = Receiver::start(&["-v", "--log-server", &url]);
        let sender = receiver.begin(&[
            "--idt",
            "constant(500us)",
            "--packets",
            "10000",
            "--size",
            "64",
            "--log-server",
            &url,
        ]);
        std::thread::sleep(Duration::from_millis(1500));
        let killed = unix_ns();
        server.kill();
        std::thread::sleep(Duration::from_secs(1));
        let back = unix_ns();
        let server = LogServer::listening(&address, store.path(), &[""; 0]);
        let done = sender.finish(LIMIT);
        assert!(accounts(&done.out)[0].agreed, "{done}");
        // Whatever the log does, the plan is kept: no packet is left out, none waited for a block.
        assert_eq!(accounts(&done.out)[0].sent, 10_000, "{done}");
        assert!(!done.err.contains("waited") && !done.err.contains("left out"), "{done}");
        let tcp = *transport == "tcp";
        receiver.running.signal(nix::sys::signal::Signal::SIGINT);
        let received = receiver.running.finish(LIMIT);
        server.stop();
        let files = experiments(store.path());
        assert_eq!(files.len(), 2, "sender and receiver chose their own experiments");
        let (sent, arrived) = stored(&files);
        if tcp {
            assert_eq!((sent, arrived), (10_000, 10_000), "{done}{received}");
            let sound = decode(&[files[0].as_os_str(), files[1].as_os_str()]).exits(0);
            assert!(!sound.err.contains("missing"), "{sound}");
            let sent = packets(&files);
            let [before, during] =
                [(0, killed), (killed, back)].map(|(from, to)| lateness_p99_us(&sent, from, to));
            println!("lateness p99: {before} us before, {during} us during the outage");
        } else {
            // Conservation: stored + reported missing = produced, on both sides. What was not sent yet
            // when the server went away is not lost, so there may be nothing to report.
            for (stored, said) in [(sent, &done.err), (arrived, &received.err)] {
                if stored == 10_000 {
                    continue;
                }
                let words =
                    format!("{stored} of 10000 records stored, {} missing", 10_000 - stored);
                assert!(said.contains(&words), "no {words:?} in {said}");
                assert!(stored > 4_000, "only the outage is missing: {stored}");
            }
        }
    });
}

#[test]
fn l_4_blocks_wait_in_the_spool_while_the_server_is_away_and_are_sent_when_it_is_back() {
    let (store, dir) = (temp_dir(), temp_dir());
    let server = LogServer::start(store.path(), &[""; 0]);
    let (address, url) = (server.address.to_string(), server.url("tcp"));
    let spool = dir.path().join("spool.itg");
    let receiver = Receiver::start(&["-v"]);
    let sender = receiver.begin(&[
        "--idt",
        "constant(1ms)",
        "--packets",
        "6000",
        "--log-server",
        &url,
        "--log-spool",
        spool.to_str().expect("UTF-8"),
    ]);
    server.kill();
    std::thread::sleep(Duration::from_secs(4));
    let server = LogServer::listening(&address, store.path(), &[""; 0]);
    sender.finish(LIMIT).exits(0);
    server.stop();
    assert_eq!(stored(&experiments(store.path())).0, 6_000);
    assert!(!spool.exists(), "an empty spool is removed");
    receiver.stop();
}

#[test]
fn a_server_that_does_not_want_us_is_named() {
    let dir = temp_dir();
    let (right, wrong) = (dir.path().join("right"), dir.path().join("wrong"));
    itg_tests::write_secret(&right, "correct horse\n");
    itg_tests::write_secret(&wrong, "battery staple\n");
    let [right, wrong] = [&right, &wrong].map(|path| path.to_str().expect("UTF-8").to_owned());
    let store = temp_dir();
    let server = LogServer::start(store.path(), &["--secret-file", &right]);
    let url = server.url("tcp");
    let receiver = Receiver::start(&[""; 0]);
    let at = receiver.at();
    let try_with = |args: &[&str]| send(&[&[at.as_str(), "--packets", "10"][..], args].concat());
    try_with(&["--log-server", &url, "--log-secret-file", &right]).exits(0);
    try_with(&["--log-server", &url, "--log-secret-file", &wrong]).exits(3).says("secret");
    try_with(&["--log-server", &url]).exits(3).says("secret");
    try_with(&["--recv-log-server", &url]).exits(3).says("--allow-log-servers");
    server.stop();
    try_with(&["--log-spool", "spool.itg"]).exits(2).says("name one with --log-server");
    try_with(&["--log-server", "ftp://127.0.0.1"])
        .exits(2)
        .says("write tls://HOST:PORT, tcp://HOST:PORT or udp://HOST:PORT");
    receiver.stop();
}

#[test]
fn an_experiment_file_names_the_log_server_of_both_sides() {
    let (store, dir) = (temp_dir(), temp_dir());
    let server = LogServer::start(store.path(), &[""; 0]);
    let receiver = Receiver::start(&["--allow-log-servers"]);
    let file = dir.path().join("experiment.toml");
    let (at, port) = (receiver.at(), server.address.port());
    let text = format!(
        "schema = 1\nname = 'file'\n[nodes]\nhere = {{ address = '127.0.0.2' }}\nthere = {{ address = '{at}' }}\n\
         [log]\nserver = 'tcp://there:{port}'\n\
         [[flow]]\nfrom = 'here'\nto = 'there'\npackets = 300\nidt = 'constant(1ms)'\n"
    );
    fs::write(&file, text).expect("writable");
    let file = file.to_str().expect("UTF-8");
    let run = |more: &[&str]| send(&[&["run", file, "--node", "here"][..], more].concat()).exits(0);
    run(&[]);
    // The command line goes before the file.
    let own = dir.path().join("own.itg");
    run(&["--log", own.to_str().expect("UTF-8")]);
    receiver.stop();
    server.stop();
    let by_side = stored(&experiments(store.path()));
    assert_eq!(by_side, (300, 600), "the sender's log of the second run is elsewhere");
    assert_eq!(packets(&[own]).len(), 300);
}

#[test]
fn l_11_twenty_programs_at_once_are_all_stored() {
    let store = temp_dir();
    let server = LogServer::start(store.path(), &[""; 0]);
    let url = server.url("tcp");
    let receiver = Receiver::start(&[""; 0]);
    let at = receiver.at();
    let senders: Vec<(String, u32)> = (0..20).map(|i| (format!("sender {i}"), i)).collect();
    let rows: Vec<(&str, u32)> = senders.iter().map(|(name, i)| (name.as_str(), *i)).collect();
    in_parallel(&rows, |_| {
        send(&[&at, "--idt", "constant(500us)", "--packets", "1000", "--log-server", &url])
            .exits(0);
    });
    receiver.stop();
    server.stop().says("stored 20000 records");
    let files = experiments(store.path());
    assert_eq!((files.len(), stored(&files).0), (20, 20_000));
}

#[test]
fn l_10_a_growing_experiment_and_one_of_a_killed_server_can_be_decoded() {
    let store = temp_dir();
    let server = LogServer::start(store.path(), &[""; 0]);
    let (address, url) = (server.address.to_string(), server.url("tcp"));
    let receiver = Receiver::start(&["-v"]);
    let sender =
        receiver.begin(&["--idt", "constant(1ms)", "--packets", "4000", "--log-server", &url]);
    let has_records = || {
        let files = experiments(store.path());
        files.first().is_some_and(|file| fs::metadata(file).is_ok_and(|data| data.len() > 20_000))
    };
    wait_for("records on the server", LIMIT, has_records);
    let files = experiments(store.path());
    let open = decode(&[files[0].as_os_str()]).exits(0);
    assert!(open.err.contains("still being written"), "{open}");
    server.kill();
    let (many, few) = (stored(&files).0, 400);
    assert!(many > few, "{many} packets were acknowledged before");
    let torn = decode(&[files[0].as_os_str()]).exits(0);
    assert!(torn.err.contains("its writer was killed"), "{torn}");
    let server = LogServer::listening(&address, store.path(), &[""; 0]);
    sender.finish(LIMIT).exits(0);
    let closed = decode(&[files[0].as_os_str()]).exits(0);
    assert!(!closed.err.contains("still being written"), "{closed}");
    assert_eq!(stored(&files).0, 4_000);
    server.stop();
    receiver.stop();
}
