//! Commands of README and of the pages in `docs`: each is run as it stands there, on hosts of the addresses that the
//! pages name (network namespaces joined by a switch), but for those that say here why not. Times are shorter. Needs
//! root.
#![allow(missing_docs, reason = "tests")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use itg_tests::{Namespace, Output, Running, Switch, not_run, program, temp_dir, wait_for};
use nix::sys::signal::Signal;
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(120);
/// Ports that programs of the pages listen on.
const RECEIVER: u16 = 9000;
const LOG_SERVER: u16 = 9003;
const AGENT: u16 = 9020;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("a workspace")
}

/// Commands of a page, in order: the lines of its blocks that are marked `console` or `sh`, without remarks.
fn commands(text: &str) -> Vec<String> {
    let (mut found, mut inside) = (Vec::new(), false);
    for line in text.lines() {
        match line.strip_prefix("```") {
            Some(mark) => inside = !inside && matches!(mark.trim(), "console" | "sh"),
            None if inside => {
                let command = line.split("  #").next().unwrap_or(line);
                found.push(command.split(" # ").next().unwrap_or(command).trim().to_owned());
            }
            None => {}
        }
    }
    found
}

/// Hosts of the pages, each with a directory of its own, and what runs on them.
struct Desk {
    dir: tempfile::TempDir,
    running: BTreeMap<u8, Vec<Running>>,
    switch: Switch,
}

impl Desk {
    /// Hosts 10.0.0.2 to 10.0.0.4, with profiles that last a tenth as long.
    fn new() -> Self {
        let switch = Switch::new(3);
        let dir = temp_dir();
        for (host, number) in switch.hosts.iter().zip(2..) {
            host.ip(&format!("address add 10.0.0.{number}/24 dev link0"));
            let own = dir.path().join(number.to_string()).join("profiles");
            fs::create_dir_all(&own).expect("made");
            for entry in fs::read_dir(root().join("profiles")).expect("there").flatten() {
                if entry.file_type().expect("known").is_file() {
                    let text = fs::read_to_string(entry.path()).expect("a profile");
                    fs::write(own.join(entry.file_name()), shortened(&text)).expect("written");
                }
            }
        }
        Self { dir, running: BTreeMap::new(), switch }
    }

    fn path(&self, host: u8, name: &str) -> PathBuf {
        self.dir.path().join(host.to_string()).join(name)
    }

    fn host(&self, number: u8) -> &Namespace {
        &self.switch.hosts[usize::from(number - 2)]
    }

    /// Starts a line of a page in the shell of a host.
    fn start(&self, host: u8, line: &str) -> Running {
        let programs = program("itg-send").parent().expect("a directory").display().to_string();
        let mut shell: Command = self.host(host).command(Path::new("/bin/sh"));
        shell
            .args(["-c", &format!("exec {line}")])
            .current_dir(self.path(host, ""))
            .env("PATH", format!("{programs}:/usr/sbin:/usr/bin:/sbin:/bin"));
        Running::start(&mut shell)
    }

    /// Starts what stays until [`Desk::quiet`], and waits until it listens.
    fn stays(&mut self, host: u8, line: &str, port: u16) {
        let running = self.start(host, line);
        running.wait_for_port(port).unwrap_or_else(|error| panic!("{line}: {error}"));
        self.running.entry(host).or_default().push(running);
    }

    /// Ends what stays on all hosts.
    fn quiet(&mut self) {
        for running in std::mem::take(&mut self.running).into_values().flatten() {
            running.signal(Signal::SIGINT);
            let done = running.finish(LIMIT);
            assert!(matches!(done.code, Some(0 | 130)), "{done}");
        }
    }

    /// Runs a line on the host 10.0.0.4.
    fn ends(&self, line: &str) -> Output {
        self.start(4, line).finish(LIMIT)
    }

    /// Runs a line that judges a measurement on the host 10.0.0.4: with one of these exit codes.
    fn judges(&self, line: &str, codes: &[i32]) {
        let done = self.ends(line);
        assert!(done.code.is_some_and(|code| codes.contains(&code)), "{done}");
    }

    /// Copies a file or directory from one host to the others.
    fn copy(&self, from: u8, name: &str) {
        for to in (2..=4).filter(|to| *to != from) {
            let (from, to) = (self.path(from, name), self.path(to, name));
            let done = Command::new("cp").arg("-aT").args([from, to]).status();
            assert!(done.expect("cp").success(), "{name}");
        }
    }

