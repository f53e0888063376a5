//! Groups of real processes between network namespaces, whose link is cut (M-23). Needs root.
#![allow(missing_docs, reason = "tests")]

use std::fs;
use std::time::{Duration, Instant};

use itg_group::cast::CastEvent;
use itg_group::membership::MembershipEvent;
use itg_process::Event;
use itg_tests::{Group, Pair, Switch, not_run, program};
use nix::sys::signal::Signal;

fn delivers(event: &Event) -> bool {
    matches!(event.decode(), Some(CastEvent::Deliver { .. }))
}

fn is_suspended(event: &Event) -> bool {
    matches!(event.decode(), Some(MembershipEvent::Suspended { .. }))
}

fn is_welcome(event: &Event) -> bool {
    matches!(event.decode(), Some(MembershipEvent::Welcomed { .. }))
}

fn refuses_a_name(event: &Event) -> bool {
    matches!(event.decode(), Some(MembershipEvent::NameTaken { .. }))
}

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
    // Longer than an exclusion takes, and than a connection lasts without an answer.
    std::thread::sleep(Duration::from_secs(12));
    group.until(
        "the larger side goes on, the smaller side knows that it is alone",
        |group, judged| judged.views.changes() >= 1 && group.anybody_said(is_suspended),
    );
    pair.receiver.link(true);
    // Neighbours are found again, connections are made again.
    group.until_view(&[0, 1, 2, 3, 4]);
    let judged = group.finish();
    assert!(judged.views.changes() >= 2, "they were excluded, and are in again");
}

/// Processes P, Q and R on three hosts. P is cut from R alone, dies and comes back through Q, which grants it
/// incarnation 2; R hears of that from Q. Then R is cut off: Q and P order messages. Both die, P comes back to R.
/// Its promises are gone, so R and P together must not order anything. With its first ticket `restored`, P
/// comes once more as incarnation 2, which is in R's view.
fn bridged_partition(restored: bool) {
    if not_run() {
        return;
    }
    let switch = Switch::new(3);
    let path = program("itg-cluster");
    let commands = switch.hosts.iter().map(|host| host.command(&path)).collect();
    // For as long as the test lasts.
    let mut group = Group::with("\"detector\"", "600s", &Switch::address(0), commands);
    let [q, p, r] = [0, 1, 2].map(|host| group.slot_of(host));
    let ticket = group.ticket_of(p);
    let first = fs::read(&ticket).expect("a ticket");
    group.until_said(r, delivers, 5);
    for host in [1, 2] {
        switch.isolate(host, true);
    }
    group.signal(p, Signal::SIGKILL);
    group.come_back_by(p, switch.hosts[1].command(&path));
    group.until_said(p, is_welcome, 1);
    // R installs the view that P is in.
    group.until_view(&[0, 1, 2]);
    switch.link(2, false);
    let before = group.says(q, delivers);
    group.until_said(q, delivers, before + 20);
    group.until_said(p, delivers, 20);
    for slot in [p, q] {
        group.signal(slot, Signal::SIGKILL);
    }
    switch.isolate(1, false);
    switch.isolate(2, false);
    switch.link(2, true);
    if restored {
        fs::write(&ticket, first).expect("written");
    }
    group.come_back_by(p, switch.hosts[1].command(&path));
    if restored {
        group.until_said(r, refuses_a_name, 1);
    }
    // Within this time P asks R three times at least.
    let end = Instant::now() + Duration::from_secs(5);
    while Instant::now() < end {
        drop(group.judge());
        std::thread::sleep(Duration::from_millis(200));
    }
    assert_eq!(group.says(p, is_welcome), 0, "it comes in without those who know what it promised");
}

#[test]
fn an_incarnation_is_not_granted_twice_over_a_bridged_partition() {
    bridged_partition(false);
}

#[test]
fn an_incarnation_that_is_in_the_view_is_not_let_in_again() {
    bridged_partition(true);
}
