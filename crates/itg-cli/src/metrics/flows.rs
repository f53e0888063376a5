//! The families of flows, in the form that Prometheus reads.

use itg_node::metrics::{MetricsPage, seconds};
use itg_stats::fidelity::Verdict;
use itg_stats::metric::{METRICS, Metrics};

use super::classes::{BOUNDS_NS, Classes, LATENESS_BOUNDS_NS};

/// Flows that get lines of their own.
pub const MOST_FLOWS: usize = 1000;

/// Labels of a flow.
#[derive(Clone, Debug, Default)]
pub struct FlowLabels {
    /// Run id.
    pub run: String,
    /// Number.
    pub flow: u32,
    /// Name, where it is known.
    pub name: Option<String>,
    /// Host or node that sends.
    pub from: String,
    /// Host or node that receives.
    pub to: String,
    /// Transport protocol.
    pub proto: &'static str,
}

/// What is known of a flow.
#[derive(Clone, Debug, Default)]
pub struct FlowFacts {
    /// Its labels.
    pub labels: FlowLabels,
    /// Packets that the sender's kernel took, and their bytes.
    pub sent: Option<(u64, u64)>,
    /// Packets that its receiver read, and their bytes.
    pub received: Option<(u64, u64)>,
    /// Replies that its sender read, and their bytes.
    pub replies: Option<(u64, u64)>,
    /// Packets that the receiver had not read when it was asked last; while it runs.
    pub missing: Option<u64>,
    /// Its figures, as far as they are known: those of the table of metrics that have a family here.
    pub metrics: Metrics,
    /// Largest lateness of a packet, in nanoseconds.
    pub lateness_max_ns: Option<u64>,
    /// Delays, where they are absolute or round trips.
    pub delay: Option<Classes>,
    /// Bound of the error of these, in nanoseconds.
    pub uncertainty_ns: Option<u64>,
    /// Variation of the delay.
    pub jitter: Option<Classes>,
    /// Verdict on what was sent; at its end.
    pub verdict: Option<Verdict>,
}

impl FlowLabels {
    fn list(&self) -> Vec<(&'static str, String)> {
        let mut list = vec![("flow", self.flow.to_string())];
        list.extend(self.name.as_ref().map(|name| ("name", name.clone())));
        list.push(("from", self.from.clone()));
        list.push(("to", self.to.clone()));
        list.push(("proto", self.proto.to_owned()));
        list.push(("run", self.run.clone()));
        list
    }
}

