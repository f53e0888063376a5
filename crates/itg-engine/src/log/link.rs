//! The threads of a connection to a log server: one connects, one reads.

use std::io::{self, BufReader, ErrorKind, Read};
use std::net::TcpStream;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use itg_session::logs::{self, FrameHead, LogCodecError, LogMessage};

use super::line::{Line, LineReader};
use super::queue::{Job, NetEvent};
use super::target::LogServerTarget;

/// Time limit of connecting, and of a write.
pub(super) const NET_TIMEOUT: Duration = Duration::from_secs(5);

pub(super) fn connect(target: &LogServerTarget, connection: u64, events: &SyncSender<Job>) {
    let address = target.address;
    let event = match open(target) {
        Ok(line) => NetEvent::Connected(connection, line),
        Err(why) => NetEvent::Lost(connection, format!("no log server at {address}: {why}")),
    };
    tell(events, event);
}

/// Connects and, with keys, proves who we are.
fn open(target: &LogServerTarget) -> Result<Line, String> {
    let stream = TcpStream::connect_timeout(&target.address, NET_TIMEOUT)
        .and_then(|stream| stream.set_nodelay(true).map(|()| stream))
        .map_err(|error| error.to_string())?;
    let line = match &target.keys {
        Some(keys) => Line::proved(stream, keys, NET_TIMEOUT)?,
        None => Line::plain(stream),
    };
    line.limit_writes(NET_TIMEOUT).map_err(|error| error.to_string())?;
    Ok(line)
}

/// Tells the writer; it outlives its network threads.
fn tell(events: &SyncSender<Job>, event: NetEvent) {
    drop(events.send(Job::Heard(event)));
}

/// Reads what the server says until the connection ends.
pub(super) fn read(stream: LineReader, connection: u64, events: &SyncSender<Job>) {
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
                    ErrorKind::InvalidData => itg_trust::explain(&error, "a log server"),
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
    // A server sends no blocks.
    let head = match FrameHead::parse(head, 0) {
        Ok(head) => head,
        Err(error) => return Ok(Err(error)),
    };
    let mut bytes = vec![0; head.len as usize];
    stream.read_exact(&mut bytes)?;
    Ok(logs::decode(&bytes))
}
