//! Flows of a receiver as those who watch it see them: while they run, and for a while after their end.
//!
//! Nothing is kept where nobody watches. What is told of delays is what the receiving thread has measured anyway; it
//! copies that, some microseconds a flow, when somebody looks.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use itg_core::flow::{FlowSpec, Meter, Proto};
use itg_engine::live::{FlowLive, FlowReading};
use itg_engine::rx::Command;
use itg_session::{DelayMeasure, FlowCounts, FlowMeasure, FlowTotals, ProbeStamps};
use itg_socket::clock;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::ports::Opened;
use super::shared::{ReceiverReading, Shared};
use crate::clock_probes::ClockProbes;
use crate::lock::lock;

/// Flows that are told of, those that have ended among them.
pub(super) const WATCHED_FLOWS: usize = 1000;
/// Flows among them that are told of with their delays.
pub const WATCHED_MEASURES: usize = 256;
/// Time for which a flow that has ended is told of: 15 minutes.
const STAY_NS: u64 = 900_000_000_000;
/// Measures that the receiving thread copies before it looks at its sockets again.
const AT_ONCE: usize = 32;
/// Longest wait for these.
const PATIENCE: Duration = Duration::from_secs(1);
/// Values that the measures of flows that have ended have together (of 8 bytes).
const MOST_VALUES: usize = 1 << 20;

/// What tells a flow from all others: run, addresses, number and protocol.
type Key = (Arc<str>, IpAddr, IpAddr, u32, Proto);

/// A flow of a receiver.
#[derive(Clone, Debug)]
pub struct WatchedFlow {
    /// Run id.
    pub run: Arc<str>,
    /// Number of the flow.
    pub flow: u32,
    /// Transport protocol.
    pub proto: Proto,
    /// One-way or round trip.
    pub meter: Meter,
    /// Address of the sender.
    pub from: IpAddr,
    /// Address that it sends to.
    pub to: IpAddr,
    /// Its counters.
    pub reading: FlowReading,
    /// The sender's account, once it has ended the flow.
    pub totals: Option<FlowTotals>,
    /// The account here, at the end.
    pub counts: Option<FlowCounts>,
    /// Its measure so far.
    pub measure: Option<Arc<FlowMeasure>>,
    /// True if sender and receiver are one host, and the clocks the same.
    pub shared_clock: bool,
    /// Comparisons of the two clocks.
    pub clock: ClockProbes,
}

/// A receiver as somebody who watches it sees it.
#[derive(Clone, Debug, Default)]
pub struct WatchReading {
    /// Counts of all flows.
    pub sum: ReceiverReading,
    /// Packets and connections on data ports that belonged to no flow.
    pub foreign: u64,
    /// Flows that are told of.
    pub flows: Vec<WatchedFlow>,
    /// Flows that run and are not told of.
    pub left_out: usize,
}

/// Clocks of a session.
#[derive(Debug, Default)]
struct Clocks {
    shared: bool,
    probes: ClockProbes,
}

#[derive(Debug)]
struct Entry {
    meter: Meter,
    live: Arc<FlowLive>,
    /// Place in the table of flows, and whether it is spread over threads, while it runs and is measured.
    place: Option<(usize, bool)>,
    running: bool,
    measured: bool,
    clocks: Arc<Mutex<Clocks>>,
    totals: Option<FlowTotals>,
    counts: Option<FlowCounts>,
    measure: Option<Arc<FlowMeasure>>,
}

/// The flows that are told of.
#[derive(Debug, Default)]
pub(super) struct Watched {
    flows: BTreeMap<Key, Entry>,
    /// Those that have ended, and when, in order.
    ended: VecDeque<(u64, Key)>,
    measured: usize,
    values: usize,
}

impl Entry {
    /// Values of its measure at the end.
    fn values(&self) -> usize {
        let count = |d: &DelayMeasure| d.above.len() + d.below.len() + d.steps.len();
        self.measure.as_ref().and_then(|m| m.delays.as_ref()).map_or(0, count)
    }
}

impl Watched {
    /// Takes a flow in, if there is room and none like it; returns whether.
    fn begin(&mut self, key: &Key, mut entry: Entry) -> bool {
        if self.flows.contains_key(key) {
            return false;
        }
        if self.flows.len() >= WATCHED_FLOWS && !self.forget_oldest() {
            return false;
        }
        entry.measured = self.measured < WATCHED_MEASURES;
        self.measured += usize::from(entry.measured);
        self.flows.insert(key.clone(), entry);
        true
    }

    /// Notes the end of a flow.
    fn end(&mut self, key: &Key, now_ns: u64) {
        let Some(entry) = self.flows.get_mut(key).filter(|entry| entry.running) else { return };
        (entry.running, entry.place) = (false, None);
        self.ended.push_back((now_ns, key.clone()));
    }

