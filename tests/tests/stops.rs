//! Starts and ends of flows, their pauses, and packets that could not leave in time.
#![allow(missing_docs, reason = "tests")]

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use itg_testkit::child::Kept;
use itg_tests::{
    Account, Packet, Receiver, accounts, in_parallel, json, packets, program, send, sender,
    temp_dir,
};
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::signal::Signal;

/// Sends one flow; its account and its packets.
#[track_caller]
fn sent(receiver: &Receiver, args: &[&str]) -> (Account, Vec<Packet>) {
    let dir = temp_dir();
    let log = dir.path().join("send.itg");
    let at = receiver.at();
    let mut all = vec![at.as_str(), "--seed", "5", "--log", log.to_str().expect("UTF-8")];
    all.extend(args);
    let done = send(&all).exits(0);
    let mut accounts = accounts(&done.out);
    (accounts.remove(0), packets(&[&log]))
}

#[test]
fn the_most_restrictive_limit_wins() {
    let receiver = Receiver::start::<&str>(&[]);
    // Packets of 500 bytes each millisecond.
    in_parallel(
        &[
            ("time", (&["--duration", "300ms"][..], 300)),
            ("packets", (&["--packets", "120"], 120)),
            ("bytes: the packet that would pass the limit stays", (&["--bytes", "60499"], 120)),
            ("bytes, exactly", (&["--bytes", "60500"], 121)),
            ("time first", (&["--duration", "100ms", "--packets", "1k", "--bytes", "1M"], 100)),
            ("packets first", (&["--duration", "9s", "--packets", "70", "--bytes", "1M"], 70)),
            ("bytes first", (&["--duration", "9s", "--packets", "1k", "--bytes", "40Ki"], 81)),
            ("one packet", (&["--packets", "1"], 1)),
            ("binary and decimal", (&["--bytes", "50kB", "--duration", "9s"], 100)),
        ],
        |(limits, want)| {
            let args = [&["--idt", "constant(1ms)", "--size", "500"], *limits].concat();
            let (account, list) = sent(&receiver, &args);
            // A time limit leaves out what a busy machine could not send in time, and says so.
            let left_out = account.line.contains("left out");
            if left_out && limits.contains(&"--duration") {
                assert!(list.len() < *want, "{}", account.line);
            } else {
                assert_eq!(list.len(), *want, "{}", account.line);
            }
            assert_eq!(account.sent, list.len() as u64, "{}", account.line);
            for packet in &list {
                assert_eq!((packet.planned, packet.size), (Some(packet.seq * 1_000_000), 500));
            }
        },
    );
}

#[test]
fn a_flow_starts_after_the_time_asked_for() {
    let receiver = Receiver::start::<&str>(&[]);
    let dir = temp_dir();
    let (file, log) = (dir.path().join("two.toml"), dir.path().join("send.itg"));
    let text = format!(
        "schema = 1\nname = \"x\"\nseed = 1\n[nodes]\nhere = {{ address = \"127.0.0.1\" }}\n\
         there = {{ address = \"{}\" }}\n\
         [[flow]]\nfrom = \"here\"\nto = \"there\"\npackets = 200\nidt = \"constant(10ms)\"\n\
         [[flow]]\nfrom = \"here\"\nto = \"there\"\npackets = 200\nstart = \"600ms\"\nidt = \"constant(10ms)\"\n",
        receiver.at()
    );
    fs::write(&file, text).expect("a temporary file");
    let done =
        send(&["run".as_ref(), file.as_os_str(), "--log".as_ref(), log.as_os_str()]).exits(0);
    let list = packets(&[&log]);
    assert_eq!(list.len(), 400, "{done}");
    // When planned times counted from: as early as any packet shows, since none leaves early.
    let start = |flow| {
        let of_flow = list.iter().filter(|packet| packet.flow == flow);
        let start =
            of_flow.map(|packet| packet.sent.expect("sent") - packet.planned.expect("planned"));
        start.min().expect("packets")
    };
    let apart = start(2) - start(1);
    assert!(apart.abs_diff(600_000_000) < 50_000_000, "the flows start {apart} ns apart");

    let began = std::time::Instant::now();
    let (account, _) = sent(&receiver, &["--start-after", "700ms", "--packets", "3"]);
    assert!(began.elapsed() > Duration::from_millis(700), "{}", account.line);
}

