//! CLOCK_MONOTONIC beside CLOCK_REALTIME: pairs of readings for logs and messages, and the
//! translation of one clock into the other.

use itg_record::ClockPair;
use itg_session::ClockReading;
use itg_socket::clock::{monotonic_ns, unix_ns};

/// Time after which a translation between the two clocks is measured again: 1 s.
const PAIR_LIFETIME_NS: u64 = 1_000_000_000;

/// Both clocks now, in a message about to be written. Of three readings the one that took least is used, so
/// that an interruption between the two clocks does not pass for a step of one of them.
#[must_use]
pub fn reading() -> ClockReading {
    let once = || {
        let before = monotonic_ns();
        let unix_ns = unix_ns();
        let took = monotonic_ns() - before;
        (took, unix_ns.wrapping_sub(before + took / 2))
    };
    let (_, apart) = [once(), once(), once()].into_iter().min().unwrap_or_default();
    let unix_ns = unix_ns();
    ClockReading { unix_ns, monotonic_ns: unix_ns.wrapping_sub(apart) }
}

/// A reading of both clocks, and what the kernel says of their quality.
#[must_use]
pub fn clock_pair() -> ClockPair {
    let ClockReading { unix_ns, monotonic_ns } = reading();
    let quality = itg_socket::sys::clock_quality();
    ClockPair {
        unix_ns,
        monotonic_ns,
        max_error_ns: quality.map(|q| q.max_error_ns),
        synchronised: quality.map(|q| q.synchronised),
    }
}

/// Translates readings of CLOCK_MONOTONIC to Unix time without reading the other clock each time.
#[derive(Debug)]
pub struct UnixClock {
    offset_ns: u64,
    until_ns: u64,
}

impl UnixClock {
    /// A fresh translation.
    #[must_use]
    pub fn new() -> Self {
        let mut clock = Self { offset_ns: 0, until_ns: 0 };
        clock.measure(monotonic_ns());
        clock
    }

    /// Unix time of a reading of CLOCK_MONOTONIC taken just now.
    pub fn at(&mut self, monotonic_ns: u64) -> u64 {
        if monotonic_ns >= self.until_ns {
            self.measure(monotonic_ns);
        }
        monotonic_ns.wrapping_add(self.offset_ns)
    }

    fn measure(&mut self, now_ns: u64) {
        let now = reading();
        self.offset_ns = now.unix_ns.wrapping_sub(now.monotonic_ns);
        self.until_ns = now_ns + PAIR_LIFETIME_NS;
    }
}

impl Default for UnixClock {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unix_time_follows_the_monotonic_clock() {
        let mut clock = UnixClock::new();
        let before = unix_ns();
        let translated = clock.at(monotonic_ns());
        let after = unix_ns();
        // A slew between the two readings moves them by parts of a microsecond at most.
        assert!(before <= translated + 1_000 && translated <= after + 1_000);
    }
}
