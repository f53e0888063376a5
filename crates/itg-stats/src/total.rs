//! All flows together.
//!
//! Counts are sums; the duration runs from the first packet of any flow to the last of any other.
//! Delays and their variation are taken over all packets, but never from one flow to another
//! (D-ITG's total jitter mixes successive records of different flows). The fidelity is the worst of
//! all flows; where none is worse than those that pass, but some could not be judged, it is not known.
//!
//! Times that a peer or a file makes up stay with their flow: delays and lateness of a day or more, and
//! packets more than a year away from those of the other flows, are left out of the total, which says so.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use itg_core::flow::Meter;

use crate::delay::{DelayStats, SampleDistribution};
use crate::departures::Departed;
use crate::fidelity::{Fidelity, Tally, Verdict};
use crate::figures::{Ledger, LossModel, LossSplit, Reordering, Way};
use crate::metric::{Metrics, Sums};
use crate::report::{TotalReport, Unmatched};
use crate::sequence::{Disorder, Loss};
use crate::stats::{Facts, FlowStats, LossBasis, Volume};

/// The sums while flows are added.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    flows: u64,
    volume: Volume,
    /// Flows by number, with the instants of their first and last packets.
    spans: Vec<(u32, u64, u64)>,
    /// Flows whose delays or lateness are left out.
    left_out: BTreeSet<u32>,
    sums: Metrics,
    tally: Tally,
    /// The worst first.
    worst: Vec<WorstFlow>,
    loss: Loss,
    bursts_known: bool,
    counts: Sums,
    unknown_network: bool,
    unknown_socket: bool,
    unknown_bursts: bool,
    delay: DelayStats,
    lateness: SampleDistribution,
    departure: SampleDistribution,
    stack: SampleDistribution,
    disorder: Disorder,
    duplicate_bytes: u64,
    model: Option<Loss>,
    split: LossSplit,
    one_way: bool,
    round_trip: bool,
    unmatched: Option<Unmatched>,
}

/// A flow that does not pass.
#[derive(Debug)]
struct WorstFlow {
    flow: u32,
    fidelity: Fidelity,
}

impl WorstFlow {
    /// Worse ones come first.
    fn compare(&self, other: &Self) -> Ordering {
        let verdict = other.fidelity.verdict.cmp(&self.fidelity.verdict);
        let severity = || other.fidelity.severity().total_cmp(&self.fidelity.severity());
        verdict.then_with(severity).then_with(|| self.flow.cmp(&other.flow))
    }
}

