//! Figures that gates and sweeps know by name: short names, whole percentiles of the delay, and every number of a
//! flow's entry in the JSON report under its keys.

use itg_core::text::nearest;
use serde_json::Value;

use super::{GateError, Kind};
use crate::metric::{METRICS, Metric, Metrics};

/// Way to a figure.
#[derive(Clone, Copy, Debug)]
pub(super) enum Get {
    /// A row of the table of metrics.
    Of(&'static Metric),
    /// This whole percentile of the delay.
    DelayPercent(usize),
    /// The number under these keys of the JSON report.
    Json(&'static str),
}

impl Get {
    /// The figure in an entry of a report: its figures, and the whole of it as JSON.
    pub(super) fn of(self, metrics: &Metrics, entry: &dyn Fn() -> Value) -> Option<f64> {
        let value = match self {
            Self::Of(metric) => {
                let value = metric.of(metrics)?.rank()?;
                // How far off a rate is: either way.
                if metric.kind == Kind::Share { value.abs() } else { value }
            }
            Self::DelayPercent(percent) => metrics.delay_percents_ns.as_ref()?.at(percent)? as f64,
            Self::Json(path) => {
                let entry = entry();
                let found = path.split('.').try_fold(&entry, |value, key| value.get(key));
                found.and_then(Value::as_f64)?
            }
        };
        Some(value).filter(|value| value.is_finite())
    }
}

/// Keys of the numbers of a flow's entry in the JSON report, in their order; a test holds them against the schema.
const NUMBERS: &str = include_str!("numbers.txt");

/// A metric by its name.
pub(super) fn metric(name: &str) -> Result<(String, Kind, Get), GateError> {
    if let Some(metric) = Metric::named(name).filter(|metric| metric.kind != Kind::Word) {
        return Ok((name.to_owned(), metric.kind, Get::Of(metric)));
    }
    if let Some(percent) = name.strip_prefix("delay.p").and_then(percent) {
        return Ok((name.to_owned(), Kind::Time, Get::DelayPercent(percent)));
    }
    if let Some(path) = NUMBERS.lines().find(|path| *path == name) {
        return Ok((name.to_owned(), kind_of(path), Get::Json(path)));
    }
    Err(GateError::Metric { name: name.to_owned(), hint: hint(name) })
}

/// The metric that was probably meant, or those there are.
fn hint(name: &str) -> String {
    if let Some(digit @ ("1" | "2" | "3" | "4" | "5" | "6" | "7" | "8" | "9")) =
        name.rsplit_once("delay.p").map(|(_, digits)| digits)
    {
        // More often a digit is missing than the lowest percentiles are meant.
        let near = match digit {
            "9" => "`delay.p90` or `delay.p99`".to_owned(),
            _ => format!("`delay.p{digit}0`"),
        };
        return format!("did you mean {near}? (`delay.p0{digit}` is percentile {digit})");
    }
    let called = |metric: &&Metric| {
        let short = !metric.name.is_empty() || !metric.key.contains('.');
        short && metric.kind != Kind::Word
    };
    let names = METRICS.iter().filter(called).map(Metric::title);
    let all = || names.clone().chain(NUMBERS.lines());
    if let Some(near) = nearest(name, all()) {
        return format!("did you mean `{near}`?");
    }
    // Behind the name of a flow, which may hold points.
    for (at, _) in name.match_indices('.') {
        let (flow, metric) = name.split_at(at + 1);
        if let Some(near) = nearest(metric, all()) {
            return format!("did you mean `{flow}{near}`?");
        }
    }
    format!(
        "gates know {}, delay.p01 to delay.p99, and the numbers of the JSON report by their keys, as clock.offset_ns",
        names.collect::<Vec<_>>().join(", ")
    )
}

/// A whole percentile: two digits.
fn percent(digits: &str) -> Option<usize> {
    let two = digits.len() == 2 && digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|percent| two && (1..=99).contains(percent))
}

/// The kind of a number of the JSON report: its keys carry their unit.
fn kind_of(path: &str) -> Kind {
    let leaf = path.rsplit('.').next().unwrap_or(path);
    let is = |unit: &str| path.split('.').any(|key| key.ends_with(unit));
    match leaf {
        "count" => Kind::Count,
        _ if is("_ns") => Kind::Time,
        _ if is("_bps") => Kind::BitRate,
        _ if is("_pps") => Kind::PacketRate,
        _ if is("bytes") => Kind::Size,
        _ => Kind::Number,
    }
}
