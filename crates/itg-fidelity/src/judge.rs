//! Comparison of the traffic sent with the traffic requested.
//!
//! Everything is judged in units of the mean planned inter-departure time *g* of the flow. Over all pairs of
//! packets with consecutive sequence numbers:
//!
//! - the Wasserstein-1 distance between planned and actual inter-departure times, divided by *g*, and the same
//!   between sums of 2, 4, … 1024 successive ones, divided by the mean planned sum ([`crate::scales`]). Their
//!   standard error is at most that of the mean of |sent − planned|, since W₁ is the largest mean difference of
//!   any function that grows by at most 1 (Kantorovich, Rubinstein 1958): half-width rms / √n;
//! - the mean of |sent − planned|, which sees errors that leave the distribution as it is;
//! - lateness beyond that of the most punctual packets (the first percentile): the share above one *g*; and the
//!   longest time that the sender stood still;
//! - the time from the first packet to the last, which is the mean packet rate.
//!
//! A figure fails only if the end of its interval that is nearer to 0 is beyond the limit (distances: a standard error;
//! shares and the rate: 99 %): a few packets do not fail a flow. Times in a log have an uncertainty, the time that
//! handing a packet to the kernel takes; it is measured ([`Departures`], or the kernel's stamps of departures). Above
//! [`RESOLUTION_LIMIT`] of *g* it is taken off each figure, and what would pass is *unresolved*.
//!
//! A second test finds a generator that draws wrongly (`law`). In burst mode (see `itg_core::schedule`) packets are
//! planned several at a time, and judged by that plan; lateness, stalls and uncertainty are then measured in
//! the time between bursts.
//!
//! If packets had to wait because TCP or the queue of the device took no more, and at least half as many as
//! were late, then the path is the cause, and the verdict is *network-limited*. The limits are ours; `docs/fidelity.md`
//! has the sources, and the power of the tests.

use std::sync::Arc;

use itg_core::distribution::Resolved;
use itg_core::flow::{Flow, FlowError, FlowSpec};
use itg_core::seed::RunSeed;
use itg_core::units::format_duration_ns;

use crate::departures::Departures;
use crate::quantiles::Point;
use crate::samples::signed_difference;
use crate::stall::STALL_GAPS;
use crate::verdict::{Cause, Fidelity, ScaleDistance, Verdict};

/// Largest distance that passes.
pub const PASS_LIMIT: f64 = 0.05;
/// Largest distance that is only warned about.
pub const WARN_LIMIT: f64 = 0.15;
/// Largest relative error of the mean packet rate.
pub const RATE_LIMIT: f64 = 0.01;
/// Largest share of packets that the sender may leave out.
pub const SKIPPED_LIMIT: f64 = 0.01;
/// Largest shares of packets more than one mean inter-departure time late: that passes, and that is only warned
/// about.
pub const LATE_LIMITS: (f64, f64) = (0.01, 0.05);
/// Largest uncertainty of times, in mean inter-departure times, at which a flow can pass.
pub const RESOLUTION_LIMIT: f64 = 0.05;
/// Mean inter-departure times that a sender may stand still, if that is a share of [`STALL_SHARE`] of its time.
pub const SHORT_STALL_GAPS: f64 = 10.0;
/// Share of a flow's time beyond which a stall counts more.
pub const STALL_SHARE: f64 = 1e-3;
/// Largest mean error of inter-departure times that is only warned about.
const ERROR_LIMIT: f64 = 0.5;
/// Packets handed over back to back that tell how long that takes.
const ENOUGH_SPACINGS: u64 = 8;
/// Two-sided quantile of the normal distribution for intervals of 99 %.
const Z99: f64 = 2.575_829_304;

/// The distributions of a flow, as they are in force.
#[derive(Clone, Debug)]
pub struct Distributions(pub(crate) Arc<DistributionPair>);

#[derive(Debug)]
pub(crate) struct DistributionPair {
    /// Of inter-departure times; `None` where pauses, bursts or changes of the rate make them differ
    /// from the distribution.
    pub(crate) idt: Option<Resolved>,
    pub(crate) size: Resolved,
    burst: Option<u32>,
    /// With ON/OFF periods, the mean inter-departure time within them, in nanoseconds.
    within_ns: Option<f64>,
}

