//! Speed of `itg-decode` beside ITGDec: whole processes, started anew, their files in the page
//! cache.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use itg_testkit::child::Running;
use itg_trials::{Claim, Estimate, Lines, order, print, ratio, with_interval};
use nix::sys::resource::{UsageWho, getrusage};
use nix::unistd::sync;

use crate::made_logs::{self, LogContents, Made};
use crate::programs::{Programs, installed, memory};

/// The bars of the decoder.
const SUMMARY_RATIO: f64 = 100.0;
const SUMMARY_RATE: f64 = 40.0;
const LINES_RATE: f64 = 12.0;
const PEAK_MIB: f64 = 64.0;
const CSV_RATIO: f64 = 20.0;
const HTML_SECONDS: f64 = 3.0;
/// Logs that are read in one pass, together as long as the one.
const LOGS: u64 = 100;
/// Time that a program may take.
const LIMIT: Duration = Duration::from_secs(900);

/// Options of `decode`.
#[derive(Debug, Args)]
pub(crate) struct DecodeArgs {
    /// Packets sent in the run whose logs are decoded
    #[arg(long, value_name = "N", default_value_t = 10_000_000, value_parser = clap::value_parser!(u64).range(1_000..))]
    records: u64,
    /// Flows in it
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    flows: u32,
    /// Inter-departure times of its packets
    #[arg(long, value_name = "DIST", default_value = "exp(10us)")]
    idt: String,
    /// Sizes of its packets
    #[arg(long, value_name = "DIST", default_value = "constant(512)")]
    size: String,
    /// Trials of each setting
    #[arg(long, value_name = "N", default_value_t = 7)]
    trials: usize,
    /// A million packets, 3 trials: a look, no measurement
    #[arg(long)]
    quick: bool,
    /// Write the logs into this directory and keep them [default: a temporary one]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// A command in its own process, which tells how long it took and how much memory: the system keeps
/// the peak of all children of a process together, so there is only this one.
#[derive(Debug, Args)]
pub(crate) struct MeasuredArgs {
    /// The command
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    command: Vec<OsString>,
}

/// Runs the command; prints nanoseconds and KiB.
pub(crate) fn measured(args: &MeasuredArgs) -> Result<()> {
    let (program, words) = args.command.split_first().context("a command")?;
    let mut command = Command::new(program);
    command.args(words).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let started = Instant::now();
    let status = command.status().with_context(|| format!("starting {}", program.display()))?;
    let took = started.elapsed();
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    ensure!(status.success(), "{} ended with {status}", program.display());
    print(format_args!("{} {}", took.as_nanos(), usage.max_rss()));
    Ok(())
}

/// Time that a command takes, and the most memory that it has, in MiB.
pub(crate) fn measure<W: AsRef<OsStr>>(words: &[W]) -> Result<(Duration, f64)> {
    let own = std::env::current_exe().context("the path of this program")?;
    let mut command = Command::new(own);
    command.arg("measured").arg("--").args(words);
    let done = Running::spawn(&mut command, &[])?.wait(LIMIT)?.ended_with(&[0])?;
    let mut figures = done.out.split_whitespace().map(str::parse::<u64>);
    let (Some(Ok(ns)), Some(Ok(kib))) = (figures.next(), figures.next()) else {
        anyhow::bail!("`{}` said {:?}", done.command, done.out);
    };
    Ok((Duration::from_nanos(ns), kib as f64 / 1024.0))
}

/// One task of one program.
struct Task {
    what: &'static str,
    program: &'static str,
    command: Vec<OsString>,
    /// Records in its logs.
    records: u64,
    /// The task that it is set against, by its place in the list.
    against: Option<usize>,
    seconds: Vec<f64>,
    peak_mib: f64,
}

impl Task {
    fn new(
        what: &'static str,
        program: &'static str,
        records: u64,
        against: Option<usize>,
        path: &Path,
        words: &[&dyn AsRef<OsStr>],
    ) -> Self {
        let words = words.iter().map(|word| word.as_ref().to_owned());
        let command = std::iter::once(path.as_os_str().to_owned()).chain(words).collect();
        Self { what, program, command, records, against, seconds: Vec::new(), peak_mib: 0.0 }
    }

    fn run(&mut self, counted: bool) -> Result<()> {
        let (took, peak_mib) = measure(&self.command)?;
        if counted {
            self.seconds.push(took.as_secs_f64());
            self.peak_mib = self.peak_mib.max(peak_mib);
        }
        Ok(())
    }

