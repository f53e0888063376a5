//! Output of a process: messages and reports for its world.

use std::sync::Arc;

use crate::event::Event;
use crate::message::{Dest, Message, NetId, Slot, Time, To};

/// Reason for which a process stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StopReason {
    /// The application has done its work.
    Finished,
    /// The application cannot go on.
    Failed,
    /// Stopped from outside.
    Interrupted,
}

/// Work for the driver of a process.
#[derive(Debug)]
pub(crate) enum Output {
    /// Carry this message to these processes, through network `message.net`.
    Send {
        /// The message.
        message: Message,
        /// Receivers.
        to: To,
    },
    /// The process starts.
    Started,
    /// Something for traces and checkers, and the layer that says it.
    Event(Arc<str>, Event),
    /// A line of the message trace.
    Trace(Trace),
    /// The process has stopped; it does nothing any more.
    Stopped(StopReason),
}

/// Direction of a message at the lower edge of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// To a network.
    Send,
    /// From a network, or from itself.
    Deliver,
}

/// One line of the message trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// Time on the process's clock.
    pub at: Time,
    /// Direction of the message.
    pub way: Way,
    /// The process that traces.
    pub process: Slot,
    /// The sender.
    pub src: Slot,
    /// Destination of the message; of one that is sent, all that it is for.
    pub dst: Dest,
    /// The network.
    pub net: NetId,
    /// Type of the message.
    pub ty: u32,
    /// Bytes of its body.
    pub len: usize,
}
