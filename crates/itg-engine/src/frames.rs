//! Finding packets again in a TCP stream: each is preceded by its length (see
//! [`itg_core::header`]). Payloads are counted, not kept.

use itg_core::header::{FRAME_LEN, FULL_LEN, MAX_FRAME, MIN_LEN, PacketHeader};

const LONGEST_HEAD: usize = (FRAME_LEN + FULL_LEN) as usize;
const SHORTEST: u32 = FRAME_LEN + MIN_LEN;

/// A stream that is no sequence of packets.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadFrame {
    /// A length that no packet has.
    #[error(
        "a packet length of {0} bytes, expected {SHORTEST} to {MAX_FRAME}: not a stream of ITG packets"
    )]
    Length(u32),
    /// A header with a time that no clock shows.
    #[error("a packet says that it was sent after the year 2116")]
    Time,
}

/// The state of a stream between two reads.
#[derive(Debug, Default)]
pub(crate) struct Frames {
    head: [u8; LONGEST_HEAD],
    filled: usize,
    /// The packet whose payload is passing, and how many bytes of it are still to come.
    passing: Option<(u32, PacketHeader, usize)>,
}

/// A part of a stream that has come.
pub(crate) enum Passing<'a> {
    /// The next bytes of a packet's payload, which ends `left` bytes behind the first of them.
    Bytes {
        /// Size of the packet.
        size: u32,
        /// Its header.
        header: PacketHeader,
        /// Bytes from the first of these to its end.
        left: usize,
        /// The bytes.
        bytes: &'a [u8],
    },
    /// A packet whose last byte has come.
    Packet {
        /// Its size.
        size: u32,
        /// Its header.
        header: PacketHeader,
    },
}

impl Frames {
    /// Takes the next bytes of the stream and calls `on` for what they bring, in its order.
    ///
    /// # Errors
    /// An impossible length or time; the stream is not read on.
    pub(crate) fn take(
        &mut self,
        mut bytes: &[u8],
        mut on: impl FnMut(Passing<'_>),
    ) -> Result<(), BadFrame> {
        loop {
            if let Some((size, header, left)) = self.passing {
                let passed = left.min(bytes.len());
                on(Passing::Bytes { size, header, left, bytes: &bytes[..passed] });
                bytes = &bytes[passed..];
                if passed < left {
                    self.passing = Some((size, header, left - passed));
                    return Ok(());
                }
                self.passing = None;
                on(Passing::Packet { size, header });
            }
            let wanted = self.head_len()?;
            let missing = wanted - self.filled;
            if missing > 0 {
                let taken = missing.min(bytes.len());
                self.head[self.filled..self.filled + taken].copy_from_slice(&bytes[..taken]);
                self.filled += taken;
                bytes = &bytes[taken..];
                if taken == 0 {
                    return Ok(());
                }
                continue;
            }
            let size = self.size();
            let header = PacketHeader::parse(&self.head[FRAME_LEN as usize..wanted]);
            let header = header.ok_or(BadFrame::Time)?;
            self.passing = Some((size, header, size as usize - wanted));
            self.filled = 0;
        }
    }

    fn size(&self) -> u32 {
        u32::from_le_bytes([self.head[0], self.head[1], self.head[2], self.head[3]])
    }

    /// Bytes of length and header of the packet that begins here, as far as is known yet.
    fn head_len(&self) -> Result<usize, BadFrame> {
        if self.filled < FRAME_LEN as usize {
            return Ok(FRAME_LEN as usize);
        }
        match self.size() {
            size @ (0..SHORTEST | MAX_FRAME..) if size != MAX_FRAME => Err(BadFrame::Length(size)),
            size if size - FRAME_LEN < FULL_LEN => Ok(SHORTEST as usize),
            _ => Ok(LONGEST_HEAD),
        }
    }

    /// Returns true if the stream stands in the middle of a packet.
    pub(crate) const fn within_packet(&self) -> bool {
        self.filled > 0 || self.passing.is_some()
    }
}

#[cfg(test)]
mod tests {
    use itg_core::payload_check::{Expected, PayloadCheck};

