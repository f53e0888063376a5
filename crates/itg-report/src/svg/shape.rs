//! Distributions: cumulative, tails, histogram, asked against actual.

use itg_stats::plot::curve::{distribution, quantiles};
use itg_stats::plot::{Curves, Pair};
use itg_stats::quantiles::Point;
use maud::html;

use crate::svg::axis::{Quantity, Scale};
use crate::svg::chart::Chart;
use crate::svg::frame::{Axis, Frame, one};
use crate::svg::ink;

/// Bars of a histogram.
const BARS: usize = 56;

fn ends(points: &[Point]) -> Option<(f64, f64)> {
    let (first, last) = (points.first()?, points.last()?);
    Some((first.low as f64, last.high as f64))
}

fn text(value: f64) -> String {
    Quantity::Time.text(value)
}

/// A staircase in drawing units; steps too small to be seen are left out.
fn stairs(points: Vec<(f64, f64)>) -> String {
    let mut d = String::new();
    let mut before: Option<(f64, f64)> = None;
    let many = points.len();
    for (place, (x, y)) in points.into_iter().enumerate() {
        match before {
            None => d.push_str(&format!("M{} {}", one(x), one(y))),
            Some((left, up)) => {
                let near = (x - left).abs() < 0.8 && (y - up).abs() < 0.8;
                if near && place + 1 < many {
                    continue;
                }
                d.push_str(&format!("H{}V{}", one(x), one(y)));
            }
        }
        before = Some((x, y));
    }
    d
}

pub(super) fn cumulative(curves: &Curves, of: &str) -> Option<Chart> {
    let (low, high) = ends(&curves.delay)?;
    let steps = distribution(&curves.delay);
    let frame = Frame {
        x: Axis::new(Scale::fitting(low, high), Quantity::Time, low.abs().max(high.abs()), "delay"),
        y: Axis::new(Scale::linear(0.0, 1.0), Quantity::Probability, 1.0, "share of packets ≤ x"),
    };
    let start = [(frame.px(low), frame.py(0.0))];
    let all = steps.iter().map(|&(x, share)| (frame.px(x as f64), frame.py(share)));
    let line = stairs(start.into_iter().chain(all).collect());
    let [p50, p99] = curves.delay_marks.map(|mark| mark as f64);
    let body = html! {
        @for (value, name) in [(p50, "p50"), (p99, "p99")] {
            @let x = frame.px(value);
            @let (class, beside) = if x > 440.0 { ("end", x - 4.0) } else { ("label", x + 4.0) };
            @let y = frame.floor() - if name == "p50" { 22.0 } else { 8.0 };
            (ink::path("ref", &format!("M{} {}V{}", one(x), one(frame.py(1.0)), frame.floor()), None))
            (ink::text(class, (&one(beside), &one(y)), &format!("{name} {}", text(value))))
        }
        (ink::path("l1", &line, None))
    };
    Some(Chart {
        name: "cdf",
        title: "Delay, cumulative".to_owned(),
        desc: format!(
            "Share of the packets of {of} with at most this delay; median {}, 99th percentile {}.",
            text(p50),
            text(p99)
        ),
        below: 0.0,
        body: frame.draw(&[], &body),
    })
}

/// The delays of two runs in one plot.
pub(super) fn two(a: &Curves, b: &Curves) -> Option<Chart> {
    let (low_a, high_a) = ends(&a.delay)?;
    let (low_b, high_b) = ends(&b.delay)?;
    let (low, high) = (low_a.min(low_b), high_a.max(high_b));
    let frame = Frame {
        x: Axis::new(Scale::fitting(low, high), Quantity::Time, low.abs().max(high.abs()), "delay"),
        y: Axis::new(Scale::linear(0.0, 1.0), Quantity::Probability, 1.0, "share of packets ≤ x"),
    };
    let line = |points: &[Point], low: f64| {
        let start = [(frame.px(low), frame.py(0.0))];
        let steps = distribution(points);
        let all = steps.iter().map(|&(x, share)| (frame.px(x as f64), frame.py(share)));
        stairs(start.into_iter().chain(all).collect())
    };
    let body = html! {
        (ink::path("l1", &line(&a.delay, low_a), None))
        (ink::path("l2", &line(&b.delay, low_b), None))
    };
    Some(Chart {
        name: "delays",
        title: "Delay of both runs, cumulative".to_owned(),
        desc: format!(
            "Share of the packets of A and of B with at most this delay, from {} to {}.",
            text(low),
            text(high)
        ),
        below: 0.0,
        body: frame.draw(&[("l1", "A"), ("l2", "B")], &body),
    })
}

