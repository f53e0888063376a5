//! What is said of many flows: the worst and the total, and all of them with `-v`; numbers that are what they say.
#![allow(missing_docs, reason = "tests")]

use std::collections::BTreeMap;
use std::fs;
use std::net::UdpSocket;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use itg_record::{Item, LogReader, Note};
use itg_testkit::child::said;
use itg_tests::{Receiver, free_port, program, send, sender, temp_dir, wait_for};

/// Exit code, stdout and stderr of a program in this directory.
#[track_caller]
fn run(dir: &Path, name: &str, args: &[&str]) -> (i32, String, String) {
    let (code, out, err) = said(Command::new(program(name)).args(args).current_dir(dir));
    (code.expect("an exit code"), out, err)
}

/// Rows of flows in a table: lines that begin with a number and have a protocol.
fn rows(out: &str) -> usize {
    let is_row = |line: &&str| {
        let mut words = line.split_whitespace();
        words.next().is_some_and(|word| word.parse::<u32>().is_ok())
            && words.any(|word| word == "udp")
    };
    out.lines().filter(is_row).count()
}

#[test]
fn many_flows_have_ten_rows_and_all_with_v() {
    let receiver = Receiver::start::<&str>(&[]);
    let at = receiver.at();
    let many = [at.as_str(), "--flows", "30", "--packets", "20", "--rate", "200pps"];
    let done = send(&[&many[..], &["--quiet"]].concat()).exits(0);
    assert_eq!(rows(&done.out), 10, "{done}");
    assert!(
        done.out.contains("\ntotal ") && done.out.contains("10 of 30 flows are shown"),
        "{done}"
    );
    let done = send(&[&many[..], &["-v"]].concat()).exits(0);
    assert_eq!(rows(&done.out), 30, "{done}");
    let told = receiver.stop().out;
    assert_eq!(rows(&told), 20, "ten of each sender: {told}");
}

#[test]
fn an_experiment_of_many_flows_fits_a_screen() {
    let dir = temp_dir();
    // No two flows have the same settings.
    let flow = |k: u32| format!("[[flow]]\nrate = '{}pps'\nsize = 100\n", 20 + k);
    let flows: String = (0..40).map(flow).collect();
    let text = format!("schema = 1\nname = 'm'\nseed = 1\nduration = '1s'\n{flows}");
    fs::write(dir.path().join("m.toml"), text).expect("written");
    let (code, out, err) =
        run(dir.path(), "itg-cluster", &["run", "--local", "--out", "a", "m.toml"]);
    assert_eq!(code, 0, "{out}{err}");
    assert_eq!(rows(&out), 10, "{out}");
    assert!(err.lines().count() < 25, "{} lines: {err}", err.lines().count());
    assert!(
        err.contains("30 more settings of flows: -v") && err.contains("flows: both sides agree"),
        "{err}"
    );
    let report = fs::read_to_string(dir.path().join("a/report.txt")).expect("a report");
    assert!(rows(&report) >= 40, "the file has all: {report}");
    let (code, out, _) = run(dir.path(), "itg-cluster", &["plan", "m.toml"]);
    assert_eq!((code, rows(&out)), (0, 10), "{out}");
    assert!(out.contains("30 more flows: -v"), "{out}");
    let (code, out, _) = run(dir.path(), "itg-cluster", &["plan", "-v", "m.toml"]);
    assert_eq!((code, rows(&out)), (0, 40), "{out}");
    let (code, out, err) =
        run(dir.path(), "itg-cluster", &["run", "-v", "--local", "--out", "b", "m.toml"]);
    assert_eq!(code, 0, "{out}{err}");
    assert!(rows(&out) >= 40 && err.matches("both sides agree on").count() == 40, "{out}{err}");
    // Other settings under the same numbers, and other numbers.
    let text = "schema = 1\nname = 'o'\nseed = 1\nduration = '1s'\n[[flow]]\nproto = 'tcp'\nrate = '50pps'\n";
    fs::write(dir.path().join("o.toml"), text).expect("written");
    let (code, out, err) =
        run(dir.path(), "itg-cluster", &["run", "-q", "--local", "--out", "c", "o.toml"]);
    assert_eq!(code, 0, "{out}{err}");
    let (code, out, err) = run(dir.path(), "itg-decode", &["compare", "a", "c"]);
    assert_eq!(code, 0, "{out}{err}");
    assert!(out.contains("A and B have different plans: 40 flows and 1"), "{out}");
    assert!(out.contains("only in A: flows 2-40\n"), "{out}");
}

