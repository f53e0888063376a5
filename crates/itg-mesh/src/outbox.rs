//! Queue of frames to be written to one byte stream: whole frames, within a limit of bytes.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice};

use bytes::Bytes;
use itg_process::frame::HEADER_LEN;

/// Frames that one system call takes at most.
const FRAMES_A_CALL: usize = 64;
/// A frame up to this length that goes alone is copied together: one piece is less work for the kernel.
pub(crate) const TOGETHER: usize = 512;

/// One frame, not copied together.
#[derive(Debug)]
struct Piece {
    head: [u8; HEADER_LEN],
    body: Bytes,
    ty: u32,
}

impl Piece {
    fn len(&self) -> usize {
        HEADER_LEN + self.body.len()
    }
}

/// State of an outbox after a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flushed {
    /// Nothing is left.
    All,
    /// The stream is full.
    Blocked,
}

/// Frames in their order.
#[derive(Debug)]
pub(crate) struct Outbox {
    pieces: VecDeque<Piece>,
    bytes: usize,
    limit: usize,
    /// Bytes of the first frame that are written.
    gone: usize,
}

impl Outbox {
    /// An empty one; one frame fits however long it is.
    pub(crate) const fn new(limit: usize) -> Self {
        Self { pieces: VecDeque::new(), bytes: 0, limit, gone: 0 }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Returns true if a frame with such a body may be appended.
    pub(crate) fn has_room(&self, body: usize) -> bool {
        self.pieces.is_empty() || self.bytes + HEADER_LEN + body <= self.limit
    }

    /// Appends a frame.
    pub(crate) fn push(&mut self, head: [u8; HEADER_LEN], body: Bytes, ty: u32) {
        let piece = Piece { head, body, ty };
        self.bytes += piece.len();
        self.pieces.push_back(piece);
    }

    /// The stream broke: a frame that was not written whole begins anew on the next one.
    pub(crate) const fn restart(&mut self) {
        self.gone = 0;
    }

    /// Takes everything out: type and body of each message.
    pub(crate) fn take(&mut self) -> impl Iterator<Item = (u32, Bytes)> + use<> {
        (self.bytes, self.gone) = (0, 0);
        std::mem::take(&mut self.pieces).into_iter().map(|piece| (piece.ty, piece.body))
    }

    /// Writes as much as the stream takes.
    ///
    /// # Errors
    /// The stream is broken.
    pub(crate) fn flush(
        &mut self,
        mut write: impl FnMut(&[IoSlice<'_>]) -> io::Result<usize>,
    ) -> io::Result<Flushed> {
        let mut together = [0; TOGETHER];
        while !self.pieces.is_empty() {
            if let (0, 1, Some(bytes)) = (self.gone, self.pieces.len(), self.alone(&mut together)) {
                match write(&[IoSlice::new(bytes)]) {
                    Ok(written) if written == bytes.len() => {
                        self.written(written);
                        return Ok(Flushed::All);
                    }
                    // Whatever else happens happens again below.
                    Ok(written) => self.written(written),
                    Err(_) => {}
                }
            }
            let mut slices = [IoSlice::new(&[]); 2 * FRAMES_A_CALL];
            let mut skip = self.gone;
            let mut used = 0;
            for piece in self.pieces.iter().take(FRAMES_A_CALL) {
                for part in [&piece.head[..], &piece.body[..]] {
                    let passed = skip.min(part.len());
                    skip -= passed;
                    if passed < part.len() {
                        slices[used] = IoSlice::new(&part[passed..]);
                        used += 1;
                    }
                }
            }
            match write(&slices[..used]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(written) => self.written(written),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(Flushed::Blocked),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Flushed::All)
    }

    /// The first frame in one piece, when it is short.
    fn alone<'a>(&self, into: &'a mut [u8; TOGETHER]) -> Option<&'a [u8]> {
        let piece = self.pieces.front()?;
        joined(&piece.head, &piece.body, into)
    }

    fn written(&mut self, count: usize) {
        self.gone += count;
        while let Some(first) = self.pieces.front()
            && self.gone >= first.len()
        {
            self.gone -= first.len();
            self.bytes -= first.len();
            self.pieces.pop_front();
        }
    }
}

/// A frame in one piece, when it is short.
pub(crate) fn joined<'a>(
    head: &[u8; HEADER_LEN],
    body: &[u8],
    into: &'a mut [u8; TOGETHER],
) -> Option<&'a [u8]> {
    let len = HEADER_LEN + body.len();
    let bytes = into.get_mut(..len)?;
    bytes[..HEADER_LEN].copy_from_slice(head);
    bytes[HEADER_LEN..].copy_from_slice(body);
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use itg_process::{Message, Slot, frame};