    /// Keeps the last measure of a flow, its delays as long as there is room for their values.
    fn measured(&mut self, key: &Key, measure: &FlowMeasure) {
        let Some(entry) = self.flows.get_mut(key).filter(|entry| entry.measured) else { return };
        entry.place = None;
        self.values -= entry.values();
        entry.measure = Some(Arc::new(measure.clone()));
        if self.values + entry.values() > MOST_VALUES {
            entry.measure = Some(Arc::new(FlowMeasure { delays: None, ..*measure }));
        }
        self.values += entry.values();
    }

    fn forget_oldest(&mut self) -> bool {
        let Some((_, key)) = self.ended.pop_front() else { return false };
        if let Some(entry) = self.flows.remove(&key) {
            self.measured -= usize::from(entry.measured);
            self.values -= entry.values();
        }
        true
    }

    /// The flows that are told of now, with the places of those whose measure is to be asked for.
    fn read(&mut self, now_ns: u64) -> Vec<(WatchedFlow, Option<Place>)> {
        while self.ended.front().is_some_and(|(at, _)| now_ns.saturating_sub(*at) >= STAY_NS) {
            self.forget_oldest();
        }
        let told = self.flows.iter().map(|(key, entry)| {
            let (run, from, to, flow, proto) = key.clone();
            let clocks = lock(&entry.clocks);
            let told = WatchedFlow {
                run,
                flow,
                proto,
                meter: entry.meter,
                from,
                to,
                reading: entry.live.read(),
                totals: entry.totals.clone(),
                counts: entry.counts.clone(),
                measure: entry.measure.clone(),
                shared_clock: clocks.shared,
                clock: if entry.measured { clocks.probes.clone() } else { ClockProbes::default() },
            };
            let place = entry.place.filter(|_| entry.measured);
            (
                told,
                place.map(|(slot, spread)| Place { slot, spread, live: Arc::clone(&entry.live) }),
            )
        });
        told.collect()
    }
}

/// A flow at a receiving thread.
struct Place {
    slot: usize,
    spread: bool,
    live: Arc<FlowLive>,
}

/// The flows of one sender among those that are told of.
#[derive(Debug)]
pub(super) struct WatchedSession {
    shared: Weak<Shared>,
    clocks: Arc<Mutex<Clocks>>,
    keys: BTreeMap<u32, Key>,
}

impl WatchedSession {
    pub(super) fn new(shared: &Arc<Shared>) -> Self {
        Self { shared: Arc::downgrade(shared), clocks: Arc::default(), keys: BTreeMap::new() }
    }

    pub(super) fn greet(&self, shared_clock: bool) {
        lock(&self.clocks).shared = shared_clock;
    }

    pub(super) fn probed(&self, stamps: ProbeStamps) {
        // Of flows that have ended, too: those behind the run tell how the clocks drifted.
        if Arc::strong_count(&self.clocks) > 1 {
            lock(&self.clocks).probes.take(stamps);
        }
    }

    /// A flow is awaited. `clock` is what is known of the sender's clock by now.
    pub(super) fn opened(
        &mut self,
        (run, spec): (&str, &FlowSpec),
        (from, to): (IpAddr, SocketAddr),
        opened: &Opened,
        clock: &ClockProbes,
    ) {
        let Some(shared) = self.shared.upgrade() else { return };
        let Some(watched) = shared.watched.get() else { return };
        if Arc::strong_count(&self.clocks) == 1 {
            lock(&self.clocks).probes = clock.clone();
        }
        let key = (run.into(), from, to.ip(), spec.id, spec.proto);
        let entry = Entry {
            meter: spec.meter,
            live: Arc::clone(&opened.live),
            place: Some((opened.slot, opened.socket.spreads())),
            running: true,
            measured: false,
            clocks: Arc::clone(&self.clocks),
            totals: None,
            counts: None,
            measure: None,
        };
        if lock(watched).begin(&key, entry) {
            self.keys.insert(spec.id, key);
        }
    }

    /// Changes what is told of a flow.
    fn change(&self, flow: u32, change: impl FnOnce(&mut Watched, &Key)) {
        let Some(key) = self.keys.get(&flow) else { return };
        let Some(shared) = self.shared.upgrade() else { return };
        if let Some(watched) = shared.watched.get() {
            change(&mut lock(watched), key);
        }
    }

    pub(super) fn ended(&self, totals: &FlowTotals) {
        self.change(totals.flow, |watched, key| {
            if let Some(entry) = watched.flows.get_mut(key) {
                entry.totals = Some(totals.clone());
            }
        });
    }

    pub(super) fn measured(&self, measure: &FlowMeasure) {
        self.change(measure.flow, |watched, key| watched.measured(key, measure));
    }

    pub(super) fn counted(&mut self, counts: &FlowCounts) {
        self.change(counts.flow, |watched, key| {
            if let Some(entry) = watched.flows.get_mut(key) {
                entry.counts = Some(counts.clone());
            }
            watched.end(key, clock::machine_ns());
        });
        self.keys.remove(&counts.flow);
    }
}

impl Drop for WatchedSession {
    /// Flows that were not counted have ended with their session.
    fn drop(&mut self) {
        for flow in self.keys.keys() {
            self.change(*flow, |watched, key| watched.end(key, clock::machine_ns()));
        }
    }
}

