//! Settings in full, and how to do the run again.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use itg_core::distribution::Unit;
use itg_core::flow::{FlowSpec, Late, Meter, Payload};
use itg_core::settings::SettingValue;
use itg_core::units::format_duration_ns;
use itg_stats::Report;
use itg_stats::report::FlowReport;
use maud::{Markup, html};
use serde_json::Value;

use crate::html::parts::{self, Around};

/// Rows of the table of asked-for flows.
const ROWS: usize = 200;

pub(super) fn section(report: &Report, around: &Around<'_>) -> Markup {
    html! {
        section aria-label="Settings" {
            h2 { "Settings" }
            (asked(report, around))
            (logs(report))
            h2 { "Doing it again" }
            (again(report, around))
        }
    }
}

/// The flows as they were asked for.
fn asked(report: &Report, around: &Around<'_>) -> Markup {
    let flows: Vec<_> = parts::counted(report)
        .into_iter()
        .filter_map(|(place, flow)| Some((flow, around.plots.specs.get(place)?.as_ref()?)))
        .collect();
    html! {
        details {
            summary { "What was asked for, flow by flow" }
            div.scroll {
                table {
                    thead { tr {
                        th { "Flow" } th.t { "Proto" } th.t { "Inter-departure times" } th.t { "Sizes" } th.t { "ON / OFF" }
                        th.t { "Start" } th.t { "Ends after" } th.t { "Meter" } th.t { "Late packets" } th { "Seed" }
                    } }
                    tbody {
                        @for (flow, spec) in flows.iter().take(ROWS) {
                            tr {
                                td { (flow.flow) }
                                td.t { (spec.proto.name()) }
                                td.t.w { (spec.idt.display(Unit::Time)) }
                                td.t.w { (spec.size.display(Unit::Size)) }
                                td.t { @if let Some(p) = &spec.on_off { (p.on.display(Unit::Time)) " / " (p.off.display(Unit::Time)) } @else { "–" } }
                                td.t { (format_duration_ns(spec.start_ns)) }
                                td.t { (stop(spec)) }
                                td.t { (if spec.meter == Meter::Rtt { "rtt" } else { "owd" }) }
                                td.t { (if spec.late == Late::Drop { "left out" } else { "sent late" }) }
                                td { (flow.seed.map_or_else(String::new, |seed| seed.to_string())) }
                            }
                        }
                    }
                }
            }
            @if flows.len() > ROWS { p.sub { (flows.len() - ROWS) " more are in the logs." } }
        }
    }
}

fn stop(spec: &FlowSpec) -> String {
    let stop = &spec.stop;
    let limits = [
        stop.duration_ns.map(format_duration_ns),
        stop.packets.map(|n| format!("{n} packets")),
        stop.bytes.map(|n| format!("{n} bytes")),
    ];
    let limits: Vec<String> = limits.into_iter().flatten().collect();
    if limits.is_empty() { "never".to_owned() } else { limits.join(", ") }
}

/// Manifest of each log, and that of the run.
fn logs(report: &Report) -> Markup {
    let logs = report.manifest.get("logs").and_then(Value::as_array);
    let others: Vec<_> = report
        .manifest
        .iter()
        .filter(|(key, _)| !matches!(key.as_str(), "logs" | "experiment" | "files" | "profiles"))
        .collect();
    html! {
        @for log in logs.into_iter().flatten() {
            details {
                summary { "Log " (log.get("name").map(text).unwrap_or_default()) }
                (facts(log.as_object().into_iter().flatten().filter(|(key, _)| *key != "name")))
            }
        }
        @if !others.is_empty() {
            details { summary { "Manifest of the run" } (facts(others.into_iter())) }
        }
    }
}

fn facts<'a>(facts: impl Iterator<Item = (&'a String, &'a Value)>) -> Markup {
    html! {
        div.scroll {
            table { tbody {
                @for (key, value) in facts {
                    @if let Value::Object(inner) = value {
                        @for (name, value) in inner { tr { th.t scope="row" { (key) ": " (name) } td.t.w { (text(value)) } } }
                    } @else {
                        tr { th.t scope="row" { (key) } td.t.w {
                            (text(value))
                            @if let Some(ns) = value.as_u64().filter(|_| key.ends_with("unix_ns")) { " (" (parts::date(ns)) ")" }
                        } }
                    }
                }
            } }
        }
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "not known".to_owned(),
        other => other.to_string(),
    }
}

