//! What a flow carried: packets, bytes and the time that they span; and how its losses were found.

use itg_core::units::MAX_TIME_NS;

/// Packets, bytes and the time they span.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Volume {
    /// Packets.
    pub packets: u64,
    /// Bytes.
    pub bytes: u64,
    /// Earliest packet, in Unix nanoseconds; `None` without packets.
    pub first_unix_ns: Option<u64>,
    /// Latest packet, in Unix nanoseconds; `None` without packets.
    pub last_unix_ns: Option<u64>,
}

impl Volume {
    /// Adds a packet; a time that no clock shows says nothing of the time that they span.
    pub(crate) fn add(&mut self, bytes: u32, unix_ns: u64) {
        self.packets += 1;
        self.bytes += u64::from(bytes);
        let unix_ns = Some(unix_ns).filter(|&ns| ns <= MAX_TIME_NS);
        self.reach(unix_ns, unix_ns);
    }

    /// Adds the packets of another part or flow.
    pub fn merge(&mut self, other: &Self) {
        self.packets += other.packets;
        self.bytes += other.bytes;
        self.reach(other.first_unix_ns, other.last_unix_ns);
    }

    fn reach(&mut self, first: Option<u64>, last: Option<u64>) {
        let earlier = [self.first_unix_ns, first].into_iter().flatten().min();
        (self.first_unix_ns, self.last_unix_ns) = (earlier, self.last_unix_ns.max(last));
    }

    /// Time between the earliest and the latest packet in nanoseconds: D-ITG's total time.
    #[must_use]
    pub fn duration_ns(&self) -> u64 {
        self.last_unix_ns.zip(self.first_unix_ns).map_or(0, |(last, first)| last - first)
    }

    /// 8 · bytes / T in bit/s, 0 when T is 0 (D-ITG's average bitrate).
    #[must_use]
    pub fn bitrate_bps(&self) -> f64 {
        per_second(8.0 * self.bytes as f64, self.duration_ns())
    }

    /// n / T in packets per second, 0 when T is 0 (D-ITG divides n, not n − 1).
    #[must_use]
    pub fn packet_rate_pps(&self) -> f64 {
        per_second(self.packets as f64, self.duration_ns())
    }
}

pub(crate) fn per_second(count: f64, duration_ns: u64) -> f64 {
    if duration_ns == 0 { 0.0 } else { count * 1e9 / duration_ns as f64 }
}

/// Source of the number of lost packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum LossBasis {
    /// Every sequence number in the sender's log was looked for.
    SenderLog,
    /// The number of packets that the sender counted, less those that arrived.
    SenderCount,
    /// The numbers missing below the largest one that arrived; a loss at the end is not seen.
    SequenceNumbers,
    /// At the sender alone: the packets sent, less those that the receiver counted; duplicates hide
    /// losses.
    ReceiverCount,
}
