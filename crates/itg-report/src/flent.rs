//! The course of the flows as a data file of flent, for its plots and its users' scripts.
//!
//! The format is version 4 of [flent's](https://flent.org/data-format.html). Flows of TCP are named as in flent's
//! test `rrul_be`, whose plots show them; one-way delays stand where flent has round trips, under the same name.

use std::collections::BTreeMap;

use itg_stats::Report;
use itg_stats::report::{BasisKind, FlowReport, Intervals};
use itg_stats::series::IntervalRow;
use serde_json::{Map, Value, json};

use crate::html::civil;

/// Names of flent's series start with these.
const DELAY: &str = "Ping (ms)";

/// A report with windows as a data file; `None` without windows.
///
/// Left out as not known: the rate of a window that packets do not fill, and delays of clocks whose difference is not
/// known.
#[must_use]
pub fn flent(report: &Report) -> Option<String> {
    let intervals = report.intervals.as_ref().filter(|intervals| intervals.interval_ns > 0)?;
    let series = series(report, intervals);
    let step_s = seconds(intervals.interval_ns);
    let windows = series.values().map(|series| series.values.len()).max().unwrap_or(0);
    #[expect(clippy::cast_precision_loss, reason = "numbers of windows are small")]
    let x_values: Vec<f64> = (0..windows).map(|window| window as f64 * step_s).collect();
    let (mut results, mut raw, mut meta) = (Map::new(), Map::new(), Map::new());
    let start_s = seconds(intervals.start_unix_ns);
    for (name, Series { unit, mut values }) in series {
        values.resize(windows, None);
        let points = x_values.iter().zip(&values);
        let points =
            points.filter_map(|(x, value)| Some(json!({ "t": start_s + x, "val": (*value)? })));
        raw.insert(name.clone(), points.collect());
        results.insert(name.clone(), json!(values));
        meta.insert(name, json!({ "UNITS": unit }));
    }
    let first = report.flows.first();
    let length_s = seconds(report.total.metrics.duration_ns);
    let data = json!({
        "version": 4,
        "x_values": x_values,
        "results": results,
        "raw_values": raw,
        "metadata": {
            "NAME": "rrul_be",
            "DATA_FILENAME": "itg.flent",
            "TITLE": report.manifest.get("name").and_then(Value::as_str).unwrap_or("itg"),
            "HOST": first.map(|flow| host(&flow.dst)),
            "HOSTS": first.map(|flow| host(&flow.dst)).into_iter().collect::<Vec<_>>(),
            "LOCAL_HOST": first.map(|flow| host(&flow.src)),
            "LENGTH": length_s.ceil(),
            "TOTAL_LENGTH": length_s,
            "STEP_SIZE": step_s,
            "TIME": time(intervals.start_unix_ns),
            "NOTE": "made from logs of ITG",
            "SERIES_META": meta,
        },
    });
    Some(data.to_string())
}

/// Values of a window each, from the first.
struct Series {
    unit: &'static str,
    values: Vec<Option<f64>>,
}

impl Series {
    fn new(
        unit: &'static str,
        rows: &[IntervalRow],
        interval_ns: u64,
        of: impl Fn(&IntervalRow) -> Option<f64>,
    ) -> Self {
        let mut values = Vec::new();
        for row in rows {
            let Ok(window) = usize::try_from(row.start_ns / interval_ns) else { continue };
            if window >= values.len() {
                values.resize(window + 1, None);
            }
            if let Some(value) = values.get_mut(window) {
                *value = of(row);
            }
        }
        Self { unit, values }
    }
}

/// The rate of each flow where it arrived (where no such log is here, where it was sent), and its delay.
fn series(report: &Report, intervals: &Intervals) -> BTreeMap<String, Series> {
    let here = report.flows.first().map(|flow| host(&flow.src));
    let sides = ["sender", "receiver"].map(|side| (side, report.of_side(side)));
    let logged = |flow: &FlowReport, side: &str| {
        sides.iter().any(|(of, flows)| *of == side && flows.contains(&flow.key()))
    };
    let mut all = BTreeMap::new();
    // How often each name was given: flows may share theirs.
    let mut given: BTreeMap<String, u64> = BTreeMap::new();
    for (flow, course) in report.flows.iter().zip(&intervals.flows) {
        let basis = flow.metrics.delay_basis;
        let mut add = |start: &str, series: Series| {
            let name = format!("{start} {}", flow.name);
            let mut unique = name.clone();
            let number = given.entry(name.clone()).or_insert(1);
            while all.contains_key(&unique) {
                *number += 1;
                unique = format!("{name} ({number})");
            }
            all.insert(unique, series);
        };
        // Packets of a round trip come back to their sender; a receiver need not log them.
        let round_trip = flow.meter == Some("rtt");
        let counts = if round_trip { "sender" } else { "receiver" };
        if flow.side == counts || !logged(flow, counts) {
            let proto = flow.proto.unwrap_or("unknown").to_uppercase();
            let way = if Some(host(&flow.src)) == here { "upload" } else { "download" };
            let rate = |row: &IntervalRow| (!row.partial).then_some(row.bitrate_bps / 1e6);
            let series = Series::new("Mbits/s", &course.windows, intervals.interval_ns, rate);
            add(&format!("{proto} {way}"), series);
        }
        if basis.is_some_and(|basis| basis.kind == BasisKind::Absolute) {
            let delay = |row: &IntervalRow| row.delay_mean_ns.map(|ns| ns / 1e6);
            add(DELAY, Series::new("ms", &course.windows, intervals.interval_ns, delay));
        }
    }
    all
}

/// The host of an address with a port.
fn host(address: &str) -> &str {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    host.trim_start_matches('[').trim_end_matches(']')
}

#[expect(clippy::cast_precision_loss, reason = "to the microsecond")]
fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// Unix time as flent writes it, in UTC.
fn time(unix_ns: u64) -> String {
    let [year, month, day, hour, minute, second] = civil(unix_ns);
    let micros = unix_ns / 1_000 % 1_000_000;
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}Z")
}
