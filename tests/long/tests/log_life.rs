//! A receiver and its log through a hard life: started again, rotated, killed, its disk full. Every record that was said
//! to be stored is read; the rest is counted.
#![allow(missing_docs, reason = "tests")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use itg_tests::{
    LogServer, Output, Receiver, Running, Tmpfs, accounts, decode, experiments, json, not_run,
    packets, program, send, sender, stored, temp_dir, wait_for,
};
use nix::sys::signal::Signal;

const LIMIT: Duration = Duration::from_secs(90);
const TIMES: usize = 20;

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// Records that the words say were stored in the log of this name, the latest ones.
#[track_caller]
fn told(done: &Output, log: &Path) -> u64 {
    let begin = format!("log {}", log.display());
    let line = done.err.lines().rev().find(|line| line.starts_with(&begin));
    let line = line.unwrap_or_else(|| panic!("no account of the log: {done}"));
    let (_, rest) = line.rsplit_once(": ").expect("a count");
    rest.split(' ').next().and_then(|count| count.parse().ok()).expect("a number")
}

/// Names of the parts of a log, the one in use last.
fn parts(path: &Path) -> Vec<PathBuf> {
    let dir = path.parent().expect("a directory");
    let mut files: Vec<PathBuf> =
        fs::read_dir(dir).expect("there").map(|entry| entry.expect("readable").path()).collect();
    files.retain(|file| text(file).starts_with(text(path)));
    files.sort();
    files
}

#[test]
fn a_receiver_that_is_started_twenty_times_keeps_all() {
    let dir = temp_dir();
    let path = dir.path().join("r.itg");
    let mut want = 0;
    for _ in 0..TIMES {
        let receiver = Receiver::start(&["--log", text(&path)]);
        let at = receiver.at();
        drop(send(&[at.as_str(), "--packets", "500", "--idt", "constant(50us)"]).exits(0));
        want += told(&receiver.stop(), &path);
    }
    assert_eq!((want, stored(&[&path]).1), (500 * TIMES as u64, want));
    assert_eq!(json(&[&path])["damage"].as_array().map(Vec::len), Some(0));
}

#[test]
fn a_log_that_is_moved_away_twenty_times_under_load_keeps_all() {
    let dir = temp_dir();
    let path = dir.path().join("r.itg");
    let receiver = Receiver::start(&["-v", "--log", text(&path), "--log-flush", "20ms"]);
    let flow = ["--duration", "6s", "--rate", "20kpps", "--size", "64"];
    let sending = receiver.begin(&flow);
    for number in 1..=TIMES {
        sleep(Duration::from_millis(200));
        fs::rename(&path, dir.path().join(format!("r.itg.{number}"))).expect("there");
        receiver.running.signal(Signal::SIGHUP);
        wait_for("the log", LIMIT, || fs::metadata(&path).is_ok_and(|file| file.len() > 0));
    }
    let done = sending.finish(LIMIT).exits(0);
    let sent = accounts(&done.out)[0].sent;
    let said = told(&receiver.stop(), &path);
    let files = parts(&path);
    assert_eq!(files.len(), TIMES + 1);
    assert_eq!((said, stored(&files).1), (sent, sent), "{done}");
    let report = json(&files);
    assert_eq!(report["damage"].as_array().map(Vec::len), Some(0), "{report}");
    assert_eq!(report["flows"][0]["lost"], 0, "{report}");
}

#[test]
fn a_receiver_that_is_killed_twenty_times_loses_nothing_that_it_has_told() {
    let dir = temp_dir();
    let path = dir.path().join("r.itg");
    let mut want = 0;
    for _ in 0..TIMES {
        let receiver = Receiver::start(&["-v", "--log", text(&path), "--log-flush", "1ms"]);
        let at = receiver.at();
        // One sender has left and was told what is stored; of another one packets come.
        let done = send(&[at.as_str(), "--packets", "300", "--idt", "constant(50us)"]).exits(0);
        want += told(&done, &path);
        let flooding = sender(&[at.as_str(), "--duration", "60s", "--rate", "20kpps"]);
        sleep(Duration::from_millis(300));
        receiver.running.signal(Signal::SIGKILL);
        drop(receiver.running.finish(LIMIT));
        flooding.signal(Signal::SIGKILL);
        drop(flooding.finish(LIMIT));
    }
    assert_eq!(want, 300 * TIMES as u64);
    let all = packets(&[&path]);
    let mut whole = 0;
    let mut runs: Vec<&str> = all.iter().map(|packet| packet.run.as_str()).collect();
    runs.dedup();
    for run in runs {
        whole += u64::from(all.iter().filter(|packet| packet.run == run).count() == 300) * 300;
    }
    assert!(whole >= want, "{whole} of {want} records that were said to be stored");
    let report = json(&[&path]);
    assert_eq!(report["damage"].as_array().map(Vec::len), Some(0), "{}", report["damage"]);
}

