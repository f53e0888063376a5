//! Curves of plots: few points that keep the shape.

use proptest::prelude::*;

use itg_stats::plot::curve::*;
use itg_stats::quantiles::Point;
use itg_stats::sequence::Run;

fn points(values: &[i64]) -> Vec<Point> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    sorted.iter().map(|&v| Point { low: v, high: v, count: 1 }).collect()
}

fn runs(set: &[bool]) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for at in (0..set.len()).filter(|&at| set[at]) {
        let at = at as u64;
        match runs.last_mut() {
            Some(run) if run.last + 1 == at => run.last = at,
            _ => runs.push(Run { first: at, last: at }),
        }
    }
    runs
}

proptest! {
    #[test]
    fn thin_lists_keep_count_order_and_ends(
        values in prop::collection::vec(-1_000_000_000_000i64..1_000_000_000_000, 1..5000),
    ) {
        let all = points(&values);
        let kept = thin(&all);
        prop_assert!(kept.len() <= MOST_POINTS.max(64));
        prop_assert_eq!(kept.iter().map(|p| p.count).sum::<u64>(), values.len() as u64);
        prop_assert!(kept.windows(2).all(|p| p[0].high <= p[1].low));
        prop_assert_eq!(kept[0].low, all[0].low);
        prop_assert_eq!(kept[kept.len() - 1].high, all[all.len() - 1].high);
        let origin = all[0].low;
        for point in &kept {
            let (width, far) = (point.high - point.low, point.low - origin);
            prop_assert!(width as f64 <= far as f64 / 16.0 + 1.0, "{point:?}");
        }
    }

    #[test]
    fn quantiles_are_ranks(values in prop::collection::vec(-50i64..50, 1..60), n in 1u64..40) {
        let mut sorted = values.clone();
        sorted.sort_unstable();
        let got = quantiles(&points(&values), n);
        prop_assert_eq!(got.len() as u64, n + 1);
        for (k, got) in (0u64..).zip(got) {
            let rank = (sorted.len() as u64 * k).div_ceil(n).max(1);
            prop_assert_eq!(got, sorted[usize::try_from(rank - 1).unwrap()]);
        }
    }

    #[test]
    fn absent_agrees_with_sets(sets in prop::collection::vec(any::<(bool, bool)>(), 0..200)) {
        let (wanted, seen): (Vec<_>, Vec<_>) = sets.into_iter().unzip();
        let missing: Vec<_> = wanted.iter().zip(&seen).map(|(w, s)| *w && !*s).collect();
        let got: Vec<_> =
            absent(runs(&wanted).into_iter(), runs(&seen).into_iter()).collect();
        // Two stretches side by side may come apart where a stretch of `wanted` ends.
        let mut flat = vec![false; wanted.len()];
        for run in &got {
            for at in run.first..=run.last {
                flat[usize::try_from(at).unwrap()] = true;
            }
        }
        prop_assert_eq!(flat, missing);
        prop_assert!(got.windows(2).all(|r| r[0].last < r[1].first));
    }
}

#[test]
fn magnitudes_fold_at_zero() {
    let got = magnitudes(&points(&[-3, -1, 0, 1, 2, 3, 3]));
    let want = [(0, 1), (1, 2), (2, 1), (3, 3)];
    assert_eq!(got.iter().map(|p| (p.low, p.count)).collect::<Vec<_>>(), want);
    assert_eq!(magnitudes(&points(&[i64::MIN]))[0].high, i64::MAX);
}

#[test]
fn distribution_ends_at_one() {
    assert_eq!(distribution(&points(&[3, 1, 1, 7])), [(1, 0.25), (1, 0.5), (3, 0.75), (7, 1.0)]);
    assert!(distribution(&[]).is_empty() && quantiles(&[], 4).is_empty());
}
