//! Consoles that stand still, are cut off, or are gone, while agents carry out their run.
#![allow(missing_docs, reason = "tests")]

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use itg_tests::{Cluster, flow_packets, leave_out, not_run};
use nix::sys::signal::Signal;

const LIMIT: Duration = Duration::from_secs(150);
const FLOWS: &str = "[[flow]]\nfrom = \"a\"\nto = \"c\"\nidt = \"constant(20ms)\"\nduration = \"12s\"\n\
     [[flow]]\nfrom = \"b\"\nto = \"c\"\nidt = \"constant(20ms)\"\nduration = \"12s\"\n";
const PACKETS: u64 = 600;

#[track_caller]
fn all_came(cluster: &Cluster, said: &str) {
    let report = cluster.report();
    for flow in 1..=2 {
        assert_eq!(flow_packets(&report, flow, "receiver"), PACKETS, "flow {flow}: {said}");
    }
}

/// A laptop sleeps, a terminal is held (Ctrl-Z): the run goes on, and the console reports it when it is back.
#[test]
fn a_console_that_stood_still_reports_the_whole_run() {
    itg_tests::in_parallel(
        &[("2 s", 2), ("5 s", 5), ("8 s", 8), ("beyond the end", 25)],
        |seconds| {
            let cluster = Cluster::new(3);
            let run = cluster.run(FLOWS, &[]);
            cluster.wait_until_it_runs();
            run.signal(Signal::SIGSTOP);
            thread::sleep(Duration::from_secs(*seconds));
            run.signal(Signal::SIGCONT);
            let done = run.finish(LIMIT).exits(0);
            all_came(&cluster, &done.to_string());
        },
    );
}

/// The console's network is cut for 8 s, both ways, or so that it sends and does not hear; or until the run is over, and
/// no agent is a member of it any more.
#[test]
fn a_console_that_was_cut_off_reports_the_whole_run() {
    let nft = Path::new("/usr/sbin/nft");
    if not_run() {
        return;
    }
    if !nft.exists() {
        return leave_out("nft");
    }
    itg_tests::in_parallel(
        &[("both ways", (true, 8)), ("does not hear", (false, 8)), ("beyond the end", (true, 18))],
        |(both, seconds)| {
            let cluster = Cluster::apart(3);
            let middle = &cluster.switch.as_ref().expect("hosts").middle;
            let run = cluster.run(FLOWS, &[]);
            cluster.wait_until_it_runs();
            let mut rules = vec![
                "add table inet a",
                "add chain inet a in { type filter hook input priority 0; policy drop; }",
            ];
            if *both {
                rules.push(
                    "add chain inet a out { type filter hook output priority 0; policy drop; }",
                );
            }
            let say = |rule: &str| {
                let done = middle.command(nft).args(rule.split(' ')).status();
                assert!(done.is_ok_and(|status| status.success()), "{rule}");
            };
            rules.into_iter().for_each(say);
            thread::sleep(Duration::from_secs(*seconds));
            say("delete table inet a");
            let joined = Instant::now();
            let done = run.finish(LIMIT).exits(0);
            // It was 40 s behind the plan.
            assert!(joined.elapsed() < Duration::from_secs(18), "{:?}: {done}", joined.elapsed());
            all_came(&cluster, &done.to_string());
        },
    );
}