#[test]
fn a_disk_that_is_full_twice_costs_what_is_counted_and_no_more() {
    if not_run() {
        return;
    }
    let disk = Tmpfs::mount("4M");
    let (path, filler) = (disk.join("r.itg"), disk.join("filler"));
    let receiver = Receiver::start(&["-v", "--log", text(&path), "--log-flush", "20ms"]);
    let sending = receiver.begin(&["--duration", "6s", "--rate", "5kpps", "--size", "64"]);
    let complaints = |words: &str| receiver.running.err().matches(words).count();
    for time in 1..=2 {
        sleep(Duration::from_millis(500));
        // All that is left.
        let _until_full = fs::write(&filler, vec![0; 4 << 20]);
        wait_for("a complaint", LIMIT, || complaints("No space left") >= time);
        sleep(Duration::from_millis(500));
        fs::remove_file(&filler).expect("removable");
        wait_for("the log to go on", LIMIT, || complaints("it is written again") >= time);
    }
    let done = sending.finish(LIMIT);
    let arrived = accounts(&done.out)[0].received.expect("told");
    receiver.running.signal(Signal::SIGTERM);
    let ended = receiver.running.finish(LIMIT).exits(1);
    let stored_there = told(&ended, &path);
    let (_, rest) = ended
        .err
        .rsplit_once(" records lost)")
        .map_or(("", ""), |(before, _)| before.rsplit_once('(').expect("a count"));
    let lost: u64 = rest.parse().expect("a number");
    assert!(lost > 1000, "{ended}");
    assert_eq!((stored_there + lost, stored(&[&path]).1), (arrived, stored_there), "{ended}");
    // The reader is told which blocks are not there, and calls nothing lost that arrived.
    let decoded = decode(&[text(&path), "--format", "json"]).exits(1);
    let report: serde_json::Value = serde_json::from_str(&decoded.out).expect("JSON");
    assert!(report["damage"].to_string().contains("missing"), "{report}");
    assert_eq!(report["flows"][0]["lost"], 0, "{report}");
    assert!(
        report["notices"].to_string().contains(&format!("{lost} records could not be written")),
        "{report}"
    );
}

#[test]
fn what_lies_in_a_spool_is_not_called_lost_and_the_words_say_how_to_send_it() {
    let dir = temp_dir();
    let (store, spool) = (dir.path().join("store"), dir.path().join("spool"));
    fs::create_dir(&store).expect("room");
    let server = LogServer::start(&store, &[""; 0]);
    let address = server.address.to_string();
    let receiver = Receiver::start(&["-v"]);
    let url = server.url("tcp");
    let log = ["--log-server", &url, "--log-spool", text(&spool), "--log-name", "x"];
    let flow = ["--packets", "2500", "--idt", "constant(1ms)", "--log-flush", "50ms"];
    let sending = receiver.begin(&[&flow[..], &log].concat());
    sleep(Duration::from_millis(500));
    server.kill();
    let done = sending.finish(Duration::from_secs(120)).exits(1);
    receiver.stop();
    assert!(done.err.contains("(0 records lost)"), "{done}");
    let (_, command) = done.err.split_once("send it with `").expect("advice");
    let (command, _) = command.split_once('`').expect("a command");
    let words: Vec<&str> = command.split(' ').collect();
    assert_eq!(words[..2], ["itg-log", "forward"], "{command}");
    let server = LogServer::listening(&address, &store, &[""; 0]);
    drop(Running::start(Command::new(program("itg-log")).args(&words[1..])).finish(LIMIT).exits(0));
    server.stop();
    assert_eq!(stored(&experiments(&store)).0, 2500);
}