    /// An experiment whose nodes are the hosts of this desk.
    fn experiment(&self, seconds: u32) {
        let text = format!(
            "schema = 1\nname = \"page\"\nseed = 7\nduration = \"{seconds}s\"\n[nodes]\na = {{ address = \"10.0.0.4\" }}\nb = {{ address = \
             \"10.0.0.3\" }}\nc = {{ address = \"10.0.0.2\" }}\n\
             [[flow]]\nname = \"first\"\nfrom = \"a\"\nto = \"b\"\nidt = \"constant(10ms)\"\nsize = 200\n\
             [[flow]]\nname = \"second\"\nfrom = \"a\"\nto = \"b\"\nidt = \"exp(10ms)\"\nsize = 200\n\
             [[flow]]\nname = \"call\"\nfrom = \"b\"\nto = \"a\"\nrate = \"1Mbps\"\nsize = 500\n"
        );
        for host in 2..=4 {
            fs::write(self.path(host, "experiment.toml"), &text).expect("written");
        }
    }

    /// Starts the agents of all hosts as the page says, with the keys that were made on 10.0.0.4.
    fn agents(&mut self, line: &str) {
        self.copy(4, "keys");
        for host in 2..=4 {
            self.stays(host, line, AGENT);
        }
    }
}

/// A profile or command that lasts a tenth as long.
fn shortened(text: &str) -> String {
    let mut text = text.to_owned();
    for (long, short) in [("\"20s\"", "\"2s\""), ("\"10s\"", "\"1s\""), ("\"5s\"", "\"500ms\"")] {
        text = text.replace(long, short);
    }
    text.replace("--duration 20s", "--duration 2s")
        .replace("--duration 10s", "--duration 1s")
        .replace("--duration 10min", "--duration 1s")
        .replace("--duration 5s", "--duration 1s")
}

/// Walks through the commands of a page: `run` does what each means, and returns false for one that it does not know.
fn walk(page: &str, mut run: impl FnMut(&str) -> bool) {
    let text = fs::read_to_string(root().join(page)).expect("a page");
    let commands = commands(&text);
    assert!(!commands.is_empty(), "{page} has no commands");
    for command in commands {
        assert!(run(&shortened(&command)), "{page}: nobody says here how to run `{command}`");
    }
}

/// Commands that build, install or need other programs: the gate runs them, `dist/test` or tests of their own do.
fn is_run_elsewhere(line: &str) -> bool {
    let program = line.split(' ').next().unwrap_or(line);
    matches!(
        program,
        "cargo"
            | "apt-get"
            // Its page is asked in `privileged_watching`.
            | "curl"
            | "sudo"
            | "docker"
            | "dist/build"
            | "dist/wheel"
            | "itg-python/bin/pip"
            | "mpirun"
    ) || line.starts_with("python3 -m venv ")
}

#[test]
fn the_commands_of_the_readme_run() {
    if not_run() {
        return;
    }
    let mut desk = Desk::new();
    walk("README.md", |line| {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            _ if is_run_elsewhere(line) => {}
            ["itg-recv", ..] => desk.stays(3, line, RECEIVER),
            ["itg-log", ..] => {
                // The receiver of the block before has done its work.
                desk.quiet();
                desk.stays(2, line, LOG_SERVER);
            }
            ["itg-send", "10.0.0.3", "--rate", "10M", "--duration", _] => {
                desk.quiet();
                desk.copy(3, "recv.itg");
                desk.stays(3, "itg-recv --allow-reverse", RECEIVER);
                drop(desk.ends(line).exits(0));
            }
            ["itg-send", "run", ..] => drop(desk.ends(line).exits(0)),
            ["itg-send", ..] if line.contains("--duration") => drop(desk.ends(line).exits(0)),
            ["itg-send", ..] => drop(desk.ends(&format!("{line} --duration 1s")).exits(0)),
            ["itg-decode", "compare", ..] => {
                for out in ["monday", "tuesday"] {
                    let run =
                        format!("itg-cluster run profiles/simulated-switch.toml --sim --out {out}");
                    drop(desk.ends(&run).exits(0));
                }
                drop(desk.ends(line).exits(0));
            }
            // The measurement decides about gates.
            ["itg-decode", ..] if line.contains("--fail-if") => desk.judges(line, &[0, 98, 99]),
            ["itg-decode", ..] => drop(desk.ends(line).exits(0)),
            ["itg-cluster", "keys", ..] => {
                desk.quiet();
                drop(desk.ends(line).exits(0));
            }
            ["itg-cluster", "agent", ..] => desk.agents(line),
            ["itg-cluster", "run", "experiment.toml", ..] => {
                desk.experiment(2);
                drop(desk.ends(line).exits(0));
            }
            ["itg-cluster", "replay", ..] => desk.judges(line, &[0, 1]),
            ["itg-cluster", "run" | "verify", ..] => drop(desk.ends(line).exits(0)),
            _ => return false,
        }
        true
    });
    desk.quiet();
    for made in ["recv.itg", "report.html", "gates.xml", "experiment.itg", "result", "again"] {
        assert!(desk.path(4, made).exists(), "{made}");
    }
    assert!(desk.path(2, "logs").is_dir());
}

