//! Plots and tables as programs other than browsers take them.
#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;

use assert_cmd::cargo::cargo_bin;
use itg_record::{FlowEnd, ReceivedPacket, Record, SentPacket, Side};
use itg_testkit::child::said;
use itg_testkit::logs::{TestLog, end, plan, run_of_two_flows, spec};
use tempfile::TempDir;

/// A directory with logs, and what was made of them.
fn decoded(args: &[&str]) -> TempDir {
    decoded_from(run_of_two_flows(), args)
}

fn decoded_from([sender, receiver]: [Vec<u8>; 2], args: &[&str]) -> TempDir {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("send.itg"), sender).unwrap();
    fs::write(dir.path().join("recv.itg"), receiver).unwrap();
    decode(dir.path(), args);
    dir
}

fn decode(dir: &Path, args: &[&str]) {
    let mut command = Command::new(cargo_bin("itg-decode"));
    command.args(["send.itg", "recv.itg"]).args(args).current_dir(dir);
    let (code, _, err) = said(&mut command);
    assert_eq!(code, Some(0), "{args:?}: {err}");
}

/// The names and texts of the files with this suffix.
fn files(dir: &Path, suffix: &str) -> Vec<(String, String)> {
    let mut found: Vec<_> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| (entry.file_name().into_string().unwrap(), entry.path()))
        .filter(|(name, _)| name.ends_with(suffix))
        .map(|(name, path)| (name, fs::read_to_string(path).unwrap()))
        .collect();
    found.sort();
    assert!(!found.is_empty(), "no {suffix}");
    found
}

/// The value of an attribute in a tag.
fn attribute<'a>(tag: &'a str, name: &str) -> Option<&'a str> {
    tag.split_once(&format!(" {name}=\""))?.1.split('"').next()
}

/// The tags that draw, each with the text behind it.
fn drawn(svg: &str) -> Vec<(&str, &str)> {
    let shapes = ["path", "rect", "circle", "text"];
    let tags = svg.split('<').skip(1).filter_map(|piece| piece.split_once('>'));
    tags.filter(|(tag, _)| shapes.contains(&tag.split([' ', '/']).next().unwrap_or(""))).collect()
}

/// A text and where it is: left, right, top, bottom.
type Label = (String, [f64; 4]);

/// Places of texts, with letters as wide as those of a wide font on a narrow page.
fn labels(svg: &str) -> Vec<Label> {
    let texts = drawn(svg).into_iter().filter(|(tag, _)| tag.starts_with("text "));
    texts
        .map(|(tag, words)| {
            let number = |name| attribute(tag, name).unwrap().parse::<f64>().unwrap();
            let (x, y) = (number("x"), number("y"));
            let wide = 7.6 * words.replace("&lt;", "<").chars().count() as f64;
            let left = match attribute(tag, "text-anchor") {
                Some("end") => x - wide,
                Some("middle") => x - wide / 2.0,
                _ => x,
            };
            (words.to_owned(), [left, left + wide, y - 11.0, y + 2.0])
        })
        .collect()
}

/// Labels that lie on one another.
fn overprinted(labels: &[Label]) -> Vec<[&str; 2]> {
    let mut found = Vec::new();
    for (place, (a, [left, right, top, bottom])) in labels.iter().enumerate() {
        for (b, [from, to, high, low]) in &labels[..place] {
            if left < to && from < right && top < low && high < bottom {
                found.push([a.as_str(), b.as_str()]);
            }
        }
    }
    found
}

/// A run of unlike flows with long names, most of which lose everything.
fn run_of_unlike_flows() -> [Vec<u8>; 2] {
    run_of_unlike_flows_named(|number| format!("a-flow-with-a-long-name-{number}"))
}

