//! The log server: how a log is announced on its signalling channel, and the records on the data
//! channel.

use super::message::{PATH_LEN, put_path};
use crate::log::{LogRecord, RECORD_LEN};
use crate::send::LogProto;

/// Bytes of a request.
pub const LOG_REQUEST_LEN: usize = 4 + PATH_LEN;
/// Most records in a datagram: 65507 bytes. D-ITG never sends larger ones and loses them.
pub const UDP_RECORDS_MAX: usize = 454;
/// Longest file name that is taken from a peer, in bytes.
const NAME_MAX: usize = 100;

/// Request of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogRequest {
    /// Transport of the records.
    pub proto: LogProto,
    /// True if the log ends. The other fields mean nothing then.
    pub stop: bool,
    /// Path at the server, as sent; not to be trusted.
    pub path: Vec<u8>,
}

/// The text of a path field, up to its NUL.
pub(super) fn log_path(field: &[u8; PATH_LEN]) -> Vec<u8> {
    let end = field.iter().position(|&b| b == 0).unwrap_or(PATH_LEN - 1);
    field[..end].to_vec()
}

/// The name of the file, without any folder, that a path sent by a peer may have in our folder for
/// logs: its last part, when that is an ordinary name. `None`: to be refused.
#[must_use]
pub fn log_file_name(path: &[u8]) -> Option<&str> {
    let name = std::str::from_utf8(path).ok()?.rsplit('/').next()?;
    let ordinary = |b: u8| b.is_ascii_alphanumeric() || b"._-+=,@ ".contains(&b);
    let fits = !name.is_empty() && name.len() <= NAME_MAX && !name.starts_with(['.', ' ', '-']);
    (fits && name.bytes().all(ordinary)).then_some(name)
}

impl LogRequest {
    /// The request as it travels, NUL-filled.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let proto = if self.proto == LogProto::Tcp { 1 } else { 2 };
        let mut out = vec![proto, u8::from(self.stop), 0, 0];
        put_path(&self.path, &mut out);
        out
    }

    /// Reads a request; `None` for a transport that is none.
    #[must_use]
    pub fn decode(bytes: &[u8; LOG_REQUEST_LEN]) -> Option<Self> {
        let stop = bytes[1] != 0;
        let proto = match bytes[0] {
            1 => LogProto::Tcp,
            2 => LogProto::Udp,
            _ if stop => LogProto::Udp,
            _ => return None,
        };
        Some(Self { proto, stop, path: log_path(bytes[4..].as_array()?) })
    }
}

/// Records as they travel.
pub fn block(records: &[LogRecord]) -> Vec<u8> {
    records.iter().flat_map(LogRecord::emit_transit).collect()
}

/// Bytes of a log in transit as bytes of a log file; a part of a record at the end stays in `bytes`.
#[must_use]
pub fn to_file(bytes: &mut Vec<u8>) -> Vec<u8> {
    let (records, rest) = bytes.as_chunks::<RECORD_LEN>();
    let file = records.iter().flat_map(|r| LogRecord::parse_transit(r).emit()).collect();
    *bytes = rest.to_vec();
    file
}

/// Inputs of the server's side from its driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogServerInput<'a> {
    /// A client connected.
    Connected,
    /// It said this.
    Bytes(&'a [u8]),
    /// The answer to [`LogServerOutput::Open`]: the data port, on which the server already listens;
    /// `None` refuses.
    Opened(Option<u16>),
    /// The answer to [`LogServerOutput::Drain`].
    Drained,
    /// The client closed, broke off, or was silent for too long before its request.
    Lost,
}

/// Actions that the server's side asks of its driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogServerOutput {
    /// Send this.
    Send(Vec<u8>),
    /// Open the log and listen for its records.
    Open(LogRequest),
    /// Take what is still on its way, for a short time, then close the log.
    Drain,
    /// Close the connection; nothing follows.
    Close,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ServerState {
    New,
    Asking,
    Opening,
    Open,
    Draining,
    Over,
}

/// One client at the log server. A driver gives up a client without a request after some seconds.
#[derive(Clone, Debug)]
pub struct LogServerSession {
    state: ServerState,
    request: Vec<u8>,
    /// The client has gone while its log was being opened.
    lost: bool,
}