    use super::*;

    fn stream(sizes: &[u32]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (seq, &size) in sizes.iter().enumerate() {
            let mut head = [0; 20];
            let used = PacketHeader::write(9, seq as u64, 77, size - FRAME_LEN, &mut head);
            bytes.extend(size.to_le_bytes());
            bytes.extend(&head[..used]);
            bytes.resize(bytes.len() + (size - FRAME_LEN) as usize - used, 0xEE);
        }
        bytes
    }

    #[test]
    fn packets_are_found_however_the_stream_is_cut() {
        let sizes = [16, 23, 24, 25, 1500, 16, 70_000, MAX_FRAME];
        let bytes = stream(&sizes);
        for cut in [1, 2, 3, 7, 64, 1000, 65_536, bytes.len()] {
            let mut frames = Frames::default();
            let mut got = Vec::new();
            for piece in bytes.chunks(cut) {
                let taken = frames.take(piece, |passing| {
                    if let Passing::Packet { size, header } = passing {
                        got.push((size, header));
                    }
                });
                taken.expect("good stream");
            }
            assert!(!frames.within_packet());
            let want: Vec<_> = sizes
                .iter()
                .enumerate()
                .map(|(seq, &size)| {
                    let sent_ns = (size >= 24).then_some(77);
                    (size, PacketHeader { handle: 9, seq: seq as u64, sent_ns })
                })
                .collect();
            assert_eq!(got, want, "pieces of {cut} bytes");
        }
    }

    #[test]
    fn impossible_times_are_refused() {
        let mut bytes = stream(&[100]);
        bytes[16..24].copy_from_slice(&u64::MAX.to_le_bytes());
        let got = Frames::default().take(&bytes, |_| panic!("no packet"));
        assert_eq!(got, Err(BadFrame::Time));
    }

    #[test]
    fn impossible_lengths_are_refused() {
        for size in [0, 1, 15, MAX_FRAME + 1, u32::MAX] {
            let got = Frames::default().take(&size.to_le_bytes(), |_| panic!("no packet"));
            assert_eq!(got, Err(BadFrame::Length(size)));
        }
        let text = BadFrame::Length(0).to_string();
        assert_eq!(
            text,
            "a packet length of 0 bytes, expected 16 to 1048576: not a stream of ITG packets"
        );
    }

    #[test]
    fn payloads_of_a_stream_are_compared_however_it_is_cut() {
        let pattern = |len: usize| b"abc".iter().copied().cycle().take(len);
        let mut stream = Vec::new();
        for (seq, size) in (0..).zip([16_u32, 24, 30, 1500, 70_000]) {
            let mut head = [0; 20];
            let used = PacketHeader::write(9, seq, 77, size - FRAME_LEN, &mut head);
            stream.extend(size.to_le_bytes());
            stream.extend(&head[..used]);
            stream.extend(pattern(size as usize - FRAME_LEN as usize - used));
        }
        for (changed, want) in [(None, 0), (Some(66), 1), (Some(stream.len() - 1), 1)] {
            let mut bytes = stream.clone();
            changed.into_iter().for_each(|at: usize| bytes[at] ^= 0x80);
            for cut in [1, 7, 1000, bytes.len()] {
                let mut check = PayloadCheck::new(Expected::Pattern(b"abc".to_vec()), 7, false);
                let mut frames = Frames::default();
                for piece in bytes.chunks(cut) {
                    let taken = frames.take(piece, |passing| match passing {
                        Passing::Bytes { size, header, left, bytes } => {
                            check.piece(header.seq, size, left, bytes);
                        }
                        Passing::Packet { .. } => check.passed(),
                    });
                    taken.expect("a good stream");
                }
                assert_eq!(check.corrupted(), Some(want), "{changed:?}, pieces of {cut}");
            }
        }
    }
}
