//! Distributions of delay, jitter and lateness: cumulative, tails, histogram.

use itg_stats::plot::Curves;
use itg_stats::plot::curve::{distribution, quantiles};
use itg_stats::quantiles::Point;
use maud::html;

use crate::svg::axis::{Quantity, Scale};
use crate::svg::bars::{Bars, spread};
use crate::svg::by_flow::NamedFlow;
use crate::svg::chart::{Chart, Parts};
use crate::svg::frame::{Axis, Frame, one};
use crate::svg::ink;
use crate::svg::legend::Entry;
use crate::svg::values::{Series, Shape, Values};

const COLUMNS: [&str; 2] = ["delay_ns", "share_of_packets_at_most"];

pub(super) fn ends(points: &[Point]) -> Option<(f64, f64)> {
    let (first, last) = (points.first()?, points.last()?);
    Some((first.low as f64, last.high as f64))
}

fn text(value: f64) -> String {
    Quantity::Time.text(value)
}

/// The points of a staircase that can be told apart on the page.
fn seen(frame: &Frame, points: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    let mut kept: Vec<(f64, f64)> = Vec::new();
    let many = points.len();
    for (place, (x, y)) in points.into_iter().enumerate() {
        let near = kept.last().is_some_and(|&(left, up)| {
            (frame.px(x) - frame.px(left)).abs() < 0.8 && (frame.py(y) - frame.py(up)).abs() < 0.8
        });
        if !near || place + 1 == many {
            kept.push((x, y));
        }
    }
    kept
}

/// A staircase in drawing units.
fn stairs(frame: &Frame, points: &[(f64, f64)]) -> String {
    let mut d = String::new();
    for &(x, y) in points {
        let (x, y) = (one(frame.px(x)), one(frame.py(y)));
        d.push_str(&if d.is_empty() { format!("M{x} {y}") } else { format!("H{x}V{y}") });
    }
    d
}

/// A staircase with its name.
struct Stairs {
    class: &'static str,
    name: String,
    points: Vec<(f64, f64)>,
}

impl Stairs {
    /// The share of values up to each.
    fn cumulative(frame: &Frame, class: &'static str, name: &str, points: &[Point]) -> Self {
        let start = ends(points).map(|(low, _)| (low, 0.0));
        let steps = distribution(points).into_iter().map(|(x, share)| (x as f64, share));
        let points = seen(frame, start.into_iter().chain(steps).collect());
        Self { class, name: name.to_owned(), points }
    }

    /// The share of values above each, from `low` on.
    fn tail(frame: &Frame, class: &'static str, name: &str, points: &[Point], low: f64) -> Self {
        let total = count(points);
        let (mut above, mut up) = (total, 1.0);
        let mut steps = Vec::new();
        for point in points {
            above -= point.count;
            let left = above as f64 / total as f64;
            let x = point.high as f64;
            if x >= low {
                if steps.is_empty() {
                    steps.push((low, up));
                }
                // Above the largest value is nothing; the scale draws that as its lower end.
                steps.push((x, left));
            }
            up = left;
        }
        Self { class, name: name.to_owned(), points: seen(frame, steps) }
    }
}

fn count(points: &[Point]) -> u64 {
    points.iter().map(|point| point.count).sum()
}

