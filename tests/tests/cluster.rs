//! Agents on this host, as a user has them on several: `itg-cluster agent`, `run`, `status`, `ctl`.
#![allow(missing_docs, reason = "tests")]

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use itg_tests::{Output, Running, program, temp_dir};
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(90);

/// A port that is free, and the next one too.
fn two_ports() -> u16 {
    for _ in 0..100 {
        let first = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let port = first.local_addr().expect("an address").port();
        if port < u16::MAX && TcpListener::bind((Ipv4Addr::LOCALHOST, port + 1)).is_ok() {
            return port;
        }
    }
    panic!("no two free ports side by side");
}

struct Cluster {
    dir: tempfile::TempDir,
    ports: Vec<u16>,
    agents: Vec<Option<Running>>,
}

fn cluster_program() -> Command {
    Command::new(program("itg-cluster"))
}

fn keys(dir: &Path, days: &str) {
    let mut make = cluster_program();
    make.args(["keys", "--days", days]).arg(dir);
    drop(Running::start(&mut make).finish(LIMIT).exits(0));
}

impl Cluster {
    fn new(nodes: usize) -> Self {
        let dir = temp_dir();
        keys(&dir.path().join("keys"), "365");
        let ports = (0..nodes).map(|_| two_ports()).collect();
        let mut made = Self { dir, ports, agents: (0..nodes).map(|_| None).collect() };
        (0..nodes).for_each(|node| made.start(node, &[]));
        made
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn start(&mut self, node: usize, more: &[&str]) {
        let mut agent = cluster_program();
        agent
            .args(["agent", "--listen", &format!("127.0.0.1:{}", self.ports[node])])
            .arg("--keys")
            .arg(self.path("keys"))
            .arg("--dir")
            .arg(self.path(&format!("agent-{node}")))
            .args(more);
        let agent = Running::start(&mut agent);
        drop(agent.line_with("listening on", LIMIT));
        self.agents[node] = Some(agent);
    }

    /// An experiment whose nodes are these agents, called a, b, c, ….
    fn experiment(&self, flows: &str) -> PathBuf {
        let mut text = String::from("schema = 1\nname = \"test\"\nseed = 7\n[nodes]\n");
        for (port, name) in self.ports.iter().zip('a'..) {
            text += &format!("{name} = {{ address = \"127.0.0.1:{port}\" }}\n");
        }
        let path = self.path("experiment.toml");
        fs::write(&path, text + flows).expect("written");
        path
    }

    fn run(&self, flows: &str, more: &[&str]) -> Running {
        self.run_into("out", flows, more)
    }

    fn run_into(&self, out: &str, flows: &str, more: &[&str]) -> Running {
        let mut run = cluster_program();
        run.arg("run")
            .arg(self.experiment(flows))
            .arg("--keys")
            .arg(self.path("keys"))
            .arg("--out")
            .arg(self.path(out))
            .args(more);
        Running::start(&mut run)
    }

    fn report(&self) -> Value {
        let text = fs::read_to_string(self.path("out").join("report.json")).expect("a report");
        serde_json::from_str(&text).expect("JSON")
    }

    /// Asks the first agent.
    fn ask(&self, words: &[&str]) -> Output {
        let mut ask = cluster_program();
        ask.arg(words[0])
            .args(["--at", &format!("127.0.0.1:{}", self.ports[0])])
            .arg("--keys")
            .arg(self.path("keys"))
            .args(&words[1..]);
        Running::start(&mut ask).finish(LIMIT)
    }

    fn status(&self) -> Value {
        let done = self.ask(&["status", "--json"]).exits(0);
        serde_json::from_str(&done.out).expect("JSON")
    }

    /// Waits until the experiment runs.
    fn wait_until_it_runs(&self) {
        let deadline = Instant::now() + LIMIT;
        while self.status()["replica"]["phase"] != "Running" {
            assert!(Instant::now() < deadline, "it does not start: {}", self.status());
            thread::sleep(Duration::from_millis(100));
        }
    }
}

/// Packets that one side of a flow saw.
fn packets(report: &Value, flow: u64, side: &str) -> u64 {
    let flows = report["flows"].as_array().expect("flows");
    let found = flows.iter().find(|entry| entry["flow"] == flow && entry["side"] == side);
    found.and_then(|entry| entry["packets"].as_u64()).unwrap_or(0)
}

const FLOWS: &str = "[[flow]]\nfrom = \"a\"\nto = \"b\"\nidt = \"constant(10ms)\"\nduration = \"2s\"\n\
     [[flow]]\nfrom = \"b\"\nto = \"c\"\nproto = \"tcp\"\nidt = \"exp(5ms)\"\npackets = 300\n\
     [[flow]]\nfrom = \"c\"\nto = \"a\"\nidt = \"constant(20ms)\"\nduration = \"2s\"\n";

#[test]
fn three_agents_send_to_each_other_and_one_report_comes_out() {
    let cluster = Cluster::new(3);
    let done = cluster.run(FLOWS, &[]).finish(LIMIT).exits(0);
    assert!(done.out.contains("node a: first packets of 1 flows"), "{done}");
    let report = cluster.report();
    for (flow, want) in [(1, 200), (2, 300), (3, 100)] {
        for side in ["sender", "receiver"] {
            assert_eq!(packets(&report, flow, side), want, "flow {flow}, {side}: {done}");
        }
    }
    // The same agents take the next experiment.
    fs::remove_dir_all(cluster.path("out")).expect("removed");
    drop(cluster.run(FLOWS, &[]).finish(LIMIT).exits(0));
    assert_eq!(packets(&cluster.report(), 1, "receiver"), 200);
}

const LONG: &str = "[[flow]]\nfrom = \"a\"\nto = \"c\"\nidt = \"constant(10ms)\"\nduration = \"12s\"\n\
     [[flow]]\nfrom = \"b\"\nto = \"c\"\nidt = \"constant(10ms)\"\nduration = \"12s\"\n";

/// C-2: the agent that sends a flow is killed; another one sends it on, with one gap.
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
    assert_eq!(packets(&report, 1, "receiver"), 1200, "{done}");
    let got = packets(&report, 2, "receiver");
    assert!(got > 300 && got < 1200, "{got} of 1200: {done}");
}

