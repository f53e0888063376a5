//! The report: what `itg-decode --format json` prints, key by key.
//!
//! Names carry their unit; a figure that is not known is `null`, and nothing is ever NaN. The keys
//! are described in `docs/decode.md`.

use std::collections::{BTreeMap, BTreeSet};

use itg_clocks::{ClockModel, Step};
use itg_core::units::format_duration_ns;
use serde::Serialize;
use serde_json::{Map, Value};

pub use crate::delay::{BasisKind, DelayBasis, Lateness, SAME_CLOCK_UNCERTAINTY_NS};
use crate::departures::DeparturesReport;
use crate::marks::MarksReport;
pub use crate::metric::Metrics;
use crate::plot::Plots;
use crate::promise::PromiseReport;
use crate::series::IntervalRow;
use crate::tcp::TcpReport;

/// Value of [`Report::schema`].
pub const REPORT_SCHEMA: u32 = 1;

/// Everything decoded from one or more logs.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Report {
    /// Version of this layout: [`REPORT_SCHEMA`].
    pub schema: u32,
    /// Source of the figures: the logs, and entries that the caller adds.
    pub manifest: Map<String, Value>,
    /// One entry for each flow and side, in the order of flow numbers.
    pub flows: Vec<FlowReport>,
    /// Flows that have something in common, when that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub groups: Option<Vec<GroupReport>>,
    /// Promises of hosts for their sending, from the logs that have them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub promises: Vec<PromiseReport>,
    /// All flows together.
    pub total: TotalReport,
    /// The course over time, when it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub intervals: Option<Intervals>,
    /// Data of the plots, when they were requested; not in the JSON.
    #[serde(skip)]
    pub plots: Option<Plots>,
    /// Damage of the logs.
    pub damage: Vec<LogDamage>,
    /// Accounts that contradict each other, one sentence for each flow.
    pub errors: Vec<String>,
    /// Notices for a reader of the figures, one sentence each.
    pub notices: Vec<String>,
}

/// One flow at one side.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FlowReport {
    /// Number of the flow in its experiment.
    pub flow: u32,
    /// Name that its experiment gives it, from the sender's log; the number where no log here tells.
    pub name: String,
    /// Transport protocol; `None` when the description of the flow is lost.
    pub proto: Option<&'static str>,
    /// Source address and port.
    pub src: String,
    /// Destination address and port.
    pub dst: String,
    /// Side of the log: `sender` or `receiver`.
    pub side: &'static str,
    /// Run id in hexadecimal.
    pub run: String,
    /// Seed of the run.
    pub seed: Option<u64>,
    /// Delay that is measured: `owd` (one-way delay) or `rtt` (round-trip time).
    pub meter: Option<&'static str>,
    /// Application profile.
    pub profile: Option<String>,
    /// The figures.
    #[serde(flatten)]
    pub metrics: Box<Metrics>,
    /// Comparison of the clocks of the two hosts, where they were probed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock: Option<ClockReport>,
    /// Datagrams that found a full receive buffer at any socket of the receiving host while the flow ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_buffer_errors: Option<u64>,
    /// Receive buffer of the flow's socket in bytes of kernel memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receive_buffer_bytes: Option<u64>,
    /// Packets that came to the flow's port and were left out: of no flow, or from elsewhere than its sender.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub foreign_packets: Option<u64>,
    /// Marks in the IP headers of the packets that arrived (of the replies, at the sender of a round-trip flow), beside
    /// those that the flow asks for; not known on TCP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub marks: Option<MarksReport>,
    /// State of the flow's TCP connection in the kernel, from the sender's log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tcp: Option<TcpReport>,
    /// Departures of sampled packets from the sender's network stack, from the sender's log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub departures: Option<Box<DeparturesReport>>,
    /// Reason of the flow's end, from its log.
    pub end: Option<String>,
    /// Notices for a reader of the figures, one sentence each.
    pub notices: Vec<String>,
}

impl FlowReport {
    /// Number and run, which both sides of a flow share.
    #[must_use]
    pub fn key(&self) -> (u32, &str) {
        (self.flow, &self.run)
    }

    /// The flow in words: `flow 3`, or `flow 3 (call)` where it has a name.
    #[must_use]
    pub fn title(&self) -> String {
        let number = self.flow.to_string();
        if self.name == number {
            format!("flow {number}")
        } else {
            format!("flow {number} ({})", self.name)
        }
    }
}

