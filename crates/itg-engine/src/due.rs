//! Flows by due time: a heap, so that a packet costs the logarithm of the number of flows that
//! wait.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// A flow that waits, by its place; the earliest is the largest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Due {
    at_ns: u64,
    index: usize,
}

impl Ord for Due {
    fn cmp(&self, other: &Self) -> Ordering {
        #[cfg(test)]
        tests::COMPARISONS.set(tests::COMPARISONS.get() + 1);
        (other.at_ns, other.index).cmp(&(self.at_ns, self.index))
    }
}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Flows that wait for their time.
#[derive(Debug)]
pub(crate) struct DueQueue(BinaryHeap<Due>);

impl DueQueue {
    /// With room for so many.
    pub(crate) fn with_capacity(flows: usize) -> Self {
        Self(BinaryHeap::with_capacity(flows))
    }

    /// The flow at this place is due at `at_ns`.
    pub(crate) fn push(&mut self, at_ns: u64, index: usize) {
        self.0.push(Due { at_ns, index });
    }

    /// The earliest: its time and its place.
    pub(crate) fn peek(&self) -> Option<(u64, usize)> {
        self.0.peek().map(|due| (due.at_ns, due.index))
    }

    /// Time of the earliest; `u64::MAX` without one.
    pub(crate) fn next_ns(&self) -> u64 {
        self.0.peek().map_or(u64::MAX, |due| due.at_ns)
    }

    /// Takes the earliest out.
    pub(crate) fn pop(&mut self) {
        self.0.pop();
    }

    /// Keeps the flows at these places only.
    pub(crate) fn retain(&mut self, keep: impl Fn(usize) -> bool) {
        self.0.retain(|due| keep(due.index));
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::io;
    use std::sync::Arc;

    use itg_core::distribution::Distribution;
    use itg_core::flow::{Flow, FlowSpec};
    use itg_core::payload::Content;
    use itg_core::seed::RunSeed;
    use proptest::prelude::*;

    use super::*;
    use crate::engine::{Engine, ScheduleStart, StopSignal, TxFlow};
    use crate::live::FlowLive;
    use crate::pacing::{Level, PacingOptions, Prepared};
    use crate::traffic::Traffic;
    use itg_socket::clock;
    use itg_socket::mmsg::Outgoing;
    use itg_socket::socket::{DataSocket, open_sender};
    use itg_socket::wire::Wire;

    thread_local! {
        /// Comparisons of this thread.
        pub(super) static COMPARISONS: Cell<u64> = const { Cell::new(0) };
    }

    proptest! {
        #[test]
        fn it_gives_out_what_a_sorted_list_would(
            mut list in prop::collection::vec((0u64..50, 0usize..50), 0..60), odd: bool,
        ) {
            let mut queue = DueQueue::with_capacity(0);
            list.iter().for_each(|&(at, index)| queue.push(at, index));
            let keep = |index: usize| index.is_multiple_of(2) != odd;
            queue.retain(keep);
            list.retain(|(_, index)| keep(*index));
            list.sort_unstable();
            let mut out = Vec::new();
            while let Some(next) = queue.peek() {
                out.push(next);
                queue.pop();
            }
            prop_assert!(queue.is_empty());
            prop_assert_eq!(out, list);
        }
    }

    /// Takes everything, and counts how often it is asked to.
    #[derive(Debug)]
    struct Sink(Arc<std::sync::atomic::AtomicU64>);

    impl Wire for Sink {
        fn send(&mut self, _: &DataSocket, packets: &[Outgoing<'_>]) -> io::Result<usize> {
            self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            Ok(packets.len())
        }
    }

    fn tx(
        socket: DataSocket,
        content: &Arc<Content>,
        group: usize,
        idt_ns: f64,
        start_ns: u64,
    ) -> TxFlow {
        let mut spec = FlowSpec::new(1);
        spec.idt = Distribution::Constant(idt_ns);
        spec.stop.packets = Some(2_000);
        let flow = Flow::resolve(spec, RunSeed(1)).expect("a flow");
        TxFlow {
            traffic: Traffic::itg(flow, 1, Arc::clone(content), 0),
            start: ScheduleStart(start_ns.cast_signed()),
            socket,
            log_index: 1,
            sampler: None,
            live: Arc::new(FlowLive::default()),
            group,
        }
    }

    /// Comparisons for the packets of one flow beside `idle` flows that are due much later; and its turns.
    fn comparisons(idle: usize) -> (u64, u64) {
        let to = std::net::UdpSocket::bind("127.0.0.1:0").expect("loopback");
        let data =
            open_sender(&FlowSpec::new(1), to.local_addr().expect("bound")).expect("loopback");
        let copy = || DataSocket {
            socket: Arc::clone(&data.socket),
            local: data.local,
            remote: data.remote,
            raw_v4: false,
            path: None,
            kept: None,
        };
        let now = clock::monotonic_ns();
        let hour = 3_600_000_000_000;
        let content = Arc::new(Content::random(RunSeed(1)));
        let mut flows = vec![tx(copy(), &content, 0, 20_000.0, now)];
        flows.extend((0..idle).map(|i| tx(copy(), &content, 1, 1e9, now + hour + i as u64)));
        let stop = Arc::new(StopSignal::new(2));
        let turns = Arc::new(std::sync::atomic::AtomicU64::new(0));
        let (wire, pacing) = (
            Box::new(Sink(Arc::clone(&turns))),
            Prepared::new(Level::Hybrid, PacingOptions::default()),
        );
        let took = Cell::new(None);
        let since = Cell::new(0);
        let end = |_| {
            // The first to end is the one that is not idle.
            if took.get().is_none() {
                took.set(Some(COMPARISONS.get() - since.get()));
                stop.raise(1);
            }
        };
        let mut engine = Engine::new(flows, wire, pacing, None, Arc::clone(&stop), end);
        since.set(COMPARISONS.get());
        engine.run();
        let turns = turns.load(std::sync::atomic::Ordering::Relaxed);
        (took.get().expect("it has ended"), turns)
    }

    #[test]
    fn a_packet_costs_no_more_than_the_logarithm_of_the_flows_that_wait() {
        itg_socket::host::raise_open_files();
        let files = nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE);
        let most = files.map_or(1_024, |(soft, _)| soft).saturating_sub(300);
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        for idle in [0, 100, 10_000] {
            let idle = idle.min(most);
            let (comparisons, turns) = comparisons(idle);
            // Into the heap and out of it, two comparisons a level at most.
            let levels = u64::from((idle + 1).ilog2()) + 1;
            assert!(
                comparisons <= turns * 4 * levels,
                "{comparisons} comparisons for {turns} turns beside {idle} idle flows"
            );
            assert!(idle == 0 || comparisons > 0, "nothing was counted");
        }
    }
}
