//! Signalling connections: frames on TCP, and the common parts of both drivers.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use itg_engine::clock_pair;
use itg_session::{CodecError, Message};
use itg_socket::{clock, sys};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};
use tokio_util::codec::Framed;

use crate::frames::{FrameRoom, Frames};

/// Event on a signalling connection.
pub(crate) enum Incoming {
    /// A message.
    Message(Message),
    /// Bytes that are no message.
    Garbage(CodecError),
    /// The end, in the system's words.
    Lost(String),
}

/// A signalling connection.
pub(crate) struct Channel {
    framed: Framed<Stamped, Frames>,
    /// Longest time in which the peer must accept a message.
    patience: Duration,
}

/// A connection that knows when the bytes read last arrived: by the kernel's stamp, so that it does not
/// matter when this program gets to read them.
struct Stamped {
    stream: TcpStream,
    arrived_unix_ns: u64,
    /// Number of times that bytes were read.
    reads: u64,
}

impl AsyncRead for Stamped {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            ready!(self.stream.poll_read_ready(cx))?;
            let room = buf.initialize_unfilled();
            let read = || sys::read_stamped(&self.stream, room);
            match self.stream.try_io(Interest::READABLE, read) {
                Ok((len, stamp)) => {
                    self.arrived_unix_ns = stamp.unwrap_or_else(clock::unix_ns);
                    self.reads += 1;
                    buf.advance(len);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl AsyncWrite for Stamped {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl Channel {
    /// A connection to a peer that may be silent for `patience`.
    pub(crate) fn new(stream: TcpStream, patience: Duration) -> Self {
        Self::with(stream, patience, Frames::of_peer())
    }

    /// A connection of a stranger, who is to be told a welcome before it may say much.
    pub(crate) fn of_stranger(stream: TcpStream, patience: Duration, room: &FrameRoom) -> Self {
        Self::with(stream, patience, Frames::of_stranger(room))
    }

    fn with(stream: TcpStream, patience: Duration, frames: Frames) -> Self {
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "TCP_NODELAY on a signalling connection");
        }
        if let Err(error) = sys::set_int(&stream, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1) {
            tracing::debug!(%error, "no kernel stamps on a signalling connection");
        }
        let stamped = Stamped { stream, arrived_unix_ns: 0, reads: 0 };
        Self { framed: Framed::new(stamped, frames), patience }
    }

    /// Waits for the next message. Dropping the future loses nothing.
    pub(crate) async fn hear(&mut self) -> Incoming {
        match self.framed.next().await {
            None => Incoming::Lost("the connection was closed".to_owned()),
            Some(Err(error)) if error.kind() == io::ErrorKind::InvalidData => {
                Incoming::Garbage(CodecError::TooLong)
            }
            Some(Err(error)) => Incoming::Lost(error.to_string()),
            Some(Ok(frame)) => match itg_session::decode(&frame) {
                Ok(message) => Incoming::Message(message),
                Err(error) => Incoming::Garbage(error),
            },
        }
    }

    /// Returns the arrival time of the last message's last byte, or of a slightly later byte, in Unix
    /// nanoseconds.
    pub(crate) fn heard_unix_ns(&self) -> u64 {
        self.framed.get_ref().arrived_unix_ns
    }

    /// Number of reads of the connection until the last message: messages with one number had all come by the first of
    /// them.
    pub(crate) fn reads(&self) -> u64 {
        self.framed.get_ref().reads
    }

    /// Writes a message; waits no longer than the peer may be silent.
    pub(crate) async fn say(&mut self, mut message: Message) -> Result<(), String> {
        if matches!(message, Message::Welcome { .. }) {
            self.framed.codec_mut().greeted();
        }
        message.stamp(self.heard_unix_ns(), clock_pair::reading());
        let bytes = itg_session::encode(&message).map_err(|error| error.to_string())?;
        match timeout(self.patience, self.framed.send(Bytes::from(bytes))).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err("it takes no more messages".to_owned()),
        }
    }

    /// Closes the connection after what was written has been handed to the kernel.
    pub(crate) async fn close(mut self) {
        let closing = SinkExt::<Bytes>::close(&mut self.framed);
        if let Ok(Err(error)) = timeout(Duration::from_secs(1), closing).await {
            tracing::debug!(%error, "closing a signalling connection");
        }
    }
}

/// Sleeps until a deadline of the state machines' time; for ever when there is none.
pub(crate) async fn sleep_until(deadline_ns: Option<u64>) {
    match deadline_ns {
        Some(deadline) => {
            let left = deadline.saturating_sub(clock::machine_ns());
            tokio::time::sleep_until(Instant::now() + clock::ns(left)).await;
        }
        None => std::future::pending().await,
    }
}
