//! Comparison of two reports.

use std::collections::{BTreeMap, BTreeSet};

use itg_stats::fidelity::Verdict;
use itg_stats::metric::Metric;
use itg_stats::plot::Curves;
use itg_stats::quantiles::Point;
use itg_stats::report::{BasisKind, FlowReport, Metrics, Report};

use crate::bootstrap::{self, Blocks, STATISTICS};
use crate::comparison::{COMPARISON_SCHEMA, Comparison, Difference, Effect, Pairing, Resampling};
use crate::figures::FIGURES;

/// Compares two reports that were made with plots of all flows.
#[must_use]
pub fn compare(a: (&str, &Report), b: (&str, &Report), resampling: Resampling) -> Comparison {
    let ((a_name, a), (b_name, b)) = (a, b);
    let mut notices = Vec::new();
    let flows_a = flows(a);
    let flows_b = flows(b);
    let other_plan = other_plan(a, b);
    notices.extend(other_plan.map(|why| format!("A and B have different plans: {why}")));
    let mut failed = Vec::new();
    for (side, name, report) in [("a", a_name, a), ("b", b_name, b)] {
        let fidelity = &report.total.metrics.fidelity;
        if fidelity.verdict == Verdict::Fail {
            let causes: Vec<_> = fidelity.causes.iter().map(|cause| cause.name()).collect();
            notices.push(format!(
                "{name}: its traffic FAILED (verdict `fail`: {}), so that its figures are not those of the traffic asked \
                 for, and gates cannot be judged",
                causes.join(", ")
            ));
            failed.push(side);
        }
        let relative = |m: &Metrics| m.delay_basis.is_some_and(|b| b.kind == BasisKind::Relative);
        if relative(&report.total.metrics) {
            notices.push(format!(
                "{name}: delays are relative (two clocks), so that neither they nor their effect sizes \
                 can be compared; jitter, loss and throughput can"
            ));
        }
        if !report.damage.is_empty() {
            notices.push(format!("{name}: a log is damaged: see its own report"));
        }
    }
    let mut pairs = Vec::new();
    let mut views = View::Same;
    let by_number: BTreeMap<u32, &Side<'_>> = flows_b.iter().map(|flow| (flow.0, flow)).collect();
    for (number, metrics, curves, side) in &flows_a {
        if let Some(other) = by_number.get(number) {
            let view = View::of(*side, other.3);
            if view > View::Same && views == View::Same {
                notices.push(format!(
                    "flow {number} is seen by its {} in A and by its {} in B: throughput, delay and jitter of both \
                     cannot be compared, nor those of the total",
                    side.0, other.3.0
                ));
            }
            views = views.max(view);
            let own = (*metrics, *curves);
            pairs.push(pairing(Some(*number), own, (other.1, other.2), view, resampling));
        }
    }
    let known = |report: &Report| report.plots.as_ref().map(|plots| plots.total.clone());
    let total = pairing(
        None,
        (&a.total.metrics, known(a).as_ref()),
        (&b.total.metrics, known(b).as_ref()),
        views,
        resampling,
    );
    let missing = |own: &[Side<'_>], other: &[Side<'_>]| -> Vec<u32> {
        let there: BTreeSet<u32> = other.iter().map(|flow| flow.0).collect();
        own.iter().map(|flow| flow.0).filter(|flow| !there.contains(flow)).collect()
    };
    Comparison {
        schema: COMPARISON_SCHEMA,
        a: a_name.to_owned(),
        b: b_name.to_owned(),
        resampling,
        total,
        flows: pairs,
        only_a: missing(&flows_a, &flows_b),
        only_b: missing(&flows_b, &flows_a),
        failed,
        notices,
    }
}

