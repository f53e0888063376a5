//! All flows together.
//!
//! Counts are sums; the duration runs from the first packet of any flow to the last of any other.
//! Delays and their variation are taken over all packets, but never from one flow to another
//! (D-ITG's total jitter mixes successive records of different flows). The fidelity is the worst of
//! all flows.

use itg_core::flow::Meter;

use crate::delay::{DelayStats, Distribution};
use crate::departures::Departed;
use crate::fidelity::Fidelity;
use crate::figures::{Ledger, LossModel, LossSplit, Reordering, Way};
use crate::report::{Metrics, TotalReport, Unmatched};
use crate::sequence::{Disorder, Loss};
use crate::stats::{Facts, FlowStats, LossBasis, Volume, per_second};

/// The sums while flows are added.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    flows: u64,
    volume: Volume,
    sums: Metrics,
    loss: Loss,
    bursts_known: bool,
    unknown_sent: bool,
    delay: DelayStats,
    lateness: Distribution,
    departure: Distribution,
    stack: Distribution,
    disorder: Disorder,
    duplicate_bytes: u64,
    model: Option<Loss>,
    split: LossSplit,
    one_way: bool,
    round_trip: bool,
    unmatched: Option<Unmatched>,
}

impl Totals {
    /// Adds a flow at the side that counts.
    pub(crate) fn add(
        &mut self,
        flow: u32,
        stats: &FlowStats,
        metrics: &Metrics,
        facts: &Facts<'_>,
        departed: Option<&Departed>,
    ) {
        self.flows += 1;
        match departed.filter(|departed| departed.report.held) {
            Some(departed) => self.lateness.merge(&departed.lateness),
            None => self.lateness.merge(stats.departures(facts).lateness()),
        }
        if let Some(departed) = departed {
            self.departure.merge(&departed.stack);
        }
        self.stack.merge(stats.stack());
        self.duplicate_bytes += stats.duplicate_bytes();
        self.split.add(&metrics.ledger.loss);
        if metrics.reordering.is_some() {
            let (sum, more) = (&mut self.disorder, stats.arrived_seqs().disorder_figures());
            sum.extent_sum = sum.extent_sum.saturating_add(more.extent_sum);
            sum.extent_max = sum.extent_max.max(more.extent_max);
            sum.free_runs += more.free_runs;
            sum.free_packets += more.free_packets;
        }
        if let Some((loss, _)) = stats.loss(facts).filter(|_| metrics.loss_model.is_some()) {
            self.model.get_or_insert_default().add(&loss);
        }
        self.volume.merge(stats.volume());
        let plus = |sum: &mut Option<u64>, more: Option<u64>| {
            if let Some(more) = more {
                *sum = Some(sum.unwrap_or(0).saturating_add(more));
            }
        };
        let sums = &mut self.sums;
        plus(&mut sums.lost, metrics.lost);
        plus(&mut sums.duplicated, metrics.duplicated);
        plus(&mut sums.reordered, metrics.reordered);
        plus(&mut sums.sent_packets, metrics.sent_packets);
        plus(&mut sums.skipped_packets, metrics.skipped_packets);
        self.unknown_sent |= metrics.sent_packets.is_none();
        sums.negative_delays += metrics.negative_delays;
        if let Some(bursts) = metrics.loss_bursts {
            self.bursts_known = true;
            self.loss.lost = self.loss.lost.saturating_add(metrics.lost.unwrap_or(0));
            self.loss.bursts = self.loss.bursts.saturating_add(bursts);
        }
        // One basis when all flows share it.
        sums.lost_basis = if self.flows == 1 || sums.lost_basis == metrics.lost_basis {
            metrics.lost_basis
        } else {
            None
        };
        self.worst(flow, &metrics.fidelity);
        self.pool(stats, metrics);
    }

    fn pool(&mut self, stats: &FlowStats, metrics: &Metrics) {
        let Some(basis) = metrics.delay_basis else { return };
        self.delay.pool(stats.delay());
        if stats.is_round_trip() {
            self.round_trip = true;
        } else {
            self.one_way = true;
        }
        let so_far = self.sums.delay_basis.get_or_insert(basis);
        *so_far = so_far.and(basis);
    }

    fn worst(&mut self, flow: u32, own: &Fidelity) {
        let worst = &mut self.sums.fidelity;
        let larger = |a: Option<f64>, b: Option<f64>| match (a, b) {
            (Some(a), Some(b)) => Some(a.max(b)),
            (a, b) => a.or(b),
        };
        worst.verdict = worst.verdict.max(own.verdict);
        worst.burst = worst.burst.max(own.burst);
        worst.idt_ks = larger(worst.idt_ks, own.idt_ks);
        worst.size_ks = larger(worst.size_ks, own.size_ks);
        if own.rate_error.map(f64::abs) > worst.rate_error.map(f64::abs) {
            worst.rate_error = own.rate_error;
        }
        worst.reasons.extend(own.reasons.iter().map(|reason| format!("flow {flow}: {reason}")));
    }

    /// Compares the two sides of a flow, when logs of both sides were given.
    pub(crate) fn join(
        &mut self,
        stats: &FlowStats,
        has_peer: bool,
        meter: Meter,
        facts: &Facts<'_>,
    ) {
        let unmatched = self.unmatched.get_or_insert_default();
        // A receiver need not log the packets of a round-trip flow: it only sends them back.
        unmatched.flows += u64::from(!has_peer && meter == Meter::Owd);
        if has_peer && stats.counts_arrivals() {
            unmatched.packets += stats.unmatched(facts).unwrap_or(0);
        }
    }

    /// The total, and what a reader of it should know.
    pub(crate) fn finish(self) -> (TotalReport, Vec<String>) {
        let mut notices = Vec::new();
        let mut metrics = self.sums;
        let volume = Metrics::of_volume(&self.volume);
        metrics.packets = volume.packets;
        metrics.bytes = volume.bytes;
        metrics.duration_ns = volume.duration_ns;
        metrics.bitrate_bps = volume.bitrate_bps;
        metrics.packet_rate_pps = volume.packet_rate_pps;
        if self.unknown_sent {
            metrics.sent_packets = None;
        }
        if self.bursts_known {
            metrics.set_bursts(self.loss);
        }
        let negative = metrics.negative_delays;
        if self.one_way && self.round_trip {
            metrics.delay_basis = None;
            notices.push(
                "the total has no delay: some flows measure one way and others the round trip"
                    .to_owned(),
            );
        } else {
            metrics.set_delay(&self.delay);
        }
        metrics.negative_delays = negative;
        metrics.set_lateness(&self.lateness);
        metrics.loss_model = self.model.as_ref().and_then(LossModel::of);
        if let Some(reordered) = metrics.reordered {
            metrics.reordering = Some(Reordering::of(reordered, &self.disorder));
            let new = self.volume.bytes.saturating_sub(self.duplicate_bytes);
            metrics.goodput_bps = Some(per_second(8.0 * new as f64, metrics.duration_ns));
        }
        metrics.ledger = Ledger {
            lateness_ns: Way::of(&self.lateness),
            departure_ns: Way::of(&self.departure),
            network_ns: metrics.delay_ns.and_then(|_| Way::of(self.delay.distribution())),
            stack_ns: Way::of(&self.stack),
            loss: self.split,
        };
        if metrics.lost_basis == Some(LossBasis::SequenceNumbers) {
            notices.push(
                "how many packets were sent is not known: losses after the last arrival are not seen"
                    .to_owned(),
            );
        }
        (TotalReport { flows: self.flows, metrics, unmatched: self.unmatched }, notices)
    }
}
