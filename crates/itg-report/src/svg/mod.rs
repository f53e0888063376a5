//! Plots as SVG, set by hand so that one file follows the reader's light or dark theme.
//!
//! Colours are classes: the page, or the style inside a file of its own, gives them their values for light and dark;
//! attributes beside them ([`ink`]) are for programs that draw SVG without its style. Every plot has a title and a
//! description for those who do not see it.

mod asked;
pub(crate) mod axis;
mod bars;
mod by_flow;
mod chart;
mod frame;
mod ink;
mod latex;
mod legend;
mod lines;
mod look;
mod maps;
mod over_time;
mod shape;
mod sweep;
mod values;

use itg_compare::sweep::Table;
use itg_stats::Report;
use itg_stats::plot::{Curves, FlowPlots, Plots};
use itg_stats::report::FlowReport;

pub(crate) use crate::svg::chart::STYLE;
pub use crate::svg::chart::{Chart, printable};
pub use crate::svg::lines::{Curve, Plot};

/// Plots of all flows together. Delays of different flows are never pooled: each flow has a line of its own.
#[must_use]
pub fn of_total(report: &Report, plots: &Plots) -> Vec<Chart> {
    let all = usize::try_from(report.total.flows).unwrap_or(usize::MAX);
    if all < 2 {
        let only = plots.flows.first().and_then(|drawn| report.flows.get(drawn.place));
        return of_curves(
            &plots.total,
            &only.map_or_else(|| "all packets".to_owned(), FlowReport::title),
        );
    }
    let flows = by_flow::named(report, plots);
    let of = by_flow::words(&flows, all);
    let sum = format!("sum of {all} flows");
    let each = by_flow::title(flows.len(), all);
    let charts = [
        over_time::rate(&plots.total, &sum),
        over_time::delay_by_flow(&flows, &plots.total, &each, &of),
        over_time::loss(&plots.total, &sum),
        shape::cumulative_by_flow(&flows, &each, &of),
        shape::tails_by_flow(&flows, &each, &of),
        maps::delay(&plots.total, &sum),
        (plots.losses.len() > 1).then(|| maps::loss_by_flow(report, plots)).flatten(),
    ];
    charts.into_iter().flatten().collect()
}

/// Plots of one flow; `of` is its name.
#[must_use]
pub fn of_flow(flow: &FlowPlots, of: &str) -> Vec<Chart> {
    let mut charts = of_curves(&flow.curves, of);
    charts.extend(flow.raster.as_ref().and_then(maps::raster));
    for (subject, pair) in [(asked::GAPS, &flow.gaps), (asked::SIZES, &flow.sizes)] {
        charts.extend(pair.as_ref().and_then(|pair| asked::and_actual(subject, pair, of)));
    }
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
