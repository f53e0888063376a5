//! Agents on this host, as a user has them on several: `itg-cluster agent`, `run`, `status`, `ctl`.
#![allow(missing_docs, reason = "tests")]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::thread;
use std::time::Duration;

use itg_tests::{Cluster, Running, cluster_keys, cluster_program, flow_packets, wait_for};

const LIMIT: Duration = Duration::from_secs(90);

const FLOWS: &str = "[[flow]]\nfrom = \"a\"\nto = \"b\"\nidt = \"constant(10ms)\"\npackets = 200\n\
     [[flow]]\nfrom = \"b\"\nto = \"c\"\nproto = \"tcp\"\nidt = \"exp(5ms)\"\npackets = 300\n\
     [[flow]]\nfrom = \"c\"\nto = \"a\"\nidt = \"constant(20ms)\"\npackets = 100\n";

#[test]
fn three_agents_send_to_each_other_and_one_report_comes_out() {
    let cluster = Cluster::new(3);
    let done = cluster.run(FLOWS, &[]).finish(LIMIT).exits(0);
    assert!(done.out.contains("node a: first packets of 1 flows"), "{done}");
    let report = cluster.report();
    for (flow, want) in [(1, 200), (2, 300), (3, 100)] {
        for side in ["sender", "receiver"] {
            assert_eq!(flow_packets(&report, flow, side), want, "flow {flow}, {side}: {done}");
        }
    }
    // The same agents take the next experiment.
    fs::remove_dir_all(cluster.path("out")).expect("removed");
    drop(cluster.run(FLOWS, &[]).finish(LIMIT).exits(0));
    assert_eq!(flow_packets(&cluster.report(), 1, "receiver"), 200);
}

const LONG: &str = "[[flow]]\nfrom = \"a\"\nto = \"c\"\nidt = \"constant(10ms)\"\nduration = \"12s\"\n\
     [[flow]]\nfrom = \"b\"\nto = \"c\"\nidt = \"constant(10ms)\"\nduration = \"12s\"\n";

/// C-2: the agent that sends a flow is killed; another one sends it on, with one interruption.
#[test]
fn c_2_the_flows_of_an_agent_that_is_killed_go_on_elsewhere() {
    let mut cluster = Cluster::new(3);
    let run = cluster.run(LONG, &["--lease", "1s"]);
    cluster.wait_until_it_runs();
    thread::sleep(Duration::from_secs(1));
    // The agent that answers questions stays.
    drop(cluster.agents[1].take());
    let done = run.finish(LIMIT).exits(4);
    assert!(done.err.contains("flows 2: from b to"), "{done}");
    let report = cluster.report();
    // An agent that stands still for longer than its lease leaves out what was due meanwhile.
    assert!(!done.err.contains("flows 1: from"), "flow 1 stays where it is: {done}");
    let first = flow_packets(&report, 1, "receiver");
    assert!((1000..=1200).contains(&first), "{first} of 1200: {done}");
    let got = flow_packets(&report, 2, "receiver");
    assert!(got > 300 && got < 1200, "{got} of 1200: {done}");
}

/// Commands from a terminal, by way of any agent; another user's experiment is not disturbed.
#[test]
fn flows_are_stopped_and_moved_from_any_terminal() {
    let cluster = Cluster::new(3);
    let flows = LONG.replace("12s", "120s").replacen("[[flow]]", "[[flow]]\nname = 'call'", 1);
    let run = cluster.run(&flows, &[]);
    cluster.wait_until_it_runs();
    let owned_by = |node: &str| {
        let words = format!("2         running   {node} ");
        wait_for(&words, LIMIT, || cluster.ask(&["status"]).exits(0).out.contains(&words));
        // So that this owner sends some packets.
        thread::sleep(Duration::from_secs(2));
    };
    let second = cluster.run_into("second", &flows, &[]).finish(LIMIT).exits(3);
    assert!(second.err.contains("takes part in another run"), "{second}");
    drop(cluster.ask(&["ctl", "2", "move", "a"]).exits(0));
    drop(cluster.ask(&["ctl", "9", "stop"]).exits(1));
    drop(cluster.ask(&["ctl", "2", "move", "nowhere"]).exits(2));
    let status = cluster.status();
    assert_eq!((&status["schema"], &status["name"].is_string()), (&1.into(), &true), "{status}");
    let name = status["flows"][0]["name"].as_str().expect("a name").to_owned();
    let wrong = cluster.ask(&["ctl", &format!("{name}x"), "stop"]).exits(2);
    assert!(wrong.err.contains(&format!("did you mean `{name}`?")), "{wrong}");
    let fast = cluster.ask(&["ctl", &name, "rate", "x1.5"]).exits(0);
    assert!(fast.err.contains("done: entry "), "{fast}");
    wait_for("the new rate", LIMIT, || cluster.status()["flows"][0]["rate_times"] == 1.5);
    owned_by("a");
    // Once more, while it runs.
    drop(cluster.ask(&["ctl", "2", "move", "b"]).exits(0));
    owned_by("b");
    drop(cluster.ask(&["ctl", "all", "stop"]).exits(0));
    let done = run.finish(LIMIT).exits(0);
    assert!(done.err.contains("all flows are stopped"), "{done}");
    let report = cluster.report();
    let got = flow_packets(&report, 1, "receiver");
    assert!(got > 50 && got < 12_000, "{got}: {done}");
    assert_eq!(flow_packets(&report, 1, "sender"), got, "{done}");
    // What both owners of the other flow sent is one account.
    let flows = report["flows"].as_array().expect("flows");
    for entry in flows.iter().filter(|entry| entry["flow"] == 2) {
        let got = entry["packets"].as_u64().expect("a count");
        assert_eq!((&entry["sent_packets"], &entry["lost"]), (&got.into(), &0.into()), "{entry:#}");
        assert_eq!(entry["excess_packets"], 0, "{entry:#}");
        // The reason of each of them.
        assert!(entry["end"].as_str().is_some_and(|end| end.contains("; ")), "{entry:#}");
    }
    assert_eq!(report["errors"].as_array().map(Vec::len), Some(0), "{report:#}");
    // What node a sent while the flow was there is no absence of node b.
    assert!(!report.to_string().contains("are not there"), "{report:#}");
}

