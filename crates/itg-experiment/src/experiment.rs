//! The experiment file: what its keys are called, what they mean, and what they default to.
//!
//! The comments on the fields are the published documentation: they become the descriptions of the
//! JSON Schema (`docs/experiment.schema.json`), which editors show.

use std::collections::BTreeMap;

#[cfg(feature = "clap")]
use itg_core::flow::Proto;
use itg_core::settings::{Handling, Shape};
use serde::Deserialize;

use crate::problem::{ExperimentError, Positions};
use crate::read;
use crate::values::{
    ByteCount, Count, Dscp, Ecn, FlowRate, LateRule, MeterKind, PacingLevel, PayloadKind,
    ProtoName, Seed, SendRate, SizeDistribution, TimeDistribution, TimeSpan,
};

/// Version of the experiment file that this crate reads.
pub const SCHEMA: u32 = 1;

/// An experiment of the Internet traffic generator ITG.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// Version of this format: 1.
    #[cfg_attr(test, schemars(range(min = 1, max = 1)))]
    pub schema: u32,
    /// Name of the experiment, for reports.
    pub name: String,
    /// Seed of all random processes. Without it one is drawn, printed and stored.
    pub seed: Option<Seed>,
    /// End of the run, counted from its start: no packet is due later.
    pub duration: Option<TimeSpan>,
    /// The hosts by name. Without this table every name stands for this host.
    #[serde(default)]
    pub nodes: BTreeMap<String, NodeEntry>,
    /// The flows, numbered from 1 in this order. A new flow at the end changes no other.
    #[serde(default, rename = "flow")]
    pub flows: Vec<FlowEntry>,
    /// Destination of logs.
    #[serde(default)]
    pub log: LogEntry,
    /// Pacing: the way in which the sending threads wait until a packet is due.
    #[serde(default)]
    pub pacing: PacingEntry,
    /// Conditions under which the run counts as failed.
    #[serde(default)]
    pub gates: GatesEntry,
    /// Variables of a sweep with their values: the experiment is run once for each combination. A variable is
    /// put where the file says `"${NAME}"`; one that it says nowhere is the path of a key, as `flow.size`,
    /// `flow.2.rate` or `network.rate`. Each `[[matrix.case]]` adds one more combination.
    #[cfg_attr(test, schemars(with = "Option<MatrixShape>"))]
    pub matrix: Option<toml::Table>,
    /// Number, time limits and order of the runs of a sweep.
    pub sweep: Option<SweepEntry>,
    /// The simulated network; used only with `--sim`.
    #[cfg_attr(test, schemars(with = "Option<BTreeMap<String, serde_json::Value>>"))]
    pub network: Option<toml::Table>,
    /// Name of the file it was read from, for messages; empty when there is none.
    #[serde(skip)]
    pub origin: String,
    /// Positions of its keys in the file.
    #[serde(skip)]
    pub places: Positions,
}

/// A host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, expecting = "a table such as { address = \"10.0.0.4\" }")]
pub struct NodeEntry {
    /// Its address or name, as its peers reach it.
    pub address: String,
}

/// The server of `[log]` that stands for a rank of an MPI job.
pub const LOG_RANK: &str = "mpi";

/// Destination of logs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, expecting = "a table: [log]")]
pub struct LogEntry {
    /// Log server for both sides' logs of `itg-send run`: `tcp://HOST:PORT`, `udp://HOST:PORT` or
    /// `tls://HOST:PORT`, where HOST may be a node. Or `mpi`: a rank of its own keeps the senders' log when the
    /// experiment runs under MPI.
    pub server: Option<String>,
}

impl LogEntry {
    /// The log server that `itg-send run` uses, with the address of a node in the place of its name.
    #[must_use]
    pub fn url(&self, nodes: &BTreeMap<String, NodeEntry>) -> Option<String> {
        let server = self.server.as_deref().filter(|server| *server != LOG_RANK)?;
        let Some((scheme, rest)) = server.split_once("://") else { return Some(server.to_owned()) };
        let (host, port) =
            rest.split_once(':').map_or((rest, None), |(host, port)| (host, Some(port)));
        let Some(node) = nodes.get(host) else { return Some(server.to_owned()) };
        // The port of a node's address is that of its agent.
        let address = match (node.address.split_once(']'), node.address.split_once(':')) {
            (Some((host, _)), _) => format!("{host}]"),
            (None, Some((_, rest))) if rest.contains(':') => format!("[{}]", node.address),
            (None, Some((host, _))) => host.to_owned(),
            (None, None) => node.address.clone(),
        };
        let port = port.map_or_else(String::new, |port| format!(":{port}"));
        Some(format!("{scheme}://{address}{port}"))
    }
}

