//! Messages of the signalling channel: one byte of type, a fixed body, big-endian but for two ports.
//!
//! Write each message with one call: real endpoints read each field with one.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::logs::log_path;
use crate::send::{App, HeaderKind, LogProto};

/// Bytes of a path in a message.
pub const PATH_LEN: usize = 200;
/// The serial device of a flow that has none.
pub const NO_SERIAL: [u8; 10] = *b"noSerial\0\0";
/// Address families of a log request: Linux's numbers.
const AF_INET: u32 = 2;
const AF_INET6: u32 = 10;

/// Bytes that are no message. Real endpoints die of some of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// A type that does not exist.
    #[error("unknown message type {0}")]
    Type(u8),
    /// A field with a value that does not exist.
    #[error("message of type {kind}: {value} is no {field}")]
    Field {
        /// Type of the message.
        kind: u8,
        /// Name of the field.
        field: &'static str,
        /// Its value.
        value: u32,
    },
}

/// Transport of an offered flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum OfferProto {
    /// TCP.
    Tcp = 1,
    /// UDP.
    Udp = 2,
    /// ICMP.
    Icmp = 3,
    /// SCTP.
    Sctp = 4,
    /// DCCP.
    Dccp = 5,
}

/// Further fields of an offer in passive mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passive {
    /// Data port of the receiver (`-rp`).
    pub recv_port: u16,
    /// True if the address is to be used; else the sender is where the signalling comes from.
    pub source_given: bool,
}

/// A flow that a sender offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowOffer {
    /// Flow.
    pub flow: u32,
    /// Transport.
    pub proto: OfferProto,
    /// Application.
    pub app: App,
    /// Round-trip meter: the receiver sends packets back.
    pub round_trip: bool,
    /// DS byte for the receiver's socket.
    pub tos: u8,
    /// Header of packets.
    pub header: HeaderKind,
    /// Serial device, NUL-terminated.
    pub serial: [u8; 10],
    /// Data port: the receiver's; in passive mode the sender's.
    pub port: u16,
    /// Data address: the receiver's; in passive mode the sender's.
    pub address: IpAddr,
    /// Passive mode.
    pub passive: Option<Passive>,
}

/// Destination of a receiver's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecvLog {
    /// To a file at the receiver (`-x`).
    File {
        /// Its path, as sent; not to be trusted.
        path: Vec<u8>,
    },
    /// To a log server (`-X`).
    Server {
        /// Address of the server.
        address: IpAddr,
        /// Transport of the records.
        proto: LogProto,
        /// Path at the server.
        path: Vec<u8>,
    },
}

/// Reason for which a receiver refuses a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Refusal {
    /// It cannot bind (15).
    Bind = 15,
    /// ICMP needs rights (16).
    Rights = 16,
    /// The data connection broke (22).
    Data = 22,
}

/// Message of a sender.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SenderMessage {
    /// 1: the first byte of a channel.
    Connect,
    /// 19, 12: log there.
    Log(RecvLog),
    /// 3: a flow.
    Offer(FlowOffer),
    /// 5, passive mode: the sender's socket is ready.
    Ready(u32),
    /// 4: the flow has ended, its data socket is closed.
    Ended(u32),
    /// 17: the flow could not run; not answered.
    Failed(u32),
    /// 11: no more flows.
    Release,
    /// 9: still there.
    Alive,
    /// 14: taken as release.
    Error,
    /// 20: goes without an answer.
    Down,
}

/// Message of a receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceiverMessage {
    /// 2: answers [`SenderMessage::Connect`].
    Connected,
    /// 18: the log is a file.
    LogFile,
    /// 13: the log server is there.
    LogServer,
    /// 21: no such log.
    LogRefused,
    /// 5: ready for the flow, at this port; 0: the port of the offer.
    Accept {
        /// Flow; in passive mode its place in the receiver's table, from 1.
        flow: u32,
        /// Data port.
        port: u16,
    },
    /// 15, 16, 22: not this flow.
    Refuse {
        /// Flow.
        flow: u32,
        /// Reason of the refusal.
        why: Refusal,
    },
    /// 6: the flow has ended here too.
    Ended(u32),
    /// 7: answers [`SenderMessage::Release`].
    Released,
    /// 8: asks whether the sender is still there.
    Discovery,
}

