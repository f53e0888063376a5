//! Requests to the layer `experiment`, and its events: messages between layers of one process,
//! which no network carries.

use itg_core::rate::RateChange;
use itg_process::{Message, Slot};
use serde::{Deserialize, Serialize};

use crate::command::{Command, Route, Rules, read, write};
use crate::state::Replica;

/// Type of what the layer above asks for.
pub const ASK: u32 = 1600;
/// Type of what the layer above is told.
pub const TELL: u32 = 1601;

/// Request of the layer above.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ControlRequest {
    /// Load this experiment: its description, the routes of its flows, its rules.
    Load(Vec<u8>, Vec<Route>, Rules),
    /// Order this command.
    Command(Command),
    /// The description has been read, and this process can do its part.
    Able,
    /// It cannot, or does not want to.
    Unable(String),
    /// The last packet of a flow has been sent under this fence, the next one would be this.
    Ended(u32, u16, u64),
    /// A flow is not sent to its end under this fence, for this reason.
    GaveUp(u32, u16, String),
    /// At this instant of the local clock, not before its start, the experiment has run for so long, both in
    /// nanoseconds: the answer to [`ControlDelivery::Emit`], without which nothing may leave.
    RunTime(u64, u64),
    /// Tell the state as this process knows it.
    Look,
}

/// Event for the layer above.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ControlDelivery {
    /// The description of the experiment: answer with [`ControlRequest::Able`] or [`ControlRequest::Unable`].
    Graph(Vec<u8>),
    /// Send this flow under this fence, but nothing before this instant of the local clock.
    Emit {
        /// Number of the flow.
        flow: u32,
        /// The fence.
        fence: u16,
        /// Nothing may leave before.
        not_before_ns: u64,
        /// Instant from which planned times count: Unix time of the process that started the experiment.
        t0_unix_ns: u64,
        /// Changes of its rate so far; times count from the start of the experiment.
        changes: Vec<RateChange>,
    },
    /// A flow that is being sent goes on at another rate: all changes so far.
    Rate {
        /// Number of the flow.
        flow: u32,
        /// As in [`ControlDelivery::Emit`].
        changes: Vec<RateChange>,
    },
    /// Send this flow no longer: answer with [`ControlRequest::Ended`].
    Cease {
        /// Number of the flow.
        flow: u32,
        /// The fence.
        fence: u16,
    },
    /// No packet may leave from this instant of the local clock on, unless a later lease comes.
    Lease(u64),
    /// This process is no member any more: nothing may leave.
    Fenced,
    /// A command was carried out, as all members carry it out; `None`: it was void.
    Applied {
        /// Its position in the order.
        position: u64,
        /// Slot of the member that has cast it.
        by: u32,
        /// The command.
        command: Command,
        /// Reason that it is void; `None` if it is not.
        void: Option<String>,
    },
    /// The state, because [`ControlRequest::Look`] has asked for it.
    State(Box<Replica>),
    /// A view is in force.
    View {
        /// Its number.
        number: u64,
        /// Slots of its members.
        slots: Vec<u32>,
    },
    /// This process was started again: what ran before may have sent what was due before this time of the run, in
    /// nanoseconds from its start. None of it may leave, whatever the local clock says now. It may come more than
    /// once before the first lease; the latest time counts.
    SentBefore(u64),
}

impl ControlRequest {
    /// As a message of a stack.
    #[must_use]
    pub fn message(&self) -> Message {
        Message::new(Slot(0), ASK, write(self))
    }

    /// Request in a message from above; `None` for other messages.
    #[must_use]
    pub fn from_message(message: &Message) -> Option<Self> {
        (message.ty == ASK).then(|| read(&message.body)).flatten()
    }
}

impl ControlDelivery {
    /// As a message of a stack.
    #[must_use]
    pub fn message(&self) -> Message {
        Message::new(Slot(0), TELL, write(self))
    }

    /// Event in a message from below; `None` for other messages.
    #[must_use]
    pub fn from_message(message: &Message) -> Option<Self> {
        (message.ty == TELL).then(|| read(&message.body)).flatten()
    }
}
