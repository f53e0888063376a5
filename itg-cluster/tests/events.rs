//! Events of a run as they happen: `--events` on one host and over agents, and the page for Prometheus.

mod agents;
mod ndjson;

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use agents::{agent, words};
use itg_testkit::child::Kept;
use itg_testkit::host::{leave_out, two_ports};
use ndjson::{lines, of};

fn program(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_itg-cluster"));
    command.args(args);
    command
}

#[test]
fn a_run_on_this_host_tells_what_happens_instead_of_its_report() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("x.toml");
    let text = "schema = 1\nname = 'x'\nseed = 1\nduration = '30s'\n[[flow]]\nname = 'bulk'\npackets = 500\nrate = '200pps'\nsize = 100\n";
    fs::write(&file, text).expect("written");
    let out = dir.path().join("out").display().to_string();
    let args = ["run", &file.display().to_string(), "--local", "--out", &out, "--events", "-"];
    let Output { status, stdout, stderr } = program(&args).output().expect("itg-cluster");
    let err = String::from_utf8(stderr).expect("UTF-8");
    assert_eq!(status.code(), Some(0), "{err}");
    let lines = lines(&String::from_utf8(stdout).expect("UTF-8"));
    let first = lines.first().expect("a line");
    assert_eq!(
        (&first["event"], &first["world"], &first["name"]),
        (&"run".into(), &"local".into(), &"x".into())
    );
    assert_eq!(first["flows"][0]["name"], "bulk");
    assert_eq!(lines.last().expect("a line")["event"], "end");
    let statistics = of(&lines, "statistics");
    let last = statistics.last().expect("figures");
    assert_eq!(
        (&last["total"]["sent_packets"], &last["flows"][0]["sent_bytes"]),
        (&500.into(), &50_000.into())
    );
    let packets = |line: &&serde_json::Value| line["total"]["sent_packets"].as_u64();
    assert!(statistics.is_sorted_by_key(packets), "counters only grow");
    assert!(Path::new(&out).join("report.txt").exists(), "the report is kept");

    let args = ["run", &file.display().to_string(), "--sim", "--events", "x"];
    let Output { status, stderr, .. } = program(&args).output().expect("itg-cluster");
    let err = String::from_utf8(stderr).expect("UTF-8");
    assert_eq!(status.code(), Some(2), "virtual time has no events: {err}");
    assert!(err.contains("with --sim time is virtual"), "{err}");
}

fn page(port: u16) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("the agent's page");
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("asked");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("answered");
    assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");
    text
}

/// The value of a line of a page.
fn value(page: &str, name: &str) -> Option<f64> {
    let line = page.lines().find(|line| line.starts_with(name))?;
    line.rsplit(' ').next()?.parse().ok()
}

#[test]
fn agents_tell_what_happens_and_their_figures_come_up_the_tree() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = |name: &str| dir.path().join(name).display().to_string();
    let keys = path("keys");
    assert!(program(&["keys", &keys]).output().expect("keys").status.success());
    let mut agents = Vec::new();
    let mut text = "schema = 1\nname = 'three'\nseed = 1\nduration = '5s'\n[nodes]\n".to_owned();
    for name in ["a", "b", "c"] {
        let mut metrics = 0;
        let (child, at) = agent(&keys, &path(name), |command| {
            metrics = two_ports();
            command.args(["--metrics", &format!("127.0.0.1:{metrics}")]);
        });
        agents.push((child, name, metrics));
        text += &format!("{name} = {{ address = '{at}' }}\n");
    }
    for (from, to) in [("a", "b"), ("b", "c"), ("c", "a")] {
        text += &format!("[[flow]]\nfrom = '{from}'\nto = '{to}'\nrate = '100pps'\nsize = 200\n");
    }
    fs::write(path("x.toml"), text).expect("written");
    let deadline = Instant::now() + Duration::from_secs(60);
    for (_, name, metrics) in &agents {
        while TcpStream::connect(("127.0.0.1", *metrics)).is_err() {
            assert!(Instant::now() < deadline, "no page of {name}: {}", words(&path(name)));
            sleep(Duration::from_millis(20));
        }
    }
    assert_eq!(value(&page(agents[0].2), "itg_workers"), Some(0.0));
    let (file, out, events) = (path("x.toml"), path("out"), path("events"));
    let args = ["run", &file, "--keys", &keys, "--out", &out, "--events", &events];
    let console =
        program(&args).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("a run");
    // While it runs the pages say so.
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let text = page(agents[0].2);
        if value(&text, "itg_flow_sent_packets_total{flow=\"1\",").is_some_and(|sent| sent > 0.0) {
            assert!(text.contains("name=\"three\""), "{text}");
            assert_eq!(value(&text, "itg_view_members"), Some(4.0), "three nodes and the console");
            assert_eq!(value(&text, "itg_workers"), Some(1.0));
            assert!(
                value(&text, "itg_lease_remaining_seconds").is_some_and(|left| left <= 2.0),
                "{text}"
            );
            assert!(value(&text, "itg_lateness_seconds_count").is_some_and(|count| count > 0.0));
            break;
        }
        assert!(Instant::now() < deadline, "nothing is sent: {text}");
        sleep(Duration::from_millis(100));
    }
    let Output { status, stderr, .. } = console.wait_with_output().expect("its end");
    let err = String::from_utf8(stderr).expect("UTF-8");
    assert_eq!(status.code(), Some(0), "{err}");
    let lines = lines(&fs::read_to_string(&events).expect("events"));
    assert_eq!(lines[0]["nodes"], serde_json::json!(["a", "b", "c"]));
    for (event, key, want, times) in [
        ("node", "state", "joined", 3),
        ("node", "state", "ready", 3),
        ("flow", "state", "running", 3),
        ("flow", "state", "finished", 3),
        ("command", "command", "load: 3 flows", 1),
        ("command", "command", "start", 1),
        ("end", "event", "end", 1),
    ] {
        let found = of(&lines, event).into_iter().filter(|line| line[key] == want).count();
        assert_eq!(found, times, "{event} {want}: {lines:#?}");
    }
    let statistics = of(&lines, "statistics");
    let mut all = statistics
        .iter()
        .filter(|line| line["flows"].as_array().is_some_and(|flows| flows.len() == 3));
    let last = all.next_back().expect("the figures of all three nodes");
    let sent = last["total"]["sent_packets"].as_u64().expect("a count");
    assert!((300..=1500).contains(&sent), "{sent} of 1500 packets: {last}");
    let flows = last["flows"].as_array().expect("flows").iter();
    assert_eq!(
        flows.map(|flow| flow["sent_packets"].as_u64().expect("a count")).sum::<u64>(),
        sent
    );
}

