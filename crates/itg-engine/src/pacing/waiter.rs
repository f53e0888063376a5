//! Waiting for one deadline after the other.

use itg_socket::clock;

use super::options::Level;

/// Guard before anything is learned: 60 µs.
const FIRST_GUARD_NS: f64 = 60_000.0;
/// The guard stays within these: 4 µs to 120 µs. A larger one would cost more processor time than
/// `spin` at rates for which `hybrid` is the usual choice.
const GUARD_RANGE_NS: (f64, f64) = (4_000.0, 120_000.0);
/// Share of wake-ups that may come later than the guard allows for.
const MISSED: f64 = 0.005;
/// Step of the guard after such a wake-up, as a share of the guard.
const STEP: f64 = 0.125;

/// Learns how long before a deadline a sleep has to end: a high quantile of the wake-up error.
///
/// Stochastic approximation of a quantile (Robbins and Monro, 1951): after a miss the guard grows by
/// [`STEP`], after a hit it shrinks by so much that both balance at a share of [`MISSED`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Guard(f64);

impl Guard {
    /// A guard that has learned nothing yet.
    pub(crate) const fn new() -> Self {
        Self(FIRST_GUARD_NS)
    }

    /// The guard in nanoseconds.
    pub(crate) fn ns(self) -> u64 {
        // Between 4 and 120 µs.
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a small length"
        )]
        let ns = self.0 as u64;
        ns
    }

    /// Takes one wake-up that came `error_ns` after the time asked for.
    pub(crate) fn learn(&mut self, error_ns: u64) {
        let missed = error_ns as f64 > self.0;
        let factor = if missed { 1.0 + STEP } else { 1.0 - STEP * MISSED / (1.0 - MISSED) };
        let (least, most) = GUARD_RANGE_NS;
        self.0 = (self.0 * factor).clamp(least, most);
    }
}

/// A thread's way of waiting, and what it has learned.
#[derive(Clone, Copy, Debug)]
pub struct Waiter {
    level: Level,
    guard: Guard,
    slept_ns: u64,
}

impl Waiter {
    /// A waiter of this level.
    pub const fn new(level: Level) -> Self {
        Self { level, guard: Guard::new(), slept_ns: 0 }
    }

    /// Time before a deadline at which sleeping has to end, in nanoseconds.
    pub fn guard_ns(&self) -> u64 {
        match self.level {
            Level::Sleep | Level::Txtime => 0,
            Level::Hybrid => self.guard.ns(),
            Level::Spin => u64::MAX,
        }
    }

    /// Time given up to others since the last question, in nanoseconds.
    pub fn take_slept_ns(&mut self) -> u64 {
        std::mem::take(&mut self.slept_ns)
    }

    /// Counts time that was slept elsewhere.
    pub fn slept(&mut self, ns: u64) {
        self.slept_ns += ns;
    }

    /// Sleeps until about `until_ns` of CLOCK_MONOTONIC, where nothing is due, without spinning at the end (but at
    /// [`Level::Spin`]); returns the time that it is then.
    pub fn doze_until(&mut self, until_ns: u64) -> u64 {
        if self.level == Level::Spin {
            return self.wait_until(until_ns);
        }
        let asleep_since = clock::monotonic_ns();
        if asleep_since >= until_ns {
            return asleep_since;
        }
        clock::sleep_until(until_ns);
        let now = clock::monotonic_ns();
        self.slept_ns += now - asleep_since;
        now
    }

    /// Waits until `deadline_ns` of CLOCK_MONOTONIC and returns the time that it is then; returns at
    /// once when the deadline has passed.
    pub fn wait_until(&mut self, deadline_ns: u64) -> u64 {
        self.wait_before(deadline_ns, 0)
    }

    /// The same, but so long before the deadline, if it spins at all before it.
    pub fn wait_before(&mut self, deadline_ns: u64, before_ns: u64) -> u64 {
        let mut now = clock::monotonic_ns();
        let wake_ns = deadline_ns.saturating_sub(self.guard_ns());
        if now < wake_ns {
            clock::sleep_until(wake_ns);
            let asleep_since = now;
            now = clock::monotonic_ns();
            self.slept_ns += now - asleep_since;
            self.guard.learn(now.saturating_sub(wake_ns));
        }
        let until_ns = deadline_ns.saturating_sub(before_ns);
        while now < until_ns {
            std::hint::spin_loop();
            now = clock::monotonic_ns();
        }
        now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Errors that repeat with period `n`: one of them large.
    fn learned(errors: impl Iterator<Item = u64>) -> u64 {
        let mut guard = Guard::new();
        errors.for_each(|error_ns| guard.learn(error_ns));
        guard.ns()
    }

    #[test]
    fn the_guard_comes_to_rest_at_a_high_quantile_of_the_errors() {
        // Uniform on 0 to 40 µs: the 99.5 % quantile is 39.8 µs.
        let uniform = (0..200_000u64).map(|i| (i * 7_919) % 40_000);
        let guard = learned(uniform);
        assert!((36_000..50_000).contains(&guard), "{guard} ns");
        // One in a thousand is as late as can be: not worth spinning for.
        let rare = (0..200_000u64).map(|i| if i % 1_000 == 0 { 5_000_000 } else { 9_000 });
        let guard = learned(rare);
        assert!((8_000..15_000).contains(&guard), "{guard} ns");
    }

    #[test]
    fn the_guard_stays_in_its_range() {
        assert_eq!(learned(std::iter::repeat_n(10_000_000, 1_000)), 120_000);
        assert_eq!(learned(std::iter::repeat_n(0, 100_000)), 4_000);
    }

    #[test]
    fn a_doze_ends_no_earlier_and_learns_nothing() {
        for level in Level::WAITS {
            let mut waiter = Waiter::new(level);
            let guard_ns = waiter.guard_ns();
            // So far ahead that a busy machine gets there in time.
            let ahead_ns = if level == Level::Spin { 2_000_000 } else { 300_000_000 };
            let until = clock::monotonic_ns() + ahead_ns;
            assert!(waiter.doze_until(until) >= until, "{level}");
            assert!(waiter.doze_until(until) >= until, "{level}, an instant that has passed");
            assert_eq!(waiter.guard_ns(), guard_ns, "{level}");
            assert_eq!(waiter.take_slept_ns() > 0, level != Level::Spin, "{level}");
        }
    }

    #[test]
    fn no_level_ends_early() {
        for level in Level::WAITS {
            let mut waiter = Waiter::new(level);
            for delay_ns in [0, 1_000, 50_000, 300_000, 2_000_000] {
                let deadline = clock::monotonic_ns() + delay_ns;
                assert!(waiter.wait_until(deadline) >= deadline, "{level}, delay {delay_ns} ns");
            }
            assert_eq!(waiter.take_slept_ns() > 0, level != Level::Spin, "{level}");
        }
    }
}
