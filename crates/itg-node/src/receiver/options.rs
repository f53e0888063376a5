//! Settings of a receiver.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use itg_core::flow::Proto;
use itg_engine::log::{LogLimits, LogQuota, LogTarget};
use itg_session::Timeouts;
use itg_socket::xdp::FrameInputOptions;
use itg_trust::KeyDir;
use tokio::sync::mpsc;

use super::limits::ReverseLimits;
use crate::setters::setters;

/// Senders of one address at the same time, unless the user says otherwise.
pub const SENDERS_PER_ADDRESS: usize = 256;

/// Settings of a receiver: [`ReceiverOptions::new`], then what differs from its defaults.
#[derive(Clone, Debug)]
pub struct ReceiverOptions {
    /// Address that senders connect to; an unspecified address stands for all, of both IP versions.
    pub(crate) listen: SocketAddr,
    /// Data port of flows that do not ask for another one; 0 lets the system choose.
    pub(crate) data_port: u16,
    /// Receive buffer to ask for at each data socket of UDP and ICMP, in bytes; `None` stands for 32 MiB.
    pub(crate) receive_buffer: Option<usize>,
    /// Receiving threads, 1 to 64: flows of UDP are spread over them.
    pub(crate) shards: usize,
    /// Time for which the kernel may look for packets at the network card instead of sleeping, in
    /// microseconds (`SO_BUSY_POLL`).
    pub(crate) busy_poll_us: Option<u32>,
    /// Device whose frames are taken before its network stack, for UDP.
    pub(crate) frames: Option<FrameInputOptions>,
    /// Log of all flows.
    pub(crate) log: Option<LogTarget>,
    /// Block sizes of logs, and bound of the memory that each may hold.
    pub(crate) log_limits: LogLimits,
    /// Directory for logs that senders ask for; without it such requests are refused.
    pub(crate) log_dir: Option<PathBuf>,
    /// Bound on the size of these logs.
    pub(crate) log_quota: LogQuota,
    /// True if logs of D-ITG there are replaced by new ones of the same name, as D-ITG does.
    pub(crate) replace_logs: bool,
    /// True if senders may have their logs sent to a log server of their choice.
    pub(crate) allow_log_servers: bool,
    /// Addresses from which packets of flows may come beside where their senders signal from.
    pub(crate) allow_sources: Vec<IpAddr>,
    /// Secret of the log servers that senders choose.
    pub(crate) secret: Option<Vec<u8>>,
    /// Keys for those of them that are connected to over TLS.
    pub(crate) log_keys: Option<KeyDir>,
    /// Secret shared with senders whose packets prove where they come from.
    pub(crate) packet_secret: Option<Vec<u8>>,
    /// Compare payloads with those that flows should have.
    pub(crate) check_payload: bool,
    /// Limits of what it sends to peers that ask for flows; `None`: it sends nothing.
    pub(crate) reverse: Option<ReverseLimits>,
    /// Connections of one address at the same time.
    pub(crate) max_per_address: usize,
    /// Time for which a peer may be silent while packets flow.
    pub(crate) peer_timeout_ns: u64,
    /// End after the first sender has left.
    pub(crate) once: bool,
    /// Settings for senders of D-ITG.
    pub(crate) classic: ClassicReceiving,
    /// Name of the program, for peers and logs.
    pub(crate) program: String,
    /// Its version.
    pub(crate) version: String,
    /// Every resolved setting, for the log.
    pub(crate) settings: BTreeMap<String, String>,
}

