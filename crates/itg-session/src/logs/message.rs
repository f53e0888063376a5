//! Messages between a producer of log blocks and a log server.
//!
//! On TCP a message is a frame; how frames of messages and of blocks are told apart is the driver's
//! affair. The bytes of a message are those of bincode 2 with fixed-size little-endian integers: a u32
//! number of the kind (the position in [`LogMessage`], from 0), then the fields in order; a text or a
//! list is preceded by its length (u64), an optional field by a byte 0 or 1.
//!
//! The following never changes between versions, so that two versions can tell each other what is
//! wrong: the first 10 bytes of [`LogMessage::Register`], [`LogMessage::Challenge`],
//! [`LogMessage::Registered`] and [`LogMessage::Bind`] (kind, magic, version), and the whole of
//! [`LogMessage::Refused`].
//!
//! Source: `REGISTER`, `REGISTERED`, `BLOCK`, `ACK`, `LEAVE`, `LEFT` of the log server of D-ITG
//! (Botta, Dainotti, Pescapè); the other kinds are ours.

use serde::{Deserialize, Serialize};

/// Version of the log protocol; both sides must have the same.
pub const LOG_VERSION: u16 = 2;
/// First bytes of a greeting, behind the number of its kind.
pub const LOG_MAGIC: [u8; 4] = *b"ITGL";
/// Largest message in bytes, without the length in front: 64 KiB.
pub const MAX_LOG_MESSAGE: usize = 1 << 16;
/// Most flows in one [`LogMessage::Leave`].
pub const LEAVE_FLOWS: usize = 4096;
/// Most ranges of missing blocks in one [`LogMessage::Left`].
pub const LEFT_RANGES: usize = 4096;
/// Longest text in a [`LogMessage::Register`], in bytes.
pub const MAX_NAME: usize = 256;
/// Longest reason in a [`LogMessage::Refused`], in bytes.
pub const MAX_REASON: usize = 1024;

/// Side of an experiment that a log tells of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Role {
    /// The packets that were sent.
    Sender,
    /// The packets that arrived.
    Receiver,
}

/// Transport of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Transport {
    /// On the connection of the messages; acknowledged, sent again after a cut, stored once.
    Tcp,
    /// One block a datagram, sent once; what is lost is counted.
    Udp,
}

/// Identity of a log to be stored, and of its producer: the content of [`LogMessage::Register`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registration {
    /// Identity of the log, drawn at random by its producer: it stays the same across connections and
    /// restarts of the server.
    pub key: [u8; 16],
    /// Name of the experiment. The text comes from an untrusted peer: the server stores under
    /// [`file_stem`](super::file_stem) of it.
    pub run: String,
    /// Host name of the producer.
    pub host: String,
    /// Name and version of the producing program.
    pub program: String,
    /// Side of the experiment.
    pub role: Role,
    /// Number of flows that the log tells of; 0 when not known yet.
    pub flows: u32,
    /// Hash of the layout of its records.
    pub record_schema: u64,
    /// Transport of its blocks.
    pub transport: Transport,
    /// Records in a full block (`D`).
    pub block_records: u32,
    /// Largest block that will come, in bytes with its header. The server counts a block of credit
    /// as this much memory.
    pub block_bytes: u32,
    /// Nanoseconds to be added to the producer's clock to get the reference clock.
    pub clock_offset_ns: Option<i64>,
    /// Uncertainty of this offset, in nanoseconds.
    pub uncertainty_ns: Option<u64>,
    /// Lowest block that the producer still holds: all below are acknowledged or given up.
    pub next_block: u32,
}

