//! `itg-bench rpc` in short: a row for each way and size, with numbers that can be.

use std::process::Command;

#[test]
fn every_way_answers_and_is_measured() {
    let done = Command::new(env!("CARGO_BIN_EXE_itg-bench"))
        .args(["rpc", "--trials", "1", "--seconds", "0.1"])
        .output()
        .expect("started");
    let out = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success(), "{out}{}", String::from_utf8_lossy(&done.stderr));
    let rows: Vec<Vec<&str>> = out
        .lines()
        .filter_map(|line| line.strip_prefix('|')?.strip_suffix('|'))
        .map(|line| line.split('|').map(str::trim).collect())
        .filter(|row: &Vec<_>| row[1].parse::<u32>().is_ok())
        .collect();
    let mut wanted = Vec::new();
    for size in ["1", "100", "1000"] {
        wanted.extend(["plain sockets", "runtime", "tarpc", "tonic"].map(|way| (way, size)));
    }
    let found: Vec<_> = rows.iter().map(|row| (row[0], row[1])).collect();
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
