//! Reports of ended flows: thousands that end together wait while packets of others are due.
//!
//! A report costs other threads messages, notes and accounts, some 100 µs of processor time at both ends of a flow. The
//! sending thread needs that time as long as it has packets to send.

use std::collections::VecDeque;

/// Time in which one report is handed over, and one more for so many that wait: 1 ms.
const PERIOD_NS: u64 = 1_000_000;
/// None of 10 000 waits for longer than ten seconds, none of 100 000 for longer than 80. Ten in each millisecond would
/// take a processor from those who send.
const SHARE: usize = 50_000;
/// Periods that are made up for, when the thread has slept.
const MOST_PERIODS: u64 = 20;

/// Reports that wait.
#[derive(Debug)]
pub(super) struct Ends<T> {
    waiting: VecDeque<T>,
    /// Instant at which some were handed over last.
    handed_ns: u64,
}

impl<T> Ends<T> {
    /// None waits; there is room for the reports of so many flows.
    pub(super) fn with_capacity(flows: usize) -> Self {
        Self { waiting: VecDeque::with_capacity(flows), handed_ns: 0 }
    }

    /// Makes room for the reports of so many flows beside those that wait.
    pub(super) fn reserve(&mut self, flows: usize) {
        self.waiting.reserve(flows);
    }

    /// Adds a report, behind the others.
    pub(super) fn push(&mut self, report: T) {
        self.waiting.push_back(report);
    }

    /// Takes the reports that may be handed over now, while other flows are sent.
    pub(super) fn take(&mut self, now_ns: u64) -> impl Iterator<Item = T> {
        let mut share = 0;
        if !self.waiting.is_empty() {
            let since_ns = now_ns.saturating_sub(self.handed_ns);
            self.handed_ns = now_ns - since_ns % PERIOD_NS;
            let periods = usize::try_from((since_ns / PERIOD_NS).min(MOST_PERIODS)).unwrap_or(0);
            share = (periods * (1 + self.waiting.len() / SHARE)).min(self.waiting.len());
        }
        self.waiting.drain(..share)
    }

    /// Takes all reports: no flow is sent.
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = T> {
        self.waiting.drain(..)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const START_NS: u64 = 3_600_000 * MS;

    /// Reports told by each millisecond of as many flows as end at the start, to a thread that looks every so often.
    fn told(flows: usize, look_every_ns: u64) -> Vec<usize> {
        let mut ends = Ends::with_capacity(flows);
        (0..flows).for_each(|flow| ends.push(flow));
        let (mut order, mut by_ms) = (Vec::new(), Vec::new());
        for look in 0.. {
            let now_ns = START_NS + look * look_every_ns;
            order.extend(ends.take(now_ns));
            let ms = usize::try_from((now_ns - START_NS) / MS).expect("small");
            by_ms.resize(ms + 1, order.len());
            if order.len() == flows {
                break;
            }
        }
        assert!(order.iter().copied().eq(0..flows), "each once, in their order");
        by_ms
    }

    #[test]
    fn a_flow_that_ends_alone_is_reported_at_once() {
        assert_eq!(told(1, MS), [1]);
    }

    #[test]
    fn of_thousands_that_end_together_few_are_reported_at_a_time_and_none_waits_for_long() {
        for (flows, in_50_ms, seconds) in [(1_000, 90, 1), (10_000, 120, 10), (100_000, 220, 80)] {
            for look_every_ns in [1_000, MS, 1_900_000, 20 * MS] {
                let by_ms = told(flows, look_every_ns);
                let told = (by_ms.get(50).copied().unwrap_or(flows), by_ms.len());
                assert!(told.0 <= in_50_ms && told.1 <= 1000 * seconds, "{flows}: {told:?}");
            }
        }
    }

    #[test]
    fn when_nothing_is_sent_all_are_reported() {
        let mut ends = Ends::with_capacity(100);
        (0..100).for_each(|flow| ends.push(flow));
        assert_eq!(ends.take(START_NS).count(), 20);
        assert_eq!(ends.take(START_NS + 1).count(), 0);
        assert_eq!(ends.take_all().count(), 80);
    }
}
