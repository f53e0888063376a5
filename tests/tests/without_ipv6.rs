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

/// Returns true if the tests are left out because there is no such filter here.
fn not_run() -> bool {
    let open = "import socket; socket.socket(socket.AF_INET6)";
    let mut command = Command::new("python3");
    let done = command.args(["-c", FILTER, "python3", "-c", open]).output();
    let filters = done.is_ok_and(|done| {
        String::from_utf8_lossy(&done.stderr).contains("Address family not supported")
    });
    if !filters {
        leave_out("python3 and filters of system calls");
    }
    !filters
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
    drop(agent.stop(Signal::SIGINT, LIMIT).expect("it ends"));
}

/// Sends 100 packets with D-ITG's programs, the receiver begun with these options.
fn send_100(receiver_first: bool, options: &[&str], receiver_options: &[&str], port: u16) {
    let dir = temp_dir();
    let run = |name: &str, args: &[&str]| {
        let mut command = without_ipv6(name);
        Running::start(command.current_dir(dir.path()).args(args))
    };
    let (sending, data) = ([options, &["-C", "1000", "-z", "100"]].concat(), free_port());
    let data = ["-rp", &data.to_string()];
    let sending = [&sending[..], &data].concat();
    let receiving = [receiver_options, &["-l", "r"]].concat();
    let begin = |sender: bool| {
        let (name, args) = if sender { ("ITGSend", &sending) } else { ("ITGRecv", &receiving) };
        run(name, args)
    };
    let first = begin(!receiver_first);
    listens(&first, port);
    let second = begin(receiver_first);
    if receiver_first {
        drop(second.finish(LIMIT).exits(0));
        drop(first.stop(Signal::SIGINT, LIMIT).expect("it ends"));
    } else {
        drop(first.finish(LIMIT).exits(0));
        drop(second.finish(LIMIT).exits(0));
    }
    let log = std::fs::read(dir.path().join("r")).expect("a log");
    assert_eq!(itg_classic::log::records(&log).count(), 100, "{options:?}");
}

#[test]
fn d_itgs_programs_serve() {
    if not_run() {
        return;
    }
    let port = free_port();
    let signalling = port.to_string();
    send_100(true, &["-a", "127.0.0.1", "-Sdp", &signalling], &["-Sp", &signalling], port);
    for proto in ["UDP", "TCP"] {
        let port = free_port();
        let signalling = port.to_string();
        let waiting = ["-H", "-Ssp", &signalling, "-T", proto];
        send_100(false, &waiting, &["-H", "127.0.0.1", "-Sp", &signalling], port);
    }
}
