//! Counters of running flows that other threads may read at any time.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use itg_session::Arrivals;

/// Upper bounds of the classes of lateness, in nanoseconds: factors of 4 from 1 µs to 4.2 s. One more class has no
/// bound.
pub const LATENESS_BOUNDS_NS: [u64; 12] = {
    let mut bounds = [1000; 12];
    let mut k = 1;
    while k < 12 {
        bounds[k] = bounds[k - 1] * 4;
        k += 1;
    }
    bounds
};
/// Packets by the class of their lateness: see [`LATENESS_BOUNDS_NS`].
pub type LatenessClasses = [u64; LATENESS_BOUNDS_NS.len() + 1];

/// The class of a lateness.
fn class_of(late_ns: u64) -> usize {
    LATENESS_BOUNDS_NS.partition_point(|bound| *bound < late_ns)
}

/// Counters of one flow; each is exact by itself, together they may be some packets apart.
#[derive(Debug, Default)]
pub struct FlowLive {
    sent_packets: AtomicU64,
    sent_bytes: AtomicU64,
    lateness_ns: AtomicU64,
    lateness_max_ns: AtomicU64,
    lateness_sum_ns: AtomicU64,
    late: [AtomicU64; LATENESS_BOUNDS_NS.len() + 1],
    sent_first_ns: AtomicU64,
    sent_last_ns: AtomicU64,
    unsent: AtomicU64,
    received_packets: AtomicU64,
    received_bytes: AtomicU64,
    received_unique: AtomicU64,
    received_missing: AtomicU64,
    received_reordered: AtomicU64,
    received_first_ns: AtomicU64,
    received_last_ns: AtomicU64,
    sent_before: AtomicU64,
    missing: AtomicU64,
    /// The receiver has told what has arrived.
    told: AtomicBool,
    /// Its latest account. No packet waits for this lock.
    account: Mutex<Option<ToldArrivals>>,
    ended: AtomicBool,
    /// Address from which its packets come.
    source: OnceLock<SocketAddr>,
}

/// Arrivals of a flow of packets, or of replies, as far as they are known at one instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ArrivalReading {
    /// Packets, duplicates included.
    pub packets: u64,
    /// Bytes of these packets.
    pub bytes: u64,
    /// Different ones among them.
    pub unique: u64,
    /// Sequence numbers below the largest one of which no packet has arrived.
    pub missing: u64,
    /// Packets that arrived behind one with a larger number; `None` where that is not known.
    pub reordered: Option<u64>,
    /// Arrival of the first packet, in nanoseconds of the clock of `at_ns`; `None` where it is not known.
    pub first_ns: Option<u64>,
    /// Instant of this account, or of the last packet where the account is the last one; `None` where it is not known.
    pub at_ns: Option<u64>,
}

/// Arrivals of a flow as its receiver has told them last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ToldArrivals {
    /// The account; times are in Unix nanoseconds of the receiver's clock.
    pub arrivals: ArrivalReading,
    /// Number of the receiver among those of the run: flows with the same one have the same clock.
    pub receiver: usize,
    /// True if the flow has ended and this is the whole of it.
    pub whole: bool,
}

/// A reading of [`FlowLive`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowReading {
    /// Packets handed to the kernel.
    pub sent_packets: u64,
    /// Bytes of these packets.
    pub sent_bytes: u64,
    /// Lateness of the last packet, in nanoseconds.
    pub lateness_ns: u64,
    /// Largest lateness of a packet so far, in nanoseconds.
    pub lateness_max_ns: u64,
    /// Sum of the lateness of all packets, in nanoseconds.
    pub lateness_sum_ns: u64,
    /// All packets by the class of their lateness.
    pub late: LatenessClasses,
    /// Instant at which the first packet was handed over, and the last one, in nanoseconds of CLOCK_MONOTONIC; 0 before.
    pub sent_first_ns: u64,
    /// See `sent_first_ns`.
    pub sent_last_ns: u64,
    /// Sequence numbers that were left out: packets that were late, or that the kernel refused.
    pub unsent: u64,
    /// Packets (at the sender of a round-trip flow: replies) that came in.
    pub received_packets: u64,
    /// Bytes of these packets.
    pub received_bytes: u64,
    /// Different ones among these packets.
    pub received_unique: u64,
    /// Sequence numbers below the largest one of which none came in.
    pub received_missing: u64,
    /// Packets that came in behind one with a larger number.
    pub received_reordered: u64,
    /// Instant at which the first packet was read, and the last one, in nanoseconds of CLOCK_MONOTONIC; 0 before.
    pub received_first_ns: u64,
    /// See `received_first_ns`.
    pub received_last_ns: u64,
    /// Packets that the receiver had not read when it was asked last, about four times a second, or less often where
    /// there are hundreds of flows; `None` as long as it has not told.
    pub missing: Option<u64>,
    /// The receiver's latest account of what has arrived there; `None` as long as it has told none.
    pub told: Option<ToldArrivals>,
    /// True once the flow has ended.
    pub ended: bool,
}