/// The commands that make the run again, and this page.
fn again(report: &Report, around: &Around<'_>) -> Markup {
    let original = report.manifest.get("experiment").and_then(Value::as_str);
    let made = original.map(str::to_owned).or_else(|| experiment(report, &around.plots.specs));
    let seed = report.flows.iter().find_map(|flow| flow.seed);
    let local = parts::counted(report)
        .iter()
        .all(|(_, flow)| host(&flow.src) == host(&flow.dst) || host(&flow.dst) == "127.0.0.1");
    let seed = seed.map_or_else(String::new, |seed| format!(" --seed {seed}"));
    let file = report.manifest.get("origin").and_then(Value::as_str).filter(|_| original.is_some());
    let file = quoted(file.unwrap_or("experiment.toml"));
    html! {
        p { "The seed fixes every packet: its time, its size and its content. The same experiment with the same seed asks for the same packets again." }
        @if let Some(experiment) = &made {
            h3 { "1. The experiment" @if original.is_none() { ", written from what the logs say" } ": save as " code { (file) } }
            pre { (experiment) }
            h3 { "2. The run" }
            @if local {
                pre { "itg-cluster run " (file) " --local" (seed) " --out again" }
            } @else {
                pre { "itg-recv --log receiver.itg                            # at each receiver\nitg-send run " (file) (seed) " --log sender.itg    # at the sender" }
            }
        } @else {
            p { "The logs do not hold a whole experiment that could be written down here; run the experiment file they came from" @if !seed.is_empty() { " with " code { (seed.trim()) } } "." }
        }
        h3 { "This page" }
        pre { (around.command) }
    }
}

/// An address without its port.
fn host(address: &str) -> &str {
    let cut = address.rsplit_once(':').map_or(address, |(host, _)| host);
    cut.trim_start_matches('[').trim_end_matches(']')
}

fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

/// A command line as a shell takes it.
#[must_use]
pub fn command(words: impl Iterator<Item = String>) -> String {
    words.map(|word| quoted(&word)).collect::<Vec<_>>().join(" ")
}

/// An experiment file that asks for the flows of the report; `None` when they are not the flows 1
/// to n of one run, or not all known: their random streams go by these numbers.
fn experiment(report: &Report, specs: &[Option<FlowSpec>]) -> Option<String> {
    let flows = parts::counted(report);
    let mut all: Vec<(&FlowReport, &FlowSpec)> = Vec::new();
    for (place, flow) in flows {
        all.push((flow, specs.get(place)?.as_ref()?));
    }
    let (first, _) = all.first()?;
    let numbered = (1u32..).zip(&all).all(|(n, (flow, spec))| {
        flow.flow == n && spec.id == n && flow.run == first.run && flow.seed == first.seed
    });
    if !numbered {
        return None;
    }
    let hosts: BTreeSet<&str> =
        all.iter().flat_map(|(flow, _)| [host(&flow.src), host(&flow.dst)]).collect();
    let names: BTreeMap<&str, String> = if hosts.iter().all(|host| *host == "127.0.0.1") {
        BTreeMap::new()
    } else {
        (1..).zip(hosts).map(|(n, host)| (host, format!("host{n}"))).collect()
    };
    let mut out = String::new();
    write_experiment(&mut out, &all, &names).ok()?;
    Some(out)
}

fn write_experiment(
    out: &mut String,
    all: &[(&FlowReport, &FlowSpec)],
    names: &BTreeMap<&str, String>,
) -> std::fmt::Result {
    writeln!(out, "schema = 1\nname = \"again\"")?;
    if let Some(seed) = all.iter().find_map(|(flow, _)| flow.seed) {
        // Numbers of TOML end at 2⁶³ − 1.
        writeln!(out, "seed = \"{seed}\"")?;
    }
    if !names.is_empty() {
        writeln!(out, "\n[nodes]")?;
        for (host, name) in names {
            writeln!(out, "{name} = {{ address = {} }}", toml_text(host))?;
        }
    }
    let mut before: Option<String> = None;
    let mut count = 0;
    let mut entries: Vec<(u32, String)> = Vec::new();
    for (flow, spec) in all {
        let mut entry = String::new();
        write_flow(&mut entry, flow, spec, names)?;
        if before.as_ref() == Some(&entry) {
            count += 1;
        } else {
            entries.extend(before.take().map(|text| (count, text)));
            (before, count) = (Some(entry), 1);
        }
    }
    entries.extend(before.map(|text| (count, text)));
    for (count, entry) in entries {
        writeln!(out, "\n[[flow]]")?;
        if count > 1 {
            writeln!(out, "count = {count}")?;
        }
        out.push_str(&entry);
    }
    Ok(())
}

fn toml_text(text: &str) -> String {
    Value::from(text).to_string()
}

