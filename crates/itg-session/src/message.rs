//! Messages between sender and receiver.
//!
//! On TCP a message is a frame: its length in bytes (u32, little-endian), then the bytes that
//! [`encode`](crate::encode) gives. The bytes are those of bincode 2 with fixed-size little-endian
//! integers: a u32 number of the kind (the position in [`Message`], from 0), then the fields in order;
//! a text or a list is preceded by its length (u64), an optional field by a byte 0 or 1.
//!
//! The following never changes between versions, so that two versions can tell each other what is
//! wrong: the first 10 bytes of [`Message::Hello`] and [`Message::Welcome`] (kind, magic, version),
//! and the whole of [`Message::Refuse`].

use itg_core::flow::FlowSpec;
use serde::{Deserialize, Serialize};

use crate::flow_wire;
use crate::measure::FlowMeasure;
use itg_core::end::EndReason;

/// Version of the signalling protocol; both sides must have the same.
pub const VERSION: u16 = 1;
/// First bytes of a greeting, behind the number of its kind.
pub const MAGIC: [u8; 4] = *b"ITGS";
/// Largest message in bytes, without the length in front: 1 MiB.
pub const MAX_MESSAGE: usize = 1 << 20;
/// Most flows in one [`Message::Open`].
pub const OPEN_BATCH: usize = 64;
/// Most flows in one [`Message::Pong`].
pub const PONG_FLOWS: usize = 256;

/// A message on the signalling channel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Message {
    /// Sender: the first message, names the run.
    Hello {
        /// [`MAGIC`].
        magic: [u8; 4],
        /// [`VERSION`] of the sender.
        version: u16,
        /// Run id: 32 hexadecimal digits.
        run: String,
        /// Run seed.
        seed: u64,
        /// Name and version of the sending program.
        program: String,
        /// Host name of the sender.
        host: String,
        /// Boot id of the sender's kernel: two processes with the same one share a clock.
        boot_id: String,
        /// Number of flows that will be opened, at least 1.
        flows: u32,
        /// Requested name of the receiver's log. The text comes from an untrusted peer: the
        /// receiver decides what it does with it.
        recv_log: Option<String>,
    },
    /// Receiver: the run may be set up.
    Welcome {
        /// [`MAGIC`].
        magic: [u8; 4],
        /// [`VERSION`] of the receiver.
        version: u16,
        /// Name and version of the receiving program.
        program: String,
        /// Host name of the receiver.
        host: String,
        /// Boot id of the receiver's kernel.
        boot_id: String,
        /// The receiver takes a sender for vanished that has been silent for this long, in
        /// nanoseconds.
        control_timeout_ns: u64,
    },
    /// Receiver: no; the connection ends.
    Refuse {
        /// Reason of the refusal, and advice.
        reason: String,
    },
    /// Sender: open these flows. The next batch comes after the answer to this one.
    Open {
        /// From 1 to [`OPEN_BATCH`] flows; no number of a flow is used twice in a session.
        #[serde(with = "flow_wire::list")]
        flows: Vec<FlowSpec>,
    },
    /// Receiver: the answer to [`Message::Open`].
    Opened {
        /// One answer for each flow, in the order in which they were asked for.
        flows: Vec<OpenReply>,
    },
    /// Sender: packets will come from now on.
    Start {
        /// Instant from which planned times count, Unix nanoseconds of the sender's clock.
        epoch_unix_ns: u64,
    },
    /// Receiver: the answer to [`Message::Start`].
    Started,
    /// Sender: this flow has sent its last packet.
    FlowEnded(FlowTotals),
    /// Receiver: the answer to [`Message::FlowEnded`], when the flow has been drained.
    FlowCounted(FlowCounts),
    /// Sender: are you there?
    Ping {
        /// Number of the ping in its session, from 0.
        n: u64,
        /// Instant of sending, by the sender's clocks.
        sent: ClockReading,
        /// The stamps of the latest ping whose answer has come, for the receiver's log.
        previous: Option<ProbeStamps>,
    },
    /// Receiver: the answer to [`Message::Ping`].
    Pong {
        /// Number of the ping.
        n: u64,
        /// Copied from the ping.
        ping_sent: ClockReading,
        /// Arrival of the ping, in Unix nanoseconds of the receiver's clock.
        received_unix_ns: u64,
        /// Instant at which this answer was sent, by the receiver's clocks.
        sent: ClockReading,
        /// Arrivals so far, for progress lines; at most [`PONG_FLOWS`] flows.
        arrived: Vec<FlowArrivals>,
    },
    /// Sender: nothing more will come.
    Bye,
    /// Receiver: the answer to [`Message::Bye`].
    ByeAck {
        /// The log that the receiver kept; `None` when it kept none.
        log: Option<LogSummary>,
    },
    /// Sender: packets of all flows of this session prove where they come from. Comes before the first
    /// [`Message::Open`], from senders that share a secret with their receiver, and from no others: those that do not
    /// know this message are served as ever.
    Prove {
        /// Drawn for this session.
        nonce: [u8; 32],
    },
    /// Receiver: the answer to [`Message::Prove`].
    Proved {
        /// Drawn for this session.
        nonce: [u8; 32],
        /// Proof that the receiver has the secret.
        proof: [u8; 32],
    },
    /// Receiver: what it measured of a flow; right before [`Message::FlowCounted`], to senders whose greeting
    /// offers to take it, and to no others.
    FlowMeasured(Box<FlowMeasure>),
    /// Sender, in place of the first [`Message::Open`]: exchange the roles and send these flows here, under the run id
    /// and the seed of the greeting. Only to receivers whose [`Message::Welcome`] offers to take it.
    Turn {
        /// From 1 to [`OPEN_BATCH`] flows, as many as announced at most.
        #[serde(with = "flow_wire::list")]
        flows: Vec<FlowSpec>,
    },
    /// Receiver: the answer to [`Message::Turn`]. Its next message is the [`Message::Hello`] of a sender, on the same
    /// connection.
    Turned {
        /// Changes that it has made to the flows, a sentence each.
        notices: Vec<String>,
    },
    /// Receiver that has asked for the flows: end them now, as if your user wanted to stop.
    Halt {
        /// Reason, in a few words.
        reason: String,
    },
}