/// Pacing: the way in which the sending threads wait until a packet is due. Flags of the command
/// line go before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, expecting = "a table: [pacing]")]
pub struct PacingEntry {
    /// The level. Default: hybrid, or the cheapest that keeps `max_error_p99`.
    pub level: Option<PacingLevel>,
    /// Declared precision: 99 % of wake-ups are at most this late. Measured before the run, which is
    /// refused where the host does not keep it.
    pub max_error_p99: Option<TimeSpan>,
    /// Real-time priority (SCHED_FIFO) and locked memory, where allowed. Default: false.
    pub realtime: Option<bool>,
    /// Processor that the sending thread stays on, from 0.
    pub cpu: Option<u16>,
}

/// Conditions under which a run counts as failed, judged by the report of its logs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, expecting = "a table: [gates]")]
pub struct GatesEntry {
    /// Conditions, such as `delay.p99 > 20ms`, `total.loss > 0.1%`, `fidelity != pass`: the run fails
    /// with exit code 99 when one holds (98: only such on the fidelity).
    #[serde(default)]
    pub fail_if: Vec<String>,
    /// True if a condition whose figure is not known may pass. Default: false.
    #[serde(default)]
    pub allow_unknown: bool,
}

/// The shape of `[matrix]`, for its schema.
#[cfg(test)]
#[derive(schemars::JsonSchema)]
#[expect(dead_code, reason = "only its shape is of use")]
struct MatrixShape {
    /// Combinations by themselves, each with one value for each of its variables.
    case: Option<Vec<BTreeMap<String, serde_json::Value>>>,
    /// Variables, each with an array of values.
    #[serde(flatten)]
    variables: BTreeMap<String, serde_json::Value>,
}

/// Number and order of the runs of the combinations of `[matrix]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, expecting = "a table: [sweep]")]
pub struct SweepEntry {
    /// Runs of each combination, each with its own seed. Default: 1; with `repeat_until` the least number, 3.
    #[cfg_attr(test, schemars(range(min = 1, max = 10_000)))]
    pub repetitions: Option<u32>,
    /// A combination is run again until this holds, as `ci95(delay.p99) < 5%`: half the 95 % interval of the
    /// mean is less than that share of the mean. Several, all of which shall hold, are joined by `and`.
    pub repeat_until: Option<String>,
    /// With `repeat_until`: at most so many runs of each combination. Default: 30.
    #[cfg_attr(test, schemars(range(min = 3, max = 10_000)))]
    pub max_repetitions: Option<u32>,
    /// No run begins after all runs together have taken this long.
    pub max_time: Option<TimeSpan>,
    /// True if each round of combinations is in the order of the file. Default: false, a random
    /// order that follows from the seed.
    #[serde(default)]
    pub in_order: bool,
    /// Metrics of the comparison, of the total (`delay.p99`) or of one flow (`flow.2.loss`).
    #[serde(default)]
    pub compare: Vec<String>,
}

