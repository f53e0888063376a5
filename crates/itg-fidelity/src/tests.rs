//! Tests of the verdict.

use proptest::prelude::*;

use super::*;
use crate::departures::Departed;
use crate::quantiles::Quantiles;

fn departures(packets: &[(u64, u64, u64)]) -> Departures {
    let mut all = Departures::default();
    for &(seq, planned_ns, sent_ns) in packets {
        all.add(Departed { seq, planned_ns, sent_ns }, Some(0));
    }
    all
}

/// A sender asked for `n` packets each millisecond; `sent` says when packet k left.
fn each_ms(n: u64, sent: impl Fn(u64) -> u64) -> Departures {
    departures(&(0..n).map(|k| (k, k * 1_000_000, sent(k))).collect::<Vec<_>>())
}

/// The definition, tried at every value of either sample.
fn twin(a: &[i64], b: &[i64], tolerance: i64) -> f64 {
    let cdf =
        |list: &[i64], x: i64| list.iter().filter(|&&v| v <= x).count() as f64 / list.len() as f64;
    a.iter().chain(b).fold(0.0, |worst: f64, &x| {
        let up = cdf(a, x) - cdf(b, x + tolerance);
        let down = cdf(b, x) - cdf(a, x + tolerance);
        worst.max(up).max(down)
    })
}

fn quantiles(values: &[i64]) -> Quantiles {
    let mut all = Quantiles::default();
    values.iter().for_each(|&v| all.add(v));
    all
}

proptest! {
    #[test]
    fn distance_agrees_with_its_definition(
        a in prop::collection::vec(-2_000i64..20_000, 1..60),
        b in prop::collection::vec(-2_000i64..20_000, 1..60),
        tolerance in 0i64..3_000,
    ) {
        let got = distance(
            &quantiles(&a).points(),
            &quantiles(&b).points(),
            tolerance.unsigned_abs(),
        );
        prop_assert!((got - twin(&a, &b, tolerance)).abs() < 1e-12);
    }

    #[test]
    fn wasserstein_agrees_with_the_sorted_differences(
        pairs in prop::collection::vec((-2_000i64..20_000, -2_000i64..20_000), 1..60),
    ) {
        let (mut a, mut b): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
        let got = wasserstein(&quantiles(&a).points(), &quantiles(&b).points());
        a.sort_unstable();
        b.sort_unstable();
        let apart: u64 = a.iter().zip(&b).map(|(a, b)| a.abs_diff(*b)).sum();
        prop_assert!((got - apart as f64 / a.len() as f64).abs() < 1e-6);
    }

    #[test]
    fn sizes_agree_with_the_plain_distance(
        pairs in prop::collection::vec((12u32..40, 12u32..40), 1..100),
    ) {
        let mut all = Departures::default();
        for &(sent, planned) in &pairs {
            all.add_size(sent, planned);
        }
        let (sent, planned): (Vec<_>, Vec<_>) =
            pairs.iter().map(|&(s, p)| (i64::from(s), i64::from(p))).unzip();
        let got = all.size_distance().expect("sizes were compared");
        prop_assert!((got - twin(&sent, &planned, 0)).abs() < 1e-12);
    }

    #[test]
    fn appended_parts_are_the_whole(
        gaps in prop::collection::vec((0u64..3_000_000, 0u64..3_000_000), 1..60),
        cut in 0usize..60,
    ) {
        let (mut planned, mut sent) = (0, 0);
        let packets: Vec<_> = (0u64..).zip(gaps).map(|(seq, (p, s))| {
            (planned, sent) = (planned + p, sent + s);
            (seq, planned, sent)
        }).collect();
        let cut = cut.min(packets.len());
        let mut parts = departures(&packets[..cut]);
        parts.append(&departures(&packets[cut..]));
        let whole = departures(&packets);
        prop_assert_eq!(parts.judge(&Asked::default()), whole.judge(&Asked::default()));
        prop_assert_eq!(
            parts.lateness().quantiles().at([0.5, 1.0]),
            whole.lateness().quantiles().at([0.5, 1.0])
        );
    }
}