impl Distributions {
    /// The distributions of a flow.
    ///
    /// # Errors
    /// A description that cannot be run, such as an empirical distribution whose table is not in
    /// the log.
    pub fn new(spec: &FlowSpec, seed: u64) -> Result<Self, FlowError> {
        let flow = Flow::resolve(spec.clone(), RunSeed(seed))?;
        let alone = flow.on_off().is_none() && spec.burst.is_none() && spec.changes.is_empty();
        let idt = alone.then(|| flow.idt().clone());
        let mean = Some(flow.idt().mean()).filter(|mean| mean.is_finite() && *mean > 0.0);
        let within_ns = mean.filter(|_| flow.on_off().is_some());
        let size = flow.size().clone();
        Ok(Self(Arc::new(DistributionPair { idt, size, burst: spec.burst, within_ns })))
    }
}

/// Data that departures are judged by, beside their plan.
#[derive(Clone, Copy, Debug, Default)]
pub struct Asked<'a> {
    /// Share of the packets that the sender left out.
    pub skipped_share: f64,
    /// The distributions of the flow, where they are known.
    pub distributions: Option<&'a Distributions>,
    /// Lateness that 99 % of the packets do not exceed as the sender declared, in nanoseconds.
    pub late_p99_ns: Option<u64>,
    /// Packets that had to wait because the socket, or the device, took no more.
    pub waited_packets: Option<u64>,
    /// True if the flow is a stream: what it waits for is the network or the receiver, not the device.
    pub stream: bool,
    /// Uncertainty of the time between stamp and departure by the kernel's stamps, in nanoseconds.
    pub departure_spread_ns: Option<f64>,
    /// Packets whose planned time is not the one that the seed gives.
    pub replanned_packets: u64,
}

/// Unit of a flow's figures.
#[derive(Clone, Copy, Debug)]
struct Unit {
    /// Mean planned inter-departure time in nanoseconds.
    gap_ns: f64,
    /// The same between bursts.
    step_ns: f64,
    /// Uncertainty of times that is taken off each figure, in nanoseconds.
    blur_ns: f64,
}

/// The verdict while it is found.
pub(crate) struct Judge<'a> {
    pub(crate) departures: &'a Departures,
    asked: Asked<'a>,
    /// The figures, and what is wrong but for the times of packets.
    pub(crate) fidelity: Fidelity,
    /// Worst verdict on the times of packets.
    timing: Verdict,
}

impl Departures {
    /// The verdict.
    #[must_use]
    pub fn judge(&self, asked: &Asked<'_>) -> Fidelity {
        let pair = asked.distributions.map(|Distributions(pair)| &**pair);
        let burst = pair.and_then(|pair| pair.burst);
        let waited_packets = asked.waited_packets;
        let fidelity = Fidelity { burst, waited_packets, ..Fidelity::default() };
        if self.planned.count() == 0 {
            return fidelity;
        }
        let mut judge = Judge { departures: self, asked: *asked, fidelity, timing: Verdict::Pass };
        judge.fidelity.verdict = Verdict::Pass;
        let unit = judge.unit(pair);
        if let Some(unit) = unit {
            judge.distances(unit);
            judge.lateness(unit);
            judge.stall(unit);
            judge.rate(unit);
        }
        judge.left_out();
        judge.sizes();
        judge.declared();
        if let Some(pair) = pair {
            judge.law(pair);
        }
        judge.finish(unit)
    }
}

