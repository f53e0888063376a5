//! Outcome of a run that was sent: both sides' accounts and measures of its flows.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use itg_engine::log::LogOutcome;
use itg_session::{FlowCounts, FlowMeasure, FlowTotals, LogSummary, SessionError, SharedDrops};

use super::job::SendFlow;
use crate::clock_probes::ClockProbes;

/// Outcome of a flow.
#[derive(Clone, Debug)]
pub struct FlowOutcome {
    /// Number of the flow.
    pub flow: u32,
    /// Signalling address of its receiver.
    pub receiver: Option<SocketAddr>,
    /// Local and remote address of its data socket, when it was opened.
    pub path: Option<(SocketAddr, SocketAddr)>,
    /// True once the sending thread had it: before, nothing of it was sent.
    pub begun: bool,
    /// The sender's account.
    pub totals: Option<FlowTotals>,
    /// The receiver's account.
    pub counts: Option<FlowCounts>,
    /// The receiver's measure of it; `None` from receivers of before.
    pub measure: Option<Box<FlowMeasure>>,
    /// Replies of a round-trip flow.
    pub replies: Option<FlowCounts>,
    /// Measure of the replies.
    pub reply_measure: Option<Box<FlowMeasure>>,
    /// Reason why it was not sent.
    pub refused: Option<String>,
    /// Packets that the kernel refused, by its error, as `EPERM`.
    pub refused_by: BTreeMap<String, u64>,
    /// Packets of all traffic that this host dropped meanwhile below its sockets, at the device of the flow; `None` where
    /// that is not known.
    pub host_drops: Option<u64>,
    /// Largest lateness of a packet: from when it was due until it was handed to the kernel, in nanoseconds.
    pub lateness_max_ns: u64,
}

impl FlowOutcome {
    /// Returns true if it was sent, and nothing at all has come to its receiver.
    #[must_use]
    pub fn is_unreached(&self) -> bool {
        let sent = self.totals.as_ref().is_some_and(|totals| totals.packets > 0);
        let came = |counts: &FlowCounts| {
            counts.packets > 0 || counts.foreign > 0 || counts.socket_drops > Some(0)
        };
        sent && self.counts.as_ref().is_some_and(|counts| !came(counts))
    }

    /// Outcome of a flow before anything is known of it.
    pub(super) const fn nothing_yet(flow: &SendFlow) -> Self {
        Self {
            flow: flow.flow.spec().id,
            receiver: Some(flow.receiver),
            path: None,
            begun: false,
            totals: None,
            counts: None,
            measure: None,
            replies: None,
            reply_measure: None,
            refused: None,
            refused_by: BTreeMap::new(),
            host_drops: None,
            lateness_max_ns: 0,
        }
    }
}

/// Clock of the other host of a session, compared with the one here.
#[derive(Clone, Debug, Default)]
pub struct PeerClock {
    /// Signalling address of the receiver.
    pub receiver: Option<SocketAddr>,
    /// True if both hosts are one, and the clocks the same.
    pub shared: bool,
    /// Comparisons of the two clocks.
    pub probes: ClockProbes,
}

/// Outcome of a run.
#[derive(Clone, Debug, Default)]
pub struct SendOutcome {
    /// The flows, in the order in which they were given.
    pub flows: Vec<FlowOutcome>,
    /// The sender's log.
    pub log: Option<LogOutcome>,
    /// Logs that receivers kept.
    pub remote_logs: Vec<(SocketAddr, LogSummary)>,
    /// The clocks of the receivers.
    pub clocks: Vec<PeerClock>,
    /// Drops of receivers' sockets that are not one flow's own; the flows' counts have none of them.
    pub shared_drops: Vec<SharedDrops>,
    /// Sessions that failed.
    pub failures: Vec<(SocketAddr, SessionError)>,
    /// Reason of the end, if the run was ended early.
    pub interrupted: Option<String>,
}