/// Flows that a total names for their verdicts.
const WORST_FLOWS: usize = 3;

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
        let lateness = match departed.filter(|departed| departed.report.held) {
            Some(departed) => &departed.lateness,
            None => stats.departures(facts).lateness(),
        };
        for (sum, more) in [
            (&mut self.lateness, Some(lateness)),
            (&mut self.departure, departed.map(|departed| &departed.stack)),
        ] {
            match more {
                Some(more) if is_within_a_day(more) => sum.merge(more),
                Some(_) => {
                    self.left_out.insert(flow);
                }
                None => {}
            }
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
        let loss = || stats.account(facts).loss;
        if let Some((loss, _)) = metrics.loss_model.and_then(|_| loss()) {
            self.model.get_or_insert_default().add(&loss);
        }
        let volume = stats.volume();
        self.volume.packets += volume.packets;
        self.volume.bytes += volume.bytes;
        let span = volume.first_unix_ns.zip(volume.last_unix_ns);
        self.spans.extend(span.map(|(first, last)| (flow, first, last)));
        self.counts.add(metrics);
        self.sums.add_refusals(metrics);
        let sums = &mut self.sums;
        sums.excess_packets = sums.excess_packets.saturating_add(metrics.excess_packets);
        let split = &metrics.ledger.loss;
        self.unknown_network |= split.network.is_none();
        self.unknown_socket |= facts.shared_drops;
        // A stream has no such drops.
        self.unknown_socket |= !facts.stream && split.socket.is_none() && metrics.lost > Some(0);
        // The receiver's count does not tell which packets are lost.
        let by_receiver = metrics.lost_basis == Some(LossBasis::ReceiverCount);
        self.unknown_bursts |= metrics.lost.is_none() || (by_receiver && metrics.lost > Some(0));
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
        if self.flows == 1 {
            sums.congestion_control.clone_from(&metrics.congestion_control);
            sums.limited_by.clone_from(&metrics.limited_by);
        }
        if sums.limited_by != metrics.limited_by {
            sums.limited_by = None;
        }
        if sums.congestion_control != metrics.congestion_control {
            sums.congestion_control = None;
        }
        self.worst(flow, &metrics.fidelity);
        self.pool(flow, stats, metrics);
    }

    fn pool(&mut self, flow: u32, stats: &FlowStats, metrics: &Metrics) {
        let Some(basis) = metrics.delay_basis else { return };
        if !is_within_a_day(stats.delay().distribution()) {
            self.left_out.insert(flow);
            return;
        }
        self.sums.negative_delays += metrics.negative_delays;
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
        let tally = &mut self.tally;
        *tally.verdicts.entry(own.verdict.name()).or_default() += 1;
        for cause in &own.causes {
            *tally.causes.entry(cause.name()).or_default() += 1;
        }
        if own.verdict > Verdict::Pass {
            self.worst.push(WorstFlow { flow, fidelity: own.clone() });
            self.worst.sort_by(WorstFlow::compare);
            self.worst.truncate(WORST_FLOWS);
        }
        let worst = &mut self.sums.fidelity;
        for cause in &own.causes {
            worst.add_cause(*cause);
        }
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
        worst.gap_error = larger(worst.gap_error, own.gap_error);
        worst.late_share = larger(worst.late_share, own.late_share);
        worst.stall_gaps = larger(worst.stall_gaps, own.stall_gaps);
        worst.size_error = larger(worst.size_error, own.size_error);
    }

    /// Flows by verdict and cause, and the reasons of the worst ones: a few lines, however many flows there are.
    fn tell_fidelity(&mut self) {
        let fidelity = &mut self.sums.fidelity;
        let counts = |counts: &BTreeMap<&str, u64>| {
            counts.iter().map(|(name, n)| format!("{n} {name}")).collect::<Vec<_>>().join(", ")
        };
        if self.flows > 1 && !self.worst.is_empty() {
            // Whatever is worse than to pass has a cause.
            let (verdicts, causes) = (counts(&self.tally.verdicts), counts(&self.tally.causes));
            fidelity.reasons.push(format!("flows: {verdicts}; causes: {causes}"));
        }
        for WorstFlow { flow, fidelity: own } in &self.worst {
            fidelity.reasons.push(format!("flow {flow}: {}", own.reasons.join("; ")));
        }
        self.tally.worst = self.worst.iter().map(|worst| worst.flow).collect();
        let unknown = self.tally.verdicts.get(Verdict::Unknown.name()).copied().unwrap_or(0);
        fidelity.not_all_judged(unknown, self.flows);
        fidelity.tally = Some(std::mem::take(&mut self.tally));
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
            unmatched.packets += stats.unmatched(facts);
        }
    }

    /// Time that the packets of all flows span; flows far from the middle one are left out, and named.
    fn span(&mut self) -> BTreeSet<u32> {
        let mut firsts: Vec<u64> = self.spans.iter().map(|(_, first, _)| *first).collect();
        firsts.sort_unstable();
        let Some(&middle) = firsts.get(firsts.len() / 2) else { return BTreeSet::new() };
        let mut far = BTreeSet::new();
        for &(flow, first, last) in &self.spans {
            if first.abs_diff(middle).max(last.abs_diff(middle)) > YEAR_NS {
                far.insert(flow);
                continue;
            }
            let (first, last) = (Some(first), Some(last));
            self.volume.merge(&Volume {
                first_unix_ns: first,
                last_unix_ns: last,
                ..Volume::default()
            });
        }
        far
    }

    /// The total, and what a reader of it should know.
    pub(crate) fn finish(mut self) -> (TotalReport, Vec<String>) {
        let mut notices = Vec::new();
        self.tell_fidelity();
        let far = self.span();
        if !far.is_empty() {
            notices.push(format!(
                "the total's time leaves out {}: more than a year away from the others",
                flows(&far)
            ));
        }
        if !self.left_out.is_empty() {
            notices.push(format!(
                "the total leaves out delays and lateness of {}: some are longer than a day, so times were \
                 made up or clocks are apart",
                flows(&self.left_out)
            ));
        }
        let mut metrics = self.sums;
        metrics.set_volume(&self.volume);
        self.counts.put(&mut metrics);
        if self.bursts_known {
            metrics.set_bursts(self.loss);
        }
        metrics.lost_basis = metrics.lost_basis.filter(|_| metrics.lost.is_some());
        if self.unknown_bursts {
            (metrics.loss_bursts, metrics.loss_burst_mean) = (None, None);
        }
        // The same drops are told with each of the flows that came to a socket.
        let own = |drops: Option<u64>| drops.filter(|_| !self.unknown_socket);
        let (socket, checksum) = (own(self.split.socket), own(self.split.checksum));
        let lost = metrics.lost.filter(|_| !self.unknown_network);
        let skipped = metrics.skipped_packets;
        let split = LossSplit { skipped, socket, checksum, ..self.split }.of(lost);
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
        let model = self.model.as_ref().filter(|_| !self.unknown_bursts);
        metrics.loss_model = model.and_then(LossModel::of);
        if let Some(reordered) = metrics.reordered {
            metrics.reordering = Some(Reordering::of(reordered, &self.disorder));
            let new = self.volume.bytes.saturating_sub(self.duplicate_bytes);
            metrics.goodput_bps = self.volume.bit_rate_of(new);
        }
        metrics.ledger = Ledger {
            lateness_ns: Way::of(&self.lateness),
            departure_ns: Way::of(&self.departure),
            network_ns: metrics.delay_ns.and_then(|_| Way::of(self.delay.distribution())),
            stack_ns: Way::of(&self.stack),
            loss: split,
        };
        metrics.close_account();
        if metrics.lost_basis == Some(LossBasis::SequenceNumbers) {
            notices.push(
                "how many packets were sent is not known: losses after the last arrival are not seen"
                    .to_owned(),
            );
        }
        (TotalReport { flows: self.flows, metrics, unmatched: self.unmatched }, notices)
    }
}

/// Time beyond which no delay and no lateness is believed in a total: a day.
const DAY_NS: u64 = 86_400_000_000_000;
/// Distance from other flows beyond which the times of a flow are not believed in a total.
const YEAR_NS: u64 = 366 * DAY_NS;
/// Flows that a notice names at most.
const NAMED: usize = 8;

fn is_within_a_day(times: &SampleDistribution) -> bool {
    let moments = times.moments();
    moments.min().unsigned_abs().max(moments.max().unsigned_abs()) < DAY_NS
}

/// Flows in words.
fn flows(numbers: &BTreeSet<u32>) -> String {
    let named: Vec<_> = numbers.iter().take(NAMED).map(u32::to_string).collect();
    let more = numbers.len().saturating_sub(NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let word = if numbers.len() == 1 { "flow" } else { "flows" };
    format!("{word} {}{more}", named.join(", "))
}
