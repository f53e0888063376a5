//! The report on one screen: a row a flow, their total, and below it only what a reader has to know.
//!
//! Three digits, one unit a column; a figure that is not known is a dash. What is said of several flows in
//! the same words is said once. Everything else is in [`crate::text`] and in the JSON.

use std::collections::BTreeMap;

use itg_core::end::SCHEDULE_DONE;
use itg_core::text::{align, grouped, visible};
use itg_core::units::format_duration_ns;

use crate::fidelity::Verdict;
use crate::figures::is_told;
use crate::gate::counted;
use crate::report::{BasisKind, FlowReport, GroupReport, Intervals, Metrics, Report, damage_lines};
use crate::series::IntervalRow;

/// Most lines of remarks on flows; the text with all details has them all.
const REMARKS: usize = 12;

/// Attribute of the groups that stand for the two ways of an exchange: each has a total of its own.
pub const DIRECTION: &str = "direction";
/// Share by which the rates of the rows may be above the total before that is explained.
const ABOVE: f64 = 0.01;

/// Units of delays, from the largest: nanoseconds, and the word.
const UNITS: [(f64, &str); 4] = [(1e9, "s"), (1e6, "ms"), (1e3, "us"), (1.0, "ns")];

/// Most rows of flows.
pub const ROWS: usize = 10;

/// The summary as text, with a newline at its end: of more than [`ROWS`] flows those that look worst, and the total of
/// all.
#[must_use]
pub fn render(report: &Report) -> String {
    render_rows(report, ROWS)
}

/// The summary with a row for each flow.
#[must_use]
pub fn render_all(report: &Report) -> String {
    render_rows(report, usize::MAX)
}

fn render_rows(report: &Report, most: usize) -> String {
    let flows: Vec<_> = counted(report).collect();
    let shown = worst(&flows, most);
    let mut out = align(&table_of(report, &flows, &shown), |column| column < 3);
    if shown.len() < flows.len() {
        out.push_str(&format!(
            "{} of {} flows are shown, those that look worst; all of them: -v\n",
            shown.len(),
            flows.len()
        ));
    }
    for line in said(report, &flows) {
        out.push_str(&visible(&line));
        out.push('\n');
    }
    if let Some(intervals) = &report.intervals {
        for (heading, rows) in series(intervals, &shown, flows.len()) {
            out.push('\n');
            out.push_str(&visible(&heading));
            out.push('\n');
            out.push_str(&align(&windows(rows), |column| column == WINDOW_NOTE));
        }
    }
    out
}

/// Facts that a reader has to know besides, a line each.
pub(crate) fn said(report: &Report, flows: &[&FlowReport]) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = |text: &str| lines.push(text.to_owned());
    for group in report.groups.iter().flatten().filter(|group| direction(group).is_none()) {
        let named = |(key, value): (&String, &String)| match value.as_str() {
            "" => format!("{key} unknown"),
            value => format!("{key} {value}"),
        };
        let by: Vec<_> = group.by.iter().map(named).collect();
        let m = &group.metrics;
        line(&format!(
            "group {}: {} flows, {} packets, {} Mbit/s, {} % lost",
            by.join(", "),
            group.flows,
            m.packets,
            known(m.bitrate_bps.map(|bps| bps / 1e6)),
            known(m.loss_share().map(|share| 100.0 * share)),
        ));
    }
    if let Some(text) = rates(report, flows) {
        line(&text);
    }
    for text in delays(flows) {
        line(&text);
    }
    for reason in verdicts(report, flows) {
        line(&format!("Fidelity: {reason}"));
    }
    let said = remarks(flows);
    for text in said.iter().take(REMARKS) {
        line(text);
    }
    if said.len() > REMARKS {
        line(&format!("{} more remarks are in the text with all details", said.len() - REMARKS));
    }
    let unmatched = report.total.unmatched.unwrap_or_default();
    if unmatched.flows > 0 {
        line(&format!("flows with a log at one side only: {}", unmatched.flows));
    }
    if unmatched.packets > 0 {
        line(&format!(
            "packets that arrived and are not in their sender's log: {}",
            unmatched.packets
        ));
    }
    report.promises.iter().for_each(|promise| line(&format!("Promise: {promise}")));
    report.notices.iter().for_each(|notice| line(&format!("Note: {notice}")));
    report.errors.iter().for_each(|error| line(&format!("Error: {error}")));
    damage_lines(&report.damage).iter().for_each(|damage| line(&format!("Damage: {damage}")));
    lines
}

