//! cost of sending clusters of objects. The tables of S1 (Expresso, `docs/references.md`) again, with
//! today's serialisers beside them. The graph of an experiment of 10 000 flows comes last, without assertions.
//!
//! `cargo bench -p itg-papers --bench expresso [-- --assert] [--rounds N]`
//!
//! For every graph and system: the time to encode, to transfer (in the process, Unix socket, TCP
//! loopback), to decode or validate until the root can be used, in microseconds (medians; systems
//! take turns, so that all see the same machine); bytes on the wire; bytes written by the program
//! itself on the way. Then the assertions of S1's shape and today's bars, each with its ratio. With
//! `--assert` the program fails when one of them does.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::print_stdout,
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::unwrap_used,
    reason = "a benchmark reads clocks, opens sockets, prints, and stops when something fails"
)]

mod flows;
mod link;
mod load;
mod systems;
mod threads;

use std::process::ExitCode;

use flows::Experiment;
use link::Link;
use load::{Load, Map, Tree};
use systems::{Times, systems};

/// Ways from sender to receiver, in the order of the columns.
const WAYS: [&str; 3] = ["inproc", "unix", "tcp"];

/// Medians of one system on one graph.
struct Row {
    name: &'static str,
    wire: usize,
    copied: usize,
    /// Encode, transfer, decode in nanoseconds, by way.
    ns: [[f64; 3]; 3],
}

impl Row {
    fn total(&self, way: usize) -> f64 {
        self.ns[way].iter().sum()
    }
}

struct Table {
    objects: usize,
    rows: Vec<Row>,
}

impl Table {
    fn row(&self, name: &str) -> &Row {
        self.rows.iter().find(|row| row.name == name).expect("a system of that name")
    }

    /// Ratio of the first system's time to the second's.
    fn ratio(&self, way: usize, name: &str, than: &str) -> f64 {
        self.row(name).total(way) / self.row(than).total(way)
    }
}

fn median(values: &mut [u64]) -> f64 {
    values.sort_unstable();
    values[values.len() / 2] as f64
}

fn measure<L: Load + 'static>(graph: impl Fn() -> L::Flat, rounds: usize) -> Table {
    let mut systems = systems::<L>(&graph);
    let mut links = [None, Some(Link::unix().unwrap()), Some(Link::tcp().unwrap())];
    let mut times = vec![[const { Vec::<Times>::new() }; 3]; systems.len()];
    // A tenth to warm up.
    for round in 0..rounds + rounds / 10 + 1 {
        for (system, times) in systems.iter_mut().zip(&mut times) {
            for (link, times) in links.iter_mut().zip(times) {
                let took = system.run(link.as_mut());
                if round > rounds / 10 {
                    times.push(took);
                }
            }
        }
    }
    let rows = systems.iter().zip(times).map(|(system, times)| Row {
        name: system.name(),
        wire: system.wire_len(),
        copied: system.copied(),
        ns: times.map(|times| {
            std::array::from_fn(|phase| {
                median(&mut times.iter().map(|times| times[phase]).collect::<Vec<_>>())
            })
        }),
    });
    Table { objects: L::objects(&graph()), rows: rows.collect() }
}

fn print(title: &str, table: &Table) {
    println!("\n{title}: {} objects; microseconds", table.objects);
    print!("{:<22} {:>8} {:>8} {:>8} {:>8}", "", "wire B", "copied B", "encode", "decode");
    WAYS.iter().for_each(|way| print!(" {way:>9} {:>9}", "total"));
    println!();
    for row in &table.rows {
        print!("{:<22} {:>8} {:>8}", row.name, row.wire, row.copied);
        print!(" {:>8.2} {:>8.2}", row.ns[0][0] / 1e3, row.ns[0][2] / 1e3);
        for way in 0..WAYS.len() {
            print!(" {:>9.2} {:>9.2}", row.ns[way][1] / 1e3, row.total(way) / 1e3);
        }
        println!();
    }
}

