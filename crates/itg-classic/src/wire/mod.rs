//! D-ITG's wire: ports, packet headers, messages and the state machines of both sides, without I/O.
//!
//! The machines take bytes as they come, answers of their driver and the time, and hand out what is
//! to be sent and done. Every buffer, table and wait is bounded; nothing a peer sends can panic or
//! end more than its own channel.

mod header;
mod logs;
mod manager;
mod message;
mod receiver;
mod sender;

pub use header::{PacketHeader, StreamError, StreamPacket, StreamPackets, header_len};
pub use logs::{
    LOG_REQUEST_LEN, LogClient, LogClientOutput, LogRequest, LogServerInput, LogServerOutput,
    LogServerSession, UDP_RECORDS_MAX, block, log_file_name, to_file,
};
pub use manager::{
    Daemon, DaemonConfig, DaemonOutput, Manager, REQUEST_MAX, ReplyKind, reply_ended,
    reply_refused, reply_started, reply_text,
};
pub use message::{
    FlowOffer, MessageError, NO_SERIAL, OfferProto, PATH_LEN, Passive, ReceiverMessage, RecvLog,
    Refusal, SenderMessage,
};
pub use receiver::{
    ReceiverChannel, ReceiverConfig, ReceiverEnding, ReceiverInput, ReceiverOutput,
};
pub use sender::{
    FlowResult, SenderChannel, SenderConfig, SenderEnding, SenderInput, SenderOutput,
};

/// Signalling (TCP): ITGRecv listens, ITGSend in passive mode.
pub const PORT_SIGNALLING: u16 = 9000;
/// Data at the receiver.
pub const PORT_DATA: u16 = 8999;
/// Data at a sender in passive mode.
pub const PORT_PASSIVE: u16 = 8997;
/// Manager (UDP): ITGSend as a daemon listens.
pub const PORT_MANAGER: u16 = 8998;
/// Signalling of the log server (TCP).
pub const PORT_LOG: u16 = 9001;
/// The datagram with which a receiver in passive mode opens its side.
pub const OPENING: [u8; 6] = *b"hello\0";