impl FlowLive {
    /// Reads all counters.
    #[must_use]
    pub fn read(&self) -> FlowReading {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let sent_packets = get(&self.sent_packets);
        let known = self.told.load(Ordering::Acquire) || sent_packets == 0;
        FlowReading {
            sent_packets,
            sent_bytes: get(&self.sent_bytes),
            lateness_ns: get(&self.lateness_ns),
            lateness_max_ns: get(&self.lateness_max_ns),
            lateness_sum_ns: get(&self.lateness_sum_ns),
            late: self.late.each_ref().map(get),
            received_packets: get(&self.received_packets),
            received_bytes: get(&self.received_bytes),
            sent_first_ns: get(&self.sent_first_ns),
            sent_last_ns: get(&self.sent_last_ns),
            unsent: get(&self.unsent),
            received_unique: get(&self.received_unique),
            received_missing: get(&self.received_missing),
            received_reordered: get(&self.received_reordered),
            received_first_ns: get(&self.received_first_ns),
            received_last_ns: get(&self.received_last_ns),
            told: *self.account.lock().unwrap_or_else(PoisonError::into_inner),
            missing: known.then(|| get(&self.missing)),
            ended: self.ended.load(Ordering::Relaxed),
        }
    }

    /// Counts packets that were handed over at once, by their lateness in their order. Only the sending thread calls
    /// it.
    pub fn sent(&self, bytes: u64, lateness_ns: impl IntoIterator<Item = u64>) {
        let (mut packets, mut sum, mut most, mut last) = (0, 0_u64, 0, 0);
        // Packets of a batch are mostly of one class: it is written once.
        let (mut class, mut of_class) = (0, 0);
        for late_ns in lateness_ns {
            let next = class_of(late_ns);
            if next != class {
                add(&self.late[class], of_class);
                (class, of_class) = (next, 0);
            }
            of_class += 1;
            packets += 1;
            sum = sum.saturating_add(late_ns);
            (most, last) = (late_ns.max(most), late_ns);
        }
        if packets == 0 {
            return;
        }
        add(&self.late[class], of_class);
        self.count(packets, bytes, sum);
        self.note_lateness(last, most);
    }

    /// The same for packets that are equally late.
    pub fn sent_together(&self, packets: u64, bytes: u64, late_ns: u64) {
        add(&self.late[class_of(late_ns)], packets);
        self.count(packets, bytes, late_ns.saturating_mul(packets));
        self.note_lateness(late_ns, late_ns);
    }

    fn count(&self, packets: u64, bytes: u64, lateness_sum_ns: u64) {
        add(&self.lateness_sum_ns, lateness_sum_ns);
        add(&self.sent_packets, packets);
        add(&self.sent_bytes, bytes);
    }

    fn note_lateness(&self, last: u64, most: u64) {
        self.lateness_ns.store(last, Ordering::Relaxed);
        if most > self.lateness_max_ns.load(Ordering::Relaxed) {
            self.lateness_max_ns.store(most, Ordering::Relaxed);
        }
    }

    /// Notes that packets were handed over at this instant (CLOCK_MONOTONIC). Only the sending thread calls it.
    pub fn sent_at(&self, now_ns: u64) {
        if self.sent_first_ns.load(Ordering::Relaxed) == 0 {
            self.sent_first_ns.store(now_ns, Ordering::Relaxed);
        }
        self.sent_last_ns.store(now_ns, Ordering::Relaxed);
    }