/// Prints the verdicts; true when all hold.
fn verdicts(maps: &[Table], [raw_reloc, reloc, raw_iso, iso]: [f64; 4]) -> bool {
    const INPROC: usize = 0;
    const TCP: usize = 2;
    let last = maps.last().expect("maps were measured");
    let over = |way: usize, name: &str, than: &str| -> Vec<f64> {
        maps.iter().map(|table| table.ratio(way, name, than)).collect()
    };
    let text = |ratios: &[f64]| {
        ratios.iter().map(|ratio| format!("{ratio:.2}")).collect::<Vec<_>>().join(" -> ")
    };
    let grows = |ratios: &[f64]| ratios.windows(2).all(|pair| pair[0] < pair[1]);
    let mut all = true;
    let mut say = |good: bool, what: &str, ratios: &str| {
        all &= good;
        println!("{} {what}: {ratios}", if good { "PASS" } else { "FAIL" });
    };
    println!("\nS1's shape");
    for name in ["serde_json", "bincode"] {
        let ratios = over(TCP, name, "cluster ISO");
        say(grows(&ratios), &format!("(i) {name} / ISO grows, TCP"), &text(&ratios));
    }
    let ratios = over(TCP, "cluster RELOC", "cluster ISO");
    let small = ratios.iter().all(|&ratio| ratio < 1.6);
    say(small, "(ii) RELOC / ISO is small (S1: 1.11 -> 1.33 -> 1.52), TCP", &text(&ratios));
    // S1's receiver shifts the references of a relocatable cluster. Ours has nothing to shift, and
    // validates either kind; what is left of the difference is that addresses are twice as long.
    println!(
        "{} (ii) RELOC / ISO grows, as in S1, TCP: no shifting of references here",
        if grows(&ratios) { "PASS" } else { "DIFFERS" }
    );
    for (name, raw, took, raw_took) in [
        ("cluster RELOC", "raw RELOC bytes", reloc, raw_reloc),
        ("cluster ISO", "raw ISO bytes", iso, raw_iso),
    ] {
        let what = format!("(iii) {name} <= 1.3 x write/read of as many bytes, TCP, two threads");
        let ratio = took / raw_took;
        let of = format!("{ratio:.2} ({:.1} / {:.1} us)", took / 1e3, raw_took / 1e3);
        say(ratio <= 1.3, &what, &of);
        println!("     for information, in one thread: {:.2}", last.ratio(TCP, name, raw));
    }
    let cluster = last.row("cluster RELOC");
    let sizes = |name: &str| {
        let size = cluster.wire as f64 / last.row(name).wire as f64;
        (size, last.ratio(TCP, name, "cluster RELOC"))
    };
    let (size, time) = sizes("bincode");
    let what = "(iv) RELOC <= 2 x the bytes of bincode and faster, TCP";
    say(size <= 2.0 && time > 1.0, what, &format!("{size:.2} x the bytes, {time:.1} x faster"));
    let (size, time) = sizes("postcard");
    println!("     for information, postcard: {size:.2} x the bytes, {time:.1} x faster");
    println!("\nToday's bars, {} objects, in the process", last.objects);
    for (name, bar) in [("serde_json", 20.0), ("bincode", 3.0)] {
        let ratio = last.ratio(INPROC, name, "cluster RELOC");
        say(ratio >= bar, &format!("RELOC >= {bar} x faster than {name}"), &format!("{ratio:.1}"));
    }
    for name in ["rkyv", "rkyv, checked indices"] {
        let ratio = last.ratio(INPROC, "cluster RELOC", name);
        say(ratio <= 1.2, &format!("RELOC <= 1.2 x {name}, total"), &format!("{ratio:.2}"));
        let decode = cluster.ns[INPROC][2] / last.row(name).ns[INPROC][2];
        println!("     for information, validate / {name} access alone: {decode:.2}");
    }
    all
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    let assert = args.iter().any(|arg| arg == "--assert");
    let rounds = args.iter().position(|arg| arg == "--rounds").and_then(|at| args.get(at + 1));
    let rounds = rounds.map_or(400, |text| text.parse().expect("--rounds takes a number"));
    println!("medians of {rounds} rounds; `copied` leaves out the kernel's own copies");
    let mut maps = Vec::new();
    for (towns, objects) in [(10, 29), (100, 355), (500, 1760)] {
        let table = measure::<Map>(|| load::map(towns, objects), rounds);
        let mean = load::mean_references(&load::map(towns, objects));
        print(&format!("road map, {towns} towns, {mean:.2} references an object"), &table);
        maps.push(table);
    }
    let table = measure::<Tree>(|| load::tree(1000), rounds);
    print("binary tree of integers", &table);
    // Six times the objects of the largest map, so a sixth of the rounds.
    let table = measure::<Experiment>(|| flows::experiment(100, 10_000), rounds / 6 + 1);
    print("experiment of 10 000 flows between 100 nodes", &table);
    let threads = threads::over_tcp(500, 1760, rounds).expect("TCP on the loopback");
    let good = verdicts(&maps, threads);
    if good || !assert { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
