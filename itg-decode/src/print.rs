//! The report and the packets in each of the formats.

use std::io::Write;

use itg_stats::report::{FlowReport, Metrics, Report};
use itg_stats::series::IntervalRow;
use itg_stats::text;
use serde::Serialize;

use crate::args::Format;

/// Prints the report.
pub(crate) fn report(report: &Report, format: Format, out: &mut dyn Write) -> anyhow::Result<()> {
    match format {
        Format::Text => out.write_all(text::render(report).as_bytes())?,
        Format::Json => writeln!(out, "{}", report.to_json())?,
        Format::Ndjson => ndjson(report, out)?,
        Format::Csv if report.intervals.is_some() => interval_csv(report, out)?,
        Format::Csv => flow_csv(report, out)?,
        Format::Octave => octave(report, out)?,
        // Packets, see `ditg`; columns are written to their file by `columns`.
        Format::Ditg | Format::Parquet => {}
    }
    Ok(())
}

/// A line of NDJSON: an object and what it is.
#[derive(Serialize)]
struct Line<'a, T> {
    #[serde(rename = "type")]
    kind: &'a str,
    #[serde(flatten)]
    value: &'a T,
}

/// A window of a flow as one line; the total has no flow.
#[derive(Serialize)]
pub(crate) struct WindowLine<'a> {
    pub(crate) flow: Option<u32>,
    pub(crate) run: Option<&'a str>,
    pub(crate) side: Option<&'a str>,
    pub(crate) interval_ns: u64,
    pub(crate) start_unix_ns: u64,
    #[serde(flatten)]
    pub(crate) row: &'a IntervalRow,
}

fn ndjson(report: &Report, out: &mut dyn Write) -> anyhow::Result<()> {
    fn line<T: Serialize>(out: &mut dyn Write, kind: &str, value: &T) -> anyhow::Result<()> {
        serde_json::to_writer(&mut *out, &Line { kind, value })?;
        Ok(out.write_all(b"\n")?)
    }
    #[derive(Serialize)]
    struct Head<'a> {
        schema: u32,
        manifest: &'a serde_json::Map<String, serde_json::Value>,
        notices: &'a [String],
    }
    let Report { schema, manifest, notices, .. } = report;
    line(out, "report", &Head { schema: *schema, manifest, notices })?;
    for flow in &report.flows {
        line(out, "flow", flow)?;
    }
    for window in window_lines(report) {
        line(out, "window", &window)?;
    }
    for group in report.groups.iter().flatten() {
        line(out, "group", group)?;
    }
    for damage in &report.damage {
        line(out, "damage", damage)?;
    }
    line(out, "total", &report.total)
}

pub(crate) fn window_lines(report: &Report) -> impl Iterator<Item = WindowLine<'_>> {
    report.intervals.iter().flat_map(|intervals| {
        let line = |flow, run, side, row| WindowLine {
            flow,
            run,
            side,
            interval_ns: intervals.interval_ns,
            start_unix_ns: intervals.start_unix_ns,
            row,
        };
        let flows = intervals.flows.iter().flat_map(move |flow| {
            let (run, side) = (Some(flow.run.as_str()), Some(flow.side));
            flow.windows.iter().map(move |row| line(Some(flow.flow), run, side, row))
        });
        flows.chain(intervals.total.iter().map(move |row| line(None, None, None, row)))
    })
}

/// A figure, or nothing where it is not known.
fn cell<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

fn flow_csv(report: &Report, out: &mut dyn Write) -> anyhow::Result<()> {
    let mut csv = csv::Writer::from_writer(out);
    csv.write_record(FLOW_COLUMNS)?;
    for flow in &report.flows {
        csv.write_record(flow_cells(flow))?;
    }
    Ok(csv.flush()?)
}

/// Columns of `--format csv`: the keys of the JSON, nested ones joined by `_`.
const FLOW_COLUMNS: [&str; 38] = [
    "flow",
    "run",
    "proto",
    "src",
    "dst",
    "side",
    "meter",
    "profile",
    "packets",
    "bytes",
    "duration_ns",
    "bitrate_bps",
    "packet_rate_pps",
    "sent_packets",
    "skipped_packets",
    "lost",
    "duplicated",
    "reordered",
    "loss_bursts",
    "loss_burst_mean",
    "delay_min_ns",
    "delay_mean_ns",
    "delay_max_ns",
    "delay_stddev_ns",
    "delay_p50_ns",
    "delay_p90_ns",
    "delay_p99_ns",
    "delay_p999_ns",
    "delay_uncertainty_ns",
    "jitter_mean_ns",
    "jitter_rfc3550_ns",
    "jitter_p99_ns",
    "lateness_p50_ns",
    "lateness_p99_ns",
    "lateness_max_ns",
    "fidelity",
    "idt_ks",
    "size_ks",
];

