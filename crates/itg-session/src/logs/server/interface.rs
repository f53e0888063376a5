//! Inputs and outputs of a log server's session.

use itg_record::{BlockError, BlockFacts};

use crate::logs::book::SessionId;
use crate::logs::codec::LogCodecError;
use crate::logs::message::{LogMessage, Registration};
use crate::logs::timeouts::LogServerTimeouts;

/// Configuration of a session of a log server.
#[derive(Clone, Debug)]
pub struct LogServerConfig {
    /// Number of the session, different from those of all others of this server.
    pub id: SessionId,
    /// Drawn at random for this connection: producers must prove that they know the shared secret.
    /// `None` without a secret.
    pub nonce: Option<[u8; 32]>,
    /// Drawn at random for this connection: a producer's datagrams are taken from where it is shown.
    pub token: u64,
    /// Port for datagrams; 0: the server takes none.
    pub data_port: u16,
    /// Hash of the layout of the records that the server's readers know; no others are taken.
    pub record_schema: u64,
    /// Time limits of the session.
    pub timeouts: LogServerTimeouts,
}

/// Events that a driver reports to a log server's session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerInput {
    /// The producer said this.
    Message(LogMessage),
    /// The producer sent bytes that are no message.
    Garbage(LogCodecError),
    /// A block has come, on the connection or from the address that was authorised. The driver
    /// keeps its buffer until it is told what to do with it, which is at once.
    Block {
        /// From its tag.
        log_id: u32,
        /// From its tag.
        block_no: u32,
        /// Records in it.
        records: u32,
        /// Its length with the header.
        bytes: u32,
        /// Checksum of its contents.
        checksum: u32,
        /// True if it is a good block (magic, length, checksum) of the schemas of logs.
        intact: bool,
    },
    /// A [`LogMessage::Bind`] has come in a datagram.
    Bind {
        /// From the message.
        log_id: u32,
        /// From the message.
        token: u64,
    },
    /// The answer to [`ServerOutput::Check`]: whether the proof is right.
    Checked(bool),
    /// The answer to [`ServerOutput::Open`]: the files are open and, unless the book knew the
    /// experiment, restored into the book; or why not.
    Opened(Result<(), String>),
    /// The answer to [`ServerOutput::Store`]: written, to survive a kill of the server. Also after
    /// the end of the session.
    Stored {
        /// Its number.
        block_no: u32,
    },
    /// The other answer to [`ServerOutput::Store`]: not written, and given up. (When the disk is full
    /// the driver may rather keep the block and say [`LogBook::disk_full`](crate::logs::LogBook::disk_full).)
    StoreFailed {
        /// Its number.
        block_no: u32,
        /// Reason of the failure, with the system's words.
        reason: String,
    },
    /// Another session said [`ServerOutput::Wake`], or the disk has room again. Too often does no
    /// harm.
    Woken,
    /// The instant of [`LogServerSession::deadline`](super::LogServerSession::deadline) has come.
    /// Too early does no harm.
    Timer,
    /// The connection was closed or broke; with the system's words.
    Lost(String),
    /// The server is being shut down, with the reason: take what was promised to be taken, and end.
    Shutdown(String),
    /// There are too many connections, and this one gives way to a newer one.
    Displaced,
}