    /// Millions of records a second.
    fn rates(&self) -> Vec<f64> {
        self.seconds.iter().map(|seconds| self.records as f64 / seconds / 1e6).collect()
    }
}

pub(crate) fn run(args: &DecodeArgs) -> Result<()> {
    let programs = Programs::with(&["itg-decode"])?;
    let kept = args.dir.clone();
    let temporary = tempfile::tempdir().context("a directory for logs")?;
    let dir = kept.as_deref().unwrap_or_else(|| temporary.path());
    std::fs::create_dir_all(dir).with_context(|| dir.display().to_string())?;
    let packets = if args.quick { args.records.min(1_000_000) } else { args.records };
    let trials = if args.quick { 3 } else { args.trials.max(1) };
    let (idt, size) = (args.idt.clone(), args.size.clone());
    let wish = LogContents { run: "c0ffee".to_owned(), packets, flows: args.flows, idt, size };
    let made = made_logs::write(dir, &wish)?;
    let many = (1..=LOGS).map(|number| {
        let dir = dir.join(number.to_string());
        std::fs::create_dir_all(&dir).with_context(|| dir.display().to_string())?;
        let (run, packets) = (format!("{number:x}"), packets / LOGS);
        made_logs::write(&dir, &LogContents { run, packets, ..wish.clone() })
    });
    let many: Vec<Made> = many.collect::<Result<_>>()?;
    let peer = installed("ITGDec").then(|| dir.join("recv.ditg"));
    if let Some(log) = &peer {
        let mut command = Command::new(programs.path("itg-decode"));
        command.arg("-q").arg(&made.receiver).args(["--format", "ditg", "--output"]).arg(log);
        Running::spawn(&mut command, &[])?.wait(LIMIT)?.ended_with(&[0])?;
    } else {
        print("ITGDec is not installed (Debian: d-itg), so nothing stands beside us: no ratios");
    }
    print(format_args!(
        "{packets} packets in {} flow(s), gaps {}, sizes {}: {} records at the receiver; {trials} trials, \
         each a new process, files in the page cache",
        args.flows, args.idt, args.size, made.arrived
    ));
    let fast = tempfile::Builder::new().prefix("itg-bench-").tempdir_in(memory())?;
    let mut tasks = tasks(&programs, &made, packets, peer.as_deref(), (dir, fast.path()));
    let logs: Vec<&dyn AsRef<OsStr>> = many.iter().map(|made| &made.receiver as _).collect();
    let arrived = many.iter().map(|made| made.arrived).sum();
    let ours = programs.path("itg-decode");
    let options: [(_, &[&dyn AsRef<OsStr>]); 2] =
        [(MANY, &[&"-q"]), (MANY_UNPLANNED, &[&"-q", &"--plan-packets", &"0"])];
    for (what, options) in options {
        let words = [options, &logs].concat();
        tasks.push(Task::new(what, "itg-decode", arrived, None, &ours, &words));
    }
    // The first round brings everything into the page cache.
    for round in 0..=trials {
        for at in order(tasks.len(), round) {
            // What the one before has written is not written while this one runs.
            sync();
            tasks[at].run(round > 0)?;
        }
    }
    print(table(&tasks));
    bars(&tasks);
    Ok(())
}

/// Tasks to measure, with a directory of this host's disk and one in memory; ITGDec's come before those compared with
/// them.
fn tasks(
    programs: &Programs,
    made: &Made,
    packets: u64,
    peer: Option<&Path>,
    (dir, fast): (&Path, &Path),
) -> Vec<Task> {
    let ours = programs.path("itg-decode");
    let (csv, html, list) = (dir.join("packets.csv"), dir.join("page.html"), dir.join("list.txt"));
    let Made { sender, receiver, arrived } = made;
    let mut tasks = Vec::new();
    if let Some(log) = peer {
        let theirs = Path::new("ITGDec");
        tasks.push(Task::new(SUMMARY, "ITGDec", *arrived, None, theirs, &[&log]));
        tasks.push(Task::new(PACKETS, "ITGDec -l", *arrived, None, theirs, &[&log, &"-l", &list]));
    }
    let against = |place| peer.map(|_| place);
    let mut add = |what, records, place, words: &[&dyn AsRef<OsStr>]| {
        tasks.push(Task::new(what, "itg-decode", records, place, &ours, words));
    };
    add(SUMMARY, *arrived, against(0), &[&"-q", receiver]);
    add("summary, sender's log", packets, None, &[&"-q", sender]);
    add(BOTH, packets + arrived, against(0), &[&"-q", sender, receiver]);
    let to_csv = ["--packets", "--format", "csv", "--output"];
    let [a, b, c, d] = &to_csv;
    add(PACKETS, *arrived, against(1), &[&"-q", receiver, a, b, c, d, &csv]);
    add(IN_MEMORY, *arrived, None, &[&"-q", receiver, a, b, c, d, &fast.join("packets.csv")]);
    add(HTML, *arrived, None, &[&"-q", receiver, &"--html", &html]);
    // As many bytes as the file of lines has; it is there after the first round's.
    let zeros = dir.join("zeros");
    let script =
        "dd if=/dev/zero of=\"$2\" bs=1M count=$(($(stat -c %s \"$1\") >> 20)) status=none";
    let words: [&dyn AsRef<OsStr>; 5] = [&"-c", &script, &"sh", &csv, &zeros];
    tasks.push(Task::new(ZEROS, "dd", *arrived, None, Path::new("sh"), &words));
    tasks
}

const SUMMARY: &str = "summary, receiver's log";
const BOTH: &str = "summary, both logs";
const MANY: &str = "summary, 100 receivers' logs in one pass";
/// The plan of each flow, of which no log of its sender is given, is not drawn again.
const MANY_UNPLANNED: &str = "the same without their plans";
const PACKETS: &str = "a line a packet";
const IN_MEMORY: &str = "a line a packet, to memory";
const HTML: &str = "HTML page";
const ZEROS: &str = "zeros, as many bytes as these lines";

fn table(tasks: &[Task]) -> Lines {
    let header = ["", "program", "s", "M records/s", "x ITGDec, same round", "peak MiB"];
    let mut lines = Lines::new(header);
    for task in tasks {
        let against = task.against.map(|place| ratio(&task.rates(), &tasks[place].rates()));
        lines.row([
            task.what.to_owned(),
            task.program.to_owned(),
            with_interval(Estimate::of(&task.seconds), 3),
            with_interval(Estimate::of(&task.rates()), 2),
            against.map_or_else(String::new, |ratio| with_interval(ratio, 1)),
            format!("{:.1}", task.peak_mib),
        ]);
    }
    lines
}

/// Prints which bars hold.
fn bars(tasks: &[Task]) {
    let of = |what, program| tasks.iter().find(|task| task.what == what && task.program == program);
    if let (Some(lines), Some(zeros)) = (of(PACKETS, "itg-decode"), of(ZEROS, "dd")) {
        let part = with_interval(ratio(&lines.rates(), &zeros.rates()), 2);
        print(format_args!("{PACKETS}: {part} of what this directory takes of zeros"));
    }
    for task in tasks.iter().filter(|task| task.program == "itg-decode") {
        let against = task.against.map(|place| ratio(&task.rates(), &tasks[place].rates()).mid);
        let least = if task.what == PACKETS { CSV_RATIO } else { SUMMARY_RATIO };
        if let Some(got) = against {
            print(Claim::new(
                got >= least,
                &format!("{}: {got:.1} >= {least} x ITGDec", task.what),
            ));
        }
        if task.what == HTML {
            let got = Estimate::of(&task.seconds).mid;
            print(Claim::new(got < HTML_SECONDS, &format!("{HTML}: {got:.2} < {HTML_SECONDS} s")));
        } else if task.what == IN_MEMORY {
            let got = Estimate::of(&task.rates()).mid;
            print(Claim::new(
                got >= LINES_RATE,
                &format!("{IN_MEMORY}: {got:.1} >= {LINES_RATE} M lines/s"),
            ));
        } else if ![PACKETS, MANY_UNPLANNED].contains(&task.what) {
            let (got, peak) = (Estimate::of(&task.rates()).mid, task.peak_mib);
            let what = format!("{}: {got:.1} >= {SUMMARY_RATE} M records/s", task.what);
            print(Claim::new(got >= SUMMARY_RATE, &what));
            let what = format!("{}: peak {peak:.1} <= {PEAK_MIB} MiB", task.what);
            print(Claim::new(peak <= PEAK_MIB, &what));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_set_against_those_of_the_same_round() {
        let task = |against, seconds: &[f64]| Task {
            seconds: seconds.to_vec(),
            ..Task::new(SUMMARY, "itg-decode", 10_000_000, against, Path::new("x"), &[])
        };
        let tasks = [task(None, &[10.0, 20.0, 10.0]), task(Some(0), &[0.5, 1.0, 0.5])];
        let rows: Vec<String> = table(&tasks).to_string().lines().map(str::to_owned).collect();
        assert!(rows[2].contains("1.00 [0.50, 1.00]") && rows[3].contains(" 20.0 |"), "{rows:#?}");
    }
}
