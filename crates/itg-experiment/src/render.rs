//! A plan for people and for programs: table, settings, JSON.

use itg_core::distribution::Unit;
use itg_core::flow::{Late, Meter, Payload};
use itg_core::text::{align, flow_numbers};
use itg_core::units::{BitRate, format_bit_rate, format_bytes, format_duration_ns};
use serde::ser::{Serialize, SerializeMap as _, Serializer};
use serde_json::{Value, json};

use crate::estimate::{Estimate, Method};
use crate::numbers::{count, size};
use crate::plan::{Plan, PlannedFlow};

impl Plan {
    /// The plan with its estimate as a table for people, notices and warnings below it.
    #[must_use]
    pub fn render(&self) -> String {
        self.render_rows(usize::MAX)
    }

    /// As [`render`](Self::render), with so many flows at most: the others are counted.
    #[must_use]
    pub fn render_rows(&self, most: usize) -> String {
        text(self, &self.estimate(), most)
    }

    /// The plan with its estimate as one JSON object over several lines; keys carry their units, what is unlimited is
    /// null.
    #[must_use]
    pub fn to_json(&self) -> String {
        let json = PlanJson { plan: self, estimate: self.estimate() };
        let text = serde_json::to_string_pretty(&json);
        text.unwrap_or_else(|error| unreachable!("numbers, texts and lists: {error}"))
    }

    /// Every setting in force: one line for the run and one for each flow, or for flows that differ
    /// in nothing but their random streams.
    #[must_use]
    pub fn describe(&self) -> String {
        settings(self)
    }
}

impl PlannedFlow {
    /// Every setting in force of this flow but number and name, in one line.
    #[must_use]
    pub fn describe(&self) -> String {
        flow_settings(self)
    }
}

fn bit_rate(bits_per_second: f64) -> String {
    if bits_per_second.is_finite() {
        format_bit_rate(bits_per_second)
    } else {
        "unlimited".to_owned()
    }
}

/// A count that is exact is written out, an expected one to three digits after a tilde.
fn packets(value: f64, method: Method) -> String {
    match method {
        Method::Walked => format!("{value:.0}"),
        Method::Means if value.is_finite() => format!("~{}", count(value)),
        Method::Means => count(value),
    }
}

fn seconds(ns: f64) -> String {
    if ns.is_finite() { format!("{:.3} s", ns / 1e9) } else { "never".to_owned() }
}

const HEAD: [&str; 10] =
    ["flow", "name", "proto", "path", "packets", "bytes", "packets/s", "bit rate", "log", "ends"];

/// Columns of words; the others are numbers.
const WORDS: std::ops::Range<usize> = 1..4;

fn text(plan: &Plan, estimate: &Estimate, most: usize) -> String {
    let mut rows = vec![HEAD.map(str::to_owned)];
    for (planned, flow) in plan.flows.iter().zip(&estimate.flows).take(most) {
        rows.push([
            flow.flow.to_string(),
            planned.name.clone(),
            planned.flow.spec().proto.to_string(),
            format!("{} -> {}", planned.from, planned.to),
            packets(flow.packets, flow.method),
            size(flow.bytes),
            count(flow.packet_rate),
            bit_rate(flow.bit_rate),
            size(flow.log_bytes),
            seconds(flow.end_ns),
        ]);
    }
    let total = &estimate.total;
    let exact = estimate.flows.iter().all(|flow| flow.method == Method::Walked);
    let method = if exact { Method::Walked } else { Method::Means };
    rows.push([
        "total".to_owned(),
        String::new(),
        String::new(),
        String::new(),
        packets(total.packets, method),
        size(total.bytes),
        count(total.packet_rate),
        bit_rate(total.bit_rate),
        size(total.log_bytes),
        seconds(total.end_ns),
    ]);
    let mut out = format!(
        "{}: {} flow{}, seed {}, plan {}\n\n",
        plan.name,
        plan.flows.len(),
        if plan.flows.len() == 1 { "" } else { "s" },
        plan.seed.0,
        plan.hash_text()
    );
    out.push_str(&align(&rows, |column| WORDS.contains(&column)));
    if plan.flows.len() > most {
        out.push_str(&format!("{} more flows: -v\n", plan.flows.len() - most));
    }
    out.push_str(
        "\nPackets and bytes are counted from the schedule; those with ~ are expected from the \
         means of the distributions.\nRates are the means that the distributions ask for, pauses \
         included. Log: both sides together, two or (round trips) three records a packet.\n",
    );
    push_list(&mut out, "Notices", &plan.notices);
    push_list(&mut out, "Warnings", &estimate.warnings);
    out
}

fn push_list(out: &mut String, title: &str, items: &[String]) {
    if items.is_empty() {
        return;
    }
    out.push_str(&format!("\n{title}:\n"));
    for item in items {
        out.push_str(&format!("  {item}\n"));
    }
}

/// Numbers that JSON has; what is unlimited is null.
fn number(value: f64) -> Value {
    if value.is_finite() { json!(value) } else { Value::Null }
}

/// A plan as it is written, a flow after the other: keys in their order.
struct PlanJson<'a> {
    plan: &'a Plan,
    estimate: Estimate,
}

