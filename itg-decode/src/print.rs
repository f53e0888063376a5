//! The report and the packets in each of the formats.

use std::io::Write;

use itg_core::text::{table_cell, visible_lines};
use itg_stats::gate::Outcome;
use itg_stats::report::{FlowReport, Report};
use itg_stats::series::IntervalRow;
use itg_stats::{summary, text};
use serde::Serialize;

use crate::flow_table::{self, Cell as _, cell};
use crate::format::Format;

/// Prints the report.
pub(crate) fn report(
    report: &Report,
    format: Format,
    details: bool,
    gates: &[Outcome],
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    match format {
        Format::Text => {
            if details {
                write!(out, "{}\n{}", summary::render_all(report), text::render(report))?;
            } else {
                out.write_all(summary::render(report).as_bytes())?;
            }
        }
        Format::Markdown => out.write_all(itg_stats::markdown::report(report, gates).as_bytes())?,
        Format::Itgdec => out.write_all(text::render(report).as_bytes())?,
        Format::Json => Visible::report(out, report)?,
        Format::Ndjson => ndjson(report, out)?,
        Format::Csv if report.intervals.is_some() => interval_csv(report, out)?,
        Format::Csv => flow_table::csv(report, out)?,
        Format::Octave => octave(report, out)?,
        Format::Flent => {
            let data = itg_report::flent(report);
            let data = data.ok_or_else(|| anyhow::anyhow!("--format flent without windows"))?;
            writeln!(out, "{data}")?;
        }
        // Packets, see `ditg`; columns are written to their file by `columns`.
        Format::Ditg | Format::Parquet => {}
    }
    Ok(())
}

/// JSON on its way out, in which texts of peers do nothing to a terminal.
struct Visible<'a> {
    out: &'a mut dyn Write,
    /// Whole texts, which JSON is written in.
    texts: Vec<u8>,
}

impl Visible<'_> {
    /// Bytes that are looked through at once.
    const SOME: usize = 1 << 16;

    /// Writes the report.
    fn report(out: &mut dyn Write, report: &Report) -> anyhow::Result<()> {
        let mut visible = Visible { out, texts: Vec::new() };
        serde_json::to_writer_pretty(&mut visible, report)?;
        visible.flush()?;
        Ok(writeln!(out)?)
    }
}

impl Write for Visible<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.texts.extend_from_slice(bytes);
        if self.texts.len() >= Self::SOME {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        let text = std::str::from_utf8(&self.texts).map_err(std::io::Error::other)?;
        self.out.write_all(visible_lines(text).as_bytes())?;
        self.texts.clear();
        Ok(())
    }
}

/// A line of NDJSON: an object and what it is.
#[derive(Serialize)]
struct PacketLine<'a, T> {
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
        let json = serde_json::to_string(&PacketLine { kind, value })?;
        Ok(writeln!(out, "{}", visible_lines(&json))?)
    }
    #[derive(Serialize)]
    struct Head<'a> {
        schema: u32,
        manifest: &'a serde_json::Map<String, serde_json::Value>,
        errors: &'a [String],
        notices: &'a [String],
    }
    let Report { schema, manifest, errors, notices, .. } = report;
    line(out, "report", &Head { schema: *schema, manifest, errors, notices })?;
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
            table_cell(run.unwrap_or_default()).into_owned(),
            side.unwrap_or("total").to_owned(),
            row.start_ns.to_string(),
            row.partial.to_string(),
            row.packets.to_string(),
            row.bytes.to_string(),
            row.bitrate_bps.text(),
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
/// values over time: what ITGDec's `-d`, `-j`, `-b` and `-p` files hold, one matrix for all.
fn octave(report: &Report, out: &mut dyn Write) -> anyhow::Result<()> {
    writeln!(out, "% itg-decode: one row a flow and side; NaN where a figure is not known.")?;
    let (names, rows) = flow_table::numbers(report);
    let names: Vec<_> = names.into_iter().map(quoted).collect();
    writeln!(out, "flow_columns = {{{}}};", names.join(", "))?;
    writeln!(out, "flows = [")?;
    for row in rows {
        let row: Vec<_> =
            row.iter().map(|cell| if cell.is_empty() { "NaN" } else { cell }).collect();
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
