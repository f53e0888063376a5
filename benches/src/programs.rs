//! The programs of ITG as measurements use them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use itg_testkit::child::{Output, Running};
use nix::sys::signal::Signal;
use serde_json::Value;

/// Time that a program may take to be ready or to end, on a busy machine.
pub(crate) const READY: Duration = Duration::from_secs(20);

/// Returns true if a program of this name is on the path.
pub(crate) fn installed(program: &str) -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&paths).any(|dir| dir.join(program).is_file())
}

/// Logs go to memory where there is such a place: the disk is not what is measured.
pub(crate) fn memory() -> PathBuf {
    let shared = Path::new("/dev/shm");
    if shared.is_dir() { shared.to_owned() } else { std::env::temp_dir() }
}

/// Place where a program runs.
#[derive(Clone, Debug, Default)]
pub(crate) enum Location {
    /// On this host.
    #[default]
    Here,
    /// In the network namespace of this name.
    Namespace(String),
}

impl Location {
    /// A command that runs there.
    pub(crate) fn command(&self, program: &Path) -> Command {
        match self {
            Self::Here => Command::new(program),
            Self::Namespace(name) => {
                let mut command = Command::new("ip");
                command.args(["netns", "exec", name]).arg(program);
                command
            }
        }
    }
}

/// The directory of the programs: that of this one.
#[derive(Clone, Debug)]
pub(crate) struct Programs {
    dir: PathBuf,
}

impl Programs {
    /// All that measurements of traffic need.
    pub(crate) fn find() -> Result<Self> {
        Self::with(&["itg-send", "itg-recv", "itg-log", "itg-decode"])
    }

    /// Those of these names.
    pub(crate) fn with(names: &[&str]) -> Result<Self> {
        let own = std::env::current_exe().context("the path of this program")?;
        let dir = own.parent().context("the directory of this program")?.to_owned();
        for name in names {
            ensure!(
                dir.join(name).is_file(),
                "{} is not there: build the programs with `cargo build --release --workspace`",
                dir.join(name).display()
            );
        }
        Ok(Self { dir })
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// A receiver; its address is the one that senders connect to.
    pub(crate) fn receiver(
        &self,
        place: &Location,
        listen: &str,
        args: &[String],
        cpus: &[usize],
    ) -> Result<Server> {
        let mut command = place.command(&self.path("itg-recv"));
        command.args(["--listen", &format!("{listen}:0"), "--data-port", "0"]).args(args);
        Server::start(&mut command, "waiting for senders on ", cpus)
    }

    /// A log server that stores into a directory.
    pub(crate) fn log_server(&self, dir: &Path, args: &[&str], cpus: &[usize]) -> Result<Server> {
        let mut command = Location::Here.command(&self.path("itg-log"));
        command.args(["--listen", "127.0.0.1:0", "--dir"]).arg(dir).args(args);
        Server::start(&mut command, "waiting for producers on ", cpus)
    }

    /// Figures of a log, by `itg-decode`.
    pub(crate) fn decode(&self, log: &Path) -> Result<Decoded> {
        let mut command = Command::new(self.path("itg-decode"));
        command.arg(log).args(["--format", "json"]);
        let done = Running::spawn(&mut command, &[])?.wait(Duration::from_secs(120))?;
        // 1: something of the log is missing or damaged, which the report accounts for.
        let done = done.ended_with(&[0, 1])?;
        let report: Value = serde_json::from_str(&done.out).context("the report of itg-decode")?;
        Ok(Decoded::of(&report))
    }
}

/// The figures of all flows of a log.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Decoded {
    /// Records.
    pub(crate) packets: f64,
    /// From the first to the last, in seconds.
    pub(crate) seconds: f64,
    /// 99 % of the packets left no later than this after their time, in microseconds (sender).
    pub(crate) late_us: Option<f64>,
}

impl Decoded {
    /// From the report; a log without records has none.
    fn of(report: &Value) -> Self {
        let total = &report["total"];
        Self {
            packets: total["packets"].as_f64().unwrap_or(0.0),
            seconds: total["duration_ns"].as_f64().unwrap_or(0.0) / 1e9,
            late_us: total["lateness_ns"]["p99"].as_f64().map(|ns| ns / 1e3),
        }
    }
}

/// A program that waits for others.
#[derive(Debug)]
pub(crate) struct Server {
    running: Running,
    /// Address that clients connect to.
    pub(crate) address: String,
}

impl Server {
    fn start(command: &mut Command, words: &str, cpus: &[usize]) -> Result<Self> {
        let running = Running::spawn(command, cpus)?;
        let line = running.after(words, READY)?;
        let address = line.split([' ', ';']).next().unwrap_or_default().to_owned();
        Ok(Self { running, address })
    }

    /// Number of its process.
    pub(crate) fn pid(&self) -> u32 {
        self.running.pid()
    }

    /// Waits until it ends by itself.
    pub(crate) fn finish(self) -> Result<Output> {
        self.running.wait(READY)
    }

    /// Ends it as Ctrl-C does.
    pub(crate) fn stop(self) -> Result<Output> {
        self.running.stop(Signal::SIGINT, READY)
    }
}

/// The one experiment in the directory of a log server.
pub(crate) fn stored_log(dir: &Path) -> Result<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.extension().is_some_and(|ending| ending == "itg") {
            found.push(path);
        }
    }
    ensure!(found.len() == 1, "{} experiments in {}, expected 1", found.len(), dir.display());
    found.pop().context("just found")
}

/// Empties the directory of a log server.
pub(crate) fn clear(dir: &Path) -> Result<()> {
    for entry in fs::read_dir(dir)? {
        fs::remove_file(entry?.path())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_figures_are_those_of_all_flows() {
        let all = json!({"packets": 10, "duration_ns": 500_000_000, "lateness_ns": {"p99": 1500}});
        let want = Decoded { packets: 10.0, seconds: 0.5, late_us: Some(1.5) };
        assert_eq!(Decoded::of(&json!({ "flows": [], "total": all })), want);
        let none = json!({"packets": 0, "duration_ns": null, "lateness_ns": null});
        assert_eq!(Decoded::of(&json!({ "total": none })), Decoded::default());
    }

    #[test]
    fn exactly_one_experiment_is_the_one() {
        let dir = tempfile::tempdir().expect("a directory");
        assert!(stored_log(dir.path()).is_err());
        fs::write(dir.path().join("a.index.jsonl"), "").expect("written");
        fs::write(dir.path().join("a.itg"), "").expect("written");
        assert_eq!(stored_log(dir.path()).expect("one"), dir.path().join("a.itg"));
        fs::write(dir.path().join("b.itg"), "").expect("written");
        assert!(stored_log(dir.path()).is_err());
        clear(dir.path()).expect("cleared");
        assert_eq!(fs::read_dir(dir.path()).expect("there").count(), 0);
    }
}
