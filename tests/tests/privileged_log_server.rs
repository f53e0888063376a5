//! A log server whose disk is full, and one behind a link that goes down.

use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use itg_tests::{
    LogServer, Output, Pair, Receiver, Running, Tmpfs, accounts, experiments, json, not_run,
    program, stored, temp_dir, wait_for,
};
use tempfile::TempDir;

const LIMIT: Duration = Duration::from_secs(60);

#[test]
fn l_5_a_full_disk_makes_producers_wait_and_loses_nothing() {
    if not_run() {
        return;
    }
    let disk = Tmpfs::mount("2M");
    let store = disk.join("store");
    fs::create_dir(&store).expect("room for a directory");
    let filler = disk.join("filler");
    fs::write(&filler, vec![0; 1_700_000]).expect("room");
    let server = LogServer::start(&store, &[""; 0]);
    let url = server.url("tcp");
    let receiver = Receiver::start(&["-v"]);
    let sender = receiver.begin(&[
        "--idt",
        "constant(50us)",
        "--size",
        "64",
        "--packets",
        "20000",
        "--log-server",
        &url,
    ]);
    wait_for("the server to complain", LIMIT, || server.running.err().contains("No space left"));
    fs::remove_file(&filler).expect("removable");
    sender.finish(LIMIT).exits(0);
    receiver.stop();
    let said = server.stop();
    assert!(said.err.contains("the disk has space again"), "{said}");
    let report = json(&experiments(&store));
    assert_eq!(report["flows"][0]["packets"], 20_000);
    assert_eq!(report["damage"].as_array().map(Vec::len), Some(0), "{report}");
}

#[test]
fn a_server_that_is_stopped_on_a_full_disk_says_what_is_in_the_file() {
    if not_run() {
        return;
    }
    let disk = Tmpfs::mount("1M");
    let store = disk.join("store");
    fs::create_dir(&store).expect("room for a directory");
    let server = LogServer::start(&store, &[""; 0]);
    let receiver = Receiver::start(&["-v"]);
    let url = server.url("tcp");
    let flow = ["--idt", "constant(20us)", "--size", "64", "--packets", "40000"];
    let sender = receiver.begin(&[&flow[..], &["--log-server", &url]].concat());
    wait_for("the server to complain", LIMIT, || server.running.err().contains("No space left"));
    thread::sleep(Duration::from_millis(500));
    let said = server.stop();
    // It would wait for the server.
    sender.signal(nix::sys::signal::Signal::SIGKILL);
    drop(sender.finish(LIMIT));
    receiver.stop();
    let (there, _) = stored(&experiments(&store));
    assert!(said.err.contains(&format!("stored {there} records")), "{there} are there: {said}");
    assert!(!said.err.contains("has space again"), "{said}");
    assert!(said.err.contains("are not stored"), "{said}");
}

/// Sends for three seconds from one host to itself, with the log on the other one; the link goes down
/// in between, twice.
fn over_a_link_that_goes_down(transport: &str) -> (Output, u64, Vec<PathBuf>, TempDir) {
    let pair = Pair::new();
    let store = temp_dir();
    let mut command = pair.receiver.command(&program("itg-log"));
    command.args(["--listen", "10.77.0.2:9003", "--dir"]).arg(store.path());
    let server = LogServer::run(&mut command);
    let mut receiving = pair.sender.command(&program("itg-recv"));
    let receiver = Receiver::run(receiving.args(["-v", "--listen", "127.0.0.1"]));
    let url = format!("{transport}://10.77.0.2");
    let flow = ["127.0.0.1", "--idt", "constant(500us)", "--size", "64", "--packets", "6000"];
    let mut sending = pair.sender.command(&program("itg-send"));
    let sender = Running::start(sending.args(flow).args(["-v", "--log-server", &url]));
    drop(receiver.running.line_with(" flows", LIMIT));
    for _ in 0..2 {
        thread::sleep(Duration::from_millis(500));
        pair.sender.ip("link set link0 down");
        thread::sleep(Duration::from_millis(500));
        pair.sender.ip("link set link0 up");
    }
    let done = sender.finish(LIMIT);
    assert!(accounts(&done.out)[0].agreed, "the packets are none the worse: {done}");
    assert_eq!(accounts(&done.out)[0].sent, 6000, "{done}");
    receiver.stop();
    server.stop();
    let files = experiments(store.path());
    let (there, _) = stored(&files);
    (done, there, files, store)
}

#[test]
fn l_4_a_link_that_goes_down_and_up_again_costs_nothing_over_tcp() {
    if not_run() {
        return;
    }
    let (done, there, files, _store) = over_a_link_that_goes_down("tcp");
    assert_eq!(there, 6000, "{done}");
    let report = json(&files);
    assert_eq!(report["damage"].as_array().map(Vec::len), Some(0), "{report}");
    done.exits(0);
}

#[test]
fn l_4_what_a_link_that_goes_down_costs_over_udp_is_accounted() {
    if not_run() {
        return;
    }
    let (done, there, _, _store) = over_a_link_that_goes_down("udp");
    if there < 6000 {
        let words = format!("{there} of 6000 records stored, {} missing", 6000 - there);
        done.exits(1).says(&words);
    } else {
        done.exits(0);
    }
}