/// The same with names by number.
fn run_of_unlike_flows_named(name: impl Fn(u32) -> String) -> [Vec<u8>; 2] {
    let mut sender = TestLog::new(Side::Sender, "boot-a");
    let mut receiver = TestLog::new(Side::Receiver, "boot-a");
    for index in 0..20u32 {
        let spec = spec(index + 1, "exp(10ms)", "constant(100)", 200);
        let name = name(index + 1);
        for log in [&mut sender, &mut receiver] {
            log.named_flow(index, &spec, ["boot-a", "boot-a"], Some(&name));
        }
        let (mut sent, mut arrived) = (Vec::new(), Vec::new());
        for d in plan(&spec) {
            let at = 1_700_000_000_000_000_000 + d.due_ns;
            sent.push(Record::sent(SentPacket {
                flow: index,
                seq: d.seq,
                size: d.size,
                planned_ns: d.due_ns,
                sent_ns: at,
            }));
            let there = at + 10_000 * 4u64.pow(index % 8) + d.seq * 7_919 % 5_003;
            if index % 5 == 0 && d.seq % 3 > 0 {
                arrived.push(Record::received(ReceivedPacket {
                    flow: index,
                    seq: d.seq,
                    size: d.size,
                    sent_ns: at,
                    arrived_ns: there,
                    read_ns: there + 700,
                    ttl: 64,
                    tos: 0,
                }));
            }
        }
        let counted = FlowEnd {
            sent_packets: Some(sent.len() as u64),
            skipped_packets: Some(0),
            received_packets: Some(arrived.len() as u64),
            ..end(index)
        };
        sender.records(sent);
        receiver.records(arrived);
        sender.end_flow(counted.clone());
        receiver.end_flow(counted);
    }
    [sender.finish(), receiver.finish()]
}

#[test]
fn flows_of_which_something_arrived_are_drawn_with_their_names() {
    let dir = decoded_from(run_of_unlike_flows(), &["--svg", "plots", "--html", "page.html"]);
    for name in ["total-cdf", "total-delay", "total-ccdf"] {
        let table = fs::read_to_string(dir.path().join(format!("plots/{name}.csv"))).unwrap();
        let mut series: Vec<&str> =
            table.lines().skip(1).filter_map(|line| line.split(',').next()).collect();
        series.dedup();
        assert_eq!(
            series,
            [1, 6, 11, 16].map(|n| format!("a-flow-with-a-long-name-{n}")),
            "{name}"
        );
    }
    let page = fs::read_to_string(dir.path().join("page.html")).unwrap();
    assert!(
        page.contains("Median delay of 4 of 20 flows, those that look worst"),
        "what is left out is said"
    );
    assert!(page.contains("Flow 6 (a-flow-with-a-long-name-6)"), "names stand beside numbers");
}

#[test]
fn flows_of_one_name_are_told_apart_by_their_numbers() {
    let dir = decoded_from(run_of_unlike_flows_named(|_| "udp".to_owned()), &["--svg", "plots"]);
    for name in ["total-cdf", "total-flow-loss"] {
        let table = fs::read_to_string(dir.path().join(format!("plots/{name}.csv"))).unwrap();
        let mut series: Vec<&str> =
            table.lines().skip(1).filter_map(|line| line.split(',').next()).collect();
        series.dedup();
        assert_eq!(series, [1, 6, 11, 16].map(|n| format!("flow {n} (udp)")), "{name}");
    }
}

#[test]
fn no_label_lies_on_another_and_every_plot_says_what_it_shows() {
    let few = decoded(&["--svg", "plots"]);
    let many = decoded_from(run_of_unlike_flows(), &["--svg", "plots"]);
    let all = [few, many].map(|dir| files(&dir.path().join("plots"), ".svg"));
    assert!(all[1].iter().any(|(name, _)| name == "total-flow-loss.svg"));
    for (name, svg) in all.iter().flatten() {
        readable(name, svg);
    }
    // The check sees what it is for.
    let twice = "<svg><text x=\"10\" y=\"20\">one</text><text text-anchor=\"end\" x=\"40\" y=\"15\">two</text></svg>";
    assert_eq!(overprinted(&labels(twice)), [["two", "one"]]);
}