#[test]
fn who_does_not_belong_is_told_so() {
    let mut cluster = Cluster::new(2);
    let strange = cluster.path("strange");
    cluster_keys(&strange, "365");
    let expired = cluster.path("expired");
    cluster_keys(&expired, "0");
    let at = cluster.address(0);
    for (dir, code, want) in
        [(&strange, 3, "keys of another cluster"), (&expired, 2, "the keys have expired")]
    {
        let mut ask = cluster_program();
        ask.args(["status", "--at", &at]).arg("--keys").arg(dir);
        let done = Running::start(&mut ask).finish(LIMIT).exits(code);
        assert!(done.err.contains(want), "{done}");
    }
    // The missing nodes are named, with the step.
    drop(cluster.agents[1].take());
    let done = cluster.run(FLOWS.split("[[flow]]\nfrom = \"b\"").next().expect("one"), &[]);
    let done = done.finish(LIMIT).exits(3);
    assert!(done.err.contains("node b (127.0.0.1:") && done.err.contains("connecting:"), "{done}");
}

#[test]
fn an_agent_refuses_what_its_policy_does_not_allow() {
    let mut cluster = Cluster::new(2);
    drop(cluster.agents[1].take());
    let policy = cluster.path("policy.toml");
    fs::write(&policy, "max_duration = \"1s\"").expect("written");
    cluster.start(1, &["--policy", policy.to_str().expect("UTF-8")]);
    let flow = "[[flow]]\nfrom = \"a\"\nto = \"b\"\nduration = \"2s\"\n";
    let done = cluster.run(flow, &[]).finish(LIMIT).exits(3);
    assert!(done.err.contains("node b: policy: flow 1: longer than 1s"), "{done}");
}

/// A policy is no weaker for a flow that runs already.
#[test]
fn a_rate_is_not_changed_beyond_the_policy() {
    let mut cluster = Cluster::new(2);
    drop(cluster.agents[0].take());
    let policy = cluster.path("policy.toml");
    fs::write(&policy, "max_rate = \"120pps\"").expect("written");
    cluster.start(0, &["--policy", policy.to_str().expect("UTF-8")]);
    let flow = "[[flow]]\nfrom = \"a\"\nto = \"b\"\nidt = \"constant(10ms)\"\nduration = \"20s\"\n";
    let run = cluster.run(flow, &["--lease", "1s"]);
    cluster.wait_until_it_runs();
    drop(cluster.ask_of(1, &["ctl", "1", "rate", "x2"]).exits(0));
    let done = run.finish(LIMIT).exits(4);
    assert!(
        done.err.contains("flow 1 was given up by a: the policy does not allow its new rate"),
        "{done}"
    );
    let got = flow_packets(&cluster.report(), 1, "receiver");
    assert!(got < 2000, "{got}: {done}");
}

