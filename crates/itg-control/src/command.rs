//! The commands of an experiment: entries of the ordered log.

use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// Longest encoding that is read: 16 MiB.
const MOST: usize = 16 << 20;

/// A flow as the control plane sees it: its sender, its receiver, and its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Route {
    /// Slot of the node that sends it as long as that node is there.
    pub from: u32,
    /// Slot of the node that receives it.
    pub to: u32,
    /// Time of the run at which it starts, as asked for, in nanoseconds.
    pub start_ns: u64,
}

/// Treatment of flows when their console has left, or when the group cannot be reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Orphan {
    /// They stop: at the end of the lease, or when the console has left the group.
    #[default]
    Stop,
    /// They stand still until the group is whole enough to grant leases again; the console is not
    /// missed. What was due meanwhile is left out.
    Pause,
    /// They go on to their end, without leases: after a partition two owners may send the same flow.
    Finish,
}

/// Treatment of the flows of a node that is gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Failover {
    /// Another node sends them on, from the packet on that is due then.
    #[default]
    Move,
    /// They wait until the node is back.
    Wait,
}

/// Rules of an experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Rules {
    /// Time that an owner may send without news from the group, in nanoseconds.
    pub lease_ns: u64,
    /// Without the console, or without the group.
    pub orphan: Orphan,
    /// Time without any console after which flows stop, in nanoseconds.
    pub orphan_after_ns: u64,
    /// Without a node.
    pub failover: Failover,
    /// Slot of the process that started the experiment; it owns no flow.
    pub console: Option<u32>,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            lease_ns: 2_000_000_000,
            orphan: Orphan::default(),
            orphan_after_ns: 3_600_000_000_000,
            failover: Failover::default(),
            console: None,
        }
    }
}

/// A command.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Command {
    /// This experiment; every member gets its description of this hash.
    Load {
        /// FNV-1a of the description.
        graph: u64,
        /// Flow *k* + 1 goes this way.
        routes: Vec<Route>,
        /// Rules of the experiment.
        rules: Rules,
    },
    /// The member that casts this has the description and can do its part.
    Holds {
        /// Hash of the description.
        graph: u64,
    },
    /// The member that casts this cannot, or does not want to.
    Refuses {
        /// Hash of the description.
        graph: u64,
        /// Reason of the refusal.
        why: String,
    },
    /// Owners make ready; void while a node lacks the description.
    Arm,
    /// Planned times count from this instant.
    Start {
        /// Unix time by the clock of the member that casts this, in nanoseconds.
        t0_unix_ns: u64,
    },
    /// A flow ends early; all of them without a number.
    Stop {
        /// Number of the flow.
        flow: Option<u32>,
    },
    /// Another node shall send this flow. The old owner stops first, and says where.
    Reassign {
        /// Number of the flow.
        flow: u32,
        /// Slot of the new owner.
        to: u32,
    },
    /// The old owner of a flow that is to be reassigned has sent its last packet.
    Released {
        /// Number of the flow.
        flow: u32,
        /// Fence under which it was sent.
        fence: u16,
        /// Number of the packet behind the last one.
        next: u64,
    },
    /// A flow has been sent to its end.
    Finished {
        /// Number of the flow.
        flow: u32,
        /// Fence under which it was sent.
        fence: u16,
        /// Number of the packet behind the last one.
        next: u64,
    },
    /// A flow ends before its last packet: its owner cannot send it on.
    GiveUp {
        /// Number of the flow.
        flow: u32,
        /// Fence under which it was sent.
        fence: u16,
        /// Reason.
        why: String,
    },
    /// A flow goes on at another rate from an instant on; all of them without a number.
    SetRate {
        /// Number of the flow.
        flow: Option<u32>,
        /// The instant, in nanoseconds after the start of the experiment.
        at_ns: u64,
        /// Millionths of the rate that its description asks for.
        ppm: u32,
    },
    /// A remark, for the report.
    Mark {
        /// Text of the remark.
        label: String,
    },
    /// The member that casts this asks for a lease from this instant of its own clock on.
    Renew {
        /// Instant of the request, in nanoseconds.
        sent_ns: u64,
        /// The same instant in nanoseconds after the start of the experiment; 0 before it.
        run_ns: u64,
    },
    /// No flow goes on; logs are closed and handed over.
    Drain,
    /// The experiment is over.
    End,
}

/// The bytes of a value: integers in as many bytes as they need.
#[must_use]
pub(super) fn write(value: &impl Serialize) -> Vec<u8> {
    bincode::serde::encode_to_vec(value, bincode::config::standard()).unwrap_or_default()
}

/// The value that these bytes are, all of them.
pub(super) fn read<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    let config = bincode::config::standard().with_limit::<MOST>();
    let (value, used) = bincode::serde::decode_from_slice(bytes, config).ok()?;
    (used == bytes.len()).then_some(value)
}