/// So many flows that look worst, in the order in which they are given: verdict, then share of lost packets, then the
/// largest delay.
fn worst<'r>(flows: &[&'r FlowReport], most: usize) -> Vec<&'r FlowReport> {
    let mut places: Vec<usize> = (0..flows.len()).collect();
    if flows.len() > most {
        let trouble = |place: &usize| {
            let m = &flows[*place].metrics;
            let lost = m.loss_share().unwrap_or(0.0);
            // What could not be judged may be worse than what passes.
            let verdict = match m.fidelity.verdict {
                Verdict::Pass => None,
                verdict => Some(verdict),
            };
            (verdict, lost, m.delay_ns.map_or(i64::MIN, |delay| delay.max))
        };
        places.sort_by(|a, b| {
            let (a, b) = (trouble(a), trouble(b));
            b.0.cmp(&a.0).then(b.1.total_cmp(&a.1)).then(b.2.cmp(&a.2))
        });
        places.truncate(most);
        places.sort_unstable();
    }
    places.into_iter().map(|place| flows[place]).collect()
}

/// The head, a row a flow, and the total of several.
pub(crate) fn table(report: &Report, flows: &[&FlowReport]) -> Vec<Vec<String>> {
    table_of(report, flows, flows)
}

/// The head, a row for each flow that is shown, and the total of all.
fn table_of(report: &Report, flows: &[&FlowReport], shown: &[&FlowReport]) -> Vec<Vec<String>> {
    let (unit, word) = unit(flows);
    let mut head: Vec<_> = ["flow", "name", "proto", "packets", "Mbit/s", "packets/s", "loss %"]
        .map(str::to_owned)
        .into();
    head.push(format!("delay {word}: p50"));
    head.extend(["p99", "max", "jitter", "fidelity"].map(str::to_owned));
    let mut rows = vec![head];
    for flow in shown {
        let mut row = vec![flow.flow.to_string(), visible(&flow.name).into_owned()];
        // A receiver's figures of such a flow are those of the way there.
        let way = match (flow.meter, flow.side) {
            (Some("rtt"), "receiver") => " one-way",
            (Some("rtt"), _) => " rtt",
            _ => "",
        };
        row.push(format!("{}{way}", flow.proto.unwrap_or("?")));
        row.extend(figures(&flow.metrics, unit));
        rows.push(row);
    }
    let mut total = |name: String, metrics: &Metrics| {
        let mut row = vec![name, String::new(), String::new()];
        row.extend(figures(metrics, unit));
        rows.push(row);
    };
    // Two ways have no rate in common.
    let mut ways = ways(report).peekable();
    if ways.peek().is_none() && flows.len() != 1 {
        total("total".to_owned(), &report.total.metrics);
    }
    for (way, group) in ways.filter(|(_, group)| group.flows > 1) {
        total(format!("total {way}"), &group.metrics);
    }
    // Where no log tells a name, there is no column of them.
    if shown.iter().all(|flow| flow.name == flow.flow.to_string()) {
        rows.iter_mut().for_each(|row| row[1].clear());
    }
    rows
}

/// The way that a group stands for.
fn direction(group: &GroupReport) -> Option<&str> {
    group.by.get(DIRECTION).map(String::as_str)
}

/// The two ways of an exchange.
fn ways(report: &Report) -> impl Iterator<Item = (&str, &GroupReport)> {
    report.groups.iter().flatten().filter_map(|group| Some((direction(group)?, group)))
}

