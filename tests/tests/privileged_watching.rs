//! Programs that others watch: whether they can serve, and when they said what. Needs root for a small disk.
#![allow(missing_docs, reason = "tests")]

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;
use std::time::Duration;

use itg_tests::{
    LogServer, Receiver, Running, Tmpfs, cluster_keys, cluster_program, free_port, not_run,
    program, root, send, temp_dir, wait_for,
};
use nix::sys::signal::Signal;

const LIMIT: Duration = Duration::from_secs(60);

/// What a server of HTTP answers to the question for a path: the first line, and the body.
fn answer(at: SocketAddr, path: &str) -> (String, String) {
    let mut stream = TcpStream::connect(at).expect("it listens");
    stream.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes()).expect("asked");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("answered");
    let (head, body) = text.split_once("\r\n\r\n").expect("an answer");
    (head.lines().next().expect("a status").to_owned(), body.to_owned())
}

/// The health of a program that has said where its page is.
#[track_caller]
fn health(running: &Running) -> (String, String) {
    let line = running.line_with("metrics on http://", LIMIT);
    let at = line.split("http://").nth(1).and_then(|rest| rest.split('/').next());
    answer(at.and_then(|at| at.parse().ok()).expect("an address"), "/healthz")
}

#[test]
fn a_program_with_a_full_disk_is_not_healthy() {
    if not_run() {
        return;
    }
    let ok = ("HTTP/1.1 200 OK".to_owned(), "ok\n".to_owned());
    let disk = Tmpfs::mount("4m");
    let dir = disk.join("logs");
    fs::create_dir(&dir).expect("made");
    let name = dir.to_str().expect("UTF-8");
    let metrics = ["--metrics", "127.0.0.1:0"];
    let receiver = Receiver::start(&[&metrics[..], &["--log-dir", name]].concat());
    let server = LogServer::start(&dir, &metrics);
    for running in [&receiver.running, &server.running] {
        assert_eq!(health(running), ok);
    }
    fs::write(disk.join("filler"), vec![1; 7 << 19]).expect("room for that");
    let full =
        ("HTTP/1.1 503 Service Unavailable".to_owned(), format!("the disk of {name} is full\n"));
    for running in [&receiver.running, &server.running] {
        assert_eq!(health(running), full);
    }
    // As soon as there is room again, they are well.
    fs::remove_file(disk.join("filler")).expect("removed");
    for running in [&receiver.running, &server.running] {
        assert_eq!(health(running), ok);
    }
    drop((receiver.stop(), server.stop()));
}

/// Each line, also of a text of several, and those of libraries at any verbosity.
#[test]
fn lines_on_stderr_have_times_where_that_is_asked_for() {
    let stamped = |line: &str| {
        let (time, rest) = line.split_once(' ').unwrap_or_default();
        let form: String = time.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
        form == "0000-00-00T00:00:00.000Z" && !rest.is_empty()
    };
    for more in [&[][..], &["-vv"]] {
        let receiver = Receiver::start(&[&["--timestamps"], more].concat());
        let at = receiver.at();
        let words = [&at, "--packets", "3", "--timestamps"];
        let done = send(&[&words[..], more].concat()).exits(0);
        let served = receiver.stop();
        for said in [&done.err, &served.err] {
            assert!(said.lines().count() > 1, "{said}");
            for line in said.lines().filter(|line| !line.is_empty()) {
                assert!(stamped(line), "{line:?} of {said}");
            }
        }
    }
    let dir = temp_dir();
    let mut plan = cluster_program();
    let file = dir.path().join("none.toml");
    let done = Running::start(plan.arg("plan").arg(file).arg("--timestamps")).finish(LIMIT);
    assert!(!done.err.is_empty() && done.err.lines().all(stamped), "{done}");
}

#[test]
fn keys_that_expire_soon_are_told_of() {
    for (days, soon) in [("9", true), ("365", false)] {
        let dir = temp_dir();
        let keys = dir.path().join("keys");
        cluster_keys(&keys, days);
        let at = format!("127.0.0.1:{}", free_port());
        let mut agent = cluster_program();
        agent.args(["agent", "--listen", "127.0.0.1:0", "--metrics", &at, "--keys"]);
        let agent = Running::start(agent.arg(&keys).arg("--dir").arg(dir.path().join("agent")));
        drop(agent.line_with("listening on", LIMIT));
        wait_for("the page", LIMIT, || TcpStream::connect(&at).is_ok());
        let (_, page) = answer(at.parse().expect("an address"), "/metrics");
        let left = page.lines().find_map(|line| line.strip_prefix("itg_keys_expire_days "));
        let left: u64 = left.and_then(|left| left.parse().ok()).expect("a number of days");
        let days: u64 = days.parse().expect("a number");
        assert!((days - 1..=days).contains(&left), "{left} of {days}");
        agent.signal(Signal::SIGTERM);
        let done = agent.finish(LIMIT);
        assert_eq!(done.err.contains(&format!("expire in {left} days")), soon, "{done}");
    }
}

/// The package's script, with a `systemctl` that knows one unit and notes what it is asked for.
#[test]
fn an_upgrade_leaves_a_receiver_that_serves() {
    let dir = temp_dir();
    let receiver = Receiver::start(&["-v"]);
    let asked = dir.path().join("asked");
    let systemctl = dir.path().join("systemctl");
    let words = format!(
        "#!/bin/sh\n[ \"$1\" != show ] || {{ echo {}; exit; }}\necho \"$*\" >>{}\n",
        receiver.running.pid(),
        asked.display()
    );
    fs::write(&systemctl, words).expect("written");
    fs::set_permissions(&systemctl, fs::Permissions::from_mode(0o755)).expect("set");
    let path = format!("{}:/usr/bin:/bin", dir.path().display());
    let upgrade = || {
        let mut script = Command::new(root().join("dist/debian/restart-idle"));
        let done = Running::start(script.arg("itg-recv").env("PATH", &path)).finish(LIMIT).exits(0);
        (fs::read_to_string(&asked).unwrap_or_default(), done.err)
    };
    let running = receiver.begin(&["--rate", "10pps", "--duration", "60s"]);
    drop(receiver.running.line_with(" flows", LIMIT));
    let (done, said) = upgrade();
    assert!(done.is_empty() && said.contains("itg-recv serves a run"), "{done}{said}");
    running.signal(Signal::SIGINT);
    drop(running.finish(LIMIT));
    wait_for("the receiver to see that", LIMIT, || !upgrade().0.is_empty());
    assert_eq!(fs::read_to_string(&asked).expect("asked"), "try-restart itg-recv\n");
    drop(receiver.stop());
}

/// A service is started again however often it fails, but where its options make no sense: no start mends that.
#[test]
fn services_with_wrong_options_are_not_started_again_for_ever() {
    for (unit, words) in [
        ("itg-recv", &["itg-recv", "--no-such-option"][..]),
        ("itg-log", &["itg-log", "--no-such-option"]),
        ("itg-agent", &["itg-cluster", "agent", "--no-such-option"]),
    ] {
        let mut wrong = Command::new(program(words[0]));
        drop(Running::start(wrong.args(&words[1..])).finish(LIMIT).exits(2));
        let unit = root().join(format!("dist/systemd/{unit}.service"));
        let text = fs::read_to_string(&unit).expect("a unit");
        let line = |line: &str| text.lines().any(|own| own == line);
        assert!(line("Restart=on-failure") && line("RestartPreventExitStatus=2"), "{unit:?}");
    }
}
