//! Inputs and outputs of a sender's session.

use itg_core::flow::FlowSpec;

use crate::codec::CodecError;
use crate::error::SessionError;
use crate::measure::FlowMeasure;
use crate::message::{ClockReading, FlowCounts, FlowTotals, LogSummary, Message, OpenedFlow};
use crate::timeouts::Timeouts;

/// Configuration of a sender's session.
#[derive(Clone, Debug)]
pub struct SenderConfig {
    /// Run id: 32 hexadecimal digits.
    pub run: String,
    /// Run seed.
    pub seed: u64,
    /// Name and version of this program.
    pub program: String,
    /// Name of this host.
    pub host: String,
    /// Boot id of this host's kernel.
    pub boot_id: String,
    /// The flows, with different numbers.
    pub flows: Vec<FlowSpec>,
    /// Requested name of the receiver's log.
    pub recv_log: Option<String>,
    /// Drawn for this session, when packets shall prove where they come from.
    pub prove: Option<[u8; 32]>,
    /// Pings one right after the other, to compare the clocks: so many before the run and as many
    /// behind it; none when 0.
    pub burst: u32,
    /// True if the receiver has asked for the flows (the roles were exchanged): its user may end them with
    /// [`Message::Halt`].
    pub asked: bool,
    /// Time limits of the session.
    pub timeouts: Timeouts,
}

/// Events that a driver reports to the sender's session.
#[derive(Clone, Debug, PartialEq)]
pub enum SenderInput {
    /// The signalling connection is made.
    Connected,
    /// The receiver said this.
    Message(Message),
    /// The receiver sent bytes that are no message.
    Garbage(CodecError),
    /// The instant of [`SenderSession::deadline`](super::SenderSession::deadline) has come. Too early does no harm.
    Timer,
    /// The data sockets of the flows of [`SenderOutput::Ready`] are open.
    Armed {
        /// Instant from which planned times count, Unix nanoseconds.
        epoch_unix_ns: u64,
    },
    /// A flow has sent its last packet, or could not be sent at all. From
    /// [`SenderOutput::Ready`] on.
    FlowEnded(FlowTotals),
    /// Somebody wants to know what has arrived by now: the receiver is asked at once, while packets flow.
    AskArrivals,
    /// The user wants to stop. Before [`SenderOutput::Begin`] the session fails as interrupted;
    /// after it flows end early and all else goes on as usual.
    Stop {
        /// Reason of the stop, in a few words.
        reason: String,
    },
    /// The signalling connection could not be made, was closed or broke; with the system's words.
    Lost(String),
}

/// Tasks for the driver of a sender's session, to be done in this order.
#[derive(Clone, Debug, PartialEq)]
pub enum SenderOutput {
    /// Write this message (see [`Message::stamp`]).
    Send(Message),
    /// The receiver is ready: open data sockets for these flows, then answer with
    /// [`SenderInput::Armed`].
    Ready {
        /// The flows that can be sent, in the order of the configuration.
        flows: Vec<OpenedFlow>,
        /// The others: number and the receiver's reason.
        refused: Vec<(u32, String)>,
    },
    /// Send packets from now on; answer with [`SenderInput::FlowEnded`] for each flow.
    Begin,
    /// End all flows that are still running, and report them within [`Timeouts::stop_ns`]. Comes
    /// again when the receiver is lost meanwhile.
    StopFlows {
        /// Reason of the stop.
        reason: String,
    },
    /// The receiver's measure of a flow that has ended; [`SenderOutput::Counted`] follows.
    Measured(Box<FlowMeasure>),
    /// A flow is finished.
    Counted {
        /// This side's account.
        totals: FlowTotals,
        /// The receiver's account; `None` when it did not come.
        counts: Option<FlowCounts>,
    },
    /// A ping was answered: material for estimating the offset between the two clocks, together
    /// with the time at which the message arrived.
    Clock {
        /// Ping sent, by this side's clocks.
        ping_sent: ClockReading,
        /// Ping arrived, Unix nanoseconds of the receiver's clock.
        received_unix_ns: u64,
        /// Answer sent, by the receiver's clocks.
        replied: ClockReading,
    },
    /// The receiver has closed its log.
    LogStored(LogSummary),
    /// The end: the session failed. Close the connection.
    Failed(SessionError),
    /// The end: every flow has been counted on both sides. Close the connection.
    Done,
}
