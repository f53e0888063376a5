//! Agents as a user has them on several hosts: on loopback, or each in a network namespace of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use itg_testkit::host::two_ports;
use serde_json::Value;

use crate::{Output, Running, Slow, Switch, program, temp_dir};

const LIMIT: Duration = Duration::from_secs(90);

/// The program.
#[must_use]
pub fn cluster_program() -> Command {
    Command::new(program("itg-cluster"))
}

/// Makes keys that are good for so many days.
pub fn cluster_keys(dir: &Path, days: &str) {
    let mut make = cluster_program();
    make.args(["keys", "--days", days]).arg(dir);
    drop(Running::start(&mut make).finish(LIMIT).exits(0));
}

/// An authority that gives nodes keys of their own.
#[derive(Debug)]
pub struct Authority(tempfile::TempDir);

impl Default for Authority {
    fn default() -> Self {
        let made = Self(temp_dir());
        made.keys(&["init"]);
        made
    }
}

impl Authority {
    #[track_caller]
    fn keys(&self, args: &[&str]) {
        let mut command = cluster_program();
        command.arg("keys").args(args).arg("--authority").arg(self.0.path().join("ca"));
        drop(Running::start(&mut command).finish(LIMIT).exits(0));
    }

    /// Makes the keys of a node: their directory.
    #[track_caller]
    #[must_use]
    pub fn add(&self, node: &str, role: &str) -> PathBuf {
        self.keys(&["add", node, "--role", role]);
        self.0.path().join("ca").join(node)
    }

    /// Revokes the keys of a node, and tells the other nodes.
    #[track_caller]
    pub fn revoke(&self, node: &str) {
        self.keys(&["revoke", node]);
    }
}

/// Packets that one side of a flow saw, as a report says.
#[must_use]
pub fn flow_packets(report: &Value, flow: u64, side: &str) -> u64 {
    let flows = report["flows"].as_array().expect("flows");
    let found = flows.iter().find(|entry| entry["flow"] == flow && entry["side"] == side);
    found.and_then(|entry| entry["packets"].as_u64()).unwrap_or(0)
}

/// Agents, their keys, and commands as from a terminal.
#[derive(Debug)]
pub struct Cluster {
    dir: tempfile::TempDir,
    addresses: Vec<String>,
    /// The agents; `None` where one does not run.
    pub agents: Vec<Option<Running>>,
    /// Their hosts, unless it is this one.
    pub switch: Option<Switch>,
}

impl Cluster {
    /// So many agents on this host.
    #[must_use]
    pub fn new(nodes: usize) -> Self {
        Self::with_options(nodes, &[])
    }

    /// The same, with these options of each agent.
    #[must_use]
    pub fn with_options(nodes: usize, options: &[&str]) -> Self {
        let addresses = (0..nodes).map(|_| format!("127.0.0.1:{}", two_ports())).collect();
        Self::with(None, addresses, options)
    }

    /// So many agents, each on a host of its own, and a terminal on another one. Needs root.
    #[must_use]
    pub fn apart(nodes: usize) -> Self {
        Self::on_switch(Switch::new(nodes), nodes)
    }

    /// The same with slow links between the hosts and the switch, at which the terminal is.
    #[must_use]
    pub fn slow(nodes: usize, slow: Slow) -> Self {
        Self::on_switch(Switch::slow(nodes, slow), nodes)
    }

    fn on_switch(switch: Switch, nodes: usize) -> Self {
        let addresses = (0..nodes).map(|host| format!("{}:9020", Switch::address(host))).collect();
        Self::with(Some(switch), addresses, &[])
    }

    fn with(switch: Option<Switch>, addresses: Vec<String>, options: &[&str]) -> Self {
        let dir = temp_dir();
        cluster_keys(&dir.path().join("keys"), "365");
        let agents = addresses.iter().map(|_| None).collect();
        let mut made = Self { dir, addresses, agents, switch };
        (0..made.agents.len()).for_each(|node| made.start(node, options));
        made
    }

    /// A path in the directory of this test.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Address that an agent listens on.
    #[must_use]
    pub fn address(&self, node: usize) -> String {
        self.addresses[node].clone()
    }

