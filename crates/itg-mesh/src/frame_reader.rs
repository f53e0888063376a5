//! Frames out of a byte stream, and the messages of the bootstrap on it.

use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::{Buf as _, Bytes, BytesMut};
use itg_process::bootstrap::{BOOT, Boot};
use itg_process::frame::{self, Frame, FrameError};
use itg_process::{Message, Slot};
use itg_socket::{clock, sys};
use socket2::Socket;

/// Bytes that one read asks for at least.
const CHUNK: usize = 128 << 10;
/// Bodies up to this length are copied out of what was read: the owner of a short message does not
/// keep the [`CHUNK`] around it.
const COPIED: usize = 4096;
/// Time that one blocking call may wait before the thread checks that it is still wanted.
pub(crate) const SLICE: Duration = Duration::from_millis(250);

/// Bytes read from a stream that are no whole frame yet.
#[derive(Debug)]
pub(crate) struct FrameReader {
    buffer: BytesMut,
    max_body: usize,
}

impl FrameReader {
    pub(crate) fn new(max_body: usize) -> Self {
        Self { buffer: BytesMut::new(), max_body }
    }

    /// Another limit from here on.
    pub(crate) const fn limit(&mut self, max_body: usize) {
        self.max_body = max_body;
    }

    /// Reads once; 0 is the end of the stream. The buffer grows with what comes, not with what a frame
    /// says about itself.
    ///
    /// # Errors
    /// The stream is broken; `WouldBlock` when nothing came in time.
    pub(crate) fn fill(&mut self, socket: &Socket) -> io::Result<usize> {
        sys::receive(socket, self.buffer())
    }

    /// The buffer with room for what comes next.
    pub(crate) fn buffer(&mut self) -> &mut BytesMut {
        if self.buffer.capacity() - self.buffer.len() < CHUNK / 2 {
            self.buffer.reserve(CHUNK);
        }
        &mut self.buffer
    }

    /// The next whole frame.
    ///
    /// # Errors
    /// Bytes that are no frame.
    pub(crate) fn next(&mut self, me: Slot) -> Result<Option<Frame>, FrameError> {
        let Some(extent) = frame::extent(&self.buffer, self.max_body)? else { return Ok(None) };
        if self.buffer.len() < extent {
            return Ok(None);
        }
        let bytes = self.buffer.split_to(extent).freeze();
        Ok(frame::decode(&bytes, me, self.max_body)?.map(|(frame, _)| unpinned(frame)))
    }

    /// All whole frames.
    ///
    /// # Errors
    /// Bytes that are no frame; the frames before them are there.
    pub(crate) fn all(&mut self, me: Slot, into: &mut Vec<Frame>) -> Result<(), FrameError> {
        let mut whole = 0;
        let end = loop {
            match frame::extent(&self.buffer[whole..], self.max_body) {
                Ok(Some(extent)) if self.buffer.len() - whole >= extent => whole += extent,
                Ok(_) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        let mut bytes = self.buffer.split_to(whole).freeze();
        while let Some((frame, taken)) = frame::decode(&bytes, me, self.max_body)? {
            into.push(unpinned(frame));
            bytes.advance(taken);
        }
        end
    }

    /// Waits for a message of the bootstrap, until `deadline_ns` of the machines' clock.
    ///
    /// # Errors
    /// In words: the stream is broken, silent or speaks otherwise.
    pub(crate) fn hear(
        &mut self,
        socket: &Socket,
        deadline_ns: u64,
        closing: &AtomicBool,
    ) -> Result<Boot, String> {
        loop {
            if let Some(frame) = self.next(Slot(0)).map_err(|error| error.to_string())? {
                let Frame { message: Message { ty, body, .. }, .. } = frame;
                if ty != BOOT {
                    return Err(format!("a message of type {ty} instead of a greeting"));
                }
                return Boot::decode(&body).map_err(|error| error.to_string());
            }
            if closing.load(Ordering::Relaxed) {
                return Err("this process is closing".to_owned());
            }
            if clock::machine_ns() >= deadline_ns {
                return Err("nothing came in time".to_owned());
            }
            match self.fill(socket) {
                Ok(0) => return Err("the connection was closed".to_owned()),
                Ok(_) => {}
                Err(error) if is_pause(&error) => {}
                Err(error) => return Err(error.to_string()),
            }
        }
    }
}

/// Writes a message of the bootstrap.
///
/// # Errors
/// The stream is broken, or takes nothing for five seconds.
pub(crate) fn say(socket: &Socket, boot: &Boot) -> io::Result<()> {
    let mut bytes = BytesMut::new();
    frame::encode(&Message::new(Slot(0), BOOT, boot.encode()), 0, 0, &mut bytes);
    let mut rest = &bytes[..];
    while !rest.is_empty() {
        match socket.send_with_flags(rest, libc::MSG_NOSIGNAL) {
            Ok(sent) => rest = &rest[sent..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Options of a connection: no delay for short messages, a limit for what waits on a host that has gone,
/// short waits.
pub(crate) fn prepare(socket: &Socket, tcp: bool) -> io::Result<()> {
    socket.set_nonblocking(false)?;
    socket.set_read_timeout(Some(SLICE))?;
    socket.set_write_timeout(Some(Duration::from_secs(5)))?;
    if tcp {
        socket.set_tcp_nodelay(true)?;
        socket.set_tcp_user_timeout(Some(Duration::from_secs(10)))?;
        let probes = socket2::TcpKeepalive::new().with_time(Duration::from_secs(5));
        socket.set_tcp_keepalive(&probes.with_interval(Duration::from_secs(2)).with_retries(3))?;
    }
    Ok(())
}

/// Returns true if a call came back because its time was over.
pub(crate) fn is_pause(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

fn unpinned(mut frame: Frame) -> Frame {
    let body = &mut frame.message.body;
    if body.len() <= COPIED {
        *body = Bytes::copy_from_slice(body);
    }
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_found_however_the_stream_is_cut() {
        let (near, far) = Socket::pair(socket2::Domain::UNIX, socket2::Type::STREAM, None).unwrap();
        let mut bytes = BytesMut::new();
        let bodies = [0, 1, 5000, 70_000, 0, 300_000];
        for len in bodies {
            frame::encode(&Message::new(Slot(3), 7, vec![9; len]), 4, 5, &mut bytes);
        }
        let bytes = bytes.freeze();
        for cut in [1000, 65_536, 190_000] {
            let (bytes, near) = (bytes.clone(), near.try_clone().unwrap());
            let writer = std::thread::spawn(move || {
                for piece in bytes.chunks(cut) {
                    io::Write::write_all(&mut &near, piece).unwrap();
                }
            });
            let mut reader = FrameReader::new(300_000);
            let mut frames = Vec::new();
            while frames.len() < bodies.len() {
                reader.fill(&far).unwrap();
                reader.all(Slot(1), &mut frames).unwrap();
            }
            let lens: Vec<_> = frames.iter().map(|frame| frame.message.body.len()).collect();
            assert_eq!(lens, bodies, "pieces of {cut} bytes");
            writer.join().unwrap();
        }
    }

    #[test]
    fn what_is_no_frame_ends_the_stream_after_what_was_whole() {
        let mut reader = FrameReader::new(100);
        frame::encode(&Message::new(Slot(3), 7, vec![9; 100]), 4, 5, &mut reader.buffer);
        reader.buffer.extend_from_slice(&u32::MAX.to_le_bytes());
        let mut frames = Vec::new();
        assert_eq!(reader.all(Slot(1), &mut frames), Err(FrameError::Length(u32::MAX)));
        assert_eq!(frames.len(), 1);
    }
}
