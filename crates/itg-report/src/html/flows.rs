//! The flows: a table of all, plots of the worst.

use std::collections::BTreeSet;

use itg_stats::Report;
use itg_stats::fidelity::Verdict;
use itg_stats::plot::Plots;
use itg_stats::report::FlowReport;
use maud::{Markup, html};

use crate::html::document::drawings;
use crate::html::ledger::{clock_words, ledger};
use crate::html::parts::{FLOWS_OPEN, badge, counted, rate, share, table, time};
use crate::svg;
use crate::svg::axis::count;

/// Flows whose figures are folded away one by one, at most.
const FOLDED: usize = 1_000;
/// With more of them, their ledgers are left to the other formats.
const FULL: usize = 100;
/// Most rows of the table.
const ROWS: usize = 1_000;

/// "flow 3, udp, 10.0.0.1:4000 → 10.0.0.2:8999".
pub(super) fn name(flow: &FlowReport) -> String {
    let profile = flow.profile.as_ref().map_or_else(String::new, |p| format!(" {p},"));
    let proto = flow.proto.unwrap_or("?");
    let title = flow.title().replacen("flow", "Flow", 1);
    format!("{title}:{profile} {proto}, {} → {}", flow.src, flow.dst)
}

/// A cell that sorts by its value.
fn cell(value: Option<f64>, text: &str) -> Markup {
    html! { td data-v=(value.map_or_else(String::new, |value| value.to_string())) { (text) } }
}

/// One line a flow.
pub(super) fn overview(report: &Report) -> Markup {
    let flows = counted(report);
    let runs = flows.windows(2).any(|pair| pair[0].1.run != pair[1].1.run);
    let tally = Verdict::ALL.map(|verdict| {
        (verdict, flows.iter().filter(|f| f.1.metrics.fidelity.verdict == verdict).count())
    });
    html! {
        section aria-label="Flows" {
            h2 { "Flows" }
            p.tally {
                @for (verdict, n) in tally.into_iter().rev().filter(|(_, n)| *n > 0) {
                    (badge(verdict)) " " (n) " \u{2003}"
                }
            }
            div.scroll tabindex="0" role="region" aria-label="Table of flows" {
                table.sortable {
                    thead {
                        tr {
                            th scope="col" data-c="flow" { "Flow" }
                            th.t scope="col" data-c="name" { "Name" }
                            @if runs { th.t scope="col" data-c="run" { "Run" } }
                            th.t scope="col" data-c="fidelity" { "Verdict" }
                            th.t scope="col" data-c="proto" { "Proto" }
                            th scope="col" data-c="packets" { "Packets" }
                            th scope="col" data-c="bitrate_bps" { "Throughput" }
                            th scope="col" data-c="loss_share" { "Loss" }
                            th scope="col" data-c="delay_p50_ns" { "Delay p50" }
                            th scope="col" data-c="delay_p99_ns" { "Delay p99" }
                            th scope="col" data-c="jitter_mean_ns" { "Jitter" }
                            th scope="col" data-c="lateness_p99_ns" { "Lateness p99" }
                            th.t scope="col" data-c="src" { "From" }
                            th.t scope="col" data-c="dst" { "To" }
                            th.t scope="col" data-c="profile" { "Profile" }
                        }
                    }
                    tbody {
                        @for (_, flow) in flows.iter().take(ROWS) {
                            @let m = &flow.metrics;
                            tr {
                                td { (flow.flow) }
                                td.t { (flow.name) }
                                @if runs { td.t { (flow.run) } }
                                td.t data-v=(m.fidelity.verdict as u8) data-c=(m.fidelity.verdict.name()) { (badge(m.fidelity.verdict)) }
                                td.t { (flow.proto.unwrap_or("?")) @if flow.meter == Some("rtt") { " rtt" } }
                                (cell(Some(m.packets as f64), &count(m.packets)))
                                (cell(m.bitrate_bps, &rate(m.bitrate_bps)))
                                (cell(m.loss_share(), &share(m.loss_share())))
                                (cell(m.delay_ns.map(|d| d.p50 as f64), &time(m.delay_ns.map(|d| d.p50 as f64))))
                                (cell(m.delay_ns.map(|d| d.p99 as f64), &time(m.delay_ns.map(|d| d.p99 as f64))))
                                (cell(m.jitter_ns.map(|j| j.mean), &time(m.jitter_ns.map(|j| j.mean))))
                                (cell(m.lateness_ns.map(|l| l.p99 as f64), &time(m.lateness_ns.map(|l| l.p99 as f64))))
                                td.t { (flow.src) }
                                td.t { (flow.dst) }
                                td.t { (flow.profile.as_deref().unwrap_or("")) }
                            }
                        }
                    }
                }
            }
            @if flows.len() > ROWS { p.sub { (flows.len() - ROWS) " more: --format csv has all" } }
        }
    }
}

/// Plots of the flows that are drawn, figures of the others, folded.
pub(super) fn details(report: &Report, plots: &Plots) -> Markup {
    let flows = counted(report);
    let open = flows.len() <= FLOWS_OPEN;
    let drawn: BTreeSet<usize> = plots.flows.iter().map(|flow| flow.place).collect();
    let others: Vec<_> = flows.iter().filter(|(place, _)| !drawn.contains(place)).collect();
    html! {
        section aria-label="Single flows" {
            @if !plots.flows.is_empty() && flows.len() > 1 {
                h2 {
                    @if others.is_empty() { "Flow by flow" }
                    @else { "The " (plots.flows.len()) " flows that look worst" }
                }
            }
            @for drawn in &plots.flows {
                @if let Some(flow) = report.flows.get(drawn.place) {
                    @if flows.len() == 1 { (figures(flow, true)) } @else { details open[open] {
                        summary { (badge(flow.metrics.fidelity.verdict)) " " (name(flow)) }
                        (drawings(&svg::of_flow(drawn, &flow.title()), &format!("flow{}", drawn.place)))
                        (figures(flow, true))
                    } }
                }
            }
            @if !others.is_empty() {
                details {
                    summary { "The other " (others.len()) " flows in figures" }
                    @for (_, flow) in others.iter().take(FOLDED) {
                        details {
                            summary { (badge(flow.metrics.fidelity.verdict)) " " (name(flow)) }
                            (figures(flow, others.len() <= FULL))
                        }
                    }
                    @if others.len() > FOLDED { p { (others.len() - FOLDED) " more: --format csv has all" } }
                }
            }
        }
    }
}

/// The figures of one flow; `full`: the ledger and the percentiles too.
fn figures(flow: &FlowReport, full: bool) -> Markup {
    html! {
        @if !flow.metrics.fidelity.reasons.is_empty() {
            div class={ "notes " (flow.metrics.fidelity.verdict.name()) } {
                ul { @for reason in &flow.metrics.fidelity.reasons { li { (reason) } } }
            }
        }
        @if !flow.notices.is_empty() {
            div.notes.plain { ul { @for notice in &flow.notices { li { (notice) } } } }
        }
        details {
            summary { "All figures, as the " (flow.side) " saw them" }
            (table(&flow.metrics))
            @if full { (ledger(&flow.metrics)) }
            @if let Some(clock) = &flow.clock { p.sub { (clock_words(clock)) } }
            @if let Some(end) = flow.end.as_ref().filter(|end| !end.is_empty()) { p.sub { "Ended: " (end) } }
        }
    }
}
