//! cost of sending clusters of objects. The tables of S1 (Expresso, `docs/references.md`) again, with
//! today's serialisers beside them. The graph of an experiment of 10 000 flows comes last, without assertions.
//!
//! For every graph and system: the time to encode, to transfer (in the process, Unix socket, TCP
//! loopback), to decode or validate until the root can be used, in microseconds (medians; systems
//! take turns, so that all see the same machine); bytes on the wire; bytes written by the program
//! itself on the way. Then the assertions of S1's shape and today's bars, each with its ratio.
#![allow(
    clippy::cast_possible_truncation,
    clippy::unwrap_used,
    reason = "a measurement in this process stops when something fails"
)]

mod flows;
mod link;
mod load;
mod systems;
mod threads;

use anyhow::Result;
use clap::Args;
use itg_trials::{Claim, Lines, print};

use crate::flows::Experiment;
use crate::link::Link;
use crate::load::{Load, Map, Tree};
use crate::systems::{Times, systems};

/// Cost of sending objects.
#[derive(Debug, Args)]
pub struct Options {
    /// Messages of each system and graph by each way
    #[arg(long, value_name = "N", default_value_t = 400, value_parser = clap::value_parser!(u32).range(10..=1_000_000))]
    rounds: u32,
}

/// Ways from sender to receiver, in the order of the columns.
const WAYS: [&str; 3] = ["in process", "Unix", "TCP"];

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

fn show(title: &str, table: &Table) {
    let mut header =
        ["", "bytes sent", "bytes copied", "encode", "decode"].map(str::to_owned).to_vec();
    header.extend(WAYS.iter().flat_map(|way| [format!("{way}: transfer"), "total".to_owned()]));
    let mut lines = Lines::new(header);
    let us = |ns: f64| format!("{:.2}", ns / 1e3);
    for row in &table.rows {
        let mut cells = vec![row.name.to_owned(), row.wire.to_string(), row.copied.to_string()];
        cells.extend([us(row.ns[0][0]), us(row.ns[0][2])]);
        cells.extend((0..WAYS.len()).flat_map(|way| [us(row.ns[way][1]), us(row.total(way))]));
        lines.row(cells);
    }
    print(format_args!("\n{title}: {} objects; microseconds\n\n{lines}", table.objects));
}

/// Prints the shape of S1 and today's bars, and whether they hold.
fn claims(maps: &[Table], [raw_reloc, reloc, raw_iso, iso]: [f64; 4]) {
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
    let say = |good: bool, what: &str, ratios: &str| {
        print(Claim::new(good, &format!("{what}: {ratios}")))
    };
    print("");
    for name in ["serde_json", "bincode"] {
        let ratios = over(TCP, name, "cluster ISO");
        say(
            grows(&ratios),
            &format!("(i) {name} / ISO grows with the objects, TCP"),
            &text(&ratios),
        );
    }
    let ratios = over(TCP, "cluster RELOC", "cluster ISO");
    let small = ratios.iter().all(|&ratio| ratio < 1.6);
    say(small, "(ii) RELOC / ISO is small, TCP (S1: 1.11 -> 1.33 -> 1.52)", &text(&ratios));
    // S1's receiver shifts the references of a relocatable cluster. Ours has nothing to shift, and
    // validates either kind; what is left of the difference is that addresses are twice as long.
    say(
        grows(&ratios),
        "(ii) RELOC / ISO grows with the objects, TCP; nothing is shifted here",
        &text(&ratios),
    );
    for (name, raw, took, raw_took) in [
        ("cluster RELOC", "raw RELOC bytes", reloc, raw_reloc),
        ("cluster ISO", "raw ISO bytes", iso, raw_iso),
    ] {
        let what = format!("(iii) {name} <= 1.3 x write/read of as many bytes, TCP, two threads");
        let ratio = took / raw_took;
        let alone = last.ratio(TCP, name, raw);
        let of = format!(
            "{ratio:.2} ({:.1} / {:.1} µs; in one thread {alone:.2})",
            took / 1e3,
            raw_took / 1e3
        );
        say(ratio <= 1.3, &what, &of);
    }
    let cluster = last.row("cluster RELOC");
    let sizes = |name: &str| {
        let size = cluster.wire as f64 / last.row(name).wire as f64;
        (size, last.ratio(TCP, name, "cluster RELOC"))
    };
    let ((size, time), (small, quick)) = (sizes("bincode"), sizes("postcard"));
    say(
        size <= 2.0 && time > 1.0,
        "(iv) RELOC <= 2 x the bytes of bincode and faster, TCP",
        &format!(
            "{size:.2} x the bytes, {time:.1} x faster; postcard: {small:.2} x, {quick:.1} x faster"
        ),
    );
    let of_last = format!("in the process, {} objects", last.objects);
    for (name, bar) in [("serde_json", 20.0), ("bincode", 3.0)] {
        let ratio = last.ratio(INPROC, name, "cluster RELOC");
        say(
            ratio >= bar,
            &format!("RELOC >= {bar} x faster than {name}, {of_last}"),
            &format!("{ratio:.1}"),
        );
    }
    for name in ["rkyv", "rkyv, checked indices"] {
        let ratio = last.ratio(INPROC, "cluster RELOC", name);
        let decode = cluster.ns[INPROC][2] / last.row(name).ns[INPROC][2];
        let of = format!("{ratio:.2}; validation alone {decode:.2}");
        say(ratio <= 1.2, &format!("RELOC <= 1.2 x {name}, total, {of_last}"), &of);
    }
}

/// Measures and prints.
///
/// # Errors
/// A socket could not be had.
pub fn run(args: &Options) -> Result<()> {
    let rounds = args.rounds as usize;
    print(format_args!(
        "medians of {rounds} rounds; copies are the program's own, without the kernel's"
    ));
    let mut maps = Vec::new();
    for (towns, objects) in [(10, 29), (100, 355), (500, 1760)] {
        let table = measure::<Map>(|| load::map(towns, objects), rounds);
        let mean = load::mean_references(&load::map(towns, objects));
        show(&format!("road map, {towns} towns, {mean:.2} references an object"), &table);
        maps.push(table);
    }
    let table = measure::<Tree>(|| load::tree(1000), rounds);
    show("binary tree of integers", &table);
    // Six times the objects of the largest map, so a sixth of the rounds.
    let table = measure::<Experiment>(|| flows::experiment(100, 10_000), rounds / 6 + 1);
    show("experiment of 10 000 flows between 100 nodes", &table);
    claims(&maps, threads::over_tcp(500, 1760, rounds)?);
    Ok(())
}