impl Judge<'_> {
    fn unit(&mut self, pair: Option<&DistributionPair>) -> Option<Unit> {
        let within = pair.and_then(|pair| pair.within_ns).unwrap_or(f64::INFINITY);
        let gap_ns = self.departures.mean_gap_ns()?.min(within);
        let step_ns = gap_ns * f64::from(self.fidelity.burst.unwrap_or(1).max(1));
        let spacings = &self.departures.spacings;
        let measured = (spacings.count() >= ENOUGH_SPACINGS).then(|| spacings.at([0.25])[0] as f64);
        // A stream has taken a packet when it says so, whenever that leaves.
        let resolution_ns =
            self.asked.departure_spread_ns.or(measured).filter(|_| !self.asked.stream);
        let coarse = resolution_ns.filter(|ns| *ns > RESOLUTION_LIMIT * step_ns);
        let fidelity = &mut self.fidelity;
        fidelity.gap_ns = Some(gap_ns);
        fidelity.resolution_ns = resolution_ns;
        fidelity.resolved_up_to_pps = resolution_ns
            .filter(|ns| *ns > 0.0)
            .map(|ns| RESOLUTION_LIMIT * 1e9 / ns * (step_ns / gap_ns));
        Some(Unit { gap_ns, step_ns, blur_ns: coarse.unwrap_or(0.0) })
    }

    /// Objects to the times of packets.
    fn object(&mut self, verdict: Verdict, cause: Cause, reason: String) {
        self.timing = self.timing.max(verdict);
        self.fidelity.object(Verdict::Pass, cause, reason);
    }

    /// Distances between planned and actual inter-departure times.
    fn distances(&mut self, unit: Unit) {
        let Unit { gap_ns, blur_ns, .. } = unit;
        let departures = self.departures;
        let (planned, sent) = (departures.planned.points(), departures.sent.points());
        let tolerance = to_ns(PASS_LIMIT * gap_ns);
        self.fidelity.idt_ks = Some(distance(&planned, &sent, tolerance));
        let errors = &departures.errors;
        let half_width = |rms: f64, count: u64| rms / (count.max(1) as f64).sqrt();
        let single = ScaleDistance {
            gaps: 1,
            sums: errors.count(),
            distance: wasserstein(&planned, &sent) / gap_ns,
            half_width: half_width(errors.rms_ns(), errors.count()) / gap_ns,
        };
        let sums = departures.scales.distances().map(|found| {
            let sum_ns = found.gaps as f64 * gap_ns;
            ScaleDistance {
                gaps: found.gaps,
                sums: found.sums,
                distance: found.distance_ns / sum_ns,
                half_width: half_width(found.rms_ns, found.sums) / sum_ns,
            }
        });
        self.fidelity.scales = std::iter::once(single).chain(sums).collect();
        let off = |scale: &ScaleDistance| scale.near_end() - blur_ns / (scale.gaps as f64 * gap_ns);
        let worst = self.fidelity.scales.iter().max_by(|a, b| off(a).total_cmp(&off(b)));
        if let Some(scale) = worst.copied()
            && let Some(verdict) = exceeded(off(&scale), (PASS_LIMIT, WARN_LIMIT))
        {
            let what = match scale.gaps {
                1 => "inter-departure times differ".to_owned(),
                gaps => format!("sums of {gaps} inter-departure times differ"),
            };
            let words = format!("{what} from the plan by {:.3} of their mean", scale.distance);
            self.object(verdict, Cause::LateSender, words);
        }
        let (mean, rms) = (errors.mean_ns(), errors.rms_ns());
        let deviation = (rms * rms - mean * mean).max(0.0).sqrt();
        let half = half_width(deviation, errors.count());
        self.fidelity.gap_error = Some(mean / gap_ns);
        self.fidelity.gap_error_half_width = Some(half / gap_ns);
        let near = (mean - half - blur_ns) / gap_ns;
        if let Some(verdict) = exceeded(near, (PASS_LIMIT, ERROR_LIMIT)) {
            let off = mean / gap_ns;
            let words = format!("inter-departure times are {off:.3} of their mean off on average");
            self.object(verdict, Cause::LateSender, words);
        }
    }

    /// Share of the packets that were late by more than one inter-departure time.
    fn lateness(&mut self, unit: Unit) {
        let lateness = self.departures.lateness.quantiles();
        let n = lateness.count();
        if n == 0 {
            return;
        }
        let [punctual, p99] = lateness.at([0.01, 0.99]);
        self.fidelity.late_p99_gaps = Some(p99.saturating_sub(punctual) as f64 / unit.step_ns);
        let late = |limit_ns: f64| {
            let limit = punctual as f64 + limit_ns;
            let points = lateness.points();
            points
                .iter()
                .filter(|point| point.low as f64 > limit)
                .map(|point| point.count)
                .sum::<u64>()
        };
        self.fidelity.late_share = Some(late(unit.step_ns) as f64 / n as f64);
        let near = lower_share(late(unit.step_ns + unit.blur_ns), n);
        if let Some(verdict) = exceeded(near, LATE_LIMITS) {
            let share = 100.0 * self.fidelity.late_share.unwrap_or(0.0);
            let step = duration(unit.step_ns);
            let words = format!("{share:.1} % of the packets left more than {step} late");
            self.object(verdict, Cause::LateSender, words);
        }
    }

    /// Longest time that the sender stood still.
    fn stall(&mut self, unit: Unit) {
        let stall_ns = self.departures.stalls.longest_ns() as f64 - unit.blur_ns;
        let gaps = stall_ns / unit.step_ns;
        self.fidelity.stall_gaps = Some(gaps.max(0.0));
        let planned = self.departures.first.zip(self.departures.last);
        let span_ns = planned.map_or(0.0, |(first, last)| {
            signed_difference(last.planned_ns, first.planned_ns) as f64
        });
        let long = gaps >= STALL_GAPS as f64;
        let verdict = match (long, stall_ns >= STALL_SHARE * span_ns) {
            (true, true) => Verdict::Fail,
            (true, false) => Verdict::Warn,
            (false, true) if gaps >= SHORT_STALL_GAPS => Verdict::Warn,
            _ => return,
        };
        let words = format!(
            "the sender stood still for {}, {gaps:.0} mean inter-departure times",
            duration(stall_ns)
        );
        self.object(verdict, Cause::HostStalled, words);
    }

    /// Relative error of the mean rate between first and last packet.
    fn rate(&mut self, unit: Unit) {
        let Some((first, last)) = self.departures.first.zip(self.departures.last) else { return };
        let planned = signed_difference(last.planned_ns, first.planned_ns) as f64;
        let sent = signed_difference(last.sent_ns, first.sent_ns) as f64;
        if planned <= 0.0 || sent <= 0.0 {
            return;
        }
        let error = planned / sent - 1.0;
        self.fidelity.rate_error = Some(error);
        // Both ends may be off as a packet is.
        let chance = Z99 * std::f64::consts::SQRT_2 * self.departures.errors.rms_ns();
        if (sent - planned).abs() > RATE_LIMIT * planned + chance + unit.blur_ns {
            let words = format!("mean packet rate is off by {:+.2} %", 100.0 * error);
            self.object(Verdict::Fail, Cause::LateSender, words);
        }
    }

    fn left_out(&mut self) {
        let share = self.asked.skipped_share;
        if share > SKIPPED_LIMIT {
            let words = format!("{:.2} % of the packets were left out", 100.0 * share);
            self.object(Verdict::Fail, Cause::DroppedPackets, words);
        }
    }

    /// Sizes against those planned for the same packets.
    fn sizes(&mut self) {
        let ks = self.departures.size_distance();
        self.fidelity.size_ks = ks;
        if let Some(verdict) = exceeded(ks.unwrap_or(0.0), (PASS_LIMIT, WARN_LIMIT)) {
            let words = format!("sizes differ from the plan by {:.3}", ks.unwrap_or(0.0));
            self.fidelity.object(verdict, Cause::Generator, words);
        }
        let (compared, wrong) = self.departures.size_errors();
        if compared == 0 {
            return;
        }
        let share = wrong as f64 / compared as f64;
        self.fidelity.size_error = Some(share);
        if let Some(verdict) = exceeded(lower_share(wrong, compared), (PASS_LIMIT, WARN_LIMIT)) {
            let words =
                format!("{:.1} % of the packets had another size than planned", 100.0 * share);
            self.fidelity.object(verdict, Cause::Generator, words);
        }
    }

    /// Lateness against what the sender declared, and the plan against the seed.
    fn declared(&mut self) {
        let [late] = self.departures.lateness.quantiles().at([0.99]);
        let most = self.asked.late_p99_ns;
        if let Some(most) = most.filter(|&most| late > 0 && late.unsigned_abs() > most) {
            let words = format!(
                "99 % of the packets left up to {} late, {} was declared",
                format_duration_ns(late.unsigned_abs()),
                format_duration_ns(most)
            );
            self.object(Verdict::Warn, Cause::LateSender, words);
        }
        let replanned = self.asked.replanned_packets;
        if replanned > 0 {
            let words =
                format!("{replanned} packets were planned for another time than the seed gives");
            self.fidelity.object(Verdict::Warn, Cause::Generator, words);
        }
    }

    /// Returns true if the actual inter-departure times follow their plan.
    pub(crate) fn is_on_plan(&self) -> bool {
        self.timing <= Verdict::Pass
    }

    fn finish(mut self, unit: Option<Unit>) -> Fidelity {
        let late = self.fidelity.late_share.unwrap_or(0.0).max(LATE_LIMITS.0);
        let packets = self.departures.lateness.quantiles().count().max(1) as f64;
        let waited = self.asked.waited_packets.unwrap_or(0);
        let fidelity = &mut self.fidelity;
        if self.timing > Verdict::Pass && waited as f64 >= late * packets / 2.0 && waited > 0 {
            let ours = [Cause::LateSender, Cause::HostStalled, Cause::DroppedPackets];
            fidelity.causes.retain(|cause| !ours.contains(cause));
            let (cause, what) = if self.asked.stream {
                (
                    Cause::BackPressure,
                    "TCP took no more: the network or the receiver is slower than the plan",
                )
            } else {
                (Cause::FullQueue, "the queue of the socket or the device was full")
            };
            let words = format!("{waited} packets had to wait because {what}");
            fidelity.object(Verdict::NetworkLimited, cause, words);
        } else {
            fidelity.verdict = fidelity.verdict.max(self.timing);
        }
        let truncated = self.asked.distributions.is_some_and(|Distributions(pair)| {
            pair.size.notice().is_some()
                || pair.idt.as_ref().is_some_and(|idt| idt.notice().is_some())
        });
        if fidelity.verdict > Verdict::Pass
            && truncated
            && !fidelity.causes.contains(&Cause::TruncatedLaw)
        {
            fidelity.causes.push(Cause::TruncatedLaw);
        }
        if let Some(unit) =
            unit.filter(|unit| unit.blur_ns > 0.0 && fidelity.verdict == Verdict::Pass)
        {
            let rate = fidelity.resolved_up_to_pps.unwrap_or(0.0);
            let words = format!(
                "the times in the log are {} uncertain, {:.0} % of the mean inter-departure time: they tell up to \
                 {rate:.0} packets/s; stamps of departures (--tx-stamps), --pacing txtime or --engine xdp tell more",
                duration(unit.blur_ns),
                100.0 * unit.blur_ns / unit.step_ns,
            );
            fidelity.object(Verdict::Unresolved, Cause::Resolution, words);
        }
        fidelity.causes.sort_unstable();
        self.fidelity
    }
}

