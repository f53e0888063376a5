//! Frames on a producer's connection: a length, then a message or a block.

use super::codec::LogCodecError;
use super::message::MAX_LOG_MESSAGE;

/// The bit of a frame's length that says: a block, not a message.
const BLOCK_BIT: u32 = 1 << 31;

/// Length and kind of a frame, the four bytes in front of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHead {
    /// True if a block follows, false if a message.
    pub is_block: bool,
    /// Bytes that follow.
    pub len: u32,
}

impl FrameHead {
    /// The head of a message.
    #[must_use]
    pub fn message(bytes: &[u8]) -> Self {
        Self { is_block: false, len: u32::try_from(bytes.len()).unwrap_or(0) }
    }

    /// The head of a block in two pieces.
    #[must_use]
    pub fn block(pieces: [&[u8]; 2]) -> Self {
        let len = pieces[0].len() + pieces[1].len();
        Self { is_block: true, len: u32::try_from(len).unwrap_or(0) }
    }

    /// Its bytes.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; 4] {
        let kind = if self.is_block { BLOCK_BIT } else { 0 };
        (kind | self.len).to_le_bytes()
    }

    /// The head that these bytes are; `block_bytes` is the length of the largest block that may come, 0 where none may.
    ///
    /// # Errors
    /// [`LogCodecError::TooLong`].
    pub fn parse(bytes: [u8; 4], block_bytes: u32) -> Result<Self, LogCodecError> {
        let word = u32::from_le_bytes(bytes);
        let head = Self { is_block: word & BLOCK_BIT != 0, len: word & !BLOCK_BIT };
        let fits = match head.is_block {
            true => block_bytes > 0 && head.len <= block_bytes,
            false => head.len as usize <= MAX_LOG_MESSAGE,
        };
        if fits { Ok(head) } else { Err(LogCodecError::TooLong) }
    }
}
