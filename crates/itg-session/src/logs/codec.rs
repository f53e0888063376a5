//! Log messages to bytes and back; the layout is described in the module of [`LogMessage`].

use crate::bytes::{self, BadPreamble};

use super::message::{LOG_MAGIC, LOG_VERSION, LogMessage, MAX_LOG_MESSAGE};

/// Kinds that are greetings: `Register`, `Challenge`, `Registered` and `Bind`.
const GREETINGS: [u32; 4] = [0, 1, 2, 3];

/// Bytes that are not a log message, or a message that is too long to be sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LogCodecError {
    /// More than [`MAX_LOG_MESSAGE`] bytes were announced. Drivers give this too, when the length in
    /// front of a message is too large: the usual sign of another protocol.
    #[error(
        "a message of more than 65536 bytes was announced: the peer does not speak ITG's log \
         protocol (check host and port)"
    )]
    TooLong,
    /// A greeting of another version.
    #[error(
        "the peer speaks version {peer} of the log protocol, this program speaks version \
         {LOG_VERSION}: use the same release of ITG on both sides"
    )]
    Version {
        /// The peer's version.
        peer: u16,
    },
    /// A greeting without [`LOG_MAGIC`].
    #[error(
        "a greeting starts with \"{}\" instead of \"ITGL\": the peer does not speak ITG's log \
         protocol (check host and port)",
        got.escape_ascii()
    )]
    Magic {
        /// Bytes in place of the magic.
        got: [u8; 4],
    },
    /// A block of a kind that is no upload. Drivers give this.
    #[error("a column block came: producers send blocks of records and of notes")]
    Columns,
    /// A block with times that no clock shows. Drivers give this.
    #[error(
        "a block has times beyond the year 2116: no clock shows them, and figures over logs would be \
         meaningless"
    )]
    Times,
    /// Anything else that cannot be understood.
    #[error("a log message of {bytes} bytes cannot be understood: {reason}")]
    Malformed {
        /// Its length in bytes.
        bytes: usize,
        /// Description of the fault.
        reason: String,
    },
    /// A message to be sent that does not fit into a frame.
    #[error(
        "the log message {name} needs {bytes} bytes, more than the 65536 that a message may have"
    )]
    DoesNotFit {
        /// Kind of the message.
        name: &'static str,
        /// Bytes that it needs.
        bytes: usize,
    },
}

/// The bytes of a log message, without the length in front.
///
/// # Errors
/// [`LogCodecError::DoesNotFit`] if it is longer than [`MAX_LOG_MESSAGE`]. The machines make no such
/// message.
pub fn encode(message: &LogMessage) -> Result<Vec<u8>, LogCodecError> {
    bytes::write::<MAX_LOG_MESSAGE>(message)
        .map_err(|bytes| LogCodecError::DoesNotFit { name: message.name(), bytes })
}

/// The log message that these bytes are, without the length in front.
///
/// # Errors
/// Bytes that are not exactly one message of this version.
pub fn decode(bytes: &[u8]) -> Result<LogMessage, LogCodecError> {
    if bytes.len() > MAX_LOG_MESSAGE {
        return Err(LogCodecError::TooLong);
    }
    bytes::check_preamble(bytes, &GREETINGS, LOG_MAGIC, LOG_VERSION).map_err(|bad| match bad {
        BadPreamble::Magic(got) => LogCodecError::Magic { got },
        BadPreamble::Version(peer) => LogCodecError::Version { peer },
    })?;
    bytes::read::<MAX_LOG_MESSAGE, _>(bytes)
        .map_err(|reason| LogCodecError::Malformed { bytes: bytes.len(), reason })
}