impl Default for LogServerSession {
    fn default() -> Self {
        Self { state: ServerState::New, request: Vec::new(), lost: false }
    }
}

impl LogServerSession {
    /// Takes one input; appends what is to be done.
    pub fn handle(&mut self, input: LogServerInput<'_>, out: &mut Vec<LogServerOutput>) {
        use LogServerInput as In;
        use LogServerOutput as Out;
        use ServerState as State;
        match (self.state, input) {
            (State::New, In::Connected) => {
                self.state = State::Asking;
                out.push(Out::Send(vec![1]));
            }
            (State::Asking, In::Bytes(bytes)) => {
                let take = bytes.len().min(LOG_REQUEST_LEN - self.request.len());
                self.request.extend_from_slice(&bytes[..take]);
                let Some(request) = self.request.as_array() else { return };
                match LogRequest::decode(request).filter(|request| !request.stop) {
                    Some(request) => {
                        self.state = State::Opening;
                        self.lost = take < bytes.len();
                        out.push(Out::Open(request));
                    }
                    None => self.close(out),
                }
            }
            (State::Opening, In::Opened(Some(port))) => {
                out.push(Out::Send(u32::from(port).to_be_bytes().to_vec()));
                self.state = State::Open;
                if self.lost {
                    self.drain(out);
                }
            }
            (State::Opening, In::Opened(None)) => self.close(out),
            // Whatever comes now ends the log: a stop message, anything else, the end.
            (State::Opening, In::Bytes(_) | In::Lost) => self.lost = true,
            (State::Open, In::Bytes(_) | In::Lost) => self.drain(out),
            (State::Draining, In::Drained) => self.close(out),
            (State::New | State::Asking, In::Lost) => self.close(out),
            _ => {}
        }
    }

    fn drain(&mut self, out: &mut Vec<LogServerOutput>) {
        self.state = ServerState::Draining;
        out.push(LogServerOutput::Drain);
    }

    fn close(&mut self, out: &mut Vec<LogServerOutput>) {
        self.state = ServerState::Over;
        out.push(LogServerOutput::Close);
    }
}

/// Actions that the client's side of a log server asks of its driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogClientOutput {
    /// Send this.
    Send(Vec<u8>),
    /// Connect to this data port; over TCP again and again for some seconds, since D-ITG's server
    /// listens only after it has said so.
    Ready(u16),
    /// The server does not speak the protocol: close.
    Failed,
}

/// The client's side of a log server.
#[derive(Clone, Debug)]
pub struct LogClient {
    request: LogRequest,
    greeted: bool,
    port: Vec<u8>,
}

impl LogClient {
    /// A client that will ask for a log.
    #[must_use]
    pub const fn new(proto: LogProto, path: Vec<u8>) -> Self {
        Self { request: LogRequest { proto, stop: false, path }, greeted: false, port: Vec::new() }
    }

    /// Takes what the server said.
    pub fn bytes(&mut self, mut bytes: &[u8], out: &mut Vec<LogClientOutput>) {
        if !self.greeted {
            let Some((&greeting, rest)) = bytes.split_first() else { return };
            self.greeted = true;
            if greeting != 1 {
                // Nothing more is read.
                self.port.resize(4, 0);
                out.push(LogClientOutput::Failed);
                return;
            }
            out.push(LogClientOutput::Send(self.request.encode()));
            bytes = rest;
        }
        if self.port.len() >= 4 {
            return;
        }
        self.port.extend_from_slice(&bytes[..bytes.len().min(4 - self.port.len())]);
        if let Ok(port) = <[u8; 4]>::try_from(self.port.as_slice()) {
            out.push(match u16::try_from(u32::from_be_bytes(port)) {
                Ok(port) if port > 0 => LogClientOutput::Ready(port),
                _ => LogClientOutput::Failed,
            });
        }
    }

    /// The message that ends the log, once all records are sent.
    #[must_use]
    pub fn stop(&self) -> Vec<u8> {
        LogRequest { stop: true, path: Vec::new(), ..self.request.clone() }.encode()
    }
}
