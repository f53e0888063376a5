//! Figures that gates and sweeps know by name: short names, whole percentiles of the delay, and every number of a
//! flow's entry in the JSON report under its keys.

use itg_core::text::nearest;
use serde_json::Value;

use super::{GateError, Kind};
use crate::fidelity::Verdict;
use crate::report::Metrics;

/// A figure of its own name in the figures of a report.
type Known = fn(&Metrics) -> Option<f64>;

/// Way to a figure.
#[derive(Clone, Copy, Debug)]
pub(super) enum Get {
    /// A figure of its own name.
    Of(Known),
    /// This whole percentile of the delay.
    DelayPercent(usize),
    /// The number under these keys of the JSON report.
    Json(&'static str),
}

impl Get {
    /// The figure in an entry of a report: its figures, and the whole of it as JSON.
    pub(super) fn of(self, metrics: &Metrics, entry: &dyn Fn() -> Value) -> Option<f64> {
        let value = match self {
            Self::Of(get) => get(metrics)?,
            Self::DelayPercent(percent) => {
                *metrics.delay_percents_ns.as_ref()?.get(percent.checked_sub(1)?)? as f64
            }
            Self::Json(path) => {
                let entry = entry();
                let found = path.split('.').try_fold(&entry, |value, key| value.get(key));
                found.and_then(Value::as_f64)?
            }
        };
        Some(value).filter(|value| value.is_finite())
    }
}

/// The metrics that gates know by short names: name, kind, where it is in a report.
#[rustfmt::skip]
const METRICS: [(&str, Kind, Known); 42] = [
    ("loss", Kind::Share, Metrics::loss_share),
    ("lost", Kind::Count, |m| whole(m.lost)),
    ("loss_bursts", Kind::Count, |m| whole(m.loss_bursts)),
    ("loss_burst_mean", Kind::Number, |m| m.loss_burst_mean),
    ("duplicated", Kind::Count, |m| whole(m.duplicated)),
    ("reordered", Kind::Count, |m| whole(m.reordered)),
    ("packets", Kind::Count, |m| whole(Some(m.packets))),
    ("sent_packets", Kind::Count, |m| whole(m.sent_packets)),
    ("skipped_packets", Kind::Count, |m| whole(m.skipped_packets)),
    ("excess_packets", Kind::Count, |m| whole(Some(m.excess_packets))),
    ("bytes", Kind::Size, |m| whole(Some(m.bytes))),
    ("duration", Kind::Time, |m| whole(Some(m.duration_ns))),
    ("bitrate", Kind::BitRate, |m| Some(m.bitrate_bps)),
    ("goodput", Kind::BitRate, |m| m.goodput_bps),
    ("packet_rate", Kind::PacketRate, |m| Some(m.packet_rate_pps)),
    ("delay.min", Kind::Time, |m| m.delay_ns.map(|d| d.min as f64)),
    ("delay.mean", Kind::Time, |m| m.delay_ns.map(|d| d.mean)),
    ("delay.max", Kind::Time, |m| m.delay_ns.map(|d| d.max as f64)),
    ("delay.stddev", Kind::Time, |m| m.delay_ns.map(|d| d.stddev)),
    ("delay.p50", Kind::Time, |m| m.delay_ns.map(|d| d.p50 as f64)),
    ("delay.p90", Kind::Time, |m| m.delay_ns.map(|d| d.p90 as f64)),
    ("delay.p99", Kind::Time, |m| m.delay_ns.map(|d| d.p99 as f64)),
    ("delay.p999", Kind::Time, |m| m.delay_ns.map(|d| d.p999 as f64)),
    ("delay.uncertainty", Kind::Time, |m| whole(m.delay_basis.and_then(|b| b.uncertainty_ns))),
    ("negative_delays", Kind::Count, |m| whole(Some(m.negative_delays))),
    ("jitter.mean", Kind::Time, |m| m.jitter_ns.map(|j| j.mean)),
    ("jitter.rfc3550", Kind::Time, |m| m.jitter_ns.and_then(|j| j.rfc3550)),
    ("jitter.p99", Kind::Time, |m| m.jitter_ns.map(|j| j.p99 as f64)),
    ("lateness.p50", Kind::Time, |m| m.lateness_ns.map(|l| l.p50 as f64)),
    ("lateness.p99", Kind::Time, |m| m.lateness_ns.map(|l| l.p99 as f64)),
    ("lateness.max", Kind::Time, |m| m.lateness_ns.map(|l| l.max as f64)),
    ("idt_ks", Kind::Number, |m| m.fidelity.idt_ks),
    ("size_ks", Kind::Number, |m| m.fidelity.size_ks),
    ("rate_error", Kind::Share, |m| m.fidelity.rate_error.map(f64::abs)),
    ("fidelity", Kind::Verdict, |m| Some(rank(m.fidelity.verdict))),
    ("fidelity.idt_ks", Kind::Number, |m| m.fidelity.idt_ks),
    ("fidelity.size_ks", Kind::Number, |m| m.fidelity.size_ks),
    ("fidelity.gap_error", Kind::Number, |m| m.fidelity.gap_error),
    ("fidelity.late_share", Kind::Share, |m| m.fidelity.late_share),
    ("fidelity.stall_gaps", Kind::Number, |m| m.fidelity.stall_gaps),
    ("fidelity.size_error", Kind::Share, |m| m.fidelity.size_error),
    ("fidelity.rate_error", Kind::Share, |m| m.fidelity.rate_error.map(f64::abs)),
];

/// The numbers of an entry of the JSON report, by their keys.
pub(super) const JSON: [&str; 154] = [
    "bitrate_bps",
    "bytes",
    "clock.bound_ns",
    "clock.offset_ns",
    "clock.probes",
    "clock.refused_probes",
    "clock.round_trip_ns",
    "clock.skew_bound_ppm",
    "clock.skew_ppm",
    "delay_basis.uncertainty_ns",
    "delay_ns.max",
    "delay_ns.mean",
    "delay_ns.min",
    "delay_ns.p50",
    "delay_ns.p90",
    "delay_ns.p99",
    "delay_ns.p999",
    "delay_ns.stddev",
    "delay_percentiles_ns.count",
    "delay_percentiles_ns.p50",
    "delay_percentiles_ns.p75",
    "delay_percentiles_ns.p90",
    "delay_percentiles_ns.p95",
    "delay_percentiles_ns.p99",
    "delay_percentiles_ns.p999",
    "delay_percentiles_ns.p9999",
    "delay_percentiles_ns.p99999",
    "departures.asked",
    "departures.every",
    "departures.invalid",
    "departures.lateness_ns.count",
    "departures.lateness_ns.max",
    "departures.lateness_ns.mean",
    "departures.lateness_ns.min",
    "departures.lateness_ns.p50",
    "departures.lateness_ns.p99",
    "departures.lateness_ns.p999",
    "departures.missed",
    "departures.missing",
    "duplicated",
    "duration_ns",
    "excess_packets",
    "fidelity.burst",
    "fidelity.gap_error",
    "fidelity.gap_error_half_width",
    "fidelity.gap_ns",
    "fidelity.idt_ks",
    "fidelity.idt_law_band",
    "fidelity.idt_law_ks",
    "fidelity.idt_law_mean_ns",
    "fidelity.idt_mean_half_width_ns",
    "fidelity.idt_mean_ns",
    "fidelity.late_p99_gaps",
    "fidelity.late_share",
    "fidelity.rate_error",
    "fidelity.resolution_ns",
    "fidelity.resolved_up_to_pps",
    "fidelity.size_chi_square.critical",
    "fidelity.size_chi_square.degrees",
    "fidelity.size_chi_square.effect",
    "fidelity.size_chi_square.statistic",
    "fidelity.size_error",
    "fidelity.size_ks",
    "fidelity.size_law_band",
    "fidelity.size_law_ks",
    "fidelity.stall_gaps",
    "fidelity.waited_packets",
    "foreign_packets",
    "goodput_bps",
    "host_buffer_errors",
    "ipdv_ns.count",
    "ipdv_ns.max",
    "ipdv_ns.mean_abs",
    "ipdv_ns.min",
    "ipdv_ns.p1",
    "ipdv_ns.p50",
    "ipdv_ns.p99",
    "jitter_ns.mean",
    "jitter_ns.p99",
    "jitter_ns.rfc3550",
    "lateness_ns.max",
    "lateness_ns.p50",
    "lateness_ns.p99",
    "ledger.departure_ns.count",
    "ledger.departure_ns.max",
    "ledger.departure_ns.mean",
    "ledger.departure_ns.min",
    "ledger.departure_ns.p50",
    "ledger.departure_ns.p99",
    "ledger.departure_ns.p999",
    "ledger.lateness_ns.count",
    "ledger.lateness_ns.max",
    "ledger.lateness_ns.mean",
    "ledger.lateness_ns.min",
    "ledger.lateness_ns.p50",
    "ledger.lateness_ns.p99",
    "ledger.lateness_ns.p999",
    "ledger.loss.log",
    "ledger.loss.network",
    "ledger.loss.skipped",
    "ledger.loss.socket",
    "ledger.network_ns.count",
    "ledger.network_ns.max",
    "ledger.network_ns.mean",
    "ledger.network_ns.min",
    "ledger.network_ns.p50",
    "ledger.network_ns.p99",
    "ledger.network_ns.p999",
    "ledger.stack_ns.count",
    "ledger.stack_ns.max",
    "ledger.stack_ns.mean",
    "ledger.stack_ns.min",
    "ledger.stack_ns.p50",
    "ledger.stack_ns.p99",
    "ledger.stack_ns.p999",
    "loss_burst_mean",
    "loss_bursts",
    "loss_model.burst_max",
    "loss_model.burst_mean",
    "loss_model.gap_mean",
    "loss_model.p",
    "loss_model.r",
    "lost",
    "marks.ce_longest_run",
    "marks.ce_packets",
    "marks.ce_runs",
    "marks.packets",
    "marks.sent_dscp",
    "marks.sent_ecn",
    "marks.sent_hop_limit",
    "negative_delays",
    "packet_rate_pps",
    "packets",
    "pdv_ns.count",
    "pdv_ns.max",
    "pdv_ns.mean",
    "pdv_ns.p50",
    "pdv_ns.p75",
    "pdv_ns.p90",
    "pdv_ns.p95",
    "pdv_ns.p99",
    "pdv_ns.p999",
    "pdv_ns.p9999",
    "pdv_ns.p99999",
    "receive_buffer_bytes",
    "reordered",
    "reordering.extent_max",
    "reordering.extent_mean",
    "reordering.free_run_mean",
    "reordering.free_runs",
    "sent_packets",
    "skipped_packets",
    "tcp.min_rtt_ns",
    "tcp.retransmitted",
];

fn whole(count: Option<u64>) -> Option<f64> {
    count.map(|count| count as f64)
}

pub(super) fn rank(verdict: Verdict) -> f64 {
    f64::from(verdict as u8)
}

/// The names of all metrics that gates know by short names, with what they are measured in.
pub fn metrics() -> impl Iterator<Item = (&'static str, Kind)> {
    METRICS.iter().map(|&(name, kind, _)| (name, kind))
}

/// A metric by its name.
pub(super) fn metric(name: &str) -> Result<(String, Kind, Get), GateError> {
    let known = METRICS.iter().find(|(known, ..)| *known == name);
    if let Some(&(_, kind, get)) = known {
        return Ok((name.to_owned(), kind, Get::Of(get)));
    }
    if let Some(percent) = name.strip_prefix("delay.p").and_then(percent) {
        return Ok((name.to_owned(), Kind::Time, Get::DelayPercent(percent)));
    }
    if let Some(&path) = JSON.iter().find(|path| **path == name) {
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
    let names = METRICS.iter().map(|(name, ..)| *name);
    let all = || names.clone().chain(JSON);
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
