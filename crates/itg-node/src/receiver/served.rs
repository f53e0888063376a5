//! Account of one sender's flows, for what the receiver says when it has left.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use itg_core::flow::{FlowSpec, Meter, Proto};
use itg_session::{FlowCounts, FlowMeasure, FlowTotals};

use crate::clock_probes::ClockProbes;

/// Senders that have left and are not told of yet, at most.
pub(super) const MOST_UNREAD: usize = 64;

/// A sender that has left.
#[derive(Clone, Debug)]
pub struct ServedSession {
    /// Address that it signalled from.
    pub peer: SocketAddr,
    /// Its host, as it says.
    pub host: String,
    /// Run id.
    pub run: String,
    /// True if its host is this one, and the clocks the same.
    pub shared_clock: bool,
    /// Comparisons of the two clocks.
    pub clock: ClockProbes,
    /// Its flows by number.
    pub flows: BTreeMap<u32, ServedFlow>,
}

/// A flow that was received.
#[derive(Clone, Debug)]
pub struct ServedFlow {
    /// Transport protocol.
    pub proto: Proto,
    /// One-way or round trip.
    pub meter: Meter,
    /// Address at which its packets arrived.
    pub to: SocketAddr,
    /// The sender's account; `None` when it has not ended the flow.
    pub totals: Option<FlowTotals>,
    /// The account here; `None` when the flow was given up.
    pub counts: Option<FlowCounts>,
    /// Its measure.
    pub measure: Option<Box<FlowMeasure>>,
}

impl ServedSession {
    pub(super) fn new(peer: SocketAddr) -> Self {
        Self {
            peer,
            host: String::new(),
            run: String::new(),
            shared_clock: false,
            clock: ClockProbes::default(),
            flows: BTreeMap::new(),
        }
    }

    pub(super) fn greet(&mut self, run: &str, host: &str, shared_clock: bool) {
        (self.run, self.host, self.shared_clock) = (run.to_owned(), host.to_owned(), shared_clock);
    }

    /// Lead of the clock here over the sender's, as far as it is known.
    pub(super) fn ahead_ns(&self) -> Option<i64> {
        if self.shared_clock { Some(0) } else { self.clock.ahead_ns() }
    }

    pub(super) fn opened(&mut self, spec: &FlowSpec, to: SocketAddr) {
        let FlowSpec { id, proto, meter, .. } = *spec;
        let (totals, counts, measure) = (None, None, None);
        self.flows.insert(id, ServedFlow { proto, meter, to, totals, counts, measure });
    }

    pub(super) fn ended(&mut self, totals: &FlowTotals) {
        if let Some(flow) = self.flows.get_mut(&totals.flow) {
            flow.totals = Some(totals.clone());
        }
    }

    pub(super) fn measured(&mut self, measure: &FlowMeasure) {
        if let Some(flow) = self.flows.get_mut(&measure.flow) {
            flow.measure = Some(Box::new(measure.clone()));
        }
    }

    pub(super) fn counted(&mut self, counts: &FlowCounts) {
        if let Some(flow) = self.flows.get_mut(&counts.flow) {
            flow.counts = Some(counts.clone());
        }
    }
}
