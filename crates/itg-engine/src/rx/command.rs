//! Requests of other threads to the receiving thread.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use itg_classic::send::HeaderKind;
use itg_core::flow::{Meter, Proto};
use itg_core::header::PacketKey;
use itg_core::payload_check::PayloadCheck;
use itg_record::FlowInfo;
use itg_session::{FlowCounts, FlowMeasure, FlowTotals, Measuring};
use itg_socket::UdpErrors;
use itg_socket::reply::ReplyMarks;
use itg_socket::xdp::{FrameInput, FrameQueue};
use socket2::Socket;

use super::Origin;
use crate::live::FlowLive;
use crate::log::Producer;

/// Limits of the wait for late packets of an ended flow, before it is counted.
#[derive(Clone, Copy, Debug)]
pub struct Drain {
    /// Silence after which the flow is counted, in nanoseconds.
    pub quiet_ns: u64,
    /// Longest wait before it is counted, in nanoseconds.
    pub limit_ns: u64,
}

impl Drain {
    /// Limits for a flow that was interrupted: 1 s of silence, 2 s.
    pub const INTERRUPTED: Self = Self { quiet_ns: 1_000_000_000, limit_ns: 2_000_000_000 };

    /// Limits for packets of a flow: 300 ms of silence where it is not known how many were sent, 1 s where some are
    /// known to be missing; 5 s. Packets that come back have a longer way, and nobody else waits for them: 2 s.
    ///
    /// TCP and SCTP lose nothing, and the end of a connection follows its last packet: what is sent again, perhaps
    /// more than once, has 5 s of silence, 8 s, and 15 s when it comes back.
    ///
    /// A wait that the flow asks for goes before all of them.
    pub(super) const fn usual(flow: &RxFlow, known: bool) -> Self {
        if let Some(ns) = flow.drain_ns {
            return Self { quiet_ns: ns, limit_ns: ns };
        }
        let sent_again = flow.proto.properties().resends;
        let (quiet_ms, limit_ms) = match (sent_again, flow.replies.is_some()) {
            (false, false) => (if known { 1000 } else { 300 }, 5000),
            (false, true) => (2000, 5000),
            (true, false) => (5000, 8000),
            (true, true) => (5000, 15_000),
        };
        Self { quiet_ns: quiet_ms * 1_000_000, limit_ns: limit_ms * 1_000_000 }
    }
}

/// A flow that has ended, as it was received.
#[derive(Debug)]
pub struct RxEnded {
    /// Its counts.
    pub counts: FlowCounts,
    /// Source of packets that named the flow and were not its sender's.
    pub stranger: Option<SocketAddr>,
    /// Its measurement, where one was wanted.
    pub measuring: Option<Box<Measuring>>,
    /// Packets that arrived behind one with a larger number.
    pub reordered: u64,
    /// Records of its packets that were meant for its log.
    pub records: u64,
}

impl RxEnded {
    /// The measurement as it travels.
    #[must_use]
    pub fn measure(&self) -> Option<Box<FlowMeasure>> {
        let measuring = self.measuring.as_ref()?;
        Some(Box::new(measuring.finish(self.counts.flow, self.reordered)))
    }
}

/// A flow to look for.
pub struct RxFlow {
    /// Index of the flow in the table of flows.
    pub slot: usize,
    /// Handle that its packets carry.
    pub handle: u32,
    /// Its number.
    pub flow: u32,
    /// Transport protocol.
    pub proto: Proto,
    /// One-way or round trip.
    pub meter: Meter,
    /// Wait for late packets behind the flow's end that was asked for, in nanoseconds.
    pub drain_ns: Option<u64>,
    /// Addresses its packets may come from, besides those of [`Command::Allow`]; packets from others
    /// are not sent back.
    pub origin: Origin,
    /// Counters that others read while it runs.
    pub live: Arc<FlowLive>,
    /// Number of the log for its records, if any.
    pub log: Option<usize>,
    /// Description of the flow for a receiver's log (`index` and `src` are filled in here).
    pub introduction: Option<Box<FlowInfo>>,
    /// The socket it shares, for the drop counter.
    pub socket: Option<usize>,
    /// Replies of a round-trip flow at its sender, in the log under this index.
    pub replies: Option<u32>,
    /// Receive buffer of that socket, in bytes.
    pub receive_buffer: Option<u64>,
    /// Measures its packets, where that is wanted. Made where it may take memory.
    pub measuring: Option<Box<Measuring>>,
    /// A flow of D-ITG.
    pub classic: Option<ClassicRx>,
    /// Key with which its packets prove where they come from; others are foreign.
    pub key: Option<PacketKey>,
    /// Compares the payloads of its packets, where that is wanted and possible.
    pub check: Option<PayloadCheck>,
    /// Marks of its packets that are sent back; those of the socket when `None`.
    pub marks: Option<ReplyMarks>,
}

