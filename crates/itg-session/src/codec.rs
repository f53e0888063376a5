//! Messages to bytes and back; the layout is described in [`Message`]'s module.
//!
//! Bytes from a peer are not trusted: length, text and lists are bounded by [`MAX_MESSAGE`] before
//! anything is allocated, and a message must use all of its bytes. bincode 2 does the work (no
//! longer maintained, RUSTSEC-2025-0141); nothing outside of this module knows of it, and golden
//! tests pin the bytes.

use bincode::config::{self, Config};
use bincode::error::DecodeError;

use crate::message::{MAGIC, MAX_MESSAGE, Message, VERSION};

/// Bytes of a greeting that are the same in every version: kind, magic, version.
const PREAMBLE: usize = 10;
/// Kinds that are greetings: [`Message::Hello`] and [`Message::Welcome`].
const GREETINGS: [u32; 2] = [0, 1];

/// Bytes that are not a message, or a message that is too long to be sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// More than [`MAX_MESSAGE`] bytes were announced. Drivers give this too, when the length in front
    /// of a message is too large: the usual sign of another protocol.
    #[error(
        "a message of more than 1048576 bytes was announced: the peer does not speak ITG's \
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
        /// What was in its place.
        got: [u8; 4],
    },
    /// Anything else that cannot be understood.
    #[error("a message of {bytes} bytes cannot be understood: {reason}")]
    Malformed {
        /// Its length in bytes.
        bytes: usize,
        /// What is wrong with it.
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

/// How messages are written: fixed-size little-endian integers, bounded.
const fn layout() -> impl Config {
    config::standard().with_fixed_int_encoding().with_limit::<MAX_MESSAGE>()
}

/// The bytes of a message, without the length in front.
///
/// # Errors
/// [`CodecError::DoesNotFit`] if it is longer than [`MAX_MESSAGE`].
#[expect(clippy::missing_panics_doc, reason = "plain data always encodes")]
pub fn encode(message: &Message) -> Result<Vec<u8>, CodecError> {
    let name = message.name();
    let bytes = bincode::serde::encode_to_vec(message, layout())
        .expect("plain data without maps, borrowed parts or locks always encodes");
    if bytes.len() > MAX_MESSAGE {
        return Err(CodecError::DoesNotFit { name, bytes: bytes.len() });
    }
    Ok(bytes)
}

/// The message that these bytes are, without the length in front.
///
/// # Errors
/// Bytes that are not exactly one message of this version.
pub fn decode(bytes: &[u8]) -> Result<Message, CodecError> {
    if bytes.len() > MAX_MESSAGE {
        return Err(CodecError::TooLong);
    }
    check_preamble(bytes)?;
    let malformed = |reason: String| CodecError::Malformed { bytes: bytes.len(), reason };
    let (message, used) = bincode::serde::decode_from_slice(bytes, layout())
        .map_err(|error| malformed(in_words(&error)))?;
    if used < bytes.len() {
        return Err(malformed(format!("{} bytes follow its end", bytes.len() - used)));
    }
    Ok(message)
}

/// Recognises greetings of other versions and of other protocols, whatever follows.
fn check_preamble(bytes: &[u8]) -> Result<(), CodecError> {
    let Some(preamble) = bytes.first_chunk::<PREAMBLE>() else { return Ok(()) };
    let [k0, k1, k2, k3, m0, m1, m2, m3, v0, v1] = *preamble;
    if !GREETINGS.contains(&u32::from_le_bytes([k0, k1, k2, k3])) {
        return Ok(());
    }
    let got = [m0, m1, m2, m3];
    if got != MAGIC {
        return Err(CodecError::Magic { got });
    }
    match u16::from_le_bytes([v0, v1]) {
        VERSION => Ok(()),
        peer => Err(CodecError::Version { peer }),
    }
}

/// bincode's errors in plain words.
fn in_words(error: &DecodeError) -> String {
    match error {
        DecodeError::UnexpectedEnd { .. } => "it ends too early".to_owned(),
        DecodeError::LimitExceeded => "it announces more than a message may hold".to_owned(),
        DecodeError::Utf8 { .. } => "a text in it is not UTF-8".to_owned(),
        DecodeError::OtherString(why) => why.clone(),
        DecodeError::InvalidBooleanValue(got) => only_zero_or_one(u32::from(*got)),
        // bincode's own: the byte in front of an optional field
        DecodeError::UnexpectedVariant { found, .. } => only_zero_or_one(*found),
        other => format!("a field has no valid value ({other:?})"),
    }
}

fn only_zero_or_one(got: u32) -> String {
    format!("{got} stands where only 0 or 1 may stand")
}