#[test]
fn off_periods_are_pauses() {
    let receiver = Receiver::start::<&str>(&[]);
    let bursts = ["--on-off", "constant(100ms),constant(200ms)", "--idt", "constant(10ms)"];
    let (_, list) = sent(&receiver, &[&bursts[..], &["--packets", "35"]].concat());
    let gaps: Vec<_> = list
        .windows(2)
        .map(|two| two[1].planned.expect("planned") - two[0].planned.expect("planned"))
        .collect();
    // Ten packets in an ON period; the time that an OFF period interrupts is longer by it.
    for (index, &gap) in gaps.iter().enumerate() {
        let want = if (index + 1) % 10 == 0 { 210_000_000 } else { 10_000_000 };
        assert_eq!(gap, want, "gap {index} of {gaps:?}");
    }
    let start = list.iter().map(|one| one.sent.expect("sent") - one.planned.expect("planned"));
    let start = start.min().expect("packets");
    let mut judged = 0;
    for two in list.windows(2) {
        let (planned, sent) = (two[1].planned.expect("planned"), two[1].sent.expect("sent"));
        let (planned_before, sent_before) =
            (two[0].planned.expect("planned"), two[0].sent.expect("sent"));
        // A pause behind a packet that left late is as much shorter.
        let late = sent_before - planned_before - start;
        if planned - planned_before > 200_000_000 && late < 50_000_000 {
            // Half of the pause is enough to tell it from an inter-departure time.
            assert!(sent - sent_before > 100_000_000, "no pause: {two:?}");
            judged += 1;
        }
    }
    assert!(judged > 0, "every packet before a pause left late: {list:?}");
}

/// Account, packets and report of a flow whose sender the system has stopped for half a second in
/// mid-run.
fn halted(args: &[&str]) -> (Account, Vec<Packet>, serde_json::Value) {
    let dir = temp_dir();
    let log = dir.path().join("send.itg");
    let receiver = Receiver::start(&["-v"]);
    let mut all = vec!["--idt", "constant(1ms)", "--size", "100"];
    all.extend(["--packets", "3000", "--log", log.to_str().expect("UTF-8")]);
    all.extend(args);
    let running = receiver.begin(&all);
    thread::sleep(Duration::from_millis(400));
    running.signal(Signal::SIGSTOP);
    thread::sleep(Duration::from_millis(500));
    running.signal(Signal::SIGCONT);
    let done = running.finish(Duration::from_secs(60)).exits(0);
    (accounts(&done.out).remove(0), packets(&[&log]), json(&[&log]))
}

#[test]
fn late_packets_are_kept_or_left_out_as_asked() {
    in_parallel(
        &[
            ("keep", &[][..]),
            ("keep, in small bursts", &["--max-burst", "4"]),
            ("drop", &["--late", "drop"]),
        ],
        |args| {
            let (account, list, report) = halted(args);
            let flow = &report["flows"][0];
            let skipped = flow["skipped_packets"].as_u64().expect("a count");
            if args.contains(&"drop") {
                assert!(skipped >= 400, "{skipped} left out: {}", account.line);
                let words = format!("{skipped} late packets left out by the sender");
                assert!(account.line.contains(&words), "{}", account.line);
                assert!(list.windows(2).any(|two| two[1].seq - two[0].seq >= 400));
            } else {
                assert_eq!(skipped, 0, "{}", account.line);
                assert!(list.iter().map(|packet| packet.seq).eq(0..3000));
                let late = flow["lateness_ns"]["max"].as_u64().expect("known");
                assert!(late >= 300_000_000, "lateness is recorded: at most {late} ns");
            }
            assert_eq!(account.sent + skipped, 3000, "{}", account.line);
            assert_eq!(account.received, Some(account.sent), "what was left out is not lost");
        },
    );
}

