//! Plots as SVG, set by hand so that one file follows the reader's light or dark theme.
//!
//! Colours are classes: the page, or the style inside a file of its own, gives them their values for light and dark;
//! attributes beside them ([`ink`]) are for programs that draw SVG without its style. Every plot has a title and a
//! description for those who do not see it.

pub(crate) mod axis;
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
use maud::{Markup, html};

use crate::svg::frame::{HEIGHT, WIDTH};
pub use crate::svg::lines::{Curve, Plot};

/// The colours, for page and files alike.
pub(crate) const STYLE: &str = include_str!("plot.css");

/// For programs that read no style.
const FONTS: &str = "system-ui, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif";

/// A drawing of its own.
#[derive(Debug)]
pub struct Chart {
    /// Short name, for files.
    pub name: &'static str,
    /// Title of the plot.
    pub title: String,
    /// Description of the plot in words and figures.
    pub desc: String,
    /// Room for a legend below the plot.
    below: f64,
    body: Markup,
}

impl Chart {
    /// For a page that holds [`STYLE`]; `id` is unique in it.
    pub(crate) fn inline(&self, id: &str) -> Markup {
        html! {
            svg viewBox={ "0 0 " (WIDTH) " " (HEIGHT + self.below) } font-family=(FONTS) font-size="12" role="img" aria-labelledby={ (id) "-t " (id) "-d" } {
                title id={ (id) "-t" } { (self.title) }
                desc id={ (id) "-d" } { (self.desc) }
                (self.body)
            }
        }
    }

    /// A file of its own; `of` says what is drawn.
    #[must_use]
    pub fn file(&self, of: &str) -> String {
        self.titled(&format!("{}, {of}", self.title))
    }

    fn titled(&self, title: &str) -> String {
        let height = HEIGHT + self.below + 28.0;
        let svg = html! {
            svg xmlns="http://www.w3.org/2000/svg" viewBox={ "0 -28 " (WIDTH) " " (height) }
                width=(WIDTH * 1.5) height=(height * 1.5) role="img" aria-labelledby="t d"
                font-family=(FONTS) font-size="12" {
                title id="t" { (title) }
                desc id="d" { (self.desc) }
                style { (maud::PreEscaped(STYLE)) }
                rect class="paper" fill=(ink::of("paper").fill) x="0" y="-28" width=(WIDTH) height=(height) {}
                text class="head" fill=(ink::of_text("head")) font-size="14" font-weight="600" x="12" y="-8" { (title) }
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