#[test]
fn notes_of_equal_flows_are_one() {
    let receiver = Receiver::start(&["--allow-reverse", "--reverse-rate", "40Mbps"]);
    let args = ["--proto", "tcp", "--rate", "max", "-R", "--flows", "4", "-t", "1"];
    let done = send(&[&[receiver.at().as_str()], &args[..]].concat()).exits(0);
    assert_eq!(done.err.matches("note: ").count(), 1, "{done}");
    assert!(
        done.err.contains("note: flows 1-4: the kernel of the sender holds it to 10Mbps"),
        "{done}"
    );
    drop(receiver.stop());
}

#[test]
fn rows_that_add_up_to_more_than_the_total_are_explained() {
    let receiver = Receiver::start::<&str>(&[]);
    let args = ["--flows", "2", "--stagger", "1s", "--rate", "200pps", "-t", "500ms", "--quiet"];
    let done = send(&[&[receiver.at().as_str()], &args[..]].concat()).exits(0);
    assert!(
        done.out
            .contains("\nrates: of each flow over its own time, of the total over that of all ("),
        "{done}"
    );
    let args = ["--flows", "2", "--rate", "200pps", "-t", "1s", "--quiet"];
    let done = send(&[&[receiver.at().as_str()], &args[..]].concat()).exits(0);
    assert!(!done.out.contains("rates:"), "{done}");
    drop(receiver.stop());
}

#[test]
fn a_percentile_of_few_packets_is_a_dash() {
    let receiver = Receiver::start::<&str>(&[]);
    for (packets, told) in [("40", false), ("1000", true)] {
        let args = ["--rate", "2000pps", "--packets", packets, "--quiet"];
        let done = send(&[&[receiver.at().as_str()], &args[..]].concat()).exits(0);
        let head: Vec<&str> = done.out.lines().next().expect("a head").split_whitespace().collect();
        // Two words of the head are one column.
        let place = head.iter().position(|word| *word == "p99").expect("a column");
        let row: Vec<&str> = done.out.lines().nth(1).expect("a row").split_whitespace().collect();
        let from_the_end = head.len() - place;
        assert_eq!(row[row.len() - from_the_end] != "-", told, "{done}");
        assert_ne!(row[row.len() - from_the_end + 1], "-", "the largest delay is known: {done}");
    }
    drop(receiver.stop());
}

/// Flows by source address in a log.
fn flows_by_source(log: &Path) -> BTreeMap<String, u32> {
    let mut flows = BTreeMap::new();
    for item in LogReader::new(&fs::read(log).expect("a log")) {
        if let Item::Note { note: Note::Flow(flow), .. } = item {
            *flows.entry(flow.src).or_default() += 1;
        }
    }
    flows
}

#[test]
fn flows_share_sockets_where_they_are_asked_to() {
    let receiver = Receiver::start::<&str>(&[]);
    let dir = temp_dir();
    let send = |options: &str| {
        let (send, at) = (program("itg-send").display().to_string(), receiver.at());
        // Fewer files than flows.
        let line = format!(
            "ulimit -n 64; exec {send} {at} --flows 300 --rate 50pps --packets 20 {options}"
        );
        said(Command::new("sh").args(["-c", &line]).current_dir(dir.path()))
    };
    let (code, out, err) = send("--json -q --sockets 3 --log s.itg");
    assert_eq!(code, Some(0), "{err}");
    let report: serde_json::Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!((&report["total"]["packets"], &report["total"]["lost"]), (&6000.into(), &0.into()));
    let flows = report["flows"].as_array().expect("flows");
    assert!(flows.len() == 300 && flows.iter().all(|flow| flow["packets"] == 20), "{out}");
    let sources = flows_by_source(&dir.path().join("s.itg"));
    assert_eq!(sources.values().copied().collect::<Vec<_>>(), [100; 3], "{sources:?}");
    // Without it there are files for some of them.
    let (code, out, _) = send("-q");
    assert!(code == Some(3) && out.contains("--sockets"), "{code:?} {out}");
    for options in ["--meter rtt", "--proto tcp", "--pacing txtime", "--classic", "--tx-stamps 4"] {
        let (code, _, err) = send(&format!("-q --sockets 2 {options}"));
        assert!(code == Some(2) && err.contains("--sockets"), "{options}: {code:?} {err}");
    }
    drop(receiver.stop());
}