/// Fails if a plot leaves its reader in doubt.
fn readable(name: &str, svg: &str) {
    let labels = labels(svg);
    assert!(overprinted(&labels).is_empty(), "{name}: {:?}", overprinted(&labels));
    assert!(labels.iter().all(|(_, at)| at[0] >= 0.0), "{name}: {labels:?}");
    // Below the plot, or beside the shades of a map.
    let in_legend = |(_, [left, _, top, _]): &&Label| {
        *top > 275.0 || (*top < 10.0 && *top > 0.0 && *left > 200.0)
    };
    assert!(labels.iter().filter(in_legend).count() > 0, "{name}: no legend: {labels:?}");
    // Titles of the axes: above at the left, and below; a unit there or at each tick.
    let units = ["s", "ms", "µs", "ns", "%", "bit/s", "kbit/s", "Mbit/s", "Gbit/s", "bytes"];
    for (title_top, beside) in [(3.0, true), (261.0, false)] {
        let title = labels.iter().find(|(_, [left, _, top, _])| {
            (top - title_top).abs() < 0.1 && (!beside || (left - 4.0).abs() < 0.1)
        });
        let (words, _) = title.unwrap_or_else(|| panic!("{name}: no title: {labels:?}"));
        let at_tick = |(_, [_, right, top, _]): &&Label| match beside {
            true => *right < 64.0 && *top > 12.0 && *top < 240.0,
            false => *top > 240.0 && *top < 250.0,
        };
        let ticks: Vec<&str> =
            labels.iter().filter(at_tick).map(|(text, _)| text.as_str()).collect();
        assert!(ticks.len() > 1, "{name}: {words}: {ticks:?}");
        let in_title = units.iter().any(|unit| words.ends_with(&format!("[{unit}]")));
        let each =
            ticks.iter().all(|tick| units.iter().any(|unit| tick.ends_with(&format!(" {unit}"))));
        // Counts, shares from 0 to 1 and names of flows have none.
        let none = ["share of packets", "packet", "flow", "number of the flow"];
        assert!(
            in_title || each || none.iter().any(|word| words.starts_with(word)),
            "{name}: {words}: {ticks:?}"
        );
    }
    assert!(!svg.contains("var("), "{name}");
    for (tag, _) in drawn(svg) {
        assert!(attribute(tag, "fill").is_some(), "{name}: {tag}");
    }
}

#[test]
fn delays_of_flows_are_not_pooled_and_gaps_of_one_value_have_a_histogram() {
    let dir = decoded(&["--svg", "plots"]);
    let read = |name: &str| fs::read_to_string(dir.path().join("plots").join(name)).unwrap();
    for name in ["total-cdf.csv", "total-delay.csv", "total-ccdf.csv"] {
        let table = read(name);
        for flow in ["flow 1,", "flow 2,"] {
            assert!(
                table.lines().filter(|line| line.starts_with(flow)).count() > 5,
                "{name}: {table}"
            );
        }
    }
    assert!(!dir.path().join("plots/total-histogram.svg").exists());
    // Flow 1 sends every 10 ms, flow 2 at random.
    let errors = read("flow1-0-gaps.csv");
    assert!(errors.starts_with("series,error_from_ns,error_to_ns,share_of_packets\n"), "{errors}");
    let shares =
        errors.lines().skip(1).map(|line| line.rsplit(',').next().unwrap().parse::<f64>().unwrap());
    let sum: f64 = shares.sum();
    assert!((0.95..1.000_1).contains(&sum), "{sum}: {errors}");
    assert!(read("flow1-0-gaps.svg").contains(">as asked</text>"));
    assert!(read("flow2-2-gaps.csv").starts_with("series,asked_ns,actual_ns\n"));
    // All of them have 100 bytes, as asked for.
    assert!(!dir.path().join("plots/flow1-0-sizes.svg").exists());
}

/// Returns true if these commands are there. Says what is left out if not, which is a fault under CI if it installs them.
fn have(commands: &[&[&str]], installed_by_ci: bool, what: &str) -> bool {
    let runs = |command: &&&[&str]| {
        let done = Command::new(command[0]).args(&command[1..]).output();
        done.is_ok_and(|done| done.status.success())
    };
    let missing: Vec<_> = commands.iter().filter(|command| !runs(command)).collect();
    if missing.is_empty() {
        return true;
    }
    let ci = std::env::var_os("CI").is_some();
    assert!(!(ci && installed_by_ci), "under CI this test must run, and it needs {missing:?}");
    // Past the capture of the test harness, so that it shows though the test passes.
    drop(writeln!(std::io::stderr(), "\nNOT RUN: {what}: {missing:?} is not there"));
    false
}

