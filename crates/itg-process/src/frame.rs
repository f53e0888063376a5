//! Messages on a wire: one frame each.
//!
//! | bytes | field |
//! |---|---|
//! | 0–3 | length of what follows the checksum, u32 |
//! | 4–7 | CRC-32C of what follows, u32 |
//! | 8 | version, 1 |
//! | 9 | network |
//! | 10–11 | flags, 0 |
//! | 12–15 | sender's slot, u32 |
//! | 16–23 | sender's incarnation, u64 |
//! | 24–31 | sender's view, u64 |
//! | 32–35 | type, u32 |
//! | 36… | body |
//!
//! Little-endian. A frame that fails a check closes a stream, and is dropped on a datagram network;
//! both are counted.

use bytes::{BufMut as _, Bytes, BytesMut};

use crate::message::{Dest, Message, NetId, Slot};

/// Bytes before the body.
pub const HEADER_LEN: usize = 36;
/// Largest body unless the configuration says otherwise: 16 MiB.
pub const MAX_BODY: usize = 16 << 20;
/// Version of the frame.
pub const VERSION: u8 = 1;
/// Bytes that tell how long a frame is, and what its checksum is.
const PREFIX: usize = 8;

/// Bytes that are not a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// It says it is longer than allowed, or too short for its header.
    #[error("a frame of {0} bytes: allowed are 28 to the limit of the network")]
    Length(u32),
    /// Damaged on the way.
    #[error("a frame with checksum {got:#010x} instead of {want:#010x}: damaged on the way")]
    Checksum {
        /// Checksum in the frame.
        want: u32,
        /// Checksum computed from its bytes.
        got: u32,
    },
    /// Another version.
    #[error("a frame of version {0}: this program speaks version {VERSION}")]
    Version(u8),
}

/// A frame that has been checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The message; its destination is the process that got it.
    pub message: Message,
    /// Incarnation of the sender.
    pub incarnation: u64,
    /// View of the sender.
    pub view: u64,
}

/// Writes the header that stands before the body of a message in its frame.
#[must_use]
pub fn head(message: &Message, incarnation: u64, view: u64) -> [u8; HEADER_LEN] {
    let mut head = [0; HEADER_LEN];
    let mut out = &mut head[..];
    let len = HEADER_LEN - PREFIX + message.body.len();
    out.put_u32_le(u32::try_from(len).unwrap_or(u32::MAX));
    out.put_u32_le(0);
    out.put_u8(VERSION);
    out.put_u8(message.net.0);
    out.put_u16_le(0);
    out.put_u32_le(message.src.0);
    out.put_u64_le(incarnation);
    out.put_u64_le(view);
    out.put_u32_le(message.ty);
    let crc = crc32c::crc32c_append(crc32c::crc32c(&head[PREFIX..]), &message.body);
    head[4..PREFIX].copy_from_slice(&crc.to_le_bytes());
    head
}

/// Appends the frame of a message.
pub fn encode(message: &Message, incarnation: u64, view: u64, out: &mut BytesMut) {
    out.reserve(HEADER_LEN + message.body.len());
    out.put_slice(&head(message, incarnation, view));
    out.put_slice(&message.body);
}

/// Length of the first frame of a stream in bytes; `None` before its length field is there.
///
/// # Errors
/// A length that no frame has.
pub fn extent(bytes: &[u8], max_body: usize) -> Result<Option<usize>, FrameError> {
    let Some(len) = bytes.first_chunk().map(|len| u32::from_le_bytes(*len)) else {
        return Ok(None);
    };
    let rest = len as usize;
    if rest < HEADER_LEN - PREFIX || rest > HEADER_LEN - PREFIX + max_body {
        return Err(FrameError::Length(len));
    }
    Ok(Some(PREFIX + rest))
}

/// The first frame of a stream of bytes for process `me` and how many bytes it takes; `None` when
/// more bytes are needed.
///
/// # Errors
/// Bytes that no frame starts with.
pub fn decode(
    bytes: &Bytes,
    me: Slot,
    max_body: usize,
) -> Result<Option<(Frame, usize)>, FrameError> {
    let word = |at: usize| {
        let word: Option<&[u8; 4]> = bytes.get(at..at + 4).and_then(|word| word.try_into().ok());
        word.map(|word| u32::from_le_bytes(*word))
    };
    let Some(extent) = extent(bytes, max_body)? else { return Ok(None) };
    let (Some(want), Some(content)) = (word(4), bytes.get(PREFIX..extent)) else {
        return Ok(None);
    };
    let got = crc32c::crc32c(content);
    if got != want {
        return Err(FrameError::Checksum { want, got });
    }
    if content[0] != VERSION {
        return Err(FrameError::Version(content[0]));
    }
    let wide = |at: usize| {
        let low = u64::from(word(at).unwrap_or(0));
        low | u64::from(word(at + 4).unwrap_or(0)) << 32
    };
    let message = Message {
        src: Slot(word(12).unwrap_or(0)),
        dst: Dest::One(me),
        net: NetId(content[1]),
        ty: word(32).unwrap_or(0),
        body: bytes.slice(HEADER_LEN..extent),
    };
    let frame = Frame { message, incarnation: wide(16), view: wide(24) };
    Ok(Some((frame, extent)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sample() -> Message {
        Message {
            src: Slot(0x0403_0201),
            dst: Dest::One(Slot(9)),
            net: NetId(2),
            ty: 7,
            body: Bytes::from_static(b"ab"),
        }
    }

    #[test]
    fn bytes_lie_where_the_table_says() {
        let mut out = BytesMut::new();
        encode(&sample(), 5, 6, &mut out);
        assert_eq!(out[..4], [30, 0, 0, 0]);
        assert_eq!(out[4..8], crc32c::crc32c(&out[8..]).to_le_bytes());
        let want: [&[u8]; 7] = [
            &[1, 2, 0, 0],
            &[1, 2, 3, 4],
            &[5, 0, 0, 0, 0, 0, 0, 0],
            &[6, 0, 0, 0, 0, 0, 0, 0],
            &[7, 0, 0, 0],
            b"ab",
            b"",
        ];
        assert_eq!(out[8..], want.concat());
        let bytes = out.freeze();
        for len in 0..bytes.len() {
            assert_eq!(decode(&bytes.slice(..len), Slot(9), MAX_BODY), Ok(None), "{len} bytes");
        }
        let frame = Frame { message: sample(), incarnation: 5, view: 6 };
        assert_eq!(decode(&bytes, Slot(9), MAX_BODY), Ok(Some((frame, 38))));
        assert_eq!(decode(&bytes, Slot(9), 1), Err(FrameError::Length(30)));
    }

    proptest! {
        #[test]
        fn one_wrong_bit_is_noticed(at in 4usize..38, bit in 0u8..8) {
            let mut out = BytesMut::new();
            encode(&sample(), 5, 6, &mut out);
            out[at] ^= 1 << bit;
            prop_assert!(decode(&out.freeze(), Slot(9), MAX_BODY).is_err());
        }

        #[test]
        fn any_bytes_are_survived(bytes: Vec<u8>) {
            let taken = decode(&Bytes::from(bytes), Slot(0), 100).map(|found| found.map(|f| f.1));
            prop_assert!(!matches!(taken, Ok(Some(taken)) if taken < HEADER_LEN));
        }
    }
}
