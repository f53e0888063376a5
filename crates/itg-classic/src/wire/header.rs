//! Headers of packets, and packets in a byte stream.

use crate::send::{HeaderKind, SIZE_MAX};

/// Header of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketHeader {
    /// Flow.
    pub flow: u32,
    /// Sequence number, from 1.
    pub seq: u32,
    /// Seconds since midnight (UTC) at which it was sent; only in [`HeaderKind::Standard`].
    pub seconds: u32,
    /// Microseconds of that second.
    pub micros: u32,
}

/// Bytes of the header: 16, 8 or 0, and 4 for the size in a stream.
#[must_use]
pub const fn header_len(kind: HeaderKind, stream: bool) -> usize {
    match (kind, stream) {
        (HeaderKind::Standard, false) => 16,
        (HeaderKind::Standard, true) => 20,
        (HeaderKind::Short, false) => 8,
        (HeaderKind::Short, true) => 12,
        (HeaderKind::None, _) => 0,
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at + 4)?;
    Some(u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
}

impl PacketHeader {
    /// Writes the header of a packet of `size` bytes to the front of `out`; returns its length. Where
    /// `out` is too short, as many of its bytes as fit.
    pub fn put(&self, kind: HeaderKind, stream: bool, size: u32, out: &mut [u8]) -> usize {
        let Self { flow, seq, seconds, micros } = *self;
        let words: &[u32] = match (kind, stream) {
            (HeaderKind::Standard, false) => &[flow, seq, seconds, micros],
            (HeaderKind::Standard, true) => &[flow, seq, seconds, micros, size],
            (HeaderKind::Short, false) => &[flow, seq],
            (HeaderKind::Short, true) => &[flow, seq, size],
            (HeaderKind::None, _) => &[],
        };
        for (place, word) in out.chunks_mut(4).zip(words) {
            place.copy_from_slice(&word.to_be_bytes()[..place.len()]);
        }
        out.len().min(4 * words.len())
    }

    /// Writes the header to the front of `packet`, whose length is the packet's.
    pub fn write(&self, kind: HeaderKind, stream: bool, packet: &mut [u8]) {
        let size = u32::try_from(packet.len()).unwrap_or(u32::MAX);
        self.put(kind, stream, size, packet);
    }

    /// Reads the header of a datagram; `None` when it is too short, or has none.
    #[must_use]
    pub fn parse(kind: HeaderKind, packet: &[u8]) -> Option<Self> {
        let short = Self { flow: word(packet, 0)?, seq: word(packet, 4)?, ..Self::default() };
        match kind {
            HeaderKind::Standard => {
                Some(Self { seconds: word(packet, 8)?, micros: word(packet, 12)?, ..short })
            }
            HeaderKind::Short => Some(short),
            HeaderKind::None => None,
        }
    }
}

/// A packet of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamPacket {
    /// Its header; `None` in streams without.
    pub header: Option<PacketHeader>,
    /// Bytes, the header included.
    pub size: u32,
}

/// A stream that cannot be followed any further. D-ITG's receiver takes any size and overruns its
/// buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a packet of {0} bytes in the stream: expected a header's length to 64000")]
pub struct StreamError(pub u32);

/// Finds the packets of a TCP stream. Without headers (`-p 2`) every piece of the stream is one.
#[derive(Clone, Debug)]
pub struct StreamPackets {
    kind: HeaderKind,
    head: [u8; 20],
    /// Bytes of the header that are there.
    filled: usize,
    /// Bytes of the packet that are still to come.
    missing: u32,
    packet: StreamPacket,
}

impl StreamPackets {
    /// At the start of a stream.
    #[must_use]
    pub const fn new(kind: HeaderKind) -> Self {
        let packet = StreamPacket { header: None, size: 0 };
        Self { kind, head: [0; 20], filled: 0, missing: 0, packet }
    }

    /// Returns true if the stream stands in the middle of a packet.
    #[must_use]
    pub const fn within_packet(&self) -> bool {
        self.filled > 0 || self.missing > 0
    }

    /// Takes the next bytes of the stream, which it consumes, up to the end of the next packet.
    /// `None` when it needs more.
    ///
    /// # Errors
    /// [`StreamError`]: the connection is to be closed.
    pub fn next(&mut self, bytes: &mut &[u8]) -> Result<Option<StreamPacket>, StreamError> {
        if self.kind == HeaderKind::None {
            let size = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
            *bytes = &[];
            return Ok((size > 0).then_some(StreamPacket { header: None, size }));
        }
        let len = header_len(self.kind, true);
        if self.missing == 0 {
            let take = bytes.len().min(len - self.filled);
            self.head[self.filled..self.filled + take].copy_from_slice(&bytes[..take]);
            *bytes = &bytes[take..];
            self.filled += take;
            if self.filled < len {
                return Ok(None);
            }
            let size = word(&self.head, len - 4).unwrap_or(0);
            let least = u32::try_from(len).unwrap_or(u32::MAX);
            if !(least..=SIZE_MAX).contains(&size) {
                return Err(StreamError(size));
            }
            let header = PacketHeader::parse(self.kind, &self.head[..len - 4]);
            self.packet = StreamPacket { header, size };
            self.missing = size - least;
            self.filled = 0;
            if self.missing == 0 {
                return Ok(Some(self.packet));
            }
        }
        let take = bytes.len().min(self.missing as usize);
        *bytes = &bytes[take..];
        self.missing -= u32::try_from(take).unwrap_or(0);
        Ok((self.missing == 0).then_some(self.packet))
    }
}
