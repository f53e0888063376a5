//! Flows on request across a link whose asking side lets nothing in and translates ports. Needs root, and nft.
#![allow(missing_docs, reason = "tests")]

use std::path::Path;
use std::time::Duration;

use itg_tests::{Namespace, Pair, Receiver, Running, leave_out, not_run, program};
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(90);
const NFT: &str = "/usr/sbin/nft";

/// A host that lets in nothing but answers, and gives what leaves it other ports; false where the kernel has no such
/// rules.
fn shut(host: &Namespace) -> bool {
    [
        "add table inet shut",
        "add chain inet shut in { type filter hook input priority 0; policy drop; }",
        "add rule inet shut in ct state established,related accept",
        "add rule inet shut in meta l4proto ipv6-icmp accept",
        "add rule inet shut in iif lo accept",
        "add chain inet shut out { type nat hook postrouting priority 100; }",
        "add rule inet shut out oif != lo masquerade random",
    ]
    .iter()
    .all(|rule| {
        let done = host.command(Path::new(NFT)).args(rule.split(' ')).output().expect("it starts");
        done.status.success() || {
            leave_out(&format!("nft {rule}: {}", String::from_utf8_lossy(&done.stderr).trim_end()));
            false
        }
    })
}

#[test]
fn flows_come_back_through_a_translator_that_lets_nothing_in() {
    if not_run() {
        return;
    }
    if !Path::new(NFT).exists() {
        return leave_out(NFT);
    }
    let pair = Pair::new();
    if !shut(&pair.sender) {
        return;
    }
    let receiver =
        Receiver::run(pair.receiver.command(&program("itg-recv")).args(["-v", "--allow-reverse"]));
    for address in ["10.77.0.2", "fd77::2"] {
        for way in [
            &["--reverse", "--flows", "3"][..],
            &["--reverse", "--proto", "tcp"],
            &["--bidir"],
            &["--bidir", "--proto", "tcp"],
        ] {
            let flow = ["--rate", "500pps", "--size", "400", "--packets", "200", "--json"];
            let mut command = pair.sender.command(&program("itg-send"));
            command.arg(address).args(way).args(flow);
            let done = Running::start(&mut command).finish(LIMIT).exits(0);
            let report: Value = serde_json::from_str(&done.out).expect("one object");
            for flow in report["flows"].as_array().expect("a list") {
                let (packets, lost) = (&flow["packets"], &flow["lost"]);
                assert_eq!((packets, lost), (&200.into(), &0.into()), "{address} {way:?}: {flow}");
            }
        }
    }
    drop(receiver.stop());
}