/// A plot of staircases.
fn of_stairs(
    (name, title, desc): (&'static str, &str, String),
    columns: &[&str; 2],
    frame: Frame,
    lines: &[Stairs],
    over: &maud::Markup,
) -> Parts {
    let inner = html! {
        (over)
        @for line in lines { (ink::path(line.class, &stairs(&frame, &line.points), Some(&line.name))) }
    };
    let series = lines.iter().map(|line| Series {
        name: line.name.clone(),
        class: line.class,
        numbers: line.points.iter().flat_map(|&(x, y)| [x, y]).collect(),
    });
    Parts {
        name,
        title: title.to_owned(),
        desc,
        values: Values::new(Shape::Steps, columns, series.collect()),
        legend: lines.iter().map(|line| Entry::line(line.class, &line.name)).collect(),
        frame,
        inner,
    }
}

/// Axes of a cumulative distribution.
fn cumulative_frame(low: f64, high: f64) -> Frame {
    Frame {
        x: Axis::new(Scale::fitting(low, high), Quantity::Time, low.abs().max(high.abs()), "delay"),
        y: Axis::new(
            Scale::linear(0.0, 1.0),
            Quantity::Probability,
            1.0,
            "share of packets with at most this delay",
        ),
    }
}

pub(super) fn cumulative(curves: &Curves, of: &str) -> Option<Chart> {
    let (low, high) = ends(&curves.delay)?;
    let frame = cumulative_frame(low, high);
    let [p50, p99] = curves.delay_marks.map(|mark| mark as f64);
    let marks = html! {
        @for x in [p50, p99].map(|mark| frame.px(mark)) {
            (ink::path("ref", &format!("M{} {}V{}", one(x), one(frame.py(1.0)), frame.floor()), None))
        }
    };
    let line = Stairs::cumulative(&frame, "l1", of, &curves.delay);
    let desc = format!(
        "Share of the packets of {of} with at most this delay; median {}, 99th percentile {}.",
        text(p50),
        text(p99)
    );
    let mut parts = of_stairs(("cdf", "Delay, cumulative", desc), &COLUMNS, frame, &[line], &marks);
    let names = format!("p50 {} and p99 {}", text(p50), text(p99));
    parts.legend.push(Entry::line("ref", &names));
    let lines = vec![p50, 0.0, p50, 1.0, p99, f64::NAN, p99, 0.0, p99, 1.0];
    parts.values = parts.values.guided(&names, lines);
    Some(parts.into())
}

/// The delays of each flow, one line a flow.
pub(super) fn cumulative_by_flow(flows: &[NamedFlow<'_>], each: &str, of: &str) -> Option<Chart> {
    let reach = || flows.iter().filter_map(|flow| ends(&flow.curves.delay));
    let low = reach().map(|ends| ends.0).reduce(f64::min)?;
    let high = reach().map(|ends| ends.1).reduce(f64::max)?;
    let frame = cumulative_frame(low, high);
    let known = flows.iter().filter(|flow| !flow.curves.delay.is_empty());
    let lines: Vec<Stairs> = known
        .map(|flow| Stairs::cumulative(&frame, flow.class, &flow.name, &flow.curves.delay))
        .collect();
    let desc = format!(
        "Share of the packets of each flow with at most this delay, {of}; from {} to {}.",
        text(low),
        text(high)
    );
    let title = format!("Delay of {each}, cumulative");
    let words = ("cdf", title.as_str(), desc);
    Some(of_stairs(words, &COLUMNS, frame, &lines, &html! {}).into())
}

/// The delays of two runs in one plot.
pub(super) fn two(a: &Curves, b: &Curves) -> Option<Chart> {
    let (low_a, high_a) = ends(&a.delay)?;
    let (low_b, high_b) = ends(&b.delay)?;
    let (low, high) = (low_a.min(low_b), high_a.max(high_b));
    let frame = cumulative_frame(low, high);
    let lines = [("l1", "A", &a.delay), ("l2", "B", &b.delay)];
    let lines = lines.map(|(class, name, points)| Stairs::cumulative(&frame, class, name, points));
    let desc = format!(
        "Share of the packets of A and of B with at most this delay, from {} to {}.",
        text(low),
        text(high)
    );
    let words = ("delays", "Delay of both runs, cumulative", desc);
    Some(of_stairs(words, &COLUMNS, frame, &lines, &html! {}).into())
}

pub(super) fn tails(curves: &Curves, of: &str) -> Option<Chart> {
    let lines = [
        ("l1", "delay", &curves.delay[..]),
        ("l2", "jitter", &curves.jitter[..]),
        ("l3", "lateness", &curves.lateness[..]),
    ];
    let lines = lines.map(|(class, name, points)| (class, name.to_owned(), points));
    let words = ("Tails: share of packets above a value", "delay, jitter or lateness");
    of_tails(&lines, words, &format!("of {of} with a larger delay, jitter or lateness"))
}

/// The tails of the delays of each flow.
pub(super) fn tails_by_flow(flows: &[NamedFlow<'_>], each: &str, of: &str) -> Option<Chart> {
    let lines: Vec<(&'static str, String, &[Point])> =
        flows.iter().map(|flow| (flow.class, flow.name.clone(), &flow.curves.delay[..])).collect();
    let title = format!("Tails of the delay of {each}");
    of_tails(&lines, (&title, "delay"), &format!("of each flow with a larger delay, {of}"))
}

fn of_tails(
    series: &[(&'static str, String, &[Point])],
    (title, x): (&str, &str),
    of: &str,
) -> Option<Chart> {
    let series: Vec<_> = series
        .iter()
        .filter(|(.., points)| points.last().is_some_and(|point| point.high > 0))
        .collect();
    let high = series.iter().filter_map(|(.., p)| ends(p)).map(|e| e.1).reduce(f64::max)?;
    let most = series.iter().map(|(.., points)| count(points)).max()?;
    if most < 2 {
        return None;
    }
    // Where values begin to matter: the smallest quartile of all.
    let quartile = |points: &[Point]| quantiles(points, 4).get(1).copied().unwrap_or(0);
    let low = series.iter().map(|(.., points)| quartile(points)).min()?;
    let low = (low as f64 / 2.0).max(high / 1e7).max(100.0).min(high / 10.0);
    let frame = Frame {
        x: Axis::new(Scale::log(low, high * 1.1), Quantity::Time, high, x),
        y: Axis::new(
            Scale::log(1.0 / most as f64, 1.0),
            Quantity::Probability,
            1.0,
            "share of packets above",
        ),
    };
    let lines: Vec<Stairs> = series
        .iter()
        .map(|(class, name, points)| Stairs::tail(&frame, class, name, points, low))
        .collect();
    let desc = format!(
        "Share of the packets {of}, on logarithmic scales; the largest value is {}.",
        text(high)
    );
    let columns = ["value_ns", "share_of_packets_above"];
    Some(of_stairs(("ccdf", title, desc), &columns, frame, &lines, &html! {}).into())
}

pub(super) fn histogram(curves: &Curves, of: &str) -> Option<Chart> {
    let (low, high) = ends(&curves.delay)?;
    let total = count(&curves.delay);
    // The body: from the smallest to the 99.5th percentile, on equal bars.
    let body_end = *quantiles(&curves.delay, 200).get(199)? as f64;
    let log = low > 0.0 && body_end > 100.0 * low;
    let scale = if log { Scale::log(low, high) } else { Scale::linear(low, body_end) };
    let mut bars = Bars::new(scale);
    let mut beyond = 0;
    for point in &curves.delay {
        if !log && point.low as f64 > body_end {
            beyond += point.count;
        } else {
            spread(&mut bars, point, point.count as f64 / total as f64);
        }
    }
    let end = if log { high } else { body_end };
    let rest = if beyond > 0 {
        format!("; {} are larger and not drawn", Quantity::Share.text(beyond as f64 / total as f64))
    } else {
        String::new()
    };
    let note = (beyond > 0)
        .then(|| format!("{} beyond →", Quantity::Share.text(beyond as f64 / total as f64)));
    let x = Axis::new(scale, Quantity::Time, low.abs().max(body_end), "delay");
    let parts = Parts {
        name: "histogram",
        title: "Delay, histogram".to_owned(),
        desc: format!(
            "Share of the packets of {of} by delay, from {} to {}{rest}.",
            text(low),
            text(end)
        ),
        ..bars.parts(x, ["delay_from_ns", "delay_to_ns"], of, note.as_deref())
    };
    Some(parts.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tail_has_the_exact_shares_and_ends_at_nothing() {
        let points: Vec<Point> =
            [1_000, 2_000, 50_000, 900_000].map(|ns| Point { low: ns, high: ns, count: 1 }).into();
        let lines = [("l1", "delay".to_owned(), &points[..])];
        let chart = of_tails(&lines, ("Tails", "delay"), "of a flow").expect("a plot");
        assert_eq!(
            chart.csv().lines().skip(2).collect::<Vec<_>>(),
            ["delay,1000,0.75", "delay,2000,0.5", "delay,50000,0.25", "delay,900000,0.0"]
        );
        // LaTeX cannot draw 0 on a logarithmic scale: there it is the lower end.
        let tex = chart.latex("a flow");
        assert!(tex.contains("(900,0.25)") && !tex.contains(",0)"), "{tex}");
    }
}
