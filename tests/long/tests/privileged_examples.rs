//! The nine examples of D-ITG's manual (2.8.1, chapter 4), line by line, with our programs in the
//! place of D-ITG's; addresses are those of the test's hosts.
#![allow(missing_docs, reason = "tests")]

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use itg_classic::log::{LogRecord, records};
use itg_tests::{
    Namespace, Output, Pair, Running, in_parallel, itgdec, listens, not_run, program, temp_dir,
};
use nix::sys::signal::Signal;
use tempfile::TempDir;

const LIMIT: Duration = Duration::from_secs(60);
/// The hosts of the manual's examples.
const SOURCE: &str = "10.77.0.1";
const DESTINATION: &str = "10.77.0.2";

/// Two hosts, each with a folder that contains the programs.
struct Hosts {
    pair: Pair,
    source: TempDir,
    destination: TempDir,
}

/// A folder with our programs under D-ITG's names, where the manual's commands are run.
fn folder() -> TempDir {
    let folder = temp_dir();
    for name in ["ITGSend", "ITGRecv", "ITGLog", "ITGDec"] {
        symlink(program(name), folder.path().join(name)).expect("a link");
    }
    folder
}

fn start(host: &Namespace, folder: &Path, line: &str) -> Running {
    let path = format!("{}:/usr/bin:/bin", folder.display());
    let mut command = host.command(Path::new("/bin/sh"));
    command.args(["-c", &format!("exec {line}")]).env("PATH", path).current_dir(folder);
    Running::start(&mut command)
}

/// Ends a program as Ctrl-C does.
fn close(running: Running) -> Output {
    running.signal(Signal::SIGINT);
    running.finish(LIMIT).exits(0)
}

impl Hosts {
    fn new() -> Self {
        Self { pair: Pair::new(), source: folder(), destination: folder() }
    }

    fn at_source(&self, line: &str) -> Running {
        start(&self.pair.sender, self.source.path(), line)
    }

    fn at_destination(&self, line: &str) -> Running {
        start(&self.pair.receiver, self.destination.path(), line)
    }

    /// Starts a receiver at the destination.
    fn receiver(&self, line: &str) -> Running {
        let receiver = self.at_destination(line);
        listens(&receiver, 9000);
        receiver
    }

    fn log_server(&self) -> Running {
        let server = self.at_destination("./ITGLog");
        listens(&server, 9001);
        server
    }

    fn script(&self, text: &str) {
        fs::write(self.source.path().join("script_file"), text).expect("writable");
    }

    fn source_log(&self, name: &str) -> PathBuf {
        self.source.path().join(name)
    }

    fn destination_log(&self, name: &str) -> PathBuf {
        self.destination.path().join(name)
    }
}

fn log(path: &Path) -> Vec<LogRecord> {
    let bytes = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let all: Vec<_> = records(&bytes).collect();
    // The manual's last step.
    let printed = itgdec(&program("ITGDec"), path);
    assert!(
        printed.contains(&format!("Total packets            = {:>13}", all.len())),
        "{printed}"
    );
    all
}

fn flows(records: &[LogRecord]) -> BTreeSet<u32> {
    records.iter().map(|record| record.flow).collect()
}

/// So many, or a hundredth more: the last packet may be on either side of the end. A machine that stands still at the
/// end of the time leaves out what it could not send within it.
#[track_caller]
fn about(count: usize, want: usize) {
    let good = count <= want + want / 100 && count * 5 >= want * 4;
    assert!(good, "{count} packets, {want} expected");
}

fn example_1() {
    let hosts = Hosts::new();
    let receiver = hosts.receiver("./ITGRecv --trust-peers");
    let line = format!(
        "./ITGSend -a {DESTINATION} -sp 9400 -rp 9500 -C 100 -c 500 -t 20000 -x recv_log_file"
    );
    let sent = hosts.at_source(&line).finish(LIMIT).exits(0);
    close(receiver);
    let records = log(&hosts.destination_log("recv_log_file"));
    about(records.len(), 2000);
    let as_asked = |r: &LogRecord| (r.src_port, r.dst_port, r.size, r.flow) == (9400, 9500, 500, 1);
    assert!(records.iter().all(as_asked), "{sent}");
}

fn example_2() {
    let hosts = Hosts::new();
    let sender = hosts.at_source("./ITGSend -H -C 10 -c 50 -t 10000 -l send_log_file");
    listens(&sender, 9000);
    let received = hosts.at_destination(&format!("./ITGRecv -H {SOURCE}")).finish(LIMIT).exits(0);
    sender.finish(LIMIT).exits(0);
    let records = log(&hosts.source_log("send_log_file"));
    about(records.len(), 100);
    assert!(records.iter().all(|r| r.size == 50), "{received}");
}

fn example_3() {
    let hosts = Hosts::new();
    let receiver = hosts.receiver("./ITGRecv -l recv_log_file");
    let line = format!("./ITGSend -a {DESTINATION} -rp 9501 -C 1000 -u 500 1000 -l send_log_file");
    hosts.at_source(&line).finish(LIMIT).exits(0);
    close(receiver);
    both_logs(&hosts.source_log("send_log_file"), &hosts.destination_log("recv_log_file"), 10_000);
}

