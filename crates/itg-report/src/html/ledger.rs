//! Ledger of time and packets, count of values behind the percentiles, clocks, and groups.

use itg_stats::Report;
use itg_stats::figures::{Percentiles, Way};
use itg_stats::report::{ClockReport, FlowReport, Metrics};
use maud::{Markup, html};

use crate::html::parts::{badge, counted, rate, share, time, whole};
use crate::svg::axis::{count, digits};

/// Rows of the tables of groups and of clocks.
const ROWS: usize = 1_000;

fn moment(ns: i64) -> String {
    time(Some(ns as f64))
}

/// Time by where it went, loss by where it happened, percentiles of the delay.
pub(super) fn ledger(m: &Metrics) -> Markup {
    // Departures are sampled on request only, so they have no row without samples.
    let sampled = m.ledger.departure_ns.is_some();
    let ways: [(&str, &str, Option<Way>); 4] = [
        ("Sender", "sent − planned", m.ledger.lateness_ns),
        (
            "Send stack",
            "left the stack − handed to the kernel, sampled; part of the network",
            m.ledger.departure_ns,
        ),
        ("Network", "arrived − sent", m.ledger.network_ns),
        ("Receive stack", "read − arrived", m.ledger.stack_ns),
    ];
    let ways: Vec<_> = ways.into_iter().filter(|way| sampled || way.0 != "Send stack").collect();
    let loss = &m.ledger.loss;
    let losses = [
        ("Left out by the sender", "never sent, not among the lost", loss.skipped),
        ("Dropped at the receiver's socket", "its buffer was full", loss.socket),
        ("Not in the log", "arrived, but could not be recorded: not among the lost", loss.log),
        ("Network", "the rest of the lost", loss.network),
    ];
    html! {
        @if ways.iter().any(|way| way.2.is_some()) {
            div.scroll tabindex="0" role="region" aria-label="Where the time went" {
                table {
                    thead { tr {
                        th.t scope="col" { "Time in" } th scope="col" { "Packets" }
                        th scope="col" { "Smallest" } th scope="col" { "Mean" } th scope="col" { "p50" }
                        th scope="col" { "p99" } th scope="col" { "p99.9" } th scope="col" { "Largest" }
                        th.t scope="col" { "is" }
                    } }
                    tbody {
                        @for (name, what, way) in &ways { tr {
                            th.t scope="row" { (name) }
                            @match way {
                                None => td.t colspan="7" { "not known" },
                                Some(way) => {
                                    td data-v=(way.count) { (count(way.count)) }
                                    td data-v=(way.min) { (moment(way.min)) }
                                    td data-v=(way.mean) { (time(Some(way.mean))) }
                                    td data-v=(way.p50) { (moment(way.p50)) }
                                    td data-v=(way.p99) { (moment(way.p99)) }
                                    td data-v=(way.p999) { (moment(way.p999)) }
                                    td data-v=(way.max) { (moment(way.max)) }
                                }
                            }
                            td.t { (what) }
                        } }
                    }
                }
            }
        }
        @if losses.iter().any(|(.., packets)| packets.is_some()) {
            div.scroll tabindex="0" role="region" aria-label="Where packets were lost" {
                table {
                    thead { tr { th.t scope="col" { "Packets lost" } th scope="col" { "Packets" } th.t scope="col" { "are" } } }
                    tbody {
                        @for (name, what, packets) in losses { tr {
                            th.t scope="row" { (name) }
                            td data-v=(packets.map_or_else(String::new, |n| n.to_string())) { @if packets.is_some() { (whole(packets)) } @else { "not known" } }
                            td.t { (what) }
                        } }
                    }
                }
            }
        }
        (percentiles(m))
    }
}

/// Percentiles of the delay and of its variation with the counts behind them.
fn percentiles(m: &Metrics) -> Markup {
    let rows: Vec<(&str, Percentiles)> = [
        ("Delay", m.delay_percentiles_ns),
        ("Delay − smallest", m.pdv_ns.map(|pdv| pdv.percentiles)),
    ]
    .into_iter()
    .filter_map(|(name, found)| Some((name, found?)))
    .collect();
    html! {
        @if !rows.is_empty() {
            div.scroll tabindex="0" role="region" aria-label="Percentiles" {
                table {
                    thead { tr {
                        th.t scope="col" { "Percentiles of" } th scope="col" { "Packets" }
                        @for name in ["p50", "p75", "p90", "p95", "p99", "p99.9", "p99.99", "p99.999"] {
                            th scope="col" { (name) }
                        }
                    } }
                    tbody {
                        @for (name, p) in rows { tr {
                            th.t scope="row" { (name) }
                            td data-v=(p.count) { (count(p.count)) }
                            @for value in [p.p50, p.p75, p.p90, p.p95, p.p99, p.p999, p.p9999, p.p99999] {
                                td data-v=(value.map_or_else(String::new, |ns| ns.to_string())) { (time(value.map(|ns| ns as f64))) }
                            }
                        } }
                    }
                }
            }
            p.sub { "A dash: fewer than 10 packets lie beyond." }
        }
    }
}

/// The section of the total.
pub(super) fn section(report: &Report) -> Markup {
    html! {
        section aria-label="Where time and packets went" {
            h2 { "Where time and packets went" }
            (ledger(&report.total.metrics))
        }
    }
}

