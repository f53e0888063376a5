//! Logs that everyday tools and signals meet: compressed, replaced, continued, rotated, moved away, on full disks.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use itg_testkit::child::said;
use itg_tests::{
    ClassicReceiver, LogServer, Output, Receiver, Running, accounts, classic_send, decode,
    experiments, free_port, json, lists, packets, program, send, sender, stored, temp_dir,
    wait_for,
};
use nix::sys::signal::Signal;

const LIMIT: Duration = Duration::from_secs(60);

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// Runs `itg-log` with these words.
fn log_tool(words: &[&str]) -> Output {
    Running::start(Command::new(program("itg-log")).args(words)).finish(LIMIT)
}

/// A complete log of a sender, of so many packets.
fn sent_log(dir: &Path, name: &str, count: u32) -> PathBuf {
    let path = dir.join(name);
    let receiver = Receiver::start(&[""; 0]);
    let count = count.to_string();
    let flow = ["--packets", &count, "--idt", "constant(100us)", "--log", text(&path)];
    drop(send(&[&[receiver.at().as_str()], &flow[..]].concat()).exits(0));
    receiver.stop();
    path
}

/// Names of the files in a directory.
fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).expect("there");
    let name = |entry: std::io::Result<fs::DirEntry>| {
        entry.expect("readable").file_name().into_string().expect("UTF-8")
    };
    let mut names: Vec<_> = entries.map(name).collect();
    names.sort();
    names
}

/// Packets of flow 1 that arrived, by the logs; nothing may be damaged.
#[track_caller]
fn arrived<P: AsRef<Path>>(logs: &[P]) -> u64 {
    let report = json(logs);
    assert_eq!(report["damage"].as_array().map(Vec::len), Some(0), "{report}");
    stored(logs).1
}

#[test]
fn a_log_that_a_server_writes_is_not_compressed() {
    let store = temp_dir();
    let server = LogServer::start(store.path(), &[""; 0]);
    let url = server.url("tcp");
    let receiver = Receiver::start(&["-v"]);
    let flow = ["--idt", "constant(1ms)", "--packets", "2000", "--log-flush", "100ms"];
    let sending = receiver.begin(&[&flow[..], &["--log-server", &url, "--log-name", "x"]].concat());
    let path = store.path().join("x.itg");
    wait_for("the first blocks", LIMIT, || fs::metadata(&path).is_ok_and(|f| f.len() > 4096));
    for undo in [&["seal"][..], &["seal", "--undo"]] {
        let done = log_tool(&[undo, &[text(&path)]].concat()).exits(2);
        assert!(done.err.contains("another program is using it"), "{done}");
    }
    drop(sending.finish(LIMIT).exits(0));
    receiver.stop();
    drop(server.stop().says("stored 2000 records"));
    assert_eq!(stored(&[&path]).0, 2000);
    // Complete, it is: with its rights.
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).expect("ours");
    let before = lists(&packets(&[&path]));
    for undo in [&["seal"][..], &["seal", "--undo"]] {
        drop(log_tool(&[undo, &[text(&path)]].concat()).exits(0));
        assert_eq!(fs::metadata(&path).expect("there").permissions().mode() & 0o7777, 0o640);
        assert_eq!(lists(&packets(&[&path])), before);
    }
    // A server that is asked for the experiment goes on in it.
    let server = LogServer::start(store.path(), &[""; 0]);
    let receiver = Receiver::start(&[""; 0]);
    let url = server.url("tcp");
    let more = ["--packets", "10", "--log-server", &url, "--log-name", "x"];
    drop(send(&[&[receiver.at().as_str()], &more[..]].concat()).exits(0));
    receiver.stop();
    server.stop();
    assert_eq!(stored(&[&path]).0, 2010);
}

