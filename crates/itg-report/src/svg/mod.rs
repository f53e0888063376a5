//! Plots as SVG, set by hand so that one file follows the reader's light or dark theme.
//!
//! Colours are classes: the page, or the style inside a file of its own, gives them their values
//! (Okabe and Ito's palette, told apart without red and green). Every plot has a title and a
//! description for those who do not see it.

pub(crate) mod axis;
mod course;
mod frame;
mod maps;
mod shape;
mod sweep;

use itg_stats::Report;
use itg_stats::plot::{Curves, FlowPlots, Plots};
use itg_stats::sweep::Table;
use maud::{Markup, html};

use crate::svg::frame::{HEIGHT, WIDTH};

/// The colours, for page and files alike.
pub(crate) const STYLE: &str = include_str!("plot.css");

/// A drawing of its own.
#[derive(Debug)]
pub struct Chart {
    /// Short name, for files.
    pub name: &'static str,
    /// What it shows.
    pub title: String,
    /// What is seen, in words and figures.
    pub desc: String,
    body: Markup,
}

impl Chart {
    /// For a page that holds [`STYLE`]; `id` is unique in it.
    pub(crate) fn inline(&self, id: &str) -> Markup {
        html! {
            svg viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } role="img" aria-labelledby={ (id) "-t " (id) "-d" } {
                title id={ (id) "-t" } { (self.title) }
                desc id={ (id) "-d" } { (self.desc) }
                (self.body)
            }
        }
    }

    /// A file of its own; `of` says what is drawn.
    #[must_use]
    pub fn file(&self, of: &str) -> String {
        let svg = html! {
            svg xmlns="http://www.w3.org/2000/svg" viewBox={ "0 -28 " (WIDTH) " " (HEIGHT + 28.0) }
                width=(WIDTH * 1.5) height=((HEIGHT + 28.0) * 1.5) role="img" aria-labelledby="t d" {
                title id="t" { (self.title) ", " (of) }
                desc id="d" { (self.desc) }
                style { (maud::PreEscaped(STYLE)) }
                rect class="paper" x="0" y="-28" width=(WIDTH) height=(HEIGHT + 28.0) {}
                text class="head" x="12" y="-8" { (self.title) ", " (of) }
                (self.body)
            }
        };
        format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n{}\n", printable(&svg.into_string()))
    }
}

/// Without the control characters that XML does not allow.
#[must_use]
pub fn printable(text: &str) -> String {
    let allowed = |&c: &char| !c.is_control() || matches!(c, '\n' | '\t' | '\r');
    text.chars().filter(allowed).filter(|c| !matches!(c, '\u{fffe}' | '\u{ffff}')).collect()
}

/// What there is to draw of all flows together.
#[must_use]
pub fn of_total(report: &Report, plots: &Plots) -> Vec<Chart> {
    let mut charts = of_curves(&plots.total, "all flows");
    if plots.losses.len() > 1 {
        charts.extend(maps::loss_by_flow(report, plots));
    }
    charts
}

/// What there is to draw of one flow.
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
    [course::two(a, b), shape::two(a, b)].into_iter().flatten().collect()
}

fn of_curves(curves: &Curves, of: &str) -> Vec<Chart> {
    let charts = [
        course::rate(curves, of),
        course::delay(curves, of),
        course::loss(curves, of),
        shape::cumulative(curves, of),
        shape::tails(curves, of),
        shape::histogram(curves, of),
        maps::delay(curves, of),
    ];
    charts.into_iter().flatten().collect()
}
