//! Settings of a receiver.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use itg_core::flow::Proto;
use itg_engine::log::{LogLimits, LogQuota, LogTarget};
use itg_trust::KeyDir;
use tokio::sync::mpsc;

use super::limits::ReverseLimits;

/// Senders of one address at the same time, unless the user says otherwise.
pub const SENDERS_PER_ADDRESS: usize = 256;

/// Settings of a receiver.
#[derive(Clone, Debug)]
pub struct ReceiverOptions {
    /// Address that senders connect to; an unspecified address stands for all, of both IP versions.
    pub listen: SocketAddr,
    /// Data port of flows that do not ask for another one; 0 lets the system choose.
    pub data_port: u16,
    /// Receive buffer to ask for at each data socket of UDP and ICMP, in bytes; `None` stands for 8 MiB.
    pub receive_buffer: Option<usize>,
    /// Receiving threads, 1 to 64: flows of UDP are spread over them.
    pub shards: usize,
    /// Time for which the kernel may look for packets at the network card instead of sleeping, in
    /// microseconds (`SO_BUSY_POLL`).
    pub busy_poll_us: Option<u32>,
    /// Log of all flows.
    pub log: Option<LogTarget>,
    /// Block sizes of logs, and bound of the memory that each may hold.
    pub log_limits: LogLimits,
    /// Directory for logs that senders ask for; without it such requests are refused.
    pub log_dir: Option<PathBuf>,
    /// Bound on the size of these logs.
    pub log_quota: LogQuota,
    /// True if logs of D-ITG there are replaced by new ones of the same name, as D-ITG does.
    pub replace_logs: bool,
    /// True if senders may have their logs sent to a log server of their choice.
    pub allow_log_servers: bool,
    /// Addresses from which packets of flows may come beside where their senders signal from.
    pub allow_sources: Vec<IpAddr>,
    /// Secret of the log servers that senders choose.
    pub secret: Option<Vec<u8>>,
    /// Keys for those of them that are connected to over TLS.
    pub log_keys: Option<KeyDir>,
    /// Secret shared with senders whose packets prove where they come from.
    pub packet_secret: Option<Vec<u8>>,
    /// Limits of what it sends to peers that ask for flows; `None`: it sends nothing.
    pub reverse: Option<ReverseLimits>,
    /// Connections of one address at the same time.
    pub max_per_address: usize,
    /// End after the first sender has left.
    pub once: bool,
    /// Settings for senders of D-ITG.
    pub classic: ClassicReceiving,
    /// Name of the program, for peers and logs.
    pub program: String,
    /// Its version.
    pub version: String,
    /// Every resolved setting, for the log.
    pub settings: BTreeMap<String, String>,
}

/// Settings for senders of D-ITG.
#[derive(Clone, Debug, Default)]
pub struct ClassicReceiving {
    /// True if every sender is taken for one of D-ITG's; otherwise each is recognised.
    pub only: bool,
    /// Address for data; the one that the sender names when `None`.
    pub bind: Option<IpAddr>,
    /// Interface for data.
    pub interface: Option<String>,
    /// Interface for signalling.
    pub signalling_interface: Option<String>,
    /// Opening datagrams in passive mode.
    pub opening: u32,
    /// True if a sender in passive mode may name another address for data than its own.
    pub third_party: bool,
    /// Records written at a time in logs that senders ask for; 0 stands for D-ITG's 50.
    pub buffer: u16,
    /// Channel for the events.
    pub news: Option<mpsc::UnboundedSender<ClassicNews>>,
}

/// Event in a session with a sender of D-ITG.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClassicNews {
    /// A flow is awaited.
    Listening {
        /// Its protocol.
        proto: Proto,
        /// Its port.
        port: u16,
    },
    /// A flow has ended.
    Finished {
        /// Its protocol.
        proto: Proto,
        /// Its port.
        port: u16,
    },
    /// Something that its user should know.
    Notice(String),
}
