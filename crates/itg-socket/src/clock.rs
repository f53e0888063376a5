//! Clocks and waiting: CLOCK_MONOTONIC for deadlines, CLOCK_REALTIME for what is logged.
//!
//! Both tick at the same (NTP-adjusted) rate; only a step moves one against the other, so a pair of
//! readings taken each second translates one into the other. How the sending thread waits for its
//! deadlines is in `itg_engine::pacing`.

use std::sync::OnceLock;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, ClockNanosleepFlags, clock_gettime, clock_nanosleep};

/// Reads a clock, in nanoseconds.
///
/// # Panics
/// Panics when the kernel does not know it; those that are read here exist on every Linux.
pub fn read(clock: ClockId) -> u64 {
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

/// A [`Duration`] from a count of nanoseconds.
#[must_use]
pub const fn ns(count: u64) -> Duration {
    Duration::from_nanos(count)
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

/// Returns the instant at which this process first asked: the zero of the times in the state machines.
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
