//! The course over time: rate, delay, loss.

use itg_stats::plot::Curves;
use itg_stats::plot::bins::TimeBins;
use itg_stats::plot::trace::{Cell, row_range};
use maud::html;

use crate::svg::axis::{Quantity, Scale};
use crate::svg::by_flow::NamedFlow;
use crate::svg::chart::{Chart, Parts};
use crate::svg::frame::{Axis, Frame};
use crate::svg::ink;
use crate::svg::legend::Entry;
use crate::svg::values::{Series, Shape, Values};

/// Most points of a line.
const MOST_POINTS: usize = 170;
/// Packets a bin should hold on average, as far as that leaves [`LEAST_POINTS`].
const PACKETS: u64 = 12;
const LEAST_POINTS: usize = 24;
/// Fewest full bins that tell how a rate changes.
const LEAST_RATES: usize = 3;

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

/// Rates in bit/s at the middle of each bin that is full; `None` with fewer than [`LEAST_RATES`].
fn rates(course: &BinnedSeries) -> Option<Vec<(f64, f64)>> {
    let width = course.bins.bin_ns() as f64;
    let many = course.bins.cells().len();
    // The first and the last bin are not full: bytes over their whole width are no rate.
    let points: Vec<(f64, f64)> = (course.bins.cells().enumerate())
        .filter(|(place, _)| *place > 0 && place + 1 < many)
        .map(|(place, cell)| (course.middle(place), 8e9 * cell.window.bytes as f64 / width))
        .collect();
    (points.len() >= LEAST_RATES).then_some(points)
}

fn highest(points: &[(f64, f64)]) -> f64 {
    points.iter().map(|point| point.1).fold(0.0, f64::max)
}

/// The throughput of two runs, each from its own start.
pub(super) fn two(a: &Curves, b: &Curves) -> Option<Chart> {
    let runs = [BinnedSeries::of(a)?, BinnedSeries::of(b)?];
    let points = [rates(&runs[0])?, rates(&runs[1])?];
    let high = highest(&points[0]).max(highest(&points[1]));
    let length = runs[0].length.max(runs[1].length);
    let frame = Frame {
        x: Axis::new(Scale::linear(0.0, length), Quantity::Time, length, "time"),
        y: Axis::new(Scale::from_zero(high), Quantity::Rate, high, "throughput"),
    };
    let lines =
        points.each_ref().map(|points| frame.line(points.iter().map(|&(x, y)| (x, Some(y)))));
    let inner = html! { (ink::path("l1", &lines[0], None)) (ink::path("l2", &lines[1], None)) };
    let named = [("l1", "A"), ("l2", "B")];
    let series =
        named.iter().zip(&points).map(|(&(class, name), points)| pairs(class, name, points));
    let chart = Parts {
        name: "rates",
        title: "Throughput of both runs".to_owned(),
        desc: format!(
            "Throughput of A and of B from the start of each, up to {}.",
            Quantity::Rate.text(high)
        ),
        values: Values::new(Shape::Line, &["time_ns", "throughput_bps"], series.collect()),
        legend: named.map(|(class, name)| Entry::line(class, name)).to_vec(),
        frame,
        inner,
    };
    Some(chart.into())
}

/// A series of points.
fn pairs(class: &'static str, name: &str, points: &[(f64, f64)]) -> Series {
    let numbers = points.iter().flat_map(|&(x, y)| [x, y]).collect();
    Series { name: name.to_owned(), class, numbers }
}

/// A series of points, some of which are not known.
fn gappy(class: &'static str, name: &str, points: &[(f64, Option<f64>)]) -> Series {
    let numbers = points.iter().flat_map(|&(x, y)| [x, y.unwrap_or(f64::NAN)]).collect();
    Series { name: name.to_owned(), class, numbers }
}