/// Somebody's way of watching a receiver.
#[derive(Clone, Debug)]
pub struct ReceiverWatch {
    shared: Weak<Shared>,
}

impl ReceiverWatch {
    /// Watches from now on.
    pub(super) fn new(shared: &Arc<Shared>) -> Self {
        shared.watched.get_or_init(Mutex::default);
        Self { shared: Arc::downgrade(shared) }
    }

    /// What there is to be seen; `None` when the receiver serves no more.
    pub async fn read(&self) -> Option<WatchReading> {
        let (sum, foreign, mut flows) = {
            let shared = self.shared.upgrade()?;
            let flows = lock(shared.watched.get()?).read(clock::machine_ns());
            (lock(&shared.running).read(), shared.rx.foreign(), flows)
        };
        let mut asked: Vec<_> = flows.iter_mut().filter(|(_, place)| place.is_some()).collect();
        for some in asked.chunks_mut(AT_ONCE) {
            let mut answers = Vec::with_capacity(some.len());
            {
                let shared = self.shared.upgrade()?;
                for (flow, place) in some {
                    let Some(Place { slot, spread, live }) = place.take() else { continue };
                    let (tell, told) = oneshot::channel();
                    // It is not awaited for long.
                    let done = Box::new(move |measure| drop(tell.send(measure)));
                    shared.rx.of(spread, slot).ask(Command::Measure { slot, live, done });
                    answers.push((flow, told));
                }
            }
            for (flow, told) in answers {
                if let Ok(Ok(Some(measure))) = timeout(PATIENCE, told).await {
                    flow.measure = Some(Arc::from(measure));
                }
            }
        }
        let flows: Vec<_> = flows.into_iter().map(|(flow, _)| flow).collect();
        let running = flows.iter().filter(|flow| !flow.reading.ended).count();
        Some(WatchReading { left_out: sum.flows.saturating_sub(running), sum, foreign, flows })
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn key(flow: u32) -> Key {
        let at = IpAddr::V4(Ipv4Addr::LOCALHOST);
        ("run".into(), at, at, flow, Proto::Udp)
    }

    fn entry() -> Entry {
        Entry {
            meter: Meter::Owd,
            live: Arc::default(),
            place: Some((0, false)),
            running: true,
            measured: false,
            clocks: Arc::default(),
            totals: None,
            counts: None,
            measure: None,
        }
    }

    /// However many flows come and go, few are kept; those that run go before those that have ended.
    #[test]
    fn flows_are_bounded() {
        let mut watched = Watched::default();
        for flow in 0..10 * u32::try_from(WATCHED_FLOWS).expect("few") {
            let taken = watched.begin(&key(flow), entry());
            assert_eq!(taken, (flow as usize) < WATCHED_FLOWS, "{flow}");
        }
        let told = watched.read(0);
        assert_eq!(told.len(), WATCHED_FLOWS);
        assert_eq!(told.iter().filter(|(_, place)| place.is_some()).count(), WATCHED_MEASURES);
        watched.end(&key(7), 5);
        assert!(watched.begin(&key(20_000), entry()), "one that has ended gives way");
        assert!(!watched.flows.contains_key(&key(7)));
        assert!(!watched.begin(&key(20_000), entry()), "a second one of the same name");
    }

    #[test]
    fn flows_that_have_ended_stay_for_a_while() {
        let mut watched = Watched::default();
        for flow in [1, 2] {
            assert!(watched.begin(&key(flow), entry()));
        }
        watched.end(&key(1), 100);
        watched.end(&key(1), 200);
        assert_eq!(watched.read(99 + STAY_NS).len(), 2);
        assert_eq!(watched.read(100 + STAY_NS).len(), 1);
        assert_eq!((watched.ended.len(), watched.measured), (0, 1));
    }

    #[test]
    fn values_of_measures_are_bounded() {
        let mut watched = Watched::default();
        let delays = DelayMeasure {
            count: 1,
            base_ns: 0,
            min_ns: 0,
            max_ns: 0,
            mean_ns: 0,
            stddev_ns: 0,
            jitter_ns: 0,
            rfc3550_ns: 0,
            above: vec![(0, 1); MOST_VALUES / 2],
            below: Vec::new(),
            steps: Vec::new(),
        };
        for flow in [1, 2, 3] {
            assert!(watched.begin(&key(flow), entry()));
            let delays = Some(delays.clone());
            let measure =
                FlowMeasure { flow, first_unix_ns: 0, last_unix_ns: 0, reordered: 0, delays };
            watched.measured(&key(flow), &measure);
            watched.end(&key(flow), 0);
        }
        let told = watched.read(1);
        let with = told.iter().filter(|(flow, _)| {
            flow.measure.as_ref().is_some_and(|measure| measure.delays.is_some())
        });
        assert_eq!(with.count(), 2);
        watched.read(STAY_NS);
        assert_eq!(watched.values, 0);
    }
}