/// An agent samples when packets leave its host and holds against them what doctor promised, as itg-send does.
#[test]
fn an_agent_stamps_departures_and_knows_a_promise_where_it_is_told_to() {
    let mut cluster = Cluster::new(2);
    drop(cluster.agents[0].take());
    let host = fs::read_to_string("/proc/sys/kernel/hostname").expect("a name");
    let host = host.trim();
    let promise = cluster.path("host.json");
    let text = format!(
        r#"{{"schema": 1, "host": {{"host": "{host}", "boot_id": ""}}, "pacing": "hybrid",
            "promise": {{"precision": [{{"rate_pps": 1000, "late_p99_ns": 1234567}}]}}}}"#
    );
    fs::write(&promise, text).expect("written");
    cluster.start(0, &["--tx-stamps", "4", "--promise", promise.to_str().expect("UTF-8")]);
    let flow = "[[flow]]\nfrom = \"a\"\nto = \"b\"\nidt = \"constant(5ms)\"\npackets = 200\n\
         [[flow]]\nfrom = \"b\"\nto = \"a\"\nidt = \"constant(5ms)\"\npackets = 200\n";
    let done = cluster.run(flow, &[]).finish(LIMIT).exits(0);
    let report = cluster.report();
    let flows = report["flows"].as_array().expect("flows").iter();
    let stamped = flows.filter(|flow| flow["departures"]["every"] == 4);
    let stamped: Vec<_> =
        stamped.map(|flow| (&flow["flow"], &flow["departures"]["asked"])).collect();
    assert!(
        !stamped.is_empty() && stamped.iter().all(|of| *of == (&1.into(), &50.into())),
        "{stamped:?}: {done}"
    );
    let promises: Vec<_> = report["promises"]
        .as_array()
        .expect("promises")
        .iter()
        .map(|p| p["promised_p99_ns"].clone())
        .collect();
    assert_eq!(promises, [1_234_567], "{done}");
}

/// C-1: 32 agents begin together. What is measured is printed, `itg-bench cluster` judges it; the bound is for a
/// machine that has other work, and tells one common start from many.
#[test]
fn c_1_many_agents_start_together() {
    const AGENTS: usize = 32;
    let cluster = Cluster::new(AGENTS);
    let name = |node: usize| format!("n{node:02}");
    let flows: String = (0..AGENTS)
        .map(|node| {
            format!(
                "[[flow]]\nfrom = \"{}\"\nto = \"{}\"\nidt = \"constant(10ms)\"\npackets = 100\n",
                name(node),
                name((node + 1) % AGENTS)
            )
        })
        .collect();
    // One that gets no processor for some seconds keeps its flow.
    let done = cluster.run(&flows, &["--lease", "20s"]).finish(LIMIT).exits(0);
    let starts: Vec<&str> = done
        .out
        .lines()
        .filter(|line| line.contains("first packets of 1 flows at most "))
        .collect();
    assert_eq!(starts.len(), AGENTS, "{done}");
    println!("{}", starts.join("\n"));
    let late = starts.iter().filter(|line| {
        let lateness = line.split("at most ").nth(1).unwrap_or_default();
        let lateness = lateness.split(' ').next().unwrap_or_default();
        let ns = itg_core::units::parse_duration_ns(lateness).expect("a time");
        ns > 5_000_000_000
    });
    assert_eq!(late.count(), 0, "more than five seconds late: {}", starts.join("\n"));
}

#[test]
fn an_agent_starts_with_keys_that_prove_something_or_not_at_all() {
    let dir = itg_tests::temp_dir();
    let made = |name: &str, days: &str| {
        let keys = dir.path().join(name);
        cluster_keys(&keys, days);
        keys
    };
    let (good, expired) = (made("good", "365"), made("expired", "0"));
    let mixed = made("mixed", "365");
    fs::copy(good.join("ca.pem"), mixed.join("ca.pem")).expect("copied");
    let mode = |name: &str, mode: u32| {
        let keys = made(name, "365");
        let permissions = fs::Permissions::from_mode(mode);
        fs::set_permissions(keys.join("node.key"), permissions).expect("ours");
        keys
    };
    for (keys, words) in [
        (mode("all", 0o644), &["node.key: others can read it (mode 0644)", "chmod 600"][..]),
        (mode("group", 0o640), &["node.key: others can read it (mode 0640)", "chmod 600"]),
        (mode("writable", 0o602), &["node.key: others can change it (mode 0602)"]),
        (expired, &["node.pem: the keys have expired", "itg-cluster keys"]),
        (mixed, &["node.pem: it does not fit ca.pem", "itg-cluster keys"]),
    ] {
        let agent = dir.path().join("agent").display().to_string();
        let starts = ["agent", "--listen", "127.0.0.1:0", "--dir", &agent];
        for program in [&starts[..], &["status", "--at", "127.0.0.1:1"]] {
            let mut command = cluster_program();
            command.args(program).arg("--keys").arg(&keys);
            let done = Running::start(&mut command).finish(LIMIT).exits(2);
            for words in words {
                assert!(done.err.contains(words), "{words}: {done}");
            }
        }
    }
}
