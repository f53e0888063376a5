//! Reports on TCP connections.

use itg_record::TcpSample;
use itg_stats::tcp::report;

fn sample(k: u64) -> TcpSample {
    TcpSample {
        congestion: None,
        index: 1,
        unix_ns: k,
        rtt_ns: 40,
        rtt_var_ns: 5,
        min_rtt_ns: 30 - k.min(20),
        cwnd_bytes: 10,
        ssthresh_bytes: None,
        in_flight_bytes: 3,
        acked_bytes: 100 * k,
        retransmitted: k / 100,
        delivery_rate_bps: 7,
    }
}

#[test]
fn long_series_are_thinned_out_and_keep_their_end() {
    assert_eq!(report(&[]), None);
    for (count, points) in [(1, 1), (1000, 1000), (1001, 501), (2500, 834)] {
        let samples: Vec<_> = (0..count).map(sample).collect();
        let report = report(&[samples]).expect("samples");
        assert_eq!(report.series.len(), points, "{count} samples");
        assert_eq!(report.series.last().map(|p| p.unix_ns), Some(count - 1), "{count} samples");
        assert!(report.series.is_sorted_by_key(|point| point.unix_ns));
        assert_eq!(report.retransmitted, (count - 1) / 100);
    }
}

#[test]
fn connections_of_several_owners_are_added_up() {
    let (first, second) = ((0..300).map(sample), (1_000..1_150).map(sample));
    let report = report(&[second.collect(), first.collect()]).expect("samples");
    assert_eq!((report.retransmitted, report.min_rtt_ns), (2 + 11, 10));
    assert!(report.series.is_sorted_by_key(|point| (point.unix_ns, point.acked_bytes)));
}
