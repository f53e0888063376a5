//! Flows without inter-departure times (`rate = "max"`): in turns, they share the time that flows with due times leave.
//!
//! A batch holds no more packets than can be handed over before the next packet of another flow is due, by what packets
//! of that flow have cost. Where none can, the thread waits for that packet; but a flow of this kind has a turn at
//! least every [`STARVED_NS`], so that it comes to its end beside flows that are behind their time.

use std::collections::VecDeque;

use itg_socket::mmsg::BATCH;

/// Time without a turn after which one goes before packets that are due: 20 ms.
const STARVED_NS: u64 = 20_000_000;

/// Flows that wait for their turn, by their places; the one that has waited longest is the first.
#[derive(Debug)]
pub(super) struct Unpaced {
    waiting: VecDeque<usize>,
    /// Instant of the last turn, or at which the first of those that wait began to.
    since_ns: u64,
}

impl Unpaced {
    /// With room for so many.
    pub(super) fn with_capacity(flows: usize) -> Self {
        Self { waiting: VecDeque::with_capacity(flows), since_ns: u64::MAX }
    }

    /// Makes room for so many flows.
    pub(super) fn reserve(&mut self, flows: usize) {
        self.waiting.reserve(flows.saturating_sub(self.waiting.len()));
    }

    /// Adds the flow at this place, behind the others.
    pub(super) fn push(&mut self, now_ns: u64, index: usize) {
        if self.waiting.is_empty() {
            self.since_ns = now_ns;
        }
        self.waiting.push_back(index);
    }

    /// The one whose turn is next.
    pub(super) fn peek(&self) -> Option<usize> {
        self.waiting.front().copied()
    }

    /// Takes it out: it has its turn.
    pub(super) fn pop(&mut self) {
        self.waiting.pop_front();
    }

    /// A turn has been taken.
    pub(super) const fn served(&mut self, now_ns: u64) {
        self.since_ns = now_ns;
    }

    /// Returns true if a turn is due before packets that are.
    pub(super) fn is_starved(&self, now_ns: u64) -> bool {
        !self.waiting.is_empty() && self.has_waited(now_ns)
    }

    const fn has_waited(&self, now_ns: u64) -> bool {
        now_ns.saturating_sub(self.since_ns) >= STARVED_NS
    }

    /// Most packets of the next batch, which cost so much each, when the next packet of others is due at `due_ns`.
    pub(super) fn most(&self, now_ns: u64, due_ns: u64, packet_ns: u64) -> usize {
        let fit = due_ns.saturating_sub(now_ns) / packet_ns.max(1);
        let fit = usize::try_from(fit).unwrap_or(BATCH).min(BATCH);
        if fit == 0 && self.has_waited(now_ns) { 1 } else { fit }
    }

    /// Returns true if the flow at this place waits for its turn.
    pub(super) fn contains(&self, index: usize) -> bool {
        self.waiting.contains(&index)
    }

    /// Keeps the flows at these places only.
    pub(super) fn retain(&mut self, keep: impl Fn(usize) -> bool) {
        self.waiting.retain(|index| keep(*index));
    }

