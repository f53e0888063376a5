//! One probe of two clocks and its answer, and the limits of what is made of many.

/// Time over which steps are looked for, and skew is measured: 64 s.
pub(crate) const WINDOW_NS: u64 = 64_000_000_000;
/// Time for which two clocks run at steady rates, before any instant or behind it: 6 s.
pub const STEADY_NS: u64 = 6_000_000_000;
/// Time that a window has at least where round trips are so short that they would not hide a change of rate: 1 s.
pub(crate) const LONG_NS: u64 = 1_000_000_000;
/// Round trip that four in five probes of such a window do not exceed: 150 µs.
pub(crate) const SHARP_NS: u64 = 150_000;
/// Time that a window has at least otherwise: 0.5 s.
pub(crate) const LEAST_NS: u64 = 500_000_000;
/// Probes that a window has at most.
pub(crate) const MOST_IN_WINDOW: usize = 96;
/// Clocks are not as steady as that: for each second to the nearest probe the bound grows by 100 ns.
pub(crate) const WANDER: f64 = 100.0;
/// A change of the real-time clock against the monotonic one that is taken for a step: 10 µs.
pub(crate) const JUMP_NS: u64 = 10_000;
/// Stretches beyond which clocks are not clocks.
pub(crate) const MOST_PIECES: usize = 128;
/// A probe that took longer is of no use: an hour.
pub(crate) const LONGEST_NS: u64 = 3_600_000_000_000;

/// The stamps of one probe and its answer, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Probe {
    /// `CLOCK_MONOTONIC` of the sender when the probe left: the order of the probes, and where the sender's
    /// clock was set.
    pub sender_monotonic: u64,
    /// The probe left, Unix time of the sender.
    pub sent: u64,
    /// The probe came, Unix time of the receiver.
    pub received: u64,
    /// The answer left, Unix time of the receiver.
    pub replied: u64,
    /// The answer came, Unix time of the sender.
    pub arrived: u64,
    /// `CLOCK_MONOTONIC` of the receiver when the answer left.
    pub receiver_monotonic: u64,
}

impl Probe {
    /// Time on the way, there and back together; `None` when the stamps contradict each other: a
    /// clock was set meanwhile, or a stamp is false.
    #[must_use]
    pub fn round_trip_ns(&self) -> Option<u64> {
        let away = self.arrived.checked_sub(self.sent).filter(|&ns| ns <= LONGEST_NS)?;
        let there = self.replied.checked_sub(self.received)?;
        let apart = |a: u64, b: u64| a.abs_diff(b) < 1 << 62;
        (apart(self.received, self.sent) && apart(self.replied, self.arrived)).then_some(())?;
        away.checked_sub(there)
    }

    /// Unix time − monotonic time of both hosts: only setting a clock changes it.
    pub(crate) const fn shifts(&self) -> [i128; 2] {
        [
            self.sent as i128 - self.sender_monotonic as i128,
            self.replied as i128 - self.receiver_monotonic as i128,
        ]
    }
}
