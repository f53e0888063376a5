//! Request to ITGSend: a flow, its signalling, the logs.

use std::fmt;

use super::distribution::Distribution;
use super::profile::App;

/// Duration of a flow without `-t`, in milliseconds. Given by hand together with `-z` or `-k`, the
/// same value counts as no limit, as in D-ITG.
pub const DEFAULT_DURATION_MS: u32 = 10_000;
/// Greatest packet in bytes, of every protocol.
pub const SIZE_MAX: u32 = 64_000;

/// Transport protocol of a flow, with its number in messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    /// TCP (1).
    Tcp,
    /// UDP (2).
    #[default]
    Udp,
    /// ICMP (3).
    Icmp {
        /// Type of the messages.
        kind: u8,
    },
    /// SCTP (4).
    Sctp {
        /// Association.
        association: u32,
    },
    /// DCCP (5).
    Dccp,
}

impl Transport {
    /// The number in messages.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Tcp => 1,
            Self::Udp => 2,
            Self::Icmp { .. } => 3,
            Self::Sctp { .. } => 4,
            Self::Dccp => 5,
        }
    }

    /// Returns true if packets carry their size, for want of boundaries.
    #[must_use]
    pub const fn is_stream(self) -> bool {
        matches!(self, Self::Tcp)
    }
}

/// Header of packets (`-p`), with its number in messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum HeaderKind {
    /// Flow, sequence number, time.
    #[default]
    Standard = 0,
    /// Flow and sequence number.
    Short = 1,
    /// Nothing.
    None = 2,
}

/// Transport of a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogProto {
    /// TCP.
    Tcp,
    /// UDP.
    #[default]
    Udp,
}

/// A log server (`-L`, `-X`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogServer {
    /// Name or address; 127.0.0.1 when not given.
    pub host: String,
    /// Port of its signalling channel.
    pub port: u16,
    /// Transport of the records.
    pub proto: LogProto,
}

impl Default for LogServer {
    fn default() -> Self {
        Self { host: "127.0.0.1".to_owned(), port: crate::wire::PORT_LOG, proto: LogProto::Udp }
    }
}

/// Destinations of logs: the settings of a whole process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogSettings {
    /// The sender's log (`-l`); `/tmp/ITGSend.log` when no name is given.
    pub log: Option<String>,
    /// The sender's log server (`-L`).
    pub log_server: Option<LogServer>,
    /// The receiver's log (`-x`), a path at the receiver; `/tmp/ITGRecv.log` when no name is given.
    pub recv_log: Option<String>,
    /// The receiver's log server (`-X`).
    pub recv_log_server: Option<LogServer>,
    /// Records written at a time (`-q`), 1 to 65535.
    pub buffer: u16,
}

impl Default for LogSettings {
    fn default() -> Self {
        Self { log: None, log_server: None, recv_log: None, recv_log_server: None, buffer: 50 }
    }
}

/// The signalling channel of a flow (`-S…`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Signalling {
    /// Host to connect to (`-Sda`); the flow's destination when not given.
    pub dest: Option<String>,
    /// Port to connect to (`-Sdp`); 9000 when not given.
    pub port: Option<u16>,
    /// Own address (`-Ssa`).
    pub source: Option<String>,
    /// Own port (`-Ssp`); the port to listen on in passive mode.
    pub source_port: Option<u16>,
    /// Interface (`-Si`).
    pub interface: Option<String>,
}

/// Source of random values.
#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    /// A distribution.
    Law(Distribution),
    /// A file that has not been read yet; see [`FlowArgs::load`].
    File(String),
}