/// Every tool that rewrites or replaces logs, on everything that it may be pointed at.
#[test]
fn tools_leave_alone_what_is_no_complete_log() {
    let dir = temp_dir();
    let at = |name: &str| dir.path().join(name);
    let good = fs::read(sent_log(dir.path(), "good", 300)).expect("there");
    let write = |name: &str, bytes: &[u8]| fs::write(at(name), bytes).expect("room");
    write("unfinished", &good[..good.len() - 8]);
    write("text", b"my thesis");
    write("zeros", &[0; 4096]);
    write("empty", b"");
    let classic = ClassicReceiver::start(&["-l", "d-itg"]);
    drop(classic.send(&["-C", "1000", "-z", "20"]).exits(0));
    fs::copy(classic.file("d-itg"), at("d-itg")).expect("room");
    classic.stop();
    write("server.itg", &good);
    write("server.index.jsonl", b"{}\n");
    symlink(at("nowhere"), at("dangling")).expect("a link");
    fs::create_dir(at("folder")).expect("room");

    let receiver = Receiver::start(&[""; 0]);
    let to = receiver.at();
    let flow = ["--packets", "5", "--idt", "constant(1ms)"];
    let replace = |path: &str| send(&[&[to.as_str(), "--log", path], &flow[..]].concat());
    let go_on = |path: &str| {
        let listen = ["--listen", "127.0.0.1:0", "--data-port", "0", "--log", path];
        let mut command = Command::new(program("itg-recv"));
        let running = Running::start(command.args(listen));
        sleep(Duration::from_millis(300));
        running.signal(Signal::SIGTERM);
        running.finish(LIMIT)
    };
    let seal = |path: &str| log_tool(&["seal", path]);
    let undo = |path: &str| log_tool(&["seal", "--undo", path]);
    type Tool<'a> = (&'a str, &'a dyn Fn(&str) -> Output);
    let tools: [Tool<'_>; 4] = [
        ("itg-send --log", &replace),
        ("itg-recv --log", &go_on),
        ("seal", &seal),
        ("seal --undo", &undo),
    ];
    // The words of each tool, in this order; none where it does its work.
    let no_log = Some("no log of ITG");
    let rows = [
        ("unfinished", [Some("without its end"), None, Some("cut off"), Some("cut off")]),
        ("text", [no_log, no_log, no_log, no_log]),
        ("zeros", [no_log, no_log, no_log, no_log]),
        ("empty", [None, None, no_log, no_log]),
        ("d-itg", [no_log, no_log, no_log, no_log]),
        (
            "server.itg",
            [Some("belongs to a log server"), Some("belongs to a log server"), None, None],
        ),
        ("dangling", [Some("leads nowhere"), None, Some("No such file"), Some("No such file")]),
        ("folder", [Some("directory"), Some("directory"), Some("directory"), Some("directory")]),
        ("good", [None, None, None, None]),
    ];
    let mut wrong = Vec::new();
    for (name, words) in rows {
        for ((tool, run), words) in tools.iter().zip(words) {
            let path = at(name);
            let before = fs::read(&path).ok();
            let done = run(text(&path));
            let fine = match words {
                Some(words) => {
                    done.code.is_some_and(|code| (1..=2).contains(&code))
                        && done.err.contains(words)
                        && fs::read(&path).ok() == before
                }
                None => matches!(done.code, Some(0 | 143)),
            };
            if !fine {
                wrong.push(format!("{tool} on {name}: wanted {words:?}: {done}"));
            }
            match &before {
                Some(bytes) => fs::write(&path, bytes).expect("room"),
                None => drop(fs::remove_file(at("nowhere"))),
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    receiver.stop();
    let left = names(dir.path());
    let scratch = |name: &&String| name.contains(".new-") || name.ends_with(".sealing");
    assert_eq!(left.iter().find(scratch), None, "{left:?}");
}

#[test]
fn a_sender_without_a_flow_keeps_the_log_that_is_there() {
    let dir = temp_dir();
    let path = sent_log(dir.path(), "s.itg", 50);
    let good = fs::read(&path).expect("there");
    let nobody = format!("127.0.0.1:{}", free_port());
    let receiver = Receiver::start(&[""; 0]);
    let at = receiver.at();
    for words in [
        // Nobody is there; the receiver refuses; the sender is told to wait and interrupted.
        &[nobody.as_str(), "--log", text(&path)][..],
        &[&at, "--log", text(&path), "--recv-log", "r.itg"],
    ] {
        let done = send(words).exits(3);
        assert!(done.err.contains("not begun, since no flow was open"), "{done}");
        assert_eq!(fs::read(&path).expect("there"), good, "{done}");
    }
    let absent = dir.path().join("new.itg");
    drop(send(&[nobody.as_str(), "--log", text(&absent)]).exits(3));
    assert!(!absent.exists());
    // With the first flow the new one takes its place, and the rights of the old one.
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).expect("ours");
    drop(send(&[at.as_str(), "--log", text(&path), "--packets", "7"]).exits(0));
    assert_eq!(stored(&[&path]).0, 7);
    assert_eq!(fs::metadata(&path).expect("there").permissions().mode() & 0o7777, 0o640);
    receiver.stop();
    assert_eq!(names(dir.path()), ["s.itg"]);
}

#[test]
fn a_sender_of_d_itg_without_a_flow_keeps_the_log_that_is_there() {
    let receiver = ClassicReceiver::start(&[]);
    drop(receiver.send(&["-C", "1000", "-z", "20", "-l", "s.log"]).exits(0));
    let good = fs::read(receiver.file("s.log")).expect("there");
    assert!(!good.is_empty());
    let port = free_port().to_string();
    let dir = receiver.file("s.log").parent().expect("a directory").to_owned();
    let nobody = ["-a", "127.0.0.1", "-Sdp", &port, "-z", "5", "-l", "s.log"];
    let done = classic_send(&dir, &nobody);
    assert!(done.code != Some(0), "{done}");
    assert_eq!(fs::read(receiver.file("s.log")).expect("there"), good);
    // What is no log of D-ITG is left alone.
    fs::write(receiver.file("thesis"), "my thesis").expect("room");
    let done = receiver.send(&["-C", "1000", "-z", "5", "-l", "thesis"]);
    assert!(done.code != Some(0) && done.err.contains("no log of D-ITG"), "{done}");
    assert_eq!(fs::read(receiver.file("thesis")).expect("there"), b"my thesis");
    // An older one is replaced, as with D-ITG.
    drop(receiver.send(&["-C", "1000", "-z", "3", "-l", "s.log"]).exits(0));
    assert_eq!(receiver.log("s.log").len(), 3);
    receiver.stop();
}

#[test]
fn a_receiver_that_is_started_again_goes_on_with_its_log() {
    let dir = temp_dir();
    let path = dir.path().join("r.itg");
    let mut want = 0;
    for round in 0..4 {
        let receiver = Receiver::start(&["--log", text(&path), "--log-flush", "1ms"]);
        let at = receiver.at();
        let count = 50 + round;
        let flow = ["--packets", &count.to_string(), "--idt", "constant(100us)"];
        let done = send(&[&[at.as_str()], &flow[..]].concat()).exits(0);
        assert!(accounts(&done.out)[0].agreed, "{done}");
        want += count;
        if round % 2 == 0 {
            receiver.stop();
        } else {
            // The log is closed by its end alone; its records are there when the sender has left.
            receiver.running.signal(Signal::SIGKILL);
            drop(receiver.running.finish(LIMIT));
        }
    }
    assert_eq!(arrived(&[&path]), want);
}

#[test]
fn a_log_that_was_moved_away_is_opened_anew_at_sighup() {
    let dir = temp_dir();
    let at = |name: &str| dir.path().join(name);
    let path = at("r.itg");
    let receiver = Receiver::start(&["-v", "--log", text(&path), "--log-flush", "10ms"]);
    let sent = at("s.itg");
    let flow = ["--packets", "3000", "--idt", "constant(1ms)", "--log", text(&sent)];
    let sending = receiver.begin(&flow);
    let mut parts = Vec::new();
    for number in 0..3 {
        sleep(Duration::from_millis(500));
        let moved = at(&format!("moved-{number}"));
        fs::rename(&path, &moved).expect("there");
        if number == 1 {
            // As logrotate's `create` does.
            fs::write(&path, "").expect("room");
        }
        receiver.running.signal(Signal::SIGHUP);
        wait_for("the log", LIMIT, || fs::metadata(&path).is_ok_and(|file| file.len() > 0));
        parts.push(moved);
    }
    // Its name leads to it: nothing to do.
    receiver.running.signal(Signal::SIGHUP);
    drop(sending.finish(LIMIT).exits(0));
    receiver.stop();
    parts.push(path);
    // All parts together are one log, in whatever order they are given.
    parts.reverse();
    parts.swap(0, 2);
    let both = [&parts[..], &[at("s.itg")]].concat();
    let report = json(&both);
    let flows = report["flows"].as_array().expect("flows");
    assert_eq!(flows.len(), 2, "{report}");
    for flow in flows {
        assert_eq!((&flow["packets"], &flow["lost"]), (&3000.into(), &0.into()), "{flow}");
    }
    assert_eq!(packets(&parts).len(), 3000);
    // A part by itself knows that it is one: what is elsewhere is not lost.
    for part in &parts {
        let flow = &json(&[part.clone(), at("s.itg")])["flows"];
        let flow = flow.as_array().expect("flows").iter().find(|f| f["side"] == "receiver");
        let flow = flow.expect("in each part");
        assert!(flow["packets"].as_u64().is_some_and(|count| (1..3000).contains(&count)), "{flow}");
        assert!(flow["lost"].as_u64().unwrap_or(0) == 0, "{flow}");
        let notices = flow["notices"].to_string();
        assert!(notices.contains("goes on from") || notices.contains("breaks off"), "{flow}");
    }
}

#[test]
fn a_log_is_rotated_by_size_and_old_parts_are_removed() {
    let dir = temp_dir();
    let path = dir.path().join("r.itg");
    fs::write(dir.path().join("r.itg.2"), "my notes").expect("room");
    let rotate = ["--log-rotate", "64Ki", "--log-keep", "3", "--log", text(&path)];
    let receiver = Receiver::start(&rotate);
    let at = receiver.at();
    let flow = ["--packets", "20000", "--idt", "constant(20us)", "--size", "64"];
    drop(send(&[&[at.as_str()], &flow[..]].concat()).exits(0));
    receiver.stop();
    let left = names(dir.path());
    assert!(left.contains(&"r.itg.2".to_owned()), "what is no log is not removed: {left:?}");
    assert_eq!(fs::read(dir.path().join("r.itg.2")).expect("there"), b"my notes");
    let parts: Vec<PathBuf> =
        left.iter().filter(|name| *name != "r.itg.2").map(|n| dir.path().join(n)).collect();
    assert_eq!(parts.len(), 4, "{left:?}");
    for part in &parts {
        assert!(fs::metadata(part).expect("there").len() < 3 << 16, "{left:?}");
    }
    let report = json(&parts);
    assert_eq!(report["damage"].as_array().map(Vec::len), Some(0), "{report}");
    let kept = stored(&parts).1;
    assert!((5_000..12_000).contains(&kept), "{kept} of the last packets");
    for (words, why) in [
        (&["--log-rotate", "1Gi"][..], "--log"),
        (&["--log", "r.itg", "--log-keep", "3"], "--log-rotate"),
        (&["--log", "r.itg", "--log-rotate", "1Ki"], "64Ki"),
        (&["--log-server", "tcp://127.0.0.1", "--log-rotate", "1Gi"], "--log-rotate"),
    ] {
        let (code, _, err) = said(Command::new(program("itg-recv")).args(words));
        assert!(code == Some(2) && err.contains(why), "{words:?}: {err}");
    }
}

#[test]
fn programs_that_send_end_at_sighup_with_their_summary() {
    let dir = temp_dir();
    let log = dir.path().join("s.itg");
    let receiver = Receiver::start(&["-v"]);
    let flow = ["--duration", "60s", "--idt", "constant(1ms)", "--log", text(&log)];
    let sending = receiver.begin(&flow);
    sleep(Duration::from_millis(500));
    sending.signal(Signal::SIGHUP);
    let done = sending.finish(LIMIT).exits(129);
    assert!(accounts(&done.out)[0].agreed, "{done}");
    let whole = decode(&[text(&log)]).exits(0);
    assert!(!whole.err.contains("not closed") && !whole.out.contains("not closed"), "{whole}");
    receiver.stop();

    let out = dir.path().join("out");
    let file = dir.path().join("long.toml");
    fs::write(&file, "schema = 1\nname = \"long\"\nduration = \"60s\"\n[[flow]]\nidt = \"1ms\"\n")
        .expect("room");
    let mut command = Command::new(program("itg-cluster"));
    let run = ["run", text(&file), "--local", "--out", text(&out)];
    let running = Running::start(command.args(run));
    wait_for("its logs", LIMIT, || out.join("sender.itg").is_file());
    sleep(Duration::from_millis(500));
    running.signal(Signal::SIGHUP);
    let done = running.finish(LIMIT).exits(129);
    assert!(done.out.contains("1     udp"), "{done}");
    assert!(out.join("report.json").is_file());
}

#[test]
fn a_sender_that_ignores_sighup_goes_on() {
    let receiver = Receiver::start(&[""; 0]);
    let at = receiver.at();
    let flow = ["-v", &at, "--packets", "1500", "--idt", "constant(1ms)"];
    // As `nohup` starts it.
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' HUP; exec \"$0\" \"$@\""]).arg(program("itg-send")).args(flow);
    let sending = Running::start(&mut command);
    sleep(Duration::from_millis(700));
    sending.signal(Signal::SIGHUP);
    let done = sending.finish(LIMIT).exits(0);
    assert_eq!(accounts(&done.out)[0].sent, 1500, "{done}");
    receiver.stop();
}

#[test]
fn programs_that_serve_go_on_at_sighup_and_open_logs_of_d_itg_anew() {
    let receiver = ClassicReceiver::start(&["-l", "r.log"]);
    let moved = receiver.file("moved");
    for round in 0..2 {
        drop(receiver.send(&["-C", "1000", "-z", "20"]).exits(0));
        wait_for("the records", LIMIT, || receiver.log("r.log").len() == 20);
        if round == 0 {
            fs::rename(receiver.file("r.log"), &moved).expect("there");
            receiver.running.signal(Signal::SIGHUP);
            wait_for("the log", LIMIT, || receiver.file("r.log").is_file());
        }
    }
    assert_eq!(fs::read(&moved).expect("there").len(), 20 * 144);
    receiver.stop();
}

#[test]
fn two_receivers_of_d_itg_that_share_a_directory_do_not_take_each_others_log() {
    let dir = temp_dir();
    let start = || {
        let options = ["--log-dir", text(dir.path()), "--replace-logs"];
        ClassicReceiver::start(&options)
    };
    let (one, other) = (start(), start());
    let flow = ["-C", "1000", "-x", "shared.log", "-t"];
    let first = one.sender(&[&flow[..], &["2000"]].concat());
    wait_for("its log", LIMIT, || dir.path().join("shared.log").is_file());
    let refused = other.send(&[&flow[..], &["200"]].concat());
    assert!(refused.code != Some(0), "the log of the first one is being written: {refused}");
    drop(first.finish(LIMIT).exits(0));
    one.stop();
    let records = fs::read(dir.path().join("shared.log")).expect("there").len() / 144;
    assert!(records > 1500, "{records} records");
    // Complete, it makes room.
    drop(other.send(&[&flow[..], &["200"]].concat()).exits(0));
    other.stop();
    let records = fs::read(dir.path().join("shared.log")).expect("there").len() / 144;
    assert!((1..1000).contains(&records), "{records} records");
}

#[test]
fn a_server_says_that_an_experiment_is_full() {
    for transport in ["tcp", "udp"] {
        let store = temp_dir();
        let server = LogServer::start(store.path(), &["--max-experiment-size", "64Ki"]);
        let receiver = Receiver::start(&[""; 0]);
        let at = receiver.at();
        let url = server.url(transport);
        let flow = ["--packets", "6000", "--idt", "constant(100us)", "--log-server", &url];
        drop(sender(&[&[at.as_str()], &flow[..]].concat()).finish(LIMIT));
        receiver.stop();
        let done = server.stop();
        assert!(
            done.err.contains("is refused") && done.err.contains("full"),
            "{transport}: {done}"
        );
        assert!(done.err.contains("blocks for want of room"), "{transport}: {done}");
        let stored = stored(&experiments(store.path())).0;
        assert!(done.err.contains(&format!("stored {stored} records")), "{transport}: {done}");
    }
}

/// Packets of the sender's and of the receiver's side in these logs, of which nothing may be damaged or without an end.
#[track_caller]
fn whole<P: AsRef<Path>>(logs: &[P]) -> (u64, u64) {
    let report = json(logs);
    assert_eq!(report["damage"].as_array().map(Vec::len), Some(0), "{report}");
    for log in report["manifest"]["logs"].as_array().expect("logs") {
        assert_eq!(log["complete"], true, "{log}");
    }
    stored(logs)
}

#[test]
fn the_files_of_a_log_server_are_opened_anew_at_sighup() {
    // A server that is killed behind it knows what was in the files before.
    for (transport, index_too, killed) in
        [("tcp", false, false), ("tcp", true, true), ("udp", true, false), ("tcp", false, true)]
    {
        let store = temp_dir();
        let at = |name: &str| store.path().join(name);
        let server = LogServer::start(store.path(), &[""; 0]);
        let address = server.address.to_string();
        let receiver = Receiver::start(&["-v", "--allow-log-servers"]);
        let url = server.url(transport);
        let logs = ["--log-server", &url, "--recv-log-server", &url, "--log-name", "x"];
        let flow = ["--idt", "constant(1ms)", "--packets", "2500", "--log-flush", "50ms"];
        let sending = receiver.begin(&[&flow[..], &logs].concat());
        let mut parts = Vec::new();
        for number in 1..3 {
            sleep(Duration::from_millis(600));
            let moved = at(&format!("x.itg.{number}"));
            fs::rename(at("x.itg"), &moved).expect("there");
            parts.push(moved);
            if index_too {
                fs::rename(at("x.index.jsonl"), at(&format!("x.index.jsonl.{number}")))
                    .expect("there");
            }
            server.running.signal(Signal::SIGHUP);
            wait_for("the files", LIMIT, || {
                fs::metadata(at("x.itg")).is_ok_and(|file| file.len() > 0)
                    && at("x.index.jsonl").is_file()
            });
        }
        let server = if killed {
            server.kill();
            LogServer::listening(&address, store.path(), &[""; 0])
        } else {
            server
        };
        let done = sending.finish(LIMIT).exits(0);
        receiver.stop();
        let said = server.stop();
        let missing = said.err.matches("none missing").count();
        assert_eq!(missing, 2, "{transport} {index_too} {killed}: {said}{done}");
        parts.push(at("x.itg"));
        parts.swap(0, 1);
        assert_eq!(whole(&parts), (2500, 2500), "{transport} {index_too} {killed}: {done}");
    }
}

#[test]
fn of_two_senders_with_one_new_log_the_second_is_refused_before_it_sends() {
    let dir = temp_dir();
    let path = dir.path().join("new.itg");
    // The first one waits for a receiver that does not answer.
    let deaf = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = deaf.local_addr().expect("bound").to_string();
    let first = sender(&[at.as_str(), "--log", text(&path)]);
    wait_for("the file of its log", LIMIT, || names(dir.path()).len() == 1);
    let receiver = Receiver::start(&[""; 0]);
    let to = receiver.at();
    let second = [to.as_str(), "--packets", "5", "--log", text(&path)];
    let done = send(&second).exits(2);
    assert!(done.err.contains("another program is using it"), "{done}");
    // Killed, it leaves a file of no flow, which goes; one with records does not.
    first.signal(Signal::SIGKILL);
    drop(first.finish(LIMIT));
    let kept = dir.path().join("new.itg.new-7-7");
    fs::copy(sent_log(dir.path(), "other", 5), &kept).expect("room");
    drop(send(&second).exits(0));
    receiver.stop();
    assert_eq!(names(dir.path()), ["new.itg", "new.itg.new-7-7", "other"]);
}

#[test]
fn a_server_leaves_alone_what_is_no_experiment_of_its_own() {
    let store = temp_dir();
    let at = |name: &str| store.path().join(name);
    let notes = "1\n2\n{\"mine\": true}\n";
    fs::write(at("i.index.jsonl"), notes).expect("room");
    fs::write(at("n.itg"), "my thesis").expect("room");
    fs::set_permissions(at("n.itg"), fs::Permissions::from_mode(0o644)).expect("ours");
    let server = LogServer::start(store.path(), &[""; 0]);
    let receiver = Receiver::start(&[""; 0]);
    let (to, url) = (receiver.at(), server.url("tcp"));
    for name in ["i", "n"] {
        let args = [to.as_str(), "--packets", "5", "--log-server", &url, "--log-name", name];
        let done = send(&args).exits(3);
        assert!(done.err.contains("is there already and no"), "{done}");
    }
    receiver.stop();
    server.stop();
    assert_eq!(fs::read_to_string(at("i.index.jsonl")).expect("there"), notes);
    assert_eq!(fs::metadata(at("n.itg")).expect("there").permissions().mode() & 0o7777, 0o644);
    assert!(!at("n.index.jsonl").exists());
}

#[test]
fn a_server_that_is_stopped_behind_a_move_knows_what_it_has_stored() {
    let store = temp_dir();
    let at = |name: &str| store.path().join(name);
    let server = LogServer::start(store.path(), &[""; 0]);
    let address = server.address.to_string();
    let receiver = Receiver::start(&["-v"]);
    let url = server.url("tcp");
    let flow = ["--idt", "constant(1ms)", "--packets", "2500", "--log-flush", "50ms"];
    let sending = receiver.begin(&[&flow[..], &["--log-server", &url, "--log-name", "x"]].concat());
    sleep(Duration::from_millis(800));
    fs::rename(at("x.itg"), at("x.itg.1")).expect("there");
    fs::rename(at("x.index.jsonl"), at("x.index.jsonl.1")).expect("there");
    server.stop();
    let server = LogServer::listening(&address, store.path(), &[""; 0]);
    drop(sending.finish(LIMIT).exits(0));
    receiver.stop();
    drop(server.stop().says("none missing"));
    assert_eq!(whole(&[at("x.itg.1"), at("x.itg")]).0, 2500);
}