pub(super) fn tails(curves: &Curves, of: &str) -> Option<Chart> {
    let series = [
        ("l1", "delay", &curves.delay),
        ("l2", "jitter", &curves.jitter),
        ("l3", "lateness", &curves.lateness),
    ];
    let series: Vec<_> = series
        .into_iter()
        .filter(|(.., points)| points.last().is_some_and(|point| point.high > 0))
        .collect();
    let high = series.iter().filter_map(|(.., p)| ends(p)).map(|e| e.1).reduce(f64::max)?;
    let count = |points: &[Point]| points.iter().map(|p| p.count).sum::<u64>();
    let most = series.iter().map(|(.., points)| count(points)).max()?;
    if most < 2 {
        return None;
    }
    // Where values begin to matter: the smallest quartile of all.
    let quartile = |points: &[Point]| quantiles(points, 4).get(1).copied().unwrap_or(0);
    let low = series.iter().map(|(.., points)| quartile(points)).min()?;
    let low = (low as f64 / 2.0).max(high / 1e7).max(100.0).min(high / 10.0);
    let frame = Frame {
        x: Axis::new(Scale::log(low, high * 1.1), Quantity::Time, high, "x"),
        y: Axis::new(
            Scale::log(1.0 / most as f64, 1.0),
            Quantity::Probability,
            1.0,
            "share of packets > x",
        ),
    };
    let lines: Vec<(&str, String)> = series
        .iter()
        .map(|(class, _, points)| {
            let total = count(points) as f64;
            let mut up = 1.0;
            let mut steps = Vec::new();
            for (x, share) in distribution(points) {
                let left = 1.0 - share;
                if x as f64 >= low {
                    if steps.is_empty() {
                        steps.push((frame.px(low), frame.py(up)));
                    }
                    steps.push((frame.px(x as f64), frame.py(left.max(0.5 / total))));
                }
                up = left;
            }
            (*class, stairs(steps))
        })
        .collect();
    let body = html! { @for (class, d) in &lines { (ink::path(class, d, None)) } };
    let legend: Vec<_> = series.iter().map(|(class, name, _)| (*class, *name)).collect();
    Some(Chart {
        name: "ccdf",
        title: "Tails: how often larger than x".to_owned(),
        desc: format!(
            "Share of the packets of {of} with a larger delay, jitter or lateness, on logarithmic \
             scales; the largest value is {}.",
            text(high)
        ),
        below: 0.0,
        body: frame.draw(&legend, &body),
    })
}

pub(super) fn histogram(curves: &Curves, of: &str) -> Option<Chart> {
    let (low, high) = ends(&curves.delay)?;
    let total: u64 = curves.delay.iter().map(|point| point.count).sum();
    // The body: from the smallest to the 99.5th percentile, on equal bars.
    let body_end = *quantiles(&curves.delay, 200).get(199)? as f64;
    let log = low > 0.0 && body_end > 100.0 * low;
    let scale = if log { Scale::log(low, high) } else { Scale::linear(low, body_end) };
    let mut bars = [0.0; BARS];
    let mut beyond = 0;
    for point in &curves.delay {
        if !log && point.low as f64 > body_end {
            beyond += point.count;
            continue;
        }
        // A point that stands for a range is spread over it.
        let (from, to) = (scale.at(point.low as f64), scale.at(point.high as f64 + 1.0));
        spread(&mut bars, from, to.max(from + 1e-9), point.count as f64 / total as f64);
    }
    let tall = bars.iter().copied().fold(0.0, f64::max);
    let frame = Frame {
        x: Axis::new(scale, Quantity::Time, low.abs().max(body_end), "delay"),
        y: Axis::new(Scale::from_zero(tall), Quantity::Share, tall, "share of packets"),
    };
    let edge = |place: usize| place as f64 / BARS as f64;
    let (left, right) = (frame.px(low), frame.px(if log { high } else { body_end }));
    let floor = frame.floor();
    let d: String = (bars.iter().enumerate())
        .filter(|(_, share)| **share > 0.0)
        .map(|(place, share)| {
            let (a, b) = (edge(place), edge(place + 1));
            let (a, b) = (left + a * (right - left), left + b * (right - left));
            let top = frame.py(*share).min(floor - 0.7);
            format!(
                "M{} {}h{}V{}h-{}z",
                one(a + 0.4),
                one(top),
                one(b - a - 0.8),
                one(floor),
                one(b - a - 0.8)
            )
        })
        .collect();
    let rest = if beyond > 0 {
        format!("; {} are larger and not drawn", Quantity::Share.text(beyond as f64 / total as f64))
    } else {
        String::new()
    };
    let note = (beyond > 0)
        .then(|| format!("{} beyond →", Quantity::Share.text(beyond as f64 / total as f64)));
    let body = html! {
        (ink::path("b1", &d, None))
        @if let Some(note) = &note { (ink::text("end", (&one(right - 2.0), "40"), note)) }
    };
    Some(Chart {
        name: "histogram",
        title: "Delay, histogram".to_owned(),
        desc: format!(
            "Share of the packets of {of} by delay, {BARS} bars from {} to {}{rest}.",
            text(low),
            text(if log { high } else { body_end })
        ),
        below: 0.0,
        body: frame.draw(&[], &body),
    })
}

