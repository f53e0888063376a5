//! The threads of a connection to a log server: one connects, one reads.

use std::io::{self, BufReader, ErrorKind, Read};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use itg_session::logs::{self, LogCodecError, LogMessage, MAX_LOG_MESSAGE};

use super::queue::{Job, NetEvent};

/// The bit of a frame's length that says: a block, not a message.
pub const BLOCK_BIT: u32 = 1 << 31;
/// Time limit of connecting, and of a write.
pub(super) const NET_TIMEOUT: Duration = Duration::from_secs(5);

pub(super) fn connect(address: SocketAddr, connection: u64, events: &SyncSender<Job>) {
    let event = match TcpStream::connect_timeout(&address, NET_TIMEOUT) {
        Ok(stream) => NetEvent::Connected(connection, stream),
        Err(error) => NetEvent::Lost(connection, format!("no log server at {address}: {error}")),
    };
    tell(events, event);
}

/// Tells the writer; it outlives its network threads.
fn tell(events: &SyncSender<Job>, event: NetEvent) {
    drop(events.send(Job::Heard(event)));
}

/// Reads what the server says until the connection ends.
pub(super) fn read(stream: TcpStream, connection: u64, events: &SyncSender<Job>) {
    let mut stream = BufReader::new(stream);
    loop {
        match read_frame(&mut stream) {
            Ok(message) => {
                let garbage = message.is_err();
                tell(events, NetEvent::Heard(connection, message));
                if garbage {
                    return;
                }
            }
            Err(error) => {
                let why = match error.kind() {
                    ErrorKind::UnexpectedEof => "the server closed the connection".to_owned(),
                    _ => error.to_string(),
                };
                return tell(events, NetEvent::Lost(connection, why));
            }
        }
    }
}

fn read_frame(stream: &mut impl Read) -> io::Result<Result<LogMessage, LogCodecError>> {
    let mut head = [0; 4];
    stream.read_exact(&mut head)?;
    let len = u32::from_le_bytes(head) as usize;
    if len > MAX_LOG_MESSAGE {
        return Ok(Err(LogCodecError::TooLong));
    }
    let mut bytes = vec![0; len];
    stream.read_exact(&mut bytes)?;
    Ok(logs::decode(&bytes))
}