#[test]
fn the_commands_of_the_page_of_clusters_run() {
    if not_run() {
        return;
    }
    let mut desk = Desk::new();
    desk.experiment(30);
    let mut run = None;
    walk("docs/cluster.md", |line| {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["itg-cluster", "keys", "keys"] => drop(desk.ends(line).exits(0)),
            ["itg-cluster", "agent", ..] => desk.agents(line),
            ["itg-cluster", "run", ..] => {
                let begun = desk.start(4, line);
                wait_for("the flows to be sent", LIMIT, || {
                    let status = "itg-cluster status --at 10.0.0.4 --keys keys --json";
                    desk.ends(status).out.contains("\"running\"")
                });
                run = Some(begun);
            }
            ["itg-cluster", "fetch", "RUN", ..] => {
                let status = "itg-cluster status --at 10.0.0.4 --keys keys --json";
                let status: Value = serde_json::from_str(&desk.ends(status).out).expect("JSON");
                let run = status["run"].as_str().expect("a run");
                // Its console is there, and its flows go on.
                drop(desk.ends(&line.replace("RUN", run)).exits(1).says("are not over"));
            }
            ["itg-cluster", "status" | "ctl" | "fetch", ..] => drop(desk.ends(line).exits(0)),
            ["itg-cluster", "keys", action, ..] => {
                if let Some(run) = run.take() {
                    drop(desk.ends("itg-cluster ctl --at 10.0.0.4 --keys keys all stop").exits(0));
                    drop(run.finish(LIMIT).exits(0));
                }
                drop(desk.ends(line).exits(0));
                assert!(desk.path(4, "itg-authority").is_dir(), "{action}");
            }
            _ => return false,
        }
        true
    });
    desk.quiet();
    assert!(desk.path(4, "itg-authority/revoked.pem").exists());
}

#[test]
fn the_commands_of_the_tutorial_run() {
    if not_run() {
        return;
    }
    let page = "docs/tutorial.md";
    let mut desk = Desk::new();
    let text = fs::read_to_string(root().join(page)).expect("a page");
    let (_, file) = text.split_once("```toml\n").expect("a file");
    let (file, _) = file.split_once("```").expect("its end");
    fs::write(desk.path(4, "call.toml"), file.replace("15s", "2s").replace("5s", "500ms"))
        .expect("written");
    walk(page, |line| {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            _ if is_run_elsewhere(line) => {}
            // The hosts are there, and the programs.
            ["ip" | "tc" | "export", ..] => {}
            ["itg-recv", ..] => {
                desk.quiet();
                desk.stays(3, line, RECEIVER);
            }
            ["itg-send" | "itg-cluster", ..] => drop(desk.ends(line).exits(0)),
            ["itg-decode", ..] => {
                desk.quiet();
                desk.copy(3, "recv.itg");
                desk.judges(line, &[0, 98, 99]);
            }
            _ => return false,
        }
        true
    });
    assert!(desk.path(4, "report.html").exists());
}

#[test]
fn the_commands_of_the_other_pages_run() {
    if not_run() {
        return;
    }
    let mut desk = Desk::new();
    desk.experiment(2);
    let mut others = Vec::new();
    for entry in fs::read_dir(root().join("docs")).expect("there").flatten() {
        let name = format!("docs/{}", entry.file_name().to_string_lossy());
        let own = ["docs/cluster.md", "docs/tutorial.md"];
        if name.ends_with(".md") && !own.contains(&name.as_str()) {
            let text = fs::read_to_string(root().join(&name)).expect("a page");
            others.extend((!commands(&text).is_empty()).then_some(name));
        }
    }
    others.sort();
    assert!(others.len() > 2, "{others:?}");
    for page in others {
        walk(&page, |line| {
            let words: Vec<&str> = line.split(' ').collect();
            match words[..] {
                _ if is_run_elsewhere(line) => {}
                ["itg-recv", ..] => {
                    desk.quiet();
                    desk.stays(3, line, RECEIVER);
                }
                ["itg-send", ..] => drop(desk.ends(line).exits(0)),
                // Of the flow that the pages before sent.
                ["itg-decode", "send.itg", "recv.itg", ..] => {
                    desk.quiet();
                    desk.copy(3, "recv.itg");
                    drop(desk.ends(line).exits(0));
                }
                ["itg-cluster", "replay", ..] => desk.judges(line, &[0, 1]),
                ["itg-cluster", "run" | "verify" | "plan", ..] => drop(desk.ends(line).exits(0)),
                _ => return false,
            }
            true
        });
    }
    assert!(desk.path(4, "run.flent").exists());
}
