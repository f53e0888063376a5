//! The course over time: rate, delay, loss.

use itg_stats::plot::Curves;
use itg_stats::plot::bins::TimeBins;
use itg_stats::plot::trace::{Cell, row_range};
use maud::html;

use crate::svg::axis::{Quantity, Scale};
use crate::svg::chart::Chart;
use crate::svg::frame::{Axis, Frame};
use crate::svg::ink;

/// Most points of a line.
const MOST_POINTS: usize = 170;
/// Packets a bin should hold on average, as far as that leaves [`LEAST_POINTS`].
const PACKETS: u64 = 12;
const LEAST_POINTS: usize = 24;

/// The bins of a plot, wide enough to be read.
pub(super) struct BinnedSeries {
    pub(super) bins: TimeBins<Cell>,
    /// Length in nanoseconds.
    pub(super) length: f64,
}

impl BinnedSeries {
    pub(super) fn of(curves: &Curves) -> Option<Self> {
        let mut bins = curves.bins.clone();
        let packets: u64 = bins.cells().map(|cell| cell.window.packets).sum();
        if packets == 0 {
            return None;
        }
        loop {
            let many = bins.cells().len();
            let sparse = many > LEAST_POINTS && packets < PACKETS * many as u64;
            if many <= MOST_POINTS && !sparse {
                break;
            }
            bins.widen(bins.bin_ns() * 2);
        }
        let length = bins.cells().len() as f64 * bins.bin_ns() as f64;
        Some(Self { bins, length })
    }

    pub(super) fn axis(&self) -> Axis {
        Axis::new(Scale::linear(0.0, self.length), Quantity::Time, self.length, "time")
    }

    /// Start and end of bin `place`, in nanoseconds.
    pub(super) fn span(&self, place: usize) -> (f64, f64) {
        let width = self.bins.bin_ns() as f64;
        (place as f64 * width, (place + 1) as f64 * width)
    }

    fn middle(&self, place: usize) -> f64 {
        (place as f64 + 0.5) * self.bins.bin_ns() as f64
    }

    /// "bins of 131 ms".
    pub(super) fn bin(&self) -> String {
        format!("bins of {}", Quantity::Time.text(self.bins.bin_ns() as f64))
    }
}

/// Rates in bit/s at the middle of each bin that is full.
fn rates(course: &BinnedSeries) -> Vec<(f64, f64)> {
    let width = course.bins.bin_ns() as f64;
    let many = course.bins.cells().len();
    // The first and the last bin are not full: their rate would look like a dip.
    let inside = |place: usize| many <= 4 || (place > 0 && place + 1 < many);
    (course.bins.cells().enumerate())
        .filter(|(place, _)| inside(*place))
        .map(|(place, cell)| (course.middle(place), 8e9 * cell.window.bytes as f64 / width))
        .collect()
}

fn highest(points: &[(f64, f64)]) -> f64 {
    points.iter().map(|point| point.1).fold(0.0, f64::max)
}

/// The throughput of two runs, each from its own start.
pub(super) fn two(a: &Curves, b: &Curves) -> Option<Chart> {
    let runs = [BinnedSeries::of(a)?, BinnedSeries::of(b)?];
    let points = runs.each_ref().map(rates);
    let high = highest(&points[0]).max(highest(&points[1]));
    let length = runs[0].length.max(runs[1].length);
    let frame = Frame {
        x: Axis::new(Scale::linear(0.0, length), Quantity::Time, length, "time"),
        y: Axis::new(Scale::from_zero(high), Quantity::Rate, high, "throughput"),
    };
    let lines = points.map(|points| frame.line(points.iter().map(|&(x, y)| (x, Some(y)))));
    let body = html! { (ink::path("l1", &lines[0], None)) (ink::path("l2", &lines[1], None)) };
    Some(Chart {
        name: "rates",
        title: "Throughput of both runs".to_owned(),
        desc: format!(
            "Throughput of A and of B from the start of each, up to {}.",
            Quantity::Rate.text(high)
        ),
        below: 0.0,
        body: frame.draw(&[("l1", "A"), ("l2", "B")], &body),
    })
}

