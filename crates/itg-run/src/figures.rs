//! Figures of nodes about their flows while they run: counters and the lateness of packets, small
//! and mergeable.
//!
//! A worker counts, its agent adds up its workers, and once a second the figures of all nodes go up the tree of
//! the view, merged on their way ([`itg_members::overlay`]); the root spreads the sum to all members, the
//! console among them. Each contribution stands for itself: what is lost or comes twice changes nothing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use itg_engine::FlowLive;
use serde::{Deserialize, Serialize};

/// The topic of these figures in the overlay.
pub const TOPIC: u32 = 1;
/// Flows that are told of one by one; the others are added up under number 0.
const MOST_FLOWS: usize = 10_000;
/// Longest encoding that is read.
const MOST_BYTES: usize = 1 << 20;
/// Time between two reports.
const EVERY: Duration = Duration::from_secs(1);
/// Upper bounds of the classes of lateness, in nanoseconds. One more class has no bound.
pub use itg_cli::LATENESS_BOUNDS_NS as BOUNDS_NS;

/// Counters of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowFigures {
    /// Packets handed to the kernel.
    pub sent_packets: u64,
    /// Bytes of these.
    pub sent_bytes: u64,
    /// Packets that the receiver had not read when it was asked last; `None` as long as it has not told.
    pub missing_packets: Option<u64>,
    /// Largest lateness of a packet, in nanoseconds.
    pub lateness_max_ns: u64,
}

/// Counters of flows by number, and how late packets left.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Figures {
    /// Flows by number.
    pub flows: BTreeMap<u32, FlowFigures>,
    /// Packets by the class of their lateness: see [`BOUNDS_NS`].
    pub late: [u64; BOUNDS_NS.len() + 1],
    /// Sum of their lateness.
    pub late_sum_ns: u64,
}

impl Default for FlowFigures {
    /// Those of nothing: nothing is missing of it.
    fn default() -> Self {
        Self { sent_packets: 0, sent_bytes: 0, missing_packets: Some(0), lateness_max_ns: 0 }
    }
}

impl FlowFigures {
    fn add(&mut self, other: &Self) {
        self.sent_packets = self.sent_packets.saturating_add(other.sent_packets);
        self.sent_bytes = self.sent_bytes.saturating_add(other.sent_bytes);
        let missing = self.missing_packets.zip(other.missing_packets);
        self.missing_packets = missing.map(|(here, there)| here.saturating_add(there));
        self.lateness_max_ns = self.lateness_max_ns.max(other.lateness_max_ns);
    }
}

impl Figures {
    /// Adds other figures. A flow that is in both was sent by both, one after the other.
    pub fn add(&mut self, other: &Self) {
        for (flow, figures) in &other.flows {
            self.flows.entry(*flow).or_default().add(figures);
        }
        for (mine, theirs) in self.late.iter_mut().zip(&other.late) {
            *mine = mine.saturating_add(*theirs);
        }
        self.late_sum_ns = self.late_sum_ns.saturating_add(other.late_sum_ns);
    }

    /// All flows together.
    pub fn total(&self) -> FlowFigures {
        let mut total = FlowFigures::default();
        self.flows.values().for_each(|flow| total.add(flow));
        total
    }

    /// Counters of a worker's flows.
    fn of(flows: &[(u32, Arc<FlowLive>)]) -> Self {
        let mut figures = Self::default();
        for (number, live) in flows {
            let reading = live.read();
            let flow = FlowFigures {
                sent_packets: reading.sent_packets,
                sent_bytes: reading.sent_bytes,
                missing_packets: reading.missing,
                lateness_max_ns: reading.lateness_max_ns,
            };
            let (late, late_sum_ns) = (reading.late, reading.lateness_sum_ns);
            figures.add(&Self { flows: BTreeMap::from([(*number, flow)]), late, late_sum_ns });
        }
        figures
    }

    /// Returns true if counters of `before` are not in these any more: those of a node that is gone.
    pub fn lacks(&self, before: &Self) -> bool {
        before.flows.iter().any(|(number, then)| {
            self.flows.get(number).is_none_or(|now| now.sent_packets < then.sent_packets)
        })
    }

    /// The class of lateness up to which 99 % of the packets are, by its upper bound; where it has none, the
    /// largest lateness of all. `None` without packets, and where counters are gone.
    pub fn late_p99_ns(&self, before: Option<&Self>) -> Option<u64> {
        let counts: Vec<u64> = match before {
            Some(before) => {
                let classes = self.late.iter().zip(&before.late);
                classes.map(|(now, then)| now.checked_sub(*then)).collect::<Option<_>>()?
            }
            None => self.late.to_vec(),
        };
        let all: u64 = counts.iter().sum();
        let wanted = all - all / 100;
        let mut sum = 0;
        for (count, bound) in counts.iter().zip(BOUNDS_NS) {
            sum += count;
            if all > 0 && sum >= wanted {
                return Some(bound);
            }
        }
        let last = BOUNDS_NS[BOUNDS_NS.len() - 1];
        (all > 0).then(|| self.total().lateness_max_ns.max(last))
    }