/// Comparison of the receiver's clock with the sender's.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ClockReport {
    /// True if both hosts are one and the clocks the same: then nothing is corrected, and the
    /// offset below shows the error of the estimate.
    pub shared: bool,
    /// Offset of the receiver's clock ahead of the sender's in the middle of the flow, in
    /// nanoseconds.
    pub offset_ns: i64,
    /// Bound of the error of the offset at any time of the flow, in nanoseconds.
    pub bound_ns: u64,
    /// Rate at which the receiver's clock gains on the sender's, in parts per million.
    pub skew_ppm: f64,
    /// Bound of the error of `skew_ppm`, in parts per million.
    pub skew_bound_ppm: f64,
    /// Times at which a clock was set.
    #[cfg_attr(test, schemars(schema_with = "schema::steps"))]
    pub steps: Vec<Step>,
    /// Two-way probes used.
    pub probes: u64,
    /// Probes whose stamps make no sense.
    pub refused_probes: u64,
    /// Smallest round trip of a probe, in nanoseconds.
    pub round_trip_ns: u64,
}

impl ClockReport {
    /// The report of a model for a flow between two instants of the sender's clock; `shared` if both hosts are one.
    #[must_use]
    pub fn new(clock: &ClockModel, shared: bool, from_unix_ns: u64, until_unix_ns: u64) -> Self {
        Self {
            shared,
            offset_ns: clock.offset_at(from_unix_ns.midpoint(until_unix_ns)),
            bound_ns: clock.bound_between(from_unix_ns, until_unix_ns),
            skew_ppm: clock.skew_ppm(),
            skew_bound_ppm: clock.skew_bound_ppm(),
            steps: clock.steps().to_vec(),
            probes: clock.probes() as u64,
            refused_probes: clock.refused() as u64,
            round_trip_ns: clock.round_trip_ns(),
        }
    }
}

/// All flows together. A flow whose sender and receiver both have a log counts once: at its
/// receiver, or at its sender when it measures round trips.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TotalReport {
    /// Number of flows.
    pub flows: u64,
    /// The figures: sums; delays and lateness over all packets; the worst fidelity.
    #[serde(flatten)]
    pub metrics: Metrics,
    /// Entries of one side that were not found at the other; `None` unless both sides were given.
    pub unmatched: Option<Unmatched>,
}

/// Attributes that flows can be grouped by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupBy {
    /// Transport protocol.
    Proto,
    /// Source address, without the port.
    Src,
    /// Destination address, without the port.
    Dst,
    /// Application profile.
    Profile,
}

impl GroupBy {
    /// The key in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Proto => "proto",
            Self::Src => "src",
            Self::Dst => "dst",
            Self::Profile => "profile",
        }
    }

    /// Value of the attribute for a flow; empty where it is not known.
    #[must_use]
    pub fn value(self, flow: &FlowReport) -> String {
        let host = |address: &str| {
            address.rsplit_once(':').map_or_else(|| address.to_owned(), |(host, _)| host.to_owned())
        };
        match self {
            Self::Proto => flow.proto.unwrap_or_default().to_owned(),
            Self::Src => host(&flow.src),
            Self::Dst => host(&flow.dst),
            Self::Profile => flow.profile.clone().unwrap_or_default(),
        }
    }
}

/// Flows that have something in common.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct GroupReport {
    /// Attributes that they have in common; empty where one is not known.
    pub by: BTreeMap<String, String>,
    /// Number of flows, each counted once as in the total.
    pub flows: u64,
    /// The figures, as in the total.
    #[serde(flatten)]
    pub metrics: Metrics,
    /// Notices for a reader of the figures, one sentence each.
    pub notices: Vec<String>,
}

/// Flows and packets that are in the logs of one side only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Unmatched {
    /// Flows of which only one side has a log.
    pub flows: u64,
    /// Packets that arrived but are not in the sender's log.
    pub packets: u64,
}

/// The course of all flows over time.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Intervals {
    /// Length of a window in nanoseconds.
    pub interval_ns: u64,
    /// Start of the first window: the first packet of all flows.
    pub start_unix_ns: u64,
    /// One series for each flow and side, in the order of the report's flows.
    pub flows: Vec<FlowIntervals>,
    /// Reason why the losses of the sum are not known, where they are not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost_why: Option<&'static str>,
    /// The sum over the flows that make up the total.
    pub total: Vec<IntervalRow>,
}

