//! A log server whose disk is full.

use std::fs;
use std::time::Duration;

use itg_tests::{LogServer, Receiver, Tmpfs, experiments, json, not_run, wait_for};

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
        "--duration",
        "1s",
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
