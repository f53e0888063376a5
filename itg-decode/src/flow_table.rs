//! The table of flows: `--format csv`, and the numbers of `--format octave`.

use std::io::Write;

use itg_core::text::table_cell;
use itg_stats::figures::{Percentiles, Way};
use itg_stats::report::{FlowReport, Report};

/// A column: its name, which is the key of the JSON, nested ones joined by `_` and the unit last; and what
/// a flow has there.
type Column = (&'static str, fn(&FlowReport) -> String);

/// Value that a cell of a table may hold.
pub(crate) trait Cell {
    /// The value as text. A fraction always has its point, so that readers that look at some rows alone do not take the
    /// column for whole numbers.
    fn text(&self) -> String;
}

impl Cell for f64 {
    fn text(&self) -> String {
        format!("{self:?}")
    }
}

macro_rules! as_they_are {
    ($($kind:ty),*) => { $(impl Cell for $kind {
        fn text(&self) -> String {
            self.to_string()
        }
    })* };
}
as_they_are!(u32, u64, i64, &str, &String);

/// A figure, or nothing where it is not known.
pub(crate) fn cell<T: Cell>(value: Option<T>) -> String {
    value.map_or_else(String::new, |value| value.text())
}

/// A percentile of the delay.
fn delay(flow: &FlowReport, which: fn(&Percentiles) -> Option<i64>) -> String {
    cell(flow.metrics.delay_percentiles_ns.as_ref().and_then(which))
}

/// A percentile of the delay above the smallest one.
fn pdv(flow: &FlowReport, which: fn(&Percentiles) -> Option<i64>) -> String {
    cell(flow.metrics.pdv_ns.as_ref().and_then(|pdv| which(&pdv.percentiles)))
}

fn way<T: Cell>(way: Option<Way>, which: fn(Way) -> T) -> String {
    cell(way.map(which))
}

/// New columns come behind the old ones.
const COLUMNS: &[Column] = &[
    ("flow", |f| f.flow.to_string()),
    ("run", |f| f.run.clone()),
    ("proto", |f| cell(f.proto)),
    ("src", |f| f.src.clone()),
    ("dst", |f| f.dst.clone()),
    ("side", |f| f.side.to_owned()),
    ("meter", |f| cell(f.meter)),
    ("profile", |f| cell(f.profile.as_ref())),
    ("packets", |f| f.metrics.packets.to_string()),
    ("bytes", |f| f.metrics.bytes.to_string()),
    ("duration_ns", |f| f.metrics.duration_ns.to_string()),
    ("bitrate_bps", |f| f.metrics.bitrate_bps.text()),
    ("packet_rate_pps", |f| f.metrics.packet_rate_pps.text()),
    ("sent_packets", |f| cell(f.metrics.sent_packets)),
    ("skipped_packets", |f| cell(f.metrics.skipped_packets)),
    ("lost", |f| cell(f.metrics.lost)),
    ("duplicated", |f| cell(f.metrics.duplicated)),
    ("reordered", |f| cell(f.metrics.reordered)),
    ("loss_bursts", |f| cell(f.metrics.loss_bursts)),
    ("loss_burst_mean", |f| cell(f.metrics.loss_burst_mean)),
    ("delay_min_ns", |f| cell(f.metrics.delay_ns.map(|d| d.min))),
    ("delay_mean_ns", |f| cell(f.metrics.delay_ns.map(|d| d.mean))),
    ("delay_max_ns", |f| cell(f.metrics.delay_ns.map(|d| d.max))),
    ("delay_stddev_ns", |f| cell(f.metrics.delay_ns.map(|d| d.stddev))),
    ("delay_p50_ns", |f| cell(f.metrics.delay_ns.map(|d| d.p50))),
    ("delay_p90_ns", |f| cell(f.metrics.delay_ns.map(|d| d.p90))),
    ("delay_p99_ns", |f| cell(f.metrics.delay_ns.map(|d| d.p99))),
    ("delay_p999_ns", |f| cell(f.metrics.delay_ns.map(|d| d.p999))),
    ("delay_uncertainty_ns", |f| {
        cell(f.metrics.delay_basis.and_then(|basis| basis.uncertainty_ns))
    }),
    ("jitter_mean_ns", |f| cell(f.metrics.jitter_ns.map(|j| j.mean))),
    ("jitter_rfc3550_ns", |f| cell(f.metrics.jitter_ns.and_then(|j| j.rfc3550))),
    ("jitter_p99_ns", |f| cell(f.metrics.jitter_ns.map(|j| j.p99))),
    ("lateness_p50_ns", |f| cell(f.metrics.lateness_ns.map(|l| l.p50))),
    ("lateness_p99_ns", |f| cell(f.metrics.lateness_ns.map(|l| l.p99))),
    ("lateness_max_ns", |f| cell(f.metrics.lateness_ns.map(|l| l.max))),
    ("fidelity", |f| f.metrics.fidelity.verdict.name().to_owned()),
    ("idt_ks", |f| cell(f.metrics.fidelity.idt_ks)),
    ("size_ks", |f| cell(f.metrics.fidelity.size_ks)),
    ("rate_error", |f| cell(f.metrics.fidelity.rate_error)),
    ("idt_law_ks", |f| cell(f.metrics.fidelity.idt_law_ks)),
    ("idt_law_band", |f| cell(f.metrics.fidelity.idt_law_band)),
    ("size_law_ks", |f| cell(f.metrics.fidelity.size_law_ks)),
    ("size_law_band", |f| cell(f.metrics.fidelity.size_law_band)),
    ("goodput_bps", |f| cell(f.metrics.goodput_bps)),
    ("negative_delays", |f| f.metrics.negative_delays.to_string()),
    ("delay_count", |f| cell(f.metrics.delay_percentiles_ns.map(|p| p.count))),
    ("delay_p75_ns", |f| delay(f, |p| p.p75)),
    ("delay_p95_ns", |f| delay(f, |p| p.p95)),
    ("delay_p9999_ns", |f| delay(f, |p| p.p9999)),
    ("delay_p99999_ns", |f| delay(f, |p| p.p99999)),
    ("ipdv_min_ns", |f| cell(f.metrics.ipdv_ns.map(|v| v.min))),
    ("ipdv_p1_ns", |f| cell(f.metrics.ipdv_ns.map(|v| v.p1))),
    ("ipdv_p50_ns", |f| cell(f.metrics.ipdv_ns.map(|v| v.p50))),
    ("ipdv_p99_ns", |f| cell(f.metrics.ipdv_ns.map(|v| v.p99))),
    ("ipdv_max_ns", |f| cell(f.metrics.ipdv_ns.map(|v| v.max))),
    ("pdv_mean_ns", |f| cell(f.metrics.pdv_ns.map(|v| v.mean))),
    ("pdv_p50_ns", |f| pdv(f, |p| p.p50)),
    ("pdv_p99_ns", |f| pdv(f, |p| p.p99)),
    ("pdv_p999_ns", |f| pdv(f, |p| p.p999)),
    ("loss_model_p", |f| cell(f.metrics.loss_model.and_then(|l| l.p))),
    ("loss_model_r", |f| cell(f.metrics.loss_model.and_then(|l| l.r))),
    ("loss_model_burst_max", |f| cell(f.metrics.loss_model.map(|l| l.burst_max))),
    ("reordering_extent_mean", |f| cell(f.metrics.reordering.map(|r| r.extent_mean))),
    ("reordering_extent_max", |f| cell(f.metrics.reordering.map(|r| r.extent_max))),
    ("ledger_lateness_mean_ns", |f| way(f.metrics.ledger.lateness_ns, |w| w.mean)),
    ("ledger_network_mean_ns", |f| way(f.metrics.ledger.network_ns, |w| w.mean)),
    ("ledger_stack_mean_ns", |f| way(f.metrics.ledger.stack_ns, |w| w.mean)),
    ("ledger_stack_p99_ns", |f| way(f.metrics.ledger.stack_ns, |w| w.p99)),
    ("ledger_loss_socket", |f| cell(f.metrics.ledger.loss.socket)),
    ("ledger_loss_log", |f| cell(f.metrics.ledger.loss.log)),
    ("ledger_loss_network", |f| cell(f.metrics.ledger.loss.network)),
    ("clock_offset_ns", |f| cell(f.clock.as_ref().map(|c| c.offset_ns))),
    ("clock_bound_ns", |f| cell(f.clock.as_ref().map(|c| c.bound_ns))),
    ("clock_skew_ppm", |f| cell(f.clock.as_ref().map(|c| c.skew_ppm))),
    ("ledger_departure_p50_ns", |f| way(f.metrics.ledger.departure_ns, |w| w.p50)),
    ("ledger_departure_p99_ns", |f| way(f.metrics.ledger.departure_ns, |w| w.p99)),
    ("departure_stamps", |f| way(f.metrics.ledger.departure_ns, |w| w.count)),
    ("departure_stamps_missing", |f| cell(f.departures.as_ref().and_then(|d| d.missing))),
    ("excess_packets", |f| f.metrics.excess_packets.to_string()),
    ("name", |f| f.name.clone()),
];

/// Columns that hold words.
const WORDS: [&str; 9] =
    ["run", "proto", "src", "dst", "side", "meter", "profile", "fidelity", "name"];

/// One line a flow and side.
pub(crate) fn csv(report: &Report, out: &mut dyn Write) -> anyhow::Result<()> {
    let mut csv = csv::Writer::from_writer(out);
    csv.write_record(COLUMNS.iter().map(|(name, _)| name))?;
    for flow in &report.flows {
        csv.write_record(COLUMNS.iter().map(|(name, value)| {
            let value = value(flow);
            if WORDS.contains(name) { table_cell(&value).into_owned() } else { value }
        }))?;
    }
    Ok(csv.flush()?)
}

/// Names of the columns that hold numbers.
pub(crate) fn number_names() -> impl Iterator<Item = &'static str> {
    numbers().map(|(name, _)| *name)
}

/// Values of a flow in the columns that hold numbers; empty where a value is not known.
pub(crate) fn number_cells(flow: &FlowReport) -> impl Iterator<Item = String> {
    numbers().map(|(_, value)| value(flow))
}

fn numbers() -> impl Iterator<Item = &'static Column> {
    COLUMNS.iter().filter(|(name, _)| !WORDS.contains(name))
}
