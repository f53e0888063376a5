//! Frames of signalling connections: a length of 4 bytes, little-endian, and so many bytes.
//!
//! Memory grows with what has come, never with what was announced. Who has not greeted has room for a greeting alone;
//! long frames that have not come whole share one room.

use std::io;
use std::sync::Arc;

use bytes::{Buf as _, Bytes, BytesMut};
use itg_session::MAX_MESSAGE;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::codec::{Decoder, Encoder};

/// Longest frame before the greeting.
const GREETING: usize = 4 << 10;
/// Longest frame that needs no part of the room.
const SHORT: usize = 64 << 10;
/// Room of the long frames of all connections, in KiB.
const ROOM_KIB: usize = 64 << 10;

/// Room for the long frames of several connections.
#[derive(Clone, Debug)]
pub(crate) struct FrameRoom(Arc<Semaphore>);

impl Default for FrameRoom {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(ROOM_KIB)))
    }
}

/// Frames of one connection.
#[derive(Debug)]
pub(crate) struct Frames {
    most: usize,
    room: FrameRoom,
    /// Part of the room that the frame on its way has.
    held: Option<OwnedSemaphorePermit>,
}

impl Frames {
    /// Those of a peer of our own choice.
    pub(crate) fn of_peer() -> Self {
        Self { most: MAX_MESSAGE, room: FrameRoom::default(), held: None }
    }

    /// Those of a stranger: short until [`Frames::greeted`].
    pub(crate) fn of_stranger(room: &FrameRoom) -> Self {
        Self { most: GREETING, room: room.clone(), held: None }
    }

    /// Takes messages of any length from here on.
    pub(crate) const fn greeted(&mut self) {
        self.most = MAX_MESSAGE;
    }
}

impl Decoder for Frames {
    type Item = BytesMut;
    type Error = io::Error;

    fn decode(&mut self, bytes: &mut BytesMut) -> io::Result<Option<BytesMut>> {
        let Some(head) = bytes.first_chunk() else { return Ok(None) };
        let len = u32::from_le_bytes(*head) as usize;
        if len > self.most {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the frame is too long"));
        }
        if bytes.len() < head.len() + len {
            if len > SHORT && self.held.is_none() {
                let kib = u32::try_from(len.div_ceil(1024)).unwrap_or(u32::MAX);
                let held = Arc::clone(&self.room.0).try_acquire_many_owned(kib);
                let full = "too many long messages are on their way; try later";
                self.held = Some(held.map_err(|_| io::Error::other(full))?);
            }
            return Ok(None);
        }
        bytes.advance(size_of::<u32>());
        self.held = None;
        Ok(Some(bytes.split_to(len)))
    }
}

impl Encoder<Bytes> for Frames {
    type Error = io::Error;

    fn encode(&mut self, frame: Bytes, out: &mut BytesMut) -> io::Result<()> {
        let len = u32::try_from(frame.len()).map_err(io::Error::other)?;
        out.extend_from_slice(&len.to_le_bytes());
        out.extend_from_slice(&frame);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begun(len: usize) -> BytesMut {
        BytesMut::from(&u32::try_from(len).expect("32 bits").to_le_bytes()[..])
    }

    #[test]
    fn frames_come_as_they_were_sent() {
        let (mut frames, mut bytes) = (Frames::of_peer(), BytesMut::new());
        let sent = [0, 1, SHORT, MAX_MESSAGE].map(|len| Bytes::from(vec![7; len]));
        for frame in &sent {
            frames.encode(frame.clone(), &mut bytes).expect("room");
        }
        let all = bytes.split();
        let mut got = Vec::new();
        for piece in all.chunks(1000) {
            bytes.extend_from_slice(piece);
            while let Some(frame) = frames.decode(&mut bytes).expect("a frame") {
                got.push(frame.freeze());
            }
        }
        assert_eq!(got, sent);
        assert!(bytes.is_empty() && frames.held.is_none());
    }

    #[test]
    fn strangers_have_room_for_a_greeting_and_share_the_rest() {
        let room = FrameRoom::default();
        let mut first = Frames::of_stranger(&room);
        assert!(first.decode(&mut begun(GREETING)).expect("room").is_none());
        let error = first.decode(&mut begun(GREETING + 1)).expect_err("no greeting is so long");
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        let many = || (0..100).map(|_| Frames::of_stranger(&room)).collect::<Vec<_>>();
        let mut all = many();
        let begin = |all: &mut [Frames], len| {
            all.iter_mut().map(Frames::greeted).count();
            all.iter_mut().filter_map(|frames| frames.decode(&mut begun(len)).err()).count()
        };
        assert_eq!(begin(&mut all, MAX_MESSAGE), 100 - 64);
        // Their room is that of the others when they go; short ones need none.
        assert_eq!(begin(&mut many(), SHORT), 0);
        assert_eq!(begin(&mut many(), SHORT + 1), 100);
        drop(all);
        assert_eq!(begin(&mut many(), SHORT + 1), 0);
    }
}
