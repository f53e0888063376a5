//! Bootstrap: processes on several hosts find each other and start together.
//!
//! Master and slave exist only until the start. Slot 0 is the master; it knows the others from a static
//! list of hosts, which it calls, or gives out slots in the order in which they call. Both sides are state
//! machines: the driver connects, frames messages and has the clock.
//!
//! | step | message | from → to | content |
//! |---|---|---|---|
//! | 1 hello | [`Boot::Hello`] | slave → master | version, build, schema, host, addresses, cores, site |
//! | 2 config | [`Boot::Config`] | master → each | slot, number of processes, incarnation, address map, hash |
//! | 3 graph | [`Boot::Graph`] | master → each | the experiment as bytes |
//! | 4 mesh | [`Boot::Mesh`] | pairs | slot *r* connects to all higher slots; each names itself |
//! | 5 ready | [`Boot::Ready`] | each → master | connected to all |
//! | 6 init | [`Boot::Init`] | master → each | build the stacks |
//! | 7 inited | [`Boot::Inited`] | each → master | |
//! | 8 start | [`Boot::Start`] | master → each | all active layers start |
//!
//! A process that runs again after it has gone (another *incarnation* of its slot) meets no master:
//! it asks the processes that run.
//!
//! | step | message | from → to | content |
//! |---|---|---|---|
//! | 1 return | [`Boot::Return`] | it → each of the others | version, build, schema, run, slot, host, addresses |
//! | 2 config, graph | [`Boot::Config`], [`Boot::Graph`] | each → it | as above; each names an incarnation that it has named to nobody before, and the highest counts |
//! | 3 mesh | [`Boot::Mesh`] | it ↔ each | its incarnation and where it is now; one that is not new is answered with [`Boot::Stale`] |
//!
//! A process that is greeted by a newer incarnation closes the connections of the older ones, and
//! takes nothing from them any more.
//!
//! Every step has a time limit. What does not come names its host and its step; then everything is torn
//! down, unless the policy does without that host.

mod application;
mod master;
mod returning;
mod slave;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::message::SECOND;

pub use application::Application;
pub use master::{Master, MasterAction, MasterInput, MasterOptions, Members, Require};
pub use returning::{Terms, Ticket, TicketError};
pub use slave::{Slave, SlaveAction, SlaveInput, SlaveOptions};

/// Version of these messages.
pub const PROTOCOL: u16 = 2;
/// Nanoseconds that a step may take unless the configuration says otherwise.
pub const STEP_TIMEOUT: u64 = 10 * SECOND;
/// Type of the frames that carry these messages.
pub const BOOT: u32 = 1000;
/// Largest message, in bytes.
pub const MOST_BYTES: usize = 64 << 20;

/// A step of the bootstrap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Step {
    /// Waiting for the slave's greeting.
    Hello,
    /// Sending it its slot.
    Config,
    /// Sending it the experiment.
    Graph,
    /// Connecting it to the others.
    Mesh,
    /// Waiting until it is connected.
    Ready,
    /// Letting it build its stack.
    Init,
    /// Waiting until it has.
    Inited,
    /// Starting.
    Start,
}

impl std::fmt::Display for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (number, name) = match self {
            Self::Hello => (1, "hello"),
            Self::Config => (2, "config"),
            Self::Graph => (3, "graph"),
            Self::Mesh => (4, "mesh"),
            Self::Ready => (5, "ready"),
            Self::Init => (6, "init"),
            Self::Inited => (7, "inited"),
            Self::Start => (8, "start"),
        };
        write!(f, "{number} ({name})")
    }
}

/// Facts that a slave sends about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostFacts {
    /// Name of the host.
    pub host: String,
    /// Addresses at which other processes reach it, one text for each kind of network.
    pub addresses: Vec<String>,
    /// Processor cores.
    pub cores: u32,
    /// Label of its failure domain; empty when it has none.
    pub site: String,
}

/// Messages of the bootstrap.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Boot {
    /// Step 1.
    Hello {
        /// [`PROTOCOL`].
        protocol: u16,
        /// Hash of the program.
        build: u64,
        /// Hash of the types in the experiment graph.
        schema: u64,
        /// The host.
        facts: HostFacts,
    },
    /// Step 2.
    Config {
        /// Slot of the receiver of this message.
        slot: u32,
        /// Number of processes.
        processes: u32,
        /// Its incarnation.
        incarnation: u64,
        /// Addresses by slot; none for slots that are missing.
        addresses: Vec<Vec<String>>,
        /// Hash of the resolved configuration.
        config: u64,
        /// The run: tells processes of another one apart.
        run: u64,
    },
    /// Step 3.
    Graph(Vec<u8>),
    /// Step 4, between two processes: the one that connects, and the one that answers.
    Mesh {
        /// Its slot.
        slot: u32,
        /// Its incarnation.
        incarnation: u64,
        /// The network that the connection belongs to.
        net: u8,
        /// The run.
        run: u64,
        /// Addresses at which it is reached, one text for each kind of network: it may have come
        /// back elsewhere.
        addresses: Vec<String>,
    },
    /// Answer to [`Boot::Mesh`] of a process that another one, of this or a later incarnation, has replaced.
    Stale {
        /// The highest that was heard of.
        incarnation: u64,
    },
    /// A process runs again and wants to go on as its slot.
    Return {
        /// [`PROTOCOL`].
        protocol: u16,
        /// Hash of the program.
        build: u64,
        /// Hash of the types in the experiment graph.
        schema: u64,
        /// The run that it was part of.
        run: u64,
        /// Its slot.
        slot: u32,
        /// The host.
        facts: HostFacts,
    },
    /// Step 5.
    Ready,
    /// Step 6.
    Init,
    /// Step 7.
    Inited,
    /// Step 8.
    Start,
    /// It cannot be done; all processes stop.
    Abort(Diagnosis),
}

/// Failure of a bootstrap: the host, the step and the reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("host {host}: step {step}: {reason}")]
pub struct Diagnosis {
    /// The host; `slot N` when its name is not known.
    pub host: String,
    /// The step.
    pub step: Step,
    /// Reason of the failure.
    pub reason: String,
}

/// Bytes that are no message of the bootstrap.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{bytes} bytes are no message of the bootstrap: {reason}")]
pub struct BootError {
    /// Number of bytes.
    pub bytes: usize,
    /// Fault that was found in them.
    pub reason: String,
}

impl Boot {
    /// The bytes of a message.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        encode(self)
    }

    /// The message that these bytes are.
    ///
    /// # Errors
    /// Bytes that are not exactly one message.
    pub fn decode(bytes: &[u8]) -> Result<Self, BootError> {
        decode(bytes)
    }
}

fn encode(value: &impl Serialize) -> Vec<u8> {
    let config = bincode::config::standard().with_fixed_int_encoding();
    bincode::serde::encode_to_vec(value, config).unwrap_or_default()
}

fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, BootError> {
    let error = |reason: String| BootError { bytes: bytes.len(), reason };
    let config = bincode::config::standard().with_fixed_int_encoding().with_limit::<MOST_BYTES>();
    match bincode::serde::decode_from_slice(bytes, config) {
        Ok((value, used)) if used == bytes.len() => Ok(value),
        Ok((_, used)) => Err(error(format!("{} bytes too many", bytes.len() - used))),
        Err(reason) => Err(error(reason.to_string())),
    }
}