/// Tasks for the driver of a log server's session, to be done in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerOutput {
    /// Write this message.
    Send(LogMessage),
    /// Compare this proof with the HMAC-SHA-256 of the text under the shared secret (in constant
    /// time), answer with [`ServerInput::Checked`].
    Check {
        /// See [`proof_text`](crate::logs::proof_text).
        text: Vec<u8>,
        /// Proof that the producer gave.
        proof: [u8; 32],
    },
    /// Make sure that the files of this experiment are open, and
    /// [restored](crate::logs::LogBook::restore) into the book (new ones too, without logs) when it does
    /// not [know](crate::logs::LogBook::knows) it; answer with [`ServerInput::Opened`]. Comes again
    /// when the book has forgotten the experiment meanwhile.
    Open {
        /// Its name: a plain file name.
        run: String,
    },
    /// A new log: write it into the index of the experiment, before any of its blocks. Nothing to
    /// answer.
    Enrol {
        /// Name of the experiment.
        run: String,
        /// Number of the log.
        log_id: u32,
        /// Identity of the log and its producer.
        who: Registration,
    },
    /// Take datagrams of this log from the address where the `Bind` just now came from.
    Authorise,
    /// Write the block just now given to the file of the session's experiment; answer with
    /// [`ServerInput::Stored`] or [`ServerInput::StoreFailed`].
    Store {
        /// Number of the log.
        log_id: u32,
        /// Number of the block.
        block_no: u32,
    },
    /// The number of the block just now given is stored or being stored already: free its buffer.
    Duplicate {
        /// Number of the block.
        block_no: u32,
        /// False if what is stored under it has other contents; it is counted.
        same: bool,
    },
    /// The block just now given is not wanted: free its buffer. It will be missing, or come again.
    Discard {
        /// Number of the block.
        block_no: u32,
        /// Reason of the refusal.
        reason: &'static str,
    },
    /// Say [`ServerInput::Woken`] to this session, if there is such.
    Wake(SessionId),
    /// A log is complete: for the server's own report. Comes before `Left`.
    Account(Box<LogAccount>),
    /// The last session of this experiment is over: its files may be closed and the book may
    /// [forget](crate::logs::LogBook::forget) it.
    Idle {
        /// Name of the experiment.
        run: String,
    },
    /// The end: close the connection when everything has been written. The session must be kept
    /// until [`LogServerSession::unsettled`](super::LogServerSession::unsettled) is 0.
    Disconnect {
        /// Reason of the end, for the server's own log.
        reason: String,
    },
}

/// A log at its end, as producer and server counted it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogAccount {
    /// Name of the experiment.
    pub run: String,
    /// Number of the log.
    pub log_id: u32,
    /// Identity of the log and its producer.
    pub who: Registration,
    /// The producer: block numbers used.
    pub blocks: u32,
    /// The producer: records in blocks that were not dropped.
    pub records: u64,
    /// The producer: blocks dropped.
    pub dropped_blocks: u64,
    /// The producer: records in them.
    pub dropped_records: u64,
    /// The producer: records of each flow (index in the log, number).
    pub per_flow: Vec<(u32, u64)>,
    /// The producer: flows for which there was no room.
    pub flows_left_out: u32,
    /// The server: blocks stored.
    pub stored_blocks: u64,
    /// The server: records in them.
    pub stored_records: u64,
    /// The server: block numbers not stored, the dropped ones included.
    pub missing_blocks: u64,
    /// The server: which ones, as first and last of each range (the first
    /// [`LEFT_RANGES`](crate::logs::LEFT_RANGES)).
    pub missing: Vec<(u32, u32)>,
    /// The server: damaged blocks that came.
    pub damaged_blocks: u64,
    /// The server: blocks that came while there was no room for them, in memory (UDP) or on disk.
    pub refused_blocks: u64,
    /// The server: blocks that came with other contents than those stored under their numbers.
    pub conflicting_blocks: u64,
}

/// Places of a block's number and of its log's number in its header, in bytes.
const BLOCK_NO_AT: usize = 56;
const LOG_ID_AT: usize = 60;

/// Report of a driver to a session about bytes that came as a block, on the connection or, with `datagram`, in a
/// datagram.
#[must_use]
pub fn block_input(bytes: &[u8], datagram: bool) -> ServerInput {
    let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    match BlockFacts::check_plain(bytes) {
        Ok(facts) => ServerInput::Block {
            log_id: facts.log_id,
            block_no: facts.block_no,
            records: facts.records,
            bytes: len,
            checksum: facts.checksum,
            intact: facts.len == bytes.len(),
        },
        Err(BlockError::Packed) if !datagram => ServerInput::Garbage(LogCodecError::Columns),
        Err(BlockError::Time { .. }) if !datagram => ServerInput::Garbage(LogCodecError::Times),
        Err(_) => {
            // The label of the header, as far as it can be believed.
            let word = |at: usize| {
                bytes
                    .get(at..at + 4)
                    .and_then(|bytes| bytes.first_chunk())
                    .map_or(0, |bytes| u32::from_le_bytes(*bytes))
            };
            ServerInput::Block {
                log_id: word(LOG_ID_AT),
                block_no: word(BLOCK_NO_AT),
                records: 0,
                bytes: len,
                checksum: 0,
                intact: false,
            }
        }
    }
}