pub(super) fn rate(curves: &Curves, of: &str) -> Option<Chart> {
    let course = BinnedSeries::of(curves)?;
    let points = rates(&course);
    let high = highest(&points);
    let frame = Frame {
        x: course.axis(),
        y: Axis::new(Scale::from_zero(high), Quantity::Rate, high, "throughput"),
    };
    let line = frame.line(points.iter().map(|&(x, y)| (x, Some(y))));
    let (first, last) = (points.first()?, points.last()?);
    let floor = frame.floor();
    let area = format!("{line}L{} {floor}L{} {floor}z", frame.px(last.0), frame.px(first.0));
    let body = html! {
        (ink::path("a1", &area, None))
        (ink::path("l1", &line, None))
    };
    let bin = course.bin();
    Some(Chart {
        name: "rate",
        title: "Throughput over time".to_owned(),
        desc: format!(
            "Throughput of {of} over {}, in {bin}; the largest is {}.",
            Quantity::Time.text(course.length),
            Quantity::Rate.text(high)
        ),
        below: 0.0,
        body: frame.draw(&[], &body),
    })
}

/// The delay at a share of a bin's packets: middle of its row, ±3 %.
fn at_share(cell: &Cell, share: f64, origin: i64) -> Option<f64> {
    let total: u64 = cell.rows.iter().map(|row| row.1).sum();
    let wanted = (share * total as f64).ceil().max(1.0);
    let mut reached = 0;
    let found = cell.rows.iter().find(|(_, count)| {
        reached += count;
        reached as f64 >= wanted
    })?;
    let (low, high) = row_range(found.0);
    let middle = low as f64 / 2.0 + high as f64 / 2.0 + origin as f64;
    let (least, most) = cell.delay_ns?;
    Some(middle.clamp(least as f64, most as f64))
}

pub(super) fn delay(curves: &Curves, of: &str) -> Option<Chart> {
    let course = BinnedSeries::of(curves)?;
    let cells: Vec<&Cell> = course.bins.cells().collect();
    let shares = [0.5, 0.99].map(|share| {
        let points = cells.iter().enumerate();
        points
            .map(|(place, cell)| (course.middle(place), at_share(cell, share, curves.origin_ns)))
            .collect::<Vec<_>>()
    });
    let known =
        |points: &[(f64, Option<f64>)]| points.iter().filter_map(|p| p.1).collect::<Vec<_>>();
    let mins: Vec<f64> =
        cells.iter().filter_map(|cell| cell.delay_ns).map(|range| range.0 as f64).collect();
    let low = mins.iter().copied().reduce(f64::min)?;
    let high = known(&shares[1]).into_iter().reduce(f64::max)?;
    let frame = Frame {
        x: course.axis(),
        y: Axis::new(Scale::fitting(low, high), Quantity::Time, low.abs().max(high.abs()), "delay"),
    };
    let least = cells
        .iter()
        .enumerate()
        .map(|(place, cell)| (course.middle(place), cell.delay_ns.map(|range| range.0 as f64)));
    let body = html! {
        (ink::path("l3", &frame.line(least), None))
        (ink::path("l2", &frame.line(shares[1].iter().copied()), None))
        (ink::path("l1", &frame.line(shares[0].iter().copied()), None))
    };
    Some(Chart {
        name: "delay",
        title: "Delay over time".to_owned(),
        desc: format!(
            "Smallest, median and 99th percentile of the delay of {of} in {}; from {} to {}.",
            course.bin(),
            Quantity::Time.text(low),
            Quantity::Time.text(high)
        ),
        below: 0.0,
        body: frame.draw(&[("l3", "min"), ("l1", "median"), ("l2", "p99")], &body),
    })
}

pub(super) fn loss(curves: &Curves, of: &str) -> Option<Chart> {
    let course = BinnedSeries::of(curves)?;
    let shares: Vec<f64> = course
        .bins
        .cells()
        .map(|cell| {
            let sent = cell.window.lost.saturating_add(cell.window.packets);
            cell.window.lost as f64 / sent.max(1) as f64
        })
        .collect();
    let high = shares.iter().copied().fold(0.0, f64::max);
    if high <= 0.0 {
        return None;
    }
    let frame = Frame {
        x: course.axis(),
        y: Axis::new(Scale::from_zero(high), Quantity::Share, high, "packets lost"),
    };
    let bars: String = (shares.iter().enumerate())
        .filter(|(_, share)| **share > 0.0)
        .map(|(place, share)| frame.cell(course.span(place), (0.0, *share)))
        .collect();
    Some(Chart {
        name: "loss",
        title: "Loss over time".to_owned(),
        desc: format!(
            "Share of the packets of {of} that were lost, in {}; at most {}.",
            course.bin(),
            Quantity::Share.text(high)
        ),
        below: 0.0,
        body: frame.draw(&[], &ink::path("b2", &bars, None)),
    })
}