impl Message {
    /// The name of its kind.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Hello { .. } => "Hello",
            Self::Welcome { .. } => "Welcome",
            Self::Refuse { .. } => "Refuse",
            Self::Open { .. } => "Open",
            Self::Opened { .. } => "Opened",
            Self::Start { .. } => "Start",
            Self::Started => "Started",
            Self::FlowEnded(_) => "FlowEnded",
            Self::FlowCounted(_) => "FlowCounted",
            Self::Ping { .. } => "Ping",
            Self::Pong { .. } => "Pong",
            Self::Bye => "Bye",
            Self::ByeAck { .. } => "ByeAck",
            Self::Prove { .. } => "Prove",
            Self::Proved { .. } => "Proved",
            Self::FlowMeasured(_) => "FlowMeasured",
            Self::Turn { .. } => "Turn",
            Self::Turned { .. } => "Turned",
            Self::Halt { .. } => "Halt",
        }
    }

    /// Puts the time into a ping or a pong that is about to be written; other messages stay as they
    /// are.
    ///
    /// The machines know no wall clock and leave these fields 0 (and a pong's arrivals empty).
    /// `received_unix_ns` is when the message that is being answered arrived, in Unix nanoseconds of
    /// this host (used in pongs only); `now` is now.
    pub const fn stamp(&mut self, received_unix_ns: u64, now: ClockReading) {
        match self {
            Self::Ping { sent, .. } => *sent = now,
            Self::Pong { received_unix_ns: received, sent, .. } => {
                *received = received_unix_ns;
                *sent = now;
            }
            _ => {}
        }
    }
}

/// The two clocks of a host at one instant. Only setting the clock changes their difference.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockReading {
    /// Unix time in nanoseconds.
    pub unix_ns: u64,
    /// Monotonic time in nanoseconds.
    pub monotonic_ns: u64,
}

/// A ping and its answer: four instants on two hosts' clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbeStamps {
    /// The ping left, by the sender's clocks.
    pub sent: ClockReading,
    /// It arrived, Unix nanoseconds of the receiver.
    pub received_unix_ns: u64,
    /// The answer left, by the receiver's clocks.
    pub replied: ClockReading,
    /// It arrived, Unix nanoseconds of the sender.
    pub arrived_unix_ns: u64,
}

/// Answer to the request to open a flow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenReply {
    /// Number of the flow.
    pub flow: u32,
    /// Data needed to send the flow, or the reason of the refusal (one sentence).
    pub result: Result<OpenedFlow, String>,
}

/// A flow for which the receiver is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenedFlow {
    /// Number of the flow.
    pub flow: u32,
    /// Handle that its packets carry in their header.
    pub handle: u32,
    /// Data port at the receiver; 0 for protocols without ports.
    pub port: u16,
}

