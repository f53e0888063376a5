//! Account of one sender's flows, for what the receiver says when it has left.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use itg_core::flow::{FlowSpec, Meter, Proto};
use itg_session::{DelayMeasure, FlowCounts, FlowMeasure, FlowTotals, SharedDrops};

use crate::clock_probes::ClockProbes;

/// Senders that have left and are not told of yet, at most.
pub(super) const MOST_UNREAD: usize = 16;
/// Flows that are measured at a time (25 kB each): those in the first places of the table.
pub(super) const MOST_MEASURED: usize = 10_240;
/// Values that are kept of a sender's flows together (of 8 bytes): those of thousands of flows.
const MOST_VALUES: usize = 1 << 20;

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
    /// Drops of sockets that are not one flow's own; the flows' counts have none of them when the session is over.
    pub shared_drops: Vec<SharedDrops>,
    /// Values that the measures of its flows have together.
    values: usize,
}

/// A flow that was received.
#[derive(Clone, Debug)]
pub struct ServedFlow {
    /// Transport protocol.
    pub proto: Proto,
    /// One-way or round trip.
    pub meter: Meter,
    /// Address from which its packets came: of none, the sender's with port 0.
    pub from: SocketAddr,
    /// Address at which its packets arrived.
    pub to: SocketAddr,
    /// Rate in bits a second that its sender holds it to ([`FlowSpec::own_limit`]).
    pub limit_bps: Option<u64>,
    /// The sender's account; `None` when it has not ended the flow.
    pub totals: Option<FlowTotals>,
    /// The account here; of a flow that was cut short, what had arrived by then.
    pub counts: Option<FlowCounts>,
    /// Reason why the flow was given up before both sides had counted it.
    pub cut_short: Option<String>,
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
            shared_drops: Vec::new(),
            values: 0,
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
        let (totals, counts, measure, cut_short) = (None, None, None, None);
        let from = SocketAddr::new(self.peer.ip(), 0);
        let limit_bps = spec.own_limit();
        let flow =
            ServedFlow { proto, meter, from, to, limit_bps, totals, counts, cut_short, measure };
        self.flows.insert(id, flow);
    }

    pub(super) fn ended(&mut self, totals: &FlowTotals) {
        if let Some(flow) = self.flows.get_mut(&totals.flow) {
            flow.totals = Some(totals.clone());
        }
    }

    /// Notes that a flow is given up. Packets may be on their way: the sender's account is no measure of loss.
    pub(super) fn cut_short(&mut self, flow: u32, reason: &str) {
        let sent = |flow: &&mut ServedFlow| flow.totals.as_ref().is_none_or(|t| t.packets > 0);
        if let Some(flow) = self.flows.get_mut(&flow).filter(sent) {
            (flow.totals, flow.cut_short) = (None, Some(reason.to_owned()));
        }
    }

    /// The session is over.
    pub(super) fn finish(&mut self) {
        let counts = self.flows.values_mut();
        self.shared_drops =
            SharedDrops::take(counts.filter_map(|flow| Some((flow.to, flow.counts.as_mut()?))));
    }

    /// Keeps the measure of a flow; its delays as long as there is room for their values.
    pub(super) fn measured(&mut self, measure: &FlowMeasure) {
        let Some(flow) = self.flows.get_mut(&measure.flow) else { return };
        let values =
            |delays: &DelayMeasure| delays.above.len() + delays.below.len() + delays.steps.len();
        let more = measure.delays.as_ref().map_or(0, values);
        let delays = measure.delays.as_ref().filter(|_| self.values + more <= MOST_VALUES);
        self.values += delays.map_or(0, values);
        flow.measure = Some(Box::new(FlowMeasure { delays: delays.cloned(), ..*measure }));
    }

    pub(super) fn counted(&mut self, counts: &FlowCounts, from: Option<SocketAddr>) {
        if let Some(flow) = self.flows.get_mut(&counts.flow) {
            flow.counts = Some(counts.clone());
            flow.from = from.unwrap_or(flow.from);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sender that sends ever more values is kept without them, and its later flows with theirs as long as they fit.
    #[test]
    fn values_of_one_sender_are_bounded() {
        let at: SocketAddr = "127.0.0.1:9".parse().expect("an address");
        let mut served = ServedSession::new(at);
        let measure = |flow, values| {
            let delays = DelayMeasure {
                count: values as u64,
                base_ns: 0,
                min_ns: 0,
                max_ns: 0,
                mean_ns: 0,
                stddev_ns: 0,
                jitter_ns: 0,
                rfc3550_ns: 0,
                above: vec![(0, 1); values],
                below: Vec::new(),
                steps: Vec::new(),
            };
            let delays = Some(delays);
            FlowMeasure { flow, first_unix_ns: 0, last_unix_ns: 0, reordered: 0, delays }
        };
        for (flow, values, kept) in
            [(1, MOST_VALUES - 10, true), (2, 11, false), (3, 10, true), (4, 1, false)]
        {
            served.opened(&FlowSpec::new(flow), at);
            served.measured(&measure(flow, values));
            let told = served.flows[&flow].measure.as_ref().expect("a measure");
            assert_eq!(told.delays.is_some(), kept, "flow {flow}");
        }
    }
}