/// Threads of a process: number, name and nice.
fn threads(pid: u32) -> Vec<(u32, String, i32)> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let told = tasks.filter_map(|task| {
        let stat = fs::read_to_string(task.path().join("stat")).ok()?;
        let (head, tail) = stat.rsplit_once(") ")?;
        let (thread, name) = head.split_once(" (")?;
        Some((thread.parse().ok()?, name.to_owned(), tail.split(' ').nth(16)?.parse().ok()?))
    });
    told.collect()
}

#[test]
fn what_signals_gives_way_to_what_sends() {
    let receiver = Receiver::start::<&str>(&[]);
    let running = sender(&[&receiver.at(), "--rate", "200pps", "-t", "10", "-q"]);
    let pid = running.pid();
    let sending = || {
        let all = threads(pid);
        all.into_iter().find(|(thread, of, _)| *thread != pid && of == "itg-send")
    };
    wait_for("the sending thread", Duration::from_secs(20), || sending().is_some());
    let (.., nice) = sending().expect("it sends for ten seconds");
    // This process may have given way itself: as far as there are steps.
    let want = (nice + 10).min(19);
    wait_for("the others to give way, and the sending thread not", Duration::from_secs(5), || {
        let all = threads(pid);
        let has = |name: &str, nice: i32| {
            all.iter().any(|(thread, of, n)| *thread != pid && of == name && *n == nice)
        };
        has("tokio-rt-worker", want) && has("itg-send", nice)
    });
    drop(running.finish(Duration::from_secs(20)).exits(0));
    drop(receiver.stop());
}

#[test]
fn a_data_port_that_is_taken_is_told_at_the_start() {
    // No connection of another test takes this one while it is free.
    let port = free_port();
    let taken = UdpSocket::bind(("127.0.0.1", port)).expect("a free port");
    let port = port.to_string();
    let start = || {
        let mut command = Command::new(program("itg-recv"));
        Receiver::run(command.args(["--listen", "127.0.0.1:0", "--data-port", &port]))
    };
    let told = start().stop();
    assert!(told.err.contains("--data-port") && told.err.contains("warning: "), "{told}");
    drop(taken);
    let told = start().stop();
    assert!(!told.err.contains("warning: "), "{told}");
}

/// Rates of the flows of an experiment of a second, in packets a second, by their numbers.
fn rates(flows: &[&str]) -> BTreeMap<u64, f64> {
    let dir = temp_dir();
    let flows: String = flows.iter().map(|flow| format!("[[flow]]\n{flow}\n")).collect();
    let text = format!("schema = 1\nname = 'm'\nseed = 1\nduration = '1s'\n{flows}");
    fs::write(dir.path().join("m.toml"), text).expect("written");
    let args = ["run", "--local", "--out", "a", "m.toml"];
    let (code, out, err) = run(dir.path(), "itg-cluster", &args);
    assert_eq!(code, 0, "{out}{err}");
    let report = fs::read(dir.path().join("a/report.json")).expect("a report");
    let report: serde_json::Value = serde_json::from_slice(&report).expect("JSON");
    let flows = report["flows"].as_array().expect("flows");
    let rate = |flow: &serde_json::Value| flow["packet_rate_pps"].as_f64().unwrap_or(0.0);
    flows.iter().map(|flow| (flow["flow"].as_u64().expect("a number"), rate(flow))).collect()
}

#[test]
fn a_call_keeps_its_time_beside_flows_at_max() {
    for flood in ["size = 1000", "size = 1400\nburst = 32", "size = 1400\nproto = 'tcp'"] {
        let flood = format!("rate = 'max'\n{flood}");
        let rates = rates(&[&flood, "rate = '50pps'\nsize = 160"]);
        // A busy host may hold up both; before, the call left within milliseconds, at the end.
        assert!((30.0..80.0).contains(&rates[&2]), "{flood}: {rates:?}");
        assert!(rates[&1] > 1_000.0, "{flood}: {rates:?}");
    }
}

#[test]
fn flows_at_max_share_what_the_host_can_send() {
    let max = "rate = 'max'\nsize = 1000";
    let rates = rates(&[max, max, max]);
    let (least, most) = (rates.values().copied().fold(f64::MAX, f64::min), rates.values());
    assert_eq!(rates.len(), 3);
    assert!(least > 0.5 * most.copied().fold(0.0, f64::max), "{rates:?}");
}