/// Why the rates of the rows add up to more than the total, where they do.
fn rates(report: &Report, flows: &[&FlowReport]) -> Option<String> {
    let total = &report.total.metrics;
    let sum: f64 = flows.iter().filter_map(|flow| flow.metrics.bitrate_bps).sum();
    let above = ways(report).next().is_none() && sum > total.bitrate_bps? * (1.0 + ABOVE);
    (flows.len() > 1 && above).then(|| {
        format!(
            "rates: of each flow over its own time, of the total over that of all ({} s), so that the rows add up to \
             {} Mbit/s",
            digits(total.duration_ns as f64 / 1e9),
            digits(sum / 1e6)
        )
    })
}

/// Headings and windows of the flows in the table, and of all of several.
fn series<'r>(
    intervals: &'r Intervals,
    flows: &[&FlowReport],
    all: usize,
) -> Vec<(String, &'r [IntervalRow])> {
    let names: BTreeMap<(u32, &str, &str), &str> = flows
        .iter()
        .map(|flow| ((flow.flow, flow.run.as_str(), flow.side), flow.name.as_str()))
        .collect();
    let mut found: Vec<(String, &[IntervalRow])> = Vec::new();
    for series in &intervals.flows {
        let of = (series.flow, series.run.as_str(), series.side);
        let Some(&name) = names.get(&of) else { continue };
        let number = series.flow.to_string();
        let name = if name == number { String::new() } else { format!(" ({name})") };
        let side = series.side;
        let of = format!("flow {number}{name}, {side}");
        found.push((intervals.heading(&of, series.lost_why), &series.windows));
    }
    if found.len() != 1 || all != 1 {
        found.push((intervals.heading("all flows", intervals.lost_why), &intervals.total));
    }
    found
}

/// Place of the remark on a window.
const WINDOW_NOTE: usize = 7;

/// The head and a row a window.
fn windows(rows: &[IntervalRow]) -> Vec<Vec<String>> {
    let (unit, word) = unit_of(rows.iter().filter_map(|row| row.delay_mean_ns).collect());
    let mut head: Vec<_> =
        ["start s", "packets", "bytes", "Mbit/s", "lost"].map(str::to_owned).into();
    head.extend([format!("delay {word}: mean"), "jitter".to_owned(), String::new()]);
    let row = |row: &IntervalRow| {
        let time = |ns: Option<f64>| known(ns.map(|ns| ns / unit));
        vec![
            format_seconds(row.start_ns),
            row.packets.to_string(),
            row.bytes.to_string(),
            digits(row.bitrate_bps / 1e6),
            row.lost.map_or_else(|| "-".to_owned(), |lost| lost.to_string()),
            time(row.delay_mean_ns),
            time(row.jitter_mean_ns),
            if row.partial { "not full".to_owned() } else { String::new() },
        ]
    };
    std::iter::once(head).chain(rows.iter().map(row)).collect()
}

/// Nanoseconds in seconds, without zeros at the end.
fn format_seconds(ns: u64) -> String {
    let text = format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// The figures of a row, delays in a unit.
fn figures(m: &Metrics, unit: f64) -> [String; 9] {
    let time = |ns: Option<f64>| known(ns.map(|ns| ns / unit));
    let delay = m.delay_ns;
    let count = m.delay_percentiles_ns.map_or(m.packets, |percentiles| percentiles.count);
    [
        m.packets.to_string(),
        known(m.bitrate_bps.map(|bps| bps / 1e6)),
        known(m.packet_rate_pps),
        known(m.loss_share().map(|share| 100.0 * share)),
        time(delay.map(|d| d.p50 as f64)),
        time(delay.filter(|_| is_told(count, 0.99)).map(|d| d.p99 as f64)),
        time(delay.map(|d| d.max as f64)),
        time(m.jitter_ns.map(|j| j.mean)),
        m.fidelity.verdict.name().to_owned(),
    ]
}

/// The largest unit in which half of the flows have a median delay of 1 and more.
fn unit(flows: &[&FlowReport]) -> (f64, &'static str) {
    let medians = flows.iter().filter_map(|flow| flow.metrics.delay_ns);
    unit_of(medians.map(|delay| delay.p50 as f64).collect())
}

/// The largest unit in which half of these delays are 1 and more; milliseconds where there are none.
fn unit_of(mut delays_ns: Vec<f64>) -> (f64, &'static str) {
    delays_ns.iter_mut().for_each(|ns| *ns = ns.abs());
    delays_ns.sort_by(f64::total_cmp);
    let median = delays_ns.get(delays_ns.len() / 2).copied().unwrap_or(1e6);
    UNITS.into_iter().find(|(unit, _)| median >= *unit).unwrap_or((1.0, "ns"))
}

/// Three digits, and all of a whole number.
#[must_use]
pub fn digits(value: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    // From 0 to 6 behind the point.
    let places = (2.0 - value.abs().log10().floor()).clamp(0.0, 6.0);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 0 to 6")]
    let places = places as usize;
    format!("{value:.places$}")
}

fn known(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), digits)
}

