//! Tests of the verdict.

use proptest::prelude::*;

use super::*;

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
    let table: [(&str, Departures, f64, Verdict, &[&str]); 9] = [
        ("to the nanosecond", each_ms(1000, |k| k * ms), 0.0, Verdict::Pass, &[]),
        ("50 us of jitter", each_ms(1000, |k| k * ms + k % 2 * 50_000), 0.0, Verdict::Pass, &[]),
        ("always late alike", each_ms(1000, |k| k * ms + 5 * ms), 0.0, Verdict::Pass, &[]),
        (
            "one gap in ten",
            each_ms(1000, |k| k * ms + u64::from(k % 10 == 5) * 400_000),
            0.0,
            Verdict::Warn,
            &["gaps differ from the plan by 0.100"],
        ),
        (
            "pairs",
            each_ms(1000, |k| k / 2 * 2 * ms),
            0.0,
            Verdict::Fail,
            &["gaps differ from the plan by 0.501"],
        ),
        (
            "2 % too slow",
            each_ms(1000, |k| k * ms * 102 / 100),
            0.0,
            Verdict::Fail,
            &["mean packet rate is off by -1.96 %"],
        ),
        (
            "left out",
            each_ms(1000, |k| k * ms),
            0.02,
            Verdict::Fail,
            &["2.00 % of the packets were left out"],
        ),
        ("one packet", each_ms(1, |k| k * ms), 0.0, Verdict::Unknown, &[]),
        (
            "a late end of a short flow",
            each_ms(3, |k| k * ms + k * 45_000),
            0.0,
            Verdict::Pass,
            &[],
        ),
    ];
    for (name, departures, skipped, verdict, reasons) in table {
        let got = departures.judge(&Asked { skipped_share: skipped, ..Asked::default() });
        assert_eq!(got.verdict, verdict, "{name}: {got:?}");
        assert_eq!(got.reasons, reasons, "{name}");
    }
}

#[test]
fn bursts_are_set_against_their_plan_and_marked() {
    let spec = FlowSpec { burst: Some(4), ..FlowSpec::new(1) };
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
