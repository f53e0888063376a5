//! Warning of packets that do not go whole: by the MTU of the way there, not by Ethernet's. Needs root.
#![allow(missing_docs, reason = "tests")]

use std::time::Duration;

use itg_tests::{Namespace, Pair, Receiver, Running, not_run, program};
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(60);
const TO: [&str; 2] = ["10.77.0.2", "fd77::2"];

/// Warning of the sender of packets of this size, with the words behind their share.
fn warning(host: &Namespace, to: &str, size: u32, more: &[&str]) -> Option<String> {
    let mut command = host.command(&program("itg-send"));
    command.args([to, "--rate", "100pps", "--packets", "3", "--size", &size.to_string()]);
    let done = Running::start(command.args(more)).finish(LIMIT).exits(0);
    let mut lines = done.err.lines().filter_map(|line| line.strip_prefix("warning: "));
    lines
        .find_map(|line| line.split_once("all of the packets exceed "))
        .map(|(_, rest)| rest.to_owned())
}

#[test]
fn packets_that_must_not_be_cut_are_refused_and_counted() {
    if not_run() {
        return;
    }
    let pair = Pair::new();
    let receiver = Receiver::run(&mut pair.receiver.command(&program("itg-recv")));
    for (to, most) in TO.into_iter().zip([1472, 1452]) {
        for (size, refused, code) in [(most, 0, 0), (most + 1, 20, 1)] {
            let mut command = pair.sender.command(&program("itg-send"));
            let flow = ["--rate", "100pps", "--packets", "20", "--dont-fragment", "--json"];
            command.args([to, "--size", &size.to_string()]).args(flow);
            let done = Running::start(&mut command).finish(LIMIT).exits(code);
            let report: Value = serde_json::from_str(&done.out).expect("one object");
            let account = &report["flows"][0]["account"];
            assert_eq!(account["refused"], refused, "{to} {size}: {account}");
            assert_eq!(account["arrived"], 20 - refused, "{to} {size}: {account}");
            if refused > 0 {
                assert_eq!(account["refused_by"]["EMSGSIZE"], refused, "{account}");
            }
        }
    }
    drop(receiver.stop());
}

#[test]
fn the_warning_of_fragments_goes_by_the_mtu_of_the_way() {
    if not_run() {
        return;
    }
    let pair = Pair::new();
    let receiver = Receiver::run(&mut pair.receiver.command(&program("itg-recv")));
    // UDP's header has 8 bytes, that of IPv4 20, that of IPv6 40.
    for (mtu, most) in [(1500, [1472, 1452]), (9000, [8972, 8952]), (1280, [1252, 1232])] {
        for host in [&pair.sender, &pair.receiver] {
            host.ip(&format!("link set link0 mtu {mtu}"));
        }
        for (to, most) in TO.into_iter().zip(most) {
            assert_eq!(warning(&pair.sender, to, most, &[]), None, "{to} {mtu}");
            let told = warning(&pair.sender, to, most + 1, &[]).expect("a warning");
            let want = format!(
                "{most} bytes: the MTU on the way there is {mtu}, so that they travel in fragments, or not at all"
            );
            assert_eq!(told, want, "{to}");
            // A stream has no packets of its own on the way.
            assert_eq!(
                warning(&pair.sender, to, most + 1, &["--proto", "tcp"]),
                None,
                "{to} {mtu}"
            );
        }
    }
    // A route may allow less than its device.
    pair.sender.ip("route add 10.77.0.2/32 dev link0 mtu 1000");
    let told = warning(&pair.sender, TO[0], 973, &[]).expect("a warning");
    assert!(told.starts_with("972 bytes: the MTU on the way there is 1000, "), "{told}");
    drop(receiver.stop());
}
