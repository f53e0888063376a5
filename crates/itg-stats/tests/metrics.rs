//! The table of metrics against what is published of it.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use itg_stats::metric::{METRICS, Metric};
use itg_stats::report::Metrics;
use serde_json::Value;

/// Line of the page behind which the table is, and the one behind it.
const BEGIN: &str = "<!-- from here on: generated from crates/itg-stats/src/metric.rs -->\n";
const END: &str = "<!-- up to here -->\n";

/// Names of metrics in the page's table.
fn table() -> String {
    let mut out = String::from(
        "| key in the JSON | gates | CSV | unit | definition | source |\n|---|---|---|---|---|---|\n",
    );
    let name = |name: &str| if name.is_empty() { String::new() } else { format!("`{name}`") };
    for metric in METRICS {
        let unit = match metric.unit {
            "" => metric.kind.unit(),
            unit => unit,
        };
        let unit = if unit == "1" { "–" } else { unit };
        let cells = [
            name(metric.key),
            name(metric.title()),
            name(metric.column),
            unit.to_owned(),
            metric.meaning.replace('|', "\\|"),
            metric.source.to_owned(),
        ];
        out += &format!("| {} |\n", cells.join(" | "));
    }
    out
}

#[test]
fn the_page_has_the_table() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/decode.md");
    let page = fs::read_to_string(&path).expect("the page");
    let (before, rest) = page.split_once(BEGIN).expect("where the table begins");
    let (old, behind) = rest.split_once(END).expect("where it ends");
    let new = format!("\n{}\n", table());
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&path, format!("{before}{BEGIN}{new}{END}{behind}")).expect("written");
        return;
    }
    assert!(old == new, "docs/decode.md is out of date: run this test with UPDATE=1");
}

/// Each key is one of the JSON, where it has the value that the table gives.
#[test]
fn keys_lead_to_the_values_of_the_table() {
    let congestion_control = Some("cubic".to_owned());
    let metrics = Metrics {
        congestion_control,
        limited_by: Some("pacing_rate".to_owned()),
        sent_packets: Some(5),
        lost: Some(2),
        packets: 3,
        ..Metrics::default()
    };
    let json = serde_json::to_value(&metrics).expect("JSON");
    let mut seen = BTreeSet::new();
    for metric in METRICS {
        assert!(seen.insert(metric.title()), "{} is there twice", metric.title());
        assert!(
            metric.column.is_empty()
                || seen.insert(metric.column)
                || metric.column == metric.title()
        );
        let top = metric.key.split('.').next().expect("one part");
        assert!(top.is_empty() || json.get(top).is_some(), "{}", metric.key);
        let at = metric.key.split('.').try_fold(&json, |value, key| value.get(key));
        let Some(at) = at.filter(|value| !value.is_null()) else { continue };
        let figure = metric.of(&metrics).expect("known");
        match at {
            Value::String(word) => assert_eq!(*word, figure.to_string(), "{}", metric.key),
            number => assert_eq!(number.as_f64(), figure.number(), "{}", metric.key),
        }
    }
    let lost =
        Metric::named("loss").expect("known").of(&metrics).and_then(|figure| figure.number());
    assert_eq!(lost, Some(0.4));
}