/// A flow, as its command line says.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowArgs {
    /// Number, from 1.
    pub id: u32,
    /// Destination (`-a`).
    pub dest: String,
    /// True if `-a` was given.
    pub dest_given: bool,
    /// Destination port (`-rp`), 0: the receiver chooses; `None`: 8999.
    pub dest_port: Option<u16>,
    /// Source port (`-sp`); `None`: the system's choice, 8997 in passive mode.
    pub source_port: Option<u16>,
    /// Source address (`-sa`).
    pub source: Option<String>,
    /// Interface (`-i`).
    pub interface: Option<String>,
    /// Round-trip meter (`-m rttm`).
    pub round_trip: bool,
    /// Duration in milliseconds (`-t`).
    pub duration_ms: u32,
    /// Packets (`-z`).
    pub packets: Option<u32>,
    /// Kibibytes (`-k`).
    pub kibibytes: Option<u32>,
    /// Start after this many milliseconds (`-d`).
    pub delay_ms: u32,
    /// True if the first value of the file of inter-departure times is the delay: there was no
    /// later `-d`.
    pub delay_from_file: bool,
    /// DS byte (`-b`).
    pub tos: u8,
    /// Time to live (`-f`); 0: the system's.
    pub ttl: u8,
    /// Header of packets (`-p`).
    pub header: HeaderKind,
    /// Transport (`-T`).
    pub transport: Transport,
    /// Smallest packet in bytes before what TCP adds: a trace of the order of `-p` and `-T`.
    pub(super) min_size: u32,
    /// No delay in TCP (`-D`).
    pub nodelay: bool,
    /// Passive mode (`-H`).
    pub passive: bool,
    /// Serial device of the receiver (`-rk`), accepted and not used.
    pub recv_serial: Option<String>,
    /// Serial device of the sender (`-sk`), accepted and not used.
    pub send_serial: Option<String>,
    /// Seed (`-s`).
    pub seed: Option<f64>,
    /// Mean rate kept (`-j`).
    pub keep_rate: bool,
    /// Busy waiting (`-poll`).
    pub poll: bool,
    /// Inter-departure times in milliseconds.
    pub idt: Source,
    /// Sizes.
    pub size: Source,
    /// ON and OFF periods (`-B`).
    pub on_off: Option<(Distribution, Distribution)>,
    /// Application.
    pub app: App,
    /// File of payload (`-Fp`).
    pub payload: Option<String>,
    /// Its signalling channel.
    pub signalling: Signalling,
    /// Lines for stdout: the codec of a call, warnings.
    pub lines: Vec<String>,
    /// Differences from D-ITG's behaviour, for stderr.
    pub notices: Vec<String>,
}

impl FlowArgs {
    /// A flow with every setting at D-ITG's default.
    #[must_use]
    pub fn new(id: u32) -> Self {
        Self {
            id,
            dest: "127.0.0.1".to_owned(),
            dest_given: false,
            dest_port: None,
            source_port: None,
            source: None,
            interface: None,
            round_trip: false,
            duration_ms: DEFAULT_DURATION_MS,
            packets: None,
            kibibytes: None,
            delay_ms: 0,
            delay_from_file: false,
            tos: 0,
            ttl: 0,
            header: HeaderKind::Standard,
            transport: Transport::Udp,
            min_size: 16,
            nodelay: false,
            passive: false,
            recv_serial: None,
            send_serial: None,
            seed: None,
            keep_rate: true,
            poll: false,
            idt: Source::Law(Distribution::Constant(1.0)),
            size: Source::Law(Distribution::Constant(512.0)),
            on_off: None,
            app: App::None,
            payload: None,
            signalling: Signalling::default(),
            lines: Vec::new(),
            notices: Vec::new(),
        }
    }

    /// Smallest packet in bytes. It depends on the order of options, as in D-ITG: 16, 8 after `-p 1`,
    /// 4 after `-p 2`, 4 more for each `-T`, and 4 more for a stream with a header.
    #[must_use]
    pub const fn size_min(&self) -> u32 {
        let stream = matches!(self.transport, Transport::Tcp | Transport::Sctp { .. });
        let header = !matches!(self.header, HeaderKind::None);
        self.min_size + if stream && header { 4 } else { 0 }
    }

    /// Returns true if all inter-departure times are 0 or less: packets leave as fast as they can.
    #[must_use]
    pub fn has_no_gaps(&self) -> bool {
        match &self.idt {
            Source::Law(Distribution::Constant(ms)) => *ms <= 0.0,
            Source::Law(Distribution::Normal { mean, sd }) => *sd == 0.0 && *mean <= 0.0,
            _ => false,
        }
    }

    /// Milliseconds after which the flow ends, if it ends by time.
    #[must_use]
    pub const fn limit_ms(&self) -> Option<u32> {
        let counted = self.packets.is_some() || self.kibibytes.is_some();
        if self.duration_ms == DEFAULT_DURATION_MS && counted {
            None
        } else {
            Some(self.duration_ms)
        }
    }

    /// Bytes that logs leave out of the size of each packet.
    #[must_use]
    pub const fn unlogged(&self) -> u32 {
        if matches!(self.app, App::Telnet) { 20 } else { 0 }
    }

    /// Host and port of the signalling channel.
    #[must_use]
    pub fn signalling_dest(&self) -> (&str, u16) {
        let Signalling { dest, port, .. } = &self.signalling;
        let host = dest.as_deref().unwrap_or(&self.dest);
        (host, port.unwrap_or(crate::wire::PORT_SIGNALLING))
    }
}

/// A command line that is not carried out, in D-ITG's words; exit code 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SendError {
    /// Flow number, 0 when D-ITG says 0.
    pub flow: u32,
    /// D-ITG's name of the parser that refuses.
    pub parser: &'static str,
    /// Text of the error.
    pub reason: String,
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { flow, parser, reason } = self;
        write!(
            f,
            " ** ERROR **  Flow {flow} aborted:  {parser} : {reason} \n Type ITGSend -h for help "
        )
    }
}

impl std::error::Error for SendError {}
