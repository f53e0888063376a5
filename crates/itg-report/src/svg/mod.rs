//! Plots as SVG, set by hand so that one file follows the reader's light or dark theme.
//!
//! Colours are classes: the page, or the style inside a file of its own, gives them their values for light and dark;
//! attributes beside them ([`ink`]) are for programs that draw SVG without its style. Every plot has a title and a
//! description for those who do not see it.

pub(crate) mod axis;
mod chart;
mod frame;
mod ink;
mod lines;
mod maps;
mod over_time;
mod shape;
mod sweep;

use itg_stats::Report;
use itg_stats::plot::{Curves, FlowPlots, Plots};
use itg_stats::sweep::Table;

pub(crate) use crate::svg::chart::STYLE;
pub use crate::svg::chart::{Chart, printable};
pub use crate::svg::lines::{Curve, Plot};

/// Plots of all flows together.
#[must_use]
pub fn of_total(report: &Report, plots: &Plots) -> Vec<Chart> {
    let mut charts = of_curves(&plots.total, "all flows");
    if plots.losses.len() > 1 {
        charts.extend(maps::loss_by_flow(report, plots));
    }
    charts
}

/// Plots of one flow.
#[must_use]
pub fn of_flow(flow: &FlowPlots) -> Vec<Chart> {
    let mut charts = of_curves(&flow.curves, "this flow");
    charts.extend(flow.raster.as_ref().and_then(maps::raster));
    charts.extend(flow.gaps.as_ref().and_then(|pair| {
        shape::asked_and_actual("gaps", "Gaps between packets", axis::Quantity::Time, pair)
    }));
    charts.extend(flow.sizes.as_ref().and_then(|pair| {
        shape::asked_and_actual("sizes", "Sizes of packets", axis::Quantity::Size, pair)
    }));
    charts
}

/// The figures of a sweep, each against the variable with most values, by the names of their metrics.
#[must_use]
pub fn of_sweep(table: &Table) -> Vec<(String, Chart)> {
    sweep::charts(table)
}

/// Two runs in one plot each.
pub(crate) fn of_both(a: &Curves, b: &Curves) -> Vec<Chart> {
    [over_time::two(a, b), shape::two(a, b)].into_iter().flatten().collect()
}

fn of_curves(curves: &Curves, of: &str) -> Vec<Chart> {
    let charts = [
        over_time::rate(curves, of),
        over_time::delay(curves, of),
        over_time::loss(curves, of),
        shape::cumulative(curves, of),
        shape::tails(curves, of),
        shape::histogram(curves, of),
        maps::delay(curves, of),
    ];
    charts.into_iter().flatten().collect()
}
