//! Lease of a sender, and the position in the schedule at which it takes a flow over.

use std::sync::atomic::{AtomicU64, Ordering};

use itg_core::flow::Flow;
use itg_core::schedule::Schedule;

/// Instant until which packets may leave, on CLOCK_MONOTONIC. The sending thread looks before each
/// of its turns.
#[derive(Debug)]
pub struct Lease(AtomicU64);

impl Lease {
    /// A lease until this instant; `u64::MAX` lasts for ever.
    #[must_use]
    pub const fn until(ns: u64) -> Self {
        Self(AtomicU64::new(ns))
    }

    /// It lasts until this instant from now on.
    pub fn renew(&self, until_ns: u64) {
        self.0.store(until_ns, Ordering::Release);
    }

    /// Returns true if the lease is over at this instant.
    #[must_use]
    pub fn is_over(&self, now_ns: u64) -> bool {
        now_ns >= self.0.load(Ordering::Acquire)
    }
}

/// The schedule of a flow from the first packet on that is due at `from_ns` (after the flow's start) or
/// later.
pub fn schedule_from(flow: &Flow, from_ns: u64) -> Schedule {
    let mut schedule = flow.schedule();
    while schedule.peek().is_some_and(|next| next.due_ns < from_ns) {
        schedule.advance();
    }
    schedule
}

#[cfg(test)]
mod tests {
    use itg_core::distribution::Distribution;
    use itg_core::flow::{Flow, FlowSpec};
    use itg_core::seed::RunSeed;

    use super::*;

    #[test]
    fn who_takes_over_sends_the_same_packets() {
        let mut spec = FlowSpec::new(1);
        spec.idt = Distribution::Exp { mean: 1e6 };
        spec.size = Distribution::Uniform { lo: 100.0, hi: 900.0 };
        spec.stop.packets = Some(2000);
        let flow = Flow::resolve(spec, RunSeed(5)).expect("valid");
        let all: Vec<_> = flow.schedule().collect();
        for from_ns in [0, 1, 500_000_000, all[700].due_ns, all[700].due_ns + 1, u64::MAX] {
            let rest: Vec<_> = schedule_from(&flow, from_ns).collect();
            let want: Vec<_> = all.iter().filter(|next| next.due_ns >= from_ns).copied().collect();
            assert_eq!(rest, want, "from {from_ns}");
        }
    }

    #[test]
    fn a_lease_ends_when_it_says() {
        let lease = Lease::until(10);
        assert!(!lease.is_over(9) && lease.is_over(10));
        lease.renew(20);
        assert!(!lease.is_over(19) && lease.is_over(20));
    }
}
