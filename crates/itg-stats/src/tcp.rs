//! State of a flow's TCP connection in the sender's kernel while it ran.

use itg_record::TcpSample;
use serde::Serialize;

/// Most points of a series; of longer ones, every second, third … point is kept, and the last.
const MOST_POINTS: usize = 1000;

/// A TCP connection, as its sender's kernel saw it (`TCP_INFO`).
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TcpReport {
    /// Segments sent again.
    pub retransmitted: u64,
    /// Smallest round-trip time, in nanoseconds.
    pub min_rtt_ns: u64,
    /// The course of it.
    pub series: Vec<TcpPoint>,
}

/// A TCP connection at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TcpPoint {
    /// Instant of the sample: Unix time of the sender in nanoseconds.
    pub unix_ns: u64,
    /// Smoothed round-trip time in nanoseconds.
    pub rtt_ns: u64,
    /// Its mean deviation in nanoseconds.
    pub rtt_var_ns: u64,
    /// Congestion window in bytes.
    pub cwnd_bytes: u64,
    /// Slow-start threshold in bytes; `null` before the first loss.
    pub ssthresh_bytes: Option<u64>,
    /// Bytes on their way.
    pub in_flight_bytes: u64,
    /// Bytes acknowledged so far.
    pub acked_bytes: u64,
    /// Segments sent again so far.
    pub retransmitted: u64,
    /// Rate at which data arrived last, in bits per second.
    pub delivery_rate_bps: u64,
}

/// The samples of several connections, one after another, as those of one: what is counted from the start of a
/// connection goes on behind the last one.
fn joined(connections: &[Vec<TcpSample>]) -> Vec<TcpSample> {
    let mut order: Vec<&Vec<TcpSample>> =
        connections.iter().filter(|samples| !samples.is_empty()).collect();
    order.sort_by_key(|samples| samples.first().map(|sample| sample.unix_ns));
    let (mut acked, mut again, mut min_rtt_ns) = (0u64, 0u64, u64::MAX);
    let mut all: Vec<TcpSample> = Vec::new();
    for samples in order {
        all.extend(samples.iter().map(|sample| TcpSample {
            acked_bytes: acked.saturating_add(sample.acked_bytes),
            retransmitted: again.saturating_add(sample.retransmitted),
            min_rtt_ns: min_rtt_ns.min(sample.min_rtt_ns),
            ..sample.clone()
        }));
        if let Some(last) = all.last() {
            (acked, again, min_rtt_ns) = (last.acked_bytes, last.retransmitted, last.min_rtt_ns);
        }
    }
    all
}

/// Congestion control of the connections of a flow, where all of them had the same one.
pub(crate) fn congestion_control(connections: &[Vec<TcpSample>]) -> Option<String> {
    let mut samples = connections.iter().flatten();
    let name = samples.next()?.congestion.clone();
    name.filter(|name| samples.all(|sample| sample.congestion.as_ref() == Some(name)))
}

/// The report on the connections of a flow, the samples of each in the order of their time; `None` without any.
#[must_use]
pub fn report(connections: &[Vec<TcpSample>]) -> Option<TcpReport> {
    let samples = joined(connections);
    let last = samples.last()?;
    let step = samples.len().div_ceil(MOST_POINTS);
    let point = |sample: &TcpSample| TcpPoint {
        unix_ns: sample.unix_ns,
        rtt_ns: sample.rtt_ns,
        rtt_var_ns: sample.rtt_var_ns,
        cwnd_bytes: sample.cwnd_bytes,
        ssthresh_bytes: sample.ssthresh_bytes,
        in_flight_bytes: sample.in_flight_bytes,
        acked_bytes: sample.acked_bytes,
        retransmitted: sample.retransmitted,
        delivery_rate_bps: sample.delivery_rate_bps,
    };
    // Counted from the end, so that the last one is among them.
    let mut series: Vec<_> = samples.iter().rev().step_by(step).map(point).collect();
    series.reverse();
    Some(TcpReport { retransmitted: last.retransmitted, min_rtt_ns: last.min_rtt_ns, series })
}