pub(super) fn rate(curves: &Curves, of: &str) -> Option<Chart> {
    let course = BinnedSeries::of(curves)?;
    let points = rates(&course)?;
    let high = highest(&points);
    let frame = Frame {
        x: course.axis(),
        y: Axis::new(Scale::from_zero(high), Quantity::Rate, high, "throughput"),
    };
    let line = frame.line(points.iter().map(|&(x, y)| (x, Some(y))));
    let (first, last) = (points.first()?, points.last()?);
    let floor = frame.floor();
    let area = format!("{line}L{} {floor}L{} {floor}z", frame.px(last.0), frame.px(first.0));
    let inner = html! {
        (ink::path("a1", &area, None))
        (ink::path("l1", &line, None))
    };
    let bin = course.bin();
    let name = format!("{of}, {bin}");
    let series = vec![pairs("l1", of, &points)];
    let chart = Parts {
        name: "rate",
        title: "Throughput over time".to_owned(),
        desc: format!(
            "Throughput of {of} over {}, in {bin}; the largest is {}.",
            Quantity::Time.text(course.length),
            Quantity::Rate.text(high)
        ),
        values: Values::new(Shape::Line, &["time_ns", "throughput_bps"], series),
        legend: vec![Entry::line("l1", &name)],
        frame,
        inner,
    };
    Some(chart.into())
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
    let least: Vec<(f64, Option<f64>)> = cells
        .iter()
        .enumerate()
        .map(|(place, cell)| (course.middle(place), cell.delay_ns.map(|range| range.0 as f64)))
        .collect();
    let [half, most] = &shares;
    let lines = [("l3", "smallest", &least), ("l1", "median", half), ("l2", "p99", most)];
    let inner = html! {
        @for (class, name, points) in lines {
            (ink::path(class, &frame.line(points.iter().copied()), Some(name)))
        }
    };
    let series = lines.map(|(class, name, points)| gappy(class, name, points)).to_vec();
    let chart = Parts {
        name: "delay",
        title: "Delay over time".to_owned(),
        desc: format!(
            "Smallest, median and 99th percentile of the delay of {of} in {}; from {} to {}.",
            course.bin(),
            Quantity::Time.text(low),
            Quantity::Time.text(high)
        ),
        values: Values::new(Shape::Line, &["time_ns", "delay_ns"], series),
        legend: lines.map(|(class, name, _)| Entry::line(class, name)).to_vec(),
        frame,
        inner,
    };
    Some(chart.into())
}

