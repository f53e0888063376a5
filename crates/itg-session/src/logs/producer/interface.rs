//! Inputs and outputs of a producer's machine.

use crate::logs::codec::LogCodecError;
use crate::logs::message::{LogMessage, Registration};
use crate::logs::timeouts::ProducerTimeouts;

/// Configuration of a producer.
#[derive(Clone, Debug)]
pub struct LogProducerConfig {
    /// Identity of the log and its producer; the machine fills in `next_block` itself. Texts longer
    /// than [`MAX_NAME`](crate::logs::MAX_NAME) bytes are cut.
    pub who: Registration,
    /// Most blocks on their way: on TCP sent and not acknowledged (less when the credit is smaller),
    /// on UDP given to the driver and not sent yet. At least 1.
    pub max_unacked: u32,
    /// Blocks that may wait in memory before the spool is used; not more than the driver has buffers
    /// besides the one that is being filled. At least 1.
    pub memory_blocks: u32,
    /// Time that the server may be away before blocks go to the spool, in nanoseconds; `None`
    /// without a spool.
    pub patience_ns: Option<u64>,
    /// Time limits of the machine.
    pub timeouts: ProducerTimeouts,
}

/// A log that an earlier process left in its spool, to be forwarded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpooledLog {
    /// The blocks in the spool, in ascending order.
    pub spool: Vec<SpooledBlock>,
    /// Block numbers used, those of dropped blocks included.
    pub blocks: u32,
    /// Records in the blocks that were not dropped.
    pub records: u64,
    /// Blocks dropped.
    pub dropped_blocks: u64,
    /// Records in them.
    pub dropped_records: u64,
}

/// A block in a spool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpooledBlock {
    /// Its number.
    pub block_no: u32,
    /// Records in it.
    pub records: u32,
}

/// Events that a driver reports to a producer's machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProducerInput {
    /// The connection is made.
    Connected,
    /// The server said this.
    Message(LogMessage),
    /// The server sent bytes that are no message.
    Garbage(LogCodecError),
    /// A block is full and sealed; its buffer stays as it is until `Release` or `Spool`.
    BlockReady {
        /// The next block number, counted from 0 with the dropped ones.
        block_no: u32,
        /// Records in it.
        records: u32,
        /// Its length with the header, at most the `block_bytes` of the registration.
        bytes: u32,
    },
    /// The kernel has taken the block, and all before it. Needed on UDP, harmless on TCP.
    BlockSent {
        /// Its number.
        block_no: u32,
    },
    /// A block was dropped by the driver because there was no room (its number is used up), or
    /// cannot be read from the spool any more.
    Dropped {
        /// Its number: the next one, or that of a block in the spool.
        block_no: u32,
        /// Records in it.
        records: u32,
    },
    /// The answer to [`ProducerOutput::Prove`].
    Proof([u8; 32]),
    /// The instant of [`LogProducer::deadline`](super::LogProducer::deadline) has come. Too early
    /// does no harm.
    Timer,
    /// The connection could not be made, was closed or broke; with the system's words.
    Lost(String),
    /// No more blocks: see that all are stored and leave.
    Close {
        /// Records of each flow: index in the log and number.
        per_flow: Vec<(u32, u64)>,
    },
}

/// Tasks for the driver of a producer, to be done in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProducerOutput {
    /// Connect, answer with `Connected` or `Lost`.
    Connect,
    /// Close the connection, or stop trying; nothing to answer. Buffers that were being sent are
    /// free of it.
    Disconnect,
    /// Write this message.
    Send(LogMessage),
    /// Authenticate this text with the shared secret (HMAC-SHA-256), answer with
    /// [`ProducerInput::Proof`]; without a secret say [`ProducerInput::Lost`].
    Prove {
        /// See [`proof_text`](crate::logs::proof_text).
        text: Vec<u8>,
    },
    /// The server knows the log. Comes with each connection; blocks are tagged with this number
    /// when they are sent. On UDP, datagrams go to this port from now on.
    Registered {
        /// Number of the log.
        log_id: u32,
        /// Port for datagrams; 0 on TCP.
        data_port: u16,
    },
    /// UDP: write this message into a datagram, from the socket from which blocks will be sent.
    SendBind(LogMessage),
    /// Send this block from its buffer.
    SendBlock {
        /// Its number.
        block_no: u32,
    },
    /// Read this block from the spool and send it.
    Unspool {
        /// Its number.
        block_no: u32,
    },
    /// Buffers and spooled copies of all blocks below this one may go.
    Release {
        /// The first block that stays.
        up_to: u32,
    },
    /// Write this block to the spool, then its buffer may go. Keep the spooled copy until `Release`.
    Spool {
        /// Its number.
        block_no: u32,
    },
    /// The end, after `Close`.
    Finished(LogFate),
    /// The end, before `Close`, or because the server did not want the log from the beginning. All
    /// buffers may go.
    Failed {
        /// Description of the failure, and advice.
        reason: String,
        /// Outcome for the blocks so far.
        fate: LogFate,
    },
}

/// Outcome of a log. Of blocks and of records alike:
/// stored + missing + dropped + in the spool + unconfirmed = produced.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogFate {
    /// Blocks produced (block numbers used).
    pub blocks: u64,
    /// Records in them.
    pub records: u64,
    /// Blocks that the server has stored.
    pub stored_blocks: u64,
    /// Records in them.
    pub stored_records: u64,
    /// Blocks that were sent and are not stored, or that had to be given up unsent (UDP only, or a
    /// server that lost its files).
    pub missing_blocks: u64,
    /// Records in them.
    pub missing_records: u64,
    /// Blocks among them that the server did not store since it has other contents under their numbers.
    pub conflicting_blocks: u64,
    /// Blocks that the driver dropped.
    pub dropped_blocks: u64,
    /// Records in them.
    pub dropped_records: u64,
    /// Blocks that wait in the spool.
    pub spooled_blocks: u64,
    /// Records in them.
    pub spooled_records: u64,
    /// Blocks whose outcome is unknown: the server did not answer to the end.
    pub unconfirmed_blocks: u64,
    /// Records in them.
    pub unconfirmed_records: u64,
    /// The server's list of blocks that it has not, the dropped ones included: first and last of
    /// each range.
    pub missing: Vec<(u32, u32)>,
    /// Blocks it has not that are in no range above.
    pub missing_left_out: u64,
    /// True if these are the server's own numbers ([`LogMessage::Left`]).
    pub confirmed: bool,
    /// The last thing that went wrong with the server, if it did not come right to the end.
    pub trouble: Option<String>,
}

impl LogFate {
    /// Returns true if every record produced is stored.
    #[must_use]
    pub const fn is_complete(&self) -> bool {
        self.stored_records == self.records
            && self.stored_blocks == self.blocks
            && self.conflicting_blocks == 0
    }
}
