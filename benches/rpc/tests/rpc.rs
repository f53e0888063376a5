//! `itg-bench-rpc` in short: a row for each way and size, or for each way and group, with numbers that can be.

use std::process::Command;

/// Runs a part; rows of its tables, without headers.
fn rows(args: &[&str]) -> (String, Vec<Vec<String>>) {
    let done =
        Command::new(env!("CARGO_BIN_EXE_itg-bench-rpc")).args(args).output().expect("started");
    let out = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(done.status.success(), "{out}{}", String::from_utf8_lossy(&done.stderr));
    let rows = out
        .lines()
        .filter_map(|line| line.strip_prefix('|')?.strip_suffix('|'))
        .map(|line| line.split('|').map(|cell| cell.trim().to_owned()).collect())
        .filter(|row: &Vec<String>| row[1].starts_with(|c: char| c.is_ascii_digit()))
        .collect();
    (out, rows)
}

#[test]
fn every_way_answers_and_is_measured() {
    let (out, rows) = rows(&["--only", "calls", "--trials", "1", "--seconds", "0.1"]);
    let mut wanted = Vec::new();
    for size in ["1", "100", "1000"] {
        wanted.extend(["plain sockets", "runtime", "tarpc", "tonic"].map(|way| (way, size)));
    }
    let found: Vec<_> = rows.iter().map(|row| (row[0].as_str(), row[1].as_str())).collect();
    assert_eq!(found, wanted, "{out}");
    for row in rows {
        let numbers: Vec<f64> = row[2..].iter().map(|x| x.parse().expect("a number")).collect();
        let [p50, p99, rate, ratio] = numbers[..] else { panic!("four numbers: {row:?}") };
        assert!(0.0 < p50 && p50 <= p99 && rate > 0.0 && ratio > 0.0, "{row:?}");
        if row[0] == "plain sockets" {
            assert_eq!(row[5], "1.00", "{row:?}");
        }
    }
}

#[test]
fn broadcasts_are_carried_by_calls() {
    let args = ["--only", "closed,clients", "--trials", "1", "--rounds", "10"];
    let (out, rows) = rows(&args);
    let mut wanted = Vec::new();
    for group in ["2", "4", "6", "A", "B"] {
        wanted.extend(["runtime", "tarpc", "tonic"].map(|way| format!("{group}, {way}")));
    }
    let found: Vec<_> = rows.iter().map(|row| row[0].clone()).collect();
    assert_eq!(found, wanted, "{out}");
    for row in rows {
        assert_eq!(row.len(), 4, "{row:?}");
        for cell in &row[1..] {
            let mean = cell.split(' ').next().map(str::parse::<f64>);
            assert!(mean.is_some_and(|mean| mean.is_ok_and(|mean| mean > 0.0)), "{row:?}");
        }
    }
}