fn flow_cells(flow: &FlowReport) -> [String; 38] {
    let FlowReport { run, src, dst, side, metrics: m, .. } = flow;
    let Metrics { delay_ns: delay, jitter_ns: jitter, lateness_ns: late, fidelity, .. } = m;
    [
        flow.flow.to_string(),
        run.clone(),
        cell(flow.proto),
        src.clone(),
        dst.clone(),
        (*side).to_owned(),
        cell(flow.meter),
        cell(flow.profile.as_ref()),
        m.packets.to_string(),
        m.bytes.to_string(),
        m.duration_ns.to_string(),
        m.bitrate_bps.to_string(),
        m.packet_rate_pps.to_string(),
        cell(m.sent_packets),
        cell(m.skipped_packets),
        cell(m.lost),
        cell(m.duplicated),
        cell(m.reordered),
        cell(m.loss_bursts),
        cell(m.loss_burst_mean),
        cell(delay.map(|d| d.min)),
        cell(delay.map(|d| d.mean)),
        cell(delay.map(|d| d.max)),
        cell(delay.map(|d| d.stddev)),
        cell(delay.map(|d| d.p50)),
        cell(delay.map(|d| d.p90)),
        cell(delay.map(|d| d.p99)),
        cell(delay.map(|d| d.p999)),
        cell(m.delay_basis.and_then(|basis| basis.uncertainty_ns)),
        cell(jitter.map(|j| j.mean)),
        cell(jitter.and_then(|j| j.rfc3550)),
        cell(jitter.map(|j| j.p99)),
        cell(late.map(|l| l.p50)),
        cell(late.map(|l| l.p99)),
        cell(late.map(|l| l.max)),
        fidelity.verdict.name().to_owned(),
        cell(fidelity.idt_ks),
        cell(fidelity.size_ks),
    ]
}

fn interval_csv(report: &Report, out: &mut dyn Write) -> anyhow::Result<()> {
    let mut csv = csv::Writer::from_writer(out);
    csv.write_record([
        "flow",
        "run",
        "side",
        "start_ns",
        "partial",
        "packets",
        "bytes",
        "bitrate_bps",
        "delay_mean_ns",
        "jitter_mean_ns",
        "lost",
    ])?;
    for WindowLine { flow, run, side, row, .. } in window_lines(report) {
        csv.write_record([
            cell(flow),
            cell(run),
            side.unwrap_or("total").to_owned(),
            row.start_ns.to_string(),
            row.partial.to_string(),
            row.packets.to_string(),
            row.bytes.to_string(),
            row.bitrate_bps.to_string(),
            cell(row.delay_mean_ns),
            cell(row.jitter_mean_ns),
            cell(row.lost),
        ])?;
    }
    Ok(csv.flush()?)
}

/// A text in Octave's quotes.
fn quoted(text: &str) -> String {
    let plain: String = text.chars().filter(|c| !c.is_control()).collect();
    format!("'{}'", plain.replace('\'', "''"))
}

/// A script of GNU Octave and MATLAB that defines the figures of the flows and, with windows, their
/// course: what ITGDec's `-d`, `-j`, `-b` and `-p` files hold, one matrix for all.
fn octave(report: &Report, out: &mut dyn Write) -> anyhow::Result<()> {
    writeln!(out, "% itg-decode: one row a flow and side; NaN where a figure is not known.")?;
    let numbers: Vec<usize> = (0..FLOW_COLUMNS.len())
        .filter(|&at| {
            !["run", "proto", "src", "dst", "side", "meter", "profile", "fidelity"]
                .contains(&FLOW_COLUMNS[at])
        })
        .collect();
    let names: Vec<_> = numbers.iter().map(|&at| quoted(FLOW_COLUMNS[at])).collect();
    writeln!(out, "flow_columns = {{{}}};", names.join(", "))?;
    writeln!(out, "flows = [")?;
    for flow in &report.flows {
        let cells = flow_cells(flow);
        let row: Vec<_> = numbers
            .iter()
            .map(|&at| if cells[at].is_empty() { "NaN" } else { cells[at].as_str() })
            .collect();
        writeln!(out, "{}", row.join(" "))?;
    }
    writeln!(out, "];")?;
    writeln!(out, "flow_names = {{")?;
    for flow in &report.flows {
        let FlowReport { src, dst, side, .. } = flow;
        writeln!(out, "{}", quoted(&format!("{}-{src}-{dst} ({side})", flow.flow)))?;
    }
    writeln!(out, "}};")?;
    let Some(intervals) = &report.intervals else { return Ok(()) };
    writeln!(out, "interval_s = {};", intervals.interval_ns as f64 / 1e9)?;
    writeln!(
        out,
        "window_columns = {{'start_s', 'packets', 'bytes', 'bitrate_bps', 'delay_s', 'jitter_s', \
         'lost'}};"
    )?;
    let rows = |out: &mut dyn Write, windows: &[IntervalRow]| -> std::io::Result<()> {
        let nan = |value: Option<f64>| value.map_or_else(|| "NaN".to_owned(), |v| v.to_string());
        for row in windows {
            let (delay, jitter) = (row.delay_mean_ns, row.jitter_mean_ns);
            let [delay, jitter] = [delay, jitter].map(|ns| nan(ns.map(|ns| ns / 1e9)));
            let lost = nan(row.lost.map(|lost| lost as f64));
            let IntervalRow { packets, bytes, bitrate_bps, .. } = row;
            let start = row.start_ns as f64 / 1e9;
            writeln!(out, "{start} {packets} {bytes} {bitrate_bps} {delay} {jitter} {lost}")?;
        }
        writeln!(out, "];")
    };
    // Entry k of `windows` belongs to row k of `flows`.
    writeln!(out, "windows = cell({}, 1);", intervals.flows.len())?;
    for (number, flow) in (1..).zip(&intervals.flows) {
        writeln!(out, "windows{{{number}}} = [")?;
        rows(out, &flow.windows)?;
    }
    writeln!(out, "total_windows = [")?;
    Ok(rows(out, &intervals.total)?)
}