/// Difference between the plans of two runs A and B, in words: other flows, or flows of the same number that are not
/// alike.
#[must_use]
pub fn other_plan(a: &Report, b: &Report) -> Option<String> {
    let plan = |report: &Report| -> BTreeMap<u32, [String; 4]> {
        let known = |text: Option<&str>| text.unwrap_or_default().to_owned();
        let flow = |flow: &FlowReport| {
            let profile = known(flow.profile.as_deref());
            (flow.flow, [flow.name.clone(), known(flow.proto), known(flow.meter), profile])
        };
        // Names are in senders' logs alone: where one side of a flow has none, its number stands for it.
        report.flows.iter().map(flow).collect()
    };
    let (a, b) = (plan(a), plan(b));
    Some(if a.keys().ne(b.keys()) {
        format!("{} flows and {}, not all of the same numbers", a.len(), b.len())
    } else {
        let (number, [one, other]) = a.iter().find_map(|(number, of_a)| {
            let of_b = b.get(number)?;
            let differing = of_a.iter().zip(of_b).find(|(a, b)| {
                let known = |text: &String| !text.is_empty() && *text != number.to_string();
                known(a) && known(b) && a != b
            })?;
            Some((number, [differing.0, differing.1]))
        })?;
        format!("flow {number} is {one} in A and {other} in B")
    })
}

/// Number, figures and course of a flow; the side that counts it, and whether it is one of round trips.
type Side<'a> = (u32, &'a Metrics, Option<&'a Curves>, (&'static str, bool));

/// Sides of a flow in two runs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum View {
    /// The same.
    Same,
    /// Packets sent in one run, packets that arrived in the other: of one flow, both have the same loss.
    Other,
    /// Round trips in one, the way there in the other.
    OtherWay,
}

impl View {
    fn of(a: (&str, bool), b: (&str, bool)) -> Self {
        match (a.0 == b.0, a.1 || b.1) {
            (true, _) => Self::Same,
            (false, false) => Self::Other,
            (false, true) => Self::OtherWay,
        }
    }

    /// Returns true if such a figure means the same in both.
    fn shares(self, metric: &str) -> bool {
        match self {
            Self::Same => true,
            Self::Other => ["loss", "lateness.p99"].contains(&metric),
            Self::OtherWay => metric == "lateness.p99",
        }
    }
}

/// The flows by number, at the side that the total counts; of several runs the first.
fn flows(report: &Report) -> Vec<Side<'_>> {
    let mut list: Vec<Side<'_>> = Vec::new();
    let drawn = report.plots.iter().flat_map(|plots| &plots.flows);
    let drawn: BTreeMap<usize, &Curves> = drawn.map(|flow| (flow.place, &flow.curves)).collect();
    for (place, flow) in report.flows.iter().enumerate() {
        if list.last().is_some_and(|last| last.0 == flow.flow) {
            continue;
        }
        let side = (flow.side, flow.meter == Some("rtt"));
        list.push((flow.flow, &flow.metrics, drawn.get(&place).copied(), side));
    }
    list
}

fn pairing(
    flow: Option<u32>,
    a: (&Metrics, Option<&Curves>),
    b: (&Metrics, Option<&Curves>),
    view: View,
    resampling: Resampling,
) -> Pairing {
    let ((a, a_curves), (b, b_curves)) = (a, b);
    let absolute = |m: &Metrics| m.delay_basis.is_none_or(|b| b.kind == BasisKind::Absolute);
    let clocks = absolute(a) && absolute(b);
    let intervals = a_curves.zip(b_curves).map_or([None; STATISTICS], |(a, b)| {
        bootstrap::intervals(&Blocks::of(a), &Blocks::of(b), resampling)
    });
    let figures = FIGURES
        .iter()
        .enumerate()
        .map(|(place, &(metric, needs_clock))| {
            let row = Metric::named(metric);
            let of = |m: &Metrics| row.and_then(|row| row.of(m)).and_then(|figure| figure.number());
            let (a, b) = (of(a), of(b));
            let unit = row.map_or("1", |row| row.kind.unit());
            let usable = (clocks || !needs_clock) && view.shares(metric);
            let difference = a.zip(b).filter(|_| usable).map(|(a, b)| b - a);
            let interval = intervals.get(place).copied().flatten();
            let interval = interval.zip(difference).map(|(ends, d)| ends.map(|end| end + d));
            Difference {
                metric,
                unit,
                a,
                b,
                difference,
                relative: difference
                    .zip(a)
                    .filter(|(_, a)| a.abs() > 0.0)
                    .map(|(d, a)| d / a.abs()),
                interval,
                clear: interval.map(|[low, high]| low > 0.0 || high < 0.0),
            }
        })
        .collect();
    let delay = a_curves.zip(b_curves).filter(|_| clocks && view == View::Same);
    let delay = delay.and_then(|(a, b)| effect(&a.delay, &b.delay));
    Pairing { flow, figures, delay }
}

