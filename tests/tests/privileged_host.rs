//! Tests that need root on one host: full disks, and ICMP over loopback.
#![allow(missing_docs, reason = "tests")]

use std::time::Duration;

use itg_tests::{
    Receiver, Tmpfs, accounts, decode, in_parallel, json, lists, not_run, packets, send, sender,
    temp_dir,
};
use nix::sys::signal::Signal;

/// More records than fit on a disk of 1 MiB: 40 bytes each.
const TOO_MANY: [&str; 6] = ["--idt", "constant(25us)", "--size", "64", "--packets", "45000"];

/// The numbers in `log FILE: N records` and `(M records lost)`.
#[track_caller]
fn told(words: &str, file: &str) -> (u64, u64) {
    let number = |text: &str| text.parse().unwrap_or_else(|_| panic!("{text:?} in {words}"));
    let written = words.lines().filter(|line| line.starts_with("log ")).find_map(|line| {
        line.contains(file)
            .then(|| line.strip_suffix(" records")?.rsplit(' ').next().map(number))?
    });
    let lost = words.split(" records lost)").next().and_then(|text| text.rsplit('(').next());
    (written.unwrap_or_else(|| panic!("no count in {words}")), number(lost.expect("split")))
}

/// The log is sound, and counts what it lacks; it holds as many records as its writer said.
#[track_caller]
fn holds(log: &str, (records, lost): (u64, u64)) {
    let done = decode(&[log, "--packets", "--format", "csv"]);
    assert_eq!(done.out.lines().count() as u64, 1 + records, "{}", done.err);
    let done = decode(&[log, "--format", "json"]);
    let report: serde_json::Value = serde_json::from_str(&done.out).expect("JSON");
    let told = &report["manifest"]["logs"][0];
    assert_eq!(told["records"], records, "{told}");
    // Its end has room, which is small.
    assert_eq!((&told["complete"], &told["lost_records"]), (&true.into(), &lost.into()), "{told}");
    for damage in report["damage"].as_array().expect("a list") {
        assert_eq!(damage["len"], 0, "no byte of what was written is bad: {damage}");
    }
}

#[test]
fn a_full_disk_at_the_sender() {
    if not_run() {
        return;
    }
    let disk = Tmpfs::mount("1m");
    let log = disk.join("send.itg").to_str().expect("UTF-8").to_owned();
    let receiver = Receiver::start::<&str>(&[]);
    let done = send(&[&[receiver.at().as_str(), "--log", &log], &TOO_MANY[..]].concat()).exits(1);
    let done = done.says(&log).says("No space left on device").says("free some space");
    let account = &accounts(&done.out)[0];
    assert_eq!(account.sent, 45_000, "the run goes on without its log: {done}");
    let (written, lost) = told(&done.err, &log);
    assert!(written > 10_000, "{done}");
    assert_eq!(written + lost, account.sent, "an exact account: {done}");
    holds(&log, (written, lost));
}

#[test]
fn a_full_disk_at_the_receiver() {
    if not_run() {
        return;
    }
    let disk = Tmpfs::mount("1m");
    let log = disk.join("recv.itg").to_str().expect("UTF-8").to_owned();
    let receiver = Receiver::start(&["--log", &log]);
    let at = receiver.at();
    let sent = send(&[&[at.as_str()], &TOO_MANY[..]].concat()).exits(1);
    let sent = sent.says(&log).says("No space left on device");
    let received = accounts(&sent.out)[0].received.expect("the receiver told");
    receiver.running.signal(Signal::SIGINT);
    let done = receiver.running.finish(Duration::from_secs(60)).exits(1);
    let done = done.says(&log).says("No space left on device");
    let (written, lost) = told(&done.err, &log);
    assert_eq!(written + lost, received, "an exact account: {done}");
    holds(&log, (written, lost));
    assert_eq!(told(&sent.err, &log), (written, lost), "the sender is told the same: {sent}");
}

#[test]
fn a_full_disk_at_the_receiver_of_a_log_that_was_asked_for() {
    if not_run() {
        return;
    }
    let disk = Tmpfs::mount("1m");
    let receiver = Receiver::start(&["--log-dir".into(), disk.join("").into_os_string()]);
    let at = receiver.at();
    let args = [&[at.as_str(), "--recv-log", "wish.itg"], &TOO_MANY[..]].concat();
    let done = send(&args).exits(1).says("wish.itg").says("No space left on device");
    let (written, lost) = told(&done.err, "wish.itg");
    assert_eq!(Some(written + lost), accounts(&done.out)[0].received, "{done}");
    holds(disk.join("wish.itg").to_str().expect("UTF-8"), (written, lost));
    // The receiver serves on, and says what is wrong with the next request.
    let done = send(&[at.as_str(), "--packets", "3", "--idt", "constant(1ms)"]).exits(0);
    assert!(done.out.contains("both sides agree"), "{done}");
    drop(std::fs::write(disk.join("filler"), vec![0; 1 << 20]));
    let done = send(&[at.as_str(), "--packets", "3", "--recv-log", "next.itg"]);
    assert!(matches!(done.code, Some(1 | 3)), "{done}");
    assert!(format!("{}{}", done.out, done.err).contains("No space left on device"), "{done}");
    drop(receiver.stop());
}

