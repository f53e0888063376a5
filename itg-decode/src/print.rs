//! The report and the packets in each of the formats.

use std::io::Write;

use itg_stats::report::{FlowReport, Metrics, Report};
use itg_stats::series::IntervalRow;
use itg_stats::{PacketLine, text};
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
struct WindowLine<'a> {
    flow: Option<u32>,
    run: Option<&'a str>,
    side: Option<&'a str>,
    interval_ns: u64,
    start_unix_ns: u64,
    #[serde(flatten)]
    row: &'a IntervalRow,
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
    for damage in &report.damage {
        line(out, "damage", damage)?;
    }
    line(out, "total", &report.total)
}

fn window_lines(report: &Report) -> impl Iterator<Item = WindowLine<'_>> {
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

/// Prints one line a packet.
pub(crate) fn packets(
    packets: &[PacketLine],
    format: Format,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    match format {
        Format::Text => packet_text(packets, out)?,
        Format::Csv => {
            writeln!(out, "flow,seq,size_bytes,planned_ns,sent_ns,arrived_ns,read_ns")?;
            for packet in packets {
                let PacketLine { flow, seq, size_bytes, .. } = packet;
                let [planned, sent, arrived, read] = times(packet).map(cell);
                writeln!(out, "{flow},{seq},{size_bytes},{planned},{sent},{arrived},{read}")?;
            }
        }
        Format::Json => {
            serde_json::to_writer(&mut *out, packets)?;
            writeln!(out)?;
        }
        Format::Ndjson => {
            for packet in packets {
                serde_json::to_writer(&mut *out, packet)?;
                writeln!(out)?;
            }
        }
    }
    Ok(())
}

fn packet_text(packets: &[PacketLine], out: &mut dyn Write) -> std::io::Result<()> {
    writeln!(
        out,
        "{:>6} {:>12} {:>10} {:>16} {:>20} {:>20} {:>20}",
        "flow", "seq", "size [B]", "planned [ns]", "sent [ns]", "arrived [ns]", "read [ns]"
    )?;
    for packet in packets {
        let PacketLine { flow, seq, size_bytes, .. } = packet;
        let dash = |ns: Option<u64>| ns.map_or_else(|| "-".to_owned(), |ns| ns.to_string());
        let [planned, sent, arrived, read] = times(packet).map(dash);
        writeln!(
            out,
            "{flow:>6} {seq:>12} {size_bytes:>10} {planned:>16} {sent:>20} {arrived:>20} {read:>20}"
        )?;
    }
    Ok(())
}

fn times(packet: &PacketLine) -> [Option<u64>; 4] {
    [packet.planned_ns, packet.sent_ns, packet.arrived_ns, packet.read_ns]
}