/// The verdict on a figure: warn beyond the first limit, fail beyond the second.
pub(crate) fn exceeded(value: f64, (pass, warn): (f64, f64)) -> Option<Verdict> {
    (value > pass).then_some(if value > warn { Verdict::Fail } else { Verdict::Warn })
}

/// Lower end of the interval of a share (Wilson, J. Amer. Statist. Assoc. 22, 1927).
fn lower_share(count: u64, of: u64) -> f64 {
    let n = of.max(1) as f64;
    let (share, square) = (count as f64 / n, Z99 * Z99);
    let middle = share + square / (2.0 * n);
    let spread = Z99 * (share * (1.0 - share) / n + square / (4.0 * n * n)).sqrt();
    ((middle - spread) / (1.0 + square / n)).max(0.0)
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "conversions saturate; durations are positive"
)]
const fn to_ns(ns: f64) -> u64 {
    ns as u64
}

/// A duration to three digits.
fn duration(ns: f64) -> String {
    let ns = to_ns(ns);
    let unit = 10u64.pow(ns.max(1).ilog10().saturating_sub(2));
    format_duration_ns(ns / unit * unit)
}

/// Wasserstein-1 distance of two samples of equal size, ∫ |A(x) − B(x)| dx; both ascend, neither is empty.
fn wasserstein(a: &[Point], b: &[Point]) -> f64 {
    let middle = |point: &Point| point.low as f64 / 2.0 + point.high as f64 / 2.0;
    let total = a.iter().map(|point| point.count).sum::<u64>().max(1);
    let (mut a, mut b) = (a.iter().peekable(), b.iter().peekable());
    let (mut ahead, mut before, mut area) = (0i128, 0.0, 0.0);
    loop {
        let at = match (a.peek(), b.peek()) {
            (Some(a), Some(b)) => middle(a).min(middle(b)),
            (Some(point), None) | (None, Some(point)) => middle(point),
            (None, None) => return area / total as f64,
        };
        area += ahead.unsigned_abs() as f64 * (at - before);
        before = at;
        for (points, sign) in [(&mut a, 1), (&mut b, -1)] {
            while let Some(point) = points.next_if(|point| middle(point) <= at) {
                ahead += sign * i128::from(point.count);
            }
        }
    }
}

/// Kolmogorov distance of two samples with a horizontal tolerance; both ascend, neither is empty.
#[must_use]
pub fn distance(a: &[Point], b: &[Point], tolerance: u64) -> f64 {
    one_sided(a, b, tolerance).max(one_sided(b, a, tolerance))
}

/// supₓ A(x) − B(x + τ), at least 0. A only grows at its own points, so those are enough.
fn one_sided(a: &[Point], b: &[Point], tolerance: u64) -> f64 {
    let total = |points: &[Point]| points.iter().map(|p| p.count).sum::<u64>().max(1) as f64;
    let (a_total, b_total) = (total(a), total(b));
    let mut b = b.iter().peekable();
    let (mut in_a, mut in_b) = (0u64, 0u64);
    let mut largest = 0.0f64;
    for point in a {
        in_a += point.count;
        let reach = point.high.saturating_add_unsigned(tolerance);
        while let Some(other) = b.next_if(|other| other.low <= reach) {
            in_b += other.count;
        }
        largest = largest.max(in_a as f64 / a_total - in_b as f64 / b_total);
    }
    largest
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
