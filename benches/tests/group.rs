//! `itg-bench broadcast` and `membership`: short runs print every table, with numbers that can be, and draw every figure. How large
//! the numbers are is nothing that a busy machine can be asked.

use std::path::Path;
use std::process::Command;

/// Runs a measurement; its words and the directory of its plots.
fn bench(args: &[&str]) -> (String, tempfile::TempDir) {
    let dir = tempfile::tempdir().expect("a directory");
    let mut command = Command::new(env!("CARGO_BIN_EXE_itg-bench"));
    command.args(args).arg("--out").arg(dir.path());
    let output = command.output().expect("itg-bench");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    let (out, err) = (text(output.stdout), text(output.stderr));
    assert!(output.status.success(), "{args:?}: {}\n{out}\n{err}", output.status);
    (out, dir)
}

/// Rows of all tables, without header and rule.
fn rows(text: &str) -> Vec<Vec<&str>> {
    let mut rows = Vec::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let is_header = lines.peek().is_some_and(|next| next.starts_with("|-"));
        if line.starts_with("| ") && !is_header {
            rows.push(line.trim_matches('|').split('|').map(str::trim).collect());
        }
    }
    rows
}

/// The numbers of a cell.
fn numbers(cell: &str) -> Vec<f64> {
    let parts = cell.split(|c: char| !(c.is_ascii_digit() || c == '.' || c == '-'));
    parts.filter_map(|part| part.parse().ok()).collect()
}

/// Every cell but the first `names` of a row has numbers, all of them positive.
fn sane(rows: &[Vec<&str>], names: usize) {
    for row in rows {
        for cell in &row[names..] {
            let found = numbers(cell);
            assert!(
                !found.is_empty() && found.iter().all(|x| x.is_finite() && *x > 0.0),
                "{row:?}"
            );
        }
    }
}

fn drawn(dir: &Path, names: &[impl std::fmt::Display]) {
    for name in names {
        let path = dir.join(format!("{name}.svg"));
        let svg = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(svg.contains("<svg") && svg.contains("<circle"), "{name}");
    }
}

#[test]
fn broadcast_closed_systems_beside_the_thesis() {
    let (text, dir) = bench(&["broadcast", "--rounds", "20", "--only", "closed,sizes"]);
    let rows = rows(&text);
    // Four sizes of groups on three transports, nine rows of the thesis, four sizes of messages.
    assert_eq!(rows.len(), 12 + 9 + 4, "{text}");
    sane(&rows, 1);
    assert!(rows.iter().any(|row| row[..2] == ["6, RMI", "44"]), "{text}");
    for word in
        ["Round-trips of 100 bytes", "method 2", "R² >= 0.95", "in each cell over sockets: in "]
    {
        assert!(text.contains(word), "no `{word}`: {text}");
    }
    drawn(dir.path(), &["broadcast-closed", "broadcast-sizes"]);
}

#[test]
fn broadcast_clients_and_open_load() {
    let args = ["broadcast", "--quick", "--rounds", "20", "--only", "clients,open"];
    let (text, dir) = bench(&args);
    let rows = rows(&text);
    let (clients, open): (Vec<_>, Vec<_>) =
        rows.into_iter().partition(|row| ["A", "B"].contains(&row[1]));
    assert_eq!((clients.len(), open.len()), (8, 2), "{text}");
    sane(&clients, 2);
    sane(&open, 1);
    for row in &open {
        for cell in &row[1..] {
            let found = numbers(cell);
            assert!(found[0] <= found[1], "p50 above p99: {row:?}");
        }
    }
    drawn(dir.path(), &["broadcast-clients", "broadcast-open"]);
}

#[test]
fn broadcast_bars_and_crashes_say_what_was_asked() {
    let (text, _dir) = bench(&["broadcast", "--rounds", "20", "--only", "bars,crash"]);
    let verdicts: Vec<_> = text
        .lines()
        .filter(|line| line.starts_with("HOLDS  ") || line.starts_with("DIFFERS  "))
        .collect();
    assert_eq!(verdicts.len(), 7, "{text}");
    for line in verdicts {
        assert!(line.contains("(asked: "), "{line}");
        let value = line.rsplit(": ").nth(1).map(numbers).unwrap_or_default();
        assert!(value.first().is_some_and(|x| *x > 0.0), "{line}");
    }
}

#[test]
fn membership_figures_phases_and_kills() {
    let args = ["membership", "--quick", "--processes", "5", "--trials", "1"];
    let (text, dir) = bench(&args);
    let rows = rows(&text);
    // Simulated sizes, patterns by number of groups, view changes under contention, sizes of real groups, three
    // intervals.
    assert_eq!(rows.len(), 4 + (5 + 3 + 2) + 2 + 2 + 3, "{text}");
    let (patterns, others): (Vec<_>, Vec<_>) = rows.into_iter().partition(|row| row.len() == 5);
    sane(&others, 1);
    // What the model is off may have either sign.
    sane(&patterns.iter().map(|row| row[..4].to_vec()).collect::<Vec<_>>(), 1);
    for word in ["L0 = ", "n0 = ", "root of the mean square", "Between processes to modelled: base"]
    {
        assert!(text.contains(word), "no `{word}`: {text}");
    }
    // What is simulated is exact wherever it runs.
    assert!(text.contains("HOLDS    simulated Ts"), "{text}");
    assert!(text.contains("5 processes, first report to last installation, p99"), "{text}");
    let figures = ["bgl", "tcp", "latency", "contention", "processes"];
    drawn(dir.path(), &figures.map(|name| format!("membership-{name}")));
}