    pub(super) fn clear(&mut self) {
        self.waiting.clear();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

/// Cost of handing over a packet, after so many that took so long; 1/8 of the way to that of the last batch, which
/// counts as at most twice as much as before: it may have been interrupted.
pub(super) fn learn(packet_ns: u64, took_ns: u64, packets: usize) -> u64 {
    let Some(each_ns) = took_ns.checked_div(packets as u64) else { return packet_ns };
    (packet_ns * 7 + each_ns.min(packet_ns * 2)).div_ceil(8)
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::net::UdpSocket;
    use std::sync::{Arc, Mutex};

    use itg_core::distribution::Distribution;
    use itg_core::flow::{Flow, FlowSpec};
    use itg_core::payload::Content;
    use itg_core::seed::RunSeed;
    use itg_socket::clock;
    use itg_socket::mmsg::Outgoing;
    use itg_socket::socket::{DataSocket, open_sender};
    use itg_socket::wire::Wire;

    use super::*;
    use crate::engine::{BATCHES_A_TURN, Engine, ScheduleStart, StopSignal, TxFlow};
    use crate::live::FlowLive;
    use crate::pacing::{Level, PacingOptions, Prepared};
    use crate::traffic::Traffic;

    /// A call that sends: the source port of its flow, the time before it, the packets.
    type Call = (u16, u64, usize);

    /// Takes everything, 2 µs a packet, and writes it down.
    #[derive(Debug)]
    struct SlowWire(Arc<Mutex<Vec<Call>>>);

    impl Wire for SlowWire {
        fn send(&mut self, to: &DataSocket, packets: &[Outgoing<'_>]) -> io::Result<usize> {
            let now = clock::monotonic_ns();
            let port = to.local.port();
            self.0.lock().expect("one thread").push((port, now, packets.len()));
            while clock::monotonic_ns() < now + 2_000 * packets.len() as u64 {}
            Ok(packets.len())
        }
    }

    /// Ports of the flows, with these inter-departure times and numbers of packets, the calls that sent them, and their
    /// start.
    fn sent(flows: &[(f64, u64)], level: Level) -> (Vec<u16>, Vec<Call>, u64) {
        let to = UdpSocket::bind("127.0.0.1:0").expect("loopback");
        let start_ns = clock::monotonic_ns() + 20_000_000;
        let flow = |(id, &(idt_ns, packets)): (u32, &(f64, u64))| {
            let mut spec = FlowSpec::new(id);
            spec.idt = Distribution::Constant(idt_ns);
            spec.stop.packets = Some(packets);
            let socket = open_sender(&spec, to.local_addr().expect("bound")).expect("loopback");
            let flow = Flow::resolve(spec, RunSeed(1)).expect("a flow");
            TxFlow {
                traffic: Traffic::itg(flow, id, Arc::new(Content::random(RunSeed(1))), 0),
                start: ScheduleStart(start_ns.cast_signed()),
                socket,
                log_index: id,
                sampler: None,
                live: Arc::new(FlowLive::default()),
                group: 0,
            }
        };
        let flows: Vec<_> = (1..).zip(flows).map(flow).collect();
        let ports = flows.iter().map(|flow| flow.socket.local.port()).collect();
        let calls = Arc::new(Mutex::new(Vec::new()));
        let wire = Box::new(SlowWire(Arc::clone(&calls)));
        let pacing = Prepared::new(level, PacingOptions::default());
        Engine::new(flows, wire, pacing, None, Arc::new(StopSignal::new(1)), drop).run();
        let calls = calls.lock().expect("one thread").clone();
        (ports, calls.into_iter().filter(|(.., packets)| *packets > 0).collect(), start_ns)
    }

    #[test]
    fn a_packet_that_is_due_waits_for_one_batch_of_a_flow_at_max_at_most() {
        const GAP_NS: u64 = 1_000_000;
        for level in [Level::Sleep, Level::Hybrid] {
            for floods in 1..=3 {
                let mut flows = vec![(0.0, 40_000 / floods); usize::try_from(floods).expect("few")];
                flows.push((GAP_NS as f64, 40));
                let (ports, calls, start_ns) = sent(&flows, level);
                let call = *ports.last().expect("the call");
                let (mut due_ns, mut before) = (start_ns, 0);
                for &(port, now, packets) in &calls {
                    if port == call {
                        due_ns += GAP_NS * packets as u64;
                        before = 0;
                    } else if now > due_ns && due_ns < start_ns + 40 * GAP_NS {
                        // Behind a time in which the thread stood still single packets may come first.
                        before += packets;
                        assert!(before <= BATCH, "{floods}, {level}: due at {due_ns}: {before}");
                    }
                }
                let total: usize = calls.iter().map(|(.., packets)| packets).sum();
                assert_eq!(total as u64, 40_000 / floods * floods + 40, "{floods}, {level}");
            }
        }
    }

    #[test]
    fn flows_at_max_take_turns() {
        let (ports, calls, _) = sent(&[(0.0, 5_000); 3], Level::Hybrid);
        let mut counts = [0; 3];
        for (port, _, packets) in calls {
            let at = ports.iter().position(|other| *other == port).expect("a flow");
            counts[at] += packets;
            let (least, most) = (counts.iter().min(), counts.iter().max());
            let apart = most.zip(least).map_or(0, |(most, least)| most - least);
            assert!(apart <= BATCH * BATCHES_A_TURN, "{counts:?}");
        }
        assert_eq!(counts, [5_000; 3]);
    }

    #[test]
    fn a_flow_at_max_comes_to_its_end_beside_one_that_cannot_keep_its_time() {
        // 2 µs a packet, and one is due every microsecond.
        let (ports, calls, _) = sent(&[(1_000.0, 50_000), (0.0, 8)], Level::Hybrid);
        let last = |port| calls.iter().rposition(|call| call.0 == port);
        assert!(last(ports[1]) < last(ports[0]), "{calls:?}");
    }

    #[test]
    fn a_batch_is_what_fits_before_the_next_packet_is_due() {
        let mut unpaced = Unpaced::with_capacity(1);
        unpaced.push(1_000, 0);
        for (due_ns, packet_ns, want) in [
            (u64::MAX, 1, BATCH),
            (2_000, 100, 10),
            (2_000, 1_001, 0),
            (500, 100, 0),
            (2_000, 0, BATCH),
        ] {
            assert_eq!(unpaced.most(1_000, due_ns, packet_ns), want, "{due_ns} {packet_ns}");
        }
        let later_ns = 1_000 + STARVED_NS;
        assert!(!unpaced.is_starved(later_ns - 1) && unpaced.is_starved(later_ns));
        assert_eq!(unpaced.most(later_ns, 500, 100), 1, "the rest is the others'");
        unpaced.served(later_ns);
        assert!(!unpaced.is_starved(later_ns));
    }

    #[test]
    fn the_cost_of_a_packet_is_learned() {
        let after = |costs_ns: &[u64]| costs_ns.iter().fold(1_000, |ns, cost| learn(ns, *cost, 1));
        assert!((2_900..=3_000).contains(&after(&[3_000; 60])));
        assert!((300..=310).contains(&after(&[300; 60])));
        assert_eq!(after(&[1_000_000_000]), 1_125, "an interruption");
        assert_eq!(learn(1_000, 5, 0), 1_000);
    }
}
