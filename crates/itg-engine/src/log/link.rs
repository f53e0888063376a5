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
            Err(error) => return tell(events, NetEvent::Lost(connection, why_lost(&error))),
        }
    }
}

/// Reason for which a connection is lost, for people. Whoever looks first hears of it: the reader, or the writer at its
/// next words.
pub(super) fn why_lost(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::UnexpectedEof => "the server closed the connection".to_owned(),
        ErrorKind::InvalidData => itg_trust::explain(error, "a log server"),
        _ => error.to_string(),
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

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::sync::Arc;

    use rustls::{ClientConfig, ClientConnection, RootCertStore, crypto};

    use super::*;

    /// A server refuses keys after a client's handshake: then the client may already be writing.
    #[test]
    fn a_writer_knows_what_an_alert_means() {
        let provider = Arc::new(crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions of TLS")
            .with_root_certificates(RootCertStore::empty())
            .with_no_client_auth();
        let client = ClientConnection::new(Arc::new(config), itg_trust::server_name());
        let mut client = client.expect("a client");
        // A fatal alert: certificate_revoked.
        let alert = [21, 3, 3, 0, 2, 2, 44];
        assert_eq!(client.read_tls(&mut &alert[..]).expect("bytes"), alert.len());
        client.process_new_packets().expect_err("an alert");
        let error = client.writer().write(b"words").expect_err("it is over");
        let why = why_lost(&error);
        assert!(why.starts_with("the keys have been revoked"), "{why}");
    }
}
