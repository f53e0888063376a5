//! Groups of real processes between network namespaces, whose link is cut (M-23). Needs root.
#![allow(missing_docs, reason = "tests")]

use std::time::Duration;

use itg_tests::{Group, Pair, not_run, program};

#[test]
fn m_23_the_smaller_side_of_a_cut_waits_and_comes_in_again() {
    if not_run() {
        return;
    }
    let pair = Pair::new();
    let path = program("itg-cluster");
    // Three on one host (slot 0 is one of them), two on the other.
    let hosts = [&pair.sender, &pair.sender, &pair.sender, &pair.receiver, &pair.receiver];
    let commands = hosts.map(|host| host.command(&path));
    let mut group = Group::start("10.77.0.1", commands.into());
    group.until_view(&[0, 1, 2, 3, 4]);
    pair.receiver.link(false);
    // Longer than it takes to exclude, and than a connection lives that is answered by nobody.
    std::thread::sleep(Duration::from_secs(12));
    let views = group.judge().views;
    assert!(views.changes() >= 1, "the larger side has gone on");
    assert!(group.anybody_said("suspended"), "the smaller side knows that it is alone");
    pair.receiver.link(true);
    // Neighbours are found again, connections are made again.
    group.until_view(&[0, 1, 2, 3, 4]);
    let judged = group.finish();
    assert!(judged.views.changes() >= 2, "they were excluded, and are in again");
}
