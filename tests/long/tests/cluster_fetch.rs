//! `itg-cluster fetch`: the report of a run whose console was killed.
#![allow(missing_docs, reason = "tests")]

use std::thread;
use std::time::Duration;

use itg_tests::{Cluster, Output, Running, flow_packets};
use nix::sys::signal::Signal;

const LIMIT: Duration = Duration::from_secs(90);
const FLOWS: &str = "[[flow]]\nfrom = \"a\"\nto = \"c\"\nidt = \"constant(10ms)\"\npackets = 400\n\
     [[flow]]\nfrom = \"b\"\nto = \"a\"\nproto = \"tcp\"\nidt = \"constant(10ms)\"\npackets = 400\n";

/// Fetches a run, or lists all, with the nodes of the experiment file.
fn fetch(cluster: &Cluster, words: &[&str]) -> Output {
    let mut command = cluster.terminal();
    command.arg("fetch").arg("--at").arg(cluster.path("experiment.toml"));
    command.arg("--keys").arg(cluster.path("keys")).args(words);
    Running::start(&mut command).finish(LIMIT)
}

/// Begins a run and kills its console while flows are sent: the run.
fn orphan(cluster: &Cluster) -> String {
    let console = cluster.run(FLOWS, &["--fail-if", "loss > 1%"]);
    cluster.wait_until_it_runs();
    console.signal(Signal::SIGKILL);
    let done = console.finish(LIMIT);
    let run = cluster.status()["run"].as_str().expect("a run").to_owned();
    assert!(done.err.contains(&format!("run {run}")), "{done}");
    run
}

#[test]
fn the_run_of_a_console_that_was_killed_is_fetched_and_reported() {
    let mut cluster = Cluster::new(3);
    let run = orphan(&cluster);
    let out = cluster.path("fetched");
    let out = out.to_str().expect("UTF-8");
    // While flows are sent nothing is cut off, and nothing written.
    let early = fetch(&cluster, &[&run, "--out", out]).exits(1);
    assert!(early.err.contains("its flows are not over"), "{early}");
    assert!(!cluster.path("fetched").exists(), "{early}");
    let listed = fetch(&cluster, &[]).exits(0);
    let row = listed.out.lines().find(|line| line.starts_with(&run)).expect("a row").to_owned();
    assert!(row.contains("open") && row.ends_with("     3  test"), "{listed}");
    thread::sleep(Duration::from_secs(5));
    drop(fetch(&cluster, &[&run, "--out", out]).exits(0));
    for (flow, side) in [(1, "sender"), (1, "receiver"), (2, "sender"), (2, "receiver")] {
        let report = cluster.report_in("fetched");
        assert_eq!(flow_packets(&report, flow, side), 400, "flow {flow}, {side}");
    }
    let mut verify = cluster.terminal();
    drop(Running::start(verify.args(["verify", out])).finish(LIMIT).exits(0));
    let listed = fetch(&cluster, &[]).exits(0);
    assert!(listed.out.contains("closed"), "{listed}");
    // Again, into another directory, with gates of its own, and without one of the agents.
    cluster.agents[1] = None;
    let second = cluster.path("second");
    let second = second.to_str().expect("UTF-8");
    let args = [&run, "--out", second, "--fail-if", "packets > 10"];
    let done = fetch(&cluster, &args).exits(4);
    assert!(done.err.contains("logs of node b: "), "{done}");
    let report = cluster.report_in("second");
    assert_eq!(flow_packets(&report, 1, "receiver"), 400);
    drop(fetch(&cluster, &[&run, "--out", second]).exits(2));
    let unknown = "0".repeat(32);
    let done = fetch(&cluster, &[&unknown]).exits(3);
    assert!(done.err.contains("without a run lists"), "{done}");
}
