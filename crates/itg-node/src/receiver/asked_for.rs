//! A request to a peer: the run and its flows, the latest end, and the sockets that go to where their sender waits.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use itg_core::flow::FlowSpec;
use itg_session::FlowTotals;
use itg_socket::clock;
use socket2::Socket;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// Time that the sender has, beyond that of the flows, until it is told to end them: 30 s.
const SLACK: Duration = Duration::from_secs(30);

/// A flow and the socket that has come to its sender, or the reason why it has not.
pub(super) type Reached = (FlowSpec, Result<Socket, String>);

/// Run that was asked of a peer.
#[derive(Debug)]
pub(super) struct AskedFor {
    pub(super) run: String,
    pub(super) seed: u64,
    pub(super) flows: BTreeMap<u32, FlowSpec>,
    /// Instant at which its flows must have ended, where they have a length in time.
    overdue: Option<Instant>,
    /// True once the flows have started: the ways of packets are open.
    pub(super) begun: Arc<AtomicBool>,
    /// First reason for which a flow could not be received.
    pub(super) failed: Option<String>,
    pub(super) reach: mpsc::UnboundedSender<Reached>,
    reached: mpsc::UnboundedReceiver<Reached>,
}

impl AskedFor {
    pub(super) fn new(run: &str, seed: u64, flows: &[FlowSpec]) -> Self {
        let (reach, reached) = mpsc::unbounded_channel();
        let ends = flows
            .iter()
            .map(|spec| Some(spec.start_ns.saturating_add(spec.stop.duration_ns?)))
            .collect::<Option<Vec<u64>>>();
        let longest = ends.and_then(|ends| ends.into_iter().max()).map(clock::ns);
        Self {
            run: run.to_owned(),
            seed,
            flows: flows.iter().map(|spec| (spec.id, spec.clone())).collect(),
            overdue: longest.and_then(|longest| Instant::now().checked_add(longest + SLACK)),
            begun: Arc::default(),
            failed: None,
            reach,
            reached,
        }
    }

    /// Notes that the flows start.
    pub(super) fn begin(&self) {
        self.begun.store(true, Ordering::Relaxed);
    }
}

/// Event of a run that was asked for, beside those of its signalling connection.
pub(super) enum News {
    /// The socket of a flow has come to its sender, or cannot.
    Reached(Box<Reached>),
    /// The flows should have ended long ago; the words for it.
    Overdue(String),
}

/// Waits for news of a run that was asked for.
pub(super) async fn news(asked: Option<&mut AskedFor>) -> News {
    let Some(asked) = asked else { return std::future::pending().await };
    let overdue = asked.overdue;
    let late = async {
        match overdue {
            Some(at) => tokio::time::sleep_until(at).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        Some(reached) = asked.reached.recv() => News::Reached(Box::new(reached)),
        () = late => {
            asked.overdue = None;
            News::Overdue("the flows last longer than was asked for".to_owned())
        }
    }
}

/// Returns true if the limits of the sender have ended a flow before those that were asked for.
pub(super) fn is_cut(spec: &FlowSpec, totals: &FlowTotals) -> bool {
    let stop = spec.stop;
    let largest = u64::from(spec.proto.max_size());
    let few = stop.packets.is_some_and(|limit| totals.next_seq < limit);
    let small = totals.skipped + totals.failed == 0
        && stop.bytes.is_some_and(|limit| totals.bytes.saturating_add(largest) < limit);
    stop.duration_ns.is_none()
        && (stop.packets.is_none() || few)
        && (stop.bytes.is_none() || small)
        && (few || small)
}
