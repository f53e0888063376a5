//! Runs that survive a night: five agents and a console on hosts of their own, a plan with a duration, and a fault that
//! is drawn from a seed. Whatever happens, the run ends in time, its account adds up, and there is a report.
//!
//! Environment variables choose what is run by hand: `ITG_NIGHT_RUNS` (number of runs), `ITG_NIGHT_SEED` (the first
//! seed), `ITG_NIGHT_SECONDS` (duration of the plan), `ITG_NIGHT_AT_ONCE`, and `ITG_NIGHT_DONE`, a file that has a line
//! for each run that went right: those are left out when it is given again.
#![allow(missing_docs, clippy::print_stdout, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use itg_record::Kind;
use itg_tests::{Cluster, Fault, Harm, NFT, Output, Running, each_record, leave_out, not_run};
use serde_json::Value;

const NODES: usize = 5;
const LEASE: Duration = Duration::from_secs(2);
/// Time beyond plan and lease after which flows are given up.
const PATIENCE: Duration = Duration::from_secs(30);
/// Time that logs may take behind that: some nodes do not answer, and this machine does other things, too.
const SLACK: Duration = Duration::from_secs(30);
/// Time in which a child that hangs is killed.
const LIMIT: Duration = Duration::from_secs(200);

/// Settings from the environment.
struct Settings {
    runs: u64,
    first: u64,
    plan: Duration,
    at_once: u64,
    done: Option<PathBuf>,
}

impl Settings {
    fn read() -> Self {
        let number = |name: &str, usual: u64| {
            let text = std::env::var(format!("ITG_NIGHT_{name}")).ok();
            text.map_or(usual, |text| text.parse().unwrap_or_else(|_| panic!("{name}: `{text}`")))
        };
        Self {
            runs: number("RUNS", 10),
            first: number("SEED", 0),
            plan: Duration::from_secs(number("SECONDS", 7)),
            at_once: number("AT_ONCE", 4),
            done: std::env::var_os("ITG_NIGHT_DONE").map(PathBuf::from),
        }
    }

    /// Seeds that have not gone right yet.
    fn seeds(&self) -> VecDeque<u64> {
        let text = self.done.as_ref().map(|path| fs::read_to_string(path).unwrap_or_default());
        let done: BTreeSet<u64> =
            text.iter().flat_map(|text| text.lines()).filter_map(seed).collect();
        (self.first..self.first + self.runs).filter(|seed| !done.contains(seed)).collect()
    }

    /// Notes that a run went right.
    fn note(&self, seed: u64, line: &str) {
        println!("seed {seed}: {line}");
        let Some(path) = &self.done else { return };
        let mut file = OpenOptions::new().create(true).append(true).open(path).expect("a file");
        writeln!(file, "{seed} {line}").expect("written");
    }
}

fn seed(line: &str) -> Option<u64> {
    line.split(' ').next()?.parse().ok()
}

fn name(node: usize) -> char {
    char::from(b'a' + u8::try_from(node % NODES).expect("small"))
}

/// Nodes of the sender and of the receiver of a flow.
fn ends(flow: u64) -> (usize, usize) {
    let before = usize::try_from(flow - 1).expect("small");
    (before / 2, before / 2 + 1 + before % 2)
}

/// Two flows from each node, those with odd numbers at equal distances.
fn flows(plan: Duration) -> String {
    let mut text = String::new();
    for node in 0..NODES {
        for (ahead, idt) in [(1, "constant(10ms)"), (2, "exp(10ms)")] {
            let (from, to) = (name(node), name(node + ahead));
            writeln!(text, "[[flow]]\nfrom = \"{from}\"\nto = \"{to}\"\nidt = \"{idt}\"")
                .expect("text");
            writeln!(text, "size = \"constant(120)\"\nduration = \"{} s\"", plan.as_secs())
                .expect("text");
        }
    }
    text
}

/// By flow: numbers that are in the logs as sent, and as received.
type Numbers = BTreeMap<u64, [BTreeSet<u64>; 2]>;

/// Numbers in the logs below a directory; and those that are there twice.
fn numbers(dir: &Path) -> (Numbers, Vec<String>) {
    let (mut numbers, mut twice) = (Numbers::new(), Vec::new());
    each_record(dir, |path, flow, record| {
        let side = usize::from(record.kind != Kind::Sent);
        if !numbers.entry(u64::from(flow)).or_default()[side].insert(record.seq) {
            twice.push(format!("flow {flow} #{} in {}", record.seq, path.display()));
        }
    });
    (numbers, twice)
}

/// What is wrong with a run.
type Wrong = Vec<String>;