/// A flow, or several equal ones.
///
/// Keys that are left out come from the profile; without a profile a flow sends UDP, one packet of
/// 512 bytes each millisecond.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[serde(deny_unknown_fields, expecting = "a table: [[flow]]")]
pub struct FlowEntry {
    /// Name of the flow, for reports. Default: the profile, or the protocol.
    #[cfg_attr(feature = "clap", arg(skip))]
    pub name: Option<String>,
    /// The node that sends.
    #[cfg_attr(feature = "clap", arg(skip))]
    pub from: Option<String>,
    /// The node that receives.
    #[cfg_attr(feature = "clap", arg(skip))]
    pub to: Option<String>,
    /// Number of equal flows that this entry stands for; each has its own random streams.
    #[cfg_attr(test, schemars(range(min = 1, max = 100_000)))]
    #[cfg_attr(
        feature = "clap",
        arg(
            short = 'P',
            id = "flows",
            long,
            value_name = "N",
            help = "Number of equal flows, each with its own random streams [default: 1]"
        )
    )]
    pub count: Option<u32>,
    /// Transport protocol. Default: the profile's, or udp.
    #[cfg_attr(
        feature = "clap",
        arg(
            long,
            help = format!("Transport protocol: {} [default: the profile's, or udp]", Proto::names())
        )
    )]
    pub proto: Option<ProtoName>,
    /// Application profile: the name of a built-in one (`voip-g711`), with parameters
    /// (`voip-g711:header=crtp,vad=yes`), or a file (`my/profile.toml`).
    #[cfg_attr(
        feature = "clap",
        arg(
            long,
            value_name = "NAME[:k=v,…]",
            help = "Application profile, as voip-g711, quake3 or voip-g729.2:header=crtp,vad=yes, or a file"
        )
    )]
    pub profile: Option<String>,
    /// Inter-departure time: the distribution of the times between packets. Excludes `rate`.
    #[cfg_attr(
        feature = "clap",
        arg(
            long,
            value_name = "DIST",
            conflicts_with = "rate",
            help = "Distribution of inter-departure times [default: the profile's, or constant(1ms)]"
        )
    )]
    pub idt: Option<TimeDistribution>,
    /// Constant inter-departure times such that this rate holds on average: for bits, the mean
    /// packet size divided by the rate. Counts what ITG hands to the socket, not the headers below.
    /// Holds during ON periods. `max`: as fast as possible. Excludes `idt`.
    #[cfg_attr(
        feature = "clap",
        arg(
            short = 'b',
            long,
            help = "Constant inter-departure times such that this rate holds on average, as 10Mbps or 50kpps; max: as fast as possible"
        )
    )]
    pub rate: Option<SendRate>,
    /// The distribution of packet sizes in bytes, the header of ITG included, headers of the
    /// protocols below excluded.
    #[cfg_attr(
        feature = "clap",
        arg(
            short = 'l',
            long,
            value_name = "DIST",
            help = "Distribution of packet sizes in bytes, ITG's header included [default: the profile's, or constant(512)]"
        )
    )]
    pub size: Option<SizeDistribution>,
    /// Bursts: the distributions of the ON and of the OFF periods.
    #[cfg_attr(feature = "clap", arg(long, help_heading = "Traffic", value_name = "ON,OFF", value_parser = on_off, help = "Bursts: the distributions of the ON and the OFF periods, as exp(1s),constant(500ms)"))]
    pub on_off: Option<[TimeDistribution; 2]>,
    /// Start of the flow, counted from the start of the run. Default: 0.
    #[cfg_attr(
        feature = "clap",
        arg(
            id = "start_after",
            long = "start-after",
            help_heading = "Traffic",
            value_name = "T",
            help = "Start after this time"
        )
    )]
    pub start: Option<TimeSpan>,
    /// Time over which the starts of these flows are spread evenly, so that their packets do not leave at one instant.
    /// Default: 0, all start together. Needs `count`.
    #[cfg_attr(
        feature = "clap",
        arg(
            long,
            help_heading = "Traffic",
            value_name = "T",
            requires = "flows",
            help = "Spread the starts of these flows evenly over this time, so that their packets do not leave at one instant"
        )
    )]
    pub stagger: Option<TimeSpan>,
    /// Length of the flow, from its start. It ends with the run at the latest.
    #[cfg_attr(
        feature = "clap",
        arg(
            long,
            value_name = "T",
            help = "End after this time [default: 10s when no other limit is given]"
        )
    )]
    pub duration: Option<TimeSpan>,
    /// Number of packets after which the flow ends.
    #[cfg_attr(
        feature = "clap",
        arg(
            long,
            help_heading = "Traffic",
            value_name = "N",
            help = "End after this many packets"
        )
    )]
    pub packets: Option<Count>,
    /// Number of bytes after which the flow ends; the packet that would pass it is not sent.
    #[cfg_attr(
        feature = "clap",
        arg(
            long,
            help_heading = "Traffic",
            value_name = "N",
            help = "End before this many bytes are passed"
        )
    )]
    pub bytes: Option<ByteCount>,
    /// Delay that is measured. Default: owd.
    #[cfg_attr(
        feature = "clap",
        arg(long, help = "Delay to measure: owd (one-way) or rtt (round-trip) [default: owd]")
    )]
    pub meter: Option<MeterKind>,
    /// IPv4 time to live or IPv6 hop limit.
    #[cfg_attr(test, schemars(range(min = 1)))]
    #[cfg_attr(
        feature = "clap",
        arg(
            long,
            help_heading = "Network",
            value_name = "N",
            help = "IPv4 time to live or IPv6 hop limit, 1 to 255"
        )
    )]
    pub ttl: Option<u8>,
    /// Differentiated-services code point.
    #[cfg_attr(
        feature = "clap",
        arg(
            long,
            help_heading = "Network",
            value_name = "X",
            help = "Differentiated-services code point: EF, AF41, CS1, … or 0 to 63"
        )
    )]
    pub dscp: Option<Dscp>,
    /// ECN field.
    #[cfg_attr(
        feature = "clap",
        arg(
            long,
            help_heading = "Network",
            value_name = "X",
            help = "ECN field: not-ect, ect0, ect1, ce or 0 to 3"
        )
    )]
    pub ecn: Option<Ecn>,
    /// Source address, with a zone for link-local IPv6 (`fe80::1%eth0`).
    #[cfg_attr(
        feature = "clap",
        arg(
            long,
            help_heading = "Network",
            value_name = "ADDR",
            help = "Source address, with a zone for link-local IPv6 (fe80::1%eth0)"
        )
    )]
    pub source: Option<String>,
    /// Source port.
    #[cfg_attr(
        feature = "clap",
        arg(long, help_heading = "Network", value_name = "PORT", help = "Source port")
    )]
    pub source_port: Option<u16>,
    /// Destination port of the data at the receiver.
    #[cfg_attr(
        feature = "clap",
        arg(
            long,
            help_heading = "Network",
            value_name = "PORT",
            help = "Data port at the receiver [default: the receiver's, usually 8999; all ports: docs/ports.md]"
        )
    )]
    pub dest_port: Option<u16>,
    /// Interface to send from.
    #[cfg_attr(
        feature = "clap",
        arg(long, help_heading = "Network", value_name = "NAME", help = "Interface to send from")
    )]
    pub interface: Option<String>,
    /// True if TCP gathers small writes (Nagle's algorithm). Default: false.
    #[cfg_attr(
        feature = "clap",
        arg(
            long,
            help_heading = "Network",
            num_args = 0,
            default_missing_value = "true",
            help = "Let TCP gather small writes (Nagle's algorithm)"
        )
    )]
    pub nagle: Option<bool>,
    /// Content of packets behind their header. Default: random, drawn from the seed.
    #[cfg_attr(
        feature = "clap",
        arg(
            long,
            help_heading = "Traffic",
            help = "Content of packets: random, pattern:HEX or file:PATH [default: random, from the seed]"
        )
    )]
    pub payload: Option<PayloadKind>,
    /// Treatment of packets that could not leave at their time. Default: keep.
    #[cfg_attr(
        feature = "clap",
        arg(
            long,
            help_heading = "Timing",
            help = "Packets that could not leave in time: keep (send late, the mean rate holds) or drop (leave out what is more than 1 ms late, and count) [default: keep]"
        )
    )]
    pub late: Option<LateRule>,
    /// At most this many packets leave back to back to catch up.
    #[cfg_attr(test, schemars(range(min = 1)))]
    #[cfg_attr(
        feature = "clap",
        arg(
            long,
            help_heading = "Timing",
            value_name = "N",
            help = "At most this many packets back to back to catch up"
        )
    )]
    pub max_burst: Option<u32>,
    /// Burst mode (UDP): so many packets at a time leave when the first of them is due.
    #[cfg_attr(test, schemars(range(min = 2, max = 64)))]
    #[cfg_attr(feature = "clap", arg(long, help_heading = "Traffic", value_name = "N", conflicts_with_all = ["on_off", "max_burst"], help = "Burst mode (UDP): N packets at a time, 2 to 64, leave when the first of them is due, with one pass through the network stack; far more packets a second, and marked as bursts everywhere"))]
    pub burst: Option<u32>,
    /// Congestion control of TCP, by the kernel's name. Default: the system's.
    #[cfg_attr(
        feature = "clap",
        arg(
            long,
            help_heading = "Network",
            value_name = "NAME",
            help = "Congestion control of TCP, by the kernel's name: cubic, reno, bbr, … [default: the system's]"
        )
    )]
    pub congestion: Option<String>,
    /// The kernel sends TCP no faster than this rate of bits, as `10Mbps`.
    #[cfg_attr(
        feature = "clap",
        arg(
            long,
            help_heading = "Network",
            value_name = "RATE",
            help = "Let the kernel send TCP no faster than this, as 10Mbps"
        )
    )]
    pub pacing_rate: Option<FlowRate>,
    /// The receiver waits this long for packets behind the flow's end, unless all have come: up to 15s. No part of the
    /// plan. Default: 1s without a packet for UDP, 5s for TCP.
    #[cfg_attr(
        feature = "clap",
        arg(
            long,
            help_heading = "Traffic",
            value_name = "T",
            help = "Have the receiver wait this long for late packets behind the end, up to 15s [default: 1s without a packet, TCP 5s]"
        )
    )]
    pub drain: Option<TimeSpan>,
    /// Largest segment of TCP, in bytes behind its header: 88 to 32767, and no more than the path takes. Default: what
    /// the path takes.
    #[cfg_attr(test, schemars(range(min = 88, max = 32767)))]
    #[cfg_attr(
        feature = "clap",
        arg(
            long,
            short = 'M',
            help_heading = "Network",
            value_name = "BYTES",
            help = "Largest segment of TCP, in bytes behind its header [default: what the path takes]"
        )
    )]
    pub mss: Option<u32>,
    /// No packet is cut on its way: one that is too large for the path is refused here, or by a router. Default: those
    /// that are too large leave in pieces.
    #[cfg_attr(
        feature = "clap",
        arg(
            long,
            help_heading = "Network",
            num_args = 0,
            default_missing_value = "true",
            help = "Let no packet be cut on its way: one that is too large for the path is refused"
        )
    )]
    pub dont_fragment: Option<bool>,
    /// Positions of its keys in the file.
    #[serde(skip)]
    #[cfg_attr(feature = "clap", arg(skip))]
    pub places: Positions,
}

