//! `itg-cluster diff REAL SIM`: two runs of one experiment, packet by packet as planned and figure by
//! figure as measured; or two traces of processes ([`crate::trace`]), event by event.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, ValueEnum};
use itg_cli::{Failure, print, refuse};
use itg_compare::{Resampling, compare};
use itg_record::{Item, Kind, LogReader, Note};
use itg_stats::{Analysis, Options, Report};

use crate::directory::{RECEIVER_LOG, SENDER_LOG};
use crate::trace_diff;

/// Arguments of `diff`.
#[derive(Debug, Args)]
pub struct DiffArgs {
    /// Directory of a run: on one host, over agents, simulated, or under MPI (with `[log] server = "mpi"`); or a trace
    /// of processes
    pub real: PathBuf,
    /// Directory of another one, such as its simulation; or another trace
    pub sim: PathBuf,
    /// Form of the answer
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
}

/// Form of the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Tables
    Text,
    /// One JSON object
    Json,
}

/// Compares; exit code 1 when one run planned another packet than the other, or a process of one trace says
/// something else.
///
/// # Errors
/// A directory is not that of a run, or one run planned another packet than the other.
pub fn run(args: &DiffArgs) -> Result<ExitCode> {
    if args.real.is_file() && args.sim.is_file() {
        return trace_diff::run(args);
    }
    let [real, sim] = [&args.real, &args.sim].map(|dir| Logs::read(dir));
    let (real, sim) = (real?, sim?);
    let planned = Planned::of(&real.schedule()?, &sim.schedule()?);
    let [a, b] = [&args.real, &args.sim].map(|dir| dir.display().to_string());
    let comparison = compare((&a, &real.report()?), (&b, &sim.report()?), Resampling::default());
    match args.format {
        Format::Text => print(&format!("{planned}\n{}", comparison.to_text()))?,
        Format::Json => {
            let mut json: serde_json::Value = serde_json::from_str(&comparison.to_json())?;
            json["planned"] = planned.to_json();
            print(&(serde_json::to_string_pretty(&json)? + "\n"))?;
        }
    }
    match &planned.differs {
        None => Ok(ExitCode::SUCCESS),
        Some(_) => Err(Failure::new(1, planned).into()),
    }
}

/// The logs below the directories of the nodes, in the order of their names.
fn of_nodes(dir: &Path) -> Vec<PathBuf> {
    let entries = |dir: &Path| -> Vec<PathBuf> {
        fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
    };
    let mut logs: Vec<_> = entries(dir).iter().flat_map(|node| entries(node)).collect();
    logs.retain(|path| path.extension().is_some_and(|what| what == "itg"));
    logs.sort();
    logs
}

/// Returns true if this log is that of a receiver, by its name: `receiver.itg`, and of agents
/// `receiver-START.itg`.
fn is_receivers(path: &str) -> bool {
    let name = Path::new(path).file_name().and_then(std::ffi::OsStr::to_str);
    name.is_some_and(|name| name.starts_with("receiver"))
}

/// The logs of a run.
pub(crate) struct Logs(Vec<(String, Vec<u8>)>);

impl Logs {
    /// Those of both sides, or of all nodes where agents have carried out the run.
    fn read(dir: &Path) -> Result<Self> {
        let mut paths = vec![dir.join(SENDER_LOG), dir.join(RECEIVER_LOG)];
        if !paths[0].exists() {
            if paths[1].exists() {
                return Err(refuse(format!(
                    "{}: this run kept no senders' log: under MPI add `[log] server = \"mpi\"`",
                    dir.display()
                )));
            }
            let of_nodes = of_nodes(dir);
            paths = if of_nodes.is_empty() { paths } else { of_nodes };
        }
        Self::of(paths)
    }

    /// Those with these paths.
    pub(crate) fn of(paths: Vec<PathBuf>) -> Result<Self> {
        let read = |path: PathBuf| {
            let bytes = fs::read(&path).map_err(|error| {
                refuse(format!("{}: {error}: expected the directory of a run", path.display()))
            })?;
            Ok((path.display().to_string(), bytes))
        };
        paths.into_iter().map(read).collect::<Result<_>>().map(Self)
    }

    /// Returns true if the other logs have the same contents, in the same order.
    pub(crate) fn are_equal_to(&self, other: &Self) -> bool {
        let both = self.0.iter().zip(&other.0);
        self.0.len() == other.0.len() && both.into_iter().all(|(own, other)| own.1 == other.1)
    }

    /// The report, with plots of all flows.
    pub(crate) fn report(&self) -> Result<Report> {
        let options = Options { plots: Some(usize::MAX), ..Options::default() };
        let mut analysis = Analysis::new(options);
        for (name, bytes) in &self.0 {
            analysis.add_log(bytes, name)?;
        }
        Ok(analysis.finish())
    }