/// The effect sizes of two samples; `None` when one is empty.
#[must_use]
pub fn effect(a: &[Point], b: &[Point]) -> Option<Effect> {
    let total = |list: &[Point]| list.iter().map(|point| i128::from(point.count)).sum::<i128>();
    let (all_a, all_b) = (total(a), total(b));
    if all_a == 0 || all_b == 0 {
        return None;
    }
    // Both distribution functions, step by step along all values, in whole numbers.
    let (mut a, mut b) = (a.iter().peekable(), b.iter().peekable());
    let (mut below_a, mut below_b) = (0i128, 0i128);
    let (mut apart, mut pairs) = (0i128, 0i128);
    while let Some(next) = a.peek().into_iter().chain(b.peek()).map(|point| point.high).min() {
        let mut here = [0i128; 2];
        for (list, here) in [&mut a, &mut b].into_iter().zip(&mut here) {
            while let Some(point) = list.next_if(|point| point.high == next) {
                *here += i128::from(point.count);
            }
        }
        // Those of B above this value of A, less those below it.
        pairs += here[0] * ((all_b - below_b - here[1]) - below_b);
        (below_a, below_b) = (below_a + here[0], below_b + here[1]);
        apart = apart.max((below_a * all_b - below_b * all_a).abs());
    }
    let all = all_a as f64 * all_b as f64;
    let (ks, delta) = (apart as f64 / all, pairs as f64 / all);
    let magnitude = match delta.abs() {
        d if d < 0.147 => "negligible",
        d if d < 0.33 => "small",
        d if d < 0.474 => "medium",
        _ => "large",
    };
    Some(Effect { ks, cliffs_delta: delta, magnitude })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn points(values: &[i64]) -> Vec<Point> {
        let mut sorted = values.to_vec();
        sorted.sort_unstable();
        sorted
            .chunk_by(|a, b| a == b)
            .map(|same| Point { low: same[0], high: same[0], count: same.len() as u64 })
            .collect()
    }

    proptest! {
        #[test]
        fn effects_agree_with_all_pairs(
            a in prop::collection::vec(-20i64..20, 1..50),
            b in prop::collection::vec(-20i64..20, 1..50),
        ) {
            let got = effect(&points(&a), &points(&b)).expect("values");
            let pairs = (a.len() * b.len()) as f64;
            let sum: i64 = a.iter().flat_map(|a| b.iter().map(move |b| (b - a).signum())).sum();
            prop_assert!((got.cliffs_delta - sum as f64 / pairs).abs() < 1e-9);
            let cdf = |list: &[i64], x: i64| {
                list.iter().filter(|v| **v <= x).count() as f64 / list.len() as f64
            };
            let ks = (-21..21).map(|x| (cdf(&a, x) - cdf(&b, x)).abs()).fold(0.0, f64::max);
            prop_assert!((got.ks - ks).abs() < 1e-9);
        }
    }

    #[test]
    fn effects_have_names_and_ends() {
        for (a, b, ks, delta, magnitude) in [
            (vec![1, 2, 3], vec![1, 2, 3], 0.0, 0.0, "negligible"),
            (vec![1, 2], vec![3, 4], 1.0, 1.0, "large"),
            (vec![3, 4], vec![1, 2], 1.0, -1.0, "large"),
            (vec![1, 2, 3, 4], vec![1, 2, 3, 5], 0.25, 0.0625, "negligible"),
            (vec![1, 3], vec![2, 2], 0.5, 0.0, "negligible"),
            (vec![1, 2, 2], vec![2, 2, 3], 1.0 / 3.0, 5.0 / 9.0, "large"),
        ] {
            let got = effect(&points(&a), &points(&b)).expect("values");
            assert!((got.ks - ks).abs() < 1e-12, "{a:?} {b:?} {got:?}");
            assert!((got.cliffs_delta - delta).abs() < 1e-12, "{a:?} {b:?} {got:?}");
            assert_eq!(got.magnitude, magnitude, "{a:?} {b:?}");
        }
        assert_eq!(effect(&[], &points(&[1])), None);
    }
}