/// A message between a producer and a log server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LogMessage {
    /// Producer: the first message of each connection; again with the proof after a
    /// [`LogMessage::Challenge`].
    Register {
        /// [`LOG_MAGIC`].
        magic: [u8; 4],
        /// [`LOG_VERSION`] of the producer.
        version: u16,
        /// Identity of the log and its producer.
        who: Registration,
        /// Keyed hash of [`proof_text`](super::proof_text), when the server has asked for it.
        proof: Option<[u8; 32]>,
    },
    /// Server: prove that you know the shared secret.
    Challenge {
        /// [`LOG_MAGIC`].
        magic: [u8; 4],
        /// [`LOG_VERSION`] of the server.
        version: u16,
        /// Drawn at random for this connection.
        nonce: [u8; 32],
    },
    /// Server: blocks may come.
    Registered {
        /// [`LOG_MAGIC`].
        magic: [u8; 4],
        /// [`LOG_VERSION`] of the server.
        version: u16,
        /// Number of the log in its experiment, to stand in the tag of each block. The same for the
        /// same key, as long as the server has its files.
        log_id: u32,
        /// Port for datagrams; 0 on TCP.
        data_port: u16,
        /// To be shown in [`LogMessage::Bind`]; 0 on TCP.
        token: u64,
        /// Number of blocks that may be sent on this connection, counted from here.
        credit: u32,
        /// Every block below it is stored or given up: the `next_block` of the registration. What
        /// is stored above it comes again and is compared.
        stored_to: u32,
    },
    /// Producer, in a datagram to the data port: blocks of this log will come from this address.
    /// Sent again until [`LogMessage::Bound`] comes.
    Bind {
        /// [`LOG_MAGIC`].
        magic: [u8; 4],
        /// [`LOG_VERSION`] of the producer.
        version: u16,
        /// From [`LogMessage::Registered`].
        log_id: u32,
        /// From [`LogMessage::Registered`].
        token: u64,
    },
    /// Server: no; the connection ends.
    Refused {
        /// Reason of the refusal, and advice.
        reason: String,
        /// True if it is worth trying again after a while.
        again: bool,
    },
    /// Server: datagrams from the producer's data address are taken from now on.
    Bound,
    /// Server, on TCP: how far the log is stored.
    Ack {
        /// Every block below this one that has come is stored.
        stored_to: u32,
        /// Number of blocks that may be sent on this connection, counted from
        /// [`LogMessage::Registered`]; never less than before.
        credit: u32,
    },
    /// Producer: no more blocks. On TCP it comes when all are acknowledged.
    Leave {
        /// Block numbers used, those of dropped blocks included.
        blocks: u32,
        /// Records in the blocks that were not dropped.
        records: u64,
        /// Blocks that the producer dropped and never sent.
        dropped_blocks: u64,
        /// Records in them.
        dropped_records: u64,
        /// Records of each flow: index in the log and number, at most [`LEAVE_FLOWS`].
        per_flow: Vec<(u32, u64)>,
        /// Flows for which there was no room.
        flows_left_out: u32,
    },
    /// Server: the answer to [`LogMessage::Leave`]; nothing more will be stored.
    Left {
        /// Blocks stored.
        blocks: u64,
        /// Records in them.
        records: u64,
        /// Block numbers that are not stored, as first and last of each range in ascending order; the
        /// producer's dropped blocks are among them. At most [`LEFT_RANGES`].
        missing: Vec<(u32, u32)>,
        /// Missing blocks that are in no range above.
        missing_left_out: u64,
        /// Blocks that came with other contents than those stored under their numbers, and are
        /// not stored: somebody else has written to this log.
        conflicting_blocks: u64,
        /// Records in them.
        conflicting_records: u64,
    },
    /// Producer: are you there?
    Ping {
        /// Number of the ping on its connection, from 0.
        n: u64,
    },
    /// Server: the answer to [`LogMessage::Ping`].
    Pong {
        /// Number of the ping.
        n: u64,
    },
}

impl LogMessage {
    /// The name of its kind.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Register { .. } => "Register",
            Self::Challenge { .. } => "Challenge",
            Self::Registered { .. } => "Registered",
            Self::Bind { .. } => "Bind",
            Self::Refused { .. } => "Refused",
            Self::Bound => "Bound",
            Self::Ack { .. } => "Ack",
            Self::Leave { .. } => "Leave",
            Self::Left { .. } => "Left",
            Self::Ping { .. } => "Ping",
            Self::Pong { .. } => "Pong",
        }
    }

    /// A greeting of a producer.
    #[must_use]
    pub const fn register(who: Registration, proof: Option<[u8; 32]>) -> Self {
        Self::Register { magic: LOG_MAGIC, version: LOG_VERSION, who, proof }
    }
}