/// Parts of an account, `None` where one is not known: then there is its reason.
fn parts(account: &Value, names: &[&str], wrong: &mut Wrong, flow: &str) -> Option<u64> {
    let mut sum = Some(0);
    for name in names {
        let value = name.split('.').fold(account, |value, key| &value[key]);
        if value.is_null() && !account["why"][*name].is_string() {
            wrong.push(format!("{flow}: {name} is not known, without a reason: {account}"));
        }
        sum = sum.zip(value.as_u64()).map(|(sum, part)| sum + part);
    }
    sum
}

/// The accounts of a report add up, and are not contradicted by the logs. Returns the flows of the report, the packets
/// that were planned, and those that were not sent for lack of an owner, or of a kernel that takes them.
fn accounts(
    report: &Value,
    numbers: &Numbers,
    plan: Duration,
    wrong: &mut Wrong,
) -> (BTreeSet<u64>, u64, u64) {
    let (mut of_all, mut missing) = (0, 0);
    let senders = report["flows"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut seen = BTreeSet::new();
    for entry in senders.iter().filter(|entry| entry["account"].is_object()) {
        let (number, account) = (entry["flow"].as_u64().expect("a number"), &entry["account"]);
        let flow = format!("flow {number} ({})", entry["side"].as_str().unwrap_or_default());
        let mut sum = |names: &[&str]| parts(account, names, wrong, &flow);
        let planned = sum(&["planned"]);
        let sent = sum(&["sent"]);
        let turns = sum(&["sent", "refused", "left_out", "not_reached"]);
        let came = sum(&[
            "arrived",
            "lost.socket",
            "lost.checksum",
            "lost.too_late",
            "lost.network",
            "lost.unknown",
        ]);
        let unsent = sum(&["refused", "not_reached"]);
        let arrived = sum(&["arrived"]);
        let left_out = sum(&["left_out"]);
        if planned.zip(turns).is_some_and(|(planned, turns)| planned != turns) {
            wrong.push(format!("{flow}: planned {planned:?}, {turns:?} in its parts: {account}"));
        }
        if sent.zip(came).is_some_and(|(sent, came)| sent != came) {
            wrong.push(format!("{flow}: sent {sent:?}, {came:?} in its parts: {account}"));
        }
        let none = Default::default();
        let [in_senders, in_receivers] = numbers.get(&number).unwrap_or(&none);
        let both = in_senders.union(in_receivers).count() as u64;
        if sent.is_some_and(|sent| sent < both) {
            wrong.push(format!("{flow}: sent {sent:?}, but {both} are in the logs: {account}"));
        }
        if arrived.is_some_and(|arrived| arrived < in_receivers.len() as u64) {
            wrong.push(format!(
                "{flow}: arrived {arrived:?} of {} in the log: {account}",
                in_receivers.len()
            ));
        }
        if !seen.insert(number) {
            continue;
        }
        let constant = number % 2 == 1;
        if constant && planned.is_some_and(|planned| planned != plan.as_secs() * 100) {
            wrong.push(format!("{flow}: {planned:?} planned"));
        }
        let known = planned.unwrap_or(plan.as_secs() * 100);
        of_all += known;
        // Where it is not known, the logs tell.
        let unknown = || known.saturating_sub(both + left_out.unwrap_or(0));
        missing += unsent.unwrap_or_else(unknown);
    }
    (seen, of_all, missing)
}

/// The report of a run, made by the command that the console names where there is none; and its directory.
fn report(cluster: &Cluster, done: &Output, wrong: &mut Wrong) -> Option<(PathBuf, Value)> {
    let read = |dir: &Path| {
        let text = fs::read_to_string(dir.join("report.json")).ok()?;
        Some((dir.to_owned(), serde_json::from_str(&text).expect("JSON")))
    };
    if let Some(found) = read(&cluster.path("out")) {
        return Some(found);
    }
    let Some((_, command)) = done.err.split_once("itg-cluster fetch ") else {
        wrong.push("no report, and no command that makes it".to_owned());
        return None;
    };
    // Agents may still see the end of their flows.
    thread::sleep(Duration::from_secs(15));
    let out = cluster.path("fetched");
    let mut fetch = cluster.terminal();
    fetch.arg("fetch").args(command.lines().next().unwrap_or_default().split(' '));
    let fetched = Running::start(fetch.arg("--out").arg(&out)).finish(LIMIT);
    let found = read(&out);
    if found.is_none() {
        wrong.push(format!("the command that was named makes no report: {fetched}"));
    }
    found
}

/// Judges a run that has ended; a line about one that went right.
fn judge(cluster: &Cluster, plan: Duration, done: &Output) -> Result<String, String> {
    let mut wrong = Wrong::new();
    let mut line = format!("code {:?}", done.code);
    if let Some((dir, report)) = report(cluster, done, &mut wrong) {
        let (numbers, twice) = numbers(&dir);
        if !twice.is_empty() {
            wrong.push(format!(
                "{} packets twice: {:?}",
                twice.len(),
                &twice[..twice.len().min(9)]
            ));
        }
        let (seen, planned, missing) = accounts(&report, &numbers, plan, &mut wrong);
        // A flow is in no report where neither node has given its logs, which is said.
        let lost = |node| done.err.contains(&format!("logs of node {}: ", name(node)));
        for flow in (1..=2 * NODES as u64).filter(|flow| !seen.contains(flow)) {
            let (from, to) = ends(flow);
            if !lost(from) || !lost(to) {
                wrong.push(format!("flow {flow} is not in the report"));
            }
        }
        let share = 100.0 * missing as f64 / planned.max(1) as f64;
        write!(line, ", {missing} of {planned} not sent ({share:.2} %)").expect("text");
        match done.code {
            Some(0) if missing * 100 > planned => wrong.push(format!("exit code 0: {line}")),
            Some(0 | 4) => {}
            // Nothing could be agreed, or the console itself failed: it has said how the report is made.
            Some(3) if !cluster.path("out/report.json").exists() => {}
            _ => wrong.push(format!("exit {line}")),
        }
    }
    if wrong.is_empty() { Ok(line) } else { Err(wrong.join("\n")) }
}

/// One run, with one fault; of one that is `alone` all is told.
fn night(seed: u64, plan: Duration, alone: bool) -> Result<String, String> {
    let fault = Fault::draw(seed, NODES, plan);
    let mut cluster = Cluster::apart(NODES);
    let mut harm = Harm::prepare(fault, &mut cluster);
    let run = cluster.run(&flows(plan), &[]);
    drop(run.line_with("all nodes are ready", LIMIT));
    let (began, pid, over) = (Instant::now(), run.pid(), AtomicBool::new(false));
    let (done, took) = thread::scope(|scope| {
        let doing = scope.spawn(|| harm.carry_out(&mut cluster, pid, &over));
        let done = run.wait(LIMIT + plan);
        let took = began.elapsed();
        over.store(true, Ordering::Relaxed);
        doing.join().expect("the fault is carried out");
        (done, took)
    });
    harm.mend(&cluster);
    let words = |text: &str| {
        let lines: Vec<&str> = text.lines().rev().take(40).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join("\n")
    };
    let mut said = harm.others();
    said.extend(cluster.agents.iter().flatten().map(Running::err));
    let said: Vec<String> = said.iter().map(|text| words(text)).collect();
    let told = |why: String| format!("{fault:?}\n{why}\n-- agents\n{}", said.join("\n--\n"));
    let done = done.map_err(|error| told(format!("{error:#}")))?;
    let limit = plan + LEASE + PATIENCE + SLACK + fault.holds_console();
    if took > limit {
        return Err(told(format!("it took {took:?}, more than {limit:?}: {done}")));
    }
    match judge(&cluster, plan, &done) {
        Ok(line) if alone => Ok(told(format!("{line}, {:.1} s\n{done}", took.as_secs_f64()))),
        Ok(line) => Ok(format!("{fault:?}: {line}, {:.1} s", took.as_secs_f64())),
        Err(wrong) => Err(told(format!("{wrong}\n{done}"))),
    }
}

#[test]
fn a_run_with_a_random_fault_ends_with_a_report_that_adds_up() {
    if not_run() {
        return;
    }
    if !Path::new(NFT).exists() {
        return leave_out(NFT);
    }
    let settings = Settings::read();
    let (seeds, failed) = (Mutex::new(settings.seeds()), Mutex::new(Vec::new()));
    let next = || seeds.lock().expect("no panic here").pop_front();
    thread::scope(|scope| {
        for _ in 0..settings.at_once {
            scope.spawn(|| {
                while let Some(seed) = next() {
                    let ended = panic::catch_unwind(AssertUnwindSafe(|| night(seed, settings.plan, settings.runs == 1)));
                    match ended.unwrap_or_else(|_| Err("a panic, see above".to_owned())) {
                        Ok(line) => settings.note(seed, &line),
                        Err(why) => {
                            println!(
                                "== seed {seed} failed: {why}\nagain: ITG_NIGHT_RUNS=1 ITG_NIGHT_SEED={seed} \
                                 ITG_NIGHT_SECONDS={} cargo test -p itg-tests-long --test privileged_night\n",
                                settings.plan.as_secs()
                            );
                            failed.lock().expect("no panic here").push(seed);
                        }
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().expect("no panic here");
    assert!(failed.is_empty(), "seeds that failed (see above): {failed:?}");
}