    /// Schedule of the packets that were sent, as the senders' logs have it.
    pub(crate) fn schedule(&self) -> Result<Schedule> {
        let mut packets = Vec::new();
        for (name, bytes) in self.0.iter().filter(|(name, _)| !is_receivers(name)) {
            let mut numbers = BTreeMap::new();
            for item in LogReader::new(bytes) {
                match item {
                    Item::Note { log, note: Note::Flow(flow), .. } => {
                        numbers.insert((log, flow.index), flow.flow);
                    }
                    Item::Records { log, records, .. } => {
                        let sent = records.into_iter().filter(|record| record.kind == Kind::Sent);
                        packets.extend(sent.map(|record| {
                            let known = numbers.get(&(log, record.flow)).copied();
                            (known.unwrap_or(record.flow), record.seq, record.size, record.a)
                        }));
                    }
                    Item::Note { .. } => {}
                    Item::Damage(_) => {
                        let text = format!("{name} is damaged: `itg-decode {name}` says where");
                        return Err(Failure::new(1, text).into());
                    }
                }
            }
        }
        packets.sort_unstable();
        Ok(packets)
    }
}

/// Flow, number, size in bytes, planned time in nanoseconds of each packet, in this order.
pub(crate) type Schedule = Vec<(u32, u64, u32, u64)>;

/// Comparison of two schedules.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Planned {
    /// Packets that both sent, with one size and one planned time.
    pub(crate) same: u64,
    /// Packets that only the first or only the second run sent: late at the end, or interrupted.
    pub(crate) alone: (u64, u64),
    /// The first packet that is planned differently.
    pub(crate) differs: Option<String>,
}

impl Planned {
    /// Compares two schedules packet by packet.
    pub(crate) fn of(a: &Schedule, b: &Schedule) -> Self {
        let mut planned = Self { same: 0, alone: (0, 0), differs: None };
        let (mut rest, mut other) = (a.as_slice(), b.as_slice());
        loop {
            match (rest, other) {
                ([], _) | (_, []) => {
                    planned.alone.0 += rest.len() as u64;
                    planned.alone.1 += other.len() as u64;
                    return planned;
                }
                ([x, xs @ ..], [y, ys @ ..]) => match (x.0, x.1).cmp(&(y.0, y.1)) {
                    std::cmp::Ordering::Less => {
                        planned.alone.0 += 1;
                        rest = xs;
                    }
                    std::cmp::Ordering::Greater => {
                        planned.alone.1 += 1;
                        other = ys;
                    }
                    std::cmp::Ordering::Equal => {
                        (rest, other) = (xs, ys);
                        if x == y {
                            planned.same += 1;
                        } else if planned.differs.is_none() {
                            let (flow, seq, size, at) = x;
                            planned.differs = Some(format!(
                                "flow {flow} packet {seq}: {size} bytes at {at} ns, and {} bytes at {} \
                                 ns",
                                y.2, y.3
                            ));
                        }
                    }
                },
            }
        }
    }

    fn to_json(&self) -> serde_json::Value {
        serde_json::json!({
            "same_packets": self.same,
            "only_first_packets": self.alone.0,
            "only_second_packets": self.alone.1,
            "first_difference": self.differs,
        })
    }
}

impl std::fmt::Display for Planned {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.differs {
            None => write!(f, "planned schedules are identical: {} packets", self.same)?,
            Some(text) => write!(f, "planned schedules differ: {text}")?,
        }
        if self.alone != (0, 0) {
            let (first, second) = self.alone;
            write!(f, "; sent only in the first run {first}, only in the second {second}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedules_are_compared_packet_by_packet() {
        let a = vec![(1, 0, 100, 0), (1, 1, 200, 50), (2, 0, 10, 7)];
        let longer = [a.clone(), vec![(2, 1, 10, 9)]].concat();
        let other = vec![(1, 0, 100, 0), (1, 1, 201, 50), (2, 0, 10, 8)];
        for (b, want) in [
            (&a, "planned schedules are identical: 3 packets"),
            (
                &longer,
                "planned schedules are identical: 3 packets; sent only in the first run 0, only in the \
                 second 1",
            ),
            (
                &other,
                "planned schedules differ: flow 1 packet 1: 200 bytes at 50 ns, and 201 bytes at 50 ns",
            ),
        ] {
            assert_eq!(Planned::of(&a, b).to_string(), want);
        }
        assert_eq!(Planned::of(&longer, &a).alone, (1, 0));
    }
}
