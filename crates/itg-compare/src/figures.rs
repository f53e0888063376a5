//! Figures that are compared.

use itg_stats::report::Metrics;

type Get = fn(&Metrics) -> Option<f64>;

/// The figures that are compared: name, unit, whether two clocks spoil it. The first ones in the order
/// of [`STATISTICS`](crate::bootstrap::STATISTICS).
pub(crate) const FIGURES: [(&str, &str, bool, Get); 11] = [
    ("bitrate", "bit/s", false, |m| Some(m.bitrate_bps)),
    ("loss", "1", false, Metrics::loss_share),
    ("delay.mean", "ns", true, |m| m.delay_ns.map(|d| d.mean)),
    ("delay.p50", "ns", true, |m| m.delay_ns.map(|d| d.p50 as f64)),
    ("delay.p90", "ns", true, |m| m.delay_ns.map(|d| d.p90 as f64)),
    ("delay.p99", "ns", true, |m| m.delay_ns.map(|d| d.p99 as f64)),
    ("jitter.mean", "ns", false, |m| m.jitter_ns.map(|j| j.mean)),
    ("delay.p999", "ns", true, |m| m.delay_ns.map(|d| d.p999 as f64)),
    ("delay.stddev", "ns", false, |m| m.delay_ns.map(|d| d.stddev)),
    ("packet_rate", "packets/s", false, |m| Some(m.packet_rate_pps)),
    ("lateness.p99", "ns", false, |m| m.lateness_ns.map(|l| l.p99 as f64)),
];
