//! Signalling connections: frames on TCP, and the common parts of both drivers.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use futures_util::SinkExt;
use itg_session::{CodecError, MAX_MESSAGE, Message};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};
use tokio_stream::StreamExt;
use tokio_util::codec::{Framed, LengthDelimitedCodec};

use crate::clock;

/// How long a peer may take to accept a message.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);

/// What came in on a signalling connection.
pub(crate) enum Heard {
    /// A message.
    Message(Message),
    /// Bytes that are no message.
    Garbage(CodecError),
    /// The end, in the system's words.
    Lost(String),
}

/// A signalling connection.
pub(crate) struct Channel {
    framed: Framed<TcpStream, LengthDelimitedCodec>,
    /// When the last message was read, Unix nanoseconds.
    heard_unix_ns: u64,
}

impl Channel {
    pub(crate) fn new(stream: TcpStream) -> Self {
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "TCP_NODELAY on a signalling connection");
        }
        let codec = LengthDelimitedCodec::builder()
            .little_endian()
            .max_frame_length(MAX_MESSAGE)
            .new_codec();
        Self { framed: Framed::new(stream, codec), heard_unix_ns: 0 }
    }

    /// Waits for the next message. Dropping the future loses nothing.
    pub(crate) async fn hear(&mut self) -> Heard {
        match self.framed.next().await {
            None => Heard::Lost("the connection was closed".to_owned()),
            Some(Err(error)) if error.kind() == io::ErrorKind::InvalidData => {
                Heard::Garbage(CodecError::TooLong)
            }
            Some(Err(error)) => Heard::Lost(error.to_string()),
            Some(Ok(frame)) => {
                self.heard_unix_ns = clock::unix_ns();
                match itg_session::decode(&frame) {
                    Ok(message) => Heard::Message(message),
                    Err(error) => Heard::Garbage(error),
                }
            }
        }
    }

    /// Writes a message; waits at most five seconds.
    pub(crate) async fn say(&mut self, mut message: Message) -> Result<(), String> {
        message.stamp(self.heard_unix_ns, clock::unix_ns());
        let bytes = itg_session::encode(&message).map_err(|error| error.to_string())?;
        match timeout(WRITE_TIMEOUT, self.framed.send(Bytes::from(bytes))).await {
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
