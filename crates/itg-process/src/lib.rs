//! Processes made of layers on parallel networks, without I/O.
//!
//! A process has a small number as its address and a stack of layers; messages go down by `send` and
//! up by `deliver`. The same stack, built by name from one configuration, runs in one address space
//! ([`Inproc`]), on real networks and in simulation: one driver hands what [`Process`] asks for to the
//! [`Transport`] of each world.
//!
//! | module | what |
//! |---|---|
//! | `message`, `frame` | addresses, destinations, messages; their frames on a wire |
//! | `layer`, `active`, `filters`, `machine` | kinds of layers: passive, active, filters, multiplexers, algorithms |
//! | `event` | events that layers log, as enums with names for traces |
//! | `injected` | facts that a simulation tells layers as if their world had done it |
//! | `process`, `output`, `counters` | the process object, and the stop of processes; what it asks of its world; its counters |
//! | `network` | promises of networks |
//! | `journal` | what a process remembers through a crash |
//! | `transport` | the one driver of processes, and what a world implements to be driven |
//! | `config`, `params`, `stack` | configuration, and stacks built by name |
//! | `bootstrap` | processes on several hosts find each other and start together |
//! | `inproc` | the in-process network |
//! | `farm` | the farm of processors: an application to begin with |
//!
//! Source: Urbán, Défago, Schiper, *Neko: a single environment to simulate and prototype distributed
//! algorithms*, Journal of Information Science and Engineering 18(6), 2002.

mod active;
pub mod bootstrap;
mod config;
mod core;
mod counters;
mod event;
pub mod farm;
mod filters;
pub mod frame;
mod injected;
mod inproc;
pub mod journal;
mod layer;
mod machine;
mod message;
mod network;
mod output;
mod params;
mod process;
mod stack;
mod transport;

pub use self::core::TimerId;
pub use active::{Active, ActiveCx, MOST_IN_INBOX};
pub use config::{CheckerEntry, Config, LayerEntry, MAX_PROCESSES, NetworkEntry};
pub use counters::Counters;
#[doc(hidden)]
pub use event::event_values;
pub use event::{Event, EventValue, LayerEvent, Level, RuntimeEvent};
pub use filters::{Multiplexer, TraceFilter};
pub use injected::Injected;
pub use inproc::{INBOX, Inproc};
pub use itg_core::text::{ConfigError, Position as TextPosition, suggestion};
pub use journal::{JournalWrite, Journals, LayerWrite, Stored};
pub use layer::{Ctx, Layer};
pub use machine::{Action, Adapter, Input, Machine, Wiring};
pub use message::{BYE, Dest, MS, Message, NetId, SECOND, STOP, Slot, Time, To, US, types};
pub use network::{Contract, Network};
pub use output::{StopReason, Trace, Way};
pub use params::Params;
pub use process::Process;
pub use stack::{Build, ProcessContext, Registry, everybody};
pub use transport::{Outgoing, Report, Transport};

/// The example of the README, compiled and run with the tests of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExample;