    /// As bytes: flows beyond a number are added up.
    pub fn to_bytes(&self) -> Bytes {
        let mut bounded = self.clone();
        while bounded.flows.len() > MOST_FLOWS {
            if let Some((_, flow)) = bounded.flows.pop_last() {
                bounded.flows.entry(0).or_default().add(&flow);
            }
        }
        // Numbers and a map always have a form.
        bincode::serde::encode_to_vec(&bounded, bincode::config::standard())
            .unwrap_or_default()
            .into()
    }

    /// From bytes that others have sent.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let config = bincode::config::standard().with_limit::<MOST_BYTES>();
        let (figures, used): (Self, usize) =
            bincode::serde::decode_from_slice(bytes, config).ok()?;
        (used == bytes.len() && figures.flows.len() <= MOST_FLOWS + 1).then_some(figures)
    }
}

/// Merges two contributions for the overlay.
pub fn merge(_topic: u32, a: &[u8], b: &[u8]) -> Option<Vec<u8>> {
    let mut sum = Figures::read(a)?;
    sum.add(&Figures::read(b)?);
    Some(sum.to_bytes().to_vec())
}

/// Follows the flows of a worker: calls `tell` with their figures about once a second, and at the end.
pub async fn follow(
    flows: Vec<(u32, Arc<FlowLive>)>,
    mut ended: tokio::sync::oneshot::Receiver<()>,
    mut tell: impl FnMut(&Figures),
) {
    let mut ticks = tokio::time::interval_at(tokio::time::Instant::now() + EVERY, EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    loop {
        let over = tokio::select! {
            _ = ticks.tick() => false,
            _ = &mut ended => true,
        };
        tell(&Figures::of(&flows));
        if over {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn late_packet(figures: &mut Figures, late_ns: u64) {
        let live = FlowLive::default();
        live.sent(0, [late_ns]);
        let reading = live.read();
        let (late, late_sum_ns) = (reading.late, reading.lateness_sum_ns);
        figures.add(&Figures { flows: BTreeMap::new(), late, late_sum_ns });
    }

    fn figures(flows: &[(u32, u64)], late: &[u64]) -> Figures {
        let mut figures = Figures::default();
        for (flow, packets) in flows {
            let counters = FlowFigures {
                sent_packets: *packets,
                sent_bytes: 100 * packets,
                missing_packets: Some(1),
                lateness_max_ns: *packets,
            };
            figures.flows.insert(*flow, counters);
        }
        late.iter().for_each(|late| late_packet(&mut figures, *late));
        figures
    }

    #[test]
    fn merging_adds_up_in_any_order() {
        let parts = [
            figures(&[(1, 5), (2, 7)], &[0, 1000, 1001]),
            figures(&[(2, 3)], &[5_000_000_000]),
            figures(&[], &[]),
        ];
        let bytes = parts.each_ref().map(Figures::to_bytes);
        let sum = |order: [usize; 3]| {
            let first = merge(TOPIC, &bytes[order[0]], &bytes[order[1]]).expect("figures");
            merge(TOPIC, &first, &bytes[order[2]]).expect("figures")
        };
        let want = sum([0, 1, 2]);
        for order in [[2, 1, 0], [1, 0, 2], [0, 2, 1]] {
            assert_eq!(sum(order), want, "{order:?}");
        }
        let all = Figures::read(&want).expect("figures");
        assert_eq!((all.flows[&2].sent_packets, all.flows[&2].lateness_max_ns), (10, 7));
        assert_eq!((all.total().sent_bytes, all.late.iter().sum::<u64>()), (1500, 4));
        assert_eq!((all.late[0], all.late[1], all.late[BOUNDS_NS.len()]), (2, 1, 1));
    }

    #[test]
    fn what_is_no_figures_is_not_merged() {
        let good = figures(&[(1, 5)], &[]).to_bytes();
        for bad in [
            &b""[..],
            b"\xff\xff\xff\xff\xff\xff\xff\xff\xff",
            &good[1..],
            &[&good[..], &[0]].concat(),
        ] {
            assert_eq!(merge(TOPIC, &good, bad), None, "{bad:?}");
        }
    }

    #[test]
    fn more_flows_than_there_is_room_for_are_added_up() {
        let many: Vec<(u32, u64)> = (1..=12_000).map(|flow| (flow, 1)).collect();
        let sent = figures(&many, &[]);
        let got = Figures::read(&sent.to_bytes()).expect("figures");
        assert_eq!(got.total().sent_packets, 12_000);
        assert!(got.flows.len() <= MOST_FLOWS + 1 && got.flows[&0].sent_packets >= 2000);
        assert!(sent.to_bytes().len() < MOST_BYTES);
    }

    #[test]
    fn the_quantile_is_that_of_the_time_between() {
        let early = figures(&[], &[900; 200]);
        assert_eq!(early.late_p99_ns(None), Some(1000));
        let mut later = early.clone();
        (0..100).for_each(|_| late_packet(&mut later, 3_000_000));
        assert_eq!(later.late_p99_ns(Some(&early)), Some(4_096_000));
        assert_eq!(later.late_p99_ns(Some(&later)), None, "no packet");
        let late = figures(&[(1, 7_000_000_000)], &[7_000_000_000]);
        assert_eq!(late.late_p99_ns(None), Some(7_000_000_000), "no bound: the largest one");
        assert_eq!(figures(&[], &[u64::MAX]).late_p99_ns(None), Some(BOUNDS_NS[11]));
    }
}
