//! Delays of a flow: their jitter and variation by the formulas, in parts and as a whole.
#![allow(missing_docs, reason = "tests")]

use itg_stats::delay::DelayStats;
use proptest::prelude::*;

fn stats(delays: &[i64]) -> DelayStats {
    let mut stats = DelayStats::default();
    for &delay in delays {
        stats.add(delay);
    }
    stats
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * a.abs().max(b.abs()).max(1.0)
}

proptest! {
    #[test]
    fn jitter_agrees_with_the_formulas(
        delays in prop::collection::vec(-86_400_000_000_000i64..86_400_000_000_000, 1..200),
    ) {
        let steps: Vec<f64> =
            delays.windows(2).map(|d| (d[1] as f64 - d[0] as f64).abs()).collect();
        let mean = if steps.is_empty() {
            0.0
        } else {
            steps.iter().sum::<f64>() / steps.len() as f64
        };
        let filter = steps.iter().fold(0.0, |j, step| j + (step - j) / 16.0);
        let mut sorted = steps;
        sorted.sort_unstable_by(f64::total_cmp);
        let p99 = (0..sorted.len()).find(|&i| (i + 1) as f64 >= 0.99 * sorted.len() as f64 - 1e-9);
        let got = stats(&delays);
        let jitter = got.jitter().expect("there are delays");
        prop_assert!(close(jitter.mean, mean));
        prop_assert!(close(jitter.rfc3550.expect("one flow"), filter));
        prop_assert!(close(jitter.p99 as f64, p99.map_or(0.0, |i| sorted[i])));
        prop_assert_eq!(got.negative(), delays.iter().filter(|&&d| d < 0).count() as u64);
    }

    #[test]
    fn some_delays_at_once_are_the_same_as_one_by_one(
        delays in prop::collection::vec(-1_000_000_000i64..1_000_000_000, 0..1_500),
        cut in 0usize..1_500,
    ) {
        let singly = stats(&delays);
        let mut at_once = DelayStats::default();
        let (head, tail) = delays.split_at(cut.min(delays.len()));
        at_once.add_all(head);
        at_once.add_all(tail);
        prop_assert_eq!(at_once.delay(), singly.delay());
        prop_assert_eq!(at_once.variation().points(), singly.variation().points());
        prop_assert_eq!(at_once.variation_mean().to_bits(), singly.variation_mean().to_bits());
        prop_assert_eq!(at_once.negative(), singly.negative());
        let other = stats(&[7]);
        prop_assert_eq!(at_once.step_to(&other), singly.step_to(&other));
        prop_assert_eq!(other.step_to(&at_once), other.step_to(&singly));
        let filter = |stats: &DelayStats| stats.jitter().map_or(0.0, |j| j.rfc3550.expect("one flow"));
        prop_assert!(close(filter(&at_once), filter(&singly)));
    }

    #[test]
    fn appended_parts_are_the_whole(
        delays in prop::collection::vec(-1_000_000_000i64..1_000_000_000, 0..200),
        cut in 0usize..200,
    ) {
        let cut = cut.min(delays.len());
        let mut parts = stats(&delays[..cut]);
        parts.append(&stats(&delays[cut..]));
        let whole = stats(&delays);
        prop_assert_eq!(parts.count(), whole.count());
        if let (Some(a), Some(b)) = (parts.jitter(), whole.jitter()) {
            prop_assert!(close(a.mean, b.mean));
            prop_assert!(close(a.rfc3550.expect("one flow"), b.rfc3550.expect("one flow")));
            prop_assert_eq!(a.p99, b.p99);
        }
        if let (Some(a), Some(b)) = (parts.delay(), whole.delay()) {
            prop_assert!(close(a.mean, b.mean) && close(a.stddev, b.stddev));
            prop_assert_eq!((a.min, a.p50, a.p999, a.max), (b.min, b.p50, b.p999, b.max));
        }
    }
}

#[test]
fn pooled_flows_keep_no_filter_and_no_step_between_them() {
    let mut total = DelayStats::default();
    total.pool(&stats(&[10, 20]));
    total.pool(&stats(&[1_000, 1_040]));
    let jitter = total.jitter().expect("there are delays");
    assert!(close(jitter.mean, 25.0) && jitter.rfc3550.is_none());
    assert_eq!((jitter.p99, total.count()), (40, 4));
    assert_eq!(DelayStats::default().delay(), None);
    assert_eq!(DelayStats::default().jitter(), None);
}

#[test]
fn delays_that_are_far_apart_at_once_are_the_same_as_one_by_one() {
    let far = 1 << 62;
    for delays in [
        [i64::MAX, i64::MIN, 0],
        [i64::MIN, i64::MAX, i64::MIN],
        [far, -far, far],
        [0, far, 1 - far],
    ] {
        let (singly, mut at_once) = (stats(&delays), DelayStats::default());
        at_once.add_all(&delays);
        assert_eq!(at_once.variation().points(), singly.variation().points(), "{delays:?}");
        let means = [&at_once, &singly].map(|delays| delays.variation_mean().to_bits());
        assert_eq!(means[0], means[1], "{delays:?}");
        let steps = delays.windows(2).map(|pair| pair[0].abs_diff(pair[1]) as f64).sum::<f64>();
        assert!(close(at_once.variation_mean(), steps / 2.0), "{delays:?}");
    }
}

#[test]
fn steps_lead_from_the_last_delay_to_the_first_one_behind() {
    let (some, behind, none) = (stats(&[5, -3]), stats(&[10, 4]), stats(&[]));
    for (a, b, want) in [
        (&some, &behind, Some(13)),
        (&behind, &some, Some(1)),
        (&some, &none, None),
        (&none, &some, None),
    ] {
        assert_eq!(a.step_to(b), want);
    }
    assert_eq!((some.values().count(), some.variation().count(), some.count()), (2, 1, 2));
}
