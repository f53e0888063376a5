//! Counters of running flows that other threads may read at any time.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Counters of one flow; each is exact by itself, together they may be some packets apart.
#[derive(Debug, Default)]
pub struct FlowLive {
    sent_packets: AtomicU64,
    sent_bytes: AtomicU64,
    lateness_ns: AtomicU64,
    lateness_max_ns: AtomicU64,
    received_packets: AtomicU64,
    received_bytes: AtomicU64,
    sent_before: AtomicU64,
    missing: AtomicU64,
    ended: AtomicBool,
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
    /// Packets (at the sender of a round-trip flow: replies) that came in.
    pub received_packets: u64,
    /// Bytes of these packets.
    pub received_bytes: u64,
    /// Packets that the receiver had not read when it was asked last, about four times a second.
    pub missing: u64,
    /// True once the flow has ended.
    pub ended: bool,
}

impl FlowLive {
    /// Reads all counters.
    #[must_use]
    pub fn read(&self) -> FlowReading {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        FlowReading {
            sent_packets: get(&self.sent_packets),
            sent_bytes: get(&self.sent_bytes),
            lateness_ns: get(&self.lateness_ns),
            lateness_max_ns: get(&self.lateness_max_ns),
            received_packets: get(&self.received_packets),
            received_bytes: get(&self.received_bytes),
            missing: get(&self.missing),
            ended: self.ended.load(Ordering::Relaxed),
        }
    }

    /// Only the sending thread calls it.
    pub fn sent(&self, packets: u64, bytes: u64, lateness_ns: u64) {
        add(&self.sent_packets, packets);
        add(&self.sent_bytes, bytes);
        self.lateness_ns.store(lateness_ns, Ordering::Relaxed);
        if lateness_ns > self.lateness_max_ns.load(Ordering::Relaxed) {
            self.lateness_max_ns.store(lateness_ns, Ordering::Relaxed);
        }
    }

    /// Counts packets that arrived.
    pub fn received(&self, packets: u64, bytes: u64) {
        self.received_packets.fetch_add(packets, Ordering::Relaxed);
        self.received_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Notes how much has been sent, right before the receiver is asked what has arrived.
    pub fn asking(&self) {
        self.sent_before.store(self.sent_packets.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Notes the receiver's answer.
    pub fn answered(&self, arrived: u64) {
        let sent = self.sent_before.load(Ordering::Relaxed);
        self.missing.store(sent.saturating_sub(arrived), Ordering::Relaxed);
    }

    /// Marks the flow as ended.
    pub fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
    }
}

/// Adds to a counter that no other thread writes: without the lock that `fetch_add` takes on its
/// cache line.
fn add(counter: &AtomicU64, more: u64) {
    counter.store(counter.load(Ordering::Relaxed) + more, Ordering::Relaxed);
}