    use super::*;

    fn filled(bodies: &[usize], limit: usize) -> (Outbox, Vec<u8>) {
        let mut outbox = Outbox::new(limit);
        let mut want = Vec::new();
        for (k, &len) in bodies.iter().enumerate() {
            let message = Message::new(Slot(1), 7, vec![u8::try_from(k).expect("few"); len]);
            let head = frame::head(&message, 1, 0);
            want.extend_from_slice(&head);
            want.extend_from_slice(&message.body);
            outbox.push(head, message.body, 7);
        }
        (outbox, want)
    }

    #[test]
    fn a_stream_that_takes_a_little_at_a_time_gets_the_same_bytes() {
        for step in [1, 5, 35, 36, 37, 100, 10_000] {
            let (mut outbox, want) = filled(&[0, 1, 500, 3, 0], 1000);
            let mut got = Vec::new();
            let mut calls = 0;
            let mut write = |slices: &[IoSlice<'_>]| {
                calls += 1;
                if calls % 3 == 0 {
                    return Err(ErrorKind::WouldBlock.into());
                }
                let all = slices.iter().flat_map(|slice| slice.iter().copied());
                let before = got.len();
                got.extend(all.take(step));
                Ok(got.len() - before)
            };
            while outbox.flush(&mut write).expect("whole") == Flushed::Blocked {}
            assert_eq!(got, want, "{step} bytes a call");
            assert!(outbox.is_empty() && outbox.has_room(1_000_000));
        }
    }

    #[test]
    fn the_limit_counts_whole_frames_and_lets_one_pass() {
        let (outbox, _) = filled(&[100], 200);
        assert!(outbox.has_room(28) && !outbox.has_room(29));
        assert!(Outbox::new(10).has_room(1000), "an empty one takes any frame");
    }

    #[test]
    fn a_frame_that_was_cut_begins_anew_on_the_next_stream() {
        let (mut outbox, want) = filled(&[10, 10], 1000);
        let mut left = 50;
        let cut = outbox.flush(|slices| match left {
            0 => Err(ErrorKind::BrokenPipe.into()),
            _ => {
                let len: usize = slices.iter().map(|slice| slice.len()).sum();
                let taken = len.min(left);
                left -= taken;
                Ok(taken)
            }
        });
        assert_eq!(cut.expect_err("broken").kind(), ErrorKind::BrokenPipe);
        outbox.restart();
        let mut got = Vec::new();
        let all = |slices: &[IoSlice<'_>]| {
            slices.iter().for_each(|slice| got.extend_from_slice(slice));
            Ok(slices.iter().map(|slice| slice.len()).sum())
        };
        assert_eq!(outbox.flush(all).expect("whole"), Flushed::All);
        assert_eq!(got, want[46..], "the first frame went whole, the second one goes again");
        let (mut outbox, _) = filled(&[10, 20], 1000);
        let lens: Vec<_> = outbox.take().map(|(ty, body)| (ty, body.len())).collect();
        assert_eq!((lens, outbox.is_empty()), (vec![(7, 10), (7, 20)], true));
    }
}
