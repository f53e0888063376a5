//! Values of serde to bytes and back with bincode 2.

use serde::{Serialize, de::DeserializeOwned};

/// Longest encoding that is read: 16 MiB.
const MOST: usize = 16 << 20;

/// The bytes of a value: integers in as many bytes as they need.
pub(crate) fn write(value: &impl Serialize) -> Vec<u8> {
    bincode::serde::encode_to_vec(value, bincode::config::standard()).unwrap_or_default()
}

/// The value that these bytes are, all of them. Nothing beyond the limit is allocated.
pub(crate) fn read<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    let config = bincode::config::standard().with_limit::<MOST>();
    let (value, used) = bincode::serde::decode_from_slice(bytes, config).ok()?;
    (used == bytes.len()).then_some(value)
}
