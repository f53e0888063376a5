//! Agreement of sender and receiver about flows: the messages on the signalling channel, their
//! bytes, and the two state machines that exchange them. No I/O: time, messages and the driver's
//! answers are passed in, what is to be done comes out.
//!
//! One signalling connection (TCP) serves one run of one sender:
//!
//! ```text
//! sender                                receiver
//!   Hello  ------------------------------>   names the run, announces the number of flows
//!   <------------------------------ Welcome  (or Refuse, here and at any later time)
//!   Open (up to 64 flows) --------------->   opens data sockets
//!   <------------------------------- Opened  handle and port of each flow, or why not
//!   ... more batches, one at a time ...
//!   Start -------------------------------->
//!   <------------------------------ Started
//!   (packets flow on their own sockets)
//!   FlowEnded --------------------------->   the sender's totals; the receiver drains
//!   <------------------------- FlowMeasured  to senders that offer to take it
//!   <-------------------------- FlowCounted  the receiver's totals
//!   ... for each flow ...
//!   Bye  -------------------------------->   closes the log
//!   <------------------------------- ByeAck
//! ```
//!
//! Roles are exchanged where a program asks its peer for flows. What follows `Turned` is a session as above on the same
//! connection, with the sides exchanged; the peer's first message in it is `Hello`:
//!
//! ```text
//! receiver-to-be                        sender-to-be
//!   Hello  ------------------------------>
//!   <------------------------------ Welcome  offers to exchange the roles
//!   Turn (the flows) -------------------->   checks them against its limits, opens data sockets that wait
//!   <------------------------------- Turned  (or Refuse)
//! ```
//!
//! From `Welcome` to the end the sender sends a `Ping` each second and the receiver answers with a
//! `Pong`; a side that hears nothing for five seconds considers its peer lost. Every phase has a
//! deadline ([`Timeouts`]).
//!
//! A driver (sockets or a test) feeds [`SenderSession`] or [`ReceiverSession`]: it calls `handle`
//! with each event and with `Timer` at the instant that `deadline` names, and does what the outputs
//! say, in order. A driver that was held up hands over what has arrived meanwhile before it says
//! `Timer`, or a peer that did speak is taken for silent. `now_ns` comes from any clock that never
//! runs backwards (`CLOCK_MONOTONIC`). Wall-clock stamps are put into pings and pongs on their way
//! out, with [`Message::stamp`].
//!
//! Costs: a few words of state for each flow, bounded by the announced number of flows; each
//! event costs a logarithmic look-up at most, but for opening, starting and breaking off, which
//! walk over the flows once.

mod arrivals;
mod bytes;
mod codec;
mod difference;
mod error;
mod flow_wire;
pub mod logs;
mod measure;
mod message;
mod more;
mod offer;
mod receiver;
mod sender;
mod shared_drops;
mod timeouts;
mod turn;

pub use arrivals::Arrivals;
pub use codec::{CodecError, decode, encode};
pub use difference::{Difference, explain, explain_replies};
pub use error::{ErrorKind, Phase, SessionError};
pub use itg_core::end::{EndCause, EndReason};
pub use measure::{BUCKETS, Bucket, DelayMeasure, FlowMeasure, Measuring, quantiles};
pub use message::{
    ArrivalAccount, ClockReading, FlowArrivals, FlowCounts, FlowTotals, LogSummary, MAGIC,
    MAX_MESSAGE, Message, MoreCounts, OPEN_BATCH, OpenReply, OpenedFlow, PONG_FLOWS, ProbeStamps,
    VERSION,
};
pub use receiver::{ReceiverConfig, ReceiverInput, ReceiverOutput, ReceiverSession};
pub use sender::{SenderConfig, SenderInput, SenderOutput, SenderSession};
pub use shared_drops::SharedDrops;
pub use timeouts::Timeouts;
pub use turn::{TurnInput, TurnOutput, TurnSession};

/// The example of the README, compiled and run with the tests of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExample;
