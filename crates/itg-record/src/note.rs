//! Notes: what a log says about itself, its flows and its clocks, one JSON document a block.
//!
//! A reader ignores fields it does not know, so that fields may be added without a new schema; see
//! the versioning rule in `docs/formats.md`.

use std::collections::BTreeMap;

use itg_core::flow::FlowSpec;
use itg_core::rate::RateChange;
use serde::{Deserialize, Serialize};

/// Value of [`LogInfo::schema`] that this crate writes.
pub const LOG_SCHEMA: u32 = 1;

/// One note.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "note", rename_all = "snake_case")]
#[allow(clippy::large_enum_variant, reason = "a handful in a log, never stored in numbers")]
pub enum Note {
    /// The writer of this log, with its settings: the first block.
    Log(LogInfo),
    /// A flow begins.
    Flow(FlowInfo),
    /// A flow has ended.
    FlowEnd(FlowEnd),
    /// Readings of the clocks, about once a second.
    Clock(ClockPair),
    /// A two-way probe of the clocks of sender and receiver.
    Probe(ClockProbe),
    /// State of a flow's TCP connection in the kernel, some times a second.
    Tcp(TcpSample),
    /// Departures of a flow's packets from the sender's network stack, some at a time.
    Departures(Departures),
    /// The log is complete: the last block.
    End(LogEnd),
}

/// Side of the flows on which a log was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// The packets left here.
    Sender,
    /// The packets arrived here.
    Receiver,
}

/// Writer of a log, with host, time and settings.
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
    /// Of a log that goes on from an earlier file: which part of it this is. `None` in the first file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<LogPart>,
}

/// Place of a file in a log that goes on over several, one after the other, as it does when it is rotated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogPart {
    /// Number of the part; that of the first file, which has no such note, is 0.
    pub number: u32,
    /// [`LogInfo::started_unix_ns`] of the first file: with host, process and boot id it names the log.
    pub first_unix_ns: u64,
    /// Indices of flows that began in an earlier part and had not ended: their descriptions are repeated here.
    pub flows: Vec<u32>,
    /// Of a log whose blocks keep their numbers from part to part, as at a log server: the numbers in earlier parts, as
    /// first and last of each range. None of a log whose parts count from 0.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blocks: Vec<(u32, u32)>,
    /// Records in those blocks.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub records: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
const fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// A flow of this log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FlowInfo {
    /// Value of `Record::flow` in this log.
    pub index: u32,
    /// Number of the flow in its experiment.
    pub flow: u32,
    /// Name that its experiment gives it; `None` where only its number is known, as receivers do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
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
    /// Changes that made the flow's distributions usable, one sentence each.
    pub notices: Vec<String>,
    /// Of a flow of D-ITG, which tells no plan: what else is known of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ditg: Option<DitgFlow>,
    /// Changes of the rate so far, while the flow ran; a note with the same index says it again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<RateChange>,
}

/// Facts about a flow of D-ITG that its logs do not tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DitgFlow {
    /// True if the transport in the flow's description is known, and not assumed.
    pub proto_known: bool,
    /// True if it is known whether it measures one-way delays or round trips.
    pub meter_known: bool,
}

impl DitgFlow {
    /// A flow whose transport and meter are known, as those that ITG's programs exchange with D-ITG's.
    pub const KNOWN: Self = Self { proto_known: true, meter_known: true };
}

/// End of a flow, with its totals as this side counted them; `None` is not counted here.
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
    /// Packets that were due while the socket, or the queue of the device, took no more; `None` at receivers, and
    /// in logs of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waited_packets: Option<u64>,
    /// Packets that the sender's kernel refused; `None` where the sender did not tell, and in logs of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused_packets: Option<u64>,
    /// Number of them by the kernel's error, as `EPERM`; empty at receivers.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub refused_by: BTreeMap<String, u64>,
    /// Packets that arrived; at a sender, as its receiver told it.
    pub received_packets: Option<u64>,
    /// Different packets among them; `None` in logs of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub received_unique: Option<u64>,
    /// Bytes that arrived.
    pub received_bytes: Option<u64>,
    /// Packets that arrived with another payload than their flow's; `None` where payloads were not compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub corrupted_packets: Option<u64>,
    /// Records of this flow that did not make it into the log.
    pub log_lost_records: u64,
    /// Packets that the kernel dropped at the socket; `None` also where it dropped joined ones, which it counts once.
    pub socket_drops: Option<u64>,
    /// Packets that the kernel dropped at the receiver's socket because their checksum was wrong; not among
    /// `socket_drops`, in which logs of before have them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checksum_drops: Option<u64>,
    /// Datagrams with a wrong checksum at all UDP sockets of the receiver's host while the flow ran, where there were some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checksum_errors: Option<u64>,
    /// Packets of all traffic that the sender's host dropped below its sockets while the flow ran, by the queueing
    /// disciplines and the device that it leaves by; `None` at receivers, and in logs of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_drops: Option<u64>,
    /// Datagrams that found a full buffer at any socket of the host (of its network namespace) while the flow
    /// ran; `None` where it is not counted, and in logs of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub buffer_errors: Option<u64>,
    /// Receive buffer that the kernel granted the socket, in bytes of kernel memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receive_buffer: Option<u64>,
    /// Packets that came to the flow's port and were left out: of no flow, or from elsewhere than its sender;
    /// `None` at senders, and in logs of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub foreign_packets: Option<u64>,
    /// Different packets that arrived after this end was told, as far as the receiver saw them: then it tells the end
    /// again. `None` where it saw none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub too_late: Option<u64>,
    /// Different packets that came from another port of the sender's address than the first one did, and were left out:
    /// an address translator on the way has forgotten the flow. `None` at senders, and in logs of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rebound: Option<u64>,
    /// Reason of the flow's end, as text for the user.
    pub reason: String,
}

