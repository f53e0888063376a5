//! Total of the flows of a run, as their programs counted them.

use itg_stats::fidelity::{Fidelity, Verdict};
use itg_stats::metric::Sums;
use itg_stats::report::{DelayBasis, Metrics, TotalReport};
use itg_stats::stats::{LossBasis, Volume};

use super::pool::Pool;

/// All flows together.
#[derive(Default)]
pub(super) struct Total {
    volume: Volume,
    /// A flow has packets and no times.
    untimed: bool,
    sums: Metrics,
    counts: Sums,
    /// Flows whose fidelity is not known.
    unjudged: u64,
    pool: Pool,
    basis: Option<DelayBasis>,
    /// Kinds of the delays: one-way, of round trips.
    kinds: [bool; 2],
}

impl Total {
    pub(super) fn pool(&mut self, pool: Pool, round_trip: bool, basis: Option<DelayBasis>) {
        self.kinds[usize::from(round_trip)] = true;
        self.pool.merge(pool);
        self.basis = self.basis.map_or(basis, |sum| basis.map(|basis| sum.and(basis)));
    }

    pub(super) fn add(&mut self, volume: &Volume, of: &Metrics) {
        self.volume.merge(volume);
        self.untimed |= volume.packets > 0 && volume.first_unix_ns.is_none();
        self.counts.add(of);
        self.sums.add_refusals(of);
        self.sums.negative_delays = self.sums.negative_delays.saturating_add(of.negative_delays);
        self.sums.excess_packets = self.sums.excess_packets.saturating_add(of.excess_packets);
        self.unjudged += u64::from(of.fidelity.verdict == Verdict::Unknown);
        let worse = of.fidelity.verdict > self.sums.fidelity.verdict;
        if worse || self.sums.fidelity.reasons.is_empty() {
            let Fidelity { verdict, reasons, .. } = &of.fidelity;
            self.sums.fidelity =
                Fidelity { verdict: *verdict, reasons: reasons.clone(), ..Fidelity::default() };
        }
    }

    pub(super) fn report(mut self, flows: u64) -> TotalReport {
        self.pool.sort();
        if self.untimed {
            // The bytes of all in the time of some are no rate.
            (self.volume.first_unix_ns, self.volume.last_unix_ns) = (None, None);
        }
        let mut metrics = Metrics::of_volume(&self.volume);
        self.counts.put(&mut metrics);
        metrics.lost_basis = metrics.lost.map(|_| LossBasis::SenderCount);
        metrics.excess_packets = self.sums.excess_packets;
        metrics.account.refused_by = self.sums.account.refused_by.clone();
        metrics.close_account();
        metrics.fidelity = self.sums.fidelity;
        metrics.fidelity.not_all_judged(self.unjudged, flows);
        // Times of one way and of both have no percentiles together.
        if self.kinds != [true, true] {
            metrics.negative_delays = self.sums.negative_delays;
            metrics.delay_ns = self.pool.delay();
            metrics.delay_basis = self.basis.filter(|_| metrics.delay_ns.is_some());
            metrics.jitter_ns = self.pool.jitter();
        }
        TotalReport { flows, metrics, unmatched: None }
    }
}