/// Arrivals of a running flow so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowArrivals {
    /// Number of the flow.
    pub flow: u32,
    /// Different packets that have been read so far.
    pub packets: u64,
    /// More about them, to senders whose greeting offers to take it: behind the message (see
    /// `more.rs`).
    #[serde(skip)]
    pub account: Option<ArrivalAccount>,
}

/// Account of the packets of a running flow that have arrived so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArrivalAccount {
    /// Packets, duplicates included.
    pub packets: u64,
    /// Bytes of these packets.
    pub bytes: u64,
    /// Sequence numbers below the largest one of which no packet has arrived: lost, late, or never sent.
    pub missing: u64,
    /// Packets that arrived behind one with a larger number.
    pub reordered: u64,
    /// Arrival of the first packet, in Unix nanoseconds of the receiver's clock; 0 as long as none has arrived.
    pub first_unix_ns: u64,
}

/// A flow as its sender counted it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowTotals {
    /// Number of the flow.
    pub flow: u32,
    /// Packets that the kernel took.
    pub packets: u64,
    /// Bytes of these packets, ITG's header included.
    pub bytes: u64,
    /// Packets left out because they were late.
    pub skipped: u64,
    /// Packets that the kernel did not take.
    pub failed: u64,
    /// Sequence number that the next packet would have had.
    pub next_seq: u64,
    /// Reason of the flow's end.
    pub reason: EndReason,
}

/// A flow as its receiver counted it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowCounts {
    /// Number of the flow.
    pub flow: u32,
    /// Packets of the flow that were read, duplicates included.
    pub packets: u64,
    /// Bytes of these packets, ITG's header included.
    pub bytes: u64,
    /// Different sequence numbers among them.
    pub unique: u64,
    /// Packets that the kernel dropped because the socket's buffer was full; `None` when unknown.
    pub socket_drops: Option<u64>,
    /// Packets that came to the flow's socket and did not belong to it.
    pub foreign: u64,
    /// Records that the receiver's log had to leave out.
    pub log_lost_records: u64,
    /// More about them, to senders whose greeting offers to take it: behind the message (see `more.rs`).
    #[serde(skip)]
    pub more: MoreCounts,
}

/// More of a flow's account at its receiver; `None` where it is not known, as at receivers of before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MoreCounts {
    /// Sequence numbers below the largest one of which no packet has arrived.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing: Option<u64>,
    /// Packets that the kernel dropped because their checksum was wrong; then `socket_drops` are those of full buffers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checksum_drops: Option<u64>,
    /// Packets with another payload than their flow's, where payloads were compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub corrupted: Option<u64>,
    /// Different packets that came from another port of the sender's address than the first one did, and were left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rebound: Option<u64>,
}

/// Bytes of a packet for each packet of a bound, at most: 8 Tbit/s.
const MOST_BYTES_EACH: u64 = 1000;

impl FlowCounts {
    /// Returns true if a receiver may have counted this where so many packets can have arrived.
    pub(crate) const fn is_sound(&self, most: u64) -> bool {
        self.unique <= self.packets
            && self.packets <= most
            && self.bytes <= most.saturating_mul(MOST_BYTES_EACH)
            && self.log_lost_records <= most
    }
}

impl FlowArrivals {
    /// Returns true if a receiver may have counted this where so many packets can have arrived.
    pub(crate) fn is_sound(&self, most: u64) -> bool {
        self.packets <= most
            && self.account.is_none_or(|account| {
                account.packets <= most && account.bytes <= most.saturating_mul(MOST_BYTES_EACH)
            })
    }
}

/// Content of the receiver's log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogSummary {
    /// Its file, as the receiver calls it.
    pub file: String,
    /// Records in it.
    pub records: u64,
    /// Records that had to be left out.
    pub lost_records: u64,
    /// Reason why the log is not complete, if so.
    pub error: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pings_and_pongs_are_stamped() {
        let now = ClockReading { unix_ns: 2, monotonic_ns: 1 };
        let ping = |sent| Message::Ping { n: 3, sent, previous: None };
        let mut question = ping(ClockReading::default());
        question.stamp(1, now);
        assert_eq!(question, ping(now));
        let pong = |received_unix_ns, sent| Message::Pong {
            n: 3,
            ping_sent: ClockReading { unix_ns: 9, monotonic_ns: 8 },
            received_unix_ns,
            sent,
            arrived: Vec::new(),
        };
        let mut answer = pong(0, ClockReading::default());
        answer.stamp(1, now);
        assert_eq!(answer, pong(1, now));
        let mut bye = Message::Bye;
        bye.stamp(1, now);
        assert_eq!(bye, Message::Bye);
    }
}
