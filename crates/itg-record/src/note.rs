//! Notes: what a log says about itself, its flows and its clocks, one JSON document a block.
//!
//! A reader ignores fields it does not know, so that fields may be added without a new schema; see
//! the versioning rule in `docs/formats.md`.

use std::collections::BTreeMap;

use itg_core::flow::FlowSpec;
use serde::{Deserialize, Serialize};

/// Value of [`LogInfo::schema`] that this crate writes.
pub const LOG_SCHEMA: u32 = 1;

/// One note.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "note", rename_all = "snake_case")]
#[allow(clippy::large_enum_variant, reason = "a handful in a log, never stored in numbers")]
pub enum Note {
    /// Who writes this log: the first block.
    Log(LogInfo),
    /// A flow begins.
    Flow(FlowInfo),
    /// A flow has ended.
    FlowEnd(FlowEnd),
    /// What the clocks say, about once a second.
    Clock(ClockPair),
    /// A two-way probe of the clocks of sender and receiver.
    Probe(ClockProbe),
    /// What the kernel says of a flow's TCP connection, some times a second.
    Tcp(TcpSample),
    /// The log is complete: the last block.
    End(LogEnd),
}

/// Which side of the flows a log was written on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// The packets left here.
    Sender,
    /// The packets arrived here.
    Receiver,
}

/// Who wrote a log, where, when and with which settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogInfo {
    /// Version of the notes: [`LOG_SCHEMA`].
    pub schema: u32,
    /// Side of the flows.
    pub side: Side,
    /// Name of the program.
    pub program: String,
    /// Version of the program.
    pub version: String,
    /// Name of the host.
    pub host: String,
    /// Operating system and kernel release.
    pub os: String,
    /// Boot id of the host: logs with the same one share a clock.
    pub boot_id: String,
    /// Process id.
    pub pid: u32,
    /// Unix time of the start of the log, in nanoseconds.
    pub started_unix_ns: u64,
    /// Run id in hexadecimal; empty at a receiver, which serves many runs.
    pub run: String,
    /// Seed of the run; `None` at a receiver.
    pub seed: Option<u64>,
    /// Every resolved setting of the program.
    pub settings: BTreeMap<String, String>,
    /// Records in a full block.
    pub block_records: u32,
}

/// A flow of this log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FlowInfo {
    /// Value of `Record::flow` in this log.
    pub index: u32,
    /// Number of the flow in its experiment.
    pub flow: u32,
    /// Run id in hexadecimal.
    pub run: String,
    /// Seed of the run.
    pub seed: u64,
    /// The flow as it was asked for.
    pub spec: FlowSpec,
    /// Source address and port.
    pub src: String,
    /// Destination address and port.
    pub dst: String,
    /// Unix time, on the sender's clock in nanoseconds, from which planned times count.
    pub epoch_unix_ns: u64,
    /// Boot id of the sender's host.
    pub sender_boot_id: String,
    /// Boot id of the receiver's host; equal to the sender's when both share a clock.
    pub receiver_boot_id: String,
    /// What had to be changed to make the flow's laws usable, one sentence each.
    pub notices: Vec<String>,
}

/// How a flow ended, and its totals as this side counted them; `None` is not counted here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowEnd {
    /// Value of `Record::flow` in this log.
    pub index: u32,
    /// Packets given to the kernel.
    pub sent_packets: Option<u64>,
    /// Bytes given to the kernel.
    pub sent_bytes: Option<u64>,
    /// Packets left out because they were late.
    pub skipped_packets: Option<u64>,
    /// Packets that arrived.
    pub received_packets: Option<u64>,
    /// Bytes that arrived.
    pub received_bytes: Option<u64>,
    /// Records of this flow that did not make it into the log.
    pub log_lost_records: u64,
    /// Packets that the kernel dropped at the socket.
    pub socket_drops: Option<u64>,
    /// Datagrams that found a full buffer at any socket of the host (of its network namespace) while the flow
    /// ran; `None` where it is not counted, and in logs of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub buffer_errors: Option<u64>,
    /// Receive buffer that the kernel granted the socket, in bytes of kernel memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receive_buffer: Option<u64>,
    /// Why the flow ended, for people.
    pub reason: String,
}

/// The clocks of a host at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockPair {
    /// Unix time in nanoseconds (`CLOCK_REALTIME`).
    pub unix_ns: u64,
    /// Monotonic time in nanoseconds (`CLOCK_MONOTONIC`).
    pub monotonic_ns: u64,
    /// Largest error of the Unix time that the kernel admits to (`adjtimex`), in nanoseconds.
    pub max_error_ns: Option<u64>,
    /// Whether the kernel takes its clock for synchronised.
    pub synchronised: Option<bool>,
}

/// Four instants that compare the clocks of two hosts: a message of the sender and its answer.
///
/// Both sides log the same probes. Nanoseconds; Unix times are stamped by the kernel on arrival where it
/// does so, monotonic times are `CLOCK_MONOTONIC`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockProbe {
    /// Run id in hexadecimal.
    pub run: String,
    /// Boot id of the sender's host: whose clock the sender's is.
    pub sender_boot_id: String,
    /// Boot id of the receiver's host.
    pub receiver_boot_id: String,
    /// The message left, Unix time of the sender.
    pub sent_unix_ns: u64,
    /// The same instant, monotonic time of the sender.
    pub sent_monotonic_ns: u64,
    /// It arrived, Unix time of the receiver.
    pub received_unix_ns: u64,
    /// The answer left, Unix time of the receiver.
    pub replied_unix_ns: u64,
    /// The same instant, monotonic time of the receiver.
    pub replied_monotonic_ns: u64,
    /// The answer arrived, Unix time of the sender.
    pub arrived_unix_ns: u64,
}

/// What the sender's kernel says of a flow's TCP connection at one instant (`TCP_INFO`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TcpSample {
    /// Value of `Record::flow` in this log.
    pub index: u32,
    /// When, Unix time in nanoseconds.
    pub unix_ns: u64,
    /// Smoothed round-trip time in nanoseconds.
    pub rtt_ns: u64,
    /// Its mean deviation in nanoseconds.
    pub rtt_var_ns: u64,
    /// Smallest round-trip time that was seen, in nanoseconds.
    pub min_rtt_ns: u64,
    /// Congestion window in bytes.
    pub cwnd_bytes: u64,
    /// Slow-start threshold in bytes; `None` before the first loss.
    pub ssthresh_bytes: Option<u64>,
    /// Bytes on their way, in whole segments.
    pub in_flight_bytes: u64,
    /// Bytes that the receiver's kernel has acknowledged since the connection was opened.
    pub acked_bytes: u64,
    /// Segments sent again since the connection was opened.
    pub retransmitted: u64,
    /// Rate at which data arrived last, as the kernel estimates it, in bits per second.
    pub delivery_rate_bps: u64,
}

/// The totals of a complete log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogEnd {
    /// Blocks, this one included.
    pub blocks: u64,
    /// Records in all blocks.
    pub records: u64,
    /// Records that could not be written.
    pub lost_records: u64,
}
