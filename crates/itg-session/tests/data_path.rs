//! The path of the data under simulation: sender, receiver and log server with their clocks, disks and networks in one
//! world of virtual time, under faults that each seed draws, with what must hold checked at each step.
//!
//! Of the product are: both sessions' machines and messages, the packet header, the pacer, the account of arrivals,
//! records and blocks and their reader, the producer of a remote log with its spool and its frames, the log server's
//! sessions, book and files, and what a log file keeps of a block that could not be written. Of the simulation are the
//! drivers around them: sockets, threads, and the queue between a packet thread and its log's writer (`logs.rs`).
//!
//! Without arguments: 1000 seeds, and each planted fault until it is found, within 200 seeds. `--seed S [--planted F]
//! [--tail]` runs one seed, and prints its last lines; `--seeds N [--from S]` is a sweep; `--planted` prints the table
//! of planted faults and the seeds that it took to find them. `ITG_DATA_PATH_SEEDS` is the number of seeds of the run
//! without arguments.

#![allow(clippy::print_stdout, reason = "a program of its own: it prints what it finds")]
#![allow(missing_docs, unreachable_pub, reason = "parts of a test program")]
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "small numbers of a simulation"
)]

mod path_world;

use std::collections::BTreeMap;
use std::process::ExitCode;

use path_world::planted::Planted;
use path_world::world::World;

/// Seeds of a run without arguments.
const SEEDS: u64 = 1000;
/// Seeds that failed once: each run without arguments has them.
const FAILED_ONCE: [u64; 2] = [
    // A loss of power left blocks of one log in a spool beside the index of another one.
    4_060_099,
    // A block was cut off, and told as missing, and came back with a loss of power.
    4_098_100,
];
/// Seeds within which a planted fault is found.
const MOST: u64 = 200;
/// Lines that `--tail` prints.
const TAIL: usize = 400;
/// Situations that a sweep must have seen.
const SOMETIMES: [&str; 14] = [
    "a block came twice",
    "a clock was set",
    "a flow was counted by its sender alone",
    "a log could not be opened",
    "a session failed",
    "a session was done",
    "a spool was sent on",
    "an experiment was closed",
    "flows were given up",
    "it is damaged",
    "the log server lost its power",
    "the log server was shut down",
    "the log server's disk was full",
    "the sender was killed",
];

struct Found {
    violation: Option<String>,
    events: u64,
    records: u64,
    virtual_s: u64,
    seen: Vec<&'static str>,
}

fn run(seed: u64, planted: Option<Planted>, tail: bool) -> Found {
    let mut world = World::new(seed, planted, tail);
    if tail {
        println!("{:#?}", world.plan);
    }
    world.run();
    for line in world.lines.iter().flatten().rev().take(TAIL).collect::<Vec<_>>().iter().rev() {
        println!("{line}");
    }
    Found {
        violation: world.violations.first().cloned(),
        events: world.events,
        records: world.truth.records,
        virtual_s: world.now / 1_000_000_000,
        seen: world.seen.iter().copied().collect(),
    }
}

fn command(seed: u64, planted: Option<Planted>) -> String {
    let planted = planted.map_or_else(String::new, |planted| format!(" --planted {planted:?}"));
    format!("cargo test -p itg-session --test data_path -- --seed {seed}{planted} --tail")
}

fn one(seed: u64, planted: Option<Planted>, tail: bool) -> bool {
    let found = run(seed, planted, tail);
    if let Some(violation) = &found.violation {
        println!("seed {seed}: {violation}\nreplay: {}", command(seed, planted));
    } else {
        println!("seed {seed}: no violation, {} events", found.events);
    }
    found.violation.is_none()
}

fn sweep(seeds: impl Iterator<Item = u64>) -> bool {
    let (mut count, mut bad, mut events, mut records, mut virtual_s) = (0, 0, 0, 0, 0);
    let mut seen = BTreeMap::<&str, u64>::new();
    for seed in seeds {
        let found = run(seed, None, false);
        (count, events) = (count + 1, events + found.events);
        (records, virtual_s) = (records + found.records, virtual_s + found.virtual_s);
        found.seen.into_iter().for_each(|what| *seen.entry(what).or_default() += 1);
        if let Some(violation) = found.violation {
            bad += 1;
            println!("seed {seed}: {violation}\nreplay: {}", command(seed, None));
        }
    }
    for what in SOMETIMES.iter().filter(|what| count >= SEEDS && !seen.contains_key(*what)) {
        bad += 1;
        println!("never seen: {what}");
    }
    println!(
        "{count} seeds: {bad} violations, {events} events, {records} records in files, {virtual_s} s of virtual time; \
         seen {seen:#?}"
    );
    bad == 0
}

fn hunt(planted: Planted) -> bool {
    let found = (0..MOST).find_map(|seed| Some((seed, run(seed, Some(planted), false).violation?)));
    match &found {
        Some((seed, violation)) => println!("{planted:?}: found with seed {seed}: {violation}"),
        None => println!("{planted:?}: not found within {MOST} seeds"),
    }
    found.is_some()
}

fn hunt_all() -> bool {
    Planted::ALL.into_iter().filter(|planted| !hunt(*planted)).count() == 0
}

/// The value behind a word of the command line.
fn value<'a>(args: &'a [String], word: &str) -> Option<&'a str> {
    let at = args.iter().position(|arg| arg == word)?;
    args.get(at + 1).map(String::as_str)
}

fn number(text: &str) -> u64 {
    text.parse().unwrap_or_else(|_| panic!("`{text}` is no number"))
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let planted = value(&args, "--planted").map(|name| {
        let named = Planted::ALL.into_iter().find(|planted| format!("{planted:?}") == name);
        named.unwrap_or_else(|| panic!("no planted fault `{name}`"))
    });
    let from = value(&args, "--from").map_or(0, number);
    let well = if let Some(seed) = value(&args, "--seed").map(number) {
        one(seed, planted, args.iter().any(|arg| arg == "--tail"))
    } else if let Some(seeds) = value(&args, "--seeds").map(number) {
        sweep(from..from + seeds)
    } else if args.iter().any(|arg| arg == "--planted") {
        hunt_all()
    } else if args.iter().any(|arg| arg == "--list" || !arg.starts_with("--")) {
        // Names of other tests, and lists of them, are not meant for this program.
        true
    } else {
        #[expect(clippy::disallowed_methods, reason = "the number of seeds of a gate run")]
        let seeds = std::env::var("ITG_DATA_PATH_SEEDS").map_or(SEEDS, |text| number(&text));
        let swept = sweep((0..seeds).chain(FAILED_ONCE));
        hunt_all() && swept
    };
    if well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
