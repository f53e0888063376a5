//! Two runs side by side, as one page.

use itg_compare::{Comparison, Difference, Pairing};
use itg_stats::Report;
use maud::{Markup, html};

use crate::html::document::{drawings, whole};
use crate::svg;
use crate::svg::axis::Quantity;

/// Flows whose figures are open.
const OPEN: usize = 2;
/// Flows that are shown one by one.
const SHOWN: usize = 200;

/// The page; the reports hold plots.
#[must_use]
pub fn page(comparison: &Comparison, a: &Report, b: &Report, command: &str) -> String {
    let curves = a.plots.as_ref().zip(b.plots.as_ref());
    let clear = comparison.total.figures.iter().filter(|figure| figure.clear == Some(true));
    let names: Vec<&str> = clear.map(|figure| figure.metric).collect();
    let resampling = comparison.resampling;
    let body = html! {
        header {
            h1 { "Two runs compared" }
            p.sub { "A: " (comparison.a) }
            p.sub { "B: " (comparison.b) }
        }
        div class={ "verdict " (if !comparison.failed.is_empty() { "fail" } else if names.is_empty() { "pass" } else { "warn" }) } {
            @if !comparison.failed.is_empty() {
                strong { "✗ FAILED" }
                span { "The traffic of " (comparison.failed.join(", ").to_uppercase()) " is not the one asked for." }
            } @else if names.is_empty() {
                strong { "= NO CLEAR DIFFERENCE" }
                span { "No interval of the total leaves 0 out." }
            } @else {
                strong { "≠ DIFFERENT" }
                span { "Clear differences of the total: " (names.join(", ")) "." }
            }
            @if let Some(effect) = &comparison.total.delay {
                p { "Delay as a whole: " (effect.magnitude) " difference (Cliff's delta " (format!("{:+.3}", effect.cliffs_delta))
                    ", KS distance " (format!("{:.3}", effect.ks)) ")." }
            }
        }
        @if !comparison.notices.is_empty() {
            div.notes.warn { ul { @for notice in &comparison.notices { li { (notice) } } } }
        }
        h2 { "All flows together" }
        (table(&comparison.total))
        @if let Some((a, b)) = curves { h2 { "Plots" } (drawings(&svg::of_both(&a.total, &b.total), "both")) }
        @if !comparison.flows.is_empty() {
            h2 { "Flow by flow" }
            @for pairing in comparison.flows.iter().take(SHOWN) {
                details open[comparison.flows.len() <= OPEN] {
                    summary { "Flow " (pairing.flow.unwrap_or(0)) (marked(pairing)) }
                    (table(pairing))
                }
            }
            @if comparison.flows.len() > SHOWN { p.sub { "More are in the JSON." } }
        }
        @for (name, list) in [("A", &comparison.only_a), ("B", &comparison.only_b)] {
            @if !list.is_empty() { p { "Only in " (name) ": " (list.len()) " flows, the first is flow " (list[0]) "." } }
        }
        h2 { "How to read this" }
        details open {
            summary { "What the columns mean" }
            dl.how {
                dt { "Difference" } dd { "B minus A; in percent of A." }
                dt { "95 % interval" } dd {
                    "Where the difference lies, as far as the course within each run tells: circular block bootstrap, "
                    (resampling.resamples) " resamples, seed " (resampling.seed) ". Marked ● when it leaves 0 out. It does not know what varies from run to run: repeat the runs for that."
                }
                dt { "Cliff's delta" } dd { "The chance that a packet of B took longer than one of A, less the chance that it took less time: 0 no difference, ±1 no overlap. Below 0.147 negligible, 0.33 small, 0.474 medium, else large." }
                dt { "KS distance" } dd { "Largest distance of the two curves of cumulative delay, from 0 to 1." }
            }
        }
        h2 { "Doing it again" }
        pre { (command) }
    };
    whole("Two runs compared", &body)
}

fn marked(pairing: &Pairing) -> Markup {
    let clear = pairing.figures.iter().filter(|figure| figure.clear == Some(true));
    let names: Vec<&str> = clear.map(|figure| figure.metric).collect();
    html! { @if !names.is_empty() { " ● " (names.join(", ")) } }
}

fn cell(figure: &Difference, value: Option<f64>) -> String {
    value.map_or_else(|| "–".to_owned(), |value| text(figure, value))
}

/// A value with its unit, as the plots write it.
fn text(figure: &Difference, value: f64) -> String {
    match figure.unit {
        "ns" => Quantity::Time.text(value),
        "bit/s" => Quantity::Rate.text(value),
        "1" => Quantity::Share.text(value),
        _ => figure.text(value),
    }
}

fn table(pairing: &Pairing) -> Markup {
    html! {
        div.scroll {
            table {
                thead { tr { th.t { "Figure" } th { "A" } th { "B" } th { "Difference" } th { "Relative" } th { "95 % interval" } th.t { "" } } }
                tbody {
                    @for figure in &pairing.figures {
                        tr {
                            th.t scope="row" { (figure.metric) }
                            td { (cell(figure, figure.a)) }
                            td { (cell(figure, figure.b)) }
                            td { (cell(figure, figure.difference)) }
                            td { (figure.relative.map_or_else(|| "–".to_owned(), |r| format!("{:+.2} %", 100.0 * r))) }
                            td { @if let Some([low, high]) = figure.interval { (text(figure, low)) " … " (text(figure, high)) } @else { "–" } }
                            td.t { @if figure.clear == Some(true) { span title="the interval leaves 0 out" { "●" } } }
                        }
                    }
                    @if let Some(effect) = &pairing.delay {
                        tr { th.t scope="row" { "delay as a whole" } td.t colspan="6" {
                            "Cliff's delta " (format!("{:+.3}", effect.cliffs_delta)) " (" (effect.magnitude) "), KS distance " (format!("{:.3}", effect.ks))
                        } }
                    }
                }
            }
        }
    }
}
