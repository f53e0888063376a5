//! Messages to bytes and back; the layout is described in [`Message`]'s module.

use crate::bytes::{self, BadPreamble};
use crate::message::{MAGIC, MAX_MESSAGE, Message, VERSION};
use crate::more;

/// Kinds that are greetings: [`Message::Hello`] and [`Message::Welcome`].
const GREETINGS: [u32; 2] = [0, 1];

/// Bytes that are not a message, or a message that is too long to be sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// More than [`MAX_MESSAGE`] bytes were announced. Drivers give this too, when the length in front
    /// of a message is too large, or larger than a greeting's before it: the usual sign of another protocol.
    #[error(
        "a message was announced that is longer than any of its kind: the peer does not speak ITG's \
         signalling protocol (check host and port)"
    )]
    TooLong,
    /// A greeting of another version.
    #[error(
        "the peer speaks version {peer} of the signalling protocol, this program speaks version \
         {VERSION}: use the same release of ITG on both sides"
    )]
    Version {
        /// The peer's version.
        peer: u16,
    },
    /// A greeting without [`MAGIC`].
    #[error(
        "a greeting starts with \"{}\" instead of \"ITGS\": the peer does not speak ITG's \
         signalling protocol (check host and port)",
        got.escape_ascii()
    )]
    Magic {
        /// Bytes in place of the magic.
        got: [u8; 4],
    },
    /// Anything else that cannot be understood.
    #[error("a message of {bytes} bytes cannot be understood: {reason}")]
    Malformed {
        /// Its length in bytes.
        bytes: usize,
        /// Description of the fault.
        reason: String,
    },
    /// A message to be sent that does not fit into a frame.
    #[error(
        "the message {name} needs {bytes} bytes, more than the 1048576 that a message may have"
    )]
    DoesNotFit {
        /// Kind of the message.
        name: &'static str,
        /// Bytes that it needs.
        bytes: usize,
    },
}

/// The bytes of a message, without the length in front.
///
/// # Errors
/// [`CodecError::DoesNotFit`] if it is longer than [`MAX_MESSAGE`].
pub fn encode(message: &Message) -> Result<Vec<u8>, CodecError> {
    let too_long = |bytes| CodecError::DoesNotFit { name: message.name(), bytes };
    let mut all = bytes::write::<MAX_MESSAGE>(message).map_err(too_long)?;
    if let Some(text) = more::of(message) {
        all.extend(bytes::write::<MAX_MESSAGE>(&text).map_err(too_long)?);
    }
    if all.len() > MAX_MESSAGE { Err(too_long(all.len())) } else { Ok(all) }
}

/// The message that these bytes are, without the length in front.
///
/// # Errors
/// Bytes that are not exactly one message of this version.
pub fn decode(bytes: &[u8]) -> Result<Message, CodecError> {
    if bytes.len() > MAX_MESSAGE {
        return Err(CodecError::TooLong);
    }
    bytes::check_preamble(bytes, &GREETINGS, MAGIC, VERSION).map_err(|bad| match bad {
        BadPreamble::Magic(got) => CodecError::Magic { got },
        BadPreamble::Version(peer) => CodecError::Version { peer },
    })?;
    read(bytes).map_err(|reason| CodecError::Malformed { bytes: bytes.len(), reason })
}

/// A message and what stands behind it.
fn read(bytes: &[u8]) -> Result<Message, String> {
    let (mut message, rest) = bytes::read_some::<MAX_MESSAGE, Message>(bytes)?;
    if !rest.is_empty() {
        let text: String = bytes::read::<MAX_MESSAGE, _>(rest)
            .map_err(|why| format!("{} bytes follow its end: {why}", rest.len()))?;
        more::put(&mut message, &text).map_err(|why| format!("what follows its end: {why}"))?;
    }
    Ok(message)
}