impl FlowEnd {
    /// The end of a flow of which nothing was counted here, with its reason for people.
    #[must_use]
    pub fn new(index: u32, reason: impl Into<String>) -> Self {
        Self {
            index,
            sent_packets: None,
            sent_bytes: None,
            skipped_packets: None,
            waited_packets: None,
            refused_packets: None,
            refused_by: BTreeMap::new(),
            received_packets: None,
            received_unique: None,
            received_bytes: None,
            corrupted_packets: None,
            log_lost_records: 0,
            socket_drops: None,
            checksum_drops: None,
            checksum_errors: None,
            host_drops: None,
            buffer_errors: None,
            receive_buffer: None,
            foreign_packets: None,
            too_late: None,
            rebound: None,
            reason: reason.into(),
        }
    }
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
    /// True if the kernel takes its clock for synchronised.
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

/// State of a flow's TCP connection in the sender's kernel at one instant (`TCP_INFO`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TcpSample {
    /// Value of `Record::flow` in this log.
    pub index: u32,
    /// Instant of the sample, Unix time in nanoseconds.
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
    /// Congestion control by the kernel's name, as `cubic`; `None` in logs of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub congestion: Option<String>,
}

/// Departures of sampled packets of a flow from the sender's network stack: the kernel's transmit stamps, in
/// software, just before the device takes a packet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Departures {
    /// Value of `Record::flow` in this log.
    pub index: u32,
    /// One of so many packets is asked for.
    pub every: u32,
    /// True if the kernel was told each packet's time and kept it until then (`--pacing txtime`).
    pub held: bool,
    /// The samples since the last note.
    pub samples: Vec<DepartureSample>,
    /// The account of the whole flow, in its last note.
    pub totals: Option<DepartureTotals>,
}

/// Totals of a flow's transmit stamps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DepartureTotals {
    /// Stamps asked for.
    pub asked: u64,
    /// Of them, those that did not come back: the packet was dropped on its way to the device, or the kernel
    /// had no room for the stamp.
    pub missing: u64,
    /// Packets that the queueing discipline dropped because their time had passed.
    pub missed: u64,
    /// Number of times that it refused a packet whose time it could not use; the packet was handed over again.
    pub invalid: u64,
}

/// One packet on its way out of the sender's network stack; in JSON a list of the four numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "(u64, u64, u64, i64)", into = "(u64, u64, u64, i64)")]
pub struct DepartureSample {
    /// Sequence number in its flow.
    pub seq: u64,
    /// Planned time, in nanoseconds from the flow's start.
    pub planned_ns: u64,
    /// Handed to the kernel, Unix time in nanoseconds.
    pub handed_unix_ns: u64,
    /// Time from there to the kernel's stamp, in nanoseconds; below 0 only when the clock was set between.
    pub left_after_ns: i64,
}

impl From<(u64, u64, u64, i64)> for DepartureSample {
    fn from((seq, planned_ns, handed_unix_ns, left_after_ns): (u64, u64, u64, i64)) -> Self {
        Self { seq, planned_ns, handed_unix_ns, left_after_ns }
    }
}

impl From<DepartureSample> for (u64, u64, u64, i64) {
    fn from(sample: DepartureSample) -> Self {
        (sample.seq, sample.planned_ns, sample.handed_unix_ns, sample.left_after_ns)
    }
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
    /// True if the log goes on in another file, whose [`LogInfo::part`] says so.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub continued: bool,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{BlockBuf, Item, LogReader, Record, SentPacket, note_block};

    fn sample() -> impl Strategy<Value = (u64, u64, u64, i64)> {
        any::<(u64, u64, u64, i64)>()
    }

    proptest! {
        #[test]
        fn departures_are_read_as_they_were_written(
            index: u32, every: u32, held: bool, samples in prop::collection::vec(sample(), 0..50),
            totals in prop::option::of(any::<(u64, u64, u64, u64)>()),
        ) {
            let samples = samples.into_iter().map(DepartureSample::from).collect();
            let totals = totals.map(|(asked, missing, missed, invalid)| DepartureTotals {
                asked, missing, missed, invalid,
            });
            let note = Note::Departures(Departures { index, every, held, samples, totals });
            let block = note_block(&note, 0, 0);
            let read = LogReader::new(&block).next();
            prop_assert!(matches!(&read, Some(Item::Note { note: back, .. }) if *back == note), "{read:?}");
        }

        #[test]
        fn packets_that_the_kernel_held_are_read_as_they_were_written(
            flow: u32, seq: u64, size: u32, planned: u64, leave: u64, ahead: u64,
        ) {
            let record = Record::held(SentPacket { flow, seq, size, planned_ns: planned, sent_ns: leave }, ahead);
            let mut block = BlockBuf::new(1);
            block.push(&record);
            let bytes = block.seal(0, 0).to_vec();
            let Some(Item::Records { mut records, .. }) = LogReader::new(&bytes).next() else {
                return Err(TestCaseError::fail("no records"));
            };
            prop_assert_eq!(records.next(), Some(record));
            prop_assert_eq!(u64::from(record.delta), ahead.min(u64::from(u32::MAX)));
        }
    }

    #[test]
    fn departures_are_lists_of_numbers_in_the_log() {
        let samples = vec![DepartureSample::from((3, 40, 500, -6))];
        let note = Departures { index: 1, every: 4, held: false, samples, totals: None };
        let block = note_block(&Note::Departures(note), 0, 0);
        let text = String::from_utf8_lossy(&block);
        assert!(text.contains(r#""note":"departures""#), "{text}");
        assert!(text.contains(r#""samples":[[3,40,500,-6]]"#), "{text}");
    }
}