/// The median delay of each flow over time, which begins where that of the plots of `total` does.
pub(super) fn delay_by_flow(
    flows: &[NamedFlow<'_>],
    total: &Curves,
    each: &str,
    of: &str,
) -> Option<Chart> {
    let whole = BinnedSeries::of(total)?;
    let start = whole.bins.start_unix_ns()?;
    let lines: Vec<(&NamedFlow<'_>, Vec<_>)> = flows
        .iter()
        .filter_map(|flow| {
            let course = BinnedSeries::of(flow.curves)?;
            // Bins of a flow may be wider than those of the total, and begin before them.
            let from = course.bins.start_unix_ns()?;
            let from = from.saturating_sub(start) as f64 - start.saturating_sub(from) as f64;
            let cells = course.bins.cells().enumerate();
            let points = cells.map(|(place, cell)| {
                let delay = at_share(cell, 0.5, flow.curves.origin_ns);
                ((from + course.middle(place)).max(0.0), delay)
            });
            Some((flow, points.collect::<Vec<(f64, Option<f64>)>>()))
        })
        .collect();
    let all = || lines.iter().flat_map(|(_, points)| points);
    let length = all().map(|point| point.0).fold(whole.length, f64::max);
    let low = all().filter_map(|point| point.1).reduce(f64::min)?;
    let high = all().filter_map(|point| point.1).reduce(f64::max)?;
    let frame = Frame {
        x: Axis::new(Scale::linear(0.0, length), Quantity::Time, length, "time"),
        y: Axis::new(
            Scale::fitting(low, high),
            Quantity::Time,
            low.abs().max(high.abs()),
            "median delay",
        ),
    };
    let inner = html! {
        @for (flow, points) in &lines {
            (ink::path(flow.class, &frame.line(points.iter().copied()), Some(&flow.name)))
        }
    };
    let series = lines.iter().map(|(flow, points)| gappy(flow.class, &flow.name, points));
    let chart = Parts {
        name: "delay",
        title: format!("Median delay of {each}"),
        desc: format!(
            "Median delay over time of {of}, one line a flow; from {} to {}.",
            Quantity::Time.text(low),
            Quantity::Time.text(high)
        ),
        values: Values::new(Shape::Line, &["time_ns", "delay_p50_ns"], series.collect()),
        legend: lines.iter().map(|(flow, _)| Entry::line(flow.class, &flow.name)).collect(),
        frame,
        inner,
    };
    Some(chart.into())
}

/// Draws the share of lost packets over time; `None` also where it is not known which were lost.
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
    let lost = || shares.iter().enumerate().filter(|(_, share)| **share > 0.0);
    let bars: String =
        lost().map(|(place, share)| frame.cell(course.span(place), (0.0, *share))).collect();
    let numbers = lost().flat_map(|(place, share)| {
        let (from, to) = course.span(place);
        [from, to, *share]
    });
    let name = format!("{of}, {}", course.bin());
    let series = vec![Series { name: of.to_owned(), class: "b2", numbers: numbers.collect() }];
    let chart = Parts {
        name: "loss",
        title: "Loss over time".to_owned(),
        desc: format!(
            "Share of the packets of {of} that were lost, in {}; at most {}.",
            course.bin(),
            Quantity::Share.text(high)
        ),
        values: Values::new(Shape::Bars, &["time_from_ns", "time_to_ns", "lost_share"], series),
        legend: vec![Entry::square("b2", &name)],
        frame,
        inner: ink::path("b2", &bars, None),
    };
    Some(chart.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// A flow with a packet of 512 bytes at each of these milliseconds.
    fn curves(at_ms: impl IntoIterator<Item = u64>) -> Curves {
        let mut bins = TimeBins::<Cell>::new(512);
        for ms in at_ms {
            let cell = bins.at(1_800_000_000 * SECOND + ms * 1_000_000);
            cell.window.packets += 1;
            cell.window.bytes += 512;
            cell.delay_ns = Some((900, 1_100));
            cell.rows = vec![(3, 1)];
        }
        let [delay, jitter, lateness] = [(); 3].map(|()| Vec::new());
        Curves {
            bins,
            losses_known: true,
            origin_ns: 0,
            delay,
            delay_marks: [0; 2],
            jitter,
            lateness,
        }
    }

    #[test]
    fn bins_that_are_not_full_have_no_rate() {
        assert!(rate(&curves([0]), "flow 1").is_none());
        let even = curves((0..1_000).map(|k| 10 * k));
        assert!(two(&even, &curves([5])).is_none());
        let chart = rate(&even, "flow 1").expect("ten seconds");
        for point in chart.values.series[0].numbers.chunks(2) {
            assert!((370e3..450e3).contains(&point[1]), "{point:?}");
        }
    }

    #[test]
    fn time_begins_where_that_of_all_flows_does() {
        let late = curves((0..1_000).map(|k| 20_000 + 10 * k));
        let total = curves((0..3_000).map(|k| 10 * k));
        let flows = [NamedFlow { name: "late".to_owned(), class: "l1", curves: &late }];
        let chart = delay_by_flow(&flows, &total, "each flow", "all flows").expect("a plot");
        let first = chart.values.series[0].numbers[0];
        assert!((19e9..21e9).contains(&first), "{first}");
        assert!(chart.frame.x.scale.ends().1 >= 30e9);
    }
}
