//! Address of a log server, and the use made of it.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use itg_record::{BLOCK_HEADER_LEN, RECORD_LEN};
use itg_session::logs::{LogProducerConfig, ProducerTimeouts, Registration, Role, Transport};
use itg_socket::host;
use itg_socket::socket::{self, SocketError};
use itg_trust::{KeyDir, Role as KeyRole};

use super::limits::LogLimits;

/// Port of log servers.
pub const LOG_PORT: u16 = 9003;
/// Room for notes: descriptions of flows.
const NOTE_BYTES: usize = 32 << 10;

/// A log server and how to use it.
#[derive(Clone, Debug)]
pub struct LogServerTarget {
    /// Transport of blocks.
    pub transport: Transport,
    /// Signalling address.
    pub address: SocketAddr,
    /// Name of the experiment at the server: one file for all logs of that name.
    pub run: String,
    /// Side of the experiment that logs.
    pub role: Role,
    /// Secret that both sides share.
    pub secret: Option<Vec<u8>>,
    /// Keys with which both ends prove who they are, and which seal what they say (TLS); without them the
    /// connection is plain.
    pub keys: Option<KeyDir>,
    /// File for blocks while the server is away; without one they wait in memory.
    pub spool: Option<PathBuf>,
}

/// The place of a log server: `tls://HOST:PORT`, `tcp://HOST:PORT` or `udp://HOST:PORT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogUrl {
    /// Transport of blocks.
    pub transport: Transport,
    /// True if both ends prove with keys who they are, and seal what they say.
    pub tls: bool,
    /// Signalling address.
    pub address: SocketAddr,
    /// Name of the experiment there, if one was chosen.
    pub name: Option<String>,
}

/// Longest name of an experiment that may be chosen, in bytes.
const MAX_NAME: usize = 96;

impl LogUrl {
    /// Checks a name that people choose for an experiment at a log server: it is the name of a file there.
    ///
    /// # Errors
    /// A name that is none of a file.
    pub fn check_name(name: &str) -> Result<(), String> {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        let good = !name.is_empty() && name.len() <= MAX_NAME && name.chars().all(plain);
        match good && !name.starts_with('.') {
            true => Ok(()),
            false => Err(format!(
                "log name `{}`: expected 1 to {MAX_NAME} letters, digits, `-`, `_` and `.`, not beginning with `.`",
                name.escape_debug()
            )),
        }
    }

    /// The keys for a connection to it, out of those that there are.
    ///
    /// # Errors
    /// It needs keys, and there are none; keys of a node that sends no logs.
    pub fn keys(&self, keys: Option<&KeyDir>) -> Result<Option<KeyDir>, String> {
        if !self.tls {
            return Ok(None);
        }
        let Some(keys) = keys else {
            return Err(format!(
                "log server tls://{}: both ends prove who they are, with keys that `itg-cluster keys` makes: name \
                 their directory with --keys DIR",
                self.address
            ));
        };
        keys.must_be(&MAY_SEND).map_err(|error| error.to_string())?;
        Ok(Some(keys.clone()))
    }
}

/// Roles of nodes that may send logs.
pub const MAY_SEND: [KeyRole; 2] = [KeyRole::Agent, KeyRole::Console];

impl FromStr for LogUrl {
    type Err = SocketError;

    fn from_str(text: &str) -> Result<Self, SocketError> {
        let (transport, tls, rest) = match text.split_once("://") {
            Some(("tls", rest)) => (Transport::Tcp, true, rest),
            Some(("tcp", rest)) => (Transport::Tcp, false, rest),
            Some(("udp", rest)) => (Transport::Udp, false, rest),
            _ => {
                return Err(SocketError::new(
                    format!("log server `{text}`"),
                    "write tls://HOST:PORT, tcp://HOST:PORT or udp://HOST:PORT",
                ));
            }
        };
        let (host, name) = match rest.split_once('/') {
            Some((host, "")) => (host, None),
            Some((host, name)) => (host, Some(name)),
            None => (rest, None),
        };
        if let Some(name) = name {
            Self::check_name(name)
                .map_err(|why| SocketError::new(format!("log server `{text}`"), why))?;
        }
        let name = name.map(str::to_owned);
        Ok(Self { transport, tls, address: socket::resolve(host, LOG_PORT)?, name })
    }
}

impl fmt::Display for LogServerTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, experiment {}", self.url(), self.run)
    }
}

impl LogServerTarget {
    /// Place of the server.
    pub(super) fn url(&self) -> String {
        let scheme = match self.transport {
            Transport::Tcp if self.keys.is_some() => "tls",
            Transport::Tcp => "tcp",
            Transport::Udp => "udp",
        };
        format!("{scheme}://{}", self.address)
    }

    /// The limits of this log: over UDP what is handed over at once fills datagrams.
    pub(super) fn limits(&self, limits: LogLimits) -> LogLimits {
        match self.transport {
            Transport::Tcp => limits,
            Transport::Udp => {
                let datagrams = (limits.block_records / limits.datagram_records).max(1);
                LogLimits { block_records: datagrams * limits.datagram_records, ..limits }
            }
        }
    }
}

/// The answer to a server's challenge: HMAC-SHA-256 (RFC 2104) under the shared secret.
pub fn prove(secret: &[u8], text: &[u8]) -> [u8; 32] {
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, secret);
    let mut proof = [0; 32];
    proof.copy_from_slice(ring::hmac::sign(&key, text).as_ref());
    proof
}

/// Makes the registration of this producer, under a key of its own.
pub(super) fn registration(target: &LogServerTarget, limits: LogLimits) -> Registration {
    let block_records = match target.transport {
        Transport::Tcp => limits.block_records,
        Transport::Udp => limits.datagram_records,
    };
    let block_bytes = (BLOCK_HEADER_LEN + block_records * RECORD_LEN).max(NOTE_BYTES);
    let mut key = [0; 16];
    key[..8].copy_from_slice(&host::random_u64().to_le_bytes());
    key[8..].copy_from_slice(&host::random_u64().to_le_bytes());
    Registration {
        key,
        run: target.run.clone(),
        host: host::name(),
        program: concat!("itg ", env!("CARGO_PKG_VERSION")).to_owned(),
        role: target.role,
        flows: 0,
        record_schema: itg_record::RECORD_SCHEMA,
        transport: target.transport,
        block_records: u32::try_from(block_records).unwrap_or(u32::MAX),
        block_bytes: u32::try_from(block_bytes).unwrap_or(u32::MAX),
        clock_offset_ns: None,
        uncertainty_ns: None,
        next_block: 0,
    }
}

/// Makes the configuration of the producer's machine.
pub(super) fn producer_config(
    who: Registration,
    memory_blocks: usize,
    patience_ns: Option<u64>,
) -> LogProducerConfig {
    LogProducerConfig {
        who,
        max_unacked: 1024,
        memory_blocks: u32::try_from(memory_blocks).unwrap_or(u32::MAX),
        patience_ns,
        timeouts: ProducerTimeouts::default(),
    }
}
