//! Values to bytes and back with bincode 2 (no longer maintained, RUSTSEC-2025-0141), for the codecs
//! of this crate: nothing outside of this module knows of it, and golden tests pin the bytes.
//!
//! Bytes from a peer are not trusted: text and lists are bounded by `LIMIT` before anything is
//! allocated, and a value must use all of its bytes.

use bincode::config::{self, Config};
use bincode::error::DecodeError;
use serde::{Serialize, de::DeserializeOwned};

/// Bytes of a greeting that are the same in every version: kind, magic, version.
const PREAMBLE: usize = 10;

/// Fixed-size little-endian integers, bounded.
const fn layout<const LIMIT: usize>() -> impl Config {
    config::standard().with_fixed_int_encoding().with_limit::<LIMIT>()
}

/// The bytes of a value, or how many it needs when that is more than `LIMIT`.
pub(crate) fn write<const LIMIT: usize>(value: &impl Serialize) -> Result<Vec<u8>, usize> {
    let bytes = bincode::serde::encode_to_vec(value, layout::<LIMIT>())
        .expect("plain data without maps, borrowed parts or locks always encodes");
    if bytes.len() > LIMIT { Err(bytes.len()) } else { Ok(bytes) }
}

/// The value that these bytes are, or what is wrong with them in plain words.
pub(crate) fn read<const LIMIT: usize, T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    match read_some::<LIMIT, T>(bytes)? {
        (value, []) => Ok(value),
        (_, rest) => Err(format!("{} bytes follow its end", rest.len())),
    }
}

/// The value at the start of these bytes and what follows, or what is wrong with them in plain words.
pub(crate) fn read_some<const LIMIT: usize, T: DeserializeOwned>(
    bytes: &[u8],
) -> Result<(T, &[u8]), String> {
    let (value, used) = bincode::serde::decode_from_slice(bytes, layout::<LIMIT>())
        .map_err(|error| in_words(&error))?;
    Ok((value, &bytes[used..]))
}

/// Fault in the preamble of a greeting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BadPreamble {
    /// This stands in place of the magic.
    Magic([u8; 4]),
    /// Another version than ours.
    Version(u16),
}

/// Recognises greetings of other versions and of other protocols, whatever follows. Messages of
/// other kinds than `greetings`, and those that are too short, pass.
pub(crate) fn check_preamble(
    bytes: &[u8],
    greetings: &[u32],
    magic: [u8; 4],
    version: u16,
) -> Result<(), BadPreamble> {
    let Some(preamble) = bytes.first_chunk::<PREAMBLE>() else { return Ok(()) };
    let [k0, k1, k2, k3, m0, m1, m2, m3, v0, v1] = *preamble;
    if !greetings.contains(&u32::from_le_bytes([k0, k1, k2, k3])) {
        return Ok(());
    }
    let got = [m0, m1, m2, m3];
    if got != magic {
        return Err(BadPreamble::Magic(got));
    }
    let peer = u16::from_le_bytes([v0, v1]);
    if peer == version { Ok(()) } else { Err(BadPreamble::Version(peer)) }
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
