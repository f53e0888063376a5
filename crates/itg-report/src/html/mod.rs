//! The report as one HTML page that needs nothing but a browser: no network, no file beside it.
//!
//! Verdicts come first, then figures, plots, flows, how to read it all, settings and how to do the
//! run again. Everything from logs is escaped; a policy in the page forbids loading anything.

mod compare;
mod document;
mod flows;
mod ledger;
mod parts;
mod repeat;
mod sweep;
mod verdicts;

use itg_stats::Report;
use itg_stats::plot::Plots;
use itg_stats::report::FlowReport;
use maud::{Markup, html};
use serde_json::Value;

use self::document::{drawings, whole};
use crate::svg;

pub use compare::page as compare_page;
pub use parts::Around;
pub(crate) use parts::civil;
pub use repeat::command;
pub use sweep::page as sweep_page;

/// Number of flows that are drawn one by one.
pub const FLOWS_DRAWN: usize = 8;

/// The page.
#[must_use]
pub fn page(report: &Report, around: &Around<'_>) -> String {
    let title = title(report);
    let body = html! {
        header {
            h1 { (title) }
            p.sub { (subtitle(report)) }
        }
        (verdicts::verdicts(report, around.gates, around.allow_unknown))
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
        Some(flow) => {
            let of = report.flows.get(flow.place).map_or_else(String::new, FlowReport::title);
            ("Plots", svg::of_flow(flow, &of))
        }
        None => ("All flows together", svg::of_total(report, plots)),
    };
    html! { section aria-label=(title) { h2 { (title) } (drawings(&charts, "total")) } }
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