/// Data on a flow of D-ITG, whose packets name it by number.
pub struct ClassicRx {
    /// The socket or listener where its packets arrive.
    pub port: usize,
    /// Header of its packets.
    pub kind: HeaderKind,
    /// Called when its data connection breaks.
    pub broken: Option<Box<dyn FnOnce() + Send>>,
}

/// Protocol in which packets say where they belong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PacketFormat {
    /// ITG's.
    Itg,
    /// D-ITG's.
    Classic,
}

/// Socket or listener at which packets arrive.
#[derive(Clone, Copy, Debug)]
pub struct Port {
    /// Its number among the ports.
    pub id: usize,
    /// Transport protocol.
    pub proto: Proto,
    /// True if addresses are of IPv6.
    pub v6: bool,
    /// Replies of the flow in this slot.
    pub owner: Option<usize>,
    /// Protocol of its packets.
    pub format: PacketFormat,
    /// True if the kernel may hand over several packets as one (see [`itg_socket::socket::join`]).
    pub joined: bool,
}

impl Port {
    /// A socket for packets of ITG, each by itself, of flows that are many.
    pub const fn new(id: usize, proto: Proto, v6: bool) -> Self {
        Self { id, proto, v6, owner: None, format: PacketFormat::Itg, joined: false }
    }
}

/// Requests of other threads to the receiving thread.
pub enum Command {
    /// Read datagrams from this socket; the number names it in [`RxFlow::socket`].
    Datagrams(Port, Socket),
    /// Take frames of a device before its network stack, too: those of the sockets that are read from now on.
    Frames(Box<FrameInput>, Vec<FrameQueue>),
    /// Accept connections; the number is for [`Command::CloseSocket`].
    Listener(Port, Socket),
    /// Read a stream of packets of the flow in this slot, which its peer sends from there; of D-ITG with
    /// this header.
    Stream {
        /// The connection.
        socket: Socket,
        /// Its peer.
        from: SocketAddr,
        /// Slot and handle of the flow.
        owner: (usize, u32),
        /// D-ITG's header, where packets are D-ITG's.
        classic: Option<HeaderKind>,
    },
    /// Packets of any flow may come from these addresses, too.
    Allow(Box<[IpAddr]>),
    /// Look for packets of this flow.
    Flow(Box<RxFlow>),
    /// The run of this slot has started: planned times count from this instant.
    Start {
        /// Index of the flow in the table.
        slot: usize,
        /// The instant, in Unix time.
        epoch_unix_ns: u64,
        /// Lead of this host's clock over the sender's in nanoseconds, as far as that is known.
        ahead_ns: Option<i64>,
    },
    /// The sender is done: drain the flow, forget it, and tell what was received. `udp_errors` are those
    /// of this host meanwhile.
    End {
        /// Index of the flow in the table.
        slot: usize,
        /// The sender's account.
        totals: Option<FlowTotals>,
        /// Limits of the wait for late packets; those of its protocol when `None`.
        drain: Option<Drain>,
        /// Datagrams that found a full buffer.
        udp_errors: Option<UdpErrors>,
        /// Receives what was received.
        done: Box<dyn FnOnce(RxEnded) + Send>,
    },
    /// The end of this flow was asked for, and somebody has interrupted the wait: [`Drain::INTERRUPTED`].
    Hasten {
        /// Index of the flow in the table.
        slot: usize,
    },
    /// Forget the flow, and tell what was received of it so far.
    Abandon {
        /// Index of the flow in the table.
        slot: usize,
        /// Reason why the flow is forgotten.
        reason: String,
        /// Receives what was received, when the flow is forgotten; `None` of one that was not there.
        done: Box<dyn FnOnce(Option<RxEnded>) + Send>,
    },
    /// Stop reading this socket; `done` when it is closed.
    CloseSocket {
        /// Its number.
        id: usize,
        /// Called when it is closed.
        done: Box<dyn FnOnce() + Send>,
    },
    /// Use this log under this number; threads that share it number its flows together.
    Log {
        /// Its number.
        id: usize,
        /// Way of the records into the log.
        producer: Producer,
        /// Numbers of flows in it.
        indices: Arc<AtomicU32>,
    },
    /// Give up a log; `done` when its last block has been handed over.
    CloseLog {
        /// Its number.
        id: usize,
        /// Called when the last block has been handed over.
        done: Box<dyn FnOnce() + Send>,
    },
    /// Tell how a flow has been measured so far.
    Measure {
        /// Index of the flow in the table.
        slot: usize,
        /// Its counters: another flow may have its place by now.
        live: Arc<FlowLive>,
        /// Receives the measure; `None` of a flow that is not measured, or not there any more.
        done: Box<dyn FnOnce(Option<Box<FlowMeasure>>) + Send>,
    },
    /// Tell that all that was asked for before is done.
    CaughtUp(Box<dyn FnOnce() + Send>),
    /// End the thread.
    Quit,
}
