//! Tests of `figures`, through what it shows.

use itg_stats::delay::DelayStats;
use itg_stats::figures::*;
use itg_stats::quantiles::Quantiles;

fn values(list: impl IntoIterator<Item = i64>) -> Quantiles {
    let mut all = Quantiles::default();
    list.into_iter().for_each(|value| all.add(value));
    all
}

#[test]
fn percentiles_need_ten_values_beyond() {
    for (count, told) in
        [(19, 0), (20, 1), (100, 3), (199, 3), (200, 4), (1_000, 5), (9_999, 5), (10_000, 6)]
    {
        let p = Percentiles::of(&values(1..=count)).expect("there are values");
        let list = [p.p50, p.p75, p.p90, p.p95, p.p99, p.p999, p.p9999, p.p99999];
        assert_eq!(list.iter().flatten().count(), told, "{count} values");
        assert!(list[..told].iter().all(Option::is_some), "{count} values");
    }
    let p = Percentiles::of(&values(1..=1_000)).expect("there are values");
    assert_eq!((p.count, p.p50, p.p99, p.p999), (1_000, Some(500), Some(990), None));
    assert_eq!(Percentiles::of(&values([])), None);
}

#[test]
fn variation_against_the_smallest_and_from_packet_to_packet() {
    let mut delays = DelayStats::default();
    for delay in [30, -10, 50, 10] {
        delays.add(delay);
    }
    let pdv = delays.pdv().expect("there are delays");
    assert!((pdv.mean - 30.0).abs() < 1e-9 && pdv.max == 60);
    let ipdv = delays.ipdv().expect("there are steps");
    assert_eq!((ipdv.count, ipdv.min, ipdv.p50, ipdv.max), (3, -40, -40, 60));
    assert!((ipdv.mean_abs - 140.0 / 3.0).abs() < 1e-9);
    assert_eq!((DelayStats::default().ipdv(), DelayStats::default().pdv()), (None, None));
}

fn split_of(
    lost: Option<u64>,
    skipped: Option<u64>,
    socket: Option<u64>,
    log: Option<u64>,
    too_late: Option<u64>,
) -> LossSplit {
    LossSplit { skipped, socket, log, too_late, ..LossSplit::default() }.of(lost)
}

#[test]
fn losses_are_split() {
    let split = split_of(Some(10), Some(3), Some(4), Some(1), None);
    assert_eq!(split.network, Some(6), "what is not in the log is not lost");
    assert_eq!(split_of(Some(2), None, Some(4), None, None).network, None);
    let mut sum = split;
    sum.add(&split_of(None, None, Some(1), None, None));
    assert_eq!((sum.socket, sum.log, sum.skipped), (Some(5), Some(1), Some(3)));
}

#[test]
fn packets_that_came_too_late_are_not_lost_in_the_network() {
    let split = |lost, too_late| split_of(lost, None, Some(4), None, Some(too_late)).network;
    assert_eq!((split(Some(10), 5), split(Some(10), 7), split(None, 1)), (Some(1), None, None));
}