/// A family of one sample a flow: name, kind, help, value.
type Family = (&'static str, &'static str, &'static str, fn(&FlowFacts) -> Option<String>);

const FAMILIES: &[Family] = &[
    ("itg_flow_sent_packets_total", "counter", "Packets handed to the kernel.", |f| {
        Some(f.sent?.0.to_string())
    }),
    (
        "itg_flow_sent_bytes_total",
        "counter",
        "Bytes handed to the kernel, headers below ITG's excluded.",
        |f| Some(f.sent?.1.to_string()),
    ),
    (
        "itg_flow_received_packets_total",
        "counter",
        "Packets that the receiver read, duplicates included.",
        |f| Some(f.received?.0.to_string()),
    ),
    (
        "itg_flow_received_bytes_total",
        "counter",
        "Bytes that the receiver read, headers below ITG's excluded.",
        |f| Some(f.received?.1.to_string()),
    ),
    (
        "itg_flow_reply_packets_total",
        "counter",
        "Packets of a round-trip flow that came back to the sender.",
        |f| Some(f.replies?.0.to_string()),
    ),
    (
        "itg_flow_reply_bytes_total",
        "counter",
        "Bytes of a round-trip flow that came back to the sender.",
        |f| Some(f.replies?.1.to_string()),
    ),
    (
        "itg_flow_missing_packets",
        "gauge",
        "Packets that the receiver had not read when it was asked last, those on the way among them; while the flow runs.",
        |f| Some(f.missing?.to_string()),
    ),
    ("itg_flow_lateness_max_seconds", "gauge", "How late the latest packet left.", |f| {
        Some(seconds(f.lateness_max_ns?))
    }),
    (
        "itg_flow_delay_uncertainty_seconds",
        "gauge",
        "Bound of the error of the delays, two clocks compared.",
        |f| Some(seconds(f.uncertainty_ns?)),
    ),
];

/// Writes the families of flows: lines of the first [`MOST_FLOWS`], the others are counted with `left_out`.
pub fn write_flows(page: &mut MetricsPage, flows: &[FlowFacts], left_out: usize) {
    let shown = &flows[..flows.len().min(MOST_FLOWS)];
    let labels: Vec<_> = shown.iter().map(|flow| flow.labels.list()).collect();
    let all = || {
        shown.iter().zip(&labels).map(|(flow, labels)| {
            let labels: Vec<(&str, &str)> = labels.iter().map(|(k, v)| (*k, v.as_str())).collect();
            (flow, labels)
        })
    };
    for (name, kind, help, get) in FAMILIES {
        if !shown.iter().any(|flow| get(flow).is_some()) {
            continue;
        }
        page.head(name, kind, help);
        for (flow, labels) in all() {
            if let Some(value) = get(flow) {
                page.line(name, &labels, value);
            }
        }
    }
    for metric in METRICS {
        let Some((name, help)) = metric.counter else { continue };
        if !shown.iter().any(|flow| metric.of(&flow.metrics).is_some()) {
            continue;
        }
        page.head(name, "counter", help);
        for (flow, labels) in all() {
            if let Some(value) = metric.of(&flow.metrics) {
                page.line(name, &labels, value);
            }
        }
    }
    type Get = fn(&FlowFacts) -> Option<Classes>;
    let times: [(&str, &str, Get); 2] = [
        (
            "itg_flow_delay_seconds",
            "Delays of packets: one way where it is absolute, or round trips.",
            |f| f.delay,
        ),
        (
            "itg_flow_jitter_seconds",
            "Variation of the delay: differences of successive packets' delays.",
            |f| f.jitter,
        ),
    ];
    for (name, help, get) in times {
        if !shown.iter().any(|flow| get(flow).is_some()) {
            continue;
        }
        page.head(name, "histogram", help);
        for (flow, labels) in all() {
            if let Some(classes) = get(flow) {
                page.histogram(name, &labels, &BOUNDS_NS, (&classes.up_to, classes.sum_s));
            }
        }
    }
    if shown.iter().any(|flow| flow.verdict.is_some()) {
        let name = "itg_flow_verdict";
        page.head(name, "gauge", "Verdict on the traffic that left, by the sender's log; 1.");
        for (flow, mut labels) in all() {
            if let Some(verdict) = flow.verdict {
                labels.push(("verdict", verdict.name()));
                page.line(name, &labels, 1);
            }
        }
    }
    let left_out = left_out + flows.len() - shown.len();
    page.one("itg_flows_left_out", "gauge", "Flows that have no lines here.", left_out);
}

/// Writes the histogram of lateness: numbers of packets by class, and their sum.
pub fn write_lateness(
    page: &mut MetricsPage,
    late: &[u64; LATENESS_BOUNDS_NS.len() + 1],
    sum_ns: u64,
) {
    let name = "itg_lateness_seconds";
    page.head(name, "histogram", "How late packets left.");
    let mut sum = 0_u64;
    let up_to = late.map(|count| {
        sum = sum.saturating_add(count);
        sum
    });
    page.histogram(name, &[], &LATENESS_BOUNDS_NS, (&up_to, seconds(sum_ns)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_is_absent_and_what_is_too_much_is_counted() {
        let flow = |flow| FlowFacts {
            labels: FlowLabels { flow, proto: "UDP", ..FlowLabels::default() },
            sent: Some((0, 0)),
            ..FlowFacts::default()
        };
        let flows: Vec<_> = (1..=1500).map(flow).collect();
        let mut page = MetricsPage::default();
        write_flows(&mut page, &flows, 7);
        let text = page.into_text();
        assert_eq!(text.matches("\nitg_flow_sent_packets_total{").count(), MOST_FLOWS);
        assert!(text.ends_with("itg_flows_left_out 507\n"), "{text:.200}");
        for name in ["received", "lost", "delay", "jitter", "verdict", "name="] {
            assert!(!text.contains(name), "{name}");
        }
    }
}
