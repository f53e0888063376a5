//! The first draws of every distribution, pinned: a later version that draws other numbers breaks
//! replay.

use std::sync::Arc;

use itg_core::distribution::{Distribution, Unit};
use itg_core::seed::{Purpose, RunSeed};

const GOLDEN: &str = include_str!("golden/draws.txt");
const LAWS: [&str; 15] = [
    "constant",
    "uniform",
    "exp",
    "normal",
    "lognormal",
    "pareto",
    "cauchy",
    "student",
    "gamma",
    "weibull",
    "poisson",
    "discrete",
    "mix",
    "empirical",
    "trunc",
];

/// The first ten draws of seed 42, flow 1.
fn first(unit: Unit, text: &str) -> Vec<u64> {
    let mut distribution =
        Distribution::parse(text, unit).unwrap_or_else(|e| panic!("{text}: {e}"));
    distribution
        .load("table", if unit == Unit::Time { "unit: us\n1\n2\n3\n5\n8" } else { "100\n200\n300" })
        .expect("a table");
    let (lo, hi, purpose) = match unit {
        Unit::Time => (0.0, f64::INFINITY, Purpose::Idt),
        Unit::Size => (12.0, 65_507.0, Purpose::Size),
    };
    let distribution = distribution.resolve(unit, lo, hi).unwrap_or_else(|e| panic!("{text}: {e}"));
    let mut stream = RunSeed(42).stream(1, purpose);
    (0..10).map(|k| distribution.sample(&mut stream, k)).collect()
}

fn rows() -> impl Iterator<Item = (Unit, &'static str, Vec<u64>)> {
    GOLDEN.lines().filter(|line| !line.starts_with('#')).map(|line| {
        let (distribution, draws) = line.split_once(" = ").unwrap_or((line, ""));
        let (unit, distribution) = distribution.split_once(' ').expect("unit and law");
        let unit = if unit == "time" { Unit::Time } else { Unit::Size };
        (
            unit,
            distribution.trim(),
            draws.split_whitespace().map(|x| x.parse().expect("a number")).collect(),
        )
    })
}

#[test]
fn first_draws_are_pinned() {
    let mut wrong = String::new();
    for (unit, text, want) in rows() {
        let got = first(unit, text);
        if got != want {
            let unit = format!("{unit:?}").to_lowercase();
            let got: Vec<_> = got.iter().map(ToString::to_string).collect();
            wrong += &format!("{unit} {text} = {}\n", got.join(" "));
        }
    }
    assert!(wrong.is_empty(), "these draws differ from tests/golden/draws.txt:\n{wrong}");
}

#[test]
fn every_law_is_pinned_for_times_and_sizes() {
    for name in LAWS {
        for unit in [Unit::Time, Unit::Size] {
            let pinned = rows().any(|(u, text, _)| {
                u == unit
                    && Distribution::parse(text, unit)
                        .is_ok_and(|distribution| distribution.name() == name)
            });
            assert!(pinned, "no golden draws of {name} as {unit:?}");
        }
    }
}

/// The golden table draws from its values, so that the pinned numbers are known to be right.
#[test]
fn the_pinned_table_is_the_one_loaded() {
    let distribution = Distribution::Empirical {
        name: "x".to_owned(),
        unit: Unit::Size,
        table: Some(Arc::from([100.0, 200.0, 300.0])),
    };
    let distribution = distribution.resolve(Unit::Size, 12.0, 65_507.0).expect("usable");
    let mut stream = RunSeed(42).stream(1, Purpose::Size);
    let own: Vec<_> = (0..10).map(|k| distribution.sample(&mut stream, k)).collect();
    assert_eq!(own, first(Unit::Size, "empirical(table)"));
}