#[test]
fn icmp_over_loopback() {
    if not_run() {
        return;
    }
    in_parallel(
        &[
            ("v4 owd", ("127.0.0.1:0", "owd")),
            ("v4 rtt", ("127.0.0.1:0", "rtt")),
            ("v6 owd", ("[::1]:0", "owd")),
            ("v6 rtt", ("[::1]:0", "rtt")),
        ],
        |(listen, meter)| {
            let dir = temp_dir();
            let log = |name: &str| dir.path().join(name).to_str().expect("UTF-8").to_owned();
            let (ours, theirs) = (log("send.itg"), log("recv.itg"));
            let receiver = Receiver::listening(listen, &["--log", &theirs]);
            let at = receiver.at();
            let args = [at.as_str(), "--proto", "icmp", "--meter", meter, "--flows", "2"];
            let distributions =
                ["--idt", "exp(3ms)", "--size", "uniform(12,1400)", "--packets", "200"];
            let running = sender(&[&args[..], &distributions, &["--log", &ours]].concat());
            let done = running.finish(Duration::from_secs(30)).exits(0);
            drop(receiver.stop());
            for account in accounts(&done.out) {
                assert!(account.agreed && account.sent == 200, "{}", account.line);
                let back = account.line.contains("200 replies came back, 0 did not");
                assert_eq!(back, *meter == "rtt", "{}", account.line);
            }
            let joined = packets(&[&ours, &theirs]);
            assert!(joined.iter().all(|packet| packet.arrived.is_some()));
            for (flow, list) in lists(&joined) {
                assert!(list.iter().map(|row| row.0).eq(0..200), "flow {flow}");
            }
            let report = json(&[&ours, &theirs]);
            assert_eq!(report["total"]["packets"], 400, "{}", report["total"]);
            assert_eq!(report["total"]["lost"], 0);
        },
    );
}

/// A sender that was held up sends what was due meanwhile in one burst, and the replies come as one.
#[test]
fn replies_to_a_burst_find_room() {
    if not_run() {
        return;
    }
    in_parallel(&[("udp", "udp"), ("icmp", "icmp")], |proto| {
        let receiver = Receiver::start(&["-v"]);
        let args = ["--proto", proto, "--meter", "rtt", "--idt", "constant(1ms)"];
        let running =
            receiver.begin(&[&args[..], &["--size", "700", "--packets", "3000"]].concat());
        std::thread::sleep(Duration::from_millis(500));
        running.signal(Signal::SIGSTOP);
        std::thread::sleep(Duration::from_millis(500));
        running.signal(Signal::SIGCONT);
        let done = running.finish(Duration::from_secs(60)).exits(0);
        assert!(
            accounts(&done.out)[0].line.contains("3000 replies came back, 0 did not"),
            "{done}"
        );
    });
}

/// `itg-send` as the user nobody, which may not open raw sockets nor have real-time priority; `dir` is where
/// it may write.
fn nobody_sends(dir: &tempfile::TempDir) -> std::process::Command {
    let copy = dir.path().join("itg-send");
    std::fs::copy(itg_tests::program("itg-send"), &copy).expect("a copy that nobody may run");
    for (path, mode) in [(dir.path(), 0o777), (copy.as_path(), 0o755)] {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
        std::fs::set_permissions(path, mode).expect("ours");
    }
    let mut command = std::process::Command::new(&copy);
    std::os::unix::process::CommandExt::uid(&mut command, 65_534);
    std::os::unix::process::CommandExt::gid(&mut command, 65_534);
    command
}

#[test]
fn icmp_without_the_right_says_so() {
    if not_run() {
        return;
    }
    let receiver = Receiver::start::<&str>(&[]);
    let dir = temp_dir();
    let mut command = nobody_sends(&dir);
    command.args([&receiver.at(), "--proto", "icmp", "--packets", "3"]);
    let done = itg_tests::Running::start(&mut command).finish(Duration::from_secs(60));
    let words = format!("{}{}", done.out, done.err);
    if done.code != Some(0) {
        // Where net.ipv4.ping_group_range lets every user ping, it works.
        let done = done.exits(3);
        assert!(words.contains("ICMP needs root, CAP_NET_RAW"), "{done}");
    }
}

#[test]
fn an_ordinary_user_is_told_what_root_can_do_for_times_that_the_kernel_keeps() {
    if not_run() {
        return;
    }
    let receiver = Receiver::start::<&str>(&[]);
    let dir = temp_dir();
    let mut command = nobody_sends(&dir);
    command.args([&receiver.at(), "--pacing", "txtime", "--packets", "3"]);
    let done = itg_tests::Running::start(&mut command).finish(Duration::from_secs(60)).exits(3);
    for words in [
        "`noqueue` of lo does not keep the times of packets",
        "only root may choose that clock (CLOCK_TAI)",
        "`tc qdisc replace dev lo root fq flow_limit 10000 limit 100000` mends it, if this kernel has `fq`",
    ] {
        assert!(done.out.contains(words), "{words}: {done}");
    }
}

#[test]
fn an_ordinary_user_gets_the_next_best_pacing_and_is_told() {
    if not_run() {
        return;
    }
    let receiver = Receiver::start::<&str>(&[]);
    let dir = temp_dir();
    let log = dir.path().join("send.itg");
    let path = log.to_str().expect("UTF-8");
    for (level, burst) in [("sleep", None), ("hybrid", None), ("spin", None), ("hybrid", Some("4"))]
    {
        let mut command = nobody_sends(&dir);
        command.args([&receiver.at(), "--packets", "200", "--log", path, "--realtime"]);
        command.args(["--pacing", level, "--cpu", "0", "-v"]);
        command.args(burst.iter().flat_map(|n| ["--burst", n]));
        let done = itg_tests::Running::start(&mut command).finish(Duration::from_secs(60)).exits(0);
        assert!(done.err.contains("no real-time priority"), "{done}");
        assert!(done.err.contains("processors may sleep deeply"), "{done}");
        assert!(accounts(&done.out)[0].agreed, "{done}");
        let settings = &json(&[&log])["manifest"].to_string();
        let granted = format!("{level}, quick wake-ups: refused");
        assert!(settings.contains(&granted) && settings.contains("processor: 0"), "{settings}");
    }
}