#[test]
fn flows_without_gaps_end_in_time_too() {
    let dir = temp_dir();
    let log = dir.path().join("recv.itg");
    let receiver = Receiver::start(&["--log".as_ref(), log.as_os_str()]);
    in_parallel(
        &[
            ("udp", ["--proto", "udp", "--idt", "constant(0)", "--size", "1400"]),
            ("tcp", ["--proto", "tcp", "--idt", "constant(0)", "--size", "10000"]),
            (
                "more than any host can send",
                ["--proto", "tcp", "--idt", "constant(1ns)", "--size", "9000"],
            ),
        ],
        |args| {
            let at = receiver.at();
            let all = [&[at.as_str(), "--duration", "300ms"], &args[..]].concat();
            let done = send(&all).exits(0).within(Duration::from_secs(60));
            let account = &accounts(&done.out)[0];
            assert!(account.sent > 100, "{done}");
            // 300 million packets in 300 ms: no wrong number, but that there is none.
            let uncounted = account.line.contains("the rest of them was not counted");
            assert_eq!(uncounted, args.contains(&"constant(1ns)"), "{done}");
            if args.contains(&"tcp") {
                assert_eq!(account.received, Some(account.sent), "{done}");
            }
        },
    );
    // Signals are heard, too.
    let at = receiver.at();
    let running = sender(&[&at, "--idt", "constant(0)", "--size", "1400", "--duration", "60s"]);
    thread::sleep(Duration::from_millis(700));
    running.signal(Signal::SIGTERM);
    drop(running.finish(Duration::from_secs(50)).exits(143));
    drop(receiver.stop());
    // The receiver's log alone, whose plan is computed again, is decoded in time.
    let report = json(&[&log]);
    assert_eq!(report["flows"].as_array().map(Vec::len), Some(4));
}

#[test]
fn a_limit_on_bursts_spreads_what_is_caught_up() {
    // The inter-departure time is 1 ms; packets less than a third of it apart catch up.
    let longest = |list: &[Packet]| {
        let mut runs = vec![0u32];
        for two in list.windows(2) {
            let gap = two[1].sent.zip(two[0].sent).map(|(later, sent)| later.saturating_sub(sent));
            if gap < Some(300_000) {
                *runs.last_mut().expect("never empty") += 1;
            } else {
                runs.push(0);
            }
        }
        runs.into_iter().max().expect("never empty") + 1
    };
    in_parallel(&[("limited", (&["--max-burst", "4"][..], true)), ("free", (&[], false))], |row| {
        let (args, limited) = row;
        let (_, list, _) = halted(args);
        let longest = longest(&list);
        // A machine that stands still between two bursts joins them; hundreds wait at the halt.
        assert_eq!(longest <= 16, *limited, "{longest} packets back to back");
    });
}

/// Nobody reads: lines of intervals wait for ever, and the program ends all the same.
#[test]
fn a_receiver_ends_whose_words_nobody_reads() {
    let (_read, write) = nix::unistd::pipe().expect("a pipe");
    fill(&write);
    let mut command = Command::new(program("itg-recv"));
    command.args(["--listen", "127.0.0.1:0", "--data-port", "0", "--interval", "20ms"]);
    command.stdin(Stdio::null()).stdout(Stdio::from(write)).stderr(Stdio::piped());
    let mut receiver = Kept(command.spawn().expect("itg-recv"));
    let mut words = BufReader::new(receiver.0.stderr.take().expect("stderr is piped"));
    let mut line = String::new();
    while !line.contains("waiting for senders on ") {
        line.clear();
        assert_ne!(words.read_line(&mut line).expect("stderr"), 0, "it ended");
    }
    let address = line.split("waiting for senders on ").nth(1).expect("just found");
    let address = address.split([' ', ';', '\n']).next().expect("an address");
    send(&[address, "--packets", "20", "--idt", "constant(10ms)"]).exits(0);
    receiver.signal(Signal::SIGINT).expect("it runs");
    assert_eq!(receiver.code(Duration::from_secs(30)), Some(130));
}

/// Writes until the pipe takes nothing more.
fn fill(pipe: &OwnedFd) {
    let flags = OFlag::O_NONBLOCK;
    fcntl(pipe, FcntlArg::F_SETFL(flags)).expect("a pipe");
    while nix::unistd::write(pipe, &[b'.'; 4096]).is_ok() {}
    fcntl(pipe, FcntlArg::F_SETFL(OFlag::empty())).expect("a pipe");
}
