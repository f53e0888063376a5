//! Waits of a run over agents have an end: flows that nobody sends, workers that stand still.
#![allow(missing_docs, reason = "tests")]

use std::thread;
use std::time::{Duration, Instant};

use itg_tests::{Cluster, children, flow_packets, wait_for};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const LIMIT: Duration = Duration::from_secs(90);

/// A flow whose node is gone, and that no other one may send, is waited for until the plan is over by a lease and 30 s.
#[test]
fn a_flow_that_nobody_sends_is_given_up_after_its_plan() {
    let mut cluster = Cluster::new(3);
    let flows = "[[flow]]\nfrom = \"a\"\nto = \"c\"\nidt = \"constant(10ms)\"\nduration = \"4s\"\n\
         [[flow]]\nfrom = \"b\"\nto = \"c\"\nidt = \"constant(10ms)\"\nduration = \"4s\"\n";
    let run = cluster.run(flows, &["--failover", "wait", "--lease", "1s"]);
    cluster.wait_until_it_runs();
    let began = Instant::now();
    cluster.agents[1] = None;
    let done = run.finish(LIMIT).exits(4);
    let took = began.elapsed();
    assert!((Duration::from_secs(30)..Duration::from_secs(60)).contains(&took), "{took:?}: {done}");
    assert!(
        done.err.contains("flows 2: not over 10 s after their plan; nobody is to send"),
        "{done}"
    );
    assert!(done.err.contains("flows that are not over are given up"), "{done}");
    assert_eq!(flow_packets(&cluster.report(), 1, "receiver"), 400, "{done}");
}

/// What one of four members knows is not told as if it were so.
#[test]
fn the_status_of_a_node_that_is_cut_off_says_so() {
    let mut cluster = Cluster::new(3);
    let flows =
        "[[flow]]\nfrom = \"a\"\nto = \"c\"\nidt = \"constant(10ms)\"\nduration = \"60s\"\n";
    let run = cluster.run(flows, &["--lease", "1s"]);
    cluster.wait_until_it_runs();
    assert_eq!(cluster.status()["cut_off"], false);
    (cluster.agents[1], cluster.agents[2]) = (None, None);
    let words = "too few nodes to agree on anything";
    wait_for(words, LIMIT, || cluster.ask(&["status"]).exits(0).out.contains(words));
    assert_eq!(cluster.status()["cut_off"], true);
    run.signal(Signal::SIGKILL);
    drop(run.finish(LIMIT));
}

#[test]
fn a_worker_that_stands_still_is_replaced() {
    let cluster = Cluster::new(2);
    let flows =
        "[[flow]]\nfrom = \"a\"\nto = \"b\"\nidt = \"constant(10ms)\"\nduration = \"12s\"\n";
    let run = cluster.run(flows, &["--lease", "1s"]);
    cluster.wait_until_it_runs();
    thread::sleep(Duration::from_secs(1));
    let agent = cluster.agents[0].as_ref().expect("it runs").pid();
    let workers = children(agent);
    assert!(!workers.is_empty(), "the flow has a worker");
    for worker in &workers {
        kill(Pid::from_raw(worker.cast_signed()), Signal::SIGSTOP).expect("ours");
    }
    let done = run.finish(LIMIT).exits(4);
    let got = flow_packets(&cluster.report(), 1, "receiver");
    assert!((400..900).contains(&got), "{got} of 1200: some six seconds are missing: {done}");
    for worker in workers {
        assert!(kill(Pid::from_raw(worker.cast_signed()), None).is_err(), "it is gone");
    }
}

#[test]
fn a_node_that_is_started_again_and_again_gives_its_flows_away() {
    let mut cluster = Cluster::new(3);
    let flows = "[[flow]]\nfrom = \"a\"\nto = \"c\"\nidt = \"constant(10ms)\"\nduration = \"16s\"\n\
         [[flow]]\nfrom = \"b\"\nto = \"c\"\nidt = \"constant(10ms)\"\nduration = \"16s\"\n";
    let run = cluster.run(flows, &["--lease", "2s"]);
    cluster.wait_until_it_runs();
    for _ in 0..7 {
        thread::sleep(Duration::from_millis(700));
        cluster.agents[1] = None;
        cluster.start(1, &[]);
    }
    let done = run.finish(LIMIT).exits(4);
    assert!(done.err.contains("flow 2 is handed to "), "{done}");
    let got = flow_packets(&cluster.report(), 2, "receiver");
    assert!(got > 900, "{got} of 1600: {done}");
    assert_eq!(flow_packets(&cluster.report(), 1, "receiver"), 1600, "{done}");
}

/// The first signal has flows stopped and names the command that makes the report, the second one ends the program; a node
/// that stands still holds nobody up for long.
#[test]
fn signals_work_while_nodes_stand_still() {
    let flow = "[[flow]]\nfrom = \"a\"\nto = \"b\"\nidt = \"constant(10ms)\"\nduration = \"60s\"\n";
    let rows =
        [("one", (&[2][..], false)), ("all", (&[0, 1, 2], false)), ("twice", (&[0, 1], true))];
    itg_tests::in_parallel(&rows, |(nodes, twice)| {
        let cluster = Cluster::new(3);
        let run = cluster.run(flow, &[]);
        cluster.wait_until_it_runs();
        thread::sleep(Duration::from_secs(2));
        for node in *nodes {
            cluster.agents[*node].as_ref().expect("it runs").signal(Signal::SIGSTOP);
        }
        let asked = Instant::now();
        run.signal(Signal::SIGINT);
        drop(run.line_with("itg-cluster fetch ", Duration::from_secs(2)));
        if *twice {
            run.signal(Signal::SIGINT);
        }
        let done = run.finish(LIMIT);
        let took = asked.elapsed();
        let limit = if *twice { 2 } else { 20 };
        assert!(took < Duration::from_secs(limit), "{took:?}: {done}");
        match nodes.len() {
            1 => assert!(flow_packets(&cluster.report(), 1, "receiver") > 0, "{done}"),
            // Nothing was fetched, and the command is named last.
            _ => assert!(!cluster.path("out/report.json").exists(), "{done}"),
        }
        let code = if nodes.len() == 3 { 4 } else { 130 };
        assert_eq!(done.code, Some(code), "{done}");
    });
}
