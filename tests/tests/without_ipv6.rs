//! Hosts whose kernel has no IPv6 (`ipv6.disable=1`): programs that listen everywhere serve IPv4.
#![allow(missing_docs, reason = "tests")]

use std::process::Command;
use std::time::Duration;

use itg_tests::{
    LogServer, Receiver, Running, cluster_keys, experiments, free_port, leave_out, listens,
    packets, program, temp_dir, two_ports,
};
use nix::sys::signal::Signal;

const LIMIT: Duration = Duration::from_secs(90);

/// Runs the arguments with a filter under which the kernel knows no address family 10: as one
/// without IPv6 it answers EAFNOSUPPORT (97).
const FILTER: &str = r#"
import ctypes, os, platform, struct, sys
call = {"x86_64": 41, "aarch64": 198}[platform.machine()]
rules = [(0x20, 0, 0, 0), (0x15, 0, 3, call), (0x20, 0, 0, 16), (0x15, 0, 1, 10), (6, 0, 0, 0x50000 | 97), (6, 0, 0, 0x7FFF0000)]
code = b"".join(struct.pack("=HBBI", *rule) for rule in rules)
class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("rules", ctypes.c_char_p)]
prctl = ctypes.CDLL(None, use_errno=True).prctl
for words in ((38, 1, 0, 0, 0), (22, 2, ctypes.byref(Program(len(rules), code)))):
    if prctl(*words):
        sys.exit(os.strerror(ctypes.get_errno()))
os.execvp(sys.argv[1], sys.argv[1:])
"#;

/// A program on such a host.
fn without_ipv6(name: &str) -> Command {
    let mut command = Command::new("python3");
    command.args(["-c", FILTER]).arg(program(name));
    command
}

/// Returns true if the tests are left out for want of Python.
fn not_run() -> bool {
    let missing = Command::new("python3").arg("--version").output().is_err();
    if missing {
        leave_out("python3");
    }
    missing
}

#[test]
fn flows_and_their_logs_arrive() {
    if not_run() {
        return;
    }
    let store = temp_dir();
    let [at, stored_at] = [(); 2].map(|()| format!("[::]:{}", free_port()));
    let server = LogServer::run(
        without_ipv6("itg-log").args(["--listen", &stored_at, "--dir"]).arg(store.path()),
    );
    let receiver = Receiver::run(without_ipv6("itg-recv").args([
        "--listen",
        &at,
        "--data-port",
        "0",
        "--allow-log-servers",
    ]));
    assert!(server.address.is_ipv4() && receiver.address.is_ipv4());
    for transport in ["tcp", "udp"] {
        let url = format!("{transport}://127.0.0.1:{}", server.address.port());
        let to = format!("127.0.0.1:{}", receiver.address.port());
        let sender = Running::start(without_ipv6("itg-send").args([
            to.as_str(),
            "--packets",
            "100",
            "--rate",
            "1000pps",
            "--log-server",
            &url,
            "--recv-log-server",
            &url,
            "--log-name",
            transport,
        ]));
        drop(sender.finish(LIMIT).exits(0));
    }
    receiver.stop();
    server.stop().says("stored 400 records");
    assert_eq!(packets(&experiments(store.path())).len(), 200);
}

#[test]
fn an_agent_answers() {
    if not_run() {
        return;
    }
    let dir = temp_dir();
    let keys = dir.path().join("keys");
    cluster_keys(&keys, "1");
    let port = two_ports();
    let agent = Running::start(
        without_ipv6("itg-cluster")
            .args(["agent", "--listen", &format!("[::]:{port}"), "--keys"])
            .arg(&keys)
            .arg("--dir")
            .arg(dir.path().join("agent")),
    );
    drop(agent.line_with(&format!("listening on 0.0.0.0:{port}"), LIMIT));
    let mut status = without_ipv6("itg-cluster");
    status.args(["status", "--at", &format!("127.0.0.1:{port}"), "--keys"]).arg(&keys);
    drop(Running::start(&mut status).finish(LIMIT).exits(0));
    drop(agent.stop(Signal::SIGINT, LIMIT));
}

#[test]
fn d_itgs_programs_serve() {
    if not_run() {
        return;
    }
    let dir = temp_dir();
    let [port, data] = [(); 2].map(|()| free_port().to_string());
    let mut command = without_ipv6("ITGRecv");
    let receiver = Running::start(command.current_dir(dir.path()).args(["-Sp", &port]));
    listens(&receiver, port.parse().expect("a port"));
    let mut command = without_ipv6("ITGSend");
    command.current_dir(dir.path()).args([
        "-a",
        "127.0.0.1",
        "-Sdp",
        &port,
        "-rp",
        &data,
        "-C",
        "1000",
        "-z",
        "100",
        "-l",
        "s.log",
    ]);
    drop(Running::start(&mut command).finish(LIMIT).exits(0));
    drop(receiver.stop(Signal::SIGINT, LIMIT));
}