/// Reads fields of a message as far as they are there.
struct Fields<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Fields<'a> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let field = self.bytes.get(self.at..)?.first_chunk()?;
        self.at += N;
        Some(*field)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take::<1>().map(|[byte]| byte)
    }

    fn word(&mut self) -> Option<u32> {
        self.take().map(u32::from_be_bytes)
    }

    fn path(&mut self) -> Option<Vec<u8>> {
        self.take::<PATH_LEN>().map(|field| log_path(&field))
    }

    fn address(&mut self, six: bool) -> Option<IpAddr> {
        Some(if six {
            Ipv6Addr::from(self.take::<16>()?).into()
        } else {
            Ipv4Addr::from(self.take::<4>()?).into()
        })
    }
}

type Decoded<M> = Result<Option<(M, usize)>, MessageError>;

impl SenderMessage {
    /// Reads the first message of `bytes`: the message and its length, or `None` when it is not all
    /// there. `passive` tells the layout of offers. Types that D-ITG's receiver ignores are
    /// [`MessageError::Type`] below 23.
    ///
    /// # Errors
    /// Bytes that are no message.
    pub fn decode(bytes: &[u8], passive: bool) -> Decoded<Self> {
        let mut fields = Fields { bytes, at: 0 };
        let Some(kind) = fields.byte() else { return Ok(None) };
        let message = match kind {
            1 => Some(Self::Connect),
            3 => offer(&mut fields, passive)?.map(Self::Offer),
            4 => fields.word().map(Self::Ended),
            5 => fields.word().map(Self::Ready),
            9 => Some(Self::Alive),
            11 => Some(Self::Release),
            12 => server(&mut fields)?.map(Self::Log),
            14 => Some(Self::Error),
            17 => fields.word().map(Self::Failed),
            19 => fields.path().map(|path| Self::Log(RecvLog::File { path })),
            20 => Some(Self::Down),
            other => return Err(MessageError::Type(other)),
        };
        Ok(message.map(|message| (message, fields.at)))
    }

    /// Appends the message.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let numbered = |out: &mut Vec<u8>, kind: u8, flow: u32| {
            out.push(kind);
            out.extend_from_slice(&flow.to_be_bytes());
        };
        match self {
            Self::Connect => out.push(1),
            Self::Log(RecvLog::File { path }) => {
                out.push(19);
                put_path(path, out);
            }
            Self::Log(RecvLog::Server { address, proto, path }) => {
                out.push(12);
                let family = if address.is_ipv4() { AF_INET } else { AF_INET6 };
                out.extend_from_slice(&family.to_be_bytes());
                put_address(*address, out);
                // A port that is never used.
                out.extend_from_slice(&[0, 0]);
                out.push(if *proto == LogProto::Tcp { 1 } else { 2 });
                put_path(path, out);
            }
            Self::Offer(offer) => offer.encode(out),
            Self::Ready(flow) => numbered(out, 5, *flow),
            Self::Ended(flow) => numbered(out, 4, *flow),
            Self::Failed(flow) => numbered(out, 17, *flow),
            Self::Release => out.push(11),
            Self::Alive => out.push(9),
            Self::Error => out.push(14),
            Self::Down => out.push(20),
        }
    }
}

fn put_address(address: IpAddr, out: &mut Vec<u8>) {
    match address {
        IpAddr::V4(address) => out.extend_from_slice(&address.octets()),
        IpAddr::V6(address) => out.extend_from_slice(&address.octets()),
    }
}

/// A path of at most 199 bytes, filled with NULs.
pub(super) fn put_path(path: &[u8], out: &mut Vec<u8>) {
    let mut field = [0; PATH_LEN];
    let len = path.len().min(PATH_LEN - 1);
    field[..len].copy_from_slice(&path[..len]);
    out.extend_from_slice(&field);
}

/// The body of message 12.
fn server(fields: &mut Fields<'_>) -> Result<Option<RecvLog>, MessageError> {
    let wrong = |field, value| MessageError::Field { kind: 12, field, value };
    let Some(family) = fields.word() else { return Ok(None) };
    let six = match family {
        AF_INET => false,
        AF_INET6 => true,
        other => return Err(wrong("address family", other)),
    };
    let rest = |fields: &mut Fields<'_>| {
        Some((fields.address(six)?, fields.take::<2>()?, fields.byte()?, fields.path()?))
    };
    let Some((address, _, proto, path)) = rest(fields) else { return Ok(None) };
    let proto = match proto {
        1 => LogProto::Tcp,
        2 => LogProto::Udp,
        other => return Err(wrong("transport of logs", other.into())),
    };
    Ok(Some(RecvLog::Server { address, proto, path }))
}

