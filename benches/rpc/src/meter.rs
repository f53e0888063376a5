//! Times of requests in a closed loop.

use std::fmt;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::common::BYTE;

/// Requests that warm a connection up and are not counted.
const WARM_UP: u32 = 100;

/// A stopwatch: each reply ends one request and begins the next.
#[derive(Debug)]
pub(crate) struct Meter {
    time: Duration,
    begin: Instant,
    last: Instant,
    warm_up: u32,
    times_us: Vec<f64>,
    wrong: u64,
}

impl Meter {
    /// Counts for this long, behind some requests that warm up. The first request leaves now.
    pub(crate) fn start(time: Duration) -> Self {
        let now = Instant::now();
        Self { time, begin: now, last: now, warm_up: WARM_UP, times_us: Vec::new(), wrong: 0 }
    }

    /// Takes a reply; returns true if there is to be another request.
    pub(crate) fn lap(&mut self, reply: &[u8]) -> bool {
        let now = Instant::now();
        self.wrong += u64::from(reply != [BYTE]);
        if self.warm_up > 0 {
            self.warm_up -= 1;
            self.begin = now;
        } else {
            self.times_us.push(now.duration_since(self.last).as_secs_f64() * 1e6);
        }
        self.last = now;
        now.duration_since(self.begin) < self.time
    }

    /// Ends the measurement and returns its figures.
    ///
    /// # Errors
    /// Nothing was, or a reply was wrong.
    pub(crate) fn figures(mut self) -> Result<Figures> {
        ensure!(self.wrong == 0, "{} replies were wrong", self.wrong);
        ensure!(!self.times_us.is_empty(), "no request was counted");
        self.times_us.sort_by(f64::total_cmp);
        Ok(Figures {
            rate: self.times_us.len() as f64 / self.last.duration_since(self.begin).as_secs_f64(),
            p50_us: percentile(&self.times_us, 50),
            p99_us: percentile(&self.times_us, 99),
        })
    }
}

/// The smallest of these sorted values that so many percent do not exceed (nearest rank).
fn percentile(sorted: &[f64], percent: usize) -> f64 {
    sorted[(sorted.len() * percent).div_ceil(100).saturating_sub(1)]
}

/// Result of a trial.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Figures {
    /// Requests a second.
    pub(crate) rate: f64,
    /// Time from request to reply, in microseconds: half take no longer.
    pub(crate) p50_us: f64,
    /// The same of 99 in 100.
    pub(crate) p99_us: f64,
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "result {} {} {}", self.rate, self.p50_us, self.p99_us)
    }
}

impl Figures {
    /// Reads the text that [`Display`](fmt::Display) wrote.
    pub(crate) fn read(text: &str) -> Option<Self> {
        let mut numbers = text.trim().strip_prefix("result ")?.split(' ').map(str::parse);
        let mut number = || numbers.next()?.ok();
        Some(Self { rate: number()?, p50_us: number()?, p99_us: number()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_by_nearest_rank() {
        let hundred: Vec<_> = (1..=100).map(f64::from).collect();
        for (sorted, percent, want) in [
            (&hundred[..], 50, 50.0),
            (&hundred[..], 99, 99.0),
            (&hundred[..3], 50, 2.0),
            (&hundred[..3], 99, 3.0),
            (&hundred[..1], 50, 1.0),
        ] {
            let got = percentile(sorted, percent);
            assert!((got - want).abs() < 1e-9, "{percent} % of {}: {got}", sorted.len());
        }
    }

    #[test]
    fn requests_that_warm_up_are_not_counted_and_figures_can_be_read() {
        let mut meter = Meter::start(Duration::from_millis(20));
        let mut laps = 1;
        while meter.lap(&[BYTE]) {
            laps += 1;
        }
        assert_eq!(meter.times_us.len() + WARM_UP as usize, laps);
        let figures = meter.figures().expect("some were counted");
        assert!(figures.p50_us <= figures.p99_us && figures.rate > 0.0, "{figures}");
        assert_eq!(Figures::read(&format!("{figures}\n")), Some(figures));
        assert_eq!(Figures::read("result 1 2\n"), None);
    }

    #[test]
    fn a_wrong_reply_is_a_failure() {
        for reply in [&[][..], &[BYTE, BYTE], &[BYTE + 1]] {
            let mut meter = Meter::start(Duration::from_millis(1));
            meter.lap(reply);
            while meter.lap(&[BYTE]) {}
            let error = meter.figures().expect_err("wrong").to_string();
            assert_eq!(error, "1 replies were wrong", "reply {reply:?}");
        }
    }
}