impl Intervals {
    /// Heading of windows, with the reason why their losses are not known, if so.
    pub(crate) fn heading(&self, of: &str, lost_why: Option<&str>) -> String {
        let why = lost_why.map_or_else(String::new, |why| format!("; lost: {why}"));
        format!("{of}, windows of {}{why}", format_duration_ns(self.interval_ns))
    }
}

/// The course of one flow.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FlowIntervals {
    /// Number of the flow.
    pub flow: u32,
    /// Run id.
    pub run: String,
    /// Side of the log.
    pub side: &'static str,
    /// Reason why the losses of its windows are not known, where they are not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost_why: Option<&'static str>,
    /// The windows.
    pub windows: Vec<IntervalRow>,
}

/// Something in a log that was not as written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LogDamage {
    /// Name of the log.
    pub log: String,
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// Bytes left out; 0 when blocks are absent or contradict each other.
    pub len: u64,
    /// Description of the damage.
    pub reason: String,
}

impl std::fmt::Display for LogDamage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { log, offset, len, reason } = self;
        write!(f, "{log}: ")?;
        match len {
            0 => write!(f, "at byte {offset}: ")?,
            _ => write!(f, "{len} bytes at byte {offset} left out: ")?,
        }
        f.write_str(reason)
    }
}

/// Damage in words, a line for each log and cause: many places are told with their number and the first of them.
#[must_use]
pub fn damage_lines(damage: &[LogDamage]) -> Vec<String> {
    // What differs from place to place is numbers.
    let kind = |reason: &str| reason.replace(|c: char| c.is_ascii_digit(), "");
    let mut groups: Vec<((&str, String), Vec<&LogDamage>)> = Vec::new();
    let mut places: BTreeMap<(&str, String), usize> = BTreeMap::new();
    for one in damage {
        let key = (one.log.as_str(), kind(&one.reason));
        let place = *places.entry(key.clone()).or_insert_with(|| {
            groups.push((key, Vec::new()));
            groups.len() - 1
        });
        groups[place].1.push(one);
    }
    let words = |all: &[&LogDamage]| match all {
        [] => String::new(),
        [one] => one.to_string(),
        [first, ..] => {
            let bytes = all.iter().map(|one| one.len).fold(0, u64::saturating_add);
            let LogDamage { log, offset, reason, .. } = first;
            let left_out =
                if bytes == 0 { String::new() } else { format!("{bytes} bytes left out ") };
            let places = all.len();
            format!("{log}: {left_out}at {places} places, the first at byte {offset}: {reason}")
        }
    };
    groups.iter().map(|(_, all)| words(all)).collect()
}

impl Report {
    /// Keys of the flows that have an entry of this side.
    #[must_use]
    pub fn of_side(&self, side: &str) -> BTreeSet<(u32, &str)> {
        let flows = self.flows.iter().filter(|flow| flow.side == side);
        flows.map(FlowReport::key).collect()
    }

    /// The report as one JSON object over several lines; `docs/report.schema.json` is its schema.
    #[must_use]
    pub fn to_json(&self) -> String {
        // Every key is a text and every figure finite, so there is nothing that JSON cannot say.
        serde_json::to_string_pretty(self).unwrap_or_else(|error| unreachable!("report: {error}"))
    }
}

#[cfg(test)]
pub(crate) mod schema {
    use schemars::generate::SchemaSettings;
    use schemars::{Schema, SchemaGenerator, json_schema};

    use super::*;

    /// Two types are those of other crates, whose tests compare them with the published schema.
    const FOREIGN: [&str; 2] = ["Fidelity", "Step"];

    // The schemas below are of these types.
    const _: fn(&Metrics) -> &crate::fidelity::Fidelity = |metrics| &metrics.fidelity;
    const _: fn(&ClockReport) -> &Vec<Step> = |clock| &clock.steps;

    pub(crate) fn fidelity(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "$ref": "#/$defs/Fidelity" })
    }

    pub(crate) fn steps(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "array", "items": { "$ref": "#/$defs/Step" } })
    }

    #[test]
    fn the_published_schema_is_up_to_date() {
        let settings = SchemaSettings::draft2020_12().for_serialize();
        let mut made = settings.into_generator().into_root_schema_for::<Report>().to_value();
        made["title"] = "The report of itg-decode, schema 1".into();
        let foreign = itg_testkit::published::definitions("report", &FOREIGN);
        let own = made["$defs"].as_object_mut().expect("definitions");
        assert!(!foreign.keys().any(|name| own.contains_key(name)), "two types of one name");
        own.extend(foreign);
        itg_testkit::published::compare("report", &made);
    }
}