/// Adds `weight`, spread evenly from `from` to `to` (shares of the whole width).
fn spread(bars: &mut [f64; BARS], from: f64, to: f64, weight: f64) {
    let (from, to) = (from * BARS as f64, to * BARS as f64);
    for (place, bar) in bars.iter_mut().enumerate() {
        let (left, right) = (place as f64, place as f64 + 1.0);
        let right = if place + 1 == BARS { f64::INFINITY } else { right };
        let shared = to.min(right) - from.max(left);
        if shared > 0.0 {
            *bar += weight * shared / (to - from);
        }
    }
}

pub(super) fn asked_and_actual(
    name: &'static str,
    title: &str,
    quantity: Quantity,
    pair: &Pair,
) -> Option<Chart> {
    let ends = |values: &[i64]| Some((*values.first()? as f64, *values.last()? as f64));
    let (a, b) = (ends(&pair.asked)?, ends(&pair.actual)?);
    let (low, high) = (a.0.min(b.0), a.1.max(b.1));
    // A single value stands in the middle.
    let (low, high) = if high > low { (low, high) } else { (0.9 * low - 1.0, 1.1 * high + 1.0) };
    let floor = if low > 0.0 { low } else { (high / 1e5).max(1.0) };
    let wide = high > 200.0 * floor && quantity == Quantity::Time;
    let scale =
        if wide { Scale::log(floor.max(high / 1e6), high) } else { Scale::fitting(low, high) };
    let scale = if !wide && scale.is_log() { Scale::linear(low, high) } else { scale };
    let frame = Frame {
        x: Axis::new(scale, quantity, high, "asked"),
        y: Axis::new(scale, quantity, high, "actual"),
    };
    let last = pair.asked.len().max(2) - 1;
    let at = |values: &[i64], share: f64| {
        let place = share * (values.len() - 1) as f64;
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a place")]
        let place = place.round() as usize;
        values[place.min(values.len() - 1)] as f64
    };
    let dots: String = (0..=last)
        .map(|k| k as f64 / last as f64)
        .map(|share| {
            let (x, y) = (frame.px(at(&pair.asked, share)), frame.py(at(&pair.actual, share)));
            format!("M{} {}h4v4h-4z", one(x - 2.0), one(y - 2.0))
        })
        .collect();
    let diagonal = [(low.max(floor.min(high)), Some(low.max(floor.min(high)))), (high, Some(high))];
    let diagonal = if wide { diagonal } else { [(low, Some(low)), (high, Some(high))] };
    let body = html! {
        (ink::path("ref", &frame.line(diagonal), None))
        (ink::path("b1", &dots, None))
    };
    Some(Chart {
        name,
        title: format!("{title}, asked and actual"),
        desc: format!(
            "{title}: {} quantiles of what was asked against those of what was sent, from {} to {}; \
             on the dashed line both are equal.",
            last + 1,
            quantity.text(low),
            quantity.text(high)
        ),
        below: 0.0,
        body: frame.draw(&[], &body),
    })
}
