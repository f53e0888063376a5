//! Bars of equal width on a scale.

use itg_stats::quantiles::Point;
use maud::html;

use crate::svg::axis::{Quantity, Scale};
use crate::svg::chart::Parts;
use crate::svg::frame::{Axis, Frame, WIDTH, one};
use crate::svg::ink;
use crate::svg::legend::Entry;
use crate::svg::values::{Series, Shape, Values};

/// Bars of a histogram.
const BARS: usize = 56;

/// Shares of a whole by where they are on a scale.
pub(super) struct Bars {
    scale: Scale,
    shares: [f64; BARS],
}

/// Adds `weight`, spread over all that a point stands for.
pub(super) fn spread(bars: &mut Bars, point: &Point, weight: f64) {
    let scale = bars.scale;
    let (from, to) = (scale.at(point.low as f64), scale.at(point.high as f64 + 1.0));
    let (from, to) = (from * BARS as f64, to.max(from + 1e-9) * BARS as f64);
    for (place, bar) in bars.shares.iter_mut().enumerate() {
        let (left, right) = (place as f64, place as f64 + 1.0);
        let right = if place + 1 == BARS { f64::INFINITY } else { right };
        let shared = to.min(right) - from.max(left);
        if shared > 0.0 {
            *bar += weight * shared / (to - from);
        }
    }
}

impl Bars {
    pub(super) fn new(scale: Scale) -> Self {
        Self { scale, shares: [0.0; BARS] }
    }

    /// The plot, without its name and words; `note` is written at its upper right.
    pub(super) fn parts(&self, x: Axis, ends: [&str; 2], of: &str, note: Option<&str>) -> Parts {
        let tall = self.shares.iter().copied().fold(0.0, f64::max);
        let y = Axis::new(Scale::from_zero(tall), Quantity::Share, tall, "share of packets");
        let frame = Frame { x, y };
        let edge = |place: usize| self.scale.value(place as f64 / BARS as f64);
        let drawn = || self.shares.iter().enumerate().filter(|(_, share)| **share > 0.0);
        let floor = frame.floor();
        let d: String = drawn()
            .map(|(place, share)| {
                let (a, b) = (frame.px(edge(place)) + 0.4, frame.px(edge(place + 1)) - 0.4);
                let (top, wide) = (frame.py(*share).min(floor - 0.7), one((b - a).max(0.6)));
                format!("M{} {}h{wide}V{}h-{wide}z", one(a), one(top), one(floor))
            })
            .collect();
        let numbers = drawn().flat_map(|(place, share)| [edge(place), edge(place + 1), *share]);
        let name = format!("{of}, {BARS} bars");
        let series = Series { name: of.to_owned(), class: "b1", numbers: numbers.collect() };
        let [from, to] = ends;
        Parts {
            name: "bars",
            title: String::new(),
            desc: String::new(),
            values: Values::new(Shape::Bars, &[from, to, "share_of_packets"], vec![series]),
            legend: vec![Entry::square("b1", &name)],
            frame,
            inner: html! {
                (ink::path("b1", &d, None))
                @if let Some(note) = note { (ink::text("end", (&one(WIDTH - 16.0), "40"), note)) }
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_weight_is_in_the_bars_once() {
        let mut bars = Bars::new(Scale::linear(-10.0, 46.0));
        for (low, high) in [(-10, -10), (0, 5), (3, 40), (45, 46), (-500, -400), (100, 100)] {
            spread(&mut bars, &Point { low, high, count: 1 }, 1.0);
        }
        assert!((bars.shares.iter().sum::<f64>() - 6.0).abs() < 1e-9, "{:?}", bars.shares);
        assert!(bars.shares[0] >= 2.0 && bars.shares[BARS - 1] >= 1.0, "{:?}", bars.shares);
    }
}