#[test]
fn verdicts() {
    let ms = 1_000_000;
    let none: &[Cause] = &[];
    let late: &[Cause] = &[Cause::LateSender];
    let table = [
        ("to the nanosecond", each_ms(1000, |k| k * ms), 0.0, Verdict::Pass, none),
        ("20 us of jitter", each_ms(1000, |k| k * ms + k % 2 * 20_000), 0.0, Verdict::Pass, none),
        ("always late alike", each_ms(1000, |k| k * ms + 5 * ms), 0.0, Verdict::Pass, none),
        ("80 us of jitter", each_ms(1000, |k| k * ms + k % 2 * 80_000), 0.0, Verdict::Warn, late),
        ("pairs", each_ms(1000, |k| k / 2 * 2 * ms), 0.0, Verdict::Fail, late),
        ("2 % too slow", each_ms(1000, |k| k * ms * 102 / 100), 0.0, Verdict::Fail, late),
        ("left out", each_ms(1000, |k| k * ms), 0.02, Verdict::Fail, &[Cause::DroppedPackets]),
        ("one packet", each_ms(1, |k| k * ms), 0.0, Verdict::Unknown, none),
        (
            "a late end of a short flow",
            each_ms(3, |k| k * ms + k * 45_000),
            0.0,
            Verdict::Pass,
            none,
        ),
        (
            "a late start",
            each_ms(20, |k| k * ms + u64::from(k == 0) * ms / 3),
            0.0,
            Verdict::Pass,
            none,
        ),
        (
            "a stall of 20 ms in 10 s",
            each_ms(10_000, |k| k.max((k / 5_000).min(1) * 5_020) * ms),
            0.0,
            Verdict::Warn,
            &[Cause::HostStalled],
        ),
        (
            "a stall of 108 ms in 20 s",
            each_ms(20_000, |k| if (500..608).contains(&k) { 608 * ms } else { k * ms }),
            0.0,
            Verdict::Fail,
            &[Cause::HostStalled],
        ),
    ];
    for (name, departures, skipped, verdict, causes) in table {
        let got = departures.judge(&Asked { skipped_share: skipped, ..Asked::default() });
        assert_eq!((got.verdict, &got.causes[..]), (verdict, causes), "{name}: {got:?}");
        assert_eq!(got.reasons.is_empty(), causes.is_empty(), "{name}: {:?}", got.reasons);
    }
}

#[test]
fn the_same_figures_come_out_at_every_rate() {
    // Gaps of g, every second packet 0.3 g late.
    for gap in [1_000, 30_000, 1_000_000, 100_000_000] {
        let times = |k: u64| (k, k * gap, k * gap + k % 2 * 3 * gap / 10);
        let got = departures(&(0..1_000).map(times).collect::<Vec<_>>()).judge(&Asked::default());
        let error = got.gap_error.expect("packets");
        assert!((error - 0.3).abs() < 0.001, "gaps of {gap} ns: {error}");
        let single = got.scales[0];
        assert!((single.distance - 0.3).abs() < 0.003, "gaps of {gap} ns: {single:?}");
        assert_eq!(got.verdict, Verdict::Fail, "gaps of {gap} ns");
    }
}

#[test]
fn sums_show_what_single_gaps_hide() {
    // The right gaps in the wrong order: long ones together, short ones together.
    let planned = |k: u64| k * 2_000_000 + k % 2 * 500_000;
    let sent = |k: u64| {
        let (round, at) = (k / 64, k % 64);
        round * 128_000_000 + at.min(32) * 2_500_000 + at.saturating_sub(32) * 1_500_000
    };
    let all = departures(&(0..6_400).map(|k| (k, planned(k), sent(k))).collect::<Vec<_>>());
    let got = all.judge(&Asked::default());
    assert!(got.scales[0].distance < 0.01, "{:?}", got.scales[0]);
    let sixteen = got.scales.iter().find(|scale| scale.gaps == 16).expect("the scale");
    assert!(sixteen.distance > 0.2, "{sixteen:?}");
    assert_eq!(got.verdict, Verdict::Fail);
}

#[test]
fn coarse_times_leave_a_verdict_unresolved_unless_they_show_a_fault() {
    // Handing over takes 3 us; one packet in 16 finds the next one due already.
    let gap = |k: u64, mean: u64| if k % 16 == 5 { 0 } else { mean * 16 / 15 };
    let flow = |mean: u64, jitter: u64| {
        let (mut planned, mut ready) = (0, 0);
        let packets = (0..2_000u64).map(|k| {
            let sent = ready.max(planned + k % 2 * jitter);
            ready = sent + 3_000;
            let packet = (k, planned, sent);
            planned += gap(k, mean);
            packet
        });
        departures(&packets.collect::<Vec<_>>())
    };
    for (mean, jitter, verdict) in [
        (20_000, 0, Verdict::Unresolved),
        (20_000, 15_000, Verdict::Fail),
        (200_000, 0, Verdict::Pass),
    ] {
        let got = flow(mean, jitter).judge(&Asked::default());
        assert_eq!(got.verdict, verdict, "gaps of {mean} ns: {got:?}");
    }
    let got = flow(20_000, 0).judge(&Asked::default());
    assert_eq!((got.resolution_ns, got.causes), (Some(3_000.0), vec![Cause::Resolution]));
    let upto = got.resolved_up_to_pps.expect("measured");
    assert!((upto - 16_666.0).abs() < 1.0 && got.reasons[0].contains("16667 packets/s"), "{upto}");
    let stamped = Asked { departure_spread_ns: Some(400.0), ..Asked::default() };
    assert_eq!(flow(20_000, 0).judge(&stamped).verdict, Verdict::Pass, "stamps resolve it");
}