    /// Returns the instant at which the first packet was handed over, 0 before.
    #[must_use]
    pub fn sent_first_ns(&self) -> u64 {
        self.sent_first_ns.load(Ordering::Relaxed)
    }

    /// Notes how many sequence numbers have been left out so far. Only the sending thread calls it.
    pub fn left_out(&self, unsent: u64) {
        self.unsent.store(unsent, Ordering::Relaxed);
    }

    /// Counts packets that arrived, with the account of the flow after them and the instant at which they were read
    /// (CLOCK_MONOTONIC). Only the receiving thread calls it.
    pub fn received(&self, packets: u64, bytes: u64, arrivals: &Arrivals, now_ns: u64) {
        if self.received_first_ns.load(Ordering::Relaxed) == 0 {
            self.received_first_ns.store(now_ns, Ordering::Relaxed);
        }
        self.received_last_ns.store(now_ns, Ordering::Relaxed);
        add(&self.received_packets, packets);
        add(&self.received_bytes, bytes);
        self.received_unique.store(arrivals.unique(), Ordering::Relaxed);
        self.received_missing.store(arrivals.missing(), Ordering::Relaxed);
        self.received_reordered.store(arrivals.reordered(), Ordering::Relaxed);
    }

    /// Notes what the receiver has told of the arrivals.
    pub fn told(&self, told: ToldArrivals) {
        *self.account.lock().unwrap_or_else(PoisonError::into_inner) = Some(told);
    }

    /// Notes how much has been sent, right before the receiver is asked what has arrived.
    pub fn asking(&self) {
        self.sent_before.store(self.sent_packets.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Notes the receiver's answer: how many different packets have arrived.
    pub fn answered(&self, arrived: u64) {
        let sent = self.sent_before.load(Ordering::Relaxed);
        // What has arrived may have been sent behind that.
        self.missing.store(sent.saturating_sub(arrived), Ordering::Relaxed);
        self.told.store(true, Ordering::Release);
    }

    /// Marks the flow as ended.
    pub fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
    }

    /// Notes the source of its first packet.
    pub fn came_from(&self, source: SocketAddr) {
        let _first_wins = self.source.set(source);
    }

    /// Address from which its packets come; `None` before the first.
    #[must_use]
    pub fn source(&self) -> Option<SocketAddr> {
        self.source.get().copied()
    }
}

/// Adds to a counter that no other thread writes: without the lock that `fetch_add` takes on its
/// cache line.
fn add(counter: &AtomicU64, more: u64) {
    counter.store(counter.load(Ordering::Relaxed).saturating_add(more), Ordering::Relaxed);
}

impl FlowReading {
    /// Arrivals of what came in here, by this host's clock (CLOCK_MONOTONIC) until `now_ns`.
    #[must_use]
    pub const fn arrivals_here(&self, now_ns: u64) -> ArrivalReading {
        let first_ns = match self.received_first_ns {
            0 => None,
            first_ns => Some(first_ns),
        };
        ArrivalReading {
            packets: self.received_packets,
            bytes: self.received_bytes,
            unique: self.received_unique,
            missing: self.received_missing,
            reordered: Some(self.received_reordered),
            first_ns,
            at_ns: Some(now_ns),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_packet_of_a_batch_is_in_its_class() {
        let live = FlowLive::default();
        live.sent(10, []);
        let nothing = FlowReading { missing: Some(0), ..FlowReading::default() };
        assert_eq!(live.read(), nothing, "nothing was sent");
        live.sent(600, [9_000_000, 5_000_000, 5_000_000, 1001, 1000, 0]);
        live.sent(100, [u64::MAX]);
        let reading = live.read();
        assert_eq!(reading.late, [2, 1, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 1]);
        assert_eq!((reading.sent_packets, reading.sent_bytes), (7, 700));
        assert_eq!((reading.lateness_ns, reading.lateness_max_ns), (u64::MAX, u64::MAX));
        assert_eq!(reading.lateness_sum_ns, u64::MAX, "no more than that");
    }

    #[test]
    fn what_is_missing_is_known_when_the_receiver_has_told() {
        let live = FlowLive::default();
        live.sent_together(10, 1000, 0);
        assert_eq!(live.read().missing, None);
        live.asking();
        live.sent_together(5, 500, 0);
        live.answered(8);
        assert_eq!(live.read().missing, Some(2));
    }
}