impl ReceiverOptions {
    /// A receiver that listens at `listen` (port 0 lets the system choose) until it is stopped. It keeps no log,
    /// stores nothing that senders ask for, and sends nothing.
    ///
    /// Data comes to a port that the system chooses, one thread receives it.
    #[must_use]
    pub fn new(listen: SocketAddr) -> Self {
        Self {
            listen,
            data_port: 0,
            receive_buffer: None,
            shards: 1,
            busy_poll_us: None,
            frames: None,
            log: None,
            log_limits: LogLimits::default(),
            log_dir: None,
            log_quota: LogQuota::default(),
            replace_logs: false,
            allow_log_servers: false,
            allow_sources: Vec::new(),
            secret: None,
            log_keys: None,
            packet_secret: None,
            check_payload: false,
            reverse: None,
            max_per_address: SENDERS_PER_ADDRESS,
            peer_timeout_ns: Timeouts::default().silence_ns,
            once: false,
            classic: ClassicReceiving::default(),
            program: env!("CARGO_PKG_NAME").to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            settings: BTreeMap::new(),
        }
    }

    setters! {
        /// Sets the data port of flows that do not ask for another one; 0 lets the system choose.
        data_port(data_port: u16);

        /// Sets the receive buffer to ask for at each data socket of UDP and ICMP; 32 MiB unless set.
        receive_buffer_bytes(receive_buffer: into Option<usize>);

        /// Has payloads compared with those that flows should have, which reads all bytes of all packets.
        check_payload(check_payload: bool);

        /// Sets the number of receiving threads, 1 to 64: flows of UDP are spread over them.
        shards(shards: usize);

        /// Sets the time for which the kernel may look for packets at the network card instead of sleeping
        /// (`SO_BUSY_POLL`).
        busy_poll_us(busy_poll_us: into Option<u32>);

        /// Sets the device whose frames are taken before its network stack, for UDP: with one receiving thread.
        frames(frames: into Option<FrameInputOptions>);

        /// Sets the log of all flows.
        log(log: into Option<LogTarget>);

        /// Sets the block sizes of logs, and the bound of the memory that each may hold.
        log_limits(log_limits: LogLimits);
    }

    /// Sets the directory for logs that senders ask for, and the bound on their size; without it such requests are
    /// refused.
    #[must_use]
    pub fn log_dir(mut self, dir: impl Into<Option<PathBuf>>, quota: LogQuota) -> Self {
        self.log_dir = dir.into();
        self.log_quota = quota;
        self
    }

    setters! {
        /// Sets whether logs of D-ITG there are replaced by new ones of the same name, as D-ITG does.
        replace_logs(replace_logs: bool);

        /// Sets whether senders may have their logs sent to a log server of their choice.
        allow_log_servers(allow_log_servers: bool);
    }

    /// Sets what proves this receiver to those log servers: the secret they share, and keys for connections over TLS.
    #[must_use]
    pub fn log_server_access(mut self, secret: Option<Vec<u8>>, keys: Option<KeyDir>) -> Self {
        self.secret = secret;
        self.log_keys = keys;
        self
    }

    setters! {
        /// Sets addresses from which packets of flows may come beside where their senders signal from.
        allow_sources(allow_sources: Vec<IpAddr>);

        /// Sets the secret shared with senders whose packets prove where they come from.
        packet_secret(packet_secret: into Option<Vec<u8>>);

        /// Allows it to send to peers that ask for flows, within limits.
        reverse(reverse: into Option<ReverseLimits>);

        /// Sets the number of connections of one address at the same time.
        max_per_address(max_per_address: usize);

        /// Sets the time for which a peer may be silent while packets flow, in nanoseconds; 30 s unless set.
        peer_timeout_ns(peer_timeout_ns: u64);

        /// Sets whether it ends after the first sender has left.
        once(once: bool);

        /// Sets how it serves senders of D-ITG.
        classic(classic: ClassicReceiving);
    }

    /// Sets the name and the version of the program, for peers and logs.
    #[must_use]
    pub fn program(mut self, name: impl Into<String>, version: impl Into<String>) -> Self {
        self.program = name.into();
        self.version = version.into();
        self
    }

    setters! {
        /// Sets every resolved setting, for the log.
        settings(settings: BTreeMap<String, String>);
    }
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