/// The clock estimate of one flow, in words.
pub(super) fn clock_words(clock: &ClockReport) -> String {
    let place = if clock.shared {
        "one clock (the estimate only shows what it is worth)"
    } else {
        "two clocks"
    };
    format!(
        "Clocks: {place}; receiver ahead by {} ± {}, skew {} ± {} ppm, {} steps, {} probes ({} refused), \
         shortest round trip {}",
        moment(clock.offset_ns),
        time(Some(clock.bound_ns as f64)),
        digits(clock.skew_ppm),
        digits(clock.skew_bound_ppm),
        clock.steps.len(),
        clock.probes,
        clock.refused_probes,
        time(Some(clock.round_trip_ns as f64)),
    )
}

/// Comparison of the clocks, a line for each pair of hosts and run.
pub(super) fn clocks(report: &Report) -> Markup {
    let host =
        |address: &str| address.rsplit_once(':').map_or(address, |(host, _)| host).to_owned();
    let mut pairs: Vec<(String, String, &FlowReport, &ClockReport)> = Vec::new();
    for (_, flow) in counted(report) {
        let Some(clock) = &flow.clock else { continue };
        let (src, dst) = (host(&flow.src), host(&flow.dst));
        let same = |(a, b, of, _): &(String, String, &FlowReport, &ClockReport)| {
            *a == src && *b == dst && of.run == flow.run
        };
        match pairs.iter().position(same) {
            // The least sure flow stands for its pair.
            Some(at) if pairs[at].3.bound_ns < clock.bound_ns => {
                (pairs[at].2, pairs[at].3) = (flow, clock);
            }
            Some(_) => {}
            None if pairs.len() < ROWS => pairs.push((src, dst, flow, clock)),
            None => {}
        }
    }
    html! {
        @if !pairs.is_empty() {
            section aria-label="Clocks" {
                h2 { "Clocks" }
                div.scroll tabindex="0" role="region" aria-label="Clocks of sender and receiver" {
                    table {
                        thead { tr {
                            th.t scope="col" { "Sender" } th.t scope="col" { "Receiver" } th.t scope="col" { "Clocks" }
                            th scope="col" { "Receiver ahead by" } th scope="col" { "±" }
                            th scope="col" { "Skew, ppm" } th scope="col" { "±" } th scope="col" { "Steps" }
                            th scope="col" { "Probes" } th scope="col" { "Refused" } th scope="col" { "Shortest round trip" }
                        } }
                        tbody {
                            @for (src, dst, _, clock) in &pairs { tr {
                                td.t { (src) } td.t { (dst) }
                                td.t { @if clock.shared { "one" } @else { "two" } }
                                td data-v=(clock.offset_ns) { (moment(clock.offset_ns)) }
                                td data-v=(clock.bound_ns) { (time(Some(clock.bound_ns as f64))) }
                                td { (digits(clock.skew_ppm)) } td { (digits(clock.skew_bound_ppm)) }
                                td { (clock.steps.len()) } td data-v=(clock.probes) { (count(clock.probes)) } td data-v=(clock.refused_probes) { (count(clock.refused_probes)) }
                                td data-v=(clock.round_trip_ns) { (time(Some(clock.round_trip_ns as f64))) }
                            } }
                        }
                    }
                }
                p.sub { "With one clock nothing is corrected. With two, the offset is taken off every delay; ± is the largest error of it during the flow." }
            }
        }
    }
}

/// Groups, where they were asked for.
pub(super) fn groups(report: &Report) -> Markup {
    let groups = report.groups.as_deref().unwrap_or_default();
    html! {
        @if !groups.is_empty() {
            section aria-label="Groups" {
                h2 { "Groups" }
                div.scroll tabindex="0" role="region" aria-label="Table of groups" {
                    table.sortable {
                        thead { tr {
                            @for key in groups[0].by.keys() { th.t scope="col" { (key) } }
                            th scope="col" data-c="flows" { "Flows" } th.t scope="col" data-c="fidelity" { "Verdict" } th scope="col" data-c="packets" { "Packets" }
                            th scope="col" data-c="bitrate_bps" { "Throughput" } th scope="col" data-c="loss_share" { "Loss" } th scope="col" data-c="delay_p50_ns" { "Delay p50" }
                            th scope="col" data-c="delay_p99_ns" { "Delay p99" } th scope="col" data-c="jitter_mean_ns" { "Jitter" } th scope="col" data-c="lateness_p99_ns" { "Lateness p99" }
                        } }
                        tbody {
                            @for group in groups.iter().take(ROWS) {
                                @let m = &group.metrics;
                                @let times = [
                                    m.delay_ns.map(|d| d.p50 as f64), m.delay_ns.map(|d| d.p99 as f64),
                                    m.jitter_ns.map(|j| j.mean), m.lateness_ns.map(|l| l.p99 as f64),
                                ];
                                tr {
                                    @for value in group.by.values() { td.t { @if value.is_empty() { "–" } @else { (value) } } }
                                    td data-v=(group.flows) { (count(group.flows)) }
                                    td.t data-v=(m.fidelity.verdict as u8) data-c=(m.fidelity.verdict.name()) { (badge(m.fidelity.verdict)) }
                                    td data-v=(m.packets) { (count(m.packets)) }
                                    td data-v=(m.bitrate_bps.map_or_else(String::new, |v| v.to_string())) { (rate(m.bitrate_bps)) }
                                    td data-v=(m.loss_share().map_or_else(String::new, |v| v.to_string())) { (share(m.loss_share())) }
                                    @for value in times { td data-v=(value.map_or_else(String::new, |v| v.to_string())) { (time(value)) } }
                                }
                            }
                        }
                    }
                }
                @if groups.len() > ROWS { p.sub { "and " (groups.len() - ROWS) " more: see --format json" } }
            }
        }
    }
}