/// A reader of the events wants to know when it is over.
#[test]
fn a_run_that_fails_says_so_in_its_last_event() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = |name: &str| dir.path().join(name).display().to_string();
    assert!(program(&["keys", &path("keys")]).output().expect("keys").status.success());
    let text = format!(
        "schema = 1\nname = 'x'\nduration = '1s'\n[nodes]\na = {{ address = '127.0.0.1:{}' }}\n\
         [[flow]]\nfrom = 'a'\nto = 'a'\nrate = '100pps'\n",
        two_ports()
    );
    fs::write(path("x.toml"), text).expect("written");
    let (file, keys, out, events) = (path("x.toml"), path("keys"), path("out"), path("events"));
    let args = ["run", &file, "--keys", &keys, "--out", &out, "--events", &events];
    let Output { status, stderr, .. } = program(&args).output().expect("its end");
    let err = String::from_utf8(stderr).expect("UTF-8");
    assert_eq!(status.code(), Some(3), "{err}");
    let lines = lines(&fs::read_to_string(&events).expect("events"));
    let last = lines.last().expect("a line");
    assert_eq!(last["event"], "end", "{lines:#?}");
    let why = last["interrupted"].as_str().expect("a reason");
    assert!(why.contains("0 of 1 nodes are there: nothing was started"), "{why}");
}

/// A log that cannot be written is known only when it is closed.
#[test]
fn a_log_that_cannot_be_written_is_told_by_the_last_event() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = |name: &str| dir.path().join(name).display().to_string();
    let text = "schema = 1\nname = 'x'\nduration = '2s'\n[[flow]]\nrate = '4000pps'\nsize = 100\n";
    fs::write(path("x.toml"), text).expect("written");
    let limited = "trap '' XFSZ; ulimit -f 64; exec \"$0\" \"$@\"";
    let mut run = Command::new("bash");
    run.args(["-c", limited, env!("CARGO_BIN_EXE_itg-cluster"), "run", &path("x.toml"), "--local"]);
    run.args(["--events", "-", "--out", &path("out")]).stdin(Stdio::null());
    let Output { status, stdout, stderr } = run.output().expect("bash");
    let (text, err) = (String::from_utf8(stdout), String::from_utf8_lossy(&stderr));
    assert_eq!(status.code(), Some(1), "{err}");
    let lines = lines(&text.expect("UTF-8"));
    let last = lines.last().expect("a line");
    assert_eq!(last["event"], "end", "{last:#?}");
    assert!(last["interrupted"].as_str().is_some_and(|why| why.contains(".itg: ")), "{last:#?}");
}

/// A process in the background that touches the terminal is stopped (SIGTTOU), and its run would never end.
#[test]
fn a_run_in_the_background_of_a_terminal_goes_on() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = |name: &str| dir.path().join(name).display().to_string();
    let text = "schema = 1\nname = 'x'\nduration = '1s'\n[[flow]]\nrate = '100pps'\n";
    fs::write(path("x.toml"), text).expect("written");
    // With job control, as a shell of a person has it.
    let run = format!(
        "'{}' run '{}' --local --out '{}'",
        env!("CARGO_BIN_EXE_itg-cluster"),
        path("x.toml"),
        path("out")
    );
    let line = format!("bash -mc \"{run} & wait \\$!; echo it ended with \\$?\"");
    let mut terminal = Command::new("script");
    terminal.args(["--quiet", "--return", "--command", &line, "/dev/null"]);
    terminal.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let Ok(child) = terminal.spawn() else {
        return leave_out("the program `script`");
    };
    let mut child = Kept(child);
    let deadline = Instant::now() + Duration::from_secs(60);
    while child.0.try_wait().expect("a child").is_none() {
        assert!(Instant::now() < deadline, "it has been stopped");
        sleep(Duration::from_millis(50));
    }
    let mut text = String::new();
    child.0.stdout.take().expect("its output").read_to_string(&mut text).expect("UTF-8");
    assert!(text.contains("it ended with 0"), "{text}");
}
