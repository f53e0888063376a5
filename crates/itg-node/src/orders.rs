//! A run that is part of a larger one: it starts with the others, goes on where another sender has left
//! off, and sends only as long as it holds a lease.

use std::sync::Arc;

use itg_core::rate::RateChange;
use itg_engine::Lease;
use itg_session::FlowTotals;
use tokio::sync::mpsc;

/// Instant from which planned times count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Start {
    /// From shortly after all receivers have agreed.
    #[default]
    Soon,
    /// The same, but not before this Unix time of this host, in nanoseconds: for runs that start at several
    /// places at once.
    NotBefore(u64),
    /// From this Unix time of this host, in nanoseconds, however long ago that is.
    At(u64),
}

/// Control of a run that is part of a larger one: where it goes on, its lease, changes and ends.
#[derive(Debug)]
pub struct Orders {
    /// Flows begin with the first packet that is due at this instant of CLOCK_MONOTONIC or later; `None`:
    /// with their first one, however late.
    pub resume_ns: Option<u64>,
    /// Lease that allows packets to leave.
    pub lease: Arc<Lease>,
    /// Numbers of flows that shall end now.
    pub stops: mpsc::UnboundedReceiver<u32>,
    /// Numbers of flows with all changes of their rates so far; times count from the start of the flow.
    pub rates: mpsc::UnboundedReceiver<(u32, Vec<RateChange>)>,
    /// Is told of each flow that has sent its last packet; of thousands that end together, little by little.
    pub ends: mpsc::UnboundedSender<FlowTotals>,
}