impl FlowEntry {
    /// Its settings that change no packet.
    pub(crate) fn handling(&self) -> Handling {
        let mut handling = Handling::default();
        handling.drain_ns = self.drain.map(|time| time.0);
        handling
    }

    /// Its settings of later versions that change packets.
    pub(crate) fn shape(&self) -> Shape {
        let mut shape = Shape::default();
        shape.mss = self.mss;
        shape.dont_fragment = self.dont_fragment == Some(true);
        shape
    }
}

impl Experiment {
    /// Reads an experiment file; `origin` is its name in messages.
    ///
    /// # Errors
    /// Everything that is wrong with the text: syntax, unknown keys with the nearest known one,
    /// values without a unit or with a wrong one. Each problem names line and column.
    pub fn parse(text: &str, origin: &str) -> Result<Self, ExperimentError> {
        read::experiment(text, origin)
    }
}

/// Two distributions with a comma between them, as a command line has them.
#[cfg(feature = "clap")]
fn on_off(text: &str) -> Result<[TimeDistribution; 2], String> {
    let mut depth = 0usize;
    let comma = text.char_indices().find(|&(_, c)| {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    });
    let (at, _) = comma.ok_or_else(|| {
        format!("`{text}` is one distribution, expected two with a comma: exp(1s),constant(500ms)")
    })?;
    let distribution =
        |text: &str| text.trim().parse::<TimeDistribution>().map_err(|error| error.to_string());
    Ok([distribution(&text[..at])?, distribution(&text[at + 1..])?])
}

#[cfg(all(test, feature = "clap"))]
mod tests {
    #[test]
    fn two_distributions_are_split_at_the_outer_comma() {
        for (text, good) in [
            ("exp(1s),constant(500ms)", true),
            ("uniform(1s,2s), trunc(exp(1s),0,5s)", true),
            ("uniform(1s,2s)", false),
            ("exp(1s),nonsense", false),
        ] {
            assert_eq!(super::on_off(text).is_ok(), good, "input {text:?}");
        }
    }
}
