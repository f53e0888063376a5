//! The report as one HTML page that needs nothing but a browser: no network, no file beside it.
//!
//! Verdicts come first, then figures, plots, flows, how to read it all, settings and how to do the
//! run again. Everything from logs is escaped; a policy in the page forbids loading anything.

mod compare;
mod flows;
mod ledger;
mod parts;
mod repeat;
mod sweep;

use itg_stats::Report;
use itg_stats::gate::Outcome;
use itg_stats::plot::Plots;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use serde_json::Value;

use crate::svg::{self, printable};

pub use compare::page as compare_page;
pub use repeat::command;
pub use sweep::page as sweep_page;

/// Number of flows that are drawn one by one.
pub const FLOWS_DRAWN: usize = 8;
/// With at most this many flows each one is open.
const FLOWS_OPEN: usize = 2;

/// Parts of the page beside the report.
#[derive(Clone, Copy, Debug)]
pub struct Around<'a> {
    /// Data of the plots, from the logs.
    pub plots: &'a Plots,
    /// Outcomes of the gates.
    pub gates: &'a [Outcome],
    /// The command line that made the page.
    pub command: &'a str,
}

/// The page.
#[must_use]
pub fn page(report: &Report, around: &Around<'_>) -> String {
    let title = title(report);
    let body = html! {
        header {
            h1 { (title) }
            p.sub { (subtitle(report)) }
        }
        (parts::verdicts(report, around.gates))
        (parts::damage(report))
        (parts::errors(report))
        (parts::figures(report))
        (ledger::section(report))
        (ledger::clocks(report))
        (all_together(report, around.plots))
        (ledger::groups(report))
        (flows::overview(report))
        (flows::details(report, around.plots))
        (parts::how_to_read())
        (parts::notices(report))
        (repeat::section(report, around))
    };
    whole(&title, &body)
}

/// The plots of the total; of a single flow its own, which show more.
fn all_together(report: &Report, plots: &Plots) -> Markup {
    let single = plots.flows.first().filter(|_| report.total.flows == 1);
    let (title, charts) = match single {
        Some(flow) => ("Plots", svg::of_flow(flow)),
        None => ("All flows together", svg::of_total(report, plots)),
    };
    html! { section aria-label=(title) { h2 { (title) } (drawings(&charts, "total")) } }
}

/// A page around its content.
fn whole(title: &str, body: &Markup) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta http-equiv="Content-Security-Policy"
                    content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:";
                link rel="icon" href="data:,";
                title { (title) }
                style { (PreEscaped(include_str!("page.css"))) (PreEscaped(svg::STYLE)) }
            }
            body {
                main {
                    (body)
                    footer { "Made by itg-decode " (env!("CARGO_PKG_VERSION")) ". Definitions of all figures: docs/decode.md." }
                }
                script { (PreEscaped(include_str!("sort.js"))) }
            }
        }
    };
    printable(&page.into_string())
}

/// Plots side by side.
fn drawings(charts: &[svg::Chart], id: &str) -> Markup {
    html! {
        div.plots {
            @for chart in charts {
                figure {
                    figcaption { (chart.title) }
                    (chart.inline(&format!("{id}-{}", chart.name)))
                }
            }
        }
    }
}

fn title(report: &Report) -> String {
    let name = report.manifest.get("name").and_then(Value::as_str).filter(|name| !name.is_empty());
    match name {
        Some(name) => format!("Traffic report: {name}"),
        None => "Traffic report".to_owned(),
    }
}

/// Subtitle: date of the start, number of flows, run.
fn subtitle(report: &Report) -> String {
    let mut runs: Vec<&str> = report.flows.iter().map(|flow| flow.run.as_str()).collect();
    runs.sort_unstable();
    runs.dedup();
    let logs = report.manifest.get("logs").and_then(Value::as_array);
    let started = logs.into_iter().flatten().filter_map(|log| log.get("started_unix_ns")?.as_u64());
    let mut parts = Vec::new();
    if let Some(started) = started.min() {
        parts.push(parts::date(started));
    }
    let flows = report.total.flows;
    parts.push(format!("{flows} {}", if flows == 1 { "flow" } else { "flows" }));
    match runs.as_slice() {
        [] => {}
        [run] => parts.push(format!("run {run}")),
        many => parts.push(format!("{} runs", many.len())),
    }
    parts.join(" · ")
}