    /// The program on the host of a node.
    fn on(&self, node: usize) -> Command {
        match &self.switch {
            None => cluster_program(),
            Some(switch) => switch.hosts[node].command(&program("itg-cluster")),
        }
    }

    /// The program at the terminal.
    #[must_use]
    pub fn terminal(&self) -> Command {
        match &self.switch {
            None => cluster_program(),
            Some(switch) => switch.middle.command(&program("itg-cluster")),
        }
    }

    /// Starts an agent.
    pub fn start(&mut self, node: usize, more: &[&str]) {
        self.start_in(node, &self.path(&format!("agent-{node}")), more);
    }

    /// Starts an agent that keeps its logs in this directory.
    pub fn start_in(&mut self, node: usize, dir: &Path, more: &[&str]) {
        let mut agent = self.on(node);
        agent
            .args(["agent", "--listen", &self.addresses[node]])
            .arg("--keys")
            .arg(self.path("keys"))
            .arg("--dir")
            .arg(dir)
            .args(more);
        let agent = Running::start(&mut agent);
        drop(agent.line_with("listening on", LIMIT));
        self.agents[node] = Some(agent);
    }

    /// An experiment whose nodes are these agents, called a, b, c, …, or n00, n01, … where there are many.
    #[must_use]
    pub fn experiment(&self, flows: &str) -> PathBuf {
        let mut text = String::from("schema = 1\nname = \"test\"\nseed = 7\n[nodes]\n");
        for (node, address) in self.addresses.iter().enumerate() {
            let few = self.addresses.len() <= 26;
            let letter = char::from(b'a' + u8::try_from(node % 26).expect("small"));
            let name = if few { letter.to_string() } else { format!("n{node:02}") };
            text += &format!("{name} = {{ address = \"{address}\" }}\n");
        }
        let path = self.path("experiment.toml");
        fs::write(&path, text + flows).expect("written");
        path
    }

    /// Starts an experiment, whose results come to `out`.
    #[must_use]
    pub fn run(&self, flows: &str, more: &[&str]) -> Running {
        self.run_into("out", flows, more)
    }

    /// The same, with results in another directory of this test.
    #[must_use]
    pub fn run_into(&self, out: &str, flows: &str, more: &[&str]) -> Running {
        let mut run = self.terminal();
        run.arg("run")
            .arg(self.experiment(flows))
            .arg("--keys")
            .arg(self.path("keys"))
            .arg("--out")
            .arg(self.path(out))
            .args(more);
        Running::start(&mut run)
    }

    /// The report of `out`.
    #[must_use]
    pub fn report(&self) -> Value {
        self.report_in("out")
    }

    /// The report in another directory of this test.
    #[must_use]
    pub fn report_in(&self, out: &str) -> Value {
        let text = fs::read_to_string(self.path(out).join("report.json")).expect("a report");
        serde_json::from_str(&text).expect("JSON")
    }

    /// Asks the first agent.
    #[must_use]
    pub fn ask(&self, words: &[&str]) -> Output {
        self.ask_of(0, words)
    }

    /// Asks an agent.
    #[must_use]
    pub fn ask_of(&self, node: usize, words: &[&str]) -> Output {
        let mut ask = self.terminal();
        ask.arg(words[0])
            .args(["--at", &self.addresses[node]])
            .arg("--keys")
            .arg(self.path("keys"))
            .args(&words[1..]);
        Running::start(&mut ask).finish(LIMIT)
    }

    /// Status of the run, as the first agent reports it.
    #[must_use]
    pub fn status(&self) -> Value {
        let done = self.ask(&["status", "--json"]).exits(0);
        serde_json::from_str(&done.out).expect("JSON")
    }

    /// Waits until the experiment runs.
    pub fn wait_until_it_runs(&self) {
        let deadline = Instant::now() + LIMIT;
        while self.status()["phase"] != "running" {
            assert!(Instant::now() < deadline, "it does not start: {}", self.status());
            thread::sleep(Duration::from_millis(100));
        }
    }
}