/// Commands from a terminal, by way of any agent; and somebody else's experiment is not disturbed.
#[test]
fn flows_are_stopped_and_moved_from_any_terminal() {
    let cluster = Cluster::new(3);
    let run = cluster.run(LONG, &[]);
    cluster.wait_until_it_runs();
    let second = cluster.run_into("second", LONG, &[]).finish(LIMIT).exits(3);
    assert!(second.err.contains("takes part in another run"), "{second}");
    drop(cluster.ask(&["ctl", "2", "move", "a"]).exits(0));
    drop(cluster.ask(&["ctl", "9", "stop"]).exits(1));
    drop(cluster.ask(&["ctl", "2", "move", "nowhere"]).exits(2));
    // The common start lies some time ahead of the commands.
    thread::sleep(Duration::from_secs(3));
    let text = cluster.ask(&["status"]).exits(0).out;
    assert!(text.contains("2         running   a "), "{text}");
    drop(cluster.ask(&["ctl", "all", "stop"]).exits(0));
    let done = run.finish(LIMIT).exits(0);
    assert!(done.err.contains("all flows are stopped"), "{done}");
    let report = cluster.report();
    let got = packets(&report, 1, "receiver");
    assert!(got > 50 && got < 1200, "{got}: {done}");
    assert_eq!(packets(&report, 1, "sender"), got, "{done}");
}

#[test]
fn who_does_not_belong_is_told_so() {
    let mut cluster = Cluster::new(2);
    let strange = cluster.path("strange");
    keys(&strange, "365");
    let expired = cluster.path("expired");
    keys(&expired, "0");
    let at = format!("127.0.0.1:{}", cluster.ports[0]);
    for (dir, want) in
        [(&strange, "keys of another cluster"), (&expired, "keys of another cluster")]
    {
        let mut ask = cluster_program();
        ask.args(["status", "--at", &at]).arg("--keys").arg(dir);
        let done = Running::start(&mut ask).finish(LIMIT).exits(3);
        assert!(done.err.contains(want), "{done}");
    }
    // An agent whose own keys have expired.
    drop(cluster.agents[1].take());
    let kept = cluster.path("keys");
    fs::rename(&kept, cluster.path("good")).expect("renamed");
    fs::rename(&expired, &kept).expect("renamed");
    cluster.start(1, &[]);
    let mut ask = cluster_program();
    ask.args(["status", "--at", &format!("127.0.0.1:{}", cluster.ports[1])])
        .arg("--keys")
        .arg(&kept);
    let done = Running::start(&mut ask).finish(LIMIT).exits(3);
    assert!(done.err.contains("the keys have expired"), "{done}");
    // Who is missing is named, with the step.
    fs::rename(&kept, &expired).expect("renamed");
    fs::rename(cluster.path("good"), &kept).expect("renamed");
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

/// S-2: 8 agents, 64 flows, one agent killed every 5 s for a minute and started again 3 s later.
#[test]
#[ignore = "takes a minute and a half"]
fn s_2_chaos() {
    const AGENTS: usize = 8;
    const FLOWS: u64 = 64;
    const PACKETS: u64 = 3500;
    let mut cluster = Cluster::new(AGENTS);
    let name = |node: u64| char::from(b'a' + u8::try_from(node % 8).expect("small"));
    let flows: String = (0..FLOWS)
        .map(|k| {
            let (from, to) = (name(k), name(k + 1 + k / 8 % 7));
            format!(
                "[[flow]]\nfrom = \"{from}\"\nto = \"{to}\"\nidt = \"constant(20ms)\"\nsize = \"constant(100)\"\n\
                 duration = \"70s\"\n"
            )
        })
        .collect();
    let run = cluster.run(&flows, &["--lease", "1s"]);
    cluster.wait_until_it_runs();
    for round in 0..12 {
        let victim = 1 + round * 3 % (AGENTS - 1);
        drop(cluster.agents[victim].take());
        thread::sleep(Duration::from_secs(3));
        cluster.start(victim, &[]);
        thread::sleep(Duration::from_secs(2));
    }
    let done = run.finish(Duration::from_secs(180)).exits(0);
    assert!(done.err.contains("all flows have ended"), "{done}");
    let report = cluster.report();
    let (mut got, mut worst) = (0, PACKETS);
    for flow in 1..=FLOWS {
        let flows = report["flows"].as_array().expect("flows");
        let entry = flows.iter().find(|entry| entry["flow"] == flow && entry["side"] == "receiver");
        let entry = entry.unwrap_or_else(|| panic!("flow {flow} is not in the report"));
        assert_eq!(entry["duplicated"], 0, "flow {flow}: two owners");
        let packets = entry["packets"].as_u64().expect("a count");
        assert!(packets <= PACKETS, "flow {flow}");
        // It was sent to its end.
        let last_ns = entry["duration_ns"].as_u64().expect("a time");
        assert!(last_ns > 60_000_000_000, "flow {flow} ends after {last_ns} ns");
        got += packets;
        worst = worst.min(packets);
    }
    println!("{}", done.err);
    println!("{got} of {} packets logged, the worst flow {worst} of {PACKETS}", FLOWS * PACKETS);
}