/// Meaning of the delays where it is not that of one clock.
fn delays(flows: &[&FlowReport]) -> Vec<String> {
    let said = |flow: &FlowReport| {
        let basis = flow.metrics.delay_basis?;
        let text = match (basis.kind, basis.uncertainty_ns) {
            (BasisKind::Relative, _) => {
                "delays are relative: two clocks, only differences mean something".to_owned()
            }
            (BasisKind::Absolute, Some(ns)) if flow.clock.as_ref().is_some_and(|c| !c.shared) => {
                format!("delays are within {} of the truth (two clocks, compared)", two_digits(ns))
            }
            (BasisKind::Absolute, None) => {
                "delays end when the receiving program reads, which has no bound: no kernel stamps a stream"
                    .to_owned()
            }
            (BasisKind::Absolute, Some(_)) => return None,
        };
        Some((flow.flow, text))
    };
    grouped(&flows.iter().filter_map(|flow| said(flow)).collect::<Vec<_>>())
}

/// A bound with two digits, rounded up.
fn two_digits(ns: u64) -> String {
    let step = 10_u64.pow(ns.checked_ilog10().unwrap_or(0).saturating_sub(1));
    format_duration_ns(ns.div_ceil(step).saturating_mul(step))
}

/// Reasons of the verdicts, of the only flow or of all.
fn verdicts<'r>(report: &'r Report, flows: &[&'r FlowReport]) -> &'r [String] {
    match flows {
        [flow] => &flow.metrics.fidelity.reasons,
        _ => &report.total.metrics.fidelity.reasons,
    }
}

/// Remarks on flows beside their figures, each text once.
fn remarks(flows: &[&FlowReport]) -> Vec<String> {
    let mut said = Vec::new();
    for flow in flows {
        let m = &flow.metrics;
        let mut say = |text: String| said.push((flow.flow, text));
        let mut counts = |count: Option<u64>, what: &str| {
            if let Some(count) = count.filter(|&count| count > 0) {
                say(format!("{count} {what}"));
            }
        };
        counts(m.skipped_packets, "packets were left out by the sender");
        counts(m.duplicated, "packets arrived twice");
        counts(m.reordered, "packets arrived out of order");
        flow.notices.iter().for_each(|notice| say(notice.clone()));
        let plain = |end: &&String| end.is_empty() || *end == SCHEDULE_DONE;
        if let Some(end) = flow.end.as_ref().filter(|end| !plain(end)) {
            say(format!("end: {end}"));
        }
    }
    grouped(&said)
}

#[cfg(test)]
mod tests {
    use super::{digits, two_digits};

    #[test]
    fn figures_have_three_digits() {
        for (value, want) in [
            (0.0, "0"),
            (4.8337, "4.83"),
            (998.5007, "999"),
            (24838.98, "24839"),
            (0.000_312, "0.000312"),
            (-12.34, "-12.3"),
            (99.96, "100.0"),
        ] {
            assert_eq!(digits(value), want);
        }
        for (ns, want) in [(0, "0s"), (7, "7ns"), (24_100_001, "25ms"), (1_234, "1.3us")] {
            assert_eq!(two_digits(ns), want);
        }
    }
}