fn python(script: &str, dir: &Path, args: &[String]) {
    let script = format!("{}/../tests/python/{script}", env!("CARGO_MANIFEST_DIR"));
    let done = Command::new("python3").arg(&script).args(args).current_dir(dir).output().unwrap();
    let [out, err] =
        [done.stdout, done.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert!(done.status.success(), "{script}: {out}{err}");
}

#[test]
fn programs_that_are_no_browsers_draw_the_same() {
    let tools: &[&[&str]] = &[
        &["python3", "--version"],
        &["chromium", "--version"],
        &["rsvg-convert", "--version"],
        &["cairosvg", "--version"],
    ];
    if have(tools, true, "plots are not drawn with other programs") {
        let dir = decoded(&["--svg", "plots"]);
        python("check_plots.py", dir.path(), &["plots".to_owned(), "chromium".to_owned()]);
    }
}

#[test]
fn every_table_opens_with_the_obvious_query() {
    let tools: &[&[&str]] = &[&["python3", "-c", "import duckdb, polars"]];
    if !have(tools, false, "tables are not opened with DuckDB and polars") {
        return;
    }
    let dir = decoded(&["--svg", "plots", "--format", "csv", "-o", "flows.csv", "-q"]);
    for (file, args) in [
        ("windows.csv", &["--interval", "100ms", "--format", "csv"][..]),
        ("packets.csv", &["--packets", "--format", "csv"]),
        ("windows.parquet", &["--interval", "100ms", "--format", "parquet"]),
        ("packets.parquet", &["--packets", "--format", "parquet"]),
    ] {
        decode(dir.path(), &[args, &["-o", file, "-q"]].concat());
    }
    let plots = files(&dir.path().join("plots"), ".csv");
    let plots = plots.into_iter().map(|(name, _)| format!("plots/{name}"));
    let tables = ["flows.csv", "windows.csv", "packets.csv", "windows.parquet", "packets.parquet"];
    let tables: Vec<String> = tables.map(str::to_owned).into_iter().chain(plots).collect();
    python("check_tables.py", dir.path(), &tables);
}

#[test]
fn a_fraction_has_its_point_in_every_row() {
    let dir = decoded(&["--format", "csv", "-o", "flows.csv", "-q"]);
    decode(dir.path(), &["--interval", "100ms", "--format", "csv", "-o", "windows.csv", "-q"]);
    for (file, columns) in [
        ("flows.csv", &["bitrate_bps", "delay_mean_ns", "loss_burst_mean", "idt_ks"][..]),
        ("windows.csv", &["bitrate_bps", "delay_mean_ns", "jitter_mean_ns"]),
    ] {
        let text = fs::read_to_string(dir.path().join(file)).unwrap();
        let names: Vec<&str> = text.lines().next().unwrap().split(',').collect();
        for column in columns {
            let place = names.iter().position(|name| name == column).unwrap();
            let cells: Vec<&str> =
                text.lines().skip(1).map(|line| line.split(',').nth(place).unwrap()).collect();
            let whole = cells.iter().find(|cell| !cell.is_empty() && !cell.contains(['.', 'e']));
            assert_eq!(whole, None, "{file}, {column}: {cells:?}");
        }
    }
}

#[test]
fn latex_takes_every_plot() {
    let dir = decoded(&["--svg", "plots"]);
    let all = files(&dir.path().join("plots"), ".tex");
    for (name, text) in &all {
        assert!(text.starts_with("% "), "{name}");
        for part in ["\\begin{tikzpicture}", "\\begin{axis}", "\\addlegendentry{", "\\end{axis}"] {
            assert!(text.contains(part), "{name}: {part}");
        }
        assert!(!text.contains("inf"), "{name}");
    }
    let tools: &[&[&str]] = &[&["pdflatex", "--version"], &["kpsewhich", "pgfplots.sty"]];
    if !have(tools, true, "plots are not given to LaTeX") {
        return;
    }
    paper(dir.path(), "pdflatex", all.iter().map(|(name, _)| name.as_str()));
    // Letters that pdfTeX lacks, and what is a command.
    let named = run_of_unlike_flows_named(|number| format!("звонок_{number} łąž 電 → №"));
    let dir = decoded_from(named, &["--svg", "plots"]);
    for engine in ["pdflatex", "lualatex"] {
        let tool: &[&[&str]] = &[&[engine, "--version"]];
        if have(tool, true, "plots with foreign letters are not given to LaTeX") {
            paper(
                dir.path(),
                engine,
                ["total-cdf.tex", "total-flow-loss.tex", "flow1-0-gaps.tex"].into_iter(),
            );
        }
    }
}

/// Sets a paper with these plots.
fn paper<'a>(dir: &Path, engine: &str, plots: impl Iterator<Item = &'a str>) {
    let mut paper = "\\documentclass{article}\\usepackage{pgfplots}\\pgfplotsset{compat=1.16}\\begin{document}\n".to_owned();
    for name in plots {
        paper += &format!("\\noindent\\input{{plots/{name}}}\\par\n");
    }
    fs::write(dir.join("paper.tex"), paper + "\\end{document}\n").unwrap();
    let mut command = Command::new(engine);
    command.args(["-interaction=nonstopmode", "-halt-on-error", "paper.tex"]).current_dir(dir);
    let done = command.output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stdout));
}