impl Serialize for PlanJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { plan, estimate } = self;
        let total = &estimate.total;
        let mut out = serializer.serialize_map(None)?;
        out.serialize_entry("flows", &FlowsJson(self))?;
        out.serialize_entry("name", &plan.name)?;
        out.serialize_entry("notices", &plan.notices)?;
        out.serialize_entry("plan", &plan.hash_text())?;
        out.serialize_entry("schema", &1)?;
        out.serialize_entry("seed", &plan.seed.0)?;
        let total = json!({
            "packets": number(total.packets),
            "bytes": number(total.bytes),
            "packet_rate_pps": number(total.packet_rate),
            "bitrate_bps": number(total.bit_rate),
            "log_bytes": number(total.log_bytes),
            "end_ns": number(total.end_ns.round()),
        });
        out.serialize_entry("total", &total)?;
        out.serialize_entry("warnings", &estimate.warnings)?;
        out.end()
    }
}

/// The flows of a plan.
struct FlowsJson<'a>(&'a PlanJson<'a>);

impl Serialize for FlowsJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let PlanJson { plan, estimate } = self.0;
        serializer.collect_seq(plan.flows.iter().zip(&estimate.flows).map(|(planned, flow)| {
            json!({
                "flow": flow.flow,
                "name": planned.name,
                "from": planned.from,
                "to": planned.to,
                "settings": planned.flow.spec(),
                "packets": number(flow.packets),
                "bytes": number(flow.bytes),
                "packet_rate_pps": number(flow.packet_rate),
                "bitrate_bps": number(flow.bit_rate),
                "log_bytes": number(flow.log_bytes),
                "end_ns": number(flow.end_ns.round()),
                "method": flow.method.name(),
            })
        }))
    }
}

/// One line for the run and one for each group of flows that differ in nothing but their streams.
fn settings(plan: &Plan) -> String {
    let mut out = format!("{}: seed {}, plan {}\n", plan.name, plan.seed.0, plan.hash_text());
    let texts: Vec<_> = plan.flows.iter().map(flow_settings).collect();
    let mut first = 0;
    while first < texts.len() {
        let equal = texts[first..].iter().take_while(|text| **text == texts[first]).count();
        let flows = &plan.flows[first..first + equal];
        let ids: Vec<_> = flows.iter().map(|planned| planned.flow.spec().id).collect();
        let names = match flows {
            [one] => one.name.clone(),
            [one, .., last] => format!("{} to {}", one.name, last.name),
            [] => String::new(),
        };
        out.push_str(&format!("{}, {names}: {}\n", flow_numbers(&ids), texts[first]));
        first += equal;
    }
    out
}

fn flow_settings(planned: &PlannedFlow) -> String {
    let flow = &planned.flow;
    let spec = flow.spec();
    let mut out = format!(
        "{} {} -> {}, idt {}, size {}",
        spec.proto,
        planned.from,
        planned.to,
        flow.idt().distribution().display(Unit::Time),
        flow.size().distribution().display(Unit::Size),
    );
    let mut add = |text: String| {
        out.push_str(", ");
        out.push_str(&text);
    };
    if let Some((on, off)) = flow.on_off() {
        add(format!("on {}", on.distribution().display(Unit::Time)));
        add(format!("off {}", off.distribution().display(Unit::Time)));
    }
    if let Some(profile) = &spec.profile {
        add(format!("profile {profile}"));
    }
    add(format!("start {}", format_duration_ns(spec.start_ns)));
    if let Some(ns) = spec.stop.duration_ns {
        add(format!("duration {}", format_duration_ns(ns)));
    }
    if let Some(packets) = spec.stop.packets {
        add(format!("packets {packets}"));
    }
    if let Some(bytes) = spec.stop.bytes {
        add(format!("bytes {}", format_bytes(bytes)));
    }
    add(match spec.meter {
        Meter::Owd => "meter owd".to_owned(),
        Meter::Rtt => "meter rtt".to_owned(),
    });
    add(match &spec.payload {
        Payload::Random => "payload random".to_owned(),
        Payload::Pattern(bytes) => {
            let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("payload pattern:{hex}")
        }
        Payload::File(path) => format!("payload file:{path}"),
    });
    add(match spec.late {
        Late::Keep => "late keep".to_owned(),
        Late::Drop => "late drop".to_owned(),
    });
    if let Some(burst) = spec.max_burst {
        add(format!("max_burst {burst}"));
    }
    if let Some(burst) = spec.burst {
        add(format!("burst {burst}"));
    }
    let socket = &spec.socket;
    let options = [
        ("source", socket.source.clone()),
        ("source_port", socket.source_port.map(|port| port.to_string())),
        ("dest_port", socket.dest_port.map(|port| port.to_string())),
        ("interface", socket.interface.clone()),
        ("ttl", socket.ttl.map(|ttl| ttl.to_string())),
        ("dscp", socket.tos.map(|tos| (tos >> 2).to_string())),
        ("ecn", socket.tos.map(|tos| (tos & 3).to_string())),
        ("nagle", socket.nagle.then(|| "true".to_owned())),
        ("congestion", socket.congestion.clone()),
        ("pacing_rate", socket.pacing_rate.map(|rate| BitRate(rate).to_string())),
    ];
    let later = spec.later_settings().map(|(key, value)| (key, Some(value.to_string())));
    for (key, value) in options.into_iter().chain(later) {
        if let Some(value) = value {
            add(format!("{key} {value}"));
        }
    }
    out
}