#[test]
fn what_the_path_did_not_take_is_not_the_senders_fault() {
    let slow = || each_ms(1000, |k| 2 * k * 1_000_000);
    for (waited, stream, verdict, causes) in [
        (Some(990), true, Verdict::NetworkLimited, vec![Cause::BackPressure]),
        (Some(990), false, Verdict::NetworkLimited, vec![Cause::FullQueue]),
        (Some(100), true, Verdict::Fail, vec![Cause::LateSender]),
        (Some(0), true, Verdict::Fail, vec![Cause::LateSender]),
        (None, true, Verdict::Fail, vec![Cause::LateSender]),
    ] {
        let asked = Asked { waited_packets: waited, stream, ..Asked::default() };
        let got = slow().judge(&asked);
        assert_eq!((got.verdict, got.causes), (verdict, causes), "{waited:?}");
    }
    let mut wrong = slow();
    (0..1_000).for_each(|_| wrong.add_size(900, 100));
    let asked = Asked { waited_packets: Some(990), stream: true, ..Asked::default() };
    let got = wrong.judge(&asked);
    let causes = vec![Cause::Generator, Cause::BackPressure];
    assert_eq!((got.verdict, got.causes), (Verdict::Fail, causes), "a fault of its own");
}

#[test]
fn sizes_of_the_wrong_packets_are_seen_though_their_distribution_is_right() {
    let mut all = each_ms(1000, |k| k * 1_000_000);
    for k in 0..1_000 {
        let planned = 100 + k % 2 * 500;
        all.add_size(if k < 100 { 700 - planned } else { planned }, planned);
    }
    let got = all.judge(&Asked::default());
    assert_eq!((got.verdict, got.size_ks, got.size_error), (Verdict::Warn, Some(0.0), Some(0.1)));
}

#[test]
fn bursts_are_set_against_their_plan_and_marked() {
    let spec = FlowSpec::new(1).burst(4);
    let distributions = Distributions::new(&spec, 7).expect("a flow that can be run");
    let burst = |k: u64| k / 4 * 4_000_000;
    let all = departures(&(0..1000).map(|k| (k, burst(k), burst(k) + 9_000)).collect::<Vec<_>>());
    let got = all.judge(&Asked { distributions: Some(&distributions), ..Asked::default() });
    assert_eq!((got.verdict, got.burst, got.idt_law_ks), (Verdict::Pass, Some(4), None));
    // The same packets of a flow that was not asked to burst.
    let plain = Distributions::new(&FlowSpec::new(1), 7).expect("a flow that can be run");
    assert_eq!(
        each_ms(1000, burst)
            .judge(&Asked { distributions: Some(&plain), ..Asked::default() })
            .verdict,
        Verdict::Fail
    );
    assert_eq!(
        departures(&[(0, 0, 0)])
            .judge(&Asked { distributions: Some(&distributions), ..Asked::default() })
            .burst,
        Some(4)
    );
}

#[test]
fn gaps_across_missing_numbers_are_not_compared() {
    let all = departures(&[(0, 0, 0), (1, 10, 10), (5, 50, 9_000_000), (6, 60, 9_000_010)]);
    assert_eq!((all.planned.count(), all.sent.count()), (2, 2));
    assert_eq!(all.judge(&Asked::default()).idt_ks, Some(0.0));
}

#[test]
fn as_fast_as_possible_has_no_rate_to_miss() {
    let flat_out = departures(&(0..100).map(|k| (k, 0, k * 3_000)).collect::<Vec<_>>());
    let got = flat_out.judge(&Asked::default());
    assert_eq!((got.verdict, got.rate_error), (Verdict::Pass, None));
}

#[test]
fn a_declared_precision_that_is_not_kept_is_warned_about_and_blamed_on_the_sender() {
    let mut departures = Departures::default();
    for seq in 0..1_000 {
        let planned_ns = seq * 1_000_000;
        let sent_ns = 1_000_000_000 + planned_ns + 50_000;
        departures.add(Departed { seq, planned_ns, sent_ns }, Some(1_000_000_000));
    }
    for (declared, verdict, causes) in [
        (None, Verdict::Pass, vec![]),
        (Some(60_000), Verdict::Pass, vec![]),
        (Some(20_000), Verdict::Warn, vec![Cause::LateSender]),
    ] {
        let got = departures.judge(&Asked { late_p99_ns: declared, ..Asked::default() });
        assert_eq!((got.verdict, &got.causes), (verdict, &causes), "declared {declared:?}");
        let want = "99 % of the packets left up to 50us late, 20us was declared";
        let said = got.reasons.first().map(String::as_str);
        assert_eq!(said, (verdict == Verdict::Warn).then_some(want));
    }
}
