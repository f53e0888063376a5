//! Clocks and waiting: CLOCK_MONOTONIC for deadlines, CLOCK_REALTIME for what is logged.
//!
//! Both tick at the same (NTP-adjusted) rate; only a step moves one against the other, so a pair of
//! readings taken each second translates one into the other. How the sending thread waits for its
//! deadlines is in [`crate::pacing`].

use std::sync::OnceLock;
use std::time::Duration;

use itg_record::ClockPair;
use itg_session::ClockReading;
use nix::errno::Errno;
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, ClockNanosleepFlags, clock_gettime, clock_nanosleep};

/// How long a translation between the two clocks is used before it is measured again: 1 s.
const PAIR_LIFETIME_NS: u64 = 1_000_000_000;

pub(crate) fn read(clock: ClockId) -> u64 {
    let now = clock_gettime(clock).expect("the clocks that are read exist on Linux");
    now.tv_sec().unsigned_abs() * 1_000_000_000 + now.tv_nsec().unsigned_abs()
}

/// CLOCK_MONOTONIC in nanoseconds since an arbitrary start.
#[must_use]
pub fn monotonic_ns() -> u64 {
    read(ClockId::CLOCK_MONOTONIC)
}

/// CLOCK_REALTIME in nanoseconds since 1970 (Unix time).
#[must_use]
pub fn unix_ns() -> u64 {
    read(ClockId::CLOCK_REALTIME)
}

/// Processor time of the calling thread in nanoseconds.
#[must_use]
pub fn thread_cpu_ns() -> u64 {
    read(ClockId::CLOCK_THREAD_CPUTIME_ID)
}

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

/// A [`Duration`] from a count of nanoseconds.
#[must_use]
pub const fn ns(count: u64) -> Duration {
    Duration::from_nanos(count)
}

/// A reading of both clocks, and what the kernel says of their quality.
#[must_use]
pub fn clock_pair() -> ClockPair {
    let before = monotonic_ns();
    let unix_ns = unix_ns();
    let monotonic_ns = before + (monotonic_ns() - before) / 2;
    let quality = crate::sys::clock_quality();
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

/// Asks the kernel to wake this thread without gathering its timers (timer slack 1 ns).
pub fn sharpen_timers() {
    if let Err(error) = nix::sys::prctl::set_timerslack(1) {
        tracing::debug!(%error, "timer slack cannot be set: wake-ups may be 50 µs late");
    }
}

/// Sleeps until `deadline_ns` of CLOCK_MONOTONIC, or a little longer.
pub fn sleep_until(deadline_ns: u64) {
    let seconds = i64::try_from(deadline_ns / 1_000_000_000).unwrap_or(i64::MAX);
    let nanos = i64::try_from(deadline_ns % 1_000_000_000).unwrap_or(0);
    let deadline = TimeSpec::new(seconds, nanos);
    while let Err(Errno::EINTR) =
        clock_nanosleep(ClockId::CLOCK_MONOTONIC, ClockNanosleepFlags::TIMER_ABSTIME, &deadline)
    {
    }
}

/// When this process first asked: the zero of the times in the state machines.
fn process_start_ns() -> u64 {
    static START: OnceLock<u64> = OnceLock::new();
    *START.get_or_init(monotonic_ns)
}

/// The time of the state machines: nanoseconds since the process first asked.
#[must_use]
pub fn machine_ns() -> u64 {
    let start = process_start_ns();
    monotonic_ns() - start
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