/// The logs of both sides hold this many packets, but for what a busy host has lost.
fn both_logs(sender: &Path, receiver: &Path, want: usize) -> Vec<LogRecord> {
    let (sent, received) = (log(sender), log(receiver));
    about(sent.len(), want);
    about(received.len(), sent.len());
    sent
}

fn example_4() {
    let hosts = Hosts::new();
    let server = hosts.log_server();
    let receiver = hosts.receiver("./ITGRecv --trust-peers");
    let line = format!(
        "ITGSend -a {DESTINATION} -rp 9501 -C 1000 -u 500 1000 \
         -l send_log_file -L {DESTINATION} UDP -X {DESTINATION} UDP -x recv_log_file"
    );
    hosts.at_source(&line).finish(LIMIT).exits(0);
    close(receiver);
    close(server);
    let sent = both_logs(
        &hosts.destination_log("send_log_file"),
        &hosts.destination_log("recv_log_file"),
        10_000,
    );
    assert!(sent.iter().all(|r| (500..=1000).contains(&r.size)));
}

fn example_5() {
    let hosts = Hosts::new();
    let server = hosts.log_server();
    let receiver = hosts.receiver("./ITGRecv --trust-peers");
    hosts.script(&format!(
        "-a {DESTINATION} -rp 10001 -C 1000 -c 512 -T UDP\n\
         -a {DESTINATION} -rp 10002 -C 2000 -c 512 -T UDP\n\
         -a {DESTINATION} -rp 10003 -C 3000 -c 512 -T UDP\n"
    ));
    let line = format!(
        "./ITGSend script_file -l send_log_file -L {DESTINATION} UDP -X {DESTINATION} UDP \
         -x recv_log_file"
    );
    hosts.at_source(&line).finish(LIMIT).exits(0);
    close(receiver);
    close(server);
    let sent = both_logs(
        &hosts.destination_log("send_log_file"),
        &hosts.destination_log("recv_log_file"),
        60_000,
    );
    assert_eq!(flows(&sent), BTreeSet::from([1, 2, 3]));
}

fn example_6() {
    let hosts = Hosts::new();
    let first = hosts.receiver("./ITGRecv -l recv1_log_file");
    // The second destination is the source's own host.
    let second = hosts.at_source("./ITGRecv -l recv2_log_file");
    listens(&second, 9000);
    hosts.script(&format!(
        "-a {DESTINATION} -rp 10001 VoIP -x G.711.2 -h RTP -VAD\n\
         -a {SOURCE} -rp 10002 Telnet\n\
         -a {SOURCE} -rp 10003 DNS\n"
    ));
    hosts.at_source("./ITGSend script_file -l sender_log_file").finish(LIMIT).exits(0);
    close(first);
    close(second);
    let sent = log(&hosts.source_log("sender_log_file"));
    assert_eq!(flows(&sent), BTreeSet::from([1, 2, 3]));
    let first = log(&hosts.destination_log("recv1_log_file"));
    about(first.len(), 500);
    assert_eq!(flows(&first), BTreeSet::from([1]));
    let second = log(&hosts.source_log("recv2_log_file"));
    assert_eq!(flows(&second), BTreeSet::from([2, 3]));
    about(first.len() + second.len(), sent.len());
}

/// SCTP and DCCP: where the kernel has them the log is there, elsewhere the program says so.
fn with_a_rare_transport(transport: &str, name: &str) {
    let hosts = Hosts::new();
    let receiver = hosts.receiver("./ITGRecv");
    let line = format!(
        "./ITGSend -a {DESTINATION} -m RTTM -T {transport} -rp 9030 -l send_log_file -t 2000"
    );
    let done = hosts.at_source(&line).finish(LIMIT);
    close(receiver);
    let words = format!("{}{}", done.out, done.err);
    if done.code == Some(0)
        && fs::metadata(hosts.source_log("send_log_file")).is_ok_and(|m| m.len() > 0)
    {
        log(&hosts.source_log("send_log_file"));
    } else {
        assert!(words.contains(name), "nothing is said of {name}: {done}");
    }
}

fn example_9() {
    let hosts = Hosts::new();
    let receiver = hosts.receiver("./ITGRecv");
    let line = format!("./ITGSend -a {DESTINATION} -T UDP -l send_log_file -B E 100 W 10 100");
    hosts.at_source(&line).finish(LIMIT).exits(0);
    close(receiver);
    let records = log(&hosts.source_log("send_log_file"));
    // 1000 a second in bursts of 100 ms on average, with pauses of 10 ms: Weibull's first number is
    // the scale.
    assert!((8000..=10_000).contains(&records.len()), "{} packets", records.len());
    assert!(records.iter().all(|r| r.size == 512));
}

#[test]
fn the_nine_examples_of_the_manual_run() {
    if not_run() {
        return;
    }
    let rows: [(&str, fn()); 9] = [
        ("example 1: UDP, log at the receiver", example_1),
        ("example 2: passive mode", example_2),
        ("example 3: logs at both sides", example_3),
        ("example 4: both logs at a server", example_4),
        ("example 5: three flows, both logs at a server", example_5),
        ("example 6: VoIP, Telnet, DNS to two hosts", example_6),
        ("example 7: SCTP", || with_a_rare_transport("SCTP 3 1", "SCTP")),
        ("example 8: DCCP", || with_a_rare_transport("DCCP", "DCCP")),
        ("example 9: bursts", example_9),
    ];
    in_parallel(&rows, |example| example());
}
