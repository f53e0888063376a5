//! A slow disk, for measurements: writes wait until the bytes before them have had their time.

use itg_socket::clock;

/// Bytes that may go at once after a pause: 1 MiB.
const BURST_BYTES: u64 = 1 << 20;

/// Lets through no more bytes a second than it was told.
#[derive(Debug)]
pub struct Throttle {
    bytes_per_s: u64,
    /// Instant at which the bytes so far have had their time, in nanoseconds of the monotonic
    /// clock.
    free_ns: u64,
}

impl Throttle {
    /// A throttle of at least 1 byte a second.
    pub fn new(bytes_per_s: u64) -> Self {
        Self { bytes_per_s: bytes_per_s.max(1), free_ns: 0 }
    }

    /// Waits until `bytes` may be written.
    pub fn wait(&mut self, bytes: usize) {
        let now = clock::monotonic_ns();
        let until = self.admit(now, bytes as u64);
        if until > now {
            clock::sleep_until(until);
        }
    }

    /// Instant at which `bytes` may be written, asked at `now_ns`.
    fn admit(&mut self, now_ns: u64, bytes: u64) -> u64 {
        let burst_ns = self.time_of(BURST_BYTES);
        let start = self.free_ns.max(now_ns.saturating_sub(burst_ns));
        self.free_ns = start.saturating_add(self.time_of(bytes));
        self.free_ns.max(now_ns)
    }

    fn time_of(&self, bytes: u64) -> u64 {
        let ns = u128::from(bytes) * 1_000_000_000 / u128::from(self.bytes_per_s);
        u64::try_from(ns).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_take_their_time_and_a_pause_saves_one_burst() {
        const SECOND: u64 = 1_000_000_000;
        let start = 100 * SECOND;
        // Twice the burst a second: the burst is half a second's worth.
        let mut throttle = Throttle::new(2 * BURST_BYTES);
        for (now, bytes, want) in [
            (start, BURST_BYTES, start),
            (start, BURST_BYTES, start + SECOND / 2),
            (start + SECOND / 2, 2 * BURST_BYTES, start + 3 * SECOND / 2),
            (start + 10 * SECOND, BURST_BYTES, start + 10 * SECOND),
            (start + 10 * SECOND, 2 * BURST_BYTES, start + 11 * SECOND),
        ] {
            assert_eq!(throttle.admit(now, bytes), want, "{bytes} bytes at {now}");
        }
    }
}
