//! Agents of a cluster for measurements: on this host, or each on a host of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use itg_testkit::child::Running;
use nix::sys::signal::Signal;

use crate::link::Link;
use crate::programs::{Location, Programs, READY, memory};

/// Agents with their keys; killed and removed when dropped.
#[derive(Debug)]
pub(crate) struct Agents {
    program: PathBuf,
    running: Vec<Option<Running>>,
    /// Words of those that were killed, by node.
    words: Vec<String>,
    addresses: Vec<String>,
    /// The console's, then the agents'.
    places: Vec<Location>,
    work: tempfile::TempDir,
    /// Removed behind the processes in it.
    switch: Option<Link>,
}

impl Agents {
    /// Starts so many, each on a host of its own if `apart`, which needs root.
    pub(crate) fn new(count: usize, apart: bool) -> Result<Self> {
        let program = Programs::with(&["itg-cluster"])?.path("itg-cluster");
        let work = tempfile::Builder::new().prefix("itg-bench-").tempdir_in(memory())?;
        let switch = if apart { Some(Link::switch(count)?) } else { None };
        let places = switch.as_ref().map_or_else(|| vec![Location::Here; count + 1], Link::all);
        let address = |node: usize| match &switch {
            Some(_) => format!("10.79.0.{}:9020", node + 1),
            None => format!("127.0.0.1:{}", 19_020 + 2 * node),
        };
        let addresses = (0..count).map(address).collect();
        let running = (0..count).map(|_| None).collect();
        let words = vec![String::new(); count];
        let mut made = Self { program, running, words, addresses, places, work, switch };
        let mut keys = Command::new(&made.program);
        keys.arg("keys").arg(made.path("keys"));
        drop(Running::spawn(&mut keys, &[])?.wait(READY)?.ended_with(&[0])?);
        (0..count).try_for_each(|node| made.start(node))?;
        Ok(made)
    }

    /// Location of the agents, in words.
    pub(crate) const fn place(&self) -> &'static str {
        if self.switch.is_some() { "each on a host of its own" } else { "all on this host" }
    }

    /// A path in the directory of this run.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.work.path().join(name)
    }

    /// The name of a node.
    pub(crate) fn name(node: usize) -> String {
        format!("n{node:02}")
    }

    /// Starts one.
    pub(crate) fn start(&mut self, node: usize) -> Result<()> {
        let place = self.places.get(node + 1).context("a place for it")?;
        let mut agent = place.command(&self.program);
        agent.args(["agent", "-vv", "--listen", &self.addresses[node]]);
        agent.arg("--keys").arg(self.path("keys"));
        agent.arg("--dir").arg(self.path(&format!("agent-{node}")));
        let agent = Running::spawn(&mut agent, &[])?;
        agent.after("listening on", READY)?;
        self.running[node] = Some(agent);
        Ok(())
    }

    /// Kills one.
    pub(crate) fn kill(&mut self, node: usize) {
        if let Some(agent) = self.running[node].take()
            && let Ok(done) = agent.stop(Signal::SIGKILL, READY)
        {
            self.words[node] += &done.err;
        }
    }

    /// Everything that the agents of a node have said.
    pub(crate) fn words(&self, node: usize) -> String {
        let now = self.running[node].as_ref().map(Running::err);
        self.words[node].clone() + &now.unwrap_or_default()
    }

    /// Starts a console that runs these flows (TOML) over all nodes.
    pub(crate) fn run(&self, flows: &str, out: &Path, more: &[&str]) -> Result<Running> {
        let mut text = "schema = 1\nname = \"bench\"\nseed = 7\n[nodes]\n".to_owned();
        for (node, address) in self.addresses.iter().enumerate() {
            text += &format!("{} = {{ address = \"{address}\" }}\n", Self::name(node));
        }
        let file = self.path("experiment.toml");
        fs::write(&file, text + flows)?;
        let mut console = self.places.first().context("a place")?.command(&self.program);
        console.arg("run").arg(&file).arg("--keys").arg(self.path("keys"));
        console.arg("--out").arg(out).args(more);
        Running::spawn(&mut console, &[])
    }
}

/// Logs in a directory, by their names.
pub(crate) fn logs(dir: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(dir).with_context(|| format!("directory {}", dir.display()))?;
    let mut logs: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    logs.retain(|path| path.extension().is_some_and(|what| what == "itg"));
    logs.sort();
    Ok(logs)
}
