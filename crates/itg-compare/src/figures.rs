//! Figures that are compared.

/// The figures that are compared, by the names of gates, and whether two clocks spoil them. The first ones in the order
/// of [`STATISTICS`](crate::bootstrap::STATISTICS).
pub(crate) const FIGURES: [(&str, bool); 11] = [
    ("bitrate", false),
    ("loss", false),
    ("delay.mean", true),
    ("delay.p50", true),
    ("delay.p90", true),
    ("delay.p99", true),
    ("jitter.mean", false),
    ("delay.p999", true),
    ("delay.stddev", false),
    ("packet_rate", false),
    ("lateness.p99", false),
];
