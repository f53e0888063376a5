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

    /// Bits per second: of n packets over T those of n − 1, since the first one opens the time. 0 without packets;
    /// `None` where a single packet, or a time of 0, gives no rate.
    #[must_use]
    pub fn bitrate_bps(&self) -> Option<f64> {
        self.bit_rate_of(self.bytes)
    }

    /// The same of a part of the bytes.
    pub(crate) fn bit_rate_of(&self, bytes: u64) -> Option<f64> {
        if self.packets == 0 {
            return Some(0.0);
        }
        Some(8.0 * bytes as f64 / self.packets as f64 * self.intervals_per_second()?)
    }

    /// Packets per second: (n − 1) / T; 0 without packets, `None` as above.
    #[must_use]
    pub fn packet_rate_pps(&self) -> Option<f64> {
        if self.packets == 0 { Some(0.0) } else { self.intervals_per_second() }
    }

    fn intervals_per_second(&self) -> Option<f64> {
        let intervals = self.packets.checked_sub(1).filter(|intervals| *intervals > 0)?;
        let duration_ns = self.duration_ns();
        (duration_ns > 0).then(|| intervals as f64 * 1e9 / duration_ns as f64)
    }
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
