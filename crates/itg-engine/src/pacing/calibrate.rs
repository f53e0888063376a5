//! Measurement of the precision with which this host wakes a thread.

use itg_core::units::{format_duration_ns, nanoseconds};
use itg_socket::clock;

use super::host::Prepared;
use super::options::{Level, PacingOptions};
use super::waiter::Waiter;

/// Time between the wake-ups that decide about a level: 1 ms.
const PERIOD_NS: u64 = 1_000_000;
/// Wake-ups that decide about a level: 200 ms in all.
const WAKES: usize = 200;

/// Lateness of wake-ups in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct WakeErrors {
    /// Number of wake-ups measured.
    pub wakes: usize,
    /// Median.
    pub p50_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// Largest.
    pub max_ns: u64,
    /// Processor time of the thread per wall time.
    pub cpu_share: f64,
}

/// A declared precision that this host does not reach.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error(
    "a pacing error of at most {} at p99 was asked for, and {level} wakes this host {} late at p99: \
     declare less, allow another level or --realtime, or free a processor (itg-send doctor tells more)",
    format_duration_ns(*asked_ns),
    format_duration_ns(errors.p99_ns)
)]
pub struct PrecisionError {
    /// Declared precision, in nanoseconds.
    pub asked_ns: u64,
    /// The most precise level that was allowed.
    pub level: Level,
    /// Lateness that it reached.
    pub errors: WakeErrors,
}

/// Chooses the level and asks the host for what it needs. With a declared precision every level that
/// may be taken is measured, from the cheapest on, for 0.2 s each, until one keeps it.
///
/// # Errors
/// No level keeps the declared precision.
pub fn choose(options: PacingOptions) -> Result<(Prepared, Option<WakeErrors>), PrecisionError> {
    let Some(asked_ns) = options.max_error_p99.map(nanoseconds) else {
        return Ok((Prepared::new(options.level.unwrap_or_default(), options), None));
    };
    let allowed: &[Level] = options.level.as_ref().map_or(&Level::WAITS, std::slice::from_ref);
    let mut level = Level::default();
    let mut errors = WakeErrors::default();
    for &next in allowed {
        level = next;
        let prepared = Prepared::new(level, options);
        errors = calibrate(&prepared, PERIOD_NS, WAKES);
        if errors.p99_ns <= asked_ns {
            return Ok((prepared, Some(errors)));
        }
    }
    Err(PrecisionError { asked_ns, level, errors })
}

/// Waits `wakes` times for a deadline each `period_ns` on a thread of its own, as the sending thread
/// does, and tells how late it was. Takes `wakes` × `period_ns`.
///
/// # Panics
/// When no thread can be started.
#[must_use]
pub fn calibrate(prepared: &Prepared, period_ns: u64, wakes: usize) -> WakeErrors {
    let measure = || {
        let _turn = prepared.enter();
        let mut waiter = Waiter::new(prepared.level());
        let mut errors = Vec::with_capacity(wakes);
        let (start_ns, cpu_ns) = (clock::monotonic_ns(), clock::thread_cpu_ns());
        let mut deadline_ns = start_ns;
        for _ in 0..wakes {
            deadline_ns += period_ns;
            errors.push(waiter.wait_until(deadline_ns) - deadline_ns);
        }
        let cpu_ns = clock::thread_cpu_ns() - cpu_ns;
        (errors, cpu_ns as f64 / (clock::monotonic_ns() - start_ns).max(1) as f64)
    };
    let (mut errors, cpu_share) = std::thread::scope(|scope| {
        scope.spawn(measure).join().expect("measuring wake-ups does not panic")
    });
    errors.sort_unstable();
    let at = |q: f64| {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a place in a list"
        )]
        let rank = (q * errors.len() as f64).ceil() as usize;
        errors.get(rank.saturating_sub(1)).copied().unwrap_or(0)
    };
    WakeErrors { wakes, p50_ns: at(0.5), p99_ns: at(0.99), max_ns: at(1.0), cpu_share }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::pacing::{Level, PacingOptions};

    #[test]
    fn spinning_costs_a_processor_and_sleeping_does_not() {
        let share = |level| {
            let prepared = Prepared::new(level, PacingOptions::default());
            let errors = calibrate(&prepared, 1_000_000, 50);
            assert!(errors.p50_ns <= errors.p99_ns && errors.p99_ns <= errors.max_ns);
            errors.cpu_share
        };
        // Beside other load a thread that would spin may wake behind its deadline each time: tried again then.
        let mut tries = (0..20).map(|_| (share(Level::Sleep), share(Level::Spin)));
        assert!(tries.any(|(sleep, spin)| sleep < spin), "sleeping never cost less");
    }

    #[test]
    fn a_precision_beyond_any_host_is_refused_and_a_loose_one_takes_the_cheapest_level() {
        let options = PacingOptions {
            max_error_p99: Some(Duration::from_nanos(1)),
            ..PacingOptions::default()
        };
        let error = choose(options).expect_err("no clock is that quick").to_string();
        assert!(error.contains("at most 1ns") && error.contains("spin"), "{error}");
        let second = Some(Duration::from_secs(1));
        let options = PacingOptions { max_error_p99: second, ..PacingOptions::default() };
        let (prepared, errors) = choose(options).expect("a second is enough");
        assert_eq!((prepared.level(), errors.is_some()), (Level::Sleep, true));
    }

    #[test]
    fn an_impossible_processor_is_a_refusal_in_words() {
        let options = PacingOptions { cpu: Some(1_000), ..PacingOptions::default() };
        let prepared = Prepared::new(Level::Sleep, options);
        assert_eq!(prepared.refusals().len(), 1, "{:?}", prepared.refusals());
        assert!(prepared.describe().contains("processor 1000"), "{}", prepared.describe());
    }
}