/// The body of message 3.
fn offer(fields: &mut Fields<'_>, passive: bool) -> Result<Option<FlowOffer>, MessageError> {
    let wrong = |field, value: u8| MessageError::Field { kind: 3, field, value: value.into() };
    let Some([proto, app, meter, tos, family]) = fields.take() else { return Ok(None) };
    let six = match family {
        4 => false,
        6 => true,
        other => return Err(wrong("address family", other)),
    };
    let rest = |fields: &mut Fields<'_>| {
        let (flow, header, serial) = (fields.word()?, fields.byte()?, fields.take::<10>()?);
        let passive = if passive {
            // The ports are swapped once too often by each side: little-endian on the wire.
            let recv_port = u16::from_le_bytes(fields.take()?);
            Some(Passive { recv_port, source_given: fields.byte()? != 0 })
        } else {
            None
        };
        let port = u16::from_le_bytes(fields.take()?);
        Some((flow, header, serial, passive, port, fields.address(six)?))
    };
    let Some((flow, header, serial, passive, port, address)) = rest(fields) else {
        return Ok(None);
    };
    let proto = match proto {
        1 => OfferProto::Tcp,
        2 => OfferProto::Udp,
        3 => OfferProto::Icmp,
        4 => OfferProto::Sctp,
        5 => OfferProto::Dccp,
        other => return Err(wrong("transport", other)),
    };
    let round_trip = match meter {
        1 => false,
        2 => true,
        other => return Err(wrong("meter", other)),
    };
    let header = match header {
        0 => HeaderKind::Standard,
        1 => HeaderKind::Short,
        2 => HeaderKind::None,
        other => return Err(wrong("payload header", other)),
    };
    let app = App::from_code(app);
    Ok(Some(FlowOffer {
        flow,
        proto,
        app,
        round_trip,
        tos,
        header,
        serial,
        port,
        address,
        passive,
    }))
}

impl FlowOffer {
    fn encode(&self, out: &mut Vec<u8>) {
        let meter = if self.round_trip { 2 } else { 1 };
        let family = if self.address.is_ipv4() { 4 } else { 6 };
        out.extend_from_slice(&[3, self.proto as u8, self.app as u8, meter, self.tos, family]);
        out.extend_from_slice(&self.flow.to_be_bytes());
        out.push(self.header as u8);
        out.extend_from_slice(&self.serial);
        if let Some(passive) = self.passive {
            out.extend_from_slice(&passive.recv_port.to_le_bytes());
            out.push(if passive.source_given { 0xff } else { 0 });
        }
        out.extend_from_slice(&self.port.to_le_bytes());
        put_address(self.address, out);
    }
}

impl ReceiverMessage {
    /// Reads the first message of `bytes`: the message and its length, or `None` when it is not all
    /// there. `passive` does not change this direction.
    ///
    /// # Errors
    /// A type that no receiver sends.
    pub fn decode(bytes: &[u8]) -> Decoded<Self> {
        let mut fields = Fields { bytes, at: 0 };
        let Some(kind) = fields.byte() else { return Ok(None) };
        let refuse = |flow, why| Self::Refuse { flow, why };
        let message = match kind {
            2 => Some(Self::Connected),
            5 => (|| {
                let flow = fields.word()?;
                Some(Self::Accept { flow, port: u16::from_be_bytes(fields.take()?) })
            })(),
            6 => fields.word().map(Self::Ended),
            7 => Some(Self::Released),
            8 => Some(Self::Discovery),
            13 => Some(Self::LogServer),
            15 => fields.word().map(|flow| refuse(flow, Refusal::Bind)),
            16 => fields.word().map(|flow| refuse(flow, Refusal::Rights)),
            18 => Some(Self::LogFile),
            21 => Some(Self::LogRefused),
            22 => fields.word().map(|flow| refuse(flow, Refusal::Data)),
            other => return Err(MessageError::Type(other)),
        };
        Ok(message.map(|message| (message, fields.at)))
    }

    /// Appends the message.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let (kind, flow) = match *self {
            Self::Connected => (2, None),
            Self::LogFile => (18, None),
            Self::LogServer => (13, None),
            Self::LogRefused => (21, None),
            Self::Accept { flow, .. } => (5, Some(flow)),
            Self::Refuse { flow, why } => (why as u8, Some(flow)),
            Self::Ended(flow) => (6, Some(flow)),
            Self::Released => (7, None),
            Self::Discovery => (8, None),
        };
        out.push(kind);
        out.extend(flow.into_iter().flat_map(u32::to_be_bytes));
        if let Self::Accept { port, .. } = self {
            out.extend_from_slice(&port.to_be_bytes());
        }
    }
}