fn write_flow(
    out: &mut String,
    flow: &FlowReport,
    spec: &FlowSpec,
    names: &BTreeMap<&str, String>,
) -> std::fmt::Result {
    let mut text = |key: &str, value: &str| writeln!(out, "{key} = {}", toml_text(value));
    if let (Some(from), Some(to)) = (names.get(host(&flow.src)), names.get(host(&flow.dst))) {
        text("from", from)?;
        text("to", to)?;
    }
    text("proto", spec.proto.name())?;
    text("idt", &spec.idt.display(Unit::Time))?;
    text("size", &spec.size.display(Unit::Size))?;
    if spec.start_ns > 0 {
        text("start", &format_duration_ns(spec.start_ns))?;
    }
    if let Some(ns) = spec.stop.duration_ns {
        text("duration", &format_duration_ns(ns))?;
    }
    if spec.meter == Meter::Rtt {
        text("meter", "rtt")?;
    }
    if spec.late == Late::Drop {
        text("late", "drop")?;
    }
    match &spec.payload {
        Payload::Random => {}
        Payload::Pattern(bytes) => {
            let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            text("payload", &format!("pattern:{hex}"))?;
        }
        Payload::File(name) => text("payload", &format!("file:{name}"))?,
    }
    let socket = &spec.socket;
    let texts = [
        ("source", &socket.source),
        ("interface", &socket.interface),
        ("congestion", &socket.congestion),
    ];
    for (key, value) in texts {
        if let Some(value) = value {
            text(key, value)?;
        }
    }
    if let Some(periods) = &spec.on_off {
        let distributions = [&periods.on, &periods.off]
            .map(|distribution| toml_text(&distribution.display(Unit::Time)));
        writeln!(out, "on_off = [{}, {}]", distributions[0], distributions[1])?;
    }
    let numbers: [(&str, Option<u64>); 9] = [
        ("packets", spec.stop.packets),
        ("bytes", spec.stop.bytes),
        ("max_burst", spec.max_burst.map(u64::from)),
        ("burst", spec.burst.map(u64::from)),
        ("source_port", socket.source_port.map(u64::from)),
        ("dest_port", socket.dest_port.map(u64::from)),
        ("ttl", socket.ttl.map(u64::from)),
        ("dscp", socket.tos.map(|tos| u64::from(tos >> 2)).filter(|&dscp| dscp > 0)),
        ("ecn", socket.tos.map(|tos| u64::from(tos & 3)).filter(|&ecn| ecn > 0)),
    ];
    for (key, number) in numbers {
        if let Some(number) = number {
            writeln!(out, "{key} = {number}")?;
        }
    }
    if socket.nagle {
        writeln!(out, "nagle = true")?;
    }
    if let Some(rate) = socket.pacing_rate {
        writeln!(out, "pacing_rate = \"{rate}bps\"")?;
    }
    for (key, value) in spec.later_settings() {
        match value {
            SettingValue::Text(text) => writeln!(out, "{key} = {}", toml_text(&text))?,
            plain => writeln!(out, "{key} = {plain}")?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use itg_core::distribution::Distribution;
    use itg_core::flow::{OnOff, Stop};
    use itg_core::seed::RunSeed;
    use itg_experiment::{Experiment, Plan, PlanInputs};

    use super::*;

    fn flow(spec: &FlowSpec) -> FlowReport {
        FlowReport {
            flow: spec.id,
            name: spec.id.to_string(),
            proto: Some(spec.proto.name()),
            src: "10.0.0.1:4000".to_owned(),
            dst: "10.0.0.2:8999".to_owned(),
            side: "receiver",
            run: "c0ffee".to_owned(),
            seed: Some(u64::MAX),
            meter: Some("owd"),
            profile: None,
            metrics: Box::default(),
            clock: None,
            host_buffer_errors: None,
            receive_buffer_bytes: None,
            foreign_packets: None,
            marks: None,
            tcp: None,
            departures: None,
            end: None,
            notices: Vec::new(),
        }
    }

    #[test]
    fn the_written_experiment_asks_for_the_same_flows() {
        let distribution =
            |text: &str, unit| Distribution::parse(text, unit).expect("a distribution");
        let mut second = FlowSpec::new(3)
            .idt(distribution("exp(1ms)", Unit::Time))
            .size(distribution("trunc(pareto(1.5,500),500,1400)", Unit::Size))
            .on_off(OnOff {
                on: distribution("exp(1s)", Unit::Time),
                off: distribution("250ms", Unit::Time),
            })
            .start_ns(1_500_000_000)
            .stop(Stop { duration_ns: Some(10_000_000_000), packets: Some(99), bytes: None })
            .meter(Meter::Rtt)
            .late(Late::Drop)
            .payload(Payload::Pattern(vec![0xde, 0xad]))
            .max_burst(16);
        second.socket.tos = Some(0b1011_1001);
        second.socket.dest_port = Some(9000);
        let stop = Stop { packets: Some(10), ..Stop::default() };
        let plain = |id| FlowSpec::new(id).stop(stop);
        let specs = [plain(1), plain(2), second];
        let flows: Vec<_> = specs.iter().map(flow).collect();
        let all: Vec<_> = flows.iter().zip(&specs).collect();
        let names = [("10.0.0.1", "host1".to_owned()), ("10.0.0.2", "host2".to_owned())].into();
        let mut text = String::new();
        write_experiment(&mut text, &all, &names).expect("a text");
        assert!(text.contains("count = 2"), "{text}");
        let read = Experiment::parse(&text, "again.toml").expect("an experiment file");
        let mut files = |_: &str| Err(String::new());
        let plan = Plan::resolve(&read, PlanInputs::new(RunSeed(1), &mut files)).expect("a plan");
        let got: Vec<_> = plan.flows.iter().map(|planned| planned.flow.spec().clone()).collect();
        assert_eq!(got, specs);
    }
}
